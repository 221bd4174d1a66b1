"""Does DeepInversion beat MI-Face, and does jitter help it? Nearest-neighbor SSIM over several seeds.

    python benchmarks/bench_deep_inversion.py [--size 100] [--seeds 5]

Target: ``convnet`` on handwritten digits (classes 0-4, 16x16). In every seed the model is trained anew and
each attack makes as many images as there are targets, all from the same starting images. SSIM is with the
nearest target of the same class; beside it stands the SSIM with the nearest of equally many holdout images,
which were never trained on. The split is the same in all seeds, so the gap's interval leaves out the luck of
the split: uniform noise has a gap of +0.006 [+0.001, +0.011] at 100 targets, and only more than a control's
gap means anything. Differences are paired by image; their 95 % interval resamples seeds and images. Prints
two tables and writes benchmarks/results/deep_inversion.json (deep_inversion_<size>.json for another size).
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from drlib import attacks, models, training
from drlib.data import DataSpec, load_splits, target_subset
from drlib.metrics import sample_distance
from drlib.metrics.interval import paired_bootstrap
from drlib.testing import silent
from drlib.types import WhiteBox, balanced_labels

RESULTS = Path(__file__).parent / "results"
DEFAULT_SIZE = 100

SHARED = {"steps": 400, "learning_rate": 0.05, "l2": 0.1}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "MI-Face": ("mi_face", {"steps": 300}),
    "DeepDream, jitter 1": ("deep_dream", {**SHARED, "tv": 1.0, "l2": 0.3, "jitter": 1}),
    "DeepInversion, jitter 1": ("deep_inversion", {**SHARED, "tv": 0.3, "bn": 1.0, "jitter": 1}),
    "DeepInversion, jitter 0": ("deep_inversion", {**SHARED, "tv": 0.3, "bn": 1.0, "jitter": 0}),
}
COMPARISONS = [
    ("DeepInversion, jitter 1", "MI-Face"),
    ("DeepInversion, jitter 0", "MI-Face"),
    ("DeepInversion, jitter 1", "DeepInversion, jitter 0"),
    ("DeepInversion, jitter 1", "DeepDream, jitter 1"),
    ("DeepDream, jitter 1", "MI-Face"),
]


def target(size: int, seed: int) -> tuple[WhiteBox, dict[str, float]]:
    """A convnet trained on the first ``size`` targets, with its accuracy."""
    splits = load_splits(DataSpec())
    subset, shape = target_subset(splits, size), tuple(splits.target.images.shape[1:])
    classes = len(splits.classes)
    model = models.build("convnet", shape=shape, num_classes=classes, generator_seed=seed)
    training.train(model, subset.images, subset.labels, training.TrainSpec(), seed=seed)
    accuracy = {
        "train": training.accuracy(model, subset.images, subset.labels),
        "test": training.accuracy(model, splits.test.images, splits.test.labels),
    }
    names = [str(name) for name in splits.classes]
    return WhiteBox.from_module(model, [0.0], [1.0], names, shape=shape, architecture="convnet"), accuracy


def one_seed(size: int, seed: int) -> dict[str, Any]:
    """Train one target, run every variant on it; values per image."""
    white_box, accuracy = target(size, seed)
    splits = load_splits(DataSpec())
    known, unseen = target_subset(splits, size), splits.holdout
    m = min(size, len(unseen)) // len(splits.classes) * len(splits.classes)
    labels = balanced_labels(size, len(splits.classes))
    rows = {}
    for title, (name, hyperparameters) in VARIANTS.items():
        began = time.process_time()
        result = attacks.create(name, hyperparameters).reconstruct(
            white_box,
            None,
            n=size,
            labels=labels,
            generator=torch.Generator().manual_seed(seed),
            progress=silent,
        )
        seconds = time.process_time() - began
        near, near_m, near_holdout = (
            sample_distance(result.images, split.images[:k], "ssim", labels, split.labels[:k])
            for split, k in ((known, size), (known, m), (unseen, m))
        )
        confidence = white_box.query(result.images).gather(1, labels[:, None])
        rows[title] = {
            "ssim": near.values.double().numpy(),
            "gap": (near_m.values - near_holdout.values).double().numpy(),
            "coverage": near.coverage,
            "holdout": near_holdout.distance,
            "confidence": confidence.mean().item(),
            "cpu_seconds": seconds,
        }
    print(f"seed {seed}: target accuracy {accuracy['train']:.3f} / {accuracy['test']:.3f}", flush=True)
    return {"accuracy": accuracy, "m": m, "rows": rows}


def interval(differences: list[np.ndarray]) -> dict[str, float]:
    found = paired_bootstrap(differences)
    return {"mean": found.mean, "low": found.low, "high": found.high}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=DEFAULT_SIZE, help="targets, and images per attack")
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    began = time.process_time()
    seeds = [one_seed(arguments.size, seed) for seed in range(arguments.seeds)]

    print(f"\n{'attack':26}{'SSIM':>7}{'holdout':>9}{'gap [95 %]':>26}{'coverage':>10}{'p_y':>7}{'CPU s':>7}")
    table = {}
    for title in VARIANTS:
        rows = [seed["rows"][title] for seed in seeds]
        entry: dict[str, Any] = {
            key: float(np.mean([row[key] for row in rows]))
            for key in ("holdout", "coverage", "confidence", "cpu_seconds")
        }
        entry["ssim_by_seed"] = [float(row["ssim"].mean()) for row in rows]
        entry["ssim"] = float(np.mean(entry["ssim_by_seed"]))
        entry["gap"] = interval([row["gap"] for row in rows])
        table[title] = entry
        gap = f"{entry['gap']['mean']:+.3f} [{entry['gap']['low']:+.3f}, {entry['gap']['high']:+.3f}]"
        print(
            f"{title:26}{entry['ssim']:7.3f}{entry['holdout']:9.3f}{gap:>26}{entry['coverage']:10.2f}"
            f"{entry['confidence']:7.3f}{entry['cpu_seconds']:7.1f}"
        )

    print(f"\n{'difference of SSIM':52}{'mean [95 %]':>26}")
    differences = {}
    for better, worse in COMPARISONS:
        found = interval([seed["rows"][better]["ssim"] - seed["rows"][worse]["ssim"] for seed in seeds])
        differences[f"{better} - {worse}"] = found
        print(
            f"{better} - {worse}".ljust(52)
            + f"{found['mean']:+.3f} [{found['low']:+.3f}, {found['high']:+.3f}]".rjust(26)
        )

    result = {
        "data": "digits, classes 0-4, 1x16x16",
        "architecture": "convnet",
        "n": arguments.size,
        "m": seeds[0]["m"],
        "seeds": list(range(arguments.seeds)),
        "target_accuracy": [seed["accuracy"] for seed in seeds],
        "settings": {title: {"attack": name, **values} for title, (name, values) in VARIANTS.items()},
        "attacks": table,
        "differences": differences,
        "cpu_seconds": time.process_time() - began,
        "threads": 1,
        "device": "cpu",
        "machine": platform.machine(),
        "versions": {"python": platform.python_version(), "torch": version("torch")},
    }
    suffix = "" if arguments.size == DEFAULT_SIZE else f"_{arguments.size}"
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"deep_inversion{suffix}.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
