"""One experiment as validated data: which target, which attack, how many samples, which seed.

A ``Cell`` is one entry of a table before it is computed. Everything that can change its numbers is
written out in it; nothing else is (no profile name, no device, no thread count).
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from drlib.data import DataSpec
from drlib.training import TrainSpec

CONTROLS = ("noise", "class_mean", "auxiliary_top", "holdout")
"""What stands beside every attack: the floor, two readings of the auxiliary data, and unseen real images."""

CONTROL_TITLES = {
    "noise": "Noise",
    "class_mean": "Class mean",
    "auxiliary_top": "Auxiliary top",
    "holdout": "Holdout",
}

MAX_SEED = 2**31 - 1

_EVALUATORS = ("lenet", "mlp", "convnet")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Target(_Frozen):
    """A target model: architecture, trained on the first ``size`` images of the target split."""

    data: DataSpec = DataSpec()
    size: int = Field(100, ge=1)
    architecture: str = "convnet"
    width: float | None = None
    training: TrainSpec = TrainSpec()
    seed: int = Field(0, ge=0, le=MAX_SEED)

    def evaluators(self) -> tuple[str, str]:
        """Two architectures other than the target's, to judge reconstructions with."""
        first, second, *_ = (name for name in _EVALUATORS if name != self.architecture)
        return first, second


class Cell(_Frozen):
    """One attack (or control) on one target.

    ``n`` defaults to |D_tar| (Definition 3.2). ``equal_size`` adds values at a size that all cells of a
    comparison share: the first ``equal_size`` reconstructions against the first ``equal_size`` targets.
    """

    target: Target
    attack: str
    hyperparameters: dict[str, Any] = Field(default_factory=dict)
    n: int | None = Field(None, ge=1)
    equal_size: int | None = Field(None, ge=1)
    seed: int = Field(0, ge=0, le=MAX_SEED)
    extractor: str = "efficientnet_lite0"

    @property
    def samples(self) -> int:
        return self.n if self.n is not None else self.target.size

    @property
    def is_control(self) -> bool:
        return self.attack in CONTROLS

    def without_seed(self) -> Cell:
        """The cell with all seeds at 0: cells that agree in it are repetitions of one experiment."""
        data = self.target.data.model_copy(update={"split_seed": 0})
        target = self.target.model_copy(update={"seed": 0, "data": data})
        return self.model_copy(update={"seed": 0, "target": target})
