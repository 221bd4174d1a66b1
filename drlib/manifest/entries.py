"""The manifest as plain data: one entry for each table and panel, and one for each table and figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from drlib.manifest.items import Item, items, joined
from drlib.manifest.sharing import shares
from drlib.manifest.state import Run, state

Entry = dict[str, Any]

_ORDER = ("shape only", "needs", "not yet", "regenerated")
"""Of panels in different states, the figure has the first of these: never regenerated unless all are."""


def entries(runs: Mapping[str, Run]) -> list[Entry]:
    """Tables 1 to 24 and Figures 1 to 14, panel by panel, as JSON values.

    Args:
        runs: by section, what its last run used and said: ``parameters`` and ``states``.
    """
    return [_entry(item, runs.get(item.planned)) for item in items()]


def _entry(item: Item, run: Run | None) -> Entry:
    word, reason = state(item, run)
    first, *further = item.runs
    return {
        "kind": item.kind,
        "number": item.number,
        "panel": item.panel,
        "what": f"{item.what}: {item.label}" if item.label else item.what,
        "section": item.section,
        "planned": item.planned,
        "chapter": item.chapter,
        "parameters": first,
        "further_runs": further,
        "rows": item.rows,
        "memorization": item.memorization,
        "unstated": list(item.unstated),
        "state": word,
        "reason": reason,
        "shares": shares(item),
    }


def by_number(made: Iterable[Entry]) -> list[Entry]:
    """Entries with the panels of a figure joined: ``what`` without their captions, states summed up."""
    groups = groupby(made, key=lambda entry: (entry["kind"], entry["number"]))
    return [_joined(list(panels)) for _, panels in groups]


def _joined(panels: list[Entry]) -> Entry:
    first = panels[0]
    if first["panel"] is None:
        return first
    word = min((entry["state"] for entry in panels), key=_rank)
    letters: dict[str, list[str]] = {}
    for entry in panels:
        said = entry["reason"] if entry["state"] == word else entry["state"]
        letters.setdefault(said, []).append(entry["panel"])
    reasons = [said if len(letters) == 1 else f"{_panels(which)}: {said}" for said, which in letters.items()]
    return {
        **first,
        "panel": None,
        "what": first["what"].partition(": ")[0],
        "state": word,
        "reason": "; ".join(filter(None, reasons)),
        "shares": list({each["item"]: each for entry in panels for each in entry["shares"]}.values()),
    }


def _rank(word: str) -> int:
    return next(place for place, start in enumerate(_ORDER) if word.startswith(start))


def _panels(letters: list[str]) -> str:
    return f"panel{'s' if len(letters) > 1 else ''} {joined(letters)}"


def shared_with(entry: Entry) -> str:
    """The others that an entry shares with, short: ``Tables 2 and 3, Figure 1``."""
    return in_words(each["item"] for each in entry["shares"])


def same_run(entry: Entry, made: Iterable[Entry]) -> list[Entry]:
    """All whose shape one run shows, this entry among them; empty unless its state is ``shape only``."""
    if not entry["state"].startswith("shape only"):
        return []
    return [each for each in made if (each["planned"], each["state"]) == (entry["planned"], entry["state"])]


def name_of(entry: Entry) -> str:
    """``Table 2``."""
    return f"{entry['kind'].capitalize()} {entry['number']}"


def in_words(names: Iterable[str]) -> str:
    """Names such as ``Table 2``, joined: ``Tables 2 and 3, Figure 1``."""
    numbers: dict[str, list[int]] = {"Table": [], "Figure": []}
    for name in names:
        kind, number = name.split()
        numbers[kind].append(int(number))
    return ", ".join(
        f"{kind}{'s' if len(found) > 1 else ''} {joined(map(str, sorted(found)))}"
        for kind, found in numbers.items()
        if found
    )
