"""How measures relate: correlations with intervals on chosen rows of a results table.

Works on any table with the columns of ``results.summary`` or of ``published.load("image_attacks")``. A
coefficient is kept with its sign; the paper's heat maps print absolute values. A Frechet distance and MSE
fall when images come closer, SSIM, PSNR and coverages rise, so the sign alone does not say whether two
measures agree: ``agreement`` turns it so that positive always means that they do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from drlib.errors import UserError, unknown

if TYPE_CHECKING:
    import pandas

METHODS = ("pearson", "spearman", "kendall")
"""Coefficients: of the values, of their ranks, and Kendall's tau-b (of the order of pairs)."""

SAMPLE = ("SSIM", "PSNR", "MSE")
COVERAGES = tuple(f"coverage ({metric})" for metric in SAMPLE)

_IDENTITY = (
    "paper_table", "dataset", "model", "defense", "attack", "target_size", "kind", "reconstructs", "matching",
    "coverage_floor", "coverage_chance",
)  # fmt: skip
_SMALLEST = 1e-9  # a variance relative to the largest value squared: below it, a column is constant


# --- one row per experiment ----------------------------------------------------------------------------


def is_dataset_level(metric: str) -> bool:
    """True for a Frechet distance, whatever the features: ``FID`` or ``FD-<extractor>``."""
    return metric == "FID" or metric.startswith("FD-")


def direction(measure: str) -> int:
    """1 if a larger value means closer (SSIM, PSNR, coverages), -1 if a smaller one does."""
    return -1 if measure == "MSE" or is_dataset_level(measure) else 1


def agreement(coefficient: float, a: str, b: str) -> float:
    """The coefficient with its sign turned so that positive means: both call the same rows close."""
    return coefficient * direction(a) * direction(b)


def side_by_side(table: pandas.DataFrame, value: str = "value") -> pandas.DataFrame:
    """One row per experiment, one column per measure: the Frechet distance, ``SAMPLE``, ``COVERAGES``.

    The columns that say which experiment it is come first; floor and chance of coverage where the table has
    them. Coverages are fractions. ``value``: the column to take the measures from, such as ``value_equal``.
    What is NaN stays NaN. Raises ``UserError`` if two rows are of the same experiment and metric, if a column
    is missing or is not of numbers, or if no row has one of the metrics.
    """
    import pandas

    _check_columns(table, ["attack", "target_size", "metric", value, "coverage_percent"])
    rows = table[table.metric.map(lambda name: name in SAMPLE or is_dataset_level(name))]
    if not len(rows):
        raise UserError(f"side_by_side needs rows with the metric {', '.join(SAMPLE)} or FD-..., got none")
    rows = rows.assign(**{name: _numbers(rows[name], name) for name in (value, "coverage_percent")})
    identity = [name for name in _IDENTITY[:-2] if name in rows]
    twice = rows[rows.duplicated([*identity, "metric"])]
    if len(twice):
        first = twice.iloc[0]
        raise UserError(
            f"two rows of {first.attack} at {first.target_size} have the metric {first.metric}: choose"
        )
    levels = [name for name in _IDENTITY[-2:] if name in rows]
    order = pandas.MultiIndex.from_frame(rows[identity].drop_duplicates())

    def spread(column: str) -> pandas.DataFrame:
        return rows.pivot(index=identity, columns="metric", values=column).reindex(order)

    names = sorted(rows.metric.unique(), key=lambda name: (not is_dataset_level(name), _place(name)))
    wide = spread(value)[names]
    coverage = spread("coverage_percent") / 100
    for metric in SAMPLE:
        if metric in coverage:
            wide[f"coverage ({metric})"] = coverage[metric]
    for name in levels:
        wide[name] = spread(name)["SSIM"] if "SSIM" in names else np.nan
    wide.columns.name = None
    return wide.reset_index()


def _check_columns(frame: pandas.DataFrame, names: Iterable[str]) -> None:
    for name in names:
        if name not in frame:
            raise unknown("column", name, frame.columns)


def _numbers(values: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name} must be numbers: {error}") from None


def _place(metric: str) -> int:
    return SAMPLE.index(metric) if metric in SAMPLE else 0


# --- correlations --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Correlation:
    """A coefficient in [-1, 1] with a percentile interval.

    Attributes:
        value: NaN if it is not defined.
        low, high: bounds; NaN where they cannot be computed.
        n: rows that it is made of; ``left_out``: rows where a value is NaN or infinite.
        groups: what the bootstrap draws: rows, or groups of rows that belong together.
        reason: why value or bounds are NaN, else "".
    """

    value: float
    low: float
    high: float
    n: int
    left_out: int
    groups: int
    reason: str = ""


def correlation(
    x: Sequence[float] | np.ndarray,
    y: Sequence[float] | np.ndarray,
    how: str = "pearson",
    *,
    groups: Sequence[Any] | None = None,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Correlation:
    """The correlation of paired values, with a bootstrap over rows, or over ``groups`` of rows.

    Rows of one attack at several sizes are no independent evidence: with ``groups`` all of them are drawn or
    none. The interval says how the coefficient varies with the choice of rows (or groups), nothing else.

    Args:
        x, y: n numbers each; a row with a NaN or an infinity (PSNR of copies) is left out.
        how: one of ``METHODS``.
        groups: n labels.
        resamples: 0 for no interval.
        seed: of the bootstrap, 0 or more.

    Raises:
        UserError: unknown ``how``, other lengths, text, a level outside (0, 1), resamples or a seed below 0.
    """
    if how not in METHODS:
        raise unknown("correlation", how, METHODS)
    x, y = (_numbers(v, getattr(v, "name", None) or name) for name, v in (("x", x), ("y", y)))
    if x.ndim != 1 or x.shape != y.shape:
        raise UserError(f"a correlation needs two columns of equal length, got {x.shape} and {y.shape}")
    if groups is not None and len(groups) != len(x):
        raise UserError(f"groups must have one label for each of {len(x)} rows, got {len(groups)}")
    if not 0 < level < 1 or resamples < 0:
        raise UserError(f"level must lie between 0 and 1 and resamples not below 0, got {level}, {resamples}")
    if seed < 0:
        raise UserError(f"seed must be 0 or more, got {seed}")
    kept = np.isfinite(x) & np.isfinite(y)
    left_out, n = int((~kept).sum()), int(kept.sum())
    labels = np.arange(len(x)) if groups is None else np.asarray([str(label) for label in groups])
    names, member = np.unique(labels[kept], return_inverse=True)
    x, y = x[kept], y[kept]
    unknown_value = {"low": np.nan, "high": np.nan, "n": n, "left_out": left_out, "groups": len(names)}
    if n < 3:
        return Correlation(np.nan, **unknown_value, reason=f"a correlation needs 3 rows or more, got {n}")
    value = float(_coefficients(x, y, np.ones((1, n)), how)[0])
    if np.isnan(value):
        return Correlation(value, **unknown_value, reason="all values of one measure are equal")
    if resamples == 0:
        return Correlation(value, **unknown_value, reason="no interval asked for")
    if len(names) < 5:
        what = "rows" if groups is None else "groups of rows"
        return Correlation(
            value, **unknown_value, reason=f"an interval needs 5 {what} or more, got {len(names)}"
        )
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=resamples)
    values = _coefficients(x, y, drawn[:, member].astype(np.float64), how)
    defined = values[~np.isnan(values)]
    if len(defined) < resamples / 2:
        return Correlation(
            value, **unknown_value, reason="in most resamples all values of one measure are equal"
        )
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return Correlation(value, float(low), float(high), n, left_out, len(names))


def _coefficients(x: np.ndarray, y: np.ndarray, counts: np.ndarray, how: str) -> np.ndarray:
    """Coefficients of resamples: x, y (n,); counts (r, n), how often each row is in each; returns (r,)."""
    if how == "kendall":
        a, b = np.sign(x[:, None] - x), np.sign(y[:, None] - y)
        both, only_a, only_b = (((counts @ s) * counts).sum(1) for s in (a * b, a * a, b * b))
        return _ratio(both, only_a, only_b, 1.0)
    if how == "spearman":
        x, y = _ranks(x, counts), _ranks(y, counts)
    else:
        x, y = x[None], y[None]
    total = counts.sum(1, keepdims=True)
    scale = np.maximum(np.abs(x).max(), 1e-300), np.maximum(np.abs(y).max(), 1e-300)
    x = x / scale[0] - (counts * x).sum(1, keepdims=True) / total / scale[0]
    y = y / scale[1] - (counts * y).sum(1, keepdims=True) / total / scale[1]
    both, only_x, only_y = ((counts * part).sum(1) for part in (x * y, x * x, y * y))
    return _ratio(both, only_x, only_y, total[:, 0])


def _ratio(both: np.ndarray, one: np.ndarray, other: np.ndarray, total: np.ndarray | float) -> np.ndarray:
    constant = np.minimum(one, other) <= _SMALLEST**2 * total
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(constant, np.nan, np.clip(both / np.sqrt(one * other), -1, 1))


def _ranks(x: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Mean ranks of x (n,) within each resample (r, n), ties shared."""
    below = (x < x[:, None]) + 0.5 * (x == x[:, None])
    return counts @ below.T + 0.5


def matrix(frame: pandas.DataFrame, columns: Sequence[str], how: str = "pearson") -> pandas.DataFrame:
    """Signed coefficients of all pairs of ``columns`` of ``side_by_side``'s frame; NaN where not defined.

    Raises ``UserError`` if a column is missing or is not of numbers.
    """
    import pandas

    _check_columns(frame, columns)
    found = pandas.DataFrame(np.eye(len(columns)), index=list(columns), columns=list(columns))
    for i, a in enumerate(columns):
        for b in columns[:i]:
            value = correlation(frame[a], frame[b], how, resamples=0).value
            found.loc[a, b] = found.loc[b, a] = value
    return found


def correlations(
    frame: pandas.DataFrame,
    pairs: Iterable[tuple[str, str]],
    how: str = "pearson",
    *,
    groups: str | None = None,
    resamples: int = 2000,
    seed: int = 0,
) -> pandas.DataFrame:
    """One row per pair of columns: ``value`` (signed), ``absolute``, ``agreement`` with its interval ``low``
    to ``high``, ``n``, ``left_out``, ``groups``, ``reason``.

    ``groups``: a column; rows that are equal in it stay together in the bootstrap. Raises ``UserError`` if a
    column is missing or a measure is not of numbers.
    """
    import pandas

    rows = []
    for a, b in pairs:
        _check_columns(frame, [a, b] if groups is None else [a, b, groups])
        labels = None if groups is None else frame[groups].tolist()
        found = correlation(frame[a], frame[b], how, groups=labels, resamples=resamples, seed=seed)
        low, high = sorted((agreement(found.low, a, b), agreement(found.high, a, b)))
        rows.append(
            {
                "a": a,
                "b": b,
                "how": how,
                "value": found.value,
                "absolute": abs(found.value),
                "agreement": agreement(found.value, a, b),
                "low": low,
                "high": high,
                "n": found.n,
                "left_out": found.left_out,
                "groups": found.groups,
                "reason": found.reason,
            }
        )
    return pandas.DataFrame(rows)


def discordant(frame: pandas.DataFrame, a: str, b: str) -> pandas.DataFrame:
    """Pairs of rows that ``a`` and ``b`` order in opposite ways, the plainest contradictions first.

    Columns: ``closer_by_a`` and ``closer_by_b`` (positions in ``frame``: the first is closer by ``a``, the
    second by ``b``), ``ranks_a`` and ``ranks_b``: how many places apart they are (ties share a place). Rows
    with a NaN or an infinity are left out, ties are no contradiction. ``attrs["pairs"]``: pairs compared.
    Raises ``UserError`` if a column is missing or is not of numbers.
    """
    import pandas

    _check_columns(frame, [a, b])
    values = np.stack([_numbers(frame[name], name) for name in (a, b)], 1)
    kept = np.flatnonzero(np.isfinite(values).all(axis=1))
    one = np.ones((1, len(kept)))
    ranks = [_ranks(direction(name) * values[kept, column], one)[0] for column, name in enumerate((a, b))]
    rows = []
    for i in range(len(kept)):
        for j in range(len(kept)):
            by_a, by_b = ranks[0][i] - ranks[0][j], ranks[1][j] - ranks[1][i]
            if by_a > 0 and by_b > 0:
                rows.append((kept[i], kept[j], by_a, by_b))
    found = pandas.DataFrame(rows, columns=["closer_by_a", "closer_by_b", "ranks_a", "ranks_b"])
    strength = np.minimum(found.ranks_a, found.ranks_b)
    found = found.assign(strength=strength).sort_values(
        ["strength", "ranks_a", "ranks_b"], ascending=False, kind="stable"
    )
    found = found.drop(columns="strength").reset_index(drop=True)
    found.attrs["pairs"] = len(kept) * (len(kept) - 1) // 2
    return found


# --- the coefficients that section 5.1 of the paper prints ---------------------------------------------

GANS = ("Revealer", "KEDMI", "PLGMI")
DYNAMIC = ("Updates-Leak", "Deep-Leakage")
UNLABELED = ("Bias-Rec", "Deep-Leakage", "Updates-Leak")
"""Attacks whose output the paper matched among all targets (their coverage falls below one per class)."""

ATTACKS = ("MI-Face", "DeepDream", "DeepInversion", "Inv-Alignment", "Bias-Rec", *GANS, *DYNAMIC)
"""All ten attacks of the paper."""

CLASSES = {"CelebA": 1000, "CIFAR10": 5, "MNIST": 5, "CIFAR100": 50}
"""Classes of the paper's target data sets."""

PRINTED: dict[tuple[str, str, str], float] = {
    ("all attacks", "FID", "SSIM"): 0.465,
    ("all attacks", "FID", "PSNR"): 0.117,
    ("all attacks", "FID", "MSE"): 0.289,
    ("GAN attacks", "FID", "SSIM"): 0.597,
    ("GAN attacks", "FID", "PSNR"): 0.721,
    ("GAN attacks", "FID", "MSE"): 0.511,
    ("all attacks", "coverage (SSIM)", "coverage (PSNR)"): 0.429,
    ("all attacks", "coverage (SSIM)", "coverage (MSE)"): 0.429,
    ("GAN attacks", "coverage (SSIM)", "coverage (PSNR)"): 0.993,
    ("GAN attacks", "coverage (SSIM)", "coverage (MSE)"): 0.993,
}
"""By attacks and pair of measures, the absolute coefficients in section 5.1. For the last two the paper says
that "low-quality reconstructions are excluded"; that this means the GAN attacks is itself a reading."""

READ_TABLES: dict[str, tuple[int, ...]] = {
    "Table 2": (2,),
    "CelebA": (2, 17, 18),
    "CIFAR10": (19, 20, 21),
    "MNIST": (22, 23, 24),
    "CIFAR10, MNIST": (19, 20, 21, 22, 23, 24),
    "VGG16": (2, 19, 22),
    "nine tables": (2, 17, 18, 19, 20, 21, 22, 23, 24),
    "nine, CIFAR100": (2, 15, 17, 18, 19, 20, 21, 22, 23, 24),
    "all twelve": (2, 13, 14, 15, 17, 18, 19, 20, 21, 22, 23, 24),
}
"""Which tables Figure 2 may be made of. Table 16 repeats rows of Table 2 beside defended models."""

READ_SIZES = ("all sizes", "smallest", "largest")
PLACES = ("second size", "third size", "fourth size", "fifth size")
EACH_SIZE = (*READ_SIZES, *PLACES)
"""Sizes by their place in each table, the smallest first; the paper's tables have six."""

READ_ATTACKS = ("ten attacks", "Bias-Rec once", "static attacks")
"""Bias-Rec has a network of its own, whose one result stands in the tables of all three networks."""


def read_rows(
    frame: pandas.DataFrame, tables: str, sizes: str = "all sizes", attacks: str = "ten attacks"
) -> pandas.DataFrame:
    """The rows of ``side_by_side(published.load("image_attacks"))`` that a reading of the paper means.

    Raises ``UserError`` for a reading that is not one of the lists above, or if a column is missing.
    """
    for kind, value, allowed in (
        ("tables", tables, READ_TABLES),
        ("sizes", sizes, EACH_SIZE),
        ("attacks", attacks, READ_ATTACKS),
    ):
        if value not in allowed:
            raise unknown(f"reading of {kind}", value, allowed)
    _check_columns(frame, ["paper_table", "dataset", "defense", "attack", "target_size", "FID", *SAMPLE])
    rows = frame[frame.paper_table.isin(READ_TABLES[tables]) & (frame.defense == "none")]
    by_table = rows.groupby("paper_table").target_size
    if sizes == "largest":
        rows = rows[rows.target_size == by_table.transform("max")]
    if sizes == "smallest":
        rows = rows[rows.target_size == by_table.transform("min")]
    if sizes in PLACES:
        rows = rows[by_table.rank(method="dense") == PLACES.index(sizes) + 2]
    if attacks == "static attacks":
        rows = rows[~rows.attack.isin(DYNAMIC)]
    if attacks == "Bias-Rec once":
        again = rows.duplicated(["dataset", "attack", "target_size", "FID", *SAMPLE])
        rows = rows[~((rows.attack == "Bias-Rec") & again)]
    return rows


def audit(frame: pandas.DataFrame, sizes: Sequence[str] = READ_SIZES) -> pandas.DataFrame:
    """Every reading beside every printed coefficient; ``sizes``: those to try, some of ``EACH_SIZE``.

    One row per reading (``tables``, ``sizes``, ``attacks``, ``how``), ``group`` of attacks and pair ``a``,
    ``b``: ``value`` (signed), ``agreement``, ``printed``, ``deviation`` of the absolute value, ``n``. The
    choice of attacks leaves the GAN attacks as they are: one reading where all attacks have three.
    """
    import pandas

    _check_columns(frame, COVERAGES)  # read_rows looks for the others
    measures = sorted({name for _, *pair in PRINTED for name in pair})
    found = []
    for tables in READ_TABLES:
        for which in sizes:
            for attacks in READ_ATTACKS:
                rows = read_rows(frame, tables, which, attacks)
                groups = {"all attacks": rows}
                if attacks == READ_ATTACKS[0]:
                    groups["GAN attacks"] = rows[rows.attack.isin(GANS)]
                columns = {
                    group: {name: part[name].to_numpy(np.float64) for name in measures}
                    for group, part in groups.items()
                }
                for how in METHODS:
                    reading = {"tables": tables, "sizes": which, "attacks": attacks, "how": how}
                    values: dict[Any, float] = {}  # PSNR and MSE have the same coverages
                    for (group, a, b), printed in PRINTED.items():
                        if group not in groups:
                            continue
                        x, y = columns[group][a], columns[group][b]
                        key = group, x.tobytes(), y.tobytes()
                        if key not in values:
                            values[key] = correlation(x, y, how, resamples=0).value
                        value = values[key]
                        numbers = {"value": value, "agreement": agreement(value, a, b), "printed": printed}
                        deviation = abs(abs(value) - printed)
                        pair = {"group": group, "a": a, "b": b}
                        found.append(reading | pair | numbers | {"deviation": deviation, "n": len(x)})
    return pandas.DataFrame(found)


def closest(
    audited: pandas.DataFrame, by: Sequence[str] = ("tables", "sizes", "attacks", "how")
) -> pandas.DataFrame:
    """Readings by their largest ``deviation``, the closest first: one row each, ``deviation`` and ``n``.

    ``audited``: rows of ``audit`` that are to be matched at the same time. A reading that lacks one of them,
    or has a NaN, comes last with a NaN. Raises ``UserError`` if a column is missing.
    """
    _check_columns(audited, [*by, "group", "a", "b", "deviation", "n"])
    grouped = audited.groupby(list(by), sort=False)
    worst = grouped.deviation.agg(lambda values: values.max(skipna=False))
    wanted = len(audited[["group", "a", "b"]].drop_duplicates())
    worst[grouped.size() < wanted] = np.nan
    found = worst.to_frame().assign(n=grouped.n.max()).reset_index()
    return found.sort_values("deviation", kind="stable", na_position="last").reset_index(drop=True)


def chance_of_match(audited: pandas.DataFrame, *, draws: int = 10_000, seed: int = 0) -> float:
    """How often made-up numbers would be matched as well as the printed ones are, by one of the readings.

    Many readings come close to something. Made-up numbers are uniform between the smallest and the largest
    absolute coefficient of any reading, pair by pair; the answer is the share of them that some reading comes
    as close to (in the largest deviation) as the closest comes to the printed ones. ``audited`` as in
    ``closest``. Raises ``UserError`` if a column is missing.
    """
    reading, pair = ["tables", "sizes", "attacks", "how"], ["group", "a", "b"]
    _check_columns(audited, [*reading, *pair, "value", "deviation", "n"])
    wide = audited.assign(absolute=audited.value.abs()).pivot(index=reading, columns=pair, values="absolute")
    values = wide.dropna().to_numpy()
    if not len(values):
        return float("nan")
    best = closest(audited).deviation.iloc[0]
    rng = np.random.default_rng(seed)
    made_up = rng.uniform(values.min(0), values.max(0), size=(draws, values.shape[1]))
    nearest = np.full(draws, np.inf)
    for row in values:
        nearest = np.minimum(nearest, np.abs(made_up - row).max(1))
    return float((nearest <= best).mean())


def paper_levels(dataset: str, attack: str, target_size: int) -> tuple[float, float]:
    """Floor and chance level of a coverage that the paper prints, as fractions.

    Labeled attacks are matched inside the class, k = size / classes targets to k reconstructions; the others
    among all, and dynamic attacks have 100 update images whatever the size. Raises ``UserError`` for a data
    set or an attack that the paper does not have, and for a size below 1.
    """
    if dataset not in CLASSES:
        raise unknown("data set of the paper", dataset, CLASSES)
    if attack not in ATTACKS:
        raise unknown("attack of the paper", attack, ATTACKS)
    if not target_size >= 1:
        raise UserError(f"target_size must be 1 or more, got {target_size}")
    if attack in DYNAMIC:
        k = 100.0
    elif attack in UNLABELED:
        k = float(target_size)
    else:
        k = max(1.0, target_size / CLASSES[dataset])
    return 1 / k, 1 - (1 - 1 / k) ** k
