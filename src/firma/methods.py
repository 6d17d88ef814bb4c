"""The design table: a method is a row of columns, and the code branches on columns, never on names.

This module imports the standard library only, so that the table can be read without loading anything else.
"""

import re
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
    Method("frame",   "all-reduce", "extractor", "size", "no", "given", "one", "none", "extractor", "adam", "yes", "no", head="tight-frame", personal="tune-head"),
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
DEFAULT_METHOD = "fibfl++"
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
    "rate": 0.001,
    "extractor_epochs": 10,
    "personal_epochs": 10,
    "personal_share": "auto",
}
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
# Chosen on validation data, six tries for every method: docs/methods.md.
_RECOMMENDED_FIBFL = {"rate": 0.001, "head_epochs": 1, "extractor_epochs": 10}
RECOMMENDED_NUMBERS: Mapping[str, Mapping[str, float | str]] = {
    "local": {"rate": 0.01, "epochs": 10},
    "fedavg": {"rate": 0.01, "epochs": 10},
    "fedrep": {"rate": 0.01, "head_epochs": 5, "extractor_epochs": 5},
    "rdfl": {"rate": 0.01, "epochs": 10},
    "fibfl": _RECOMMENDED_FIBFL,
    "fibfl+": _RECOMMENDED_FIBFL,
    "fibfl++": _RECOMMENDED_FIBFL,
    "frame": _FRAME,
    "scaffold": {"rate": 0.01, "epochs": 10},
    "fednova": {"rate": 0.01, "epochs": 10},
    "ditto": {"rate": 0.01, "epochs": 10},
    "apfl": {"rate": 0.01, "epochs": 10},
    "pfedme": {"rate": 0.01, "epochs": 10} | _ENVELOPE,
    "per-fedavg": {"rate": 0.01, "epochs": 10},
    "feddbe": {"rate": 0.01, "epochs": 10},
    "gradient-tracking": {"rate": 0.01, "epochs": 10} | _THIRDS,
    "fedprox": {"rate": 0.01, "epochs": 10, "proximal": 0.01},
    "fedavg-ft": {"rate": 0.01, "epochs": 10, "personal_epochs": 5},
    "fedbn": {"rate": 0.01, "epochs": 10},
    "fedper": {"rate": 0.01, "epochs": 10},
    "lg-fedavg": {"rate": 0.01, "epochs": 10},
    "fedbabu": {"rate": 0.01, "extractor_epochs": 10, "personal_epochs": 5},
    "fedetf": {"rate": 0.01, "extractor_epochs": 10},
    "d-psgd": {"rate": 0.01, "epochs": 10},
}
# The published figures of rdfl are those of a ring that never mixes.
PUBLISHED_NUMBERS: Mapping[str, Mapping[str, float | str]] = {"rdfl": {"retention": 1.0}}


# Columns added since version 0.1 and the value that leaves everything as it was. It is left out of what identifies a
# run (keys of stored cells, checkpoints), so that runs made before the column existed are still found; never change one.
NEUTRAL_COLUMNS: Mapping[str, str] = {
    "private": "none", "head": "learnt", "algorithm": "plain", "personal": "none",
    "combine": "mean",
}  # fmt: skip


_COUNTING_STEPS = ("control-variates", "normalised-steps", "tracked-gradient")
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
    row = METHODS[base]
    for change in _split(changes) if colon else ():
        column, _, value = change.partition("=")
        if column not in COLUMNS:
            raise unknown(f"method {name!r}: column", column, COLUMNS)
        row = replace(row, **{column: value})  # type: ignore[arg-type]  # check() compares it with COLUMNS
    return check(replace(row, name=name))


def _split(changes: str) -> list[str]:
    """Changes of columns, which commas separate; not those between parentheses, as in algorithm=mine:Mine(a=1,b=2)."""
    return re.split(r",(?![^(]*\))", changes)


def own_algorithm(row: Method) -> bool:
    """Whether the algorithm is code of the user's own: an object, or MODULE:CLASS."""
    return not isinstance(row.algorithm, str) or ":" in row.algorithm


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
            choice = f"must be one of {', '.join(allowed)}{suggestion(value, allowed)}"
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
        raise BadInput(
            f"{what}: weights = {row.weights!r}, but topology = {row.topology!r} requires weights = 'metropolis'"
        )
    if row.weights == "metropolis":
        _check_metropolis(row, what)
    if row.order == "bandwidth" and row.topology not in ("ring", "all-reduce"):
        raise BadInput(f"{what}: order = 'bandwidth' requires topology = 'ring' or 'all-reduce'")
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
            f"topology = {row.topology!r} would never bring them together; use 'star' or 'all-reduce'"
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
            joint = "," if ":" in row.name else ":"
            yield check(replace(row, name=f"{row.name}{joint}{column}={value}", **{column: value}))  # type: ignore[arg-type]


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


@dataclass(frozen=True, slots=True)
class About:
    """A method for people: what it does, its equation in one line, and who introduced it."""

    does: str
    equation: str
    reference: str


ABOUT: Mapping[str, About] = {
    "local": About("every client trains alone", "w_i ← w_i - η ∇F_i(w_i)", "the baseline of every comparison"),
    "fedavg": About(
        "the server averages the models by size",
        "w ← Σ_i (n_i / n) w_i",
        "McMahan et al. (AISTATS 2017): Communication-Efficient Learning of Deep Networks from Decentralized Data",
    ),
    "fedprox": About(
        "fedavg, with local training held near the server's model",
        "min F_i(w) + (μ/2) ‖w - w_server‖²",
        "Li et al. (MLSys 2020): Federated Optimization in Heterogeneous Networks",
    ),
    "scaffold": About(
        "fedavg, with control variates against client drift",
        "g ← ∇F_i(y) - c_i + c;  c_i ← c_i - c + (x - y_i) / (Kη)",
        "Karimireddy et al. (ICML 2020): SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
    ),
    "fednova": About(
        "fedavg of updates divided by their number of local steps",
        "w ← w - τ_eff Σ_i (n_i / n) (w - w_i) / τ_i",
        "Wang et al. (NeurIPS 2020): Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
    ),
    "fedavg-ft": About(
        "fedavg; each client fine-tunes a copy",
        "w_i = the server's w after a few epochs on F_i",
        "Yu et al. (2020): Salvaging Federated Learning by Local Adaptation",
    ),
    "fedbn": About(
        "fedavg, with private normalisation layers",
        "w ← Σ_i (n_i / n) w_i for all parameters but those of normalisation layers",
        "Li et al. (ICLR 2021): FedBN: Federated Learning on Non-IID Features via Local Batch Normalization",
    ),
    "fedper": About(
        "private heads, trained jointly with the extractor",
        "θ ← Σ_i (n_i / n) θ_i;  (θ_i, h_i) ← (θ, h_i) - η ∇F_i(θ, h_i)",
        "Arivazhagan et al. (2019): Federated Learning with Personalization Layers",
    ),
    "fedrep": About(
        "private heads, trained before the extractor",
        "h_i ← argmin F_i(θ, h), then θ_i ← θ - η ∇_θ F_i(θ, h_i);  θ ← Σ_i (n_i / n) θ_i",
        "Collins et al. (ICML 2021): Exploiting Shared Representations for Personalized Federated Learning",
    ),
    "lg-fedavg": About(
        "private extractors under a common head",
        "h ← Σ_i (n_i / n) h_i;  θ_i stays with the client",
        "Liang et al. (2020): Think Locally, Act Globally: Federated Learning with Local and Global Representations",
    ),
    "fedbabu": About(
        "a fixed random head; each client fine-tunes a copy",
        "θ ← Σ_i (n_i / n) (θ - η ∇_θ F_i(θ, h_0));  w_i = fine-tuned (θ, h_0)",
        "Oh et al. (ICLR 2022): FedBABU: Toward Enhanced Representation for Federated Image Classification",
    ),
    "fedetf": About(
        "a fixed head of equal angles between classes",
        "h_k · h_l = -1/(K-1), ‖h_k‖ = 1;  b_i = log class shares;  θ ← Σ_i (n_i / n) θ_i",
        "Li et al. (ICCV 2023): No Fear of Classifier Biases: Neural Collapse Inspired Federated Learning",
    ),
    "ditto": About(
        "fedavg, and a private model held near the server's",
        "v_i ← v_i - η (∇F_i(v_i) + λ (v_i - w))",
        "Li et al. (ICML 2021): Ditto: Fair and Robust Federated Learning Through Personalization",
    ),
    "apfl": About(
        "a private model mixed with the server's, at a learnt ratio",
        "v̄_i = α_i v_i + (1 - α_i) w_i;  α_i ← α_i - η ⟨v_i - w_i, ∇F_i(v̄_i)⟩",
        "Deng et al. (2020): Adaptive Personalized Federated Learning",
    ),
    "pfedme": About(
        "private models through Moreau envelopes of the losses",
        "θ_i(w) = argmin F_i(θ) + (λ/2) ‖θ - w‖²;  w_i ← w_i - ηλ (w_i - θ_i(w_i))",
        "T Dinh et al. (NeurIPS 2020): Personalized Federated Learning with Moreau Envelopes",
    ),
    "per-fedavg": About(
        "a start from which one step of each client goes far (MAML)",
        "w ← w - β Σ_i (I - α ∇²F_i(w)) ∇F_i(w - α ∇F_i(w))",
        "Fallah et al. (NeurIPS 2020): Personalized Federated Learning with Theoretical Guarantees",
    ),
    "feddbe": About(
        "each client's mean of the features stays private",
        "ℓ(h(f_θ(x) + b_i), y) + κ/(2d) ‖m_i - z‖², m_i the mean of f_θ(x), z that of all clients",
        "Zhang et al. (NeurIPS 2023): Eliminating Domain Bias for Federated Learning in Representation Space",
    ),
    "rdfl": About(
        "the plain ring: a quarter of each neighbour's model",
        "w_i ← γ w_i + (1 - γ) (w_left + w_right) / 2",
        "the FIRMA paper's baseline: see CITATION.cff",
    ),
    "fibfl": About(
        "ring with golden-ratio weights and private heads",
        "θ_i ← γ θ_i + (1 - γ) (θ_left / φ + θ_right / φ²)",
        "the FIRMA paper, Algorithm 1: see CITATION.cff",
    ),
    "fibfl+": About(
        "fibfl, in which inaccurate neighbours lose weight",
        "weights of the neighbours: half golden, half by accuracies of at least τ (Eqs. 6 and 7)",
        "the FIRMA paper, Algorithm 2: see CITATION.cff",
    ),
    "fibfl++": About(
        "fibfl+ on an ordered ring, with ⌈N/2⌉ passes per round",
        "θ ← M^⌈N/2⌉ θ, own weight per pass γ_r^(1/⌈N/2⌉), γ_r a cosine from 0.4 to 0.05 (Eqs. 9 and 10)",
        "the FIRMA paper, Algorithm 3: see CITATION.cff",
    ),
    "frame": About(
        "fedetf on a ring; heads are tuned where clients differ",
        "θ ← Σ_i (n_i / n) θ_i under a fixed frame;  h_i = h_frame + s_i (h_tuned - h_frame), s_i = ½ ‖q_i - q‖₁",
        "this project: parts by Li et al. (ICCV 2023), Zhang et al. (ICML 2022) and Wortsman et al. (CVPR 2022)",
    ),
    "d-psgd": About(
        "gossip: an average with the neighbours after each round",
        "w_i ← Σ_j W_ij w_j after local training;  W_ij = 1 / (1 + max(d_i, d_j))",
        "Lian et al. (NeurIPS 2017): Can Decentralized Algorithms Outperform Centralized Algorithms?",
    ),
    "gradient-tracking": About(
        "gossip that follows the gradient of the whole federation",
        "y_i ← y_i - η (∇F_i(y_i) + c_i), K times;  x_i ← Σ_j W_ij y_j;  c_i ← c_i - z_i + Σ_j W_ij z_j",
        "Liu et al. (Optim. Methods Softw. 2024): Decentralized Gradient Tracking with Local Steps",
    ),
}


# What an algorithm keeps at the client that no message holds, for people.
_KEPT = {
    "control-variates": "control variate",
    "second-model": "second model",
    "interpolation": "second model",
    "moreau-envelope": "personal model",
    "debiased": "mean of features",
}


def group(row: Method) -> tuple[str, str]:
    """Under which headings a method is listed: whether it needs a server, and what it shares."""
    server = {"none": "Without communication", "star": "With a server"}.get(row.topology, "Without a server")
    shares = {
        "nothing": "",
        "model": "sharing whole models",
        "extractor": "sharing extractors; heads are private",
        "head": "sharing heads; extractors are private",
    }
    return server, shares[row.shares]


def private_parts(row: Method) -> str:
    """What never leaves a client, for people; empty if it sends all that it has."""
    found = {"extractor": ["head"], "head": ["extractor"], "nothing": ["everything"]}.get(row.shares, [])
    if row.private == "norm":
        found = [*found, "normalisation layers"]
    if row.personal != "none":
        found = [*found, "personal head" if row.personal == "tune-head" else "personal model"]
    if isinstance(row.algorithm, str) and row.algorithm in _KEPT:
        found = [*found, _KEPT[row.algorithm]]
    return ", ".join(found)
