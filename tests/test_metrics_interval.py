"""The paired bootstrap: determinism, hierarchy and coverage of the truth."""

import math

import numpy as np
import pytest
import torch

from drlib.metrics import paired_bootstrap


def normal(seeds, n, *, between=0.0, mean=0.0, seed=0):
    rng = np.random.default_rng(seed)
    return [mean + between * rng.standard_normal() + rng.standard_normal(n) for _ in range(seeds)]


def test_deterministic_and_ordered():
    differences = normal(3, 40, mean=1)
    first, second = paired_bootstrap(differences), paired_bootstrap(differences)
    assert first == second
    assert first.low < first.mean < first.high
    assert first.mean == pytest.approx(np.mean([values.mean() for values in differences]))
    assert (first.n, first.seeds, first.reason) == (120, 3, None)
    assert paired_bootstrap(differences, seed=1).low != first.low
    assert paired_bootstrap(differences, level=0.5).high < first.high


def test_one_seed_agrees_with_the_normal_interval():
    (values,) = normal(1, 400)
    found = paired_bootstrap([values], resamples=20_000)
    error = 1.96 * values.std() / len(values) ** 0.5
    assert found.low == pytest.approx(values.mean() - error, abs=0.05 * error)
    assert found.high == pytest.approx(values.mean() + error, abs=0.05 * error)


def test_seeds_are_resampled_too():
    """Five seeds that differ much more than their images: resampling images alone would be too narrow."""
    differences = [
        center + 0.01 * values for center, values in zip([0, 1, 2, 3, 4], normal(5, 50), strict=True)
    ]
    found = paired_bootstrap(differences)
    assert found.high - found.low > 1
    pooled = paired_bootstrap([np.concatenate([values - values.mean() for values in differences])])
    assert pooled.high - pooled.low < 0.01


def test_images_are_resampled_inside_their_seed():
    """Equal seed means: all the spread left comes from images."""
    differences = [values - values.mean() for values in normal(4, 25)]
    found = paired_bootstrap(differences, resamples=20_000)
    spread = np.mean([values.var() for values in differences]) / 25 / 4
    assert (found.high - found.low) / 3.92 == pytest.approx(spread**0.5, rel=0.05)


def test_each_seed_weighs_the_same():
    found = paired_bootstrap([np.zeros(1000), np.ones(10)])
    assert found.mean == 0.5
    assert (found.low, found.high) == (0, 1)


@pytest.mark.parametrize(("seeds", "n"), [(1, 60), (5, 30)])
def test_covers_a_null_difference(seeds, n):
    """At least 88 % of 300 intervals of 95 % contain the zero difference (5.5 standard errors)."""
    repetitions = 300
    hits = 0
    for repetition in range(repetitions):
        found = paired_bootstrap(normal(seeds, n, seed=repetition), resamples=400, seed=repetition)
        hits += found.low <= 0 <= found.high
    assert hits >= 0.88 * repetitions
    if seeds == 1:  # with more seeds it is wider than needed when seeds do not matter
        assert hits <= 0.99 * repetitions


def test_finds_a_difference():
    assert paired_bootstrap(normal(3, 100, mean=0.5)).low > 0


def test_memory_is_bounded(monkeypatch):
    from drlib.metrics import interval

    differences = normal(1, 50)
    monkeypatch.setattr(interval, "_DRAWS", 333)
    found = paired_bootstrap(differences, resamples=1001)
    assert found.low < found.mean < found.high


@pytest.mark.parametrize("differences", [[[1.0]], [[]], [[1.0, 2.0, 3.0], [1.0]]])
def test_too_few_images_is_nan_with_a_reason(differences):
    found = paired_bootstrap(differences)
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    assert "2 images or more" in found.reason


def test_differences_that_are_not_finite():
    found = paired_bootstrap([[1.0, math.inf, 2.0]])
    assert math.isnan(found.mean)
    assert math.isnan(found.low)
    assert "not finite" in found.reason


@pytest.mark.parametrize(
    "make", [lambda x: x.requires_grad_(), lambda x: x.bfloat16().requires_grad_(), lambda x: x]
)
def test_tensors_are_taken_also_with_gradients(make):
    values = torch.arange(8.0)
    assert paired_bootstrap([make(values)]) == paired_bootstrap([np.arange(8.0)])


def test_bad_input_is_refused():
    for arguments, options, message in [
        (([],), {}, "one for each seed"),
        ((np.zeros((2, 3, 4)),), {}, "one-dimensional"),
        (([1.0, 2.0],), {}, "one-dimensional"),
        (([[1.0, 2.0]],), {"level": 95}, "between 0 and 1"),
        (([[1.0, 2.0]],), {"resamples": 0}, "1 or more"),
        (([[1.0, 2.0]],), {"seed": -1}, "seed must be 0 or more, got -1"),
    ]:
        with pytest.raises(ValueError, match=message):
            paired_bootstrap(*arguments, **options)
