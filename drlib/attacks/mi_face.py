"""MI-Face (Fredrikson, Jha, Ristenpart; CCS 2015)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from drlib import losses, optimize
from drlib.types import (
    EXECUTION,
    NO_DATA,
    STATIC,
    WHITE_BOX,
    Attack,
    Knowledge,
    Progress,
    Reconstruction,
    WhiteBox,
)

COSTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "one_minus_p": losses.one_minus_p,
    "cross_entropy": losses.cross_entropy,
    "margin": losses.max_margin,
}


@dataclass(frozen=True, kw_only=True)
class MIFace(Attack):
    """Fredrikson et al. 2015: x <- clip(x - rate * grad c(x), 0, 1) with c(x) = 1 - p_y(x).

    The adversary has the model's gradients and a class; no data. Each image stops on its own: when
    p_y reaches ``confidence``, when c has not fallen below the largest of the last ``patience``
    costs, or after ``steps``; its cheapest iterate is returned. The constants are the paper's
    (alpha = 5000, beta = 100, gamma = 0.99, lambda = 0.1); gamma is read as a confidence.
    Differs from the paper: uniform random start (SoK, App. C), so that a class yields different
    samples; no auxiliary term, and no denoising between steps (it was for auto-encoder targets).

    Known failure: without an image prior, x stays near its start and is convincing noise; where
    p_y is near 0 the gradient of 1 - p_y vanishes and x hardly moves (try ``cost="cross_entropy"``).
    """

    name: ClassVar[str] = "mi_face"
    title: ClassVar[str] = "MI-Face"
    paper: ClassVar[str] = "fredrikson2015"
    knowledge: ClassVar[Knowledge] = Knowledge(STATIC, WHITE_BOX, NO_DATA)

    steps: int = 5000
    learning_rate: float = 0.1
    confidence: float = 0.99
    patience: int = 100
    cost: Literal["one_minus_p", "cross_entropy", "margin"] = "one_minus_p"
    optimizer: Literal["gd", "adam"] = "gd"
    batch_size: int = field(default=256, metadata=EXECUTION)

    def __post_init__(self) -> None:
        optimize.check_number(self, "steps", 1, integer=True)
        optimize.check_number(self, "learning_rate", 0, 1000)
        optimize.check_number(self, "confidence", 0, 1)
        optimize.check_number(self, "patience", 1, integer=True)
        optimize.check_choice(self, "cost", COSTS)
        optimize.check_choice(self, "optimizer", optimize.OPTIMIZERS)
        optimize.check_number(self, "batch_size", 1, integer=True)

    def reconstruct(
        self,
        access: WhiteBox,
        prepared: Any,
        *,
        n: int,
        labels: Tensor,
        generator: torch.Generator,
        progress: Progress,
    ) -> Reconstruction:
        meter = optimize.Meter(access)
        images = optimize.to_model(optimize.uniform_images(n, access.spec.shape, generator), access)
        targets = labels.to(access.device)
        history = torch.zeros(self.steps + 1, dtype=torch.float64)
        longest = 0
        for rows, report in optimize.with_progress(
            torch.arange(n).split(self.batch_size), self.steps, progress
        ):
            images[rows], costs = self._invert(access, images[rows], targets[rows], report)
            history[: len(costs)] += costs
            history[len(costs) :] += costs[-1]
            longest = max(longest, len(costs))
        return Reconstruction(images, labels, history[:longest] / n, **meter.read())

    def _invert(
        self, access: WhiteBox, images: Tensor, labels: Tensor, report: Callable[[int], None]
    ) -> tuple[Tensor, Tensor]:
        """Invert one batch: the best iterates, and the summed cost at the start and after each step."""
        optimizer = optimize.OPTIMIZERS[self.optimizer]()
        best = images.clone()
        best_cost = images.new_full((len(images),), math.inf)
        window = min(self.patience, self.steps + 1)
        recent = images.new_full((len(images), window), math.inf)
        active = torch.arange(len(images), device=images.device)
        finished_cost = 0.0
        sums = []
        for step in range(self.steps + 1):
            images = images.detach().requires_grad_(True)
            logits = access.logits(images)
            costs = COSTS[self.cost](logits, labels)
            (gradient,) = torch.autograd.grad(costs.sum(), images)
            images, costs = images.detach(), costs.detach()
            sums.append(finished_cost + costs.sum().item())

            better = costs < best_cost[active]
            best[active[better]], best_cost[active[better]] = images[better], costs[better]
            confident = losses.one_minus_p(logits.detach(), labels) <= 1 - self.confidence
            going = ~confident & (costs < recent.amax(dim=1))
            recent[:, step % window] = costs
            if not going.all():
                # Finished images leave the batch: on a CPU this is most of the speed.
                finished_cost += costs[~going].sum().item()
                images, labels, gradient = images[going], labels[going], gradient[going]
                recent, active = recent[going], active[going]
                optimizer.keep(going)
            if step == self.steps or len(active) == 0:
                break
            images = optimizer.step(images, gradient, self.learning_rate)
            report(step + 1)
        report(self.steps)
        return best, torch.tensor(sums, dtype=torch.float64)
