"""What the ten attacks cost with the laptop profile's settings: 100 reconstructions, and growth with n.

    python benchmarks/bench_attacks.py [ATTACK ...]

Each attack runs in one thread on a target that was trained on 100 digits as in the laptop profile. The first
stage (generative model, shadow models) is made once and timed apart. Then 50, 200 and 800 reconstructions:
CPU seconds each, and how much the process's peak memory rose above what it held before. Deep-Leakage
reconstructs at most the 100 images of an update, observed in gradients of 25: 25, 50 and 100. Prints a table
and writes benchmarks/results/attacks.json; attacks that are named are replaced in it, the others stay.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from drlib import attacks, models, profiles, sections, training
from drlib.cells import Target
from drlib.data import load_splits, target_subset
from drlib.provenance import Measured
from drlib.testing import granted, silent
from drlib.types import (
    DYNAMIC,
    NO_DATA,
    PREPARE_SEED,
    WHITE_BOX,
    Attack,
    Auxiliary,
    BlackBox,
    TargetSpec,
    WhiteBox,
    balanced_labels,
)

SIZES = (50, 200, 800)
GRADIENT_SIZES = (25, 50, 100)
OUTPUT = Path(__file__).parent / "results" / "attacks.json"


def trained(target: Target, images: torch.Tensor, labels: torch.Tensor) -> torch.nn.Module:
    shape = tuple(images.shape[1:])
    model = models.build(
        target.architecture, shape=shape, num_classes=5, width=target.width, generator_seed=0
    )
    training.train(model, images, labels, target.training, seed=0)
    return model


def views(attack: Attack, target: Target, n: int) -> BlackBox:
    """The access that the attack's knowledge grants, for n reconstructions."""
    splits = load_splits(target.data)
    old, new = target_subset(splits, target.size), splits.update
    model = trained(target, old.images, old.labels)
    recipe = {"width": target.width, "size": target.size, "training": target.training.model_dump()}
    if target.update is not None:
        recipe["update"] = target.update.training.model_dump()
    shape = tuple(old.images.shape[1:])
    spec = TargetSpec.of(model, target.architecture, shape, 5, recipe=recipe)
    white_box = WhiteBox(model, spec)
    if attack.knowledge.training != DYNAMIC:
        return granted(attack, white_box)
    if attack.knowledge.model == WHITE_BOX:
        images, labels = (part[:n].unflatten(0, (-1, 25)) for part in (new.images, new.labels))
        return granted(attack, white_box, batches=(images, labels))
    before = WhiteBox(trained(target, old.images, old.labels), spec)
    training.train(model.requires_grad_(True), new.images, new.labels, target.update.training, seed=0)
    return granted(attack, WhiteBox(model, spec), before=before)


def auxiliary_of(attack: Attack, target: Target) -> Auxiliary | None:
    if attack.knowledge.dataset == NO_DATA:
        return None
    split = load_splits(target.data).auxiliary
    return Auxiliary(split.images, split.labels if attack.auxiliary_labels else None)


def resident_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def measure(name: str, pages: sections.Parameters) -> dict[str, Any]:
    attack = attacks.create(name, pages.resolved_hyperparameters(name))
    target = pages.target(pages.target_size, 0, name)
    gradients = attack.knowledge.training == DYNAMIC and attack.knowledge.model == WHITE_BOX
    sizes = GRADIENT_SIZES if gradients else SIZES
    access = views(attack, target, sizes[-1])
    began = time.process_time()
    prepared = attack.prepare(
        attack.prior_access(access),
        auxiliary_of(attack, target),
        generator=torch.Generator().manual_seed(PREPARE_SEED),
        progress=silent,
    )
    row: dict[str, Any] = {"title": attack.title, "prior_seconds": time.process_time() - began, "n": {}}
    for n in sizes:
        if gradients:
            access = views(attack, target, n)
        before = resident_mb()
        with Measured() as measured:
            began = time.process_time()
            made = attack.reconstruct(
                access,
                prepared,
                n=n,
                labels=balanced_labels(n, 5),
                generator=torch.Generator().manual_seed(0),
                progress=silent,
            )
            seconds = time.process_time() - began
        assert len(made) == n
        row["n"][str(n)] = {
            "milliseconds_each": 1000 * seconds / n,
            "memory_rise_mb": max(0.0, measured.peak_memory_mb - before),
        }
    middle = row["n"][str(sizes[1] if not gradients else sizes[2])]
    row["seconds_per_100"] = middle["milliseconds_each"] / 10
    return row


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    pages = sections.parameters("attacks", profiles.DEFAULT)
    saved = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else {"attacks": {}}
    for name in names or attacks.names():
        row = saved["attacks"][name] = measure(name, pages)
        each = "  ".join(
            f"n={n}: {part['milliseconds_each']:.0f} ms, +{part['memory_rise_mb']:.0f} MB"
            for n, part in row["n"].items()
        )
        print(
            f"{name:15} prior {row['prior_seconds']:6.1f} s  100 in {row['seconds_per_100']:6.2f} s  {each}",
            flush=True,
        )
    saved |= {
        "profile": profiles.DEFAULT,
        "shape": [1, 16, 16],
        "threads": 1,
        "device": "cpu",
        "machine": platform.machine(),
        "versions": {"python": platform.python_version(), "torch": version("torch")},
    }
    saved["attacks"] = {name: saved["attacks"][name] for name in attacks.names() if name in saved["attacks"]}
    OUTPUT.write_text(json.dumps(saved, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
