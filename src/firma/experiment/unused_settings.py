"""Settings that the chosen methods have no use for, by their columns; only those of which that is certain."""

from collections.abc import Callable, Iterable, Mapping

from firma.methods import Method

Uses = Callable[[Method], bool]


def _has(column: str, *values: str) -> Uses:
    return lambda row: getattr(row, column) in values


def _gated(row: Method) -> bool:
    return row.gate == "yes" and row.topology == "ring"


def _retains(kind: str) -> Uses:
    return lambda row: row.retention == kind and row.topology == "ring"


def _trains_heads(row: Method) -> bool:
    """In a phase of their own; also in its place, where a model cannot have a frame for its head."""
    return row.training == "two-phase" or row.head == "tight-frame" or (row.warmup == "yes" and row.training != "joint")


_tunes, _debiases = _has("personal", "fine-tune", "tune-head"), _has("algorithm", "debiased")
_interpolates, _envelope = _has("algorithm", "interpolation"), _has("algorithm", "moreau-envelope")
_USED_BY: Mapping[str, Uses] = {
    "epochs": _has("training", "joint"),
    "head_epochs": _trains_heads,
    "extractor_epochs": _has("training", "two-phase", "extractor"),
    "threshold": _gated,
    "posterior": _gated,
    "retention": _retains("constant"),
    "retention_start": _retains("cosine"),
    "retention_end": _retains("cosine"),
    "warmup_rounds": _has("warmup", "yes"),
    "warmup_shares": _has("warmup", "yes"),
    "personal_epochs": _tunes,
    "personal_rate": _tunes,
    "personal_share": lambda row: row.personal != "none",
    "head_bias": _has("head", "tight-frame"),
    "attraction": _has("algorithm", "second-model", "moreau-envelope"),
    "interpolation": _interpolates,
    "interpolation_learnt": _interpolates,
    "inner_steps": _envelope,
    "inner_rate": lambda row: row.personal == "one-step" or row.algorithm in ("moreau-envelope", "meta-step"),
    "server_rate": _envelope,
    "hessian": _has("algorithm", "meta-step"),
    "mean_penalty": _debiases,
    "mean_momentum": _debiases,
    "feature_bias": _debiases,
    "degree": _has("topology", "regular"),
    "byzantine": lambda row: row.combine != "mean",
    "clip_radius": _has("combine", "clipped"),
    "ring_cost": _has("order", "2-opt"),
    "reorder_every": _has("order", "2-opt"),
    "reorder_when": _has("order", "2-opt"),
}


def without_effect(settings: Iterable[str], rows: Iterable[Method]) -> list[str]:
    """Those of the settings that none of the rows uses."""
    chosen = list(rows)
    return [name for name in settings if name in _USED_BY and not any(_USED_BY[name](row) for row in chosen)]
