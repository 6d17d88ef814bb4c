"""The progress of runs as a file, `live.jsonl`: what `firma watch FOLDER` and `firma run --live` show in a browser.

One JSON object per line, each written whole; `event` says what it is:

    session   a command began: its title, the command itself, how many runs it will make
    run       a run began: method, seed, settings, the ring or graph, and which classes each client holds
    round     a round is over: scores of the clients, bytes, seconds, the weights and gates of its first pass
    end       a run is over: finished, failed (and why) or interrupted

Simulation and Ray write it from the process that the user started; a sweep writes all of its runs into one file. It is
bounded: beyond `_WHOLE` bytes rounds are written without the scores of single clients, beyond `_MOST` not at all.
Whoever writes holds a shared lock of the operating system on the file, so that a reader knows whether anybody does.
"""

import json
import math
import os
import secrets
import socket
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from firma.atomic_files import write_whole

if TYPE_CHECKING:  # loading these would load torch
    from firma.engines.engine import Federation, RoundOutcome

LIVE_FILE = "live.jsonl"
FORMAT = 1
_WHOLE, _MOST = 48_000_000, 64_000_000  # bytes of the file
_MANY = 200  # clients beyond which weights are written once a second, not in every round
_MOST_LINKS = 20_000  # beyond this, weights of links are left out
_MOST_HELD = 200_000  # clients times classes beyond which nobody can see who holds what
Facts = dict[str, Any]


@dataclass(frozen=True)
class LivePlace:
    """Where a run's progress goes; in a sweep also what the run is called, its key, and the command that repeats it."""

    folder: Path
    name: str = ""
    key: str = ""
    command: str = ""


def begin(folder: Path, title: str, command: str, runs: int) -> None:
    """A new `live.jsonl`: what an earlier command wrote there is replaced, and readers notice."""
    process = f"{os.getpid()} on {socket.gethostname()}"
    facts = {"format": FORMAT, "title": title, "command": command, "runs": runs, "process": process}
    write_whole(folder / LIVE_FILE, _line("session", facts))


@contextmanager
def session(folder: Path, title: str, command: str, runs: int) -> Iterator[None]:
    """A command that makes `runs` runs: while the block lasts, readers know that more is to come.

    A folder that cannot be written is reported once; it is not a reason to end the runs.
    """
    try:
        begin(folder, title, command, runs)
        file = (folder / LIVE_FILE).open("a", encoding="utf-8")
    except OSError as error:
        _warn(folder, error)
        yield
        return
    with file:
        _hold(file)
        yield


class LiveRun:
    """One run; lines are appended to the file, or nowhere (None)."""

    def __init__(self, place: LivePlace | None) -> None:
        self._place, self._id = place, secrets.token_hex(6)
        self._file: TextIO | None = None
        self._weights_at = self._last = time.perf_counter()
        if place is not None:
            try:
                place.folder.mkdir(parents=True, exist_ok=True)
                file = (place.folder / LIVE_FILE).open("a", encoding="utf-8")
            except OSError as error:
                _warn(place.folder, error)
                return
            _hold(file)
            self._file = file

    @property
    def on(self) -> bool:
        """Whether anything is written; if not, nothing needs to be prepared."""
        return self._file is not None

    def write(self, event: str, facts: Mapping[str, Any]) -> None:
        """One line."""
        if self._file is None or (event == "round" and self._file.tell() > _MOST):
            return
        try:
            self._file.write(_line(event, {"id": self._id, **facts}))
            self._file.flush()
        except OSError as error:  # such as a full disk
            assert self._place is not None  # there is a file
            _warn(self._place.folder, error)
            self.close()

    def round(self, run: "Federation", outcome: "RoundOutcome") -> None:
        """A round is over; its seconds are those since the run or the last round began, saving included."""
        if self._file is None:
            return
        now = time.perf_counter()
        facts = round_facts(outcome.number + 1, outcome.scores.tolist(), outcome.sent_bytes, outcome.messages)
        if self._file.tell() > _WHOLE:
            del facts["scores"]
        facts |= {"took": round(now - self._last, 4)}
        facts |= {"seconds": {name: round(value, 4) for name, value in outcome.seconds.items()}}
        facts |= {"metrics": {name: _number(_mean(values.tolist())) for name, values in outcome.metrics.items()}}
        last = outcome.number + 1 == run.rounds
        if outcome.seconds and (run.clients <= _MANY or last or now - self._weights_at > 1):
            self._weights_at = now
            facts |= weight_facts(run, outcome)
        self._last = now
        self.write("round", facts)

    def close(self) -> None:
        """No more lines."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None


@contextmanager
def live_run(place: "str | Path | LivePlace | None") -> Iterator[LiveRun]:
    """A run's part of the file; however the block ends, the last line says so."""
    if isinstance(place, str | Path):
        place = LivePlace(Path(place))
    run = LiveRun(place)
    try:
        yield run
    except (KeyboardInterrupt, GeneratorExit):
        run.write("end", {"status": "interrupted"})
        raise
    except Exception as error:
        run.write("end", {"status": "failed", "error": (str(error) or type(error).__name__)[:2000]})
        raise
    finally:
        run.close()


def round_facts(number: int, scores: Sequence[float], sent: int, messages: int) -> Facts:
    """What a `round` line says whatever made the run: round from 1, mean, worst and all scores, what was sent."""
    return {
        "round": number, "mean": _number(_mean(scores)), "worst": _number(min(scores)), "bytes": sent,
        "messages": messages, "scores": [_number(score) for score in scores],
    }  # fmt: skip


def held(proportions: Iterable[Sequence[float]], sizes: Sequence[int]) -> list[list[int]]:
    """(N, classes) samples of each class at each client, from proportions; empty if nobody could see them."""
    found = [[round(share * size) for share in row] for row, size in zip(proportions, sizes, strict=True)]
    return found if sum(map(len, found)) <= _MOST_HELD else []


def weight_facts(run: "Federation", outcome: "RoundOutcome") -> Facts:
    """The weights of a round's first pass and what the gate made of them.

    `links` are [receiver, sender, weight], a client's own weight included; `shares` are [client, weight] of an average
    that all receive. Neither where weights have no meaning (order statistics) or are too many to be seen.
    """
    plan = run.plan(outcome.number)
    ring = run.ring(plan)
    facts: Facts = {"mixing": plan.mixing, "passes": plan.passes}
    if plan.participants is not None:
        facts["participants"] = list(ring)
    if plan.gate is not None and outcome.claimed:
        claimed = {client: _number(value) for client, value in sorted(outcome.claimed.items())}
        below = [client for client, value in claimed.items() if value is None or value < plan.gate.threshold]
        facts["gate"] = {"threshold": plan.gate.threshold, "below": below, "claimed": list(claimed.items())}
    if plan.combine not in ("mean", "clipped"):
        return facts
    from firma.mixing import graph
    from firma.mixing import ring as ring_mixing
    from firma.mixing.kind import Average, kind_of
    from firma.mixing.ring_order import neighbours

    if plan.mixing == "ring" and (outcome.claimed or plan.gate is None):
        claims = outcome.claimed or dict.fromkeys(ring, 1.0)
        rows = {}
        for client, (left, right) in neighbours(ring).items():
            row = ring_mixing.row(plan, claims[left], claims[right])
            rows[client] = [(client, row.own), (left, row.left), (right, row.right)]
        facts["links"] = [[me, other, _number(weight)] for me, each in rows.items() for other, weight in each]
    elif plan.mixing == "graph" and plan.graph is not None and plan.graph.topology != "complete":
        turn = plan.number * plan.passes
        found = ((me, other, weight) for me in ring for other, weight in graph.row(plan.graph, ring, me, turn).items())
        facts["links"] = [[me, other, _number(weight)] for me, other, weight in found]
    elif plan.mixing in ("star", "all-reduce", "graph"):
        mixture = kind_of(plan.mixing).mixture(plan, ring, run.sizes_in(plan.number), outcome.claimed)
        if isinstance(mixture, Average):
            weights = zip(sorted(ring), mixture.weights.tolist(), strict=True)
            facts["shares"] = [[client, round(weight, 6)] for client, weight in weights]
    if len(facts.get("links", ())) > _MOST_LINKS:
        del facts["links"]
    return facts


def is_written(folder: Path) -> bool | None:
    """Whether a process still writes `live.jsonl`; None where the operating system cannot tell."""
    if os.name != "posix":
        return None
    import fcntl

    try:
        with (folder / LIVE_FILE).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def _hold(file: TextIO) -> None:
    """Show that this process writes; a reader holds the file for microseconds only."""
    if os.name == "posix":
        import fcntl

        with suppress(OSError):  # such as a network disk without locks
            fcntl.flock(file, fcntl.LOCK_SH)


def _line(event: str, facts: Mapping[str, Any]) -> str:
    stamp = {"event": event, "time": round(time.time(), 3)}
    return json.dumps(stamp | dict(facts), allow_nan=False, separators=(",", ":"), default=str) + "\n"


def _number(value: float) -> float | None:
    """For JSON: four digits, None in place of NaN and infinity."""
    return round(value, 4) if math.isfinite(value) else None


def _mean(values: Sequence[float]) -> float:
    """Over the clients that have a value."""
    found = [value for value in values if not math.isnan(value)]
    return math.fsum(found) / len(found) if found else math.nan


def _warn(folder: Path, error: OSError) -> None:
    warnings.warn(
        f"{folder / LIVE_FILE} cannot be written ({error.strerror}); the run goes on, firma watch cannot follow it",
        UserWarning,
        stacklevel=3,
    )
