"""The checker: knows what a ring promises and nothing of how it keeps it, and judges the history of a ring.

| promise      | what is promised |
|---|---|
| `views`      | never two different views with one number; numbers follow each other |
| `rounds`     | a round that all members of its view have completed is never taken back by a later view |
| `durable`    | what a site has saved is there after a kill or a loss of power; it can be started again |
| `parameters` | every saved round equals the replay of the views, bit for bit |
| `heads`      | no part of a head is in any byte that anybody sent, and `firma audit` finds no breach |
| `announced`  | a member that waits tells its operator within `SAY` times the patience |
| `recovery`   | a round is completed within `RECOVER` times the patience after the last fault; in the end all finish |
| `exit`       | nobody ends that should not |

"Completed" means: saved by a member that had not yet answered a proposal of a next view; from its answer on it has told
the others how far it is. The round that it has in hand then may still be saved, counts for nobody, and is the last one
until the next view.
"""

import math
from dataclasses import dataclass

from firma.errors import BadInput

from .replay import Replay, as_tensor
from .trainer import head_in
from .world import NAMES

SAY, RECOVER = 4.0, 20.0  # times the patience
_WAITING = ("waiting", "exchanging")
PROMISES = ("views", "rounds", "durable", "parameters", "heads", "announced", "recovery", "exit")


@dataclass(frozen=True)
class Violation:
    """A promise that was broken: which, when, by whom, and how."""

    promise: str
    at: float
    member: str
    text: str
    excuse: str = ""  # the kind of fault with which this is not promised

    def __str__(self):
        return f"{self.at:9.3f}  {self.member:<5} {self.promise}: {self.text}"


def judged(world, calm, error=None):
    """All violations in the history of a ring whose faults have ended at `calm`; `error` is what ended it, if any."""
    if error is not None:
        return [Violation("exit", world.now, "?", f"{type(error).__name__}: {error}")]
    found = [*_views(world), *_heads(world)]
    if not found:  # without an agreement there is nothing to replay
        found += [*_states(world), *_rounds(world), *_after_the_word(world)]
    found += [*_announced(world), *_exits(world), *_ends(world, calm)]
    first = {}
    for each in sorted(found, key=lambda each: each.at):  # what follows from a first one is no news
        first.setdefault((each.promise, each.excuse, each.text if each.promise == "exit" else ""), each)
    return list(first.values())


def _views(world):
    known = {}
    newest = {}  # that a member has learnt of, and that its main thread, which may be a step behind, has entered
    for at, member, what, *facts in world.history:
        if what in ("restored", "erased"):
            newest = {key: number for key, number in newest.items() if key[0] != member}
        if what not in ("learnt", "entered"):
            continue
        view = facts[0]
        first, other = known.setdefault(view.number, (member, view))
        if other != view:
            text = f"view {view.number} is {_told(view)} here and {_told(other)} at {first}"
            yield Violation("views", at, member, text)
        before = newest.get((member, what), 0)
        if view.number < before:
            yield Violation("views", at, member, f"from view {before} back to {view.number}")
        newest[member, what] = max(before, view.number)
        if view.number > 1 and view.number - 1 not in known and what == "learnt":
            yield Violation("views", at, member, f"view {view.number} without a view {view.number - 1}")


def _told(view):
    return f"{'-'.join(NAMES[n] for n in view.order)} from round {view.start + 1}"


def _states(world):  # noqa: PLR0912, one case per entry
    """Compare every state that was ever saved, and every state that a process began with, with the replay."""
    brought = {
        (NAMES.index(name), facts[0]): facts[1] for _, name, what, *facts in world.history if what == "caught up"
    }
    replay = Replay(len(world.ring.members), world.agreements[0].plan, brought)
    views, last, shelves = {}, {}, {}
    for at, name, what, *facts in world.history:
        if name == "world":
            continue
        member = NAMES.index(name)
        match what, *facts:
            case "learnt", view:
                views.setdefault(view.number, view)
            case "entered", view:
                views.setdefault(view.number, view)
                replay.entered(member, view)
                last[member] = (view.number, view.start)
            case "saved", number, rounds, raw, _:
                last[member] = (number, rounds)
                if not _equal(replay.state(member, views[number], rounds), raw):
                    yield Violation(
                        "parameters", at, name, f"round {rounds} of view {number} is not what the views give"
                    )
            case "snapshot", key:
                shelves[key] = (dict(replay.shelves[member]), last.get(member, (0, 0)), replay.newest[member])
            case "restored", key, _:
                replay.shelves[member], last[member], replay.newest[member] = shelves[key]
                replay.shelves[member] = dict(replay.shelves[member])
            case ("erased",):
                last.pop(member, None)
                replay.shelves[member] = Replay(member + 1, None).shelves[member]
            case (("opened" | "stored"), number, rounds, raw):
                if (number, rounds) < last.get(member, (0, 0)):
                    text = f"had saved round {last[member][1]} of view {last[member][0]}, finds {rounds} of {number}"
                    yield Violation("durable", at, name, text)
                if number and replay.newest[member] != number:
                    replay.entered(member, views[number])  # it was killed in the middle of that
                last[member] = (number, rounds)
                if number and rounds > views[number].start:
                    expected = replay.state(member, views[number], rounds)
                else:
                    expected = replay.shelves[member].get(rounds)
                replay.shelves[member] = {n: each for n, each in replay.shelves[member].items() if n <= rounds}
                if expected is None or not _equal(expected, raw):
                    yield Violation(
                        "parameters", at, name, f"round {rounds} of view {number} on disk is not what it was"
                    )


def _equal(expected, raw):
    return expected.numpy().tobytes() == raw or bool((expected == as_tensor(raw)).all())


def completed(world):
    """When each round was completed in each view by all of its members: {(view number, rounds): seconds}."""
    views, saved, found = {}, {}, {}
    for at, member, what, *facts in world.history:
        if what in ("learnt", "entered"):
            views[facts[0].number] = facts[0]
        elif what == "saved":
            number, rounds, _, told = facts
            if not told:
                those = saved.setdefault((number, rounds), set())
                those.add(member)
                if number in views and those >= {NAMES[n] for n in views[number].order}:
                    found.setdefault((number, rounds), at)
    return found


def _rounds(world):
    done, told, restored, had = completed(world), set(), [], {}
    for at, member, what, *facts in world.history:
        if what == "saved":
            had.setdefault((member, facts[0], facts[1]), at)
        if what == "restored":
            restored.append((at, member, facts[1]))
        if what != "learnt" or facts[0].number in told:
            continue
        view = facts[0]
        told.add(view.number)
        lost = [(number, rounds) for (number, rounds), when in done.items()
                if number < view.number and rounds > view.start and when <= at]  # fmt: skip
        unheard = {place for place in lost if any(_unheard(world, place, held) for when, who, held in restored
                                                  if had.get((who, *place), at) < when)}  # fmt: skip
        for places, excuse in ((set(lost) - unheard, ""), (unheard, "old-state")):
            if places:
                number, rounds = max(places)
                begins = f"view {view.number} starts after round {view.start}"
                text = f"{begins}, but all had completed {rounds} in view {number}"
                yield Violation("rounds", at, member, text, excuse)


def _unheard(world, place, held):
    """Whether so few others knew that a member had a round, when its disk was put back, that a quorum may lack them.

    Who has the round and goes back to a state without it says so in good faith, and nobody else can know better.
    """
    return sum(each >= place for each in held) <= len(world.ring.members) - world.ring.needed


def _after_the_word(world):
    """Who has answered a proposal may complete the round in hand, and no other."""
    last = {}
    for at, member, what, *facts in world.history:
        if what == "saved":
            number, rounds, _, told = facts
            if told and last.get(member) == number:
                text = f"completed round {rounds} of view {number} after it had told how far it was, and not the first"
                yield Violation("rounds", at, member, text)
            last[member] = number if told else None
        elif what in ("opened", "entered"):
            last[member] = None


def _heads(world):
    found = head_in(b"|".join(world.network.sent))
    if found:
        yield Violation("heads", world.now, "?", f"bytes of a head were sent: {found.hex()}")
    for member in world.everybody:
        try:
            report = world.audited(member)
        except BadInput as error:
            yield Violation("heads", world.now, NAMES[member], f"the audit file cannot be read: {error}")
            continue
        for breach in report.breaches if report else ():
            yield Violation("heads", world.now, NAMES[member], f"audit: {breach}")


def _announced(world):
    """Between two steps forward of one process lies no long time without a word to its operator, unless it trains."""
    bound = SAY * world.ring.patience
    steps = {name: [] for name in NAMES}
    for at, member, what, *facts in world.history:
        if what in (
            "opened",
            "entered",
            "trained",
            "saved",
            "notice",
            "trains",
            "killed",
            "ended",
            "stopped",
            "continued",
        ):
            steps[member].append((at, what, facts))
    for member, entries in steps.items():
        since, said = None, True
        for at, what, facts in [*entries, (world.now, "end", [])]:
            if since is not None and not said and at - since > bound:
                yield Violation("announced", since + bound, member, f"no progress since {since:.1f} s, and not a word")
                said = True
            if what == "notice":
                said = True
            elif what in ("opened", "entered", "trained", "saved", "continued"):
                rounds = {"opened": 1, "saved": 1}.get(what)
                finished = rounds is not None and facts[rounds] == world.ring.rounds
                since, said = (None if finished else at), False
            else:
                since = None


def _exits(world):
    """Ends of processes and whether a fault explains them."""
    full, lost_disks, first_end, told = {}, set(), None, set()
    faults = []  # (seconds, kind) of every fault that begins or ends
    for at, member, what, *facts in world.history:
        match what:
            case "full":
                full[member] = math.inf if facts[0] else at
            case "erased" | "restored":
                lost_disks.add(member)
            case "fault":
                faults.append(at)
            case "saved" if facts[1] == world.ring.rounds and first_end is None:
                first_end = at
            case "ended":
                why, recently = facts[0], [when for when in faults if at - world.ring.gathering - 5 <= when <= at]
                if why == "finished" or ("No space left" in why and at < full.get(member, -99.0) + 5):
                    continue
                if why.startswith("PeerLost: the ring has finished") and first_end is not None:
                    continue
                if "did not appear" in why and (recently or first_end is not None):
                    continue
                if "a site without its promises must not vote" in why and member in lost_disks:
                    continue
                if (member, why) not in told:
                    told.add((member, why))
                    yield Violation("exit", at, member, f"ended by itself: {why}")


def _ends(world, calm):
    """After the last fault the ring goes on, and all finish; a latecomer may find that all others have."""
    bound = RECOVER * world.ring.patience
    if not over(world, calm + bound) and recovery(world, calm) is None and world.now >= calm + bound:
        yield Violation("recovery", calm + bound, "all", f"no round was completed within {bound:g} s of the last fault")
        return
    for member in world.everybody:
        process = world.processes.get(member)
        if process is not None and process.up and over(world, world.now) and process.member.phase in _WAITING:
            continue  # left behind: the others had finished before it could reach them, and it has said that it waits
        if process is None or process.end is None:
            why = "was never started" if process is None else f"still {process.member.phase}" if process.up else "down"
            yield Violation("recovery", world.now, NAMES[member], f"has not finished in the end: {why}")
        elif process.end == "finished" and world.stored(member)[1] != world.ring.rounds:
            yield Violation("durable", world.now, NAMES[member], "has finished without all rounds")


def over(world, when):
    """Whether some member had finished by then: who comes later comes too late."""
    return any(at <= when and facts == ["finished"] for at, _, what, *facts in world.history if what == "ended")


def recovery(world, calm):
    """Seconds from the last fault to the next completed round; None: there was none, or the ring had finished."""
    later = [at for at in completed(world).values() if at >= calm]
    return min(later) - calm if later and not over(world, calm) else None
