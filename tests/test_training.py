"""Training: same seed same bits, learns, keeps BatchNorm sound; predictions; the pre-flight."""

import math

import pytest
import torch
from torch import nn

from drlib.data import DataSpec, load_splits, target_subset
from drlib.errors import UserError
from drlib.models import build
from drlib.training import TrainSpec, accuracy, batches_per_epoch, predict, preflight, shifted, train
from drlib.types import WhiteBox

SHAPE = (1, 16, 16)
QUICK = TrainSpec(epochs=1, min_steps=6, batch_size=16)


@pytest.fixture(scope="module")
def digits():
    return load_splits(DataSpec())


@pytest.fixture(scope="module")
def convnet(digits):
    """A target trained with the default settings on 100 images."""
    model = build("convnet", shape=SHAPE, num_classes=5, generator_seed=0)
    subset = target_subset(digits, 100)
    record = train(model, subset.images, subset.labels, TrainSpec(), seed=0)
    return model, record


def test_the_defaults_fit_a_small_target_and_generalize(digits, convnet):
    model, record = convnet
    subset = target_subset(digits, 100)
    assert accuracy(model, subset.images, subset.labels) == 1.0
    assert accuracy(model, digits.test.images, digits.test.labels) >= 0.93
    assert record.steps == 300
    assert record.loss_history.shape == (150,)
    assert record.loss_history[-1] < 0.01 < record.loss_history[0]
    assert record.seconds > 0
    assert not any(module.training for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("name", ["lenet", "mlp"])
def test_the_evaluators_learn_with_the_same_settings(digits, name):
    subset = target_subset(digits, 100)
    model = build(name, shape=SHAPE, num_classes=5, generator_seed=0)
    train(model, subset.images, subset.labels, TrainSpec(), seed=0)
    assert accuracy(model, subset.images, subset.labels) == 1.0
    assert accuracy(model, digits.test.images, digits.test.labels) >= 0.9


def test_batchnorm_statistics_are_those_of_the_final_model(digits, convnet):
    """DeepInversion matches them: the first layer's running mean against the mean over the training set."""
    model, _ = convnet
    images = target_subset(digits, 100).images
    with torch.no_grad():
        maps = model.body[0](images)
    norm = model.body[1]
    spread = maps.std(dim=(0, 2, 3))
    assert ((norm.running_mean - maps.mean(dim=(0, 2, 3))).abs() < 0.05 * spread).all()
    torch.testing.assert_close(norm.running_var, maps.var(dim=(0, 2, 3)), rtol=0.1, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "values"),
    [("convnet", {}), ("convnet", {"augment_shift": 2, "optimizer": "sgd"}), ("mobilenet_v2", {})],
)
def test_same_seed_same_bits(digits, name, values):
    """mobilenet_v2 has dropout, which draws from the global random state."""
    subset = target_subset(digits, 40)
    spec = QUICK.model_copy(update=values)

    def trained(seed):
        torch.manual_seed(torch.seed())  # whatever came before must not matter
        before = torch.get_rng_state()
        model = build(name, shape=SHAPE, num_classes=5, width=0.25, generator_seed=0)
        record = train(model, subset.images, subset.labels, spec, seed=seed)
        assert torch.equal(torch.get_rng_state(), before)
        return {**model.state_dict(), "loss": record.loss_history}

    first, again, other = trained(3), trained(3), trained(4)
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])


@pytest.mark.parametrize("n", [2, 3, 50, 63, 64, 65, 100, 129, 400])
@pytest.mark.parametrize("batch_size", [2, 64])
def test_no_batch_is_tiny_and_no_image_is_dropped(n, batch_size):
    parts = torch.arange(n).tensor_split(batches_per_epoch(n, batch_size))
    sizes = [len(part) for part in parts]
    assert sum(sizes) == n
    assert min(sizes) >= 2
    assert max(sizes) <= batch_size + (n % 2 if batch_size == 2 else 0)


@pytest.mark.parametrize("n", [2, 3, 17])
def test_sets_with_a_remainder_of_one_train_with_batchnorm(digits, n):
    model = build("vgg16", shape=(1, 8, 8), num_classes=5, width=0.0625, generator_seed=0)
    images = digits.target.images[:n, :, ::2, ::2]
    train(model, images, digits.target.labels[:n], TrainSpec(epochs=1, min_steps=0, batch_size=2), seed=0)
    assert all(torch.isfinite(tensor).all() for tensor in model.state_dict().values())


def test_progress_counts_to_the_end(digits):
    calls = []
    subset = target_subset(digits, 40)
    model = build("mlp", shape=SHAPE, num_classes=5, width=0.1, generator_seed=0)
    train(model, subset.images, subset.labels, QUICK, seed=0, progress=lambda *call: calls.append(call))
    assert calls == [(3, 6), (6, 6)]


def test_shifts_move_whole_images():
    images = torch.rand(20, 2, 9, 9, generator=torch.Generator().manual_seed(0))
    moved = shifted(images, 2, torch.Generator().manual_seed(0))
    assert moved.shape == images.shape
    padded = nn.functional.pad(images, (2, 2, 2, 2), mode="replicate")
    offsets = set()
    for original, image in zip(padded, moved, strict=True):
        windows = {(y, x): original[:, y : y + 9, x : x + 9] for y in range(5) for x in range(5)}
        fits = [offset for offset, window in windows.items() if torch.equal(window, image)]
        assert fits
        offsets.add(fits[0])
    assert len(offsets) > 5


@pytest.mark.parametrize("name", ["convnet", "mobilenet_v2"])
def test_predictions_do_not_depend_on_the_batch_size(digits, name):
    model = build(name, shape=SHAPE, num_classes=5, width=0.25, generator_seed=0).train()
    model.body[1].eval()  # a frozen BatchNorm
    flags = [module.training for module in model.modules()]
    state = {key: value.clone() for key, value in model.state_dict().items()}
    images = digits.test.images[:50]
    whole, single = predict(model, images), predict(model, images, batch_size=1)
    torch.testing.assert_close(whole, single, atol=1e-6, rtol=0)
    torch.testing.assert_close(whole.sum(dim=1), torch.ones(50))
    assert [module.training for module in model.modules()] == flags
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())
    assert not whole.requires_grad


def test_accuracy_counts(digits):
    model = nn.Sequential(nn.Flatten(), nn.Linear(256, 5))
    with torch.no_grad():
        model[1].weight.zero_()
        model[1].bias.copy_(torch.tensor([0.0, 1, 0, 0, 0]))
    labels = torch.tensor([1, 1, 1, 0])
    assert accuracy(model, digits.test.images[:4], labels) == 0.75
    assert math.isnan(accuracy(model, digits.test.images[:0], labels[:0]))
    with pytest.raises(UserError, match="one label per image"):
        accuracy(model, digits.test.images[:3], labels)


def test_a_diverging_loss_is_one_line(digits):
    subset = target_subset(digits, 40)
    model = build("mlp", shape=SHAPE, num_classes=5, width=0.1, generator_seed=0)
    with pytest.raises(UserError, match=r"training diverged in epoch .* lower learning_rate") as error:
        train(model, subset.images, subset.labels, TrainSpec(optimizer="sgd", learning_rate=1e30), seed=0)
    assert "\n" not in str(error.value)
    assert not model.training


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda images, labels: (images * 255, labels), r"\[0, 1\]"),
        (lambda images, labels: (images, labels.float()), "int64"),
        (lambda images, labels: (images, labels[:-1]), "labels must be"),
        (lambda images, labels: (images, labels + 1), "0 to 4"),
        (lambda images, labels: (images[:1], labels[:1]), "at least 2 images"),
        (lambda images, labels: (images[:, 0], labels), "shape"),
    ],
)
def test_bad_training_sets_are_refused(digits, change, message):
    subset = target_subset(digits, 10)
    model = build("mlp", shape=SHAPE, num_classes=5, width=0.1, generator_seed=0)
    with pytest.raises(UserError, match=message):
        train(model, *change(subset.images, subset.labels), QUICK, seed=0)


def test_a_frozen_model_is_not_trained(digits):
    subset = target_subset(digits, 10)
    model = build("mlp", shape=SHAPE, num_classes=5, width=0.1).requires_grad_(False)
    with pytest.raises(UserError, match="no trainable parameters"):
        train(model, subset.images, subset.labels, QUICK, seed=0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epoch": 3}, "did you mean 'epochs'"),
        ({"epochs": 0}, "epochs"),
        ({"batch_size": 1}, "batch_size"),
        ({"optimizer": "adamax"}, "adamw"),
        ({"learning_rate": -1}, "learning_rate"),
    ],
)
def test_bad_specifications_are_refused_in_one_line(values, message):
    with pytest.raises(UserError, match=message) as error:
        TrainSpec(**values)
    assert "\n" not in str(error.value)


def white_box(model, mean=0.0, std=1.0):
    return WhiteBox.from_module(model, [mean], [std], list("01234"), shape=SHAPE)


def levels(findings):
    return [finding.level for finding in findings]


def test_preflight_of_a_sound_target(digits, convnet):
    view = white_box(convnet[0])
    findings = preflight(view, digits.test.images, digits.test.labels)
    assert set(levels(findings)) == {"ok"}
    text = " ".join(finding.text for finding in findings)
    assert "accuracy 0.9" in text
    assert "BatchNorm" in text
    assert "[0.000, 1.000]" in text
    assert view.queries == view.gradient_calls == 0


def test_preflight_names_what_is_wrong(digits, convnet):
    images, labels = digits.test.images, digits.test.labels
    model = convnet[0]

    def errors(view, images=images, labels=labels, level="error"):
        return " ".join(found.text for found in preflight(view, images, labels) if found.level == level)

    view = white_box(model)
    assert "not better than chance" in errors(white_box(model, mean=-40.0))  # wrong normalization
    assert "not better than chance" in errors(view, labels=(labels + 2) % 5)  # wrong order of the labels
    assert "[0, 1]" in errors(view, images=images * 255)
    assert "expected 0 to 4" in errors(view, labels=labels + 1)
    assert "NaN" in errors(view, images=images * math.nan)
    assert "labels" in errors(view, labels=labels[:-1])
    assert "scaled twice" in errors(view, images=images / 255, level="warning")
    assert "no test images" in errors(view, images=images[:0], labels=labels[:0], level="warning")

    plain = white_box(build("mlp", shape=SHAPE, num_classes=5, width=0.1, generator_seed=0))
    assert "DeepInversion" in errors(plain, level="warning")
    plain.model.module.train()
    assert "training mode" in errors(plain)
    plain.model.eval().requires_grad_(True)
    assert "not frozen" in errors(plain)
    broken = white_box(build("mlp", shape=SHAPE, num_classes=5, width=0.1, generator_seed=0))
    with torch.no_grad():
        next(broken.model.module.parameters()).fill_(math.nan)
    assert "NaN" in errors(broken)
    fewer = white_box(build("mlp", shape=SHAPE, num_classes=5, width=0.1, generator_seed=0))
    fewer.model.module.head = nn.Linear(26, 4)
    assert "4 outputs for 5 labels" in errors(fewer)
