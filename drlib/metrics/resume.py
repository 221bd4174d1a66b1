"""Finished parts of a long nearest-neighbor search, kept in a folder so that a killed search can go on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from drlib.errors import UserError

_SEARCH = "search.json"
_CHUNK = 2**24  # bytes hashed at a time


class Resume:
    """The rows whose nearest neighbor is known.

    ``search.json`` identifies the search. Each block of rows is a safetensors file with ``row`` and ``index``
    (int64) and ``value`` (float64), named by its SHA-256 and written under another name first: a file that
    is there is whole, and one that is damaged or holds something else is passed over.
    """

    def __init__(self, folder: str | Path, identity: dict[str, str]) -> None:
        """Open the folder, or make it, for the search of this identity.

        Raises:
            UserError: the folder holds another search or something else, or cannot be written.
        """
        try:
            self.folder = Path(folder)
            self.folder.mkdir(parents=True, exist_ok=True)
            if all(path.suffix == ".partial" for path in self.folder.iterdir()):  # new, or killed right here
                self._write(_SEARCH, (json.dumps(identity, indent=1) + "\n").encode())
            found = json.loads((self.folder / _SEARCH).read_text(encoding="utf-8"))
        except (OSError, TypeError, ValueError) as error:
            raise UserError(
                f"{folder} is not a folder in which a search can be kept ({error}): give a new one"
            ) from None
        if found != identity:
            keys = [key for key in identity if not isinstance(found, dict) or found.get(key) != identity[key]]
            raise UserError(f"{folder} holds another search (of other {', '.join(keys)}): give a new folder")

    def finished(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """``row``, ``index`` and ``value`` of each finished block, on the CPU."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        for path in sorted(self.folder.glob("*.safetensors")):
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() == path.stem:
                try:
                    block = load(content)
                    found = block["row"], block["index"], block["value"]
                except (SafetensorError, KeyError):
                    continue
                yield found

    def add(self, row: Tensor, index: Tensor, value: Tensor) -> None:
        """Keep a finished block."""
        from safetensors.torch import save

        content = save({"row": row, "index": index, "value": value})
        self._write(f"{hashlib.sha256(content).hexdigest()}.safetensors", content)

    def _write(self, name: str, content: bytes) -> None:
        """All or nothing: another process, or the next one, never sees half a file."""
        partial = self.folder / f"{name}.{os.getpid()}.partial"
        with partial.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(partial, self.folder / name)


def digest(values: Tensor | None) -> str:
    """SHA-256 of a tensor's type, shape and numbers; a few MiB of it are copied at a time."""
    if values is None:
        return "none"
    total = hashlib.sha256(f"{values.dtype} {tuple(values.shape)}".encode())
    step = max(1, _CHUNK // max(1, values[:1].numel() * values.element_size()))
    for i in range(0, len(values), step):
        part = values[i : i + step].contiguous().cpu()
        total.update(part.flatten().view(torch.uint8).numpy())
    return total.hexdigest()
