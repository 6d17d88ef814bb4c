"""One module, cut into extractor and head at the name of its last layer."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from firma.errors import BadInput, unknown
from firma.models.probe import InputSpec, kinds
from firma.models.split_model import InputKind, SplitModel

_SAMPLES = 2


def cut(module: nn.Module, head: str, inputs: InputSpec, vocabulary: int = 2) -> SplitModel:
    """Extractor: a copy of the module with `nn.Identity` in place of its head; head: the layer of that name.

    `head` is a path of attributes, such as "fc" or "classifier.1". The cut is right if head(extractor(x)) = module(x)
    bit for bit; this is tried in training and in evaluation mode, and a cut that changes the model is refused. So is a
    head that shares a parameter with the extractor, for then sharing the extractor would share the head.
    """
    names = [name for name, _ in module.named_modules() if name]
    if not names:
        raise BadInput(f"head = {head!r}: the model is a single layer ({type(module).__name__}) and cannot be cut")
    if head not in names:
        raise unknown("head", head, names if len(names) <= 12 else [name for name in names if "." not in name])
    x = _fitting(module, inputs, vocabulary)
    if _lazy(module):
        module = _copied(module)
        with torch.no_grad():
            module.eval()(x)  # gives lazy layers their shapes, and weights from torch's generator as it is
    extractor = _copied(module)
    parent, _, last = head.rpartition(".")
    taken = extractor.get_submodule(head)
    setattr(extractor.get_submodule(parent), last, nn.Identity())
    if {id(each) for each in taken.parameters()} & {id(each) for each in extractor.parameters()}:
        raise BadInput(
            f"head = {head!r} shares a parameter with the rest of the model (tied weights), so it cannot stay private; "
            "give it parameters of its own, or name another layer"
        )
    found = SplitModel(extractor, taken)
    if not _same(module, found, x, head):
        raise BadInput(
            f"head = {head!r} is not the last layer: head(extractor(x)) differs from the model's own output; name the "
            "layer whose output the model returns, or return a pair (extractor, head)"
        )
    return found


def missing_head(module: nn.Module) -> BadInput:
    """The error for one module without the name of its head, with a name that is likely meant."""
    names = [name for name, _ in module.named_children()]
    called = type(module).__name__
    if not names:
        return BadInput(
            f"model: {called} is a single layer; pass a pair of modules (extractor, head), or a module with layers and "
            "the name of its head"
        )
    last, inner = names[-1], list(dict(module.named_children())[names[-1]].named_children())
    while inner:  # the last layer of the last layer
        last, inner = f"{last}.{inner[-1][0]}", list(inner[-1][1].named_children())
    return BadInput(
        f"model: {called} is one module; name the layer that is its head, such as head={last!r} (--head {last}), or "
        "pass a pair of modules (extractor, head)"
    )


def _same(whole: nn.Module, parts: SplitModel, x: Tensor, head: str) -> bool:
    """Whether the parts compute what the module computes, on random inputs, in both modes, with the same draws."""
    for training in (False, True):
        expected = _outcome(whole, x, training)
        if not isinstance(expected, Tensor):
            continue  # in training mode: the model cannot be trained on two samples, which is not for the cut to say
        joined = nn.Sequential(parts.extractor, parts.head)
        found = _outcome(joined, x, training)
        if isinstance(found, str):
            raise BadInput(
                f"head = {head!r}: the model does not work without this layer ({found}); "
                "name the layer whose output the model returns"
            )
        if not (isinstance(found, Tensor) and torch.equal(found, expected)):
            return False
    return True


def _outcome(module: nn.Module, x: Tensor, training: bool) -> Tensor | str:
    """What the module returns in this mode, or its error as text; the module stays as it is."""
    if training and next(module.buffers(), None) is not None:
        module = _copied(module)  # a pass in training mode changes running statistics
    before = [(each, each.training) for each in module.modules()]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        try:
            found = module.train(training)(x)
        except Exception as error:  # whatever the user's forward raises
            return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        finally:
            for each, mode in before:
                each.training = mode
    return found if isinstance(found, Tensor) else f"its output is of type {type(found).__name__}; must be a tensor"


def _copied(module: nn.Module) -> nn.Module:
    return SplitModel(module, nn.Identity()).copy().extractor


def _lazy(module: nn.Module) -> bool:
    return any(is_lazy(each) for each in module.parameters())


def _fitting(module: nn.Module, inputs: InputSpec, vocabulary: int) -> Tensor:
    """(2, …) random inputs that the module can process: floats or integers, as `probe.kinds` says."""
    reasons: list[str] = []
    for kind in kinds(inputs.dtype):
        x = _random(inputs, kind, vocabulary)
        found = _outcome(_copied(module) if _lazy(module) else module, x, training=False)
        if isinstance(found, Tensor):
            return x
        reasons.append(found)
    raise BadInput(f"model: cannot process inputs of shape {inputs.shape} ({reasons[0]})")


def _random(inputs: InputSpec, kind: InputKind, vocabulary: int) -> Tensor:
    """(2, …) inputs as the model sees them: integers below the vocabulary, bytes scaled, or normal floats."""
    rng = np.random.default_rng(0)
    size = (_SAMPLES, *inputs.shape)
    if kind == "int64":
        return torch.from_numpy(rng.integers(0, vocabulary, size))
    if inputs.dtype == np.uint8:
        return torch.from_numpy(rng.integers(0, 256, size)).float() * inputs.scale
    return torch.from_numpy(rng.normal(size=size)).float()
