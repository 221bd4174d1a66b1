"""The claims ledger: every claim on a made-up table where it holds and on one where it fails."""

import itertools
import json
import math
import subprocess
import sys
import time
from types import SimpleNamespace

import pandas as pd
import pytest

from drlib import claims, published
from drlib.claims import CLAIMS
from drlib.claims.comparing import tau
from drlib.claims.conclusions import STATIC
from drlib.claims.facts import COVERAGES, MEASURES, SAMPLE, Facts, Point, Series
from drlib.claims.judging import (
    AGAINST,
    FAILS,
    HOLDS,
    IN_PART,
    SUPPORTS,
    UNDECIDED,
    UNJUDGED,
    Case,
    Quantifier,
    agreed,
    compare,
    judge,
)
from drlib.errors import UserError

CLAIM = {claim.id: claim for claim in CLAIMS}
METRICS = ("FID", *SAMPLE)
GANS = ("Revealer", "KEDMI", "PLGMI")


# --- made-up tables: rows in the published columns ------------------------------------------------------


def joined(parts):
    return list(itertools.chain.from_iterable(parts))


def made(metric, attack, values, **more):
    """Rows of one series: ``values`` is "1000=5 20000=4" or one number (at 1,000)."""
    pairs = [item.split("=") for item in str(values).split()]
    sizes = [(int(pair[0]), float(pair[1])) if len(pair) == 2 else (1000, float(pair[0])) for pair in pairs]
    usual = {"dataset": "CelebA", "model": "VGG16", "defense": "none"}
    return [
        {**usual, "metric": metric, "attack": attack, "target_size": size, "value": value, **more}
        for size, value in sizes
    ]


def good(attack, **more):
    """An attack that is close by every metric."""
    return joined(made(m, attack, v, **more) for m, v in zip(METRICS, (50, 0.9, 20, 0.01), strict=True))


def bad(attack, **more):
    return joined(made(m, attack, v, **more) for m, v in zip(METRICS, (300, 0.1, 8, 0.2), strict=True))


def covered(attack, metric, values, **more):
    """Coverage in percent beside a constant value."""
    rows = made(metric, attack, values, **more)
    return [{**row, "coverage_percent": row["value"], "value": 0.5} for row in rows]


def votes(attack, values, measures=MEASURES, **more):
    more = {"judge": "GPT-4o", **more}
    return joined(made(measure, attack, values, **more) for measure in measures)


def other(attacks, metrics=("FID",), better=True, **more):
    rows = joined(good(name, **more) if better else bad(name, **more) for name in attacks)
    return [row for row in rows if row["metric"] in metrics]


def line(metrics, *attacks, **more):
    """Attacks with given values of several metrics: ("KEDMI", 100, 0.1)."""
    return joined(
        made(m, name, v, **more) for name, *values in attacks for m, v in zip(metrics, values, strict=True)
    )


SIX = "1000=6 2000=3 5000=4 10000=4 15000=2 20000=1"
RISING = "1000=1 2000=2 5000=3 10000=4 15000=5 20000=6"
THREE_SETS = ("MNIST", "CIFAR10", "CelebA")


def by_set(attack, *values):
    return joined(made("FID", attack, v, dataset=d) for d, v in zip(THREE_SETS, values, strict=True))


def spread(slope_all, slope_gan, pair=("FID", "SSIM"), others=SAMPLE[1:]):
    """Attacks on a line: GAN attacks with one slope near the middle, the others far out with another."""
    rows = []
    sign = {"FID": -1, "MSE": -1}
    for metric in (pair[1], *others):
        for attack, x in zip(("MI-Face", "DeepDream", "Inv-Alignment"), (-9.0, -8.0, 9.0), strict=True):
            rows += made(metric, attack, 50 + slope_all * sign.get(metric, 1) * x)
        for attack, x in zip(GANS, (-1.0, 0.0, 1.0), strict=True):
            rows += made(metric, attack, 50 + slope_gan * sign.get(metric, 1) * x)
    for attack, x in zip(
        ("MI-Face", "DeepDream", "Inv-Alignment", *GANS), (-9, -8, 9, -1, 0, 1), strict=True
    ):
        rows += made(pair[0], attack, 50 + sign.get(pair[0], 1) * x)
    return rows


def coverages(all_agree, gans_agree):
    """Coverages by three metrics of six attacks, PSNR and MSE falling or rising with SSIM."""
    rows = []
    for attack, x in zip(
        ("MI-Face", "DeepDream", "Inv-Alignment", *GANS), (10, 12, 90, 40, 50, 60), strict=True
    ):
        sign = gans_agree if attack in GANS else all_agree
        rows += covered(attack, "SSIM", x)
        rows += covered(attack, "PSNR", 50 + sign * (x - 50))
        rows += covered(attack, "MSE", 50 + sign * (x - 50))
    return rows


def variant(attack, usual, changed, name, metric="FID", **more):
    return made(metric, attack, usual, **more) + made(metric, attack, changed, variant=name, **more)


def defended(attack, usual, changed, defense, metric="FID"):
    return made(metric, attack, usual) + made(metric, attack, changed, defense=defense)


def quantity(metric, few, many):
    cover = metric in COVERAGES
    name = metric.removeprefix("coverage (").rstrip(")")
    rows = []
    for count, value in ((5000, few), (40000, many)):
        make = (
            covered(name and "DeepInversion", name, value) if cover else made(metric, "DeepInversion", value)
        )
        rows += [{**row, "variant": f"{count} reconstructions"} for row in make]
    return rows


EXAMPLES = {
    "model-and-data-together": (
        good("PLGMI") + bad("MI-Face") + bad("Inv-Alignment"),
        bad("PLGMI") + good("MI-Face") + good("Inv-Alignment"),
    ),
    "no-exact-reconstruction": (made("SSIM", "KEDMI", 0.9), made("SSIM", "KEDMI", 1.0)),
    "gans-lowest-fid": (
        other(GANS) + other(["MI-Face", "Deep-Leakage"], better=False),
        other(GANS, better=False) + other(["MI-Face", "Deep-Leakage"]),
    ),
    "updates-leak-below-deep-leakage": (
        made("FID", "Updates-Leak", "1000=9 20000=1") + made("FID", "Deep-Leakage", "1000=1 20000=2"),
        made("FID", "Updates-Leak", "1000=1 20000=2") + made("FID", "Deep-Leakage", "1000=9 20000=1"),
    ),
    "same-pattern-on-other-data": tuple(
        joined(
            other(GANS, better=better, dataset=dataset)
            + other(["Updates-Leak"], better=better, dataset=dataset)
            + other(["MI-Face", "Deep-Leakage"], better=not better, dataset=dataset)
            for dataset in THREE_SETS[:2]
        )
        for better in (True, False)
    ),
    "deep-inversion-falls-with-complexity": (
        by_set("DeepInversion", 60, 130, 230),
        by_set("DeepInversion", 230, 130, 60),
    ),
    "gans-stay-low": (
        by_set("DeepInversion", 60, 130, 230) + by_set("PLGMI", 80, 90, 85) + by_set("MI-Face", 300, 300, 300)
        + by_set("DeepDream", 300, 300, 300),
        by_set("DeepInversion", 60, 70, 65) + by_set("PLGMI", 80, 190, 85) + by_set("MI-Face", 50, 50, 50)
        + by_set("DeepDream", 50, 50, 50),
    ),
    "fid-prefers-deep-inversion": (
        other(["DeepInversion"]) + other(["Inv-Alignment"], better=False),
        other(["DeepInversion"], better=False) + other(["Inv-Alignment"]),
    ),
    "samples-prefer-inv-alignment": (
        good("Inv-Alignment") + bad("DeepInversion"),
        bad("Inv-Alignment") + good("DeepInversion"),
    ),
    "levels-agree": (
        line(METRICS, ("A", 1, 0.9, 11, 0.1), ("B", 2, 0.8, 10, 0.2), ("C", 3, 0.7, 9, 0.3)),
        line(METRICS, ("A", 1, 0.7, 9, 0.3), ("B", 2, 0.8, 10, 0.2), ("C", 3, 0.9, 11, 0.1)),
    ),
    "higher-fid-lower-ssim": (
        line(("FID", "SSIM"), ("A", 1, 0.9), ("B", 2, 0.8), ("C", 3, 0.7)),
        line(("FID", "SSIM"), ("A", 1, 0.7), ("B", 2, 0.8), ("C", 3, 0.9)),
    ),
    "higher-fid-farther-by-others": (
        line(METRICS, ("A", 1, 0.7, 11, 0.1), ("B", 2, 0.8, 10, 0.2), ("C", 3, 0.9, 9, 0.3)),
        line(METRICS, ("A", 1, 0.9, 9, 0.3), ("B", 2, 0.8, 10, 0.2), ("C", 3, 0.7, 11, 0.1)),
    ),
    "relation-is-weak": (
        line(METRICS, ("A", 1, 0.8, 9, 0.1), ("B", 2, 0.9, 11, 0.3), ("C", 3, 0.8, 9, 0.1)),
        line(METRICS, ("A", 1, 0.9, 11, 0.1), ("B", 2, 0.8, 10, 0.2), ("C", 3, 0.7, 9, 0.3)),
    ),
    "fid-close-ssim-far": (
        line(("FID", "SSIM"), ("MI-Face", 336, 0.02), ("DeepDream", 370, 0.35)),
        line(("FID", "SSIM"), ("MI-Face", 100, 0.30), ("DeepDream", 370, 0.35)),
    ),
    "metrics-agree-among-gans": (spread(-1, 1), spread(1, -1)),
    "bias-rec-coverages-differ": (
        covered("Bias-Rec", "SSIM", 24) + covered("Bias-Rec", "PSNR", 1)
        + covered("KEDMI", "SSIM", 24) + covered("KEDMI", "PSNR", 20),
        covered("Bias-Rec", "SSIM", 24) + covered("Bias-Rec", "PSNR", 23)
        + covered("KEDMI", "SSIM", 24) + covered("KEDMI", "PSNR", 10),
    ),
    "coverages-agree-among-gans": (coverages(-1, 1), coverages(1, -1)),
    "metrics-still-distinct": (
        line(METRICS, ("KEDMI", 50, 0.1, 8, 0.2), ("PLGMI", 60, 0.2, 9, 0.1)),
        line(METRICS, ("KEDMI", 50, 0.2, 9, 0.1), ("PLGMI", 60, 0.1, 8, 0.2)),
    ),
    "coverage-falls-with-size": (
        covered("KEDMI", "SSIM", "1000=90 20000=20"),
        covered("KEDMI", "SSIM", "1000=20 20000=90"),
    ),
    "memorization-falls-with-size": (
        made("memorization", "", "1000=1.0 2000=0.9 5000=0.5"),
        made("memorization", "", "1000=0.5 2000=0.9 5000=1.0"),
    ),
    "attacks-differ-in-trend": (
        made("FID", "KEDMI", "1000=9 20000=5") + made("FID", "MI-Face", "1000=5 20000=9"),
        joined(made("FID", name, "1000=9 20000=5") for name in (*GANS, "MI-Face", "DeepDream")),
    ),
    "deep-dream-fid-falls": (
        made("FID", "DeepDream", "1000=370 20000=337"),
        made("FID", "DeepDream", "1000=337 20000=370"),
    ),
    "revealer-improves": (
        made("FID", "Revealer", "1000=9 2000=8 5000=7"),
        made("FID", "Revealer", "1000=7 2000=8 5000=9"),
    ),
    "judge-falls-with-size": (votes("KEDMI", SIX), votes("KEDMI", RISING)),
    "other-judges-too": (
        votes("PLGMI (Pre)", SIX, judge="Claude 3.7"),
        votes("PLGMI (Pre)", RISING, judge="Claude 3.7"),
    ),
    "judge-against-metrics": (
        votes("KEDMI", "1000=300 20000=30") + made("FID", "KEDMI", "1000=120 20000=90"),
        votes("KEDMI", "1000=300 20000=30") + made("FID", "KEDMI", "1000=90 20000=120"),
    ),
    "best-at-1000": (votes("KEDMI", SIX), votes("KEDMI", RISING)),
    "second-best-in-the-middle": (
        votes("KEDMI", SIX),
        votes("KEDMI", "1000=6 2000=5 5000=4 10000=3 15000=2 20000=1"),
    ),
    "pre-training-raises-accuracy": (
        variant("", 0.7, 0.8, "Pre", "test accuracy"),
        variant("", 0.8, 0.7, "Pre", "test accuracy"),
    ),
    "pre-training-favors-small-sets": (
        votes("PLGMI", "1000=280 20000=70") + votes("PLGMI (Pre)", "1000=450 20000=20"),
        votes("PLGMI", "1000=450 20000=70") + votes("PLGMI (Pre)", "1000=280 20000=20"),
    ),
    "pre-training-preferred": (
        votes("PLGMI", 11, variant="scratch") + votes("PLGMI", 989, variant="pretrained"),
        votes("PLGMI", 989, variant="scratch") + votes("PLGMI", 11, variant="pretrained"),
    ),
    "narrow-bottleneck-hurts": tuple(
        joined(
            votes("PLGMI", value, variant=f"feature {width}")
            for width, value in zip((2048, 512, 128), values, strict=True)
        )
        for values in ((900, 80, 8), (8, 80, 900))
    ),
    "generalization-quality-trade-off": (
        votes("KEDMI", "1000=9 2000=5 5000=1") + made("test accuracy", "", "1000=0.5 2000=0.6 5000=0.7"),
        votes("KEDMI", "1000=1 2000=5 5000=9") + made("test accuracy", "", "1000=0.5 2000=0.6 5000=0.7"),
    ),
    "metrics-miss-subtle-differences": (
        votes("KEDMI", "1000=9 2000=5 5000=1") + made("FID", "KEDMI", "1000=120 2000=100 5000=90"),
        votes("KEDMI", "1000=9 2000=5 5000=1") + made("FID", "KEDMI", "1000=90 2000=100 5000=120"),
    ),
    "reliable-when-far-apart": (good("KEDMI") + bad("MI-Face"), bad("KEDMI") + good("MI-Face")),
    "similar-data-moderate-drop": (
        variant("KEDMI", 100, 120, "similar data"),
        variant("KEDMI", 100, 300, "similar data"),
    ),
    "other-data-can-help": (
        made("FID", "Inv-Alignment", 330, auxiliary="CIFAR100")
        + made("FID", "Inv-Alignment", 358, auxiliary="same distribution"),
        made("FID", "Inv-Alignment", RISING, auxiliary="CIFAR100")
        + made("FID", "Inv-Alignment", "1000=0 2000=0 5000=0 10000=0 15000=0", auxiliary="same distribution"),
    ),
    "trigger-not-exploited": (
        made("trigger score", "Inv-Alignment", 0.0),
        made("trigger score", "Inv-Alignment", 0.9),
    ),
    "white-box-helps-strong-attacks": (
        variant("KEDMI", 100, 150, "black box"),
        variant("KEDMI", 150, 100, "black box"),
    ),
    "gap-widens-with-complexity": tuple(
        joined(
            variant("KEDMI", 100, stolen, "black box", dataset=dataset)
            for dataset, stolen in zip(THREE_SETS, gains, strict=True)
        )
        for gains in ((110, 150, 250), (250, 150, 110))
    ),
    "deep-inversion-beats-deep-dream": (
        good("DeepInversion") + bad("DeepDream"),
        bad("DeepInversion") + good("DeepDream"),
    ),
    "fixed-batch-norm-hurts": (
        variant("DeepInversion", 287, 372, "fixed"),
        variant("DeepInversion", 372, 287, "fixed"),
    ),
    "white-box-not-always": (
        variant("MI-Face", 150, 100, "black box"),
        variant("MI-Face", RISING, "1000=9 2000=9 5000=9 10000=9 15000=9", "black box"),
    ),
    "trigger-reconstructed": (
        made("trigger score", "Revealer", 0.9),
        made("trigger score", "Revealer", 0.1),
    ),
    "memorization-predicts-leakage": (
        votes("KEDMI", "1000=30 2000=20 5000=10") + made("memorization", "", "1000=0.9 2000=0.6 5000=0.3"),
        votes("KEDMI", "1000=10 2000=20 5000=30") + made("memorization", "", "1000=0.9 2000=0.6 5000=0.3"),
    ),
    "transformers-small-sets-leak-more": (
        votes("PLGMI", SIX, model="Swin"),
        votes("PLGMI", RISING, model="Swin"),
    ),
    "text-falls-with-size": (
        made("BLEU", "Vec2Text", "1000=0.3 2000=0.2 5000=0.1", dataset="SST2"),
        made("BLEU", "Vec2Text", "1000=0.1 2000=0.2 5000=0.3", dataset="SST2"),
    ),
    "dp-protects": (defended("PLGMI", 120, 170, "DP"), defended("PLGMI", 170, 120, "DP")),
    "pruning-protects": (defended("PLGMI", 120, 150, "Prune"), defended("PLGMI", 150, 120, "Prune")),
    "pruning-is-cheap": (
        defended("", 0.90, 0.895, "Prune", "test accuracy"),
        defended("", 0.90, 0.80, "Prune", "test accuracy"),
    ),
    "dp-costs-more-than-pruning": tuple(
        made("test accuracy", "", a, defense="DP") + made("test accuracy", "", b, defense="Prune")
        for a, b in ((0.6, 0.9), (0.9, 0.6))
    ),
    "fine-tuned-more-susceptible": (variant("PLGMI", 120, 90, "Pre"), variant("PLGMI", 90, 120, "Pre")),
    "quality-is-not-diversity": tuple(
        joined(
            other(["KEDMI"], dataset=dataset)
            + other(["MI-Face"], better=False, dataset=dataset)
            + covered("KEDMI", "SSIM", closest, dataset=dataset)
            + covered("MI-Face", "SSIM", 90 - closest, dataset=dataset)
            for dataset in "ABCDE"
        )
        for closest in (30, 60)
    ),
    "quantity-leaves-quality": (quantity("FID", 200, 205), quantity("FID", 200, 300)),
    "quantity-raises-coverage": (quantity("coverage (SSIM)", 20, 40), quantity("coverage (SSIM)", 40, 20)),
    "defenses-help-in-most-cases": (defended("KEDMI", 120, 170, "MID"), defended("KEDMI", 170, 120, "MID")),
    "defenses-are-uneven": (
        defended("KEDMI", 120, 170, "MID") + defended("Revealer", 120, 110, "MID"),
        joined(defended(name, 120, 170, "MID") for name in (*GANS, "MI-Face", "DeepDream")),
    ),
    "transformers-worst-not-smallest": (
        votes("PLGMI", RISING, model="MAE"),
        votes("PLGMI", SIX, model="MAE"),
    ),
}  # fmt: skip


def told(rows) -> Facts:
    """Facts of made-up rows; those of a kind in a table of their own, as published."""
    tables = {}
    for row in rows:
        row = dict(row)
        if row["metric"] == "memorization":
            row = {"memorization": row["value"], **{n: row[n] for n in ("dataset", "model", "target_size")}}
        tables.setdefault(tuple(sorted(row)), []).append(row)
    return claims.facts([pd.DataFrame(each) for each in tables.values()])


@pytest.mark.parametrize("name", CLAIM)
def test_each_claim_holds_on_one_made_up_table_and_fails_on_another(name):
    claim = CLAIM[name]
    holding, failing = (claims.examine(claim, told(rows)).judgment for rows in EXAMPLES[name])
    assert holding.verdict == HOLDS, holding
    assert failing.verdict == FAILS, failing
    assert holding.supports and not failing.supports


@pytest.mark.parametrize("name", CLAIM)
def test_each_claim_is_unjudged_without_its_rows_and_says_what_it_needs(name):
    found = claims.examine(CLAIM[name], Facts(())).judgment
    assert found.verdict == UNJUDGED and found.reason == f"needs {CLAIM[name].needs}"
    assert math.isnan(found.effect) and found.sign == ""


def test_there_are_enough_different_claims_and_every_section_is_there():
    assert len(EXAMPLES) == len(CLAIMS) == len(CLAIM) >= 30
    assert len({claim.statement for claim in CLAIMS}) == len(CLAIMS)
    places = {claim.place for claim in CLAIMS}
    assert places == {"3.1", "5.1", "5.2", "6.1", "7", "8", "App. D", "App. E", "App. H", "App. I"}
    judged = [claim for claim in CLAIMS if _published(claim.id).verdict != UNJUDGED]
    assert len(judged) >= 30


FACTS = claims.published_facts()


def _published(name):
    claim = CLAIM[name]
    return claims.examine(claim, FACTS.within(claim.tables)).judgment


def _readings(name):
    claim = CLAIM[name]
    return claims.examine(claim, FACTS.within(claim.tables)).readings


def test_what_does_not_hold_is_a_question_to_the_authors():
    doubtful = [name for name in CLAIM if _published(name).verdict in (IN_PART, FAILS)]
    assert doubtful and all(CLAIM[name].question.endswith("?") for name in doubtful)


def test_a_verdict_in_words_has_its_counts_or_its_reason_under_each_reading():
    words = {
        claim.id: claims.in_words(claims.entry(claim, FACTS, Facts(()))["published"]) for claim in CLAIMS
    }
    assert words["deep-dream-fid-falls"] == "does not hold (0 / 1 / 0)"
    assert words["deep-inversion-beats-deep-dream"] == (
        "holds in part. every metric: does not hold (9 / 15 / 0); FID alone: holds (6 / 0 / 0)"
    )
    assert words["pruning-is-cheap"].startswith("cannot be judged (needs test accuracy")


def test_readings_have_names_and_are_in_the_ledger():
    several = [claim for claim in CLAIMS if claim.readings]
    assert len(several) > 5
    for claim in several:
        names = [claim.reading, *(each.name for each in claim.readings)]
        assert all(names) and len(set(names)) == len(names)
        told = claims.entry(claim, FACTS, Facts(()))["published"]
        assert [each["reading"] for each in told["readings"]] == names
        assert told["supports"] == told["readings"][0]["supports"]


# --- verdicts on the published numbers, derived by hand from the paper's tables -------------------------


def test_deep_dream_by_hand():
    # Table 2: 337.139 at 1,000, 370.396 at 20,000: the FID rises by 33.257.
    found = _published("deep-dream-fid-falls")
    assert (found.verdict, found.against, found.sign) == (FAILS, 1, "-")
    assert found.effect == pytest.approx(337.139 - 370.396)


def test_deep_inversion_against_deep_dream_by_hand():
    # Table 2, SSIM: 0.100 0.110 0.118 0.140 0.150 0.153 against 0.079 0.140 0.234 0.290 0.321 0.346;
    # FID: lower at all six sizes; PSNR and MSE: closer at 1,000 only.
    every, by_frechet = _readings("deep-inversion-beats-deep-dream").values()
    assert (every.supports, every.against, every.verdict) == (6 + 1 + 1 + 1, 5 + 5 + 5, FAILS)
    assert (by_frechet.supports, by_frechet.against, by_frechet.verdict) == (6, 0, HOLDS)
    assert _published("deep-inversion-beats-deep-dream").verdict == IN_PART


def test_defenses_by_hand():
    rows = published.load("image_attacks")
    rows = rows[(rows.paper_table == 16) & (rows.metric == "FID")]
    wide = rows.pivot(index=["attack", "target_size"], columns="defense", values="value")
    higher = int((wide.none < wide.MID).sum() + (wide.none < wide.DP).sum())
    found = _published("defenses-help-in-most-cases")
    assert (found.supports, found.supports + found.against) == (higher, 40)
    assert found.verdict == (HOLDS if higher >= 30 else IN_PART)


def test_votes_by_hand():
    # Table 3: the first column of each row is its largest; second best is at 5,000 or 10,000 in all twelve.
    assert _published("best-at-1000").supports == 12
    assert _published("second-best-in-the-middle").supports == 12
    # Table 12 (MAE): 79 233 312 275 76 25: of 15 pairs of sizes 5 rise and 10 fall.
    (one,) = FACTS.select(table=12, metric="# of Major")
    assert tau(one) == pytest.approx((5 - 10) / 15)


def test_correlations_among_gans_by_hand():
    rows = published.load("image_attacks")
    rows = rows[rows.paper_table.isin((2, *range(17, 25)))]
    wide = rows.pivot(
        index=["dataset", "paper_table", "attack", "target_size"], columns="metric", values="value"
    ).reset_index()

    def changes(part):
        gans = part[part.attack.isin(GANS)]
        return [
            (1 if metric == "MSE" else -1) * (gans.FID.corr(gans[metric]) - part.FID.corr(part[metric]))
            for metric in SAMPLE
        ]

    by_set = joined(changes(part) for _, part in wide.groupby("dataset"))
    for found, change in zip(
        _readings("metrics-agree-among-gans").values(), (by_set, changes(wide)), strict=True
    ):
        assert found.effect == pytest.approx(sum(change) / len(change))
        assert (found.supports, found.against) == (
            sum(value > 0 for value in change),
            sum(value < 0 for value in change),
        )


def test_coverage_is_also_judged_relative_to_its_levels():
    found = claims.examine(CLAIM["coverage-falls-with-size"], FACTS.within((2,)))
    assert found.judgment.effect < -50
    assert found.equal_n == "same on both sides" and "undecided; effect" in found.equal_k
    # MI-Face by SSIM, relative to floor and chance: (72.15 - 50) / 25 at 2,000, (54.80 - 5) / 59.15 at 20,000
    (one,) = FACTS.at_equal("k").select(table=2, attack="MI-Face", metric="coverage (SSIM)")
    assert min(one.points) == 2000  # at 1,000 floor and chance are both 1
    assert one.points[2000].value == pytest.approx((72.15 - 50) / 25)


# --- the rule -------------------------------------------------------------------------------------------


def _cases(supports, against, undecided=0):
    kinds = [SUPPORTS] * supports + [AGAINST] * against + [UNDECIDED] * undecided
    return [Case(str(i), 1.0 if kind == SUPPORTS else -1.0, kind, str(i)) for i, kind in enumerate(kinds)]


@pytest.mark.parametrize(
    ("counts", "every", "most", "some"),
    [
        ((4, 0), HOLDS, HOLDS, HOLDS),
        ((3, 1), IN_PART, HOLDS, HOLDS),
        ((2, 1), IN_PART, IN_PART, HOLDS),
        ((1, 1), IN_PART, IN_PART, HOLDS),
        ((1, 2), FAILS, FAILS, HOLDS),
        ((0, 3), FAILS, FAILS, UNJUDGED),
        ((0, 5), FAILS, FAILS, FAILS),
        ((0, 0, 3), UNJUDGED, UNJUDGED, UNJUDGED),
        ((1, 0, 2), UNJUDGED, UNJUDGED, HOLDS),
        ((0, 1, 2), UNJUDGED, UNJUDGED, UNJUDGED),
        ((2, 0, 2), HOLDS, HOLDS, HOLDS),
    ],
)
def test_the_rule(counts, every, most, some):
    found = [judge(_cases(*counts), quantifier, missing="x").verdict for quantifier in Quantifier]
    assert found == [every, most, some]


@pytest.mark.parametrize(
    ("verdicts", "together"),
    [
        ((HOLDS, HOLDS), HOLDS),
        ((FAILS, FAILS), FAILS),
        ((FAILS, HOLDS), IN_PART),
        ((UNJUDGED, HOLDS), HOLDS),
        ((UNJUDGED, UNJUDGED), UNJUDGED),
    ],
)
def test_where_readings_differ_a_claim_holds_in_part(verdicts, together):
    assert agreed(verdicts) == agreed(verdicts[::-1]) == together


def test_the_effect_of_a_claim_about_some_is_that_of_the_cases_that_show_it():
    assert judge(_cases(2, 6), Quantifier.SOME, missing="").effect == 1.0
    assert judge(_cases(0, 6), Quantifier.SOME, missing="").effect == -1.0


def test_what_a_change_of_k_does_to_a_claim_is_said():
    found = claims.examine(CLAIM["judge-falls-with-size"], FACTS.within((3,)))
    assert found.equal_k == "holds all the more: the change of k works against it"
    found = claims.examine(CLAIM["deep-dream-fid-falls"], FACTS.within((2,)))
    assert found.equal_n == "fails all the more: the change of n works for it"
    found = claims.examine(CLAIM["revealer-improves"], FACTS.within((2,)))
    assert found.equal_n == "cannot be computed: no values at equal n; its change works for it"
    # by FID alone it would hold, but the other metrics have no values at equal k
    found = claims.examine(CLAIM["model-and-data-together"], FACTS.within((2,)))
    assert found.equal_k.startswith("cannot be computed")


def test_equal_n_and_equal_k_are_two_things():
    rows = line(METRICS, ("MI-Face", 300, 0.1, 8, 0.2), ("KEDMI", 50, 0.9, 20, 0.01))
    for row in rows:
        row["value_equal"] = -row["value"]
    told_ = told([{**row, "target_size": size} for row in rows for size in (100, 200)])
    at_n, at_k = told_.at_equal("n"), told_.at_equal("k")
    values = {
        ruler: {one.metric: one.points[100].value > 0 for one in found.select(attack="KEDMI")}
        for ruler, found in (("n", at_n), ("k", at_k))
    }
    assert values["n"] == {"FID": False, "SSIM": True, "PSNR": True, "MSE": True}
    assert values["k"] == {"FID": True, "SSIM": False, "PSNR": False, "MSE": False}


def test_a_judge_at_one_size_is_no_crash():
    for claim in CLAIMS:
        claims.examine(claim, told(votes("KEDMI", 300) + made("FID", "KEDMI", 5)))


def test_gans_that_vary_little_but_are_far_are_not_low():
    rows = by_set("DeepInversion", 60, 130, 230) + by_set("PLGMI", 500, 500, 500)
    rows += by_set("MI-Face", 300, 300, 300)
    examined = claims.examine(CLAIM["gans-stay-low"], told(rows))
    assert [each.verdict for each in examined.readings.values()] == [FAILS, HOLDS]


def test_an_interval_needs_five_groups_and_covers_the_mean():
    cases = [Case(str(i), effect, SUPPORTS, str(i % 6)) for i, effect in enumerate(range(1, 13))]
    found = judge(cases, Quantifier.EVERY, missing="")
    assert found.low < found.effect == 6.5 < found.high and found.sign == "+"
    few = judge(cases[:4], Quantifier.EVERY, missing="")
    assert math.isnan(few.low) and "5 independent groups, there are 4" in few.reason


def test_differences_within_rounding_or_intervals_are_undecided():
    assert compare(Point(0.023, 0.0225, 0.0235), Point(0.024, 0.0235, 0.0245)) == -1
    assert compare(Point(0.023, 0.0225, 0.0235), Point(0.023, 0.0225, 0.0235)) == 0
    assert compare(Point(5.0, 4.0, 6.0), Point(5.5, 4.5, 6.5)) == 0
    assert compare(Point(math.inf, math.inf, math.inf), Point(20.0, 19.9, 20.1)) == 1


def test_an_interval_in_the_table_decides():
    rows = made("FID", "DeepDream", "100=50 400=40")
    rows = [{**row, "value_low": row["value"] - 2, "value_high": row["value"] + 2} for row in rows]
    claim = CLAIM["deep-dream-fid-falls"]
    assert claims.examine(claim, claims.facts([pd.DataFrame(rows)])).judgment.verdict == HOLDS
    wide = pd.DataFrame(rows).assign(value_low=0.0, value_high=99.0)
    assert claims.examine(claim, claims.facts([wide])).judgment.verdict == UNJUDGED


def test_equal_size_is_used_where_it_is_there():
    rows = made("FID", "DeepDream", "100=50 400=40")
    for row, equal in zip(rows, (50.0, 55.0), strict=True):
        row["value_equal"] = equal
    found = claims.examine(CLAIM["deep-dream-fid-falls"], told(rows))
    assert found.judgment.verdict == HOLDS
    assert found.equal_n.startswith(FAILS) and found.equal_k == "same on both sides"


# --- reading tables -------------------------------------------------------------------------------------


def test_controls_unconverged_attacks_and_empty_values_are_left_out():
    rows = (
        made("FID", "DeepDream", "100=5 400=4")
        + made("FID", "Noise", 9)
        + made("FID", "KEDMI", "100=5 400=4")
    )
    table = pd.DataFrame(rows)
    table["kind"] = ["control" if name == "Noise" else "attack" for name in table.attack]
    table["converged"] = ["no" if name == "DeepDream" else "yes" for name in table.attack]
    found = claims.facts([table])
    assert {one.attack for one in found.series} == {"KEDMI"} and found.left_out == ("DeepDream",)
    judged = claims.examine(CLAIM["deep-dream-fid-falls"], found).judgment
    assert judged.verdict == UNJUDGED and judged.reason.endswith("more steps: DeepDream")
    table.loc[table.attack == "KEDMI", "value"] = math.nan
    assert not claims.facts([table]).series


def test_another_frechet_distance_takes_the_place_of_fid_but_never_beside_it():
    rows = made("FD-efficientnet_lite0", "DeepDream", "100=5 400=4")
    found = claims.facts([pd.DataFrame(rows)])
    assert found.frechet == "FD-efficientnet_lite0" and found.series[0].metric == "FID"
    with pytest.raises(UserError, match="mix dataset-level metrics: FD-efficientnet_lite0, FID"):
        claims.facts([pd.DataFrame(rows + made("FID", "KEDMI", 5))])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"target_size": [1], "valeu": [2.0], "metric": ["FID"]},
            "unknown column 'value'.*did you mean 'valeu'",
        ),
        ({"target_size": [1], "value": [2.0]}, "needs a column metric or measure"),
        ({"target_size": [1], "value": ["x"], "metric": ["FID"]}, "column value must be numbers, got 'x'"),
        ({"target_size": [-1], "value": [2.0], "metric": ["FID"]}, "whole numbers from 1, got -1"),
        (
            {"target_size": [1], "value": ["inf"], "measure": ["# of Major"]},
            r"column value must be finite numbers \(but for PSNR\), got 'inf'",
        ),
        (
            {"target_size": [1], "value": [1], "metric": ["SSIM"], "coverage_percent": ["inf"]},
            r"column coverage_percent must lie in \[0, 100\], got 'inf'",
        ),
        ({"target_size": ["inf"], "value": [2.0], "metric": ["FID"]}, "whole numbers from 1, got 'inf'"),
        (
            {"target_size": [1], "value": [2.0], "metric": ["FID"], "value_low": ["a"], "value_high": [3]},
            "column value_low must be numbers, got 'a'",
        ),
        ({"target_size": [1, 1], "value": [2.0, 3.0], "metric": ["FID", "FID"]}, "two rows give FID at 1"),
    ],
)
def test_bad_tables_are_refused(table, message):
    with pytest.raises(UserError, match=message):
        claims.facts([pd.DataFrame(table)])


def test_a_table_of_another_name_and_sizes_with_a_point_are_read():
    rows = made("FID", "DeepDream", "100=5 400=4", paper_table="mine")
    table = pd.DataFrame(rows).astype({"target_size": float})
    assert claims.facts([table]).select(table=0)[0].points.keys() == {100, 400}


def test_copies_have_an_infinite_psnr_and_json_stays_standard():
    rows = made("PSNR", "KEDMI", "inf") + made("PSNR", "MI-Face", 8)
    found = claims.entry(CLAIM["reliable-when-far-apart"], FACTS, told(rows))
    assert found["ours"]["verdict"] == HOLDS and found["ours"]["effect"] is None
    json.dumps(found, allow_nan=False)


def test_published_facts_are_every_printed_number_once():
    found = FACTS
    count = sum(len(one.points) for one in found.series)
    images = published.load("image_attacks")
    others = ("memorization", "fid_variants", "llm_judge", "llm_judge_variants", "text_attacks", "auxiliary")
    assert count == len(images) + images.coverage_percent.notna().sum() + sum(
        len(published.load(n)) for n in others
    )
    assert all(list(one.points) == sorted(one.points) for one in found.series)
    assert {one.attack for one in found.select(table=2, metric="FID")} == {
        *STATIC,
        "Updates-Leak",
        "Deep-Leakage",
    }


def test_a_label_says_where_a_series_stands():
    one = Series("FID", "KEDMI", "CelebA", "VGG16", defense="DP", table=16)
    assert one.where == "Table 16, CelebA, VGG16, KEDMI, DP, FID"


def test_memorization_of_a_size_without_results_is_told(monkeypatch):
    from drlib.claims import own

    table = pd.DataFrame(
        {"attack": ["KEDMI"], "dataset": ["digits"], "model": ["convnet"], "target_size": [50]}
    )
    score = SimpleNamespace(value=0.5, standard_error=0.1)
    monkeypatch.setattr(own.results, "computed", lambda cells, store: list(cells))
    monkeypatch.setattr(own.results, "summary", lambda cells, **more: table.copy())
    monkeypatch.setattr(own.results, "ensemble", lambda each, store: {"inside": each, "probability": each})
    monkeypatch.setattr(own, "model_score", lambda *told: score)
    found = own.own_tables([SimpleNamespace(is_control=False)], {}, {50: 0, 400: 0})
    assert found["memorization"].target_size.tolist() == [50, 400]
    assert set(found["memorization"].dataset) == {"digits"}


# --- the command ----------------------------------------------------------------------------------------


def _drlib(*arguments, **more):
    return subprocess.run([sys.executable, "-m", "drlib", *arguments], capture_output=True, text=True, **more)


def test_json_is_one_array_and_nothing_else_without_torch(tmp_path):
    code = (
        "import sys, contextlib, drlib.cli\nsys.argv = ['drlib', 'claims', '--format', 'json']\n"
        "with contextlib.suppress(SystemExit): drlib.cli.main()\nassert 'torch' not in sys.modules"
    )
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert time.perf_counter() - begun < 60  # 3 s on an idle machine
    found = json.loads(done.stdout)
    assert [each["id"] for each in found] == [claim.id for claim in CLAIMS]
    for each in found:
        assert {"id", "place", "statement", "needs", "published", "elsewhere", "ours"} <= set(each)
        for which in (each["published"], each["ours"]):
            assert which["verdict"] in (HOLDS, IN_PART, FAILS, UNJUDGED)
            assert {"effect", "sign", "low", "high", "equal_n", "equal_k", "reason"} <= set(which)


def test_anyones_table_is_judged(tmp_path):
    path = tmp_path / "mine.csv"
    pd.DataFrame(made("FID", "DeepDream", "100=5.0 400=4.0")).to_csv(path, index=False)
    done = _drlib("claims", str(path), "--format", "json")
    assert done.returncode == 0, done.stderr
    by_id = {each["id"]: each for each in json.loads(done.stdout)}
    assert by_id["deep-dream-fid-falls"]["ours"]["verdict"] == HOLDS
    assert by_id["deep-dream-fid-falls"]["published"]["verdict"] == FAILS
    text = _drlib("claims", str(path))
    assert text.returncode == 0 and "deep-dream-fid-falls" in text.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["claims", "--format", "jsn"], "did you mean 'json'"),
        (["claims", "no_such.csv"], "no file no_such.csv"),
        (["claims", "."], "is a folder"),
        (["audit", "."], "is a folder"),
    ],
)
def test_bad_input_is_one_line(arguments, message, tmp_path):
    done = _drlib(*arguments, cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr and len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_every_example_differs():
    assert all(holding != failing for holding, failing in EXAMPLES.values())
    assert not [name for name, _ in itertools.groupby(sorted(EXAMPLES)) if name not in CLAIM]
