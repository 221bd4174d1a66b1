"""The wall around a running attack: no store, no data set, no other process.

Two layers. An audit hook refuses, inside the interpreter and with a clear message, to open the store or a
data set, to import one, to start a process or to rename or link a file. Where the kernel has Landlock
(module ``landlock``), the attack also runs in a thread that cannot open those files by any other way, such
as compiled code or a path relative to an open folder, and cannot read another process's memory.

What remains possible: inspecting this interpreter's own memory (which never holds D_tar or the holdout, and
for a black box no parameters), and, without Landlock, opening files through compiled code.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from drlib import landlock
from drlib.errors import UserError
from drlib.types import AccessError

T = TypeVar("T")

FORBIDDEN_MODULES = ("drlib.data", "drlib.tasks", "sklearn.datasets", "skimage.data")
"""Modules that load a data set."""

FORBIDDEN_FOLDERS = ("/sklearn/datasets/", "/skimage/data/")
"""Folders inside installed packages that hold the embedded data sets."""

FORBIDDEN_EVENTS = (
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.link",
    "os.posix_spawn",
    "os.rename",
    "os.symlink",
    "os.system",
    "pty.spawn",
    "subprocess.Popen",
)
"""What an attack may not do while it runs: all ways around the check of a file's name."""

_sealed = False


@contextlib.contextmanager
def sealed() -> Iterator[None]:
    """The time in which an attack runs: with the guard installed, the store is closed to the process."""
    global _sealed
    _sealed = True
    try:
        yield
    finally:
        _sealed = False


def install(store_root: str | Path) -> None:
    """Refuse, for the rest of this process, to import a data set; and what ``sealed`` blocks refuse.

    Raises ``AccessError`` inside the offending call, and at once if a data set module is loaded already.
    An audit hook cannot be removed again.
    """
    loaded = [name for name in FORBIDDEN_MODULES if name in sys.modules]
    if loaded:
        raise AccessError(f"an attack's process must not have loaded {', '.join(loaded)}")
    root = os.path.realpath(store_root) + os.sep

    def guard(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if _sealed and path.startswith(root):
                kind = path.removeprefix(root).split(os.sep)[0]
                raise AccessError(f"an attack may not open the store (here a '{kind}')")
            if any(folder in path for folder in FORBIDDEN_FOLDERS):
                raise AccessError(f"an attack may not open the data set file {path}")
        elif event == "import" and arguments[0].startswith(FORBIDDEN_MODULES):
            raise AccessError(f"an attack may not import {arguments[0]}")
        elif _sealed and event in FORBIDDEN_EVENTS:
            raise AccessError(f"an attack may not call {event}")

    sys.addaudithook(guard)


def run_sealed(function: Callable[[], T], folders: Iterable[str | Path]) -> tuple[T, str]:
    """Call ``function`` behind the wall: its result, and what enforced the wall.

    ``folders`` hold what it may not open: the store, and the data set's files. Exceptions reach the caller.
    """
    outcome: dict[str, Any] = {}
    closed = [*folders, *embedded_data()]

    def work() -> None:
        try:
            outcome["by"] = "audit hook and Landlock" if landlock.deny(closed) else "audit hook"
            with sealed():
                outcome["result"] = function()
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=work, name="attack")
    thread.start()
    thread.join()
    if isinstance(outcome.get("error"), PermissionError) and not isinstance(outcome["error"], AccessError):
        raise UserError(f"the attack was refused a file: {outcome['error']}") from outcome["error"]
    if "error" in outcome:
        raise outcome["error"]
    return outcome["result"], outcome["by"]


def embedded_data() -> list[Path]:
    """The folders of the data sets inside scikit-learn and scikit-image, found without importing them."""
    found = []
    for package, folder in (("sklearn", "datasets/data"), ("skimage", "data")):
        spec = find_spec(package)
        if spec is not None and spec.origin:
            found.append(Path(spec.origin).parent / folder)
    return [folder for folder in found if folder.is_dir()]
