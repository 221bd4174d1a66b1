"""Sample-level distance and coverage (Definition 4.2): each reconstruction against its closest target."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from drlib.errors import UserError, unknown
from drlib.metrics.neighbors import block_shape, nearest
from drlib.metrics.resume import Resume, digest
from drlib.metrics.ssim import full_precision, ssim_matrix, ssim_nearest

METRICS = ("ssim", "psnr", "mse")
_ROWS = {"ssim": 1024, "psnr": 2048, "mse": 2048}  # reconstructions whose search is finished together
_UNIT = 2.0**-24  # relative rounding error of float32


@dataclass(frozen=True)
class SampleDistance:
    """S-Dis and coverage of n reconstructions over m targets.

    Attributes:
        distance: mean of ``values``: SSIM or PSNR (higher is closer) or MSE (lower is closer). PSNR is inf as
            soon as there is one copy; ``median`` and ``copies`` stand beside it.
        coverage: share of the targets that are the nearest of some reconstruction, in (0, 1].
        nearest: int64 (n,) index into the targets, on the CPU: the lowest of those whose SSIM, or MSE (also
            for PSNR), is within 1e-12 of the best, in proportion to it.
        values: float32 (n,) raw SSIM, PSNR in dB or MSE with the nearest target, on the CPU.
        matching: ``class`` if labels restricted the candidates, else ``all``.
        median: median of ``values``.
        copies: reconstructions equal in every pixel to a target that they may be matched with. That is the
            nearest, or ties with it.
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
    *,
    compiled: bool = False,
    progress: Callable[[int, int], None] | None = None,
    resume: str | Path | None = None,
    memory_mb: int | None = None,
) -> SampleDistance:
    """Match each reconstruction to its closest target and summarize (Definition 4.2).

    Args:
        reconstructions: (n, c, h, w) floating point in [0, 1]: a dense tensor or a NumPy array.
        targets: (m, c, h, w) likewise.
        metric: ``ssim``, ``psnr`` or ``mse``. PSNR (range 1) and MSE share neighbors and coverage.
        reconstruction_labels: n integers (also an array or a pandas Series), or None. With labels, matching
            is inside the class.
        target_labels: m integers, or None; given if and only if ``reconstruction_labels`` is.
        compiled: for ``ssim``: see ``ssim_matrix``.
        progress: called with the pairs done and all pairs that are to be done; pairs of different classes
            are not among them.
        resume: a folder, made if missing. Each finished block of reconstructions (of one class, at most 1024,
            with MSE and PSNR 2048) is kept there, and a later call with the same inputs does only the rest.
        memory_mb: bounds all that is held beside the images and 16 bytes for each reconstruction (some 200 if
            its SSIM is that of a copy, and its nearest is none), whatever n and m are: a whole number, 64 or
            more, default 512, on CUDA 4096.

    Raises:
        UserError: (a ValueError) one line, before any work.
    """
    if metric not in METRICS:
        raise unknown("metric", metric, METRICS)
    if compiled and metric != "ssim":
        raise UserError(f"compiled=True is for the metric 'ssim', not for '{metric}'")
    a, b = check_images("reconstructions", reconstructions, "targets", targets)
    if (reconstruction_labels is None) != (target_labels is None):
        missing = "reconstruction_labels" if reconstruction_labels is None else "target_labels"
        raise UserError(
            f"{missing} is missing: give the labels of both sides (match in class) or of none (all)"
        )
    restricted = reconstruction_labels is not None
    x, y = (torch.zeros(len(images), dtype=torch.int64) for images in (a, b))  # one class: all are candidates
    if restricted:
        x = check_labels("reconstruction_labels", reconstruction_labels, len(a))
        y = check_labels("target_labels", target_labels, len(b))
    classes = x.unique().tolist()
    absent = sorted(set(classes) - set(y.unique().tolist()))
    if absent:
        raise UserError(f"no target has the label of these reconstruction classes: {absent}")

    block, _ = block_shape(a, memory_mb, _ROWS[metric])
    kept = None
    if resume is not None:
        identity = {
            "reconstructions": digest(a),
            "targets": digest(b),
            "reconstruction_labels": digest(x if restricted else None),
            "target_labels": digest(y if restricted else None),
            "metric": metric,
            "window": "gaussian" if metric == "ssim" else "none",
        }
        kept = Resume(resume, identity)

    members = [(x.eq(label).nonzero().squeeze(1), y.eq(label).nonzero().squeeze(1)) for label in classes]
    pairs = _Pairs(progress, sum(len(rows) * len(candidates) for rows, candidates in members))
    find = partial(_nearest, metric=metric, compiled=compiled, memory_mb=memory_mb, progress=pairs.add)
    index, values = _search(a, b, members, find, pairs, kept, block)
    # a copy has all but exactly the best value: only these can be copies
    alike = {"mse": values == 0, "psnr": values.isinf(), "ssim": values > 1 - 1e-9}[metric]
    floor = chance = 0.0
    for rows, candidates in members:
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
        copies=_copies(a, b, members, index, alike.nonzero().squeeze(1).split(block)),
        coverage_floor=floor,
        coverage_chance=chance,
        n=len(a),
        m=len(b),
    )


def near_duplicates(a: Tensor, b: Tensor, threshold: float = 0.95) -> Tensor:
    """Pairs (i, j) with SSIM(a[i], b[j]) > threshold: int64 (p, 2), sorted, on the CPU.

    Images are (n, c, h, w) and (m, c, h, w) in [0, 1]. A set against itself includes the diagonal.
    """
    a, b = check_images("a", a, "b", b)
    step = max(1, 2**24 // len(b))
    pairs = [torch.empty(0, 2, dtype=torch.int64)]
    for i in range(0, len(a), step):
        found = (ssim_matrix(a[i : i + step], b) > threshold).nonzero().cpu()
        pairs.append(found + torch.tensor([i, 0]))
    return torch.cat(pairs)


class _Pairs:
    """Counts pairs for ``progress(done, total)``."""

    def __init__(self, progress: Callable[[int, int], None] | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def add(self, pairs: int) -> None:
        self.done += pairs
        if self.progress is not None and pairs:
            self.progress(self.done, self.total)


def _search(
    a: Tensor,
    b: Tensor,
    members: list[tuple[Tensor, Tensor]],
    find: Callable[..., tuple[Tensor, Tensor]],
    pairs: _Pairs,
    kept: Resume | None,
    block: int,
) -> tuple[Tensor, Tensor]:
    """Index into ``b`` and float64 value for each image of ``a``, on the CPU.

    ``members`` are the rows of each class and their candidates; ``block`` rows are done, and kept, at once.
    """
    index = torch.full((len(a),), -1)
    values = torch.empty(len(a), dtype=torch.float64)
    for row, found, value in kept.finished() if kept else ():
        index[row], values[row] = found, value
    for rows, candidates in members:
        left = rows[index[rows] < 0]
        pairs.add((len(rows) - len(left)) * len(candidates))
        for i in range(0, len(left), block):
            part = left[i : i + block]
            among = candidates if len(candidates) < len(b) else None  # None: no copy of b's blocks
            found, value = find(a[part.to(a.device)], b, candidates=among)
            index[part], values[part] = found.cpu(), value.cpu()
            if kept:
                kept.add(part, index[part], values[part])
    return index, values


def _nearest(
    a: Tensor,
    b: Tensor,
    *,
    metric: str,
    candidates: Tensor | None,
    compiled: bool,
    memory_mb: int | None,
    progress: Callable[[int], None],
) -> tuple[Tensor, Tensor]:
    """Index into ``b`` and value of the nearest image among the candidates, for one block."""
    if metric == "ssim":
        return ssim_nearest(
            a, b, compiled=compiled, candidates=candidates, memory_mb=memory_mb, progress=progress
        )
    rows, columns = block_shape(a, memory_mb, _ROWS[metric])
    with full_precision():
        index, mse = nearest(
            a,
            b,
            screen=_mse_screen,
            exact=_mse,
            candidates=candidates,
            rows=rows,
            columns=columns,
            progress=progress,
        )
    return index, mse if metric == "mse" else -10 * mse.log10()


def _mse(a: Tensor, b: Tensor) -> Tensor:
    """Mean squared error of paired images, by differences in float64: exactly 0 for copies."""
    return (a.double() - b).flatten(1).square_().mean(1)


def _mse_screen(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean squared errors of all pairs by one matrix product in float32, as ``nearest`` wants them.

    With x = a - c and y = b - c for the mean c of ``b``, |x - y|^2 = |x|^2 - 2 [x, 1] . [y, -|y|^2 / 2].
    Centering keeps the norms, and so the errors, small; |x|^2 is the offset, which would cost digits in
    float32.

    The error, with p pixels and u = 2^-24: a sum of p products in any order is off by at most g times the sum
    of their sizes, g = p u / (1 - p u). That is g (2 |x||y| + |y|^2) for the product and g |y|^2 for |y|^2.
    Rounding x and y moves |x - y|^2 by at most 2 u (|x| + |y|)^2 to first order; twice that is taken, and
    eight units are added to p, for scaling and for what is of higher order.
    """
    a, b = a.flatten(1), b.flatten(1)
    p = b.shape[1]
    center = b.mean(0)
    x, y = (torch.empty(len(v), p + 1, device=v.device) for v in (a, b))
    torch.sub(a, center, out=x[:, :p])
    torch.sub(b, center, out=y[:, :p])
    x_norm, y_norm = _norms64(x[:, :p]), torch.linalg.vector_norm(y[:, :p], dim=1)
    x[:, p] = 1
    torch.mul(y_norm.square(), -0.5, out=y[:, p])
    losses = torch.addmm(x.new_zeros(()), x, y.T, beta=0, alpha=-2 / p)

    largest = y_norm.max().double()
    g = (p + 8) * _UNIT / (1 - (p + 8) * _UNIT)
    error = g * 2 * largest * (x_norm + largest) + 4 * _UNIT * (x_norm + largest).square()
    return losses, x_norm.square() / p, 2 * error / p + 1e-11


def _norms64(x: Tensor) -> Tensor:
    """Norms of the rows, accumulated in float64, a few rows at a time."""
    return torch.cat([torch.linalg.vector_norm(part, dim=1, dtype=torch.float64) for part in x.split(64)])


def _copies(
    a: Tensor,
    b: Tensor,
    members: list[tuple[Tensor, Tensor]],
    index: Tensor,
    parts: Sequence[Tensor],
) -> int:
    """How many of these rows of ``a`` equal one of their candidates: as a rule the one at their index.

    Only for a row that does not, because its nearest may be another that ties, all candidates are hashed.
    """
    pairs = ((a[part.to(a.device)], b[index[part].to(b.device)]) for part in parts)
    equal = torch.cat([(x == y).flatten(1).all(1).cpu() for x, y in pairs])
    left, copies = torch.cat(parts)[~equal], int(equal.sum())
    for rows, candidates in members:
        made = Counter(digest(a[i].double() + 0.0) for i in rows[torch.isin(rows, left)])  # -0.0 is 0.0
        if made:
            copies += sum(made.pop(digest(b[j].double() + 0.0), 0) for j in candidates)
    return copies


def from_array(name: str, array: np.ndarray) -> Tensor:
    """A NumPy array of any byte order and strides as a tensor, without a copy where it can be.

    Raises ``UserError`` for a type that PyTorch does not have, such as object or longdouble.
    """
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if any(stride < 0 or stride % array.itemsize for stride in array.strides):
        array = array.copy()
    try:
        with warnings.catch_warnings():  # of arrays that are read-only: nothing is written here
            warnings.simplefilter("ignore")
            return torch.from_numpy(array)
    except TypeError:
        raise UserError(f"{name} must hold numbers of 64 bits or fewer, got dtype {array.dtype}") from None


def check_images(name_a: str, a: object, name_b: str, b: object) -> tuple[Tensor, Tensor]:
    """Both sets as float32 or float64 tensors on one device; refused unless in [0, 1] and of one shape."""
    a, b = _check_set(name_a, a), _check_set(name_b, b)
    if a.shape[1:] != b.shape[1:]:
        shapes = f"{tuple(a.shape[1:])} and {tuple(b.shape[1:])}"
        raise UserError(f"{name_a} and {name_b} differ in image shape (channels, height, width): {shapes}")
    return a, b.to(a.device)


def _check_set(name: str, images: object) -> Tensor:
    if isinstance(images, np.ndarray):
        images = from_array(name, images)
    if not isinstance(images, Tensor):
        raise UserError(f"{name} must be a tensor (n, channels, height, width), got {type(images).__name__}")
    if images.ndim != 4:
        raise UserError(f"{name} must have shape (n, channels, height, width), got {tuple(images.shape)}")
    if images.shape[3] in (1, 3) and images.shape[1] not in (1, 3):
        shape = tuple(images.shape)
        raise UserError(f"{name} has its channels last: {shape}; reorder with {name}.permute(0, 3, 1, 2)")
    if images.layout != torch.strided:
        raise UserError(f"{name} must be dense, got {images.layout}; convert with {name}.to_dense()")
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
        raise UserError(f"{name} must lie in [0, 1], found {low} to {high} (normalized? clamp or undo)")
    return images


def check_labels(name: str, labels: object, n: int) -> Tensor:
    """Labels as int64 (n,), on the CPU. Raises ``UserError`` for another length, or what are no integers."""
    labels = labels.to_numpy() if hasattr(labels, "to_numpy") else labels  # pandas
    try:
        labels = from_array(name, labels) if isinstance(labels, np.ndarray) else torch.as_tensor(labels)
        labels = labels.detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        raise UserError(f"{name} must be {n} integers, got {type(labels).__name__}") from None
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise UserError(f"{name} must be integers, got {labels.dtype}")
    if labels.shape != (n,):
        raise UserError(f"{name} must have shape ({n},), one for each image, got {tuple(labels.shape)}")
    return labels.long()
