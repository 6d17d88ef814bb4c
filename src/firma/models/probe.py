"""What a model is fed, and the forward passes that show that it can process it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from firma.errors import BadInput
from firma.models.split_model import InputKind, SplitModel


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input as it is stored: its shape, its dtype, and the factor that turns bytes into what a model sees."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    scale: float = 1.0


def probed(model: SplitModel, inputs: InputSpec, outputs: int) -> SplitModel:
    """The user's own modules, after forward passes of two samples and of one, of zeros, in evaluation mode.

    The model decides what it is fed. Integers are tried as integers first, and as floats if the model cannot process
    integers. Bytes (uint8) are tried as floats first, for they are mostly images, and as integers if the model cannot
    process floats, such as a model that begins with an embedding. Floats are floats.

    Lazy layers get their shapes, and weights from torch's generator as it is; torch's generator is left unchanged.
    Modules that cannot be trained as they are get one sentence that says why.
    """
    _check_parameters(model)
    with torch.random.fork_rng(devices=[]):
        found = _fitting(model, inputs, outputs)
    _check_memory(found)
    layout = found.layout()
    if layout.extractor == layout.buffers:
        held = [name for name, _ in found.named_frozen() if name.startswith("extractor.")]
        what = f"no trainable parameters: all {len(held)} are frozen" if held else "no parameters"
        raise BadInput(
            f"model: the extractor has {what}, so there is nothing to share; put a layer with trainable parameters "
            "into it, whatever the method shares"
        )
    return found


def kinds(dtype: np.dtype[np.generic]) -> tuple[InputKind, ...]:
    """What inputs that are stored with this dtype may be fed as, in the order in which it is tried."""
    if dtype == np.uint8:
        return ("float32", "int64")
    return ("int64", "float32") if dtype.kind in "iub" else ("float32",)


def _fitting(model: SplitModel, inputs: InputSpec, outputs: int) -> SplitModel:
    """The model with the kind of input that it can process; lazy layers get their shapes on the way."""
    reasons: dict[InputKind, str] = {}
    cause: Exception | None = None
    for kind in kinds(inputs.dtype):
        trial = _copied(model)
        try:
            result = _outputs(trial, inputs, kind)
        except BadInput:
            raise
        except Exception as error:  # whatever the user's forward raises
            reasons[kind], cause = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}", cause or error
            continue
        _check_outputs(result, outputs)
        return replace(_as_before(trial, model) if _lazy(model) else model, inputs=kind)
    raise BadInput(_refusal(model, inputs, reasons)) from cause


def _outputs(trial: SplitModel, inputs: InputSpec, kind: InputKind) -> dict[int, Tensor]:
    """Logits by the number of samples: of two, and of one where the model can process a single sample."""
    trial.extractor.eval()
    trial.head.eval()
    found = {}
    with torch.no_grad():
        for samples in (2, 1):
            try:
                found[samples] = _logits(trial, torch.zeros(samples, *inputs.shape, dtype=getattr(torch, kind)))
            except BadInput:
                raise
            except Exception:
                if samples == 2:
                    raise
    return found


def _logits(model: SplitModel, inputs: Tensor) -> Tensor:
    features = model.extractor(inputs)
    if not isinstance(features, Tensor):
        given = f"for inputs of shape {tuple(inputs.shape[1:])}"
        raise BadInput(f"model: {given} the extractor returns {_what(features)}; must return one tensor")
    logits = model.head(features)
    if not isinstance(logits, Tensor):
        raise BadInput(f"model: the head returns {_what(logits)}; must return one tensor, the logits")
    return logits


def _check_outputs(found: dict[int, Tensor], outputs: int) -> None:
    for samples, logits in found.items():
        if tuple(logits.shape) != (samples, outputs):
            of = "two samples" if samples == 2 else "one sample"
            raise BadInput(f"model: logits of {of} have shape {tuple(logits.shape)}; must be ({samples}, {outputs})")
        if not logits.is_floating_point():
            raise BadInput(f"model: logits are {_dtype(logits)}; must be floats")


def _refusal(model: SplitModel, inputs: InputSpec, reasons: dict[InputKind, str]) -> str:
    """Why no kind of input works, and what to do if integers would."""
    if len(reasons) == 1:
        said = next(iter(reasons.values()))
        try:
            _outputs(_copied(model), inputs, "int64")
        except Exception:  # then integers are no way out
            return f"model: cannot process inputs of shape {inputs.shape} ({said})"
        return (
            f"model: takes integers, but inputs are {inputs.dtype} ({said}); store them with an integer dtype, such as "
            "int64, or let the model take floats"
        )
    both = ", ".join(f"as {kind}: {said}" for kind, said in reasons.items())
    return f"model: cannot process inputs of shape {inputs.shape} and dtype {inputs.dtype} ({both})"


def _copied(model: SplitModel) -> SplitModel:
    try:
        return model.copy()
    except Exception as error:  # whatever a module's own __deepcopy__ or __getstate__ raises
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise BadInput(f"model: cannot be copied with copy.deepcopy, as every client needs one ({reason})") from error


def _as_before(trial: SplitModel, model: SplitModel) -> SplitModel:
    """The trial, whose lazy layers now have shapes, with every module in the mode that the user left it in."""
    for mine, theirs in zip(_modules(trial), _modules(model), strict=True):
        mine.training = theirs.training
    return trial


def _modules(model: SplitModel) -> Iterator[nn.Module]:
    return chain(model.extractor.modules(), model.head.modules())


def _lazy(model: SplitModel) -> bool:
    tensors = (*model.extractor.parameters(), *model.head.parameters(), *model.extractor.buffers())
    return any(is_lazy(tensor) for tensor in (*tensors, *model.head.buffers()))


def _check_parameters(model: SplitModel) -> None:
    """Trainable parameters must be float32, and none may belong to both parts."""
    for name, parameter in model.named_parameters():
        if parameter.dtype != torch.float32 and not is_lazy(parameter):
            raise BadInput(
                f"model: parameter {name!r} is {_dtype(parameter)}; trainable parameters must be float32: convert the "
                "model with .float(), or freeze this parameter with requires_grad_(False)"
            )
    shared = {id(each): name for name, each in model.extractor.named_parameters() if each.requires_grad}
    for name, each in model.head.named_parameters():
        if id(each) in shared:
            raise BadInput(
                f"model: extractor and head share a parameter ('extractor.{shared[id(each)]}' is 'head.{name}'); a "
                "head stays private, so it must have parameters of its own"
            )


def _check_memory(model: SplitModel) -> None:
    """No trainable or shared tensor may overlap another in memory, and no buffer that travels may be the head's."""
    moving = [*model.named_parameters(), *model.named_shared_buffers()]
    spans = sorted(
        (*_span(tensor), name, moves)
        for tensors, moves in ((moving, True), (list(model.named_frozen()), False))
        for name, tensor in tensors
        if tensor.numel() and not tensor.is_meta
    )
    for (_, end, one, first), (start, _, other, second) in pairwise(spans):
        if start < end and (first or second):
            raise BadInput(
                f"model: {one!r} and {other!r} share memory but are different tensors; to tie weights, assign one "
                "Parameter to both layers: b.weight = a.weight"
            )
    head = {id(buffer) for buffer in model.head.buffers()}
    for name, buffer in model.named_shared_buffers():
        if id(buffer) in head:
            raise BadInput(f"model: buffer {name!r} is shared with others, but it also belongs to the head")


def _span(tensor: Tensor) -> tuple[int, int]:
    """First byte of a tensor in memory, and the byte after its last."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def _what(found: object) -> str:
    """A value that is not a tensor, for people."""
    if isinstance(found, tuple | list):
        return f"a {type(found).__name__} of {len(found)}"
    if isinstance(found, dict):
        return f"a dict with keys {', '.join(map(str, found))}" if found else "an empty dict"
    return "None" if found is None else f"an object of type {type(found).__name__}"


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
