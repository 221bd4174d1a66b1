"""Data-set-level distance (Definition 4.1): Frechet distance of Gaussians fitted to two sets of features."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from drlib.errors import UserError
from drlib.metrics.sample import from_array


class FrechetDistance(float):
    """The distance, a float, with the sample sizes and, where it is NaN, the reason.

    Attributes:
        value: the distance as a plain float.
        reason: why it is NaN, else None.
        n, m: number of samples of the two sets. The distance is biased upward at small n: compare at equal n.
    """

    reason: str | None
    n: int
    m: int

    def __new__(cls, value: float, reason: str | None = None, n: int = 0, m: int = 0) -> FrechetDistance:
        self = super().__new__(cls, value)
        self.reason, self.n, self.m = reason, n, m
        return self

    @property
    def value(self) -> float:
        return float(self)


def frechet_distance(features_a: Tensor, features_b: Tensor) -> FrechetDistance:
    """Distance |mu_a - mu_b|^2 + tr(S_a + S_b - 2 (S_a S_b)^(1/2)) of the FID (Heusel et al. 2017).

    With centered features A (n, d) and B (m, d), and unbiased covariances S = A^T A / (n - 1), the last trace
    is the sum of the singular values of A B^T / sqrt((n - 1)(m - 1)). A set with more samples than dimensions
    is first replaced by a triangular factor, which has the same covariance, so the product is never larger
    than (min(n, d), min(m, d)). There is no matrix square root: nothing complex, no
    rounding of eigenvalues near 0, and identical sets give 0.

    Args:
        features_a, features_b: (n, d) and (m, d), CPU or CUDA, any real dtype; computed in float64.

    Returns:
        A float; NaN with ``.reason`` if a set has only one sample, or if squares of its features overflow.

    Raises:
        UserError: (a ValueError) wrong shape, different d, no samples, NaN or infinite features.
    """
    a, b = check_features("features_a", features_a), check_features("features_b", features_b)
    if a.shape[1] != b.shape[1]:
        raise UserError(f"features differ in dimension: {a.shape[1]} and {b.shape[1]}")
    n, m = len(a), len(b)
    if min(n, m) < 2:
        return FrechetDistance(float("nan"), f"a covariance needs 2 samples or more, got {n} and {m}", n, m)
    b = b.to(a.device)
    mean_a, mean_b = a.mean(0), b.mean(0)
    a, b = (a - mean_a) / (n - 1) ** 0.5, (b - mean_b) / (m - 1) ** 0.5
    apart = (mean_a - mean_b).square().sum() + a.square().sum() + b.square().sum()
    if reason := overflow(apart):
        return FrechetDistance(float("nan"), reason, n, m)
    value = float(apart - 2 * _trace_of_root(a, b))
    return FrechetDistance(max(0.0, value), None, n, m)  # below 0 only by rounding


def overflow(apart: Tensor) -> str | None:
    """Why there is no distance, or None: ``apart`` is the squared distance of the means plus the traces."""
    if apart < 1e150:  # its square, which the trace of the root needs, is finite
        return None
    return f"features too large: squares of {float(apart):.3g} overflow float64"


_LARGE = 512
"""Dimensions from which on the fast route pays; below, the most accurate one takes milliseconds."""


def _trace_of_root(a: Tensor, b: Tensor) -> Tensor:
    """tr (S_a S_b)^(1/2) with S = A^T A: the sum of the singular values of A B^T.

    With more samples than dimensions in both sets, and many dimensions, by Cholesky factors and symmetric
    eigenvalues, which take a third of the time of triangular factors and singular values. That squares the
    condition number, so it is done only where Cholesky finds both covariances of full rank.
    """
    d = a.shape[1]
    if min(len(a), len(b)) > d >= _LARGE:
        left, right = _cholesky(a), _cholesky(b)
        if left is not None and right is not None:
            product = left @ right.T
            return torch.linalg.eigvalsh(product @ product.T).clamp(min=0).sqrt().sum()
    return torch.linalg.svdvals(_factor(a) @ _factor(b).T).sum()


def _cholesky(centered: Tensor) -> Tensor | None:
    """R upper triangular with R^T R = centered^T centered, or None if that is nearly singular."""
    factor, failed = torch.linalg.cholesky_ex(centered.T @ centered, upper=True)
    pivots = factor.diagonal()
    return None if failed or pivots.min() < 1e-5 * pivots.max() else factor


def _factor(centered: Tensor) -> Tensor:
    """A matrix R with R^T R = centered^T centered and at most d rows."""
    return centered if len(centered) <= centered.shape[1] else torch.linalg.qr(centered, mode="r").R


def check_features(name: str, features: object) -> Tensor:
    """Features (n, d) as float64. Raises ``UserError`` for another shape, no samples, NaN or infinity."""
    if isinstance(features, np.ndarray):
        features = from_array(name, features)
    if not isinstance(features, Tensor):
        raise UserError(f"{name} must be a tensor (n, d), got {type(features).__name__}")
    if features.ndim != 2 or features.numel() == 0:
        raise UserError(f"{name} must have shape (n, d) with n, d >= 1, got {tuple(features.shape)}")
    if features.is_complex():
        raise UserError(f"{name} must be real, got {str(features.dtype).removeprefix('torch.')}")
    features = features.detach().double()
    bad = int((~features.isfinite()).any(1).sum())
    if bad:
        raise UserError(f"{name} contains NaN or infinite values in {bad} of {len(features)} rows")
    return features
