"""Networks of a class-conditional GAN: generator with conditional BatchNorm, projection discriminator.

Residual blocks as in Miyato and Koyama 2018, which Yuan et al. 2023 build on; images lie in [0, 1].
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from drlib.gan import center_crop, halvings


class ConditionalBatchNorm(nn.Module):
    """BatchNorm whose scale (starting at 1) and bias (starting at 0) belong to the class."""

    def __init__(self, channels: int, num_classes: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, affine=False)
        self.scale = nn.Embedding.from_pretrained(torch.ones(num_classes, channels), freeze=False)
        self.bias = nn.Embedding.from_pretrained(torch.zeros(num_classes, channels), freeze=False)

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        scale, bias = self.scale(labels)[:, :, None, None], self.bias(labels)[:, :, None, None]
        return scale * self.norm(features) + bias


def doubled(features: Tensor) -> Tensor:
    """Twice the side, bilinear."""
    return F.interpolate(features, scale_factor=2, mode="bilinear", align_corners=False)


class UpBlock(nn.Module):
    """Residual block that doubles the side."""

    def __init__(self, inputs: int, outputs: int, num_classes: int) -> None:
        super().__init__()
        self.first_norm = ConditionalBatchNorm(inputs, num_classes)
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.second_norm = ConditionalBatchNorm(outputs, num_classes)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1)

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        main = self.first(doubled(self.first_norm(features, labels).relu()))
        main = self.second(self.second_norm(main, labels).relu())
        return main + doubled(self.shortcut(features))  # a 1x1 convolution commutes with the interpolation


class ConditionalGenerator(nn.Module):
    """Latents (b, z_dim) and labels (b,) to images (b, c, h, w) in [0, 1].

    ``width`` are the channels of the last block; each earlier block has twice as many. A side that is not
    4, 8, 16, ... is the center crop of the next larger one.
    """

    def __init__(self, shape: Sequence[int], num_classes: int, z_dim: int, width: int) -> None:
        super().__init__()
        self.shape = tuple(int(size) for size in shape)
        blocks = halvings(self.shape)
        channels = [width * 2**i for i in range(blocks, -1, -1)]
        self.first = nn.Linear(z_dim, channels[0] * 16)
        self.blocks = nn.ModuleList(
            UpBlock(inputs, outputs, num_classes) for inputs, outputs in pairwise(channels)
        )
        self.norm = nn.BatchNorm2d(width)
        self.last = nn.Conv2d(width, self.shape[0], 1)

    def forward(self, z: Tensor, labels: Tensor) -> Tensor:
        features = self.first(z).unflatten(1, (-1, 4, 4))
        for block in self.blocks:
            features = block(features, labels)
        return center_crop(self.last(self.norm(features).relu()), self.shape).sigmoid()


def spectral_conv(inputs: int, outputs: int, kernel: int, gain: float) -> nn.Module:
    """Convolution of spectral norm 1 with same padding and Xavier start."""
    conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)
    nn.init.xavier_uniform_(conv.weight, gain)
    nn.init.zeros_(conv.bias)
    return spectral_norm(conv)


class DownBlock(nn.Module):
    """Residual block that halves the side; ``opening``: it sees images, so it does not start with a ReLU."""

    def __init__(self, inputs: int, outputs: int, opening: bool) -> None:
        super().__init__()
        middle = outputs if opening else inputs
        self.opening = opening
        self.first = spectral_conv(inputs, middle, 3, 2**0.5)
        self.second = spectral_conv(middle, outputs, 3, 2**0.5)
        self.shortcut = spectral_conv(inputs, outputs, 1, 1.0)

    def forward(self, features: Tensor) -> Tensor:
        main = self.second(self.first(features if self.opening else features.relu()).relu())
        return F.avg_pool2d(main + self.shortcut(features), 2, ceil_mode=True)  # both halves are linear


class ProjectionDiscriminator(nn.Module):
    """Images (b, c, h, w) and labels (b,) to scores (b,): linear(h) + <embedding of the label, h>.

    h are features summed over the positions; all layers have spectral norm 1.
    """

    def __init__(self, shape: Sequence[int], num_classes: int, width: int) -> None:
        super().__init__()
        channels = [shape[0], *(width * 2**i for i in range(halvings(shape) + 1))]
        self.blocks = nn.Sequential(
            *(
                DownBlock(inputs, outputs, opening=index == 0)
                for index, (inputs, outputs) in enumerate(pairwise(channels))
            )
        )
        linear, embedding = nn.Linear(channels[-1], 1), nn.Embedding(num_classes, channels[-1])
        nn.init.xavier_uniform_(linear.weight)
        nn.init.xavier_uniform_(embedding.weight)
        self.linear, self.embedding = spectral_norm(linear), spectral_norm(embedding)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        features = self.blocks(images).relu().sum(dim=(2, 3))
        return self.linear(features)[:, 0] + (self.embedding(labels) * features).sum(dim=1)
