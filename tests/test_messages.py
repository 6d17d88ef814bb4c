"""Wrong input from Python and from a shell: one sentence that names what is wrong, never a traceback."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import firma

QUICK = {"rounds": 1, "method": "local", "settings": {"epochs": 0}}


@pytest.fixture(scope="module")
def result():
    return firma.run(**QUICK)


@pytest.mark.parametrize("client", [7, 99, -1, "0", None, 1.5])
def test_a_result_has_models_of_its_clients_only(result, client):
    with pytest.raises(firma.BadInput, match=r"client = .*: must be an integer from 0 to 4"):
        result.model(client)


def test_clients_may_be_numpy_integers(result):
    assert result.model(np.int64(4)).layout() == result.model(4).layout()


def test_a_result_is_not_saved_below_a_file(result, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(firma.BadInput, match=r"save = '.*file': cannot write to this folder \(it is a file\)"):
        result.save(tmp_path / "file" / "x")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"rate": -1}, "rate = -1: must be greater than 0"),
        ({"rate": float("inf")}, "rate = inf: must be a finite number"),
        ({"rate": float("nan")}, "rate = nan: must be a finite number"),
        ({"proximal": float("inf")}, "proximal = inf: must be a finite number"),
        ({"clip": float("inf")}, "clip = inf: must be a finite number"),
        ({"clip": 0}, "clip = 0: must be greater than 0"),
        ({"batch": 2**70}, "batch = 1180591620717411303424: must be at most 2147483647"),
        ({"initial": "share"}, "initial = 'share': must be 'shared' or 'per-client' (did you mean 'shared'?)"),
        ({"ratte": 1}, "setting 'ratte' is unknown (did you mean 'rate'?); choose from rate, momentum,"),
    ],
)
def test_hyper_explains_itself(values, expected):
    with pytest.raises(firma.BadInput) as caught:
        firma.Hyper(**values)
    assert str(caught.value).startswith(expected)


def test_hyper_can_still_be_copied_and_compared():
    changed = firma.Hyper(rate=0.5)
    assert changed.model_copy(update={"rate": 0.01}) == firma.Hyper()
    assert firma.Hyper.model_validate({"rate": 0.5}) == changed


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"rounds": 0}, "rounds = 0: must be at least 1"),
        ({"rounds": True}, "rounds = True: must be a valid integer"),
        ({"method": 3}, "method = 3: must be a name, a firma.Method, or a list of these"),
        ({"method": {"local"}}, "method = {'local'}: must be a name, a firma.Method, or a list of these"),
        ({"method": []}, "method = []: must name at least one method"),
        ({"on_round": "print"}, "on_round = 'print': must be a function of (method, seed, outcome)"),
        ({"preset": "papr"}, "preset = 'papr': must be 'recommended', 'paper' or 'published' (did you mean 'paper'?)"),
        ({"engine": "rya"}, "engine = 'rya': must be 'simulation' or 'ray' (did you mean 'ray'?)"),
        ({"wire": "int9"}, "wire = 'int9': must be 'float32', 'bfloat16' or 'int8' (did you mean 'int8'?)"),
        ({"checkpoint": ""}, "checkpoint = '': must not be empty"),
        ({"tensorboard": ""}, "tensorboard = '': must not be empty"),
        ({"audit": 3}, "audit = 3: must be a valid boolean"),
    ],
)
def test_a_configuration_explains_itself(values, expected):
    with pytest.raises(firma.BadInput) as caught:
        firma.RunConfig(**values)
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"device": "meta"}, "device = 'meta': its tensors hold no data, so nothing can be trained on it"),
        ({"device": "cdua"}, "device 'cdua' is unknown (did you mean 'cuda'?); choose from cpu, cuda, mps, xpu"),
        ({"scenario": "dri-0.1"}, "scenario 'dri-0.1' is invalid (did you mean 'dir'?); choose from iid, dir-ALPHA"),
        ({"dataset": "mnits"}, "dataset 'mnits' is unknown (did you mean 'mnist'?); choose from digits, mnist"),
        ({"method": "Local"}, "method 'Local' is unknown (did you mean 'local'?); firma methods lists all"),
        (
            {"method": "fibfl:order=2opt"},
            "method 'fibfl:order=2opt': order = '2opt'; must be one of given, 2-opt, bandwidth (did you mean '2-opt'?)",
        ),
        ({"dataset": ([[1.0], [1.0, 2.0]], [0, 1])}, "dataset arrays: the rows of x differ in shape; all must have"),
        ({"settings": {"hidden": 2**31 - 1}}, "not enough memory ("),
        ({"settings": {"batch": 2**31 - 1}}, "not enough memory ("),
    ],
)
def test_a_run_explains_itself(values, expected):
    with pytest.raises(firma.BadInput) as caught:
        firma.run(**(QUICK | values))
    assert str(caught.value).startswith(expected)


def test_what_is_a_list_of_one_method_or_a_torch_device_is_understood(result):
    import torch

    same = firma.run(**(QUICK | {"method": ["local"], "device": torch.device("cpu")}))
    assert np.array_equal(same.history, result.history)


def test_a_misspelt_parameter_is_answered_with_the_nearest():
    with pytest.raises(TypeError, match=r"firma.run: parameter 'roundz' is unknown \(did you mean 'rounds'\?\)"):
        firma.run(roundz=3)
    with pytest.raises(TypeError, match=r"firma.run_all takes a firma.RunConfig, not dict"):
        firma.run_all({"rounds": 3})


@pytest.mark.parametrize("error", [RuntimeError("can't allocate memory"), MemoryError("mine"), KeyError("x")])
def test_what_on_round_raises_is_passed_on_untouched(error):
    def on_round(*_):
        raise error

    with pytest.raises(type(error)) as caught:
        firma.run(on_round=on_round, **QUICK)
    assert caught.value is error


def test_a_base_that_does_not_exist_is_answered_with_the_nearest():
    with pytest.raises(firma.BadInput, match=r"or empty \(did you mean 'fibfl'\?\)"):
        firma.run(method=replace(firma.METHODS["fibfl"], name="mine", base="fibf"))


def test_a_copy_of_the_source_that_is_not_installed_runs(monkeypatch):
    """Its version is unknown; everything else works."""
    import importlib.metadata

    def version(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert firma.__version__ == "0+unknown"
    assert firma.run(**QUICK).config["versions"]["firma"] == "0+unknown"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "--rouds", "3"], "option '--rouds' is unknown (did you mean '--rounds'?); see "),
        (["run", "--rounds", "abc"], "--rounds must be a valid integer; see "),
        (["run", "a", "b"], "unexpected words (b); see "),
        (["run", "--method"], "option '--method' requires an argument; see "),
        (["split", "--seed", "-1"], "--seed must be at least 0; see "),
        (["accept"], "missing argument 'ring'; see "),
        (["data", "gte"], "command 'gte' is unknown (did you mean 'get'?); choose from get, list"),
        (["reproduce", "--engine", "rya"], "engine = 'rya': must be 'simulation' or 'ray' (did you mean 'ray'?)"),
        (["reproduce", "--dataset", "mnits"], "--dataset mnits is not part of the study (did you mean 'mnist'?)"),
        (["run", "--set", "rate=inf"], "rate = 'inf': must be a finite number"),
        (["run", "--set", "hidden=99999999999"], "hidden = '99999999999': must be at most 2147483647"),
    ],
)
def test_wrong_words_exit_2_with_one_sentence(command, words, expected):
    code, out, err = command(*words)
    assert (code, out) == (2, "")
    assert err.startswith(f"firma: {expected}")
    assert err.count("\n") == 1
    if expected.endswith("see "):
        assert err.endswith(" --help\n")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'scenario = "\xff"', "not valid TOML ('utf-8' codec can't decode byte 0xff"),
        (b"rounds = " + b"1" * 5000, "not valid TOML ("),
        (b"rounds = " + b"[" * 5000, "not valid TOML ("),
        (b"out = 3", "out = 3: must be the path of a folder"),
        (b"[set]\nratte = 1", "setting 'ratte' is unknown (did you mean 'rate'?)"),
    ],
)
def test_odd_toml_files_are_refused(command, tmp_path, raw, expected):
    (tmp_path / "a.toml").write_bytes(raw)
    code, out, err = command("run", tmp_path / "a.toml")
    assert (code, out) == (2, "")
    assert expected in err
    assert err.count("\n") == 1


def test_a_toml_file_may_start_with_a_byte_order_mark(tmp_path):
    from firma.run_config import read_toml

    (tmp_path / "a.toml").write_bytes(b"\xef\xbb\xbfrounds = 1")
    assert read_toml(tmp_path / "a.toml") == {"rounds": 1}


def shell(line, **environment):
    """Run a line of shell; `$FIRMA` is the command."""
    import os

    env = os.environ | {"FIRMA": f"{sys.executable} -m firma"} | environment
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, env=env)  # noqa: PLW1510


def test_a_reader_that_has_seen_enough_is_no_error():
    done = shell("$FIRMA methods | head -n 1")
    assert done.stdout.strip() == "With a server"
    assert done.stderr == ""


def test_output_that_cannot_be_written_is_one_line():
    done = shell("$FIRMA methods --json >&-")
    assert (done.returncode, done.stderr) == (0, "")
    if Path("/dev/full").exists():
        done = shell("$FIRMA methods > /dev/full")
        assert (done.returncode, done.stderr) == (1, "firma: No space left on device\n")


def test_a_terminal_that_knows_ascii_only_gets_question_marks():
    done = shell("$FIRMA methods", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "with ?N/2? passes per round" in done.stdout


def test_tables_stay_whole_on_a_narrow_terminal(command, monkeypatch):
    from firma.cli import console

    monkeypatch.setattr(console.out, "width", 40)
    _, out, _ = command("methods")
    assert "…" not in out
    assert "extractor" in out


def test_warnings_are_lines_too(command, monkeypatch):
    import warnings

    from firma import ring_cost

    def warned(*_):
        warnings.warn("the ring is small", UserWarning, stacklevel=1)
        raise firma.BadInput("enough")

    monkeypatch.setattr(ring_cost, "ring_report", warned)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert command("ring") == (2, "", "firma: warning: the ring is small\nfirma: enough\n")


def test_kernels_are_compiled_where_nothing_can_be_kept_on_disk(monkeypatch):
    """Numba finds no folder for compiled code if neither the package nor the home can be written."""
    from numba.core import caching

    from firma.training import kernels

    def double(x):
        return 2 * x

    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    with pytest.warns(RuntimeWarning, match="compiled kernels cannot be kept on disk.*set NUMBA_CACHE_DIR"):
        compiled = kernels._compiled(double)
    assert compiled(21) == 42
