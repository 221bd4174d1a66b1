# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Auditing the published tables
#
# :::{admonition} This chapter
# :class: tip
# **Needs** {doc}`when a reconstruction is good </notebooks/02_metrics>` and {doc}`relations between metrics </notebooks/05_relations>`. \
# **Gives** six kinds of checks that any table of results can be put through, without a model or a data set; what they
# ask about the tables of the paper; and how to audit your own. \
# **Minutes** 15 to read, 0.2 to run.
# :::
#
# A table of results has more structure than it seems. A share of 2,000 images is a whole number over 2,000. A mean PSNR cannot lie below a
# bound that the mean MSE sets. One cell printed in two places has one value. Such facts can be tested with a pencil, by readers who have
# neither the models nor the data {cite:p}`brown2017`. What does not fit is a *question*, no verdict: a digit may have been lost on the way to
# print, a run may have been repeated, a definition may differ from the one we read, and our own copy of the tables, which was compared with
# the paper's text, may be wrong.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from IPython.display import Markdown, display

from drlib import audit, published, relations, report, sections
from drlib.audit import recomputation

# %% tags=["parameters"]
profile: str = "laptop"  # the profile that supplies whatever is not set here (training, hyperparameters)

# %% tags=["hide-input"]
p = sections.from_notebook("audit", globals())
made_by = f"Made by `{p.command()}` · from the numbers printed in the paper, nothing is run"
report.style()
COLORS = sns.color_palette("colorblind")
printed = audit.Table.of(audit.published())
audited = audit.run(printed)
found = audited.frame()


def prose(text: str) -> str:
    """Names of data sets as in prose: the tables of the paper leave the hyphen out."""
    return text.replace("CIFAR10", "CIFAR-10").replace("ResNet18", "ResNet-18")


def where(frame: pd.DataFrame) -> list[str]:
    """Which cell, in words."""
    words = frame[["dataset", "model", "defense", "attack"]].agg(
        lambda row: ", ".join(part for part in row if part and part != "none"), axis=1
    )
    sizes = [f", {size:,}" if pd.notna(size) else "" for size in frame.target_size]
    return [prose(word + size) for word, size in zip(words, sizes, strict=True)]


def shown(frame: pd.DataFrame, id: str, caption: str, *more: str, fit: str = "would fit") -> None:
    """Findings as a numbered table, or a sentence if there are none. ``fit`` heads the consistent values."""
    if not len(frame):
        display(Markdown("*Nothing is found.*"))
        return
    columns = {"table": [str(t) if pd.notna(t) else "" for t in frame.table], "cell": where(frame)}
    columns |= {name: frame[name] for name in ("metric", "printed", *("consistent",) * bool(fit), *more)}
    columns |= {"distance": frame.distance}
    table = pd.DataFrame(columns).rename(columns={"also_in": "beside", "consistent": fit})
    report.table(table, id=id, caption=caption, provenance=made_by, formats={"distance": ".4g"})


# %%
# NBVAL_CHECK_OUTPUT
for family in audit.FAMILIES:
    print(f"{family:14} {(found.check == family).sum():3}")
report.value("findings", len(found))

# %% tags=["hide-input"]
cells = sum((row.value is not None) + (row.coverage is not None) for row in printed.rows)
summary = pd.DataFrame(
    [
        {
            "check": family,
            "what is tested": idea,
            "findings": int((found.check == family).sum()),
            "in tables": ", ".join(
                str(t) for t in sorted(found[(found.check == family) & found.table.notna()].table.unique())
            )
            or "-",
        }
        for family, idea in audit.FAMILIES.items()
    ]
).sort_values("findings", ascending=False, kind="stable")
report.table(
    summary[:3],
    id="audit-summary",
    caption=f"Findings in {cells:,} printed numbers: the three checks that ask most. One question may be about a single digit or about a whole block of a table.",
    provenance=made_by,
)
of_cells = found[found.check.isin(["granularity", "inequality", "identity"])]
alone = int((of_cells.metric != "memorization").sum())
Markdown(
    f"**In one line.** {alone} of {cells:,} printed numbers raise a question of arithmetic or of two values for one cell; how memorization was estimated is a question "
    "of its own."
)

# %% [markdown]
# All six checks are in {numref}`tab-audit-all`, folded below.

# %% tags=["hide-input", "hide-output"]
report.table(summary, id="audit-all", caption="All checks.", provenance=made_by)

# %% [markdown]
# ## Granularity
#
# If $c$ of $N$ targets are somebody's nearest neighbor, coverage is $100\,c/N$ percent, so it moves in steps of $100/N$. A printed value
# $p$ with $d$ decimals passes if
#
# $$
# \exists\, c \in \{0, \dots, N\}: \quad \left| \frac{100\,c}{N} - p \right| \le \tfrac12 10^{-d},
# $$
#
# which accepts a tie rounded up or to even. $N$ is the target size; for the dynamic attacks it is the 100 update images. Psychologists know the test as GRIM {cite:p}`brown2017`.
# With $N \ge 10{,}000$ and two decimals everything passes: the test says nothing there.

# %% tags=["hide-input"]
coverage = found[(found.check == "granularity") & (found.rule == "coverage")]
shown(
    coverage,
    "audit-coverage",
    "Coverages that no whole number of targets gives, the nearest that would fit, and the distance in percentage points.",
)

# %% [markdown]
# *Harmless explanations*: a typing slip; rounding twice, or truncation; a mean over several runs (a mean of two runs would explain 57.19 and 41.25, one of four 58.31); a set with a few images fewer or more than its
# name says.
#
# The same test on memorization: with one model trained with, and one without a sample, each score is $-1$, 0 or 1, and their mean over $N = \min(1000, n)$ samples is a multiple of
# $1/N$. Where it is not, the estimator may have used several models per sample, another number of samples, or probabilities instead of right and wrong; the paper does not say. {doc}`/notebooks/17_memorization`
# shows how much that matters.

# %% tags=["hide-input"]
shown(
    found[(found.check == "granularity") & (found.rule == "memorization")],
    "audit-memorization",
    "Memorization scores that are no whole number over their samples. Read as a question: how many models, how many samples, or which probabilities?",
)

# %% [markdown]
# And the other way round: a mean over 1,000 samples ends in any digit, so one score in ten ends in 0. Where all scores of a data set do from some size on, a mean over 100 samples would explain it. The audit asks if chance, times
# the number of data sets and of sizes to begin with, is below $10^{-4}$; scores of 0 and 1 do not count.

# %% tags=["hide-input"]
for item in found[found.rule == "hundredths"].itertuples():
    display(
        Markdown(f"- {prose(item.dataset)}: {item.question} (The scores: {item.printed}, {item.also_in}.)")
    )

# %% [markdown]
# Table 15 prints two digits as well, at all six sizes, but there the bound is not reached: of 100 images every mean ends in 0, of 500 one in five, of the other four sizes one in ten, together $2 \cdot 10^{-5}$, and that in one of ten rows.

# %% [markdown]
# ## Inequalities
#
# PSNR of an image with range 1 is $-10\log_{10}$ of its MSE, a convex function, so by Jensen's inequality
#
# $$
# \overline{\text{PSNR}} \;\ge\; -10\,\log_{10} \overline{\text{MSE}}.
# $$
#
# Both are rounded: we take the largest PSNR and the largest MSE that round to what is printed. The same family holds the range of each metric, the floor of a coverage that is matched within classes, and
# the counts of the judge (five answers to 1,000 questions).

# %% tags=["hide-input"]
bounds = found[found.check == "inequality"]
shown(
    bounds.assign(consistent="at least " + bounds.consistent),
    "audit-inequalities",
    "Mean PSNRs below their bound. Distance in dB, beyond the rounding of both.",
    "also_in",
)
wide = relations.side_by_side(published.load("image_attacks"))
low = bounds.rename(columns={"table": "paper_table"}).merge(
    wide, on=["paper_table", "dataset", "model", "defense", "attack", "target_size"]
)
fig, ax = plt.subplots(figsize=(report.WIDTH, 3.8))
ax.scatter(wide.MSE, wide.PSNR, s=9, color=COLORS[0], alpha=0.5, lw=0)
ax.scatter(low.MSE, low.PSNR, s=110, color=COLORS[3], marker="D", edgecolor="white", lw=1, zorder=3)
grid = np.geomspace(wide.MSE.min(), wide.MSE.max(), 200)
ax.plot(grid, -10 * np.log10(grid + 0.0005) - 0.0005, color="0.2", lw=1)
ax.text(0.0072, 14.5, "smallest possible mean PSNR", fontsize=10, color="0.2")
for place, row in zip((0.42, 0.16), low.sort_values("MSE").itertuples(), strict=True):
    ax.annotate(
        f"{row.attack}, Table {row.paper_table}, {row.target_size:,}:\n{row.distance:.3f} dB below",
        (row.MSE, row.PSNR),
        (0.04, place),
        textcoords="axes fraction",
        va="center",
        fontsize=11,
        color=COLORS[3],
        arrowprops={"arrowstyle": "-", "color": COLORS[3], "shrinkB": 7, "relpos": (1, 0.5)},
    )
ax.set(xscale="log", ylim=(2.5, None), xlabel="mean MSE ↓ (log scale)", ylabel="mean PSNR (dB) ↑")
sns.despine(fig)
report.figure(
    fig,
    id="audit-jensen",
    alt=f"Scatter of {len(wide)} printed results, mean MSE against mean PSNR, with the bound as a line. {len(low)} points lie below it.",
    caption=f"{len(low)} of {len(wide)} printed mean PSNRs (diamonds) lie below what the mean MSE allows, rounding included. The others lie on the line or above: the more the errors of the images differ, the farther.",
    provenance=made_by,
)

# %% [markdown]
# *Harmless explanations*: PSNR taken from other images than MSE (another run, another subset); a digit of one of them.
#
# ## Identities
#
# The nearest target by PSNR is the nearest by MSE, so the two coverages are one number; with one target per class and matching within classes coverage is 100 %. The paper's tables keep both, everywhere. And a
# cell that is printed twice, in two tables or in a sentence, should have one value.

# %% tags=["hide-input"]
shown(
    found[found.check == "identity"],
    "audit-identities",
    "Cells printed twice with two values: the first place, and what stands beside it.",
    "also_in",
    fit="other value",
)

# %% [markdown]
# *Harmless explanations*: two digits swapped or one misread when a table was typed; a sentence written before the last run. Section 7 gives 357.91 for auxiliary data from the same distribution and 330.31 for
# CIFAR-100, and names no target data set. That it is CIFAR-10 is our reading, since CIFAR-100 replaces CIFAR-10 just before; Table 19 prints 345.400 there. To its two decimals, 357.91 is what Table 2 prints
# for CelebA. Which one was meant?
#
# ## Repetition and breaks
#
# Two unrelated lines of a table can share a number, but not many: if cell $i$ of $m$ is shared with chance $p_i$, then the product of $1/p_i$ over the shared cells exceeds $t$ with probability at most $2^m/t$
# (Markov). A pair of lines is asked about if that bound, times the number of pairs, is below $10^{-4}$. Bias-Rec trains a network of its own, so its lines *should* repeat under
# all architectures. Within a line, two sizes at which all metrics are equal are asked about if the line moves enough elsewhere.
#
# Along a line we look for neighbors that differ by a factor of ten, and for single values that are a factor of three from both neighbors. What counting noise or a larger set explains is left out: an attack that always
# returns the same ten images covers 1 % of 1,000 and 0.1 % of 10,000.

# %% tags=["hide-input"]
shown(
    found[found.check == "repetition"],
    "audit-repetition",
    "Results that other tables repeat and this one does not: the first value of each block.",
    "also_in",
    fit="other value",
)
broken = found[found.check == "jump"]
shown(broken, "audit-jumps", "Breaks and isolated values. Distance is the factor.", "also_in", fit="")

# %% tags=["hide-input"]
rows = published.load("image_attacks")
fig, axes = plt.subplots(-(-len(broken) // 3), 3, figsize=(report.WIDTH, 4.6), sharey=True, squeeze=False)
for ax in axes.flat[len(broken) :]:
    ax.set_axis_off()
for ax, item in zip(axes.flat, broken.itertuples(), strict=False):
    line = rows[
        (rows.paper_table == item.table) & (rows.attack == item.attack) & (rows.defense == item.defense)
    ]
    line = line[line.metric == item.metric.removeprefix("coverage (").removesuffix(")")]
    ax.plot(line.target_size, line.coverage_percent, "o-", ms=3, lw=1, color=COLORS[0])
    ax.plot(item.target_size, float(item.printed), "D", ms=7, color=COLORS[3])
    ax.annotate(
        item.printed,
        (item.target_size, float(item.printed)),
        (0, 8) if float(item.printed) > line.coverage_percent.median() else (0, -16),
        textcoords="offset points",
        ha="center",
        fontsize=10,
    )
    ax.set(xscale="log", yscale="log", ylim=(0.08, 130))
    ax.set_title(prose(f"{item.attack}\n{item.dataset}, {item.model}"), fontsize=10)
    ax.tick_params(labelsize=9)
fig.supylabel("coverage by SSIM (%)", fontsize=10)
fig.supxlabel("target images", fontsize=10)
sns.despine(fig)
report.figure(
    fig,
    id="audit-breaks",
    alt=f"{len(broken)} small line plots of coverage against target size, each with one marked value that falls or rises by a factor of three or more.",
    caption="The lines with a break or an isolated value (diamond). Coverage falls with the size in most tables; these steps are larger than a larger set or counting noise explains.",
    provenance=made_by,
)

# %% [markdown]
# *Harmless explanations*: a generator or a training that collapsed in one run (GANs do; the paper does not say how many runs a value is of); Bias-Rec's network trained again for the transformers.
#
# ## Recomputation
#
# Which rows give the coefficients of section 5.1? {doc}`/notebooks/05_relations` asks for one reading that gives all of them. Here each is asked for alone, over nine sets of tables, all sizes or one of the six, three choices of
# attacks and three coefficients; a single hit among so many readings proves little, but where *none* hits, the rows are not those we can think of.
#
# The paper prints absolute values. The sign in {numref}`tab-audit-coefficients` is that of the coefficient as computed: FID falls when images come closer while SSIM, PSNR and coverages rise, so a *negative* coefficient of FID with
# them means that the measures agree, and so does a positive one of FID with MSE, or of two coverages.

# %% tags=["hide-input"]
readings = recomputation.readings(printed)
best = readings.loc[readings.groupby(["group", "a", "b"], sort=False).deviation.idxmin()]
rows_of = best.attacks.where(best.group != "GAN attacks", "three GANs")
report.table(
    pd.DataFrame(
        {
            "attacks": best.group,
            "measures": best.a + ", " + best.b,
            "printed": best.printed,
            "closest (signed)": best.value,
            "reading": best.tables + ", " + best.sizes + ", " + rows_of + ", " + best.how,
            "rows": best.n,
            "all digits": best.deviation <= 0.0005,
        }
    ),
    id="audit-coefficients",
    caption="For each printed coefficient (absolute) the closest of all readings, with its sign. *All digits*: it rounds to what is printed.",
    provenance=made_by,
    formats={"printed": ".3f", "closest (signed)": "+.4f"},
)

# %% [markdown]
# ## Your own table
#
# Any CSV file with the columns `target_size, metric, value` can be audited; more columns (`dataset, model, defense, attack, coverage_percent, paper_table, seed`) make more checks possible, and what is left out is said.
# What the paper fixes is not assumed of your table. Say it in a column: `n_targets` (images that coverage counts, if not the target size), `classes` (that an attack is matched within), `samples` (of a memorization score),
# `questions` and `answers` (targets of a judge, and answers to each).
#
# ~~~text
# drlib audit table.csv
# drlib audit table.csv --format json
# drlib results benchmark --format csv --output mine.csv
# drlib audit mine.csv
# ~~~
#
# Keep the digits as printed: 0.130 was rounded to a thousandth, 0.13 to a hundredth.
#
# (ask-the-authors)=
# ## Asking the authors
#
# Each finding holds a neutral question; the list below has all of them. The way to the authors is the contact on the [arXiv page](https://arxiv.org/abs/2506.07888) (it shows addresses only after a login) and the
# [record of their artifact](https://doi.org/10.5281/zenodo.15603060). Before you write: look the number up in the current version of the paper, since our copy may be wrong or old; ask about one number at a time; and say what
# would explain it harmlessly.
#
# An error in *this* book, in our copy of a table or in a check, belongs in the issue tracker of the repository that the book came from: name the chapter and the number, and what the paper prints.

# %% tags=["hide-input"]
lines = []
for item, cell in zip(found.itertuples(), where(found), strict=True):
    table = f"Table {item.table}, " if pd.notna(item.table) else ""
    lines.append(f"1. {table}{cell}, {item.metric}: {prose(item.question)}")
questions = "\n".join(lines).replace("# of", "number of")
Markdown(f":::{{admonition}} All {len(found)} questions\n:class: dropdown\n{questions}\n:::")

# %% [markdown]
# ## Exercises
#
# ```{exercise}
# :label: ex-audit-granularity
# A table says that an attack covers 37.33 % of 300 targets by SSIM and 12.34 % of 300 by MSE. Which of the two can be, and from how many targets on can the test say nothing about two decimals?
# ```
#
# ```{solution} ex-audit-granularity
# :class: dropdown
# Steps are 1/3 of a percentage point: 112 images are 37.33 %, while 37 images are 12.33 % and 38 are 12.67 %, so 12.34 % cannot be. When steps are no wider than 0.01, from 10,000 targets on, everything passes.
#
# ~~~python
# from drlib.audit import granularity
# from drlib.audit.table import number
# print(granularity.misfit(number("37.33"), 100, 300), granularity.misfit(number("12.34"), 100, 300))
# ~~~
# ```
#
# ```{exercise}
# :label: ex-audit-jensen
# Printed are a mean MSE of 0.050 and a mean PSNR of 13.00 dB. Does that contradict Jensen's inequality? And 12.90 dB? What changes if the MSE is printed as 0.05?
# ```
#
# ```{solution} ex-audit-jensen
# :class: dropdown
# $-10\log_{10} 0.0505 = 12.967$. A PSNR printed as 13.00 may be as large as 13.005: no contradiction. 12.90 is at most 12.905: it contradicts. With 0.05 the MSE may be 0.055, the bound falls to 12.596 dB, and both pass.
#
# ~~~python
# from drlib.audit.inequality import least_psnr
# from drlib.audit.table import number
# print(least_psnr(number("0.050")), least_psnr(number("0.05")))
# ~~~
# ```
#
# ```{exercise}
# :label: ex-audit-readings
# Which readings give 0.465 for FID and SSIM over all attacks in all digits? Do they give the other two coefficients of the sentence, too? How likely is it that some reading hits a made-up number?
# ```
#
# ```{solution} ex-audit-readings
# :class: dropdown
# One does (all twelve tables, smallest size, ten attacks, Spearman), and it gives 0.083 and 0.114 for the other two, where 0.117 and 0.289 are printed. Of the made-up values 0.100 to 0.900, 40 % are hit by one of the 567 readings or more, and of those
# from 0.300 to 0.600, where most readings lie, 64 %: a hit for a single number says little. Three at once would.
#
# ~~~python
# pair = readings[(readings.group == "all attacks") & (readings.a == "FID")]
# reading = ["tables", "sizes", "attacks", "how"]
# wide = pair.pivot_table(index=reading, columns="b", values="value").abs()
# print(wide[(wide.SSIM - 0.465).abs() <= 0.0005])
# for low, high in ((100, 900), (300, 600)):
#     made_up = np.arange(low, high + 1) / 1000
#     print((np.abs(made_up[:, None] - wide.SSIM.to_numpy()) <= 0.0005).any(axis=1).mean())
# ~~~
# ```
