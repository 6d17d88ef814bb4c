"""Naive algorithms of methods that differ from the paper's in what is shared, fixed or tuned: see reference.py."""

from collections.abc import Callable

ALGORITHMS: dict[str, Callable[..., None]] = {}
