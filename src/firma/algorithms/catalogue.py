"""Which algorithm a row of the table means: one of this package, or one of the user's own."""

from typing import cast, get_args

from firma.algorithms.apfl import Apfl
from firma.algorithms.ditto import Ditto
from firma.algorithms.feddbe import FedDbe
from firma.algorithms.fednova import FedNova
from firma.algorithms.gradient_tracking import GradientTracking
from firma.algorithms.per_fedavg import PerFedAvg
from firma.algorithms.pfedme import PFedMe
from firma.algorithms.scaffold import Scaffold
from firma.errors import BadInput
from firma.methods import AlgorithmName, Method
from firma.settings import Hyper
from firma.tasks.losses import imported
from firma.training.algorithm import Algorithm


def algorithm_of(method: Method, hyper: Hyper) -> Algorithm:  # noqa: PLR0911  # one per algorithm
    """The algorithm in a method's column `algorithm`: a name, MODULE:CLASS of the user's own, or an object."""
    value = method.algorithm
    if isinstance(value, Algorithm):
        return value
    if value not in get_args(AlgorithmName):
        return own_algorithm(str(value))
    match cast(AlgorithmName, value):
        case "plain":
            return Algorithm()
        case "control-variates":
            return Scaffold()
        case "normalised-steps":
            return FedNova()
        case "second-model":
            return Ditto(hyper.attraction)
        case "interpolation":
            return Apfl(hyper.interpolation, hyper.interpolation_learnt == "yes")
        case "moreau-envelope":
            return PFedMe(hyper.attraction, hyper.inner_steps, hyper.inner_rate, hyper.server_rate)
        case "meta-step":
            return PerFedAvg(hyper.inner_rate, hyper.hessian == "difference")
        case "debiased":
            return FedDbe(hyper.mean_penalty, hyper.mean_momentum, hyper.feature_bias == "yes")
        case "tracked-gradient":
            return GradientTracking()


def own_algorithm(reference: str) -> Algorithm:
    """An algorithm of the user's own, called without arguments if it is a class."""
    found = imported(reference, "algorithm")
    made = found() if isinstance(found, type) else found
    if not isinstance(made, Algorithm):
        raise BadInput(
            f"algorithm = {reference!r}: is {type(made).__name__}; must be a subclass of firma.Algorithm, or an object "
            "of one"
        )
    return made
