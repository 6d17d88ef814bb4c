"""Flower's apps on FIRMA's methods: an unchanged `ClientApp` trains in the simulation and at a site of a real ring.

`run` simulates, `read` reads an app's description, `arrays` returns a client's trained arrays under the app's names.
Flower is imported when an app is loaded; docs/flower.md says how to install it beside FIRMA.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firma.flower.description import FlowerApp as FlowerApp
    from firma.flower.description import read as read
    from firma.flower.simulate import arrays as arrays
    from firma.flower.simulate import run as run

_HOME = {"FlowerApp": "description", "arrays": "simulate", "read": "description", "run": "simulate"}
__all__ = ["FlowerApp", "arrays", "read", "run"]  # imported on first use, see _HOME


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'firma.flower' has no attribute {name!r}")
    return getattr(import_module(f"firma.flower.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
