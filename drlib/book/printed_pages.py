"""The pages of the printed tables and of the figures that follow from them: those that the contents list.

They are written while the book is staged, from the manifest (what is shown, its state, who shares what) and
from what the notebook *The tables as printed* made for them.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from drlib import manifest
from drlib.book.layout import Chapter
from drlib.manifest.items import read

FOLDER = "book/published"
COLUMNS = (
    "paper_table", "dataset", "model", "defense", "attack", "judge", "variant", "target_size", "metric",
    "value", "coverage_percent",
)  # fmt: skip
"""Of a downloaded table; a column that the table does not have is left out."""

_WIDE = "---\nhtml_theme.sidebar_secondary.remove: true\n---"
"""Without a table of contents on the right, for which the tables have no room to spare."""

_BELOW = (
    ("ours", "Ours beside it", ""),
    ("rests", "Conclusions that rest on this table", ""),
    ("asks", "Questions about this table", "\n\nHow to ask: {ref}`ask-the-authors`."),
)
"""What may stand below a printed table: in the labels, its heading, and what is said after it."""

_FILES = ("memorization", "image_attacks", "fid_variants", "llm_judge", "llm_judge_variants", "text_attacks")


def write(
    staged: Path,
    pages: Collection[str],
    chapters: Sequence[Chapter],
    runs: Mapping[str, Any],
    made: Collection[str],
) -> None:
    """Write the pages that are listed in ``pages``, and the CSV files that they offer.

    Args:
        runs: by section, what its executed notebook says.
        made: labels of the tables and figures that the notebooks of this build show.
    """
    of_section = {chapter.slug: chapter for chapter in chapters}
    found = manifest.by_number(manifest.entries(runs))
    for entry in found:
        page = f"{FOLDER}/{entry['kind']}_{entry['number']:02d}"
        if page in pages:
            (staged / page).parent.mkdir(exist_ok=True)
            text = _page(entry, of_section.get(entry["planned"]), manifest.same_run(entry, found), made)
            (staged / f"{page}.md").write_text(text, encoding="utf-8")
            if entry["kind"] == "table":
                _write_csv(staged / "tables" / f"{_name(entry)}.csv", entry["number"])


def _name(entry: manifest.Entry) -> str:
    return f"paper-{entry['kind']}-{entry['number']:02d}"


def _page(
    entry: manifest.Entry,
    chapter: Chapter | None,
    same_run: Sequence[manifest.Entry],
    made: Collection[str],
) -> str:
    kind, number = entry["kind"], f"{entry['number']:02d}"
    title = f"{kind.capitalize()} {entry['number']}: {entry['what']}"
    printed = f"{'tab' if kind == 'table' else 'fig'}-printed-{number}"
    shown = f"::::{{container}} drlib-printed\n{_include(printed)}\n::::"
    parts = [_WIDE, f"# {title}", _state(entry, chapter, same_run, made)]
    if kind == "figure":
        parts.append(
            "The figure below is drawn from the numbers that the paper prints, not from our own run."
        )
    parts.append(shown)
    if kind == "table":
        parts.append(f"{{download}}`As a CSV file </tables/{_name(entry)}.csv>`")
        for name, heading, more in _BELOW:
            if (label := f"tab-{name}-{number}") in made:
                parts.append(f"## {heading}\n\n{_include(label)}{more}")
    return "\n\n".join(parts) + "\n"


def _include(label: str) -> str:
    return f"```{{include}} /fragments/{label}.md\n```"


def _state(
    entry: manifest.Entry,
    chapter: Chapter | None,
    same_run: Sequence[manifest.Entry],
    made: Collection[str],
) -> str:
    where = f" {{doc}}`{chapter.title} </notebooks/{chapter.stem}>`" if chapter else ""
    shared = manifest.shared_with(entry)
    why = f" ({entry['reason']})" if entry["reason"] else ""
    lines = [f"**State of our own run:** {entry['state']}{why}.{where}"]
    if others := [manifest.name_of(each) for each in same_run if each is not entry]:
        told = f"**The same run also stands for:** {manifest.in_words(others)}."
        lines.append(told + _its_result(entry, same_run, made))
    lines += [f"**In the paper, shares reconstructions with:** {shared}."] if shared else []
    return " \\\n".join(lines)


def _its_result(entry: manifest.Entry, same_run: Sequence[manifest.Entry], made: Collection[str]) -> str:
    """Where the run is shown in the layout of a table, if not on this page."""
    shown = [
        each for each in same_run if each["kind"] == "table" and f"tab-ours-{each['number']:02d}" in made
    ]
    if entry in shown or entry["kind"] == "figure" or not shown:
        return ""
    name, page = manifest.name_of(shown[0]), f"{FOLDER}/table_{shown[0]['number']:02d}"
    return f" Its result is on the page of {{doc}}`{name} </{page}>`."


def _write_csv(path: Path, number: int) -> None:
    """The printed numbers of a table, one row each, as text in full."""
    if number == 1:
        rows = read("taxonomy")
    else:
        found = [(name, row) for name in _FILES for row in read(name) if row["paper_table"] == str(number)]
        rows = [_row(name, row) for name, row in found]
    known = [name for name in (COLUMNS if number > 1 else rows[0]) if any(name in row for row in rows)]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, known, restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _row(name: str, row: dict[str, str]) -> dict[str, str]:
    if name == "memorization":
        return {
            **row,
            "metric": "memorization",
            "value": row["memorization"],
            "defense": "none",
            "attack": "",
        }
    return {**row, "metric": row["measure"]} if "measure" in row else row
