"""Updates-Leak: shadow models side by side against one after the other, the time of an attack, and its worth.

    python benchmarks/bench_updates_leak.py

The loop is ``training.train`` for each model: what one would write without ``train_many``. Both draw the same
orders from the same seeds and must give the same answers. The attack is a little larger than in the laptop
profile (digits 16x16, 20 shadow models on 400 images each, 600 updates with 100 images). Prints small tables
and writes benchmarks/results/updates_leak.json. Times are CPU seconds on one thread, so that other work on
the machine matters little; the runs alternate, and the median of three is reported.

Its worth, for updates with 5 and with 100 images: the mean squared error of the best one-to-one matching of
the reconstructions with the update's images, conditional against unconditional generator, each with three
preparations; on a model that is none of the shadow models, updated with auxiliary images (classes that the
shadow models know) or with the digits 0-4 of the update split (the target of the book). Ten minutes.
"""

from __future__ import annotations

import copy
import json
import platform
import statistics
import time
from importlib.metadata import version
from pathlib import Path

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from drlib import models, training
from drlib.attacks.updates_leak import UpdatesLeak
from drlib.best_of_many import squared_distances
from drlib.data import DataSpec, Splits, load_splits
from drlib.metrics.sample import sample_distance
from drlib.testing import silent
from drlib.train_many import train_many, update_many
from drlib.training import TrainSpec
from drlib.types import PREPARE_SEED, Auxiliary, NoAccess, TargetSpec, Update, balanced_labels

SHAPE, CLASSES, BASES, BASE_SIZE, UPDATES, UPDATE_SIZE, REPEATS = (1, 16, 16), 5, 8, 400, 64, 100, 3
BASE = TrainSpec(epochs=5, min_steps=0)  # 35 of the 301 steps of a full training: the ratio is the same
UPDATE = TrainSpec(
    epochs=1,
    min_steps=0,
    batch_size=64,
    optimizer="sgd",
    learning_rate=1e-2,
    schedule="constant",
    weight_decay=0,
)
SETTINGS = {
    "bases": 20,
    "updates": 600,
    "difference": "log_probability",
    "adversarial_weight": 0.0,
    "hidden": 128,
    "epochs": 10,
    "learning_rate": 1e-3,
    "updates_per_batch": 8,
    "samples": 20,
}
OUTPUT = Path(__file__).parent / "results" / "updates_leak.json"


def build(architecture: str) -> list[nn.Module]:
    return [
        models.build(architecture, shape=SHAPE, num_classes=CLASSES, generator_seed=seed)
        for seed in range(BASES)
    ]


def shadows_vectorized(
    architecture: str, images: Tensor, labels: Tensor, rows: list[Tensor]
) -> dict[str, Tensor]:
    """Seconds of training the shadow models and of updating copies, and the answers."""
    bases, seconds = build(architecture), []
    began = time.process_time()
    train_many(bases, images, labels, rows[0], BASE, seeds=list(range(BASES)))
    seconds.append(time.process_time() - began)
    began = time.process_time()
    origins = torch.arange(UPDATES) % BASES
    groups = update_many(bases, origins, images, labels, rows[1], UPDATE, seeds=list(range(UPDATES)))
    answers = torch.cat([group.probabilities(images[:100]) for group in groups])
    return {"seconds": torch.tensor([*seconds, time.process_time() - began]), "answers": answers}


def shadows_in_a_loop(
    architecture: str, images: Tensor, labels: Tensor, rows: list[Tensor]
) -> dict[str, Tensor]:
    bases, seconds = build(architecture), []
    began = time.process_time()
    for seed, (model, own) in enumerate(zip(bases, rows[0], strict=True)):
        training.train(model, images[own], labels[own], BASE, seed=seed)
    seconds.append(time.process_time() - began)
    began = time.process_time()
    answers = []
    for seed, own in enumerate(rows[1]):
        updated = copy.deepcopy(bases[seed % BASES])
        training.train(updated, images[own], labels[own], UPDATE, seed=seed)
        answers.append(training.predict(updated, images[:100]))
    return {"seconds": torch.tensor([*seconds, time.process_time() - began]), "answers": torch.stack(answers)}


def shadow_table(images: Tensor, labels: Tensor) -> dict[str, dict[str, float]]:
    generator = torch.Generator().manual_seed(0)
    rows = [
        torch.stack([torch.randperm(len(images), generator=generator)[:size] for _ in range(count)])
        for count, size in ((BASES, BASE_SIZE), (UPDATES, UPDATE_SIZE))
    ]
    table = {}
    for architecture in ("convnet", "lenet", "mlp"):
        seconds: dict[str, list[Tensor]] = {"together": [], "loop": []}
        for _ in range(REPEATS):
            found = {}
            for name, function in (("together", shadows_vectorized), ("loop", shadows_in_a_loop)):
                found[name] = function(architecture, images, labels, rows)
                seconds[name].append(found[name]["seconds"])
        together, loop = (
            [statistics.median(times) for times in torch.stack(seconds[name]).T.tolist()] for name in seconds
        )
        table[architecture] = {
            "train_ms_per_model_step": 1e3 * together[0] / (BASES * 35),
            "train_ratio": loop[0] / together[0],
            "update_ms": 1e3 * together[1] / UPDATES,
            "update_ratio": loop[1] / together[1],
            "largest_difference": float(
                (found["together"]["answers"] - found["loop"]["answers"]).abs().max()
            ),
        }
        row = table[architecture]
        print(
            f"{architecture:8} training {row['train_ms_per_model_step']:5.2f} ms a model and step, "
            f"{row['train_ratio']:4.1f} times the loop's speed; update {row['update_ms']:5.2f} ms, "
            f"{row['update_ratio']:4.1f} times; largest difference {row['largest_difference']:.1e}"
        )
    return table


def attack_seconds(auxiliary: Auxiliary, images: Tensor, labels: Tensor) -> dict[str, float]:
    """CPU seconds of one preparation, which serves all targets of a recipe, and of 100 reconstructions."""
    recipe = {
        "width": 1.0,
        "size": BASE_SIZE,
        "training": TrainSpec().model_dump(),
        "update": UPDATE.model_dump(),
    }
    before = build("convnet")[0].eval()
    spec = TargetSpec.of(before, "convnet", SHAPE, CLASSES, recipe=recipe)
    after = copy.deepcopy(before)
    training.train(after, images, labels, UPDATE, seed=0)
    attack = UpdatesLeak(**SETTINGS)
    began = time.process_time()
    prepared = attack.prepare(
        NoAccess(spec), auxiliary, generator=torch.Generator().manual_seed(PREPARE_SEED), progress=silent
    )
    seconds = {"prepare": time.process_time() - began, "reconstruct_100": []}
    access = Update(
        lambda asked: training.predict(after, asked), lambda asked: training.predict(before, asked), spec
    )
    for seed in range(REPEATS):
        began = time.process_time()
        attack.reconstruct(
            access,
            prepared,
            n=100,
            labels=balanced_labels(100, CLASSES),
            generator=torch.Generator().manual_seed(seed),
            progress=silent,
        )
        seconds["reconstruct_100"].append(time.process_time() - began)
    seconds["reconstruct_100"] = statistics.median(seconds["reconstruct_100"])
    print(f"prepare {seconds['prepare']:.1f} s, 100 reconstructions {seconds['reconstruct_100']:.2f} s")
    return seconds


def matched(images: Tensor, samples: Tensor) -> float:
    distances = squared_distances(images.flatten(1)[None], samples.flatten(1)[None])[0]
    return float(distances[linear_sum_assignment(distances.numpy())].mean())


def worth(
    splits: Splits, update_size: int, sets: int, changes: dict[str, int]
) -> dict[str, dict[str, float]]:
    """Matched errors by where the update's images are from: conditional, unconditional, and real images."""
    auxiliary = splits.auxiliary
    recipe = {
        "width": 1.0,
        "size": BASE_SIZE,
        "training": TrainSpec().model_dump(),
        "update": UPDATE.model_dump(),
    }
    errors: dict[str, list[list[float]]] = {"auxiliary": [], "target": []}
    similarity: list[list[float]] = []
    for seed in range(REPEATS):
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(auxiliary), generator=generator)
        sources = {
            "auxiliary": (auxiliary.images[order], auxiliary.labels[order], len(auxiliary)),
            "target": (
                torch.cat([splits.target.images[:BASE_SIZE], splits.update.images]),
                torch.cat([splits.target.labels[:BASE_SIZE], splits.update.labels]),
                BASE_SIZE + len(splits.update),
            ),
        }
        model = models.build("convnet", shape=SHAPE, num_classes=CLASSES)
        spec = TargetSpec.of(model, "convnet", SHAPE, CLASSES, recipe=recipe)
        attacks = [
            UpdatesLeak(**{**SETTINGS, **changes}, update_size=update_size, conditional=told)
            for told in (True, False)
        ]
        prepared = [
            attack.prepare(
                NoAccess(spec),
                Auxiliary(auxiliary.images, auxiliary.labels),
                generator=torch.Generator().manual_seed(seed + PREPARE_SEED),
                progress=silent,
            )
            for attack in attacks
        ]
        for source, (images, labels, available) in sources.items():
            before = models.build("convnet", shape=SHAPE, num_classes=CLASSES, generator_seed=100 + seed)
            training.train(before, images[:BASE_SIZE], labels[:BASE_SIZE], TrainSpec(), seed=100 + seed)
            for number in range(sets):
                draw = torch.randperm(available - BASE_SIZE, generator=generator)[:update_size] + BASE_SIZE
                after = copy.deepcopy(before)
                training.train(after, images[draw], labels[draw], UPDATE, seed=number)
                access = Update(
                    lambda asked, after=after: training.predict(after, asked),
                    lambda asked, before=before: training.predict(before, asked),
                    spec,
                )
                found = [
                    attack.reconstruct(
                        access,
                        made,
                        n=update_size,
                        labels=balanced_labels(update_size, CLASSES),
                        generator=torch.Generator().manual_seed(number),
                        progress=silent,
                    ).images
                    for attack, made in zip(attacks, prepared, strict=True)
                ]
                real = auxiliary.images[torch.randperm(len(auxiliary), generator=generator)[:update_size]]
                errors[source].append([matched(images[draw], samples) for samples in (*found, real)])
                if source == "target" and update_size == 100 and number == 0:
                    shown = [*found, real, splits.holdout.images[:100]]
                    near = [sample_distance(samples, images[draw], "ssim").distance for samples in shown]
                    held = [
                        sample_distance(samples, splits.holdout.images[:100], "ssim").distance
                        for samples in found
                    ]
                    similarity.append([*near, *held])
    table = {}
    for source, rows in errors.items():
        values = torch.tensor(rows)
        gain = values[:, 1] - values[:, 0]
        table[source] = {
            **dict(
                zip(("conditional", "unconditional", "real_auxiliary"), values.mean(0).tolist(), strict=True)
            ),
            "gain": float(gain.mean()),
            "standard_error": float(gain.std() / len(gain) ** 0.5),
            "updates": len(gain),
        }
        print(update_size, source, {name: round(value, 5) for name, value in table[source].items()})
    if similarity:
        names = ("conditional", "unconditional", "real_auxiliary", "holdout")
        names = (*names, "conditional_to_holdout", "unconditional_to_holdout")
        table["ssim"] = dict(zip(names, torch.tensor(similarity).mean(0).tolist(), strict=True))
        print(table["ssim"])
    return table


def main() -> None:
    torch.set_num_threads(1)
    splits = load_splits(DataSpec())
    images, labels = splits.auxiliary.images, splits.auxiliary.labels
    few = {"updates": 1200, "epochs": 30, "updates_per_batch": 16}
    result = {
        "shape": SHAPE,
        "models": BASES,
        "updates": UPDATES,
        "update_size": UPDATE_SIZE,
        "repeats": REPEATS,
        "threads": 1,
        "device": "cpu",
        "machine": platform.machine(),
        "versions": {"python": platform.python_version(), "torch": version("torch")},
        "shadows": shadow_table(images, labels),
        "attack_cpu_seconds": attack_seconds(
            Auxiliary(images, labels), splits.update.images, splits.update.labels
        ),
        "matched_error": {"5": worth(splits, 5, 40, few), "100": worth(splits, 100, 10, {})},
    }
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
