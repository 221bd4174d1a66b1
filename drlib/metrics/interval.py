"""Confidence interval of a mean paired difference: a bootstrap over seeds and over images within a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from drlib.errors import UserError

_DRAWS = 2**22  # image indices held at once


@dataclass(frozen=True)
class Interval:
    """Mean difference with a percentile interval.

    Attributes:
        mean: mean over seeds of the mean over images, so that each seed weighs the same.
        low, high: bounds; NaN where they cannot be computed.
        n: differences in all seeds together.
        seeds: number of seeds.
        reason: why the bounds are NaN, else None.
    """

    mean: float
    low: float
    high: float
    n: int
    seeds: int
    reason: str | None = None


def paired_bootstrap(
    differences: Sequence[np.ndarray | Tensor], *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """Percentile interval of the mean difference, resampling seeds and then images within each drawn seed.

    With one seed only images are resampled. With a few seeds the interval is too wide where seeds do not
    matter and too narrow where they matter much (three seeds cannot show how much seeds vary): print their
    number.

    Args:
        differences: one one-dimensional array or tensor per seed; the paired difference of each image.
        level: nominal coverage in (0, 1).
        resamples: number of bootstrap resamples.
        seed: of the resampling, 0 or more; the same input gives the same bits.

    Returns:
        Interval; the bounds are NaN, with a reason, if a seed has one image or a difference is not finite.

    Raises:
        UserError: other shapes, a level outside (0, 1), fewer than 1 resample, a seed below 0.
    """
    differences = [v.detach().double().cpu() if isinstance(v, Tensor) else v for v in differences]
    arrays = [np.asarray(values, dtype=np.float64) for values in differences]
    if not arrays or any(values.ndim != 1 for values in arrays):
        raise UserError("differences must be a list of one-dimensional arrays, one for each seed")
    if not 0 < level < 1:
        raise UserError(f"level must lie between 0 and 1, got {level}")
    if resamples < 1:
        raise UserError(f"resamples must be 1 or more, got {resamples}")
    if seed < 0:
        raise UserError(f"seed must be 0 or more, got {seed}")
    n, seeds = sum(map(len, arrays)), len(arrays)
    if min(map(len, arrays)) < 2:
        mean = float(np.mean([values.mean() for values in arrays])) if min(map(len, arrays)) else np.nan
        return Interval(mean, np.nan, np.nan, n, seeds, "an interval needs 2 images or more in each seed")
    if not all(np.isfinite(values).all() for values in arrays):
        return Interval(np.nan, np.nan, np.nan, n, seeds, "some differences are not finite (PSNR of copies)")

    rng = np.random.default_rng(seed)
    drawn = rng.integers(seeds, size=(resamples, seeds))
    means = np.empty((resamples, seeds))
    for s, values in enumerate(arrays):
        slots = drawn == s
        means[slots] = _resampled_means(values, int(slots.sum()), rng)
    low, high = np.quantile(means.mean(1), [(1 - level) / 2, (1 + level) / 2])
    mean = float(np.mean([values.mean() for values in arrays]))
    return Interval(mean, float(low), float(high), n, seeds)


def _resampled_means(values: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Means of ``count`` resamples of ``values`` with replacement."""
    step = max(1, _DRAWS // len(values))
    means = np.empty(count)
    for i in range(0, count, step):
        draws = rng.integers(len(values), size=(min(step, count - i), len(values)))
        means[i : i + step] = values[draws].mean(1)
    return means
