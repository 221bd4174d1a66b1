"""Inv-Alignment (Yang, Zhang, Chang, Liang; CCS 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from drlib import gan, optimize, training
from drlib.decoders import Decoder, class_mean, ridge, truncated
from drlib.errors import UserError
from drlib.pseudo_posteriors import LAWS
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

    def _decoder(self, access: BlackBox) -> nn.Module:
        return Decoder(access.spec.num_classes, access.spec.shape, self.width, self.standardize)

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
        images = auxiliary.images.to(access.device, torch.float32)
        posteriors = optimize.ask(access, images)
        inputs = truncated(posteriors, self.kept)
        order = torch.randperm(len(images), generator=generator).to(access.device)
        held, trained = order.tensor_split([min(max(1, round(self.held_out * len(images))), len(images) - 2)])
        net = gan.initialized(lambda: self._decoder(access), generator, access.device)
        optimizer = torch.optim.Adam(net.parameters(), self.learning_rate, self.betas, amsgrad=True)
        best, losses = {}, []
        for epoch in range(self.epochs):
            net.train()
            parts = training.batches_per_epoch(len(trained), self.train_batch)
            mixed = trained[torch.randperm(len(trained), generator=generator).to(access.device)]
            for rows in mixed.tensor_split(parts):  # equal parts of two images or more
                loss = F.mse_loss(net(inputs[rows]), images[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            net.eval()
            with torch.no_grad():
                losses.append(float(F.mse_loss(net(inputs[held]), images[held])))
            if losses[-1] < min(losses[:-1], default=math.inf):
                best = gan.pack(decoder=net)
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
        inputs = truncated(LAWS[self.law](prepared["posteriors"], labels, generator), self.kept)
        inputs = inputs.to(access.device)
        images = gan.sample(gan.unpack(prepared, "decoder", lambda: self._decoder(access), inputs), inputs)
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
        return Reconstruction(images, labels, losses, **meter.read(), facts=facts)
