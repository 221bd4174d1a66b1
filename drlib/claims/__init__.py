"""The claims ledger: the paper's conclusions as checks on any results table (design, honesty rule 10)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from drlib.claims.facts import Facts, facts, published_facts
from drlib.claims.judging import (
    AGAINST,
    FAILS,
    HOLDS,
    SUPPORTS,
    UNDECIDED,
    UNJUDGED,
    Judgment,
    agreed,
    judge,
)
from drlib.claims.ledger import CLAIMS, FAVORS, OPPOSES, Claim

__all__ = [
    "CLAIMS",
    "Claim",
    "Examined",
    "Facts",
    "entry",
    "examine",
    "facts",
    "in_words",
    "ledger",
    "published_facts",
]

NOT_NEEDED = "same on both sides"
"""What is said where a comparison does not change n (or k): there is nothing to correct."""


@dataclass(frozen=True)
class Examined:
    """A claim judged on one set of tables, and whether it survives equal n and equal k.

    ``judgment``: of the first reading that can be judged; its verdict is *in part* where ``readings`` differ.
    """

    judgment: Judgment
    readings: dict[str, Judgment]
    equal_n: str
    equal_k: str


def examine(claim: Claim, told: Facts) -> Examined:
    """Judge one claim on all of ``told``; restrict it before to the tables that it is about."""
    cases = claim.cases(told)
    missing = claim.needs
    if not cases and told.moving and claim.cases(told.with_moving()):
        missing += f"; left out, since they still move with more steps: {', '.join(told.left_out)}"
    found = judge(cases, claim.quantifier, missing=missing)
    readings = {
        each.name: judge(each.cases(told), claim.quantifier, missing=missing) for each in claim.readings
    }
    if readings:
        readings = {claim.reading: found} | readings
        first = next((each for each in readings.values() if each.verdict != UNJUDGED), found)
        found = replace(first, verdict=agreed([each.verdict for each in readings.values()]))
    return Examined(found, readings, *(_at_equal(claim, told, ruler, found.verdict) for ruler in ("n", "k")))


def _at_equal(claim: Claim, told: Facts, ruler: str, verdict: str) -> str:
    """The verdict at equal n (or k) where the comparison changes it, else what that does to the claim."""
    if ruler not in claim.across:
        return NOT_NEEDED
    cases = claim.cases(told.at_equal(ruler))
    if len(cases) > len(claim.cases(told.unruled(ruler))):
        found = judge(cases, claim.quantifier, missing="")
        counts = f"{found.supports} for, {found.against} against, {found.undecided} undecided"
        return f"{found.verdict} ({counts}; effect {found.effect:+.3g})"
    change = claim.across[ruler]
    if change == OPPOSES and verdict == HOLDS:
        return f"holds all the more: the change of {ruler} {change}"
    if change == FAVORS and verdict == FAILS:
        return f"fails all the more: the change of {ruler} {change}"
    return f"cannot be computed: no values at equal {ruler}; its change {change}"


def ledger(
    published: Facts, ours: Facts | None = None, claims: Sequence[Claim] = CLAIMS
) -> list[dict[str, Any]]:
    """Every claim with its judgment on the tables it speaks of, on the paper's other tables, and on ours.

    ``elsewhere`` is None for a claim that has no other tables; ``ours`` is judged on everything it holds.
    """
    return [entry(claim, published, ours or Facts(())) for claim in claims]


def entry(claim: Claim, published: Facts, ours: Facts) -> dict[str, Any]:
    """One claim as plain JSON values."""
    fields = ("id", "place", "statement", "how", "unit", "needs", "question")
    told = {name: getattr(claim, name) for name in fields}
    told |= {"tables": list(claim.tables), "quantifier": claim.quantifier.value}
    told["published"] = _plain(examine(claim, published.within(claim.tables)))
    other = _without_place(published.within(claim.elsewhere)) if claim.elsewhere else None
    told["elsewhere"] = other and {"tables": list(claim.elsewhere), **_plain(examine(claim, other))}
    told["ours"] = _plain(examine(claim, ours))
    return told


def in_words(found: Mapping[str, Any]) -> str:
    """A verdict of the ledger with its cases for, against and undecided, under each of its readings."""
    if found["readings"]:
        told = (f"{each['reading']}: {_counted(each)}" for each in found["readings"])
        return f"{found['verdict']}. {'; '.join(told)}"
    return _counted(found)


def _counted(found: Mapping[str, Any]) -> str:
    counts = [found[name] for name in (SUPPORTS, AGAINST, UNDECIDED)]
    told = " / ".join(f"{count:.0f}" for count in counts) if any(counts) else found["reason"]
    return f"{found['verdict']} ({told})"


def _without_place(told: Facts) -> Facts:
    """Without the values that stand in the text only: they belong to the sentence itself."""
    return replace(told, series=tuple(one for one in told.series if one.table))


def _plain(examined: Examined) -> dict[str, Any]:
    readings = [{"reading": name, **_numbers(found)} for name, found in examined.readings.items()]
    equal = {"equal_n": examined.equal_n, "equal_k": examined.equal_k}
    return {**_numbers(examined.judgment), "readings": readings, **equal}


def _numbers(found: Judgment) -> dict[str, Any]:
    numbers = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in asdict(found).items()
    }
    return {**numbers, "sign": found.sign or None}
