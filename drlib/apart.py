"""Running an attack in a forked copy of its process, which gives back plain tensors and numbers, or nothing.

Whatever an attack does to its interpreter (patched functions, threads, hooks, state on classes) ends with the
copy. Before the attack's own code runs, the copy has read what the attack is granted, closed what it
inherited, and gone behind the wall as a whole (module ``guard``). What comes out of it crosses a pipe as JSON
and safetensors, and the caller believes nothing in it that it can count or check itself. Where ``fork`` is
missing or unsafe (all systems but Linux) the attack runs in the same process, behind the audit hook only.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn, TypeVar

import torch
from safetensors.torch import load, save
from torch import Tensor

from drlib import guard, landlock, pool
from drlib.errors import UserError
from drlib.types import AccessError, Progress

T = TypeVar("T")
Made = tuple[dict[str, Tensor], dict[str, Any]]

_END_WITH_PARENT = 1  # prctl(PR_SET_PDEATHSIG)
_ERRORS = {"UserError": UserError, "AccessError": AccessError}


class AttackFailed(Exception):
    """The attack raised; the message starts with the kind of error, ``trace`` is its traceback."""

    trace = ""


@dataclass(frozen=True)
class Result:
    """tensors, data: what the attack returned, plain but unchecked. told: what the setup said before the
    attack's code ran. enforced_by: what the wall is made of. peak_memory_mb: of the copy, 0 without one."""

    tensors: dict[str, Tensor]
    data: dict[str, Any]
    told: dict[str, Any]
    enforced_by: str
    peak_memory_mb: float


def run(
    setup: Callable[[], tuple[T, dict[str, Any]]],
    attack: Callable[[T, Progress], Made],
    *,
    closed: Iterable[str],
    progress: Progress,
    keep: Iterable[int] = (),
) -> Result:
    """``attack(granted, progress)`` behind the wall, ``granted, told = setup()`` before it.

    ``setup`` is trusted and may read the store; ``attack`` is not. ``closed``: files and folders that it may
    not open. ``keep``: file descriptors that it needs (the pipes to a black box). Raises what the attack
    raised, as ``UserError`` or ``AccessError`` if it was one, else as ``AttackFailed``.
    """
    if not sys.platform.startswith("linux"):
        return _in_this_process(setup, attack, progress)
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the other thread here only waits for the parent
        copy = os.fork()
    if copy == 0:
        _live(setup, attack, list(closed), {writing, *keep}, writing)
    os.close(writing)
    ended = None
    try:
        with os.fdopen(reading, "rb") as stream:
            told, enforced, tensors, data = _listen(stream, progress)
        _, _, ended = os.wait4(copy, 0)
    finally:
        if ended is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(copy, signal.SIGKILL)
            os.waitpid(copy, 0)
    return Result(tensors, data, told, enforced, ended.ru_maxrss / 1024)


def _in_this_process(
    setup: Callable[[], tuple[T, dict[str, Any]]], attack: Callable[[T, Progress], Made], progress: Progress
) -> Result:
    granted, told = setup()
    with guard.sealed():
        tensors, data = plain(*attack(granted, progress))
    return Result(tensors, data, told, "audit hook", 0.0)


def plain(tensors: Any, data: Any) -> Made:
    """The same as plain tensors and JSON values: nothing that could still run code when it is looked at."""
    fresh = {
        str(name): torch.Tensor.detach(value).cpu().as_subclass(Tensor).clone()
        for name, value in dict(tensors).items()
    }
    return fresh, json.loads(json.dumps(dict(data)))


# --- in the copy ---------------------------------------------------------------------------------------


def _live(
    setup: Callable[[], tuple[Any, dict[str, Any]]],
    attack: Callable[[Any, Progress], Made],
    closed: list[str],
    kept: set[int],
    writing: int,
) -> NoReturn:
    stream = os.fdopen(writing, "wb")
    progress = pool.throttled(functools.partial(_send, stream))
    try:
        landlock.libc().prctl(_END_WITH_PARENT, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        torch.set_num_threads(1)  # the threads of a pool do not survive a fork
        granted, told = setup()
        _close_all_but(kept)
        enforced = guard.seal(closed)
        _send(stream, {"told": told, "enforced_by": enforced})
        tensors, data = plain(*attack(granted, progress))
        payload = save({name: value.contiguous() for name, value in tensors.items()})
        _send(stream, {"data": data, "size": len(payload)})
        stream.write(payload)
        stream.flush()
    except BaseException as error:
        _send(stream, _told(error))
    finally:
        os._exit(0)


def _told(error: BaseException) -> dict[str, str]:
    kind, text = type(error).__name__, str(error)
    if isinstance(error, AccessError | UserError):
        kind = "AccessError" if isinstance(error, AccessError) else "UserError"
    elif isinstance(error, PermissionError):
        kind, text = "UserError", f"the attack was refused a file: {text}"
    return {"error": text, "kind": kind, "trace": "".join(traceback.format_exception(error))}


def _close_all_but(kept: set[int]) -> None:
    """Close what was inherited: the stream of jobs, the answers to the study, open files."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


# --- in the caller -------------------------------------------------------------------------------------


def _send(stream: BinaryIO, message: dict[str, Any]) -> None:
    stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()


def _listen(stream: BinaryIO, progress: Progress) -> tuple[dict[str, Any], str, dict[str, Tensor], Any]:
    told: dict[str, Any] | None = None
    enforced = ""
    while line := stream.readline():
        message = json.loads(line)
        if "told" in message and told is None:  # only the first is from before the attack's code
            told, enforced = message["told"], str(message["enforced_by"])
        elif "total" in message:
            progress(int(message["done"]), int(message["total"]))
        elif "error" in message:
            _raise(message)
        elif "size" in message and told is not None:
            return told, enforced, load(stream.read(message["size"])), message["data"]
    raise UserError("the attack's process ended without a result")


def _raise(message: dict[str, Any]) -> NoReturn:
    kind, text = str(message["kind"]), str(message["error"])
    if kind in _ERRORS:
        raise _ERRORS[kind](text)
    error = AttackFailed(f"{kind}: {text}")
    error.trace = str(message.get("trace", ""))
    raise error
