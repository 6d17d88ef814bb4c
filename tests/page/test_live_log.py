"""live.jsonl: what a run says while it goes on, that it changes nothing, and that it cannot grow without end."""

import json

import numpy as np
import pytest
import torch

import firma
from firma import live_log
from firma.live_log import LIVE_FILE, LivePlace, is_written, live_run, session
from firma.page.run_state import RunState
from firma.page.server import Cursor
from firma.sweep.result_folders import read_folder
from firma.sweep.store import has_cells
from firma.sweep.stored_events import stored_events

QUICK = {"dataset": "digits", "scenario": "dir-0.5", "clients": 4, "rounds": 3, "settings": {"extractor_epochs": 1}}


def lines(folder, event=None):
    found = [json.loads(line) for line in (folder / LIVE_FILE).read_text().splitlines()]
    return [each for each in found if event in (None, each["event"])]


def shown(state, cursor=None):
    """What a new reader is told: the session, and runs by their id."""
    (message,) = state.changes(cursor or Cursor())
    return message["session"], {each["id"]: each for each in message["runs"]}


def test_a_run_tells_what_its_result_says(tmp_path):
    result = firma.run(method="fibfl++", **QUICK, live=tmp_path)
    (run,), rounds, (end,) = (lines(tmp_path, event) for event in ("run", "round", "end"))
    assert (run["method"], run["seed"], run["rounds"], run["clients"]) == ("fibfl++", 0, 3, 4)
    assert run["orders"] == [[1, list(result.order)]]
    assert run["samples"] == result.config["samples"]
    assert [sum(held) for held in run["holds"]] == pytest.approx(run["samples"], abs=5)  # each class is rounded
    assert [each["round"] for each in rounds] == [1, 2, 3]
    for each, scores, sent in zip(rounds, result.history, result.sent_bytes, strict=True):
        assert each["scores"] == pytest.approx(scores.tolist(), abs=5e-5)
        assert each["mean"] == pytest.approx(scores.mean(), abs=5e-5)
        assert each["worst"] == pytest.approx(scores.min(), abs=5e-5)
        assert each["bytes"] == sent
        assert set(each["seconds"]) == {"training", "mixing", "testing"}
        assert 0 < sum(each["seconds"].values()) <= each["took"] + 1e-3
    assert end["status"] == "finished"
    assert run["command"].startswith("firma run --dataset digits --scenario dir-0.5")
    assert "--method fibfl++ --seed 0" in run["command"]


def test_following_a_run_changes_no_bit_of_it(tmp_path):
    followed = firma.run(method="fibfl++", **QUICK, live=tmp_path)
    alone = firma.run(method="fibfl++", **QUICK)
    assert torch.equal(followed.parameters, alone.parameters)
    assert np.array_equal(followed.history, alone.history)
    assert followed.config == alone.config


def test_weights_on_a_ring_sum_to_one_and_a_failing_neighbour_loses_its_posterior(make_federation):
    from firma.engines.simulation import Simulation
    from firma.mixing.ring import rows

    run = make_federation("fibfl+", 5, 6, noisy=(2,), threshold=0.6)
    *_, outcome = Simulation(run).rounds()
    facts = live_log.weight_facts(run, outcome)
    assert facts["mixing"] == "ring"
    weights = {}
    for me, other, weight in facts["links"]:
        weights.setdefault(me, {})[other] = weight
    assert set(weights) == set(range(5))
    assert [sum(each.values()) for each in weights.values()] == pytest.approx([1.0] * 5, abs=1e-3)
    expected = rows(run.plan(5), run.order, outcome.claimed)
    assert weights[1] == pytest.approx({1: expected[1].own, 0: expected[1].left, 2: expected[1].right}, abs=1e-4)
    assert facts["gate"]["below"] == [client for client in range(5) if outcome.claimed[client] < 0.6]
    assert facts["gate"]["below"] == [2], "its labels are chance"
    assert weights[1][2] < weights[1][0], "the noisy neighbour counts less"


@pytest.mark.parametrize(("method", "kind"), [("fedavg", "shares"), ("d-psgd:topology=exponential", "links")])
def test_weights_elsewhere(tmp_path, method, kind):
    firma.run(method=method, **QUICK, live=tmp_path)
    (run,), last = lines(tmp_path, "run"), lines(tmp_path, "round")[-1]
    if kind == "shares":
        expected = {client: size / sum(run["samples"]) for client, size in enumerate(run["samples"])}
        assert dict(last["shares"]) == pytest.approx(expected, abs=1e-5)
    else:
        total = np.zeros(4)
        for me, _, weight in last["links"]:
            total[me] += weight
        assert total == pytest.approx(np.ones(4), abs=1e-3)
        assert len(last["links"]) == 12, "each of four reads itself and two others"


def test_nobody_asked_for_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    firma.run(method="local", **QUICK)
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.filterwarnings("ignore:local, seed 0")  # it learns nothing, and quickly
def test_the_file_is_bounded(tmp_path, monkeypatch):
    firma.run(method="local", **QUICK | {"rounds": 40, "settings": {"epochs": 0}}, live=tmp_path / "all")
    whole = (tmp_path / "all" / LIVE_FILE).stat().st_size
    monkeypatch.setattr(live_log, "_WHOLE", whole // 3)
    monkeypatch.setattr(live_log, "_MOST", whole // 2)
    firma.run(method="local", **QUICK | {"rounds": 40, "settings": {"epochs": 0}}, live=tmp_path / "some")
    assert (tmp_path / "some" / LIVE_FILE).stat().st_size < whole // 2 + 1000
    rounds = lines(tmp_path / "some", "round")
    assert 5 < len(rounds) < 40
    assert "scores" in rounds[0]
    assert "scores" not in rounds[-1]
    assert lines(tmp_path / "some", "end")[-1]["status"] == "finished"
    (_, runs) = shown(RunState(tmp_path / "some"))
    (told,) = runs.values()
    assert len(told["rows"]) == len(rounds), "curves go on where scores of single clients are left out"


def test_a_place_that_cannot_be_written_ends_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="cannot be written"):
        result = firma.run(method="local", **QUICK, live=tmp_path / "file" / "below")
    assert len(result.history) == 3


def test_how_a_run_ends_is_its_last_line(tmp_path):
    def stop(method, seed, outcome):
        raise KeyboardInterrupt if seed else RuntimeError("the sky fell")

    with pytest.raises(RuntimeError, match="sky"):
        firma.run(method="local", **QUICK, live=tmp_path, on_round=stop)
    with pytest.raises(KeyboardInterrupt):
        firma.run(method="local", **QUICK, live=tmp_path, on_round=stop, seed=1)
    ends = lines(tmp_path, "end")
    assert [each["status"] for each in ends] == ["failed", "interrupted"]
    assert ends[0]["error"] == "the sky fell"


def test_readers_know_whether_anybody_writes(tmp_path):
    assert is_written(tmp_path) is None
    with session(tmp_path, "title", "command", 1):
        assert is_written(tmp_path) is True
        with live_run(tmp_path):
            assert is_written(tmp_path) is True
        assert is_written(tmp_path) is True
    assert is_written(tmp_path) is False


def test_a_line_that_was_cut_off_waits_for_its_end(tmp_path):
    firma.run(method="local", **QUICK, live=tmp_path)
    path = tmp_path / LIVE_FILE
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    state, cursor = RunState(tmp_path), Cursor()
    _, runs = shown(state, cursor)
    (told,) = runs.values()
    assert (len(told["rows"]), told["end"]) == (3, None)
    assert state.changes(cursor) == []
    with path.open("ab") as file:
        file.write(whole[-40:] + b"no JSON\n[1]\n")
    ((message,), *_) = (state.changes(cursor),)
    assert not message["reset"]
    (told,) = message["runs"]
    assert (told["rows"], told["end"]["status"]) == ([], "finished")


def test_another_command_in_the_same_folder_starts_over(tmp_path, command):
    words = ["run", "--dataset", "digits", "--rounds", 2, "--set", "epochs=0", "--out", tmp_path, "--method"]
    assert command(*words, "local")[0] == 0
    state, cursor = RunState(tmp_path), Cursor()
    first, runs = shown(state, cursor)
    assert [each["facts"]["method"] for each in runs.values()] == ["local"]
    assert first["command"] == f"firma run --dataset digits --rounds 2 --set epochs=0 --out {tmp_path} --method local"
    assert first["runs"] == 1
    assert first["written"] is False
    assert command(*words, "fedavg", "--seeds", 2)[0] == 0
    (message,) = state.changes(cursor)
    assert message["reset"]
    assert [each["facts"]["method"] for each in message["runs"]] == ["fedavg", "fedavg"]


def test_results_without_the_file_are_shown_too(tmp_path, command):
    command("run", "--dataset", "digits", "--rounds", 2, "--set", "epochs=0", "--out", tmp_path, "--method", "local")
    _, live = shown(RunState(tmp_path))
    (tmp_path / LIVE_FILE).unlink()
    state = RunState(tmp_path, lambda: stored_events(tmp_path))
    _, stored = shown(state)
    (before,), ((name, after),) = live.values(), stored.items()
    assert [row[:4] for row in after["rows"]] == [row[:4] for row in before["rows"]]
    assert before["facts"]["label"] == after["facts"]["label"]
    assert before["facts"]["group"] == after["facts"]["group"], "a live run and a stored one of the same kind"
    assert len(state.data("scores", {"run": name})[1]) == 4 * 2 * 5
    assert state.data("scores", {"run": "another"}) is None


def test_a_sweep_is_one_file_that_is_no_cell_of_it(tmp_path, command):
    (tmp_path / "grid.toml").write_text(
        'dataset = "digits"\nmethod = ["local", "fedavg"]\nscenario = ["iid", "dir-0.1"]\nrounds = 2\n'
        "set = {epochs = 0}\n"
    )
    out = tmp_path / "out"
    assert command("sweep", tmp_path / "grid.toml", "--out", out, "--only", "method=local")[0] == 0
    assert command("sweep", tmp_path / "grid.toml", "--out", out)[0] == 0
    assert len(lines(out, "run")) == 2, "the second command ran two"
    assert len(read_folder(out).cells) == 4
    session, runs = shown(RunState(out, lambda: stored_events(out)))
    assert session["runs"] == 2
    labels = [each["facts"]["label"] for each in runs.values()]
    assert sorted(labels) == ["fedavg dir-0.1", "fedavg iid", "local dir-0.1", "local iid"], "each run once"
    assert sorted(each["facts"]["stored"] for each in runs.values()) == [False, False, True, True]


def test_a_run_of_a_sweep_that_fails_before_it_begins(tmp_path, command):
    (tmp_path / "grid.toml").write_text(
        'dataset = "digits"\nmethod = "fibfl"\nrounds = 1\nclients = [3, 2000]\nset = {extractor_epochs = 0}\n'
    )
    code, _, _ = command("sweep", tmp_path / "grid.toml", "--out", tmp_path / "out")
    assert code == 1
    _, runs = shown(RunState(tmp_path / "out", lambda: stored_events(tmp_path / "out")))
    ended = {each["facts"]["clients"]: each["end"]["status"] for each in runs.values()}
    assert ended == {3: "finished", 2000: "failed"}


def test_a_folder_of_runs_is_no_sweep(tmp_path, command):
    command("run", "--dataset", "digits", "--rounds", 1, "--set", "epochs=0", "--out", tmp_path, "--method", "local")
    assert (tmp_path / LIVE_FILE).exists()
    assert not has_cells(tmp_path)
    assert len(read_folder(tmp_path).cells) == 1


def test_runs_are_named_by_what_differs(tmp_path):
    for rate in (0.01, 0.02):
        firma.run(method="local", **QUICK | {"settings": {"epochs": 0, "rate": rate}}, live=tmp_path)
    firma.run(method="fedavg", **QUICK | {"settings": {"epochs": 0}}, live=LivePlace(tmp_path, "mine", "key"))
    _, runs = shown(RunState(tmp_path))
    assert [each["facts"]["label"] for each in runs.values()] == ["local rate=0.01", "local rate=0.02", "fedavg"]
