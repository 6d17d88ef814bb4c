"""Five sites on loopback, some of which misbehave, and what can be read from their logs afterwards."""

import ctypes
import json
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from firma.methods import ROBUST_METHOD
from tests.peer.conftest import NAMES, free_ports, made_ring
from tests.peer.crew import CONTEXT, FAULTS, Crew
from tests.peer.proxy import Proxy
from tests.processes import wait_until

MEMBERS = 5
PATIENCE = 10.0  # seconds: with less, the results would depend on what else the machine does
SMALL = {"extractor_epochs": 2, "hidden": 32, "embedding": 16}  # where accuracy is not the question
LONG = 900.0  # seconds after which a ring counts as stopped for good


@dataclass(frozen=True, slots=True)
class Found:
    """What was measured: whether it is what is promised, one sentence for the table, and the figures."""

    kept: bool
    now: str
    facts: dict[str, Any] = field(default_factory=dict)


def _join(
    folder: str, number: int, words: tuple[str, ...], faults: tuple[Any, ...], pace: float, hold: Path | None
) -> None:
    """`firma join` in this process, after what is planted in it, and not before `hold` exists."""
    import os

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no member outlives the benchmark
    home = Path(folder) / NAMES[number]
    with (home / "out.txt").open("a") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    for fault, *where in (*faults, *([("slow", pace)] if pace else [])):
        FAULTS[fault](*where)
    import firma.cli.join
    import firma.peer.runtime.node  # noqa: F401
    from firma.cli import main

    if hold is not None:
        hold.with_suffix(".ready").touch()
        wait_until(hold.exists, LONG, f"{hold} is there")
    sys.argv = ["firma", "join", *words]
    main()


class Sites(Crew):  # type: ignore[misc]
    """The members of one ring, each of them `firma join`."""

    def start(self, number: int, *faults: Any, resume: bool = False, hold: Path | None = None) -> Any:
        made, listen = self.made, self.listen.get(number)
        words = [str(made.path), "--data", made.data(number), "--identity", str(made.identity(number))]
        words += ["--state", str(made.state(number)), *(["--listen", listen] if listen else [])]
        words += ["--resume"] if resume else []
        arguments = (str(made.folder), number, tuple(words), faults, self.pace, hold)
        process = CONTEXT.Process(target=_join, args=arguments, daemon=True)
        process.start()
        self.processes[number] = process
        return process

    def start_all(self, liar: int | None = None, *faults: Any) -> None:
        """All five; one of them with faults."""
        for number in range(len(self.made.ring.members)):
            self.start(number, *(faults if number == liar else ()))

    def wait(self, condition: Callable[[], Any], what: str) -> None:
        wait_until(condition, LONG, lambda: f"{what}; { ({NAMES[n]: self.out(n)[-800:] for n in self.processes}) }")

    def result(self, number: int) -> dict[str, Any] | None:
        path = self.made.state(number) / "result.json"
        return json.loads(path.read_text()) if path.exists() else None

    def accuracies(self) -> list[float | None]:
        """After the last round, by member; None where there is no result."""
        return [found["history"][-1] if (found := self.result(n)) else None for n in range(len(self.made.ring.members))]

    def done(self, number: int) -> int:
        """The highest round that a member has completed."""
        return max((rounds for _, rounds in self.rounds(number)), default=0)

    def when_done(self, number: int, rounds: int) -> float:
        """When a member completed a round first, in seconds since 1970."""
        return next(event["time"] for event in self.events(number, "round") if event["number"] == rounds)


@contextmanager
def five_sites(
    folder: Path, rounds: int, method: str = ROBUST_METHOD, scenario: str = "iid", pace: float = 0.0,
    proxied: int | None = None, members: int = MEMBERS, **changes: Any,
) -> Iterator[Sites]:  # fmt: skip
    """A ring on digits; one member may be behind a proxy (`sites.proxy`)."""
    changes = {"patience": PATIENCE, "gathering": 600.0, "set": SMALL} | changes
    made = made_ring(folder, method, members, rounds, scenario, **changes)
    listen, proxy = {}, None
    if proxied is not None:
        (inner,) = free_ports(1)
        listen[proxied] = f"127.0.0.1:{inner}"
        proxy = Proxy(int(made.ring.members[proxied].address.split(":")[1]), inner)
    sites = Sites(made, pace=pace, listen=listen)
    sites.proxy = proxy
    try:
        yield sites
    finally:
        sites.end()
        if proxy is not None:
            proxy.close()


def repeated(sites: Sites, members: Iterable[int]) -> int:
    """Completed rounds that a member did once more: the most over members."""
    return max(
        sum(max(0, earlier - later + 1) for (_, earlier), (_, later) in pairwise(sites.rounds(number)))
        for number in members
    )


def back(sites: Sites, members: Iterable[int]) -> int:
    """By how many rounds a member went back at most, from the last one that it had completed."""
    done = [[rounds for _, rounds in sites.rounds(number)] for number in members]
    return max(max(0, earlier - later) for each in done for earlier, later in pairwise(each))


def longest_stop(sites: Sites, members: Iterable[int], since: float = 0.0) -> float:
    """The longest time between two rounds of a member, in seconds."""
    times = [[event["time"] for event in sites.events(n, "round") if event["time"] >= since] for n in members]
    return max((after - before for each in times for before, after in pairwise(each)), default=0.0)


def told(sites: Sites, members: Iterable[int], liar: int, since: float) -> float | None:
    """Seconds until the first of these said that it waits for the liar, or gave it up."""
    name = NAMES[liar]
    found = [
        event["time"] - since
        for number in members
        for kind in ("awaiting", "left_out", "notice")
        for event in sites.events(number, kind)
        if event["time"] >= since and (name in event.get("members", ()) or f"{name}" in event.get("says", ""))
    ]
    return min(found, default=None)


def went_on(sites: Sites, members: Iterable[int], liar: int, since: float) -> float | None:
    """Seconds until all of these had completed a round in a view without the liar."""
    without = {number for number, (ring, _) in sites.views().items() if NAMES[liar] not in ring}
    times = []
    for number in members:
        done = [e["time"] for e in sites.events(number, "round") if e["view"] in without and e["time"] >= since]
        if not done:
            return None
        times.append(done[0] - since)
    return max(times)


def mean(values: Iterable[float | None]) -> float:
    known = [each for each in values if each is not None]
    return sum(known) / len(known) if known else float("nan")


def left_out_facts(sites: Sites, liar: int, since: float, timeout: float = LONG) -> dict[str, Any]:
    """What became of the four others of a member that began to misbehave at `since`; the ring is ended."""
    others = [n for n in range(len(sites.made.ring.members)) if n != liar]
    codes = sites.finish(*others, timeout=timeout)
    facts = {
        "codes": codes,
        "told": told(sites, others, liar, since),
        "went_on": went_on(sites, others, liar, since),
        "repeated": repeated(sites, others),
        "views": max(sites.views()),
        "out": sorted({name for each in sites.views().values() for name in NAMES[:MEMBERS] if name not in each[0]}),
        "accuracies": sites.accuracies(),
    }
    sites.end()
    return facts


def seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.0f} s" if value >= 9.5 else f"{value:.1f} s"


def wall() -> float:
    return time.time()
