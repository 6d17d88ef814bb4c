"""This member's side of the agreement on views, with its disk and its lines: remember first, then speak."""

from collections.abc import Callable
from dataclasses import replace

from firma.errors import BadInput
from firma.peer.desk import Desk
from firma.peer.membership import paxos as membership
from firma.peer.membership.composition import rules_of
from firma.peer.membership.views import Accept, Member, Memory, Note, Prepare, Step, View, Word
from firma.peer.ring_file import Ring
from firma.peer.runtime.promises import Promises
from firma.peer.wire.control import decode_note, encode_note, numbers_in
from firma.peer.wire.terms import Terms, WireError

Send = Callable[[int, bytes], None]  # to a member; its answer comes back to `answered`
Record = Callable[[int, list[str], int], None]
OnView = Callable[[View, bool], None]  # a decided view, and whether this process has a seat in it


class Council:
    """The machine of `membership` under the desk's lock."""

    def __init__(
        self, ring: Ring, terms: Terms, desk: Desk, promises: Promises, word: Word, record: Record, on_view: OnView
    ) -> None:
        memory = promises.read()
        self.fresh = memory is None  # it knows nothing: it was never in this ring, or its disk was lost
        self.member = Member(desk.signs.me, word, memory or Memory())
        self.rules = rules_of(ring)
        self.send: Send = _nowhere
        self.ready: Callable[[], bool] = lambda: True
        self._ring, self._terms, self._desk, self._promises = ring, terms, desk, promises
        self._record, self._on_view = record, on_view
        desk.epoch = self.member.epoch

    def received(self, sender: int, raw: bytes) -> bytes:
        """Take a note that a member sent; returns the answer, or nothing."""
        answer = self._told(sender, self._decoded(sender, raw))
        if answer is None:
            return b""
        said = encode_note(self._terms, answer)
        return said if self._recorded(sender, answer, said) else b""

    def answered(self, sender: int, raw: bytes) -> None:
        """Take the answer to a note."""
        again = self._told(sender, self._decoded(sender, raw)) if raw else None
        if again is not None:
            self._speak([(sender, again)])

    def propose(self) -> None:
        """Ask for the next view."""
        with self._desk.changed:
            self._refresh()
            self._speak(self._apply(membership.propose(self.rules, self.member)))

    def settle(self) -> None:
        """Wait for no further promises."""
        with self._desk.changed:
            self._speak(self._apply(membership.settle(self.rules, self.member)))

    def again(self, members: list[int]) -> None:
        """Say once more what members have not answered: notes get lost."""
        with self._desk.changed:
            member = self.member
            if member.ballot is None:
                return
            body = Prepare(member.ballot) if member.value is None else Accept(member.ballot, member.value)
            self._speak([(number, Note(member.memory.view, body)) for number in members])

    def give_up(self) -> None:
        """End an attempt that has come to nothing; what was promised stays promised."""
        with self._desk.changed:
            self.member = replace(self.member, ballot=None, promises=(), value=None, consents=frozenset())

    def tell(self, members: list[int]) -> None:
        """Exchange newest views with members."""
        self._speak([(number, Note(self.member.memory.view)) for number in members])

    def completed(self, epoch: int, rounds: int) -> None:
        """A round is saved."""
        with self._desk.changed:
            self.member = membership.completed(self.member, epoch, rounds)

    def _decoded(self, sender: int, raw: bytes) -> Note:
        note = decode_note(self._terms, raw, len(self._ring.members), self._ring.rounds)
        if isinstance(note.body, Prepare | Accept) and note.body.ballot[1] != sender:
            raise WireError("a ballot of somebody else")
        return note

    def _told(self, sender: int, note: Note) -> Note | None:
        with self._desk.changed:
            self._desk.signs.heard(sender)
            if self.fresh and note.view is not None and self.member.memory == Memory():
                self._desk.failure = BadInput(
                    "state: it is empty, and the ring is at work: a site without its promises must not come back; "
                    "name the right --state, or begin anew with a new ring file"
                )
            if self._desk.failure is not None:
                return None
            self._refresh()
            out = self._apply(membership.receive(self.rules, self.member, sender, note))
            answers = [each for to, each in out if to == sender]
            self._speak([(to, each) for to, each in out if to != sender])
            return answers[0] if answers else None

    def _refresh(self) -> None:
        """What this member says of itself is of now."""
        self.member = replace(self.member, word=replace(self.member.word, ready=self.ready()))

    def _apply(self, step: Step) -> tuple[tuple[int, Note], ...]:
        """Become what the machine says, if it can be made durable; else say nothing."""
        after, out = step
        if after.memory != self.member.memory:
            try:
                self._promises.write(after.memory)
            except OSError as error:
                self._desk.failure = BadInput(
                    f"state: what was promised cannot be saved ({error.strerror}); the saved rounds are whole, "
                    "make room and go on with --resume"
                )
                return ()
        before, self.member = self.member, after
        self._desk.frozen = after.frozen
        if after.memory.view is not None and after.epoch != before.epoch:
            self._on_view(after.memory.view, after.seated)
        self._desk.changed.notify_all()
        return out

    def _speak(self, out: list[tuple[int, Note]] | tuple[tuple[int, Note], ...]) -> None:
        for to, note in out:
            said = encode_note(self._terms, note)
            if self._recorded(to, note, said):
                self.send(to, said)

    def _recorded(self, member: int, note: Note, said: bytes) -> bool:
        """What cannot be recorded is not sent."""
        try:
            self._record(member, numbers_in(note), len(said))
        except OSError as error:
            self._desk.failure = BadInput(f"audit file: cannot write ({error.strerror}); the saved rounds are whole")
            return False
        except ValueError:  # it is closed: this member is leaving
            return False
        return True


def _nowhere(_member: int, _raw: bytes) -> None:
    """Before the lines are open."""
