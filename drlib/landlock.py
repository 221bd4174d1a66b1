"""Forbid the calling thread to open files below some folders, by the Linux kernel (Landlock).

The kernel enforces it for compiled code too, for files opened relative to an open folder, and for reading
another process's memory. It cannot be undone: it ends with the thread. ``deny`` returns False where the
system has no Landlock (before Linux 5.13, other systems).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterable
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # system call numbers, the same on all machines
_VERSION, _PATH_BENEATH, _SET_NO_NEW_PRIVILEGES = 1, 1, 38

_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""How many file system rights each version of Landlock knows; later versions know as many as 5."""

_READ_FOLDER = 1 << 3
_OF_A_FILE = (1 << 0) | (1 << 1) | (1 << 2) | (1 << 14) | (1 << 15)
"""Rights that make sense for a file: execute, write, read, truncate, device control."""


class _Ruleset(ctypes.Structure):
    _fields_ = [("handled", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def version() -> int:
    """The kernel's Landlock version, 0 where there is none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, _system_call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION)))


def deny(folders: Iterable[str | Path]) -> bool:
    """From now on this thread (and threads it starts) can open no file below ``folders``.

    Names below them can still be listed. Returns whether the kernel enforces it.
    """
    known = version()
    if not known:
        return False
    handled = (1 << _RIGHTS.get(known, 16)) - 1
    rules = _system_call(
        _CREATE_RULESET, ctypes.byref(_Ruleset(handled)), ctypes.c_size_t(8), ctypes.c_uint32(0)
    )
    if rules < 0:
        return False
    try:
        denied = {os.path.realpath(folder) for folder in folders}
        _allow(rules, "/", _READ_FOLDER & handled)
        _allow_around(rules, "/", denied, handled)
        libc().prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        return _system_call(_RESTRICT_SELF, ctypes.c_int(rules), ctypes.c_uint32(0)) == 0
    finally:
        os.close(rules)


def _allow_around(rules: int, path: str, denied: set[str], handled: int) -> None:
    """Allow everything below ``path`` but the denied folders: Landlock only knows what is allowed."""
    if path in denied:
        return
    if not any(folder.startswith(path.rstrip("/") + "/") for folder in denied):
        _allow(rules, path, handled if os.path.isdir(path) else handled & _OF_A_FILE)
        return
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if not entry.is_symlink():  # rules hold for what a link points to
                _allow_around(rules, entry.path, denied, handled)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what cannot be opened need not be allowed
    try:
        rule = _Beneath(rights, descriptor)
        _system_call(
            _ADD_RULE,
            ctypes.c_int(rules),
            ctypes.c_int(_PATH_BENEATH),
            ctypes.byref(rule),
            ctypes.c_uint32(0),
        )
    finally:
        os.close(descriptor)


def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _system_call(number: int, *arguments: object) -> int:
    return libc().syscall(ctypes.c_long(number), *arguments)
