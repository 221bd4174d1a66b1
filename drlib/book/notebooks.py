"""Notebook sources (``notebooks/*.py``, jupytext percent format) and their unexecuted twins.

The ``.py`` file is the only source. Its twin ``notebooks/ipynb/<stem>.ipynb`` is derived from it, tracked
for readers who want a notebook without installing jupytext, and has cell ids that do not change.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drlib.book.layout import CHECKOUT, content_hash
from drlib.errors import UserError

if TYPE_CHECKING:
    from nbformat import NotebookNode

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def cell_id(stem: str, index: int | str) -> str:
    """The id of a cell: it depends only on the notebook's name and the cell's place."""
    return hashlib.sha256(f"{stem}:{index}".encode()).hexdigest()[:12]


def convert(source: Path) -> NotebookNode:
    """The unexecuted notebook of a percent-format source, with deterministic ids and metadata."""
    import jupytext
    import nbformat

    if not source.exists():
        raise UserError(f"no notebook source {source.name} in {source.parent}")
    notebook = jupytext.read(source, fmt="py:percent")
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    for index, cell in enumerate(notebook.cells):
        cell["id"] = cell_id(source.stem, index)
        cell.metadata.pop("lines_to_next_cell", None)
    nbformat.validate(notebook)
    return notebook


def cell_hash(cell: dict[str, Any]) -> str:
    """Hash of what a cell says, apart from its outputs and its place."""
    metadata = {name: cell["metadata"][name] for name in ("tags", "mystnb") if cell["metadata"].get(name)}
    return content_hash([cell["cell_type"], cell["source"], metadata])


def source_hash(notebook: NotebookNode) -> str:
    """Hash of an unexecuted notebook: equal for a source and its twin, whatever its outputs."""
    return content_hash([cell_hash(cell) for cell in notebook.cells if not is_injected(cell)])


def is_injected(cell: dict[str, Any]) -> bool:
    return "injected-parameters" in cell["metadata"].get("tags", [])


def twin_text(source: Path) -> str:
    import nbformat

    return nbformat.writes(convert(source)) + "\n"


def sync(root: Path = CHECKOUT, *, check: bool = False) -> list[str]:
    """Write every twin that differs from its source and remove twins without one; return their names.

    Args:
        check: only report what would change.
    """
    folder = root / "notebooks" / "ipynb"
    sources = sorted((root / "notebooks").glob("*.py"))
    changed = []
    for source in sources:
        twin, text = folder / f"{source.stem}.ipynb", twin_text(source)
        if twin.exists() and twin.read_text(encoding="utf-8") == text:
            continue
        changed.append(twin.name)
        if not check:
            folder.mkdir(parents=True, exist_ok=True)
            temporary = twin.with_suffix(f".{os.getpid()}")
            temporary.write_text(text, encoding="utf-8")
            os.replace(temporary, twin)
    for twin in sorted(folder.glob("*.ipynb")):
        if twin.stem not in {source.stem for source in sources}:
            changed.append(twin.name)
            if not check:
                twin.unlink()
    return changed
