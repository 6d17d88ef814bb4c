"""Messages overlap on their way, in order, and passes with them."""

import threading
from collections import defaultdict
from itertools import chain

import pytest

from firma.peer.desk import PeerLost
from firma.peer.transport.send_queue import Outbox
from firma.peer.transport.server import Reception
from firma.peer.wire.message import decode_head
from firma.schedule import plan

from .test_node import assert_same, run_threads, simulated


class Postman:
    """Deliveries that go on when they are told to."""

    def __init__(self):
        self.started, self.leave, self.arrive = (defaultdict(threading.Event) for _ in range(3))

    def deliver(self, name, error=None):
        def carry(on_line):
            self.started[name].set()
            assert self.leave[name].wait(10)
            on_line()
            assert self.arrive[name].wait(10)
            if error is not None:
                raise error

        return carry


@pytest.fixture
def outbox():
    made = Outbox(8)
    yield made
    made.close()


@pytest.fixture
def postman():
    made = Postman()
    yield made
    for name in list(made.started):
        made.leave[name].set()
        made.arrive[name].set()


def test_the_next_message_starts_when_the_last_has_left_not_when_it_has_arrived(outbox, postman):
    for name in ("first", "second", "third"):
        outbox.post(1, 1, postman.deliver(name))
    assert postman.started["first"].wait(10)
    assert not postman.started["second"].wait(0.1), "two at a time would share the line"
    postman.leave["first"].set()
    assert postman.started["second"].wait(10)
    postman.leave["second"].set()
    assert not postman.started["third"].wait(0.1), "the receiver takes two at a time"
    postman.arrive["first"].set()
    assert postman.started["third"].wait(10)


def test_members_and_views_do_not_wait_for_each_other(outbox, postman):
    outbox.post(1, 1, postman.deliver("to one"))
    outbox.post(2, 1, postman.deliver("to another"))
    outbox.post(1, 2, postman.deliver("in the next view"))
    for name in ("to one", "to another", "in the next view"):
        assert postman.started[name].wait(10)


def test_a_refusal_ends_the_view_that_it_belongs_to_and_no_other(outbox, postman):
    for member, view in ((1, 1), (2, 2)):
        outbox.post(member, view, postman.deliver(view, PeerLost(f"view {view}")))
        postman.leave[view].set()
    assert not outbox.check(2)
    postman.arrive[1].set()
    while len(outbox._queues[1]):
        assert not outbox.check(2), "the second is still under way"
    postman.arrive[2].set()
    with pytest.raises(PeerLost, match="view 2"):
        while True:
            outbox.check(2)
    assert outbox.check(2)


@pytest.mark.parametrize(("method", "members"), [("fibfl++:warmup=no", 3), ("fibfl++", 4)])
def test_a_pass_begins_before_the_last_one_is_acknowledged(make_ring, monkeypatch, method, members):
    """Nobody is told that a message has arrived until the same sender's next one of the round is there."""
    inner, begun, late = Reception._receive, defaultdict(threading.Event), []

    def held(self, desk, sender, parts, context):
        first = next(parts)
        view, turn, step = decode_head(self.terms, first).tag
        begun[id(self), sender, turn, step].set()
        answer = inner(self, desk, sender, chain([first], parts), context)
        if desk.inbox.course.known((view, turn, step + 1)) and not begun[id(self), sender, turn, step + 1].wait(5):
            late.append((sender, turn, step))
        return answer

    monkeypatch.setattr(Reception, "_receive", held)
    made = make_ring(method, members, 2, "iid")
    ring = made.ring
    assert plan(ring.row, ring.hyper, members, ring.rounds, 1).passes > 1
    assert_same(made, run_threads(made), simulated(made, "iid", audit=True))
    assert not late
