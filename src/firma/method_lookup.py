"""Methods by name: rows of the table, rows with changed columns, and which columns go together."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import get_args

from firma.errors import BadInput, suggestion, unknown
from firma.methods import (
    COLUMNS,
    GRAPHS,
    METHODS,
    PAPER_NUMBERS,
    RECOMMENDED_NUMBERS,
    WORDS,
    Method,
    Topology,
    columns,
    own_algorithm,
)

_WITH_RING: tuple[Topology, ...] = ("complete", "exponential")  # graphs that have the links of the ring

# Columns that some topologies have no use for: the value that asks for nothing, the topologies that use the others, and
# these in words.
_CONNECTED: tuple[Topology, ...] = tuple(each for each in get_args(Topology) if each != "none")
_USED_BY: Mapping[str, tuple[str, tuple[Topology, ...], str]] = {
    "gate": ("no", ("ring",), "'ring'"),
    "order": ("given", ("ring", "all-reduce"), "'ring' or 'all-reduce'"),
    "passes": ("one", ("ring", *GRAPHS), "'ring' or another graph"),
    "retention": ("none", ("ring",), "'ring'"),
    "private": ("none", _CONNECTED, "any but 'none'"),
    "weights": ("none", _CONNECTED, "any but 'none'"),
}
_MEAN_GRADIENT = ("control-variates", "tracked-gradient")  # of a round, from what the client moved by
_COUNTING_STEPS = (*_MEAN_GRADIENT, "normalised-steps")
_TWO_MODELS = ("second-model", "interpolation")
_PERSONAL = (*_TWO_MODELS, "moreau-envelope", "debiased")


def lookup(name: str) -> Method:
    """The row called `name`, or a changed one: `fibfl++:order=given,gate=no`."""
    base, colon, changes = name.partition(":")
    if base not in METHODS:
        raise _unknown_method(base)
    stated: dict[str, str] = {}
    for change in _split(changes) if colon else ():
        column, _, value = change.partition("=")
        if column not in COLUMNS:
            raise _unknown_column(name, column, change)
        if column in stated:
            raise BadInput(
                f"method {name!r}: {column} is stated twice, as {stated[column]!r} and {value!r}; state it once"
            )
        stated[column] = value
    row = replace(METHODS[base], name=name, **stated)  # type: ignore[arg-type]  # check() compares them with COLUMNS
    return check_used(check(row), stated)


def _split(changes: str) -> list[str]:
    """Changes of columns, which commas separate; not those within brackets, as in algorithm=mine:Mine(a=1,b=(2,3))."""
    parts, depth = [""], 0
    for character in changes:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _changed_name(name: str, column: str, value: str) -> str:
    """The name of a row with one more column changed; a column that the name states already is replaced."""
    base, colon, changes = name.partition(":")
    kept = [each for each in _split(changes) if each.partition("=")[0] != column] if colon else []
    return f"{base}:{','.join([*kept, f'{column}={value}'])}"


def in_table(row: Method) -> bool:
    """Whether the row is what its name says: a row of the table, or a changed one such as `fibfl++:order=given`."""
    try:
        return lookup(row.name) == row
    except BadInput:
        return False


def own_columns(row: Method) -> list[str]:
    """The columns in which a row of the user's own differs from the row that it was made from."""
    base = METHODS.get(row.base)
    return [column for column in COLUMNS if base is not None and getattr(row, column) != getattr(base, column)]


def on_topology(row: Method, topology: Topology) -> Method:
    """The row on another topology, a ring or a graph, with the columns changed that do not go with it.

    On its own topology it stays as it is; on another one it has Metropolis weights.
    """
    if row.topology == topology:
        return check(row)
    return check(
        replace(
            row, name=f"{row.name} on {topology}", topology=topology, weights="metropolis", retention="none", gate="no",
            order="given", warmup="no", shares="model" if row.shares == "nothing" else row.shares,
        )
    )  # fmt: skip


def ablations(full: str | Method, base: str | Method) -> Iterator[Method]:
    """`full` with one column set back to the value in `base`, for each column in which the two differ.

    Both are rows, of the table or of your own, or names of rows.
    """
    row, other = (check(each) if isinstance(each, Method) else lookup(each) for each in (full, base))
    for column, value in columns(other).items():
        if getattr(row, column) != value:
            yield check(replace(row, name=_changed_name(row.name, column, value), **{column: value}))  # type: ignore[arg-type]


def check(row: Method) -> Method:
    """The row itself, if every column has an allowed value and the columns fit together."""
    what = f"method {row.name!r}"
    for column, allowed in COLUMNS.items():
        value = getattr(row, column)
        if column == "algorithm" and own_algorithm(row):
            continue  # of the user's own: an object, or MODULE:CLASS
        if value not in allowed:
            own = ", or MODULE:CLASS of your own" if column == "algorithm" else ""
            choice = f"must be one of {', '.join(allowed)}{own}{suggestion(value, allowed)}"
            raise BadInput(f"{what}: {column} = {value!r}; {choice}")
    if row.base and row.base not in METHODS:
        choice = f"must be one of {', '.join(METHODS)}, or empty{suggestion(row.base, METHODS)}"
        raise BadInput(f"{what}: base = {row.base!r}; {choice}")
    if (row.topology == "none") != (row.shares == "nothing"):
        raise BadInput(
            f"{what}: topology = {row.topology!r} cannot be combined with shares = {row.shares!r}; "
            "topology = 'none' requires shares = 'nothing', and vice versa"
        )
    _check_mixing(row, what)
    _check_combine(row, what)
    _check_head(row, what)
    _check_algorithm(row, what)
    return row


def check_used(row: Method, stated: Iterable[str]) -> Method:
    """The row itself, if the columns that were stated have an effect; those that a row inherits may have none."""
    for column in (each for each in stated if each in _USED_BY):
        value, (usual, topologies, words) = getattr(row, column), _USED_BY[column]
        averaging = column == "order" and row.warmup == "yes"  # which is done round a ring
        if value != usual and row.topology not in topologies and not averaging:
            raise BadInput(
                f"method {row.name!r}: {column} = {value!r} has no effect with topology = {row.topology!r}; it "
                f"requires topology = {words}"
            )
    return row


def _check_mixing(row: Method, what: str) -> None:
    if row.topology in ("star", "all-reduce", "all-gather") and row.weights not in ("size", "equal"):
        raise BadInput(
            f"{what}: weights = {row.weights!r}, but topology = {row.topology!r} requires weights = 'size' or 'equal'"
        )
    if row.topology == "ring" and row.weights not in ("half", "golden", "metropolis"):
        raise BadInput(
            f"{what}: weights = {row.weights!r}, but topology = 'ring' requires 'half' or 'golden', or 'metropolis'"
        )
    if row.topology == "ring" and row.retention == "none" and row.weights != "metropolis":
        raise BadInput(
            f"{what}: retention = 'none', but topology = 'ring' requires 'constant' or 'cosine', unless weights = "
            "'metropolis'"
        )
    if row.topology in GRAPHS and row.weights != "metropolis":
        fitting = {"weights": "metropolis", "retention": "none", "gate": "no", "order": "given"}
        fitting |= {} if row.topology in _WITH_RING else {"warmup": "no"}
        wrong = {column: value for column, value in fitting.items() if getattr(row, column) != value}
        stated = " and ".join(f"{column} = {value!r}" for column, value in wrong.items())
        raise BadInput(
            f"{what}: weights = {row.weights!r}, but topology = {row.topology!r} requires {stated}; add "
            f"{','.join(f'{column}={value}' for column, value in wrong.items())}"
        )
    if row.weights == "metropolis":
        _check_metropolis(row, what)
    if row.order == "bandwidth" and row.topology not in ("ring", "all-reduce"):
        raise BadInput(f"{what}: order = 'bandwidth' requires topology = 'ring' or 'all-reduce'")
    if row.warmup == "yes" and row.topology == "none":
        raise BadInput(
            f"{what}: warmup = 'yes' averages over all clients, but with topology = 'none' nobody sends anything; use "
            "warmup = 'no'"
        )
    if row.warmup == "yes" and row.algorithm != "plain":
        raise BadInput(
            f"{what}: warmup = 'yes' cannot be combined with algorithm = {row.algorithm!r}; use warmup = 'no'"
        )


def _check_combine(row: Method, what: str) -> None:
    refused = f"{what}: combine = {row.combine!r} cannot be combined with topology = {row.topology!r}"
    if row.combine == "mean":
        return
    if row.topology == "none":
        raise BadInput(f"{refused}: nobody sends anything; use 'mean'")
    if row.topology == "all-reduce":
        raise BadInput(f"{refused}: it would see sums instead of single clients; use topology = 'all-gather'")
    if row.combine == "krum" and row.topology == "ring":
        raise BadInput(
            f"{refused}: Krum requires at least 2f + 3 clients, and a ring has two neighbours; use 'clipped', or "
            "topology = 'all-gather'"
        )
    if row.topology == "one-peer-exponential":
        raise BadInput(f"{refused}: two vectors at a time cannot show which of them lies; use 'exponential'")
    if row.combine == "clipped" and row.topology == "star":
        raise BadInput(
            f"{refused}: differences are clipped to a client's own parameters, and a server has none; use 'trimmed', "
            "'median' or 'krum'"
        )


def _check_algorithm(row: Method, what: str) -> None:
    if row.algorithm == "normalised-steps" and row.topology in ("ring", *GRAPHS):
        raise BadInput(
            f"{what}: algorithm = {row.algorithm!r} averages what clients moved by, not where they are, so "
            f"topology = {row.topology!r} would never bring them together; use 'star', or 'all-reduce' if all clients "
            "take part in every round"
        )
    if row.algorithm == "normalised-steps" and row.combine == "clipped":
        raise BadInput(
            f"{what}: combine = 'clipped' cannot be combined with algorithm = {row.algorithm!r}, which averages what "
            "clients moved by, not where they are: each client would add something else, and they would never come "
            "together; use 'trimmed', 'median' or 'krum'"
        )
    if row.algorithm == "tracked-gradient" and (row.combine != "mean" or row.gate == "yes"):
        column, used = ("combine", "mean") if row.combine != "mean" else ("gate", "no")
        raise BadInput(
            f"{what}: {column} = {getattr(row, column)!r} cannot be combined with algorithm = {row.algorithm!r}, whose "
            f"corrections cancel out only if mixing preserves the mean over clients; use {column} = {used!r}"
        )
    if row.algorithm in _MEAN_GRADIENT and row.optimiser == "adam":
        raise BadInput(
            f"{what}: optimiser = 'adam' cannot be combined with algorithm = {row.algorithm!r}, which computes a "
            "client's mean gradient from what it moved by; use optimiser = 'sgd'"
        )
    if row.algorithm in _COUNTING_STEPS and row.persistent == "yes":
        raise BadInput(
            f"{what}: persistent = 'yes' cannot be combined with algorithm = {row.algorithm!r}, which counts how far "
            "the local steps of a fresh optimiser lead; use persistent = 'no'"
        )
    if row.algorithm in _COUNTING_STEPS and row.training == "two-phase" and row.shares == "model":
        raise BadInput(
            f"{what}: algorithm = {row.algorithm!r} divides by the number of local steps, but training = 'two-phase' "
            "takes different numbers for extractor and head; use training = 'joint' or shares = 'extractor'"
        )
    if row.algorithm in _TWO_MODELS and row.persistent == "yes":
        raise BadInput(
            f"{what}: persistent = 'yes' cannot be combined with algorithm = {row.algorithm!r}, whose second model has "
            "a fresh optimiser in each round"
        )
    if row.personal != "none" and row.algorithm in _PERSONAL:
        raise BadInput(
            f"{what}: personal = {row.personal!r} cannot be combined with algorithm = {row.algorithm!r}, which has a "
            "personal model of its own; use personal = 'none'"
        )


def _check_metropolis(row: Method, what: str) -> None:
    """The weights follow from the graph alone, and warm-up rounds use no link that the graph does not have."""
    if row.retention != "none":
        raise BadInput(
            f"{what}: retention = {row.retention!r}, but weights = 'metropolis' requires retention = 'none': what a "
            "client keeps of its own follows from the graph"
        )
    if row.gate == "yes":
        raise BadInput(f"{what}: gate = 'yes' requires topology = 'ring' with weights = 'half' or 'golden'")
    if row.topology in GRAPHS and row.order != "given":
        raise BadInput(f"{what}: order = {row.order!r} requires a ring, but topology = {row.topology!r}")
    if row.topology in GRAPHS and row.topology not in _WITH_RING and row.warmup == "yes":
        raise BadInput(
            f"{what}: warmup = 'yes' averages round a ring, but topology = {row.topology!r} does not have its links; "
            "set warmup = 'no'"
        )


def _check_head(row: Method, what: str) -> None:
    if (row.head == "learnt") == (row.training == "extractor"):
        raise BadInput(
            f"{what}: head = {row.head!r} cannot be combined with training = {row.training!r}; a fixed head ('random' "
            "or 'tight-frame') requires training = 'extractor', and vice versa"
        )
    if row.head != "learnt" and row.shares != "extractor":
        raise BadInput(f"{what}: head = {row.head!r} requires shares = 'extractor'; the head is fixed, not shared")


def _unknown_method(name: str) -> BadInput:
    """The nearest name, or where to find all of them: there are too many for one sentence."""
    near = suggestion(name, [*METHODS, *WORDS])
    return BadInput(f"method {name!r} is unknown{near}; firma methods lists all {len(METHODS)}")


def _unknown_column(name: str, column: str, change: str) -> BadInput:
    """The nearest column; a number such as the learning rate is a setting, and is given elsewhere."""
    if any(column in numbers for numbers in (*PAPER_NUMBERS.values(), *RECOMMENDED_NUMBERS.values())):
        return BadInput(f"method {name!r}: {column!r} is a setting, not a column; use --set {change}")
    found = unknown(f"method {name!r}: column", column, COLUMNS)
    return BadInput(f"{found}; settings are changed with --set")
