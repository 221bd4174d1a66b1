"""One experiment as validated data: which target, which attack, how many samples, which seed.

A ``Cell`` is one entry of a table before it is computed. Everything that can change its numbers is
written out in it; nothing else is (no profile name, no device, no thread count).
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from drlib.data import DataSpec
from drlib.declared import PRIOR_CONTROLS
from drlib.errors import UserError
from drlib.spec import Spec
from drlib.surrogate import SurrogateSpec
from drlib.training import TrainSpec

CONTROL_TITLES = {
    "noise": "Noise",
    "class_mean": "Class mean",
    "auxiliary_top": "Auxiliary top",
    "prior_sample": "Prior sample",
    "prior_best": "Best of the prior",
    "holdout": "Holdout",
}

CONTROLS = tuple(CONTROL_TITLES)
"""What stands beside every attack: the floor, two readings of the auxiliary data, samples of an attack's
prior before any optimization (``prior_sample:ATTACK``), those of many samples that the target is surest of
(``prior_best:ATTACK``), and unseen real images."""

MAX_SEED = 2**31 - 1

_EVALUATORS = ("lenet", "mlp", "convnet")


class UpdateSpec(Spec):
    """The update of a dynamic target with the first ``size`` images of the update split.

    ``training``: how the model goes on training (what Updates-Leak asks before and after). ``batch_size``:
    images per observed gradient (what Deep-Leakage sees); None for one gradient of all.
    """

    size: int = Field(100, ge=1)
    batch_size: int | None = Field(None, ge=1)
    training: TrainSpec = TrainSpec(
        epochs=1,
        min_steps=0,
        batch_size=64,
        optimizer="sgd",
        learning_rate=1e-2,
        weight_decay=0.0,
        schedule="constant",
    )

    @property
    def per_gradient(self) -> int:
        """Images per gradient. Raises ``UserError`` if they do not divide ``size``."""
        batch_size = self.size if self.batch_size is None else self.batch_size
        if self.size % batch_size:
            raise UserError(f"the update's batch_size must divide its size, got {batch_size} and {self.size}")
        return batch_size


class Target(Spec):
    """A target model: architecture, trained on the first ``size`` images of the target split.

    ``checkpoint``: the parameters that are attacked: "final", "init" (before training), or "epoch:k".
    ``update`` makes the target dynamic: D_tar is then what the update adds.
    """

    data: DataSpec = DataSpec()
    size: int = Field(100, ge=2)
    architecture: str = "convnet"
    width: float | None = None
    training: TrainSpec = TrainSpec()
    checkpoint: str = "final"
    seed: int = Field(0, ge=0, le=MAX_SEED)
    update: UpdateSpec | None = None

    @field_validator("checkpoint")
    @classmethod
    def _known_checkpoint(cls, value: str) -> str:
        name, _, epoch = value.partition(":")
        if value not in ("init", "final") and not (name == "epoch" and epoch.isdecimal() and int(epoch)):
            raise ValueError(f"checkpoint must be init, final or epoch:k with k from 1, got '{value}'")
        return value

    @property
    def epochs(self) -> int | None:
        """Epochs of training before the checkpoint; None for all."""
        if self.checkpoint == "final":
            return None
        return 0 if self.checkpoint == "init" else int(self.checkpoint.partition(":")[2])

    @property
    def reconstructed(self) -> int:
        """|D_tar|: the training set's size, or the update's."""
        return self.size if self.update is None else self.update.size

    @property
    def files(self) -> tuple[str, ...]:
        """The data set's files, closed to attacks (those of embedded data sets are closed anyway)."""
        if self.data.kind in ("folder", "npz"):
            return (self.data.name.partition(":")[2],)
        return (str(self.data.folder()),)

    def evaluators(self) -> tuple[str, str]:
        """Two architectures other than the target's, to judge reconstructions with."""
        first, second, *_ = (name for name in _EVALUATORS if name != self.architecture)
        return first, second


class Cell(Spec):
    """One attack (or control) on one target. ``attack`` is an attack's name or address, or a control's.

    ``n`` defaults to |D_tar| (Definition 3.2). ``equal_size`` adds values at a size that all cells of a
    comparison share: the first ``equal_size`` reconstructions against the first ``equal_size`` targets.
    ``surrogate``: a white-box attack gets a model made from queries instead of the target itself.
    """

    target: Target
    attack: str
    hyperparameters: dict[str, Any] = Field(default_factory=dict)
    n: int | None = Field(None, ge=1)
    equal_size: int | None = Field(None, ge=1)
    seed: int = Field(0, ge=0, le=MAX_SEED)
    extractor: str = "efficientnet_lite0"
    surrogate: SurrogateSpec | None = None

    @field_validator("attack")
    @classmethod
    def _no_control_of_an_attack_it_does_not_sample(cls, value: str) -> str:
        name, colon, _ = value.partition(":")
        if colon and name in CONTROLS and name not in PRIOR_CONTROLS:
            raise ValueError(f"the control {name} samples no attack's prior, got '{value}'")
        return value

    @property
    def samples(self) -> int:
        return self.n if self.n is not None else self.target.reconstructed

    @property
    def is_control(self) -> bool:
        return self.control is not None

    @property
    def control(self) -> str | None:
        """The control's name, without the attack whose prior it samples; None for an attack."""
        name = self.attack.partition(":")[0]
        return name if name in CONTROLS else None

    @property
    def samples_prior(self) -> bool:
        return self.control in PRIOR_CONTROLS

    @property
    def sampled_attack(self) -> str:
        """The attack whose prior a control samples; empty for other controls."""
        return self.attack.partition(":")[2]

    def without_seed(self) -> Cell:
        """The cell with all seeds at 0: cells that agree in it are repetitions of one experiment."""
        data = self.target.data.model_copy(update={"split_seed": 0})
        target = self.target.model_copy(update={"seed": 0, "data": data})
        return self.model_copy(update={"seed": 0, "target": target})
