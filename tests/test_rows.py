"""Methods that differ in what is shared, fixed or tuned: degenerate cases, what is private, and what is kept."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import firma
from conftest import CLASSES, FEATURES
from firma.algorithms.catalogue import algorithm_of
from firma.engines.checkpoint import RunCheckpoints, fingerprint
from firma.engines.simulation import Simulation
from firma.errors import BadInput
from firma.method_lookup import lookup
from firma.methods import METHODS, properties
from firma.mixing.ring_order import neighbours
from firma.models import SplitModel
from firma.privacy import Audit
from firma.schedule import Phase
from firma.training.derived_head import derived_head, frame, log_shares, with_possible_head
from firma.training.local_step import CLASS_SHARES, Client, ClientData, limited
from firma.training.private_parameters import with_private
from test_simulation import CLOSE, finish, oracle
from test_trained import assert_as_measured, own_tests

NEW = ("fedprox", "fedavg-ft", "fedbn", "fedper", "lg-fedavg", "fedbabu", "fedetf")


class Noisy(nn.Module):
    """Draws random numbers, has running statistics and three kinds of normalisation."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(FEATURES, 16), nn.BatchNorm1d(16)
        self.drop, self.last, self.group = nn.Dropout(0.3), nn.Linear(16, 8), nn.GroupNorm(2, 8)

    def forward(self, x):
        return self.group(self.last(self.drop(torch.relu(self.norm(self.first(x))))))


def with_model(federation, extractor, head=None):
    """The federation with another model, drawn anew."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        made = extractor()
        model = SplitModel(made, head() if head is not None else nn.Linear(8, CLASSES))
    algorithm = algorithm_of(federation.method, federation.hyper)
    return replace(federation, models=[with_private(model, federation.method, algorithm)])


def plain_stack():
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, 8))


def same(first, second):
    torch.testing.assert_close(finish(first)[0], finish(second)[0], rtol=0, atol=0)


# Degenerate cases


def test_fedprox_without_its_term_is_fedavg(make_federation):
    same(make_federation("fedprox", 3, proximal=0.0), make_federation("fedavg", 3))


def test_fedprox_with_a_strong_term_agrees_with_the_oracle_and_stays_near_the_start(make_federation):
    strong, weak = (make_federation("fedprox", 3, proximal=mu) for mu in (10.0, 1e-9))
    ours = finish(strong)[0]
    torch.testing.assert_close(ours, oracle(strong), **CLOSE)
    start = strong.models[0].flat()
    assert (ours - start).norm() < 0.9 * (finish(weak)[0] - start).norm()


def test_fedavg_that_is_not_fine_tuned_is_fedavg(make_federation):
    same(make_federation("fedavg-ft", 3, personal_epochs=0), make_federation("fedavg", 3))


def test_frame_that_is_not_tuned_is_fedetf_by_adam(make_federation):
    """No epochs and no share of the way are the same, and both are the fixed frame alone."""
    changed = [{"personal_epochs": 0}, {"personal_share": 0.0}]
    still, back = (finish(make_federation("frame", 3, **each))[0] for each in changed)
    fixed = finish(make_federation("fedetf:topology=all-reduce,optimiser=adam", 3))[0]
    assert torch.equal(still, fixed)
    assert torch.equal(back, fixed)


@pytest.mark.parametrize("backend", ["auto", "autograd"])
def test_clients_that_are_like_the_others_train_longer(make_federation, backend):
    """The oracle divides the limit by its own distance; it differs from the same limit for all, and from none."""
    federation = make_federation(
        "frame", 5, rounds=4, local_steps=2, local_steps_for="different", personal_share="auto", extractor_epochs=4,
        backend=backend,
    )  # fmt: skip
    ours = finish(federation)[0]
    torch.testing.assert_close(ours, oracle(federation), **CLOSE)
    for other in ({"local_steps_for": "all"}, {"local_steps": None}):
        changed = replace(federation, hyper=federation.hyper.model_copy(update=other))
        assert not torch.allclose(finish(changed)[0], ours, **CLOSE)


def test_the_limit_of_a_client_follows_its_distance():
    labels = torch.tensor([0, 0, 0, 1])  # ¾ and ¼
    phases = (Phase("extractor", 10, 30), Phase("head", 1))

    def at(others):
        data = ClientData(torch.zeros(4, 1), labels, torch.zeros(0, 1), labels[:0])
        client = Client(0, data, torch.zeros(1), {CLASS_SHARES: torch.tensor(others)})
        return [phase.steps for phase in limited(phases, client)]

    assert at([0.0, 0.0]) == [30, None], "nobody was heard: the limit holds"
    assert at([0.75, 0.25]) == [None, None], "like the others: no limit"
    assert at([0.25, 0.75]) == [60, None], "half a distance: twice the steps"


def test_without_class_shares_the_limit_is_the_same_for_all(make_federation):
    """Nothing about classes travels when a user says so, and then nothing follows from it."""
    settings = {"local_steps": 2, "extractor_epochs": 4, "personal_share": 0.5}
    same(*(make_federation("frame", 3, local_steps_for=each, **settings) for each in ("different", "all")))


@pytest.mark.parametrize(
    ("method", "plain"),
    [("fedavg-ft", "fedavg"), ("frame", "fedetf:topology=all-reduce,optimiser=adam"), ("per-fedavg", None)],
)
def test_no_share_of_the_way_is_the_mixed_model_with_its_statistics(make_federation, method, plain):
    """Running statistics, too, are those of the mixed model: tuning would have changed them."""
    plain = plain or replace(METHODS[method], name="plain", personal="none")
    found = []
    for row, changes in ((method, {"personal_share": 0.0, "personal_epochs": 3, "local_steps": None}), (plain, {})):
        numbers = {"weight_decay": 0.1, "schedule": "cosine"} | changes
        simulation = Simulation(with_model(make_federation(row, 3, **numbers), Noisy))
        losses = [outcome.metrics["loss"].tolist() for outcome in simulation.rounds()]
        found.append((simulation.parameters, simulation.buffers, losses))
    (ours, kept, losses), (theirs, expected, others) = found
    assert torch.equal(ours, theirs)
    assert losses == others
    for mine, other in zip(kept, expected, strict=True):
        assert mine.keys() == other.keys() == {"extractor.norm.running_mean", "extractor.norm.running_var",
                                               "extractor.norm.num_batches_tracked"}  # fmt: skip
        assert all(torch.equal(mine[name], other[name]) for name in mine)


def test_a_personal_model_half_way_lies_half_way(make_federation):
    ends = [finish(make_federation("frame", 3, personal_share=share))[0] for share in (0.0, 1.0, 0.5)]
    torch.testing.assert_close(ends[2], (ends[0] + ends[1]) / 2, rtol=0, atol=1e-6)
    extractor = make_federation("frame", 3).models[0].layout().span("extractor")
    assert torch.equal(ends[1][:, extractor], ends[0][:, extractor]), "the head alone is tuned"
    assert not torch.equal(ends[1], ends[0])


def test_fine_tuning_changes_what_is_tested_and_nothing_that_is_mixed(make_federation):
    """After the last round the models behind the personal ones are FedAvg's, bit by bit."""
    tuned, plain = (Simulation(make_federation(method, 3)) for method in ("fedavg-ft", "fedavg"))
    for engine in (tuned, plain):
        list(engine.rounds())
    assert torch.equal(tuned._group.stack, plain._group.stack)
    assert not torch.equal(tuned.parameters, plain.parameters)


@pytest.mark.filterwarnings("ignore:.*no normalisation layers")
def test_fedbn_without_normalisation_is_fedavg(make_federation):
    ours, theirs = (with_model(make_federation(method, 3), plain_stack) for method in ("fedbn", "fedavg"))
    same(ours, theirs)


def test_a_model_of_which_nothing_is_left_to_share_is_refused():
    only_norms = nn.Sequential(nn.Flatten(), nn.LayerNorm(64)), nn.Linear(64, 10)
    for method, part in (("fedbn:shares=extractor", "extractor"), ("fedbn:warmup=yes", "extractor")):
        with pytest.raises(
            BadInput, match=rf"{method}: all parameters of the {part} are private, so clients would have"
        ):
            firma.run("digits", "iid", method, clients=2, rounds=6, model=only_norms)


def test_fedbn_says_that_a_model_has_no_normalisation(make_federation):
    with pytest.warns(UserWarning, match="fedbn: the model has no normalisation layers with parameters"):
        with_model(make_federation("fedbn", 2), plain_stack)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with_model(make_federation("fedbn", 2), Noisy)


def test_fedper_with_one_phase_of_each_part_is_fedrep(make_federation):
    """The two differ in the column `training` alone."""
    assert replace(METHODS["fedper"], name="", base="", training="two-phase") == replace(
        METHODS["fedrep"], name="", base=""
    )
    same(make_federation(lookup("fedper:training=two-phase"), 3), make_federation("fedrep", 3))


@pytest.mark.parametrize("method", ["fedper", "lg-fedavg", "fedprox:topology=all-reduce"])
def test_one_client_alone_trains_locally(make_federation, method):
    same(make_federation(method, 1, proximal=0.0), make_federation("local", 1))


def test_what_fedper_and_lg_fedavg_share_is_all_of_fedavg(make_federation):
    """After one round from a common start, one has FedAvg's extractor and the other FedAvg's head."""
    both = make_federation("fedavg", 3, rounds=1)
    layout = both.models[0].layout()
    extractor, head = layout.span("extractor"), layout.span("head")
    average, alone = finish(both)[0], finish(make_federation("local", 3, rounds=1))[0]
    fedper, lg = (finish(make_federation(method, 3, rounds=1))[0] for method in ("fedper", "lg-fedavg"))
    assert torch.equal(fedper[:, extractor], average[:, extractor])
    assert torch.equal(fedper[:, head], alone[:, head])
    assert torch.equal(lg[:, head], average[:, head])
    assert torch.equal(lg[:, extractor], alone[:, extractor])


@pytest.mark.parametrize("method", ["fedbabu", "fedetf"])
def test_a_fixed_head_never_changes(make_federation, method):
    federation = make_federation(method, 3, personal_epochs=0)
    head = federation.models[0].layout().span("head")
    rows = finish(federation)[0][:, head]
    for row, data in zip(rows, federation.data, strict=True):
        expected = derived_head(federation.models[0], federation.method.head, "prior", data.labels, federation.seed)
        assert torch.equal(row, expected)
    if federation.method.head == "random":
        assert torch.equal(rows[0], federation.models[0].flat()[head])


def test_fedbabu_that_is_not_fine_tuned_has_the_same_model_everywhere(make_federation):
    found = finish(make_federation("fedbabu", 3, personal_epochs=0))[0]
    assert torch.equal(found, found[:1].expand_as(found))
    tuned = finish(make_federation("fedbabu", 3, personal_epochs=1))[0]
    assert not torch.equal(tuned[0], tuned[1])


@pytest.mark.parametrize("method", ["fedper", "fedbabu", "fedetf", "fedprox", "fedavg-ft", "fedbn"])
def test_the_all_reduce_is_the_servers_average(make_federation, method):
    """Where everybody takes part there is no difference but rounding."""
    ours = finish(make_federation(lookup(f"{method}:topology=all-reduce"), 4))[0]
    torch.testing.assert_close(ours, finish(make_federation(method, 4))[0], **CLOSE)


# What is sent, and what is not


@pytest.mark.parametrize(
    ("method", "heads", "server", "norms"),
    [
        ("fedprox", True, True, True),
        ("fedavg-ft", True, True, True),
        ("fedbn", True, True, False),
        ("fedper", False, True, True),
        ("lg-fedavg", True, True, False),
        ("fedbabu", False, True, True),
        ("fedetf", False, True, True),
        ("frame", False, False, True),
        ("fedper:topology=all-reduce", False, False, True),
        ("fedbabu:topology=all-reduce", False, False, True),
        ("fedbn:topology=all-reduce,shares=extractor", False, False, False),
    ],
)
def test_what_messages_hold(make_federation, method, heads, server, norms):
    federation = make_federation(lookup(method), 4)
    audit = Audit(neighbours(federation.order))
    finish(federation, audit)
    verdict = audit.summary()
    assert (verdict["messages_with_head"] > 0, verdict["server_free"]) == (heads, not server)
    assert verdict["head_private"] == (not heads)
    sent = set(verdict["tensors"])
    assert {"extractor.2.weight", "extractor.2.bias"} <= sent if norms else not any(".2." in name for name in sent)
    assert any(name.startswith("extractor") for name in sent) == (federation.method.shares != "head")


@pytest.mark.parametrize("method", NEW)
def test_what_a_method_claims_is_what_its_messages_show(make_federation, method):
    federation = make_federation(method, 3)
    audit = Audit(neighbours(federation.order))
    finish(federation, audit)
    claims = properties(federation.method)
    assert audit.summary()["head_private"] == claims["private head"]
    assert audit.summary()["server_free"] == claims["no central server"]


def test_bytes_of_private_parameters_are_not_counted(make_federation):
    ours, theirs = (make_federation(method, 3, rounds=1) for method in ("fedbn", "fedavg"))
    norm = sum(
        p.numel() for module in ours.models[0].extractor for p in module.parameters() if type(module) is nn.LayerNorm
    )
    assert norm == 2 * (16 + 16), "two layers with gain and shift"
    sent = [next(iter(Simulation(each).rounds())).sent_bytes for each in (ours, theirs)]
    assert sent[1] - sent[0] == 2 * 3 * 4 * norm


# Models with buffers and dropout, in processes of their own


@pytest.mark.parametrize(("method", "share"), [("fedavg-ft", 1.0), ("fedbn", 0.5), ("frame", 0.5)])
def test_any_number_of_workers_gives_the_same_bits(make_federation, method, share):
    federation = replace(with_model(make_federation(lookup(method), 4, rounds=2), Noisy), participation=share)
    found = []
    for workers in (1, 3):
        engine = Simulation(replace(federation, workers=workers))
        history = np.stack([outcome.scores for outcome in engine.rounds()])
        found.append((engine.parameters, history, engine.buffers))
    assert torch.equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])
    for one, two in zip(found[0][2], found[1][2], strict=True):
        assert one.keys() == two.keys()
        assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_personal_model_has_running_means_of_its_own(make_federation):
    """Those of the mixed model stay as training left them; those of the personal one have seen more batches."""
    federation = with_model(make_federation("fedavg-ft", 2, rounds=2, personal_epochs=1), Noisy)
    engine = Simulation(federation)
    list(engine.rounds())
    for client, shown in zip(engine._group.clients, engine.buffers, strict=True):
        steps = -(-len(client.data.labels) // federation.hyper.batch)
        name = "extractor.norm.num_batches_tracked"
        assert int(client.memory[f"buffer.{name}"]) == 2 * 2 * steps
        assert int(shown[name]) == 2 * 2 * steps + steps


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("method", [*NEW, "frame", "fedbabu:topology=all-reduce"])
def test_a_resumed_run_is_the_run_bit_by_bit(make_federation, tmp_path, method, noisy):
    """Also where some clients took no part in the last rounds: their personal models are not made anew."""
    federation = replace(make_federation(lookup(method), 5, rounds=4), participation=0.4, workers=1)
    if noisy:
        federation = replace(with_model(federation, Noisy), participation=0.6)
    whole = Simulation(federation)
    history = [outcome.scores for outcome in whole.rounds()]
    rounds = Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation)).rounds()
    for _ in range(2):
        next(rounds)
    rounds.close()
    again = Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation))
    np.testing.assert_array_equal([outcome.scores for outcome in again.rounds()], history)
    assert torch.equal(again.parameters, whole.parameters)
    for one, two in zip(again.buffers, whole.buffers, strict=True):
        assert all(torch.equal(one[name], two[name]) for name in one)


def test_private_parameters_make_another_run(make_federation):
    prints = {fingerprint(make_federation(method, 3)) for method in ("fedbn", "fedavg", "fedavg-ft", "fedprox")}
    assert len(prints) == 4


@pytest.mark.parametrize("method", ["fedavg-ft", "fedbabu:topology=all-reduce", "frame"])
def test_a_client_that_takes_no_part_keeps_its_personal_model(make_federation, method):
    """With a server everybody gets the new model and makes it personal; without one, the others do nothing."""
    federation = replace(make_federation(lookup(method), 5, rounds=4), participation=0.4)
    engine = Simulation(federation)
    rounds = engine.rounds()
    next(rounds)  # in which all make a personal model
    before = engine.parameters
    for outcome in rounds:
        drawn = set(federation.plan(outcome.number).participants)
        after = engine.parameters
        kept = {n for n in range(5) if torch.equal(before[n], after[n])}
        assert kept == (set() if federation.method.topology == "star" else set(range(5)) - drawn)
        before = after


# Saving and loading


def batch_normed(shape, outputs):
    body = nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1], 16), nn.BatchNorm1d(16), nn.ReLU())
    return body, nn.Linear(16, outputs)


@pytest.mark.parametrize("method", ["fedbn", "fedavg-ft", "fedbabu", "fedetf", "lg-fedavg", "frame"])
@pytest.mark.parametrize("model", ["mlp", batch_normed], ids=["mlp", "batch-norm"])
def test_a_saved_model_predicts_what_was_measured(tmp_path, method, model):
    settings = {"epochs": 1, "extractor_epochs": 1, "personal_epochs": 1}
    result = firma.run("digits", "dir-0.5", method, clients=3, rounds=2, model=model, settings=settings)
    result.save(tmp_path / "saved")
    loaded = firma.load(tmp_path / "saved", model=None if model == "mlp" else model)
    assert (method == "fedbn") == bool(result.template.private)
    assert loaded.config["model"].get("private", []) == sorted(result.template.private)
    assert_as_measured(loaded, result)


def test_the_commands_use_the_personal_model(tmp_path, command):
    """What `firma evaluate` measures on a client's own test data is what the run measured."""
    words = ["--dataset", "digits", "--scenario", "dir-0.5", "--clients", "3", "--rounds", "2"]
    small = [word for each in ("epochs=1", "personal_epochs=2") for word in ("--set", each)]
    code, _, err = command("run", "--method", "fedavg-ft", *words, *small, "--out", tmp_path / "run", "--json")
    assert code == 0, err
    result = firma.load(tmp_path / "run")
    for client, (x, y) in enumerate(own_tests()):
        np.savez(tmp_path / f"{client}.npz", x=x, y=y)
        code, text, err = command(
            "evaluate", tmp_path / "run", "--client", client, "--data", tmp_path / f"{client}.npz", "--json"
        )
        assert code == 0, err
        assert result.history[-1, client] == pytest.approx(
            json.loads(text)["clients"][0]["metrics"]["accuracy"], abs=1e-9
        )
        out = tmp_path / f"{client}.safetensors"
        assert command("export", tmp_path / "run", "--client", client, "--format", "safetensors", "--out", out)[0] == 0
        named = load_file(out)
        assert torch.equal(named["head.weight"], result.model(client).head.weight)
    assert not torch.equal(result.parameters[0], result.parameters[1]), "all have FedAvg's model"


# Heads that are derived


@pytest.mark.parametrize(("classes", "features"), [(2, 2), (4, 8), (10, 10), (10, 128), (100, 128)])
def test_a_tight_frame_has_equal_norms_and_equal_angles(classes, features):
    rows = frame(classes, features, 3).double()
    products = rows @ rows.T
    expected = torch.full((classes, classes), -1 / (classes - 1), dtype=torch.float64).fill_diagonal_(1.0)
    torch.testing.assert_close(products, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(rows.sum(0), torch.zeros(features, dtype=torch.float64), rtol=0, atol=1e-6)
    squared = rows.T @ rows  # tight: a multiple of a projection on K - 1 dimensions
    torch.testing.assert_close(squared @ squared, squared * classes / (classes - 1), rtol=0, atol=1e-6)


def test_a_frame_is_the_same_for_the_same_seed_alone():
    assert torch.equal(frame(4, 8, 5), frame(4, 8, 5))
    assert not torch.allclose(frame(4, 8, 5), frame(4, 8, 6))


def test_all_clients_have_the_frame_and_a_bias_of_their_own(make_federation):
    federation = make_federation("fedetf", 3)
    layout = federation.models[0].layout()
    weights = slice(layout.extractor, layout.size - CLASSES)
    rows = Simulation(federation).parameters
    assert torch.equal(rows[:, weights], frame(CLASSES, 8, federation.seed).reshape(1, -1).expand(3, -1))
    for row, data in zip(rows, federation.data, strict=True):
        counts = np.bincount(data.labels, minlength=CLASSES)
        shares = (counts + 0.5) / (len(data.labels) + 0.5 * CLASSES)
        np.testing.assert_allclose(row[-CLASSES:].exp(), shares, rtol=1e-6)
        assert shares.sum() == pytest.approx(1)
    zero = Simulation(make_federation("fedetf", 3, head_bias="zero")).parameters
    assert torch.equal(zero[:, weights], rows[:, weights])
    assert not zero[:, -CLASSES:].any()


def test_a_class_that_a_client_lacks_has_half_a_sample():
    assert log_shares(torch.tensor([0, 0, 2]), 3).exp().tolist() == pytest.approx([2.5 / 4.5, 0.5 / 4.5, 1.5 / 4.5])


def test_a_head_without_a_bias_is_the_frame_alone(make_federation):
    federation = with_model(make_federation("fedetf", 2), plain_stack, lambda: nn.Linear(8, CLASSES, bias=False))
    found = finish(federation)[0]
    assert torch.equal(found[:, -8 * CLASSES :], frame(CLASSES, 8, 5).reshape(1, -1).expand(2, -1))


@pytest.mark.parametrize(
    ("head", "task", "says"),
    [
        (lambda: nn.Linear(8, 4), "multi-label", "the task is multi-label"),
        (lambda: nn.Linear(8, 1), "regression", "the task is regression"),
        (lambda: nn.Linear(8, 9), "classification", "a frame of 9 classes needs as many features, .* has 8"),
        (lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)), "classification", "is Sequential"),
        (lambda: nn.Linear(8, 4).requires_grad_(False), "classification", "the head is frozen"),
    ],
)
@pytest.mark.parametrize("method", ["frame", "fedetf"])
def test_a_head_that_cannot_be_a_frame_is_learnt_with_a_warning(method, head, task, says):
    model = SplitModel(plain_stack(), head())
    with pytest.warns(UserWarning, match=f"{method}: .*{says}.*; every client learns a private head instead"):
        found = with_possible_head(METHODS[method], model, task)
    assert (found.head, found.training, found.personal, found.name) == ("learnt", "two-phase", "none", method)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (
            with_possible_head(METHODS[method], SplitModel(plain_stack(), nn.Linear(8, 4)), "classification")
            == (METHODS[method])
        )


def test_the_fallback_is_fedper_by_phases_without_a_server(tmp_path):
    """Two labels per sample cannot have a frame: the run warns, and is that of the row which the warning names."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 6)).astype(np.float32)
    y = (x[:, :3] > 0).astype(np.float32)
    settings = {"extractor_epochs": 1, "head_epochs": 1}
    with pytest.warns(UserWarning, match="frame: a frame has one vector for each class"):
        ours = firma.run((x, y), "iid", "frame", clients=3, rounds=2, settings=settings)
    row = replace(METHODS["frame"], head="learnt", training="two-phase", personal="none", name="mine")
    theirs = firma.run((x, y), "iid", row, clients=3, rounds=2, settings=settings)
    assert torch.equal(ours.parameters, theirs.parameters)
    assert ours.config["columns"]["head"] == "learnt"


def test_a_random_head_is_common_also_where_clients_start_apart():
    row = lookup("fedbabu:personal=none")
    settings = {"initial": "per-client", "extractor_epochs": 0}
    result = firma.run("digits", "iid", row, clients=3, rounds=1, settings=settings)
    layout = result.template.layout()
    heads, extractors = (result.parameters[:, layout.span(part)] for part in ("head", "extractor"))
    assert torch.equal(heads, heads[:1].expand_as(heads))
    assert torch.equal(extractors, extractors[:1].expand_as(extractors)), "they were averaged"
    apart = firma.run("digits", "iid", replace(row, topology="none", shares="nothing", head="learnt", training="joint"),
                      clients=3, rounds=1, settings={"initial": "per-client", "epochs": 0})  # fmt: skip
    assert not torch.equal(apart.parameters[0], apart.parameters[1])


# Private normalisation layers


class LlamaRMSNorm(nn.Module):
    """A normalisation layer of another library: it is known by the name of its class."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return self.weight * x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()


def test_private_parameters_come_last_and_are_what_torch_calls_them(make_federation):
    federation = with_model(make_federation("fedbn", 2), Noisy, lambda: nn.Sequential(LlamaRMSNorm(8), nn.Linear(8, 4)))
    model = federation.models[0]
    assert model.private == {
        "extractor.norm.weight", "extractor.norm.bias", "extractor.group.weight", "extractor.group.bias",
        "head.0.weight",
    }  # fmt: skip
    layout = model.layout()
    assert layout.private == (2 * 16 + 2 * 8, 8)
    assert [piece.name for piece in layout.pieces][4:8] == [
        "extractor.norm.weight", "extractor.norm.bias", "extractor.group.weight", "extractor.group.bias",
    ]  # fmt: skip
    assert [piece.name for piece in layout.pieces][-1] == "head.0.weight"
    found = finish(federation)[0]
    shared = torch.cat([torch.arange(each.start, each.stop) for each in layout.shared("model")])
    private = torch.tensor(sorted(set(range(layout.size)) - set(shared.tolist())))
    assert torch.equal(found[0, shared], found[1, shared])
    assert not torch.equal(found[0, private], found[1, private])
    named = dict(model.filled(found[0]).named_parameters())
    assert torch.equal(named["head.0.weight"], found[0, -8:])
    assert [piece.name for piece in layout.of_shared("model").pieces] == [
        piece.name for piece in layout.pieces if piece.name not in model.private
    ]


def test_shared_running_means_and_private_layers_contradict_each_other(make_federation):
    def shared():
        made = Noisy()
        made.norm.shared_buffers = True
        return made

    with pytest.raises(firma.BadInput, match="private = 'norm' cannot be combined with shared_buffers, which share"):
        with_model(make_federation("fedbn", 2), shared)
    finish(with_model(make_federation("fedavg", 2), shared))


def test_frozen_normalisation_is_not_private_but_frozen(make_federation):
    def frozen():
        made = Noisy()
        made.norm.requires_grad_(False)
        return made

    model = with_model(make_federation("fedbn", 2), frozen).models[0]
    assert model.private == {"extractor.group.weight", "extractor.group.bias"}
