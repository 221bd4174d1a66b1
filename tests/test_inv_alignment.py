"""Inv-Alignment: what the decoder reads, the laws of pseudo-posteriors, the baselines, and the gate."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from drlib.attacks.inv_alignment import InvAlignment
from drlib.decoders import Decoder, class_mean, ridge, truncated
from drlib.errors import UserError
from drlib.pseudo_posteriors import LAWS, between, uniform
from drlib.testing import example_auxiliary, example_white_box, silent
from drlib.types import Auxiliary, BlackBox, TargetSpec, balanced_labels

FAST = {"width": 16, "learning_rate": 1e-2, "train_batch": 32, "standardize": True}


class GrayLevel(nn.Module):
    """log(p_1 / p_0) = 8 (level - 0.5), for the mean pixel: the posterior tells the gray image."""

    def forward(self, images):
        score = 8 * (images.mean(dim=(1, 2, 3)) - 0.5)
        return torch.stack([torch.zeros_like(score), score], dim=1)


def gray_world(count=200):
    levels = torch.rand(count, generator=torch.Generator().manual_seed(0))
    images = levels.view(-1, 1, 1, 1).expand(-1, 1, 8, 8).contiguous()
    calls = []

    def query(batch):
        calls.append(len(batch))
        return GrayLevel()(batch).softmax(dim=1)

    spec = TargetSpec("gray", (1, 8, 8), 2, False)
    return BlackBox(query, spec), Auxiliary(images), calls


def prepare(attack, access, auxiliary, seed=0):
    return attack.prepare(access, auxiliary, generator=torch.Generator().manual_seed(seed), progress=silent)


def reconstruct(attack, access, prepared, labels, seed=0):
    return attack.reconstruct(
        access,
        prepared,
        n=len(labels),
        labels=labels,
        generator=torch.Generator().manual_seed(seed),
        progress=silent,
    )


def stored_decoder(attack, access, prepared):
    net = Decoder(access.spec.num_classes, access.spec.shape, attack.width, attack.standardize).eval()
    net.load_state_dict({k[8:]: v for k, v in prepared.items() if k.startswith("decoder.")})
    return net.requires_grad_(False)


# A world with a known answer


@pytest.fixture(scope="module")
def gray():
    access, auxiliary, calls = gray_world()
    attack = InvAlignment(epochs=40, **FAST)
    return attack, access, prepare(attack, access, auxiliary), calls


def test_the_decoder_inverts_a_posterior_that_tells_the_image(gray):
    """The level is 0.5 + log(p_1 / p_0) / 8; the class alone leaves an error of 1 / 48."""
    attack, access, prepared, _ = gray
    result = reconstruct(attack, access, prepared, balanced_labels(40, 2))
    posteriors = between(prepared["posteriors"], result.labels, torch.Generator().manual_seed(0))
    drawn = stored_decoder(attack, access, prepared)(truncated(posteriors, 0))
    torch.testing.assert_close(result.images, drawn)
    levels = 0.5 + (posteriors[:, 1] / posteriors[:, 0]).log() / 8
    error = (result.images - levels.view(-1, 1, 1, 1)).square().mean()
    assert error < 0.1 / 48
    assert result.facts["held_out_mse"] < 0.1 / 48
    assert result.facts["held_out_mse_class_mean"] == pytest.approx(1 / 48, rel=0.5)
    assert result.facts["held_out_mse_ridge"] < 1e-4
    assert ((result.images.mean(dim=(1, 2, 3)) > 0.5) == (result.labels == 1)).float().mean() > 0.95


def test_each_auxiliary_image_is_queried_once_and_in_one_round_trip(gray):
    attack, access, prepared, calls = gray
    assert calls == [200]
    before = access.queries
    assert before == 200
    result = reconstruct(attack, access, prepared, balanced_labels(6, 2))
    assert (result.queries, result.gradient_calls) == (0, 0)
    assert access.queries == before


def test_the_best_epoch_is_kept_not_the_last():
    """Training for just as many epochs as the best one gives the same decoder."""
    access, auxiliary, _ = gray_world()
    attack = InvAlignment(epochs=25, **{**FAST, "learning_rate": 0.1})
    prepared = prepare(attack, access, auxiliary)
    best = int(prepared["held_out_loss"].argmin()) + 1
    assert best < 25
    shorter = prepare(dataclasses.replace(attack, epochs=best), access, auxiliary)
    for name in prepared:
        if name.startswith("decoder."):
            assert torch.equal(prepared[name], shorter[name]), name
    result = reconstruct(attack, access, prepared, balanced_labels(4, 2))
    assert result.facts["best_epoch"] == best
    assert result.facts["held_out_mse"] == pytest.approx(float(result.loss_history.min()))


def test_held_out_images_are_not_trained_on():
    """Noise can be learned by heart, but not foretold: on held-out images its variance remains."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand((40, 1, 8, 8), generator=generator)
    posteriors = torch.randn((40, 30), generator=generator).softmax(dim=1)
    access = BlackBox(lambda batch: posteriors, TargetSpec("random", (1, 8, 8), 30, False))
    attack = InvAlignment(epochs=80, **{**FAST, "held_out": 0.5, "width": 64})
    prepared = prepare(attack, access, Auxiliary(images))
    assert prepared["held_out_loss"].min() > 0.95 / 12

    # The error that is reported is that of the decoder that is returned, in eval mode.
    held = torch.randperm(40, generator=torch.Generator().manual_seed(0))[:20]
    drawn = stored_decoder(attack, access, prepared)(truncated(posteriors[held], 0))
    assert float(F.mse_loss(drawn, images[held])) == pytest.approx(float(prepared["held_out_loss"].min()))


# What the decoder reads


def test_truncation_keeps_log_probabilities_and_drops_to_exact_zeros():
    posteriors = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]])
    logs = posteriors.log() + 50
    torch.testing.assert_close(truncated(posteriors, 0), logs)
    torch.testing.assert_close(truncated(posteriors, 9), logs)
    two = truncated(posteriors, 2)
    assert two[0, 2] == 0
    assert two[1, 0] == 0
    torch.testing.assert_close(two[:, 1], logs[:, 1])
    assert (truncated(posteriors, 1) > 0).sum(dim=1).tolist() == [1, 1]


def test_a_probability_of_zero_is_bounded_and_nothing_is_negative():
    read = truncated(torch.tensor([[1.0, 0.0, 0.0]]), 0)
    assert read.tolist() == [[1000.0, 0.0, 0.0]]  # 50 and -950, shifted up by 950
    assert read.isfinite().all()


@pytest.mark.parametrize("side", [8, 16, 25, 28, 32, 64])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_decoder_draws_every_size(side, channels):
    shape = (channels, side, side)
    net = Decoder(5, shape, 8, standardize=False).eval()
    images = net(torch.rand(2, 5))
    assert images.shape == (2, *shape)
    assert 0 <= images.min() <= images.max() <= 1


@pytest.mark.parametrize("settings", [{"held_out": 0.9}, {"train_batch": 2, "standardize": True}])
def test_four_auxiliary_images_are_enough_whatever_the_settings(settings):
    access, auxiliary, _ = gray_world(4)
    prepared = prepare(InvAlignment(epochs=1, width=4, **settings), access, auxiliary)
    assert torch.isfinite(prepared["held_out_loss"]).all()


def test_ridge_of_inputs_that_never_vary_is_the_overall_mean():
    """An untrained MobileNetV2 answers everything alike; the normal equations are then singular."""
    images = torch.rand((6, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    found = ridge(torch.full((6, 4), 48.6), images, torch.full((2, 4), 48.6))
    torch.testing.assert_close(found, images.mean(dim=0).expand(2, -1, -1, -1))


def test_the_original_decoder():
    """530 -> 1024 x 4 x 4 -> 512 -> 256 -> 128 -> 1 x 64 x 64, tanh between and a sigmoid at the end."""
    with torch.device("meta"):
        net = Decoder(530, (1, 64, 64), 1024, standardize=False)
    shapes = [tuple(layer.weight.shape) for layer in net.layers if isinstance(layer, nn.ConvTranspose2d)]
    inputs, outputs = [530, 1024, 512, 256, 128], [1024, 512, 256, 128, 1]
    assert shapes == [(i, o, 4, 4) for i, o in zip(inputs, outputs, strict=True)]
    kinds = [type(layer).__name__ for layer in net.layers]
    assert kinds.count("Tanh") == kinds.count("BatchNorm2d") == 4
    assert kinds[-1] == "Sigmoid"


# Pseudo-posteriors


@pytest.mark.parametrize("law", LAWS)
def test_pseudo_posteriors_put_the_wanted_class_first_and_differ(law):
    posteriors = torch.softmax(4 * torch.randn((60, 5), generator=torch.Generator().manual_seed(1)), dim=1)
    labels = torch.tensor([4, 4, 0, 1, 2, 3, 0, 0])
    drawn = LAWS[law](posteriors, labels, torch.Generator().manual_seed(0))
    torch.testing.assert_close(drawn.sum(dim=1), torch.ones(8))
    assert torch.equal(drawn.argmax(dim=1), labels)
    assert torch.pdist(drawn).min() > 1e-4
    assert torch.equal(drawn, LAWS[law](posteriors, labels, torch.Generator().manual_seed(0)))


def test_between_stays_between():
    posteriors = torch.tensor([[0.6, 0.3, 0.1], [0.9, 0.02, 0.08], [0.2, 0.5, 0.3], [0.1, 0.8, 0.1]])
    drawn = between(posteriors, torch.zeros(50, dtype=torch.int64), torch.Generator().manual_seed(0))
    ratio = (drawn[:, 0] / drawn[:, 1]).log()
    low, high = (posteriors[:2, 0] / posteriors[:2, 1]).log().tolist()
    assert low <= ratio.min() < ratio.max() <= high
    assert ratio.max() - ratio.min() > 0.5 * (high - low)


@pytest.mark.parametrize("present", [0, 1])
def test_a_class_that_the_auxiliary_data_never_reaches_is_borrowed(present):
    posteriors = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.1, 0.3], [0.3, 0.3, 0.4]])[: 2 + present]
    drawn = between(posteriors, torch.full((20,), 2), torch.Generator().manual_seed(0))
    assert (drawn.argmax(dim=1) == 2).all()
    assert torch.pdist(drawn).min() > 0


def test_uniform_is_uniform_over_the_simplex():
    """The largest of three spacings has mean 11/18."""
    drawn = uniform(
        torch.ones(1, 3) / 3, torch.zeros(20000, dtype=torch.int64), torch.Generator().manual_seed(0)
    )
    assert float(drawn[:, 0].mean()) == pytest.approx(11 / 18, abs=0.005)


# Baselines


def test_class_mean_and_its_fallback():
    inputs, queries = torch.eye(3)[[0, 0, 1]], torch.eye(3)[[0, 1, 2]]
    images = torch.tensor([0.0, 0.5, 1.0]).view(3, 1, 1, 1).expand(3, 1, 2, 2)
    found = class_mean(inputs, images, queries)[:, 0, 0, 0]
    torch.testing.assert_close(found, torch.tensor([0.25, 1.0, 0.5]))


def test_ridge_finds_a_linear_map():
    generator = torch.Generator().manual_seed(0)
    inputs, queries = (
        torch.rand((50, 4), generator=generator) + 40,
        torch.rand((9, 4), generator=generator) + 40,
    )
    weights = torch.rand((4, 12), generator=generator) / 4

    def paint(x):
        return ((x - 40) @ weights).view(-1, 3, 2, 2)

    found = ridge(inputs, paint(inputs), queries, penalty=1e-9)
    torch.testing.assert_close(found, paint(queries), atol=1e-4, rtol=0)


# Errors


@pytest.mark.parametrize("auxiliary", [None, Auxiliary(torch.rand(3, 1, 16, 16))])
def test_auxiliary_images_are_needed(auxiliary):
    with pytest.raises(UserError, match="needs auxiliary images") as caught:
        InvAlignment(epochs=1).run(example_white_box(), n=5, auxiliary=auxiliary)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 0}, "epochs"),
        ({"kept": -1}, "kept"),
        ({"held_out": 1.0}, "held_out"),
        ({"train_batch": 1}, "train_batch"),
        ({"betas": (0.5, 1.0)}, "betas"),
        ({"law": "dirichlet"}, "between"),
    ],
)
def test_bad_hyperparameters_are_refused(values, message):
    with pytest.raises(UserError, match=message):
        InvAlignment(**values)


def test_labels_come_from_the_request():
    attack = InvAlignment(epochs=2, **FAST)
    access, auxiliary = example_white_box(), example_auxiliary(False)
    labels = torch.tensor([3, 3, 0, 1, 4])
    result = reconstruct(attack, access, prepare(attack, access, auxiliary), labels)
    assert torch.equal(result.labels, labels)


# Slow: the gate


@pytest.mark.slow
def test_the_decoder_beats_the_class_mean_and_more_probabilities_help():
    """On 196 auxiliary digits that the attack never had; the decoder reads 1, 3 or all 5 probabilities."""
    from drlib import models
    from drlib.data import DataSpec, load_splits, target_subset
    from drlib.training import TrainSpec, predict, train

    splits = load_splits(DataSpec())
    target, images = target_subset(splits, 400), splits.auxiliary.images
    model = models.build("convnet", shape=(1, 16, 16), num_classes=5, generator_seed=0)
    train(model, target.images, target.labels, TrainSpec(), seed=0)
    known, unseen = images[:700], images[700:]
    access = BlackBox(lambda batch: predict(model, batch), TargetSpec("convnet", (1, 16, 16), 5, True))
    posteriors = predict(model, known), predict(model, unseen)
    settings = {"width": 32, "learning_rate": 3e-3, "train_batch": 64, "epochs": 60, "standardize": True}
    errors = {}
    for kept in (1, 3, 0):
        attack = InvAlignment(kept=kept, **settings)
        prepared = prepare(attack, access, Auxiliary(known))
        inputs, queries = (truncated(p, kept) for p in posteriors)
        drawn = stored_decoder(attack, access, prepared)(queries)
        candidates = {
            "decoder": drawn,
            "class mean": class_mean(inputs, known, queries),
            "ridge": ridge(inputs, known, queries),
        }
        errors[kept] = {name: float(F.mse_loss(x, unseen)) for name, x in candidates.items()}
        print(kept, errors[kept])
    assert errors[0]["decoder"] < 0.8 * errors[0]["class mean"]
    assert errors[0]["decoder"] < errors[0]["ridge"]
    assert errors[0]["decoder"] < 0.9 * errors[3]["decoder"] < 0.9 * errors[1]["decoder"]
    assert errors[1]["decoder"] > 0.95 * errors[1]["class mean"], (
        "one probability says no more than the class"
    )
