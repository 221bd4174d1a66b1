# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # When is a reconstruction good?
#
# :::{admonition} This chapter
# :class: tip
# **Needs** means and variances. \
# **Gives** Definitions 4.1 to 4.4, a picture of what each property means, and what cannot hold as printed. \
# **Minutes** 30 to read, 1 to run.
# :::
#
# No attack is run in this chapter. We play the adversary ourselves and hand in sets of images whose quality we know:
# exact copies, one copy many times, noise, blurred images, the mean of a class. Then we watch what the metrics say.
# A metric that cannot tell these apart will not judge a real attack either.

# %%
import math
import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
import torch
from IPython.display import Markdown
from matplotlib.patches import ConnectionPatch
from torchvision.transforms import functional as TF

from drlib import data, metrics, report, sections
from drlib.errors import UserError

# %% tags=["parameters"]
profile: str = "laptop"  # the profile that supplies whatever is not set here (training, hyperparameters)
dataset: str = "digits"  # the data set whose target split is to be reconstructed
side: int = 16  # image height and width in pixels
channels: int = 1  # 1 for gray images, 3 for color
mode: str = "class"  # what a label means: the object class, or (lfw_subset) the single image
root: str | None = None  # the folder with the data set's files, where it is not inside a package
download: bool = False  # whether the data set may be downloaded
target_size: int = 100  # images in the target data set
seed: int = 0  # seed of the disturbances shown

# %%
p = sections.from_notebook("metrics", globals())
started = time.perf_counter()
splits = data.load_splits(p.data_spec())
target = data.target_subset(splits, p.target_size)
x, labels = target.images, target.labels  # the target data set
unseen, unseen_labels = splits.holdout.images[: len(x)], splits.holdout.labels[: len(x)]
if not len(unseen):
    raise UserError("this chapter needs holdout images, and this data set has none in this mode")
n, m = len(x), len(unseen)
K = len(splits.classes)
print(f"{n} targets of {K} classes, {m} holdout images, each {tuple(x.shape[1:])}, in [0, 1]")

# %% tags=["hide-input"]
sns.set_theme(context="notebook", style="ticks", palette="colorblind", font_scale=0.9)
COLORS = sns.color_palette("colorblind")


def made(what: str = "") -> str:
    """The provenance line of a figure or table."""
    facts = [
        f"Made by `{p.command()}`",
        f"{p.dataset} {p.side}×{p.side}",
        f"seed {p.seed}",
        f"n = {n}, m = {m}",
        what,
        f"CPU, threads: {torch.get_num_threads()}",
        f"torch {torch.__version__}",
        f"{time.perf_counter() - started:.0f} s since the start",
    ]
    return " · ".join(fact for fact in facts if fact)


def show(ax, image, frame=None, alpha=1.0) -> None:
    """One image (c, h, w) with sharp pixels and, if given, a colored frame."""
    ax.imshow(image.permute(1, 2, 0).squeeze(), cmap="gray", vmin=0, vmax=1, alpha=alpha)
    ax.set(xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set(visible=True, color=frame or "0.8", linewidth=3 if frame else 0.5)


# %% [markdown]
# ## Four properties
#
# {cite:t}`wen2025` ask four things of a metric for data reconstruction.
#
# - **Quantifiability**: it is a number, not somebody's impression.
# - **Consistency**: the same two data sets give the same number, whatever the time, place and order.
# - **Precision**: it knows how similar a reconstructed sample is to a target sample.
# - **Diversity**: it knows which share of the target data set was reconstructed.
#
# The last two pull in different directions, and no single number holds both. So the definitions come in two levels:
# samples (Definition 4.2) and the data set as a whole (Definition 4.1). We begin with samples, where everything can be
# seen.
#
# ## Close to what?
#
# :::{prf:definition} Sample-level metric (Definition 4.2 of the paper)
# :label: def-sample-level
#
# A sample-level metric $\mu : \mathbb{D} \times \mathbb{D} \to \mathbb{R}^2$ takes the reconstructed and the target
# data set to two numbers, $(\text{S-Dis}, \alpha) = \mu(\mathcal{A}^{k}(m), \mathcal{D}_{\mathrm{tar}})$. The first is
# the mean distance to the nearest target,
#
# $$
# \text{S-Dis} = \frac{1}{|\mathcal{A}^{k}(m)|} \sum_{x_i \in \mathcal{A}^{k}(m)} d(x_i, f(x_i)),
# $$ (eq-s-dis)
#
# where $f : \mathcal{A}^{k}(m) \to \mathcal{D}_{\mathrm{tar}}$ takes $x_i$ to the target with the smallest distance
# $d$ to it. The second is the coverage,
#
# $$
# \alpha = \frac{|f(\mathcal{A}^{k}(m))|}{|\mathcal{D}_{\mathrm{tar}}|} \in (0, 1],
# $$ (eq-coverage)
#
# the share of the targets that are the nearest one of some reconstruction.
# :::
#
# As distance $d$ the paper uses the mean squared error (MSE), the peak signal-to-noise ratio (PSNR) and the structural
# similarity (SSIM) of {cite:t}`wang2004`. The last two are similarities: larger is closer, and $f$ looks for the
# largest. Everything below keeps the raw values, as the paper's tables do.
#
# A picture first. {numref}`fig-nearest-map` takes ten noisy images (above) and ten targets (below), and draws $f$.

# %% tags=["hide-input"]
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(p.seed)


def add_noise(images, strength):
    return (images + strength * torch.randn(images.shape, generator=generator())).clamp(0, 1)


few = min(10, m)
above, above_labels = add_noise(unseen[:few], 0.6), unseen_labels[:few]
below, below_labels = x[:few], labels[:few]
maps = {
    "inside the class": metrics.sample_distance(above, below, "ssim", above_labels, below_labels),
    "among all targets": metrics.sample_distance(above, below, "ssim"),
}
fig = plt.figure(figsize=(7, 5.4))
for panel, (title, found) in zip(fig.subfigures(2, 1), maps.items(), strict=True):
    axes = panel.subplots(2, few, gridspec_kw={"hspace": 1.1, "wspace": 0.15})
    hit = set(found.nearest.tolist())
    for i in range(few):
        show(axes[0, i], above[i])
        show(axes[1, i], below[i], alpha=1.0 if i in hit else 0.25)
    for i, j in enumerate(found.nearest.tolist()):
        same = above_labels[i] == below_labels[j]
        panel.add_artist(
            ConnectionPatch(
                (0.5, 0), (0.5, 1), "axes fraction", "axes fraction", axesA=axes[0, i], axesB=axes[1, j],
                arrowstyle="-|>", lw=1.8, color=COLORS[0] if same else COLORS[3], ls="-" if same else "--",
            )
        )  # fmt: skip
    panel.suptitle(
        f"{title}: S-Dis (SSIM) = {found.distance:.2f}, coverage = {len(hit)}/{few}", fontsize=11, y=1.0
    )
crossed = int((above_labels != below_labels[maps["among all targets"].nearest]).sum())
report.figure(
    fig,
    id="nearest-map",
    alt=f"Two panels, each with a row of {few} noisy images above and {few} targets below, joined by arrows from each noisy "
    f"image to its most similar target. Inside the class {len(maps['inside the class'].nearest.unique())} targets are hit, "
    f"among all targets {len(maps['among all targets'].nearest.unique())}; {crossed} arrows then end in another class.",
    caption="The map $f$ of Definition 4.2. Targets that nobody's arrow reaches are faded: they do not count for coverage. "
    "Red, dashed: the nearest target is of another class.",
    provenance=made("disturbance: Gaussian noise 0.6 on holdout images"),
)

# %% [markdown]
# In code the definition is four lines. Here it is in plain form, next to the library's function, which does the same
# in bounded memory, for three metrics, with and without classes.

# %%
# NBVAL_CHECK_OUTPUT
def definition_4_2(reconstructions, targets):
    """S-Dis and coverage for d = MSE, matching among all targets."""
    d = (reconstructions[:, None] - targets[None]).square().flatten(2).mean(2)  # d(x_i, x_j): (n, m)
    distance, f = d.min(1)  # d(x_i, f(x_i)) and f(x_i)
    return float(distance.mean()), len(f.unique()) / len(targets)


library = metrics.sample_distance(unseen, x, "mse")
for name, (distance, coverage) in {
    "four lines": definition_4_2(unseen, x),
    "drlib": (library.distance, library.coverage),
}.items():
    print(f"{name:10}  S-Dis (MSE) = {distance:.4f}   coverage = {coverage:.2f}")

# %% [markdown]
# ## Two numbers, because one can be had for free
#
# Now six sets of images, each as large as the target data set. Two of them have seen all targets, one has seen a few,
# and three have seen none.

# %%
first = torch.stack([(labels == c).nonzero()[0, 0] for c in range(K)])  # one target of each class
means = torch.stack([unseen[unseen_labels == c].mean(0) for c in range(K)])
toys = {
    "the targets themselves": (x, labels),
    "copies of one target per class": (x[first[labels]], labels),
    "every target under noise": (add_noise(x, 0.4), labels),
    "class means of the holdout": (means[labels], labels),
    "the holdout": (unseen, unseen_labels),
    "noise": (torch.rand(x.shape, generator=generator()), labels),
}
scores = {
    (name, metric): metrics.sample_distance(images, x, metric, of, labels)
    for name, (images, of) in toys.items()
    for metric in metrics.METRICS
}

# %% tags=["hide-input"]
shown = min(8, m)
fig, axes = plt.subplots(
    len(toys), shown + 1, figsize=(7, 5.6), width_ratios=[1] * shown + [3.2], gridspec_kw={"hspace": 0.45, "wspace": 0.1}
)
for row, (name, (images, _)) in zip(axes, toys.items(), strict=True):
    for ax, image in zip(row, images, strict=False):
        if ax is not row[-1]:
            show(ax, image)
    row[0].set_title(name, loc="left", fontsize=10, pad=3)
    found = scores[name, "ssim"]
    row[-1].axis("off")
    row[-1].text(0.05, 0.5, f"SSIM {found.distance:.2f}\ncoverage {found.coverage:.2f}", va="center", fontsize=10)
report.figure(
    fig,
    id="toy-reconstructions",
    alt="Six rows of images with their SSIM and coverage. "
    + "; ".join(f"{name}: SSIM {scores[name, 'ssim'].distance:.2f}, coverage {scores[name, 'ssim'].coverage:.2f}" for name in toys)
    + ".",
    caption="The first images of six sets, and the two numbers of Definition 4.2 for each whole set.",
    provenance=made("matching: class"),
)

# %% tags=["hide-input"]
rows = []
for name in toys:
    ssim, mse = scores[name, "ssim"], scores[name, "mse"]
    rows.append(
        {
            "set": name,
            "SSIM ↑": ssim.distance,
            "coverage (SSIM)": ssim.coverage,
            "MSE ↓": mse.distance,
            "coverage (MSE)": mse.coverage,
            "floor": mse.coverage_floor,
            "chance": mse.coverage_chance,
        }
    )
report.table(
    pd.DataFrame(rows),
    id="toy-reconstructions",
    caption="Sample-level metrics of six sets. Floor and chance of coverage are explained in the next section.",
    provenance=made("matching: class"),
    formats={"SSIM ↑": ".3f", "MSE ↓": ".4f"}
    | dict.fromkeys(["coverage (SSIM)", "coverage (MSE)", "floor", "chance"], ".3f"),
)

# %% [markdown]
# - **Copies of one target** have a perfect distance and the smallest coverage there is.
# - **Every target under noise** has a poor distance and a high coverage. Precision and diversity are independent, so
#   one number cannot stand for both.
# - **Class means** have seen no target, and they still score well: a mean image is close to everything. A good S-Dis
#   alone says little about leakage.
# - **The holdout** consists of real images on which no model was trained. It is what perfect *generalization* would
#   score, so it belongs into every table, and an attack has to beat it before anyone may speak of a leak.

# %% tags=["hide-input"]
mean_ssim = report.value("ssim_class_means", scores["class means of the holdout", "ssim"].distance)
real_ssim = report.value("ssim_holdout", scores["the holdout", "ssim"].distance)
noisy_ssim = report.value("ssim_noisy_targets", scores["every target under noise", "ssim"].distance)
Markdown(
    f"The order may surprise: by SSIM the class means score {mean_ssim:.3f}, real unseen images {real_ssim:.3f}, and the "
    f"targets themselves under noise, the only one of the three that leaks anything, {noisy_ssim:.3f}."
)

# %% [markdown]
# ## How much coverage is a lot?
#
# Coverage is never 0: each reconstruction has a nearest target, even if it is noise. Two reference points follow from
# counting. Take $K$ classes with $k$ targets each, and $n = Kk$ reconstructions with balanced labels.
#
# - The **floor** is one target per class, $1/k$. (Without classes: $1/|\mathcal{D}_{\mathrm{tar}}|$.)
# - The **chance** level is what blind guessing covers. If each of the $k$ reconstructions of a class hits one of its
#   $k$ targets at random, a given target is missed with probability $(1 - 1/k)^k$, so
#
# $$
# \mathbb{E}[\alpha] = 1 - \Bigl(1 - \frac{1}{k}\Bigr)^{k} \;\longrightarrow\; 1 - \frac{1}{e}
# \quad\text{for large } k.
# $$ (eq-coverage-chance)
#
# The paper's tables print coverage without these. {numref}`fig-coverage-chance` checks the formula by simulation and
# adds two sets of images.

# %%
ks = [k for k in (1, 2, 3, 5, 8, 12, 20, 40) if k * K <= n]
rng = np.random.default_rng(p.seed)
records = []
for k in ks:
    size = k * K
    hits = rng.integers(k, size=(200, K, k))  # 200 times: which target of its class each reconstruction hits
    simulated = [np.mean([len(np.unique(of_class)) / k for of_class in trial]) for trial in hits]
    noise = metrics.sample_distance(toys["noise"][0][:size], x[:size], "ssim", labels[:size], labels[:size])
    records.append(
        {
            "k": k,
            "floor": noise.coverage_floor,
            "chance": noise.coverage_chance,
            "simulated": np.mean(simulated),
            "sd": np.std(simulated),
            "noise, SSIM": noise.coverage,
            "noise, MSE": metrics.sample_distance(
                toys["noise"][0][:size], x[:size], "mse", labels[:size], labels[:size]
            ).coverage,
            "holdout, SSIM": metrics.sample_distance(
                unseen[:size], x[:size], "ssim", unseen_labels[:size], labels[:size]
            ).coverage,
        }
    )
chance = pd.DataFrame(records)

# %% tags=["hide-input"]
fig, ax = plt.subplots(figsize=(6.4, 3.9))
ax.plot(chance["k"], chance["chance"], color="0.2", lw=2, label="chance, formula")
ax.errorbar(chance["k"], chance["simulated"], chance["sd"], fmt="o", ms=5, capsize=3, color="0.2", label="chance, simulated")
ax.plot(chance["k"], chance["floor"], color="0.6", lw=2, ls=":", label="floor, $1/k$")
for name, color, marker in (
    ("holdout, SSIM", COLORS[2], "s"),
    ("noise, SSIM", COLORS[3], "^"),
    ("noise, MSE", COLORS[1], "v"),
):
    ax.plot(chance["k"], chance[name], color=color, marker=marker, ms=6, lw=1.5, label=name)
ax.set(xlabel="targets per class, $k$", ylabel="coverage", ylim=(0, 1.04))
ax.set_xscale("log")
ax.set_xticks(ks, [str(k) for k in ks])
ax.minorticks_off()
ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
sns.despine()
largest = chance.iloc[-1]
report.figure(
    fig,
    id="coverage-chance",
    alt="Coverage against the number of targets per class. Formula and simulation of the chance level agree and fall from 1 "
    f"to {largest['chance']:.2f} at k = {ks[-1]}; the floor falls to {largest['floor']:.2f}. There the holdout covers "
    f"{largest['holdout, SSIM']:.2f}, noise {largest['noise, SSIM']:.2f} by SSIM and {largest['noise, MSE']:.2f} by MSE.",
    caption="Coverage has a chance level. Bars: one standard deviation of 200 simulated trials. With one target per "
    "class everything covers 100 %.",
    provenance=made("matching: class"),
)

# %% [markdown]
# Three lessons. With one target per class, coverage is 100 % for anything, which is why every labeled attack has exactly
# 100 % on CelebA with 1,000 images (1,000 people, one image each) in the paper's tables. Coverage of a fixed method
# falls as $k$ grows, so a falling row in a table over target sizes is no finding in itself. And real unseen images stay
# *below* chance, because some targets are hubs that are near to many images. Full coverage is not what a very good
# attack without memorization would reach; the holdout's coverage is.
#
# ## Inside the class, or among all?
#
# An attack such as MI-Face says of each image which class it belongs to. Then $f$ should search in that class only:
# a reconstructed "0" that resembles some "3" is no success. Other attacks do not label their output, and $f$ searches
# among all targets. Both occur in the paper's tables, so every row in this book says `matching = class` or `all`.
# Before you look: can lifting the restriction make S-Dis worse? Can it make coverage worse?

# %% tags=["hide-input"]
rows = []
for name in ("every target under noise", "the holdout", "noise"):
    images, of = toys[name]
    for metric in ("ssim", "mse"):
        inside, everywhere = scores[name, metric], metrics.sample_distance(images, x, metric)
        rows.append(
            {
                "set": name,
                "d": metric.upper(),
                "S-Dis, class": inside.distance,
                "S-Dis, all": everywhere.distance,
                "coverage, class": inside.coverage,
                "coverage, all": everywhere.coverage,
                "floor, class": inside.coverage_floor,
                "floor, all": everywhere.coverage_floor,
            }
        )
report.table(
    pd.DataFrame(rows),
    id="class-restriction",
    caption="Matching inside the class and among all targets.",
    provenance=made(),
    formats=dict.fromkeys(["S-Dis, class", "S-Dis, all", "coverage, class", "coverage, all"], ".3f")
    | {"floor, class": ".3f", "floor, all": ".3f"},
)

# %% [markdown]
# S-Dis can only improve, since the minimum is taken over more candidates. Coverage may go either way: an image that is
# sent elsewhere leaves one target and reaches another, and hubs can now collect images of all classes. Values with
# different matching must not stand in one column.
#
# ## Consistency
#
# Before this definition, papers paired reconstructions and targets by hand or by position, and the same images got
# different scores. {numref}`fig-consistency` pairs the holdout with the targets of its class at random, 500 times, and
# scores each pairing. S-Dis is one number, because $f$ is determined by the two sets.

# %%
similarity = metrics.ssim_matrix(unseen, x)  # (m, n)
pairings = np.zeros(500)
for c in range(K):
    block = similarity[unseen_labels == c][:, labels == c].numpy()
    for trial in range(len(pairings)):
        pairings[trial] += block[np.arange(len(block)), rng.permutation(block.shape[1])[: len(block)]].sum()
pairings /= m

# %% tags=["hide-input"]
s_dis = scores["the holdout", "ssim"].distance
fig, ax = plt.subplots(figsize=(6.4, 3.0))
sns.histplot(pairings, bins=25, color=COLORS[1], ax=ax)
ax.axvline(s_dis, color=COLORS[0], lw=2.5)
height = ax.get_ylim()[1]
ax.text(s_dis, height, f"S-Dis = {s_dis:.3f} ", ha="right", va="top", color=COLORS[0])
ax.text(pairings.mean(), height * 1.02, "random pairs", ha="center", va="bottom", color="0.25")
ax.set(xlabel="mean SSIM of a pairing", ylabel="pairings")
sns.despine()
report.figure(
    fig,
    id="consistency",
    alt=f"Histogram of the mean SSIM of 500 random pairings, between {pairings.min():.2f} and {pairings.max():.2f}, and one "
    f"vertical line at {s_dis:.2f} for S-Dis, to the right of all of them.",
    caption="One reconstruction, one target data set: 500 scores from random pairs, one S-Dis.",
    provenance=made("reconstruction: the holdout"),
)

# %% [markdown]
# Order does not matter either, nor do repetitions. The paper uses the latter to let an attack on a *part* of the
# training set fit into the definition: repeat the recovered samples until there are enough, and nothing changes.

# %%
# NBVAL_CHECK_OUTPUT
images, of = toys["every target under noise"]
some = images[: n // 5], of[: n // 5]
order, other = torch.randperm(n, generator=generator()), torch.arange(n - 1, -1, -1)
for name, found in {
    "as given": metrics.sample_distance(images, x, "ssim", of, labels),
    "reconstructions shuffled": metrics.sample_distance(images[order], x, "ssim", of[order], labels),
    "targets reversed": metrics.sample_distance(images, x[other], "ssim", of, labels[other]),
    "a fifth of it": metrics.sample_distance(some[0], x, "ssim", some[1], labels),
    "this fifth, five times": metrics.sample_distance(some[0].repeat(5, 1, 1, 1), x, "ssim", some[1].repeat(5), labels),
}.items():
    print(f"{name:26} S-Dis {found.distance:.3f}   coverage {found.coverage:.3f}")
