"""What GAN attacks share, against known answers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from drlib import gan, latent_search, losses
from drlib.attacks.revealer import Revealer
from drlib.errors import UserError
from drlib.testing import example_white_box, silent
from drlib.types import Auxiliary, NoAccess, TargetSpec

CPU = torch.device("cpu")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# Networks


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("side", [8, 9, 16, 25, 28, 33, 64])
def test_networks_take_every_side(side, channels):
    shape = (channels, side, side)
    images = gan.ImageGenerator(shape, 5, 2)(torch.randn(3, 5))
    assert images.shape == (3, *shape)
    assert images.min() >= 0 and images.max() <= 1
    for spectral in (False, True):
        assert gan.Critic(shape, 2, spectral)(images).shape == (3,)


def test_published_widths_at_64_pixels():
    network, critic = gan.ImageGenerator((3, 64, 64), 100, 64), gan.Critic((3, 64, 64), 64)
    convolutions = [layer for layer in network.layers if isinstance(layer, nn.ConvTranspose2d)]
    assert [layer.in_channels for layer in convolutions] == [512, 256, 128, 64]
    convolutions = [layer for layer in critic.layers if isinstance(layer, nn.Conv2d)]
    assert [layer.out_channels for layer in convolutions] == [64, 128, 256, 512, 1]
    assert convolutions[-1].kernel_size == (4, 4)
    assert sum(isinstance(layer, nn.InstanceNorm2d) for layer in critic.layers) == 3
    assert sum(value.numel() for value in network.parameters()) == pytest.approx(5.1e6, rel=0.02)


def test_odd_sides_are_the_center_of_the_next_doubling():
    odd, even = gan.ImageGenerator((1, 25, 25), 5, 2), gan.ImageGenerator((1, 32, 32), 5, 2)
    even.load_state_dict(odd.state_dict())
    z = torch.randn(2, 5)
    torch.testing.assert_close(odd.eval()(z), even.eval()(z)[:, :, 3:28, 3:28])


@pytest.mark.parametrize("spectral", [False, True])
def test_scores_of_a_critic_do_not_depend_on_the_other_images(spectral):
    critic = gan.Critic((1, 16, 16), 4, spectral)
    critic.train(not spectral)  # a training pass refines the spectral norms
    images = torch.rand(6, 1, 16, 16)
    torch.testing.assert_close(critic(images)[:2], critic(images[:2]))


def test_spectral_norm_is_one():
    critic = gan.Critic((1, 16, 16), 4, spectral=True).train()
    for _ in range(50):
        critic(torch.rand(2, 1, 16, 16))
    for layer in critic.eval().layers:
        if isinstance(layer, nn.Conv2d):
            assert float(torch.linalg.matrix_norm(layer.weight.detach().flatten(1), 2)) == pytest.approx(
                1, abs=1e-3
            )


def test_initial_parameters_depend_on_the_generator_only():
    def built(seed: int) -> torch.Tensor:
        network = gan.initialized(lambda: gan.Critic((1, 8, 8), 2, spectral=True), seeded(seed), CPU)
        return torch.cat([value.flatten() for value in network.state_dict().values()])

    first = built(0)
    torch.rand(7)
    before = torch.get_rng_state()
    assert torch.equal(built(0), first)
    assert not torch.equal(built(1), first)
    assert torch.equal(torch.get_rng_state(), before)


def test_two_networks_from_one_generator_differ():
    generator = seeded()
    first, second = (gan.initialized(lambda: nn.Linear(3, 3), generator, CPU) for _ in range(2))
    assert not torch.equal(first.weight, second.weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_networks_come_back_from_flat_tensors(dtype):
    network, critic = gan.ImageGenerator((1, 9, 9), 5, 2), gan.Critic((1, 9, 9), 2, spectral=True)
    network(torch.randn(8, 5))  # running statistics are part of the state
    prepared = gan.pack(generator=network, critic=critic)
    assert all(value.is_contiguous() and not value.requires_grad for value in prepared.values())
    before = torch.get_rng_state()
    z = torch.randn(4, 5, generator=seeded()).to(dtype)
    again = gan.unpack(prepared, "generator", lambda: gan.ImageGenerator((1, 9, 9), 5, 2), z)
    other = gan.unpack(prepared, "critic", lambda: gan.Critic((1, 9, 9), 2, spectral=True), z)
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(module.training for module in again.modules())
    assert not any(value.requires_grad for value in (*again.parameters(), *other.parameters()))
    network, critic = network.eval().to(dtype), critic.eval().to(dtype)
    assert torch.equal(again(z), network(z))
    assert torch.equal(other(again(z)), critic(network(z)))


def test_packed_tensors_do_not_follow_the_network():
    network = nn.Linear(2, 2)
    prepared = gan.pack(g=network)
    nn.init.zeros_(network.weight)
    assert prepared["g.weight"].abs().sum() > 0


# Losses


class Linear(nn.Module):
    """D(x) = <w, x>: a critic whose penalty is known."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.flatten(1) @ self.weight


def test_wgan_gp_loss_and_its_second_derivative():
    weight = torch.tensor([1.0, 2.0, 0.0, 2.0])  # norm 3
    critic = Linear(weight.clone())
    real, fake = torch.rand(5, 1, 2, 2), torch.rand(5, 1, 2, 2)
    loss = gan.wgan_gp_loss(critic, real, fake, seeded())
    moved = (fake - real).flatten(1).mean(dim=0)
    assert float(loss.detach()) == pytest.approx(float(weight @ moved) + 10 * (3 - 1) ** 2, rel=1e-5)
    loss.backward()
    torch.testing.assert_close(critic.weight.grad, moved + 10 * 2 * (3 - 1) * weight / 3)


def test_the_penalty_is_taken_between_real_and_fake():
    class Kinked(nn.Module):  # slope 3 below one half, slope 1 above
        def forward(self, images):
            x = images.flatten()
            return torch.where(x < 0.5, 3 * x, x + 1)

    low, high = torch.full((200, 1, 1, 1), 0.0), torch.full((200, 1, 1, 1), 1.0)
    loss = gan.wgan_gp_loss(Kinked(), low, high, seeded())
    assert 10 < float(loss) - 2 < 30  # all below one half: 40, all above: 0


def test_hinge_loss():
    critic = Linear(torch.tensor([1.0]))
    real = torch.tensor([-1.0, 0.5, 3.0]).view(3, 1, 1, 1)
    fake = torch.tensor([-3.0, 0.0, 1.0]).view(3, 1, 1, 1)
    assert gan.hinge_loss(critic, real, fake, seeded()).item() == pytest.approx(2.5 / 3 + 3 / 3)


def test_identity_losses():
    logits, labels = torch.tensor([[0.0, 2.0, 1.0], [5.0, 2.0, 3.0]]), torch.tensor([1, 2])
    torch.testing.assert_close(losses.max_margin(logits, labels), torch.tensor([-1.0, 2.0]))
    expected = -logits.log_softmax(dim=1)[[0, 1], labels]
    torch.testing.assert_close(losses.cross_entropy(logits, labels), expected)


# Training


def test_an_epoch_shows_every_image_once():
    rows = gan.batches(torch.zeros(10, 1), 5, seeded())
    first, second = (torch.cat([next(rows), next(rows)]) for _ in range(2))
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(10))
    assert first.tolist() != second.tolist()


def test_batches_are_full_or_the_whole_set():
    rows = gan.batches(torch.zeros(10, 1), 4, seeded())
    assert {len(next(rows)) for _ in range(7)} == {4}
    assert len(next(gan.batches(torch.zeros(3, 1), 4, seeded()))) == 3


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))


def test_each_network_learns_in_its_turn_while_the_other_is_frozen():
    critic, network, turns, told = Scale(), Scale(), [], []

    def loss(name: str, learner: nn.Module, other: nn.Module):
        def of() -> torch.Tensor:
            turns.append((name, learner.weight.requires_grad, other.weight.requires_grad, other.training))
            return learner.weight.square().sum() * other.weight.sum()

        return of

    history = gan.train(
        critic,
        network,
        loss("critic", critic, network),
        loss("generator", network, critic),
        steps=3,
        critic_steps=2,
        learning_rate=0.1,
        betas=(0.5, 0.9),
        progress=lambda done, total: told.append((done, total)),
    )
    assert [turn[0] for turn in turns] == ["critic", "critic", "generator"] * 3
    assert all(turn[1:] == (True, False, True) for turn in turns)
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert history.shape == (3, 2)
    assert critic.weight < 1 and network.weight < 1
    assert not (critic.training or network.training)


def test_divergence_is_an_error():
    critic, network = Scale(), Scale()
    with pytest.raises(UserError, match="diverged: lower prior_learning_rate"):
        gan.train(
            critic,
            network,
            lambda: critic.weight.sum() / 0,
            lambda: network.weight.sum(),
            steps=1,
            critic_steps=1,
            learning_rate=0.1,
            betas=(0.5, 0.9),
            progress=silent,
        )


@pytest.mark.parametrize("kind", ["wgan_gp", "hinge"])
def test_a_gan_learns_two_gray_values(kind):
    """The smallest data with a known answer: half of the images are dark, half are bright."""
    images = torch.tensor([0.2, 0.8]).repeat(32).view(-1, 1, 1, 1).expand(-1, 1, 8, 8)
    training = {"prior_steps": 150, "critic_steps": 4, "prior_learning_rate": 5e-3, "prior_betas": (0.5, 0.9)}
    attack = Revealer(gan=kind, **training, z_dim=8, width=4, prior_batch_size=32)
    spec = TargetSpec("none", (1, 8, 8), 2, False)
    prepared = attack.prepare(NoAccess(spec), Auxiliary(images), generator=seeded(), progress=silent)
    made = attack.prior_samples(prepared, n=200, labels=torch.zeros(200), generator=seeded(1))
    gray = made.mean(dim=(1, 2, 3))
    dark = gray < 0.5
    assert 0.2 < dark.float().mean() < 0.8
    assert float(gray[dark].mean()) == pytest.approx(0.2, abs=0.1)
    assert float(gray[~dark].mean()) == pytest.approx(0.8, abs=0.1)


@pytest.mark.parametrize(
    ("auxiliary", "message"),
    [
        (None, "auxiliary images"),
        (Auxiliary(torch.rand(1, 1, 16, 16)), "at least 2"),
        (Auxiliary(torch.rand(4, 3, 16, 16)), "shape"),
        (Auxiliary(2 * torch.ones(4, 1, 16, 16)), r"\[0, 1\]"),
    ],
)
def test_unusable_auxiliary_images_are_refused(auxiliary, message):
    spec = TargetSpec("none", (1, 16, 16), 5, False)
    with pytest.raises(UserError, match=message) as caught:
        gan.public_images(NoAccess(spec), auxiliary)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        {"prior_steps": 0},
        {"z_dim": 0},
        {"width": 1.5},
        {"critic_steps": 0},
        {"prior_batch_size": 1},
        {"prior_learning_rate": -1.0},
        {"prior_betas": (0.5, 1.0)},
        {"prior_betas": 0.5},
    ],
)
def test_bad_training_hyperparameters_are_refused(values):
    with pytest.raises(UserError, match=next(iter(values))):
        Revealer(**values)


# Latents


def test_sample_gives_the_same_in_batches_and_takes_conditions():
    network = gan.ImageGenerator((1, 8, 8), 3, 2).double().eval()
    z = torch.randn(7, 3, dtype=torch.float64)
    torch.testing.assert_close(gan.sample(network, z, batch_size=2), gan.sample(network, z))
    labels = torch.arange(7)
    assert torch.equal(gan.sample(lambda z, y: z[:, 0] * y, z, labels, batch_size=3), z[:, 0] * labels)


def test_best_latents_are_each_class_s_best_and_distinct():
    candidates = torch.arange(5.0)[:, None]
    scores = torch.tensor([[0.1, 0.9], [0.5, 0.5], [0.9, 0.1], [0.7, 0.3], [0.2, 0.8]])
    chosen = latent_search.best_latents(candidates, scores, torch.tensor([0, 1, 0, 1, 0]))
    assert chosen[:, 0].tolist() == [2, 0, 3, 4, 1]
    with pytest.raises(UserError, match="need as many candidates"):
        latent_search.best_latents(candidates, scores, torch.zeros(6, dtype=torch.int64))


def test_probabilities_are_the_target_s_and_counted():
    white_box = example_white_box()
    network = gan.ImageGenerator((1, 16, 16), 3, 2).eval()
    z = torch.randn(9, 3)
    before = white_box.queries
    found = latent_search.probabilities(white_box, network, z, batch_size=4)
    assert white_box.queries == before + 9
    torch.testing.assert_close(found, white_box.model(network(z)).softmax(dim=1).detach())


def quadratic(center: torch.Tensor):
    return lambda z, step: 0.5 * (z - center).square().sum(dim=1)


@pytest.mark.parametrize("optimizer", ["nesterov", "adam"])
def test_search_finds_the_nearest_point_of_the_box(optimizer):
    center = torch.tensor([[0.3, -2.0], [5.0, 0.1]])
    found, sums = latent_search.search(
        quadratic(center),
        torch.zeros(2, 2),
        optimizer=optimizer,
        learning_rate=0.05,
        steps=200,
        clip=1.0,
        report=lambda step: None,
    )
    torch.testing.assert_close(found, center.clamp(-1, 1), atol=1e-2, rtol=0)
    assert float(sums[0]) == pytest.approx(0.5 * float(center.square().sum()), rel=1e-5)


def test_nesterov_is_the_published_recursion():
    center, z, v = torch.tensor([[1.0, -2.0]]), torch.tensor([[0.5, 0.5]]), torch.zeros(1, 2)
    found, _ = latent_search.search(
        quadratic(center),
        z,
        optimizer="nesterov",
        learning_rate=0.1,
        steps=4,
        clip=math.inf,
        report=lambda step: None,
    )
    for _ in range(4):
        before, v = v, 0.9 * v - 0.1 * (z - center)
        z = z - 0.9 * before + 1.9 * v
    torch.testing.assert_close(found, z)


@pytest.mark.parametrize("optimizer", ["nesterov", "adam"])
def test_a_row_s_path_does_not_depend_on_the_others(optimizer):
    center, start = torch.randn(6, 3), torch.randn(6, 3)
    options = {
        "optimizer": optimizer,
        "learning_rate": 0.05,
        "steps": 5,
        "clip": 1.0,
        "report": lambda step: None,
    }
    together, _ = latent_search.search(quadratic(center), start, **options)
    alone, _ = latent_search.search(quadratic(center[:1]), start[:1], **options)
    assert torch.equal(together[:1], alone)


def test_search_reports_every_step_and_leaves_the_start_alone():
    start, told, seen = torch.ones(1, 1), [], []

    def loss(z, step):
        seen.append(step)
        return z.square().sum(dim=1)

    latent_search.search(
        loss, start, optimizer="adam", learning_rate=0.1, steps=3, clip=9.0, report=told.append
    )
    assert (seen, told) == ([0, 1, 2], [1, 2, 3])
    assert torch.equal(start, torch.ones(1, 1))
