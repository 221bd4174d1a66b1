"""The wall around a running attack: no store, no data set, no other process.

Two layers. An audit hook refuses, inside the interpreter and with a clear message, to open the store or a
data set, to import one, to start a process or to rename or link a file. Where the kernel has Landlock
(module ``landlock``), the attack's whole process (module ``apart``) also cannot open those files by any other
way, such as compiled code or a path relative to an open folder, and cannot read another process's memory.

What remains possible: inspecting this interpreter's own memory (which never holds D_tar or the holdout, and
for a black box no parameters), and, without Landlock, opening files through compiled code.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from drlib import landlock
from drlib.types import AccessError

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
    """The time in which foreign code runs: with the guard installed, the store is closed to the process."""
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


def seal(folders: Iterable[str | Path]) -> str:
    """Go behind the wall for good: what enforces it. For a process of one thread, before an attack's code.

    ``folders`` hold what may not be opened: the store, and the data set's files. A kernel with Landlock also
    refuses it to threads that start later.
    """
    global _sealed
    _sealed = True
    closed = [*folders, *embedded_data()]
    return "audit hook and Landlock" if landlock.deny(closed) else "audit hook"


def embedded_data() -> list[Path]:
    """The folders of the data sets inside scikit-learn and scikit-image, found without importing them."""
    found = []
    for package, folder in (("sklearn", "datasets/data"), ("skimage", "data")):
        spec = find_spec(package)
        if spec is not None and spec.origin:
            found.append(Path(spec.origin).parent / folder)
    return [folder for folder in found if folder.is_dir()]
