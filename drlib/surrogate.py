"""From a black box to a white box: train a student on the box's answers, then attack the student.

``distill`` asks about auxiliary images (Hinton et al. 2015). ``extract`` has no data: a generator draws the
queries, and learns to draw those on which student and box disagree (data-free model extraction, Truong et al.
2021). Both see the box through its counted queries only, ask many images in a call, and measure how often the
student agrees with it on queries that the student was not trained on.

The student is a stand-in: its gradients are not the box's, and its BatchNorm statistics describe queries, not
the box's training images (``white_box`` says so in the specification).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from drlib import gan, models, optimize, training
from drlib.errors import UserError, unknown
from drlib.spec import Spec
from drlib.types import Auxiliary, BlackBox, Progress, TargetSpec, WhiteBox, check_images

SMALLEST = 1e-7
"""Probabilities below are raised to it, so that a logarithm can be taken."""
DISTILLATION_ONLY = ("copies", "shift", "steps")
MILESTONES, DECAY = (0.1, 0.3, 0.5), 0.3
"""Extraction: the learning rates fall by this factor at these shares of the iterations."""


class SurrogateSpec(Spec):
    """How a student is made. The defaults of extraction are those of Truong et al. 2021 for CIFAR-10, but for
    the student itself (theirs: a wide ResNet-18).

    ``architecture``, ``width``: the student, as in ``models.build``. Distillation asks about each auxiliary
    image and ``copies`` of it that are moved by up to ``shift`` pixels, and takes ``steps`` steps of
    AdamW. Extraction spends at most ``queries``: an iteration is one step of the generator, whose gradient is
    estimated along ``directions`` of length ``epsilon``, and ``student_steps`` of the student.
    """

    method: Literal["distillation", "extraction"] = "distillation"
    architecture: str = "convnet"
    width: float | None = Field(None, gt=0, le=8)

    copies: int = Field(10, ge=0)
    shift: int = Field(2, ge=0, le=8)
    steps: int = Field(1000, ge=1)

    queries: int = Field(20_000_000, ge=1)
    batch_size: int = Field(256, ge=2)
    directions: int = Field(1, ge=1)
    epsilon: float = Field(1e-3, gt=0)
    student_steps: int = Field(5, ge=1)
    student_learning_rate: float = Field(0.1, gt=0)
    generator_learning_rate: float = Field(1e-4, gt=0)
    generator_width: int = Field(64, ge=1)
    z_dim: int = Field(256, ge=1)

    @model_validator(mode="after")
    def _affordable(self) -> SurrogateSpec:
        if self.method == "extraction":
            _budget(self.queries, self.batch_size, self.directions, self.student_steps)
        return self

    @field_validator("architecture")
    @classmethod
    def _known(cls, architecture: str) -> str:
        if architecture not in models.ARCHITECTURES:
            raise unknown("architecture", architecture, models.ARCHITECTURES)
        return architecture


@dataclass(frozen=True)
class Surrogate:
    """model: the student, frozen, in eval mode. agreement: share of held-out queries where the most probable
    class is the box's. queries: images that the box was asked. facts: more numbers the adversary knows."""

    model: nn.Module
    agreement: float
    queries: int
    facts: dict[str, float]


def make(
    access: BlackBox,
    auxiliary: Auxiliary | None,
    spec: SurrogateSpec,
    *,
    generator: torch.Generator,
    progress: Progress,
) -> Surrogate:
    """A student of the box, by the method that ``spec`` names; extraction does not look at ``auxiliary``."""
    before = access.queries
    if spec.method == "extraction":
        own = spec.model_dump(exclude={"method", *DISTILLATION_ONLY})
        model, facts = extract(access, **own, generator=generator, progress=progress)
    elif auxiliary is None:
        raise UserError("distillation needs auxiliary images; without any, use method 'extraction'")
    else:
        own = spec.model_dump(include={"architecture", "width", *DISTILLATION_ONLY})
        model, facts = distill(access, auxiliary.images, **own, generator=generator, progress=progress)
    return Surrogate(model, facts["agreement"], access.queries - before, facts)


def white_box(module: nn.Module, spec: TargetSpec, *, architecture: str | None = None) -> WhiteBox:
    """The student as a white box in place of the box that ``spec`` describes.

    ``architecture``: the student's, if it is not the box's.
    """
    told = TargetSpec.of(
        module,
        architecture or spec.architecture,
        spec.shape,
        spec.num_classes,
        classes=spec.classes,
        synthetic_batchnorm=True,
    )
    return WhiteBox(module, told)


def distill(
    access: BlackBox,
    images: Tensor,
    *,
    architecture: str = "convnet",
    width: float | None = None,
    copies: int = 10,
    shift: int = 2,
    steps: int = 1000,
    generator: torch.Generator,
    progress: Progress,
) -> tuple[nn.Module, dict[str, float]]:
    """A student that minimizes the cross entropy to the box's probabilities on images (a, c, h, w).

    A tenth of the images is held out for the agreement, and the rest is asked with ``copies`` moved copies.
    Costs a query for each held-out image and 1 + ``copies`` for each other.
    """
    check_images(images, access.spec.shape)
    if len(images) < 4:
        raise UserError(f"distillation needs at least 4 auxiliary images, got {len(images)}")
    images = images.to(access.device, torch.float32)[torch.randperm(len(images), generator=generator)]
    held_out, images = images[: max(1, len(images) // 10)], images[max(1, len(images) // 10) :]
    which = torch.arange(len(images)).repeat(1 + copies)
    shifts = optimize.jitter_shifts(1, len(which), shift, generator)[0]
    shifts[: len(images)] = 0

    def moved(rows: Tensor) -> Tensor:
        return optimize.roll(images[which[rows]], shifts[rows])

    every = torch.arange(len(which)).split(optimize.AT_ONCE)
    answers = torch.cat([optimize.ask(access, moved(rows)) for rows in every])
    student = _student(access, architecture, width, generator)
    optimizer = torch.optim.AdamW(student.parameters(), lr=5e-3, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    order = gan.batches(which, 64, generator)
    seed = int(torch.randint(2**31, (), generator=generator))
    with training.seeded(seed, access.device):
        student.train()
        for step in range(1, steps + 1):
            rows = next(order)
            loss = _descend(cross_entropy(student(moved(rows)), answers[rows]), optimizer)
            schedule.step()
            progress(step, steps)
    agreement = _agreement(student, held_out, optimize.ask(access, held_out))
    return _frozen(student), {"agreement": agreement, "held_out": float(len(held_out)), "loss": float(loss)}


def extract(
    access: BlackBox,
    *,
    architecture: str = "convnet",
    width: float | None = None,
    queries: int = 20_000_000,
    batch_size: int = 256,
    directions: int = 1,
    epsilon: float = 1e-3,
    student_steps: int = 5,
    student_learning_rate: float = 0.1,
    generator_learning_rate: float = 1e-4,
    generator_width: int = 64,
    z_dim: int = 256,
    generator: torch.Generator,
    progress: Progress,
) -> tuple[nn.Module, dict[str, float]]:
    """A student S and a generator G that play min_S max_G E_z |S(G(z)) - v(G(z))|, v the box's logits.

    The box has no gradient, so G's is estimated from its answers at nearby points, and taken through G by the
    chain rule. The agreement is measured on up to 1024 new samples of G, within the budget.

    Known failure: where smooth random images reach all classes, as on small digits, a generator that is not
    trained asks as well as one that is.
    """
    held_out, iterations = _budget(queries, batch_size, directions, student_steps)
    student = _student(access, architecture, width, generator)
    artist = gan.initialized(
        lambda: QueryGenerator(access.spec.shape, z_dim, generator_width), generator, access.device
    )
    optimizer = torch.optim.SGD(
        student.parameters(), lr=student_learning_rate, momentum=0.9, weight_decay=5e-4
    )
    artist_optimizer = torch.optim.Adam(artist.parameters(), lr=generator_learning_rate)
    schedules = [
        torch.optim.lr_scheduler.MultiStepLR(
            each, [math.ceil(share * iterations) for share in MILESTONES], DECAY
        )
        for each in (optimizer, artist_optimizer)
    ]

    def drawn(count: int) -> Tensor:
        return artist(gan.latents(count, z_dim, generator, access.device))

    def disagreement(points: Tensor) -> Tensor:
        images = pixels(points)
        return (student(images) - recovered_logits(optimize.ask(access, images))).abs().mean(dim=1)

    seed = int(torch.randint(2**31, (), generator=generator))
    with training.seeded(seed, access.device):
        artist.train()
        for iteration in range(1, iterations + 1):
            student.eval()
            points = drawn(batch_size)
            slope = estimated_gradient(
                disagreement, points.detach(), directions=directions, epsilon=epsilon, generator=generator
            )
            artist_optimizer.zero_grad(set_to_none=True)
            points.backward(-slope / batch_size)  # G climbs
            artist_optimizer.step()

            student.train()
            with torch.no_grad():  # G stands still for all of the student's steps: one call to the box
                images = pixels(torch.cat([drawn(batch_size) for _ in range(student_steps)]))
            logits = recovered_logits(optimize.ask(access, images))
            for part, wanted in zip(images.split(batch_size), logits.split(batch_size), strict=True):
                loss = _descend((student(part) - wanted).abs().mean(), optimizer)
            for schedule in schedules:
                schedule.step()
            progress(iteration, iterations)
        artist.eval()
        with torch.no_grad():
            images = pixels(torch.cat([drawn(part) for part in _parts(held_out, batch_size)]))
    agreement = _agreement(student, images, optimize.ask(access, images))
    facts = {"agreement": agreement, "held_out": float(held_out), "loss": float(loss)}
    return _frozen(student), {**facts, "iterations": float(iterations)}


def _budget(queries: int, batch_size: int, directions: int, student_steps: int) -> tuple[int, int]:
    """Queries that measure the agreement, and iterations for the rest; ``UserError`` if there are none."""
    held_out = min(1024, max(1, queries // 10))
    need = batch_size * (1 + directions + student_steps)
    if queries - held_out < need:
        raise UserError(
            f"extraction needs {need} queries an iteration and some for the agreement, got {queries}"
        )
    return held_out, (queries - held_out) // need


class QueryGenerator(nn.Module):
    """Latents (b, z_dim) to points (b, c, h, w), of which ``pixels`` makes images (Truong et al. 2021).

    A linear layer makes a map of a quarter of the side, which is doubled twice; the last BatchNorm without
    parameters keeps the points in the range where ``pixels`` has a slope.
    """

    def __init__(self, shape: tuple[int, int, int], z_dim: int, width: int) -> None:
        super().__init__()
        self.shape = shape
        side, wide = math.ceil(max(shape[1:]) / 4), 2 * width
        self.layers = nn.Sequential(
            nn.Linear(z_dim, wide * side**2),
            nn.Unflatten(1, (wide, side, side)),
            nn.BatchNorm2d(wide),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(wide, wide, 3, padding=1),
            nn.BatchNorm2d(wide),
            nn.LeakyReLU(0.2),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(wide, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, shape[0], 3, padding=1),
            nn.BatchNorm2d(shape[0], affine=False),
        )

    def forward(self, z: Tensor) -> Tensor:
        return gan.center_crop(self.layers(z), self.shape)


def pixels(points: Tensor) -> Tensor:
    """Points to images in [0, 1]: the original's tanh, (1 + tanh a) / 2."""
    return torch.sigmoid(2 * points)


def recovered_logits(probabilities: Tensor) -> Tensor:
    """log p - mean log p (n, K): logits up to a constant that the softmax forgets. p = 0 is raised first."""
    raised = probabilities.float().clamp_min(SMALLEST)
    logarithms = (raised / raised.sum(dim=1, keepdim=True)).log()
    return logarithms - logarithms.mean(dim=1, keepdim=True)


def estimated_gradient(
    loss: Callable[[Tensor], Tensor],
    points: Tensor,
    *,
    directions: int,
    epsilon: float,
    generator: torch.Generator,
) -> Tensor:
    """Gradient of each loss(points) (n,) at its point (n, ...), from ``directions`` forward differences.

    mean_i d * (L(x + epsilon * u_i) - L(x)) / epsilon * u_i with u_i uniform on the unit sphere of d
    dimensions: right on average. One call of the loss, with (1 + directions) * n points.
    """
    n, size = len(points), points[0].numel()
    steps = torch.randn((directions, n, size), generator=generator).to(points.device)
    steps = (steps / steps.norm(dim=2, keepdim=True)).view(directions, *points.shape)
    with torch.no_grad():
        losses = loss(torch.cat([points[None], points + epsilon * steps]).flatten(0, 1)).view(
            1 + directions, n
        )
    slopes = size * (losses[1:] - losses[:1]) / epsilon
    return (slopes.view(directions, n, *[1] * (points.dim() - 1)) * steps).mean(dim=0)


def _student(
    access: BlackBox, architecture: str, width: float | None, generator: torch.Generator
) -> nn.Module:
    build = {"shape": access.spec.shape, "num_classes": access.spec.num_classes, "width": width}
    seed = int(torch.randint(2**31, (), generator=generator))
    student = models.build(architecture, generator_seed=seed, **build)
    return student.to(device=access.device, memory_format=torch.channels_last)


def _descend(loss: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
    """One step; the loss before it."""
    if not torch.isfinite(loss):
        raise UserError("the student diverged: lower its learning rate")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.detach()


def _agreement(student: nn.Module, images: Tensor, answers: Tensor) -> float:
    found = training.predict(student, images).argmax(dim=1)
    return (found == answers.cpu().argmax(dim=1)).float().mean().item()


def _frozen(student: nn.Module) -> nn.Module:
    return student.eval().requires_grad_(False)


def _parts(total: int, size: int) -> list[int]:
    return [min(size, total - start) for start in range(0, total, size)]
