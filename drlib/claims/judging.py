"""From cases to a verdict: the one rule by which every claim of the ledger is judged.

A claim is about many single comparisons (cases). Each supports it, speaks against it, or is undecided, when
the difference is smaller than what rounding or an interval in the table leaves open. The verdict is counted,
never typed. A coefficient that is computed from rows is judged by its value: it describes these rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from drlib.claims.facts import Point

HOLDS, IN_PART, FAILS, UNJUDGED = "holds", "holds in part", "does not hold", "cannot be judged"
VERDICTS = (HOLDS, IN_PART, FAILS, UNJUDGED)

SUPPORTS, AGAINST, UNDECIDED = "supports", "against", "undecided"

MOST = 0.75
"""A sentence with "generally", "tend to" or "in most cases" holds if so large a share supports it."""

GROUPS = 5
"""An interval needs so many groups of cases that belong together."""

FEW = 5
"""That there is *no* case of something takes so many cases."""


class Quantifier(StrEnum):
    """How many cases a sentence speaks of."""

    EVERY = "every case"
    MOST = "most cases"
    SOME = "some case"


@dataclass(frozen=True)
class Case:
    """One comparison.

    Attributes:
        where: which rows are compared, in words.
        effect: in the claim's unit, with its natural sign; NaN for an undefined one.
        outcome: ``SUPPORTS``, ``AGAINST`` or ``UNDECIDED``.
        group: cases of one group are no independent evidence: drawn together in the bootstrap.
        low, high: interval of this effect alone, where it has one.
    """

    where: str
    effect: float
    outcome: str
    group: str = ""
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class Judgment:
    """A verdict and what it rests on.

    ``low`` to ``high`` is the 95 % interval of ``effect``, or spans those of the single cases (``reason``
    says so), else NaN.
    """

    verdict: str
    effect: float
    low: float
    high: float
    supports: int
    against: int
    undecided: int
    reason: str

    @property
    def sign(self) -> str:
        """Of the effect; empty if there is none."""
        return "" if math.isnan(self.effect) else "+" if self.effect > 0 else "-" if self.effect < 0 else "0"


def compare(a: Point, b: Point) -> int:
    """1 if a is larger than b, -1 if smaller, 0 if their ranges overlap."""
    if min(a.high, b.high) - max(a.low, b.low) > 1e-9 or a.value == b.value:
        return 0
    return 1 if a.value > b.value else -1


def outcome(found: int, wanted: int) -> str:
    """What a comparison says for a claim that wants a larger (1) or a smaller (-1) value."""
    return UNDECIDED if found == 0 else SUPPORTS if found == wanted else AGAINST


def judge(cases: Sequence[Case], quantifier: Quantifier, *, missing: str) -> Judgment:
    """The verdict on cases.

    Every: holds if all decided cases support it, in part if at least half, else not. Most: holds from a share
    of ``MOST``, in part from a half. Some: holds if one supports it, and the effect is theirs alone.
    Where fewer than half of the cases are decided (and none supports a claim about some, or there are fewer
    than ``FEW`` for one), it cannot be judged; ``missing`` says what there would have to be without cases.
    """
    counts = {word: sum(case.outcome == word for case in cases) for word in (SUPPORTS, AGAINST, UNDECIDED)}
    decided = counts[SUPPORTS] + counts[AGAINST]
    shown = quantifier is Quantifier.SOME and counts[SUPPORTS] > 0
    effect, low, high, why = _effect([case for case in cases if not shown or case.outcome == SUPPORTS])
    numbers: dict[str, Any] = {"effect": effect, "low": low, "high": high, **counts}
    if not cases:
        return Judgment(UNJUDGED, **numbers, reason=f"needs {missing}")
    if 2 * decided < len(cases) and not shown:
        told = f"{counts[UNDECIDED]} of {len(cases)} comparisons are within rounding or intervals"
        return Judgment(UNJUDGED, **numbers, reason=told)
    if quantifier is Quantifier.SOME and not shown and decided < FEW:
        return Judgment(
            UNJUDGED, **numbers, reason=f"{decided} comparisons are too few to say that none does"
        )
    return Judgment(_verdict(counts[SUPPORTS] / decided, quantifier), **numbers, reason=why)


def _verdict(share: float, quantifier: Quantifier) -> str:
    if quantifier is Quantifier.SOME:
        return HOLDS if share > 0 else FAILS
    enough = MOST if quantifier is Quantifier.MOST else 1.0
    return HOLDS if share >= enough else IN_PART if share >= 0.5 else FAILS


def _effect(cases: Sequence[Case]) -> tuple[float, float, float, str]:
    """The mean effect, its interval (bootstrap over groups, or the only case's own), and why it has none."""
    known = [case for case in cases if math.isfinite(case.effect)]
    if not known:
        return math.nan, math.nan, math.nan, ""
    mean = float(np.mean([case.effect for case in known]))
    if len(known) == 1:
        (only,) = known
        return mean, only.low, only.high, "" if math.isfinite(only.low) else "one comparison has no interval"
    groups = sorted({case.group for case in known})
    if len(groups) < GROUPS:
        if all(math.isfinite(case.low) and math.isfinite(case.high) for case in known):
            low, high = min(case.low for case in known), max(case.high for case in known)
            return mean, low, high, "the range spans the intervals of the single comparisons"
        why = f"an interval needs {GROUPS} independent groups, there are {len(groups)}"
        return mean, math.nan, math.nan, why
    sums = np.array([sum(case.effect for case in known if case.group == name) for name in groups])
    sizes = np.array([sum(case.group == name for case in known) for name in groups])
    drawn = np.random.default_rng(0).integers(len(groups), size=(2000, len(groups)))
    means = sums[drawn].sum(1) / sizes[drawn].sum(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return mean, float(low), float(high), ""


def agreed(verdicts: Sequence[str]) -> str:
    """The verdict on a sentence that can be read in several ways: in part where its readings differ."""
    told = {verdict for verdict in verdicts if verdict != UNJUDGED}
    return IN_PART if len(told) > 1 else told.pop() if told else UNJUDGED
