"""Randomness by address: a generator is a function of (seed, purpose, client, round), never of what ran before."""

import hashlib

import numpy as np


def _sequence(seed: int, purpose: str, address: tuple[int, ...]) -> np.random.SeedSequence:
    word = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8], "little")
    return np.random.SeedSequence([seed, word, *address])


def generator(seed: int, purpose: str, *address: int) -> np.random.Generator:
    """The generator at an address; the same on every engine, machine and Python process."""
    return np.random.Generator(np.random.PCG64(_sequence(seed, purpose, address)))


def torch_seed(seed: int, purpose: str, *address: int) -> int:
    """A seed for torch at an address."""
    return int(_sequence(seed, purpose, address).generate_state(1, np.uint64)[0] >> np.uint64(1))
