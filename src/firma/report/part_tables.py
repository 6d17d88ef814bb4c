"""Tables of the method's parts: the paper's ablation, each part on and off, and what is sent."""

from collections.abc import Sequence
from math import hypot

from firma.data.scenarios import STUDY as SCENARIOS
from firma.methods import METHODS, base_name, lookup
from firma.report.table import MISSING, NOTHING, Entry, Table, number, words
from firma.schedule import passes
from firma.settings import hyper_for
from firma.study.evidence import PLACES, Evidence, Figure, Place
from firma.study.grid import DATASETS, FIXES, ablation_rows
from firma.study.runner import sizes

_PERCENT = "{:.1f}"
FULL = "fibfl++"
_ERROR = "Gains ± their standard errors."
RIVALS = ("fedavg", "fedrep", "rdfl", "local")


def ablation(body: Evidence, paper: Evidence) -> Table:
    """The paper's ablation at Dir 0.1: what the gate adds, what the three fixes add, both."""
    names = ("fibfl", "fibfl+", "fibfl++")
    steps = (("fibfl+", "fibfl"), ("fibfl++", "fibfl+"), ("fibfl++", "fibfl"))
    rows = []
    for dataset in DATASETS:
        place = (dataset, "dir-0.1")
        figures = [entry(body.get(place, m), _PERCENT, 100, paper.get(place, m), True) for m in names]
        gains = [_gain(body, paper, place, one, other, error=True) for one, other in steps]
        rows.append((Entry(dataset), *figures, *gains))
    title = f"Ablation at dir-0.1, accuracy in % and gains in points ({body.name})"
    columns = ("data set", *names, "Δ gate", "Δ fixes", "Δ both")
    return Table(slug("ablation", body.name), title, columns, tuple(rows), f"{_ERROR} In brackets: the paper.")


def fixes(body: Evidence) -> Table:
    """Each column of the full method switched back alone, and each fix alone on top of the gated ring, in points."""
    places = sorted({(key[0], key[1]) for key in body.figures if ":" in key[2]}, key=_rank)
    letters = {row: letter for letter, row in FIXES.items()}
    rows = []
    for name in ablation_rows():
        base = base_name(name)
        label = f"fix {letters[name]} alone: {name}" if name in letters else f"without: {name}"
        gains = [_gain(body, None, place, name, base, error=True) for place in places]
        rows.append((Entry(label), Entry(base), *gains))
    columns = ("row", "against", *(f"{dataset} {scenario}" for dataset, scenario in places))
    title = f"Parts of the full method on and off, gains in points ({body.name})"
    return Table(slug("fixes", body.name), title, columns, tuple(rows), _ERROR)


def duels(body: Evidence) -> Table:
    """The full method against the others, everywhere on a data set that was run: points won and lost."""
    rows = []
    metrics = ("mean_accuracy", "worst_client")
    wins = {(other, metric): [0, 0] for metric in metrics for other in RIVALS}
    for place in (place for place in PLACES if place[0] in body.datasets()):
        gains = []
        for metric in metrics:
            for other in RIVALS:
                gain = _gain(body, None, place, FULL, other, metric)
                gains.append(gain)
                wins[other, metric][0] += gain.value is not None and gain.value > 0
                wins[other, metric][1] += gain.value is not None
        best = max((figure.mean for figure in body.methods(place).values()), default=None)
        own = body.get(place, FULL)
        rows.append((*words(*place), entry(own, _PERCENT, 100, None, False), *gains, number(_percent(best), _PERCENT)))
    note = f"Points that {FULL} is above (below) the other in mean accuracy and in its worst client. Won: " + ", ".join(
        f"{won} of {run} against {other} ({'mean' if metric == metrics[0] else 'worst client'})"
        for (other, metric), (won, run) in wins.items()
    )
    columns = ("data set", "scenario", f"{FULL} %", *(f"mean, {o}" for o in RIVALS), *(f"worst, {o}" for o in RIVALS))
    return Table(slug("duels", body.name), f"{FULL} against the others ({body.name})", (*columns, "best method %"),
                 tuple(rows), note + ".")  # fmt: skip


def communication(body: Evidence) -> Table:
    """Bytes a round, all clients together: counted, beside the formula 2·N·K·p of four-byte weights."""
    rows = []
    for dataset in body.datasets():
        size = DATASETS[dataset]
        places = [(dataset, each) for each in SCENARIOS if body.methods((dataset, each), "bytes_per_round")]
        for name in METHODS:
            found = (body.get(place, name, "bytes_per_round") for place in places)
            # Scenarios in which clients dropped out sent less; the fullest federation is the formula's.
            counted = max((figure.mean for figure in found if figure is not None), default=None)
            formula = formula_bytes(name, dataset, size.clients)
            ratio = None if counted is None or not formula else counted / formula
            rows.append(
                (Entry(dataset), Entry(name), number(_mega(counted), "{:.2f}"), number(_mega(formula), "{:.2f}"),
                 number(ratio, "{:.3f}"))
            )  # fmt: skip
    columns = ("data set", "method", "MB counted", "MB by formula", "ratio")
    note = (
        "Counted over all rounds: a warm-up round is one averaging, not K passes; the gate adds eight bytes a message."
    )
    name = slug("communication", body.name)
    return Table(name, f"Communication a round ({body.name})", columns, tuple(rows), note)


def formula_bytes(method: str, dataset: str, clients: int) -> float:
    """2·N·K·p, with p the extractor or the whole model; 0 for who shares nothing."""
    row, hyper = lookup(method), hyper_for(method, "paper", {})
    extractor, head = sizes(dataset, hyper.hidden, hyper.embedding)
    shared = {"nothing": 0, "extractor": extractor, "model": extractor + head}[row.shares]
    return 2.0 * clients * passes(row, clients) * shared * 4


def entry(ours: Figure | None, form: str, scale: float, printed: Figure | None, bracket: bool) -> Entry:
    """Mean ± deviation and, in brackets, the paper's figure."""
    beside = f" ({MISSING if printed is None else form.format(printed.mean * scale)})" if bracket else ""
    known = printed.mean if printed is not None else None
    if ours is None:
        return Entry(MISSING + beside, printed=known) if printed is not None else NOTHING
    spread = "" if ours.deviation is None else f" ± {form.format(ours.deviation * scale)}"
    return Entry(form.format(ours.mean * scale) + spread + beside, ours.mean, False, ours.deviation, known)


def _gain(
    body: Evidence, paper: Evidence | None, place: Place, one: str, other: str, metric: str = "mean_accuracy",
    error: bool = False,
) -> Entry:  # fmt: skip
    """One method's accuracy less another's, in points, with its standard error if wanted, beside the paper's."""

    def points(evidence: Evidence) -> float | None:
        first, second = evidence.get(place, one, metric), evidence.get(place, other, metric)
        return None if first is None or second is None else 100 * (first.mean - second.mean)

    ours, printed = points(body), points(paper) if paper is not None else None
    beside = "" if printed is None else f" ({printed:+.1f})"
    if ours is None:
        return Entry(MISSING + beside, printed=printed)
    spread = _standard_error(body.get(place, one, metric), body.get(place, other, metric)) if error else ""
    return Entry(f"{ours:+.1f}{spread}{beside}", ours, printed=printed)


def _standard_error(*figures: Figure | None) -> str:
    """Of a difference of means over seeds, in points; nothing where one of them has a single seed."""
    errors = [each.error for each in figures if each is not None and each.error is not None]
    return f" ± {100 * hypot(*errors):.1f}" if len(errors) == len(figures) else ""


def _rank(place: Place) -> tuple[int, int]:
    def order(names: Sequence[str], name: str) -> int:
        return names.index(name) if name in names else len(names)

    return order(list(DATASETS), place[0]), order(SCENARIOS, place[1])


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _mega(value: float | None) -> float | None:
    return None if value is None else value / 1e6


def slug(*words: str) -> str:
    """A name without blanks."""
    return "-".join(words).replace(" ", "-")
