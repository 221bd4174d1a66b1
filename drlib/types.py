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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from drlib.errors import UserError

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
    """

    architecture: str
    shape: tuple[int, int, int]
    num_classes: int
    has_batchnorm: bool
    classes: tuple[str, ...] | None = None


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


class BlackBox:
    """Query access: probabilities for images, counted. Holds no parameters of the target."""

    access: ClassVar[ModelAccess] = BLACK_BOX

    def __init__(
        self, query: Callable[[Tensor], Tensor], spec: TargetSpec, device: str | torch.device = "cpu"
    ):
        self._query = query
        self.spec = spec
        self.device = torch.device(device)
        self.queries = 0

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
        self.gradient_calls = 0
        super().__init__(lambda images: self.model(images).softmax(dim=1), spec, device)

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
        spec = TargetSpec(architecture, tuple(shape), len(labels), has_batchnorm(module), tuple(labels))
        view = cls(Normalized(module, mean, std), spec, device)
        try:
            with torch.no_grad():
                outputs = view.model(torch.full((1, *shape), 0.5, device=device))
        except RuntimeError as error:
            raise UserError(f"the module does not take images of shape {tuple(shape)}: {error}") from error
        if outputs.shape != (1, len(labels)):
            raise UserError(
                f"the module returns {tuple(outputs.shape)} for one image, "
                f"expected (1, {len(labels)}): one logit per label"
            )
        return view


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


def has_batchnorm(module: nn.Module) -> bool:
    """True if any BatchNorm layer keeps running statistics (DeepInversion reads them)."""
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    return any(isinstance(layer, kinds) and layer.running_mean is not None for layer in module.modules())


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
    group_size: how many images shared a loss term (coupled attacks), else None.
    """

    images: Tensor
    labels: Tensor | None
    loss_history: Tensor
    queries: int = 0
    gradient_calls: int = 0
    seconds: float = 0.0
    group_size: int | None = None

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


class Attack(ABC):
    """A data reconstruction attack. Subclasses are ``@dataclass(frozen=True, kw_only=True)``.

    The fields are the hyperparameters; their defaults are those of the original paper. An attack
    draws all randomness from the passed generator (on the CPU, for all n samples at once), leaves
    the model as it found it, and selects samples only by what the adversary sees.

    What stays possible for a dishonest attack in its own process: reading files outside the store,
    and inspecting the interpreter. Attacks run in processes that never load D_tar or the holdout.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]
    knowledge: ClassVar[Knowledge]
    also_datasets: ClassVar[tuple[DatasetAccess, ...]] = ()
    coupled: ClassVar[bool] = False
    labeled: ClassVar[bool] = True

    def supports(self, spec: TargetSpec) -> str | None:
        """The reason why this attack cannot run on such a target, or None."""
        return None

    def prepare(self, access: BlackBox, auxiliary: Tensor | None, *, generator: torch.Generator) -> Any:
        """Work that depends on auxiliary data (priors, shadow models) and is cached apart."""
        return None

    @abstractmethod
    def reconstruct(
        self,
        access: BlackBox,
        prepared: Any,
        *,
        n: int,
        labels: Tensor,
        generator: torch.Generator,
        progress: Progress,
    ) -> Reconstruction:
        """Return n samples; ``labels`` (n,) are the classes asked for, exactly balanced."""

    def run(
        self,
        access: BlackBox,
        *,
        n: int,
        auxiliary: Tensor | None = None,
        seed: int = 0,
        progress: Progress = lambda done, total: None,
    ) -> Reconstruction:
        """Prepare and reconstruct n samples with balanced labels, in this process: the short way.

        Raises ``UserError`` with the reason if the attack does not support the target.
        """
        if reason := self.supports(access.spec):
            raise UserError(f"{self.title} cannot attack {access.spec.architecture}: {reason}")
        generator = torch.Generator().manual_seed(seed)
        prepared = self.prepare(access, auxiliary, generator=generator)
        return self.reconstruct(
            access,
            prepared,
            n=n,
            labels=balanced_labels(n, access.spec.num_classes),
            generator=generator,
            progress=progress,
        )

    def hyperparameters(self) -> dict[str, Any]:
        """All hyperparameters with their values, defaults written out.

        Fields with ``metadata={"execution": True}`` (a batch size of independent images) are left
        out: they change the cost, not the result, so they are no part of an artifact's key.
        """
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        kept = (field.name for field in fields if not field.metadata.get("execution"))
        return {name: getattr(self, name) for name in kept}
