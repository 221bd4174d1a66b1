# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Data reconstruction in ten minutes
#
# :::{admonition} This chapter
# :class: tip
# **Needs** nothing. \
# **Gives** one model, three reconstructions of its training images, and the question of this book: were the
# images *leaked* by the model, or *imputed* from what any picture of its kind looks like? \
# **Minutes** 10 to read, 1 to run.
# :::
#
# A model has been trained on private images. Somebody who holds only the model tries to get the images back.
# {cite:t}`wen2025` define what counts as getting them back and measure ten attacks. Here are three of them,
# on
# real handwriting small enough for your laptop.

# %%
from drlib import data, plots, report, results, sections, study

# %% tags=["parameters"]
profile: str = "laptop"  # the profile that supplies whatever is not set here (training, hyperparameters)
dataset: str = "digits"  # the data set whose target split is to be reconstructed
side: int = 16  # image height and width in pixels
channels: int = 1  # 1 for gray images, 3 for color
mode: str = "class"  # what a label means: the object class, or (lfw_subset) the single image
root: str | None = None  # the folder with the data set's files, where it is not inside a package
download: bool = False  # whether the data set may be downloaded
architecture: str = "convnet"  # the target model's architecture
width: float | None = None  # factor on the architecture's width; null for the original
attacks: list = ["mi_face", "deep_dream", "deep_inversion"]  # attacks to run
controls: list = ["noise", "class_mean", "auxiliary_top", "holdout"]  # what stands beside every attack
seed: int = 0  # the first random seed (of target model and attack)
n: int | None = None  # reconstructions per target; null for as many as target images
extractor: str = "efficientnet_lite0"  # features of the Frechet distance
training: dict = {}  # changes to the profile's training of target models
hyperparameters: dict = {}  # changes to the profile's hyperparameters, by attack
target_size: int = 100  # images the target model is trained on

# %% tags=["hide-input"]
p = sections.from_notebook("ten_minutes", globals())
cells = p.cells()
study.run(cells)
table = results.summary(cells, profile=p.profile)
made_by = results.provenance(table, p.command())
splits = data.load_splits(cells[0].target.data)
target = data.target_subset(splits, p.target_size)
report.style()

# %% [markdown]
# ## The private images
#
# The model saw the images below while it was trained, and no others. They are its **target data set**
# $\mathcal{D}_\text{tar}$: what an attack wants back. Images of the same classes that it never saw are the
# **holdout**. The adversary of this chapter has neither, and no other data: only the model.

# %% tags=["hide-input"]
seen = plots.class_examples(target, 2)
unseen = plots.class_examples(splits.holdout, 2) if len(splits.holdout) else seen[:0]
report.figure(
    plots.image_rows({"target (seen)": seen[:10], "holdout (unseen)": unseen[:10]}),
    id="private-images",
    alt="Two rows of small handwritten digits, two of each class. The upper row was used for training, the "
    "lower row was not. By eye, nothing tells the rows apart.",
    caption=f"Some of the {p.target_size} images that the model was trained on (above) and some that it never "
    "saw (below), two of each class. Nothing in the pictures says which is which.",
    provenance=made_by,
)

# %% [markdown]
# ## Three attacks
#
# All three start from random pixels and change them until the model is sure of a class.
#
# - **MI-Face** {cite:p}`fredrikson2015` does nothing else.
# - **DeepDream** {cite:p}`mordvintsev2015` also asks for smooth images.
# - **DeepInversion** {cite:p}`yin2020` also asks that the statistics inside the network be those that its
#   BatchNorm layers recorded during training.

# %% tags=["hide-input"]
attacked = {
    results.title(cell): cell
    for cell in cells
    if not cell.is_control and study.explain_unsupported(cell) is None
}
made = {title: results.reconstruction(cell) for title, cell in attacked.items()}
confident = {
    title: results.score(cell).tensors["Confidence.values"][:10] > 0.9 for title, cell in attacked.items()
}
sure = ", ".join(f"{int(shown.sum())} of {len(shown)} by {title}" for title, shown in confident.items())
report.figure(
    plots.image_rows({title: rec.images[:10] for title, rec in made.items()}),
    id="three-attacks",
    alt="One row of ten reconstructions for each attack. MI-Face returns noise; DeepDream smooth blots, much "
    "the same for each class; DeepInversion shapes that resemble handwritten digits.",
    caption="Ten reconstructions of each attack, two of each class. The model gives its class a probability above 0.9 to "
    f"{sure}, also of those that you cannot read.",
    provenance=made_by,
)
confidence = table[(table.metric == "Confidence") & (table.kind == "attack")].set_index("attack").value
# %%
# NBVAL_CHECK_OUTPUT
print({attack: round(float(value), 1) for attack, value in confidence.items()})

# %% [markdown]
# ## Leaked or imputed?
#
# Take the attack whose images look best. Beside each of its reconstructions, find the training image it is
# closest to. It looks as if the training image had been recovered.
#
# **Before you read on, predict:** beside that, put the closest *holdout* image, which the model never saw.
# Will it be closer, or farther away?

# %% tags=["hide-input"]
best = max(attacked, key=lambda title: results.score(attacked[title]).data["SSIM.distance"])
holdout = splits.holdout if len(splits.holdout) else target
rows, marks = plots.comparison_rows(made[best].images[:10], made[best].labels[:10], target, holdout)
report.figure(
    plots.image_rows(rows, marks=marks),
    id="leaked-or-imputed",
    alt=f"Ten reconstructions by {best}; under each the nearest training image, the nearest holdout image, and the "
    "best possible image, with their structural similarity. Training and holdout images are about equally close.",
    caption=f"{best}, image by image. The number under an image is its SSIM with the one above it that it is compared "
    "with: nearest target and nearest holdout with the reconstruction, best possible (the holdout image closest to "
    "the nearest target) with that target. 1 would be a copy.",
    provenance=made_by,
)

# %% [markdown]
# The difference between the two is the **leakage gap**. If the model had leaked its training images, the
# reconstructions would be closer to them than to holdout images of the same classes. An attack that knows
# only
# what a digit looks like is as close to one as to the other: it *imputes*.

# %% tags=["hide-input"]
ssim = table[table.metric == "SSIM"].copy()
ssim["SSIM to target"], ssim["to holdout"] = ssim.value_target_m, ssim.value_holdout_m
ssim["95 % interval"] = list(map(report.interval, ssim.gap_low, ssim.gap_high))
ssim["p"] = ssim.gap_p
accuracy = table[table.metric.str.startswith("Accuracy")].groupby("attack").value.mean()
ssim["evaluators' accuracy"] = ssim.attack.map(accuracy)
report.table(
    ssim[
        [
            "attack",
            "SSIM to target",
            "to holdout",
            "gap",
            "95 % interval",
            "p",
            "coverage",
            "evaluators' accuracy",
        ]
    ],
    id="ten-minutes",
    caption="Closeness to training images and to holdout images. Attacks first, then controls that are no attacks. "
    "The interval is a bootstrap over reconstructions; *p* is the share of random re-splits of training and holdout images "
    "with a gap at least as large. Read *p*: with one seed, the interval does not know how the images were drawn. "
    "NaN: the holdout cannot be compared with itself.",
    provenance=made_by,
    formats={
        "SSIM to target": ".3f",
        "to holdout": ".3f",
        "gap": "+.3f",
        "p": ".3f",
        "coverage": ".2f",
        "evaluators' accuracy": ".2f",
    },
)
for name, column in (("best_gap", "gap"), ("best_gap_p", "gap_p")):
    report.value(name, float(ssim.set_index("attack")[column][best]))

# %% tags=["hide-input"]
from IPython.display import Markdown

row = ssim.set_index("attack").loc[best]
mean = ssim.set_index("attack").loc["Class mean"] if "Class mean" in set(ssim.attack) else None
found = row.gap > 0 and row.gap_p < 0.01
text = f"""**What was measured here.** {best} looks best. Its images are on average {row.value_target_m:.2f} similar (SSIM) to the
nearest training image and {row.value_holdout_m:.2f} to the nearest holdout image: a gap of {row.gap:+.3f}, *p* = {row.gap_p:.3f}.
""" + (
    "Chance alone would rarely do that: something of the training images is in these reconstructions. How much, look at the gap, "
    "not at the similarity."
    if found
    else "Random re-splits of the same images do as well too often to call it a leak. What the reconstructions show is what "
    "handwritten digits look like: imputed, as far as this test can see."
)
if mean is not None:
    text += f""" And the class mean, a control that averages *other people's* images of *other* digits and attacks nothing, scores
{mean.value_target_m:.2f}{" — more than the attack" if mean.value_target_m > row.value_target_m else ""}. A similarity without its controls says little."""
Markdown(text)

# %% [markdown]
# ## What to take along
#
# 1. **Confidence is no evidence.** The model is sure of reconstructions that are noise to every other eye.
# 2. **Similarity is no evidence of a leak.** Compare it with the holdout (the gap) and with controls.
# 3. **Every number has conditions.** They stand under each figure. These are 16x16 digits and a small
#   network: what
#    holds here need not hold for faces and VGG16, and the reverse.
#
# Next: {doc}`what the adversary knows </notebooks/01_taxonomy>`, {doc}`when a reconstruction is good
# </notebooks/02_metrics>`, and
# {doc}`the benchmark </notebooks/12_benchmark>`. Or change a parameter and run this chapter again:
# `drlib run ten_minutes -p target_size=50 -p seed=7`.
#
# ```{exercise}
# :label: ex-ten-minutes
# Train the target on 20 images instead of 100 (`-p target_size=20`). Predict first: does the gap of the
# best attack
# grow? Then look at its *p*, and say what you may conclude from 20 images.
# ```
#
# ```{solution} ex-ten-minutes
# :class: dropdown
# With fewer images the network can memorize each more easily, and nearest neighbors are farther away on
# both sides,
# so both similarities fall. Whether the *gap* grows is an empirical question; with 4 images per class the
# re-split
# test has few re-splits to tell apart (70 per class) and little power. "Not found" is then no proof of
# absence.
# ```
