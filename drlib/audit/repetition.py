"""Lines that are printed several times, and lines that should be and are not.

A *line* is what a table prints for one attack and one metric over all sizes; a *result* is what it prints for
one attack at one size over all metrics. Two unrelated lines can share a number by chance. The chance that
they share a given one is at most its rounding unit over the spread of the metric (the middle half of its
values in the table), or how common that number is elsewhere in the table. If cell i of m is shared with
chance p_i, then by Markov's inequality the product of 1 / p_i over the cells that are shared exceeds t with
probability at most 2^m / t. A pair is reported if that bound, times the number of pairs, is below 1e-4.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from itertools import combinations

import numpy as np

from drlib import relations
from drlib.audit.finding import Finding, finding, places
from drlib.audit.table import Number, Row, Table

OWN_NETWORK = ("Bias-Rec",)
"""Attacks that train a network of their own (appendix C): one result may stand under several models."""

_CHANCE = 1e-4
Cells = dict[tuple[str, int], Row]
Block = tuple[Hashable, ...]


def repeated(table: Table) -> list[Finding]:
    """Lines or results that two attacks, models, defenses or data sets share, beyond chance."""
    blocks = _blocks(table)
    common = Counter(
        (metric, row.value.text) for cells in blocks.values() for (metric, _), row in cells.items()
    )
    spread = _spreads(blocks.values())
    pairs = len(blocks) * (len(blocks) - 1) // 2
    found = []
    for (one, other), shared in _shared(blocks).items():
        if _may_repeat(blocks[one], blocks[other]):
            continue
        evidence: dict[Hashable, dict[str, float]] = defaultdict(dict)
        for metric, size in shared:
            number = blocks[one][metric, size].value
            rarity = -math.log10(
                _chance(number, spread[metric], common[metric, number.text] - 2, len(blocks))
            )
            evidence[metric][number.text] = rarity  # a number that recurs along a line counts once
            evidence[size][f"{metric} {number.text}"] = rarity
        if any(
            sum(each.values()) > _needed(_cells(blocks[one], which), pairs)
            for which, each in evidence.items()
        ):
            found.append(_question(blocks[one], blocks[other], shared))
    return found


def _blocks(table: Table, *, beside_psnr: bool = False) -> dict[Block, Cells]:
    """The cells of each attack in each table that count as evidence.

    MSE is left out beside PSNR, which says the same with more digits, unless ``beside_psnr``; so are
    coverages, which are few whole numbers, and controls, some of which are the same for every model.
    """
    blocks: dict[Block, Cells] = defaultdict(dict)
    for row in table.cells:
        counts = row.metric in relations.SAMPLE or relations.is_dataset_level(row.metric)
        if counts and not row.control and not row.variant and row.value is not None and row.value.finite:
            blocks[row.block][row.metric, row.target_size] = row
    for cells in blocks.values():
        for metric, size in list(cells):
            if metric == "MSE" and ("PSNR", size) in cells and not beside_psnr:
                del cells[metric, size]
    return dict(blocks)


def _spreads(blocks: Iterable[Cells]) -> dict[str, float]:
    values: dict[str, list[float]] = defaultdict(list)
    for cells in blocks:
        for (metric, _), row in cells.items():
            values[metric].append(row.value.value)
    return {name: float(np.subtract(*np.quantile(each, [0.75, 0.25]))) for name, each in values.items()}


def _shared(blocks: dict[Block, Cells]) -> dict[tuple[Block, Block], list[tuple[str, int]]]:
    """For each pair of blocks with two shared values or more: the cells in which they are equal."""
    holders: dict[Hashable, list[Block]] = defaultdict(list)
    for block, cells in blocks.items():
        for cell, row in cells.items():
            holders[(cell, row.value.text)].append(block)
    shared: dict[tuple[Block, Block], list[tuple[str, int]]] = defaultdict(list)
    for (cell, _), who in holders.items():
        for pair in combinations(who, 2):
            shared[pair].append(cell)
    return {pair: cells for pair, cells in shared.items() if len(cells) > 1}


def _may_repeat(one: Cells, other: Cells) -> bool:
    """True where the paper says that the results are one: the same cell in two tables, or an own network."""
    a, b = next(iter(one.values())), next(iter(other.values()))
    if a.experiment == b.experiment:
        return True
    own = a.attack == b.attack and a.attack in OWN_NETWORK
    return own and (a.dataset, a.defense, a.setting) == (b.dataset, b.defense, b.setting)


def _chance(number: Number, spread: float, elsewhere: int, blocks: int) -> float:
    by_spread = 2 * number.half / spread if spread > 0 else 1.0
    return min(1.0, max(by_spread, elsewhere / blocks))


def _cells(cells: Cells, which: Hashable) -> int:
    return sum(which in cell for cell in cells)


def _needed(cells: int, pairs: int) -> float:
    return cells * math.log10(2) + math.log10(max(1, pairs)) - math.log10(_CHANCE)


def _question(one: Cells, other: Cells, shared: list[tuple[str, int]]) -> Finding:
    first = min(shared, key=lambda cell: list(one).index(cell))
    row, again = one[first], other[first]
    told = ", ".join(
        f"{name} {value}"
        for name, value, mine in (
            ("data set", again.dataset, row.dataset),
            ("model", again.model, row.model),
            ("defense", again.defense, row.defense),
            ("attack", again.attack, row.attack),
        )
        if value != mine
    )
    return finding(
        "repetition",
        "repeated",
        row,
        row.value,
        f"{len(shared)} values are also printed for {told or 'another setting'}, more than chance explains. "
        "Is it one result that belongs to both?",
        also_in=f"{again.where}: {told}" if told else again.where,
    )


def repeated_sizes(table: Table) -> list[Finding]:
    """Two sizes of one attack at which a table prints the same values for all its metrics.

    Values along a line lie closer together than those of a table, so here the chance that two are equal is
    their rounding unit over the middle difference of the other sizes of the line. A line that hardly changes,
    such as that of an attack which returns the same images whatever the size, is no evidence.
    """
    blocks = _blocks(table, beside_psnr=True)
    pairs = sum(math.comb(len({size for _, size in cells}), 2) for cells in blocks.values())
    found = []
    for cells in blocks.values():
        metrics = list(dict.fromkeys(metric for metric, _ in cells))
        sizes = sorted({size for _, size in cells})
        for a, b in combinations(sizes, 2):
            both = [metric for metric in metrics if (metric, a) in cells and (metric, b) in cells]
            equal = all(cells[metric, a].value.text == cells[metric, b].value.text for metric in both)
            if not equal or (both != metrics) or len(both) < 2:
                continue
            evidence = sum(
                _rarity_along(cells, metric, a, b) for metric in both if not _says_psnr(metric, both)
            )
            if evidence > math.log10(pairs) - math.log10(_CHANCE):
                row, texts = cells[both[0], a], [f"{metric} {cells[metric, a].value.text}" for metric in both]
                found.append(
                    finding(
                        "repetition",
                        "repeated sizes",
                        row,
                        row.value,
                        f"All values ({', '.join(texts)}) are printed for {a:,} and for {b:,} images: "
                        "is it one run?",
                        also_in=f"{b:,} images",
                    )
                )
    return found


def _says_psnr(metric: str, metrics: list[str]) -> bool:
    return metric == "MSE" and "PSNR" in metrics


def _rarity_along(cells: Cells, metric: str, a: int, b: int) -> float:
    """Minus the logarithm of the chance that a line has one value at two sizes."""
    number = cells[metric, a].value
    others = [row.value.value for (name, size), row in cells.items() if name == metric and size != b]
    steps = [abs(x - y) for x, y in combinations(others, 2)]
    step = float(np.median(steps)) if len(others) > 2 else 0.0
    return -math.log10(min(1.0, 2 * number.half / step)) if step > 0 else 0.0


def not_repeated(table: Table) -> list[Finding]:
    """Tables with other values for an attack whose results other tables repeat under several models."""
    groups: dict[Hashable, dict[Block, Cells]] = defaultdict(dict)
    for block, cells in _blocks(table).items():
        row = next(iter(cells.values()))
        if row.attack in OWN_NETWORK:
            groups[row.dataset, row.defense, row.attack, row.setting][block] = cells
    found = []
    for blocks in groups.values():
        same = _repeated_under_models(list(blocks.values()))
        for cells in blocks.values():
            different = [
                cell for cell in cells if cell in same and cells[cell].value.text != same[cell].value.text
            ]
            if different:
                found.append(_another(cells, same, different, places(_holders(blocks.values(), same))))
    return found


def _repeated_under_models(blocks: list[Cells]) -> Cells:
    """The longest block that stands under two models or more in nearly all cells; empty if none does."""
    best: Cells = {}
    for one, other in combinations(blocks, 2):
        models = {next(iter(cells.values())).model for cells in (one, other)}
        if len(models) > 1 and _alike(one, other) and len(one) > len(best):
            best = one
    return best


def _alike(one: Cells, other: Cells) -> bool:
    both = [cell for cell in one if cell in other]
    equal = sum(one[cell].value.text == other[cell].value.text for cell in both)
    return len(both) > 2 and equal >= 0.75 * len(both)


def _holders(blocks: Iterable[Cells], same: Cells) -> list[Row]:
    return [next(iter(cells.values())) for cells in blocks if _alike(same, cells)]


def _another(cells: Cells, same: Cells, different: list[tuple[str, int]], where: str) -> Finding:
    row, usual = cells[different[0]], same[different[0]]
    more = f" This and {len(different) - 1} more of its values differ." if len(different) > 1 else ""
    return finding(
        "repetition",
        "not repeated",
        row,
        row.value,
        f"{row.attack} has a network of its own, and {where} print one result for it; {row.where} prints "
        f"another.{more} Was that network trained again?",
        also_in=where,
        consistent=(usual.value.text,),
        distance=abs(row.value.value - usual.value.value),
    )
