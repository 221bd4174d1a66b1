"""Granularity: a share of N things is a whole number over N, also when printed.

With N = 2,000 targets coverage moves in steps of 0.05 percentage points: 58.30 % is 1,166 images and 58.35 %
is 1,167, while no number of images makes 58.31 %. The idea is that of the GRIM test for means of integers.
A printed value passes if some whole number rounds to it, a tie either way.
"""

from __future__ import annotations

import math

from drlib.audit.finding import Finding, finding
from drlib.audit.table import COVERAGE_METRICS, Number, Row, Table

MEMORIZATION_SAMPLES = 1000
"""The paper averages over the first 1,000 training samples, or over all of fewer (section 5.2)."""


def coverage(table: Table) -> list[Finding]:
    """Coverages that are no whole number of targets; distance in percentage points.

    ``inequality.ranges`` asks about those outside (0, 100].
    """
    found = []
    for row in _once_a_pair(table.measured):
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
    for row in table.measured:
        if row.metric != "memorization" or row.value is None:
            continue
        samples = min(MEMORIZATION_SAMPLES, row.target_size) * row.seeds
        fitting = misfit(row.value, 1.0, samples)
        if fitting:
            found.append(
                finding(
                    "granularity",
                    "memorization",
                    row,
                    row.value,
                    f"With one model of each kind per sample, a mean over {samples:,} samples is a multiple "
                    f"of 1/{samples:,}. The estimator must use several models per sample, which is not "
                    "stated: how many?",
                    consistent=fitting,
                    distance=_distance(row.value, fitting),
                )
            )
    return found


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
