"""Architectures over sides, channels and widths; initialization per seed; refusals."""

import pytest
import torch
from torch import nn

from drlib.errors import UserError
from drlib.models import ARCHITECTURES, DEFAULT_WIDTH, build, features, has_batchnorm

SMALL = {
    "convnet": 0.5,
    "lenet": 0.5,
    "mlp": 0.25,
    "homogeneous_mlp": 0.05,
    "vgg16": 0.0625,
    "resnet18": 0.0625,
    "mobilenet_v2": 0.25,
}
WITH_BATCHNORM = ("convnet", "vgg16", "resnet18", "mobilenet_v2")


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("side", [8, 16, 25, 28, 32, 64])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_takes_every_size(name, side, channels):
    model = build(name, shape=(channels, side, side), num_classes=7, width=SMALL[name], generator_seed=0)
    images = torch.rand(
        2, channels, side, side, generator=torch.Generator().manual_seed(0), requires_grad=True
    )
    logits = model.train()(images)  # BatchNorm on a 1x1 map needs two images, not more
    assert logits.shape == (2, 7)
    logits.sum().backward()
    assert torch.isfinite(images.grad).all()
    assert (images.grad != 0).any()
    assert has_batchnorm(model) == (name in WITH_BATCHNORM)


@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [
        ("vgg16", (3, 32, 32), 14_728_266 - 4_224),  # usual figure; no convolution bias before BatchNorm
        ("resnet18", (3, 32, 32), 11_173_962),
        ("mobilenet_v2", (3, 64, 64), 2_236_682),
        ("lenet", (3, 32, 32), 15_826),
    ],
)
def test_the_original_width_is_the_original_network(name, shape, parameters):
    with torch.device("meta"):
        model = build(name, shape=shape, num_classes=10)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_width_scales_the_model(name):
    sizes = []
    for width in (0.25, 0.5, DEFAULT_WIDTH[name]):
        with torch.device("meta"):
            model = build(name, shape=(1, 16, 16), num_classes=5, width=width)
        sizes.append(sum(parameter.numel() for parameter in model.parameters()))
    assert sizes == sorted(set(sizes))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_initialization_depends_on_the_seed_alone(name):
    def weights(seed):
        return build(
            name, shape=(1, 8, 8), num_classes=3, width=SMALL[name], generator_seed=seed
        ).state_dict()

    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = weights(5)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again, other = weights(5), weights(6)
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_features_are_what_the_head_reads(name):
    model = build(name, shape=(1, 16, 16), num_classes=5, width=SMALL[name], generator_seed=0).eval()
    images = torch.rand(3, 1, 16, 16, requires_grad=True)
    found = features(model, images)
    assert found.shape == (3, model.head.in_features)
    torch.testing.assert_close(model.head(found), model(images))
    assert not any(module._forward_pre_hooks for module in model.modules())
    found.sum().backward()
    assert images.grad is not None


def test_features_of_a_users_model():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.ReLU(), nn.Linear(9, 2))
    assert features(model, torch.rand(4, 1, 8, 8)).shape == (4, 9)
    with pytest.raises(UserError, match="no linear layer"):
        features(nn.Flatten(), torch.rand(4, 1, 8, 8))


def test_batchnorm_without_statistics_does_not_count():
    assert not has_batchnorm(nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False)))


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("vgg", {}, "did you mean 'vgg16'"),
        ("convnet", {"shape": (1, 7, 7)}, "side 8 to 64"),
        ("convnet", {"shape": (1, 65, 65)}, "side 8 to 64"),
        ("convnet", {"shape": (2, 16, 16)}, "c = 1 or 3"),
        ("convnet", {"shape": (1, 16, 8)}, "side"),
        ("convnet", {"shape": (16, 16)}, "shape must be"),
        ("convnet", {"num_classes": 1}, "num_classes"),
        ("convnet", {"width": 0}, "width"),
        ("convnet", {"width": 16}, "width"),  # channels given where a multiplier is meant
    ],
)
def test_bad_requests_are_refused_in_one_line(name, values, message):
    with pytest.raises(UserError, match=message) as error:
        build(name, **{"shape": (1, 16, 16), "num_classes": 5, **values})
    assert "\n" not in str(error.value)
