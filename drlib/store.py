"""Content-addressed artifacts on disk: safetensors and JSON, written atomically, verified when read.

An artifact's key is the hash of *what made it*: its resolved specification, its parents' keys and the
fingerprint of the code. Device, versions, threads and seconds are provenance and not part of the key.

Layout: ``<root>/<kind>/<key>/{artifact.json, tensors.safetensors}``. A write goes to ``<root>/tmp`` and is
renamed into place, so a killed process leaves nothing half-written behind. No pickle file is ever read.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drlib.errors import UserError
from drlib.fingerprint import code_hash

if TYPE_CHECKING:
    from torch import Tensor

META, TENSORS = "artifact.json", "tensors.safetensors"
NOT_ARTIFACTS = ("tmp", "damaged", "failed")
"""Folders beside the kinds: writes in progress, what was set aside, tracebacks."""


class DamagedArtifact(RuntimeError):
    """An artifact whose bytes do not match its checksum; it has been set aside."""


@dataclass
class Artifact:
    """One stored result. ``tensors`` are on the CPU; ``data`` and ``provenance`` are JSON values."""

    key: str
    kind: str
    spec: dict[str, Any]
    parents: dict[str, str]
    code: dict[str, str]
    tensors: dict[str, Tensor] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def artifact_key(kind: str, spec: dict[str, Any], parents: dict[str, str], code: dict[str, str]) -> str:
    """The key of an artifact: 32 hexadecimal digits."""
    return hashlib.sha256(canonical([kind, spec, parents, code_hash(code)]).encode()).hexdigest()[:32]


def default_root() -> Path:
    """``$DRLIB_STORE``, or ``_build/store`` in the checkout that holds this package, or the user's cache."""
    if os.environ.get("DRLIB_STORE"):
        return Path(os.environ["DRLIB_STORE"]).expanduser().absolute()
    checkout = Path(__file__).resolve().parents[1]
    if (checkout / "pyproject.toml").exists():
        return checkout / "_build" / "store"
    return Path.home() / ".cache" / "drlib" / "store"


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


class Store:
    """A folder of artifacts."""

    def __init__(self, root: str | Path | None = None) -> None:
        self.root = Path(root) if root is not None else default_root()

    def folder(self, kind: str, key: str) -> Path:
        return self.root / kind / key

    def save(self, artifact: Artifact) -> None:
        """Write an artifact; if the key is already there, the stored one stays."""
        from safetensors.torch import save

        staging = self.root / "tmp" / uuid.uuid4().hex
        staging.mkdir(parents=True)
        tensors = save({name: tensor.contiguous() for name, tensor in artifact.tensors.items()})
        _write_synced(staging / TENSORS, tensors)
        meta = {
            name: getattr(artifact, name)
            for name in ("key", "kind", "spec", "parents", "code", "data", "provenance")
        }
        meta["tensors_sha256"] = hashlib.sha256(tensors).hexdigest()
        meta["checksum"] = hashlib.sha256(canonical(meta).encode()).hexdigest()
        _write_synced(staging / META, json.dumps(meta, indent=1, sort_keys=True, ensure_ascii=False).encode())
        final = self.folder(artifact.kind, artifact.key)
        final.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(staging, final)
        except OSError:  # another process finished the same artifact first
            if not (final / META).exists():
                raise
            shutil.rmtree(staging)

    def healthy(self, kind: str, key: str) -> bool:
        """True if the artifact is there and its checksums hold; a damaged one is set aside."""
        try:
            self._meta(kind, key)
        except (FileNotFoundError, DamagedArtifact):
            return False
        return True

    def load(self, kind: str, key: str) -> Artifact:
        """Read and verify an artifact.

        Raises ``FileNotFoundError`` if it is not there, ``DamagedArtifact`` if its bytes are wrong.
        """
        from safetensors.torch import load_file

        meta = self._meta(kind, key)
        tensors = load_file(self.folder(kind, key) / TENSORS)
        fields = {
            name: meta[name] for name in ("key", "kind", "spec", "parents", "code", "data", "provenance")
        }
        return Artifact(tensors=tensors, **fields)

    def _meta(self, kind: str, key: str) -> dict[str, Any]:
        folder = self.folder(kind, key)
        if not folder.is_dir():
            raise FileNotFoundError(f"no {kind} artifact {key}")
        try:
            meta = json.loads((folder / META).read_text(encoding="utf-8"))
            checksum = meta.pop("checksum")
            sound = (
                checksum == hashlib.sha256(canonical(meta).encode()).hexdigest()
                and meta["key"] == key
                and meta["tensors_sha256"] == _sha256(folder / TENSORS)
            )
        except (OSError, ValueError, KeyError, AttributeError):
            sound = False
        if not sound:
            aside = self.root / "damaged" / f"{kind}-{key}-{uuid.uuid4().hex[:8]}"
            aside.parent.mkdir(parents=True, exist_ok=True)
            os.rename(folder, aside)
            raise DamagedArtifact(f"{kind} artifact {key} was damaged; set aside in {aside}")
        return meta

    def ls(self) -> Iterator[dict[str, Any]]:
        """The metadata of every artifact, without its tensors; unreadable ones are skipped."""
        for path in sorted(self.root.glob(f"*/*/{META}")):
            if path.parent.parent.name in NOT_ARTIFACTS:
                continue
            try:
                meta = json.loads(path.read_text(encoding="utf-8"))
            except ValueError:
                continue
            meta["bytes"] = sum(file.stat().st_size for file in path.parent.iterdir())
            yield meta

    def verify(self) -> tuple[int, list[str]]:
        """Check every artifact. Returns (sound, messages about the damaged ones, now set aside)."""
        sound, damaged = 0, []
        for folder in sorted(self.root.glob("*/*")):
            if folder.parent.name in NOT_ARTIFACTS:
                continue
            try:
                self._meta(folder.parent.name, folder.name)
                sound += 1
            except DamagedArtifact as error:
                damaged.append(str(error))
        return sound, damaged

    def gc(self, keep: Iterable[str], *, tmp_age: float = 3600.0) -> tuple[int, int]:
        """Delete artifacts whose key is not in ``keep``, and writes abandoned for ``tmp_age`` seconds.

        Returns (artifacts deleted, bytes freed).
        """
        keep, deleted, freed = set(keep), 0, 0
        for meta in list(self.ls()):
            if meta["key"] not in keep:
                shutil.rmtree(self.folder(meta["kind"], meta["key"]))
                deleted, freed = deleted + 1, freed + meta["bytes"]
        for staging in self.root.glob("tmp/*"):
            if time.time() - staging.stat().st_mtime > tmp_age:
                shutil.rmtree(staging, ignore_errors=True)
        return deleted, freed

    def find(self, prefix: str) -> dict[str, Any]:
        """The metadata of the one artifact whose key starts with ``prefix``.

        Raises ``UserError`` if there is none or more than one.
        """
        found = [meta for meta in self.ls() if meta["key"].startswith(prefix.lower())]
        if len(found) != 1:
            what = "no artifact" if not found else f"{len(found)} artifacts"
            raise UserError(
                f"{what} in {self.root} with a key starting with '{prefix}' (see `drlib store ls`)"
            )
        return found[0]


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """Name what makes two artifacts' keys differ: specification, parents, code."""
    lines = []
    for part in ("kind", "spec", "parents", "code"):
        left, right = _flat(a[part], part), _flat(b[part], part)
        for name in sorted(left.keys() | right.keys()):
            if left.get(name) != right.get(name):
                lines.append(f"{name}: {left.get(name, 'absent')} -> {right.get(name, 'absent')}")
    return lines


def _flat(value: Any, prefix: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    return {
        name: leaf for key, item in value.items() for name, leaf in _flat(item, f"{prefix}.{key}").items()
    }
