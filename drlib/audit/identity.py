"""Values that must be equal: two names of one thing, or one cell printed twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

from drlib.audit.finding import Finding, finding, places
from drlib.audit.inequality import smallest_coverage
from drlib.audit.table import COVERAGE_METRICS, Number, Row, Table, apart


def shared_neighbors(table: Table) -> list[Finding]:
    """PSNR falls as MSE rises, image by image: the nearest targets are the same, and so is coverage."""
    by_mse = {
        (row.block, row.target_size): row.coverage
        for row in table.cells
        if row.metric == "MSE" and row.coverage is not None
    }
    found = []
    for row in table.cells:
        beside = by_mse.get((row.block, row.target_size))
        if row.metric == "PSNR" and row.coverage is not None and beside and apart(row.coverage, beside):
            found.append(
                finding(
                    "identity",
                    "shared neighbors",
                    row,
                    row.coverage,
                    "The nearest target by PSNR is the nearest by MSE, so both coverages are one number. "
                    "Was one of them taken from another run?",
                    metric="coverage (PSNR)",
                    also_in="coverage (MSE)",
                    consistent=(beside.text,),
                    distance=abs(row.coverage.value - beside.value),
                )
            )
    return found


def one_per_class(table: Table) -> list[Finding]:
    """With one target per class, matched within classes, every target is the nearest one: exactly 100 %."""
    found = []
    for row in table.measured:
        if smallest_coverage(row) != 1 or row.metric not in COVERAGE_METRICS or row.coverage is None:
            continue
        if row.metric == "MSE" and _psnr_says_the_same(row, table):
            continue
        if row.coverage.value < 100 - row.coverage.half:
            found.append(
                finding(
                    "identity",
                    "one per class",
                    row,
                    row.coverage,
                    "With one target per class and matching within classes, coverage is 100 %. "
                    "Was this attack matched in another way?",
                    metric=f"coverage ({row.metric})",
                    consistent=(f"{100:.{row.coverage.decimals}f}",),
                    distance=100 - row.coverage.value,
                )
            )
    return found


def _psnr_says_the_same(row: Row, table: Table) -> bool:
    return any(
        other.metric == "PSNR"
        and other.coverage == row.coverage
        and (other.block, other.target_size) == (row.block, row.target_size)
        for other in table.measured
    )


def printed_twice(table: Table) -> list[Finding]:
    """A cell that two tables, or a table and a sentence, print with different values.

    ``contradicting`` asks about a cell that one table holds twice.
    """
    cells: dict[Hashable, list[tuple[Row, Number]]] = defaultdict(list)
    for row in (*table.cells, *(row for row in table.rows if row.place)):
        for metric, number in _numbers(row):
            cells[(*row.experiment, row.target_size, metric)].append((row, number))
    found = []
    for (*_, metric), printed in cells.items():
        if len({row.where for row, _ in printed}) > 1:
            found += _disagreeing(str(metric), printed, table)
    return found


def _numbers(row: Row) -> list[tuple[str, Number]]:
    coverage = row.coverage if row.metric in COVERAGE_METRICS else None
    named = ((row.metric, row.value), (f"coverage ({row.metric})", coverage))
    return [(metric, number) for metric, number in named if number is not None]


def contradicting(table: Table) -> list[Finding]:
    """A cell that one table holds several times, with different values; no other check looks at it."""
    found = []
    for rows in table.contradicting:
        printed = [dict(_numbers(row)) for row in rows]
        for metric, first in printed[0].items():
            others = [each[metric] for each in printed[1:] if metric in each and apart(each[metric], first)]
            if others:
                texts = list(dict.fromkeys(number.text for number in others))
                found.append(
                    finding(
                        "identity",
                        "contradicting rows",
                        rows[0],
                        first,
                        f"{rows[0].where} holds {first.text} and {' and '.join(texts)} for one cell: "
                        "which one is meant?",
                        metric=metric,
                        also_in=rows[0].where,
                        consistent=tuple(texts),
                        distance=abs(first.value - others[0].value),
                    )
                )
    return found


_NAMES_NO_DATASET = ("section 7",)
"""Sentences that do not say which data set they are about: it is our reading."""


def _elsewhere(row: Row, metric: str, number: Number, table: Table) -> str:
    """Where else a value of a sentence stands: with the same attack and size, but another data set."""
    same = [
        other
        for other in table.cells
        for name, value in _numbers(other)
        if (other.attack, other.model, other.defense, other.target_size, name)
        == (row.attack, row.model, row.defense, row.target_size, metric)
        and not apart(value, number)
    ]
    return (
        f"{places(same)} (for {' and '.join(dict.fromkeys(other.dataset for other in same))})" if same else ""
    )


def _disagreeing(metric: str, printed: list[tuple[Row, Number]], table: Table) -> list[Finding]:
    """One finding for each value that differs from the first; a sentence is held against its own table."""
    found = []
    tables = [(row, number) for row, number in printed if not row.place]
    if not tables:
        return []
    said: list[Number] = []
    for other, number in printed:
        named = [pair for pair in tables if pair[0].paper_table == other.same_as]
        row, first = (named or tables)[0]
        if other is row or not apart(first, number) or any(not apart(number, seen) for seen in said):
            continue
        said.append(number)
        where = places([item for item, value in printed if item is not row and not apart(value, number)])
        question = f"{row.where} prints {first.text}, {where} prints {number.text}"
        if other.place in _NAMES_NO_DATASET:
            question += f", which names no data set ({other.dataset} is our reading)"
        if other.place and (stands := _elsewhere(other, metric, number, table)):
            question += f" and has the value of {stands}"
        found.append(
            finding(
                "identity",
                "printed twice",
                row,
                first,
                f"{question}: which one is meant?",
                metric=metric,
                also_in=where,
                consistent=(number.text,),
                distance=abs(first.value - number.value),
            )
        )
    return found
