"""Where a member is, as its state folder tells: the ring file, the log, and whether a process holds the lock."""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from firma.errors import BadInput
from firma.peer.ring_file import Ring, read_ring
from firma.peer.runtime.federation_results import Summary, read_summary
from firma.peer.runtime.json_lines import lines_of
from firma.peer.runtime.rotating_lines import parts
from firma.peer.runtime.state_folder import holder
from firma.tasks.task import MAIN, TITLES

_RECENT = 10  # rounds whose seconds say how long the others will take


@dataclass(frozen=True)
class Status:
    """What can be said about a member from outside."""

    federation: str
    site: str
    process: str  # that uses the state folder, such as "1234 on host-a"; "" if it is not running
    round: int  # the last that is completed
    rounds: int
    members: tuple[str, ...]  # of the ring now, in order; empty before the first view
    missing: tuple[str, ...]  # members of the ring file that are not in it
    condition: str  # what the member last told its operator, if that still holds
    awaited: tuple[str, ...]  # who is waited for at present, for how long and why
    since: float | None  # seconds since the last event
    left: float | None  # seconds until the last round, if rounds go on as they did
    metric: str  # what is measured after each round on this site's test data
    value: float | None  # of it, after the last round
    ended: str  # how the last run ended; "" while it runs
    asked: tuple[str, ...] = ()  # members that ask to stop the ring
    needed: int = 0  # so many must ask
    stopped: bool = False  # it was stopped by agreement
    results: Summary | None = None  # of the members that share theirs; None: the ring has no summary

    @property
    def finished(self) -> bool:
        """Whether all rounds are done, or the ring was stopped by agreement."""
        return self.round == self.rounds or self.stopped

    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self) | {"finished": self.finished}

    def lines(self) -> Iterator[str]:
        """For people."""
        doing = f"running as process {self.process}" if self.process else "not running"
        if self.finished and not self.process:
            doing = "stopped by agreement" if self.stopped else "finished"
        yield f"{self.federation}: {self.site} is {doing}"
        reached = f", {self.metric} {self.value:.4f}" if self.value is not None else ""
        left = f", about {_duration(self.left)} left" if self.left and self.process else ""
        yield f"  round {self.round} of {self.rounds}{reached}{left}"
        if self.members:
            yield f"  in the ring: {', '.join(self.members)}"
        if self.missing:
            yield f"  not in it: {', '.join(self.missing)}"
        if self.process:
            yield from (f"  {each}" for each in self.awaited)
        if self.condition and self.process:
            yield f"  {self.condition}"
        if self.ended and not self.process and not self.finished:
            yield f"  ended: {self.ended}"
        if self.asked:
            yield f"  asked to stop: {', '.join(self.asked)} ({len(self.asked)} of the {self.needed} that are needed)"
        if self.since is not None:
            yield f"  last event {_duration(self.since)} ago"
        if self.results is not None:
            yield f"  results of the federation: {self.results.line()}"
            yield from (f"    {each}" for each in self.results.lines())


def read_status(folder: Path) -> Status:
    """The status of the member whose state folder this is; nothing is changed."""
    copy, log = folder / "ring.toml", folder / "log.jsonl"
    if not copy.exists():
        raise BadInput(f"state folder {str(folder)!r}: no ring.toml there; pass the --state of firma join")
    ring = read_ring(copy)
    try:
        lines = [line.value for each in parts(log) for line in lines_of(each) if line.value is not None]
    except OSError as error:
        raise BadInput(f"log file {str(log)!r}: cannot be read ({error.strerror})") from None
    found = status_of(ring, [line for line in lines if isinstance(line.get("event"), str)], holder(folder))
    return replace(found, results=read_summary(folder, ring))


def status_of(ring: Ring, events: list[dict[str, Any]], process: str) -> Status:
    """The status that the events of a log tell, of which older ones than the last of each kind may be missing."""
    rounds = [each for each in events if each["event"] == "round"]
    views = [each for each in events if each["event"] == "view"]
    starts = [each for each in events if each["event"] == "started"]
    members = tuple(views[-1]["ring"]) if views else ()
    asked = [each for each in events if each["event"] == "asked to stop"]
    done = _done(rounds, views, starts)
    seconds = [float(each["seconds"]) for each in rounds[-_RECENT:]]
    main = MAIN[ring.task.kind]
    return Status(
        ring.federation,
        str(starts[-1]["site"]) if starts else "this site",
        process,
        done,
        ring.rounds,
        members,
        tuple(name for name in ring.names if name not in members),
        _condition(events),
        _awaited(events),
        max(0.0, time.time() - float(events[-1]["time"])) if events else None,
        median(seconds) * (ring.rounds - done) if seconds and done < ring.rounds else None,
        TITLES[main],
        rounds[-1].get(main) if rounds else None,
        "" if process else _ended(events),
        tuple(asked[-1]["by"]) if asked else (),
        ring.needed,
        any(each["event"] == "stopped by agreement" for each in events),
    )


def _done(rounds: list[dict[str, Any]], views: list[dict[str, Any]], starts: list[dict[str, Any]]) -> int:
    """Rounds that are completed: the last that was logged, unless a later view or start says from where it went on."""
    marks = [(float(each["time"]), int(each["number"])) for each in rounds[-1:]]
    marks += [(float(each["time"]), int(each["from_round"]) - 1) for each in views[-1:]]
    marks += [(float(each["time"]), int(each["rounds"])) for each in starts[-1:]]
    return max(marks, default=(0.0, 0))[1]


def _condition(events: list[dict[str, Any]]) -> str:
    """The last notice, unless a round or a view came after it; who is waited for is told apart from it."""
    for each in reversed(events):
        if each["event"] in ("round", "view", "stopped"):
            return ""
        says = str(each.get("says", ""))
        if each["event"] == "notice" and not (says.startswith("waiting for ") and ": it " in says):
            return says if not says.startswith("the wait for ") else ""
    return ""


def _awaited(events: list[dict[str, Any]]) -> tuple[str, ...]:
    """Who is waited for, by the last line about it."""
    for each in reversed(events):
        if each["event"] in ("view", "stopped", "started"):
            return ()
        if each["event"] == "awaiting":
            found = [(str(name), dict(facts)) for name, facts in dict(each.get("members", {})).items()]
            ago = max(0.0, time.time() - float(each["time"]))
            return tuple(
                f"waiting for {name} for {_duration(ago + float(facts['seconds']))}: {facts['why']}"
                for name, facts in found
            )
    return ()


def _ended(events: list[dict[str, Any]]) -> str:
    last = events[-1] if events else {}
    failed = next((each for each in reversed(events[-3:]) if each["event"] == "failed"), None)
    if failed is not None:
        return str(failed.get("why", ""))
    return "stopped" if last.get("event") == "stopped" else "killed, or its machine went down"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
