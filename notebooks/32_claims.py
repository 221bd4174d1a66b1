# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Do the conclusions hold?
#
# :::{admonition} This chapter
# :class: tip
# **Needs** {doc}`when a reconstruction is good </notebooks/02_metrics>` and {doc}`relations between metrics </notebooks/05_relations>`. \
# **Gives** the conclusions of the paper, one by one, as checks that a computer decides: on the paper's own numbers, on its other tables, and
# on ours; each with its effect, its sign, and whether it survives equal sizes. \
# **Minutes** 20 to read, 1 to run. Nothing is trained or attacked.
# :::
#
# A paper is remembered for its sentences, not for its tables. *"Attacks achieving higher performance at the dataset level also tend to perform
# well on sample-level metrics." "Results in Table 2 show a decline in coverage as the size of the training dataset increases." "Model
# memorization is strongly correlated with reconstruction performance."* Each of these is a statement about numbers, so it can be written as a
# function of a table. The **ledger** does this for the conclusions in sections 3.1, 5 to 8 and the appendices of {cite:t}`wen2025` that speak of
# results, in our words. No verdict is typed in: change a number in a table, and the verdict may change. What does not hold to the letter is a *question*: a
# sentence may mean other rows than those we take it to mean, or a word may have slipped.

# %%
import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from IPython.display import Markdown, display

from drlib import claims, report, sections
from drlib.claims.judging import FAILS, HOLDS, IN_PART, UNJUDGED, VERDICTS

# %% tags=["parameters"]
profile: str = "laptop"  # the profile that supplies whatever is not set here (training, hyperparameters)

# %% tags=["hide-input"]
p = sections.from_notebook("claims", globals())
from_paper = f"Made by `{p.command()}` · from the numbers printed in the paper, nothing is run"
report.style()

# %% [markdown]
# ## How a verdict is reached
#
# A claim is broken into **cases**, the smallest comparisons that it is about: DeepInversion against DeepDream by SSIM at 5,000 images is
# one case. A case *supports* the claim, speaks *against* it, or is *undecided* when the difference is within the rounding of the
# printed numbers (or within the intervals, where a table has them). A coefficient over rows is judged by its value, since it describes
# these rows. A sentence says, openly or not, how many cases it means:
#
# | the sentence speaks of | holds | holds in part | does not hold |
# | --- | --- | --- | --- |
# | **every** case ("consistently", "none of the attacks") | all decided cases support it | at least half | fewer |
# | **most** cases ("generally", "typically", "frequently") | at least 75 % | at least half | fewer |
# | **some** case ("not necessarily", "can even") | one supports it | | none of five or more |
#
# A sentence that does not say which metric or which rows it means is judged under each **reading**. Where they differ, it holds in part, and the ledger shows
# which reading gives what. Some words need a number, and these are ours: a correlation is *weak* below 0.5 and *strong* from 0.7, a drop is *moderate* below
# half of the mean value, a FID is *low* below the median attack's, and metrics are *distinct* if they order more than a tenth of the pairs differently.
#
# If no case is there, or fewer than half are decided, the claim *cannot be judged*, and the ledger says why. The **effect** is the mean over cases, in the
# claim's own unit and with its sign (for *some case*: over those that support it). An interval comes from drawing whole groups of cases that belong together (an attack on one
# data set and network). There is none for fewer than five groups; where each case has an interval of its own, the range of these is shown.
#
# Two things are asked of claims that compare *sizes*. A larger target data set has more candidates per class, $k$, so that a
# nearest neighbor is nearer and a best-of-$k$ choice better for that reason alone, and a Frechet distance shrinks with the number of images $n$.
# Does the conclusion survive at **equal n** and **equal k**? Where a table has no such values this cannot be computed, which is the case for
# almost everything printed; but where the change works *against* a claim that holds, it holds all the more. For coverage it can be computed: the floor and the chance level are known for every $k$, so a coverage can be
# stated as its place between the two.

# %%
# NBVAL_CHECK_OUTPUT
told = claims.published_facts()
ledger = pd.DataFrame(claims.ledger(told))
paper = pd.DataFrame(list(ledger.published))
for verdict in VERDICTS:
    print(f"{verdict:17} {int((paper.verdict == verdict).sum()):3} of {len(ledger)}")

# %% tags=["hide-input"]
from drlib.claims.own import own_tables  # brings PyTorch with it, which the paper's own numbers do not need

benchmark = p.benchmark()
tables = own_tables(benchmark.cells(), benchmark.convergence(), benchmark.ensembles(), profile=p.profile)
for name, table in tables.items():
    report.data(table, id=f"claims-{name}")
ours_told = claims.facts(tables.values())
ledger = pd.DataFrame(claims.ledger(told, ours_told))
by = {
    name: pd.DataFrame([{} if found is None else found for found in ledger[name]])
    for name in ("published", "elsewhere", "ours")
}
paper, elsewhere, ours = by.values()
if tables:
    from drlib import results

    made_by = results.provenance(tables["results"], p.command())
else:
    made_by = f"Made by `{p.command()}` · nothing of ours is computed yet: `drlib run benchmark --profile {p.profile}`"
for name, verdict in (("holds", HOLDS), ("in_part", IN_PART), ("fails", FAILS), ("unjudged", UNJUDGED)):
    report.value(f"published_{name}", float((paper.verdict == verdict).sum()))
    report.value(f"ours_{name}", float((ours.verdict == verdict).sum()))

# %% [markdown]
# ## The verdicts at a glance

# %% tags=["hide-input"]
palette = sns.color_palette("colorblind")
LOOK = {
    HOLDS: (palette[2], "o"),
    IN_PART: (palette[1], "D"),
    FAILS: (palette[3], "X"),
    UNJUDGED: ("0.72", "o"),
}
places = list(dict.fromkeys(ledger.place))
fig, axes = plt.subplots(1, 2, figsize=(report.WIDTH, 0.34 * len(places) + 0.9), sharey=True)
widest = ledger.groupby("place").size().max()
for ax, (title, frame) in zip(axes, {"on the paper's numbers": paper, "on ours": ours}.items(), strict=True):
    for y, place in enumerate(places):
        verdicts = sorted(frame.verdict[ledger.place == place], key=VERDICTS.index)
        for x, verdict in enumerate(verdicts):
            color, marker = LOOK[verdict]
            filled = verdict != UNJUDGED
            ax.scatter(x, y, s=52, color=color if filled else "none", edgecolor=color, marker=marker, lw=1.2)
    ax.set_title(title, fontsize=9, loc="left")
    ax.set_yticks(
        range(len(places)), [f"section {place}".replace("section App.", "appendix") for place in places]
    )
    ax.set(xticks=[], xlim=(-0.7, widest - 0.3))
    ax.tick_params(length=0)
    sns.despine(ax=ax, left=True, bottom=True)
axes[0].invert_yaxis()
handles = [
    plt.Line2D(
        [],
        [],
        color=color,
        marker=marker,
        lw=0,
        ms=7,
        mfc=color if verdict != UNJUDGED else "none",
        label=verdict,
    )
    for verdict, (color, marker) in LOOK.items()
]
fig.legend(handles=handles, ncols=4, loc="outside upper center", frameon=False, fontsize=8)
on_paper, on_ours = (
    ", ".join(f"{int((frame.verdict == verdict).sum())} {verdict}" for verdict in VERDICTS)
    for frame in (paper, ours)
)
report.figure(
    fig,
    id="verdicts",
    alt=f"One mark for each of {len(ledger)} claims, in rows by section of the paper. On the paper's numbers: {on_paper}. On ours: {on_ours}.",
    caption=f"The ledger: each mark is a conclusion of the paper. Left: judged on the tables that the sentence speaks of. Right: on our results with profile {p.profile}, which cannot judge what needs other data, a judge, text or defenses.",
    provenance=made_by,
)


# %% tags=["hide-input"]
def effect(row) -> str:
    """The effect with its interval."""
    if pd.isna(row.effect):
        return ""
    return f"{row.effect:+.3g}" + (
        "" if pd.isna(row.low) else f" [{report.interval(row.low, row.high, '+.3g')}]"
    )


def conclusion(claim) -> str:
    """What it says, where, and its name in the ledger."""
    place = f"section {claim.place}".replace("section App.", "appendix")
    return f"{claim.statement} ({place}, *{claim.id}*)"


judged = paper[paper.verdict != UNJUDGED]
Markdown(
    f"""**In three lines.** Of {len(ledger)} conclusions, {len(judged)} can be judged on what is printed: {int((judged.verdict == HOLDS).sum())} hold,
{int((judged.verdict == IN_PART).sum())} hold in part or under one of several readings, {int((judged.verdict == FAILS).sum())} does not hold to the letter. The other {len(ledger) - len(judged)} rest on pictures, or on numbers (such as
accuracies) that are not printed. Of the {int((ours.verdict != UNJUDGED).sum())} that our results can speak about, {int((ours.verdict == HOLDS).sum())} are seen there, {int((ours.verdict == IN_PART).sum())} in part, {int((ours.verdict == FAILS).sum())} not."""
)

# %% [markdown]
# ## Questions about conclusions
#
# What holds in part, or not to the letter, and what one would ask. How to ask, and how to correct us: {ref}`ask-the-authors`.

# %% tags=["hide-input"]
doubtful = ledger[paper.verdict.isin([IN_PART, FAILS])]
lines = []
for index, claim in doubtful.iterrows():
    found = paper.loc[index]
    lines.append({"conclusion": conclusion(claim), "for / against / undecided": claims.in_words(found), "effect": effect(found),
                  "unit and sign": claim.unit, "question": claim.question})  # fmt: skip
report.table(
    pd.DataFrame(lines),
    id="claims-doubtful",
    caption="Conclusions that the tables they speak of support in part, under one reading only, or not to the letter. Cases: for, against, undecided; the effect is that of the first reading.",
    provenance=from_paper,
)

# %% [markdown]
# Which cases speak against them? The first three of each, as printed:

# %% tags=["hide-input"]
of_id = {claim.id: claim for claim in claims.CLAIMS}
lines = []
for name in doubtful.id:
    claim = of_id[name]
    against = [case for case in claim.cases(told.within(claim.tables)) if case.outcome == "against"]
    lines += [
        {"claim": name if place == 0 else "", "case": case.where, "effect": case.effect}
        for place, case in enumerate(against[:3])
    ]
report.table(
    pd.DataFrame(lines),
    id="claims-against",
    caption="Cases against, at most three for each conclusion. Effects in the unit of the claim.",
    provenance=from_paper,
    formats={"effect": "+.3g"},
)

# %% tags=["hide-input"]
look = {name: paper.loc[ledger.index[ledger.id == name][0]] for name in ledger.id}
(dream,) = told.select(table=2, attack="DeepDream", metric="FID")
first, last = dream.points[min(dream.points)].value, dream.points[max(dream.points)].value
apart, together = look["metrics-agree-among-gans"].readings
memory = of_id["memorization-predicts-leakage"].cases(told.within((2, 3)))
by_metric = {}
for case in of_id["deep-inversion-beats-deep-dream"].cases(told.within((2,))):
    metric = case.where.split(" against ")[0].rsplit(", ", 1)[-1]
    by_metric.setdefault(metric, []).append(case.outcome)
counts = ", ".join(
    f"{metric} {outcomes.count('supports')} of {len(outcomes)}" for metric, outcomes in by_metric.items()
)
Markdown(
    f"""Some deserve a sentence.

- **DeepDream's FID** "decreases as the memorization score drops to 0.301", says section 5.2. In Table 2 it goes from {first:.3f} to {last:.3f}: it {"rises" if last > first else "falls"} by
  {abs(last - first):.1f}. The next sentence contrasts it with Revealer, whose quality *improves*, so that an increase may have been meant.
- **DeepInversion "consistently outperforms" DeepDream**, says section 7, which speaks of FID elsewhere. Sizes of Table 2 at which it is closer, by metric: {counts}. PSNR and MSE are close to one
  witness. Section 5.1 argues that FID alone may mislead, and prefers the sample-level metrics in a similar case.
- **Correlations "improve" among GAN-based attacks**, says section 5.1. Within a data set they do in {apart["supports"]} of {apart["supports"] + apart["against"]} cases, by {apart["effect"]:+.2f} on average and with their sign;
  over all data sets together in {together["supports"]} of {together["supports"] + together["against"]}, since data sets differ in all metrics at once. Which rows the paper used it does not say, and {{doc}}`no reading </notebooks/33_audit>` gives all of its
  coefficients.
- **Memorization is "strongly correlated" with reconstruction**, says section 8. All {len(memory)} correlations are {"positive" if min(case.effect for case in memory) > 0 else "not positive"}, from {min(case.effect for case in memory):.2f} to {max(case.effect for case in memory):.2f}, over six
  sizes each; how many are *strong* depends on the coefficient and on where one puts the line."""
)

# %% [markdown]
# ## Does it survive equal sizes?
#
# Claims whose comparison changes $n$ or $k$, with the verdict at equal size where it can be computed. *At equal k* for coverage means: relative to
# floor and chance.

# %% tags=["hide-input"]
same = "same on both sides"
lines = []
for index, claim in ledger.iterrows():
    for title, frame in (("paper", paper), ("ours", ours)):
        found = frame.loc[index]
        if {found.equal_n, found.equal_k} == {same} or found.verdict == UNJUDGED:
            continue
        lines.append({"conclusion": claim.id, "numbers": title, "verdict": found.verdict, "effect": effect(found),
                      "at equal n": "" if found.equal_n == same else found.equal_n,
                      "at equal k": "" if found.equal_k == same else found.equal_k})  # fmt: skip
across = pd.DataFrame(lines)
report.table(
    across,
    id="claims-equal",
    caption="Conclusions whose comparison changes n or k, as measured and at equal size. An empty cell: it does not change n (or k).",
    provenance=made_by,
)
of_paper = across[across.numbers == "paper"][["at equal n", "at equal k"]].agg(" ".join, axis=1)
coverage = look["coverage-falls-with-size"]
Markdown(
    f"""Of {len(of_paper)} such conclusions, what is printed does not allow the check for {int(of_paper.str.contains("cannot").sum())}: what they describe and the change of the ruler cannot be told apart. For
{int(of_paper.str.contains("all the more").sum())} the change works the other way, so that the observation stands all the more: a judge who is shown the best of more candidates, and still prefers the small training set. Coverage can be
computed. Of static attacks it falls by {abs(coverage.effect):.0f} percentage points on average, and so do its floor and its chance level. Relative to these two the claim {coverage.equal_k}, in units of the way
from floor to chance, from the second smallest size on."""
)

# %% [markdown]
# {numref}`fig-coverage-relative` shows how. Left, coverage as printed. Right, the same numbers between floor (0) and chance (1).

# %% tags=["hide-input"]
shown = [
    one
    for one in told.select(table=2, metric="coverage (SSIM)")
    if one.attack not in ("Updates-Leak", "Deep-Leakage")
]
colors = dict(zip([one.attack for one in shown], sns.color_palette("colorblind"), strict=False))
fig, axes = plt.subplots(1, 2, figsize=(report.WIDTH + 0.6, 3.6))
axes[1].axhline(1, color="0.5", lw=0.8, ls="--", zorder=0)
axes[1].text(1000, 1.01, "chance", fontsize=7, color="0.4", va="bottom")
for ax, title, relative in zip(
    axes, ("coverage (SSIM), % of targets", "from floor (0) to chance (1)"), (False, True), strict=True
):
    last = {}
    for one in shown:
        points = {size: point.equal if relative else point for size, point in one.points.items()}
        points = {size: point.value for size, point in points.items() if point is not None}
        ax.plot(points.keys(), points.values(), color=colors[one.attack], marker="o", ms=3, lw=1.4)
        last[one.attack] = points[max(points)]
    ax.set_xscale("log")
    ax.set_xticks([1000, 2000, 5000, 10000, 20000], ["1,000", "2,000", "5,000", "10,000", "20,000"])
    ax.minorticks_off()
    ax.tick_params(labelsize=7.5)
    ax.set_title(title, fontsize=9, loc="left")
    report.direct_labels(ax, 20000, last, colors)
fig.supxlabel("target images", fontsize=9)
sns.despine(fig)
changes = {
    one.attack: (one.points[2000].equal.value, one.points[20000].equal.value)
    for one in shown
    if one.points[2000].equal is not None
}
falls = {name: first - last for name, (first, last) in changes.items()}
display(
    Markdown(
        f"From 2,000 to 20,000 images {sum(fall > 0 for fall in falls.values())} of {len(falls)} static attacks fall relative to floor and chance, too, far less steeply than as printed: by "
        f"{min(falls.values()):.2f} ({min(falls, key=falls.get)}) to {max(falls.values()):.2f} ({max(falls, key=falls.get)})."
    )
)
report.figure(
    fig,
    id="coverage-relative",
    alt="Coverage by SSIM of the static attacks of Table 2 against the number of target images. Left as printed: all fall, most of them from 100 percent. Right, between floor and chance, from 2,000 to 20,000 images: "
    + ", ".join(f"{name} {first:.2f} to {last:.2f}" for name, (first, last) in changes.items())
    + ".",
    caption="Coverage by SSIM in Table 2, static attacks. Left: as printed. Right: the same between the floor (0) and the chance level (1) of its size; with one target per class (1,000 images) the two are equal and nothing can be said. Bias-Rec is matched among all targets.",
    provenance=from_paper,
)

# %% [markdown]
# ## On ours
#
# The same functions on the results of {doc}`the benchmark </notebooks/12_benchmark>`. Another data set, another network, other sizes: a verdict says whether the
# *conclusion* appears here too, not whether the paper's numbers are right, and a sentence about CelebA is not refuted by digits. Attacks that still move with more steps are left out, as no conclusion may rest on them.

# %% tags=["hide-input"]
lines = []
for index, claim in ledger.iterrows():
    found = ours.loc[index]
    if found.verdict == UNJUDGED and not found.undecided:
        continue
    lines.append({"conclusion": conclusion(claim), "paper": paper.verdict[index], "ours": claims.in_words(found), "effect": effect(found), "unit and sign": claim.unit})  # fmt: skip
if lines:
    report.table(
        pd.DataFrame(lines),
        id="claims-ours",
        caption=f"Conclusions that our results can speak about ({ours_told.frechet} in the place of FID). Left out, since they still move with more steps: {', '.join(ours_told.left_out) or 'none'}.",
        provenance=made_by,
    )
else:
    display(Markdown(f"None yet: `drlib run benchmark --profile {p.profile}` computes the results first."))

# %% [markdown]
# ## What cannot be judged from what is printed

# %% tags=["hide-input"]
unjudged = ledger[paper.verdict == UNJUDGED]
report.table(
    pd.DataFrame(
        [{"conclusion": conclusion(claim), "would need": claim.needs} for claim in unjudged.itertuples()]
    ),
    id="claims-unjudged",
    caption="Conclusions that no printed number decides. The ledger has a function for each, so that a table with such rows will be judged.",
    provenance=from_paper,
)

# %% [markdown]
# ## The whole ledger
#
# *Elsewhere*: the same comparisons on the paper's other tables with the same columns, which the sentence does not mention.
#
# `drlib claims --format json` prints everything for programs.

# %% tags=["hide-input"]
lines = []
for index, claim in ledger.iterrows():
    found, other = paper.loc[index], elsewhere.loc[index]
    lines.append(
        {"conclusion": conclusion(claim).replace(f"*{claim.id}*", f"[*{claim.id}*]{{#claim-{claim.id}}}"), "judged by": claim.how, "speaks of": claim.quantifier,
         "tables": ", ".join(map(str, claim.tables)) or "none", "verdict (for / against / undecided)": claims.in_words(found), "effect": effect(found),
         "unit and sign": claim.unit, "elsewhere": "" if pd.isna(other.verdict) else claims.in_words(other), "ours": ours.verdict[index]}
    )  # fmt: skip
report.table(
    pd.DataFrame(lines),
    id="claims-all",
    caption=f"All {len(ledger)} conclusions. Cases: for, against, undecided.",
    provenance=made_by,
    page="book/published/ledger",
)

# %% [markdown]
# ## Judge your own table
#
# The ledger takes any table with the published columns (`dataset model defense attack target_size metric value coverage_percent`), so that
# a later run, or another paper's table, is judged by the same code:
#
# ```
# drlib claims                       # the paper's numbers, and this package's reference run
# drlib claims my_results.csv        # the paper's numbers, and yours
# drlib results benchmark --join-seeds --output mine.csv && drlib claims mine.csv
# ```
#
# ## Exercises
#
# :::{exercise} A sign behind an absolute value
# :label: ex-claims-sign
#
# A paper prints |r| = 0.3 between FID and SSIM over all attacks, and |r| = 0.6 over the good ones, and concludes that the metrics agree better for
# good attacks. Give three good attacks, and one more, for which this reading is wrong.
# :::
#
# :::{solution} ex-claims-sign
# :class: dropdown
#
# FID falls when an attack gets closer, SSIM rises, so agreement is a *negative* r. Take attacks with (FID, SSIM) = (100, 0.10), (110, 0.14), (120, 0.15): r is
# positive and large, each step that is worse by FID is better by SSIM. Over all attacks, with (360, 0.02) added, r is negative. The absolute value grows from
# one to the other while agreement turns into contradiction. `drlib.relations.agreement` keeps the sign.
# :::
#
# :::{exercise} A claim for the ledger
# :label: ex-claims-own
#
# Write the claim *"KEDMI is closer than Revealer by PSNR at every size"* as a function from facts to cases, and show that it can hold, hold in
# part and fail, on three made-up tables.
# :::
#
# :::{solution} ex-claims-own
# :class: dropdown
#
# ```python
# import pandas as pd
# from drlib import claims
# from drlib.claims.comparing import ahead
# from drlib.claims.judging import Quantifier, judge
#
# def kedmi_ahead(facts):
#     return ahead(facts, ["KEDMI"], ["Revealer"], ["PSNR"])
#
# def verdict(kedmi, revealer):
#     rows = [
#         {"attack": attack, "metric": "PSNR", "target_size": size, "value": value}
#         for attack, values in (("KEDMI", kedmi), ("Revealer", revealer))
#         for size, value in zip((1000, 2000), values)
#     ]
#     facts = claims.facts([pd.DataFrame(rows)])
#     return judge(kedmi_ahead(facts), Quantifier.EVERY, missing="PSNR of both").verdict
#
# print(verdict((12, 13), (10, 11)), verdict((12, 10), (10, 11)), verdict((9, 9), (10, 11)), sep=" | ")
# ```
#
# It prints `holds | holds in part | does not hold`. On the paper's Table 2:
# `judge(kedmi_ahead(claims.published_facts().within((2,))), Quantifier.EVERY, missing="")`.
# :::
#
# :::{exercise} Most, or every?
# :label: ex-claims-quantifier
#
# Appendix H says that MID and DP mitigate "in most cases". What would the verdict be if it said "always", and what does the choice of the threshold (75 %) change?
# :::
#
# :::{solution} ex-claims-quantifier
# :class: dropdown
#
# ```python
# from drlib import claims
# from drlib.claims.judging import Quantifier, judge
#
# claim = next(claim for claim in claims.CLAIMS if claim.id == "defenses-help-in-most-cases")
# cases = claim.cases(claims.published_facts().within(claim.tables))
# for quantifier in (Quantifier.MOST, Quantifier.EVERY):
#     found = judge(cases, quantifier, missing="")
#     print(quantifier.value, "->", found.verdict, found.supports, "of", found.supports + found.against)
# ```
#
# 30 of 40 is exactly 75 %: with any higher threshold it would hold in part, as it would with "always". A reader should know that this verdict is on the edge, which is why
# the counts stand beside every verdict.
# :::
