"""The description of a Flower app: which `ClientApp`, what it starts from, what is head, and its configuration.

The same fields are a flower.toml, the table [flower] of a ring file, and the keywords of `firma.flower.run`. Strings
only: code never travels, so a ring file holds references, and every site has the app installed.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from firma.errors import BadInput
from firma.settings import sentence

Scalar = bool | int | float | str  # what Flower allows as a value of a configuration


class FlowerApp(BaseModel):
    """A Flower app as plain data."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    app: str = Field(description="the ClientApp, as module:attribute")
    initial: str = Field(
        "",
        description="what the model starts from, as module:attribute: a torch module or its class, a dict of arrays, "
        "a list of arrays, or a function that returns one of these; empty: the client's get_parameters",
    )
    head: tuple[int | str, ...] = Field(
        (), description="arrays that stay private, by name, pattern such as fc.*, or index such as -1"
    )
    accuracy: str = Field("accuracy", description="metric of evaluate that is the test accuracy")
    train_accuracy: str = Field("accuracy", description="metric of training that the gate of a method needs")
    run_config: Mapping[str, Scalar] = Field(default_factory=dict, description="context.run_config")
    train_config: Mapping[str, Scalar] = Field(default_factory=dict, description="configuration of each training")
    evaluate_config: Mapping[str, Scalar] = Field(default_factory=dict, description="configuration of each evaluation")
    files: Mapping[str, str] = Field(
        default_factory=dict, description="SHA-256 of each file of the app, in a ring file"
    )


def check_package(app: FlowerApp) -> None:
    """A ring file comes from others: whoever agrees to run an app agrees to the code of its package, no other."""
    package = app.app.partition(":")[0].partition(".")[0]
    if app.initial and app.initial.partition(":")[0].partition(".")[0] != package:
        raise BadInput(f"initial = {app.initial!r}: must be in the package of the app, {package}")


def described(values: Mapping[str, Any], what: str) -> FlowerApp:
    """A description from plain data; every mistake is one sentence."""
    try:
        return FlowerApp.model_validate(dict(values))
    except ValidationError as error:
        raise BadInput(f"{what}: {sentence(error)}") from None


def read(path: str | Path) -> FlowerApp:
    """The description in a flower.toml, or in a folder that holds one.

    A pyproject.toml beside it, as every Flower app has one, fills in what is missing: the `ClientApp` from
    [tool.flwr.app.components], and defaults of run_config from [tool.flwr.app.config].
    """
    file = Path(path) / "flower.toml" if Path(path).is_dir() else Path(path)
    values = _parsed(file)
    project = _parsed(file.parent / "pyproject.toml") if (file.parent / "pyproject.toml").exists() else {}
    flower = project.get("tool", {}).get("flwr", {}).get("app", {})
    values.setdefault("app", flower.get("components", {}).get("clientapp", ""))
    values["run_config"] = _flat(flower.get("config", {})) | _flat(values.get("run_config", {}))
    if not values["app"]:
        raise BadInput(f"flower app {str(file)!r}: app is missing; give the ClientApp as app = 'module:attribute'")
    return described(values, f"flower app {str(file)!r}")


def _parsed(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"flower app {str(file)!r}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"flower app {str(file)!r}: not valid TOML ({error})") from None


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables under dotted keys, as Flower flattens them."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
