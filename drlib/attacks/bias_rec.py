"""Bias-Rec (Haim et al.; NeurIPS 2022), for many classes as in Buzaglo et al. (NeurIPS 2023)."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from scipy.optimize import nnls
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from drlib import optimize
from drlib.errors import UserError
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


def hard_margin(logits: Tensor, labels: Tensor) -> Tensor:
    """Phi_y - max_{c != y} Phi_c (n,). With two classes, +-(Phi_1 - Phi_0): the binary formula."""
    rivals = logits.scatter(1, labels[:, None], -math.inf)
    return logits.gather(1, labels[:, None])[:, 0] - rivals.amax(dim=1)


def soft_margin(logits: Tensor, labels: Tensor) -> Tensor:
    """Phi_y - log sum_{c != y} exp Phi_c (n,). The gradient of the cross entropy is -(1 - p_y) times its."""
    rivals = logits.scatter(1, labels[:, None], -math.inf)
    return logits.gather(1, labels[:, None])[:, 0] - rivals.logsumexp(dim=1)


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": functools.partial(torch.optim.SGD, momentum=0.9),
    "adam": torch.optim.Adam,
}
MARGINS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"hard": hard_margin, "soft": soft_margin}


class SmoothReLU(nn.Module):
    """ReLU whose derivative is sigmoid(alpha z), so that parameter gradients can be differentiated in x."""

    def __init__(self, alpha: float) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, z: Tensor) -> Tensor:
        smooth = F.softplus(z, beta=self.alpha)
        return smooth + (z.relu() - smooth).detach()


class Stationarity:
    """The condition theta = 1/m sum_i lambda_i grad_theta margin(x_i, y_i) for m candidates.

    Works on a copy of the target whose every ``nn.ReLU`` is a ``SmoothReLU``; counts gradient calls.
    """

    def __init__(self, access: WhiteBox, alpha: float, margin: str) -> None:
        self.access = access
        self.margin = MARGINS[margin]
        self.net = copy.deepcopy(access.model)
        for module in list(self.net.modules()):
            for name, child in module.named_children():
                if isinstance(child, nn.ReLU):
                    setattr(module, name, SmoothReLU(alpha))
        self.theta = {name: value.detach() for name, value in self.net.named_parameters()}
        self.squared_norm = sum(value.square().sum() for value in self.theta.values())

    def margins(self, theta: dict[str, Tensor], images: Tensor, labels: Tensor) -> Tensor:
        return self.margin(functional_call(self.net, theta, (images,)), labels)

    def loss(self, images: Tensor, labels: Tensor, multipliers: Tensor) -> Tensor:
        """|| theta - 1/m sum_i lambda_i grad margin_i ||^2, differentiable in images and multipliers."""
        self.access.gradient_calls += len(images)
        theta = {name: value.clone().requires_grad_(True) for name, value in self.theta.items()}
        combined = (multipliers * self.margins(theta, images, labels)).mean()
        gradients = torch.autograd.grad(combined, theta.values(), create_graph=True)
        return sum(
            (value - part).square().sum() for value, part in zip(theta.values(), gradients, strict=True)
        )

    def best_multipliers(self, images: Tensor, labels: Tensor) -> Tensor:
        """The multipliers >= 0 with the smallest loss (m,), exactly; holds all m gradients in memory."""
        self.access.gradient_calls += len(images)

        def flat(parts: dict[str, Tensor]) -> Tensor:
            return torch.cat([part.flatten() for part in parts.values()]).double()

        def column(image: Tensor, label: Tensor) -> Tensor:
            return flat(grad(lambda theta: self.margins(theta, image[None], label[None])[0])(self.theta))

        columns = vmap(column, chunk_size=64)(images.detach(), labels).T / len(images)
        q, r = torch.linalg.qr(columns)  # the same problem in m dimensions instead of one per parameter
        solution, _ = nnls(r.cpu().numpy(), (q.T @ flat(self.theta)).cpu().numpy())
        return torch.from_numpy(solution).to(images)


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
    together. ``alpha``: the derivative of ReLU is sigmoid(alpha z). Defaults: the best MNIST run of Haim et
    al. Differences: images are clipped to [0, 1] and multipliers at ``smallest_multiplier`` after each step,
    instead of penalties (``multipliers="nnls"`` solves for them; for small m); images start around
    ``init_center`` instead of the training set's mean, which the adversary does not know. The n results are
    those with the largest shares of ||theta||^2, near-duplicates last; the original asks the training set.

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
