"""Execute the notebooks of a book that are not up to date, two at a time, each in a process of its own.

Whether a notebook is up to date is decided by content (its source, parameters, the package's code, the
stored results it reads, library versions), never by a file's time. A run happens in a folder of its own
and replaces the earlier result only when it has succeeded; a failed notebook is kept under ``failed/``.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from drlib.book import worker
from drlib.book.layout import CHECKOUT, Book, Chapter, content_hash, read_json, tree_hash, write_json
from drlib.book.notebooks import convert, source_hash
from drlib.errors import UserError, nearest

LIBRARIES = ("torch", "torchvision", "numpy", "scipy", "pandas", "scikit-image", "scikit-learn", "matplotlib")
ABOVE_NOTEBOOKS = ("book", "manifest", "cli.py", "setup.py", "__main__.py")
"""Parts of the package that no notebook imports: changing them runs nothing again."""

Report = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """One notebook to run, with all that decides whether an earlier run still holds."""

    chapter: Chapter
    parameters: dict[str, Any]
    parts: dict[str, Any]

    @property
    def key(self) -> str:
        return content_hash(self.parts)


def package_hash(package: Path = CHECKOUT / "drlib") -> str:
    """Hash of the package's code and data, as far as a notebook can reach it."""
    return tree_hash(*sorted(path for path in package.iterdir() if path.name not in ABOVE_NOTEBOOKS))


def versions() -> dict[str, str]:
    """Versions of the libraries that make the numbers and pictures, without importing them."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def parameter_names(notebook: Any) -> list[str]:
    """The names assigned in the cell tagged ``parameters``."""
    import ast

    for cell in notebook.cells:
        if "parameters" in cell["metadata"].get("tags", []):
            body = ast.parse(cell["source"]).body
            targets = [t for node in body if isinstance(node, ast.Assign) for t in node.targets]
            targets += [node.target for node in body if isinstance(node, ast.AnnAssign)]
            return [target.id for target in targets if isinstance(target, ast.Name)]
    return []


def plan(book: Book, chapters: Sequence[Chapter]) -> list[Job]:
    """The job of each chapter. Raises ``UserError`` for a parameter that a notebook does not have."""
    package, libraries, jobs = package_hash(), versions(), []
    for chapter in chapters:
        notebook = convert(book.source(chapter))
        names = parameter_names(notebook)
        for name in chapter.parameters:
            if name not in names:
                raise UserError(
                    f"notebook {chapter.stem} has no parameter '{name}'{nearest(name, names)} "
                    f"(its parameters cell has: {', '.join(names) or 'none'})"
                )
        parts = {
            "source": source_hash(notebook),
            "parameters": chapter.parameters,
            "package": package,
            "versions": libraries,
        }
        jobs.append(Job(chapter, chapter.parameters, parts))
    return jobs


def is_fresh(book: Book, job: Job) -> bool:
    """True if the executed notebook and its files are there, unharmed, and made from the same content."""
    stamp = read_json(book.stamp(job.chapter))
    return (
        stamp.get("key") == job.key
        and stamp.get("executed") == tree_hash(book.executed(job.chapter))
        and stamp.get("outputs") == tree_hash(book.outputs(job.chapter))
        and not changed_artifacts(stamp.get("artifacts", {}))
    )


def artifacts(chapter: Chapter) -> dict[str, str]:
    """The stored results that a chapter's tables are made of: path in the store to checksum."""
    cells, optional = chapter.cells(), chapter.reads()
    if not cells and not optional:
        return {}
    from drlib import study
    from drlib.store import META, default_root

    plans = [study.plan(cell) for cell in cells]
    for cell in optional:  # looked up where they fit the data set, never computed
        with contextlib.suppress(UserError):
            plans.append(study.plan(cell))
    found = {}
    for planned in plans:
        for task in planned.tasks.values():
            path = f"{task.kind}/{task.key}/{META}"
            found[path] = read_json(default_root() / path).get("checksum", "")
    return found


def changed_artifacts(recorded: dict[str, str]) -> list[str]:
    """Recorded results that the store now holds with other content, such as made on another device."""
    if not recorded:
        return []
    from drlib.store import default_root

    now = {path: read_json(default_root() / path).get("checksum") for path in recorded}
    return [path for path, checksum in recorded.items() if now[path] is not None and now[path] != checksum]


def execute(
    book: Book, only: Sequence[str] = (), *, workers: int = 2, report: Report | None = None
) -> list[Chapter]:
    """Run the notebooks that are not up to date and return their chapters.

    Args:
        only: slugs of the sections to look at; all if empty.
        workers: notebooks at a time.
        report: called with one line whenever something starts or ends; default: a progress line.

    Raises:
        UserError: a notebook failed (its name, cell and error), or another build of this profile is running.
    """
    with lock(book):
        jobs = plan(book, book.select(list(only)))
        stale = [job for job in jobs if not is_fresh(book, job)]
        if stale:
            with _reporter(book, stale, workers, report) as say:
                _run_all(book, stale, workers, say)
        return [job.chapter for job in stale]


@contextlib.contextmanager
def lock(book: Book) -> Iterator[None]:
    """Hold the profile's build folder; the lock vanishes with the process, however it ends."""
    book.build.mkdir(parents=True, exist_ok=True)
    with (book.build / ".lock").open("w") as stream:
        try:
            import fcntl

            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # no such lock on Windows
            pass
        except OSError:
            raise UserError(
                f"another build of '{book.build.name}' is running; wait for it or stop it"
            ) from None
        yield


def start(book: Book, job: Job) -> subprocess.Popen[bytes]:
    """Start a notebook in a fresh folder."""
    import nbformat

    folder = book.running(job.chapter)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    notebook = convert(book.source(job.chapter))
    notebook.metadata["drlib"] = {
        "profile": book.profile,
        "section": job.chapter.slug,
        "parameters": job.parameters,
        "source": job.parts["source"],
        "package": job.parts["package"],
        "versions": job.parts["versions"],
        "key": job.key,
    }
    nbformat.write(notebook, folder / "in.ipynb")
    cwd = str(book.root / "notebooks")
    write_json(folder / "job.json", {"stem": job.chapter.stem, "parameters": job.parameters, "cwd": cwd})
    with (folder / "log.txt").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "drlib.book.worker", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=worker.environment(folder),
        )


def finish(book: Book, job: Job) -> float:
    """Put a finished run in its place and return its seconds. Raises ``UserError`` if it failed."""
    folder, chapter = book.running(job.chapter), job.chapter
    result = read_json(folder / "result.json")
    if not result.get("ok"):
        failed = book.failed(chapter)
        failed.parent.mkdir(parents=True, exist_ok=True)
        for name, target in (("out.ipynb", failed), ("log.txt", failed.with_suffix(".log"))):
            if (folder / name).exists():
                os.replace(folder / name, target)
        raise UserError(failure_message(chapter, result, failed))
    book.stamp(chapter).unlink(missing_ok=True)  # from here until the new stamp, the result counts as absent
    shutil.rmtree(book.outputs(chapter), ignore_errors=True)
    for path in (book.outputs(chapter), book.executed(chapter)):
        path.parent.mkdir(parents=True, exist_ok=True)
    os.replace(folder / "outputs", book.outputs(chapter))
    os.replace(folder / "out.ipynb", book.executed(chapter))
    stamp = {"key": job.key, "parts": job.parts, "seconds": result["seconds"]}
    stamp["artifacts"] = artifacts(chapter)
    stamp |= {"executed": tree_hash(book.executed(chapter)), "outputs": tree_hash(book.outputs(chapter))}
    write_json(book.stamp(chapter), stamp)
    book.failed(chapter).unlink(missing_ok=True)
    book.failed(chapter).with_suffix(".log").unlink(missing_ok=True)
    shutil.rmtree(folder)
    return result["seconds"]


def failure_message(chapter: Chapter, result: dict[str, Any], failed: Path) -> str:
    """One line: which notebook, which cell, which error, where the failed copy is."""
    if "error" not in result:
        log = failed.with_suffix(".log")
        return f"notebook {chapter.stem} did not finish (its process ended early; see {_short(log)})"
    line = next((line for line in result["source"].splitlines() if line.strip()), "")
    return (
        f"notebook {chapter.stem} failed in code cell {result['cell']} (`{line.strip()[:60]}`): "
        f"{result['error']} [failed copy: {_short(failed)}]"
    )


def _short(path: Path) -> str:
    with contextlib.suppress(ValueError):
        return path.relative_to(Path.cwd()).as_posix()
    return str(path)


def _run_all(book: Book, jobs: list[Job], workers: int, say: _Say) -> None:
    waiting, running, errors = list(jobs), {}, []
    try:
        while waiting or running:
            while waiting and len(running) < workers and not errors:
                job = waiting.pop(0)
                running[start(book, job)] = job
                say.started(job)
            if errors and not running:
                break
            time.sleep(0.1)
            say.tick()
            for process in [process for process in running if process.poll() is not None]:
                job = running.pop(process)
                try:
                    say.ended(job, finish(book, job))
                except UserError as error:
                    errors.append(error)
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()
    if errors:
        raise errors[0] if len(errors) == 1 else UserError("; ".join(str(error) for error in errors))


class _Say:
    """One progress line: notebooks done, and the time left by what each took before (unknown at first)."""

    def __init__(self, jobs: list[Job], workers: int, known: dict[str, float], report: Report) -> None:
        self.total, self.done, self.workers, self.report = len(jobs), 0, workers, report
        self.known, self.waiting, self.begun = known, [job.chapter.stem for job in jobs], {}

    def started(self, job: Job) -> None:
        self.begun[job.chapter.stem] = time.perf_counter()
        self.report(f"running {job.chapter.stem}")

    def ended(self, job: Job, seconds: float) -> None:
        self.done += 1
        self.known[job.chapter.stem] = seconds
        self.waiting.remove(job.chapter.stem)
        del self.begun[job.chapter.stem]
        self.report(f"notebook {job.chapter.stem} done in {seconds:.0f} s ({self.done} of {self.total})")

    def tick(self) -> None:
        pass

    def seconds_left(self) -> float | None:
        """Work left over the workers, at least the longest one; None while no notebook's time is known."""
        if not self.known:
            return None
        typical = sum(self.known.values()) / len(self.known)
        now = time.perf_counter()
        left = [
            max(self.known.get(stem, typical) - (now - self.begun.get(stem, now)), 1.0)
            for stem in self.waiting
        ]
        return max([sum(left) / self.workers, *left])


class _Bar(_Say):
    """The same on a terminal, as a Rich progress bar."""

    def __init__(self, jobs: list[Job], workers: int, known: dict[str, float], progress: Any) -> None:
        super().__init__(jobs, workers, known, lambda line: None)
        self.progress, self.task = (
            progress,
            progress.add_task("notebooks", total=len(jobs), names="", left=""),
        )

    def tick(self) -> None:
        left = self.seconds_left()
        text = f"about {left:.0f} s left" if left is not None else "time left unknown (first run)"
        self.progress.update(self.task, completed=self.done, names=", ".join(self.begun), left=text)


@contextlib.contextmanager
def _reporter(book: Book, jobs: list[Job], workers: int, report: Report | None) -> Iterator[_Say]:
    stamps = {job.chapter.stem: read_json(book.stamp(job.chapter)).get("seconds") for job in jobs}
    known = {stem: seconds for stem, seconds in stamps.items() if seconds}
    if report is not None or not sys.stdout.isatty():
        yield _Say(jobs, workers, known, report or (lambda line: print(line, flush=True)))
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, TextColumn("{task.fields[left]}"), TextColumn("{task.fields[names]}")
    ) as progress:
        bar = _Bar(jobs, workers, known, progress)
        yield bar
        bar.tick()
