"""Models for images: a small convolutional network and a small residual network, both with group norm.

Batch norm is not used. It keeps running statistics of the data of the client that trained it; blended weights would be
evaluated with statistics that belong to other weights, and with few classes per client those statistics differ most.
Group norm computes what it needs from each image, so nothing but weights is shared and a batch of one sample is no
special case.
"""

from typing import Literal

from torch import Tensor, nn

from firma.errors import BadInput
from firma.settings import Positive

Channels = Literal["auto", "first", "last"]
_GROUPS = 8
_COLOURS = 4  # an axis of 1 to 4 values is taken for the channels: grey, grey and alpha, RGB, RGBA


def cnn(
    shape: tuple[int, ...], outputs: int, width: Positive = 32, depth: Positive = 3, embedding: Positive = 128,
    channels: Channels = "auto",
) -> tuple[nn.Sequential, nn.Linear]:  # fmt: skip
    """3x3 convolutions with group norm, halving the image after each; for images.

    Block i of `depth` has width·2ⁱ channels; max pooling halves the image as long as it has two rows and columns. The
    average over the image is mapped to `embedding` features. `channels` says where the channels of an image are.
    """
    planes, rows, columns, layers = _entry("cnn", shape, channels)
    for block in range(depth):
        inner = width * 2**block
        layers += [nn.Conv2d(planes, inner, 3, padding=1, bias=False), _norm(inner), nn.ReLU()]
        planes = inner
        if min(rows, columns) > 1:
            layers.append(nn.MaxPool2d(2))
            rows, columns = rows // 2, columns // 2
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(planes, embedding), nn.ReLU()]
    return nn.Sequential(*layers), nn.Linear(embedding, outputs)


def resnet(
    shape: tuple[int, ...], outputs: int, width: Positive = 16, depth: Positive = 1, stages: Positive = 3,
    channels: Channels = "auto",
) -> tuple[nn.Sequential, nn.Linear]:  # fmt: skip
    """Residual blocks with group norm, as in the ResNets for CIFAR-10; for images.

    Stage i of `stages` has `depth` blocks of width·2ⁱ channels, and halves the image unless it is the first. The head
    reads the average over the image, width·2^(stages-1) features. depth=3 has the layers of ResNet-20.
    """
    planes, _, _, layers = _entry("resnet", shape, channels)
    layers += [nn.Conv2d(planes, width, 3, padding=1, bias=False), _norm(width), nn.ReLU()]
    planes = width
    for stage in range(stages):
        for block in range(depth):
            inner = width * 2**stage
            layers.append(ResidualBlock(planes, inner, stride=2 if stage and not block else 1))
            planes = inner
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers), nn.Linear(planes, outputs)


class ResidualBlock(nn.Module):
    """x ↦ relu(short(x) + norm(conv(relu(norm(conv(x)))))); `short` is a 1x1 convolution where the shape changes."""

    def __init__(self, planes: int, inner: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(planes, inner, 3, stride, padding=1, bias=False), _norm(inner), nn.ReLU(),
            nn.Conv2d(inner, inner, 3, padding=1, bias=False), _norm(inner),
        )  # fmt: skip
        self.short: nn.Module = nn.Identity()
        if stride > 1 or planes != inner:
            self.short = nn.Sequential(nn.Conv2d(planes, inner, 1, stride, bias=False), _norm(inner))
        self.relu = nn.ReLU()

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) to (B, inner, H/stride, W/stride)."""
        out: Tensor = self.relu(self.short(images) + self.body(images))
        return out


class ChannelsFirst(nn.Module):
    """(B, H, W, C) to (B, C, H, W)."""

    def forward(self, images: Tensor) -> Tensor:
        """The images as torch's convolutions read them."""
        return images.movedim(-1, 1)


def _norm(planes: int) -> nn.GroupNorm:
    """Group norm with at most eight groups of equal size, of two channels or more: one pixel has a variance too."""
    most = max(1, min(_GROUPS, planes // 2))
    return nn.GroupNorm(next(groups for groups in range(most, 0, -1) if planes % groups == 0), planes)


def _entry(model: str, shape: tuple[int, ...], channels: Channels) -> tuple[int, int, int, list[nn.Module]]:
    """Channels, rows and columns of an image, and the layers that bring it into the form (B, C, H, W).

    (H, W) has one channel. Of (C, H, W) and (H, W, C), the axis with at most four values holds the channels; if both
    ends have, it is the first, as everywhere in torch.
    """
    if len(shape) == 2:
        return 1, *shape, [nn.Unflatten(1, (1, shape[0]))]
    if len(shape) != 3:
        raise BadInput(
            f"model {model!r}: requires images of shape (H, W), (C, H, W) or (H, W, C), but one input has shape "
            f"{shape}; use --model mlp for flat inputs, or store images with their shape in an .npz file"
        )
    if channels == "auto" and min(shape[0], shape[-1]) > _COLOURS:
        raise BadInput(
            f"model {model!r}: cannot tell which axis of {shape} holds the channels; "
            "set --model-set channels=first or --model-set channels=last"
        )
    if channels == "first" or (channels == "auto" and shape[0] <= _COLOURS):
        return *shape, []
    return shape[2], shape[0], shape[1], [ChannelsFirst()]
