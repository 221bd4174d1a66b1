"""The notebooks: twins equal to their sources, checked again by nbval, and the committed reference run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from smoke_book import smoke_book

from drlib.book import reference
from drlib.book.layout import Book
from drlib.book.notebooks import convert, sync

CHAPTERS = Book.of("smoke").chapters
STEMS = [chapter.stem for chapter in CHAPTERS]


def test_every_twin_equals_its_source(root: Path) -> None:
    assert sync(root, check=True) == [], "run `drlib notebooks sync`"
    assert sorted(path.stem for path in (root / "notebooks").glob("*.py")) == sorted(STEMS)


@pytest.mark.parametrize("stem", STEMS)
def test_a_notebook_is_well_formed(root: Path, stem: str) -> None:
    notebook = convert(root / "notebooks" / f"{stem}.py")
    first = notebook.cells[0]
    assert first.cell_type == "markdown" and first.source.startswith("# ")
    tagged = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    assert len(tagged) == 1 and not tagged[0].source.startswith("%")


@pytest.mark.parametrize("stem", STEMS)
def test_no_prose_is_a_comment_in_a_code_cell(root: Path, stem: str) -> None:
    """A lost ``# %% [markdown]`` turns a paragraph into comments, which no reader sees."""
    book = nbformat.read(root / "notebooks" / "ipynb" / f"{stem}.ipynb", as_version=4)
    code = "\n".join(cell.source for cell in book.cells if cell.cell_type == "code")
    assert not re.findall(r"^#.*\{(?:numref|doc|ref|cite:\w)\}`.*$", code, re.MULTILINE)
    assert not re.findall(r"^# #.*$", code, re.MULTILINE)


@pytest.mark.parametrize("stem", STEMS)
def test_a_notebook_gives_the_checked_outputs_again(root: Path, stem: str) -> None:
    """nbval runs the executed smoke notebook again and compares cells that say ``# NBVAL_CHECK_OUTPUT``.

    Without such a cell nothing would be compared, and a notebook that was never executed would pass; so
    both are excluded here.
    """
    path = smoke_book() / "executed" / f"{stem}.ipynb"
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    checked = [cell for cell in cells if re.search(r"^# NBVAL_CHECK_OUTPUT", cell.source, re.MULTILINE)]
    assert checked, "no cell is compared"
    assert all(cell.outputs for cell in checked), "a cell to be compared has no output"
    env = {name: value for name, value in os.environ.items() if name not in ("DRLIB_STORE", "MPLBACKEND")}
    env["JUPYTER_PATH"] = str(Path(sys.prefix) / "share" / "jupyter")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-o",
        "addopts=",
    ]
    command += ["--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=120", str(path)]
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert f"{len(cells)} passed" in done.stdout


def test_the_committed_reference_run_is_of_these_notebooks() -> None:
    book = reference.reference_book()
    assert reference.outdated(book) == [], (
        "run `drlib book`, look at it, then `python -m drlib.book` and commit results/"
    )
    total = sum(path.stat().st_size for path in book.results.rglob("*") if path.is_file())
    assert total < 5_000_000
