"""Exact nearest neighbors in bounded memory: a fast screen, then an exact score of the candidates."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_ROWS, _COLUMNS = 1024, 2048  # losses held at once; never all n x m
_TIE = 1e-12  # losses closer than this (relative to 1 or to the loss, whichever is smaller) are a tie


def nearest(
    a: Tensor,
    b: Tensor,
    *,
    screen: Callable[[Tensor, Tensor], Tensor],
    exact: Callable[[Tensor, Tensor], Tensor],
    slack: float,
    rows: int = _ROWS,
    columns: int = _COLUMNS,
) -> tuple[Tensor, Tensor]:
    """For each row of ``a`` the index of the row of ``b`` with the smallest exact loss; ties: lowest index.

    Args:
        screen: losses of all pairs, ``(r, ...), (c, ...) -> (r, c)``, within ``slack / 2`` of the exact ones.
        exact: float64 losses of paired rows, ``(p, ...), (p, ...) -> (p,)``.

    Returns:
        index int64 (n,) and exact loss float64 (n,), on the device of ``a``.
    """
    best = torch.full((len(a),), torch.inf, dtype=torch.float64, device=a.device)
    index = torch.zeros(len(a), dtype=torch.int64, device=a.device)
    for i in range(0, len(a), rows):
        left, rows_best, rows_index = a[i : i + rows], best[i : i + rows], index[i : i + rows]
        for j in range(0, len(b), columns):
            right = b[j : j + columns]
            losses = screen(left, right)
            bound = torch.minimum(losses.amin(1).double(), rows_best) + slack
            r, c = (losses <= bound[:, None]).nonzero(as_tuple=True)
            refined = torch.full(losses.shape, torch.inf, dtype=torch.float64, device=a.device)
            for k in range(0, len(r), rows):  # gathered images stay few even when all are candidates
                part = slice(k, k + rows)
                refined[r[part], c[part]] = exact(left[r[part]], right[c[part]])
            loss = refined.amin(1)
            # argmax returns the first of equal maxima, here the lowest index of a tie
            first = (refined <= (loss + _TIE * loss.abs().clamp(max=1))[:, None]).to(torch.uint8).argmax(1)
            closer = loss < rows_best - _TIE * rows_best.abs().clamp(max=1)
            rows_best[closer] = loss[closer]
            rows_index[closer] = first[closer] + j
    return index, best
