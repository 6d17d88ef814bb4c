"""Optimiser steps on flat buffers, each one kernel where torch has it; the arithmetic is that of torch.optim."""

import torch
from torch import Tensor


def sgd_step(parameters: Tensor, gradients: Tensor, velocity: Tensor, rate: float, momentum: float) -> None:
    """v ← μv + g, p ← p − ηv, in place. A velocity of zeros is a fresh optimiser."""
    velocity.mul_(momentum).add_(gradients)
    parameters.add_(velocity, alpha=-rate)


def adam_step(parameters: Tensor, gradients: Tensor, first: Tensor, second: Tensor, step: int, rate: float) -> None:
    """Adam with β = (0.9, 0.999), ε = 1e-8, in place; `step` counts from 1. Zero moments and step 1: a fresh one."""
    torch._fused_adam_(  # the kernel behind torch.optim.Adam(fused=True), without its 50 µs of bookkeeping
        [parameters], [gradients], [first], [second], [], [torch.tensor(float(step), device=parameters.device)],
        lr=rate, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
    )  # fmt: skip
