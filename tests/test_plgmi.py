"""PLGMI: pseudo-labels, what the discriminator sees, the conditional networks, the search."""

from __future__ import annotations

import math

import pytest
import torch

from drlib import attacks, losses, models, optimize, profiles, testing, training
from drlib.attacks.plgmi import PLGMI, pseudo_labels
from drlib.conditional_gan import (
    ConditionalBatchNorm,
    ConditionalGenerator,
    ProjectionDiscriminator,
    spectral_conv,
)
from drlib.data import DataSpec, load_splits, target_subset
from drlib.types import PREPARE_SEED, Auxiliary, TargetSpec, WhiteBox, balanced_labels

FAST = {
    "prior_steps": 3,
    "critic_steps": 1,
    "prior_batch_size": 8,
    "width": 4,
    "z_dim": 8,
    "steps": 40,
    "learning_rate": 0.2,
    "restarts": 1,
}
LAPTOP = profiles.load("laptop").attacks["plgmi"]


def prepared(attack: PLGMI, white_box: WhiteBox, auxiliary: Auxiliary) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(PREPARE_SEED)
    return attack.prepare(white_box, auxiliary, generator=generator, progress=testing.silent)


def test_every_class_gets_its_n_best_images_whatever_their_argmax():
    posteriors = torch.tensor([[0.6, 0.3, 0.1], [0.5, 0.4, 0.1], [0.9, 0.05, 0.05], [0.4, 0.35, 0.25]])
    rows, labels = pseudo_labels(posteriors, 2)
    chosen = {label: set(rows[labels == label].tolist()) for label in range(3)}
    assert chosen == {0: {2, 0}, 1: {1, 3}, 2: {3, 0} if posteriors[0, 2] > posteriors[1, 2] else chosen[2]}
    assert 3 in chosen[2] and len(chosen[2]) == 2
    assert set(posteriors.argmax(dim=1).tolist()) == {0}, "by argmax two classes would be empty"


def test_fewer_images_than_n_are_all_taken():
    rows, labels = pseudo_labels(torch.rand(3, 2, generator=torch.Generator().manual_seed(0)), 30)
    assert sorted(rows[labels == 0].tolist()) == [0, 1, 2] == sorted(rows[labels == 1].tolist())


def test_the_discriminator_never_sees_an_augmented_image(monkeypatch):
    seen: list[torch.Tensor] = []
    forward = ProjectionDiscriminator.forward

    def watched(self, images, labels):
        seen.append(images.detach())
        return forward(self, images, labels)

    augmented: list[int] = []

    def to_nothing(images, shifts):
        augmented.append(len(images))
        return images * 0

    monkeypatch.setattr(ProjectionDiscriminator, "forward", watched)
    monkeypatch.setattr(optimize, "roll", to_nothing)
    prepared(PLGMI(**FAST), testing.example_white_box(), testing.example_auxiliary(False))
    assert augmented, "the target sees augmented fakes"
    assert all(images.abs().amax(dim=(1, 2, 3)).min() > 0 for images in seen)


def test_conditional_batchnorm_is_batchnorm_at_first_and_then_the_classes_own():
    norm = ConditionalBatchNorm(3, 4)
    features = torch.randn(6, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    plain = torch.nn.functional.batch_norm(features, None, None, training=True)
    assert torch.allclose(norm(features, torch.tensor([0, 1, 2, 3, 0, 1])), plain, atol=1e-6)
    with torch.no_grad():
        norm.scale.weight[2] = 5.0
        norm.bias.weight[2] = 1.0
    changed = norm(features, torch.tensor([0, 1, 2, 3, 2, 1]))
    assert torch.allclose(changed[2], 5 * plain[2] + 1, atol=1e-5)
    assert torch.allclose(changed[0], plain[0], atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 16, 16), (1, 25, 25), (3, 32, 32), (3, 64, 64)])
def test_the_networks_take_every_size(shape):
    network = ConditionalGenerator(shape, 3, 8, 4)
    critic = ProjectionDiscriminator(shape, 3, 4)
    labels = torch.tensor([0, 1, 2])
    images = network(torch.randn(3, 8), labels)
    assert images.shape == (3, *shape) and images.min() >= 0 and images.max() <= 1
    assert critic(images, labels).shape == (3,)


def test_published_widths_are_the_originals():
    network = ConditionalGenerator((3, 64, 64), 10, 128, 64)
    assert network.first.out_features == 16_384
    assert [block.first.out_channels for block in network.blocks] == [512, 256, 128, 64]
    critic = ProjectionDiscriminator((3, 64, 64), 10, 64)
    assert critic.linear.in_features == 1024 and len(critic.blocks) == 5


def test_projection_adds_the_inner_product_of_the_label():
    critic = ProjectionDiscriminator((1, 8, 8), 3, 4).eval()
    images = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    features = critic.blocks(images).relu().sum(dim=(2, 3))
    difference = critic(images, torch.tensor([0, 0])) - critic(images, torch.tensor([2, 2]))
    embedded = critic.embedding(torch.tensor([0, 2]))
    assert torch.allclose(difference, features @ (embedded[0] - embedded[1]), atol=1e-5)


def test_a_spectral_convolution_has_norm_one():
    layer = spectral_conv(4, 6, 3, 2**0.5).train()
    for _ in range(50):
        layer(torch.zeros(1, 4, 8, 8))
    assert torch.linalg.matrix_norm(layer.weight.flatten(1), 2).item() == pytest.approx(1.0, abs=1e-3)


def test_the_margin_is_capped_only_if_asked():
    white_box = testing.example_white_box()
    auxiliary = testing.example_auxiliary(False)
    prior = prepared(PLGMI(**FAST), white_box, auxiliary)
    lowest = {}
    for margin in (0.0, 0.5):
        made = testing.Trial(PLGMI(**{**FAST, "steps": 40, "margin": margin}), white_box).attack.reconstruct(
            white_box,
            prior,
            n=5,
            labels=balanced_labels(5, 5),
            generator=torch.Generator().manual_seed(0),
            progress=testing.silent,
        )
        lowest[margin] = float(made.loss_history.min())
    assert lowest[0.5] >= -0.5 * PLGMI().augmentations - 1e-6
    assert lowest[0.0] < lowest[0.5]


def test_the_best_checkpoint_of_the_best_restart_is_returned():
    """With a step far too large every search ends badly: what comes back is at least as good as the start."""
    white_box = testing.example_white_box()
    prior = prepared(PLGMI(**FAST), white_box, testing.example_auxiliary(False))
    arguments = {
        "n": 10,
        "labels": balanced_labels(10, 5),
        "progress": testing.silent,
    }

    def confidence(**changes) -> float:
        attack = PLGMI(**{**FAST, **changes})
        generator = torch.Generator().manual_seed(3)
        return attack.reconstruct(white_box, prior, generator=generator, **arguments).facts["confidence"]

    assert confidence(restarts=4) > confidence(restarts=1)
    assert confidence(steps=30, learning_rate=50.0) > 0.0


@pytest.mark.slow
@pytest.mark.parametrize("prior_steps", [100, LAPTOP["prior_steps"]])
def test_it_beats_the_unoptimized_samples_of_its_own_prior(prior_steps):
    """By a tenth at least, unless the samples are at the ceiling already, as the laptop profile's are."""
    splits = load_splits(DataSpec())
    target = target_subset(splits, 100)
    model = models.build("convnet", shape=(1, 16, 16), num_classes=5, generator_seed=0)
    training.train(model, target.images, target.labels, training.TrainSpec(), seed=0)
    evaluator = models.build("lenet", shape=(1, 16, 16), num_classes=5, generator_seed=1)
    training.train(evaluator, splits.target.images, splits.target.labels, training.TrainSpec(), seed=1)
    white_box = WhiteBox(model, TargetSpec.of(model, "convnet", (1, 16, 16), 5))
    attack = attacks.create("plgmi", {**LAPTOP, "prior_steps": prior_steps})
    prior = prepared(attack, white_box, Auxiliary(splits.auxiliary.images))
    labels = balanced_labels(100, 5)

    def judged(images: torch.Tensor) -> tuple[float, float]:
        confidence = white_box.query(images).gather(1, labels[:, None]).mean()
        return float(confidence), training.accuracy(evaluator, images, labels)

    generator = torch.Generator().manual_seed(0)
    before = judged(attack.prior_samples(prior, n=100, labels=labels, generator=generator))
    made = attack.reconstruct(
        white_box,
        prior,
        n=100,
        labels=labels,
        generator=torch.Generator().manual_seed(0),
        progress=testing.silent,
    )
    after = judged(made.images)
    for low, high in zip(before, after, strict=True):
        assert high > low + 0.1 or high >= low >= 0.99, (before, after)


def test_max_margin_is_the_largest_other_logit_minus_the_wanted():
    logits = torch.tensor([[1.0, 4.0, 2.0], [5.0, 1.0, -math.inf]])
    assert losses.max_margin(logits, torch.tensor([0, 0])).tolist() == [3.0, -4.0]
