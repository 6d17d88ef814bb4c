"""Models in two parts: an extractor, which may be shared, and a head, which stays private."""

from firma.models.build import ModelSource, build_model
from firma.models.catalogue import mlp
from firma.models.probe import InputSpec
from firma.models.split_model import Layout, Part, SplitModel

__all__ = ["InputSpec", "Layout", "ModelSource", "Part", "SplitModel", "build_model", "mlp"]
