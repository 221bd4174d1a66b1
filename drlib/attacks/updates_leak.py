"""Updates-Leak (Salem, Bhattacharya, Backes, Fritz, Zhang; USENIX Security 2020)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from drlib import best_of_many, gan, models, optimize
from drlib.errors import UserError
from drlib.shadow import shadow_updates
from drlib.types import (
    BLACK_BOX,
    DYNAMIC,
    PREPARE,
    SAME,
    Attack,
    Auxiliary,
    Knowledge,
    NoAccess,
    Progress,
    Reconstruction,
    TargetSpec,
    Update,
)


def probability(probabilities: Tensor) -> Tensor:
    """The posterior as it is, as in the original."""
    return probabilities


def log_probability(probabilities: Tensor) -> Tensor:
    """Its logarithm: an overfitted model answers 0 or 1, and its changes show only in small probabilities."""
    return probabilities.clamp_min(1e-7).log()


DIFFERENCES: dict[str, Callable[[Tensor], Tensor]] = {
    "probability": probability,
    "log_probability": log_probability,
}


def representatives(samples: Tensor, n: int, seed: int) -> Tensor:
    """n of the samples (m, P): cluster them by k-means, keep each cluster's sample nearest to its center."""
    from sklearn.cluster import KMeans

    clusters = KMeans(n, n_init=1, random_state=seed).fit(samples.numpy())
    distances = torch.cdist(torch.from_numpy(clusters.cluster_centers_), samples)
    members = torch.from_numpy(clusters.labels_)[None] == torch.arange(n)[:, None]
    return samples[distances.masked_fill(~members, torch.inf).argmin(dim=1)]


@dataclass(frozen=True, kw_only=True)
class UpdatesLeak(Attack):
    """Salem et al. 2020: G(z, E(d)), d the change of a black box's answers, draws the images of an update.

    The adversary may ask the model before and after the update; it knows architecture, training and
    update, and holds labeled images of the same distribution. ``prepare`` trains ``bases`` shadow models,
    updates them ``updates`` times with ``update_size`` images each, asks all for the same ``probes``, and
    trains encoder E and generator G on

        mean_i min_j ||x_i - G(z_j, E(d))||^2 + adversarial_weight * (a discriminator's loss),

    keeping the epoch that is best on shadow models outside the training. ``reconstruct`` draws ``samples``
    per wanted image and returns one of each of n clusters. ``conditional=False`` is the control: the code is
    zero, in training as in use, all else equal. The output has no labels.

    Defaults are the original's: one shadow model, 10,000 updates with 100 images. Differs: sigmoid output
    (a tanh cannot reach the brightest pixels of normalized data), a discriminator without tanh and
    BatchNorm, PyTorch's initialization, auxiliary images as probes, eval mode in use, the epoch chosen on
    held-out updates, and each d divided by its root mean square, since the size of a change is the model's
    and not the images'.

    Known failure: updates with many images have nearly the same d, so G learns the distribution and
    ignores the update: the unconditional control is as good. What d tells is mostly the labels, so where the
    update has other classes than the auxiliary data, it misleads.
    """

    name: ClassVar[str] = "updates_leak"
    title: ClassVar[str] = "Updates-Leak"
    paper: ClassVar[str] = "salem2020"
    knowledge: ClassVar[Knowledge] = Knowledge(DYNAMIC, BLACK_BOX, SAME)
    labeled: ClassVar[bool] = False
    auxiliary_labels: ClassVar[bool] = True
    prepares: ClassVar[bool] = True
    prior_sees_target: ClassVar[bool] = False
    prior_sees_recipe: ClassVar[bool] = True
    effort: ClassVar[str] = "samples"
    prior_effort: ClassVar[str] = "epochs"

    bases: int = field(default=1, metadata=PREPARE)
    updates: int = field(default=10_000, metadata=PREPARE)
    update_size: int = field(default=100, metadata=PREPARE)
    probes: int = field(default=100, metadata=PREPARE)
    difference: Literal["probability", "log_probability"] = field(default="probability", metadata=PREPARE)
    conditional: bool = field(default=True, metadata=PREPARE)
    matching: Literal["one_sided", "two_sided"] = field(default="one_sided", metadata=PREPARE)
    adversarial_weight: float = field(default=1.0, metadata=PREPARE)
    hidden: int = field(default=2048, metadata=PREPARE)
    epochs: int = field(default=20, metadata=PREPARE)
    learning_rate: float = field(default=2e-4, metadata=PREPARE)
    updates_per_batch: int = field(default=1, metadata=PREPARE)
    samples: int = 200

    def __post_init__(self) -> None:
        for name in ("bases", "probes", "hidden", "epochs", "updates_per_batch", "samples"):
            optimize.check_number(self, name, 1, integer=True)
        for name in ("updates", "update_size"):
            optimize.check_number(self, name, 2, integer=True)
        for name in ("adversarial_weight", "learning_rate"):
            optimize.check_number(self, name, 0, 1000)
        optimize.check_choice(self, "difference", DIFFERENCES)
        optimize.check_choice(self, "matching", best_of_many.MATCHINGS)
        if self.updates < self.bases:
            raise UserError(f"{self.name}: {self.updates} updates are too few for {self.bases} shadow models")
        if not isinstance(self.conditional, bool):
            raise UserError(f"{self.name}: conditional must be true or false, got {self.conditional!r}")

    @property
    def control_variant(self) -> str | None:
        return None if self.conditional else "unconditional"

    def supports(self, spec: TargetSpec) -> str | None:
        missing = [key for key in ("size", "training", "update") if key not in (spec.recipe or {})]
        if missing:
            return f"its recipe ({', '.join(missing)}) is not known, and shadow models are trained by it"
        if spec.architecture not in models.ARCHITECTURES:
            return "shadow models of this architecture cannot be built"
        return None

    def prepare(
        self,
        access: NoAccess,
        auxiliary: Auxiliary | None,
        *,
        generator: torch.Generator,
        progress: Progress,
    ) -> dict[str, Tensor]:
        if reason := self.supports(access.spec):
            raise UserError(f"{self.title} cannot attack {access.spec.architecture}: {reason}")
        # In units of one update: training a shadow model costs about 200, and so do 200 updates in an epoch.
        total = 200 * self.bases + self.updates * (1 + self.epochs)
        shadow = shadow_updates(
            access.spec,
            auxiliary,
            bases=self.bases,
            updates=self.updates,
            update_size=self.update_size,
            probes=self.probes,
            generator=generator,
            device=access.device,
            report=lambda trained, updated: progress(200 * trained + updated, total),
        )
        begun = 200 * self.bases + self.updates
        differences = self._difference(shadow.before, shadow.after)
        pixels = shadow.images[0].numel()
        sampler = gan.initialized(
            lambda: self._sampler(differences.shape[1], pixels), generator, access.device
        )
        history = best_of_many.train(
            sampler,
            shadow,
            differences,
            matching=self.matching,
            adversarial_weight=self.adversarial_weight,
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            updates_per_batch=self.updates_per_batch,
            generator=generator,
            report=lambda epoch: progress(begun + epoch * self.updates, total),
        )
        return {
            "probes": shadow.probes.cpu(),
            "history": history,
            "base_size": torch.tensor(shadow.base_size),
            "others": differences[shadow.held_out][: best_of_many.HELD_OUT].cpu(),
            **gan.pack(sampler=sampler),
        }

    def _difference(self, before: Tensor, after: Tensor) -> Tensor:
        """Scaled changes (U, p * K) of answers (U, p, K)."""
        of = DIFFERENCES[self.difference]
        change = (of(before) - of(after)).flatten(1)
        return change / change.square().mean(dim=1, keepdim=True).sqrt().clamp_min(1e-12)

    def _sampler(self, features: int, pixels: int) -> nn.Module:
        return best_of_many.Sampler(features, pixels, self.hidden, self.conditional)

    def _sample(
        self, prepared: dict[str, Tensor], differences: Tensor, n: int, shape: Any, generator: torch.Generator
    ) -> Tensor:
        """n images (n, c, h, w) for one difference (1, d), or for as many of them as there are samples."""
        features, pixels = differences.shape[1], math.prod(shape)
        network = gan.unpack(prepared, "sampler", lambda: self._sampler(features, pixels), differences)
        noise = gan.latents(n * self.samples, best_of_many.NOISE, generator, differences.device)
        inputs = differences.expand(len(noise), features)
        samples = gan.sample(network, inputs, noise[:, None], batch_size=1024)[:, 0]
        seed = int(torch.randint(2**31, (), generator=generator))
        return representatives(samples.cpu(), n, seed).unflatten(1, shape)

    def prior_samples(
        self, prepared: dict[str, Tensor], *, n: int, labels: Tensor, generator: torch.Generator
    ) -> Tensor:
        """What the generator draws for the differences of other (shadow) updates: the leak is cut."""
        others = prepared["others"]
        drawn = torch.randint(len(others), (n * self.samples,), generator=generator)
        return self._sample(prepared, others[drawn], n, prepared["probes"].shape[1:], generator)

    def reconstruct(
        self,
        access: Update,
        prepared: dict[str, Tensor],
        *,
        n: int,
        labels: Tensor,
        generator: torch.Generator,
        progress: Progress,
    ) -> Reconstruction:
        if reason := self.supports(access.spec):
            raise UserError(f"{self.title} cannot attack {access.spec.architecture}: {reason}")
        meter = optimize.Meter(access)
        probes = prepared["probes"].to(access.device)
        before, after = access.query_before(probes).float(), access.query(probes).float()
        progress(1, 2)
        difference = self._difference(before[None], after[None])
        images = self._sample(prepared, difference, n, access.spec.shape, generator)
        progress(2, 2)
        history = prepared["history"][:, 1]
        facts = {
            "mean_change": float((before - after).abs().mean()),
            "shadow_base_size": float(prepared["base_size"]),
            "best_epoch": float(history.argmin() + 1),
            "held_out_loss": float(history.min()),
        }
        return Reconstruction(images, None, history, **meter.read(), facts=facts)
