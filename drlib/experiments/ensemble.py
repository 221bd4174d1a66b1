"""Models trained with and without each sample: what memorization is estimated from (equations 1 and 2).

Each model has a seed of its own, for its initial parameters and the order of its images, so that no model on
one side shares its luck with one on the other. Ensembles are made in parts of ``PART`` models: a part is an
artifact, so a long run can be stopped, and more models reuse those that are there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from drlib import models
from drlib.cells import Target
from drlib.data import DataSpec, Split, load_splits
from drlib.errors import UserError
from drlib.provenance import default_device
from drlib.spec import Spec
from drlib.store import Artifact
from drlib.train_many import train_many
from drlib.training import TrainSpec, predict
from drlib.types import Progress

PART = 25
"""Models in an artifact."""


class Ensemble(Spec):
    """Models of the kind of ``target``, for the memorization of its training images.

    ``design``: ``subsampled`` trains ``models`` models, each on a random share ``ratio`` of the images;
    ``leave_one_out`` trains ``models`` models on all images and as many without each image. ``classes``: only
    images of the first so many classes, of the target split's first ``target.size`` images of these.
    ``flipped``: this share of the images (drawn at random) gets a wrong label, as positive controls: nothing
    but memorization can make a model give that label.
    """

    target: Target
    classes: int | None = Field(None, ge=2)
    design: Literal["subsampled", "leave_one_out"] = "subsampled"
    models: int = Field(100, ge=2)
    ratio: float = Field(0.7, gt=0, lt=1)
    flipped: float = Field(0.0, ge=0, le=0.5)

    @model_validator(mode="after")
    def _static_and_final(self) -> Ensemble:
        if self.target.update is not None or self.target.checkpoint != "final":
            raise UserError("memorization is measured for a static target after all of its training")
        if self.design == "subsampled" and not 2 <= int(self.ratio * self.target.size) < self.target.size:
            raise UserError(
                f"a share of {self.ratio} of {self.target.size} images is no subset of 2 images or more"
            )
        return self

    @property
    def total(self) -> int:
        """Models in all."""
        return self.models if self.design == "subsampled" else self.models * (self.target.size + 1)

    def parts(self) -> list[dict[str, Any]]:
        """What differs between the parts: the first model and the number of models."""
        starts = range(0, self.total, PART)
        return [{"first": start, "count": min(PART, self.total - start)} for start in starts]


def train_part(
    spec: Mapping[str, Any], parents: Mapping[str, Artifact], progress: Progress
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Train models ``first`` to ``first + count`` and ask each for the label of every image.

    Tensors: ``inside`` bool (count, n), ``probability`` float32 (count, n) of the label that the image has in
    training, ``correct`` bool (count, n), ``labels`` (n,) as trained, ``flipped`` bool (n,). Data: the mean
    accuracy on the test images.
    """
    splits = load_splits(DataSpec(**spec["data"]))
    images, true_labels = _members(splits.target, spec["size"], spec["classes"])
    num_classes = spec["classes"] or len(splits.classes)
    labels, flipped = flip_labels(true_labels, num_classes, spec["flipped"], spec["seed"])
    every = range(spec["first"], spec["first"] + spec["count"])
    inside = torch.stack([chosen(index, len(images), spec) for index in every])
    probability = torch.empty(inside.shape, dtype=torch.float32)
    correct = torch.empty(inside.shape, dtype=torch.bool)
    known = splits.test.labels < num_classes
    accuracies, done, device = [], 0, default_device()
    for size in inside.sum(1).unique().tolist():  # models side by side need equally many images
        rows = (inside.sum(1) == size).nonzero().flatten()
        seeds = [model_seed(spec["seed"], every[row]) for row in rows.tolist()]
        group = [_untrained(spec, tuple(images.shape[1:]), num_classes, own) for own in seeds]
        train_many(
            group,
            images,
            labels,
            torch.stack([inside[row].nonzero().flatten() for row in rows]),
            TrainSpec(**spec["training"]),
            seeds=seeds,
            device=device,
            progress=lambda ready, total, done=done: progress(done + ready, len(inside)),
        )
        done += len(rows)
        for row, model in zip(rows.tolist(), group, strict=True):
            answers = predict(model, images)
            probability[row] = answers.gather(1, labels[:, None])[:, 0].clamp(0, 1)
            correct[row] = answers.argmax(1) == labels
            if known.any():
                told = predict(model, splits.test.images[known]).argmax(1) == splits.test.labels[known]
                accuracies.append(told.float().mean().item())
    tensors = {"inside": inside, "probability": probability, "correct": correct}
    tensors |= {"labels": labels, "flipped": flipped}
    accuracy = sum(accuracies) / len(accuracies) if accuracies else None
    return tensors, {"test_accuracy": accuracy, "n": len(images)}


def chosen(index: int, n: int, spec: Mapping[str, Any]) -> Tensor:
    """bool (n,): the training set of model ``index``; it does not depend on how many models there are."""
    if spec["design"] == "subsampled":
        generator = torch.Generator().manual_seed(model_seed(spec["seed"], index, "subset"))
        inside = torch.zeros(n, dtype=torch.bool)
        inside[torch.randperm(n, generator=generator)[: int(spec["ratio"] * n)]] = True
        return inside
    inside = torch.ones(n, dtype=torch.bool)
    left_out = index % (n + 1)  # n stands for: none
    if left_out < n:
        inside[left_out] = False
    return inside


def model_seed(seed: int, index: int, what: str = "training") -> int:
    """A seed of 31 bits for model ``index``, unrelated to every other model's."""
    digest = hashlib.sha256(f"{what} {seed} {index}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def flip_labels(labels: Tensor, classes: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Give a random ``share`` of labels (n,) another class: (labels, bool (n,) which of them are flipped)."""
    generator = torch.Generator().manual_seed(model_seed(seed, 0, "flipped"))
    count = round(share * len(labels))
    which = torch.randperm(len(labels), generator=generator)[:count]
    away = torch.randint(1, classes, (count,), generator=generator)
    flipped = torch.zeros(len(labels), dtype=torch.bool)
    flipped[which] = True
    changed = labels.clone()
    changed[which] = (labels[which] + away) % classes
    return changed, flipped


def _members(target: Split, size: int, classes: int | None) -> tuple[Tensor, Tensor]:
    """The first ``size`` target images, of the first ``classes`` classes if that is a number."""
    kept = target.labels >= 0 if classes is None else target.labels < classes
    rows = kept.nonzero().flatten()[:size]
    if len(rows) < size:
        raise UserError(f"only {len(rows)} target images are in the first {classes} classes, not {size}")
    return target.images[rows], target.labels[rows]


def _untrained(
    spec: Mapping[str, Any], shape: tuple[int, int, int], num_classes: int, seed: int
) -> torch.nn.Module:
    return models.build(
        spec["architecture"], shape=shape, num_classes=num_classes, width=spec["width"], generator_seed=seed
    )
