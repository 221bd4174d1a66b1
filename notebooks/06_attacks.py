# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The ten attacks
#
# :::{admonition} This chapter
# :class: tip
# **Needs** {doc}`what the adversary knows </notebooks/01_taxonomy>` and
# {doc}`when a reconstruction is good </notebooks/02_metrics>`. \
# **Gives** one page for each attack of the paper, all in the same form, and here what is only seen side by side:
# one table of all ten, whether they have converged, what an attack adds to its prior, and what is left of a
# white-box attack when there are only queries. \
# **Minutes** 15 to read, and 10 for each attack; 15 to run.
# :::
#
# Every attack below is one file of `drlib/attacks`, written from the equations of its paper. Each attacks models that
# were trained on the same images, in a process that can open neither the training images nor the holdout, with a view of the target that
# grants what Table 1 says and nothing else. The pages differ only in the idea. They are fed by this notebook, so
# re-running it with other parameters changes all of them.

# %%
import math

import pandas as pd
from IPython.display import Markdown, display

from drlib import convergence, plots, report, results, sections, study
from drlib.attacks import get

# %% tags=["parameters"]
profile: str = "laptop"  # the profile that supplies whatever is not set here (training, hyperparameters)
dataset: str = "digits"  # the data set whose target split is to be reconstructed
side: int = 16  # image height and width in pixels
channels: int = 1  # 1 for gray images, 3 for color
mode: str = "class"  # what a label means: the object class, or (lfw_subset) the single image
architecture: str = "convnet"  # the target model's architecture
width: float | None = None  # factor on the architecture's width; none: as published
target_size: int = 100  # images the target model is trained on
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
    "prior_best",
    "unconditional",
    "holdout",
]  # what stands beside every attack
seed: int = 0  # the first random seed (of target model and attack)
repeats: int = 3  # how many seeds: seed, seed + 1, ...; intervals need several
n: int | None = None  # reconstructions per target; none: as many as target images
multiples: list = [0.25, 1.0, 4.0]  # convergence: multiples of the profile's steps, 1 among them
convergence_size: int = 50  # convergence: images in the target data set, and reconstructions
gradient_batches: list = [1, 2, 4, 8]  # Deep-Leakage on the sigmoid LeNet: images per observed gradient
gradient_images: int = 8  # Deep-Leakage on the sigmoid LeNet: images in all
surrogates: list = ["distillation", "extraction"]  # ways to make a white box of a black box
surrogate_attack: str = "deep_dream"  # the white-box attack that is run on the surrogates
extractor: str = "efficientnet_lite0"  # features of the Frechet distance
training: dict = {}  # changes to the profile's training of target models
hyperparameters: dict = {}  # changes to the profile's hyperparameters, by attack; none: the original paper's
root: str | None = None  # folder of downloaded data sets; none: $DRLIB_DATA or ~/.cache/drlib/data
download: bool = False  # may missing files be downloaded?

# %% tags=["hide-input"]
p = sections.from_notebook("attacks", globals())
cells = p.cells()
study.run(cells)
report.style()
size, names = p.target_size, list(p.attacks)
main = [
    cell
    for seed in p.seeds
    for cell in (*(p.cell(size, seed, name) for name in names), *p.control_cells(size, seed))
]
table = results.summary(main, profile=p.profile)
command = p.command()
made_by = results.provenance(table, command)
accuracies = [metric for metric in table.metric.unique() if metric.startswith("Accuracy")]


def rows_of(cells: list, metric: str) -> pd.DataFrame:
    """Rows of one metric, by title."""
    found = results.summary(cells, profile=p.profile)
    return found[found.metric == metric].set_index("attack")


def number(value: float, how: str = ".3f") -> str:
    return "NaN" if math.isnan(value) else format(value, how)


# %% [markdown]
# ## All ten beside their controls
#
# Bias-Rec attacks a network of its own, trained on the same images, since it needs a homogeneous one.
#
# Read it from the bottom. *Noise* is what knows nothing, *holdout* what perfect generalization would score. *Prior
# sample* is what a generative model draws before the attack optimizes anything, *best of the prior* what the target is surest
# of among many of them. Attacks on an update reconstruct the
# images of the update, not the training set; their controls stand apart (*update*).


# %% tags=["hide-input"]
def summary_table(table: pd.DataFrame) -> pd.DataFrame:
    by = {metric: table[table.metric == metric].set_index("attack") for metric in table.metric.unique()}
    lines = []
    for title, row in by["SSIM"].iterrows():
        line = {
            "": title,
            "SSIM": f"{number(row.value)} [{number(row.value_low, '.2f')}, {number(row.value_high, '.2f')}]",
            "matching": row.matching,
            "SSIM, all classes": number(row.value_all_classes),
            "gap": number(row.gap, "+.3f"),
            "p": number(row.gap_p),
            "coverage": f"{number(row.coverage, '.2f')} (chance {number(row.coverage_chance, '.2f')})",
            "confidence": number(by["Confidence"].value.get(title, math.nan)),
        }
        line |= {
            metric.removeprefix("Accuracy (").removesuffix(")"): number(by[metric].value.get(title, math.nan))
            for metric in accuracies
        }
        lines.append(line)
    return pd.DataFrame(lines)


report.table(
    summary_table(table),
    id="ten-attacks",
    caption=f"The ten attacks and their controls ({p.dataset}, {size} target images, mean over {p.repeats} seed(s)). SSIM to the nearest target with its 95 % interval. *matching*: among the targets of the same class, or among all where there are no labels. The larger choice is an easier one, so only *SSIM, all classes*, where everything is matched among all, may be compared across the whole table. *gap*: SSIM to target images minus SSIM to as many holdout images, with the *p* of a randomization test; the last columns: the target model's confidence, and the accuracy of two evaluators. NaN: the attack does not label its output, or cannot run on this target.",
    provenance=made_by,
)
refused = [(results.title(cell), study.explain_unsupported(cell)) for cell in main[: len(names)]]
refused = [(title, reason) for title, reason in refused if reason]
if refused:
    display(Markdown("\n".join(f"- **{title}** did not run: {reason}." for title, reason in refused)))

# %% [markdown]
# ## The pictures of each page


# %% tags=["hide-input"]
def shown(cell, count: int = 8):
    """The first reconstructions of a cell with what they must be compared with."""
    made = results.reconstruction(cell)
    target, holdout = results.target_and_holdout(cell)
    labels = None if made.labels is None else made.labels[:count]
    return plots.comparison_rows(made.images[:count], labels, target, holdout)


able = [name for name in names if study.explain_unsupported(p.cell(size, p.seed, name)) is None]
for name in able:
    cell = p.cell(size, p.seed, name)
    rows, marks = shown(cell)
    row = table[(table.metric == "SSIM") & (table.attack == results.title(cell))].iloc[0]
    kind = "training" if cell.target.update is None else "update"
    report.figure(
        plots.image_rows(rows, marks=marks),
        id=f"attack-{name.replace('_', '-').replace(':', '-').lower()}",
        alt=f"Four rows of {len(rows['reconstruction'])} images: reconstructions by {results.title(cell)}, and for each the nearest {kind} image, the nearest holdout image and the best possible image. Mean SSIM to the nearest {kind} image {row.value:.2f}.",
        caption=f"{results.title(cell)}: the first {len(rows['reconstruction'])} reconstructions, not chosen, and for each the nearest {kind} image, the nearest image that the model has never seen, and the best possible (the unseen image closest to that {kind} image). Numbers: SSIM.",
        provenance=results.provenance(table[table.attack == results.title(cell)], command),
        page=f"book/attacks/{name}" if ":" not in name else "",
    )

# %% [markdown]
# ## Have they converged?
#
# A number from an attack that was stopped early says how patient we were. So every attack runs again with fewer and with
# more steps than the profile gives it; each run is complete, its schedule of learning rates included. For an attack with a
# prior, the training of the prior is scaled too, with one seed, since that is what costs most.

# %% tags=["hide-input"]
grid = {key: found for key, found in p.convergence().items() if key[0] in able}
curve = convergence.curves(grid, profile=p.profile)
verdict = convergence.verdicts(curve)
for name, part in curve.groupby("name", sort=False):
    title = part.attack.iloc[0]
    told = "; ".join(
        f"{line.scaled} from {line.setting:g}: {line.value:.3f} to {line.at_most:.3f}"
        for line in verdict[verdict.name == name].itertuples()
    )
    some = [cell for key, found in grid.items() if key[0] == name for cell in found]
    report.figure(
        plots.convergence(part, "SSIM to the nearest target"),
        id=f"convergence-{name.replace('_', '-').replace(':', '-').lower()}",
        alt=f"SSIM of {title} against the number of steps. With {verdict.most.iloc[0]:g} times as many steps: {told}.",
        caption=f"{title}: SSIM against the length of the attack ({p.convergence_size} target images). Dotted: the profile's setting. Bars: 95 % intervals over images and seeds.",
        provenance=results.provenance(results.summary(some, profile=p.profile), command),
        page=f"book/attacks/{name}" if ":" not in name else "",
    )
words = {True: "**still moves**", False: "yes", None: "NaN: not known"}
report.table(
    pd.DataFrame(
        {
            "attack": verdict.attack,
            "what is scaled": verdict.scaled,
            "profile": [f"{value:g}" for value in verdict.setting],
            "seeds": verdict.seeds,
            "SSIM": verdict.value,
            f"SSIM at {max(p.multiples):g} times": verdict.at_most,
            "half its interval": verdict.margin,
            "converged": [words[moves] for moves in verdict.moves],
        }
    ),
    id="converged",
    caption=f"Converged, or said not to be. An attack *still moves* if {max(p.multiples):g} times as many steps change its SSIM by more than half the 95 % interval at the profile's setting. No conclusion of this book may rest on one that does.",
    provenance=results.provenance(
        results.summary([cell for found in grid.values() for cell in found], profile=p.profile), command
    ),
    formats={"SSIM": ".3f", f"SSIM at {max(p.multiples):g} times": ".3f", "half its interval": ".3f"},
)
report.value("still_moving", float(sum(moves is True for moves in verdict.moves)))
report.value("settings_scaled", float(len(verdict)))

# %% [markdown]
# ## What they cost


# %% tags=["hide-input"]
def cost(row: pd.Series, seeds: int) -> dict[str, str]:
    per_hundred = 100 * row.seconds / seeds / row.n
    return {
        "attack": row.name,
        "prior, seconds": number(row.prior_seconds / seeds, ".1f"),
        "100 reconstructions, seconds": number(per_hundred, ".2f"),
        "gradient calls each": number(row.gradient_calls / row.n, ".0f"),
        "queries each": number(
            (row.queries + (0 if math.isnan(row.prior_queries) else row.prior_queries)) / row.n, ".1f"
        ),
        "peak memory, MB": number(row.peak_memory_mb, ".0f"),
        "what it knows of its result": row.facts or "nothing",
        "hyperparameters": row.hyperparameters,
    }


ssim = table[table.metric == "SSIM"].set_index("attack")
costs = []
for name in able:
    title = results.title(p.cell(size, p.seed, name))
    costs.append(cost(ssim.loc[title], p.repeats))
    line = {key: value for key, value in costs[-1].items() if key != "attack"}
    report.table(
        pd.DataFrame({"": list(line), title: list(line.values())}),
        id=f"cost-{name.replace('_', '-').replace(':', '-').lower()}",
        caption=f"What {title} costs here, mean over {p.repeats} seed(s); queries include those of the prior.",
        provenance=results.provenance(table[table.attack == title], command),
        page=f"book/attacks/{name}" if ":" not in name else "",
    )
report.table(
    pd.DataFrame(costs).drop(columns=["what it knows of its result", "hyperparameters"]),
    id="costs",
    caption="What the attacks cost: one thread, mean over seeds. Seconds depend on the machine; calls do not.",
    provenance=made_by,
)

# %% [markdown]
# ## What does an attack add to its prior?
#
# A generative model that was trained on similar images draws plausible images without any attack. There are two ways to do
# without: to take samples as they come, with the labels of an unconditional model put on blindly, and to let the target
# choose the best of many. What the attack's *optimization* adds is the difference to the second, in the target model's
# confidence and, more telling, in the accuracy of an evaluator that the attack never saw.

# %% tags=["hide-input"]
judges = ["Confidence", *accuracies, "SSIM"]
best_of = f"best of {max(study.PRIOR_CANDIDATES, size):,}"
lines = []
for name in able:
    title = results.title(p.cell(size, p.seed, name))
    sampled, chosen = f"Prior sample ({title})", f"Best of the prior ({title})"
    if sampled not in set(table.attack):
        continue
    for metric in judges:
        rows = table[table.metric == metric].set_index("attack")
        best = rows.value.get(chosen, math.nan)
        lines.append(
            {
                "attack": title,
                "measure": metric,
                "prior sample": rows.value[sampled],
                best_of: best,
                "attack result": rows.value[title],
                "adds to the best": rows.value[title] - best,
            }
        )
added = pd.DataFrame(
    lines,
    columns=["attack", "measure", "prior sample", best_of, "attack result", "adds to the best"],
)
if len(added):
    report.table(
        added,
        id="prior-added",
        caption="Samples of each prior, the samples that the target is surest of, and the attack's result. A negative entry in the last column is a shortfall of the optimization, shown as measured. NaN: an attack without labels has no class to be sure of.",
        provenance=made_by,
        formats={**dict.fromkeys(added.columns[2:5], ".3f"), "adds to the best": "+.3f"},
    )
    report.value("added_accuracy", float(added[added.measure == accuracies[-1]]["adds to the best"].min()))

# %% [markdown]
# ## Deep-Leakage: one image, or a hundred?
#
# The paper's setting is one gradient of a batch of 100 images, on a convolutional network with ReLU. The attack became famous for
# another one: few images, a small network with sigmoids, before training. Both are run here with the same code, and are
# never mixed.


# %% tags=["hide-input"]
def against_all(cells: list) -> dict[str, float | str]:
    """Closeness to the images of the update, matched among all of them, also where a control has labels."""
    scores = [results.score(cell) for cell in cells]
    psnr = [score.tensors["PSNR.all_classes.values"].double() for score in scores]
    mean = {
        name: sum(score.data[f"SSIM.all_classes.{name}"] for score in scores) / len(scores)
        for name in ("distance", "coverage")
    }
    n, m = scores[0].data["n"], scores[0].data["targets"]
    return {
        "seeds": len(cells),
        "PSNR, dB (median)": sum(values.quantile(0.5).item() for values in psnr) / len(psnr),
        "share above 30 dB": sum((values > 30).double().mean().item() for values in psnr) / len(psnr),
        "SSIM": mean["distance"],
        "coverage": f"{mean['coverage']:.2f} (chance {1 - (1 - 1 / m) ** n:.2f})",
    }


gradient_cells = p.gradient_cells()
if gradient_cells:
    found = results.summary(gradient_cells, profile=p.profile)
    ordered = {cell.without_seed().model_dump_json(): cell for cell in gradient_cells}
    lines = []
    for cell in ordered.values():
        same = [other for other in gradient_cells if other.without_seed() == cell.without_seed()]
        per_gradient = cell.target.update.per_gradient
        seconds = rows_of(same, "PSNR").seconds.iloc[0] / len(same)
        told = {"images per gradient": per_gradient, "gradients": cell.target.update.size // per_gradient}
        lines.append({**told, **against_all(same), "seconds": f"{seconds:.1f}"})
    for control in ("noise", "holdout"):
        same = [cell for cell in p.gradient_controls() if cell.attack == control]
        if not any(study.explain_unsupported(cell) for cell in same):
            told = {"images per gradient": control.capitalize(), "gradients": ""}
            lines.append({**told, **against_all(same), "seconds": ""})
    batches = pd.DataFrame(lines)
    report.table(
        batches,
        id="gradient-batches",
        caption=f"Deep-Leakage on the sigmoid LeNet before training: {p.gradient_images} images of the update in gradients of one to {max(p.gradient_batches)}. Every reconstruction against its nearest image. Below, what noise and unseen images would score in their place.",
        provenance=results.provenance(found, command),
        formats={
            "PSNR, dB (median)": ".1f",
            "share above 30 dB": ".2f",
            "SSIM": ".3f",
        },
    )
    first = next(iter(ordered.values()))
    rows, marks = shown(first)
    report.figure(
        plots.image_rows(rows, marks=marks),
        id="gradient-batch-one",
        alt=f"Reconstructions from gradients of {first.target.update.per_gradient} image(s) each, with the nearest image of the update, the nearest holdout image and the best possible image. Median PSNR {lines[0]['PSNR, dB (median)']:.0f} dB.",
        caption=f"Gradients of {first.target.update.per_gradient} image(s) each: the first reconstructions, not chosen, and their nearest images of the update. {'The images themselves come back' if lines[0]['PSNR, dB (median)'] > 30 else 'With these settings the images do not come back'}; compare the row of the holdout.",
        provenance=results.provenance(results.summary([first], profile=p.profile), command),
    )
    report.value("psnr_batch_one", float(lines[0]["PSNR, dB (median)"]))

# %% [markdown]
# ## When there are only queries
#
# A white-box attack can be run on a *surrogate*: a model that was trained to answer like the black box, from auxiliary images
# (distillation) or from queries alone (data-free extraction). The table says how well the surrogate agrees with the box and how many
# queries it cost. BatchNorm statistics of a surrogate describe the queries and not the training images, so an attack that
# reads them reads the surrogate.

# %% tags=["hide-input"]
surrogate_cells = p.surrogate_cells()
reason = study.explain_unsupported(surrogate_cells[0])
if reason is None:
    found = results.summary(surrogate_cells, profile=p.profile)
    by = {metric: found[found.metric == metric].set_index("attack") for metric in found.metric.unique()}
    agreed_on = {
        "distillation": "held-out auxiliary images",
        "extraction": "new samples of its own generator",
    }
    lines = [
        {
            "attacked": title,
            "agreement": row.agreement,
            "agreement on": ""
            if math.isnan(row.agreement)
            else agreed_on[title.rpartition("(")[2].strip(")")],
            "queries": row.surrogate_queries,
            "SSIM": row.value,
            "confidence of the target": by["Confidence"].value[title],
            **{metric: by[metric].value[title] for metric in accuracies},
            "BatchNorm": "of queries" if row.synthetic_batchnorm else "of training images",
        }
        for title, row in by["SSIM"].iterrows()
    ]
    report.table(
        pd.DataFrame(lines),
        id="surrogates",
        caption=f"{get(p.surrogate_attack).title} on the white box itself, and on surrogates made of queries (one seed). *Agreement*: share of inputs, visible to the attacker and not trained on, on which surrogate and black box name the same class. The two kinds of surrogate are asked about different inputs, so their agreements do not compare.",
        provenance=results.provenance(found, command),
        formats={
            "agreement": ".3f",
            "queries": ",.0f",
            "SSIM": ".3f",
            "confidence of the target": ".3f",
            **dict.fromkeys(accuracies, ".3f"),
        },
    )

# %% [markdown]
# ## What can be said

# %%
# NBVAL_CHECK_OUTPUT
print(f"{len(able)} of {len(names)} attacks ran")

# %% tags=["hide-input"]
for name in able:
    title = results.title(p.cell(size, p.seed, name))
    word = name.rpartition(":")[2].lower()
    report.value(f"ssim_{word}", float(ssim.value[title]))
    report.value(f"coverage_{word}", float(ssim.coverage[title]))
rows = table[(table.metric == "SSIM") & (table.kind == "attack")].dropna(subset="value")
leaks = rows[(rows.gap > 0) & (rows.gap_p < 0.01)]
moving = verdict[verdict.moves == True].attack.unique()  # noqa: E712 - the column also holds None
settled = [
    title
    for title, part in verdict.groupby("attack", sort=False)
    if (part.moves == False).all()  # noqa: E712
]
best = rows[rows.attack.isin(settled)].sort_values("value_all_classes", ascending=False)
closest = "No attack is known to have converged, so none can be called the closest."
if len(best):
    closest = (
        f"Of the {len(best)} attacks that have converged, {best.attack.iloc[0]} comes first in SSIM to the nearest target of any class "
        f"({best.value_all_classes.iloc[0]:.3f}) and {best.attack.iloc[-1]} last ({best.value_all_classes.iloc[-1]:.3f}). "
        f"The holdout, which attacks nothing, has {ssim.value_all_classes.get('Holdout', math.nan):.3f}."
    )
report.value("gaps_found", float(len(leaks)))
Markdown(
    f"""- **Closest.** {closest}
- **Leak.** Of {len(rows)} gaps {len(leaks)} {"has" if len(leaks) == 1 else "have"} *p* < 0.01{": " + ", ".join(leaks.attack) if len(leaks) else ""}.
- **Converged.** {len(moving)} of {verdict.attack.nunique()} attacks still move{": " + ", ".join(moving) if len(moving) else ""}."""
)

# %% [markdown]
# ```{exercise}
# :label: ex-attacks-multiples
# Give the attacks a quarter of their steps in all of this chapter (`-p hyperparameters="{...}"`, one entry for each attack). Predict
# first which rows of {numref}`tab-ten-attacks` change, with the help of {numref}`tab-converged`.
# ```
#
# ```{solution} ex-attacks-multiples
# :class: dropdown
# Those that still move at the profile's setting must change. Those that have converged may stay, but nothing says that the curve is
# flat to the left of the dotted line: look at each attack's own figure.
# ```
