# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Why not accuracy?
#
# :::{admonition} This chapter
# :class: tip
# **Needs** {doc}`when a reconstruction is good </notebooks/02_metrics>`. \
# **Gives** the counterexamples of Figure 7, made anew: a training set without a single recognizable image that trains a
# good model, and noise that a network is sure of; and what happens to a ranking when the judge changes. \
# **Minutes** 20 to read, 2 to run.
# :::
#
# Many papers measure reconstructions by a classifier: does a model trained on them work (*accuracy (train)*)? Does a
# model trained on real data recognize them (*accuracy (test)*)? How far are they from their class in its *feature
# space*? Section 4.1 of the paper argues against all three. An argument by counterexample can be checked.

# %%
import math

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
import torch
from IPython.display import Markdown
from scipy.stats import kendalltau

from drlib import models, plots, report, results, sections, study
from drlib.metrics.feature_distance import centroid_distance
from drlib.metrics.sample import sample_distance
from drlib.stored_model import restore
from drlib.training import accuracy, penultimate, predict, train

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
    "kedmi",
    "inv_alignment",
    "bias_rec",
]  # attacks to run: registered names, or module:Class for your own
controls: list = ["noise", "class_mean", "auxiliary_top", "holdout"]  # what stands beside every attack
seed: int = 0  # the first random seed (of target model and attack)
n: int | None = None  # reconstructions per target; none: as many as target images
judge: str = "convnet"  # the evaluation network that is fooled
epsilon: float = 0.1  # the robust evaluator: largest change of a pixel in its training
generated_images: int = 5000  # images of the generated training set
extractor: str = "efficientnet_lite0"  # features of the Frechet distance
training: dict = {}  # changes to the profile's training of target models
hyperparameters: dict = {}  # changes to the profile's hyperparameters, by attack; none: the original paper's
root: str | None = None  # folder of downloaded data sets; none: $DRLIB_DATA or ~/.cache/drlib/data
download: bool = False  # may missing files be downloaded?

# %%
p = sections.from_notebook("accuracy", globals())
study.run(p.cells())
report.style()
COLORS = sns.color_palette("colorblind")
attack_cells = [
    cell
    for cell in [*p.attack_cells(), *([] if p.judged_cell() in p.attack_cells() else [p.judged_cell()])]
    if cell.target.update is None and study.explain_unsupported(cell) is None
]
table = results.summary(attack_cells, profile=p.profile)
made_by = results.provenance(table, p.command())
attacked = p.target(p.target_size, p.seed)
private, holdout, test = p.private(), p.splits().holdout, p.splits().test


def nearest_ssim(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """SSIM of each image with the nearest target image of its class."""
    return sample_distance(images, private.images, "ssim", labels, private.labels).values


def balanced_rows(labels: torch.Tensor, per_class: int) -> torch.Tensor:
    """Rows of up to ``per_class`` images of each class, class by class."""
    return torch.cat([(labels == c).nonzero().flatten()[:per_class] for c in labels.unique()])


# %% [markdown]
# ## Accuracy (train)
#
# *If a model trained on the reconstructions classifies real images well, the reconstructions must be good.*
#
# Data-free model extraction {cite:p}`truong2021` needs no image at all: a generator draws queries, the target answers, and a
# model is trained on the pairs. Keep the queries with the target's answers as labels: a training set made of nothing
# but questions. Now train a *fresh* model on it, with the target's own recipe.

# %% tags=["hide-input"]
generated = results.artifact(p.generated())
fake, fake_labels = generated.tensors["images"], generated.tensors["labels"]
fake_classes = fake_labels.unique()
rows = balanced_rows(fake_labels, 1)
real_rows = torch.cat([(private.labels == c).nonzero().flatten()[:1] for c in fake_labels[rows]])
shown = slice(0, 10)
report.figure(
    plots.image_rows(
        {
            "generated set": fake[rows][shown],
            "its nearest target": private.images[
                sample_distance(fake[rows], private.images, "ssim", fake_labels[rows], private.labels).nearest
            ][shown],
            "the class in D_tar": private.images[real_rows][shown],
        },
        marks={"generated set": nearest_ssim(fake[rows], fake_labels[rows])[shown]},
    ),
    id="figure-7a-shape",
    alt=f"One image of each class of the generated training set, above their nearest target images and a target image of the class. Their SSIM to the nearest target image is {float(nearest_ssim(fake, fake_labels).mean()):.2f} on average.",
    caption=f"The shape of Figure 7a: the first image of each class of a generated training set (with SSIM to the nearest target image), the target image nearest to it, and a target image of the same class. {len(fake):,} such images were used.",
    provenance=made_by,
)

# %%
# NBVAL_CHECK_OUTPUT
print(
    f"{len(fake)} generated images, classes {sorted(fake_labels.unique().tolist())}, {generated.data['queries']} queries"
)

# %% [markdown]
# What does a fresh model learn from it, compared with other training sets of the target's size or larger?

# %% tags=["hide-input"]
target, recipe = results.white_box(attacked), attacked.training


def accuracy_train(images: torch.Tensor, labels: torch.Tensor) -> float:
    """Test accuracy of a fresh model of the target's kind that is trained on these images."""
    if len(labels.unique()) < 2:
        return math.nan
    model = models.build(
        target.spec.architecture,
        shape=target.spec.shape,
        num_classes=target.spec.num_classes,
        width=target.spec.recipe["width"],
        generator_seed=1 + p.seed,
    )
    train(model, images, labels, recipe, seed=1 + p.seed)
    return accuracy(model, test.images, test.labels)


generator = torch.Generator().manual_seed(p.seed)
noise = torch.rand((len(fake), *target.spec.shape), generator=generator)
noise_labels = torch.cat([target.query(part).cpu() for part in noise.split(1024)]).argmax(1)
shuffled = private.labels[torch.randperm(len(private), generator=generator)]
trained_on = {
    "the target data set": (private.images, private.labels),
    "generated set": (fake, fake_labels),
    "uniform noise, labeled by the target": (noise, noise_labels),
    "the target data set, labels shuffled": (private.images, shuffled),
}
for cell in attack_cells:
    rec = results.reconstruction(cell)
    if rec.labels is not None:
        trained_on[results.title(cell)] = (rec.images, rec.labels)
lines = [
    {
        "trained on": name, "images": len(images), "accuracy (train)": generated.data["accuracy"] if name == "generated set" else accuracy_train(images, labels),
        "SSIM to the nearest target": float(nearest_ssim(images, labels).mean()),
    }
    for name, (images, labels) in trained_on.items()
]  # fmt: skip
train_table = pd.DataFrame(lines)
by_name = train_table.set_index("trained on")
report.table(
    train_table.sort_values("accuracy (train)", ascending=False),
    id="accuracy-train",
    caption=f"Test accuracy of fresh models (same architecture and recipe) by what they were trained on, and how similar that is to the target images. The target model itself: {generated.data['target_accuracy']:.2f}; the model that was extracted along the way: {generated.data['student_accuracy']:.2f}.",
    provenance=made_by,
    formats={"accuracy (train)": ".3f", "SSIM to the nearest target": ".3f"},
)
fake_row = by_name.loc["generated set"]
report.value("accuracy_train_generated", float(fake_row["accuracy (train)"]))
report.value("ssim_generated", float(fake_row["SSIM to the nearest target"]))
better = [
    name
    for name in by_name.index
    if name not in ("generated set", "the target data set", "the target data set, labels shuffled")
    and by_name["accuracy (train)"][name] < fake_row["accuracy (train)"]
    and by_name["SSIM to the nearest target"][name] > fake_row["SSIM to the nearest target"]
]
Markdown(
    f"The generated set trains a model with accuracy {fake_row['accuracy (train)']:.2f} (chance {1 / target.spec.num_classes:.2f}) at SSIM {fake_row['SSIM to the nearest target']:.2f}. "
    + (
        f"**Counterexample:** by accuracy (train) it beats {', '.join(better)}, each of which is more similar to the target images."
        if better
        else "It beats nothing that is more similar to the target images, so with these settings it is no counterexample."
    )
)

# %% [markdown]
# ## Accuracy (test)
#
# *If a model trained on real data is sure of a reconstruction's class, it must show that class.*
#
# MI-Face against the judge itself: start from random pixels and change them until the evaluation model is sure. Then ask
# two other judges: a network of another kind, and one that was trained on adversarial images {cite:p}`madry2018`, which had to keep
# its answer under every change of up to a given size a pixel.

# %% tags=["hide-input"]
fooling = p.fooling_cell()
made = results.reconstruction(fooling)
judge = results.white_box(fooling.target)
robust_artifact = results.artifact(p.robust())
robust = restore(robust_artifact)
evaluators = {name: results.evaluator(p.judged_cell(), name) for name in attacked.evaluators()}
other = next(model for name, model in evaluators.items() if name != p.judge)


def confidence(model, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return predict(model.model, images).gather(1, labels[:, None])[:, 0]


sure = confidence(judge, made.images, made.labels)
report.figure(
    plots.image_rows({"MI-Face": made.images[:10]}, marks={"MI-Face": sure[:10]}),
    id="figure-7b-shape",
    alt=f"{len(made.images[:10])} images by MI-Face; under each the evaluation model's confidence in its class, {float(sure[:10].min()):.2f} to {float(sure[:10].max()):.2f}.",
    caption=f"The shape of Figure 7b: images by MI-Face, and the confidence of the evaluation model ({fooling.target.architecture}, trained on {fooling.target.size} real images) in their class. {float((sure > 0.9).double().mean()):.0%} of {len(sure)} are above 0.9.",
    provenance=made_by,
)
judges = {
    f"{fooling.target.architecture} (attacked)": judge,
    other.spec.architecture: other,
    f"{robust.spec.architecture}, adversarially trained": robust,
}
looked_at = {
    "noise that the first judge is sure of": (made.images, made.labels),
    "real unseen images": (holdout.images, holdout.labels),
}
lines = []
for name, (images, labels) in looked_at.items():
    row = {"images": name, "SSIM to the nearest target": float(nearest_ssim(images, labels).mean())}
    for who, model in judges.items():
        probabilities = predict(model.model, images)
        row[who] = float((probabilities.argmax(1) == labels).double().mean())
    lines.append(row)
judged = pd.DataFrame(lines)
report.table(
    judged,
    id="accuracy-test",
    caption=f"Accuracy (test) of the same images with three judges. The adversarially trained one keeps {robust_artifact.data['adversarial_accuracy']:.2f} accuracy on test images changed by up to {p.epsilon:g} a pixel ({robust_artifact.data['test_accuracy']:.2f} on unchanged ones).",
    provenance=made_by,
    formats=dict.fromkeys(judged.columns[1:], ".3f"),
)
report.value("confident_share", float((sure > 0.9).double().mean()))
report.value("confident_ssim", float(judged.iloc[0]["SSIM to the nearest target"]))
report.value("confident_other", float(judged.iloc[0][other.spec.architecture]))
report.value("confident_robust", float(judged.iloc[0].iloc[-1]))

# %% [markdown]
# **Before you read on, predict:** if one judge can be fooled, can we simply take a better one, and will it rank *attacks* alike?
#
# ## Another judge, another order
#
# Every labeled attack and control, judged by accuracy and by feature distance (how far an image's features are from the
# mean of its class, in units of a real image's distance), with three judges each.

# %% tags=["hide-input"]
panel = {**evaluators, f"robust {robust.spec.architecture}": robust}
lines = []
for cell in attack_cells:
    rec = results.reconstruction(cell)
    if rec.labels is None or cell.control == "holdout":
        continue
    row = {"attack": results.title(cell), "SSIM": float(nearest_ssim(rec.images, rec.labels).mean())}
    for name, model in panel.items():
        row[f"accuracy, {name}"] = float(
            (predict(model.model, rec.images).argmax(1) == rec.labels).double().mean()
        )
    for name, model in panel.items():
        space = lambda images, model=model: penultimate(model.model, images)  # noqa: E731
        row[f"distance, {name}"] = float(
            centroid_distance(space(rec.images), rec.labels, space(private.images), private.labels).mean()
        )
    lines.append(row)
ranks = pd.DataFrame(lines)
report.table(
    ranks,
    id="judges",
    caption="Accuracy (test) (higher is better) and feature distance (lower is better; 1: as far from the class mean as a target image) of the same reconstructions with three judges, beside SSIM to the nearest target image.",
    provenance=made_by,
    formats={name: ".3f" if name == "SSIM" else ".2f" for name in ranks.columns[1:]},
)
measures = {
    name: (ranks[name] if not name.startswith("distance") else -ranks[name]) for name in ranks.columns[1:]
}
tau = pd.DataFrame(
    [[kendalltau(a, b).statistic for b in measures.values()] for a in measures.values()],
    index=measures,
    columns=measures,
)
fig, ax = plt.subplots(figsize=(5.6, 4.4))
sns.heatmap(
    tau,
    vmin=-1,
    vmax=1,
    cmap="vlag",
    annot=True,
    fmt=".2f",
    annot_kws={"size": 7},
    ax=ax,
    cbar_kws={"label": "Kendall's tau"},
)
ax.tick_params(labelsize=7)
ax.set_xticklabels(ax.get_xticklabels(), rotation=30, ha="right")
pairs = [
    (a, b, tau.loc[a, b])
    for i, a in enumerate(measures)
    for b in list(measures)[i + 1 :]
    if a.partition(",")[0] == b.partition(",")[0]
]
report.figure(
    fig,
    id="judges-tau",
    alt="Heat map of rank agreement (Kendall's tau) between the measures and judges. Between judges of one measure: "
    + "; ".join(f"{a} and {b} {value:.2f}" for a, b, value in pairs)
    + ".",
    caption="Do measures and judges rank the attacks alike? Kendall's tau: 1 the same order, 0 none, -1 the reverse. One judge against another within a measure: "
    + "; ".join(
        f"{a.partition(', ')[0]} of {a.partition(', ')[2]} and {b.partition(', ')[2]} {value:.2f}"
        for a, b, value in pairs
    )
    + ".",
    provenance=made_by,
)
swaps = []
for a, b, _ in pairs:
    x, y = measures[a].to_numpy(), measures[b].to_numpy()
    swaps += [
        (a, b, ranks.attack[i], ranks.attack[j])
        for i in range(len(x))
        for j in range(i)
        if (x[i] - x[j]) * (y[i] - y[j]) < 0
    ]
is_attack = ~ranks.attack.isin([results.title(cell) for cell in attack_cells if cell.is_control])


def winner(values: pd.Series) -> str:
    """The best attack (controls do not compete), or those that share the place."""
    values = values[is_attack].dropna()
    return " and ".join(ranks.attack[values.index[values == values.max()]]) or "nobody (NaN)"


winners = {name: winner(values) for name, values in measures.items()}
report.value("order_swaps", len(swaps))
Markdown(
    f"Between two judges of one measure, {len(swaps)} pairs of attacks or controls (of {len(pairs) * len(ranks) * (len(ranks) - 1) // 2} comparisons) change their order. The winning attack is "
    + "; ".join(f"**{winner}** by {name}" for name, winner in winners.items())
    + "."
)

# %% [markdown]
# ## What to take along
#
# 1. A training set can teach a model everything and show nothing.
# 2. A network's confidence is a fact about the network.
# 3. Whoever reports accuracy (test) or feature distance must name the judge, and use two that differ in kind.
#
# ```{exercise}
# :label: ex-accuracy-labels
# In {numref}`tab-accuracy-train`, one row is uniform noise labeled by the target. What is in such a training set about the
# target's training images, and why can a model learn from it at all (or not)?
# ```
#
# ```{solution} ex-accuracy-labels
# :class: dropdown
# Only the target's answers. They are a function of its parameters, and so of its training images, but noise asks about a
# corner of the image space where the answers may hardly vary; then little is learned. The generator moves to where they do.
# ```
#
# ```{exercise}
# :label: ex-accuracy-epsilon
# Make the judge less robust (`-p epsilon=0.05`). Predict: does its verdict on the noise move towards the attacked
# judge's? What does that say about "take a better judge"?
# ```
#
# ```{solution} ex-accuracy-epsilon
# :class: dropdown
# With a small epsilon it tends to agree more with the plain networks. So the verdict depends on a training parameter of the judge,
# which has nothing to do with the reconstruction.
# ```
