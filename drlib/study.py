"""From cells to stored numbers: plan the tasks that a set of cells needs, and run what is missing.

``cell -> target (-> update) -> prepared -> reconstruction (or control) -> score``. Tasks that several cells
share are planned once. ``run`` computes what the store lacks; module ``results`` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from drlib import attacker, models, pool, tasks
from drlib.cells import CONTROLS, Cell, Target
from drlib.data import DataSpec, Splits, load_splits
from drlib.data import fingerprint as fingerprint_splits
from drlib.errors import UserError
from drlib.experiments.ensemble import Ensemble
from drlib.experiments.generated_set import GeneratedSet
from drlib.experiments.robust import RobustEvaluator
from drlib.fingerprint import fingerprint
from drlib.metrics.features import available
from drlib.outside import declaration
from drlib.progress import Reporter
from drlib.store import Store, artifact_key
from drlib.stored_model import description_of
from drlib.surrogate import SurrogateSpec, white_box
from drlib.types import DYNAMIC, NO_DATA, WHITE_BOX, Attack, TargetSpec

__all__ = ["CONTROLS", "Cell", "Plan", "Target", "Task", "explain_unsupported", "plan", "run", "target_spec"]


ROLES = {"data": "drlib.tasks", "attack": "drlib.attacker", "black_box": "drlib.attacker"}
"""The modules whose processes serve each role. Processes of the role ``black_box`` never hold a parameter
of a target."""

_ATTACKER = {
    "prepared": attacker.prepare,
    "reconstruction": attacker.reconstruct,
    "prior_samples": attacker.sample_prior,
    "surrogate": attacker.make_surrogate,
}


Experiment = Ensemble | RobustEvaluator | GeneratedSet
"""What is planned and stored beside cells: see ``drlib.experiments``."""

PRIOR_CANDIDATES = 4000
"""Samples of a prior that ``prior_best`` chooses from (Zhang et al. 2020 draw as many starts)."""


@dataclass(frozen=True)
class Task:
    """A node of the plan. Its key follows from its specification, its parents' keys and its code."""

    kind: str
    spec: dict[str, Any]
    parents: dict[str, Task]
    code: dict[str, str]
    label: str
    role: str = "data"
    closed: tuple[str, ...] = ()

    @cached_property
    def key(self) -> str:
        return artifact_key(
            self.kind, self.spec, {name: task.key for name, task in self.parents.items()}, self.code
        )


@dataclass
class Plan:
    """The tasks of one cell or experiment; ``reason`` says why there are none."""

    cell: Cell | Experiment
    tasks: dict[str, Task] = field(default_factory=dict)
    reason: str | None = None


@cache
def _code(*roots: Callable | type) -> dict[str, str]:
    return fingerprint(*roots)


def producer(kind: str) -> Callable:
    """The function that makes artifacts of this kind. Raises ``KeyError`` for an unknown one."""
    return _ATTACKER[kind] if kind in _ATTACKER else tasks.PRODUCERS[kind]


def role(kind: str, attack: str | None, closed: tuple[str, ...] = ()) -> str:
    """Whose processes make artifacts of this kind: a role of ``ROLES``. ``closed``: the data set's files."""
    if kind not in _ATTACKER:
        return "data"
    if kind == "surrogate":
        return "black_box"
    declared = declaration(str(attack), closed=closed)
    sees_target = kind == "reconstruction" or (kind == "prepared" and declared.prior_sees_target)
    return "attack" if sees_target and declared.knowledge.model == WHITE_BOX else "black_box"


@cache
def target_spec(target: Target) -> TargetSpec:
    """What an adversary is told about a target, before it is trained."""
    splits = load_splits(target.data)
    shape = tuple(splits.target.images.shape[1:])
    model = models.build(
        target.architecture, shape=shape, num_classes=len(splits.classes), width=target.width
    )
    recipe: dict[str, Any] = {
        "width": target.width,
        "size": target.size,
        "training": target.training.model_dump(),
    }
    if target.update is not None:
        recipe["update"] = target.update.training.model_dump()
    return TargetSpec.of(
        model, target.architecture, shape, len(splits.classes), classes=splits.classes, recipe=recipe
    )


def explain_unsupported(cell: Cell) -> str | None:
    """The reason why a cell cannot be computed at all, or None."""
    if cell.control == "holdout":
        empty = not len(load_splits(cell.target.data).holdout.images)
        return "the data set has no holdout" if empty else None
    if not cell.is_control or cell.samples_prior:
        return attack_of(cell).supports(_attacked_spec(cell))
    return None


def _attacked_spec(cell: Cell) -> TargetSpec:
    """What an attack is told of the model that it gets: the target, or a surrogate of it."""
    return (
        target_spec(cell.target) if cell.surrogate is None else _surrogate_spec(cell.target, cell.surrogate)
    )


@cache
def _surrogate_spec(target: Target, how: SurrogateSpec) -> TargetSpec:
    told = target_spec(target)
    model = models.build(how.architecture, shape=told.shape, num_classes=told.num_classes, width=how.width)
    return white_box(model, told, architecture=how.architecture).spec


def attack_of(cell: Cell) -> Attack:
    """The declarations of the attack of a cell, or of the one whose prior a control samples."""
    name = cell.sampled_attack if cell.is_control else cell.attack
    return declaration(name, cell.hyperparameters, closed=cell.target.files)


def _check(cell: Cell) -> None:
    """Raise ``UserError`` for a cell that makes no sense, before any work."""
    missing = available(cell.extractor)
    if missing:
        raise UserError(missing)
    target, splits = cell.target, load_splits(cell.target.data)
    wanted = {"target": target.size}
    if target.update is not None:
        wanted["update"] = target.update.size
        target.update.per_gradient  # noqa: B018 - raises what is wrong with it
    for split, size in wanted.items():
        there = len(getattr(splits, split))
        if size > there:
            raise UserError(
                f"{split} size {size} is larger than the {split} split of {target.data.name} ({there} images)"
            )
    last = target.training.epochs_on(target.size)
    if target.epochs is not None and target.epochs > last:
        raise UserError(f"checkpoint {target.checkpoint}: the target's training has only {last} epochs")
    if cell.is_control and not cell.samples_prior:
        return
    attack = attack_of(cell)
    if cell.is_control:
        if not attack.prepares or type(attack).prior_samples is Attack.prior_samples:
            raise UserError(f"{attack.title} has no prior to sample from")
        if cell.control == "prior_best" and not attack.labeled:
            raise UserError(f"{attack.title} wants no class, so no sample of its prior is the best of one")
    elif (attack.knowledge.training == DYNAMIC) != (target.update is not None):
        kind = "a dynamic target: set the target's update" if target.update is None else "a static target"
        raise UserError(f"{attack.title} attacks {kind}")
    elif attack.knowledge.model == WHITE_BOX and target.update and cell.samples > target.update.size:
        raise UserError(
            f"{attack.title} sees gradients of {target.update.size} images: n={cell.samples} is too many"
        )
    if attack.knowledge.model < WHITE_BOX and target.epochs == 0:
        raise UserError(
            f"{attack.title} has a black box, but the parameters of checkpoint init follow from its seed"
        )
    if cell.surrogate is not None and (attack.knowledge.model < WHITE_BOX or target.update is not None):
        raise UserError(f"{attack.title} needs no surrogate: it is for white-box attacks on static targets")


def plan(cell: Cell | Experiment) -> Plan:
    """All tasks behind a cell or an experiment, shared ones with equal keys. Raises ``UserError`` before any
    work."""
    if not isinstance(cell, Cell):
        return Plan(cell, experiment_tasks(cell))
    _check(cell)
    target = cell.target
    reason = explain_unsupported(cell)
    if reason:
        return Plan(cell, reason=reason)
    made = {"target": target_task(target)}
    made["reconstruction"] = _control_task(cell) if cell.is_control else _attack_task(cell)
    for index, architecture in enumerate(target.evaluators(), start=1):
        made[f"evaluator_{index}"] = _evaluator_task(target, architecture)
    splits = load_splits(target.data)
    for split in ("target", "holdout"):
        if len(getattr(splits, split)):
            made[f"features_{split}"] = _features_task(cell, split)
    spec = {
        **_d_tar(target),
        "extractor": cell.extractor,
        "equal_size": min(cell.equal_size or target.reconstructed, target.reconstructed),
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
    also: tuple[Callable | type, ...] = (),
    closed: tuple[str, ...] = (),
) -> Task:
    code = _code(producer(kind), *also)
    return Task(kind, spec, parents, code, label, role(kind, spec.get("attack"), closed), closed)


_contents: dict[DataSpec, tuple[Splits, str]] = {}
"""Hashes of the data sets loaded last; hashing a large one takes a moment, and every task asks."""


def _data(target: Target) -> dict[str, Any]:
    """The data of a task: its specification, and a hash of the images, which may change under a path."""
    data = _data_of(target.data)
    return {**data, "classes": list(load_splits(target.data).classes)}


def _data_of(data: DataSpec) -> dict[str, Any]:
    splits = load_splits(data)
    if _contents.get(data, (None, ""))[0] is not splits:
        _contents[data] = (splits, fingerprint_splits(splits))
    return {"data": data.model_dump(), "content": _contents[data][1]}


def _d_tar(target: Target) -> dict[str, Any]:
    """Which images are D_tar, for the tasks that read them."""
    update = None if target.update is None else target.update.model_dump()
    return {**_data(target), "size": target.size, "update": update}


def target_task(target: Target) -> Task:
    """The task that trains a target model, up to its checkpoint; updates are tasks of their own."""
    fields = target.model_dump(exclude={"update", "checkpoint", "data"})
    spec = {**fields, **_data(target), "epochs": target.epochs}
    return _task("target", spec, {}, f"train {target.architecture} on {target.size}")


def _update_task(target: Target) -> Task:
    spec = {**_d_tar(target), "seed": target.seed}
    return _task("update", spec, {"target": target_task(target)}, f"update {target.architecture}")


def _gradients_task(target: Target) -> Task:
    spec = {**_d_tar(target), "batch_size": target.update.per_gradient}
    return _task("gradients", spec, {"target": target_task(target)}, f"gradients of {target.architecture}")


def _evaluator_task(target: Target, architecture: str) -> Task:
    spec = {
        **_data(target),
        "architecture": architecture,
        "width": None,
        "training": type(target.training)().model_dump(),
        "seed": 1_000 + target.seed,
    }
    return _task("evaluator", spec, {}, f"train evaluator {architecture}")


def _attacked(cell: Cell) -> Task:
    """The model that the attack gets: the target, or a surrogate of it."""
    return target_task(cell.target) if cell.surrogate is None else surrogate_task(cell)


def surrogate_task(cell: Cell) -> Task:
    """The task that turns queries to the target into a white box."""
    parents = {"target": target_task(cell.target)}
    if cell.surrogate.method == "distillation":
        parents["auxiliary"] = _task("auxiliary", _data(cell.target), {}, "auxiliary images")
    spec = {"surrogate": cell.surrogate.model_dump(), "seed": cell.seed, "access": "black_box"}
    return _task(
        "surrogate",
        spec,
        parents,
        f"surrogate by {cell.surrogate.method}",
        closed=cell.target.files,
    )


def _declared(attack: Attack) -> dict[str, str]:
    """What the process that runs an attack must know of it without asking its code."""
    access = "white_box" if attack.knowledge.model == WHITE_BOX else "black_box"
    return {"title": attack.title, "access": access}


def _attack_task(cell: Cell) -> Task:
    attack = attack_of(cell)
    spec = {
        "attack": cell.attack,
        "hyperparameters": attack.hyperparameters(),
        "n": cell.samples,
        "seed": cell.seed,
        **_declared(attack),
        "labeled": attack.labeled,
    }
    parents = {"target": _attacked(cell)}
    if attack.knowledge.training == DYNAMIC:
        if attack.knowledge.model == WHITE_BOX:
            parents["gradients"] = _gradients_task(cell.target)
        else:
            parents["update"] = _update_task(cell.target)
    if attack.prepares:
        parents["prepared"] = _prepared_task(cell)
    return _task(
        "reconstruction",
        spec,
        parents,
        f"{attack.title} on {cell.target.size}",
        also=(type(attack),),
        closed=cell.target.files,
    )


def _prepared_task(cell: Cell) -> Task:
    """The first stage of an attack: shared by all cells with the same prior, whatever they do with it."""
    attack = attack_of(cell)
    name = cell.sampled_attack if cell.is_control else cell.attack
    spec: dict[str, Any] = {
        "attack": name,
        "hyperparameters": attack.hyperparameters(stage="prepare"),
        "seed": cell.seed,
        **_declared(attack),
        "auxiliary_labels": attack.auxiliary_labels,
    }
    parents = {}
    if attack.prior_sees_target:
        parents["target"] = _attacked(cell)
    else:
        spec["target"] = description_of(attack.prior_spec(target_spec(cell.target)))
    if attack.knowledge.dataset != NO_DATA:
        parents["auxiliary"] = _task("auxiliary", _data(cell.target), {}, "auxiliary images")
    return _task(
        "prepared",
        spec,
        parents,
        f"prior of {attack.title} on {cell.target.size}",
        also=(type(attack),),
        closed=cell.target.files,
    )


def _control_task(cell: Cell) -> Task:
    spec = {"control": cell.control, **_data(cell.target), "n": cell.samples, "seed": cell.seed}
    parents = {"target": target_task(cell.target)}
    if cell.samples_prior:
        spec["labeled"] = attack_of(cell).labeled
        parents["samples"] = _prior_samples_task(cell)
    return _task("control", spec, parents, f"control {cell.attack}")


def _prior_samples_task(cell: Cell) -> Task:
    """What a control takes from an attack's prior: drawn by the attack's code, so in an attack's process."""
    attack, prepared = attack_of(cell), _prepared_task(cell)
    spec = {
        "attack": cell.sampled_attack,
        "hyperparameters": attack.hyperparameters(stage="prepare"),
        "n": cell.samples if cell.control == "prior_sample" else max(PRIOR_CANDIDATES, cell.samples),
        "num_classes": len(load_splits(cell.target.data).classes),
        "seed": cell.seed,
    }
    label = f"samples of the prior of {attack.title}"
    parents = {"prepared": prepared}
    return _task("prior_samples", spec, parents, label, also=(type(attack),), closed=cell.target.files)


def experiment_tasks(experiment: Experiment) -> dict[str, Task]:
    """The tasks of an experiment: the parts of an ensemble, or one."""
    if isinstance(experiment, Ensemble):
        return _ensemble_tasks(experiment)
    if isinstance(experiment, RobustEvaluator):
        spec = {**experiment.model_dump(exclude={"data"}), **_data_of(experiment.data)}
        label = f"train a robust {experiment.architecture}"
        return {"robust": _task("robust", spec, {}, label)}
    target = experiment.target
    spec = {
        **experiment.model_dump(exclude={"target"}),
        **_data(target),
        "training": target.training.model_dump(),
    }
    parents = {"target": target_task(target)}
    return {"generated": _task("generated", spec, parents, f"generated training set for {target.size}")}


def _ensemble_tasks(ensemble: Ensemble) -> dict[str, Task]:
    target = ensemble.target
    labels = load_splits(target.data).target.labels
    there = len(labels if ensemble.classes is None else labels[labels < ensemble.classes])
    if target.size > there:
        raise UserError(
            f"memorization of {target.size} images: the target split has only {there} of these classes"
        )
    fields = target.model_dump(include={"size", "architecture", "width", "training", "seed"})
    spec = {
        **fields,
        **_data_of(target.data),
        **ensemble.model_dump(include={"classes", "design", "flipped"}),
    }
    spec["ratio"] = ensemble.ratio if ensemble.design == "subsampled" else None
    made = {}
    for part in ensemble.parts():
        last = part["first"] + part["count"]
        label = f"models {part['first'] + 1} to {last} of {ensemble.total} on {target.size}"
        made[f"part_{part['first']:06d}"] = _task("ensemble", {**spec, **part}, {}, label)
    return made


def _features_task(cell: Cell, split: str) -> Task:
    spec = {**_d_tar(cell.target), "split": split, "extractor": cell.extractor}
    return _task("features", spec, {}, f"features of {split}")


def run(
    cells: Iterable[Cell | Experiment],
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
            task.kind,
            task.key,
            task.spec,
            parents,
            task.code,
            task.role,
            task.label,
            waits_for,
            task.closed,
        )

    for item in plans:
        for task in item.tasks.values():
            if task.kind != "features":  # only scores read features
                visit(task)
    return sorted(jobs.values(), key=lambda job: _ORDER[job.kind])


_ORDER = {
    "auxiliary": 0,
    "target": 0,
    "update": 0,
    "gradients": 0,
    "surrogate": 1,
    "generated": 1,
    "ensemble": 1,
    "robust": 1,
    "prepared": 1,
    "prior_samples": 2,
    "reconstruction": 2,
    "evaluator": 3,
    "features": 4,
    "control": 5,
    "score": 6,
}
"""Long tasks first, so that the two workers finish together."""
