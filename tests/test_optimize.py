"""What the attacks share: jitter, regularizers, optimizers, the descent loop, groups."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from drlib import optimize
from drlib.types import balanced_labels


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@given(st.integers(1, 4), st.sampled_from([1, 3]), st.integers(2, 7), st.integers(2, 7), st.integers(0, 99))
def test_roll_is_torch_roll_image_by_image_and_undone_by_its_negative(n, channels, height, width, seed):
    images = torch.rand((n, channels, height, width), generator=generator(seed))
    shifts = torch.randint(-9, 10, (n, 2), generator=generator(seed), dtype=torch.int8)
    rolled = optimize.roll(images, shifts)
    expected = [torch.roll(image, tuple(s.tolist()), (1, 2)) for image, s in zip(images, shifts, strict=True)]
    assert torch.equal(rolled, torch.stack(expected))
    assert torch.equal(optimize.roll(rolled, -shifts), images)


def test_jitter_covers_the_range_and_differs_between_images_and_steps():
    shifts = optimize.jitter_shifts(50, 20, 2, generator())
    assert shifts.shape == (50, 20, 2)
    assert sorted(shifts.unique().tolist()) == [-2, -1, 0, 1, 2]
    assert (shifts[0] != shifts[0, :1]).any()
    assert (shifts[0] != shifts[1]).any()
    assert not optimize.jitter_shifts(5, 4, 0, generator()).any()


def test_regularizers_are_means_of_each_image_alone():
    images = torch.rand((6, 3, 8, 8), generator=generator(), dtype=torch.float64)
    for term in (optimize.total_variation, optimize.squared_norm):
        alone = torch.cat([term(image[None]) for image in images])
        torch.testing.assert_close(term(images), alone)
    ramp = (
        torch.arange(8.0).expand(1, 1, 8, 8) / 10
    )  # neighbors differ by 0.1 to the right and on both diagonals
    assert optimize.total_variation(ramp).item() == pytest.approx(0.3)
    assert optimize.total_variation(torch.full((1, 3, 5, 5), 0.7)).item() == 0
    assert optimize.squared_norm(torch.full((1, 3, 5, 5), 0.5)).item() == pytest.approx(0.25)


def test_adam_is_torchs_adam():
    start, target = torch.rand((2, 4, 1, 5, 5), generator=generator(), dtype=torch.float64)
    target = 0.25 + 0.5 * target  # inside [0, 1], so that clipping plays no part at the end
    parameter = start.clone().requires_grad_(True)
    theirs = torch.optim.Adam([parameter], lr=0.01, betas=(0.5, 0.9))
    ours, images = optimize.Adam((0.5, 0.9)), start
    for _ in range(25):
        theirs.zero_grad()
        (parameter - target).square().sum().backward()
        theirs.step()
        with torch.no_grad():
            parameter.clamp_(0, 1)
        images = ours.step(images, 2 * (images - target), 0.01)
    torch.testing.assert_close(images, parameter.detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", optimize.OPTIMIZERS)
def test_optimizers_clip_and_treat_rows_alone(name):
    whole, part = optimize.OPTIMIZERS[name](), optimize.OPTIMIZERS[name]()
    images = torch.rand((4, 1, 3, 3), generator=generator())
    rows = torch.tensor([True, False, True, False])
    few = images[rows]
    for step in range(6):
        gradient = torch.randn(images.shape, generator=generator(step))
        images = whole.step(images, gradient, 0.3)
        few = part.step(few, gradient[rows], 0.3)
        assert 0 <= images.min() <= images.max() <= 1
    assert torch.equal(images[rows], few)
    whole.keep(rows)
    gradient = torch.randn(few.shape, generator=generator(9))
    assert torch.equal(whole.step(images[rows], gradient, 0.3), part.step(few, gradient, 0.3))


def test_schedules():
    assert optimize.constant(0.1, 3) == [0.1, 0.1, 0.1]
    rates = optimize.cosine(0.2, 100)
    assert rates[0] == 0.2
    assert rates[50] == pytest.approx(0.1)
    assert rates == sorted(rates, reverse=True)
    assert 0 < rates[-1] < 1e-3


def descent(score, steps=10, checkpoints=10, loss=lambda images: images.sum(dim=(1, 2, 3)), start=None):
    start = torch.full((3, 1, 2, 2), 0.9, dtype=torch.float64) if start is None else start
    seen = []
    best, history = optimize.descend(
        loss,
        start,
        torch.zeros((steps, len(start), 2), dtype=torch.int8),
        optimizer=optimize.GradientDescent(),
        rates=[0.05] * steps,
        score=score,
        report=seen.append,
        checkpoints=checkpoints,
    )
    assert seen == list(range(1, steps + 1))
    return best, history


def test_each_image_is_returned_as_it_was_at_its_own_best_checkpoint():
    wanted = torch.tensor([0.85, 0.65, 0.4], dtype=torch.float64)  # after 1, 5 and 10 steps of 0.05
    best, history = descent(lambda images: -(images.mean(dim=(1, 2, 3)) - wanted).abs())
    torch.testing.assert_close(best.mean(dim=(1, 2, 3)), wanted)
    assert history[0] == pytest.approx(3 * 4 * 0.9)
    assert len(history) == 10


def test_ties_and_single_checkpoints_go_to_the_last_iterate():
    for checkpoints in (1, 4, 10):
        best, _ = descent(
            lambda images: torch.zeros(len(images), dtype=torch.float64), checkpoints=checkpoints
        )
        torch.testing.assert_close(best.mean().item(), 0.4)
    best, _ = descent(lambda images: torch.zeros(len(images), dtype=torch.float64), steps=1)
    torch.testing.assert_close(best.mean().item(), 0.85)


def test_the_gradient_is_taken_back_to_the_unshifted_image():
    start = torch.full((1, 1, 4, 4), 0.5, dtype=torch.float64)
    shifts = torch.tensor([[[1, 2]]], dtype=torch.int8)
    best, _ = optimize.descend(
        lambda images: images[:, 0, 0, 0],  # the loss sees only the corner of the shifted image
        start,
        shifts,
        optimizer=optimize.GradientDescent(),
        rates=[0.1],
        score=lambda images: torch.zeros(1, dtype=torch.float64),
        report=lambda step: None,
    )
    assert best[0, 0, 3, 2] == pytest.approx(0.4)  # (0, 0) shifted back by (1, 2)
    assert best.sum() == pytest.approx(16 * 0.5 - 0.1)


@given(st.integers(1, 300), st.integers(1, 12), st.integers(1, 300))
def test_groups_are_contiguous_balanced_and_nearly_equal(n, classes, group_size):
    labels = balanced_labels(n, classes)
    groups = optimize.class_balanced_groups(labels, group_size)
    assert torch.equal(torch.cat(groups), torch.arange(n)), "contiguous for cyclic labels, all rows once"
    sizes = [len(group) for group in groups]
    assert max(sizes) <= group_size
    present = min(n, classes)
    assert max(sizes) - min(sizes) <= (present if n % present == 0 else 1)
    for group in groups:
        counts = torch.bincount(labels[group], minlength=classes)[:present]
        assert counts.max() - counts.min() <= 1
        if n % classes == 0 and group_size >= classes:
            assert counts.max() == counts.min()
    if n <= group_size:
        assert len(groups) == 1


@given(st.integers(1, 8), st.integers(1, 20), st.integers(1, 60), st.integers(0, 9))
def test_groups_are_balanced_whatever_the_order_of_the_labels(classes, each, group_size, seed):
    labels = torch.arange(classes).repeat(each)[torch.randperm(classes * each, generator=generator(seed))]
    groups = optimize.class_balanced_groups(labels, group_size)
    assert sorted(torch.cat(groups).tolist()) == list(range(len(labels)))
    for group in groups:
        counts = torch.bincount(labels[group], minlength=classes)
        assert counts.max() - counts.min() <= 1


def test_four_hundred_in_groups_of_256_are_two_of_200():
    groups = optimize.class_balanced_groups(balanced_labels(400, 5), 256)
    assert [len(group) for group in groups] == [200, 200]


def test_progress_counts_image_steps_over_groups():
    calls = []
    groups = list(torch.arange(5).split(2))
    for _, report in optimize.with_progress(groups, 3, lambda *call: calls.append(call)):
        for step in (1, 2, 3):
            report(step)
    assert calls == [(2, 15), (4, 15), (6, 15), (8, 15), (10, 15), (12, 15), (13, 15), (14, 15), (15, 15)]


def test_uniform_images_do_not_depend_on_the_batch_they_are_cut_into():
    images = optimize.uniform_images(6, (1, 4, 4), generator())
    assert images.dtype == torch.float32
    assert 0 <= images.min() < 0.2 < 0.8 < images.max() <= 1
    assert math.isclose(images.mean().item(), 0.5, abs_tol=0.1)
