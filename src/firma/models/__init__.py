"""Models in two parts: an extractor, which may be shared, and a head, which stays private."""

from firma.models.catalogue import mlp
from firma.models.split_model import Layout, ModelSource, Part, SplitModel, build_model

__all__ = ["Layout", "ModelSource", "Part", "SplitModel", "build_model", "mlp"]
