"""Memorization (equations 1 and 2 of the paper) from models that were trained with and without each sample.

mem_i = Pr[f(x_i) = y_i] over models trained with sample i minus the same over models trained without it. The
models come from one of two designs. *Leave-one-out* is the definition itself: models trained on all of D and
models trained on D without i. *Subsampled* (Feldman and Zhang 2020): every model is trained on a random
subset, and serves as a model with i for the samples in its subset and without i for all others; what it
estimates is memorization at the subset's size.

Here is only what is done with their answers: ``inside`` (T, n) says which sample was in which model's
training set, ``outcome`` (T, n) what the model said of it: 0 or 1 for correct, or the probability of the
label, which is another measure of the same thing (unsure answers count in part) with a smaller variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from drlib.errors import UserError

FIRST = 1000
"""The paper's model score is the mean over the first 1,000 training samples."""


@dataclass(frozen=True)
class Memorization:
    """Per sample, all float64 (n,), NaN where it cannot be computed.

    Attributes:
        values: in [-1, 1]: ``with_sample - without_sample``. NaN where no model is left on one side.
        standard_error: of ``values``, over models; NaN with fewer than two models on a side.
        with_sample, without_sample: mean outcome of the models trained with and without the sample.
        models_with, models_without: int64, how many models these are.
    """

    values: Tensor
    standard_error: Tensor
    with_sample: Tensor
    without_sample: Tensor
    models_with: Tensor
    models_without: Tensor


@dataclass(frozen=True)
class ModelScore:
    """Equation 2: the mean memorization of ``samples`` samples, its standard error over models.

    ``left_out``: samples that have no value, such as those whose class vanishes without them.
    """

    value: float
    standard_error: float
    samples: int
    left_out: int


def memorization(inside: Tensor, outcome: Tensor, *, usable: Tensor | None = None) -> Memorization:
    """Equation 1 for each sample.

    Args:
        inside: bool (T, n). outcome: (T, n) in [0, 1].
        usable: bool (T, n); False keeps a model's answer on a sample out (see ``class_present``,
            ``complete_or_without``). Default: all are used.

    Raises:
        UserError: shapes or types that do not fit, outcomes outside [0, 1] or NaN.
    """
    inside, outcome = _check(inside, outcome)
    usable = torch.ones_like(inside) if usable is None else usable.bool()
    if usable.shape != inside.shape:
        raise UserError(f"usable must have shape {tuple(inside.shape)}, got {tuple(usable.shape)}")
    sides = [_side(outcome, usable & chosen) for chosen in (inside, ~inside)]
    (with_sample, error_with, models_with), (without, error_without, models_without) = sides
    return Memorization(
        values=with_sample - without,
        standard_error=(error_with.square() + error_without.square()).sqrt(),
        with_sample=with_sample,
        without_sample=without,
        models_with=models_with,
        models_without=models_without,
    )


def _side(outcome: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, standard error of the mean, and count of the chosen outcomes of each sample."""
    count = chosen.sum(0)
    mean = (outcome * chosen).sum(0) / count  # 0 / 0 is NaN, as it should be
    squares = ((outcome - mean.nan_to_num()).square() * chosen).sum(0)
    return mean, (squares / (count - 1) / count).where(count > 1, torch.nan).sqrt(), count


def class_present(inside: Tensor, labels: Tensor) -> Tensor:
    """bool (T, n): whether sample i's class is in model t's training set.

    Where it is not, the model never heard of the class, and its error on i says nothing of memorizing i. With
    one sample in a class, leaving it out always removes the class, so nothing usable remains.
    """
    members = torch.nn.functional.one_hot(labels.long()).double()  # (n, K)
    return (inside.double() @ members)[:, labels.long()] > 0


def complete_or_without(inside: Tensor) -> Tensor:
    """bool (T, n): the leave-one-out design's answers: of models trained on everything, or without i."""
    return inside.all(1, keepdim=True) | ~inside


def model_score(
    inside: Tensor, outcome: Tensor, *, usable: Tensor | None = None, first: int = FIRST
) -> ModelScore:
    """Equation 2: the mean over the ``first`` samples, with the jackknife's standard error over models.

    As in the paper these are the first 1,000; later ones do not count, not even as ``left_out``.
    The samples' values share models, so their spread says nothing of the error of their mean; leaving out one
    model at a time does.
    """
    inside, outcome = _check(inside, outcome)
    usable = torch.ones_like(inside) if usable is None else usable.bool()
    inside, outcome, usable = (values[:, :first] for values in (inside, outcome, usable))
    values = memorization(inside, outcome, usable=usable).values
    known = values.isfinite()
    samples, left_out = int(known.sum()), int((~known).sum())
    if not samples:
        return ModelScore(float("nan"), float("nan"), 0, left_out)
    replicates = _without_one_model(inside, outcome, usable)[:, known]
    scores = replicates.nanmean(1)
    models = len(scores)
    error = ((models - 1) / models * (scores - scores.mean()).square().sum()).sqrt()
    return ModelScore(float(values[known].mean()), float(error), samples, left_out)


def _without_one_model(inside: Tensor, outcome: Tensor, usable: Tensor) -> Tensor:
    """(T, n): every sample's value when model t is left out."""
    means = []
    for chosen in (usable & inside, usable & ~inside):
        kept = outcome * chosen
        means.append((kept.sum(0) - kept) / (chosen.sum(0) - chosen.long()))
    return means[0] - means[1]


def split_half_reliability(
    inside: Tensor, outcome: Tensor, *, usable: Tensor | None = None, splits: int = 20, seed: int = 0
) -> tuple[float, float]:
    """Would other models rank the samples alike? Spearman correlation between two halves of the models.

    Returns the mean over ``splits`` random halvings, and the reliability of all models together by the
    Spearman-Brown formula 2r / (1 + r), or 0 if r is negative. NaN where the values of a half are all equal.
    """
    inside, outcome = _check(inside, outcome)
    usable = torch.ones_like(inside) if usable is None else usable.bool()
    if len(inside) < 4:
        raise UserError(f"halves of the models need 4 models or more, got {len(inside)}")
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(splits):
        order = torch.randperm(len(inside), generator=generator)
        halves = order[: len(order) // 2], order[len(order) // 2 :]
        a, b = (memorization(inside[h], outcome[h], usable=usable[h]).values for h in halves)
        found.append(rank_correlation(a, b))
    r = torch.tensor(found, dtype=torch.float64).nanmean().item()
    return r, 0.0 if r < 0 else 2 * r / (1 + r)


def rank_correlation(a: Tensor, b: Tensor, groups: Tensor | None = None) -> float:
    """Spearman's correlation of two (n,) tensors over the entries that both have; NaN if one is constant.

    groups: int64 (n,); ranks are then taken inside them, so what differs between groups counts for nothing.
    """
    x, y, _ = _ranks(a, b, groups)
    scale = (x.square().sum() * y.square().sum()).sqrt()
    return float(x @ y / scale) if scale > 0 and len(x) > 2 else float("nan")


def permutation_p_value(a: Tensor, b: Tensor, groups: Tensor, *, draws: int = 1000, seed: int = 0) -> float:
    """Two-sided p-value of ``rank_correlation(a, b, groups)``.

    The share of random orders of ``b`` inside the groups whose correlation is at least as far from zero; the
    observed order is counted among them. NaN without a correlation.

    Raises:
        UserError: lengths that do not fit, fewer than one draw.
    """
    if draws < 1:
        raise UserError(f"draws must be 1 or more, got {draws}")
    x, y, kept = _ranks(a, b, groups)
    if math.isnan(rank_correlation(a, b, groups)):
        return float("nan")
    # sorted by group, and at random inside a group: a group has the same places in every row
    generator = torch.Generator().manual_seed(seed)
    keys = torch.rand(draws, len(kept), generator=generator, dtype=torch.float64)
    places = kept.argsort(stable=True)
    shuffled = (keys + kept).argsort(1)
    drawn = y[shuffled] @ x[places]
    return (1 + int((drawn.abs() >= (x @ y).abs() - 1e-9).sum())) / (1 + draws)


def _ranks(a: Tensor, b: Tensor, groups: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Centered ranks, inside groups, of the entries that both have: two (k,) and their groups 0, 1, ..."""
    from scipy.stats import rankdata

    groups = torch.zeros(len(a), dtype=torch.long) if groups is None else groups
    if a.dim() != 1 or a.shape != b.shape or a.shape != groups.shape:
        shapes = ", ".join(str(tuple(each.shape)) for each in (a, b, groups))
        raise UserError(f"values and groups must be one row of equal length, got {shapes}")
    known = a.isfinite() & b.isfinite()
    _, kept = groups[known].unique(return_inverse=True)
    pair = [values.detach()[known].double() for values in (a, b)]
    for values in pair:
        for group in range(int(kept.max()) + 1 if len(kept) else 0):
            ranks = torch.from_numpy(rankdata(values[kept == group].numpy()))
            values[kept == group] = ranks - ranks.mean()
    return *pair, kept


def _check(inside: Tensor, outcome: Tensor) -> tuple[Tensor, Tensor]:
    if inside.dtype != torch.bool or inside.dim() != 2 or not inside.numel():
        raise UserError(f"inside must be bool (models, samples), got {inside.dtype} {tuple(inside.shape)}")
    if outcome.shape != inside.shape:
        raise UserError(f"outcome must have shape {tuple(inside.shape)}, got {tuple(outcome.shape)}")
    outcome = outcome.double()
    if not bool(((outcome >= 0) & (outcome <= 1)).all()):
        raise UserError("outcome must lie in [0, 1] without NaN")
    return inside, outcome
