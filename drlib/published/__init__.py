"""The numbers printed in the paper, as data: one CSV file per kind of table, one loader.

The files hold what the paper prints, also where two tables print different values for the same cell
(Revealer's MSE on CelebA at 1,000 images is 0.123 in Table 2 and 0.132 in Table 16; PLGMI's FID at
2,000 images is 107.883 in Table 2 and 107.833 in Table 10). Nothing is corrected here.

``in_text`` has no ``paper_table``: ``place`` is where the value stands, ``same_as`` the table whose cell it
repeats (an attack of "" for a memorization score). Section 7 compares Inv-Alignment with CIFAR-100 as
auxiliary data (330.31) with "the same distribution" (357.91): CIFAR-100 stands for CIFAR-10, so that value
is read as Table 19's.

Units: FID, MSE, PSNR (dB), SSIM, BLEU, ROUGE-L, similarity and memorization as printed;
``coverage_percent`` in percent (the library's own results are fractions until they are tabulated).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from drlib.errors import UserError, unknown

if TYPE_CHECKING:
    import pandas as pd

TABLES: dict[str, str] = {
    "image_attacks": "Tables 2 and 13-24: ten attacks, FID, SSIM, PSNR, MSE and coverage against target size",
    "memorization": "Memorization rows of Tables 2, 15 and 17-24",
    "fid_variants": "Tables 7 and 10: FID with BatchNorm updated or fixed; under DP, pruning, pre-training",
    "llm_judge": "Tables 3, 4, 8 and 12: which of six reconstructions a language model finds most similar",
    "llm_judge_variants": "Tables 5 and 6: the judge on scratch against pre-trained, and on bottleneck sizes",
    "text_attacks": "Tables 9 and 11: Vec2Text and Complete, BLEU, similarity, ROUGE-L",
    "auxiliary": "Section 7: Inv-Alignment with other auxiliary data, FID",
    "in_text": "Values of cells that are printed once more, in a sentence or in another table's head",
}

SPELLED = {"CIFAR10": "CIFAR-10", "CIFAR100": "CIFAR-100", "ResNet18": "ResNet-18"}
"""Names whose spelling in sentences differs from the one in the files."""

_INTEGERS = {"paper_table", "target_size", "same_as"}
_FLOATS = {"value", "coverage_percent", "memorization"}


@cache
def _read(name: str) -> pd.DataFrame:
    import pandas as pd

    path = resources.files(__name__) / f"{name}.csv"
    with path.open(encoding="utf-8") as file:
        header = file.readline().strip().split(",")
        file.seek(0)
        return pd.read_csv(
            file,
            dtype={c: "int64" if c in _INTEGERS else "float64" if c in _FLOATS else "str" for c in header},
            # A defense called "none" is a name; only an empty coverage (FID has none) is missing.
            keep_default_na=False,
            na_values={"coverage_percent": [""]} if "coverage_percent" in header else None,
        )


def load(name: str) -> pd.DataFrame:
    """Return one file of published numbers as a new data frame; ``name`` is a key of ``TABLES``.

    Columns: ``paper_table`` and ``target_size`` int64, values float64, names strings. Raises
    ``UserError`` for an unknown name.
    """
    if name not in TABLES:
        raise unknown("table of published numbers", name, TABLES)
    return _read(name).copy()


def select(name: str, **conditions: Any) -> pd.DataFrame:
    """Rows of ``load(name)`` whose columns equal the given values, e.g.
    ``select("image_attacks", paper_table=2, attack=["MI-Face", "DeepDream"])``.

    A condition is one value or several. Raises ``UserError`` for an unknown column and for a value
    that never occurs in its column; a combination that the paper does not print gives no rows.
    """
    rows = load(name)
    keep = rows.index >= 0
    for column, wanted in conditions.items():
        if column not in rows.columns:
            raise unknown(f"column of {name}", column, rows.columns)
        several = isinstance(wanted, Iterable) and not isinstance(wanted, str)
        values = list(wanted) if several else [wanted]
        present = list(rows[column].unique())
        for value in values:
            if value not in present:
                raise unknown(f"{column} in {name}", value, present)
        keep &= rows[column].isin(values)
    return rows[keep].reset_index(drop=True)


def spelled(name: str) -> str:
    """A data set or model of the files as it stands in a sentence."""
    return SPELLED.get(name, name)


def cell(name: str, **conditions: Any) -> float:
    """The one printed value that the conditions name; ``UserError`` when they name none or several."""
    rows = select(name, **conditions)
    if len(rows) != 1:
        raise UserError(f"{len(rows)} rows of {name} match {conditions}; name exactly one")
    return float(rows["memorization" if name == "memorization" else "value"].iloc[0])


def printed(name: str) -> pd.DataFrame:
    """``load(name)`` with every cell as the text that is printed, so that ``0.130`` keeps its last digit.

    An empty cell is "". Raises ``UserError`` for an unknown name.
    """
    import pandas as pd

    if name not in TABLES:
        raise unknown("table of published numbers", name, TABLES)
    with (resources.files(__name__) / f"{name}.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file, dtype=str, keep_default_na=False)
