"""Where training stands still: the parameters as a combination of their own gradients (Lyu and Li 2020)."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from scipy.optimize import nnls
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from drlib import losses
from drlib.types import WhiteBox

MARGINS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "hard": losses.max_margin,
    "soft": losses.soft_margin,
}
"""Of a wanted logit over the others, with the sign of a loss: a positive margin is -1 times these."""


class SmoothReLU(nn.Module):
    """ReLU whose derivative is sigmoid(alpha z), so that parameter gradients can be differentiated in x."""

    def __init__(self, alpha: float) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, z: Tensor) -> Tensor:
        smooth = F.softplus(z, beta=self.alpha)
        return smooth + (z.relu() - smooth).detach()


class Stationarity:
    """The condition theta = 1/m sum_i lambda_i grad_theta margin(x_i, y_i) for m candidates.

    Works on a copy of the target whose every ``nn.ReLU`` is a ``SmoothReLU``; counts gradient calls.
    """

    def __init__(self, access: WhiteBox, alpha: float, margin: str) -> None:
        self.access = access
        self.margin = MARGINS[margin]
        self.net = copy.deepcopy(access.model)
        for module in list(self.net.modules()):
            for name, child in module.named_children():
                if isinstance(child, nn.ReLU):
                    setattr(module, name, SmoothReLU(alpha))
        self.theta = {name: value.detach() for name, value in self.net.named_parameters()}
        self.squared_norm = sum(value.square().sum() for value in self.theta.values())

    def margins(self, theta: dict[str, Tensor], images: Tensor, labels: Tensor) -> Tensor:
        return -self.margin(functional_call(self.net, theta, (images,)), labels)

    def loss(self, images: Tensor, labels: Tensor, multipliers: Tensor) -> Tensor:
        """|| theta - 1/m sum_i lambda_i grad margin_i ||^2, differentiable in images and multipliers."""
        self.access.gradient_calls += len(images)
        theta = {name: value.clone().requires_grad_(True) for name, value in self.theta.items()}
        combined = (multipliers * self.margins(theta, images, labels)).mean()
        gradients = torch.autograd.grad(combined, theta.values(), create_graph=True)
        return sum(
            (value - part).square().sum() for value, part in zip(theta.values(), gradients, strict=True)
        )

    def best_multipliers(self, images: Tensor, labels: Tensor) -> Tensor:
        """The multipliers >= 0 with the smallest loss (m,), exactly; holds all m gradients in memory."""
        self.access.gradient_calls += len(images)

        def flat(parts: dict[str, Tensor]) -> Tensor:
            return torch.cat([part.flatten() for part in parts.values()]).double()

        def column(image: Tensor, label: Tensor) -> Tensor:
            return flat(grad(lambda theta: self.margins(theta, image[None], label[None])[0])(self.theta))

        columns = vmap(column, chunk_size=64)(images.detach(), labels).T / len(images)
        q, r = torch.linalg.qr(columns)  # the same problem in m dimensions instead of one per parameter
        solution, _ = nnls(r.cpu().numpy(), (q.T @ flat(self.theta)).cpu().numpy())
        return torch.from_numpy(solution).to(images)
