"""The kernel of ``ssim_matrix(..., compiled=True)``: a block of pairs is one compiled function.

The taps of the separable filter are written out and the images of ``b`` are the last dimension, so that the
compiler makes a few long vector loops, with nothing between them but what stays in the cache. Blocks have one
shape for each size of image; the last ones are filled up with copies of an image, so that nothing is compiled
again within a search.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, reduce
from types import FunctionType

import torch
from torch import Tensor

from drlib.errors import UserError
from drlib.metrics.ssim import C1, C2, Filter

_COLUMNS, _CUDA_COLUMNS = 64, 1024  # images of b in a block
_NUMBERS, _CUDA_NUMBERS = 2**22, 2**27  # intermediate numbers of a block
_OPTIONS = {"cpp.enable_floating_point_contract_flag": "fast"}  # fused multiply and add

Side = tuple[Tensor, ...]
"""What a block needs of its images of ``a`` (left) or of ``b`` (right).

Deviations of pixels and of column means, (c, oh, k, w) and (c, oh, k, ow), or pixels and column means,
(c, h, w) and (c, oh, w). Then, (c, oh, ow), window means, their squares, and variances, for the left with C1
and C2 added. The last dimensions are the images: (r, 1) or (1, n).
"""


class CompiledKernel:
    """SSIM of blocks of ``rows`` x ``columns`` pairs; stands in for ``ssim.Kernel``.

    Raises:
        UserError: the function cannot be compiled, most often because there is no C++ compiler.
    """

    def __init__(self, like: Tensor, window: str, dtype: torch.dtype) -> None:
        self.filter = Filter(like, window)
        self.dtype = dtype
        oh, ow = len(self.filter.rows), len(self.filter.columns)
        on_cpu = like.device.type == "cpu"
        self.columns = _COLUMNS if on_cpu else _CUDA_COLUMNS
        pairs = (_NUMBERS if on_cpu else _CUDA_NUMBERS) // (like.shape[1] * oh * (like.shape[3] + ow))
        self.rows = max(1, min(64, pairs // self.columns))
        self.function = _compiled(
            tuple(self.filter.taps.tolist()), self.rows, *like.shape[1:], dtype, like.device
        )
        blank = like.new_zeros(1, *like.shape[1:])
        try:  # compiles what is not compiled yet (another number of threads counts as new)
            self.score(self.left(blank), [self.right(blank)], blank.new_zeros(1, 1))
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            raise UserError(
                "compiled=True needs a working C++ compiler: install g++ or name yours in CXX, or leave "
                f"compiled out ({type(error).__name__}: {reason})"
            ) from error

    def left(self, images: Tensor) -> Side:
        s = self.filter.statistics(_filled(images, self.rows))
        deviations = (values.movedim(4, 3) for values in self.filter.deviations(s))
        return tuple(
            values.movedim(0, -1).unsqueeze(-1).to(self.dtype).contiguous()
            for values in (*deviations, s.mean, s.mean.square() + C1, s.variance + C2)
        )

    def right(self, images: Tensor) -> Side:
        s = self.filter.statistics(_filled(images, self.columns))
        return tuple(
            values.movedim(0, -1).unsqueeze(-2).to(self.dtype).contiguous()
            for values in (s.centered, s.column_mean, s.mean, s.mean.square(), s.variance)
        )

    def score(self, left: Side, rights: list[Side], scores: Tensor) -> None:
        """Write the SSIM of all pairs of images into ``scores``."""
        for right, found in zip(rights, scores.split(self.columns, 1), strict=True):
            found.copy_(self.function(*left, *right)[: found.shape[0], : found.shape[1]])


def _filled(images: Tensor, count: int) -> Tensor:
    """``count`` images, the last one repeated."""
    return images[torch.arange(count, device=images.device).clamp_(max=len(images) - 1)]


@cache
def _compiled(taps: tuple[float, ...], *shape: object) -> Callable[..., Tensor]:
    """The compiled function; for each ``shape`` one with a code object of its own.

    PyTorch counts compilations by code object and stops compiling after eight.
    """

    def block(
        x: Tensor, x_columns: Tensor, x_mean: Tensor, x_energy: Tensor, x_variance: Tensor,
        y: Tensor, y_columns: Tensor, y_mean: Tensor, y_energy: Tensor, y_variance: Tensor,
    ) -> Tensor:  # fmt: skip
        """SSIM of all pairs: (r, n)."""
        oh, ow = x_mean.shape[1:3]
        steps = range(len(taps))
        vertical = reduce(torch.add, (x[:, :, k] * y.narrow(1, k, oh) for k in steps))
        cov = reduce(torch.add, (taps[k] * vertical.narrow(2, k, ow) for k in steps))
        cov = cov + reduce(torch.add, (x_columns[:, :, k] * y_columns.narrow(2, k, ow) for k in steps))
        numerator = (2 * x_mean * y_mean + C1) * (2 * cov + C2)
        denominator = (x_energy + y_energy) * (x_variance + y_variance)
        # in two steps, because a long sum of numbers near 1 in float32 loses digits
        return (numerator / denominator).sum(2).mean((0, 1)) / ow

    own = FunctionType(block.__code__.replace(), block.__globals__, "block", None, block.__closure__)
    return torch.compile(own, dynamic=False, fullgraph=True, options=_OPTIONS)
