"""``drlib doctor``: what this machine has, what is missing, and what to do about it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")


@dataclass(frozen=True)
class Finding:
    """One line: ``fail`` stops a build, ``warn`` leaves something out, ``advice`` says what to do."""

    level: Literal["ok", "warn", "fail"]
    what: str
    says: str
    advice: str = ""


def findings() -> Iterator[Finding]:
    """All checks, in order; one that raises is itself a finding."""
    for check in CHECKS:
        try:
            yield check()
        except Exception as error:
            yield Finding(
                "fail", check.__name__, f"{type(error).__name__}: {error}", "report this, it is a defect"
            )


def python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    return Finding("ok", "Python", f"{version} in {sys.prefix}")


def packages() -> Finding:
    """Installed versions against what the package asks for."""
    from packaging.requirements import Requirement

    try:
        required = [Requirement(text) for text in metadata.requires("drlib") or ()]
    except metadata.PackageNotFoundError:
        return Finding("warn", "packages", "drlib is not installed, only importable", "pip install -e .")
    wrong = []
    needed = [item for item in required if item.marker is None or item.marker.evaluate({"extra": ""})]
    for item in needed:
        try:
            installed = metadata.version(item.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{item.name} is missing")
            continue
        if not item.specifier.contains(installed, prereleases=True):
            wrong.append(f"{item.name} {installed} (needs {item.specifier})")
    if wrong:
        return Finding("fail", "packages", "; ".join(wrong), "make env, or pip install -e .")
    return Finding("ok", "packages", f"{len(needed)} required, all there; drlib {metadata.version('drlib')}")


def torch_pair() -> Finding:
    """torch and torchvision are built for each other: a compiled operator answers."""
    versions = f"torch {metadata.version('torch')}, torchvision {metadata.version('torchvision')}"
    try:
        import torch
        import torchvision

        kept = torchvision.ops.nms(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.ones(1), 0.5)
    except (RuntimeError, ImportError) as error:
        reason = str(error).strip().splitlines()[0]
        return Finding(
            "fail",
            "torch",
            f"{versions}: {reason}",
            "install a matching pair, such as the one in requirements.lock",
        )
    return (
        Finding("ok", "torch", versions)
        if kept.tolist() == [0]
        else Finding("fail", "torch", f"{versions}: nms is wrong")
    )


def device() -> Finding:
    import torch

    from drlib.provenance import default_device

    chosen = default_device()
    name = torch.cuda.get_device_name(chosen) if chosen.type == "cuda" else "CPU"
    return Finding(
        "ok", "device", f"{name}, {os.cpu_count()} cores, {torch.get_num_threads()} threads in this process"
    )


def store() -> Finding:
    from drlib.store import Store

    there = Store()
    try:
        there.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return Finding(
            "fail",
            "store",
            f"{there.root}: {error.strerror}",
            "name a folder you can write to in DRLIB_STORE",
        )
    if not os.access(there.root, os.W_OK):
        return Finding(
            "fail", "store", f"{there.root} is read-only", "name a folder you can write to in DRLIB_STORE"
        )
    artifacts = list(there.ls())
    size = sum(artifact["bytes"] for artifact in artifacts)
    free = shutil.disk_usage(there.root).free
    says = f"{there.root}: {len(artifacts)} artifacts, {human(size)}, {human(free)} free"
    aside = len(list((there.root / "damaged").glob("*"))) if (there.root / "damaged").is_dir() else 0
    if aside:
        return Finding(
            "warn", "store", f"{says}; {aside} damaged set aside", f"delete {there.root / 'damaged'}"
        )
    if free < 1e9:
        return Finding("warn", "store", says, "free some space")
    return Finding("ok", "store", says)


def wall() -> Finding:
    """What keeps a running attack away from the stored images and models."""
    from drlib import landlock

    version = landlock.version()
    if version:
        return Finding("ok", "wall", f"attacks run behind Landlock (version {version}) and an audit hook")
    return Finding(
        "warn",
        "wall",
        "this system has no Landlock: attacks run behind an audit hook, which compiled code can pass",
        "nothing, unless you run attacks that you do not trust",
    )


def features() -> Finding:
    from drlib.metrics.features import available

    reason = available("efficientnet_lite0")
    return (
        Finding("fail", "features", reason)
        if reason
        else Finding("ok", "features", "efficientnet_lite0 weights are there")
    )


def inception() -> Finding:
    from drlib.metrics.features import available

    reason = available("inception")
    if reason:
        return Finding(
            "warn", "FID", "no Inception weights: tables say FD-efficientnet_lite0, never FID", reason
        )
    return Finding("ok", "FID", "Inception weights are there")


def kernel() -> Finding:
    """The notebook kernel of this very interpreter."""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    folder = Path(sys.prefix) / "share" / "jupyter" / "kernels"
    try:
        spec = KernelSpecManager(kernel_dirs=[str(folder)]).get_kernel_spec("python3")
    except NoSuchKernel:
        return Finding(
            "fail", "kernel", f"no kernel 'python3' in {folder}", "pip install ipykernel in this environment"
        )
    return Finding("ok", "kernel", f"python3 in {spec.resource_dir}")


def book() -> Finding:
    version = metadata.version("jupyter-book")
    if int(version.split(".")[0]) >= 2:
        return Finding(
            "fail", "jupyter-book", f"{version} is another product", "pip install 'jupyter-book<2'"
        )
    return Finding("ok", "jupyter-book", version)


def notebooks() -> Finding:
    from drlib.book.layout import CHECKOUT
    from drlib.book.notebooks import sync

    if not (CHECKOUT / "notebooks").is_dir():
        return Finding(
            "warn", "notebooks", "this is no checkout: sections cannot be run", "clone the repository"
        )
    stale = sync(check=True)
    if stale:
        return Finding("warn", "notebooks", f"twins out of date: {', '.join(stale)}", "drlib notebooks sync")
    return Finding(
        "ok", "notebooks", f"{len(list((CHECKOUT / 'notebooks').glob('*.py')))} with up-to-date twins"
    )


def chromium() -> Finding:
    found = next((path for path in map(shutil.which, CHROMIUM) if path), None)
    if found is None:
        return Finding(
            "warn",
            "Chromium",
            "not found: the browser test is skipped",
            "install it, such as apt-get install chromium",
        )
    return Finding("ok", "Chromium", found)


CHECKS: tuple[Callable[[], Finding], ...] = (
    python,
    packages,
    torch_pair,
    device,
    store,
    wall,
    features,
    inception,
    kernel,
    book,
    notebooks,
    chromium,
)


def human(size: float) -> str:
    """Bytes as text with a decimal unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
