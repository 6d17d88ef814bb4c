"""A fuzz of control messages behind a valid certificate: `python -m tests.peer.fuzz_insider SEEDS`.

A member of a virtual ring of five sends mutations of all that it was sent: leaves of one message in the place of
another's, edge values, and its own right signature under what it made. What a server would refuse is not sent. The
honest four must finish with the bits of their views, lose no round and not stop for longer than is stated.
"""

import json
import random
import sys
from copy import deepcopy
from dataclasses import replace

from firma.peer.membership.views import Committed, Echo, Promise, statement
from firma.peer.runtime.events import ControlAnswered, ControlArrived
from firma.peer.wire.control import decode_control, encode_control
from firma.peer.wire.terms import WireError

from .virtual import Network, World

LIAR = 4
EDGES = (0, 1, -1, 2, 5, 2**32 - 1, 2**62, True, None, "", "00" * 64, [], {})


def leaves(plain, path=()):
    """Paths of everything in a JSON value."""
    if isinstance(plain, dict | list):
        for key, value in plain.items() if isinstance(plain, dict) else enumerate(plain):
            yield (*path, key)
            yield from leaves(value, (*path, key))


def at(plain, path):
    for key in path:
        plain = plain[key]
    return plain


def mutated(dice, heard, world):
    """A message made of those that were heard, or None if no server would take it."""
    raw = [encode_control(world.terms, dice.choice(heard)) for _ in range(2)]
    start = raw[0].index(b"{")
    plain, other = (json.loads(each[start:]) for each in raw)
    for _ in range(dice.randint(0, 3)):
        path = dice.choice(list(leaves(plain)))
        same = [each for each in leaves(other) if each[-1] == path[-1]]
        value = at(other, dice.choice(same)) if same and dice.random() < 0.7 else dice.choice(EDGES)
        at(plain, path[:-1])[path[-1]] = deepcopy(value)
    try:
        message = decode_control(world.terms, raw[0][:start] + json.dumps(plain).encode(), 5, world.ring.rounds)
        message = signed(dice, message, world.seals[LIAR])
        return decode_control(world.terms, encode_control(world.terms, message), 5, world.ring.rounds, LIAR)
    except WireError:
        return None


def signed(dice, message, seals):
    """With its own signature, if it is to have one; requests are under its own ballots."""
    body, number = message.body, message.view.number + 1 if message.view else 1
    if body is not None and hasattr(body, "ballot") and not isinstance(body, Promise | Echo | Committed):
        ballot = (body.ballot[0], LIAR)
        body = replace(body, prepared=replace(body.prepared, ballot=ballot)) if hasattr(body, "prepared") else replace(
            body, ballot=ballot
        )  # fmt: skip
    if isinstance(body, Promise):
        seal = seals.sign(statement(seals.ring, b"promise", number, body.ballot, body.digest))
        body = replace(body, signature=seal)
    elif isinstance(body, Echo | Committed) and message.view is not None and dice.random() < 0.5:
        kind = b"echo" if isinstance(body, Echo) else b"commit"
        body = replace(
            body, signature=seals.sign(statement(seals.ring, kind, number, body.ballot, message.view.digest))
        )
    return replace(message, body=body)


def fuzzed(seed, rounds=40, every=0.02, end=30.0):
    """(the world after its run, notes sent)."""
    world, heard, dice, sent = World(5, rounds, seed, Network((0.001, 0.05))), [], random.Random(seed), [0]

    def listen():
        node = world.nodes[LIAR]
        inner = node.on

        def on(event):
            if isinstance(event, ControlArrived | ControlAnswered):
                heard.append(event.message)
            return inner(event)

        node.on = on

    def lie():
        node = world.nodes[LIAR]
        if not node.up or world.now > end:
            return
        for _ in range(3 if heard else 0):
            message = mutated(dice, heard, world)
            if message is not None:
                sent[0] += 1
                node._control(dice.randrange(LIAR), encode_control(world.terms, message))
        world.after(every, lie)

    world.start()
    listen()
    world.after(0.5, lie)
    return world.run(), sent[0]


if __name__ == "__main__":
    from .test_insiders import assert_unharmed

    total = 0
    for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else 20):
        world, count = fuzzed(seed)
        assert_unharmed(world)
        total += count
    print(f"{total:,} control messages behind a valid certificate; no round was lost, nobody stopped for too long")
