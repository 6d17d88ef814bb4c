"""Which algorithm a row of the table means: one of this package, or one of the user's own."""

import ast
import inspect
from dataclasses import replace
from typing import Any, cast, get_args

from firma.algorithms.apfl import Apfl
from firma.algorithms.ditto import Ditto
from firma.algorithms.feddbe import FedDbe
from firma.algorithms.fednova import FedNova
from firma.algorithms.gradient_tracking import GradientTracking
from firma.algorithms.per_fedavg import PerFedAvg
from firma.algorithms.pfedme import PFedMe
from firma.algorithms.scaffold import Scaffold
from firma.errors import BadInput, unknown
from firma.methods import AlgorithmName, Method, own_algorithm
from firma.models.reference import Reference, load, parsed
from firma.settings import Hyper
from firma.training.algorithm import Algorithm, overrides
from firma.training.hooks import check, title


def algorithm_of(method: Method, hyper: Hyper) -> Algorithm:
    """The algorithm in a method's column `algorithm`: a name, MODULE:CLASS of the user's own, or an object."""
    return _own(method) if own_algorithm(method) else _of_the_table(cast(AlgorithmName, method.algorithm), hyper)


def resolved(method: Method) -> Method:
    """The method with the algorithm itself in place of the user's MODULE:CLASS: its columns then name its code."""
    return replace(method, algorithm=_own(method)) if own_algorithm(method) else method


def reference_of(method: Method) -> Reference | None:
    """The MODULE:CLASS of the user's own in a row; nothing is imported."""
    if not own_algorithm(method) or not isinstance(method.algorithm, str):
        return None
    return _parts(method.algorithm)[0]


def _of_the_table(name: AlgorithmName, hyper: Hyper) -> Algorithm:  # noqa: PLR0911  # one per algorithm
    match name:
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


def check_start(method: Method, hyper: Hyper) -> None:
    """Refuse clients that start apart, where the algorithm takes it for granted that they do not."""
    if hyper.initial == "shared":
        return
    algorithm = algorithm_of(method, hyper)
    if overrides(algorithm, "aggregate"):
        why = "its aggregate starts from the model that all clients start from"
    elif algorithm.sends_differences:
        why = "it averages what clients moved by, not where they are, so they would stay apart"
    else:
        return
    raise BadInput(
        f"method {method.name!r}: initial = {hyper.initial!r} cannot be combined with algorithm {title(algorithm)}: "
        f"{why}; set initial = 'shared'"
    )


def check_participation(method: Method, hyper: Hyper, share: float) -> None:
    """Refuse rounds without some of the clients, where those would never come back to the others."""
    if method.topology in ("all-reduce", "all-gather") and algorithm_of(method, hyper).sends_differences:
        raise BadInput(
            f"method {method.name!r}: participation = {share} cannot be combined with topology = {method.topology!r}: "
            "clients average what they moved by, not where they are, and one that takes no part would stay behind; use "
            "topology = 'star', or participation = 1"
        )


def _own(method: Method) -> Algorithm:
    """The user's own algorithm, checked."""
    value = method.algorithm
    made = check(_loaded(value) if isinstance(value, str) else _checked(value, type(value).__name__))
    if overrides(made, "aggregate") and method.topology != "star":
        raise BadInput(
            f"method {method.name!r}: algorithm {title(made)} has an aggregate of its own, which runs at a server, but "
            f"topology = {method.topology!r} has none; use topology = 'star'"
        )
    if overrides(made, "aggregate") and method.combine != "mean":
        raise BadInput(
            f"method {method.name!r}: algorithm {title(made)} has an aggregate of its own, so combine = "
            f"{method.combine!r} would have no effect; use combine = 'mean'"
        )
    return made


def _loaded(text: str) -> Algorithm:
    """An algorithm of the user's own: a class is called with the settings between parentheses, if there are any."""
    reference, settings = _parts(text)
    found = load(reference, "algorithm", "class")
    if not isinstance(found, type):
        raise BadInput(f"algorithm = {text!r}: {reference.function} is of type {type(found).__name__}; must be a class")
    if not issubclass(found, Algorithm):
        raise BadInput(f"algorithm = {text!r}: {reference.function} must be a subclass of firma.Algorithm")
    known = inspect.signature(found).parameters
    for name in settings:
        if name not in known and not any(each.kind is each.VAR_KEYWORD for each in known.values()):
            if not known:
                raise BadInput(f"algorithm = {text!r}: {reference.function} has no settings; omit {name}")
            raise unknown(f"algorithm = {text!r}: setting", name, known)
    try:
        return found(**settings)
    except (TypeError, ValueError) as error:
        raise BadInput(f"algorithm = {text!r}: cannot be made ({error})") from error


def _checked(value: object, shown: str) -> Algorithm:
    if isinstance(value, type) and issubclass(value, Algorithm):
        raise BadInput(f"algorithm = {value.__name__}: is a class; pass an object of it, {value.__name__}()")
    if not isinstance(value, Algorithm):
        raise BadInput(
            f"algorithm is of type {shown}; must be an object of a subclass of firma.Algorithm, MODULE:CLASS, or one "
            f"of {', '.join(get_args(AlgorithmName))}"
        )
    return value


def _parts(text: str) -> tuple[Reference, dict[str, Any]]:
    """MODULE:CLASS, and its settings: `mine:Mine(mu=0.1)`."""
    name, opened, inner = text.partition("(")
    reference = parsed(name.strip())
    if reference is None or (opened and not inner.endswith(")")):
        raise BadInput(f"algorithm = {text!r}: must have the form module:Class, or module:Class(setting=0.1)")
    try:
        call = ast.parse(f"settings({inner.removesuffix(')')})", mode="eval").body
        assert isinstance(call, ast.Call)
        if call.args or any(each.arg is None for each in call.keywords):
            raise ValueError("settings are given by name")
        return reference, {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    except (SyntaxError, ValueError, AssertionError):
        raise BadInput(
            f"algorithm = {text!r}: settings must be given by name, as numbers or quoted text: {name}(setting=0.1)"
        ) from None
