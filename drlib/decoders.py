"""Decoders of posteriors for Inv-Alignment: what one reads, its network, and two baselines in closed form."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from drlib import gan

SHIFT = 50.0  # the original's c: kept log-probabilities become positive, unlike the zeros of dropped ones
LOWEST = -1000.0  # the original's bound on a log-probability


def truncated(posteriors: Tensor, kept: int) -> Tensor:
    """What the decoder reads (n, K): log-probabilities + 50 of the ``kept`` largest (0: all), the rest 0."""
    logs = posteriors.log().clamp(min=LOWEST) + SHIFT
    values, classes = logs.topk(min(kept, logs.shape[1]) or logs.shape[1], dim=1)
    values = values + F.relu(-values.amin(dim=1, keepdim=True))
    return torch.zeros_like(logs).scatter(1, classes, values)


class Decoder(nn.Module):
    """K numbers (b, K) to images (b, c, h, w) in [0, 1].

    They become a 4x4 map of ``width`` channels; each transposed convolution doubles its side and halves its
    channels, and the middle of the last map is the image. ``standardize`` first brings each number to mean 0
    and variance 1 over the auxiliary data; without it the common shift of 50 slows training down.
    """

    def __init__(self, num_classes: int, shape: Sequence[int], width: int, standardize: bool) -> None:
        super().__init__()
        self.shape = tuple(int(size) for size in shape)
        channels = [*(max(1, width >> stage) for stage in range(gan.halvings(shape))), shape[0]]
        layers: list[nn.Module] = [nn.BatchNorm1d(num_classes, affine=False)] if standardize else []
        layers += [nn.Unflatten(1, (num_classes, 1, 1)), nn.ConvTranspose2d(num_classes, channels[0], 4)]
        for inputs, outputs in itertools.pairwise(channels):
            layers += [nn.BatchNorm2d(inputs), nn.Tanh(), nn.ConvTranspose2d(inputs, outputs, 4, 2, 1)]
        self.layers = nn.Sequential(*layers, nn.Sigmoid())

    def forward(self, inputs: Tensor) -> Tensor:
        return gan.center_crop(self.layers(inputs), self.shape)


def class_mean(inputs: Tensor, images: Tensor, queries: Tensor) -> Tensor:
    """Baseline: the mean auxiliary image of the class that a query puts first; the overall mean if none."""
    predicted = inputs.argmax(dim=1)
    means = images.mean(dim=0).repeat(inputs.shape[1], 1, 1, 1)
    for label in predicted.unique().tolist():
        means[label] = images[predicted == label].mean(dim=0)
    return means[queries.argmax(dim=1)]


def ridge(inputs: Tensor, images: Tensor, queries: Tensor, penalty: float = 1e-3) -> Tensor:
    """Baseline: pixels as a linear function of what the decoder reads, in closed form, clipped to [0, 1].

    ``penalty`` is relative to the mean variance of the inputs.
    """
    center, mean = inputs.double().mean(dim=0), images.double().mean(dim=0)
    x, y = inputs.double() - center, (images.double() - mean).flatten(1)
    gram = x.T @ x
    scale = gram.diagonal().mean().clamp_min(1e-12)  # inputs that never vary tell nothing: the overall mean
    gram += penalty * scale * torch.eye(len(gram), dtype=x.dtype, device=x.device)
    pixels = (queries.double() - center) @ torch.linalg.solve(gram, x.T @ y)
    return (mean + pixels.view(-1, *images.shape[1:])).clamp(0, 1).float()
