"""Where a member stands: what all parts of its state machine read, and the phase that it is in. Pure.

What only one part needs is that part's own state.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from firma.encoding import Wire
from firma.peer.membership.failure_detector import FailureDetector, Patience
from firma.peer.membership.views import MemberState, Memory, Rules, View, Voter
from firma.peer.runtime.admission import Inbox
from firma.peer.runtime.events import Action, Fail, Finish
from firma.peer.wire.terms import Terms
from firma.schedule import RoundPlan

Phase = Literal[
    "waiting",
    "catching up",
    "entering",
    "training",
    "exchanging",
    "scoring",
    "saving",
    "settling",
    "lingering",
    "finished",
    "failed",
]


@dataclass(frozen=True)
class Agreement:
    """What the members have agreed on, as far as their decisions depend on it."""

    names: tuple[str, ...]
    rounds: int
    rules: Rules
    patience: Patience
    plan: Callable[[int, int], RoundPlan]  # for so many members, of round `number` from 0
    terms: Terms


@dataclass(frozen=True)
class Start:
    """What a member starts with: its number, its process, what is on its disk, and how it takes part."""

    me: int
    state: MemberState  # its `rounds` are those of the checkpoint that it was started from
    memory: Memory | None  # None: it has no promises, so it was never in this ring, or its disk was lost
    samples: int
    wire: Wire = "float32"  # how its extractor is encoded
    verify: bool = False  # score neighbours' extractors instead of believing their accuracies


@dataclass
class Standing:
    """The view that a member works in, how far it is, and its side of the agreement on views."""

    agreement: Agreement
    start: Start
    detector: FailureDetector
    voter: Voter
    done: int  # rounds that this site has behind it
    view_began: float  # when it learnt of the newest view
    moved: float  # when an exchange, a round or its training was last done
    phase: Phase = "waiting"
    busy: float | None = None  # since when it works without waiting for others
    view: View | None = None  # that it works in, or worked in last
    inbox: Inbox | None = None  # of the newest view, if it has a seat there
    had_seat: bool = False
    stopping: bool = False

    @property
    def me(self) -> int:
        """This member's number."""
        return self.start.me

    @property
    def current(self) -> bool:
        """Whether work in the view that it follows may continue: the view is the newest, and not being replaced."""
        return self.inbox is not None and self.voter.view_number == self.followed and not self.voter.frozen

    @property
    def followed(self) -> int:
        """Number of the view that it works in; 0 before the first."""
        return self.view.number if self.view is not None else 0

    @property
    def seats(self) -> tuple[int, ...]:
        """Members of the newest view, in ring order."""
        return self.voter.memory.view.order if self.voter.memory.view is not None else ()

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Members that this one exchanges messages with in the newest view."""
        return self.inbox.sequence.neighbours if self.inbox is not None else ()

    @property
    def plan(self) -> RoundPlan:
        """Of the round in hand."""
        assert self.view is not None  # rounds are those of a view
        return self.agreement.plan(len(self.view.ring), self.done)

    @property
    def complete(self) -> bool:
        """Whether it has all rounds behind it."""
        return self.done == self.agreement.rounds

    @property
    def has_finished(self) -> bool:
        """Whether it has completed all rounds; it may still be needed, if the last one has to be repeated."""
        return self.phase in ("lingering", "finished")

    def hangs(self, now: float) -> bool:
        """Whether it has trained, or saved, for so long that it must be assumed to hang."""
        return self.busy is not None and now - self.busy > self.agreement.patience.stalled

    def stands_still(self, now: float) -> bool:
        """Whether a new view costs it nothing, because no round of its own is under way."""
        waiting = self.phase in ("exchanging", "settling") and now - self.moved > self.agreement.patience.silence
        return waiting or not self.current or self.has_finished

    # Changes of phase

    def work(self, phase: Phase, now: float) -> None:
        """The thread that trains has work in hand from now on."""
        self.phase, self.busy = phase, now

    def wait(self, phase: Phase = "waiting") -> None:
        """It waits for others, by default for the next view: this one is over or being replaced."""
        self.phase, self.busy = phase, None

    def finish(self) -> list[Action]:
        """Nobody needs this member any more."""
        self.phase = "finished"
        return [Finish()]

    def fail(self, error: Exception) -> list[Action]:
        """The first error ends the run; from then on this member only sends and answers heartbeats."""
        if self.phase == "failed":
            return []
        self.wait("failed")
        return [Fail(error)]
