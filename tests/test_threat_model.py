"""The threat model is enforced: cheating attacks fail, their honest twins run.

Cheats run as they would in a grid: in a guarded process, each with a view that its knowledge grants and a
black box served by another process. One process per role runs them all, since starting one takes seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import cheats
import pytest
import torch

from drlib import attacks, landlock, pool, results, study
from drlib.box import RemoteBox
from drlib.cells import Cell, Target, UpdateSpec
from drlib.errors import UserError
from drlib.progress import Reporter
from drlib.store import Store
from drlib.training import TrainSpec
from drlib.types import WHITE_BOX, AccessError

TARGET = Target(size=20, width=0.25, training=TrainSpec(epochs=2, min_steps=40))

DRIVER = """
import json, sys
from drlib import attacker, pool
from drlib.store import Store
root, data, jobs = sys.argv[1], sys.argv[3], json.load(open(sys.argv[4]))
attacker.get_ready(root)
for name, (stages) in jobs.items():
    outcome = "ran"
    for kind, spec, addresses in stages:
        parents = pool.Parents(Store(root), addresses, [data])
        try:
            make = attacker.prepare if kind == "prepared" else attacker.reconstruct
            tensors, facts = make(spec, parents, lambda done, total: None)
            outcome = "ran: " + facts["enforced_by"]
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
            break
    print(json.dumps([name, outcome]), flush=True)
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    """A store with a target, auxiliary data, a control and its score."""
    store = Store(tmp_path_factory.mktemp("threat") / "store")
    study.run([Cell(target=TARGET, attack="noise")], store=store, reporter=Reporter(quiet=True))
    return store


@pytest.fixture(scope="module")
def outcomes(store, tmp_path_factory) -> dict[str, str]:
    """What became of every cheat and every twin."""
    data = tmp_path_factory.mktemp("data") / "images.npz"
    data.write_bytes(b"D_tar")
    everyone = list(dict.fromkeys([*cheats.PAIRS, *cheats.PAIRS.values()]))
    found = {}
    environment = {**os.environ, "CHEATED_STORE": str(store.root), "CHEATED_DATA": str(data)}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path[:1]])
    for role in ("attack", "black_box"):
        jobs = {}
        for cls in everyone:
            planned = study.plan(Cell(target=TARGET, attack=f"cheats:{cls.__name__}")).tasks["reconstruction"]
            if planned.role == role:
                jobs[cls.__name__] = _stages(planned, store)
        listed = tmp_path_factory.mktemp(role) / "jobs.json"
        listed.write_text(json.dumps(jobs))
        command = [sys.executable, "-c", DRIVER, str(store.root), str(os.getpid()), str(data), str(listed)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(answers) == len(jobs), done.stderr
        found |= dict(answers)
    return found


def _stages(task: study.Task, store: Store) -> list[list]:
    """The first stage if there is one, then the attack itself without what the first stage made."""
    stages = []
    if "prepared" in task.parents:
        prepared = task.parents["prepared"]
        _make(prepared.parents.values(), store)
        stages.append(["prepared", prepared.spec, _addresses(prepared)])
    _make([parent for name, parent in task.parents.items() if name != "prepared"], store)
    return [*stages, ["reconstruction", task.spec, _addresses(task)]]


def _make(tasks, store: Store) -> None:
    """Compute parents that the store lacks (auxiliary data)."""
    jobs = [
        pool.Job(task.kind, task.key, task.spec, {}, task.code, task.role, task.label)
        for task in tasks
        if not store.healthy(task.kind, task.key)
    ]
    silent = {"started": lambda job: None, "progressed": lambda job, share: None}
    pool.run(
        jobs, study.ROLES, store_root=str(store.root), workers=1, finished=lambda job, seconds: None, **silent
    )


def _addresses(task: study.Task) -> dict[str, list[str]]:
    return {name: [parent.kind, parent.key] for name, parent in task.parents.items() if name != "prepared"}


@pytest.mark.parametrize("cheat", cheats.PAIRS, ids=lambda cls: cls.__name__)
def test_a_cheat_fails_and_its_honest_twin_runs(outcomes, cheat):
    assert outcomes[cheats.PAIRS[cheat].__name__].startswith("ran"), outcomes[cheats.PAIRS[cheat].__name__]
    if cheat in cheats.NEED_LANDLOCK and not landlock.version():
        pytest.skip("this system has no Landlock: only the kernel can stop this cheat")
    assert not outcomes[cheat.__name__].startswith("ran"), f"{cheat.__name__} was not stopped"


def test_refusals_are_in_words(outcomes):
    assert "may not open the store (here a 'score')" in outcomes["OpensTheStore"]
    assert "does not grant 'model'" in outcomes["AsksForTheModel"]
    assert "may not import drlib.data" in outcomes["ImportsTheData"]
    assert "NoAccess access does not grant 'query'" in outcomes["QueriesWhilePreparingBlindly"]
    if landlock.version():
        assert "Permission denied" in outcomes["MapsTheStore"]


def test_what_enforced_the_wall_is_recorded(outcomes):
    expected = "ran: audit hook and Landlock" if landlock.version() else "ran: audit hook"
    assert outcomes["OpensItsOwnModulesFile"] == expected


def test_a_cheat_stops_a_whole_study_with_one_line(store, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.setenv("CHEATED_STORE", str(store.root))
    with pytest.raises(UserError, match=r"Plain on 20 failed: .*may not open the store") as caught:
        study.run(
            [Cell(target=TARGET, attack="cheats:OpensTheStore")], store=store, reporter=Reporter(quiet=True)
        )
    assert "\n" not in str(caught.value)


def run(store, monkeypatch, *attacks_, target=TARGET):
    """Rows of a small study with these attacks or controls, on one worker of each role."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    cells = [Cell(target=target, attack=attack) for attack in attacks_]
    study.run(cells, store=store, workers=1, reporter=Reporter(quiet=True))
    table = results.summary(cells, store=store)
    return cells, table[table.metric == "SSIM"].set_index("attack")


def test_queries_are_counted_by_the_box(store, monkeypatch):
    _, rows = run(store, monkeypatch, "cheats:LiesAboutQueries")
    assert rows.queries.tolist() == [50.0]


@pytest.mark.skipif(sys.platform != "linux", reason="attacks run in a copy of the process on Linux only")
def test_what_an_attack_changes_ends_with_it(store, monkeypatch):
    """The honest attack behind it, in the same worker, returns what it returns alone."""
    cells, _ = run(store, monkeypatch, "cheats:Poisons", "cheats:Plain")
    images = results.reconstruction(cells[1], store).images
    expected = torch.rand((20, 1, 16, 16), generator=torch.Generator().manual_seed(0))
    assert torch.equal(images, expected)


def test_no_code_of_an_attack_runs_where_scores_are_made(store, monkeypatch):
    _, alone = run(store, monkeypatch, "cheats:Plain")
    _, rows = run(store, monkeypatch, "prior_sample:cheats:ScoresItself", "cheats:HasFacts")
    assert rows.value.iloc[0] == pytest.approx(alone.value.iloc[0], abs=0.2) and rows.value.iloc[0] < 0.5


def test_roles_keep_parameters_out_of_black_box_processes():
    """A process that ran a white-box attack may still hold parameters: it never runs a black-box one."""
    for name in attacks.names():
        cls = attacks.get(name)
        assert (study.role("reconstruction", name) == "attack") == (cls.knowledge.model == WHITE_BOX)
    assert study.role("surrogate", None) == "black_box"
    assert set(study.ROLES) == {"data", "attack", "black_box"}


# The box


@pytest.fixture(scope="module")
def remote(store):
    box = RemoteBox(str(store.root))
    yield box
    box.process.kill()
    box.process.wait()


def test_a_served_box_answers_as_the_model_does(store, remote):
    from drlib.stored_model import restore

    target = study.plan(Cell(target=TARGET, attack="noise")).tasks["target"]
    view = remote.black_box((target.kind, target.key))
    model = restore(store.load(target.kind, target.key))
    images = torch.rand(7, *view.spec.shape, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(view.query(images), model.query(images), atol=1e-6)
    assert view.queries == 7 and view.spec == model.spec
    with pytest.raises(AccessError, match="does not grant 'logits'"):
        view.logits(images)


def test_a_box_refuses_in_one_line_and_goes_on(store, remote):
    target = study.plan(Cell(target=TARGET, attack="noise")).tasks["target"]
    with pytest.raises(UserError, match="serves target or update, not score"):
        remote.black_box(("score", "x"))
    with pytest.raises(UserError, match="no target artifact"):
        remote.black_box(("target", "absent"))
    view = remote.black_box((target.kind, target.key))
    assert len(view.query(torch.zeros(1, *view.spec.shape))) == 1


def test_an_update_is_served_before_and_after(store, remote):
    dynamic = TARGET.model_copy(update={"update": UpdateSpec(size=10)})
    update = study._update_task(dynamic)
    jobs = [
        pool.Job(
            update.kind,
            update.key,
            update.spec,
            {name: (parent.kind, parent.key) for name, parent in update.parents.items()},
            update.code,
            update.role,
            update.label,
        )
    ]
    silent = {"started": lambda job: None, "progressed": lambda job, share: None}
    pool.run(
        jobs, study.ROLES, store_root=str(store.root), workers=1, finished=lambda job, seconds: None, **silent
    )
    before = update.parents["target"]
    view = remote.update((update.kind, update.key), (before.kind, before.key))
    images = torch.rand(5, *view.spec.shape, generator=torch.Generator().manual_seed(0))
    assert not torch.allclose(view.query(images), view.query_before(images))
    assert view.queries == 10 and view.spec.recipe["update"]["optimizer"] == "sgd"
