"""How far gradients are from the observed ones, and Adam on that distance, for many rows at once."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from drlib.gradient_leakage import Tensors

Objective = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""objective(points (r, d), numbers (r,)): distance of the gradients and TV of the images of these rows."""


def inner(a: Tensors, b: Tensors) -> Tensor:
    """Inner products (rows,) over all parameters."""
    return sum((a[name] * b[name]).flatten(1).sum(dim=1) for name in a)


def squared_distance(found: Tensors, observed: Tensors) -> Tensor:
    """||G - g||^2 / ||g||^2 for each row (Zhu et al. 2019, divided by ||g||^2)."""
    difference = {name: found[name] - observed[name] for name in found}
    return inner(difference, difference) / inner(observed, observed)


def cosine_distance(found: Tensors, observed: Tensors) -> Tensor:
    """1 - <G, g> / (||G|| ||g||) for each row (Geiping et al. 2020)."""
    norms = inner(found, found).sqrt() * inner(observed, observed).sqrt()
    return 1 - inner(found, observed) / norms.clamp(min=1e-30)


def total_variation(images: Tensor) -> Tensor:
    """Mean absolute difference of neighbors, horizontal plus vertical, over all images of a row (rows,)."""
    return sum(images.diff(dim=axis).abs().flatten(1).mean(dim=1) for axis in (-1, -2))


def adam(
    objective: Objective,
    points: Tensor,
    pixels: int,
    *,
    steps: int,
    learning_rate: float,
    tv: float,
    signed: bool,
    report: Callable[[int], None],
) -> tuple[Tensor, Tensor]:
    """Minimize distance + ``tv`` * TV by Adam from points (r, d), whose first ``pixels`` stay in [0, 1].

    ``signed``: Adam sees the sign of a pixel's gradient. The learning rate is divided by 10 after 3/8, 5/8
    and 7/8 of the steps. TV fades to 0 until 5/8: later the steps are too short to undo its smoothing.

    Returns each row's point of lowest distance, and that distance after each step (steps, r).
    """
    points = points.clone()
    points[:, :pixels].clamp_(0, 1)
    best, distances = points.clone(), points.new_full((steps, len(points)), math.inf)
    numbers = torch.arange(len(points), device=points.device)
    optimizer = torch.optim.Adam([points.requires_grad_(True)])
    for step in range(steps):
        distance, variation = objective(points, numbers)
        loss = distance + tv * max(0.0, 1 - 8 * step / (5 * steps)) * variation
        (points.grad,) = torch.autograd.grad(loss.sum(), points)
        better = distance.detach() < distances[-1]
        best[better], distances[step:, better] = points.detach()[better], distance.detach()[better]
        if signed:
            points.grad[:, :pixels].sign_()
        drops = sum(8 * step >= eighths * steps for eighths in (3, 5, 7))
        optimizer.param_groups[0]["lr"] = learning_rate * 0.1**drops
        optimizer.step()
        points.detach()[:, :pixels].clamp_(0, 1)
        report(step + 1)
    return best, distances
