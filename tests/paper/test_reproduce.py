"""firma reproduce: resumable at any moment, never twice, never a torn file."""

import json
import signal
import subprocess
import sys

import pytest

from firma.paper.grid import Choice, cells
from firma.sweep.runner import cost, parameter_counts
from firma.sweep.store import read_cells
from tests.processes import running, wait_until

SMALL = ["--dataset", "digits", "--scenario", "iid", "--seeds", "1", "--rounds", "1", "--set", "extractor_epochs=1"]


@pytest.fixture
def reproduce(command):
    return lambda *words: command("reproduce", *words)


def lines(folder):
    return [line for path in sorted(folder.glob("digits-*.jsonl")) for line in path.read_text().splitlines()]


def test_every_cell_is_a_line_and_is_run_once(reproduce, tmp_path):
    words = [*SMALL, "--method", "fedavg", "--method", "local", "--out", str(tmp_path)]
    code, out, err = reproduce(*words)
    assert code == 0
    assert "4 cells run" in out
    assert "4/4" in err
    files = sorted(tmp_path.glob("digits-*.jsonl"))
    assert [path.name for path in files] == ["digits-paper.jsonl", "digits-published.jsonl"]
    assert len(lines(tmp_path)) == 4
    document = json.loads(lines(tmp_path)[0])
    assert {"key", "figures", "configuration", "ring", "history", "metrics", "config"} <= set(document)
    times = [path.stat().st_mtime_ns for path in files]
    _, out, _ = reproduce(*words)
    assert "0 cells run, 4 already existed" in out
    assert [path.stat().st_mtime_ns for path in files] == times


def test_a_cell_is_what_firma_run_gives(reproduce, tmp_path):
    import firma

    reproduce(*SMALL, "--method", "fedavg", "--preset", "paper", "--out", str(tmp_path))
    (stored,) = read_cells(tmp_path)
    result = firma.run("digits", "iid", "fedavg", rounds=1, preset="paper", settings={"extractor_epochs": 1})
    assert stored.result.history.tolist() == result.history.tolist()


def test_dry_run_lists_and_writes_nothing(reproduce, tmp_path):
    _, out, _ = reproduce(*SMALL, "--dry-run", "--out", str(tmp_path / "none"))
    assert len(out.splitlines()) == 14
    assert not (tmp_path / "none").exists()


def reproducing(folder, *words):
    command = [sys.executable, "-m", "firma", "reproduce", *SMALL, "--out", str(folder), *words]
    return running(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for_cells(folder, count):
    wait_until(lambda: len(list((folder / "cells").glob("*.json"))) >= count, 120, f"{count} cells are written")


def test_kill_9_in_the_middle_and_the_same_command_goes_on(start, tmp_path):
    process = start(reproducing(tmp_path, "--rounds", "3"))
    wait_for_cells(tmp_path, 2)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    before = {path.read_text().strip() for path in (tmp_path / "cells").glob("*.json")}
    assert 2 <= len(before) < 14
    assert len(read_cells(tmp_path)) == len(before)
    process = start(reproducing(tmp_path, "--rounds", "3"))
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert f"{14 - len(before)} cells run, {len(before)} already existed" in out
    assert len(lines(tmp_path)) == 14
    assert before <= set(lines(tmp_path))
    assert not (tmp_path / "cells").exists()


def test_ctrl_c_keeps_what_is_done_and_says_so(start, tmp_path):
    process = start(reproducing(tmp_path, "--rounds", "3"))
    wait_for_cells(tmp_path, 1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run the same command again to continue" in err
    assert "Traceback" not in err
    assert lines(tmp_path)
    assert len(read_cells(tmp_path)) == len(lines(tmp_path))


def test_cost_grows_with_what_is_trained():
    small, large = (next(c for c in cells(Choice(only=f"{d}/iid/fedavg/paper/0"))) for d in ("digits", "cifar10"))
    assert 100 * cost(small) < cost(large)
    assert parameter_counts("digits") == (116_352, 1_290)
