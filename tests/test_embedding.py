"""t-SNE with a fixed seed, and how mixed two sets of points are."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.manifold  # noqa: F401 - its libraries must be loaded for a limit on their threads
from threadpoolctl import threadpool_limits

from drlib.embedding import embed, mixing
from drlib.errors import UserError


def clusters(n: int = 40, gap: float = 10.0, d: int = 8) -> np.ndarray:
    """Three Gaussian clusters of n points."""
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(size=(n, d)) + gap * rng.normal(size=d) for _ in range(3)])


@pytest.fixture(scope="module")
def embedded():
    return embed(clusters(), perplexity=10, iterations=300)


def test_the_same_seed_gives_the_same_coordinates(embedded):
    again = embed(clusters(), perplexity=10, iterations=300)
    assert np.array_equal(again.coordinates, embedded.coordinates)
    assert again.coordinates.shape == (120, 2) and again.seed == 0 and again.perplexity == 10


def test_the_number_of_threads_does_not_matter():
    points = np.random.default_rng(2).normal(size=(300, 900))  # large enough that its PCA would use both
    found = []
    for threads in (1, 2):
        with threadpool_limits(limits=threads):
            found.append(embed(points, iterations=250).coordinates)
    assert np.array_equal(*found)


def test_separated_clusters_stay_separated(embedded):
    label = np.repeat([0, 1, 2], 40)
    distance = np.linalg.norm(embedded.coordinates[:, None] - embedded.coordinates, axis=2)
    np.fill_diagonal(distance, np.inf)
    assert (label[distance.argmin(1)] == label).all()
    first, second = embedded.coordinates[:40], embedded.coordinates[40:80]
    assert mixing(first, second).ratio == 0


def test_trustworthiness_is_high_for_clusters_and_low_for_noise_in_many_dimensions(embedded):
    noise = np.random.default_rng(1).normal(size=(120, 60))
    assert embedded.trustworthiness > 0.9
    assert embed(noise, perplexity=10, iterations=300).trustworthiness < embedded.trustworthiness - 0.1


def test_equal_rows_can_be_embedded():
    points = np.concatenate([clusters(10), np.zeros((10, 8))])
    assert np.isfinite(embed(points, perplexity=5, iterations=250).coordinates).all()


@pytest.mark.parametrize("init", ["pca", "random"])
@pytest.mark.parametrize("value", [1.0, 0.1, 0.0, 1e300])
def test_points_that_are_all_equal_are_refused(value, init):
    with pytest.raises(UserError, match=r"points must differ, by at most .* but do by 0$"):
        embed(np.full((40, 5), value), perplexity=5, iterations=250, init=init)


@pytest.mark.parametrize("size", [1e200, 1e308])
def test_points_too_large_for_float32_are_refused(size):
    with pytest.raises(UserError, match=r"by at most 3.4e\+38"):
        embed(clusters(10) / 50 * size, perplexity=5, iterations=250)


@pytest.mark.parametrize(("scale", "offset"), [(1, 1e8), (1, -1e12), (1e30, 0), (1e-30, 0), (1e-200, 0)])
def test_offset_and_scale_do_not_matter(scale, offset):
    points = clusters().round(2) * scale + offset
    found = embed(points, perplexity=10, iterations=300)
    label = np.repeat([0, 1, 2], 40)
    distance = np.linalg.norm(found.coordinates[:, None] - found.coordinates, axis=2)
    np.fill_diagonal(distance, np.inf)
    assert (label[distance.argmin(1)] == label).all() and found.trustworthiness > 0.9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"perplexity": 10}, "perplexity 10 is too large for 30 points: it must be below 10"),
        ({"perplexity": 0.5}, "1 or more"),
        ({"perplexity": float("nan")}, "1 or more"),
        ({"perplexity": 5, "neighbors": 15}, "1 to 14"),
        ({"perplexity": 5, "iterations": 10}, "250"),
        ({"perplexity": 5, "init": "spectral"}, "random"),
        ({"perplexity": 5, "seed": -1}, "seed must lie in 0 to 4294967295, got -1"),
        ({"perplexity": 5, "seed": 2**32}, "seed must lie in 0 to 4294967295"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    with pytest.raises(UserError, match=message):
        embed(clusters(10), **arguments)


@pytest.mark.parametrize("points", [np.zeros(5), np.zeros((5, 1)), np.zeros((0, 3)), np.full((5, 3), np.nan)])
def test_wrong_points_are_refused(points):
    with pytest.raises(UserError):
        embed(points)
    with pytest.raises(UserError):
        mixing(points, np.zeros((5, 3)))


def test_mixing_by_hand():
    # a at 0, 1 and 10, b at 2: the nearest of 0 is 1, of 1 are 0 and 2 (a tie), of 10 is b, of b is 1
    first, second = np.array([[0.0, 0], [1, 0], [10, 0]]), np.array([[2.0, 0]])
    found = mixing(first, second, neighbors=1)
    assert found.from_first == pytest.approx((0 + 0.5 + 1) / 3) and found.from_second == 1
    assert (found.expected_first, found.expected_second) == pytest.approx((1 / 3, 1))
    assert found.ratio == found.second_ratio == 1 and found.first_ratio == pytest.approx(1.5)
    assert (found.n, found.m) == (3, 1)


def test_two_parts_of_one_set_are_fully_mixed_and_far_sets_are_not():
    points = np.random.default_rng(0).normal(size=(600, 10))
    for cut in (300, 500):
        found = mixing(points[:cut], points[cut:])
        assert (found.first_ratio, found.second_ratio) == pytest.approx((1, 1), abs=0.1)
    assert mixing(points[:300], points[300:] + 100).ratio == 0


def test_wide_noise_is_near_to_the_middle_of_a_set_and_not_the_other_way_round():
    rng = np.random.default_rng(0)
    found = mixing(rng.normal(size=(100, 200)), 0.3 * rng.normal(size=(100, 200)))
    assert found.first_ratio > 1.9 and found.second_ratio == 0 == found.ratio


def test_exact_copies_count_as_more_than_mixed_and_one_point_repeated_does_not():
    points = np.random.default_rng(0).normal(size=(50, 10))
    copies = mixing(points, points, neighbors=1)
    assert copies.from_first == copies.from_second == 1 and copies.ratio > 1.9
    assert mixing(points, np.repeat(points[:1], 50, axis=0)).ratio < 0.1


def test_mixing_of_too_few_points_is_nan_with_a_reason():
    found = mixing(np.zeros((2, 3)), np.ones((2, 3)), neighbors=5)
    assert np.isnan(found.from_first) and np.isnan(found.ratio) and "6 points" in found.reason
    with pytest.raises(UserError, match="dimension"):
        mixing(np.zeros((9, 3)), np.ones((9, 2)))
    with pytest.raises(UserError, match="1 or more"):
        mixing(np.zeros((9, 3)), np.ones((9, 3)), neighbors=0)
