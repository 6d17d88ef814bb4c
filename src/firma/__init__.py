"""FIRMA: server-free federated learning on a ring.

>>> import firma
>>> result = firma.run(dataset="digits", scenario="dir-0.1", method="frame", clients=5, rounds=10, seed=0)
>>> result.metrics["mean_accuracy"]  # doctest: +SKIP

Names are imported on first use, so `import firma` is quick; torch is loaded when something needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firma.comparison import Comparison as Comparison
    from firma.comparison import better as better
    from firma.comparison import compare as compare
    from firma.data.dataset import Dataset as Dataset
    from firma.data.dataset import load_dataset as load_dataset
    from firma.data.user_arrays import natural as natural
    from firma.errors import BadInput as BadInput
    from firma.experiment import run as run
    from firma.experiment import run_all as run_all
    from firma.method_lookup import ablations as ablations
    from firma.methods import METHODS as METHODS
    from firma.methods import Method as Method
    from firma.models.split_model import SplitModel as SplitModel
    from firma.results import Result as Result
    from firma.results import to_frame as to_frame
    from firma.run_config import RunConfig as Config
    from firma.run_config import RunConfig as RunConfig
    from firma.settings import Hyper as Hyper
    from firma.statistics import Statistic as Statistic
    from firma.sweep.result_folders import load_results as load_results
    from firma.trained import TrainedModel as TrainedModel
    from firma.trained import load as load
    from firma.trained import load_model as load_model
    from firma.training.algorithm import Algorithm as Algorithm
    from firma.training.algorithm import ClientRound as ClientRound
    from firma.training.algorithm import LocalStep as LocalStep
    from firma.training.algorithm import ServerRound as ServerRound
    from firma.training.local_step import Step as Step

    __version__: str

_HOME = {
    "Algorithm": "training.algorithm",
    "BadInput": "errors",
    "ClientRound": "training.algorithm",
    "Comparison": "comparison",
    "Dataset": "data.dataset",
    "Hyper": "settings",
    "LocalStep": "training.algorithm",
    "METHODS": "methods",
    "Method": "methods",
    "Result": "results",
    "RunConfig": "run_config",
    "ServerRound": "training.algorithm",
    "SplitModel": "models.split_model",
    "Statistic": "statistics",
    "Step": "training.local_step",
    "TrainedModel": "trained",
    "ablations": "method_lookup",
    "better": "comparison",
    "compare": "comparison",
    "load": "trained",
    "load_dataset": "data.dataset",
    "load_model": "trained",
    "load_results": "sweep.result_folders",
    "natural": "data.user_arrays",
    "run": "experiment",
    "run_all": "experiment",
    "to_frame": "results",
}
__all__ = [  # imported on first use, see _HOME
    "METHODS",
    "Algorithm",
    "BadInput",
    "ClientRound",
    "Comparison",
    "Config",
    "Dataset",
    "Hyper",
    "LocalStep",
    "Method",
    "Result",
    "RunConfig",
    "ServerRound",
    "SplitModel",
    "Statistic",
    "Step",
    "TrainedModel",
    "__version__",
    "ablations",
    "better",
    "compare",
    "load",
    "load_dataset",
    "load_model",
    "load_results",
    "natural",
    "run",
    "run_all",
    "to_frame",
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
