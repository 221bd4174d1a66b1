"""A generator of sets of images, for Updates-Leak: networks, loss (the best of many), training."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from drlib import gan, training
from drlib.errors import UserError
from drlib.shadow import ShadowUpdates

CODE, NOISE = 50, 50
"""Lengths of the code mu of an update and of the noise z."""
HELD_OUT = 64
"""Shadow updates that decide when to stop, at most."""


def squared_distances(images: Tensor, samples: Tensor) -> Tensor:
    """Mean squared differences (U, s, m) between the images (U, s, P) and samples (U, m, P) of an update."""
    squares = images.square().sum(dim=2)[:, :, None] + samples.square().sum(dim=2)[:, None]
    return (squares - 2 * images @ samples.transpose(1, 2)).clamp_min(0) / images.shape[2]


def one_sided(distances: Tensor) -> Tensor:
    """mean_i min_j d_ij (U,): every image has a sample near it (the best of many)."""
    return distances.amin(dim=2).mean(dim=1)


def two_sided(distances: Tensor) -> Tensor:
    """The same, plus mean_j min_i d_ij: every sample has an image near it, too."""
    return one_sided(distances) + one_sided(distances.transpose(1, 2))


MATCHINGS: dict[str, Callable[[Tensor], Tensor]] = {"one_sided": one_sided, "two_sided": two_sided}


class Encoder(nn.Sequential):
    """Posterior differences (U, d) to codes mu (U, CODE)."""

    def __init__(self, features: int) -> None:
        layers = (nn.Linear(features, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Dropout(0.5))
        super().__init__(*layers, nn.Linear(128, CODE), nn.Tanh())


class Generator(nn.Module):
    """Codes (U, CODE) and noise (U, m, NOISE) to samples (U, m, P) in [0, 1]."""

    def __init__(self, pixels: int, hidden: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs in (CODE + NOISE, hidden, hidden):
            layers += [nn.Linear(inputs, hidden), nn.BatchNorm1d(hidden), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(hidden, pixels), nn.Sigmoid())

    def forward(self, codes: Tensor, noise: Tensor) -> Tensor:
        inputs = torch.cat([codes[:, None].expand(-1, noise.shape[1], -1), noise], dim=2)
        return self.layers(inputs.flatten(0, 1)).unflatten(0, noise.shape[:2])


class Sampler(nn.Module):
    """Posterior differences (U, d) and noise (U, m, NOISE) to samples (U, m, P) in [0, 1].

    Not ``conditional``: the code is zero, whatever the difference.
    """

    def __init__(self, features: int, pixels: int, hidden: int, conditional: bool) -> None:
        super().__init__()
        self.encoder = Encoder(features)
        self.generator = Generator(pixels, hidden)
        self.conditional = conditional

    def forward(self, differences: Tensor, noise: Tensor) -> Tensor:
        return self.generator(self.encoder(differences) * float(self.conditional), noise)


class Discriminator(nn.Sequential):
    """Images (b, P) to logits (b, 1).

    The original squeezes the logit by a tanh, which caps what it can say, and has BatchNorm, which sees
    batches of only real or only false images.
    """

    def __init__(self, pixels: int, hidden: int) -> None:
        layers: list[nn.Module] = []
        sizes = [pixels, *(max(2, hidden // share) for share in (2, 4, 8))]
        for inputs, outputs in pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), nn.LeakyReLU(0.2)]
        super().__init__(*layers, nn.Linear(sizes[-1], 1))


def adversarial_loss(
    critic: nn.Module, optimizer: torch.optim.Optimizer, real: Tensor, fake: Tensor
) -> Tensor:
    """One step of the discriminator on images (b, P), then the generator's loss: -log D(fake)."""
    loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    critic.requires_grad_(False)
    cheat = F.softplus(-critic(fake)).mean()
    critic.requires_grad_(True)
    return cheat


def train(
    sampler: nn.Module,
    shadow: ShadowUpdates,
    differences: Tensor,
    *,
    matching: str,
    adversarial_weight: float,
    epochs: int,
    learning_rate: float,
    updates_per_batch: int,
    generator: torch.Generator,
    report: Callable[[int], None],
) -> Tensor:
    """Train ``sampler`` in place on shadow updates and their differences (U, d).

    Leaves it as it was after the epoch that is best on held-out updates, in eval mode. Returns the losses
    (epochs, 2) of training and held-out updates. Raises ``UserError`` if one is not finite.
    """
    device, size = shadow.images.device, shadow.rows.shape[1]
    distance = MATCHINGS[matching]
    step = _stepper(sampler, shadow, differences, distance, adversarial_weight, learning_rate, generator)
    learned = (~shadow.held_out).nonzero()[:, 0]
    unseen = shadow.held_out.nonzero()[:, 0][:HELD_OUT]
    fixed = gan.latents(len(unseen) * size, NOISE, generator, device).view(-1, size, NOISE)
    images = shadow.images[shadow.rows[unseen]].flatten(2)
    history, best = [], (math.inf, sampler.state_dict())
    with training.seeded(int(torch.randint(2**31, (), generator=generator)), device):  # the encoder's dropout
        for epoch in range(1, epochs + 1):
            sampler.train()
            order = torch.randperm(len(learned), generator=generator).to(device)
            losses = [step(updates) for updates in learned[order].split(updates_per_batch)]
            sampler.eval()
            with torch.no_grad():
                made = sampler(differences[unseen], fixed)
                loss = float(distance(squared_distances(images, made)).mean())
            if not math.isfinite(loss):
                raise UserError(f"the generator diverged: lower learning_rate ({learning_rate:g})")
            history.append((float(torch.stack(losses).mean()), loss))
            if loss < best[0]:
                best = loss, copy.deepcopy(sampler.state_dict())
            report(epoch)
    sampler.load_state_dict(best[1])
    return torch.tensor(history)


def _stepper(
    sampler: nn.Module,
    shadow: ShadowUpdates,
    differences: Tensor,
    distance: Callable[[Tensor], Tensor],
    adversarial_weight: float,
    learning_rate: float,
    generator: torch.Generator,
) -> Callable[[Tensor], Tensor]:
    """A function that takes one step on the given updates and returns their mean distance before it."""
    device, size = shadow.images.device, shadow.rows.shape[1]
    pixels, hidden = shadow.images[0].numel(), sampler.generator.layers[0].out_features
    critic = gan.initialized(lambda: Discriminator(pixels, hidden), generator, device)
    optimizer, critic_optimizer = (
        torch.optim.Adam(network.parameters(), lr=learning_rate, betas=(0.5, 0.999))
        for network in (sampler, critic)
    )

    def step(updates: Tensor) -> Tensor:
        noise = gan.latents(updates.numel() * size, NOISE, generator, device).view(-1, size, NOISE)
        images = shadow.images[shadow.rows[updates]].flatten(2)
        samples = sampler(differences[updates], noise)
        loss = fit = distance(squared_distances(images, samples)).mean()
        if adversarial_weight:
            real, fake = images.flatten(0, 1), samples.flatten(0, 1)
            loss = fit + adversarial_weight * adversarial_loss(critic, critic_optimizer, real, fake)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return fit.detach()

    return step
