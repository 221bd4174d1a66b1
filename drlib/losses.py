"""Costs of a target's answer, one number per image, that attacks minimize or match.

Each takes logits (n, K) and the wanted labels (n,) and returns (n,); lower is nearer to the wanted class.
"""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor


def one_minus_p(logits: Tensor, labels: Tensor) -> Tensor:
    """1 - p_y, in [0, 1] (Fredrikson et al. 2015): no gradient where p_y is near 0 or 1."""
    return 1 - logits.softmax(dim=1).gather(1, labels[:, None])[:, 0]


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """-log p_y, at least 0: keeps a gradient where p_y is near 0."""
    return F.cross_entropy(logits, labels, reduction="none")


def max_margin(logits: Tensor, labels: Tensor) -> Tensor:
    """Largest other logit minus the wanted one, not bounded below (Yuan et al. 2023).

    Keeps a gradient where p_y is near 0 or 1. With two classes it is the difference of the two logits.
    """
    return _others(logits, labels).amax(dim=1) - logits.gather(1, labels[:, None])[:, 0]


def soft_margin(logits: Tensor, labels: Tensor) -> Tensor:
    """The same with log sum exp for the largest: the gradient of the cross entropy is (1 - p_y) times its."""
    return _others(logits, labels).logsumexp(dim=1) - logits.gather(1, labels[:, None])[:, 0]


def _others(logits: Tensor, labels: Tensor) -> Tensor:
    """The logits (n, K) without the wanted one, in whose place stands minus infinity."""
    return logits.scatter(1, labels[:, None], -math.inf)
