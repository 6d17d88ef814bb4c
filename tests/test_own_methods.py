"""Methods of one's own in runs, sweeps and results: how they are named, resumed and told apart."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch

import firma
from firma.engines.checkpoint import RunCheckpoints, fingerprint
from firma.engines.simulation import Simulation
from firma.method_lookup import lookup
from firma.sweep.cells import key
from firma.sweep.grid import expand
from tests.own_methods import SCAFFOLD, finish


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


def test_what_a_hook_prints_is_not_part_of_the_document(empty_folder, command):
    (empty_folder / "talks.py").write_text(
        "import firma\n\nprint('imported')\n\n\nclass Talks(firma.Algorithm):\n"
        "    def after_training(self, one):\n        print('client', one.client)\n"
    )
    words = ["--dataset", "digits", "--clients", 2, "--rounds", 1, "--set", "local_steps=1"]
    method = ["--method", "fedavg:algorithm=talks:Talks"]
    code, out, said = command("run", *words, *method, "--json")
    assert (code, len(json.loads(out)["results"])) == (0, 1)
    assert "client 1" in said
    assert "client 1" in command("run", *words, *method)[1], "without --json it is on stdout, as printed"
    (empty_folder / "grid.toml").write_text(
        'dataset = "digits"\nclients = 2\nrounds = 1\nmethod = "fedavg:algorithm=talks:Talks"\n'
        "set = {local_steps = 1}\n"
    )
    sys.modules.pop("talks")
    code, out, _ = command("sweep", "grid.toml", "--json")
    assert (code, [each["status"] for each in json.loads(out)["runs"]]) == (0, ["run"])
    sys.modules.pop("talks")
    code, out, _ = command("topology", "--topology", "complete", "--clients", 3, *method, "--json")
    assert (code, json.loads(out)["clients"]) == (0, 3)


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
