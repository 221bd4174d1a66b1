"""What each section's last run used and said: the runs of a profile, else the committed reference run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from drlib.book.layout import CHECKOUT, Book, Chapter, read_json
from drlib.sections import SECTIONS

REFERENCE = "laptop"
"""The profile of the committed reference run."""


def recorded_runs(profile: str, root: Path = CHECKOUT) -> dict[str, Any]:
    """By section: ``parameters`` and ``states`` of its run in ``_build/<profile>``, else in ``results/``."""
    book = Book(profile, (), root)
    chapters = (Chapter(slug, section.notebook, section.number) for slug, section in SECTIONS.items())
    runs = {chapter.slug: _run(book, chapter) or _reference(root, chapter) for chapter in chapters}
    return {slug: run for slug, run in runs.items() if run}


def _run(book: Book, chapter: Chapter) -> dict[str, Any]:
    parts = read_json(book.stamp(chapter)).get("parts")
    if not parts:
        return {}
    saved = read_json(book.outputs(chapter) / "values.json")
    return {"parameters": parts["parameters"], "states": saved.get("states", {})}


def _reference(root: Path, chapter: Chapter) -> dict[str, Any]:
    record = read_json(root / "results" / REFERENCE / f"{chapter.stem}.json")
    return {name: record[name] for name in ("parameters", "states")} if record else {}
