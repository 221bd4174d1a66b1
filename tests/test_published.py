"""The published numbers equal the paper's text. The lines below are transcribed from its tables."""

import numpy as np
import pandas as pd
import pytest

from drlib import published
from drlib.errors import UserError

CELEBA_SIZES = [1000, 2000, 5000, 10000, 15000, 20000]
SMALL_SIZES = [100, 500, 1000, 5000, 10000, 20000]

ROWS = {
    "image_attacks": 3072,
    "memorization": 60,
    "fid_variants": 36,
    "llm_judge": 144,
    "llm_judge_variants": 54,
}
ROWS["text_attacks"] = 108
ROWS["in_text"] = 23
ROWS["auxiliary"] = 2

# (conditions, "value" or "value(coverage%)" per target size), as printed.
IMAGE_LINES = [
    (
        {"paper_table": 2, "attack": "MI-Face", "metric": "FID"},
        "362.361 365.570 361.517 340.959 334.520 336.906",
    ),
    (
        {"paper_table": 2, "attack": "DeepInversion", "metric": "SSIM"},
        "0.100(100.00%) 0.110(61.70%) 0.118(42.44%) 0.140(28.97%) 0.150(27.07%) 0.153(22.47%)",
    ),
    (
        {"paper_table": 2, "attack": "DeepDream", "metric": "PSNR"},
        "9.162(100.00%) 10.304(53.70%) 11.957(26.60%) 13.006(14.43%) 13.980(9.29%) 14.027(7.63%)",
    ),
    (
        {"paper_table": 2, "attack": "Bias-Rec", "metric": "MSE"},
        "0.105(3.20%) 0.096(0.75%) 0.095(0.80%) 0.093(0.53%) 0.095(0.60%) 0.093(0.57%)",
    ),
    (
        {"paper_table": 13, "attack": "Revealer", "metric": "SSIM"},
        "0.091(100.00%) 0.112(66.60%) 0.136(52.16%) 0.152(44.63%) 0.159(41.72%) 0.163(39.43%)",
    ),
    (
        {"paper_table": 15, "attack": "PLGMI", "metric": "MSE"},
        "0.067(70.00%) 0.058(45.80%) 0.054(41.50%) 0.049(30.86%) 0.044(1.05%) 0.045(0.49%)",
    ),
    (
        {"paper_table": 17, "attack": "MI-Face", "metric": "FID"},
        "366.886 371.293 359.870 365.360 352.610 361.813",
    ),
    (
        {"paper_table": 19, "attack": "DeepInversion", "metric": "PSNR"},
        "12.259(34.00%) 12.646(22.60%) 12.705(18.80%) 12.303(8.24%) 12.919(5.62%) 13.428(2.82%)",
    ),
    (
        {"paper_table": 24, "attack": "Deep-Leakage", "metric": "MSE"},
        "0.299(43.00%) 0.300(37.00%) 0.301(31.00%) 0.294(37.00%) 0.301(34.00%) 0.122(10.00%)",
    ),
]
DEFENSE_LINES = [  # Table 16: the columns are 1,000 and 20,000 images
    ("none", "Revealer", "MSE", "0.132(100.00%) 0.088(32.17%)"),
    ("MID", "DeepDream", "SSIM", "0.020(100.00%) 0.150(27.58%)"),
    ("DP", "MI-Face", "FID", "378.974 370.767"),
    ("DP", "Updates-Leak", "PSNR", "12.001(18.00%) 13.074(40.00%)"),
]
MEMORIZATION_LINES = [
    (2, CELEBA_SIZES, "1.000 0.981 0.862 0.539 0.386 0.301"),
    (15, SMALL_SIZES, "0.970 0.800 0.760 0.460 0.390 0.310"),
    (17, CELEBA_SIZES, "1.000 0.987 0.864 0.626 0.474 0.377"),
    (19, SMALL_SIZES, "0.512 0.339 0.289 0.140 0.090 0.080"),
    (24, SMALL_SIZES, "0.045 0.031 0.025 0.016 0.009 0.008"),
]
FID_VARIANT_LINES = [
    (7, "updated", "287.497 283.429 273.183 273.415 245.736 234.672"),
    (7, "fixed", "372.803 348.387 346.099 346.149 325.639 311.791"),
    (10, "PLGMI (DP)", "173.735 156.141 140.480 127.090 122.218 119.856"),
    (10, "PLGMI", "127.722 107.833 104.842 97.730 84.836 85.143"),
    (10, "PLGMI (Pre)", "94.603 82.571 86.860 78.429 82.768 80.814"),
]
JUDGE_LINES = [
    (3, "Revealer", "GPT-4o", "# of Major", "349 182 188 133 94 54"),
    (3, "PLGMI (Pre)", "GPT-4o", "Pred Rate", "0.446 0.160 0.188 0.125 0.054 0.026"),
    (4, "PLGMI (Pre)", "InternVL 2.5", "# of All", "69 0 0 2 0 0"),
    (4, "PLGMI (Pre)", "Claude 3.7", "# of Major", "479 188 41 125 130 37"),
    (8, "PLGMI", "GPT-4o", "# of Major", "101 435 229 185 46 4"),
    (12, "PLGMI", "GPT-4o", "Pred Rate", "0.097 0.222 0.299 0.267 0.090 0.025"),
]
TEXT_LINES = [
    (9, "SST2", "BLEU", "0.169 0.172 0.152 0.083 0.066 0.058"),
    (9, "AGNews", "ROUGE-L", "0.203 0.210 0.195 0.175 0.166 0.163"),
    (9, "IMDB", "similarity", "0.531 0.501 0.477 0.468 0.463 0.465"),
    (11, "SST2", "ROUGE-L", "0.777 0.651 0.575 0.229 0.205 0.203"),
    (11, "AGNews", "similarity", "0.865 0.859 0.848 0.825 0.806 0.784"),
    (11, "IMDB", "BLEU", "0.344 0.282 0.123 0.051 0.035 0.029"),
]


def printed(rows: pd.DataFrame, column: str = "value") -> list[float]:
    """Values in the order of the printed columns (ascending target size)."""
    return rows.sort_values("target_size")[column].tolist()


def parse(line: str) -> tuple[list[float], list[float]]:
    values, coverage = [], []
    for item in line.split():
        value, _, percent = item.partition("(")
        values.append(float(value))
        coverage.append(float(percent.rstrip("%)")) if percent else np.nan)
    return values, coverage


@pytest.mark.parametrize(("conditions", "line"), IMAGE_LINES)
def test_image_tables_equal_the_paper(conditions, line):
    rows = published.select("image_attacks", **conditions)
    values, coverage = parse(line)
    sizes = SMALL_SIZES if conditions["paper_table"] in (15, 19, 20, 21, 22, 23, 24) else CELEBA_SIZES
    assert printed(rows, "target_size") == sizes
    assert printed(rows) == values
    np.testing.assert_array_equal(printed(rows, "coverage_percent"), coverage)


@pytest.mark.parametrize(("defense", "attack", "metric", "line"), DEFENSE_LINES)
def test_defense_table_equals_the_paper(defense, attack, metric, line):
    rows = published.select("image_attacks", paper_table=16, defense=defense, attack=attack, metric=metric)
    values, coverage = parse(line)
    assert printed(rows, "target_size") == [1000, 20000]
    assert printed(rows) == values
    np.testing.assert_array_equal(printed(rows, "coverage_percent"), coverage)


@pytest.mark.parametrize(("table", "sizes", "line"), MEMORIZATION_LINES)
def test_memorization_rows_equal_the_paper(table, sizes, line):
    rows = published.select("memorization", paper_table=table)
    assert printed(rows, "target_size") == sizes
    assert printed(rows, "memorization") == parse(line)[0]


@pytest.mark.parametrize(("table", "variant", "line"), FID_VARIANT_LINES)
def test_fid_variants_equal_the_paper(table, variant, line):
    assert printed(published.select("fid_variants", paper_table=table, variant=variant)) == parse(line)[0]


@pytest.mark.parametrize(("table", "attack", "judge", "measure", "line"), JUDGE_LINES)
def test_judge_tables_equal_the_paper(table, attack, judge, measure, line):
    rows = published.select("llm_judge", paper_table=table, attack=attack, judge=judge, measure=measure)
    assert printed(rows) == parse(line)[0]


def test_judge_variants_equal_the_paper():
    def values(table, variant, measure):
        return printed(
            published.select("llm_judge_variants", paper_table=table, variant=variant, measure=measure)
        )

    # Table 5 prints "11:989 17:983 ..."; Table 6 prints 1,000 and 20,000 for each bottleneck.
    assert values(5, "scratch", "# of Major") == [11, 17, 6, 6, 3, 6]
    assert values(5, "pretrained", "# of Major") == [989, 983, 994, 994, 997, 994]
    assert values(5, "pretrained", "# of All") == [956, 939, 964, 961, 979, 952]
    assert values(5, "scratch", "Pred Rate") == [0.015, 0.023, 0.012, 0.013, 0.006, 0.014]
    assert values(6, "feature 2048", "# of Major") == [917, 742]
    assert values(6, "feature 512", "Pred Rate") == [0.105, 0.263]
    assert values(6, "feature 128", "# of All") == [0, 0]


@pytest.mark.parametrize(("table", "dataset", "metric", "line"), TEXT_LINES)
def test_text_tables_equal_the_paper(table, dataset, metric, line):
    assert (
        printed(published.select("text_attacks", paper_table=table, dataset=dataset, metric=metric))
        == parse(line)[0]
    )


@pytest.mark.parametrize("name", published.TABLES)
def test_rows_types_and_duplicates(name):
    rows = published.load(name)
    values = [c for c in ("value", "coverage_percent", "memorization") if c in rows]
    names = [c for c in rows.columns if c not in values]
    assert len(rows) == ROWS[name]
    assert not rows.duplicated(names).any()
    integers = {"paper_table", "target_size", "same_as"} & set(names)
    assert len(integers) >= 1 and all(rows[c].dtype == "int64" for c in integers)
    assert all(rows[c].dtype == "float64" for c in values)
    for column in set(names) - integers:
        assert rows[column].map(type).eq(str).all()
        may_be_empty = rows["metric"].eq("memorization") if (name, column) == ("in_text", "attack") else False
        assert (rows[column].str.len().gt(0) | may_be_empty).all()
    assert not rows[[c for c in values if c != "coverage_percent"]].isna().any(axis=None)


def test_image_attacks_have_coverage_exactly_where_a_sample_metric_is():
    rows = published.load("image_attacks")
    assert set(rows["defense"]) == {"none", "MID", "DP"}  # "none" is a name, not a missing value
    assert (rows["coverage_percent"].isna() == (rows["metric"] == "FID")).all()
    assert rows["coverage_percent"].dropna().between(0, 100).all()


def test_known_disagreements_between_tables_are_kept():
    conditions = {
        "attack": "Revealer",
        "metric": "MSE",
        "target_size": 1000,
        "model": "VGG16",
        "defense": "none",
        "dataset": "CelebA",
    }
    assert published.cell("image_attacks", paper_table=2, **conditions) == 0.123
    assert published.cell("image_attacks", paper_table=16, **conditions) == 0.132
    fid = {"attack": "PLGMI", "target_size": 2000}
    assert published.cell("image_attacks", paper_table=2, metric="FID", **fid) == 107.883
    assert published.cell("fid_variants", paper_table=10, variant="PLGMI", **fid) == 107.833


def test_load_gives_a_new_frame_each_time():
    rows = published.load("memorization")
    rows.loc[0, "memorization"] = -1.0
    assert published.load("memorization").loc[0, "memorization"] == 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: published.load("image_atacks"), "did you mean 'image_attacks'"),
        (lambda: published.select("image_attacks", atack="MI-Face"), "did you mean 'attack'"),
        (lambda: published.select("image_attacks", attack="Deep Dream"), "did you mean 'DeepDream'"),
        (lambda: published.cell("image_attacks", attack="MI-Face"), "name exactly one"),
    ],
)
def test_misspelt_names_are_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()
