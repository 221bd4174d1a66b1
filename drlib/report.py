"""Figures, tables and numbers of a notebook: shown, numbered, described in words, and saved.

One display serves three readers. Plain Jupyter shows the HTML part (the picture is inside it, so a single
file is enough). The book uses the MyST part of the same output, a `figure` or `table` directive, so that
the item has a number, a name to refer to (``fig-<id>``, ``tab-<id>``), alternative text and a line that
says how it was made. When ``$DRLIB_OUTPUT`` is set (the book's runner sets it), the picture goes to
``figures/<id>.png`` and, if it is made of lines, to ``figures/<id>.svg``, the table to ``tables/<id>.csv``
and ``tables/<id>.md``, and single numbers to ``values.json``.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import math
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drlib.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

DPI = 110
WIDTH = 7.2
"""Width of a full-width figure in inches."""
STATES = (
    "regenerated",
    "shape only (digits)",
    "needs data",
    "needs weights",
    "needs GPU",
    "needs key",
    "not yet",
)
"""What can be said of a table or figure of the paper (design, honesty rule 8)."""

_ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_CODE = re.compile(r"`+([^`]+)`+")
_EMPHASIS = re.compile(r"\*\*([^*]+)\*\*")


# --- the house style -----------------------------------------------------------------------------------


def style() -> None:
    """Set the house style for every figure drawn afterwards: seaborn, a palette safe for the color-blind."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    sns.set_theme(context="notebook", style="ticks", palette="colorblind", font_scale=0.85)
    plt.rcParams["figure.constrained_layout.use"] = True
    plt.rcParams["svg.hashsalt"] = "drlib"  # the same figure gives the same bytes


def direct_labels(
    ax: Axes, x: float, named: dict[str, float], colors: dict[str, Any], gap: float = 0.06
) -> None:
    """Write names at the ends of lines instead of a legend, in the lines' colors.

    Args:
        x: where they begin, in data units.
        named: name to the height of its line's end, in data units.
        gap: least distance of two names, as a share of the axis; closer ones are moved apart, as little as
            possible in the sum of squares.
    """
    from scipy.optimize import isotonic_regression

    to_axis = ax.transData + ax.transAxes.inverted()
    ends = {name: to_axis.transform((x, y)) for name, y in named.items() if math.isfinite(y)}
    ordered = sorted(ends, key=lambda name: ends[name][1])
    steps = [gap * i for i in range(len(ordered))]
    lifted = [ends[name][1] - step for name, step in zip(ordered, steps, strict=True)]
    places = [y + step for y, step in zip(isotonic_regression(lifted).x, steps, strict=True)] if ends else []
    over = max(0.0, places[-1] - 1.0) if places else 0.0
    for name, y in zip(ordered, places, strict=True):
        ax.text(
            ends[name][0] + 0.015, y - over, name, color=colors[name], fontsize=7.5, va="center",
            transform=ax.transAxes,
        )  # fmt: skip


# --- what a notebook calls -----------------------------------------------------------------------------


def figure(
    fig: Figure | bytes, *, id: str, alt: str, caption: str, provenance: str = "", page: str = ""
) -> None:
    """Show a picture with its number, caption, alternative text and provenance line.

    Args:
        fig: a Matplotlib figure (it is closed afterwards), or the bytes of a PNG file. The book shows an
            SVG file of a figure that holds no images, since it is sharp at any size.
        id: lower-case words joined by hyphens, unique in the book; refer to it by ``{numref}`fig-<id>` ``.
        alt: what the picture shows, in words, for those who cannot see it.
        caption: MyST text under the picture; its first sentence should say what to see.
        provenance: one line: command, profile, seeds, sizes, versions, seconds, artifact keys.
        page: the page of the book that shows it instead of the notebook's own, such as
            ``"book/attacks/mi_face"``; that page includes ``/fragments/fig-<id>.md``.

    Raises:
        UserError: a badly formed or repeated id, or no alternative text.
    """
    alt, caption, provenance = _line(alt), _line(caption), _line(provenance)
    _check(id, caption)
    if len(alt) < 8:
        raise UserError(f"figure '{id}' needs alternative text: say in words what the picture shows")
    png = fig if isinstance(fig, bytes) else png_bytes(fig)
    _save(f"figures/{id}.png", png, exclusive=True)
    if not isinstance(fig, bytes) and not any(axes.images for axes in fig.axes):
        _save(f"figures/{id}.svg", svg_bytes(fig))
    described = {"kind": "figure", "id": id, "alt": alt, "caption": caption, "provenance": provenance}
    described |= {"page": page} if page else {}
    _display(figure_bundle(described, png), {**described, "sha256": hashlib.sha256(png).hexdigest()})


def table(
    content: DataFrame | str,
    *,
    id: str,
    caption: str,
    provenance: str = "",
    formats: dict[str, str] | None = None,
    page: str = "",
) -> None:
    """Show a table with its number, caption and provenance line, and save it in full precision.

    Args:
        content: a data frame (its index is not shown), or a Markdown pipe table. Text cells may hold inline
            MyST such as mathematics. A NaN is shown as NaN, never as an empty cell or a zero.
        id: as in `figure`; refer to it by ``{numref}`tab-<id>` ``.
        caption: MyST text above the table.
        provenance: as in `figure`.
        formats: column name to a format such as ``".2f"``; other floats get four significant digits.
        page: as in `figure`; that page includes ``/fragments/tab-<id>.md``.

    Raises:
        UserError: a badly formed or repeated id, an empty table, a format for a column that is not there.
    """
    caption, provenance = _line(caption), _line(provenance)
    _check(id, caption)
    header, rows, right = (
        _read_pipe_table(content) if isinstance(content, str) else _cells(content, formats or {})
    )
    if not header or not rows:
        raise UserError(f"table '{id}' is empty")
    markdown = pipe_table(header, rows, right)
    _save(f"tables/{id}.csv", _csv(content, header, rows).encode(), exclusive=True)
    _save(f"tables/{id}.md", markdown.encode())
    described = {"kind": "table", "id": id, "caption": caption, "provenance": provenance}
    described |= {"header": header, "rows": rows, "right": right} | ({"page": page} if page else {})
    _display(table_bundle(described), described)


def data(content: DataFrame, *, id: str) -> None:
    """Save a table for other programs (``tables/<id>.csv``) without showing it."""
    _check(id, "data")
    _save(f"tables/{id}.csv", content.to_csv(index=False, lineterminator="\n").encode(), exclusive=True)


def interval(low: float, high: float, how: str = "+.3f") -> str:
    """An interval as a table cell; NaN where it could not be computed."""
    return "NaN" if math.isnan(low) or math.isnan(high) else f"{low:{how}} to {high:{how}}"


def value(name: str, number: float) -> None:
    """Save one number under ``name`` for the regression tests; a cell that ends with it shows nothing."""
    _check(name.replace("_", "-"), "value")
    try:
        number + 0.0
    except TypeError:
        raise UserError(f"value '{name}' must be a number, not {type(number).__name__}") from None
    _update_values("values", name, float(number))


def state(item: str, state: str, reason: str = "") -> None:
    """Say that a table or figure of the paper (such as ``"Table 3"``) could not be run here, and why."""
    if state not in STATES:
        raise UserError(f"unknown state '{state}' (allowed: {', '.join(STATES)})")
    _update_values("states", item, {"state": state, "reason": _line(reason)})


# --- the two forms of one output -----------------------------------------------------------------------


def figure_bundle(described: dict[str, Any], png: bytes) -> dict[str, str]:
    """The MIME bundle of a figure. The book's page reads ``/figures/<id>.*`` beside its sources."""
    id, alt, caption, provenance = (described[name] for name in ("id", "alt", "caption", "provenance"))
    image = f'<img src="data:image/png;base64,{base64.b64encode(png).decode()}" alt="{html.escape(alt)}"'
    return {
        "text/html": (
            f'<figure class="drlib-figure">{image} style="max-width:100%;background:white">'
            f"<figcaption>{_html(caption)}{_html_provenance(provenance)}</figcaption></figure>"
        ),
        "text/markdown": elsewhere(described) or fragment(described),
        "text/plain": f"Figure fig-{id}: {alt}",
    }


def table_bundle(described: dict[str, Any]) -> dict[str, str]:
    """The MIME bundle of a table."""
    header, right = described["header"], described["right"]
    rows = [[_unbroken(cell) for cell in row] for row in described["rows"]]
    caption, provenance = described["caption"], described["provenance"]
    align = [' style="text-align:right"' if flag else ' style="text-align:left"' for flag in right]
    head = "".join(
        f'<th scope="col"{how}>{_html(cell)}</th>' for cell, how in zip(header, align, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{how}>{_html(cell)}</td>" for cell, how in zip(row, align, strict=True))
        + "</tr>"
        for row in rows
    )
    return {
        "text/html": (
            f'<div class="drlib-table" style="overflow-x:auto"><table><caption>{_html(caption)}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{_html_provenance(provenance)}"
        ),
        "text/markdown": elsewhere(described) or fragment(described),
        "text/plain": pipe_table(header, described["rows"], right),
    }


def fragment(described: dict[str, Any]) -> str:
    """The MyST directive of a figure or table, for the page that shows it.

    A figure's picture is ``/figures/<id>.svg`` beside the book's sources if there is one, else ``.png``.
    """
    id, caption, provenance = (described[name] for name in ("id", "caption", "provenance"))
    if described["kind"] == "figure":
        return (
            f"`````{{figure}} /figures/{id}.*\n:name: {label(described)}\n"
            f":alt: {json.dumps(described['alt'], ensure_ascii=False)}\n"
            f":class: drlib-picture\n\n{caption}\n\n{provenance}\n`````\n"
        )
    rows = [[_unbroken(cell) for cell in row] for row in described["rows"]]
    text = pipe_table(described["header"], rows, described["right"])
    made = f"\n`````{{container}} provenance\n{provenance}\n`````\n" if provenance else ""
    # Tildes, since what follows a fence of backticks in its line must not contain any, and captions do.
    return f"~~~~~{{table}} {caption}\n:name: {label(described)}\n:class: drlib-table\n\n{text}~~~~~\n{made}"


def label(described: dict[str, Any]) -> str:
    """The name that an item is referred to by: ``fig-<id>`` or ``tab-<id>``."""
    return f"{'fig' if described['kind'] == 'figure' else 'tab'}-{described['id']}"


def elsewhere(described: dict[str, Any]) -> str:
    """What the notebook's own page says of an item that another page shows; empty if it shows it itself."""
    if not described.get("page"):
        return ""
    return f"{{numref}}`{label(described)}` is on the page {{doc}}`/{described['page']}`.\n"


def pipe_table(header: list[str], rows: list[list[str]], right: list[bool]) -> str:
    """A Markdown pipe table; numbers stand to the right."""
    lines = [header, ["---:" if flag else ":---" for flag in right], *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def png_bytes(fig: Figure, dpi: int = DPI) -> bytes:
    """Render a figure as PNG, on white: the same figure gives the same bytes. 256 colors if smaller."""
    from PIL import Image

    _settle(fig)
    buffer = io.BytesIO()
    fig.savefig(
        buffer, format="png", dpi=dpi, facecolor="white", bbox_inches="tight", metadata={"Software": None}
    )
    small = io.BytesIO()
    Image.open(buffer).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
        small, "PNG", optimize=True
    )
    return min(buffer.getvalue(), small.getvalue(), key=len)


def svg_bytes(fig: Figure) -> bytes:
    """Render a figure as SVG, on white, letters as outlines: the same figure gives the same bytes."""
    _settle(fig)
    buffer = io.BytesIO()
    fig.savefig(buffer, format="svg", facecolor="white", bbox_inches="tight", metadata={"Date": None})
    return buffer.getvalue()


def _settle(fig: Figure) -> None:
    """Lay a figure out once and for all (each file would do it again) and close it."""
    import matplotlib.pyplot as plt

    if fig.get_layout_engine() is not None:
        fig.draw_without_rendering()
        fig.set_layout_engine("none")
    plt.close(fig)


# --- small helpers -------------------------------------------------------------------------------------


def _line(text: str) -> str:
    return " ".join(str(text).split())


def _check(id: str, caption: str) -> None:
    if not _ID.fullmatch(id):
        raise UserError(f"id '{id}' must be lower-case letters and digits, words joined by hyphens")
    if not caption:
        raise UserError(f"'{id}' needs a caption")


def _unbroken(cell: str) -> str:
    """A short cell with a number in it, such as ``0.12 [0.10, 0.15]``, stays on one line."""
    return cell.replace(" ", "\N{NO-BREAK SPACE}") if len(cell) <= 24 and re.search(r"\d", cell) else cell


def _html(text: str) -> str:
    """Inline Markdown that captions and cells use (code, strong) as HTML; mathematics stays for MathJax."""
    text = _CODE.sub(r"<code>\1</code>", html.escape(text, quote=False))
    return _EMPHASIS.sub(r"<strong>\1</strong>", text)


def _html_provenance(provenance: str) -> str:
    return f'<div class="provenance"><small>{_html(provenance)}</small></div>' if provenance else ""


def _display(bundle: dict[str, str], described: dict[str, Any]) -> None:
    from IPython.display import display

    display(bundle, raw=True, metadata={"drlib": described})


def _output() -> Path | None:
    folder = os.environ.get("DRLIB_OUTPUT")
    return Path(folder) if folder else None


def _save(name: str, content: bytes, exclusive: bool = False) -> None:
    folder = _output()
    if folder is None:
        return
    path = folder / name
    if exclusive and path.exists():
        raise UserError(f"the id '{path.stem}' is used twice in this notebook")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _update_values(part: str, name: str, content: Any) -> None:
    folder = _output()
    if folder is None:
        return
    path = folder / "values.json"
    saved = json.loads(path.read_text()) if path.exists() else {"values": {}, "states": {}}
    saved[part][name] = content
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(saved, indent=1, sort_keys=True) + "\n")


def _number(number: float, how: str) -> str:
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "inf" if number > 0 else "-inf"
    return format(number, how)


def _cells(frame: DataFrame, formats: dict[str, str]) -> tuple[list[str], list[list[str]], list[bool]]:
    """The header, the text of each cell, and which columns are numbers."""
    import pandas as pd

    names = [
        " · ".join(str(part) for part in name) if isinstance(name, tuple) else str(name)
        for name in frame.columns
    ]
    for name in formats:
        if name not in names:
            raise UserError(f"a format is given for the column '{name}', which the table does not have")
    columns, right = [], []
    for position, name in enumerate(names):
        column = frame.iloc[:, position]
        numeric = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
        how = formats.get(name) or (".4g" if pd.api.types.is_float_dtype(column) else "")
        columns.append([_cell(item, how) for item in column])
        right.append(bool(numeric or name in formats))
    return names, [list(row) for row in zip(*columns, strict=True)], right


def _cell(item: Any, how: str) -> str:
    if item is None:
        return ""
    if type(item).__name__ in ("bool", "bool_"):
        return "yes" if item else "no"
    if isinstance(item, float) or (how and not isinstance(item, str)):
        return _number(float(item), how or ".4g")
    return _line(str(item))


def _read_pipe_table(text: str) -> tuple[list[str], list[list[str]], list[bool]]:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    split = [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
        for line in lines
    ]
    if len(split) < 3 or not all(re.fullmatch(r":?-+:?", cell) for cell in split[1]):
        raise UserError("a table given as text must be a Markdown pipe table with a header")
    if any(len(row) != len(split[0]) for row in split):
        raise UserError("the rows of a Markdown table must have as many cells as its header")
    return split[0], split[2:], [cell.endswith(":") and not cell.startswith(":") for cell in split[1]]


def _csv(content: DataFrame | str, header: list[str], rows: list[list[str]]) -> str:
    if not isinstance(content, str):
        return content.set_axis(header, axis=1).to_csv(index=False, float_format="%.10g")
    import csv

    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([header, *rows])
    return buffer.getvalue()
