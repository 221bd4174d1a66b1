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
# coverage, a download, and the conclusions that rest on it; Figures 2, 11 and 12 drawn from the printed numbers. \
# **Minutes** 10 to read, 1 to run. Nothing is trained or attacked.
# :::
#
# {cite:t}`wen2025` print thousands of numbers. They are here as data, digit by digit as printed, also where two tables disagree about the
# same cell. This chapter and the two that follow ask nothing of the reader's machine: what does the paper say, do its conclusions
# follow from its own numbers ({doc}`/notebooks/32_claims`), and do the numbers fit each other ({doc}`/notebooks/33_audit`)?

# %%
import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from IPython.display import Markdown

from drlib import audit, claims, published, relations, report, sections
from drlib.claims.judging import UNJUDGED
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
# Three kinds of tables: attacks against target size (Table 2 and its eleven relatives, and Table 16 with defenses), choices of a language
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
# Each table has a page of its own, which {numref}`tab-rests` links: the table in the paper's layout, the conclusions of the paper that rest
# on it with the number of cases for and against, the questions that the audit has about it, and a download.
#
# Read every coverage against the two levels at the foot of its table. The **floor** is the coverage of the worst possible output (one
# target per class, or one at all). **Chance** is what as many random draws from the targets themselves would cover. A coverage of
# 57 % at two images a class is *below* chance, which is 75 % there. Attacks on an update reconstruct 100 images whatever the size of the
# training set, so their coverage is a share of these 100.

# %% tags=["hide-input", "remove-output"]
for number in range(1, 25):
    report.table(
        layout.table(number),
        id=f"printed-{number:02d}",
        caption=f"Table {number} of the paper as printed. {layout.what(number)}. {layout.how_to_read(number)}",
        provenance=from_paper,
        page=page("table", number),
    )

# %% tags=["hide-input", "remove-output"]
told = claims.published_facts()
ledger = claims.ledger(told)
findings = audit.run(audit.published()).findings


def tables_of(finding: audit.Finding) -> set[int]:
    """The tables that a question is about: its own, and those that it compares it with."""
    others = re.findall(r"Table (\d+)", finding.also_in)
    return {*map(int, others), *([finding.table] if finding.table else [])}


def resting(number: int) -> list[dict[str, str]]:
    """The conclusions that the numbers of a table can decide, alone or with others."""
    return [
        {
            "conclusion": f"{claim['statement']} (section {claim['place']}, [{claim['id']}](#claim-{claim['id']}))".replace(
                "section App.", "appendix"
            ),
            "judged on": f"Table{'s' if len(claim['tables']) > 1 else ''} {', '.join(map(str, claim['tables']))}",
            "verdict (for / against / undecided)": claims.in_words(claim["published"]),
        }
        for claim in ledger
        if number in claim["tables"] and claim["published"]["verdict"] != UNJUDGED
    ]


def asked(number: int) -> list[dict[str, str]]:
    return [
        {"check": finding.check, "printed": finding.printed, "question": finding.question}
        for finding in findings
        if number in tables_of(finding)
    ]


rests = {number: (resting(number), asked(number)) for number in range(1, 25)}
for number, (conclusions, questions) in rests.items():
    if conclusions:
        report.table(
            pd.DataFrame(conclusions),
            id=f"rests-{number:02d}",
            caption=f"Conclusions of the paper that rest on Table {number}, with the number of cases for, against and undecided. The name in brackets is that of the row in {{doc}}`the ledger </book/published/ledger>`, which also has the conclusions that no printed number decides; {{doc}}`/notebooks/32_claims` says how a verdict is reached.",
            provenance=from_paper,
            page=page("table", number),
        )
    if questions:
        report.table(
            pd.DataFrame(questions),
            id=f"asks-{number:02d}",
            caption=f"Questions that {{doc}}`the audit </notebooks/33_audit>` has about Table {number}. A question is no verdict.",
            provenance=from_paper,
            page=page("table", number),
        )

# %% tags=["hide-input"]
report.table(
    pd.DataFrame(
        [
            {
                "table": f"{{doc}}`Table\N{NO-BREAK SPACE}{number} </{page('table', number)}>`",
                "what it shows": layout.what(number).partition(":")[0],
                "conclusions that rest on it": len(conclusions),
                "questions of the audit": len(questions),
            }
            for number, (conclusions, questions) in rests.items()
        ]
    ),
    id="rests",
    caption="The 24 tables, how many conclusions of the paper rest on each, and how many questions the audit has about it. What rests on several tables, and what compares them, is counted at each.",
    provenance=from_paper,
)

# %% [markdown]
# ## Figures 2, 11 and 12
#
# Three figures of the paper follow from its tables: FID against the sample-level metrics (2), and against the coverages by these metrics
# for CIFAR-10 and MNIST together (11) and for CelebA (12). Ours, from the paper's numbers, are on the pages
# {doc}`Figure 2 </book/published/figure_02>`, {doc}`Figure 11 </book/published/figure_11>` and
# {doc}`Figure 12 </book/published/figure_12>`. The captions in the paper name neither the sizes nor the networks; drawn here are the
# nine tables of convolutional networks at all six sizes. The heat maps of the paper show absolute values. Here the numbers are the
# same kind, but the color says which sign is behind them.

# %% tags=["hide-input", "remove-output"]
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
    **{name: f"{name}, % ↑" for name in COVERAGES},
}


def kind_of(attack: str) -> str:
    return next((kind for kind, members in KINDS.items() if attack in members), "Inv-Alignment, Bias-Rec")


def scatter(ax, frame: pd.DataFrame, measure: str) -> None:
    in_percent = {measure: 100 * frame[measure]} if measure in COVERAGES else {}
    sns.scatterplot(
        frame.assign(kind=frame.attack.map(kind_of), **in_percent), x="FID", y=measure, hue="kind", style="dataset", palette=COLORS,
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
            plt.Line2D([], [], color="0.4", marker=MARKERS[name], lw=0, ms=5, label=published.spelled(name))
            for name in shown
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
# The profile's own benchmark (one data set, one network) has the shape of ten of these tables. Its result stands once, on the page of
# {doc}`Table 2 </book/published/table_02>`, in the same layout; the pages of the other nine lead there. It has no row of memorization and
# no controls: both are in {doc}`/notebooks/12_benchmark`.

# %% tags=["hide-input", "remove-output"]
from drlib import (
    convergence,
    results,
)  # after the rest: they bring PyTorch with them, which nothing above needs

cells = results.computed([cell for cell in p.benchmark().cells() if not cell.is_control])
own = results.summary(cells, profile=p.profile) if cells else pd.DataFrame()
if len(own):
    frechet = next(name for name in own.metric if relations.is_dataset_level(name))
    attacks = own[(own.kind == "attack") & own.metric.isin([frechet, *SAMPLE])]
    moving = convergence.moving(p.benchmark().convergence())
    SIGNS = {True: " ‡", False: "", None: " ?"}
    lines = []
    for attack, of_attack in attacks.groupby("attack", sort=False):
        for place, metric in enumerate([frechet, *SAMPLE]):
            line = {
                "Attack": f"{attack}{SIGNS[moving.get(attack)]}" if place == 0 else "",
                "Metric": layout.ARROWS.get(metric, f"{metric} ↓"),
            }
            for row in of_attack[of_attack.metric == metric].itertuples():
                covered = "" if np.isnan(row.coverage_percent) else f" ({row.coverage_percent:.2f}%)"
                line[f"{row.target_size:,}"] = f"{row.value:.3f}{covered}"
            lines.append(line)
    WHERE = {"class": "inside the class", "all": "all targets"}
    matched = attacks[(attacks.metric == "SSIM") & attacks.coverage.notna()]
    for (matching, which), part in matched.groupby(["matching", "reconstructs"], sort=False):
        sized = part.groupby("target_size")[["coverage_floor", "coverage_chance"]].first()
        line = {"Attack": layout.FLOOR_AND_CHANCE, "Metric": f"{WHERE[matching]} ({which})"}
        line |= {f"{size:,}": layout.levels(*levels) for size, *levels in sized.itertuples()}
        lines.append(line)
    unsettled = [title for title in dict.fromkeys(attacks.attack) if moving.get(title) is not False]
    report.table(
        pd.DataFrame(lines).fillna(""),
        id="ours-02",
        caption=f"The shape of Table 2 in the same layout: {own.dataset.iloc[0]}, {own.model.iloc[0]}, {p.benchmark().repeats} seed(s). Columns: number of target images. Other images, other sizes, another network: only directions can be compared, which {{doc}}`/notebooks/12_benchmark` does; the controls and memorization are there, too. {frechet} is not FID. ‡: still moves with more steps, ?: not known; no conclusion may rest on such a row. In brackets: coverage; last rows: the least possible and the chance coverage, by where the nearest target is sought.",
        provenance=results.provenance(own, f"drlib run benchmark --profile {p.profile}"),
        page=page("table", 2),
    )

# %% tags=["hide-input"]
Markdown(
    f"In this build: {own.dataset.iloc[0]}, {own.model.iloc[0]}, {own.target_size.nunique()} sizes. Marked as not converged, or not known to be, "
    f"so that no conclusion may rest on them: {', '.join(unsettled) or 'none'}."
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
# In Table 3 (*# of Major*) PLGMI (Pre) wins 484 of 1,000 questions at 1,000 images, and Revealer 349. Does it follow that PLGMI (Pre) reconstructs
# better than Revealer?
# :::
#
# :::{solution} ex-printed-votes
# :class: dropdown
#
# No. The judge chooses among six sizes of *one* attack. A question has at most one winner, so the entries of a row *# of Major* add up to 1,000 and
# compete with each other (those of *# of All* add up to less, since five answers seldom agree); entries of a column never met. An attack whose
# other five candidates are poor wins many questions with the sixth.
# :::
