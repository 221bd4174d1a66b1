"""The gate before the build: no failed, killed, unexecuted or outdated notebook becomes a page.

Jupyter Book builds a notebook that holds an error without any warning, so everything is checked here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from drlib.book.execute import Job, plan
from drlib.book.layout import Book, Chapter
from drlib.book.notebooks import is_injected, source_hash
from drlib.book.worker import first_error
from drlib.errors import UserError

_IMG = re.compile(r"<img\b[^>]*>", re.IGNORECASE)
_ALT = re.compile(r"""\balt\s*=\s*(["'])(?P<alt>.*?)\1""", re.IGNORECASE | re.DOTALL)
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/svg+xml")


def gate(book: Book, only: Sequence[str] = ()) -> list[Chapter]:
    """Check every executed notebook (or those of ``only``) and return their chapters.

    Raises:
        UserError: what is wrong, in one line that names the notebook, the cell and the error; if several
            notebooks are wrong, all of them.
    """
    import nbformat

    chapters = book.select(list(only))
    problems, seen = [], {}
    for job in plan(book, chapters):
        path = book.executed(job.chapter)
        if not path.exists():
            problems.append(f"notebook {job.chapter.stem} has not been executed under profile {book.profile}")
            continue
        try:
            notebook = nbformat.read(path, as_version=4)
        except Exception as error:  # whatever a damaged file makes the reader raise
            problems.append(f"notebook {job.chapter.stem} cannot be read: {error}")
            continue
        problem = problem_of(notebook, job) or missing_files(book, notebook, job.chapter)
        if problem:
            problems.append(f"notebook {job.chapter.stem}: {problem}")
        for item in displayed(notebook):
            name = f"{item['kind']} '{item['id']}'"
            if name in seen:
                problems.append(f"notebook {job.chapter.stem}: {name} is also in {seen[name]}")
            seen.setdefault(name, job.chapter.stem)
    if problems:
        raise UserError("the book is not built: " + "; ".join(problems))
    return list(chapters)


def problem_of(notebook: Any, job: Job) -> str:
    """What is wrong with an executed notebook, or an empty string."""
    made, ran = notebook.metadata.get("drlib", {}), notebook.metadata.get("papermill", {})
    failed = first_error(notebook)
    if failed:
        return f"code cell {failed['cell']} failed: {failed['error']}"
    if any("papermill-error-cell-tag" in cell.metadata.get("tags", []) for cell in notebook.cells):
        return "it carries the banner of a failed run"
    if ran.get("exception"):
        return "its run ended with an error"
    if not ran.get("end_time"):
        return "its run was stopped before the end, or it was only prepared"
    number = 0
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        number += not is_injected(cell)
        status = cell.metadata.get("papermill", {}).get("status")
        if status != "completed":
            return f"code cell {number} was not executed (status: {status or 'none'})"
        picture = without_alt(cell)
        if picture:
            return f"code cell {number} shows {picture} without alternative text (use report.figure)"
    if source_hash(notebook) != job.parts["source"] or made.get("source") != job.parts["source"]:
        return "it was executed from another version of its source"
    if made.get("parameters") != job.parameters:
        changed = sorted(
            name
            for name in {*made.get("parameters", {}), *job.parameters}
            if made.get("parameters", {}).get(name) != job.parameters.get(name)
        )
        return f"it was executed with other parameters ({', '.join(changed)})"
    if made.get("key") != job.key:
        return "it was executed with other code or libraries; run it again"
    return ""


def without_alt(cell: Any) -> str:
    """Name a picture of the cell that has no alternative text, or return an empty string."""
    described = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "").strip()
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        for tag in _IMG.findall(str(data.get("text/html", ""))):
            alt = _ALT.search(tag)
            if not (alt and alt["alt"].strip()):
                return "an <img>"
        shown_as_picture = "text/html" not in data and "text/markdown" not in data
        if shown_as_picture and not described:
            for mime in _IMAGES:
                if mime in data:
                    return f"an {mime} output"
    return ""


def displayed(notebook: Any) -> list[dict[str, Any]]:
    """The figures and tables that the notebook made with `drlib.report`, in order."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    return [output.metadata["drlib"] for output in outputs if "drlib" in output.get("metadata", {})]


def missing_files(book: Book, notebook: Any, chapter: Chapter) -> str:
    """Name a figure or table whose saved file is missing, empty or another one; or an empty string."""
    for item in displayed(notebook):
        name = f"figures/{item['id']}.png" if item["kind"] == "figure" else f"tables/{item['id']}.csv"
        path = book.outputs(chapter) / name
        if not path.exists() or not path.stat().st_size:
            return f"its file {name} is missing"
        if item["kind"] == "figure" and hashlib.sha256(path.read_bytes()).hexdigest() != item["sha256"]:
            return f"its file {name} is not the picture in the notebook"
    return ""
