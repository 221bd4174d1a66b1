"""Deep-Leakage (Zhu, Liu, Han; NeurIPS 2019), with the matching of Geiping et al. (NeurIPS 2020)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from drlib import lbfgs, optimize
from drlib.errors import UserError
from drlib.gradient_leakage import Tensors, first_layer_inputs, infer_labels, put_in_place
from drlib.gradient_matching import Objective, adam, cosine_distance, squared_distance, total_variation
from drlib.types import (
    DYNAMIC,
    NO_DATA,
    WHITE_BOX,
    Attack,
    Gradients,
    Knowledge,
    Progress,
    Reconstruction,
    TargetSpec,
)

DISTANCES = {"l2_lbfgs": squared_distance, "cosine_adam": cosine_distance}

ROWS_AT_ONCE = 128
"""Rows matched together. No hyperparameter of execution: L-BFGS amplifies rounding until it has converged."""


@dataclass(frozen=True, kw_only=True)
class DeepLeakage(Attack):
    """Zhu et al. 2019: min_{x', y'} ||grad CE(f(x'), softmax(y')) - g||^2 over all parameters, g as observed.

    The adversary is a server: it has the model and, for each batch of B samples, the gradient of their mean
    cross entropy in eval mode; no data, no labels. The images of a batch share one distance, so they are
    coupled. Gradients are rows of one problem; so are ``restarts``, of which the lowest distance wins.

    ``matching``: ``l2_lbfgs`` is the original. ``cosine_adam`` is Geiping et al. 2020: 1 - cosine + ``tv`` *
    TV by Adam on the sign of the gradient (``signed``), 4800 steps at 0.1, divided by 10 after 3/8, 5/8 and
    7/8 of them. ``labels``: ``joint`` optimizes y' as the original, ``infer`` reads them off the last layer.
    ``closed_form``: what a linear first layer gives away exactly replaces the nearest matched images.

    Defaults: the original (300 steps of 20 evaluations, start N(0, 1), no box). Differs: the distance is
    relative; L-BFGS searches its step length; TV fades to 0 at 5/8 of the steps; the best iterate counts;
    ``closed_form`` is on; ``cosine_adam``, too, starts at N(0, 1), but in pixels, and so half of them at 0.

    Known failure: one gradient of many samples, above all of a trained model: many batches have nearly that
    gradient. L-BFGS needs curvature in the image, which a ReLU net does not have. Of a trained model the
    labels can only be assumed to be balanced (fact ``labels_assumed_balanced``).
    """

    name: ClassVar[str] = "deep_leakage"
    title: ClassVar[str] = "Deep-Leakage"
    paper: ClassVar[str] = "zhu2019"
    knowledge: ClassVar[Knowledge] = Knowledge(DYNAMIC, WHITE_BOX, NO_DATA)
    coupled: ClassVar[bool] = True
    labeled: ClassVar[bool] = False

    matching: Literal["l2_lbfgs", "cosine_adam"] = "l2_lbfgs"
    labels: Literal["joint", "infer"] = "joint"
    steps: int = 300
    inner_steps: int = 20
    learning_rate: float = 1.0
    adam_learning_rate: float = 0.1
    history: int = 100
    tv: float = 0.1
    signed: bool = True
    restarts: int = 1
    closed_form: bool = True

    def __post_init__(self) -> None:
        optimize.check_choice(self, "matching", DISTANCES)
        optimize.check_choice(self, "labels", ("joint", "infer"))
        for name in ("steps", "inner_steps", "history", "restarts"):
            optimize.check_number(self, name, 1, integer=True)
        optimize.check_number(self, "learning_rate", 0, 1000)
        optimize.check_number(self, "adam_learning_rate", 0, 1000)
        optimize.check_number(self, "tv", 0)

    def supports(self, spec: TargetSpec) -> str | None:
        if self.matching == "l2_lbfgs" and spec.piecewise_linear:
            return "it is piecewise linear, and L-BFGS needs curvature in the image (cosine_adam does not)"
        return None

    def reconstruct(
        self,
        access: Gradients,
        prepared: Any,
        *,
        n: int,
        labels: Tensor,
        generator: torch.Generator,
        progress: Progress,
    ) -> Reconstruction:
        if reason := self.supports(access.spec):
            raise UserError(f"{self.title} cannot attack {access.spec.architecture}: {reason}")
        batch, count = access.batch_size, math.ceil(n / access.batch_size)
        observed = self._observed(access, count)
        if (held := min(map(len, observed.values()))) < count:
            raise UserError(f"{self.name}: {n} images asked for, but {held} x {batch} are in the gradients")
        meter = optimize.Meter(access)
        images = [torch.zeros((0, *access.spec.shape), device=access.device)] * count
        if self.closed_form:
            images, history = first_layer_inputs(access, observed)
        facts: dict[str, float] = {"closed_form_images": sum(map(len, images))}
        unfinished = [row for row, found in enumerate(images) if len(found) < batch]
        if unfinished:
            rest = {name: gradient[unfinished] for name, gradient in observed.items()}
            known = None
            if self.labels == "infer":
                known, assumed = infer_labels(access, rest, generator)
                facts["labels_assumed_balanced"] = assumed.double().mean().item()
            guesses, classes, history = self._match(access, rest, known, generator, progress)
            for row, guess in zip(unfinished, guesses, strict=True):
                images[row] = put_in_place(images[row], guess)
            shares = torch.bincount(classes.flatten()) / classes.numel()
            facts |= {
                "distance": history[-1].item(),
                "label_entropy": torch.special.entr(shares).sum().item(),
            }
        else:
            progress(1, 1)
        return Reconstruction(
            torch.cat(images)[:n].clamp(0, 1), None, history, **meter.read(), group_size=batch, facts=facts
        )

    def _observed(self, access: Gradients, count: int) -> Tensors:
        """The first ``count`` gradients by parameter; ``UserError`` if one is missing or not finite."""
        missing = [name for name, _ in access.model.named_parameters() if name not in access.gradients]
        if missing:
            raise UserError(f"{self.name}: the gradients lack {', '.join(missing)}")
        observed = {name: gradient[:count] for name, gradient in access.gradients.items()}
        if not all(gradient.isfinite().all() for gradient in observed.values()):
            raise UserError(f"{self.name}: the gradients contain NaN or infinity")
        if not any(gradient.any() for gradient in observed.values()):
            raise UserError(f"{self.name}: the gradients are all zero, which every batch of no loss has")
        return observed

    def _match(
        self,
        access: Gradients,
        observed: Tensors,
        known: Tensor | None,
        generator: torch.Generator,
        progress: Progress,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Images (P, B, c, h, w) and labels (P, B) that match, and the mean distance after each step."""
        batch, shape, count = access.batch_size, access.spec.shape, len(next(iter(observed.values())))
        sizes = [batch * math.prod(shape), 0 if known is not None else batch * access.spec.num_classes]
        source = torch.arange(count, device=access.device).repeat_interleave(self.restarts)
        points = torch.randn((len(source), sum(sizes)), generator=generator)
        points = optimize.to_model(points, access)
        distances = points.new_zeros((self.steps, len(points)))

        def unpack(points: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
            pixels, logits = points.split(sizes, dim=1)
            targets = known[source] if known is not None else logits.unflatten(1, (batch, -1)).softmax(dim=2)
            return pixels.unflatten(1, (batch, *shape)), targets

        groups = torch.arange(len(points), device=access.device).split(ROWS_AT_ONCE)
        for rows, report in optimize.with_progress(groups, self.steps, progress):

            def objective(
                points: Tensor, numbers: Tensor, own: Tensor = source[rows]
            ) -> tuple[Tensor, Tensor]:
                images, targets = unpack(points, own[numbers])
                found = access.parameter_gradients(images, targets)
                goal = {name: gradient[own[numbers]] for name, gradient in observed.items()}
                return DISTANCES[self.matching](found, goal), total_variation(images)

            points[rows], distances[:, rows] = self._minimize(objective, points[rows], sizes[0], report)
        best = distances[-1].view(count, self.restarts).argmin(dim=1)
        best += self.restarts * torch.arange(count, device=access.device)
        images, targets = unpack(points[best], source[best])
        return images, targets if known is not None else targets.argmax(dim=2), distances[:, best].mean(dim=1)

    def _minimize(
        self, objective: Objective, points: Tensor, pixels: int, report: Callable[[int], None]
    ) -> tuple[Tensor, Tensor]:
        """The points (r, d) of lowest distance, and the lowest distance after each step (steps, r)."""
        if self.matching == "cosine_adam":
            return adam(
                objective,
                points,
                pixels,
                steps=self.steps,
                learning_rate=self.adam_learning_rate,
                tv=self.tv,
                signed=self.signed,
                report=report,
            )
        points, distances = lbfgs.minimize(
            lambda some, numbers: objective(some, numbers)[0],
            points,
            evaluations=self.steps * self.inner_steps,
            learning_rate=self.learning_rate,
            history=self.history,
            report=lambda evaluation: report(evaluation // self.inner_steps),
        )
        report(self.steps)  # it may have converged before
        return points, distances[self.inner_steps - 1 :: self.inner_steps].to(points.dtype)
