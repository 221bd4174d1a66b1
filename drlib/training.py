"""Training one classifier, deterministic per seed; accuracy, predictions, and checks on a user's own model.

Same seed, same machine, same thread count: the same bits. All randomness (shuffling, shifts, dropout) comes
from the seed; PyTorch's global random state is left as found.

BatchNorm. The running statistics are an exponential average with PyTorch's momentum 0.1, so they remember
about the last 20 steps; the cosine schedule ends near a learning rate of zero, so in those steps the
parameters stand still and the statistics settle on those of the final model. DeepInversion matches these
statistics. A batch of one image never reaches BatchNorm in training mode: each epoch is cut into equal parts
of at least two images, so no image is dropped and no batch is tiny.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from drlib.errors import UserError
from drlib.spec import Spec

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from drlib.types import Progress, WhiteBox


class TrainSpec(Spec):
    """How one classifier is trained.

    ``optimizer``: weight decay is decoupled in ``adamw``, and part of the loss in ``adam`` and ``sgd`` (half
    of it times the squared norm of the parameters), as Bias-Rec's theory asks.

    ``min_steps``: small training sets are repeated for more than ``epochs`` until this many optimizer steps
    are done. ``learning_rate`` is the first one of the cosine schedule. ``augment_shift``: each image moves
    by up to that many pixels in both directions (edges repeated); 0 is off, as an attack's target should be
    trained on the very images it is compared with.
    """

    epochs: int = Field(30, ge=1)
    min_steps: int = Field(300, ge=0)
    batch_size: int = Field(64, ge=2)
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
    learning_rate: float = Field(5e-3, gt=0)
    weight_decay: float = Field(5e-4, ge=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    schedule: Literal["cosine", "constant"] = "cosine"
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    augment_shift: int = Field(0, ge=0, le=8)

    def epochs_on(self, n: int) -> int:
        """Epochs that a training with n images takes, ``min_steps`` included."""
        return max(self.epochs, math.ceil(self.min_steps / batches_per_epoch(n, self.batch_size)))


@dataclass(frozen=True)
class TrainingRecord:
    """loss_history: (epochs,) float32 mean loss of each epoch. seconds: wall time. steps: optimizer steps."""

    loss_history: Tensor
    seconds: float
    steps: int


@dataclass(frozen=True)
class Finding:
    """One result of ``preflight``."""

    level: Literal["ok", "warning", "error"]
    text: str


def train(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    spec: TrainSpec,
    *,
    seed: int,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
    stop_after: int | None = None,
) -> TrainingRecord:
    """Train ``model`` in place on images (n, c, h, w) in [0, 1] with labels (n,) int64 in 0..K-1.

    ``stop_after``: leave the same training after so many epochs, for a checkpoint on its way.

    The model is moved to ``device`` in channels-last layout and left in eval mode. ``progress(done, steps)``
    is called after each epoch. Raises ``UserError`` for unusable input and when the loss is no longer finite.
    """
    import torch
    from torch.nn.functional import cross_entropy

    started = time.perf_counter()
    device = torch.device(device)
    model.to(device=device, memory_format=torch.channels_last)
    check_training_set(model, images, labels)
    images = images.to(device).contiguous(memory_format=torch.channels_last)
    labels = labels.to(device)

    batches = batches_per_epoch(len(images), spec.batch_size)
    epochs = spec.epochs_on(len(images))
    steps = epochs * batches
    optimizer = make_optimizer(model, spec)
    generator = torch.Generator().manual_seed(seed)
    history = []
    with seeded(seed, device):
        model.train()
        try:
            for epoch in range(epochs if stop_after is None else min(stop_after, epochs)):
                losses = []
                order = torch.randperm(len(images), generator=generator).to(device)
                for batch, chosen in enumerate(order.tensor_split(batches)):
                    if spec.schedule == "cosine":
                        set_cosine_rate(optimizer, spec.learning_rate, (epoch * batches + batch) / steps)
                    inputs = images[chosen]
                    if spec.augment_shift:
                        inputs = shifted(inputs, spec.augment_shift, generator)
                    loss = cross_entropy(model(inputs), labels[chosen], label_smoothing=spec.label_smoothing)
                    optimizer.zero_grad(set_to_none=True)
                    loss.backward()
                    optimizer.step()
                    losses.append(loss.detach())
                mean = torch.stack(losses).mean().cpu()
                if not torch.isfinite(mean):
                    raise UserError(
                        f"training diverged in epoch {epoch + 1} of {epochs} (loss {mean.item()}): "
                        f"lower learning_rate ({spec.learning_rate:g})"
                    )
                history.append(mean)
                if progress is not None:
                    progress((epoch + 1) * batches, steps)
        finally:
            model.eval()
            optimizer.zero_grad(set_to_none=True)
    return TrainingRecord(torch.stack(history), time.perf_counter() - started, len(history) * batches)


def batches_per_epoch(n: int, batch_size: int) -> int:
    """Number of equal parts an epoch of n images is cut into: ``batch_size`` images at most, 2 at least.

    (Where both cannot be, as for n = 3 and a batch size of 2, the part is larger.)
    """
    return max(1, min(math.ceil(n / batch_size), n // 2))


def predict(model: nn.Module, images: Tensor, batch_size: int = 512) -> Tensor:
    """Class probabilities (n, K) on the CPU for images (n, c, h, w) in [0, 1], in eval mode without a
    gradient.

    Equal to 1e-6 whatever ``batch_size`` is. Each layer's training flag is restored.
    """
    import torch

    like = next(model.parameters(), images)
    with evaluating(model), torch.no_grad():
        parts = [
            model(part.to(like.device, like.dtype)).softmax(dim=1).cpu() for part in images.split(batch_size)
        ]
    return torch.cat(parts)


def penultimate(model: nn.Module, images: Tensor, batch_size: int = 512) -> Tensor:
    """What the last linear layer reads (n, d) for images (n, c, h, w), on the CPU, in eval mode.

    These are the features in which an evaluation network measures distance. Raises ``UserError`` for a model
    without such a layer.
    """
    import torch
    from torch import nn

    last = [layer for layer in model.modules() if isinstance(layer, nn.Linear)][-1:]
    if not last:
        raise UserError("the model has no linear layer, so it has no features to measure distance in")
    seen: list[Tensor] = []
    hook = last[0].register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0].flatten(1).cpu()))
    try:
        predict(model, images, batch_size)
    finally:
        hook.remove()
    return torch.cat(seen)


def accuracy(model: nn.Module, images: Tensor, labels: Tensor, batch_size: int = 512) -> float:
    """Share of images whose most probable class is their label; NaN when there are no images."""
    if len(images) != len(labels):
        raise UserError(
            f"accuracy needs one label per image, got {len(images)} images and {len(labels)} labels"
        )
    if not len(images):
        return math.nan
    predicted = predict(model, images, batch_size).argmax(dim=1)
    return (predicted == labels.cpu()).float().mean().item()


def preflight(white_box: WhiteBox, images: Tensor, labels: Tensor) -> list[Finding]:
    """Check a target before it is attacked, on test images (n, c, h, w) and labels (n,) it was not trained
    on.

    Looks at the accuracy against chance, the pixel range, NaN, the number of outputs, BatchNorm and frozen
    parameters. Costs no counted query. Never raises for a bad target: the findings say what is wrong.
    """
    import torch

    from drlib.probe import has_batchnorm

    spec = white_box.spec
    findings = [_pixel_range(images, spec.shape)]
    if len(labels) != len(images):
        findings.append(Finding("error", f"{len(images)} images but {len(labels)} labels"))
    elif len(labels) and not (labels.min() >= 0 and labels.max() < spec.num_classes):
        text = f"labels lie in [{labels.min()}, {labels.max()}], expected 0 to {spec.num_classes - 1}"
        findings.append(Finding("error", text))
    if any(finding.level == "error" for finding in findings):
        return findings

    if not len(images):
        findings.append(Finding("warning", "no test images: the accuracy is unknown"))
    else:
        outputs = predict(white_box.model, images)
        if outputs.shape[1] != spec.num_classes:
            text = f"the model has {outputs.shape[1]} outputs for {spec.num_classes} labels"
            findings.append(Finding("error", text))
        elif not torch.isfinite(outputs).all():
            findings.append(Finding("error", "the model returns NaN or infinity on its test images"))
        else:
            findings.append(_against_chance(outputs, labels.cpu(), spec.num_classes))
    if has_batchnorm(white_box.model):
        findings.append(Finding("ok", "BatchNorm with running statistics is present"))
    else:
        findings.append(Finding("warning", "no BatchNorm with running statistics: DeepInversion cannot run"))
    if any(parameter.requires_grad for parameter in white_box.model.parameters()):
        findings.append(Finding("error", "some parameters require a gradient: the target is not frozen"))
    elif any(module.training for module in white_box.model.modules()):
        findings.append(
            Finding("error", "some layers are in training mode: the target would change under attack")
        )
    else:
        findings.append(Finding("ok", "parameters are frozen, all layers are in eval mode"))
    return findings


def _pixel_range(images: Tensor, shape: tuple[int, int, int]) -> Finding:
    from drlib.types import check_images

    try:
        check_images(images, shape)
    except UserError as error:
        return Finding("error", str(error))
    if not len(images):
        return Finding("warning", "no images: the pixel range is unknown")
    low, high = images.min().item(), images.max().item()
    if high - low < 0.1:
        return Finding("warning", f"pixels span only [{low:.3f}, {high:.3f}]: were they scaled twice?")
    return Finding("ok", f"pixels lie in [{low:.3f}, {high:.3f}]")


def _against_chance(outputs: Tensor, labels: Tensor, num_classes: int) -> Finding:
    """Chance is the share of the most frequent label; a useful model is above it by two standard errors."""
    correct = (outputs.argmax(dim=1) == labels).float().mean().item()
    chance = max(1 / num_classes, labels.bincount(minlength=num_classes).max().item() / len(labels))
    above = correct > chance + 2 * math.sqrt(chance * (1 - chance) / len(labels))
    text = f"accuracy {correct:.3f} on {len(labels)} test images (chance {chance:.3f})"
    if above:
        return Finding("ok", text)
    return Finding("error", f"{text}: not better than chance; check mean, std and the order of the labels")


def check_training_set(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    import torch

    from drlib.types import check_images

    check_images(images)
    if labels.shape != (len(images),) or labels.dtype != torch.int64:
        raise UserError(f"labels must be int64 ({len(images)},), got {labels.dtype} {tuple(labels.shape)}")
    if len(images) < 2:
        raise UserError(f"training needs at least 2 images, got {len(images)}")
    outputs = predict(model, images[:1]).shape[1]
    if not (labels.min() >= 0 and labels.max() < outputs):
        raise UserError(
            f"labels must lie in 0 to {outputs - 1} (the model has {outputs} outputs), "
            f"got {labels.min().item()} to {labels.max().item()}"
        )


def make_optimizer(model: nn.Module, spec: TrainSpec) -> torch.optim.Optimizer:
    import torch

    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise UserError(
            "the model has no trainable parameters (a white-box view is frozen; train before wrapping)"
        )
    if spec.optimizer != "sgd":
        kind = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[spec.optimizer]
        return kind(parameters, lr=spec.learning_rate, weight_decay=spec.weight_decay)
    return torch.optim.SGD(
        parameters,
        lr=spec.learning_rate,
        momentum=spec.momentum,
        weight_decay=spec.weight_decay,
        nesterov=spec.momentum > 0,
    )


def set_cosine_rate(optimizer: torch.optim.Optimizer, first: float, share: float) -> None:
    """Half a cosine from ``first`` down to nearly zero; ``share`` in [0, 1) is how much of the training is
    done."""
    for group in optimizer.param_groups:
        group["lr"] = first * 0.5 * (1 + math.cos(math.pi * share))


def shifted(images: Tensor, shift: int, generator: torch.Generator) -> Tensor:
    """Move each image by its own whole number of pixels in [-shift, shift] in both directions, edges
    repeated."""
    import torch
    from torch.nn.functional import pad

    n, _, height, width = images.shape
    offsets = torch.randint(0, 2 * shift + 1, (2, n, 1), generator=generator).to(images.device)
    rows = (offsets[0] + torch.arange(height, device=images.device))[:, :, None]
    columns = (offsets[1] + torch.arange(width, device=images.device))[:, None, :]
    which = torch.arange(n, device=images.device)[:, None, None]
    padded = pad(images, (shift, shift, shift, shift), mode="replicate")
    moved = padded.permute(0, 2, 3, 1)[which, rows, columns]  # (n, h, w, c): channels last in memory
    return moved.permute(0, 3, 1, 2)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed what draws from the global random state (dropout), pick deterministic GPU kernels, then restore
    both."""
    import torch

    cuda = device.type == "cuda"
    backend = torch.backends.cudnn
    before = backend.deterministic, backend.benchmark
    with torch.random.fork_rng(devices=[device] if cuda else []):
        torch.default_generator.manual_seed(seed)
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        backend.deterministic, backend.benchmark = True, False
        try:
            yield
        finally:
            backend.deterministic, backend.benchmark = before


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode inside, each layer's own training flag afterwards (a frozen BatchNorm stays frozen)."""
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in flags:
            module.training = training
