"""The paper's tables and figures, and how far this build regenerates each (design, honesty rule 8).

The state is computed from what the chapters ran, never typed: an item counts as regenerated only if the
paper's data set, architecture, sizes and attacks were run.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from drlib.book.layout import Chapter

TEN = (
    "mi_face", "deep_dream", "deep_inversion", "revealer", "kedmi", "plgmi", "deep_leakage", "inv_alignment",
    "updates_leak", "bias_rec",
)  # fmt: skip
IMAGE_SETS = ("CelebA", "CIFAR10", "MNIST")


@dataclass(frozen=True)
class Item:
    """A table or figure of the paper: what it shows and what the paper ran for it."""

    name: str
    what: str
    datasets: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    attacks: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    lacks: str = ""
    """What full scale needs that a laptop without network does not have."""


_WHAT = {
    1: "Taxonomy of the ten attacks",
    2: "Attacks against target size, VGG16 on CelebA",
    3: "GPT-4o as judge of GAN-based attacks",
    4: "Two other judges for PLGMI (Pre)",
    5: "PLGMI from scratch against PLGMI (Pre)",
    6: "Judge against width of the feature embedding",
    7: "DeepInversion with BatchNorm updated or fixed",
    8: "Judge on Swin",
    9: "Vec2Text on three text data sets",
    10: "Learned features and defenses, PLGMI",
    11: "Complete on three text data sets",
    12: "Judge on MAE",
    13: "Attacks against target size, Swin on CelebA",
    14: "Attacks against target size, MAE on CelebA",
    15: "Attacks against target size, VGG16 on CIFAR-100",
    16: "Attacks under MID and DP, VGG16 on CelebA",
    17: "Attacks against target size, MobileNetV2 on CelebA",
    18: "Attacks against target size, ResNet-18 on CelebA",
    19: "Attacks against target size, VGG16 on CIFAR-10",
    20: "Attacks against target size, MobileNetV2 on CIFAR-10",
    21: "Attacks against target size, ResNet-18 on CIFAR-10",
    22: "Attacks against target size, VGG16 on MNIST",
    23: "Attacks against target size, MobileNetV2 on MNIST",
    24: "Attacks against target size, ResNet-18 on MNIST",
}
_FIGURES = {
    1: ("Reconstructions of ten attacks", IMAGE_SETS, ("VGG16",), TEN),
    2: ("Sample-level against dataset-level metrics", IMAGE_SETS, (), TEN),
    3: ("PLGMI on different target models", ("CelebA",), ("VGG16",), ("plgmi",)),
    4: ("Auxiliary information, PLGMI", IMAGE_SETS, (), ("plgmi",)),
    5: ("Additional data, Inv-Alignment on a backdoored model", ("CelebA",), ("VGG16",), ("inv_alignment",)),
    6: ("Attacks on a backdoored model", ("CelebA",), ("VGG16",), TEN),
    7: ("Counterexamples to accuracy as a metric", (), (), ("mi_face",)),
    8: ("t-SNE, CelebA", ("CelebA",), (), TEN),
    9: ("t-SNE, CIFAR-10", ("CIFAR10",), (), TEN),
    10: ("t-SNE, MNIST", ("MNIST",), (), TEN),
    11: ("Coverage under different metrics, CIFAR-10 and MNIST", ("CIFAR10", "MNIST"), (), TEN),
    12: ("Coverage under different metrics, CelebA", ("CelebA",), (), TEN),
    13: ("Number of reconstructions, DeepInversion", IMAGE_SETS, (), ("deep_inversion",)),
    14: ("Auxiliary information, other attacks", IMAGE_SETS, (), ()),
}
_JUDGED = {3, 4, 5, 6, 8, 12}
_FILES = ("image_attacks", "fid_variants", "llm_judge", "llm_judge_variants", "text_attacks", "memorization")


def items() -> list[Item]:
    """Tables 1 to 24, then Figures 1 to 14; what was run is read from the published numbers."""
    ran: dict[int, dict[str, dict[str, None]]] = {}
    for file in _FILES:
        text = (resources.files("drlib") / "published" / f"{file}.csv").read_text(encoding="utf-8")
        for row in csv.DictReader(text.splitlines()):
            fields = ran.setdefault(int(row["paper_table"]), {})
            for column in ("dataset", "model", "attack", "target_size"):
                if row.get(column):
                    fields.setdefault(column, {})[row[column]] = None
    tables = []
    for number, what in _WHAT.items():
        found = ran.get(number, {})
        attacks = TEN if number == 1 else tuple(found.get("attack", ()))
        datasets, models = tuple(found.get("dataset", ())), tuple(found.get("model", ()))
        sizes = tuple(sorted(int(size) for size in found.get("target_size", ())))
        tables.append(
            Item(
                f"Table {number}", what, datasets, models, attacks, sizes, _lacks(datasets, number in _JUDGED)
            )
        )
    figures = [
        Item(f"Figure {number}", what, datasets, models, attacks, (), _lacks(datasets, False))
        for number, (what, datasets, models, attacks) in _FIGURES.items()
    ]
    return tables + figures


def _lacks(datasets: Sequence[str], judged: bool) -> str:
    needs = [f"{' and '.join(datasets)} data"] if datasets else []
    needs += ["a GPU"] if datasets else []
    return ", ".join([*needs, *(["an API key of the judge"] if judged else [])])


def state(
    item: Item, chapters: Iterable[Chapter], runs: Mapping[str, Any]
) -> tuple[str, str, Chapter | None]:
    """The state of an item, the reason, and the chapter that covers it.

    Args:
        runs: by section, what its executed notebook says: ``parameters`` and ``states``.
    """
    chapter = next((chapter for chapter in chapters if item.name in chapter.regenerates), None)
    if chapter is None:
        return "not yet", "", None
    run = runs.get(chapter.slug)
    if run is None:
        return "not yet", "its chapter is not part of this build", chapter
    if item.name in run.get("states", {}):
        said = run["states"][item.name]
        return said["state"], said["reason"], chapter
    parameters = run.get("parameters", {})
    differences = _differences(item, parameters)
    if not differences and not item.datasets and item.name != "Table 1":
        differences = "the paper does not say which data and model"
    if not differences:
        return "regenerated", "", chapter
    return (
        f"shape only ({parameters['dataset']})" if "dataset" in parameters else "not yet",
        differences,
        chapter,
    )


def _differences(item: Item, parameters: Mapping[str, Any]) -> str:
    """How a run differs from what the paper ran for an item; empty if it covers it."""
    found = []
    for what, published, name in (
        ("data", item.datasets, "dataset"),
        ("model", item.models, "architecture"),
    ):
        ran = str(parameters.get(name, "none"))
        if published and [_plain(ran)] != [_plain(each) for each in published]:
            found.append(f"{what} {ran} for {', '.join(published)}")
    sizes = parameters.get("target_sizes", [])
    if item.sizes and not set(item.sizes) <= set(sizes):
        found.append(f"sizes {_span(sizes)} for {_span(item.sizes)}")
    attacks = {_plain(attack) for attack in parameters.get("attacks", _registered())}
    wanted = {_plain(attack) for attack in item.attacks}
    if not wanted <= attacks:
        found.append(f"{len(wanted & attacks)} of {len(wanted)} attacks")
    return "; ".join(found)


def _registered() -> tuple[str, ...]:
    from drlib import attacks

    return attacks.names()


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _span(sizes: Sequence[int]) -> str:
    if not sizes:
        return "none"
    return f"{min(sizes):,} to {max(sizes):,}" if len(sizes) > 1 else f"{sizes[0]:,}"


def listing(chapters: Sequence[Chapter], runs: Mapping[str, Any]) -> str:
    """MyST text: how many items are in which state, and a table of all (without a number of its own)."""
    rows, count = [], Counter()
    for item in items():
        found, reason, chapter = state(item, chapters, runs)
        count[found] += 1
        link = f"{{doc}}`{chapter.title} <../notebooks/{chapter.stem}>`" if chapter else ""
        name = item.name.replace(" ", "\N{NO-BREAK SPACE}")
        rows.append([name, item.what, found, link, reason or (item.lacks and f"will need {item.lacks}")])
    header = ["Item", "What it shows", "State here", "Chapter", "What differs, or will be needed"]
    text = "".join("| " + " | ".join(row) + " |\n" for row in [header, ["---"] * 5, *rows])
    summary = ", ".join(f"{number} {found}" for found, number in count.items())
    return f"In this build: {summary}.\n\n`````{{table}}\n:class: drlib-table drlib-list\n\n{text}`````\n"
