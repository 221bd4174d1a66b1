"""Facts about modules are measured: each case has a known answer."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from drlib.models import ARCHITECTURES, build
from drlib.probe import is_homogeneous, is_piecewise_linear
from drlib.types import TargetSpec

SHAPE = (1, 8, 8)
SMALL = {"homogeneous_mlp": 0.02, "mlp": 0.1, "vgg16": 0.0625, "resnet18": 0.0625, "mobilenet_v2": 0.25}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures(name):
    model = build(name, shape=SHAPE, num_classes=3, width=SMALL.get(name, 0.25), generator_seed=0)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    assert is_homogeneous(model, SHAPE) == (name == "homogeneous_mlp")
    assert is_piecewise_linear(model, SHAPE) == (name != "lenet")
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def dense(activation: nn.Module, bias: tuple[bool, bool]) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 9, bias=bias[0]), activation, nn.Linear(9, 3, bias=bias[1])
    )


@pytest.mark.parametrize(
    ("module", "homogeneous", "piecewise_linear"),
    [
        (dense(nn.ReLU(), (True, False)), True, True),
        (dense(nn.LeakyReLU(), (False, False)), True, True),
        (dense(nn.ReLU(), (True, True)), False, True),
        (dense(nn.Softplus(), (False, False)), False, False),
        (dense(nn.Tanh(), (False, False)), False, False),
        (dense(nn.GELU(), (False, False)), False, False),
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), True, True),
    ],
)
def test_small_modules(module, homogeneous, piecewise_linear):
    assert is_homogeneous(module, SHAPE) == homogeneous
    assert is_piecewise_linear(module, SHAPE) == piecewise_linear


def test_a_connection_that_skips_parameters_is_not_homogeneous():
    class Skip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(64, 64, bias=False), nn.Linear(64, 3, bias=False)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            flat = images.flatten(1)
            return self.second(flat + self.first(flat).relu())

    assert not is_homogeneous(Skip(), SHAPE)


def test_a_specification_measures_and_can_be_told_more():
    model = build("homogeneous_mlp", shape=SHAPE, num_classes=3, width=0.02, generator_seed=0)
    spec = TargetSpec.of(model, "homogeneous_mlp", SHAPE, 3, synthetic_batchnorm=True)
    assert spec.homogeneous and spec.piecewise_linear and not spec.has_batchnorm and spec.synthetic_batchnorm
