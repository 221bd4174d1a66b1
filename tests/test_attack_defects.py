"""One test per known defect of other implementations of the attacks.

ART: Trusted-AI adversarial-robustness-toolbox, ``MIFace``. DI: NVlabs DeepInversion, CIFAR-10 and
ImageNet scripts. The defects were found by reading them and in their issue trackers.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from drlib import optimize
from drlib.attacks.deep_dream import DeepDream
from drlib.attacks.deep_inversion import BatchNormStatistics, DeepInversion
from drlib.attacks.mi_face import COSTS, MIFace
from drlib.testing import Recorder, Trial, example_white_box, footprint, silent
from drlib.types import TargetSpec, WhiteBox, balanced_labels, has_batchnorm


def run(attack, n=10, recorder=None, seed=0):
    return Trial(attack, None, None, n, seed).run(recorder=recorder)


class Linear(nn.Module):
    """p_1 = sigmoid(scale * (mean pixel - threshold)) and p_0 = 1 - p_1: the path of an attack is known."""

    def __init__(self, scale, threshold=0.5):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(float(scale)))
        self.threshold = threshold

    def forward(self, images):
        score = self.scale * (images.mean(dim=(1, 2, 3)) - self.threshold)
        return torch.stack([torch.zeros_like(score), score], dim=1)


def linear_box(scale, threshold=0.5):
    model = Linear(scale, threshold)
    return WhiteBox(model, TargetSpec("linear", (1, 4, 4), 2, has_batchnorm(model)))


def invert(attack, white_box, labels, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.as_tensor(labels)
    return attack.reconstruct(
        white_box, None, n=len(labels), labels=labels, generator=generator, progress=silent
    )


# MI-Face


def test_art_inverted_mask_a_hopeless_start_is_not_frozen_after_one_step():
    """ART freezes a sample whose cost is above the threshold at the start: with many classes, all of them."""
    white_box = linear_box(scale=12, threshold=1.0)
    result = invert(MIFace(steps=60, learning_rate=5.0), white_box, [1])
    assert result.loss_history[0] > 0.99
    assert len(result.loss_history) > 30
    assert result.loss_history[-1] < 0.9 * result.loss_history[0]


def test_art_inverted_mask_a_finished_image_costs_nothing_more():
    """ART computes every image to the last iteration; here an image leaves the batch when it is done."""
    white_box = linear_box(scale=40)
    result = invert(MIFace(steps=2000, learning_rate=1.0, confidence=0.9), white_box, [0, 1] * 10)
    finished = white_box.query(result.images).gather(1, result.labels[:, None]) >= 0.9
    assert finished.all()
    assert result.gradient_calls < 20 * 500
    assert len(result.loss_history) < 500


def test_one_finished_image_does_not_stop_the_others():
    """Early stop needs a mask: a ``break`` at the first success leaves the rest unfinished."""
    recorder = Recorder(example_white_box())
    result = run(MIFace(steps=400, learning_rate=0.5, confidence=0.9), n=15, recorder=recorder)
    sizes = [len(images) for images, _ in recorder.seen]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) > 5, "images finish one by one"
    confidence = recorder.query(result.images).gather(1, result.labels[:, None])
    assert (confidence >= 0.9).float().mean() >= 0.8


def test_an_image_without_progress_stops():
    """The paper's second rule: the cost is no smaller than the largest of the last beta costs."""
    white_box = linear_box(scale=0)
    result = invert(MIFace(steps=1000, patience=7), white_box, [0, 1])
    assert len(result.loss_history) == 8
    assert result.gradient_calls == 16


def test_art_costs_are_probabilities_although_the_model_returns_logits():
    """ART takes 1 - (raw last output), which is negative for a confident logit."""
    result = run(MIFace(steps=20, learning_rate=0.5))
    assert 0 <= result.loss_history.min() <= result.loss_history.max() <= 1
    logits, labels = torch.tensor([[9.0, -3.0, 1.0]]), torch.tensor([1])
    p = logits.softmax(1)[0, 1].item()
    assert COSTS["one_minus_p"](logits, labels).item() == pytest.approx(1 - p)
    assert COSTS["cross_entropy"](logits, labels).item() == pytest.approx(12.0, abs=1e-3)
    assert COSTS["margin"](logits, labels).item() == 12.0


def test_art_mixed_labels_take_one_backward_pass_a_step():
    """ART runs a backward pass over the whole batch for every label in it."""
    recorder = Recorder(example_white_box())
    result = run(MIFace(steps=4, confidence=1.0), n=10, recorder=recorder)
    assert recorder.calls == 5  # the start and four steps
    assert result.gradient_calls == 10 * 5
    assert result.queries == 0


class Ridge(Linear):
    """Surest of class 1 where the mean pixel is 0.5; on its slopes, steps of one length go to and fro."""

    def forward(self, images):
        score = self.scale * (0.1 - (images.mean(dim=(1, 2, 3)) - self.threshold).abs())
        return torch.stack([torch.zeros_like(score), score], dim=1)


@pytest.mark.parametrize("cost", COSTS)
def test_art_the_best_iterate_is_returned_not_the_last(cost):
    """ART returns the last iterate; the paper the cheapest."""
    recorder = Recorder(WhiteBox(Ridge(10), linear_box(1).spec))
    result = invert(MIFace(steps=11, cost=cost, learning_rate=1.0), recorder, [1] * 8)
    images = torch.stack([images for images, _ in recorder.seen])
    with torch.no_grad():
        costs = torch.stack([COSTS[cost](recorder.model(step), result.labels) for step in images])
    best = costs.argmin(dim=0)
    assert torch.equal(result.images, images[best, torch.arange(8)])
    assert (best < 11).any(), "or the test shows nothing"


def test_a_fixed_start_gives_one_image_per_class():
    """The original starts from zeros: n requests for a class give n copies (SoK, App. C: random start)."""
    result = run(MIFace(steps=5), n=20)
    for label in range(5):
        assert torch.pdist(result.images[result.labels == label].flatten(1)).min() > 1


def test_flat_cost_cross_entropy_moves_where_one_minus_p_cannot():
    """Where p_y is nearly 0 the gradient of 1 - p_y vanishes; the other costs keep one."""
    white_box = linear_box(scale=200, threshold=1.5)
    stuck = invert(MIFace(steps=50), white_box, [1])
    moves = invert(MIFace(steps=50, cost="cross_entropy"), white_box, [1])
    start = optimize.uniform_images(1, (1, 4, 4), torch.Generator().manual_seed(0))
    assert torch.equal(stuck.images, start)
    assert moves.images.mean() > start.mean() + 0.3


# DeepDream and DeepInversion

PIXEL = [DeepDream(steps=8, jitter=1, learning_rate=0.3), DeepInversion(steps=8, jitter=1, learning_rate=0.3)]


@pytest.mark.parametrize("attack", PIXEL, ids=lambda attack: attack.name)
def test_di_best_is_a_copy_and_chosen_for_each_image_alone(attack):
    """DI stores the live tensor as "best" (so the last iterate comes back) and compares batch totals."""
    recorder = Recorder(example_white_box())
    asked = []

    def query(images, original=recorder.query):
        asked.append((images.clone(), original(images)))
        return asked[-1][1]

    recorder.query = query
    result = run(attack, n=10, recorder=recorder)
    labels = result.labels[:, None]
    views = [p.gather(1, labels)[:, 0] for _, p in asked]
    scores = torch.stack(views).view(-1, 5, 10).mean(dim=1)  # checkpoints x shifts x images
    iterates = torch.stack([images for images, _ in asked[::5]])  # the first shift is none
    best = scores.flip(0).argmax(dim=0)  # ties: the later one
    expected = iterates.flip(0)[best, torch.arange(10)]
    assert torch.equal(result.images, expected)
    assert len(set(best.tolist())) > 1, "or the test shows nothing"


def test_di_hooks_do_not_pile_up():
    """DI never removes its hooks: each call adds a set, and time and memory grow."""
    white_box = example_white_box()
    before = footprint(white_box.model)["hooks"]
    for _ in range(2):
        run(DeepInversion(steps=1))
        assert footprint(white_box.model)["hooks"] == before
    assert sum(before) == 0


def test_di_the_last_graph_is_let_go():
    """DI's hooks keep the last batch and its graph alive as an attribute of the model."""
    white_box = example_white_box()
    with BatchNormStatistics(white_box.model) as statistics:
        white_box.logits(torch.rand(4, 1, 16, 16, requires_grad=True))
        assert len(statistics.terms) == len(statistics.layers) == 3
        statistics.distance()
        assert not statistics.terms
        white_box.logits(torch.rand(4, 1, 16, 16, requires_grad=True))
    assert not statistics.terms


@pytest.mark.parametrize("n", [1, 7, 300])
def test_di_any_number_of_labels(n):
    """DI's label list is written for exactly 256 images."""
    result = run(DeepInversion(steps=1, group_size=128), n=n)
    assert len(result) == n
    assert torch.equal(result.labels, balanced_labels(n, 5))
    assert result.group_size == {1: 1, 7: 7, 300: 100}[n]


@pytest.mark.parametrize("attack", [MIFace(steps=2), *PIXEL], ids=lambda attack: attack.name)
def test_di_no_gradient_for_weights_and_eval_mode_during_the_attack(attack):
    """DI does not freeze the weights, and calls eval() only after synthesis."""
    recorder = Recorder(example_white_box())
    states = []
    handle = recorder.model.register_forward_hook(
        lambda model, *_: states.append(
            (any(m.training for m in model.modules()), any(p.requires_grad for p in model.parameters()))
        )
    )
    buffers = {name: value.clone() for name, value in recorder.model.named_buffers()}
    run(attack, recorder=recorder)
    handle.remove()
    assert set(states) == {(False, False)}
    assert all(torch.equal(value, buffers[name]) for name, value in recorder.model.named_buffers())


@pytest.mark.parametrize(
    "attack", [MIFace(steps=4, learning_rate=99.0), *PIXEL], ids=lambda attack: attack.name
)
def test_di_the_model_never_sees_a_pixel_outside_the_range(attack):
    """DI's CIFAR script never clips: pixels ended between -0.4 and 1.4 in one measurement."""
    recorder = Recorder(example_white_box())
    run(attack, recorder=recorder)
    assert all(0 <= images.min() <= images.max() <= 1 for images, _ in recorder.seen)


def test_di_statistics_of_the_input_with_biased_variance_first_layer_weighted():
    """R_bn by hand, for one- and two-dimensional BatchNorm, with inputs of every layer."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4), nn.BatchNorm1d(4)
    ).double()
    for layer in (model[1], model[5]):
        layer.running_mean.normal_()
        layer.running_var.uniform_(0.5, 2)
    model.eval()
    images = torch.rand(3, 1, 4, 4, dtype=torch.float64, requires_grad=True)
    features = [model[:1](images), model[:5](images)]
    expected = []
    for layer, x in zip((model[1], model[5]), features, strict=True):
        x = x.detach().transpose(0, 1).flatten(1)
        mean, var = x.mean(1), ((x - x.mean(1, keepdim=True)) ** 2).sum(1) / x.shape[1]
        expected.append(
            ((mean - layer.running_mean) ** 2).sum().sqrt() + ((var - layer.running_var) ** 2).sum().sqrt()
        )
    for multiplier in (1.0, 10.0):
        with BatchNormStatistics(model, multiplier) as statistics:
            model(images)
            found = statistics.distance()
        torch.testing.assert_close(found.detach(), multiplier * expected[0] + expected[1])
    assert torch.autograd.grad(found, images)[0].abs().sum() > 0


def test_di_scoring_passes_are_no_part_of_the_statistics():
    white_box = example_white_box()
    with BatchNormStatistics(white_box.model) as statistics:
        white_box.query(torch.rand(4, 1, 16, 16))
        assert not statistics.terms


def test_di_one_class_batches_are_avoided():
    """Groups of one class are pulled to the statistics of all: sorted labels are dealt out evenly."""
    labels = torch.arange(5).repeat_interleave(8)
    groups = optimize.class_balanced_groups(labels, 20)
    assert [torch.bincount(labels[group]).tolist() for group in groups] == [[4] * 5, [4] * 5]
    result = invert(DeepInversion(steps=1, group_size=20), example_white_box(), labels)
    assert torch.equal(result.labels, labels)
    assert result.group_size == 20


def test_di_batch_norm_weight_does_not_fade_with_the_group_size():
    """A loss summed over images and a statistics term counted once would trade off by batch size."""
    white_box = example_white_box()
    images = torch.rand(8, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    attack = DeepInversion(steps=1, jitter=0, bn=3.0, tv=0.0, l2=0.0, group_size=64)
    first = {}
    for copies in (1, 3):
        recorder = Recorder(white_box)
        batch = images.repeat(copies, 1, 1, 1)
        labels = balanced_labels(5, 5).repeat(2)[:8].repeat(copies)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(optimize, "uniform_images", lambda n, shape, generator, batch=batch: batch)
            patch.setattr(optimize, "class_balanced_groups", lambda labels, size: [torch.arange(len(labels))])
            invert(attack, recorder, labels)
        first[copies] = recorder.seen[0][1][:8]
    # Repeating the images changes neither their statistics nor, therefore, any image's gradient.
    torch.testing.assert_close(first[1], first[3], rtol=1e-3, atol=1e-5)


def test_regularizers_carry_over_between_batch_sizes_and_resolutions():
    """DI's TV and l2 are norms of the whole batch: coefficients change with batch size and resolution."""
    small = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for term in (optimize.total_variation, optimize.squared_norm):
        assert torch.equal(term(small)[:2], term(small[:2]))
    large = F.interpolate(small, scale_factor=4, mode="nearest")
    torch.testing.assert_close(optimize.squared_norm(large), optimize.squared_norm(small))


def test_di_jitter_moves_each_image_by_its_own_shift():
    """DI rolls the whole batch by one shift, and its images share it."""
    recorder = Recorder(example_white_box())
    attack = DeepInversion(steps=1, jitter=2)
    run(attack, n=10, recorder=recorder)
    start = optimize.uniform_images(10, (1, 16, 16), torch.Generator().manual_seed(0))
    shifts = [
        next(
            (a, b)
            for a in range(-2, 3)
            for b in range(-2, 3)
            if torch.equal(torch.roll(x, (a, b), (1, 2)), y)
        )
        for x, y in zip(start, recorder.seen[0][0], strict=True)
    ]
    assert len(set(shifts)) > 3


def test_jitter_off_and_on_start_from_the_same_images():
    """An ablation of jitter must not change the start with it."""
    starts = []
    for jitter in (0, 1):
        recorder = Recorder(example_white_box())
        run(DeepInversion(steps=1, jitter=jitter), n=5, recorder=recorder)
        starts.append(recorder.seen[0][0].flatten(1).sort(dim=1).values)
    assert torch.equal(*starts)


def test_no_batchnorm_is_refused_with_the_reason():
    """Without BatchNorm the loss silently becomes DeepDream's in other code."""
    assert "no BatchNorm layer" in DeepInversion().supports(example_white_box("lenet").spec)
    assert DeepInversion().supports(example_white_box().spec) is None


def test_mi_face_a_long_patience_costs_no_memory():
    """The costs of the last ``patience`` steps are kept; there are never more than there were steps."""
    white_box = example_white_box("convnet")
    patient = MIFace(steps=3, patience=10**12).run(white_box, n=5)
    usual = MIFace(steps=3).run(white_box, n=5)
    assert torch.equal(patient.images, usual.images)
