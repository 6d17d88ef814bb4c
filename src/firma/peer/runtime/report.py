"""What a member is given to start with, and what it reports after each round and in the end."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from firma.encoding import Wire
from firma.peer.identity import Identity
from firma.peer.ring_file import Ring


@dataclass(frozen=True, slots=True)
class RoundReport:
    """What an operator sees after a round."""

    number: int  # from 1
    rounds: int
    ring: tuple[str, ...]
    weights: dict[str, float]  # of this site and its neighbours in one pass
    accuracy: float  # on this site's test data
    sent: int  # bytes
    seconds: float
    training: float  # seconds of them
    mixing: float = 0.0  # seconds of them spent exchanging and blending


@dataclass(frozen=True)
class Outcome:
    """The end of a run."""

    history: tuple[float | None, ...]  # test accuracy by round; None where this site took no part
    order: tuple[str, ...]
    parameters: Tensor
    sent: int
    seconds: float
    training: float  # seconds of them
    processor: float  # seconds of a core
    training_processor: float  # seconds of them
    refused: dict[str, int]
    checkpoint: Path


@dataclass(frozen=True)
class Setup:
    """Who a member is, where its files are, and what it listens on."""

    ring: Ring
    identity: Identity
    data: str
    state: Path
    listen: str | None = None  # default: the address in the ring file
    resume: bool = False
    device: str = "cpu"
    wire: Wire | None = None  # how this site's extractor is encoded; default: as the ring file says
    verify_gate: bool = False  # score neighbours' extractors here instead of believing their accuracies
    metrics: str | None = None  # HOST:PORT of /metrics
    begin_with: Path | None = None  # the state folder of an earlier ring, whose last round this one starts from


OnRound = Callable[[RoundReport], None]
OnNotice = Callable[[str], None]
