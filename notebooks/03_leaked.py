# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Leaked or imputed?
#
# :::{admonition} This chapter
# :class: tip
# **Needs** {doc}`when a reconstruction is good </notebooks/02_metrics>`. \
# **Gives** the leakage gap: what tells an image that leaked from one that was imputed; how small a leak it can see;
# and what it says of real attacks. Who is who: three ways to pair reconstructions with targets. \
# **Minutes** 20 to read, 2 to run.
# :::
#
# Section 6 of the paper asks "whether current methods are genuinely extracting private information from the model or
# merely imputing plausible samples". No distance to the training images can answer that alone. This chapter
# builds the question up from three attacks whose answer we know, because we make them up.

# %%
import math

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
import torch
from IPython.display import Markdown

from drlib import plots, report, results, sections, study
from drlib.metrics.leakage import p_value, resplit_differences
from drlib.metrics.pairing import WAYS, who_is_who
from drlib.metrics.sample import sample_distance
from drlib.metrics.ssim import ssim_matrix

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
    "deep_leakage",
    "inv_alignment",
    "bias_rec",
]  # attacks to run: registered names, or module:Class for your own
controls: list = ["noise", "class_mean", "auxiliary_top", "holdout"]  # what stands beside every attack
seed: int = 0  # the first random seed (of target model and attack)
n: int | None = None  # reconstructions per target; none: as many as target images
gradient_batches: list = [1, 4]  # Deep-Leakage on the sigmoid LeNet: images per observed gradient
gradient_images: int = 8  # Deep-Leakage on the sigmoid LeNet: images in all
draws: int = 10  # mixtures drawn for each share of leaked images
extractor: str = "efficientnet_lite0"  # features of the Frechet distance
training: dict = {}  # changes to the profile's training of target models
hyperparameters: dict = {}  # changes to the profile's hyperparameters, by attack; none: the original paper's
root: str | None = None  # folder of downloaded data sets; none: $DRLIB_DATA or ~/.cache/drlib/data
download: bool = False  # may missing files be downloaded?

# %%
p = sections.from_notebook("leaked", globals())
cells = p.cells()
study.run(cells)
splits = p.splits()
report.style()
COLORS = sns.color_palette("colorblind")
attack_cells = [cell for cell in p.attack_cells() if study.explain_unsupported(cell) is None]
table = results.summary(attack_cells, profile=p.profile)
made_by = results.provenance(table, p.command())
generator = torch.Generator().manual_seed(p.seed)


def balanced(split, per_class: int, skip: int = 0):
    """``per_class`` images of each class, after the first ``skip``: images and labels."""
    rows = [
        (split.labels == c).nonzero().flatten()[skip : skip + per_class] for c in range(len(splits.classes))
    ]
    rows = torch.stack(rows, dim=1).flatten()
    return split.images[rows], split.labels[rows]


counts = [
    split.labels.bincount(minlength=len(splits.classes)).min()
    for split in (splits.target, splits.holdout, splits.test)
]
per_class = int(min(p.target_size // len(splits.classes), *counts))
trained, labels = balanced(splits.target, per_class)
unseen, _ = balanced(splits.holdout, per_class)
others, _ = balanced(splits.test, per_class)  # real images that are in neither
m = len(trained)

# %% [markdown]
# ## Three attacks whose answer we know
#
# - The **memorizer** returns the training images, with noise on them. Everything it shows has leaked.
# - The **generalizer** returns real images of the same classes that the model never saw: new ones, neither training
#   nor holdout images. It knows perfectly what such images look like, and nothing of these. Nothing has leaked.
# - The **averager** returns the mean of its class, from images of others. Nothing has leaked either.
#
# Here they are. Below each image: how similar the nearest training image is.

# %% tags=["hide-input"]
noisy = (trained + 0.25 * torch.randn(trained.shape, generator=generator)).clamp(0, 1)
means = torch.stack([others[labels == c].mean(0) for c in range(len(splits.classes))])[labels]
known = {"memorizer": noisy, "generalizer": others, "averager": means}
to_trained = {
    name: sample_distance(images, trained, "ssim", labels, labels).values for name, images in known.items()
}
to_unseen = {
    name: sample_distance(images, unseen, "ssim", labels, labels).values for name, images in known.items()
}
similar = {name: float(found.mean()) for name, found in to_trained.items()}
report.figure(
    plots.image_rows(
        {name: images[:10] for name, images in known.items()},
        marks={name: found[:10] for name, found in to_trained.items()},
    ),
    id="three-known-attacks",
    alt="Three rows of ten images: training images under noise, other real images, and blurred class means. Mean SSIM to the nearest training image: "
    + ", ".join(f"{name} {found:.2f}" for name, found in similar.items())
    + ".",
    caption=f"Three attacks made up by us, and the SSIM of each image with the nearest of {m} training images of its class. On average: "
    + ", ".join(f"{name} {found:.2f}" for name, found in similar.items())
    + ".",
    provenance=made_by,
)
ranking = sorted(similar, key=similar.get, reverse=True)
Markdown(
    f"By similarity to the training images alone, the order is **{', '.join(ranking)}**. The only one that leaks anything is number {1 + ranking.index('memorizer')}."
)

# %% [markdown]
# **Before you read on, predict:** for each of the three, is it closer to the $m$ training images or to as many holdout
# images, and by how much?

# %% tags=["hide-input"]
pool, pool_labels = torch.cat([trained, unseen]), torch.cat([labels, labels])


def differences(images: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    """How much closer, in SSIM, each of n images of classes ``of`` is to a training than to a holdout image.

    (1001, n): as the pool was really split, then for random re-splits of it.
    """
    return resplit_differences(ssim_matrix(images.double(), pool.double()), pool_labels, of)


def tested(told: torch.Tensor) -> dict[str, float]:
    """The gap, the mean of the differences, and its p-value over the re-splits."""
    gaps = told.mean(1)
    return {"gap": float(gaps[0]), "p": p_value(gaps)}


told = {name: differences(images, labels) for name, images in known.items()}
found = {name: tested(told[name]) for name in known}
rows = pd.DataFrame(
    [
        {
            "attack": name,
            "SSIM to training": similar[name],
            "SSIM to holdout": float(to_unseen[name].mean()),
            **found[name],
        }
        for name in known
    ]
)
report.table(
    rows,
    id="known-gaps",
    caption=f"The same three attacks against {m} training images and {m} holdout images. *gap*: the difference. *p*: the share of random re-splits of these images into training and holdout whose gap is at least as large.",
    provenance=made_by,
    formats={"SSIM to training": ".3f", "SSIM to holdout": ".3f", "gap": "+.3f", "p": ".3f"},
)
for name in known:
    report.value(f"gap_{name}", found[name]["gap"])

# %%
# NBVAL_CHECK_OUTPUT
print({name: f"{found[name]['gap']:+.2f}" for name in known})

# %% [markdown]
# The difference between the two similarities is the **leakage gap**. Training and holdout images come from one source
# and were told apart by lot. Whoever knows only what such images look like cannot be closer to one half than to the
# other, except by luck, and luck can be counted: re-draw the lot many times and see how often a gap this large appears.
#
# ## How small a leak can be seen?
#
# A real attack may leak a few images and impute the rest. Mix the memorizer with the generalizer and lower the share.

# %% tags=["hide-input"]
counts = sorted({round(share * m) for share in (0, 0.02, 0.05, 0.1, 0.2, 0.4, 1)})
levels = {"copies": differences(trained, labels), "under noise": told["memorizer"]}
imputed = differences(splits.test.images, splits.test.labels)


def unseen_rows(generator: torch.Generator) -> torch.Tensor:
    """(m,) test images at random, each of the class of the training image in its place."""
    rows = torch.empty(m, dtype=torch.long)
    for label in labels.unique():
        members, places = ((values == label).nonzero().flatten() for values in (splits.test.labels, labels))
        rows[places] = members[torch.randperm(len(members), generator=generator)[: len(places)]]
    return rows


power = []
for name, leaked in levels.items():
    for count in counts:
        for draw in range(p.draws):
            lot = torch.Generator().manual_seed(draw)
            chosen = torch.randperm(m, generator=lot) < count
            mixed = torch.where(chosen, leaked, imputed[:, unseen_rows(lot)])
            power.append({"kind": name, "share": count / m, "draw": draw, **tested(mixed)})
power = pd.DataFrame(power)
power["found"] = power.p < 0.01
rate = power.groupby(["kind", "share"]).agg(found=("found", "mean"), gap=("gap", "mean")).reset_index()
fig, axes = plt.subplots(1, 2, figsize=(report.WIDTH, 2.6))
for color, (name, part) in zip(COLORS, rate.groupby("kind"), strict=False):
    axes[0].plot(part.share, part.gap, marker="o", ms=4, color=color, label=name)
    axes[1].plot(part.share, part.found, marker="o", ms=4, color=color, label=name)
axes[0].axhline(0, color="0.6", lw=0.8)
axes[0].set(xlabel="share of leaked images", ylabel="gap (SSIM)")
axes[1].set(xlabel="share of leaked images", ylabel="share of draws with p < .01", ylim=(-0.05, 1.05))
axes[0].legend(frameon=False)
sns.despine(fig)


def from_share(part: pd.DataFrame) -> str:
    """The share from which on a leak is found in most draws."""
    missed = part[part.found <= 0.5].share.max()
    enough = part[~(part.share <= missed)].share
    return (
        f"found in most draws from a share of {enough.min():g} on"
        if len(enough)
        else "not found at any share"
    )


smallest = ", ".join(f"{name}: {from_share(part)}" for name, part in rate.groupby("kind"))
false = power[(power.share == 0) & (power.kind == "copies")].found
report.figure(
    fig,
    id="leak-power",
    alt="Left: the gap grows with the share of leaked images. Right: the share of draws in which the test finds it. "
    + f"{smallest[0].upper()}{smallest[1:]}.",
    caption=f"A share of the reconstructions are training images, the rest unseen real images (n = m = {m}, {p.draws} draws of both). {smallest[0].upper()}{smallest[1:]}. "
    + f"With no leak, {int(false.sum())} of {len(false)} draws are below .01 (one split of training and holdout images). A gap that is not found is no proof that nothing leaked.",
    provenance=made_by,
)

# %% [markdown]
# The mean over all images is not the only statistic. One image that is nearly copied is a leak, although the mean
# hardly moves; that is why copies are counted apart ({doc}`the benchmark </notebooks/12_benchmark>`), and why the pictures of
# this book show the nearest holdout image beside the nearest training image. And where holdout images are
# near-duplicates of training images, as some digits are (`drlib data digits` counts them), a leak of these makes no gap.
#
# ## What real attacks do

# %% tags=["hide-input"]
ssim = table[table.metric == "SSIM"]
report.figure(
    plots.gaps(table, "SSIM"),
    id="leaked-gaps",
    alt="Leakage gaps with intervals: "
    + "; ".join(
        f"{row.attack} {row.gap:+.3f} (p {row.gap_p:.2f})"
        for row in ssim.itertuples()
        if not math.isnan(row.gap)
    )
    + ".",
    caption=f"Leakage gaps of attacks and controls with bootstrap intervals, {p.target_size} target images. For comparison, the attacks made up above: {found['averager']['gap']:+.3f} for the averager, which cannot leak, {found['memorizer']['gap']:+.3f} for the memorizer, which leaks everything under noise.",
    provenance=made_by,
)
attacks_only = ssim[(ssim.kind == "attack") & ssim.gap.notna()]
leaks = attacks_only[attacks_only.gap_p < 0.01]
report.value("leaked_gaps_tested", len(attacks_only))
report.value("leaked_gaps_found", len(leaks))
Markdown(
    f"Of {len(attacks_only)} attacks tested, {len(leaks)} have a gap with *p* < .01"
    + (f" ({', '.join(leaks.attack)})" if len(leaks) else "")
    + f"; the largest gap is {attacks_only.gap.max():+.3f}, the memorizer's is {found['memorizer']['gap']:+.3f}."
)

# %% [markdown]
# ## Who is who?
#
# An attack on the gradient of several images returns them in no particular order. Which reconstruction belongs to which
# target? Three answers are in use: each takes its *nearest* target (Definition 4.2); a *Hungarian* assignment, one to
# one; the *printed order*, as if reconstruction $i$ were of target $i$. Below, one attack that gets images back
# (Deep-Leakage on an untrained sigmoid LeNet, {doc}`/book/attacks/deep_leakage`), judged in all three ways.

# %% tags=["hide-input"]
gradient = p.gradient_cells()
lines, shown = [], None
for cell in gradient:
    rec = results.reconstruction(cell)
    private, _ = results.target_and_holdout(cell)
    pairs = who_is_who(rec.images, private.images)
    lines.append(
        {"images a gradient": cell.target.update.per_gradient, "n": len(rec.images)}
        | {f"{way}": pairs[way].mean for way in WAYS}
        | {"coverage, nearest": pairs["nearest"].coverage}
    )
    shown = (rec, private, pairs)
if lines:
    who = pd.DataFrame(lines)
    report.table(
        who,
        id="who-is-who",
        caption="Mean SSIM of the same reconstructions, paired with their targets in three ways. Nearest is never below Hungarian, and Hungarian never below printed order. Any set of images scores higher by an assignment that may choose than by a fixed order; but where nearest and Hungarian are near 1 and printed order is not, the attack knew the images and not their order.",
        provenance=made_by,
        formats={**dict.fromkeys(WAYS, ".3f"), "coverage, nearest": ".2f"},
    )
    rec, private, pairs = shown
    count = min(10, len(rec.images))
    rows = {"reconstruction": rec.images[:count]} | {
        way: private.images[pairs[way].index[:count]] for way in WAYS
    }
    report.figure(
        plots.image_rows(rows, marks={way: pairs[way].values[:count] for way in WAYS}),
        id="who-is-who-rows",
        alt="Reconstructions in the first row; below, the target that each is paired with by nearest neighbor, Hungarian assignment and printed order. Mean SSIM "
        + ", ".join(f"{way} {pairs[way].mean:.2f}" for way in WAYS)
        + ".",
        caption="The last line of {numref}`tab-who-is-who`, image by image: the target each reconstruction is paired with, and their SSIM. Mean: "
        + ", ".join(f"{way} {pairs[way].mean:.2f}" for way in WAYS)
        + ".",
        provenance=made_by,
    )
    for way in WAYS:
        report.value(f"who_{way}", pairs[way].mean)
None if lines else Markdown("*Not shown: `deep_leakage` is not among the attacks of this run.*")

# %% [markdown]
# ## What to take along
#
# 1. Similarity to training images does not say *leaked*; the difference to holdout images does.
# 2. The gap needs its p-value: the lot that told training from holdout images also makes gaps.
# 3. A small share of leaked images can hide below the noise of the test. *Not found* has a size; print it.
# 4. Say how reconstructions were paired. Printed order punishes a perfect attack, nearest neighbor rewards one that
#   returns a single image many times (hence coverage).
#
# ```{exercise}
# :label: ex-leaked-predict
# Your attack has SSIM 0.80 to training images and 0.79 to holdout images with n = m = 20. A colleague's has 0.40
# and 0.33. Which one would you worry about, and what do you still need?
# ```
#
# ```{solution} ex-leaked-predict
# :class: dropdown
# Neither number decides. The 0.80 says only that the images are easy; the gap of 0.07 is the larger one, but with 20
# images the luck of the lot is large, and a gap of 0.01 between images that hardly vary may be the rarer event. What
# is missing is the p-value of each.
# ```
#
# ```{exercise}
# :label: ex-leaked-mean
# The averager is closer to *both* halves than the generalizer, which returns real images. Why does SSIM like a mean?
# Would you expect the same of MSE?
# ```
#
# ```{solution} ex-leaked-mean
# :class: dropdown
# A real image differs from another real image in every stroke; the mean has something of all of them. For the squared
# distance to a *random* image of the class it is a theorem: the mean minimizes it. For the distance to the *nearest* of
# many images it is not: with two tight clusters, any point in one of them beats the mean between them. In which case
# a data set is has to be measured, hence the class mean as a control in every table.
# ```
