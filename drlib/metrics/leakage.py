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
    """The gap, then the gaps under random re-splits of the pool: the means of ``resplit_differences``.

    Returns (1 + resamples,) float64, for ``p_value``.
    """
    return resplit_differences(similarity, pool_labels, labels, resamples=resamples, seed=seed).mean(dim=1)


def resplit_differences(
    similarity: Tensor,
    pool_labels: Tensor,
    labels: Tensor | None = None,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> Tensor:
    """How much closer each reconstruction is to the training half: of the split as it is, and of re-splits.

    Args:
        similarity: (n, 2m), larger is closer; first the m training images, then the m holdout images.
        pool_labels: (2m,) classes, each with as many training as holdout images.
        labels: (n,) classes of the reconstructions, or None to compare with all classes.

    Returns:
        (1 + resamples, n) float64: the similarity to the nearest image of the training half minus that to the
        nearest image of the other half. The first row is the real split. The same seed draws the same
        re-splits, whatever the reconstructions.

    Raises:
        UserError: shapes that do not fit, NaN or infinite similarity, a label that the pool does not have.
    """
    _check(similarity, pool_labels, labels)
    similarity = similarity.double()
    if labels is not None:
        similarity = similarity.masked_fill(labels[:, None] != pool_labels[None], -torch.inf)
    ranked, order = similarity.sort(dim=1, descending=True)
    real = torch.arange(len(pool_labels)) < len(pool_labels) // 2
    trained = torch.cat([real[None], _resplits(pool_labels, resamples, seed)])
    step = max(1, _ENTRIES // (len(order) * min(len(pool_labels), _RANKS)))
    return torch.cat([_differences(ranked, order, chunk) for chunk in trained.split(step)])


def _check(similarity: Tensor, pool_labels: Tensor, labels: Tensor | None) -> None:
    if similarity.dim() != 2 or not similarity.numel() or not bool(similarity.isfinite().all()):
        raise UserError(f"similarity must be (n, 2m) finite numbers, got {tuple(similarity.shape)}")
    n, size = similarity.shape
    if size % 2 or pool_labels.shape != (size,):
        raise UserError(f"the pool needs m training and m holdout images with labels, got {size} columns")
    halves = pool_labels.view(2, -1)
    if not torch.equal(halves[0].sort().values, halves[1].sort().values):
        raise UserError("the pool needs as many training as holdout images in each class")
    if labels is None:
        return
    if labels.shape != (n,):
        raise UserError(f"{n} reconstructions need {n} labels, got {tuple(labels.shape)}")
    strange = sorted(set(labels.tolist()) - set(pool_labels.tolist()))
    if strange:
        raise UserError(f"the pool has no image of class {strange[0]}")


def _differences(ranked: Tensor, order: Tensor, trained: Tensor) -> Tensor:
    """The best similarity in a re-split's training half minus that in its other half: (resamples, n).

    The most similar image of all is in one half; the best of the other half is the first that is not in the
    same. Half of the pool is in either half, so it is nearly always among the first few ranks; more ranks are
    looked at until every reconstruction has found it.
    """
    ranks = min(_RANKS, ranked.shape[1])
    while True:
        inside = trained[:, order[:, :ranks]]
        other = inside != inside[:, :, :1]
        if ranks == ranked.shape[1] or other.any(dim=2).all():
            break
        ranks = min(2 * ranks, ranked.shape[1])
    second = ranked[torch.arange(len(ranked)), other.to(torch.uint8).argmax(dim=2)]
    closer = ranked[:, 0] - second
    return torch.where(inside[:, :, 0], closer, -closer)


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


def p_value(gaps: Tensor) -> float:
    """Share of splits with a gap of at least the real one's, which is counted among them.

    gaps: (1 + resamples,), the real split's first (as from ``resplit_gaps``); NaN if any of them is.

    Raises:
        UserError: another shape, such as that of ``resplit_differences``, whose mean over images is meant.
    """
    if gaps.dim() != 1 or not len(gaps):
        raise UserError(
            f"gaps must have shape (1 + resamples,), as from resplit_gaps, got {tuple(gaps.shape)}"
        )
    if not bool(gaps.isfinite().all()):
        return float("nan")
    return float((gaps >= gaps[0] - 1e-12).double().mean())  # equal but for rounding counts as equal
