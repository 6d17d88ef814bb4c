"""A mutation fuzz of everything in fuzz_targets.py, without any tool: `python -m tests.peer.fuzz_wire SECONDS`.

Valid inputs are changed at random. A short run is in test_fuzz.py; fuzz_coverage.py is the thorough one.
"""

import random
import sys
import time
from collections import Counter

from .fuzz_targets import seeds

EDGES = (b"\0", b"\xff", b"\x7f", b"\x80", b"\xff" * 8, b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\xff\xff\xff\x7f")


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


def fuzz(seconds, seed=0):
    """Inputs tried and refused, by target."""
    dice, valid = random.Random(seed), list(seeds())
    tried, refused = Counter(), Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        target, raw = dice.choice(valid)
        tried[target.__name__] += 1
        refused[target.__name__] += target(mutate(raw, dice))
    return tried, refused


if __name__ == "__main__":
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    tried, refused = fuzz(seconds, seed=int(time.time()))
    for name, count in tried.items():
        print(f"{name}: {count:,} inputs, {refused[name]:,} refused, none got past the terms")
