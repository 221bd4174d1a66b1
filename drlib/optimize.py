"""What several attacks share: starting images, jitter, per-image regularizers, projected descent.

Every function treats the images of a batch as independent rows, so the way an attack cuts its work
into batches cannot change a result. Random numbers are drawn for all n images at once, on the CPU.
"""

from __future__ import annotations

import math
import numbers
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from drlib.errors import UserError, unknown
from drlib.types import Attack, BlackBox, Progress, WhiteBox

AT_ONCE = 1024
"""Images a query, at most: a box may be in another process, so a call has a price, and so has memory."""


def check_number(
    attack: Attack, name: str, low: float, high: float = math.inf, *, integer: bool = False
) -> None:
    """Raise ``UserError`` unless the hyperparameter is a number in [low, high] (an integer if asked)."""
    value = getattr(attack, name)
    kind = numbers.Integral if integer else numbers.Real
    if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
        what = "an integer" if integer else "a number"
        bounds = f">= {low:g}" if high == math.inf else f"in [{low:g}, {high:g}]"
        raise UserError(f"{attack.name}: {name} must be {what} {bounds}, got {value!r}")


def check_choice(attack: Attack, name: str, options: Iterable[str]) -> None:
    """Raise ``UserError`` with the nearest match unless the hyperparameter is one of ``options``."""
    if getattr(attack, name) not in options:
        raise unknown(f"{attack.name} {name}", getattr(attack, name), options)


def check_pixel_descent(attack: Any) -> None:
    """Check the hyperparameters that DeepDream and DeepInversion share; raises ``UserError``."""
    check_number(attack, "steps", 1, integer=True)
    check_number(attack, "learning_rate", 0, 1000)
    check_choice(attack, "schedule", SCHEDULES)
    check_number(attack, "jitter", 0, 127, integer=True)
    check_number(attack, "tv", 0)
    check_number(attack, "l2", 0)
    betas = attack.betas
    if not (isinstance(betas, tuple) and len(betas) == 2 and all(0 <= beta < 1 for beta in betas)):
        raise UserError(f"{attack.name}: betas must be two numbers in [0, 1), got {betas!r}")


class Meter:
    """What an attack has spent since the meter was made; ``read`` gives fields of a Reconstruction."""

    def __init__(self, access: BlackBox) -> None:
        self.access = access
        self.began = time.perf_counter()
        self.queries, self.gradient_calls = self._counts()

    def _counts(self) -> tuple[int, int]:
        return self.access.queries, self.access.gradient_calls

    def read(self) -> dict[str, Any]:
        queries, gradient_calls = self._counts()
        return {
            "queries": queries - self.queries,
            "gradient_calls": gradient_calls - self.gradient_calls,
            "seconds": time.perf_counter() - self.began,
        }


def with_progress(
    groups: Sequence[Tensor], steps: int, progress: Progress
) -> Iterator[tuple[Tensor, Callable[[int], None]]]:
    """Yield each group of rows with a ``report(step)`` that tells ``progress`` the image steps done."""
    total = steps * sum(len(rows) for rows in groups)
    done = 0

    def report(step: int) -> None:
        progress(done + step * len(rows), total)

    for rows in groups:
        yield rows, report
        done += steps * len(rows)


def uniform_images(n: int, shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Random start (n, c, h, w), uniform in [0, 1], so that samples of one class differ (SoK, App. C)."""
    return torch.rand((n, *shape), generator=generator)


def jitter_shifts(steps: int, n: int, amount: int, generator: torch.Generator) -> Tensor:
    """Vertical and horizontal shifts (steps, n, 2): integers, uniform in [-amount, amount]."""
    return torch.randint(-amount, amount + 1, (steps, n, 2), generator=generator, dtype=torch.int8)


def roll(images: Tensor, shifts: Tensor) -> Tensor:
    """Roll each image (n, c, h, w) by its own (vertical, horizontal) shift (n, 2); pixels wrap around."""
    n, channels, height, width = images.shape
    shifts = shifts.to(images.device, torch.int64)
    rows = (torch.arange(height, device=images.device) - shifts[:, :1]) % height
    columns = (torch.arange(width, device=images.device) - shifts[:, 1:]) % width
    source = (rows[:, :, None] * width + columns[:, None, :]).view(n, 1, height * width)
    return images.flatten(2).gather(2, source.expand(n, channels, height * width)).view_as(images)


def total_variation(images: Tensor) -> Tensor:
    """Total variation (n,): mean absolute difference of neighbors, summed over four directions."""
    differences = (
        images[:, :, 1:] - images[:, :, :-1],
        images[:, :, :, 1:] - images[:, :, :, :-1],
        images[:, :, 1:, 1:] - images[:, :, :-1, :-1],
        images[:, :, 1:, :-1] - images[:, :, :-1, 1:],
    )
    return sum(difference.abs().mean(dim=(1, 2, 3)) for difference in differences)


def squared_norm(images: Tensor) -> Tensor:
    """Squared l2 norm divided by the number of pixels (n,)."""
    return images.square().mean(dim=(1, 2, 3))


def to_model(tensor: Tensor, access: WhiteBox) -> Tensor:
    """Move images to the model's device and precision (a float64 model is attacked in float64)."""
    return tensor.to(access.device, next(access.model.parameters()).dtype)


def ask(access: BlackBox, images: Tensor) -> Tensor:
    """The target's probabilities (n, K) for many images (n, c, h, w), float32 on its device, in few calls."""
    return torch.cat([access.query(part) for part in images.split(AT_ONCE)]).to(access.device, torch.float32)


def shifted_confidence(access: WhiteBox, labels: Tensor, amount: int) -> Callable[[Tensor], Tensor]:
    """A score: probability of the wanted class (n,), averaged over five shifts (one if amount is 0).

    The shifts are none and the largest jitter up, down, left and right. Costs queries.
    """
    shifts = [(0, 0)] + [shift for a in (-amount, amount) if a for shift in ((a, 0), (0, a))]

    def score(images: Tensor) -> Tensor:
        views = (torch.roll(images, shift, dims=(2, 3)) for shift in shifts)
        return sum(access.query(view).gather(1, labels[:, None])[:, 0] for view in views) / len(shifts)

    return score


class GradientDescent:
    """x <- clip(x - rate * gradient), clipped to [0, 1]."""

    def step(self, images: Tensor, gradient: Tensor, rate: float) -> Tensor:
        return (images - rate * gradient).clamp(0, 1)

    def keep(self, rows: Tensor) -> None:
        """Forget the images outside ``rows`` (a mask or indices)."""


class Adam:
    """Adam (Kingma and Ba 2015) with the iterate clipped to [0, 1] after each step.

    Elementwise, so rows stay independent; unlike ``torch.optim.Adam`` it can drop finished rows.
    """

    def __init__(self, betas: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8) -> None:
        self.betas, self.epsilon = betas, epsilon
        self.steps = 0
        self.mean: Tensor | None = None
        self.square: Tensor | None = None

    def step(self, images: Tensor, gradient: Tensor, rate: float) -> Tensor:
        if self.mean is None or self.square is None:
            self.mean, self.square = torch.zeros_like(images), torch.zeros_like(images)
        first, second = self.betas
        self.steps += 1
        self.mean = first * self.mean + (1 - first) * gradient
        self.square = second * self.square + (1 - second) * gradient.square()
        scale = (self.square / (1 - second**self.steps)).sqrt() + self.epsilon
        return (images - rate / (1 - first**self.steps) * self.mean / scale).clamp(0, 1)

    def keep(self, rows: Tensor) -> None:
        """Forget the images outside ``rows`` (a mask or indices)."""
        if self.mean is not None and self.square is not None:
            self.mean, self.square = self.mean[rows], self.square[rows]


OPTIMIZERS: dict[str, Callable[[], GradientDescent | Adam]] = {"gd": GradientDescent, "adam": Adam}


def constant(rate: float, steps: int) -> list[float]:
    """The same learning rate at every step."""
    return [rate] * steps


def cosine(rate: float, steps: int) -> list[float]:
    """Learning rates that fall from ``rate`` to nearly 0 along half a cosine."""
    return [rate * 0.5 * (1 + math.cos(math.pi * step / steps)) for step in range(steps)]


SCHEDULES: dict[str, Callable[[float, int], list[float]]] = {"constant": constant, "cosine": cosine}


def descend(
    loss: Callable[[Tensor], Tensor],
    start: Tensor,
    shifts: Tensor,
    *,
    optimizer: GradientDescent | Adam,
    rates: Sequence[float],
    score: Callable[[Tensor], Tensor],
    report: Callable[[int], None],
    checkpoints: int = 10,
) -> tuple[Tensor, Tensor]:
    """Minimize a per-image loss under jitter; return each image's best iterate and the loss sums.

    ``loss(images) -> (n,)`` is summed, never averaged, so that an image's path does not depend on
    the others. ``shifts`` (steps, n, 2) jitter the images the loss sees. ``score(images) -> (n,)``,
    higher is better, is taken at ``checkpoints`` equally spaced steps, the last one included; each
    image is returned as it was at its own best checkpoint (ties: the later one). ``report(step)``
    is called after each step. Returns images (n, c, h, w) and the summed loss of each step (steps,).
    """
    steps = len(rates)
    images, best = start, start
    best_score = torch.full((len(start),), -math.inf, dtype=start.dtype, device=start.device)
    scored = {math.ceil(steps * k / checkpoints) for k in range(1, checkpoints + 1)}
    history = torch.zeros(steps, dtype=torch.float64)
    for step, rate in enumerate(rates, start=1):
        shift = shifts[step - 1]
        moved = roll(images, shift).requires_grad_(True)
        losses = loss(moved)
        (gradient,) = torch.autograd.grad(losses.sum(), moved)
        # The inverse shift carries the gradient back: a roll is a permutation of the pixels.
        images = optimizer.step(images, roll(gradient, -shift), rate)
        history[step - 1] = losses.detach().sum()
        if step in scored:
            scores = score(images)
            better = scores >= best_score
            best_score = torch.where(better, scores, best_score)
            best = torch.where(better.view(-1, 1, 1, 1), images, best)
        report(step)
    return best, history


def class_balanced_groups(labels: Tensor, group_size: int) -> list[Tensor]:
    """Cut rows into groups of at most ``group_size`` that differ in size as little as possible.

    Each group holds the classes as evenly as the labels allow, whatever their order: whole rounds
    of all classes where both n and ``group_size`` permit it. A short remainder is never left over:
    400 images in groups of 256 become 200 + 200. Labels 0, 1, ..., K-1, 0, 1, ... give contiguous groups.
    """
    counts = torch.bincount(labels)
    by_class = labels.argsort(stable=True)
    rank = torch.empty_like(labels)  # how many earlier rows have the same label
    rank[by_class] = torch.arange(len(labels)) - (counts.cumsum(0) - counts)[labels[by_class]]
    order = rank.argsort(stable=True)
    present = int((counts > 0).sum())
    unit = present if group_size >= present and len(labels) % present == 0 else 1
    groups = math.ceil(len(labels) / unit / (group_size // unit))
    return [group.flatten() for group in order.view(-1, unit).tensor_split(groups)]
