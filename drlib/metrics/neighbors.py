"""Exact nearest neighbors in bounded memory: a fast screen, then an exact score of the candidates."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral

import torch
from torch import Tensor

from drlib.errors import UserError

ROWS, COLUMNS = 1024, 4096  # losses held at once; never all n x m
_TIE = 1e-12  # losses closer than this (relative to 1 or to the loss, whichever is smaller) are a tie
_LEAST_MB, _FIXED_MB = 64, 48  # the smallest budget; what is needed whatever the size of a block
_IMAGE_COPIES, _PAIR_BYTES = 12, 16  # for each image of a block: itself, its statistics; for each pair

Screen = Callable[[Tensor, Tensor], tuple[Tensor, Tensor | float, Tensor | float]]


def memory_budget(device: torch.device, memory_mb: int | None) -> int:
    """The budget in MiB: as given, or 512, on CUDA 4096. Refused if too small, or no whole number."""
    if memory_mb is None:
        return 512 if device.type == "cpu" else 4096
    if not isinstance(memory_mb, Integral) or memory_mb < _LEAST_MB:
        raise UserError(f"memory_mb must be {_LEAST_MB} or more, a whole number, got {memory_mb!r}")
    return memory_mb


def block_shape(images: Tensor, memory_mb: int | None, rows: int = ROWS) -> tuple[int, int]:
    """Rows (at most ``rows``) and columns of a block whose images, statistics and losses fit the budget.

    Half of what is left beside the fixed buffers is for images, half for pairs.
    """
    half = (memory_budget(images.device, memory_mb) - _FIXED_MB) * 2**19
    held = half // (images[:1].numel() * max(4, images.element_size()) * _IMAGE_COPIES)
    rows = max(1, min(rows, held // 2))
    return rows, max(1, min(COLUMNS, held - rows, half // (_PAIR_BYTES * rows)))


def nearest(
    a: Tensor,
    b: Tensor,
    *,
    screen: Screen,
    exact: Callable[[Tensor, Tensor], Tensor],
    candidates: Tensor | None = None,
    rows: int = ROWS,
    columns: int = COLUMNS,
    progress: Callable[[int], None] | None = None,
) -> tuple[Tensor, Tensor]:
    """For each row of ``a`` the index of the row of ``b`` with the smallest exact loss; ties: lowest index.

    A loss ties with the smallest within 1e-12, or where that is below 1 in size, within 1e-12 of it.

    Args:
        screen: ``(r, ...), (c, ...) -> losses (r, c), offset, slack``, the last two a number or (r,). For all
            pairs, ``losses + offset`` is within ``slack / 2`` of the exact losses. (What is the same for a
            whole row need not be added to every loss, where it would cost digits.)
        exact: float64 losses of paired rows, ``(p, ...), (p, ...) -> (p,)``.
        candidates: int64 (k,), ascending: the rows of ``b`` to search; default: all.
        rows, columns: the block of pairs that is held at once.
        progress: called with the number of pairs just done.

    Returns:
        index int64 (n,) into ``b`` and exact loss float64 (n,), on the device of ``a``.
    """
    best = torch.full((len(a),), torch.inf, dtype=torch.float64, device=a.device)
    index = torch.zeros(len(a), dtype=torch.int64, device=a.device)
    if candidates is not None:
        candidates = candidates.to(b.device)
    count = len(b) if candidates is None else len(candidates)
    for i in range(0, len(a), rows):
        left, rows_best, rows_index = a[i : i + rows], best[i : i + rows], index[i : i + rows]
        for j in range(0, count, columns):
            right = b[j : j + columns] if candidates is None else b[candidates[j : j + columns]]
            losses, offset, slack = screen(left, right)
            bound = torch.minimum(losses.amin(1).double() + offset, rows_best) + slack - offset
            bound = torch.nextafter(bound.to(losses.dtype), losses.new_tensor(torch.inf))  # rounded up
            step = max(1, 2**20 // len(right))  # few rows at a time: all of their pairs may be candidates
            for k in range(0, len(left), step):
                part = slice(k, k + step)
                loss, first = _best(left[part], right, losses[part] <= bound[part, None], exact)
                closer = loss < rows_best[part] - _TIE * rows_best[part].abs().clamp(max=1)
                rows_best[part][closer] = loss[closer]
                rows_index[part][closer] = first[closer] + j
            if progress is not None:
                progress(losses.numel())
    if candidates is not None:
        index = candidates[index]
    return index, best


def _best(
    left: Tensor, right: Tensor, close: Tensor, exact: Callable[[Tensor, Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """For each row the smallest exact loss (or inf) and its first column, among pairs ``close`` (r, c)."""
    r, c = close.nonzero(as_tuple=True)
    loss = torch.full((len(left),), torch.inf, dtype=torch.float64, device=left.device)
    first = torch.full((len(left),), len(right), device=left.device)
    step = max(1, 2**18 // left[0].numel())  # gathered images stay few even when all are candidates
    losses = [exact(left[r[k : k + step]], right[c[k : k + step]]) for k in range(0, len(r), step)]
    if losses:
        refined = torch.cat(losses)
        loss.scatter_reduce_(0, r, refined, "amin")
        tied = refined <= (loss + _TIE * loss.abs().clamp(max=1))[r]
        first.scatter_reduce_(0, r[tied], c[tied], "amin")
    return loss, first
