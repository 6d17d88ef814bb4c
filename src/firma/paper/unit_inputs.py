"""The published recipe with inputs in [0, 1], as the paper's text has them, where nothing better was run.

The preset standardises inputs as the study's code does. MNIST had been run with inputs in [0, 1] before that was found.
Until a case is run again, it is shown with those, and its pages say so. A case is taken whole: its methods are compared
with each other.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from firma.sweep.result_table import Case, Place, ResultTable

Found = TypeVar("Found")
PUBLISHED, UNIT = "published", "published standardise=none"


def with_unit_inputs(tables: Mapping[str, ResultTable]) -> dict[str, ResultTable]:
    """Tables by label; that of `published` also has the cases for which more methods were run with inputs in [0, 1]."""
    others = {name: table for name, table in tables.items() if name != UNIT}
    if UNIT not in tables:
        return others
    own, unit = tables.get(PUBLISHED, ResultTable(PUBLISHED)), tables[UNIT]
    cases = {place[:2] for place in unit.statistics}
    taken = [case for case in sorted(cases) if len(unit.methods(case)) > len(own.methods(case))]
    if not taken:
        return others
    merged = replace(
        own,
        statistics=_exchanged(own.statistics, unit.statistics, taken),
        by_seed=_exchanged(own.by_seed, unit.by_seed, taken),
        source=_told(taken),
    )
    return {PUBLISHED: merged} | {name: table for name, table in others.items() if name != PUBLISHED}


def _exchanged(kept: Mapping[Place, Found], other: Mapping[Place, Found], cases: list[Case]) -> dict[Place, Found]:
    """What is kept, but in these cases what the other has."""
    rest = {place: found for place, found in kept.items() if place[:2] not in cases}
    return rest | {place: found for place, found in other.items() if place[:2] in cases}


def _told(cases: list[Case]) -> str:
    scenarios: dict[str, list[str]] = {}
    for dataset, scenario in cases:
        scenarios.setdefault(dataset, []).append(scenario)
    places = "; ".join(f"{dataset} at {', '.join(found)}" for dataset, found in scenarios.items())
    return f"Run with inputs in [0, 1], before the preset standardised them: {places}."
