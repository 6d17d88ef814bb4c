"""A mutation fuzz of the decoder: `python tests/peer/fuzz_wire.py SECONDS`. A short run is in test_fuzz.py.

Valid messages are changed at random, half of them with the seal made right again. The decoder must refuse with
`WireError`, or give a message within the terms; anything else is a finding.
"""

import hashlib
import random
import sys
import time

import torch

from firma.models import SplitModel, mlp
from firma.peer.signature import signature
from firma.peer.terms import Terms, WireError, federation_tag
from firma.peer.wire import Assembly, chunks, decode_head, encode
from firma.protocol import ExtractorState, Message

TERMS = Terms(federation_tag("fuzz"), b"r" * 32, signature(SplitModel(*mlp((3,), 2, 4, 3)).layout()), 3)
SIZE = TERMS.signature.size
EDGES = (b"\0", b"\xff", b"\x7f", b"\x80", b"\xff" * 8, b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\xff\xff\xff\x7f")


def seeds():
    values = torch.linspace(-1, 1, SIZE)
    yield from (
        encode(TERMS, (1, 1, 0), Message(ExtractorState(values))),
        encode(TERMS, (4, 9, 3), Message(ExtractorState(values), accuracy=0.5)),
        encode(TERMS, (1, 2, 1), Message(ExtractorState(values[5:40], 5), weight=37.0)),
    )


def mutate(raw, dice):
    raw = bytearray(raw)
    for _ in range(dice.randint(1, 4)):
        place = dice.randrange(len(raw) + 1)
        match dice.randrange(4):
            case 0 if place < len(raw):
                raw[place] ^= 1 << dice.randrange(8)
            case 1:
                edge = dice.choice(EDGES)
                raw[place : place + len(edge)] = edge
            case 2:
                del raw[place : place + dice.randint(1, 8)]
            case _:
                raw[place:place] = dice.randbytes(dice.randint(1, 8))
    return bytes(raw)


def check(head, body):
    """Decode; True if it was refused."""
    try:
        found = decode_head(TERMS, head)
        assert found.start + found.count <= SIZE
        assembly = Assembly(found)
        assembly.feed(body)
        message = assembly.finish()
    except WireError:
        return True
    assert torch.isfinite(message.state.values).all()
    assert message.state.values.numel() == found.count
    return False


def fuzz(seconds, seed=0):
    dice, valid = random.Random(seed), [(head, b"".join(chunks(values))) for head, values in seeds()]
    tried = refused = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        head, body = dice.choice(valid)
        if dice.random() < 0.7:
            inner = mutate(head[:-32], dice)
            head = inner + hashlib.sha256(inner).digest() if dice.random() < 0.5 else mutate(head, dice)
        else:
            body = mutate(body, dice) if body else body
        refused += check(head, body)
        tried += 1
    return tried, refused


if __name__ == "__main__":
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    tried, refused = fuzz(seconds, seed=int(time.time()))
    print(f"{tried:,} messages in {seconds:g} s, {refused:,} refused, none got past the terms")
