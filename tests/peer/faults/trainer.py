"""The tiny trainer: a model of a few numbers whose "training" is a formula, deterministic and instant.

Its head is made of numbers that nothing else in a ring can be mistaken for (float32 whose upper half is `_MARK`), so
that a head, or a part of one, is recognised in any bytes: four of its values in a row, as float32 or bfloat16, or one
of them in digits.
"""

import re
from types import SimpleNamespace

import torch
from torch import nn

from firma.models import SplitModel
from firma.training.local_step import Client

# Two tensors: what a message costs grows with their number, and rings per second are what finds mistakes.
LAYOUT = SplitModel(nn.Sequential(nn.Flatten(), nn.Linear(3, 8)), nn.Linear(8, 2)).layout()
CLASSES = 2
_EXTRACTOR, _HEAD = LAYOUT.span("extractor"), LAYOUT.span("head")
_FIRST = 14_286_848  # 2**23 + 0x5A0000: float32 from here to 65,535 above it have the upper half 0x4B5A
_MARK = b"\x5a\x4b"
_VALUES = re.compile(b"..".join([re.escape(_MARK)] * 4), re.DOTALL)
_DIGITS = re.compile(rb"14(?:2[89]|3[0-5])\d{4}\.\d")
_PARTS = [bytes([each]) for each in b"0123456789."]  # before digits: they are a part of another number
_BACKEND = SimpleNamespace(inward=torch.clone, outward=torch.clone)
_PLACES = torch.arange(_EXTRACTOR.stop - _EXTRACTOR.start)


def head_in(raw):
    """The first bytes of a head that is somewhere in these bytes, or None."""
    found = _VALUES.search(raw) or next(
        (each for each in _DIGITS.finditer(raw) if raw[max(each.start() - 1, 0) : each.start()] not in _PARTS), None
    )
    place = found.start() if found else raw.find(_MARK * 4)
    return raw[place : place + 24] if place >= 0 else None


def first_parameters(number):
    """(P,) of a member before its first round."""
    flat = torch.linspace(-1, 1, LAYOUT.size) * (number + 1)
    return _with_head(flat, number, 0)


def trained(parameters, number, turn):
    """((P,), accuracy) after local training in round `turn`, from 0."""
    flat = parameters.clone()
    flat[_EXTRACTOR] = 0.9 * flat[_EXTRACTOR] + 0.1 * torch.sin(_PLACES * (number + 1.5) + turn)
    accuracy = float(flat[_EXTRACTOR].abs().mean().clamp(0, 1))
    return _with_head(flat, number, int(flat[_HEAD.start]) + 1 - _FIRST), accuracy


def blended(parameters, extractor):
    """(P,) with another extractor and the same head."""
    flat = parameters.clone()
    flat[_EXTRACTOR] = extractor
    return flat


def shared(parameters):
    """(E,) the extractor."""
    return parameters[_EXTRACTOR].clone()


def samples(number):
    return 10 + 3 * number


def _with_head(flat, number, trainings):
    """The head counts how often it was trained: it is as private as it is particular to its site."""
    flat[_HEAD] = torch.arange(_HEAD.stop - _HEAD.start, dtype=torch.float32) * 256 + number * 4096 + _FIRST
    flat[_HEAD.start] = _FIRST + trainings
    return flat


class TinySite:
    """What `round_loop` and `checkpoint` need of a `LocalSite`."""

    architecture = "tiny"
    task = SimpleNamespace(main="accuracy")
    backend = _BACKEND

    def __init__(self, number):
        self.number, self.samples = number, samples(number)
        self.client = Client(number, None, first_parameters(number), {})

    @property
    def parameters(self):
        return self.client.parameters

    @property
    def shared(self):
        return shared(self.client.parameters)

    def train(self, plan):
        self.client.parameters, accuracy = trained(self.client.parameters, self.number, plan.number)
        return accuracy

    def blend(self, extractor, plan):
        self.client.parameters = blended(self.client.parameters, extractor)

    def adopt(self, extractor):
        self.client.parameters = blended(self.client.parameters, extractor)

    def extractor_in(self, saved):
        return shared(saved["parameters"])

    def score(self, extractor):
        return float(extractor.abs().mean() < 1)

    def test(self, plan):
        return self.measure()

    def measure(self):
        return {"accuracy": float(self.shared.abs().mean().clamp(0, 1))}
