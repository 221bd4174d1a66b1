"""Feature distance: how far an image is from its class in the feature space of an evaluation network.

The paper argues against it (section 4.1): another network gives another space, and other ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from drlib.errors import UserError
from drlib.metrics.frechet import check_features
from drlib.metrics.sample import check_labels


def centroid_distance(
    made: Tensor,
    labels: Tensor | Sequence[int],
    reference: Tensor,
    reference_labels: Tensor | Sequence[int],
) -> Tensor:
    """Euclidean distance of each image's features to the mean features of its class, float64 (n,).

    Divided by the root mean square distance of the reference images to their own class's mean, so that values
    of different networks share a unit: 1 is as far as a real image of the class is. NaN if no reference image
    differs from its class's mean, as where each class has one.

    Args:
        made: (n, d) features of reconstructions. reference: (m, d) of real images.
        labels, reference_labels: n and m integers, 0 or more.

    Raises:
        UserError: a class without a reference image, features or labels that do not fit.
    """
    made, reference = check_features("made", made), check_features("reference", reference)
    if made.shape[1] != reference.shape[1]:
        raise UserError(f"features differ in dimension: {made.shape[1]} and {reference.shape[1]}")
    labels = check_labels("labels", labels, len(made))
    reference_labels = check_labels("reference_labels", reference_labels, len(reference))
    lowest = int(torch.cat([labels, reference_labels]).min())
    if lowest < 0:
        raise UserError(f"labels must be 0 or more, got {lowest}")
    absent = sorted(set(labels.tolist()) - set(reference_labels.tolist()))
    if absent:
        raise UserError(f"no reference image has the label of these classes: {absent}")
    classes, member = reference_labels.unique(return_inverse=True)
    members = torch.nn.functional.one_hot(member).double().to(reference.device)
    centroids = members.T @ reference / members.sum(0)[:, None]
    spread = (reference - centroids[member]).square().sum(1).mean().sqrt()
    if spread <= 1e-12 * reference.abs().max():  # only rounding
        spread = spread * torch.nan
    return (made - centroids[torch.searchsorted(classes, labels)]).norm(dim=1) / spread
