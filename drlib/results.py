"""Reading results: from stored scores to rows with intervals, reasons and provenance.

Columns: those of the paper's tables as data (``paper_table dataset model defense attack target_size
metric value coverage_percent``), then what the honesty rules ask for beside each value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from drlib.cells import CONTROL_TITLES, Cell, Target
from drlib.data import Split, load_splits
from drlib.errors import UserError, unknown
from drlib.experiments.ensemble import Ensemble
from drlib.metrics.features import metric_name
from drlib.metrics.interval import paired_bootstrap
from drlib.metrics.leakage import p_value
from drlib.store import Artifact, DamagedArtifact, Store
from drlib.stored_model import restore
from drlib.study import Experiment, Plan, attack_of, plan, target_task
from drlib.tasks import SAMPLE_METRICS, target_images
from drlib.types import Reconstruction, WhiteBox

if TYPE_CHECKING:
    import pandas

_TITLES = {
    "convnet": "ConvNet",
    "lenet": "LeNet",
    "mlp": "MLP",
    "homogeneous_mlp": "homogeneous MLP",
    "vgg16": "VGG16",
    "resnet18": "ResNet-18",
    "mobilenet_v2": "MobileNetV2",
}
_DATASETS = {
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "kmnist": "KMNIST",
    "cifar10": "CIFAR10",
    "cifar100": "CIFAR100",
    "digits": "digits",
    "lfw_subset": "lfw_subset",
}


def title(cell: Cell) -> str:
    """The attack's or control's name as tables print it."""
    if cell.is_control:
        name = CONTROL_TITLES[cell.control]
        of = attack_of(cell).title if cell.samples_prior else ""
        return f"{name} ({of or 'update'})" if of or cell.target.update is not None else name
    attack = attack_of(cell)
    of = attack.control_variant or (cell.surrogate.method if cell.surrogate is not None else "")
    return f"{attack.title} ({of})" if of else attack.title


def is_control(cell: Cell) -> bool:
    """True for a control, and for an attack with a setting that makes a control of it."""
    if cell.is_control:
        return True
    return attack_of(cell).control_variant is not None


def reconstruction(cell: Cell, store: Store | None = None) -> Reconstruction:
    """The stored reconstruction (or control) of a cell. Raises ``UserError`` if it was not run."""
    made = _load(plan(cell), "reconstruction", store or Store())
    history = made.tensors.get("loss_history", torch.empty(0))
    told = {name: value for name, value in made.data.items() if name != "enforced_by"}
    return Reconstruction(made.tensors["images"], made.tensors.get("labels"), history, **told)


def score(cell: Cell, store: Store | None = None) -> Artifact:
    """The stored score of a cell: per-sample tensors and scalars, as ``tasks.score`` names them."""
    return _load(plan(cell), "score", store or Store())


def white_box(target: Target, store: Store | None = None) -> WhiteBox:
    """The white-box view of a stored target model. Raises ``UserError`` if it was not trained."""
    made = _read(target_task(target), store or Store())
    return restore(made)


def evaluator(cell: Cell, architecture: str, store: Store | None = None) -> WhiteBox:
    """One of the two evaluators that judge a cell. Raises ``UserError`` for another architecture."""
    names = cell.target.evaluators()
    if architecture not in names:
        raise unknown("evaluator", architecture, names)
    return restore(_load(plan(cell), f"evaluator_{1 + names.index(architecture)}", store or Store()))


def artifact(experiment: Experiment, store: Store | None = None) -> Artifact:
    """The stored artifact of an experiment that has one. Raises ``UserError`` if it was not run."""
    (task,) = plan(experiment).tasks.values()
    return _read(task, store or Store())


def ensemble(experiment: Ensemble, store: Store | None = None) -> dict[str, Any]:
    """The answers of an ensemble's models, all parts joined.

    ``inside``, ``correct`` bool and ``probability`` float32 (models, n), ``labels`` (n,) as trained,
    ``flipped`` bool (n,), and the mean ``test_accuracy`` of the models (NaN without test images).
    """
    parts = [_read(task, store or Store()) for task in plan(experiment).tasks.values()]
    joined = {name: torch.cat([part.tensors[name] for part in parts]) for name in _ANSWERS}
    same = {name: parts[0].tensors[name] for name in ("labels", "flipped")}
    accuracies = [(part.data["test_accuracy"], len(part.tensors["inside"])) for part in parts]
    known = [(value, count) for value, count in accuracies if value is not None]
    weights = sum(count for _, count in known)
    accuracy = sum(value * count for value, count in known) / weights if weights else math.nan
    return {**joined, **same, "test_accuracy": accuracy}


_ANSWERS = ("inside", "probability", "correct")


def provenance_of(
    experiments: Iterable[Experiment], command: str, profile: str, store: Store | None = None
) -> str:
    """One line that says how the numbers of experiments were made."""
    tasks = [task for each in experiments for task in plan(each).tasks.values()]
    made = [_read(task, store or Store()) for task in tasks]
    facts = [item.provenance for item in made]
    seeds = {item.spec["seed"] for item in made}
    device, threads = (_joined({fact[name] for fact in facts}) for name in ("device", "threads"))
    seconds, memory = sum(f["seconds"] for f in facts), max(f["peak_memory_mb"] for f in facts)
    return " · ".join(
        (
            f"Made by `{command}`",
            f"profile {profile}",
            _joined({_DATASETS.get(item.spec["data"]["name"], item.spec["data"]["name"]) for item in made}),
            f"seeds {_joined(seeds)}",
            f"{device}, {threads} thread",
            _joined({_versions(fact["versions"]) for fact in facts}),
            f"{seconds:.0f} s, peak {memory:.0f} MB",
            f"artifacts {', '.join(item.key[:8] for item in made[:3])}"
            + (f" and {len(made) - 3} more" if len(made) > 3 else ""),
        )
    )


def target_and_holdout(cell: Cell) -> tuple[Split, Split]:
    """D_tar of a cell (the update's images for a dynamic target) and the holdout, which may be empty."""
    splits = load_splits(cell.target.data)
    update = None if cell.target.update is None else cell.target.update.model_dump()
    target = target_images(splits, {"size": cell.target.size, "update": update})
    return target, splits.holdout


def computed(cells: Iterable[Cell], store: Store | None = None) -> list[Cell]:
    """Those of the cells that have a result: stored scores, or the reason why there can be none."""
    store = store or Store()
    return [
        item.cell
        for item in _planned(list(cells))
        if item.reason or store.folder("score", item.tasks["score"].key).is_dir()
    ]


def results(cells: Iterable[Cell], *, store: Store | None = None, profile: str = "") -> pandas.DataFrame:
    """One row per cell and metric.

    Values in raw units: SSIM in [-1, 1], PSNR in dB, MSE in squared pixels of [0, 1]; coverages are
    fractions, ``coverage_percent`` is in percent as in the paper. A positive ``gap`` means closer to
    training images than to holdout images; ``gap_p`` is its p-value in a randomization test over the draw
    of both. What could not be computed is NaN, and ``reason`` says why.
    """
    return _frame([[cell] for cell in cells], store or Store(), profile)


def summary(cells: Iterable[Cell], *, store: Store | None = None, profile: str = "") -> pandas.DataFrame:
    """As ``results``, with cells that differ only in their seeds joined: means over seeds, and
    intervals from a paired bootstrap over seeds and images."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.without_seed().model_dump_json(), []).append(cell)
    return joined(list(groups.values()), store=store, profile=profile)


def joined(
    groups: Sequence[Sequence[Cell]],
    *,
    store: Store | None = None,
    profile: str = "",
    metrics: Sequence[str] | None = None,
) -> pandas.DataFrame:
    """As ``summary``, for groups of cells that differ only in their seeds, group by group.

    ``metrics``: only rows of these, which saves computing the others.
    """
    return _frame(groups, store or Store(), profile, metrics)


def provenance(table: pandas.DataFrame, command: str) -> str:
    """One line that says how the numbers of ``table`` (from ``results`` or ``summary``) were made."""
    made = table[table.target_key.notna()] if "target_key" in table else table[:0]
    if not len(made):
        return f"Made by `{command}` · nothing could be computed"
    keys = list(dict.fromkeys(key for keys in made.score_key for key in keys.split(",")))
    attacks_only = made[made.kind == "attack"].drop_duplicates("reconstruction_key")
    priors = attacks_only.drop_duplicates("prior_key")  # several results may share a prior
    seconds = attacks_only.seconds.sum() + priors.prior_seconds.sum()
    parts = [
        f"Made by `{command}`",
        f"profile {_joined(set(made.profile))}",
        f"{_joined(set(made.dataset))}, {_joined(set(made.model))}",
        f"seeds {_joined(set(made.seed))}",
        f"n = {_span(made.n)}, m = {_span(made.m)}",
        f"matching {_joined(set(made.matching))}",
        f"target accuracy {_span(made.target_accuracy_train, '.2f')} on training, "
        f"{_span(made.target_accuracy_test, '.2f')} on test images",
        f"evaluators {_joined(set(made.evaluators))}",
        f"{_joined(set(made.device))}, {_joined(set(made.threads))} thread",
        _joined(set(made.versions)),
        f"{seconds:.0f} s of attacks and priors, peak {made.peak_memory_mb.max():.0f} MB",
        f"scores {', '.join(keys[:3])}{f' and {len(keys) - 3} more' if len(keys) > 3 else ''}",
    ]
    return " · ".join(parts)


def _span(values: Iterable[float], how: str = "g") -> str:
    low, high = format(min(values), how), format(max(values), how)
    return low if low == high else f"{low} to {high}"


def _frame(
    groups: Sequence[Sequence[Cell]], store: Store, profile: str, metrics: Sequence[str] | None = None
) -> pandas.DataFrame:
    import pandas

    planned = iter(_planned([cell for group in groups for cell in group]))
    plans = [[next(planned) for _ in group] for group in groups]
    table = pandas.DataFrame([row for each in plans for row in _rows(each, store, profile, metrics)])
    if not len(table):
        return table
    if "target_key" not in table:
        return table
    on = ["dataset", "target_size", "seed", "reconstructs", "metric"]
    holdout = table[(table.kind == "control") & table.attack.str.startswith(CONTROL_TITLES["holdout"])]
    ceiling = holdout.set_index(on)["coverage"].to_dict()
    table["coverage_holdout"] = [
        ceiling.get(row, math.nan) for row in table[on].itertuples(index=False, name=None)
    ]
    return table


def _read(task: Any, store: Store) -> Artifact:
    try:
        return store.load(task.kind, task.key)
    except (FileNotFoundError, DamagedArtifact) as error:
        raise UserError(f"{error}; compute it first with drlib.study.run") from None


def _load(planned: Plan, name: str, store: Store) -> Artifact:
    if planned.reason:
        raise UserError(f"{planned.cell.attack}: {planned.reason}")
    return _read(planned.tasks[name], store)


def _planned(cells: Sequence[Cell]) -> list[Plan]:
    """The plans of the cells. Those on one data set are planned together: few are kept in memory."""
    order = sorted(range(len(cells)), key=lambda place: cells[place].target.data.model_dump_json())
    plans = {place: plan(cells[place]) for place in order}
    return [plans[place] for place in range(len(cells))]


def _rows(
    plans: Sequence[Plan], store: Store, profile: str, metrics: Sequence[str] | None
) -> list[dict[str, Any]]:
    """The rows of one experiment: a cell, or cells that differ only in their seeds."""
    group = [item.cell for item in plans]
    base = _identity(group, profile)
    if plans[0].reason:
        usual = (*SAMPLE_METRICS, metric_name(group[0].extractor))
        return [
            base | {"metric": metric, "value": math.nan, "reason": plans[0].reason}
            for metric in usual
            if metrics is None or metric in metrics
        ]
    scores = [_load(item, "score", store) for item in plans]
    base |= _provenance(plans, scores, store)
    return [
        base | row()
        for metric, row in _values(scores, group[0].extractor)
        if metrics is None or metric in metrics
    ]


def _identity(group: Sequence[Cell], profile: str) -> dict[str, Any]:
    cell, data = group[0], group[0].target.data
    return {
        "paper_table": "",
        "dataset": _DATASETS.get(data.name, data.name),
        "model": _TITLES.get(cell.target.architecture, cell.target.architecture),
        "defense": "none",
        "attack": title(cell),
        "target_size": cell.target.size,
        "metric": "",
        "value": math.nan,
        "coverage_percent": math.nan,
        "kind": "control" if is_control(cell) else "attack",
        "reconstructs": "training images" if cell.target.update is None else "update images",
        "profile": profile,
        "seed": ",".join(str(item.seed) for item in group),
        "n": cell.samples,
        **dict.fromkeys(
            ("m", "k", "coverage", "coverage_floor", "coverage_chance", "coverage_holdout"), math.nan
        ),
        **dict.fromkeys(("value_low", "value_high", "value_median", "copies"), math.nan),
        "equal_size": cell.equal_size,
        "value_equal": math.nan,
        "value_all_classes": math.nan,
        **dict.fromkeys(("value_floor", "floor_n"), math.nan),
        **dict.fromkeys(
            ("value_target_m", "value_holdout_m", "gap", "gap_low", "gap_high", "gap_p"), math.nan
        ),
        "matching": "",
        "hyperparameters": _settings(cell),
        "reason": "",
        "extractor": cell.extractor,
    }


def _settings(cell: Cell) -> str:
    """The hyperparameters of an attack with their values, defaults written out; empty for a control."""
    if cell.is_control:
        return ""
    values = attack_of(cell).hyperparameters()
    return ", ".join(f"{name} {_setting(value)}" for name, value in values.items())


def _setting(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _provenance(plans: Sequence[Plan], scores: Sequence[Artifact], store: Store) -> dict[str, Any]:
    def load(name: str) -> list[Artifact]:
        return [_load(item, name, store) for item in plans]

    targets, made = load("target"), load("reconstruction")
    priors = _behind(plans, "prepared", store)
    surrogates = [item for item in _behind(plans, "target", store) if item.kind == "surrogate"]
    evaluators = [*load("evaluator_1"), *load("evaluator_2")]
    first = made[0].provenance
    accuracy = {artifact.spec["architecture"]: [] for artifact in evaluators}
    for artifact in evaluators:
        accuracy[artifact.spec["architecture"]].append(artifact.data["test_accuracy"])
    return {
        "n": scores[0].data["n"],
        "m": scores[0].data["m"],
        "k": scores[0].data["targets"] / targets[0].data["model"]["num_classes"],
        "matching": scores[0].data["matching"],
        "target_accuracy_train": _mean([target.data["train_accuracy"] for target in targets]),
        "target_accuracy_test": _mean([target.data["test_accuracy"] for target in targets]),
        "evaluators": ", ".join(f"{name} {_mean(values):.2f}" for name, values in accuracy.items()),
        "device": _joined({artifact.provenance["device"] for artifact in made}),
        "threads": _joined({artifact.provenance["threads"] for artifact in made}),
        "versions": _joined(
            {_versions(artifact.provenance["versions"]) for artifact in [*made, *targets, *scores]}
        ),
        "queries": _mean([artifact.data["queries"] for artifact in made]),
        "gradient_calls": _mean([artifact.data["gradient_calls"] for artifact in made]),
        "group_size": made[0].data["group_size"],
        "seconds": sum(artifact.provenance["seconds"] for artifact in made),
        "peak_memory_mb": max(artifact.provenance["peak_memory_mb"] for artifact in [*made, *priors]),
        "prior_seconds": sum(artifact.provenance["seconds"] for artifact in priors) if priors else math.nan,
        "prior_queries": _mean([artifact.data["queries"] for artifact in priors]),
        "agreement": _mean([artifact.data["agreement"] for artifact in surrogates]),
        "surrogate_queries": _mean([artifact.data["queries"] for artifact in surrogates]),
        "synthetic_batchnorm": any(item.data["model"]["synthetic_batchnorm"] for item in surrogates),
        "enforced_by": _joined({artifact.data.get("enforced_by", "") for artifact in made}),
        "facts": _facts(made),
        "drlib": first["versions"]["drlib"],
        **{
            f"{name}_key": ",".join(artifact.key[:8] for artifact in artifacts)
            for name, artifacts in (
                ("target", targets),
                ("prior", priors),
                ("reconstruction", made),
                ("score", scores),
            )
        },
    }


def _behind(plans: Sequence[Plan], name: str, store: Store) -> list[Artifact]:
    """A parent of the reconstructions, for those that have it: the prior, or the model that was attacked."""
    parents = [item.tasks["reconstruction"].parents for item in plans]
    parents = [found["samples"].parents if "samples" in found else found for found in parents]
    return [_read(found[name], store) for found in parents if name in found]


def _facts(made: Sequence[Artifact]) -> str:
    """What the adversary knows about the results, averaged over seeds: ``name 0.12, ...``."""
    names = dict.fromkeys(name for artifact in made for name in artifact.data.get("facts", {}))
    values = {name: _mean([artifact.data["facts"].get(name) for artifact in made]) for name in names}
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())


def _versions(versions: dict[str, str]) -> str:
    return f"torch {versions['torch']}, Python {versions['python']}, drlib {versions['drlib']}"


def _joined(values: set[Any]) -> str:
    """One value, or all of them: a table that mixes devices or versions says so."""
    return " and ".join(sorted(str(value) for value in values))


def _mean(values: Sequence[float | None]) -> float:
    known = [math.nan if value is None else value for value in values]
    return float(np.mean(known)) if known else math.nan


def _values(scores: Sequence[Artifact], extractor: str) -> Iterable[tuple[str, Callable[[], dict[str, Any]]]]:
    """Each metric, and what computes its row."""
    for metric in SAMPLE_METRICS:
        yield metric, partial(_sample_row, metric, scores)
    yield metric_name(extractor), partial(_frechet_row, metric_name(extractor), scores)
    judged = [
        name.removesuffix(".distance")
        for name in scores[0].data
        if name.startswith(("Confidence", "Accuracy"))
    ]
    for metric in judged:
        yield metric, partial(_judged_row, metric, scores)


def _tensors(scores: Sequence[Artifact], name: str) -> list[Tensor]:
    return [score.tensors[name].double() for score in scores if name in score.tensors]


def _per_image(scores: Sequence[Artifact], name: str) -> list[np.ndarray]:
    return [tensor.numpy() for tensor in _tensors(scores, name)]


def _sample_row(metric: str, scores: Sequence[Artifact]) -> dict[str, Any]:
    means = {
        name: _mean([score.data[f"{metric}.{name}"] for score in scores])
        for name in ("distance", "coverage", "coverage_floor", "coverage_chance", "median", "copies")
    }
    interval = paired_bootstrap(_per_image(scores, f"{metric}.values"))
    row = {
        "reason": f"no interval: {interval.reason}" if interval.reason else "",
        "metric": metric,
        "value": means["distance"],
        "value_low": interval.low,
        "value_high": interval.high,
        "value_median": means["median"],
        "copies": means["copies"],
        "coverage": means["coverage"],
        "coverage_percent": 100 * means["coverage"],
        "coverage_floor": means["coverage_floor"],
        "coverage_chance": means["coverage_chance"],
        "value_equal": _mean([score.data[f"{metric}.equal.distance"] for score in scores]),
        "value_all_classes": _mean([score.data[f"{metric}.all_classes.distance"] for score in scores]),
    }
    gap = _gap(metric, scores)
    return row | gap | {"reason": gap["reason"] or row["reason"]}


def _gap(metric: str, scores: Sequence[Artifact]) -> dict[str, Any]:
    """Leakage gap: closeness to m target images minus closeness to m holdout images, same k per class."""
    reason = scores[0].data["gap_reason"]
    target = _per_image(scores, f"{metric}.target_m.values")
    row: dict[str, Any] = {"reason": f"no gap: {reason}" if reason else ""}
    if target:
        row["value_target_m"] = float(np.mean(np.concatenate(target)))
    if reason:
        return row
    holdout = _per_image(scores, f"{metric}.holdout_m.values")
    sign = -1.0 if metric == "MSE" else 1.0
    differences = [sign * (a - b) for a, b in zip(target, holdout, strict=True)]
    if not all(np.isfinite(difference).all() for difference in differences):
        row["reason"] = "no gap: PSNR of an exact copy is infinite (see SSIM and MSE)"
        return row
    interval = paired_bootstrap(differences)
    if interval.reason:
        row["reason"] = f"no interval: {interval.reason}"
    return row | {
        "value_holdout_m": float(np.mean(np.concatenate(holdout))),
        "gap": interval.mean,
        "gap_low": interval.low,
        "gap_high": interval.high,
        "gap_p": p_value(torch.stack(_tensors(scores, f"{metric}.resplit_gaps")).mean(dim=0)),
    }


def _frechet_row(metric: str, scores: Sequence[Artifact]) -> dict[str, Any]:
    """Frechet distance: its gap is at equal n; the interval is over images, within each seed."""
    values = {
        side: _mean([score.data.get(f"{metric}.{side}distance") for score in scores])
        for side in ("", "target_m.", "holdout_m.", "equal.")
    }
    reason = scores[0].data[f"{metric}.reason"] or scores[0].data["gap_reason"] or ""
    errors = [math.nan if (e := s.data[f"{metric}.standard_error"]) is None else e for s in scores]
    reach = 1.96 * math.hypot(*errors) / len(errors)
    return {
        "metric": metric,
        "value": values[""],
        "value_low": max(0.0, values[""] - reach),
        "value_high": values[""] + reach,
        "value_floor": _mean([score.data[f"{metric}.floor"] for score in scores]),
        "floor_n": scores[0].data[f"{metric}.floor_n"],
        "value_target_m": values["target_m."],
        "value_holdout_m": values["holdout_m."],
        "value_equal": values["equal."],
        "gap": values["holdout_m."] - values["target_m."],
        "reason": reason,
    }


def _judged_row(metric: str, scores: Sequence[Artifact]) -> dict[str, Any]:
    values = _per_image(scores, f"{metric}.values")
    if not values:
        return {"metric": metric, "reason": "the attack does not label its output"}
    interval = paired_bootstrap(values)
    return {"metric": metric, "value": interval.mean, "value_low": interval.low, "value_high": interval.high}
