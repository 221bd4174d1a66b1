"""Is the leakage gap more than luck? A randomization test over which images were trained on.

The gap of a reconstruction is its mean similarity to the nearest of m training images minus that to the
nearest of m holdout images. Training and holdout images were drawn at random from one pool, so if the
reconstruction knows nothing of the draw, every re-split of the pool (within classes) is as likely as the
real one. The share of re-splits whose gap is at least the observed one is an exact p-value. A bootstrap over
reconstructions alone is too sure of itself here: a class mean, which cannot leak, can differ from zero by the
luck of the draw.
"""

from __future__ import annotations

import torch
from torch import Tensor

from drlib.errors import UserError

_RANKS = 24
"""How many of the most similar images are looked at first."""

_ENTRIES = 20_000_000
"""Booleans held at once."""


def resplit_gaps(
    similarity: Tensor,
    pool_labels: Tensor,
    labels: Tensor | None = None,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> Tensor:
    """Gaps under random re-splits of the pool.

    similarity: (n, 2m), larger is closer; first the m training images, then the m holdout images.
    pool_labels: (2m,) classes, each with as many training as holdout images. labels: (n,) classes of the
    reconstructions, or None to compare with all classes. Returns (resamples,) float64.
    """
    size = similarity.shape[1]
    if size % 2 or pool_labels.shape != (size,):
        raise UserError(f"the pool needs m training and m holdout images with labels, got {size} columns")
    halves = pool_labels.view(2, -1)
    if not torch.equal(halves[0].sort().values, halves[1].sort().values):
        raise UserError("the pool needs as many training as holdout images in each class")
    similarity = similarity.double()
    if labels is not None:
        similarity = similarity.masked_fill(labels[:, None] != pool_labels[None], -torch.inf)
    ranked, order = similarity.sort(dim=1, descending=True)
    trained = _resplits(pool_labels, resamples, seed)
    step = max(1, _ENTRIES // (len(order) * min(size, _RANKS)))
    parts = [_gaps(ranked, order, chunk) for chunk in trained.split(step)]
    return torch.cat(parts)


def _gaps(ranked: Tensor, order: Tensor, trained: Tensor) -> Tensor:
    """Mean difference between the best similarity in a re-split's training half and in its other half.

    Half of the pool is in either half, so the best member of a half is nearly always among the first few
    ranks; more ranks are looked at until every reconstruction has found both.
    """
    ranks = min(_RANKS, ranked.shape[1])
    while True:
        inside = trained[:, order[:, :ranks]]
        if ranks == ranked.shape[1] or (inside.any(dim=2) & ~inside.all(dim=2)).all():
            break
        ranks = min(2 * ranks, ranked.shape[1])
    first_inside = inside.to(torch.uint8).argmax(dim=2)
    first_outside = (~inside).to(torch.uint8).argmax(dim=2)
    rows = torch.arange(len(ranked))
    return (ranked[rows, first_inside] - ranked[rows, first_outside]).mean(dim=1)


def _resplits(pool_labels: Tensor, resamples: int, seed: int) -> Tensor:
    """(resamples, 2m) booleans: in each class a random half is called training."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand((resamples, len(pool_labels)), generator=generator)
    trained = torch.zeros((resamples, len(pool_labels)), dtype=torch.bool)
    for label in pool_labels.unique():
        columns = (pool_labels == label).nonzero().flatten()
        half = order[:, columns].argsort(dim=1)[:, : len(columns) // 2]
        trained.scatter_(1, columns[half], True)
    return trained


def p_value(observed: float, resplit: Tensor) -> float:
    """Share of re-splits with a gap of at least ``observed``, the real split counted among them."""
    return (1 + int((resplit >= observed).sum())) / (1 + len(resplit))
