"""Facts about a module that decide which attacks can run on it, measured instead of declared.

Each probe works on a copy in float64 with parameters drawn anew, so that it tells the architecture and not
how it happens to be trained.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn

_TOLERANCE = 1e-9


def has_batchnorm(module: nn.Module) -> bool:
    """True if any BatchNorm layer keeps running statistics (DeepInversion reads them)."""
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    return any(isinstance(layer, kinds) and layer.running_mean is not None for layer in module.modules())


def is_piecewise_linear(module: nn.Module, shape: Sequence[int]) -> bool:
    """True if the logits have no curvature in the image, as in a ReLU net; ``shape`` is (c, h, w).

    Matching gradients by L-BFGS needs curvature: in a ReLU net the second derivative is zero almost
    everywhere.
    """
    generator = torch.Generator().manual_seed(0)
    model = _redrawn(module, generator)
    image = torch.rand((1, *shape), generator=generator, dtype=torch.float64).requires_grad_(True)
    logits = model(image)
    weights = torch.randn(logits.shape, generator=generator, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((logits * weights).sum(), image, create_graph=True)
    if not gradient.requires_grad:
        return True
    direction = torch.randn(gradient.shape, generator=generator, dtype=torch.float64)
    (curved,) = torch.autograd.grad((gradient * direction).sum(), image, allow_unused=True)
    return curved is None or bool(curved.abs().max() <= _TOLERANCE * gradient.detach().abs().max())


def is_homogeneous(module: nn.Module, shape: Sequence[int]) -> bool:
    """True if scaling all parameters by a > 0 scales all logits by a^L for one L; ``shape`` is (c, h, w).

    The implicit bias behind Bias-Rec holds for such nets: linear layers and ReLU, a bias in the first
    layer at most, no BatchNorm, no residual connection that skips a layer with parameters.
    """
    generator = torch.Generator().manual_seed(0)
    model = _redrawn(module, generator)
    images = torch.rand((4, *shape), generator=generator, dtype=torch.float64)
    with torch.no_grad():
        before = model(images)
        for parameter in model.parameters():
            parameter *= 2
        after = model(images)
    degree = torch.log2(after.norm() / before.norm()).round()
    expected = before * 2**degree
    return bool((after - expected).abs().max() <= 1e-6 * expected.abs().max())


def _redrawn(module: nn.Module, generator: torch.Generator) -> nn.Module:
    """A frozen float64 copy on the CPU in eval mode, every parameter drawn from N(0, 0.3^2)."""
    model = copy.deepcopy(module).to("cpu", torch.float64).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model
