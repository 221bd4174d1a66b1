"""Inv-Alignment and Bias-Rec: CPU seconds for 100 reconstructions of 16x16, and against one image at a time.

    python benchmarks/bench_decoders.py

Both at the settings of the laptop profile, on random images and an untrained target: the time does not
depend on them. Inv-Alignment is timed apart for the decoder (896 auxiliary images, once a target) and for
the reconstruction; the loop decodes one pseudo-posterior at a time. Bias-Rec takes one gradient of the
weighted sum of margins; the loop takes the gradient of each candidate's margin and adds them up, which must
give the same loss. Times are CPU seconds on one thread, so that other work on the machine matters little;
the median of three runs is reported. Prints a small table and writes benchmarks/results/decoders.json.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from drlib import models
from drlib.attacks.bias_rec import BiasRec
from drlib.attacks.inv_alignment import InvAlignment
from drlib.decoders import Decoder, truncated
from drlib.pseudo_posteriors import between
from drlib.stationarity import Stationarity
from drlib.testing import silent
from drlib.types import Auxiliary, BlackBox, TargetSpec, WhiteBox, balanced_labels

N, SIDE, CLASSES, AUXILIARY, REPEATS, STEPS = 100, 16, 5, 896, 3, 3
SHAPE = (1, SIDE, SIDE)
OUTPUT = Path(__file__).parent / "results" / "decoders.json"
INV_ALIGNMENT = InvAlignment(epochs=60, width=32, learning_rate=3e-3, train_batch=64, standardize=True)
BIAS_REC = BiasRec(
    steps=600,
    margin="soft",
    optimizer="adam",
    schedule="cosine",
    learning_rate=0.06,
    multiplier_rate=0.15,
    smallest_multiplier=0.0,
    alpha=50.0,
    init_center=0.0,
    init_scale=0.05,
)


def seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """Median CPU seconds, and what the last run returned."""
    times = []
    for _ in range(REPEATS):
        began = time.process_time()
        result = function()
        times.append(time.process_time() - began)
    return statistics.median(times), result


def target(architecture: str, width: float | None) -> WhiteBox:
    model = models.build(architecture, shape=SHAPE, num_classes=CLASSES, width=width, generator_seed=0)
    return WhiteBox(model, TargetSpec.of(model, architecture, SHAPE, CLASSES))


def inv_alignment() -> dict[str, float]:
    white_box, attack = target("convnet", None), INV_ALIGNMENT
    access = BlackBox(white_box.query, white_box.spec)
    auxiliary = Auxiliary(torch.rand((AUXILIARY, *SHAPE), generator=torch.Generator().manual_seed(0)))
    labels = balanced_labels(N, CLASSES)

    def generator() -> torch.Generator:
        return torch.Generator().manual_seed(0)

    prepare, made = seconds(lambda: attack.prepare(access, auxiliary, generator=generator(), progress=silent))
    batch, result = seconds(
        lambda: attack.reconstruct(access, made, n=N, labels=labels, generator=generator(), progress=silent)
    )
    net = Decoder(CLASSES, SHAPE, attack.width, attack.standardize).eval().requires_grad_(False)
    net.load_state_dict({k[8:]: v for k, v in made.items() if k.startswith("decoder.")})
    inputs = truncated(between(made["posteriors"], labels, generator()), attack.kept)
    loop, images = seconds(lambda: torch.cat([net(row) for row in inputs.split(1)]))
    return {
        "prepare_cpu_seconds": prepare,
        "batch_cpu_seconds": batch,
        "loop_cpu_seconds": loop,
        "ratio": loop / batch,
        "largest_difference": float((images - result.images).abs().max()),
    }


def one_by_one(kkt: Stationarity, images: Tensor, labels: Tensor, multipliers: Tensor) -> Tensor:
    """The same loss by one gradient a candidate."""
    theta = {name: value.clone().requires_grad_(True) for name, value in kkt.theta.items()}
    total = [0.0] * len(theta)
    for image, label, multiplier in zip(images.split(1), labels.split(1), multipliers, strict=True):
        value = kkt.margin(functional_call(kkt.net, theta, (image,)), label)[0]
        parts = torch.autograd.grad(value, theta.values(), create_graph=True)
        total = [t + multiplier * part / len(images) for t, part in zip(total, parts, strict=True)]
    return sum((value - t).square().sum() for value, t in zip(theta.values(), total, strict=True))


def bias_rec() -> dict[str, float]:
    white_box, attack = target("homogeneous_mlp", 0.2), BIAS_REC
    whole, _ = seconds(lambda: attack.run(white_box, n=N))
    kkt = Stationarity(white_box, attack.alpha, attack.margin)
    m = attack.candidates * N
    images = torch.rand((m, *SHAPE), generator=torch.Generator().manual_seed(0)).requires_grad_(True)
    # Large ones: the gradients of this untrained net are tiny, and the sums that are compared must matter.
    multipliers = torch.full((m,), 1e3, requires_grad=True)
    labels = torch.arange(m) * CLASSES // m

    def steps(loss: Callable[..., Tensor]) -> Tensor:
        for _ in range(STEPS):
            value = loss(images, labels, multipliers)
            torch.autograd.grad(value, [images, multipliers])
        return value.detach()

    batch, loss = seconds(lambda: steps(kkt.loss))
    loop, same = seconds(lambda: steps(lambda *arguments: one_by_one(kkt, *arguments)))
    return {
        "attack_cpu_seconds": whole,
        "batch_cpu_seconds": batch / STEPS,
        "loop_cpu_seconds": loop / STEPS,
        "ratio": loop / batch,
        "largest_difference": float((loss - same).abs() / loss),
    }


def main() -> None:
    torch.set_num_threads(1)
    table = {"inv_alignment": inv_alignment(), "bias_rec": bias_rec()}
    for name, row in table.items():
        print(f"{name:14}", "  ".join(f"{key} {value:.3g}" for key, value in row.items()))
    result = {
        "n": N,
        "shape": SHAPE,
        "auxiliary": AUXILIARY,
        "repeats": REPEATS,
        "threads": 1,
        "device": "cpu",
        "machine": platform.machine(),
        "versions": {"python": platform.python_version(), "torch": version("torch")},
        "attacks": table,
    }
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
