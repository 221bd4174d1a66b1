"""From cells to rows: planned once, computed once, resumed, refused before work, honest about gaps."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from drlib import attacker, attacks, pool, results, study, tasks
from drlib.cells import Cell, Target
from drlib.data import DataSpec, load_splits, target_subset
from drlib.errors import UserError
from drlib.metrics import sample_distance
from drlib.metrics.leakage import p_value
from drlib.progress import Estimate, Reporter
from drlib.published import load
from drlib.store import TENSORS, Artifact, Store
from drlib.training import TrainSpec

TRAINING = TrainSpec(epochs=2, min_steps=40)
TARGET = Target(size=20, width=0.25, training=TRAINING)
QUICK = {"mi_face": {"steps": 3}, "deep_inversion": {"steps": 3}}


def cell(attack: str, target: Target = TARGET, seed: int = 0, **changes) -> Cell:
    return Cell(target=target, attack=attack, hyperparameters=QUICK.get(attack, {}), seed=seed, **changes)


CELLS = [
    cell(attack)
    for attack in ("mi_face", "deep_inversion", "noise", "class_mean", "auxiliary_top", "holdout")
]


class Counting(Reporter):
    """A quiet reporter that remembers what it was told."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.done: list[str] = []
        self.notes: list[str] = []

    def finished(self, job, seconds):
        super().finished(job, seconds)
        self.done.append(job.kind)

    def note(self, message):
        self.notes.append(message)


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    store = Store(tmp_path_factory.mktemp("store"))
    study.run(CELLS, store=store, reporter=Reporter(quiet=True))
    return store


@pytest.fixture(scope="module")
def table(store):
    return results.results(CELLS, store=store, profile="test")


def test_shared_tasks_are_computed_once(store):
    kinds = [meta["kind"] for meta in store.ls()]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "target": 1,
        "evaluator": 2,
        "features": 2,
        "reconstruction": 2,
        "control": 4,
        "score": 6,
    }


def test_a_second_run_computes_nothing(store):
    reporter = Counting()
    study.run(CELLS, store=store, reporter=reporter)
    assert reporter.done == []


def test_rows_have_the_columns_of_the_published_tables_first(table):
    published = list(load("image_attacks").columns)
    assert list(table.columns[: len(published)]) == published
    assert set(table.metric) >= {"SSIM", "PSNR", "MSE", "FD-efficientnet_lite0", "Confidence"}
    assert set(table.attack) == {
        "MI-Face",
        "DeepInversion",
        "Noise",
        "Class mean",
        "Auxiliary top",
        "Holdout",
    }


def test_every_value_is_a_number_or_nan_with_a_reason(table):
    for row in table.itertuples():
        assert not math.isnan(row.value) or row.reason
        assert not math.isnan(row.gap) or row.reason or row.metric.startswith(("Confidence", "Accuracy"))


def test_everything_is_also_matched_among_all_classes(table, store):
    """One ruler for attacks with and without labels: a larger choice can only bring a target nearer."""
    ssim = table[table.metric == "SSIM"].set_index("attack")
    assert (ssim.matching == "class").all()
    assert (ssim.value_all_classes >= ssim.value).all() and (ssim.value_all_classes > ssim.value).any()
    made, target = results.reconstruction(cell("noise"), store), results.target_and_holdout(cell("noise"))[0]
    known = sample_distance(made.images, target.images, "ssim").distance
    assert ssim.value_all_classes["Noise"] == pytest.approx(known)


def test_hyperparameters_stand_beside_what_they_made(table):
    ssim = table[table.metric == "SSIM"].set_index("attack")
    assert (
        "steps 3" in ssim.hyperparameters["MI-Face"] and "cost one_minus_p" in ssim.hyperparameters["MI-Face"]
    )
    assert ssim.hyperparameters["Noise"] == ""


def test_the_holdout_has_no_gap_and_everybody_knows_its_coverage(table):
    holdout = table[table.attack == "Holdout"]
    assert holdout.gap.isna().all()
    ssim = table[table.metric == "SSIM"].set_index("attack")
    assert (ssim.coverage_holdout == ssim.coverage["Holdout"]).all()
    assert "itself" in ssim.reason["Holdout"]


def test_coverage_floor_and_chance_of_balanced_classes(table):
    ssim = table[table.metric == "SSIM"].set_index("attack")
    assert ssim.coverage_floor["Noise"] == pytest.approx(1 / 4)
    assert ssim.coverage_chance["Noise"] == pytest.approx(1 - (1 - 1 / 4) ** 4)
    assert ssim.matching["Noise"] == "class"


def test_provenance_names_what_made_a_number(table):
    row = table.iloc[0]
    assert row.profile == "test" and row.threads == "1" and row.n == 20 and row.m == 20
    assert row.seconds > 0 and row.peak_memory_mb > 10 and "torch" in row.versions
    line = results.provenance(table, "drlib run x")
    assert "`drlib run x`" in line and row.score_key in line and "evaluators lenet" in line


def test_the_group_size_of_a_coupled_attack_is_recorded(table):
    sizes = table[table.metric == "SSIM"].set_index("attack").group_size
    assert sizes["DeepInversion"] == 20
    assert math.isnan(sizes["MI-Face"])


def test_same_seed_same_bits(store):
    """What this process makes from the same specification equals what worker processes made."""
    planned = study.plan(CELLS[0]).tasks
    made = {name: store.load(planned[name].kind, planned[name].key) for name in ("target", "reconstruction")}
    again = {
        "target": tasks.train_target(planned["target"].spec, {}, lambda done, total: None),
        "reconstruction": attacker.reconstruct(
            planned["reconstruction"].spec, {"target": made["target"]}, lambda done, total: None
        ),
    }
    for name, (tensors, _) in again.items():
        assert tensors.keys() == made[name].tensors.keys()
        for part, tensor in tensors.items():
            assert torch.equal(tensor, made[name].tensors[part]), (name, part)


class _Wrong(attacks.get("mi_face")):
    """MI-Face that breaks one promise."""

    def __init__(self, fault):
        super().__init__(steps=1)
        object.__setattr__(self, "fault", fault)

    def reconstruct(self, access, prepared, **asked):
        made = super().reconstruct(access, prepared, **asked)
        return self.fault(access, made)


def _small(access, made):
    made.images = made.images[:, :, ::2, ::2]
    return made


def _few(access, made):
    made.images = made.images[1:]
    return made


def _relabeled(access, made):
    made.labels = made.labels * 0
    return made


def _trains(access, made):
    access.model.train()
    return made


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (_small, "asked for"),
        (_few, "asked for"),
        (_relabeled, "labels"),
        (_trains, "as it found it"),
        (lambda access, made: made.images, "expected a drlib.types.Reconstruction"),
    ],
)
def test_an_attack_that_breaks_a_promise_is_refused(store, monkeypatch, fault, message):
    planned = study.plan(CELLS[0]).tasks
    target = store.load("target", planned["target"].key)
    monkeypatch.setattr(attacks, "create", lambda name, hyperparameters: _Wrong(fault))
    with pytest.raises(UserError, match=message):
        attacker.reconstruct(planned["reconstruction"].spec, {"target": target}, lambda done, total: None)


def test_another_seed_gives_another_reconstruction_of_the_same_target(store):
    first, second = study.plan(cell("mi_face")), study.plan(cell("mi_face", seed=1))
    assert first.tasks["target"].key == second.tasks["target"].key
    assert first.tasks["reconstruction"].key != second.tasks["reconstruction"].key


def test_a_damaged_artifact_is_reported_and_computed_again(store, tmp_path):
    shutil.copytree(store.root, tmp_path / "copy")
    damaged = Store(tmp_path / "copy")
    planned = study.plan(cell("noise")).tasks
    path = damaged.folder("control", planned["reconstruction"].key) / TENSORS
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    (damaged.folder("score", planned["score"].key) / TENSORS).write_bytes(b"")
    reporter = Counting()
    study.run([cell("noise")], store=damaged, reporter=reporter)
    assert sorted(reporter.done) == ["control", "score"]
    assert sum("damaged" in note for note in reporter.notes) == 2
    assert path.read_bytes() == whole


@pytest.mark.parametrize("name", ["target", "evaluator_1", "reconstruction"])
def test_a_damaged_parent_is_computed_again_although_the_score_is_sound(store, tmp_path, name):
    shutil.copytree(store.root, tmp_path / "copy")
    damaged = Store(tmp_path / "copy")
    task = study.plan(cell("noise")).tasks[name]
    (damaged.folder(task.kind, task.key) / TENSORS).write_bytes(b"")
    reporter = Counting()
    jobs = study.missing_jobs([study.plan(cell("noise"))], damaged, reporter)
    assert [job.key for job in jobs] == [task.key]
    assert any("damaged" in note for note in reporter.notes)


def test_a_data_set_without_holdout_runs_and_says_why_there_is_no_gap(tmp_path):
    faces = DataSpec(name="lfw_subset", side=16, mode="identity")
    lonely = [
        cell(attack, TARGET.model_copy(update={"data": faces, "size": 10})) for attack in ("noise", "holdout")
    ]
    store = Store(tmp_path)
    study.run(lonely, store=store, reporter=Reporter(quiet=True))
    table = results.results(lonely, store=store)
    rows = table[table.metric == "SSIM"].set_index("attack")
    assert rows.coverage["Noise"] == 1.0  # one target per class
    assert math.isnan(rows.gap["Noise"]) and "no holdout" in rows.reason["Noise"]
    assert math.isnan(rows.value["Holdout"]) and "no holdout" in rows.reason["Holdout"]


def test_an_attack_that_cannot_work_gives_nan_with_its_reason(tmp_path):
    impossible = cell("deep_inversion", TARGET.model_copy(update={"architecture": "lenet"}))
    store = Store(tmp_path)
    study.run([impossible], store=store, reporter=Reporter(quiet=True))
    table = results.results([impossible], store=store)
    assert list(store.ls()) == []
    assert set(table.metric) == {"SSIM", "PSNR", "MSE", "FD-efficientnet_lite0"}
    assert table.value.isna().all() and table.reason.str.contains("BatchNorm").all()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (cell("mi_face", TARGET.model_copy(update={"size": 401})), "400"),
        (cell("mi_fase"), "did you mean 'mi_face'"),
        (Cell(target=TARGET, attack="mi_face", hyperparameters={"stepps": 3}), "did you mean 'steps'"),
        (cell("mi_face", extractor="inceptoin"), "inception"),
    ],
)
def test_bad_cells_are_refused_before_any_work(tmp_path, bad, message):
    store = Store(tmp_path)
    with pytest.raises(UserError, match=message):
        study.run([*CELLS[:1], bad], store=store, reporter=Reporter(quiet=True))
    assert list(store.ls()) == []


def _scored(store: Store, images: torch.Tensor, labels: torch.Tensor | None) -> tuple[dict, dict]:
    """Score given images as if an attack had returned them."""
    planned = study.plan(cell("noise")).tasks
    parents = {
        name: store.load(task.kind, task.key)
        for name, task in planned.items()
        if name not in ("score", "reconstruction")
    }
    tensors = {"images": images} | ({} if labels is None else {"labels": labels})
    parents["reconstruction"] = Artifact("k", "reconstruction", {}, {}, {}, tensors)
    return tasks.score(planned["score"].spec, parents, lambda done, total: None)


def test_the_gap_of_psnr_is_nan_when_images_are_copied(store, splits):
    target = target_subset(splits, 20)
    tensors, data = _scored(store, torch.cat([target.images[:10], 1 - target.images[10:]]), target.labels)
    score = Artifact("k", "score", {}, {}, {}, tensors, data)
    assert results._gap("SSIM", [score])["gap"] > 0
    psnr = results._gap("PSNR", [score])
    assert "gap" not in psnr and "copy is infinite" in psnr["reason"]


@pytest.fixture(scope="module")
def splits():
    return load_splits(DataSpec())


def test_copies_of_the_training_images_are_a_leak_in_every_metric(store, splits):
    target = target_subset(splits, 20)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    tensors, data = _scored(store, target.images[order], target.labels[order])
    assert data["MSE.distance"] == 0.0 and data["PSNR.copies"] == 20
    assert data["SSIM.distance"] == pytest.approx(1.0, abs=1e-6)
    assert data["SSIM.coverage"] == 1.0
    assert torch.equal(tensors["SSIM.nearest"], order)
    assert (tensors["SSIM.target_m.values"] - tensors["SSIM.holdout_m.values"]).mean() > 0.05
    for metric in ("SSIM", "MSE"):
        observed = tensors[f"{metric}.target_m.values"] - tensors[f"{metric}.holdout_m.values"]
        gap = float(observed.mean()) * (-1 if metric == "MSE" else 1)
        gaps = tensors[f"{metric}.resplit_gaps"]
        assert float(gaps[0]) == pytest.approx(gap, abs=1e-6) and p_value(gaps) < 0.01
    assert data["FD-efficientnet_lite0.target_m.distance"] < data["FD-efficientnet_lite0.holdout_m.distance"]


def test_holdout_images_returned_by_an_attack_have_a_negative_gap(store, splits):
    order = tasks.class_cyclic(splits.holdout.labels, 5)[:20]
    tensors, _ = _scored(store, splits.holdout.images[order], splits.holdout.labels[order])
    gap = (tensors["SSIM.target_m.values"] - tensors["SSIM.holdout_m.values"]).mean()
    assert gap < -0.05
    assert p_value(tensors["SSIM.resplit_gaps"]) > 0.99


def test_wrong_labels_restrict_the_search_to_the_wrong_class(store, splits):
    target = target_subset(splits, 20)
    _, right = _scored(store, target.images, target.labels)
    _, wrong = _scored(store, target.images, (target.labels + 1) % 5)
    _, unlabeled = _scored(store, target.images, None)
    assert wrong["SSIM.distance"] < right["SSIM.distance"] - 0.2
    assert unlabeled["matching"] == "all" and unlabeled["SSIM.distance"] == pytest.approx(1.0, abs=1e-6)
    assert unlabeled["Confidence.distance"] is None


def test_class_means_fall_back_to_the_overall_mean():
    auxiliary = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    probabilities = torch.eye(3)[[0, 0, 1, 1, 1, 0]]
    means = tasks.class_means(auxiliary, probabilities, torch.tensor([0, 1, 2]))
    assert torch.allclose(means[0], auxiliary[[0, 1, 5]].mean(0))
    assert torch.allclose(means[2], auxiliary.mean(0))


def test_auxiliary_top_ranks_by_the_targets_probability_and_starts_again():
    auxiliary = torch.arange(3.0).view(3, 1, 1, 1).expand(3, 1, 8, 8) / 3
    probabilities = torch.tensor([[0.1, 0.9], [0.7, 0.3], [0.5, 0.5]])
    top = tasks.auxiliary_top(auxiliary, probabilities, torch.tensor([0, 1, 0, 0, 0]))
    assert [round(float(image.flatten()[0] * 3)) for image in top] == [1, 0, 2, 0, 1]


def test_an_attacks_key_does_not_depend_on_scoring(store):
    """Another extractor or comparison size gives another score of the same reconstruction."""
    first, second = study.plan(cell("mi_face")), study.plan(cell("mi_face", equal_size=10))
    assert first.tasks["reconstruction"].key == second.tasks["reconstruction"].key
    assert first.tasks["score"].key != second.tasks["score"].key


GUARDED = """
import importlib, json, os, sys
from pathlib import Path
from drlib import guard
from drlib.types import AccessError
root = sys.argv[1]
guard.install(root)
os.chdir(root)
os.symlink(root + "/score", root + "/target/link")
open(root + "/target/x/artifact.json").close()  # before the attack runs, its parents are read
for attempt in json.loads(sys.argv[2]):
    try:
        with guard.sealed():
            exec(attempt)
    except AccessError:
        print("refused")
    else:
        print("allowed")
"""

REFUSED = (
    "open(root + '/score/x/tensors.safetensors')",
    "Path(root + '/features/x/tensors.safetensors').read_bytes()",
    "os.open(root + '/control/x/artifact.json', os.O_RDONLY)",
    "open(root + '/target/../score/x/tensors.safetensors')",
    "open(os.fsencode(root + '/score/x/tensors.safetensors'))",
    "open('score/x/tensors.safetensors')",
    "open('target/link/x/artifact.json')",
    "open(root + '/target/x/tensors.safetensors')",
    "os.rename(root + '/score', root + '/elsewhere')",
    "os.link(root + '/score/x/artifact.json', root + '/elsewhere')",
    "import subprocess; subprocess.run(['true'])",
    "os.system('true')",
    "import drlib.data",
    "from sklearn import datasets",
    "importlib.import_module('skimage.data')",
)


def test_an_attacks_process_is_refused_what_comes_from_d_tar(tmp_path):
    for kind in ("score", "features", "control", "target"):
        (tmp_path / kind / "x").mkdir(parents=True)
        (tmp_path / kind / "x" / "artifact.json").write_text("{}")
        (tmp_path / kind / "x" / "tensors.safetensors").write_bytes(b"")
    attempts = [*REFUSED, "open('/dev/null')"]
    command = [sys.executable, "-c", GUARDED, str(tmp_path), json.dumps(attempts)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert dict(zip(attempts, done.stdout.split(), strict=True)) == {
        attempt: "refused" if attempt in REFUSED else "allowed" for attempt in attempts
    }, done.stderr


RUN_FOREVER = """
import sys
from drlib import study
from drlib.cells import Cell, Target
from drlib.progress import Reporter
from drlib.store import Store
cells = [Cell(target=Target(size=20, width=0.25), attack="mi_face",
              hyperparameters={"steps": 200000, "confidence": 1.0, "patience": 200000})]
study.run(cells, store=Store(sys.argv[1]), reporter=Reporter(quiet=True))
"""


def _workers(root: str) -> list[int]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        except OSError:
            continue
        if root in command and "-m" in command:
            found.append(int(pid))
    return found


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs /proc")
def test_killed_hard_no_worker_stays_and_finished_work_is_kept(tmp_path):
    root = str(tmp_path / "killed")
    process = subprocess.Popen([sys.executable, "-c", RUN_FOREVER, root])
    deadline = time.time() + 240
    while not list(Store(root).ls()) and time.time() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list(Store(root).ls()), "nothing was finished in two minutes"
    deadline = time.time() + 60  # a worker may still be importing when its parent is killed
    while _workers(root) and time.time() < deadline:
        time.sleep(0.1)
    assert _workers(root) == []
    assert Store(root).verify()[1] == []


def test_a_worker_whose_parent_is_gone_before_it_is_ready_ends(tmp_path):
    command = [sys.executable, "-m", "drlib.tasks", str(tmp_path), "1"]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert worker.wait(timeout=120) == 1


def test_a_failing_job_names_itself_and_keeps_its_traceback(tmp_path):
    spec = {**study._d_tar(TARGET), "control": "class_mean", "n": 5, "seed": 0}
    job = pool.Job("control", "k", spec, {"target": ("target", "absent")}, {}, "data", "score nothing")
    with pytest.raises(pool.JobFailed, match=r"score nothing failed: .*no target artifact absent") as error:
        pool.run(
            [job],
            study.ROLES,
            store_root=str(tmp_path),
            workers=1,
            started=lambda job: None,
            progressed=lambda job, share: None,
            finished=lambda job, seconds: None,
        )
    assert "\n" not in str(error.value)
    (kept,) = (tmp_path / "failed").iterdir()
    assert "Traceback" in kept.read_text() and str(kept) in str(error.value)


def _job(key: str, kind: str = "score") -> pool.Job:
    return pool.Job(kind, key, {}, {}, {}, "data", key)


def test_time_left_is_unknown_then_learned():
    jobs = [_job(key) for key in "abcd"]
    estimate = Estimate(jobs, workers=2)
    assert estimate.time_left({}) is None
    estimate.finished(jobs[0], 10.0)
    assert estimate.time_left({}) == pytest.approx(15.0)
    assert estimate.time_left({"b": (4.0, 0.0)}) == pytest.approx(13.0)
    assert estimate.time_left({"b": (4.0, 0.5)}) == pytest.approx(12.0)


def test_time_left_of_a_kind_not_seen_yet_follows_typical_ratios():
    estimate = Estimate([_job("a", "score"), _job("b", "control"), _job("c", "control")], workers=1)
    assert estimate.time_left({"a": (5.0, 0.5)}) == pytest.approx(5.0 + 2 * 0.5)
    estimate.finished(_job("a", "score"), 10.0)
    assert estimate.time_left({}) == pytest.approx(2 * 0.5)


def test_unfinished_parents_come_first(tmp_path):
    planned = study.plan(cell("mi_face"))
    jobs = study.missing_jobs([planned], Store(tmp_path), Reporter(quiet=True))
    position = {job.key: index for index, job in enumerate(jobs)}
    for job in jobs:
        assert job.waits_for == {key for _, key in job.parents.values()}
        assert all(position[key] < position[job.key] for key in job.waits_for if job.kind == "score")
    json.dumps([job.spec for job in jobs])  # jobs travel as JSON
