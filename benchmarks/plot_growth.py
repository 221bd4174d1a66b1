"""The figure of how a search by SSIM grows, drawn from what bench_metrics.py has measured on each machine.

    python benchmarks/plot_growth.py

Reads benchmarks/results/metrics_*.json and writes benchmarks/results/search-growth.png, which carries a hash
of the numbers it shows.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns

from drlib import report
from drlib.report import DPI

RESULTS = Path(__file__).parent / "results"
PICTURE = RESULTS / "search-growth.png"


def measured() -> pd.DataFrame:
    """One row for each search: processor, budget in MB, n, seconds, memory_rise_mb."""
    rows = []
    for path in sorted(RESULTS.glob("metrics_*.json")):
        result = json.loads(path.read_text())
        for budget, sizes in result["growth"].items():
            for n, found in sizes.items():
                rows.append(
                    {
                        "processor": result["processor"],
                        "budget": f"{budget.partition('=')[2]} MB",
                        "n": int(n),
                        "seconds": found["seconds"],
                        "memory_rise_mb": found["memory_rise_mb"],
                    }
                )
    return pd.DataFrame(rows)


def digest(rows: pd.DataFrame) -> str:
    """A hash of all numbers of the figure."""
    return hashlib.sha256(rows.to_csv(index=False).encode()).hexdigest()


def draw(rows: pd.DataFrame) -> plt.Figure:
    report.style()
    fig, (time, memory) = plt.subplots(1, 2, figsize=(report.WIDTH, 3.0))
    how = {
        "data": rows,
        "x": "n",
        "hue": "processor",
        "style": "budget",
        "markers": True,
        "palette": "colorblind",
    }
    sns.lineplot(**how, y="seconds", ax=time, legend=False)
    sns.lineplot(**how, y="memory_rise_mb", ax=memory)
    sizes = sorted(rows.n.unique())
    first = rows[rows.n == sizes[0]].seconds.min()
    time.plot(sizes, [first * (n / sizes[0]) ** 2 for n in sizes], color="0.6", lw=0.8, ls=":")
    place = {"va": "top", "xytext": (8, -8), "textcoords": "offset points"}
    below = sizes[1], first * (sizes[1] / sizes[0]) ** 2
    time.annotate("slope of the pairs", below, fontsize=7, color="0.4", **place)
    time.set(xscale="log", yscale="log", xlabel="n = m", ylabel="seconds")
    memory.set(xscale="log", xlabel="n = m", ylabel="memory rise (MB)", ylim=(0, None))
    for axis in (time, memory):
        axis.set_xticks(sizes, [f"{n:,}" for n in sizes])
        axis.minorticks_off()
    handles, labels = memory.get_legend_handles_labels()
    memory.get_legend().remove()
    fig.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False, fontsize=7)
    sns.despine(fig)
    return fig


def main() -> None:
    rows = measured()
    fig = draw(rows)
    fig.savefig(PICTURE, dpi=DPI, metadata={"Source": digest(rows), "Software": None})
    plt.close(fig)
    print(PICTURE)


if __name__ == "__main__":
    main()
