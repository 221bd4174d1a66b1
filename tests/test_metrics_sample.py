"""Sample-level distance and coverage (Definition 4.2) against scikit-image and against plain loops."""

import importlib
import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.metrics import mean_squared_error, peak_signal_noise_ratio, structural_similarity
from torch.utils._python_dispatch import TorchDispatchMode

from drlib.errors import UserError
from drlib.metrics import METRICS, near_duplicates, sample, sample_distance


def images(n, shape=(1, 12, 12), seed=0):
    return torch.rand(n, *shape, generator=torch.Generator().manual_seed(seed))


def integers(high, n, seed):
    return torch.randint(high, (n,), generator=torch.Generator().manual_seed(seed))


def skimage_value(metric, x, y):
    x, y = x.double().numpy(), y.double().numpy()
    if metric == "mse":
        return mean_squared_error(x, y)
    if metric == "psnr":
        return peak_signal_noise_ratio(x, y, data_range=1)
    return structural_similarity(
        x,
        y,
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
        data_range=1,
        win_size=11,
        channel_axis=0,
    )


@settings(max_examples=30, deadline=None)
@given(
    metric=st.sampled_from(METRICS),
    shape=st.tuples(st.sampled_from([1, 3]), st.integers(11, 20), st.integers(11, 20)),
    n=st.integers(1, 7),
    per_class=st.integers(1, 4),
    labeled=st.booleans(),
    seed=st.integers(0, 999),
)
def test_equals_a_double_loop_over_scikit_image(metric, shape, n, per_class, labeled, seed):
    a, b = images(n, shape, seed), images(3 * per_class, shape, seed + 1)
    a_labels, b_labels = integers(3, n, seed), torch.arange(3 * per_class) % 3
    labels = (a_labels, b_labels) if labeled else (None, None)
    table = np.array([[skimage_value(metric, x, y) for y in b] for x in a])
    worst = np.inf if metric == "mse" else -np.inf
    if labeled:
        table = np.where(a_labels[:, None] == b_labels, table, worst)
    nearest = table.argmin(1) if metric == "mse" else table.argmax(1)
    values = table[np.arange(n), nearest]

    found = sample_distance(a, b, metric, *labels)
    assert found.nearest.tolist() == nearest.tolist()
    np.testing.assert_allclose(found.values, values, rtol=1e-6, atol=1e-6)
    assert type(found.distance) is float
    assert found.distance == pytest.approx(values.mean(), rel=1e-6, abs=1e-6)
    assert found.median == pytest.approx(np.median(values), rel=1e-6, abs=1e-6)
    assert found.coverage == len(set(nearest)) / len(b)
    assert (found.metric, found.n, found.m) == (metric, n, len(b))
    assert found.matching == ("class" if labeled else "all")
    assert (found.values.dtype, found.nearest.dtype) == (torch.float32, torch.int64)
    assert found.coverage_floor <= found.coverage <= 1


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("side", [8, 64])
def test_sides_from_8_to_64(metric, side):
    a, b = images(3, (3, side, side)), images(4, (3, side, side), seed=1)
    found = sample_distance(torch.cat([a, b[2:3]]), b, metric)
    assert found.nearest[3] == 2
    assert found.copies == 1


@settings(max_examples=15, deadline=None)
@given(metric=st.sampled_from(METRICS), seed=st.integers(0, 999))
def test_permutations_and_relabeling(metric, seed):
    a, b = images(9, seed=seed), images(12, seed=seed + 1)
    a_labels, b_labels = integers(3, 9, seed), torch.arange(12) % 3
    expected = sample_distance(a, b, metric, a_labels, b_labels)

    generator = torch.Generator().manual_seed(seed)
    p, q = torch.randperm(9, generator=generator), torch.randperm(12, generator=generator)
    found = sample_distance(a[p], b[q], metric, a_labels[p], b_labels[q])
    assert torch.equal(q[found.nearest], expected.nearest[p])
    torch.testing.assert_close(found.values, expected.values[p], rtol=1e-6, atol=0)
    assert found.coverage == expected.coverage

    names = torch.tensor([70, -3, 12])
    renamed = sample_distance(a, b, metric, names[a_labels].tolist(), names[b_labels].numpy())
    assert torch.equal(renamed.nearest, expected.nearest)
    assert renamed.coverage_chance == pytest.approx(expected.coverage_chance, rel=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_labels_restrict_the_candidates_before_any_work(metric, monkeypatch):
    seen, done = [], []
    inner = sample._nearest

    def record(a, b, *, candidates, **options):
        seen.append((len(a), candidates.tolist()))
        return inner(a, b, candidates=candidates, **options)

    monkeypatch.setattr(sample, "_nearest", record)
    a = images(6)
    # each reconstruction equals a target of another class, which must not be found
    found = sample_distance(
        a, a, metric, [0, 0, 0, 0, 2, 2], [1, 1, 0, 0, 0, 2], progress=lambda *pairs: done.append(pairs)
    )
    assert seen == [(4, [2, 3, 4]), (2, [5])]
    assert done == [(12, 14), (14, 14)]  # pairs that were screened, of 36
    assert set(found.nearest[:4].tolist()) <= {2, 3, 4}
    assert found.nearest[4:].tolist() == [5, 5]
    assert found.copies == 3


@pytest.mark.parametrize("metric", METRICS)
def test_one_target_per_class_is_covered_exactly(metric):
    found = sample_distance(images(10), images(5, seed=1), metric, torch.arange(10) % 5, torch.arange(5))
    assert found.coverage == found.coverage_floor == found.coverage_chance == 1
    assert found.nearest.tolist() == [0, 1, 2, 3, 4] * 2


def test_copies():
    b = images(5)
    a = torch.cat([b[[3, 0]], images(2, seed=1)])
    mse, psnr, ssim = (sample_distance(a, b, metric) for metric in ("mse", "psnr", "ssim"))
    assert mse.values[:2].tolist() == [0, 0]
    assert psnr.values[:2].tolist() == [math.inf, math.inf]
    assert psnr.distance == math.inf
    assert psnr.median == math.inf  # two of four
    assert ssim.values[:2].tolist() == [1, 1]
    assert mse.copies == psnr.copies == ssim.copies == 2
    assert sample_distance(a[1:], b, "psnr").median == pytest.approx(float(psnr.values[2:].max()))
    assert sample_distance(images(3, seed=1), b, "psnr").copies == 0


def test_a_copy_counts_also_where_another_target_ties_with_it():
    gray = torch.full((1, 1, 16, 16), 0.5)
    near = gray.clone()
    near[0, 0, 3, 3] = float(np.nextafter(np.float32(0.5), np.float32(1)))
    assert sample_distance(near, torch.cat([gray, near]), "ssim").copies == 1
    others = torch.cat([gray, gray, near, images(2, (1, 16, 16))])
    for made, labels, copies in [
        (torch.cat([gray, near, near]), None, 3),
        (torch.cat([near, near]), ([0, 1], [0, 1, 1, 2, 2]), 1),  # the copy is of class 1
        (near, ([0], [0, 0, 1, 1, 1]), 0),
    ]:
        found = [sample_distance(made, others, metric, *(labels or ())) for metric in METRICS]
        assert [each.copies for each in found] == [copies] * 3
    assert sample_distance(near, torch.cat([gray, gray]), "ssim").copies == 0
    assert sample_distance(near.double(), torch.cat([gray, near]), "ssim").copies == 1
    black, dark = torch.zeros(1, 1, 16, 16), torch.full((1, 1, 16, 16), 1e-30)
    assert sample_distance(-black, torch.cat([dark, black]), "ssim").copies == 1


def test_psnr_and_mse_share_neighbors_and_coverage():
    a, b = images(30), images(40, seed=1)
    mse, psnr = sample_distance(a, b, "mse"), sample_distance(a, b, "psnr")
    assert torch.equal(mse.nearest, psnr.nearest)
    assert mse.coverage == psnr.coverage
    torch.testing.assert_close(psnr.values, -10 * mse.values.log10(), rtol=1e-5, atol=1e-5)
    # averaged for each image, not the PSNR of the mean
    assert psnr.distance == pytest.approx(float((-10 * mse.values.double().log10()).mean()), rel=1e-6)


def test_near_copies_keep_their_digits():
    b = images(50, (3, 16, 16))
    a = b.double() + 1e-5  # 100 dB: the expanded square in float32 has no digit left
    a, b = a.clamp(0, 1)[:20], b
    found = sample_distance(a, b, "psnr")
    assert found.nearest.tolist() == list(range(20))
    expected = [peak_signal_noise_ratio(x.numpy(), y.double().numpy(), data_range=1) for x, y in zip(a, b)]  # noqa: B905
    np.testing.assert_allclose(found.values, expected, rtol=1e-6)


@pytest.mark.parametrize("decibel", [60, 80])
def test_near_copies_are_right_to_a_thousandth_of_a_decibel(decibel):
    b = 0.1 + 0.8 * images(60, (3, 32, 32))
    noise = torch.randn(60, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    a = torch.cat([b + 10 ** (-decibel / 20) * noise, b[:5]])
    found = sample_distance(a, b, "psnr")
    assert found.nearest.tolist() == [*range(60), *range(5)]
    expected = [skimage_value("psnr", x, y) for x, y in zip(a[:60], b, strict=True)]
    assert np.mean(expected) == pytest.approx(decibel, abs=1)
    np.testing.assert_allclose(found.values[:60], expected, atol=1e-3)
    assert sample_distance(a, b, "mse").values[60:].tolist() == [0] * 5


KINDS = {
    "full": lambda x: x,
    "low contrast": lambda x: 0.8 + 0.02 * x,
    "almost constant": lambda x: 0.9 + 1e-6 * x,
    "black": lambda x: 0 * x,
    "binary": lambda x: x.round(),
}


@settings(max_examples=60, deadline=None)
@given(
    shape=st.sampled_from([(1, 1, 1), (1, 8, 8), (3, 32, 32)]),
    kind_a=st.sampled_from(sorted(KINDS)),
    kind_b=st.sampled_from(sorted(KINDS)),
    near=st.booleans(),
    double=st.booleans(),
    seed=st.integers(0, 999),
)
def test_mse_screen_in_float32_loses_no_neighbor(shape, kind_a, kind_b, near, double, seed):
    """Whatever the images, and if its errors were as large as its own bound allows."""
    a, b = KINDS[kind_a](images(9, shape, seed)), KINDS[kind_b](images(40, shape, seed + 1))
    if near:
        b = (b[:1] + 1e-6 * (b - b[:1])).clamp(0, 1)
    if double:
        a = a.double()
    table = torch.stack([sample._mse(x.expand_as(b), b) for x in a])
    losses, offset, slack = sample._mse_screen(a, b)
    error = (losses.double() + offset[:, None] - table).abs()
    assert (error <= slack[:, None] / 2).all()

    def worst(x, y):
        losses, offset, slack = sample._mse_screen(x, y)
        signs = 2 * torch.randint(2, losses.shape, generator=torch.Generator().manual_seed(seed)) - 1
        return losses.double() + signs * (0.49 * slack[:, None] - error.max()).clamp(min=0), offset, slack

    options = {"candidates": None, "rows": 9, "columns": 40}
    for screen in (sample._mse_screen, worst):
        index, value = sample.nearest(a, b, screen=screen, exact=sample._mse, **options)
        assert torch.equal(value, table.amin(1))
        assert torch.equal(index, (table <= table.amin(1, keepdim=True) * (1 + 1e-12)).int().argmax(1))


def test_mse_screen_leaves_few_candidates():
    """Otherwise it would be right but slow: noise against targets of low contrast."""
    a, b = images(50, (1, 28, 28)), 0.8 + 0.02 * images(400, (1, 28, 28), seed=1)
    refined = []

    def count(x, y):
        refined.append(len(x))
        return sample._mse(x, y)

    sample.nearest(a, b, screen=sample._mse_screen, exact=count)
    assert sum(refined) < 100


@pytest.mark.parametrize("metric", METRICS)
def test_memory_does_not_grow_with_the_number_of_images(metric):
    class Largest(TorchDispatchMode):
        nbytes = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and out.untyped_storage().data_ptr() not in inputs:
                self.nbytes = max(self.nbytes, out.untyped_storage().nbytes())
            return out

    found = []
    for n, m in ((400, 450), (800, 900)):
        a, b = images(n, (1, 16, 16)), images(m, (1, 16, 16), seed=1)
        inputs = {a.untyped_storage().data_ptr(), b.untyped_storage().data_ptr()}
        with Largest() as largest:
            sample_distance(a, b, metric, memory_mb=64)
        found.append(largest.nbytes)
    assert found[1] < 1.1 * found[0]
    assert found[1] < 8 * 2**20


@pytest.mark.parametrize("metric", METRICS)
def test_budget_does_not_change_the_result(metric):
    a, b = images(300, (1, 16, 16)), images(500, (1, 16, 16), seed=1)
    expected = sample_distance(a, b, metric)
    found = sample_distance(a, b, metric, memory_mb=64)
    assert torch.equal(found.nearest, expected.nearest)
    torch.testing.assert_close(found.values, expected.values, rtol=1e-6, atol=0)


@pytest.mark.parametrize("metric", METRICS)
def test_ties_go_to_the_lowest_index(metric):
    b = images(4)
    doubled = torch.cat([b, b, b])
    assert sample_distance(b, doubled, metric).nearest.tolist() == [0, 1, 2, 3]
    # single pixels are equally far from black: different images, equal distance
    pixels = torch.eye(16).view(16, 1, 4, 4).flip(0)
    if metric != "ssim":
        assert sample_distance(torch.zeros(1, 1, 4, 4), pixels, metric).nearest.tolist() == [0]
    # in a class, the lowest of the class
    assert sample_distance(b[:1], doubled, metric, [7], [1] * 4 + [7] * 8).nearest.tolist() == [4]


@pytest.mark.parametrize("metric", METRICS)
def test_many_targets_are_searched_in_panels(metric, monkeypatch):
    a, b = images(30), images(90, seed=1)
    b[70] = b[3]
    expected = sample_distance(torch.cat([a, b[70:71]]), b, metric)
    for module in (sample, importlib.import_module("drlib.metrics.ssim")):
        monkeypatch.setattr(module, "block_shape", lambda *_: (7, 16))
    done = []
    found = sample_distance(torch.cat([a, b[70:71]]), b, metric, progress=lambda *pairs: done.append(pairs))
    assert done[0] == (7 * 16, 31 * 90)
    assert done[-1] == (31 * 90, 31 * 90)
    assert len(done) == 5 * 6
    assert torch.equal(found.nearest, expected.nearest)
    assert found.nearest[-1] == 3
    torch.testing.assert_close(found.values, expected.values, rtol=1e-6, atol=0)


def test_thread_count_does_not_matter():
    a, b = images(10), images(20, seed=1)
    threads = torch.get_num_threads()
    expected = [sample_distance(a, b, metric) for metric in METRICS]
    try:
        torch.set_num_threads(2 if threads == 1 else 1)
        found = [sample_distance(a, b, metric) for metric in METRICS]
    finally:
        torch.set_num_threads(threads)
    for x, y in zip(found, expected, strict=True):
        assert torch.equal(x.nearest, y.nearest)
        torch.testing.assert_close(x.values, y.values, rtol=1e-6, atol=0)


def test_floor_and_chance_levels():
    a, b = images(8), images(8, seed=1)
    free = sample_distance(a, b, "mse")
    assert free.coverage_floor == 1 / 8
    assert free.coverage_chance == pytest.approx(1 - (1 - 1 / 8) ** 8)
    labels = torch.arange(8) % 4  # k = 2, n_c = 2
    inside = sample_distance(a, b, "mse", labels, labels)
    assert inside.coverage_floor == 1 / 2
    assert inside.coverage_chance == pytest.approx(0.75)


def test_chance_is_the_expected_coverage_of_random_draws():
    """Unequal classes, one of them without a reconstruction: simulate."""
    a_labels, b_labels = torch.tensor([0] * 5 + [1] * 2), torch.tensor([0] * 3 + [1] * 6 + [2] * 4)
    found = sample_distance(images(7), images(13, seed=1), "mse", a_labels, b_labels)
    rng = np.random.default_rng(0)
    hits = [
        len(set(rng.integers(3, size=5))) + len(set(rng.integers(6, size=2)))  # classes 0 and 1
        for _ in range(20_000)
    ]
    assert found.coverage_chance == pytest.approx(np.mean(hits) / 13, abs=4 * np.std(hits) / 13 / 20_000**0.5)
    assert found.coverage_floor == pytest.approx(2 / 13)


def test_input_is_left_alone_and_gradients_are_not_needed():
    a, b = images(3).requires_grad_(), images(4, seed=1)
    before = a.detach().clone()
    found = sample_distance(a, b, "ssim")
    assert torch.equal(a.detach(), before)
    assert not found.values.requires_grad


@pytest.mark.parametrize("make", [lambda x: x.half(), lambda x: x.double(), lambda x: x.numpy()])
def test_accepts_other_floats_and_arrays(make):
    a, b = images(3), images(4, seed=1)
    found = sample_distance(make(a), make(b), "mse")
    assert found.distance == pytest.approx(sample_distance(a, b, "mse").distance, rel=1e-2)


ARRAYS = {
    "negative strides": lambda x: x[::-1, :, ::-1].copy()[::-1, :, ::-1],
    "big-endian": lambda x: x.astype(">f4"),
    "big-endian, double": lambda x: x.astype(">f8"),
    "half": lambda x: x.astype(">f2").astype("f4").astype(">f2"),
    "transposed": lambda x: x.transpose(3, 2, 1, 0).copy().transpose(3, 2, 1, 0),
    "read-only": lambda x: np.broadcast_to(x, x.shape),
    "fields": lambda x: np.rec.fromarrays([x, np.zeros(x.shape, "u1")])["f0"],
}


@pytest.mark.parametrize("case", sorted(ARRAYS))
def test_arrays_however_they_lie_in_memory(case):
    a, b = images(3).half().float().numpy(), images(4, seed=1).half().float().numpy()
    made = ARRAYS[case](a), ARRAYS[case](b)
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = sample_distance(*made, "mse")
    finally:
        torch.set_warn_always(always)
    assert torch.equal(found.values, sample_distance(a, b, "mse").values)
    assert (made[0] == a).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda x: pd.Series(x, index=[7, 5, 9]),
        lambda x: pd.Series(x).astype("Int64"),
        lambda x: np.array(x, dtype=">i8"),
        lambda x: np.array(x[::-1])[::-1],
        lambda x: np.array(x, dtype=np.uint8),
        tuple,
    ],
)
def test_labels_of_any_container(make):
    expected = sample_distance(GOOD, GOOD.flip(0), "mse", [2, 0, 1], [1, 0, 2])
    found = sample_distance(GOOD, GOOD.flip(0), "mse", make([2, 0, 1]), make([1, 0, 2]))
    assert torch.equal(found.nearest, expected.nearest) and found.matching == "class"


GOOD, OTHER = images(3), images(4, seed=1)
NAN = GOOD.clone()
NAN[1, 0, 3, 3] = float("nan")
REFUSED = {
    "unknown metric": ((GOOD, OTHER, "sim"), "unknown metric 'sim'; did you mean 'ssim'"),
    "metric in capitals": ((GOOD, OTHER, "PSNR"), "did you mean 'psnr'"),
    "shapes": (
        (GOOD, images(4, (1, 12, 13)), "mse"),
        r"differ in image shape .*\(1, 12, 12\) and \(1, 12, 13\)",
    ),
    "channels": ((GOOD, images(4, (3, 12, 12)), "mse"), "differ in image shape"),
    "channels last": ((images(4, (12, 12, 1)), images(4, (12, 12, 1)), "mse"), r"permute\(0, 3, 1, 2\)"),
    "dimensions": ((GOOD[0], OTHER, "mse"), r"reconstructions must have shape .* got \(1, 12, 12\)"),
    "flat": ((GOOD, OTHER.flatten(1), "mse"), "targets must have shape"),
    "empty": ((GOOD[:0], OTHER, "mse"), "reconstructions is empty"),
    "empty targets": ((GOOD, OTHER[:0], "mse"), "targets is empty"),
    "NaN": ((NAN, OTHER, "mse"), "reconstructions contains NaN in 1 of 3 images"),
    "NaN target": ((GOOD, NAN, "ssim"), "targets contains NaN"),
    "infinite": ((GOOD / 0, OTHER, "mse"), r"must lie in \[0, 1\]"),
    "normalized": ((GOOD * 2 - 1, OTHER, "mse"), r"must lie in \[0, 1\], found -0.9"),
    "0 to 255": ((GOOD, OTHER * 255, "mse"), r"targets must lie in \[0, 1\]"),
    "uint8": (((GOOD * 255).byte(), OTHER, "mse"), r"convert with reconstructions.float\(\) / 255"),
    "integers": ((GOOD.long(), OTHER, "mse"), "must be floating point"),
    "object array": ((GOOD.numpy().astype(object), OTHER, "mse"), "must hold numbers .* got dtype object"),
    "longdouble": (
        (GOOD, OTHER.numpy().astype(np.longdouble), "mse"),
        "targets must hold numbers of 64 bits",
    ),
    "sparse": ((GOOD.to_sparse(), OTHER, "mse"), "reconstructions must be dense, got torch.sparse_coo"),
    "just above 1": ((GOOD, OTHER.clamp(min=1.0000002), "mse"), "found 1.000000238418579 to 1.00000023841"),
    "missing labels": (
        (GOOD, OTHER, "mse", pd.Series([0, 1, None], dtype="Int64"), [0, 1, 2, 3]),
        "must be integers, got torch.float64",
    ),
    "a list": (([[0.0]], OTHER, "mse"), "must be a tensor .* got list"),
    "labels of one side": ((GOOD, OTHER, "mse", [0, 1, 2]), "target_labels is missing"),
    "labels of the other": ((GOOD, OTHER, "mse", None, [0, 1, 2, 3]), "reconstruction_labels is missing"),
    "label length": ((GOOD, OTHER, "mse", [0, 1], [0, 1, 2, 3]), r"shape \(3,\).* got \(2,\)"),
    "target label length": (
        (GOOD, OTHER, "mse", [0, 1, 2], [0, 1, 2]),
        r"target_labels must have shape \(4,\)",
    ),
    "one-hot labels": ((GOOD, OTHER, "mse", torch.eye(3).long(), [0, 1, 2, 3]), r"shape \(3,\)"),
    "float labels": (
        (GOOD, OTHER, "mse", [0.0, 1.0, 2.0], [0, 1, 2, 3]),
        "must be integers, got torch.float32",
    ),
    "text labels": ((GOOD, OTHER, "mse", ["a", "b", "c"], [0, 1, 2, 3]), "must be 3 integers, got list"),
    "boolean labels": ((GOOD, OTHER, "mse", [True, False, True], [0, 1, 2, 3]), "must be integers"),
    "class without target": ((GOOD, OTHER, "mse", [0, 5, 9], [0, 0, 1, 1]), r"no target .* \[5, 9\]"),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_bad_input_is_refused_in_one_line(case):
    arguments, message = REFUSED[case]
    with pytest.raises(ValueError, match=message) as error:
        sample_distance(*arguments)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory_mb": 63}, "memory_mb must be 64 or more, a whole number, got 63"),
        ({"memory_mb": 64.5}, "a whole number, got 64.5"),
        ({"memory_mb": "128"}, "a whole number, got '128'"),
        ({"memory_mb": True}, "a whole number, got True"),
        ({"resume": 5}, "5 is not a folder in which a search can be kept"),
        ({"resume": True}, "True is not a folder"),
        ({"compiled": True}, "not for 'mse'"),
    ],
)
def test_bad_options_are_refused_in_one_line(options, message):
    with pytest.raises(UserError, match=message) as error:
        sample_distance(GOOD, OTHER, "mse", **options)
    assert "\n" not in str(error.value)


def test_near_duplicates():
    a = images(4, (1, 16, 16))
    b = torch.cat([images(3, (1, 16, 16), seed=1), (a[2:3] + 0.01).clamp(0, 1), a[:1]])
    found = near_duplicates(a, b)
    assert found.tolist() == [[0, 4], [2, 3]]
    assert found.dtype == torch.int64
    assert near_duplicates(a, b, threshold=1.1).shape == (0, 2)
    with pytest.raises(ValueError, match="differ in image shape"):
        near_duplicates(a, images(2, (1, 8, 8)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("metric", METRICS)
def test_cuda_equals_cpu(metric):
    a, b = images(20, (3, 16, 16)), images(30, (3, 16, 16), seed=1)
    labels = (torch.arange(20) % 5, torch.arange(30) % 5)
    found = sample_distance(a.cuda(), b.cuda(), metric, labels[0].cuda(), labels[1].cuda())
    expected = sample_distance(a, b, metric, *labels)
    assert torch.equal(found.nearest, expected.nearest)
    torch.testing.assert_close(found.values, expected.values, rtol=1e-6, atol=0)
