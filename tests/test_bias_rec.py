"""Bias-Rec: a planted KKT point has residual 0 and is found; the margins, the multipliers, the selection."""

import functools
import math

import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from torch import nn

from drlib.attacks.bias_rec import BiasRec, distinct
from drlib.errors import UserError
from drlib.losses import max_margin, soft_margin
from drlib.stationarity import SmoothReLU, Stationarity
from drlib.testing import example_white_box, private_copy
from drlib.types import Normalized, TargetSpec, WhiteBox

FOUR = 4
QUICK = {
    "optimizer": "adam",
    "schedule": "cosine",
    "learning_rate": 0.06,
    "multiplier_rate": 0.15,
    "smallest_multiplier": 0.0,
    "alpha": 50.0,
    "init_center": 0.5,
}


def planted():
    """A net that is exactly a KKT point: (white box in float64, its 4 images, labels, code multipliers).

    Unit j fires on image j alone: the images, shifted to [-1, 1] and extended by 1 for the bias, have
    negative inner products. With first-layer weights x_j / ||x_j||^2, a unit's output is 1 on its image;
    head weights +-lambda with lambda = 1 / (sqrt(2) ||x_j||) then solve theta = sum_j lambda grad margin_j.
    """
    blocks = torch.eye(FOUR).repeat_interleave(4, dim=1).double()
    centered = blocks - 0.6 * (1 - blocks)
    extended = torch.cat([centered, torch.ones(FOUR, 1).double()], dim=1)
    squared = extended.square().sum(dim=1)
    others = extended @ extended.T - squared.diag()
    assert (others[~torch.eye(FOUR, dtype=torch.bool)] < -0.5).all()

    labels = torch.tensor([0, 0, 1, 1])
    multiplier = 1 / (2 * squared).sqrt()
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, FOUR), nn.ReLU(), nn.Linear(FOUR, 2, bias=False)).double()
    with torch.no_grad():
        net[1].weight.copy_(centered / squared[:, None])
        net[1].bias.copy_(1 / squared)
        net[3].weight.copy_(multiplier * (2 * F.one_hot(labels, 2).T - 1))
    model = Normalized(net, [0.5], [0.5]).double()
    white_box = WhiteBox(model, TargetSpec.of(model, "planted", (1, 4, 4), 2))
    return white_box, ((centered + 1) / 2).view(FOUR, 1, 4, 4), labels, FOUR * multiplier


def correlation(a, b):
    a, b = (x.flatten(1).double() for x in (a, b))
    a, b = (F.normalize(x - x.mean(dim=1, keepdim=True), dim=1) for x in (a, b))
    return a @ b.T


# The equation


@pytest.mark.parametrize("margin", ["hard", "soft"])
def test_a_planted_kkt_point_has_no_residual(margin):
    white_box, images, labels, multipliers = planted()
    kkt = Stationarity(white_box, alpha=1000.0, margin=margin)
    assert kkt.loss(images, labels, multipliers) < 1e-16
    assert white_box.gradient_calls == FOUR
    for wrong in (
        (1 - images, labels, multipliers),
        (images.flip(3), labels.flip(0), multipliers),
        (images, 1 - labels, multipliers),
        (images, labels, multipliers / FOUR),
    ):
        assert kkt.loss(*wrong) > 0.1 * kkt.squared_norm


@functools.cache
def attacked(candidates, seed):
    white_box, _, _, _ = planted()
    attack = BiasRec(steps=300, candidates=candidates, **{**QUICK, "init_scale": 0.3})
    return attack.run(private_copy(white_box, torch.float32), n=FOUR, seed=seed)


def test_the_attack_finds_the_planted_images():
    """The run with the smallest residual of four, which the adversary sees, has all of them."""
    _, images, _, _ = planted()
    best = min((attacked(2, seed) for seed in range(4)), key=lambda run: run.facts["relative_residual"])
    assert correlation(images, best.images).amax(dim=1).min() > 0.97
    assert best.facts["relative_residual"] < 1e-4
    assert best.labels is None
    assert best.loss_history[-1] < 1e-4 < best.loss_history[0]


def test_a_small_residual_proves_nothing():
    """With four times as many candidates as images, other images solve the equation as well."""
    _, images, _, _ = planted()
    result = attacked(4, 0)
    assert result.facts["relative_residual"] < 1e-3
    assert correlation(images, result.images).amax(dim=1).min() < 0.8


def test_the_loss_is_the_sum_over_parameters_written_out():
    """Five classes, smoothing off: per image gradients by plain autograd of the original ReLU net."""
    white_box = private_copy(example_white_box("homogeneous_mlp"), torch.float64)
    generator = torch.Generator().manual_seed(0)
    images = torch.rand((6, 1, 16, 16), generator=generator, dtype=torch.float64)
    multipliers = torch.rand(6, generator=generator, dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 3, 4, 0])
    model = private_copy(white_box).model.requires_grad_(True)
    total = [parameter.detach().clone() for parameter in model.parameters()]
    for image, label, multiplier in zip(images, labels, multipliers, strict=True):
        logits = model(image[None])[0]
        rival = max((c for c in range(5) if c != label), key=logits.detach().tolist().__getitem__)
        gradient = torch.autograd.grad(logits[label] - logits[rival], list(model.parameters()))
        total = [value - multiplier / 6 * part for value, part in zip(total, gradient, strict=True)]
    expected = sum(float(part.square().sum()) for part in total)
    found = float(
        Stationarity(white_box, alpha=1e9, margin="hard").loss(images, labels, multipliers).detach()
    )
    assert found == pytest.approx(expected, rel=1e-9)


def test_two_classes_are_the_binary_formula():
    """y (Phi_1 - Phi_0) for y = -1 and +1, whichever margin."""
    logits = torch.randn((20, 2), generator=torch.Generator().manual_seed(0))
    labels = torch.arange(20) % 2
    binary = (2 * labels - 1) * (logits[:, 1] - logits[:, 0])
    torch.testing.assert_close(max_margin(logits, labels), -binary)
    torch.testing.assert_close(soft_margin(logits, labels), -binary)


def test_the_cross_entropy_pulls_along_the_soft_margin():
    """grad CE = (1 - p_y) grad soft_margin, so weight decay w gives lambda = (1 - p_y) / (n w)."""
    logits = torch.randn((7, 5), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits.requires_grad_(True)
    labels = torch.arange(7) % 5
    (pull,) = torch.autograd.grad(F.cross_entropy(logits, labels, reduction="sum"), logits)
    (direction,) = torch.autograd.grad(soft_margin(logits, labels).sum(), logits)
    p = logits.detach().softmax(1).gather(1, labels[:, None])
    torch.testing.assert_close(pull, (1 - p) * direction)
    (hard,) = torch.autograd.grad(max_margin(logits, labels).sum(), logits)
    assert not torch.allclose(pull, (1 - p) * hard, atol=1e-2)


def test_smooth_relu_is_relu_forward_and_has_curvature():
    z = torch.tensor([-3.0, -0.01, 0.02, 2.0], dtype=torch.float64).requires_grad_(True)
    out = SmoothReLU(20.0)(z)
    torch.testing.assert_close(out, z.detach().relu())
    (slope,) = torch.autograd.grad(out.sum(), z, create_graph=True)
    torch.testing.assert_close(slope, torch.sigmoid(20 * z))
    (curvature,) = torch.autograd.grad(slope.sum(), z)
    assert curvature[1] > 1
    assert curvature[0] < 1e-10


def test_exact_multipliers_find_the_planted_ones_and_ignore_a_wrong_candidate():
    white_box, images, labels, multipliers = planted()
    kkt = Stationarity(white_box, alpha=1000.0, margin="hard")
    found = kkt.best_multipliers(images, labels)
    torch.testing.assert_close(found, multipliers, rtol=1e-6, atol=1e-6)
    more = torch.cat([images, 1 - images[:1]])
    found = kkt.best_multipliers(more, torch.cat([labels, labels[:1]]))
    torch.testing.assert_close(found[:FOUR], multipliers * 5 / 4, rtol=1e-6, atol=1e-6)
    assert found[FOUR] < 1e-6
    assert (found >= 0).all()


def test_exact_multipliers_in_the_attack():
    """Random multipliers without a rate would stay far too small for the planted point."""
    white_box, _, _, _ = planted()
    settings = {**QUICK, "init_scale": 0.5, "multiplier_rate": 0.0}
    attack = BiasRec(steps=150, candidates=4, multipliers="nnls", **settings)
    result = attack.run(private_copy(white_box, torch.float32), n=FOUR)
    assert result.facts["relative_residual"] < 1e-2
    assert result.loss_history[-1] < 2e-2


# Selection, support, errors


def test_near_duplicates_come_last():
    generator = torch.Generator().manual_seed(0)
    images = torch.rand((4, 1, 8, 8), generator=generator)
    images = torch.cat([images, images[:1] * 0.9 + 0.05, images[1:2].clone()])
    shares = torch.tensor([5.0, 1.0, 3.0, 2.0, 4.0, 6.0])
    chosen, different = distinct(images, shares, 5)
    assert chosen.tolist() == [5, 0, 2, 3, 4]  # 4 is 0 brightened; 1 is 5 again
    assert different == 4
    assert distinct(images, shares, 2)[0].tolist() == [5, 0]
    flat = torch.zeros((3, 1, 8, 8))
    assert len(distinct(flat, torch.ones(3), 3)[0]) == 3


@pytest.mark.parametrize(
    ("architecture", "reason"),
    [("homogeneous_mlp", None), ("convnet", "BatchNorm"), ("lenet", "biases beyond the first layer")],
)
def test_support_names_the_reason(architecture, reason):
    white_box = example_white_box(architecture)
    found = BiasRec().supports(white_box.spec)
    if reason is None:
        assert found is None
        return
    assert reason in found
    assert "\n" not in found
    with pytest.raises(UserError, match=reason):
        BiasRec(steps=1).run(white_box, n=5)


def test_the_model_is_not_touched():
    white_box = private_copy(example_white_box("homogeneous_mlp"))
    before = [parameter.clone() for parameter in white_box.model.parameters()]
    BiasRec(steps=3).run(white_box, n=5)
    assert any(isinstance(module, nn.ReLU) for module in white_box.model.modules())
    for parameter, old in zip(white_box.model.parameters(), before, strict=True):
        assert parameter.grad is None
        assert torch.equal(parameter, old)


# Slow: real training images


@pytest.mark.slow
def test_training_images_are_recovered_and_unseen_ones_are_not():
    """10 digits, 5 classes, one hidden layer of 200 units, weight decay 1e-3; three seeds pooled.

    Recovered: correlation above 0.9 and above the 95th percentile of what unseen digits reach. Control: ten
    unseen digits of the same classes, against the same reconstructions.
    """
    from drlib.data import DataSpec, load_splits
    from drlib.training import TrainSpec, train

    splits = load_splits(DataSpec())
    images, labels = splits.target.images[:10], splits.target.labels[:10]
    unseen, control = splits.holdout.images[10:], splits.holdout.images[:10]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(256, 200), nn.ReLU(), nn.Linear(200, 5, bias=False))
        for parameter in net[1].parameters():
            nn.init.normal_(parameter, std=1e-4)
    recipe = TrainSpec(optimizer="adam", weight_decay=1e-3, epochs=2000, min_steps=0, batch_size=10)
    train(net, images, labels, recipe, seed=0)
    white_box = WhiteBox.from_module(net, [0.0], [1.0], [str(c) for c in range(5)], shape=(1, 16, 16))
    attack = BiasRec(steps=1000, margin="soft", **{**QUICK, "init_center": 0.0, "init_scale": 0.05})
    results = [attack.run(white_box, n=10, seed=seed) for seed in range(3)]
    assert max(result.facts["relative_residual"] for result in results) < 0.05
    pooled = torch.cat([result.images for result in results])

    def matches(originals):
        """Each original with its own reconstruction (Hungarian assignment)."""
        found = correlation(originals, pooled)
        rows, columns = linear_sum_assignment(-found)
        return found[rows, columns]

    bar = max(0.9, float(correlation(unseen, pooled).amax(dim=1).quantile(0.95)))
    recovered, by_chance = (int((matches(x) > bar).sum()) for x in (images, control))
    print(f"recovered {recovered} of 10, control {by_chance} of 10, bar {bar:.3f}, {matches(images)}")
    assert recovered >= 3
    assert by_chance <= 1
    assert math.isfinite(bar)
