"""How a metric is shown: its title, its unit, how many digits, and which steps of distance have a colour each."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10

from firma.comparison import lower_is_better
from firma.statistics import Statistic, is_clear
from firma.tasks.task import TITLES

# Metrics that say the same as another one, or little.
_LEFT_OUT = ("jain", "rounds_to_50", "worst_round", "messages_per_round")
_SHARES = ("accuracy", "balanced_accuracy", "f1_macro", "f1_micro", "exact_match")  # metrics shown in %
_OF_MAIN = {
    "worst_client": "{} of the worst client",
    "worst_fifth": "{} of the worst fifth of the clients",
    "largest_drop": "loss of {} in the worst round",
}
_OTHERS = {
    "gini": ("Gini coefficient of the clients", "", 1.0, 3),
    "rounds_to_half_of_final": ("number of rounds to half of the final mean", "", 1.0, 1),
    "plateau_std": ("standard deviation over the last half of the rounds", "", 1.0, 4),
    "bytes_per_round": ("megabytes per round, all clients together", "", 1e-6, 2),
}
_POINTS = (0.5, 1.0, 2.0, 5.0, 10.0)
_PARTS = (0.05, 0.1, 0.25, 0.5, 1.0)


@dataclass(frozen=True)
class Measure:
    """A metric as a reader sees it; values are multiplied by `scale` and shown with `digits` decimals."""

    name: str
    title: str
    unit: str = ""
    scale: float = 1.0
    digits: int = 4
    lower: bool = False  # is better

    @property
    def heading(self) -> str:
        """Title and unit: "mean accuracy in %"."""
        return f"{self.title} in {self.unit}" if self.unit else self.title

    @property
    def convention(self) -> str:
        """In words, the most that a difference may be with one or two seeds without being clear."""
        return "one point" if self.unit == "%" else "0.01" if self.name.endswith("gini") else "1 %"

    def clear(self, difference: Statistic, best: float = 0.0) -> bool:
        """Whether a paired difference to `best` is more than noise, or with one or two seeds than the convention."""
        return is_clear(difference, 0.01 * abs(best) if self.convention == "1 %" else 0.01)

    def show(self, value: float) -> str:
        """A value in words, with its unit if it is a share, on one line."""
        return f"{value * self.scale:.{self.digits}f}" + ("\u00a0%" if self.unit == "%" else "")

    def rounded(self, value: float | None) -> float | None:
        """A value as it is shown, without its unit; None if it is not a number."""
        if value is None or not isfinite(value):
            return None
        short = round(value * self.scale, self.digits)
        return int(short) if short == int(short) else short


def measures_of(names: Sequence[str], main: str) -> list[Measure]:
    """The metrics that a reader may choose between, the main one's mean first; `main` is the metric of the history."""
    found = [measure_of(name, main) for name in names if name not in _LEFT_OUT]
    return sorted(found, key=lambda each: each.name != f"mean_{main}")


def measure_of(name: str, main: str) -> Measure:
    """How one metric is shown."""
    lower = lower_is_better(name)
    bare = name.removeprefix("honest_").removeprefix("mean_")
    who = "honest clients: " if name.startswith("honest_") else ""
    if name in _OTHERS:
        return Measure(name, *_OTHERS[name], lower)
    title = f"mean {TITLES.get(bare, bare)}" if "mean_" in name else name.replace("_", " ")
    if bare in _OF_MAIN:
        title = _OF_MAIN[bare].format(TITLES.get(main, main))
    metric = main if bare in _OF_MAIN else bare
    share = metric in _SHARES and ("mean_" in name or bare in _OF_MAIN)
    return Measure(name, who + title, *(("%", 100.0, 1) if share else ("", 1.0, 4)), lower)


def steps(measure: Measure, distances: Sequence[float]) -> tuple[float, ...]:
    """Upper bounds of the distance to the best, in shown units, that have a colour each: points, or parts of the most.

    Distances beyond the last step have a colour of their own.
    """
    if measure.unit == "%":
        return _POINTS
    most = max((each for each in distances if isfinite(each)), default=0.0)
    if most <= 0:
        return ()
    power = 10.0 ** floor(log10(most))
    top = next(each * power for each in (1, 2, 5, 10) if each * power >= most * (1 - 1e-9))
    return tuple(float(f"{part * top:.3g}") for part in _PARTS)


def level(distance: float, bounds: Sequence[float]) -> int:
    """The place of a distance among the steps; that of a distance beyond the last is their number."""
    return next((place for place, bound in enumerate(bounds) if distance <= bound), len(bounds))
