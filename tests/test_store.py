"""The store: what goes in comes out, nothing half-written stays, damage is found and set aside."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time

import pytest
import torch

from drlib.errors import UserError
from drlib.store import META, TENSORS, Artifact, DamagedArtifact, Store, artifact_key, differences


def make(spec: dict | None = None, **changes) -> Artifact:
    spec = spec or {"seed": 0}
    code = {"drlib.x.f": "abc"}
    fields = {
        "kind": "target",
        "spec": spec,
        "parents": {},
        "code": code,
        "tensors": {"images": torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))},
        "data": {"accuracy": 0.5, "reason": None},
        "provenance": {"device": "CPU"},
    } | changes
    return Artifact(key=artifact_key(fields["kind"], spec, fields["parents"], code), **fields)


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path)


def test_round_trip_keeps_everything(store):
    artifact = make()
    store.save(artifact)
    loaded = store.load("target", artifact.key)
    assert torch.equal(loaded.tensors["images"], artifact.tensors["images"])
    assert (loaded.spec, loaded.data, loaded.provenance, loaded.code) == (
        artifact.spec,
        artifact.data,
        artifact.provenance,
        artifact.code,
    )


def test_key_depends_on_spec_parents_and_code_but_not_on_order():
    base = artifact_key("target", {"a": 1, "b": 2}, {"p": "k"}, {"f": "1"})
    assert base == artifact_key("target", {"b": 2, "a": 1}, {"p": "k"}, {"f": "1"})
    others = {
        artifact_key("score", {"a": 1, "b": 2}, {"p": "k"}, {"f": "1"}),
        artifact_key("target", {"a": 1, "b": 3}, {"p": "k"}, {"f": "1"}),
        artifact_key("target", {"a": 1, "b": 2}, {"p": "l"}, {"f": "1"}),
        artifact_key("target", {"a": 1, "b": 2}, {"p": "k"}, {"f": "2"}),
        base,
    }
    assert len(others) == 5


def test_the_first_of_two_writers_wins(store):
    store.save(make(data={"writer": 1}))
    store.save(make(data={"writer": 2}))
    assert store.load("target", make().key).data == {"writer": 1}
    assert not list((store.root / "tmp").iterdir())


@pytest.mark.parametrize("name", [META, TENSORS])
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_damage_is_found_and_set_aside(store, name, damage):
    artifact = make()
    store.save(artifact)
    path = store.folder("target", artifact.key) / name
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    elif damage == "truncate":
        path.write_bytes(content[: len(content) // 2])
    else:
        path.unlink()
    with pytest.raises(DamagedArtifact):
        store.load("target", artifact.key)
    assert not store.folder("target", artifact.key).exists()
    assert len(list((store.root / "damaged").iterdir())) == 1
    assert not store.healthy("target", artifact.key)
    store.save(artifact)
    assert store.healthy("target", artifact.key)


def test_verify_counts_sound_and_damaged(store):
    for seed in range(3):
        store.save(make({"seed": seed}))
    (store.folder("target", make({"seed": 1}).key) / TENSORS).write_bytes(b"")
    sound, damaged = store.verify()
    assert sound == 2
    assert len(damaged) == 1 and make({"seed": 1}).key in damaged[0]


def test_gc_keeps_what_it_is_told_to(store):
    for seed in range(3):
        store.save(make({"seed": seed}))
    abandoned = store.root / "tmp" / "old"
    abandoned.mkdir()
    os.utime(abandoned, (0, 0))
    deleted, freed = store.gc([make({"seed": 1}).key])
    assert deleted == 2 and freed > 0
    assert [meta["key"] for meta in store.ls()] == [make({"seed": 1}).key]
    assert not abandoned.exists()


def _write_forever(root: str) -> None:
    store, seed = Store(root), 0
    while True:
        store.save(make({"seed": seed}, tensors={"images": torch.zeros(200_000)}))
        seed += 1


def test_killed_while_writing_leaves_only_sound_artifacts(store):
    process = multiprocessing.get_context("spawn").Process(target=_write_forever, args=(str(store.root),))
    process.start()
    deadline = time.time() + 60
    while len(list(store.root.glob("target/*"))) < 3 and time.time() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    sound, damaged = store.verify()
    assert sound >= 3
    assert damaged == []


def test_find_by_prefix(store):
    artifact = make()
    store.save(artifact)
    assert store.find(artifact.key[:6])["key"] == artifact.key
    with pytest.raises(UserError, match="no artifact"):
        store.find("zzzz")


def test_differences_names_what_changed():
    a, b = make({"seed": 0, "data": {"side": 16}}), make({"seed": 0, "data": {"side": 28}})
    b.code = {"drlib.x.f": "other"}
    lines = differences(vars(a), vars(b))
    assert "spec.data.side: 16 -> 28" in lines
    assert any(line.startswith("code.drlib.x.f") for line in lines)
    assert len(lines) == 2


def test_metadata_is_plain_json_and_no_pickle(store):
    artifact = make()
    store.save(artifact)
    folder = store.folder("target", artifact.key)
    assert sorted(path.name for path in folder.iterdir()) == [META, TENSORS]
    json.loads((folder / META).read_text())
