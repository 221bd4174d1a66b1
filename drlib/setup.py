"""What `make` does, where there is no make: `python -m drlib.setup TARGET`, run in the checkout.

The Makefile calls this file too, so every step is written once. It uses the standard library only, and a
Python older than 3.11 must be able to read it, because here is where it is refused.

An environment counts as finished when its stamp (written last) names the hash of the lock, the hash of
`pyproject.toml` and the folder; file times play no part. One that was interrupted is emptied and made again
(the downloads are in pip's cache), because a half-unpacked package looks installed.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 (an older Python reads this line)
    sys.exit(
        f"error: Python 3.11 or newer is needed, this is {sys.version_info[0]}.{sys.version_info[1]}; "
        "name one: make PYTHON=python3.12 TARGET"
    )

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAMP = "drlib-stamp.json"
UNFINISHED = "drlib-unfinished"
SCRIPTS = "Scripts" if os.name == "nt" else "bin"


class SetupError(Exception):
    """Something to tell in one line; `code` is the exit status."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Environment:
    """A virtual environment in the checkout and the hashed lock it is installed from."""

    name: str
    lock: str
    gigabytes: int

    @property
    def path(self) -> Path:
        return ROOT / self.name

    @property
    def python(self) -> Path:
        return self.path / SCRIPTS / ("python.exe" if os.name == "nt" else "python")

    def command(self, name: str) -> str:
        """The path of a command that the environment installed."""
        return str(self.path / SCRIPTS / name)

    def wanted(self) -> dict[str, str]:
        """What the stamp must say for the environment to be used as it is."""
        digests = {
            name: hashlib.sha256((ROOT / name).read_bytes()).hexdigest()
            for name in (self.lock, "pyproject.toml")
        }
        return {**digests, "folder": str(ROOT)}

    def stamp(self) -> dict[str, str]:
        """What the stamp says; empty without a (readable) stamp."""
        try:
            return json.loads((self.path / STAMP).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    def finished(self) -> bool:
        return (
            self.python.exists() and not (self.path / UNFINISHED).exists() and self.stamp() == self.wanted()
        )


FULL = Environment(".venv", "requirements/full.lock", gigabytes=7)
DOCS = Environment(".venv-docs", "requirements/docs.lock", gigabytes=1)


def say(message: str) -> None:
    print(message, flush=True)


def call(arguments: Sequence[str], **environment: str) -> int:
    """Run a command in the checkout; returns its exit status."""
    return subprocess.run(arguments, cwd=ROOT, env={**os.environ, **environment}, check=False).returncode


@contextlib.contextmanager
def alone(environment: Environment) -> Iterator[None]:
    """Two `make` at once must not fill one environment together: the second waits for the first."""
    try:
        import fcntl
    except ImportError:  # Windows: no such lock, so do not start two at once there
        yield
        return
    with open(ROOT / (environment.name + ".lock"), "w", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say(f"waiting: another command is installing {environment.name}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def empty(folder: Path) -> None:
    """Delete what is in a folder, its mark of being unfinished last, so that a kill in between is noticed."""
    folder.mkdir(exist_ok=True)
    (folder / UNFINISHED).touch()
    for child in folder.iterdir():
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        elif child.name != UNFINISHED:
            child.unlink()


def create(environment: Environment) -> None:
    """An empty virtual environment, marked unfinished."""
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < environment.gigabytes:
        say(
            f"warning: {environment.name} takes up to {environment.gigabytes} GB; {free:.1f} GB are free here"
        )
    empty(environment.path)
    if call([sys.executable, "-m", "venv", str(environment.path)]) != 0:
        raise SetupError("no virtual environment could be made (Debian, Ubuntu: apt install python3-venv)", 1)


def install(environment: Environment, *, locked: bool) -> None:
    """The lock (unless it is `locked` in already), each file checked by its hash, then the project itself."""
    pip = [str(environment.python), "-m", "pip", "--disable-pip-version-check", "install"]
    if not sys.stdout.isatty():
        pip.append("--quiet")
    lock_step = [*pip, "--require-hashes", "--requirement", environment.lock]
    project_step = [*pip, "--no-deps", "--no-build-isolation", "--editable", "."]  # asks no index
    for step in [project_step] if locked else [lock_step, project_step]:
        if call(step, PIP_USER="0") != 0:
            raise SetupError(
                f"installing into {environment.name} failed (see above); the same command starts it anew", 1
            )


def ensure(environment: Environment) -> None:
    """Make the environment what its lock says, unless it is already."""
    with alone(environment):
        if environment.finished():
            return
        mark = environment.path / UNFINISHED
        before, wanted = environment.stamp(), environment.wanted()
        locked = False
        if mark.exists():
            say(f"{environment.name} was left unfinished: making it again")
            create(environment)
        elif not environment.python.exists() or before.get("folder", str(ROOT)) != str(ROOT):
            say(f"making {environment.name} from {environment.lock} (once; minutes, most of them downloads)")
            create(environment)
        else:
            say(f"bringing {environment.name} up to {environment.lock} and pyproject.toml")
            locked = before.get(environment.lock) == wanted[environment.lock]
            mark.touch()
        install(environment, locked=locked)
        new = environment.path / (STAMP + ".new")
        new.write_text(json.dumps(wanted, indent=1), encoding="utf-8")
        new.replace(environment.path / STAMP)
        mark.unlink()


def run(environment: Environment, command: str, *arguments: str) -> int:
    """Show and run a command of the environment."""
    ensure(environment)
    say(" ".join(["+", f"{environment.name}/{SCRIPTS}/{command}", *arguments]))
    return call([environment.command(command), *arguments])


def book(rest: list[str]) -> int:
    """run the notebooks and build the book (PROFILE=smoke, laptop or paper; laptop if not named)"""
    return run(FULL, "drlib", "book", *rest)


def read(rest: list[str]) -> int:
    """build the book from the committed reference run, without PyTorch"""
    return run(DOCS, "drlib", "book", "--reference", *rest)


def test(rest: list[str]) -> int:
    """the test suite (minutes)"""
    return run(FULL, "python", "-m", "pytest", "-q", "-n", "2", *rest)


def test_slow(rest: list[str]) -> int:
    """the slow tests (up to an hour; DRLIB_SHARD=1/4 runs a quarter of them)"""
    return run(FULL, "python", "-m", "pytest", "-q", "-n", "2", "-m", "slow", *rest)


def mutate(rest: list[str]) -> int:
    """plant faults, each of which must turn a test red"""
    return run(FULL, "python", "tests/mutate.py", *rest)


def bench(rest: list[str]) -> int:
    """time drlib beside what people would use instead (all of benchmarks/bench_*.py, or those named)"""
    scripts = {
        path.stem.removeprefix("bench_"): path for path in sorted((ROOT / "benchmarks").glob("bench_*.py"))
    }
    unknown = [name for name in rest if name not in scripts]
    if unknown:
        raise SetupError(f"unknown benchmark '{unknown[0]}' (allowed: {', '.join(scripts)})")
    return max(run(FULL, "python", f"benchmarks/{scripts[name].name}") for name in rest or scripts)


def lint(rest: list[str]) -> int:
    """style, formatting and the layers of the package"""
    steps = (
        ("ruff", "check", "."),
        ("ruff", "format", "--check", "."),
        ("lint-imports",),
    )
    return max(run(FULL, *step) for step in steps)


def env(rest: list[str]) -> int:
    """only make .venv, or bring it up to the lock"""
    ensure(FULL)
    say(f"{FULL.name} is ready: {FULL.command('drlib')} --help")
    return 0


def lock(rest: list[str]) -> int:
    """write both locks anew from pyproject.toml (keeps versions that still fit; ARGS=--upgrade moves them)"""
    # "fewest": one version of each package for every Python, so that readers compare like with like
    options = ["--universal", "--python-version", "3.11", "--fork-strategy", "fewest", "--generate-hashes"]
    options += ["--quiet", "--custom-compile-command", "make lock", *rest]
    with tempfile.TemporaryDirectory() as folder:
        uv = shutil.which("uv")
        if uv is None:
            say("installing uv in a temporary folder")
            python = Path(folder) / SCRIPTS / "python"
            call([sys.executable, "-m", "venv", folder])
            if call([str(python), "-m", "pip", "install", "--quiet", "uv"]) != 0:
                raise SetupError("uv, which resolves the locks, could not be installed", 1)
            uv = str(python.with_name("uv"))
        compile_ = [uv, "pip", "compile", *options]
        full = ["pyproject.toml", "--extra", "test", "--group", "build", "--output-file", FULL.lock]
        docs = ["--group", "docs", "--group", "build", "--constraints", FULL.lock, "--output-file", DOCS.lock]
        return call([*compile_, *full]) or call([*compile_, *docs])


def clean(rest: list[str]) -> int:
    """delete what was built and cached (the store of computed results and .venv stay)"""
    built = [path for path in (ROOT / "_build").glob("*") if path.name != "store"]
    caches = [
        ROOT / name
        for name in (".pytest_cache", ".ruff_cache", ".hypothesis", ".import_linter_cache", "build")
    ]
    for path in [*built, *caches]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return 0


def clean_store(rest: list[str]) -> int:
    """delete the store of computed results in _build/store"""
    if os.environ.get("DRLIB_STORE"):
        raise SetupError("DRLIB_STORE names the store; delete that folder yourself, or unset the variable")
    shutil.rmtree(ROOT / "_build" / "store", ignore_errors=True)
    return 0


TARGETS = {
    function.__name__.replace("_", "-"): function
    for function in (book, test, read, test_slow, mutate, bench, lint, env, lock, clean, clean_store)
}


def main(arguments: Sequence[str] | None = None) -> int:
    width = max(map(len, TARGETS))
    listing = "\n".join(f"  {name:{width}}  {function.__doc__}" for name, function in TARGETS.items())
    parser = argparse.ArgumentParser(
        prog="python -m drlib.setup",
        description="What make does, where there is no make.",
        epilog=f"targets:\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", choices=TARGETS, metavar="TARGET")
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="arguments for its command")
    options = parser.parse_args(arguments)
    try:
        return TARGETS[options.target](options.rest)
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
