"""The randomization test: calibrated where nothing leaks, sure where everything does."""

from __future__ import annotations

import pytest
import torch

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
        null = resplit_gaps(values, pool_labels, labels, resamples=200, seed=seed)
        ps.append(p_value(observed_gap(values, pool_labels, labels), null))
    small = sum(p <= 0.1 for p in ps)
    assert 8 <= small <= 34  # binomial(200, 0.1): 20 +- 4.2, within 3.3 standard deviations
    assert abs(sum(ps) / len(ps) - 0.5) < 0.08


def test_near_copies_of_training_images_are_found():
    points, pool_labels = pool(20, 0)
    made, labels = points[:20] + 0.01, pool_labels[:20]
    values = similarity(made, points)
    null = resplit_gaps(values, pool_labels, labels)
    assert p_value(observed_gap(values, pool_labels, labels), null) == pytest.approx(1 / 1001)


def test_near_copies_of_holdout_images_give_p_near_one():
    points, pool_labels = pool(20, 0)
    values = similarity(points[20:] + 0.01, points)
    null = resplit_gaps(values, pool_labels, pool_labels[20:])
    assert p_value(observed_gap(values, pool_labels, pool_labels[20:]), null) > 0.99


def test_resplits_are_balanced_in_every_class_and_repeatable():
    _, pool_labels = pool(10, 3)
    values = torch.zeros((1, 20), dtype=torch.float64)
    values[0, 0] = 1.0  # only image 0 matters: it is called training in half of the re-splits
    gaps = resplit_gaps(values, pool_labels, None, resamples=2000)
    assert set(gaps.tolist()) == {-1.0, 1.0}
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
    trained = leakage._resplits(pool_labels, 50, seed=7)
    expected = [
        (masked.masked_fill(~row, -torch.inf).amax(1) - masked.masked_fill(row, -torch.inf).amax(1)).mean()
        for row in trained
    ]
    found = resplit_gaps(values, pool_labels, labels, resamples=50, seed=7)
    assert torch.allclose(found, torch.stack(expected), atol=1e-12)
