"""Values that must be equal: two names of one thing, or one cell printed twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

from drlib.audit.finding import Finding, apart, finding, places
from drlib.audit.inequality import smallest_coverage
from drlib.audit.table import COVERAGE_METRICS, Number, Row, Table


def shared_neighbors(table: Table) -> list[Finding]:
    """PSNR falls as MSE rises, image by image: the nearest targets are the same, and so is coverage."""
    by_mse = {
        (row.block, row.target_size): row.coverage
        for row in table.measured
        if row.metric == "MSE" and row.coverage is not None
    }
    found = []
    for row in table.measured:
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
    """A cell that two tables, or a table and a sentence, print with different values."""
    cells: dict[Hashable, list[tuple[Row, Number]]] = defaultdict(list)
    for row in table.rows:
        for metric, number in (
            (row.metric, row.value),
            (f"coverage ({row.metric})" if row.metric in COVERAGE_METRICS else "", row.coverage),
        ):
            if number is not None and metric:
                cells[(*row.experiment, row.target_size, metric)].append((row, number))
    found = []
    for (*_, metric), printed in cells.items():
        if len({row.where for row, _ in printed}) > 1:
            found += _disagreeing(str(metric), printed)
    return found


def _disagreeing(metric: str, printed: list[tuple[Row, Number]]) -> list[Finding]:
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
        found.append(
            finding(
                "identity",
                "printed twice",
                row,
                first,
                f"{row.where} prints {first.text}, {where} prints {number.text}: which one is meant?",
                metric=metric,
                also_in=where,
                consistent=(number.text,),
                distance=abs(first.value - number.value),
            )
        )
    return found
