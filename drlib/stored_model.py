"""Models in the store: what is written beside their parameters, and the view that is made of them again."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from drlib import models
from drlib.provenance import default_device
from drlib.store import Artifact
from drlib.types import TargetSpec, WhiteBox


def description_of(spec: TargetSpec) -> dict[str, Any]:
    """A target's specification as JSON values; it includes what ``models.build`` needs."""
    return {
        **dataclasses.asdict(spec),
        "shape": list(spec.shape),
        "classes": spec.classes and list(spec.classes),
    }


def target_spec(described: dict[str, Any]) -> TargetSpec:
    """The specification that ``description_of`` described."""
    classes = described["classes"]
    return TargetSpec(
        **{
            **described,
            "shape": tuple(described["shape"]),
            "classes": None if classes is None else tuple(classes),
        }
    )


def restore(artifact: Artifact) -> WhiteBox:
    """The white-box view of a stored model: a target, an updated target, an evaluator, a surrogate."""
    spec = target_spec(artifact.data["model"])
    model = models.build(
        spec.architecture, shape=spec.shape, num_classes=spec.num_classes, width=spec.recipe["width"]
    )
    model.load_state_dict(artifact.tensors, strict=True)
    model.to(memory_format=torch.channels_last)
    return WhiteBox(model, spec, default_device())
