"""The page of measurements says what the benchmarks' result files say, with their conditions."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from PIL import Image

from drlib.book import measured

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results"


def test_every_number_comes_from_a_file(tmp_path):
    for name in ("frechet", "mi_face", "deep_inversion"):
        result = json.loads((RESULTS / f"{name}.json").read_text())
        if name == "frechet":
            result["sizes"][0]["ratio"] = 123.4
        if name == "deep_inversion":
            result["attacks"]["MI-Face"]["ssim"] = 0.98765
        (tmp_path / f"{name}.json").write_text(json.dumps(result))
    text = measured.listing(tmp_path)
    assert "123x" in text and "| MI-Face | 0.988 |" in text
    assert "torch" in text and "1 thread" in text and "seeds 0, 1, 2, 3, 4" in text


def test_without_results_there_is_nothing_to_say(tmp_path):
    assert measured.listing(tmp_path).strip() == ""


def test_the_committed_results_reach_the_numbers_that_the_project_promises():
    frechet = json.loads((RESULTS / "frechet.json").read_text())
    small, large = frechet["sizes"]
    assert small["n"] == 100 and small["ratio"] >= 100 and small["relative_difference"] <= 1e-6
    assert large["n"] == 5000 and large["ratio"] >= 3 and large["relative_difference"] <= 1e-6
    networks = json.loads((RESULTS / "memorization.json").read_text())["networks"]
    assert networks["mlp"]["ratio"] >= 2.5 and networks["cnn"]["ratio"] >= 1.8
    assert min(row["ratio"] for row in networks.values()) >= 1
    search = json.loads((RESULTS / "metrics_intel_xeon.json").read_text())
    gray, color = (each["ratios"] for each in search["ssim"])
    assert gray["drlib / scikit-image"]["2_threads"] >= 500
    assert gray["drlib compiled / scikit-image"]["2_threads"] >= 900
    assert gray["drlib / pytorch-msssim"]["2_threads"] >= 15
    assert color["drlib / scikit-image"]["2_threads"] >= 70
    assert color["drlib / separable convolution"]["2_threads"] >= 10
    assert color["drlib compiled / scikit-image"]["2_threads"] >= 180
    assert search["mse"]["ratios"]["drlib / scikit-learn"]["2_threads"] >= 1.5
    mi_face = json.loads((RESULTS / "mi_face.json").read_text())
    assert mi_face["architectures"]["convnet"]["ratio"] >= 5
    jitter = json.loads((RESULTS / "deep_inversion.json").read_text())
    assert len(jitter["seeds"]) == 5
    for name in ("DeepInversion, jitter 1 - MI-Face", "DeepInversion, jitter 1 - DeepInversion, jitter 0"):
        assert jitter["differences"][name]["low"] > 0


MACHINES = sorted(RESULTS.glob("metrics_*.json"))


@pytest.mark.parametrize("path", MACHINES, ids=lambda path: path.stem)
def test_on_every_machine_the_search_is_right_and_keeps_to_its_memory(path):
    result = json.loads(path.read_text())
    assert result["mse"]["rows"]["drlib"]["wrong_neighbors"] == 0
    for found in result["ssim"]:
        for name in ("drlib", "drlib compiled"):
            assert found["rows"][name]["largest_difference_to_scikit_image"] <= 1e-5
    for budget, sizes in result["growth"].items():
        megabytes = int(budget.partition("=")[2])
        assert max(row["memory_rise_mb"] for row in sizes.values()) < megabytes
        first, *_, last = (row["seconds"] / int(n) ** 2 for n, row in sizes.items())
        assert last < 1.5 * first  # linear in n m


def test_the_search_is_shown_with_its_growth_and_its_projection(tmp_path):
    for number, path in enumerate(MACHINES):
        result = json.loads(path.read_text())
        result["mse"]["ratios"]["drlib / scikit-learn"]["2_threads"] = 12.3 + number
        (tmp_path / path.name).write_text(json.dumps(result))
    text = measured.listing(tmp_path)
    row = next(line for line in text.splitlines() if "| scikit-learn |" in line)
    assert [cell.strip() for cell in row.split("|")][3::2] == ["12.3x", "13.3x", ""]
    assert "/figures/search-growth.png" in text and "fig-search-growth" in text
    assert "Computed, not measured" in text and "20,000 x 20,000" in text


def test_the_figure_of_growth_shows_the_committed_numbers():
    path = RESULTS.parent / "plot_growth.py"
    spec = importlib.util.spec_from_file_location("plot_growth", path)
    plot_growth = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plot_growth)
    with Image.open(RESULTS / measured.GROWTH) as picture:
        assert picture.info["Source"] == plot_growth.digest(plot_growth.measured())
