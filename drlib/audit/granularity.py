"""Granularity: a share of N things is a whole number over N, also when printed.

With N = 2,000 targets coverage moves in steps of 0.05 percentage points: 58.30 % is 1,166 images and 58.35 %
is 1,167, while no number of images makes 58.31 %. The idea is that of the GRIM test for means of integers.
A printed value passes if some whole number rounds to it, a tie either way.
"""

from __future__ import annotations

import math
from collections import defaultdict

from drlib.audit.finding import Finding, finding, places
from drlib.audit.table import COVERAGE_METRICS, Number, Row, Table


def coverage(table: Table) -> list[Finding]:
    """Coverages that are no whole number of targets; distance in percentage points.

    ``inequality.ranges`` asks about those outside (0, 100].
    """
    found = []
    for row in _once_a_pair(table.cells):
        if row.targets is None or not 0 < row.coverage.value <= 100:
            continue
        fitting = misfit(row.coverage, 100.0, row.targets * row.seeds)
        if fitting:
            steps = f"{row.targets:,} targets" + (f" and {row.seeds} seeds" if row.seeds > 1 else "")
            found.append(
                finding(
                    "granularity",
                    "coverage",
                    row,
                    row.coverage,
                    f"Of {steps}, which number gives {row.coverage.text} %? "
                    f"Whole numbers give {' or '.join(fitting)} %.",
                    metric=f"coverage ({row.metric})",
                    consistent=fitting,
                    distance=_distance(row.coverage, fitting),
                )
            )
    return found


def memorization(table: Table) -> list[Finding]:
    """Mean memorization scores that are no whole number over their samples; distance as a score."""
    found = []
    for row in _scores(table):
        samples = row.samples * row.seeds
        fitting = misfit(row.value, 1.0, samples)
        if fitting:
            found.append(
                finding(
                    "granularity",
                    "memorization",
                    row,
                    row.value,
                    f"With one model of each kind per sample, a mean over {samples:,} samples is a multiple "
                    f"of 1/{samples:,}. Are there several models per sample, another number of samples, or "
                    "probabilities instead of right and wrong?",
                    consistent=fitting,
                    distance=_distance(row.value, fitting),
                )
            )
    return found


def memorization_in_hundredths(table: Table) -> list[Finding]:
    """Scores of a data set that all end in 0, though their samples make finer steps; distance in scores.

    If a score could end in any digit, the chance that it ends in 0 is about a tenth; with the smallest counts
    that are no 0, up to 0.13 (``_CHANCE_OF_ZERO``). A data set is asked about if the chance of all its scores
    from some size on, times the number of data sets and of sizes to begin with, is below 1e-4. Scores of 0
    and 1 do not count, nor do those of so few samples that every mean ends in 0.
    """
    by_dataset: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in _scores(table):
        saturated = row.value.value in (0, 1)
        if row.value.decimals == 3 and not saturated and row.samples * row.seeds > 100:
            by_dataset[row.dataset, row.defense, row.name].append(row)
    tried = sum(len({row.target_size for row in rows}) for rows in by_dataset.values())
    found = []
    for rows in by_dataset.values():
        for size in sorted({row.target_size for row in rows}):
            line = [row for row in rows if row.target_size >= size]
            chance = math.prod(chance_of_zero(row.samples * row.seeds) for row in line)
            if all(row.value.text.endswith("0") for row in line) and chance * tried < _CHANCE:
                found.append(_hundredths(line))
                break
    return found


_CHANCE = 1e-4
_CHANCE_OF_ZERO = 0.13
"""Of a count from 1 to 999 of 1,000: the largest chance that it is a multiple of ten (Poisson, mean 10)."""


def chance_of_zero(samples: int) -> float:
    """At most: gcd(N, 100) of the N steps are whole hundredths, and small counts scatter little."""
    return max(_CHANCE_OF_ZERO, 1.1 * math.gcd(samples, 100) / samples)


def _hundredths(line: list[Row]) -> Finding:
    first = line[0]
    return finding(
        "granularity",
        "hundredths",
        first,
        first.value,
        f"All {len(line)} scores from {first.target_size:,} images on ({places(line)}) end in 0, as means "
        f"over 100 samples do; over {first.samples:,} samples about one in ten would. "
        "How many samples were used?",
        also_in=", ".join(row.value.text for row in line[1:]),
        distance=0.0,
    )


def _scores(table: Table) -> list[Row]:
    """Memorization scores whose number of samples is known."""
    return [
        row
        for row in table.cells
        if row.metric == "memorization" and row.value is not None and row.samples is not None
    ]


def no_samples(table: Table) -> str:
    """Why nothing can be said about memorization: a reason, or "" if it can (or there is none)."""
    scores = [row for row in table.measured if row.metric == "memorization"]
    return "needs the column samples" if scores and not _scores(table) else ""


def misfit(printed: Number, whole: float, parts: int) -> tuple[str, ...]:
    """Empty if a multiple of ``whole / parts`` rounds to ``printed``; else the nearest printed ones."""
    if not printed.finite:
        return ()
    below = math.floor(printed.value * parts / whole)
    near = [(below + step) * whole / parts for step in (0, 1)]
    if any(abs(value - printed.value) <= printed.half + 1e-9 for value in near):
        return ()
    texts = [f"{value:.{printed.decimals}f}" for value in near]
    gaps = [abs(float(text) - printed.value) for text in texts]
    return tuple(text for text, gap in zip(texts, gaps, strict=True) if gap <= min(gaps) + 1e-9)


def _once_a_pair(rows: list[Row]) -> list[Row]:
    """Rows with a coverage; that of MSE only where it differs from PSNR's (one count printed twice)."""
    with_coverage = [row for row in rows if row.metric in COVERAGE_METRICS and row.coverage is not None]
    of_psnr = {
        (row.block, row.target_size): row.coverage.text for row in with_coverage if row.metric == "PSNR"
    }
    return [
        row
        for row in with_coverage
        if row.metric != "MSE" or of_psnr.get((row.block, row.target_size)) != row.coverage.text
    ]


def _distance(printed: Number, fitting: tuple[str, ...]) -> float:
    return abs(printed.value - float(fitting[0]))
