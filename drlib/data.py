"""Data sets and their named splits: target, holdout, update, test, auxiliary.

Rules for every data set
- Images are float32 (n, c, side, side) in [0, 1]: center crop to a square, bilinear resize; gray <-> RGB as
  asked.
- With at least 4 classes, the first half of the classes (rounded up) is the target side and the rest is
  auxiliary (the paper's reading of *same distribution* for MNIST and CIFAR-10). With fewer, both sides share
  the classes and hold disjoint images. Classes are sorted as numbers if all their names are numbers, else as
  text.
- Splits are class-balanced and ordered cyclically (class 0, 1, ..., K-1, 0, ...), so ``target[:n]`` is
  balanced and nested for every n; only ``test`` and ``auxiliary`` take what is left and may be unbalanced at
  their end.
- Within a class the order is a permutation seeded by ``split_seed``. Images of an official test set come last
  in it, so a target is made of official training images.
- Duplicates (equal images of this side and channels, compared by SHA-256 of their 8-bit pixels) are dropped
  in the order target, holdout, update, test, auxiliary; a note says how many.

Nothing here reads a pickle file: MNIST-like sets are read from IDX files, CIFAR from its binary distribution.
PyTorch, NumPy, scikit-learn and scikit-image are imported only when images are loaded.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Self, TypeVar

from pydantic import Field, field_validator, model_validator

from drlib.errors import UserError, unknown
from drlib.spec import Spec

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

T = TypeVar("T")

MNIST_LIKE = ("mnist", "fashion_mnist", "kmnist")
CIFAR = ("cifar10", "cifar100")
BUNDLED = ("digits", "lfw_subset")
"""Data sets that ship inside scikit-learn and scikit-image: no file, no network."""

NAMES = (*BUNDLED, *MNIST_LIKE, *CIFAR, "folder:PATH", "npz:PATH")
SPLIT_NAMES = ("target", "holdout", "update", "test", "auxiliary")

MIN_SIDE, MAX_SIDE = 8, 64
IMAGE_SUFFIXES = frozenset(
    {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
)

_NATIVE = {
    "digits": (16, 1),
    "lfw_subset": (25, 1),
    "cifar10": (32, 3),
    "cifar100": (32, 3),
    "folder": (32, 3),
    "npz": (32, 1),
}


class DataSpec(Spec):
    """Which images: data set, size, channels, and how they are split.

    ``mode``: only ``lfw_subset`` has ``identity`` (every face its own class). ``root``: folder of downloaded
    files (default: ``$DRLIB_DATA`` or ``~/.cache/drlib/data``); ``download``: fetch missing ones. Both are
    reset where they mean nothing, so that equal data has an equal specification. Paths are made absolute.
    """

    name: str = "digits"
    side: int = Field(16, ge=MIN_SIDE, le=MAX_SIDE)
    channels: Literal[1, 3] = 1
    mode: Literal["class", "identity"] = "class"
    root: str | None = None
    download: bool = False
    split_seed: int = Field(0, ge=0)

    @classmethod
    def of(cls, name: str, **values: Any) -> Self:
        """A specification at the data set's own size: digits 16 (native 8), faces 25, MNIST 28, CIFAR 32 in
        color."""
        side, channels = _NATIVE.get(name.partition(":")[0], (28, 1))
        return cls(**{"name": name, "side": side, "channels": channels, **values})

    @property
    def kind(self) -> str:
        """``folder``, ``npz`` or the data set's name."""
        return self.name.partition(":")[0]

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        kind, colon, path = name.partition(":")
        if kind in ("folder", "npz"):
            if not path:
                raise UserError(f"data set '{name}' needs a path, as in {kind}:PATH")
            return f"{kind}:{_absolute(path)}"
        if colon or name not in NAMES:
            raise unknown("data set", name, NAMES)
        return name

    @field_validator("root")
    @classmethod
    def _absolute_root(cls, root: str | None) -> str | None:
        return None if root is None else str(_absolute(root))

    @model_validator(mode="before")
    @classmethod
    def _drop_unused(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("name", "digits") not in (*MNIST_LIKE, *CIFAR):
            return {name: value for name, value in values.items() if name not in ("root", "download")}
        return values

    @model_validator(mode="after")
    def _mode_exists(self) -> Self:
        if self.mode == "identity" and self.name != "lfw_subset":
            raise UserError(f"mode 'identity' exists only for lfw_subset, not for {self.name}")
        return self

    def folder(self) -> Path:
        """Where the files of a downloadable data set are looked for and downloaded to."""
        return (
            Path(self.root) if self.root else _absolute(os.environ.get("DRLIB_DATA") or "~/.cache/drlib/data")
        )


@dataclass(frozen=True)
class Split:
    """images: float32 (n, c, side, side) in [0, 1]. labels: int64 (n,). indices: int64 (n,) into the source.

    Labels count in the target model's classes; those of ``auxiliary`` in ``Splits.auxiliary_classes``.
    """

    images: Tensor
    labels: Tensor
    indices: Tensor

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class Splits:
    """All splits of a data set. Loaded once per process and shared: do not write into the tensors."""

    target: Split
    holdout: Split
    update: Split
    test: Split
    auxiliary: Split
    classes: tuple[str, ...]
    auxiliary_classes: tuple[str, ...]
    native_side: int | None
    license: str
    source: str
    duplicates: int
    notes: tuple[str, ...]


def load_splits(spec: DataSpec) -> Splits:
    """The splits of ``spec``: the same for the same specification and files. ``UserError`` if they cannot be
    read."""
    return _load(spec, _stamp(spec))


def target_subset(splits: Splits, n: int) -> Split:
    """The first n target images: as balanced as n allows (class counts differ by at most 1) and nested in n.

    Raises ``UserError`` when there are not so many.
    """
    if not 1 <= n <= len(splits.target):
        raise UserError(f"target size must lie in 1 to {len(splits.target)}, got {n}")
    target = splits.target
    return Split(target.images[:n], target.labels[:n], target.indices[:n])


def overlaps(splits: Splits) -> dict[tuple[str, str], int]:
    """For every pair of splits, how many images (by content) are in both; all 0 for what ``load_splits``
    returns."""
    keys = {name: set(_content_keys(getattr(splits, name).images)) for name in SPLIT_NAMES}
    return {(a, b): len(keys[a] & keys[b]) for a, b in combinations(SPLIT_NAMES, 2)}


def fingerprint(splits: Splits) -> str:
    """SHA-256 of all images and labels in order: what a result that used a changing folder should record."""
    digest = hashlib.sha256()
    for name in SPLIT_NAMES:
        split = getattr(splits, name)
        digest.update(f"{name} {tuple(split.images.shape)}".encode())
        digest.update(split.images.numpy().tobytes())
        digest.update(split.labels.numpy().tobytes())
    return digest.hexdigest()


def describe(spec: DataSpec) -> dict[str, Any]:
    """What ``drlib data NAME`` prints, as plain values."""
    splits = load_splits(spec)
    sizes = {}
    for name in SPLIT_NAMES:
        split = getattr(splits, name)
        names = splits.auxiliary_classes if name == "auxiliary" else splits.classes
        counts = split.labels.bincount(minlength=len(names)).tolist()
        sizes[name] = {"images": len(split), "per_class": dict(zip(names, counts, strict=True))}
    return {
        "name": spec.name,
        "shape": [spec.channels, spec.side, spec.side],
        "native_side": splits.native_side,
        "classes": list(splits.classes),
        "auxiliary_classes": list(splits.auxiliary_classes),
        "splits": sizes,
        "duplicates_dropped": splits.duplicates,
        "overlaps": sum(overlaps(splits).values()),
        "fingerprint": fingerprint(splits),
        "license": splits.license,
        "source": splits.source,
        "notes": list(splits.notes),
    }


def check(spec: DataSpec) -> None:
    """Raise ``UserError`` at once (without loading images or PyTorch) if the files of ``spec`` are not
    there."""
    if spec.kind == "folder":
        _class_folders(Path(spec.name.partition(":")[2]))
    elif spec.kind == "npz":
        _existing_npz(Path(spec.name.partition(":")[2]))
    elif spec.name in MNIST_LIKE and not spec.download:
        _find_idx(spec)
    elif spec.name in CIFAR and not spec.download:
        _find_cifar(spec)


# --- sources ---


@dataclass
class _Source:
    """A data set before it is split.

    images: uint8 or float (n, h, w), (n, h, w, c) or (n, c, h, w) in 0..``white``. labels: int (n,), an index
    into ``classes``. quotas: images per class wanted in (target, holdout, update, auxiliary); the test split
    takes the rest.
    """

    images: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...]
    license: str
    source: str
    quotas: tuple[int, int, int, int] | None = None
    white: float = 255.0
    official_test: np.ndarray | None = None  # bool (n,)
    target_classes: int | None = None
    notes: list[str] = field(default_factory=list)


def _digits(spec: DataSpec) -> _Source:
    from sklearn.datasets import load_digits

    digits = load_digits()
    return _Source(
        images=digits.images,
        white=16.0,
        labels=digits.target,
        classes=tuple("0123456789"),
        quotas=(80, 50, 20, 10**6),
        license="CC BY 4.0",
        source="UCI Optical Recognition of Handwritten Digits (Alpaydin, Kaynak 1998), in scikit-learn",
        notes=[
            "the people who wrote the digits are not recorded: two splits may hold one person's handwriting"
        ],
    )


def _lfw_subset(spec: DataSpec) -> _Source:
    import numpy as np
    from skimage.data import lfw_subset

    images = lfw_subset()
    faces = len(images) // 2
    common: dict[str, Any] = {
        "images": images,
        "white": 1.0,
        "license": "none stated by scikit-image; Labeled Faces in the Wild was published for research",
        "source": "Labeled Faces in the Wild (Huang et al. 2012): 100 faces and backgrounds, in scikit-image",
    }
    if spec.mode == "class":
        return _Source(
            labels=np.repeat([0, 1], faces),
            classes=("face", "non-face"),
            quotas=(40, 20, 10, 20),
            notes=["the source does not name the people: two splits may show one person"],
            **common,
        )
    return _Source(
        labels=np.concatenate([np.arange(faces), np.full(faces, faces)]),
        classes=(*(f"face {i:03d}" for i in range(faces)), "non-face"),
        target_classes=faces,
        quotas=(1, 0, 0, 10**6),
        notes=[
            "holdout, update and test are empty: there is one image of each face",
            "the source does not name the people: two of the classes may show one person",
        ],
        **common,
    )


def _mnist_like(spec: DataSpec) -> _Source:
    import numpy as np

    paths = _found(_find_idx, _download_idx, spec)
    train, test = (
        (_read_idx(paths[f"{part}-images-idx3-ubyte"], 3), _read_idx(paths[f"{part}-labels-idx1-ubyte"], 1))
        for part in ("train", "t10k")
    )
    for part, (images, labels) in (("train", train), ("t10k", test)):
        if len(images) != len(labels):
            raise UserError(
                f"{spec.name}: {len(images)} {part} images but {len(labels)} labels in {spec.folder()}"
            )
    labels = np.concatenate([train[1], test[1]]).astype(np.int64)
    classes, title, terms = _MNIST_FACTS[spec.name]
    if labels.max(initial=0) >= len(classes):
        raise UserError(
            f"{spec.name}: label {labels.max()} in {spec.folder()}, expected 0 to {len(classes) - 1}"
        )
    return _Source(
        images=np.concatenate([train[0], test[0]]),
        labels=labels,
        classes=classes,
        quotas=(4000, 2000, 20, 4000),
        official_test=np.arange(len(labels)) >= len(train[1]),
        license=terms,
        source=title,
    )


_MNIST_FACTS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "mnist": (tuple("0123456789"), "MNIST (LeCun, Cortes, Burges 1998)", "CC BY-SA 3.0"),
    "fashion_mnist": (
        (
            "T-shirt/top",
            "Trouser",
            "Pullover",
            "Dress",
            "Coat",
            "Sandal",
            "Shirt",
            "Sneaker",
            "Bag",
            "Ankle boot",
        ),
        "Fashion-MNIST (Xiao, Rasul, Vollgraf 2017)",
        "MIT",
    ),
    "kmnist": (
        ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"),
        "Kuzushiji-MNIST (Clanuwat et al. 2018), CODH, from the Kuzushiji data set of NIJL and others",
        "CC BY-SA 4.0",
    ),
}


def _cifar(spec: DataSpec) -> _Source:
    import numpy as np

    folder, train, test, label_bytes, names_file = _found(_find_cifar, _download_cifar, spec)
    parts = [_read_cifar(folder / file, label_bytes) for file in (*train, *test)]
    images = np.concatenate([images for images, _ in parts])
    labels = np.concatenate([labels for _, labels in parts])
    count = 10 if spec.name == "cifar10" else 100
    if labels.max(initial=0) >= count:
        raise UserError(
            f"{spec.name}: label {labels.max()} in {folder}, expected 0 to {count - 1}: damaged files?"
        )
    classes, notes = tuple(str(i) for i in range(count)), []
    if (folder / names_file).is_file():
        found = (folder / names_file).read_text(encoding="utf-8").split()
        if len(found) != count:
            raise UserError(f"{folder / names_file} names {len(found)} classes, expected {count}")
        classes = tuple(found)
    else:
        notes.append(f"classes are numbered, as {names_file} is missing")
    in_test = np.concatenate([np.full(len(part[1]), i >= len(train)) for i, part in enumerate(parts)])
    return _Source(
        images=images,
        labels=labels,
        classes=classes,
        quotas=(4000, 1000, 20, 4000) if count == 10 else (400, 100, 2, 400),
        official_test=in_test,
        license="none stated; the authors ask for a citation of Krizhevsky 2009",
        source=f"CIFAR-{count} binary version (Krizhevsky 2009, Learning Multiple Layers of Features)",
        notes=notes,
    )


def _folder(spec: DataSpec) -> _Source:
    import numpy as np

    root = Path(spec.name.partition(":")[2])
    images, labels, skipped = [], [], 0
    folders = _class_folders(root)
    for label, folder in enumerate(folders):
        files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
        pictures = [path for path in files if path.suffix.lower() in IMAGE_SUFFIXES]
        skipped += len(files) - len(pictures)
        if not pictures:
            raise UserError(f"no images in {folder} (looked for {', '.join(sorted(IMAGE_SUFFIXES))})")
        images += [_read_picture(path, spec.side, spec.channels) for path in pictures]
        labels += [label] * len(pictures)
    return _Source(
        images=np.stack(images),
        labels=np.array(labels, dtype=np.int64),
        classes=tuple(folder.name for folder in folders),
        license="the user's own",
        source=f"images in {root}",
        notes=[f"{skipped} files without an image suffix were skipped"] if skipped else [],
    )


def _npz(spec: DataSpec) -> _Source:
    import numpy as np

    path = _existing_npz(Path(spec.name.partition(":")[2]))
    try:
        with np.load(path, allow_pickle=False) as arrays:
            missing = {"images", "labels"} - set(arrays)
            if missing:
                raise UserError(
                    f"{path} has no array '{sorted(missing)[0]}' (found: {', '.join(arrays) or 'none'})"
                )
            images, labels = arrays["images"], arrays["labels"]
    except UserError:
        raise
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"cannot read {path} as an npz file of plain arrays: {error}") from None
    images = _channels_last(images, path)
    if images.dtype == np.uint8:
        white = 255.0
    elif np.issubdtype(images.dtype, np.floating):
        white = 1.0
        if not (images.min() >= 0 and images.max() <= 1):  # also false for NaN
            raise UserError(
                f"{path}: float images must lie in [0, 1], got [{images.min():.3g}, {images.max():.3g}]"
            )
    else:
        raise UserError(f"{path}: images must be uint8 or float in [0, 1], got {images.dtype}")
    if labels.shape != (len(images),) or labels.dtype.kind not in "iuU":
        raise UserError(
            f"{path}: labels must be integers or text of shape ({len(images)},), "
            f"got {labels.dtype} {labels.shape}"
        )
    names = [str(label) for label in labels.tolist()]
    classes = sorted_classes(set(names))
    position = {name: index for index, name in enumerate(classes)}
    return _Source(
        images=images,
        white=white,
        labels=np.array([position[name] for name in names], dtype=np.int64),
        classes=classes,
        license="the user's own",
        source=f"arrays in {path}",
    )


_SOURCES: dict[str, Callable[[DataSpec], _Source]] = {
    "digits": _digits,
    "lfw_subset": _lfw_subset,
    **dict.fromkeys(MNIST_LIKE, _mnist_like),
    **dict.fromkeys(CIFAR, _cifar),
    "folder": _folder,
    "npz": _npz,
}


# --- splitting ---


def sorted_classes(names: Iterable[str]) -> tuple[str, ...]:
    """Class names in order: as numbers when all of them are ("2" before "10"), else as text."""
    names = list(names)
    numeric = all(name.removeprefix("-").isascii() and name.removeprefix("-").isdigit() for name in names)
    return tuple(sorted(names, key=lambda name: (int(name), name)) if numeric else sorted(names))


@lru_cache(maxsize=2)
def _load(spec: DataSpec, stamp: str) -> Splits:
    import numpy as np

    source = _SOURCES[spec.kind](spec)
    count = len(source.classes)
    if count < 2:
        raise UserError(f"{spec.name}: at least 2 classes are needed, found {count}")
    shared = count < 4 and source.target_classes is None
    on_target = source.target_classes or (count if shared else math.ceil(count / 2))
    queues = _queues(source, spec.split_seed)
    empty = [name for name, queue in zip(source.classes, queues, strict=True) if not len(queue)]
    if empty:
        raise UserError(f"{spec.name}: class '{empty[0]}' has no images")

    queues, duplicates = _without_duplicates(source, spec, queues, on_target)
    available = min(len(queue) for queue in queues[:on_target])
    if not available:
        raise UserError(f"{spec.name}: nothing but duplicates is left of one of the classes")
    quotas = _quotas(available, source.quotas, on_target, shared)
    notes = list(source.notes)
    if shared:
        notes.append(
            "fewer than 4 classes: auxiliary data shares the target's classes and holds other images"
        )
    if source.quotas is not None and quotas[:3] != source.quotas[:3]:
        notes.append(
            f"the source is small ({available} images in its smallest class): split sizes were scaled down"
        )
    if duplicates:
        notes.append(f"{duplicates} duplicate image{'s were' if duplicates > 1 else ' was'} dropped")

    chosen = _cut(queues[:on_target], quotas, shared)
    if not shared:
        chosen["auxiliary"] = [queue[: quotas[3]] for queue in queues[on_target:]]
    empty_splits = [name for name in ("holdout", "update", "test") if not sum(map(len, chosen[name]))]
    if empty_splits and source.target_classes is None:
        notes.append(f"too few images per class for: {', '.join(empty_splits)}")

    def split(name: str) -> Split:
        import torch

        parts = chosen[name]
        ranks = np.concatenate([np.arange(len(part)) for part in parts])
        labels = np.concatenate([np.full(len(part), label) for label, part in enumerate(parts)]).astype(
            np.int64
        )
        order = np.lexsort((labels, ranks))  # by rank, then class: cyclic
        indices = np.concatenate(parts)[order].astype(np.int64)
        images = _prepare(source, spec, indices)
        return Split(images, torch.from_numpy(labels[order]), torch.from_numpy(indices))

    native = source.images.shape[1:3]
    splits = Splits(
        **{name: split(name) for name in SPLIT_NAMES},
        classes=source.classes[:on_target],
        auxiliary_classes=source.classes if shared else source.classes[on_target:],
        native_side=None if spec.kind == "folder" else int(min(native)),
        license=source.license,
        source=source.source,
        duplicates=duplicates,
        notes=tuple(notes),
    )
    found = {pair: number for pair, number in overlaps(splits).items() if number}
    if found:
        raise RuntimeError(f"splits of {spec.name} overlap: {found}")
    return splits


def _queues(source: _Source, seed: int) -> list[np.ndarray]:
    """For every class its indices in seeded order, those of an official test set last.

    Each class has a random stream of its own, so that other classes do not move its order.
    """
    import numpy as np

    late = np.zeros(len(source.labels), dtype=bool) if source.official_test is None else source.official_test
    queues = []
    for label in range(len(source.classes)):
        members = np.flatnonzero(source.labels == label)
        members = members[np.random.default_rng([seed, label]).permutation(len(members))]
        queues.append(members[np.argsort(late[members], kind="stable")])
    return queues


def _without_duplicates(
    source: _Source, spec: DataSpec, queues: list[np.ndarray], on_target: int
) -> tuple[list[np.ndarray], int]:
    """Keep the first copy of every image: target classes before auxiliary ones, early ranks before late
    ones."""
    import numpy as np

    keys: list[bytes] = []
    for part in np.array_split(np.arange(len(source.labels)), math.ceil(len(source.labels) / 4096)):
        keys += _content_keys(_prepare(source, spec, part))
    candidates = [
        (label >= on_target, rank, label, index)
        for label, queue in enumerate(queues)
        for rank, index in enumerate(queue.tolist())
    ]
    seen: set[bytes] = set()
    kept: list[list[int]] = [[] for _ in queues]
    for _, _, label, index in sorted(candidates):
        if keys[index] not in seen:
            seen.add(keys[index])
            kept[label].append(index)
    return [np.array(queue, dtype=np.int64) for queue in kept], len(candidates) - len(seen)


def _quotas(
    available: int, wanted: tuple[int, int, int, int] | None, classes: int, shared: bool
) -> tuple[int, int, int, int]:
    """Images per class in (target, holdout, update, auxiliary); the test split gets the rest.

    ``wanted`` is used where the smallest class has room for it. Otherwise the class is
    divided: half of it is target (2/5 if the auxiliary data comes from the same classes, which get 1/5), half
    of the rest is holdout, a fifth of the rest is update (100 images over all classes at most), and what
    remains is test.
    """
    if wanted is not None:
        needed = sum(wanted[:3]) + (wanted[3] if shared else 0)
        if available >= needed:
            return wanted
    limits = wanted or (10**9, 10**9, max(1, 100 // classes), 10**9)
    target = min(limits[0], max(1, 2 * available // 5 if shared else available // 2))
    auxiliary = min(limits[3], available // 5) if shared else limits[3]
    rest = available - target - (auxiliary if shared else 0)
    return target, min(limits[1], rest // 2), min(limits[2], rest // 5), auxiliary


def _cut(
    queues: list[np.ndarray], quotas: tuple[int, int, int, int], shared: bool
) -> dict[str, list[np.ndarray]]:
    """Consecutive pieces of every class queue, in the order target, holdout, update, auxiliary (if shared),
    test."""
    sizes = {"target": quotas[0], "holdout": quotas[1], "update": quotas[2]}
    if shared:
        sizes["auxiliary"] = quotas[3]
    chosen: dict[str, list[np.ndarray]] = {}
    start = 0
    for name, size in sizes.items():
        chosen[name] = [queue[start : start + size] for queue in queues]
        start += size
    chosen["test"] = [queue[start:] for queue in queues]
    return chosen


def _content_keys(images: Tensor) -> list[bytes]:
    """SHA-256 of each image (c, h, w) rounded to 8 bits."""
    import torch

    rounded = (images * 255).round().to(torch.uint8).numpy()
    return [hashlib.sha256(image.tobytes()).digest() for image in rounded]


def _prepare(source: _Source, spec: DataSpec, indices: np.ndarray) -> Tensor:
    """Chosen source images as float32 (n, c, side, side) in [0, 1]."""
    import numpy as np
    import torch
    from torch.nn.functional import interpolate

    chosen = np.ascontiguousarray(source.images[indices])
    if chosen.ndim == 3:
        chosen = chosen[..., None]
    images = torch.from_numpy(chosen).permute(0, 3, 1, 2).to(torch.float32) / source.white
    if not len(images):
        return torch.zeros(0, spec.channels, spec.side, spec.side)
    height, width = images.shape[2:]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    images = images[:, :, top : top + side, left : left + side]
    if spec.channels == 1 and images.shape[1] == 3:
        weights = torch.tensor([0.299, 0.587, 0.114]).view(
            1, 3, 1, 1
        )  # ITU-R BT.601 luma, as in Pillow's mode L
        images = (images * weights).sum(dim=1, keepdim=True)
    if side != spec.side:
        images = interpolate(
            images,
            size=(spec.side, spec.side),
            mode="bilinear",
            align_corners=False,
            antialias=spec.side < side,
        )
    return images.expand(-1, spec.channels, -1, -1).clamp(0, 1).contiguous()


# --- files ---


def _absolute(path: str) -> Path:
    return Path(path).expanduser().resolve()


def _found(find: Callable[[DataSpec], T], download: Callable[[DataSpec], None], spec: DataSpec) -> T:
    """What ``find`` returns; where it finds nothing and ``spec.download`` allows it, after a download."""
    try:
        return find(spec)
    except UserError:
        if not spec.download:
            raise
    download(spec)
    return find(spec)


def _stamp(spec: DataSpec) -> str:
    """Changes when the user's files do, so that the cache does not serve what is no longer there."""
    if spec.kind not in ("folder", "npz"):
        return str(spec.folder())
    path = Path(spec.name.partition(":")[2])
    files = [path] if path.is_file() else sorted(path.glob("*/*"))
    facts = [(str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files if file.exists()]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _class_folders(root: Path) -> list[Path]:
    if not root.is_dir():
        raise UserError(f"no folder {root} (expected one sub-folder of images per class)")
    found = {path.name: path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")}
    if len(found) < 2:
        raise UserError(f"{root} has {len(found)} class sub-folders, at least 2 are needed (one per class)")
    return [found[name] for name in sorted_classes(found)]


def _existing_npz(path: Path) -> Path:
    if not path.is_file():
        raise UserError(f"no file {path} (expected an npz file with arrays 'images' and 'labels')")
    return path


def _read_picture(path: Path, side: int, channels: int) -> np.ndarray:
    """One picture as uint8 (side, side, channels): upright, center crop, bilinear resize."""
    import numpy as np
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as opened:
            if opened.mode.startswith(("I", "F")):
                raise UserError(
                    f"{path} has more than 8 bits per channel (mode {opened.mode}): convert it to 8 bits"
                )
            picture = ImageOps.exif_transpose(opened).convert("L" if channels == 1 else "RGB")
    except UserError:
        raise
    except Exception as error:  # Pillow's decoders raise many kinds, also SyntaxError and struct.error
        raise UserError(f"cannot read the image {path}: {error}") from None
    picture = ImageOps.fit(picture, (side, side), method=Image.Resampling.BILINEAR)
    return np.asarray(picture, dtype=np.uint8).reshape(side, side, channels)


def _channels_last(images: np.ndarray, path: Path) -> np.ndarray:
    """(n, h, w), (n, h, w, c) or (n, c, h, w) with c = 1 or 3 as (n, h, w) or (n, h, w, c)."""
    shape = images.shape
    if len(shape) not in (3, 4) or not images.size:
        raise UserError(
            f"{path}: images must have shape (n, h, w), (n, h, w, c) or (n, c, h, w), got {shape}"
        )
    if len(shape) == 3:
        return images
    last, first = shape[3] in (1, 3), shape[1] in (1, 3)
    if last == first:
        problem = (
            "both the second and the last size could be channels"
            if last
            else "neither size is 1 or 3 channels"
        )
        raise UserError(f"{path}: images of shape {shape}: {problem}")
    return images if last else images.transpose(0, 2, 3, 1)


_IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_TORCHVISION_CLASS = {"mnist": "MNIST", "fashion_mnist": "FashionMNIST", "kmnist": "KMNIST"}


def _find_idx(spec: DataSpec) -> dict[str, Path]:
    """The four IDX files, plain or gzipped, in torchvision's folder ``<root>/<Class>/raw`` or in ``<root>``
    itself."""
    root = spec.folder()
    raw = root / _TORCHVISION_CLASS[spec.name] / "raw"
    for folder in (raw, root):
        paths = {
            file: path
            for file in _IDX_FILES
            for path in (folder / f"{file}.gz", folder / file)
            if path.is_file()
        }
        if len(paths) == len(_IDX_FILES):
            return paths
    raise UserError(
        f"{spec.name}: {_IDX_FILES[0]}(.gz) and its three companions are not in {raw} or {root}; "
        "set download: true, place the files there, or name another root"
    )


def _read_idx(path: Path, dimensions: int) -> np.ndarray:
    """An IDX file of unsigned bytes: 0, 0, 8, number of dimensions; big-endian uint32 sizes; the bytes."""
    import numpy as np

    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    start = 4 + 4 * dimensions
    if len(content) < start or content[:4] != bytes([0, 0, 8, dimensions]):
        raise UserError(f"{path} is not an IDX file of {dimensions}-dimensional unsigned bytes")
    sizes = tuple(int(size) for size in np.frombuffer(content, ">u4", dimensions, 4))
    if len(content) - start != math.prod(sizes):
        raise UserError(
            f"{path} is damaged: {len(content) - start} bytes of data, its header says {math.prod(sizes)}"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(sizes)


def _download_idx(spec: DataSpec) -> None:
    from torchvision import datasets

    published = getattr(datasets, _TORCHVISION_CLASS[spec.name])
    raw = spec.folder() / _TORCHVISION_CLASS[spec.name] / "raw"
    for file, md5 in published.resources:
        if (raw / file).is_file() or (raw / file.removesuffix(".gz")).is_file():
            continue
        for mirror in published.mirrors[:-1]:
            try:
                _download(mirror + file, raw / file, md5=md5)
                break
            except UserError:
                continue
        else:
            _download(published.mirrors[-1] + file, raw / file, md5=md5)


_CIFAR_FILES = {
    # folder, training files, test files, bytes of labels before the pixels (the last one counts), class names
    "cifar10": (
        "cifar-10-batches-bin",
        tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
        ("test_batch.bin",),
        1,
        "batches.meta.txt",
    ),
    "cifar100": ("cifar-100-binary", ("train.bin",), ("test.bin",), 2, "fine_label_names.txt"),
}
_CIFAR_ARCHIVES = {
    "cifar10": (
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ),
    "cifar100": (
        "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
        "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    ),
}


def _find_cifar(spec: DataSpec) -> tuple[Path, tuple[str, ...], tuple[str, ...], int, str]:
    name, train, test, label_bytes, names_file = _CIFAR_FILES[spec.name]
    root = spec.folder()
    for folder in (root / name, root):
        if all((folder / file).is_file() for file in (*train, *test)):
            return folder, train, test, label_bytes, names_file
    raise UserError(
        f"{spec.name}: {', '.join((*train, *test))} (the binary version) are not in {root / name} or {root}; "
        "set download: true, place the files there, or name another root"
    )


def _read_cifar(path: Path, label_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 (n, 32, 32, 3) and labels int64 (n,) of one file: each record is its labels and 3 x 32 x
    32 bytes."""
    import numpy as np

    record = label_bytes + 3 * 32 * 32
    content = np.frombuffer(path.read_bytes(), np.uint8)
    if not len(content) or len(content) % record:
        raise UserError(f"{path} is damaged: {len(content)} bytes are not a multiple of {record}")
    rows = content.reshape(-1, record)
    return rows[:, label_bytes:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[
        :, label_bytes - 1
    ].astype(np.int64)


def _download_cifar(spec: DataSpec) -> None:
    name, train, test, _, names_file = _CIFAR_FILES[spec.name]
    folder = spec.folder() / name
    url, sha256 = _CIFAR_ARCHIVES[spec.name]
    archive = spec.folder() / url.rpartition("/")[2]
    if not archive.is_file():
        _download(url, archive, sha256=sha256)
    with archive.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != sha256:
        raise UserError(f"{archive} has SHA-256 {found}, expected {sha256}: delete it to download it again")
    # Only the files we know are taken out, and to paths of our own: what else the archive says is ignored.
    with tarfile.open(archive) as members:
        for member in members:
            file = member.name.rpartition("/")[2]
            content = members.extractfile(member) if file in (*train, *test, names_file) else None
            if content is not None:
                with _finished_file(folder / file) as out:
                    shutil.copyfileobj(content, out)


def _download(url: str, path: Path, *, md5: str | None = None, sha256: str | None = None) -> None:
    """Fetch ``url`` to ``path`` if its checksum is right; nothing half-written remains."""
    digest, expected = (hashlib.sha256(), sha256) if sha256 else (hashlib.md5(usedforsecurity=False), md5)
    try:
        import urllib.request

        with urllib.request.urlopen(url, timeout=60) as response, _finished_file(path) as out:
            while block := response.read(1 << 20):
                digest.update(block)
                out.write(block)
            if digest.hexdigest() != expected:
                raise UserError(f"{url} has checksum {digest.hexdigest()}, expected {expected}: not kept")
    except OSError as error:
        raise UserError(f"could not download {url}: {error}; place the file in {path.parent}") from None


@contextmanager
def _finished_file(path: Path) -> Iterator[BinaryIO]:
    """A file that appears under its name only when it was written to its end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as out:
        try:
            yield out
        except BaseException:
            os.unlink(out.name)
            raise
    os.replace(out.name, path)
