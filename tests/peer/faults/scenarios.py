"""What befalls a ring: faults by kind, drawn from a seed, alone and together, and their effect on a `World`.

A `Scenario` is plain data and the same for the same seed; a fault can be taken out of it and the rest stays as it is.
Every fault has an end, so that a ring can be asked to recover: a member that was killed is started again, a line is
back, a disk has room, a certificate is accepted.
"""

import random
from dataclasses import dataclass, field

from firma.peer.wire.terms import VERSION

from .network import Network
from .world import NAMES, Operator, World, agreed

PATIENCE, GATHERING, TRAINING = 2.0, 20.0, 0.2
METHODS = (
    "fibfl++:warmup=no", "fibfl", "fibfl++", "frame", "frame:topology=all-gather",
    "fibfl:topology=one-peer-exponential,weights=metropolis,retention=none,passes=one",
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """A kind of fault from one time to another; which members and how bad it is depends on the kind."""

    kind: str
    start: float
    end: float
    members: tuple = ()
    amount: float = 0.0

    def __str__(self):
        who = ", ".join(NAMES[n] for n in self.members) or "all"
        size = f" ({self.amount:g})" if self.amount else ""
        return f"{self.start:9.3f} to {self.end:.3f}  {self.kind}: {who}{size}"


@dataclass(frozen=True)
class Scenario:
    seed: int
    members: int
    rounds: int
    method: str
    faults: tuple
    saving: tuple  # seconds that saving a round takes, at least and at most
    training: float = TRAINING  # seconds per round

    @property
    def calm(self):
        """When the last fault ends."""
        return max((fault.end for fault in self.faults), default=0.0)


# Kinds of faults and how often they are drawn. `Drawn` says who is hit and how hard.
@dataclass(frozen=True)
class Kind:
    weight: float
    hit: str  # "member": one; "line": from one to another; "groups": some, cut off from the others; "all"
    amount: tuple = (0.0, 0.0)
    longest: float = 12.0
    what: str = ""


KINDS = {
    "kill": Kind(6, "member", (0, 40), what="a process is killed between two system calls or sends and started again"),
    "promise-kill": Kind(2, "member", (0, 3), what="a process is killed just after it has made a promise durable"),
    "power": Kind(4, "member", (0, 40), what="the same with what was not synced lost and the last write torn"),
    "blackout": Kind(1, "all", (0, 40), what="all members lose power and come back one after the other"),
    "cut": Kind(2, "line", what="no calls between two members, in both directions"),
    "one-way": Kind(1.5, "line", what="no calls from one member to another; the other direction works"),
    "partition": Kind(2, "groups", what="the members are divided into two groups"),
    "delay": Kind(1.5, "all", (0.1, 1.5), what="every call and every answer takes up to this many seconds: reordering"),
    "loss": Kind(2, "all", (0.02, 0.4), what="this share of calls and answers is lost"),
    "duplicates": Kind(1.5, "all", (0.05, 0.5), what="this share of calls is handled again, up to 10 s later"),
    "full-disk": Kind(1.5, "member", what="nothing more fits on the disk"),
    "clock-jump": Kind(0.7, "member", (-1e6, 1e6), what="the time of day changes by this many seconds"),
    "drift": Kind(1, "member", (0.9, 1.1), what="the monotonic clock runs at this rate"),
    "expired": Kind(1, "member", what="nobody accepts the certificate: no new connection, old ones break"),
    "slow-reader": Kind(1, "member", (1, 20), what="takes messages at this many bytes per second, heartbeats at once"),
    "version": Kind(1, "member", what="is started with another protocol version, and later with the right one"),
    "pause": Kind(2, "member", what="stopped, as by SIGSTOP, and continued"),
    "straggler": Kind(1, "member", (5, 60), what="local training takes this many times longer"),
    "old-state": Kind(1, "member", what="the disk is put back to an earlier state, and the member started with it"),
    "lost-disk": Kind(0.5, "member", what="the disk is empty, and the member started with it"),
}  # fmt: skip

# What no ring can promise with these faults, and why; such violations are counted apart.
KNOWN = {
    # A round whose receipt nobody had heard of is lost with the disk that had it. A site that notices does not vote.
    "old-state": {"rounds", "recovery"},
    "lost-disk": {"recovery"},  # if so many disks are lost or old that those with promises are no quorum: `excused`
}


def excused(scenario):
    """The promises that a ring with these faults may break."""
    found = set().union(*(KNOWN.get(fault.kind, ()) for fault in scenario.faults))
    lost = {fault.members for fault in scenario.faults if fault.kind in ("lost-disk", "old-state")}
    quorum = agreed(scenario.members, scenario.rounds, scenario.method, ())[0].needed
    return found if scenario.members - len(lost) < quorum else found - {"recovery"}


def draw(seed, kinds=None, profile=None):
    """The scenario of a seed; `kinds` restricts the faults to these, `profile` the way in which they are drawn.

    plain: one to five faults of any length; storm: many short ones, one upon the other; council: two camps that cannot
    reach each other propose views at the same time to a member between them, which crashes in the middle of it.
    """
    dice = random.Random(f"faults {seed}")
    profile = profile or dice.choices(("plain", "storm", "council"), (6, 3, 1))[0]
    members = dice.choices((2, 3, 4, 5), (1, 3, 2, 6) if profile != "council" else (0, 4, 0, 1))[0]
    rounds = dice.randint(6, 24)
    chosen = [kind for kind in KINDS if kinds is None or kind in kinds]
    if kinds is None and dice.random() < 0.5:  # half of the rings have nothing that may hide what is not known
        chosen = [kind for kind in chosen if kind not in KNOWN]
    training = TRAINING
    if profile == "council":
        rounds, training, faults = 24, 0.6, _council(dice, members)
    else:
        count = dice.randint(4, 12) if profile == "storm" else dice.choice((1, 1, 2, 2, 3, 4, 5))
        span = 0.8 * rounds * (TRAINING + 0.08)
        drawn = dice.choices(chosen, [KINDS[kind].weight for kind in chosen], k=count)
        faults = [_drawn(dice, kind, members, span, profile == "storm") for kind in drawn]
    saving = dice.choice(((0.001, 0.001), (0.001, 0.3)))
    return Scenario(
        seed, members, rounds, "fibfl" if profile == "council" else dice.choice(METHODS),
        tuple(sorted(faults, key=lambda each: each.start)), saving, training,
    )  # fmt: skip


def _council(dice, members):
    """Two camps that do not reach each other, and one member between them that both need and that crashes a lot."""
    faults, now = [], 0.6
    for _ in range(dice.randint(1, 3)):
        order = dice.sample(range(members), members)
        middle, half = order[0], (members + 1) // 2
        camps, end = (order[1:half], order[half:]), now + dice.uniform(3.0, 6.0)
        faults += [Fault("cut", now, end, (a, b)) for a in camps[0] for b in camps[1]]
        faults.append(Fault("delay", now, end, (), round(dice.uniform(0.02, 0.5), 3)))
        faults.append(Fault("loss", now, end, (), round(dice.uniform(0.02, 0.3), 3)))
        faults.append(Fault("duplicates", now, end, (), round(dice.uniform(0.05, 0.4), 3)))
        for _ in range(dice.randint(0, 4)):  # around the time at which the camps lose patience with each other
            start = round(now + PATIENCE + dice.uniform(-0.2, 1.6), 3)
            kind = dice.choices(("promise-kill", "kill", "power", "pause"), (6, 2, 1, 1))[0]
            amount = float(dice.randint(0, 3)) if kind != "pause" else 0.0
            faults.append(Fault(kind, start, round(start + dice.uniform(0.05, 0.5), 3), (middle,), amount))
        now = round(max(end, *(fault.end for fault in faults)) + dice.uniform(0.5, 2.5), 3)
    return faults


def _drawn(dice, name, members, span, storm):
    kind = KINDS[name]
    start = dice.uniform(0.0, span)
    length = dice.uniform(0.05, 1.5) if storm or dice.random() < 0.4 else dice.uniform(0.5, kind.longest)
    who = {
        "member": lambda: (dice.randrange(members),),
        "line": lambda: tuple(dice.sample(range(members), 2)),
        "groups": lambda: tuple(sorted(dice.sample(range(members), dice.randint(1, members - 1)))),
        "all": lambda: (),
    }[kind.hit]()
    low, high = kind.amount
    amount = float(dice.randint(low, high)) if isinstance(low, int) else dice.uniform(low, high)
    return Fault(name, round(start, 3), round(start + length, 3), who, round(amount, 3))


def build(scenario, mistakes=()):
    """The world of a scenario, with its faults in the queue."""
    world = World(
        scenario.members, scenario.rounds, scenario.seed, Network(), scenario.training, scenario.saving,
        method=scenario.method, mistakes=mistakes, patience=PATIENCE, gathering=GATHERING, stalled=30.0,
        operator=Operator(final=("finished", "PeerLost: the ring has finished", "BadInput: state folder is empty")),
    )  # fmt: skip
    effects = _Effects(world, scenario.training)
    for fault in scenario.faults:
        world.at(fault.start, lambda fault=fault: effects.begin(fault))
        world.at(fault.end, lambda fault=fault: effects.end(fault))
    dice = random.Random(f"starts {scenario.seed}")
    for member in range(scenario.members):
        world.start_in(dice.uniform(0, 0.3), member)
    return world


_DOWN = ("kill", "promise-kill", "power", "blackout")


@dataclass
class _Effects:
    """Keeps a world as the faults that are under way make it."""

    world: World
    training: float
    active: list = field(default_factory=list)
    snapshots: dict = field(default_factory=dict)

    def begin(self, fault):
        self.active.append(fault)
        self.world.history.append((round(self.world.now, 6), "world", "fault", str(fault)))
        for member in fault.members if fault.members else self.world.everybody:
            self._strike(fault, member)
        self._apply()

    def end(self, fault):
        self.active.remove(fault)
        self.world.history.append((round(self.world.now, 6), "world", "fault", f"over: {fault}"))
        for member in fault.members if fault.members else self.world.everybody:
            self._mend(fault, member)
        self._apply()

    def _strike(self, fault, member):  # noqa: PLR0912, one case per kind
        world, process = self.world, self.world.processes.get(member)
        running = process is not None and process.up
        match fault.kind:
            case "kill" | "promise-kill" | "power" | "blackout":
                world.held.add(member)
                if running:
                    if fault.kind == "promise-kill":
                        process.doom = (int(fault.amount) // 2, int(fault.amount) + 1)
                    else:
                        process.mount.fuse = int(fault.amount)
                    process.on_death = lambda: self._power(fault, member)
            case "version":
                if running:
                    process.die()
                    world.start_in(0.0, member, version=VERSION + 1)
            case "old-state":
                if running:
                    self.snapshots[fault] = world.disks[member].snapshot()
                    world.note(member, "snapshot", id(fault))
            case "lost-disk":
                if running:
                    process.die()
                    world.disks[member].erase()
                    world.note(member, "erased")
            case "pause":
                if running:
                    world.note(member, "stopped")
            case "expired":
                world.network.drop_lines(member)
            case "full-disk":
                world.note(member, "full", True)
            case "drift":
                world.set_rate(member, fault.amount)

    def _power(self, fault, member):
        if fault.kind in ("power", "blackout"):
            self.world.disks[member].lose_power()

    def _mend(self, fault, member):  # noqa: PLR0912
        world, process = self.world, self.world.processes.get(member)
        running = process is not None and process.up
        match fault.kind:
            case "kill" | "promise-kill" | "power" | "blackout":
                if running and fault.kind != "promise-kill":  # it has done nothing since
                    process.die()
                elif running:
                    process.doom = process.mount.fuse = None
                world.held.discard(member)
                if not any(each.kind in _DOWN and (member in each.members or not each.members)
                           for each in self.active):  # fmt: skip
                    world.start_in(world.dice.uniform(0, 1.0) if fault.kind == "blackout" else 0.0, member)
                else:
                    world.held.add(member)
            case "version":
                if running and process.version != VERSION:
                    process.die()
                world.start_in(0.0, member)
            case "old-state":
                if fault in self.snapshots and (process is None or process.end != "finished"):
                    if running:
                        process.die()
                    world.disks[member].restore(self.snapshots.pop(fault))
                    world.note(member, "restored", id(fault))
                    world.start_in(0.0, member)
            case "lost-disk":
                world.start_in(0.0, member)
            case "full-disk":
                world.note(member, "full", False)
            case "drift":
                world.set_rate(member, 1.0)

    def _apply(self):  # noqa: PLR0912
        world, network = self.world, self.world.network
        cuts, slow, untrusted = set(), {}, set()
        full, paused, training = set(), set(), dict.fromkeys(world.everybody, self.training)
        network.delay, network.loss, network.duplicates, network.late = (0.001, 0.01), 0.0, 0.0, 0.01
        jumps = dict.fromkeys(world.everybody, 0.0)
        for fault in self.active:
            match fault.kind:
                case "cut":
                    cuts |= {fault.members, fault.members[::-1]}
                case "one-way":
                    cuts.add(fault.members)
                case "partition":
                    others = set(world.everybody) - set(fault.members)
                    cuts |= {pair for a in fault.members for b in others for pair in ((a, b), (b, a))}
                case "delay":
                    network.delay = (0.001, max(network.delay[1], fault.amount))
                case "loss":
                    network.loss = max(network.loss, fault.amount)
                case "duplicates":
                    network.duplicates, network.late = max(network.duplicates, fault.amount), 10.0
                case "slow-reader":
                    slow |= {(n, fault.members[0]): fault.amount for n in world.everybody}
                case "expired":
                    untrusted |= set(fault.members)
                case "full-disk":
                    full |= set(fault.members)
                case "pause":
                    paused |= set(fault.members)
                case "straggler":
                    training[fault.members[0]] *= fault.amount
                case "clock-jump":
                    jumps[fault.members[0]] += fault.amount
        network.cuts, network.slow, network.untrusted = cuts, slow, untrusted
        world.training, world.jumps = training, jumps
        for member, disk in world.disks.items():
            disk.full = member in full
            process = world.processes.get(member)
            if process is not None and process.up and process.paused != (member in paused):
                if process.paused:
                    world.note(member, "continued")
                    process.proceed()
                else:
                    process.paused = True
