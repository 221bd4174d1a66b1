"""Dynamic targets, checkpoints and first stages: what is trained, observed, handed over and recorded."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
import torch

from drlib import models, profiles, results, study, tasks
from drlib.cells import Cell, Target, UpdateSpec
from drlib.data import DataSpec, load_splits
from drlib.errors import UserError
from drlib.store import Artifact, Store
from drlib.stored_model import restore
from drlib.surrogate import SurrogateSpec
from drlib.training import TrainSpec

TRAINING = TrainSpec(epochs=3, min_steps=0, batch_size=10)
TARGET = Target(size=20, width=0.25, training=TRAINING)
DYNAMIC = TARGET.model_copy(update={"update": UpdateSpec(size=10, batch_size=5)})


def silent(done: int, total: int) -> None:
    """No progress."""


def made(task: study.Task, parents: dict[str, Artifact] | None = None) -> Artifact:
    """The artifact of a task, made in this process."""
    tensors, data = study.producer(task.kind)(task.spec, parents or {}, silent)
    return Artifact(task.key, task.kind, task.spec, {}, task.code, tensors, data)


@pytest.fixture(scope="module")
def splits():
    return load_splits(DataSpec())


@pytest.fixture(scope="module")
def target() -> Artifact:
    return made(study.target_task(TARGET))


def test_a_dynamic_target_shares_the_model_before_its_update():
    assert study.target_task(DYNAMIC).key == study.target_task(TARGET).key


@pytest.mark.parametrize(("checkpoint", "steps"), [("init", 0), ("epoch:1", 2), ("epoch:2", 4), ("final", 6)])
def test_a_checkpoint_lies_on_the_way_of_the_same_training(checkpoint, steps):
    made_there = made(study.target_task(TARGET.model_copy(update={"checkpoint": checkpoint})))
    assert made_there.data["steps"] == steps
    fresh = models.build("convnet", shape=(1, 16, 16), num_classes=5, width=0.25, generator_seed=0)
    same = [torch.equal(value, made_there.tensors[name]) for name, value in fresh.state_dict().items()]
    assert all(same) == (checkpoint == "init")


def test_checkpoints_have_keys_of_their_own():
    keys = {
        study.target_task(TARGET.model_copy(update={"checkpoint": checkpoint})).key
        for checkpoint in ("init", "epoch:1", "final")
    }
    assert len(keys) == 3


@pytest.mark.parametrize("checkpoint", ["last", "epoch", "epoch:0", "epoch:x", "epoch:-1"])
def test_an_unknown_checkpoint_is_refused(checkpoint):
    with pytest.raises(ValueError, match="checkpoint must be init, final or epoch:k"):
        Target(checkpoint=checkpoint)


def test_the_update_goes_on_training_with_new_images(target, splits):
    updated = made(study._update_task(DYNAMIC), {"target": target})
    before, after = restore(target), restore(updated)
    new = splits.update.images[:10]
    labels = splits.update.labels[:10]
    loss = [torch.nn.functional.cross_entropy(view.model(new), labels) for view in (before, after)]
    assert loss[1] < loss[0]
    assert after.spec.recipe["update"] == DYNAMIC.update.training.model_dump()
    assert before.spec.recipe["size"] == 20 and "update" not in before.spec.recipe


def test_observed_gradients_are_those_of_each_batch_in_eval_mode(target, splits):
    observed = made(study._gradients_task(DYNAMIC), {"target": target})
    assert observed.data["batch_size"] == 5
    model = restore(target).model.requires_grad_(True)
    for batch in range(2):
        rows = slice(5 * batch, 5 * batch + 5)
        loss = torch.nn.functional.cross_entropy(
            model(splits.update.images[rows]), splits.update.labels[rows]
        )
        wanted = torch.autograd.grad(loss, list(model.parameters()))
        for (name, _), gradient in zip(model.named_parameters(), wanted, strict=True):
            assert torch.allclose(observed.tensors[name][batch], gradient, atol=1e-5), name


def test_a_batch_that_does_not_divide_the_update_is_refused():
    uneven = TARGET.model_copy(update={"update": UpdateSpec(size=10, batch_size=4)})
    with pytest.raises(UserError, match="batch_size must divide its size, got 4 and 10"):
        study.plan(Cell(target=uneven, attack="noise"))


def test_what_is_reconstructed_are_the_updates_images(splits):
    cell = Cell(target=DYNAMIC, attack="noise")
    assert cell.samples == 10
    planned = study.plan(cell).tasks
    spec = planned["score"].spec
    assert torch.equal(tasks.target_images(splits, spec).images, splits.update.images[:10])
    static = study.plan(Cell(target=TARGET, attack="noise")).tasks["score"].spec
    assert torch.equal(tasks.target_images(splits, static).images, splits.target.images[:20])


@pytest.mark.parametrize(
    ("target", "attack", "message"),
    [
        (DYNAMIC, "mi_face", "MI-Face attacks a static target"),
        (TARGET, "deep_leakage", "Deep-Leakage attacks a dynamic target: set the target's update"),
        (TARGET, "prior_sample:mi_face", "MI-Face has no prior to sample from"),
        (
            TARGET.model_copy(update={"checkpoint": "epoch:999"}),
            "mi_face",
            "checkpoint epoch:999: the target's training has only 3 epochs",
        ),
        (
            TARGET.model_copy(update={"checkpoint": "init"}),
            "inv_alignment",
            "Inv-Alignment has a black box, but the parameters of checkpoint init follow from its seed",
        ),
    ],
)
def test_an_attack_on_the_wrong_kind_of_target_is_refused(target, attack, message):
    with pytest.raises(UserError, match=message):
        study.plan(Cell(target=target, attack=attack))


def test_more_images_than_the_gradients_are_of_are_refused_before_any_work():
    with pytest.raises(UserError, match="sees gradients of 10 images: n=11 is too many"):
        study.plan(Cell(target=DYNAMIC, attack="deep_leakage", n=11))


def test_a_surrogate_is_what_an_attack_must_support():
    """DeepInversion needs BatchNorm: of the model that it attacks, not of the black box behind it."""
    without = TARGET.model_copy(update={"architecture": "lenet"})
    student = SurrogateSpec(architecture="convnet")
    assert study.explain_unsupported(Cell(target=without, attack="deep_inversion", surrogate=student)) is None
    student = SurrogateSpec(architecture="lenet")
    reason = study.explain_unsupported(Cell(target=TARGET, attack="deep_inversion", surrogate=student))
    assert "BatchNorm" in reason


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Target(checkpoint="inti"), "checkpoint must be init, final or epoch:k"),
        (lambda: Target(size=1), "size: input should be greater than or equal to 2, got 1"),
        (lambda: Target(sise=10), "unknown parameter 'sise'; did you mean 'size'"),
        (lambda: Cell(target=TARGET, attack="noise:foo"), "the control noise samples no attack's prior"),
        (
            lambda: SurrogateSpec(method="extraction", queries=10),
            "extraction needs 1792 queries",
        ),
    ],
)
def test_cells_are_refused_in_one_line(make, message):
    with pytest.raises(UserError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


def test_an_update_larger_than_its_split_is_refused():
    large = TARGET.model_copy(update={"update": UpdateSpec(size=101)})
    with pytest.raises(UserError, match=r"update size 101 is larger than the update split of digits \(100"):
        study.plan(Cell(target=large, attack="noise"))


# Auxiliary data and first stages


def shared_spec() -> dict:
    return {"data": DataSpec().model_dump()}


def test_auxiliary_data_share_no_image_and_no_class_with_the_target(splits):
    tensors, data = tasks.share_auxiliary(shared_spec(), {}, silent)
    assert not set(data["classes"]) & set(splits.classes) and not data["classes_shared_with_target"]
    assert data["sha256"] == hashlib.sha256(tensors["images"].numpy().tobytes()).hexdigest()
    there = {image.numpy().tobytes() for image in tensors["images"]}
    for name in ("target", "holdout", "update", "test"):
        assert not there & {image.numpy().tobytes() for image in getattr(splits, name).images}


def test_auxiliary_data_that_overlap_are_refused(splits, monkeypatch):
    leaked = replace(splits, auxiliary=splits.target)
    monkeypatch.setattr(tasks, "load_splits", lambda spec: leaked)
    with pytest.raises(UserError, match="auxiliary data share images with other splits"):
        tasks.share_auxiliary(shared_spec(), {}, silent)


def test_auxiliary_classes_that_are_the_targets_are_refused(splits, monkeypatch):
    leaked = replace(splits, auxiliary_classes=(splits.classes[0], *splits.auxiliary_classes[1:]))
    monkeypatch.setattr(tasks, "load_splits", lambda spec: leaked)
    with pytest.raises(UserError, match="auxiliary and target data share the classes 0"):
        tasks.share_auxiliary(shared_spec(), {}, silent)


def test_a_prior_that_does_not_see_the_target_serves_all_sizes():
    """Revealer's prior is trained once, KEDMI's for every target."""

    def prior(attack: str, size: int) -> study.Task:
        cell = Cell(target=TARGET.model_copy(update={"size": size}), attack=attack)
        return study.plan(cell).tasks["reconstruction"].parents["prepared"]

    assert "target" not in prior("revealer", 20).parents
    assert prior("revealer", 20).key == prior("revealer", 40).key
    assert "target" in prior("kedmi", 20).parents
    assert prior("kedmi", 20).key != prior("kedmi", 40).key


def test_a_prior_is_shared_by_settings_that_do_not_enter_it():
    def prior(**hyperparameters) -> str:
        cell = Cell(target=TARGET, attack="revealer", hyperparameters=hyperparameters)
        return study.plan(cell).tasks["reconstruction"].parents["prepared"].key

    assert prior(steps=3) == prior(steps=7)
    assert prior(prior_steps=3) != prior(prior_steps=7)


def test_the_control_of_a_prior_samples_the_very_prior_of_the_attack():
    attack = study.plan(Cell(target=TARGET, attack="revealer", hyperparameters={"steps": 3})).tasks
    control = study.plan(
        Cell(target=TARGET, attack="prior_sample:revealer", hyperparameters={"steps": 9})
    ).tasks
    samples = control["reconstruction"].parents["samples"]
    assert attack["reconstruction"].parents["prepared"].key == samples.parents["prepared"].key
    assert samples.role == "black_box"  # the attack's code draws them, so never where D_tar is


def test_the_best_of_a_prior_is_what_the_target_is_surest_of(tmp_path):
    """Selection without optimization: more confident than samples as they come, labels balanced."""
    settings = profiles.load("smoke").attacks["revealer"]
    trained = TARGET.model_copy(update={"training": TrainSpec(epochs=10, min_steps=100)})
    cells = {
        name: Cell(target=trained, attack=f"{name}:revealer", hyperparameters=settings)
        for name in ("prior_sample", "prior_best")
    }
    store = Store(tmp_path)
    study.run(cells.values(), store=store)
    made = {name: results.reconstruction(cell, store) for name, cell in cells.items()}
    sure = {name: results.score(cell, store).data["Confidence.distance"] for name, cell in cells.items()}
    assert sure["prior_best"] > sure["prior_sample"] + 0.1
    assert torch.equal(made["prior_best"].labels, made["prior_sample"].labels)
    with pytest.raises(UserError, match="wants no class"):
        study.plan(Cell(target=TARGET, attack="prior_best:updates_leak"))
