"""The results of the federation: what members that opted in say about their models, and the table of it.

Each member holds the newest result of every member that shares, whoever passed it on, in memory and in `summary.json`
of its state folder. Nothing in training reads it.
"""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from firma.atomic_files import write_whole
from firma.errors import BadInput
from firma.peer.identity import Identity
from firma.peer.ring_file import Ring, Sharing
from firma.peer.wire.results import (
    Result,
    SignedResult,
    is_genuine,
    plain_results,
    read_results,
    sign_result,
    told_value,
)
from firma.tasks.task import MAIN, TITLES

_FILE = "summary.json"
_SHOWN = 12  # classes in one line of text
Places = Mapping[int, tuple[int, int]]  # of the newest result of each member


def check_sharing(ring: Ring, wanted: Sharing) -> None:
    """Refuse to share what the members have not agreed on."""
    if wanted == "none" or ring.summary in (wanted, "classes"):
        return
    agreed = "no results are shared" if ring.summary == "none" else "no numbers per class are shared"
    instead = "remove it" if ring.summary == "none" else "pass --share-results accuracy"
    raise BadInput(
        f"--share-results {wanted}: the members agreed that {agreed} (summary = {ring.summary!r} in the ring file); "
        f"{instead}, or agree on a new ring file with firma ring-file --summary {wanted}"
    )


@dataclass(frozen=True)
class SiteResult:
    """One line of the table."""

    site: str
    round: int
    value: float | None  # None: it was not finite
    samples: int
    support: Mapping[str, int] = field(default_factory=dict)  # test samples per label; empty: not shared


@dataclass(frozen=True)
class Summary:
    """The table, and what follows from it; `silent` are members of whom there is no result here."""

    agreed: Sharing
    metric: str
    sites: tuple[SiteResult, ...]
    silent: tuple[str, ...]
    mean: float | None  # of the sites that share, each counted once
    lowest: float | None
    lowest_site: str | None

    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def line(self) -> str:
        """Mean and lowest in a sentence."""
        count = len(self.sites)
        shared = f"{count} of {count + len(self.silent)} sites share"
        if self.mean is None:
            return f"{shared} results"
        rounds = {each.round for each in self.sites}
        mixed = f", of rounds {min(rounds)} to {max(rounds)}" if len(rounds) > 1 else ""
        return (
            f"{shared} results: mean {self.metric} {self.mean:.4f}, lowest {self.lowest:.4f} at {self.lowest_site}"
            f"{mixed}"
        )

    def lines(self) -> Iterator[str]:
        """The table for people."""
        width = max((len(name) for name in (*(each.site for each in self.sites), *self.silent)), default=0)
        for each in self.sites:
            value = "not finite" if each.value is None else f"{each.value:.4f}"
            told = f"{each.site:{width}}  round {each.round}  {self.metric} {value}  {each.samples:,} test samples"
            yield told + (f" ({counted(each.support)})" if each.support else "")
        for name in self.silent:
            yield f"{name:{width}}  shares nothing, or nothing has arrived"


def counted(support: Mapping[str, int]) -> str:
    """Test samples per label in words."""
    told = ", ".join(f"{label}: {count}" for label, count in list(support.items())[:_SHOWN])
    return told + (f", … ({len(support)} classes)" if len(support) > _SHOWN else "")


def summarised(ring: Ring, held: Mapping[int, SignedResult]) -> Summary:
    """The table of what is known."""
    labels, found = ring.task.labels, []
    for number in sorted(held):
        each = held[number].result
        support = dict(zip(labels, each.support, strict=True)) if each.support else {}
        found.append(SiteResult(ring.names[number], each.round, each.value, each.samples, support))
    silent = tuple(name for number, name in enumerate(ring.names) if number not in held)
    values = [(each.value, each.site) for each in found if each.value is not None]
    lowest = min(values, default=(None, None))
    mean = sum(value for value, _ in values) / len(values) if values else None
    return Summary(ring.summary, TITLES[MAIN[ring.task.kind]], tuple(found), silent, mean, *lowest)


def read_summary(folder: Path, ring: Ring) -> Summary | None:
    """The table of a state folder; None if the members agreed on none."""
    return None if ring.summary == "none" else summarised(ring, _stored(folder, ring))


def changed(folder: Path) -> tuple[int, int]:
    """Time and size of the file that the table is read from; another one means that it must be read again."""
    try:
        found = (folder / _FILE).stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def _stored(folder: Path, ring: Ring) -> dict[int, SignedResult]:
    """What a state folder holds; a file that is damaged or of another ring is as good as none."""
    with suppress(OSError, ValueError, TypeError, RecursionError):
        found = read_results(ring, json.loads((folder / _FILE).read_text(encoding="utf-8")))
        return {each.result.member: each for each in found if is_genuine(ring, each)}
    return {}


class ResultBoard:
    """The newest result of each member, for several threads."""

    def __init__(self, ring: Ring, me: int, identity: Identity, shares: Sharing, folder: Path) -> None:
        self._ring, self._me, self._identity, self._shares, self._folder = ring, me, identity, shares, folder
        self._lock, self._dirty = threading.Lock(), False
        self._held = _stored(folder, ring)

    def post(self, view: int, number: int, value: float, samples: int, support: tuple[int, ...]) -> None:
        """This site's own result after a round, if it shares any; the consent's thread hands it to the others."""
        if self._shares == "none":
            return
        counts = support if self._shares == "classes" else ()
        result = Result(self._me, view, number, told_value(value), samples, counts)
        signed = sign_result(self._identity, self._ring.digest, result)
        with self._lock:
            self._held[self._me], self._dirty = signed, True

    def take(self, found: tuple[SignedResult, ...]) -> tuple[str, ...]:
        """Keep what is newer and signed by its member; names of members that have not signed what is said of them."""
        wrong = []
        for each in found:
            member = each.result.member
            with self._lock:
                held = self._held.get(member)
                if held is not None and held.result.place >= each.result.place:
                    continue
                if not is_genuine(self._ring, each):
                    wrong.append(self._ring.names[member])
                elif member != self._me:  # what this site said is known here best
                    self._held[member], self._dirty = each, True
        return tuple(wrong)

    def outgoing(self) -> tuple[SignedResult, ...]:
        """What is handed on: all that is known, but of this site nothing unless it shares now."""
        with self._lock:
            return tuple(each for member, each in self._held.items() if member != self._me or self._shares != "none")

    def done(self) -> bool:
        """Whether somebody has told its result after the last round."""
        with self._lock:
            return any(each.result.round == self._ring.rounds for each in self._held.values())

    def summary(self) -> Summary:
        """The table now."""
        with self._lock:
            return summarised(self._ring, dict(self._held))

    def save(self) -> None:
        """Write the file if there is something new; a disk that is full is no obstacle."""
        with self._lock:
            if not self._dirty:
                return
            content, self._dirty = json.dumps(plain_results(self._held.values())), False
        with suppress(OSError):
            write_whole(self._folder / _FILE, content + "\n", private=True)


def places(results: tuple[SignedResult, ...]) -> dict[int, tuple[int, int]]:
    """The place of each result, by member."""
    return {each.result.member: each.result.place for each in results}
