"""Turned images: the feature shift of `rotate-DEGREES`."""

import math
from collections.abc import Sequence

import numpy as np

from firma.data.dataset import Array
from firma.errors import BadInput

_CHANNELS = (1, 3, 4)
_CHUNK = 4096  # images at a time: bounds the memory of a turned data set, which is computed in float32


def check_images(shape: Sequence[int], name: str) -> None:
    """Refuse inputs that have no height and width to turn."""
    if not (len(shape) == 2 or (len(shape) == 3 and shape[0] in _CHANNELS)):
        raise BadInput(
            f"scenario = 'rotate-…': inputs of {name} have shape {tuple(shape)}; images are needed, (height, width) or "
            f"(channels, height, width) with 1, 3 or 4 channels"
        )


def rotated(images: Array, degrees: float) -> Array:
    """Images (n, h, w) or (n, c, h, w) turned counter-clockwise about their centre, black where nothing was before.

    Bilinear, in the images' own dtype, which integers are rounded to; 0 degrees gives the images themselves.
    """
    if degrees == 0 or not len(images):
        return images
    turned = np.empty(images.shape, images.dtype)
    for start in range(0, len(images), _CHUNK):
        chunk = _turn(images[start : start + _CHUNK], degrees)
        turned[start : start + _CHUNK] = chunk if images.dtype.kind == "f" else np.rint(chunk)
    return turned


def _turn(images: Array, degrees: float) -> Array:
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
