"""What a Frechet distance is worth at its number of images: the floor, an interval, values at equal n.

The distance between two samples of one distribution is not 0: it grows as n falls. So a value stands beside
the floor at its n, and values at different n are not compared as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from drlib.errors import UserError
from drlib.metrics.frechet import FrechetDistance, check_features, frechet_distance


def frechet_floor(
    features: Tensor, *, n: int | None = None, draws: int = 5, seed: int = 0
) -> FrechetDistance:
    """Distance between two disjoint random parts of one set, mean over ``draws``: the bias at that n.

    Other images of the same kind come out near it, compared at this n (``frechet_at``); copies fall below.

    Args:
        features: (N, d). n: size of each part, at most N // 2 (the default).

    Returns:
        the mean, with ``.n`` = ``.m`` = n; NaN with a reason where there are too few samples, or too large.

    Raises:
        UserError: features that do not fit, fewer than 1 draw.
    """
    _check_draws(draws)
    features = check_features("features", features)
    size = len(features) // 2 if n is None else n
    if 2 * size > len(features) or size < 2:
        reason = f"a floor at n = {size} needs {2 * max(size, 2)} samples, got {len(features)}"
        return FrechetDistance(float("nan"), reason, size, size)
    generator = torch.Generator().manual_seed(seed)
    total = 0.0
    for _ in range(draws):
        order = torch.randperm(len(features), generator=generator)
        found = frechet_distance(features[order[:size]], features[order[size : 2 * size]])
        total += found
    return FrechetDistance(total / draws, found.reason, size, size)


def frechet_at(a: Tensor, b: Tensor, n: int, *, draws: int = 5, seed: int = 0) -> FrechetDistance:
    """Distance between random parts of n of both sets, mean over ``draws``: for comparing across sizes.

    NaN and errors as of ``frechet_floor``.
    """
    _check_draws(draws)
    a, b = check_features("features_a", a), check_features("features_b", b)
    if n > min(len(a), len(b)) or n < 2:
        reason = f"n = {n} is not in 2 to {min(len(a), len(b))}"
        return FrechetDistance(float("nan"), reason, n, n)
    generator = torch.Generator().manual_seed(seed)
    total = 0.0
    for _ in range(draws):
        parts = (x[torch.randperm(len(x), generator=generator)[:n]] for x in (a, b))
        found = frechet_distance(*parts)
        total += found
    return FrechetDistance(total / draws, found.reason, n, n)


def _check_draws(draws: int) -> None:
    if draws < 1:
        raise UserError(f"draws must be 1 or more, got {draws}")


@dataclass(frozen=True)
class FrechetInterval:
    """value: the distance of the samples; low, high: an interval for its mean over samples of this size.

    ``standard_error``: the spread of the distance over half-samples (delete-half jackknife).
    """

    value: float
    standard_error: float
    low: float
    high: float
    n: int
    m: int


def frechet_interval(
    a: Tensor, b: Tensor, *, level: float = 0.95, resamples: int = 40, seed: int = 0
) -> FrechetInterval:
    """Interval of the distance at this n and m, by resampling without replacement.

    A resample *with* replacement holds some samples twice, which this distance takes for structure: with
    fewer samples than dimensions its spread came out twice too large in simulations. Half-samples keep all
    samples different; the spread of their distances is the standard error of the whole (1.0 to 1.4 times it
    in the same simulations), and the interval is the value plus and minus the normal quantile of ``level``
    times that. It says nothing of the bias, which the floor shows.

    Returns:
        NaN bounds where a half-sample would have fewer than 2 samples.
    """
    if not 0 < level < 1 or resamples < 2:
        raise UserError("level must lie between 0 and 1, and resamples be 2 or more")
    a, b = check_features("features_a", a), check_features("features_b", b)
    value = float(frechet_distance(a, b))
    if min(len(a), len(b)) < 4:
        return FrechetInterval(value, *[float("nan")] * 3, len(a), len(b))
    generator = torch.Generator().manual_seed(seed)
    halves = [[_half(x, generator) for x in (a, b)] for _ in range(resamples)]
    error = float(torch.tensor([float(frechet_distance(*pair)) for pair in halves]).std())
    reach = NormalDist().inv_cdf((1 + level) / 2) * error
    low = max(value - reach, 0.0)  # a NaN, first, stays one
    return FrechetInterval(value, error, low, value + reach, len(a), len(b))


def _half(x: Tensor, generator: torch.Generator) -> Tensor:
    return x[torch.randperm(len(x), generator=generator)[: len(x) // 2]]
