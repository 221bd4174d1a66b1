"""Feature distance: how far an image is from its class in the feature space of an evaluation network.

The paper argues against it (section 4.1): another network gives another space, and other ranks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from drlib.errors import UserError
from drlib.metrics.frechet import check_features


def centroid_distance(made: Tensor, labels: Tensor, reference: Tensor, reference_labels: Tensor) -> Tensor:
    """Euclidean distance of each image's features to the mean features of its class, float64 (n,).

    Divided by the root mean square distance of the reference images to their own class's mean, so that values
    of different networks share a unit: 1 is as far as a real image of the class is.

    Args:
        made: (n, d) features of reconstructions, labels (n,). reference: (m, d) of real images, with labels.

    Raises:
        UserError: a class without a reference image, features that do not fit.
    """
    made, reference = check_features("made", made), check_features("reference", reference)
    if made.shape[1] != reference.shape[1]:
        raise UserError(f"features differ in dimension: {made.shape[1]} and {reference.shape[1]}")
    absent = sorted(set(labels.tolist()) - set(reference_labels.tolist()))
    if absent:
        raise UserError(f"no reference image has the label of these classes: {absent}")
    members = torch.nn.functional.one_hot(reference_labels.long()).double()
    centroids = members.T @ reference / members.sum(0)[:, None].clamp(min=1)
    spread = (reference - centroids[reference_labels.long()]).square().sum(1).mean().sqrt()
    return (made - centroids[labels.long()]).norm(dim=1) / spread
