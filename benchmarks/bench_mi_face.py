"""MI-Face on 256 images of 16x16: one batch against a loop over images, the same steps.

    python benchmarks/bench_mi_face.py

The loop is what one would write in plain PyTorch, an image at a time. Both do the same number of steps for
every image (no early stop) and must give the same images. Prints a small table and writes
benchmarks/results/mi_face.json. Times are CPU seconds on one thread, so that other work on the machine
matters little; the runs alternate, and the median of five is reported.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from importlib.metadata import version
from pathlib import Path

import torch
from torch import Tensor

from drlib import models, optimize
from drlib.attacks.mi_face import MIFace
from drlib.testing import silent
from drlib.types import TargetSpec, WhiteBox, balanced_labels

N, SIDE, CLASSES, STEPS, REPEATS = 256, 16, 5, 20, 5
OUTPUT = Path(__file__).parent / "results" / "mi_face.json"


def one_by_one(white_box: WhiteBox, attack: MIFace, labels: Tensor) -> Tensor:
    """The same descent, an image at a time; returns the cheapest iterate of each."""
    start = optimize.uniform_images(len(labels), white_box.spec.shape, torch.Generator().manual_seed(0))
    results = []
    for image, label in zip(start.split(1), labels.tolist(), strict=True):
        best, lowest = image, float("inf")
        for _ in range(attack.steps + 1):
            image = image.detach().requires_grad_(True)
            cost = 1 - white_box.model(image).softmax(dim=1)[0, label]
            (gradient,) = torch.autograd.grad(cost, image)
            if cost.item() < lowest:
                best, lowest = image.detach(), cost.item()
            image = (image.detach() - attack.learning_rate * gradient).clamp(0, 1)
        results.append(best)
    return torch.cat(results)


def batched(white_box: WhiteBox, attack: MIFace, labels: Tensor) -> Tensor:
    return attack.reconstruct(
        white_box,
        None,
        n=len(labels),
        labels=labels,
        generator=torch.Generator().manual_seed(0),
        progress=silent,
    ).images


def main() -> None:
    torch.set_num_threads(1)
    attack = MIFace(steps=STEPS, confidence=1.0, patience=STEPS + 1, batch_size=N)
    labels = balanced_labels(N, CLASSES)
    shape = (1, SIDE, SIDE)
    table = {}
    for architecture in ("convnet", "mlp"):
        model = models.build(architecture, shape=shape, num_classes=CLASSES, generator_seed=0)
        model.to(memory_format=torch.channels_last)
        white_box = WhiteBox(model, TargetSpec(architecture, shape, CLASSES, models.has_batchnorm(model)))
        batched(white_box, MIFace(steps=2), labels)  # warm up
        seconds: dict[str, list[float]] = {"batch": [], "loop": []}
        for _ in range(REPEATS):
            images = {}
            for name, function in (("batch", batched), ("loop", one_by_one)):
                began = time.process_time()
                images[name] = function(white_box, attack, labels)
                seconds[name].append(time.process_time() - began)
        batch, loop = (statistics.median(seconds[name]) for name in ("batch", "loop"))
        table[architecture] = {
            "batch_cpu_seconds": batch,
            "loop_cpu_seconds": loop,
            "ratio": loop / batch,
            "image_steps_per_cpu_second": N * (STEPS + 1) / batch,
            "largest_difference": float((images["batch"] - images["loop"]).abs().max()),
        }
        print(
            f"{architecture:8} batch {batch:7.3f} s  loop {loop:7.3f} s  ratio {loop / batch:5.1f}"
            f"  largest difference {table[architecture]['largest_difference']:.1e}"
        )
    result = {
        "n": N,
        "shape": shape,
        "steps": STEPS,
        "repeats": REPEATS,
        "threads": 1,
        "device": "cpu",
        "machine": platform.machine(),
        "versions": {"python": platform.python_version(), "torch": version("torch")},
        "architectures": table,
    }
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
