"""What is left of a state folder after a kill at every system call, and after a loss of power: the real code on it."""

import random

import pytest

from firma.peer.membership.views import Memory, Seat, View
from firma.peer.runtime import checkpoint
from firma.peer.runtime.audit_log import AuditLog, audit
from firma.peer.runtime.json_lines import appended, lines_of
from firma.peer.runtime.promises import Promises

from .disk import Disk, Killed, Mount, SimulatedPath
from .facades import acting, simulated
from .network import SimulatedClient
from .trainer import TinySite
from .world import agreed

RING, TERMS, _ = agreed(3, 5, "fibfl", ())
VIEW = View(1, 0, (Seat(0, 7), Seat(1, 8), Seat(2, 9)))


class Machine:
    """A disk, and processes on it one after the other."""

    def __init__(self, seed=0):
        self.disk = Disk(random.Random(seed))

    def process(self, fuse=None):
        self.mount = Mount(self.disk)
        self.mount.fuse = fuse
        self.folder = SimulatedPath(self.mount)
        return acting(self)

    def monotonic(self):
        return 0.0

    wall = monotonic


@pytest.fixture(autouse=True)
def on_a_simulated_disk():
    with simulated(SimulatedClient):
        yield


def save(machine, rounds, epoch=1, keep=2):
    site = TinySite(0)
    site.client.parameters += rounds
    checkpoint.write(machine.folder, site, RING.digest, epoch, (0, 1, 2), [0.5] * rounds, keep)


def reopened(machine):
    """(view, rounds), after the next process has found its way."""
    with machine.process():
        site = TinySite(0)
        number, saved = checkpoint.reopen(machine.folder, site, RING.digest)
        assert float((site.client.parameters - TinySite(0).client.parameters)[0]) == saved.rounds
        return number, saved.rounds


def through_every_crash(prepare, act, before, after, power):
    """Kill a process at each of its steps: what it finds then is what was before, or what is after, and never less."""
    fuse, seen = 0, set()
    while True:
        for seed in range(8 if power else 1):
            machine = Machine(seed)
            with machine.process():
                prepare(machine)
            try:
                with machine.process(fuse):
                    act(machine)
                killed = False
            except Killed:
                killed = True
            if power:
                machine.disk.lose_power()
            found = reopened(machine)
            assert found in ((before, after) if killed else (after,)), f"killed at step {fuse}"
            assert reopened(machine) == found, "the second start finds what the first one did"
            seen.add(found)
        if not killed:
            return seen
        fuse += 1


@pytest.mark.parametrize("power", [False, True])
def test_a_round_that_is_saved_is_whole_or_not_there_wherever_it_is_cut_short(power):
    """Old rounds are removed with it: the removal must not leave half a round behind, either."""

    def prepare(machine):
        checkpoint.reopen(machine.folder, TinySite(0), RING.digest)
        save(machine, 1)
        save(machine, 2)

    found = through_every_crash(prepare, lambda machine: save(machine, 3), (1, 2), (1, 3), power)
    assert found == {(1, 2), (1, 3)}


@pytest.mark.parametrize("power", [False, True])
def test_a_view_that_starts_earlier_is_begun_or_not_wherever_that_is_cut_short(power):
    def prepare(machine):
        checkpoint.reopen(machine.folder, TinySite(0), RING.digest)
        for rounds in (1, 2, 3):
            save(machine, rounds, keep=9)

    found = through_every_crash(prepare, lambda machine: checkpoint.mark(machine.folder, 1, 2), (1, 3), (2, 1), power)
    assert found == {(1, 3), (2, 1)}


@pytest.mark.parametrize("power", [False, True])
def test_promises_are_those_before_or_after_wherever_the_writing_is_cut_short(power):
    seen = set()
    for fuse in range(12):
        for seed in range(8):
            machine = Machine(seed)
            with machine.process():
                Promises(machine.folder, RING).write(Memory(VIEW, (1, 0)))
            try:
                with machine.process(fuse):
                    Promises(machine.folder, RING).write(Memory(VIEW, (2, 1)))
                killed = False
            except Killed:
                killed = True
            if power:
                machine.disk.lose_power()
            with machine.process():
                found = Promises(machine.folder, RING).read()
            seen.add(found.promised)
            assert killed or found.promised == (2, 1)
    assert seen == {(1, 0), (2, 1)}


def test_what_is_not_synced_is_lost_or_torn():
    """The simulation itself: without fsync a loss of power shows."""
    found = set()
    for seed in range(40):
        machine = Machine(seed)
        with machine.process():
            file = (machine.folder / "file").open("wb")
            file.write(b"0123456789")
            file.close()
        machine.disk.lose_power()
        with machine.process():
            path = machine.folder / "file"
            found.add(len(path.read_bytes()) if path.exists() else None)
    assert None in found
    assert found & set(range(1, 10)), "torn"


def test_a_full_disk_may_cut_off_a_line_and_its_mark_and_the_audit_still_knows_why():
    """Every mark that says that a line was cut off may itself be cut off, at any byte, several times over."""
    for seed in range(60):
        machine = Machine(seed)
        with machine.process():
            log = AuditLog(machine.folder / "audit.jsonl", RING, 0, TERMS)
            log.record_control(1, ["rounds"], 99)
            machine.disk.full = True
            with pytest.raises(OSError, match="No space"):
                log.record_control(2, ["rounds"], 99)
        for _ in range(3):
            with machine.process(), pytest.raises(OSError, match="No space"):
                AuditLog(machine.folder / "audit.jsonl", RING, 0, TERMS)
        machine.disk.full = False
        with machine.process():
            AuditLog(machine.folder / "audit.jsonl", RING, 0, TERMS).record_control(1, ["rounds"], 99)
            report = audit(machine.folder / "audit.jsonl")
        assert not report.breaches, seed
        assert report.messages >= 2


def test_a_damaged_line_in_the_middle_is_not_explained_by_what_follows():
    machine = Machine()
    with machine.process():
        path = machine.folder / "lines.jsonl"
        file = appended(path)
        file.write('{"a": 1}\n{"b": \n{"c": 3}\n')
        file.flush()
        assert [line.cut_off for line in lines_of(path) if line.value is None] == [False]
