"""Remember first, then speak; and who is missed, by this machine's own clock."""

import pytest

from firma.errors import BadInput
from firma.models import SplitModel, mlp
from firma.peer.council import Council
from firma.peer.desk import Desk
from firma.peer.membership.failure_detector import Patience, Signs
from firma.peer.membership.views import Accept, Accepted, Note, Prepare, Promise, Refusal, Seat, View, Word
from firma.peer.runtime.event_log import Log
from firma.peer.runtime.promises import Promises
from firma.peer.warden import Warden
from firma.peer.wire.control import decode_note, encode_note
from firma.peer.wire.heartbeat import ASKING, FINISHED, LEAVING, PROBING, RUNNING, STALLED, Hello
from firma.peer.wire.signature import signature
from firma.peer.wire.terms import Terms, WireError, federation_tag

VIEW = View(1, 0, (Seat(0, 10), Seat(1, 11), Seat(2, 12)))


class Table:
    """Member 0 of three, with a disk and with lines that only note what was sent."""

    def __init__(self, made, folder):
        self.ring = made.ring
        layout = SplitModel(*mlp((8, 8), 10, 32, 16)).layout()
        self.terms = Terms(federation_tag("test"), self.ring.digest, signature(layout), 10)
        self.desk = Desk(Signs(0, self.ring.names, Patience(5.0, 5.0)), Log(None))
        self.promises, self.sent, self.recorded, self.views = Promises(folder, self.ring), [], [], []
        self.open()

    def open(self):
        self.council = Council(
            self.ring, self.terms, self.desk, self.promises, Word(10), self.record,
            lambda view, seated: self.views.append((view, seated)),
        )  # fmt: skip
        self.council.send = lambda member, raw: self.sent.append((member, self.decoded(raw)))

    def record(self, member, numbers, size):
        self.recorded.append((member, numbers))

    def decoded(self, raw):
        return decode_note(self.terms, raw, 3, self.ring.rounds)

    def say(self, sender, note):
        raw = self.council.received(sender, encode_note(self.terms, note))
        return self.decoded(raw) if raw else None


@pytest.fixture
def table(make_ring, tmp_path):
    return Table(make_ring("fibfl", 3, 5, "iid"), tmp_path)


def test_a_promise_is_on_the_disk_before_it_is_given_and_survives(table):
    answer = table.say(1, Note(None, Prepare((1, 1))))
    assert isinstance(answer.body, Promise)
    assert table.promises.read().promised == (1, 1)
    table.open()
    assert table.say(2, Note(None, Prepare((1, 2)))).body.ballot == (1, 2)
    table.open()
    assert table.say(1, Note(None, Accept((1, 1), VIEW))).body == Refusal((1, 2))
    assert all(numbers == ["rounds"] for _, numbers in table.recorded)


def test_what_cannot_be_remembered_is_not_said(table, monkeypatch):
    def full(self, memory):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Promises, "write", full)
    assert table.say(1, Note(None, Prepare((1, 1)))) is None
    assert isinstance(table.desk.failure, BadInput)
    assert "No space left" in str(table.desk.failure)
    assert not table.council.member.frozen


def test_a_ballot_of_somebody_else_and_junk_are_refused(table):
    with pytest.raises(WireError, match="somebody else"):
        table.say(1, Note(None, Prepare((1, 2))))
    with pytest.raises(WireError):
        table.council.received(1, b"junk" * 30)
    assert table.promises.read() is None


def test_who_has_forgotten_everything_keeps_silent_in_a_ring_at_work(table):
    assert table.say(1, Note(VIEW, Prepare((1, 1)))) is None
    assert "must not come back" in str(table.desk.failure)


def test_a_decided_view_is_told_to_all_and_followed(table):
    for number in (1, 2):
        table.council.propose()
        ballot = table.council.member.ballot
        table.council.answered(number, encode_note(table.terms, Note(None, Promise(ballot, Word(10 + number), None))))
    ballot = table.council.member.ballot
    table.council.answered(1, encode_note(table.terms, Note(None, Promise(ballot, Word(11), None))))
    assert table.council.member.value == VIEW
    table.council.answered(2, encode_note(table.terms, Note(None, Accepted(ballot))))
    assert table.views == [(VIEW, True)]
    assert table.sent[-2:] == [(1, Note(VIEW)), (2, Note(VIEW))]
    assert table.promises.read().view == VIEW


def hello(status, process, epoch=1):
    return Hello(b"f" * 16, b"r" * 32, b"s" * 32, process, (epoch, 1, 0), 0.0, status)


@pytest.fixture
def signs(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    found = Signs(0, ("ant", "bee", "cat"), Patience(5.0, 60.0))
    found.clock = clock
    return found


def test_silence_counts_for_neighbours_and_from_the_views_beginning(signs):
    signs.greet(1, hello(RUNNING, 11))
    signs.greet(2, hello(RUNNING, 12))
    signs.clock[0] += 6.0
    assert signs.suspects(VIEW, (1,), since=100.0) == {1: "bee has been silent for 5 s (no answer)"}
    assert signs.suspects(VIEW, (1, 2), since=105.0) == {}
    assert signs.alive() == [0]
    signs.heard(2)
    assert signs.alive() == [0, 2]


def test_goodbyes_restarts_and_stalls_need_no_silence(signs):
    signs.greet(1, hello(LEAVING, 11))
    signs.greet(2, hello(ASKING, 99))
    found = signs.suspects(VIEW, (), since=99.0)
    assert found == {1: "bee has stopped", 2: "cat was started again"}
    assert signs.suspects(VIEW, (), since=101.0) == {1: "bee has stopped"}, "a hello from before the view says nothing"
    signs.greet(1, hello(STALLED, 11))
    assert "hangs" in signs.suspects(VIEW, (), since=99.0)[1]


def test_a_doctor_is_no_sign_of_life(signs):
    signs.greet(1, hello(PROBING, 5))
    assert signs.alive() == [0]


def test_who_asks_and_who_has_finished(signs):
    signs.greet(1, hello(ASKING, 5))
    signs.greet(2, hello(FINISHED, 12))
    assert signs.asking(1) == [1]
    assert signs.asking(2) == [], "it must know the present view"
    assert signs.finished(VIEW) == [2]
    assert signs.at_work(1) == [2]


def test_alone_a_member_pauses_and_says_so_once(table, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    table.council.propose()
    ballot = table.council.member.ballot
    for number in (1, 2):
        table.council.answered(number, encode_note(table.terms, Note(None, Promise(ballot, Word(10 + number), None))))
    table.council.answered(1, encode_note(table.terms, Note(None, Accepted(ballot))))
    for number in (1, 2):
        table.desk.greet(number, hello(RUNNING, 10 + number))
    table.desk.began = clock[0]
    monkeypatch.setattr(Desk, "neighbours", (1, 2))
    warden = Warden(table.council, table.desk)
    warden.tick()
    assert table.desk.notices == []
    clock[0] += 6.0
    for _ in range(3):
        warden.tick()
    (text,) = table.desk.notices
    assert text.startswith("paused: bee has been silent")
    assert text.endswith("2 of 3 are needed, 1 here")
    assert table.council.member.ballot is None, "it does not ask in vain"
    table.desk.greet(2, hello(RUNNING, 12))
    for _ in range(40):
        warden.tick()
        clock[0] += 0.05
        if table.council.member.ballot:
            break
    assert isinstance(table.sent[-1][1].body, Prepare)
    assert "going on without: bee" in table.desk.notices[-1]
