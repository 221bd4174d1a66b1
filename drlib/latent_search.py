"""Search in the latents of a generator: starts, descent, and the best of several restarts.

All random numbers come from the caller; rows of a batch stay independent of each other.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from drlib import gan
from drlib.errors import UserError
from drlib.types import BlackBox


def probabilities(access: BlackBox, network: nn.Module, *inputs: Tensor, batch_size: int = 256) -> Tensor:
    """The target's class probabilities (n, K) of ``network(*inputs)``; costs n queries, keeps no image."""
    parts = zip(*(rows.split(batch_size) for rows in inputs), strict=True)
    return torch.cat([access.query(gan.sample(network, *part)) for part in parts])


def best_latents(candidates: Tensor, scores: Tensor, labels: Tensor) -> Tensor:
    """Best-of-N starts (len(labels), z_dim): a class with m rows gets its m best candidates, the best first.

    candidates: (N, z_dim). scores: (N, K), higher is better. Rows of one class are distinct.
    """
    chosen = candidates.new_empty((len(labels), candidates.shape[1]))
    for label in labels.unique().tolist():
        rows = (labels == label).nonzero()[:, 0]
        if len(rows) > len(candidates):
            raise UserError(f"{len(rows)} starts of a class need as many candidates, got {len(candidates)}")
        chosen[rows] = candidates[scores[:, label].topk(len(rows)).indices]
    return chosen


LATENT_OPTIMIZERS: dict[str, Callable[[list[Tensor], float], torch.optim.Optimizer]] = {
    # v' = 0.9 v - rate * g, z <- z - 0.9 v + 1.9 v' (Zhang et al. 2020), in the form that PyTorch has for it.
    "nesterov": lambda z, rate: torch.optim.SGD(z, lr=rate, momentum=0.9, nesterov=True),
    "adam": lambda z, rate: torch.optim.Adam(z, lr=rate),
}
"""Both act elementwise, so the rows of a batch stay independent."""


def search(
    loss: Callable[[Tensor, int], Tensor],
    start: Tensor,
    *,
    optimizer: str,
    learning_rate: float,
    steps: int,
    clip: float,
    report: Callable[[int], None],
) -> tuple[Tensor, Tensor]:
    """Minimize a per-row loss over latents, clipped to [-clip, clip] after each step (``math.inf``: never).

    ``loss(z, step) -> (n,)``, with steps from 0, is summed, never averaged, so that a row's path does not
    depend on the others. Returns the last latents (n, z_dim) and the summed loss at each step (steps,).
    """
    z = start.detach().clone().requires_grad_(True)
    descent = LATENT_OPTIMIZERS[optimizer]([z], learning_rate)
    sums = []
    for step in range(steps):
        total = loss(z, step).sum()
        (z.grad,) = torch.autograd.grad(total, z)
        descent.step()
        with torch.no_grad():
            z.clamp_(-clip, clip)
        sums.append(total.detach())
        report(step + 1)
    return z.detach(), torch.stack(sums).double().cpu()


def best_of_restarts(z: Tensor, scores: Tensor, restarts: int) -> tuple[Tensor, Tensor]:
    """Each sample's latent of highest score, and the score.

    z: (restarts * n, z_dim), all samples of the first restart first. scores: (restarts * n,).
    """
    best, restart = scores.view(restarts, -1).max(dim=0)
    rows = torch.arange(len(best), device=z.device)
    return z.view(restarts, len(best), -1)[restart, rows], best
