"""Deep-Leakage: known answers, and one test per defect of other implementations.

DLG: mit-han-lab. IG: JonasGeiping invertinggradients. BR: JonasGeiping breaching.
"""

import dataclasses
import functools
import math

import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from torch import nn

from drlib import models, training
from drlib.attacks import deep_leakage
from drlib.attacks.deep_leakage import DeepLeakage
from drlib.data import DataSpec, load_splits
from drlib.errors import UserError
from drlib.gradient_leakage import first_layer, first_layer_inputs, infer_labels, put_in_place, round_to_sum
from drlib.gradient_matching import cosine_distance, squared_distance, total_variation
from drlib.types import Gradients, Normalized, TargetSpec

SHAPE, CLASSES = (1, 16, 16), 5
COSINE = {"matching": "cosine_adam", "labels": "infer"}


@functools.cache
def digits():
    return load_splits(DataSpec())


def build(architecture, trained=False, width=1.0):
    model = models.build(architecture, shape=SHAPE, num_classes=CLASSES, width=width, generator_seed=0)
    if trained:
        training.train(model, digits().target.images, digits().target.labels, training.TrainSpec(), seed=0)
    return model.eval()


def observe(model, gradients, batch, first=0, dtype=torch.float32):
    """What the server sees of ``gradients`` batches, with the images (P, B, c, h, w) and labels behind it."""
    model = model.to(dtype).requires_grad_(False)
    rows = slice(first, first + gradients * batch)
    images = digits().update.images[rows].to(dtype).unflatten(0, (gradients, batch))
    labels = digits().update.labels[rows].unflatten(0, (gradients, batch))
    spec = TargetSpec.of(model, "custom", SHAPE, CLASSES)
    return serve(model, spec, images, labels), images, labels


def serve(model, spec, images, labels):
    batch = images.shape[1]
    gradients = Gradients(model, spec, {}, batch).parameter_gradients(images, labels)
    return Gradients(model, spec, {name: value.detach() for name, value in gradients.items()}, batch)


def psnr(found, images):
    """PSNR (P, B) after the best assignment inside each batch: the order in a batch is not recoverable."""
    values = []
    for some, others in zip(found.unflatten(0, images.shape[:2]), images.float(), strict=True):
        squares = (some[:, None] - others).square().flatten(2).mean(dim=2)
        values.append(squares[linear_sum_assignment(squares)].clamp(min=1e-20))
    return -10 * torch.log10(torch.stack(values))


# The gradients and their distances


def test_the_view_gives_the_gradient_of_plain_pytorch():
    access, images, labels = observe(build("lenet"), 2, 3)
    model = build("lenet")
    F.cross_entropy(model(images[1]), labels[1]).backward()
    for name, parameter in model.named_parameters():
        assert torch.allclose(access.gradients[name][1], parameter.grad, atol=1e-6)


def test_distances_by_hand():
    observed = {"w": torch.tensor([[3.0, 0.0], [1.0, 0.0]]), "b": torch.tensor([[4.0], [0.0]])}
    found = {"w": torch.tensor([[3.0, 5.0], [-2.0, 0.0]]), "b": torch.tensor([[4.0], [0.0]])}
    assert torch.allclose(squared_distance(found, observed), torch.tensor([1.0, 9.0]))
    assert torch.allclose(cosine_distance(found, observed), torch.tensor([1 - 25 / math.sqrt(50 * 25), 2.0]))
    images = torch.tensor([[0.0, 1.0], [0.0, 3.0]]).view(1, 1, 1, 2, 2)
    assert total_variation(images).tolist() == [2.0 + 1.0]


def test_br_a_zero_gradient_has_a_finite_cosine():
    zero = {"w": torch.zeros(1, 3)}
    assert cosine_distance(zero, {"w": torch.ones(1, 3)}).isfinite().all()


# What the gradient gives away without matching


def test_the_label_of_one_sample_is_exact():
    for trained in (False, True):
        access, _, labels = observe(build("convnet", trained), 20, 1)
        assert torch.equal(infer_labels(access, access.gradients, torch.Generator())[0], labels)


@pytest.mark.parametrize("architecture", ["lenet", "convnet", "homogeneous_mlp"])
def test_labels_of_a_batch_of_an_untrained_net(architecture):
    """BR's rules need guesses here: a repeated class shows a single negative entry."""
    access, _, labels = observe(build(architecture, width=0.1 if architecture[0] == "h" else 1.0), 12, 8)
    found = infer_labels(access, access.gradients, torch.Generator().manual_seed(0))[0]
    assert (found == labels.sort(dim=1).values).float().mean() > 0.97


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: {name: value * float("nan") for name, value in g.items()}, "contain NaN or infinity"),
        (lambda g: {name: value * 0 for name, value in g.items()}, "all zero"),
        (lambda g: dict(list(g.items())[1:]), "the gradients lack "),
    ],
)
def test_gradients_that_tell_nothing_are_refused(change, message):
    access, _, _ = observe(build("lenet"), 2, 1)
    access.gradients = change(access.gradients)
    with pytest.raises(UserError, match=message):
        DeepLeakage(steps=1).run(access, n=2)


def test_labels_of_a_trained_net_are_taken_as_balanced():
    """Its predictions on noise say nothing about those on digits; without that rule 40 % would be wrong."""
    access, _, labels = observe(build("convnet", trained=True), 1, 100)
    found, assumed = infer_labels(access, access.gradients, torch.Generator().manual_seed(0))
    assert assumed.all()
    assert (found == labels.sort(dim=1).values).float().mean() > 0.97


def test_rounding_keeps_the_sum():
    shares = torch.tensor([[0.5, 0.3, 0.2], [0.4, 0.6, -0.1], [1.0, 1.0, 1.0]])
    assert round_to_sum(shares, 4).tolist() == [[2, 1, 1], [2, 2, 0], [2, 1, 1]]
    assert (round_to_sum(torch.rand(50, 7), 13).sum(dim=1) == 13).all()


def test_one_image_is_exact_in_a_linear_first_layer():
    for trained in (False, True):
        access, images, _ = observe(build("mlp", trained), 10, 1)
        found, unexplained = first_layer_inputs(access, access.gradients)
        assert (torch.stack(found) - images).abs().max() < 1e-5
        assert unexplained < 1e-9


def test_most_images_of_a_batch_are_exact_in_a_linear_first_layer():
    """All of these batches of 8 at width 256, and none is claimed that is no image of its batch.

    Without subtracting what is found, 93 % have a unit of their own; the gate is 60 %.
    """
    access, images, _ = observe(build("mlp"), 6, 8)
    found, unexplained = first_layer_inputs(access, access.gradients)
    hits = 0
    for some, batch in zip(found, images, strict=True):
        errors = (some[:, None] - batch).abs().flatten(2).amax(dim=2)
        assert (errors.amin(dim=1) < 1e-3).all(), "a claimed image is none"
        hits += len(errors.argmin(dim=1).unique())
    assert hits == 48
    assert unexplained < 1e-6, "nothing is left of the gradient"


def test_a_mixture_of_two_samples_is_not_taken_for_an_image():
    """dW_j / db_j of a unit that two samples activate is their weighted mean: fine pixels, wrong image."""
    access, images, _ = observe(build("mlp", trained=True, width=0.25), 8, 8)
    found, _ = first_layer_inputs(access, access.gradients)
    for some, batch in zip(found, images, strict=True):
        assert all((image - batch).abs().flatten(1).amax(dim=1).min() < 1e-3 for image in some)


def test_the_closed_form_is_used_only_where_the_layer_sees_the_pixels():
    assert first_layer(observe(build("mlp"), 1, 1)[0]) is not None
    assert first_layer(observe(build("convnet"), 1, 1)[0]) is None
    assert first_layer(observe(Normalized(build("mlp"), [0.3], [0.5]), 1, 1)[0]) is None
    linear = (nn.Flatten(), nn.Linear(256, 9), nn.ReLU(), nn.Linear(9, CLASSES))
    pool = nn.Sequential(nn.AvgPool2d(3, 1, 1), *linear)
    assert first_layer(observe(pool, 1, 1)[0]) is None


def test_exact_images_replace_the_nearest_guess_once():
    guesses = torch.tensor([0.1, 0.2, 0.9]).view(3, 1, 1, 1)
    exact = torch.tensor([0.13, 0.14]).view(2, 1, 1, 1)
    placed = put_in_place(exact, guesses).flatten()
    assert torch.allclose(placed, torch.tensor([0.13, 0.14, 0.9]))
    assert guesses.flatten()[0] == pytest.approx(0.1)


def test_the_attack_returns_what_has_a_closed_form():
    access, images, _ = observe(build("mlp"), 4, 1)
    result = DeepLeakage(**COSINE, steps=1).run(access, n=4)
    assert (result.images[:, None] - images).abs().max() < 1e-5
    assert result.facts["closed_form_images"] == 4
    without = DeepLeakage(**COSINE, steps=1, closed_form=False).run(access, n=4)
    assert psnr(without.images, images).max() < 20


def test_a_batch_that_is_exact_in_part_is_matched_for_the_rest():
    access, images, _ = observe(build("mlp"), 1, 16)
    exact, _ = first_layer_inputs(access, access.gradients)
    assert 0 < len(exact[0]) < 16
    result = DeepLeakage(**COSINE, steps=3).run(access, n=16)
    assert (psnr(result.images, images) > 60).sum() == len(exact[0]) == result.facts["closed_form_images"]


# Matching


def test_dlg_the_label_is_found_with_the_image():
    """The original: image and label logits are optimized together (here at half the size, for time)."""
    model = models.build("lenet", shape=(1, 8, 8), num_classes=CLASSES, generator_seed=0).requires_grad_(
        False
    )
    images = F.avg_pool2d(digits().update.images[:3], 2)[:, None]
    spec = TargetSpec.of(model, "lenet", (1, 8, 8), CLASSES)
    access = serve(model, spec, images, digits().update.labels[:3, None])
    result = DeepLeakage(steps=10).run(access, n=3)
    assert psnr(result.images, images).min() > 50
    assert result.facts["label_entropy"] == pytest.approx(math.log(3), abs=1e-5), (
        "three labels, all different"
    )


def test_dlg_one_digit_on_the_sigmoid_lenet():
    access, images, _ = observe(build("lenet"), 2, 1)
    result = DeepLeakage(labels="infer", steps=10).run(access, n=2)
    assert psnr(result.images, images).min() > 50
    assert result.loss_history[-1] < 1e-4 * result.loss_history[0]
    assert result.facts["distance"] == pytest.approx(result.loss_history[-1].item())


def test_ig_one_digit_on_a_relu_net():
    """Cosine and TV by Adam where L-BFGS has no curvature to use."""
    access, images, _ = observe(build("convnet"), 2, 1)
    result = DeepLeakage(**COSINE, steps=150).run(access, n=2)
    assert psnr(result.images, images).min() > 18


def test_l2_matching_of_a_relu_net_is_refused_with_the_reason():
    access, _, _ = observe(build("convnet"), 1, 2)
    assert "piecewise linear" in DeepLeakage().supports(access.spec)
    with pytest.raises(UserError, match="L-BFGS needs curvature"):
        DeepLeakage().run(access, n=2)
    assert DeepLeakage(**COSINE).supports(access.spec) is None


def test_the_first_n_and_never_more_than_there_are():
    access, _, _ = observe(build("lenet"), 3, 2)
    attack = DeepLeakage(labels="infer", steps=2)
    assert len(attack.run(access, n=5)) == 5
    before = access.gradient_calls
    result = attack.run(access, n=2)
    assert len(result) == 2
    assert access.gradient_calls - before == 2 * 2 * 20, "one gradient of two samples is enough"
    with pytest.raises(UserError, match="7 images asked for, but 3 x 2 are in the gradients"):
        attack.run(access, n=7)


def test_ig_the_restart_of_lowest_distance_wins():
    access, _, _ = observe(build("lenet"), 3, 1)
    seed = 0
    attack = DeepLeakage(labels="infer", steps=2, restarts=4)
    result = attack.run(access, n=3, seed=seed)
    # The same rows, each as an attack of its own.
    alone = Gradients(
        access.model,
        access.spec,
        {name: gradient.repeat_interleave(4, dim=0) for name, gradient in access.gradients.items()},
        1,
    )
    rows = dataclasses.replace(attack, restarts=1).run(alone, n=12, seed=seed)
    server = Gradients(access.model, access.spec, {}, 1)
    labels = infer_labels(alone, alone.gradients, torch.Generator())[0]
    distance = squared_distance(server.parameter_gradients(rows.images[:, None], labels), alone.gradients)
    assert result.loss_history[-1] <= rows.loss_history[-1]
    assert distance.shape == (12,)
    best = result.images[:, None]
    own = squared_distance(
        server.parameter_gradients(best, infer_labels(access, access.gradients, torch.Generator())[0]),
        access.gradients,
    )
    assert torch.allclose(own, distance.view(3, 4).amin(dim=1), rtol=1e-3)


def test_ig_the_best_iterate_is_returned_not_the_last():
    """A learning rate so large that the last iterate is worse than some earlier one."""
    access, _, _ = observe(build("convnet"), 3, 1)
    result = DeepLeakage(**COSINE | {"adam_learning_rate": 20.0}, steps=12, tv=0.0).run(access, n=3)
    labels = infer_labels(access, access.gradients, torch.Generator())[0]
    found = access.parameter_gradients(result.images[:, None], labels)
    assert cosine_distance(found, access.gradients).mean().item() == pytest.approx(
        result.loss_history[-1].item(), rel=1e-3
    )
    assert (result.loss_history[1:] <= result.loss_history[:-1]).all()


def test_total_variation_smooths_a_relu_nets_image():
    access, images, _ = observe(build("convnet", trained=True), 3, 1)
    rough, smooth = (DeepLeakage(**COSINE, steps=30, tv=tv).run(access, n=3).images for tv in (0.0, 0.3))
    assert total_variation(smooth).mean() < 0.8 * total_variation(rough).mean()
    assert psnr(smooth, images).mean() > psnr(rough, images).mean()


def test_br_gray_and_color_images_of_any_size():
    """BR's TV and patterned starts are wired to three channels."""
    for shape in ((1, 8, 8), (3, 12, 12)):
        model = models.build("lenet", shape=shape, num_classes=3, generator_seed=0).requires_grad_(False)
        spec = TargetSpec.of(model, "lenet", shape, 3)
        images = torch.rand((1, 2, *shape), generator=torch.Generator().manual_seed(0))
        access = serve(model, spec, images, torch.tensor([[0, 2]]))
        assert DeepLeakage(**COSINE, steps=2).run(access, n=2).images.shape == (2, *shape)


def test_dlg_pixels_outside_the_range_are_clipped_not_wrapped():
    """DLG casts to bytes: 1.02 becomes nearly black. Here an unfinished run has pixels exactly at 0 and 1."""
    access, _, _ = observe(build("lenet"), 1, 1)
    images = DeepLeakage(labels="infer", steps=1).run(access, n=1).images
    assert images.min() == 0
    assert images.max() == 1


@pytest.mark.parametrize("settings", [{"labels": "infer", "steps": 2}, COSINE | {"steps": 20}])
def test_gradients_may_be_matched_in_groups(settings, monkeypatch):
    access, _, _ = observe(build("lenet"), 4, 1, dtype=torch.float64)
    attack = DeepLeakage(**settings, restarts=2)
    whole = attack.run(access, n=4)
    monkeypatch.setattr(deep_leakage, "ROWS_AT_ONCE", 3)
    groups = attack.run(access, n=4)
    assert (whole.images - groups.images).abs().max() < 1e-6
    assert torch.allclose(whole.loss_history, groups.loss_history)


def test_progress_rises_to_the_end_also_when_all_rows_converge_early():
    model = models.build("lenet", shape=(1, 8, 8), num_classes=3, generator_seed=0).requires_grad_(False)
    spec = TargetSpec.of(model, "lenet", (1, 8, 8), 3)
    access = serve(model, spec, torch.full((1, 1, 1, 8, 8), 0.5), torch.tensor([[0]]))
    calls = []
    attack = DeepLeakage(labels="infer", steps=100)
    result = attack.run(access, n=1, progress=lambda done, total: calls.append((done, total)))
    assert result.gradient_calls < 1000
    assert calls[-1] == (100, 100)
    assert calls == sorted(calls)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"matching": "l2_lbgs"}, "did you mean 'l2_lbfgs'"),
        ({"labels": "true"}, "labels"),
        ({"steps": 0}, "steps must be an integer >= 1"),
        ({"restarts": 1.5}, "restarts"),
        ({"tv": -1.0}, "tv"),
    ],
)
def test_bad_hyperparameters_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        DeepLeakage(**settings)


# Gates that take longer


@pytest.mark.slow
def test_gate_a_batch_of_four():
    access, images, _ = observe(build("lenet"), 1, 4)
    result = DeepLeakage(labels="infer", steps=150).run(access, n=4)
    assert psnr(result.images, images).mean() > 40
    assert psnr(result.images, images).min() > 30


def default_initialization(model):
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        for layer in model.modules():
            if hasattr(layer, "reset_parameters"):
                layer.reset_parameters()
    return model


@pytest.mark.slow
def test_gate_the_default_initialization_needs_a_line_search():
    """Negative control: DLG's optimizer stays below 15 dB there. The cause is its fixed step and its
    threshold for curvature, not the gradient, for the same loss with a line search gives the image.
    """
    access, images, labels = observe(default_initialization(build("lenet")), 1, 1, dtype=torch.float64)
    guess = torch.randn(images.shape, generator=torch.Generator().manual_seed(0)).double()
    guess.requires_grad_(True)
    optimizer = torch.optim.LBFGS([guess])

    def closure():
        optimizer.zero_grad()
        found = access.parameter_gradients(guess, labels)
        loss = sum((found[name] - goal).square().sum() for name, goal in access.gradients.items())
        loss.backward()
        return loss

    for _ in range(100):
        optimizer.step(closure)
    assert psnr(guess.detach()[0].float().clamp(0, 1), images).max() < 15
    result = DeepLeakage(labels="infer", steps=60).run(access, n=1)
    assert psnr(result.images, images).min() > 50


@pytest.mark.slow
def test_gate_one_gradient_of_a_hundred_samples_does_not_converge_to_them():
    """The paper's row: the gradient is matched, the images are not; the mean image is nearer."""
    access, images, _ = observe(build("convnet", trained=True), 1, 100)
    result = DeepLeakage(**COSINE, steps=600).run(access, n=100)
    assert result.loss_history[-1] < 0.02
    mean = digits().auxiliary.images.mean(dim=0, keepdim=True).expand(100, -1, -1, -1)
    assert psnr(result.images, images).mean() < psnr(mean, images).mean()
