"""The numbers and switches that `--set` changes, their allowed values, and the presets that fill them in."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from firma.errors import BadInput, unknown
from firma.methods import PAPER_NUMBERS, PUBLISHED_NUMBERS, RECOMMENDED_NUMBERS, Method, base_name

Model = TypeVar("Model", bound=BaseModel)
Preset = Literal["recommended", "paper", "published"]
PRESETS: tuple[Preset, ...] = ("recommended", "paper", "published")
EngineName = Literal["simulation", "ray"]
BackendName = Literal["auto", "autograd"]
Wire = Literal["float32", "bfloat16", "int8"]


def _none_word(value: object) -> object:
    return None if isinstance(value, str) and value.lower() in ("none", "auto") else value


Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Optional = BeforeValidator(_none_word)


class Hyper(BaseModel):
    """The numbers of a method; every field can be set by `--set field=value`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rate: float = Field(0.01, gt=0, description="learning rate")
    momentum: Share = Field(0.9, description="momentum of SGD")
    batch: Positive = Field(64, description="samples per step")
    epochs: Count = Field(5, description="epochs of joint training per round (E)")
    head_epochs: Count = Field(1, description="epochs per round of the head, extractor frozen (Eh)")
    extractor_epochs: Count = Field(20, description="epochs per round of the extractor, head frozen (Ee)")
    threshold: Share = Field(0.35, description="training accuracy below which the gate excludes a neighbour (τ)")
    posterior: Share = Field(0.5, description="weight of the gated accuracies against the golden pair, Eq. 7")
    retention: Share = Field(0.5, description="share of its own parameters that a client keeps per round (γ)")
    retention_start: Share = Field(0.4, description="γ in the first round of the cosine schedule, Eq. 10")
    retention_end: Share = Field(0.05, description="γ in the last round of the cosine schedule, Eq. 10")
    warmup_rounds: Annotated[Count | None, Optional] = Field(
        None, description="rounds of warm-up; none: a sixth of all rounds"
    )
    warmup_shares: Literal["extractor", "model"] = Field(
        "extractor",
        description="what the warm-up averages: the extractor, by the ring itself, or the model, by a server",
    )
    proximal: Annotated[float, Field(ge=0)] = Field(
        0.0, description="FedProx: weight μ of the pull back to where the round started; 0: none"
    )
    clip: Annotated[Annotated[float, Field(gt=0)] | None, Optional] = Field(
        None, description="largest norm of a batch's gradient; none: gradients are not clipped"
    )
    hidden: Positive = Field(256, description="width of the built-in model's hidden layers")
    embedding: Positive = Field(128, description="width of the built-in model's features")
    initial: Literal["shared", "per-client"] = Field(
        "shared", description="all clients start from the same weights, or each from its own"
    )
    ring_cost: Literal["cosine", "dot"] = Field(
        "cosine", description="similarity of two class-proportion vectors, Eq. 8"
    )


class Split(BaseModel):
    """How a data set is split among clients; the same for all methods of a comparison."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    split_seed: Annotated[Count | None, Optional] = Field(
        42, description="seed of the split; none: a new split for each seed of the run"
    )
    tests: Literal["matched", "independent"] = Field(
        "matched",
        description="a client is tested on the class proportions of its training data, or on an independent draw",
    )
    scored_on: Literal["test", "validation"] = Field(
        "test", description="validation: a fifth of the training data replaces the test data, for choosing settings"
    )
    quota: Literal["fair", "sequential"] = Field(
        "fair", description="label skew: the same number of samples for all clients, or first come, first served"
    )
    min_samples: Positive = Field(10, description="clients with fewer training samples do not take part")


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
_PUBLISHED_SPLIT = {"tests": "independent", "quota": "sequential", "min_samples": 64}


# Settings added since version 0.1 and the value that leaves everything as it was. It is left out of what identifies a
# run (keys of stored cells, checkpoints), so that runs made before the setting existed are still found; never change
# one, even when the default changes.
NEUTRAL_SETTINGS: Mapping[str, Any] = {"proximal": 0.0, "clip": None}


def stable_settings(values: Hyper | Split) -> dict[str, Any]:
    """The settings that identify a run, by name."""
    found = values.model_dump()
    return {key: value for key, value in found.items() if key not in NEUTRAL_SETTINGS or value != NEUTRAL_SETTINGS[key]}


def sentence(error: ValidationError, field: str = "") -> str:
    """The first problem that pydantic found, as one sentence with field, value and what is allowed."""
    first = error.errors()[0]
    field = field or ".".join(str(part) for part in first["loc"] if isinstance(part, int) or part.isidentifier())
    problem = first["msg"][0].lower() + first["msg"][1:]
    return f"{field} = {first['input']!r}: {problem.replace('input should be', 'must be')}"


def build(kind: type[Model], values: Mapping[str, Any]) -> Model:
    """`kind(**values)` with errors that a user can read."""
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        raise BadInput(sentence(error)) from None


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
    """The numbers of a method, given as a row or by name, under a preset, with the user's changes on top."""
    check_preset(preset)
    base = method.base if isinstance(method, Method) else base_name(method)
    numbers = RECOMMENDED_NUMBERS if preset == "recommended" else PAPER_NUMBERS
    values: dict[str, Any] = dict(numbers.get(base, {}))
    if preset == "published":
        values |= _PUBLISHED_HYPER | dict(PUBLISHED_NUMBERS.get(base, {}))
    return build(Hyper, values | dict(settings(changes)[0]))


def split_for(preset: str, changes: Mapping[str, Any]) -> Split:
    """How the data are split under a preset, with the user's changes on top."""
    check_preset(preset)
    values = _PUBLISHED_SPLIT if preset == "published" else {}
    return build(Split, values | dict(settings(changes)[1]))


def changed_settings(method: str | Method, preset: str, hyper: Hyper, split: Split) -> dict[str, Any]:
    """The settings of a run that differ from its preset: what a result records beside the preset."""
    usual = hyper_for(method, preset, {}).model_dump() | split_for(preset, {}).model_dump()
    return {name: value for name, value in (hyper.model_dump() | split.model_dump()).items() if value != usual[name]}
