# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Relations between metrics
#
# :::{admonition} This chapter
# :class: tip
# **Needs** {doc}`when a reconstruction is good </notebooks/02_metrics>` and correlation coefficients. \
# **Gives** Figures 2, 11 and 12 of the paper, made from its own tables and from attacks that are run here; an
# audit of the coefficients that section 5.1 prints; and what a correlation between two metrics is worth. \
# **Minutes** 25 to read, 2 to run.
# :::
#
# A table with four metrics asks to be summarized: do they say the same? {cite:t}`wen2025` answer with scatter plots and
# correlation coefficients (Figure 2 for distances, Figures 11 and 12 for coverage), and conclude that the relation is weak,
# and stronger for the attacks with better pictures. A coefficient depends on the rows it is computed on: which data sets, which
# sizes, which attacks, with or without something as bad as noise. So we first look for the rows that give the paper's
# coefficients, and then compute our own with their intervals.

# %%
import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
import torch
from IPython.display import Markdown

from drlib import metrics, plots, published, relations, report, results, sections, study
from drlib.metrics.offered import combined_score, kernel_distance, prdc_coverage
from drlib.relations import COVERAGES, GANS, SAMPLE

# %% tags=["parameters"]
profile: str = "laptop"  # the profile that supplies whatever is not set here (training, hyperparameters)
dataset: str = "digits"  # the data set whose target split is to be reconstructed
side: int = 16  # image height and width in pixels
channels: int = 1  # 1 for gray images, 3 for color
mode: str = "class"  # what a label means: the object class, or (lfw_subset) the single image
architecture: str = "convnet"  # the target model's architecture
width: float | None = None  # factor on the architecture's width; none: as published
target_sizes: list = [50, 100]  # sizes of the target data set (nested: each contains the smaller ones)
attacks: list = [
    "mi_face",
    "deep_dream",
    "deep_inversion",
    "kedmi",
    "inv_alignment",
    "bias_rec",
]  # attacks to run: registered names, or module:Class for your own
controls: list = ["noise", "class_mean", "auxiliary_top", "holdout"]  # what stands beside every attack
seed: int = 0  # the first random seed (of target model and attack)
repeats: int = 1  # how many seeds: seed, seed + 1, ...; intervals need several
n: int | None = None  # reconstructions per target; none: as many as target images
extractor: str = "efficientnet_lite0"  # features of the Frechet distance
training: dict = {}  # changes to the profile's training of target models
hyperparameters: dict = {}  # changes to the profile's hyperparameters, by attack; none: the original paper's
root: str | None = None  # folder of downloaded data sets; none: $DRLIB_DATA or ~/.cache/drlib/data
download: bool = False  # may missing files be downloaded?

# %% tags=["hide-input"]
p = sections.from_notebook("relations", globals())
cells = p.cells()
study.run(cells)
table = results.summary(cells, profile=p.profile)
made_by = results.provenance(table, p.command())
from_paper = f"Made by `{p.command()}` · from the numbers printed in the paper, nothing is run"
report.style()
COLORS = sns.color_palette("colorblind")
PAIRS = [("FID", name) for name in SAMPLE]
NAMES = {"SSIM": "SSIM ↑", "PSNR": "PSNR (dB) ↑", "MSE": "MSE ↓"}


def heat(ax, frame: pd.DataFrame, columns: list[str], how: str, title: str) -> None:
    """Absolute coefficients as the paper prints them, colored by whether the two measures agree."""
    found = relations.matrix(frame, columns, how)
    agree = found.copy()
    for a in columns:
        for b in columns:
            agree.loc[a, b] = relations.agreement(found.loc[a, b], a, b)
    short = [name.replace("coverage ", "cov. ").replace("efficientnet_", "") for name in columns]
    text = found.abs().map(lambda value: "NaN" if math.isnan(value) else f"{value:.2f}")
    shown = agree.set_axis(short).set_axis(short, axis=1)
    sns.heatmap(
        shown, ax=ax, annot=text.to_numpy(), fmt="", vmin=-1, vmax=1, cmap="RdBu", cbar=False, square=True,
        annot_kws={"fontsize": 8}, linewidths=0.5,
    )  # fmt: skip
    ax.set_facecolor("0.9")
    ax.tick_params(labelsize=8, length=0)
    ax.set_yticklabels(ax.get_yticklabels(), rotation=0)
    ax.set_xticklabels(ax.get_xticklabels(), rotation=30, ha="right")
    ax.set_title(title, fontsize=9)


def clustered(frame: pd.DataFrame) -> pd.DataFrame:
    """Published rows with what the bootstrap draws as a whole: an attack on a data set and network.

    Bias-Rec has one network of its own, and the same rows under all three.
    """
    network = frame.model.where(frame.attack != "Bias-Rec", "")
    return frame.assign(cluster=frame.dataset + ", " + network + ", " + frame.attack)


def signed(value: float, how: str = "+.2f") -> str:
    return "NaN" if math.isnan(value) else format(value, how)


def with_interval(row) -> str:
    """Agreement with its interval as a table cell."""
    if math.isnan(row.agreement):
        return f"NaN: {row.reason}"
    return f"{row.agreement:+.2f} [{report.interval(row.low, row.high, '+.2f')}]"


def one_line(frame: pd.DataFrame, pairs, how: str = "pearson") -> str:
    """Coefficients in words: positive where the measures agree."""
    found = relations.correlations(frame, pairs, how, resamples=0)
    return ", ".join(f"{row.a} and {row.b} {signed(row.agreement)}" for row in found.itertuples())


# %% [markdown]
# ## The paper's own numbers
#
# Tables 2, 13 to 15 and 17 to 24 of the paper hold ten attacks (nine on transformers) at six sizes on twelve pairs of data set and
# network. Figure 2 must be made of some of these rows. Which, it does not say. Here are those of the nine tables with convolutional
# networks on the three main data sets.

# %% tags=["hide-input"]
paper = relations.side_by_side(published.load("image_attacks"))
nine = relations.read_rows(paper, "nine tables")
fig, axes = plt.subplots(1, 3, figsize=(report.WIDTH + 0.4, 2.9), sharex=True)
sets = dict(zip(nine.dataset.unique(), COLORS, strict=False))
for ax, name in zip(axes, SAMPLE, strict=True):
    for dataset_name, color in sets.items():
        for gan, marker in ((False, "o"), (True, "^")):
            rows = nine[(nine.dataset == dataset_name) & (nine.attack.isin(GANS) == gan)]
            last = rows.target_size == rows.target_size.max()
            for part, alpha, size in ((rows[~last], 0.25, 10), (rows[last], 0.95, 18)):
                label = f"{dataset_name}{', GAN attacks' if gan else ''}" if size == 18 else None
                ax.scatter(
                    part.FID, part[name], s=size, color=color, marker=marker, alpha=alpha, lw=0, label=label
                )
    ax.set(xlabel="FID ↓", ylabel=NAMES[name])
fig.legend(
    *axes[0].get_legend_handles_labels(), ncols=3, loc="outside upper center", frameon=False, fontsize=8
)
sns.despine(fig)
largest = relations.read_rows(paper, "nine tables", "largest")
report.figure(
    fig,
    id="relations-published",
    alt=f"Three scatter plots of {len(nine)} published results, FID against SSIM, PSNR and MSE, in one color for each data set. "
    f"Correlation at the largest size, positive where the two measures agree: {one_line(largest, PAIRS)}; "
    + "; ".join(
        f"on {name} alone {one_line(rows, PAIRS)}" for name, rows in largest.groupby("dataset", sort=False)
    )
    + ".",
    caption="Figure 2 (a) to (c) of the paper from its Tables 2 and 17 to 24. Strong: 20,000 target images; faint: fewer. The clouds of "
    "the data sets lie in different places: what is seen across clouds need not hold inside one.",
    provenance=from_paper,
)

# %% [markdown]
# ## An audit of the printed coefficients
#
# Section 5.1 prints ten absolute coefficients, without the rows, the kind of coefficient, or the number of values. We declare a set
# of readings and try all of them:
#
# - **tables**: Table 2; one data set; CIFAR-10 and MNIST (as in Figure 11); VGG16; the nine tables; these and CIFAR-100; all twelve;
# - **sizes**: all six, the smallest, the largest;
# - **attacks**: all ten; Bias-Rec once (its one result is printed under three networks); static attacks only;
# - **coefficient**: Pearson, Spearman, Kendall.
#
# A reading must give *all* numbers of a sentence at once, since with so many readings some will be near any single number.
# Nothing is left out below: {numref}`fig-relations-readings` has every reading. A reading *reproduces* numbers if it gives all of their printed digits; *near* means that none is off by more than 0.015.

# %%
# NBVAL_CHECK_OUTPUT
audited = relations.audit(paper)
is_fid = audited.a == "FID"
of_all = audited.group == "all attacks"
CLAIMS = {
    "FID, all attacks": audited[is_fid & of_all],
    "FID, GAN attacks": audited[is_fid & ~of_all],
    "coverage, all attacks": audited[~is_fid & of_all],
    "coverage, GAN attacks": audited[~is_fid & ~of_all],
    "both, all attacks": audited[of_all],
    "both, GAN attacks": audited[~of_all],
    "everything": audited,
}
READING = ["tables", "sizes", "attacks", "how"]
ranked = {name: relations.closest(rows) for name, rows in CLAIMS.items()}
for name, found in ranked.items():
    best = found.iloc[0]
    print(f"{name:22} closest of {len(found):3}: off by {best.deviation:.3f}  ({', '.join(best[READING])})")

# %% tags=["hide-input"]
EXACT, NEAR = 0.0005, 0.015  # printed with three decimals
rows = []
for name, found in ranked.items():
    for place, best in enumerate(found.head(3).itertuples(), start=1):
        rows.append(
            {
                "what is printed": name,
                "place": place,
                "tables": best.tables,
                "sizes": best.sizes,
                "attacks": best.attacks,
                "coefficient": best.how,
                "rows": best.n,
                "largest deviation": best.deviation,
                "by chance": relations.chance_of_match(CLAIMS[name]) if place == 1 else math.nan,
            }
        )
frame = pd.DataFrame(rows)
frame["by chance"] = [
    "" if math.isnan(value) else f"{value:.4f}" if value else "below 0.0001" for value in frame["by chance"]
]
report.table(
    frame,
    id="relations-closest",
    caption=f"The three readings closest to the printed coefficients, out of {len(ranked['FID, all attacks'])} (of GAN attacks: "
    f"{len(ranked['FID, GAN attacks'])}). *Largest deviation*: of the absolute value, over all numbers of the line at once. *By chance*: how "
    "often made-up numbers, uniform over the range of all readings, would be matched as closely by one of them.",
    provenance=from_paper,
    formats={"largest deviation": ".4f"},
)


# %% tags=["hide-input"]
def deviations(names: tuple[str, str]) -> pd.DataFrame:
    """Largest deviation of every reading: tables and sizes down; coefficient and attacks across."""
    parts = []
    for name, who in zip(names, ("all", "GAN"), strict=True):
        found = ranked[name]
        kinds = {"ten attacks": "ten", "Bias-Rec once": "B. once", "static attacks": "static"}
        across = [
            f"{how[:1].upper()}, {kinds[of] if who == 'all' else 'GAN'}"
            for how, of in zip(found.how, found.attacks, strict=True)
        ]
        found = found.assign(down=found.tables + ", " + found.sizes, across=across)
        wide = found.pivot(index="down", columns="across", values="deviation")
        order = [
            f"{how[:1].upper()}, {kind}"
            for how in relations.METHODS
            for kind in (kinds.values() if who == "all" else ["GAN"])
        ]
        parts.append(wide[order])
    down = [f"{tables}, {sizes}" for tables in relations.READ_TABLES for sizes in relations.READ_SIZES]
    return pd.concat(parts, axis=1).loc[down]


fig, axes = plt.subplots(1, 2, figsize=(report.WIDTH + 3.2, 7.2), sharey=True)
for ax, names, title in (
    (axes[0], ("FID, all attacks", "FID, GAN attacks"), "FID with SSIM, PSNR, MSE"),
    (axes[1], ("coverage, all attacks", "coverage, GAN attacks"), "coverage (SSIM) with (PSNR), (MSE)"),
):
    shown = deviations(names)
    text = shown.map(lambda value: "NaN" if math.isnan(value) else f"{value:.3f}".lstrip("0"))
    sns.heatmap(
        shown, ax=ax, annot=text.to_numpy(), fmt="", vmin=0, vmax=0.6, cmap="mako", cbar=False,
        annot_kws={"fontsize": 6.5}, linewidths=0.4,
    )  # fmt: skip
    ax.set_facecolor("0.8")
    ax.axvline(9, color="white", lw=4)
    ax.set(xlabel="", ylabel="")
    ax.set_title(title, fontsize=9)
    ax.tick_params(labelsize=7.5, length=0)
close = {name: int((found.deviation <= NEAR).sum()) for name, found in ranked.items()}
exact = {name: int((found.deviation <= EXACT).sum()) for name, found in ranked.items()}
report.figure(
    fig,
    id="relations-readings",
    alt="Two heat maps with the deviation of every reading from the printed coefficients. Within "
    f"{NEAR} are: "
    + "; ".join(f"{name}: {close[name]} of {len(ranked[name])}" for name in list(CLAIMS)[:4])
    + ".",
    caption="Every reading: its largest deviation from the printed coefficients (dark: close). P, S, K: Pearson, Spearman, Kendall. Left of "
    "the white line: all attacks (ten; Bias-Rec once; static only); right: the three GAN attacks. Gray: not defined, "
    "since every coverage is 100 %.",
    provenance=from_paper,
)

# %% [markdown]
# {numref}`tab-relations-printed` puts two readings beside each printed number: A comes closest to the numbers for all attacks, B to those
# for GAN attacks. The sign says what the absolute value hides: **positive where the two measures agree**, negative where a
# smaller FID goes with *worse* values of the other.

# %% tags=["hide-input"]
chosen = {"A": ranked["both, all attacks"].iloc[0], "B": ranked["both, GAN attacks"].iloc[0]}
rows_of = {
    letter: relations.read_rows(paper, best.tables, best.sizes, best.attacks)
    for letter, best in chosen.items()
}
rows = []
for (group, a, b), printed in relations.PRINTED.items():
    row = {"attacks": group, "measures": f"{a}, {b}", "printed": printed}
    for letter, best in chosen.items():
        part = rows_of[letter]
        part = part[part.attack.isin(GANS)] if group == "GAN attacks" else part
        part = clustered(part)
        found = relations.correlations(part, [(a, b)], best.how, groups="cluster").iloc[0]
        row |= {
            f"{letter}": found.agreement,
            f"interval of {letter}": report.interval(found.low, found.high, "+.2f"),
        }
        row |= {f"rows of {letter}": found.n}
    rows.append(row)
side_by = pd.DataFrame(rows)
told = {
    letter: f"{best.tables}, {best.sizes}, {best.attacks}, {best.how.capitalize()}"
    for letter, best in chosen.items()
}
report.table(
    side_by,
    id="relations-printed",
    caption=f"The coefficients of section 5.1 (absolute) and two readings with their sign: positive where the measures agree. A: {told['A']}. "
    f"B: {told['B']}. Intervals: 95 %, bootstrap over attacks on a data set and network, all sizes of one drawn together.",
    provenance=from_paper,
    formats={"printed": ".3f", "A": "+.3f", "B": "+.3f"},
)

# %% tags=["hide-input"]
fid_only = audited[is_fid & (audited.attacks == "ten attacks")]
by_group = fid_only.pivot(
    index=["tables", "sizes", "how"], columns=["group", "b"], values="agreement"
).dropna()
gan, every = by_group["GAN attacks"], by_group["all attacks"]
rises = (gan.abs() > every.abs()).all(axis=1)
agrees = (gan > every).all(axis=1)
coverage_only = audited[~is_fid & (audited.b == COVERAGES[1]) & (audited.attacks == "ten attacks")]
two_groups = coverage_only.pivot(
    index=["tables", "sizes", "how"], columns="group", values="agreement"
).dropna()
cover_rises = int((two_groups["GAN attacks"] > two_groups["all attacks"]).sum())
of_gans = CLAIMS["coverage, GAN attacks"].agreement.dropna()
at_a = side_by[side_by.measures.str.startswith("FID")].set_index(["attacks", "measures"]).A
turned = [
    measures.removeprefix("FID, ")
    for (group, measures), value in at_a.items()
    if group == "GAN attacks" and value < 0 < at_a["all attacks", measures]
]


def verdict(name: str) -> str:
    """What can be said of a sentence of the paper: reproduced, near, or not."""
    best, found = ranked[name].iloc[0], exact[name]
    reading = f"{best.tables}, {best.sizes}, {best.attacks}, {best.how.capitalize()}"
    if found:
        return (
            f"reproduced to the printed digits by {found} of {len(ranked[name])} readings (first: {reading})"
        )
    if best.deviation <= NEAR:
        return f"not reproduced, but the closest reading ({reading}) is off by {best.deviation:.3f} at most"
    return f"**not reproduced**: the closest of {len(ranked[name])} readings ({reading}) is still off by {best.deviation:.2f}"


for name, label in (
    ("FID, all attacks", "fid_all"),
    ("FID, GAN attacks", "fid_gan"),
    ("coverage, all attacks", "coverage_all"),
    ("coverage, GAN attacks", "coverage_gan"),
    ("everything", "everything"),
):
    report.value(f"audit_{label}_deviation", float(ranked[name].deviation.iloc[0]))
report.value("audit_rises", float(rises.sum()))
report.value("audit_rises_agreeing", float(agrees.sum()))
Markdown(
    f"""**What the audit finds.**

- FID with SSIM, PSNR, MSE over all attacks (0.465, 0.117, 0.289): {verdict("FID, all attacks")}.
- The same over GAN attacks (0.597, 0.721, 0.511): {verdict("FID, GAN attacks")}.
- Coverage by SSIM with that by PSNR and MSE, all attacks (0.429): {verdict("coverage, all attacks")}.
- The same when low-quality reconstructions are excluded (0.993), read as GAN attacks: {verdict("coverage, GAN attacks")}. Half of all readings give {of_gans.median():.3f} or more, and in
  {cover_rises} of {len(two_groups)} readings the coverages agree better over GAN attacks than over all{": this finding does not hang on the choice of rows" if cover_rises == len(two_groups) else ""}.
- All ten numbers from one choice of rows: {verdict("everything")}.
- *"The correlation coefficients improve"* from all attacks to GAN attacks. In {int(rises.sum())} of {len(rises)} readings (tables, sizes, coefficient) all three
  absolute values rise; in {int(agrees.sum())} the measures also *agree* better. """
    + (
        f"Under reading A the sign turns for {' and '.join(turned)}: among the GAN attacks a smaller FID goes with a worse value, and an absolute value "
        "makes that look like a stronger relation."
        if turned
        else "Under reading A no sign turns."
    )
)

# %% [markdown]
# ### Across clouds, inside clouds
#
# Why does the choice of rows matter so much? Because the rows are of three kinds mixed: data sets differ in every measure (MNIST images are
# black with a white stroke), and so do sizes ({doc}`the benchmark </notebooks/12_benchmark>`: more images make FID smaller and neighbors
# nearer, whatever the attack). *Inside* takes the mean of each data set and size away first, so that only attacks are
# compared with attacks on the same target data.


# %% tags=["hide-input"]
def inside(frame: pd.DataFrame, columns: list[str], by: list[str]) -> pd.DataFrame:
    """The columns minus their means within the groups."""
    return frame.assign(**{name: frame[name] - frame.groupby(by)[name].transform("mean") for name in columns})


def within_row(label: str, who: str, frame: pd.DataFrame) -> dict:
    frame = clustered(frame)
    found = relations.correlations(frame, PAIRS, groups="cluster")
    cov = relations.correlations(frame, [(COVERAGES[0], COVERAGES[1])], groups="cluster").iloc[0]
    cells_of = {f"{row.a}, {row.b}": with_interval(row) for row in found.itertuples()}
    coverage_cell = with_interval(cov)
    return {
        "attacks": who,
        "rows of": label,
        "rows": len(frame),
        **cells_of,
        "cov. (SSIM), (PSNR)": coverage_cell,
    }


everything = ["FID", *SAMPLE, *COVERAGES]
rows, within = [], {}
for who, base in (("all attacks", nine), ("GAN attacks", nine[nine.attack.isin(GANS)])):
    rows.append(within_row("nine tables", who, base))
    rows += [within_row(name, who, part) for name, part in base.groupby("dataset", sort=False)]
    within[who] = inside(base, everything, ["paper_table", "target_size"])
    rows.append(within_row("nine tables, inside", who, within[who]))
report.table(
    pd.DataFrame(rows),
    id="relations-inside",
    caption="Pearson coefficients on the paper's numbers, positive where the measures agree, with 95 % intervals (bootstrap over attacks on a data set and "
    "network, all sizes together). *Inside*: the mean of each table and size is taken away first.",
    provenance=from_paper,
)
Markdown(
    f"""Inside, FID and SSIM are at {relations.correlations(within["all attacks"], PAIRS[:1], resamples=0).agreement[0]:+.2f} over all attacks and at
{relations.correlations(within["GAN attacks"], PAIRS[:1], resamples=0).agreement[0]:+.2f} over GAN attacks. The coverages by SSIM and by PSNR of GAN attacks are at
{relations.correlations(within["GAN attacks"], [COVERAGES[:2]], resamples=0).agreement[0]:+.2f} inside: what remains of their 0.993 once the size cannot make it. Coverages by
PSNR and by MSE are the same number in {int((paper[COVERAGES[1]] == paper[COVERAGES[2]]).sum())} of {len(paper)} rows, since both have the same neighbors; so the paper's *"as well as between SSIM and MSE"* is no second finding."""
)

# %% [markdown]
# ## The same picture from attacks that were run
#
# Now rows of our own: all attacks of this chapter at all its sizes, and what the paper's figure lacks, the controls.


# %% tags=["hide-input"]
own = relations.side_by_side(table)
frechet = next(name for name in own if relations.is_dataset_level(name))
own["group"] = np.where(
    own.kind == "control",
    "control",
    np.where(own.reconstructs == "update images", "dynamic attack", "static attack"),
)
own_pairs = [(frechet, name) for name in SAMPLE]
attacks_only = own[own.kind == "attack"]
sizes = list(p.target_sizes)
small, large = min(sizes), max(sizes)
cell_of: dict = {}
for cell in cells:
    cell_of.setdefault((results.title(cell), cell.target.size), cell)  # the first seed's
LOOK = {"static attack": ("o", COLORS[0]), "dynamic attack": ("s", COLORS[1]), "control": ("X", "0.45")}

fig, axes = plt.subplots(1, 3, figsize=(report.WIDTH + 0.4, 3.0), sharex=True)
for ax, name in zip(axes, SAMPLE, strict=True):
    for group, (marker, color) in LOOK.items():
        rows = own[own.group == group]
        ax.scatter(rows[frechet], rows[name], marker=marker, color=color, s=26, alpha=0.8, lw=0, label=group)
    for row in own[(own.group == "control") & (own.target_size == large)].itertuples():
        if row.attack in ("Noise", "Holdout", "Class mean"):
            at = (getattr(row, name), own.loc[row.Index, frechet])
            if all(map(math.isfinite, at)):
                ax.annotate(row.attack, at[::-1], (4, 3), textcoords="offset points", fontsize=7, color="0.3")
    ax.set(xlabel=f"{frechet.replace('efficientnet_', '')} ↓", ylabel=NAMES[name])
handles, labels = axes[0].get_legend_handles_labels()
fig.legend(handles, labels, ncols=3, loc="outside upper center", frameon=False, fontsize=8)
sns.despine(fig)
counts = own.dropna(subset=[frechet, "SSIM"]).group.value_counts()
report.figure(
    fig,
    id="relations-own",
    alt=f"Three scatter plots, {frechet} against SSIM, PSNR and MSE, for "
    + ", ".join(f"{counts.get(group, 0)} results of {group}s" for group in LOOK)
    + f". Correlation over attacks, positive where the measures agree: {one_line(attacks_only, own_pairs)}; with the controls: {one_line(own, own_pairs)}.",
    caption=f"The shape of Figure 2 ({p.dataset}, {p.architecture}, {' and '.join(map(str, sizes))} target images): each point is an attack or control at one size. "
    "Controls attack nothing; those named are at the largest size.",
    provenance=made_by,
)

# %% tags=["hide-input"]
columns = [frechet, *SAMPLE]
fig, axes = plt.subplots(1, 2, figsize=(report.WIDTH - 0.4, 3.3))
heat(axes[0], attacks_only, columns, "pearson", f"attacks ({len(attacks_only.dropna(subset=columns))} rows)")
heat(axes[1], own, columns, "pearson", f"attacks and controls ({len(own.dropna(subset=columns))} rows)")
report.figure(
    fig,
    id="relations-own-heat",
    alt="Two heat maps of absolute Pearson coefficients between the measures. Signed so that positive means that they agree: attacks: "
    f"{one_line(attacks_only, own_pairs)}; attacks and controls: {one_line(own, own_pairs)}.",
    caption="The shape of Figure 2 (d): absolute Pearson coefficients, over attacks and over attacks and controls. Blue: the two measures agree; "
    "red: they contradict each other; the paper's heat map cannot tell.",
    provenance=made_by,
)

# %% tags=["hide-input"]
at_equal = relations.side_by_side(table, "value_equal")
row_sets = {
    "attacks": attacks_only,
    "static attacks": own[own.group == "static attack"],
    f"attacks, equal n = {small}": at_equal[at_equal.kind == "attack"],
    "attacks and controls": own,
    "the same without noise": own[~own.attack.str.startswith("Noise")],
    "controls": own[own.kind == "control"],
}
rows, kept = [], {}
for label, frame in row_sets.items():
    for how in ("pearson", "spearman"):
        found = relations.correlations(frame, own_pairs, how, groups="attack")
        kept[label, how] = found
        cells_in = {row.b: with_interval(row) for row in found.itertuples()}
        rows.append({"rows of": label, "coefficient": how, "rows": int(found.n.min()), **cells_in})
report.table(
    pd.DataFrame(rows).rename(columns={name: f"{frechet}, {name}" for name in SAMPLE}),
    id="relations-own-correlations",
    caption=f"Correlation of {frechet} with the sample-level measures: positive where they agree, with 95 % intervals (bootstrap over attacks; all sizes of an attack are "
    "drawn together; NaN: too few of them). *Equal n*: all values from equally many images, which takes away what their number does.",
    provenance=made_by,
)

# %% tags=["hide-input"]
pooled = relations.correlations(own, own_pairs[:1], resamples=0).agreement[0]
influence = {
    name: relations.correlations(own[own.attack != name], own_pairs[:1], resamples=0).agreement[0] - pooled
    for name in own.attack.unique()
}
influence = {name: change for name, change in influence.items() if not math.isnan(change)}
strongest = sorted(influence, key=lambda name: -abs(influence[name]))[:3]
with_controls = kept["attacks and controls", "pearson"]
alone = kept["attacks", "pearson"]
wide_enough = [
    row.b
    for row in alone.itertuples()
    if not math.isnan(row.low) and row.low <= with_controls.agreement[row.Index] <= row.high
]
report.value("agreement_attacks", float(alone.agreement[0]))
report.value("agreement_with_controls", float(with_controls.agreement[0]))
Markdown(
    f"""**What controls do.** Over attacks {frechet} and SSIM correlate at {signed(alone.agreement[0])}, with the controls at {signed(with_controls.agreement[0])}. A Pearson coefficient can hang on a few extreme rows:
leaving out one name with all its sizes changes it most for {", ".join(f"{name} ({influence[name]:+.2f})" for name in strongest) or "none (NaN)"}. But the controls together were chosen to be extreme, and a coefficient
says as much about who was invited as about the measures. """
    + (
        f"For {', '.join(wide_enough)} the interval over attacks contains the coefficient with controls: {len(attacks_only.attack.unique())} attacks cannot tell the two apart."
        if wide_enough
        else "No interval over attacks contains the coefficient with controls, or none could be computed."
    )
)

# %% [markdown]
# ## Where the measures contradict each other
#
# A coefficient near 1 still leaves pairs that two measures order in opposite ways, and a reader who must choose between two attacks meets a
# pair, not a coefficient. Here are the plainest contradictions at the largest size. The images are the first ones, not chosen.

# %% tags=["hide-input"]
here = own[(own.target_size == large) & (own.reconstructs == "training images")].reset_index(drop=True)
here = (
    here
    if here[[frechet, "SSIM"]].dropna().shape[0] > 1
    else own[own.target_size == large].reset_index(drop=True)
)
against = relations.discordant(here, frechet, "SSIM")
taken, pairs_shown = set(), []
for row in against.itertuples():
    pair = here.attack[row.closer_by_a], here.attack[row.closer_by_b]
    if not taken & set(pair) and len(pairs_shown) < 2:
        pairs_shown.append((int(row.closer_by_a), int(row.closer_by_b)))
        taken |= set(pair)
for number, pair in enumerate(pairs_shown, start=1):
    parts, headers, facts = [], [], []
    for index, measure in zip(pair, (frechet, "SSIM"), strict=True):
        title = here.attack[index]
        cell = cell_of[title, large]
        rec = results.reconstruction(cell)
        labels = None if rec.labels is None else rec.labels[:4]
        rows, _ = plots.comparison_rows(rec.images[:4], labels, *results.target_and_holdout(cell))
        parts.append(rows)
        headers += [title, "", "", ""][: len(rec.images[:4])]
        facts.append(
            f"{title} (closer by {measure}): {frechet} {here[frechet][index]:.0f}, SSIM {here.SSIM[index]:.3f}, "
            f"PSNR {here.PSNR[index]:.2f} dB, MSE {here.MSE[index]:.4f}, coverage {here[COVERAGES[0]][index]:.2f}"
        )
    joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    report.figure(
        plots.image_rows(joined, columns=headers),
        id=f"relations-pair-{number}",
        alt=f"Reconstructions of two kinds that {frechet} and SSIM order in opposite ways, each with nearest target, nearest holdout image and best possible image. {'; '.join(facts)}.",
        caption=f"A contradiction at {large} target images. {'. '.join(facts)}. Below each image: the nearest target, the nearest holdout image, and the best possible one.",
        provenance=made_by,
    )

# %% tags=["hide-input"]
compared = [
    (frechet, "SSIM"),
    (frechet, "PSNR"),
    (frechet, "MSE"),
    ("SSIM", "PSNR"),
    ("SSIM", "MSE"),
    ("PSNR", "MSE"),
]
rows = []
for label, frame in (("attacks", here[here.kind == "attack"]), ("attacks and controls", here)):
    for a, b in compared:
        found = relations.discordant(frame.reset_index(drop=True), a, b)
        total = found.attrs["pairs"]
        names = frame.attack.tolist()
        worst = f"{names[found.closer_by_a[0]]} / {names[found.closer_by_b[0]]}" if len(found) else "none"
        rows.append(
            {
                "rows of": label,
                "measures": f"{a}, {b}",
                "pairs": total,
                "in opposite order": len(found),
                "share": len(found) / total if total else math.nan,
                "plainest (closer by first / by second)": worst,
            }
        )
opposite = pd.DataFrame(rows)
report.table(
    opposite,
    id="relations-opposite",
    caption=f"Pairs of rows at {large} target images (static attacks and controls of the training images) that two measures order in opposite ways.",
    provenance=made_by,
    formats={"share": ".2f"},
)

# %% [markdown]
# ### Mean PSNR against mean MSE
#
# PSNR is a function of MSE for one image, so the last line of each half of {numref}`tab-relations-opposite` should be zero. It need not be: PSNR is averaged
# per image, and the mean of a logarithm is not the logarithm of a mean. The difference is never negative and grows with how uneven the images
# of one attack are.

# %% tags=["hide-input"]
uneven = here[["attack", "kind", "MSE", "PSNR"]].copy()
uneven["PSNR of the mean MSE"] = [
    math.nan if math.isnan(mse) else -10 * math.log10(mse) if mse > 0 else math.inf for mse in uneven.MSE
]
uneven["difference"] = uneven.PSNR - uneven["PSNR of the mean MSE"]
uneven["place by MSE"] = uneven.MSE.rank(method="min")
uneven["place by PSNR"] = uneven.PSNR.rank(method="min", ascending=False)
report.table(
    uneven.sort_values("difference", ascending=False),
    id="relations-psnr-mse",
    caption=f"Mean PSNR and the PSNR of the mean MSE at {large} target images. Places count attacks and controls together, 1 is the closest.",
    provenance=made_by,
    formats={
        "MSE": ".4f",
        "PSNR": ".2f",
        "PSNR of the mean MSE": ".2f",
        "difference": ".2f",
        "place by MSE": ".0f",
        "place by PSNR": ".0f",
    },
)
swapped = relations.discordant(here, "PSNR", "MSE")
finite = uneven[np.isfinite(uneven.difference)]
Markdown(
    (
        f"The difference lies between {finite.difference.min():.2f} and {finite.difference.max():.2f} dB (largest: {finite.attack[finite.difference.idxmax()]}). "
        if len(finite)
        else "No difference could be computed (NaN). "
    )
    + (
        f"{len(swapped)} of {swapped.attrs['pairs']} pairs are in opposite order, first of all {here.attack[swapped.closer_by_a[0]]} (closer by PSNR) and {here.attack[swapped.closer_by_b[0]]} (closer by MSE)."
        if len(swapped)
        else f"None of {swapped.attrs['pairs']} pairs is in opposite order here."
    )
)

# %% [markdown]
# ## Coverage against distance
#
# Figures 11 and 12 of the paper plot coverage against FID, for CIFAR-10 and MNIST together and for CelebA. What they need to be read is the level
# that blind guessing reaches, which depends on the size. In {numref}`fig-relations-coverage-published` it is drawn in.

# %% tags=["hide-input"]
with_levels = nine.copy()
levels = [
    relations.paper_levels(row.dataset, row.attack, row.target_size) for row in with_levels.itertuples()
]
with_levels["floor"], with_levels["chance"] = zip(*levels, strict=True)
figures = {
    "Figure 12: CelebA": with_levels[with_levels.dataset == "CelebA"],
    "Figure 11: CIFAR-10 and MNIST": with_levels[with_levels.dataset != "CelebA"],
}
fig, axes = plt.subplots(2, 2, figsize=(report.WIDTH + 0.4, 6.0), sharex=True, sharey=True)
for line, (title, frame) in zip(axes, figures.items(), strict=True):
    steps = sorted(frame.target_size.unique())
    shades = dict(zip(steps, sns.color_palette("viridis", len(steps)), strict=True))
    for ax, name in zip(line, COVERAGES[:2], strict=True):
        for size, color in shades.items():
            rows = frame[frame.target_size == size]
            labeled = ~rows.attack.isin(relations.UNLABELED)
            gans = rows.attack.isin(GANS)
            for part, marker in ((rows[labeled & ~gans], "o"), (rows[gans], "^"), (rows[~labeled], "x")):
                ax.scatter(
                    part.FID,
                    part[name],
                    color=color,
                    marker=marker,
                    s=16,
                    alpha=0.8,
                    lw=0.9 if marker == "x" else 0,
                )
            ax.axhline(rows[labeled].chance.iloc[0], color=color, lw=0.9, ls="--", zorder=0)
            ax.axhline(rows[labeled].floor.iloc[0], color=color, lw=0.9, ls=":", zorder=0)
        ax.set_title(f"{title}, {name}", fontsize=8.5)
    handles = [plt.Line2D([], [], color=color, lw=3, label=f"{size:,}") for size, color in shades.items()]
    line[1].legend(
        handles=handles,
        title="target images",
        fontsize=7,
        title_fontsize=7.5,
        frameon=False,
        loc="center left",
        bbox_to_anchor=(1, 0.5),
    )
fig.supxlabel("FID ↓", fontsize=9)
fig.supylabel("coverage ↑", fontsize=9)
sns.despine(fig)
labeled_rows = with_levels[~with_levels.attack.isin(relations.UNLABELED) & (with_levels.floor < 1)]
below = {name: int((labeled_rows[name] < labeled_rows.chance).sum()) for name in COVERAGES[:2]}
cover_pairs = [("FID", name) for name in COVERAGES[:2]]
report.figure(
    fig,
    id="relations-coverage-published",
    alt="Four scatter plots of the coverage by SSIM and by PSNR against FID, colored by the number of target images, with chance dashed and floor dotted. "
    + "; ".join(f"{title}: {one_line(frame, cover_pairs)}" for title, frame in figures.items())
    + f". Of {len(labeled_rows)} labeled results with more than one target per class, {below[COVERAGES[0]]} are below chance by SSIM and {below[COVERAGES[1]]} by PSNR.",
    caption="Figures 11 and 12 of the paper from its tables, with the chance level (dashed) and the floor (dotted) of labeled attacks at each size. Triangles: "
    "GAN attacks; crosses: attacks matched among all targets, which have other levels. On CelebA with 1,000 images chance and floor are 1: one target per class.",
    provenance=from_paper,
)

# %% tags=["hide-input"]
rows = []
for title, frame in figures.items():
    many = frame[(frame.floor < 1) | frame.attack.isin(relations.UNLABELED)]
    for who, part in (
        ("all attacks", frame),
        ("without one target per class", many),
        ("GAN attacks", frame[frame.attack.isin(GANS)]),
        (
            "GAN attacks, inside",
            inside(frame[frame.attack.isin(GANS)], everything, ["paper_table", "target_size"]),
        ),
    ):
        part = clustered(part)
        found = relations.correlations(part, [*cover_pairs, tuple(COVERAGES[:2])], groups="cluster")
        rows.append(
            {"paper": title, "rows of": who, "rows": len(part)}
            | {
                f"{row.a}, {row.b}".replace("coverage ", "cov. "): with_interval(row)
                for row in found.itertuples()
            }
        )
report.table(
    pd.DataFrame(rows),
    id="relations-coverage-correlations",
    caption="Pearson coefficients behind Figures 11 and 12, positive where a smaller FID goes with a larger coverage, with 95 % intervals (bootstrap over attacks on a data set and network). "
    "*Inside*: the mean of each table and size is taken away first.",
    provenance=from_paper,
)
Markdown(
    f"""Of the {len(labeled_rows)} published results of labeled attacks with several targets per class, {below[COVERAGES[0]]} cover less by SSIM than blind guessing would, and {below[COVERAGES[1]]} by PSNR.
The paper finds that "high-quality reconstructions do not necessarily correspond to greater diversity". With the levels drawn in, one can add what coverage does not say: a value near chance is no sign of diversity, and a value below it
no proof of the lack of it, since some targets are hubs and keep even real unseen images below chance ({{numref}}`fig-coverage-chance`)."""
)

# %% [markdown]
# Our own rows, each with its own floor and chance level, in the order of SSIM.

# %% tags=["hide-input"]
lined = (
    own[(own.target_size == large)].dropna(subset=["SSIM", COVERAGES[0]]).sort_values("SSIM", ascending=False)
)
fig, ax = plt.subplots(figsize=(report.WIDTH, 3.8))
spots = np.arange(len(lined))
for spot, row in zip(spots, lined.to_dict("records"), strict=True):
    marker, color = LOOK[row["group"]]
    ax.plot([spot, spot], [row["coverage_floor"], row[COVERAGES[0]]], color=color, lw=1)
    ax.plot(spot, row[COVERAGES[0]], marker=marker, color=color, ms=6, lw=0)
    for level, style in (("coverage_chance", "-"), ("coverage_floor", ":")):
        ax.plot([spot - 0.35, spot + 0.35], [row[level]] * 2, color="0.2", ls=style, lw=1.3)
ax.set_xticks(
    spots,
    [f"{row.attack} ({row.SSIM:.2f})" for row in lined.itertuples()],
    rotation=60,
    ha="right",
    fontsize=7.5,
)
ax.set(ylabel="coverage (SSIM)", ylim=(0, 1.04))
handles = [plt.Line2D([], [], marker=m, color=c, lw=0, label=group) for group, (m, c) in LOOK.items()]
handles += [
    plt.Line2D([], [], color="0.2", ls=s, lw=1.3, label=name) for name, s in (("chance", "-"), ("floor", ":"))
]
fig.legend(handles=handles, ncols=5, loc="outside upper center", frameon=False, fontsize=8)
sns.despine(fig)
own_below = lined[(lined[COVERAGES[0]] < lined.coverage_chance) & (lined.kind == "attack")]
report.figure(
    fig,
    id="relations-coverage-own",
    alt=f"Coverage by SSIM of attacks and controls at {large} target images, in the order of their SSIM, each with its own floor and chance level: "
    + ", ".join(
        f"{row['attack']} {row[COVERAGES[0]]:.2f} (chance {row['coverage_chance']:.2f})"
        for row in lined.to_dict("records")
    )
    + ".",
    caption=f"The shape of Figures 11 and 12 ({p.dataset}, {large} target images): coverage, from the closest by SSIM (in brackets) to the farthest. "
    "Attacks without labels are matched among all targets: their floor is lower.",
    provenance=made_by,
)
closeness = relations.correlation(lined.SSIM, lined[COVERAGES[0]], "spearman")
Markdown(
    f"""{len(own_below)} of {(lined.kind == "attack").sum()} attacks cover less than chance. Over attacks and controls SSIM and coverage correlate at {signed(closeness.value)}
(Spearman, interval {report.interval(closeness.low, closeness.high, "+.2f")}, {closeness.n} rows)."""
)

# %% [markdown]
# ## One score for all?
#
# Section 5.1 remarks that "a single score can be derived using the minimum of normalized metrics", and advises against relying on it. It does not say how to normalize, and
# that is where the score is decided. Declared here: each metric is placed on a line from **worst = the noise control** (0) to **best = exact copies** (SSIM 1, MSE 0, Fréchet
# distance 0, coverage 1), clipped to [0, 1], and the score is the smallest of the four. PSNR is left out: its best is infinite. Three other normalizations stand beside it, each as
# natural as the first.

# %% tags=["hide-input"]
JUDGED = ["SSIM", "MSE", frechet, COVERAGES[0]]
COPIES = {"SSIM": 1.0, "MSE": 0.0, frechet: 0.0, COVERAGES[0]: 1.0}
at_large = own[own.target_size == large].reset_index(drop=True)


def control_values(name: str, reconstructs: str) -> dict[str, float]:
    """The judged metrics of a control, against the same images; NaN where it was not run."""
    rows = at_large[
        (at_large.kind == "control")
        & at_large.attack.str.startswith(name)
        & (at_large.reconstructs == reconstructs)
    ]
    return {metric: float(rows[metric].iloc[0]) if len(rows) else math.nan for metric in JUDGED}


def ends(row: pd.Series, kind: str) -> tuple[dict[str, float], dict[str, float]]:
    """Worst and best of a normalization, for one row."""
    noise = control_values("Noise", row.reconstructs)
    of_attacks = at_large[at_large.kind == "attack"]
    if kind == "noise to copies":
        return noise, COPIES
    if kind == "noise to holdout":
        return noise, control_values("Holdout", row.reconstructs)
    if kind == "floor to copies":
        return {**noise, COVERAGES[0]: row.coverage_floor}, COPIES
    low = {m: of_attacks[m].min() for m in JUDGED}
    high = {m: of_attacks[m].max() for m in JUDGED}
    worst = {m: low[m] if relations.direction(m) > 0 else high[m] for m in JUDGED}
    return worst, {m: high[m] if relations.direction(m) > 0 else low[m] for m in JUDGED}


def combined(row: pd.Series, kind: str) -> tuple[float, str]:
    """Score and deciding metric; NaN and the reason where a metric has no two ends to be placed between."""
    worst, best = ends(row, kind)
    for m in JUDGED:
        if not (math.isfinite(worst[m]) and math.isfinite(best[m])):
            return math.nan, f"{m} has no ends here"
        if worst[m] == best[m]:
            return math.nan, f"the ends of {m} coincide"
    return combined_score({m: float(row[m]) for m in JUDGED}, worst, best)


KINDS = ["noise to copies", "floor to copies", "noise to holdout", "among the attacks"]
rows = []
for _, row in at_large[
    (at_large.kind == "attack") | at_large.attack.str.startswith(("Holdout", "Class mean"))
].iterrows():
    scored = {kind: combined(row, kind) for kind in KINDS}
    rows.append(
        {"attack": row.attack, "kind": row.kind}
        | {k: v[0] for k, v in scored.items()}
        | {f"{k}: decides": v[1] for k, v in scored.items()}
    )
scores = pd.DataFrame(rows)
of_attacks = scores[scores.kind == "attack"].copy()
for kind in KINDS:
    of_attacks[f"{kind}: place"] = of_attacks[kind].rank(method="min", ascending=False)
shown = scores[["attack"]].copy()
for kind in KINDS:
    places = of_attacks[f"{kind}: place"].reindex(scores.index)
    shown[kind] = [
        f"NaN: {metric}"
        if math.isnan(score)
        else f"{score:.2f}, {metric}" + ("" if math.isnan(place) else f" ({place:.0f})")
        for score, metric, place in zip(scores[kind], scores[f"{kind}: decides"], places, strict=True)
    ]
report.table(
    shown,
    id="relations-combined",
    caption=f"The minimum of normalized metrics at {large} target images: score, the metric that decides it, and in brackets the place among the attacks (equal scores share one). *Noise to "
    "copies* is the declared normalization; *floor to copies* puts the worst coverage at its floor; *noise to holdout* calls real unseen images the best; *among the attacks* goes from the worst attack to the "
    "best. Controls have no place.",
    provenance=made_by,
)

# %% tags=["hide-input"]
valid = of_attacks.dropna(subset=KINDS[:1])
deciding = valid[f"{KINDS[0]}: decides"].value_counts()
noise_rows = at_large[at_large.attack == "Noise"].to_dict("records")
noise_here = noise_rows[0] if noise_rows else {}
zero = int((valid[KINDS[0]] == 0).sum())
tau = {
    kind: relations.correlation(of_attacks[KINDS[0]], of_attacks[kind], "kendall", resamples=0).value
    for kind in KINDS[1:]
}
firsts = {}
for kind in KINDS:
    winners = of_attacks.attack[of_attacks[f"{kind}: place"] == 1].tolist()
    firsts[kind] = (
        "nobody (NaN)"
        if not winners
        else f"{len(winners)} attacks share it"
        if len(winners) > 2
        else " and ".join(winners)
    )
report.value("combined_zero", float(zero))
covered = (
    f"Noise covers {noise_here[COVERAGES[0]]:.2f} of the targets here, at a chance level of {noise_here['coverage_chance']:.2f}, so coverage is hard to beat. "
    if noise_here
    else ""
)
Markdown(
    f"""With the declared normalization {", ".join(f"{metric} decides {count} of {len(valid)} scores" for metric, count in deciding.items()) or "no score can be computed"}, and {zero} of them are exactly 0{": there the deciding metric is no better than noise, and the score cannot tell these attacks apart" if zero else ""}.
{covered}Against the declared one, the other normalizations order the attacks with Kendall's tau of
{", ".join(f"{signed(value)} ({kind})" for kind, value in tau.items())}{"; NaN: one of the two orders nothing" if any(map(math.isnan, tau.values())) else ""}. First place: {"; ".join(f"{name} ({kind})" for kind, name in firsts.items())}. """
    + (
        "The winner depends on the normalization."
        if len({name for name in firsts.values() if not name.startswith("nobody")}) > 1
        else "Here the winner does not depend on the normalization, as far as there is one."
    )
)

# %% [markdown]
# ## Offered: two measures that the paper does not use
#
# Work on generated images has measures for the same two questions. They are offered here in a table of their own, under their own names, and enter no figure of this chapter.
#
# - **PRDC coverage** ({cite:t}`naeem2020`) is *not* the coverage of Definition 4.2. It asks whether a target has some reconstruction inside its neighborhood, whose radius is the distance
#   to its fifth nearest target. An image far from every target covers none, so noise cannot win by luck; but it grows with the number of reconstructions and is near 1
#   for unseen images of the same kind, so it does not say *leaked* either.
# - **Kernel distance** ({cite:t}`binkowski2018`) compares the same features as the Fréchet distance, by a polynomial kernel instead of Gaussians. Its estimate has no bias in the number of images, so it may be
#   compared across sizes, and it may fall below 0. It is called KID only with Inception features, as the Fréchet distance is called FID.

# %% tags=["hide-input"]
kernel_name = "KID" if p.extractor == "inception" else f"KD-{p.extractor}"
target_features: dict = {}
rows = []
for title in own[own.target_size == large].attack:
    if cell_of[title, large].samples_prior or title.endswith("(unconditional)"):
        continue  # controls of single attacks
    cell = cell_of[title, large]
    row = {"attack": title, "kind": "control" if results.is_control(cell) else "attack"}
    reason = study.explain_unsupported(cell)
    if reason:
        rows.append(
            row
            | {
                "n": math.nan,
                "PRDC coverage": math.nan,
                kernel_name: math.nan,
                "standard error": math.nan,
                frechet: math.nan,
                "reason": reason,
            }
        )
        continue
    d_tar, _ = results.target_and_holdout(cell)
    key = cell.target.update is None, len(d_tar)
    if key not in target_features:
        target_features[key] = metrics.extract(d_tar.images, p.extractor).values
    images = results.reconstruction(cell).images
    features = metrics.extract(images, p.extractor).values
    half = max(2, min(100, len(images) // 2, len(d_tar) // 2))
    distance = kernel_distance(features, target_features[key], size=half)
    row |= {
        "n": float(len(images)),
        "PRDC coverage": prdc_coverage(target_features[key], features, neighbors=min(5, len(d_tar) - 1)),
        kernel_name: distance.value,
        "standard error": distance.standard_error,
        frechet: float(own[(own.attack == title) & (own.target_size == large)][frechet].iloc[0]),
        "reason": "",
    }
    rows.append(row)
offered = pd.DataFrame(rows)
report.table(
    offered if offered.reason.any() else offered.drop(columns="reason"),
    id="relations-offered",
    caption=f"Offered measures at {large} target images, first seed, in features of {p.extractor}. PRDC coverage: 5 neighbors; not the paper's coverage. {kernel_name}: unbiased, mean and standard error over "
    f"50 random subsets of half of the images (at most 100), which overlap, so the error is too small; not the paper's FID. {frechet} again, for comparison: mean over seeds.",
    provenance=made_by,
    formats={"n": ".0f", "PRDC coverage": ".3f", kernel_name: ".4f", "standard error": ".4f", frechet: ".1f"},
)
same = relations.correlation(offered[kernel_name], offered[frechet], "spearman")
noise_row = offered[offered.attack == "Noise"]
Markdown(
    f"{kernel_name} and {frechet} order attacks and controls with a Spearman coefficient of {signed(same.value)} ({same.n} rows). "
    + (
        f"Noise has a PRDC coverage of {noise_row['PRDC coverage'].iloc[0]:.2f}, where Definition 4.2 gives it {own[(own.attack == 'Noise') & (own.target_size == large)][COVERAGES[0]].iloc[0]:.2f}."
        if len(noise_row)
        else ""
    )
)

# %% [markdown]
# ## What can be said

# %% tags=["hide-input"]
disagree = opposite[(opposite["rows of"] == "attacks") & (opposite.measures == f"{frechet}, SSIM")].iloc[0]
by_data = [
    relations.correlations(part, PAIRS[:1], resamples=0).agreement[0]
    for _, part in largest.groupby("dataset")
]
inside_all = relations.correlations(within["all attacks"], PAIRS[:1], resamples=0).agreement[0]
Markdown(
    f"""- **The printed coefficients.** For all attacks together: {verdict("both, all attacks")}. For the GAN attacks: {verdict("both, GAN attacks")}.
- **A weak relation?** That is the paper's conclusion for all attacks. At the largest size its tables show FID and SSIM at {min(by_data):+.2f} to {max(by_data):+.2f} on single data sets, and inside data sets and sizes at {signed(inside_all)}
  ({{numref}}`tab-relations-inside`). That the relation *improves* for better attacks holds in {int(agrees.sum())} of {len(agrees)} readings, if improving means that the measures agree more.
- **Here**, {frechet} and SSIM order {disagree["in opposite order"]} of {disagree["pairs"]} pairs of static attacks in opposite ways. Their correlation over attacks is {signed(alone.agreement[0])}, with an interval of
  {report.interval(alone.low[0], alone.high[0], "+.2f")} from {len(attacks_only.attack.unique())} attacks.
- **So** report both levels, with controls, and never a coefficient without its rows.
- **Not shown here:** anything about faces, VGG16 or 20,000 images, except from the paper's own numbers."""
)

# %% [markdown]
# ## Exercises
#
# ```{exercise}
# :label: ex-relations-simpson
# Take the published rows of the nine tables at the largest size. Compute the Pearson coefficient of FID and PSNR over all of them, then on each data set alone. Can the pooled coefficient lie
# outside the range of the three? Construct three small clouds for which the sign is wrong.
# ```
#
# ```{solution} ex-relations-simpson
# :class: dropdown
# It can: the means of the clouds carry a correlation of their own (Simpson's paradox).
#
# ~~~python
# from drlib import published, relations
# paper = relations.side_by_side(published.load("image_attacks"))
# rows = relations.read_rows(paper, "nine tables", "largest")
# pair = [("FID", "PSNR")]
# print(relations.correlations(rows, pair).agreement[0])
# for name, part in rows.groupby("dataset"):
#     print(name, relations.correlations(part, pair).agreement[0])
# ~~~
#
# Three clouds in which $y$ falls with $x$, each one step to the right and above the last, give a positive pooled coefficient. If a paper pools data sets, ask for the coefficient inside each.
# ```
#
# ```{exercise}
# :label: ex-relations-controls
# You want to report that the two metrics you use are "highly correlated". Without changing an attack, which rows do you add to the table? Predict what adding ten seeds of the noise control, or the exact targets
# themselves, does to Pearson's, Spearman's and Kendall's coefficient, then try it on `own`.
# ```
#
# ```{solution} ex-relations-controls
# :class: dropdown
# Anything that is bad (or good) by every measure: two far clouds always lie on a line, so Pearson's coefficient goes to 1 as the added rows outnumber the rest. Ranks resist a single extreme row, because it is
# only one place away; they do not resist many.
#
# ~~~python
# noise = own[own.attack == "Noise"].iloc[:1]
# for count in (0, 1, 10, 100):
#     padded = pd.concat([attacks_only, *[noise] * count])
#     print(count, [relations.correlations(padded, own_pairs[:1], how).agreement[0] for how in relations.METHODS])
# ~~~
# ```
#
# ```{exercise}
# :label: ex-relations-score
# Choose an attack that is not first in {numref}`tab-relations-combined`, and find a normalization (a worst and a best value for each metric, none of them absurd) for which it is. For which attacks is that
# impossible?
# ```
#
# ```{solution} ex-relations-score
# :class: dropdown
# Make the metric in which the attack is strongest the one that decides: put its worst value near the field, so that the others are clipped to 0, and the worst values of the other metrics far away, so that nobody is
# low in them. It is impossible only for an attack that another one beats in every metric. A minimum of normalized metrics therefore says little more than which attacks are dominated.
# ```
