"""Breaks along a line of a table: a factor of ten between neighbors, or a value far from both of them.

Some steps explain themselves and are left out. An attack that returns the same few images covers a tenth of
a set that is ten times as large, so a coverage must also lose *targets*. Counts scatter, so a step in a
count must exceed what chance makes of two equal shares (conditional binomial test). A score near zero has no
meaningful ratio, so it must move by a share of its scale. The judge's counts are left out: the sizes compete
for the same votes, and a steep fall is what such a table is made to show.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Hashable
from itertools import pairwise

from drlib import relations
from drlib.audit.finding import Finding, finding
from drlib.audit.table import COVERAGE_METRICS, TEXT_METRICS, Number, Row, Table

BREAK, ISOLATED = 10.0, 3.0
"""Factors from which a step between neighbors, or a distance from both neighbors, is asked about."""

CHANCE_OF_BREAK, CHANCE_OF_ISOLATED = 3e-5, 1e-4
"""A count must be less likely than this; an isolated one on both sides."""

_LEAST_STEP = {"SSIM": 0.05, "MSE": 0.02, "memorization": 0.05} | dict.fromkeys(TEXT_METRICS, 0.05)


@dataclasses.dataclass(frozen=True)
class Point:
    """One value of a line. ``trials``: what a share is a share of; None for a mean of real numbers."""

    row: Row
    number: Number
    metric: str
    trials: int | None

    @property
    def count(self) -> int:
        share = self.number.value / (100 if self.metric.startswith("coverage") else 1)
        return round(share * self.trials)


def jumps(table: Table) -> list[Finding]:
    """Breaks and isolated values of all lines; coverages that break together are one finding."""
    lines: dict[Hashable, list[Point]] = defaultdict(list)
    for row in table.cells:
        for point in _points(row):
            lines[row.block, point.metric].append(point)
    events: dict[Hashable, list[tuple[Point, Finding]]] = defaultdict(list)
    for (block, _), points in lines.items():
        for point, what in _asked(sorted(points, key=lambda point: point.row.target_size)):
            kind = "coverage" if point.trials and point.metric != "memorization" else point.metric
            events[block, point.row.target_size, kind].append((point, what))
    return [_joined(found) for found in events.values()]


def _points(row: Row) -> list[Point]:
    points = []
    known = relations.is_dataset_level(row.metric) or row.metric in (*relations.SAMPLE, *TEXT_METRICS)
    if row.value is not None and row.value.finite and not row.control:
        if row.metric == "memorization":
            samples = (row.samples or row.target_size) * row.seeds
            points.append(Point(row, row.value, row.metric, samples))
        elif known:
            points.append(Point(row, row.value, row.metric, None))
    if row.metric in COVERAGE_METRICS and row.coverage is not None and row.targets and not row.control:
        points.append(Point(row, row.coverage, f"coverage ({row.metric})", row.targets * row.seeds))
    return points


def _asked(line: list[Point]) -> list[tuple[Point, Finding]]:
    """Isolated values first; a break next to one of them is the same question."""
    isolated = {}
    for i in range(1, len(line) - 1):
        factor = _isolation(*line[i - 1 : i + 2])
        if factor is not None:
            isolated[i] = factor
    found = [(line[i], _isolated(line, i, factor)) for i, factor in isolated.items()]
    for i, (one, other) in enumerate(pairwise(line)):
        factor = _step(one, other, BREAK, CHANCE_OF_BREAK)
        if factor is not None and i not in isolated and i + 1 not in isolated:
            found.append((other, _break(one, other, factor)))
    return found


def _isolation(before: Point, here: Point, after: Point) -> float | None:
    """The smaller factor between a value and its neighbors if both lie on the same side of it, far enough."""
    values = [point.number.value for point in (before, here, after)]
    if not (values[1] > max(values[0], values[2]) or values[1] < min(values[0], values[2])):
        return None
    steps = [_step(side, here, ISOLATED, CHANCE_OF_ISOLATED) for side in (before, after)]
    return None if None in steps else min(steps)


def _step(one: Point, other: Point, factor: float, chance: float) -> float | None:
    """The factor between two values if it is at least ``factor``, whatever was rounded, and not explained."""
    low, high = sorted((one, other), key=lambda point: point.number.value)
    least = low.number.value + low.number.half
    if least <= 0 or high.number.value - high.number.half < factor * least:
        return None
    if high.number.value - low.number.value < _LEAST_STEP.get(low.metric, 0.0):
        return None
    if low.trials is not None and _by_chance(low, high) > chance:
        return None
    return high.number.value / max(low.number.value, low.number.half)


def _by_chance(low: Point, high: Point) -> float:
    """How likely the lower count is so low, if both have the same share, or (collapse) the same count.

    In the larger set a share may fall as one over its size: there the lower of two equal counts is expected.
    """
    expected = min(0.5, low.trials / (low.trials + high.trials))
    return binomial_tail(low.count, low.count + high.count, expected)


def binomial_tail(k: int, n: int, p: float) -> float:
    """Pr[X <= k] for X ~ Binomial(n, p), 0 < p < 1: a regularized incomplete beta function."""
    from scipy.special import betainc

    return 1.0 if k >= n else float(betainc(n - k, k + 1, 1 - p))


def _isolated(line: list[Point], i: int, factor: float) -> Finding:
    before, here, after = line[i - 1 : i + 2]
    sides = [f"{point.number.text} at {point.row.target_size:,}" for point in (before, after)]
    return finding(
        "jump",
        "isolated",
        here.row,
        here.number,
        f"{here.number.text} at {here.row.target_size:,} stands between {' and '.join(sides)}: "
        "did this one run differ?",
        metric=here.metric,
        distance=factor,
    )


def _break(one: Point, other: Point, factor: float) -> Finding:
    return finding(
        "jump",
        "break",
        other.row,
        other.number,
        f"From {one.row.target_size:,} to {other.row.target_size:,} images it goes from {one.number.text} to "
        f"{other.number.text}: what changed between the two sizes?",
        metric=other.metric,
        distance=factor,
    )


def _joined(found: list[tuple[Point, Finding]]) -> Finding:
    """Coverages by SSIM, PSNR and MSE that break at the same size: one finding, the others named in it."""
    first = found[0][1]
    others = ", ".join(f"{point.metric} {point.number.text}" for point, _ in found[1:])
    return dataclasses.replace(first, also_in=others)
