"""What the three summaries of a judge's votes say of each other.

A judge is asked Q times about each of N targets which of k candidates is most similar; in the paper N is
1,000 and Q is 5. ``# of Major`` counts the targets whose vote a candidate wins, ``# of All`` those it wins
with all answers, and ``Pred Rate`` is its share of all N Q answers. Ties (2-2-1, 1-1-1-1-1) go to one of the
tied candidates.

Let a candidate have M wins, A of them unanimous, let the other candidates have A' unanimous wins, and let R
be the remaining targets, which others win with fewer than Q answers. A win that is not unanimous takes w to
Q - 1 answers, w = Q / k rounded up (of five: 3-2; 2-2-1; 1-1-1-1-1 if k > 4), and where another candidate
wins so, l to Q / 2 answers, rounded down, are left for this one (l = 1 if k = 2, else 0). Hence

    Q A + w (M - A) + l R  <=  answers  <=  Q A + (Q - 1) (M - A) + (Q / 2) R,    R = N - M - A'.

N of a table that is not the paper's is its column ``questions``, or the sum of ``# of Major`` where the rates
add up, too; Q is its column ``answers``. A rate may be a share of 1 or of 100.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable

from drlib.audit.finding import Finding, finding
from drlib.audit.table import Row, Table

MAJOR, ALL, RATE = "# of Major", "# of All", "Pred Rate"

Candidate = dict[str, Row]


def counts(table: Table) -> list[Finding]:
    """Counts that are no whole numbers or exceed their total, rates in no known unit, sums off the total."""
    found: list[Finding] = []
    for candidates in _contests(table.cells):
        questions, whole = _questions(candidates), _whole_rate(candidates)
        for candidate in candidates:
            found += _counts(candidate, questions) + _unit(candidate, whole)
        found += _sums(candidates)
    return found


def rates(table: Table) -> list[Finding]:
    """Rates that are no share of the answers, or that the counts do not allow."""
    found: list[Finding] = []
    for candidates in _contests(table.cells):
        questions, whole = _questions(candidates), _whole_rate(candidates)
        for candidate in candidates:
            if not (_counts(candidate, questions) or _unit(candidate, whole)):
                found += _rate(candidate, candidates, questions, whole)
    return found


def no_answers(table: Table) -> str:
    """Why rates cannot be held against counts: a reason, or "" if they can (or there are none)."""
    asked = [row for row in table.measured if row.metric == RATE]
    known = not asked or any(row.answers for row in asked)
    return "" if known else "needs the column answers (to each question)"


def _contests(rows: Iterable[Row]) -> list[list[Candidate]]:
    """Candidates that were shown together: the sizes of a line, or the variants at one size."""
    contests: dict[Hashable, dict[Hashable, Candidate]] = defaultdict(dict)
    for row in rows:
        if row.metric in (MAJOR, ALL, RATE) and row.value is not None:
            who = row.variant or row.target_size
            together = (row.block[:-2], row.setting, row.target_size if row.variant else None)
            contests[together].setdefault(who, {})[row.metric] = row
    return [list(contest.values()) for contest in contests.values()]


def _questions(candidates: list[Candidate]) -> int | None:
    """How many targets the judge was asked about: as stated, or the sum of all wins; None if not known."""
    for candidate in candidates:
        for row in candidate.values():
            if row.questions:
                return row.questions
    majors = [candidate[MAJOR].value.value for candidate in candidates if MAJOR in candidate]
    shares = [candidate[RATE] for candidate in candidates if RATE in candidate]
    complete = len(candidates) > 1 and len(majors) == len(shares) == len(candidates)
    if not complete or any(value < 0 or value != int(value) for value in majors) or _off(shares):
        return None
    return int(sum(majors)) or None


def _whole_rate(candidates: list[Candidate]) -> float:
    """100 if the rates of all candidates add up to that, else 1."""
    rows = [candidate[RATE] for candidate in candidates if RATE in candidate]
    return _total(rows) if len(rows) == len(candidates) else 1.0


def _total(rows: list[Row]) -> float:
    """What rates should add up to: 1, or 100 if their sum is nearer to that."""
    return 100.0 if len(rows) > 1 and sum(row.value.value for row in rows) > 50 else 1.0


def _off(rows: list[Row]) -> float:
    """How far rates are from adding up to 1 or 100, beyond their rounding."""
    summed, slack = sum(row.value.value for row in rows), sum(row.value.half for row in rows)
    return max(0.0, abs(summed - _total(rows)) - slack - 1e-9)


def _counts(candidate: Candidate, questions: int | None) -> list[Finding]:
    """Counts that are no whole numbers, outside 0 to the targets, or more unanimous wins than wins."""
    for name in (MAJOR, ALL):
        row = candidate.get(name)
        if row is None:
            continue
        nearest = max(round(row.value.value), 0)
        if questions:
            nearest = min(nearest, questions)
        if row.value.value != nearest:
            of = f"{row.value.text} of {questions:,} targets" if questions else row.value.text
            return [_about(row, f"How can {name} be {of}?", f"{nearest}", "count")]
    if MAJOR in candidate and ALL in candidate:
        major, unanimous = candidate[MAJOR].value, candidate[ALL]
        if unanimous.value.value > major.value:
            question = f"Every unanimous vote is a majority, but {ALL} exceeds {MAJOR} ({major.text}): why?"
            return [_about(unanimous, question, major.text, "count")]
    return []


def _unit(candidate: Candidate, whole: float) -> list[Finding]:
    """A rate outside 0 to 1, or to 100 if the rates of all candidates are percentages."""
    row = candidate.get(RATE)
    if row is None or -row.value.half <= row.value.value <= whole + row.value.half:
        return []
    percent = 1 < row.value.value <= 100
    nearest = row.value.value / 100 if percent else min(max(row.value.value, 0.0), whole)
    question = f"{RATE} lies between 0 and {whole:g}: in which unit is it {row.value.text}?"
    return [_about(row, question, f"{nearest:.{row.value.decimals + 2 * percent}f}", "range")]


def _rate(
    candidate: Candidate, candidates: list[Candidate], questions: int | None, whole: float
) -> list[Finding]:
    """A rate that is no multiple of one answer's share, or that the counts do not allow."""
    row = candidate.get(RATE)
    if row is None or questions is None or row.answers is None:
        return []
    total = questions * row.answers
    low, high = 0, total
    if MAJOR in candidate and ALL in candidate:
        low, high = answers(
            int(candidate[MAJOR].value.value),
            int(candidate[ALL].value.value),
            sum(
                round(other[ALL].value.value)
                for other in candidates
                if other is not candidate and ALL in other
            ),
            len(candidates),
            questions=questions,
            queries=row.answers,
        )
    value, half = row.value.value / whole * total, row.value.half / whole * total
    if max(low, math.ceil(value - half - 1e-6)) <= min(high, math.floor(value + half + 1e-6)):
        return []
    exact = min(max(round(value), low), high) / total * whole
    question = (
        f"With these counts, between {low:,} and {high:,} of {total:,} answers name this candidate, "
        f"a rate of {low / total * whole:.4f} to {high / total * whole:.4f}: how were rate and counts taken?"
    )
    return [_about(row, question, f"{exact:.{row.value.decimals}f}", "votes")]


def answers(
    major: int, unanimous: int, others_unanimous: int, candidates: int, *, questions: int, queries: int
) -> tuple[int, int]:
    """Fewest and most of all answers that can name a candidate with these counts, both inclusive.

    Args:
        major, unanimous: targets it wins, and those of them with all answers.
        others_unanimous: targets that other candidates win with all answers, as far as known.
        candidates: how many were shown together, 2 or more (one: the others are unknown, taken as many).
        questions, queries: targets, and answers for each.
    """
    win = -(-queries // candidates) if candidates > 1 else 1
    lose = 1 if candidates == 2 else 0
    narrow, open_to_others = major - unanimous, max(0, questions - major - others_unanimous)
    low = queries * unanimous + win * narrow + lose * open_to_others
    high = queries * unanimous + (queries - 1) * narrow + queries // 2 * open_to_others
    return low, high


def _sums(candidates: list[Candidate]) -> list[Finding]:
    """Wins that do not add up to the number of targets, or rates that do not add up to 1 (or 100)."""
    found = []
    for name in (MAJOR, RATE):
        rows = [candidate[name] for candidate in candidates if name in candidate]
        total = _questions(candidates) if name == MAJOR else _total(rows)
        mixed = name == RATE and any(_unit(candidate, _whole_rate(candidates)) for candidate in candidates)
        if len(rows) < max(2, len(candidates)) or total is None or mixed:
            continue
        summed = sum(row.value.value for row in rows)
        off = abs(summed - total) if name == MAJOR else _off(rows)
        if off > 1e-9:
            first = rows[0]
            rest = total - (summed - first.value.value)
            text = f"{rest:.{first.value.decimals}f}"
            question = (
                f"{name} of all candidates adds up to {summed:g} instead of {total:g}: were answers left out?"
            )
            found.append(_about(first, question, text, "sum"))
    return found


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
