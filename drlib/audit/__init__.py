"""Checks that any table of results can be put through: what cannot be, what contradicts itself.

A check takes a table (``Table.of(data frame)``) and returns findings. A finding is a *question*: it names a
printed number, what would fit instead, and how far the two are apart. It does not say who erred, and the
numbers were copied from the paper's text into this package: the copy was compared with the text, but may be
wrong as well.

    from drlib import audit
    audit.run(pandas.read_csv("table.csv", dtype=str, keep_default_na=False)).findings
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from drlib.audit import granularity, identity, inequality, judge, jumps, recomputation, repetition
from drlib.audit.finding import Finding
from drlib.audit.table import Table, published, read

if TYPE_CHECKING:
    import pandas

__all__ = ["CHECKS", "CONTACT", "FAMILIES", "Audit", "Check", "Finding", "Table", "published", "read", "run"]

CONTACT = (
    "Findings are questions. The authors: through the contact on https://arxiv.org/abs/2506.07888 "
    "and the record https://doi.org/10.5281/zenodo.15603060. The numbers here were copied from the "
    "paper's text and compared with it; the copy may be wrong, too."
)

FAMILIES = {
    "granularity": "a share of N things is a whole number over N",
    "inequality": "bounds between metrics, between counts and rates, and of each metric",
    "identity": "two names of one number, or one cell printed twice",
    "repetition": "lines printed several times, or not where they should be",
    "jump": "breaks along a line",
    "recomputation": "coefficients that the tables should give",
}


@dataclasses.dataclass(frozen=True)
class Check:
    """A function from a table to findings, the columns that it needs, and why else it says nothing."""

    name: str
    find: Callable[[Table], list[Finding]]
    needs: tuple[str, ...]
    lacks: Callable[[Table], str] = lambda table: ""

    def why_not(self, table: Table) -> str:
        """A reason to leave the check out, or ""."""
        missing = [name for name in self.needs if name not in table.columns]
        if missing:
            return f"needs the column{'s' * (len(missing) > 1)} {', '.join(missing)}"
        return self.lacks(table)


CHECKS: dict[str, Check] = {
    check.name: check
    for check in (
        Check("granularity of coverage", granularity.coverage, ("attack", "coverage_percent")),
        Check("granularity of memorization", granularity.memorization, (), granularity.no_samples),
        Check(
            "last digits of memorization", granularity.memorization_in_hundredths, (), granularity.no_samples
        ),
        Check("mean PSNR against mean MSE", inequality.jensen, ("attack",)),
        Check("ranges", inequality.ranges, ()),
        Check("floor of coverage", inequality.floor, ("attack", "coverage_percent"), inequality.no_floor),
        Check("counts and sums of a judge", judge.counts, ()),
        Check("votes of a judge", judge.rates, (), judge.no_answers),
        Check("PSNR and MSE share neighbors", identity.shared_neighbors, ("attack", "coverage_percent")),
        Check(
            "one target per class",
            identity.one_per_class,
            ("attack", "coverage_percent"),
            inequality.no_floor,
        ),
        Check("one cell printed twice", identity.printed_twice, ("paper_table", "attack")),
        Check("rows that contradict each other", identity.contradicting, ()),
        Check("repeated lines", repetition.repeated, ("attack",)),
        Check("repeated sizes", repetition.repeated_sizes, ("attack",)),
        Check("lines that should repeat", repetition.not_repeated, ("dataset", "model", "attack")),
        Check("breaks along a line", jumps.jumps, ("attack",)),
        Check(
            "correlations of section 5.1",
            recomputation.coefficients,
            ("paper_table", "coverage_percent"),
            recomputation.not_readable,
        ),
    )
}
"""All checks, in the order of their findings."""


@dataclasses.dataclass(frozen=True)
class Audit:
    """Findings in the order of ``CHECKS``, and why a check was left out: name of the check to reason."""

    findings: list[Finding]
    skipped: dict[str, str]

    def frame(self) -> pandas.DataFrame:
        """One row per finding, its numbers as printed; several consistent ones joined by ``or``."""
        import pandas

        names = [field.name for field in dataclasses.fields(Finding)]
        rows = [
            dataclasses.asdict(item) | {"consistent": " or ".join(item.consistent)} for item in self.findings
        ]
        return pandas.DataFrame(rows, columns=names).astype({"table": "Int64", "target_size": "Int64"})


def run(frame: pandas.DataFrame | Table) -> Audit:
    """Put a table through every check whose columns it has.

    Args:
        frame: columns ``target_size``, ``metric`` (or ``measure``, or ``memorization`` for metric and value),
            ``value``, and more for more checks; best as text, since ``0.130`` loses a digit as a number.

    Raises:
        UserError: a needed column is missing, or a column of numbers holds text.
    """
    table = frame if isinstance(frame, Table) else Table.of(frame)
    findings: list[Finding] = []
    skipped: dict[str, str] = {}
    for check in CHECKS.values():
        if reason := check.why_not(table):
            skipped[check.name] = reason
        else:
            findings += check.find(table)
    return Audit(findings, skipped)
