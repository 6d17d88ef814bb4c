"""Methods with an algorithm of their own: degenerate cases, identities, traffic, checkpoints, and models of all kinds.

That each does what its paper says is in test_simulation.py and test_participation.py, against reference_algorithms.py.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

import firma
from conftest import CLASSES, FEATURES
from firma.algorithms.catalogue import algorithm_of
from firma.data.partition import deal
from firma.engines.checkpoint import RunCheckpoints
from firma.engines.simulation import Simulation
from firma.errors import BadInput
from firma.method_lookup import lookup
from firma.methods import METHODS
from firma.mixing.ring_order import neighbours
from firma.models import SplitModel, mlp
from firma.privacy import Audit
from firma.settings import Hyper, split_for
from firma.tasks.task import Task
from firma.training.algorithm import PERSONAL, Algorithm, ClientRound
from reference_algorithms import ALGORITHMS
from test_simulation import CLOSE, finish, oracle

OWN_STEP = sorted(set(ALGORITHMS) - {"fednova"})
EQUAL = "fedavg:weights=equal"


def by_autograd(make_federation, method, **changes):
    """The parameters that are tested, (N, P), without compiled kernels, which round differently."""
    return finish(make_federation(method, 4, backend="autograd", **changes))[0]


def same_sizes(federation, size=40):
    """All clients with equally many samples, so that all take equally many steps."""
    data = [
        replace(each, inputs=each.inputs.repeat(3, 1)[:size], labels=each.labels.repeat(3)[:size])
        for each in federation.data
    ]
    return replace(federation, data=data)


def memory_of(simulation, name):
    return torch.stack([client.memory[name] for client in simulation._group.clients])


@pytest.mark.parametrize("backend", ["auto", "autograd"])
def test_fednova_is_fedavg_if_all_take_equally_many_steps(make_federation, backend):
    ours, theirs = (make_federation(method, 4, backend=backend) for method in ("fednova", "fedavg"))
    torch.testing.assert_close(finish(same_sizes(ours))[0], finish(same_sizes(theirs))[0], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(finish(ours)[0], finish(theirs)[0], **CLOSE), "with unequal sizes it is not"


@pytest.mark.parametrize(
    ("change", "settings"),
    [("", {}), (":optimiser=adam", {}), ("", {"proximal": 0.5, "clip": 0.5, "weight_decay": 0.1})],
)
def test_ditto_without_attraction_is_training_alone(make_federation, change, settings):
    """The personal model, bit by bit: the same batches, and optimiser, start of the round and clipping of its own."""
    ours = by_autograd(make_federation, f"ditto{change}", attraction=0.0, **settings)
    assert torch.equal(ours, by_autograd(make_federation, f"local{change}", **settings))
    assert not torch.equal(by_autograd(make_federation, f"ditto{change}", attraction=0.5, **settings), ours)


def test_what_ditto_shares_is_fedavg(make_federation):
    simulation = Simulation(make_federation("ditto", 4, backend="autograd"))
    list(simulation.rounds())
    assert torch.equal(simulation._group.stack, by_autograd(make_federation, "fedavg"))


@pytest.mark.parametrize(("share", "method"), [(0.0, EQUAL), (1.0, "local")])
def test_apfl_at_both_ends_is_fedavg_and_training_alone(make_federation, share, method):
    ours = by_autograd(make_federation, "apfl", interpolation=share, interpolation_learnt="no")
    assert torch.equal(ours, by_autograd(make_federation, method))


def test_apfl_learns_how_much_to_take_from_others(make_federation):
    """Clients whose labels are chance, and differ from the others', end with more of their own model."""
    simulation = Simulation(make_federation("apfl", 4, rounds=8, noisy=(1,), rate=0.05))
    list(simulation.rounds())
    shares = memory_of(simulation, "interpolation.share").flatten()
    assert shares.argmax() == 1
    assert bool(((shares >= 0) & (shares <= 1)).all())


def test_pfedme_with_one_inner_step_is_fedavg(make_federation):
    """θ = w - ρ∇f(w), so λ(w - θ) = λρ∇f(w): with λρ = 1 the gradient, up to rounding of θ near w."""
    values = {"attraction": 4.0, "inner_rate": 0.25, "inner_steps": 1}
    ours = Simulation(make_federation("pfedme", 4, backend="autograd", **values))
    list(ours.rounds())
    torch.testing.assert_close(ours._group.stack, by_autograd(make_federation, EQUAL), rtol=1e-4, atol=1e-5)


def test_pfedmes_server_goes_part_of_the_way(make_federation):
    """After one round from the same start: x + β(mean - x)."""
    whole, half = (Simulation(make_federation("pfedme", 3, 1, server_rate=rate)) for rate in (1.0, 0.5))
    start = whole._group.stack.clone()
    for each in (whole, half):
        list(each.rounds())
    torch.testing.assert_close(half._group.stack, (start + whole._group.stack) / 2)


@dataclass(frozen=True)
class SecondHalves(Algorithm):
    """Plain steps on the second half of each batch of four or more samples, on all of a smaller one."""

    def local_step(self, step):
        step.update(step.gradient(rows=slice(step.samples // 2 if step.samples > 3 else 0, None)))


def test_per_fedavg_without_looking_ahead_is_fedavg_on_the_second_halves(make_federation):
    ours = by_autograd(make_federation, "per-fedavg", inner_rate=0.0)
    halves = replace(lookup(EQUAL), name="halves", algorithm=SecondHalves())
    assert torch.equal(ours, by_autograd(make_federation, halves))
    assert not torch.equal(ours, by_autograd(make_federation, EQUAL))


def test_per_fedavgs_hessian_is_that_of_autograd(make_federation):
    """By differences here, by a second backward pass in the oracle, for a model whose gradients do not jump."""
    torch.manual_seed(0)
    smooth = SplitModel(nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh()), nn.Linear(16, CLASSES))
    ours, plain = (
        replace(make_federation("per-fedavg", 3, hessian=hessian, inner_rate=0.3), models=[smooth])
        for hessian in ("difference", "none")
    )
    exact = oracle(ours)
    torch.testing.assert_close(finish(ours)[0], exact, rtol=1e-3, atol=1e-4)
    assert (finish(plain)[0] - exact).abs().max() > 5e-3, "without the Hessian it would not have been noticed"


def test_feddbe_without_bias_and_penalty_is_fedavg(make_federation):
    ours = by_autograd(make_federation, "feddbe", mean_penalty=0.0, feature_bias="no")
    assert torch.equal(ours, by_autograd(make_federation, "fedavg"))


@pytest.mark.parametrize(("frozen", "says"), [(False, "Linear without a bias"), (True, "Linear that is frozen")])
def test_feddbe_says_what_its_head_lacks(make_federation, frozen, says):
    head = nn.Linear(16, CLASSES, bias=frozen).requires_grad_(not frozen)
    model = SplitModel(nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU()), head)
    with pytest.raises(BadInput) as caught:
        finish(replace(make_federation("feddbe", 3), models=[model]))
    assert str(caught.value) == (
        "feature debiasing requires a head that starts with a linear layer with a bias, both trainable; this one "
        f"starts with {says}; choose another method, or another model"
    )


@pytest.mark.parametrize("changes", [{"mean_penalty": 5.0}, {"feature_bias": "no"}, {"mean_momentum": 0.3}])
def test_each_part_of_feddbe_matters_and_agrees_with_the_oracle(make_federation, changes):
    federation = make_federation("feddbe", 3, **changes)
    torch.testing.assert_close(finish(federation)[0], oracle(federation), **CLOSE)
    assert not torch.allclose(finish(federation)[0], finish(make_federation("feddbe", 3))[0], **CLOSE)


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("ditto", {"attraction": 2.0}), ("apfl", {"interpolation": 0.25, "interpolation_learnt": "no"}),
        ("pfedme", {"server_rate": 0.5, "inner_steps": 3}), ("scaffold", {"momentum": 0.0}),
        ("gradient-tracking", {"momentum": 0.0, "retention": 0.7}), ("fednova", {"momentum": 0.0}),
    ],
)  # fmt: skip
def test_other_numbers_agree_with_the_oracle(make_federation, method, changes):
    federation = make_federation(method, 3, **changes)
    torch.testing.assert_close(finish(federation)[0], oracle(federation), **CLOSE)
    assert not torch.allclose(finish(federation)[0], finish(make_federation(method, 3))[0], **CLOSE)


@pytest.mark.parametrize("equal", [True, False])
def test_gradient_tracking_among_all_is_scaffold(make_federation, equal):
    """Full participation and equal weights: the same models, and c_i is the difference of SCAFFOLD's controls."""
    ours, theirs = (
        Simulation(same_sizes(each) if equal else each)
        for each in (
            make_federation("gradient-tracking:topology=all-reduce,weights=equal,retention=none", 4, 5),
            make_federation("scaffold", 4, 5),
        )
    )
    for each in (ours, theirs):
        list(each.rounds())
    torch.testing.assert_close(ours.parameters, theirs.parameters, rtol=1e-4, atol=1e-5)
    controls = memory_of(theirs, "control.server") - memory_of(theirs, "control.own")
    torch.testing.assert_close(memory_of(ours, "tracking.correction"), controls, rtol=1e-3, atol=1e-4)
    assert controls.abs().max() > 0.01


@pytest.mark.parametrize("share", [1.0, 0.6])
def test_corrections_add_up_to_nothing_on_a_ring(make_federation, share):
    federation = replace(make_federation("gradient-tracking", 5, 6), participation=share)
    simulation = Simulation(federation)
    list(simulation.rounds())
    corrections = memory_of(simulation, "tracking.correction")
    assert corrections.abs().max() > 0.01
    torch.testing.assert_close(corrections.sum(0), torch.zeros_like(corrections[0]), rtol=0, atol=1e-5)


def test_gradient_tracking_alone_is_training_alone(make_federation):
    ours, alone = (
        finish(make_federation(method, 1, backend="autograd"))[0] for method in ("gradient-tracking", "local")
    )
    assert torch.equal(ours, alone)


def test_scaffold_alone_is_training_alone_up_to_rounding(make_federation):
    """c and c_i are the same sums, taken in another order."""
    ours, alone = (finish(make_federation(method, 1, 6, backend="autograd"))[0] for method in ("scaffold", "local"))
    torch.testing.assert_close(ours, alone, rtol=1e-5, atol=1e-6)


def test_traffic_by_hand(make_federation):
    """Twice the parameters where a vector of their size travels along; one number, or one per feature, more else."""
    layout = make_federation("fedavg", 5).models[0].layout()
    extra = {"scaffold": layout.size, "gradient-tracking": layout.size, "fednova": 1, "feddbe": 8}
    for method in ALGORITHMS:
        messages = 10
        each = 4 * (layout.size + extra.get(method, 0))
        weights = 0 if METHODS[method].topology == "ring" else 5 * 8
        for outcome in Simulation(make_federation(method, 5, rounds=2)).rounds():
            assert (outcome.messages, outcome.sent_bytes) == (messages, messages * each + weights)


def test_the_audit_names_what_travels_along_and_sees_no_head(make_federation):
    federation = make_federation("gradient-tracking:shares=extractor", 5)
    audit = Audit(neighbours(federation.order))
    outcomes = list(Simulation(federation, audit).rounds())
    verdict = audit.summary()
    assert verdict["head_private"]
    assert verdict["server_free"]
    assert {name.partition(".")[0] for name in verdict["tensors"]} == {"extractor", "mixed"}
    assert "mixed.tracking.mean" in verdict["tensors"]
    layout = federation.models[0].layout()
    assert verdict["bytes"] == sum(outcome.sent_bytes for outcome in outcomes) == 3 * 10 * 4 * 2 * layout.extractor


@pytest.mark.parametrize("method", OWN_STEP)
def test_compiled_kernels_step_aside_and_say_so(make_federation, method):
    said = Simulation(make_federation(method, 2)).described
    assert said.startswith("autograd")
    assert (
        f"the compiled kernels do not support the local step of {algorithm_of(METHODS[method], Hyper()).name}" in said
    )


def test_fednova_keeps_the_compiled_kernels(make_federation):
    assert Simulation(make_federation("fednova", 2)).described.startswith("compiled")
    compiled, plain = (finish(make_federation("fednova", 3, backend=backend))[0] for backend in ("auto", "autograd"))
    torch.testing.assert_close(compiled, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("method", "share"), [("scaffold", 0.4), ("gradient-tracking", 1.0), ("apfl", 0.6), ("feddbe", 0.4)]
)
def test_a_checkpoint_is_resumed_bit_by_bit(make_federation, tmp_path, method, share):
    """Mixed vectors, personal models, and what the server holds where only some take part."""
    federation = replace(make_federation(method, 5, rounds=6), participation=share)
    whole, history = finish(federation)
    rounds = Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation)).rounds()
    for _ in range(3):
        next(rounds)
    rounds.close()
    again = Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation))
    np.testing.assert_array_equal([outcome.accuracies for outcome in again.rounds()], history)
    assert torch.equal(again.parameters, whole)


def noisy_model(dropout=0.2):
    torch.manual_seed(0)
    extractor = nn.Sequential(nn.Linear(FEATURES, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(dropout))
    return SplitModel(extractor, nn.Linear(16, CLASSES))


@pytest.mark.parametrize("method", [*ALGORITHMS])
def test_models_that_draw_and_remember_give_the_same_with_any_number_of_workers(make_federation, method):
    """Workers are forked processes: what a hook changes must lie in memory that they share with this one."""
    base = make_federation(method, 4, rounds=2, epochs=1)
    federation = replace(base, models=[noisy_model()], participation=0.75, seed=1)
    (one, before), (three, after) = (finish(replace(federation, workers=workers)) for workers in (1, 3))
    assert torch.equal(one, three)
    np.testing.assert_array_equal(before, after)


def test_a_personal_model_has_buffers_of_its_own(make_federation):
    """Ditto without attraction: the personal model's running statistics are those of training alone, bit by bit."""
    found = []
    for method in ("ditto", "local"):
        base = make_federation(method, 3, attraction=0.0)
        simulation = Simulation(replace(base, models=[noisy_model(0.0)]))
        list(simulation.rounds())
        found.append((simulation.parameters, simulation.buffers))
    (ours, kept), (theirs, expected) = found
    assert torch.equal(ours, theirs)
    for mine, other in zip(kept, expected, strict=True):
        assert mine.keys() == other.keys()
        assert all(torch.equal(mine[name], other[name]) for name in mine)


@dataclass(frozen=True)
class LookingAround(Algorithm):
    """Plain training that takes a gradient elsewhere before each step, and forgets it."""

    name = "looking around"

    def local_step(self, step):
        gradient = step.gradient()
        step.gradient(step.parameters + 1.0)
        step.update(gradient)


def test_gradients_elsewhere_leave_buffers_and_parameters_alone(make_federation):
    found = []
    for row in (METHODS["fedavg"], replace(METHODS["fedavg"], name="around", algorithm=LookingAround())):
        simulation = Simulation(replace(make_federation(row, 3), models=[noisy_model(0.0)]))
        list(simulation.rounds())
        found.append((simulation.parameters, [list(each.values()) for each in simulation.buffers]))
    assert torch.equal(found[0][0], found[1][0])
    for mine, other in zip(found[0][1], found[1][1], strict=True):
        assert all(torch.equal(*pair) for pair in zip(mine, other, strict=True))


@pytest.mark.parametrize("method", [*ALGORITHMS])
def test_other_tasks_are_learnt_too(make_federation, method):
    base = make_federation(method, 3, rounds=4, rate=0.02, inner_rate=0.02)
    data = [replace(each, labels=each.inputs[:, :2] * 2, test_labels=each.test_inputs[:, :2] * 2) for each in base.data]
    torch.manual_seed(0)
    federation = replace(base, data=data, models=[SplitModel(*mlp((FEATURES,), 2, 16, 8))], task=Task("regression"))
    losses = [outcome.metrics["loss"].mean() for outcome in Simulation(federation).rounds()]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("method", [*ALGORITHMS])
def test_a_round_without_a_step_changes_nothing(make_federation, method):
    federation = make_federation(method, 3, rounds=2, epochs=0, inner_rate=0.0)
    start = federation.models[0].flat().expand(3, -1)
    torch.testing.assert_close(finish(federation)[0], start, rtol=0, atol=1e-7)


@pytest.mark.parametrize("method", ["feddbe", "ditto"])
def test_the_personal_model_is_what_is_saved(tmp_path, method):
    """In the structure of the user's own model, whatever the method has added: what is loaded scores as tested."""
    result = firma.run("digits", "dir-0.1", method, clients=3, rounds=2, settings={"epochs": 1, "hidden": 16})
    result.save(tmp_path / "run")
    digits, found = firma.load_dataset("digits"), []
    parts = deal(digits, "dir-0.1", 3, split_for("recommended", {}), 0)
    for client, rows in enumerate(parts.test):
        model = firma.load(tmp_path / "run").model(client)
        seen = torch.from_numpy(digits.x_test[rows].astype(np.float32) * digits.scale)
        with torch.no_grad():
            found.append((model.head(model.extractor(seen)).argmax(1).numpy() == digits.y_test[rows]).mean())
    np.testing.assert_allclose(found, result.history[-1])


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("fednova:topology=ring,weights=half,retention=constant", "never bring them together"),
        ("fednova:topology=all-gather,combine=clipped", "never come together; use 'trimmed', 'median' or 'krum'"),
        ("gradient-tracking:combine=clipped", "preserves the mean over clients; use combine = 'mean'"),
        ("gradient-tracking:combine=median", "preserves the mean over clients; use combine = 'mean'"),
        ("gradient-tracking:gate=yes", "preserves the mean over clients; use gate = 'no'"),
        ("scaffold:optimiser=adam", "mean gradient from what it moved by; use optimiser = 'sgd'"),
        ("gradient-tracking:optimiser=adam", "mean gradient from what it moved by; use optimiser = 'sgd'"),
        ("scaffold:persistent=yes", "local steps of a fresh optimiser lead; use persistent = 'no'"),
        ("gradient-tracking:persistent=yes", "local steps of a fresh optimiser lead; use persistent = 'no'"),
        ("fednova:persistent=yes", "local steps of a fresh optimiser lead; use persistent = 'no'"),
        ("scaffold:training=two-phase", "different numbers for extractor and head"),
        ("ditto:persistent=yes", "fresh optimiser"),
        ("apfl:personal=fine-tune", "personal model of its own"),
    ],
)
def test_what_cannot_be_combined_is_refused(method, says):
    with pytest.raises(BadInput, match=says):
        lookup(method)


SMALL_RUN = {"dataset": "digits", "scenario": "iid", "clients": 5, "rounds": 2}
SHORT = {"epochs": 1, "hidden": 8, "embedding": 4}


@pytest.mark.parametrize(
    ("method", "options", "says"),
    [
        (
            "fednova",
            {"preset": "published"},
            "initial = 'per-client' .* normalised steps: .* would stay apart; set initial",
        ),
        ("fednova", {"settings": {"initial": "per-client"}}, "initial = 'per-client' cannot be combined"),
        ("fednova:topology=all-reduce", {"participation": 0.6}, "participation = 0.6 .* use topology = 'star'"),
        ("fednova:topology=all-gather", {"participation": 0.6}, "participation = 0.6 .* topology = 'all-gather'"),
    ],
)
def test_fednova_requires_one_model_that_all_start_from(method, options, says):
    with pytest.raises(BadInput, match=says):
        firma.run(**SMALL_RUN, method=method, **options)


@pytest.mark.parametrize(
    ("method", "share"), [("fednova", 0.6), ("fednova:topology=all-reduce", 1.0), ("fednova:topology=all-gather", 0.99)]
)
def test_fednova_that_runs_ends_with_one_model(method, share):
    found = firma.run(**SMALL_RUN, method=method, settings=SHORT, participation=share).parameters
    assert torch.equal(found, found[:1].expand_as(found))


def test_an_engine_refuses_clients_of_fednova_that_start_apart(make_federation):
    with pytest.raises(BadInput, match="initial = 'per-client' cannot be combined with algorithm normalised steps"):
        Simulation(make_federation("fednova", 2, initial="per-client"))


def shared_statistics(federation, sizes):
    """The federation with clients of these sizes, and a model whose running statistics are averaged."""
    model = noisy_model(0.0)
    model.extractor[1].shared_buffers = True
    data = [
        replace(each, inputs=each.inputs.repeat(20, 1)[:size], labels=each.labels.repeat(20)[:size])
        for each, size in zip(federation.data, sizes, strict=True)
    ]
    return replace(federation, models=[model], data=data)


def test_fednova_averages_shared_statistics_as_fedavg_does(make_federation):
    """In the first round, from a common start, training is the same, and so are the averages of its statistics."""
    sizes = (8, 8, 400)
    ours, theirs = (
        finish(shared_statistics(make_federation(method, 3, 1, epochs=5), sizes))[0] for method in ("fednova", "fedavg")
    )
    statistics = shared_statistics(make_federation("fedavg", 3), sizes).models[0].layout().buffers
    assert statistics == 2 * 16
    torch.testing.assert_close(ours[:, :statistics], theirs[:, :statistics], rtol=1e-6, atol=1e-7)
    assert not torch.allclose(ours[:, statistics:], theirs[:, statistics:], **CLOSE)


def test_fednovas_variances_stay_positive(make_federation):
    """The weights p_i τ_eff / τ_i of clients of very different sizes sum to much more than 1."""
    federation = shared_statistics(make_federation("fednova", 3, 3, epochs=5), (8, 8, 400))
    simulation = Simulation(federation)
    losses = [outcome.metrics["loss"] for outcome in simulation.rounds()]
    (variances,) = [piece for piece in simulation.layout.pieces if piece.name.endswith("running_var")]
    assert simulation.parameters[:, variances.start : variances.stop].min() > 0
    assert np.isfinite(losses).all()


def test_fednova_of_heads_alone_leaves_shared_statistics_out(make_federation):
    """They belong to the extractor, which stays with the client."""
    federation = shared_statistics(make_federation("fednova:shares=head", 3, 1), (8, 8, 400))
    alone = shared_statistics(make_federation("local", 3, 1, backend="autograd"), (8, 8, 400))
    head = federation.models[0].layout().span("head")
    ours, theirs = finish(federation)[0], finish(alone)[0]
    assert torch.equal(ours[:, : head.start], theirs[:, : head.start])
    assert torch.equal(ours[:, head], ours[:1, head].expand(3, -1))


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 1.0])
def test_effective_steps_are_the_sum_of_velocities(momentum):
    for steps in (0, 1, 2, 7, 40):
        velocity = total = 0.0
        for _ in range(steps):
            velocity = momentum * velocity + 1
            total += velocity
        assert round_of(steps, momentum).effective_steps == pytest.approx(total, rel=1e-12)


def round_of(steps, momentum):
    nothing = torch.zeros(0)
    return ClientRound(0, 0, nothing, nothing, {}, (), 0, steps, 0.1, momentum, 1, 1, nothing, nothing)


@pytest.mark.parametrize("method", ["fednova", "scaffold", "gradient-tracking"])
def test_momentum_of_one_agrees_with_the_oracle(make_federation, method):
    federation = make_federation(method, 3, momentum=1.0, rate=0.001)
    torch.testing.assert_close(finish(federation)[0], oracle(federation), **CLOSE)


def test_corrections_add_up_to_nothing_at_a_server_too(make_federation):
    """Clients that take no part are given the server's model, but their corrections stay as they are."""
    method = "gradient-tracking:topology=star,weights=equal,retention=none"
    simulation = Simulation(replace(make_federation(method, 5, 6), participation=0.6))
    list(simulation.rounds())
    corrections = memory_of(simulation, "tracking.correction")
    assert corrections.abs().max() > 0.01
    torch.testing.assert_close(corrections.sum(0), torch.zeros_like(corrections[0]), rtol=0, atol=1e-5)


@dataclass(frozen=True)
class Keeping(Algorithm):
    """An algorithm of the user's own with a personal model."""

    name = "keeping"

    def memory(self, model, shared):
        del shared
        return {PERSONAL: model.clone()}


def test_personal_models_and_buffers_that_cannot_be_combined_are_refused(make_federation):
    row = replace(METHODS["fedavg"], name="mine", algorithm=Keeping(), personal="fine-tune")
    with pytest.raises(BadInput, match="keeping has a personal model of its own"):
        Simulation(make_federation(row, 2))
    model = noisy_model()
    model.extractor[1].shared_buffers = True
    with pytest.raises(BadInput, match=r"running_mean' is shared, which cannot be combined with a second model"):
        Simulation(replace(make_federation("ditto", 2), models=[model]))
    unbiased = SplitModel(noisy_model().extractor, nn.Sequential(nn.ReLU(), nn.Linear(16, CLASSES)))
    with pytest.raises(
        BadInput, match="starts with a linear layer with a bias, both trainable; this one starts with ReLU"
    ):
        Simulation(replace(make_federation("feddbe", 2), models=[unbiased]))


def test_two_phases_count_the_steps_of_what_is_shared(make_federation):
    """One epoch of the extractor with K steps: z is the mean gradient of these, whatever the head has done before."""
    found = []
    for head_epochs in (0, 3):
        method = "gradient-tracking:shares=extractor,training=two-phase"
        federation = make_federation(method, 3, 1, head_epochs=head_epochs, momentum=0.0, backend="autograd")
        simulation = Simulation(federation)
        start = simulation._group.stack.clone()
        list(simulation.rounds())
        found.append((memory_of(simulation, "tracking.sent"), start))
    federation, extractor = make_federation("fedavg", 3), found[0][0].shape[1]
    assert extractor == federation.models[0].layout().extractor
    ratio = found[1][0].norm(dim=1) / found[0][0].norm(dim=1)
    assert bool(((ratio > 0.7) & (ratio < 1.4)).all()), "counting all steps would have made it a third"
