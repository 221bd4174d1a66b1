"""The book's machinery, on a book of two tiny notebooks: run, refuse, stage, build, reference run."""

import fcntl
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest
import yaml

from drlib import report
from drlib.book import paper_items, pipeline, reference, stage
from drlib.book.execute import execute, is_fresh, package_hash, plan
from drlib.book.gate import gate, problem_of
from drlib.book.layout import Book, Chapter, read_json
from drlib.book.notebooks import convert, source_hash, sync
from drlib.errors import UserError

HEADER = """# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---
"""
CHAPTER = (
    HEADER
    + """
# %% [markdown]
# # A chapter about SLUG
#
# $$\\min_x \\mathcal{L}(f_\\theta(x), y)$$ (eq-SLUG)
#
# See {numref}`fig-SLUG` and {numref}`tab-SLUG`.

# %%
import sys

from drlib import report

print(sys.prefix)

# %% tags=["parameters"]
profile: str = "laptop"
n: int = 3  # how many
sizes: list = [1]

# %% tags=["hide-input"]
import matplotlib.pyplot as plt

fig, ax = plt.subplots(figsize=(4, 2))
ax.plot(range(n))
alt = 'A line: rises from 0 to "n", <steadily> in {one} step'
made = "Made by `drlib run SLUG`, n=3"
report.figure(fig, id="SLUG", alt=alt, caption="A line for $n$; see {eq}`eq-SLUG`.", provenance=made)

# %%
rows = "| Attack | published | ours |\\n|:--|--:|--:|\\n"
rows += "| MI-Face | 0.014 | NaN |\\n| Deep\\\\|Dream | 0.1 | 0.25 |"
report.table(rows, id="SLUG", caption="Published beside reproduced.", provenance=made)
report.value("gap", 0.25)
words = {"caption": "Shown on a page of its own.", "provenance": made, "page": "book/item"}
if "SLUG" == "first":
    report.figure(plt.figure(figsize=(2, 2)), id="item", alt="An empty square on the item's page", **words)
    report.table("| a | b |\\n|:--|--:|\\n| c | 17 |", id="item", **words)

# %%
print(sizes, profile)
"""
)
FIRST = Chapter(
    "first",
    "03_first",
    3,
    "First",
    gives="a line",
    parameters={"n": 4, "profile": "smoke", "sizes": [1, 2]},
)
SECOND = Chapter(
    "second",
    "12_second",
    12,
    "Second",
    gives="another line",
    parameters={"n": 5, "profile": "smoke", "sizes": []},
)
TOC = """format: jb-book
root: book/intro
parts:
  - caption: Start
    chapters:
      - file: book/tables_figures
  - caption: Chapters
    numbered: 1
    chapters:
      - file: notebooks/03_first
        sections:
          - file: book/item
      - file: notebooks/12_second
"""


@pytest.fixture(autouse=True, scope="session")
def unchanged_package() -> Iterator[None]:
    """The package counts as unchanged during the tests, also while somebody edits it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("drlib.book.execute.package_hash", lambda: "the package")
        yield


def project(folder: Path, root: Path) -> Book:
    """A book of two chapters with the project's own configuration, styles and scripts."""
    (folder / "book").mkdir(parents=True)
    (folder / "notebooks").mkdir()
    shutil.copytree(root / "assets", folder / "assets")
    shutil.copy(root / "_config.yml", folder)
    (folder / "_toc.yml").write_text(TOC)
    intro = "# Title\n\n{numref}`fig-first`, {numref}`tab-second`; the gap is {{ first_gap }}.\n\n"
    (folder / "book" / "intro.md").write_text(intro + "```{include} ../generated/chapters.md\n```\n")
    (folder / "book" / "references.bib").write_text("")
    item = "# An item\n\nSee {numref}`fig-item`.\n\n" + "".join(
        f"```{{include}} /fragments/{name}.md\n```\n\n" for name in ("fig-item", "tab-item", "fig-other")
    )
    item += "```{literalinclude} /drlib/errors.py\n:language: python\n:pyobject: UserError\n```\n"
    (folder / "book" / "item.md").write_text(item)
    listing = "# List\n\n```{include} ../generated/tables_figures.md\n```\n"
    (folder / "book" / "tables_figures.md").write_text(listing)
    for chapter in (FIRST, SECOND):
        text = CHAPTER.replace("SLUG", chapter.slug)
        (folder / "notebooks" / f"{chapter.stem}.py").write_text(text)
    decoy = folder / ".venv" / "lib" / "package"
    decoy.mkdir(parents=True)
    (decoy / "README.md").write_text("# A package's page that must not get into the book\n")
    sync(folder)
    return Book("smoke", (FIRST, SECOND), folder)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Book:
    """The built book, shared by all tests and all processes of pytest-xdist: read only."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "project"
    with (shared / "project.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "project.done").exists():
            book = project(folder, root)
            fake = shared / "jupyter" / "kernels" / "python3"  # a user's own kernel of that name
            fake.mkdir(parents=True)
            kernel = {"argv": ["/nonexistent/python"], "display_name": "Python 3", "language": "python"}
            (fake / "kernel.json").write_text(json.dumps(kernel))
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("JUPYTER_PATH", str(shared / "jupyter"))
                pipeline.make("smoke", book=book)
            (shared / "project.done").touch()
    return Book("smoke", (FIRST, SECOND), folder)


@pytest.fixture
def copy(built: Book, tmp_path: Path) -> Book:
    """A copy of the built book that a test may change."""
    shutil.copytree(built.root, tmp_path / "project")
    return replace(built, root=tmp_path / "project")


class Page(HTMLParser):
    """What a page loads and shows."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.images: list[dict[str, str]] = []
        self.text = ""
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        if tag == "img":
            self.images.append(found)
        if tag in ("script", "img", "iframe", "video", "audio", "source", "embed"):
            self.loads += [found[name] for name in ("src", "srcset") if name in found]
        if tag == "link" and found.get("rel") not in ("index", "search", "next", "prev"):
            self.loads.append(found.get("href", ""))

    def handle_data(self, data: str) -> None:
        self.text += data


def page(book: Book, name: str) -> Page:
    return Page(book.html / f"{name}.html")


# --- the finished pages --------------------------------------------------------------------------------


def test_the_build_has_every_page_and_no_warning(built: Book) -> None:
    names = sorted(path.relative_to(built.html).as_posix() for path in built.html.rglob("*.html"))
    assert {"index.html", "book/intro.html", "notebooks/03_first.html", "notebooks/12_second.html"} <= set(
        names
    )
    assert not [name for name in names if "README" in name or "package" in name]
    assert "WARNING" not in (built.build / "build.log").read_text()


def test_a_chapter_has_the_number_of_its_section(built: Book) -> None:
    text = page(built, "notebooks/12_second").text
    assert "12. A chapter about second" in text
    assert "Fig. 12.1" in text and "Table 12.1" in text and "(12.1)" in text
    intro = page(built, "book/intro").text
    assert "Fig. 3.1" in intro and "Table 12.1" in intro
    assert "the gap is 0.25." in intro


def test_a_page_shows_what_a_notebook_made_for_it(built: Book) -> None:
    item = page(built, "book/item")
    assert "Fig. 3.2" in item.text and "Table 3.2" in item.text and "17" in item.text
    assert "3. An item" not in item.text
    assert "Made by" in item.text and "class UserError" in item.text
    assert [image["alt"] for image in item.images if "_images" in image.get("src", "")] == [
        "An empty square on the item's page"
    ]
    assert "Not part of this build: drlib book --profile smoke makes it" in item.text
    chapter = page(built, "notebooks/03_first").text
    assert "Fig. 3.2 is on the page An item" in chapter


def test_every_picture_has_alternative_text_caption_and_provenance(built: Book) -> None:
    shown = [image for image in page(built, "notebooks/03_first").images if "_images" in image.get("src", "")]
    assert [image["alt"] for image in shown] == ['A line: rises from 0 to "n", <steadily> in {one} step']
    source = page(built, "notebooks/03_first").source
    assert re.search(r'<div class="legend">\s*<p>Made by', source)
    assert source.count("Made by") >= 2


def test_a_table_shows_published_beside_reproduced(built: Book) -> None:
    found = page(built, "notebooks/03_first")
    for text in ("published", "ours", "0.014", "NaN", "Deep|Dream"):
        assert text in found.text
    assert '<td class="text-right"><p>0.014</p></td>' in found.source


def test_every_page_says_its_profile(built: Book) -> None:
    for name in ("book/intro", "book/tables_figures", "notebooks/03_first"):
        found = page(built, name)
        assert "drlib-badge-smoke" in found.source
        assert "These numbers mean nothing" in found.text


def test_no_page_loads_anything_from_elsewhere(built: Book) -> None:
    """Everything that a browser fetches by itself is a file of the book. Links to click are no matter."""
    for path in built.html.rglob("*.html"):
        found = Page(path)
        away = [url for url in found.loads if re.match(r"(https?:)?//", url)]
        assert not away, f"{path.name} loads {away}"
        scripts = re.findall(r"<script\b[^>]*>(.*?)</script>", found.source, re.DOTALL)
        named = {url for text in scripts for url in re.findall(r"https?://[^\s\"'`]+", text)}
        # A constant of the theme's live-code button, which this book switches off.
        assert all("thebe" in url for url in named), named
    for path in built.html.rglob("*.css"):
        assert not re.findall(r"url\(\s*[\"']?(?:https?:)?//", path.read_text(encoding="utf-8")), path
    assert any("mathjax/es5/tex-chtml.js" in url for url in page(built, "notebooks/03_first").loads)
    assert (built.html / "_static" / "mathjax" / "es5" / "tex-chtml.js").exists()
    assert len(list((built.html / "_static" / "mathjax").rglob("*.woff"))) > 10


def test_the_list_of_the_papers_items_is_computed(built: Book) -> None:
    text = page(built, "book/tables_figures").text
    assert "In this build:" in text
    assert "Figure\N{NO-BREAK SPACE}14" in text


# --- running notebooks ---------------------------------------------------------------------------------


def test_a_run_uses_this_environment_whatever_jupyter_path_says(built: Book) -> None:
    notebook = nbformat.read(built.executed(FIRST), as_version=4)
    printed = [
        output.text for cell in notebook.cells for output in cell.get("outputs", []) if "text" in output
    ]
    assert printed[0].strip() == sys.prefix
    assert printed[-1].strip() == "[1, 2] smoke"
    ids = [cell["id"] for cell in notebook.cells]
    assert len(set(ids)) == len(ids)


def test_nothing_runs_again_unless_content_changes(copy: Book) -> None:
    def fresh() -> list[bool]:
        return [is_fresh(copy, job) for job in plan(copy, copy.chapters)]

    assert fresh() == [True, True]
    assert execute(copy) == []
    os.utime(copy.source(FIRST))
    assert fresh() == [True, True]
    copy.source(FIRST).write_text(copy.source(FIRST).read_text() + "# more\n")
    assert fresh() == [False, True]
    other = replace(copy, chapters=(FIRST, replace(SECOND, parameters={**SECOND.parameters, "n": 6})))
    assert [is_fresh(other, job) for job in plan(other, other.chapters)] == [False, False]


def test_changed_code_runs_everything_again_except_what_no_notebook_reaches(tmp_path: Path) -> None:
    (tmp_path / "book").mkdir()
    files = {name: tmp_path / name for name in ("cli.py", "book/gate.py", "study.py", "numbers.csv")}
    for path in files.values():
        path.write_text("1")
    before = package_hash(tmp_path)
    for name in ("cli.py", "book/gate.py"):
        files[name].write_text("2")
    assert package_hash(tmp_path) == before
    for name in ("study.py", "numbers.csv"):
        files[name].write_text("2")
        assert package_hash(tmp_path) != before
        before = package_hash(tmp_path)


@pytest.mark.parametrize("damage", ["notebook", "figure", "lost table", "stamp"])
def test_a_damaged_result_is_not_up_to_date(copy: Book, damage: str) -> None:
    if damage == "notebook":
        copy.executed(FIRST).write_text(copy.executed(FIRST).read_text().replace("rises", "falls"))
    if damage == "figure":
        (copy.outputs(FIRST) / "figures" / "first.png").write_bytes(b"")
    if damage == "lost table":
        (copy.outputs(FIRST) / "tables" / "first.csv").unlink()
    if damage == "stamp":
        copy.stamp(FIRST).write_text("{")
    assert [is_fresh(copy, job) for job in plan(copy, copy.chapters)] == [False, True]
    if damage in ("figure", "lost table"):
        with pytest.raises(UserError, match="03_first: its file"):
            gate(copy)


def test_an_unchanged_book_is_not_built_again(copy: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy lies elsewhere, but holds the same: neither a notebook nor Jupyter Book may start."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError(f"started {args}")

    monkeypatch.setattr(subprocess, "run", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert pipeline.make("smoke", book=copy) == copy.html / "index.html"


LIGHT = (
    HEADER
    + """
# %% [markdown]
# # A chapter

# %% tags=["parameters"]
profile: str = "laptop"
n: int = 3
sizes: list = []

# %%
"""
)


def test_a_failing_notebook_is_named_and_the_earlier_result_stays(copy: Book) -> None:
    before = copy.executed(FIRST).read_bytes()
    index = (copy.html / "index.html").stat().st_mtime_ns
    copy.source(FIRST).write_text(LIGHT + "x = 1\n1 / (x - 1)\n")
    with pytest.raises(UserError, match=r"03_first failed in code cell 2 \(`x = 1`\): ZeroDivisionError"):
        pipeline.make("smoke", book=copy)
    assert copy.executed(FIRST).read_bytes() == before
    assert (copy.html / "index.html").stat().st_mtime_ns == index
    failed = nbformat.read(copy.failed(FIRST), as_version=4)
    assert "ZeroDivisionError" in str(failed)
    with pytest.raises(UserError, match="03_first: it was executed from another version of its source"):
        gate(copy)


def test_only_runs_what_is_named_and_says_what_is_missing(
    copy: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy.source(FIRST).write_text(LIGHT + "print(n)\n")
    copy.executed(SECOND).unlink()
    kept = copy.executed(FIRST).read_bytes()
    with pytest.raises(UserError, match="12_second has not been executed under profile smoke"):
        gate(copy, ["second"])
    strict_builds = []

    def build(book: Book, staged: Path, *, strict: bool) -> Path:
        strict_builds.append(strict)
        return staged

    monkeypatch.setattr(pipeline, "build", build)
    staged = pipeline.make("smoke", ["first"], book=copy)
    assert strict_builds == [False]
    assert copy.executed(FIRST).read_bytes() != kept
    assert "was not part of this build" in (staged / "notebooks" / "12_second.md").read_text()
    assert (staged / "notebooks" / "03_first.ipynb").exists()


def test_killed_in_the_middle_then_run_again(tmp_path: Path, root: Path) -> None:
    book = project(tmp_path / "project", root)
    started = tmp_path / "started"
    slow = "import os, pathlib, time\n"
    slow += f"pathlib.Path({str(started)!r}).write_text(str(os.getpid()))\ntime.sleep(n)\n"
    book.source(SECOND).write_text(LIGHT + slow)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_book as t; from pathlib import Path;"
        "patient = t.replace(t.SECOND, parameters={**t.SECOND.parameters, 'n': 600});"
        "t.execute(t.Book('smoke', (patient,), Path(sys.argv[2])))"
    )
    arguments = [str(Path(__file__).parent), str(book.root)]
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.DEVNULL)
    wait_for(started.exists)
    with pytest.raises(UserError, match="another build of 'smoke' is running"):
        execute(book)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not book.executed(SECOND).exists() and not book.stamp(SECOND).exists()
    kernel = int(started.read_text())
    wait_for(lambda: not alive(kernel))  # the kernel does not outlive what started it
    quick = replace(SECOND, parameters={**SECOND.parameters, "n": 0})
    book = replace(book, chapters=(quick,))
    with pytest.raises(UserError, match="has not been executed"):
        gate(book)
    assert execute(book) == [quick]
    assert gate(book) == [quick]


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_for(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def test_a_parameter_that_a_notebook_does_not_have_is_refused(built: Book) -> None:
    chapter = replace(FIRST, parameters={"size": [1]})
    with pytest.raises(UserError, match=r"03_first has no parameter 'size'; did you mean 'sizes'"):
        plan(built, [chapter])
    with pytest.raises(UserError, match=r"unknown section 'frist'; did you mean 'first'"):
        execute(built, ["frist"])


# --- the gate ------------------------------------------------------------------------------------------


def _no_end(notebook):
    notebook.metadata.papermill.end_time = None


def _killed(notebook):
    notebook.cells[-1].metadata.papermill.status = "pending"


def _prepared(notebook):
    for cell in notebook.cells:
        cell.metadata.pop("papermill", None)


def _exception(notebook):
    notebook.metadata.papermill.exception = True


def _error(notebook):
    error = nbformat.v4.new_output("error", ename="ValueError", evalue="wrong", traceback=[])
    notebook.cells[-1].outputs = [error]


def _banner(notebook):
    notebook.cells.insert(0, nbformat.v4.new_markdown_cell("!"))
    notebook.cells[0].metadata["tags"] = ["papermill-error-cell-tag"]


def _image(notebook):
    data = {"image/png": "aaaa", "text/plain": "<Figure>"}
    notebook.cells[-1].outputs = [nbformat.v4.new_output("display_data", data=data)]


def _img(notebook):
    data = {"text/html": '<p><img src="x.png" alt=" "></p>', "text/plain": ""}
    notebook.cells[-1].outputs = [nbformat.v4.new_output("display_data", data=data)]


def _source(notebook):
    notebook.cells[-1].source += "\nprint(1)"


def _recorded_source(notebook):
    notebook.metadata.drlib.source = "0" * 16


def _parameters(notebook):
    notebook.metadata.drlib.parameters["n"] = 7


def _code(notebook):
    notebook.metadata.drlib.key = "0" * 16


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_no_end, "stopped before the end"),
        (_killed, r"code cell 5 was not executed \(status: pending\)"),
        (_prepared, r"code cell 1 was not executed \(status: none\)"),
        (_exception, "its run ended with an error"),
        (_error, "code cell 5 failed: ValueError: wrong"),
        (_banner, "banner of a failed run"),
        (_image, "code cell 5 shows an image/png output without alternative text"),
        (_img, "code cell 5 shows an <img> without alternative text"),
        (_source, "another version of its source"),
        (_recorded_source, "another version of its source"),
        (_parameters, r"other parameters \(n\)"),
        (_code, "other code or libraries"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_gate_refuses(built: Book, change, message: str) -> None:
    notebook = nbformat.read(built.executed(FIRST), as_version=4)
    job = plan(built, [FIRST])[0]
    job = replace(job, parts=notebook.metadata.drlib and read_json(built.stamp(FIRST))["parts"])
    assert problem_of(notebook, job) == ""
    change(notebook)
    assert re.search(message, problem_of(notebook, job)), problem_of(notebook, job)


def test_the_gate_refuses_an_id_used_in_two_notebooks(copy: Book) -> None:
    path = copy.executed(SECOND)
    path.write_text(path.read_text().replace('"id": "second"', '"id": "first"'))
    with pytest.raises(UserError, match=r"12_second.*figure 'first' is also in 03_first"):
        gate(copy)


# --- sources and twins ---------------------------------------------------------------------------------


def test_conversion_is_deterministic_and_the_twin_says_the_same(built: Book) -> None:
    once, again = convert(built.source(FIRST)), convert(built.source(FIRST))
    assert once == again
    twin = nbformat.read(built.twin(FIRST), as_version=4)
    assert source_hash(twin) == source_hash(once)
    assert not any(cell.get("outputs") for cell in twin.cells)


def test_sync_writes_what_differs_and_removes_what_has_no_source(copy: Book) -> None:
    assert sync(copy.root, check=True) == []
    copy.source(FIRST).write_text(copy.source(FIRST).read_text() + "\n# %%\n1 + 1\n")
    copy.source(SECOND).unlink()
    assert sync(copy.root, check=True) == ["03_first.ipynb", "12_second.ipynb"]
    assert copy.twin(SECOND).exists()
    assert sync(copy.root) == ["03_first.ipynb", "12_second.ipynb"]
    assert sync(copy.root, check=True) == [] and not copy.twin(SECOND).exists()


# --- the reference run ---------------------------------------------------------------------------------


@pytest.fixture
def exported(copy: Book) -> reference.Reference:
    folder = reference.export_reference(copy)
    assert folder == copy.root / "results" / "smoke"
    return reference.Reference("smoke", copy.chapters, copy.root, "reference")


def test_the_reference_run_gives_the_same_pages_without_heavy_packages(exported: reference.Reference) -> None:
    assert reference.outdated(exported) == []
    files = {path.relative_to(exported.results).as_posix() for path in exported.results.rglob("*.*")}
    assert {"03_first.json", "figures/first.png", "tables/first.csv", "provenance.json"} <= files
    assert "base64" not in (exported.results / "03_first.json").read_text()
    code = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in "torch papermill jupytext pandas matplotlib numpy IPython".split():
            raise ImportError(name + " is not in the docs lock")
sys.meta_path.insert(0, Refuse())
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from drlib.book.layout import Book, Chapter
from drlib.book.reference import Reference, build_reference
chapters = Chapter("first", "03_first", 3), Chapter("second", "12_second", 12)
print(build_reference(Reference("smoke", chapters, Path(sys.argv[2]), "reference")))
"""
    arguments = [str(Path(__file__).parents[1]), str(exported.root)]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = page(exported, "notebooks/03_first")
    assert "Fig. 3.1" in found.text and "0.014" in found.text and "[1, 2] smoke" in found.text
    assert "Reference run of" in found.text and "older version" not in found.text
    assert [image["alt"] for image in found.images if "_images" in image["src"]]
    item = page(exported, "book/item")
    assert "17" in item.text and any("_images" in image["src"] for image in item.images)


def test_an_older_reference_run_is_shown_only_beside_unchanged_cells(exported: reference.Reference) -> None:
    source = exported.source(FIRST)
    text = source.read_text().replace("print(sizes, profile)", "print(sizes, profile, 'new')")
    source.write_text(text.replace("# %%\nimport sys", "# %%\nextra = 1\n\n# %%\nimport sys"))
    sync(exported.root)
    assert reference.outdated(exported) == ["03_first"]
    notebook, current = reference.joined(exported, FIRST)
    assert not current
    assert "older version of this notebook" in notebook.cells[1].source
    shown = {cell.source.split("\n")[0]: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}
    assert shown["print(sizes, profile, 'new')"] == [] and shown["extra = 1"] == []
    assert shown["import sys"][0].text.strip() == sys.prefix
    assert any("text/markdown" in output.get("data", {}) for outputs in shown.values() for output in outputs)


def test_a_missing_reference_run_is_refused(copy: Book) -> None:
    book = reference.Reference("smoke", copy.chapters, copy.root, "reference")
    assert reference.outdated(book) == ["03_first", "12_second"]
    with pytest.raises(UserError, match="results/smoke has no run of 03_first"):
        reference.build_reference(book)


# --- figures and tables --------------------------------------------------------------------------------


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[dict]]:
    """The bundles that a test displays; files go to ``tmp_path``."""
    bundles: list[dict] = []
    monkeypatch.setenv("DRLIB_OUTPUT", str(tmp_path))
    monkeypatch.setattr("IPython.display.display", lambda data, **rest: bundles.append(data))
    yield bundles


PNG = b"\x89PNG not really"


def test_a_figure_is_saved_and_shown_with_its_text(shown: list[dict], tmp_path: Path) -> None:
    report.figure(
        PNG, id="one-two", alt='Two "things" & more', caption="A `cap`:\n more.", provenance="Made."
    )
    assert (tmp_path / "figures" / "one-two.png").read_bytes() == PNG
    assert 'alt="Two &quot;things&quot; &amp; more"' in shown[0]["text/html"]
    assert ":name: fig-one-two" in shown[0]["text/markdown"]
    assert "A <code>cap</code>: more." in shown[0]["text/html"]
    with pytest.raises(UserError, match="'one-two' is used twice"):
        report.figure(PNG, id="one-two", alt="Two things", caption="A.")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"alt": "  "}, "needs alternative text"),
        ({"id": "Fig 1"}, "lower-case"),
        ({"id": "fig_1"}, "joined by hyphens"),
        ({"caption": ""}, "needs a caption"),
    ],
)
def test_a_figure_without_its_texts_is_refused(shown: list[dict], wrong: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        report.figure(PNG, **{"id": "fine", "alt": "A thing seen", "caption": "A thing.", **wrong})
    assert not shown


def test_the_same_figure_gives_the_same_bytes() -> None:
    from matplotlib.figure import Figure

    def draw() -> bytes:
        figure = Figure(figsize=(3, 2))
        figure.add_subplot().plot([1, 3, 2])
        return report.png_bytes(figure)

    assert draw() == draw()
    assert b"Software" not in draw() and b"Creation" not in draw()


def test_a_figure_of_lines_is_saved_as_svg_too_and_one_of_images_is_not(
    shown: list[dict], tmp_path: Path
) -> None:
    from matplotlib.figure import Figure

    report.style()
    for id, draw in (("lines", lambda ax: ax.plot([1, 3, 2])), ("image", lambda ax: ax.imshow([[0, 1]]))):
        figure = Figure(figsize=(3, 2), layout="constrained")
        draw(figure.add_subplot())
        report.figure(figure, id=id, alt="A thing seen", caption="A thing.")
    saved = {path.name for path in (tmp_path / "figures").iterdir()}
    assert saved == {"lines.png", "lines.svg", "image.png"}
    text = (tmp_path / "figures" / "lines.svg").read_text()
    assert text.startswith("<?xml") and "<dc:date>" not in text
    assert "/figures/lines.*" in shown[0]["text/markdown"]  # the book takes the SVG file where there is one


def test_the_same_figure_gives_the_same_svg() -> None:
    from matplotlib.figure import Figure

    def draw() -> bytes:
        report.style()
        figure = Figure(figsize=(3, 2), layout="constrained")
        figure.add_subplot().plot([1, 3, 2], marker="o")
        return report.svg_bytes(figure)

    assert draw() == draw()


def test_direct_labels_stand_apart_in_their_order_inside_the_axes() -> None:
    from matplotlib.figure import Figure

    ax = Figure().add_subplot()
    ax.set(xlim=(0, 1), ylim=(0, 1))
    names = {"low": 0.5, "lower": 0.499, "top": 0.99, "also top": 0.98, "gone": float("nan")}
    report.direct_labels(ax, 1.0, names, dict.fromkeys(names, "k"), gap=0.1)
    heights = {text.get_text(): text.get_position()[1] for text in ax.texts}
    assert sorted(heights, key=heights.get) == ["lower", "low", "also top", "top"]
    ordered = sorted(heights.values())
    assert all(b - a >= 0.1 - 1e-9 for a, b in itertools.pairwise(ordered)) and ordered[-1] <= 1


def test_data_is_saved_and_not_shown(shown: list[dict], tmp_path: Path) -> None:
    import pandas as pd

    report.data(pd.DataFrame({"a": [0.1]}), id="raw-rows")
    assert (tmp_path / "tables" / "raw-rows.csv").read_text() == "a\n0.1\n" and not shown


def test_a_table_shows_rounded_and_saves_exact_numbers(shown: list[dict], tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame(
        {
            "Attack": ["MI-Face", "a|b"],
            "SSIM": [0.123456789, float("nan")],
            "PSNR": [float("inf"), 12.0],
            "n": [400, 20],
            "ok": [True, False],
            "gap": ["0.12 [0.10, 0.15]", "a longer text that may be broken 1"],
        }
    )
    report.table(frame, id="one", caption="A table.", formats={"SSIM": ".2f"})
    rows = [line.split(" | ") for line in (tmp_path / "tables" / "one.md").read_text().splitlines()]
    assert rows[2][1:] == ["0.12", "inf", "400", "yes", "0.12 [0.10, 0.15] |"]
    assert rows[3][:5] == ["| a\\|b", "NaN", "12", "20", "no"]
    assert rows[1][1] == "---:" and rows[1][0] == "| :---"
    assert "0.123456789" in (tmp_path / "tables" / "one.csv").read_text()
    assert "0.12\N{NO-BREAK SPACE}[0.10,\N{NO-BREAK SPACE}0.15]" in shown[0]["text/markdown"]
    assert "a longer text that may be broken 1" in shown[0]["text/markdown"]
    with pytest.raises(UserError, match="column 'MSE', which the table does not have"):
        report.table(frame, id="two", caption="A table.", formats={"MSE": ".2f"})
    with pytest.raises(UserError, match="empty"):
        report.table(frame[:0], id="three", caption="A table.")
    with pytest.raises(UserError, match="as many cells"):
        report.table("| a | b |\n|---|---|\n| 1 |", id="four", caption="A table.")


def test_values_and_states_are_saved(shown: list[dict], tmp_path: Path) -> None:
    report.value("gap_ssim", 0.5)
    report.state("Table 3", "needs key", "no key of the judge")
    saved = json.loads((tmp_path / "values.json").read_text())
    assert saved["values"] == {"gap_ssim": 0.5}
    assert saved["states"]["Table 3"]["state"] == "needs key"
    with pytest.raises(UserError, match="unknown state"):
        report.state("Table 3", "done")
    with pytest.raises(UserError, match="must be a number"):
        report.value("gap", "large")


# --- the paper's items ---------------------------------------------------------------------------------


def test_the_list_links_chapters_and_printed_pages_that_there_are() -> None:
    chapter = Chapter("benchmark", "12_benchmark", 12, "The benchmark")
    digits = {"dataset": "digits", "architecture": "convnet", "target_sizes": [50], "profile": "smoke"}
    runs = {"benchmark": {"parameters": digits, "states": {}}}
    text = paper_items.listing([chapter], runs, ["book/intro", "book/published/table_02"])
    lines = {line.split(" | ")[1]: line for line in text.splitlines() if " | " in line}
    assert lines["Attacks against target size, VGG16 on CelebA"].startswith(
        "| {doc}`Table\N{NO-BREAK SPACE}2 </book/published/table_02>` |"
    )
    assert "{doc}`The benchmark <../notebooks/12_benchmark>`" in lines["Reconstructions of ten attacks"]
    assert lines["Reconstructions of ten attacks"].startswith("| Figure\N{NO-BREAK SPACE}1 |")
    assert "| planned |" in lines["Judge on Swin"] and "| not yet |" in lines["Judge on Swin"]
    assert "24 of 24 tables and 14 of 14 figures are listed. In this build: 1 regenerated, " in text
    assert "11 shape only (digits)" in text
    assert (
        "Tables 2, 15, 17, 18, 19, 20, 21, 22, 23 and 24, Figure 1 show one and the same run of "
        "{doc}`The benchmark <../notebooks/12_benchmark>`."
    ) in text


# --- the project's own files ---------------------------------------------------------------------------


def test_the_table_of_contents_and_the_sections_agree(root: Path) -> None:
    book = Book.of("smoke")
    listed = stage.pages(root)
    chapters = [name for name in listed if name.startswith("notebooks/")]
    assert chapters == [
        f"notebooks/{chapter.stem}" for chapter in sorted(book.chapters, key=lambda c: c.number)
    ]
    for name in listed:
        printed = re.fullmatch(
            r"book/published/(table|figure)_\d\d", name
        )  # written while the book is staged
        assert name in chapters or printed or (root / f"{name}.md").exists(), name


def test_the_configuration_never_executes_and_ships_mathjax(root: Path) -> None:
    config = yaml.safe_load((root / "_config.yml").read_text())
    assert config["execute"]["execute_notebooks"] == "off"
    assert config["only_build_toc_files"] is True and ".venv" in config["exclude_patterns"]
    assert config["sphinx"]["recursive_update"] is True
    script = root / "assets" / config["sphinx"]["config"]["mathjax_path"]
    assert script.stat().st_size > 1_000_000
    assert "Apache License" in (root / "assets" / "mathjax" / "LICENSE").read_text()
    assert not list((root / "assets").rglob("_static"))  # Jupyter Book would load such a folder on every page


def test_every_attack_cites_its_paper(root: Path) -> None:
    keys = set(re.findall(r"^@\w+\{(\w+),", (root / "book" / "references.bib").read_text(), re.MULTILINE))
    cited = [
        key
        for path in (root / "drlib" / "attacks").glob("*.py")
        for key in re.findall(r'^    paper(?:: ClassVar\[str\])? = "(\w+)"', path.read_text(), re.MULTILINE)
    ]
    assert len(cited) >= 3 and set(cited) <= keys
