"""The claims ledger: the paper's conclusions as checks on any results table (design, honesty rule 10)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from drlib.claims.facts import Facts, facts, published_facts
from drlib.claims.judging import Judgment, judge
from drlib.claims.ledger import CLAIMS, Claim

__all__ = ["CLAIMS", "Claim", "Examined", "Facts", "entry", "examine", "facts", "published_facts"]

NOT_NEEDED = "same on both sides"
"""What is said where a comparison does not change n (or k): there is nothing to correct."""


@dataclass(frozen=True)
class Examined:
    """A claim judged on one set of tables, and whether it survives equal n and equal k."""

    judgment: Judgment
    equal_n: str
    equal_k: str


def examine(claim: Claim, told: Facts) -> Examined:
    """Judge one claim on all of ``told``; restrict it before to the tables that it is about."""
    cases = claim.cases(told)
    missing = claim.needs
    if not cases and told.moving and claim.cases(told.with_moving()):
        missing += f"; left out, since they still move with more steps: {', '.join(told.left_out)}"
    found = judge(cases, claim.quantifier, missing=missing)
    survives = {ruler: _at_equal(claim, told, ruler) for ruler in ("n", "k")}
    return Examined(found, survives["n"], survives["k"])


def _at_equal(claim: Claim, told: Facts, ruler: str) -> str:
    """The verdict at equal size where the comparison changes it, else why there is none."""
    if ruler not in claim.across:
        return NOT_NEEDED
    found = judge(claim.cases(told.at_equal()), claim.quantifier, missing="")
    if not found.supports + found.against + found.undecided:
        return "cannot be computed: no values at equal size"
    counts = f"{found.supports} for, {found.against} against, {found.undecided} undecided"
    return f"{found.verdict} ({counts}; effect {found.effect:+.3g})"


def ledger(
    published: Facts, ours: Facts | None = None, claims: Sequence[Claim] = CLAIMS
) -> list[dict[str, Any]]:
    """Every claim with its judgment on the tables it speaks of, on the paper's other tables, and on ours.

    ``elsewhere`` is None for a claim that has no other tables; ``ours`` is judged on everything it holds.
    """
    return [entry(claim, published, ours or Facts(())) for claim in claims]


def entry(claim: Claim, published: Facts, ours: Facts) -> dict[str, Any]:
    """One claim as plain JSON values."""
    told = {name: getattr(claim, name) for name in ("id", "place", "statement", "how", "unit", "needs")}
    told |= {"tables": list(claim.tables), "quantifier": claim.quantifier.value}
    told["published"] = _plain(examine(claim, published.within(claim.tables)))
    other = _without_place(published.within(claim.elsewhere)) if claim.elsewhere else None
    told["elsewhere"] = other and {"tables": list(claim.elsewhere), **_plain(examine(claim, other))}
    told["ours"] = _plain(examine(claim, ours))
    return told


def _without_place(told: Facts) -> Facts:
    """Without the values that stand in the text only: they belong to the sentence itself."""
    return replace(told, series=tuple(one for one in told.series if one.table))


def _plain(examined: Examined) -> dict[str, Any]:
    found = examined.judgment
    numbers = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in asdict(found).items()
    }
    return {**numbers, "sign": found.sign or None, "equal_n": examined.equal_n, "equal_k": examined.equal_k}
