"""Data sets and how they are dealt to clients."""

from firma.data.dataset import Dataset, DatasetSource, load_dataset
from firma.data.partition import Partition, deal

__all__ = ["Dataset", "DatasetSource", "Partition", "deal", "load_dataset"]
