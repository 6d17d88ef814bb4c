"""The command line as a person or a script uses it."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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
    code, out, _ = command("run", "--method", "all", "--seeds", "2", "--out", str(folder), *QUICK)
    assert code == 0
    for word in ("local", "fedavg", "fedrep", "rdfl", "fibfl", "fibfl+", "fibfl++", "±", "Gini", "2 seeds"):
        assert word in out
    document = json.loads((folder / "results.json").read_text())
    assert len(document["results"]) == 14
    assert (folder / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in folder.iterdir()) == ["accuracy.png", "results.json"]


def test_cli_and_python_agree(command):
    import firma as package

    _, out, _ = command("run", "--scenario", "dir-0.1", "--seed", "3", "--json", *QUICK)
    settings = {"extractor_epochs": 1, "epochs": 1}
    result = package.run("digits", "dir-0.1", "fibfl++", rounds=2, seed=3, settings=settings)
    assert json.loads(out)["results"][0]["history"] == result.history.tolist()


def test_a_toml_file_is_the_options_and_options_win(command, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text('scenario = "iid"\nmethod = ["local"]\nrounds = 9\n[set]\nepochs = 1\n')
    _, out, _ = command("run", str(path), "--rounds", "1", "--json")
    document = json.loads(out)
    assert document["config"]["scenario"] == "iid"
    assert document["config"]["rounds"] == 1
    assert document["results"][0]["config"]["hyper"]["epochs"] == 1


def test_audit_is_shown(command):
    _, out, _ = command("run", "--audit", "--method", "fibfl", "--method", "fedavg", *QUICK)
    assert "audit fibfl: 20 messages, no head received, neighbours only" in out
    assert "audit fedavg: 20 messages, 20 messages held a head, 20 messages beyond" in " ".join(out.split())


def test_methods_prints_the_design_table(command):
    _, out, _ = command("methods")
    assert "2-opt" in out
    assert "all four core" in out
    _, out, _ = command("methods", "--json")
    rows = {row["name"]: row for row in json.loads(out)["methods"]}
    assert rows["fibfl++"]["order"] == "2-opt"
    assert rows["fibfl"]["properties"]["private head"]


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
        (["run", "--method", "fedsgd"], ["method", "fedsgd", "fibfl++"]),
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
    path.write_text("colour = 3")
    code, _, err = command("run", str(path))
    assert code == 2
    assert "colour" in err


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
    assert "interrupted" in err
    assert "Traceback" not in err
    assert list((tmp_path / "out").iterdir()) == []


def test_results_replace_older_ones_whole(tmp_path):
    from firma.results import write_whole

    path = tmp_path / "results.json"
    write_whole(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "new \ud800")
    assert path.read_text() == "old"
    assert [each.name for each in Path(tmp_path).iterdir()] == ["results.json"]
