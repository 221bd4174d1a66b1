"""Results tables as series against target size, whichever of the published columns they have.

A series is everything that is equal but the target size: one attack on one model under one defense, one
metric. Each point carries the range that its value may lie in: the interval that the table gives, or, where
the number is text as it was printed, half a unit of its last place. Other numbers are taken as exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from drlib.errors import UserError, unknown
from drlib.relations import paper_levels

if TYPE_CHECKING:
    import pandas

FRECHET = "FID"
"""The dataset-level metric of a table, whichever network made its features; `Facts.frechet` has its name."""

SAMPLE = ("SSIM", "PSNR", "MSE")
COVERAGES = ("coverage (SSIM)", "coverage (PSNR)", "coverage (MSE)")
MEASURES = ("# of Major", "# of All", "Pred Rate")
TEXT = ("BLEU", "similarity", "ROUGE-L")
MEMORIZATION = "memorization"
ACCURACY = "test accuracy"
LOWER_IS_CLOSER = (FRECHET, "MSE")

RULED = {"n": (FRECHET,), "k": (*SAMPLE, *COVERAGES, *MEASURES, MEMORIZATION)}
"""Metrics that change with the number of images, and with the number of candidates per class."""

_VARIANTS = {
    "updated": {"variant": ""},
    "fixed": {"variant": "fixed"},
    "PLGMI": {"variant": ""},
    "PLGMI (DP)": {"variant": "", "defense": "DP"},
    "PLGMI (Prune)": {"variant": "", "defense": "Prune"},
    "PLGMI (Pre)": {"variant": "Pre"},
}
"""Rows of Tables 7 and 10 in the words of the other tables."""


@dataclass(frozen=True)
class Point:
    """One value and the range it may lie in.

    ``equal``: the same at equal size (metrics), or relative to chance (coverages: 0 is the floor, 1 is
    chance); None where the table does not say.
    """

    value: float
    low: float
    high: float
    equal: Point | None = None


@dataclass(frozen=True)
class Series:
    """One metric of one experiment, by target size (ascending)."""

    metric: str
    attack: str = ""
    dataset: str = ""
    model: str = ""
    defense: str = "none"
    variant: str = ""
    judge: str = ""
    table: int = 0
    points: dict[int, Point] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """Which experiment, in words."""
        parts = [f"Table {self.table}" if self.table else "", self.dataset, self.model, self.judge]
        parts += [self.attack, self.defense if self.defense != "none" else "", self.variant, self.metric]
        return ", ".join(part for part in parts if part)

    @property
    def experiment(self) -> tuple[Any, ...]:
        """What two attacks must share to be compared."""
        return (self.table, self.dataset, self.model, self.defense, self.variant, self.judge)


@dataclass(frozen=True)
class Facts:
    """All series of some tables.

    Attributes:
        frechet: the name of the dataset-level metric, such as ``FD-efficientnet_lite0``.
        moving: series that no conclusion may use, since their attacks still move with more steps.
    """

    series: tuple[Series, ...]
    frechet: str = FRECHET
    moving: tuple[Series, ...] = ()

    @property
    def left_out(self) -> tuple[str, ...]:
        """Titles of the attacks that no conclusion may use."""
        return tuple(sorted({one.attack for one in self.moving}))

    def select(self, **conditions: Any) -> list[Series]:
        """The series whose fields equal the conditions (one value, or a tuple of several)."""
        wanted = {name: value if isinstance(value, tuple) else (value,) for name, value in conditions.items()}
        return [
            one for one in self.series if all(getattr(one, name) in values for name, values in wanted.items())
        ]

    def within(self, tables: Sequence[int]) -> Facts:
        """Only the series of these tables of the paper; those of no table of the paper stay."""
        return replace(self, series=tuple(one for one in self.series if one.table in (0, *tables)))

    def without(self, tables: Sequence[int]) -> Facts:
        """All series but those of these tables of the paper."""
        return replace(self, series=tuple(one for one in self.series if one.table not in tables))

    def with_moving(self) -> Facts:
        """With the attacks that still move: only to say that they are what is missing."""
        return replace(self, series=(*self.series, *self.moving), moving=())

    def at_equal(self, ruler: str) -> Facts:
        """The same at equal ``n`` or equal ``k``, of the metrics in `RULED` those that have it."""
        kept = list(self.unruled(ruler).series)
        for one in self.series:
            points = {size: point.equal for size, point in one.points.items() if point.equal is not None}
            if one.metric in RULED[ruler] and len(points) > 1:
                kept.append(replace(one, points=points))
        return replace(self, series=tuple(kept))

    def unruled(self, ruler: str) -> Facts:
        """Only what does not depend on ``n`` (or ``k``)."""
        return replace(self, series=tuple(one for one in self.series if one.metric not in RULED[ruler]))


def published_facts() -> Facts:
    """Everything that the paper prints."""
    from drlib import published

    names = (
        "image_attacks",
        "memorization",
        "fid_variants",
        "llm_judge",
        "llm_judge_variants",
        "text_attacks",
    )
    return facts([published.printed(name) for name in (*names, "auxiliary")])


def facts(tables: Iterable[pandas.DataFrame]) -> Facts:
    """Read results tables in any of the published shapes.

    Columns: ``target_size`` and either ``memorization``, or ``value`` with ``metric`` or ``measure``; used if
    there: ``dataset model defense attack variant judge auxiliary paper_table coverage_percent``, and of
    ``drlib results`` ``kind`` (controls are left out), ``value_low value_high value_equal coverage_floor
    coverage_chance converged``. A row without a number is left out.

    Raises:
        UserError: a column is missing or not of numbers, or two rows are of the same experiment.
    """
    found: dict[Series, dict[int, Point]] = {}
    frechet, left_out = set(), set()
    for table in tables:
        for one, size, point in _read(_checked(table)):
            if one.metric.startswith("FD-") or one.metric == FRECHET:
                frechet.add(one.metric)
                one = replace(one, metric=FRECHET)
            points = found.setdefault(_key(one), {})
            if size in points:
                raise UserError(f"two rows give {one.where} at {size}: join seeds, or choose one experiment")
            points[size] = point
        left_out |= _moving(table)
    if len(frechet) > 1:
        raise UserError(f"the tables mix dataset-level metrics: {', '.join(sorted(frechet))}; choose one")
    series = [
        Series(**dict(zip(_FIELDS, key, strict=True)), points=dict(sorted(points.items())))
        for key, points in found.items()
    ]
    settled = tuple(one for one in series if one.attack not in left_out)
    moving = tuple(one for one in series if one.attack in left_out)
    return Facts(settled, frechet.pop() if frechet else FRECHET, moving)


_FIELDS = ("metric", "attack", "dataset", "model", "defense", "variant", "judge", "table")


def _key(one: Series) -> tuple[Any, ...]:
    return tuple(getattr(one, name) for name in _FIELDS)


def _checked(table: pandas.DataFrame) -> pandas.DataFrame:
    value = MEMORIZATION if MEMORIZATION in table else "value"
    for name in ("target_size", value):
        if name not in table:
            raise unknown("column", name, table.columns)
    if value == "value" and "metric" not in table and "measure" not in table:
        raise UserError("a results table needs a column metric or measure")
    return table


def _moving(table: pandas.DataFrame) -> set[str]:
    if "converged" not in table:
        return set()
    told = table[table.get("kind", "attack") == "attack"] if "kind" in table else table
    return set(told.attack[told.converged.astype(str) != "yes"])


def _read(table: pandas.DataFrame) -> Iterable[tuple[Series, int, Point]]:
    for row in table.to_dict("records"):
        if row.get("kind", "attack") != "attack":
            continue
        one, size = _series(row), _size(row)
        value = MEMORIZATION if MEMORIZATION in row else "value"
        if not _missing(row[value]):
            yield one, size, _point(row, value)
        if not _missing(row.get("coverage_percent")) and one.metric in SAMPLE:
            yield replace(one, metric=f"coverage ({one.metric})"), size, _covered(row)


def _series(row: dict[str, Any]) -> Series:
    names = ("dataset", "model", "defense", "attack", "variant", "judge")
    known = {name: str(row[name]) for name in names if not _missing(row.get(name))}
    if "auxiliary" in row:
        known["variant"] = f"auxiliary: {row['auxiliary']}"
    known |= _VARIANTS.get(known.get("variant", ""), {})
    if known.get("attack", "").endswith(" (Pre)"):
        known |= {"attack": known["attack"].removesuffix(" (Pre)"), "variant": "Pre"}
    metric = MEMORIZATION if MEMORIZATION in row else str(row.get("metric", row.get("measure")))
    return Series(metric, **known, table=_table(row.get("paper_table", 0)))


def _missing(value: Any) -> bool:
    return (
        value is None or value != value or (isinstance(value, str) and value.strip().lower() in ("", "nan"))
    )


def _number(row: dict[str, Any], name: str) -> float:
    try:
        return float(row[name])
    except (TypeError, ValueError):
        raise UserError(f"column {name} must be numbers, got {row[name]!r}") from None


def _size(row: dict[str, Any]) -> int:
    size = _number(row, "target_size")
    if not (math.isfinite(size) and size >= 1 and size == int(size)):
        raise UserError(f"column target_size must be whole numbers from 1, got {row['target_size']!r}")
    return int(size)


def _table(value: Any) -> int:
    """The number of a table of the paper; 0 for anything else."""
    text = str(value).strip().removesuffix(".0")
    return int(text) if text.isdecimal() else 0


def _rounding(text: Any) -> float:
    """Half a unit of the last place of a printed decimal number; 0 for whole and for computed numbers."""
    if not isinstance(text, str) or "." not in text or "e" in text.lower():
        return 0.0
    return 0.5 * 10.0 ** -len(text.strip().partition(".")[2])


def _point(row: dict[str, Any], name: str) -> Point:
    """The value with its interval, or with what rounding hides; at equal size the interval is as wide."""
    value = _number(row, name)
    if math.isinf(value):
        if row.get("metric") != "PSNR":  # of copies
            raise UserError(f"column {name} must be finite numbers (but for PSNR), got {row[name]!r}")
        return Point(value, value, value)
    below = above = _rounding(row[name])
    if not _missing(row.get("value_low")) and not _missing(row.get("value_high")):
        below, above = value - _number(row, "value_low"), _number(row, "value_high") - value
    alone = Point(value, value - below, value + above)
    if _missing(row.get("value_equal")):
        return alone
    equal = _number(row, "value_equal")
    return replace(alone, equal=Point(equal, equal - below, equal + above))


def _covered(row: dict[str, Any]) -> Point:
    """A coverage in percent; ``equal`` is where it lies between its floor (0) and its chance level (1)."""
    percent, half = _number(row, "coverage_percent"), _rounding(row["coverage_percent"])
    if not 0 <= percent <= 100:
        raise UserError(f"column coverage_percent must lie in [0, 100], got {row['coverage_percent']!r}")
    alone = Point(percent, percent - half, percent + half)
    if _missing(row.get("coverage_floor")) or _missing(row.get("coverage_chance")):
        try:
            floor, chance = paper_levels(row["dataset"], row["attack"], _size(row))
        except (KeyError, UserError):  # not of the paper
            return alone
    else:
        floor, chance = _number(row, "coverage_floor"), _number(row, "coverage_chance")
    span = 100 * (chance - floor)
    if span < 1e-6:  # one target per class: the floor is 1
        return alone
    relative = (percent - 100 * floor) / span
    return replace(alone, equal=Point(relative, relative - half / span, relative + half / span))
