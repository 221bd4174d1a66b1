"""Frechet distance from streamed statistics; its floor, interval and equal-n form."""

from __future__ import annotations

import math

import pytest
import torch

from drlib.errors import UserError
from drlib.metrics.frechet import frechet_distance
from drlib.metrics.frechet_statistics import FeatureStatistics, frechet_distance_of
from drlib.metrics.frechet_uncertainty import frechet_at, frechet_floor, frechet_interval


def features(n: int, d: int, seed: int = 0, shift: float = 0.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * torch.linspace(0.5, 2, d) + shift


@pytest.mark.parametrize(("n", "d"), [(300, 20), (15, 20), (21, 20)])
def test_streamed_equals_whole(n, d):
    a, b = features(n, d), features(n + 7, d, 1, 0.3)
    streamed = [FeatureStatistics.of(x.split(size)) for x, size in ((a, 4), (b, 11))]
    assert frechet_distance_of(*streamed) == pytest.approx(float(frechet_distance(a, b)), rel=1e-6)
    assert frechet_distance_of(*streamed).n == n


def test_batches_change_nothing_also_far_from_zero():
    a = features(1000, 8) + 1e4
    whole, parts = FeatureStatistics.of([a]), FeatureStatistics.of(a.split(3))
    assert torch.allclose(whole.covariance, parts.covariance, rtol=1e-9, atol=1e-9)
    assert torch.allclose(whole.covariance, torch.cov(a.T), rtol=1e-9, atol=1e-9)


def test_statistics_survive_being_stored():
    made = FeatureStatistics.of([features(30, 5)])
    again = FeatureStatistics.from_tensors(made.tensors())
    assert again.n == 30 and torch.equal(again.covariance, made.covariance)
    with pytest.raises(UserError, match="differ in dimension: 5 and 6"):
        again.update(features(3, 6))
    one = FeatureStatistics.of([features(1, 5)])
    assert "2 samples" in frechet_distance_of(one, made).reason


def test_stored_statistics_are_copies():
    made = FeatureStatistics.of([features(30, 5)])
    stored = made.tensors()
    kept = {name: values.clone() for name, values in stored.items()}
    again = FeatureStatistics.from_tensors(stored)
    for statistics in (made, again):
        statistics.update(features(3, 5, 1))
        statistics.mean.zero_()
        assert all(torch.equal(stored[name], kept[name]) for name in kept)


@pytest.mark.parametrize("function", [frechet_floor, lambda x, **options: frechet_at(x, x, 5, **options)])
def test_fewer_than_one_draw_is_refused(function):
    for draws in (0, -1):
        with pytest.raises(UserError, match=f"draws must be 1 or more, got {draws}"):
            function(features(20, 3), draws=draws)


@pytest.mark.parametrize("size", [1e100, 1e160, 1e308])
def test_features_that_overflow_are_nan_with_a_reason(size):
    a, b = features(30, 5).clamp(-1, 1) * size, features(30, 5, 1).clamp(-1, 1) * size
    statistics = [FeatureStatistics.of([x]) for x in (a, b)]
    for found in (frechet_distance_of(*statistics), frechet_floor(a), frechet_at(a, b, 10)):
        assert math.isnan(found) and "too large" in found.reason and found.n in (30, 15, 10)
    interval = frechet_interval(a, b)
    assert all(map(math.isnan, (interval.value, interval.standard_error, interval.low, interval.high)))


def test_the_floor_falls_with_n_and_is_that_of_one_distribution():
    pool = features(2000, 16)
    floors = [float(frechet_floor(pool, n=n)) for n in (50, 200, 1000)]
    assert floors[0] > 2 * floors[1] > 4 * floors[2] / 2 > 0
    other = float(frechet_distance(features(200, 16, 5), features(200, 16, 6)))
    assert floors[1] == pytest.approx(other, rel=0.3)
    assert frechet_floor(pool).n == 1000
    assert "needs 4000 samples" in frechet_floor(pool, n=2000).reason
    assert math.isnan(frechet_floor(pool[:2]))


def test_equal_n_takes_away_what_n_alone_does():
    a, b = features(800, 16), features(800, 16, 1)
    small, large = features(100, 16, 2), a
    as_they_come = [float(frechet_distance(x, b[: len(x)])) for x in (small, large)]
    equal = [float(frechet_at(x, b, 100)) for x in (small, large)]
    assert as_they_come[0] > 3 * as_they_come[1]
    assert equal[0] == pytest.approx(equal[1], rel=0.3)
    assert "not in 2 to 100" in frechet_at(small, b, 101).reason


@pytest.mark.parametrize(("n", "d", "shift"), [(100, 10, 0.4), (100, 10, 1.5), (40, 100, 0.4)])
def test_the_standard_error_is_the_spread_over_samples(n, d, shift):
    """About right where samples are many, too large with fewer samples than dimensions, never too small."""
    draws = [(features(n, d, 2 * s), features(n, d, 2 * s + 1, shift)) for s in range(1, 41)]
    found = [frechet_interval(a, b, resamples=20) for a, b in draws]
    spread = float(torch.tensor([each.value for each in found]).std())
    error = sum(each.standard_error for each in found) / len(found)
    assert 0.8 < error / spread < (1.5 if n > d else 2.0)
    truth = sum(each.value for each in found) / len(found)
    assert sum(each.low <= truth <= each.high for each in found) >= 0.85 * len(found)


def test_no_interval_from_too_few_samples():
    for n, m in [(3, 3), (3, 9), (2, 9), (9, 2), (1, 9), (9, 1), (1, 1)]:
        found = frechet_interval(features(n, 4), features(m, 4, 1))
        assert math.isnan(found.low) and math.isnan(found.high) and math.isnan(found.standard_error)
        assert math.isnan(found.value) == (min(n, m) == 1) and (found.n, found.m) == (n, m)
    assert frechet_interval(features(4, 4), features(4, 4, 1)).high > 0
