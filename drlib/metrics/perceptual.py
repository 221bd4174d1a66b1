"""LPIPS (Zhang et al. 2018) where its weights are there: offered beside the paper's measures, never as one.

The package ``lpips`` brings the calibration weights; the AlexNet below them is a file of torchvision's, which
is read from the disk, checked by its SHA-256's published prefix, and never downloaded here.
"""

from __future__ import annotations

import hashlib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from drlib.errors import UserError

_BACKBONE = "alexnet-owt-7be5be79.pth"


def available() -> str | None:
    """None if LPIPS can be computed, else one line saying what to do."""
    if find_spec("lpips") is None:
        return "LPIPS needs a package: pip install lpips"
    if not _path().is_file():
        return (
            f"LPIPS needs the file {_BACKBONE} (torchvision's AlexNet): put it into {_path().parent}; it is "
            "never downloaded silently"
        )
    return None


def lpips(a: Tensor, b: Tensor, *, batch_size: int = 64) -> Tensor:
    """LPIPS distance of ``a[i]`` and ``b[i]``, (n,) float32, 0 for copies; (n, 1 or 3, h, w) in [0, 1].

    Images below 64 pixels are enlarged to 64 (bilinear): AlexNet's first layers halve the side four times.

    Raises:
        UserError: the package or the weights are missing or damaged, or shapes differ.
    """
    reason = available()
    if reason:
        raise UserError(reason)
    if a.shape != b.shape or a.dim() != 4 or a.shape[1] not in (1, 3):
        raise UserError(
            f"LPIPS compares pairs of images (n, 1 or 3, h, w): got {tuple(a.shape)} and {tuple(b.shape)}"
        )
    digest = hashlib.sha256(_path().read_bytes()).hexdigest()
    if not digest.startswith("7be5be79"):
        raise UserError(f"{_path()} is not the published file: its SHA-256 begins {digest[:8]}, not 7be5be79")
    network = import_module("lpips").LPIPS(net="alex", verbose=False).eval()  # not among the dependencies
    with torch.inference_mode():
        parts = [
            network(_prepared(x), _prepared(y), normalize=True).flatten()
            for x, y in zip(a.split(batch_size), b.split(batch_size), strict=True)
        ]
    return torch.cat(parts).clone()


def _prepared(images: Tensor) -> Tensor:
    images = images.float().expand(-1, 3, -1, -1)
    if min(images.shape[2:]) < 64:
        images = torch.nn.functional.interpolate(images, size=(64, 64), mode="bilinear", antialias=True)
    return images


def _path() -> Path:
    return Path(torch.hub.get_dir()) / "checkpoints" / _BACKBONE
