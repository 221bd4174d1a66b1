"""Inequalities that hold between metrics, and the ranges of each.

PSNR of an image is -10 log10 of its MSE, a convex function, so by Jensen's inequality the mean PSNR is at
least the PSNR of the mean MSE. Both are rounded: the test takes the largest PSNR and the largest MSE that
round to what is printed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable

from drlib import relations
from drlib.audit.finding import Finding, finding
from drlib.audit.table import COVERAGE_METRICS, TEXT_METRICS, Number, Row, Table

_NOISE = 1e-6  # of sums in single precision
_RANGES = {
    "SSIM": (-1.0, 1.0),
    "MSE": (0.0, 1.0),
    "PSNR": (0.0, math.inf),
    "memorization": (-1.0, 1.0),
    "similarity": (-1.0, 1.0),  # a cosine
}


def jensen(table: Table) -> list[Finding]:
    """Mean PSNR below -10 log10 of the mean MSE of the same images; distance in dB beyond all rounding."""
    mse = {
        (row.block, row.target_size): row.value
        for row in table.cells
        if row.metric == "MSE" and row.value is not None
    }
    found = []
    for row in table.cells:
        beside = mse.get((row.block, row.target_size))
        if row.metric != "PSNR" or row.value is None or beside is None:
            continue
        least = least_psnr(beside)
        if row.value.finite and row.value.value + row.value.half < least - _NOISE:
            text = _printed_up(least, row.value)
            found.append(
                finding(
                    "inequality",
                    "Jensen",
                    row,
                    row.value,
                    f"A mean MSE of {beside.text} needs a mean PSNR of {text} dB or more, with range 1 and "
                    "one value per image. Was PSNR averaged in another way, or over other images?",
                    also_in=f"MSE {beside.text}",
                    consistent=(text,),
                    distance=least - row.value.value - row.value.half,
                )
            )
    return found


def least_psnr(mse: Number) -> float:
    """The smallest mean PSNR in dB that goes with a printed mean MSE; minus infinity if not finite."""
    largest = mse.value + mse.half
    return -10 * math.log10(largest) if 0 < largest < math.inf else -math.inf


def _printed_up(least: float, like: Number) -> str:
    """The smallest number with so many digits whose rounding interval reaches ``least``."""
    unit = 10.0**-like.decimals
    return f"{math.ceil((least - like.half) / unit - 1e-9) * unit:.{like.decimals}f}"


def ranges(table: Table) -> list[Finding]:
    """SSIM or similarity outside [-1, 1], MSE outside [0, 1], PSNR or FID below 0, coverage outside (0, 100].

    BLEU and ROUGE-L go to 1 or to 100, whichever fits most of a line.
    """
    scales = _scales(table)
    found = []
    for row in table.measured:
        low, high = _RANGES.get(row.metric, (-math.inf, math.inf))
        if (row.block, row.metric) in scales:
            low, high = 0.0, scales[row.block, row.metric]
        if relations.is_dataset_level(row.metric):
            low = 0.0
        found += _outside(row, row.value, low, high, row.metric)
        if row.metric in COVERAGE_METRICS and row.coverage and not 0 < row.coverage.value <= 100:
            smallest = 100 / (row.targets or math.inf) / row.seeds
            found += _outside(row, row.coverage, smallest, 100.0, f"coverage ({row.metric})")
    return found


def _scales(table: Table) -> dict[Hashable, float]:
    """1 or 100 for each line of BLEU or ROUGE-L: 1 if most values are at most 1, with three digits.

    With fewer digits, values below 1 may be the poor end of a scale to 100.
    """
    lines: dict[Hashable, list[Number]] = defaultdict(list)
    for row in table.measured:
        if row.metric in TEXT_METRICS and row.metric not in _RANGES and row.value is not None:
            lines[row.block, row.metric].append(row.value)
    return {line: 1.0 if _of_one(values) else 100.0 for line, values in lines.items()}


def _of_one(values: list[Number]) -> bool:
    below = sum(number.value <= 1 for number in values)
    return 2 * below > len(values) and max(number.decimals for number in values) > 2


def _outside(row: Row, number: Number | None, low: float, high: float, metric: str) -> list[Finding]:
    if number is None or low - number.half - _NOISE <= number.value <= high + number.half + _NOISE:
        return []
    bound = low if number.value < low else high
    says = (
        f"{metric} lies between {low:g} and {high:g}"
        if math.isfinite(high)
        else f"{metric} is at least {low:g}"
    )
    return [
        finding(
            "inequality",
            "range",
            row,
            number,
            f"{says}: in which unit or by which definition is it {number.text}?",
            metric=metric,
            consistent=(f"{bound:.{min(number.decimals, 9)}f}",),
            distance=abs(number.value - bound),
        )
    ]


def floor(table: Table) -> list[Finding]:
    """Coverages below one target per class for attacks that are matched within classes.

    Where there is one target per class, ``identity.one_per_class`` asks.
    """
    found = []
    for row in table.measured:
        least = smallest_coverage(row)
        if least is None or least >= 1 or row.metric not in COVERAGE_METRICS or row.coverage is None:
            continue
        if 0 < row.coverage.value < 100 * least - row.coverage.half - _NOISE:
            found.append(
                finding(
                    "inequality",
                    "floor",
                    row,
                    row.coverage,
                    "Matched within classes, every class covers one target or more. "
                    "Was this attack matched among all targets, or did it leave classes out?",
                    metric=f"coverage ({row.metric})",
                    consistent=(f"{100 * least:.{row.coverage.decimals}f}",),
                    distance=100 * least - row.coverage.value,
                )
            )
    return found


def smallest_coverage(row: Row) -> float | None:
    """The smallest possible coverage as a fraction: as the table says, or one target per class; else None."""
    if row.floor is not None or row.classes is None or row.targets is None:
        return row.floor
    return min(1.0, row.classes / row.targets)


def no_floor(table: Table) -> str:
    """Why no floor of coverage is known: a reason, or "" if one is."""
    known = any(smallest_coverage(row) is not None for row in table.measured)
    return "" if known else "needs the column coverage_floor or classes"
