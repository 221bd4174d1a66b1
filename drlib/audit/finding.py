"""What a check returns: a question about one printed number."""

from __future__ import annotations

import dataclasses
from typing import Any

from drlib.audit.table import Number, Row


@dataclasses.dataclass(frozen=True)
class Finding:
    """A printed number that does not fit, and what would fit. It says nothing about how that came about.

    Attributes:
        check: family of the check, such as ``granularity``; ``rule``: which of its rules.
        table: number of the paper's table, or None (own tables; numbers in a sentence).
        also_in: the second place of a pair that does not fit, or a reading in words; "" if there is none.
        dataset, model, defense, attack: as in the table; "" where it does not say.
        target_size: images, or None where a finding is of no single size.
        metric: as in the table; ``coverage (SSIM)`` for the coverage beside an SSIM.
        printed: the number as printed.
        consistent: the nearest number or numbers that would fit, as they would be printed; may be empty.
        distance: from printed to consistent, in the unit of the number (coverage: percentage points;
            breaks: the factor).
        question: neutral, one or two sentences.
    """

    check: str
    rule: str
    table: int | None
    also_in: str
    dataset: str
    model: str
    defense: str
    attack: str
    target_size: int | None
    metric: str
    printed: str
    consistent: tuple[str, ...]
    distance: float
    question: str

    def as_json(self) -> dict[str, Any]:
        """As a JSON object: ``printed`` a number; ``consistent`` a number, a list of several, or null."""
        fitting = [float(text) for text in self.consistent]
        consistent = (fitting[0] if len(fitting) == 1 else fitting) if fitting else None
        numbers = {"printed": float(self.printed), "consistent": consistent}
        return dataclasses.asdict(self) | numbers | {"distance": round(self.distance, 9)}


def finding(
    check: str,
    rule: str,
    row: Row,
    number: Number,
    question: str,
    *,
    metric: str = "",
    consistent: tuple[str, ...] = (),
    distance: float = 0.0,
    also_in: str = "",
) -> Finding:
    """A finding about ``number``, which stands in ``row``; its metric unless another is given."""
    return Finding(
        check=check,
        rule=rule,
        table=row.paper_table,
        also_in=also_in,
        dataset=row.dataset,
        model=row.model,
        defense=row.defense,
        attack=row.attack,
        target_size=row.target_size,
        metric=metric or row.metric,
        printed=number.text,
        consistent=consistent,
        distance=distance,
        question=f"{row.where}: {question}" if row.name and row.where not in question else question,
    )


def places(rows: list[Row]) -> str:
    """The places of rows in words, tables in order: ``Table 2, Table 16, section 5.1``; each once."""
    ordered = sorted(rows, key=lambda row: (row.paper_table is None, row.paper_table or 0))
    return ", ".join(dict.fromkeys(row.where for row in ordered))
