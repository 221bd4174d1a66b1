"""What the three summaries of a judge's votes say of each other.

A judge is asked five times about each of 1,000 targets which of k candidates is most similar. ``# of Major``
counts the targets whose vote a candidate wins, ``# of All`` those it wins with all five answers, and
``Pred Rate`` is its share of the 5,000 answers. Ties (2-2-1, 1-1-1-1-1) go to one of the tied candidates.

Let a candidate have M wins, A of them unanimous, let the other candidates have A' unanimous wins, and let R
be the remaining targets, which others win with 4 answers or fewer. A win that is not unanimous takes w to 4
answers of five, w = 5 / k rounded up (3-2; 2-2-1; 1-1-1-1-1 if k > 4), and where another candidate wins so,
l to 2 answers are left for this one (l = 1 if k = 2, else 0). Hence

    5 A + w (M - A) + l R  <=  answers  <=  5 A + 4 (M - A) + 2 R,    R = 1,000 - M - A'.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable

from drlib.audit.finding import Finding, finding
from drlib.audit.table import Number, Row, Table

TARGETS, QUERIES = 1000, 5
ANSWERS = TARGETS * QUERIES
MAJOR, ALL, RATE = "# of Major", "# of All", "Pred Rate"

Candidate = dict[str, Row]


def votes(table: Table) -> list[Finding]:
    """Counts and rates of a judge that no five answers to 1,000 questions give."""
    found: list[Finding] = []
    for candidates in _contests(table.measured):
        for candidate in candidates:
            found += _counts(candidate) or _rate(candidate, candidates)
        found += _sums(candidates)
    return found


def _contests(rows: Iterable[Row]) -> list[list[Candidate]]:
    """Candidates that were shown together: the sizes of a line, or the variants at one size."""
    contests: dict[Hashable, dict[Hashable, Candidate]] = defaultdict(dict)
    for row in rows:
        if row.metric in (MAJOR, ALL, RATE) and row.value is not None:
            who = row.variant or row.target_size
            together = (row.block[:-2], row.setting, row.target_size if row.variant else None)
            contests[together].setdefault(who, {})[row.metric] = row
    return [list(contest.values()) for contest in contests.values()]


def _counts(candidate: Candidate) -> list[Finding]:
    """Counts that are no whole numbers, outside 0 to 1,000, or more unanimous wins than wins."""
    for name in (MAJOR, ALL):
        row = candidate.get(name)
        if row is None:
            continue
        nearest = min(max(round(row.value.value), 0), TARGETS)
        if row.value.value != nearest:
            return [
                _about(
                    row, f"How can {name} be {row.value.text} of {TARGETS:,} targets?", f"{nearest}", "count"
                )
            ]
    if MAJOR in candidate and ALL in candidate:
        major, unanimous = candidate[MAJOR].value, candidate[ALL]
        if unanimous.value.value > major.value:
            question = f"Every unanimous vote is a majority, but {ALL} exceeds {MAJOR} ({major.text}): why?"
            return [_about(unanimous, question, major.text, "count")]
    return []


def _rate(candidate: Candidate, candidates: list[Candidate]) -> list[Finding]:
    """A rate that is no multiple of 1/5,000, or that the counts do not allow."""
    row = candidate.get(RATE)
    if row is None:
        return []
    low, high = 0, ANSWERS
    if MAJOR in candidate and ALL in candidate:
        low, high = answers(
            _whole(candidate[MAJOR].value),
            _whole(candidate[ALL].value),
            sum(_whole(other[ALL].value) for other in candidates if other is not candidate and ALL in other),
            len(candidates),
        )
    least = max(low, math.ceil((row.value.value - row.value.half) * ANSWERS - 1e-6))
    most = min(high, math.floor((row.value.value + row.value.half) * ANSWERS + 1e-6))
    if least <= most:
        return []
    exact = min(max(round(row.value.value * ANSWERS), low), high) / ANSWERS
    question = (
        f"With these counts, between {low:,} and {high:,} of {ANSWERS:,} answers name this candidate, "
        f"a rate of {low / ANSWERS:.4f} to {high / ANSWERS:.4f}: how were rate and counts taken?"
    )
    return [_about(row, question, f"{exact:.{row.value.decimals}f}", "votes")]


def answers(major: int, unanimous: int, others_unanimous: int, candidates: int) -> tuple[int, int]:
    """Fewest and most of the 5,000 answers that can name a candidate with these counts, both inclusive.

    Args:
        major, unanimous: targets it wins, and those of them with all five answers.
        others_unanimous: targets that other candidates win with all five answers, as far as known.
        candidates: how many were shown together, 2 or more (one: the others are unknown, taken as many).
    """
    win = -(-QUERIES // candidates) if candidates > 1 else 1
    lose = 1 if candidates == 2 else 0
    narrow, open_to_others = major - unanimous, max(0, TARGETS - major - others_unanimous)
    low = QUERIES * unanimous + win * narrow + lose * open_to_others
    high = QUERIES * unanimous + (QUERIES - 1) * narrow + 2 * open_to_others
    return low, high


def _sums(candidates: list[Candidate]) -> list[Finding]:
    """Wins that do not add up to 1,000 targets, or rates that do not add up to 1 within their rounding."""
    found = []
    for name, total in ((MAJOR, TARGETS), (RATE, 1.0)):
        rows = [candidate[name] for candidate in candidates if name in candidate]
        if len(rows) < max(2, len(candidates)):
            continue
        summed = sum(row.value.value for row in rows)
        slack = sum(row.value.half for row in rows) if name == RATE else 0.0
        if abs(summed - total) > slack + 1e-9:
            first = rows[0]
            rest = total - (summed - first.value.value)
            text = f"{rest:.{first.value.decimals}f}"
            question = (
                f"{name} of all candidates adds up to {summed:g} instead of {total:g}: were answers left out?"
            )
            found.append(_about(first, question, text, "sum"))
    return found


def _whole(number: Number) -> int:
    return round(number.value)


def _about(row: Row, question: str, consistent: str, rule: str) -> Finding:
    told = ", ".join(word for word in (row.judge, row.variant) if word)
    return finding(
        "inequality",
        rule,
        row,
        row.value,
        f"{told}: {question}" if told else question,
        consistent=(consistent,),
        distance=abs(float(consistent) - row.value.value),
    )
