"""What runs in an attack's process: the tasks target -> prepared -> reconstruction, behind the wall.

This module and all it imports know nothing of data sets or metrics. The process that runs it never loads
D_tar or the holdout, and no attack's code: each stage of an attack runs in a copy of the process (module
``apart``), which reads what is granted, is sealed, and gives back plain tensors. A black-box attack gets its
answers from a process of its own (module ``box``), so that its process holds no parameter of the target.
"""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from drlib import apart, attacks, guard, pool, surrogate
from drlib.box import RemoteBox
from drlib.errors import UserError
from drlib.provenance import default_device
from drlib.store import Artifact
from drlib.stored_model import description_of, restore, target_spec
from drlib.types import (
    PREPARE_SEED,
    Attack,
    Auxiliary,
    BlackBox,
    Gradients,
    NoAccess,
    Prepared,
    Progress,
    Reconstruction,
    WhiteBox,
    balanced_labels,
)

Made = tuple[dict[str, Tensor], dict[str, Any]]


@dataclass
class Granted:
    """What an attack is given, read before its own code runs."""

    access: BlackBox | NoAccess
    auxiliary: Auxiliary | None = None
    prepared: Prepared | None = None


@functools.cache
def _remote_box(store_root: str) -> RemoteBox:
    """This process's box; started once, before the first black-box attack is sealed."""
    return RemoteBox(store_root)


def view(spec: Mapping[str, Any], parents: Mapping[str, Artifact]) -> BlackBox | NoAccess:
    """The access that the attack's declared knowledge grants, and no more."""
    if "target" not in parents:
        return NoAccess(target_spec(spec["target"]), default_device())
    if spec["access"] == "black_box":
        box = _remote_box(parents.closed[0])
        if "update" in parents:
            return box.update(parents.address("update"), parents.address("target"))
        return box.black_box(parents.address("target"))
    white_box = restore(parents["target"])
    if "gradients" not in parents:
        return white_box
    observed = parents["gradients"]
    return Gradients(
        white_box.model, white_box.spec, observed.tensors, observed.data["batch_size"], white_box.device
    )


def prepare(spec: dict[str, Any], parents: Mapping[str, Artifact], progress: Progress) -> Made:
    """The first stage of an attack: priors, shadow models. Its data say which auxiliary split it saw."""

    def setup() -> tuple[Granted, dict[str, Any]]:
        split = parents["auxiliary"].data if "auxiliary" in parents else {}
        return Granted(view(spec, parents), _auxiliary(spec, parents)), {"trained_on": split}

    def stage(granted: Granted, progress: Progress) -> Made:
        attack = attacks.create(spec["attack"], spec["hyperparameters"])
        generator = torch.Generator().manual_seed(spec["seed"] + PREPARE_SEED)
        before = _state(granted.access)
        made = attack.prepare(granted.access, granted.auxiliary, generator=generator, progress=progress)
        _check_left_as_found(attack, granted.access, before)
        if not isinstance(made, dict) or not all(isinstance(value, Tensor) for value in made.values()):
            raise UserError(f"{attack.title}: prepare() must return a dictionary of tensors")
        return made, _spent(granted.access)

    result = _behind_the_wall(setup, stage, spec, parents, progress)
    return result.tensors, {**_counted(result), **result.told}


def reconstruct(spec: dict[str, Any], parents: Mapping[str, Artifact], progress: Progress) -> Made:
    """Run one attack on one stored target: (tensors, data) of the reconstruction artifact."""

    def setup() -> tuple[Granted, dict[str, Any]]:
        prepared = parents["prepared"].tensors if "prepared" in parents else None
        granted = Granted(view(spec, parents), prepared=prepared)
        target = granted.access.spec
        return granted, {"shape": list(target.shape), "num_classes": target.num_classes}

    def stage(granted: Granted, progress: Progress) -> Made:
        attack = attacks.create(spec["attack"], spec["hyperparameters"])
        before = _state(granted.access)
        started = time.perf_counter()
        made = attack.reconstruct(
            granted.access,
            granted.prepared,
            n=spec["n"],
            labels=balanced_labels(spec["n"], granted.access.spec.num_classes),
            generator=torch.Generator().manual_seed(spec["seed"]),
            progress=progress,
        )
        seconds = time.perf_counter() - started
        _check_left_as_found(attack, granted.access, before)
        return _taken_apart(made, attack, seconds, granted.access)

    result = _behind_the_wall(setup, stage, spec, parents, progress)
    _check_promises(result.tensors, spec, result.told)
    group_size = result.data["group_size"]
    data = {
        "seconds": float(result.data["seconds"]),
        "group_size": None if group_size is None else int(group_size),
        "facts": {str(name): float(value) for name, value in result.data["facts"].items()},
        **_counted(result),
    }
    return {name: result.tensors[name] for name in PARTS if name in result.tensors}, data


PARTS = ("images", "loss_history", "labels")


def sample_prior(spec: dict[str, Any], parents: Mapping[str, Artifact], progress: Progress) -> Made:
    """Samples of a prior before any optimization, for controls: the attack's own code draws them, too."""
    labels = balanced_labels(spec["n"], spec["num_classes"])

    def stage(prepared: Prepared, progress: Progress) -> Made:
        attack = attacks.create(spec["attack"], spec["hyperparameters"])
        generator = torch.Generator().manual_seed(spec["seed"])
        images = attack.prior_samples(prepared, n=spec["n"], labels=labels, generator=generator)
        return {"images": images}, {"queries": 0, "gradient_calls": 0}

    result = _behind_the_wall(lambda: (parents["prepared"].tensors, {}), stage, spec, parents, progress)
    return {"images": result.tensors["images"]}, {"enforced_by": result.enforced_by}


def make_surrogate(spec: dict[str, Any], parents: Mapping[str, Artifact], progress: Progress) -> Made:
    """A white box made of queries: (parameters, data with its agreement and what it cost)."""
    how = surrogate.SurrogateSpec(**spec["surrogate"])

    def setup() -> tuple[Granted, dict[str, Any]]:
        auxiliary = Auxiliary(parents["auxiliary"].tensors["images"]) if "auxiliary" in parents else None
        return Granted(view(spec, parents), auxiliary), {}

    def stage(granted: Granted, progress: Progress) -> Made:
        generator = torch.Generator().manual_seed(spec["seed"] + PREPARE_SEED)
        made = surrogate.make(granted.access, granted.auxiliary, how, generator=generator, progress=progress)
        told = surrogate.white_box(made.model, granted.access.spec, architecture=how.architecture).spec
        data = {
            "model": description_of(replace(told, recipe={"width": how.width})),
            "agreement": made.agreement,
            "facts": made.facts,
        }
        return made.model.state_dict(), data | _spent(granted.access)

    result = _behind_the_wall(setup, stage, spec, parents, progress)
    kept = {name: result.data[name] for name in ("model", "agreement", "facts")}
    return result.tensors, kept | _counted(result)


def _behind_the_wall(setup, stage, spec, parents, progress) -> apart.Result:
    """Run the stage apart. A black box counts for itself: what it was asked is no attack's to say."""
    closed = getattr(parents, "closed", ())
    if spec.get("access") != "black_box" or "target" not in parents:
        return apart.run(setup, stage, closed=closed, progress=progress)
    box = _remote_box(parents.closed[0])
    before = box.asked()
    result = apart.run(setup, stage, closed=closed, progress=progress, keep=box.pipes())
    counted = {"queries": box.asked() - before, "gradient_calls": 0}
    return replace(result, data={**result.data, **counted})


def _auxiliary(spec: Mapping[str, Any], parents: Mapping[str, Artifact]) -> Auxiliary | None:
    """The auxiliary data that the attack is granted; labels only if it declares that it needs them."""
    if "auxiliary" not in parents:
        return None
    tensors = parents["auxiliary"].tensors
    return Auxiliary(tensors["images"], tensors["labels"] if spec["auxiliary_labels"] else None)


def _spent(access: BlackBox | NoAccess) -> dict[str, int]:
    return {"queries": access.queries, "gradient_calls": access.gradient_calls}


def _counted(result: apart.Result) -> dict[str, Any]:
    return {
        "queries": int(result.data["queries"]),
        "gradient_calls": int(result.data["gradient_calls"]),
        "enforced_by": result.enforced_by,
        "peak_memory_mb": result.peak_memory_mb,
    }


def _taken_apart(made: Reconstruction, attack: Attack, seconds: float, access: BlackBox) -> Made:
    """A reconstruction as tensors and numbers; the counts are those of the access, whatever it claims."""
    if not isinstance(made, Reconstruction):
        raise UserError(
            f"{attack.title} returned a {type(made).__name__}, expected a drlib.types.Reconstruction"
        )
    tensors = {"images": made.images, "loss_history": made.loss_history}
    if made.labels is not None:
        tensors["labels"] = made.labels
    facts = {str(name): float(value) for name, value in made.facts.items()}
    return tensors, {"seconds": seconds, "group_size": made.group_size, "facts": facts, **_spent(access)}


def _state(access: BlackBox | NoAccess) -> dict[str, Any]:
    """What an attack must leave as it is: mode, parameters and buffers of a white box."""
    if not isinstance(access, WhiteBox):
        return {}
    state = {name: value.clone() for name, value in access.model.state_dict().items()}
    return {"mode": torch.tensor(access.model.training), **state}


def _check_left_as_found(attack: Attack, access: BlackBox | NoAccess, before: dict[str, Any]) -> None:
    after = _state(access)
    if after.keys() != before.keys() or not all(torch.equal(after[name], before[name]) for name in before):
        raise UserError(f"{attack.title} did not leave the target model as it found it")


def _check_promises(made: Mapping[str, Tensor], spec: Mapping[str, Any], target: Mapping[str, Any]) -> None:
    title, asked = spec["title"], (spec["n"], *target["shape"])
    if made["images"].shape != asked or not made["images"].is_floating_point():
        raise UserError(
            f"{title} returned images of shape {tuple(made['images'].shape)}, "
            f"asked for {asked} (Definition 3.2)"
        )
    if ("labels" in made) != spec["labeled"]:
        raise UserError(f"{title} declares labeled={spec['labeled']} but returned labels={'labels' in made}")
    wanted = balanced_labels(spec["n"], target["num_classes"])
    if "labels" in made and not torch.equal(made["labels"].sort().values, wanted.sort().values):
        raise UserError(f"{title} returned labels that are not the balanced ones it was asked for")


def get_ready(store_root: str) -> None:
    """Before the first job: the audit hook, and the imports that every copy would do again (3 seconds)."""
    guard.install(store_root)
    for name in attacks.names():
        attacks.get(name)
    for module in ("sklearn.cluster", "torch._dynamo"):  # what k-means and torch.optim load when first used
        importlib.import_module(module)


if __name__ == "__main__":
    pool.serve(
        {
            "prepared": prepare,
            "reconstruction": reconstruct,
            "prior_samples": sample_prior,
            "surrogate": make_surrogate,
        },
        get_ready,
    )
