"""Slow: the original papers' hyperparameters and widths run to the end, and the target is convinced."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from drlib import attacks, models
from drlib.data import DataSpec, load_splits, target_subset
from drlib.provenance import Measured
from drlib.testing import granted
from drlib.training import TrainSpec, accuracy, predict, train
from drlib.types import NO_DATA, Auxiliary, TargetSpec, WhiteBox

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def white_box() -> WhiteBox:
    splits = load_splits(DataSpec())
    target = target_subset(splits, 100)
    model = models.build("convnet", shape=(1, 16, 16), num_classes=5, generator_seed=0)
    train(model, target.images, target.labels, TrainSpec(), seed=0)
    assert accuracy(model, splits.test.images, splits.test.labels) > 0.9
    return WhiteBox(model, TargetSpec("convnet", (1, 16, 16), 5, True, splits.classes))


@pytest.mark.parametrize("name", ["mi_face", "deep_dream", "deep_inversion"])
def test_published_hyperparameters_run_to_the_end(name, white_box):
    made = attacks.create(name).run(white_box, n=25, seed=0)
    confidence = predict(white_box.model, made.images).gather(1, made.labels[:, None])
    assert len(made) == 25 and torch.isfinite(made.images).all()
    assert confidence.mean() > 0.8


SHAPE, CLASSES, N = (3, 64, 64), 4, 8
TWO_STEPS: dict[str, dict[str, Any]] = {
    "mi_face": {"steps": 2},
    "deep_dream": {"steps": 2},
    "deep_inversion": {"steps": 2},
    "revealer": {"prior_steps": 2, "steps": 2},
    "kedmi": {"prior_steps": 2, "steps": 2},
    "plgmi": {"prior_steps": 2, "steps": 2},
    "deep_leakage": {"matching": "cosine_adam", "labels": "infer", "steps": 2},
    "inv_alignment": {"epochs": 2},
    "updates_leak": {"epochs": 2, "updates": 4, "update_size": 8, "probes": 8, "samples": 2},
    "bias_rec": {"steps": 2},
}
"""Everything as published but how long it runs (and, for shadow models, how many)."""


def images_of(n: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand((n, *SHAPE), generator=generator), torch.arange(n) % CLASSES


@pytest.fixture(scope="module", params=["vgg16", "resnet18", "mobilenet_v2"])
def large(request: pytest.FixtureRequest) -> WhiteBox:
    return large_target(request.param)


@functools.cache
def large_target(architecture: str) -> WhiteBox:
    """A target at the published width after two steps on 64x64 color images."""
    model = models.build(architecture, shape=SHAPE, num_classes=CLASSES, generator_seed=0)
    recipe = TrainSpec(epochs=2, min_steps=2, batch_size=8)
    train(model, *images_of(16, 0), recipe, seed=0)
    update = TrainSpec(epochs=1, min_steps=0, batch_size=8, optimizer="sgd", learning_rate=1e-2)
    known = {"width": 1.0, "size": 16, "training": recipe.model_dump(), "update": update.model_dump()}
    return WhiteBox(model, TargetSpec.of(model, architecture, SHAPE, CLASSES, recipe=known))


@pytest.mark.parametrize("name", attacks.names())
def test_two_steps_at_64_pixels_in_color_and_published_widths(name, large, record_property):
    attack = attacks.create(name, TWO_STEPS[name])
    if attack.supports(large.spec):
        if large.spec.architecture != "vgg16":
            pytest.skip("its own network is tried once")
        large = large_target("homogeneous_mlp")
    assert attack.supports(large.spec) is None
    auxiliary = None
    if attack.knowledge.dataset != NO_DATA:
        images, labels = images_of(40, 2)
        auxiliary = Auxiliary(images, labels if attack.auxiliary_labels else None)
    batches = tuple(part.unflatten(0, (1, N)) for part in images_of(N, 1))
    access = granted(attack, large, before=large, batches=batches)
    with Measured() as measured:
        made = attack.run(access, n=N, auxiliary=auxiliary, seed=0)
    assert made.images.shape == (N, *SHAPE) and torch.isfinite(made.images).all()
    line = f"{name} on {large.spec.architecture}: {measured.seconds:.1f} s, {measured.peak_memory_mb:.0f} MB"
    record_property("planning", line)
    print(f"\nplanning: {line}")
