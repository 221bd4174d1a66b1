"""The paper's tables in the paper's layout, from the published numbers; the best entries are marked.

Every function returns a frame of text cells. Bold (``**0.123**``) marks the best entry of its column or,
where the entries of a row compete (a judge's votes), of its row; `marked` says which.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from importlib import resources
from typing import TYPE_CHECKING, Any

from drlib.errors import unknown
from drlib.published import spelled
from drlib.relations import DYNAMIC, UNLABELED, paper_levels

if TYPE_CHECKING:
    import pandas as pd

Rows = list[dict[str, str]]

ARROWS = {"FID": "FID ↓", "SSIM": "SSIM ↑", "PSNR": "PSNR ↑", "MSE": "MSE ↓"}
FLOOR_AND_CHANCE = "Floor, chance"
LOWER_IS_CLOSER = ("FID", "MSE")

_BENCHMARK = (2, 13, 14, 15, 17, 18, 19, 20, 21, 22, 23, 24)
_JUDGED = {3: "attack", 4: "judge", 8: "attack", 12: "attack"}
_TEXT = (9, 11)
_TEXT_ARROWS = {"BLEU": "BLEU ↑", "similarity": "Similarity ↑", "ROUGE-L": "ROUGE-L ↑"}
_DATASET_ACCESS = {"no_data": "No Data", "similar": "Similar Distribution", "same": "Same Distribution"}

_PER_COLUMN = (
    "Bold: the best value of its column for each metric, over all attacks; italic: the best of the static "
    "attacks where a dynamic one is best, since the two reconstruct different images."
)
_PER_ROW = (
    "Bold: the size that gets most, row by row; the entries of a row compete, those of a column do not."
)
_OF_SIX = "which of six reconstructions, one by training set size, is most similar to the target"
_WHAT = {
    1: "Taxonomy of the ten attacks",
    3: f"GPT-4o as judge of GAN-based attacks, VGG16 on CelebA: {_OF_SIX}",
    4: f"InternVL 2.5 and Claude 3.7 as judges of PLGMI (Pre), VGG16 on CelebA: {_OF_SIX}",
    5: (
        "PLGMI against PLGMI (Pre), pair by pair: which reconstruction is more similar to the target, that "
        "of the model trained from scratch or of the pre-trained one. The printed caption names neither "
        "judge nor data: GPT-4o and CelebA as elsewhere in section 6.1, VGG16 is our reading"
    ),
    6: (
        "Three widths of the target model's feature embedding, PLGMI on CelebA: which of three "
        "reconstructions, one by width, GPT-4o calls most similar to the target. VGG16 is our reading. "
        "Ori: the original width"
    ),
    7: "FID of DeepInversion with BatchNorm updated or fixed, VGG16 on CelebA",
    8: f"GPT-4o as judge of PLGMI, Swin on CelebA: {_OF_SIX}",
    9: "Vec2Text on three text data sets",
    10: "FID of PLGMI under DP (differential privacy), pruning and pre-training, VGG16 on CelebA",
    11: "Complete on three text data sets",
    12: f"GPT-4o as judge of PLGMI, MAE on CelebA: {_OF_SIX}",
    16: (
        "Attacks under the defenses MID (mutual information regularization) and DP (differential privacy), "
        "VGG16 on CelebA"
    ),
}
_PRETRAINED = "(Pre): the target model was pre-trained on other data and fine-tuned on the target data set."


def what(number: int) -> str:
    """What a table of the paper shows, in a few words."""
    if number in _WHAT:
        return _WHAT[number]
    first = _rows("image_attacks", number)[0]
    return f"Attacks against target size, {spelled(first['model'])} on {spelled(first['dataset'])}"


def how_to_read(number: int) -> str:
    """What the columns, the marks and the rows without an attack mean; empty for Table 1."""
    parts = [f"Columns: {_columns(number)}." if number > 1 else "", marked(number), _measures(number)]
    if number in (3, 4, 5, 10):
        parts.append(_PRETRAINED)
    if number in (*_BENCHMARK, 16):
        parts.append("In brackets: coverage.")
    if sizes := {int(row["target_size"]) for row in _memorization_rows(number)}:
        fewer = " (of all, if fewer)" if min(sizes) < 1_000 else ""
        parts.append(f"Memorization: mean score of the first 1,000 training samples{fewer}.")
    if number in (*_BENCHMARK, 16):
        parts.append(
            "Last rows: the least possible and the chance coverage, by where the nearest target is sought."
        )
    if number == 15:
        parts.append(
            "They are for 50 classes, inferred from the printed coverages: the paper does not say how many "
            "classes of CIFAR-100 it takes."
        )
    return " ".join(filter(None, parts))


def _columns(number: int) -> str:
    if number == 6:
        return "number of target images, and the width"
    return "defense, and number of target images" if number == 16 else "number of target images"


def _measures(number: int) -> str:
    """What a judge's three measures count, for that table."""
    counted = {5: "the model", 6: "the width"} | dict.fromkeys(_JUDGED, "the size")
    if number not in counted:
        return ""
    return (
        f"# of Major: questions, of 1,000, in which {counted[number]} wins the vote of five answers; "
        "# of All: those in which all five agree on it; Pred Rate: its share of all 5,000 answers."
    )


def table(number: int) -> pd.DataFrame:
    """One table of the paper (1 to 24) as text cells. Raises ``UserError`` for another number."""
    return _layout(number)(number)


def marked(number: int) -> str:
    """What bold and italic mean in that table; empty for Table 1."""
    if number in (*_BENCHMARK, 16):
        return _PER_COLUMN
    if number in _JUDGED:
        return _PER_ROW
    return {
        1: "",
        5: "Bold: the one of each pair that gets more.",
        6: "Bold: the width that gets most at that size.",
        7: "Bold: the lowest FID of its column.",
        10: "Bold: the lowest FID of its column.",
    }.get(number, "Bold: the best size, row by row.")


def _layout(number: int) -> Callable[[int], pd.DataFrame]:
    layouts: dict[int, Callable[[int], pd.DataFrame]] = {
        1: _taxonomy,
        5: _pairs,
        6: _widths,
        7: _variants,
        10: _variants,
        **dict.fromkeys((*_BENCHMARK, 16), _benchmark),
        **dict.fromkeys(_JUDGED, _votes),
        **dict.fromkeys(_TEXT, _text),
    }
    if number not in layouts:
        raise unknown("table of the paper", str(number), [str(each) for each in sorted(layouts)])
    return layouts[number]


# --- the layouts ----------------------------------------------------------------------------------------


def _taxonomy(number: int) -> pd.DataFrame:
    lines = []
    found = _rows("taxonomy")
    for training, model in _unique((row["training"], row["model"]) for row in found):
        line = {"Training Type": training.capitalize(), "Model Access": model.replace("_", "-").title()}
        for access, title in _DATASET_ACCESS.items():
            key = {"training": training, "model": model, "dataset": access}
            line[title] = ", ".join(row["attack"] for row in found if key.items() <= row.items())
        lines.append(line)
    return _frame(lines)


def _benchmark(number: int) -> pd.DataFrame:
    """Attacks and metrics down, sizes across (Table 16: by defense); memorization above, levels below."""
    rows = _rows("image_attacks", number)
    columns = _unique((row["defense"], row["target_size"]) for row in rows)
    several = len({defense for defense, _ in columns}) > 1
    names = {key: _column(*key) if several else _size(key[1]) for key in columns}
    by_cell = {(row["attack"], row["metric"], row["defense"], row["target_size"]): row for row in rows}
    best = {
        (metric, key): _best_attacks([row for row in rows if row["metric"] == metric and _key(row) == key])
        for metric in ARROWS
        for key in columns
    }
    lines = _memorization(number, names)
    for attack in _unique(row["attack"] for row in rows):
        for place, metric in enumerate(_unique(row["metric"] for row in rows)):
            line = {"Attack": attack if place == 0 else "", "Metric": ARROWS[metric]}
            for key, name in names.items():
                line[name] = _entry(by_cell[attack, metric, *key], *best[metric, key])
            lines.append(line)
    return _frame([*lines, *_levels(rows, names)])


def _votes(number: int) -> pd.DataFrame:
    by = _JUDGED[number]
    head = ("Attack" if by == "attack" else "Judge", "Measure")
    rows = _rows("llm_judge", number)
    memorized = {_size(row["target_size"]): row["value"] for row in _memorization_rows(number)}
    lines = [{head[0]: "Memorization", head[1]: "", **memorized}] if memorized else []
    return _frame([*lines, *_best_in_rows(rows, by, "measure", head)])


def _text(number: int) -> pd.DataFrame:
    rows = [{**row, "metric": _TEXT_ARROWS[row["metric"]]} for row in _rows("text_attacks", number)]
    return _frame(_best_in_rows(rows, "dataset", "metric", ("Data set", "Metric")))


def _pairs(number: int) -> pd.DataFrame:
    rows = _rows("llm_judge_variants", number)
    lines = []
    for measure in _unique(row["measure"] for row in rows):
        line = {"Measure (scratch : pre-trained)": measure}
        for size in _unique(row["target_size"] for row in rows):
            pair = [row for row in rows if (row["measure"], row["target_size"]) == (measure, size)]
            most = max(float(row["value"]) for row in pair)
            line[_size(size)] = " : ".join(_bold(row["value"], float(row["value"]) == most) for row in pair)
        lines.append(line)
    return _frame(lines)


_WIDTHS = {"feature 2048": "2,048 (Ori)", "feature 512": "512", "feature 128": "128"}


def _widths(number: int) -> pd.DataFrame:
    rows = _rows("llm_judge_variants", number)
    lines = []
    for measure in _unique(row["measure"] for row in rows):
        line = {"Attack": rows[0]["attack"], "Measure": measure}
        for row in rows:
            if row["measure"] == measure:
                rivals = [
                    r for r in rows if (r["measure"], r["target_size"]) == (measure, row["target_size"])
                ]
                is_best = float(row["value"]) == max(float(rival["value"]) for rival in rivals)
                width = _WIDTHS[row["variant"]]
                line[f"{_size(row['target_size'])}: {width}"] = _bold(row["value"], is_best)
        lines.append(line)
    return _frame(lines)


def _variants(number: int) -> pd.DataFrame:
    rows = _rows("fid_variants", number)
    first = "BatchNorm" if number == 7 else "Attack"
    lines = []
    for variant in _unique(row["variant"] for row in rows):
        line = {first: variant}
        for row in rows:
            if row["variant"] == variant:
                rivals = [float(r["value"]) for r in rows if r["target_size"] == row["target_size"]]
                line[_size(row["target_size"])] = _bold(row["value"], float(row["value"]) == min(rivals))
        lines.append(line)
    return _frame(lines)


# --- parts ----------------------------------------------------------------------------------------------


def _rows(name: str, number: int | None = None) -> Rows:
    """The rows of one published file as text, or those of one table."""
    path = resources.files("drlib.published") / f"{name}.csv"
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    return [row for row in rows if number is None or row["paper_table"] == str(number)]


def _frame(lines: Rows) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(lines).fillna("")


def _unique(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _key(row: dict[str, str]) -> tuple[str, str]:
    return row["defense"], row["target_size"]


def _size(size: str) -> str:
    return f"{int(size):,}"


def _column(defense: str, size: str) -> str:
    return f"{'No defense' if defense == 'none' else defense}: {_size(size)}"


def _bold(text: str, best: bool) -> str:
    return f"**{text}**" if best else text


def _closest(rows: Rows) -> set[str]:
    """The attacks with the best printed value; several if it is printed several times."""
    if not rows:
        return set()
    sign = -1 if rows[0]["metric"] in LOWER_IS_CLOSER else 1
    best = max(sign * float(row["value"]) for row in rows)
    return {row["attack"] for row in rows if sign * float(row["value"]) == best}


def _best_attacks(rows: Rows) -> tuple[set[str], set[str]]:
    """The best of all attacks, and the best static ones if they are others."""
    best = _closest(rows)
    static = _closest([row for row in rows if row["attack"] not in DYNAMIC])
    return best, static - best


def _entry(row: dict[str, str], best: set[str], best_static: set[str]) -> str:
    """A value, with its coverage in brackets."""
    value = row["value"]
    if row["attack"] in best:
        value = f"**{value}**"
    elif row["attack"] in best_static:
        value = f"*{value}*"
    return f"{value} ({row['coverage_percent']}%)" if row["coverage_percent"] else value


def _memorization_rows(number: int) -> Rows:
    """The memorization that a table prints, by ``target_size`` and ``value``; Table 3 repeats Table 2's."""
    own = [{**row, "value": row["memorization"]} for row in _rows("memorization", number)]
    return own or [row for row in _rows("in_text") if row["place"] == f"Table {number}"]


def _memorization(number: int, names: dict[tuple[str, str], str]) -> Rows:
    rows = {row["target_size"]: row["value"] for row in _memorization_rows(number)}
    if not rows:
        return []
    return [{"Attack": "Memorization", "Metric": "", **{name: rows[key[1]] for key, name in names.items()}}]


def _levels(rows: Rows, names: dict[tuple[str, str], str]) -> Rows:
    """Floor and chance level of coverage for each way of matching that the table's attacks have."""
    dataset = rows[0]["dataset"]
    attacks = _unique(row["attack"] for row in rows)
    labeled = [name for name in attacks if name not in UNLABELED]
    free = [name for name in attacks if name in UNLABELED and name not in DYNAMIC]
    dynamic = [name for name in attacks if name in DYNAMIC]
    kinds = {
        "inside the class": labeled,
        "all targets (Bias-Rec)": free,
        "100 update images": dynamic,
    }
    lines = []
    for kind, members in kinds.items():
        if members:
            line = {"Attack": FLOOR_AND_CHANCE, "Metric": kind}
            for (_, size), name in names.items():
                floor, chance = paper_levels(dataset, members[0], int(size))
                line[name] = levels(floor, chance)
            lines.append(line)
    return lines


def levels(floor: float, chance: float) -> str:
    """Floor and chance level of a coverage, fractions, as one cell."""
    return f"{_percent(floor)}, {_percent(chance)}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %" if share >= 0.001 else f"{100 * share:.2g} %"


def _best_in_rows(rows: Rows, first: str, second: str, titles: tuple[str, str]) -> Rows:
    """One line for each pair of ``first`` and ``second``, sizes across, the best size of each line bold."""
    lines = []
    for one in _unique(row[first] for row in rows):
        for place, other in enumerate(_unique(row[second] for row in rows)):
            part = [row for row in rows if (row[first], row[second]) == (one, other)]
            most = max(float(row["value"]) for row in part)
            line = {titles[0]: one if place == 0 else "", titles[1]: other}
            line |= {
                _size(row["target_size"]): _bold(row["value"], float(row["value"]) == most) for row in part
            }
            lines.append(line)
    return lines
