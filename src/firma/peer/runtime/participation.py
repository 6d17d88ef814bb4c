"""Who took part in which rounds, as a site knows it: kept with every checkpoint, told at the end of every run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

Parts = Sequence[tuple[int, ...] | None]  # members of each round in ring order; None: this site took no part


@dataclass(frozen=True, slots=True)
class Span:
    """Rounds `first` to `last`, from 1, with the same members; None: this site took no part, or does not know."""

    first: int
    last: int
    members: tuple[str, ...] | None

    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"rounds": [self.first, self.last], "members": None if self.members is None else list(self.members)}


def spans(parts: Parts, names: Sequence[str]) -> tuple[Span, ...]:
    """Rounds one after the other with the same members, joined."""
    found, done = [], 0
    for members, rounds in groupby(parts, lambda each: None if each is None else tuple(sorted(each))):
        count = len(list(rounds))
        named = None if members is None else tuple(names[member] for member in members)
        found.append(Span(done + 1, done + count, named))
        done += count
    return tuple(found)


def sentence(found: Sequence[Span], names: Sequence[str]) -> str:
    """For the operator: `rounds 1-9 all members; round 10 ant, cat (without bee)`."""
    return "; ".join(_told(span, names) for span in found) or "no round"


def _told(span: Span, names: Sequence[str]) -> str:
    rounds = f"round {span.first}" if span.first == span.last else f"rounds {span.first}-{span.last}"
    if span.members is None:
        return f"{rounds} without this site"
    missing = [name for name in names if name not in span.members]
    return f"{rounds} {', '.join(span.members)} (without {', '.join(missing)})" if missing else f"{rounds} all members"


def packed(parts: Parts) -> list[list[Any]]:
    """[[rounds, members], ...] for a checkpoint: rounds one after the other with the same members are counted."""
    return [[len(list(rounds)), None if members is None else list(members)] for members, rounds in groupby(parts)]


def unpacked(stored: Mapping[str, Any]) -> list[tuple[int, ...] | None]:
    """The inverse of `packed`, of a checkpoint's facts; those of version 0.3 have none: nothing is known."""
    rounds = int(stored["rounds"])
    if "parts" not in stored:
        return [None] * rounds
    found = [
        None if members is None else tuple(map(int, members))
        for count, members in stored["parts"]
        for _ in range(count)
    ]
    return (found + [None] * rounds)[:rounds]
