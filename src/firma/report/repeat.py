"""How to repeat a cell: the exact command."""

import shlex

from firma.report.table import Entry, Table, number
from firma.study.evidence import labels
from firma.study.store import Stored

_OPTIONS = ("clients", "rounds")


def command(cell: Stored) -> str:
    """The `firma run` that gives this cell's figures."""
    result = cell.result
    preset, *changes = labels(result.config, result.method)[0].split()
    words = ["firma", "run", "--dataset", cell.dataset, "--scenario", cell.scenario, "--method", result.method]
    words += ["--preset", preset, "--seed", str(result.seed)]
    for change in changes:
        name, _, value = change.partition("=")
        words += [f"--{name}", value] if name in _OPTIONS else ["--set", change]
    return shlex.join(words)


def repeat_table(cells: list[Stored]) -> Table:
    """Every cell that was run: its figures, what it took, and how to run it again."""
    rows = []
    for cell in sorted(cells, key=lambda each: (each.dataset, each.scenario, each.result.method, each.result.seed)):
        result = cell.result
        accuracy, gini = result.metrics["mean_accuracy"], result.metrics["gini"]
        rows.append(
            (
                Entry(cell.dataset), Entry(cell.scenario), Entry(result.method),
                Entry(", ".join(labels(result.config, result.method))), number(result.seed, "{:.0f}"),
                number(accuracy, "{:.4f}"),
                number(gini, "{:.4f}"), number(result.seconds, "{:.1f}"), Entry(command(cell)),
            )
        )  # fmt: skip
    columns = ("data set", "scenario", "method", "runs", "seed", "accuracy", "Gini", "seconds", "command")
    return Table("cells", f"All {len(rows)} cells, and how to repeat each", columns, tuple(rows))
