"""firma reproduce: resumable at any moment, never twice, never a torn file."""

import json
import signal
import subprocess
import sys

import pytest

from firma.errors import BadInput
from firma.study.grid import Choice, cells
from firma.study.runner import pending, run_cells, sizes, work
from firma.study.store import at_work, cell_path, read, read_all
from tests.processes import running, wait_until

SMALL = ["--dataset", "digits", "--scenario", "iid", "--seeds", "1", "--rounds", "1", "--set", "extractor_epochs=1"]
CHOICE = Choice(datasets=["digits"], scenarios=["iid"], seeds=1, rounds=1, settings={"extractor_epochs": "1"})


@pytest.fixture
def reproduce(command):
    return lambda *words: command("reproduce", *words)


def test_every_cell_is_a_whole_file_and_is_run_once(reproduce, tmp_path):
    words = [*SMALL, "--method", "fedavg", "--method", "local", "--out", str(tmp_path)]
    code, out, err = reproduce(*words)
    assert code == 0
    assert "4 cells run" in out
    assert "4/4" in err
    files = sorted((tmp_path / "cells").iterdir())
    assert len(files) == 4
    document = json.loads(files[0].read_text())
    assert {"key", "figures", "configuration", "ring", "history", "metrics", "config"} <= set(document)
    times = [path.stat().st_mtime_ns for path in files]
    _, out, _ = reproduce(*words)
    assert "0 cells run, 4 were there already" in out
    assert [path.stat().st_mtime_ns for path in files] == times


def test_a_cell_is_what_firma_run_gives(reproduce, tmp_path):
    import firma

    reproduce(*SMALL, "--method", "fedavg", "--preset", "paper", "--out", str(tmp_path))
    (stored,) = read_all(tmp_path)
    result = firma.run("digits", "iid", "fedavg", rounds=1, preset="paper", settings={"extractor_epochs": 1})
    assert stored.result.history.tolist() == result.history.tolist()


def test_dry_run_lists_and_writes_nothing(reproduce, tmp_path):
    _, out, _ = reproduce(*SMALL, "--dry-run", "--out", str(tmp_path / "none"))
    assert len(out.splitlines()) == 14
    assert not (tmp_path / "none").exists()


def test_damaged_files_are_run_again_and_drafts_swept(tmp_path):
    (cell, *_) = cells(CHOICE)
    with at_work(tmp_path):
        list(run_cells([cell], tmp_path, lambda _: None, lambda *_: None))
    path = cell_path(tmp_path, cell)
    assert pending([cell], tmp_path) == []
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])
    assert read(path) is None
    assert pending([cell], tmp_path) == [cell]
    assert read_all(tmp_path) == []
    draft = path.with_name(f".{path.name}.abc")
    draft.write_text("half")
    with at_work(tmp_path):
        assert not draft.exists()


def test_another_engine_is_another_function(tmp_path):
    wanted = cells(CHOICE)[:2]
    calls = []

    def engine(cell, on_round):
        from firma.study.runner import simulate

        calls.append(cell.name)
        return simulate(cell, on_round)

    with at_work(tmp_path):
        assert len(list(run_cells(wanted, tmp_path, lambda _: None, lambda *_: None, engine))) == 2
    assert calls == [cell.name for cell in wanted]


def test_one_process_a_folder(tmp_path):
    with at_work(tmp_path), pytest.raises(BadInput, match="another"), at_work(tmp_path):
        pass


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
    before = {path.name: path.read_text() for path in (tmp_path / "cells").glob("*.json")}
    assert 2 <= len(before) < 14
    assert all(json.loads(text)["key"] for text in before.values())
    process = start(reproducing(tmp_path, "--rounds", "3"))
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert f"{14 - len(before)} cells run, {len(before)} were there already" in out
    after = {path.name: path.read_text() for path in (tmp_path / "cells").iterdir()}
    assert len(after) == 14
    assert before.items() <= after.items()


def test_ctrl_c_keeps_what_is_done_and_says_so(start, tmp_path):
    process = start(reproducing(tmp_path, "--rounds", "3"))
    wait_for_cells(tmp_path, 1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "goes on from there" in err
    assert "Traceback" not in err
    assert read_all(tmp_path)


def test_work_grows_with_what_is_trained():
    small, large = (next(c for c in cells(Choice(only=f"{d}/iid/fedavg/paper/0"))) for d in ("digits", "cifar10"))
    assert 100 * work(small) < work(large)
    assert sizes("digits") == (116_352, 1_290)
