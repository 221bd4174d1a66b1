"""The tasks that may see D_tar: train and update targets, train evaluators, make controls, score.

Each function takes (spec, parents, progress) and returns (tensors, data) of the artifact it makes.
Attacks are not here: they run in ``attacker``, in processes that never import this module.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from drlib import models, pool
from drlib.data import DataSpec, Split, Splits, load_splits, overlaps, target_subset
from drlib.errors import UserError
from drlib.experiments.ensemble import train_part
from drlib.experiments.generated_set import generate
from drlib.experiments.robust import train_robust
from drlib.metrics.features import extract, metric_name
from drlib.metrics.frechet import frechet_distance
from drlib.metrics.frechet_uncertainty import frechet_floor, frechet_interval
from drlib.metrics.leakage import resplit_gaps
from drlib.metrics.sample import sample_distance
from drlib.metrics.ssim import ssim_matrix
from drlib.provenance import default_device
from drlib.store import Artifact
from drlib.stored_model import description_of, restore
from drlib.training import TrainSpec, accuracy, predict, train
from drlib.types import Gradients, Progress, TargetSpec, balanced_labels

SAMPLE_METRICS = ("SSIM", "PSNR", "MSE")


class Labeled(NamedTuple):
    """images: (n, c, h, w) in [0, 1]; labels: (n,) or None for an attack that does not label its output."""

    images: Tensor
    labels: Tensor | None


Made = tuple[dict[str, Tensor], dict[str, Any]]


def train_target(spec: dict[str, Any], parents: dict[str, Artifact], progress: Progress) -> Made:
    """Train a target on target[:size]; its data record train, test and holdout accuracy."""
    splits = load_splits(DataSpec(**spec["data"]))
    return _train(spec, splits, target_subset(splits, spec["size"]), progress)


def train_evaluator(spec: dict[str, Any], parents: dict[str, Artifact], progress: Progress) -> Made:
    """Train an evaluator on the whole target split (never on the holdout)."""
    splits = load_splits(DataSpec(**spec["data"]))
    return _train(spec, splits, splits.target, progress)


def _train(spec: dict[str, Any], splits: Splits, subset: Split, progress: Progress) -> Made:
    shape, num_classes = tuple(subset.images.shape[1:]), len(splits.classes)
    model = models.build(
        spec["architecture"],
        shape=shape,
        num_classes=num_classes,
        width=spec["width"],
        generator_seed=spec["seed"],
    )
    steps = _fit(model, subset, spec["training"], spec["seed"], progress, spec.get("epochs"))
    recipe = {"width": spec["width"], "size": len(subset), "training": spec["training"]}
    told = TargetSpec.of(
        model, spec["architecture"], shape, num_classes, classes=splits.classes, recipe=recipe
    )
    return _stored(model, told, splits, subset, steps)


def _fit(
    model: torch.nn.Module,
    subset: Split,
    training: dict[str, Any],
    seed: int,
    progress: Progress,
    stop_after: int | None = None,
) -> int:
    """Train in place and return the number of steps; none at all if ``stop_after`` is 0."""
    if stop_after == 0:
        model.eval()
        return 0
    device = default_device()
    return train(
        model.to(device),
        subset.images.to(device),
        subset.labels.to(device),
        TrainSpec(**training),
        seed=seed,
        device=device,
        progress=progress,
        stop_after=stop_after,
    ).steps


def _stored(model: torch.nn.Module, told: TargetSpec, splits: Splits, subset: Split, steps: int) -> Made:
    """A model's parameters, what adversaries are told of it, and how accurate it is."""
    data = {
        "model": description_of(told),
        "steps": steps,
        "train_accuracy": accuracy(model, subset.images, subset.labels),
        "test_accuracy": _accuracy_or_none(model, splits.test),
        "holdout_accuracy": _accuracy_or_none(model, splits.holdout),
    }
    return {name: tensor.cpu() for name, tensor in model.state_dict().items()}, data


def update_target(spec: dict[str, Any], parents: dict[str, Artifact], progress: Progress) -> Made:
    """The target after it went on training on the update's images; its data record the accuracies."""
    splits = load_splits(DataSpec(**spec["data"]))
    before = restore(parents["target"])
    model = before.model.requires_grad_(True)
    new = target_images(splits, spec)
    steps = _fit(model, new, spec["update"]["training"], spec["seed"], progress)
    recipe = {**before.spec.recipe, "update": spec["update"]["training"]}
    return _stored(model, replace(before.spec, recipe=recipe), splits, new, steps)


def observe_gradients(spec: dict[str, Any], parents: dict[str, Artifact], progress: Progress) -> Made:
    """Gradients of the loss on the update's images at the target's parameters, batch after batch."""
    target = restore(parents["target"])
    new = target_images(load_splits(DataSpec(**spec["data"])), spec)
    size = spec["batch_size"]
    server = Gradients(target.model, target.spec, {}, size, target.device)
    images = new.images.to(target.device).unflatten(0, (-1, size))
    found = server.parameter_gradients(images, new.labels.to(target.device).unflatten(0, (-1, size)))
    return {name: value.detach().cpu() for name, value in found.items()}, {"batch_size": size}


def target_images(splits: Splits, spec: dict[str, Any]) -> Split:
    """D_tar: the first ``size`` images of the target split, or of the update split if there is an update."""
    if spec["update"] is None:
        return target_subset(splits, spec["size"])
    size = spec["update"]["size"]
    return Split(splits.update.images[:size], splits.update.labels[:size], splits.update.indices[:size])


def _accuracy_or_none(model: torch.nn.Module, split: Split) -> float | None:
    return accuracy(model, split.images, split.labels) if len(split.images) else None


def share_auxiliary(spec: dict[str, Any], parents: dict[str, Artifact], progress: Progress) -> Made:
    """The auxiliary data alone, for an attack that is granted them: its process opens no data set.

    Raises ``UserError`` if an image is in another split too, or if a class is when the data set has
    auxiliary classes of its own. The record goes into every prior that is trained on them.
    """
    splits = load_splits(DataSpec(**spec["data"]))
    auxiliary = splits.auxiliary
    shared = {pair: count for pair, count in overlaps(splits).items() if count and "auxiliary" in pair}
    if shared:
        raise UserError(f"auxiliary data share images with other splits: {shared}")
    common = sorted(set(splits.classes) & set(splits.auxiliary_classes))
    if common and set(splits.classes) != set(splits.auxiliary_classes):
        raise UserError(f"auxiliary and target data share the classes {', '.join(common)}")
    data = {
        "n": len(auxiliary),
        "classes": list(splits.auxiliary_classes),
        "classes_shared_with_target": bool(common),
        "sha256": hashlib.sha256(auxiliary.images.numpy().tobytes()).hexdigest(),
    }
    return {"images": auxiliary.images, "labels": auxiliary.labels}, data


def make_control(spec: dict[str, Any], parents: dict[str, Artifact], progress: Progress) -> Made:
    """A control in the place of a reconstruction: ``CONTROL_MAKERS`` says how each is made."""
    splits = load_splits(DataSpec(**spec["data"]))
    images, labels = CONTROL_MAKERS[spec["control"]](spec, parents, splits)
    tensors = {"images": images} | ({} if labels is None else {"labels": labels})
    return tensors, {
        "queries": 0,
        "gradient_calls": 0,
        "seconds": 0.0,
        "group_size": None,
    }


def _noise(spec: dict[str, Any], parents: dict[str, Artifact], splits: Splits) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(spec["seed"])
    shape = (spec["n"], *splits.target.images.shape[1:])
    return torch.rand(shape, generator=generator), balanced_labels(spec["n"], len(splits.classes))


def _class_mean(spec: dict[str, Any], parents: dict[str, Artifact], splits: Splits) -> tuple[Tensor, Tensor]:
    labels = balanced_labels(spec["n"], len(splits.classes))
    return class_means(splits.auxiliary.images, _posteriors(parents, splits.auxiliary.images), labels), labels


def _auxiliary_top(
    spec: dict[str, Any], parents: dict[str, Artifact], splits: Splits
) -> tuple[Tensor, Tensor]:
    labels = balanced_labels(spec["n"], len(splits.classes))
    return auxiliary_top(
        splits.auxiliary.images, _posteriors(parents, splits.auxiliary.images), labels
    ), labels


def _posteriors(parents: dict[str, Artifact], images: Tensor) -> Tensor:
    target = restore(parents["target"])
    return torch.cat([target.query(part).cpu() for part in images.split(1024)])


def _prior_sample(
    spec: dict[str, Any], parents: dict[str, Artifact], splits: Splits
) -> tuple[Tensor, Tensor | None]:
    labels = balanced_labels(spec["n"], len(splits.classes)) if spec["labeled"] else None
    return parents["samples"].tensors["images"], labels


def _prior_best(spec: dict[str, Any], parents: dict[str, Artifact], splits: Splits) -> tuple[Tensor, Tensor]:
    """Selection without optimization: the samples that the target is surest of."""
    candidates = parents["samples"].tensors["images"]
    labels = balanced_labels(spec["n"], len(splits.classes))
    return auxiliary_top(candidates, _posteriors(parents, candidates), labels), labels


def _holdout_control(
    spec: dict[str, Any], parents: dict[str, Artifact], splits: Splits
) -> tuple[Tensor, Tensor]:
    return _holdout(splits, spec["n"])


CONTROL_MAKERS = {
    "noise": _noise,
    "class_mean": _class_mean,
    "auxiliary_top": _auxiliary_top,
    "prior_sample": _prior_sample,
    "prior_best": _prior_best,
    "holdout": _holdout_control,
}


def class_means(auxiliary: Tensor, probabilities: Tensor, labels: Tensor) -> Tensor:
    """For each label the mean of the auxiliary images that the target assigns to it.

    auxiliary: (a, c, h, w); probabilities: (a, K); labels: (n,). A class that no auxiliary image is
    assigned to gets the mean of all auxiliary images. Returns (n, c, h, w).
    """
    assigned = probabilities.argmax(dim=1)
    overall = auxiliary.mean(dim=0)
    means = [
        auxiliary[assigned == label].mean(dim=0) if (assigned == label).any() else overall
        for label in range(probabilities.shape[1])
    ]
    return torch.stack(means)[labels]


def auxiliary_top(auxiliary: Tensor, probabilities: Tensor, labels: Tensor) -> Tensor:
    """For each class the auxiliary images with the largest target probability, best first: no attack.

    If a class is asked for more images than there are, its ranking starts again. Returns (n, c, h, w).
    """
    chosen = torch.empty(len(labels), dtype=torch.int64)
    for label in labels.unique().tolist():
        wanted = (labels == label).nonzero().flatten()
        ranking = probabilities[:, label].argsort(descending=True, stable=True)
        chosen[wanted] = ranking[torch.arange(len(wanted)) % len(ranking)]
    return auxiliary[chosen]


def _holdout(splits: Splits, n: int) -> tuple[Tensor, Tensor]:
    """The first min(n, available) holdout images, class-cyclic, so any number of them is balanced."""
    order = class_cyclic(splits.holdout.labels, len(splits.classes))[:n]
    return splits.holdout.images[order], splits.holdout.labels[order]


def class_cyclic(labels: Tensor, num_classes: int) -> Tensor:
    """Indices that take one image of each class in turn, as long as every class has one left."""
    per_class = [(labels == label).nonzero().flatten() for label in range(num_classes)]
    rounds = min(len(indices) for indices in per_class)  # 0 where the data set has no holdout
    return torch.stack([indices[:rounds] for indices in per_class], dim=1).flatten()


def extract_features(spec: dict[str, Any], parents: dict[str, Artifact], progress: Progress) -> Made:
    """Features of the first ``size`` images of a split, for the Frechet distance."""
    splits = load_splits(DataSpec(**spec["data"]))
    if spec["split"] == "target":
        images = target_images(splits, spec).images
    else:
        images, _ = _holdout(splits, len(target_images(splits, spec)))
    return {"features": extract(images, spec["extractor"]).values}, {"n": len(images)}


def score(spec: dict[str, Any], parents: dict[str, Artifact], progress: Progress) -> Made:
    """Every metric of one reconstruction against D_tar, a matched subset of it, and the holdout.

    Sides: all of D_tar (""; "all_classes": matched over all classes, also if the reconstructions have
    labels, so that labeled and unlabeled ones can be compared on one ruler), its first m images and m
    holdout images with as many per class ("target_m", "holdout_m"), and the first ``equal_size`` images on
    both sides ("equal").
    """
    splits = load_splits(DataSpec(**spec["data"]))
    made = Labeled(
        parents["reconstruction"].tensors["images"], parents["reconstruction"].tensors.get("labels")
    )
    whole = target_images(splits, spec)
    targets = Labeled(whole.images, whole.labels)
    holdout = Labeled(*_holdout(splits, len(whole)))
    m = len(holdout.images)
    data: dict[str, Any] = {"n": len(made.images), "m": m, "targets": len(targets.images)}
    data["gap_reason"] = _no_gap(m, spec["is_holdout"])
    sides = {
        "": (made, targets),
        "equal": (_first(made, spec["equal_size"]), _first(targets, spec["equal_size"])),
    }
    if m:
        sides["target_m"] = (made, _first(targets, m))
    if data["gap_reason"] is None:
        sides["holdout_m"] = (made, holdout)
    among_all = {"all_classes": (Labeled(made.images, None), targets)}
    tensors = _sample_metrics(sides | among_all, data)
    if data["gap_reason"] is None:
        tensors |= _resplit(made, sides["target_m"][1], holdout)
    tensors |= _judge(made, parents, data)
    _frechet(sides, m, spec, parents, data)
    return tensors, data


def _no_gap(m: int, is_holdout: bool) -> str | None:
    if is_holdout:
        return "the holdout would be compared with itself"
    return None if m else "the data set has no holdout"


def _first(some: Labeled, size: int) -> Labeled:
    return Labeled(some.images[:size], None if some.labels is None else some.labels[:size])


def _sample_metrics(sides: dict[str, tuple[Labeled, Labeled]], data: dict[str, Any]) -> dict[str, Tensor]:
    """S-Dis of each side; per-image values and neighbors as tensors, means and coverage into ``data``."""
    tensors: dict[str, Tensor] = {}
    for metric in SAMPLE_METRICS:
        for side, (made, others) in sides.items():
            grouped = made.labels is not None
            found = sample_distance(
                made.images, others.images, metric.lower(), made.labels, others.labels if grouped else None
            )
            prefix = f"{metric}.{side}." if side else f"{metric}."
            tensors |= {prefix + "values": found.values, prefix + "nearest": found.nearest}
            data |= {prefix + "distance": found.distance, prefix + "coverage": found.coverage}
            if not side:
                data["matching"] = found.matching
                data |= {
                    prefix + name: getattr(found, name)
                    for name in ("coverage_floor", "coverage_chance", "median", "copies")
                }
    return tensors


def _resplit(made: Labeled, trained: Labeled, holdout: Labeled) -> dict[str, Tensor]:
    """The gap, and gaps had training and holdout images been drawn otherwise, for each sample-level metric.

    In float64 throughout: equal images must be equally close, or ties are broken by rounding.
    """
    pool_images = torch.cat([trained.images, holdout.images])
    pool_labels = torch.cat([trained.labels, holdout.labels])
    flat, pool_flat = made.images.double().flatten(1), pool_images.double().flatten(1)
    mse = torch.cdist(flat, pool_flat).square() / flat.shape[1]
    similarity = {
        "SSIM": ssim_matrix(made.images.double(), pool_images.double()),
        "PSNR": -10 * mse.clamp(min=1e-12).log10(),
        "MSE": -mse,
    }
    return {
        f"{metric}.resplit_gaps": resplit_gaps(values, pool_labels, made.labels)
        for metric, values in similarity.items()
    }


def _judge(made: Labeled, parents: dict[str, Artifact], data: dict[str, Any]) -> dict[str, Tensor]:
    """The target's confidence and two evaluators' accuracy, per image; nothing for unlabeled images."""
    tensors: dict[str, Tensor] = {}
    for parent in ("target", "evaluator_1", "evaluator_2"):
        model = parents[parent]
        name = "Confidence" if parent == "target" else f"Accuracy ({model.spec['architecture']})"
        data[f"{name}.distance"] = None
        if made.labels is None:
            continue
        judge = restore(model)
        probabilities = predict(judge.model, made.images.to(judge.device)).cpu()
        if parent == "target":
            values = probabilities.gather(1, made.labels[:, None]).flatten()
        else:
            values = (probabilities.argmax(dim=1) == made.labels).float()
        tensors[f"{name}.values"] = values
        data[f"{name}.distance"] = float(values.double().mean())
    return tensors


def _frechet(
    sides: dict[str, tuple[Labeled, Labeled]],
    m: int,
    spec: dict[str, Any],
    parents: dict[str, Artifact],
    data: dict[str, Any],
) -> None:
    """Frechet distance on every side; features of D_tar and of the holdout come from their own task.

    ``floor``: the distance between two parts of the real images, target and holdout together, at n
    reconstructions or as many as there are (``floor_n``).
    """
    name, equal = metric_name(spec["extractor"]), spec["equal_size"]
    features = extract(sides[""][0].images, spec["extractor"]).values
    target = parents["features_target"].tensors["features"]
    holdout = parents["features_holdout"].tensors["features"] if "features_holdout" in parents else target[:0]
    pairs = {
        "": (features, target),
        "equal": (features[:equal], target[:equal]),
        "target_m": (features[:m], target[:m]),
        "holdout_m": (features[:m], holdout[:m]),
    }
    for side in sides:
        distance = frechet_distance(*pairs[side])
        prefix = f"{name}.{side}." if side else f"{name}."
        data[prefix + "distance"] = float(distance) if distance.reason is None else None
        data[prefix + "reason"] = distance.reason
    real = torch.cat([target, holdout])
    floor = frechet_floor(real, n=min(len(features), len(real) // 2))
    data[f"{name}.floor"] = float(floor) if floor.reason is None else None
    data[f"{name}.floor_n"] = floor.n
    known = data[f"{name}.reason"] is None
    data[f"{name}.standard_error"] = frechet_interval(features, target).standard_error if known else None


PRODUCERS = {
    "target": train_target,
    "update": update_target,
    "gradients": observe_gradients,
    "evaluator": train_evaluator,
    "auxiliary": share_auxiliary,
    "control": make_control,
    "features": extract_features,
    "score": score,
    "ensemble": train_part,
    "robust": train_robust,
    "generated": generate,
}


if __name__ == "__main__":
    pool.serve(PRODUCERS)
