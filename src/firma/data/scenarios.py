"""Scenarios, the kinds of heterogeneity: their names, how each splits rows among clients, and rotated images."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firma.data.dataset import Array
from firma.errors import BadInput, suggestion

_PLAIN = ("iid", "natural")
_NUMBERED = re.compile(r"(dir|quantity|rotate)-(\d+\.?\d*(?:e-?\d+)?|\.\d+)|(skew)-(\d+)")
_CHANNELS = (1, 3, 4)
_CHUNK = 4096  # images at a time: rotation computes in float32, this bounds its memory
CHOICES = (
    "iid, dir-ALPHA (such as dir-0.5), skew-K (such as skew-1), quantity-ALPHA (such as quantity-0.5), "
    "rotate-DEGREES (such as rotate-90) or natural"
)
_NUMBERS = "ALPHA and DEGREES must be positive, K a positive integer"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A kind of heterogeneity and its number, if it has one."""

    name: str
    number: float = 0.0


def parse(text: str) -> Scenario:
    """`iid` and `natural`; `dir-`, `quantity-` and `rotate-` with any positive number; `skew-K` with K ≥ 1 classes."""
    if text in _PLAIN:
        return Scenario(text)
    if found := _NUMBERED.fullmatch(text):
        scenario = Scenario(found[1] or found[3], float(found[2] or found[4]))
        if 0 < scenario.number < float("inf"):
            return scenario
    kind = text.partition("-")[0]
    hint = "" if kind in _KINDS else suggestion(kind, _KINDS)
    raise BadInput(f"scenario {text!r} is invalid{hint}; choose from {CHOICES}; {_NUMBERS}")


_KINDS = ("iid", "dir", "skew", "quantity", "rotate", "natural")
_MORE_EVEN = ("dir", "quantity")  # a larger number is more even


def order(text: str) -> tuple[int, float]:
    """Where a scenario stands in tables: by kind, and from even to uneven among the Dirichlet ones."""
    scenario = parse(text)
    return _KINDS.index(scenario.name), -scenario.number if scenario.name in _MORE_EVEN else scenario.number


Indices = NDArray[np.int64]  # row numbers
_PRIMARY, _SECONDARY, _MINORITY = 0.55, 0.20, 0.03  # label skew: share of a client's samples per class


def dirichlet(
    labels: NDArray[np.int64], classes: int, alpha: float, clients: int, rng: np.random.Generator
) -> list[Indices]:
    """Rows per client: each class is shared out by one draw from Dir(α·1), rounded down, the last gets the rest."""
    parts: list[list[Indices]] = [[] for _ in range(clients)]
    for label in range(classes):
        rows = rng.permutation(np.flatnonzero(labels == label))
        cuts = np.floor(rng.dirichlet(np.full(clients, alpha)) * len(rows)).astype(np.int64)[:-1].cumsum()
        for part, mine in zip(parts, np.split(rows, cuts), strict=True):
            part.append(mine)
    return [np.concatenate(part) for part in parts]


def skew_shares(primary: int, clients: int, classes: int) -> NDArray[np.float64]:
    """(N, C) share of each class in the samples that a client asks for; rows need not sum to 1."""
    if 2 * primary + 1 > classes:
        needed = f"K primary and K+1 secondary classes require {2 * primary + 1} classes"
        raise BadInput(f"scenario = 'skew-{primary}': {needed}, but the data have {classes}; use a smaller K")
    shares = np.full((clients, classes), _MINORITY)
    for client in range(clients):
        first = client * primary
        shares[client, [(first + k) % classes for k in range(primary)]] = _PRIMARY
        shares[client, [(first + primary + k) % classes for k in range(primary + 1)]] = _SECONDARY
    return shares


def sequential_budget(samples: int, clients: int) -> int:
    """Samples of which a client asks for shares, by the paper's text: n/N, rounded down, at least 20."""
    return max(20, samples // clients)


def reduced_budget(samples: int, clients: int, primary: int) -> int:
    """The budget behind the paper's figures: 2n/(N(K+1)), rounded down, at least 20; n/N with K = 1 primary class."""
    return max(20, 2 * samples // (clients * (primary + 1)))


def skew_sequential(
    labels: NDArray[np.int64], classes: int, primary: int, clients: int, budget: int, rng: np.random.Generator
) -> list[Indices]:
    """Client by client until a class is used up, so the last clients may get few samples or none."""
    pools = [np.flatnonzero(labels == label) for label in range(classes)]
    for pool in pools:
        rng.shuffle(pool)
    asked = (skew_shares(primary, clients, classes) * budget).astype(np.int64)
    parts = []
    for wishes in asked:
        parts.append(np.concatenate([pool[:wish] for pool, wish in zip(pools, wishes, strict=True)]))
        pools = [pool[wish:] for pool, wish in zip(pools, wishes, strict=True)]
    return parts


def fair_counts(labels: NDArray[np.int64], shares: NDArray[np.float64], classes: int) -> Indices:
    """(N, C) numbers of samples in the given shares: every client gets the same total, no class more than it has."""
    mix = shares / shares.sum(axis=1, keepdims=True)
    held = np.bincount(labels, minlength=classes)
    budget = int((held / mix.sum(axis=0)).min())
    for size in range(budget, 0, -1):
        counts = apportion(mix * size, held)
        if (counts.sum(axis=1) == size).all():
            return counts
    raise BadInput(f"clients = {len(shares)}: too many for {len(labels)} samples in {classes} classes; use fewer")


def quantity_counts(labels: Indices, classes: int, alpha: float, clients: int, rng: np.random.Generator) -> Indices:
    """(N, C) numbers of samples: sizes by one draw from Dir(α·1_N), equal class proportions, every row used."""
    held = np.bincount(labels, minlength=classes)
    wanted = np.outer(held, rng.dirichlet(np.full(clients, alpha)))
    return apportion(wanted, np.full(clients, len(labels))).T


def apportion(wanted: NDArray[np.float64], held: NDArray[np.int64]) -> Indices:
    """Integers near (N, C) `wanted`: no column sum above `held`, row sums rounded down where that allows it.

    Each number is rounded down; what a row then lacks goes to its largest remainders in classes that have samples left.
    """
    counts = np.floor(wanted + 1e-9).astype(np.int64)
    left = held - counts.sum(axis=0)
    for row, wishes in enumerate(wanted):
        lacking = int(np.floor(wishes.sum() + 1e-9)) - int(counts[row].sum())
        for label in np.argsort(counts[row] - wishes, kind="stable"):
            if lacking > 0 and left[label] > 0 and wishes[label] > 0:
                counts[row, label] += 1
                left[label] -= 1
                lacking -= 1
    return counts


def take(labels: NDArray[np.int64], counts: Indices, rng: np.random.Generator) -> list[Indices]:
    """Row numbers by (N, C) counts: every class is shuffled once and cut in the order of the clients."""
    parts: list[list[Indices]] = [[] for _ in counts]
    for label in range(counts.shape[1]):
        rows = rng.permutation(np.flatnonzero(labels == label))
        for part, mine in zip(parts, np.split(rows, counts[:, label].cumsum())[:-1], strict=True):
            part.append(mine)
    return [np.concatenate(part) for part in parts]


def check_images(shape: Sequence[int], name: str) -> None:
    """Refuse inputs that are not images."""
    if not (len(shape) == 2 or (len(shape) == 3 and shape[0] in _CHANNELS)):
        raise BadInput(
            f"scenario = 'rotate-…': inputs of {name} have shape {tuple(shape)}; they must be images, (height, width) "
            f"or (channels, height, width) with 1, 3 or 4 channels"
        )


def rotated(images: Array, degrees: float) -> Array:
    """Images (n, h, w) or (n, c, h, w) rotated counter-clockwise about their centre, filled with black.

    Bilinear, in the dtype of the images (integers are rounded); 0 degrees gives the images themselves.
    """
    if degrees == 0 or not len(images):
        return images
    result = np.empty(images.shape, images.dtype)
    for start in range(0, len(images), _CHUNK):
        chunk = _rotate(images[start : start + _CHUNK], degrees)
        result[start : start + _CHUNK] = chunk if images.dtype.kind == "f" else np.rint(chunk)
    return result


def rotated_pairs(table: Array, degrees: float, centre: NDArray[np.float64], spread: NDArray[np.float64]) -> Array:
    """A table (n, d) whose features 0 and 1, 2 and 3, … are rotated into each other, about `centre` and in `spread`s.

    With z = (x - centre) / spread, z'_a = z_a cos φ - z_b sin φ and z'_b = z_a sin φ + z_b cos φ. The last of an odd
    number of features stays as it is; 0 degrees gives the table itself.
    """
    if degrees == 0 or not len(table):
        return table
    z = (table - centre) / spread
    even = z.shape[1] // 2 * 2
    a, b = z[:, 0:even:2].copy(), z[:, 1:even:2].copy()
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    z[:, 0:even:2], z[:, 1:even:2] = a * cosine - b * sine, a * sine + b * cosine
    result = table.copy()
    result[:, :even] = (centre + spread * z)[:, :even]
    return result


def _rotate(images: Array, degrees: float) -> Array:
    import torch
    from torch.nn.functional import grid_sample

    height, width = images.shape[-2:]
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    down, right = torch.meshgrid(
        torch.arange(height) - (height - 1) / 2, torch.arange(width) - (width - 1) / 2, indexing="ij"
    )
    # Where each pixel comes from, in grid_sample's units: -1 and 1 are the outer edges of the image.
    across = (right * cosine - down * sine) * 2 / width
    along = (right * sine + down * cosine) * 2 / height
    pixels = torch.from_numpy(images.astype(np.float32).reshape(len(images), -1, height, width))
    places = torch.stack([across, along], dim=-1).expand(len(images), -1, -1, -1)
    sampled = grid_sample(pixels, places, mode="bilinear", padding_mode="zeros", align_corners=False)
    return sampled.numpy().reshape(images.shape)
