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
# neither the models nor the data {cite:p}`wen2025`. What does not fit is a *question*, no verdict: a digit may have been lost on the way to
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


def where(frame: pd.DataFrame) -> list[str]:
    """Which cell, in words."""
    words = frame[["dataset", "model", "defense", "attack"]].agg(
        lambda row: ", ".join(part for part in row if part and part != "none"), axis=1
    )
    sizes = [f", {size:,}" if pd.notna(size) else "" for size in frame.target_size]
    return [word + size for word, size in zip(words, sizes, strict=True)]


def shown(frame: pd.DataFrame, id: str, caption: str, *more: str) -> None:
    """Findings as a numbered table, or a sentence if there are none."""
    if not len(frame):
        display(Markdown("*Nothing is found.*"))
        return
    columns = {"table": [str(t) if pd.notna(t) else "" for t in frame.table], "cell": where(frame)}
    columns |= {name: frame[name] for name in ("metric", "printed", "consistent", *more)}
    columns |= {"distance": frame.distance}
    table = pd.DataFrame(columns).rename(columns={"also_in": "beside", "consistent": "would fit"})
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
alone = int((of_cells.rule != "memorization").sum())
Markdown(
    f"**Verdict.** Apart from one open question about the memorization estimator, {alone} of {cells:,} printed numbers do not fit arithmetic or another place of the "
    "paper."
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
# which accepts a tie rounded up or to even. $N$ is the target size; for the dynamic attacks it is the 100 update images. Psychologists know the test as GRIM.
# With $N \ge 10{,}000$ and two decimals everything passes: the test says nothing there.

# %% tags=["hide-input"]
coverage = found[(found.check == "granularity") & (found.rule == "coverage")]
shown(
    coverage,
    "audit-coverage",
    "Coverages that no whole number of targets gives, the nearest that would fit, and the distance in percentage points.",
)

# %% [markdown]
# *Harmless explanations*: a last digit that changed by hand or by rounding twice; a set with a few images fewer or more than its name says.
#
# The same test on memorization: with one model trained with, and one without a sample, each score is $-1$, 0 or 1, and their mean over $N = \min(1000, n)$ samples is a multiple of
# $1/N$. Where it is not, the estimator must have used several models per sample; the paper does not say how many. {doc}`/notebooks/17_memorization` shows how much that matters.

# %% tags=["hide-input"]
shown(
    found[(found.check == "granularity") & (found.rule == "memorization")],
    "audit-memorization",
    "Memorization scores that are no whole number over their samples. Read as a question: how many models per sample?",
)

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
shown(
    found[found.check == "inequality"],
    "audit-inequalities",
    "Values outside their bounds. Distance in dB.",
    "also_in",
)
wide = relations.side_by_side(published.load("image_attacks"))
wide["slack"] = wide.PSNR + 10 * np.log10(wide.MSE + 0.0005) + 0.0005
fig, ax = plt.subplots(figsize=(report.WIDTH, 3.1))
out = wide.slack < 0
ax.scatter(wide.MSE[~out], wide.PSNR[~out], s=9, color=COLORS[0], alpha=0.5, lw=0)
ax.scatter(wide.MSE[out], wide.PSNR[out], s=34, color=COLORS[3], marker="D", lw=0)
grid = np.geomspace(wide.MSE.min(), wide.MSE.max(), 200)
ax.plot(grid, -10 * np.log10(grid + 0.0005) - 0.0005, color="0.2", lw=1)
ax.text(0.0072, 14.5, "smallest possible mean PSNR", fontsize=8, color="0.2")
for row in wide[out].itertuples():
    text = f"{row.attack}, Table {row.paper_table}, {row.target_size:,}: {-row.slack:.2f} dB below"
    ax.annotate(
        text,
        (row.MSE, row.PSNR),
        (-6, -12),
        textcoords="offset points",
        ha="right",
        fontsize=8,
        color=COLORS[3],
    )
ax.set(xscale="log", ylim=(2.5, None), xlabel="mean MSE ↓ (log scale)", ylabel="mean PSNR (dB) ↑")
sns.despine(fig)
report.figure(
    fig,
    id="audit-jensen",
    alt=f"Scatter of {len(wide)} printed results, mean MSE against mean PSNR, with the bound as a line. {int(out.sum())} points lie below it.",
    caption=f"{int(out.sum())} of {len(wide)} printed mean PSNRs (diamonds) lie below what the mean MSE allows, rounding included. The others lie above the line: the more the errors of the images differ, the farther.",
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
)

# %% [markdown]
# *Harmless explanations*: two digits swapped or one misread when a table was typed; a sentence written before the last run. The value that section 7 gives for CIFAR-10 is, to its two decimals, the one that
# Table 2 prints for CelebA.
#
# ## Repetition and breaks
#
# Two unrelated lines of a table can share a number, but not many: if cell $i$ of $m$ is shared with chance $p_i$, then the product of $1/p_i$ over the shared cells exceeds $t$ with probability at most $2^m/t$
# (Markov). A pair of lines is asked about if that bound, times the number of pairs, is below $10^{-4}$. Bias-Rec trains a network of its own, so its lines *should* repeat under
# all architectures.
#
# Along a line we look for neighbors that differ by a factor of ten, and for single values that are a factor of three from both neighbors. What counting noise or a larger set explains is left out: an attack that always
# returns the same ten images covers 1 % of 1,000 and 0.1 % of 10,000.

# %% tags=["hide-input"]
shown(
    found[found.check == "repetition"],
    "audit-repetition",
    "Results that other tables repeat and this one does not: the first value of each block (for the others see `drlib audit`).",
    "also_in",
)
broken = found[found.check == "jump"]
shown(broken, "audit-jumps", "Breaks and isolated values. Distance is the factor.", "also_in")

# %% tags=["hide-input"]
rows = published.load("image_attacks")
fig, axes = plt.subplots(1, len(broken), figsize=(report.WIDTH + 1.5, 2.3), sharey=True)
for ax, item in zip(np.atleast_1d(axes), broken.itertuples(), strict=True):
    line = rows[
        (rows.paper_table == item.table) & (rows.attack == item.attack) & (rows.defense == item.defense)
    ]
    line = line[line.metric == item.metric.removeprefix("coverage (").removesuffix(")")]
    ax.plot(line.target_size, line.coverage_percent, "o-", ms=3, lw=1, color=COLORS[0])
    ax.plot(item.target_size, float(item.printed), "D", ms=7, color=COLORS[3])
    ax.annotate(
        item.printed,
        (item.target_size, float(item.printed)),
        (0, -13),
        textcoords="offset points",
        ha="center",
        fontsize=8,
    )
    ax.set(xscale="log", yscale="log", ylim=(0.1, 110))
    ax.set_title(f"{item.attack}\n{item.dataset}, {item.model}", fontsize=8)
    ax.tick_params(labelsize=8)
np.atleast_1d(axes)[0].set_ylabel("coverage by SSIM (%)")
fig.supxlabel("target images", fontsize=9)
sns.despine(fig)
report.figure(
    fig,
    id="audit-breaks",
    alt=f"{len(broken)} small line plots of coverage against target size, each with one marked value that falls or rises by a factor of three or more.",
    caption="The lines with a break or an isolated value (diamond). Coverage falls with the size in most tables; these steps are larger than a larger set or counting noise explains.",
    provenance=made_by,
)

# %% [markdown]
# *Harmless explanations*: a generator or a training that collapsed in one run (GANs do, and the paper reports one run); Bias-Rec's network trained again for the transformers.
#
# ## Recomputation
#
# Which rows give the coefficients of section 5.1? {doc}`/notebooks/05_relations` asks for one reading that gives all of them. Here each is asked for alone, over nine sets of tables, all sizes or one of the six, three choices of
# attacks and three coefficients; a single hit among so many readings proves little, but where *none* hits, the rows are not those we can think of.

# %% tags=["hide-input"]
readings = recomputation.readings(printed)
best = readings.loc[readings.groupby(["group", "a", "b"], sort=False).deviation.idxmin()]
report.table(
    pd.DataFrame(
        {
            "attacks": best.group,
            "measures": best.a + ", " + best.b,
            "printed": best.printed,
            "closest (signed)": best.value,
            "reading": best.tables + ", " + best.sizes + ", " + best.attacks + ", " + best.how,
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
# ## Asking the authors
#
# Each finding holds a neutral question. The way to the authors is the contact on the [arXiv page](https://arxiv.org/abs/2506.07888) and the [record of their artifact](https://doi.org/10.5281/zenodo.15603060).
# Before you write: look the number up in the current version of the paper, since our copy may be wrong or old; ask about one number at a time; and say what would explain it harmlessly.

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
# Which readings give 0.465 for FID and SSIM over all attacks in all digits? Do they give the other two coefficients of the sentence, too? How many readings would hit a made-up number such as 0.4?
# ```
#
# ```{solution} ex-audit-readings
# :class: dropdown
# Look them up in `readings`, then join the other two. With hundreds of readings between 0 and 1 and a window of 0.001, a hit for a single number is likely by chance; three at once are not.
#
# ~~~python
# pair = readings[(readings.group == "all attacks") & (readings.a == "FID")]
# reading = ["tables", "sizes", "attacks", "how"]
# wide = pair.pivot_table(index=reading, columns="b", values="value").abs()
# print(wide[(wide.SSIM - 0.465).abs() <= 0.0005])
# print(((wide.SSIM - 0.4).abs() <= 0.0005).sum())
# ~~~
# ```
