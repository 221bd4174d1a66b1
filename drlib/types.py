"""The words of the paper as types: knowledge, access views, reconstruction, attack.

Definition 3.1 (extra knowledge) and Definition 3.2 (reconstruction algorithm) of the SoK.
An attack sees a target only through an *access view*; the view carries what the attack's
``knowledge`` grants and nothing else.

What the views enforce: a black box has no parameters to read; a white box is frozen, in eval
mode, and counts what is asked of it. What they cannot enforce inside one Python process is
listed where it matters (``Attack``).
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from drlib.errors import UserError
from drlib.probe import has_batchnorm, is_homogeneous, is_piecewise_linear

Progress = Callable[[int, int], None]
"""Called with (steps done, steps in all)."""


class TrainingType(IntEnum):
    """What is reconstructed: the fixed training set, or the samples of an update."""

    STATIC = 0
    DYNAMIC = 1


class ModelAccess(IntEnum):
    """How the adversary reaches the target model; a larger value includes the smaller one."""

    BLACK_BOX = 0
    WHITE_BOX = 1


class DatasetAccess(IntEnum):
    """What the adversary holds besides the model; a larger value includes the smaller ones."""

    NO_DATA = 0
    SIMILAR = 1
    SAME = 2


STATIC, DYNAMIC = TrainingType.STATIC, TrainingType.DYNAMIC
BLACK_BOX, WHITE_BOX = ModelAccess.BLACK_BOX, ModelAccess.WHITE_BOX
NO_DATA, SIMILAR, SAME = DatasetAccess.NO_DATA, DatasetAccess.SIMILAR, DatasetAccess.SAME


@dataclass(frozen=True)
class Knowledge:
    """Extra knowledge K (Definition 3.1): training type x model access x data set access, a minimum.

    ``a <= b`` holds when an adversary with ``b`` knows at least what ``a`` asks for. Static and
    dynamic describe different targets, so they are never comparable.
    """

    training: TrainingType
    model: ModelAccess
    dataset: DatasetAccess

    def __le__(self, other: Knowledge) -> bool:
        return self.training == other.training and self.model <= other.model and self.dataset <= other.dataset

    def __str__(self) -> str:
        return " x ".join(
            part.name.lower().replace("_", " ") for part in (self.training, self.model, self.dataset)
        )


@dataclass(frozen=True)
class TargetSpec:
    """What every adversary is told about the target model.

    ``shape`` is (channels, height, width); ``classes`` are names, or None when they are not public.
    ``has_batchnorm``, ``piecewise_linear`` and ``homogeneous`` are measured (module ``probe``).
    ``synthetic_batchnorm``: the BatchNorm statistics are a surrogate's and describe queries, not training
    images. ``recipe``: how it was trained and updated, where that is known: ``width`` (of
    ``models.build``), ``size`` of the training set, ``training`` and ``update`` (fields of ``TrainSpec``).
    """

    architecture: str
    shape: tuple[int, int, int]
    num_classes: int
    has_batchnorm: bool
    classes: tuple[str, ...] | None = None
    piecewise_linear: bool = True
    homogeneous: bool = False
    synthetic_batchnorm: bool = False
    recipe: Mapping[str, Any] | None = None

    @classmethod
    def of(
        cls, module: nn.Module, architecture: str, shape: Sequence[int], num_classes: int, **more: Any
    ) -> TargetSpec:
        """The specification of ``module``, which takes images of ``shape``; the facts are measured."""
        shape = (shape[0], shape[1], shape[2])
        facts = {
            "has_batchnorm": has_batchnorm(module),
            "piecewise_linear": is_piecewise_linear(module, shape),
            "homogeneous": is_homogeneous(module, shape),
        }
        return cls(architecture, shape, num_classes, **{**facts, **more})


class AccessError(PermissionError):
    """An attack asked for more than its declared knowledge grants."""


class Normalized(nn.Module):
    """``module((x - mean) / std)`` for images x in [0, 1]; the view owns the normalization."""

    def __init__(self, module: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.module = module
        self.register_buffer("mean", torch.tensor(list(mean), dtype=torch.float32).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(list(std), dtype=torch.float32).view(1, -1, 1, 1))
        if (self.std <= 0).any():
            raise UserError(f"std must be positive in every channel, got {list(std)}")

    def forward(self, images: Tensor) -> Tensor:
        return self.module((images - self.mean) / self.std)


@dataclass(frozen=True)
class Auxiliary:
    """What the adversary holds besides the model: images of a similar or the same distribution.

    images: (a, c, h, w) in [0, 1]. labels: (a,) int64 in 0..A-1, in the auxiliary data's *own* classes
    (which need not be the target's); None unless the attack declares ``auxiliary_labels``.
    """

    images: Tensor
    labels: Tensor | None = None


class NoAccess:
    """Only the specification: what an attack has while it makes a prior that no query enters."""

    def __init__(self, spec: TargetSpec, device: str | torch.device = "cpu") -> None:
        self.spec = spec
        self.device = torch.device(device)
        self.queries = 0
        self.gradient_calls = 0

    def __getattr__(self, name: str) -> NoReturn:
        """What a stronger view would have is refused by name; anything else is a plain mistake."""
        if name in ("query", "query_before", "model", "logits", "gradients", "parameter_gradients"):
            raise AccessError(f"{type(self).__name__} access does not grant '{name}'")
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


class BlackBox(NoAccess):
    """Query access: probabilities for images, counted. Holds no parameters of the target."""

    access: ClassVar[ModelAccess] = BLACK_BOX

    def __init__(
        self, query: Callable[[Tensor], Tensor], spec: TargetSpec, device: str | torch.device = "cpu"
    ):
        super().__init__(spec, device)
        self._query = query

    def query(self, images: Tensor) -> Tensor:
        """Class probabilities (n, K) for images (n, c, h, w) in [0, 1]; costs n queries."""
        check_images(images, self.spec.shape)
        self.queries += len(images)
        with torch.no_grad():
            return self._query(images)


class WhiteBox(BlackBox):
    """The target model itself: frozen parameters, eval mode, images in [0, 1]."""

    access: ClassVar[ModelAccess] = WHITE_BOX

    def __init__(self, model: nn.Module, spec: TargetSpec, device: str | torch.device = "cpu") -> None:
        self.model = model.to(device).eval().requires_grad_(False)
        super().__init__(lambda images: self.model(self._fitting(images)).softmax(dim=1), spec, device)

    def _fitting(self, images: Tensor) -> Tensor:
        like = next(self.model.parameters(), images)
        return images.to(like.device, like.dtype)

    def logits(self, images: Tensor) -> Tensor:
        """Logits (n, K), differentiable in the images; n gradient calls, or n queries without a gradient."""
        if images.requires_grad and torch.is_grad_enabled():
            self.gradient_calls += len(images)
        else:
            self.queries += len(images)
        return self.model(images)

    @classmethod
    def from_module(
        cls,
        module: nn.Module,
        mean: Sequence[float],
        std: Sequence[float],
        labels: Sequence[str],
        *,
        shape: tuple[int, int, int] | None = None,
        architecture: str = "custom",
        device: str | torch.device = "cpu",
    ) -> WhiteBox:
        """Wrap a user's own checkpoint.

        ``module`` returns logits (n, len(labels)) for images normalized by ``mean`` and ``std`` (one
        value per channel, in units of [0, 1] pixels). ``shape`` is (c, h, w); without it, it is told from
        the module if the module takes images of just one usual size. Raises ``UserError`` when the
        channels or the number of outputs do not fit. ``drlib.training.preflight`` checks accuracy and
        pixel range.
        """
        channels = len(mean) if shape is None else shape[0]
        if len(mean) != channels or len(std) != channels:
            raise UserError(
                f"mean and std need one value per channel: {channels}, got {len(mean)} and {len(std)}"
            )
        if not all(math.isfinite(value) for value in (*mean, *std)):
            raise UserError(f"mean and std must be finite, got {list(mean)} and {list(std)}")
        module = copy.deepcopy(module).to(device).eval()  # the user's module stays as it is
        if shape is None:
            shape = _only_shape(module, channels)
        model = Normalized(module, mean, std).to(device)
        try:
            with torch.no_grad():
                outputs = model(torch.full((1, *shape), 0.5, device=device))
        except RuntimeError as error:
            raise UserError(f"the module does not take images of shape {tuple(shape)}: {error}") from error
        if outputs.shape != (1, len(labels)):
            raise UserError(
                f"the module returns {tuple(outputs.shape)} for one image, "
                f"expected (1, {len(labels)}): one logit per label"
            )
        spec = TargetSpec.of(model, architecture, shape, len(labels), classes=tuple(labels))
        return cls(model, spec, device)


class Update(BlackBox):
    """A model that was updated with new samples: query access before and after, both counted.

    ``query`` asks the updated model, ``query_before`` the one before; each image costs one query.
    """

    def __init__(
        self,
        query: Callable[[Tensor], Tensor],
        query_before: Callable[[Tensor], Tensor],
        spec: TargetSpec,
        device: str | torch.device = "cpu",
    ) -> None:
        super().__init__(query, spec, device)
        self._query_before = query_before

    def query_before(self, images: Tensor) -> Tensor:
        """Class probabilities (n, K) of the model before the update; costs n queries."""
        check_images(images, self.spec.shape)
        self.queries += len(images)
        with torch.no_grad():
            return self._query_before(images)


class Gradients(WhiteBox):
    """What the server of federated learning sees: the model, and gradients of its loss on new samples.

    ``gradients`` maps each parameter's name to (P, *shape): P gradients, each of the mean cross entropy
    on one batch of ``batch_size`` samples, taken in eval mode (BatchNorm with its running statistics) at the
    parameters in ``model``.
    """

    def __init__(
        self,
        model: nn.Module,
        spec: TargetSpec,
        gradients: Mapping[str, Tensor],
        batch_size: int,
        device: str | torch.device = "cpu",
    ) -> None:
        super().__init__(model, spec, device)
        self.gradients = {name: gradient.to(self.device) for name, gradient in gradients.items()}
        self.batch_size = batch_size

    def parameter_gradients(self, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Gradients (P, *shape) of the mean cross entropy, by parameter; differentiable in the images.

        images: (P, B, c, h, w). labels: (P, B) int64, or (P, B, K) probabilities, also differentiable.
        Costs P * B gradient calls.
        """
        self.gradient_calls += images.shape[0] * images.shape[1]
        parameters = {name: value.detach() for name, value in self.model.named_parameters()}
        return vmap(grad(self._loss), in_dims=(None, 0, 0))(parameters, images, labels)

    def _loss(self, parameters: dict[str, Tensor], images: Tensor, labels: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(functional_call(self.model, parameters, (images,)), labels)


USUAL_SIDES = (8, 16, 25, 28, 32, 48, 64, 96, 112, 128, 160, 224, 256)
"""Image sides that are tried when a user's module does not come with its input shape."""


def _only_shape(module: nn.Module, channels: int) -> tuple[int, int, int]:
    """The one shape of usual size that the module takes."""
    accepted = []
    for side in USUAL_SIDES:
        with torch.no_grad(), contextlib.suppress(RuntimeError, ValueError):
            parameter = next(module.parameters(), torch.empty(0))
            images = torch.full(
                (1, channels, side, side), 0.5, device=parameter.device, dtype=parameter.dtype
            )
            if module(images).shape[0] == 1:
                accepted.append(side)
    if len(accepted) != 1:
        found = "several image sizes" if accepted else "no usual image size"
        raise UserError(f"the module takes {found}: give shape=(channels, height, width)")
    return channels, accepted[0], accepted[0]


def check_images(images: Tensor, shape: Sequence[int] | None = None) -> None:
    """Raise ``UserError`` unless images are (n, c, h, w), finite, in [0, 1] and of the given (c, h, w)."""
    if images.dim() != 4:
        raise UserError(f"images must have shape (n, c, h, w), got {tuple(images.shape)}")
    if shape is not None and tuple(images.shape[1:]) != tuple(shape):
        raise UserError(
            f"images must have shape (n, {', '.join(map(str, shape))}), got {tuple(images.shape)}"
        )
    if not images.is_floating_point():
        raise UserError(f"images must be floating point in [0, 1], got {images.dtype}; divide uint8 by 255")
    if images.numel():
        low, high = torch.aminmax(images.detach())
        if not (low >= 0 and high <= 1):  # also false for NaN
            raise UserError(
                f"images must lie in [0, 1] without NaN, got [{low.item():.3g}, {high.item():.3g}]"
            )


def balanced_labels(n: int, num_classes: int) -> Tensor:
    """Labels 0, 1, ..., K-1, 0, 1, ...: exactly balanced, and so is every contiguous group of them."""
    if n < 1 or num_classes < 1:
        raise UserError(f"n and num_classes must be at least 1, got {n} and {num_classes}")
    return torch.arange(n) % num_classes


@dataclass
class Reconstruction:
    """What an attack returns (Definition 3.2): n images, chosen without looking at D_tar.

    images: (n, c, h, w) float32 in [0, 1] on the CPU. labels: (n,) int64, exactly balanced, or None
    when the attack does not label its output. loss_history: (steps,) mean loss per image at each
    step. queries, gradient_calls: counted per image. seconds: wall time of the attack.
    group_size: how many images shared a loss term (coupled attacks), else None. facts: what else the
    adversary knows about the result, such as a residual, as plain numbers.
    """

    images: Tensor
    labels: Tensor | None
    loss_history: Tensor
    queries: int = 0
    gradient_calls: int = 0
    seconds: float = 0.0
    group_size: int | None = None
    facts: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.images = self.images.detach().to("cpu", torch.float32).contiguous()
        check_images(self.images)
        if self.labels is not None:
            self.labels = self.labels.detach().to("cpu", torch.int64)
            if self.labels.shape != (len(self.images),):
                raise UserError(
                    f"labels must have shape ({len(self.images)},), got {tuple(self.labels.shape)}"
                )
        self.loss_history = torch.as_tensor(self.loss_history, dtype=torch.float32).detach().cpu()

    def __len__(self) -> int:
        return len(self.images)


Prepared = dict[str, Tensor] | None
"""What ``Attack.prepare`` returns: tensors by name, so that it can be stored (a state dict, for instance)."""

PREPARE = {"stage": "prepare"}
"""Metadata of a hyperparameter that only ``prepare`` reads: ``field(default=..., metadata=PREPARE)``."""

EXECUTION = {"execution": True}
"""Metadata of a hyperparameter that changes the cost, not the result: a batch size of independent images."""

PREPARE_SEED = 1_000_003
"""Added to a seed for the generator of ``prepare``, so that both stages draw independently."""


class Attack(ABC):
    """A data reconstruction attack. Subclasses are ``@dataclass(frozen=True, kw_only=True)``.

    The fields are the hyperparameters; their defaults are those of the original paper. An attack
    draws all randomness from the passed generator (on the CPU, for all n samples at once), leaves
    the model as it found it, and selects samples only by what the adversary sees.

    Declarations. ``knowledge`` decides the view: black box -> ``BlackBox``, white box -> ``WhiteBox``; for
    a dynamic target ``Update`` and ``Gradients``. ``coupled``: images of a batch share a loss term.
    ``labeled``: the output carries labels. ``auxiliary_labels``: it needs the auxiliary data's labels.
    ``prepares``: it has a ``prepare`` stage, which is stored apart and shared. ``prior_sees_target``: that
    stage asks the target model; otherwise its access is ``NoAccess`` and its result serves many targets:
    all with images of the same shape, or, with ``prior_sees_recipe``, all that were trained alike.
    ``effort``, ``prior_effort``: the hyperparameters that say how long each stage runs (the convergence
    figures scale them).

    What stays possible for a dishonest attack in its own process: reading files outside the store where
    the operating system cannot forbid it, and inspecting the interpreter. Attacks run in processes that
    never load D_tar or the holdout.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]
    knowledge: ClassVar[Knowledge]
    also_datasets: ClassVar[tuple[DatasetAccess, ...]] = ()
    coupled: ClassVar[bool] = False
    labeled: ClassVar[bool] = True
    auxiliary_labels: ClassVar[bool] = False
    prepares: ClassVar[bool] = False
    prior_sees_target: ClassVar[bool] = True
    prior_sees_recipe: ClassVar[bool] = False
    effort: ClassVar[str | None] = "steps"
    prior_effort: ClassVar[str | None] = None

    def supports(self, spec: TargetSpec) -> str | None:
        """The reason why this attack cannot run on such a target, or None."""
        return None

    @property
    def control_variant(self) -> str | None:
        """The control that these hyperparameters make of the attack, such as "unconditional"; else None."""
        return None

    def prepare(
        self,
        access: BlackBox | NoAccess,
        auxiliary: Auxiliary | None,
        *,
        generator: torch.Generator,
        progress: Progress,
    ) -> Prepared:
        """Work that depends on auxiliary data (priors, shadow models): tensors by name, stored apart.

        Reads only the hyperparameters marked ``PREPARE``.
        """
        return None

    def prior_access(self, access: BlackBox) -> BlackBox | NoAccess:
        """What ``prepare`` is granted of an access to the target."""
        return access if self.prior_sees_target else NoAccess(self.prior_spec(access.spec), access.device)

    def prior_spec(self, spec: TargetSpec) -> TargetSpec:
        """What ``prepare`` is told of a target that it does not see."""
        return spec if self.prior_sees_recipe else TargetSpec("", spec.shape, spec.num_classes, False)

    def prior_samples(
        self, prepared: Prepared, *, n: int, labels: Tensor, generator: torch.Generator
    ) -> Tensor | None:
        """n images (n, c, h, w) of the prior before any optimization: a control. None without a prior."""
        return None

    @abstractmethod
    def reconstruct(
        self,
        access: BlackBox,
        prepared: Prepared,
        *,
        n: int,
        labels: Tensor,
        generator: torch.Generator,
        progress: Progress,
    ) -> Reconstruction:
        """Return n samples; ``labels`` (n,) are the classes asked for, exactly balanced.

        An attack that does not label its output ignores ``labels``.
        """

    def run(
        self,
        access: BlackBox,
        *,
        n: int,
        auxiliary: Auxiliary | None = None,
        seed: int = 0,
        progress: Progress = lambda done, total: None,
    ) -> Reconstruction:
        """Prepare and reconstruct n samples with balanced labels, in this process: the short way.

        ``progress`` is called for the reconstruction. Raises ``UserError`` with the reason if the attack
        does not support the target.
        """
        if reason := self.supports(access.spec):
            raise UserError(f"{self.title} cannot attack {access.spec.architecture}: {reason}")
        dynamic, white = self.knowledge.training == DYNAMIC, self.knowledge.model == WHITE_BOX
        needed = (Gradients if white else Update) if dynamic else (WhiteBox if white else BlackBox)
        if not isinstance(access, needed):
            raise UserError(f"{self.title} needs {needed.__name__} access, got {type(access).__name__}")
        prepared = self.prepare(
            self.prior_access(access),
            auxiliary,
            generator=torch.Generator().manual_seed(seed + PREPARE_SEED),
            progress=lambda done, total: None,
        )
        return self.reconstruct(
            access,
            prepared,
            n=n,
            labels=balanced_labels(n, access.spec.num_classes),
            generator=torch.Generator().manual_seed(seed),
            progress=progress,
        )

    def hyperparameters(self, *, stage: str | None = None) -> dict[str, Any]:
        """All hyperparameters with their values, defaults written out; ``stage="prepare"``: that stage's.

        Fields marked ``EXECUTION`` are left out: they change the cost, not the result, so they are no part
        of an artifact's key.
        """
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        kept = (item for item in fields if not item.metadata.get("execution"))
        return {
            item.name: getattr(self, item.name)
            for item in kept
            if stage is None or item.metadata.get("stage") == stage
        }
