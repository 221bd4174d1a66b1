"""Revealer and KEDMI on 16x16 digits: what their two stages cost, and what they gain over their prior.

    python benchmarks/bench_gan.py [--seeds 3]

Target: ``convnet`` on 400 handwritten digits (classes 0-4), auxiliary data: digits of classes 5-9, unlabeled.
Quality: in every seed the target, the prior and the latents are made anew; each variant makes 100 images.
The evaluator is a ``lenet`` trained on targets and holdout together. SSIM is with the nearest of 100 targets
of the same class, beside it with the nearest of 100 holdout images; diversity is the mean distance of two
images of a class. Differences are paired by image, their 95 % interval resamples seeds and images.
Cost: the same search for 50, 200 and 800 images (seconds per image, and the largest batch that the target
saw), and one row at a time. Times are CPU seconds on one thread, so that other work on the machine matters
little. Prints tables and writes benchmarks/results/gan.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from drlib import models, training
from drlib.attacks.kedmi import KEDMI
from drlib.attacks.revealer import Revealer
from drlib.data import DataSpec, load_splits
from drlib.metrics import sample_distance
from drlib.metrics.interval import paired_bootstrap
from drlib.testing import silent
from drlib.types import (
    PREPARE_SEED,
    Auxiliary,
    NoAccess,
    Reconstruction,
    TargetSpec,
    WhiteBox,
    balanced_labels,
)

OUTPUT = Path(__file__).parent / "results" / "gan.json"
N, SHAPE, CLASSES = 100, (1, 16, 16), 5
LABELS = balanced_labels(N, CLASSES)

NETWORKS = {"width": 16, "z_dim": 32}
HINGE = {"gan": "hinge", "prior_steps": 500, "critic_steps": 2, "prior_learning_rate": 1e-3}
HINGE |= {"prior_betas": (0.0, 0.9), **NETWORKS}
SEARCH = {"steps": 100, "learning_rate": 1e-3, "restarts": 3}
MARGIN = {**SEARCH, "identity_loss": "max_margin", "identity_weight": 10.0}
SELECTION = {"steps": 1, "learning_rate": 0.0, "restarts": 1, "clip": 100.0, "candidates": 4000}

PRIORS: dict[str, Any] = {
    "Revealer, hinge": Revealer(**HINGE),
    "Revealer, WGAN-GP": Revealer(prior_steps=400, critic_steps=3, prior_learning_rate=5e-4, **NETWORKS),
    "KEDMI": KEDMI(prior_steps=500, critic_steps=1, prior_learning_rate=1e-3, **NETWORKS),
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "Revealer, cross entropy": ("Revealer, hinge", SEARCH),
    "Revealer, max margin": ("Revealer, hinge", MARGIN),
    "Revealer, no search: best of 4000": ("Revealer, hinge", SELECTION),
    "Revealer, cross entropy, WGAN-GP": ("Revealer, WGAN-GP", SEARCH),
    "KEDMI, sigma^2 from e": ("KEDMI", {"steps": 300, "samples": 8}),
    "KEDMI, sigma^2 from 1": ("KEDMI", {"steps": 300, "samples": 8, "init_log_var": 0.0}),
    "KEDMI, sigma^2 from e^-6": ("KEDMI", {"steps": 300, "samples": 8, "init_log_var": -6.0}),
    "KEDMI, sigma^2 from e, long": ("KEDMI", {"steps": 2400}),
    "KEDMI, sigma^2 from e^-6, long": ("KEDMI", {"steps": 2400, "init_log_var": -6.0}),
}
COMPARISONS = [
    ("Revealer, max margin", "Revealer, cross entropy"),
    ("Revealer, cross entropy", "Revealer, no search: best of 4000"),
    ("Revealer, cross entropy", "Revealer, cross entropy, WGAN-GP"),
    ("KEDMI, sigma^2 from e", "Revealer, cross entropy"),
    ("KEDMI, sigma^2 from 1", "KEDMI, sigma^2 from e"),
    ("KEDMI, sigma^2 from e^-6, long", "KEDMI, sigma^2 from e, long"),
]


def trained(architecture: str, images: Tensor, labels: Tensor, seed: int, **recipe: Any) -> nn.Module:
    model = models.build(architecture, shape=SHAPE, num_classes=CLASSES, generator_seed=seed)
    training.train(model, images, labels, training.TrainSpec(**recipe), seed=seed)
    return model


def target(seed: int) -> WhiteBox:
    split = load_splits(DataSpec()).target
    model = trained("convnet", split.images, split.labels, seed)
    return WhiteBox(model, TargetSpec.of(model, "convnet", SHAPE, CLASSES))


def prepare(attack: Any, white_box: WhiteBox, seed: int) -> tuple[dict[str, Tensor], float]:
    """The prior and the CPU seconds it took."""
    began = time.process_time()
    prepared = attack.prepare(
        white_box if attack.prior_sees_target else NoAccess(white_box.spec),
        Auxiliary(load_splits(DataSpec()).auxiliary.images),
        generator=torch.Generator().manual_seed(seed + PREPARE_SEED),
        progress=silent,
    )
    return prepared, time.process_time() - began


def reconstruct(
    attack: Any, white_box: WhiteBox, prepared: dict[str, Tensor], n: int, seed: int
) -> tuple[Reconstruction, float]:
    """The reconstruction and the CPU seconds it took."""
    began = time.process_time()
    result = attack.reconstruct(
        white_box,
        prepared,
        n=n,
        labels=balanced_labels(n, CLASSES),
        generator=torch.Generator().manual_seed(seed),
        progress=silent,
    )
    return result, time.process_time() - began


def quality(images: Tensor, white_box: WhiteBox, evaluator: nn.Module) -> dict[str, Any]:
    splits = load_splits(DataSpec())
    near, near_holdout = (
        sample_distance(images, split.images[:N], "ssim", LABELS, split.labels[:N])
        for split in (splits.target, splits.holdout)
    )
    spread = [torch.pdist(images[label == LABELS].flatten(1)).mean() for label in range(CLASSES)]
    return {
        "ssim": near.values.double().numpy(),
        "holdout": near_holdout.distance,
        "coverage": near.coverage,
        "confidence": white_box.query(images).gather(1, LABELS[:, None]).mean().item(),
        "evaluator": training.accuracy(evaluator, images, LABELS),
        "diversity": torch.stack(spread).mean().item(),
    }


def one_seed(seed: int, evaluator: nn.Module) -> dict[str, Any]:
    """All priors and variants on one target: rows by name, and the seconds of each stage."""
    white_box = target(seed)
    rows, seconds, made = {}, {}, {}
    for name, attack in PRIORS.items():
        made[name], seconds[name] = prepare(attack, white_box, seed)
        generator = torch.Generator().manual_seed(seed)
        images = attack.prior_samples(made[name], n=N, labels=LABELS, generator=generator)
        rows[f"{name}: prior samples"] = quality(images, white_box, evaluator)
    for name, (prior, changes) in VARIANTS.items():
        attack = dataclasses.replace(PRIORS[prior], **changes)
        result, seconds[name] = reconstruct(attack, white_box, made[prior], N, seed)
        rows[name] = {**quality(result.images, white_box, evaluator), "facts": result.facts}
    print(f"seed {seed} done", flush=True)
    return {"rows": rows, "seconds": seconds}


def cost() -> dict[str, Any]:
    """Seconds per image against the number of images, and one row at a time."""
    white_box, seen = target(0), []
    white_box.model.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    short = {"Revealer, hinge": {**SEARCH, "steps": 20}, "KEDMI": {"steps": 20, "samples": 8}}
    table: dict[str, Any] = {}
    for name, changes in short.items():
        attack = dataclasses.replace(PRIORS[name], prior_steps=1, **changes)
        prepared, _ = prepare(attack, white_box, 0)
        reconstruct(attack, white_box, prepared, 10, 0)  # warm up
        table[name] = {}
        for n in (50, 200, 800):
            seen.clear()
            _, seconds = reconstruct(attack, white_box, prepared, n, 0)
            table[name][n] = {"seconds_per_image": seconds / n, "largest_batch": max(seen)}
            print(f"{name:18} n {n:4}: {1000 * seconds / n:7.2f} ms an image, largest batch {max(seen)}")
        if name == "KEDMI":
            continue
        alone = dataclasses.replace(attack, batch_size=1)
        _, seconds = reconstruct(alone, white_box, prepared, 10, 0)
        ratio = seconds / 10 / table[name][200]["seconds_per_image"]
        table[name]["one_row_at_a_time"] = {"seconds_per_image": seconds / 10, "ratio": ratio}
        print(f"{name:18} one row at a time: {100 * seconds:7.2f} ms an image, ratio {ratio:.1f}")
    return table


def interval(differences: list[np.ndarray]) -> dict[str, float]:
    found = paired_bootstrap(differences)
    return {"mean": found.mean, "low": found.low, "high": found.high}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    splits = load_splits(DataSpec())
    images = torch.cat([splits.target.images, splits.holdout.images])
    labels = torch.cat([splits.target.labels, splits.holdout.labels])
    evaluator = trained("lenet", images, labels, 1, epochs=60)
    test = training.accuracy(evaluator, splits.test.images, splits.test.labels)
    seeds = [one_seed(seed, evaluator) for seed in range(arguments.seeds)]

    print(f"\n{'':38}{'SSIM':>7}{'holdout':>9}{'cover.':>8}{'p_y':>7}{'eval.':>7}{'divers.':>9}{'CPU s':>7}")
    table = {}
    for name in seeds[0]["rows"]:
        rows = [seed["rows"][name] for seed in seeds]
        entry: dict[str, Any] = {
            key: float(np.mean([row[key] for row in rows]))
            for key in ("holdout", "coverage", "confidence", "evaluator", "diversity")
        }
        entry["evaluator_by_seed"] = [row["evaluator"] for row in rows]
        entry["facts_by_seed"] = [row.get("facts", {}) for row in rows]
        entry["ssim_by_seed"] = [float(row["ssim"].mean()) for row in rows]
        entry["ssim"] = float(np.mean(entry["ssim_by_seed"]))
        stage = name.removesuffix(": prior samples")
        entry["cpu_seconds"] = float(np.mean([seed["seconds"][stage] for seed in seeds]))
        table[name] = entry
        print(
            f"{name:38}{entry['ssim']:7.3f}{entry['holdout']:9.3f}{entry['coverage']:8.2f}"
            f"{entry['confidence']:7.3f}{entry['evaluator']:7.3f}{entry['diversity']:9.2f}{entry['cpu_seconds']:7.1f}"
        )

    print(f"\n{'difference of SSIM':64}{'mean [95 %]':>26}")
    differences = {}
    for better, worse in COMPARISONS:
        found = interval([seed["rows"][better]["ssim"] - seed["rows"][worse]["ssim"] for seed in seeds])
        differences[f"{better} - {worse}"] = found
        print(
            f"{better} - {worse}".ljust(70)
            + f"{found['mean']:+.3f} [{found['low']:+.3f}, {found['high']:+.3f}]"
        )
    print()
    result = {
        "data": "digits, target classes 0-4, auxiliary classes 5-9, 1x16x16",
        "architecture": "convnet",
        "n": N,
        "seeds": list(range(arguments.seeds)),
        "evaluator_test_accuracy": test,
        "priors": {name: attack.hyperparameters(stage="prepare") for name, attack in PRIORS.items()},
        "settings": {name: {"prior": prior, **changes} for name, (prior, changes) in VARIANTS.items()},
        "rows": table,
        "differences": differences,
        "cost": cost(),
        "threads": 1,
        "device": "cpu",
        "machine": platform.machine(),
        "versions": {"python": platform.python_version(), "torch": version("torch")},
    }
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
