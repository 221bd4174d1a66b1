"""What claims are made of: comparisons of series, each turned into cases.

Effects are positive where the first is closer to the targets (or larger, for counts), unless a function says
otherwise. ``RELATIVE`` effects are differences over the mean of the two absolute values, so that metrics with
different units can stand in one claim.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from drlib.claims.facts import LOWER_IS_CLOSER, MEASURES, Facts, Point, Series
from drlib.claims.judging import AGAINST, SUPPORTS, UNDECIDED, Case, compare, outcome
from drlib.relations import agreement, correlation

CLOSER, FARTHER = 1, -1


def direction(metric: str) -> int:
    """1 if a larger value means closer, -1 if a smaller one does."""
    return -1 if metric in LOWER_IS_CLOSER else 1


def absolute(metric: str, a: float, b: float) -> float:
    """By how much a is closer than b, in the metric's unit."""
    return direction(metric) * (a - b)


def relative(metric: str, a: float, b: float) -> float:
    """By how much a is closer than b, as a share of their mean absolute value (-2 to 2); 0 if both are 0."""
    scale = (abs(a) + abs(b)) / 2
    return direction(metric) * (a - b) / scale if scale else 0.0


Effect = Callable[[str, float, float], float]
Sizes = Callable[[Sequence[int]], Sequence[int]]


def every_size(sizes: Sequence[int]) -> Sequence[int]:
    """All sizes that two series share."""
    return sizes


def largest_size(sizes: Sequence[int]) -> Sequence[int]:
    """Only the largest of them."""
    return sizes[-1:]


def smallest_size(sizes: Sequence[int]) -> Sequence[int]:
    """Only the smallest of them."""
    return sizes[:1]


def attacked(facts: Facts, **conditions: Any) -> list[Series]:
    """Series of attacks on models as everywhere: no defense, no variant, no judge."""
    usual: dict[str, Any] = {"defense": "none", "variant": "", "judge": ""}
    return facts.select(**{**usual, **conditions})


def judged(facts: Facts, **conditions: Any) -> list[Series]:
    """Series of a judge's counts and rates."""
    return facts.select(**{"metric": MEASURES, **conditions})


def _group(one: Series) -> str:
    """Results of one attack (or judge) on one data set and model are no independent evidence."""
    return f"{one.dataset}, {one.model}, {one.attack}, {one.judge}"


def versus(
    a: Series, b: Series, *, sizes: Sizes = every_size, effect: Effect = absolute, wanted: int = CLOSER
) -> Iterator[Case]:
    """One case per shared size: is ``a`` closer than ``b`` (or farther, as ``wanted``)?"""
    shared = sorted(set(a.points) & set(b.points))
    for size in sizes(shared):
        p, q = a.points[size], b.points[size]
        found = direction(a.metric) * compare(p, q)
        yield Case(
            f"{a.where} against {_difference(a, b)} at {size:,}",
            effect(a.metric, p.value, q.value),
            outcome(found, wanted),
            _group(a),
        )


def _difference(a: Series, b: Series) -> str:
    names = ("attack", "dataset", "model", "defense", "variant", "judge")
    return ", ".join(getattr(b, name) or "as usual" for name in names if getattr(a, name) != getattr(b, name))


def ahead(
    facts: Facts,
    better: Iterable[str],
    worse: Iterable[str],
    metrics: Iterable[str],
    *,
    sizes: Sizes = every_size,
    effect: Effect = absolute,
) -> list[Case]:
    """Is each attack of ``better`` closer than each of ``worse``, on the same target models?"""
    cases: list[Case] = []
    for a in attacked(facts, attack=tuple(better), metric=tuple(metrics)):
        for b in attacked(facts, attack=tuple(worse), metric=a.metric):
            if a.experiment == b.experiment:
                cases += versus(a, b, sizes=sizes, effect=effect)
    return cases


def changed(
    facts: Facts,
    usual: dict[str, Any],
    other: dict[str, Any],
    wanted: int,
    *,
    effect: Effect = absolute,
    **fields: Any,
) -> list[Case]:
    """Is ``other`` closer (or farther) than ``usual``, where two series differ in nothing else?

    ``usual`` and ``other`` are fields such as ``{"defense": "none"}`` and ``{"defense": "DP"}``.
    """
    cases: list[Case] = []
    for b in facts.select(**usual, **fields):
        for a in facts.select(**other, **fields):
            if replace(a, **usual, points={}) == replace(b, points={}):
                cases += versus(a, b, effect=effect, wanted=wanted)
    return cases


def ends(series: Iterable[Series], wanted: int, *, effect: Effect = absolute) -> list[Case]:
    """From the smallest to the largest size: does the value get closer (or farther)?"""
    cases = []
    for one in series:
        first, last = (one.points[size] for size in (min(one.points), max(one.points)))
        if len(one.points) > 1:
            cases.append(
                _change(one, first, last, f"{min(one.points):,} to {max(one.points):,}", wanted, effect)
            )
    return cases


def steps(series: Iterable[Series], wanted: int, *, effect: Effect = absolute) -> list[Case]:
    """From each size to the next: does the value get closer (or farther)?"""
    return [
        _change(one, one.points[a], one.points[b], f"{a:,} to {b:,}", wanted, effect)
        for one in series
        for a, b in itertools.pairwise(one.points)
    ]


def _change(one: Series, first: Point, last: Point, span: str, wanted: int, effect: Effect) -> Case:
    found = direction(one.metric) * compare(last, first)
    change = effect(one.metric, last.value, first.value)
    return Case(f"{one.where}, {span}", change, outcome(found, wanted), _group(one))


def tau(one: Series) -> float:
    """Kendall's rank correlation of a series with size, -1 to 1 (positive: larger values at larger sizes).

    Pairs within rounding count for neither side. NaN for fewer than two sizes.
    """
    points = [one.points[size] for size in sorted(one.points)]
    found = [compare(later, earlier) for earlier, later in itertools.combinations(points, 2)]
    return sum(found) / len(found) if found else math.nan


def trends(series: Iterable[Series], wanted: int) -> list[Case]:
    """Over all sizes: does the series rise (or fall)? The effect is `tau`."""
    cases = []
    for one in series:
        value = tau(one)
        if not math.isnan(value):
            sign = (value > 0) - (value < 0)
            cases.append(Case(one.where, value, outcome(sign, wanted), _group(one)))
    return cases


def best_sizes(one: Series) -> list[int]:
    """Sizes from the best to the worst value of a series; the smaller first among equals."""
    return sorted(one.points, key=lambda size: (-direction(one.metric) * one.points[size].value, size))


# --- rows: one experiment at one size with all its metrics ----------------------------------------------


def rows(facts: Facts, metrics: Sequence[str]) -> list[dict[str, Any]]:
    """Attacks at each size that have a value of every one of ``metrics``."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for one in attacked(facts, metric=tuple(metrics)):
        for size, point in one.points.items():
            row = found.setdefault((one.experiment, one.attack, size), {"attack": one.attack, "size": size})
            row |= {one.metric: point.value, "group": _group(one), "of": (one.experiment, size)}
            row["dataset"] = one.dataset
    return [row for row in found.values() if all(name in row for name in metrics)]


def coefficient(
    table: Sequence[dict[str, Any]], a: str, b: str, how: str = "pearson", resamples: int = 2000
) -> tuple[float, float, float]:
    """Agreement of two metrics over rows (positive: they agree), with its interval over groups of rows."""
    found = correlation(
        [row[a] for row in table], [row[b] for row in table], how,
        groups=[row["group"] for row in table], resamples=resamples,
    )  # fmt: skip
    low, high = sorted((agreement(found.low, a, b), agreement(found.high, a, b)))
    return agreement(found.value, a, b), low, high


def threshold(value: float, supports: bool) -> str:
    """The outcome of a case that is decided by a number unless it is undefined."""
    return UNDECIDED if math.isnan(value) else SUPPORTS if supports else AGAINST


def same_targets(table: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The rows in groups that have the same target images: several attacks on one model at one size."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in table:
        groups.setdefault(row["of"], []).append(row)
    return list(groups.values())


def at_largest(table: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows at the largest size of their experiment."""
    largest: dict[Any, int] = {}
    for row in table:
        experiment, size = row["of"]
        largest[experiment] = max(size, largest.get(experiment, 0))
    return [row for row in table if row["size"] == largest[row["of"][0]]]
