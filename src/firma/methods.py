"""The design table: a method is a row of columns, and the code branches on columns, never on names.

This module imports the standard library only, so that the table can be read without loading anything else.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast, get_args

from firma.errors import BadInput, suggestion, unknown

if TYPE_CHECKING:

    class OwnAlgorithm(Protocol):
        """An object of `firma.training.algorithm.Algorithm`, as far as the table knows it."""

        @property
        def identity(self) -> str:
            """What identifies it."""

else:
    OwnAlgorithm = Any  # what pydantic sees

MethodOrName = TypeVar("MethodOrName")
Topology = Literal[
    "none", "star", "ring", "all-reduce", "all-gather", "complete", "torus", "exponential", "one-peer-exponential",
    "regular", "edges",
]  # fmt: skip
Shares = Literal["nothing", "extractor", "model", "head"]
Weights = Literal["none", "size", "equal", "half", "golden", "metropolis"]
Order = Literal["given", "2-opt", "bandwidth"]
Passes = Literal["one", "cover"]
Retention = Literal["none", "constant", "cosine"]
Training = Literal["joint", "two-phase", "extractor"]
Optimiser = Literal["sgd", "adam"]
Switch = Literal["no", "yes"]
Private = Literal["none", "norm"]
Head = Literal["learnt", "random", "tight-frame"]
AlgorithmName = Literal[
    "plain", "control-variates", "normalised-steps", "second-model", "interpolation", "moreau-envelope", "meta-step",
    "debiased", "tracked-gradient",
]  # fmt: skip
Personal = Literal["none", "fine-tune", "tune-head", "one-step"]
Combine = Literal["mean", "clipped", "trimmed", "median", "krum"]


@dataclass(frozen=True, slots=True)
class Method:
    """One row of the table; `replace(row, column=value)` is an ablation.

    `base` names the row of `METHODS` whose hyperparameters (learning rate, epochs, …) are used. `replace` keeps it, so
    a changed row trains with those of the row it was made from, whatever its name. Without a base, they are the defaults
    of `Hyper`, the same under every preset.
    """

    name: str
    topology: Topology
    shares: Shares
    weights: Weights  # of the clients at the server, or of the neighbours
    gate: Switch  # neighbours below the accuracy threshold lose weight
    order: Order  # of the clients on the ring
    passes: Passes  # exchanges per round; "cover": as many as reach everybody, on a ring ⌈N/2⌉
    retention: Retention  # how the share that a client keeps of its own parameters changes over rounds
    training: Training
    optimiser: Optimiser
    persistent: Switch  # optimiser state is kept across rounds
    warmup: Switch  # the first rounds average over all clients
    private: Private = "none"  # what stays with the client of the part that is shared
    head: Head = "learnt"  # or fixed: drawn at random, or derived as a tight frame
    algorithm: AlgorithmName | str | OwnAlgorithm = "plain"  # what a client does beside training and mixing
    personal: Personal = "none"  # what a client makes of the mixed model for itself, after each round
    combine: Combine = "mean"  # of what arrives; all others are robust, and count clients alike whatever they claim
    base: str = ""  # not a column: whose numbers are used


COLUMNS: Mapping[str, tuple[str, ...]] = {
    "topology": get_args(Topology),
    "shares": get_args(Shares),
    "weights": get_args(Weights),
    "gate": get_args(Switch),
    "order": get_args(Order),
    "passes": get_args(Passes),
    "retention": get_args(Retention),
    "training": get_args(Training),
    "optimiser": get_args(Optimiser),
    "persistent": get_args(Switch),
    "warmup": get_args(Switch),
    "private": get_args(Private),
    "head": get_args(Head),
    "algorithm": get_args(AlgorithmName),
    "personal": get_args(Personal),
    "combine": get_args(Combine),
}

# fmt: off
# ruff: noqa: E501
_ROWS = (
    #       name       topology shares      weights   gate   order    passes   retention   training     optimiser persistent warmup
    Method("local",   "none", "nothing",   "none",   "no",  "given", "one",   "none",     "joint",     "sgd",  "no",  "no"),
    Method("fedavg",  "star", "model",     "size",   "no",  "given", "one",   "none",     "joint",     "sgd",  "no",  "no"),
    Method("fedrep",  "star", "extractor", "size",   "no",  "given", "one",   "none",     "two-phase", "sgd",  "no",  "no"),
    Method("rdfl",    "ring", "model",     "half",   "no",  "given", "one",   "constant", "joint",     "sgd",  "no",  "no"),
    Method("fibfl",   "ring", "extractor", "golden", "no",  "given", "one",   "constant", "two-phase", "adam", "yes", "no"),
    Method("fibfl+",  "ring", "extractor", "golden", "yes", "given", "one",   "constant", "two-phase", "adam", "yes", "no"),
    Method("fibfl++", "ring", "extractor", "golden", "yes", "2-opt", "cover", "cosine",   "two-phase", "adam", "yes", "yes"),
    Method("frame",   "all-reduce", "extractor", "size", "no", "given", "one", "none", "extractor", "adam", "no", "no", head="tight-frame", personal="tune-head"),
    Method("scaffold", "star", "model",    "equal",  "no",  "given", "one",   "none",     "joint",     "sgd",  "no",  "no", algorithm="control-variates"),
    Method("fednova", "star", "model",     "size",   "no",  "given", "one",   "none",     "joint",     "sgd",  "no",  "no", algorithm="normalised-steps"),
    Method("ditto",   "star", "model",     "size",   "no",  "given", "one",   "none",     "joint",     "sgd",  "no",  "no", algorithm="second-model"),
    Method("apfl",    "star", "model",     "equal",  "no",  "given", "one",   "none",     "joint",     "sgd",  "no",  "no", algorithm="interpolation"),
    Method("pfedme",  "star", "model",     "equal",  "no",  "given", "one",   "none",     "joint",     "sgd",  "no",  "no", algorithm="moreau-envelope"),
    Method("per-fedavg", "star", "model",  "equal",  "no",  "given", "one",   "none",     "joint",     "sgd",  "no",  "no", algorithm="meta-step", personal="one-step"),
    Method("feddbe",  "star", "model",     "size",   "no",  "given", "one",   "none",     "joint",     "sgd",  "no",  "no", algorithm="debiased"),
    Method("gradient-tracking", "ring", "model", "half", "no", "given", "one", "constant", "joint",    "sgd",  "no",  "no", algorithm="tracked-gradient"),
    Method("fedprox", "star", "model",     "size",   "no",  "given", "one",   "none",     "joint",     "sgd",  "no",  "no"),
    Method("fedavg-ft", "star", "model",   "size",   "no",  "given", "one",   "none",     "joint",     "sgd",  "no",  "no", personal="fine-tune"),
    Method("fedbn",   "star", "model",     "size",   "no",  "given", "one",   "none",     "joint",     "sgd",  "no",  "no", private="norm"),
    Method("fedper",  "star", "extractor", "size",   "no",  "given", "one",   "none",     "joint",     "sgd",  "no",  "no"),
    Method("lg-fedavg", "star", "head",    "size",   "no",  "given", "one",   "none",     "joint",     "sgd",  "no",  "no"),
    Method("fedbabu", "star", "extractor", "size",   "no",  "given", "one",   "none",     "extractor", "sgd",  "no",  "no", head="random", personal="fine-tune"),
    Method("fedetf",  "star", "extractor", "size",   "no",  "given", "one",   "none",     "extractor", "sgd",  "no",  "no", head="tight-frame"),
    Method("d-psgd",  "ring", "model",     "metropolis", "no", "given", "one", "none",    "joint",     "sgd",  "no",  "no"),
)
# fmt: on
METHODS: Mapping[str, Method] = {row.name: replace(row, base=row.name) for row in _ROWS}
# What is trained where no method is named: in a simulation by the task, since a frame has one vector for each class; on a
# real ring the method that sends nothing but extractors (with frame, an average of class shares goes with them).
DEFAULT_METHOD = "frame"
METHOD_WITHOUT_CLASSES = "fibfl++"
RING_METHOD = "fibfl++"
# What a real ring takes that bears liars among its members, where its file names no method: the cheapest of those that keep
# honest accuracy, measured in docs/robustness.md. After the warm-up every extractor comes straight from its origin.
ROBUST_METHOD = "fibfl++:topology=complete,weights=metropolis,retention=none,gate=no,order=given,combine=clipped"
GRAPH_METHOD = "d-psgd"  # by which topologies are compared
# Topologies with neighbours other than those of a ring; weights there are Metropolis-Hastings.
GRAPHS: tuple[Topology, ...] = ("complete", "torus", "exponential", "one-peer-exponential", "regular", "edges")
_WITH_RING: tuple[Topology, ...] = ("complete", "exponential")  # graphs that have the links of the ring
PAPER_METHODS = ("local", "fedavg", "fedrep", "rdfl", "fibfl", "fibfl+", "fibfl++")  # its six, and training alone
LEADING_METHODS = (*PAPER_METHODS, "frame")  # whose columns the README shows

# The numbers that differ between methods; all others are the defaults of `Hyper`.
_BASELINE = {"rate": 0.01, "epochs": 5}
_ENVELOPE = {"attraction": 15.0}
_THIRDS = {"retention": 1 / 3}  # on a ring with equal neighbours: Metropolis weights, doubly stochastic
_FIBFL = {"rate": 0.01, "head_epochs": 1, "extractor_epochs": 20}
_FRAME: Mapping[str, float | str] = {
    "rate": 0.001, "schedule": "cosine", "weight_decay": 0.3, "extractor_epochs": 10, "local_steps": 200,
    "local_steps_for": "different", "personal_epochs": 10, "personal_share": "auto",
}  # fmt: skip
PAPER_NUMBERS: Mapping[str, Mapping[str, float | str]] = {
    "local": _BASELINE,
    "fedavg": _BASELINE,
    "fedrep": {"rate": 0.01, "head_epochs": 2, "extractor_epochs": 2},
    "rdfl": _BASELINE,
    "fibfl": _FIBFL,
    "fibfl+": _FIBFL,
    "fibfl++": _FIBFL,
    "frame": _FRAME,
    "scaffold": _BASELINE,
    "fednova": _BASELINE,
    "ditto": _BASELINE,
    "apfl": _BASELINE,
    "pfedme": _BASELINE | _ENVELOPE,
    "per-fedavg": _BASELINE,
    "feddbe": _BASELINE,
    "gradient-tracking": _BASELINE | _THIRDS,
    "fedprox": _BASELINE | {"proximal": 0.01},
    "fedavg-ft": _BASELINE | {"personal_epochs": 5},
    "fedbn": _BASELINE,
    "fedper": _BASELINE,
    "lg-fedavg": _BASELINE,
    "fedbabu": {"rate": 0.01, "extractor_epochs": 5, "personal_epochs": 5},
    "fedetf": {"rate": 0.01, "extractor_epochs": 5},
    "d-psgd": _BASELINE,
}
# Chosen on validation data, the same tries for every method of the comparison: docs/methods.md. The others have the
# numbers of the one that trains as they do.
_LIKE_FEDAVG: dict[str, float | str] = {"rate": 0.01, "schedule": "cosine", "epochs": 10}
_LIKE_FEDREP: dict[str, float | str] = {"rate": 0.01, "schedule": "cosine", "local_steps": 300, "weight_decay": 0.03}
_LIKE_RDFL = _LIKE_FEDREP | {"epochs": 10}
_LIKE_FIBFL: dict[str, float | str] = {
    "rate": 0.001, "schedule": "cosine", "local_steps": 300, "weight_decay": 0.3,
    "head_epochs": 1, "extractor_epochs": 10,
}  # fmt: skip
RECOMMENDED_NUMBERS: Mapping[str, Mapping[str, float | str]] = {
    "local": {"rate": 0.01, "epochs": 10},
    "fedavg": _LIKE_FEDAVG,
    "fedrep": _LIKE_FEDREP | {"head_epochs": 5, "extractor_epochs": 5},
    "rdfl": _LIKE_RDFL,
    "fibfl": _LIKE_FIBFL,
    "fibfl+": _LIKE_FIBFL,
    "fibfl++": _LIKE_FIBFL,
    "frame": _FRAME,
    "scaffold": _LIKE_FEDAVG,
    "fednova": _LIKE_FEDAVG,
    "ditto": _LIKE_FEDAVG,
    "apfl": _LIKE_FEDAVG,
    "pfedme": _LIKE_FEDAVG | _ENVELOPE,
    "per-fedavg": _LIKE_FEDAVG,
    "feddbe": _LIKE_FEDAVG,
    "gradient-tracking": _LIKE_RDFL | _THIRDS,
    "fedprox": _LIKE_FEDAVG | {"proximal": 0.01},
    "fedavg-ft": _LIKE_FEDAVG | {"personal_epochs": 5},
    "fedbn": _LIKE_FEDAVG,
    "fedper": _LIKE_FEDREP | {"epochs": 10},
    "lg-fedavg": _LIKE_FEDREP | {"epochs": 10},
    "fedbabu": _LIKE_FEDREP | {"extractor_epochs": 10, "personal_epochs": 5},
    "fedetf": _LIKE_FEDREP | {"extractor_epochs": 10},
    "d-psgd": _LIKE_RDFL,
}
# Recommended epochs of a row that trains otherwise than the row it was made from, by its training and by the optimiser of
# that row: as the methods of the table that train so. Only such rows need them: what identifies a run has all numbers.
RECOMMENDED_EPOCHS: Mapping[tuple[str, str], Mapping[str, float | str]] = {
    ("joint", "sgd"): {"epochs": 10},
    ("joint", "adam"): {"epochs": 10},
    ("two-phase", "sgd"): {"head_epochs": 5, "extractor_epochs": 5},
    ("two-phase", "adam"): {"head_epochs": 1, "extractor_epochs": 10},
    ("extractor", "sgd"): {"extractor_epochs": 10},
    ("extractor", "adam"): {"extractor_epochs": 10},
}
# The published figures of rdfl are those of a ring that never mixes.
PUBLISHED_NUMBERS: Mapping[str, Mapping[str, float | str]] = {"rdfl": {"retention": 1.0}}


# Columns added since version 0.1 and the value that leaves everything as it was. It is left out of what identifies a
# run (keys of stored cells, checkpoints), so that runs made before the column existed are still found; never change one.
NEUTRAL_COLUMNS: Mapping[str, str] = {
    "private": "none", "head": "learnt", "algorithm": "plain", "personal": "none",
    "combine": "mean",
}  # fmt: skip


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


def stable_columns(row: Method) -> dict[str, str]:
    """The columns that identify a run, by name."""
    values = columns(row)
    return {column: value for column, value in values.items() if NEUTRAL_COLUMNS.get(column) != value}


# Words that stand for several rows, where a method is asked for.
WORDS: Mapping[str, tuple[str, ...]] = {"all": tuple(METHODS), "paper": PAPER_METHODS}


def spelled_out(asked: Iterable[MethodOrName]) -> tuple[MethodOrName, ...]:
    """What was asked for, with `all` and `paper` replaced by the rows that they stand for, each row once."""
    found: list[MethodOrName] = []
    for each in asked:
        rows = cast("tuple[MethodOrName, ...]", WORDS.get(each, (each,)) if isinstance(each, str) else (each,))
        found += [row for row in rows if row not in found]
    return tuple(found)


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


def check_used(row: Method, stated: Iterable[str]) -> Method:
    """The row itself, if the columns that were stated have an effect; those that a row inherits may have none."""
    for column in (each for each in stated if each in _USED_BY):
        value, (usual, topologies, words) = getattr(row, column), _USED_BY[column]
        averaging = column == "order" and row.warmup == "yes"  # which is done round a ring
        if value != usual and row.topology not in topologies and not averaging:
            raise BadInput(
                f"method {row.name!r}: {column} = {value!r} has no effect with topology = {row.topology!r}; it requires "
                f"topology = {words}"
            )
    return row


def own_columns(row: Method) -> list[str]:
    """The columns in which a row of the user's own differs from the row that it was made from."""
    base = METHODS.get(row.base)
    return [column for column in COLUMNS if base is not None and getattr(row, column) != getattr(base, column)]


def own_algorithm(row: Method) -> bool:
    """Whether the algorithm is code of the user's own: an object, or MODULE:CLASS."""
    return not isinstance(row.algorithm, str) or ":" in row.algorithm


def _unknown_column(name: str, column: str, change: str) -> BadInput:
    """The nearest column; a number such as the learning rate is a setting, and is given elsewhere."""
    if any(column in numbers for numbers in (*PAPER_NUMBERS.values(), *RECOMMENDED_NUMBERS.values())):
        return BadInput(f"method {name!r}: {column!r} is a setting, not a column; use --set {change}")
    found = unknown(f"method {name!r}: column", column, COLUMNS)
    return BadInput(f"{found}; settings are changed with --set")


def _unknown_method(name: str) -> BadInput:
    """The nearest name, or where to find all of them: there are too many for one sentence."""
    near = suggestion(name, [*METHODS, *WORDS])
    return BadInput(f"method {name!r} is unknown{near}; firma methods lists all {len(METHODS)}")


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
            f"{what}: persistent = 'yes' cannot be combined with algorithm = {row.algorithm!r}, whose second model has a "
            "fresh optimiser in each round"
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
            f"{what}: head = {row.head!r} cannot be combined with training = {row.training!r}; a fixed head ('random' or "
            "'tight-frame') requires training = 'extractor', and vice versa"
        )
    if row.head != "learnt" and row.shares != "extractor":
        raise BadInput(f"{what}: head = {row.head!r} requires shares = 'extractor'; the head is fixed, not shared")


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


def columns(row: Method) -> dict[str, str]:
    """What the method does, without its name and its base: equal columns and numbers give equal figures."""
    found = {field.name: getattr(row, field.name) for field in fields(row) if field.name not in ("name", "base")}
    return {name: value if isinstance(value, str) else value.identity for name, value in found.items()}


def base_name(name: str) -> str:
    """The name of the row that a changed row such as `fibfl++:order=given` was made from."""
    return name.partition(":")[0]


def in_table(row: Method) -> bool:
    """Whether the row is what its name says: a row of the table, or a changed one such as `fibfl++:order=given`."""
    try:
        return lookup(row.name) == row
    except BadInput:
        return False


def ablations(full: str | Method, base: str | Method) -> Iterator[Method]:
    """`full` with one column set back to the value in `base`, for each column in which the two differ.

    Both are rows, of the table or of your own, or names of rows.
    """
    row, other = (check(each) if isinstance(each, Method) else lookup(each) for each in (full, base))
    for column, value in columns(other).items():
        if getattr(row, column) != value:
            yield check(replace(row, name=_changed_name(row.name, column, value), **{column: value}))  # type: ignore[arg-type]


def _changed_name(name: str, column: str, value: str) -> str:
    """The name of a row with one more column changed; a column that the name states already is replaced."""
    base, colon, changes = name.partition(":")
    kept = [each for each in _split(changes) if each.partition("=")[0] != column] if colon else []
    return f"{base}:{','.join([*kept, f'{column}={value}'])}"


def properties(row: Method) -> dict[str, bool]:
    """The properties by which the paper compares methods, read off the columns."""
    core = {
        "no central server": row.topology != "star",
        "private head": row.shares not in ("model", "head"),
        "ring topology": row.topology == "ring",
        "fibonacci weights": row.weights == "golden",
    }
    return core | {
        "accuracy gating": row.gate == "yes",
        "2-opt ring order": row.order == "2-opt",
        "multi-pass coverage": row.passes == "cover",
        "cosine retention": row.retention == "cosine",
        "two-phase training": row.training == "two-phase",
        "persistent optimiser": row.persistent == "yes",
        "warm-up": row.warmup == "yes",
        "all four core": all(core.values()),
    }
