"""What a gradient gives away without any matching: the labels, and the input of a linear first layer.

The gradient is that of the mean cross entropy on a batch of B samples. p_i are the model's probabilities for
sample i, n_c is the number of samples of class c; dW and db are the gradients of a layer's weight and bias.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from drlib import models
from drlib.errors import UserError
from drlib.types import Gradients

Tensors = Mapping[str, Tensor]
"""Gradients (P, *shape) by the parameter's name."""

NOISE_IMAGES = 512
"""Images on which the mean prediction is estimated."""

TOLERANCE = 1e-3
"""Within this, pixels are equal, and a predicted gradient is the observed one (relative)."""


def infer_labels(access: Gradients, gradients: Tensors, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Labels (P, B) of the batches, ascending, and which batches were only assumed to be balanced (P,).

    The gradient of the last layer's bias is db_c = mean_i p_ic - n_c / B, so n_c = B (mean_i p_ic - db_c),
    rounded to counts that add up to B. One sample: only the label's entry is negative, which is exact.
    More: the mean of p is taken from noise images, which is right for a model that has learned nothing, as
    its output hardly depends on the image. After training db is near 0, for predictions are the labels; the
    mean is then taken as balanced, so the labels come out balanced: right where the batch is, as the SoK's
    update is by protocol, else wrong.
    """
    noise = torch.rand((NOISE_IMAGES, *access.spec.shape), generator=generator)
    noise = noise.to(access.device, next(access.model.parameters()).dtype)
    with torch.no_grad():
        on_noise = access.logits(noise).softmax(dim=1).mean(dim=0)
        bias = _bias_gradient(access, gradients, noise)
    if access.batch_size == 1:
        return bias.argmin(dim=1, keepdim=True), torch.zeros(len(bias), dtype=torch.bool)
    balanced = torch.full_like(on_noise, 1 / len(on_noise))
    learned = 2 * bias.norm(dim=1) < (on_noise - balanced - bias).norm(dim=1)
    counts = round_to_sum(torch.where(learned[:, None], balanced, on_noise) - bias, access.batch_size)
    classes = torch.arange(counts.shape[1], device=counts.device)
    return torch.stack([classes.repeat_interleave(row) for row in counts]), learned


def _bias_gradient(access: Gradients, gradients: Tensors, noise: Tensor) -> Tensor:
    """The gradient (P, K) of the last layer's bias; where there is none, of a feature of the mean size."""
    linear = [(name, layer) for name, layer in access.model.named_modules() if isinstance(layer, nn.Linear)]
    if not linear:
        raise UserError(f"{access.spec.architecture} has no linear layer to infer labels from: use joint")
    name, last = linear[-1]
    prefix = f"{name}." if name else ""
    if last.bias is not None:
        return gradients[f"{prefix}bias"]
    # dW_c = mean_i (p_ic - [c is the label of i]) h_i, with features h_i >= 0 after a ReLU.
    return gradients[f"{prefix}weight"].sum(dim=2) / models.features(access.model, noise).sum(dim=1).mean()


def round_to_sum(shares: Tensor, total: int) -> Tensor:
    """Counts (P, K) that add up to ``total``, nearly proportional to the shares: by largest remainder."""
    shares = shares.clamp(min=0)
    wanted = shares * total / shares.sum(dim=1, keepdim=True)
    counts = wanted.floor()
    missing = (total - counts.sum(dim=1, keepdim=True)).round()
    rank = (wanted - counts).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    return (counts + (rank < missing)).to(torch.int64)


def layer_input(weight: Tensor, bias: Tensor) -> Tensor:
    """The input (..., d) of a linear layer for one sample, from dW (..., units, d) and db (..., units).

    As dW = db x^T, each row with db_j != 0 gives x; x = dW^T db / ||db||^2 is their least squares estimate.
    """
    return (weight * bias[..., None]).sum(dim=-2) / bias.square().sum(dim=-1, keepdim=True)


def first_layer_inputs(access: Gradients, gradients: Tensors) -> tuple[list[Tensor], Tensor]:
    """For each gradient, the images (found, c, h, w) that a linear first layer with bias gives away exactly.

    One sample: it. More: a ReLU unit j that a single sample activates has dW_j / db_j = x. Such a ratio is
    taken if two units agree on it and if the gradient of x with some label is what these units show. That
    gradient is then subtracted, so that a unit which x shared with one other sample becomes that sample's.

    Also returns the mean share (1,) of ||dW||^2 that the images do not explain. No such layer: no images.
    """
    layer = first_layer(access)
    if layer is None:
        count = len(next(iter(gradients.values())))
        return [torch.zeros((0, *access.spec.shape), device=access.device)] * count, torch.ones(1)
    weights, biases = (gradients[name] * access.batch_size for name in layer)
    peel = _peel_one if access.batch_size == 1 else _peel_many
    found, rests = zip(
        *(peel(access, layer, *pair) for pair in zip(weights, biases, strict=True)), strict=True
    )
    shares = torch.stack(rests).square().sum(dim=(1, 2)) / weights.square().sum(dim=(1, 2))
    return [images.unflatten(1, access.spec.shape) for images in found], shares.mean()[None]


def first_layer(access: Gradients) -> tuple[str, str] | None:
    """Names of weight and bias of the first linear layer if its input is the image itself, else None.

    Measured: the closed form must give back a probe image. Costs at most one gradient call.
    """
    probe = torch.rand((1, 1, *access.spec.shape), generator=torch.Generator().manual_seed(0))
    probe = probe.to(access.device, next(access.model.parameters()).dtype)
    linear = [(name, layer) for name, layer in access.model.named_modules() if isinstance(layer, nn.Linear)]
    if not linear or linear[0][1].bias is None or linear[0][1].in_features != probe.numel():
        return None
    names = tuple(f"{linear[0][0]}.{kind}".removeprefix(".") for kind in ("weight", "bias"))
    own = access.parameter_gradients(probe, torch.zeros((1, 1), dtype=torch.int64, device=access.device))
    error = (layer_input(*(own[name] for name in names)) - probe.flatten(1)).abs().max()
    return names if bool(error < TOLERANCE) else None


def _peel_one(_: Gradients, __: tuple[str, str], weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The image (at most 1, d) of a batch of one, and what it leaves of dW (units, d)."""
    image = layer_input(weight, bias)[None]
    image = image[_plausible(image)].clamp(0, 1)
    return image, weight - bias[:, None] * image.sum(dim=0)


def _peel_many(
    access: Gradients, layer: tuple[str, str], weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """The images (found, d) of a larger batch, and what they leave of dW (units, d)."""
    labels = torch.arange(access.spec.num_classes, device=access.device)[:, None]
    images = weight.new_zeros((0, weight.shape[1]))
    smallest = TOLERANCE * bias.abs().max()
    rejected = torch.zeros_like(bias, dtype=torch.bool)
    while len(images) < access.batch_size:
        ratios = weight / bias[:, None]
        units = ((bias.abs() > smallest) & ~rejected & _plausible(ratios)).nonzero()[:, 0]
        agree = torch.cdist(ratios[units], ratios[units], p=torch.inf) < TOLERANCE
        if len(units) == 0 or agree.sum(dim=1).max() < 2:
            break
        units = units[agree[agree.sum(dim=1).argmax()]]
        image = layer_input(weight[units], bias[units]).clamp(0, 1)
        guesses = image.view(1, 1, *access.spec.shape).expand(len(labels), -1, -1, -1, -1)
        with torch.no_grad():
            own = access.parameter_gradients(guesses, labels)
        own_weight, own_bias = (own[name] for name in layer)
        errors = (own_bias[:, units] / bias[units] - 1).abs().amax(dim=1)
        if errors.min() > TOLERANCE:
            rejected[units] = True
            continue
        label = errors.argmin()
        images = torch.cat([images, image[None]])
        weight, bias = weight - own_weight[label], bias - own_bias[label]
    return images, weight


def put_in_place(exact: Tensor, guesses: Tensor) -> Tensor:
    """The guesses (B, c, h, w), each exact image (found, c, h, w) in place of the nearest one left."""
    result, left = guesses.clone(), torch.ones(len(guesses), dtype=torch.bool, device=guesses.device)
    for image in exact:
        distance = (guesses - image).square().flatten(1).sum(dim=1)
        nearest = torch.where(left, distance, torch.inf).argmin()
        result[nearest], left[nearest] = image, False
    return result


def _plausible(images: Tensor) -> Tensor:
    """Which rows (rows, d) are pixels in [0, 1]; not those with NaN."""
    return ((images >= -TOLERANCE) & (images <= 1 + TOLERANCE)).all(dim=1)
