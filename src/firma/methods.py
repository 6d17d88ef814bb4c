"""The design table: a method is a row of columns, and the code branches on columns, never on names.

This module imports the standard library only, so that the table can be read without loading anything else.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast, get_args

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
# The published figures of rdfl are those of a ring that never mixes, those of fibfl and fibfl+ of one that mixes less
# than the paper says.
PUBLISHED_NUMBERS: Mapping[str, Mapping[str, float | str]] = {
    "rdfl": {"retention": 1.0}, "fibfl": {"retention": 0.7}, "fibfl+": {"retention": 0.7},
}  # fmt: skip


# Columns added since version 0.1 and the value that leaves everything as it was. It is left out of what identifies a
# run (keys of stored cells, checkpoints), so that runs made before the column existed are still found; never change one.
NEUTRAL_COLUMNS: Mapping[str, str] = {
    "private": "none", "head": "learnt", "algorithm": "plain", "personal": "none",
    "combine": "mean",
}  # fmt: skip


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


def own_algorithm(row: Method) -> bool:
    """Whether the algorithm is code of the user's own: an object, or MODULE:CLASS."""
    return not isinstance(row.algorithm, str) or ":" in row.algorithm


def columns(row: Method) -> dict[str, str]:
    """What the method does, without its name and its base: equal columns and numbers give equal figures."""
    found = {field.name: getattr(row, field.name) for field in fields(row) if field.name not in ("name", "base")}
    return {name: value if isinstance(value, str) else value.identity for name, value in found.items()}


def base_name(name: str) -> str:
    """The name of the row that a changed row such as `fibfl++:order=given` was made from."""
    return name.partition(":")[0]


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
