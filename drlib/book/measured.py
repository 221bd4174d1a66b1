"""The page of measurements: what ``benchmarks/results/*.json`` say, as Markdown tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GROWTH = "search-growth.png"
"""The figure beside the results, made by ``benchmarks/plot_growth.py``."""


def listing(folder: Path) -> str:
    """The generated part of the page *Measurements*; ``folder`` holds the benchmarks' results."""
    results = {
        path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))
    }
    metrics = [results.pop(name) for name in list(results) if name.startswith("metrics_")]
    parts = [_speed(results), *(_metrics(metrics) if metrics else []), _attacks(results)]
    parts += [_jitter(results[name]) for name in sorted(results) if name.startswith("deep_inversion")]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(name: str, caption: str, header: list[str], rows: list[list[str]], made: str) -> str:
    lines = [header, ["---"] * len(header), *rows]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return _with_provenance(f"````{{table}} {caption}\n:name: tab-{name}\n\n{text}\n````", made)


def _with_provenance(item: str, made: str) -> str:
    return f"{item}\n\n```{{container}} provenance\n{made}\n```"


def _speed(results: dict[str, Any]) -> str:
    rows = []
    frechet = results.get("frechet", {"sizes": []})
    for row in frechet["sizes"]:
        rows.append(
            [
                f"Frechet distance, d = {frechet['d']:,}, n = {row['n']:,}",
                "pytorch-fid",
                _times(row["ratio"]),
                f"{row['relative_difference']:.0e} relative",
            ]
        )
    ensemble = results.get("memorization", {"networks": {}})
    for name, row in ensemble["networks"].items():
        rows.append(
            [
                f"{ensemble['models']} models for memorization, {name}",
                "one after another",
                f"{row['ratio']:.1f}x",
                f"{row['mean_difference']:.0e} in a probability, on average",
            ]
        )
    mi_face = results.get("mi_face", {"architectures": {}})
    for name, row in mi_face["architectures"].items():
        rows.append(
            [
                f"MI-Face on {name}, {mi_face['n']} images at 16x16, {mi_face['steps']} steps",
                "the same, image by image",
                f"{row['ratio']:.1f}x",
                f"{row['largest_difference']:.0e} in a pixel",
            ]
        )
    matching = results.get("deep_leakage", {"methods": {}})
    for name, row in matching["methods"].items():
        what = f"Deep-Leakage ({name}) on {row['architecture']}, {matching['n']} gradients of one image"
        psnr = f"median PSNR {row['batch_median_psnr']:.0f} against "
        own = f"{psnr}{row['loop_median_psnr']:.0f} dB"
        rows.append([what, "the same, gradient by gradient", f"{row['ratio']:.1f}x", own])
        if "pytorch_ratio" in row:
            other = f"{psnr}{row['pytorch_loop_median_psnr']:.0f} dB"
            rows.append([what, "a loop over torch.optim.LBFGS", f"{row['pytorch_ratio']:.1f}x", other])
    shadows = results.get("updates_leak", {"shadows": {}})
    for name, row in shadows["shadows"].items():
        rows.append(
            [
                f"training {shadows['models']} shadow models at once, {name}",
                "one after another",
                f"{row['train_ratio']:.1f}x",
                f"{row['largest_difference']:.0e} in a probability",
            ]
        )
    if not rows:
        return ""
    made = "Made by `make bench` · CPU seconds of one thread, both sides in one run · " + _conditions(results)
    caption = "How many times faster than what one would use instead, and how far the results differ"
    return _table("speed", caption, ["what", "against", "faster", "difference"], rows, made)


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.3g}x"


def _metrics(machines: list[dict[str, Any]]) -> list[str]:
    """Nearest-neighbor search: speed on each machine, growth, and what it would take on a GPU."""
    threads = {"2_threads": "two threads", "1_threads": "one thread"}
    rows: dict[tuple[str, str], list[str]] = {}
    for result in machines:
        for found in [*result["ssim"], result["mse"]]:
            metric = "MSE" if found is result["mse"] else "SSIM"
            what = f"{metric}, {' x '.join(map(str, found['shape']))}, {found['n']:,} x {found['m']:,}"
            for name, ratio in found["ratios"].items():
                ours, _, other = name.partition(" / ")
                which = f"{what}{', compiled' if 'compiled' in ours else ''}"
                rows.setdefault((which, other), []).extend(_times(ratio[key]) for key in threads)
    header = ["nearest neighbors by", "against"]
    header += [f"{result['processor']}, {words}" for result in machines for words in threads.values()]
    caption = "How many times more pairs a second; two threads: wall time, one: CPU time"
    made = _made_on(machines, f"median of {machines[0]['repeats']}")
    speed = _table("search-speed", caption, header, [[*key, *found] for key, found in rows.items()], made)
    return [speed, _growth(machines), _projected(machines[0]["projection"])]


def _made_on(machines: list[dict[str, Any]], how_often: str) -> str:
    processors = [f"{each['processor']}, {each['cores']} cores" for each in machines]
    used = {", ".join(f"{name} {version}" for name, version in each["versions"].items()) for each in machines}
    return " · ".join(["Made by `python benchmarks/bench_metrics.py`", *processors, how_often, *sorted(used)])


def _growth(machines: list[dict[str, Any]]) -> str:
    """The figure, drawn beforehand: these pages are also built where there is no Matplotlib."""
    told = []
    for result in machines:
        for budget, sizes in result["growth"].items():
            small, *_, large = sizes
            pairs = (int(large) / int(small)) ** 2
            told.append(
                f"{result['processor']}, {budget.partition('=')[2]} MB: {int(large):,} x {int(large):,} take "
                f"{sizes[large]['seconds'] / sizes[small]['seconds']:.0f} times as long as {small} x {small} "
                f"({pairs:.0f} times the pairs), memory rises by "
                f"{max(row['memory_rise_mb'] for row in sizes.values()):.0f} MB at most"
            )
    caption = (
        "Growth of an SSIM search over n x n images of 28 x 28 with a budget of 64 or 512 MB: time grows "
        f"with the number of pairs, memory stays below the budget. {'; '.join(told)}."
    )
    alt = f"Two line plots against n: seconds, and rise of memory. {'; '.join(told)}."
    figure = f"````{{figure}} /figures/{GROWTH}\n:name: fig-search-growth\n:alt: {alt}\n\n{caption}\n````"
    made = _made_on(machines, "one run each, in a process of its own")
    return _with_provenance(figure, f"{made} · drawn by `python benchmarks/plot_growth.py`")


def _projected(far: dict[str, Any]) -> str:
    seconds = far["seconds_at_peak_flops"]["plain"], far["seconds_at_peak_bandwidth_plain"]
    images = f"{far['n']:,} x {far['m']:,} images of {far['shape'][1]} x {far['shape'][2]} in color"
    pairs = f"{far['pairs'] / 1e6:.0f} million pairs of {far['flops_per_pair']['plain'] / 1e6:.2f} Mflop"
    return (
        f"*Computed, not measured:* {images} in {far['classes']} classes are {pairs} and "
        f"{far['bytes_per_pair_plain'] / 1e3:.0f} kB each: {min(seconds):.1f} to {max(seconds):.1f} s on a "
        "GPU with the arithmetic or the memory rate of an H200's data sheet, if it were used to the full."
    )


def _attacks(results: dict[str, Any]) -> str:
    """What 100 reconstructions cost, and how cost and memory grow with their number."""
    if "attacks" not in results:
        return ""
    rows = []
    for row in results["attacks"]["attacks"].values():
        prior = f"{row['prior_seconds']:.1f}" if row["prior_seconds"] > 0.05 else "none"
        grown = list(row["n"].values())
        rows.append(
            [
                row["title"],
                prior,
                f"{row['seconds_per_100']:.1f}",
                ", ".join(row["n"]),
                ", ".join(f"{part['milliseconds_each']:.0f}" for part in grown),
                ", ".join(f"{part['memory_rise_mb']:.0f}" for part in grown),
            ]
        )
    header = ["attack", "prior, s", "100 reconstructions, s", "n", "ms each", "memory rise, MB"]
    caption = "What the attacks cost with the laptop profile's settings, and how that grows with n"
    made = (
        "Made by `python benchmarks/bench_attacks.py` · digits 16x16, target trained on 100 · CPU seconds · "
        + _conditions({"": results["attacks"]})
    )
    return _table("attack-costs", caption, header, rows, made)


def _jitter(result: dict[str, Any]) -> str:
    rows = [
        [
            name,
            f"{row['ssim']:.3f}",
            f"{row['holdout']:.3f}",
            f"{row['gap']['mean']:+.3f} ({row['gap']['low']:+.3f} to {row['gap']['high']:+.3f})",
            f"{row['coverage']:.2f}",
            f"{row['confidence']:.2f}",
        ]
        for name, row in result["attacks"].items()
    ]
    differences = "; ".join(
        f"{name}: {row['mean']:+.3f} ({row['low']:+.3f} to {row['high']:+.3f})"
        for name, row in result["differences"].items()
    )
    seeds = ", ".join(map(str, result["seeds"]))
    made = (
        f"Made by `python benchmarks/bench_deep_inversion.py` · {result['data']} · "
        f"{result['architecture']} · n = {result['n']}, m = {result['m']} · seeds {seeds} · "
        f"{_conditions({'': result})}"
    )
    header = ["attack", "SSIM to target", "to holdout", "gap (95 %)", "coverage", "confidence"]
    caption = (
        f"Nearest-neighbor SSIM of pixel attacks, {result['n']} target images, {len(result['seeds'])} seeds"
    )
    table = _table(f"jitter-{result['n']}", caption, header, rows, made)
    return f"{table}\n\nDifferences in SSIM, paired over seeds and images (95 %): {differences}."


def _conditions(results: dict[str, Any]) -> str:
    found = {}
    for result in results.values():
        found |= result["versions"]
    devices = sorted({f"{result['device']}, {result['threads']} thread" for result in results.values()})
    return f"{' and '.join(devices)} · " + ", ".join(f"{name} {version}" for name, version in found.items())
