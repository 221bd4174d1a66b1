"""Running jobs on worker processes: roles that never share a process, stoppable at any moment.

``data`` workers train targets and score reconstructions; they may load D_tar. ``attack`` workers run
attacks and are guarded (see ``guard``); ``black_box`` workers do so too and never hold a parameter of a
target. A worker is a fresh interpreter, ``python -m MODULE STORE
PARENT``, that reads one job a line and answers with one line; nothing is pickled. It uses one thread and
ends when its parent does, also after ``kill -9``. A finished job is in the store before anything else
hears of it.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from drlib.errors import UserError
from drlib.store import Artifact, Store

if TYPE_CHECKING:
    from torch import Tensor

    from drlib.types import Progress

    Producer = Callable[
        [dict[str, Any], Mapping[str, Artifact], Progress], tuple[dict[str, Tensor], dict[str, Any]]
    ]

REPORT_SECONDS = 0.2
"""A worker tells its progress at most this often."""


class JobFailed(UserError):
    """A worker raised. The message is its last line and names the file that keeps the traceback."""


@dataclass(frozen=True)
class Job:
    """A task as it travels to a worker: plain values only. ``parents`` maps a name to (kind, key).

    ``closed``: files and folders that an attack may not open, the data set's.
    """

    kind: str
    key: str
    spec: dict[str, Any]
    parents: dict[str, tuple[str, str]]
    code: dict[str, str]
    role: str
    label: str
    waits_for: frozenset[str] = field(default_factory=frozenset)
    closed: tuple[str, ...] = ()


class Parents(Mapping[str, Artifact]):
    """A job's parents by name. Each is read when it is first asked for: what nobody asks for is never
    in this process. ``address`` is where one lies, ``closed`` what an attack may not open."""

    def __init__(self, store: Store, addresses: Mapping[str, tuple[str, str]], closed: Iterable[str]) -> None:
        self.store = store
        self.closed = (str(store.root), *closed)
        self._addresses = dict(addresses)
        self._loaded: dict[str, Artifact] = {}

    def __getitem__(self, name: str) -> Artifact:
        if name not in self._loaded:
            self._loaded[name] = self.store.load(*self._addresses[name])
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._addresses)

    def __len__(self) -> int:
        return len(self._addresses)

    def __contains__(self, name: object) -> bool:
        return name in self._addresses

    def address(self, name: str) -> tuple[str, str]:
        """(kind, key) of a parent that is not read here."""
        kind, key = self._addresses[name]
        return kind, key


# --- in the worker -------------------------------------------------------------------------------------


def become_worker() -> None:
    """One thread, deaf to Ctrl-C (the parent decides when to stop), gone when the parent is.

    ``sys.argv[2]`` names the parent: it may be gone before the imports are done, so asking who the
    parent is would come too late.
    """
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, args=(int(sys.argv[2]),), daemon=True).start()


def answer_stream(mode: str) -> IO[Any]:
    """The real standard output; whatever a library prints goes to standard error from now on."""
    stream = os.fdopen(os.dup(1), mode, encoding=None if "b" in mode else "utf-8")
    os.dup2(2, 1)
    return stream


def serve(producers: dict[str, Producer], prepare: Callable[[str], None] | None = None) -> None:
    """The life of a worker: answer jobs from standard input until it ends.

    ``sys.argv`` names the store and the parent's process. ``prepare(store root)`` runs once, after the
    imports and before the first job.
    """
    become_worker()
    answers = answer_stream("w")
    root = sys.argv[1]
    if prepare:
        prepare(root)
    for line in sys.stdin:
        try:
            answer = _carry_out(Job(**json.loads(line)), Store(root), producers, answers)
        except Exception as error:
            answer = {"error": _keep_traceback(error, root)}
        _say(answers, answer)


def _carry_out(job: Job, store: Store, producers: dict[str, Producer], answers: IO[str]) -> dict[str, Any]:
    """Load the parents, run the producer, save the artifact with its provenance."""
    from drlib import provenance

    parents = Parents(store, job.parents, job.closed)
    progress = throttled(functools.partial(_say, answers))
    with provenance.Measured() as measured:
        tensors, data = producers[job.kind](job.spec, parents, progress)
    measured.peak_memory_mb = max(measured.peak_memory_mb, data.pop("peak_memory_mb", 0.0))
    keys = {name: key for name, (_, key) in job.parents.items()}
    made_with = provenance.record(measured)
    store.save(Artifact(job.key, job.kind, job.spec, keys, job.code, tensors, data, made_with))
    return {"seconds": measured.seconds}


def throttled(say: Callable[[dict[str, Any]], None]) -> Progress:
    """A progress callback that says {"done", "total"}, every ``REPORT_SECONDS`` at most."""
    told = 0.0

    def progress(done: int, total: int) -> None:
        nonlocal told
        if time.monotonic() - told > REPORT_SECONDS:
            told = time.monotonic()
            say({"done": int(done), "total": int(total)})

    return progress


def _keep_traceback(error: Exception, root: str) -> str:
    """Write the traceback to the store's folder ``failed``; the error in one line, and where to read more."""
    path = Path(root) / "failed" / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    trace = getattr(error, "trace", "")  # of a copy of this process
    path.write_text(trace + "".join(traceback.format_exception(error)), encoding="utf-8")
    kind = "" if isinstance(error, UserError) or trace else f"{type(error).__name__}: "
    return f"{kind}{error} (traceback in {path})"


def _say(answers: IO[str], message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


# --- in the parent -------------------------------------------------------------------------------------


def worker_environment() -> dict[str, str]:
    """The environment of a worker: the same package and script folder, one thread."""
    package = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [package, *sys.path[:1], os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class _Worker:
    def __init__(self, module: str, store_root: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, store_root, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            env=worker_environment(),
        )

    def answer(self, job: Job, report: Callable[[Job, float], None]) -> float:
        """Run one job; the seconds it took. ``report`` gets the share done, in [0, 1]."""
        names = ("kind", "key", "spec", "parents", "code", "role", "label", "closed")
        sent = {name: getattr(job, name) for name in names}
        try:
            self.process.stdin.write(json.dumps(sent) + "\n")
            self.process.stdin.flush()
            for line in self.process.stdout:
                message = json.loads(line)
                if "total" in message:
                    report(job, message["done"] / max(1, message["total"]))
                elif "error" in message:
                    raise JobFailed(f"{job.label} failed: {message['error']}")
                else:
                    return message["seconds"]
        except BrokenPipeError:
            pass
        raise JobFailed(f"{job.label}: its process ended with code {self.process.wait()}")


class _Workers:
    """Processes of all roles, started when first needed and reused. Leaving the block ends them."""

    def __init__(self, roles: dict[str, str], store_root: str) -> None:
        self.roles = roles
        self.store_root = store_root
        self.all: list[_Worker] = []
        self.idle: dict[str, list[_Worker]] = {role: [] for role in roles}

    def carry_out(self, job: Job, report: Callable[[Job, float], None]) -> float:
        idle = self.idle[job.role]
        if idle:
            worker = idle.pop()
        else:
            worker = _Worker(self.roles[job.role], self.store_root)
            self.all.append(worker)
        seconds = worker.answer(job, report)
        idle.append(worker)
        return seconds

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.all:
            worker.process.kill()  # a finished job is stored; an unfinished one is not wanted any more
        for worker in self.all:
            worker.process.wait()


def run(
    jobs: Iterable[Job],
    roles: dict[str, str],
    *,
    store_root: str,
    workers: int,
    started: Callable[[Job], None],
    progressed: Callable[[Job, float], None],
    finished: Callable[[Job, float], None],
) -> None:
    """Run jobs in an order that respects ``waits_for``, at most ``workers`` at once over all roles.

    ``roles`` maps a role to the module whose processes serve it. Jobs start in the given order as they
    become ready. The callbacks get the job, and the share done or the seconds it took. The first failure
    (``JobFailed``) or interruption stops everything; what finished before stays in the store.
    """
    waiting = {job.key: job for job in jobs}
    running: dict[Future[float], Job] = {}
    with ThreadPoolExecutor(workers) as threads, _Workers(roles, store_root) as processes:
        while waiting or running:
            unfinished = waiting.keys() | {job.key for job in running.values()}
            ready = [job for job in waiting.values() if not job.waits_for & unfinished]
            for job in ready[: workers - len(running)]:
                del waiting[job.key]
                started(job)
                running[threads.submit(processes.carry_out, job, progressed)] = job
            completed, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in completed:
                job = running.pop(future)
                finished(job, future.result())
