"""What befalls a ring: faults by kind, drawn from a seed, alone and together; `effects.py` lets them happen.

A `Scenario` is plain data and the same for the same seed; a fault can be taken out of it and the rest stays as it is.
Every fault has an end, so that a ring can be asked to recover: a member that was killed is started again, a line is
back, a disk has room, a certificate is accepted.
"""

import math
import random
from dataclasses import dataclass

from .world import NAMES, VOTES, agreed

PATIENCE, GATHERING, TRAINING = 2.0, 20.0, 0.2
METHODS = (
    "fibfl++:warmup=no", "fibfl", "fibfl++", "frame", "frame:topology=all-gather",
    "fibfl:topology=one-peer-exponential,weights=metropolis,retention=none,passes=one",
)  # fmt: skip
CHEAP = ("fibfl", METHODS[-1], METHODS[-1])  # few messages per round, where rounds matter less than views


@dataclass(frozen=True)
class Fault:
    """A kind of fault from one time to another; which members and how bad it is depends on the kind."""

    kind: str
    start: float
    end: float
    members: tuple = ()
    amount: float = 0.0
    passed: int = 0  # votes that are let pass before the one after which a member is killed
    down: float = math.inf  # seconds until who was killed is started again, at the latest when the fault ends

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
    insiders: int | None = None  # how many the ring bears; None: as a ring file has it, one from four members on

    @property
    def changes(self):
        """What its ring file says beside members, rounds and method."""
        found = {"patience": PATIENCE, "gathering": GATHERING, "stalled": 30.0}
        return found if self.insiders is None else found | {"insiders": self.insiders}

    @property
    def calm(self):
        """When the last fault ends."""
        return max((fault.end for fault in self.faults), default=0.0)


@dataclass(frozen=True)
class Kind:
    """How often a kind of fault is drawn, who is hit, and how hard."""

    weight: float
    hit: str  # "member": one; "line": from one to another; "groups": some, cut off from the others; "all"; "voter"
    amount: tuple = (0.0, 0.0)
    longest: float = 12.0
    what: str = ""


KINDS = {
    "kill": Kind(6, "member", (0, 40), what="a process is killed between two system calls or sends and started again"),
    "promise-kill": Kind(1, "voter", (0, 6), what="a process is killed just after it has made a promise durable"),
    "echo-kill": Kind(0.5, "voter", (0, 6), what="the same after its echo of a proposed view"),
    "commit-kill": Kind(1, "voter", (0, 6), what="the same after its vote to commit a view"),
    "decision-kill": Kind(1, "voter", (0, 6), what="the same after it has learnt that a view is decided"),
    "vote-partition": Kind(1, "groups", (0, 3), what="the members are divided when one has made a vote durable"),
    "vote-cut": Kind(0.5, "voter", (0, 2), what="the line between a voter and the proposer breaks just after its vote"),
    "power": Kind(4, "member", (0, 40), what="the same with what was not synced lost and the last write torn"),
    "blackout": Kind(1, "all", (0, 40), what="all members lose power and come back one after the other"),
    "cut": Kind(2, "line", what="no calls between two members, in both directions"),
    "one-way": Kind(1.5, "line", what="no calls from one member to another; the other direction works"),
    "partition": Kind(2, "groups", what="the members are divided into two groups"),
    "delay": Kind(1.5, "all", (0.1, 1.5), what="every call and every answer takes up to this many seconds: reordering"),
    "loss": Kind(2, "all", (0.02, 0.4), what="this share of calls and answers is lost"),
    "slow-control": Kind(1, "all", (0.05, 0.8), what="control messages alone take up to this many seconds"),
    "lost-control": Kind(1, "all", (0.1, 0.7), what="this share of control messages, and of answers to them, is lost"),
    "hasty": Kind(0.5, "member", longest=4.0, what="proposes one view after the other without a reason"),
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

VOTE_KILLS = {f"{vote}-kill": vote for vote in VOTES}

# What the threat model does not promise with these faults; such violations are counted apart. `excused` says when for
# whole rings, and the checker when a round may be lost: if too few others had heard that the restored member had it.
KNOWN = {"old-state": {"rounds", "views", "recovery"}, "lost-disk": {"recovery"}}


def excused(scenario):
    """The promises that a ring with these faults may break.

    A member with old promises may vote twice and so counts as an insider: more of them than the ring bears may decide
    two views. Members that have lost their promises, or notice that these are old, do not vote: without a quorum of the
    others the ring stands still.
    """
    hit = {kind: {fault.members for fault in scenario.faults if fault.kind == kind} for kind in KNOWN}
    ring = agreed(scenario.members, scenario.rounds, scenario.method, tuple(sorted(scenario.changes.items())))[0]
    found = {"views"} if len(hit["old-state"]) > ring.insiders else set()
    mute = hit["lost-disk"] | hit["old-state"]
    return found | ({"recovery"} if scenario.members - len(mute) < ring.needed else set())


PROFILES = {"plain": 5, "storm": 3, "council": 1, "agreement": 5}  # and how often each is drawn


def draw(seed, kinds=None, profile=None):
    """The scenario of a seed; `kinds` restricts the faults to these, `profile` the way in which they are drawn.

    plain: one to five faults of any length; storm: many short ones, one upon the other; council: two camps that cannot
    reach each other propose views at the same time to a member between them, which crashes in the middle of it;
    agreement: one view after the other, with votes that come late or not at all, and members that are killed or cut
    off just after a vote.
    """
    dice = random.Random(f"faults {seed}")
    profile = profile or dice.choices(tuple(PROFILES), tuple(PROFILES.values()))[0]
    sizes = {"council": (0, 4, 0, 1), "agreement": (0, 6, 1, 3)}.get(profile, (1, 3, 2, 6))
    members = dice.choices((2, 3, 4, 5), sizes)[0]
    rounds, training, insiders, method = dice.randint(6, 24), TRAINING, None, dice.choice(METHODS)
    chosen = [kind for kind in KINDS if kinds is None or kind in kinds]
    if kinds is None and dice.random() < 0.5:  # half of the rings have nothing that may hide what is not known
        chosen = [kind for kind in chosen if kind not in KNOWN]
    if profile == "council":
        rounds, training, method, faults = 24, 0.6, "fibfl", _council(dice, members)
    elif profile == "agreement":
        insiders = int(members >= 4 and dice.random() < 0.4)
        rounds, training, method, faults = 12, 0.4, dice.choice(CHEAP), _agreement(dice, members, insiders)
    else:
        count = dice.randint(4, 12) if profile == "storm" else dice.choice((1, 1, 2, 2, 3, 4, 5))
        span = 0.8 * rounds * (TRAINING + 0.08)
        drawn = dice.choices(chosen, [KINDS[kind].weight for kind in chosen], k=count)
        faults = [_drawn(dice, kind, members, span, profile == "storm") for kind in drawn]
    saving = dice.choice(((0.001, 0.001), (0.001, 0.3)))
    faults = tuple(sorted(faults, key=lambda each: each.start))
    return Scenario(seed, members, rounds, method, faults, saving, training, insiders)


def _agreement(dice, members, insiders):
    """One to three episodes that are hard on the agreement; each ring has some of the troubles on, and others off."""
    often = {"slow-control": 0.4, "lost-control": 0.3, "duplicates": 0.3, "voters": 0.8, "proposer": 0.8}
    on = {trouble for trouble, share in often.items() if dice.random() < share}
    faults, now = [], 0.8
    for _ in range(dice.randint(1, 3)):
        end = round(now + dice.uniform(4.0, 7.0), 3)
        order = dice.sample(range(members), members)
        episode = dice.choices((_duel, _return, _absence, _parting, _haste), (5, 2, 2, 2, 1))[0]
        faults += episode(dice, order, insiders, on, now, end)
        for kind in ("slow-control", "lost-control", "duplicates"):
            if kind in on:
                faults.append(Fault(kind, now, end, (), round(dice.uniform(*KINDS[kind].amount), 3)))
        now = round(end + dice.uniform(0.3, 2.0), 3)
    return faults


def _duel(dice, order, insiders, on, now, end):
    """Two camps cannot reach each other, and both need the votes of those between them, who crash as they vote."""
    members = len(order)
    camp = members - ((members + insiders) // 2 + 1)  # so many that with those between them they are just a quorum
    one, other, middle = order[:camp], order[camp : 2 * camp], order[2 * camp :]
    faults = [Fault("cut", now, end, (a, b)) for a in one for b in other]
    if "proposer" in on:
        faults.append(Fault("decision-kill", now, end, (), float(dice.choice((0, 0, 1)))))
    if "voters" in on:
        kind = dice.choice(("promise-kill", "promise-kill", "echo-kill", "commit-kill", "commit-kill"))
        kills = [_while_voting(dice, kind, (member,), now, end) for member in middle]
        faults += kills
        if kind == "promise-kill" and dice.random() < 0.7:  # whom it voted for has to wait, and the other camp is next
            cut = round(dice.uniform(0.3, 1.4), 3)
            faults += [Fault("vote-cut", now, end, each.members, 0.0, each.passed, cut) for each in kills]
    return faults


def _return(dice, order, insiders, on, now, end):
    """A member was away for so long that the others went on without it, and asks for its seat while they work."""
    del insiders, on
    return [Fault("kill", now, round(min(now + PATIENCE + dice.uniform(0.6, 1.6), end), 3), (order[0],), 0.0)]


def _absence(dice, order, insiders, on, now, end):
    """A member is away; those that agree on a view without it are killed as they vote."""
    del insiders
    faults = [Fault("kill", now, end, (order[0],), 0.0)]
    if "proposer" in on:
        faults.append(_while_voting(dice, dice.choice(tuple(VOTE_KILLS)), (), now, end))
    if "voters" in on:
        kind = dice.choice(tuple(VOTE_KILLS))
        faults += [_while_voting(dice, kind, (member,), now, end) for member in order[1:] if dice.random() < 0.7]
    return faults


def _parting(dice, order, insiders, on, now, end):
    """A member is started again, and while the others agree on a view with it, the members are divided."""
    del insiders, on
    company = tuple(sorted(order[1 : dice.randint(1, max(len(order) // 2, 1)) + 1]))
    vote = float(dice.choice((0, 1, 2, 2, 3)))
    return [
        Fault("kill", now, round(now + dice.uniform(0.05, 0.8), 3), (order[0],), 0.0),
        Fault("vote-partition", now, end, company, vote),
    ]


def _haste(dice, order, insiders, on, now, end):
    """Members propose one view after the other."""
    many = order[: 1 if insiders else dice.randint(1, 2)]
    faults = [Fault("hasty", round(now + dice.uniform(0, 0.5), 3), end, (member,)) for member in many]
    if "voters" in on:
        faults += [_while_voting(dice, dice.choice(tuple(VOTE_KILLS)), (member,), now, end) for member in order[:2]]
    return faults


def _while_voting(dice, kind, who, now, end):
    """A kill just after a vote, mostly after that was sent; the member is back soon, or when the fault ends."""
    down = math.inf if dice.random() < 0.2 else round(dice.uniform(0.02, 0.4), 3)
    passed = dice.choice((0, 0, 1)) if kind == "promise-kill" else 0
    return Fault(kind, now, end, who, float(dice.choice((0, 1, 1, 2, 3))), passed, down)


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
        "voter": lambda: (dice.randrange(members),) if dice.random() < 0.5 else (),
    }[kind.hit]()
    low, high = kind.amount
    amount = float(dice.randint(low, high)) if isinstance(low, int) else dice.uniform(low, high)
    return Fault(name, round(start, 3), round(start + length, 3), who, round(amount, 3))
