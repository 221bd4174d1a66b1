"""Knowledge, access views, images, labels, reconstructions."""

import copy
import dataclasses
from itertools import product
from typing import ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from drlib.errors import UserError, nearest, unknown
from drlib.probe import has_batchnorm
from drlib.types import (
    BLACK_BOX,
    DYNAMIC,
    NO_DATA,
    SAME,
    SIMILAR,
    STATIC,
    WHITE_BOX,
    AccessError,
    Attack,
    BlackBox,
    Gradients,
    Knowledge,
    Normalized,
    Reconstruction,
    TargetSpec,
    Update,
    WhiteBox,
    balanced_labels,
    check_images,
)

ALL = [
    Knowledge(*parts)
    for parts in product((STATIC, DYNAMIC), (BLACK_BOX, WHITE_BOX), (NO_DATA, SIMILAR, SAME))
]


def test_knowledge_is_a_partial_order():
    for a, b, c in product(ALL, repeat=3):
        assert a <= a
        if a <= b and b <= a:
            assert a == b
        if a <= b and b <= c:
            assert a <= c


def test_more_knowledge_is_more_of_everything():
    assert Knowledge(STATIC, BLACK_BOX, NO_DATA) <= Knowledge(STATIC, WHITE_BOX, SAME)
    assert not Knowledge(STATIC, WHITE_BOX, NO_DATA) <= Knowledge(STATIC, BLACK_BOX, SAME)
    assert not Knowledge(STATIC, BLACK_BOX, SAME) <= Knowledge(STATIC, WHITE_BOX, SIMILAR)
    assert not Knowledge(STATIC, BLACK_BOX, NO_DATA) <= Knowledge(DYNAMIC, WHITE_BOX, SAME)
    assert not Knowledge(DYNAMIC, BLACK_BOX, NO_DATA) <= Knowledge(STATIC, WHITE_BOX, SAME)


def test_knowledge_reads_like_the_paper():
    assert str(Knowledge(STATIC, WHITE_BOX, NO_DATA)) == "static x white box x no data"


def net(batchnorm=True):
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(4) if batchnorm else nn.Identity()
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), norm, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )


def white_box(**changes):
    arguments = {
        "mean": [0.1, 0.2, 0.3],
        "std": [0.5, 0.6, 0.7],
        "labels": ["a", "b", "c"],
        "shape": (3, 8, 8),
    }
    return WhiteBox.from_module(changes.pop("module", net()), **(arguments | changes))


def images(n=4, shape=(3, 8, 8)):
    return torch.rand((n, *shape), generator=torch.Generator().manual_seed(0))


def test_white_box_owns_the_normalization_freezes_and_switches_to_eval():
    module = net().train()
    view = white_box(module=module)
    assert not view.model.training
    assert not any(parameter.requires_grad for parameter in view.model.parameters())
    assert module.training and all(parameter.requires_grad for parameter in module.parameters())
    module.eval()
    mean, std = torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1), torch.tensor([0.5, 0.6, 0.7]).view(3, 1, 1)
    torch.testing.assert_close(view.logits(images()), module((images() - mean) / std))
    torch.testing.assert_close(view.query(images()), view.logits(images()).softmax(1))
    assert view.spec == TargetSpec("custom", (3, 8, 8), 3, True, ("a", "b", "c"))


def test_views_count_per_image_and_tell_gradients_from_queries():
    view = white_box()
    view.query(images(3))
    view.logits(images(2))
    assert (view.queries, view.gradient_calls) == (5, 0)
    view.logits(images(4).requires_grad_(True))
    with torch.no_grad():
        view.logits(images(1).requires_grad_(True))
    assert (view.queries, view.gradient_calls) == (6, 4)


def test_query_gives_no_gradient():
    assert not white_box().query(images().requires_grad_(True)).requires_grad


def test_a_black_box_has_no_parameters():
    view = white_box()
    black = BlackBox(view.query, view.spec)
    assert not isinstance(black, WhiteBox)
    for name in ("model", "logits", "query_before", "gradients"):
        with pytest.raises(AccessError, match=f"BlackBox access does not grant '{name}'"):
            getattr(black, name)
    assert not hasattr(black, "parameters")
    assert not any(isinstance(value, nn.Module) for value in vars(black).values())
    torch.testing.assert_close(black.query(images()).sum(1), torch.ones(4))
    assert black.queries == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mean": [0.5]}, "one value per channel: 3, got 1 and 3"),
        ({"std": [0.5, 0.0, 0.5]}, "std must be positive"),
        ({"labels": ["a", "b"]}, r"expected \(1, 2\)"),
        ({"mean": [0.5, float("nan"), 0.5]}, "must be finite"),
    ],
)
def test_from_module_refuses_what_does_not_fit(changes, message):
    with pytest.raises(UserError, match=message):
        white_box(**changes)


def test_a_double_model_takes_double_images():
    view = white_box()
    view.model.double()
    assert view.logits(images().double()).dtype == torch.float64


def test_normalized_keeps_its_constants_in_the_state():
    assert {"mean", "std"} <= set(Normalized(net(), [0, 0, 0], [1, 1, 1]).state_dict())


def test_has_batchnorm():
    assert has_batchnorm(net())
    assert not has_batchnorm(net(batchnorm=False))
    assert not has_batchnorm(nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False)))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (torch.rand(3, 8, 8), r"\(n, c, h, w\)"),
        (torch.rand(2, 1, 8, 8), r"\(n, 3, 8, 8\), got \(2, 1, 8, 8\)"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), "divide uint8 by 255"),
        (torch.full((2, 3, 8, 8), 1.01), r"\[0, 1\]"),
        (torch.full((2, 3, 8, 8), -0.01), r"\[0, 1\]"),
        (torch.full((2, 3, 8, 8), float("nan")), "NaN"),
    ],
)
def test_bad_images_are_refused(bad, message):
    with pytest.raises(UserError, match=message):
        check_images(bad, (3, 8, 8))
    with pytest.raises(UserError):
        white_box().query(bad)


@given(st.integers(1, 200), st.integers(1, 20), st.integers(0, 100), st.integers(1, 100))
def test_every_run_of_labels_is_balanced(n, classes, first, length):
    labels = balanced_labels(n, classes)
    assert labels.dtype == torch.int64
    run = labels[first : first + length]
    if len(run) and classes <= n:
        counts = torch.bincount(run, minlength=classes)
        assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize(("n", "classes"), [(0, 5), (5, 0)])
def test_labels_need_an_image_and_a_class(n, classes):
    with pytest.raises(UserError, match="at least 1"):
        balanced_labels(n, classes)


def test_a_reconstruction_is_float32_on_the_cpu_and_detached():
    given_images = images().double().requires_grad_(True)
    result = Reconstruction(given_images, balanced_labels(4, 3).int(), [1.0, 0.5])
    assert len(result) == 4
    assert result.images.dtype == torch.float32
    assert not result.images.requires_grad
    assert result.labels.dtype == torch.int64
    assert result.loss_history.tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    ("bad_images", "labels", "message"),
    [
        (images() * 2, None, r"\[0, 1\]"),
        (images()[0], None, r"\(n, c, h, w\)"),
        (images(), balanced_labels(3, 3), r"shape \(4,\), got \(3,\)"),
    ],
)
def test_a_reconstruction_is_validated(bad_images, labels, message):
    with pytest.raises(UserError, match=message):
        Reconstruction(bad_images, labels, torch.zeros(1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example(Attack):
    name: ClassVar[str] = "example"
    steps: int = 3
    batch_size: int = dataclasses.field(default=8, metadata={"execution": True})

    def reconstruct(self, access, prepared, **arguments):
        raise NotImplementedError


def test_hyperparameters_are_written_out_without_execution_settings():
    assert Example().hyperparameters() == {"steps": 3}
    assert Example(steps=5, batch_size=2).hyperparameters() == {"steps": 5}
    assert Example().supports(white_box().spec) is None
    assert Example().prepare(white_box(), None, generator=torch.Generator(), progress=print) is None


def test_errors_name_the_nearest_and_stay_on_one_line():
    error = unknown("data set", "digit", ("digits", "mnist"))
    assert str(error) == "unknown data set 'digit'; did you mean 'digits'? (allowed: digits, mnist)"
    assert nearest("zzz", ("digits",)) == ""
    assert str(UserError("two\n  lines")) == "two lines"


def _fixed(side: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2 * (side - 2) ** 2, 3))


def test_from_module_tells_the_shape_where_only_one_fits():
    view = WhiteBox.from_module(_fixed(28), [0.5], [0.25], ["a", "b", "c"])
    assert view.spec.shape == (1, 28, 28)
    assert view.query(torch.rand(2, 1, 28, 28)).shape == (2, 3)


def test_from_module_asks_for_the_shape_where_many_fit():
    pooled = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 3))
    with pytest.raises(UserError, match="several image sizes: give shape="):
        WhiteBox.from_module(pooled, [0.5], [0.25], ["a", "b", "c"])
    assert WhiteBox.from_module(pooled, [0.5], [0.25], "abc", shape=(1, 20, 20)).spec.shape == (1, 20, 20)


# Views of dynamic targets


def test_an_update_is_asked_before_and_after_and_counts_both():
    first, second = white_box(), white_box()
    view = Update(second.query, lambda images: first.query(images) * 0, first.spec)
    images = torch.rand(3, *first.spec.shape)
    assert torch.equal(view.query(images), second.query(images))
    assert not view.query_before(images).any()
    assert view.queries == 6
    with pytest.raises(UserError, match="must have shape"):
        view.query_before(images[:, :, :2])


def test_gradients_are_those_of_the_mean_cross_entropy_of_each_batch():
    view = white_box()
    server = Gradients(view.model, view.spec, {}, batch_size=2)
    generator = torch.Generator().manual_seed(0)
    images = torch.rand((3, 2, *view.spec.shape), generator=generator, requires_grad=True)
    labels = torch.tensor([[0, 1], [1, 1], [0, 0]])
    found = server.parameter_gradients(images, labels)
    assert server.gradient_calls == 6
    model = copy.deepcopy(view.model).requires_grad_(True)
    for index in range(3):
        loss = torch.nn.functional.cross_entropy(model(images[index]), labels[index])
        wanted = torch.autograd.grad(loss, list(model.parameters()))
        for (name, value), expected in zip(found.items(), wanted, strict=True):
            assert torch.allclose(value[index], expected, atol=1e-6), name
    soft = torch.nn.functional.one_hot(labels, view.spec.num_classes).float()
    for name, value in server.parameter_gradients(images, soft).items():
        assert torch.allclose(value, found[name], atol=1e-6)
    sum(value.square().sum() for value in found.values()).backward()
    assert images.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in view.model.parameters())


@pytest.mark.parametrize(
    ("name", "needed"),
    [("mi_face", "WhiteBox"), ("updates_leak", "Update"), ("deep_leakage", "Gradients")],
)
def test_a_view_that_is_too_weak_is_refused_before_any_work(name, needed):
    from drlib import attacks, testing

    white_box = testing.example_white_box("lenet")
    attack = attacks.create(name)
    access = BlackBox(white_box.query, white_box.spec)
    with pytest.raises(UserError, match=f"needs {needed} access, got BlackBox"):
        attack.run(access, n=5, auxiliary=testing.example_auxiliary(True))
