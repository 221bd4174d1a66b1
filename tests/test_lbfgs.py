"""L-BFGS on many problems at once: known minima, each row as if alone, what breaks other implementations."""

import pytest
import torch

from drlib.lbfgs import MAX_TRIALS, History, minimize

DOUBLE = torch.float64


def rosenbrock(points, numbers):
    """A curved valley with its minimum 0 at (1, ..., 1)."""
    head, tail = points[:, :-1], points[:, 1:]
    return (100 * (tail - head.square()).square() + (1 - head).square()).sum(dim=1)


def starts(rows=12, dimension=4, seed=0):
    return torch.randn((rows, dimension), dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))


def test_a_parabola_is_solved_in_a_few_evaluations():
    goal = torch.tensor([[1.0, -2.0], [3.0, 0.5]], dtype=DOUBLE)
    points, losses = minimize(
        lambda x, rows: (x - goal[rows]).square().sum(dim=1), torch.zeros(2, 2, dtype=DOUBLE), evaluations=8
    )
    assert torch.allclose(points, goal)
    assert losses.shape == (8, 2)
    assert losses[-1].max() < 1e-20


def test_rosenbrock_from_many_starts():
    start = starts(dimension=2)
    points, losses = minimize(rosenbrock, start, evaluations=150)
    assert (points - 1).abs().max() < 1e-6
    assert torch.equal(losses[0], rosenbrock(start, None))


def test_a_row_takes_the_path_that_it_takes_alone():
    start = starts()
    points, losses = minimize(rosenbrock, start, evaluations=60)
    for row in (0, 7):
        alone, its_losses = minimize(rosenbrock, start[row : row + 1], evaluations=60)
        assert torch.allclose(points[row : row + 1], alone, atol=1e-12)
        assert torch.allclose(losses[:, row], its_losses[:, 0], rtol=1e-9)


def test_losses_never_rise_and_the_returned_point_has_the_last_one():
    points, losses = minimize(rosenbrock, starts(), evaluations=40)
    assert (losses[1:] <= losses[:-1]).all()
    assert torch.allclose(rosenbrock(points, None), losses[-1])


def test_converged_rows_leave_the_batch():
    """Easy rows end early; then only the hard ones are evaluated."""
    sizes = []

    def function(points, numbers):
        sizes.append(len(numbers))
        easy = points.square().sum(dim=1)
        return torch.where(numbers < 6, easy, rosenbrock(points, numbers))

    points, _ = minimize(function, starts(), evaluations=200)
    assert sizes[0] == 12
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[8] == 6
    assert len(sizes) < 150, "all rows have ended"
    assert points[:6].abs().max() < 1e-8
    assert (rosenbrock(points[6:], None) < 4).all(), "at the minimum or at the only other stationary point"


@pytest.mark.parametrize("scale", [1e-12, 1e8])
def test_the_scale_of_the_loss_does_not_matter(scale):
    """torch.optim.LBFGS keeps no pair whose <step, change> is below 1e-10: small losses are never solved."""
    points, _ = minimize(
        lambda x, rows: scale * rosenbrock(x, rows), starts(dimension=2), evaluations=400, tolerance=0.0
    )
    assert (points - 1).abs().max() < 1e-4


def test_torch_without_line_search_stalls_on_a_small_loss():
    start = starts(1, 2).requires_grad_(True)
    optimizer = torch.optim.LBFGS([start], max_iter=100, tolerance_change=0, tolerance_grad=0)

    def closure():
        optimizer.zero_grad()
        loss = 1e-12 * rosenbrock(start, None).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert (start.detach() - 1).abs().max() > 1e-2


def test_a_step_into_nan_is_too_long():
    """-log(0.01 - x^2) + (x - 2)^2: the first step, of length 1, leaves the domain."""

    def function(points, numbers):
        return (-torch.log(0.01 - points.square()) + (points - 2).square()).sum(dim=1)

    points, losses = minimize(function, torch.zeros(1, 1, dtype=DOUBLE), evaluations=20)
    assert losses.isfinite().all()
    slope = 2 * points / (0.01 - points.square()) + 2 * (points - 2)
    assert slope.abs().max() < 1e-6


def test_a_hopeless_row_spoils_no_other():
    def function(points, numbers):
        return (points - 1).square().sum(dim=1) * torch.where(numbers == 1, torch.nan, 1.0)

    start = starts(3)
    points, losses = minimize(function, start, evaluations=20)
    assert torch.equal(points[1], start[1])
    assert (points[[0, 2]] - 1).abs().max() < 1e-6
    assert losses[:, [0, 2]].isfinite().all()


def test_a_row_at_a_kink_ends():
    """|x| has no step that lowers it from 0: the row must stop, not search for ever."""
    sizes = []

    def function(points, numbers):
        sizes.append(len(numbers))
        return (points.abs() + 0.5 * points).sum(dim=1)  # slope 0.5 at 0 in PyTorch, but 0 is the minimum

    minimize(function, torch.zeros(1, 1, dtype=DOUBLE), evaluations=10 * MAX_TRIALS)
    assert len(sizes) == 1 + MAX_TRIALS


def test_never_more_evaluations_than_asked_for():
    calls, reports = [], []

    def function(points, numbers):
        calls.append(len(numbers))
        return rosenbrock(points, numbers)

    _, losses = minimize(function, starts(), evaluations=7, report=reports.append)
    assert len(calls) == 7
    assert len(losses) == 7
    assert reports == list(range(1, 8))


def test_the_recursion_is_the_bfgs_update():
    """Two pairs, no scaling left out: the same direction as with the dense inverse Hessian."""
    generator = torch.Generator().manual_seed(0)
    root = torch.randn((5, 5), dtype=DOUBLE, generator=generator)
    hessian = root @ root.T + torch.eye(5, dtype=DOUBLE)
    gradient = torch.randn((1, 5), dtype=DOUBLE, generator=generator)
    pairs = History(4, gradient)
    taken = torch.tensor([True])
    steps = torch.randn((3, 1, 5), dtype=DOUBLE, generator=generator)
    last = steps[-1, 0]
    inverse = torch.eye(5, dtype=DOUBLE) * (last @ hessian @ last) / (hessian @ last).square().sum()
    for step in steps:
        pairs.add(step, step @ hessian, taken)
        pairs.add(step * torch.nan, step * torch.nan, ~taken)  # a trial that was not taken leaves no trace
        s, y = step[0], hessian @ step[0]
        left = torch.eye(5, dtype=DOUBLE) - torch.outer(s, y) / (s @ y)
        inverse = left @ inverse @ left.T + torch.outer(s, s) / (s @ y)
    with_all = History(6, gradient)
    for step in steps:
        with_all.add(step, step @ hessian, taken)
    assert torch.allclose(with_all.precondition(gradient)[0], inverse @ gradient[0])
    assert not pairs.empty.any()
    assert pairs.precondition(gradient).isfinite().all()


def test_only_the_last_pairs_count():
    gradient = torch.ones((1, 3), dtype=DOUBLE)
    short, full = History(2, gradient), History(2, gradient)
    taken = torch.tensor([True])
    for size in (5.0, 1.0, 2.0):
        step = torch.tensor([[size, 1.0, 0.0]], dtype=DOUBLE)
        short.add(step, step * torch.tensor([1.0, 2.0, 3.0]), taken)
        if size < 5:
            full.add(step, step * torch.tensor([1.0, 2.0, 3.0]), taken)
    assert torch.allclose(short.precondition(gradient), full.precondition(gradient))
    short.forget(taken)
    assert short.empty.all()
    assert torch.equal(short.precondition(gradient), gradient)
