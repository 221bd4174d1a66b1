"""Slow: the original papers' hyperparameters and widths run to the end, and the target is convinced."""

from __future__ import annotations

import pytest
import torch

from drlib import attacks, models
from drlib.data import DataSpec, load_splits, target_subset
from drlib.training import TrainSpec, accuracy, predict, train
from drlib.types import TargetSpec, WhiteBox

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def white_box() -> WhiteBox:
    splits = load_splits(DataSpec())
    target = target_subset(splits, 100)
    model = models.build("convnet", shape=(1, 16, 16), num_classes=5, generator_seed=0)
    train(model, target.images, target.labels, TrainSpec(), seed=0)
    assert accuracy(model, splits.test.images, splits.test.labels) > 0.9
    return WhiteBox(model, TargetSpec("convnet", (1, 16, 16), 5, True, splits.classes))


@pytest.mark.parametrize("name", attacks.names())
def test_published_hyperparameters_run_to_the_end(name, white_box):
    made = attacks.create(name).run(white_box, n=25, seed=0)
    confidence = predict(white_box.model, made.images).gather(1, made.labels[:, None])
    assert len(made) == 25 and torch.isfinite(made.images).all()
    assert confidence.mean() > 0.8


@pytest.mark.parametrize("architecture", ["vgg16", "resnet18", "mobilenet_v2"])
def test_published_widths_train_and_are_attacked_at_64_pixels_in_color(architecture):
    generator = torch.Generator().manual_seed(0)
    images = torch.rand((16, 3, 64, 64), generator=generator)
    labels = torch.arange(16) % 4
    model = models.build(architecture, shape=(3, 64, 64), num_classes=4, generator_seed=0)
    train(model, images, labels, TrainSpec(epochs=2, min_steps=2, batch_size=8), seed=0)
    white_box = WhiteBox(model, TargetSpec(architecture, (3, 64, 64), 4, True))
    for name in attacks.names():
        made = attacks.create(name, {"steps": 2}).run(white_box, n=8, seed=0)
        assert made.images.shape == (8, 3, 64, 64)
