"""Whole rings in one process under a virtual clock: the members' own machine and the real codecs.

Only the clock, the network, the disk and the training are simulated, and all of it follows from one seed: a ring of
three runs to its end in some tens of milliseconds, and equal seeds give equal histories. A test lets things happen by
`world.at(seconds, action)`, such as `lambda: world.kill(1)`, and looks at `world.history`, `world.views()` and
`world.parameters(member)` in the end. `replayed(world)` says what the views give, computed in lock-step.
"""

import random
from collections import defaultdict, deque
from dataclasses import dataclass, field, replace
from functools import cache

import torch
from cryptography.hazmat.primitives.asymmetric import ec

from firma.engines.message_passing import drive
from firma.mixing.kind import exchange
from firma.models import SplitModel, mlp
from firma.peer.membership.views import MemberState
from firma.peer.ring_file import Ring, Task
from firma.peer.ring_file import Site as RingMember
from firma.peer.runtime.catching_up import caught_up
from firma.peer.runtime.events import (
    Announced,
    Answer,
    AnswerControl,
    Arrived,
    Blend,
    CancelSends,
    ControlAnswered,
    ControlArrived,
    Delivered,
    Enter,
    Entered,
    Fail,
    Failed,
    Finish,
    HeartbeatAnswered,
    HeartbeatArrived,
    LogEvent,
    Notice,
    Probe,
    ProbeArrived,
    Probed,
    Refused,
    Remember,
    Save,
    Saved,
    Score,
    Scored,
    Send,
    SendControl,
    SendExtractor,
    SendHeartbeat,
    Stopping,
    Tick,
    Train,
    Trained,
    Unreachable,
)
from firma.peer.runtime.member_machine import Member, Start
from firma.peer.runtime.node import agreement_of
from firma.peer.signing import seals
from firma.peer.transport.send_queue import AT_ONCE
from firma.peer.wire.control import decode_control, decode_memory, encode_control, encode_memory
from firma.peer.wire.heartbeat import decode_heartbeat
from firma.peer.wire.message import ANSWERS, DONE, EARLY, STALE, Assembly, chunks, decode_header, encode
from firma.peer.wire.terms import Terms, federation_tag, signature
from firma.protocol import ExtractorState, Message, Participant

from .simulation import NAMES, Cuts, Timeline, simulated_ring

LAYOUT = SplitModel(*mlp((3,), 2, 4, 3)).layout()
CLASSES = 2
RETRY, TIMEOUT = 0.1, 0.5  # seconds before a delivery is tried again, and until a lost call is noticed


def agreed_ring(members, rounds, method="fibfl++:warmup=no", **changes):
    """A ring file without certificates: nothing here does TLS."""
    sites = tuple(
        RingMember.model_construct(name=NAMES[n], address=f"{NAMES[n]}:1", certificate="") for n in range(members)
    )
    task = Task(shape=(3,), labels=tuple(map(str, range(CLASSES))))
    return simulated_ring(Ring, sites, rounds, method, task, **changes)


@cache
def keys(count):
    """Real keys, made once."""
    return tuple(ec.generate_private_key(ec.SECP256R1()) for _ in range(count))


def sealed(ring, number, members):
    """The signatures of one member."""
    every = keys(len(NAMES))[:members]
    return seals(ring, every[number], tuple(key.public_key() for key in every))


class TinySite:
    """A model of a few numbers whose "training" is a formula: as deterministic as the real one, and instant."""

    def __init__(self, number):
        self.number, self.samples = number, 10 + 3 * number
        self.parameters = torch.linspace(-1, 1, LAYOUT.size) * (number + 1)

    @property
    def shared(self):
        return self.parameters[LAYOUT.span("extractor")].clone()

    def train(self, plan):
        pull = torch.sin(torch.arange(LAYOUT.size) * (self.number + 1.5) + plan.number)
        self.parameters = 0.9 * self.parameters + 0.1 * pull
        return float(self.parameters.abs().mean().clamp(0, 1))

    def blend(self, extractor):
        self.parameters = self.parameters.clone()
        self.parameters[LAYOUT.span("extractor")] = extractor


@dataclass
class Disk:
    """What survives a process: its promises as bytes, and checkpoints by round: (view number, parameters)."""

    promises: object = None
    checkpoints: dict = field(default_factory=dict)
    full: bool = False

    def check(self):
        if self.full:
            raise OSError(28, "No space left on device")

    def write(self, rounds, view_number, parameters, keep):
        self.check()
        self.checkpoints[rounds] = (view_number, parameters.clone())
        for old in sorted(self.checkpoints)[:-keep]:
            del self.checkpoints[old]

    def mark(self, rounds, view_number):
        """A view starts at this round: its checkpoint is of that view, and later rounds are dropped."""
        self.checkpoints[rounds] = (view_number, self.checkpoints[rounds][1])
        self.checkpoints = {n: held for n, held in self.checkpoints.items() if n <= rounds}

    def newest(self):
        """(view number, rounds)."""
        return max((held[0], rounds) for rounds, held in self.checkpoints.items())

    def nearest(self, rounds):
        return max((n for n in self.checkpoints if n <= rounds), default=min(self.checkpoints))


@dataclass
class Network(Cuts):
    """What happens to a call, in seconds and probabilities; `cuts` are (from, to), each one way."""

    delay: tuple = (0.001, 0.01)
    loss: float = 0.0
    duplicates: float = 0.0
    cuts: set = field(default_factory=set)


class World(Timeline):
    """A ring of members, a clock and a network; a ring that is still at it after the time of `run` is an error."""

    def __init__(self, members=3, rounds=4, seed=0, network=None, training=0.2, verify=False, **changes):
        super().__init__()
        self.ring = agreed_ring(members, rounds, **changes)
        self.terms = Terms(federation_tag("virtual"), b"r" * 32, signature(LAYOUT), CLASSES)
        self.seals = [sealed(self.terms.ring, n, members) for n in range(members)]
        self.agreement = agreement_of(self.ring, self.terms, self.seals[0])
        self.random, self.network = random.Random(seed), network or Network()
        self.training = dict.fromkeys(range(members), training)  # seconds of local training
        self.verify, self.nodes = verify, {}
        self.disks = {n: Disk() for n in range(members)}

    # Members

    def start(self, *numbers):
        for number in numbers or range(len(self.ring.members)):
            assert number not in self.nodes or not self.nodes[number].up
            self.nodes[number] = VirtualNode(self, number)
            self.note(number, "started")
        return self

    def kill(self, number):
        self.nodes[number].up = False
        self.note(number, "killed")

    def lose(self, number):
        """Start a member that was killed with an empty disk."""
        self.disks[number] = Disk()
        self.note(number, "lost")
        self.start(number)

    def parameters(self, number):
        """(rounds, parameters) of a member's newest checkpoint."""
        rounds = self.disks[number].newest()[1]
        return rounds, self.disks[number].checkpoints[rounds][1]

    def processes_by_number(self):
        return self.nodes

    # The network

    def call(self, caller, to, handle, answered):
        """A call to a member: `handle(node)` there gives the answer, which `answered` takes here; both may be lost."""
        network, dice = self.network, self.random

        def lost(source, target):
            return (source, target) in network.cuts or dice.random() < network.loss

        def back(act, delay):
            self.after(delay, lambda: act() if caller.up else None)

        def fail(why, delay):
            back(lambda: (caller.on(Unreachable(to, why)), answered(None)), delay)

        def arrive():
            node = self.nodes.get(to)
            if node is None or not node.up:
                fail("connection refused", dice.uniform(*network.delay))
                return
            answer = handle(node)
            if dice.random() < network.duplicates:
                self.after(dice.uniform(*network.delay), lambda: handle(node) if node.up else None)
            if lost(to, caller.number):
                fail("deadline exceeded", TIMEOUT)
            else:
                back(lambda: answered(answer), dice.uniform(*network.delay))

        if lost(caller.number, to):
            fail("deadline exceeded", TIMEOUT)
        else:
            self.after(dice.uniform(*network.delay), arrive)


class VirtualNode:
    """One process of a member: a driver as `firma.peer.runtime.driver` is, on simulated time, disk and network."""

    def __init__(self, world, number):
        self.world, self.number, self.up, self.end = world, number, True, None
        self.disk, self.site = world.disks[number], TinySite(number)
        if not self.disk.checkpoints:
            self.disk.write(0, 0, self.site.parameters, keep=1)
        view_number, rounds = self.disk.newest()
        self.site.parameters = self.disk.checkpoints[rounds][1].clone()
        self.rounds, self._work, self._busy = rounds, deque(), False
        self._cancelled, self._sending = 0, defaultdict(list)
        memory, ring = self.disk.promises, world.ring
        memory = None if memory is None else decode_memory(memory, len(ring.members), ring.rounds)
        share = (number + 1) / (len(ring.members) + 1)
        state = MemberState(world.random.getrandbits(63), view_number, rounds, shares=(share, 1 - share))
        start = Start(number, state, memory, self.site.samples, verify=world.verify)
        dice = random.Random(world.random.getrandbits(63))
        agreement = agreement_of(world.ring, world.terms, world.seals[number])
        self.member = Member(agreement, start, dice, world.now)
        self._tick()

    def _tick(self):
        if self.up:
            self.on(Tick())
            self.world.after(self.member.pause(self.world.now), self._tick)

    def on(self, event):
        """Report an event; returns the answer to it."""
        return self._carry_out(self.member.on(event, self.world.now)) if self.up else None

    def _carry_out(self, actions):  # noqa: PLR0912, one case per action
        answer = None
        for action in actions:
            match action:
                case Remember(memory):
                    if self.disk.full:
                        self._carry_out(self.member.on(Failed("promises cannot be saved"), self.world.now))
                        return None
                    self.disk.promises = encode_memory(memory)
                case Answer(value):
                    answer = value
                case AnswerControl(_, message):
                    answer = encode_control(self.world.terms, message)
                case SendControl(to, message):
                    self._control(to, encode_control(self.world.terms, message))
                case SendHeartbeat(heartbeat, _):
                    for member in range(len(self.world.ring.members)):
                        if member != self.number:
                            self._heartbeat(member, replace(heartbeat, clock=self.world.now).encode())
                case Probe(to):
                    self._probe(to)
                case CancelSends(view_number):
                    self._cancelled = max(self._cancelled, view_number)
                case LogEvent(name, facts):
                    self.world.note(self.number, "log", name, str(sorted(facts.items())))
                case _:
                    self._work.append(action)
        self._next()
        return answer

    # Calls

    def _heartbeat(self, to, raw):
        def handle(node):
            return node.on(HeartbeatArrived(self.number, decode_heartbeat(raw))).encode()

        def answered(answer):
            if answer is not None:
                self.on(HeartbeatAnswered(to, decode_heartbeat(answer)))

        self.world.call(self, to, handle, answered)

    def _probe(self, to):
        def answered(answer):
            if answer is not None:
                self.on(Probed(to))

        self.world.call(self, to, lambda node: node.probed(self.number), answered)

    def probed(self, sender):
        """What the server does with a probe."""
        self.on(ProbeArrived(sender))
        return b"\0"

    def _control(self, to, raw):
        ring, terms = self.world.ring, self.world.terms

        def handle(node):
            return node.on(ControlArrived(self.number, decode_control(terms, raw, len(ring.members), ring.rounds)))

        def answered(answer):
            if answer:
                self.on(ControlAnswered(to, decode_control(terms, answer, len(ring.members), ring.rounds)))

        self.world.call(self, to, handle, answered)

    def _send(self, to, tag, parts):
        """Deliver in order, AT_ONCE at a time, until it is acknowledged, refused or cancelled."""
        queue = self._sending[to]

        def start():
            waiting = [each for each in queue if each[0] > self._cancelled]
            queue[:] = waiting
            for number, (view, attempt, started) in enumerate(waiting):
                same = [each for each in waiting[:number] if each[0] == view]
                if not started and len(same) < AT_ONCE:
                    queue[number] = (view, attempt, True)
                    attempt()

        def attempt():
            if tag[0] <= self._cancelled:
                start()
                return
            self.world.call(self, to, lambda node: node.receive(self.number, parts), answered)

        def answered(answer):
            if answer is not None and answer[0] in (DONE, STALE):
                queue[:] = [each for each in queue if each[1] is not attempt]
                self.on(Delivered(to, tag))
                start()
            elif answer is None or answer[0] == EARLY:
                self.world.after(RETRY, lambda: attempt() if self.up else None)
            else:
                self.on(Refused(to, tag, answer[1:].decode()))
                self.world.after(1.0, lambda: attempt() if self.up else None)

        queue.append((tag[0], attempt, False))
        start()

    def receive(self, sender, parts):
        """What the server does with a message."""
        header = decode_header(self.world.terms, parts[0])
        verdict = self.on(Announced(sender, header))
        if verdict != "take":
            return bytes([ANSWERS[verdict]]) + verdict.encode()
        assembly = Assembly(header)
        for part in parts[1:]:
            assembly.feed(part)
        self.on(Arrived(sender, header, assembly.finish()))
        return bytes([DONE])

    # The main thread

    def _next(self):
        """Start the next piece of work, which takes some time."""
        if self._busy or not self._work or not self.up:
            return
        work, self._busy = self._work.popleft(), True
        seconds = self.world.training[self.number] if isinstance(work, Train) else 0.001
        self.world.after(seconds, lambda: self._done(work))

    def _done(self, work):
        if not self.up:
            return
        try:
            event = self._perform(work)
        except OSError as error:
            event = Failed(error.strerror)
        self._busy = False
        if event is not None:
            self.on(event)
        if self.up:
            self._next()

    def _perform(self, work):  # noqa: PLR0912, one case per piece of work
        world, keep = self.world, len(self.world.ring.members) + 2
        match work:
            case Notice(text):
                world.note(self.number, "notice", text)
            case Enter(view, extractors):
                world.note(self.number, "entered", view)
                if self.rounds != view.start:
                    near = self.disk.nearest(view.start)
                    self.site.parameters, self.rounds = self.disk.checkpoints[near][1].clone(), view.start
                    if extractors:
                        self.site.blend(caught_up(self.site.shared, [values for _, values in extractors]))
                        world.note(self.number, "caught up", view.number, tuple(sender for sender, _ in extractors))
                    if near != view.start:
                        self.disk.write(view.start, view.number, self.site.parameters, keep)
                self.disk.mark(view.start, view.number)
                return Entered()
            case Train(plan):
                accuracy = self.site.train(plan)
                return Trained(plan.number, self.site.shared, accuracy)
            case Send(to, tag, message, receipt):
                header, body = encode(world.terms, tag, message, receipt)
                self._send(to, tag, [header, *chunks(body)])
            case SendExtractor(to, tag, receipt):
                saved = self.disk.checkpoints[tag[1] - 1][1][LAYOUT.span("extractor")].clone()
                header, body = encode(world.terms, tag, Message(ExtractorState(saved)), receipt)
                self._send(to, tag, [header, *chunks(body)])
            case Score(tag, extractors):
                return Scored(tag, {sender: float(values.abs().mean() < 1) for sender, values in extractors.items()})
            case Blend(extractor, _):
                self.site.blend(extractor)
            case Save(number, view):
                self.disk.write(number + 1, view.number, self.site.parameters, keep)
                self.rounds = number + 1
                world.note(self.number, "round", view.number, number + 1)
                return Saved(number + 1)
            case Finish():
                self._stop("finished")
            case Fail(error):
                self._stop(f"{type(error).__name__}: {error}")
        return None

    def _stop(self, why):
        self.end = why
        self.world.note(self.number, "ended", why)
        self.on(Stopping())
        self.up = False


def replayed(world):
    """(rounds, parameters) of every member after its last round, computed in lock-step from the views alone."""
    size = len(world.ring.members)
    sites, disks = [TinySite(n) for n in range(size)], [Disk() for _ in range(size)]
    final = {}
    for number, disk in enumerate(disks):
        disk.write(0, 0, sites[number].parameters, 10_000)
    entered = {(member, view.number) for _, member, _, view in world.of("entered")}
    done = {(member, view, rounds) for _, member, _, view, rounds in world.of("round")}
    lost = {
        (member, min(view.number for after, name, _, view in world.of("entered") if name == member and after > when))
        for when, member, _ in world.of("lost")
    }
    brought = {(member, view): senders for _, member, _, view, senders in world.of("caught up")}
    for number, (ring, start) in sorted(world.views().items()):
        order = tuple(seat.member for seat in ring)
        last = max((rounds for _, view, rounds in done if view == number), default=start)
        for member in order:
            if (NAMES[member], number) in lost:
                sites[member], disks[member] = TinySite(member), Disk()
                disks[member].write(0, 0, sites[member].parameters, 10_000)
            near = disks[member].nearest(start)
            sites[member].parameters = disks[member].checkpoints[near][1].clone()
        for member in order:
            if senders := brought.get((NAMES[member], number)):
                sites[member].blend(caught_up(sites[member].shared, [sites[sender].shared for sender in senders]))
            if (NAMES[member], number) in entered:  # it may have been killed before it got there
                disks[member].write(start, number, sites[member].parameters, 10_000)
                disks[member].mark(start, number)
                final[member] = (start, sites[member].parameters)
        for turn in range(start, last):
            _lockstep(world, sites, order, world.agreement.plan(len(order), turn))
            for member in order:
                if (NAMES[member], number, turn + 1) in done:
                    disks[member].write(turn + 1, number, sites[member].parameters, 10_000)
                    final[member] = (turn + 1, sites[member].parameters)
    return final


def _lockstep(world, sites, order, plan):
    accuracies = {n: sites[n].train(plan) for n in order}
    parts = {n: Participant(n, order, sites[n].shared, accuracies[n], sites[n].samples) for n in order}
    results = drive({n: exchange(plan, part) for n, part in parts.items()}, lambda *_: None)
    for member, values in results.items():
        sites[member].blend(values)
