"""The member's machine and its driver: remember first, then speak; who is missed, and by which clock."""

import random
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from firma.errors import BadInput
from firma.models import SplitModel, mlp
from firma.peer.identity import load_identity
from firma.peer.membership.failure_detector import FailureDetector, Patience
from firma.peer.membership.views import (
    Committed,
    ControlMessage,
    Echo,
    MemberState,
    Memory,
    Prepare,
    Promise,
    Propose,
    Refusal,
    Seat,
    View,
    statement,
)
from firma.peer.runtime.audit_log import AuditLog
from firma.peer.runtime.driver import Driver
from firma.peer.runtime.event_log import EventLog
from firma.peer.runtime.events import (
    Arrived,
    ControlAnswered,
    ControlArrived,
    Delivered,
    Enter,
    Entered,
    Fail,
    Failed,
    HeartbeatAnswered,
    LogEvent,
    Moved,
    Notice,
    Progressed,
    Refused,
    Remember,
    Saved,
    Score,
    Scored,
    Send,
    SendControl,
    Tick,
    Train,
    Trained,
    Unreachable,
)
from firma.peer.runtime.member_machine import Member, Start
from firma.peer.runtime.node import agreement_of
from firma.peer.runtime.promises import Promises
from firma.peer.signing import seals_of
from firma.peer.wire.control import decode_control
from firma.peer.wire.heartbeat import (
    ASKING,
    COMPLETING,
    EXCHANGING,
    FINISHED,
    LEAVING,
    PREPARING,
    PROBING,
    RUNNING,
    STALLED,
    Heartbeat,
)
from firma.peer.wire.terms import Terms, WireError, federation_tag, signature
from firma.protocol import ExtractorState, Message

from .virtual import sealed

VIEW = View(1, 0, (Seat(0, 10), Seat(1, 11), Seat(2, 12)))


def terms_of(ring):
    layout = SplitModel(*mlp((8, 8), 10, 32, 16)).layout()
    return Terms(federation_tag("test"), ring.digest, signature(layout), 10)


class Machine:
    """Member 0 of three under a clock that the test moves."""

    def __init__(self, ring, memory=None):
        self.now = 1000.0
        start = Start(0, MemberState(10), memory, samples=5)
        self.terms = terms_of(ring)
        self.seals = [sealed(ring.digest, n, len(ring.members)) for n in range(len(ring.members))]
        self.member = Member(agreement_of(ring, self.terms, self.seals[0]), start, random.Random(0), self.now)

    def on(self, event):
        return self.member.on(event, self.now)

    def all(self, kind, event):
        return [action for action in self.on(event) if isinstance(action, kind)]

    def propose(self):
        """Everybody is there, so it asks for the first view; returns what it sends."""
        for number in (1, 2):
            self.on(HeartbeatAnswered(number, heartbeat(ASKING, 10 + number, 0)))
        for _ in range(50):
            sent = [each for each in self.all(SendControl, Tick()) if isinstance(each.message.body, Prepare)]
            if sent:
                return sent
            self.now += 0.05
        raise AssertionError("it did not propose")

    def _signed(self, number, kind, digest):
        seals = self.seals[number]
        return seals.sign(statement(seals.ring, kind, 1, self.member.voter.ballot, digest))

    def promise(self, number):
        said = Promise(self.member.voter.ballot, MemberState(10 + number), None)
        said = replace(said, signature=self._signed(number, b"promise", said.digest))
        return self.on(ControlAnswered(number, ControlMessage(None, said)))

    def echo(self, number):
        signature = self._signed(number, b"echo", VIEW.digest)
        return self.on(ControlAnswered(number, ControlMessage(None, Echo(self.member.voter.ballot, signature))))

    def commit(self, number):
        signature = self._signed(number, b"commit", VIEW.digest)
        return self.on(ControlAnswered(number, ControlMessage(None, Committed(self.member.voter.ballot, signature))))

    def seat(self):
        """Bring it into the first view with everybody."""
        self.propose()
        self.promise(1)
        self.promise(2)
        self.echo(1)
        return self.commit(1)


@pytest.fixture
def ring(make_ring):
    return make_ring("fibfl", 3, 5, "iid", patience=5.0, gathering=5.0).ring


@pytest.fixture
def machine(ring):
    return Machine(ring)


class Table:
    """Member 0 of three behind a real driver: its disk and its audit file are real, and nobody listens."""

    def __init__(self, made, folder):
        self.made, self.ring, self.folder, self.terms = made, made.ring, folder, terms_of(made.ring)
        self.promises, self.drivers = Promises(folder, self.ring), []
        self.open()

    def open(self):
        """Start the process anew."""
        start = Start(0, MemberState(10), self.promises.read(), samples=5)
        identity = load_identity(self.made.identity(0))
        agreement = agreement_of(self.ring, self.terms, seals_of(self.ring, identity))
        self.member = Member(agreement, start, random.Random(0), time.monotonic())
        self.audit_log = AuditLog(self.folder / "audit.jsonl", self.ring, 0, self.terms)
        self.driver = Driver(
            self.member, self.ring, 0, self.terms, identity, self.promises, self.audit_log, EventLog(None)
        )
        self.drivers.append((self.driver, self.audit_log))

    def close(self):
        for driver, audit_log in self.drivers:
            driver._client.close()
            audit_log.close()

    def say(self, sender, message):
        raw = self.driver.control(sender, message)
        return decode_control(self.terms, raw, 3, self.ring.rounds) if raw else None

    def failure(self):
        return next(work.error for work in iter(self.driver.work.get_nowait, None) if isinstance(work, Fail))


@pytest.fixture
def table(make_ring, tmp_path):
    made = Table(make_ring("fibfl", 3, 5, "iid", patience=5.0), tmp_path)
    yield made
    made.close()


def test_a_promise_is_on_the_disk_before_it_is_given_and_survives(table):
    answer = table.say(1, ControlMessage(None, Prepare((1, 1))))
    assert isinstance(answer.body, Promise)
    assert table.promises.read().promised == (1, 1)
    table.open()
    assert table.say(2, ControlMessage(None, Prepare((1, 2)))).body.ballot == (1, 2)
    table.open()
    assert table.say(1, ControlMessage(None, Propose((1, 1), VIEW, ()))).body == Refusal((1, 2))
    lines = (table.folder / "audit.jsonl").read_text().splitlines()
    assert sum('"numbers": ["rounds"]' in line for line in lines) == 3, "every answer is in the audit file"


def test_what_must_be_remembered_comes_before_what_follows_from_it(ring, machine):
    asked = Machine(ring).on(ControlArrived(1, ControlMessage(None, Prepare((1, 1)))))
    for actions in (asked, machine.seat()):
        kinds = [type(action).__name__ for action in actions]
        assert kinds[0] == "Remember", kinds
    assert isinstance(actions[0], Remember)
    assert actions[0].memory.view == VIEW


def test_what_cannot_be_remembered_is_not_said(table, monkeypatch):
    def full(self, memory):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Promises, "write", full)
    assert table.say(1, ControlMessage(None, Prepare((1, 1)))) is None
    error = table.failure()
    assert isinstance(error, BadInput)
    assert "No space left" in str(error)
    assert table.say(2, ControlMessage(None, Prepare((2, 2)))) is None, "it says nothing any more"
    assert '"to"' not in (table.folder / "audit.jsonl").read_text()


def test_a_ballot_of_somebody_else_and_junk_are_refused(victim):
    """By the server, before the machine sees any of it."""
    line = victim.line(load_identity(victim.made.identity(1)))
    from firma.peer.wire.control import encode_control

    forged = encode_control(victim.terms, ControlMessage(None, Prepare((1, 2))))
    with pytest.raises(WireError, match="somebody else"):
        decode_control(victim.terms, forged, 3, 5, sender=1)
    before = victim.member.voter
    for raw in (forged, b"junk" * 30):
        assert line.control(raw, timeout=5) == b""
    line.channel.close()
    assert victim.log.total() == {"note": 2}
    assert victim.member.voter == before


def test_who_has_forgotten_everything_keeps_silent_in_a_ring_at_work(ring, machine):
    assert not machine.all(Fail, ControlArrived(1, ControlMessage(VIEW))), "nobody believes a view without its proof"
    other = Machine(ring)
    other.seat()
    proof = other.member.voter.memory.proof
    lost = Machine(ring)
    actions = lost.on(ControlArrived(1, ControlMessage(VIEW, Prepare((1, 1)), proof)))
    assert any("this site's promises are lost" in each.text for each in actions if isinstance(each, Notice))
    assert Remember(Memory(VIEW, proof=proof, mute=VIEW.number + 2)) in actions, "and a restart does not forget that"
    assert not [each for each in actions if type(each).__name__ in ("AnswerControl", "SendControl")], "it does not vote"
    assert lost.member.voter.muted


def test_a_decided_view_is_told_to_all_and_followed(machine):
    assert {each.to for each in machine.propose()} == {1, 2}
    machine.promise(1)
    machine.promise(2)
    assert machine.member.voter.value == VIEW
    machine.echo(2)
    actions = machine.commit(2)
    proof = machine.member.voter.memory.proof
    assert [action for action in actions if isinstance(action, SendControl)] == [
        SendControl(1, ControlMessage(VIEW, None, proof)), SendControl(2, ControlMessage(VIEW, None, proof)),
    ]  # fmt: skip
    assert {member for member, _ in proof.commits} == {0, 2}
    assert Enter(VIEW) in actions
    assert Remember(Memory(VIEW, proof=proof)) in actions


def test_a_round_from_training_to_the_next(machine):
    """It trains, sends to both neighbours, mixes when both have sent, and saves; nobody is asked for anything twice."""
    machine.seat()
    (train,) = machine.all(Train, Entered())
    assert train.plan.number == 0
    size = machine.terms.signature.size
    sends = machine.all(Send, Trained(0, torch.zeros(size), 1.0))
    assert {send.to for send in sends} == {1, 2}
    assert {send.tag for send in sends} == {(1, 1, 0)}
    assert not machine.all(Score, Tick()), "nothing has arrived"


def exchanging(machine):
    """In the exchange of the first round, with two neighbours that answer."""
    machine.seat()
    machine.on(Entered())
    machine.on(Trained(0, torch.zeros(machine.terms.signature.size), 1.0))
    return machine


def beats(machine, *, places, seconds, step=0.5):
    """Let time pass while the neighbours say where they are: {member: (tag, doing)}; returns what was done."""
    actions, end = [], machine.now + seconds
    while machine.now < end:
        machine.now += step
        for number, (tag, doing) in places.items():
            machine.on(HeartbeatAnswered(number, replace(heartbeat(RUNNING, 10 + number), tag=tag, doing=doing)))
        actions += machine.on(Tick())
    return actions


def texts(actions):
    return [each.text for each in actions if isinstance(each, Notice)]


def test_a_refusal_is_told_once_and_ends_nobody(machine):
    exchanging(machine)
    machine.on(Delivered(2, (1, 1, 0)))
    assert machine.on(Refused(2, (1, 1, 0), "it has that one already")) == []
    assert machine.on(Refused(1, (9, 1, 0), "of another view")) == []
    log, notice = machine.on(Refused(1, (1, 1, 0), "no such round"))
    assert (log.name, log.facts["member"]) == ("refused_by", "bee")
    assert notice.text == "bee refuses this site's message of round 1 (no such round); it is sent again"
    assert machine.on(Refused(1, (1, 1, 0), "no such round")) == []
    assert machine.member.phase == "exchanging"
    at_work = {1: ((1, 1, 0), EXCHANGING), 2: ((1, 1, 0), EXCHANGING)}
    actions = beats(machine, places=at_work, seconds=2.0)
    machine.on(Delivered(1, (1, 1, 0)))
    assert not any("new view" in text for text in texts(actions + beats(machine, places=at_work, seconds=2.0)))


def test_a_refusal_that_lasts_is_a_reason_for_a_new_view(machine):
    exchanging(machine)
    machine.on(Delivered(2, (1, 1, 0)))
    machine.on(Refused(1, (1, 1, 0), "on principle"))
    actions = beats(machine, places={1: ((1, 1, 0), EXCHANGING), 2: ((1, 1, 0), EXCHANGING)}, seconds=5.5)
    assert not any(isinstance(action, Fail) for action in actions)
    assert "proposing a new view: bee: it refuses this site's message of round 1 (on principle)" in texts(actions)


@pytest.mark.parametrize(
    ("place", "doing", "seconds", "says"),
    [
        ((1, 1, 0), PREPARING, 100.0, None),  # it trains
        ((1, 1, 0), EXCHANGING, 6.0, "it says that it has sent its message of round 1, which has not arrived"),
        ((1, 1, 0), COMPLETING, 6.0, "it says that it has sent its message of round 1, which has not arrived"),
        ((1, 2, 0), PREPARING, 6.0, "it says that it has sent its message of round 1, which has not arrived"),
        ((0, 0, 0), PREPARING, 11.0, "it does not follow view 1 yet"),
    ],
)
def test_training_is_waited_for_and_a_message_that_was_sent_has_a_deadline(machine, place, doing, seconds, says):
    exchanging(machine)
    for number in (1, 2):
        machine.on(Delivered(number, (1, 1, 0)))
    places = {1: (place, doing), 2: ((1, 1, 0), PREPARING)}
    early = texts(beats(machine, places=places, seconds=0.8 * seconds))
    assert not any("new view" in text for text in early)
    late = texts(beats(machine, places=places, seconds=0.3 * seconds))
    assert [text for text in late if "new view" in text] == ([f"proposing a new view: bee: {says}"] if says else [])


def test_an_undelivered_message_has_a_deadline_that_starts_again_while_it_moves(machine):
    exchanging(machine)
    machine.on(Delivered(2, (1, 1, 0)))
    training = {1: ((1, 1, 0), PREPARING), 2: ((1, 1, 0), PREPARING)}
    for part in range(1, 11):
        actions = beats(machine, places=training, seconds=4.0)
        assert not any("new view" in text for text in texts(actions)), "a large message on a slow line"
        machine.on(Moved(1, (1, 1, 0), part / 10))
    machine.on(Unreachable(1, "connection refused"))
    assert any("connection refused" in text for text in texts(beats(machine, places=training, seconds=5.5)))
    assert machine.member.voter.ballot is not None or machine.member.voter.frozen


def test_a_few_bytes_at_a_time_are_no_progress(machine):
    exchanging(machine)
    for number in (1, 2):
        machine.on(Delivered(number, (1, 1, 0)))
    places = {1: ((1, 1, 0), EXCHANGING), 2: ((1, 1, 0), PREPARING)}
    actions = []
    for part in range(1, 8):
        machine.on(Progressed(1, (1, 1, 0), part / 1000))
        actions += beats(machine, places=places, seconds=1.0)
    assert any("proposing a new view: bee: it says" in text for text in texts(actions))


def test_who_is_waited_for_and_why_is_said_within_seconds_and_once_more_when_it_is_over(make_ring):
    machine = exchanging(Machine(make_ring("fibfl", 3, 5, "iid", patience=60.0).ring))
    training = {1: ((1, 1, 0), PREPARING), 2: ((1, 1, 0), PREPARING)}
    for number in (1, 2):
        machine.on(Delivered(number, (1, 1, 0)))
    assert texts(beats(machine, places=training, seconds=4.5)) == []
    actions = beats(machine, places=training, seconds=20.0)
    assert texts(actions) == [
        f"waiting for {name} for 6 s: it is still training for round 1" for name in ("bee", "cat")
    ]
    (event,) = [each for each in actions if isinstance(each, LogEvent) and each.name == "awaiting"]
    assert set(event.facts["members"]) == {"bee", "cat"}
    sent = training | {1: ((1, 1, 0), EXCHANGING)}
    (said,) = texts(beats(machine, places=sent, seconds=4.0))
    assert said.startswith("waiting for bee for 25 s: it says that it has sent its message of round 1")
    header = SimpleNamespace(tag=(1, 1, 0), digest=b"d")
    message = Message(ExtractorState(torch.zeros(machine.terms.signature.size)))
    for number in (1, 2):
        machine.on(Arrived(number, header, message))
    actions = machine.on(Tick())
    assert texts(actions) == [f"the wait for {name} is over after 28 s" for name in ("bee", "cat")]
    assert [each.facts for each in actions if isinstance(each, LogEvent)] == [{"members": {}}]


def test_who_is_awaited_and_for_how_long_is_known_at_any_time(make_ring):
    machine = Machine(make_ring("fibfl", 3, 5, "iid", patience=60.0).ring)
    machine.now += 7.0
    assert machine.member.awaited(machine.now) == {"bee": 7.0, "cat": 7.0}, "they have not appeared"
    exchanging(machine)
    began = machine.now
    for number in (1, 2):
        machine.on(Delivered(number, (1, 1, 0)))
    message = Message(ExtractorState(torch.zeros(machine.terms.signature.size)))
    machine.on(Arrived(2, SimpleNamespace(tag=(1, 1, 0), digest=b"d"), message))
    beats(machine, places={1: ((1, 1, 0), PREPARING), 2: ((1, 1, 0), EXCHANGING)}, seconds=20.0)
    assert machine.member.awaited(machine.now) == {"bee": machine.now - began}, "cat has sent its message"
    machine.on(Arrived(1, SimpleNamespace(tag=(1, 1, 0), digest=b"d"), message))
    machine.on(Tick())
    assert machine.member.awaited(machine.now) == {}


def test_somebody_who_says_that_it_trains_for_ever_is_not_waited_for_for_ever(machine):
    """Measured by others: five times the patience, or twenty rounds as they were, whichever is longer."""
    exchanging(machine)
    size = machine.terms.signature.size
    header = SimpleNamespace(tag=(1, 1, 0), digest=b"d")
    for number in (1, 2):
        machine.on(Delivered(number, (1, 1, 0)))
        machine.on(Arrived(number, header, Message(ExtractorState(torch.zeros(size)))))
    machine.on(Scored((1, 1, 0), {}))
    machine.on(Saved(1))
    machine.on(Trained(1, torch.zeros(size), 1.0))
    for number in (1, 2):
        machine.on(Delivered(number, (1, 2, 0)))
    places = {1: ((1, 2, 0), PREPARING), 2: ((1, 2, 0), EXCHANGING)}
    machine.on(Arrived(2, SimpleNamespace(tag=(1, 2, 0), digest=b"d"), Message(ExtractorState(torch.zeros(size)))))
    assert not any("new view" in text for text in texts(beats(machine, places=places, seconds=20.0)))
    actions = beats(machine, places=places, seconds=7.0)
    assert "proposing a new view: bee has been training for more than 25 s" in texts(actions)


def test_the_first_failure_is_the_one_that_is_told(machine):
    assert [str(each.error) for each in machine.on(Failed("the disk is full"))] == ["the disk is full"]
    assert machine.on(Failed("the disk is still full")) == []


def heartbeat(status, process, number=1):
    return Heartbeat(b"f" * 16, b"r" * 32, b"s" * 32, process, (number, 1, 0), 0.0, status)


@pytest.fixture
def detector():
    return FailureDetector(0, ("ant", "bee", "cat"), Patience(5.0, 60.0), started=100.0)


def test_silence_counts_for_neighbours_and_from_the_views_beginning(detector):
    detector.heartbeat(1, heartbeat(RUNNING, 11), 100.0)
    detector.heartbeat(2, heartbeat(RUNNING, 12), 100.0)
    found = detector.suspects(VIEW, (1,), since=100.0, now=106.0)
    assert found == {1: "bee has been silent for 5 s (no answer)"}
    assert detector.suspects(VIEW, (1, 2), since=105.0, now=106.0) == {}
    assert detector.alive(106.0) == [0]
    detector.heard(2, 106.0)
    assert detector.alive(106.0) == [0, 2]


def test_goodbyes_restarts_and_stalls_need_no_silence(detector):
    detector.heartbeat(1, heartbeat(LEAVING, 11), 100.0)
    detector.heartbeat(2, heartbeat(ASKING, 99), 100.0)
    found = detector.suspects(VIEW, (), since=99.0, now=100.0)
    assert found == {1: "bee has stopped", 2: "cat was started again"}
    later = detector.suspects(VIEW, (), since=101.0, now=101.0)
    assert later == {1: "bee has stopped"}, "a heartbeat from before the view says nothing"
    detector.heartbeat(1, heartbeat(STALLED, 11), 101.0)
    assert detector.suspects(VIEW, (), since=99.0, now=101.0)[1] == "bee has been training for more than 3600 s"


def test_a_doctor_is_no_sign_of_life(detector):
    detector.heartbeat(1, heartbeat(PROBING, 5), 100.0)
    assert detector.alive(100.0) == [0]


def test_who_asks_and_who_has_finished(detector):
    detector.heartbeat(1, heartbeat(ASKING, 5), 100.0)
    detector.heartbeat(2, heartbeat(FINISHED, 12), 100.0)
    assert detector.asking(1, 100.0) == [1]
    assert detector.asking(2, 100.0) == [], "it must know the present view"
    assert detector.finished(VIEW) == [2]
    assert detector.at_work(1, 100.0) == [2]


def test_alone_a_member_pauses_and_says_so_once(machine):
    machine.seat()
    for number in (1, 2):
        machine.on(HeartbeatAnswered(number, heartbeat(RUNNING, 10 + number)))
    assert not machine.all(Notice, Tick())
    machine.now += 6.0
    (notice,) = [each for _ in range(3) for each in machine.all(Notice, Tick())]
    assert notice.text.startswith("paused: bee has been silent")
    assert notice.text.endswith("2 of 3 are needed, 1 here")
    assert machine.member.voter.ballot is None, "it does not ask in vain"
    machine.on(HeartbeatAnswered(2, heartbeat(RUNNING, 12)))
    actions = []
    for _ in range(40):
        actions += machine.on(Tick())
        machine.now += 0.05
        if machine.member.voter.ballot:
            break
    sent = [each.message.body for each in actions if isinstance(each, SendControl)]
    assert isinstance(sent[-1], Prepare)
    assert "proposing a new view: bee" in [each.text for each in actions if isinstance(each, Notice)][-1]


def test_no_clock_but_the_one_that_is_handed_in(ring, monkeypatch):
    """The same events at the same times give the same actions, whatever this machine's clock says."""
    histories = []
    for offset in (0.0, 1e6):
        with monkeypatch.context() as patch:
            patch.setattr("time.monotonic", lambda offset=offset: offset)
            machine = Machine(ring)
            machine.seat()
            histories.append([[type(a).__name__ for a in machine.on(e)] for e in (Entered(), Tick(), Failed("end"))])
    assert histories[0] == histories[1]
