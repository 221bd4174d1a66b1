"""L-BFGS on many independent problems at once: one row, one problem.

Each row has its own history, step length and end, and takes the path that it would take alone; what the rows
share is the evaluation of the function, which on a small network costs little more for 32 rows than for one.

The line search is the weak Wolfe bisection of Lewis and Overton (2013), one trial an evaluation, so that no
row waits for another. It ends where the slope has risen, so every pair in a history has positive curvature.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

SUFFICIENT_DECREASE, CURVATURE = 1e-4, 0.9
"""The Wolfe conditions: shares of the decrease and of the slope that a search's start promises."""

MAX_TRIALS = 25
"""Trials of a line search before a row forgets its history, or ends if it has none."""


class History:
    """The pairs (step, change of gradient) of the last ``length`` evaluations of r rows of dimension d.

    A slot belongs to an evaluation, not to a row's step: where a row's trial was not taken, its weight is 0
    and the recursion passes over it. So rows of different pace need no index of their own.
    """

    def __init__(self, length: int, like: Tensor) -> None:
        self.steps = like.new_zeros((length, *like.shape))
        self.changes = torch.zeros_like(self.steps)
        self.weights = like.new_zeros((length, len(like)))  # 1 / <step, change>
        self.scale = like.new_ones(len(like))  # <step, change> / ||change||^2 of the last pair
        self.added = 0

    def add(self, step: Tensor, change: Tensor, taken: Tensor) -> None:
        """Remember one evaluation (r, d); rows outside the mask ``taken`` get no pair."""
        slot = self.added % len(self.weights)
        self.steps[slot] = torch.where(taken[:, None], step, 0.0)
        self.changes[slot] = torch.where(taken[:, None], change, 0.0)
        curvature = torch.where(taken, (step * change).sum(dim=1), 1.0)
        self.weights[slot] = taken / curvature
        self.scale = torch.where(taken, curvature / change.square().sum(dim=1), self.scale)
        self.added += 1

    def precondition(self, gradient: Tensor) -> Tensor:
        """The inverse Hessian's estimate times the gradient: the two-loop recursion of Nocedal (1980)."""
        vector, shares = gradient.clone(), []
        length = len(self.weights)
        newest_first = [(self.added - age) % length for age in range(1, min(self.added, length) + 1)]
        for slot in newest_first:
            shares.append(self.weights[slot] * (self.steps[slot] * vector).sum(dim=1))
            vector.addcmul_(shares[-1][:, None], self.changes[slot], value=-1)
        vector *= self.scale[:, None]
        for slot, share in zip(reversed(newest_first), reversed(shares), strict=True):
            share = share - self.weights[slot] * (self.changes[slot] * vector).sum(dim=1)
            vector.addcmul_(share[:, None], self.steps[slot])
        return vector

    def forget(self, rows: Tensor) -> None:
        """Empty the histories of the rows in the mask."""
        self.weights[:, rows], self.scale[rows] = 0.0, 1.0

    def keep(self, rows: Tensor) -> None:
        """Drop the rows outside the mask."""
        self.steps, self.changes = self.steps[:, rows], self.changes[:, rows]
        self.weights, self.scale = self.weights[:, rows], self.scale[rows]

    @property
    def empty(self) -> Tensor:
        """Which rows have no pair (r,)."""
        return (self.weights == 0).all(dim=0)


@dataclass
class Rows:
    """What each row that still runs is doing; the first dimension of every tensor is the row."""

    number: Tensor  # its row in the start
    point: Tensor  # the last point taken, with its loss and gradient
    loss: Tensor
    gradient: Tensor
    direction: Tensor  # of the search from that point
    length: Tensor  # what is tried next
    low: Tensor  # the longest length known to be too short
    high: Tensor  # the shortest length known to be too long
    trials: Tensor  # so far in this search

    def begin(self, rows: Tensor, pairs: History, learning_rate: float) -> None:
        """Begin a line search in the rows of the mask."""
        self.direction = torch.where(rows[:, None], -pairs.precondition(self.gradient), self.direction)
        # Without a history nothing is known about the loss's scale: the first trial moves by 1 in all.
        first = torch.where(pairs.empty, 1 / self.gradient.abs().sum(dim=1), 1.0)
        self.length = torch.where(rows, learning_rate * first, self.length)
        self.low, self.high = torch.where(rows, 0.0, self.low), torch.where(rows, math.inf, self.high)
        self.trials = torch.where(rows, 0, self.trials)

    def keep(self, rows: Tensor) -> None:
        """Drop the rows outside the mask."""
        for name, value in vars(self).items():
            setattr(self, name, value[rows])


def minimize(
    function: Callable[[Tensor, Tensor], Tensor],
    start: Tensor,
    *,
    evaluations: int,
    learning_rate: float = 1.0,
    history: int = 100,
    tolerance: float = 1e-11,
    report: Callable[[int], None] = lambda evaluation: None,
) -> tuple[Tensor, Tensor]:
    """Minimize ``function`` from each row of ``start`` (rows, d); no row's loss ever rises.

    ``function(points (r, d), numbers (r,)) -> (r,)``: differentiable losses of the rows with these numbers; a
    loss that is not finite counts as a step too long. A row has at most ``evaluations`` of them. It ends
    earlier, and leaves the batch, when no entry of its gradient is larger than ``tolerance`` or when no step
    along the gradient lowers its loss. ``learning_rate``: the length a search tries first. ``history``: pairs
    of the last so many evaluations are used.

    Returns the points (rows, d), and the losses (evaluations, rows) after each evaluation, in float64. A row
    whose first loss is not finite stays where it starts.
    """

    def evaluate(points: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        points = points.detach().requires_grad_(True)
        losses = function(points, numbers)
        (gradients,) = torch.autograd.grad(losses.sum(), points)
        return losses.detach(), gradients

    numbers, best = torch.arange(len(start), device=start.device), start.detach().clone()
    loss, gradient = evaluate(best, numbers)
    still = torch.zeros_like(loss)
    rows = Rows(
        numbers, best.clone(), loss, gradient, torch.zeros_like(best), still, still, still, numbers * 0
    )
    pairs = History(history, best)
    losses = loss.double().expand(evaluations, -1).clone()
    report(1)
    ended = ~(loss.isfinite() & gradient.isfinite().all(dim=1))
    begins = ~ended
    for evaluation in range(1, evaluations):
        ended |= rows.gradient.abs().amax(dim=1) <= tolerance
        if ended.any():
            rows.keep(~ended)
            pairs.keep(~ended)
            begins = begins[~ended]
        if len(rows.number) == 0:
            break
        if begins.any():
            rows.begin(begins, pairs, learning_rate)
        trial = rows.point + rows.length[:, None] * rows.direction
        loss, gradient = evaluate(trial, rows.number)
        slope = (rows.gradient * rows.direction).sum(dim=1)
        # Comparisons with NaN are false, so what is not finite is too high.
        low_enough = loss <= rows.loss + SUFFICIENT_DECREASE * rows.length * slope
        low_enough &= gradient.isfinite().all(dim=1)
        taken = low_enough & ((gradient * rows.direction).sum(dim=1) >= CURVATURE * slope)
        rows.high = torch.where(low_enough, rows.high, rows.length)
        rows.low = torch.where(low_enough, rows.length, rows.low)
        rows.length = torch.where(rows.high.isinf(), 2 * rows.length, (rows.low + rows.high) / 2)
        rows.trials = rows.trials + 1

        pairs.add(trial - rows.point, gradient - rows.gradient, taken)
        rows.point = torch.where(taken[:, None], trial, rows.point)
        rows.gradient = torch.where(taken[:, None], gradient, rows.gradient)
        rows.loss = torch.where(taken, loss, rows.loss)
        best[rows.number] = rows.point
        losses[evaluation:, rows.number] = rows.loss.double()

        stuck = ~taken & (rows.trials >= MAX_TRIALS)
        ended = stuck & pairs.empty
        pairs.forget(stuck)
        begins = taken | stuck
        report(evaluation + 1)
    return best, losses
