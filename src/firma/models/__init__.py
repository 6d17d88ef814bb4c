"""Models that split into an extractor, which may travel, and a head, which stays."""

from firma.models.catalogue import mlp
from firma.models.split import Layout, ModelSource, Part, SplitModel, build_model

__all__ = ["Layout", "ModelSource", "Part", "SplitModel", "build_model", "mlp"]
