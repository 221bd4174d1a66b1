"""The page of measurements says what the benchmarks' result files say, with their conditions."""

from __future__ import annotations

import json
from pathlib import Path

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
    mi_face = json.loads((RESULTS / "mi_face.json").read_text())
    assert mi_face["architectures"]["convnet"]["ratio"] >= 5
    jitter = json.loads((RESULTS / "deep_inversion.json").read_text())
    assert len(jitter["seeds"]) == 5
    for name in ("DeepInversion, jitter 1 - MI-Face", "DeepInversion, jitter 1 - DeepInversion, jitter 0"):
        assert jitter["differences"][name]["low"] > 0
