# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # t-SNE
#
# :::{admonition} This chapter
# :class: tip
# **Needs** {doc}`when a reconstruction is good </notebooks/02_metrics>` and {doc}`the attacks </notebooks/06_attacks>`. \
# **Gives** the shape of Figures 8 to 10 of the paper, with the controls by which "overlap" can be judged, and with
# numbers beside the pictures; and what such a picture cannot show. \
# **Minutes** 15 to read, 2 to run.
# :::
#
# Appendix B of {cite:t}`wen2025` shows the target data set and the reconstructions of each attack as two clouds of points in the plane. The plane is
# made by t-SNE ({cite:t}`vandermaaten2008`): it turns distances into probabilities of being neighbors, in the space of images and in the plane, and moves the points until
# the two agree. Where the clouds overlap, one is tempted to say that the attack found the target data set. Two questions come first. What do *real images that nobody trained on*
# look like in the same picture? And would another seed have drawn the same picture?

# %%
import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from IPython.display import Markdown

from drlib import metrics, relations, report, results, sections, study
from drlib.embedding import NEIGHBORS, embed, mixing

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
controls: list = ["noise", "class_mean", "holdout"]  # what stands beside every attack
seed: int = 0  # the first random seed (of target model and attack)
n: int | None = None  # reconstructions per target; none: as many as target images
perplexity: float = 30.0  # t-SNE: neighbors that count, roughly
space: str = "pixels"  # what is embedded
extractor: str = "efficientnet_lite0"  # features of the Frechet distance
training: dict = {}  # changes to the profile's training of target models
hyperparameters: dict = {}  # changes to the profile's hyperparameters, by attack; none: the original paper's
root: str | None = None  # folder of downloaded data sets; none: $DRLIB_DATA or ~/.cache/drlib/data
download: bool = False  # may missing files be downloaded?

# %% tags=["hide-input"]
p = sections.from_notebook("tsne", globals())
cells = p.cells()
study.run(cells)
table = results.summary(cells, profile=p.profile)
made_by = results.provenance(table, p.command())
report.style()
COLORS = sns.color_palette("colorblind")
refused = {
    results.title(cell): reason for cell in cells if (reason := study.explain_unsupported(cell)) is not None
}
shown = [cell for cell in cells if results.title(cell) not in refused]


def signed(value: float, how: str = "+.2f") -> str:
    return "NaN" if math.isnan(value) else format(value, how)


def space_of(images) -> np.ndarray:
    """Images (n, c, h, w) as points (n, d) of the space that the section looks at."""
    return (images.flatten(1) if p.space == "pixels" else metrics.extract(images, p.extractor).values).numpy()


# %% [markdown]
# ## One embedding for everything
#
# All sets go into *one* embedding: the target data set, the update images (what the dynamic attacks are after), every attack's reconstructions and every control. An
# embedding of each attack alone, with its own axes, could not be compared with the next one.

# %%
targets = {}  # D_tar: the training images, or those of the update
for cell in shown:
    what = "target" if cell.target.update is None else "update"
    targets.setdefault(what, results.target_and_holdout(cell)[0])
sets = {what: split.images for what, split in targets.items()}
sets |= {results.title(cell): results.reconstruction(cell).images for cell in shown}
goal = {results.title(cell): "target" if cell.target.update is None else "update" for cell in shown}
control = {results.title(cell): results.is_control(cell) for cell in shown}
points = {name: space_of(images) for name, images in sets.items()}
everything = np.concatenate(list(points.values()))
ends = np.cumsum([len(part) for part in points.values()])
print(
    f"{len(everything)} points in {everything.shape[1]} dimensions: "
    + ", ".join(f"{name} {len(part)}" for name, part in points.items())
)


# %% tags=["hide-input"]
def apart(coordinates: np.ndarray) -> dict[str, np.ndarray]:
    """The rows of each set."""
    return dict(zip(points, np.split(coordinates, ends[:-1]), strict=True))


first = embed(everything, perplexity=p.perplexity, seed=p.seed)
plane = apart(first.coordinates)
facts = (
    f"t-SNE in {p.space}, {len(everything)} points, perplexity {first.perplexity:g}, seed {first.seed}, "
    f"trustworthiness {first.trustworthiness:.3f} ({first.neighbors} neighbors)"
)
made = f"{made_by} · {facts}"
panels = [name for name in goal if not control[name]]
panels += [
    name
    for name in goal
    if control[name] and name.startswith(("Holdout", "Noise", "Class mean")) and "(" not in name
]
if not any(control[name] for name in panels):
    panels += [name for name in goal if control[name]]
mixed = {name: mixing(plane[name], plane[goal[name]]) for name in goal}
mixed_original = {name: mixing(points[name], points[goal[name]]) for name in goal}


def scatter(ax, where: dict[str, np.ndarray], name: str, title: str) -> None:
    """D_tar and one set of reconstructions; everything else faint."""
    whole = np.concatenate(list(where.values()))
    ax.scatter(*whole.T, s=1, color="0.88", lw=0, rasterized=True)
    ax.scatter(*where[goal[name]].T, s=7, color=COLORS[0], lw=0, alpha=0.8, label="D_tar")
    color = "0.25" if control[name] else COLORS[3]
    ax.scatter(*where[name].T, s=7, color=color, marker="^", lw=0, alpha=0.8)
    ax.set_title(title, fontsize=8.5)
    ax.set(xticks=[], yticks=[])


across = min(4, len(panels))
down = -(-len(panels) // across)
fig, axes = plt.subplots(down, across, figsize=(1.85 * across, 1.95 * down + 0.3), squeeze=False)
for ax, name in zip(axes.flat, panels, strict=False):
    star = "" if goal[name] == "target" else " (update)" if "(update)" not in name else ""
    scatter(ax, plane, name, f"{name}{star}, {mixed[name].ratio:.2f}")
for ax in axes.flat[len(panels) :]:
    ax.set_axis_off()
handles = [
    plt.Line2D([], [], marker=m, color=c, lw=0, ms=5, label=label)
    for m, c, label in (
        ("o", COLORS[0], "target data set"),
        ("^", COLORS[3], "reconstructions"),
        ("^", "0.25", "control"),
    )
]
fig.legend(handles=handles, ncols=3, loc="outside upper center", frameon=False, fontsize=8)
report.figure(
    fig,
    id="tsne-panels",
    alt="One panel for each attack and control: the target data set and the reconstructions as points of one t-SNE embedding. Mixing (0: apart, 1: as mixed as random halves of one set): "
    + ", ".join(f"{name} {mixed[name].ratio:.2f}" for name in panels)
    + ".",
    caption=f"The shape of Figures 8 to 10 ({p.dataset}, {len(points.get('target', points[next(iter(points))]))} images in D_tar): one embedding of all sets, in each panel D_tar with one attack or control; all other points faint. "
    "Behind each name: how mixed the two clouds are (0 apart, 1 as random halves of one set). *(update)*: D_tar is the images of the update.",
    provenance=made,
)

# %% [markdown]
# ## Overlap as a number
#
# "Overlap" can be counted. Take the points of $D_{\mathrm{tar}}$ and of one set of reconstructions together, and ask for each point which share of its nearest neighbors is of the *other* set. If it were drawn at random which points are targets,
# the share of the $n$ reconstructions would be $m / (n + m - 1)$ on average for $m$ targets, and that of the targets $n / (n + m - 1)$. The **mixing** of either side is its share divided by that: 0 for clouds apart, about 1 for random parts of one set, and above
# 1 where points have twins on the other side, as copies do. Two sets are mixed only if *both* sides are, so the smaller of the two counts. It can be counted in the plane and, without t-SNE, in the space that the plane was made of. Only the second is a
# property of the images. (Over all points together, one minus the share is the statistic of the two-sample test of Schilling and Henze.)

# %% tags=["hide-input"]
rows = []
for name in goal:
    flat, full = mixed[name], mixed_original[name]
    rows.append(
        {
            "set": name,
            "kind": "control" if control[name] else "attack",
            "D_tar": goal[name],
            "n": flat.n,
            "targets": flat.m,
            "reconstructions": full.first_ratio,
            "targets' side": full.second_ratio,
            "mixing in the original space": full.ratio,
            "mixing in the plane": flat.ratio,
            "reason": full.reason,
        }
    )
for name, reason in refused.items():
    rows.append({"set": name, "kind": "attack", "D_tar": "", "reason": reason})
overlap = pd.DataFrame(rows)
overlap["n"], overlap["targets"] = overlap["n"].astype(float), overlap["targets"].astype(float)
overlap = overlap.sort_values("mixing in the original space", ascending=False)
report.table(
    overlap if overlap.reason.any() else overlap.drop(columns="reason"),
    id="tsne-mixing",
    caption=f"How mixed reconstructions and D_tar are, by their {NEIGHBORS} nearest neighbors; the most mixed first. *reconstructions*, *targets' side*: the two sides in the original space ({p.space}), 1 being random; *mixing*: the smaller of the two, "
    "there and in the plane of {numref}`fig-tsne-panels`. An attack must be read against the holdout, which is unseen, and noise, which is nothing.",
    provenance=made,
    formats=dict.fromkeys(
        ["reconstructions", "targets' side", "mixing in the original space", "mixing in the plane"], ".2f"
    )
    | {"n": ".0f", "targets": ".0f"},
)

# %% tags=["hide-input"]
by_set = overlap.set_index("set")
of_attacks = by_set[(by_set.kind == "attack") & by_set["mixing in the original space"].notna()]
order = relations.correlation(
    by_set["mixing in the plane"], by_set["mixing in the original space"], "kendall"
)
holdout = by_set["mixing in the original space"].get("Holdout", math.nan)
above = [name for name, row in of_attacks.iterrows() if row["mixing in the original space"] >= holdout]
one_sided = [
    name for name, row in by_set.iterrows() if row["reconstructions"] >= 0.5 and row["targets' side"] < 0.1
]
plane_more = (of_attacks["mixing in the plane"] > of_attacks["mixing in the original space"]).sum()
yardstick = (
    f"Real images that nobody trained on have a mixing of {holdout:.2f} with D_tar in the original space. {len(above)} of {len(of_attacks)} attacks reach that ({', '.join(above) or 'none'})."
    if math.isfinite(holdout)
    else "It would be the holdout, real images that nobody trained on, which is not among the controls of this run."
)
for name, value in (
    ("trustworthiness", first.trustworthiness),
    ("tsne_holdout_mixing", holdout),
    ("tsne_order", order.value),
):
    report.value(name, float(value))
Markdown(
    f"""- **The yardstick.** {yardstick} Overlap like that of the holdout says that the images are of the right *kind*. It cannot say that they leaked.
- **Picture against space.** {plane_more} of {len(of_attacks)} attacks look more mixed in the plane than they are. The two orders agree with Kendall's tau {signed(order.value)} ({order.n} sets).
- **Why both sides.** In many dimensions a far point still has nearest neighbors: a few targets in the middle, for which nobody cares in return. Mixed from the side of the reconstructions (0.5 or more) and not from that of the
  targets (below 0.1): {", ".join(one_sided) or "none"}."""
)

# %% [markdown]
# ## What the picture cannot show
#
# ### Two halves of one set
#
# D_tar against itself: cut it into two random halves. Nothing tells them apart but the cut. Whatever the picture shows between them is what "the same distribution" looks like at this number of points.

# %% tags=["hide-input"]
what = "target" if "target" in points else next(iter(points))
rng = np.random.default_rng(p.seed)
halves = []
for _ in range(20):
    shuffled = rng.permutation(len(points[what]))
    a, b = np.array_split(shuffled, 2)
    halves.append(
        (a, b, mixing(plane[what][a], plane[what][b]).ratio, mixing(points[what][a], points[what][b]).ratio)
    )
in_plane, in_space = (np.array([half[index] for half in halves]) for index in (2, 3))
fig, axes = plt.subplots(1, 3, figsize=(report.WIDTH, 2.6))
for ax, (a, b, ratio, _) in zip(axes, halves, strict=False):
    ax.scatter(*first.coordinates.T, s=1, color="0.88", lw=0, rasterized=True)
    ax.scatter(*plane[what][a].T, s=12, color=COLORS[0], lw=0)
    ax.scatter(*plane[what][b].T, s=12, color=COLORS[1], marker="^", lw=0)
    ax.set_title(f"mixing {ratio:.2f}", fontsize=9)
    ax.set(xticks=[], yticks=[])
report.figure(
    fig,
    id="tsne-halves",
    alt=f"Three random cuts of D_tar into two halves, in the plane of the first figure. Mixing in the plane over 20 cuts: {in_plane.min():.2f} to {in_plane.max():.2f}; in the original space {in_space.min():.2f} to {in_space.max():.2f}.",
    caption=f"Three of 20 random cuts of D_tar into halves. Their mixing goes from {in_plane.min():.2f} to {in_plane.max():.2f} in the plane and from {in_space.min():.2f} to {in_space.max():.2f} in the original space: differences of that size "
    "between attacks mean nothing. (The halves have fewer points than the sets above, so they scatter more.)",
    provenance=made,
)

# %% [markdown]
# ### Another seed, another perplexity
#
# The same points once more: with another seed, which matters little as long as the optimization starts from the two principal components; from a random start; and with a third of the perplexity.

# %% tags=["hide-input"]
settings = {
    "as above": (p.perplexity, p.seed),
    "another seed": (p.perplexity, p.seed + 1),
    "random start": (p.perplexity, p.seed),
    "perplexity / 3": (max(1.0, p.perplexity / 3), p.seed),
}
again = {
    name: first
    if name == "as above"
    else embed(everything, perplexity=of, seed=seed_of, init="random" if name == "random start" else "pca")
    for name, (of, seed_of) in settings.items()
}
example = max(of_attacks.index, key=lambda name: mixed[name].ratio) if len(of_attacks) else next(iter(goal))
fig, axes = plt.subplots(1, len(again), figsize=(report.WIDTH, 2.4), squeeze=False)
for ax, (name, made_again) in zip(axes[0], again.items(), strict=True):
    scatter(ax, apart(made_again.coordinates), example, name)
ratios = {
    name: {each: mixing(where[each], where[goal[each]]).ratio for each in goal}
    for name, where in ((name, apart(made_again.coordinates)) for name, made_again in again.items())
}


def centers(where: dict[str, np.ndarray]) -> list[float]:
    """Distance of each set's center from the center of its D_tar."""
    return [float(np.linalg.norm(where[name].mean(0) - where[goal[name]].mean(0))) for name in goal]


def moved(a: np.ndarray, b: np.ndarray) -> float:
    """Mean share of the nearest neighbors of a point in one picture that are so in another."""
    kept = []
    for left, right in zip(a, b, strict=True):
        near = [
            set(np.argsort(((left - x) ** 2).sum(1), kind="stable")[1 : NEIGHBORS + 1])
            for left, x in ((left, a), (right, b))
        ]
        kept.append(len(near[0] & near[1]) / NEIGHBORS)
    return float(np.mean(kept))


rows = []
for name, made_again in again.items():
    where = apart(made_again.coordinates)
    rows.append(
        {
            "embedding": name,
            "perplexity": made_again.perplexity,
            "seed": made_again.seed,
            "trustworthiness": made_again.trustworthiness,
            "neighbors kept": moved(first.coordinates, made_again.coordinates),
            f"mixing of {example}": ratios[name][example],
            "order of mixing": relations.correlation(
                list(ratios[name].values()),
                [mixed_original[each].ratio for each in goal],
                "kendall",
                resamples=0,
            ).value,
            "order of distances": relations.correlation(
                centers(where), centers(points), "kendall", resamples=0
            ).value,
        }
    )
stability = pd.DataFrame(rows)
report.figure(
    fig,
    id="tsne-again",
    alt=f"D_tar and {example} in {len(again)} embeddings of the same points. Mixing: "
    + ", ".join(f"{name} {found[example]:.2f}" for name, found in ratios.items())
    + ".",
    caption=f"The same points ({example}, the most mixed attack in the plane) in {len(again)} embeddings. Places, shapes and gaps change; nothing in the images did.",
    provenance=made,
)
report.table(
    stability,
    id="tsne-stability",
    caption=f"What stays when t-SNE is run again. *Neighbors kept*: share of each point's {NEIGHBORS} nearest in the first picture that are so here. *Order of mixing*, *order of distances*: Kendall's tau, over all sets, "
    f"between picture and original space ({p.space}), of the mixing with D_tar and of the distance of the set's center from D_tar's.",
    provenance=made,
    formats={
        "perplexity": ".3g",
        "trustworthiness": ".3f",
        "neighbors kept": ".2f",
        "order of mixing": "+.2f",
        "order of distances": "+.2f",
        f"mixing of {example}": ".2f",
    },
)
spread = {
    each: max(found[each] for found in ratios.values()) - min(found[each] for found in ratios.values())
    for each in goal
}
widest = max(spread, key=lambda each: -math.inf if math.isnan(spread[each]) else spread[each])
Markdown(
    f"""The mixing of one set differs between the pictures by up to {spread[widest]:.2f} ({widest}). Another seed keeps {stability["neighbors kept"][1]:.0%} of the neighbors, a random start {stability["neighbors kept"][2]:.0%}. """
    + (
        f"""The order of the sets by their distance from D_tar is kept with
tau {signed(stability["order of distances"].min())} to {signed(stability["order of distances"].max())}, that by their mixing with {signed(stability["order of mixing"].min())} to {signed(stability["order of mixing"].max())}. So read from such a picture which points are
neighbors, with its trustworthiness beside it, and nothing about how far two clouds are apart or how large they are."""
        if stability["order of distances"].notna().any()
        else "With so few sets there is no order to keep or to lose."
    )
)

# %% [markdown]
# ## What can be said

# %%
# NBVAL_CHECK_OUTPUT
known = of_attacks["mixing in the original space"].sort_values(ascending=False, kind="stable")
print(
    f"mixing with D_tar in {p.space}, without t-SNE:",
    ", ".join(f"{name} {value:.1f}" for name, value in known.items()),
)
for name in ("Holdout", "Noise"):
    print(f"{name}: {by_set['mixing in the original space'].get(name, math.nan):.1f}")

# %% tags=["hide-input"]
low, high = float(in_space.min()), float(in_space.max())
twins = [name for name, value in known.items() if value > high]
same_as = [name for name, value in known.items() if value >= low]
halves_told = (
    f"In the original space {len(same_as)} of {len(known)} attacks ({', '.join(same_as) or 'none'}) are as mixed with D_tar as random halves of it can be ({low:.2f} to {high:.2f} in 20 cuts)."
    if math.isfinite(low)
    else f"D_tar has too few images to be cut into halves with {NEIGHBORS} neighbors, so there is nothing to compare with."
)
twins_told = (
    f"{len(twins)} of {len(known)} attacks have one ({', '.join(twins) or 'none'})."
    if math.isfinite(high)
    else "Without halves it cannot be told here."
)
holdout_told = (
    f"The holdout has {holdout:.2f}." if math.isfinite(holdout) else "No holdout stands beside them."
)
Markdown(
    f"""- **Overlap.** {halves_told} {holdout_told}
- **Kind, not leak.** An attack in the middle of D_tar and the holdout in the middle of D_tar look the same. A mixing clearly *above* that of random halves would be a sign of twins; {twins_told}
  The question itself is answered by the {{doc}}`leakage gap </notebooks/03_leaked>`.
- **Not shown here:** faces, objects or handwriting of the paper's data sets (Figures 8 to 10); only the shape of these figures."""
)

# %% [markdown]
# ## Exercises
#
# ```{exercise}
# :label: ex-tsne-features
# Run the chapter in features instead of pixels (`-p space=features`). Which panels change most, and does the holdout's mixing? Why would an attack that optimizes a network's confidence gain or lose there?
# ```
#
# ```{solution} ex-tsne-features
# :class: dropdown
# Compare the two columns of {numref}`tab-tsne-mixing` between the runs. The features were learned on photographs and react to grain: images with noise on them, also faint noise, fall together in a corner, far from any real
# image, although in pixels they may be close to one. The holdout differs from D_tar in neither, so its mixing should stay where random halves are. If it does not, the two splits differ.
# ```
#
# ```{exercise}
# :label: ex-tsne-copies
# Add a set of your own to `sets` before the embedding: (a) copies of D_tar, (b) one image of D_tar copied as often, (c) D_tar with a little noise. Predict the mixing of each, in the original space, before you run it. Which of the three
# would you call a good reconstruction, and does the mixing agree?
# ```
#
# ```{solution} ex-tsne-copies
# :class: dropdown
#
# ~~~python
# x = points["target"]
# print(mixing(x, x).ratio)                          # (a)
# print(mixing(np.repeat(x[:1], len(x), 0), x).ratio)  # (b)
# print(mixing(x + 0.05 * rng.normal(size=x.shape), x).ratio)  # (c)
# ~~~
#
# Copies have a twin at distance 0 and otherwise as many neighbors of either set: above 1. One image copied has neighbors of its own set nearly everywhere: near 0, as it should be. With a little noise the twins may still be the nearest of
# each other, but every noisy image also moves away from all others, and soon its neighbors are those of a few targets only: on digits of 16x16 the mixing is about 1.1 at noise .05, .9 at .1, .35 at .2 and 0 at .5. So a mixing clearly above
# that of random halves is a sign of twins, and that is a sign of a leak. A mixing of 1 is what real unseen images have, and a low one is no sign that nothing leaked.
# ```
#
# ```{exercise}
# :label: ex-tsne-noise
# Embed pure noise: 300 points, standard normal in 100 dimensions, at perplexity 3, 30 and 90. What do you see, and what is the trustworthiness?
# ```
#
# ```{solution} ex-tsne-noise
# :class: dropdown
#
# ~~~python
# cloud = rng.normal(size=(300, 100))
# for perplexity in (3, 30, 90):
#     found = embed(cloud, perplexity=perplexity)
#     plt.figure(figsize=(2.5, 2.5))
#     plt.scatter(*found.coordinates.T, s=5)
#     plt.title(f"{perplexity}: {found.trustworthiness:.2f}")
# ~~~
#
# At a small perplexity there are clumps and strings, and none of them is in the data. The trustworthiness says so: it is far from 1.
# ```
