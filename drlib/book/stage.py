"""Stage the sources of one profile's book and build its pages with Jupyter Book.

The staged copy holds only what the pages need, so that no virtual environment and no other profile is ever
swept in. The finished pages replace the earlier ones in one step, and only if the build was complete.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from drlib.book import measured, paper_items, printed_pages
from drlib.book.gate import displayed
from drlib.book.layout import CHECKOUT, Book, Chapter, read_json, tree_hash, write_json
from drlib.errors import UserError
from drlib.report import fragment, label

_INCLUDED = re.compile(r"\{include\} /fragments/([\w-]+\.md)")

BADGES = {
    "smoke": "A test that everything runs, on tiny settings. These numbers mean nothing.",
    "laptop": "Small real images on a laptop: the method is the paper's, the scale is not.",
    "paper": "The paper's scale.",
}


def stage(book: Book, notebooks: Mapping[str, Any], *, notice: str = "", runs: Mapping[str, Any]) -> Path:
    """Write the staged book and return its folder.

    Args:
        notebooks: executed notebook of each chapter, by stem; a chapter without one becomes a short page
            that says how to run it.
        notice: text for the top of every page, after the profile's badge.
        runs: by slug, what each chapter's run saved: ``{"parameters": ..., "values": ..., "states": ...}``.
    """
    import nbformat

    staged = book.build / "book"
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    shutil.copytree(book.root / "book", staged / "book")
    shutil.copytree(book.root / "assets", staged / "assets")
    shutil.copytree(CHECKOUT / "drlib", staged / "drlib", ignore=_only_sources)
    (staged / "notebooks").mkdir()
    for folder in ("figures", "tables"):
        (staged / folder).mkdir()
        for chapter in book.chapters:
            for file in sorted((book.outputs(chapter) / folder).glob("*")):
                shutil.copyfile(file, staged / folder / file.name)
    for chapter in book.chapters:
        page = staged / "notebooks" / f"{chapter.stem}.ipynb"
        if chapter.stem in notebooks:
            nbformat.write(notebooks[chapter.stem], page)
        else:
            page.with_suffix(".md").write_text(_placeholder(book, chapter), encoding="utf-8")
    made = {label(item) for notebook in notebooks.values() for item in displayed(notebook)}
    printed_pages.write(staged, pages(book.root), book.chapters, runs, made)
    _write_fragments(book, staged, notebooks)
    generated = staged / "generated"
    generated.mkdir()
    (generated / "chapters.md").write_text(_cards(book), encoding="utf-8")
    items = paper_items.listing(book.chapters, runs, pages(book.root))
    (generated / "tables_figures.md").write_text(items, encoding="utf-8")
    results = book.root / "benchmarks" / "results"
    (generated / "measurements.md").write_text(measured.listing(results), encoding="utf-8")
    for picture in results.glob("*.png"):
        shutil.copyfile(picture, staged / "figures" / picture.name)
    _write_toc(book, staged)
    _write_config(book, staged, notice, runs)
    return staged


def build(book: Book, staged: Path, *, strict: bool = True) -> Path:
    """Build the pages unless they are already made from the same staged files; return ``index.html``.

    Args:
        strict: a warning (such as a reference that leads nowhere) is an error.

    Raises:
        UserError: the build failed or is incomplete; the earlier pages stay.
    """
    index, stamp = book.html / "index.html", book.build / "html.json"
    made_from = [tree_hash(staged), sys.version, _theme_versions()]
    if index.exists() and read_json(stamp) == {"from": made_from, "pages": tree_hash(book.html)}:
        return index
    work, log = book.build / "sphinx", book.build / "build.log"
    shutil.rmtree(work, ignore_errors=True)
    command = [str(Path(sys.executable).parent / "jupyter-book"), "build", str(staged), "--all"]
    command += ["--path-output", str(work), "-n", "--keep-going", *(["-W"] if strict else [])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CHECKOUT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, capture_output=True, text=True, env=env, stdin=subprocess.DEVNULL)
    log.write_text(done.stdout + done.stderr, encoding="utf-8")
    fresh = work / "_build" / "html"
    warnings = [line for line in done.stderr.splitlines() if "WARNING:" in line or "ERROR:" in line]
    missing = [page for page in pages(staged) if not (fresh / f"{page}.html").exists()]
    if done.returncode or missing or not (fresh / "index.html").exists() or (strict and warnings):
        reason = _plain(warnings[0], staged) if warnings else f"exit code {done.returncode}"
        more = f" (and {len(warnings) - 1} more)" if len(warnings) > 1 else ""
        lost = f"; pages missing: {', '.join(missing)}" if missing else ""
        raise UserError(f"jupyter-book failed: {reason}{more}{lost}; its output is in {log}")
    stamp.unlink(missing_ok=True)
    old = book.build / "html.old"
    shutil.rmtree(old, ignore_errors=True)
    if book.html.exists():
        os.replace(book.html, old)
    os.replace(fresh, book.html)
    shutil.rmtree(old, ignore_errors=True)
    shutil.rmtree(work)
    write_json(stamp, {"from": made_from, "pages": tree_hash(book.html)})
    return index


def pages(staged: Path) -> list[str]:
    """The pages named in a table of contents, root first."""
    root, chapters = _contents(staged)
    return [root, *(page for chapter, below in chapters.items() for page in [chapter, *below])]


def _contents(staged: Path) -> tuple[str, dict[str, list[str]]]:
    """The root page, and each chapter with the pages below it, in order."""
    toc = yaml.safe_load((staged / "_toc.yml").read_text(encoding="utf-8"))
    chapters = [chapter for part in toc["parts"] for chapter in part["chapters"]]
    return toc["root"], {
        chapter["file"]: [section["file"] for section in chapter.get("sections", [])] for chapter in chapters
    }


def _write_fragments(book: Book, staged: Path, notebooks: Mapping[str, Any]) -> None:
    """Write what other pages include of the notebooks: figures and tables that were made for them.

    A page may include what this build did not make; it then says how to make it.
    """
    folder = staged / "fragments"
    folder.mkdir()
    for notebook in notebooks.values():
        for described in displayed(notebook):
            if described.get("page"):
                (folder / f"{label(described)}.md").write_text(fragment(described), encoding="utf-8")
    for page in (staged / "book").rglob("*.md"):
        for name in _INCLUDED.findall(page.read_text(encoding="utf-8")):
            if not (folder / name).exists():
                text = f"*Not part of this build: `drlib book --profile {book.profile}` makes it.*\n"
                (folder / name).write_text(text, encoding="utf-8")


def _only_sources(folder: str, names: list[str]) -> list[str]:
    return [
        name
        for name in names
        if name == "__pycache__" or ("." in name and not name.endswith((".py", ".yaml")))
    ]


def _theme_versions() -> list[str]:
    from importlib.metadata import version

    return [f"{name} {version(name)}" for name in ("jupyter-book", "sphinx", "sphinx-book-theme", "myst-nb")]


def _plain(line: str, staged: Path) -> str:
    return (
        line.replace(f"{staged}/", "")
        .replace("\x1b[91m", "")
        .replace("\x1b[31m", "")
        .replace("\x1b[39;49;00m", "")
    )


def _placeholder(book: Book, chapter: Chapter) -> str:
    return (
        f"# {chapter.title or chapter.slug}\n\n"
        "This chapter was not part of this build. To run it and add it:\n\n"
        f"```\ndrlib book --profile {book.profile}\n```\n"
    )


def _cards(book: Book) -> str:
    """The chapters as cards, for the title page."""
    cards = [
        f"::::{{grid-item-card}} {chapter.number}. {chapter.title}\n:link: ../notebooks/{chapter.stem}\n"
        f":link-type: doc\n\n{_sentence(chapter.gives)}\n\n*Needs {chapter.needs or 'nothing'}.*\n::::\n"
        for chapter in book.chapters
    ]
    return ":::::{grid} 1 1 2 2\n:gutter: 3\n\n" + "\n".join(cards) + ":::::\n"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")


def _write_toc(book: Book, staged: Path) -> None:
    """Copy the table of contents. Raises ``UserError`` if it and the sections disagree."""
    text = (book.root / "_toc.yml").read_text(encoding="utf-8")
    (staged / "_toc.yml").write_text(text, encoding="utf-8")
    listed = {page for page in pages(staged) if page.startswith("notebooks/")}
    wanted = {f"notebooks/{chapter.stem}" for chapter in book.chapters}
    if listed != wanted:
        odd = ", ".join(sorted(listed ^ wanted))
        raise UserError(f"_toc.yml and the sections of the book disagree about {odd}")


def _write_config(book: Book, staged: Path, notice: str, runs: Mapping[str, Any]) -> None:
    config = yaml.safe_load((book.root / "_config.yml").read_text(encoding="utf-8"))
    badge = f'<span class="drlib-badge drlib-badge-{book.profile}">{book.profile}</span> '
    config["html"]["announcement"] = badge + html.escape(
        " ".join([BADGES.get(book.profile, ""), notice]).strip()
    )
    config["exclude_patterns"] += ["generated", "fragments", "drlib", "figures", "tables"]
    numbers = {f"notebooks/{chapter.stem}": chapter.number for chapter in book.chapters}
    for chapter, below in _contents(staged)[1].items():
        if chapter in numbers:
            numbers |= dict.fromkeys(below, numbers[chapter])
    config["sphinx"]["config"]["chapter_numbers"] = numbers
    config["parse"]["myst_substitutions"] = {
        f"{slug}_{name}": number
        for slug, run in runs.items()
        for name, number in run.get("values", {}).items()
    }
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=1000)
    (staged / "_config.yml").write_text(text, encoding="utf-8")
