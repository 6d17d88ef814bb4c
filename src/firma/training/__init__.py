"""Local training of clients: by autograd for any model, by compiled kernels for plain stacks."""

from firma.training.backend import Path, choose
from firma.training.client import Client, Job, Moments, Trainer

__all__ = ["Client", "Job", "Moments", "Path", "Trainer", "choose"]
