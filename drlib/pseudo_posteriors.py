"""Posteriors for a decoder where no victim's answer is at hand (SoK: "drawn at random", law not stated)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from drlib.decoders import LOWEST


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
