# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Measuring memorization
#
# :::{admonition} This chapter
# :class: tip
# **Needs** probabilities and means, and {doc}`when a reconstruction is good </notebooks/02_metrics>`. \
# **Gives** equations 1 and 2 of the paper, estimated with errors; positive controls; what a model score of 1.000
# can mean; and the first answer to whether memorized images are the ones that attacks get back. \
# **Minutes** 25 to read, 3 to run.
# :::
#
# The paper explains attacks by *memorization*: a sample is memorized if the model is right about it only
# because it was trained on it {cite:p}`feldman2020`. That is a statement about two worlds, and in one of them
# the sample is missing. So it cannot be read from one model, however closely one looks.

# %%
import math

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
import torch
from IPython.display import Markdown

from drlib import plots, published, report, results, sections, study
from drlib.metrics import memorization as mem
from drlib.metrics.sample import sample_distance

# %% tags=["parameters"]
profile: str = "laptop"  # the profile that supplies whatever is not set here (training, hyperparameters)
dataset: str = "digits"  # the data set whose target split is to be reconstructed
side: int = 16  # image height and width in pixels
channels: int = 1  # 1 for gray images, 3 for color
mode: str = "class"  # what a label means: the object class, or (lfw_subset) the single image
architecture: str = "convnet"  # the target model's architecture
width: float | None = None  # factor on the architecture's width; none: as published
target_size: int = 100  # images the target model is trained on
target_sizes: list = [
    50,
    100,
    400,
]  # sizes of the target data set whose memorization is measured, target_size among them
attacks: list = [
    "mi_face",
    "deep_dream",
    "deep_inversion",
    "kedmi",
    "inv_alignment",
]  # attacks to run: registered names, or module:Class for your own
controls: list = ["noise", "class_mean", "auxiliary_top", "holdout"]  # what stands beside every attack
seed: int = 0  # the first random seed (of target model and attack)
n: int | None = None  # reconstructions per target; none: as many as target images
models: int = 24  # models of each ensemble
ratio: float = 0.7  # share of the images that each model sees
flipped: float = 0.1  # positive control: share of wrong labels
fewer_classes: int | None = (
    2  # also measured with only so many classes and as many images per class; none: not
)
tiny_size: int = 20  # leave-one-out: images
tiny_models: int = 2  # leave-one-out: models for each image
extractor: str = "efficientnet_lite0"  # features of the Frechet distance
training: dict = {}  # changes to the profile's training of target models
hyperparameters: dict = {}  # changes to the profile's hyperparameters, by attack; none: the original paper's
root: str | None = None  # folder of downloaded data sets; none: $DRLIB_DATA or ~/.cache/drlib/data
download: bool = False  # may missing files be downloaded?

# %%
p = sections.from_notebook("memorization", globals())
ensembles = p.ensembles()
cells = p.attack_cells()
study.run(p.cells())
report.style()
COLORS = sns.color_palette("colorblind")


def answers(name: str) -> dict[str, torch.Tensor]:
    """What the models of an ensemble answered: inside, probability, correct, labels, flipped."""
    return results.ensemble(ensembles[name])


made_by = results.provenance_of(ensembles.values(), p.command(), p.profile)

# %%
# NBVAL_CHECK_OUTPUT
for name in ensembles:
    inside = answers(name)["inside"]
    sizes = " or ".join(str(size) for size in inside.sum(1).unique().tolist())
    print(f"{name:16} {len(inside):4} models, each trained on {sizes} of {inside.shape[1]} images")

# %% [markdown]
# ## Two worlds
#
# :::{prf:definition} Memorization, equation 1 of the paper
# :label: def-memorization
#
# For a training algorithm $\mathcal{A}$ and a data set $\mathcal{D}$ with sample $(x_i, y_i)$,
#
# $$
# \text{mem}(\mathcal{A}, \mathcal{D}, i) = \Pr_{f \sim \mathcal{A}(\mathcal{D})}[f(x_i) = y_i]
#   - \Pr_{f \sim \mathcal{A}(\mathcal{D}^{\setminus i})}[f(x_i) = y_i].
# $$
#
# The probability is over the training: initial parameters, the order of images. Equation 2 of the paper, the
# memorization of a *model*, is the mean of this over the first 1,000 training samples.
# :::
#
# **Before you read on, predict:** the model is right about all its training images. Is its memorization 1?
#
# It is not: the second term counts too. A plain 7 that the model would have recognized without having
# seen it is not memorized, although the model is right about it and saw it.
#
# ## The definition itself, where it can be afforded
#
# With few images we can do what the definition says: train on everything, and train without each image in
# turn (*leave-one-out*). That takes $n + 1$ times as many models as there are repetitions. The *subsampled*
# estimator {cite:p}`feldmanzhang2020` trains every model on a random share of the images and lets it serve twice:
# as a model *with* for the images in its share, as a model *without* for the others.

# %% tags=["hide-input"]
tiny, shared = answers("leave_one_out"), answers("tiny_subsampled")
n_tiny = tiny["inside"].shape[1]
exact = mem.memorization(tiny["inside"], tiny["probability"], usable=mem.complete_or_without(tiny["inside"]))
estimated = mem.memorization(shared["inside"], shared["probability"])
agreement = mem.rank_correlation(exact.values, estimated.values)
fig, ax = plt.subplots(figsize=(3.6, 3.4))
ax.errorbar(
    exact.values,
    estimated.values,
    yerr=2 * estimated.standard_error,
    xerr=2 * exact.standard_error,
    fmt="o",
    ms=4,
    lw=0.8,
    color=COLORS[0],
    ecolor="0.75",
)
ax.plot([-0.2, 1], [-0.2, 1], color="0.6", lw=0.8, ls=":")
ax.set(xlabel="leave-one-out", ylabel=f"subsampled, share {p.ratio:g}")
sns.despine(fig)
report.figure(
    fig,
    id="memorization-leave-one-out",
    alt=f"Scatter of {n_tiny} images: memorization by leave-one-out against the subsampled estimate, with error bars. Rank correlation {agreement:.2f}.",
    caption=f"Memorization of {n_tiny} images, by the definition ({len(tiny['inside'])} models) and by the subsampled estimator ({len(shared['inside'])} models). Bars: two standard errors. Dotted: equal. The estimator measures memorization at {int(p.ratio * n_tiny)} images, where more is missing, so points above the line are expected. Rank correlation {agreement:.2f}.",
    provenance=made_by,
)
report.value("memorization_exact", float(exact.values.mean()))
report.value("memorization_subsampled", float(estimated.values.mean()))

# %% [markdown]
# ```{note}
# The outcome here is the *probability* that the model gives to the label. Equation 1 counts right answers (0 or
# 1). That is another measure of the same thing: an unsure answer counts in part. Probabilities vary less, so that fewer models suffice;
# {numref}`tab-memorization-scores` has both.
# ```
#
# ## Which images are memorized?


# %% tags=["hide-input"]
def known(found: mem.Memorization) -> torch.Tensor:
    """The values that could be computed."""
    return found.values[found.values.isfinite()]


largest = max(p.target_sizes)
values = {
    size: mem.memorization(answers(f"n{size}")["inside"], answers(f"n{size}")["probability"])
    for size in p.target_sizes
}
target = p.images(largest)
order = values[largest].values.argsort(descending=True)
order = order[values[largest].values[order].isfinite()]
extremes = {
    "most memorized": order[:10],
    "in the middle": order[len(order) // 2 :][:10],
    "least memorized": order.flip(0)[:10],
}
marks = {name: values[largest].values[rows] for name, rows in extremes.items()}
report.figure(
    plots.image_rows({name: target.images[rows] for name, rows in extremes.items()}, marks=marks),
    id="memorized-images",
    alt=f"Ten images each with the largest, middle and smallest memorization among {largest}. Under each its memorization, from {float(marks['most memorized'][0]):.2f} down to {float(marks['least memorized'][0]):.2f}.",
    caption=f"Images of a target data set of {largest} by how much they are memorized (the number under each). On top are images that the rest of the data does not help with.",
    provenance=made_by,
)
fig, ax = plt.subplots(figsize=(4.6, 2.8))
for color, (size, found) in zip(COLORS, values.items(), strict=False):
    sns.ecdfplot(x=known(found).numpy(), complementary=True, ax=ax, color=color, label=f"{size} images")
ax.set(xlabel="memorization", ylabel="share of images above")
ax.legend(frameon=False)
sns.despine(fig)
above = {size: float((known(found) > 0.5).double().mean()) for size, found in values.items()}
report.figure(
    fig,
    id="memorization-distribution",
    alt="The share of images whose memorization is above a value, one line for each target size. Share above one half: "
    + ", ".join(f"{share:.2f} of {size}" for size, share in above.items())
    + ".",
    caption="How memorization is spread: the share of images above each value. A model score (equation 2) is the mean of these values. Above one half: "
    + ", ".join(f"{share:.0%} of {size}" for size, share in above.items())
    + ".",
    provenance=made_by,
)

# %% [markdown]
# ## Is it memorization? A control that must be
#
# Give some images a wrong label, at random. Nothing in the world explains these labels, so a model can give them
# only by memorizing. A method that does not find them memorized measures something else.

# %% tags=["hide-input"]
control = answers("flipped")
found = mem.memorization(control["inside"], control["probability"])
by_kind = {"wrong label": found.values[control["flipped"]], "true label": found.values[~control["flipped"]]}
fig, ax = plt.subplots(figsize=(4.6, 2.2))
for row, part in enumerate(by_kind.values()):
    jitter = torch.rand(len(part), generator=torch.Generator().manual_seed(0)) * 0.5 - 0.25
    ax.plot(part, row + jitter, "o", ms=3, alpha=0.7, color=COLORS[row])
ax.set_yticks(range(len(by_kind)), [f"{name} ({len(part)})" for name, part in by_kind.items()])
ax.axvline(0.5, color="0.6", lw=0.8, ls=":")
ax.set(xlabel="memorization", ylim=(-0.6, len(by_kind) - 0.4))
sns.despine(fig)
means = {name: float(part.nanmean()) for name, part in by_kind.items()}
report.figure(
    fig,
    id="memorization-flipped",
    alt=f"Memorization of images with a wrong label, mean {means['wrong label']:.2f}, and with their true label, mean {means['true label']:.2f}.",
    caption=f"Positive control: {len(by_kind['wrong label'])} of {len(found.values)} images were given a wrong label. Their memorization is {means['wrong label']:.2f} on average (it must be above 0.5: {'it is' if means['wrong label'] > 0.5 else '**it is not**'}), that of the others {means['true label']:.2f}.",
    provenance=made_by,
)
report.value("memorization_flipped", means["wrong label"])
report.value("memorization_clean", means["true label"])

# %% [markdown]
# ## The score of a model
#
# The paper's Table 2 has a row *Memorization* that falls from 1.000 to 0.301 while the target data set grows
# from 1,000 to 20,000 faces of always 1,000 persons. Two things change at once there: the number of images $n$ and
# the number of images per class $k$. Here they are taken apart, by leaving classes out.

# %% tags=["hide-input"]
lines = []
for name in p.scored():
    told, ensemble = answers(name), ensembles[name]
    inside, labels = told["inside"], told["labels"]
    usable = (
        mem.complete_or_without(inside) if ensemble.design == "leave_one_out" else torch.ones_like(inside)
    )
    present = usable & mem.class_present(inside, labels)
    score = mem.model_score(inside, told["probability"], usable=usable)
    counted = mem.model_score(inside, told["correct"].float(), usable=usable)
    kept = mem.model_score(inside, told["probability"], usable=present)
    reliability = (
        mem.split_half_reliability(inside, told["probability"], usable=usable)[1]
        if ensemble.design == "subsampled"
        else math.nan
    )
    classes = len(labels.unique())
    lines.append(
        {
            "n": len(labels), "classes": classes, "k": len(labels) / classes, "models": len(inside),
            "design": ensemble.design.replace("_", " "), "score": score.value, "± SE": score.standard_error,
            "0 or 1": counted.value, "reliability": reliability,
            "lost class": int((usable & ~present).sum()), "without these": kept.value, "no value": kept.left_out,
            "test accuracy": told["test_accuracy"],
        }
    )  # fmt: skip
scores = pd.DataFrame(lines)
report.table(
    scores,
    id="memorization-scores",
    caption="The memorization of a model (equation 2), with its standard error over models (jackknife). *0 or 1*: from right answers instead of probabilities. *reliability*: how well other models would rank the images alike (split halves, Spearman-Brown). *lost class*: answers about an image whose class was missing from the model's training set; *without these*: the score if they do not count; *no value*: images for which nothing is left then.",
    provenance=made_by,
    formats={
        "k": ".0f",
        "score": ".3f",
        "± SE": ".3f",
        "0 or 1": ".3f",
        "reliability": ".2f",
        "without these": ".3f",
        "test accuracy": ".2f",
    },
)
whole = scores[(scores.design == "subsampled")]
for row in whole.itertuples():
    report.value(f"memorization_n{row.n}_c{row.classes}", row.score)

# %% tags=["hide-input"]
fig, axes = plt.subplots(1, 2, figsize=(report.WIDTH, 2.7), sharey=True)
for color, (classes, part) in zip(COLORS, whole.groupby("classes"), strict=False):
    part = part.sort_values("n")
    for ax, column in zip(axes, ("n", "k"), strict=True):
        ax.errorbar(
            part[column],
            part.score,
            2 * part["± SE"],
            marker="o",
            ms=4,
            capsize=3,
            color=color,
            label=f"{classes} classes",
        )
for ax, title in zip(axes, ("images n", "images per class k"), strict=True):
    ax.set_xscale("log")
    ax.set_xlabel(title)
    ax.minorticks_off()
axes[0].set_xticks(sorted(whole.n), [str(n) for n in sorted(whole.n)])
axes[1].set_xticks(sorted(set(whole.k)), [f"{k:g}" for k in sorted(set(whole.k))])
axes[0].set_ylabel("memorization of the model")
axes[0].legend(frameon=False)
sns.despine(fig)


def spread(column: str) -> float:
    """Mean absolute difference of scores at an equal value of a column, between numbers of classes."""
    by = whole.groupby(column).score
    return float(by.apply(lambda values: values.max() - values.min())[by.size() > 1].mean())


at_equal_k = spread("k")
report.figure(
    fig,
    id="memorization-n-k",
    alt="The memorization of a model against the number of images, left, and against the number of images per class, right, a line for each number of classes. "
    + "; ".join(f"n {row.n}, {row.classes} classes: {row.score:.2f}" for row in whole.itertuples())
    + ".",
    caption=f"The same scores against n and against k. At equal k, {'the lines differ by ' + format(at_equal_k, '.2f') + ' on average' if not math.isnan(at_equal_k) else 'only one number of classes was run'}. Bars: two standard errors over models, not over the draw of the images.",
    provenance=made_by,
)

# %% [markdown]
# ### A score of 1.000 by construction
#
# At its smallest size the paper has one image per person. Leave it out, and the class is gone: no model can ever
# give its label. So the score is 1 whatever the model does, if only it learns its training set. It says nothing about
# how vulnerable these images are. The last row of {numref}`tab-memorization-scores` does the same here.

# %% tags=["hide-input"]
alone = scores[scores.k == 1]
paper = published.load("memorization")
paper = paper[(paper.paper_table == 2)].sort_values("target_size")
text = (
    "Published (Table 2, CelebA, VGG16): "
    + ", ".join(f"{row.target_size:,}: {row.memorization:.3f}" for row in paper.itertuples())
    + ". "
)
if len(alone):
    row = alone.iloc[0]
    text += f"Here, with one image in each of {row.classes} classes: {row.score:.3f}; without the answers about lost classes nothing is left ({row['no value']} of {row.n} images have no value). "
    report.value("memorization_alone", float(row.score))
Markdown(text)

# %% [markdown]
# ## Are memorized images the ones that come back?
#
# This is the paper's question. Both are measured per image here: how much it is memorized, and how close the
# closest reconstruction of its class comes. If memorization made images vulnerable, the two would go together *within
# one model*, where everything else is equal.

# %% tags=["hide-input"]
size = p.target_size
own = mem.memorization(answers(f"n{size}")["inside"], answers(f"n{size}")["probability"]).values
private = p.images(size)


def closeness(cell) -> torch.Tensor:
    """For each target image the SSIM of the closest reconstruction (in its class, if labeled)."""
    rec = results.reconstruction(cell)
    labels = None if rec.labels is None else private.labels
    return sample_distance(private.images, rec.images, "ssim", labels, rec.labels).values.double()


joined = []
ranked = own.argsort(descending=True)
ranked = ranked[own[ranked].isfinite()]
fifth = max(1, len(ranked) // 5)
for cell in cells:
    if study.explain_unsupported(cell) is not None:
        continue
    near = closeness(cell)
    joined.append(
        {
            "attack": results.title(cell),
            "rank correlation": mem.rank_correlation(own, near),
            "inside classes": mem.rank_correlation(own, near, private.labels),
            "p": mem.permutation_p_value(own, near, private.labels),
            "most memorized fifth": float(near[ranked[:fifth]].mean()),
            "least memorized fifth": float(near[ranked[-fifth:]].mean()),
        }
    )
joined = pd.DataFrame(joined)
report.table(
    joined,
    id="memorization-leakage",
    caption=f"For each of {len(ranked)} target images (of {size}; the others have no value): how much it is memorized, and the SSIM of the closest reconstruction. Rank correlation over images (negative: memorized images are *farther*); the same with ranks *inside classes*, since classes differ in both; *p* by shuffling inside classes, two-sided; and the mean SSIM of the most and the least memorized fifth. A correlation that the controls have too is no effect of an attack.",
    provenance=made_by,
    formats={
        "rank correlation": "+.2f",
        "inside classes": "+.2f",
        "p": ".3f",
        "most memorized fifth": ".3f",
        "least memorized fifth": ".3f",
    },
)
fig, ax = plt.subplots(figsize=(4.6, 3.0))
first = next((c for c in cells if not c.is_control and study.explain_unsupported(c) is None), None)
if first is not None:
    ax.plot(own, closeness(first), "o", ms=3, color=COLORS[0])
    ax.set(
        xlabel="memorization of the target image",
        ylabel=f"SSIM of the closest\n{results.title(first)} reconstruction",
    )
    sns.despine(fig)
    report.figure(
        fig,
        id="memorization-joined",
        alt=f"Scatter of {size} target images: memorization against the similarity of the closest reconstruction by {results.title(first)}; rank correlation {joined['rank correlation'].iloc[0]:+.2f}.",
        caption=f"Image by image for {results.title(first)}: rank correlation {joined['rank correlation'].iloc[0]:+.2f}.",
        provenance=made_by,
    )

# %% tags=["hide-input"]
attacks_only = joined[~joined.attack.isin([results.title(c) for c in cells if c.is_control])]
controls_only = joined[~joined.attack.isin(attacks_only.attack)]["inside classes"].dropna()
inside_classes = attacks_only["inside classes"]
told = f"""**What was measured here** (one data set, {size} images, one seed). Inside classes, {int((inside_classes < 0).sum())} of {len(attacks_only)} attacks are *farther* from memorized images than from others
and {int((inside_classes > 0).sum())} closer. """
if len(controls_only):
    beyond = attacks_only[(inside_classes > controls_only.max()) & (attacks_only.p < 0.05)]
    told += f"""The controls, none of which contains a training image, lie between {controls_only.min():+.2f} and {controls_only.max():+.2f}. Above all controls and with *p* below .05:
{", ".join(beyond.attack) or "no attack"}. A correlation across images (or across models) that controls show as well says what kind of images are memorized; that memorization makes images leak needs an attack beyond the controls."""
else:
    told += "No control was run, so nothing can be said of the attacks: images that are far from everything are memorized, too."
Markdown(told)

# %% [markdown]
# ## What to take along
#
# 1. Memorization compares two worlds; being right about a training image is not memorization.
# 2. An estimate needs its standard error, and other models need to rank the images alike.
# 3. A class that vanishes makes memorization 1 by construction; report it.
# 4. Across models of different size, $n$ and $k$ change together. Within one model the question can be asked image by
#   image, and the controls have to be asked too.
#
# ```{exercise}
# :label: ex-memorization-nn
# A 1-nearest-neighbor classifier is deterministic. Its training points are 0, 1, 2 (class A), 10, 11 (class B) and
# 12.5 (class A, though among B's). Which points are memorized, and what is the model's score?
# ```
#
# ```{solution} ex-memorization-nn
# :class: dropdown
# With all points, each is its own nearest neighbor: always right. Without 12.5 its nearest is 11, class B: wrong, so
# its memorization is 1. Every other point keeps a neighbor of its class that is nearest when it is left out: 0. The
# score is 1/6.
# ```
#
# ```{exercise}
# :label: ex-memorization-flipped
# Run the chapter with more wrong labels (`-p flipped=0.3`). Predict first: do the wrong labels become more or less
# memorized, and what happens to the images with true labels?
# ```
#
# ```{solution} ex-memorization-flipped
# :class: dropdown
# Less: with many wrong labels some images that look alike share the same wrong label by chance, which then helps a
# model that has not seen the one. They stay far above 0.5, as long as the network can fit them. And they spoil the help
# that the other images give: a true label now has less support from the rest, so *its* memorization rises.
# ```
