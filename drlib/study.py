"""From cells to stored numbers: plan the tasks that a set of cells needs, and run what is missing.

``cell -> target -> reconstruction (or control) -> score``. Tasks that several cells share are planned
once. ``run`` computes what the store lacks; module ``results`` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from drlib import attacker, attacks, models, pool, tasks
from drlib.cells import CONTROLS, Cell, Target
from drlib.data import DataSpec, Splits, load_splits
from drlib.data import fingerprint as fingerprint_splits
from drlib.errors import UserError
from drlib.fingerprint import fingerprint
from drlib.metrics.features import available
from drlib.progress import Reporter
from drlib.store import Store, artifact_key
from drlib.types import NO_DATA, TargetSpec, has_batchnorm

__all__ = ["CONTROLS", "Cell", "Plan", "Target", "Task", "explain_unsupported", "plan", "run", "target_spec"]


ROLES = {"data": "drlib.tasks", "attack": "drlib.attacker"}
"""The modules whose processes serve each role."""


@dataclass(frozen=True)
class Task:
    """A node of the plan. Its key follows from its specification, its parents' keys and its code."""

    kind: str
    spec: dict[str, Any]
    parents: dict[str, Task]
    code: dict[str, str]
    label: str
    role: str = "data"

    @cached_property
    def key(self) -> str:
        return artifact_key(
            self.kind, self.spec, {name: task.key for name, task in self.parents.items()}, self.code
        )


@dataclass
class Plan:
    """The tasks of one cell; ``reason`` says why there are none."""

    cell: Cell
    tasks: dict[str, Task] = field(default_factory=dict)
    reason: str | None = None


@cache
def _code(*roots: Callable | type) -> dict[str, str]:
    return fingerprint(*roots)


def _producer(kind: str) -> Callable:
    return attacker.reconstruct if kind == "reconstruction" else tasks.PRODUCERS[kind]


@cache
def target_spec(target: Target) -> TargetSpec:
    """What an adversary is told about a target, before it is trained."""
    splits = load_splits(target.data)
    shape = tuple(splits.target.images.shape[1:])
    model = models.build(
        target.architecture, shape=shape, num_classes=len(splits.classes), width=target.width
    )
    return TargetSpec(target.architecture, shape, len(splits.classes), has_batchnorm(model), splits.classes)


def explain_unsupported(cell: Cell) -> str | None:
    """The reason why a cell cannot be computed at all, or None."""
    if cell.is_control:
        if cell.attack == "holdout" and not len(load_splits(cell.target.data).holdout.images):
            return "the data set has no holdout"
        return None
    return attacks.create(cell.attack, cell.hyperparameters).supports(target_spec(cell.target))


def plan(cell: Cell) -> Plan:
    """All tasks behind one cell, shared ones with equal keys. Raises ``UserError`` before any work."""
    missing = available(cell.extractor)
    if missing:
        raise UserError(missing)
    target = cell.target
    size = len(load_splits(target.data).target.images)
    if target.size > size:
        raise UserError(
            f"target size {target.size} is larger than the target split of {target.data.name} ({size} images)"
        )
    reason = explain_unsupported(cell)
    if reason:
        return Plan(cell, reason=reason)
    made = {"target": target_task(target)}
    made["reconstruction"] = (
        _control_task(cell, made["target"]) if cell.is_control else _attack_task(cell, made["target"])
    )
    for index, architecture in enumerate(target.evaluators(), start=1):
        made[f"evaluator_{index}"] = _evaluator_task(target, architecture)
    splits = load_splits(target.data)
    for split in ("target", "holdout"):
        if len(getattr(splits, split)):
            made[f"features_{split}"] = _features_task(cell, split)
    spec = {
        **_data(target),
        "size": target.size,
        "extractor": cell.extractor,
        "equal_size": min(cell.equal_size or target.size, target.size),
        "is_holdout": cell.attack == "holdout",
    }
    made["score"] = _task("score", spec, dict(made), f"score {cell.attack} on {target.size}")
    return Plan(cell, made)


def _task(
    kind: str,
    spec: dict[str, Any],
    parents: dict[str, Task],
    label: str,
    *,
    role: str = "data",
    also: tuple[type, ...] = (),
) -> Task:
    return Task(kind, spec, parents, _code(_producer(kind), *also), label, role)


_contents: dict[DataSpec, tuple[Splits, str]] = {}
"""Hashes of the data sets loaded last; hashing a large one takes a moment, and every task asks."""


def _data(target: Target) -> dict[str, Any]:
    """The data of a task: its specification, and a hash of the images, which may change under a path."""
    splits = load_splits(target.data)
    if _contents.get(target.data, (None, ""))[0] is not splits:
        _contents[target.data] = (splits, fingerprint_splits(splits))
    classes = list(splits.classes)
    return {"data": target.data.model_dump(), "content": _contents[target.data][1], "classes": classes}


def target_task(target: Target) -> Task:
    return _task(
        "target", target.model_dump() | _data(target), {}, f"train {target.architecture} on {target.size}"
    )


def _evaluator_task(target: Target, architecture: str) -> Task:
    spec = {
        **_data(target),
        "architecture": architecture,
        "width": None,
        "training": type(target.training)().model_dump(),
        "seed": 1_000 + target.seed,
    }
    return _task("evaluator", spec, {}, f"train evaluator {architecture}")


def _attack_task(cell: Cell, target: Task) -> Task:
    attack = attacks.create(cell.attack, cell.hyperparameters)
    spec = {
        "attack": cell.attack,
        "hyperparameters": attack.hyperparameters(),
        "n": cell.samples,
        "seed": cell.seed,
    }
    parents = {"target": target}
    if attack.knowledge.dataset != NO_DATA:
        parents["auxiliary"] = _task("auxiliary", _data(cell.target), {}, "auxiliary images")
    label = f"{attack.title} on {cell.target.size}"
    return _task("reconstruction", spec, parents, label, role="attack", also=(type(attack),))


def _control_task(cell: Cell, target: Task) -> Task:
    spec = {
        "control": cell.attack,
        **_data(cell.target),
        "n": cell.samples,
        "seed": cell.seed,
    }
    return _task("control", spec, {"target": target}, f"control {cell.attack}")


def _features_task(cell: Cell, split: str) -> Task:
    spec = {
        **_data(cell.target),
        "split": split,
        "size": cell.target.size,
        "extractor": cell.extractor,
    }
    return _task("features", spec, {}, f"features of {split}")


def run(
    cells: Iterable[Cell],
    *,
    store: Store | None = None,
    workers: int = 2,
    reporter: Reporter | None = None,
) -> None:
    """Compute what the store lacks for these cells, on ``workers`` one-thread processes.

    All cells are checked first; a refused one raises ``UserError`` before any work. Damaged artifacts
    are set aside and computed again. Whatever finished before an interruption stays in the store.
    """
    store = store or Store()
    reporter = reporter or Reporter()
    jobs = missing_jobs([plan(cell) for cell in cells], store, reporter)
    if not jobs:
        return
    store.root.mkdir(parents=True, exist_ok=True)  # an unusable folder is refused here, not by a worker
    with reporter.of(jobs):
        pool.run(
            jobs,
            ROLES,
            store_root=str(store.root),
            workers=workers,
            started=reporter.started,
            progressed=reporter.progressed,
            finished=reporter.finished,
        )


def missing_jobs(plans: Sequence[Plan], store: Store, reporter: Reporter) -> list[pool.Job]:
    """The jobs for artifacts that are absent or damaged, each once, parents first."""
    jobs: dict[str, pool.Job] = {}
    healthy: dict[str, bool] = {}

    def is_there(task: Task) -> bool:
        if task.key not in healthy:
            damaged_before = store.folder(task.kind, task.key).is_dir()
            healthy[task.key] = store.healthy(task.kind, task.key)
            if damaged_before and not healthy[task.key]:
                reporter.note(f"damaged {task.kind} {task.key[:8]} set aside; computing it again")
        return healthy[task.key]

    def visit(task: Task) -> None:
        if task.key in jobs or is_there(task):
            return
        for parent in task.parents.values():
            visit(parent)
        waits_for = frozenset(parent.key for parent in task.parents.values() if parent.key in jobs)
        parents = {name: (parent.kind, parent.key) for name, parent in task.parents.items()}
        jobs[task.key] = pool.Job(
            task.kind, task.key, task.spec, parents, task.code, task.role, task.label, waits_for
        )

    for item in plans:
        for task in item.tasks.values():
            if task.kind != "features":  # only scores read features
                visit(task)
    return sorted(jobs.values(), key=lambda job: _ORDER[job.kind])


_ORDER = {
    "auxiliary": 0,
    "target": 0,
    "reconstruction": 1,
    "evaluator": 2,
    "features": 3,
    "control": 4,
    "score": 5,
}
"""Long tasks first, so that the two workers finish together."""
