"""Which target is a reconstruction of? Three answers, on the same reconstructions.

*Nearest neighbor* (Definition 4.2): each reconstruction takes its closest target, several may take the same.
*Hungarian*: a one-to-one assignment with the best mean. *Printed order*: reconstruction i belongs to target
i, as if the attack had returned the images in the order of the training set. No attack knows that order
(attacks on gradients of several images return them in any), so printed order punishes a perfect attack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from drlib.errors import UserError
from drlib.metrics.sample import check_images, check_labels, sample_distance
from drlib.metrics.ssim import ssim_matrix

WAYS = ("nearest", "hungarian", "printed")


@dataclass(frozen=True)
class Pairing:
    """index: int64 (n,) into the targets; values: SSIM float64 (n,) with that target; coverage in (0, 1]."""

    index: Tensor
    values: Tensor
    coverage: float

    @property
    def mean(self) -> float:
        return float(self.values.mean())


def who_is_who(
    reconstructions: Tensor | np.ndarray,
    targets: Tensor | np.ndarray,
    reconstruction_labels: Tensor | Sequence[int] | None = None,
    target_labels: Tensor | Sequence[int] | None = None,
) -> dict[str, Pairing]:
    """The three pairings by SSIM, as ``WAYS`` names them; n reconstructions and n targets.

    Images and labels are those that ``sample_distance`` takes.
    With labels, nearest neighbor and Hungarian stay inside the class; then each class needs as many
    reconstructions as targets. The nearest neighbor's mean is never below the Hungarian's, and that (over all
    classes) never below printed order's.

    Raises:
        UserError: other numbers of reconstructions than of targets, over all or in a class; bad images.
    """
    reconstructions, targets = check_images("reconstructions", reconstructions, "targets", targets)
    if len(reconstructions) != len(targets):
        raise UserError(
            f"pairing one to one needs equally many images: got {len(reconstructions)} reconstructions "
            f"and {len(targets)} targets"
        )
    near = sample_distance(reconstructions, targets, "ssim", reconstruction_labels, target_labels)
    similarity = ssim_matrix(reconstructions.double(), targets.double()).cpu()
    allowed = similarity
    if reconstruction_labels is not None:
        mine = check_labels("reconstruction_labels", reconstruction_labels, len(targets))
        theirs = check_labels("target_labels", target_labels, len(targets))
        if not torch.equal(mine.sort().values, theirs.sort().values):
            raise UserError("pairing in class needs as many reconstructions as targets in each class")
        allowed = similarity.masked_fill(mine[:, None] != theirs[None], -np.inf)
    return {
        "nearest": _pairing(near.nearest, similarity),
        "hungarian": _pairing(_assignment(allowed), similarity),
        "printed": _pairing(torch.arange(len(targets)), similarity),
    }


def _assignment(similarity: Tensor) -> Tensor:
    from scipy.optimize import linear_sum_assignment

    _, columns = linear_sum_assignment(similarity.numpy(), maximize=True)
    return torch.from_numpy(columns.astype(np.int64))


def _pairing(index: Tensor, similarity: Tensor) -> Pairing:
    values = similarity.double()[torch.arange(len(index)), index]
    return Pairing(index, values, len(index.unique()) / similarity.shape[1])
