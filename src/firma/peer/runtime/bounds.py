"""How large an extractor that arrives may be: finite values can be absurd, and 3e38 would poison everybody. Pure.

What a member sends is compared with this site's own extractor, in norms over all that is mixed:

    ‖received‖ ≤ FACTOR · max(min(‖own‖, GROWTH · ‖own after the round before‖), SMALLEST · √elements)

`own` is what this site has trained in the round. In an all-reduce, what arrives is a sum over members of one piece: its
mean, the sum divided by the weight behind it, must lie within the same bound. In honest runs (`benchmarks/bounds.py`:
digits and MNIST, up to 20 members, very uneven data, separate initial values, ten times the usual learning rate) no
extractor was larger than 2.0 times another of the same round (1.05 with the recommended numbers), and none grew by more
than 2.2 in one round: FACTOR is four times that. What is larger is treated as missing.

The bounds keep absurd values out. They do not stop a lie of an ordinary size: that is what a robust `combine` is for.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from firma.protocol import Message

FACTOR = 8.0  # that a received extractor may be larger than this site's own
GROWTH = 4.0  # that this site's own may grow in a round before it no longer counts as a measure
SMALLEST = 1e-3  # root mean square below which an own extractor is no measure, such as one of zeros
MOST_SAMPLES = 1e12  # that a weight may stand for, per member


CERTAIN = FACTOR  # limits above which a sum must be its sender's own doing: an honest one would not have passed it on


@dataclass(frozen=True, slots=True)
class Excess:
    """Something absurd: why it is not used, and whether it must be the doing of the member that sent it.

    Limits differ between members as their own extractors do, so a sum may be within the limit of the member that adds
    to it and beyond the next one's: between the two, a liar could make an honest member look like one.
    """

    why: str
    certain: bool = True


def norm(values: Tensor) -> float:
    """Euclidean, of finite values; infinite where the squares exceed float32, and that is absurd in any case."""
    return float(torch.linalg.vector_norm(values)) if values.numel() else 0.0


def largest(own: Tensor, before: float | None) -> float:
    """The largest norm that may arrive; `before` is that of the own extractor after the round before, if known."""
    measure = norm(own)
    if before is not None and math.isfinite(before):
        measure = min(measure, GROWTH * before)
    return FACTOR * max(measure, SMALLEST * math.sqrt(own.numel()))


def excess(message: Message, limit: float, members: int, summed: bool) -> Excess | None:
    """What is absurd about a message; None if nothing is. `summed`: it is a sum, with the weight behind it."""
    weight = message.weight if message.weight is not None else 1.0
    most = MOST_SAMPLES * members
    if weight > most:
        return Excess(f"a weight of {weight:.3g} samples, above {most:.3g}", not summed or weight > CERTAIN * most)
    found = norm(message.state.values) / (weight if summed else 1.0)
    if found <= limit:
        return None
    what = "a mean" if summed else "an extractor"
    return Excess(f"{what} of norm {found:.3g}, above {limit:.3g}", not summed or found > CERTAIN * limit)
