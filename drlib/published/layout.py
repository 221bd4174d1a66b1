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
from drlib.relations import DYNAMIC, UNLABELED, paper_levels

if TYPE_CHECKING:
    import pandas as pd

Rows = list[dict[str, str]]

ARROWS = {"FID": "FID ↓", "SSIM": "SSIM ↑", "PSNR": "PSNR ↑", "MSE": "MSE ↓"}
LOWER_IS_CLOSER = ("FID", "MSE")

_BENCHMARK = (2, 13, 14, 15, 17, 18, 19, 20, 21, 22, 23, 24)
_JUDGED = {3: "attack", 4: "judge", 8: "attack", 12: "attack"}
_TEXT = (9, 11)
_DATASET_ACCESS = {"no_data": "No Data", "similar": "Similar Distribution", "same": "Same Distribution"}

_PER_COLUMN = (
    "Bold: the best value of its column for each metric, over all attacks; italic: the best of the static "
    "attacks where a dynamic one is best, since the two reconstruct different images."
)
_PER_ROW = (
    "Bold: the size that gets most, row by row; the entries of a row compete, those of a column do not."
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
    above = [row for row in _rows("in_text") if row["place"] == f"Table {number}"]
    memorized = {_size(row["target_size"]): row["value"] for row in above}
    lines = [{head[0]: "Memorization", head[1]: "", **memorized}] if memorized else []
    return _frame([*lines, *_best_in_rows(rows, by, "measure", head)])


def _text(number: int) -> pd.DataFrame:
    return _frame(_best_in_rows(_rows("text_attacks", number), "dataset", "metric", ("Data set", "Metric")))


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
                width = row["variant"].removeprefix("feature ")
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


def _memorization(number: int, names: dict[tuple[str, str], str]) -> Rows:
    rows = {row["target_size"]: row["memorization"] for row in _rows("memorization", number)}
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
            line = {"Attack": "Coverage floor, chance", "Metric": kind}
            for (_, size), name in names.items():
                floor, chance = paper_levels(dataset, members[0], int(size))
                line[name] = f"{_percent(floor)}, {_percent(chance)}"
            lines.append(line)
    return lines


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
