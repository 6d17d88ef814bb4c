"""Models in two parts: an extractor, which may be shared, and a head, which stays private."""

from firma.models.build import ModelSource, ModelSpec, build_model, model_spec
from firma.models.catalogue import mlp
from firma.models.probe import InputSpec
from firma.models.split_model import Layout, Part, SplitModel

__all__ = [
    "InputSpec", "Layout", "ModelSource", "ModelSpec", "Part", "SplitModel", "build_model", "mlp", "model_spec",
]  # fmt: skip
