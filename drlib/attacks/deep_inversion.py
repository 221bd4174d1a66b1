"""DeepInversion (Yin et al.; CVPR 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from drlib import losses, optimize
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


class BatchNormStatistics:
    """Distance between a batch's statistics and the stored ones, over all BatchNorm layers.

    R_bn = sum_l ||mean_l - running_mean_l||_2 + ||var_l - running_var_l||_2, with mean and biased
    variance of the layer's input over (n, h, w); the first layer's term times ``first_multiplier``.
    A context manager: forward passes with gradients inside it are recorded, ``distance`` returns
    and forgets the last one, and the hooks are gone afterwards, also when an exception was raised.
    """

    def __init__(self, model: nn.Module, first_multiplier: float = 1.0) -> None:
        kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
        self.layers = [m for m in model.modules() if isinstance(m, kinds) and m.running_mean is not None]
        self.first_multiplier = first_multiplier
        self.terms: list[Tensor] = []
        self.handles: list[torch.utils.hooks.RemovableHandle] = []

    def __enter__(self) -> BatchNormStatistics:
        self.handles = [layer.register_forward_pre_hook(self._record) for layer in self.layers]
        return self

    def __exit__(self, *exception: object) -> None:
        for handle in self.handles:
            handle.remove()
        self.terms = []

    def _record(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if not torch.is_grad_enabled():
            return  # scoring passes are no part of the loss
        (features,) = inputs
        over = [0, *range(2, features.dim())]
        mean = features.mean(dim=over, keepdim=True)
        variance = (features - mean).square().mean(dim=over)  # faster than var_mean on a CPU
        self.terms.append(
            (mean.flatten() - layer.running_mean).norm() + (variance - layer.running_var).norm()
        )

    def distance(self) -> Tensor:
        """R_bn of the last forward pass, a scalar."""
        first, *others = self.terms
        self.terms = []  # let the graph go
        return self.first_multiplier * first + sum(others)


@dataclass(frozen=True, kw_only=True)
class DeepInversion(Attack):
    """Yin et al. 2020: min_x CE(f(x), y) + tv * TV(x) + l2 * ||x||^2 + bn * R_bn(x).

    The adversary has the weights and the BatchNorm running statistics; no data. R_bn (see
    ``BatchNormStatistics``) couples the images of a group, so ``group_size`` is a hyperparameter:
    n images are cut into class-balanced groups of nearly equal size, none larger than
    ``group_size``; the size of the largest is recorded in the reconstruction.

    Defaults: the CIFAR-10 recipe (groups of 256, 2000 steps, Adam at 0.05, jitter 2, bn 10).
    R_bn has the original's unsquared norms. TV and l2 are means over pixels, per image, where the
    original has norms of the whole batch; the weights are carried over as in ``DeepDream``.
    Further differences: uniform start, clipped to [0, 1], each image's best checkpoint (confidence
    in its class averaged over shifts) instead of the last iterate. Adaptive DeepInversion, which
    trains a student beside, is left out.

    Known failure: no BatchNorm, no attack. A heavy R_bn drowns the class; in groups of one class or
    of few images the statistics fit, the pictures do not.
    """

    name: ClassVar[str] = "deep_inversion"
    title: ClassVar[str] = "DeepInversion"
    paper: ClassVar[str] = "yin2020"
    knowledge: ClassVar[Knowledge] = Knowledge(STATIC, WHITE_BOX, NO_DATA)
    coupled: ClassVar[bool] = True

    steps: int = 2000
    learning_rate: float = 0.05
    schedule: Literal["constant", "cosine"] = "constant"
    betas: tuple[float, float] = (0.9, 0.999)
    jitter: int = 2
    tv: float = 0.11
    l2: float = 1.3e-4
    bn: float = 10.0
    first_bn_multiplier: float = 1.0
    group_size: int = 256

    def __post_init__(self) -> None:
        optimize.check_pixel_descent(self)
        optimize.check_number(self, "bn", 0)
        optimize.check_number(self, "first_bn_multiplier", 0)
        optimize.check_number(self, "group_size", 1, integer=True)

    def supports(self, spec: TargetSpec) -> str | None:
        if not spec.has_batchnorm:
            return "it has no BatchNorm layer, and the attack matches BatchNorm's running statistics"
        return None

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
        images = optimize.to_model(optimize.uniform_images(n, access.spec.shape, generator), access)
        shifts = optimize.jitter_shifts(self.steps, n, self.jitter, generator)
        history = torch.zeros(self.steps, dtype=torch.float64)
        groups = optimize.class_balanced_groups(labels, self.group_size)
        for rows, report in optimize.with_progress(groups, self.steps, progress):
            targets = labels[rows].to(access.device)
            with BatchNormStatistics(access.model, self.first_bn_multiplier) as statistics:

                def loss(moved: Tensor, targets: Tensor = targets, statistics=statistics) -> Tensor:
                    fit = losses.cross_entropy(access.logits(moved), targets)
                    smooth = self.tv * optimize.total_variation(moved)
                    # The group's R_bn enters the loss of each of its images: their sum keeps the
                    # original's ratio to the mean cross entropy, whatever the group size.
                    shared = self.bn * statistics.distance()
                    return fit + smooth + self.l2 * optimize.squared_norm(moved) + shared

                images[rows], sums = optimize.descend(
                    loss,
                    images[rows],
                    shifts[:, rows],
                    optimizer=optimize.Adam(self.betas),
                    rates=optimize.SCHEDULES[self.schedule](self.learning_rate, self.steps),
                    score=optimize.shifted_confidence(access, targets, self.jitter),
                    report=report,
                )
            history += sums
        group_size = max(len(rows) for rows in groups)
        return Reconstruction(images, labels, history / n, **meter.read(), group_size=group_size)
