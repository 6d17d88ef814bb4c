"""Events that a `Member` takes and actions that it returns: the vocabulary between the pure machine and its drivers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from firma.peer.membership.views import ControlMessage, Memory, View
from firma.peer.wire.heartbeat import Heartbeat
from firma.peer.wire.message import Header, Verdict
from firma.peer.wire.terms import Tag
from firma.protocol import Message
from firma.schedule import RoundPlan


class PeerLost(Exception):
    """The other members are not there or refuse: this member cannot continue."""


# Events: what has happened. Those that say so are answered with one `Answer`.


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; wanted every `Member.pause` seconds."""


@dataclass(frozen=True, slots=True)
class HeartbeatArrived:
    """A member called with a heartbeat (None: unreadable, or of another ring). Answered with a `Heartbeat`."""

    sender: int
    heartbeat: Heartbeat | None


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered:
    """A member answered this member's heartbeat with its own."""

    sender: int
    heartbeat: Heartbeat


@dataclass(frozen=True, slots=True)
class ControlArrived:
    """A member called with a control message. Answered with an `AnswerControl`, or not at all."""

    sender: int
    message: ControlMessage


@dataclass(frozen=True, slots=True)
class ControlAnswered:
    """A member answered this member's control message."""

    sender: int
    message: ControlMessage


@dataclass(frozen=True, slots=True)
class Announced:
    """The header of a message arrived. Answered with a `Verdict`."""

    sender: int
    header: Header


@dataclass(frozen=True, slots=True)
class Progressed:
    """A part of a message arrived, or an answer to one: its sender is alive."""

    sender: int
    tag: Tag | None = None  # of the message that is arriving
    share: float = 0.0  # of it that is here


@dataclass(frozen=True, slots=True)
class Moved:
    """A share of a message has left this machine."""

    to: int
    tag: Tag
    share: float


@dataclass(frozen=True, slots=True)
class ProbeArrived:
    """A member called with as many bytes as a message has: what it sends arrives here."""

    sender: int


@dataclass(frozen=True, slots=True)
class Probed:
    """A member answered this member's probe: what is sent to it arrives there."""

    member: int


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message that was to be taken is here, whole and checked."""

    sender: int
    header: Header
    message: Message


@dataclass(frozen=True, slots=True)
class Delivered:
    """A member has a message, or no longer needs it."""

    to: int
    tag: Tag


@dataclass(frozen=True, slots=True)
class Refused:
    """A member does not take a message; it is tried again, at longer and longer intervals."""

    to: int
    tag: Tag
    why: str


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A call to a member failed; what is to be delivered is tried again."""

    member: int
    why: str


@dataclass(frozen=True, slots=True)
class Unmoved:
    """No byte of a message has left since then. Answered with whether to break off and start the delivery again."""

    to: int
    since: float


@dataclass(frozen=True, slots=True)
class Entered:
    """The site is where the view starts."""


@dataclass(frozen=True, slots=True)
class Trained:
    """Local training is done; `shared` is the (E,) extractor."""

    number: int  # round, from 0
    shared: Tensor
    accuracy: float
    samples: int | None = None  # that it trained on, where that is known only now


@dataclass(frozen=True, slots=True)
class Scored:
    """The extractors of an exchange are scored, by sender."""

    tag: Tag
    scores: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Saved:
    """A round is on disk."""

    rounds: int  # that are completed with it


@dataclass(frozen=True, slots=True)
class Failed:
    """An action could not be carried out, such as one that needs a disk that is full; the sentence says what to do."""

    why: str


@dataclass(frozen=True, slots=True)
class Stopping:
    """The process is about to end."""


Event = (
    Tick | HeartbeatArrived | HeartbeatAnswered | ControlArrived | ControlAnswered | Announced | Progressed | Arrived
    | Moved | ProbeArrived | Probed | Delivered | Refused | Unreachable | Unmoved | Entered | Trained | Scored | Saved
    | Failed | Stopping
)  # fmt: skip


# Actions: what a driver is to do, in order. The first group is carried out at once, whoever reported the event.


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to the caller that reported the event."""

    value: Heartbeat | Verdict | bool


@dataclass(frozen=True, slots=True)
class AnswerControl:
    """A control message as the answer to the caller; it is recorded like everything that leaves this site."""

    to: int
    message: ControlMessage


@dataclass(frozen=True, slots=True)
class Remember:
    """Make a memory durable before anything after it is carried out. If that fails: `Failed`, and drop the rest."""

    memory: Memory


@dataclass(frozen=True, slots=True)
class SendControl:
    """Send a control message once; it is repeated by the machine if need be."""

    to: int
    message: ControlMessage


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Send a heartbeat to all other members; its clock is filled in by the driver."""

    heartbeat: Heartbeat
    last: bool = False  # before the process ends: wait until it has left


@dataclass(frozen=True, slots=True)
class Probe:
    """Send a member as many zeros as a message has bytes, once: `Probed`, or `Unreachable`."""

    to: int


@dataclass(frozen=True, slots=True)
class CancelSends:
    """Deliver no more messages of views up to this one."""

    view_number: int


@dataclass(frozen=True, slots=True)
class LogEvent:
    """A line for the event log."""

    name: str
    facts: Mapping[str, Any]


# The second group is carried out one after the other by the thread that trains; where an event is named it follows.


@dataclass(frozen=True, slots=True)
class Notice:
    """Tell the operator; it is also a line of the event log."""

    text: str


@dataclass(frozen=True, slots=True)
class Enter:
    """Put the site where a view starts: `Entered`. One that is behind takes over these extractors of that round."""

    view: View
    extractors: tuple[tuple[int, Tensor], ...] = ()  # with the member that sent each


@dataclass(frozen=True, slots=True)
class Train:
    """Train locally for one round: `Trained`."""

    plan: RoundPlan


@dataclass(frozen=True, slots=True)
class Send:
    """Deliver a message, again and again until it is acknowledged: `Delivered`; meanwhile `Moved` and `Refused`."""

    to: int
    tag: Tag
    message: Message
    receipt: bytes = b""  # this member's signature that it has saved the round before


@dataclass(frozen=True, slots=True)
class SendExtractor:
    """Deliver this site's extractor as it is where the view starts to a member that is behind: `Delivered`."""

    to: int
    tag: Tag
    receipt: bytes = b""


@dataclass(frozen=True, slots=True)
class Score:
    """All messages of an exchange are here: score these extractors (none if claims are believed): `Scored`."""

    tag: Tag
    extractors: Mapping[int, Tensor]


@dataclass(frozen=True, slots=True)
class Blend:
    """Take over a mixed (E,) extractor; the head stays as it is."""

    extractor: Tensor
    plan: RoundPlan


@dataclass(frozen=True, slots=True)
class Save:
    """Test, save and report a round: `Saved`."""

    number: int  # from 0
    view: View
    training_accuracy: float
    plan: RoundPlan
    weights: Mapping[int, float] = field(default_factory=dict)  # of members in one pass; empty in an all-reduce


@dataclass(frozen=True, slots=True)
class Finish:
    """All rounds are done and nobody needs this member any more."""


@dataclass(frozen=True, slots=True)
class Fail:
    """End with this error; the saved rounds are whole."""

    error: Exception


Work = Notice | Enter | Train | Send | SendExtractor | Score | Blend | Save | Finish | Fail
Action = Answer | AnswerControl | Remember | SendControl | SendHeartbeat | Probe | CancelSends | LogEvent | Work
