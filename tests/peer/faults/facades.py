"""What stands between the members' code and the machine: the modules `time`, `os`, `shutil`, `open`, and gRPC's client.

Within `simulated(...)` every module of `firma.peer` (and `firma.atomic_files`) that uses one of them gets a stand-in
that answers for the simulated process that is acting, and hands everything else on to the real one.
"""

import builtins
import importlib
import os
import pkgutil
import shutil
import sys
import time
from contextlib import contextmanager

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from firma.peer.signing import verify

from .disk import SimulatedPath, opened

_acting = []  # the simulated process whose code runs now, if any


class acting:  # noqa: N801, a context manager that costs little
    """Code that runs within this is of that process."""

    def __init__(self, process):
        self._process = process

    def __enter__(self):
        _acting.append(self._process)

    def __exit__(self, *_):
        _acting.pop()


def current():
    return _acting[-1]


class Time:
    """`time` for simulated processes: each has a clock of its own."""

    def __getattr__(self, name):
        return getattr(time, name)

    @staticmethod
    def monotonic():
        return _acting[-1].monotonic() if _acting else time.monotonic()

    @staticmethod
    def perf_counter():
        return _acting[-1].monotonic() if _acting else time.perf_counter()

    @staticmethod
    def time():
        return _acting[-1].wall() if _acting else time.time()


class Os:
    """`os` for simulated paths and their handles."""

    def __getattr__(self, name):
        return getattr(os, name)

    @staticmethod
    def open(path, flags, mode=0o777):
        return path.mount.handle(path._node()) if isinstance(path, SimulatedPath) else os.open(path, flags, mode)

    @staticmethod
    def fsync(handle):
        _acting[-1].mount.fsync(handle) if _acting else os.fsync(handle)

    @staticmethod
    def close(handle):
        _acting[-1].mount.close(handle) if _acting else os.close(handle)


class Shutil:
    """`shutil` for simulated paths."""

    def __getattr__(self, name):
        return getattr(shutil, name)

    @staticmethod
    def rmtree(path, ignore_errors=False):
        if isinstance(path, SimulatedPath):
            path.rmtree(ignore_errors)
        else:
            shutil.rmtree(path, ignore_errors)


def _open(path, mode="r", **options):
    return opened(path, mode) if isinstance(path, SimulatedPath) else builtins.open(path, mode, **options)  # noqa: PTH123


_genuine = {}  # (public key, what was said, signature): whether it is


def _verify(key, said, signature):
    """The real `signing.verify`, computed once for all members: each of them would get the same answer."""
    known = (key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint), said, signature)
    if known not in _genuine:
        if len(_genuine) > 20_000:
            _genuine.clear()
        _genuine[known] = verify(key, said, signature)
    return _genuine[known]


_STAND_INS = {"time": (time, Time()), "os": (os, Os()), "shutil": (shutil, Shutil())}


def _modules():
    package = importlib.import_module("firma.peer")
    for found in pkgutil.walk_packages(package.__path__, "firma.peer."):
        if found.name in sys.modules:
            yield sys.modules[found.name]
    yield sys.modules["firma.atomic_files"]


@contextmanager
def simulated(client, *changes):
    """Let the members' code use simulated time, disk and network; `changes` are (object, name, value) beside that."""
    changes = [
        ("firma.peer.runtime.driver", "Client", client),
        ("firma.peer.transport.server", "caller", lambda context, _: context.member),
        ("firma.peer.signing", "verify", _verify),
        ("firma.peer.wire.message_signature", "verify", _verify),
        *changes,
    ]
    for module in _modules():
        held = vars(module)
        changes += [(module, name, stand_in) for name, (real, stand_in) in _STAND_INS.items() if held.get(name) is real]
        if module.__name__ == "firma.atomic_files" or ".runtime." in module.__name__:
            changes.append((module, "open", _open))
    undo = []
    try:
        for place, name, value in changes:
            target = importlib.import_module(place) if isinstance(place, str) else place
            undo.append((target, name, vars(target).get(name)))
            setattr(target, name, value)
        yield
    finally:
        for target, name, value in reversed(undo):
            if value is None:
                delattr(target, name)
            else:
                setattr(target, name, value)
