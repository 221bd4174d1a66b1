"""DeepDream as a reconstruction attack (Mordvintsev, Olah, Tyka 2015; the SoK's section 2.2)."""

from __future__ import annotations

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


@dataclass(frozen=True, kw_only=True)
class DeepDream(Attack):
    """Mordvintsev et al. 2015: min_x CE(f(x), y) + tv * TV(x) + l2 * ||x||^2.

    The adversary has the model's gradients and a class; no data. The loss sees x rolled by up to
    ``jitter`` pixels, anew for each image and step. Adam, each step clipped to [0, 1]. Returned is
    each image's checkpoint of highest confidence in its class, averaged over shifts.

    Defaults: the blog post names no numbers, so they are those of DeepInversion's CIFAR-10
    baseline without BatchNorm loss (Yin et al. 2020; 2000 steps, rate 0.05, jitter 2). There TV is
    a norm of the difference tensor of the whole batch, which grows with batch size and resolution;
    here TV and l2 are means over pixels, per image. The default weights are theirs carried over at
    their setting (256 images, 3x32x32, std 0.2): 2.5e-5 and 3e-8 times sqrt(256*3*32*32) / 0.2.
    The l2 term pulls to black (theirs: to the mean color), and the start is uniform, not Gaussian.

    Known failure: one icon per class. The regularizers remove noise and diversity alike.
    """

    name: ClassVar[str] = "deep_dream"
    title: ClassVar[str] = "DeepDream"
    paper: ClassVar[str] = "mordvintsev2015"
    knowledge: ClassVar[Knowledge] = Knowledge(STATIC, WHITE_BOX, NO_DATA)

    steps: int = 2000
    learning_rate: float = 0.05
    schedule: Literal["constant", "cosine"] = "constant"
    betas: tuple[float, float] = (0.9, 0.999)
    jitter: int = 2
    tv: float = 0.11
    l2: float = 1.3e-4
    batch_size: int = field(default=256, metadata=EXECUTION)

    def __post_init__(self) -> None:
        optimize.check_number(self, "batch_size", 1, integer=True)
        optimize.check_pixel_descent(self)

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
        shifts = optimize.jitter_shifts(self.steps, n, self.jitter, generator)
        history = torch.zeros(self.steps, dtype=torch.float64)
        batches = torch.arange(n).split(self.batch_size)
        for rows, report in optimize.with_progress(batches, self.steps, progress):
            targets = labels[rows].to(access.device)

            def loss(moved: Tensor, targets: Tensor = targets) -> Tensor:
                fit = losses.cross_entropy(access.logits(moved), targets)
                smooth = self.tv * optimize.total_variation(moved)
                return fit + smooth + self.l2 * optimize.squared_norm(moved)

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
        return Reconstruction(images, labels, history / n, **meter.read())
