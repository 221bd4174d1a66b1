"""What the paper shows: each table and each panel of a figure, with the grid of its rows.

The grids of tables come from the published numbers. Those of figures, which print none, are read from their
captions and the sections that speak of them; what the paper does not state is our reading and listed in
``Item.unstated``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import product
from typing import Any

from drlib import attacks, data, declared
from drlib.published import TABLES, spelled
from drlib.sections import SECTIONS

Grid = dict[str, list[Any]]

PLANNED = {
    "text": 11,
    "how_many": 14,
    "knowledge": 15,
    "transformers": 16,
    "judge": 19,
    "defenses": 20,
}
"""Sections to come, with the numbers of their chapters; one that exists says its number itself."""

JUDGED_BY_API = {"GPT-4o": "OPENAI_API_KEY", "Claude 3.7": "ANTHROPIC_API_KEY"}
"""Judges behind an interface, with the environment variable that holds the key."""

LANGUAGE_MODELS = {"Vec2Text": "gtr-t5-base and T5-base", "Complete": "GPT-2"}
"""The published weights that the text attacks start from."""

CONVOLUTIONAL = ("VGG16", "MobileNetV2", "ResNet18")

_LATER = ("celeba", "ffhq", "swin", "mae", "sst2", "ag_news", "imdb", "vec2text", "complete")
"""Names of data sets, architectures and attacks that this package does not have yet."""

VARIANTS = {
    "none": "none",
    "updated": "none",
    "fixed": "fixed BatchNorm",
    "scratch": "none",
    "pretrained": "pretrained",
    "feature 2048": "none",
    "PLGMI": "none",
    "PLGMI (Pre)": "pretrained",
    "PLGMI (DP)": "DP",
    "PLGMI (Prune)": "pruning",
    "same": "none",
    "white box": "none",
}
"""What the paper's words for a row mean; "none" is the target model and the attack as everywhere else."""

_TABLES = {
    1: ("taxonomy", "Taxonomy of the ten attacks"),
    2: ("benchmark", "Attacks against target size, VGG16 on CelebA"),
    3: ("judge", "GPT-4o as judge of GAN-based attacks"),
    4: ("judge", "Two other judges for PLGMI (Pre)"),
    5: ("judge", "PLGMI from scratch against PLGMI (Pre)"),
    6: ("judge", "Judge against width of the feature embedding"),
    7: ("knowledge", "DeepInversion with BatchNorm updated or fixed"),
    8: ("judge", "Judge on Swin"),
    9: ("text", "Vec2Text on three text data sets"),
    10: ("defenses", "Learned features and defenses, PLGMI"),
    11: ("text", "Complete on three text data sets"),
    12: ("judge", "Judge on MAE"),
    13: ("transformers", "Attacks against target size, Swin on CelebA"),
    14: ("transformers", "Attacks against target size, MAE on CelebA"),
    15: ("benchmark", "Attacks against target size, VGG16 on CIFAR-100"),
    16: ("defenses", "Attacks under MID and DP, VGG16 on CelebA"),
    17: ("benchmark", "Attacks against target size, MobileNetV2 on CelebA"),
    18: ("benchmark", "Attacks against target size, ResNet-18 on CelebA"),
    19: ("benchmark", "Attacks against target size, VGG16 on CIFAR-10"),
    20: ("benchmark", "Attacks against target size, MobileNetV2 on CIFAR-10"),
    21: ("benchmark", "Attacks against target size, ResNet-18 on CIFAR-10"),
    22: ("benchmark", "Attacks against target size, VGG16 on MNIST"),
    23: ("benchmark", "Attacks against target size, MobileNetV2 on MNIST"),
    24: ("benchmark", "Attacks against target size, ResNet-18 on MNIST"),
}
_FIGURES = {
    1: ("benchmark", "Reconstructions of ten attacks"),
    2: ("relations", "Sample-level against dataset-level metrics"),
    3: ("judge", "PLGMI on different target models"),
    4: ("knowledge", "Auxiliary information, PLGMI"),
    5: ("knowledge", "Additional data, Inv-Alignment on a backdoored model"),
    6: ("knowledge", "Attacks on a backdoored model"),
    7: ("accuracy", "Counterexamples to accuracy as a metric"),
    8: ("tsne", "t-SNE, CelebA"),
    9: ("tsne", "t-SNE, CIFAR-10"),
    10: ("tsne", "t-SNE, MNIST"),
    11: ("relations", "Coverage under different metrics, CIFAR-10 and MNIST"),
    12: ("relations", "Coverage under different metrics, CelebA"),
    13: ("how_many", "Number of reconstructions, DeepInversion"),
    14: ("knowledge", "Auxiliary information, other attacks"),
}

_NOT_DIMENSIONS = ("paper_table", "value", "coverage_percent", "memorization")


@dataclass(frozen=True)
class Item:
    """A table of the paper, or a figure, or one panel of it.

    Attributes:
        label: the caption of the panel; empty without one.
        planned: the section that regenerates it, whether it exists yet or not.
        rows: the grid of what is printed, dimension by dimension, in the paper's words. A target size may
            be ``smallest``, ``largest`` or ``all six`` of each data set's.
        memorization: the table also has a row of the target models' memorization.
        unstated: dimensions that the paper does not state; they are our reading.
    """

    kind: str
    number: int
    panel: str | None
    what: str
    label: str
    planned: str
    rows: Grid
    memorization: bool = False
    unstated: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """``Table 2``; a panel has the name of its figure."""
        return f"{self.kind.capitalize()} {self.number}"

    @property
    def section(self) -> str | None:
        """The section that regenerates it, if there is one."""
        return self.planned if self.planned in SECTIONS else None

    @property
    def chapter(self) -> int:
        return SECTIONS[self.planned].number if self.section else PLANNED[self.planned]

    @property
    def lacks(self) -> str:
        """What the paper's scale needs that a laptop without network does not have."""
        datasets, judges = self.rows.get("dataset", []), self.rows.get("judge", [])
        models = [model for model in self.rows.get("model", []) if model not in CONVOLUTIONAL]
        needs = [f"{joined(map(spelled, datasets))} data", *models, "a GPU"] if datasets else []
        if any(judge in JUDGED_BY_API for judge in judges):
            needs.append("an API key of the judge")
        weights = [judge for judge in judges if judge not in JUDGED_BY_API]
        weights += [LANGUAGE_MODELS[name] for name in self.rows.get("attack", []) if name in LANGUAGE_MODELS]
        needs += [f"the weights of {name}" for name in weights]
        return ", ".join(needs)

    @property
    def runs(self) -> tuple[dict[str, Any], ...]:
        """The parameters of the section's runs that together make it: one for each data set and model."""
        if self.planned == "taxonomy":  # it asks every attack there is
            return ({},)
        several = product(self.rows.get("dataset", [None]), self.rows.get("model", [None]))
        return tuple(self._run(dataset, model) for dataset, model in several)

    def _run(self, dataset: str | None, model: str | None) -> dict[str, Any]:
        made: dict[str, Any] = {}
        if dataset:
            made["dataset"] = code_name(dataset)
        if model:
            made["architecture"] = code_name(model)
        if dataset and "target_size" in self.rows:
            sizes = list(target_sizes(self.rows, dataset))
            made |= {"target_size": sizes[0]} if self.planned == "tsne" else {"target_sizes": sizes}
        if "attack" in self.rows:
            made["attacks"] = _unique(code_name(plain_attack(name)) for name in self.rows["attack"])
        if len(self.rows.get("defense", ())) > 1:
            made["defenses"] = [name.lower() for name in self.rows["defense"]]
        if variants := _variants_by_attack(self.rows):
            made["variants"] = variants
        for dimension, parameter in _SAME_IN_BOTH.items():
            if dimension in self.rows:
                made[parameter] = [_as_code(value) for value in self.rows[dimension]]
        return made


_SAME_IN_BOTH = {
    "judge": "judges",
    "auxiliary": "auxiliary",
    "access": "access",
    "reconstructions": "reconstructions",
}


def _as_code(value: Any) -> Any:
    return value.replace(" ", "_") if value in ("white box", "black box") else value


def _variants_by_attack(rows: Grid) -> dict[str, list[str]]:
    """By attack: how its target models are made, where not only as everywhere else."""
    found: dict[str, list[str]] = {}
    for attack, word in product(rows.get("attack", []), rows.get("variant", [None])):
        variant = VARIANTS.get(word or attack, word or "none")
        found.setdefault(code_name(plain_attack(attack)), []).append(variant.lower().replace(" ", "_"))
    return {attack: variants for attack, variants in found.items() if variants != ["none"]}


# --- names ---------------------------------------------------------------------------------------------


def plain(name: str) -> str:
    """A name without case, spaces and signs, in which the paper's and this package's agree."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def plain_attack(name: str) -> str:
    """The attack of a row such as ``PLGMI (Pre)``."""
    return name.partition(" (")[0]


@cache
def _code_names() -> dict[str, str]:
    return {plain(name): name for name in (*_LATER, *data.NAMES, *declared.ARCHITECTURES, *attacks.names())}


def code_name(printed: str) -> str:
    """What a data set, architecture or attack of the paper is called in parameters."""
    return _code_names()[plain(printed)]


def joined(words: Iterable[str]) -> str:
    """``a, b and c``."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


# --- the published numbers -----------------------------------------------------------------------------


def read(name: str) -> list[dict[str, str]]:
    """The rows of one published file as text (without pandas)."""
    path = resources.files("drlib.published") / f"{name}.csv"
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def _unique(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


@cache
def _published() -> dict[int, Grid]:
    """By table: the grid of its rows, from the files that say which table they hold."""
    rows: dict[int, list[dict[str, str]]] = {}
    for file in TABLES:
        for row in read(file):
            if "paper_table" in row and "memorization" not in row:
                rows.setdefault(int(row["paper_table"]), []).append(row)
    grids = {number: _grid(of_table) for number, of_table in rows.items()}
    return {1: {"attack": _unique(row["attack"] for row in read("taxonomy"))}, **grids}


def _grid(rows: list[dict[str, str]]) -> Grid:
    grid: Grid = {name: _unique(row[name] for row in rows) for name in rows[0] if name not in _NOT_DIMENSIONS}
    grid["target_size"] = [int(size) for size in grid["target_size"]]
    return grid


def target_sizes(rows: Mapping[str, list[Any]], dataset: str) -> Iterator[int]:
    """The sizes of a grid for one of its data sets, with words such as ``smallest`` resolved."""
    for size in rows["target_size"]:
        if isinstance(size, int):
            yield size
        else:
            yield from _sizes(dataset)[{"smallest": slice(1), "largest": slice(-1, None)}.get(size, slice(9))]


@cache
def _sizes(dataset: str) -> list[int]:
    """All sizes that the paper uses of a data set."""
    grids = [grid for grid in _published().values() if dataset in grid.get("dataset", ())]
    return sorted({size for grid in grids for size in grid["target_size"]})


# --- the items -----------------------------------------------------------------------------------------


@cache
def items() -> tuple[Item, ...]:
    """Tables 1 to 24, then Figures 1 to 14, panel by panel where they have panels."""
    return (*_tables(), *_figures())


def _tables() -> Iterator[Item]:
    memorized = {f"Table {row['paper_table']}" for row in read("memorization")}
    memorized |= {row["place"] for row in read("in_text") if row["metric"] == "memorization"}
    for number, (planned, what) in _TABLES.items():
        rows = _published()[number]
        yield Item("table", number, None, what, "", planned, rows, f"Table {number}" in memorized)


def _figures() -> Iterator[Item]:
    for number, (planned, what) in _FIGURES.items():
        panels = _panels(number)
        for index, (label, rows, unstated) in enumerate(panels):
            panel = chr(ord("a") + index) if len(panels) > 1 else None
            yield Item("figure", number, panel, what, label, planned, rows, unstated=unstated)


Panel = tuple[str, Grid, tuple[str, ...]]
"""Caption, row grid, and the dimensions that the paper does not state."""


def _panels(number: int) -> list[Panel]:
    """The panels of a figure in the order of its caption; a figure without panels is one."""
    if number in (2, 11, 12):
        return _related(number)
    if number in (8, 9, 10):
        return _embedded({8: "CelebA", 9: "CIFAR10", 10: "MNIST"}[number])
    return {
        1: _pictures,
        3: _judged,
        4: _auxiliary_plgmi,
        5: _additional_data,
        6: _backdoored,
        7: _counterexamples,
        13: _quantity,
        14: _auxiliary_others,
    }[number]()


def _ten() -> list[str]:
    """The ten attacks in the order of Table 2, which is also that of the panels of Figures 8 to 10."""
    return _published()[2]["attack"]


def _image_sets() -> list[str]:
    """The data sets of the main experiments: all three convolutional networks were attacked on them."""
    grids = _published().values()
    return _unique(grid["dataset"][0] for grid in grids if grid.get("model") == [CONVOLUTIONAL[1]])


def _pictures() -> list[Panel]:
    rows = {"dataset": _image_sets(), "model": ["VGG16"], "attack": _ten()}
    return [("", {**rows, "target_size": ["smallest", "largest"], "image": [1, 2]}, ("model",))]


_RELATED_SETS = {2: ("CelebA", "CIFAR10", "MNIST"), 11: ("CIFAR10", "MNIST"), 12: ("CelebA",)}


def _related(number: int) -> list[Panel]:
    """Figures 2, 11 and 12: FID against each sample-level metric or its coverage, and their correlation."""
    fid, *sample = _published()[2]["metric"]
    datasets, shown = list(_RELATED_SETS[number]), [f"coverage ({name})" for name in sample]
    measures = sample if number == 2 else shown
    grid = {"dataset": datasets, "model": list(CONVOLUTIONAL), "attack": _ten(), "target_size": ["all six"]}
    unstated = ("model", "target_size")
    panels = [
        (f"{fid} vs. {name}", {**grid, "metric": [fid, measure]}, unstated)
        for name, measure in zip(sample, measures, strict=True)
    ]
    return [*panels, ("Correlation", {**grid, "metric": [fid, *measures]}, unstated)]


def _judged() -> list[Panel]:
    rows = {"dataset": ["CelebA"], "model": ["VGG16"], "attack": ["PLGMI", "PLGMI (Pre)"]}
    return [("", {**rows, "target_size": ["smallest", "largest"]}, ("model", "target_size"))]


def _at_largest(attack: str, more: Grid) -> Grid:
    rows = {"dataset": _image_sets(), "model": ["VGG16"], "attack": [attack], "target_size": ["largest"]}
    return {**rows, **more}


_DATA_ACCESS: Grid = {"auxiliary": ["same", "similar"]}
_MODEL_ACCESS: Grid = {"access": ["white box", "black box"]}
_UNSTATED_ACCESS = ("model", "target_size")


def _auxiliary_plgmi() -> list[Panel]:
    return [
        ("Influence of data access", _at_largest("PLGMI", _DATA_ACCESS), _UNSTATED_ACCESS),
        ("Influence of model access", _at_largest("PLGMI", _MODEL_ACCESS), _UNSTATED_ACCESS),
    ]


def _auxiliary_others() -> list[Panel]:
    model = ("MI-Face", "DeepDream", "DeepInversion", "Revealer", "Bias-Rec", "KEDMI")
    data_access = ("Revealer", "Inv-Alignment", "KEDMI")
    panels = [(f"{name}, model access", _at_largest(name, _MODEL_ACCESS), _UNSTATED_ACCESS) for name in model]
    return panels + [
        (f"{name}, data access", _at_largest(name, _DATA_ACCESS), _UNSTATED_ACCESS) for name in data_access
    ]


def _on_backdoored(attacked: list[str]) -> Grid:
    rows = {"dataset": ["CelebA"], "model": ["VGG16"], "variant": ["backdoored"]}
    return {**rows, "attack": attacked, "target_size": ["largest"]}


def _additional_data() -> list[Panel]:
    rows = {**_on_backdoored(["Inv-Alignment"]), "auxiliary": ["clean and triggered"]}
    return [("", rows, ("dataset", "model", "target_size"))]


def _backdoored() -> list[Panel]:
    return [("", _on_backdoored(_ten()), ("attack",))]


def _counterexamples() -> list[Panel]:
    return [
        ("Accuracy (Train)", {"training_set": ["random-like samples"]}, ("dataset", "model")),
        ("Accuracy (Test)", {"attack": ["MI-Face"]}, ("dataset", "model")),
    ]


def _embedded(dataset: str) -> list[Panel]:
    rows = {"dataset": [dataset], "model": ["VGG16"], "target_size": [1000]}
    return [(name, {**rows, "attack": [name]}, ("model", "target_size")) for name in _ten()]


def _quantity() -> list[Panel]:
    """Figure 13: 40,000 reconstructions, of which more and more are scored."""
    fid, *sample = _published()[2]["metric"]
    shown = {"Measure": [fid, *sample], "Coverage": [f"coverage ({name})" for name in sample]}
    rows = {"model": ["VGG16"], "attack": ["DeepInversion"], "target_size": ["largest"]}
    rows["reconstructions"] = list(range(5_000, 40_001, 5_000))
    return [
        (f"{kind} ({dataset})", {"dataset": [dataset], **rows, "metric": metrics}, ("model",))
        for dataset in _image_sets()
        for kind, metrics in shown.items()
    ]
