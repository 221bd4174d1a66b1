"""Bias-Rec (Haim et al.; NeurIPS 2022), for many classes as in Buzaglo et al. (NeurIPS 2023)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from drlib import optimize
from drlib.errors import UserError
from drlib.stationarity import MARGINS, Stationarity
from drlib.types import (
    NO_DATA,
    STATIC,
    WHITE_BOX,
    Attack,
    Knowledge,
    Progress,
    Reconstruction,
    TargetSpec,
    WhiteBox,
)

SOLVE_EVERY = 10  # steps between two exact solutions for the multipliers
DUPLICATE = 0.98  # two candidates whose pixels correlate more than this count as one
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": functools.partial(torch.optim.SGD, momentum=0.9),
    "adam": torch.optim.Adam,
}


def distinct(images: Tensor, shares: Tensor, n: int) -> tuple[Tensor, int]:
    """Rows of the n candidates with the largest shares, near-duplicates last; how many are no duplicate."""
    rows = images.flatten(1).double()
    rows = F.normalize(rows - rows.mean(dim=1, keepdim=True), dim=1)
    alike = rows @ rows.T > DUPLICATE
    kept: list[int] = []
    doubles: list[int] = []
    for row in shares.argsort(descending=True, stable=True).tolist():
        (doubles if alike[row, kept].any() else kept).append(row)
    return torch.tensor((kept + doubles)[:n]), len(kept)


@dataclass(frozen=True, kw_only=True)
class BiasRec(Attack):
    """Haim et al. 2022: min_{x, lambda >= 0} || theta - 1/m sum_i lambda_i grad_theta margin(x_i, y_i) ||^2.

    The adversary has the weights of a homogeneous net; no data. Training such a net to a small logistic loss
    ends where theta is a combination of its own gradients at training images; the attack looks for images
    that solve this equation. ``margin="hard"`` is the papers': Phi_y minus the largest other logit.
    ``margin="soft"`` is ours: with weight decay w (half of it times ||theta||^2 in the loss) the equation
    holds exactly where training stands still, with lambda_i = (m / n) (1 - p_y(x_i)) / w.

    m = ``candidates`` * n images, with fixed labels in equal blocks, and their multipliers are optimized
    together. ``alpha``: the derivative of ReLU is sigmoid(alpha z). Defaults: a binary MNIST run of Haim et
    al.; for ten classes Buzaglo et al. have others (start of scale 6.2e-5, rates 1.4e-3 and 0.48,
    multipliers from 0.2, alpha 40). Differences: images are clipped to [0, 1] and multipliers at
    ``smallest_multiplier`` after each step, instead of penalties (``multipliers="nnls"`` solves for them;
    for small m); images start around ``init_center`` instead of the training set's mean, which the
    adversary does not know. The n results are those with the largest shares of ||theta||^2, near-duplicates
    last; the original asks the training set.

    Known failure: many other sets of images solve the equation as well, so a small residual proves nothing.
    Only images near the decision boundary have a multiplier to speak of. Where weight decay has left few
    distinct units, the weights show a few mixtures of images; with many images nothing is recovered.
    """

    name: ClassVar[str] = "bias_rec"
    title: ClassVar[str] = "Bias-Rec"
    paper: ClassVar[str] = "haim2022"
    knowledge: ClassVar[Knowledge] = Knowledge(STATIC, WHITE_BOX, NO_DATA)
    coupled: ClassVar[bool] = True
    labeled: ClassVar[bool] = False

    steps: int = 50000
    candidates: int = 2
    margin: Literal["hard", "soft"] = "hard"
    optimizer: Literal["sgd", "adam"] = "sgd"
    schedule: Literal["constant", "cosine"] = "constant"
    learning_rate: float = 0.0305
    multiplier_rate: float = 1e-4
    multipliers: Literal["projected", "nnls"] = "projected"
    smallest_multiplier: float = 0.447
    alpha: float = 150.0
    init_center: float = 0.5
    init_scale: float = 0.035

    def __post_init__(self) -> None:
        optimize.check_number(self, "steps", 1, integer=True)
        optimize.check_number(self, "candidates", 1, integer=True)
        optimize.check_choice(self, "margin", MARGINS)
        optimize.check_choice(self, "optimizer", OPTIMIZERS)
        optimize.check_choice(self, "schedule", optimize.SCHEDULES)
        optimize.check_number(self, "learning_rate", 0, 1000)
        optimize.check_number(self, "multiplier_rate", 0, 1000)
        optimize.check_choice(self, "multipliers", ("projected", "nnls"))
        optimize.check_number(self, "smallest_multiplier", 0)
        optimize.check_number(self, "alpha", 1)
        optimize.check_number(self, "init_center", 0, 1)
        optimize.check_number(self, "init_scale", 0, 1)

    def supports(self, spec: TargetSpec) -> str | None:
        if spec.homogeneous:
            return None
        parts = "BatchNorm" if spec.has_batchnorm else "biases beyond the first layer, residual connections"
        return f"it is not homogeneous in its parameters ({parts} or other activations than ReLU)"

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
        if reason := self.supports(access.spec):
            raise UserError(f"{self.title} cannot attack {access.spec.architecture}: {reason}")
        meter = optimize.Meter(access)
        kkt = Stationarity(access, self.alpha, self.margin)
        m = self.candidates * n
        start = self.init_center + self.init_scale * torch.randn((m, *access.spec.shape), generator=generator)
        images = optimize.to_model(start.clamp(0, 1), access).requires_grad_(True)
        multipliers = torch.rand(m, generator=generator).clamp(min=self.smallest_multiplier)
        multipliers = optimize.to_model(multipliers, access).requires_grad_(True)
        classes = (torch.arange(m) * access.spec.num_classes // m).to(access.device)  # equal blocks
        solve = self.multipliers == "nnls"
        rates = (self.learning_rate, 0.0 if solve else self.multiplier_rate)
        optimizer = OPTIMIZERS[self.optimizer](
            [{"params": [x], "lr": rate} for x, rate in zip((images, multipliers), rates, strict=True)]
        )
        history = torch.zeros(self.steps)
        for step, scale in enumerate(optimize.SCHEDULES[self.schedule](1.0, self.steps)):
            if solve and step % SOLVE_EVERY == 0:
                multipliers.data = kkt.best_multipliers(images, classes)
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = scale * rate
            loss = kkt.loss(images, classes, multipliers)
            optimizer.zero_grad()
            loss.backward(inputs=[images, multipliers])
            optimizer.step()
            images.data.clamp_(0, 1)
            multipliers.data.clamp_(min=0 if solve else self.smallest_multiplier)
            history[step] = float(loss.detach() / kkt.squared_norm)
            progress(step + 1, self.steps)
        images, multipliers = images.detach(), multipliers.detach()
        if solve:
            multipliers = kkt.best_multipliers(images, classes)
        # Euler: in a homogeneous net <theta, grad margin> = L margin, so these are parts of ||theta||^2.
        shares = multipliers * kkt.margins(kkt.theta, images, classes)
        chosen, different = distinct(images, shares, n)
        facts = {
            "relative_residual": float(kkt.loss(images, classes, multipliers).detach() / kkt.squared_norm),
            "active_candidates": int((multipliers > 0.01 * multipliers.max()).sum()),
            "distinct_candidates": different,
        }
        return Reconstruction(images[chosen], None, history, **meter.read(), group_size=n, facts=facts)
