"""60 small models for memorization, trained side by side against one after another.

    python benchmarks/bench_memorization.py

Both sides train the same models on the same subsets in the same orders (digits at their native 8x8) and ask
each for all images. Times are CPU seconds on one thread; the runs alternate, and the median of five is
reported. Prints a small table and writes benchmarks/results/memorization.json.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from importlib.metadata import version
from pathlib import Path

import torch
from torch import Tensor, nn

from drlib import models, training
from drlib.data import DataSpec, load_splits
from drlib.train_many import train_many
from drlib.training import TrainSpec

MODELS, SIZE, SHARE, REPEATS = 60, 200, 0.7, 5
NETWORKS = {"mlp": ("mlp", 8, 0.25), "cnn": ("convnet", 8, 0.5), "cnn 16x16": ("convnet", 16, 1.0)}
RECIPE = TrainSpec(epochs=5, min_steps=0, batch_size=32)
OUTPUT = Path(__file__).parent / "results" / "memorization.json"


def build(architecture: str, side: int, width: float) -> list[nn.Module]:
    return [
        models.build(architecture, shape=(1, side, side), num_classes=5, width=width, generator_seed=seed)
        for seed in range(MODELS)
    ]


def together(group: list[nn.Module], images: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
    train_many(group, images, labels, rows, RECIPE, seeds=list(range(MODELS)))
    return torch.stack([training.predict(model, images) for model in group])


def one_after_another(group: list[nn.Module], images: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
    answers = []
    for seed, (model, own) in enumerate(zip(group, rows, strict=True)):
        training.train(model, images[own], labels[own], RECIPE, seed=seed)
        answers.append(training.predict(model, images))
    return torch.stack(answers)


def compared(name: str) -> dict[str, float]:
    architecture, side, width = NETWORKS[name]
    target = load_splits(DataSpec(side=side)).target
    images, labels = target.images[:SIZE], target.labels[:SIZE]
    generator = torch.Generator().manual_seed(0)
    rows = torch.stack(
        [torch.randperm(SIZE, generator=generator)[: int(SHARE * SIZE)] for _ in range(MODELS)]
    )
    seconds: dict[str, list[float]] = {"together": [], "loop": []}
    answers = {}
    for _ in range(REPEATS):
        for way, function in (("together", together), ("loop", one_after_another)):
            group = build(architecture, side, width)
            began = time.process_time()
            answers[way] = function(group, images, labels, rows)
            seconds[way].append(time.process_time() - began)
    medians = {way: statistics.median(found) for way, found in seconds.items()}
    return {
        "together_seconds": medians["together"],
        "loop_seconds": medians["loop"],
        "ratio": medians["loop"] / medians["together"],
        "largest_difference": float((answers["together"] - answers["loop"]).abs().max()),
        "mean_difference": float((answers["together"] - answers["loop"]).abs().mean()),
    }


def main() -> None:
    torch.set_num_threads(1)
    result = {
        "models": MODELS,
        "images": SIZE,
        "share": SHARE,
        "batch_size": RECIPE.batch_size,
        "networks": {},
        "threads": 1,
        "device": f"cpu ({platform.machine()}, {platform.system()})",
        "versions": {"python": platform.python_version(), "torch": version("torch")},
    }
    for name in NETWORKS:
        row = result["networks"][name] = compared(name)
        print(
            f"{name:10} together {row['together_seconds']:6.2f} s, one after another "
            f"{row['loop_seconds']:6.2f} s: {row['ratio']:.1f} times; answers differ by "
            f"{row['largest_difference']:.1e} at most, {row['mean_difference']:.1e} on average"
        )
    OUTPUT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
