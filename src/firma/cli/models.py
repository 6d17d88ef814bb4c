"""`firma models`: the built-in models and their parameters, or those of a model of the user's own."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from firma.cli.options import Json


def models(
    model: Annotated[
        str | None, typer.Argument(help="A built-in model, or MODULE:FUNCTION, to show this one only.")
    ] = None,
    json: Json = False,
) -> None:
    """Show the built-in models with the parameters that --model-set changes, or those of your own model.

    Example: firma models mypackage.module:build
    """
    import inspect

    from firma.cli.console import out, print_json
    from firma.models.build import model_spec
    from firma.models.catalogue import MODELS

    shown: dict[str, Callable[..., Any]] = dict(MODELS)
    if model is not None:
        spec = model_spec(model)
        assert spec.builder is not None
        shown = {spec.name: spec.builder}
    if json:
        print_json({"models": [_plain(name, function) for name, function in shown.items()]})
        return
    for name, function in shown.items():
        about = (inspect.getdoc(function) or "no description").partition("\n")[0]
        out.print(f"[bold]{name}[/bold]  {about}", highlight=False, soft_wrap=True)
        for setting in _plain(name, function)["parameters"]:
            value = "required" if setting["required"] else f"default {setting['default']}"
            kind = f"{setting['type']}, " if setting["type"] else ""
            out.print(f"  {setting['name']}: {kind}{value}", highlight=False, markup=False, soft_wrap=True)
    if model is None:
        out.print("Your own: --model MODULE:FUNCTION; see docs/your-model.md.", highlight=False, soft_wrap=True)


def _plain(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """A model and its parameters, ready for JSON."""
    import inspect

    from firma.models.parameters import settings_of

    parameters = [
        {
            "name": each.name,
            "type": each.kind,
            "required": each.required,
            "default": None if each.required else _default(each.default),
        }
        for each in settings_of(function).values()
    ]
    return {"name": name, "about": inspect.getdoc(function) or "", "parameters": parameters}


def _default(value: object) -> object:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
