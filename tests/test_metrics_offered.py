"""Who is who, and the measures that are offered beside the paper's."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch

from drlib.errors import UserError
from drlib.metrics.offered import combined_score, kernel_distance, prdc_coverage
from drlib.metrics.pairing import who_is_who


def images(n: int, seed: int = 0) -> torch.Tensor:
    return torch.rand((n, 1, 16, 16), generator=torch.Generator().manual_seed(seed))


def test_shuffled_copies_are_found_by_all_but_printed_order():
    targets = images(12)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    found = who_is_who(targets[order], targets)
    assert torch.equal(found["nearest"].index, order) and torch.equal(found["hungarian"].index, order)
    assert found["nearest"].mean == pytest.approx(1) and found["printed"].mean < 0.3
    assert found["printed"].coverage == found["hungarian"].coverage == 1


def test_one_target_copied_many_times_satisfies_only_the_nearest_neighbor():
    targets = images(6)
    found = who_is_who(targets[:1].expand(6, -1, -1, -1), targets)
    assert found["nearest"].mean == pytest.approx(1) and found["nearest"].coverage == 1 / 6
    assert found["hungarian"].mean < 0.4 and found["hungarian"].coverage == 1


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_the_three_means(seed):
    labels = torch.arange(20) % 4
    found = who_is_who(images(20, seed), images(20, seed + 100), labels, labels)
    assert found["nearest"].mean >= found["hungarian"].mean >= found["printed"].mean
    assert torch.equal(labels[found["hungarian"].index], labels)


def test_pairing_one_to_one_needs_equal_numbers():
    with pytest.raises(UserError, match="3 reconstructions and 4 targets"):
        who_is_who(images(3), images(4))
    with pytest.raises(UserError, match="as many reconstructions as targets in each class"):
        who_is_who(images(3), images(3), torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]))


def test_pairing_takes_what_a_sample_distance_takes():
    a, b, labels = images(6), images(6, 1), [0, 0, 1, 1, 2, 2]
    expected = who_is_who(a, b, torch.tensor(labels), torch.tensor(labels))
    made = [
        (a.numpy(), b.numpy(), labels, np.array(labels, dtype=">i8")),
        (a.flip(0).numpy()[::-1], b.numpy().astype(">f4"), pd.Series(labels, index=range(5, 11)), labels),
        (a.double(), b, labels, labels),
        (a.clone().requires_grad_(), b, labels, labels),
    ]
    for arguments in made:
        found = who_is_who(*arguments)
        for way, pairing in expected.items():
            assert torch.equal(found[way].index, pairing.index)
            torch.testing.assert_close(found[way].values, pairing.values)
    assert who_is_who(a.half(), b)["nearest"].values.dtype == torch.float64
    for arguments in [
        ([[0.0]], b),
        (a, b * 2),
        (a, b, labels),
        (a, b, labels, [0.5] * 6),
        (a, b, labels, [0]),
    ]:
        with pytest.raises(UserError):
            who_is_who(*arguments)


def test_prdc_coverage_by_hand():
    target = torch.tensor([[0.0], [1.0], [3.0], [10.0], [11.0], [13.0]])
    # the nearest other target of each is at 1, 1, 2, 1, 1, 2
    assert prdc_coverage(target, target, neighbors=1) == 1
    assert prdc_coverage(target, torch.tensor([[0.5]]), neighbors=1) == pytest.approx(2 / 6)
    assert prdc_coverage(target, torch.tensor([[0.5], [12.0]]), neighbors=1) == pytest.approx(5 / 6 - 1 / 6)
    assert prdc_coverage(target, torch.tensor([[1000.0]]), neighbors=5) == 0
    with pytest.raises(UserError, match="1 to 5"):
        prdc_coverage(target, target, neighbors=6)


def test_prdc_coverage_is_not_the_papers():
    """One image in the middle is in everybody's neighborhood, and the nearest of each has one target."""
    target = torch.tensor([[0.0], [1.0], [2.0]])
    assert prdc_coverage(target, torch.tensor([[1.0]]), neighbors=1) == 1


def test_kernel_distance_has_no_bias_in_n():
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(4000, 8, generator=generator)
    for size in (20, 200):
        same = kernel_distance(draws[:2000], draws[2000:], size=size, subsets=100)
        assert abs(same.value) < 4 * same.standard_error
    other = kernel_distance(draws[:2000], draws[2000:] + 0.5, size=200)
    assert other.value > 10 * other.standard_error > 0


def test_kernel_distance_of_two_points_by_hand():
    a, b = torch.tensor([[1.0], [2.0]]), torch.tensor([[0.0], [1.0]])
    kernel = lambda x, y: (x * y + 1) ** 3  # noqa: E731 - the formula itself
    across = (kernel(1, 0) + kernel(1, 1) + kernel(2, 0) + kernel(2, 1)) / 4
    expected = kernel(1, 2) + kernel(0, 1) - 2 * across
    assert kernel_distance(a, b, subsets=1).value == pytest.approx(expected)


def test_kernel_distance_has_no_standard_error_where_all_subsets_are_equal():
    draws = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    for n, m, size, known in [
        (30, 30, 30, False),
        (30, 30, 100, False),
        (20, 40, 25, False),
        (30, 30, 29, True),
    ]:
        found = kernel_distance(draws[:n], draws[-m:], size=size)
        assert math.isfinite(found.value) and math.isfinite(found.standard_error) == known
    for subsets in (0, -1):
        with pytest.raises(UserError, match=f"subsets must be 1 or more, got {subsets}"):
            kernel_distance(draws, draws, subsets=subsets)


@pytest.mark.parametrize("end", [math.inf, -math.inf, math.nan])
def test_combined_score_refuses_ends_that_are_not_finite(end):
    for worst, best in [({"PSNR": 5.0}, {"PSNR": end}), ({"PSNR": end}, {"PSNR": 5.0})]:
        with pytest.raises(UserError, match="PSNR needs two different finite values"):
            combined_score({"PSNR": 10.0}, worst, best)
    assert combined_score({"PSNR": math.inf}, {"PSNR": 5.0}, {"PSNR": 60.0}) == (1, "PSNR")


def test_combined_score_is_the_smallest_share_of_the_way():
    worst, best = {"SSIM": 0.0, "MSE": 0.2}, {"SSIM": 1.0, "MSE": 0.0}
    assert combined_score({"SSIM": 0.7, "MSE": 0.1}, worst, best) == (pytest.approx(0.5), "MSE")
    assert combined_score({"SSIM": -1.0, "MSE": 0.0}, worst, best) == (0.0, "SSIM")
    assert combined_score(best, worst, best)[0] == 1
    assert math.isnan(combined_score({"SSIM": math.nan, "MSE": 0.1}, worst, best)[0])
    with pytest.raises(UserError, match="PSNR needs two different finite values"):
        combined_score({"PSNR": 10.0}, worst, best)


def test_lpips_says_what_it_needs_in_one_line(monkeypatch, tmp_path):
    from drlib.metrics import perceptual

    monkeypatch.setattr(perceptual, "find_spec", lambda name: None)
    assert perceptual.available() == "LPIPS needs a package: pip install lpips"
    monkeypatch.setattr(perceptual, "find_spec", lambda name: object())
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    assert "alexnet-owt-7be5be79.pth" in perceptual.available()
    with pytest.raises(UserError, match="never downloaded silently"):
        perceptual.lpips(images(2), images(2))
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "alexnet-owt-7be5be79.pth").write_bytes(b"other")
    with pytest.raises(UserError, match="is not the published file"):
        perceptual.lpips(images(2), images(2))
    with pytest.raises(UserError, match="compares pairs"):
        perceptual.lpips(images(2), images(3))
