"""Progress with an honest time left: estimated from what tasks of the same kind took in this very run."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drlib.pool import Job


_TYPICAL = {
    "reconstruction": 8.0,
    "prepared": 20.0,
    "prior_samples": 1.0,
    "surrogate": 20.0,
    "update": 0.5,
    "gradients": 0.5,
    "target": 4.0,
    "evaluator": 4.0,
    "features": 1.0,
    "score": 2.0,
    "control": 0.1,
}
"""How long kinds of jobs take compared with each other, for those that have not been seen in this run."""


class Estimate:
    """Time left for a set of jobs on ``workers`` workers.

    A running job that tells its progress is extrapolated from it. Another is expected to take the mean of
    its group (same kind, or same attack on the same size) in this run. A group not seen yet is compared
    with what has been seen through typical ratios. Before anything is known there is no estimate (None).
    """

    def __init__(self, jobs: Sequence[Job], workers: int) -> None:
        self.left = {job.key: job for job in jobs}
        self.workers = workers
        self.taken: dict[str, list[float]] = defaultdict(list)
        self.seconds = self.typical = 0.0

    def finished(self, job: Job, seconds: float) -> None:
        del self.left[job.key]
        self.taken[_group(job)].append(seconds)
        self.seconds += seconds
        self.typical += _TYPICAL.get(job.kind, 1.0)

    def time_left(self, running: dict[str, tuple[float, float]]) -> float | None:
        """Seconds left; ``running`` maps the keys of running jobs to (seconds so far, share done)."""
        projected = {key: seconds / share for key, (seconds, share) in running.items() if share > 0.05}
        seconds, typical = self.seconds, self.typical
        if not typical:
            seconds = sum(projected.values())
            typical = sum(_TYPICAL.get(self.left[key].kind, 1.0) for key in projected)
        if not typical:
            return None
        total = 0.0
        for key, job in self.left.items():
            values = self.taken.get(_group(job))
            usual = sum(values) / len(values) if values else _TYPICAL.get(job.kind, 1.0) * seconds / typical
            total += max(0.0, projected.get(key, usual) - running.get(key, (0.0, 0.0))[0])
        return total / self.workers


def _group(job: Job) -> str:
    return job.label if job.kind in ("target", "reconstruction") else job.kind


class Reporter:
    """Shows progress on standard error: a live line on a terminal, a line every 10 seconds elsewhere.

    ``quiet`` shows nothing but notes (a damaged artifact is always reported).
    """

    def __init__(self, *, quiet: bool = False, workers: int = 2, interval: float = 10.0) -> None:
        self.quiet = quiet
        self.workers = workers
        self.interval = interval
        self._running: dict[str, tuple[str, float, float]] = {}

    @contextmanager
    def of(self, jobs: Sequence[Job]) -> Iterator[None]:
        """Report on these jobs within the block."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._estimate = Estimate(jobs, self.workers)
        self._total, self._done, self._shown = len(jobs), 0, time.perf_counter()
        console = Console(stderr=True)
        self._live = console.is_terminal and not self.quiet
        self._bar = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
            disable=not self._live,
        )
        with self._bar:
            self._task = self._bar.add_task("starting workers", total=self._total)
            yield
        if not self.quiet:
            print(f"{self._done} of {self._total} tasks done", file=sys.stderr)

    def started(self, job: Job) -> None:
        self._running[job.key] = (job.label, time.perf_counter(), 0.0)
        self._show()

    def progressed(self, job: Job, share: float) -> None:
        label, began, _ = self._running[job.key]
        self._running[job.key] = (label, began, share)
        self._show()

    def finished(self, job: Job, seconds: float) -> None:
        self._running.pop(job.key, None)
        self._estimate.finished(job, seconds)
        self._done += 1
        self._bar.update(self._task, completed=self._done)
        self._show()

    def note(self, message: str) -> None:
        """A message that must be seen, whatever the mode."""
        print(message, file=sys.stderr)

    def _show(self) -> None:
        now = time.perf_counter()
        running = list(self._running.items())
        left = self._estimate.time_left({key: (now - began, share) for key, (_, began, share) in running})
        text = f"{_duration(left)} left; " + ", ".join(label for _, (label, _, _) in running)
        if self._live:
            self._bar.update(self._task, description=text)
        elif not self.quiet and now - self._shown > self.interval:
            self._shown = now
            print(f"{self._done}/{self._total} tasks, {text}", file=sys.stderr)


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "time unknown"
    minutes, rest = divmod(round(seconds), 60)
    return f"about {minutes} min {rest:02d} s" if minutes else f"about {rest} s"
