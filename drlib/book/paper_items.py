"""The page *List of tables and figures*: what the manifest says of each, with links (honesty rule 8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from drlib import manifest
from drlib.book.layout import Chapter

_HEADER = (
    "Item",
    "What it shows",
    "State of our own run",
    "Chapter",
    "Shares reconstructions with",
    "What differs, or will be needed",
)


def listing(chapters: Sequence[Chapter], runs: Mapping[str, Any], pages: Collection[str]) -> str:
    """MyST text: how many items are in which state, and a table of all (without a number of its own).

    Args:
        runs: by section, what its executed notebook says: ``parameters`` and ``states``.
        pages: the pages of this build; a printed table or figure is linked if it has one.
    """
    of_section = {chapter.slug: chapter for chapter in chapters}
    found = manifest.by_number(manifest.entries(runs))
    rows = [_row(entry, of_section.get(entry["planned"]), pages) for entry in found]
    text = "".join("| " + " | ".join(row) + " |\n" for row in [_HEADER, ["---"] * len(_HEADER), *rows])
    summary = " ".join([_summary(found), *_same_runs(found, of_section)])
    return f"{summary}\n\n`````{{table}}\n:class: drlib-table drlib-list\n\n{text}`````\n"


def _summary(found: Sequence[manifest.Entry]) -> str:
    kinds, states = Counter(entry["kind"] for entry in found), Counter(entry["state"] for entry in found)
    listed = f"{kinds['table']} of 24 tables and {kinds['figure']} of 14 figures are listed."
    return f"{listed} In this build: {', '.join(f'{number} {word}' for word, number in states.items())}."


def _same_runs(found: Sequence[manifest.Entry], of_section: Mapping[str, Chapter]) -> list[str]:
    """Sentences that say which items are counted more than once for one and the same run."""
    groups = {entry["planned"]: manifest.same_run(entry, found) for entry in found}
    return [
        f"{manifest.in_words(map(manifest.name_of, group))} show one and the same run"
        + (
            f" of {{doc}}`{chapter.title} <../notebooks/{chapter.stem}>`."
            if (chapter := of_section.get(slug))
            else "."
        )
        for slug, group in groups.items()
        if len(group) > 1
    ]


def _row(entry: manifest.Entry, chapter: Chapter | None, pages: Collection[str]) -> list[str]:
    name = f"{entry['kind'].capitalize()}\N{NO-BREAK SPACE}{entry['number']}"
    printed = f"book/published/{entry['kind']}_{entry['number']:02d}"
    made_by = f"{{doc}}`{chapter.title} <../notebooks/{chapter.stem}>`" if chapter else ""
    return [
        f"{{doc}}`{name} </{printed}>`" if printed in pages else name,
        entry["what"],
        entry["state"],
        made_by or "planned",
        manifest.shared_with(entry),
        entry["reason"],
    ]
