"""Structural similarity of all pairs of two sets of images (Wang et al. 2004, equations 13 and 6).

Convention: Gaussian window of sigma 1.5 and 11 x 11 taps (or the largest odd window that fits, renormalized),
valid windows only, data range 1, biased covariance, K1 = 0.01, K2 = 0.03, mean over windows and channels.
Where both sides are >= 11 this is scikit-image's ``structural_similarity(gaussian_weights=True, sigma=1.5,
use_sample_covariance=False, data_range=1, win_size=11)``. The sensitivity variant ``window="uniform"`` is its
7 x 7 box window, also with the biased covariance.

All pairs of a block, line by line of windows: the vertical filter of the products of pixels is a matrix
product over the taps for each column of pixels, the horizontal one a product with a banded Toeplitz matrix,
and the terms of means and variances are products of low rank. What lies between fits the cache.
``compiled=True`` takes another kernel, in ``ssim_compiled.py``.

The covariance of a window is never a difference of large numbers, which would cost digits in float32 where
both images are flat. With the taps t, the means m and n of the columns of a window of x and of y, and the
mean mu of all of x in it,

    cov = sum_j t_j sum_k t_k (x_kj - m_j) y_kj + sum_j t_j (m_j - mu) n_j.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral

import torch
from torch import Tensor

from drlib.errors import UserError, unknown
from drlib.metrics.neighbors import block_shape, nearest

WINDOWS = {"gaussian": 11, "uniform": 7}
C1, C2 = 0.01**2, 0.03**2
_CPU_NUMBERS, _CUDA_NUMBERS = 3 * 2**17, 2**25  # in the buffers of a block, which fit the cache of a core
_PANEL = 2**22  # pixels of the images of b whose statistics are held
_SEARCH_ROWS = 1024  # images of a whose search is finished, and can be kept, before the next ones
_SLACK = 2e-5  # several times the largest float32 error; candidates within it are scored in float64


def ssim_matrix(
    a: Tensor, b: Tensor, *, window: str = "gaussian", block: int | None = None, compiled: bool = False
) -> Tensor:
    """SSIM of every image of ``a`` with every image of ``b``.

    Args:
        a, b: (n, c, h, w) and (m, c, h, w), floating point in [0, 1], on one device; neither is empty.
        window: ``gaussian`` or ``uniform``.
        block: pairs computed at once, 1 or more; the default fits the cache (CPU) or 128 MiB (CUDA).
        compiled: use ``torch.compile``. It needs a C++ compiler and, once for each shape of image, several
            seconds; it pays from about 10 million pairs on. Its blocks have a fixed shape, so no ``block``.

    Returns:
        (n, m) in [-1, 1], float64 if an input is float64, else float32 (within 1e-5 of float64).

    Raises:
        UserError: sets that are empty, no floating point images or differ in their shape; unknown window, a
            block below 1; ``compiled`` with ``block``, or without a C++ compiler.
    """
    _check(a, b, block)
    dtype = torch.promote_types(torch.promote_types(a.dtype, b.dtype), torch.float32)
    scores = torch.empty(len(a), len(b), dtype=dtype, device=a.device)
    with torch.no_grad(), full_precision():
        kernel = _kernel(a, b, window, dtype, block, compiled)
        panel = kernel.columns * max(1, _PANEL // a[0].numel() // kernel.columns)
        for p in range(0, len(b), panel):
            rights = [kernel.right(part) for part in b[p : p + panel].split(kernel.columns)]
            for q in range(0, len(a), kernel.rows):
                rows = slice(q, q + kernel.rows)
                kernel.score(kernel.left(a[rows]), rights, scores[rows, p : p + panel])
    return scores


def ssim(a: Tensor, b: Tensor, *, window: str = "gaussian") -> Tensor:
    """SSIM of ``a[i]`` with ``b[i]``, computed in float64: two (n, c, h, w) in [0, 1] -> float64 (n,).

    Raises ``UserError`` as ``ssim_matrix`` does, and for sets of unequal length.
    """
    _check(a, b)
    if len(a) != len(b):
        raise UserError(f"ssim needs as many images in b as in a, got {len(a)} and {len(b)}; or ssim_matrix")
    scores = torch.empty(len(a), dtype=torch.float64, device=a.device)
    step = max(1, (2**17 if a.device.type == "cpu" else 2**25) // max(1, a[:1].numel()))
    with torch.no_grad():
        filters = Filter(a, window)
        for i in range(0, len(a), step):
            x, y = (filters.statistics(images[i : i + step]) for images in (a, b))
            cov = filters.mean(x.centered * y.centered) - x.window_mean * y.window_mean
            numerator = (2 * x.mean * y.mean + C1) * (2 * cov + C2)
            denominator = (x.mean.square() + y.mean.square() + C1) * (x.variance + y.variance + C2)
            scores[i : i + step] = (numerator / denominator).mean((1, 2, 3))
    return scores


def ssim_nearest(
    a: Tensor,
    b: Tensor,
    *,
    window: str = "gaussian",
    block: int | None = None,
    compiled: bool = False,
    candidates: Tensor | None = None,
    memory_mb: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[Tensor, Tensor]:
    """For each image of ``a`` its most similar image of ``b``.

    Blocks are screened in the input's precision, then every candidate within 2e-5 of the best is scored again
    in float64, so values do not depend on the block size. Values within 1e-12 of the best, in
    proportion to it, tie with it; ties go to the lowest index.

    Args:
        a, b, window, block, compiled: as for ``ssim_matrix``.
        candidates: int64 (k,), ascending: the images of ``b`` to search, 1 or more; default: all.
        memory_mb: bounds all that is held beside the inputs and the result, whatever n and m are: 64 or more,
            default 512, on CUDA 4096.
        progress: called with the number of pairs just done.

    Returns:
        index int64 (n,) into ``b``, and SSIM float64 (n,).

    Raises:
        UserError: as ``ssim_matrix``; no candidates, or a budget below 64.
    """
    _check(a, b, block)
    if candidates is not None and len(candidates) == 0:
        raise UserError("candidates is empty: give 1 index of b or more, or None for all")
    rows, columns = block_shape(a, memory_mb, _SEARCH_ROWS)

    def screen(x: Tensor, y: Tensor) -> tuple[Tensor, float, float]:
        return ssim_matrix(x, y, window=window, block=block, compiled=compiled).neg_(), 0.0, _SLACK

    index, loss = nearest(
        a,
        b,
        screen=screen,
        exact=lambda x, y: -ssim(x, y, window=window),
        candidates=candidates,
        rows=rows,
        columns=columns,
        progress=progress,
    )
    return index, -loss


def _check(a: object, b: object, block: int | None = None) -> None:
    """Refuse what SSIM is not defined for. It is called for each block: no look at the pixels."""
    for name, images in (("a", a), ("b", b)):
        if not isinstance(images, Tensor):
            raise UserError(f"{name} must be a tensor (n, c, h, w), got {type(images).__name__}")
        if images.ndim != 4 or images.numel() == 0 or not images.is_floating_point():
            got = f"{images.dtype} {tuple(images.shape)}"
            raise UserError(f"{name} must be floating point (n, c, h, w) with 1 image or more, got {got}")
    if a.shape[1:] != b.shape[1:]:
        raise UserError(f"a and b differ in image shape: {tuple(a.shape[1:])} and {tuple(b.shape[1:])}")
    if block is not None and not (isinstance(block, Integral) and block >= 1):
        raise UserError(f"block must be a whole number, 1 or more, got {block!r}")


def _kernel(
    a: Tensor, b: Tensor, window: str, dtype: torch.dtype, block: int | None, compiled: bool
) -> Kernel:
    """The kernel and its blocks, chosen once."""
    if compiled:
        if block is not None:
            raise UserError("compiled=True has blocks of a fixed shape: leave out block")
        from drlib.metrics.ssim_compiled import CompiledKernel  # loads torch.compile

        return CompiledKernel(a, window, dtype)
    return Kernel(a, window, dtype, len(a), len(b), block)


@dataclass
class Statistics:
    """What SSIM needs of each of n images alone, in float64."""

    centered: Tensor  # (n, c, h, w) image minus its own mean per channel; covariance does not change
    column_mean: Tensor  # (n, c, oh, w) of `centered`, in the columns of windows
    window_mean: Tensor  # (n, c, oh, ow) of `centered`
    mean: Tensor  # (n, c, oh, ow) window mean of the image
    variance: Tensor  # (n, c, oh, ow) biased window variance


class Filter:
    """Window means: a valid separable filter is two products with banded Toeplitz matrices. In float64."""

    def __init__(self, like: Tensor, window: str) -> None:
        h, w = like.shape[2:]
        self.taps = window_taps(window, min(h, w)).to(like.device)
        self.rows, self.columns = (_toeplitz(self.taps, side) for side in (h, w))

    def mean(self, images: Tensor) -> Tensor:
        """(n, c, h, w) -> (n, c, oh, ow)"""
        return self.rows @ images @ self.columns.T

    def statistics(self, images: Tensor) -> Statistics:
        images = images.double()
        own_mean = images.mean((2, 3), keepdim=True)
        centered = images - own_mean
        column_mean = self.rows @ centered
        window_mean = column_mean @ self.columns.T
        variance = (self.mean(centered.square()) - window_mean.square()).clamp_(min=0)
        return Statistics(centered, column_mean, window_mean, window_mean + own_mean, variance)

    def deviations(self, s: Statistics) -> tuple[Tensor, Tensor]:
        """t_k (x_kj - m_j), (n, c, oh, w, k), and t_j (m_j - mu), (n, c, oh, ow, k), for each window."""
        k = len(self.taps)
        pixels = s.centered.unfold(2, k, 1) - s.column_mean.unsqueeze(4)
        columns = s.column_mean.unfold(3, k, 1) - s.window_mean.unsqueeze(4)
        return pixels.mul_(self.taps), columns.mul_(self.taps)


Line = tuple[Tensor, Tensor, Tensor, Tensor]
"""What one line of windows of a channel needs of r images of ``a`` (left) or n images of ``b`` (right).

Deviations of pixels, (w, r, k), or pixels, (w, k, n). Then for each window: twice the deviations of column
means, (ow, r, k), or column means, (ow, k, n); luminances, (ow, r, 2) and (ow, 2, n), whose product is
2 mean_x mean_y + C1; and denominators, (ow, r, 4) and (ow, 4, n), whose product is the denominator of SSIM,
(mean_x^2 + mean_y^2 + C1) (variance_x + variance_y + C2).
"""


class Kernel:
    """SSIM of blocks of at most ``rows`` x ``columns`` pairs, in buffers allocated once."""

    def __init__(
        self, like: Tensor, window: str, dtype: torch.dtype, n: int, m: int, pairs: int | None = None
    ) -> None:
        """For n x m images, about ``pairs`` at once; the default fits the cache of the cores."""
        self.filter = Filter(like, window)
        self.dtype = dtype
        windows, width = self.filter.columns.shape
        constant = torch.full_like(self.filter.columns[:, :1], C2)
        self.horizontal = torch.cat([2 * self.filter.columns, constant], 1).to(dtype)
        if pairs is None:
            on_cpu = like.device.type == "cpu"
            numbers = _CPU_NUMBERS * min(8, torch.get_num_threads()) if on_cpu else _CUDA_NUMBERS
            pairs = max(1, numbers // (width + 2 * windows))
        self.rows = min(n, 2 ** (math.isqrt(pairs).bit_length() - 1))
        columns = pairs // self.rows
        self.columns = min(m, columns - columns % 16 if columns > 16 else columns)  # whole vectors
        pairs = self.rows * self.columns
        self.product = torch.empty((width + 1) * pairs, dtype=dtype, device=like.device)
        self.buffers = [torch.empty(windows * pairs, dtype=dtype, device=like.device) for _ in range(2)]

    def left(self, images: Tensor) -> list[Line]:
        s = self.filter.statistics(images)
        energy, variance, one = s.mean.square() + C1, s.variance + C2, torch.ones_like(s.mean)
        pixels, columns = (
            values.permute(1, 2, 3, 0, 4).to(self.dtype).contiguous().flatten(0, 1)
            for values in self.filter.deviations(s)
        )
        luminance = self._terms(2 * s.mean, C1 * one)
        denominator = self._terms(energy * variance, energy, variance, one)
        luminance, denominator = (v.transpose(2, 3).contiguous() for v in (luminance, denominator))
        return list(zip(pixels, 2 * columns, luminance, denominator, strict=True))

    def right(self, images: Tensor) -> list[Line]:
        s, k = self.filter.statistics(images), len(self.filter.taps)
        energy, one = s.mean.square(), torch.ones_like(s.mean)
        pixels = s.centered.permute(1, 3, 2, 0).to(self.dtype).contiguous()  # (c, w, h, n)
        pixels = pixels.unfold(2, k, 1).permute(0, 2, 1, 4, 3)  # (c, oh, w, k, n), overlapping
        columns = s.column_mean.permute(1, 2, 3, 0).to(self.dtype).contiguous()
        columns = columns.unfold(2, k, 1).transpose(3, 4)  # (c, oh, ow, k, n), overlapping
        pixels, columns = ([line for channel in values for line in channel] for values in (pixels, columns))
        luminance = self._terms(s.mean, one)
        denominator = self._terms(one, s.variance, energy, energy * s.variance)
        return list(zip(pixels, columns, luminance, denominator, strict=True))

    def _terms(self, *values: Tensor) -> Tensor:
        """t values (n, c, oh, ow) -> (c oh, ow, t, n)"""
        stacked = torch.stack([value.to(self.dtype) for value in values])
        return stacked.permute(2, 3, 4, 0, 1).contiguous().flatten(0, 1)

    def score(self, left: list[Line], rights: list[list[Line]], scores: Tensor) -> None:
        """Write the SSIM of all pairs into ``scores``, (r, n)."""
        for right, found in zip(rights, scores.split(self.columns, 1), strict=True):
            torch.mean(self._lines(left, right), 0, out=found)
            found.div_(len(left))

    def _lines(self, left: list[Line], right: list[Line]) -> Tensor:
        """Sum of SSIM over channels and lines: (ow, r, n), until the next call."""
        (windows, width), r, n = self.horizontal.shape, left[0][0].shape[1], right[0][0].shape[2]
        product = self.product[: width * r * n].view(width, r, n)
        product[-1] = 1  # for the constant C2
        pixels, flat, factor = product[:-1], product.view(width, r * n), product[:windows]
        cov, total = (buffer[: windows * r * n].view(windows, r, n) for buffer in self.buffers)
        total.zero_()
        for x, y in zip(left, right, strict=True):
            torch.bmm(x[0], y[0], out=pixels)
            torch.mm(self.horizontal, flat, out=cov.view(windows, r * n))
            cov.baddbmm_(x[1], y[1])  # 2 cov + C2
            cov.mul_(torch.bmm(x[2], y[2], out=factor))  # in the place of `pixels`, to stay in the cache
            total.addcdiv_(cov, torch.bmm(x[3], y[3], out=factor))
        return total


def window_taps(window: str, side: int) -> Tensor:
    """The one-dimensional window, of sum 1 in float64 (a float32 sum costs 1e-4 of SSIM in flat windows)."""
    if window not in WINDOWS:
        raise unknown("SSIM window", window, WINDOWS)
    size = min(WINDOWS[window], side - 1 + side % 2)
    offset = torch.arange(size, dtype=torch.float64) - size // 2
    taps = torch.exp(-(offset**2) / (2 * 1.5**2)) if window == "gaussian" else torch.ones_like(offset)
    return taps / taps.sum()


def _toeplitz(taps: Tensor, side: int) -> Tensor:
    """(side - len(taps) + 1, side): the taps, shifted by one in each row; a product with it is the filter."""
    positions = side - len(taps) + 1
    matrix = torch.zeros(positions, side, dtype=torch.float64, device=taps.device)
    for i in range(positions):
        matrix[i, i : i + len(taps)] = taps
    return matrix


@contextmanager
def full_precision() -> Iterator[None]:
    """No TF32 or bfloat16 products, whatever the caller has set: they are wrong by up to 1 here."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
