"""Options that several commands share, and the options of `firma run`, made from the fields of `RunConfig`."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from inspect import Parameter
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from firma.cli import completion
from firma.errors import BadInput
from firma.run_config import RunConfig, descriptions, option_fields
from firma.settings import Hyper, Split

_HELP = descriptions()
DATASET_HELP, SCENARIO_HELP = _HELP["dataset"].partition(" From Python")[0], _HELP["scenario"]
MODEL_HELP, HEAD_HELP = _HELP["model"].partition(" From Python")[0], _HELP["head"]
ENGINE_HELP, WIRE_HELP = _HELP["engine"], _HELP["wire"]
SETTINGS = (
    "**Settings for --set**, with the values of fibfl++ under the paper preset (`--json` prints those of a run)\n\n"
    + "\n\n".join(
        f"`{name}` = {field.default}: {field.description}"
        for kind in (Hyper, Split)
        for name, field in kind.model_fields.items()
    )
)
Dataset = Annotated[str, typer.Option(help=DATASET_HELP, autocompletion=completion.datasets)]
Scenario = Annotated[str | None, typer.Option(help=SCENARIO_HELP, autocompletion=completion.scenarios)]
Drift = Annotated[str | None, typer.Option(help=_HELP["drift"], autocompletion=completion.drifts)]
Clients = Annotated[int | None, typer.Option(min=1, help=_HELP["clients"])]
Participation = Annotated[float, typer.Option(help=_HELP["participation"])]
Preset = Annotated[str, typer.Option(help=_HELP["preset"], autocompletion=completion.presets)]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the split; only used with --set split_seed=none.")]
Address = Annotated[str | None, typer.Option(help=_HELP["address"])]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else.")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help=_HELP["settings"], autocompletion=completion.settings),
]
ModelChanges = Annotated[list[str] | None, typer.Option("--model-set", metavar="KEY=VALUE", help=_HELP["model_set"])]
_FLAGS = {"settings": "--set", "model_set": "--model-set"}


def changes(pairs: Sequence[str] | None, flag: str = "--set", example: str = "rate=0.001") -> dict[str, Any]:
    """`["rate=0.001"]` as a dictionary."""
    settings = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise BadInput(f"{flag} {pair!r}: must have the form KEY=VALUE, such as {example}")
        settings[key] = value
    return settings


def toml_values(pairs: Sequence[str] | None, flag: str) -> dict[str, bool | int | float | str]:
    """`["epochs=2", "path='mine.csv'"]` as a dictionary of TOML values; what is none is text."""
    found = {}
    for key, value in changes(pairs, flag, "batch-size=32").items():
        try:
            found[key] = tomllib.loads(f"value = {value}")["value"]
        except ValueError:
            found[key] = value
    return found


def model_changes(pairs: Sequence[str] | None) -> dict[str, Any]:
    """`["width=64"]` as a dictionary."""
    return changes(pairs, "--model-set", "width=64")


def run_parameters() -> list[Parameter]:
    """One keyword parameter for each option of a run; None, or False for a switch, where it is not given."""
    hints, defaults = get_type_hints(RunConfig), {each.name: each.default for each in fields(RunConfig)}
    made = []
    for name in option_fields().values():
        text = {"dataset": DATASET_HELP, "model": MODEL_HELP}.get(name, _HELP[name])
        default = defaults[name]
        if not any(default is each for each in (None, False, MISSING, ())):
            text += f" Default: {default}."
        kind, flag, metavar = _kind(name, hints[name])
        words = (flag,) if flag else ()
        option = typer.Option(*words, metavar=metavar, help=text, autocompletion=_completion(name, hints[name]))
        hint = Annotated[kind, option]  # type: ignore[valid-type]
        made.append(Parameter(name, Parameter.KEYWORD_ONLY, default=False if kind is bool else None, annotation=hint))
    return made


def _completion(name: str, hint: Any) -> completion.Completion | None:
    """What the Tab key offers for a field: the words of its type, or those of a list for this field."""
    if get_origin(hint) is Literal:
        return completion.words(*get_args(hint))
    return completion.OF_FIELD.get(name)


def _kind(name: str, hint: Any) -> tuple[Any, str | None, str | None]:
    """Type, flag and metavar of an option, by the type of its field; choices are text that `RunConfig` checks."""
    if hint is bool:
        return bool, f"--{name.replace('_', '-')}", None
    if get_origin(hint) is Mapping:
        return list[str] | None, _FLAGS[name], "KEY=VALUE"
    kinds = get_args(hint) or (hint,)
    if any(get_origin(each) is Sequence for each in (hint, *kinds)):
        return list[str] | None, None, None
    return (int if int in kinds else float if float in kinds else str) | None, None, None
