"""A whole ring in one process: members, a clock, a network, disks and an operator, all of it from one seed.

`Process` is put together as `firma.peer.runtime.node.Node` is, from the same parts: the member's machine, its driver,
round loop, server, promises, checkpoints, keys, signatures, evidence, audit log and event log are the real ones. A
test lets things happen by `world.at(seconds, action)` and looks at `world.history` in the end: entries (seconds, name,
what, facts ...).
"""

import random
import tempfile
from collections import deque
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from firma.errors import BadInput
from firma.peer.identity import canonical, make_identity
from firma.peer.membership.proposer import Proposer
from firma.peer.membership.views import MemberState, Memory
from firma.peer.ring_file import Ring, Task
from firma.peer.ring_file import Site as RingMember
from firma.peer.runtime import checkpoint
from firma.peer.runtime.audit_log import AuditLog, audit
from firma.peer.runtime.disk_budget import DiskBudget
from firma.peer.runtime.driver import Driver
from firma.peer.runtime.event_log import EventLog
from firma.peer.runtime.events import Fail, Finish, PeerLost, Save, Train
from firma.peer.runtime.evidence import Evidence
from firma.peer.runtime.member_machine import Member, Start
from firma.peer.runtime.node import agreement_of
from firma.peer.runtime.promises import Promises
from firma.peer.runtime.round_loop import RoundLoop
from firma.peer.signing import seals_of
from firma.peer.transport.server import Server
from firma.peer.wire.terms import VERSION, Terms, federation_tag, signature

from ..simulation import NAMES, Timeline, simulated_ring  # noqa: TID252
from .disk import Disk, Killed, Mount, SimulatedPath
from .facades import acting, current, simulated
from .network import Network, SimulatedClient
from .trainer import CLASSES, LAYOUT, TinySite

_STEP = 0.001  # seconds that the main thread needs for anything but training


@cache
def identities():
    """Real keys and certificates, made once per process: no time and no size depends on which they are."""
    with tempfile.TemporaryDirectory() as folder:
        return tuple(make_identity(Path(folder) / name, name) for name in NAMES)


@lru_cache(maxsize=64)
def agreed(members, rounds, method, changes):
    """(ring, terms, agreement as each member holds it, which has its own key)."""
    who = identities()[:members]
    sites = tuple(
        RingMember.model_construct(name=name, address=f"{name}:1", certificate=canonical(each.certificate).decode())
        for name, each in zip(NAMES, who, strict=False)
    )
    task = Task(shape=(3,), labels=tuple(map(str, range(CLASSES))))
    ring = simulated_ring(_SimulatedRing, sites, rounds, method, task, **dict(changes))
    terms = Terms(federation_tag("virtual"), ring.digest, signature(LAYOUT), CLASSES)
    return ring, terms, tuple(agreement_of(ring, terms, seals_of(ring, each)) for each in who)


class _SimulatedRing(Ring):
    """The ring file of a simulated ring; thousands of checkpoints ask for its digest."""

    @property
    def digest(self):
        return b"r" * 32


VOTES = ("promise", "echo", "commit", "decision")  # what a member makes durable, in the order of an agreement


def vote_in(before, memory):
    """What a member has made durable since `before`: that it promises, echoes or commits, or that a view is decided."""
    before = before or Memory()
    if memory.view != before.view:
        return "decision"
    if memory.prepared not in (None, before.prepared):
        return "commit"
    return "echo" if memory.echoed not in (None, before.echoed) else "promise"


class _Promises(Promises):
    """Notes which views a member knows of for good."""

    def __init__(self, process, folder, ring):
        super().__init__(folder, ring)
        self._process, self._last = process, None

    def read(self):
        self._last = super().read()
        return self._last

    def write(self, memory):
        super().write(memory)
        before, self._last = self._last, memory
        if memory.view is not None:
            self._process.learnt(memory.view)
        self._process.world.voted(self._process, vote_in(before, memory))


class _RoundLoop(RoundLoop):
    """Notes what is on the disk after each round and at the start of each view."""

    def __init__(self, process, *parts):
        super().__init__(*parts)
        self._process = process

    def enter(self, work):
        if work.extractors and len(self.history) != work.view.start:
            self._process.note("caught up", work.view.number, tuple(sender for sender, _ in work.extractors))
        super().enter(work)
        self._process.note("entered", work.view)

    def save(self, work):
        report = super().save(work)
        process = self._process
        voter = process.member.voter
        told = voter.frozen or voter.view_number != work.view.number  # it has said how far it is, and this is beyond
        process.note("saved", work.view.number, work.number + 1, process.parameters(), told)
        return report


class Process:
    """One process of a member, from its start until it ends or is killed."""

    def __init__(self, world, number, version=VERSION):
        self.world, self.number, self.version = world, number, version
        self.up, self.end, self.paused = True, None, False
        self.on_death = None  # what else happens when it is killed
        self.mount = Mount(world.disks[number])
        self.dice = random.Random(world.dice.getrandbits(64))
        self._origin = self.dice.uniform(0, 1e5) - world.elapsed(number)
        self._work, self._busy, self._backlog, self._known = deque(), False, [], None

    def open(self):
        """What `Node` does at its start."""
        self.run(self._build)
        return self

    def _build(self):
        world, ring, terms = self.world, self.world.ring, self.world.terms
        folder = SimulatedPath(self.mount)
        self.site = TinySite(self.number)
        promises = _Promises(self, folder, ring)
        memory = promises.read()
        for change in world.mistakes:
            memory = change.at_start(memory)
        try:
            self.log = EventLog(folder / "log.jsonl")
            self.audit_log = AuditLog(folder / "audit.jsonl", ring, self.number, terms)
            self.evidence = Evidence(folder, ring, self.number, terms)
            view_number, saved = checkpoint.reopen(folder, self.site, ring.digest)
        except OSError as error:
            raise BadInput(f"state folder: cannot write there ({error.strerror})") from None
        self.note("opened", view_number, saved.rounds, self.parameters())
        share = (self.number + 1) / (len(ring.members) + 1)
        state = MemberState(self.dice.getrandbits(63), view_number, saved.rounds, shares=(share, 1 - share))
        start = Start(self.number, state, memory, self.site.samples, verify=world.verify)
        self.member = Member(
            world.agreements[self.number], start, random.Random(self.dice.getrandbits(64)), self.monotonic()
        )
        self.driver = Driver(
            self.member, ring, self.number, terms, identities()[self.number], promises, self.audit_log, self.log,
            self.evidence,
        )  # fmt: skip
        self.server = Server(ring, terms, self.driver)
        self._loop = _RoundLoop(
            self, ring, terms, self.site, folder, saved, self.driver, self.audit_log, self.log,
            lambda report: None, lambda text: self.note("notice", text), DiskBudget(),
        )  # fmt: skip
        self._tick()

    def parameters(self):
        return self.site.client.parameters.numpy().tobytes()

    def note(self, what, *facts):
        self.world.note(self.number, what, *facts)

    def learnt(self, view):
        if view != self._known:
            self._known = view
            self.note("learnt", view)

    # Its clocks

    def monotonic(self):
        return self._origin + self.world.elapsed(self.number)

    def wall(self):
        return 1.8e9 + self.world.now + self.world.jumps[self.number]

    def after(self, seconds, act):
        """Later, in this process, if it is there then."""
        self.world.after(seconds, lambda: self.post(act))

    def post(self, act):
        """Now, or as soon as the process is no longer stopped."""
        if self.up and self.paused:
            self._backlog.append(act)
        elif self.up:
            self.run(act)

    def proceed(self):
        """After a stop."""
        self.paused, backlog, self._backlog = False, self._backlog, []
        for act in backlog:
            self.post(act)

    def run(self, act):
        """Run a piece of its code; it may be killed in the middle, or fail."""
        try:
            with acting(self):
                act()
                self._next()
        except Killed:
            self.die()
        except (BadInput, PeerLost) as error:
            self._stop(f"{type(error).__name__}: {error}")

    def die(self):
        if self.up:
            self.up, self.mount.dead = False, True
            self.note("killed")
            if self.on_death is not None:
                self.on_death()
            self.world.died(self)

    def _tick(self):
        pause = self.driver.tick()
        self.server.cancel_unmoved(self.world.ring.patience)
        self.after(max(pause, 0.001) / self.world.rate(self.number), self._tick)

    # The main thread

    def _next(self):
        """Start the next piece of work, which takes some time."""
        if self._busy or not self.up or not hasattr(self, "_loop") or self.driver.work.empty():
            return
        work, self._busy = self.driver.work.get_nowait(), True
        seconds = _STEP
        if isinstance(work, Train):
            self.note("trains")
            seconds = self.world.training[self.number] * self.dice.uniform(0.8, 1.2)
        elif isinstance(work, Save):
            seconds = self.dice.uniform(*self.world.saving)
        elif isinstance(work, Finish | Fail):
            seconds = 0.0
        self.after(seconds, lambda: self._perform(work))

    def _perform(self, work):
        self._busy = False
        if isinstance(work, Train):
            self.note("trained")
        if not self._loop.step(work):
            self._stop("finished")

    def _stop(self, why):
        """It ends by itself, and says so to the others if it had come so far."""
        if not self.up:
            return
        self.end = why
        self.note("ended", why)
        try:
            if hasattr(self, "driver"):
                with acting(self):
                    self.driver.close()
                    self.log.close()
                    self.audit_log.close()
                    self.evidence.close()
        except Killed:
            pass
        self.up, self.mount.dead = False, True
        self.world.died(self)


@dataclass(eq=False)
class Trap:
    """Something that happens when a member, or whoever is the first, has made a vote durable."""

    vote: str
    spring: object  # what happens to the process that voted
    member: int | None = None  # None: whoever is the first, which is the proposer
    before: int = 0  # votes that are let pass


def _or_in_haste(self, state, neighbours, view_began, now, reason=Proposer._reason):
    """Proposals are safe at any time, so that a fault may let a member propose without a reason."""
    process = current()
    if process.number in process.world.hasty and state.view_number:
        return "it is hasty", []
    return reason(self, state, neighbours, view_began, now)


@dataclass
class Operator:
    """Starts members again: `restart` seconds after one has failed, as systemd does."""

    restart: float = 3.0
    final: tuple = ("finished",)  # how a member's end begins that is not started again


class World(Timeline):
    """A ring of members; `run` lets time pass until all have ended."""

    def __init__(
        self, members=3, rounds=4, seed=0, network=None, training=0.2, saving=(_STEP, _STEP), verify=False,
        method="fibfl++:warmup=no", operator=None, mistakes=(), **changes,
    ):  # fmt: skip
        super().__init__()
        self.ring, self.terms, self.agreements = agreed(members, rounds, method, tuple(sorted(changes.items())))
        for change in mistakes:
            self.agreements = tuple(map(change.agreed, self.agreements))
        self.seed, self.dice, self.network = seed, random.Random(seed), network or Network()
        self.operator, self.mistakes = operator, mistakes
        self.training, self.saving, self.verify = dict.fromkeys(range(members), training), saving, verify
        self.jumps = dict.fromkeys(range(members), 0.0)  # of the time of day
        self._clocks = dict.fromkeys(range(members), (0.0, 0.0, 1.0))  # since when, what it showed then, its rate
        self.processes = {}
        self.disks = {n: Disk(random.Random(self.dice.getrandbits(64))) for n in range(members)}
        self.held = set()  # members that nobody starts now
        self.hasty = set()  # members that propose views without a reason
        self.traps = []  # what happens when a member has made a vote durable, before it is sent
        self.finished = False  # somebody has

    # Time

    def run(self, until=600.0):
        """Until everybody has ended and nobody is to be started, or `stopped`; going on for longer is an error."""
        changes = [each for change in self.mistakes for each in change.changes]
        with simulated(SimulatedClient, (Proposer, "_reason", _or_in_haste), *changes):
            return super().run(until)

    def elapsed(self, number):
        """Seconds on a member's monotonic clock, which need not run at the rate of others."""
        since, shown, rate = self._clocks[number]
        return shown + (self.now - since) * rate

    def rate(self, number):
        return self._clocks[number][2]

    def set_rate(self, number, rate):
        self._clocks[number] = (self.now, self.elapsed(number), rate)

    # Members

    def start(self, *numbers, version=VERSION):
        """Start members at the present time."""
        for number in numbers or range(len(self.ring.members)):
            self.start_in(0.0, number, version)
        return self

    def start_in(self, seconds, number, version=VERSION):
        def act():
            old = self.processes.get(number)
            if (old is not None and (old.up or old.end == "finished")) or number in self.held:
                return
            self.note(number, "started", *((version,) if version != VERSION else ()))
            process = self.processes[number] = Process(self, number, version)
            process.open()

        self.after(seconds, act)

    def kill(self, number, power=False):
        """At once; with `power`, what was not synced is lost."""
        process = self.processes.get(number)
        if process is not None and process.up:
            process.die()
        if power:
            self.disks[number].lose_power()

    def died(self, process):
        self.network.lines = {pair for pair in self.network.lines if process not in pair}
        operator, end = self.operator, process.end
        self.finished |= end == "finished"
        late = self.finished and end is not None and end.startswith("PeerLost")  # nobody is left to join
        if operator is not None and end is not None and not end.startswith(operator.final) and not late:
            self.start_in(operator.restart, process.number)

    def voted(self, process, vote):
        """A vote of a process is on its disk and not yet sent: spring the traps that were laid for it."""
        for trap in [each for each in self.traps if each.vote == vote and each.member in (None, process.number)]:
            trap.before -= 1
            if trap.before < 0:
                self.traps.remove(trap)
                trap.spring(process)

    @property
    def everybody(self):
        return range(len(self.ring.members))

    def heard_of(self, member):
        """The newest places of which others hold the member's signature: (view number, rounds), one of each other."""
        others = [process for number, process in self.processes.items() if number != member and process.up]
        held = (receipt for process in others for receipt in process.member.voter.receipts)
        return tuple(receipt.place for receipt in held if receipt.member == member)

    # What became of it

    def processes_by_number(self):
        return self.processes

    def stored(self, number):
        """(view number, rounds, parameters) of a member's newest checkpoint, read from its disk by the real code."""
        process = Process(self, number)
        with simulated(SimulatedClient), acting(process):
            site = TinySite(number)
            view_number, saved = checkpoint.reopen(SimulatedPath(process.mount), site, self.ring.digest)
        return view_number, saved.rounds, site.client.parameters

    def audited(self, number):
        """What `firma audit` says of a member's audit file; None if it has none."""
        path = SimulatedPath(Mount(self.disks[number])) / "audit.jsonl"
        return audit(path) if path.exists() and path.read_bytes() else None
