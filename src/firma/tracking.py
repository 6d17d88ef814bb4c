"""Curves of runs in TensorBoard and MLflow, written while the runs train.

Any function of (method, seed, outcome) is a tracker of your own: pass it as `on_round`. The two here are also told the
settings before the first round and the final metrics after the last. They never change a run, and a tracker that fails
in the middle of one (a server that restarts, a full disk) is left out with a warning instead of ending it.
"""

import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import numpy as np

from firma.atomic_files import check_writable
from firma.errors import BadInput

if TYPE_CHECKING:  # loading these would load torch
    from firma.engines.engine import RoundOutcome
    from firma.results import Result

Setting = str | int | float | bool
MOST_CLIENTS = 100  # with more clients, no curve per client: a page of a thousand curves helps nobody
EXPERIMENT = "firma"  # MLflow's name for a group of runs, unless MLFLOW_EXPERIMENT_NAME says otherwise


@dataclass(frozen=True)
class RunFacts:
    """A run before it starts: its method, its seed, what of its result's `config` is known, and its main metric."""

    method: str
    seed: int
    config: Mapping[str, Any]
    main: str = "accuracy"

    @property
    def name(self) -> str:
        """Name of the run at a tracker, fit for a folder: digits-dir-0.1-fibfl++-seed0."""
        words = f"{Path(str(self.config['dataset'])).name}-{self.config['scenario']}-{self.method}-seed{self.seed}"
        return re.sub(r"[^\w.+-]+", "-", words)

    @property
    def settings(self) -> dict[str, Setting]:
        """Everything that determined the run and is a single value; settings by the names that `--set` knows."""
        config = {name: value for name, value in self.config.items() if name not in ("settings", "hyper", "split")}
        settings = {**self.config.get("hyper", {}), **self.config.get("split", {})}
        return dict(_flat("", {"method": self.method, "seed": self.seed} | config | settings))


class Tracker(Protocol):
    """One run at one tracker."""

    def round(self, outcome: "RoundOutcome") -> None:
        """Record the curves after a round."""

    def finish(self, result: "Result") -> None:
        """Record the final metrics."""

    def close(self, status: str) -> None:
        """End the run: FINISHED, FAILED or KILLED (by Ctrl-C)."""


def check_trackers(tensorboard: str | Path | None, mlflow: str | Path | None) -> None:
    """Refuse, before anything is trained, what cannot work: packages, folders and servers that are not there."""
    if tensorboard is not None:
        if find_spec("tensorboard") is None:
            raise BadInput("--tensorboard requires the package tensorboard: pip install 'firma[tensorboard]'")
        check_writable(Path(tensorboard), "tensorboard")
    if mlflow is not None:
        if find_spec("mlflow") is None:
            raise BadInput("--mlflow requires the package mlflow: pip install 'firma[mlflow]'")
        _check_mlflow(mlflow)


@contextmanager
def tracked(tensorboard: str | Path | None, mlflow: str | Path | None, facts: RunFacts) -> Iterator[Tracker]:
    """The run at each tracker that was asked for; it is closed there, with its status, however the run ends."""
    trackers = _Trackers()
    if tensorboard is not None:
        trackers.add("tensorboard", tensorboard, lambda: TensorBoard(Path(tensorboard), facts))
    if mlflow is not None:
        trackers.add("mlflow", mlflow, lambda: MLflow(mlflow, facts))
    status = "FAILED"
    try:
        yield trackers
        status = "FINISHED"
    except (KeyboardInterrupt, GeneratorExit):
        status = "KILLED"
        raise
    finally:
        trackers.close(status)


def curves(outcome: "RoundOutcome", main: str) -> dict[str, float]:
    """What is drawn over rounds, by name; `main` is the name of the task's main metric.

    Of the main metric there is the mean, the worst client and each client; of every other metric, the mean over the
    clients that have it; and the bytes sent. A metric that no client has in this round is left out.
    """
    scores = outcome.scores
    found = {f"{main}/mean": float(scores.mean()), f"{main}/worst": float(scores.min())}
    for name, values in outcome.metrics.items():
        present = values[~np.isnan(values)]
        found |= {f"{name}/mean": float(present.mean())} if len(present) else {}
    each = enumerate(scores) if len(scores) <= MOST_CLIENTS else ()
    found |= {f"clients/{main}_{client}": float(score) for client, score in each}
    return found | {"sent/bytes": float(outcome.sent_bytes)}


class _Trackers:
    """Several trackers as one; one that fails is left out with a warning."""

    def __init__(self) -> None:
        self.open: dict[str, Tracker] = {}

    def add(self, name: str, place: str | Path, start: Callable[[], Tracker]) -> None:
        """Start a tracker; at this point nothing has been trained, so a failure is the user's to mend."""
        try:
            self.open[name] = start()
        except Exception as error:
            self.close("FAILED")
            raise BadInput(f"{name} = {str(place)!r}: cannot record there ({_first_line(error)})") from error

    def round(self, outcome: "RoundOutcome") -> None:
        self._all(lambda tracker: tracker.round(outcome))

    def finish(self, result: "Result") -> None:
        self._all(lambda tracker: tracker.finish(result))

    def close(self, status: str) -> None:
        self._all(lambda tracker: tracker.close(status))

    def _all(self, act: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self.open.items()):
            try:
                act(tracker)
            except Exception as error:
                del self.open[name]
                warnings.warn(
                    f"{name} failed, and the rest of this run is not recorded there ({_first_line(error)})",
                    UserWarning,
                    stacklevel=2,
                )


class TensorBoard:
    """A run in a folder of its own under `folder`; `tensorboard --logdir FOLDER` shows all of them."""

    def __init__(self, folder: Path, facts: RunFacts) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.facts = facts
        self.folder = _new_folder(folder, facts.name)
        self.writer: Any = SummaryWriter(str(self.folder), flush_secs=10)
        rows = "\n".join(f"| {name} | {value} |" for name, value in facts.settings.items())
        self.writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}")

    def round(self, outcome: "RoundOutcome") -> None:
        """Add a point to every curve; rounds count from 1, as in all output."""
        for name, value in curves(outcome, self.facts.main).items():
            self.writer.add_scalar(name, value, outcome.number + 1)

    def finish(self, result: "Result") -> None:
        """Add the run to the HPARAMS tab, with its settings and final metrics."""
        metrics = {f"final/{name}": value for name, value in result.metrics.items() if value is not None}
        self.writer.add_hparams(self.facts.settings, metrics, run_name=".")

    def close(self, status: str) -> None:
        """Write everything that is left."""
        self.writer.close()


class MLflow:
    """A run at an MLflow tracking server, or in a database in a folder; no state of the mlflow module is changed."""

    def __init__(self, place: str | Path, facts: RunFacts) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self.facts = facts
        self.client = MlflowClient(tracking_uri=mlflow_uri(place))
        self.run = self.client.create_run(self._experiment(place), run_name=facts.name).info.run_id
        values = [Param(name, str(value)) for name, value in facts.settings.items()]
        for start in range(0, len(values), 100):  # the most that a server takes at a time
            self.client.log_batch(self.run, params=values[start : start + 100])

    def _experiment(self, place: str | Path) -> str:
        import os

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        found = self.client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        folder = _database_folder(place)
        files = (folder.resolve() / "artifacts").as_uri() if folder is not None else None
        return str(self.client.create_experiment(name, artifact_location=files))

    def round(self, outcome: "RoundOutcome") -> None:
        """Log every curve at this round; rounds count from 1, as in all output."""
        self._log(curves(outcome, self.facts.main), outcome.number + 1)

    def finish(self, result: "Result") -> None:
        """Log the final metrics."""
        metrics = {f"final/{name}": float(value) for name, value in result.metrics.items() if value is not None}
        self._log(metrics, len(result.history))

    def close(self, status: str) -> None:
        """Tell MLflow how the run ended; it prints the run's address, for which stdout is the wrong place."""
        with redirect_stdout(sys.stderr):
            self.client.set_terminated(self.run, status)

    def _log(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self.client.log_batch(self.run, [Metric(name, value, now, step) for name, value in values.items()])


def mlflow_uri(place: str | Path) -> str:
    """`place` itself if it is a URI, else that of a SQLite database in this folder."""
    folder = _database_folder(place)
    return str(place) if folder is None else f"sqlite:///{folder.resolve() / 'mlflow.db'}"


def _database_folder(place: str | Path) -> Path | None:
    text = str(place)
    return None if "://" in text or text.startswith("databricks") else Path(place)


def _check_mlflow(place: str | Path) -> None:
    """A folder must be writable; a server must answer: MLflow itself would try again for minutes before it says so."""
    import socket

    folder = _database_folder(place)
    if folder is not None:
        if find_spec("sqlalchemy") is None or find_spec("alembic") is None:
            raise BadInput("--mlflow FOLDER requires sqlalchemy and alembic: pip install 'firma[mlflow]'")
        check_writable(folder, "mlflow")
        return
    try:
        address = urlsplit(str(place))
        if address.scheme in ("http", "https") and address.hostname:
            port = address.port or (443 if address.scheme == "https" else 80)
            socket.create_connection((address.hostname, port), timeout=10).close()
    except (OSError, ValueError) as error:
        raise BadInput(f"mlflow = {str(place)!r}: cannot connect ({_first_line(error)})") from None


def _new_folder(parent: Path, name: str) -> Path:
    """A folder that does not exist yet: curves of two runs in one folder would be drawn as one."""
    folder, number = parent / name, 1
    while True:
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            number += 1
            folder = parent / f"{name}-{number}"


def _flat(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Setting]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{prefix}{name}.", value)
        elif value is None:
            yield f"{prefix}{name}", "none"
        elif isinstance(value, str | int | float | bool):
            yield f"{prefix}{name}", value


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]
