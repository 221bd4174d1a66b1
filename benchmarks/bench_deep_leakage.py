"""Deep-Leakage on 32 gradients of one 16x16 image each: one batch of rows against a loop over gradients.

    python benchmarks/bench_deep_leakage.py

Two methods: L-BFGS on the sigmoid LeNet, and Adam on the cosine distance for the convolutional ReLU net. The
loop runs the same attack a gradient at a time, with as many evaluations. For L-BFGS a second loop is what one
would write in plain PyTorch: ``torch.optim.LBFGS`` with its strong Wolfe search, stopped after as many
evaluations. The loops draw each start from a seed of its own, so the images are compared by PSNR. Prints a
small table and writes benchmarks/results/deep_leakage.json. Times are CPU seconds on one thread, so that
other work on the machine matters little; the runs alternate, and the median of three is reported.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import torch
from torch import Tensor

from drlib import models
from drlib.attacks.deep_leakage import DeepLeakage
from drlib.data import DataSpec, load_splits
from drlib.types import Gradients, TargetSpec

N, SIDE, CLASSES, STEPS, REPEATS = 32, 16, 5, 100, 3
OUTPUT = Path(__file__).parent / "results" / "deep_leakage.json"
METHODS = {
    "l2_lbfgs": ("lenet", DeepLeakage(labels="infer", steps=STEPS // 20)),
    "cosine_adam": ("convnet", DeepLeakage(matching="cosine_adam", labels="infer", steps=STEPS)),
}


def observed(architecture: str) -> tuple[Gradients, Tensor, Tensor]:
    """The view of the server, and the images (n, c, h, w) and labels (n,) behind its gradients."""
    update = load_splits(DataSpec()).update
    images, labels = update.images[:N], update.labels[:N]
    model = models.build(architecture, shape=(1, SIDE, SIDE), num_classes=CLASSES, generator_seed=0)
    spec = TargetSpec.of(model, architecture, (1, SIDE, SIDE), CLASSES)
    gradients = Gradients(model, spec, {}, 1).parameter_gradients(images[:, None], labels[:, None])
    return Gradients(model, spec, {k: v.detach() for k, v in gradients.items()}, 1), images, labels


def batched(access: Gradients, attack: DeepLeakage, labels: Tensor) -> Tensor:
    return attack.run(access, n=N).images


def one_by_one(access: Gradients, attack: DeepLeakage, labels: Tensor) -> Tensor:
    images = []
    for row in range(N):
        own = {name: gradient[row : row + 1] for name, gradient in access.gradients.items()}
        images.append(attack.run(Gradients(access.model, access.spec, own, 1), n=1, seed=row).images)
    return torch.cat(images)


def plain_pytorch(access: Gradients, attack: DeepLeakage, labels: Tensor) -> Tensor:
    parameters = [value.clone().requires_grad_(True) for value in access.model.parameters()]
    names = [name for name, _ in access.model.named_parameters()]
    images = []
    for row in range(N):
        goal = [access.gradients[name][row] for name in names]
        start = torch.randn((1, *access.spec.shape), generator=torch.Generator().manual_seed(row))
        image = start.requires_grad_(True)
        optimizer = torch.optim.LBFGS(
            [image], max_iter=STEPS, max_eval=STEPS, line_search_fn="strong_wolfe", tolerance_change=0
        )

        def closure(image=image, goal=goal, optimizer=optimizer, label=labels[row : row + 1]) -> Tensor:
            optimizer.zero_grad()
            state = dict(zip(names, parameters, strict=True))
            logits = torch.func.functional_call(access.model, state, (image,))
            loss = torch.nn.functional.cross_entropy(logits, label)
            found = torch.autograd.grad(loss, parameters, create_graph=True)
            distance = sum((a - b).square().sum() for a, b in zip(found, goal, strict=True))
            distance.backward(inputs=[image])
            return distance

        optimizer.step(closure)
        images.append(image.detach().clamp(0, 1))
    return torch.cat(images)


def psnr(found: Tensor, images: Tensor) -> float:
    """Median PSNR in dB over the images."""
    squares = (found - images).square().flatten(1).mean(dim=1)
    return float(-10 * torch.log10(squares.clamp(min=1e-20)).median())


def main() -> None:
    torch.set_num_threads(1)
    table = {}
    for method, (architecture, attack) in METHODS.items():
        access, truth, labels = observed(architecture)
        runs: dict[str, Callable[[Gradients, DeepLeakage, Tensor], Tensor]] = {"batch": batched}
        runs["loop"] = one_by_one
        if method == "l2_lbfgs":
            runs["pytorch_loop"] = plain_pytorch
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        found = {}
        batched(access, attack, labels)  # warm up
        for _ in range(REPEATS):
            for name, function in runs.items():
                began = time.process_time()
                found[name] = function(access, attack, labels)
                seconds[name].append(time.process_time() - began)
        medians = {name: statistics.median(values) for name, values in seconds.items()}
        table[method] = {
            "architecture": architecture,
            **{f"{name}_cpu_seconds": value for name, value in medians.items()},
            "ratio": medians["loop"] / medians["batch"],
            "image_steps_per_cpu_second": N * STEPS / medians["batch"],
            **{f"{name}_median_psnr": psnr(images, truth) for name, images in found.items()},
        }
        if "pytorch_loop" in medians:
            table[method]["pytorch_ratio"] = medians["pytorch_loop"] / medians["batch"]
        print(
            f"{method:12} batch {medians['batch']:6.2f} s  "
            + "  ".join(
                f"{name} {value:6.2f} s (x {value / medians['batch']:.1f})"
                for name, value in medians.items()
                if name != "batch"
            )
            + "  median PSNR "
            + " ".join(f"{name} {psnr(images, truth):.1f}" for name, images in found.items())
        )
    result = {
        "n": N,
        "shape": (1, SIDE, SIDE),
        "evaluations": STEPS,
        "repeats": REPEATS,
        "threads": 1,
        "device": "cpu",
        "machine": platform.machine(),
        "versions": {"python": platform.python_version(), "torch": version("torch")},
        "methods": table,
    }
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
