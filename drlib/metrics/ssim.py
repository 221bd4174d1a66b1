"""Structural similarity of all pairs of two sets of images (Wang et al. 2004, equations 13 and 6).

Convention: Gaussian window of sigma 1.5 and 11 x 11 taps (or the largest odd window that fits, renormalized),
valid windows only, data range 1, biased covariance, K1 = 0.01, K2 = 0.03, mean over windows and channels.
Where both sides are >= 11 this is scikit-image's ``structural_similarity(gaussian_weights=True, sigma=1.5,
use_sample_covariance=False, data_range=1, win_size=11)``. The sensitivity variant ``window="uniform"`` is its
7 x 7 box window, also with the biased covariance.

A valid separable filter is two products with banded Toeplitz matrices, so a block of pairs is two matrix
products and an in-place epilogue. Pairs are the last, contiguous dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from drlib.errors import unknown
from drlib.metrics.neighbors import nearest

WINDOWS = {"gaussian": 11, "uniform": 7}
C1, C2 = 0.01**2, 0.03**2
_COLUMNS = 64  # images of b in a block; long contiguous rows for the vector units
_CPU_BYTES, _CUDA_BYTES = 2**20, 2**28  # one buffer of a block: the cache of a core, a slice of GPU memory
_SLACK = 2e-5  # several times the largest float32 error; candidates within it are scored in float64


def ssim_matrix(a: Tensor, b: Tensor, *, window: str = "gaussian", block: int | None = None) -> Tensor:
    """SSIM of every image of ``a`` with every image of ``b``.

    Args:
        a, b: (n, c, h, w) and (m, c, h, w) in [0, 1], on one device.
        window: ``gaussian`` or ``uniform``.
        block: pairs computed at once; the default fits the cache (CPU) or 256 MiB a buffer (CUDA).

    Returns:
        (n, m) in [-1, 1], float64 if an input is float64, else float32 (within 1e-5 of float64).
    """
    dtype = torch.promote_types(torch.promote_types(a.dtype, b.dtype), torch.float32)
    pixels = a[0].numel()
    if block is None:
        bytes_per_pair = pixels * dtype.itemsize
        on_cpu = a.device.type == "cpu"
        block = min(_CPU_BYTES // bytes_per_pair, 512) if on_cpu else _CUDA_BYTES // bytes_per_pair
    columns = min(len(b), _COLUMNS if a.device.type == "cpu" else 1024, block)
    rows = min(len(a), max(1, block // columns))
    scores = torch.empty(len(a), len(b), dtype=dtype, device=a.device)
    panel = max(rows, columns, 2**24 // pixels)  # images whose statistics are held: 64 MiB each in float32
    with torch.no_grad(), _full_precision():
        kernel = _Kernel(a, window, rows * columns, dtype)
        for q in range(0, len(a), panel):
            left = kernel.statistics(a[q : q + panel])
            blocks = [(q + i, left.part(i, rows, -1)) for i in range(0, min(panel, len(a) - q), rows)]
            for p in range(0, len(b), panel):
                right = kernel.statistics(b[p : p + panel])
                for j in range(0, min(panel, len(b) - p), columns):
                    y = right.part(j, columns, -2)
                    for i, x in blocks:
                        found = kernel.score(x, y)
                        scores[i : i + len(found), p + j : p + j + found.shape[1]] = found
    return scores


def ssim(a: Tensor, b: Tensor, *, window: str = "gaussian") -> Tensor:
    """SSIM of ``a[i]`` with ``b[i]``, computed in float64: two (n, c, h, w) in [0, 1] -> float64 (n,)."""
    scores = torch.empty(len(a), dtype=torch.float64, device=a.device)
    step = max(1, (_CPU_BYTES if a.device.type == "cpu" else _CUDA_BYTES) // (8 * max(1, a[:1].numel())))
    with torch.no_grad():
        kernel = _Kernel(a, window, min(step, len(a)), torch.float64)
        for i in range(0, len(a), step):
            part = slice(i, i + step)
            scores[part] = kernel.score(kernel.statistics(a[part]), kernel.statistics(b[part]))
    return scores


def ssim_nearest(
    a: Tensor, b: Tensor, *, window: str = "gaussian", block: int | None = None
) -> tuple[Tensor, Tensor]:
    """For each image of ``a`` its most similar image of ``b``.

    Blocks are screened in the input's precision, then every candidate within 2e-5 of the best is scored again
    in float64, so values do not depend on the block size. Ties go to the lowest index.

    Returns:
        index int64 (n,) into ``b``, and SSIM float64 (n,).
    """
    index, loss = nearest(
        a,
        b,
        screen=lambda x, y: -ssim_matrix(x, y, window=window, block=block),
        exact=lambda x, y: -ssim(x, y, window=window),
        slack=_SLACK,
    )
    return index, -loss


@dataclass
class _Statistics:
    """What SSIM needs of each image alone; n is the last dimension."""

    # covariance does not change with a shift, and without it float32 products lose digits at low contrast
    centered: Tensor  # (c, h, w, n) image minus its own mean per channel
    centered_mean: Tensor  # (c, oh, ow, n) window mean of `centered`
    mean: Tensor  # (c, oh, ow, n) window mean
    variance: Tensor  # (c, oh, ow, n) biased window variance

    def part(self, start: int, count: int, new_dim: int) -> _Statistics:
        """Images from ``start`` on, contiguous, with a dimension of 1 to broadcast over the other set."""
        parts = (value[..., start : start + count].unsqueeze(new_dim) for value in vars(self).values())
        return _Statistics(*(value.contiguous() for value in parts))


class _Kernel:
    """SSIM of up to ``pairs`` pairs at a time, in buffers allocated once."""

    def __init__(self, like: Tensor, window: str, pairs: int, dtype: torch.dtype) -> None:
        c, h, w = like.shape[1:]
        taps = _taps(window, min(h, w))
        self.rows64, self.columns64 = (_toeplitz(taps, side).to(like.device) for side in (h, w))
        self.rows, self.columns = self.rows64.to(dtype), self.columns64.to(dtype)
        oh, ow = len(self.rows), len(self.columns)
        self.shape = (c, h, w, oh, ow)
        self.dtype = dtype
        sizes = (c * h * w, c * oh * w, c * oh * ow, c * oh * ow, c * oh * ow)
        self.buffers = [torch.empty(size * pairs, dtype=dtype, device=like.device) for size in sizes]
        self.c1 = torch.tensor(C1, dtype=dtype, device=like.device)

    def statistics(self, images: Tensor) -> _Statistics:
        """Means and variances in float64 (their float32 form loses digits at low contrast), then cast."""
        step = max(1, 2**22 // images[0].numel())
        parts = [self._statistics64(images[i : i + step].double()) for i in range(0, len(images), step)]
        return _Statistics(*(torch.cat(values, dim=-1) for values in zip(*parts, strict=True)))

    def _statistics64(self, images: Tensor) -> tuple[Tensor, ...]:
        own_mean = images.mean((2, 3), keepdim=True)
        centered = images - own_mean
        centered_mean = self.rows64 @ centered @ self.columns64.T
        variance = (self.rows64 @ centered.square() @ self.columns64.T - centered_mean.square()).clamp_(min=0)
        values = (centered, centered_mean, centered_mean + own_mean, variance)
        return tuple(value.permute(1, 2, 3, 0).to(self.dtype).contiguous() for value in values)

    def score(self, x: _Statistics, y: _Statistics) -> Tensor:
        """SSIM of the pairs in the trailing dimensions of ``x`` and ``y``, which broadcast."""
        c, h, w, oh, ow = self.shape
        pairs = torch.broadcast_shapes(x.mean.shape[3:], y.mean.shape[3:])
        sizes = ((c, h, w), (c, oh, w), (c, oh, ow), (c, oh, ow), (c, oh, ow))
        views = [
            buffer[: torch.Size(size + pairs).numel()].view(size + pairs)
            for buffer, size in zip(self.buffers, sizes, strict=True)
        ]
        product, filtered, cov, numerator, denominator = views
        torch.mul(x.centered, y.centered, out=product)
        torch.bmm(self.rows.expand(c, oh, h), product.view(c, h, -1), out=filtered.view(c, oh, -1))
        windows = c * oh
        torch.bmm(
            self.columns.expand(windows, ow, w), filtered.view(windows, w, -1), out=cov.view(windows, ow, -1)
        )
        cov.addcmul_(x.centered_mean, y.centered_mean, value=-1).mul_(2).add_(C2)
        torch.addcmul(self.c1, x.mean, y.mean, value=2, out=numerator).mul_(cov)
        torch.add(x.mean.square().add_(C1), y.mean.square(), out=denominator)
        torch.add(x.variance + C2, y.variance, out=cov)
        return numerator.div_(denominator.mul_(cov)).mean((0, 1, 2))


def _taps(window: str, side: int) -> Tensor:
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
    matrix = torch.zeros(positions, side, dtype=torch.float64)
    for i in range(positions):
        matrix[i, i : i + len(taps)] = taps
    return matrix


@contextmanager
def _full_precision() -> Iterator[None]:
    """No TF32 or bfloat16 products, whatever the caller has set: they are wrong by up to 1 here."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
