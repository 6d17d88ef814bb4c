"""The effect of a scenario's faults on a `World`: what they strike, and how it is mended when they end."""

import math
import random
from dataclasses import dataclass, field

from firma.peer.wire.terms import VERSION

from .network import Network
from .scenarios import VOTE_KILLS
from .world import VOTES, Operator, Trap, World


def build(scenario, mistakes=()):
    """The world of a scenario, with its faults in the queue."""
    world = World(
        scenario.members, scenario.rounds, scenario.seed, Network(), scenario.training, scenario.saving,
        method=scenario.method, mistakes=mistakes, **scenario.changes,
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


@dataclass
class _Effects:
    """Keeps a world as the faults that are under way make it."""

    world: World
    training: float
    active: list = field(default_factory=list)
    snapshots: dict = field(default_factory=dict)
    holding: dict = field(default_factory=dict)  # by fault: members that it keeps down
    traps: dict = field(default_factory=dict)  # by fault
    divided: dict = field(default_factory=dict)  # by fault: who was cut off from the others by it
    parted: dict = field(default_factory=dict)  # by fault: lines that it has cut

    def begin(self, fault):
        self.active.append(fault)
        self.world.history.append((round(self.world.now, 6), "world", "fault", str(fault)))
        if fault.kind in VOTE_KILLS:
            self._lay(fault, VOTE_KILLS[fault.kind], lambda process: self._doom(fault, process))
        elif fault.kind == "vote-cut":
            self._lay(fault, VOTES[int(fault.amount)], lambda process: self._part(fault, process))
        elif fault.kind == "vote-partition":
            self._lay(fault, VOTES[int(fault.amount)], lambda process: self._divide(fault, process), anybody=True)
        else:
            for member in fault.members if fault.members else self.world.everybody:
                self._strike(fault, member)
        self._apply()

    def end(self, fault):
        self.active.remove(fault)
        self.world.history.append((round(self.world.now, 6), "world", "fault", f"over: {fault}"))
        if fault in self.traps:
            self._disarm(fault)
        else:
            for member in fault.members if fault.members else self.world.everybody:
                self._mend(fault, member)
        self._apply()

    # What happens just after a vote

    def _lay(self, fault, vote, spring, anybody=False):
        member = fault.members[0] if fault.members and not anybody else None
        self.traps[fault] = Trap(vote, spring, member, fault.passed)
        self.world.traps.append(self.traps[fault])

    def _doom(self, fault, process):
        """It is killed so many steps after its vote; before that, or after it, the vote is sent."""

        def died():
            self._hold(fault, process.number)
            if fault.down < math.inf:
                self.world.after(fault.down, lambda: self._release(fault, process.number))

        if process.mount.fuse is None:
            process.mount.fuse, process.on_death = int(fault.amount), died

    def _divide(self, fault, process):
        self.divided[fault] = {process.number, *fault.members}
        self._apply()

    def _part(self, fault, process):
        """Its answer is on its way; nothing else travels between the two for a while."""
        proposer = process.member.voter.memory.promised[1]
        if proposer in (-1, process.number):
            return

        def join():
            self.parted.pop(fault, None)
            self._apply()

        self.parted[fault] = {(process.number, proposer), (proposer, process.number)}
        self._apply()
        if fault.down < math.inf:
            self.world.after(fault.down, join)

    def _disarm(self, fault):
        trap = self.traps.pop(fault)
        if trap in self.world.traps:
            self.world.traps.remove(trap)
        self.divided.pop(fault, None)
        self.parted.pop(fault, None)
        for member in tuple(self.holding.get(fault, ())):
            self._release(fault, member)

    def _hold(self, fault, member):
        if fault in self.active:
            self.holding.setdefault(fault, set()).add(member)
            self.world.held = set().union(*self.holding.values())
        else:
            self.world.start_in(0.0, member)

    def _release(self, fault, member, seconds=0.0):
        """Start it, unless another fault keeps it down."""
        if member in self.holding.get(fault, ()):
            self.holding[fault].discard(member)
            self.world.held = set().union(*self.holding.values())
            self.world.start_in(seconds, member)

    # All others

    def _strike(self, fault, member):
        world, process = self.world, self.world.processes.get(member)
        running = process is not None and process.up
        match fault.kind:
            case "kill" | "power" | "blackout":
                self._hold(fault, member)
                if running:
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
            case "expired":
                world.network.drop_lines(member)
            case "full-disk":
                world.note(member, "full", True)
            case "drift":
                world.set_rate(member, fault.amount)

    def _power(self, fault, member):
        if fault.kind in ("power", "blackout"):
            self.world.disks[member].lose_power()

    def _mend(self, fault, member):
        world, process = self.world, self.world.processes.get(member)
        running = process is not None and process.up
        match fault.kind:
            case "kill" | "power" | "blackout":
                if running:  # it has done nothing since
                    process.die()
                self._release(fault, member, world.dice.uniform(0, 1.0) if fault.kind == "blackout" else 0.0)
            case "version":
                if running and process.version != VERSION:
                    process.die()
                world.start_in(0.0, member)
            case "old-state":
                if fault in self.snapshots and (process is None or process.end != "finished"):
                    if running:
                        process.die()
                    world.disks[member].restore(self.snapshots.pop(fault))
                    world.note(member, "restored", id(fault), world.heard_of(member))
                    world.start_in(0.0, member)
            case "lost-disk":
                world.start_in(0.0, member)
            case "full-disk":
                world.note(member, "full", False)
            case "drift":
                world.set_rate(member, 1.0)

    def _apply(self):  # noqa: PLR0912, PLR0915, one case per kind
        world, network = self.world, self.world.network
        cuts, slow, untrusted, hasty = set(), {}, set(), set()
        network.control_delay = network.control_loss = 0.0
        full, paused, training = set(), set(), dict.fromkeys(world.everybody, self.training)
        network.delay, network.loss, network.duplicates, network.late = (0.001, 0.01), 0.0, 0.0, 0.01
        jumps = dict.fromkeys(world.everybody, 0.0)
        for fault in self.active:
            match fault.kind:
                case "cut":
                    cuts |= {fault.members, fault.members[::-1]}
                case "one-way":
                    cuts.add(fault.members)
                case "partition" | "vote-partition":
                    group = self.divided.get(fault, ()) if fault.kind == "vote-partition" else fault.members
                    others = set(world.everybody) - set(group)
                    cuts |= {pair for a in group for b in others for pair in ((a, b), (b, a))}
                case "vote-cut":
                    cuts |= self.parted.get(fault, set())
                case "slow-control":
                    network.control_delay = max(network.control_delay, fault.amount)
                case "lost-control":
                    network.control_loss = max(network.control_loss, fault.amount)
                case "hasty":
                    hasty |= set(fault.members)
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
        world.training, world.jumps, world.hasty = training, jumps, hasty
        for member, disk in world.disks.items():
            disk.full = member in full
            process = world.processes.get(member)
            if process is not None and process.up and process.paused != (member in paused):
                if process.paused:
                    world.note(member, "continued")
                    process.proceed()
                else:
                    world.note(member, "stopped")
                    process.paused = True
