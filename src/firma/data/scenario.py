"""Names of the kinds of heterogeneity and what they mean."""

import re
from dataclasses import dataclass

from firma.errors import BadInput

STUDY = ("iid", "dir-0.8", "dir-0.5", "dir-0.1", "skew-1", "skew-2", "skew-3")  # the paper's seven


@dataclass(frozen=True, slots=True)
class Scenario:
    """A kind of heterogeneity and its number, if it has one."""

    name: str
    number: float = 0.0


def parse(text: str) -> Scenario:
    """`iid`, `dir-ALPHA` with any positive number, or `skew-K` with K primary classes a client."""
    if text == "iid":
        return Scenario("iid")
    number = re.fullmatch(r"(dir)-(\d+\.?\d*(?:e-?\d+)?|\.\d+)|(skew)-(\d+)", text)
    if number:
        scenario = Scenario(number[1] or number[3], float(number[2] or number[4]))
        if scenario.number > 0:
            return scenario
    raise BadInput(f"scenario = {text!r}: choose iid, dir-ALPHA (such as dir-0.5) or skew-K (such as skew-1)")
