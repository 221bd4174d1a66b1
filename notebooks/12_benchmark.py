# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The benchmark
#
# :::{admonition} This chapter
# :class: tip
# **Needs** {doc}`what the adversary knows </notebooks/01_taxonomy>`,
# {doc}`when a reconstruction is good </notebooks/02_metrics>` and {doc}`the attacks </notebooks/06_attacks>`. \
# **Gives** the shape of Table 2 and Figure 1 of the paper with all ten attacks, with the controls, floors and
# intervals that the paper's tables lack, and published numbers beside reproduced ones. \
# **Minutes** 20 to read, 9 to run.
# :::
#
# Table 2 of {cite:t}`wen2025` sets ten attacks against six sizes of the target data set. This chapter does
# the same with
# the attacks of this package. The paper used CelebA, VGG16 and up to 20,000 images; the profile says what
# is used
# here. So this is the *shape* of Table 2, not Table 2: the same columns, the same definitions, other images.

# %%
import math

import pandas as pd
import torch
from IPython.display import Markdown, display

from drlib import convergence, data, plots, published, report, results, sections, study
from drlib.errors import UserError
from drlib.metrics import near_duplicates
from drlib.metrics.memorization import model_score

# %% tags=["parameters"]
profile: str = "laptop"  # the profile that supplies whatever is not set here (training, hyperparameters)
dataset: str = "digits"  # the data set whose target split is to be reconstructed
side: int = 16  # image height and width in pixels
channels: int = 1  # 1 for gray images, 3 for color
mode: str = "class"  # what a label means: the object class, or (lfw_subset) the single image
architecture: str = "convnet"  # the target model's architecture
width: float | None = None  # factor on the architecture's width; none: as published
target_sizes: list = [50, 100, 400]  # sizes of the target data set (nested: each contains the smaller ones)
attacks: list = [
    "mi_face",
    "deep_dream",
    "deep_inversion",
    "revealer",
    "kedmi",
    "plgmi",
    "deep_leakage",
    "inv_alignment",
    "updates_leak",
    "bias_rec",
]  # attacks to run: registered names, or module:Class for your own
controls: list = [
    "noise",
    "class_mean",
    "auxiliary_top",
    "prior_sample",
    "unconditional",
    "holdout",
]  # what stands beside every attack
seed: int = 0  # the first random seed (of target model and attack)
repeats: int = 2  # how many seeds: seed, seed + 1, ...; intervals need several
n: int | None = None  # reconstructions per target; none: as many as target images
extractor: str = "efficientnet_lite0"  # features of the Frechet distance
training: dict = {}  # changes to the profile's training of target models
hyperparameters: dict = {}  # changes to the profile's hyperparameters, by attack; none: the original paper's
root: str | None = None  # folder of downloaded data sets; none: $DRLIB_DATA or ~/.cache/drlib/data
download: bool = False  # may missing files be downloaded?

# %% tags=["hide-input"]
p = sections.from_notebook("benchmark", globals())
cells = p.cells()
study.run(cells)
table = results.summary(cells, profile=p.profile)
made_by = results.provenance(table, p.command())
frechet = next(metric for metric in table.metric if metric.startswith(("FID", "FD-")))
sizes = list(p.target_sizes)
small, large = min(sizes), max(sizes)
report.style()


def cell_of(attack: str, size: int):
    """The cell of the first seed."""
    return next(cell for cell in cells if cell.attack == attack and cell.target.size == size)


def pick(metric: str, size: int) -> pd.DataFrame:
    """Rows of one metric at one size, by attack title."""
    return table[(table.metric == metric) & (table.target_size == size)].set_index("attack")


# %% [markdown]
# ## What the attacks return (the shape of Figure 1)
#
# Two images from the model with the smallest target data set and two from the one with the largest, as in
# Figure 1 of the
# paper. Below each, three rows that the paper's figure does not have: its nearest training image, its nearest
# holdout image, and the best possible image. When the holdout row fits as well as the target row, the
# picture is
# no evidence of a leak, however good it looks.

# %% tags=["hide-input"]
shown = [attack for attack in p.attacks if study.explain_unsupported(cell_of(attack, small)) is None]
half = -(-len(shown) // 2)
for part, group in enumerate((shown[:half], shown[half:]), start=1):
    parts, columns = [], []
    for attack in group:
        for size in (small, large):
            cell = cell_of(attack, size)
            rec = results.reconstruction(cell)
            labels = None if rec.labels is None else rec.labels[:2]
            rows, _ = plots.comparison_rows(rec.images[:2], labels, *results.target_and_holdout(cell))
            parts.append(rows)
            columns += [f"{results.title(cell) if size == small else ''}\n{size}", ""]
    if not group:
        continue
    ssim_of = {attack: pick("SSIM", large).value[results.title(cell_of(attack, large))] for attack in group}
    told = ", ".join(
        f"{results.title(cell_of(attack, large))} {value:.2f}" for attack, value in ssim_of.items()
    )
    joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    report.figure(
        plots.image_rows(joined, columns=columns),
        id=f"figure-1-shape-{part}",
        alt=f"For each attack two reconstructions from the smallest and two from the largest target data set, and under each its nearest training image, nearest holdout image and best possible image. Mean SSIM to the nearest at {large} target images: {told}.",
        caption=f"The shape of Figure 1, part {part} of 2: for each attack two reconstructions of a model trained on {small} images (left) and two of one trained on {large} (right), the first of each, not chosen. Best possible: the holdout image nearest to the nearest target.",
        provenance=made_by,
    )

# %% [markdown]
# ## The shape of Table 2
#
# In brackets the coverage $\alpha$ of Definition 4.2, as the paper prints it. Memorization is measured in
# {doc}`a chapter of its own </notebooks/17_memorization>`, on the same images; its row says what $k$, the number
# of images per class, is at each size, since it depends on that. An attack with ‡ still moves with more steps
# ({numref}`tab-converged`): no conclusion may rest on its row.

# %% tags=["hide-input"]
metrics_shown = [frechet, "SSIM", "PSNR", "MSE"]
moving = convergence.moving(p.convergence())
marked = {
    title: f"{title} ‡" if moves else f"{title} ?" if moves is None else title
    for title, moves in moving.items()
}


def entry(row: pd.Series) -> str:
    if math.isnan(row.value):
        return "NaN"
    if row.metric == frechet:
        return f"{row.value:.1f} (floor {row.value_floor:.1f})"
    text = f"{row.value:.3f}"
    return text if math.isnan(row.coverage) else f"{text} ({row.coverage_percent:.0f} %)"


def wide_table(kind: str) -> pd.DataFrame:
    """Attack and metric down, target size across, as in the paper."""
    rows = table[table.kind == kind]
    any_class = rows[rows.metric == "SSIM"].assign(metric="SSIM, all classes", coverage=math.nan)
    any_class["value"] = any_class.value_all_classes
    wide = pd.concat([rows[rows.metric.isin(metrics_shown)], any_class])
    wide["metric"] = pd.Categorical(wide.metric, [*metrics_shown, "SSIM, all classes"])
    wide["attack"] = pd.Categorical(wide.attack, list(dict.fromkeys(wide.attack)))
    wide = wide.sort_values(["attack", "metric"])
    wide["entry"] = wide.apply(entry, axis=1)
    wide = wide.pivot_table(
        index=["attack", "metric"], columns="target_size", values="entry", aggfunc="first", observed=True
    )
    return (
        wide.reset_index()
        .astype({"attack": str, "metric": str})
        .rename(columns={size: f"{size}" for size in sizes})
    )


def memorization_of(size: int) -> str:
    """The memorization of the first seed's target (equation 2) ± its standard error, if it was measured."""
    try:
        told = results.ensemble(p.ensembles()[size])
    except (KeyError, UserError):
        return "NaN: run `drlib run memorization`"
    score = model_score(told["inside"], told["probability"])
    report.value(f"memorization_{size}", score.value)
    k = size / len(told["labels"].unique())
    return f"{score.value:.3f} ± {score.standard_error:.3f} (k = {k:g})"


memorized = pd.DataFrame(
    [{"attack": "Memorization", "metric": "", **{f"{size}": memorization_of(size) for size in sizes}}]
)
ten = wide_table("attack")
ten["attack"] = ten.attack.map(lambda title: marked.get(title, title))
other_network = (
    "" if frechet == "FID" else f" {frechet} uses another network than FID and must not be compared with it."
)
unlabeled = table[(table.kind == "attack") & (table.matching == "all")].attack.unique()
ruler = (
    f" {', '.join(unlabeled)}: no labels, so matched among all classes, which is easier."
    if len(unlabeled)
    else ""
)
own = {
    results.title(cell): cell.target.architecture
    for cell in cells
    if cell.target.architecture != p.architecture
}
networks = "".join(f" {title}: on {architecture}." for title, architecture in own.items())
doubtful = " ?: convergence is not known, run `drlib run attacks`." if None in moving.values() else ""
report.table(
    pd.concat([memorized, ten]),
    id="table-2-shape",
    caption=f"The shape of Table 2 ({p.dataset}, {p.architecture}): mean over {p.repeats} seed(s), coverage in brackets. For {frechet} and MSE lower is closer; for SSIM and PSNR higher. *floor*: {frechet} between two parts of the real images at that n, which no attack can be expected to fall below.{other_network} Only *SSIM, all classes*, where every image is matched among all, compares attacks with and without labels.{ruler}{networks} ‡: still moves with more steps.{doubtful}",
    provenance=made_by,
)
refused = {
    results.title(cell_of(attack, small)): study.explain_unsupported(cell_of(attack, small))
    for attack in p.attacks
}
if any(refused.values()):
    display(
        Markdown("\n".join(f"- **{title}** is NaN: {reason}." for title, reason in refused.items() if reason))
    )

# %% [markdown]
# The controls, in the same form. Each row that an attack does not clearly pass says what its number is worth.

# %% tags=["hide-input"]
report.table(
    wide_table("control"),
    id="table-2-controls",
    caption="Controls for {numref}`tab-table-2-shape`: they attack nothing. *Prior sample*: drawn from an attack's generative model before any optimization. *(update)*: against the images of the update.",
    provenance=made_by,
)

# %% [markdown]
# ## Published beside reproduced
#
# The sizes, images and networks differ, so the values cannot agree, and comparing them would be wrong. What
# can be compared is
# the *direction*: does a measure get better or worse for the attack when the target data set grows?

# %% tags=["hide-input"]
paper = published.load("image_attacks")
paper = paper[(paper.paper_table == 2) & (paper.model == "VGG16") & (paper.dataset == "CelebA")]
lower_is_closer = {"FID", "MSE", frechet}


each = results.results(cells, profile=p.profile)  # one row per seed


def direction(changes: list[float], metric: str) -> str:
    """How a measure changes with size, if all seeds agree."""
    if not changes or any(math.isnan(change) for change in changes):
        return "NaN"
    closer = {(change < 0) == (metric in lower_is_closer) for change in changes}
    return "seeds disagree" if len(closer) > 1 else "closer" if closer.pop() else "farther"


def changes(name: str, metric: str, column: str = "value") -> list[float]:
    """From the smallest to the largest target data set, for each seed."""
    rows = each[(each.attack == name) & (each.metric == metric)]
    by_size = rows.pivot_table(index="seed", columns="target_size", values=column, dropna=False)
    return (by_size[large] - by_size[small]).tolist() if {small, large} <= set(by_size) else []


def ends(values: list[float], how: str) -> str:
    return f"{values[0]:.4g} to {values[-1]:.4g}: {how}" if values else "NaN: not in the paper's table"


lines, resolved, vanished = [], 0, 0
for attack in p.attacks:
    name = results.title(cell_of(attack, small))
    for metric in metrics_shown:
        known = "FID" if metric == frechet else metric
        rows = paper[(paper.attack == name) & (paper.metric == known)].sort_values("target_size")
        theirs = rows.value.tolist()
        ours = [pick(metric, size).value.get(name, math.nan) for size in sizes]
        equal = [pick(metric, size).value_equal.get(name, math.nan) for size in sizes]
        how = (
            direction([theirs[-1] - theirs[0]] if theirs else [], known),
            direction(changes(name, metric), metric),
        )
        at_equal = direction(changes(name, metric, "value_equal"), metric)
        lines.append(
            {
                "attack": name,
                "metric": known if known == metric else f"{known}, here {metric}",
                "published, 1,000 to 20,000": ends(theirs, how[0]),
                f"reproduced shape, {small} to {large}": ends(ours, how[1]),
                f"at equal size ({small})": ends(equal, at_equal),
                "same direction": "NaN"
                if "NaN" in how
                else "cannot be told"
                if how[1] == "seeds disagree"
                else "yes"
                if how[0] == how[1]
                else "no",
            }
        )
        resolved += how[1] in ("closer", "farther")
        vanished += how[1] in ("closer", "farther") and at_equal != how[1]
beside = pd.DataFrame(lines)
report.table(
    beside,
    id="published-reproduced",
    caption=f"Published (Table 2: CelebA, VGG16) beside reproduced ({p.dataset}, {p.architecture}; shape only), from the "
    f"smallest to the largest target data set. *closer*, *farther*: how the measure changes for the attack on the way, where all {p.repeats} seed(s) agree. "
    "*at equal size*: the same with as many images at both ends, which takes away what the number of images alone does.",
    provenance=made_by,
)

# %% [markdown]
# ### Size changes the ruler
#
# The paper compares across sizes as they come. But S-Dis takes a minimum over more candidates when the data
# set is larger, and
# a Frechet distance is larger for fewer images. So a trend in the table above may be one of the ruler.
# Below, the same
# reconstructions are measured at equal size: the first images of each against the same first target images.

# %% tags=["hide-input"]
for metric, which in (("SSIM", "higher"), (frechet, "lower")):
    slopes = pick(metric, large).value - pick(metric, small).value
    told = ", ".join(
        f"{results.title(cell_of(attack, large))} {slopes[results.title(cell_of(attack, large))]:+.2f}"
        for attack in shown
    )
    report.figure(
        plots.against_size(table, metric),
        id=f"across-sizes-{'ssim' if metric == 'SSIM' else 'frechet'}",
        alt=f"One panel per attack: {metric} against the number of target images, as measured and at equal size, with the holdout and noise in gray. Change from {small} to {large} images as measured: {told}.",
        caption=f"{metric} ({which} is closer) against the target data set's size. Solid: each size with its own number of images, as the paper measures. Dashed: always {small} images on both sides. A slope that only the solid line has may come from the ruler. Gray: holdout (solid) and noise (dotted), which attack nothing.",
        provenance=made_by,
    )

# %% [markdown]
# ## The leakage gap
#
# Every sample-level value against $m$ target images and against $m$ holdout images, equally many per class.
# Only the difference can
# show that *training* images leaked.

# %% tags=["hide-input"]
bars = table[(table.metric == "SSIM") & table.gap.notna()]
splits = data.load_splits(cell_of(p.attacks[0], large).target.data)
shared = set(splits.classes) & set(splits.auxiliary_classes)
elsewhere = "" if shared else " of *other* classes"
report.figure(
    plots.gaps(table, "SSIM"),
    id="gaps",
    alt=f"Leakage gaps in SSIM with intervals, one panel per target size, for attacks and controls. {(bars.gap_low.le(0) & bars.gap_high.ge(0)).sum()} of {len(bars)} intervals contain zero; the gaps of the attacks lie between {bars[bars.kind == 'attack'].gap.min():+.3f} and {bars[bars.kind == 'attack'].gap.max():+.3f}, those of the controls between {bars[bars.kind == 'control'].gap.min():+.3f} and {bars[bars.kind == 'control'].gap.max():+.3f}.",
    caption="Leakage gap in SSIM with 95 % intervals (paired bootstrap over images and seeds). Gray: controls. Noise "
    f"has seen nothing; class mean and auxiliary top are auxiliary images{elsewhere} that the model chose. How far "
    "their gaps stray from zero shows what chance does.",
    provenance=made_by,
)
gaps = table[(table.metric == "SSIM") & (table.kind == "attack") & table.gap.notna()]
frame = pd.DataFrame(
    {
        "attack": gaps.attack,
        "target images": gaps.target_size,
        "m": gaps.m,
        "SSIM to target": gaps.value_target_m,
        "to holdout": gaps.value_holdout_m,
        "gap": gaps.gap,
        "95 % interval": list(map(report.interval, gaps.gap_low, gaps.gap_high)),
        "p": gaps.gap_p,
    }
)
report.table(
    frame,
    id="gap-table",
    caption="The gaps of the attacks as numbers. *p*: randomization test over which images were called training images, all seeds together.",
    provenance=made_by,
    formats={"SSIM to target": ".3f", "to holdout": ".3f", "gap": "+.3f", "p": ".3f"},
)

# %% tags=["hide-input"]
target = data.target_subset(splits, large)
alike = (
    near_duplicates(splits.holdout.images, target.images)[:, 0].unique().numel() if len(splits.holdout) else 0
)
report.value("near_duplicates", float(alike))
Markdown(
    f"""**Holdout images that are almost training images.** {alike} of the {len(splits.holdout)} holdout images have SSIM > 0.95 with one of
{large} target images (first seed), without being copies: small images of simple things look alike. An attack that recovered a
training image exactly would score nearly as well on such a holdout image, so the gap is a cautious measure here. On
images with more detail it is sharper."""
)

# %% [markdown]
# ## Coverage and its chance level
#
# Coverage alone says little: random draws cover much, and whoever returns the same image for every sample
# cannot fall below the floor.
# The holdout's coverage is what perfect generalization covers.

# %% tags=["hide-input"]
coverage = table[(table.metric == "SSIM") & (table.target_size == large)].copy()
ceiling = coverage[coverage.attack == "Holdout"]
coverage["holdout"] = [
    f"{value:.3f} (n = {ceiling.n.iloc[0]})" if len(ceiling) else "NaN: not run"
    for value in coverage.coverage_holdout
]
report.table(
    coverage[
        ["attack", "matching", "n", "k", "coverage_floor", "coverage", "coverage_chance", "holdout"]
    ].rename(columns={"coverage_floor": "floor", "coverage_chance": "chance"}),
    id="coverage",
    caption=f"Coverage with {large} target images (SSIM neighbors), its floor, its chance level for that n, and the holdout's. "
    "k: targets per class. Fewer images cover less: where the holdout has another n, only its own chance level, in its own row, is "
    "comparable with it.",
    provenance=made_by,
    formats={"k": ".0f", "floor": ".3f", "coverage": ".3f", "chance": ".3f"},
)

# %% [markdown]
# ## What can be said

# %%
# NBVAL_CHECK_OUTPUT
ssim = pick("SSIM", large).value_all_classes
order = (
    ssim[[results.title(cell_of(attack, large)) for attack in p.attacks]]
    .dropna()
    .sort_values(ascending=False)
)
print(
    f"SSIM at {large} target images, matched among all classes, best first:",
    ", ".join(f"{marked.get(name, name)} {value:.1f}" for name, value in order.items()),
)

# %% tags=["hide-input"]
leaks = gaps[(gaps.gap > 0) & (gaps.gap_p < 0.01)]
tests = len(gaps)
settled = [name for name in order.index if moving.get(name) is False]
better = [name for name in settled if "Class mean" in ssim and ssim["Class mean"] > ssim[name]]
kept = (beside["same direction"] == "yes").sum()
known = beside["same direction"].isin(["yes", "no"]).sum()
noise_closer = sum(direction(changes("Noise", metric), metric) == "closer" for metric in metrics_shown)
for name, number in (
    ("same_direction", kept),
    ("compared_directions", known),
    ("gaps_found", len(leaks)),
    ("gaps_tested", tests),
    ("directions_resolved", resolved),
    ("directions_vanished", vanished),
):
    report.value(name, float(number))
for name, value in pick("SSIM", large).value[order.index].items():
    word = name.lower().replace("-", "_")
    report.value(f"ssim_{word}", float(value))
    report.value(f"coverage_{word}", float(pick("SSIM", large).coverage[name]))
    report.value(f"frechet_{word}", float(pick(frechet, large).value[name]))
Markdown(
    f"""- **Direction with size.** Where all seeds agree and the paper has a value, {kept} of {known} directions are those of Table 2 (other images, other
  network). Of the {resolved} directions on which all seeds agree, {vanished} are not seen at equal size ({{numref}}`fig-across-sizes-ssim`): there the number of
  images may have made the trend. Noise, which attacks nothing, gets closer with size in {noise_closer} of {len(metrics_shown)} measures.
- **Leak.** Of {tests} gaps tested, {len(leaks)} have *p* < 0.01"""
    + (
        f" ({', '.join(f'{row.attack} at {row.target_size}: {row.gap:+.3f}' for row in leaks.itertuples())})"
        if len(leaks)
        else ""
    )
    + f""". With {tests} tests, {tests * 0.01:.1f} would be expected by chance.
- **Controls.** With {large} target images the class mean of *auxiliary* images{elsewhere} is at SSIM {ssim.get("Class mean", math.nan):.3f} (all classes): above {", ".join(better) or "none"} of the {len(settled)} attacks that are known to have converged.
- **Not shown here:** anything about faces, VGG16 or 20,000 images."""
)

# %% [markdown]
# ```{exercise}
# :label: ex-benchmark-seed
# Run the chapter with one seed and with five (`-p repeats=1`, `-p repeats=5`). Which of the statements
# above do you still believe?
# ```
#
# ```{solution} ex-benchmark-seed
# :class: dropdown
# With one seed the interval knows only how reconstructions vary, not how the target images were drawn or
# how the model was
# trained. Five seeds give five draws. Statements that come and go with the number of seeds were never
# supported.
# ```
#
# ```{exercise}
# :label: ex-benchmark-mean
# Replace the attacks by one of your own that returns the same gray image for every sample
# (`-p attacks=[my.module:Gray]`, see {doc}`/book/how_to`). Predict its MSE rank, its coverage, and its gap.
# ```
#
# ```{solution} ex-benchmark-mean
# :class: dropdown
# Its MSE is far below MI-Face's: noise is farther from everything than gray is. Its coverage is the floor,
# one image per class, and its
# gap is zero up to chance. Three numbers together say what none says alone.
# ```
