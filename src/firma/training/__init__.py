"""Local training of clients: by autograd for any model, by compiled kernels for plain stacks."""

from firma.training.backend import Backend, choose
from firma.training.client import Client, Job, Moments, Trainer

__all__ = ["Backend", "Client", "Job", "Moments", "Trainer", "choose"]
