"""Mean and covariance of features, gathered in batches: the Frechet distance without holding all features.

``n x d`` features of a large data set need not fit into memory; the statistics are ``d x d`` whatever n is.
They can be saved and loaded (``tensors``), so that a data set's are computed once per extractor.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from drlib.errors import UserError
from drlib.metrics.frechet import FrechetDistance, check_features, overflow


class FeatureStatistics:
    """n, mean (d,) and scatter (d, d), the sum of centered outer products; all in float64.

    ``update`` merges a batch by the pairwise formula of Chan et al. 1979: no cancellation, and the result
    does not depend on how the features were cut into batches beyond rounding.
    """

    def __init__(self) -> None:
        self.n = 0
        self.mean = torch.empty(0, dtype=torch.float64)
        self.scatter = torch.empty(0, 0, dtype=torch.float64)

    @classmethod
    def of(cls, batches: Iterable[Tensor]) -> FeatureStatistics:
        """Statistics of features (b, d) that come in batches."""
        gathered = cls()
        for batch in batches:
            gathered.update(batch)
        return gathered

    def update(self, features: Tensor) -> None:
        """Add features (b, d). Raises ``UserError`` for another d, NaN or infinite values."""
        features = check_features("features", features)
        mean = features.mean(0)
        centered = features - mean
        scatter = centered.T @ centered
        if not self.n:
            self.n, self.mean, self.scatter = len(features), mean, scatter
            return
        if len(mean) != len(self.mean):
            raise UserError(f"features differ in dimension: {len(self.mean)} and {len(mean)}")
        total = self.n + len(features)
        apart = mean - self.mean
        self.scatter += scatter + torch.outer(apart, apart) * (self.n * len(features) / total)
        self.mean = self.mean + apart * (len(features) / total)
        self.n = total

    @property
    def covariance(self) -> Tensor:
        """Unbiased covariance (d, d); NaN with one sample."""
        return self.scatter / (self.n - 1) if self.n > 1 else torch.full_like(self.scatter, torch.nan)

    def tensors(self) -> dict[str, Tensor]:
        """What ``from_tensors`` makes the same statistics of again: copies, which ``update`` leaves alone."""
        return {"n": torch.tensor(self.n), "mean": self.mean.clone(), "scatter": self.scatter.clone()}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> FeatureStatistics:
        """The statistics that ``tensors`` were made of; the tensors are copied."""
        made = cls()
        made.n = int(tensors["n"])
        made.mean, made.scatter = tensors["mean"].clone(), tensors["scatter"].clone()
        return made


def frechet_distance_of(a: FeatureStatistics, b: FeatureStatistics) -> FrechetDistance:
    """As ``frechet_distance``, from statistics. Costs two eigendecompositions of d x d.

    tr (S_a S_b)^(1/2) is the sum of the square roots of the eigenvalues of S_a^(1/2) S_b S_a^(1/2). With
    fewer samples than dimensions ``frechet_distance`` on the features themselves is faster and more accurate.
    NaN with ``.reason`` if a set has only one sample, or where squares overflow.
    """
    if a.mean.shape != b.mean.shape:
        raise UserError(f"features differ in dimension: {len(a.mean)} and {len(b.mean)}")
    if min(a.n, b.n) < 2:
        reason = f"a covariance needs 2 samples or more, got {a.n} and {b.n}"
        return FrechetDistance(float("nan"), reason, a.n, b.n)
    apart = (a.mean - b.mean).square().sum() + a.covariance.trace() + b.covariance.trace()
    if reason := overflow(apart):
        return FrechetDistance(float("nan"), reason, a.n, b.n)
    values, vectors = torch.linalg.eigh(a.covariance)
    root = (vectors * values.clamp(min=0).sqrt()) @ vectors.T
    cross = torch.linalg.eigvalsh(root @ b.covariance @ root).clamp(min=0).sqrt().sum()
    return FrechetDistance(max(0.0, float(apart - 2 * cross)), None, a.n, b.n)
