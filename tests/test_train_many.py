"""Training many models at once gives each model what training it alone gives."""

from __future__ import annotations

import copy
import statistics
import time

import pytest
import torch
from torch import nn

from drlib import models, training
from drlib.errors import UserError
from drlib.train_many import SideBySide, train_many, update_many, widens
from drlib.training import TrainSpec

SHAPE, CLASSES = (1, 16, 16), 5
SGD = TrainSpec(epochs=2, min_steps=0, batch_size=8, optimizer="sgd", learning_rate=1e-2)


@pytest.fixture(scope="module")
def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand((60, *SHAPE), generator=generator, dtype=torch.float64)
    return images, torch.arange(60) % CLASSES


def built(count: int, architecture: str = "convnet", width: float = 0.25) -> list[nn.Module]:
    return [
        models.build(
            architecture, shape=SHAPE, num_classes=CLASSES, width=width, generator_seed=seed
        ).double()
        for seed in range(count)
    ]


def drawn(count: int, size: int = 21) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.stack([torch.randperm(60, generator=generator)[:size] for _ in range(count)])


def one_after_another(these, images, labels, rows, spec, seeds):
    histories = []
    for model, row, seed in zip(these, rows, seeds, strict=True):
        histories.append(training.train(model, images[row], labels[row], spec, seed=seed).loss_history)
    return torch.stack(histories)


def largest_difference(these, those) -> float:
    return max(
        float((value - other.state_dict()[name]).abs().max())
        for model, other in zip(these, those, strict=True)
        for name, value in model.state_dict().items()
    )


class Mixing(nn.Module):
    """Joins channels: known layers only, but its copies side by side would mix."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 2, 3, padding=1), nn.Linear(3 * 256, CLASSES)

    def forward(self, x):
        return self.head(torch.cat([x, self.conv(x)], dim=1).flatten(1))


class Normed(nn.Module):
    """Has a layer that cannot be widened."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.LayerNorm(256), nn.Linear(256, CLASSES))

    def forward(self, x):
        return self.body(x)


def test_one_step_of_two_linear_models_by_hand(data):
    """The smallest case: each model moves along its own gradient."""
    images, labels = data
    these = [nn.Sequential(nn.Flatten(), nn.Linear(256, CLASSES)).double() for _ in range(2)]
    expected = []
    rows = torch.tensor([[0, 1], [2, 3]])
    for model, row in zip(these, rows, strict=True):
        loss = nn.functional.cross_entropy(model(images[row]), labels[row])
        (gradient,) = torch.autograd.grad(loss, model[1].weight)
        expected.append(model[1].weight.detach() - 0.5 * gradient)
    spec = TrainSpec(
        epochs=1, min_steps=0, batch_size=2, optimizer="sgd", learning_rate=0.5, momentum=0, weight_decay=0
    )
    train_many(these, images, labels, rows, spec, seeds=[0, 1])
    for model, weight in zip(these, expected, strict=True):
        assert torch.allclose(model[1].weight, weight, atol=1e-12)


@pytest.mark.parametrize(
    ("architecture", "width"),
    [
        ("convnet", 0.25),
        ("lenet", 0.5),
        ("mlp", 0.1),
        ("homogeneous_mlp", 0.02),
        ("vgg16", 0.05),
        ("resnet18", 0.05),
    ],
)
def test_equals_training_one_after_another(data, architecture, width):
    images, labels = data
    together, alone, rows = built(3, architecture, width), built(3, architecture, width), drawn(3)
    assert widens(together[0], images[:2])
    histories = train_many(together, images, labels, rows, SGD, seeds=[5, 6, 7], at_once=2)
    expected = one_after_another(alone, images, labels, rows, SGD, [5, 6, 7])
    assert largest_difference(together, alone) < 1e-9  # BatchNorm's buffers and counters are in the state
    assert torch.allclose(histories, expected, atol=1e-9)
    assert not any(module.training for model in together for module in model.modules())


@pytest.mark.parametrize(
    "spec",
    [
        TrainSpec(epochs=2, min_steps=0, batch_size=10),
        TrainSpec(epochs=1, min_steps=5, batch_size=10, optimizer="adam", schedule="constant"),
        TrainSpec(epochs=2, min_steps=0, batch_size=7, augment_shift=1, label_smoothing=0.1),
    ],
    ids=["adamw", "adam", "shifts"],
)
def test_every_recipe(data, spec):
    images, labels = data
    together, alone, rows = built(2), built(2), drawn(2)
    train_many(together, images, labels, rows, spec, seeds=[1, 2])
    one_after_another(alone, images, labels, rows, spec, [1, 2])
    # Adam divides by the gradient's size: where that is mere rounding, so is the parameter.
    assert largest_difference(together, alone) < 1e-5


def test_update_equals_training_a_copy(data):
    images, labels = data
    bases, origins, rows = built(2), torch.tensor([1, 0, 1]), drawn(3, 15)
    before = copy.deepcopy(bases)
    alone = [copy.deepcopy(bases[origin]) for origin in origins]
    one_after_another(alone, images, labels, rows, SGD, [3, 4, 5])
    groups = list(update_many(bases, origins, images, labels, rows, SGD, seeds=[3, 4, 5], at_once=2))
    assert [len(group) for group in groups] == [2, 1]
    found = torch.cat([group.probabilities(images[:9], batch_size=4) for group in groups])
    expected = torch.stack([training.predict(model, images[:9]) for model in alone])
    assert torch.allclose(found, expected, atol=1e-10)
    assert largest_difference(bases, before) == 0


@pytest.mark.parametrize("kind", [Mixing, Normed])
def test_an_architecture_that_cannot_be_widened_runs_one_by_one(data, kind):
    images, labels = data
    with torch.random.fork_rng():
        torch.manual_seed(0)
        together = [kind().double() for _ in range(2)]
    alone, rows = copy.deepcopy(together), drawn(2)
    assert not widens(together[0], images[:2])
    train_many(together, images, labels, rows, SGD, seeds=[1, 2])
    one_after_another(alone, images, labels, rows, SGD, [1, 2])
    assert largest_difference(together, alone) < 1e-9


def test_no_model_feels_another(data):
    images, labels = data
    rows, other = drawn(2), drawn(2)
    other[0] = (other[0] + 1) % 60
    first, second = built(2), built(2)
    train_many(first, images, labels, rows, SGD, seeds=[1, 2])
    train_many(second, images, labels, other, SGD, seeds=[9, 2])
    assert largest_difference(first[1:], second[1:]) < 1e-12
    assert largest_difference(first[:1], second[:1]) > 1e-6


def test_same_seeds_same_bits_and_global_randomness_untouched(data):
    images, labels = data
    runs = []
    for state in (0, 1):
        with torch.random.fork_rng():
            torch.manual_seed(state)
            before = torch.get_rng_state()
            these = built(3)
            train_many(these, images, labels, drawn(3), SGD, seeds=[1, 2, 3])
            assert torch.equal(torch.get_rng_state(), before)
            runs.append(these)
    assert largest_difference(*runs) == 0


def test_states_come_back_as_they_went_in():
    these = [model.float() for model in built(3)]
    for state, model in zip(SideBySide(these).states(), these, strict=True):
        assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())


def test_refuses_what_does_not_fit(data):
    images, labels = data
    with pytest.raises(UserError, match="one row of images and one seed each"):
        train_many(built(2), images, labels, drawn(3), SGD, seeds=[1, 2])
    with pytest.raises(UserError, match="at least 2 images"):
        train_many(built(2), images, labels, drawn(2, 1), SGD, seeds=[1, 2])
    with pytest.raises(UserError, match="diverged in epoch"):
        spec = SGD.model_copy(update={"learning_rate": 1e30, "epochs": 20})
        train_many(built(2), images, labels, drawn(2), spec, seeds=[1, 2])


def test_not_slower_than_one_after_another(data):
    images, labels = data[0].float(), data[1]
    rows, seconds = drawn(8, 60), {"together": [], "alone": []}
    for _ in range(3):
        for name, train in (("together", train_many), ("alone", one_after_another)):
            these = [model.float() for model in built(8)]
            began = time.process_time()
            train(these, images, labels, rows, SGD, seeds=list(range(8)))
            seconds[name].append(time.process_time() - began)
    assert statistics.median(seconds["together"]) < statistics.median(seconds["alone"])
