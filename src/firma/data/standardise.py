"""Standardisation of inputs: by a client's own training data alone, or by the constants of a public data set.

With statistics of its own, a client's training inputs have mean 0 and deviation 1. Constants are known to everybody and
the same for all clients; only the data sets of the catalogue have them.
"""

import json
import warnings
from dataclasses import dataclass
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from firma.data.catalogue import PUBLIC
from firma.data.dataset import Array, Dataset
from firma.errors import BadInput
from firma.settings import Standardise

_CHUNK = 4096  # rows at a time: moments are computed in float64, this bounds their memory
_RATIO = 100.0  # of deviations, from which features are of very different scales
_SAMPLED = 10_000  # rows that are enough to tell


@dataclass(frozen=True, eq=False)
class Standardiser:
    """x ↦ (scale·x - mean) / deviation, as float32; `mean` and `deviation` have the shape that `moment_axes` leaves.

    The deviation of a feature that is constant is 1: the feature becomes 0.
    """

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    scale: float = 1.0

    def apply(self, x: Array) -> NDArray[np.float32]:
        """(n, …) inputs as stored, standardised."""
        result = np.empty(x.shape, np.float32)
        for start in range(0, len(x), _CHUNK):
            chunk = x[start : start + _CHUNK] * np.float64(self.scale)
            result[start : start + _CHUNK] = (chunk - self.mean) / self.deviation
        return result

    def as_json(self) -> str:
        """The statistics as a JSON document, exact to the bit."""
        return json.dumps({"mean": self.mean.tolist(), "deviation": self.deviation.tolist(), "scale": self.scale})


def standardiser_from_json(text: str) -> Standardiser:
    """The inverse of `Standardiser.as_json`."""
    try:
        found = json.loads(text)
        mean, deviation = np.array(found["mean"], np.float64), np.array(found["deviation"], np.float64)
        return Standardiser(mean, deviation, float(found["scale"]))
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"standardiser: not a document of mean, deviation and scale ({error})") from None


def moment_axes(dimensions: int) -> tuple[int, ...]:
    """The axes of (n, …) inputs that share a mean and a deviation.

    A table (n, features) has one per feature, images (n, height, width) one in all, and (n, channels, height, width)
    one per channel.
    """
    return {2: (0,), 3: (0, 1, 2), 4: (0, 2, 3)}.get(dimensions, (0, *range(2, dimensions)))


def fit_standardiser(x: Array, scale: float = 1.0) -> Standardiser:
    """Mean and population deviation of (n, …) training inputs, which a model sees times `scale`."""
    axes = moment_axes(x.ndim)
    count = float(np.prod([x.shape[axis] for axis in axes]))
    chunks = range(0, len(x), _CHUNK)

    def scaled(start: int) -> NDArray[np.float64]:
        return np.asarray(x[start : start + _CHUNK] * np.float64(scale), dtype=np.float64)

    def total(parts: list[Array]) -> NDArray[np.float64]:
        return np.asarray(np.sum(parts, axis=0), dtype=np.float64)

    mean = total([scaled(start).sum(axis=axes, keepdims=True)[0] for start in chunks]) / count
    squares = total([((scaled(start) - mean) ** 2).sum(axis=axes, keepdims=True)[0] for start in chunks])
    constant = x.max(axis=axes, keepdims=True)[0] == x.min(axis=axes, keepdims=True)[0]
    # Rounding leaves the mean of a constant a little off its value: centred on the value itself it becomes 0.
    mean = np.where(constant, scaled(0)[:1].max(axis=axes, keepdims=True)[0], mean)
    return Standardiser(mean, np.where(constant, 1.0, np.sqrt(squares / count)), scale)


def constants_of(dataset: Dataset) -> Standardiser | None:
    """The usual constants of a data set of the catalogue, stored as bytes; None for any other data."""
    known = PUBLIC.get(dataset.name)
    if known is None or dataset.shape != known.shape or dataset.x_train.dtype != np.uint8:
        return None
    channels = (-1, *(1 for _ in known.shape[1:])) if len(known.mean) > 1 else tuple(1 for _ in known.shape)
    mean, deviation = (np.array(each, np.float64).reshape(channels) for each in (known.mean, known.deviation))
    return Standardiser(mean, deviation, dataset.scale)


def is_standardised(dataset: Dataset, how: Standardise) -> bool:
    """Whether a client's inputs are standardised: constants do nothing for data that have none."""
    return how == "per-client" or (how == "constants" and constants_of(dataset) is not None)


def standardiser_of(dataset: Dataset, how: Standardise, train: Array) -> Standardiser | None:
    """How a client with these training inputs, as stored, standardises what it has; None if it does not."""
    match how:
        case "none":
            return None
        case "per-client":
            return fit_standardiser(train, dataset.scale)
        case "constants":
            return constants_of(dataset)
        case _:
            assert_never(how)


def warn_of_scales(dataset: Dataset, option: str = "--standardise per-client") -> None:
    """Warn if the features of a table differ in scale by more than a factor of 100: the largest drowns the others.

    The scale of a feature is its deviation in the training data. Constants have none; a column of two values, such as 0
    and 1, counts with half their distance however rare one of them is. Bytes and images are left alone.
    """
    x = dataset.x_train
    if x.ndim != 2 or x.dtype.kind != "f":
        return
    x = x[:: -(-len(x) // _SAMPLED)]
    low, high = x.min(axis=0), x.max(axis=0)
    two_valued = ((x == low) | (x == high)).all(axis=0)
    scales = np.where(two_valued, (high - low) / 2.0, x.std(axis=0, dtype=np.float64))
    features = np.flatnonzero(scales > 0)
    if not len(features):
        return
    large, small = features[scales[features].argmax()], features[scales[features].argmin()]
    if scales[large] > _RATIO * scales[small]:
        names = [_named(dataset, int(feature)) for feature in (large, small)]
        warnings.warn(
            f"dataset {dataset.name}: features are of very different scales: the standard deviation of {names[0]} is "
            f"{scales[large]:.3g}, that of {names[1]} {scales[small]:.3g}; training may fail; use {option}, "
            "or scale the features yourself",
            UserWarning,
            stacklevel=2,
        )


def _named(dataset: Dataset, feature: int) -> str:
    return f"column {dataset.columns[feature]!r}" if dataset.columns else f"feature {feature}"
