"""Methods of one's own: the recipes in examples/methods as they are, every hook, and what is said about mistakes."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import nn

import firma
from firma.algorithms.catalogue import algorithm_of, resolved
from firma.engines.checkpoint import RunCheckpoints, fingerprint
from firma.engines.simulation import Simulation
from firma.method_lookup import lookup
from firma.methods import METHODS
from firma.mixing.ring_order import neighbours
from firma.models import SplitModel
from firma.privacy import Audit
from firma.seeds import generator
from firma.sweep.cells import key
from firma.sweep.grid import expand
from reference import Numbers, joint_sgd, make_sites, parameters, present
from reference_algorithms import load

RECIPES = Path(__file__).parent.parent / "examples" / "methods"
LINES = {"fedprox": 30, "scaffold": 60, "fedbn": 15, "fedavgm": 40, "fedadam": 40, "fedsam": 40, "moon": 40}
SCAFFOLD = "fedavg:weights=equal,algorithm=scaffold:Scaffold"
CLOSE = {"rtol": 1e-4, "atol": 1e-6}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty current folder, whose modules are forgotten afterwards."""
    known = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a file that is edited within a second is read again
    yield tmp_path
    for name in set(sys.modules) - known:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.fixture
def recipes(here):
    """The recipes in the current folder."""
    for path in RECIPES.glob("*.py"):
        (here / path.name).write_text(path.read_text())
    return here


@dataclass(frozen=True)
class OwnModel(firma.Algorithm):
    def memory(self, model, shared):
        return {"personal": model.clone()}


class AllPrivate(firma.Algorithm):
    def is_private(self, name, module):
        return True


def test_an_algorithm_that_keeps_everything_private_is_refused():
    row = replace(METHODS["fedavg"], name="mine", algorithm=AllPrivate())
    with pytest.raises(firma.BadInput, match="mine: all parameters of the model are private, so clients would have"):
        firma.run("digits", "iid", row, clients=2, rounds=1)


def test_clients_whose_personal_model_is_never_trained_are_announced():
    row = replace(METHODS["fedavg"], name="mine", algorithm=OwnModel())
    with pytest.warns(UserWarning, match="none of the 1 rounds .*mine tests them with personal models that they have"):
        firma.run("digits", "iid", row, clients=4, rounds=1, participation=0.5, settings={"epochs": 0})


def finish(federation, audit=None):
    simulation = Simulation(federation, audit)
    outcomes = list(simulation.rounds())
    return simulation.parameters, [(outcome.messages, outcome.sent_bytes) for outcome in outcomes]


def with_norms(federation):
    torch.manual_seed(0)
    extractor = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.LayerNorm(16))
    return SplitModel(extractor, nn.Linear(16, 4))


def test_recipes_are_as_short_as_promised():
    assert {path.stem for path in RECIPES.glob("*.py")} == set(LINES)
    for name, most in LINES.items():
        assert len((RECIPES / f"{name}.py").read_text().splitlines()) <= most, name


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_fedprox_is_the_setting_proximal(recipes, make_federation, share):
    ours = replace(make_federation("fedavg:algorithm=fedprox:FedProx(mu=0.3)", 4), participation=share)
    theirs = replace(make_federation("fedavg", 4, proximal=0.3), participation=share)
    assert torch.equal(finish(ours)[0], finish(theirs)[0])
    assert not torch.equal(finish(ours)[0], finish(replace(theirs, method=lookup("fedavg"), hyper=ours.hyper))[0])


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_scaffold_is_the_row_scaffold_and_costs_the_same(recipes, make_federation, share):
    ours, theirs = (replace(make_federation(row, 4), participation=share) for row in (SCAFFOLD, "scaffold"))
    assert torch.equal(finish(ours)[0], finish(theirs)[0])
    assert finish(ours)[1] == finish(theirs)[1]
    elements = ours.models[0].layout().size
    clients = len(ours.ring(ours.plan(0)))
    assert finish(ours)[1][0] == (2 * clients, 2 * clients * 2 * elements * 4 + 8 * clients)


def test_scaffold_by_messages(recipes, make_federation):
    ours = make_federation(SCAFFOLD, 4)
    by_messages = finish(ours, Audit(neighbours(ours.order)))
    torch.testing.assert_close(by_messages[0], finish(ours)[0], **CLOSE)
    assert by_messages[1] == finish(ours)[1]


def test_fedbn_is_the_column_private(recipes, make_federation):
    def run(row):
        from firma.training.private_parameters import with_private

        base = make_federation(row, 4)
        return finish(
            replace(base, models=[with_private(with_norms(base), base.method, algorithm_of(base.method, base.hyper))])
        )

    ours, theirs, plain = run("fedavg:algorithm=fedbn:FedBN"), run("fedavg:private=norm"), run("fedavg")
    assert torch.equal(ours[0], theirs[0])
    assert ours[1] == theirs[1] != plain[1]
    assert not torch.equal(ours[0], plain[0])


def served(federation, change):
    """FedAvg at a naive server that makes its next model by `change(x, mean)`."""
    hyper = federation.hyper
    numbers = Numbers(
        lr=hyper.rate, momentum=hyper.momentum, batch=hyper.batch, e=hyper.epochs, share=federation.participation
    )
    model = federation.models[0]
    sites = make_sites([(each.inputs, each.labels) for each in federation.data], model.extractor, model.head)
    x = parameters(sites[0])
    for r in range(federation.rounds):
        there = present(sites, federation.seed, r, numbers, list(federation.order))
        for site in there:
            load(site, x)
            joint_sgd(site, generator(federation.seed, "batches", site.number, r), numbers)
        total = sum(len(site.y) for site in there)
        x = change(x, sum(parameters(site) * (len(site.y) / total) for site in there))
    return x.expand(len(sites), -1)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_server_momentum_agrees_with_the_oracle(recipes, make_federation, share):
    federation = replace(
        make_federation("fedavg:algorithm=fedavgm:FedAvgM(momentum=0.8,rate=0.7)", 5), participation=share
    )
    velocity = 0.0

    def change(x, mean):
        nonlocal velocity
        velocity = 0.8 * velocity + mean - x
        return x + 0.7 * velocity

    torch.testing.assert_close(finish(federation)[0], served(federation, change), rtol=2e-3, atol=2e-5)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_fedadam_agrees_with_the_oracle(recipes, make_federation, share):
    federation = replace(make_federation("fedavg:algorithm=fedadam:FedAdam(rate=0.03)", 5), participation=share)
    m, v = 0.0, 1e-6

    def change(x, mean):
        nonlocal m, v
        m, v = 0.9 * m + 0.1 * (mean - x), 0.99 * v + 0.01 * (mean - x) ** 2
        return x + 0.03 * m / (v**0.5 + 1e-3)

    torch.testing.assert_close(finish(federation)[0], served(federation, change), rtol=2e-3, atol=5e-5)


def test_server_momentum_of_nothing_is_fedavg(recipes, make_federation):
    ours = make_federation("fedavg:algorithm=fedavgm:FedAvgM(momentum=0,rate=1)", 4)
    torch.testing.assert_close(finish(ours)[0], finish(make_federation("fedavg", 4))[0], **CLOSE)
    assert finish(ours)[1] == finish(make_federation("fedavg", 4))[1]
    moved = make_federation("fedavg:algorithm=fedavgm:FedAvgM(momentum=0.9)", 4)
    assert not torch.allclose(finish(moved)[0], finish(ours)[0], **CLOSE)


@pytest.mark.parametrize("backend", ["auto", "autograd"])
@pytest.mark.parametrize("recipe", ["fedavgm:FedAvgM", "fedadam:FedAdam"])
def test_a_server_by_messages_is_the_same_bit_by_bit(recipes, make_federation, recipe, backend):
    federation = replace(make_federation(f"fedavg:algorithm={recipe}", 5, backend=backend), participation=0.6)
    ours, messages = finish(federation), finish(federation, Audit(neighbours(federation.order)))
    assert torch.equal(ours[0], messages[0])
    assert ours[1] == messages[1]


def test_a_server_shares_extractors_too(recipes, make_federation):
    federation = make_federation("fedrep:algorithm=fedavgm:FedAvgM(momentum=0,rate=1)", 4)
    torch.testing.assert_close(finish(federation)[0], finish(make_federation("fedrep", 4))[0], **CLOSE)


@pytest.mark.parametrize("nothing", ["fedsam:FedSAM(rho=0)", "moon:Moon(mu=0)", "fedprox:FedProx(mu=0)"])
def test_settings_of_nothing_are_fedavg(recipes, make_federation, nothing):
    name = nothing.partition("(")[0]
    plain = finish(make_federation("fedavg", 4, backend="autograd"))[0]
    assert torch.equal(finish(make_federation(f"fedavg:algorithm={nothing}", 4))[0], plain)
    assert not torch.allclose(finish(make_federation(f"fedavg:algorithm={name}", 4))[0], plain, **CLOSE)


def test_moon_agrees_with_a_naive_step(recipes, make_federation):
    """One client, one step a round: the gradient of the written-out loss, with the previous round's model."""
    federation = make_federation("fedavg:algorithm=moon:Moon(mu=2.0)", 1, rounds=3, batch=64, epochs=1, momentum=0.0)
    data, model = federation.data[0], federation.models[0].copy()
    whole = nn.Sequential(model.extractor, model.head)
    start = [p.detach().clone() for p in whole.parameters()]

    def features(values):
        names = [name for name, _ in model.extractor.named_parameters()]
        return torch.func.functional_call(model.extractor, dict(zip(names, values, strict=False)), data.inputs)

    previous = start
    for _ in range(3):
        now = [p.detach().clone() for p in whole.parameters()]
        z, near, far = model.extractor(data.inputs), features(now).detach(), features(previous).detach()
        a, b = (torch.nn.functional.cosine_similarity(z, each).div(0.5).exp() for each in (near, far))
        loss = nn.functional.cross_entropy(model.head(z), data.labels) - 2.0 * (a / (a + b)).log().mean()
        whole.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in whole.parameters():
                p.sub_(p.grad, alpha=0.01)
        previous = [p.detach().clone() for p in whole.parameters()]
    expected = torch.cat([p.detach().reshape(-1) for p in whole.parameters()])
    torch.testing.assert_close(finish(federation)[0][0], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "row",
    [SCAFFOLD, "fedavg:algorithm=fedadam:FedAdam", "fedrep:algorithm=fedavgm:FedAvgM", "rdfl:algorithm=moon:Moon"],
)
def test_a_resumed_run_is_the_run_bit_by_bit(recipes, make_federation, row):
    federation = replace(make_federation(row, 4, rounds=5), participation=0.75)
    whole = finish(federation)
    rounds = Simulation(federation, checkpoints=RunCheckpoints(recipes / "saved", federation)).rounds()
    for _ in range(3):
        next(rounds)
    rounds.close()
    again = Simulation(federation, checkpoints=RunCheckpoints(recipes / "saved", federation))
    assert len(list(again.rounds())) == 5
    assert torch.equal(again.parameters, whole[0])


def test_killed_between_rounds(recipes, command):
    """The command line, killed by the system after its first checkpoint, continues as if nothing had happened."""
    words = ["run", "--dataset", "digits", "--clients", "3", "--rounds", "20", "--json", "--set", "epochs=1"]
    words += ["--method", "fedavg:algorithm=fedadam:FedAdam(rate=0.03)"]
    whole = json.loads(command(*words)[1])
    words += ["--checkpoint", "saved"]
    with subprocess.Popen([sys.executable, "-m", "firma", *words], stdout=subprocess.DEVNULL) as process:
        while not list(recipes.glob("saved/*/round-*/state.json")) and process.poll() is None:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    done = len(json.loads(next(recipes.glob("saved/*/round-*/state.json")).read_text())["outcomes"])
    assert done < 20
    again = json.loads(command(*words)[1])
    assert again["results"][0]["history"] == whole["results"][0]["history"]


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    sys.modules.pop(path.stem, None)


def test_edited_code_is_another_run(recipes, make_federation):
    (recipes / "fedprox.py").write_text((recipes / "fedprox.py").read_text() + "\n\nfrom strength import OTHER\n")
    (recipes / "strength.py").write_text("OTHER = 1\n")
    grid = {"dataset": "digits", "method": "fedavg:algorithm=fedprox:FedProx(mu=0.3)"}
    row = lookup("fedavg:algorithm=fedprox:FedProx(mu=0.3)")
    before = fingerprint(make_federation(row)), key(expand(grid, {}).cells[0])
    sys.modules.pop("fedprox")
    assert (fingerprint(make_federation(row)), key(expand(grid, {}).cells[0])) == before
    edit(recipes / "strength.py", "1", "2")
    sys.modules.pop("fedprox")
    after = fingerprint(make_federation(row)), key(expand(grid, {}).cells[0])
    assert before[0] != after[0]
    assert before[1] != after[1]
    other = "fedavg:algorithm=fedprox:FedProx(mu=0.4)"
    assert fingerprint(make_federation(other)) != after[0]
    assert key(expand(grid | {"method": other}, {}).cells[0]) != after[1]


def test_keys_of_the_table_do_not_change():
    (cell,) = expand({"dataset": "digits", "method": "fedavg"}, {}).cells
    assert dict(cell.code) == {}


def test_a_result_records_the_code_and_is_read_without_it(recipes, command):
    name = "fedavg:algorithm=fedprox:FedProx(mu=0.3)"
    words = ["run", "--dataset", "digits", "--clients", 3, "--rounds", 1, "--method", name, "--out", "saved"]
    code, _, said = command(*words, "--set", "epochs=1")
    assert code == 0, said
    (recipes / "fedprox.py").write_text("raise SystemExit('code was run')\n")
    sys.modules.pop("fedprox")
    (result,) = firma.load_results("saved")
    assert result.method == name
    assert result.config["columns"]["algorithm"].startswith("fedprox:FedProx(mu=0.3)#")
    folder = next(path.parent for path in recipes.glob("saved/**/result.json"))
    assert firma.load(folder).model(0).flat().isfinite().all()
    assert command("report", "saved")[0] == 0
    assert "fedprox" not in sys.modules


def test_toml_and_python_are_the_same(recipes, command):
    (recipes / "run.toml").write_text(
        'dataset = "digits"\nclients = 3\nrounds = 1\nmethod = "fedavg:algorithm=fedprox:FedProx(mu=0.3)"\n'
        "[set]\nepochs = 1\n"
    )
    code, out, _ = command("run", "run.toml", "--json")
    assert code == 0
    from fedprox import FedProx

    mine = replace(firma.METHODS["fedavg"], name="mine", algorithm=FedProx(mu=0.3))
    result = firma.run("digits", method=mine, clients=3, rounds=1, settings={"epochs": 1})
    assert json.loads(out)["results"][0]["history"] == result.history.tolist()
    assert "autograd" in result.backend
    assert "fedprox:FedProx" in result.backend


def test_a_sweep_over_a_setting_of_ones_own(recipes, command):
    (recipes / "grid.toml").write_text(
        'dataset = "digits"\nclients = 3\nrounds = 1\nout = "swept"\n'
        'method = ["fedavg:algorithm=fedprox:FedProx(mu=0.1)", "fedavg:algorithm=fedprox:FedProx(mu=1.0)"]\n'
        "[set]\nepochs = 1\n"
    )
    code, _, said = command("sweep", "grid.toml")
    assert code == 0, said
    first, second = firma.load_results("swept")
    assert not (first.history == second.history).all()
    runs = recipes / "swept" / "digits-recommended.jsonl"
    command("sweep", "grid.toml")
    assert len(runs.read_text().splitlines()) == 2
    edit(recipes / "fedprox.py", "alpha=self.mu", "alpha=2 * self.mu")
    command("sweep", "grid.toml")
    assert len(runs.read_text().splitlines()) == 4


# Mistakes


class Base(firma.Algorithm):
    """To be run with one hook changed."""


def run(make_federation, algorithm, row="fedavg", **changes):
    return finish(make_federation(replace(METHODS[row], name="mine", algorithm=algorithm), 3, rounds=2, **changes))


def mistake(**members):
    return type("Mine", (firma.Algorithm,), members)()


def fails(one):
    raise KeyError("nothing here")


def nan_in_memory(self, one):
    one.memory["mine"] = one.memory["mine"] / 0


def nan_in_parameters(self, one):
    one.parameters.mul_(float("nan"))


def wrong_size(self, one):
    one.memory["mine"] = torch.zeros(7)


def not_a_tensor(self, one):
    one.memory["mine"] = 3.0


def undeclared(self, one):
    one.memory["other"] = torch.zeros(3)


def removed(self, one):
    del one.memory["mine"]


def own_state(self, one):
    self.count = 1


def nan_in_step(self, step):
    step.update(step.gradient())
    step.memory["mine"].div_(0.0)


def assigned(self, one):
    one.parameters = one.start


def a_half(self, one):
    one.memory["mine"] = one.memory["mine"] + 0.5


KEPT = {"memory": lambda self, model, shared: {"mine": torch.zeros(3)}}
MISTAKES = {
    "after_training for client 0 in round 1 failed .KeyError: 'nothing here', test_own_methods.py, line": {
        "after_training": lambda self, one: fails(one)
    },
    "after_training for client 0 in round 1 made memory 'mine' NaN or infinite": {
        **KEPT, "after_training": nan_in_memory
    },
    "after_mixing for client 0 in round 1 made parameters NaN or infinite": {"after_mixing": nan_in_parameters},
    r"before_training for client 0 in round 1 changed the shape of 'mine' from \(3,\) to \(7,\)": {
        **KEPT, "before_training": wrong_size
    },
    r"changed the shape of 'mine' from \(5,\) to \(7,\); memory and mixed vectors keep their shapes": {
        "mixed": lambda self, shared: {"mine": 5}, "after_training": wrong_size
    },
    "assigned float to memory 'mine'; must be a tensor": {**KEPT, "after_training": not_a_tensor},
    "added 'other' to memory; declare it": {**KEPT, "after_training": undeclared},
    "removed 'mine' from memory": {**KEPT, "after_training": removed},
    "the attribute 'count' cannot be assigned; make settings": {"after_training": own_state},
    "change_gradient for client 0 in round 1 returned Tensor; must return nothing": {
        "change_gradient": lambda self, gradients, step: gradients * 2
    },
    "change_gradient for client 0 in round 1 made gradients NaN or infinite": {
        "change_gradient": lambda self, gradients, step: gradients.fill_(float("inf")).zero_ is None or None
    },
    r"local_step for client 0 in round 1 failed .BadInput: step.update: the shape of gradients is \(3,\); must be \(": {
        "local_step": lambda self, step: step.update(torch.zeros(3))
    },
    r"step.update: the shape of gradients is \(\); must be": {
        "local_step": lambda self, step: step.update(step.gradient().norm())
    },
    r"step.update: the shape of model is \(7,\); must be": {
        "local_step": lambda self, step: step.update(step.gradient(), torch.zeros(7))
    },
    r"step.gradient: the shape of at is \(10,\); must be": {
        "local_step": lambda self, step: step.update(step.gradient(at=step.parameters[:10]))
    },
    r"step.features: the shape of at is \(\d+,\); must be": {
        "local_step": lambda self, step: step.update(step.gradient() + step.features(torch.cat([step.start] * 2)).sum())
    },
    "step.gradient: at is float64; must be float32": {
        "local_step": lambda self, step: step.update(step.gradient(at=step.parameters.double()))
    },
    "step.outputs: at is of type list; must be a tensor": {
        "local_step": lambda self, step: step.update(step.gradient() + step.outputs([0.0]).sum())
    },
    "local_step for client 0 in round 1 made parameters NaN or infinite; look for divisions by zero": {
        "local_step": lambda self, step: step.update(step.gradient() / 0)
    },
    "local_step for client 0 in round 1 made parameters NaN or infinite.*": {
        "local_step": lambda self, step: step.update(step.gradient(loss=lambda outputs, targets: outputs.sum() / 0))
    },
    "local_step for client 0 in round 1 made memory 'mine' NaN or infinite": {**KEPT, "local_step": nan_in_step},
    "cannot assign to field 'parameters', .*; change tensors in place": {"after_training": assigned},
    "assigned float32 to 'mine', which was declared as int64 and would round it; declare it as float32": {
        "memory": lambda self, model, shared: {"mine": torch.zeros(3, dtype=torch.int64)}, "after_training": a_half
    },
    "after_mixing takes .self.; must take .self, one.": {"after_mixing": lambda self: None},
    "mixed is of type int; must be a method": {"mixed": 7},
    "memory returned list; must return a dict": {"memory": lambda self, model, shared: []},
    "memory: 'mine' is of type float; must be a tensor, such as torch.zeros": {
        "memory": lambda self, model, shared: {"mine": 1.0}
    },
    "memory: 'mine' contains NaN": {"memory": lambda self, model, shared: {"mine": torch.tensor([float("nan")])}},
    "memory: the name 'round.start' is reserved": {"memory": lambda self, model, shared: {"round.start": model}},
    "memory: the name 'optimiser.x' is reserved": {"memory": lambda self, model, shared: {"optimiser.x": model}},
    "memory: 'personal' has shape .3,.; it is the model that is tested": {
        "memory": lambda self, model, shared: {"personal": torch.zeros(3)}
    },
    "memory: the name 'mine' is already taken by `mixed`": {**KEPT, "mixed": lambda self, shared: {"mine": 3}},
    "mixed: the name 'parameters' is reserved for the shared parameters": {
        "mixed": lambda self, shared: {"parameters": 3}
    },
    "mixed: 'mine' has size 0; must be a whole number": {"mixed": lambda self, shared: {"mine": 0}},
    "memory failed .ZeroDivisionError": {"memory": lambda self, model, shared: 1 / 0},
    "fitted returned NoneType; must return an algorithm": {"fitted": lambda self, model: None},
    "is_private returned NoneType for 'extractor": {"is_private": lambda self, name, module: None},
    r"aggregate in round 1 returned shape \(3,\); must return a tensor of shape": {
        "aggregate": lambda self, server: torch.zeros(3)
    },
    "aggregate in round 1 returned NoneType": {"aggregate": lambda self, server: None},
    "aggregate in round 1 made the result NaN or infinite": {"aggregate": lambda self, server: server.mean / 0},
    "aggregate in round 1 failed .KeyError: 'gone'": {"aggregate": lambda self, server: server.memory["gone"]},
    "server_memory returned NoneType": {
        "server_memory": lambda self, shared: None, "aggregate": lambda self, server: server.mean
    },
}  # fmt: skip


@pytest.mark.parametrize("sentence", MISTAKES)
def test_mistakes_are_sentences(make_federation, sentence):
    with pytest.raises(firma.BadInput, match=sentence):
        run(make_federation, mistake(**MISTAKES[sentence]))


def test_the_traceback_of_a_hook_is_kept(make_federation):
    with pytest.raises(firma.BadInput) as caught:
        run(make_federation, mistake(after_training=lambda self, one: fails(one)))
    assert isinstance(caught.value.__cause__, KeyError)
    assert "in fails\n    raise KeyError" in str(caught.value)


def test_in_processes_the_traceback_is_kept_too(make_federation):
    base = make_federation(
        replace(METHODS["fedavg"], name="mine", algorithm=mistake(after_training=lambda self, one: fails(one)))
    )
    drawing = SplitModel(nn.Sequential(nn.Linear(12, 16), nn.Dropout(0.2)), nn.Linear(16, 4))
    with pytest.raises(firma.BadInput, match=r"after_training for client . in round 1 failed") as caught:
        finish(replace(base, models=[drawing], workers=2))
    assert "in fails\n    raise KeyError" in str(caught.value)


def test_what_a_hook_assigns_is_kept_in_processes_too(recipes, make_federation):
    """Moon assigns its memory: with layers that draw, clients train in forked processes, which share that memory."""
    drawing = SplitModel(nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Dropout(0.2)), nn.Linear(16, 4))
    base = replace(make_federation("fedavg:algorithm=moon:Moon", 3), models=[drawing])
    found = [finish(replace(base, workers=workers))[0] for workers in (1, 2)]
    assert torch.equal(*found)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("rdfl", "has an aggregate of its own, which runs at a server, but topology = 'ring' has none"),
        ("frame", "topology = 'all-reduce' has none"),
        ("local", "topology = 'none' has none"),
        ("d-psgd", "topology = 'ring' has none|topology = '.*' has none"),
    ],
)
def test_aggregate_requires_a_server(make_federation, row, sentence):
    with pytest.raises(firma.BadInput, match=sentence):
        run(make_federation, mistake(aggregate=lambda self, server: server.mean), row)


def test_aggregate_takes_the_place_of_a_robust_combine(make_federation):
    row = replace(METHODS["fedavg"], name="mine", combine="median", algorithm=mistake(aggregate=lambda self, s: s.mean))
    with pytest.raises(firma.BadInput, match="combine = 'median' would have no effect; use combine = 'mean'"):
        make_federation(row, 5)


def test_aggregate_requires_a_common_start(make_federation):
    with pytest.raises(firma.BadInput, match="initial = 'per-client' cannot be combined with algorithm"):
        run(make_federation, mistake(aggregate=lambda self, server: server.mean), initial="per-client")


@dataclass(frozen=True)
class WithTensor(firma.Algorithm):
    """A setting that cannot identify a run."""

    size: object = None


@dataclass
class Thawed(firma.Algorithm):
    """Forgets to be frozen."""

    mu: float = 1.0


def test_settings_must_identify_a_run(make_federation):
    with pytest.raises(firma.BadInput, match="its setting 'size' is of type Tensor; settings identify a run"):
        run(make_federation, WithTensor(torch.zeros(2)))
    run(make_federation, WithTensor((1, "a", (2.0, None))))
    with pytest.raises(firma.BadInput, match=r"make settings the fields of a class with @dataclass\(frozen=True\)"):
        Thawed()


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("nowhere:Mine", "there is no module 'nowhere'"),
        ("fedprox:FedPro", "did you mean 'FedProx'"),
        ("fedbn:NORMS", "NORMS is of type tuple; must be a class"),
        ("fedprox:Nothing", "class 'Nothing' is unknown; choose from FedProx"),
        ("fedprox:dataclass", "must be a class"),
        ("bad", "or MODULE:CLASS of your own"),
        ("fedbn:nn.Linear", "must be a subclass of firma.Algorithm"),
        ("fedprox:FedProx(nu=1)", "setting 'nu' is unknown; choose from mu"),
        ("fedbn:FedBN(nu=1)", "FedBN has no settings; omit nu"),
        ("fedprox:FedProx(0.1)", "settings must be given by name"),
        ("fedprox:FedProx(mu=os.sep)", "settings must be given by name"),
        ("fedprox:FedProx(mu=1", "must have the form module:Class"),
        ("fedprox:", "must have the form module:Class"),
    ],
)
def test_wrong_references_are_sentences(recipes, reference, sentence):
    with pytest.raises(firma.BadInput, match=sentence):
        resolved(lookup(f"fedavg:algorithm={reference}"))


@pytest.mark.parametrize(
    ("value", "sentence"), [(3, "is of type int"), (Base, r"is a class; pass an object of it, Base\(\)")]
)
def test_wrong_objects_are_sentences(value, sentence):
    with pytest.raises(firma.BadInput, match=sentence):
        firma.run("digits", method=replace(METHODS["fedavg"], name="mine", algorithm=value))


def test_a_misspelt_hook_is_warned_of(make_federation):
    with pytest.warns(UserWarning, match="after_trainings is not a hook and is never called .did you mean"):
        run(make_federation, mistake(after_trainings=lambda self, one: None))


def test_a_misspelt_hook_of_a_base_class_is_warned_of(make_federation):
    base = type("Basis", (firma.Algorithm,), {"before_trainings": lambda self, one: None})
    with pytest.warns(UserWarning, match="before_trainings is not a hook and is never called .did you mean"):
        run(make_federation, type("Mine", (base,), {})())


def test_a_servers_memory_without_aggregate_is_warned_of(make_federation):
    with pytest.warns(UserWarning, match="server_memory is never used, because only aggregate reads it"):
        run(make_federation, mistake(server_memory=lambda self, shared: {"velocity": torch.zeros(shared)}))


def test_other_parameters_that_begin_where_the_clients_own_do_are_others(make_federation):
    """A tensor of one repeated number lies in the client's own memory."""

    def repeated(self, step):
        step.update(step.gradient(at=step.parameters[:1].expand(len(step.parameters))))

    def copied(self, step):
        step.update(step.gradient(at=step.parameters[:1].repeat(len(step.parameters))))

    found = [run(make_federation, mistake(local_step=each))[0] for each in (repeated, copied)]
    assert torch.equal(*found)


@pytest.mark.parametrize(
    "step",
    [
        lambda self, step: step.update(step.gradient()),
        lambda self, step: step.update(step.gradient(loss=step.loss)),
        lambda self, step: step.update(step.gradient() + 0 * step.outputs().sum()),
    ],
)
def test_a_rate_that_is_too_large_is_not_blamed_on_a_local_step(make_federation, step):
    for rate in (1e30, 3e38):  # which is almost the largest float32
        assert not run(make_federation, mistake(local_step=step), rate=rate)[0].isfinite().all()


def test_the_command_line_shows_where_a_hook_failed(here, command):
    (here / "mine.py").write_text(
        "import firma\n\n\nclass Mine(firma.Algorithm):\n    def after_training(self, one):\n        return 1 / 0\n"
    )
    words = ["run", "--dataset", "digits", "--clients", 2, "--rounds", 1, "--set", "epochs=1"]
    code, _, said = command(*words, "--method", "fedavg:algorithm=mine:Mine")
    assert code == 2
    first, *lines = said.splitlines()
    assert first == (
        "firma: algorithm mine:Mine: after_training for client 0 in round 1 failed "
        "(ZeroDivisionError: division by zero, mine.py, line 6)"
    )
    assert any("return 1 / 0" in line for line in lines)


def test_what_a_hook_prints_is_not_part_of_the_document(here, command):
    (here / "talks.py").write_text(
        "import firma\n\nprint('imported')\n\n\nclass Talks(firma.Algorithm):\n"
        "    def after_training(self, one):\n        print('client', one.client)\n"
    )
    words = ["--dataset", "digits", "--clients", 2, "--rounds", 1, "--set", "local_steps=1"]
    method = ["--method", "fedavg:algorithm=talks:Talks"]
    code, out, said = command("run", *words, *method, "--json")
    assert (code, len(json.loads(out)["results"])) == (0, 1)
    assert "client 1" in said
    assert "client 1" in command("run", *words, *method)[1], "without --json it is on stdout, as printed"
    (here / "grid.toml").write_text(
        'dataset = "digits"\nclients = 2\nrounds = 1\nmethod = "fedavg:algorithm=talks:Talks"\n'
        "set = {local_steps = 1}\n"
    )
    sys.modules.pop("talks")
    code, out, _ = command("sweep", "grid.toml", "--json")
    assert (code, [each["status"] for each in json.loads(out)["runs"]]) == (0, ["run"])
    sys.modules.pop("talks")
    code, out, _ = command("topology", "--topology", "complete", "--clients", 3, *method, "--json")
    assert (code, json.loads(out)["clients"]) == (0, 3)


# What hooks are given


def test_hooks_see_parameters_in_torchs_order(make_federation):
    """The compiled kernels keep weights transposed; hooks of one's own, and a server, must not notice."""
    seen = {}

    def before_training(self, one):
        seen.setdefault("client", one.start.clone())

    def aggregate(self, server):
        seen.setdefault("server", server.start.clone())
        return server.mean

    run(make_federation, mistake(before_training=before_training))
    run(make_federation, mistake(aggregate=aggregate))
    expected = make_federation("fedavg").models[0].flat()
    assert torch.equal(seen["client"], expected)
    assert torch.equal(seen["server"], expected)


@dataclass(frozen=True)
class Counting(firma.Algorithm):
    """Keeps how many steps each hook was told of, and whether it was told that the client took part."""

    name = "counting"

    def memory(self, model, shared):
        return {"batches": torch.zeros(1), "before": torch.zeros(1), "after": torch.zeros(1), "mixed": torch.zeros(1),
                "part": torch.zeros(1)}  # fmt: skip

    def before_training(self, one):
        one.memory["batches"].zero_()
        one.memory["before"].fill_(one.steps)

    def local_step(self, step):
        step.memory["batches"].add_(1)
        step.update(step.gradient())

    def after_training(self, one):
        one.memory["after"].fill_(one.steps)

    def after_mixing(self, one):
        one.memory["mixed"].fill_(one.steps)
        one.memory["part"].fill_(one.took_part)


def counted(simulation):
    """Of every client: the batches that it trained on, and what its hooks were told."""
    names = ("batches", "before", "after", "mixed", "part")
    return [[int(client.memory[name]) for name in names] for client in simulation._group.clients]


@pytest.mark.parametrize("workers", [1, 2])
def test_all_hooks_are_told_how_many_steps_a_client_takes(make_federation, workers):
    """Also where clients have limits of their own, which follow from class shares that mixing replaces."""
    row = replace(METHODS["frame"], name="mine", algorithm=Counting())
    limits = {"local_steps": 2, "local_steps_for": "different", "personal_share": "auto", "extractor_epochs": 40}
    federation = replace(make_federation(row, 3, 2, personal_epochs=0, **limits), workers=workers)
    simulation = Simulation(federation)
    list(simulation.rounds())
    found = counted(simulation)
    assert len({batches for batches, *_ in found}) > 1, "clients differ"
    for batches, *told in found:
        assert batches > 2
        assert told == [batches] * 3 + [1]


def test_a_client_that_took_no_part_took_no_steps(make_federation):
    row = replace(METHODS["fedavg"], name="mine", algorithm=Counting())
    federation = replace(make_federation(row, 5, 1), participation=0.6)
    simulation = Simulation(federation)
    list(simulation.rounds())
    there = federation.plan(0).participants
    for client, (batches, *told) in enumerate(counted(simulation)):
        assert (batches > 0) == (client in there)
        assert told == ([batches] * 3 + [1] if client in there else [0, 0, 0, 0])


def test_steps_of_a_round_survive_a_checkpoint(make_federation, tmp_path):
    row = replace(METHODS["frame"], name="mine", algorithm=Counting())
    limits = {"local_steps": 2, "local_steps_for": "different", "personal_share": "auto", "extractor_epochs": 40}
    federation = make_federation(row, 3, 3, personal_epochs=0, **limits)
    whole = Simulation(federation)
    list(whole.rounds())
    rounds = Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation)).rounds()
    next(rounds)
    next(rounds)
    rounds.close()
    again = Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation))
    list(again.rounds())
    assert counted(again) == counted(whole)


def test_a_server_knows_vectors_by_name(make_federation):
    """Clients send their number in a mixed vector; the server sees it in their rows, and all get what it made of it."""
    rows, got = [], []

    def send(self, one):
        one.memory["who"] = torch.tensor([float(one.client), 1.0])

    def aggregate(self, server):
        where = server.spans["who"]
        rows.append((server.participants, server.received[:, where].tolist(), server.clients, server.number))
        result = server.mean
        result[where] = server.received[:, where].sum(0)
        return result

    def after(self, one):
        got.append(one.memory["who"].tolist())

    mine = mistake(mixed=lambda self, shared: {"who": 2}, after_training=send, aggregate=aggregate, after_mixing=after)
    federation = make_federation(replace(METHODS["fedavg"], name="mine", algorithm=mine), 4, rounds=1)
    finish(replace(federation, participation=0.5))
    drawn = tuple(sorted(federation.order[i] for i in replace(federation, participation=0.5).plan(0).participants))
    assert rows == [(drawn, [[float(i), 1.0] for i in drawn], 4, 0)]
    assert got == [[float(sum(drawn)), 2.0]] * 4


def test_random_numbers_have_an_address(make_federation):
    drawn = {}

    def draw(self, one):
        drawn.setdefault((one.client, one.number), []).append(one.generator("noise").normal())

    for _ in range(2):
        run(make_federation, mistake(after_training=draw))
    assert all(first == again for first, again in drawn.values())
    assert len({first for first, _ in drawn.values()}) == len(drawn) == 6


@dataclass(frozen=True)
class Sized(firma.Algorithm):
    """Knows the model's size from `fitted`, and keeps as many numbers."""

    size: int = 0

    def fitted(self, model):
        return replace(self, size=model.layout().size)

    def memory(self, model, shared):
        return {"mine": torch.zeros(self.size)}

    def after_training(self, one):
        one.memory["mine"] = one.parameters


def test_an_algorithm_is_fitted_to_the_model_and_stays_the_same_run(make_federation):
    federation = make_federation(replace(METHODS["fedavg"], name="mine", algorithm=Sized()), 3, rounds=2)
    assert torch.equal(finish(federation)[0], finish(make_federation("fedavg", 3, rounds=2, backend="autograd"))[0])
    assert "Sized(size=0)" in federation.method.algorithm.identity


def test_a_step_knows_where_it_is(make_federation):
    steps = []

    def local_step(self, step):
        steps.append((step.client, step.number, step.index, float(step.generator("x").normal())))
        step.update(step.gradient(rows=slice(0, 4)))

    run(make_federation, mistake(local_step=local_step), epochs=1)
    assert sorted(each[:3] for each in steps) == [
        (client, number, index)
        for client, count in enumerate((3, 4, 2))
        for number in range(2)
        for index in range(count)
    ]
    assert len({each[3] for each in steps}) == len(steps)


def test_features_are_those_of_the_extractor_and_change_nothing(make_federation):
    federation = make_federation("fedavg", 1, rounds=1, epochs=1, batch=64)
    model = with_norms(federation)
    seen = []

    def local_step(self, step):
        nowhere = torch.zeros_like(step.parameters)
        seen.append((step.features(), step.features(at=nowhere), step.outputs(), step.outputs(at=nowhere)))
        step.update(step.gradient(loss=step.loss))

    mine = replace(METHODS["fedavg"], name="mine", algorithm=mistake(local_step=local_step))
    ours = replace(federation, method=mine, models=[model])
    plain = Simulation(replace(federation, models=[model], backend="autograd"))
    simulation = Simulation(ours)
    list(simulation.rounds())
    list(plain.rounds())
    assert torch.equal(simulation.parameters, plain.parameters)
    assert all(torch.equal(simulation.buffers[0][name], kept) for name, kept in plain.buffers[0].items())
    shuffled = generator(federation.seed, "batches", 0, 0).permutation(len(federation.data[0].labels))
    with torch.no_grad():
        features = model.copy().extractor.eval()(federation.data[0].inputs[torch.from_numpy(shuffled)])
        torch.testing.assert_close(seen[0][0], features)
        torch.testing.assert_close(seen[0][2], model.copy().head(features))
    assert not seen[0][1].any()
    assert not seen[0][3].any()


def test_penalties_and_losses_are_part_of_the_gradient(make_federation):
    found = []

    def local_step(self, step):
        plain, twice = step.gradient(), step.gradient(loss=lambda outputs, targets: 2 * step.loss(outputs, targets))
        torch.testing.assert_close(twice, 2 * plain)
        pull = step.gradient(penalty=lambda features: features.square().sum()) - plain
        alone = step.gradient(
            penalty=lambda features: features.square().sum(), loss=lambda outputs, targets: 0 * outputs.sum()
        )
        torch.testing.assert_close(pull, alone, rtol=1e-3, atol=1e-4)
        found.append(float(pull.abs().max()))
        step.update(plain)

    run(make_federation, mistake(local_step=local_step), epochs=1)
    assert min(found) > 0.1


@pytest.mark.parametrize("wire", ["bfloat16", "int8"])
@pytest.mark.parametrize("row", [SCAFFOLD, "fedavg:algorithm=fedavgm:FedAvgM"])
def test_messages_may_be_rounded(recipes, make_federation, row, wire):
    federation = make_federation(row, 3)
    rounded, exact = finish(replace(federation, wire=wire)), finish(federation)
    assert rounded[1][0][1] < exact[1][0][1]
    torch.testing.assert_close(rounded[0], exact[0], rtol=0.05, atol=0.05)
    assert not torch.equal(rounded[0], exact[0])


def test_a_personal_model_of_ones_own_is_what_is_tested(make_federation):
    def keep(self, one):
        one.memory["personal"] = one.parameters * 0

    mine = mistake(memory=lambda self, model, shared: {"personal": model}, after_training=keep)
    assert not run(make_federation, mine)[0].any()


def test_a_class_of_a_notebook_is_known_by_what_it_computes():
    def typed(text):
        names = {"firma": firma, "__name__": "__main__"}
        exec(f"class Mine(firma.Algorithm):\n def after_training(self, one):\n  {text}", names)
        return names["Mine"]().identity

    assert typed("one.parameters.mul_(2.0)") == typed("one.parameters.mul_(2.0)")
    assert typed("one.parameters.mul_(2.0)") != typed("one.parameters.mul_(3.0)")
    assert typed("one.parameters.mul_(2.0)") != typed("one.parameters.add_(2.0)")


def test_algorithms_of_the_package_are_known_without_their_code():
    from firma.algorithms.scaffold import Scaffold

    assert Scaffold().identity == "firma.algorithms.scaffold:Scaffold()"
