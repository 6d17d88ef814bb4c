"""TensorBoard and MLflow show what a run did; what they show is read back with their own readers.

Tested with tensorboard 2.21.0 and mlflow-skinny 3.17.2. CI installs tensorboard; MLflow brings 40 packages, so its test
runs where `pip install 'firma[mlflow]'` was run.
"""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import firma
from firma import tracking
from firma.errors import BadInput

# Both packages warn of their own use of deprecated functions.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
FEW = {"scenario": "dir-0.1", "method": "fibfl", "rounds": 3, "settings": {"extractor_epochs": 1}}


@pytest.fixture
def mlflow(monkeypatch):
    package = pytest.importorskip("mlflow", reason="needs pip install 'firma[mlflow]'")
    pytest.importorskip("sqlalchemy", reason="needs pip install 'firma[mlflow]'")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    return package


def test_tensorboard_shows_every_round_the_settings_and_the_final_metrics(tmp_path):
    pytest.importorskip("tensorboard", reason="needs pip install 'firma[tensorboard]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    plain = firma.run("digits", **FEW)
    result = firma.run("digits", tensorboard=tmp_path, **FEW)
    assert np.array_equal(result.history, plain.history)
    (folder,) = tmp_path.iterdir()
    assert folder.name == "digits-dir-0.1-fibfl-seed0"
    events = EventAccumulator(str(folder))
    events.Reload()

    def curve(name):
        return [(event.step, event.value) for event in events.Scalars(name)]

    rounds = [1, 2, 3]
    assert curve("accuracy/mean") == [(n, np.float32(v)) for n, v in zip(rounds, result.history.mean(1), strict=True)]
    assert curve("accuracy/worst") == [(n, np.float32(v)) for n, v in zip(rounds, result.history.min(1), strict=True)]
    assert curve("clients/accuracy_4") == [
        (n, np.float32(v)) for n, v in zip(rounds, result.history[:, 4], strict=True)
    ]
    assert curve("sent/bytes") == [(n, np.float32(v)) for n, v in zip(rounds, result.sent_bytes, strict=True)]
    assert curve("final/worst_client")[-1][1] == np.float32(result.metrics["worst_client"])
    (text,) = events.Tensors("settings/text_summary")
    assert b"| extractor_epochs | 1 |" in text.tensor_proto.string_val[0]
    assert "_hparams_/session_start_info" in events.summary_metadata
    firma.run("digits", tensorboard=tmp_path, **FEW)
    assert sorted(each.name for each in tmp_path.iterdir()) == [folder.name, f"{folder.name}-2"]


def test_mlflow_has_every_round_the_settings_the_final_metrics_and_how_a_run_ended(tmp_path, mlflow, capsys):
    result = firma.run("digits", mlflow=tmp_path, **FEW)

    def stop(_method, _seed, outcome):
        if outcome.number == 1:
            raise KeyboardInterrupt

    def fail(*_):
        raise KeyError("mine")

    for wrong, error in ((stop, KeyboardInterrupt), (fail, KeyError)):
        with pytest.raises(error):
            firma.run("digits", mlflow=tmp_path, on_round=wrong, **FEW)
    assert capsys.readouterr().out == ""
    client = mlflow.MlflowClient(tracking.mlflow_uri(tmp_path))
    experiment = client.get_experiment_by_name("firma").experiment_id
    failed, stopped, done = client.search_runs([experiment])  # the newest first
    assert [each.info.status for each in (done, stopped, failed)] == ["FINISHED", "KILLED", "FAILED"]
    assert done.info.run_name == "digits-dir-0.1-fibfl-seed0"
    assert done.data.params["extractor_epochs"] == "1"
    assert done.data.params["scenario"] == "dir-0.1"
    for name, expected in (("accuracy/mean", result.history.mean(1)), ("clients/accuracy_4", result.history[:, 4])):
        points = client.get_metric_history(done.info.run_id, name)
        assert [(point.step, point.value) for point in points] == [*enumerate(expected, 1)]
    assert done.data.metrics["final/mean_accuracy"] == result.metrics["mean_accuracy"]
    assert [point.step for point in client.get_metric_history(stopped.info.run_id, "accuracy/mean")] == [1, 2]


def test_the_command_line_and_toml_know_the_trackers(command, tmp_path):
    pytest.importorskip("tensorboard", reason="needs pip install 'firma[tensorboard]'")
    (tmp_path / "a.toml").write_text(f'tensorboard = "{tmp_path}/curves"\nrounds = 1\nset = {{epochs = 0}}\n')
    code, _, err = command("run", tmp_path / "a.toml", "--method", "local", "--method", "fedavg", "--seeds", "2")
    assert (code, err) == (0, "")
    assert sorted(each.name for each in (tmp_path / "curves").iterdir()) == [
        "digits-skew-1-fedavg-seed0", "digits-skew-1-fedavg-seed1", "digits-skew-1-local-seed0",
        "digits-skew-1-local-seed1",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_missing_package_is_named_before_anything_is_trained(command, monkeypatch, tmp_path, name):
    monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    code, out, err = command("run", f"--{name}", tmp_path / "new", "--dataset", "no-such-data")
    assert (code, out) == (2, "")
    assert err == f"firma: --{name} requires the package {name}: pip install 'firma[{name}]'\n"
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_written_are_refused_before_anything_is_trained(tmp_path, mlflow):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"mlflow = '.*file': cannot write to this folder \(it is a file\)"):
        firma.run("no-such-data", mlflow=tmp_path / "file")
    with pytest.raises(BadInput, match=r"mlflow = 'http://127.0.0.1:1': cannot connect \(.*refused\)"):
        firma.run("no-such-data", mlflow="http://127.0.0.1:1")


class FullDisk:
    """A tracker whose disk is full after the first round."""

    def __init__(self):
        self.rounds, self.closed = [], []

    def round(self, outcome):
        if outcome.number:
            raise OSError(28, "No space left on device")
        self.rounds.append(outcome.number)

    def finish(self, result):
        raise AssertionError("left out by then")

    def close(self, status):
        raise AssertionError("left out by then")


def test_a_tracker_that_fails_is_left_out_with_a_warning():
    from firma.engines.engine import RoundOutcome

    trackers, full = tracking._Trackers(), FullDisk()
    trackers.add("full", "place", lambda: full)
    outcomes = [RoundOutcome(number, np.zeros(2), 0, 0) for number in range(3)]
    trackers.round(outcomes[0])
    with pytest.warns(UserWarning, match="full failed, and the rest of this run is not recorded there .*No space left"):
        trackers.round(outcomes[1])
    trackers.round(outcomes[2])
    trackers.close("FINISHED")
    assert full.rounds == [0]


def test_a_thousand_clients_share_two_curves():
    from firma.engines.engine import RoundOutcome

    scores = np.linspace(0, 1, 1000)
    assert tracking.curves(RoundOutcome(0, scores, 8, 1), "accuracy") == {
        "accuracy/mean": pytest.approx(0.5), "accuracy/worst": 0.0, "sent/bytes": 8.0,
    }  # fmt: skip


def test_curves_are_those_of_the_task():
    """A metric that some clients lack is the mean of the others; one that all lack is left out."""
    from firma.engines.engine import RoundOutcome

    others = {"loss": np.array([1.0, 3.0]), "roc_auc": np.array([0.5, np.nan]), "mae": np.full(2, np.nan)}
    assert tracking.curves(RoundOutcome(0, np.array([-0.5, 0.5]), 8, 1, others), "r2") == {
        "r2/mean": 0.0, "r2/worst": -0.5, "loss/mean": 2.0, "roc_auc/mean": 0.5, "clients/r2_0": -0.5,
        "clients/r2_1": 0.5, "sent/bytes": 8.0,
    }  # fmt: skip


def test_the_documented_tracker_of_your_own_runs(capsys):
    document = (Path(__file__).parent.parent / "docs" / "tracking.md").read_text()
    (code,) = re.findall(r"<!-- tried by tests/test_tracking.py -->\n```python\n(.*?)```", document, re.DOTALL)
    exec(compile(code, "tracking.md", "exec"), {})
    rows = [line.split(",") for line in capsys.readouterr().out.splitlines()]
    assert [row[:3] for row in rows] == [["fibfl", "0", "1"], ["fibfl", "0", "2"], ["fibfl", "0", "3"]]
    assert all(0 <= float(row[4]) <= float(row[3]) <= 1 for row in rows)


def test_names_of_runs_are_names_of_folders():
    config = {"dataset": "/data/my set.csv", "scenario": "natural"}
    assert tracking.RunFacts("fibfl++:order=given", 3, config).name == "my-set.csv-natural-fibfl++-order-given-seed3"
