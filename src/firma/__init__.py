"""FIRMA: server-free federated learning on a ring.

>>> import firma
>>> result = firma.run(dataset="digits", scenario="dir-0.1", method="fibfl++", clients=5, rounds=10, seed=0)
>>> result.metrics["mean_accuracy"]  # doctest: +SKIP

Names are imported on first use, so `import firma` is quick; torch is loaded when something needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firma.data.dataset import Dataset as Dataset
    from firma.data.dataset import load_dataset as load_dataset
    from firma.data.user_arrays import natural as natural
    from firma.errors import BadInput as BadInput
    from firma.experiment import run as run
    from firma.experiment import run_all as run_all
    from firma.methods import METHODS as METHODS
    from firma.methods import Method as Method
    from firma.methods import ablations as ablations
    from firma.models.split_model import SplitModel as SplitModel
    from firma.results import Result as Result
    from firma.results import compare as compare
    from firma.results import load as load
    from firma.run_config import RunConfig as Config
    from firma.run_config import RunConfig as RunConfig
    from firma.settings import Hyper as Hyper

    __version__: str

_HOME = {
    "BadInput": "errors",
    "Dataset": "data.dataset",
    "Hyper": "settings",
    "METHODS": "methods",
    "Method": "methods",
    "Result": "results",
    "RunConfig": "run_config",
    "SplitModel": "models.split_model",
    "ablations": "methods",
    "compare": "results",
    "load": "results",
    "load_dataset": "data.dataset",
    "natural": "data.user_arrays",
    "run": "experiment",
    "run_all": "experiment",
}
__all__ = [  # imported on first use, see _HOME
    "METHODS",
    "BadInput",
    "Config",
    "Dataset",
    "Hyper",
    "Method",
    "Result",
    "RunConfig",
    "SplitModel",
    "__version__",
    "ablations",
    "compare",
    "load",
    "load_dataset",
    "natural",
    "run",
    "run_all",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("firma")
        except PackageNotFoundError:  # run from a copy of the source that was never installed
            return "0+unknown"
    name = "RunConfig" if name == "Config" else name  # its name in version 0.1
    if name not in _HOME:
        raise AttributeError(f"module 'firma' has no attribute {name!r}")
    return getattr(import_module(f"firma.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
