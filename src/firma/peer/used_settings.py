"""Which settings a ring file's method reads; the others have no effect, and would only be in the reader's way."""

from typing import Any

from firma.peer.ring_file import Ring

_OF_ALGORITHM = {
    "second-model": ("attraction",),
    "interpolation": ("interpolation", "interpolation_learnt"),
    "moreau-envelope": ("attraction", "inner_steps", "inner_rate", "server_rate"),
    "meta-step": ("inner_rate", "hessian"),
    "debiased": ("mean_penalty", "mean_momentum", "feature_bias"),
}


def used_numbers(ring: Ring) -> dict[str, Any]:
    """The settings that the method of a ring file reads, by name; those that it ignores would only be in the way."""
    row, hyper = ring.row, ring.hyper
    tuned, robust, sgd = row.personal != "none", row.combine != "mean", row.optimiser == "sgd"
    algorithms = {name for names in _OF_ALGORITHM.values() for name in names}
    own = _OF_ALGORITHM.get(row.algorithm, ()) if isinstance(row.algorithm, str) else ()
    conditions = {name: name in own for name in algorithms} | {
        "momentum": sgd or tuned, "epochs": row.training == "joint", "head_epochs": row.training == "two-phase",
        "extractor_epochs": row.training in ("two-phase", "extractor"), "threshold": row.gate == "yes",
        "posterior": row.gate == "yes", "retention": row.retention == "constant",
        "retention_start": row.retention == "cosine", "retention_end": row.retention == "cosine",
        "warmup_rounds": row.warmup == "yes", "warmup_shares": row.warmup == "yes", "personal_epochs": tuned,
        "personal_rate": tuned, "personal_share": tuned, "head_bias": row.head == "tight-frame",
        "degree": row.topology == "regular", "byzantine": robust, "clip_radius": row.combine == "clipped",
        "hidden": ring.task.model == "mlp", "embedding": ring.task.model == "mlp", "ring_cost": row.order == "2-opt",
        "reorder_every": False, "reorder_when": False, "proximal": hyper.proximal > 0, "clip": hyper.clip is not None,
        "weight_decay": hyper.weight_decay > 0, "local_steps": hyper.local_steps is not None,
        "local_steps_for": hyper.local_steps is not None and tuned and hyper.personal_share == "auto",
    }  # fmt: skip
    found = hyper.model_dump()
    return {name: value for name, value in found.items() if conditions.get(name, True)}
