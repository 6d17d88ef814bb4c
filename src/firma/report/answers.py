"""What a study says, in a few sentences, written from its results and from nothing else."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean

from firma.report.board import Board, marks
from firma.report.measures import Measure
from firma.run_facts import distinct
from firma.statistics import FEWEST

_MOST_NAMES = 6


def asked(board: Board) -> str:
    """What the study asks, as one sentence."""
    measure, lines = board.measures[0], board.study.lines
    best = "lowest" if measure.lower else "highest"
    where = _where(board)
    if len(board.variants) - len(board.aside) < 2:
        return f"How good is {board.variants[0]} {where}, in {measure.heading}?"
    many = f"{len(board.variants) - len(board.aside)} {'methods' if lines == 'method' else f'values of {lines}'}"
    return f"Which of {many} has the {best} {measure.title} {where}?"


def answer(board: Board, switch: int, measure: Measure) -> list[str]:
    """Who is best, by how much, how sure that is, and what was not run."""
    places, variants = board.places_of(switch), board.variants_of(switch)
    if len(variants) < 2:
        return list(_alone(board, switch, measure))
    said = [_winners(board, switch, measure, places), *_ranking(board, switch, measure, places, variants)]
    said += _widest(board, switch, measure, places)
    return [*said, *_sureness(board, switch, places)]


def answer_for(board: Board, switch: int, measure: Measure, dataset: str) -> str:
    """The same for one data set, in one sentence."""
    places = board.places_of(switch, dataset)
    if not places:
        return "Nothing was run here with this preset."
    if len(board.variants_of(switch)) < 2:
        return next(_alone(board, switch, measure, dataset), "")
    return _winners(board, switch, measure, places)


def _where(board: Board) -> str:
    datasets, count = board.datasets, len(board.places)
    first = f"on {listed(datasets)}" if len(datasets) <= 4 else f"on {len(datasets)} data sets"
    if count == len(datasets):
        return f"{first} ({board.places[0].label})" if len({place.label for place in board.places}) == 1 else first
    return f"{first}, in {count} places (a place is a data set with {_told_apart(board)})"


def _told_apart(board: Board) -> str:
    return listed([f"a {name}" if name == "scenario" else name for name in board.options if name != "dataset"])


def _winners(board: Board, switch: int, measure: Measure, places: Sequence[int]) -> str:
    """How often each variant is best; where others are too close, that is said."""
    wins: dict[int, int] = {}
    judged = unclear = 0
    for place in places:
        found = marks(board, switch, place, measure)
        judged += bool(found)
        unclear += "close" in found.values() or list(found.values()).count("best") > 1
        for variant, mark in found.items():
            wins[variant] = wins.get(variant, 0) + (mark == "best")
    if not judged:
        return f"No two of them were run in the same place with a value of {measure.title}: nothing can be compared."
    ranked = sorted((variant for variant in wins if wins[variant]), key=lambda each: (-wins[each], each))
    name = board.variants[ranked[0]]
    if judged == 1:
        text = f"{name} has the {_best(measure)} {measure.title} ({board.places[places[0]]})"
    else:
        lead = f"all {judged}" if wins[ranked[0]] == judged else f"{wins[ranked[0]]} of {judged}"
        text = f"{name} has the {_best(measure)} {measure.title} in {lead} places"
        others = [f"{board.variants[each]} in {wins[each]}" for each in ranked[1:_MOST_NAMES]]
        rest = len(ranked) - _MOST_NAMES
        text += "".join(f", {each}" for each in others) + (
            f", {rest} other{'s' if rest > 1 else ''} less often" if rest > 0 else ""
        )
        text += " (ties count for each)" if sum(wins.values()) > judged else ""
    if unclear:
        where = f"in {unclear} of them" if judged > 1 else "here"
        text += f"; {where} another one is too close to call"
    return text + "."


def _ranking(
    board: Board, switch: int, measure: Measure, places: Sequence[int], variants: Sequence[int]
) -> Iterator[str]:
    """Means over the places in which all variants were run, or most of them, from best to worst."""
    values = {place: board.statistics(switch, place, measure) for place in places}
    ran = {variant: {place for place in places if variant in values[place]} for variant in variants}
    kept = [variant for variant in variants if ran[variant]]
    # Variants that were run in few places would leave little to compare the others over.
    while len(kept) > 2 and len(_shared(ran, kept)) < len(places) / 2:
        fewest = min(len(ran[each]) for each in kept)
        rest = [each for each in kept if len(ran[each]) > fewest]
        if len(rest) < 2 or len(_shared(ran, rest)) <= len(_shared(ran, kept)):
            break
        kept = rest
    shared = _shared(ran, kept)
    if len(kept) < 2 or len(shared) < 2:
        return
    found = [board.side_by_side(switch, place, measure, kept) for place in sorted(shared)]
    means = {variant: mean(each[variant].mean for each in found) for variant in kept}
    ranked = sorted(means, key=lambda each: means[each] if measure.lower else -means[each])
    names = [f"{board.variants[each]} {measure.show(means[each])}" for each in ranked]
    shown = names if len(names) <= 2 * _MOST_NAMES else [*names[:_MOST_NAMES], "…", names[-1]]
    left = [board.variants[each] for each in variants if each not in kept]
    without = f" (without {listed(left)}, run in fewer places)" if left else ""
    yield f"Mean over the {len(shared)} places that {_all_of(len(kept))} ran in{without}: {', '.join(shown)}."


def _shared(ran: Mapping[int, set[int]], kept: Sequence[int]) -> set[int]:
    return set.intersection(*(ran[variant] for variant in kept)) if kept else set()


def _widest(board: Board, switch: int, measure: Measure, places: Sequence[int]) -> Iterator[str]:
    """Where it matters most which one is taken."""
    every = {
        place: board.side_by_side(switch, place, measure, there)
        for place in places
        if len(there := board.statistics(switch, place, measure)) > 1
    }
    if len(every) < 2:
        return
    means = {place: [each.mean for each in found.values()] for place, found in every.items()}
    place = max(means, key=lambda each: max(means[each]) - min(means[each]))
    found = every[place]
    high, low = (pick(found, key=lambda each: found[each].mean) for pick in (max, min))
    ends = [f"{board.variants[each]} {measure.show(found[each].mean)}" for each in (high, low)]
    yield f"They differ most on {board.places[place]}: {ends[0]}, {ends[1]}."


def _sureness(board: Board, switch: int, places: Sequence[int]) -> Iterator[str]:
    """How many seeds there are, and what is missing."""
    there = {(switch, place, variant) for place in places for variant in board.variants_of(switch)}
    counts = {key: len(group.cells) for key, group in board.groups.items() if key in there}
    few = sum(count < FEWEST for count in counts.values())
    if all(count == 1 for count in counts.values()):
        yield "There is one seed of each run only: small differences may be chance."
    elif few:
        yield f"{few} of {len(counts)} kinds of run have one or two seeds: there, small differences may be chance."
    if missing := len(board.missing(switch)):
        yield f"{missing} of {missing + len(counts)} combinations of a place and a {board.study.lines} were not run."


def _alone(board: Board, switch: int, measure: Measure, dataset: str | None = None) -> Iterator[str]:
    """A study of one variant: how good it is, where it is worst, and what it sends."""
    variant = board.variants_of(switch)[0]
    found = {
        place: here[variant]
        for place in board.places_of(switch, dataset)
        if variant in (here := board.statistics(switch, place, measure))
    }
    if not found:
        yield f"There is no value of {measure.title}."
        return
    low, high = (pick(found, key=lambda each: found[each].mean) for pick in (min, max))
    name = board.variants[variant]
    if low == high:
        group = board.groups[switch, low, variant]
        spread = found[low].deviation
        over = f" ± {measure.show(spread)} over {found[low].seeds} seeds" if spread is not None else " (one seed)"
        rounds = group.results[0].history.shape[0]
        yield (
            f"{name} on {board.places[low]}: {measure.title} {measure.show(found[low].mean)}{over} after {rounds} "
            f"round{'s' if rounds > 1 else ''}."
        )
    else:
        ends = [f"{measure.show(found[each].mean)} ({board.places[each]})" for each in (low, high)]
        yield f"{name}: {measure.title} from {ends[0]} to {ends[1]}, in {len(found)} places."
    for name in ("worst_client", "bytes_per_round"):
        other = next((each for each in board.measures if each.name == name and each != measure), None)
        value = board.values[switch, low, variant].get(name)
        if other is not None and value is not None and low == high and dataset is None:
            yield f"{other.title[0].upper()}{other.title[1:]}: {other.show(value.mean)}."


def listed(names: Sequence[object], most: int = 8) -> str:
    """Names as a sentence has them: "a, b and c"."""
    texts = [str(name) for name in distinct(str(name) for name in names)]
    if len(texts) > most:
        return f"{', '.join(texts[:most])} and {len(texts) - most} more"
    return " and ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else "".join(texts)


def _best(measure: Measure) -> str:
    return "lowest" if measure.lower else "highest"


def _all_of(count: int) -> str:
    return "both" if count == 2 else f"all {count}"
