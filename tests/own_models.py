"""Models of the user's own, as files in a folder that is the current one."""

import sys
from contextlib import contextmanager
from importlib.machinery import ModuleSpec

import pytest

NET = """
from math import prod

from torch import nn

from layers import Scale


class Net(nn.Module):
    def __init__(self, size, width, outputs):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(size, width), nn.Tanh(), Scale(width))
        self.fc = nn.Linear(width, outputs)

    def forward(self, x):
        return self.fc(self.body(x))


def whole(shape, outputs, width: int = 8):
    return Net(prod(shape), width, outputs)


def build(shape, classes, width: int = 8):
    net = Net(prod(shape), width, classes)
    return net.body, net.fc
"""
LAYERS = """
import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * self.weight
"""
# LoRA: a frozen base, and a product of two small matrices that is trained and shared.
ADAPTER = """
from math import prod

import torch
from torch import nn


class Adapted(nn.Module):
    def __init__(self, inputs, outputs, rank):
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(False)
        self.down = nn.Linear(inputs, rank, bias=False)
        self.up = nn.Linear(rank, outputs, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def build(shape, outputs, rank: int = 2, weights: float = 1.0):
    extractor = nn.Sequential(nn.Flatten(), Adapted(prod(shape), 16, rank), nn.ReLU())
    with torch.no_grad():
        extractor[1].base.weight *= weights
    return extractor, nn.Linear(16, outputs)
"""
# One module that reads integers only.
WORDS = """
from torch import nn


class Words(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.embedding, self.fc = nn.Embedding(9, 4), nn.Linear(4, outputs)

    def forward(self, tokens):
        return self.fc(self.embedding(tokens).mean(1))
"""


def write_models(folder):
    """mynet.py with layers.py beside it, adapter.py and words.py."""
    for name, text in (("mynet", NET), ("layers", LAYERS), ("adapter", ADAPTER), ("words", WORDS)):
        (folder / f"{name}.py").write_text(text)
    return folder


def forget(folder):
    """Modules of this folder are imported anew, as another process would."""
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        places = [spec.origin, *(spec.submodule_search_locations or [])] if isinstance(spec, ModuleSpec) else []
        if any(str(place).startswith(str(folder)) for place in places):
            del sys.modules[name]


@contextmanager
def modules_of(folder):
    """The folder is the current one, and nothing of it stays in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        try:
            yield folder
        finally:
            forget(folder)
