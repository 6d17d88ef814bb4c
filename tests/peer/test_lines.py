"""Lines that carry heartbeats and no messages, whole rings under a virtual clock: who is left out, when, and for how long."""

import pytest

from firma.peer.membership.exclusion import Exclusions, left_out
from firma.peer.membership.views import Seat, View
from firma.peer.wire.message import REFUSED

from .test_virtual import assert_finished, assert_replayed
from .virtual import VirtualNode, World

PATIENCE = 2.0


class BrokenLines:
    """Messages and probes from one member to another that do not get through, though heartbeats do."""

    def __init__(self):
        self.cut, self.muted, self.refusing, self.liars = set(), set(), set(), set()

    def receive(self, node, sender, parts, inner):
        if (sender, node.number) in self.cut or (sender, node.number) in self.muted:
            return None
        if node.number in self.refusing:
            return bytes([REFUSED]) + b"on principle"
        return inner(node, sender, parts)

    def probed(self, node, sender, inner):
        return None if (sender, node.number) in self.cut else inner(node, sender)


@pytest.fixture
def lines(monkeypatch):
    broken = BrokenLines()
    receive, probed = VirtualNode.receive, VirtualNode.probed
    monkeypatch.setattr(
        VirtualNode, "receive", lambda node, sender, parts: broken.receive(node, sender, parts, receive)
    )
    monkeypatch.setattr(VirtualNode, "probed", lambda node, sender: broken.probed(node, sender, probed))
    return broken


def around(member, members):
    return {(member, other) for other in range(members)}, {(other, member) for other in range(members)}


def notices(world, member=None):
    return [text for _, name, _, text in world.of("notice") if member is None or name == member]


def rings(world):
    return [tuple(sorted(seat.member for seat in ring)) for _, (ring, _) in sorted(world.views().items())]


@pytest.mark.parametrize("members", [3, 5])
@pytest.mark.parametrize("fault", ["takes nothing", "sends nothing", "refuses"])
def test_a_member_that_is_alive_and_delivers_nothing_is_left_out(lines, members, fault):
    world = World(members, 60, seed=1, patience=PATIENCE)
    out, into = around(1, members)

    def strike():
        match fault:
            case "takes nothing":
                lines.cut |= into
            case "sends nothing":
                lines.muted |= out
            case "refuses":
                lines.refusing.add(1)

    world.at(1.5, strike)
    world.start()
    world.at(40.0, lambda: world.kill(1))
    world.run()
    others = [n for n in range(members) if n != 1]
    assert_finished(world, *others)
    assert rings(world)[1] == tuple(others)
    left = next(when for when, _, _, view in world.of("entered") if view.number == 2)
    assert left < 1.5 + 3 * PATIENCE
    assert any("proposing a new view: bee: it" in text for text in notices(world))
