"""Sample-level distance and coverage (Definition 4.2): each reconstruction against its closest target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from drlib.errors import UserError, unknown
from drlib.metrics.neighbors import nearest
from drlib.metrics.ssim import ssim_matrix, ssim_nearest

METRICS = ("ssim", "psnr", "mse")
_MSE_SLACK = 1e-11  # the expanded square in float64 is within 1e-13 of the mean squared error


@dataclass(frozen=True)
class SampleDistance:
    """S-Dis and coverage of n reconstructions over m targets.

    Attributes:
        distance: mean of ``values``: SSIM or PSNR (higher is closer) or MSE (lower is closer). PSNR is inf as
            soon as there is one copy; ``median`` and ``copies`` stand beside it.
        coverage: share of the targets that are the nearest of some reconstruction, in (0, 1].
        nearest: int64 (n,) index into the targets, on the CPU.
        values: float32 (n,) raw SSIM, PSNR in dB or MSE with the nearest target, on the CPU.
        matching: ``class`` if labels restricted the candidates, else ``all``.
        median: median of ``values``.
        copies: reconstructions equal to their nearest target in every pixel.
        coverage_floor: the smallest coverage possible: one target for each class that has a reconstruction
            (``class``), one target (``all``).
        coverage_chance: expected coverage if each reconstruction hit one of its candidates uniformly at
            random: the sum over classes of (k_c / m) (1 - (1 - 1/k_c)^n_c), with n_c reconstructions and k_c
            targets of class c. With equal k_c this is the mean over classes.
    """

    distance: float
    coverage: float
    nearest: Tensor
    values: Tensor
    metric: str
    matching: Literal["class", "all"]
    median: float
    copies: int
    coverage_floor: float
    coverage_chance: float
    n: int
    m: int


def sample_distance(
    reconstructions: Tensor,
    targets: Tensor,
    metric: str,
    reconstruction_labels: Tensor | Sequence[int] | None = None,
    target_labels: Tensor | Sequence[int] | None = None,
) -> SampleDistance:
    """Match each reconstruction to its closest target and summarize (Definition 4.2).

    Args:
        reconstructions: (n, c, h, w) floating point in [0, 1].
        targets: (m, c, h, w) likewise.
        metric: ``ssim``, ``psnr`` or ``mse``. PSNR (range 1) and MSE share neighbors and coverage.
        reconstruction_labels: n integers, or None. With labels, matching is inside the class.
        target_labels: m integers, or None; given if and only if ``reconstruction_labels`` is.

    Raises:
        UserError: (a ValueError) one line, before any work.
    """
    if metric not in METRICS:
        raise unknown("metric", metric, METRICS)
    a, b = _check_images("reconstructions", reconstructions, "targets", targets)
    if (reconstruction_labels is None) != (target_labels is None):
        missing = "reconstruction_labels" if reconstruction_labels is None else "target_labels"
        raise UserError(
            f"{missing} is missing: give the labels of both sides (match in class) or of none (all)"
        )
    restricted = reconstruction_labels is not None
    x = _check_labels("reconstruction_labels", reconstruction_labels, len(a))
    y = _check_labels("target_labels", target_labels, len(b))
    classes = x.unique().tolist()
    absent = sorted(set(classes) - set(y.unique().tolist()))
    if absent:
        raise UserError(f"no target has the label of these reconstruction classes: {absent}")

    index = torch.empty(len(a), dtype=torch.int64)
    values = torch.empty(len(a), dtype=torch.float64)
    floor = chance = 0.0
    for label in classes:
        rows, candidates = (labels.eq(label).nonzero().squeeze(1) for labels in (x, y))
        found, value = _nearest(a[rows.to(a.device)], b[candidates.to(b.device)], metric)
        index[rows], values[rows] = candidates[found.cpu()], value.cpu()
        k = len(candidates)
        floor += 1 / len(b)
        chance += k / len(b) * (1 - (1 - 1 / k) ** len(rows))
    values = values.float()
    return SampleDistance(
        distance=float(values.double().mean()),
        coverage=len(index.unique()) / len(b),
        nearest=index,
        values=values,
        metric=metric,
        matching="class" if restricted else "all",
        median=float(np.median(values.double().numpy())),
        copies=int((a == b[index.to(b.device)]).flatten(1).all(1).sum()),
        coverage_floor=floor,
        coverage_chance=chance,
        n=len(a),
        m=len(b),
    )


def near_duplicates(a: Tensor, b: Tensor, threshold: float = 0.95) -> Tensor:
    """Pairs (i, j) with SSIM(a[i], b[j]) > threshold: int64 (p, 2), sorted, on the CPU.

    Images are (n, c, h, w) and (m, c, h, w) in [0, 1]. A set against itself includes the diagonal.
    """
    a, b = _check_images("a", a, "b", b)
    step = max(1, 2**24 // len(b))
    pairs = [torch.empty(0, 2, dtype=torch.int64)]
    for i in range(0, len(a), step):
        found = (ssim_matrix(a[i : i + step], b) > threshold).nonzero().cpu()
        pairs.append(found + torch.tensor([i, 0]))
    return torch.cat(pairs)


def _nearest(a: Tensor, b: Tensor, metric: str) -> tuple[Tensor, Tensor]:
    """Index into ``b`` and value of the nearest image, for one class."""
    if metric == "ssim":
        return ssim_nearest(a, b)
    a, b = a.flatten(1), b.flatten(1)
    index, mse = nearest(a, b, screen=_mse_matrix, exact=_mse, slack=_MSE_SLACK)
    return index, mse if metric == "mse" else -10 * mse.log10()


def _mse(a: Tensor, b: Tensor) -> Tensor:
    """Mean squared error of paired rows, by differences: exactly 0 for copies."""
    return (a.double() - b.double()).square().mean(1)


def _mse_matrix(a: Tensor, b: Tensor) -> Tensor:
    """Mean squared errors of all pairs by one matrix product, in float64; (n, p), (m, p) -> (n, m).

    Centering by the targets' mean keeps the norms, and so the cancellation, small.
    """
    center = b.double().mean(0)
    a, b = a.double() - center, b.double() - center
    squares = a.square().sum(1)[:, None] + b.square().sum(1)
    return torch.addmm(squares, a, b.T, alpha=-2).div_(a.shape[1])


def _check_images(name_a: str, a: object, name_b: str, b: object) -> tuple[Tensor, Tensor]:
    a, b = _check_set(name_a, a), _check_set(name_b, b)
    if a.shape[1:] != b.shape[1:]:
        shapes = f"{tuple(a.shape[1:])} and {tuple(b.shape[1:])}"
        raise UserError(f"{name_a} and {name_b} differ in image shape (channels, height, width): {shapes}")
    return a, b.to(a.device)


def _check_set(name: str, images: object) -> Tensor:
    if isinstance(images, np.ndarray):
        images = torch.from_numpy(images)
    if not isinstance(images, Tensor):
        raise UserError(f"{name} must be a tensor (n, channels, height, width), got {type(images).__name__}")
    if images.ndim != 4:
        raise UserError(f"{name} must have shape (n, channels, height, width), got {tuple(images.shape)}")
    if images.numel() == 0:
        raise UserError(f"{name} is empty: shape {tuple(images.shape)}")
    if images.dtype == torch.uint8:
        raise UserError(f"{name} has dtype uint8; convert with {name}.float() / 255")
    if not images.is_floating_point():
        raise UserError(f"{name} must be floating point in [0, 1], got {images.dtype}")
    images = images.detach()
    if images.dtype not in (torch.float32, torch.float64):
        images = images.float()
    low, high = (float(value) for value in images.aminmax())
    if low != low:  # NaN spreads through minimum and maximum
        bad = int(images.isnan().flatten(1).any(1).sum())
        raise UserError(f"{name} contains NaN in {bad} of {len(images)} images")
    if low < 0 or high > 1:
        raise UserError(
            f"{name} must lie in [0, 1], found {low:.6g} to {high:.6g} (normalized? clamp or undo)"
        )
    return images


def _check_labels(name: str, labels: object, n: int) -> Tensor:
    if labels is None:
        return torch.zeros(n, dtype=torch.int64)  # one class: every target is a candidate
    try:
        labels = torch.as_tensor(labels).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        raise UserError(f"{name} must be {n} integers, got {type(labels).__name__}") from None
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise UserError(f"{name} must be integers, got {labels.dtype}")
    if labels.shape != (n,):
        raise UserError(f"{name} must have shape ({n},), one for each image, got {tuple(labels.shape)}")
    return labels.long()
