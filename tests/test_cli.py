"""The command line as a person or a script uses it."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import firma
from firma.methods import COLUMNS, METHODS, PAPER_METHODS, columns
from firma.run_config import RunConfig
from tests.processes import running, wait_until

QUICK = ["--rounds", "2", "--set", "extractor_epochs=1", "--set", "epochs=1"]


def test_run_json_is_the_interface(command):
    code, out, _ = command("run", "--dataset", "digits", "--method", "fibfl++", "--method", "local", "--json", *QUICK)
    document = json.loads(out)
    assert code == 0
    assert document["config"]["method"] == ["fibfl++", "local"]
    assert [result["method"] for result in document["results"]] == ["fibfl++", "local"]
    for result in document["results"]:
        assert {"method", "seed", "history", "order", "seconds", "metrics"} <= set(result)
        assert len(result["history"]) == 2
        assert len(result["history"][0]) == 5
        assert {
            "mean_accuracy", "worst_client", "worst_fifth", "gini", "jain", "rounds_to_50", "rounds_to_half_of_final",
            "plateau_std", "worst_round", "bytes_per_round", "messages_per_round",
        } <= set(result["metrics"])  # fmt: skip


def test_run_prints_a_table_over_seeds_and_writes_results(command, tmp_path):
    folder = tmp_path / "new" / "folder"
    code, out, _ = command("run", "--method", "paper", "--seeds", "2", "--out", str(folder), *QUICK)
    assert code == 0
    for word in ("local", "fedavg", "fedrep", "rdfl", "fibfl", "fibfl+", "fibfl++", "±", "Gini", "2 seeds"):
        assert word in out
    document = json.loads((folder / "results.json").read_text())
    assert len(document["results"]) == 14
    assert (folder / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in folder.iterdir()) == ["accuracy.png", "live.jsonl", "models", "results.json"]
    assert len(list((folder / "models").iterdir())) == 14
    assert f"Models: {folder / 'models'}" in out.replace("\n", "")


def test_cli_and_python_agree(command):
    import firma as package

    _, out, _ = command("run", "--scenario", "dir-0.1", "--seed", "3", "--json", *QUICK)
    settings = {"extractor_epochs": 1, "epochs": 1}
    result = package.run("digits", "dir-0.1", "frame", rounds=2, seed=3, settings=settings)
    assert json.loads(out)["results"][0]["history"] == result.history.tolist()


def test_a_toml_file_is_the_options_and_options_win(command, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text('scenario = "iid"\nmethod = ["local"]\nrounds = 9\n[set]\nepochs = 1\n')
    _, out, _ = command("run", str(path), "--rounds", "1", "--json")
    document = json.loads(out)
    assert document["config"]["scenario"] == "iid"
    assert document["config"]["rounds"] == 1
    assert document["results"][0]["config"]["hyper"]["epochs"] == 1


def test_options_of_value_zero_are_given(command, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text('method = "local"\nseed = 5\nrounds = 1\n[set]\nepochs = 1\n')
    _, out, _ = command("run", str(path), "--seed", "0", "--json")
    assert json.loads(out)["results"][0]["seed"] == 0


def test_a_misspelt_key_is_answered_with_the_nearest(command, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text('scenrio = "iid"\n')
    code, _, err = command("run", str(path))
    assert code == 2
    assert "option 'scenrio' is unknown (did you mean 'scenario'?); choose from" in err
    assert "did you mean 'threshold'?" in command("run", "--set", "treshold=0.1")[2]
    assert "did you mean 'fibfl'?" in command("run", "--method", "fibf")[2]


def test_every_option_is_a_field_and_has_help(command):
    from firma.run_config import descriptions, option_fields

    _, out, _ = command("run", "--help")
    for option, field in option_fields().items():
        assert f"--{option.replace('_', '-')}" in out
        assert descriptions()[field].split()[0] in out
    assert "--path" not in out


def test_path_is_the_old_name_of_backend(command, tmp_path):
    words = ["--method", "local", "--rounds", "1", "--set", "epochs=1", "--json"]
    _, out, err = command("run", "--backend", "autograd", *words)
    assert err == ""
    new = json.loads(out)
    assert new["config"]["backend"] == "autograd"
    assert new["results"][0]["backend"].startswith("autograd")
    _, out, err = command("run", "--path", "autograd", *words)
    assert err == "firma: path is deprecated; use backend\n"
    assert json.loads(out)["config"] == new["config"]
    (tmp_path / "old.toml").write_text('path = "autograd"\n')
    _, out, err = command("run", tmp_path / "old.toml", *words)
    assert err == "firma: path is deprecated; use backend\n"
    assert json.loads(out)["config"] == new["config"]


def test_a_run_loads_no_other_command():
    script = (
        "import sys\nsys.argv = ['firma', 'run', '--rounds', '1', '--method', 'local', '--set', 'epochs=0']\n"
        "from firma.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*sorted(name for name in sys.modules if name.startswith('firma.')), file=sys.stderr)"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stderr.split()
    assert [name for name in loaded if name.startswith("firma.cli.")] == [
        "firma.cli.completion", "firma.cli.console", "firma.cli.live", "firma.cli.options",
        "firma.cli.reading", "firma.cli.run", "firma.cli.usage",
    ]  # fmt: skip
    assert not [name for name in loaded if name.split(".")[1] in ("peer", "study", "report")]


def test_help_lists_every_command(command):
    from firma.cli import COMMANDS

    _, out, _ = command("--help")
    for name in COMMANDS:
        assert f"│ {name} " in out
    code, _, err = command("rnu")
    assert code == 2
    assert err.startswith("firma: command 'rnu' is unknown (did you mean 'run'?); choose from run, methods, ")
    assert err.count("\n") == 1


def test_the_version_is_printed(command):
    import firma as package

    assert command("--version") == (0, f"firma {package.__version__}\n", "")


def test_audit_is_shown(command):
    _, out, _ = command("run", "--audit", "--method", "fibfl", "--method", "fedavg", *QUICK)
    assert "audit fibfl: 20 messages, none contains a head, all between ring neighbours" in out
    assert "audit fedavg: 20 messages, 20 contain a head, 20 not between ring neighbours" in " ".join(out.split())


def test_methods_lists_every_method_in_its_group_within_80_columns(command):
    code, out, _ = command("methods")
    assert code == 0
    assert max(len(line) for line in out.splitlines()) <= 80
    parts = re.split(r"^(With a server|Without a server|Without communication)$", out, flags=re.MULTILINE)
    listed = {
        title: re.findall(r"^    (\S+) ", text, re.MULTILINE)
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }
    assert sorted(name for names in listed.values() for name in names) == sorted(METHODS)
    assert all(
        (METHODS[name].topology == "star") == (title == "With a server") for title in listed for name in listed[title]
    )
    assert listed["Without communication"] == ["local"]


def test_methods_shows_the_design_table_within_80_columns(command):
    _, out, _ = command("methods", "--table")
    assert max(len(line) for line in out.splitlines()) <= 80
    cells = [line.split() for line in out.splitlines() if line.strip()]
    found = {name: [] for name in METHODS}
    for first, *others in cells:
        if first in found:
            found[first] += others
    assert found == {name: list(columns(row).values()) for name, row in METHODS.items()}


def test_methods_shows_one_method_in_full(command):
    code, out, _ = command("methods", "fedprox", "fedper:topology=all-reduce")
    assert code == 0
    plain = " ".join(re.sub("[│┌┐└┘├┤─┬┴┼]", " ", out).split())
    for word in ("Li et al. (MLSys 2020)", "‖w - w_server‖²", "rate 0.01, epochs 5, proximal 0.01", "With a server",
                 "topology all-reduce (fedper: star)", "stays private head", "Without a server"):  # fmt: skip
        assert word in plain, plain
    code, _, err = command("methods", "fedpox")
    assert (code, err) == (
        2,
        f"firma: method 'fedpox' is unknown (did you mean 'fedprox'?); firma methods lists all {len(METHODS)}\n",
    )


def test_methods_as_json_hold_everything(command):
    _, out, _ = command("methods", "--json")
    rows = {row["name"]: row for row in json.loads(out)["methods"]}
    assert list(rows) == list(METHODS)
    assert rows["fibfl++"]["order"] == "2-opt"
    assert rows["fibfl"]["properties"]["private head"]
    assert rows["fedbabu"]["private_parts"] == "head, personal model"
    for name, row in rows.items():
        assert {column: row[column] for column in COLUMNS} == columns(METHODS[name])
        assert all(row[key] for key in ("description", "equation", "reference", "numbers", "recommended_numbers"))
    _, out, _ = command("methods", "fedbn", "--json")
    assert [row["name"] for row in json.loads(out)["methods"]] == ["fedbn"]


def test_words_stand_for_several_methods(command):
    """Each row once, in the order asked for."""
    words = ["--method", "fedbn", "--method", "paper", "--method", "fedavg", "--set", "epochs=0"]
    changes = ["--set", "extractor_epochs=0", "--set", "head_epochs=0", "--rounds", "1", "--clients", "2", "--json"]
    code, out, err = command("run", *words, *changes)
    assert code == 0, err
    assert [each["method"] for each in json.loads(out)["results"]] == ["fedbn", *PAPER_METHODS]
    assert RunConfig(method="all").methods == tuple(METHODS)
    assert RunConfig(method=["paper", METHODS["frame"]]).methods == (*PAPER_METHODS, METHODS["frame"])
    code, _, err = command("run", "--method", "papers")
    assert (code, "did you mean 'paper'?" in err) == (2, True)


def test_ring_json_is_the_interface(command):
    code, out, _ = command("ring", "--scenario", "dir-0.1", "--preset", "published", "--json")
    report = json.loads(out)
    assert code == 0
    assert round(report["saving_percent"], 1) == 70.4
    assert report["order"] == [0, 3, 1, 4, 2]
    for key in ("cost_identity", "cost_optimised", "spectral_radius_pass", "spectral_radius_round", "min_influence"):
        assert report[key] > 0
    assert report["spectral_radius_round"] < report["spectral_radius_pass"] < 1
    _, out, _ = command("ring")
    assert "smallest influence" in out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "--method", "fedsgd"], ["method", "fedsgd", "firma methods"]),
        (["run", "--dataset", "imagenet"], ["dataset", "imagenet"]),
        (["run", "--scenario", "weird"], ["scenario", "weird", "skew-K"]),
        (["run", "--clients", "0"], ["clients", "0", "1"]),
        (["run", "--clients", "5000"], ["clients", "5000", "1437"]),
        (["run", "--set", "head_epochs=-1"], ["head_epochs", "-1", "0"]),
        (["run", "--set", "tau=1.5"], ["threshold", "1.5", "1"]),
        (["run", "--set", "tau"], ["--set", "tau", "KEY=VALUE"]),
        (["run", "--preset", "nice"], ["preset", "nice", "published"]),
        (["run", "no-such.toml"], ["config", "no-such.toml"]),
        (["run", "--out", "/proc/nowhere"], ["out", "/proc/nowhere"]),
        (["ring", "--method", "fedavg"], ["method", "fedavg", "ring"]),
        (["ring", "--preset", "nice"], ["preset", "nice"]),
    ],
)
def test_bad_input_exits_2_with_one_sentence(command, words, expected):
    code, out, err = command(*words)
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1, err
    assert all(word in err for word in expected), err


def test_a_broken_toml_says_where(command, tmp_path):
    path = tmp_path / "broken.toml"
    path.write_text("rounds = = 3")
    code, _, err = command("run", str(path))
    assert code == 2
    assert "line 1" in err
    for text, word in (("colour = 3", "colour"), ("set = 3", "table of settings"), ("method = []", "at least one")):
        path.write_text(text)
        code, _, err = command("run", str(path))
        assert code == 2
        assert word in err
        assert err.count("\n") == 1


def test_unknown_option_exits_2(command):
    assert command("run", "--colour", "red")[0] == 2


def test_help_teaches(command):
    _, out, _ = command("run", "--help")
    for word in ("--scenario", "dir-ALPHA", "retention_start", "Example"):
        assert word in out


def test_ctrl_c_says_so_and_leaves_nothing(start, tmp_path):
    command = [sys.executable, "-m", "firma", "run", "--rounds", "5000", "--out", tmp_path / "out"]
    said = tmp_path / "stderr"
    with said.open("w") as stderr:  # as to a terminal: the progress bar tells when it trains
        env = os.environ | {"FORCE_COLOR": "1", "COLUMNS": "200"}
        process = start(running(command, stdout=subprocess.PIPE, stderr=stderr, env=env))
    wait_until(lambda: re.search(r"round \d+:", said.read_text()), 120, "a round on the progress bar")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    err = said.read_text()
    assert process.returncode == 130
    assert out == ""
    assert err.rstrip().endswith("firma: interrupted; no results were written")
    assert "Traceback" not in err
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["live.jsonl"], "how far it came"


def test_ctrl_c_says_what_a_checkpoint_holds(start, tmp_path):
    words = ["run", "--method", "local", "--rounds", "5000", "--checkpoint", tmp_path / "state"]
    process = start(
        running([sys.executable, "-m", "firma", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    )  # fmt: skip
    wait_until(lambda: list(tmp_path.glob("state/*/round-*")), 120, "a checkpoint")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.endswith(  # on a slow machine after lines of progress
        f"firma: interrupted; completed rounds are saved in {tmp_path / 'state'}; run the same command again to "
        "continue\n"
    )
    assert "Traceback" not in err
    assert list(tmp_path.glob("state/*/round-*"))


RAISES = """
import firma

class Raises(firma.Algorithm):
    def after_training(self, one):
        raise ZeroDivisionError("division by zero")
"""


def test_runs_that_are_finished_when_a_later_one_fails_are_kept(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "raising_later.py").write_text(RAISES)
    words = ["run", "--rounds", "1", "--clients", "2", "--scenario", "iid", "--set", "epochs=0", "--method", "local"]
    words += ["--method", "fedavg:algorithm=raising_later:Raises"]
    code, out, err = command(*words, "--out", "kept", "--checkpoint", "state")
    assert code == 2
    assert "Raises" in err
    assert "\n1 of 2 runs was finished and written to kept; completed rounds are saved in state; run the same" in err
    assert "local" in out
    assert [run.method for run in firma.load_results("kept")] == ["local"]
    code, out, err = command(*words, "--json")
    assert [each["method"] for each in json.loads(out)["results"]] == ["local"]
    assert err.endswith("\n1 of 2 runs was finished and shown above; --out FOLDER would have kept them\n")


def test_a_method_that_does_not_fit_the_model_is_refused_before_any_is_trained(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = "from torch import nn\ndef build():\n"
    text += "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8)), nn.Linear(8, 10, bias=False)\n"
    (tmp_path / "without_bias.py").write_text(text)
    words = ["--rounds", "1", "--clients", "2", "--model", "without_bias:build", "--out", "kept"]
    code, out, err = command("run", *words, "--method", "fedavg", "--method", "feddbe")
    assert (code, out) == (2, "")
    assert "requires a head that starts with a linear layer" in err
    assert "finished" not in err
    assert '"round"' not in (tmp_path / "kept" / "live.jsonl").read_text(), "something was trained"


def test_settings_that_no_method_uses_are_named_once(command):
    words = ["run", "--rounds", "1", "--clients", "1", "--scenario", "iid", "--set", "extractor_epochs=0"]
    _, out, err = command(*words, "--set", "E=1", "--set", "degree=3", "--method", "frame", "--seeds", "2")
    assert err.count("no effect") == 1
    assert "firma: warning: epochs, degree have no effect on frame;" in err
    assert "1 client, 1 round, 2 seeds" in " ".join(out.split())
    _, _, err = command(
        *words, "--set", "epochs=0", "--set", "reorder_every=1", "--method", "fibfl", "--method", "local"
    )
    assert "reorder_every has no effect on any of fibfl, local;" in err
    _, _, err = command(*words, "--method", "fibfl++", "--set", "reorder_every=1", "--set", "threshold=0.1")
    assert "no effect" not in err


def test_ctrl_c_in_any_other_command_claims_nothing(command, monkeypatch):
    from firma import ring_cost

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(ring_cost, "ring_report", interrupted)
    assert command("ring") == (130, "", "\nfirma: interrupted\n")


def test_results_replace_older_ones_whole(tmp_path):
    from firma.atomic_files import write_whole

    path = tmp_path / "results.json"
    write_whole(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "new \ud800")
    assert path.read_text() == "old"
    assert [each.name for each in Path(tmp_path).iterdir()] == ["results.json"]


def test_json_is_one_document_on_stdout(command, tmp_path):
    """Of the commands that write files: what a script would ask them for."""
    study = tmp_path / "study"
    words = ["--dataset", "digits", "--only", "digits/iid/local/paper/0", "--rounds", "1", "--set", "epochs=0"]
    code, out, _ = command("reproduce", *words, "--out", study, "--dry-run", "--json")
    assert (code, json.loads(out)) == (0, {"results": str(study), "cells": ["digits/iid/local/paper/0"]})
    code, out, err = command("reproduce", *words, "--out", study, "--json")
    assert (code, json.loads(out)) == (0, {"results": str(study), "run": 1, "existed": 0, "copied": 0})
    assert err.startswith("1/1 digits/iid/local/paper/0  0.")
    code, out, _ = command("reproduce", *words, "--out", study, "--json")
    assert json.loads(out)["existed"] == 1


def test_json_of_a_ring_before_it_runs(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, port in (("a", 1), ("b", 2)):
        code, out, err = command("init", name, f"127.0.0.1:{port}", "--identity", name, "--json")
        made = json.loads(out)
        assert (code, err) == (0, "")
        assert (made["name"], made["site"]) == (name, f"{name}/site.toml")
    words = ["--member", "a/site.toml", "--member", "b/site.toml", "--federation", "trial", "--shape", "8x8"]
    code, out, _ = command("ring-file", "ring.toml", *words, "--labels", "10", "--json")
    ring = json.loads(out)
    assert code == 0
    assert [member["name"] for member in ring["members"]] == ["a", "b"]
    assert ring["members"][1]["fingerprint"] == made["fingerprint"]
    assert json.loads(command("ring-file", "ring.toml", "--json")[1]) == ring
    code, out, err = command("doctor", "ring.toml", "--identity", "a", "--wait", "0", "--json")
    found = json.loads(out)
    assert (code, err, found["passed"], found["digest"]) == (1, "", False, ring["digest"])
    assert {"about", "passed", "says"} == set(found["checks"][0])


def test_json_of_a_download_that_failed(command, tmp_path):
    code, out, err = command("data", "get", "mnist", "--cache", tmp_path / "cache", "--from", tmp_path, "--json")
    assert (code, json.loads(out)) == (2, {"cache": str(tmp_path / "cache"), "datasets": []})
    assert err.startswith("firma: ")


def test_every_command_that_prints_results_has_json(command):
    from firma.cli import COMMANDS

    for name in COMMANDS.keys() - {"watch"}:  # which prints an address, and shows results in a browser
        for words in ([name],) if name != "data" else (["data", "get"], ["data", "list"]):
            assert "--json" in command(*words, "--help")[1], name
