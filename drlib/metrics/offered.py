"""Measures of generated images that the paper does not use: offered beside its own, never under their names.

``prdc_coverage`` is not the paper's coverage: it asks whether a target has *any* generated image in its
neighborhood, the paper's coverage whether it is the *nearest* of one. ``kernel_distance`` (KID) is, unlike
the Frechet distance, without bias in the number of images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from drlib.errors import UserError
from drlib.metrics.frechet import check_features


def prdc_coverage(features_target: Tensor, features_made: Tensor, *, neighbors: int = 5) -> float:
    """Share of targets with an image no farther than their own k-th nearest target (Naeem et al. 2020).

    Args:
        features_target: (m, d), features_made: (n, d), in any space, for instance pixels.
        neighbors: k; at least 1 and below m.

    Raises:
        UserError: shapes that do not fit, NaN, too few targets for k.
    """
    target, made = _check_pair(features_target, features_made)
    if not 1 <= neighbors < len(target):
        raise UserError(f"neighbors must lie in 1 to {len(target) - 1} with {len(target)} targets")
    own = torch.cdist(target, target, compute_mode="donot_use_mm_for_euclid_dist")
    radius = own.kthvalue(neighbors + 1, dim=1).values  # the nearest of all is the target itself
    closest = torch.cdist(target, made, compute_mode="donot_use_mm_for_euclid_dist").amin(1)
    return float((closest <= radius).double().mean())


@dataclass(frozen=True)
class KernelDistance:
    """value: unbiased, so it can be below 0; standard_error over random subsets; their number and size.

    The standard error is NaN with one subset, and where a set has no more than ``size`` samples: its subsets
    are then all the same, and their spread says nothing of it.
    """

    value: float
    standard_error: float
    subsets: int
    size: int


def kernel_distance(
    features_a: Tensor, features_b: Tensor, *, subsets: int = 50, size: int = 100, seed: int = 0
) -> KernelDistance:
    """KID (Binkowski et al. 2018): squared MMD with the kernel (x.y / d + 1)^3, unbiased, mean over subsets.

    Called KID only if the features are Inception's; ``size`` is at most the smaller set's.

    Raises:
        UserError: features that do not fit, NaN, fewer than 2 samples or 1 subset.
    """
    if subsets < 1:
        raise UserError(f"subsets must be 1 or more, got {subsets}")
    a, b = _check_pair(features_a, features_b)
    size = min(size, len(a), len(b))
    if size < 2:
        raise UserError("the kernel distance needs 2 samples or more in each set")
    generator = torch.Generator().manual_seed(seed)
    values = torch.stack(
        [
            _squared_mmd(*(x[torch.randperm(len(x), generator=generator)[:size]] for x in (a, b)))
            for _ in range(subsets)
        ]
    )
    drawn = subsets > 1 and size < min(len(a), len(b))
    error = float(values.std() / subsets**0.5) if drawn else float("nan")
    return KernelDistance(float(values.mean()), error, subsets, size)


def _squared_mmd(a: Tensor, b: Tensor) -> Tensor:
    within_a, within_b, across = (_kernel(x, y) for x, y in ((a, a), (b, b), (a, b)))
    n = len(a)
    own = sum((k.sum() - k.diagonal().sum()) / (n * (n - 1)) for k in (within_a, within_b))
    return own - 2 * across.mean()


def _kernel(a: Tensor, b: Tensor) -> Tensor:
    return (a @ b.T / a.shape[1] + 1) ** 3


def combined_score(
    values: dict[str, float], worst: dict[str, float], best: dict[str, float]
) -> tuple[float, str]:
    """The minimum of normalized metrics (section 5.1 of the paper), and which metric it is.

    The paper does not say how to normalize. Here each metric is placed between two declared values, 0 at
    ``worst`` (as of noise) and 1 at ``best`` (as of exact copies), and clipped to [0, 1]. NaN gives NaN. Both
    are finite: the PSNR of exact copies is infinite, so for PSNR a finite best value must be declared.

    Raises:
        UserError: a metric without its two values, or with equal, infinite or NaN ones.
    """
    if not values:
        raise UserError("a combined score needs at least one metric")
    normalized = {}
    for name, value in values.items():
        ends = worst.get(name, math.nan), best.get(name, math.nan)
        if ends[0] == ends[1] or not all(map(math.isfinite, ends)):
            raise UserError(f"{name} needs two different finite values, worst and best, to be normalized by")
        share = (value - ends[0]) / (ends[1] - ends[0])
        normalized[name] = min(1.0, max(0.0, share)) if share == share else share
    for name, share in normalized.items():
        if share != share:
            return float("nan"), name
    lowest = min(normalized, key=normalized.__getitem__)
    return normalized[lowest], lowest


def _check_pair(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    a, b = check_features("features_target", a), check_features("features_made", b)
    if a.shape[1] != b.shape[1]:
        raise UserError(f"features differ in dimension: {a.shape[1]} and {b.shape[1]}")
    return a, b.to(a.device)
