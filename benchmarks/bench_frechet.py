"""Frechet distance at d = 2048, n = 100 and n = 5,000, side by side with pytorch-fid on the same features.

    python benchmarks/bench_frechet.py

Prints a small table and writes benchmarks/results/frechet.json. Times are CPU seconds on one thread, so that
other work on the machine matters little. pytorch-fid's time includes np.cov, as its command line does.
"""

from __future__ import annotations

import json
import platform
import time
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from pytorch_fid.fid_score import calculate_frechet_distance
from threadpoolctl import threadpool_limits

from drlib.metrics import frechet_distance

D, SIZES = 2048, {100: 21, 5000: 1}  # n: how often ours is timed
OUTPUT = Path(__file__).parent / "results" / "frechet.json"


def pytorch_fid(a: np.ndarray, b: np.ndarray) -> float:
    return float(
        calculate_frechet_distance(a.mean(0), np.cov(a, rowvar=False), b.mean(0), np.cov(b, rowvar=False))
    )


def timed(function, repeats: int) -> tuple[float, float]:
    """Value and the median CPU seconds."""
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        value = function()
        seconds.append(time.process_time() - start)
    return float(value), float(np.median(seconds))


def compared(n: int, repeats: int) -> dict[str, object]:
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((D, D)) / D**0.5
    a, b = rng.standard_normal((n, D)) @ mixing, 1.1 * rng.standard_normal((n, D)) @ mixing + 0.05
    features = torch.from_numpy(a), torch.from_numpy(b)
    ours, ours_seconds = timed(lambda: frechet_distance(*features), repeats)
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", DeprecationWarning)
        theirs, theirs_seconds = timed(lambda: pytorch_fid(a, b), 1)
    return {
        "n": n,
        "drlib": {"value": ours, "cpu_seconds": ours_seconds},
        "pytorch-fid": {"value": theirs, "cpu_seconds": theirs_seconds},
        "ratio": theirs_seconds / ours_seconds,
        "relative_difference": abs(ours - theirs) / theirs,
    }


def main() -> None:
    torch.set_num_threads(1)
    frechet_distance(torch.rand(10, 20), torch.rand(10, 20))  # the first call loads libraries
    result = {
        "d": D,
        "sizes": [compared(n, repeats) for n, repeats in SIZES.items()],
        "device": f"cpu ({platform.machine()}, {platform.system()})",
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in ("torch", "numpy", "scipy", "pytorch-fid")},
    }
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(result, indent=2) + "\n")
    for row in result["sizes"]:
        print(
            f"Frechet distance, d = {D}, n = {row['n']}: drlib {row['drlib']['cpu_seconds']:.3f} s, "
            f"pytorch-fid {row['pytorch-fid']['cpu_seconds']:.1f} s: {row['ratio']:.1f} times; difference "
            f"{row['relative_difference']:.1e}"
        )


if __name__ == "__main__":
    main()
