"""The numbers and switches that `--set` changes, their allowed values, and the presets that fill them in."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from firma.errors import BadInput, suggestion, unknown
from firma.methods import (
    METHODS,
    PAPER_NUMBERS,
    PUBLISHED_NUMBERS,
    RECOMMENDED_EPOCHS,
    RECOMMENDED_NUMBERS,
    Method,
    base_name,
)

Preset = Literal["recommended", "paper", "published"]
PRESETS: tuple[Preset, ...] = ("recommended", "paper", "published")
EngineName = Literal["simulation", "ray"]
BackendName = Literal["auto", "autograd"]
Wire = Literal["float32", "bfloat16", "int8"]
DEVICES = ("cpu", "cuda", "mps", "xpu")  # the usual kinds of torch devices, to suggest and to complete
Standardise = Literal["none", "per-client", "constants"]
AttackName = Literal["none", "sign-flip", "noise", "scaled", "label-flip", "lying-accuracy"]


def _none_word(value: object) -> object:
    return None if isinstance(value, str) and value.lower() in ("none", "auto") else value


LARGEST = 2**31 - 1  # of a size: larger ones overflow the integers of torch and of the compiled kernels
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1, le=LARGEST)]
Share = Annotated[float, Field(ge=0, le=1)]
Optional = BeforeValidator(_none_word)


class Readable(BaseModel):
    """Settings whose constructor raises `BadInput`, in one sentence, instead of pydantic's report."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    if not TYPE_CHECKING:  # type checkers and editors see the fields as parameters

        def __init__(self, **values: Any) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise BadInput(sentence(error, allowed=type(self).model_fields)) from None


class Hyper(Readable):
    """The hyperparameters of a method; `--set field=value` changes any of them."""

    rate: float = Field(0.01, gt=0, allow_inf_nan=False, description="learning rate")
    momentum: Share = Field(0.9, description="momentum of SGD; Adam ignores it")
    schedule: Literal["constant", "cosine"] = Field(
        "constant", description="learning rate over rounds: constant, or a half cosine from the rate to 0"
    )
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.0, description="decoupled weight decay λ: each step first multiplies what it trains by 1 - rate · λ"
    )
    batch: Positive = Field(64, description="batch size, in samples")
    epochs: Count = Field(5, description="epochs per round of methods that train the whole model jointly (E)")
    local_steps: Annotated[Positive | None, Optional] = Field(
        None, description="batches after which each phase of a round's local training ends; none: whole epochs"
    )
    local_steps_for: Literal["all", "different"] = Field(
        "all",
        description="all: local_steps is the same for all clients; different: where class shares travel "
        "(personal_share = auto), it is divided by how far the client's are from the federation's (0 to 1), so that "
        "clients that are like the others train longer",
    )
    head_epochs: Count = Field(1, description="epochs per round in which only the head is trained (Eh)")
    extractor_epochs: Count = Field(20, description="epochs per round in which only the extractor is trained (Ee)")
    threshold: Share = Field(0.35, description="training accuracy below which the gate excludes a neighbour (τ)")
    posterior: Share = Field(0.5, description="weight of the gated accuracies relative to the golden pair, Eq. 7")
    retention: Share = Field(0.5, description="share of its own parameters that a client keeps per round (γ)")
    retention_start: Share = Field(0.4, description="γ in the first round of the cosine schedule, Eq. 10")
    retention_end: Share = Field(0.05, description="γ in the last round of the cosine schedule, Eq. 10")
    warmup_rounds: Annotated[Count | None, Optional] = Field(
        None, description="number of warm-up rounds; none: one sixth of all rounds"
    )
    warmup_shares: Literal["extractor", "model"] = Field(
        "extractor",
        description="what the warm-up averages: extractor (on the ring itself) or model (at a server)",
    )
    proximal: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.0, description="weight μ of the proximal term of FedProx; 0: no proximal term"
    )
    clip: Annotated[Annotated[float, Field(gt=0, allow_inf_nan=False)] | None, Optional] = Field(
        None, description="maximum norm of a batch's gradient; none: no clipping"
    )
    personal_epochs: Count = Field(3, description="epochs in which a client makes the mixed model its own")
    personal_rate: float = Field(
        0.01, gt=0, allow_inf_nan=False, description="learning rate of these epochs, which are trained by SGD"
    )
    personal_share: Share | Literal["auto"] = Field(
        1.0,
        description="how far the personal model goes from the mixed model (0) to the tuned one (1); auto: as far as "
        "the client's class shares are from the federation's, which are then averaged with the parameters",
    )
    head_bias: Literal["prior", "zero"] = Field(
        "prior", description="bias of a head that is a frame: the logarithm of the client's class shares, or zero"
    )
    attraction: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.1, description="weight λ of the squared distance between a personal model and the shared one"
    )
    interpolation: Share = Field(0.5, description="share α of the client's own model in its personal one, at first")
    interpolation_learnt: Literal["no", "yes"] = Field("yes", description="whether each client learns its own α")
    inner_steps: Positive = Field(5, description="gradient steps to a personal model, per batch (K)")
    inner_rate: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.01, description="learning rate of the steps from the shared model to a personal one"
    )
    server_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        1.0, description="how far the shared model moves to the clients' mean, where the method has such a rate (β)"
    )
    hessian: Literal["none", "difference"] = Field(
        "none", description="second derivatives of a meta step: none, or by differences of gradients"
    )
    mean_penalty: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        50.0, description="weight κ of the distance between the mean of a client's features and that of all clients"
    )
    mean_momentum: Share = Field(1.0, description="weight of the current batch in that mean of a client's features")
    feature_bias: Literal["no", "yes"] = Field("yes", description="whether each client has a private bias of features")
    degree: Positive = Field(4, description="number of neighbours of each client on a random regular graph")
    byzantine: Count = Field(
        1, description="number f of dishonest clients that a robust combine withstands, among all that it combines"
    )
    clip_radius: Annotated[Annotated[float, Field(gt=0)] | None, Optional] = Field(
        None,
        description="combine = clipped: largest distance from its own parameters at which a client takes another's in "
        "full (τ); none: the distance of the farthest but f",
    )
    hidden: Positive = Field(256, description="width of the hidden layers of the built-in mlp")
    embedding: Positive = Field(128, description="number of features that the extractor of the built-in mlp computes")
    initial: Literal["shared", "per-client"] = Field(
        "shared", description="shared: all clients start from the same weights; per-client: each starts from its own"
    )
    ring_cost: Literal["cosine", "dot"] = Field(
        "cosine", description="similarity of two clients' class proportions, Eq. 8: cosine or dot"
    )
    reorder_every: Count = Field(
        0, description="2-opt orders the ring anew every so many rounds, by the data of that round; 0: never"
    )
    reorder_when: Annotated[Share | None, Optional] = Field(
        None,
        description="2-opt orders the ring anew when a client's class proportions have moved by more than this since "
        "it was last ordered (total variation distance, 0 to 1); none: never",
    )


class Split(Readable):
    """How a data set is split among clients; the same for all methods of a comparison."""

    split_seed: Annotated[Count | None, Optional] = Field(
        42, description="seed of the split; none: the seed of the run"
    )
    tests: Literal["matched", "independent"] = Field(
        "matched",
        description="test data: matched to the class proportions of the training data, or an independent draw",
    )
    scored_on: Literal["test", "validation"] = Field(
        "test", description="test data, or validation: a fifth of the training data in their place, to choose settings"
    )
    quota: Literal["fair", "sequential", "reduced"] = Field(
        "fair",
        description="label skew: fair: all clients get equally many samples; sequential: first come, first served, "
        "with a budget of 1/N of the samples for each of N clients; reduced: the same with 2/(K+1) of that budget",
    )
    min_samples: Positive = Field(10, description="clients with fewer training samples are left out")
    standardise: Standardise = Field(
        "none",
        description="none: inputs as they are; per-client: mean 0 and deviation 1 for each feature of a table, or each "
        "channel of images, by the client's own training data; constants: those that are usual for a built-in data "
        "set, mnist and fashion-mnist to [-1, 1], cifar10 by the mean and deviation of its channels; other data as "
        "they are",
    )


PAPER_SYMBOLS: Mapping[str, str] = {
    "tau": "threshold",
    "gamma": "retention",
    "gamma_start": "retention_start",
    "gamma_end": "retention_end",
    "lr": "rate",
    "E": "epochs",
    "Eh": "head_epochs",
    "Ee": "extractor_epochs",
}
_PUBLISHED_HYPER = {"warmup_shares": "model", "initial": "per-client", "ring_cost": "dot"}
_PUBLISHED_SPLIT = {"tests": "independent", "quota": "reduced", "min_samples": 64, "standardise": "constants"}


# Settings added since version 0.1 and the value that leaves everything as it was. It is left out of what identifies a
# run (keys of stored cells, checkpoints), so that runs made before the setting existed are still found; never change
# one, even when the default changes.
NEUTRAL_SETTINGS: Mapping[str, Any] = {
    "proximal": 0.0, "clip": None, "standardise": "none", "schedule": "constant", "weight_decay": 0.0,
    "personal_epochs": 3, "personal_rate": 0.01, "personal_share": 1.0, "head_bias": "prior",
    "attraction": 0.1, "interpolation": 0.5, "interpolation_learnt": "yes", "inner_steps": 5, "inner_rate": 0.01,
    "server_rate": 1.0, "hessian": "none", "mean_penalty": 50.0, "mean_momentum": 1.0, "feature_bias": "yes",
    "local_steps": None, "local_steps_for": "all", "degree": 4,
    "byzantine": 1, "clip_radius": None,
    "reorder_every": 0, "reorder_when": None,
}  # fmt: skip


def budget_is_reduced(scenario: str) -> bool:
    """Whether `quota = reduced` splits otherwise than `sequential`: under label skew with K ≥ 2 only."""
    found = re.fullmatch(r"skew-(\d+)", scenario)
    return found is not None and int(found[1]) > 1


def stable_settings(values: Hyper | Split) -> dict[str, Any]:
    """The settings that identify a run, by name."""
    found = values.model_dump()
    return {key: value for key, value in found.items() if key not in NEUTRAL_SETTINGS or value != NEUTRAL_SETTINGS[key]}


def sentence(error: ValidationError, field: str = "", allowed: Iterable[str] = ()) -> str:
    """The first problem that pydantic found, as one sentence with field, value and what is allowed.

    `allowed` are the names of the fields, from which the nearest to an unknown one is suggested.
    """
    first = error.errors()[0]
    field = field or ".".join(str(part) for part in first["loc"] if isinstance(part, int) or part.isidentifier())
    if first["type"] == "extra_forbidden" and (names := list(allowed)):
        return str(unknown("setting", field, names))
    hint = ""
    if first["type"] == "literal_error":
        hint = suggestion(first["input"], re.findall(r"'([^']*)'", first["ctx"]["expected"]))
    problem = first["msg"].partition(", unable to")[0].replace("Input should be", "must be")
    for wordy, brief in (("greater than or equal to", "at least"), ("less than or equal to", "at most")):
        problem = problem.replace(wordy, brief)
    return f"{field} = {first['input']!r}: {problem[0].lower()}{problem[1:]}{hint}"


def settings(changes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The user's changes, divided into those of `Hyper` and those of `Split`; the paper's symbols are understood."""
    named = {PAPER_SYMBOLS.get(key, key): value for key, value in changes.items()}
    known = [*Hyper.model_fields, *Split.model_fields]
    for key in named:
        if key not in known:
            raise unknown("setting", key, known)
    hyper = {key: value for key, value in named.items() if key in Hyper.model_fields}
    return hyper, {key: value for key, value in named.items() if key in Split.model_fields}


def check_preset(preset: str) -> None:
    """Refuse a preset that does not exist."""
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)


def hyper_for(method: str | Method, preset: str, changes: Mapping[str, Any]) -> Hyper:
    """The hyperparameters of a method, given as a row or by name: those of a preset, with the user's changes on top."""
    check_preset(preset)
    base = method.base if isinstance(method, Method) else base_name(method)
    numbers = RECOMMENDED_NUMBERS if preset == "recommended" else PAPER_NUMBERS
    values: dict[str, Any] = dict(numbers.get(base, {}))
    if preset == "recommended" and base in METHODS and (training := _training(method)) != METHODS[base].training:
        values |= RECOMMENDED_EPOCHS.get((training, METHODS[base].optimiser), {})
    if preset == "published":
        values |= _PUBLISHED_HYPER | dict(PUBLISHED_NUMBERS.get(base, {}))
    return Hyper(**(values | settings(changes)[0]))


def _training(method: str | Method) -> str:
    """How a row, or a changed one that is given by name, trains."""
    if isinstance(method, Method):
        return method.training
    found = re.search(r"[:,]training=([a-z-]+)", method)
    return found[1] if found is not None else METHODS[base_name(method)].training


def split_for(preset: str, changes: Mapping[str, Any]) -> Split:
    """How the data are split under a preset, with the user's changes on top."""
    check_preset(preset)
    values: dict[str, Any] = dict(_PUBLISHED_SPLIT) if preset == "published" else {}
    return Split(**(values | settings(changes)[1]))


def changed_settings(method: str | Method, preset: str, hyper: Hyper, split: Split) -> dict[str, Any]:
    """The settings of a run that differ from its preset: what a result records beside the preset."""
    usual = hyper_for(method, preset, {}).model_dump() | split_for(preset, {}).model_dump()
    return {name: value for name, value in (hyper.model_dump() | split.model_dump()).items() if value != usual[name]}


def given_settings(changes: Mapping[str, Any], hyper: Hyper, split: Split) -> dict[str, Any]:
    """The settings that the user stated, by their names and with the values that they were understood as."""
    values = hyper.model_dump() | split.model_dump()
    return {name: values[name] for part in settings(changes) for name in part}
