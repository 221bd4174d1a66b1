"""SSIM against scikit-image and against a plain loop over windows."""

import importlib
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.metrics import structural_similarity
from torch.utils._python_dispatch import TorchDispatchMode

from drlib.errors import UserError
from drlib.metrics import sample_distance
from drlib.metrics.ssim import ssim, ssim_matrix, ssim_nearest

needs_compiler = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None, reason="no C++ compiler (set CXX)"
)
CONTRASTS = {
    "full": lambda x: x,
    "binary": lambda x: x.round(),
    "low contrast": lambda x: 0.8 + 0.02 * x,
    "bright, almost constant": lambda x: 0.9 + 0.005 * x,
    "dark": lambda x: 0.004 * x,
}


def images(n, shape, seed=0):
    return torch.rand(n, *shape, generator=torch.Generator().manual_seed(seed))


def skimage_ssim(x, y, window="gaussian"):
    options = {"win_size": 7}
    if window == "gaussian":
        options = {"win_size": 11, "gaussian_weights": True, "sigma": 1.5}
    return structural_similarity(
        x.double().numpy(),
        y.double().numpy(),
        use_sample_covariance=False,
        data_range=1,
        channel_axis=0,
        **options,
    )


def skimage_matrix(a, b, window="gaussian"):
    return np.array([[skimage_ssim(x, y, window) for y in b] for x in a])


def loop_ssim(x, y, size):
    """Equation 13 of Wang et al. 2004, window by window."""
    offset = np.arange(size) - size // 2
    weights = np.exp(-(offset[:, None] ** 2 + offset[None] ** 2) / (2 * 1.5**2))
    weights /= weights.sum()
    x, y = x.double().numpy(), y.double().numpy()
    values = []
    for c, i, j in np.ndindex(x.shape[0], x.shape[1] - size + 1, x.shape[2] - size + 1):
        p, q = x[c, i : i + size, j : j + size], y[c, i : i + size, j : j + size]
        mp, mq = (weights * p).sum(), (weights * q).sum()
        vp, vq = (weights * (p - mp) ** 2).sum(), (weights * (q - mq) ** 2).sum()
        cov = (weights * (p - mp) * (q - mq)).sum()
        luminance = (2 * mp * mq + 1e-4) / (mp**2 + mq**2 + 1e-4)
        values.append(luminance * (2 * cov + 9e-4) / (vp + vq + 9e-4))
    return np.mean(values)


@settings(max_examples=40, deadline=None)
@given(
    channels=st.sampled_from([1, 3]),
    height=st.integers(11, 30),
    width=st.integers(11, 30),
    n=st.integers(1, 4),
    m=st.integers(1, 4),
    contrast_a=st.sampled_from(sorted(CONTRASTS)),
    contrast_b=st.sampled_from(sorted(CONTRASTS)),
    window=st.sampled_from(["gaussian", "uniform"]),
    seed=st.integers(0, 99),
)
def test_equals_scikit_image(channels, height, width, n, m, contrast_a, contrast_b, window, seed):
    a = CONTRASTS[contrast_a](images(n, (channels, height, width), seed))
    b = CONTRASTS[contrast_b](images(m, (channels, height, width), seed + 1000))
    expected = skimage_matrix(a, b, window)
    found = ssim_matrix(a, b, window=window)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(ssim_matrix(a.double(), b, window=window), expected, atol=1e-10)
    k = min(n, m)
    np.testing.assert_allclose(ssim(a[:k], b[:k], window=window), expected.diagonal(), atol=1e-10)


@pytest.mark.parametrize("channels", [1, 3])
def test_equals_scikit_image_at_64_pixels(channels):
    a, b = images(2, (channels, 64, 64)), images(3, (channels, 64, 64), seed=1)
    np.testing.assert_allclose(ssim_matrix(a, b), skimage_matrix(a, b), atol=1e-5)


@pytest.mark.parametrize("channels", [1, 3])
def test_near_duplicates_equal_scikit_image(channels):
    base = images(4, (channels, 20, 20))
    for difference in (1e-2, 1e-4, 1e-6):
        close = (base + difference * images(4, (channels, 20, 20), seed=1)).clamp(0, 1)
        np.testing.assert_allclose(ssim_matrix(base, close), skimage_matrix(base, close), atol=1e-5)


def black_and_white(n, shape, seed):
    """Wide flat areas, of different share: their covariance is a small difference of large products."""
    small = images(n, (shape[0], 5, 5), seed) + torch.linspace(-0.3, 0.3, n).view(n, 1, 1, 1)
    return torch.nn.functional.interpolate(small, size=shape[1:], mode="bilinear").clamp(0, 1).round()


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 64, 64)])
def test_flat_areas_keep_their_digits(shape):
    a, b = black_and_white(9, shape, 0), black_and_white(12, shape, 1)
    expected = torch.stack([ssim(x.expand_as(b), b) for x in a])
    np.testing.assert_allclose(ssim_matrix(a, b), expected, atol=2e-6)
    np.testing.assert_allclose(expected[:2, :2], skimage_matrix(a[:2], b[:2]), atol=1e-10)


@pytest.mark.parametrize(("side", "size"), [(8, 7), (9, 9), (10, 9), (12, 11), (3, 3), (2, 1)])
def test_largest_odd_window_that_fits(side, size):
    a, b = images(2, (3, side, side)), images(2, (3, side, side), seed=1)
    expected = [[loop_ssim(x, y, size) for y in b] for x in a]
    np.testing.assert_allclose(ssim_matrix(a, b), expected, atol=1e-5)
    np.testing.assert_allclose(ssim(a, b), np.diagonal(expected), atol=1e-12)


def test_window_follows_the_smaller_side():
    a, b = images(1, (1, 8, 20)), images(1, (1, 8, 20), seed=1)
    assert float(ssim(a, b)) == pytest.approx(loop_ssim(a[0], b[0], 7), abs=1e-12)


def test_constants_and_copies():
    levels = torch.tensor([0.0, 0.25, 1.0])
    flat = levels.view(3, 1, 1, 1).expand(3, 1, 16, 16)
    expected = (2 * levels[:, None] * levels + 1e-4) / (levels[:, None] ** 2 + levels**2 + 1e-4)
    np.testing.assert_allclose(ssim_matrix(flat, flat), expected, atol=1e-6)
    a = images(5, (3, 16, 16))
    np.testing.assert_allclose(ssim_matrix(a, a).diagonal(), 1, atol=1e-6)
    np.testing.assert_allclose(ssim(a, a), 1, atol=1e-14)


def test_symmetric_and_bounded():
    a = torch.cat([images(4, (1, 16, 16)), 1 - images(4, (1, 16, 16))])
    scores = ssim_matrix(a, a)
    torch.testing.assert_close(scores, scores.T, atol=1e-6, rtol=0)
    assert scores.min() < -0.5  # an inverted image is anti-correlated
    assert scores.min() >= -1
    assert scores.max() <= 1 + 1e-6


@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 12, 14)])
def test_block_size_and_threads_do_not_matter(shape):
    a, b = images(7, shape), images(70, shape, seed=1)
    expected = ssim_matrix(a, b)
    for block in (1, 7, 64, 100_000):
        torch.testing.assert_close(ssim_matrix(a, b, block=block), expected, atol=1e-6, rtol=0)
    index, value = ssim_nearest(a, b)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2 if threads == 1 else 1)
        torch.testing.assert_close(ssim_matrix(a, b), expected, atol=1e-6, rtol=0)
        other_index, other_value = ssim_nearest(a, b, block=7)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(index, other_index)
    torch.testing.assert_close(value, other_value, atol=1e-12, rtol=0)


def test_reduced_precision_of_the_caller_is_not_used_and_kept():
    """TF32 or bfloat16 products, which a caller may have allowed, would be wrong by up to 1."""

    class PrecisionOfProducts(TorchDispatchMode):
        seen = frozenset()

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function.overloadpacket is torch.ops.aten.bmm:
                self.seen |= {torch.get_float32_matmul_precision()}
            return function(*args, **(kwargs or {}))

    a, b = images(2, (1, 16, 16)), images(3, (1, 16, 16), seed=1)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        with PrecisionOfProducts() as precision:
            ssim_matrix(a, b)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert precision.seen == {"highest"}


@pytest.mark.parametrize("contrast", sorted(CONTRASTS))
def test_nearest_is_the_best_of_all_pairs(contrast):
    a = CONTRASTS[contrast](images(20, (1, 12, 12)))
    b = CONTRASTS[contrast](images(50, (1, 12, 12), seed=1))
    scores = torch.stack([ssim(x.expand_as(b), b) for x in a])
    index, value = ssim_nearest(a, b)
    assert torch.equal(index, scores.argmax(1))
    torch.testing.assert_close(value, scores.amax(1), atol=1e-12, rtol=0)


def test_nearest_among_near_duplicates_and_ties():
    base = images(40, (1, 16, 16))
    noisy = (base + 1e-5 * images(40, (1, 16, 16), seed=1)).clamp(0, 1)
    targets = torch.cat([noisy, base, base])  # closer than float32 SSIM resolves; each base image twice
    index, value = ssim_nearest(base, targets)
    assert index.tolist() == list(range(40, 80))
    torch.testing.assert_close(value, torch.ones(40, dtype=torch.float64))
    index, _ = ssim_nearest(base, base[:1].expand(200, -1, -1, -1))
    assert index.tolist() == [0] * 40


def test_nearest_is_right_whatever_the_rounding_of_the_screen(monkeypatch):
    """float32 scores may be off by 1e-5: add that much noise to them."""
    module = importlib.import_module("drlib.metrics.ssim")
    generator = torch.Generator().manual_seed(0)

    def noisy_matrix(a, b, **options):
        scores = ssim_matrix(a, b, **options)
        return scores + 1e-5 * (2 * torch.rand(scores.shape, generator=generator) - 1)

    monkeypatch.setattr(module, "ssim_matrix", noisy_matrix)
    base = images(40, (1, 12, 12))
    close = (base + 1e-4 * images(40, (1, 12, 12), seed=1)).clamp(0, 1)
    index, value = ssim_nearest(base, torch.cat([close, base]))
    assert index.tolist() == list(range(40, 80))
    torch.testing.assert_close(value, torch.ones(40, dtype=torch.float64))


def test_candidates_restrict_the_search():
    a, b = images(5, (1, 12, 12)), images(30, (1, 12, 12), seed=1)
    candidates = torch.tensor([3, 8, 9, 27])
    done = []
    index, value = ssim_nearest(a, b, candidates=candidates, progress=done.append)
    expected_index, expected_value = ssim_nearest(a, b[candidates])
    assert torch.equal(index, candidates[expected_index])
    assert torch.equal(value, expected_value)
    assert sum(done) == 5 * 4


def test_memory_is_bounded():
    class Largest(TorchDispatchMode):
        numel = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and out.untyped_storage().nbytes():
                self.numel = max(self.numel, out.untyped_storage().nbytes() // out.element_size())
            return out

    a, b = images(90, (1, 20, 20)), images(200, (1, 20, 20), seed=1)
    with Largest() as largest:
        ssim_nearest(a, b)
    # all pairs x windows would be 90 * 200 * 100 = 1,800,000 numbers
    assert largest.numel < 300_000


def test_unknown_window():
    with pytest.raises(UserError, match="did you mean 'gaussian'"):
        ssim_matrix(images(1, (1, 16, 16)), images(1, (1, 16, 16)), window="gausian")


X, Y = images(3, (1, 16, 16)), images(4, (1, 16, 16), seed=1)
BAD_PAIRS = {
    "other height": ((X, Y[:3, :, 1:]), {}, r"differ in image shape: \(1, 16, 16\) and \(1, 15, 16\)"),
    "other channels": ((X, Y[:3].expand(-1, 3, -1, -1)), {}, "differ in image shape"),
    "one image": ((X[0], Y[0]), {}, r"a must be floating point .* got torch.float32 \(1, 16, 16\)"),
    "empty": ((X[:0], Y[:0]), {}, "a must be .* 1 image or more"),
    "empty b": ((X, Y[:0]), {}, "b must be .* 1 image or more"),
    "integers": ((X, (255 * Y[:3]).byte()), {}, "b must be floating point .* got torch.uint8"),
    "array": ((X.numpy(), Y[:3]), {}, "a must be a tensor .* got ndarray"),
}
BAD_BLOCKS = {f"block {block}": ((X, Y), {"block": block}, "block must be") for block in (0, -1, 1.5, "8")}
REFUSED = (
    [(ssim, *case) for case in BAD_PAIRS.values()]
    + [(ssim, (X, Y), {}, "as many images in b as in a, got 3 and 4")]
    + [(f, *case) for f in (ssim_matrix, ssim_nearest) for case in (BAD_PAIRS | BAD_BLOCKS).values()]
    + [(ssim_nearest, (X, Y), {"candidates": torch.arange(0)}, "candidates is empty: give 1 index")]
)


@pytest.mark.parametrize(("function", "arguments", "options", "message"), REFUSED)
def test_bad_input_is_refused_in_one_line(function, arguments, options, message):
    with pytest.raises(UserError, match=message) as error:
        function(*arguments, **options)
    assert "\n" not in str(error.value)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_equals_cpu():
    a, b = images(40, (3, 32, 32)), images(70, (3, 32, 32), seed=1)
    torch.testing.assert_close(ssim_matrix(a.cuda(), b.cuda()).cpu(), ssim_matrix(a, b), atol=5e-6, rtol=0)
    index, value = ssim_nearest(a.cuda(), b.cuda())
    expected_index, expected_value = ssim_nearest(a, b)
    assert torch.equal(index.cpu(), expected_index)
    torch.testing.assert_close(value.cpu(), expected_value, atol=1e-12, rtol=0)


@needs_compiler
@pytest.mark.parametrize(
    ("shape", "window"),
    [
        ((1, 28, 28), "gaussian"),
        pytest.param((1, 28, 28), "uniform", marks=pytest.mark.slow),
        pytest.param((3, 32, 32), "gaussian", marks=pytest.mark.slow),
        pytest.param((3, 32, 32), "uniform", marks=pytest.mark.slow),
    ],
)
def test_compiled_equals_plain(shape, window):
    from torch._dynamo.utils import counters

    ssim_matrix(images(1, shape), images(1, shape), window=window, compiled=True)
    compiled_before = counters["stats"]["unique_graphs"]
    sets = [
        (contrast(images(19, shape)), contrast(images(301, shape, seed=1))) for contrast in CONTRASTS.values()
    ]
    for a, b in [*sets, (black_and_white(19, shape, 0), black_and_white(301, shape, 1))]:
        # the last blocks are not full, and there are others before them
        plain = ssim_matrix(a, b, window=window)
        found = ssim_matrix(a, b, window=window, compiled=True)
        torch.testing.assert_close(found, plain, atol=1e-5, rtol=0)
        index, value = ssim_nearest(a, b, window=window)
        found_index, found_value = ssim_nearest(a, b, window=window, compiled=True)
        assert torch.equal(found_index, index)
        torch.testing.assert_close(found_value, value, atol=1e-14, rtol=0)
    assert counters["stats"]["unique_graphs"] == compiled_before, "compiled again for another block"
    found = ssim_matrix(a[:2], b[:3], window=window, compiled=True)
    np.testing.assert_allclose(found, skimage_matrix(a[:2], b[:3], window), atol=1e-5)


@needs_compiler
def test_compiled_in_a_sample_distance():
    a, b = images(6, (1, 28, 28)), images(9, (1, 28, 28), seed=1)
    labels = [0, 0, 1, 1, 2, 2], [0, 1, 2] * 3
    expected = sample_distance(a, b, "ssim", *labels)
    found = sample_distance(a, b, "ssim", *labels, compiled=True)
    assert torch.equal(found.nearest, expected.nearest)
    assert torch.equal(found.values, expected.values)


def test_compiled_refuses_a_block_size():
    a = images(2, (1, 28, 28))
    with pytest.raises(UserError, match="leave out block"):
        ssim_matrix(a, a, block=8, compiled=True)


def test_compiled_without_a_compiler_says_what_to_do(tmp_path):
    code = (
        "import torch\n"
        "from drlib.errors import UserError\n"
        "from drlib.metrics import ssim_nearest\n"
        "a = torch.rand(2, 1, 28, 28)\n"
        "try:\n"
        "    ssim_nearest(a, a, compiled=True)\n"
        "except UserError as error:\n"
        "    print(error)\n"
    )
    environment = {**os.environ, "CXX": str(tmp_path / "none"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) == 1
    assert "compiled=True needs a working C++ compiler: install g++" in run.stdout
