"""The randomization test: calibrated where nothing leaks, sure where everything does."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
import torch

from drlib.errors import UserError
from drlib.metrics import leakage
from drlib.metrics.leakage import p_value, resplit_gaps


def pool(m: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    points = torch.randn((2 * m, 3), generator=torch.Generator().manual_seed(seed))
    return points, (torch.arange(m) % 2).repeat(2)


def similarity(made: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
    return -torch.cdist(made.double(), points.double())


def observed_gap(values: torch.Tensor, pool_labels: torch.Tensor, labels: torch.Tensor) -> float:
    values = values.masked_fill(labels[:, None] != pool_labels[None], -torch.inf)
    m = values.shape[1] // 2
    return float((values[:, :m].amax(1) - values[:, m:].amax(1)).mean())


def test_p_values_are_uniform_for_a_few_points_that_cannot_leak():
    """Two distinct reconstructions repeated 20 times, as class means are: p must still be uniform."""
    ps = []
    for seed in range(200):
        points, pool_labels = pool(8, seed)
        made = torch.randn((2, 3), generator=torch.Generator().manual_seed(1000 + seed)).repeat(20, 1)
        labels = (torch.arange(40)) % 2
        values = similarity(made, points)
        ps.append(p_value(resplit_gaps(values, pool_labels, labels, resamples=200, seed=seed)))
    small = sum(p <= 0.1 for p in ps)
    assert 8 <= small <= 34  # binomial(200, 0.1): 20 +- 4.2, within 3.3 standard deviations
    assert abs(sum(ps) / len(ps) - 0.5) < 0.08


def test_near_copies_of_training_images_are_found():
    points, pool_labels = pool(20, 0)
    made, labels = points[:20] + 0.01, pool_labels[:20]
    values = similarity(made, points)
    gaps = resplit_gaps(values, pool_labels, labels)
    assert float(gaps[0]) == pytest.approx(observed_gap(values, pool_labels, labels), abs=1e-12)
    assert p_value(gaps) == pytest.approx(1 / 1001)


def test_near_copies_of_holdout_images_give_p_near_one():
    points, pool_labels = pool(20, 0)
    values = similarity(points[20:] + 0.01, points)
    assert p_value(resplit_gaps(values, pool_labels, pool_labels[20:])) > 0.99


def test_ties_count_even_where_equal_similarities_were_rounded_apart():
    """One image many times: its gap has few values, and the p-value is the exact share of the re-splits."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        row = torch.rand(8, generator=generator, dtype=torch.float64)
        values = row.repeat(20, 1)
        pool_labels = torch.zeros(8, dtype=torch.long)
        observed = row[:4].max() - row[4:].max()
        every = [
            row[list(half)].max() - row[[i for i in range(8) if i not in half]].max()
            for half in combinations(range(8), 4)
        ]
        exact = sum(float(gap >= observed - 1e-12) for gap in every) / len(every)
        assert abs(p_value(resplit_gaps(values, pool_labels, resamples=4000)) - exact) < 0.04


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"similarity": torch.full((3, 4), math.nan)}, "finite"),
        ({"similarity": torch.full((3, 4), math.inf)}, "finite"),
        ({"similarity": torch.zeros((0, 4))}, "finite"),
        ({"similarity": torch.zeros((3, 0)), "pool_labels": torch.zeros(0, dtype=torch.long)}, "finite"),
        ({"labels": torch.zeros(1, dtype=torch.long)}, "3 reconstructions need 3 labels"),
        ({"labels": torch.tensor([0, 0, 7])}, "no image of class 7"),
    ],
)
def test_what_cannot_be_tested_is_refused(change, said):
    usual = {"similarity": torch.zeros((3, 4)), "pool_labels": torch.zeros(4, dtype=torch.long)}
    with pytest.raises(UserError, match=said):
        resplit_gaps(**(usual | {"labels": torch.zeros(3, dtype=torch.long)} | change))


def test_no_p_value_without_a_gap():
    assert math.isnan(p_value(torch.tensor([math.nan, 0.0, 1.0])))


def test_resplits_are_balanced_in_every_class_and_repeatable():
    _, pool_labels = pool(10, 3)
    values = torch.zeros((1, 20), dtype=torch.float64)
    values[0, 0] = 1.0  # only image 0 matters: it is called training in half of the re-splits
    gaps = resplit_gaps(values, pool_labels, None, resamples=2000)
    assert set(gaps.tolist()) == {-1.0, 1.0}
    assert gaps[0] == 1.0  # the real split
    assert 0.45 < (gaps > 0).double().mean() < 0.55
    assert torch.equal(gaps, resplit_gaps(values, pool_labels, None, resamples=2000))


def test_unequal_halves_are_refused():
    with pytest.raises(ValueError, match="as many training as holdout"):
        resplit_gaps(torch.zeros((1, 4)), torch.tensor([0, 0, 0, 1]))


@pytest.mark.parametrize("labeled", [True, False])
@pytest.mark.parametrize("ranks", [1, 2, 32])
def test_ranked_search_equals_masking_the_whole_matrix(monkeypatch, labeled, ranks):
    monkeypatch.setattr(leakage, "_RANKS", ranks)
    points, pool_labels = pool(12, 5)
    made = torch.randn((9, 3), generator=torch.Generator().manual_seed(6))
    labels = torch.arange(9) % 2 if labeled else None
    values = similarity(made, points)
    masked = values.masked_fill(labels[:, None] != pool_labels[None], -torch.inf) if labeled else values
    real = torch.arange(24) < 12
    trained = [real, *leakage._resplits(pool_labels, 50, seed=7)]
    expected = [
        (masked.masked_fill(~row, -torch.inf).amax(1) - masked.masked_fill(row, -torch.inf).amax(1)).mean()
        for row in trained
    ]
    found = resplit_gaps(values, pool_labels, labels, resamples=50, seed=7)
    assert torch.allclose(found, torch.stack(expected), atol=1e-12)


@pytest.mark.parametrize("shape", [(0,), (11, 3), ()])
def test_a_p_value_is_of_gaps_and_not_of_differences(shape):
    with pytest.raises(UserError, match="as from resplit_gaps"):
        p_value(torch.zeros(shape))
