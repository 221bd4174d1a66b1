"""Pictures in the house style: rows of images with what they must be compared with, and lines with intervals.

Images are drawn pixel by pixel (no smoothing) on the fixed range [0, 1], never stretched per image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
import torch
from torch import Tensor

from drlib.data import Split
from drlib.metrics.sample import sample_distance
from drlib.report import WIDTH

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def image_rows(
    rows: dict[str, Tensor], *, columns: Sequence[str] | None = None, marks: dict[str, Tensor] | None = None
) -> Figure:
    """One labeled row of images per entry; images (n, c, h, w) in [0, 1], all rows of equal n.

    ``marks`` maps a row's name to (n,) numbers written under its images.
    """
    count = max(len(images) for images in rows.values())
    size = min(0.85, (WIDTH - 1.3) / count)
    marks = marks or {}
    heights = [size + (0.17 if name in marks else 0.0) for name in rows]
    fig, axes = plt.subplots(
        len(rows),
        count,
        figsize=(1.3 + size * count, sum(heights) + 0.25),
        height_ratios=heights,
        squeeze=False,
        layout="none",
    )
    for line, (name, images) in zip(axes, rows.items(), strict=True):
        for column, axis in enumerate(line):
            axis.set_axis_off()
            if column < len(images):
                _show(axis, images[column])
                if name in marks:
                    axis.text(
                        0.5,
                        -0.04,
                        f"{round(float(marks[name][column]), 2) + 0.0:.2f}",
                        ha="center",
                        va="top",
                        fontsize=7,
                        transform=axis.transAxes,
                    )
        line[0].text(-0.15, 0.5, name, ha="right", va="center", fontsize=8, transform=line[0].transAxes)
    if columns:
        for axis, title in zip(axes[0], columns, strict=False):
            axis.set_title(title, fontsize=8, pad=3)
    fig.subplots_adjust(
        left=1.3 / (1.3 + size * count),
        right=1,
        top=1 - 0.25 / (sum(heights) + 0.25),
        bottom=0.02,
        wspace=0.06,
        hspace=0.06,
    )
    return fig


def _show(axis: Axes, image: Tensor) -> None:
    array = image.permute(1, 2, 0).numpy()
    axis.imshow(
        array.squeeze(-1) if array.shape[2] == 1 else array,
        cmap="gray",
        vmin=0,
        vmax=1,
        interpolation="nearest",
    )


def nearest_images(images: Tensor, labels: Tensor | None, others: Split) -> tuple[Tensor, Tensor]:
    """For each image the nearest of ``others`` in SSIM, within its class if labeled: (images, SSIM)."""
    found = sample_distance(images, others.images, "ssim", labels, None if labels is None else others.labels)
    return others.images[found.nearest], found.values


def comparison_rows(
    images: Tensor, labels: Tensor | None, target: Split, holdout: Split
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The rows that every picture of reconstructions shows, and SSIM values to write under them.

    Reconstruction, nearest target, nearest holdout image, and the best-possible row: the holdout image
    that is itself closest to the nearest target, which is what perfect generalization would return. Where
    there is no holdout, the last two are left out.
    """
    near_target, to_target = nearest_images(images, labels, target)
    if not len(holdout):
        return {"reconstruction": images, "nearest target": near_target}, {"nearest target": to_target}
    near_holdout, to_holdout = nearest_images(images, labels, holdout)
    best, to_best = nearest_images(near_target, labels, holdout)
    rows = {
        "reconstruction": images,
        "nearest target": near_target,
        "nearest holdout": near_holdout,
        "best possible": best,
    }
    return rows, {"nearest target": to_target, "nearest holdout": to_holdout, "best possible": to_best}


def gaps(table: pandas.DataFrame, metric: str) -> Figure:
    """Leakage gaps with intervals, one panel per target size, attacks above controls; zero is marked."""
    shown = table[(table.metric == metric) & table.gap.notna()]
    sizes = sorted(shown.target_size.unique())
    names = list(dict.fromkeys(shown.attack))
    fig, axes = plt.subplots(
        1, len(sizes), figsize=(WIDTH, 0.36 * len(names) + 1.0), sharey=True, sharex=True, squeeze=False
    )
    for axis, size in zip(axes[0], sizes, strict=True):
        rows = shown[shown.target_size == size].set_index("attack").reindex(names)
        y = np.arange(len(names))[::-1]
        for kind, color in (("attack", "C0"), ("control", "C7")):
            mask = (rows.kind == kind).to_numpy()
            errors = np.stack([rows.gap - rows.gap_low, rows.gap_high - rows.gap])[:, mask]
            axis.errorbar(rows.gap[mask], y[mask], xerr=errors, fmt="o", color=color, ms=4, capsize=3, lw=1.2)
        axis.axvline(0, color="0.6", lw=0.8, zorder=0)
        axis.set_title(f"{size} target images", fontsize=9)
        axis.set_yticks(y, names)
    fig.supxlabel(f"leakage gap in {metric} (right: closer to training images)", fontsize=9)
    sns.despine(fig)
    return fig


def against_size(table: pandas.DataFrame, metric: str) -> Figure:
    """One panel per attack: the metric against the target size, as measured and at equal size.

    Gray lines are the same in every panel: the holdout and noise, as measured. Bars are intervals. For
    attacks on an update, the size is that of the training set before it, and the controls are the update's.
    """
    shown = table[table.metric == metric]
    names = list(dict.fromkeys(shown[shown.kind == "attack"].attack))
    columns = min(5, len(names))
    rows = -(-len(names) // columns)
    fig, axes = plt.subplots(
        rows, columns, figsize=(WIDTH + 0.6, 1.75 * rows + 0.5), sharex=True, sharey=True, squeeze=False
    )
    sizes = sorted(shown.target_size.unique())
    for axis, name in zip(axes.flat, names, strict=False):
        part = shown[shown.attack == name].sort_values("target_size")
        update = part.reconstructs.iloc[0] == "update images"
        for control, style in (("Holdout", "-"), ("Noise", ":")):
            other = shown[shown.attack == (f"{control} (update)" if update else control)]
            other = other.sort_values("target_size")
            axis.plot(other.target_size, other.value, color="0.6", ls=style, lw=1.1, label=control)
        errors = np.stack([part.value - part.value_low, part.value_high - part.value])
        bars = errors if np.isfinite(errors).all() else None
        axis.errorbar(part.target_size, part.value, bars, color="C0", marker="o", ms=3, lw=1.3, capsize=2,
                      label="as measured")  # fmt: skip
        axis.plot(part.target_size, part.value_equal, color="C1", ls="--", lw=1.3, label="at equal size")
        axis.set_title(name, fontsize=8.5)
        axis.set_xscale("log")
        axis.set_xticks(sizes, [str(size) for size in sizes])
        axis.minorticks_off()
    for axis in axes.flat[len(names) :]:
        axis.set_axis_off()
    fig.supxlabel("target images", fontsize=9)
    fig.supylabel(metric, fontsize=9)
    handles, labels = axes[0][0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=8, frameon=False)
    sns.despine(fig)
    return fig


def convergence(curve: pandas.DataFrame, metric: str) -> Figure:
    """One panel per scaled hyperparameter: the value against its setting, the profile's own marked.

    ``curve`` is of one attack, from ``drlib.convergence.curves``. Bars are intervals; one seed is said.
    """
    parts = list(curve.groupby("scaled", sort=False))
    fig, axes = plt.subplots(
        1, len(parts), figsize=(max(3.6, 3.4 * len(parts)), 2.7), sharey=True, squeeze=False
    )
    for axis, (name, part) in zip(axes[0], parts, strict=True):
        errors = np.stack([part.value - part.low, part.high - part.value])
        whole = np.isfinite(errors).all()
        bars = errors if whole else None
        axis.errorbar(part.setting, part.value, bars, marker="o", ms=4, lw=1.4, capsize=3)
        usual = part[part.multiple == 1].setting.iloc[0]
        axis.axvline(usual, color="0.6", lw=0.8, ls=":", zorder=0)
        axis.set_xscale("log")
        axis.set_xticks(part.setting.tolist(), [f"{value:g}" for value in part.setting])
        axis.minorticks_off()
        seeds = part.seeds.iloc[0]
        axis.set_xlabel(f"{name} ({seeds} seed{'s' if seeds > 1 else ''})")
    axes[0][0].set_ylabel(metric)
    sns.despine(fig)
    return fig


def class_examples(split: Split, per_class: int = 2) -> Tensor:
    """The first images of each class of a split, class by class: (classes * per_class, c, h, w)."""
    chosen = [(split.labels == label).nonzero().flatten()[:per_class] for label in split.labels.unique()]
    return split.images[torch.cat(chosen)]
