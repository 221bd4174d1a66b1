"""Correlations between measures, and the readings of the coefficients that the paper prints."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from drlib import published, relations
from drlib.errors import UserError
from drlib.relations import agreement, correlation, side_by_side


def long(rows: dict[str, dict[str, float]], coverage: float = 50.0) -> pd.DataFrame:
    """A results table of one size: attack to metric to value."""
    return pd.DataFrame(
        [
            {"attack": attack, "target_size": 10, "metric": metric, "value": value}
            | {"coverage_percent": math.nan if relations.is_dataset_level(metric) else coverage}
            for attack, values in rows.items()
            for metric, value in values.items()
        ]
    )


# --- coefficients --------------------------------------------------------------------------------------


def test_known_coefficients():
    x = [1.0, 2.0, 3.0, 4.0]
    assert correlation(x, [2.0, 4.0, 6.0, 8.0], resamples=0).value == pytest.approx(1)
    assert correlation(x, [8.0, 6.0, 4.0, 2.0], resamples=0).value == pytest.approx(-1)
    # ranks 1 2 3 4 against 1 2 4 3: rho = 1 - 6 * 2 / (4 * 15), tau = (5 - 1) / 6
    y = [1.0, 10.0, 1000.0, 100.0]
    assert correlation(x, y, "spearman", resamples=0).value == pytest.approx(0.8)
    assert correlation(x, y, "kendall", resamples=0).value == pytest.approx(4 / 6)


@pytest.mark.parametrize("how", relations.METHODS)
@pytest.mark.parametrize("seed", range(3))
def test_coefficients_agree_with_scipy_also_with_ties(how, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 6, 30).astype(float), rng.normal(size=30).round(1) * 1e3
    function = {
        "pearson": scipy.stats.pearsonr,
        "spearman": scipy.stats.spearmanr,
        "kendall": scipy.stats.kendalltau,
    }[how]
    assert correlation(x, y, how, resamples=0).value == pytest.approx(function(x, y)[0], abs=1e-12)


@pytest.mark.parametrize("how", relations.METHODS)
def test_a_resample_is_what_repeating_its_rows_gives(how):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 5, 12).astype(float), rng.normal(size=12)
    counts = rng.multinomial(12, np.full(12, 1 / 12), size=20).astype(float)
    quick = relations._coefficients(x, y, counts, how)
    for value, times in zip(quick, counts.astype(int), strict=True):
        slow = correlation(np.repeat(x, times), np.repeat(y, times), how, resamples=0).value
        assert value == pytest.approx(slow, abs=1e-12)


def test_the_interval_covers_a_known_correlation_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(100):
        x = rng.normal(size=60)
        y = 0.6 * x + 0.8 * rng.normal(size=60)  # correlation 0.6
        found = correlation(x, y, resamples=300)
        inside += found.low <= 0.6 <= found.high
    assert 85 <= inside <= 100


def test_rows_of_a_group_stay_together():
    """Twenty copies of each of six rows know no more than the six rows."""
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=6), rng.normal(size=6)
    few = correlation(x, y)
    many = correlation(np.repeat(x, 20), np.repeat(y, 20), groups=np.repeat(np.arange(6), 20).tolist())
    assert many.value == pytest.approx(few.value)
    assert (many.low, many.high) == pytest.approx((few.low, few.high))
    assert (many.n, many.groups) == (120, 6)
    alone = correlation(np.repeat(x, 20), np.repeat(y, 20))
    assert alone.high - alone.low < 0.6 * (many.high - many.low)


def test_the_same_seed_gives_the_same_interval():
    x, y = np.random.default_rng(3).normal(size=(2, 10))
    assert correlation(x, y, seed=1) == correlation(x, y, seed=1)
    assert correlation(x, y, seed=1).low != correlation(x, y, seed=2).low


def test_what_cannot_be_computed_is_nan_with_a_reason():
    found = correlation([1.0, math.nan, 3.0, 4.0], [1.0, 2.0, math.inf, 5.0])
    assert math.isnan(found.value) and (found.n, found.left_out) == (2, 2) and "3 rows" in found.reason
    found = correlation([1.0, 1.0, 1.0], [1.0, 2.0, 3.0])
    assert math.isnan(found.value) and "equal" in found.reason
    found = correlation([1.0, 2.0, 3.0, 5.0], [1.0, 3.0, 2.0, 4.0])
    assert not math.isnan(found.value) and math.isnan(found.low) and "5 rows" in found.reason
    found = correlation(range(8), range(8), groups=[0, 0, 0, 0, 1, 1, 1, 1])
    assert math.isnan(found.low) and "groups of rows" in found.reason


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": [1, 2], "y": [1]}, "equal length"),
        ({"how": "pearsn"}, "pearson"),
        ({"groups": [1]}, "one label"),
        ({"level": 1.0}, "level"),
        ({"resamples": -1}, "resamples"),
        ({"seed": -1}, "seed must be 0 or more, got -1"),
        ({"y": ["a", "b", "c"]}, "y must be numbers: .*'a'"),
        ({"x": [[1.0], [2.0, 3.0], 4.0]}, "x must be numbers"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(UserError, match=message):
        correlation(**{"x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 4.0], **arguments})


# --- tables --------------------------------------------------------------------------------------------


def test_side_by_side_keeps_order_names_and_nan():
    table = long(
        {
            "b": {"SSIM": 0.1, "PSNR": 9.0, "MSE": 0.2, "FD-efficientnet_lite0": 5.0, "Confidence": 1.0},
            "a": {"SSIM": math.nan, "PSNR": 8.0, "MSE": 0.3, "FD-efficientnet_lite0": 6.0},
        }
    )
    wide = side_by_side(table)
    measures = ["FD-efficientnet_lite0", *relations.SAMPLE, *relations.COVERAGES]
    assert list(wide.columns) == ["attack", "target_size", *measures]
    assert wide.attack.tolist() == ["b", "a"] and wide["coverage (SSIM)"].tolist() == [0.5, 0.5]
    assert math.isnan(wide.SSIM[1]) and wide.SSIM[0] == 0.1
    with pytest.raises(UserError, match="two rows of b"):
        side_by_side(pd.concat([table, table]))


SHORT = long({"a": {"SSIM": 0.1, "PSNR": 8.0, "FID": 5.0}, "b": {"SSIM": 0.2, "PSNR": 9.0, "FID": 4.0}})
WIDE = pd.DataFrame({"SSIM": [0.1, 0.2], "PSNR": [1.0, 2.0], "text": ["a", "b"]})
REFUSED = {
    **{
        f"without {name}": (side_by_side, (SHORT.drop(columns=name),), f"unknown column '{name}'")
        for name in ("metric", "attack", "target_size", "value", "coverage_percent")
    },
    "other value": (side_by_side, (SHORT, "valu"), "unknown column 'valu'; did you mean 'value'"),
    "no rows": (side_by_side, (SHORT[:0],), "needs rows with the metric SSIM, PSNR, MSE or FD-"),
    "no metric": (side_by_side, (SHORT.assign(metric="Confidence"),), "needs rows with the metric"),
    "text": (side_by_side, (SHORT.assign(value="high"),), "value must be numbers: .*'high'"),
    "text coverage": (side_by_side, (SHORT.assign(coverage_percent="5 %"),), "coverage_percent must be numb"),
    "matrix": (relations.matrix, (WIDE, ["SSIM", "PSNRR"]), "unknown column 'PSNRR'; did you mean 'PSNR'"),
    "matrix, text": (relations.matrix, (WIDE, ["SSIM", "text"]), "text must be numbers"),
    "correlations": (relations.correlations, (WIDE, [("SSIM", "MSE")]), "unknown column 'MSE'"),
    "correlations, text": (relations.correlations, (WIDE, [("SSIM", "text")]), "text must be numbers"),
    "discordant": (relations.discordant, (WIDE, "SSIM", "MSE"), "unknown column 'MSE'"),
    "discordant, text": (relations.discordant, (WIDE, "SSIM", "text"), "text must be numbers"),
    "read_rows": (relations.read_rows, (WIDE, "Table 2"), "unknown column 'paper_table'"),
    "audit": (relations.audit, (WIDE,), "unknown column 'coverage .SSIM.'"),
    "closest": (relations.closest, (WIDE,), "unknown column 'tables'"),
    "chance_of_match": (relations.chance_of_match, (WIDE,), "unknown column 'tables'"),
    "attack": (relations.paper_levels, ("MNIST", "KEDM", 100), "attack of the paper 'KEDM'.* mean 'KEDMI'"),
    "size 0": (relations.paper_levels, ("MNIST", "KEDMI", 0), "target_size must be 1 or more, got 0"),
    "size 0 of all": (relations.paper_levels, ("MNIST", "Bias-Rec", 0), "target_size must be 1 or more"),
    "dynamic, size -1": (relations.paper_levels, ("MNIST", "Updates-Leak", -1), "target_size must be"),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_tables_that_do_not_fit_are_refused_in_one_line(case):
    function, arguments, message = REFUSED[case]
    with pytest.raises(UserError, match=message) as error:
        function(*arguments)
    assert "\n" not in str(error.value)


def test_groups_must_be_a_column():
    with pytest.raises(UserError, match="unknown column 'attack'"):
        relations.correlations(WIDE, [("SSIM", "PSNR")], groups="attack")


def test_agreement_knows_which_measures_fall_when_images_come_closer():
    rows = {name: {"SSIM": v, "PSNR": 10 * v, "MSE": 1 - v, "FID": -v} for name, v in zip("abcd", range(4))}  # noqa: B905
    pairs = [("FID", "SSIM"), ("FID", "PSNR"), ("FID", "MSE"), ("SSIM", "MSE")]
    found = relations.correlations(side_by_side(long(rows)), pairs)
    assert found.value.tolist() == pytest.approx([-1, -1, 1, -1])
    assert found.agreement.tolist() == pytest.approx([1] * 4)
    assert agreement(0.5, "FD-efficientnet_lite0", "coverage (SSIM)") == -0.5


def test_the_interval_of_an_agreement_is_in_order():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"FID": rng.normal(size=20), "SSIM": rng.normal(size=20)})
    row = relations.correlations(frame, [("FID", "SSIM")]).iloc[0]
    assert row.low < row.agreement < row.high and row.agreement == -row.value and row.absolute >= 0


def test_matrix_is_symmetric_with_ones():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 3)), columns=["FID", "SSIM", "PSNR"])
    for how in relations.METHODS:
        found = relations.matrix(frame, list(frame), how)
        pd.testing.assert_frame_equal(found, frame.corr(how))


def test_discordant_pairs_by_hand():
    frame = pd.DataFrame({"SSIM": [0.9, 0.8, 0.1, 0.5, math.nan], "FID": [40.0, 20.0, 10.0, 30.0, 1.0]})
    found = relations.discordant(frame, "FID", "SSIM")
    # closer by FID, closer by SSIM: 2 against 1, 3 and 0; 1 against 0; 3 against 0
    assert set(zip(found.closer_by_a, found.closer_by_b, strict=True)) == {
        (2, 1),
        (2, 3),
        (2, 0),
        (1, 0),
        (3, 0),
    }
    assert tuple(found.iloc[0]) == (2, 0, 3, 3) and found.attrs["pairs"] == 6
    assert len(relations.discordant(frame.assign(FID=-frame.SSIM), "FID", "SSIM")) == 0
    assert len(relations.discordant(frame.assign(FID=1.0), "FID", "SSIM")) == 0


# --- the paper's coefficients --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def paper() -> pd.DataFrame:
    return side_by_side(published.load("image_attacks"))


def test_readings_have_the_rows_that_the_paper_printed(paper):
    assert len(relations.read_rows(paper, "Table 2")) == 60
    assert len(relations.read_rows(paper, "nine tables", "largest")) == 90
    assert len(relations.read_rows(paper, "nine tables", "largest", "static attacks")) == 72
    once = relations.read_rows(paper, "nine tables", "all sizes", "Bias-Rec once")
    assert (once.attack == "Bias-Rec").sum() == 3 * 6
    assert set(relations.read_rows(paper, "all twelve").defense) == {"none"}
    with pytest.raises(UserError, match="largest"):
        relations.read_rows(paper, "Table 2", "larges")


def test_psnr_and_mse_share_the_coverage_that_the_paper_prints(paper):
    assert (paper["coverage (PSNR)"] - paper["coverage (MSE)"]).abs().max() < 0.02


def test_audit_has_every_reading_once_and_scipys_coefficients(paper):
    found = relations.audit(paper)
    readings = found[["tables", "sizes", "attacks", "how"]].drop_duplicates()
    assert len(readings) == 9 * 3 * 3 * 3
    assert len(found) == 243 * 5 + 81 * 5
    assert not found.duplicated(["tables", "sizes", "attacks", "how", "group", "a", "b"]).any()
    rows = relations.read_rows(paper, "nine tables", "largest")
    rows = rows[rows.attack.isin(relations.GANS)]
    one = found[
        (found.tables == "nine tables")
        & (found.sizes == "largest")
        & (found.how == "pearson")
        & (found.group == "GAN attacks")
        & (found.b == "PSNR")
    ]
    assert one.value.item() == pytest.approx(scipy.stats.pearsonr(rows.FID, rows.PSNR)[0])
    assert one.deviation.item() == pytest.approx(abs(abs(one.value.item()) - 0.721))


def audited(values: list[float], printed: float) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"tables": str(i), "sizes": "s", "attacks": "t", "how": "h", "group": "g", "a": "A", "b": b}
            | {"value": sign * value, "printed": printed, "deviation": abs(value - printed), "n": 5}
            for i, value in enumerate(values)
            for b, sign in (("B", 1), ("C", -1))
        ]
    )


def test_closest_reading_must_match_all_numbers_at_once():
    rows = audited([0.1, 0.5, 0.9], printed=0.52)
    rows.loc[rows.index[2], "deviation"] = 0.3  # reading 1 misses one of the two numbers
    found = relations.closest(rows)
    assert found.tables.tolist() == ["1", "2", "0"] and found.deviation.tolist() == pytest.approx(
        [0.3, 0.38, 0.42]
    )
    without = relations.closest(rows.drop(rows.index[2]))
    assert without.tables.tolist()[-1] == "1" and math.isnan(without.deviation.iloc[-1])


def test_chance_of_match_is_small_for_an_exact_match_and_one_for_a_poor_one():
    values = list(np.linspace(0, 1, 11))
    assert relations.chance_of_match(audited(values, printed=0.3)) < 0.01
    assert relations.chance_of_match(audited([0.4, 0.6], printed=0.9)) == 1
    # two numbers drawn in [0, 1]^2; a match within 0.05 of one of 11 readings on the diagonal
    share = relations.chance_of_match(audited(values, printed=0.25), draws=40_000)
    assert share == pytest.approx(9 * 0.01 + 2 * 0.0025, abs=0.01)


def test_the_attacks_of_the_paper_are_known(paper):
    assert sorted(relations.ATTACKS) == sorted(paper.attack.unique())


def test_levels_of_the_papers_coverage():
    assert relations.paper_levels("CelebA", "KEDMI", 1000) == (1, 1)
    assert relations.paper_levels("CelebA", "KEDMI", 2000) == (0.5, 0.75)
    assert relations.paper_levels("MNIST", "MI-Face", 100) == pytest.approx((0.05, 1 - 0.95**20))
    assert relations.paper_levels("CelebA", "Updates-Leak", 20000)[0] == 0.01
    assert relations.paper_levels("CelebA", "Bias-Rec", 1000)[0] == 0.001
    with pytest.raises(UserError, match="CIFAR10"):
        relations.paper_levels("CIFAR", "KEDMI", 1000)
