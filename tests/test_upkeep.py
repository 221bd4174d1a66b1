"""Adopting results after a refactor: only what today's code makes again, bit by bit."""

from dataclasses import replace

import pytest

from drlib import pool, sections, study, upkeep
from drlib.store import Artifact, Store, artifact_key


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Store:
    """A target and two reconstructions of it, made by today's code."""
    store = Store(tmp_path_factory.mktemp("today"))
    changes = {"target_size": 10, "attacks": ["mi_face"], "width": 0.25, "controls": []}
    changes |= {"training": {"epochs": 1, "min_steps": 1}}
    jobs = {}
    for steps in (1, 2):
        hyperparameters = {"mi_face": {"steps": steps}}
        parameters = sections.parameters(
            "ten_minutes", "smoke", {**changes, "hyperparameters": hyperparameters}
        )
        tasks = study.plan(parameters.cells()[0]).tasks
        target, attack = tasks["target"], tasks["reconstruction"]
        parents = {"target": (target.kind, target.key)}
        jobs[target.key] = pool.Job(target.kind, target.key, target.spec, {}, target.code, "data", "target")
        jobs[attack.key] = pool.Job(
            attack.kind,
            attack.key,
            attack.spec,
            parents,
            attack.code,
            "attack",
            "attack",
            frozenset([target.key]),
        )
    pool.run(
        jobs.values(),
        study.ROLES,
        store_root=str(store.root),
        workers=1,
        started=lambda job: None,
        progressed=lambda job, share: None,
        finished=lambda job, seconds: None,
    )
    return store


def older(made: Store, root, change=lambda artifact: artifact) -> tuple[Store, dict[str, str]]:
    """The same artifacts as if code with other names had made them; and old key to today's key."""
    store, keys = Store(root), {}
    for meta in sorted(made.ls(), key=lambda meta: meta["kind"] != "target"):
        artifact = made.load(meta["kind"], meta["key"])
        code = {f"old.{name}": digest for name, digest in artifact.code.items()}
        parents = {
            name: {new: old for old, new in keys.items()}[key] for name, key in artifact.parents.items()
        }
        key = artifact_key(artifact.kind, artifact.spec, parents, code)
        keys[key] = artifact.key
        store.save(change(replace(artifact, key=key, parents=parents, code=code)))
    return store, keys


@pytest.fixture
def known(made, monkeypatch):
    """Making an artifact again gives what today's code is known to give; no process is started."""

    def run(jobs, roles, *, store_root, **_):
        for job in jobs:
            found = [m for m in made.ls() if (m["kind"], m["spec"]) == (job.kind, job.spec)]
            Store(store_root).save(replace(made.load(job.kind, found[0]["key"]), key=job.key))

    monkeypatch.setattr(pool, "run", run)


def test_what_today_s_code_made_is_not_outdated(made):
    assert len(list(made.ls())) == 3
    assert upkeep.outdated(made) == []
    assert upkeep.adopt(made).keys == {}


def test_equal_results_get_today_s_keys(made, tmp_path):
    store, keys = older(made, tmp_path)
    assert {meta["key"] for meta in upkeep.outdated(store)} == set(keys)
    lines = []
    adoption = upkeep.adopt(store, lines.append)
    assert adoption.keys == keys and adoption.refused == {}
    assert sorted(lines) == [
        "reconstruction mi_face: made again, equal; 2 to adopt",
        "target: made again, equal; 1 to adopt",
    ]
    for old, new in keys.items():
        kind = store.find(new)["kind"]
        adopted, original = store.load(kind, new), made.load(kind, new)
        assert adopted.provenance["adopted_from"] == old
        assert (adopted.code, adopted.parents, adopted.data) == (
            original.code,
            original.parents,
            original.data,
        )
    assert {meta["key"] for meta in upkeep.outdated(store)} == set(keys)  # the old ones, for gc


def test_a_different_result_is_refused_and_so_is_what_was_made_from_it(made, known, tmp_path):
    def one_weight_off(artifact: Artifact) -> Artifact:
        if artifact.kind == "target":
            artifact.tensors["head.bias"] = artifact.tensors["head.bias"] + 1e-6
        return artifact

    store, _ = older(made, tmp_path, one_weight_off)
    adoption = upkeep.adopt(store)
    assert adoption.keys == {}
    assert adoption.refused == {"target": "its tensor 'head.bias' comes out different"}


def test_a_different_value_is_refused(made, known, tmp_path):
    def other_count(artifact: Artifact) -> Artifact:
        if artifact.kind == "reconstruction":
            artifact.data["gradient_calls"] += 1
        return artifact

    store, keys = older(made, tmp_path, other_count)
    adoption = upkeep.adopt(store)
    assert adoption.refused == {"reconstruction mi_face": "its value 'gradient_calls' comes out different"}
    assert set(adoption.keys) == {old for old, new in keys.items() if made.find(new)["kind"] == "target"}


def test_what_nothing_makes_any_more_is_refused(made, tmp_path):
    store = Store(tmp_path)
    kept = next(made.load("target", meta["key"]) for meta in made.ls() if meta["kind"] == "target")
    store.save(replace(kept, kind="prior"))
    assert upkeep.adopt(store).refused == {"prior": "nothing makes it any more"}
