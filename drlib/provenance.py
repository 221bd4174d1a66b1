"""What a number was made with: device, threads, versions, time and memory. Never part of a key."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch


def default_device() -> torch.device:
    """``$DRLIB_DEVICE`` if set, else CUDA if there is one, else the CPU."""
    return torch.device(os.environ.get("DRLIB_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu"))


def versions() -> dict[str, str]:
    """Versions that could change a number."""
    import drlib

    return {
        "drlib": drlib.__version__,
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "torchvision", "numpy", "scikit-learn", "scikit-image")},
    }


class Measured:
    """Context manager: wall seconds and peak resident memory (MB) of this process within the block."""

    def __enter__(self) -> Measured:
        with contextlib.suppress(OSError):  # Linux: forget the peak of earlier tasks in this process
            Path("/proc/self/clear_refs").write_text("5")
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._started
        self.peak_memory_mb = _peak_memory_mb()


def _peak_memory_mb() -> float:
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (1024**2 if sys.platform == "darwin" else 1024)


def record(measured: Measured) -> dict[str, Any]:
    """The provenance of an artifact that was just made in this process."""
    device = default_device()
    return {
        "device": torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"CPU {platform.machine()}",
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "seconds": round(measured.seconds, 3),
        "peak_memory_mb": round(measured.peak_memory_mb, 1),
    }
