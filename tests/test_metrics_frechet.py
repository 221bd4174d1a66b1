"""Frechet distance against closed forms, its own properties and pytorch-fid."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drlib.metrics import FrechetDistance, frechet, frechet_distance

# pytorch-fid 0.3.0 calls scipy.linalg.sqrtm in a way that SciPy has announced to remove
uses_sqrtm = pytest.mark.filterwarnings("ignore:The `disp` argument is deprecated:DeprecationWarning")


def features(n, d, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(d, d, generator=generator, dtype=torch.float64) / d**0.5
    return scale * torch.randn(n, d, generator=generator, dtype=torch.float64) @ mixing


def pytorch_fid(a, b):
    from pytorch_fid.fid_score import calculate_frechet_distance

    a, b = a.double().numpy(), b.double().numpy()
    return calculate_frechet_distance(a.mean(0), np.cov(a, rowvar=False), b.mean(0), np.cov(b, rowvar=False))


SIZES = st.tuples(st.integers(2, 40), st.integers(2, 40), st.integers(1, 20))


@uses_sqrtm
@pytest.mark.parametrize(
    ("n", "m", "d"), [(400, 300, 32), (65, 65, 64), (20, 30, 64), (20, 200, 64), (200, 20, 64), (33, 33, 32)]
)
def test_equals_pytorch_fid(n, m, d):
    a, b = features(n, d), features(m, d, seed=1, scale=1.3) + 0.1
    assert frechet_distance(a, b) == pytest.approx(pytorch_fid(a, b), rel=1e-6)


@uses_sqrtm
@pytest.mark.filterwarnings("ignore:Matrix is singular")
def test_equals_pytorch_fid_with_dead_and_repeated_features():
    a, b = features(300, 24), features(300, 24, seed=1)
    a[:, :4] = b[:, :4] = 0
    a[:, 4], b[:, 4] = a[:, 5], b[:, 5]
    assert frechet_distance(a, b) == pytest.approx(pytorch_fid(a, b), rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(sizes=SIZES, seed=st.integers(0, 999))
def test_symmetric_nonnegative_and_translation(sizes, seed):
    n, m, d = sizes
    a, b = features(n, d, seed), features(m, d, seed + 1)
    value = frechet_distance(a, b)
    assert value >= 0
    assert frechet_distance(b, a) == pytest.approx(value, rel=1e-9, abs=1e-12)
    assert frechet_distance(a.flip(0), b) == pytest.approx(value, rel=1e-9, abs=1e-12)
    assert frechet_distance(a + 5, b + 5) == pytest.approx(value, rel=1e-9, abs=1e-9)
    # moving one set adds |shift|^2 + 2 shift . (mean_a - mean_b)
    shift = torch.linspace(-1, 2, d, dtype=torch.float64)
    moved = value + shift.square().sum() + 2 * shift @ (a.mean(0) - b.mean(0))
    assert frechet_distance(a + shift, b) == pytest.approx(float(moved), rel=1e-9, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(sizes=SIZES, seed=st.integers(0, 999))
def test_identical_sets_and_pure_shift(sizes, seed):
    n, _, d = sizes
    a = features(n, d, seed)
    trace = float(a.var(0).sum())
    assert abs(frechet_distance(a, a)) <= 1e-9 * trace
    assert abs(frechet_distance(a, a[torch.randperm(n, generator=torch.Generator().manual_seed(seed))])) <= (
        1e-9 * trace
    )
    assert frechet_distance(a, a + 1) == pytest.approx(d, rel=1e-9)


@pytest.mark.parametrize("n", [10, 200])
def test_identical_sets_with_large_offset(n):
    a = 100 + features(n, 50)
    assert frechet_distance(a, a) <= 1e-9 * float(a.var(0).sum())


def test_the_fast_route_of_many_dimensions_gives_the_same():
    a, b = features(700, 512), features(600, 512, seed=1, scale=1.2) + 0.1
    scaled = [x / (len(x) - 1) ** 0.5 for x in (a - a.mean(0), b - b.mean(0))]
    exact = torch.linalg.svdvals(scaled[0] @ scaled[1].T).sum()
    assert frechet._trace_of_root(*scaled) == pytest.approx(float(exact), rel=1e-9)
    assert frechet_distance(a, a) <= 1e-8 * float(a.var(0).sum())
    dead = a.clone()
    dead[:, :3] = 0  # not of full rank: the other route
    assert frechet._cholesky(dead) is None
    assert frechet_distance(dead, dead) <= 1e-9 * float(dead.var(0).sum())


def test_closed_form_for_diagonal_covariances():
    """Samples with exactly known moments: +-s_i on axis i, so the covariance is diagonal."""
    d = 6
    spread_a, spread_b = torch.linspace(0.5, 2, d).double(), torch.linspace(3, 1, d).double()

    def cross(spread, center):
        return torch.cat([torch.diag(spread), -torch.diag(spread)]) + center

    var_a, var_b = 2 * spread_a**2 / (2 * d - 1), 2 * spread_b**2 / (2 * d - 1)
    center = torch.arange(d).double()
    expected = center.square().sum() + (var_a.sqrt() - var_b.sqrt()).square().sum()
    found = frechet_distance(cross(spread_a, 0), cross(spread_b, center))
    assert found == pytest.approx(float(expected), rel=1e-12)


def test_large_samples_approach_the_gaussian_formula():
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(200_000, 3, generator=generator, dtype=torch.float64) * torch.tensor([1.0, 2.0, 3.0])
    b = torch.randn(200_000, 3, generator=generator, dtype=torch.float64) * torch.tensor([2.0, 2.0, 1.0]) + 1
    assert frechet_distance(a, b) == pytest.approx(3 + 1 + 0 + 4, rel=0.01)


def test_unbiased_covariance():
    """One dimension by hand: variances 2 and 8 with n - 1 in the denominator."""
    a, b = torch.tensor([[-1.0], [1.0]]), torch.tensor([[-2.0], [2.0]])
    assert frechet_distance(a, b) == pytest.approx((8**0.5 - 2**0.5) ** 2, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_computed_in_float64_whatever_the_input(dtype):
    a, b = features(30, 40).to(dtype), features(30, 40, seed=1).to(dtype)
    assert frechet_distance(a, b) == frechet_distance(a.double(), b.double())
    assert abs(frechet_distance(a, a)) <= 1e-9 * float(a.double().var(0).sum())


def test_one_sample_is_nan_with_a_reason():
    for a, b in [(features(1, 5), features(9, 5)), (features(9, 5), features(1, 5))]:
        found = frechet_distance(a, b)
        assert math.isnan(found)
        assert "2 samples or more" in found.reason
        assert (found.n, found.m) == (len(a), len(b))


@pytest.mark.parametrize("size", [1e80, 1e160, 1e308])
@pytest.mark.parametrize(("n", "d"), [(5, 9), (30, 5), (600, 512)])
def test_features_that_overflow_are_nan_with_a_reason(n, d, size):
    a, b = features(n, d).clamp(-1, 1) * size, features(n, d, seed=1).clamp(-1, 1)
    for pair in [(a, b), (b, a), (a, a)]:
        found = frechet_distance(*pair)
        assert math.isnan(found) and "features too large" in found.reason and (found.n, found.m) == (n, n)
    assert frechet_distance(a / size * 1e60, b) > 1e119


def test_result_is_a_float_that_survives_copies():
    found = frechet_distance(features(8, 5), features(9, 5, seed=1))
    assert isinstance(found, FrechetDistance)
    assert type(found.value) is float
    assert type(float(found)) is float
    assert float(found) == found.value == found
    assert (found.reason, found.n, found.m) == (None, 8, 9)
    for other in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert (other.value, other.n, other.m) == (found.value, 8, 9)
    assert isinstance(frechet_distance(features(8, 5).numpy(), features(9, 5)), float)


NAN = features(4, 3)
NAN[2, 1] = float("nan")
REFUSED = {
    "NaN": ((NAN, features(4, 3)), "features_a contains NaN or infinite values in 1 of 4 rows"),
    "infinite": ((features(4, 3), features(4, 3) / 0), "features_b contains NaN or infinite"),
    "dimensions": ((features(4, 3), features(4, 2)), "differ in dimension: 3 and 2"),
    "1-d": ((features(4, 3)[0], features(4, 3)), r"features_a must have shape \(n, d\)"),
    "images": ((features(4, 3), torch.zeros(4, 1, 8, 8)), r"must have shape .* got \(4, 1, 8, 8\)"),
    "empty": ((features(0, 3), features(4, 3)), "must have shape"),
    "complex": ((torch.zeros(4, 3, dtype=torch.complex64), features(4, 3)), "must be real"),
    "objects": ((np.zeros((4, 1), dtype=object), features(4, 1)), "features_a must hold numbers .* object"),
    "a list": (([[1.0]], features(4, 1)), "must be a tensor .* got list"),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_bad_input_is_refused_in_one_line(case):
    arguments, message = REFUSED[case]
    with pytest.raises(ValueError, match=message) as error:
        frechet_distance(*arguments)
    assert "\n" not in str(error.value)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("n", [20, 200])
def test_cuda_equals_cpu(n):
    a, b = features(n, 64).float(), features(n, 64, seed=1).float()
    assert frechet_distance(a.cuda(), b.cuda()) == pytest.approx(frechet_distance(a, b), rel=1e-9)
