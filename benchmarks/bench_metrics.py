"""Nearest-neighbor search by SSIM and by MSE, side by side with what people would use instead.

    python benchmarks/bench_metrics.py

Two threads and wall seconds, then one thread and CPU seconds, which other work on the machine disturbs less;
the median of five, the runs alternating. Competitors are used as their manuals say and are given fewer pairs,
because they are slow; all are compared in pairs a second. Images are scikit-learn's digits, resized, with
noise; three channels are three digits. Prints small tables and writes
benchmarks/results/metrics_<processor>.json; plot_growth.py draws the figure.

pytorch-msssim is not a dependency of the project. Without it its row is left out:

    pip install --no-deps --target /tmp/msssim pytorch-msssim==1.0.0
    PYTHONPATH=/tmp/msssim python benchmarks/bench_metrics.py

The growth table runs each size in a process of its own and reports the peak of resident memory above what
the process held before the search. The projection for a GPU is arithmetic, not a measurement.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
import torch.nn.functional as F
from skimage.metrics import structural_similarity
from sklearn.datasets import load_digits
from sklearn.metrics import pairwise_distances_argmin_min
from threadpoolctl import threadpool_limits
from torch import Tensor

from drlib.metrics import sample_distance, ssim_matrix, ssim_nearest
from drlib.metrics.ssim import C1, C2, window_taps
from drlib.provenance import Measured

REPEATS, THREADS = 5, (2, 1)
GROWTH = (500, 1000, 2000, 4000)
BUDGETS = (64, 512)
RESULTS = Path(__file__).parent / "results"


def images(n: int, shape: tuple[int, int, int], seed: int) -> Tensor:
    """(n, c, h, w): digits drawn at random, resized, with noise of 0.1."""
    generator = torch.Generator().manual_seed(seed)
    digits = torch.from_numpy(load_digits().images).float().div(16)
    chosen = digits[torch.randint(len(digits), (n, shape[0]), generator=generator)]
    resized = F.interpolate(chosen, size=shape[1:], mode="bilinear", align_corners=False)
    return (resized + 0.1 * torch.randn(resized.shape, generator=generator)).clamp(0, 1)


def skimage_loop(a: Tensor, b: Tensor) -> Tensor:
    """The double loop over scikit-image: (n, m)."""
    options = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "win_size": 11}
    x, y = a.numpy(), b.numpy()
    return torch.tensor(
        [[structural_similarity(p, q, data_range=1, channel_axis=0, **options) for q in y] for p in x]
    )


def msssim_batches(a: Tensor, b: Tensor) -> Tensor:
    """pytorch-msssim, each image of ``a`` with all of ``b`` as one batch: (n, m)."""
    ssim = import_module("pytorch_msssim").ssim  # not among the dependencies

    with torch.no_grad():
        return torch.stack([ssim(x.expand_as(b), b, data_range=1, size_average=False) for x in a])


def convolved_products(a: Tensor, b: Tensor) -> Tensor:
    """Separable F.conv2d of the products of pairs; what each image needs alone is computed once: (n, m)."""
    taps = window_taps("gaussian", a.shape[-1]).float()
    c = a.shape[1]
    down, across = taps.view(1, 1, -1, 1).repeat(c, 1, 1, 1), taps.view(1, 1, 1, -1).repeat(c, 1, 1, 1)

    def blur(values: Tensor) -> Tensor:
        return F.conv2d(F.conv2d(values, down, groups=c), across, groups=c)

    with torch.no_grad():
        mean_a, mean_b = blur(a), blur(b)
        variance_a, variance_b = blur(a.square()) - mean_a.square(), blur(b.square()) - mean_b.square()
        rows = []
        for x, mean, variance in zip(a, mean_a, variance_a, strict=True):
            products = mean * mean_b
            covariance = blur(x * b) - products
            numerator = (2 * products + C1) * (2 * covariance + C2)
            denominator = (mean.square() + mean_b.square() + C1) * (variance + variance_b + C2)
            rows.append((numerator / denominator).mean((1, 2, 3)))
        return torch.stack(rows)


def side_by_side(runs: dict[str, Callable[[], object]], threads: int) -> dict[str, float]:
    """Median seconds of each: wall, or CPU with one thread. A first run of each warms up (and compiles)."""
    clock = time.process_time if threads == 1 else time.perf_counter
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    torch.set_num_threads(threads)
    with threadpool_limits(threads):
        for repeat in range(REPEATS + 1):
            for name, run in runs.items():
                began = clock()
                run()
                if repeat:
                    seconds[name].append(clock() - began)
    return {name: statistics.median(values) for name, values in seconds.items()}


def rates(
    runs: dict[str, Callable[[], object]], pairs: dict[str, int], ours: tuple[str, ...], title: str
) -> tuple[dict, dict]:
    """Pairs a second of each run, and how many times those of others ours are; for 2 threads and for 1."""
    table: dict[str, dict[str, float]] = {name: {"pairs": pairs[name]} for name in runs}
    ratios: dict[str, dict[str, float]] = {}
    for threads in THREADS:
        for name, seconds in side_by_side(runs, threads).items():
            table[name][f"pairs_per_second_{threads}_threads"] = pairs[name] / seconds
        print(f"\n{title}, {threads} thread{'s' * (threads > 1)}: pairs a second")
        for name, row in table.items():
            print(f"{name:28} {row[f'pairs_per_second_{threads}_threads']:14.0f}")
        for name in ours:
            for other in [name for name in runs if name not in ours]:
                rate, than = (table[n][f"pairs_per_second_{threads}_threads"] for n in (name, other))
                ratios.setdefault(f"{name} / {other}", {})[f"{threads}_threads"] = rate / than
                print(f"{name + ' / ' + other:44} {rate / than:8.2f}")
    return table, ratios


def bench_ssim(shape: tuple[int, int, int], n: int, slow: dict[str, tuple[Callable, int, int]]) -> dict:
    """Our two searches over n x n images against ``slow``: name -> (function, rows, columns) for fewer."""
    a, b = images(n, shape, 0), images(n, shape, 1)
    began = time.perf_counter()
    ssim_matrix(a[:1], b[:1], compiled=True)
    compilation = time.perf_counter() - began
    runs: dict[str, Callable[[], object]] = {
        "drlib": lambda: ssim_nearest(a, b),
        "drlib compiled": lambda: ssim_nearest(a, b, compiled=True),
    }
    ours = tuple(runs)
    pairs = dict.fromkeys(runs, n * n)
    for name, (function, rows, columns) in slow.items():
        runs[name] = lambda f=function, x=a[:rows], y=b[:columns]: f(x, y)
        pairs[name] = rows * columns
    table, ratios = rates(runs, pairs, ours, f"SSIM nearest neighbor, {shape}, {n} x {n}")

    expected = skimage_loop(a[:10], b[:30])
    values = {name: function(a[:10], b[:30]) for name, (function, _, _) in slow.items()}
    values["drlib"] = ssim_matrix(a[:10], b[:30])
    values["drlib compiled"] = ssim_matrix(a[:10], b[:30], compiled=True)
    for name, row in table.items():
        row["largest_difference_to_scikit_image"] = float((values[name] - expected).abs().max())
    plain, compiled = ssim_nearest(a, b), ssim_nearest(a, b, compiled=True)
    return {
        "shape": shape,
        "n": n,
        "m": n,
        "rows": table,
        "ratios": ratios,
        "compilation_seconds": compilation,
        "compiled_finds_the_same_neighbors": torch.equal(plain[0], compiled[0]),
        "compiled_values_differ_by": float((plain[1] - compiled[1]).abs().max()),
    }


def bench_mse(shape: tuple[int, int, int], n: int) -> dict:
    a, b = images(n, shape, 0), images(n, shape, 1)
    near = n // 100
    noise = torch.randn(b[:near].shape, generator=torch.Generator().manual_seed(2))
    a[:near] = (b[:near] + 1e-3 * noise).clamp(0, 1)  # 60 dB and more
    x, y = a.flatten(1).numpy(), b.flatten(1).numpy()
    runs = {
        "drlib": lambda: sample_distance(a, b, "mse"),
        "scikit-learn": lambda: pairwise_distances_argmin_min(x, y),
    }
    table, ratios = rates(
        runs, dict.fromkeys(runs, n * n), ("drlib",), f"MSE nearest neighbor, {shape}, {n} x {n}"
    )
    exact_index, exact = brute_force(a.flatten(1).double(), b.flatten(1).double())
    found = sample_distance(a, b, "mse")
    index, distance = pairwise_distances_argmin_min(x, y)
    squares = torch.from_numpy(distance).double().square() / a[0].numel()
    results = {
        "drlib": (found.nearest, found.values.double()),
        "scikit-learn": (torch.from_numpy(index).long(), squares),
    }
    for name, (indices, values) in results.items():
        table[name]["wrong_neighbors"] = int((indices != exact_index).sum())
        table[name]["largest_relative_error"] = float(((values - exact).abs() / exact).max())
        print(
            f"{name:28} wrong neighbors {table[name]['wrong_neighbors']}"
            f"  largest relative error {table[name]['largest_relative_error']:.1e}"
        )
    return {"shape": shape, "n": n, "m": n, "rows": table, "ratios": ratios}


def brute_force(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Nearest neighbor by differences in float64."""
    found = [(x - b).square_().mean(1).min(0) for x in a]
    return torch.stack([row.indices for row in found]), torch.stack([row.values for row in found])


def grow_one(n: int, memory_mb: int) -> dict[str, float]:
    """Seconds and rise of the peak memory of one search, in this process."""
    a, b = images(n, (1, 28, 28), 0), images(n, (1, 28, 28), 1)
    ssim_nearest(a[:20], b[:20])
    with contextlib.suppress(OSError, AttributeError):  # give back what was freed, or it hides the rise
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    resident = int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024
    with Measured() as measured:
        ssim_nearest(a, b, memory_mb=memory_mb)
    return {"seconds": measured.seconds, "memory_rise_mb": measured.peak_memory_mb - resident}


def growth() -> dict:
    print("\nGrowth, SSIM, (1, 28, 28), all with all: seconds, pairs a second, peak memory above the start")
    table: dict[str, dict[str, dict[str, float]]] = {}
    for memory_mb in BUDGETS:
        for n in GROWTH:
            command = [sys.executable, __file__, "--grow", str(n), str(memory_mb)]
            found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            found["pairs_per_second"] = n * n / found["seconds"]
            table.setdefault(f"memory_mb={memory_mb}", {})[str(n)] = found
            print(
                f"memory_mb={memory_mb:4}  n = m = {n:5}  {found['seconds']:7.2f} s"
                f"  {found['pairs_per_second'] / 1e6:5.2f} M/s  {found['memory_rise_mb']:7.1f} MB"
            )
    return table


def projection() -> dict:
    """20,000 x 20,000 images of 64 x 64 x 3 in ten classes on an H200, from operation counts."""
    c, side, taps, classes, n = 3, 64, 11, 10, 20_000
    out = side - taps + 1
    filtered, windows = c * out * side, c * out * out
    # vertical filter, horizontal filter, column means; then luminance, denominator, quotient, sum
    flops = {
        "plain": 2 * taps * filtered + 2 * (side + 1) * windows + 2 * taps * windows + 15 * windows,
        "compiled": 2 * taps * filtered + 2 * taps * windows + 2 * taps * windows + 11 * windows,
    }
    moved = 4 * (2 * filtered + 12 * windows)  # bytes: the plain kernel's buffers, if none stays in a cache
    pairs = n * n // classes
    peak_flops, peak_bytes = 67e12, 4.3e12
    seconds = {name: pairs * count / peak_flops for name, count in flops.items()}
    print(f"\nProjection (computed, not measured): {n:,} x {n:,} at 64 x 64 x 3, {classes} classes, H200")
    print(f"{pairs / 1e6:.0f} M pairs, {flops['plain'] / 1e6:.2f} Mflop and {moved / 1e3:.0f} kB a pair")
    print(f"{seconds['plain']:.1f} s if bound by arithmetic, {pairs * moved / peak_bytes:.1f} s if by memory")
    return {
        "measured": False,
        "how": "computed from operation counts and the data sheet of an H200 (67 TFLOP/s, 4.3 TB/s)",
        "shape": (c, side, side),
        "n": n,
        "m": n,
        "classes": classes,
        "pairs": pairs,
        "flops_per_pair": flops,
        "bytes_per_pair_plain": moved,
        "seconds_at_peak_flops": seconds,
        "seconds_at_peak_bandwidth_plain": pairs * moved / peak_bytes,
    }


def versions() -> dict[str, str]:
    names = ("torch", "numpy", "scikit-image", "scikit-learn", "pytorch-msssim")
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def main() -> None:
    torch.set_num_threads(max(THREADS))
    if sys.argv[1:2] == ["--grow"]:
        print(json.dumps(grow_one(*map(int, sys.argv[2:]))))
        return
    load = os.getloadavg()[0]
    small = {"scikit-image": (skimage_loop, 15, 20)}
    if versions()["pytorch-msssim"] == "not installed":
        print("pytorch-msssim is left out: not installed (see the first lines of this file)")
    else:
        small["pytorch-msssim"] = (msssim_batches, 16, 512)
    large = {
        "scikit-image": (skimage_loop, 15, 20),
        "separable convolution": (convolved_products, 16, 512),
    }
    result = {
        "threads": THREADS,
        "repeats": REPEATS,
        "seconds": "wall with two threads, CPU with one; growth: wall, two threads",
        "device": "cpu",
        "processor": processor(),
        "cores": os.cpu_count(),
        "load_before": load,
        "images": "digits, resized, noise 0.1",
        "ssim": [
            bench_ssim((1, 28, 28), 2000, small),
            bench_ssim((3, 32, 32), 1000, large),
        ],
        "targets": {
            "(1, 28, 28)": {
                "drlib / scikit-image": 500,
                "drlib compiled / scikit-image": 900,
                "drlib / pytorch-msssim": 15,
            },
            "(3, 32, 32)": {
                "drlib / scikit-image": 70,
                "drlib compiled / scikit-image": 180,
                "drlib / separable convolution": 10,
            },
            "mse": 1.5,
        },
        "mse": bench_mse((1, 28, 28), 4000),
        "growth": growth(),
        "projection": projection(),
        "versions": versions(),
    }
    RESULTS.mkdir(exist_ok=True)
    name = "_".join(re.findall(r"[a-z0-9]+", re.sub(r"\(r\)|processor", "", processor().lower())))
    (RESULTS / f"metrics_{name}.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:  # nothing is compiled yet
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        main()
