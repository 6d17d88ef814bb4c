"""Names of the kinds of heterogeneity and what they mean."""

import re
from dataclasses import dataclass

from firma.errors import BadInput

STUDY = ("iid", "dir-0.8", "dir-0.5", "dir-0.1", "skew-1", "skew-2", "skew-3")  # the paper's seven
_PLAIN = ("iid", "natural")
_NUMBERED = re.compile(r"(dir|quantity|rotate)-(\d+\.?\d*(?:e-?\d+)?|\.\d+)|(skew)-(\d+)")
CHOICES = (
    "iid, dir-ALPHA (such as dir-0.5), skew-K (such as skew-1), quantity-ALPHA (such as quantity-0.5), "
    "rotate-DEGREES (such as rotate-90) or natural"
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A kind of heterogeneity and its number, if it has one."""

    name: str
    number: float = 0.0


def parse(text: str) -> Scenario:
    """`iid` and `natural`; `dir-`, `quantity-` and `rotate-` with any positive number; `skew-K` with K ≥ 1 classes."""
    if text in _PLAIN:
        return Scenario(text)
    if found := _NUMBERED.fullmatch(text):
        scenario = Scenario(found[1] or found[3], float(found[2] or found[4]))
        if 0 < scenario.number < float("inf"):
            return scenario
    raise BadInput(f"scenario = {text!r}: choose {CHOICES}")
