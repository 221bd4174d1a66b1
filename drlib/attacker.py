"""What runs in an attack's process: the tasks target -> prepared -> reconstruction, behind the wall.

This module and all it imports know nothing of data sets or metrics. The process that runs it never loads
D_tar or the holdout. While an attack runs, it is sealed (module ``guard``). A black-box attack gets its
answers from a process of its own (module ``box``), so that its process holds no parameter of the target.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from drlib import attacks, guard, pool, surrogate
from drlib.box import RemoteBox
from drlib.errors import UserError
from drlib.provenance import default_device
from drlib.store import Artifact
from drlib.stored_model import description_of, restore, target_spec
from drlib.types import (
    BLACK_BOX,
    DYNAMIC,
    PREPARE_SEED,
    Attack,
    Auxiliary,
    BlackBox,
    Gradients,
    NoAccess,
    Prepared,
    Progress,
    Reconstruction,
    TargetSpec,
    WhiteBox,
    balanced_labels,
)

Made = tuple[dict[str, Tensor], dict[str, Any]]


@functools.cache
def _remote_box(store_root: str) -> RemoteBox:
    """This process's box; started once, before the first black-box attack is sealed."""
    return RemoteBox(store_root)


def _create(spec: dict[str, Any]) -> Attack:
    with guard.sealed():  # a foreign module's own statements run here
        return attacks.create(spec["attack"], spec["hyperparameters"])


def view(attack: Attack, parents: Mapping[str, Artifact]) -> BlackBox:
    """The access that the attack's knowledge grants, and no more."""
    dynamic = attack.knowledge.training == DYNAMIC
    if attack.knowledge.model == BLACK_BOX:
        box = _remote_box(parents.closed[0])
        if dynamic:
            return box.update(parents.address("update"), parents.address("target"))
        return box.black_box(parents.address("target"))
    white_box = restore(parents["target"])
    if not dynamic:
        return white_box
    observed = parents["gradients"]
    return Gradients(
        white_box.model, white_box.spec, observed.tensors, observed.data["batch_size"], white_box.device
    )


def prepare(spec: dict[str, Any], parents: Mapping[str, Artifact], progress: Progress) -> Made:
    """The first stage of an attack: priors, shadow models. Its data say which auxiliary split it saw."""
    attack = _create(spec)
    if attack.prior_sees_target:
        access: BlackBox | NoAccess = view(attack, parents)
    else:
        access = NoAccess(target_spec(spec["target"]), default_device())
    auxiliary = _auxiliary(attack, parents)
    before = _state(access)

    def stage() -> Prepared:
        generator = torch.Generator().manual_seed(spec["seed"] + PREPARE_SEED)
        return attack.prepare(access, auxiliary, generator=generator, progress=progress)

    made, enforced = guard.run_sealed(stage, getattr(parents, "closed", ()))
    _check_left_as_found(attack, access, before)
    if not isinstance(made, dict) or not all(isinstance(value, Tensor) for value in made.values()):
        raise UserError(f"{attack.title}: prepare() must return a dictionary of tensors")
    split = parents["auxiliary"].data if auxiliary is not None else {}
    data = {
        "queries": access.queries,
        "gradient_calls": access.gradient_calls,
        "trained_on": split,
        "enforced_by": enforced,
    }
    return {name: value.detach().cpu() for name, value in made.items()}, data


def _auxiliary(attack: Attack, parents: Mapping[str, Artifact]) -> Auxiliary | None:
    """The auxiliary data that the attack is granted; labels only if it declares that it needs them."""
    if "auxiliary" not in parents:
        return None
    tensors = parents["auxiliary"].tensors
    return Auxiliary(tensors["images"], tensors["labels"] if attack.auxiliary_labels else None)


def reconstruct(spec: dict[str, Any], parents: Mapping[str, Artifact], progress: Progress) -> Made:
    """Run one attack on one stored target: (tensors, data) of the reconstruction artifact."""
    attack = _create(spec)
    access = view(attack, parents)
    prepared = parents["prepared"].tensors if "prepared" in parents else None
    started = time.perf_counter()
    before = _state(access)

    def stage() -> Reconstruction:
        return attack.reconstruct(
            access,
            prepared,
            n=spec["n"],
            labels=balanced_labels(spec["n"], access.spec.num_classes),
            generator=torch.Generator().manual_seed(spec["seed"]),
            progress=progress,
        )

    result, enforced = guard.run_sealed(stage, getattr(parents, "closed", ()))
    _check_left_as_found(attack, access, before)
    _check_promises(result, spec["n"], access.spec, attack)
    tensors = {"images": result.images, "loss_history": result.loss_history}
    if result.labels is not None:
        tensors["labels"] = result.labels
    data = {
        "seconds": time.perf_counter() - started,
        "queries": result.queries,
        "gradient_calls": result.gradient_calls,
        "group_size": result.group_size,
        "facts": {name: float(value) for name, value in result.facts.items()},
        "enforced_by": enforced,
    }
    return tensors, data


def make_surrogate(spec: dict[str, Any], parents: Mapping[str, Artifact], progress: Progress) -> Made:
    """A white box made of queries: (parameters, data with its agreement and what it cost)."""
    access = _remote_box(parents.closed[0]).black_box(parents.address("target"))
    auxiliary = Auxiliary(parents["auxiliary"].tensors["images"]) if "auxiliary" in parents else None

    how = surrogate.SurrogateSpec(**spec["surrogate"])

    def stage() -> surrogate.Surrogate:
        return surrogate.make(
            access,
            auxiliary,
            how,
            generator=torch.Generator().manual_seed(spec["seed"] + PREPARE_SEED),
            progress=progress,
        )

    made, enforced = guard.run_sealed(stage, parents.closed)
    told = surrogate.white_box(made.model, access.spec, architecture=how.architecture).spec
    data = {
        "model": description_of(replace(told, recipe={"width": how.width})),
        "agreement": made.agreement,
        "queries": access.queries,
        "facts": made.facts,
        "enforced_by": enforced,
    }
    return {name: value.cpu() for name, value in made.model.state_dict().items()}, data


def _state(access: BlackBox | NoAccess) -> list[Any]:
    """What an attack must leave as it is: mode, parameters and buffers of a white box."""
    if not isinstance(access, WhiteBox):
        return []
    tensors = access.model.state_dict().values()
    return [access.model.training, *(float(tensor.double().sum()) for tensor in tensors)]


def _check_left_as_found(attack: Attack, access: BlackBox | NoAccess, before: list[Any]) -> None:
    if _state(access) != before:
        raise UserError(f"{attack.title} did not leave the target model as it found it")


def _check_promises(made: Reconstruction, n: int, spec: TargetSpec, attack: Attack) -> None:
    if not isinstance(made, Reconstruction):
        raise UserError(
            f"{attack.title} returned a {type(made).__name__}, expected a drlib.types.Reconstruction"
        )
    if made.images.shape != (n, *spec.shape):
        raise UserError(
            f"{attack.title} returned images of shape {tuple(made.images.shape)}, "
            f"asked for {(n, *spec.shape)} (Definition 3.2)"
        )
    if (made.labels is not None) != attack.labeled:
        raise UserError(
            f"{attack.title} declares labeled={attack.labeled} but returned labels={made.labels is not None}"
        )
    asked = balanced_labels(n, spec.num_classes)
    if made.labels is not None and not torch.equal(made.labels.sort().values, asked.sort().values):
        raise UserError(f"{attack.title} returned labels that are not the balanced ones it was asked for")


if __name__ == "__main__":
    pool.serve(
        {"prepared": prepare, "reconstruction": reconstruct, "surrogate": make_surrogate}, guard.install
    )
