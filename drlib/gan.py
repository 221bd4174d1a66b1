"""What GAN attacks share: networks, losses, one training loop, samples.

An attack builds its networks with ``initialized``, hands two loss functions to ``train``, keeps the
result with ``pack`` and gets the networks back with ``unpack``. A loss function takes no argument: it
draws its own batch (``batches``, ``latents``), so conditional or supervised GANs use the same loop.

All random numbers come from the passed generator, on the CPU; images lie in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from drlib.errors import UserError
from drlib.optimize import check_number
from drlib.types import Auxiliary, NoAccess, Progress, check_images

GRADIENT_PENALTY = 10.0
"""Weight of the gradient penalty in WGAN-GP."""

# Networks


def halvings(shape: Sequence[int]) -> int:
    """How often an image (c, h, w) is halved until its longer side is at most 4; at least once."""
    return max(1, math.ceil(math.log2(max(shape[1:]) / 4)))


class ImageGenerator(nn.Module):
    """Latents (b, z_dim) to images (b, c, h, w) in [0, 1], after Zhang et al. 2020.

    A linear layer makes a 4x4 map, and each stride-2 transposed 5x5 convolution doubles its side and
    halves its channels; ``width`` are the channels before the last one. A side that is not 4, 8, 16, ...
    is the center crop of the next larger one.
    """

    def __init__(self, shape: Sequence[int], z_dim: int, width: int) -> None:
        super().__init__()
        self.shape = tuple(int(size) for size in shape)
        doublings = halvings(self.shape)
        channels = width * 2 ** (doublings - 1)
        layers: list[nn.Module] = [
            nn.Linear(z_dim, channels * 16, bias=False),
            nn.BatchNorm1d(channels * 16),
            nn.ReLU(),
            nn.Unflatten(1, (channels, 4, 4)),
        ]
        for _ in range(doublings - 1):
            layers += [
                nn.ConvTranspose2d(channels, channels // 2, 5, 2, padding=2, output_padding=1, bias=False),
                nn.BatchNorm2d(channels // 2),
                nn.ReLU(),
            ]
            channels //= 2
        layers.append(nn.ConvTranspose2d(channels, self.shape[0], 5, 2, padding=2, output_padding=1))
        self.layers = nn.Sequential(*layers)

    def forward(self, z: Tensor) -> Tensor:
        return center_crop(self.layers(z), self.shape).sigmoid()


def center_crop(images: Tensor, shape: Sequence[int]) -> Tensor:
    """The middle (h, w) of images (b, c, H, W)."""
    top, left = ((have - want) // 2 for have, want in zip(images.shape[2:], shape[1:], strict=True))
    return images[:, :, top : top + shape[1], left : left + shape[2]]


def plain_block(inputs: int, outputs: int) -> list[nn.Module]:
    """Stride-2 5x5 convolution and leaky ReLU."""
    return [nn.Conv2d(inputs, outputs, 5, 2, padding=2), nn.LeakyReLU(0.2)]


def instance_block(inputs: int, outputs: int) -> list[nn.Module]:
    """The same with InstanceNorm: a gradient penalty needs rows that do not depend on each other."""
    norm = nn.InstanceNorm2d(outputs, affine=True)
    return [nn.Conv2d(inputs, outputs, 5, 2, padding=2), norm, nn.LeakyReLU(0.2)]


def spectral_block(inputs: int, outputs: int) -> list[nn.Module]:
    """The same with a spectral norm of 1."""
    return [spectral_norm(nn.Conv2d(inputs, outputs, 5, 2, padding=2)), nn.LeakyReLU(0.2)]


class Critic(nn.Module):
    """Images (b, c, h, w) to scores (b,): WGAN-GP's critic with InstanceNorm behind all but the first
    convolution, or with ``spectral`` a discriminator whose layers have spectral norm 1."""

    def __init__(self, shape: Sequence[int], width: int, spectral: bool = False) -> None:
        super().__init__()
        times = halvings(shape)
        first, others = (spectral_block, spectral_block) if spectral else (plain_block, instance_block)
        layers = first(shape[0], width)
        for i in range(1, times):
            layers += others(width * 2 ** (i - 1), width * 2**i)
        rest = [math.ceil(side / 2**times) for side in shape[1:]]
        score = nn.Conv2d(width * 2 ** (times - 1), 1, rest)
        self.layers = nn.Sequential(*layers, spectral_norm(score) if spectral else score, nn.Flatten(0))

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


def initialized(make: Callable[[], nn.Module], generator: torch.Generator, device: torch.device) -> nn.Module:
    """The network that ``make`` builds, its initial parameters depending on ``generator`` only."""
    seed = int(torch.randint(2**62, (), generator=generator))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # not torch.manual_seed, which would reseed every GPU
        return make().to(device)


def pack(**networks: nn.Module) -> dict[str, Tensor]:
    """The state of networks as one dictionary: ``pack(generator=g)`` gives "generator.<name>"."""
    return {
        f"{prefix}.{name}": value.detach().cpu().contiguous().clone()
        for prefix, network in networks.items()
        for name, value in network.state_dict().items()
    }


def unpack(
    prepared: Mapping[str, Tensor], prefix: str, make: Callable[[], nn.Module], like: Tensor
) -> nn.Module:
    """The network that ``make`` builds, with what ``pack`` kept under ``prefix``: frozen, in eval mode, on
    ``like``'s device and in its precision."""
    start = f"{prefix}."
    state = {key[len(start) :]: value for key, value in prepared.items() if key.startswith(start)}
    with torch.random.fork_rng(devices=[]):  # what make() draws is overwritten
        network = make()
    network.load_state_dict(state)
    return network.to(like.device, like.dtype).eval().requires_grad_(False)


# Training


def check_training(attack: Any) -> None:
    """Check the hyperparameters that say how a GAN is built and trained; raises ``UserError``."""
    for name in ("prior_steps", "z_dim", "width", "critic_steps"):
        check_number(attack, name, 1, integer=True)
    check_number(attack, "prior_batch_size", 2, integer=True)  # BatchNorm needs two images
    check_number(attack, "prior_learning_rate", 0, 1)
    betas = attack.prior_betas
    if not (isinstance(betas, tuple) and len(betas) == 2 and all(0 <= beta < 1 for beta in betas)):
        raise UserError(f"{attack.name}: prior_betas must be two numbers in [0, 1), got {betas!r}")


def schedule(attack: Any) -> dict[str, Any]:
    """The arguments of ``train`` that are hyperparameters of the attack."""
    return {
        "steps": attack.prior_steps,
        "critic_steps": attack.critic_steps,
        "learning_rate": attack.prior_learning_rate,
        "betas": attack.prior_betas,
    }


def public_images(access: NoAccess, auxiliary: Auxiliary | None) -> Tensor:
    """The auxiliary images (a, c, h, w), float32 on the target's device; ``UserError`` if they do not fit."""
    if auxiliary is None or len(auxiliary.images) < 2:
        raise UserError("a GAN is trained on auxiliary images: give at least 2")
    check_images(auxiliary.images, access.spec.shape)
    return auxiliary.images.to(access.device, torch.float32)


def batches(images: Tensor, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Row indices of one batch after the other, without end; each epoch is shuffled anew.

    What does not fill a batch at the end of an epoch is left out; fewer images make smaller batches.
    """
    n = len(images)
    size = min(batch_size, n)
    while True:
        order = torch.randperm(n, generator=generator).to(images.device)
        yield from order[: n - n % size].split(size)


def latents(n: int, z_dim: int, generator: torch.Generator, device: torch.device | str = "cpu") -> Tensor:
    """Standard normal latents (n, z_dim)."""
    return torch.randn((n, z_dim), generator=generator).to(device)


def wgan_gp_loss(critic: nn.Module, real: Tensor, fake: Tensor, generator: torch.Generator) -> Tensor:
    """E D(fake) - E D(real) + 10 * E (||grad D(u)|| - 1)^2, u uniform between real and fake (b, c, h, w)."""
    weight = torch.rand((len(real), 1, 1, 1), generator=generator).to(real.device)
    between = (real + weight * (fake - real)).requires_grad_(True)
    (gradient,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    penalty = (gradient.flatten(1).norm(dim=1) - 1).square().mean()
    return critic(fake).mean() - critic(real).mean() + GRADIENT_PENALTY * penalty


def hinge_loss(critic: nn.Module, real: Tensor, fake: Tensor, generator: torch.Generator) -> Tensor:
    """E max(0, 1 - D(real)) + E max(0, 1 + D(fake)); draws nothing."""
    return hinge(critic(real), critic(fake))


def hinge(on_real: Tensor, on_fake: Tensor) -> Tensor:
    """The hinge loss of a critic's scores (b,)."""
    return F.relu(1 - on_real).mean() + F.relu(1 + on_fake).mean()


CRITIC_LOSSES: dict[str, Callable[[nn.Module, Tensor, Tensor, torch.Generator], Tensor]] = {
    "wgan_gp": wgan_gp_loss,
    "hinge": hinge_loss,
}


def train(
    critic: nn.Module,
    network: nn.Module,
    critic_loss: Callable[[], Tensor],
    generator_loss: Callable[[], Tensor],
    *,
    steps: int,
    critic_steps: int,
    learning_rate: float,
    betas: tuple[float, float],
    progress: Progress,
) -> Tensor:
    """Repeat ``steps`` times: ``critic_steps`` Adam steps of the critic, one of the generator ``network``.

    Each loss function draws a batch and returns a scalar. While one network learns, the other's
    parameters are frozen; a critic's loss should make its fakes under ``torch.no_grad`` all the same.
    Leaves both in eval mode. Returns the losses (steps, 2): of the last critic step, of the generator.
    """
    critic_step = _stepper(critic, network, critic_loss, learning_rate, betas)
    generator_step = _stepper(network, critic, generator_loss, learning_rate, betas)
    critic.train()
    network.train()
    history = []
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        for step in range(1, steps + 1):
            for _ in range(critic_steps):
                loss = critic_step()
            history.append(torch.stack([loss, generator_step()]))
            progress(step, steps)
    critic.eval()
    network.eval()
    losses = torch.stack(history).cpu()
    if not losses.isfinite().all():
        raise UserError(f"GAN training diverged: lower prior_learning_rate ({learning_rate:g})")
    return losses


def _stepper(
    learner: nn.Module,
    other: nn.Module,
    loss_of: Callable[[], Tensor],
    learning_rate: float,
    betas: tuple[float, float],
) -> Callable[[], Tensor]:
    """A function that takes one Adam step of ``learner`` and returns the loss before it."""
    optimizer = torch.optim.Adam(learner.parameters(), lr=learning_rate, betas=betas)

    def step() -> Tensor:
        learner.requires_grad_(True)
        other.requires_grad_(False)
        loss = loss_of()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def sample(network: nn.Module, *inputs: Tensor, batch_size: int = 256) -> Tensor:
    """``network(*inputs)`` without a gradient, ``batch_size`` rows at a time."""
    parts = zip(*(rows.split(batch_size) for rows in inputs), strict=True)
    with torch.no_grad():
        return torch.cat([network(*part) for part in parts])
