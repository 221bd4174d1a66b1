"""A training set that nobody's images are in: the queries of data-free model extraction (Truong et al. 2021).

The adversary has the target's answers and no image. Its generator's queries, labeled by the target, train a
model that classifies real images well, so "accuracy (train)" calls them an excellent reconstruction. They
look like nothing (Figure 7a of the paper).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from drlib import models, surrogate
from drlib.cells import Target
from drlib.data import DataSpec, load_splits
from drlib.provenance import default_device
from drlib.spec import Spec
from drlib.store import Artifact
from drlib.stored_model import description_of, restore
from drlib.surrogate import SurrogateSpec
from drlib.training import TrainSpec, accuracy, predict, train
from drlib.types import BlackBox, Progress, TargetSpec


class GeneratedSet(Spec):
    """``images`` of the queries that ``extraction`` asks of ``target``, and a fresh model trained on them.

    The fresh model has the target's architecture and training recipe; only its data are others.
    """

    target: Target
    extraction: SurrogateSpec = SurrogateSpec(method="extraction")
    images: int = Field(5000, ge=2)
    seed: int = Field(0, ge=0)


class Recorder:
    """Keeps a random sample of the images that a box is asked, and its answers (reservoir sampling)."""

    def __init__(self, box: BlackBox, size: int, generator: torch.Generator) -> None:
        self.box, self.size, self.generator = box, size, generator
        self.images = torch.empty(size, *box.spec.shape)
        self.answers = torch.empty(size, box.spec.num_classes)
        self.seen = 0

    def query(self, images: Tensor) -> Tensor:
        answers = self.box.query(images)
        positions = torch.arange(self.seen, self.seen + len(images))
        draws = (torch.rand(len(images), generator=self.generator) * (positions + 1)).long()
        slots = torch.where(positions < self.size, positions, draws)
        kept = slots < self.size
        self.images[slots[kept]] = images[kept].detach().float().cpu()
        self.answers[slots[kept]] = answers[kept].float().cpu()
        self.seen += len(images)
        return answers


def generate(
    spec: Mapping[str, Any], parents: Mapping[str, Artifact], progress: Progress
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Extract, record, train a fresh model on what was recorded.

    Tensors: the fresh model's parameters (prefix ``model.``), ``images``, ``labels`` (the target's most
    probable class). Data: accuracies of the student, of the fresh model and of the target on test images.
    """
    target = restore(parents["target"])
    generator = torch.Generator().manual_seed(spec["seed"])
    recorder = Recorder(target, spec["images"], generator)
    box = BlackBox(recorder.query, target.spec, target.device)
    student = surrogate.make(
        box, None, SurrogateSpec(**spec["extraction"]), generator=generator, progress=progress
    )
    filled = min(recorder.seen, spec["images"])
    images, labels = recorder.images[:filled], recorder.answers[:filled].argmax(1)
    told = target.spec
    model = models.build(
        told.architecture,
        shape=told.shape,
        num_classes=told.num_classes,
        width=told.recipe["width"],
        generator_seed=1 + spec["seed"],
    )
    device = default_device()
    train(model, images, labels, TrainSpec(**spec["training"]), seed=1 + spec["seed"], device=device)
    test = load_splits(DataSpec(**spec["data"])).test
    described = TargetSpec.of(
        model, told.architecture, told.shape, told.num_classes, classes=told.classes, recipe=told.recipe
    )
    agreement = (
        (predict(model, test.images).argmax(1) == predict(target.model, test.images).argmax(1))
        .float()
        .mean()
        .item()
    )
    data = {
        "model": description_of(described),
        "queries": student.queries,
        "student_accuracy": accuracy(student.model, test.images, test.labels),
        "accuracy": accuracy(model, test.images, test.labels),
        "target_accuracy": accuracy(target.model, test.images, test.labels),
        "agreement": agreement,
    }
    parameters = {f"model.{name}": value.cpu() for name, value in model.state_dict().items()}
    return {**parameters, "images": images, "labels": labels}, data
