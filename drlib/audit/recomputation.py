"""Which rows of the tables give the coefficients that section 5.1 prints, and where none do.

``drlib.relations`` holds the readings: sets of tables, sizes (all, or one of the six), groups of attacks, and
the kind of coefficient. With hundreds of readings some come close to any number; the chapter on relations
asks which single one gives all coefficients of a sentence, here each is asked for alone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from drlib import relations
from drlib.audit.finding import Finding
from drlib.audit.table import Table
from drlib.errors import UserError

if TYPE_CHECKING:
    import pandas

_HALF = 0.0005  # the coefficients are printed with three digits


def coefficients(table: Table) -> list[Finding]:
    """Printed coefficients that no reading gives in all digits; as the paper, without signs."""
    read = readings(table)
    found = []
    for (group, a, b), printed in relations.PRINTED.items():
        rows = read[(read.group == group) & (read.a == a) & (read.b == b)]
        best = rows.loc[rows.deviation.idxmin()]
        if best.deviation <= _HALF + 1e-9:
            continue
        attacks = "the three GANs" if group == "GAN attacks" else best.attacks
        reading = f"{best.tables}, {best.sizes}, {attacks}, {best.how.capitalize()}"
        question = (
            f"Of {rows.value.notna().sum()} readings of the tables, none gives the coefficient of {a} and "
            f"{b} over {group}, printed without its sign; the closest ({reading}, {best.n} rows) gives "
            f"{best.value:+.4f}. Which rows are meant?"
        )
        found.append(
            Finding(
                check="recomputation",
                rule="coefficient",
                table=None,
                also_in=reading,
                dataset="",
                model="",
                defense="",
                attack=group,
                target_size=None,
                metric=f"{a}, {b}",
                printed=f"{printed:.3f}",
                consistent=(f"{abs(best.value):.3f}",),
                distance=float(best.deviation),
                question=question,
            )
        )
    return found


def not_readable(table: Table) -> str:
    """Why the coefficients cannot be recomputed: a reason, or "" if they can."""
    missing = _NUMBERS - {row.paper_table for row in table.measured}
    if missing:
        return (
            f"needs all tables of section 5.1 in paper_table ({', '.join(map(str, sorted(missing)))} missing)"
        )
    try:
        readings(table)
    except UserError as error:
        return f"cannot be done: {error}"
    return ""


_NUMBERS = set(relations.READ_TABLES["all twelve"])
"""Tables 2, 13 to 15, 17 to 24, which the coefficients belong to."""


@lru_cache(maxsize=1)
def readings(table: Table) -> pandas.DataFrame:
    """Every reading beside every printed coefficient, as ``relations.audit``, with each of the six sizes.

    Raises ``UserError`` for a table that has not the shape of the paper's, such as two rows for one cell.
    """
    import pandas

    rows = [row for row in table.measured if row.metric in (*relations.SAMPLE, "FID") and not row.variant]
    long = pandas.DataFrame(
        [
            {
                "paper_table": row.paper_table,
                "dataset": row.dataset,
                "model": row.model,
                "defense": row.defense,
                "attack": row.attack,
                "target_size": row.target_size,
                "metric": row.metric,
                "value": float("nan") if row.value is None else row.value.value,
                "coverage_percent": float("nan") if row.coverage is None else row.coverage.value,
            }
            for row in rows
            if row.paper_table in _NUMBERS
        ]
    )
    wide = relations.side_by_side(long)
    names = ["dataset", "model", "defense", "attack"]
    wide = wide.astype(dict.fromkeys(names, "category"))  # compared hundreds of times
    return relations.audit(wide, sizes=relations.EACH_SIZE)
