"""A discriminator that also tells classes apart (Salimans et al. 2016), for KEDMI: network and losses."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from drlib import gan


class ClassDiscriminator(nn.Module):
    """Logits d(x) (b, K) of the target's classes; class K + 1, fake, has the fixed logit 0.

    So P(real | x) = Z / (Z + 1) with Z = sum_k exp d_k(x) (Salimans et al. 2016).
    """

    def __init__(self, shape: Sequence[int], width: int, num_classes: int) -> None:
        super().__init__()
        times = gan.halvings(shape)
        widths = [shape[0]] + [width * min(2**i, 4) for i in range(times)]
        layers = [layer for i in range(times) for layer in gan.instance_block(widths[i], widths[i + 1])]
        self.features = nn.Sequential(*layers, nn.Flatten())
        self.head = nn.Linear(self.features(torch.zeros(1, *shape)).shape[1], num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))


def minus_log_real(logits: Tensor) -> Tensor:
    """-log P(real) = log(1 + Z) - log Z (b,)."""
    log_z = logits.logsumexp(dim=1)
    return F.softplus(log_z) - log_z


def minus_log_fake(logits: Tensor) -> Tensor:
    """-log P(fake) = log(1 + Z) (b,)."""
    return F.softplus(logits.logsumexp(dim=1))


def entropy(logits: Tensor) -> Tensor:
    """Entropy (b,) of the softmax over the K classes."""
    return -(logits.softmax(dim=1) * logits.log_softmax(dim=1)).sum(dim=1)
