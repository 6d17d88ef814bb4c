"""The Ray engine against the simulation: the same figures, whoever trains where, and whoever dies meanwhile."""

import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import firma
from conftest import FEATURES, toy_data
from drifting import drifting_federation
from firma.algorithms.catalogue import algorithm_of
from firma.attacks import Attack
from firma.engines.checkpoint import RunCheckpoints
from firma.engines.simulation import Simulation
from firma.methods import METHODS
from firma.models import SplitModel, mlp
from firma.tasks.task import OwnFunction, Task
from firma.training.private_parameters import with_private

pytest.importorskip("ray")
from firma.engines.actor_pool import ActorPool
from firma.engines.placement import groups
from firma.engines.ray import RayFederation
from firma.engines.ray_cluster import answers, ray, spread

# What is averaged is summed in another order than in the simulation; what is blended on the ring is not.
CLOSE = {"rtol": 1e-4, "atol": 1e-6}
FRESH = {"rtol": 2e-3, "atol": 2e-5}  # Adam that starts anew in each round divides rounding by small numbers


def finish(engine):
    outcomes = list(engine.rounds())
    assert [outcome.number for outcome in outcomes] == list(range(engine.federation.rounds))
    traffic = [(outcome.messages, outcome.sent_bytes) for outcome in outcomes]
    return np.stack([outcome.accuracies for outcome in outcomes]), engine.parameters, traffic


def assert_same(ours, theirs, exactly=False, close=CLOSE):
    np.testing.assert_array_equal(ours[0], theirs[0])
    torch.testing.assert_close(ours[1], theirs[1], **({"rtol": 0, "atol": 0} if exactly else close))
    assert ours[2] == theirs[2]


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("method", METHODS)
def test_same_figures_as_the_simulation(make_federation, pools, method, processes):
    federation = make_federation(method, 5, rounds=6, noisy=(1,), threshold=0.5, order=(0, 3, 1, 4, 2))
    assert_same(finish(RayFederation(federation, pools[processes])), finish(Simulation(federation)))


@pytest.mark.parametrize(
    "method",
    [
        "fibfl++:combine=clipped", "rdfl:combine=median", "fedavg:combine=trimmed",
        "frame:topology=all-gather,combine=krum", "frame:topology=all-gather,combine=clipped",
    ],
)  # fmt: skip
def test_robust_combines_and_attacks_are_the_same_to_a_bit(make_federation, pools, method):
    made = make_federation(method, 5, rounds=6, noisy=(1,), threshold=0.5, order=(0, 3, 1, 4, 2))
    federation = replace(made, attack=Attack("noise", (3,)))
    assert_same(finish(RayFederation(federation, pools[3])), finish(Simulation(federation)), exactly=True)
    some = replace(made, participation=0.9, hyper=made.hyper.model_copy(update={"byzantine": 0}))
    assert_same(finish(RayFederation(some, pools[3])), finish(Simulation(some)), exactly=True)


@pytest.mark.parametrize("clients", [1, 2])
def test_fewer_clients_than_processes(make_federation, pools, clients):
    federation = make_federation("fibfl++", clients, rounds=6)
    assert_same(finish(RayFederation(federation, pools[3])), finish(Simulation(federation)))


@pytest.mark.parametrize("own", [True, False])
def test_tasks_and_losses_of_ones_own_run_on_ray_too(make_federation, pools, own):
    def huber(outputs, targets):
        return nn.functional.huber_loss(outputs, targets, delta=0.3)

    federation = make_federation("fibfl++", 4, rounds=6, threshold=0.2)
    data = [
        replace(each, labels=each.inputs[:, :2] * 3, test_labels=each.test_inputs[:, :2] * 3)
        for each in federation.data
    ]
    model = SplitModel(*mlp((FEATURES,), 2, 16, 8))
    loss = OwnFunction("huber", huber) if own else None
    task = Task("regression", loss, (OwnFunction("bias", lambda outputs, targets: (outputs - targets).mean()),), True)
    federation = replace(federation, data=data, models=[model], task=task)
    ours, theirs = RayFederation(federation, pools[3]), Simulation(federation)
    for mine, other in zip(ours.rounds(), theirs.rounds(), strict=True):
        np.testing.assert_allclose(mine.scores, other.scores, **CLOSE)
        assert mine.metrics.keys() == other.metrics.keys() >= {"loss", "mae", "bias", "train_r2"}
        for name, values in other.metrics.items():
            np.testing.assert_allclose(mine.metrics[name], values, **CLOSE)
    torch.testing.assert_close(ours.parameters, theirs.parameters, **CLOSE)


@pytest.mark.parametrize("share", [0.2, 0.5])
@pytest.mark.parametrize("method", METHODS)
def test_client_sampling_gives_the_figures_of_the_simulation(make_federation, pools, tmp_path, method, share):
    """With a fifth of six clients most processes have nobody to train; a checkpoint is taken up by the simulation."""
    base = make_federation(method, 6, rounds=6, noisy=(1,), threshold=0.5, order=(0, 3, 1, 5, 4, 2))
    federation = replace(base, participation=share)
    whole = finish(Simulation(federation))
    averages = any(federation.plan(number).mixing in ("star", "all-reduce") for number in range(6))
    stopped_after(RayFederation(federation, pools[3], RunCheckpoints(tmp_path, federation)), 3)
    assert_same(finish(RayFederation(federation, pools[3])), whole, exactly=not averages)
    assert_same(finish(Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation))), whole, not averages)


def test_a_limit_of_steps_by_distance_is_that_of_the_simulation(pools, make_federation, tmp_path):
    """What a client knows of the others' classes is part of a checkpoint, too."""
    settings = {"local_steps": 2, "local_steps_for": "different", "extractor_epochs": 3, "personal_share": "auto"}
    federation = make_federation("frame", 5, rounds=4, **settings)
    whole = finish(Simulation(federation))
    stopped_after(RayFederation(federation, pools[3], RunCheckpoints(tmp_path, federation)), 2)
    assert_same(finish(RayFederation(federation, pools[3])), whole)
    assert_same(finish(Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation))), whole)


@pytest.mark.parametrize("drift", ["label-shift", "rotate-60@3"])
@pytest.mark.parametrize("method", ["fedavg", "fibfl++", "frame"])
def test_data_that_drift_give_the_figures_of_the_simulation(pools, tmp_path, method, drift):
    """Workers get the rows that their clients ever hold; a checkpoint is taken up by the simulation."""
    base = drifting_federation(method, drift, "dir-0.1", clients=5, rounds=5, reorder_every=2, personal_epochs=1)
    federation = replace(base, participation=0.8)
    whole, close = finish(Simulation(federation)), FRESH if method == "frame" else CLOSE
    stopped_after(RayFederation(federation, pools[3], RunCheckpoints(tmp_path, federation)), 3)
    assert_same(finish(RayFederation(federation, pools[3])), whole, close=close)
    assert_same(finish(Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation))), whole, close=close)


def test_client_sampling_on_a_large_ring(make_federation, pools):
    base = make_federation("fibfl+", 300, rounds=2, extractor_epochs=1, head_epochs=0)
    federation = replace(base, participation=0.6)
    assert_same(finish(RayFederation(federation, pools[3])), finish(Simulation(federation)), exactly=True)


@pytest.mark.parametrize(
    ("method", "clients", "share"),
    [
        ("d-psgd:topology=exponential", 300, 1.0),
        ("d-psgd:topology=edges", 6, 0.6),
        pytest.param("d-psgd:topology=regular", 1000, 1.0, marks=pytest.mark.slow),
        pytest.param("d-psgd:topology=one-peer-exponential,passes=cover", 1000, 0.5, marks=pytest.mark.slow),
    ],
)
def test_graphs_give_the_bits_of_the_simulation(make_federation, pools, method, clients, share):
    """Processes read rows of clients anywhere, and the products have the shapes that they have in one process."""
    base = make_federation(method, clients, rounds=2, epochs=1, local_steps=1)
    edges = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5), (1, 4)) if "edges" in method else ()
    federation = replace(base, participation=share, edges=edges)
    assert_same(finish(RayFederation(federation, pools[3])), finish(Simulation(federation)), exactly=True)


def test_parts_of_a_local_step_run_on_ray_too(make_federation, pools):
    federation = make_federation("fibfl", 4, proximal=0.5, clip=0.5)
    ours = finish(RayFederation(federation, pools[3]))
    assert_same(ours, finish(Simulation(federation)))
    assert not torch.equal(ours[1], finish(Simulation(make_federation("fibfl", 4)))[1]), "the parts did nothing"


def test_large_rings_send_edges_only(make_federation, pools, monkeypatch):
    federation = make_federation("fibfl+", 600, rounds=1, extractor_epochs=1, head_epochs=0)
    ours, read = RayFederation(federation, pools[3]), []
    call = ours._call

    def listen(group, name, *arguments):
        if name == "mix":
            read.extend(client for clients in arguments[2] for client in clients)
        return call(group, name, *arguments)

    monkeypatch.setattr(ours, "_call", listen)
    assert_same(finish(ours), finish(Simulation(federation)))
    assert 6 <= len(read) <= 3 * (2 + 2 * 64)


def test_models_with_memory_and_chance_and_weights_of_their_own(make_federation, pools):
    def model(seed):
        torch.manual_seed(seed)
        extractor = nn.Sequential(nn.Linear(FEATURES, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(0.2))
        return SplitModel(extractor, nn.Linear(16, 4))

    federation = replace(make_federation("fibfl", 5), models=[model(client) for client in range(5)])
    assert_same(finish(RayFederation(federation, pools[3])), finish(Simulation(federation)), exactly=True)


def test_buffers_and_frozen_parameters_come_back_from_workers_that_fork(make_federation, cluster):
    def model(seed):
        torch.manual_seed(seed)
        extractor = nn.Sequential(nn.Linear(FEATURES, 16), nn.BatchNorm1d(16), nn.Dropout(0.2))
        extractor[0].bias.requires_grad_(False)
        extractor.shared_buffers = ["running_var"]
        return SplitModel(extractor, nn.Linear(16, 4))

    federation = replace(make_federation("fibfl", 5), models=[model(client) for client in range(5)])
    with ActorPool(workers=3, count=1) as pool:
        ours = RayFederation(federation, pool)
        theirs = Simulation(replace(federation, workers=1))
        assert_same(finish(ours), finish(theirs), exactly=True)
    assert "autograd, 3 at a time" in ours.described
    assert [set(each) for each in ours.buffers] == [{"extractor.1.running_mean", "extractor.1.num_batches_tracked"}] * 5
    for mine, other in zip(ours.buffers, theirs.buffers, strict=True):
        assert all(torch.equal(mine[name], other[name]) for name in other)


@pytest.mark.parametrize("method", ["fedavg-ft", "fedbn", "frame"])
def test_personal_models_private_layers_and_derived_heads_come_back_from_workers(make_federation, pools, method):
    """A client that takes no part in a round keeps its personal model there, too; its running means come with it."""
    federation = replace(make_federation(method, 5, rounds=3, order=(0, 3, 1, 4, 2)), participation=0.6)
    # Without a bias before the norm: its gradient is nothing but rounding, which Adam would magnify.
    first = nn.Linear(FEATURES, 16, bias=False)
    body = nn.Sequential(first, nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 8))
    row = federation.method
    model = with_private(SplitModel(body, nn.Linear(8, 4)), row, algorithm_of(row, federation.hyper))
    federation = replace(federation, models=[model])
    ours, theirs = RayFederation(federation, pools[3]), Simulation(federation)
    assert_same(finish(ours), finish(theirs))
    head = model.layout().span("head")
    if row.head != "learnt":
        mixed = {
            number: row
            for group in answers(ours._ask("state"))
            for number, row in zip(group["numbers"], group["parameters"], strict=True)
        }
        for number, parameters in enumerate(theirs._group.stack):
            np.testing.assert_array_equal(mixed[number][head], parameters[head], err_msg="derived with other bits")
    for one, two in zip(ours.buffers, theirs.buffers, strict=True):
        assert one.keys() == two.keys()
        for name, values in one.items():
            torch.testing.assert_close(values, two[name], **CLOSE)


def test_a_model_that_cannot_be_sent_is_one_sentence(make_federation, pools):
    extractor = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(FEATURES, 16)))
    federation = replace(make_federation("fibfl", 3), models=[SplitModel(extractor, nn.Linear(16, 4))])
    with pytest.raises(firma.BadInput, match="the model cannot be sent to other processes"):
        finish(RayFederation(federation, pools[1]))


def test_clients_are_dealt_by_samples_and_sit_together():
    assert groups((0, 3, 1, 2), [10, 10, 10, 10], [1, 1]) == [(0, 3), (1, 2)]
    assert groups(range(4), [30, 10, 10, 10], [1, 1]) == [(0,), (1, 2, 3)]
    assert groups(range(4), [10, 10, 10, 10], [3, 1]) == [(0, 1, 2), (3,)]
    assert groups(range(2), [1, 99], [1, 1, 1]) == [(0,), (1,)]
    assert groups(range(3), [98, 1, 1], [1, 1, 1]) == [(0,), (1,), (2,)]


def kill(pool, index):
    os.kill(answers(pool.slots[index].actor.ready.remote()), signal.SIGKILL)


@pytest.mark.parametrize("recover", [0, 2])
def test_a_killed_worker_is_replaced_and_nothing_changes(make_federation, pools, recover):
    federation = make_federation("fibfl++", 5, rounds=6)
    engine, outcomes = RayFederation(federation, pools[3], recover=recover), []
    for outcome in engine.rounds():
        outcomes.append(outcome)
        if outcome.number == 2:
            kill(pools[3], 1)
    assert [outcome.number for outcome in outcomes] == list(range(6))
    history, parameters, _ = finish(RayFederation(federation, pools[3]))
    np.testing.assert_array_equal([outcome.accuracies for outcome in outcomes], history)
    assert torch.equal(engine.parameters, parameters)


def test_a_worker_killed_while_it_trains(make_federation, pools):
    federation = make_federation("fibfl+", 5, rounds=3, extractor_epochs=2500)
    pid = answers(pools[1].slots[0].actor.ready.remote())
    engine, died = RayFederation(federation, pools[1]), []
    rounds = engine.rounds()
    first = next(rounds)
    timer = threading.Timer(0.2, lambda: (os.kill(pid, signal.SIGKILL), died.append(first.number)))
    timer.start()
    rest = list(rounds)
    timer.join()
    assert died == [0]
    assert answers(pools[1].slots[0].actor.ready.remote()) != pid
    theirs = finish(Simulation(federation))
    np.testing.assert_array_equal([outcome.accuracies for outcome in [first, *rest]], theirs[0])
    assert torch.equal(engine.parameters, theirs[1])


def test_a_worker_that_dies_every_time_is_an_error_and_no_loop(make_federation, pools, monkeypatch):
    engine = RayFederation(make_federation("local", 3), pools[1])
    enter = engine._enter
    monkeypatch.setattr(engine, "_enter", lambda: (enter(), kill(pools[1], 0)))
    monkeypatch.setattr("firma.engines.ray._ATTEMPTS", 2)
    with pytest.raises(firma.BadInput, match="round 1 failed 2 times"):
        list(engine.rounds())
    pools[1].repair()


def test_an_error_in_a_worker_is_that_error_here(make_federation, pools):
    federation = make_federation("fedavg", 3)
    broken = replace(federation, models=[SplitModel(*mlp((FEATURES + 1,), 4, 16, 8))], backend="autograd")
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        list(RayFederation(broken, pools[1]).rounds())


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ObjectStoreFullError", "the object store is full"), ("OutOfDiskError", "the object store is full"),
        ("OutOfMemoryError", "a node ran out of memory"),
    ],
)  # fmt: skip
def test_a_cluster_without_room_is_one_sentence_that_says_what_helps(cluster, name, says):
    def fill():
        raise getattr(ray().exceptions, name)("42 bytes are free")

    with pytest.raises(firma.BadInput, match=rf"engine = 'ray': {says} \(.*42 bytes are free.*--recover"):
        answers(ray().remote(fill).remote())


def stopped_after(engine, count):
    rounds = engine.rounds()
    for _ in range(count):
        next(rounds)
    rounds.close()


@pytest.mark.parametrize("method", ["fibfl++", "fedrep", "frame", "fedbn"])
def test_a_checkpoint_is_resumed_by_any_number_of_processes_and_by_the_simulation(
    make_federation, pools, tmp_path, method
):
    federation = make_federation(method, 5, rounds=6, order=(0, 3, 1, 4, 2))
    whole = finish(RayFederation(federation, pools[3]))
    stopped_after(RayFederation(federation, pools[3], RunCheckpoints(tmp_path, federation)), 4)
    again = RayFederation(federation, pools[1], RunCheckpoints(tmp_path, federation))
    assert_same(finish(again), whole, exactly=True)
    assert_same(finish(Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation))), whole, exactly=True)


@pytest.mark.parametrize("method", ["fedavg", "fedper"])
def test_averages_do_not_depend_on_how_clients_are_grouped(make_federation, pools, method):
    """Bit by bit, also where a mean lies between two float32 numbers, as some of these do."""
    federation = make_federation(method, 5, rounds=3, order=(0, 3, 1, 4, 2))
    found = [finish(RayFederation(federation, pools[processes])) for processes in (1, 3)]
    assert_same(*found, exactly=True)


def test_spread_work_whose_process_dies_is_done_again(cluster, tmp_path):
    def die_once(item, given):
        mark, numbers = given
        if item == 3 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return int(numbers[item])

    given, started = (tmp_path / "mark", np.arange(100, 105)), []
    found = dict(spread(die_once, range(5), lambda _: given, started.append))
    assert found == {n: 100 + n for n in range(5)}
    assert sorted(started) == list(range(5))
    assert given[0].exists()


def test_toy_data_are_what_the_groups_get(make_federation, pools):
    federation = make_federation("local", 3, rounds=1)
    engine = RayFederation(federation, pools[3])
    list(engine.rounds())
    packed = [each for reference in engine._data for each in answers(reference)]
    for (x, y, *_), data in zip(packed, toy_data(3), strict=True):
        np.testing.assert_array_equal(x, data.inputs)
        np.testing.assert_array_equal(y, data.labels)
        assert not x.flags.writeable, "not shared through the object store"


RECIPES = Path(__file__).parents[2] / "examples" / "methods"


@pytest.fixture
def recipes(monkeypatch, tmp_path):
    """The recipes for methods in the current folder, which no worker knows."""
    for path in RECIPES.glob("*.py"):
        (tmp_path / path.name).write_text(path.read_text())
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for path in RECIPES.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize(
    "row",
    [
        "fedavg:algorithm=fedprox:FedProx",
        "fedavg:weights=equal,algorithm=scaffold:Scaffold",
        "fedavg:algorithm=fedadam:FedAdam",
        "rdfl:algorithm=moon:Moon",
    ],
)
def test_methods_of_ones_own_run_on_ray_too(make_federation, pools, recipes, row, processes):
    """A server with an aggregate of its own gives the same bits: it sees the same rows in the same order."""
    federation = replace(make_federation(row, 5), participation=0.8)
    exactly = "fedadam" in row or "moon" in row
    assert_same(finish(RayFederation(federation, pools[processes])), finish(Simulation(federation)), exactly)


def test_a_servers_state_survives_a_lost_process_and_a_resume(make_federation, pools, recipes, tmp_path):
    federation = make_federation("fedavg:algorithm=fedadam:FedAdam(rate=0.03)", 5, rounds=6)
    whole = finish(Simulation(federation))
    rounds = RayFederation(federation, pools[3], RunCheckpoints(tmp_path / "saved", federation)).rounds()
    for _ in range(3):
        next(rounds)
    os.kill(answers(pools[3].slots[0].actor.ready.remote()), signal.SIGKILL)
    next(rounds)
    rounds.close()
    again = RayFederation(federation, pools[3], RunCheckpoints(tmp_path / "saved", federation))
    assert_same(finish(again), whole, exactly=True)
    resumed = Simulation(federation, checkpoints=RunCheckpoints(tmp_path / "saved", federation))
    assert_same(finish(resumed), whole, exactly=True)


def test_a_hook_that_fails_on_ray_says_where(make_federation, pools, recipes):
    (recipes / "fedprox.py").write_text(
        "import firma\nclass FedProx(firma.Algorithm):\n    def after_training(self, one):\n        one.nothing\n"
    )
    federation = make_federation("fedavg:algorithm=fedprox:FedProx", 5)
    with pytest.raises(firma.BadInput, match=r"after_training for client \d in round 1 failed") as caught:
        finish(RayFederation(federation, pools[3]))
    assert "one.nothing" in str(caught.value)
