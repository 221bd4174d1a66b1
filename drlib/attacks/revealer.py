"""The Secret Revealer, also known as GMI (Zhang et al.; CVPR 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from drlib import gan, latent_search, losses, optimize
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
    NoAccess,
    Progress,
    Reconstruction,
    WhiteBox,
)

IDENTITY_LOSSES = {"cross_entropy": losses.cross_entropy, "max_margin": losses.max_margin}


@dataclass(frozen=True, kw_only=True)
class Revealer(Attack):
    """Zhang et al. 2020: min_z identity_weight * CE(f(G(z)), y) - prior_weight * D(G(z)), |z_i| <= clip.

    The adversary has the weights and unlabeled images of a similar distribution, on which ``prepare``
    trains the generator G and the critic D: a prior that has not seen the target and serves all of them.

    Defaults: the authors' code for CelebA. WGAN-GP with penalty 10; 26,250 generator steps are their
    280 epochs of 30,000 images in batches of 64 with a generator step after every fifth batch. The search
    is Nesterov's (momentum 0.9) from standard normal latents. They average the loss over a batch of 100
    identities and step by 2e-2; we sum it, so the same step of an image is 2e-4, whatever the batch.
    Of ``restarts`` searches an image keeps the one whose result the target is surest of (they: the largest
    logit).

    Options beyond the paper: ``gan="hinge"`` (spectral norm, no double backward),
    ``latent_optimizer="adam"``, ``identity_loss="max_margin"`` (Yuan et al. 2023), and ``candidates``: the
    target scores so many latents once (at least one a start), and the search starts from each class's best.

    Known failure: the cross entropy has no gradient left once the target is convinced, so the search stops
    at the first convincing image; and where the auxiliary data share the target's classes, picking among
    random samples of the prior does about as well as the search.
    """

    name: ClassVar[str] = "revealer"
    title: ClassVar[str] = "Revealer"
    paper: ClassVar[str] = "zhang2020"
    knowledge: ClassVar[Knowledge] = Knowledge(STATIC, WHITE_BOX, SIMILAR)
    also_datasets: ClassVar[tuple[DatasetAccess, ...]] = (SAME,)
    prepares: ClassVar[bool] = True
    prior_sees_target: ClassVar[bool] = False
    prior_effort: ClassVar[str | None] = "prior_steps"

    prior_steps: int = field(default=26_250, metadata=PREPARE)
    gan: Literal["wgan_gp", "hinge"] = field(default="wgan_gp", metadata=PREPARE)
    z_dim: int = field(default=100, metadata=PREPARE)
    width: int = field(default=64, metadata=PREPARE)
    critic_steps: int = field(default=5, metadata=PREPARE)
    prior_batch_size: int = field(default=64, metadata=PREPARE)
    prior_learning_rate: float = field(default=2e-4, metadata=PREPARE)
    prior_betas: tuple[float, float] = field(default=(0.5, 0.999), metadata=PREPARE)
    steps: int = 1500
    learning_rate: float = 2e-4
    latent_optimizer: Literal["nesterov", "adam"] = "nesterov"
    clip: float = 1.0
    identity_loss: Literal["cross_entropy", "max_margin"] = "cross_entropy"
    identity_weight: float = 100.0
    prior_weight: float = 1.0
    restarts: int = 5
    candidates: int = 0
    batch_size: int = field(default=256, metadata=EXECUTION)

    def __post_init__(self) -> None:
        gan.check_training(self)
        for name in ("steps", "restarts", "batch_size"):
            optimize.check_number(self, name, 1, integer=True)
        optimize.check_number(self, "candidates", 0, integer=True)
        for name in ("learning_rate", "clip", "identity_weight", "prior_weight"):
            optimize.check_number(self, name, 0, 1000)
        optimize.check_choice(self, "gan", gan.CRITIC_LOSSES)
        optimize.check_choice(self, "latent_optimizer", latent_search.LATENT_OPTIMIZERS)
        optimize.check_choice(self, "identity_loss", IDENTITY_LOSSES)

    def _generator(self, shape: Sequence[int]) -> nn.Module:
        return gan.ImageGenerator(shape, self.z_dim, self.width)

    def _critic(self, shape: Sequence[int]) -> nn.Module:
        return gan.Critic(shape, self.width, spectral=self.gan == "hinge")

    def prepare(
        self,
        access: NoAccess,
        auxiliary: Auxiliary | None,
        *,
        generator: torch.Generator,
        progress: Progress,
    ) -> dict[str, Tensor]:
        images, shape = gan.public_images(access, auxiliary), access.spec.shape
        network = gan.initialized(lambda: self._generator(shape), generator, access.device)
        critic = gan.initialized(lambda: self._critic(shape), generator, access.device)
        batches = gan.batches(images, self.prior_batch_size, generator)
        size = min(self.prior_batch_size, len(images))

        def fakes() -> Tensor:
            return network(gan.latents(size, self.z_dim, generator, access.device))

        def critic_loss() -> Tensor:
            with torch.no_grad():
                made = fakes()
            return gan.CRITIC_LOSSES[self.gan](critic, images[next(batches)], made, generator)

        history = gan.train(
            critic,
            network,
            critic_loss,
            lambda: -critic(fakes()).mean(),
            **gan.schedule(self),
            progress=progress,
        )
        facts = {"shape": torch.tensor(shape), "history": history}
        return gan.pack(generator=network, critic=critic) | facts

    def prior_samples(
        self, prepared: dict[str, Tensor], *, n: int, labels: Tensor, generator: torch.Generator
    ) -> Tensor:
        z = gan.latents(n, self.z_dim, generator)
        shape = prepared["shape"].tolist()
        return gan.sample(gan.unpack(prepared, "generator", lambda: self._generator(shape), z), z)

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
        z = gan.latents(max(len(targets), self.candidates), self.z_dim, generator)
        z = optimize.to_model(z, access)
        network = gan.unpack(prepared, "generator", lambda: self._generator(access.spec.shape), z)
        critic = gan.unpack(prepared, "critic", lambda: self._critic(access.spec.shape), z)
        if self.candidates:
            scores = latent_search.probabilities(access, network, z, batch_size=self.batch_size)
            z = latent_search.best_latents(z, scores, targets)
        history = torch.zeros(self.steps, dtype=torch.float64)
        parts = torch.arange(len(targets)).split(self.batch_size)
        for rows, report in optimize.with_progress(parts, self.steps, progress):

            def loss(latents: Tensor, step: int, wanted: Tensor = targets[rows]) -> Tensor:
                images = network(latents)
                identity = IDENTITY_LOSSES[self.identity_loss](access.logits(images), wanted)
                return self.identity_weight * identity - self.prior_weight * critic(images)

            z[rows], sums = latent_search.search(
                loss,
                z[rows],
                optimizer=self.latent_optimizer,
                learning_rate=self.learning_rate,
                steps=self.steps,
                clip=self.clip,
                report=report,
            )
            history += sums
        scores = latent_search.probabilities(access, network, z, batch_size=self.batch_size)
        confidence = scores.gather(1, targets[:, None])
        z, best = latent_search.best_of_restarts(z, confidence, self.restarts)
        images = gan.sample(network, z, batch_size=self.batch_size)
        facts = {"confidence": float(best.mean())}
        return Reconstruction(images, labels, history / len(targets), **meter.read(), facts=facts)
