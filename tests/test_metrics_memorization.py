"""Memorization from models' answers: by hand, by simulation, and where it cannot be computed."""

from __future__ import annotations

import math
from itertools import permutations

import pytest
import torch

from drlib.errors import UserError
from drlib.metrics.memorization import (
    class_present,
    complete_or_without,
    memorization,
    model_score,
    permutation_p_value,
    rank_correlation,
    split_half_reliability,
)


def nearest_neighbor_answers(points: torch.Tensor, labels: torch.Tensor, inside: torch.Tensor):
    """What 1-nearest-neighbor classifiers, each trained on a row of ``inside``, say of every point."""
    distance = (points[:, None] - points[None]).abs()
    answers = []
    for row in inside:
        nearest = distance.masked_fill(~row[None], torch.inf).argmin(1)
        answers.append(labels[nearest] == labels)
    return torch.stack(answers).float()


def test_leave_one_out_by_hand():
    """Two clusters and an outlier: only the outlier's label is lost without it."""
    points = torch.tensor([0.0, 1.0, 2.0, 10.0, 11.0, 12.5])
    labels = torch.tensor([0, 0, 0, 1, 1, 0])
    n = len(points)
    inside = torch.cat([torch.ones(1, n, dtype=torch.bool), ~torch.eye(n, dtype=torch.bool)])
    outcome = nearest_neighbor_answers(points, labels, inside)
    found = memorization(inside, outcome, usable=complete_or_without(inside))
    assert found.values.tolist() == [0, 0, 0, 0, 0, 1]
    assert found.models_with.tolist() == [1] * n and found.models_without.tolist() == [1] * n
    assert found.standard_error.isnan().all()  # one model on a side tells nothing of its spread
    assert model_score(inside, outcome, usable=complete_or_without(inside)).value == pytest.approx(1 / 6)


def test_other_models_that_hold_the_sample_do_not_enter_leave_one_out():
    inside = torch.tensor([[True, True, True], [False, True, True], [True, False, True], [True, True, False]])
    outcome = torch.tensor([[1.0, 1, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0]])
    found = memorization(inside, outcome, usable=complete_or_without(inside))
    assert found.values.tolist() == [1, 1, 1]
    assert memorization(inside, outcome).values.tolist() == pytest.approx([1 / 3] * 3)


def draw(models: int, p_with: torch.Tensor, p_without: torch.Tensor, generator) -> tuple:
    n = len(p_with)
    inside = torch.rand(models, n, generator=generator).argsort(1) < 0.7 * n
    chance = torch.where(inside, p_with, p_without)
    return inside, (torch.rand(models, n, generator=generator) < chance).float()


def test_unbiased_with_standard_errors_that_are_right():
    generator = torch.Generator().manual_seed(0)
    p_with, p_without = torch.linspace(0.5, 1, 20), torch.linspace(0.5, 0.1, 20)
    runs = [memorization(*draw(60, p_with, p_without, generator)) for _ in range(400)]
    values = torch.stack([run.values for run in runs])
    errors = torch.stack([run.standard_error for run in runs])
    truth = (p_with - p_without).double()
    assert ((values.mean(0) - truth).abs() < 4 * values.std(0) / 20).all()
    assert torch.allclose(errors.square().mean(0).sqrt(), values.std(0), rtol=0.15)


def test_the_model_scores_error_counts_that_samples_share_models():
    """A model that is right or wrong on everything: the samples' values move together."""
    generator = torch.Generator().manual_seed(1)
    scores, errors = [], []
    for _ in range(300):
        inside = torch.rand(40, 30, generator=generator).argsort(1) < 21
        good = torch.rand(40, 1, generator=generator)
        outcome = (torch.rand(40, 30, generator=generator) < 0.4 * inside + 0.6 * good).float()
        score = model_score(inside, outcome)
        scores.append(score.value)
        errors.append(score.standard_error)
    spread = float(torch.tensor(scores).std())
    assert float(torch.tensor(errors).mean()) == pytest.approx(spread, rel=0.15)


def test_a_class_that_vanishes_is_left_out_and_counted():
    labels = torch.tensor([0, 0, 0, 1])  # one sample in class 1: without it, its class is gone
    inside = torch.tensor([[True, True, False, True], [True, False, True, False], [False, True, True, True]])
    usable = class_present(inside, labels)
    assert usable.tolist() == [[True, True, True, True], [True, True, True, False], [True, True, True, True]]
    outcome = inside.float()
    found = memorization(inside, outcome, usable=usable)
    assert found.values[:3].tolist() == [1, 1, 1] and found.values[3].isnan()
    assert found.models_without[3] == 0
    score = model_score(inside, outcome, usable=usable)
    assert (score.samples, score.left_out, score.value) == (3, 1, 1.0)
    assert memorization(inside, outcome).values[3] == 1  # by construction, if it is not left out


def test_the_score_is_of_the_first_samples():
    generator = torch.Generator().manual_seed(2)
    inside, outcome = draw(30, torch.full((50,), 0.9), torch.full((50,), 0.2), generator)
    whole = memorization(inside, outcome).values
    assert model_score(inside, outcome, first=10).value == pytest.approx(float(whole[:10].mean()))
    assert model_score(inside, outcome, first=10).samples == 10


def test_reliability_grows_with_models_and_is_nothing_for_noise():
    generator = torch.Generator().manual_seed(3)
    p_with, p_without = torch.full((100,), 0.95), torch.rand(100, generator=generator)
    few, many = (split_half_reliability(*draw(t, p_with, p_without, generator)) for t in (16, 200))
    assert few[0] < many[0] and many[1] > 0.9 and few[1] > few[0]
    flat = torch.full((100,), 0.5)
    noise, _ = split_half_reliability(*draw(200, flat, flat, generator))
    assert abs(noise) < 0.15


def test_rank_correlation_skips_what_is_unknown():
    a = torch.tensor([1.0, 2, 3, float("nan")])
    assert rank_correlation(a, torch.tensor([1.0, 4, 9, 0])) == pytest.approx(1)
    assert math.isnan(rank_correlation(a, torch.ones(4)))


@pytest.mark.parametrize(
    ("inside", "outcome", "says"),
    [
        (torch.ones(3, 2), torch.ones(3, 2), "bool"),
        (torch.ones(3, 2, dtype=torch.bool), torch.ones(2, 3), "shape"),
        (torch.ones(3, 2, dtype=torch.bool), torch.full((3, 2), 1.5), "must lie in"),
        (torch.ones(3, 2, dtype=torch.bool), torch.full((3, 2), torch.nan), "without NaN"),
    ],
)
def test_refusals_are_one_line(inside, outcome, says):
    with pytest.raises(UserError, match=says) as error:
        memorization(inside, outcome)
    assert "\n" not in str(error.value)


def test_the_permutation_test_finds_a_relation_inside_groups_and_ignores_one_between_them():
    generator = torch.Generator().manual_seed(0)
    groups = torch.arange(4).repeat_interleave(25)
    noise = torch.randn(2, 100, generator=generator, dtype=torch.float64)
    between = 10 * groups + noise[0], 10 * groups + noise[1]  # classes differ in both, images in neither
    inside = noise[0], noise[0] + 0.5 * noise[1]
    assert permutation_p_value(*between, groups) > 0.05
    assert permutation_p_value(*inside, groups) == 1 / 1001
    assert permutation_p_value(-inside[0], inside[1], groups) == 1 / 1001  # two-sided


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("between", [-3.0, 0.0, 3.0])
def test_a_relation_inside_groups_is_found_whatever_lies_between_them(sign, between):
    groups = torch.arange(5).repeat_interleave(10)
    inside = torch.rand(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    a, b = groups + 0.9 * inside, between * groups + sign * 0.9 * inside
    assert rank_correlation(a, b, groups) == pytest.approx(sign)
    assert permutation_p_value(a, b, groups) == 1 / 1001


def test_permutation_p_values_are_uniform_where_only_groups_differ():
    groups = torch.arange(5).repeat_interleave(10)
    ps = []
    for seed in range(200):
        noise = torch.randn(2, 50, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        ps.append(permutation_p_value(groups + noise[0], noise[1] - groups, groups, draws=200))
    assert 8 <= sum(p <= 0.1 for p in ps) <= 34  # binomial(200, 0.1): 20 +- 4.2
    assert abs(sum(ps) / len(ps) - 0.5) < 0.08


@pytest.mark.parametrize("draws", [0, -1])
def test_a_permutation_test_needs_draws(draws):
    with pytest.raises(UserError, match="draws must be 1 or more"):
        permutation_p_value(
            torch.arange(4.0), torch.arange(4.0), torch.zeros(4, dtype=torch.long), draws=draws
        )


@pytest.mark.parametrize("lengths", [(4, 5, 4), (4, 4, 5), (5, 4, 4)])
def test_rank_correlation_refuses_other_lengths(lengths):
    a, b, groups = (torch.zeros(n) for n in lengths)
    with pytest.raises(UserError, match="equal length"):
        rank_correlation(a, b, groups.long())


def test_halves_that_disagree_are_not_reliable_at_all():
    generator = torch.Generator().manual_seed(3)
    for _ in range(40):
        inside = torch.rand(8, 6, generator=generator) < 0.5
        r, reliability = split_half_reliability(inside, torch.rand(8, 6, generator=generator), splits=1)
        assert math.isnan(r) or (reliability == 0.0 if r < 0 else 0 <= reliability <= 1)


def test_the_permutation_test_is_exact_where_all_shuffles_can_be_listed():
    a, b = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([1.0, 2.0, 4.0, 3.0])
    observed = abs(rank_correlation(a, b))
    every = [abs(rank_correlation(a, b[list(order)])) for order in permutations(range(4))]
    exact = sum(value >= observed - 1e-12 for value in every) / len(every)
    found = permutation_p_value(a, b, torch.zeros(4, dtype=torch.long), draws=20_000)
    assert abs(found - exact) < 0.02


def test_the_permutation_test_leaves_out_images_without_a_value_and_says_nan_without_a_correlation():
    a = torch.tensor([1.0, float("nan"), 3.0, 4.0, 5.0, 6.0])
    b, groups = torch.tensor([1.0, 9.0, 2.0, 3.0, 4.0, 5.0]), torch.zeros(6, dtype=torch.long)
    kept = a.isfinite()
    assert permutation_p_value(a, b, groups) == permutation_p_value(a[kept], b[kept], groups[kept])
    assert math.isnan(permutation_p_value(torch.ones(6), b, groups))


def test_shuffles_stay_inside_groups():
    """Two groups of 2 and 4: 48 orders can be listed, of the 720 that ignore the groups."""
    groups = torch.tensor([0, 0, 1, 1, 1, 1])
    a = torch.tensor([1.0, 2.0, 1.0, 2.0, 3.0, 4.0])
    b = torch.tensor([1.0, 2.0, 1.0, 2.0, 4.0, 3.0])
    observed = abs(rank_correlation(a, b, groups))
    orders = [[*x, *(2 + i for i in y)] for x in permutations(range(2)) for y in permutations(range(4))]
    every = [abs(rank_correlation(a, b[order], groups)) for order in orders]
    exact = sum(value >= observed - 1e-12 for value in every) / len(every)
    assert permutation_p_value(a, b, groups, draws=20_000) == pytest.approx(exact, abs=0.015)
