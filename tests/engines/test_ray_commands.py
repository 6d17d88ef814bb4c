"""firma run and firma reproduce on a cluster: the same tables, messages and habits as without one."""

import json
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
import torch

import firma
from firma.live_log import LIVE_FILE
from firma.page.run_state import RunState
from firma.page.server import Cursor
from firma.sweep.store import read_cells
from firma.sweep.stored_events import stored_events
from tests.documents import blocks, write_file
from tests.own_models import modules_of, write_models
from tests.processes import running, wait_until

FAST = ["--dataset", "digits", "--scenario", "skew-1", "--rounds", "2", "--set", "extractor_epochs=1"]


@pytest.mark.parametrize("words", [["run"], ["reproduce", "--out", "nowhere"]])
def test_without_ray_it_says_what_to_install(command, monkeypatch, tmp_path, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    code, out, err = command(*words, "--engine", "ray")
    assert (code, out) == (2, "")
    assert err == "firma: engine = 'ray': requires Ray; install it with: pip install 'firma[ray]'\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "--engine", "ray", "--audit"], "cannot be combined with --audit"),
        (["run", "--engine", "ray", "--wire", "int8"], "exchanges float32"),
        (["run", "--address", "here:1"], "--address requires --engine ray"),
        (["run", "--engine", "spark"], "engine = 'spark'"),
        (["run", "--checkpoint", "x", "--recover", "0"], "--checkpoint requires --recover 1 or more"),
        (["run", "--checkpoint", "x", "--audit"], "cannot be resumed"),
        (["reproduce", "--address", "here:1"], "--address requires --engine ray"),
        (["reproduce", "--engine", "spark"], "engine = 'spark'"),
    ],
)
def test_what_does_not_go_together(command, monkeypatch, tmp_path, words, says):
    monkeypatch.chdir(tmp_path)
    code, _, err = command(*words)
    assert code == 2
    assert says in err
    assert "Traceback" not in err


def test_importing_the_commands_does_not_import_ray():
    script = (
        "import sys, firma.cli, firma.experiment, firma.sweep.runner; "
        "[firma.cli.command(name) for name in firma.cli.COMMANDS]; print('ray' in sys.modules)"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert output == "False\n"


def test_nobody_at_the_address_is_one_line_at_once(command):
    pytest.importorskip("ray")
    code, out, err = command("run", "--engine", "ray", "--address", "127.0.0.1:1")
    assert (code, out) == (2, "")
    assert err == "firma: address = '127.0.0.1:1': cannot connect (Connection refused); check the host and port\n"


def test_run_gives_the_simulations_figures(command, cluster):
    words = ["run", *FAST, "--method", "fedrep", "--method", "fibfl++", "--json"]
    _, ours, _ = command(*words, "--engine", "ray", "--workers", "2")
    _, theirs, _ = command(*words)
    for left, right in zip(json.loads(ours)["results"], json.loads(theirs)["results"], strict=True):
        assert left["history"] == right["history"]
        assert (left["bytes"], left["messages"], left["order"]) == (right["bytes"], right["messages"], right["order"])
        assert "on Ray" in left["backend"]


def test_reproduce_spreads_cells_and_writes_each_once(command, tmp_path, cluster):
    words = ["reproduce", "--dataset", "digits", "--scenario", "iid", "--method", "fedavg", "--method", "fibfl++"]
    words += ["--seeds", "1", "--rounds", "1", "--set", "extractor_epochs=1", "--out"]
    code, out, err = command(*words, str(tmp_path / "ray"), "--engine", "ray")
    assert code == 0
    assert "4 cells run" in out
    assert "4/4" in err
    files = sorted((tmp_path / "ray").glob("digits-*.jsonl"))
    assert [path.name for path in files] == ["digits-paper.jsonl", "digits-published.jsonl"]
    times = [path.stat().st_mtime_ns for path in files]
    _, out, _ = command(*words, str(tmp_path / "ray"), "--engine", "ray")
    assert "0 cells run, 4 already existed" in out
    assert [path.stat().st_mtime_ns for path in files] == times
    command(*words, str(tmp_path / "one"))
    ours, theirs = read_cells(tmp_path / "ray"), read_cells(tmp_path / "one")
    for left, right in zip(ours, theirs, strict=True):
        assert (left.key, left.result.history.tolist()) == (right.key, right.result.history.tolist())


MODEL = """
from torch import nn

class Features(nn.Sequential):
    pass

def build(width=4):
    return Features(nn.Linear(4, width), nn.Tanh()), nn.Linear(width, 3)
"""


def test_sweep_spreads_runs_and_goes_on_after_a_failure(command, tmp_path, cluster, monkeypatch):
    """The workers have neither the data nor the model's module: both are sent."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model_of_a_sweep.py").write_text(MODEL)
    rng = np.random.default_rng(0)
    np.savez("mine.npz", x=rng.normal(size=(90, 4)).astype(np.float32), y=rng.integers(0, 3, 90))
    text = 'clients = [2, 500]\nrounds = 1\nmethod = "fedavg"\nscenario = "iid"\nmodel = "model_of_a_sweep:build"\n'
    (tmp_path / "grid.toml").write_text(f'{text}dataset = "mine.npz"\nmodel_set = {{width = [4, 5]}}\n')
    code, out, err = command("sweep", "grid.toml", "--out", "ray", "--engine", "ray")
    assert code == 1
    assert "2 runs finished, 0 already existed, 2 failed" in out
    assert "clients = 500: must be between 1 and 72" in err
    command("sweep", "grid.toml", "--out", "one")
    ours, theirs = read_cells(tmp_path / "ray"), read_cells(tmp_path / "one")
    for left, right in zip(ours, theirs, strict=True):
        assert (left.key, left.result.history.tolist()) == (right.key, right.result.history.tolist())
        assert left.result.config["model"] == right.result.config["model"]


RUN = {"rounds": 8, "seed": 3, "settings": {"extractor_epochs": 2}, "engine": "ray", "workers": 2}
DRIVER = "import firma, sys; firma.run('digits', 'dir-0.5', 'fibfl++', address={!r}, checkpoint={!r}, **{!r})"


def wait_for(pattern, folder, process):
    def found():
        assert process.poll() is None, "it ended too soon"
        return list(folder.glob(pattern))

    wait_until(found, 120, f"{pattern} is saved")


def test_a_driver_killed_with_kill_9_resumes_bit_by_bit(address, cluster, start, tmp_path):
    whole = firma.run("digits", "dir-0.5", "fibfl++", **RUN)
    process = start(running([sys.executable, "-c", DRIVER.format(address, str(tmp_path), RUN)]))
    wait_for("*/round-000002", tmp_path, process)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=60)
    saved = max(tmp_path.glob("*/round-*"))  # there are two, if it died before it had thrown the older one away
    assert 2 <= int(saved.name[6:]) < 8
    told = []
    again = firma.run(
        "digits", "dir-0.5", "fibfl++", checkpoint=str(tmp_path), on_round=lambda *each: told.append(each[2]), **RUN
    )
    np.testing.assert_array_equal(again.history, whole.history)
    assert torch.equal(again.parameters, whole.parameters)
    assert [outcome.number for outcome in told] == list(range(8))
    assert again.sent_bytes == whole.sent_bytes


def test_ctrl_c_is_one_line_and_the_same_command_goes_on(address, start, tmp_path):
    words = [
        "run",
        "--engine",
        "ray",
        "--address",
        address,
        "--workers",
        "1",
        "--dataset",
        "digits",
        "--rounds",
        "9999",
    ]
    command = [sys.executable, "-m", "firma", *words, "--checkpoint", str(tmp_path)]
    process = start(running(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    wait_for("*/round-*", tmp_path, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    last = err.splitlines()[-1]  # a slow machine has told of its progress before
    assert last.startswith(f"firma: interrupted; completed rounds are saved in {tmp_path}")
    assert "Traceback" not in err


def test_workers_run_a_model_from_the_current_folder(command, cluster, tmp_path):
    """The cluster was started elsewhere: no worker has this folder in its path, and one on another machine has none."""
    words = ["run", *FAST, "--method", "fibfl+", "--model", "mynet:whole", "--head", "fc", "--json"]
    with modules_of(write_models(tmp_path)):
        code, ours, err = command(*words, "--engine", "ray", "--workers", "2")
        assert code == 0, err
        _, theirs, _ = command(*words)
    (left,), (right,) = (json.loads(out)["results"] for out in (ours, theirs))
    assert left["history"] == right["history"]
    assert left["config"]["model"] == right["config"]["model"]
    assert "on Ray" in left["backend"]


def test_modules_are_imported_from_memory():
    """A package, a module in it, a folder without __init__.py, and a line of a traceback; in a process of its own."""
    script = textwrap.dedent(
        """
        import traceback
        from firma.engines.shipped_code import provide
        provide({
            "far/__init__.py": b"from .inner import value",
            "far/inner.py": b"import space.deep as deep\\nvalue = deep.two()",
            "space/deep.py": "# é\\ndef two():\\n    return 2\\n\\ndef fails():\\n    return 1 / 0\\n".encode(),
        })
        import far, space.deep
        assert far.value == 2 and space.deep.__name__ == "space.deep"
        try:
            space.deep.fails()
        except ZeroDivisionError:
            assert 'File "space/deep.py", line 6, in fails' in traceback.format_exc()
            assert "return 1 / 0" in traceback.format_exc()
        """
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_package_that_workers_lack_is_one_sentence(command, cluster, tmp_path, monkeypatch):
    """Installed packages are not sent: every node needs its own."""
    installed = tmp_path / "site-packages"
    installed.mkdir()
    with modules_of(write_models(installed)):
        monkeypatch.syspath_prepend(installed)
        monkeypatch.chdir(tmp_path)
        code, _, err = command(
            "run", *FAST, "--method", "fibfl", "--model", "mynet:build", "--engine", "ray", "--workers", "1"
        )
    assert (code, err.splitlines()[-1]) == (
        2,
        "firma: engine = 'ray': a worker cannot import 'layers', which the model needs; install it on every node",
    )


def test_the_command_of_the_page_about_models_runs(command, cluster, tmp_path):
    found = blocks("docs/your-model.md")
    with modules_of(tmp_path):
        for block in found:
            if block.note.startswith("file: "):
                write_file(block, tmp_path)
        (shown,) = [block for block in found if block.note == "with ray"]
        for words in shown.commands:
            code, out, err = command(*words[1:])
            assert code == 0, err
            assert "frame" in out


def live_lines(folder, *but):
    """The lines of live.jsonl without what differs from run to run."""
    found = [json.loads(line) for line in (folder / LIVE_FILE).read_text().splitlines()]
    return [{name: value for name, value in each.items() if name not in but} for each in found]


def test_a_run_on_ray_is_followed_like_any_other(command, tmp_path, cluster):
    """While it goes on, from the folder alone, and in the end the same lines as of the simulation but for times."""
    words = ["run", *FAST, "--method", "fedrep", "--method", "fibfl++", "--live", "--out"]
    folder, seen, done = tmp_path / "ray", set(), threading.Event()

    def look():
        cursor, state, methods = Cursor(), None, {}
        while not done.wait(0.02):
            if state is None and (folder / LIVE_FILE).exists():
                state = RunState(folder)
            for message in state.changes(cursor) if state is not None else ():
                methods |= {each["id"]: each["facts"]["method"] for each in message["runs"] if "facts" in each}
                going_on = [each for each in message["runs"] if each["rows"] and message["session"]["written"]]
                seen.update(methods[each["id"]] for each in going_on)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        code, _, err = command(*words, folder, "--engine", "ray", "--workers", "2")
    finally:
        done.set()
        reader.join()
    assert code == 0, err
    assert "Live page: http://127.0.0.1:" in err
    assert seen == {"fedrep", "fibfl++"}, "while it ran"
    assert command(*words, tmp_path / "one")[0] == 0
    times = ("time", "id", "took", "seconds", "process", "engine", "command", "settings")
    ours, theirs = live_lines(folder, *times), live_lines(tmp_path / "one", *times)
    assert ours == theirs
    assert [each["event"] for each in ours].count("round") == 4
    runs = [each for each in live_lines(folder) if each["event"] == "run"]
    assert [each["engine"] for each in runs] == ["ray", "ray"]
    for each in (line for line in live_lines(folder) if line["event"] == "round"):
        assert 0 < sum(each["seconds"].values()) <= each["took"] + 1e-3


def test_a_sweep_on_ray_is_followed_run_by_run(command, tmp_path, cluster, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.toml").write_text('dataset = "digits"\nmethod = ["local", "fedavg"]\nrounds = 2\n')
    code, _, err = command("sweep", "grid.toml", "--out", "ray", "--engine", "ray", "--live")
    assert code == 0, err
    assert "Live page: http://127.0.0.1:" in err
    folder = tmp_path / "ray"
    (message,) = RunState(folder, lambda: stored_events(folder)).changes(Cursor())
    assert sorted(each["facts"]["method"] for each in message["runs"]) == ["fedavg", "local"], "each once"
    for each in message["runs"]:
        assert [row[0] for row in each["rows"]] == [1, 2]
        assert each["end"]["status"] == "finished"
