"""What is known of a model's layers: which are plain, which depend on their sample alone, and which never draw.

Only exact types are known: a subclass, a hook or a `forward` of an instance's own may compute anything.
"""

from collections.abc import Iterable, Iterator

from torch import nn
from torch.nn.modules import module as torch_module
from torch.nn.utils import parametrize

from firma.models.split_model import SplitModel

# Layers whose output for a sample depends on that sample alone and is the same each time: a frozen extractor made
# of these needs to see the data only once.
_SAMPLEWISE = (
    nn.Linear, nn.LayerNorm, nn.GroupNorm, nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.LeakyReLU, nn.ELU,
    nn.Flatten, nn.Unflatten, nn.Identity, nn.Conv1d, nn.Conv2d, nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d,
    nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d,
)  # fmt: skip
# Layers that may mix samples or keep statistics in buffers, but never draw random numbers.
_STEADY = (
    *_SAMPLEWISE, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.InstanceNorm1d, nn.InstanceNorm2d,
    nn.InstanceNorm3d, nn.Embedding, nn.PReLU, nn.ReLU6, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.Mish,
    nn.Softplus, nn.Softsign, nn.Softmax, nn.LogSoftmax, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d,
    nn.ConvTranspose3d, nn.MaxPool3d, nn.AvgPool3d, nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool1d, nn.Upsample,
    nn.ZeroPad2d, nn.PixelShuffle, nn.LocalResponseNorm,
)  # fmt: skip
_HOOKS = {
    "_forward_hooks": "a forward hook",
    "_forward_pre_hooks": "a forward pre-hook",
    "_backward_hooks": "a backward hook",
    "_backward_pre_hooks": "a backward pre-hook",
}


def samplewise(module: nn.Module) -> bool:
    """Whether every leaf is a plain layer without chance or memory and all containers are plain sequences."""
    return all(type(leaf) in _SAMPLEWISE and _keeps_samples_apart(leaf) for leaf in _plain_leaves(module))


def steady(module: nn.Module) -> bool:
    """Whether every leaf is a plain layer that draws nothing and all containers are plain sequences."""
    return all(type(leaf) in _STEADY for leaf in _plain_leaves(module))


def altered(module: nn.Module) -> str:
    """What makes a module differ from its class, for people; empty if nothing does."""
    own = vars(module)
    if "forward" in own:
        return "a forward method of its own"
    for attribute, name in _HOOKS.items():
        if own.get(attribute):
            return name
    if parametrize.is_parametrized(module):
        return "a parametrization"
    if own.get("_compiled_call_impl") is not None:
        return "been compiled by torch.compile"
    for name, parameter in module.named_parameters(recurse=False):
        if getattr(parameter, "_backward_hooks", None) or getattr(parameter, "_post_accumulate_grad_hooks", None):
            return f"a hook on its parameter {name!r}"
    return ""


def global_hooks() -> bool:
    """Whether hooks for all modules are registered with torch."""
    names = [name for name in vars(torch_module) if name.startswith("_global_") and name.endswith("_hooks")]
    return any(bool(getattr(torch_module, name)) for name in names)


def named_layers(model: SplitModel) -> Iterator[tuple[str, nn.Module]]:
    """All modules by name, containers included; a module that is used twice comes twice."""
    for part, whole in (("extractor", model.extractor), ("head", model.head)):
        for name, module in whole.named_modules(remove_duplicate=False):
            yield f"{part}.{name}" if name else part, module


def user_hooks(modules: Iterable[tuple[str, nn.Module]]) -> str:
    """A hook or forward method that the user has attached, for people; torch's own, such as weight_norm's, are none."""
    for name, module in modules:
        for attribute, called in _HOOKS.items():
            for hook in vars(module).get(attribute, {}).values():
                if not str(getattr(hook, "__module__", type(hook).__module__)).startswith("torch."):
                    return f"layer {name!r} has {called}"
    return "hooks for all modules are registered with torch" if global_hooks() else ""


def _plain_leaves(module: nn.Module) -> Iterator[nn.Module]:
    """The layers of plain sequences, in order; a module that differs from its class is a leaf of no known type."""
    if altered(module) or global_hooks():
        yield nn.Module()
    elif type(module) is nn.Sequential:
        for child in module:
            yield from _plain_leaves(child)
    else:
        yield module


def _keeps_samples_apart(layer: nn.Module) -> bool:
    """Flattening or unflattening the first dimension mixes samples."""
    return not (isinstance(layer, nn.Flatten) and layer.start_dim == 0) and not (
        isinstance(layer, nn.Unflatten) and layer.dim == 0
    )
