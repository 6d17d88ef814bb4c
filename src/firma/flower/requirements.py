"""Which methods and settings a Flower app can be trained with; what is impossible is refused by name.

An app's training is one call, so it cannot be divided into phases. Its optimiser is its own, and lasts for one call. It
does not tell which classes it holds. How it trains is in its own configuration, not in FIRMA's settings.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from firma.errors import BadInput
from firma.method_lookup import check
from firma.methods import METHODS, PAPER_METHODS, Method, base_name
from firma.settings import Hyper, hyper_for
from firma.settings import settings as divided

MIXING_SETTINGS = (
    "threshold", "posterior", "retention", "retention_start", "retention_end", "warmup_rounds", "warmup_shares",
    "initial", "degree",
)  # fmt: skip
_NEEDED = {
    "training": ("joint", "trains its whole model in one call"),
    "order": ("given", "does not report its class proportions"),
    "algorithm": ("plain", "takes its local steps by itself"),
    "personal": ("none", "cannot be asked for a personal model"),
    "persistent": ("no", "has an optimiser of its own, which FIRMA cannot keep between rounds"),
    "head": ("learnt", "trains its head with the rest"),
    "private": ("none", "does not tell which of its arrays belong to normalisation layers"),
}


def trainable(row: Method) -> Method:
    """The row itself, if an app can be trained with it."""
    check(row)
    for column, (value, why) in _NEEDED.items():
        if (found := getattr(row, column)) != value:
            raise BadInput(
                f"method {row.name!r} has {column} = {found!r}, but a Flower app {why}; use {_nearest(row)!r} instead"
            )
    if row.topology == "edges":
        raise BadInput(f"method {row.name!r}: topology = 'edges' is not available for a Flower app; use another graph")
    return row


def hyper_of(row: Method, changes: Mapping[str, Any]) -> Hyper:
    """The numbers of a method; settings of local training are refused, for the app does not know them."""
    hyper, split = divided(changes)
    for name in (*hyper, *split):
        if name not in MIXING_SETTINGS:
            raise BadInput(
                f"setting {name!r} has no effect on a Flower app, which trains by its own run_config and train_config; "
                f"allowed are {', '.join(MIXING_SETTINGS)}"
            )
    found = hyper_for(row, "recommended", changes)
    if found.proximal:
        raise BadInput(
            f"method {row.name!r} has a proximal term (proximal = {found.proximal}), but a Flower app takes its local "
            "steps by itself; choose a method without one"
        )
    return found


def check_head(row: Method, head: Sequence[int | str], names: Sequence[str]) -> None:
    """What is head must be said where heads are private; where whole models are shared, a warning says so."""
    if head or row.shares == "nothing":
        return
    if row.shares == "extractor":
        paper = [METHODS[name] for name in PAPER_METHODS]
        whole = [each.name for each in paper if each.training == "joint" and each.shares != "extractor"]
        last = f", such as head = [{names[-1]!r}]; its arrays are {', '.join(names)}" if names else ""
        raise BadInput(
            f"method {row.name!r} shares extractors only, so head must name the arrays of the app that stay private"
            f"{last}. Without a head, use {' or '.join(whole)} in the simulation"
        )
    warnings.warn(
        "no head is named, so whole models are shared; name the arrays that stay private with head = [...]",
        UserWarning,
        stacklevel=3,
    )


def _nearest(row: Method) -> str:
    """The nearest method that an app can be trained with, as a user writes it."""
    written = dict(part.split("=", 1) for part in row.name.partition(":")[2].split(",") if "=" in part)
    needed = {column: value for column, (value, _) in _NEEDED.items() if getattr(row, column) != value}
    changes = ",".join(f"{column}={value}" for column, value in (written | needed).items())
    return f"{row.base or base_name(row.name)}:{changes}"
