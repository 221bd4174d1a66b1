# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # What the adversary knows
#
# :::{admonition} This chapter
# :class: tip
# **Needs** nothing. \
# **Gives** Definitions 3.1 and 3.2 of the paper, and its Table 1 from the attacks' own declarations. \
# **Minutes** 15 to read, 1 to run.
# :::
#
# Three people show you reconstructed training images. The first could only send queries to the model. The
# second had its weights. The third had the weights and thirty thousand other photographs of faces. Which
# attack is the best? The pictures alone do not say. First comes the question of what each of them was given.
# Then comes the question of what each was allowed to do with the result. {cite:t}`wen2025` answer the first
# with a taxonomy and the second with a definition. This chapter runs both.

# %% tags=["hide-input"]
import subprocess
import sys
import tempfile
from collections import Counter
from importlib import resources
from itertools import combinations, product

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
import torch
from IPython.display import Markdown

import drlib
from drlib import attacks, data, metrics, models, report, sections
from drlib.types import (
    BLACK_BOX,
    DYNAMIC,
    NO_DATA,
    SAME,
    STATIC,
    WHITE_BOX,
    BlackBox,
    DatasetAccess,
    Knowledge,
    ModelAccess,
    TargetSpec,
    TrainingType,
    WhiteBox,
)

# %% tags=["parameters"]
profile: str = "laptop"  # the profile that supplies whatever is not set here (training, hyperparameters)

# %%
p = sections.from_notebook("taxonomy", globals())
versions = f"drlib {drlib.__version__} · CPU, threads: {torch.get_num_threads()}"
made = f"Made by `{p.command()}` · {versions} · torch {torch.__version__}"
report.style()

# %% [markdown]
# ## Knowledge has three parts
#
# :::{prf:definition} Extra knowledge, Definition 3.1 of the paper
# :label: def-extra-knowledge
#
# Extra knowledge $\mathcal{K}$ is the information that a reconstruction attack requires. It has three parts:
#
# 1. *training type*: static or dynamic;
# 2. *model access*: black-box or white-box;
# 3. *data set access*: no data, similar distribution, or same distribution.
# :::
#
# **Training type** says what is to be recovered. *Static*: the data set on which the model was trained, which
# does not change. *Dynamic*: the samples that made the model change, such as the batch of an update.
#
# **Model access** says how the model can be reached. *Black-box*: send an image, get the class probabilities.
# *White-box*: architecture, weights, and every gradient that can be computed from them. What lies between (an
# encoder behind an interface, a head in the open) is bounded by these two.
#
# **Data set access** says which images the adversary holds besides the model. Here the paper speaks in two
# ways. Section 3.1 explains *same* as "images of a specific person" and *similar* as "the data set contains
# faces". Section 7 then runs something else: *same* means other people or other classes of the same
# collection, *similar* means another collection (KMNIST for MNIST, CIFAR-100 for CIFAR-10). This book follows
# what was run.
#
# In code, every attack declares its knowledge, and this is the least it needs:

# %%
for name in attacks.names():
    attack = attacks.get(name)
    print(f"{attack.title:14} {attack.knowledge}")

# %% [markdown]
# ## More and less knowledge
#
# Whoever has the weights can also answer queries; whoever holds data can ignore it. So we write $k_1 \le k_2$
# when an adversary with $k_2$ knows at least what $k_1$ asks for. An attack can be run by every adversary
# above its own $k$. This is what the caption of Table 1 means by "attacks requiring more information can be
# extended from attacks that require less".

# %%
mi_face = attacks.get("mi_face").knowledge
for adversary in (
    Knowledge(STATIC, WHITE_BOX, SAME),
    Knowledge(STATIC, BLACK_BOX, SAME),
    Knowledge(DYNAMIC, WHITE_BOX, SAME),
):
    print(f"MI-Face can be run with   {adversary!s:36} {mi_face <= adversary}")

# %% [markdown]
# The order is only *partial*. Weights without data, and data without weights, are two different adversaries:
# neither knows more. Static and dynamic are never comparable, because different samples are to be recovered.
# So there is no single ranking of attacks "by strength of the adversary", and a table that sorts them into
# one hides a choice.


# %%
# NBVAL_CHECK_OUTPUT
def relation(a: Knowledge, b: Knowledge) -> str:
    if a.training != b.training:
        return "static and dynamic"
    return "comparable" if a <= b or b <= a else "incomparable"


every = [Knowledge(*k) for k in product(TrainingType, ModelAccess, DatasetAccess)]
pairs = Counter(relation(a, b) for a, b in combinations(every, 2))
print(f"{len(every)} kinds of adversary, {sum(pairs.values())} pairs")
for kind, count in sorted(pairs.items()):
    print(f"{kind:20}{count:4}")

# %% [markdown]
# ## Table 1
#
# The paper groups ten attacks by what they need. Below is the same table, but filled by asking the classes in
# `drlib.attacks`, and then compared with the printed one.

# %%
with (resources.files("drlib.published") / "taxonomy.csv").open() as file:
    printed = pd.read_csv(file)
published = {}  # attack -> the least it needs, and all data that it can use
for title, rows in printed.groupby("attack", sort=False):
    datasets = [DatasetAccess[name.upper()] for name in rows["dataset"]]
    training, model = (rows[column].iloc[0].upper() for column in ("training", "model"))
    published[title] = Knowledge(TrainingType[training], ModelAccess[model], min(datasets)), datasets
needs = {
    attack.title: (attack.knowledge, [attack.knowledge.dataset, *attack.also_datasets])
    for attack in map(attacks.get, attacks.names())
}

# %% tags=["hide-input"]
rows = []
for training, model in product(TrainingType, ModelAccess):
    row = {
        "Training type": ("Static", "Dynamic")[training],
        "Model access": ("Black-box", "White-box")[model],
    }
    for dataset, heading in zip(
        DatasetAccess, ("No data", "Similar distribution", "Same distribution"), strict=True
    ):
        row[heading] = ", ".join(
            title
            for title, (k, datasets) in needs.items()
            if (k.training, k.model) == (training, model) and dataset in datasets
        )
    rows.append(row)
report.table(
    pd.DataFrame(rows),
    id="taxonomy",
    caption="The paper's Table 1, from the attacks' own declarations. The last three columns say what the "
    "adversary holds besides the model.",
    provenance=made,
)

# %%
# NBVAL_CHECK_OUTPUT
wrong = [title for title in needs if needs[title] != published.get(title)]
print(f"attacks of this package that differ from the printed table: {wrong or 'none'}")
print(
    f"attacks of the printed table that this package does not have: {[*published.keys() - needs] or 'none'}"
)

# %% [markdown]
# Reading the table as an order says more than reading it as a grid. {numref}`fig-knowledge-order` draws each
# kind of adversary as a box. An arrow leads from less to more knowledge. Each attack stands where its *least*
# knowledge is, and the number counts all attacks that this adversary could run.

# %% tags=["hide-input"]
fig, axes = plt.subplots(2, 1, figsize=(5.8, 6))
blue = sns.color_palette("colorblind")[0]
runnable = {}
for ax, training in zip(axes, TrainingType, strict=True):
    nodes = [k for k in every if k.training == training]
    place = {k: (1.55 * k.dataset, 1.5 * k.model) for k in nodes}
    for a, b in product(nodes, nodes):
        between = any(a != c != b and a <= c and c <= b for c in nodes)
        if a != b and a <= b and not between:
            (x, y), (to_x, to_y) = place[a], place[b]
            start, end = ((x + 0.62, y), (to_x - 0.62, y)) if to_x > x else ((x, y + 0.52), (x, to_y - 0.52))
            ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": "0.3", "lw": 1.4})
    for k, (x, y) in place.items():
        runnable[k] = sum(least <= k for least, _ in needs.values())
        shade = sns.light_palette(blue, 40)[runnable[k]] if runnable[k] else "white"
        ax.add_patch(plt.Rectangle((x - 0.6, y - 0.5), 1.2, 1.0, facecolor=shade, edgecolor="0.7", lw=1))
        titles = [title for title, (least, _) in needs.items() if least == k]
        for i, title in enumerate(titles):
            height = y + 0.08 + 0.2 * ((len(titles) - 1) / 2 - i)
            ax.text(x, height, title, ha="center", va="center", fontsize=9, color=blue, weight="bold")
        ax.text(x, y - 0.46, f"can run {runnable[k]}", ha="center", va="bottom", fontsize=8, color="0.2")
    for dataset, text in zip(DatasetAccess, ("no data", "similar", "same distribution"), strict=True):
        ax.text(1.55 * dataset, -0.72, text, ha="center", va="center")
    for model, text in zip(ModelAccess, ("black-\nbox", "white-\nbox"), strict=True):
        ax.text(-0.72, 1.5 * model, text, ha="right", va="center")
    ax.set(xlim=(-1.15, 3.75), ylim=(-0.85, 2.15))
    ax.set_title(("Static", "Dynamic")[training], loc="left", weight="bold")
    ax.axis("off")
corners = Knowledge(STATIC, BLACK_BOX, NO_DATA), Knowledge(STATIC, WHITE_BOX, SAME)
at = {k: ", ".join(title for title, (least, _) in needs.items() if least == k) or "nothing" for k in every}
report.figure(
    fig,
    id="knowledge-order",
    alt="Two grids of boxes, static above and dynamic below. Columns: no data, similar, same distribution; "
    "rows: black-box below, white-box above. Arrows lead to the right and upward. What stands in the boxes: "
    + "; ".join(f"{k}: {titles}" for k, titles in at.items())
    + f". The bottom left box of the static grid can run {runnable[corners[0]]} attacks, the top right one "
    f"{runnable[corners[1]]}.",
    caption="Definition 3.1 as a partial order. Arrows lead from less to more knowledge.",
    provenance=made,
)

# %% [markdown]
# Three things can be read off.
#
# - None of the ten works without weights and without data: in both grids the box at the bottom left is empty.
#   What an adversary lacks in access to the model has to be made up by images of the right kind.
# - Most attacks stand in the upper row. Open weights are the common assumption of this literature.
# - The text of the paper's section 3.1 says that Inv-Alignment requires data of the *same* distribution; its
#   Table 1 lists it under *similar* as well. We follow the table.
#
# ## What the adversary sees
#
# A taxonomy on paper is a promise. In this package it decides which object an attack receives. A **black
# box** has one method, which returns probabilities and counts the images it was asked about. There are no
# parameters to read.

# %%
shape, num_classes = (1, 16, 16), 5
model = models.build("lenet", shape=shape, num_classes=num_classes, generator_seed=0)
spec = TargetSpec.of(model, "lenet", shape, num_classes)
white = WhiteBox(model, spec)
black = BlackBox(white.query, spec)

images = torch.rand(8, *shape, generator=torch.Generator().manual_seed(0))
probabilities = black.query(images)
print(f"probabilities of shape {tuple(probabilities.shape)}, {black.queries} queries counted")


# %%
def attempt(what: str, action) -> None:
    """Print the error that an action ends with."""
    try:
        action()
        print(f"{what}: allowed")
    except Exception as error:
        print(f"{what}: {type(error).__name__}: {str(error).splitlines()[0]}")


attempt("black.model       ", lambda: black.model)
attempt("black.logits      ", lambda: black.logits(images))
attempt("black.query(x)    ", lambda: black.query(images))
attempt("black.query(2 * x)", lambda: black.query(2 * images))

# %% [markdown]
# A **white box** hands over the model, frozen and in evaluation mode. Gradients with respect to *images* are
# what an attack lives on, and they are counted, because two attacks are only comparable if their budgets are.
# Gradients with respect to *parameters* are off: an attack must leave the model as it found it.

# %%
x = images.clone().requires_grad_()
white.logits(x).logsumexp(1).sum().backward()
print(f"gradient for images: shape {tuple(x.grad.shape)}, {white.gradient_calls} gradient calls counted")
frozen = not any(parameter.requires_grad for parameter in white.model.parameters())
print(f"parameters frozen: {frozen}, training mode: {white.model.training}")
attempt("gradient for parameters", lambda: white.logits(images).sum().backward())

# %% [markdown]
# Python cannot hide an object from code in the same process, so a view alone guards against mistakes rather
# than against malice. The wall is elsewhere. Every attack runs in a process of its own, which ends with it and never
# loads the target data set. A black box is served by *another* process, so that no parameter of the target is anywhere
# in the attack's memory. And while the attack runs, it can open neither a data set nor a stored result: the
# interpreter refuses with an `AccessError`, and on Linux the kernel refuses what the interpreter does not see,
# such as compiled code that opens files itself. (What remains possible is listed on the page {doc}`design
# </book/design>`.) We can stand behind that wall and try:

# %%
cheat = """
from pathlib import Path
import torch
from drlib import apart, guard

store = Path("store").resolve()
score = store / "score" / "key" / "tensors.safetensors"
score.parent.mkdir(parents=True)
score.write_bytes(b"D_tar was here")
guard.install(store)
for what, action in (
    ("load a data set      ", lambda: __import__("drlib.data")),
    ("open a score         ", lambda: score.read_bytes()),
    ("map a score in memory", lambda: torch.UntypedStorage.from_file(str(score), False, 14)),
):
    try:
        made = apart.run(
            lambda: (None, {}),
            lambda granted, progress: (action() and {}, {}),
            closed=[store],
            progress=lambda done, total: None,
        )
        print(f"{what}: not seen by the {made.enforced_by}")
    except Exception as error:
        print(f"{what}: {type(error).__name__}: {str(error).replace(str(store), 'store')[:60]}")
"""
with tempfile.TemporaryDirectory() as folder:
    attempted = subprocess.run(
        [sys.executable, "-c", cheat], cwd=folder, capture_output=True, text=True, check=True
    )
print(attempted.stdout, end="")

# %% [markdown]
# ## How many, and chosen how?
#
# :::{prf:definition} Reconstruction algorithm, Definition 3.2 of the paper
# :label: def-reconstruction
#
# Given a target model $m \in \mathcal{M}$ and extra knowledge $k \in \mathcal{K}$, a reconstruction algorithm
# $\mathcal{A}$ returns a data set $\mathcal{D}_{\mathrm{rec}} = \mathcal{A}^{k}(m) \in \mathbb{D}$, that is,
# $\mathcal{A} : \mathcal{M} \times \mathcal{K} \to \mathbb{D}$, of the same size as the target data set
# $\mathcal{D}_{\mathrm{tar}}$.
# :::
#
# In the static setting $\mathcal{D}_{\mathrm{tar}}$ is the whole training set. In the dynamic setting it is
# the subset that changed the model. The sentence before the definition asks for "the same size as the target
# *model*"; the data set is meant, as the definition itself says. So in this book $n =
# |\mathcal{D}_{\mathrm{tar}}|$ unless a section says otherwise.
#
# The size is fixed for a reason. With enough samples anything is "reconstructed": the set of all possible
# images contains every training set and tells nothing about it. An attack may generate more than $n$ samples
# and keep the best, says the paper, but "it is crucial that the selection procedure does not involve any
# information about the target dataset".
#
# How much does it matter? Here is an experiment in which *there is no model at all*. The candidates are
# digits of five classes. The target data set consists of digits of five *other* classes. We keep 100
# candidates in one of two ways: the first 100, or those most similar to some target. Each kept image is then
# scored by its similarity (SSIM) to its nearest target, and to its nearest *holdout* image, an equally large
# set that nobody tried to match.

# %%
splits = data.load_splits(data.DataSpec())
candidates = splits.auxiliary.images[:800]
real = torch.cat([splits.target.images, splits.holdout.images])
similarity = metrics.ssim_matrix(candidates, real)  # (candidates, real images)
generator = torch.Generator().manual_seed(0)
n, records = 100, []
for _ in range(20):  # each time, other images are called targets and holdout
    drawn = torch.randperm(len(real), generator=generator)
    targets, holdout = drawn[:n], drawn[n : 2 * n]
    for surplus in (1, 2, 4, 8):
        pool = similarity[: surplus * n]
        looked = pool[:, targets].amax(1).topk(n).indices
        for rule, kept in (("looking at the targets", looked), ("without looking", torch.arange(n))):
            for against, images in (("targets", targets), ("holdout", holdout)):
                score = float(pool[kept][:, images].amax(1).mean())
                records.append((surplus, rule, against, score))
scores = pd.DataFrame(records, columns=["surplus", "selection", "scored against", "SSIM"])

# %% tags=["hide-input"]
fig, ax = plt.subplots(figsize=(6, 3.6))
palette = sns.color_palette("colorblind")
colors = {"looking at the targets": palette[3], "without looking": palette[0]}
means = scores.groupby(["selection", "scored against", "surplus"])["SSIM"].agg(["mean", "std"])
for selection, color in colors.items():
    for against, style in (("targets", "-"), ("holdout", "--")):
        line = means.loc[selection, against]
        ax.errorbar(
            line.index, line["mean"], line["std"], color=color, ls=style, marker="o", ms=4, lw=2, capsize=3
        )
    top, bottom = (means.loc[(selection, against), "mean"] for against in ("targets", "holdout"))
    ax.fill_between(top.index, bottom, top, color=color, alpha=0.15, lw=0)
looked, blind = (
    {against: means.loc[(selection, against, 8), "mean"] for against in ("targets", "holdout")}
    for selection in colors
)
for text, height, color in (
    ("looking at the targets,\nscored against targets", looked["targets"], palette[3]),
    ("the same, scored\nagainst holdout", looked["holdout"], palette[3]),
    ("without looking,\nboth", blind["targets"], palette[0]),
):
    ax.text(8.7, height, text, va="center", color=color, fontsize=9)
ax.set_xscale("log", base=2)
ax.set(xlabel="candidates per kept image", ylabel="mean SSIM to the nearest image", xlim=(0.93, 25))
ax.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
sns.despine()
report.figure(
    fig,
    id="selection-by-target",
    alt="Mean SSIM against the candidates per kept image, from 1 to 8. Selected by looking at the "
    f"targets, the similarity to the targets climbs to {looked['targets']:.2f} and that to the holdout "
    f"only to {looked['holdout']:.2f}, so a gap opens. Without looking both lines stay flat at "
    f"{blind['targets']:.2f}.",
    caption="Selection by the target data set raises SSIM and opens a gap to the holdout, although no model "
    "was attacked. Lines: mean over 20 draws of the target data set; bars: one standard deviation.",
    provenance=f"{made} · digits 16×16 · seed 0 · n = {n}, m = {n} · matching: all",
)

# %% tags=["hide-input"]
gap = looked["targets"] - looked["holdout"]
report.value("gap_looking", gap)
no_gap = blind["targets"] - blind["holdout"]
report.value("gap_blind", no_gap)
Markdown(
    f"With eight candidates for each kept image, looking at the targets lifts the mean SSIM from "
    f"{blind['targets']:.3f} to {looked['targets']:.3f}. Worse, it fakes the very sign of a leak: the gap "
    f"between targets and holdout becomes {gap:+.3f}, against {no_gap:+.3f} without looking."
)

# %% [markdown]
# This is why the rule is part of the definition, and why in this package an attack returns exactly $n$
# samples from a process that cannot open the target data set. A choice of *steps* or *weights* by the same
# score is a selection too, only slower.
#
# ## Exercises
#
# :::{exercise} Six adversaries
# :label: ex-six-adversaries
#
# Give the knowledge $k$ of each, and say which of them can run MI-Face.
#
# 1. A clinic offers a skin-lesion classifier as a web service. The adversary works at another clinic and has
#    its pictures.
# 2. A phone maker ships a face-unlock model, weights included. The adversary has the phone and nothing else.
# 3. A company's recognizer of its employees is leaked. The adversary has collected photographs of actors.
# 4. A model trained on five of the ten classes of CIFAR-10 is published with its weights. The adversary
#    downloads the other five.
# 5. A service fine-tunes overnight on 100 new pictures. The adversary queries it in the evening and in the
#    morning, and holds other pictures from the same source.
# 6. In federated learning a curious server receives the gradient of one batch.
# :::
#
# :::{solution} ex-six-adversaries
# :class: dropdown
#
# 1. static, black-box, similar. \
# 2. static, white-box, no data. \
# 3. static, white-box, similar: another collection of the same kind. \
# 4. static, white-box, same, in the sense of the paper's section 7: other classes of the same data set. \
# 5. dynamic, black-box, same: Updates-Leak. \
# 6. dynamic, white-box, no data: Deep-Leakage.
#
# MI-Face asks for (static, white-box, no data), so numbers 2, 3 and 4 can run it:
#
# ```python
# from drlib.types import *
#
# mi_face <= Knowledge(STATIC, WHITE_BOX, SIMILAR)    # number 3: True
# mi_face <= Knowledge(STATIC, BLACK_BOX, SIMILAR)    # number 1: False, no gradients
# mi_face <= Knowledge(DYNAMIC, WHITE_BOX, NO_DATA)   # number 6: False, another target
# ```
#
# Number 6 has weights as well. It could attack the *training set* of the model it sends out, but this would
# be another target and so another $k$.
# :::
#
# :::{exercise} Which selection rule breaks Definition 3.2?
# :label: ex-selection-rules
#
# An attack has 1,000 candidates and must return 100. Which of these rules may it use?
#
# 1. Keep those in which the target model is most confident.
# 2. Keep those with the highest SSIM to their nearest training image.
# 3. Drop near-duplicates among the candidates, then keep the first 100.
# 4. Run 500, 1,000 and 2,000 steps and report the number of steps with the best SSIM.
# 5. Keep those that an evaluation model, trained on data of the same distribution, classifies correctly.
# 6. Show a judge, for each training image, the candidate with the highest PSNR to it.
# :::
#
# :::{solution} ex-selection-rules
# :class: dropdown
#
# Ask of each rule: could the adversary of this $k$ compute it?
#
# - **1 and 3: allowed.** They use the model and the candidates, nothing else.
# - **2: not allowed.** It is the experiment of {numref}`fig-selection-by-target`.
# - **4: not allowed.** The score looks at $\mathcal{D}_{\mathrm{tar}}$, and choosing a hyperparameter by it
#   is a selection. Choose on another target model, whose training set you own.
# - **5: depends on $k$.** With *same distribution* it is allowed; with *no data* it is not, because the
#   adversary has nothing to train the evaluation model on. And then accuracy under this evaluation model is
#   no longer a score.
# - **6: not allowed as a part of the attack.** The paper's own study with a language model as a judge does
#   this (it keeps the results "with the highest PSNR score relative to their targets"). As an *evaluation* it
#   answers another question: does anything among the candidates come close? Call it an oracle, and give every
#   attack the same number of candidates.
# :::
