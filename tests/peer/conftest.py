"""Small rings on loopback: real keys, real sockets, real TLS."""

import os
import random
import socket
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import pytest

from firma.data.dataset import load_dataset
from firma.data.partition import client_inputs, deal
from firma.method_lookup import lookup
from firma.peer.identity import load_identity, make_identity
from firma.peer.ring_file import Ring, checked, ring_toml
from firma.peer.statement_folder import StatementFolder
from firma.settings import split_for

from .victim import Victim

NAMES = ("ant", "bee", "cat", "dog", "eel")


@dataclass(frozen=True)
class Fixture:
    folder: Path
    ring: Ring
    path: Path

    def identity(self, number):
        return self.folder / NAMES[number] / "identity"

    def data(self, number):
        return str(self.folder / NAMES[number] / "data.npz")

    def state(self, number):
        return self.folder / NAMES[number] / "state"


def own_ports():
    """Ports that no other worker of this test run uses, in turn, without end.

    They lie below the range from which the kernel takes ports for outgoing connections, so none of those can take one
    before the ring listens on it.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % workers
    part = range(12_000 + worker, 32_000, workers)
    start = random.SystemRandom().randrange(len(part))  # another run on this machine begins elsewhere
    return cycle([*part[start:], *part[:start]])


PORTS = own_ports()


def is_free(port):
    with socket.socket() as each:
        try:
            each.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def free_ports(count):
    return list(islice(filter(is_free, PORTS), count))


def accept_at(ring, folders, passphrase=None):
    """Each member accepts the ring file with the identity in its folder, and each knows that all have."""
    identities = [load_identity(folder, passphrase) for folder in folders]
    known = [StatementFolder(ring, identity) for identity in identities]
    for statements, identity in zip(known, identities, strict=True):
        statements.make(identity, "accept")
    for statements in known:
        for other in known:
            statements.add(other.held.signatures)


def accept_all(made, ring=None, passphrase=None):
    """The same for a fixture; `ring`: another ring file than the fixture's."""
    ring = ring or made.ring
    accept_at(ring, [made.identity(number) for number in range(len(ring.members))], passphrase)


def made_ring(
    folder, method="fibfl++", members=5, rounds=3, scenario="dir-0.5", hosts=("127.0.0.1",) * 5, draw=0, **changes
) -> Fixture:
    """Keys, data and ring.toml of a ring on digits, dealt by the seed `draw`; `changes` are of the ring file."""
    digits = load_dataset("digits")
    parts = deal(digits, scenario, members, split_for("paper", {}), draw)
    sites = []
    for number, port in enumerate(free_ports(members)):
        home = folder / NAMES[number]
        identity = make_identity(home / "identity", NAMES[number])
        x, x_test = client_inputs(digits, parts, number)
        y, y_test = digits.y_train[parts.train[number]], digits.y_test[parts.test[number]]
        np.savez(home / "data.npz", x=x, y=y, x_test=x_test, y_test=y_test)
        certificate = identity.certificate.decode()
        sites.append({"name": NAMES[number], "address": f"{hosts[number]}:{port}", "certificate": certificate})
    values = {
        "federation": "test", "method": method, "rounds": rounds, "patience": 10.0, "gathering": 60.0,
        "task": {"shape": [8, 8], "labels": list("0123456789"), "scale": 1 / 16}, "members": sites,
        "set": {"extractor_epochs": 2, "hidden": 32, "embedding": 16},
    }  # fmt: skip
    row = lookup(method)
    if row.combine == "mean" and (row.topology == "all-reduce" or row.warmup == "yes"):
        values["insiders"] = 0  # a ring that bears liars refuses plain averages
    ring = checked(values | changes)
    path = folder / "ring.toml"
    path.write_text(ring_toml(ring))
    made = Fixture(folder, ring, path)
    accept_all(made)
    return made


@pytest.fixture
def make_ring(tmp_path):
    """`make_ring(method, members, rounds, scenario, **changes of the ring file)`."""
    return partial(made_ring, tmp_path)


@pytest.fixture
def victim(make_ring, tmp_path):
    made = make_ring("fibfl", 3, 5, "iid")
    each = Victim(made, tmp_path)
    yield each
    each.close()
