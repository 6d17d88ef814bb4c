"""What members send each other, and a round's mixing as a generator of exchanges: no sockets, no clock, no threads.

A driver runs such a generator, delivers each `Exchange` and sends back what arrived, keyed by sender. What travels is
an `ExtractorState`, which has no place for a head; only the baselines that share whole models send a `ModelState`. Each
kind of mixing in `firma.mixing` has its own generator.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from firma.encoding import Wire
from firma.schedule import RoundPlan

if TYPE_CHECKING:  # nothing here computes, so that rings can be analysed without torch
    from torch import Tensor

SERVER = -1  # the hub of a star; ring methods never speak to it


@dataclass(frozen=True, slots=True)
class ExtractorState:
    """Elements [start, start + len) of the flat extractor."""

    values: Tensor
    start: int = 0


@dataclass(frozen=True, slots=True)
class ModelState:
    """All parameters of a model, head included: what methods without head privacy send."""

    values: Tensor
    start: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """What one member sends another: parameters and at most one agreed number of each kind, or digests."""

    state: ExtractorState | ModelState
    accuracy: float | None = None  # training accuracy, where a gate needs it
    weight: float | None = None  # samples behind an average
    wire: Wire = "float32"  # how the parameters are encoded in transit
    digests: tuple[bytes, ...] = ()  # (32,) each: SHA-256 of extractors that the sender holds


@dataclass(frozen=True, slots=True)
class Exchange:
    """Send `message` to every member in `to`, then wait for one message with the same tag from each in `wait`."""

    to: tuple[int, ...]
    wait: tuple[int, ...]
    message: Message
    tag: tuple[int, int]  # round, step


@dataclass(frozen=True, slots=True)
class Expected:
    """What one member is to send in one exchange: elements [start, start + count), and which numbers beside them."""

    start: int
    count: int
    accuracy: bool = False
    weight: bool = False
    digests: int = 0


Exchanges = Generator[Exchange, dict[int, Message], "Tensor"]  # returns the member's new shared parameters
Score = Callable[[int, "Tensor"], float]  # how good a neighbour's extractor is, whatever the neighbour claims
Admit = Callable[[int, Message], bool]  # whether what a member sent may be used
Aggregate = Callable[["Tensor", "Tensor"], "Tensor"]  # a server's vector (q,) from (n, q) and the clients' weights (n,)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """An extractor changed on its way from one member to the next, if both say the truth: one of the two does not."""

    origin: int  # whose extractor it is
    sender: int
    receiver: int
    used: bool  # what arrived here is what its origin says it sent


@dataclass(frozen=True, slots=True)
class Participant:
    """One member at the start of a round's mixing.

    `shared` is the flat extractor, or the whole flat model where the plan shares it. What is sent is encoded as `wire`;
    what a member keeps of its own is never rounded. With `score` the gate uses it instead of the neighbours' claims.
    A server with `aggregate` computes what it sends by it; the default is the weighted mean. What `admit` refuses
    counts as missing, and its weight is this member's own.
    """

    me: int
    order: Sequence[int]  # the ring: member numbers in order
    shared: Tensor
    accuracy: float  # after this round's local training
    samples: int
    wire: Wire = "float32"
    score: Score | None = None
    suspect: Callable[[Mismatch], None] | None = None  # told of members that disagree on what they hold
    aggregate: Aggregate | None = None
    admit: Admit | None = None  # asked before anything that arrives is used; None: everything may be

    def admits(self, sender: int, message: Message) -> bool:
        """Whether a message may be used."""
        return self.admit is None or self.admit(sender, message)


def state(plan: RoundPlan, values: Tensor, start: int = 0) -> ExtractorState | ModelState:
    """Parameters as the kind of state that the plan shares."""
    return ExtractorState(values, start) if plan.part == "extractor" else ModelState(values, start)
