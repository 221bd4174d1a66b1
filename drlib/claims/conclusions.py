"""What decides each conclusion of the paper: for each claim of the ledger a function from `Facts` to `Case`s.

Nothing here says how a claim turns out. In the order of the ledger, which says what each is about.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from drlib.claims.comparing import (
    CLOSER,
    FARTHER,
    ahead,
    at_largest,
    attacked,
    best_sizes,
    changed,
    coefficient,
    direction,
    ends,
    judged,
    largest_size,
    relative,
    rows,
    same_targets,
    smallest_size,
    steps,
    tau,
    threshold,
    trends,
    versus,
)
from drlib.claims.facts import (
    ACCURACY,
    COVERAGES,
    FRECHET,
    MEASURES,
    MEMORIZATION,
    SAMPLE,
    TEXT,
    Facts,
    Series,
)
from drlib.claims.judging import AGAINST, SUPPORTS, Case, compare, outcome
from drlib.relations import DYNAMIC, GANS, UNLABELED

PIXELS = ("MI-Face", "DeepDream", "DeepInversion")
STATIC = (*PIXELS, "Inv-Alignment", "Bias-Rec", *GANS)
ALL_METRICS = (FRECHET, *SAMPLE)

WEAK, STRONG = 0.5, 0.7
"""Our reading of words: a relation is weak below 0.5 and strong from 0.7 in absolute value."""

MODERATE = 0.5
"""Our reading: a drop is moderate below half of the mean of both values."""

SAME_ORDER = 0.1
"""Our reading: one of two metrics can be left out if they differ about no more than a tenth of the pairs."""

ONE_PERCENT = 0.01

# --- section 5.1 and 3.1: which attack is closer --------------------------------------------------------


def plgmi_ahead(facts: Facts, metrics: Sequence[str] = ALL_METRICS) -> list[Case]:
    one_source = [name for name in STATIC if name not in GANS]
    return ahead(facts, ["PLGMI"], one_source, metrics, effect=relative)


def plgmi_ahead_by_frechet(facts: Facts) -> list[Case]:
    return plgmi_ahead(facts, [FRECHET])


def never_exact(facts: Facts) -> list[Case]:
    cases = []
    for one in attacked(facts, metric="SSIM"):
        for size, point in one.points.items():
            away = 1 - point.value
            cases.append(Case(f"{one.where} at {size:,}", away, threshold(away, point.high < 1), one.where))
    return cases


def gans_ahead(facts: Facts) -> list[Case]:
    """A claim about all of them: judged only where there are several."""
    if len(_attacks(facts) & set(GANS)) < 2:
        return []
    others = [*(name for name in STATIC if name not in GANS), *DYNAMIC]
    return ahead(facts, GANS, others, [FRECHET], sizes=largest_size)


def _attacks(facts: Facts) -> set[str]:
    return {one.attack for one in attacked(facts, metric=FRECHET)}


def updates_leak_ahead(facts: Facts) -> list[Case]:
    return ahead(facts, ["Updates-Leak"], ["Deep-Leakage"], [FRECHET], sizes=largest_size)


def _several_data_sets(facts: Facts) -> bool:
    """Claims about data sets other than the first are judged only where there are several."""
    return len({one.dataset for one in attacked(facts, metric=FRECHET)}) > 1


def updates_pattern(facts: Facts) -> list[Case]:
    return updates_leak_ahead(facts) if _several_data_sets(facts) else []


def both_patterns(facts: Facts) -> list[Case]:
    return updates_pattern(facts) + gans_ahead(facts) if _several_data_sets(facts) else []


_SIMPLE_FIRST = ("MNIST", "CIFAR10", "CelebA")


def _by_data_set(facts: Facts, attack: str) -> list[list[Series]]:
    """FID of an attack on the three data sets, simple first, for each model that has all three."""
    found = attacked(facts, attack=attack, metric=FRECHET, dataset=_SIMPLE_FIRST)
    by_model = {model: [one for one in found if one.model == model] for model in {one.model for one in found}}
    return [
        sorted(series, key=lambda one: _SIMPLE_FIRST.index(one.dataset))
        for _, series in sorted(by_model.items())
        if len(series) == len(_SIMPLE_FIRST)
    ]


def deep_inversion_by_complexity(facts: Facts) -> list[Case]:
    cases: list[Case] = []
    for series in _by_data_set(facts, "DeepInversion"):
        for simple, complex_ in itertools.pairwise(series):
            cases += versus(simple, complex_, sizes=largest_size)
    return cases


def gans_below_median(facts: Facts) -> list[Case]:
    """Low is what lies below the median attack."""
    if not _several_data_sets(facts):
        return []
    cases = []
    for table in same_targets(at_largest(rows(facts, (FRECHET,)))):
        static = {row["attack"]: row[FRECHET] for row in table if row["attack"] in STATIC}
        for attack in GANS:
            if attack in static and len(static) > 2:
                below = median(static.values()) - static[attack]
                where = f"{table[0]['of'][0]}, {attack}"
                cases.append(Case(where, below, threshold(below, below > 0), where))
    return cases


def plgmi_steadier(facts: Facts) -> list[Case]:
    def spread(series: list[Series]) -> float:
        values = [one.points[max(one.points)].value for one in series]
        return max(values) - min(values)

    cases = []
    steady = {series[0].model: spread(series) for series in _by_data_set(facts, "PLGMI")}
    for series in _by_data_set(facts, "DeepInversion"):
        model = series[0].model
        if model in steady:
            less = spread(series) - steady[model]
            cases.append(
                Case(f"{model}, over {', '.join(_SIMPLE_FIRST)}", less, threshold(less, less > 0), model)
            )
    return cases


def frechet_prefers_deep_inversion(facts: Facts) -> list[Case]:
    return ahead(facts, ["DeepInversion"], ["Inv-Alignment"], [FRECHET], sizes=largest_size)


def samples_prefer_inv_alignment(facts: Facts) -> list[Case]:
    return ahead(facts, ["Inv-Alignment"], ["DeepInversion"], SAMPLE, sizes=largest_size, effect=relative)


# --- section 5.1: relations between metrics -------------------------------------------------------------


def levels_agree(facts: Facts) -> list[Case]:
    cases = []
    for metric in SAMPLE:
        for table in same_targets(rows(facts, (FRECHET, metric))):
            value, *_ = coefficient(table, FRECHET, metric, "kendall", resamples=0)
            if math.isnan(value):
                continue
            where = f"{table[0]['group'].rsplit(', ', 2)[0]} at {table[0]['size']:,}, {metric}"
            cases.append(Case(where, value, threshold(value, value > 0), str(table[0]["of"][0])))
    return cases


Row = dict[str, Any]
Split = Callable[[list[Row]], dict[str, list[Row]]]


def _together(table: list[Row]) -> dict[str, list[Row]]:
    return {"": table}


def _by_set(table: list[Row]) -> dict[str, list[Row]]:
    names = sorted({row["dataset"] for row in table})
    return {name: [row for row in table if row["dataset"] == name] for name in names}


def _related(
    facts: Facts, metrics: Sequence[str], split: Split, supports: Callable[[float], bool]
) -> list[Case]:
    """A case for each part of the rows and each metric: its coefficient with FID, judged by ``supports``.

    A coefficient describes the rows that it is computed from, so its value decides; its interval says what
    other attacks and models might give.
    """
    cases = []
    for metric in metrics:
        for name, part in split(rows(facts, (FRECHET, metric))).items():
            value, low, high = coefficient(part, FRECHET, metric)
            where = ", ".join(word for word in (name, f"{FRECHET} and {metric}") if word)
            if not math.isnan(value):
                cases.append(Case(where, value, threshold(value, supports(value)), where, low, high))
    return cases


def _positive(value: float) -> bool:
    return value > 0


def _weak(value: float) -> bool:
    return abs(value) < WEAK


def frechet_against_ssim(facts: Facts) -> list[Case]:
    return _related(facts, SAMPLE[:1], _by_set, _positive)


def frechet_against_ssim_together(facts: Facts) -> list[Case]:
    return _related(facts, SAMPLE[:1], _together, _positive)


def frechet_against_others(facts: Facts) -> list[Case]:
    return _related(facts, SAMPLE[1:], _by_set, _positive)


def frechet_against_others_together(facts: Facts) -> list[Case]:
    return _related(facts, SAMPLE[1:], _together, _positive)


def weak_relation(facts: Facts) -> list[Case]:
    return _related(facts, SAMPLE, _together, _weak)


def weak_relation_by_set(facts: Facts) -> list[Case]:
    return _related(facts, SAMPLE, _by_set, _weak)


def _rises_among_gans(facts: Facts, pairs: Sequence[tuple[str, str]], split: Split) -> list[Case]:
    cases = []
    for a, b in pairs:
        for name, table in split(rows(facts, (a, b))).items():
            among = [row for row in table if row["attack"] in GANS]
            if len({row["attack"] for row in among}) < 2:
                continue
            everyone, *_ = coefficient(table, a, b, resamples=0)
            gans, *_ = coefficient(among, a, b, resamples=0)
            rise = gans - everyone
            if not math.isnan(rise):
                told = f"{f'{name}, ' if name else ''}{a} and {b}: {everyone:+.3f} to {gans:+.3f}"
                cases.append(Case(told, rise, threshold(rise, rise > 0), name or b))
    return cases


_LEVELS = [(FRECHET, metric) for metric in SAMPLE]
_COVERED = [(COVERAGES[0], other) for other in COVERAGES[1:]]


def frechet_rises_among_gans(facts: Facts) -> list[Case]:
    return _rises_among_gans(facts, _LEVELS, _by_set)


def frechet_rises_among_gans_together(facts: Facts) -> list[Case]:
    return _rises_among_gans(facts, _LEVELS, _together)


def coverage_rises_among_gans(facts: Facts) -> list[Case]:
    return _rises_among_gans(facts, _COVERED, _by_set)


def coverage_rises_among_gans_together(facts: Facts) -> list[Case]:
    return _rises_among_gans(facts, _COVERED, _together)


def _opposite(a: Row, b: Row, metric: str) -> bool:
    """True if FID and another metric put two attacks in opposite order."""
    by = [direction(name) * (a[name] - b[name]) for name in (FRECHET, metric)]
    return by[0] * by[1] < 0


def gans_still_disagree(facts: Facts) -> list[Case]:
    cases = []
    for metric in SAMPLE:
        of_gans = [row for row in rows(facts, (FRECHET, metric)) if row["attack"] in GANS]
        pairs = [pair for table in same_targets(of_gans) for pair in itertools.combinations(table, 2)]
        if pairs:
            share = sum(_opposite(a, b, metric) for a, b in pairs) / len(pairs)
            cases.append(Case(f"{FRECHET} and {metric}", share, threshold(share, share > SAME_ORDER), metric))
    return cases


def frechet_close_ssim_far(facts: Facts) -> list[Case]:
    table = [row for row in rows(facts, (FRECHET, "SSIM")) if row["attack"] in ("MI-Face", "DeepDream")]
    cases = []
    for pair in same_targets(at_largest(table)):
        if len(pair) == 2:
            by = {name: abs(relative(name, pair[0][name], pair[1][name])) for name in (FRECHET, "SSIM")}
            more = by["SSIM"] - by[FRECHET]
            where = f"{pair[0]['group']} at {pair[0]['size']:,}"
            cases.append(Case(where, more, threshold(more, more > 0), pair[0]["group"]))
    return cases


def bias_rec_coverages_differ(facts: Facts) -> list[Case]:
    def apart(row: dict[str, float]) -> float:
        return abs(row[COVERAGES[0]] - row[COVERAGES[1]])

    cases = []
    for table in same_targets(rows(facts, COVERAGES[:2])):
        own = [row for row in table if row["attack"] == "Bias-Rec"]
        others = [apart(row) for row in table if row["attack"] in GANS]
        if own and others:
            more = apart(own[0]) - max(others)
            where = f"{own[0]['group']} at {own[0]['size']:,}"
            cases.append(Case(where, more, threshold(more, more > 0), str(own[0]["size"])))
    return cases


def coverage_falls(facts: Facts) -> list[Case]:
    return ends(attacked(facts, metric=COVERAGES, attack=STATIC), FARTHER)


def closest_does_not_cover_most(facts: Facts) -> list[Case]:
    cases = []
    for table in same_targets(rows(facts, (FRECHET, COVERAGES[0]))):
        table = [row for row in table if row["attack"] in STATIC and row["attack"] not in UNLABELED]
        if len(table) > 1:
            closest = min(table, key=lambda row: row[FRECHET])
            short = max(row[COVERAGES[0]] for row in table) - closest[COVERAGES[0]]
            where = f"{closest['group']} at {closest['size']:,}"
            cases.append(Case(where, short, threshold(short, short > 0.01), str(closest["of"][0])))
    return cases


# --- section 5.2: memorization --------------------------------------------------------------------------


def memorization_falls(facts: Facts) -> list[Case]:
    return steps(attacked(facts, metric=MEMORIZATION), FARTHER)


def attacks_disagree(facts: Facts) -> list[Case]:
    """Pairs of attacks, one of which gets closer with falling memorization and one farther."""
    cases = []
    by_model: dict[tuple[object, ...], list[tuple[Series, Case]]] = {}
    for one in attacked(facts, metric=FRECHET, attack=STATIC):
        if len(one.points) > 1:
            by_model.setdefault(one.experiment, []).append((one, ends([one], CLOSER)[0]))
    for group in by_model.values():
        for (a, x), (b, y) in itertools.combinations(group, 2):
            told = {x.outcome, y.outcome}
            apart = abs(x.effect - y.effect)
            if told <= {SUPPORTS, AGAINST}:
                cases.append(
                    Case(f"{a.where} and {b.attack}", apart, SUPPORTS if len(told) == 2 else AGAINST, a.where)
                )
    return cases


def deep_dream_falls(facts: Facts) -> list[Case]:
    return ends(attacked(facts, attack="DeepDream", metric=FRECHET), CLOSER)


def revealer_improves(facts: Facts) -> list[Case]:
    return steps(attacked(facts, attack="Revealer", metric=FRECHET), CLOSER)


# --- section 6.1: the judge ------------------------------------------------------------------------------


def judge_falls(facts: Facts) -> list[Case]:
    return trends(judged(facts), FARTHER)


def judge_against_metrics(facts: Facts) -> list[Case]:
    cases = []
    for seen in judged(facts, metric=MEASURES[0], variant="", attack=GANS):
        falls = compare(seen.points[max(seen.points)], seen.points[min(seen.points)]) < 0
        for one in attacked(
            facts, attack=seen.attack, metric=ALL_METRICS, dataset=seen.dataset, model=seen.model
        ):
            for change in ends([one], CLOSER, effect=relative):
                agrees = change.outcome if falls else AGAINST
                cases.append(Case(change.where, change.effect, agrees, one.attack))
    return cases


def best_at_smallest(facts: Facts) -> list[Case]:
    cases = []
    for one in judged(facts):
        if len(one.points) < 2:
            continue
        smallest = min(one.points)
        best = max((size for size in one.points if size != smallest), key=lambda size: one.points[size].value)
        found = compare(one.points[smallest], one.points[best])
        lead = relative(one.metric, one.points[smallest].value, one.points[best].value)
        cases.append(
            Case(f"{one.where}, {smallest:,} against {best:,}", lead, outcome(found, 1), _experiment(one))
        )
    return cases


def _experiment(one: Series) -> str:
    return f"{one.model}, {one.attack}, {one.variant}, {one.judge}"


def second_in_the_middle(facts: Facts) -> list[Case]:
    """The second best size is one of the two in the middle, not the second smallest."""
    cases = []
    for one in judged(facts):
        if len(one.points) != 6:
            continue
        sizes = sorted(one.points)
        middle = max(sizes[2:4], key=lambda size: one.points[size].value)
        found = compare(one.points[middle], one.points[sizes[1]])
        lead = relative(one.metric, one.points[middle].value, one.points[sizes[1]].value)
        is_second = best_sizes(one)[1] in sizes[2:4] or found == 0
        cases.append(
            Case(
                f"{one.where}, {middle:,} against {sizes[1]:,}",
                lead,
                outcome(found, 1) if is_second else AGAINST,
                _experiment(one),
            )
        )
    return cases


def pre_trained_accuracy(facts: Facts) -> list[Case]:
    return changed(facts, {"variant": ""}, {"variant": "Pre"}, CLOSER, metric=ACCURACY)


def pre_favors_smallest(facts: Facts) -> list[Case]:
    cases: list[Case] = []
    for b in judged(facts, variant=""):
        for a in judged(facts, variant="Pre", metric=b.metric, attack=b.attack, judge=b.judge, model=b.model):
            cases += versus(a, b, sizes=smallest_size, effect=relative)
    return cases


def pre_wins(facts: Facts) -> list[Case]:
    return changed(
        facts, {"variant": "scratch"}, {"variant": "pretrained"}, CLOSER, effect=relative, metric=MEASURES
    )


def bottleneck(facts: Facts) -> list[Case]:
    cases: list[Case] = []
    for wide, narrow in itertools.pairwise(("feature 2048", "feature 512", "feature 128")):
        cases += changed(
            facts, {"variant": wide}, {"variant": narrow}, FARTHER, effect=relative, metric=MEASURES
        )
    return cases


def trade_off(facts: Facts) -> list[Case]:
    """Accuracy against the judge's rate, over models of one attack."""
    cases = []
    for seen in judged(facts, metric=MEASURES[2]):
        for accurate in facts.select(
            metric=ACCURACY, dataset=seen.dataset, model=seen.model, variant=seen.variant
        ):
            shared = sorted(set(seen.points) & set(accurate.points))
            if len(shared) > 1:
                ordered = Series("order", points={i + 1: seen.points[size] for i, size in enumerate(
                    sorted(shared, key=lambda size: accurate.points[size].value))})  # fmt: skip
                cases += [Case(seen.where, tau(ordered), outcome(_sign(tau(ordered)), -1), _experiment(seen))]
    return cases


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def far_apart(facts: Facts) -> list[Case]:
    return ahead(facts, GANS, ["MI-Face"], ALL_METRICS, effect=relative)


def metrics_miss_the_judge(facts: Facts) -> list[Case]:
    cases = []
    for seen in judged(facts, metric=MEASURES[0], variant="", attack=GANS):
        for one in attacked(
            facts, attack=seen.attack, metric=ALL_METRICS, dataset=seen.dataset, model=seen.model
        ):
            value, *_ = coefficient(_over_sizes(one, seen), one.metric, seen.metric, "kendall", resamples=0)
            if not math.isnan(value):
                cases.append(Case(one.where, value, threshold(value, value < WEAK), one.attack))
    return cases


def _over_sizes(a: Series, b: Series) -> list[Row]:
    """Rows of two series, one for each size that they share."""
    return [
        {"group": str(size), a.metric: a.points[size].value, b.metric: b.points[size].value}
        for size in sorted(set(a.points) & set(b.points))
    ]


# --- section 7: what the adversary knows ----------------------------------------------------------------


def similar_data(facts: Facts) -> list[Case]:
    found = changed(
        facts,
        {"variant": ""},
        {"variant": "similar data"},
        FARTHER,
        effect=relative,
        attack=GANS,
        metric=FRECHET,
    )
    return [
        case if abs(case.effect) < MODERATE or case.outcome == AGAINST
        else Case(case.where, case.effect, AGAINST, case.group)
        for case in found
    ]  # fmt: skip


def other_data_helps(facts: Facts) -> list[Case]:
    same, other = "auxiliary: same distribution", "auxiliary: CIFAR100"
    cases = changed(
        facts, {"variant": same}, {"variant": other}, CLOSER, attack="Inv-Alignment", metric=FRECHET
    )
    for a in facts.select(variant=other, attack="Inv-Alignment", metric=FRECHET):
        for b in attacked(facts, attack="Inv-Alignment", metric=FRECHET, dataset=a.dataset, model=a.model):
            cases += versus(a, b)
    return cases


TRIGGER = "trigger score"
"""By how much the corner is darker than without a backdoor, 0 to 1; half of it counts as seen."""
SEEN = 0.5


def _trigger(facts: Facts, attacks: tuple[str, ...], *, seen: bool) -> list[Case]:
    cases = []
    for one in facts.select(metric=TRIGGER, attack=attacks):
        for size, point in one.points.items():
            cases.append(
                Case(
                    f"{one.where} at {size:,}",
                    point.value,
                    threshold(point.value, (point.value >= SEEN) == seen),
                    one.where,
                )
            )
    return cases


def trigger_not_seen(facts: Facts) -> list[Case]:
    return _trigger(facts, ("Inv-Alignment",), seen=False)


def trigger_seen(facts: Facts) -> list[Case]:
    return _trigger(facts, ("DeepInversion", "Revealer"), seen=True)


def _white_box(facts: Facts, attacks: tuple[str, ...], wanted: int) -> list[Case]:
    box, white = {"variant": "black box"}, {"variant": ""}
    return changed(facts, box, white, wanted, effect=relative, attack=attacks, metric=FRECHET)


def white_box_helps(facts: Facts) -> list[Case]:
    return _white_box(facts, ("DeepInversion", *GANS), CLOSER)


def white_box_does_not_help(facts: Facts) -> list[Case]:
    return _white_box(facts, STATIC, FARTHER)


def gap_widens(facts: Facts) -> list[Case]:
    """What white-box access adds on each data set, compared from the simpler to the more complex one."""
    gains: dict[tuple[str, str], dict[str, float]] = {}
    for stolen in facts.select(variant="black box", metric=FRECHET, dataset=_SIMPLE_FIRST):
        same = {"attack": stolen.attack, "dataset": stolen.dataset, "model": stolen.model}
        for own in attacked(facts, metric=FRECHET, **same):
            for case in versus(own, stolen, sizes=largest_size, effect=relative):
                gains.setdefault((stolen.model, stolen.attack), {})[stolen.dataset] = case.effect
    cases = []
    for (model, attack), by in gains.items():
        for simple, complex_ in itertools.pairwise(name for name in _SIMPLE_FIRST if name in by):
            more = by[complex_] - by[simple]
            where = f"{model}, {attack}, {complex_} against {simple}"
            cases.append(Case(where, more, threshold(more, more > 0), attack))
    return cases


def deep_inversion_ahead(facts: Facts, metrics: Sequence[str] = ALL_METRICS) -> list[Case]:
    return ahead(facts, ["DeepInversion"], ["DeepDream"], metrics, effect=relative)


def deep_inversion_ahead_by_frechet(facts: Facts) -> list[Case]:
    return deep_inversion_ahead(facts, [FRECHET])


def fixed_batch_norm(facts: Facts) -> list[Case]:
    return changed(
        facts, {"variant": ""}, {"variant": "fixed"}, FARTHER, attack="DeepInversion", metric=FRECHET
    )


# --- section 8: discussion ------------------------------------------------------------------------------


def memorization_and_judge(facts: Facts, how: str = "pearson") -> list[Case]:
    cases = []
    for seen in judged(facts):
        for memory in attacked(facts, metric=MEMORIZATION, dataset=seen.dataset, model=seen.model):
            table = _over_sizes(memory, seen)
            if len(table) > 2:
                value, low, high = coefficient(table, MEMORIZATION, seen.metric, how)
                cases.append(
                    Case(seen.where, value, threshold(value, value >= STRONG), _experiment(seen), low, high)
                )
    return cases


def memorization_and_judge_by_rank(facts: Facts) -> list[Case]:
    return memorization_and_judge(facts, "spearman")


def text_falls(facts: Facts) -> list[Case]:
    return trends(facts.select(metric=TEXT), FARTHER)


def _defended(facts: Facts, *defenses: str) -> list[Case]:
    cases: list[Case] = []
    for defense in defenses:
        cases += changed(
            facts, {"defense": "none"}, {"defense": defense}, FARTHER, variant="", metric=FRECHET
        )
    return cases


def dp_protects(facts: Facts) -> list[Case]:
    return _defended(facts, "DP")


def pruning_protects(facts: Facts) -> list[Case]:
    return _defended(facts, "Prune")


def pruning_is_cheap(facts: Facts) -> list[Case]:
    found = changed(facts, {"defense": "none"}, {"defense": "Prune"}, FARTHER, metric=ACCURACY)
    return [
        Case(case.where, -case.effect, threshold(case.effect, -case.effect < ONE_PERCENT), case.group)
        for case in found
    ]


def dp_costs_more(facts: Facts) -> list[Case]:
    return changed(facts, {"defense": "DP"}, {"defense": "Prune"}, CLOSER, metric=ACCURACY)


def fine_tuned(facts: Facts) -> list[Case]:
    return changed(facts, {"variant": ""}, {"variant": "Pre"}, CLOSER, defense="none", metric=FRECHET)


# --- appendices -----------------------------------------------------------------------------------------

RECONSTRUCTIONS = "reconstructions"
"""Variant ``20000 reconstructions``: scored with so many, of a target of another number."""


def _by_quantity(facts: Facts, metrics: tuple[str, ...]) -> list[tuple[Series, Series]]:
    """Pairs of series that differ in the number of reconstructions: the fewest and the most."""
    found: dict[object, list[Series]] = {}
    for one in facts.select(metric=metrics):
        if one.variant.endswith(RECONSTRUCTIONS):
            found.setdefault((one.table, one.dataset, one.model, one.attack, one.metric), []).append(one)
    return [
        (ordered[0], ordered[-1])
        for ordered in (
            sorted(group, key=lambda one: int(one.variant.split()[0])) for group in found.values()
        )
        if len(ordered) > 1
    ]


def quantity_leaves_quality(facts: Facts) -> list[Case]:
    cases = []
    for few, many in _by_quantity(facts, ALL_METRICS):
        for case in versus(many, few, effect=relative):
            small = abs(case.effect) < 1 - 0.9
            cases.append(Case(case.where, case.effect, SUPPORTS if small else AGAINST, case.group))
    return cases


def quantity_raises_coverage(facts: Facts) -> list[Case]:
    return [case for few, many in _by_quantity(facts, COVERAGES) for case in versus(many, few)]


def defenses_raise(facts: Facts) -> list[Case]:
    return _defended(facts, "MID", "DP")


def defenses_uneven(facts: Facts) -> list[Case]:
    flip = {SUPPORTS: AGAINST, AGAINST: SUPPORTS}
    return [
        Case(case.where, case.effect, flip.get(case.outcome, case.outcome), case.group)
        for case in defenses_raise(facts)
    ]


def worst_not_smallest(facts: Facts) -> list[Case]:
    flip = {SUPPORTS: AGAINST, AGAINST: SUPPORTS}
    return [
        Case(case.where, -case.effect, flip.get(case.outcome, case.outcome), case.group)
        for case in best_at_smallest(facts)
    ]
