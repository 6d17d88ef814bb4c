"""The store: lean files, small files while a command runs, version 0.1's folders, and nothing ever lost."""

import hashlib
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from firma.errors import BadInput
from firma.paper.grid import Choice, cells
from firma.sweep.cells import Cell
from firma.sweep.runner import run_cells, simulate
from firma.sweep.store import copy_between_presets, fold, missing, parse, read_cells, writing

EVIDENCE = Path(__file__).parents[2] / "evidence"
CHOICE = Choice(
    datasets=["digits"], scenarios=["iid"], methods=["fedavg", "local"], presets=["paper"], seeds=2, rounds=1
)


def run(folder, wanted, execute=simulate):
    with writing(folder):
        return list(run_cells(wanted, folder, lambda _: None, lambda *_: None, execute))


def lines(folder):
    return {path.name: path.read_text().splitlines() for path in folder.glob("*-*.jsonl")}


def test_every_cell_of_version_0_1_is_there_with_its_content():
    """987 cells of version 0.1's evidence folder, and 18 that were run with that version elsewhere.

    Those of label skew by the budget of the paper's text, 70, those of FibFL and FibFL+ with the retention of the text,
    and those of the recommended preset with a constant learning rate are in folders of their own.
    """
    folders = [EVIDENCE / each for each in (".", "sequential", "half-retention", "constant-rate")]
    texts = sorted(line for folder in folders for each in lines(folder).values() for line in each)
    of_0_1 = [text for text in texts if json.loads(text)["config"]["versions"]["firma"] == "0.1.0"]
    assert len(of_0_1) == 1005
    assert (
        hashlib.sha256("\n".join(of_0_1).encode()).hexdigest()
        == "244e8e98b4e285cbc195c92a94e566d9d4bcd980a0825ba898f78718206d745b"
    )


def test_a_file_per_data_set_and_preset_sorted_and_the_same_whatever_the_order(tmp_path):
    wanted = cells(CHOICE)
    run(tmp_path / "one", wanted)
    found = lines(tmp_path / "one")
    assert list(found) == ["digits-paper.jsonl"]
    names = [(json.loads(line)["method"], json.loads(line)["seed"]) for line in found["digits-paper.jsonl"]]
    assert names == [("fedavg", 0), ("fedavg", 1), ("local", 0), ("local", 1)]
    assert not (tmp_path / "one" / "cells").exists()
    by_key = {cell.key: cell for cell in read_cells(tmp_path / "one")}

    def again(cell, _):
        from firma.sweep.cells import key

        return by_key[key(cell)].result, by_key[key(cell)].ring

    run(tmp_path / "two", wanted[3:], again)
    run(tmp_path / "two", wanted[2::-1], again)
    assert lines(tmp_path / "two") == found


def test_a_folder_of_version_0_1_is_read_and_folded(tmp_path):
    texts = lines(EVIDENCE)["mnist-paper.jsonl"] + lines(EVIDENCE)["mnist-published.jsonl"]
    (tmp_path / "cells").mkdir()
    for text in texts:
        (tmp_path / "cells" / f"{json.loads(text)['key']}.json").write_text(text + "\n")
    before = {cell.key: cell.result.as_dict() for cell in read_cells(tmp_path)}
    assert len(before) == len(texts)
    with writing(tmp_path):
        pass
    assert {cell.key: cell.result.as_dict() for cell in read_cells(tmp_path)} == before
    for name in ("mnist-paper.jsonl", "mnist-published.jsonl"):
        assert (tmp_path / name).read_bytes() == (EVIDENCE / name).read_bytes()
    assert not (tmp_path / "cells").exists()


def test_a_crash_between_writing_and_removing_leaves_no_cell_twice(tmp_path):
    shutil.copy(EVIDENCE / "mnist-paper.jsonl", tmp_path)
    text = lines(tmp_path)["mnist-paper.jsonl"][0]
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / f"{json.loads(text)['key']}.json").write_text(text)
    assert len(read_cells(tmp_path)) == 3
    fold(tmp_path)
    assert (tmp_path / "mnist-paper.jsonl").read_bytes() == (EVIDENCE / "mnist-paper.jsonl").read_bytes()


FOLDING = """
import sys
from pathlib import Path
from firma.sweep.store import fold, parse
folder = Path(sys.argv[1])
for number, line in enumerate(Path(sys.argv[2]).read_text().splitlines()):
    (folder / "cells").mkdir(exist_ok=True)
    (folder / "cells" / "draft").write_text(line)
    (folder / "cells" / "draft").rename(folder / "cells" / f"{parse(line).key}.json")
    print(parse(line).key, flush=True)
    if number % 3 == 2:
        fold(folder)
"""


@pytest.mark.parametrize("count", [50, 101])
def test_kill_9_while_files_are_folded_loses_nothing(tmp_path, count):
    command = [sys.executable, "-c", FOLDING, str(tmp_path), str(EVIDENCE / "digits-recommended.jsonl")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        saved = [process.stdout.readline().strip() for _ in range(count)]
        process.kill()
        saved += process.stdout.read().split()
    assert process.returncode == -signal.SIGKILL
    assert set(saved) <= {cell.key for cell in read_cells(tmp_path)}
    with writing(tmp_path):
        pass
    assert set(saved) <= {json.loads(line)["key"] for line in lines(tmp_path)["digits-recommended.jsonl"]}


def test_damaged_cells_are_run_again_and_drafts_removed(tmp_path):
    wanted = cells(CHOICE)
    run(tmp_path, wanted)
    assert missing(wanted, tmp_path) == []
    path = tmp_path / "digits-paper.jsonl"
    first, *others = path.read_text().splitlines()
    path.write_text("\n".join([first[: len(first) // 2], *others]) + "\n")
    assert len(missing(wanted, tmp_path)) == 1
    assert len(read_cells(tmp_path)) == 3
    (tmp_path / "cells").mkdir()
    drafts = [tmp_path / ".digits-paper.jsonl.draft", tmp_path / "cells" / ".abc.paper.json.xyz"]
    torn = tmp_path / "cells" / "abc.json"
    for draft in (*drafts, torn):
        draft.write_text('{"key": ')
    run(tmp_path, missing(wanted, tmp_path))
    assert not any(draft.exists() for draft in (*drafts, torn))
    assert len(lines(tmp_path)["digits-paper.jsonl"]) == 4
    assert missing(wanted, tmp_path) == []


def test_a_changed_configuration_is_noticed():
    document = json.loads(lines(EVIDENCE)["mnist-paper.jsonl"][0])
    assert parse(json.dumps(document)) is not None
    document["configuration"]["seed"] += 1
    assert parse(json.dumps(document)) is None


def test_cells_of_another_version_are_ignored_and_kept(tmp_path):
    document = json.loads(lines(EVIDENCE)["mnist-paper.jsonl"][0]) | {"figures": 99, "key": "of version 99"}
    (tmp_path / "mnist-paper.jsonl").write_text(json.dumps(document) + "\n")
    (tmp_path / "cells").mkdir()
    text = lines(EVIDENCE)["mnist-paper.jsonl"][1]
    (tmp_path / "cells" / "new.json").write_text(text)
    assert len(read_cells(tmp_path)) == 1
    fold(tmp_path)
    assert {json.loads(line)["key"] for line in lines(tmp_path)["mnist-paper.jsonl"]} == {
        "of version 99",
        json.loads(text)["key"],
    }


def test_one_process_per_folder(tmp_path):
    with writing(tmp_path), pytest.raises(BadInput, match="in use by another"), writing(tmp_path):
        pass


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(BadInput, match="contains no results"):
        read_cells(tmp_path)


def test_the_same_numbers_under_two_presets_are_run_once_and_shown_under_both(tmp_path):
    ours = Cell("digits", "iid", "local", "paper", 0, 5, 1, {"epochs": 10})
    theirs = Cell("digits", "iid", "local", "recommended", 0, 5, 1)
    run(tmp_path, [ours])
    assert missing([ours, theirs], tmp_path) == [theirs]
    with writing(tmp_path):
        assert copy_between_presets([ours, theirs], tmp_path) == 1
        assert copy_between_presets([ours, theirs], tmp_path) == 0
    assert missing([ours, theirs], tmp_path) == []
    one, other = read_cells(tmp_path)
    assert {one.preset, other.preset} == {"paper", "recommended"}
    assert one.key == other.key
    assert one.result.history.tolist() == other.result.history.tolist()
    assert sorted(lines(tmp_path)) == ["digits-paper.jsonl", "digits-recommended.jsonl"]


def test_another_engine_is_another_function(tmp_path):
    wanted = cells(CHOICE)[:2]
    calls = []

    def engine(cell, on_round):
        calls.append(cell.name)
        return simulate(cell, on_round)

    assert len(run(tmp_path, wanted, engine)) == 2
    assert calls == [cell.name for cell in wanted]
