"""Upkeep of the store: which artifacts today's code would no longer make, and how to keep or delete them.

A change of the code gives new keys, so older artifacts are never read again. After a refactor that
changes no number they can be *adopted*: for each kind of artifact (and each attack) the quickest one is
made again by today's code, and only if it comes out equal, bit by bit, do all of its kind get new keys.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from drlib import pool, study
from drlib.errors import UserError
from drlib.fingerprint import code_hash, fingerprint
from drlib.outside import declaration
from drlib.store import Artifact, Store, artifact_key

Meta = dict[str, Any]
"""An artifact as ``Store.ls`` lists it."""

Group = tuple[str, str, str]
"""Artifacts made by the same functions: kind, attack or control, hash of the code."""


@dataclass
class Adoption:
    """What ``adopt`` did: old key to new key, and the groups that it refused with the reason."""

    keys: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def current_code(meta: Meta) -> dict[str, str] | None:
    """The fingerprint of the functions that would make this artifact today; None if there are none."""
    return _code(meta["kind"], meta["spec"].get("attack"))


@cache
def _code(kind: str, attack: str | None) -> dict[str, str] | None:
    try:
        classes = () if attack is None else (type(declaration(attack)),)
        return fingerprint(study.producer(kind), *classes)
    except (KeyError, UserError):
        return None


def outdated(store: Store) -> list[Meta]:
    """The artifacts that today's code would make under another key, or not at all."""
    metas = {meta["key"]: meta for meta in store.ls()}
    known: dict[str, bool] = {}

    def is_outdated(key: str) -> bool:
        if key not in known:
            meta = metas[key]
            parents = [parent for parent in meta["parents"].values() if parent in metas]
            known[key] = meta["code"] != current_code(meta) or any(map(is_outdated, parents))
        return known[key]

    return [meta for key, meta in metas.items() if is_outdated(key)]


def adopt(store: Store, say: Callable[[str], None] = lambda line: None) -> Adoption:
    """Give outdated artifacts the keys of today's code, group by group, where the golden test passes.

    The old ones stay until ``drlib store gc``. ``say`` gets a line for each group.
    """
    metas = {meta["key"]: meta for meta in outdated(store)}
    adoption = Adoption()
    groups: dict[Group, list[Meta]] = {}
    for meta in metas.values():
        if meta["code"] != current_code(meta):
            groups.setdefault(_group(meta), []).append(meta)
    passed = set()
    for group, members in groups.items():
        name = " ".join(filter(None, group[:2]))
        reason = _golden_test(store, members)
        if reason is None:
            passed.add(group)
            say(f"{name}: made again, equal; {len(members)} to adopt")
        else:
            adoption.refused[name] = reason
            say(f"{name}: not adopted, {reason}")

    def renewed(key: str) -> str | None:
        """The artifact's key under today's code, saving it there; None if it cannot be adopted."""
        if key not in metas:
            return key
        if key not in adoption.keys:
            meta = metas[key]
            parents = {name: renewed(parent) for name, parent in meta["parents"].items()}
            code = current_code(meta)
            if None in parents.values() or (meta["code"] != code and _group(meta) not in passed):
                return None
            new = artifact_key(meta["kind"], meta["spec"], parents, code)
            old = store.load(meta["kind"], key)
            provenance = {**old.provenance, "adopted_from": key}
            store.save(replace(old, key=new, parents=parents, code=code, provenance=provenance))
            adoption.keys[key] = new
        return adoption.keys[key]

    for key in metas:
        renewed(key)
    return adoption


def _group(meta: Meta) -> Group:
    return (
        meta["kind"],
        meta["spec"].get("attack") or meta["spec"].get("control") or "",
        code_hash(meta["code"]),
    )


def _golden_test(store: Store, members: list[Meta]) -> str | None:
    """Make the quickest member again with today's code; None if it is equal, else the reason why not."""
    code = current_code(members[0])
    if code is None:
        return "nothing makes it any more"
    kinds = {meta["key"]: meta["kind"] for meta in store.ls()}
    complete = [meta for meta in members if all(parent in kinds for parent in meta["parents"].values())]
    if not complete:
        return "what it was made from is no longer stored"
    golden = min(complete, key=lambda meta: meta["provenance"].get("seconds", math.inf))
    parents = {name: (kinds[key], key) for name, key in golden["parents"].items()}
    role = study.role(golden["kind"], golden["spec"].get("attack"))
    with tempfile.TemporaryDirectory() as folder:
        for kind, key in parents.values():
            shutil.copytree(store.folder(kind, key), Path(folder) / kind / key)
        job = pool.Job(golden["kind"], golden["key"], golden["spec"], parents, code, role, golden["kind"])
        try:
            pool.run(
                [job],
                study.ROLES,
                store_root=folder,
                workers=1,
                started=lambda job: None,
                progressed=lambda job, share: None,
                finished=lambda job, seconds: None,
            )
        except pool.JobFailed as error:
            return f"making it again failed: {str(error).strip().splitlines()[-1]}"
        again = Store(folder).load(job.kind, job.key)
    return _difference(store.load(golden["kind"], golden["key"]), again)


def _difference(old: Artifact, new: Artifact) -> str | None:
    import torch

    if old.tensors.keys() != new.tensors.keys():
        return "its tensors have other names"
    for name, tensor in old.tensors.items():
        other = new.tensors[name]
        if tensor.shape != other.shape or tensor.dtype != other.dtype:
            return f"its tensor '{name}' has another shape or type"
        if not torch.equal(torch.nan_to_num(tensor), torch.nan_to_num(other)):
            return f"its tensor '{name}' comes out different"
    for name in old.data.keys() | new.data.keys():
        if name != "seconds" and repr(old.data.get(name)) != repr(new.data.get(name)):
            return f"its value '{name}' comes out different"
    return None
