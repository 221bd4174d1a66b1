"""Target architectures: ``build(name, shape=..., num_classes=...)``.

All of them take images (n, c, side, side) with c = 1 or 3 and side 8 to 64 and return logits (n, K). They are
scaled by one number, ``width``: a multiplier of the original channel counts (``FIRST_CHANNELS``), so that
``width=1`` is the published network and ``width=0.125`` is a VGG16 that starts with 8 channels.

Every model is ``head(body(x))``: ``body`` returns the penultimate features (n, d) and ``head`` is linear.

- ``convnet``: three 3x3 convolutions of stride 2 with BatchNorm and ReLU, then a linear layer.
  For tests and laptops.
- ``lenet``: the sigmoid LeNet of gradient matching (Zhu et al. 2019): 5x5 convolutions with strides 2, 2, 1.
- ``mlp``: two hidden ReLU layers.
- ``homogeneous_mlp``: the same without biases except in the first layer, whose parameters start 10,000 times
  smaller than a standard normal (Haim et al. 2022): what Bias-Rec attacks.
- ``vgg16``: Simonyan and Zisserman 2015 with BatchNorm; a linear classifier on the pooled map, as usual for
  small images.
- ``resnet18``: He et al. 2016 with the 3x3 stem without pooling that is usual for small images.
- ``mobilenet_v2``: Sandler et al. 2018; the first strides become 1 on small images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from drlib.errors import UserError, unknown
from drlib.probe import has_batchnorm

__all__ = [
    "ARCHITECTURES",
    "DEFAULT_WIDTH",
    "FIRST_CHANNELS",
    "Classifier",
    "build",
    "features",
    "has_batchnorm",
]

FIRST_CHANNELS = {
    "convnet": 16,
    "lenet": 12,
    "mlp": 256,
    "homogeneous_mlp": 1000,
    "vgg16": 64,
    "resnet18": 64,
    "mobilenet_v2": 32,
}
"""Channels of the first stage (units of the hidden layers, for the perceptrons) at ``width=1``."""

ARCHITECTURES = tuple(FIRST_CHANNELS)
DEFAULT_WIDTH = dict.fromkeys(ARCHITECTURES, 1.0)
"""The multiplier that gives the original network."""

MIN_SIDE, MAX_SIDE = 8, 64


class Classifier(nn.Module):
    """``head(body(x))``: features (n, d), then logits (n, K)."""

    def __init__(
        self, body: nn.Module, features: int, num_classes: int, dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__()
        self.body = body
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(features, num_classes, bias=bias)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.dropout(self.body(images)))


def build(
    name: str,
    *,
    shape: Sequence[int],
    num_classes: int,
    width: float | None = None,
    generator_seed: int | None = None,
) -> nn.Module:
    """An untrained model for images of ``shape`` = (channels, side, side), returning logits (n, num_classes).

    ``width`` multiplies the original channel counts (None: ``DEFAULT_WIDTH``). With ``generator_seed`` the
    initial parameters depend on nothing else and PyTorch's global random state is left untouched; without it
    they are drawn from that global state. Raises ``UserError`` for anything outside the ranges above.
    """
    if name not in ARCHITECTURES:
        raise unknown("architecture", name, ARCHITECTURES)
    channels, side = _check_shape(shape)
    if num_classes < 2:
        raise UserError(f"num_classes must be at least 2, got {num_classes}")
    width = DEFAULT_WIDTH[name] if width is None else float(width)
    if not 0 < width <= 8:
        raise UserError(f"width multiplies the original channel counts and must lie in (0, 8], got {width:g}")
    with torch.random.fork_rng(devices=[], enabled=generator_seed is not None):
        if generator_seed is not None:
            # Not torch.manual_seed, which would also reseed every GPU.
            torch.default_generator.manual_seed(generator_seed)
        return _BUILDERS[name](channels, side, num_classes, width)


def features(model: nn.Module, images: Tensor) -> Tensor:
    """Penultimate features (n, d): the input of the model's last linear layer, differentiable in the
    images."""
    linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    if not linear:
        raise UserError("the model has no linear layer, so it has no penultimate features")
    seen: list[Tensor] = []
    hook = linear[-1].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        model(images)
    finally:
        hook.remove()
    if not seen:
        raise UserError("the last linear layer was not used, so the model has no penultimate features")
    return seen[-1].flatten(1)


def _check_shape(shape: Sequence[int]) -> tuple[int, int]:
    allowed = f"(c, side, side) with c = 1 or 3 and side {MIN_SIDE} to {MAX_SIDE}"
    if len(shape) != 3:
        raise UserError(f"shape must be {allowed}, got {tuple(shape)}")
    channels, height, side = (int(size) for size in shape)
    if channels not in (1, 3) or height != side or not MIN_SIDE <= side <= MAX_SIDE:
        raise UserError(f"shape must be {allowed}, got {tuple(shape)}")
    return channels, side


def _scaled(channels: int, width: float) -> int:
    return max(1, round(channels * width))


def _conv_bn(
    inputs: int,
    outputs: int,
    kernel: int = 3,
    stride: int = 1,
    groups: int = 1,
    activation: nn.Module | None = None,
) -> list[nn.Module]:
    """Convolution with same padding, BatchNorm, activation (default ReLU)."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs), nn.ReLU() if activation is None else activation]


def _convnet(channels: int, side: int, num_classes: int, width: float) -> Classifier:
    first = _scaled(FIRST_CHANNELS["convnet"], width)
    layers: list[nn.Module] = []
    for outputs in (first, 2 * first, 4 * first):
        layers += _conv_bn(channels, outputs, stride=2)
        channels, side = outputs, math.ceil(side / 2)
    return Classifier(nn.Sequential(*layers, nn.Flatten()), channels * side * side, num_classes)


def _lenet(channels: int, side: int, num_classes: int, width: float) -> Classifier:
    maps = _scaled(FIRST_CHANNELS["lenet"], width)
    layers: list[nn.Module] = []
    for stride in (2, 2, 1):
        layers += [nn.Conv2d(channels, maps, 5, stride, padding=2), nn.Sigmoid()]
        channels, side = maps, math.ceil(side / stride)
    model = Classifier(nn.Sequential(*layers, nn.Flatten()), maps * side * side, num_classes)
    for parameter in model.parameters():
        # The initialization of gradient matching: PyTorch's own is too small to train through three sigmoids.
        nn.init.uniform_(parameter, -0.5, 0.5)
    return model


def _mlp(channels: int, side: int, num_classes: int, width: float) -> Classifier:
    hidden = _scaled(FIRST_CHANNELS["mlp"], width)
    pixels = channels * side * side
    layers = [nn.Flatten(), nn.Linear(pixels, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()]
    return Classifier(nn.Sequential(*layers), hidden, num_classes)


def _homogeneous_mlp(channels: int, side: int, num_classes: int, width: float) -> Classifier:
    hidden = _scaled(FIRST_CHANNELS["homogeneous_mlp"], width)
    first = nn.Linear(channels * side * side, hidden)
    for parameter in first.parameters():
        nn.init.normal_(parameter, std=1e-4)
    second = nn.Linear(hidden, hidden, bias=False)
    body = nn.Sequential(nn.Flatten(), first, nn.ReLU(), second, nn.ReLU())
    return Classifier(body, hidden, num_classes, bias=False)


def _vgg16(channels: int, side: int, num_classes: int, width: float) -> Classifier:
    first = _scaled(FIRST_CHANNELS["vgg16"], width)
    layers: list[nn.Module] = []
    for factor, convolutions in ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3)):
        for _ in range(convolutions):
            layers += _conv_bn(channels, factor * first)
            channels = factor * first
        if side > 1:  # an 8x8 image is 1x1 after three of the five pools
            layers.append(nn.MaxPool2d(2))
            side //= 2
    return Classifier(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), channels, num_classes)


class _ResidualBlock(nn.Module):
    """Two 3x3 convolutions and the identity (a 1x1 convolution where the shape changes)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_conv_bn(inputs, outputs, stride=stride), *_conv_bn(outputs, outputs, activation=nn.Identity())
        )
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Sequential(
            *([] if same else _conv_bn(inputs, outputs, kernel=1, stride=stride, activation=nn.Identity()))
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def _resnet18(channels: int, side: int, num_classes: int, width: float) -> Classifier:
    first = _scaled(FIRST_CHANNELS["resnet18"], width)
    layers = _conv_bn(channels, first)
    channels = first
    for factor, stride in ((1, 1), (2, 2), (4, 2), (8, 2)):
        layers += [
            _ResidualBlock(channels, factor * first, stride),
            _ResidualBlock(factor * first, factor * first, 1),
        ]
        channels = factor * first
    return Classifier(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), channels, num_classes)


class _InvertedResidual(nn.Module):
    """Expand by a 1x1 convolution, filter depthwise, project back linearly; add the input where shapes
    agree."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        expand = [] if expansion == 1 else _conv_bn(inputs, hidden, kernel=1, activation=nn.ReLU6())
        self.body = nn.Sequential(
            *expand,
            *_conv_bn(hidden, hidden, stride=stride, groups=hidden, activation=nn.ReLU6()),
            *_conv_bn(hidden, outputs, kernel=1, activation=nn.Identity()),
        )
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.residual else self.body(x)


# Sandler et al. 2018, Table 2: expansion, channels, blocks, stride of the first block.
_MOBILENET_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _mobilenet_v2(channels: int, side: int, num_classes: int, width: float) -> Classifier:
    # The original halves an image five times, which leaves 7x7 of 224 px and 2x2 of 64 px. For smaller images
    # the earliest halvings are dropped: two stay at 8 px, three at 16, four at 32 (a last map of 2x2 to 4x4).
    dropped = 5 - int(math.log2(side / 2))

    def stride_of(stride: int) -> int:
        nonlocal dropped
        if stride == 2 and dropped > 0:
            dropped -= 1
            return 1
        return stride

    inputs = _multiple_of_8(FIRST_CHANNELS["mobilenet_v2"] * width)
    layers = _conv_bn(channels, inputs, stride=stride_of(2), activation=nn.ReLU6())
    for expansion, base, blocks, stride in _MOBILENET_STAGES:
        outputs = _multiple_of_8(base * width)
        for block in range(blocks):
            layers.append(
                _InvertedResidual(inputs, outputs, stride_of(stride) if block == 0 else 1, expansion)
            )
            inputs = outputs
    last = _multiple_of_8(1280 * max(1.0, width))
    layers += _conv_bn(inputs, last, kernel=1, activation=nn.ReLU6())
    body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Classifier(body, last, num_classes, dropout=0.2)


def _multiple_of_8(channels: float) -> int:
    """The nearest multiple of 8, at least 8 and never more than 10 % below ``channels`` (as in the
    original)."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


_BUILDERS = {
    "convnet": _convnet,
    "lenet": _lenet,
    "mlp": _mlp,
    "homogeneous_mlp": _homogeneous_mlp,
    "vgg16": _vgg16,
    "resnet18": _resnet18,
    "mobilenet_v2": _mobilenet_v2,
}
