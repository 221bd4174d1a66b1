# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The tables as printed
#
# :::{admonition} This chapter
# :class: tip
# **Needs** nothing; {doc}`when a reconstruction is good </notebooks/02_metrics>` for the words. \
# **Gives** the paper's 24 tables, each on a page of its own with the best entries marked, the floor and chance level of every
# coverage, a download, and what rests on it; Figures 2, 11 and 12 drawn from the printed numbers. \
# **Minutes** 10 to read, 1 to run. Nothing is trained or attacked.
# :::
#
# {cite:t}`wen2025` print thousands of numbers. They are here as data, digit by digit as printed, also where two tables disagree about the
# same cell. This chapter and the two that follow ask nothing of the reader's machine: what does the paper say, do its conclusions
# follow from its own numbers ({doc}`/notebooks/32_claims`), and do the numbers fit each other ({doc}`/notebooks/33_audit`)?

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from IPython.display import Markdown

from drlib import audit, claims, published, relations, report, sections
from drlib.published import layout
from drlib.relations import COVERAGES, DYNAMIC, GANS, SAMPLE

# %% tags=["parameters"]
profile: str = "laptop"  # the profile that supplies whatever is not set here (training, hyperparameters)

# %% tags=["hide-input"]
p = sections.from_notebook("published", globals())
from_paper = f"Made by `{p.command()}` · from the numbers printed in the paper, nothing is run"
report.style()


def page(kind: str, number: int) -> str:
    """The page of the book that shows it."""
    return f"book/published/{kind}_{number:02d}"


# %% [markdown]
# ## How many numbers, and where
#
# Three kinds of tables: attacks against target size (Table 2 and its eleven relatives, and Table 16 with defenses), votes of a language
# model (Tables 3 to 6, 8 and 12), and smaller ones. {doc}`The list of all tables and figures </book/tables_figures>` says how far each
# is regenerated in this build.

# %%
# NBVAL_CHECK_OUTPUT
files = {name: published.printed(name) for name in published.TABLES}
for name, rows in files.items():
    numbers = sum(
        int((rows[column] != "").sum())
        for column in rows
        if column in ("value", "coverage_percent", "memorization")
    )
    print(f"{name:20} {len(rows):5} rows {numbers:5} numbers  {published.TABLES[name]}")

# %% [markdown]
# ## The tables
#
# Read every coverage against the two levels at the foot of its table. The **floor** is the coverage of the worst possible output (one
# target per class, or one at all). **Chance** is what as many random draws from the targets themselves would cover. A coverage of
# 57 % at two images a class is *below* chance, which is 75 % there. Attacks on an update reconstruct 100 images whatever the size of the
# training set, so their coverage is a share of these 100.

# %% tags=["hide-input"]
WHAT = {
    1: "Taxonomy of the ten attacks",
    **dict.fromkeys((2, 13, 14, 15, *range(17, 25)), "Attacks against target size"),
    3: "GPT-4o as judge of GAN-based attacks, VGG16 on CelebA: how often each size is chosen as the most similar of six",
    4: "Two other judges for PLGMI (Pre), VGG16 on CelebA",
    5: "PLGMI against PLGMI (Pre), VGG16 on CelebA: a judge's choices in pairs",
    6: "A judge's choices among three widths of the feature embedding, VGG16 on CelebA",
    7: "FID of DeepInversion with BatchNorm updated or fixed, VGG16 on CelebA",
    8: "GPT-4o as judge, Swin on CelebA",
    9: "Vec2Text on three text data sets",
    10: "FID of PLGMI under defenses and with pre-training, VGG16 on CelebA",
    11: "Complete on three text data sets",
    12: "GPT-4o as judge, MAE on CelebA",
    16: "Attacks under the defenses MID and DP, VGG16 on CelebA",
}
images = files["image_attacks"]
of_table = images.drop_duplicates("paper_table").set_index("paper_table")
for number in range(1, 25):
    what = WHAT[number]
    if what == "Attacks against target size":
        what += f", {of_table.model[str(number)]} on {of_table.dataset[str(number)]}"
    levels = (
        " *Floor, chance*: of the coverage in brackets, for that way of matching."
        if str(number) in of_table.index
        else ""
    )
    report.table(
        layout.table(number),
        id=f"printed-{number:02d}",
        caption=f"Table {number} of the paper as printed. {what}. {layout.marked(number)}{levels}",
        provenance=from_paper,
        page=page("table", number),
    )

# %% [markdown]
# ## What rests on each table
#
# Each page also says which conclusions of the paper rest on its table, and which printed numbers the audit asks about.

# %% tags=["hide-input"]
told = claims.published_facts()
judged = [(claim, claims.examine(claim, told.within(claim.tables))) for claim in claims.CLAIMS]
findings = audit.run(audit.published()).findings
rests = {}
for number in range(1, 25):
    lines = [
        {
            "what": f"section {claim.place}: {claim.statement}".replace("section App.", "appendix"),
            "kind": "conclusion",
            "result": found.judgment.verdict,
        }
        for claim, found in judged
        if number in claim.tables
    ]
    asked = [finding for finding in findings if finding.table == number]
    rests[number] = (len(lines), len(asked))
    lines += [
        {"what": finding.question, "kind": f"audit: {finding.check}", "result": f"printed {finding.printed}"}
        for finding in asked
    ]
    if lines:
        report.table(
            pd.DataFrame(lines),
            id=f"rests-{number:02d}",
            caption=f"Conclusions that speak of Table {number}, judged on its numbers ({{doc}}`/notebooks/32_claims`), and questions that the audit has about it ({{doc}}`/notebooks/33_audit`).",
            provenance=from_paper,
            page=page("table", number),
        )
report.table(
    pd.DataFrame(
        [
            {
                "table": f"{{doc}}`Table {number} </{page('table', number)}>`",
                "conclusions": count,
                "questions of the audit": asked,
            }
            for number, (count, asked) in rests.items()
        ]
    ),
    id="rests",
    caption="How many conclusions speak of each table, and how many questions the audit has about it.",
    provenance=from_paper,
)

# %% [markdown]
# ## Figures 2, 11 and 12
#
# Three figures of the paper follow from its tables: FID against the sample-level metrics (2), and against the coverages by these metrics
# for CIFAR-10 and MNIST together (11) and for CelebA (12). The captions name neither the sizes nor the networks; drawn here are the
# nine tables of convolutional networks at all six sizes. The heat maps of the paper show absolute values. Here the numbers are the
# same kind, but the color says which sign is behind them.

# %% tags=["hide-input"]
wide = relations.side_by_side(published.load("image_attacks"))
nine = relations.read_rows(wide, "nine tables")
KINDS = {
    "GAN attacks": GANS,
    "pixel attacks": ("MI-Face", "DeepDream", "DeepInversion"),
    "attacks on an update": DYNAMIC,
}
COLORS = dict(
    zip(
        [*KINDS, "Inv-Alignment, Bias-Rec"],
        (sns.color_palette("colorblind")[i] for i in (0, 1, 2, 4)),
        strict=True,
    )
)
MARKERS = {"CelebA": "o", "CIFAR10": "s", "MNIST": "^"}
LABELS = {
    "SSIM": "SSIM ↑",
    "PSNR": "PSNR (dB) ↑",
    "MSE": "MSE ↓",
    **{name: f"{name} ↑" for name in COVERAGES},
}


def kind_of(attack: str) -> str:
    return next((kind for kind, members in KINDS.items() if attack in members), "Inv-Alignment, Bias-Rec")


def scatter(ax, frame: pd.DataFrame, measure: str) -> None:
    sns.scatterplot(
        frame.assign(kind=frame.attack.map(kind_of)), x="FID", y=measure, hue="kind", style="dataset", palette=COLORS,
        markers=MARKERS, s=18, alpha=0.7, lw=0, edgecolor="none", legend=False, ax=ax,
    )  # fmt: skip
    ax.set(xlabel="FID ↓", ylabel=LABELS[measure])


def heat(ax, frame: pd.DataFrame, measures: list[str]) -> None:
    """Absolute Pearson coefficients, colored by whether the two measures agree."""
    found = relations.matrix(frame, measures)
    agree = pd.DataFrame(
        [[relations.agreement(found.loc[a, b], a, b) for b in measures] for a in measures], measures, measures
    )
    short = [name.replace("coverage ", "cov. ") for name in measures]
    agree = agree.set_axis(short).set_axis(short, axis=1)
    sns.heatmap(
        agree.where(np.tril(np.ones_like(agree, dtype=bool), -1)).iloc[1:, :-1], ax=ax, vmin=-1, vmax=1, cmap="RdBu", cbar=False,
        square=True, linewidths=0.5, annot=found.abs().round(2).to_numpy()[1:, :-1], fmt=".2f", annot_kws={"fontsize": 8},
    )  # fmt: skip
    ax.tick_params(labelsize=7.5, length=0)
    ax.set_xticklabels(ax.get_xticklabels(), rotation=30, ha="right")
    ax.set_yticklabels(ax.get_yticklabels(), rotation=0)


def related(number: int, frame: pd.DataFrame, measures: tuple[str, ...], what: str) -> None:
    """A figure of the paper with its four panels."""
    fig, axes = plt.subplots(2, 2, figsize=(report.WIDTH, 6.2))
    for letter, ax, measure in zip("abc", axes.flat, measures, strict=False):
        scatter(ax, frame, measure)
        ax.set_title(f"({letter}) FID vs. {measure}", fontsize=9, loc="left")
    heat(axes[1, 1], frame, ["FID", *measures])
    axes[1, 1].set_title("(d) correlation, absolute; blue: agree, red: contradict", fontsize=9, loc="left")
    handles = [
        plt.Line2D([], [], color=color, marker="o", lw=0, ms=5, label=kind) for kind, color in COLORS.items()
    ]
    shown = [name for name in MARKERS if name in set(frame.dataset)]
    if len(shown) > 1:
        handles += [
            plt.Line2D([], [], color="0.4", marker=MARKERS[name], lw=0, ms=5, label=name) for name in shown
        ]
    fig.legend(handles=handles, ncols=4, loc="outside upper center", frameon=False, fontsize=8)
    sns.despine(fig)
    found = relations.correlations(frame, [("FID", measure) for measure in measures], resamples=0)
    signs = ", ".join(f"{row.b} {row.agreement:+.2f}" for row in found.itertuples())
    report.figure(
        fig,
        id=f"printed-{number:02d}",
        alt=f"Four panels. Three scatter plots of {len(frame)} printed results: FID against {', '.join(measures)}. A heat map of the absolute Pearson correlations between them. Correlation with FID, positive where the two agree: {signs}.",
        caption=f"Figure {number} of the paper from its printed tables: {what}; ten attacks, three convolutional networks, six sizes. Absolute correlations as in the paper; the color adds the sign: blue where the two measures call the same rows close, red where they contradict each other.",
        provenance=from_paper,
        page=page("figure", number),
    )


related(2, nine, SAMPLE, "FID against sample-level metrics on CelebA, CIFAR-10 and MNIST")
related(11, nine[nine.dataset != "CelebA"], COVERAGES, "FID against coverage on CIFAR-10 and MNIST")
related(12, nine[nine.dataset == "CelebA"], COVERAGES, "FID against coverage on CelebA")

# %% [markdown]
# Two things are easily missed. In Figures 11 and 12 the coverages by PSNR and by MSE are one measure drawn twice, since both have the same
# nearest neighbors. And a cloud of points from several data sets has a correlation that none of its parts need have:
# {doc}`/notebooks/05_relations` takes that apart.
#
# ## Ours beside the paper's
#
# Where this build has run what a table shows, or its shape, the result stands on the table's page in the same layout.

# %% tags=["hide-input"]
from drlib import results  # after the rest: it brings PyTorch with it, which nothing above needs

cells = results.computed([cell for cell in p.benchmark().cells() if not cell.is_control])
own = results.summary(cells, profile=p.profile) if cells else pd.DataFrame()
if len(own):
    frechet = next(name for name in own.metric if relations.is_dataset_level(name))
    attacks = own[(own.kind == "attack") & own.metric.isin([frechet, *SAMPLE])]
    lines = []
    for attack, of_attack in attacks.groupby("attack", sort=False):
        for place, metric in enumerate([frechet, *SAMPLE]):
            line = {
                "Attack": attack if place == 0 else "",
                "Metric": layout.ARROWS.get(metric, f"{metric} ↓"),
            }
            for row in of_attack[of_attack.metric == metric].itertuples():
                covered = "" if np.isnan(row.coverage_percent) else f" ({row.coverage_percent:.2f}%)"
                line[f"{row.target_size:,}"] = f"{row.value:.3f}{covered}"
            lines.append(line)
    report.table(
        pd.DataFrame(lines),
        id="ours-02",
        caption=f"The shape of Table 2 in the same layout: {own.dataset.iloc[0]}, {own.model.iloc[0]}, {p.benchmark().repeats} seed(s). Other images, other sizes, another network: only directions can be compared, which {{doc}}`/notebooks/12_benchmark` does. {frechet} is not FID.",
        provenance=results.provenance(own, f"drlib run benchmark --profile {p.profile}"),
        page=page("table", 2),
    )
Markdown(
    "In this build: {numref}`tab-ours-02` stands beside Table 2, and {numref}`tab-taxonomy` beside Table 1."
    if len(own)
    else f"Nothing is computed yet: `drlib run benchmark --profile {p.profile}` adds the shape of Table 2."
)

# %% [markdown]
# ## Exercises
#
# :::{exercise} A coverage of 57 %
# :label: ex-printed-coverage
#
# In Table 2 MI-Face covers 57.88 % of 5,000 images by SSIM, and DeepDream 14.43 % of 10,000 by PSNR. CelebA has 1,000 classes there. Which of
# the two is closer to its floor, and which to chance?
# :::
#
# :::{solution} ex-printed-coverage
# :class: dropdown
#
# With $k = 5$ images a class the floor is $1/5 = 20\,\%$ and chance $1 - (4/5)^5 = 67.2\,\%$: MI-Face lies at
# $(57.88 - 20)/(67.2 - 20) = 0.80$ of the way. With $k = 10$ the floor is 10 % and chance 65.1 %: DeepDream lies at
# $(14.43 - 10)/(65.1 - 10) = 0.08$. DeepDream returns nearly the same neighbor for all ten images of a class; MI-Face returns noise, whose
# neighbors are spread almost as by chance. A high coverage alone is no merit.
#
# ```python
# from drlib.relations import paper_levels
#
# for attack, size, coverage in (("MI-Face", 5_000, 0.5788), ("DeepDream", 10_000, 0.1443)):
#     floor, chance = paper_levels("CelebA", attack, size)
#     print(attack, round((coverage - floor) / (chance - floor), 2))
# ```
# :::
#
# :::{exercise} Whose column?
# :label: ex-printed-votes
#
# In Table 3 PLGMI (Pre) gets 484 votes at 1,000 images and Revealer 349. Does it follow that PLGMI (Pre) reconstructs better than Revealer?
# :::
#
# :::{solution} ex-printed-votes
# :class: dropdown
#
# No. The judge chooses among six sizes of *one* attack, so the entries of a row add up to 1,000 and compete with each other; entries of a
# column never met. An attack whose other five candidates are poor gets many votes for the sixth.
# :::
