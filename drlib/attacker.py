"""What runs in the attack's process: the guard, and the task target -> reconstruction.

This module and all it imports know nothing of data sets or metrics. The process that runs it never
loads D_tar or the holdout; ``install_guard`` makes an attempt to do so an ``AccessError``. While an attack
runs, its process may not open anything in the store, start a process, rename or link a file.

What remains possible, because it raises no audit event: opening a file through compiled code (safetensors
and ``torch.UntypedStorage.from_file`` do) or relative to an open folder (``dir_fd``), and reading the
interpreter's own memory. The guard stops mistakes and plain cheating, not a determined attacker.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from drlib import attacks, models, pool
from drlib.errors import UserError
from drlib.provenance import default_device
from drlib.types import (
    NO_DATA,
    WHITE_BOX,
    AccessError,
    Attack,
    BlackBox,
    Progress,
    Reconstruction,
    TargetSpec,
    WhiteBox,
    balanced_labels,
)

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
    """The time in which an attack runs: with the guard installed, the store is closed to the process."""
    global _sealed
    _sealed = True
    try:
        yield
    finally:
        _sealed = False


def install_guard(store_root: str | Path) -> None:
    """Refuse, for the rest of this process, to import a data set; and what ``sealed`` blocks refuse.

    Raises ``AccessError`` inside the offending call. An audit hook cannot be removed again.
    """
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


def target_model(spec: dict[str, Any], tensors: dict[str, Tensor], data: dict[str, Any]) -> WhiteBox:
    """Rebuild the white-box view of a stored target model."""
    shape = tuple(data["shape"])
    model = models.build(
        spec["architecture"], shape=shape, num_classes=data["num_classes"], width=spec["width"]
    )
    model.load_state_dict(tensors, strict=True)
    model.to(memory_format=torch.channels_last)
    facts = TargetSpec(
        spec["architecture"], shape, data["num_classes"], data["has_batchnorm"], tuple(data["classes"])
    )
    return WhiteBox(model, facts, default_device())


def view(white_box: WhiteBox, attack: Attack) -> BlackBox:
    """The access that the attack's knowledge grants, and no more."""
    if attack.knowledge.model == WHITE_BOX:
        return white_box
    return BlackBox(white_box.query, white_box.spec, white_box.device)


def reconstruct(
    spec: dict[str, Any], parents: dict[str, Any], progress: Progress
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Run one attack on one stored target: (tensors, data) of the reconstruction artifact."""
    attack = attacks.create(spec["attack"], spec["hyperparameters"])
    target = parents["target"]
    access = view(target_model(target.spec, target.tensors, target.data), attack)
    auxiliary = None if attack.knowledge.dataset == NO_DATA else parents["auxiliary"].tensors["images"]
    started = time.perf_counter()
    before = _state(access)
    with sealed():
        result = attack.run(access, n=spec["n"], auxiliary=auxiliary, seed=spec["seed"], progress=progress)
    if _state(access) != before:
        raise UserError(f"{attack.title} did not leave the target model as it found it")
    _check_promises(result, spec["n"], access.spec, attack)
    tensors = {"images": result.images, "loss_history": result.loss_history}
    if result.labels is not None:
        tensors["labels"] = result.labels
    data = {
        "seconds": time.perf_counter() - started,
        "queries": result.queries,
        "gradient_calls": result.gradient_calls,
        "group_size": result.group_size,
    }
    return tensors, data


def _state(access: BlackBox) -> list[Any]:
    """What an attack must leave as it is: mode, parameters and buffers of a white box."""
    if not isinstance(access, WhiteBox):
        return []
    tensors = access.model.state_dict().values()
    return [access.model.training, *(float(tensor.double().sum()) for tensor in tensors)]


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


def _guarded(store_root: str) -> None:
    loaded = [name for name in FORBIDDEN_MODULES if name in sys.modules]
    if loaded:
        raise AccessError(f"an attack's process must not have loaded {', '.join(loaded)}")
    install_guard(store_root)


if __name__ == "__main__":
    pool.serve({"reconstruction": reconstruct}, _guarded)
