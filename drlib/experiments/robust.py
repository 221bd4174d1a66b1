"""An evaluator trained on adversarial images (Madry et al. 2018): min_theta E max_(|d| <= eps) CE(x + d, y).

A plain evaluator can be sure of a class that no human sees in an image. This one must keep its answer under
every change of up to ``epsilon`` a pixel, so it has to look at what is large.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from drlib import models, training
from drlib.data import DataSpec, load_splits
from drlib.provenance import default_device
from drlib.spec import Spec
from drlib.store import Artifact
from drlib.stored_model import description_of
from drlib.training import TrainSpec
from drlib.types import Progress, TargetSpec


class RobustEvaluator(Spec):
    """An evaluator on the whole target split, never the holdout.

    ``epsilon``: largest change of a pixel, pixels in [0, 1]. ``attack_steps``: steps of projected gradient
    ascent, each of 2.5 epsilon / attack_steps, from a random start.
    """

    data: DataSpec = DataSpec()
    architecture: str = "convnet"
    width: float | None = None
    training: TrainSpec = TrainSpec()
    epsilon: float = Field(0.15, gt=0, le=1)
    attack_steps: int = Field(5, ge=1)
    seed: int = Field(0, ge=0)


def train_robust(
    spec: Mapping[str, Any], parents: Mapping[str, Artifact], progress: Progress
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Train the evaluator. Data: its accuracy on test images and on adversarial test images."""
    splits, device = load_splits(DataSpec(**spec["data"])), default_device()
    shape, how = tuple(splits.target.images.shape[1:]), TrainSpec(**spec["training"])
    model = models.build(
        spec["architecture"],
        shape=shape,
        num_classes=len(splits.classes),
        width=spec["width"],
        generator_seed=spec["seed"],
    ).to(device=device, memory_format=torch.channels_last)
    images, labels = splits.target.images.to(device), splits.target.labels.to(device)
    generator = torch.Generator().manual_seed(spec["seed"])
    batches = training.batches_per_epoch(len(images), how.batch_size)
    epochs = how.epochs_on(len(images))
    optimizer = training.make_optimizer(model, how)
    with training.seeded(spec["seed"], device):
        for epoch in range(epochs):
            order = torch.randperm(len(images), generator=generator).to(device)
            for batch, rows in enumerate(order.tensor_split(batches)):
                share = (epoch * batches + batch) / (epochs * batches)
                training.set_cosine_rate(optimizer, how.learning_rate, share)
                worst = adversarial(
                    model, images[rows], labels[rows], spec["epsilon"], spec["attack_steps"], generator
                )
                model.train()
                loss = cross_entropy(model(worst), labels[rows])
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
            progress(epoch + 1, epochs)
    model.eval()
    told = TargetSpec.of(
        model,
        spec["architecture"],
        shape,
        len(splits.classes),
        classes=splits.classes,
        recipe={"width": spec["width"], "training": spec["training"], "epsilon": spec["epsilon"]},
    )
    test = splits.test
    attacked = adversarial(
        model, test.images.to(device), test.labels.to(device), spec["epsilon"], 20, generator
    )
    data = {
        "model": description_of(told),
        "test_accuracy": training.accuracy(model, test.images, test.labels),
        "adversarial_accuracy": training.accuracy(model, attacked.cpu(), test.labels),
    }
    return {name: value.cpu() for name, value in model.state_dict().items()}, data


def adversarial(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    epsilon: float,
    steps: int,
    generator: torch.Generator,
) -> Tensor:
    """Images within ``epsilon`` of the given ones (every pixel) and in [0, 1] on which the loss is large.

    Projected gradient ascent on the sign of the gradient, in eval mode, so that BatchNorm's statistics stay
    those of real images.
    """
    model.eval()
    start = (2 * torch.rand(images.shape, generator=generator) - 1).to(images.device) * epsilon
    low, high = (images - epsilon).clamp(min=0), (images + epsilon).clamp(max=1)
    found = (images + start).clamp(low, high)
    for _ in range(steps):
        found = found.detach().requires_grad_(True)
        (slope,) = torch.autograd.grad(cross_entropy(model(found), labels, reduction="sum"), found)
        found = (found + 2.5 * epsilon / steps * slope.sign()).clamp(low, high)
    return found.detach()
