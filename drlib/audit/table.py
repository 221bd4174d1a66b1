"""A results table as the checks see it: rows with printed numbers, whose rounding is known.

Columns are those of the published tables (``drlib.published``) or of ``drlib results --format csv``. All
cells are text, since ``0.130`` says more than 0.13: it was rounded to a thousandth.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from drlib import relations
from drlib.errors import UserError, nearest

if TYPE_CHECKING:
    import pandas

COVERAGE_METRICS = ("SSIM", "PSNR", "MSE")
TEXT_METRICS = ("BLEU", "ROUGE-L", "similarity")
"""Metrics of text as the published tables name them; other spellings of an own table are brought to these."""

UPDATE_IMAGES = 100
"""Targets of a dynamic attack in the paper, whatever the size of the training set (appendix C)."""

MEMORIZATION_SAMPLES = 1000
"""The paper averages over the first 1,000 training samples, or over all of fewer (section 5.2)."""

QUESTIONS, QUERIES = 1000, 5
"""The paper's judge is asked about 1,000 targets, five times each (section 6)."""

_RENAMED = {"measure": "metric", "memorization": "value"}
_SPELLINGS = {
    "bleu": "BLEU",
    "rouge-l": "ROUGE-L",
    "rougel": "ROUGE-L",
    "rouge_l": "ROUGE-L",
} | dict.fromkeys(("similarity", "sim.", "sim"), "similarity")
_NUMBERS = ("value", "coverage_percent", "value_low", "value_high")
_FRACTIONS = ("coverage_floor", "coverage_chance")
_WHOLE = ("target_size", "n_targets", "classes", "questions", "answers", "samples")
_REQUIRED = ("target_size", "metric", "value")
_SETTING = ("seed", "profile", "kind", "reconstructs", "matching", "hyperparameters", "extractor", "n")
_NAMES = (
    "paper_table",
    "place",
    "same_as",
    "dataset",
    "model",
    "defense",
    "attack",
    "judge",
    "variant",
    "metric",
)
_MEASURED = ("value", "coverage", "gap", "floor", "m", "k", "copies", "reason", "equal", "target_key")
"""Columns of ``drlib results`` that say how a row came out, by their first word: they set no rows apart."""

_EXACT = 1e-9
"""A number with nine digits or more after the point is not rounded for print; this much is float noise."""

_LARGEST = 1e15
"""Nothing that a table of results holds is larger; beyond it, whole numbers are no longer exact."""


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
        paper_table: number of the paper's table; ``name``: that of an own one, which is no number.
        place: where a number stands that is in no table, such as ``section 5.1``.
        judge, variant: of the tables with a language model as judge.
        setting: everything else that makes it another experiment, such as the seed.
        seeds: how many seeds the values are means of.
        targets: how many images coverage counts, or None if that is not known.
        classes: classes that an attack is matched within, or None if it is not, or not known.
        samples: how many samples a memorization score is the mean of, or None.
        questions, answers: of a judge, how many targets and how often each; None if that is not known.
        floor: the smallest possible coverage, a fraction, or None.
        control: True for a row that is no attack.
        same_as: the table whose cell a number in the text repeats.
    """

    paper_table: int | None
    name: str
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
    classes: int | None
    samples: int | None
    questions: int | None
    answers: int | None
    floor: float | None
    control: bool
    same_as: int | None

    @property
    def where(self) -> str:
        if self.place or self.name:
            return self.place or (self.name if self.name.lower().startswith("tab") else f"Table {self.name}")
        return "this table" if self.paper_table is None else f"Table {self.paper_table}"

    @cached_property
    def block(self) -> tuple[Hashable, ...]:
        """What the lines of one attack in one table have in common."""
        return (self.paper_table, self.name, self.place, *self.experiment)

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

        Raises ``UserError`` if a needed column is missing or a number column holds what is no such number.
        """
        names = list(frame.columns)
        renamed = {old: new for old, new in _RENAMED.items() if old in names and new not in names}
        _check(names, renamed)
        columns = {renamed.get(name, name): _texts(frame[name]) for name in names}
        if "memorization" in renamed and "metric" not in columns:
            columns["metric"] = ["memorization"] * len(frame)
        printed_as = {new: old for old, new in renamed.items()}
        for name, texts in columns.items():
            for position, text in enumerate(texts, start=1):
                if fault := _fault(name, text, columns["metric"][position - 1]):
                    shown = printed_as.get(name, name)
                    raise UserError(f"column '{shown}', row {position}: '{text}' is {fault}")
        table = cls(tuple(_rows(columns, len(frame))), frozenset(columns))
        if not (more := _set_apart(table, columns)):
            return table
        return cls(tuple(_rows(columns, len(frame), more)), frozenset(columns))

    @cached_property
    def measured(self) -> list[Row]:
        """Rows of tables, without the numbers that stand in sentences."""
        return [row for row in self.rows if not row.place]

    @cached_property
    def cells(self) -> list[Row]:
        """Rows of tables, one a cell: of equal ones the first, and none of those that contradict each other.

        Whichever of two different values a check took, it would ask about the other one for the wrong reason.
        """
        by_cell = self._by_cell
        return [
            rows[0] for rows in by_cell.values() if not any(_contradict(rows[0], other) for other in rows[1:])
        ]

    @cached_property
    def contradicting(self) -> list[list[Row]]:
        """Cells that one table holds with several values: their rows."""
        return [
            rows for rows in self._by_cell.values() if any(_contradict(rows[0], other) for other in rows[1:])
        ]

    @cached_property
    def _by_cell(self) -> dict[Hashable, list[Row]]:
        cells: dict[Hashable, list[Row]] = defaultdict(list)
        for row in self.measured:
            cells[row.block, row.target_size, row.metric].append(row)
        return dict(cells)


def apart(a: Number, b: Number) -> bool:
    """True if two printed numbers cannot be the same: they differ by more than the coarser rounding."""
    return a.value != b.value and not abs(a.value - b.value) <= max(a.half, b.half) * (1 + 1e-6)


def _contradict(one: Row, other: Row) -> bool:
    pairs = ((one.value, other.value), (one.coverage, other.coverage))
    return any(apart(a, b) if a and b else a is not b for a, b in pairs)


def _check(names: list[str], renamed: dict[str, str]) -> None:
    for name in _REQUIRED:
        there = name in names or name in renamed.values() or (name == "metric" and "memorization" in renamed)
        if not there:
            raise UserError(
                f"the table has no column '{name}'{nearest(name, names)} (columns: {', '.join(names)})"
            )


def _texts(column: pandas.Series) -> list[str]:
    return ["" if cell is None or cell != cell else str(cell) for cell in column.tolist()]


def _fault(name: str, text: str, metric: str) -> str:
    """What is wrong with a cell of a column of numbers; "" if nothing is, or if the column holds names.

    An empty cell and NaN are missing: what could not be computed. Only PSNR may be infinite, that of a copy.
    """
    if name not in (*_NUMBERS, *_FRACTIONS, *_WHOLE):
        return ""
    try:
        found = number(text)
    except ValueError:
        return "no number"
    if found is None:
        return "no whole number from 1" if name == "target_size" else ""
    if not found.finite:
        psnr = metric == "PSNR" and name in _NUMBERS and name != "coverage_percent"
        return "" if psnr and found.value > 0 else "not finite, which only a PSNR can be"
    if abs(found.value) > _LARGEST:
        return f"larger than {_LARGEST:g}"
    if name in _WHOLE and (found.value != int(found.value) or found.value < 1):
        return "no whole number from 1"
    if name in _FRACTIONS and not 0 <= found.value <= 1:
        return "no fraction from 0 to 1"
    return ""


def _set_apart(table: Table, columns: dict[str, list[str]]) -> list[str]:
    """Columns that no check knows and that set rows of one cell apart, such as a learning rate.

    A column in which hardly any value recurs, such as seconds, was measured and sets nothing apart.
    """
    known = (*_NAMES, *_SETTING, *_NUMBERS, *_FRACTIONS, *_WHOLE)
    several = [[table.rows.index(row) for row in rows] for rows in table.contradicting]
    return [
        name
        for name, texts in columns.items()
        if name not in known
        and name.split("_")[0] not in _MEASURED
        and 2 * len(set(texts)) <= len(texts)
        and any(len({texts[i] for i in places}) > 1 for places in several)
    ]


def _rows(columns: dict[str, list[str]], count: int, more: Iterable[str] = ()) -> Iterable[Row]:
    settings = [name for name in (*_SETTING, *more) if name in columns]
    for i in range(count):
        text = defaultdict(str, {name: texts[i].strip() for name, texts in columns.items()})
        paper_table, size = _integer(text["paper_table"]), int(number(text["target_size"]).value)
        seeds = how_many_seeds(text["seed"])
        yield Row(
            paper_table=paper_table,
            name="" if paper_table is not None else text["paper_table"],
            place=text["place"],
            dataset=text["dataset"],
            model=text["model"],
            defense=text["defense"],
            attack=text["attack"],
            judge=text["judge"],
            variant=text["variant"],
            setting=tuple(text[name] for name in settings),
            target_size=size,
            metric=_SPELLINGS.get(text["metric"].lower(), text["metric"]),
            value=number(text["value"]),
            coverage=number(text["coverage_percent"]),
            seeds=seeds,
            targets=_targets(text, size, paper_table is not None),
            classes=_classes(text, paper_table is not None),
            samples=_whole(text["samples"]) or (min(MEMORIZATION_SAMPLES, size) if paper_table else None),
            questions=_whole(text["questions"]) or (QUESTIONS if paper_table else None),
            answers=_whole(text["answers"]) or (QUERIES if paper_table else None),
            floor=_fraction(text["coverage_floor"]),
            control=text["kind"] == "control",
            same_as=_integer(text["same_as"]),
        )


def how_many_seeds(text: str) -> int:
    """How many seeds a cell names: ``0,1,2`` and ``0-2`` are three; an empty cell is one run."""
    total = 0
    for part in re.split(r"[,;\s]+", re.sub(r"\s*(?:\.\.|[-–:])\s*(?=\d)", "-", text.strip("[]() "))):
        span = re.fullmatch(r"(\d+)-(\d+)", part)
        total += max(1, int(span[2]) - int(span[1]) + 1) if span else bool(part)
    return max(1, total)


def _targets(text: dict[str, str], size: int, of_paper: bool) -> int | None:
    """How many images coverage is a share of; None for update images whose number no column says."""
    if stated := _whole(text["n_targets"]):
        return stated
    if text["reconstructs"] == "update images":
        smallest = _fraction(text["coverage_floor"])
        return round(1 / smallest) if text["matching"] == "all" and smallest else None
    if not text["reconstructs"] and text["attack"] in relations.DYNAMIC:
        return UPDATE_IMAGES if of_paper else None
    return size


def _classes(text: dict[str, str], of_paper: bool) -> int | None:
    """Classes that an attack is matched within; what the paper's data sets have holds for its tables only."""
    if text["matching"] == "all" or text["attack"] in relations.UNLABELED:
        return None
    if text["matching"] != "class" and text["attack"] not in relations.ATTACKS:
        return None
    return _whole(text["classes"]) or (relations.CLASSES.get(text["dataset"]) if of_paper else None)


def _integer(text: str) -> int | None:
    """A whole number; None for anything else, such as the name of a table that is not the paper's."""
    text = text.removesuffix(".0")
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _whole(text: str) -> int | None:
    found = number(text)
    return None if found is None else int(found.value)


def _fraction(text: str) -> float | None:
    found = number(text)
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
