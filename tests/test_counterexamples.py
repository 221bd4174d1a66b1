"""The counterexamples to accuracy and feature distance (Figure 7 of the paper), each as a test."""

from __future__ import annotations

import pytest
import torch

from drlib import attacks, models, sections, study, testing
from drlib.data import DataSpec, load_splits
from drlib.errors import UserError
from drlib.experiments.generated_set import generate
from drlib.metrics.feature_distance import centroid_distance
from drlib.metrics.sample import sample_distance
from drlib.store import Artifact
from drlib.training import TrainSpec, accuracy, penultimate, predict, train
from drlib.types import TargetSpec, WhiteBox, balanced_labels

SHAPE, CLASSES = (1, 16, 16), 5


@pytest.fixture(scope="module")
def splits():
    return load_splits(DataSpec())


@pytest.fixture(scope="module")
def evaluation_model(splits) -> WhiteBox:
    model = models.build("convnet", shape=SHAPE, num_classes=CLASSES, generator_seed=0)
    train(model, splits.target.images, splits.target.labels, TrainSpec(epochs=10, min_steps=150), seed=0)
    assert accuracy(model, splits.test.images, splits.test.labels) > 0.95
    return WhiteBox(model, TargetSpec.of(model, "convnet", SHAPE, CLASSES))


def test_accuracy_test_noise_that_an_evaluation_model_is_sure_of(evaluation_model, splits):
    """Figure 7b: above 0.9 for most, no more similar to the class than noise is, and nothing to another."""
    labels = balanced_labels(50, CLASSES)
    attack = attacks.create("mi_face", {"steps": 300})
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand((50, *SHAPE), generator=torch.Generator().manual_seed(1))
    made = attack.reconstruct(
        evaluation_model, {}, n=50, labels=labels, generator=generator, progress=testing.silent
    ).images
    confidence = predict(evaluation_model.model, made).gather(1, labels[:, None])
    assert (confidence > 0.9).double().mean() > 0.8

    def similarity(images: torch.Tensor) -> float:
        return sample_distance(images, splits.target.images, "ssim", labels, splits.target.labels).distance

    assert similarity(made) < 0.2 and similarity(made) < similarity(noise) + 0.06
    other = models.build("mlp", shape=SHAPE, num_classes=CLASSES, generator_seed=1)
    train(other, splits.target.images, splits.target.labels, TrainSpec(epochs=10, min_steps=150), seed=1)
    assert accuracy(other, made, labels) < 0.5


@pytest.mark.slow
def test_accuracy_train_a_set_that_trains_a_good_model_and_looks_like_nothing(splits):
    """Figure 7a, at the laptop profile's settings: better than chance by far, and unlike every target."""
    p = sections.parameters("accuracy", "laptop")
    target = p.target(p.target_size, p.seed)
    task = study.plan(p.generated()).tasks["generated"]
    parent = task.parents["target"]
    tensors, data = study.producer("target")(parent.spec, {}, testing.silent)
    stored = Artifact(parent.key, "target", parent.spec, {}, parent.code, tensors, data, {})
    tensors, data = generate(task.spec, {"target": stored}, testing.silent)
    private = p.private()
    found = sample_distance(tensors["images"], private.images, "ssim", tensors["labels"], private.labels)
    unseen = splits.holdout.images[:100], splits.holdout.labels[:100]
    real = sample_distance(unseen[0], private.images, "ssim", unseen[1], private.labels)
    assert data["accuracy"] > 0.8 and target.size == 100
    assert found.distance < 0.4 < 0.8 < real.distance


def test_feature_distance_changes_its_ranking_with_the_network(splits, evaluation_model):
    """Two sets of images, two networks, opposite verdicts: found by asking pairs of disturbed real images."""
    other = models.build("mlp", shape=SHAPE, num_classes=CLASSES, generator_seed=1)
    train(other, splits.target.images, splits.target.labels, TrainSpec(epochs=10, min_steps=150), seed=1)
    images, labels = splits.holdout.images[:50], splits.holdout.labels[:50]
    generator = torch.Generator().manual_seed(0)
    candidates = {
        "noisy": (images + 0.3 * torch.randn(images.shape, generator=generator)).clamp(0, 1),
        "moved": images.roll(2, 3),
        "inverted": 1 - images,
        "blurred": torch.nn.functional.avg_pool2d(images, 5, 1, 2),
        "dark": 0.3 * images,
    }

    def distances(model) -> dict[str, float]:
        reference = penultimate(model, splits.target.images)
        return {
            name: float(
                centroid_distance(penultimate(model, made), labels, reference, splits.target.labels).mean()
            )
            for name, made in candidates.items()
        }

    first, second = distances(evaluation_model.model), distances(other)
    swaps = [(a, b) for a in first for b in first if first[a] < first[b] and second[a] > second[b]]
    assert swaps


def test_centroid_distance_by_hand():
    reference = torch.tensor([[0.0, 0], [2, 0], [10, 0], [10, 2]])
    labels = torch.tensor([0, 0, 1, 1])
    found = centroid_distance(torch.tensor([[1.0, 3], [10, 1]]), torch.tensor([0, 1]), reference, labels)
    assert found.tolist() == [3.0, 0.0]  # every reference image is at 1 from its own class's mean


@pytest.mark.parametrize("value", [0.0, 0.1, 1e9 + 0.1])
def test_centroid_distance_is_nan_without_a_spread(value):
    one_each = centroid_distance(torch.rand(3, 2), [0, 1, 1], torch.tensor([[value, 0], [1, value]]), [0, 1])
    equal = centroid_distance(torch.rand(2, 2), [0, 1], torch.full((6, 2), value), [0, 0, 0, 1, 1, 1])
    assert one_each.shape == (3,) and one_each.isnan().all() and equal.isnan().all()


def test_centroid_distance_with_labels_of_any_size():
    reference = torch.tensor([[0.0, 0], [2, 0], [10, 0], [10, 2]])
    made = torch.tensor([[1.0, 3], [10, 1]])
    assert centroid_distance(made, [3, 10**12], reference, [3, 3, 10**12, 10**12]).tolist() == [3.0, 0.0]


@pytest.mark.parametrize(
    ("labels", "reference_labels", "message"),
    [
        ([0, 1, 1], [0, 0, 1, 1], r"^labels must have shape \(2,\)"),
        ([0, 1], [0, 0, 1], "reference_labels must have shape"),
        ([0], [0, 0, 1, 1], r"shape \(2,\), one for each image, got \(1,\)"),
        ([0, 1], [0], r"shape \(4,\)"),
        (0, [0, 0, 1, 1], r"got \(\)"),
        ([0.0, 1.0], [0, 0, 1, 1], "^labels must be integers"),
        ([0, 1], [True, True, False, False], "must be integers"),
        ("ab", [0, 0, 1, 1], "must be 2 integers, got str"),
        (None, [0, 0, 1, 1], "must be 2 integers, got NoneType"),
        ([0, -1], [0, 0, 1, 1], "labels must be 0 or more, got -1"),
        ([0, 1], [0, 1, -1, -1], "labels must be 0 or more, got -1"),
        ([0, 2], [0, 0, 1, 1], r"no reference image .* \[2\]"),
    ],
)
def test_labels_that_centroid_distance_refuses(labels, reference_labels, message):
    with pytest.raises(UserError, match=message):
        centroid_distance(torch.rand(2, 3), labels, torch.rand(4, 3), reference_labels)


def test_penultimate_is_what_the_last_layer_reads(evaluation_model, splits):
    model, images = evaluation_model.model, splits.test.images[:9]
    last = [layer for layer in model.modules() if isinstance(layer, torch.nn.Linear)][-1]
    features = penultimate(model, images, batch_size=4)
    assert torch.allclose(last(features).softmax(1), predict(model, images), atol=1e-5)
    assert not last._forward_pre_hooks
