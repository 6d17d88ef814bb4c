"""Which algorithm a row of the table means: one of this package, or one of the user's own."""

from typing import cast, get_args

from firma.algorithms.scaffold import Scaffold
from firma.errors import BadInput
from firma.methods import AlgorithmName, Method
from firma.tasks.losses import imported
from firma.training.algorithm import Algorithm


def algorithm_of(method: Method) -> Algorithm:
    """The algorithm in a method's column `algorithm`: a name, MODULE:CLASS of the user's own, or an object."""
    value = method.algorithm
    if isinstance(value, Algorithm):
        return value
    if value not in get_args(AlgorithmName):
        return _own(str(value))
    match cast(AlgorithmName, value):
        case "plain":
            return Algorithm()
        case "control-variates":
            return Scaffold()


def _own(reference: str) -> Algorithm:
    """An algorithm of the user's own, called without arguments if it is a class."""
    found = imported(reference, "algorithm")
    made = found() if isinstance(found, type) else found
    if not isinstance(made, Algorithm):
        raise BadInput(
            f"algorithm = {reference!r}: is {type(made).__name__}; must be a subclass of firma.Algorithm, or an object "
            "of one"
        )
    return made
