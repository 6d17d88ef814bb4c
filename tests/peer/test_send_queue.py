"""Messages overlap on their way, in order, and passes with them."""

import threading
from collections import defaultdict
from itertools import chain

import pytest

from firma.peer.transport.send_queue import SendQueue
from firma.peer.transport.server import Server
from firma.peer.wire.message import decode_header
from firma.peer.wire.message_signature import split
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
def queue():
    made = SendQueue(8)
    yield made
    made.close()


@pytest.fixture
def postman():
    made = Postman()
    yield made
    for name in list(made.started):
        made.leave[name].set()
        made.arrive[name].set()


def test_the_next_message_starts_when_the_last_has_left_not_when_it_has_arrived(queue, postman):
    for name in ("first", "second", "third"):
        queue.post(1, 1, postman.deliver(name))
    assert postman.started["first"].wait(10)
    assert not postman.started["second"].wait(0.1), "two at a time would share the line"
    postman.leave["first"].set()
    assert postman.started["second"].wait(10)
    postman.leave["second"].set()
    assert not postman.started["third"].wait(0.1), "the receiver takes two at a time"
    postman.arrive["first"].set()
    assert postman.started["third"].wait(10)


def test_members_and_views_do_not_wait_for_each_other(queue, postman):
    queue.post(1, 1, postman.deliver("to one"))
    queue.post(2, 1, postman.deliver("to another"))
    queue.post(1, 2, postman.deliver("in the next view"))
    for name in ("to one", "to another", "in the next view"):
        assert postman.started[name].wait(10)


def test_it_is_idle_when_everything_has_arrived(queue, postman):
    queue.post(1, 1, postman.deliver("first"))
    queue.post(2, 1, postman.deliver("second", OSError("the line is cut")))
    assert not queue.idle
    for name in ("first", "second"):
        postman.leave[name].set()
        postman.arrive[name].set()
    while not queue.idle:
        pass


@pytest.mark.parametrize(("method", "members"), [("fibfl++:warmup=no", 3), ("fibfl++", 4)])
def test_a_pass_begins_before_the_last_one_is_acknowledged(make_ring, monkeypatch, method, members):
    """Nobody is told that a message has arrived until the same sender's next one of the round is there."""
    inner, begun, late = Server._receive, defaultdict(threading.Event), []

    def held(self, sender, parts, context):
        first = next(parts)
        view, turn, step = decode_header(self._terms, split(first)[0]).tag
        sequence = self._receiver._member.inbox.sequence
        begun[id(self), sender, turn, step].set()
        answer = inner(self, sender, chain([first], parts), context)
        if sequence.known((view, turn, step + 1)) and not begun[id(self), sender, turn, step + 1].wait(5):
            late.append((sender, turn, step))
        return answer

    monkeypatch.setattr(Server, "_receive", held)
    made = make_ring(method, members, 2, "iid")
    ring = made.ring
    assert plan(ring.row, ring.hyper, members, ring.rounds, 1).passes > 1
    assert_same(made, run_threads(made), simulated(made, "iid", audit=True))
    assert not late
