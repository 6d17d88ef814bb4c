"""Flower apps in the simulation, against Flower's own strategy, plain arithmetic, and degenerate cases."""

import warnings

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

import firma.flower
from firma.errors import BadInput
from firma.flower.trainer import backend, loaded, templates, unknown_data
from firma.method_lookup import lookup
from firma.schedule import Phase, plan
from firma.seeds import torch_seed
from firma.settings import Hyper
from firma.tasks.task import CLASSIFICATION
from firma.training.backend import drawing, portable, resume, train_round
from firma.training.local_step import Job, new_client, recipe

from .conftest import EXAMPLE, START, message_app, numpy_app

JOINT = "fibfl:training=joint,persistent=no"


class InProcess(Grid):
    """Flower's grid without its runtime: nodes are called here, one after another, with FIRMA's seeds."""

    def __init__(self, app, clients, seed, run_config):
        self.app, self.clients, self.seed, self.round = app, clients, seed, 0
        self.contexts = [
            Context(1, n + 1, {"partition-id": n, "num-partitions": clients}, RecordDict(), run_config)
            for n in range(clients)
        ]

    def set_run(self, run):
        pass

    @property
    def run(self):
        raise NotImplementedError

    def get_node_ids(self):
        return range(1, self.clients + 1)

    def push_messages(self, messages):
        raise NotImplementedError

    def pull_messages(self, message_ids):
        raise NotImplementedError

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            number = message.metadata.dst_node_id - 1
            with drawing(torch_seed(self.seed, "layers", number, self.round)):
                replies.append(self.app(message, self.contexts[number]))
        if messages[0].metadata.message_type == "train":
            self.round += 1
        return replies


def by_flower(app, clients, rounds, seed, initial, config, run_config):
    """Flower's own FedAvg, from its strategy's own loop."""
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 0  # its runtime would set them
    grid = InProcess(app, clients, seed, run_config)
    return FedAvg().start(grid, ArrayRecord(initial), rounds, train_config=ConfigRecord(config))


def test_fedavg_equals_flowers_own_strategy():
    from digits_app.client_app import app
    from digits_app.task import Net, tensors

    described = firma.flower.read(EXAMPLE)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(4, "initial weights", 0))
        start = Net().state_dict()
    theirs = by_flower(app, 3, 2, 4, start, {"lr": 0.1}, dict(described.run_config))
    ours = firma.flower.run(EXAMPLE, "fedavg", clients=3, rounds=2, seed=4)
    assert ours.config["samples"] != [ours.config["samples"][0]] * 3  # weights differ
    for name, array in theirs.arrays.to_torch_state_dict().items():
        for client in range(3):
            np.testing.assert_allclose(firma.flower.arrays(ours, client)[name], array.numpy(), rtol=1e-5, atol=1e-6)
    tested = [len(tensors(client, 3, 0.5)[1]) for client in range(3)]
    ours_mean = np.average(ours.history[-1], weights=tested)
    assert theirs.evaluate_metrics_clientapp[2]["accuracy"] == pytest.approx(ours_mean)


def test_both_interfaces_of_flower_give_the_same_bits():
    results = [
        firma.flower.run(EXAMPLE, JOINT, clients=3, rounds=2),
        firma.flower.run(
            firma.flower.read(EXAMPLE).model_copy(update={"app": "digits_app.numpy_client_app:app"}), JOINT, 3, 2
        ),
    ]
    assert torch.equal(results[0].parameters, results[1].parameters)
    np.testing.assert_array_equal(results[0].history, results[1].history)


def test_a_numpy_client_needs_no_names():
    """Its own get_parameters are the start, drawn by the same seed, and the head is found by index."""
    named = firma.flower.run(EXAMPLE, JOINT, clients=3, rounds=2)
    app = "digits_app.numpy_client_app:app"
    config = dict(named.config["flower"]["run_config"])
    bare = firma.flower.run(app, JOINT, 3, 2, head=[-2, -1], run_config=config, train_config={"lr": 0.1}, audit=True)
    assert [each["name"] for each in bare.config["flower"]["arrays"]] == ["0", "1", "2", "3", "4", "5"]
    assert bare.audit["tensors"] == ["extractor.0", "extractor.1", "extractor.2", "extractor.3"]
    torch.testing.assert_close(bare.parameters, named.parameters, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", ["fedavg", "rdfl", JOINT, "fibfl++:training=joint,order=given,persistent=no"])
def test_messages_give_what_the_matrix_gives(method):
    settings = {"warmup_rounds": 1} if "++" in method else {}
    matrix, messages = (
        firma.flower.run(EXAMPLE, method, clients=4, rounds=2, settings=settings, audit=audit)
        for audit in (False, True)
    )
    torch.testing.assert_close(matrix.parameters, messages.parameters, rtol=1e-4, atol=1e-5)
    assert messages.audit["head_private"] == ("fibfl" in method)
    assert messages.audit["server_free"] == (method != "fedavg")


def test_a_star_averages_by_the_samples_that_clients_report(plus_client):
    """Clients add 1, 2, 3 and have 10, 11, 12 samples, told in each round."""
    with pytest.warns(UserWarning, match="no head is named"):
        result = firma.flower.run(plus_client, "fedavg", 3, 2, initial=START)
    step = (10 * 1 + 11 * 2 + 12 * 3) / 33
    for client in range(3):
        found = firma.flower.arrays(result, client)
        np.testing.assert_allclose(found["body.weight"], START["body.weight"] + 2 * step, rtol=1e-6)
        np.testing.assert_allclose(found["fc.weight"], START["fc.weight"] + 2 * step, rtol=1e-6)
    assert result.config["samples"] == [10, 11, 12]


def test_on_a_ring_heads_stay_as_clients_left_them(plus_client):
    """Extractors end between the clients' own; a head is exactly its client's own sum."""
    result = firma.flower.run(plus_client, JOINT, 4, 3, initial=START, head=["fc.*"], audit=True)
    for client in range(4):
        np.testing.assert_array_equal(firma.flower.arrays(result, client)["fc.weight"], 1 + 3 * (client + 1.0))
    bodies = np.array([firma.flower.arrays(result, client)["body.weight"] for client in range(4)])
    assert bodies.min() > START["body.weight"].min() + 3 and (bodies < START["body.weight"] + 12).all()
    assert result.audit["head_private"] and result.audit["tensors"] == ["extractor.body.weight"]


def test_an_app_alone_trains_as_if_nobody_were_there():
    """Without mixing a client is a plain loop of its own training."""
    from digits_app.task import Net, load_data, train

    result = firma.flower.run(EXAMPLE, "local", clients=3, rounds=2, seed=1)
    with drawing(torch_seed(1, "initial weights", 0)):
        net = Net()
    for number in range(2):
        with drawing(torch_seed(1, "layers", 2, number)):
            Net()  # the app draws weights, too, before it loads those that it was sent
            train(net, load_data(2, 3, 32, 0.5)[0], 2, 0.1)
    for name, values in net.state_dict().items():
        np.testing.assert_allclose(firma.flower.arrays(result, 2)[name], values.numpy(), rtol=1e-5, atol=1e-6)


def test_the_app_sees_what_flower_would_show_it():
    seen = []

    def train(arrays, message, context):
        seen.append((dict(context.node_config), dict(context.run_config), dict(message.content["config"])))
        return arrays

    firma.flower.run(
        message_app(train), "local", 2, 2, initial=START, run_config={"epochs": 3}, train_config={"lr": 0.5},
        node_config={"site": "a"},
    )  # fmt: skip
    node = {"num-partitions": 2, "site": "a"}
    assert seen == [
        ({"partition-id": client} | node, {"epochs": 3}, {"lr": 0.5, "server-round": number})
        for number in (1, 2)
        for client in (0, 1)
    ]


def test_a_client_remembers_what_it_keeps_in_its_context():
    counts = []

    def train(arrays, message, context):
        kept = context.state.get("mine", MetricRecord({"count": 0}))
        context.state["mine"] = MetricRecord({"count": kept["count"] + 1 + context.node_config["partition-id"]})
        counts.append(context.state["mine"]["count"])
        return arrays

    firma.flower.run(message_app(train), "local", 2, 3, initial=START)
    assert counts == [1, 2, 2, 4, 3, 6]


def test_a_checkpoint_holds_what_a_client_keeps_in_its_context():
    """A client that resumes counts on from where it was saved, although what it keeps has grown since the start."""
    counts = []

    def train(arrays, message, context):
        context.state[f"round {len(context.state)}"] = MetricRecord({"seen": len(context.state)})
        counts.append(len(context.state))
        return arrays

    app = message_app(train)
    described = firma.flower.FlowerApp(app="made:here", head=("fc.*",))
    ready = loaded(app, START, described, lambda client: {"partition-id": client})
    (made,) = templates(ready, 0, [0])
    trains, row = backend(ready, made), lookup("local")
    job, plan_ = Job(recipe(row, Hyper(), CLASSIFICATION), (Phase("model", 1),), 64), plan(row, Hyper(), 1, 3, 0)

    def fresh():
        return new_client(0, unknown_data(), made.model.flat(), made.model, job.recipe)

    first, second = fresh(), fresh()
    for client in (first, first):
        train_round(trains, trains.make(), client, job, plan_, 0)
    resume(trains, second, portable(trains, first))
    train_round(trains, trains.make(), second, job, plan_, 0)
    assert counts == [1, 2, 3]


def test_the_apps_randomness_has_an_address():
    """The same whatever ran before, and nothing of it is left behind."""
    import random

    def train(arrays, message, context):
        draws = [torch.rand(1).item(), np.random.rand(), random.random()]  # noqa: NPY002
        return {name: array + np.float32(sum(draws)) for name, array in arrays.items()}

    torch.manual_seed(0)
    first = firma.flower.run(message_app(train), "local", 2, 2, initial=START).parameters
    after = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(after, torch.rand(1))
    np.random.seed(3)  # noqa: NPY002
    second = firma.flower.run(message_app(train), "local", 2, 2, initial=START).parameters
    assert torch.equal(first, second)
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first, firma.flower.run(message_app(train), "local", 2, 2, 1, initial=START).parameters)


def test_integer_arrays_are_each_clients_own_and_float64_comes_back_as_such():
    start = START | {"bn.count": np.array(5), "wide": np.zeros(3)}
    seen = []

    def train(arrays, message, context):
        seen.append((int(arrays["bn.count"]), arrays["wide"].dtype))
        return arrays | {"bn.count": arrays["bn.count"] + 1 + context.node_config["partition-id"]}

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = firma.flower.run(message_app(train), "fedavg", 2, 3, initial=start, head=["fc.*"])
    assert [int(firma.flower.arrays(result, client)["bn.count"]) for client in range(2)] == [8, 11]
    assert [count for count, _ in seen] == [5, 5, 6, 7, 7, 9]
    assert {dtype for _, dtype in seen} == {np.dtype(np.float64)}
    texts = [str(each.message) for each in said]
    assert any("float32: wide" in text for text in texts) and any(
        "each client keeps its own: bn.count" in t for t in texts
    )


def test_a_module_with_batch_norm_and_a_head_of_patterns():
    """FedBN by patterns: statistics and weights of the norm stay private."""
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    app = message_app(lambda arrays, message, context: arrays)
    with pytest.warns(UserWarning, match=r"each client keeps its own: 1\.num_batches_tracked"):
        result = firma.flower.run(app, JOINT, 3, 1, initial=net, head=["1.*", "2.*"], audit=True)
    assert result.audit["tensors"] == ["extractor.0.bias", "extractor.0.weight"]


def fails(reason, app, method="local", **options):
    with pytest.raises(BadInput, match=reason), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        firma.flower.run(app, method, **({"clients": 2, "rounds": 1, "initial": START, "head": ["fc.*"]} | options))


def same(arrays, message, context):
    return arrays


def broken(arrays, message, context):
    return {}["nothing"]


def test_what_cannot_be_is_refused_by_name(plus_client):
    app = message_app(same)
    fails("has training = 'two-phase'.*use 'fedrep:training=joint'", app, "fedrep")
    fails(
        "has order = '2-opt'.*use 'fibfl:order=given,training=joint,persistent=no'",
        app,
        "fibfl:order=2-opt,training=joint",
    )
    fails("keep between rounds.*use 'fibfl:training=joint,persistent=no'", app, "fibfl:training=joint")
    fails("head must name the arrays.*body.weight, fc.weight.*local or fedavg or rdfl", app, JOINT, head=())
    fails("gate of this method requires the training accuracy.*no metric 'accuracy'.*num-examples", app,
          JOINT + ",gate=yes")  # fmt: skip
    fails("setting 'epochs' has no effect on a Flower app", app, settings={"epochs": 3})
    fails(r"head: array 'fc.wieght' is unknown \(did you mean 'fc.weight'", app, head=["fc.wieght"])
    fails("head = 2: the app has 2 arrays", app, head=[2])
    fails("names every array", app, head=["*"])
    fails("initial is missing", app, initial=None)
    fails("initial is a float", app, initial=1.0)
    fails("train of client 0 failed: KeyError: 'nothing'.*test_simulation.py, line", message_app(broken))
    fails("differ in extra", message_app(lambda a, m, c: a | {"extra": a["fc.weight"]}))
    fails(r"'fc.weight' with shape \(1,\); must be \(2,\)", message_app(lambda a, m, c: a | {"fc.weight": [1.0]}))
    fails("num-examples = 0", message_app(same, samples=lambda client: 0))
    fails(
        "evaluate returned no metric 'accuracy'.*eval_acc.*accuracy = ",
        message_app(same, evaluate=lambda *_: {"eval_acc": 1.0}),
    )
    fails(
        "accuracy = 93.0; must be an accuracy between 0 and 1",
        message_app(same, evaluate=lambda *_: {"accuracy": 93.0}),
    )
    fails("get_parameters returned no arrays", numpy_app(lambda p, c: p), initial=None)
    fails("returned 1 arrays, but it was sent 2", numpy_app(lambda p, c: p[:1]))
    fails("module 'digits_app.client_app' has no 'nothing'", "digits_app.client_app:nothing")
    fails("must be a flwr.clientapp.ClientApp", "digits_app.task:Net")
    fails("app = 'nowhere.app:app': there is no module 'nowhere.app'", "nowhere.app:app")
    fails("cannot be read", EXAMPLE / "nothing.toml")
    fails("clients = 0", app, clients=0)


def test_the_name_of_the_accuracy_can_be_given():
    app = message_app(
        lambda a, m, c: (a, {"train_acc": 0.75}), evaluate=lambda *_: {"eval_acc": 0.125, "eval_loss": 2.0}
    )
    result = firma.flower.run(
        app, JOINT + ",gate=yes", 3, 1, initial=START, head=["fc.*"], accuracy="eval_acc", train_accuracy="train_acc"
    )
    assert result.history.tolist() == [[0.125] * 3]
    assert {name: values.tolist() for name, values in result.curves.items()} == {
        "eval_acc": [[0.125] * 3],
        "eval_loss": [[2.0] * 3],
    }


def test_a_run_that_diverges_says_so_once():
    app = message_app(same, evaluate=lambda *_: {"accuracy": 0.1, "loss": float("nan")})
    with pytest.warns(UserWarning) as said:
        firma.flower.run(app, "local", 2, 3, initial=START)
    assert [str(each.message) for each in said] == [
        "training diverged: the loss of client 0 and 1 others is not a finite number after round 1"
    ]


def test_a_numpy_clients_metrics_and_config():
    configs = []

    def fit(parameters, config):
        configs.append(dict(config))
        return [array + 1 for array in parameters]

    start = [np.zeros((2, 2), np.float32), np.zeros(2, np.float32)]
    result = firma.flower.run(numpy_app(fit, start), "local", 1, 2, train_config={"lr": 0.1})
    assert configs == [{"lr": 0.1, "server_round": 1}, {"lr": 0.1, "server_round": 2}]
    assert result.history.tolist() == [[0.25], [0.25]]
    assert result.parameters.tolist() == [[2.0] * 6]


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # datasets leaves the file open
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_partition_of_local_files_by_flwr_datasets(tmp_path):
    """FederatedDataset reads files, so no hub is needed; each client loads its own partition."""
    from flwr_datasets import FederatedDataset

    rng = np.random.default_rng(0)
    table = np.column_stack([rng.normal(size=(60, 2)), rng.integers(0, 2, 60)])
    np.savetxt(tmp_path / "mine.csv", table, delimiter=",", header="a,b,label", comments="")
    rows = []

    def train(arrays, message, context):
        node = context.node_config
        source = FederatedDataset(
            dataset="csv", data_files=node["data-path"], partitioners={"train": node["num-partitions"]},
            cache_dir=str(tmp_path / "cache"),
        )  # fmt: skip
        own = source.load_partition(node["partition-id"])
        rows.append(len(own))
        mean = np.mean([own["a"], own["b"]], axis=1).astype(np.float32)
        return arrays | {"fc.weight": mean}

    app = message_app(train, samples=lambda client: 20)
    result = firma.flower.run(
        app, JOINT, 3, 1, initial=START, head=["fc.*"], node_config={"data-path": str(tmp_path / "mine.csv")}
    )
    assert rows == [20, 20, 20]
    means = np.array([firma.flower.arrays(result, client)["fc.weight"] for client in range(3)])
    np.testing.assert_allclose(means.mean(axis=0), table[:, :2].mean(axis=0), rtol=1e-5)


def test_a_result_with_flower_arrays_is_saved_and_loaded(tmp_path, plus_client):
    result = firma.flower.run(plus_client, "local", 2, 1, initial=START)
    loaded = firma.load(result.save(tmp_path / "result"))
    assert torch.equal(loaded.parameters, result.parameters)
    for client in range(2):
        for name, array in firma.flower.arrays(result, client).items():
            np.testing.assert_array_equal(firma.flower.arrays(loaded, client)[name], array)
    for each in (result, loaded):
        with pytest.raises(BadInput, match=r"Flower app.*firma\.flower\.arrays"):
            each.model(0)
    with pytest.raises(BadInput, match="client = 2"):
        firma.flower.arrays(result, 2)


def test_the_command(command, tmp_path):
    words = ["flower", EXAMPLE, "--method", JOINT, "--clients", 2, "--rounds", 1, "--run-config", "local-epochs=1"]
    code, out, err = command(*words, "--audit", "--out", tmp_path / "results")
    assert (code, err) == (0, "")
    assert f"{JOINT}  round 1/1  accuracy" in out and "head private in 2 messages" in out
    assert (tmp_path / "results" / JOINT.replace(":", "-") / "result.json").exists()
    assert command(*words, "--out", tmp_path / "results")[0] == 2
    code, _, err = command("flower", EXAMPLE, "--method", "fibfl++")
    assert code == 2 and "use 'fibfl++:training=joint,order=given,persistent=no' instead" in err
