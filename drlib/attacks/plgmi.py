"""PLG-MI: pseudo-label-guided model inversion (Yuan et al.; AAAI 2023)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from drlib import conditional_gan, gan, latent_search, losses, optimize
from drlib.types import (
    EXECUTION,
    PREPARE,
    SAME,
    SIMILAR,
    STATIC,
    WHITE_BOX,
    Attack,
    Auxiliary,
    DatasetAccess,
    Knowledge,
    Progress,
    Reconstruction,
    WhiteBox,
)

CHECKPOINTS = 5
"""How often a search looks whether a latent is the best so far."""


def pseudo_labels(posteriors: Tensor, top_n: int) -> tuple[Tensor, Tensor]:
    """The ``top_n`` images of each class with the largest posterior: rows and labels (top_n * K,).

    posteriors: (a, K). Not the argmax: an image may stand for several classes, and every class gets equally
    many, also one that is nobody's first choice.
    """
    top_n = min(top_n, len(posteriors))
    rows = posteriors.topk(top_n, dim=0).indices  # (top_n, K)
    labels = torch.arange(posteriors.shape[1], device=posteriors.device).expand_as(rows)
    return rows.flatten(), labels.flatten()


@dataclass(frozen=True, kw_only=True)
class PLGMI(Attack):
    """Yuan et al. 2023: min_z sum_A M(f(A(G(z, y))), y) with M(l, y) = max_{j != y} l_j - l_y.

    The adversary has the weights and unlabeled images of a similar distribution. ``prepare`` lets the
    target label them (``pseudo_labels``) and trains a conditional GAN on the result by hinge loss; the
    generator also minimizes ``margin_weight`` * M on augmented fakes. Augmentation stands in front of the
    target only: the discriminator never sees it.

    Defaults: the authors' code for CelebA (top 30 of each class, 30,000 generator steps of 5 discriminator
    steps, Adam 2e-4, batch 64; search by Adam at 0.1 for 600 steps with two augmentations, 5 restarts).
    Changed: a sigmoid keeps images in [0, 1] (theirs: tanh, whose negative half the target never saw); A
    shifts by up to ``shift`` pixels, which suits any data (theirs also crops, rotates, flips and changes
    brightness); a sample is its best checkpoint by confidence averaged over shifts, of its best restart
    (theirs: the last iterate of each seed). ``margin`` > 0 caps M at -margin; published is no cap (0).

    Known failure: M is not bounded below, so a search that goes on after the target is convinced only
    inflates logits; and of a class that no auxiliary image resembles, the pseudo-labels teach nothing.
    """

    name: ClassVar[str] = "plgmi"
    title: ClassVar[str] = "PLGMI"
    paper: ClassVar[str] = "yuan2023"
    knowledge: ClassVar[Knowledge] = Knowledge(STATIC, WHITE_BOX, SIMILAR)
    also_datasets: ClassVar[tuple[DatasetAccess, ...]] = (SAME,)
    prepares: ClassVar[bool] = True
    prior_effort: ClassVar[str | None] = "prior_steps"

    prior_steps: int = field(default=30_000, metadata=PREPARE)
    top_n: int = field(default=30, metadata=PREPARE)
    margin_weight: float = field(default=0.2, metadata=PREPARE)
    prior_shift: int = field(default=2, metadata=PREPARE)
    z_dim: int = field(default=128, metadata=PREPARE)
    width: int = field(default=64, metadata=PREPARE)
    critic_steps: int = field(default=5, metadata=PREPARE)
    prior_batch_size: int = field(default=64, metadata=PREPARE)
    prior_learning_rate: float = field(default=2e-4, metadata=PREPARE)
    prior_betas: tuple[float, float] = field(default=(0.0, 0.9), metadata=PREPARE)
    steps: int = 600
    learning_rate: float = 0.1
    shift: int = 2
    augmentations: int = 2
    margin: float = 0.0
    restarts: int = 5
    batch_size: int = field(default=256, metadata=EXECUTION)

    def __post_init__(self) -> None:
        gan.check_training(self)
        for name in ("top_n", "steps", "augmentations", "restarts", "batch_size"):
            optimize.check_number(self, name, 1, integer=True)
        for name in ("shift", "prior_shift"):
            optimize.check_number(self, name, 0, 127, integer=True)
        for name in ("margin_weight", "learning_rate", "margin"):
            optimize.check_number(self, name, 0, 1000)

    def _networks(self, shape: tuple[int, ...], num_classes: int) -> dict[str, Callable[[], nn.Module]]:
        return {
            "generator": lambda: conditional_gan.ConditionalGenerator(
                shape, num_classes, self.z_dim, self.width
            ),
            "critic": lambda: conditional_gan.ProjectionDiscriminator(shape, num_classes, self.width),
        }

    def prepare(
        self,
        access: WhiteBox,
        auxiliary: Auxiliary | None,
        *,
        generator: torch.Generator,
        progress: Progress,
    ) -> dict[str, Tensor]:
        images, spec = gan.public_images(access, auxiliary), access.spec
        posteriors = optimize.ask(access, images)
        rows, labels = pseudo_labels(posteriors, self.top_n)
        images = images[rows]
        make = self._networks(spec.shape, spec.num_classes)
        network = gan.initialized(make["generator"], generator, access.device)
        critic = gan.initialized(make["critic"], generator, access.device)
        batches = gan.batches(images, self.prior_batch_size, generator)
        size = min(self.prior_batch_size, len(images))

        def fakes() -> tuple[Tensor, Tensor]:
            wanted = torch.randint(spec.num_classes, (size,), generator=generator).to(access.device)
            return network(gan.latents(size, self.z_dim, generator, access.device), wanted), wanted

        def critic_loss() -> Tensor:
            batch = next(batches)
            grain = torch.rand(images[batch].shape, generator=generator) / 256  # undoes the 8-bit rounding
            real = images[batch] + grain.to(access.device)
            with torch.no_grad():
                made, wanted = fakes()
            return gan.hinge(critic(real, labels[batch]), critic(made, wanted))

        def generator_loss() -> Tensor:
            made, wanted = fakes()
            (shifts,) = optimize.jitter_shifts(1, size, self.prior_shift, generator)
            seen = optimize.to_model(optimize.roll(made, shifts), access)
            margins = losses.max_margin(access.logits(seen), wanted)
            return self.margin_weight * margins.mean() - critic(made, wanted).mean()

        history = gan.train(
            critic, network, critic_loss, generator_loss, **gan.schedule(self), progress=progress
        )
        facts = {"shape": torch.tensor(spec.shape), "classes": torch.tensor(spec.num_classes)}
        return gan.pack(generator=network) | facts | {"history": history}

    def _generator(self, prepared: dict[str, Tensor], like: Tensor) -> nn.Module:
        make = self._networks(tuple(prepared["shape"].tolist()), int(prepared["classes"]))
        return gan.unpack(prepared, "generator", make["generator"], like)

    def prior_samples(
        self, prepared: dict[str, Tensor], *, n: int, labels: Tensor, generator: torch.Generator
    ) -> Tensor:
        z = gan.latents(n, self.z_dim, generator)
        return gan.sample(self._generator(prepared, z), z, labels)

    def reconstruct(
        self,
        access: WhiteBox,
        prepared: dict[str, Tensor],
        *,
        n: int,
        labels: Tensor,
        generator: torch.Generator,
        progress: Progress,
    ) -> Reconstruction:
        meter = optimize.Meter(access)
        targets = labels.repeat(self.restarts).to(access.device)  # restarts are rows of the batch
        z = optimize.to_model(gan.latents(len(targets), self.z_dim, generator), access)
        draws = self.steps * self.augmentations
        shifts = optimize.jitter_shifts(draws, len(targets), self.shift, generator)
        shifts = shifts.view(self.steps, self.augmentations, len(targets), 2)
        network = self._generator(prepared, z)
        confidence = z.new_zeros(len(targets))
        history = torch.zeros(self.steps, dtype=torch.float64)
        parts = torch.arange(len(targets)).split(self.batch_size)
        for rows, report in optimize.with_progress(parts, self.steps, progress):
            z[rows], confidence[rows], sums = self._search(
                access, network, z[rows], targets[rows], shifts[:, :, rows], report
            )
            history += sums
        z, best = latent_search.best_of_restarts(z, confidence, self.restarts)
        images = gan.sample(network, z, labels.to(access.device), batch_size=self.batch_size)
        facts = {"confidence": float(best.mean())}
        return Reconstruction(images, labels, history / len(targets), **meter.read(), facts=facts)

    def _search(
        self,
        access: WhiteBox,
        network: nn.Module,
        start: Tensor,
        labels: Tensor,
        shifts: Tensor,
        report: Callable[[int], None],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Search one batch of latents: each one's best checkpoint, its confidence, and the loss sums."""
        score = optimize.shifted_confidence(access, labels, self.shift)
        best, best_score = start.clone(), start.new_full((len(start),), -math.inf)
        watched = {math.ceil(self.steps * k / CHECKPOINTS) for k in range(1, CHECKPOINTS)}

        def keep(z: Tensor) -> None:
            scores = score(gan.sample(network, z, labels, batch_size=self.batch_size))
            better = scores >= best_score
            best[better], best_score[better] = z[better], scores[better]

        def loss(z: Tensor, step: int) -> Tensor:
            if step in watched:
                keep(z.detach())
            images = network(z, labels)
            views = (optimize.roll(images, shift) for shift in shifts[step])
            margins = torch.stack([losses.max_margin(access.logits(view), labels) for view in views])
            return (margins.clamp(min=-self.margin) if self.margin else margins).sum(dim=0)

        last, sums = latent_search.search(
            loss,
            start,
            optimizer="adam",
            learning_rate=self.learning_rate,
            steps=self.steps,
            clip=math.inf,
            report=report,
        )
        keep(last)
        return best, best_score, sums
