"""What the command line calls: build a profile's book, run one section, build the book to read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from drlib.book import reference
from drlib.book.execute import execute, is_fresh, lock, plan
from drlib.book.gate import gate
from drlib.book.layout import Book, Chapter, content_hash, read_json
from drlib.book.stage import build, stage
from drlib.errors import UserError

Compute = Callable[[list[Any]], None]


def make(
    profile: str,
    only: Sequence[str] = (),
    *,
    workers: int = 2,
    compute: Compute | None = None,
    book: Book | None = None,
) -> Path:
    """Run what is missing, check every notebook, build the pages; return ``index.html``.

    Args:
        only: run only these sections; the others keep their last result, or are a page that says how to
            run them.
        workers: processes at a time, for the cells and for the notebooks.
        compute: computes the cells that the notebooks read (default: `drlib.study.run`).
        book: another book than the project's, for tests.

    Raises:
        UserError: whatever stops the build, in one line.
    """
    book = book or Book.of(profile)
    chosen = book.select(list(only))
    compute_cells(book, chosen, compute, workers)
    execute(book, only, workers=workers)
    with lock(book):
        wanted = {chapter.slug for chapter in chosen}
        ready = (
            [c for c in book.chapters if c.slug in wanted or _passes(book, c)]
            if only
            else list(book.chapters)
        )
        gate(book, [chapter.slug for chapter in ready])
        return _pages(book, ready, strict=len(ready) == len(book.chapters))


def compute_cells(book: Book, chapters: Sequence[Chapter], compute: Compute | None, workers: int) -> None:
    """Phase one: compute the union of the cells of all chapters whose notebook is not up to date."""
    stale = [job.chapter for job in plan(book, chapters) if not is_fresh(book, job)]
    cells = [cell for chapter in stale for cell in chapter.cells()]
    if not cells:
        return
    if compute is None:
        from drlib import study

        study.run(cells, workers=workers)
    else:
        compute(cells)


def run_section(
    slug: str, profile: str, overrides: Mapping[str, Any] | None = None, *, compute: Compute | None = None
) -> tuple[Path, Path]:
    """Run one section's notebook; return the executed notebook and the folder of its figures and tables.

    With parameters of its own it is kept apart from the profile's book.
    """
    overrides = dict(overrides or {})
    name = f"runs/{profile}-{slug}-{content_hash(overrides)[:8]}" if overrides else ""
    book = Book.of(profile, {slug: overrides}, name=name)
    chosen = book.select([slug])
    compute_cells(book, chosen, compute, 2)
    execute(book, [slug])
    gate(book, [slug])
    return book.executed(chosen[0]), book.outputs(chosen[0])


def read() -> Path:
    """Build the book from the committed reference run: no torch, nothing is computed."""
    return reference.build_reference()


def runs_of(book: Book, chapters: Sequence[Chapter]) -> dict[str, Any]:
    """What each chapter's run used and saved, by section."""
    runs = {}
    for chapter in chapters:
        saved = read_json(book.outputs(chapter) / "values.json")
        runs[chapter.slug] = {
            "parameters": chapter.parameters,
            "values": saved.get("values", {}),
            "states": saved.get("states", {}),
        }
    return runs


def _passes(book: Book, chapter: Chapter) -> bool:
    try:
        gate(book, [chapter.slug])
    except UserError:
        return False
    return True


def _pages(book: Book, chapters: Sequence[Chapter], *, strict: bool) -> Path:
    import nbformat

    notebooks = {chapter.stem: nbformat.read(book.executed(chapter), as_version=4) for chapter in chapters}
    return build(book, stage(book, notebooks, runs=runs_of(book, chapters)), strict=strict)
