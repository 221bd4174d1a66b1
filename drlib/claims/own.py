"""Our own results in the columns that claims read: a benchmark's rows, and its targets' memorization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from drlib import convergence, results
from drlib.errors import UserError
from drlib.metrics.memorization import model_score

if TYPE_CHECKING:
    import pandas

    from drlib.cells import Cell
    from drlib.experiments.ensemble import Ensemble
    from drlib.store import Store

CONVERGED = {False: "yes", True: "no", None: "unknown"}


def own_tables(
    cells: Sequence[Cell],
    grid: convergence.Grid,
    ensembles: Mapping[int, Ensemble],
    *,
    profile: str = "",
    store: Store | None = None,
) -> dict[str, pandas.DataFrame]:
    """What is computed of a benchmark: ``results`` (seeds joined, with intervals) and ``memorization``.

    Args:
        cells: of the benchmark; controls, and those that are not computed, are left out.
        grid: of ``drlib.convergence``; the column ``converged`` is ``yes``, ``no`` or ``unknown``.
        ensembles: by target size, where memorization is measured.

    A table that would be empty is left out.
    """
    import pandas

    done = results.computed([cell for cell in cells if not cell.is_control], store)
    if not done:
        return {}
    table = results.summary(done, store=store, profile=profile)
    moving = convergence.moving(grid, store=store) if grid else {}
    table["converged"] = [CONVERGED[moving.get(name)] for name in table.attack]
    found = {"results": table}
    rows = []
    where = table.iloc[0]  # a benchmark has one data set and one model; not every size need have results yet
    for size, ensemble in ensembles.items():
        try:
            told = results.ensemble(ensemble, store)
        except UserError:  # not computed
            continue
        score = model_score(told["inside"], told["probability"])
        rows.append(
            {
                "dataset": where.dataset,
                "model": where.model,
                "target_size": size,
                "memorization": score.value,
                "value_low": score.value - 1.96 * score.standard_error,
                "value_high": score.value + 1.96 * score.standard_error,
            }
        )
    return found | ({"memorization": pandas.DataFrame(rows)} if rows else {})
