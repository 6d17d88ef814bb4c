"""firma sweep and firma report on anybody's study: resumable, failures and all, with nothing of the paper in it."""

import json
import re
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import firma
from firma.sweep.grid import expand
from firma.sweep.runner import sweep_cells, sweep_execute
from firma.sweep.store import read_cells, read_failures, writing
from tests.processes import running, wait_until

SMALL = """
clients = 2
rounds = 2
scenario = "iid"
method = ["local", "fedavg"]
seeds = 2
set = {epochs = 1}
"""


@pytest.fixture
def sweep(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(text, *words):
        (tmp_path / "grid.toml").write_text(text)
        return command("sweep", "grid.toml", *words)

    return call


def own_data(path, labels=3):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 5)).astype(np.float32)
    np.savez(path, x=x, y=x[:, :labels].argmax(1))
    return path.name


def test_a_sweep_runs_what_firma_run_runs_and_each_once(sweep, tmp_path):
    code, out, err = sweep(SMALL)
    assert code == 0
    assert "4 runs finished, 0 already existed; results are in results/grid. Next: firma report results/grid" in out
    assert re.search(r"2/4 method=fedavg seed=0  0\.\d+ in [\d.]+ s, about [\d.]+ \w+ left", err)
    cells = {(cell.result.method, cell.result.seed): cell.result for cell in read_cells(tmp_path / "results" / "grid")}
    for (method, seed), stored in cells.items():
        again = firma.run("digits", "iid", method, clients=2, rounds=2, seed=seed, settings={"epochs": 1})
        assert stored.history.tolist() == again.history.tolist()
        assert (stored.sent_bytes, stored.messages) == (again.sent_bytes, again.messages)
    assert (tmp_path / "results" / "grid" / "sweep.toml").read_text() == SMALL
    _, out, err = sweep(SMALL)
    assert "0 runs finished, 4 already existed" in out
    code, out, _ = sweep(SMALL, "--seeds", "3", "--json")
    assert [each["status"] for each in json.loads(out)["runs"]] == ["existed"] * 4 + ["run"] * 2
    assert len(firma.load_results("results/grid")) == 6


def test_a_dry_run_lists_and_counts_and_writes_nothing(sweep, tmp_path):
    code, out, _ = sweep(SMALL, "--dry-run")
    assert code == 0
    assert out.splitlines() == [
        "method=local seed=0", "method=fedavg seed=0", "method=local seed=1", "method=fedavg seed=1", "4 runs to do",
    ]  # fmt: skip
    assert not (tmp_path / "results").exists()
    _, out, _ = sweep(SMALL, "--dry-run", "--only", "seed=1", "--json")
    assert json.loads(out) == {"missing": ["method=local seed=1", "method=fedavg seed=1"], "runs": 2}
    sweep(SMALL, "--only", "method=local seed=0", "--rounds", "1")
    _, out, _ = sweep(SMALL, "--dry-run", "--rounds", "1")
    assert out.splitlines()[-1] == "3 runs to do, 1 of 4 already exist"


@pytest.mark.filterwarnings("default:.*training diverged:UserWarning")
def test_a_failure_is_recorded_and_the_others_go_on(sweep, command, tmp_path):
    own_data(tmp_path / "mine.npz")
    text = """
    dataset = "mine.npz"
    rounds = 1
    set = {extractor_epochs = 1, epochs = 1}
    [[grid]]
    clients = [500, 2]              # more clients than samples
    method = "local"
    scenario = "iid"
    [[grid]]
    clients = 2
    method = "fibfl"
    set = {rate = [1e30, 0.001]}    # the first diverges
    scenario = "iid"
    """
    code, out, err = sweep(text, "--out", "here")
    assert code == 1
    assert "2 runs finished, 0 already existed, 2 failed (run the same command again to retry)" in out
    assert "clients = 500: must be between 1 and 96" in err
    assert "training diverged: the loss of client 0 and 1 others is not a finite number after round 1" in err
    assert "Traceback" not in err
    assert len(read_cells(tmp_path / "here")) == 2
    assert [each.name.split()[0] for each in read_failures(tmp_path / "here")] == ["method=local", "method=fibfl"]
    code, out, _ = command("report", "here", "--print", "text", "--table", "failed")
    assert "clients = 500" in out
    code, _, _ = sweep(text.replace("1e30", "0.002"), "--out", "here")  # one is mended
    assert code == 1
    assert len(read_failures(tmp_path / "here")) == 2  # the diverged one is no longer part of the grid
    code, out, _ = sweep(text.replace("500, ", "").replace("1e30, ", ""), "--out", "here")
    assert code == 0
    code, out, _ = sweep(text, "--out", "here", "--json")
    assert code == 1
    assert [each["status"] for each in json.loads(out)["runs"]].count("failed") == 2


def test_an_error_in_the_users_code_does_not_end_the_sweep_and_is_kept(tmp_path):
    cells = expand({"method": ["local", "fedavg"], "clients": 2, "rounds": 1}, {}).cells

    def broken(cell, on_round):
        if cell.method == "local":
            raise RuntimeError("mat1 and mat2 [2x3] cannot be multiplied")
        return sweep_execute({})(cell, on_round)

    def run(execute):
        with writing(tmp_path):
            return list(sweep_cells(cells, tmp_path, lambda _: None, lambda *_: None, execute))

    first, second = run(broken)
    assert first.error == "RuntimeError: mat1 and mat2 [2x3] cannot be multiplied"
    assert second.result.method == "fedavg"
    (kept,) = read_failures(tmp_path)
    assert (kept.name, kept.error, "in broken" in kept.details) == (cells[0].name, first.error, True)
    run(sweep_execute({}))
    assert not (tmp_path / "failures.json").exists()


def test_results_that_are_not_finite_are_a_divergence(tmp_path):
    cells = expand({"method": "local", "clients": 2, "rounds": 2}, {}).cells
    result, ring = sweep_execute({})(cells[0], None)
    broken = np.array([[0.5, 0.5], [0.5, np.nan]])
    for changed, says in (
        (replace(result, history=broken), "the test results of round 2 are not finite"),
        (replace(result, curves={"loss": broken}), "the loss of client 1 is not a finite number after round 2"),
        (replace(result, parameters=result.parameters / 0), "parameters of the trained models are not finite"),
        (replace(result, seconds=float("inf")), "training diverged: a value is not a finite number"),
    ):
        with writing(tmp_path):
            (failed,) = sweep_cells(
                cells, tmp_path, lambda _: None, lambda *_: None, lambda *_, run=changed: (run, ring)
            )
        assert says in failed.error
        assert read_failures(tmp_path)[0].error == failed.error
    assert read_cells(tmp_path) == []


def test_mistakes_and_missing_files_are_one_sentence(sweep, command):
    for text, words in (("metod = 1", ()), (SMALL, ("--only", "nothing")), (SMALL, ("--engine", "spark")),
                        (SMALL, ("--address", "here:1")), ('dataset = "cifar9"', ())):  # fmt: skip
        code, out, err = sweep(text, *words)
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
    assert command("sweep", "none.toml")[2].count("\n") == 1


def test_ctrl_c_keeps_what_is_done_and_the_same_command_continues(start, command, tmp_path):
    text = SMALL.replace("seeds = 2", "seeds = 40")
    (tmp_path / "grid.toml").write_text(text)
    words = [sys.executable, "-m", "firma", "sweep", tmp_path / "grid.toml", "--out", tmp_path / "out"]
    process = start(running(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    wait_until(lambda: len(list((tmp_path / "out" / "cells").glob("*.json"))) >= 2, 120, "two runs are written")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run the same command again to continue" in err
    assert "Traceback" not in err
    done = len(read_cells(tmp_path / "out"))
    assert 2 <= done < 80
    _, out, _ = command("sweep", tmp_path / "grid.toml", "--out", tmp_path / "out", "--dry-run")
    assert f"{80 - done} runs to do, {done} of 80 already exist" in out


@pytest.mark.filterwarnings("ignore:.*accuracy flatters")  # as an error it would leave a run of noise out
def test_a_report_of_a_sweep_has_all_parts_and_nothing_of_the_paper(sweep, command, tmp_path):
    name = own_data(tmp_path / "mine.npz")
    code, *_ = sweep(f'dataset = ["digits", "{name}"]\n' + SMALL.replace('"iid"', '["iid", "dir-0.5"]'))
    assert code == 0
    code, out, err = command("report", "results/grid")
    assert (code, err) == (0, "")
    assert re.search(r"(local +fedavg|fedavg +local) +4 +2 ", out)  # four cases, two seeds
    page = (tmp_path / "results" / "grid" / "report.html").read_text()
    for part in ("Overview", "The answer", "Who wins where", "Comparisons", "A against B", "Runs", "How it was run",
                 "accuracy of the worst client in %", "megabytes per round", "in all 4 places", "nothing is missing",
                 f"firma run --dataset {name} --scenario iid --method local"):  # fmt: skip
        assert part in page, part
    for word in ("paper", "claims", "2-opt saves", "reproduc", "published"):
        assert word not in page.lower(), word
    assert {path.stem for path in (tmp_path / "results/grid/figures").iterdir()} == {"curves", "clients", "traffic"}
    assert len(page) < 400_000
    _, out, _ = command("report", "results/grid", "--json", "--metric", "worst_client", "--against", "local")
    document = json.loads(out)
    assert document["varies"] == ["method", "dataset", "scenario"]
    assert len(document["groups"]) == 8
    (found,) = document["comparisons"]
    assert (found["a"], found["b"], found["metric"], found["cases"]) == ("fedavg", "local", "worst_client", 4)
    results = firma.load_results("results/grid")
    ours = firma.better(
        *([run for run in results if run.method == name] for name in ("fedavg", "local")), "worst_client"
    )
    assert found["difference"] == pytest.approx(ours.difference)
    assert found["p_value"] == pytest.approx(ours.p_value)
    assert len(document["comparisons_by_case"]) == 4
    for form in ("text", "csv", "markdown", "latex"):
        code, out, _ = command("report", "results/grid", "--print", form, "--table", "results")
        assert (code, "mean" in out) == (0, True)
    for option, name in (("--markdown", "report.md"), ("--evidence", "means.csv")):
        assert command("report", "results/grid", option, name)[0] == 0
        assert "fedavg" in (tmp_path / name).read_text()


def test_settings_are_compared_where_they_are_what_varies(sweep, command):
    sweep('clients = 2\nrounds = 1\nscenario = "iid"\nmethod = "local"\nseeds = 2\nset = {epochs = [1, 3]}')
    _, out, _ = command("report", "results/grid", "--json")
    (found,) = json.loads(out)["comparisons"]
    assert {found["a"], found["b"]} == {"epochs=1", "epochs=3"}
    _, out, _ = command(
        "report", "results/grid", "--by", "epochs", "--against", "1", "--print", "csv", "--table", "comp"
    )
    assert out.splitlines()[1].startswith("epochs=3,epochs=1,1,2,")
    code, _, err = command("report", "results/grid", "--by", "epoch")
    assert (code, err) == (2, "firma: option 'epoch' is unknown (did you mean 'epochs'?); choose from epochs\n")


FAILS = """
import firma

class Fails(firma.Algorithm):
    def after_training(self, one):
        raise ZeroDivisionError("division by zero")
"""


def test_a_line_of_progress_is_one_line_and_quiet_sweeps_have_none(sweep, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "failing_algorithm.py").write_text(FAILS)
    text = SMALL.replace('"fedavg"', '"fedavg:algorithm=failing_algorithm:Fails"').replace("seeds = 2", "seeds = 1")
    code, _, err = sweep(text.replace('["local", ', "[").replace("]", ', "local"]'))
    assert code == 1
    (line,) = [each for each in err.splitlines() if "FAILED" in each]
    assert re.search(r"FAILED: .*ZeroDivisionError.* …, about .* left$", line)
    code, _, err = sweep(SMALL, "-q", "--out", "quiet")
    assert (code, err) == (0, "")


def test_orders_bandwidths_and_backends_are_axes(sweep, command, tmp_path):
    for name, fast in (("ring.csv", (0, 1)), ("cross.csv", (0, 2))):
        speeds = np.full((4, 4), 10.0)
        speeds[fast] = speeds[fast[::-1]] = 100.0
        speeds[0, 3 - fast[1]] = speeds[3 - fast[1], 0] = 1.0
        np.savetxt(tmp_path / name, speeds, delimiter=",")
    code, out, _ = sweep("""
        clients = 4
        rounds = 1
        seeds = 2
        scenario = "iid"
        set = {epochs = 1}
        [[grid]]
        method = "rdfl"
        order = ["0,1,2,3", "0,2,1,3"]
        [[grid]]
        method = "rdfl"
        backend = "autograd"
        [[grid]]
        method = "rdfl:order=bandwidth"
        bandwidth = ["ring.csv", "cross.csv"]
        """)
    assert (code, "10 runs finished" in out) == (0, True)
    _, out, err = command("report", "results/grid", "--json")
    assert "repeated" not in out + err
    document = json.loads(out)
    assert document["varies"] == ["method", "backend", "bandwidth", "order"]
    assert [group["seeds"] for group in document["groups"]] == [[0, 1]] * 5
    results = firma.load_results("results/grid")
    assert {run.config.get("order") for run in results if run.method == "rdfl"} == {None, "0,1,2,3", "0,2,1,3"}
    assert {run.config.get("bandwidth") for run in results} == {None, "ring.csv", "cross.csv"}
    with pytest.raises(firma.BadInput, match=r"differ in backend \(auto, autograd\)"):
        firma.compare(run for run in results if run.method == "rdfl")


def test_two_orders_of_firma_run_are_two_rows_of_a_report(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["run", "--clients", "4", "--rounds", "1", "--set", "epochs=1", "--method", "rdfl", "--scenario", "iid"]
    for order in ("0,1,2,3", "0,2,1,3"):
        command(*words, "--order", order, "--out", order)
    _, out, _ = command("report", "0,1,2,3", "0,2,1,3", "--json")
    assert [group["options"]["order"] for group in json.loads(out)["groups"]] == ["0,1,2,3", "0,2,1,3"]


def test_folders_of_firma_run_are_reported_alone_and_together(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--clients", "2", "--rounds", "2", "--set", "epochs=1", "--scenario", "iid", "--seeds", "2"]
    command("run", *words, "--method", "local", "--method", "fedavg", "--out", "one")
    command("run", *words, "--method", "rdfl", "--out", "two")
    code, out, err = command("report", "one", "--print", "text")
    assert (code, err) == (0, "")
    assert re.search(r"(local +fedavg|fedavg +local) +1 +2 ", out)
    assert "firma run --dataset digits --scenario iid --clients 2 --rounds 2 --preset recommended" in out
    code, _, err = command("report", "one", "two")
    assert (code, err) == (2, "firma: several folders: --out names the HTML page to write, such as --out report.html\n")
    assert command("report", "one", "two", "--out", "both.html")[0] == 0
    _, out, _ = command("report", "one", "two", "one", "--json")
    document = json.loads(out)
    assert [group["options"]["method"] for group in document["groups"]] == ["local", "fedavg", "rdfl"]
    assert [group["seeds"] for group in document["groups"]] == [[0, 1]] * 3  # folder one is there twice
    firma.run("digits", "iid", "local", clients=2, rounds=1, settings={"epochs": 1}).save("kept")
    _, out, _ = command("report", "kept", "--json")
    assert json.loads(out)["varies"] == []
    code, _, err = command("report", ".")
    assert (code, err) == (2, "firma: results folder '.' contains no results; pass kept one two\n")
    code, _, err = command("report", "nowhere")
    assert "does not exist" in err
    (tmp_path / "one" / "results.json").write_text("{}")
    assert "not a file of firma run --out" in command("report", "one")[2]


PARTS = """
def pinball_loss(outputs, targets):
    return (outputs - targets).abs().mean()

def bias(outputs, targets):
    return (outputs - targets).mean()
"""


def test_tasks_are_swept_and_reported_one_at_a_time(sweep, command, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 4)).astype(np.float32)
    np.savez(tmp_path / "price.npz", x=x, y=(x @ [1.0, 2.0, 0.0, 0.0]).astype(np.float32))
    (tmp_path / "own_parts.py").write_text(PARTS)
    code, out, _ = sweep("""
        clients = 2
        rounds = 2
        seeds = 2
        scenario = "iid"
        method = ["local", "fedavg"]
        set = {epochs = 1}
        metric = ["own_parts:bias", "own_parts:pinball_loss"]
        [[grid]]
        dataset = "digits"
        metric = []
        [[grid]]
        dataset = "price.npz"
        task = "regression"
        loss = "own_parts:pinball_loss"
        """)  # fmt: skip
    assert (code, "8 runs finished" in out) == (0, True)
    code, _, err = command("report", "results/grid")
    assert code == 2
    assert "several tasks, with the main metrics mean_accuracy and mean_r2" in err
    _, out, _ = command("report", "results/grid", "--json", "--metric", "mean_r2")
    document = json.loads(out)
    assert {group["options"]["dataset"] for group in document["groups"]} == {"price.npz"}
    assert {"mean_r2", "mean_mae", "mean_bias", "mean_pinball_loss"} <= set(document["groups"][0]["metrics"])
    _, out, _ = command("report", "results/grid", "--print", "text", "--table", "cells", "--metric", "mean_r2")
    assert "--loss own_parts:pinball_loss --metric own_parts:bias --metric own_parts:pinball_loss" in out
    (stored, *_) = [cell for cell in read_cells(tmp_path / "results" / "grid") if cell.dataset == "price.npz"]
    assert "own_parts.py" in stored.inputs["code"]


def test_new_data_under_an_old_name_are_new_runs_beside_the_old(sweep, command, tmp_path):
    text = 'dataset = "mine.npz"\n' + SMALL
    own_data(tmp_path / "mine.npz")
    sweep(text)
    own_data(tmp_path / "mine.npz", labels=2)
    _, out, _ = sweep(text)
    assert "4 runs finished, 0 already existed" in out
    _, out, _ = command("report", "results/grid", "--json")
    document = json.loads(out)
    assert document["varies"] == ["method", "data"]
    assert len(document["groups"]) == 4


def test_help_teaches_with_an_example(command):
    _, out, _ = command("sweep", "--help")
    assert "[[grid]]" in out
    assert "firma sweep grid.toml" in out
