"""The committed reference run: outputs without notebooks, shown only beside the cells that made them.

``results/<profile>/`` holds, for each notebook, the outputs of its cells (pictures as files) together with
hashes of the cells' sources. The book for reading joins them with the unexecuted twins. Where a notebook
has changed since, only cells that did not change keep their results, and the page says so.
"""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from drlib.book.gate import gate
from drlib.book.layout import CHECKOUT, Book, Chapter, read_json, write_json
from drlib.book.notebooks import cell_hash, cell_id, is_injected, source_hash
from drlib.book.stage import build, stage
from drlib.errors import UserError
from drlib.report import figure_bundle, table_bundle

PROFILE = "laptop"
_BINARY = ("image/png", "image/jpeg")


class Reference(Book):
    """The book made from ``results/<profile>/``."""

    @property
    def results(self) -> Path:
        return self.root / "results" / self.profile

    def outputs(self, chapter: Chapter) -> Path:
        return self.results


def reference_book(profile: str = PROFILE, root: Path = CHECKOUT) -> Reference:
    return Reference(profile, Book.of(profile).chapters, root, "reference")


def reference_tables(*ids: str) -> list[Path]:
    """Those tables of the committed reference run that are there (an installed package has none)."""
    folder = reference_book().results / "tables"
    return [path for path in (folder / f"{id}.csv" for id in ids) if path.is_file()]


# --- writing it ----------------------------------------------------------------------------------------


def export_reference(book: Book) -> Path:
    """Write ``results/<profile>/`` from an executed book that passes the gate; return the folder."""
    import nbformat

    gate(book)
    final = book.root / "results" / book.profile
    folder = book.build / "results"
    shutil.rmtree(folder, ignore_errors=True)
    chapters, dates = {}, []
    for chapter in book.chapters:
        notebook = nbformat.read(book.executed(chapter), as_version=4)
        made = notebook.metadata["drlib"]
        dates.append(notebook.metadata["papermill"]["end_time"][:10])
        saved = read_json(book.outputs(chapter) / "values.json")
        cells = list(_cells(notebook, chapter.stem, folder))
        record = {name: made[name] for name in ("source", "parameters", "profile")}
        record |= {"cells": cells, "values": saved.get("values", {}), "states": saved.get("states", {})}
        write_json(folder / f"{chapter.stem}.json", record)
        for kind, ending in (("figures", "png"), ("tables", "csv")):
            for file in sorted((book.outputs(chapter) / kind).glob(f"*.{ending}")):
                (folder / kind).mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, folder / kind / file.name)
        chapters[chapter.stem] = {
            "source": made["source"],
            "package": made["package"],
            "versions": made["versions"],
        }
    write_json(
        folder / "provenance.json", {"profile": book.profile, "date": max(dates), "notebooks": chapters}
    )
    kept = (
        [path for path in final.glob("*") if path.name not in _written_by_export(final)]
        if final.exists()
        else []
    )
    for path in kept:  # what others put there, such as the results table
        (shutil.copytree if path.is_dir() else shutil.copyfile)(path, folder / path.name)
    shutil.rmtree(final, ignore_errors=True)
    final.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(folder, final)
    return final


def _written_by_export(folder: Path) -> set[str]:
    stems = read_json(folder / "provenance.json").get("notebooks", {})
    return {"figures", "tables", "provenance.json", *(f"{stem}.json" for stem in stems)}


def _cells(notebook: Any, stem: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Each code cell with outputs: hash of its source, and its outputs without pictures inside."""
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        if is_injected(cell):
            yield {"injected": cell.source}
            continue
        outputs = [
            _externalized(output, stem, cell["id"], i, folder) for i, output in enumerate(cell.outputs)
        ]
        yield {"id": cell["id"], "source": cell_hash(cell), "outputs": outputs}


def _externalized(output: Any, stem: str, cell: str, index: int, folder: Path) -> dict[str, Any]:
    if "drlib" in output.get("metadata", {}):
        return {"drlib": output.metadata["drlib"]}
    plain = dict(output)
    plain.pop("execution_count", None)
    data = dict(plain.get("data", {}))
    for mime in _BINARY:
        if mime in data:
            file = f"figures/{stem}-{cell}-{index}.{mime.split('/')[1]}"
            (folder / "figures").mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(base64.b64decode(data[mime]))
            data[mime] = {"file": file}
    return {**plain, "data": data} if data else plain


# --- reading it ----------------------------------------------------------------------------------------


def joined(book: Reference, chapter: Chapter) -> tuple[Any, bool]:
    """The twin of a chapter with the reference run's outputs, and whether the run is of this very version."""
    import nbformat

    record = read_json(book.results / f"{chapter.stem}.json")
    if not record:
        raise UserError(
            f"results/{book.profile} has no run of {chapter.stem} (`python -m drlib.book` writes it)"
        )
    notebook = nbformat.read(book.twin(chapter), as_version=4)
    current = source_hash(notebook) == record["source"]
    made: dict[str, list[dict[str, Any]]] = {}
    for cell in record["cells"]:
        made.setdefault(cell.get("source", ""), []).append(cell)
    cells, count = [], 0
    for cell in notebook.cells:
        found = made.get(cell_hash(cell)) if cell.cell_type == "code" else None
        if found:
            count += 1
            cell["outputs"] = [_restored(book, output, count) for output in found.pop(0)["outputs"]]
            cell["execution_count"] = count
        cells.append(cell)
        injected = [cell["injected"] for cell in record["cells"] if "injected" in cell]
        if "parameters" in cell.metadata.get("tags", []) and injected:
            extra = nbformat.v4.new_code_cell(injected[0])
            extra["id"] = cell_id(chapter.stem, "injected")
            extra.metadata["tags"] = ["injected-parameters", "hide-input"]
            cells.append(extra)
    if not current:
        note = nbformat.v4.new_markdown_cell(
            ":::{warning}\nThese results were made by an older version of this notebook. Cells that changed "
            "since show no result; `drlib book` makes them again.\n:::"
        )
        note["id"] = cell_id(chapter.stem, "older")
        cells.insert(1, note)
    notebook.cells = cells
    return notebook, current


def _restored(book: Reference, output: dict[str, Any], count: int) -> Any:
    import nbformat

    if "drlib" in output:
        described = output["drlib"]
        if described["kind"] == "figure":
            bundle = figure_bundle(
                described, (book.results / "figures" / f"{described['id']}.png").read_bytes()
            )
        else:
            bundle = table_bundle(described)
        content = {"output_type": "display_data", "data": bundle, "metadata": {"drlib": described}}
        return nbformat.from_dict(content)
    restored = dict(output)
    if "data" in restored:
        restored["data"] = {
            mime: base64.b64encode((book.results / value["file"]).read_bytes()).decode()
            if mime in _BINARY
            else value
            for mime, value in restored["data"].items()
        }
    if restored["output_type"] == "execute_result":
        restored["execution_count"] = count
    return nbformat.from_dict(restored)


def outdated(book: Reference) -> list[str]:
    """Notebooks whose reference run is of an older version (or missing)."""
    import nbformat

    return [
        chapter.stem
        for chapter in book.chapters
        if read_json(book.results / f"{chapter.stem}.json").get("source")
        != source_hash(nbformat.read(book.twin(chapter), as_version=4))
    ]


def build_reference(book: Reference | None = None) -> Path:
    """Build the book from the committed run and return ``index.html``. Needs neither torch nor papermill."""
    book = book or reference_book()
    notebooks, older, runs, chapters = {}, [], {}, []
    for chapter in book.chapters:
        record = read_json(book.results / f"{chapter.stem}.json")
        notebooks[chapter.stem], current = joined(book, chapter)
        if not current:
            older.append(chapter.title or chapter.stem)
        runs[chapter.slug] = {name: record[name] for name in ("parameters", "values", "states")}
        chapters.append(replace(chapter, parameters=record["parameters"]))
    date = read_json(book.results / "provenance.json").get("date", "unknown date")
    notice = f"Reference run of {date}; nothing was computed on this machine."
    if older:
        notice += f" Made by an older version of: {', '.join(older)}."
    book = replace(book, chapters=tuple(chapters))
    return build(book, stage(book, notebooks, notice=notice, runs=runs))
