"""The parameters of a function that builds a model: what it is told, and what a user may set."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, PydanticSchemaGenerationError, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from firma.errors import BadInput, unknown
from firma.settings import sentence

OUTPUTS = ("outputs", "classes", "num_classes")  # names by which a function may ask for the number of outputs
TOLD = ("shape", *OUTPUTS)  # what a function is told by name; everything else is a setting
_MISSING = inspect.Parameter.empty
_WORDS = {"true": True, "false": False, "none": None}


@dataclass(frozen=True)
class Setting:
    """One parameter that `--model-set NAME=VALUE` sets; `required` where the function has no default for it."""

    name: str
    annotation: Any
    default: Any
    required: bool

    @property
    def kind(self) -> str:
        """The type as a person writes it, such as `int`; empty if the function does not say."""
        plain = get_args(self.annotation)[0] if hasattr(self.annotation, "__metadata__") else self.annotation
        if get_origin(plain) is Literal:
            return " or ".join(map(str, get_args(plain)))
        if plain is _MISSING:
            return "" if self.default in (None, _MISSING) else type(self.default).__name__
        return plain.__name__ if isinstance(plain, type) and not get_args(plain) else str(plain).replace("typing.", "")


def settings_of(function: Callable[..., Any]) -> dict[str, Setting]:
    """The settings of a function, by name: its named parameters, except those that it is told."""
    hints = _hints(function)
    return {
        each.name: Setting(each.name, hints.get(each.name, _MISSING), each.default, each.default is _MISSING)
        for each in _signature(function).values()
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD) and each.name not in TOLD
    }


def checked_settings(function: Callable[..., Any], values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The user's values as the function's types; a name that it does not have is answered with the nearest one.

    A function that takes `**anything` is given whatever is set. Values must be plain data, for a result records them.
    """
    known = settings_of(function)
    told = [each for each in _signature(function).values() if each.name in TOLD]
    open_ended = any(each.kind is each.VAR_KEYWORD for each in _signature(function).values())
    allowed = [*known, *(each.name for each in told)]
    for key in values:
        if key not in allowed and not open_ended:
            raise (
                unknown(f"model {name!r}: parameter", key, known)
                if known
                else BadInput(f"model {name!r}: parameter {key!r} is unknown; this model has no parameters to set")
            )
    free = Setting("", _MISSING, _MISSING, False)
    return {key: _value(known.get(key, free), value, key) for key, value in values.items()}


def arguments(
    function: Callable[..., Any], shape: tuple[int, ...], outputs: int, values: Mapping[str, Any], name: str
) -> dict[str, Any]:
    """What the function is called with: of shape and outputs those that it asks for by name, and the user's values."""
    signature = _signature(function)
    nameless = [each.name for each in signature.values() if each.kind is each.POSITIONAL_ONLY]
    if nameless:
        raise BadInput(f"model {name!r}: parameter {nameless[0]!r} is positional-only; it must have a name to be set")
    found: dict[str, Any] = {"shape": shape} if "shape" in signature else {}
    found |= {each: outputs for each in OUTPUTS if each in signature}
    found |= values
    for setting in settings_of(function).values():
        if setting.required and setting.name not in found:
            raise BadInput(
                f"model {name!r}: parameter {setting.name!r} has no default; set it with --model-set "
                f"{setting.name}=VALUE, or model_set={{{setting.name!r}: ...}} in Python"
            )
    return found


def _signature(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # some functions that are written in C
        return {}


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Annotations by name; those that cannot be resolved count as absent."""
    called = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
    try:
        return get_type_hints(called, include_extras=True)
    except (TypeError, NameError, AttributeError):
        return {}


def _value(setting: Setting, value: Any, key: str) -> Any:
    """A value as the parameter's type; text from the command line is converted, and lists are separated by commas."""
    wanted = setting.annotation
    if wanted is _MISSING and setting.default not in (None, _MISSING):
        wanted = type(setting.default)
    if isinstance(value, str) and _is_list(wanted):
        value = [_literal(part.strip()) for part in value.split(",")]
    if wanted is _MISSING:
        return _plain(_literal(value), key)
    try:
        adapter = TypeAdapter[Any](wanted, config=ConfigDict(arbitrary_types_allowed=True))
    except (PydanticSchemaGenerationError, PydanticUserError):
        return _plain(_literal(value), key)
    if isinstance(value, str) and value.lower() == "none":
        try:
            return adapter.validate_python(None)
        except ValidationError:
            pass
    try:
        return _plain(adapter.validate_python(value), key)
    except ValidationError as error:
        raise BadInput(f"model parameter {sentence(error, key)}") from None


def _is_list(annotation: Any) -> bool:
    kinds = (annotation, *get_args(annotation))
    return any(kind in (list, tuple) or get_origin(kind) in (list, tuple, Sequence) for kind in kinds)


def _literal(value: Any) -> Any:
    """Text as the number, truth value or None that it spells; anything else as it is."""
    if not isinstance(value, str):
        return value
    if value.lower() in _WORDS:
        return _WORDS[value.lower()]
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _plain(value: Any, key: str) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_plain(each, key) for each in value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise BadInput(
        f"model parameter {key} = {value!r}: must be a number, text, true or false, or a list of these, "
        "so that a result can record it"
    )
