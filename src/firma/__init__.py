"""FIRMA: server-free federated learning on a ring.

>>> import firma
>>> result = firma.run(dataset="digits", scenario="dir-0.1", method="fibfl++", clients=5, rounds=10, seed=0)
>>> result.metrics["mean_accuracy"]  # doctest: +SKIP

Names are imported on first use: `import firma` itself costs nothing, torch is loaded when something needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firma.data.dataset import Dataset as Dataset
    from firma.data.dataset import load_dataset as load_dataset
    from firma.errors import BadInput as BadInput
    from firma.experiment import Config as Config
    from firma.experiment import run as run
    from firma.experiment import run_all as run_all
    from firma.hyper import Hyper as Hyper
    from firma.methods import METHODS as METHODS
    from firma.methods import Method as Method
    from firma.methods import ablations as ablations
    from firma.models.split import SplitModel as SplitModel
    from firma.results import Result as Result
    from firma.results import compare as compare
    from firma.results import load as load

_HOME = {
    "BadInput": ("firma.errors", "BadInput"),
    "Config": ("firma.experiment", "Config"),
    "Dataset": ("firma.data.dataset", "Dataset"),
    "Hyper": ("firma.hyper", "Hyper"),
    "METHODS": ("firma.methods", "METHODS"),
    "Method": ("firma.methods", "Method"),
    "Result": ("firma.results", "Result"),
    "SplitModel": ("firma.models.split", "SplitModel"),
    "ablations": ("firma.methods", "ablations"),
    "compare": ("firma.results", "compare"),
    "load": ("firma.results", "load"),
    "load_dataset": ("firma.data.dataset", "load_dataset"),
    "run": ("firma.experiment", "run"),
    "run_all": ("firma.experiment", "run_all"),
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'firma' has no attribute {name!r}")
    module, attribute = _HOME[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return __all__
