"""Training many small models of one architecture at once, on data sets of one size.

``train_many`` and ``update_many`` do for many models what ``training.train`` does for one: model m draws the
order of its images from ``seeds[m]`` alone, and its parameters agree with those of
``train(model, ..., seed=seeds[m])`` up to rounding (dropout apart).

The models stand side by side as the groups of channels of one wide network: a convolution becomes a grouped
one, a linear layer a batched matrix product, and BatchNorm is wider. The loss is the sum of all the models'
losses, so that no model feels another; SGD and Adam work on each parameter alone. Small networks spend much
of a step on calling operators, and here one call serves a group of models. (``torch.func.vmap`` does the same
for any architecture, but its BatchNorm is slow on a CPU.) What cannot be widened is run one by one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from drlib import training
from drlib.errors import UserError
from drlib.training import TrainSpec
from drlib.types import Progress

AT_ONCE = 8
"""Models side by side: enough to share the cost of a call, few enough for the processor's cache."""

_SAME = (
    nn.Identity,
    nn.Sequential,  # an empty one
    nn.Flatten,
    nn.Dropout,
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.Sigmoid,
    nn.Tanh,
    nn.GELU,
    nn.Softplus,
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
)
"""Layers that treat each channel alone, so that they stay as they are in a wide network."""


class SideBySide(nn.Module):
    """M models of one architecture as one module: images (M, b, c, h, w) to logits (M, b, K).

    It holds copies of the models. ``one_by_one``: run them in turn, as where they cannot be widened.
    """

    def __init__(self, models: Sequence[nn.Module], *, one_by_one: bool = False) -> None:
        super().__init__()
        self.count = len(models)
        wide = None if one_by_one else _widened(models)
        self.one_by_one = wide is None
        self.body = nn.ModuleList(map(copy.deepcopy, models)) if wide is None else wide
        convolutional = any(isinstance(layer, nn.Conv2d) for layer in self.body.modules())
        self.layout = torch.channels_last if convolutional else torch.contiguous_format
        self.requires_grad_(True).to(memory_format=self.layout)

    def __len__(self) -> int:
        return self.count

    def forward(self, images: Tensor) -> Tensor:
        if self.one_by_one:
            return torch.stack([model(own) for model, own in zip(self.body, images, strict=True)])
        channels = images.transpose(0, 1).flatten(1, 2)  # model m reads the m-th group of channels
        logits = self.body(channels.contiguous(memory_format=self.layout))
        return logits.unflatten(1, (self.count, -1)).transpose(0, 1)

    def probabilities(self, images: Tensor, batch_size: int = 512) -> Tensor:
        """Class probabilities (M, n, K) that each model gives to the same images (n, c, h, w)."""
        with training.evaluating(self), torch.no_grad():
            parts = [
                self(part.expand(self.count, *part.shape)).softmax(dim=2) for part in images.split(batch_size)
            ]
        return torch.cat(parts, dim=1)

    def states(self) -> list[dict[str, Tensor]]:
        """The state dict of each model."""
        if self.one_by_one:
            return [model.state_dict() for model in self.body]
        states: list[dict[str, Tensor]] = [{} for _ in range(self.count)]
        for name, value in self.body.state_dict().items():
            shared = value.dim() == 0  # BatchNorm's count of batches
            parts = [value] * self.count if shared else value.unflatten(0, (self.count, -1))
            for state, part in zip(states, parts, strict=True):
                state[name] = part
        return states


def widens(model: nn.Module, images: Tensor) -> bool:
    """Whether two copies side by side give the logits that ``model`` gives; images: a few (n, c, h, w).

    A network that joins channels, for instance, has known layers only and would still mix its neighbors.
    """
    group = SideBySide([model, model])
    if group.one_by_one:
        return False
    like = next(model.parameters())
    both = torch.stack([images, 1 - images]).to(like.device, like.dtype)
    with training.evaluating(model), torch.no_grad():
        try:
            found = group.eval()(both)
        except RuntimeError:
            return False
        alone = torch.stack([model(own) for own in both])
    return found.shape == alone.shape and bool(torch.allclose(found, alone, rtol=1e-3, atol=1e-4))


def train_many(
    models: Sequence[nn.Module],
    images: Tensor,
    labels: Tensor,
    rows: Tensor,
    spec: TrainSpec,
    *,
    seeds: Sequence[int],
    device: str | torch.device = "cpu",
    at_once: int = AT_ONCE,
    progress: Progress | None = None,
) -> Tensor:
    """Train models of one architecture in place; model m sees ``images[rows[m]]`` and ``labels[rows[m]]``.

    images: (N, c, h, w) in [0, 1], labels: (N,), both shared. rows: (M, n) int64. Returns the mean loss of
    each epoch (M, epochs). The models are left in eval mode, as by ``training.train``.
    """
    histories = []
    for part, group, history in _groups(
        models, images, labels, rows, spec, seeds=seeds, device=device, at_once=at_once
    ):
        for model, state in zip(models[part], group.states(), strict=True):
            model.to(device=device, memory_format=torch.channels_last)
            model.load_state_dict(state)
            model.eval()
        histories.append(history)
        if progress is not None:
            progress(part.stop, len(models))
    return torch.cat(histories)


def update_many(
    models: Sequence[nn.Module],
    origins: Tensor,
    images: Tensor,
    labels: Tensor,
    rows: Tensor,
    spec: TrainSpec,
    *,
    seeds: Sequence[int],
    device: str | torch.device = "cpu",
    at_once: int = AT_ONCE,
) -> Iterator[SideBySide]:
    """Copies of ``models[origins[u]]``, each trained on with the s images of ``rows[u]``; rows: (U, s).

    Yields the updated copies in order, ``at_once`` of them side by side, so that thousands of updates need
    the memory of a few. The models stay as they are.
    """
    copies = [models[origin] for origin in origins.tolist()]
    for _, group, _ in _groups(
        copies, images, labels, rows, spec, seeds=seeds, device=device, at_once=at_once
    ):
        yield group


def _groups(
    models: Sequence[nn.Module],
    images: Tensor,
    labels: Tensor,
    rows: Tensor,
    spec: TrainSpec,
    *,
    seeds: Sequence[int],
    device: str | torch.device,
    at_once: int,
) -> Iterator[tuple[slice, SideBySide, Tensor]]:
    """Train copies of the models in groups: (which models, the trained copies, their loss histories)."""
    if not len(models) or rows.shape[:-1] != (len(models),) or len(seeds) != len(models):
        raise UserError(
            f"many models need one row of images and one seed each: got {len(models)} models, "
            f"rows {tuple(rows.shape)} and {len(seeds)} seeds"
        )
    training.check_training_set(models[0], images, labels)
    if rows.shape[1] < 2:
        raise UserError(f"training needs at least 2 images, got {rows.shape[1]}")
    one_by_one = not widens(models[0], images[:2])
    images = images.to(device)
    labels = labels.to(device)
    for start in range(0, len(models), at_once):
        part = slice(start, min(start + at_once, len(models)))
        group = SideBySide(models[part], one_by_one=one_by_one).to(device)
        yield part, group, _fit(group, images, labels, rows[part], spec, seeds[part])


def _fit(
    group: SideBySide, images: Tensor, labels: Tensor, rows: Tensor, spec: TrainSpec, seeds: Sequence[int]
) -> Tensor:
    """Train one group of models side by side; their loss histories (M, epochs)."""
    n = rows.shape[1]
    batches = training.batches_per_epoch(n, spec.batch_size)
    epochs = spec.epochs_on(rows.shape[1])
    optimizer = training.make_optimizer(group, spec)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    history = []
    with training.seeded(seeds[0], images.device):
        group.train()
        for epoch in range(epochs):
            orders = torch.stack([torch.randperm(n, generator=generator) for generator in generators])
            shuffled = rows.gather(1, orders).to(images.device)
            losses = []
            for batch, chosen in enumerate(shuffled.tensor_split(batches, dim=1)):
                if spec.schedule == "cosine":
                    share = (epoch * batches + batch) / (epochs * batches)
                    training.set_cosine_rate(optimizer, spec.learning_rate, share)
                inputs = images[chosen]
                if spec.augment_shift:
                    moved = zip(inputs, generators, strict=True)
                    inputs = torch.stack([training.shifted(x, spec.augment_shift, g) for x, g in moved])
                logits = group(inputs).transpose(1, 2)
                loss = cross_entropy(
                    logits, labels[chosen], reduction="none", label_smoothing=spec.label_smoothing
                ).mean(dim=1)
                optimizer.zero_grad(set_to_none=True)
                loss.sum().backward()  # a parameter of model m enters the m-th loss alone
                optimizer.step()
                losses.append(loss.detach())
            history.append(torch.stack(losses).mean(dim=0).cpu())
            if not history[-1].isfinite().all():
                raise UserError(
                    f"training diverged in epoch {epoch + 1} of {epochs}: "
                    f"lower learning_rate ({spec.learning_rate:g})"
                )
        optimizer.zero_grad(set_to_none=True)
    group.eval()
    return torch.stack(history, dim=1)


class _LinearOfMany(nn.Module):
    """M linear layers: (b, M * inputs) to (b, M * outputs)."""

    def __init__(self, like: nn.Linear, count: int) -> None:
        super().__init__()
        self.count = count
        self.weight = nn.Parameter(like.weight.new_empty(count * like.out_features, like.in_features))
        self.bias = (
            None if like.bias is None else nn.Parameter(like.weight.new_empty(count * like.out_features))
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x.unflatten(1, (self.count, -1)).transpose(0, 1)
        weight = self.weight.unflatten(0, (self.count, -1)).transpose(1, 2)
        outputs = torch.bmm(x, weight).transpose(0, 1).flatten(1)
        return outputs if self.bias is None else outputs + self.bias


def _wide_layer(layer: nn.Module, count: int) -> nn.Module | None:
    """An untrained layer that does to ``count`` groups of channels what ``layer`` does to one; or None."""
    if type(layer) in _SAME:
        return copy.deepcopy(layer)
    if type(layer) is nn.Linear:
        return _LinearOfMany(layer, count)
    if type(layer) is nn.Conv2d:
        return nn.Conv2d(
            layer.in_channels * count,
            layer.out_channels * count,
            layer.kernel_size,
            layer.stride,
            layer.padding,
            layer.dilation,
            layer.groups * count,
            layer.bias is not None,
            layer.padding_mode,
        )
    if type(layer) in (nn.BatchNorm1d, nn.BatchNorm2d):
        return type(layer)(
            layer.num_features * count, layer.eps, layer.momentum, layer.affine, layer.track_running_stats
        )
    if type(layer) is nn.GroupNorm:
        return nn.GroupNorm(layer.num_groups * count, layer.num_channels * count, layer.eps, layer.affine)
    return None


def _widened(models: Sequence[nn.Module]) -> nn.Module | None:
    """The models as one wide module with their parameters, or None if a layer cannot be widened."""
    count, states = len(models), [model.state_dict() for model in models]
    wide = copy.deepcopy(models[0])
    with torch.random.fork_rng(devices=[]):  # new layers draw parameters, which are overwritten below
        for name, layer in models[0].named_modules():
            if next(layer.children(), None) is not None:
                continue
            replacement = _wide_layer(layer, count)
            if replacement is None or not name:
                return None
            parent, _, own = name.rpartition(".")
            setattr(wide.get_submodule(parent), own, replacement)
    new = wide.state_dict()
    for name, value in new.items():
        parts = torch.stack([state[name] for state in states])
        if value.dim() and parts.numel() != value.numel():
            return None  # a parameter outside the layers above
        new[name] = parts.reshape(value.shape) if value.dim() else parts[0]
    wide.load_state_dict(new)
    return wide.to(next(models[0].parameters()))
