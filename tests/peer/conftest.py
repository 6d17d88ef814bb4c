"""Small rings on loopback: real keys, real sockets, real TLS."""

import socket
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from firma.data.dataset import load_dataset
from firma.data.partition import client_inputs, deal
from firma.peer.identity import make_identity
from firma.peer.ring_file import Ring, checked, ring_toml
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


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def made_ring(
    folder, method="fibfl++", members=5, rounds=3, scenario="dir-0.5", hosts=("127.0.0.1",) * 5, **changes
) -> Fixture:
    """Keys, data and ring.toml of a ring on digits; `changes` are of the ring file."""
    digits = load_dataset("digits")
    parts = deal(digits, scenario, members, split_for("paper", {}), 0)
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
    ring = checked(values | changes)
    path = folder / "ring.toml"
    path.write_text(ring_toml(ring))
    return Fixture(folder, ring, path)


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
