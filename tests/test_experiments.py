"""Ensembles for memorization, robust evaluators, generated training sets: small cases with known answers."""

from __future__ import annotations

import pytest
import torch

from drlib import results, study
from drlib.cells import Target, UpdateSpec
from drlib.data import DataSpec, load_splits
from drlib.errors import UserError
from drlib.experiments.ensemble import PART, Ensemble, chosen, flip_labels, model_seed, train_part
from drlib.experiments.generated_set import GeneratedSet, Recorder
from drlib.experiments.robust import RobustEvaluator, adversarial, train_robust
from drlib.metrics.memorization import complete_or_without, memorization
from drlib.progress import Reporter
from drlib.store import Store
from drlib.surrogate import SurrogateSpec
from drlib.training import TrainSpec, predict

FAST = TrainSpec(epochs=2, min_steps=60)
TARGET = Target(size=40, architecture="mlp", width=0.25, training=FAST)


def spec_of(ensemble: Ensemble, **part) -> dict:
    (task, *_) = study.plan(ensemble).tasks.values()
    return {**task.spec, **part}


def silent(done: int, total: int) -> None:
    pass


def test_subsets_have_one_size_and_do_not_depend_on_how_many_models_there_are():
    spec = spec_of(Ensemble(target=TARGET, models=200))
    rows = torch.stack([chosen(index, 40, spec) for index in range(200)])
    assert (rows.sum(1) == 28).all()
    assert len({tuple(row.tolist()) for row in rows}) == 200
    assert (rows.double().mean(0) - 0.7).abs().max() < 0.15
    few, many = (Ensemble(target=TARGET, models=count) for count in (PART, 3 * PART))
    keys = [[task.key for task in study.plan(each).tasks.values()] for each in (few, many)]
    assert keys[1][0] == keys[0][0] and len(keys[1]) == 3


def test_leave_one_out_leaves_each_image_out_as_often():
    ensemble = Ensemble(target=TARGET, design="leave_one_out", models=3)
    spec = spec_of(ensemble)
    rows = torch.stack([chosen(index, 40, spec) for index in range(ensemble.total)])
    assert rows.shape == (3 * 41, 40)
    assert ((~rows).sum(0) == 3).all() and int(rows.all(1).sum()) == 3
    assert complete_or_without(rows).sum(0).tolist() == [6] * 40


def test_no_two_models_share_a_seed():
    seeds = {model_seed(seed, index) for seed in range(3) for index in range(500)}
    assert len(seeds) == 1500
    assert model_seed(0, 1) != model_seed(0, 1, "subset")


def test_flipped_labels_are_wrong_and_the_others_stay():
    labels = torch.arange(200) % 5
    changed, flipped = flip_labels(labels, 5, 0.1, seed=3)
    assert int(flipped.sum()) == 20
    assert (changed[flipped] != labels[flipped]).all() and torch.equal(changed[~flipped], labels[~flipped])
    assert changed.min() >= 0 and changed.max() <= 4
    assert torch.equal(flip_labels(labels, 5, 0.1, seed=3)[0], changed)


def test_a_part_trains_each_model_on_its_subset_alone():
    """The models side by side answer as one that is trained alone does."""
    from drlib import models
    from drlib.training import train

    spec = spec_of(Ensemble(target=TARGET, models=6), first=2, count=3)
    tensors, data = train_part(spec, {}, silent)
    assert tensors["inside"].shape == tensors["probability"].shape == (3, 40) and data["n"] == 40
    target = load_splits(TARGET.data).target
    images, labels = target.images[:40], target.labels[:40]
    row = tensors["inside"][1]
    seed = model_seed(0, 3)
    model = models.build("mlp", shape=tuple(images.shape[1:]), num_classes=5, width=0.25, generator_seed=seed)
    train(model, images[row], labels[row], FAST, seed=seed)
    alone = predict(model, images).gather(1, labels[:, None])[:, 0]
    assert torch.allclose(tensors["probability"][1], alone, atol=1e-3)


def test_flipped_labels_are_memorized_and_an_ensemble_is_stored_in_parts(tmp_path):
    store = Store(tmp_path)
    target = TARGET.model_copy(update={"size": 60, "training": TrainSpec(epochs=20, min_steps=200)})
    ensemble = Ensemble(target=target, models=PART + 5, flipped=0.1)
    study.run([ensemble], store=store, reporter=Reporter(quiet=True))
    told = results.ensemble(ensemble, store)
    assert told["inside"].shape == (PART + 5, 60) and 0.5 < told["test_accuracy"] <= 1
    found = memorization(told["inside"], told["probability"])
    assert found.values[told["flipped"]].mean() > 0.5
    assert found.values[told["flipped"]].mean() > found.values[~told["flipped"]].mean() + 0.3
    assert "seeds 0" in results.provenance_of([ensemble], "command", "test", store)
    with pytest.raises(UserError, match="compute it first"):
        results.ensemble(ensemble.model_copy(update={"ratio": 0.5}), store)


def test_fewer_classes_keep_the_images_per_class():
    ensemble = Ensemble(target=TARGET.model_copy(update={"size": 16}), classes=2, models=4)
    tensors, _ = train_part(spec_of(ensemble, count=2), {}, silent)
    assert sorted(tensors["labels"].tolist()) == [0] * 8 + [1] * 8


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Ensemble(target=TARGET, ratio=0.01), "no subset of 2 images"),
        (lambda: Ensemble(target=TARGET.model_copy(update={"update": UpdateSpec()})), "static target"),
        (lambda: study.plan(Ensemble(target=TARGET.model_copy(update={"size": 390}), classes=2)), "has only"),
        (lambda: Ensemble(target=TARGET, design="jackknife"), "design"),
    ],
)
def test_refusals_are_one_line(make, says):
    with pytest.raises(UserError, match=says) as error:
        make()
    assert "\n" not in str(error.value)


def test_adversarial_images_stay_near_and_raise_the_loss():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
    images, labels = torch.rand(20, 1, 8, 8), torch.arange(20) % 3
    found = adversarial(model, images, labels, 0.1, 5, torch.Generator().manual_seed(0))
    assert (found - images).abs().max() <= 0.1 + 1e-6 and found.min() >= 0 and found.max() <= 1
    before, after = (torch.nn.functional.cross_entropy(model(x), labels) for x in (images, found))
    assert after > before + 0.1
    # a linear model's worst image is known: every pixel to the end that the gradient's sign says
    (slope,) = torch.autograd.grad(
        torch.nn.functional.cross_entropy(model(found.requires_grad_(True)), labels, reduction="sum"), found
    )
    worst = (images + 0.1 * slope.sign()).clamp(0, 1)
    assert torch.nn.functional.cross_entropy(model(worst), labels) - after < 0.02


def test_a_robust_evaluator_withstands_what_a_plain_one_does_not(tmp_path):
    how = TrainSpec(epochs=10, min_steps=100)
    robust = RobustEvaluator(architecture="mlp", width=0.5, training=how, epsilon=0.15)
    (task,) = study.plan(robust).tasks.values()
    _, data = train_robust(task.spec, {}, silent)
    plain = Target(size=400, architecture="mlp", width=0.5, training=how)
    store = Store(tmp_path)
    study.run([robust], store=store, reporter=Reporter(quiet=True))
    again = results.artifact(robust, store)
    assert again.data["adversarial_accuracy"] == pytest.approx(data["adversarial_accuracy"])  # deterministic
    from drlib import models
    from drlib.training import accuracy, train

    splits = load_splits(DataSpec())
    model = models.build("mlp", shape=(1, 16, 16), num_classes=5, width=0.5, generator_seed=0)
    train(model, splits.target.images, splits.target.labels, plain.training, seed=0)
    test = splits.test
    generator = torch.Generator().manual_seed(0)
    attacked = adversarial(model, test.images, test.labels, 0.15, 20, generator)
    assert data["test_accuracy"] > 0.8
    assert data["adversarial_accuracy"] > accuracy(model, attacked, test.labels) + 0.2


def test_a_recorder_keeps_a_uniform_sample_with_its_answers():
    images = torch.linspace(0, 1, 1000)[:, None, None, None]
    kept = torch.zeros(1000)

    class Box:
        class spec:
            shape, num_classes = (1, 1, 1), 2

        def query(self, x):
            return torch.cat([x.flatten(1), 1 - x.flatten(1)], dim=1)

    for seed in range(200):
        recorder = Recorder(Box(), 50, torch.Generator().manual_seed(seed))
        for part in images.split(64):
            recorder.query(part)
        assert torch.allclose(recorder.answers[:, 0], recorder.images.flatten())
        kept[(recorder.images.flatten() * 999).round().long()] += 1
    thirds = [part.sum() / kept.sum() for part in kept.split(334)]
    assert max(thirds) - min(thirds) < 0.03


def test_a_generated_set_trains_a_model_and_holds_no_real_image(tmp_path):
    store = Store(tmp_path)
    target = Target(size=100, architecture="mlp", width=0.25, training=TrainSpec(epochs=5, min_steps=100))
    small = SurrogateSpec(
        method="extraction", architecture="mlp", width=0.25, queries=4000, batch_size=64, generator_width=4,
        z_dim=16,
    )  # fmt: skip
    made = GeneratedSet(target=target, extraction=small, images=300)
    study.run([made], store=store, reporter=Reporter(quiet=True))
    artifact = results.artifact(made, store)
    assert artifact.tensors["images"].shape == (300, 1, 16, 16)
    assert artifact.tensors["images"].min() >= 0 and artifact.tensors["images"].max() <= 1
    assert artifact.data["queries"] <= 4000 and 0 <= artifact.data["accuracy"] <= 1
