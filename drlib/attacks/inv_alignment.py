"""Inv-Alignment (Yang, Zhang, Chang, Liang; CCS 2019)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from drlib import optimize
from drlib.errors import UserError
from drlib.types import (
    BLACK_BOX,
    PREPARE,
    SAME,
    SIMILAR,
    STATIC,
    Attack,
    Auxiliary,
    BlackBox,
    DatasetAccess,
    Knowledge,
    Prepared,
    Progress,
    Reconstruction,
)

SHIFT = 50.0  # the original's c: kept log-probabilities become positive, unlike the zeros of dropped ones
LOWEST = -1000.0  # the original's bound on a log-probability
CHUNK = 4096  # images a query: each is a round trip where the box is in another process


def truncated(posteriors: Tensor, kept: int) -> Tensor:
    """What the decoder reads (n, K): log-probabilities + 50 of the ``kept`` largest (0: all), the rest 0."""
    logs = posteriors.log().clamp(min=LOWEST) + SHIFT
    values, classes = logs.topk(min(kept, logs.shape[1]) or logs.shape[1], dim=1)
    values = values + F.relu(-values.amin(dim=1, keepdim=True))
    return torch.zeros_like(logs).scatter(1, classes, values)


def decoder(num_classes: int, shape: tuple[int, int, int], width: int, standardize: bool) -> nn.Sequential:
    """K numbers -> 4x4 with ``width`` channels -> twice the side with half the channels, ... -> an image.

    The last side is at least the image's. ``standardize`` first brings each number to mean 0 and variance 1
    over the auxiliary data; without it the common shift of 50 slows training down.
    """
    doublings = max(1, math.ceil(math.log2(max(shape) / 4)))
    channels = [*(max(1, width >> stage) for stage in range(doublings)), shape[0]]
    layers: list[nn.Module] = [nn.BatchNorm1d(num_classes, affine=False)] if standardize else []
    layers += [nn.Unflatten(1, (num_classes, 1, 1)), nn.ConvTranspose2d(num_classes, channels[0], 4)]
    for inputs, outputs in itertools.pairwise(channels):
        layers += [nn.BatchNorm2d(inputs), nn.Tanh(), nn.ConvTranspose2d(inputs, outputs, 4, 2, 1)]
    return nn.Sequential(*layers, nn.Sigmoid())


def decode(net: nn.Module, inputs: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Images (n, c, h, w): the middle of what the decoder draws."""
    images = net(inputs)
    top, left = ((images.shape[-1] - size) // 2 for size in shape[1:])
    return images[..., top : top + shape[1], left : left + shape[2]]


def class_mean(inputs: Tensor, images: Tensor, queries: Tensor) -> Tensor:
    """Baseline: the mean auxiliary image of the class that a query puts first; the overall mean if none."""
    predicted = inputs.argmax(dim=1)
    means = images.mean(dim=0).repeat(inputs.shape[1], 1, 1, 1)
    for label in predicted.unique().tolist():
        means[label] = images[predicted == label].mean(dim=0)
    return means[queries.argmax(dim=1)]


def ridge(inputs: Tensor, images: Tensor, queries: Tensor, penalty: float = 1e-3) -> Tensor:
    """Baseline: pixels as a linear function of what the decoder reads, in closed form, clipped to [0, 1].

    ``penalty`` is relative to the mean variance of the inputs.
    """
    center, mean = inputs.double().mean(dim=0), images.double().mean(dim=0)
    x, y = inputs.double() - center, (images.double() - mean).flatten(1)
    gram = x.T @ x
    gram += penalty * gram.diagonal().mean() * torch.eye(len(gram), dtype=x.dtype, device=x.device)
    pixels = (queries.double() - center) @ torch.linalg.solve(gram, x.T @ y)
    return (mean + pixels.view(-1, *images.shape[1:])).clamp(0, 1).float()


def between(posteriors: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
    """Law of pseudo-posteriors (n, K): between two auxiliary posteriors that put the wanted class first.

    log p = t log p_a + (1 - t) log p_b up to normalization, for a random pair a != b and t uniform in [0, 1]:
    the wanted class stays first. Where fewer than two exist, all are taken, after the probability of the
    wanted class has changed places with the largest.
    """
    logs = posteriors.log().clamp(min=LOWEST)
    first = logs.argmax(dim=1)
    mixed = torch.empty((len(labels), logs.shape[1]))
    for label in labels.unique().tolist():
        rows = labels == label
        pool = logs[first == label]
        if len(pool) < 2:
            pool = _with_first(logs, torch.full_like(first, label))
        pair = torch.rand((int(rows.sum()), len(pool)), generator=generator).topk(2, dim=1).indices
        t = torch.rand((len(pair), 1), generator=generator)
        mixed[rows] = t * pool[pair[:, 0]] + (1 - t) * pool[pair[:, 1]]
    return mixed.softmax(dim=1)


def uniform(posteriors: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
    """Law of pseudo-posteriors (n, K): uniform over all of them that put the wanted class first."""
    exponential = -torch.rand((len(labels), posteriors.shape[1]), generator=generator).clamp(min=1e-30).log()
    return _with_first(exponential / exponential.sum(dim=1, keepdim=True), labels)


def _with_first(values: Tensor, labels: Tensor) -> Tensor:
    """Each row's largest entry changes places with that of the wanted class."""
    values, rows, first = values.clone(), torch.arange(len(values)), values.argmax(dim=1)
    values[rows, first], values[rows, labels] = values[rows, labels], values[rows, first]
    return values


LAWS: dict[str, Callable[[Tensor, Tensor, torch.Generator], Tensor]] = {
    "between": between,
    "uniform": uniform,
}


@dataclass(frozen=True, kw_only=True)
class InvAlignment(Attack):
    """Yang et al. 2019: min_G E_aux || G(trunc_m(f(x))) - x ||^2; a reconstruction is G(a posterior).

    The adversary has queries that return probabilities, and auxiliary images. Each image is queried once;
    the decoder G learns to draw it from the ``kept`` largest log-probabilities (0: all). The original then
    decodes the posterior of a victim's input. Here nobody hands one over (the SoK: "drawn at random", law not
    stated), so pseudo-posteriors follow ``law``: ``between`` two auxiliary posteriors of the wanted class
    (default), or ``uniform`` over the simplex. The label is the class that the pseudo-posterior puts first.

    Defaults: the original's (Adam with amsgrad, 100 epochs, 1024 channels). Differences: the epoch is chosen
    on a ``held_out`` share of the auxiliary data, where the original looks at the victim's training images;
    images stay as they are, without the victim's extremes of each pixel; ``standardize`` is ours.

    Known failure: one-hot posteriors carry the class only, so G draws class means of *auxiliary* images; it
    can draw nothing that it has not seen, and with few classes a linear regression may do as well (``facts``
    has the errors of both and of the class mean on the held-out images).
    """

    name: ClassVar[str] = "inv_alignment"
    title: ClassVar[str] = "Inv-Alignment"
    paper: ClassVar[str] = "yang2019"
    knowledge: ClassVar[Knowledge] = Knowledge(STATIC, BLACK_BOX, SIMILAR)
    also_datasets: ClassVar[tuple[DatasetAccess, ...]] = (SAME,)
    prepares: ClassVar[bool] = True
    effort: ClassVar[str] = "epochs"
    prior_effort: ClassVar[str | None] = "epochs"

    epochs: int = field(default=100, metadata=PREPARE)
    learning_rate: float = field(default=2e-4, metadata=PREPARE)
    betas: tuple[float, float] = field(default=(0.5, 0.999), metadata=PREPARE)
    train_batch: int = field(default=128, metadata=PREPARE)
    width: int = field(default=1024, metadata=PREPARE)
    kept: int = field(default=0, metadata=PREPARE)
    standardize: bool = field(default=False, metadata=PREPARE)
    held_out: float = field(default=0.1, metadata=PREPARE)
    law: Literal["between", "uniform"] = "between"

    def __post_init__(self) -> None:
        optimize.check_number(self, "epochs", 1, integer=True)
        optimize.check_number(self, "learning_rate", 0, 1000)
        if not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(f"{self.name}: betas must be two numbers in [0, 1), got {self.betas!r}")
        optimize.check_number(self, "train_batch", 2, integer=True)
        optimize.check_number(self, "width", 1, integer=True)
        optimize.check_number(self, "kept", 0, integer=True)
        optimize.check_number(self, "held_out", 0.01, 0.9)
        optimize.check_choice(self, "law", LAWS)

    def prepare(
        self,
        access: BlackBox,
        auxiliary: Auxiliary | None,
        *,
        generator: torch.Generator,
        progress: Progress,
    ) -> Prepared:
        if auxiliary is None or len(auxiliary.images) < 4:
            raise UserError(f"{self.title} needs auxiliary images, at least 4")
        shape, images = access.spec.shape, auxiliary.images.to(access.device)
        posteriors = torch.cat([access.query(part) for part in images.split(CHUNK)]).float()
        inputs = truncated(posteriors, self.kept)
        order = torch.randperm(len(images), generator=generator).to(access.device)
        held, trained = order.tensor_split([max(1, round(self.held_out * len(images)))])
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(torch.randint(2**62, (), generator=generator)))
            net = decoder(access.spec.num_classes, shape, self.width, self.standardize)
        net = net.to(access.device)
        optimizer = torch.optim.Adam(net.parameters(), self.learning_rate, self.betas, amsgrad=True)
        best, losses = {}, []
        for epoch in range(self.epochs):
            net.train()
            parts = math.ceil(len(trained) / self.train_batch)
            mixed = trained[torch.randperm(len(trained), generator=generator).to(access.device)]
            for rows in mixed.tensor_split(parts):  # equal parts: none is a single image
                loss = F.mse_loss(decode(net, inputs[rows], shape), images[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            net.eval()
            with torch.no_grad():
                losses.append(float(F.mse_loss(decode(net, inputs[held], shape), images[held])))
            if losses[-1] < min(losses[:-1], default=math.inf):
                best = {f"decoder.{name}": value.cpu().clone() for name, value in net.state_dict().items()}
            progress(epoch + 1, self.epochs)
        data = inputs[trained], images[trained], inputs[held]
        baselines = [F.mse_loss(baseline(*data), images[held]) for baseline in (class_mean, ridge)]
        return best | {
            "posteriors": posteriors.cpu(),
            "held_out_loss": torch.tensor(losses),
            "baselines": torch.stack(baselines).cpu(),
        }

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
        meter = optimize.Meter(access)
        shape = access.spec.shape
        with torch.device("meta"):  # no values yet, and no random number drawn
            net = decoder(access.spec.num_classes, shape, self.width, self.standardize).eval()
        prefix = "decoder."
        state = {k.removeprefix(prefix): v for k, v in prepared.items() if k.startswith(prefix)}
        net.load_state_dict(state, assign=True)
        net.to(access.device)
        inputs = truncated(LAWS[self.law](prepared["posteriors"], labels, generator), self.kept)
        with torch.no_grad():
            parts = [decode(net, part, shape) for part in inputs.to(access.device).split(CHUNK)]
        progress(n, n)
        losses, (mean, linear) = prepared["held_out_loss"], prepared["baselines"].tolist()
        support = torch.bincount(prepared["posteriors"].argmax(dim=1), minlength=access.spec.num_classes)
        facts = {
            "held_out_mse": float(losses.min()),
            "held_out_mse_class_mean": mean,
            "held_out_mse_ridge": linear,
            "best_epoch": int(losses.argmin()) + 1,
            "smallest_class": int(support.min()),
            "borrowed_classes": int((support < 2).sum()),
        }
        return Reconstruction(torch.cat(parts), labels, losses, **meter.read(), facts=facts)
