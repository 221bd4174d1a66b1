"""Converged, or said not to be (design, honesty rule 7): a value against multiples of an attack's steps.

Each multiple is a complete run of its own, schedule included: a checkpoint on the way of a longer run with a
falling learning rate would not be what a shorter run gives.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from drlib import results
from drlib.errors import UserError
from drlib.outside import declaration

if TYPE_CHECKING:
    import pandas

    from drlib.cells import Cell
    from drlib.store import Store

METRIC = "SSIM"

Grid = Mapping[tuple[str, str, float], Sequence["Cell"]]
"""(attack, hyperparameter that is scaled, multiple) to cells that differ only in their seeds."""


def curves(grid: Grid, *, store: Store | None = None, profile: str = "") -> pandas.DataFrame:
    """One row per attack, scaled hyperparameter and multiple: ``setting``, ``value``, its interval.

    Raises ``UserError`` if a cell was not computed. Attacks that cannot run give NaN with the reason.
    """
    import pandas

    rows = []
    table = results.joined(list(grid.values()), store=store, profile=profile, metrics=[METRIC])
    for ((attack, name, multiple), cells), row in zip(grid.items(), table.itertuples(), strict=True):
        first = cells[0]
        made = declaration(attack, first.hyperparameters, closed=first.target.files)
        rows.append(
            {
                "attack": results.title(cells[0]),
                "name": attack,
                "scaled": name,
                "multiple": multiple,
                "setting": getattr(made, name),
                "seeds": len(cells),
                "value": row.value,
                "low": row.value_low,
                "high": row.value_high,
                "reason": row.reason,
            }
        )
    return pandas.DataFrame(rows)


def verdicts(curve: pandas.DataFrame) -> pandas.DataFrame:
    """One row per attack and scaled hyperparameter: does the value still move with more steps?

    ``change``: value at the largest multiple minus the value at 1. ``margin``: half the interval at 1.
    ``moves`` is True if the change is larger than the margin, None if it cannot be told.
    """
    import pandas

    rows = []
    for (attack, name, scaled), part in curve.groupby(["attack", "name", "scaled"], sort=False):
        usual = part[part.multiple == 1].iloc[0]
        most = part.sort_values("multiple").iloc[-1]
        change, margin = most.value - usual.value, (usual.high - usual.low) / 2
        known = math.isfinite(change) and math.isfinite(margin) and most.multiple > 1
        rows.append(
            {
                "attack": attack,
                "name": name,
                "scaled": scaled,
                "setting": usual.setting,
                "seeds": usual.seeds,
                "value": usual.value,
                "at_most": most.value,
                "most": most.multiple,
                "change": change,
                "margin": margin,
                "moves": bool(abs(change) > margin) if known else None,
            }
        )
    return pandas.DataFrame(rows)


def moving(grid: Grid, *, store: Store | None = None) -> dict[str, bool | None]:
    """By attack title, whether it still moves in its steps or its prior's; None where it was not run."""
    found: dict[str, bool | None] = {}
    for attack in dict.fromkeys(name for name, _, _ in grid):
        part = {key: cells for key, cells in grid.items() if key[0] == attack}
        title = results.title(next(iter(part.values()))[0])
        try:
            moves = verdicts(curves(part, store=store)).moves.tolist()
        except UserError:
            moves = [None]
        found[title] = True if True in moves else None if None in moves else False
    return found
