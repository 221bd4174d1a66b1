"""The sections: their parameters, what each regenerates of the paper, and the cells it needs.

A parameter's value comes from the profile, unless the reader says otherwise (``-p``, ``-y``, or the
``parameters`` cell of a notebook). Everything is checked here, before anything starts and without
importing torch: names with the nearest match, types, ranges, data sets, architectures, attacks.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo

from drlib import data, declared, profiles
from drlib.data import DataSpec
from drlib.errors import UserError, unknown

if TYPE_CHECKING:
    from drlib.cells import Cell, Target
    from drlib.data import Split
    from drlib.experiments.ensemble import Ensemble
    from drlib.experiments.generated_set import GeneratedSet
    from drlib.experiments.robust import RobustEvaluator
    from drlib.study import Experiment
    from drlib.training import TrainSpec

CONTROLS = ("noise", "class_mean", "auxiliary_top", "prior_sample", "prior_best", "unconditional", "holdout")
"""What can stand beside the attacks. ``prior_sample``, ``prior_best`` and ``unconditional`` stand for a
control of each attack that has a prior, or a condition that it can ignore."""

_USUAL_CONTROLS = ("noise", "class_mean", "auxiliary_top", "holdout")
SURROGATES = ("distillation", "extraction")
EXTRACTORS = ("efficientnet_lite0", "inception")


def _parameter(description: str, allowed: str, **constraints: Any) -> Any:
    """A field: what it is for the reader, and what is allowed, in the words of a refusal."""
    return Field(description=description, json_schema_extra={"allowed": allowed}, **constraints)


def _unique(values: tuple[Any, ...]) -> tuple[Any, ...]:
    repeated = sorted({str(value) for value in values if values.count(value) > 1})
    if repeated:
        raise UserError(f"{', '.join(repeated)} is given twice")
    return values


# A YAML or notebook list becomes a tuple; its entries stay strictly typed.
Words = Annotated[tuple[str, ...], Field(strict=False)]
Sizes = Annotated[tuple[Annotated[int, Field(strict=True, ge=1)], ...], Field(strict=False, min_length=1)]
Multiples = Annotated[
    tuple[Annotated[float, Field(strict=True, gt=0)], ...], Field(strict=False, min_length=1)
]
Scalars = dict[str, str | bool | int | float | list[Any] | None]


ORDER = [
    "profile",
    "dataset",
    "side",
    "channels",
    "mode",
    "architecture",
    "width",
    "target_size",
    "target_sizes",
    "attacks",
    "controls",
    "seed",
    "repeats",
    "n",
    "multiples",
    "convergence_size",
    "gradient_batches",
    "gradient_images",
    "surrogates",
    "surrogate_attack",
    "draws",
    "judge",
    "epsilon",
    "generated_images",
    "perplexity",
    "space",
    "models",
    "ratio",
    "flipped",
    "fewer_classes",
    "tiny_size",
    "tiny_models",
    "extractor",
    "training",
    "hyperparameters",
    "root",
    "download",
]
"""How parameters are listed, whichever section has them."""


class Parameters(BaseModel):
    """What all sections share. Frozen; unknown names are refused; nothing is converted silently."""

    # A validator is built when its section is first used: a refusal needs one of them.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)

    slug: ClassVar[str]
    profile: str = _parameter(
        "the profile that supplies whatever is not set here (training, hyperparameters)",
        f"one of {', '.join(profiles.NAMES)}",
    )

    @field_validator("profile")
    @classmethod
    def _known_profile(cls, value: str) -> str:
        if value not in profiles.NAMES:
            raise unknown("profile", value, profiles.NAMES)
        return value

    def check_files(self) -> None:
        """Raise ``UserError`` unless the files that the section reads are there. Loads nothing."""

    def cells(self) -> list[Cell | Experiment]:
        """What the section's tables and figures are made of (nothing for a section of prose)."""
        return []

    def reads(self) -> list[Cell | Experiment]:
        """What this section shows of others' if it has been computed."""
        return []

    def values(self) -> dict[str, Any]:
        """All parameters as plain JSON values, for a notebook's ``parameters`` cell."""
        values = self.model_dump(mode="json")
        return {name: values[name] for name in self.names()}

    @classmethod
    def names(cls) -> list[str]:
        """The parameters in the order in which a reader meets them, ``profile`` first."""
        return sorted(cls.model_fields, key=ORDER.index)

    def changes(self) -> dict[str, Any]:
        """The parameters that differ from the profile's, as plain JSON values."""
        usual = parameters(self.slug, self.profile).values()
        return {
            name: value for name, value in self.values().items() if name != "profile" and value != usual[name]
        }

    def command(self) -> str:
        """The command that runs this section with these parameters."""
        changes = [f"-p {shlex.quote(f'{name}={written(value)}')}" for name, value in self.changes().items()]
        return " ".join([f"drlib run {self.slug} --profile {self.profile}", *changes])


class ImageData(Parameters):
    """A section that reads images."""

    dataset: str = _parameter(
        "the data set whose target split is to be reconstructed",
        "a data set name, folder:PATH or npz:PATH",
    )
    side: int = _parameter("image height and width in pixels", "a whole number from 8 to 64", ge=8, le=64)
    channels: Literal[1, 3] = _parameter("1 for gray images, 3 for color", "1 or 3")
    mode: Literal["class", "identity"] = _parameter(
        "what a label means: the object class, or (lfw_subset) the single image", "class or identity"
    )
    root: str | None = _parameter(
        "folder of downloaded data sets; none: $DRLIB_DATA or ~/.cache/drlib/data",
        "a folder, or none",
        default=None,
    )
    download: bool = _parameter("may missing files be downloaded?", "true or false", default=False)

    @field_validator("dataset")
    @classmethod
    def _known_dataset(cls, value: str) -> str:
        # A path becomes absolute here: a notebook runs in another folder than the command.
        return DataSpec(name=value).name

    @field_validator("root")
    @classmethod
    def _absolute_root(cls, value: str | None) -> str | None:
        return None if value is None else str(Path(value).expanduser().resolve())

    @model_validator(mode="after")
    def _consistent_data(self) -> Self:
        largest = declared.LARGEST_TARGET.get((self.dataset, self.data_spec().mode))
        for size in self.sizes:
            if largest is not None and size > largest:
                raise UserError(f"the target split of {self.dataset} has {largest} images, fewer than {size}")
        return self

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the target data set, ascending."""
        raise NotImplementedError

    def data_spec(self) -> DataSpec:
        """The ``drlib.data.DataSpec`` of these parameters."""
        names = ("side", "channels", "mode", "root", "download")
        return DataSpec(name=self.dataset, **{name: getattr(self, name) for name in names})

    def splits(self, seed: int | None = None) -> data.Splits:
        """The images, as the targets of ``seed`` (default: the section's own) are given them."""
        own = getattr(self, "seed", 0) if seed is None else seed
        return data.load_splits(self.data_spec().model_copy(update={"split_seed": own}))

    def check_files(self) -> None:
        data.check(self.data_spec())


class AttackedModel(ImageData):
    """A section that trains target models and attacks them."""

    architecture: str = _parameter(
        "the target model's architecture", f"one of {', '.join(declared.ARCHITECTURES)}"
    )
    width: float | None = _parameter(
        "factor on the architecture's width; none: as published",
        "a number above 0, or none",
        gt=0,
        default=None,
    )
    attacks: Words = _parameter(
        "attacks to run: registered names, or module:Class for your own",
        "a list of attacks, such as [mi_face, deep_inversion]",
        min_length=1,
    )
    controls: Words = _parameter(
        "what stands beside every attack", f"a list out of {', '.join(CONTROLS)}", default=_USUAL_CONTROLS
    )
    seed: int = _parameter(
        "the first random seed (of target model and attack)",
        "a whole number from 0 to 2147483547",
        ge=0,
        le=2**31 - 101,
    )
    n: int | None = _parameter(
        "reconstructions per target; none: as many as target images", "a whole number from 1, or none",
        ge=1, default=None,
    )  # fmt: skip
    extractor: str = _parameter("features of the Frechet distance", f"one of {', '.join(EXTRACTORS)}")
    training: Scalars = _parameter(
        "changes to the profile's training of target models", "a mapping, such as {epochs: 10}", default={}
    )
    hyperparameters: dict[str, Scalars] = _parameter(
        "changes to the profile's hyperparameters, by attack; none: the original paper's",
        "a mapping by attack, such as {mi_face: {steps: 100}}",
        default={},
    )

    @field_validator("architecture")
    @classmethod
    def _known_architecture(cls, value: str) -> str:
        if value not in declared.ARCHITECTURES:
            raise unknown("architecture", value, declared.ARCHITECTURES)
        return value

    @field_validator("attacks")
    @classmethod
    def _known_attacks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for attack in _unique(value):
            declared.check_attack(attack)
        return value

    @field_validator("controls")
    @classmethod
    def _known_controls(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for control in _unique(value):
            if control not in CONTROLS:
                raise unknown("control", control, CONTROLS)
        return value

    @field_validator("extractor")
    @classmethod
    def _known_extractor(cls, value: str) -> str:
        if value not in EXTRACTORS:
            raise unknown("extractor", value, EXTRACTORS)
        return value

    @model_validator(mode="after")
    def _known_hyperparameters(self) -> Self:
        for attack, values in self.hyperparameters.items():
            if attack not in self.attacks:
                raise unknown("attack in hyperparameters", attack, self.attacks)
            declared.check_hyperparameters(attack, values)
        return self

    @model_validator(mode="after")
    def _known_training(self) -> Self:
        self.train_spec()
        return self

    @property
    def seeds(self) -> tuple[int, ...]:
        return (self.seed,)

    def target(self, size: int, seed: int, attack: str = "", *, dynamic: bool = False) -> Target:
        """The target model trained on ``size`` images with ``seed``, as ``attack`` gets it.

        Each seed draws its own target and holdout images, so that an interval over seeds covers the draw.
        Some attacks have a target of their own (the profile's ``targets``), whatever the section's is.
        ``dynamic``: with the profile's update, whatever the attack.
        """
        from drlib.cells import Target, UpdateSpec
        from drlib.training import TrainSpec

        profile = profiles.load(self.profile)
        own = dict(profile.targets.get(attack, {}))
        update, training = own.pop("update", {}), own.pop("training", None)
        if dynamic or (attack and declared.is_dynamic(attack)):
            own["update"] = UpdateSpec(**profiles.merge(profile.update, update))
        usual = {"architecture": self.architecture, "width": self.width}
        if "architecture" in own:
            usual["width"] = None
        return Target(
            data=self.data_spec().model_copy(update={"split_seed": seed}),
            size=size,
            training=self.train_spec() if training is None else TrainSpec(**training),
            seed=seed,
            **{**usual, **own},
        )

    def train_spec(self) -> TrainSpec:
        """The ``drlib.training.TrainSpec`` of the profile with the reader's changes."""
        from drlib.training import TrainSpec

        for name, value in self.training.items():
            field = TrainSpec.model_fields.get(name)
            if field is None:
                raise unknown("training parameter", name, TrainSpec.model_fields)
            if value is not None:
                declared.check_type(f"training: {name}", field.annotation, value)
        return TrainSpec(**profiles.merge(profiles.load(self.profile).training, self.training))

    def resolved_hyperparameters(self, attack: str) -> dict[str, Any]:
        """What the profile and the reader set for an attack; the rest is the original paper's."""
        return profiles.merge(
            profiles.load(self.profile).attacks.get(attack, {}), self.hyperparameters.get(attack, {})
        )

    def cell(self, size: int, seed: int, attack: str, **changes: Any) -> Cell:
        """One cell of an attack; ``changes`` are fields of the cell."""
        from drlib.cells import Cell

        fields = {
            "target": self.target(size, seed, attack),
            "attack": attack,
            "hyperparameters": self.resolved_hyperparameters(attack),
            "n": self.n,
            "equal_size": min(self.sizes) if len(self.sizes) > 1 else None,
            "seed": seed,
            "extractor": self.extractor,
        }
        return Cell(**{**fields, **changes})

    def control_cells(self, size: int, seed: int) -> list[Cell]:
        """The cells of all controls for one size and seed.

        Static and dynamic attacks reconstruct different images, so each kind that is there has its own.
        """
        kinds = sorted({declared.is_dynamic(attack) for attack in self.attacks})
        cells = []
        for control in self.controls:
            if control in declared.PRIOR_CONTROLS:
                for attack in filter(declared.has_prior, self.attacks):
                    if control == "prior_best" and not declared.is_labeled(attack):
                        continue
                    sampled = self.cell(size, seed, attack)
                    cells.append(sampled.model_copy(update={"attack": f"{control}:{attack}"}))
            elif control == "unconditional":
                for attack in filter(declared.has_unconditional, self.attacks):
                    blind = {**self.resolved_hyperparameters(attack), "conditional": False}
                    cells.append(self.cell(size, seed, attack, hyperparameters=blind))
            else:
                targets = [self.target(size, seed, dynamic=dynamic) for dynamic in kinds]
                cells += [
                    self.cell(size, seed, control, target=target, hyperparameters={}) for target in targets
                ]
        return cells

    def attack_cells(self) -> list[Cell]:
        """Every attack and control, at every size and seed."""
        cells = []
        for size in self.sizes:
            for seed in self.seeds:
                cells += [self.cell(size, seed, attack) for attack in self.attacks]
                cells += self.control_cells(size, seed)
        return cells

    def cells(self) -> list[Cell | Experiment]:
        return list(self.attack_cells())


class OneTarget(AttackedModel):
    """A section that attacks one target model."""

    target_size: int = _parameter("images the target model is trained on", "a whole number from 1", ge=1)

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.target_size,)

    def private(self) -> Split:
        """The images that the model of the first seed is trained on."""
        return data.target_subset(self.splits(), self.target_size)


class TenMinutes(OneTarget):
    """One target model, a few attacks: leaked or imputed?"""

    slug: ClassVar[str] = "ten_minutes"


class Taxonomy(Parameters):
    """Table 1, from the attacks' own declarations."""

    slug: ClassVar[str] = "taxonomy"


class Metrics(ImageData):
    """Definitions 4.1 to 4.4 on real images."""

    slug: ClassVar[str] = "metrics"
    target_size: int = _parameter("images in the target data set", "a whole number from 2", ge=2)
    seed: int = _parameter(
        "seed of the disturbances shown", "a whole number from 0 to 2147483547", ge=0, le=2**31 - 101
    )

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.target_size,)


class Repeated(AttackedModel):
    """A section that runs everything with several seeds."""

    repeats: int = _parameter(
        "how many seeds: seed, seed + 1, ...; intervals need several",
        "a whole number from 1 to 100",
        ge=1,
        le=100,
    )

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(range(self.seed, self.seed + self.repeats))


class MatchedGradients(OneTarget):
    """A section that shows Deep-Leakage where it is known to work."""

    gradient_batches: Sizes = _parameter(
        "Deep-Leakage on the sigmoid LeNet: images per observed gradient",
        "a list of whole numbers from 1, such as [1, 2, 4, 8]",
    )
    gradient_images: int = _parameter(
        "Deep-Leakage on the sigmoid LeNet: images in all", "a multiple of every gradient batch", ge=1
    )

    @model_validator(mode="after")
    def _divisible(self) -> Self:
        wrong = [size for size in self.gradient_batches if self.gradient_images % size]
        if wrong:
            raise UserError(
                f"gradient_images={self.gradient_images} is no multiple of the gradient batch {wrong[0]}"
            )
        return self

    def gradient_cells(self) -> list[Cell]:
        """Deep-Leakage where it is known to work: few images a gradient, a smooth net before training."""
        if "deep_leakage" not in self.attacks:
            return []
        own = profiles.load(self.profile).gradient_matching
        cells = []
        for batch in self.gradient_batches:
            for seed in self.seeds:
                target = self.target(self.target_size, seed, "deep_leakage").model_copy(
                    update={
                        "architecture": own["architecture"],
                        "width": None,
                        "checkpoint": own["checkpoint"],
                    }
                )
                update = target.update.model_copy(update={"size": self.gradient_images, "batch_size": batch})
                cells.append(
                    self.cell(
                        self.target_size,
                        seed,
                        "deep_leakage",
                        target=target.model_copy(update={"update": update}),
                        hyperparameters=own["hyperparameters"],
                        n=None,
                    )
                )
        return cells


class AttackPages(MatchedGradients, Repeated):
    """What the page of each attack shows: pictures, convergence, cost."""

    slug: ClassVar[str] = "attacks"
    multiples: Multiples = _parameter(
        "convergence: multiples of the profile's steps, 1 among them",
        "a list of numbers above 0, such as [0.25, 1, 4]",
    )
    convergence_size: int = _parameter(
        "convergence: images in the target data set, and reconstructions", "a whole number from 1", ge=1
    )
    surrogates: Words = _parameter(
        "ways to make a white box of a black box", "a list out of distillation, extraction"
    )
    surrogate_attack: str = _parameter(
        "the white-box attack that is run on the surrogates", "an attack without auxiliary data"
    )

    @field_validator("multiples")
    @classmethod
    def _has_one(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if 1 not in value:
            raise UserError("multiples must contain 1, the profile's own number of steps")
        return tuple(sorted(_unique(value)))

    @field_validator("surrogate_attack")
    @classmethod
    def _white_box_without_data(cls, value: str) -> str:
        declared.check_attack(value)
        if not declared.is_for_surrogates(value):
            raise UserError(
                f"surrogate_attack={value} is not allowed: "
                "it must be a white-box attack on static targets without auxiliary data"
            )
        return value

    @field_validator("surrogates")
    @classmethod
    def _known_surrogates(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for method in _unique(value):
            if method not in SURROGATES:
                raise unknown("surrogate", method, SURROGATES)
        return value

    def convergence(self) -> dict[tuple[str, str, float], list[Cell]]:
        """Cells by (attack, hyperparameter that is scaled, multiple).

        The steps of an attack are scaled for all seeds; those of its prior, which cost most, for one.
        """
        from drlib.outside import declaration

        found = {}
        for attack in self.attacks:
            usual = self.resolved_hyperparameters(attack)
            files = self.target(self.convergence_size, self.seed, attack).files
            made = declaration(attack, usual, closed=files)
            stages = {made.prior_effort: self.seeds[:1], made.effort: self.seeds}
            for name, seeds in stages.items():
                if name is None:
                    continue
                for multiple in self.multiples:
                    scaled = {**usual, name: max(1, round(multiple * getattr(made, name)))}
                    changes = {"hyperparameters": scaled, "n": None, "equal_size": None}
                    found[attack, name, multiple] = [
                        self.cell(self.convergence_size, seed, attack, **changes) for seed in seeds
                    ]
        return found

    def gradient_controls(self) -> list[Cell]:
        """Noise and the holdout in the place of the images that ``gradient_cells`` reconstruct."""
        found = {}
        for cell in self.gradient_cells():
            for control in ("noise", "holdout"):
                update = {"attack": control, "hyperparameters": {}}
                found.setdefault((control, cell.seed), cell.model_copy(update=update))
        return list(found.values())

    def surrogate_cells(self) -> list[Cell]:
        """One white-box attack on the target itself and on each kind of surrogate of it (the first seed)."""
        from drlib.surrogate import SurrogateSpec

        settings = profiles.load(self.profile).surrogates
        cells = []
        for seed in self.seeds[:1]:
            cells.append(self.cell(self.target_size, seed, self.surrogate_attack))
            for method in self.surrogates:
                made = SurrogateSpec(method=method, **settings.get(method, {}))
                cells.append(self.cell(self.target_size, seed, self.surrogate_attack, surrogate=made))
        return cells

    def cells(self) -> list[Cell]:
        convergence = [cell for cells in self.convergence().values() for cell in cells]
        few = [*self.gradient_cells(), *self.gradient_controls()]
        return [*self.attack_cells(), *convergence, *few, *self.surrogate_cells()]


class AcrossSizes(Repeated):
    """A section that attacks models of several training sets' sizes."""

    target_sizes: Sizes = _parameter(
        "sizes of the target data set (nested: each contains the smaller ones)",
        "a list of whole numbers from 1, such as [50, 100]",
    )

    @field_validator("target_sizes")
    @classmethod
    def _ascending(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(_unique(value)))

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.target_sizes


class Relations(AcrossSizes):
    """Figures 2, 11 and 12: what the measures have to do with each other."""

    slug: ClassVar[str] = "relations"


class Benchmark(AcrossSizes):
    """The shape of Table 2 and Figure 1."""

    slug: ClassVar[str] = "benchmark"

    def convergence(self) -> dict[tuple[str, str, float], list[Cell]]:
        """Where the section on the attacks looks whether these attacks have converged, on such a target."""
        own = {"profile", "controls", "repeats", "seed", "n"}
        shared = {
            name: value
            for name, value in self.values().items()
            if name in AttackPages.model_fields and name not in own
        }
        try:
            return parameters("attacks", self.profile, shared).convergence()
        except UserError:  # its target has another size than this data set has: then it is not known
            return {}

    def ensembles(self) -> dict[int, Ensemble]:
        """By target size, where the section on memorization measures it for such a target."""
        shared = ("dataset", "side", "channels", "mode", "architecture", "width", "seed", "training", "root")
        own = {name: getattr(self, name) for name in shared}
        sizes = {"target_sizes": list(self.target_sizes), "target_size": self.target_sizes[0]}
        made = parameters("memorization", self.profile, {**own, **sizes, "download": self.download})
        found = {}
        for size in self.target_sizes:
            with contextlib.suppress(UserError):  # too few images for subsets of them
                found[size] = made.ensemble(size)
        return found

    def reads(self) -> list[Cell | Experiment]:
        convergence = [cell for cells in self.convergence().values() for cell in cells]
        return [*convergence, *self.ensembles().values()]


class Leaked(MatchedGradients):
    """The leakage gap, from attacks whose answer is known to real ones."""

    slug: ClassVar[str] = "leaked"
    draws: int = _parameter("mixtures drawn for each share of leaked images", "a whole number from 1", ge=1)

    def cells(self) -> list[Cell | Experiment]:
        classes = len(self.splits().classes)
        if self.target_size < classes:
            raise UserError(
                f"target_size={self.target_size} is fewer than the {classes} classes of {self.dataset}"
            )
        return [*self.attack_cells(), *self.gradient_cells()]


class WhyNotAccuracy(OneTarget):
    """Figure 7: what accuracy calls a good reconstruction."""

    slug: ClassVar[str] = "accuracy"
    judge: str = _parameter(
        "the evaluation network that is fooled", f"one of {', '.join(declared.ARCHITECTURES)}"
    )
    epsilon: float = _parameter(
        "the robust evaluator: largest change of a pixel in its training", "a number above 0, at most 1",
        gt=0, le=1,
    )  # fmt: skip
    generated_images: int = _parameter("images of the generated training set", "a whole number from 2", ge=2)

    @field_validator("judge")
    @classmethod
    def _known_judge(cls, value: str) -> str:
        if value not in declared.ARCHITECTURES:
            raise unknown("judge", value, declared.ARCHITECTURES)
        return value

    def generated(self) -> GeneratedSet:
        """A training set made of the queries of data-free extraction."""
        from drlib.experiments.generated_set import GeneratedSet
        from drlib.surrogate import SurrogateSpec

        settings = profiles.load(self.profile).surrogates.get("extraction", {})
        return GeneratedSet(
            target=self.target(self.target_size, self.seed),
            extraction=SurrogateSpec(method="extraction", **settings),
            images=self.generated_images,
            seed=self.seed,
        )

    def robust(self) -> RobustEvaluator:
        """The evaluator that is trained on adversarial images."""
        from drlib.experiments.robust import RobustEvaluator

        target = self.target(self.target_size, self.seed)
        return RobustEvaluator(
            data=target.data,
            architecture=self.architecture,
            width=self.width,
            training=target.training,
            epsilon=self.epsilon,
            seed=1_000 + self.seed,
        )

    def fooling_cell(self) -> Cell:
        """MI-Face against the judge itself, which is trained on every target image."""
        every = len(self.splits().target)
        target = self.target(every, self.seed).model_copy(update={"architecture": self.judge, "width": None})
        hyperparameters = profiles.load(self.profile).attacks.get("mi_face", {})
        return self.cell(
            every, self.seed, "mi_face", target=target, hyperparameters=hyperparameters, n=self.target_size,
            equal_size=None,
        )  # fmt: skip

    def judged_cell(self) -> Cell:
        """A cell of the static target, whichever attacks there are: it brings the evaluators."""
        target = self.target(self.target_size, self.seed)
        return self.cell(self.target_size, self.seed, "noise", target=target, hyperparameters={})

    def cells(self) -> list[Cell | Experiment]:
        experiments = [self.generated(), self.robust()]
        return [*self.attack_cells(), self.judged_cell(), *experiments, self.fooling_cell()]


class TSNE(OneTarget):
    """Figures 8 to 10: one picture of everything."""

    slug: ClassVar[str] = "tsne"
    perplexity: float = _parameter("t-SNE: neighbors that count, roughly", "a number above 1", gt=1)
    space: Literal["pixels", "features"] = _parameter("what is embedded", "pixels or features")

    def cells(self) -> list[Cell | Experiment]:
        cells = self.attack_cells()
        points = self.target_size + len(cells) * (self.n or self.target_size)
        if not 3 * self.perplexity < points:
            raise UserError(
                f"perplexity={self.perplexity:g} is too large: with at most {points} points it must be below "
                f"{points / 3:.4g}"
            )
        return list(cells)


class MeasuringMemorization(OneTarget):
    """Equations 1 and 2: memorization of images and of models."""

    slug: ClassVar[str] = "memorization"
    target_sizes: Sizes = _parameter(
        "sizes of the target data set whose memorization is measured, target_size among them",
        "a list of whole numbers from 1, such as [50, 100]",
    )
    models: int = _parameter("models of each ensemble", "a whole number from 4", ge=4)
    ratio: float = _parameter(
        "share of the images that each model sees", "a number between 0 and 1", gt=0, lt=1
    )
    flipped: float = _parameter(
        "positive control: share of wrong labels", "a number above 0, at most 0.5", gt=0, le=0.5
    )
    fewer_classes: int | None = _parameter(
        "also measured with only so many classes and as many images per class; none: not",
        "a whole number from 2, or none", ge=2, default=None,
    )  # fmt: skip
    tiny_size: int = _parameter("leave-one-out: images", "a whole number from 3", ge=3)
    tiny_models: int = _parameter("leave-one-out: models for each image", "a whole number from 2", ge=2)

    @field_validator("target_sizes")
    @classmethod
    def _ascending(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(_unique(value)))

    @model_validator(mode="after")
    def _measured(self) -> Self:
        if self.target_size not in self.target_sizes:
            raise UserError(f"target_size={self.target_size} must be one of target_sizes")
        return self

    def ensemble(self, size: int, **changes: Any) -> Ensemble:
        """Models for the memorization of the target trained on ``size`` images."""
        from drlib.experiments.ensemble import Ensemble

        target = self.target(size, self.seed)
        return Ensemble(**{"target": target, "models": self.models, "ratio": self.ratio, **changes})

    def ensembles(self) -> dict[str, Ensemble]:
        """By name: ``n<size>``, ``n<size>_fewer``, ``flipped``, ``leave_one_out``, ``tiny_subsampled``, and
        ``alone`` (one image in each class, if there are three or more: without one, two must be left)."""
        if round(self.flipped * self.target_size) < 1:
            raise UserError(f"flipped={self.flipped:g} of {self.target_size} images is no wrong label")
        classes = len(self.splits().classes)
        made = {f"n{size}": self.ensemble(size) for size in self.target_sizes}
        if self.fewer_classes is not None and self.fewer_classes < classes:
            for size in self.target_sizes:
                if size >= classes:
                    few = size // classes * self.fewer_classes
                    made[f"n{size}_fewer"] = self.ensemble(few, classes=self.fewer_classes)
        made["flipped"] = self.ensemble(self.target_size, flipped=self.flipped)
        exact = {"design": "leave_one_out", "models": self.tiny_models}
        made["leave_one_out"] = self.ensemble(self.tiny_size, **exact)
        made["tiny_subsampled"] = self.ensemble(self.tiny_size)
        if classes > 2:
            made["alone"] = self.ensemble(classes, **exact)
        return made

    def scored(self) -> list[str]:
        """The ensembles whose model score is shown: all but the positive control."""
        return [name for name in self.ensembles() if name not in ("flipped", "tiny_subsampled")]

    def images(self, size: int) -> Split:
        """The images whose memorization is measured."""
        return data.target_subset(self.splits(), size)

    def cells(self) -> list[Cell | Experiment]:
        return [*self.ensembles().values(), *self.attack_cells()]


class BesideOurs(Parameters):
    """A section about the paper's numbers, which shows the profile's own beside them if they are computed."""

    def benchmark(self) -> Benchmark:
        """The section whose results stand beside the paper's, with the profile's parameters."""
        made = parameters("benchmark", self.profile)
        assert isinstance(made, Benchmark)
        return made

    def reads(self) -> list[Cell | Experiment]:
        return [*self.benchmark().cells(), *self.benchmark().reads()]


class Published(BesideOurs):
    """The paper's tables as printed, and the figures that follow from them."""

    slug: ClassVar[str] = "published"


class Claims(BesideOurs):
    """The paper's conclusions, judged on its own tables and on ours."""

    slug: ClassVar[str] = "claims"


class Audit(Parameters):
    """Checks on the numbers printed in the paper; nothing is run."""

    slug: ClassVar[str] = "audit"


@dataclass(frozen=True)
class Section:
    """One section of the book. ``minutes`` is for the laptop profile on two CPU cores, nothing stored."""

    slug: str
    number: int
    title: str
    regenerates: tuple[str, ...]
    model: type[Parameters]
    needs: str
    gives: str
    minutes: float

    @property
    def notebook(self) -> str:
        return f"{self.number:02d}_{self.slug}"


SECTIONS: dict[str, Section] = {
    section.slug: section
    for section in (
        Section(
            slug="ten_minutes",
            number=0,
            title="Data reconstruction in ten minutes",
            regenerates=(),
            model=TenMinutes,
            needs="nothing",
            gives="one model, three reconstructions, and the question of the book: leaked or imputed?",
            minutes=1,
        ),
        Section(
            slug="taxonomy",
            number=1,
            title="What the adversary knows",
            regenerates=("Table 1",),
            model=Taxonomy,
            needs="nothing",
            gives="Definitions 3.1 and 3.2, and Table 1 from the attacks' own declarations",
            minutes=0.2,
        ),
        Section(
            slug="metrics",
            number=2,
            title="When is a reconstruction good?",
            regenerates=(),
            model=Metrics,
            needs="means and variances",
            gives="Definitions 4.1 to 4.4, each with pictures, and what cannot hold as printed",
            minutes=0.3,
        ),
        Section(
            slug="leaked",
            number=3,
            title="Leaked or imputed?",
            regenerates=(),
            model=Leaked,
            needs="section 2",
            gives="the leakage gap from attacks whose answer is known, its power, who is who",
            minutes=2,
        ),
        Section(
            slug="accuracy",
            number=4,
            title="Why not accuracy?",
            regenerates=("Figure 7",),
            model=WhyNotAccuracy,
            needs="section 2",
            gives="the counterexamples of Figure 7, and rankings that change with the judge",
            minutes=2,
        ),
        Section(
            slug="relations",
            number=5,
            title="Relations between metrics",
            regenerates=("Figure 2", "Figure 11", "Figure 12"),
            model=Relations,
            needs="section 2",
            gives="correlations between the measures: the paper's, checked, and ours with controls",
            minutes=2,
        ),
        Section(
            slug="attacks",
            number=6,
            title="The ten attacks",
            regenerates=(),
            model=AttackPages,
            needs="sections 1 and 2",
            gives="a page for each attack: knowledge, equation, code, pictures, what breaks it, cost",
            minutes=15,
        ),
        Section(
            slug="benchmark",
            number=12,
            title="The benchmark",
            regenerates=(*(f"Table {number}" for number in (2, 15, *range(17, 25))), "Figure 1"),
            model=Benchmark,
            needs="sections 1 and 2",
            gives="attacks against target size: controls, gaps, intervals, beside the published numbers",
            minutes=9,
        ),
        Section(
            slug="tsne",
            number=13,
            title="t-SNE",
            regenerates=("Figure 8", "Figure 9", "Figure 10"),
            model=TSNE,
            needs="section 2",
            gives="the picture of Figures 8 to 10 with controls in it, and what it cannot show",
            minutes=2,
        ),
        Section(
            slug="memorization",
            number=17,
            title="Measuring memorization",
            regenerates=(),
            model=MeasuringMemorization,
            needs="probabilities and means, section 2",
            gives="equations 1 and 2 with errors and controls, and whether memorized images come back",
            minutes=3,
        ),
        Section(
            slug="published",
            number=31,
            title="The tables as printed",
            regenerates=(),
            model=Published,
            needs="nothing",
            gives="the paper's 24 tables with levels and downloads, Figures 2, 11 and 12 drawn from them",
            minutes=0.3,
        ),
        Section(
            slug="claims",
            number=32,
            title="Do the conclusions hold?",
            regenerates=(),
            model=Claims,
            needs="sections 2 and 5",
            gives="each conclusion of the paper as a check on its tables and on ours: verdict, effect, sign",
            minutes=0.3,
        ),
        Section(
            slug="audit",
            number=33,
            title="Auditing the published tables",
            regenerates=(),
            model=Audit,
            needs="sections 2 and 5",
            gives="checks on any table of results, and the questions that the published tables raise",
            minutes=0.2,
        ),
    )
}


def section(slug: str) -> Section:
    """The section with this name. Raises ``UserError`` (with the nearest match) if there is none."""
    if slug not in SECTIONS:
        raise unknown("section", slug, SECTIONS)
    return SECTIONS[slug]


def _profile_values(slug: str, profile: str) -> dict[str, Any]:
    """The profile's values for the fields of a section."""
    resolved = profiles.load(profile)
    values = {**resolved.data, **resolved.model, **resolved.sections.get(slug, {})}
    shared = {*resolved.data, *resolved.model}
    known = section(slug).model.model_fields
    return {name: value for name, value in values.items() if name in known or name not in shared}


def parameters(slug: str, profile: str, overrides: Mapping[str, Any] | None = None) -> Parameters:
    """The parameters of a section: the profile's, changed by ``overrides``.

    ``hyperparameters`` and ``training`` are changes to the profile's. Another ``dataset`` brings its
    own ``side`` and ``channels`` unless they are given too. Raises ``UserError``, one line, for anything
    that is not allowed.
    """
    overrides = dict(overrides or {})
    usual = _profile_values(slug, profile)
    if isinstance(overrides.get("dataset"), str) and overrides["dataset"] != usual.get("dataset"):
        spec = DataSpec.of(overrides["dataset"])
        usual.update(side=spec.side, channels=spec.channels)
    return _validated(slug, {**usual, **overrides, "profile": profile})


def from_notebook(slug: str, namespace: Mapping[str, Any]) -> Parameters:
    """The parameters that a notebook's ``parameters`` cell assigned; ``namespace`` is ``globals()``.

    Raises ``UserError`` if one is missing or not allowed.
    """
    fields = section(slug).model.model_fields
    missing = [name for name in fields if name not in namespace]
    if missing:
        raise UserError(f"the parameters cell of {section(slug).notebook} does not set {', '.join(missing)}")
    return _validated(slug, {name: namespace[name] for name in fields})


def parse(slug: str, profile: str, assignments: list[str], file: str | None = None) -> Parameters:
    """The parameters that a command line gives: ``-y FILE`` first, ``-p name=value`` over it.

    A value is YAML (``false``, ``[1, 2]``, ``null``); where only text is allowed it is taken as typed.
    """
    overrides: dict[str, Any] = _read_file(file) if file else {}
    fields = section(slug).model.model_fields
    seen: set[str] = set()
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        name = name.strip()
        if not equals or not name:
            raise UserError(f"-p {assignment}: write name=value")
        if name == "profile":
            raise UserError(f"-p {assignment}: choose the profile with --profile {text or 'NAME'}")
        if name not in fields:
            raise unknown(f"parameter of {slug}", name, section(slug).model.names()[1:])
        if name in seen:
            raise UserError(f"-p {name} is given twice")
        if not text.strip():
            raise UserError(f"-p {name}= has no value (allowed: {_allowed(fields[name])})")
        seen.add(name)
        overrides[name] = _from_text(fields[name], name, text)
    return parameters(slug, profile, overrides)


def _read_file(file: str) -> dict[str, Any]:
    try:
        with open(file, encoding="utf-8") as stream:
            values = profiles.parse_yaml(stream.read(), file)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UserError(f"cannot read {file}: {reason}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UserError(f"{file} must hold a mapping of parameter names to values")
    if "profile" in values:
        raise UserError(f"{file} sets the profile: choose it with --profile {values['profile']}")
    return values


def _from_text(field: FieldInfo, name: str, text: str) -> Any:
    """The value that ``text`` means for a field: YAML, but where text is wanted, the text as typed."""
    if field.annotation is str:
        return text
    if field.annotation == str | None:
        return None if text in ("none", "null", "~") else text
    return profiles.parse_yaml(text, f"-p {name}")


def written(value: Any) -> str:
    """A JSON value as one line of the YAML that ``-p`` reads."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{written(key)}: {written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(written(item) for item in value) + "]"
    if isinstance(value, str):
        plain = (
            re.fullmatch(r"[A-Za-z_][\w./-]*(:[\w./-]+)*", value) and profiles.parse_yaml(value, "") == value
        )
        quoted = yaml.safe_dump(value, default_style='"', allow_unicode=True, width=10**9)
        return value if plain else quoted.strip()
    return "none" if value is None else json.dumps(value)


def _allowed(field: FieldInfo) -> str:
    return str(field.json_schema_extra["allowed"])  # type: ignore[index,call-overload]


def _validated(slug: str, values: dict[str, Any]) -> Parameters:
    model = section(slug).model
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise _refusal(slug, model, error, values) from None


def _refusal(slug: str, model: type[Parameters], error: ValidationError, values: dict[str, Any]) -> UserError:
    """One line that names every parameter that is not allowed, once."""
    said: dict[str, str] = {}
    for problem in error.errors():
        name = str(problem["loc"][0]) if problem["loc"] else ""
        cause = problem.get("ctx", {}).get("error")
        if name in said:
            continue
        if problem["type"] == "extra_forbidden":
            raise unknown(f"parameter of {slug}", name, model.names()[1:])
        if isinstance(cause, UserError):
            said[name] = f"{name}: {cause}" if name and name not in str(cause).split() else str(cause)
        elif problem["type"] == "missing":
            said[name] = f"{name} is not set"
        else:
            shown = written(values[name])
            said[name] = f"{name}={shown} is not allowed (allowed: {_allowed(model.model_fields[name])})"
    return UserError("; ".join(said.values()))


def help_text(slug: str) -> str:
    """Every parameter: what it is, what is allowed, its value in each profile."""
    values = {profile: parameters(slug, profile).values() for profile in profiles.NAMES}
    blocks = []
    for name in section(slug).model.names()[1:]:  # the profile is chosen by --profile
        field = section(slug).model.model_fields[name]
        usual: dict[str, list[str]] = {}
        for profile, each in values.items():
            usual.setdefault(written(each[name]), []).append(profile)
        defaults = "; ".join(
            f"{value} ({', '.join(where)})" if len(usual) > 1 else value for value, where in usual.items()
        )
        blocks.append(f"{name}: {field.description}\n    allowed: {_allowed(field)}\n    default: {defaults}")
    return "\n".join(blocks)


def parameters_cell(slug: str) -> str:
    """The source of a notebook's ``parameters`` cell: the laptop profile, each line with its description."""
    lines = []
    for name, value in parameters(slug, profiles.DEFAULT).values().items():
        field = section(slug).model.model_fields[name]
        lines.append(f"{name}: {_annotation(field)} = {_literal(value)}  # {field.description}")
    return "\n".join(lines)


def _literal(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value).replace("'", '"')


def _annotation(field: FieldInfo) -> str:
    kinds = {str: "str", int: "int", bool: "bool", float: "float"}
    kinds |= {float | None: "float | None", int | None: "int | None"}
    kinds |= {str | None: "str | None", Scalars: "dict", dict[str, Scalars]: "dict"}
    if field.annotation == Literal[1, 3]:
        return "int"
    if field.annotation in (Literal["class", "identity"], Literal["pixels", "features"]):
        return "str"
    return kinds.get(field.annotation, "list")
