"""What a model is fed, and the forward pass that shows that it can process it."""

from dataclasses import dataclass

import numpy as np
import torch

from firma.errors import BadInput
from firma.models.split_model import SplitModel


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input as it is stored: its shape, its dtype, and the factor that turns bytes into what a model sees."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    scale: float = 1.0


def probed(model: SplitModel, inputs: InputSpec, outputs: int) -> SplitModel:
    """The user's own modules, after one forward pass of two samples in evaluation mode."""
    probe = model.copy()
    probe.extractor.eval()
    probe.head.eval()
    try:
        with torch.no_grad():
            logits = probe.head(probe.extractor(torch.zeros(2, *inputs.shape)))
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        reason = str(error).partition("\n")[0]
        raise BadInput(f"model: cannot process inputs of shape {inputs.shape} ({reason})") from None
    if tuple(logits.shape) != (2, outputs):
        raise BadInput(f"model: logits of two samples have shape {tuple(logits.shape)}; must be (2, {outputs})")
    if not model.layout().extractor:
        raise BadInput("model: the extractor has no parameters, so there is nothing to share")
    return model
