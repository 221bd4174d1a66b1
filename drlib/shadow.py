"""Shadow updates: the adversary's own models, trained, updated and asked as the target was.

An adversary who knows the target's architecture and recipe and holds labeled data repeats what happened to
the target, with updates whose images it knows, and learns from that what an update does to a model's answers.
Nothing here asks the target, so one set of shadow updates serves all targets of a recipe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from drlib import models, training
from drlib.errors import UserError
from drlib.train_many import train_many, update_many
from drlib.training import TrainSpec
from drlib.types import Auxiliary, TargetSpec, check_images


@dataclass(frozen=True)
class ShadowUpdates:
    """U updates of shadow models, and what the models answered.

    probes: (p, c, h, w), what all were asked. before, after: (U, p, K) probabilities. images: (N, c, h, w),
    and rows: (U, s), those of each update. held_out: (U,) bool, the updates of models that are kept for
    validation: the target, too, is a model that no encoder was trained on. base_size: a model's training set.
    """

    probes: Tensor
    before: Tensor
    after: Tensor
    images: Tensor
    rows: Tensor
    held_out: Tensor
    base_size: int


def shadow_updates(
    spec: TargetSpec,
    auxiliary: Auxiliary | None,
    *,
    bases: int,
    updates: int,
    update_size: int,
    probes: int,
    generator: torch.Generator,
    device: torch.device,
    report: Callable[[int, int], None],
) -> ShadowUpdates:
    """Train ``bases`` models on auxiliary images; update copies of them ``updates`` times in all.

    The probes are drawn first and used for nothing else. Each model is trained on its own draw of
    ``spec.recipe["size"]`` of the rest (fewer if an update could not be drawn otherwise), and updated with
    images that it has not seen. ``report(models trained, updates done)``. Of several models a fifth, at least
    one, is held out; of one model, a tenth of its updates.
    """
    recipe = spec.recipe or {}
    images, labels = _known_images(auxiliary, spec)
    images, labels = images.to(device), labels.to(device)
    order = torch.randperm(len(images), generator=generator)
    asked, pool = images[order[:probes]], order[probes:]
    base_size = min(recipe["size"], len(pool) - update_size)
    if base_size < 2:
        need = probes + update_size + 2
        raise UserError(f"shadow models need {need} auxiliary images at least, got {len(images)}")

    draws = torch.stack([pool[torch.randperm(len(pool), generator=generator)] for _ in range(bases)])
    seeds = torch.randint(2**31, (2, bases), generator=generator).tolist()
    build = {"shape": spec.shape, "num_classes": spec.num_classes, "width": recipe.get("width")}
    shadows = [models.build(spec.architecture, generator_seed=seed, **build) for seed in seeds[0]]
    train_many(
        shadows,
        images,
        labels,
        draws[:, :base_size],
        TrainSpec(**recipe["training"]),
        seeds=seeds[1],
        device=device,
        progress=lambda done, total: report(done, 0),
    )

    origins = torch.arange(updates) % bases
    unseen = draws[:, base_size:]
    mixed = torch.stack([torch.randperm(unseen.shape[1], generator=generator) for _ in range(updates)])
    rows = unseen[origins].gather(1, mixed)[:, :update_size]
    seeds = torch.randint(2**31, (updates,), generator=generator).tolist()
    recipe_of_update = TrainSpec(**recipe["update"])
    after: list[Tensor] = []
    for group in update_many(
        shadows, origins, images, labels, rows, recipe_of_update, seeds=seeds, device=device
    ):
        after.extend(group.probabilities(asked))
        report(bases, len(after))
    before = torch.stack([training.predict(model, asked) for model in shadows]).to(device)[origins]
    last, of = (bases, origins) if bases > 1 else (updates, torch.arange(updates))
    held_out = of >= last - max(1, last // (5 if bases > 1 else 10))
    return ShadowUpdates(
        asked, before, torch.stack(after), images, rows.to(device), held_out.to(device), base_size
    )


def _known_images(auxiliary: Auxiliary | None, spec: TargetSpec) -> tuple[Tensor, Tensor]:
    """Auxiliary images and labels, of no more classes than the shadow models have outputs."""
    if auxiliary is None or auxiliary.labels is None:
        raise UserError("shadow models are trained on auxiliary images and their labels: give both")
    check_images(auxiliary.images, spec.shape)
    kept = auxiliary.labels < spec.num_classes
    return auxiliary.images[kept].float(), auxiliary.labels[kept]
