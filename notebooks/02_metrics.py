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
# No attack is run in this chapter. We play the adversary ourselves and hand in sets of images whose quality
# we know: exact copies, one copy many times, noise, blurred images, the mean of a class. Then we watch what
# the metrics say. A metric that cannot tell these apart will not judge a real attack either.

# %%
import math
import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
import torch
from IPython.display import Markdown
from torchvision.transforms import functional as TF

from drlib import data, metrics, report, sections
from drlib.errors import UserError

# %% tags=["parameters"]
profile: str = "laptop"  # the profile that supplies whatever is not set here (training, hyperparameters)
dataset: str = "digits"  # the data set whose target split is to be reconstructed
side: int = 16  # image height and width in pixels
channels: int = 1  # 1 for gray images, 3 for color
mode: str = "class"  # what a label means: the object class, or (lfw_subset) the single image
target_size: int = 100  # images in the target data set
seed: int = 0  # seed of the disturbances shown
root: str | None = None  # folder of downloaded data sets; none: $DRLIB_DATA or ~/.cache/drlib/data
download: bool = False  # may missing files be downloaded?

# %%
p = sections.from_notebook("metrics", globals())
started = time.perf_counter()
splits = data.load_splits(p.data_spec())
target = data.target_subset(splits, p.target_size)
x, labels = target.images, target.labels  # the target data set
unseen = splits.holdout.images[: len(x)]
unseen_labels = splits.holdout.labels[: len(x)]
n, m, K = len(x), len(unseen), len(splits.classes)
if min(n, m) < K:
    raise UserError(
        f"this chapter needs a target and a holdout image of each of {K} classes, got {n} and {m}"
    )
print(f"{n} targets of {K} classes, {m} holdout images, each {tuple(x.shape[1:])}, in [0, 1]")

# %% tags=["hide-input"]
report.style()
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


def canvas(columns: float, rows: float):
    """A figure with one empty axes; an image in it is 0.9 wide and high, and rows count downward."""
    width = 0.8 * report.WIDTH  # narrow, so that its text stays readable on a phone
    fig, ax = plt.subplots(figsize=(width, width * rows / columns))
    ax.set(xlim=(0, columns), ylim=(rows, 0))
    ax.axis("off")
    return fig, ax


def place(ax, image, column: float, row: float, alpha: float = 1.0) -> None:
    """Draw one image (c, h, w), pixel by pixel."""
    limits = ax.get_xlim(), ax.get_ylim()
    box = (column, column + 0.9, row + 0.9, row)
    ax.imshow(image.permute(1, 2, 0).squeeze(), cmap="gray", vmin=0, vmax=1, extent=box, alpha=alpha)
    ax.set(xlim=limits[0], ylim=limits[1])


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
# The last two pull in different directions, and no single number holds both. So the definitions come in two
# levels: samples (Definition 4.2) and the data set as a whole (Definition 4.1). We begin with samples, where
# everything can be seen.
#
# ## Close to what?
#
# :::{prf:definition} Sample-level metric, Definition 4.2 of the paper
# :label: def-sample-level
#
# A sample-level metric $\mu : \mathbb{D} \times \mathbb{D} \to \mathbb{R}^2$ takes the reconstructed and the
# target data set to two numbers, $(\text{S-Dis}, \alpha) = \mu(\mathcal{A}^{k}(m),
# \mathcal{D}_{\mathrm{tar}})$. The first is the mean distance to the nearest target,
#
# $$
# \text{S-Dis} = \frac{1}{|\mathcal{A}^{k}(m)|} \sum_{x_i \in \mathcal{A}^{k}(m)} d(x_i, f(x_i)),
# $$ (eq-s-dis)
#
# where $f : \mathcal{A}^{k}(m) \to \mathcal{D}_{\mathrm{tar}}$ takes $x_i$ to the target with the smallest
# distance $d$ to it. The second is the coverage,
#
# $$
# \alpha = \frac{|f(\mathcal{A}^{k}(m))|}{|\mathcal{D}_{\mathrm{tar}}|} \in (0, 1],
# $$ (eq-coverage)
#
# the share of the targets that are the nearest one of some reconstruction.
# :::
#
# As distance $d$ the paper uses the mean squared error (MSE), the peak signal-to-noise ratio (PSNR) and the
# structural similarity (SSIM) of {cite:t}`wang2004`. The last two are similarities: larger is closer, and $f$
# looks for the largest. Everything below keeps the raw values, as the paper's tables do.
#
# A picture first. {numref}`fig-nearest-map` takes ten noisy images (above) and ten targets (below), and draws
# $f$.


# %% tags=["hide-input"]
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(p.seed)


def add_noise(images, strength):
    return (images + strength * torch.randn(images.shape, generator=generator())).clamp(0, 1)


few = min(10, m)
above, above_labels = add_noise(unseen[:few], 0.5), unseen_labels[:few]
below, below_labels = x[:few], labels[:few]
maps = {
    "inside the class": metrics.sample_distance(above, below, "ssim", above_labels, below_labels),
    "among all targets": metrics.sample_distance(above, below, "ssim"),
}
fig, ax = canvas(10, 8.2)
for top, (title, found) in zip((0.5, 4.7), maps.items(), strict=True):
    hit = set(found.nearest.tolist())
    ax.text(0, top - 0.15, f"{title}: S-Dis (SSIM) {found.distance:.2f}, coverage {len(hit)} of {few}")
    for i in range(few):
        place(ax, above[i], i, top)
        place(ax, below[i], i, top + 2.4, alpha=1.0 if i in hit else 0.25)
    for i, j in enumerate(found.nearest.tolist()):
        same = above_labels[i] == below_labels[j]
        look = {"color": COLORS[0] if same else COLORS[3], "ls": "-" if same else "--", "lw": 1.8}
        start, end = (i + 0.45, top + 0.95), (j + 0.45, top + 2.35)
        ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0} | look)
crossed = int((above_labels != below_labels[maps["among all targets"].nearest]).sum())
report.figure(
    fig,
    id="nearest-map",
    alt=f"Two panels, each with {few} noisy images above and {few} targets below. An arrow leads from each "
    "noisy image to its most similar target. "
    + "; ".join(f"{title}, {len(found.nearest.unique())} targets are hit" for title, found in maps.items())
    + f". In the second panel {crossed} arrows end in another class.",
    caption="The map $f$ of Definition 4.2. Targets that no arrow reaches are faded: they do not count for "
    "coverage. Red, dashed: the nearest target is of another class.",
    provenance=made("above: holdout images under Gaussian noise of 0.5"),
)

# %% [markdown]
# In code the definition is short. The library's function does the same in bounded memory, for three metrics,
# with and without classes.


# %%
# NBVAL_CHECK_OUTPUT
def definition_4_2(reconstructions, targets):
    """S-Dis and coverage for d = MSE, matching among all targets."""
    # the distance of every pair, then the nearest target f(x_i) of each reconstruction
    d = (reconstructions[:, None] - targets[None]).square().flatten(2).mean(2)
    distance, f = d.min(1)
    return float(distance.mean()), len(f.unique()) / len(targets)


library = metrics.sample_distance(unseen, x, "mse")
for name, (distance, coverage) in {
    "by hand": definition_4_2(unseen, x),
    "drlib": (library.distance, library.coverage),
}.items():
    print(f"{name:10}  S-Dis (MSE) = {distance:.4f}   coverage = {coverage:.2f}")

# %% [markdown]
# ## Two numbers, because one can be had for free
#
# Now six sets of images, each as large as the target data set. Two of them have seen all targets, one has
# seen a few, and three have seen none.

# %%
first = torch.stack([(labels == c).nonzero()[0, 0] for c in range(K)])
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
shown, said = min(8, m), {}
fig, ax = canvas(11.2, 1.5 * len(toys))
for line, (name, (images, _)) in enumerate(toys.items()):
    top = 1.5 * line + 0.5
    ax.text(0, top - 0.1, name)
    for column in range(shown):
        place(ax, images[column], column, top)
    found = scores[name, "ssim"]
    said[name] = f"SSIM {found.distance:.2f}, coverage {found.coverage:.2f}"
    ax.text(shown + 0.1, top + 0.45, said[name].replace(", ", "\n"), va="center")
report.figure(
    fig,
    id="toy-reconstructions",
    alt="Six rows of images with their SSIM and coverage. "
    + "; ".join(f"{name}: {said[name]}" for name in toys)
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
    caption="Sample-level metrics of six sets. Floor and chance of coverage are explained in the next "
    "section.",
    provenance=made("matching: class"),
    formats={"SSIM ↑": ".3f", "MSE ↓": ".4f"}
    | dict.fromkeys(["coverage (SSIM)", "coverage (MSE)", "floor", "chance"], ".3f"),
)

# %% [markdown]
# - **Copies of one target** have a perfect distance and the smallest coverage there is.
# - **Every target under noise** has a poor distance and a high coverage. Precision and diversity are
#   independent, so one number cannot stand for both.
# - **Class means** have seen no target, and they still score well: a mean image is close to everything. A
#   good S-Dis alone says little about leakage.
# - **The holdout** consists of real images on which no model was trained. It is what perfect *generalization*
#   would score, so it belongs into every table. It is a ruler, not a threshold: the noisy targets, the only one of
#   these sets that leaks, score far below it. What tells a leak is whether the *same* images are closer to training
#   than to holdout images ({doc}`the next chapter </notebooks/03_leaked>`).

# %% tags=["hide-input"]
mean_ssim = scores["class means of the holdout", "ssim"].distance
report.value("ssim_class_means", mean_ssim)
real_ssim = scores["the holdout", "ssim"].distance
report.value("ssim_holdout", real_ssim)
noisy_ssim = scores["every target under noise", "ssim"].distance
report.value("ssim_noisy_targets", noisy_ssim)
Markdown(
    f"The order may surprise: by SSIM the class means score {mean_ssim:.3f}, real unseen images "
    f"{real_ssim:.3f}, and the targets under noise, the only one of the three sets that leaks anything, "
    f"{noisy_ssim:.3f}."
)

# %% [markdown]
# ## How much coverage is a lot?
#
# Coverage is never 0: each reconstruction has a nearest target, even if it is noise. Two reference points
# follow from counting. Take $K$ classes with $k$ targets each, and $n = Kk$ reconstructions with balanced
# labels.
#
# - The **floor** is one target per class, $1/k$. (Without classes: $1/|\mathcal{D}_{\mathrm{tar}}|$.)
# - The **chance** level is what blind guessing covers. If each of the $k$ reconstructions of a class hits one
#   of its $k$ targets at random, a given target is missed with probability $(1 - 1/k)^k$, so
#
# $$
# \mathbb{E}[\alpha] = 1 - \Bigl(1 - \frac{1}{k}\Bigr)^{k} \;\longrightarrow\; 1 - \frac{1}{e}
# \quad\text{for large } k.
# $$ (eq-coverage-chance)
#
# The paper's tables print coverage without these. {numref}`fig-coverage-chance` checks the formula by
# simulation and adds two sets of images.

# %%
noise, _ = toys["noise"]
ks = [k for k in (1, 2, 3, 5, 8, 12, 20, 40) if k * K <= n]
rng = np.random.default_rng(p.seed)
records = []
for k in ks:
    part = slice(k * K)  # k images of each class
    by_ssim = metrics.sample_distance(noise[part], x[part], "ssim", labels[part], labels[part])
    by_mse = metrics.sample_distance(noise[part], x[part], "mse", labels[part], labels[part])
    real = metrics.sample_distance(unseen[part], x[part], "ssim", unseen_labels[part], labels[part])
    hits = rng.integers(k, size=(200, K, k))  # in 200 trials: who hits whom, by class
    simulated = [np.mean([len(set(row)) / k for row in trial]) for trial in hits.tolist()]
    records.append(
        {
            "k": k,
            "floor": by_ssim.coverage_floor,
            "chance": by_ssim.coverage_chance,
            "simulated": np.mean(simulated),
            "sd": np.std(simulated),
            "noise, SSIM": by_ssim.coverage,
            "noise, MSE": by_mse.coverage,
            "holdout, SSIM": real.coverage,
        }
    )
chance = pd.DataFrame(records)

# %% tags=["hide-input"]
fig, ax = plt.subplots(figsize=(6, 3.7))
ax.plot(chance["k"], chance["chance"], color="0.2", lw=2, label="chance, formula")
ax.errorbar(
    chance["k"],
    chance["simulated"],
    chance["sd"],
    fmt="o",
    ms=5,
    capsize=3,
    color="0.2",
    label="chance, simulated",
)
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
    alt="Coverage against the number of targets per class. Formula and simulation of the chance level "
    f"agree and fall from 1 to {largest['chance']:.2f} at k = {ks[-1]}; the floor falls to "
    f"{largest['floor']:.2f}. There the holdout covers {largest['holdout, SSIM']:.2f}, noise "
    f"{largest['noise, SSIM']:.2f} by SSIM and {largest['noise, MSE']:.2f} by MSE.",
    caption="Coverage has a chance level. Bars: one standard deviation of 200 simulated trials. With one "
    "target per class everything covers 100 %.",
    provenance=made("matching: class"),
)

# %% [markdown]
# Three lessons. With one target per class, coverage is 100 % for anything, which is why every labeled attack
# has exactly 100 % on CelebA with 1,000 images (1,000 people, one image each) in the paper's tables. Coverage
# of a fixed method falls as $k$ grows, so a falling row in a table over target sizes is no finding in itself.
# And even real unseen images hardly reach chance, because some targets are *hubs*, near to many images. What
# a very good attack without memorization would cover is not 100 %, but what the holdout covers.
#
# ## Inside the class, or among all?
#
# An attack such as MI-Face says of each image which class it belongs to. Then $f$ should search in that class
# only: a reconstructed "0" that resembles some "3" is no success. Other attacks do not label their output,
# and $f$ searches among all targets. Both occur in the paper's tables, so every row in this book says
# `matching = class` or `all`. Before you look: can lifting the restriction make S-Dis worse? Can it make
# coverage worse?

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
# S-Dis can only improve, since the minimum is taken over more candidates. Coverage may go either way: an
# image that is sent elsewhere leaves one target and reaches another, and hubs can now collect images of all
# classes. Values with different matching must not stand in one column.
#
# ## Consistency
#
# In earlier work the pairs to compare were not fixed, so the same images could get different scores.
# {numref}`fig-consistency` pairs the holdout with the targets of its class at random, 500 times, and scores each
# pairing. S-Dis is one number, because $f$ is determined by the two sets.

# %%
similarity = metrics.ssim_matrix(unseen, x)  # (m, n)
pairings = np.zeros(500)
for c in range(K):
    block = similarity[unseen_labels == c][:, labels == c].numpy()
    for trial in range(len(pairings)):
        partner = rng.permutation(block.shape[1])[: len(block)]
        pairings[trial] += block[np.arange(len(block)), partner].sum()
pairings /= m

# %% tags=["hide-input"]
s_dis = scores["the holdout", "ssim"].distance
fig, ax = plt.subplots(figsize=(5.8, 2.8))
ax.hist(pairings, bins=25, color=COLORS[1])
ax.axvline(s_dis, color=COLORS[0], lw=2.5)
height = ax.get_ylim()[1]
ax.text(s_dis, height, f"S-Dis = {s_dis:.3f} ", ha="right", va="top", color=COLORS[0])
ax.text(pairings.mean(), height * 1.02, "random pairs", ha="center", va="bottom", color="0.25")
ax.set(xlabel="mean SSIM of a pairing", ylabel="pairings")
sns.despine()
report.figure(
    fig,
    id="consistency",
    alt=f"Histogram of the mean SSIM of 500 random pairings, between {pairings.min():.2f} and "
    f"{pairings.max():.2f}, and one vertical line at {s_dis:.2f} for S-Dis.",
    caption="One reconstruction, one target data set: 500 scores from random pairs, one S-Dis.",
    provenance=made("reconstruction: the holdout"),
)

# %% [markdown]
# Order does not matter either, nor do repetitions. The paper uses the latter to let an attack on a *part* of
# the training set fit into the definition: repeat the recovered samples until there are enough, and nothing
# changes.

# %%
# NBVAL_CHECK_OUTPUT
images, of = toys["every target under noise"]
fifth, fifth_of = images[: n // 5], of[: n // 5]
order = torch.randperm(n, generator=generator())
back = torch.arange(n - 1, -1, -1)
for name, (these, their_labels, targets, target_labels) in {
    "as given": (images, of, x, labels),
    "reconstructions shuffled": (images[order], of[order], x, labels),
    "targets reversed": (images, of, x[back], labels[back]),
    "a fifth of it": (fifth, fifth_of, x, labels),
    "this fifth, five times": (fifth.repeat(5, 1, 1, 1), fifth_of.repeat(5), x, labels),
}.items():
    found = metrics.sample_distance(these, targets, "ssim", their_labels, target_labels)
    print(f"{name:26} S-Dis {found.distance:.3f}   coverage {found.coverage:.3f}")

# %% [markdown]
# ## The data set as a whole
#
# :::{prf:definition} Dataset-level metric, Definition 4.1 of the paper
# :label: def-dataset-level
#
# A dataset-level metric $\mu : \mathbb{D} \times \mathbb{D} \to \mathbb{R}$ takes the reconstructed and the
# target data set to one number, $\text{D-Dis} = \mu(\mathcal{A}^{k}(m), \mathcal{D}_{\mathrm{tar}})$.
# :::
#
# As D-Dis the paper takes the Fréchet inception distance (FID) of {cite:t}`heusel2017`: a network turns each
# image into a vector of features, a Gaussian is fitted to the vectors of each set, and
#
# $$
# \text{D-Dis} = \lVert \nu_{\mathrm{tar}} - \nu_{\mathrm{rec}} \rVert_2^2 + \operatorname{tr}\Bigl(
# \Sigma_{\mathrm{tar}} + \Sigma_{\mathrm{rec}} - 2
# \bigl(\Sigma_{\mathrm{tar}}^{1/2}\, \Sigma_{\mathrm{rec}}\,
# \Sigma_{\mathrm{tar}}^{1/2}\bigr)^{1/2} \Bigr)
# $$ (eq-d-dis)
#
# compares the two Gaussians with means $\nu$ and covariances $\Sigma$. (The paper introduces the target's
# covariance as $\Sigma_{\mathrm{ori}}$ and then writes $\Sigma_{\mathrm{tar}}$; they are the same.)
#
# The name matters. Only features of the Inception network make an FID. Its weights are not on every machine,
# so this chapter uses a small network whose weights come as an ordinary package, and calls the result by
# another name. Its values have another scale and must not be compared with the paper's FID.

# %%
for extractor in metrics.EXTRACTORS:
    print(f"{extractor:20} -> {metrics.metric_name(extractor)}")

# %% [markdown]
# ### A distance that depends on how many images there are
#
# A covariance of 1,280 features needs many images. With few, the two fitted Gaussians differ even when the
# images come from the same source, and so the Fréchet distance is biased upward. To see it, split one set of
# real images into two halves at random: the true distance is 0. Then blur one half (Gaussian, one pixel): now
# it is not 0.

# %%
EXTRACTOR = "efficientnet_lite0"
FD = metrics.metric_name(EXTRACTOR)


def features(images):
    return metrics.extract(images, EXTRACTOR).values


def blur(images, width):
    return TF.gaussian_blur(images, [2 * math.ceil(3 * width) + 1] * 2, [width, width])


one_set = splits.target.images[: 2 * n]
real, blurred = features(one_set), features(blur(one_set, 1.0))
sizes = [size for size in (10, 20, 50, 100, 200, 500, 1000) if 2 * size <= len(one_set)] or [
    len(one_set) // 2
]
records = []
for size in sizes:
    for _ in range(10):
        order = torch.from_numpy(rng.permutation(len(one_set)))
        a, b = order[:size], order[size : 2 * size]
        for name, other in (("real against real", real), ("blurred against real", blurred)):
            records.append((size, name, float(metrics.frechet_distance(other[a], real[b]))))
split = pd.DataFrame(records, columns=["size", "halves", FD])

# %% tags=["hide-input"]
fig, ax = plt.subplots(figsize=(5.8, 3.5))
at = split.groupby(["halves", "size"])[FD].agg(["mean", "std"])
for name, color in (("blurred against real", COLORS[3]), ("real against real", COLORS[0])):
    line = at.loc[name]
    ax.errorbar(line.index, line["mean"], line["std"], color=color, marker="o", lw=2, capsize=3)
    ax.text(
        line.index[-1] * 1.06, line["mean"].iloc[-1], name.replace(" ", "\n", 1), color=color, va="center"
    )
ax.set_xscale("log")
ax.set_xticks(sizes, [str(size) for size in sizes])
ax.minorticks_off()
ax.set(xlabel="images in each half", ylabel=FD, ylim=(0, None), xlim=(sizes[0] * 0.9, sizes[-1] * 1.75))
sns.despine()
small, large = (at.loc[("real against real", size), "mean"] for size in (sizes[0], sizes[-1]))
blurred_large = at.loc[("blurred against real", sizes[-1]), "mean"]
report.figure(
    fig,
    id="frechet-bias",
    alt=f"{FD} against the number of images in each half. Two halves of one set of real images: "
    f"{small:.0f} at {sizes[0]} images, falling to {large:.0f} at {sizes[-1]}, never 0. One half blurred: "
    f"always higher, {blurred_large:.0f} at {sizes[-1]} images.",
    caption="Two halves of *one* set of real images should have distance 0. The Fréchet distance says "
    "otherwise, the more so the fewer images there are. Means and standard deviations of 10 random splits.",
    provenance=made(f"features of {len(one_set)} target images"),
)

# %% tags=["hide-input"]
report.value("fd_halves_small", small)
report.value("fd_halves_large", large)
Markdown(
    f"At {sizes[0]} images a *perfect* source scores {small:.0f}; a blurred one with {sizes[-1]} images "
    f"scores {blurred_large:.0f}. Whoever compares these two numbers prefers the "
    + ("blurred one." if blurred_large < small else "perfect one, in this case.")
    + " The rule: **compare Fréchet distances only at equal numbers of images.** A row over growing target "
    "sizes, such as those of Table 2, falls in part by this bias. Where this book shows such a row, it "
    "shows one at equal $n$ beside it."
)

# %% [markdown]
# Three functions keep a value honest. `frechet_floor` cuts one set of real images in two: what other images of the
# same kind score at that $n$ (copies of the training images score less). `frechet_interval` says how much the value varies with the draw of the images
# (by half-samples: a bootstrap repeats images, and this distance takes repetitions for structure). `frechet_at`
# gives the value at another, smaller $n$, so that two sizes can be compared. Where a data set's features do not fit into
# memory, `FeatureStatistics` gathers means and covariances batch by batch and `frechet_distance_of` takes them.

# %%
floor = metrics.frechet_floor(real)
found = metrics.frechet_interval(blurred, real)
streamed = [metrics.FeatureStatistics.of(each.split(64)) for each in (blurred, real)]
print(f"floor at n = {floor.n}: {floor:.1f}")
print(f"blurred against real at n = {found.n}: {found.value:.1f} [{found.low:.1f}, {found.high:.1f}]")
print(f"the same at n = {floor.n}: {metrics.frechet_at(blurred, real, floor.n):.1f}")
print(f"from statistics of batches of 64: {metrics.frechet_distance_of(*streamed):.1f}")

# %% [markdown]
# ## Precision
#
# Which metric notices what? Take the targets and disturb them in four ways, each in four steps.


# %%
def shift(images, pixels):
    moved = torch.zeros_like(images)
    moved[..., pixels:] = images[..., : images.shape[-1] - pixels]
    return moved


disturbances = {
    "noise": (add_noise, (0.1, 0.2, 0.3, 0.4)),
    "blur": (blur, (0.5, 1.0, 1.5, 2.0)),
    "shift": (shift, (1, 2, 3, 4)),
    "contrast": (TF.adjust_contrast, (0.8, 0.6, 0.4, 0.2)),
}
part = max(2, n // 2)  # for the Fréchet distance, the slow one
reference = features(x[:part])
records = []
for kind, (disturb, strengths) in disturbances.items():
    for step, strength in enumerate(strengths, start=1):
        images = disturb(x, strength)
        row = {"disturbance": kind, "step": step}
        for metric in metrics.METRICS:
            found = metrics.sample_distance(images, x, metric, labels, labels)
            row[metric.upper()] = found.distance
            row[f"coverage ({metric.upper()})"] = found.coverage
        row[FD] = float(metrics.frechet_distance(features(images[:part]), reference))
        records.append(row)
precision = pd.DataFrame(records)

# %% tags=["hide-input"]
fig, ax = canvas(6.6, 5.0)
example = x[first[min(2, K - 1)]][None]
for line, (kind, (disturb, strengths)) in enumerate(disturbances.items()):
    top = 1.25 * line + 0.3
    ax.text(0.95, top + 0.45, kind, ha="right", va="center")
    for column, strength in enumerate((None, *strengths)):
        image = example if strength is None else disturb(example, strength)
        left = 1.1 + 1.15 * column
        place(ax, image[0], left, top)
        text = "target" if strength is None else f"{strength:g}"
        ax.text(left + 0.45, top - 0.06, text, ha="center", fontsize=9)
report.figure(
    fig,
    id="disturbances",
    alt="One target image and, in four rows, its versions under growing noise, blur, shift to the right "
    "and loss of contrast.",
    caption="The disturbances. Noise: standard deviation; blur: width in pixels; shift: pixels to the right; "
    "contrast: factor.",
    provenance=made(),
)

# %% tags=["hide-input"]
panels = ["SSIM", "PSNR", "MSE", FD, "coverage (SSIM)", "coverage (MSE)"]
better = {"SSIM": "↑", "PSNR": "dB ↑", "MSE": "↓", FD: "↓", "coverage (SSIM)": "↑", "coverage (MSE)": "↑"}
untouched = {name: scores["the holdout", name.lower()].distance for name in ("SSIM", "PSNR", "MSE")}
untouched |= {f"coverage ({name})": scores["the holdout", name.lower()].coverage for name in ("SSIM", "MSE")}
untouched[FD] = float(metrics.frechet_distance(features(unseen[:part]), reference))
fig, axes = plt.subplots(3, 2, figsize=(6, 7), sharex=True)
for ax, name in zip(axes.flat, panels, strict=True):
    for (kind, line), marker in zip(precision.groupby("disturbance", sort=False), "os^D", strict=True):
        ax.plot(line["step"], line[name], marker=marker, ms=5, lw=1.8, label=kind)
    ax.axhline(untouched[name], color="0.35", ls="--", lw=1.5, label="holdout")
    ax.set_title(f"{name} {better[name]}", fontsize=11, loc="left")
    ax.set_xticks(range(1, 5))
    ax.set_ylim(0, 1.04 if name == "SSIM" or "coverage" in name else None)
for ax in axes[-1]:
    ax.set_xlabel("step")
fig.legend(*axes[0, 0].get_legend_handles_labels(), ncols=5, loc="outside upper center", frameon=False)
sns.despine()
at = precision.set_index(["disturbance", "step"])
noise_1, shift_4 = at.loc[("noise", 1)], at.loc[("shift", 4)]
report.figure(
    fig,
    id="precision",
    alt=f"Six panels, SSIM, PSNR, MSE, {FD} and two coverages, against the step of noise, blur, shift and "
    f"contrast. The faintest noise has SSIM {noise_1['SSIM']:.2f} and {FD} {noise_1[FD]:.0f}; the largest "
    f"shift has SSIM {shift_4['SSIM']:.2f} and {FD} {shift_4[FD]:.0f}. A dashed line marks the holdout.",
    caption="Six metrics under four disturbances of the targets. Dashed: the holdout, real images that "
    f"nobody disturbed. {FD} uses the first {part} images of each set.",
    provenance=made("matching: class"),
)

# %% tags=["hide-input"]
shift_1 = at.loc[("shift", 1)]
opposite = (noise_1["SSIM"] > shift_4["SSIM"]) and (noise_1[FD] > shift_4[FD])
Markdown(
    f"Compare the faintest noise with the largest shift. By SSIM the noise scores {noise_1['SSIM']:.2f} and "
    f"the shift {shift_4['SSIM']:.2f}; by {FD} the noise scores {noise_1[FD]:.0f}, the shift "
    f"{shift_4[FD]:.0f}, and untouched holdout images {untouched[FD]:.0f}. "
    + (
        "The two metrics rank them in opposite ways"
        if opposite
        else "Here the two metrics agree on the order"
    )
    + ", and neither is wrong. Pixel metrics ask for the same pixels in the same place; features, learned "
    "on photographs, weigh grain and shifts in their own way. A shift by a single pixel, which few "
    f"people would notice, costs {1 - shift_1['SSIM']:.2f} of SSIM and leaves "
    f"{shift_1['coverage (SSIM)']:.0%} of the coverage."
)

# %% [markdown]
# The paper uses both levels, and this picture is the reason. It is also a warning: where a table shows SSIM
# and the Fréchet distance moving apart, ask what kind of error the attack makes before asking which metric is
# right.
#
# ## Two traps of PSNR
#
# PSNR is the mean squared error on a logarithmic scale, $-10 \log_{10} \mathrm{MSE}$ decibels for images in
# $[0, 1]$, taken for each image and then averaged. So both have the same nearest neighbors and the same
# coverage, in every table. Their *means* are another matter.
#
# **First trap.** A copy has MSE 0 and PSNR $\infty$. One copy makes the mean infinite. So this book prints
# the median and the number of copies beside it.
#
# **Second trap.** The mean of a logarithm is not the logarithm of the mean. Set A below has half of its
# images nearly right and the other half in ruins; set B is mediocre throughout.

# %%
half = torch.arange(n)[:, None, None, None] % 2 == 0
uneven = torch.where(half, add_noise(x, 0.02), add_noise(x, 0.5))
even = add_noise(x, 0.28)
with_copies = torch.where(torch.arange(n)[:, None, None, None] < 3, x, even)
cases = {
    "A: half good, half ruined": uneven,
    "B: mediocre throughout": even,
    "B with three copies": with_copies,
}
rows = []
for name, images in cases.items():
    mse, psnr = (metrics.sample_distance(images, x, metric, labels, labels) for metric in ("mse", "psnr"))
    assert torch.equal(mse.nearest, psnr.nearest) and mse.coverage == psnr.coverage
    rows.append(
        {
            "set": name,
            "mean MSE ↓": mse.distance,
            "mean PSNR ↑": psnr.distance,
            "median PSNR ↑": psnr.median,
            "copies": psnr.copies,
            "PSNR of the mean MSE": -10 * math.log10(mse.distance),
        }
    )
psnr_table = pd.DataFrame(rows)

# %% tags=["hide-input"]
report.table(
    psnr_table,
    id="psnr-traps",
    caption="MSE and PSNR share neighbors and coverage, yet their means can rank two sets in opposite "
    "ways, and copies make a mean PSNR infinite.",
    provenance=made("matching: class"),
    formats={
        "mean MSE ↓": ".4f",
        "mean PSNR ↑": ".2f",
        "median PSNR ↑": ".2f",
        "PSNR of the mean MSE": ".2f",
    },
)

# %% tags=["hide-input"]
shown = min(10, n)
fig, ax = canvas(10, 3.0)
for line, name in enumerate(list(cases)[:2]):
    top = 1.5 * line + 0.5
    ax.text(0, top - 0.1, name)
    for column in range(shown):
        place(ax, cases[name][column], column, top)
report.figure(
    fig,
    id="psnr-traps",
    alt="Two rows of images. Set A alternates between almost clean images and images hidden by noise; set "
    "B has the same moderate noise everywhere.",
    caption="Sets A and B. MSE prefers B, because one ruined image costs as much as many small errors; "
    "PSNR prefers A, because it rewards the nearly perfect.",
    provenance=made(),
)

# %% [markdown]
# An attack on privacy is better described by A: one person whose picture is recovered is harmed, whatever
# happens to the others. This is an argument for looking at the distribution of the per-image values (`values`
# in the result), and against taking the PSNR of a mean MSE.
#
# ## Exact and approximate reconstruction
#
# :::{prf:definition} Exact reconstruction, Definition 4.3 of the paper
# :label: def-exact
#
# An attack $\mathcal{A}$ achieves $\mu$-exact reconstruction if $\mu(\mathcal{A}^{k}(m),
# \mathcal{D}_{\mathrm{tar}}) = \boldsymbol{0}$.
# :::
#
# :::{prf:definition} Approximate reconstruction, Definition 4.4 of the paper
# :label: def-approximate
#
# An attack $\mathcal{A}$ achieves $(\boldsymbol{\varepsilon}, \mu)$-approximate reconstruction if
# $\mu(\mathcal{A}^{k}(m), \mathcal{D}_{\mathrm{tar}}) \le \boldsymbol{\varepsilon}$.
# :::
#
# The paper remarks that the first is the second with $\boldsymbol{\varepsilon} = \boldsymbol{0}$. The idea is
# clear. As printed, for the sample-level metric $\mu = (\text{S-Dis}, \alpha)$, it cannot hold:
#
# - $\alpha$ lies in $(0, 1]$, so it is never 0. Nothing is an exact reconstruction, not even the target data
#   set.
# - SSIM of a copy is 1 and PSNR of a copy is $\infty$. Only MSE is 0.
# - SSIM, PSNR and $\alpha$ are large when the reconstruction is good. Then "$\le \boldsymbol{\varepsilon}$"
#   asks for a *bad* one: noise passes, a copy does not.
#
# The repair is to write both parts as losses, $1 - \text{SSIM}$ (or MSE) and $1 - \alpha$. In this form the
# definitions and the remark say what they are meant to say.

# %% tags=["hide-input"]
rows = []
for name in ("the targets themselves", "copies of one target per class", "the holdout", "noise"):
    by = {metric: scores[name, metric] for metric in metrics.METRICS}
    rows.append(
        {"set": name}
        | {f"({metric.upper()}, α)": f"({s.distance:.3g}, {s.coverage:.2f})" for metric, s in by.items()}
        | {"(1 − SSIM, 1 − α)": f"({abs(1 - by['ssim'].distance):.2f}, {1 - by['ssim'].coverage:.2f})"}
        | {"exact as printed": any(s.distance == 0 and s.coverage == 0 for s in by.values())}
        | {"exact as loss": abs(1 - by["ssim"].distance) < 1e-6 and by["ssim"].coverage == 1}
    )
exactness = pd.DataFrame(rows)
report.table(
    exactness,
    id="exactness",
    caption="$\\mu$ as printed, and as losses. As printed no set is exact; as losses only the targets are.",
    provenance=made("matching: class"),
)

# %% [markdown]
# With losses, $\boldsymbol{\varepsilon} = (\varepsilon_1, \varepsilon_2)$ is a corner, and a set is an
# $(\boldsymbol{\varepsilon}, \mu)$-approximate reconstruction if it lies below and to the left of it.

# %% tags=["hide-input"]
fig, ax = plt.subplots(figsize=(5.8, 4.2))
losses = {name: (abs(1 - scores[name, "ssim"].distance), 1 - scores[name, "ssim"].coverage) for name in toys}
corner = tuple(math.ceil(20 * value) / 20 for value in losses["the holdout"])
ax.add_patch(plt.Rectangle((0, 0), *corner, facecolor=COLORS[0], alpha=0.12, lw=0))
ax.plot([corner[0], corner[0], 0], [0, corner[1], corner[1]], color=COLORS[0], lw=1.5)
ax.plot(*corner, "s", color=COLORS[0], ms=6, clip_on=False)
ax.text(corner[0] + 0.02, corner[1] + 0.015, f"ε = ({corner[0]:.2f}, {corner[1]:.2f})", color=COLORS[0])
level = scores["noise", "ssim"]
for value, text in ((1 - level.coverage_floor, "coverage floor"), (1 - level.coverage_chance, "chance")):
    ax.axhline(value, color="0.5", ls=":", lw=1.5)
    ax.text(1.0, value - 0.012, text, color="0.35", ha="right", va="top", fontsize=9)
for name, point in losses.items():
    inside = point[0] <= corner[0] and point[1] <= corner[1]
    ax.plot(*point, "o", color=COLORS[2] if inside else COLORS[3], ms=8, clip_on=False, zorder=3)
    below_it = name.startswith(("copies", "the holdout"))  # something else is above it
    offset = (8, -16 if below_it else 8)
    ax.annotate(name, point, offset, textcoords="offset points", fontsize=9.5, zorder=4)
ax.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="precision loss, 1 − SSIM", ylabel="diversity loss, 1 − coverage")
sns.despine()
passed = [name for name, point in losses.items() if point[0] <= corner[0] and point[1] <= corner[1]]
report.figure(
    fig,
    id="approximate",
    alt="The six sets in the plane of the two losses. The targets themselves are at the origin; the corner "
    f"ε = ({corner[0]:.2f}, {corner[1]:.2f}) contains {' and '.join(passed)}. The other sets lie outside: "
    + "; ".join(f"{name} at ({a:.2f}, {b:.2f})" for name, (a, b) in losses.items() if name not in passed)
    + ".",
    caption="Approximate reconstruction: what lies in the shaded corner passes. The holdout passes as well, "
    "without any attack and without any leak.",
    provenance=made("matching: class"),
)

# %% [markdown]
# The last point deserves a pause. Real images that the model has never seen are an approximate reconstruction
# for an $\boldsymbol{\varepsilon}$ that many attacks would be proud of. The definitions measure *closeness to
# the target data set*; they do not ask *where the closeness comes from*. That is the question of this book,
# leaked or imputed, and it is answered by comparing each score with the same score against the holdout.
#
# The paper adds that exact reconstruction is necessary but not sufficient for a perfect one. For D-Dis this
# is easy to see: two different sets with the same mean and covariance have distance 0.

# %%
# NBVAL_CHECK_OUTPUT
a = torch.tensor([[-1.0], [1.0], [-1.0], [1.0]])
b = torch.tensor([[-(2**0.5)], [0.0], [0.0], [2**0.5]])
first_set, second_set = (values.flatten().numpy().round(2) for values in (a, b))
print(f"features {first_set} and {second_set}")
print(f"Fréchet distance: {metrics.frechet_distance(a, b):.6f}")
copy = metrics.sample_distance(x, x, "ssim", labels, labels)
print(f"targets against themselves: SSIM {copy.distance:.6f}, coverage {copy.coverage:.2f}")
print(f"copies: {copy.copies} of {n}")

# %% [markdown]
# For the sample level it is enough, if S-Dis is a loss that is 0 only for copies, the targets are distinct
# and $n = |\mathcal{D}_{\mathrm{tar}}|$: every target is hit, and each by a copy.
#
# ## What to remember
#
# - S-Dis without coverage rewards one image many times; coverage without S-Dis rewards noise. Read both, with
#   floor, chance, and the holdout.
# - Say how was matched (class or all), with which $d$, and how many images there were.
# - Compare Fréchet distances at equal $n$ only, and call them FID only if Inception made them.
# - No metric here knows *why* two images are alike. Only the difference between training and unseen images
#   does.
#
# ## Exercises
#
# :::{exercise} Coverage in three lines
# :label: ex-coverage
#
# Write `coverage(nearest, m)`: the share of `m` targets that occur in the integer tensor `nearest`. Then
# find, without any images, a `nearest` of length 6 for `m = 4` with coverage 1, and one with the smallest
# coverage. What changes for the smallest if there are two classes with two targets each, and both classes are
# reconstructed?
# :::
#
# :::{solution} ex-coverage
# :class: dropdown
#
# ```python
# def coverage(nearest, m):
#     return len(torch.unique(nearest)) / m
#
# coverage(torch.tensor([0, 1, 2, 3, 0, 0]), 4)   # 1.0
# coverage(torch.tensor([2, 2, 2, 2, 2, 2]), 4)   # 0.25, that is 1 / m
# ```
#
# With two classes, each class has at least one nearest target, so the floor is one target per class: 2 of 4.
# A table that mixes labeled and unlabeled attacks therefore mixes two floors.
# :::
#
# :::{exercise} Chance, if you may try more often
# :label: ex-chance
#
# An attack returns $r$ times as many images as there are targets, in one class of $k$ targets. What is the
# chance level of coverage for large $k$? How large must $r$ be before blind guessing covers 95 %? Check your
# answer with `sample_distance` on noise, and explain why the noise stays below your formula.
# :::
#
# :::{solution} ex-chance
# :class: dropdown
#
# A given target is missed with probability $(1 - 1/k)^{rk} \to e^{-r}$, so the level is $1 - e^{-r}$. It
# reaches $0.95$ at $r = \ln 20 \approx 3$. This is why Definition 3.2 fixes $n =
# |\mathcal{D}_{\mathrm{tar}}|$.
#
# ```python
# many = torch.rand(3 * n, *x.shape[1:])
# found = metrics.sample_distance(many, x, "mse")
# found.coverage, found.coverage_chance
# ```
#
# Real noise does not hit all targets equally often. In MSE, a target that is close to mid-gray is close to all
# noise; such *hubs* collect most of the arrows.
# :::
#
# :::{exercise} One to one
# :label: ex-one-to-one
#
# Nearest neighbors let many reconstructions share a target. The Hungarian method finds the best pairing in
# which each target is used once. Which of the two mean distances is smaller? When are they equal? Which of
# the sets in {numref}`fig-toy-reconstructions` loses most by this stricter rule?
# :::
#
# :::{solution} ex-one-to-one
# :class: dropdown
#
# The nearest target is the best choice for each reconstruction alone, so no pairing can have a smaller mean
# MSE. They are equal if and only if some nearest-neighbor map is itself one to one, that is, coverage is 1
# (for $n = m$).
#
# ```python
# from scipy.optimize import linear_sum_assignment
#
# for name, (images, _) in toys.items():
#     d = (images[:, None] - x[None]).square().flatten(2).mean(2).numpy()
#     i, j = linear_sum_assignment(d)
#     print(f"{name:32} nearest {d.min(1).mean():.4f}   one to one {d[i, j].mean():.4f}")
# ```
#
# Copies of one target lose most: their distance of 0 is gone, because each target takes only one copy. The
# one-to-one distance joins precision and diversity in a single number. The price is that one missing target
# spoils the pairs of others, and that a *partial* reconstruction, which the paper wants to allow, can no
# longer be scored.
# :::
