"""A results table as the checks see it: rows with printed numbers, whose rounding is known.

Columns are those of the published tables (``drlib.published``) or of ``drlib results --format csv``. All
cells are text, since ``0.130`` says more than 0.13: it was rounded to a thousandth.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Iterable
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from drlib import relations
from drlib.errors import UserError, nearest

if TYPE_CHECKING:
    import pandas

COVERAGE_METRICS = ("SSIM", "PSNR", "MSE")
UPDATE_IMAGES = 100
"""Targets of a dynamic attack in the paper, whatever the size of the training set (appendix C)."""

_RENAMED = {"measure": "metric", "memorization": "value"}
_NUMBERS = ("target_size", "value", "coverage_percent")
_REQUIRED = ("target_size", "metric", "value")
_SETTING = ("seed", "profile", "kind", "reconstructs", "matching", "hyperparameters", "extractor", "n")
_EXACT = 1e-9
"""A number with nine digits or more after the point is not rounded for print; this much is float noise."""


@dataclasses.dataclass(frozen=True)
class Number:
    """A printed number: its text, its value, half a unit of its last place, its digits after the point."""

    text: str
    value: float
    half: float
    decimals: int

    @property
    def finite(self) -> bool:
        return math.isfinite(self.value)


@lru_cache(maxsize=100_000)
def number(text: str) -> Number | None:
    """Read a printed number; None if there is none (empty or NaN). Raises ``ValueError`` for other text."""
    if text.strip().lower() in ("", "nan"):
        return None
    value = float(text)
    decimals = len(text.strip().partition(".")[2])
    if "e" in text.lower() or decimals >= 9 or not math.isfinite(value):
        return Number(text, value, _EXACT * max(1.0, abs(value)) if math.isfinite(value) else 0.0, 9)
    return Number(text.strip(), value, 0.5 * 10.0**-decimals, decimals)


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of a table. What a table has no column for is "" or None.

    Attributes:
        place: where a number stands that is in no table, such as ``section 5.1``.
        judge, variant: of the tables with a language model as judge.
        setting: everything else that makes it another experiment, such as the seed.
        seeds: how many seeds the values are means of.
        targets: how many images coverage counts, or None if that is not known.
        floor: the smallest possible coverage, a fraction, or None.
        control: True for a row that is no attack.
        same_as: the table whose cell a number in the text repeats.
    """

    paper_table: int | None
    place: str
    dataset: str
    model: str
    defense: str
    attack: str
    judge: str
    variant: str
    setting: tuple[str, ...]
    target_size: int
    metric: str
    value: Number | None
    coverage: Number | None
    seeds: int
    targets: int | None
    floor: float | None
    control: bool
    same_as: int | None

    @property
    def where(self) -> str:
        return self.place or ("this table" if self.paper_table is None else f"Table {self.paper_table}")

    @cached_property
    def block(self) -> tuple[Hashable, ...]:
        """What the lines of one attack in one table have in common."""
        return (self.paper_table, self.place, *self.experiment)

    @cached_property
    def experiment(self) -> tuple[Hashable, ...]:
        """What identifies an experiment up to its size, whichever table it is printed in."""
        return (
            self.dataset,
            self.model,
            self.defense,
            self.attack,
            self.judge,
            self.variant,
            self.setting,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """Rows, and the names of the columns that they come from. Two tables are equal only if they are one."""

    rows: tuple[Row, ...]
    columns: frozenset[str]

    @classmethod
    def of(cls, frame: pandas.DataFrame) -> Table:
        """From a data frame, best with text in its cells.

        Raises ``UserError`` if a needed column is missing or a number column holds text.
        """
        names = list(frame.columns)
        renamed = {old: new for old, new in _RENAMED.items() if old in names and new not in names}
        _check(names, renamed)
        columns = {renamed.get(name, name): _texts(frame[name], name) for name in names}
        if "memorization" in renamed and "metric" not in columns:
            columns["metric"] = ["memorization"] * len(frame)
        return cls(tuple(_rows(columns, len(frame))), frozenset(columns))

    @cached_property
    def measured(self) -> list[Row]:
        """Rows of tables, without the numbers that stand in sentences."""
        return [row for row in self.rows if not row.place]


def _check(names: list[str], renamed: dict[str, str]) -> None:
    for name in _REQUIRED:
        there = name in names or name in renamed.values() or (name == "metric" and "memorization" in renamed)
        if not there:
            raise UserError(
                f"the table has no column '{name}'{nearest(name, names)} (columns: {', '.join(names)})"
            )


def _texts(column: pandas.Series, name: str) -> list[str]:
    texts = ["" if cell is None or cell != cell else str(cell) for cell in column.tolist()]
    if _RENAMED.get(name, name) in ("value", *_NUMBERS):
        for position, text in enumerate(texts):
            try:
                number(text)
            except ValueError:
                raise UserError(f"column '{name}', row {position + 1}: '{text}' is no number") from None
    return texts


def _rows(columns: dict[str, list[str]], count: int) -> Iterable[Row]:
    blank = [""] * count

    def column(name: str) -> list[str]:
        return columns.get(name, blank)

    named = [column(name) for name in ("place", "dataset", "model", "defense", "attack", "judge", "variant")]
    settings = (
        list(zip(*(columns[name] for name in _SETTING if name in columns), strict=True)) or [()] * count
    )
    sizes = [_size(text, position) for position, text in enumerate(column("target_size"))]
    how_many = [column(name) for name in _HOW_MANY]
    tables, same_as, metrics, values, coverages, seeds, floors, kinds = (
        column(name)
        for name in (
            "paper_table", "same_as", "metric", "value", "coverage_percent", "seed", "coverage_floor", "kind"
        )
    )  # fmt: skip
    for i in range(count):
        place, dataset, model, defense, attack, judge, variant = (texts[i] for texts in named)
        yield Row(
            paper_table=_integer(tables[i]),
            place=place,
            dataset=dataset,
            model=model,
            defense=defense,
            attack=attack,
            judge=judge,
            variant=variant,
            setting=settings[i],
            target_size=sizes[i],
            metric=metrics[i],
            value=number(values[i]),
            coverage=number(coverages[i]),
            seeds=1 + seeds[i].count(","),
            targets=_targets(attack, sizes[i], *(texts[i] for texts in how_many)),
            floor=_fraction(floors[i]),
            control=kinds[i] == "control",
            same_as=_integer(same_as[i]),
        )


_HOW_MANY = ("reconstructs", "matching", "coverage_floor")


def _targets(attack: str, size: int, reconstructs: str, matching: str, floor: str) -> int | None:
    """How many images coverage is a share of; None for update images whose number no column says."""
    if reconstructs == "update images":
        smallest = _fraction(floor)
        return round(1 / smallest) if matching == "all" and smallest else None
    if not reconstructs and attack in relations.DYNAMIC:
        return UPDATE_IMAGES
    return size


def _size(text: str, position: int) -> int:
    found = number(text)
    if found is None or not found.finite or found.value != int(found.value) or found.value < 1:
        raise UserError(f"column 'target_size', row {position + 1}: '{text}' is no whole number from 1")
    return int(found.value)


def _integer(text: str) -> int | None:
    """A whole number; None for anything else, such as the name of a table that is not the paper's."""
    text = text.strip().removesuffix(".0")
    return int(text) if text.isdecimal() else None


def _fraction(text: str) -> float | None:
    try:
        found = number(text)
    except ValueError:
        return None
    return None if found is None else found.value


def read(path: Path) -> pandas.DataFrame:
    """Read a CSV file with every cell as text.

    Raises ``UserError`` if it is not a table of comma-separated values, ``OSError`` if it cannot be read.
    """
    import csv

    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = [line for line in csv.reader(file, strict=True) if line]
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} is not a CSV file: {error}") from None
    if not lines or len(lines[0]) < 2:
        raise UserError(f"{path} is not a CSV file: no header with columns separated by commas")
    header, *body = lines
    if len(set(header)) < len(header):
        raise UserError(f"{path}: a column name is there twice ({', '.join(header)})")
    for place, line in enumerate(body, start=2):
        if len(line) != len(header):
            raise UserError(f"{path}, line {place}: {len(line)} cells, but the header has {len(header)}")
    if not body:
        raise UserError(f"{path} has a header, but no rows")
    import pandas

    return pandas.DataFrame(body, columns=header, dtype=str)


def published() -> pandas.DataFrame:
    """All numbers that the paper prints, one below the other, as text.

    Variants of Tables 7 and 10 that are cells of other tables, too, get the name they have there: BatchNorm
    *updated* and plain *PLGMI* are the undefended attacks of Table 2, *PLGMI (DP)* is that of Table 16.
    """
    import pandas

    from drlib import published

    parts = []
    for name in published.TABLES:
        part = published.printed(name).rename(columns=_RENAMED)
        if name == "memorization":
            part = part.assign(metric="memorization", defense="none", attack="")
        if name == "fid_variants":
            part["defense"] = [_DEFENSES.get(variant, variant) for variant in part.variant]
            part = part.drop(columns="variant")
        parts.append(part)
    return pandas.concat(parts, ignore_index=True).fillna("")


_DEFENSES = {"updated": "none", "PLGMI": "none", "PLGMI (DP)": "DP"}
