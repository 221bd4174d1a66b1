"""Revealer: the search against known answers, the options, and (slow) what it gains over its prior."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from drlib import gan, latent_search, models, testing
from drlib.attacks.revealer import Revealer
from drlib.data import DataSpec, load_splits
from drlib.errors import UserError
from drlib.training import TrainSpec, accuracy, predict, train
from drlib.types import SAME, SIMILAR, Auxiliary, NoAccess, TargetSpec, WhiteBox, balanced_labels

FAST = Revealer(
    gan="hinge",
    prior_steps=60,
    critic_steps=1,
    z_dim=16,
    width=8,
    prior_batch_size=32,
    prior_learning_rate=1e-3,
    steps=20,
    learning_rate=5e-3,
    restarts=2,
)
N = 15


@pytest.fixture(scope="module")
def white_box() -> WhiteBox:
    return testing.example_white_box()


@pytest.fixture(scope="module")
def prepared(white_box) -> dict[str, torch.Tensor]:
    return testing.Trial(FAST).prepare(white_box, 0)


def run(white_box, prepared, n: int = N, seed: int = 0, **changes):
    return dataclasses.replace(FAST, **changes).reconstruct(
        white_box,
        prepared,
        n=n,
        labels=balanced_labels(n, 5),
        generator=torch.Generator().manual_seed(seed),
        progress=testing.silent,
    )


def confidences(white_box, result) -> torch.Tensor:
    return white_box.query(result.images).gather(1, result.labels[:, None])[:, 0]


def test_it_is_declared_for_similar_and_same_data_and_its_prior_sees_no_target():
    assert (Revealer.knowledge.dataset, Revealer.also_datasets) == (SIMILAR, (SAME,))
    assert Revealer.prepares and not Revealer.prior_sees_target and not Revealer.coupled
    spec = TargetSpec("none", (3, 9, 9), 2, False)
    tiny = dataclasses.replace(FAST, prior_steps=1, width=2)
    generator = torch.Generator().manual_seed(0)
    made = tiny.prepare(
        NoAccess(spec), Auxiliary(torch.rand(8, 3, 9, 9)), generator=generator, progress=testing.silent
    )
    labels = balanced_labels(4, 2)
    assert tiny.prior_samples(made, n=4, labels=labels, generator=generator).shape == (4, 3, 9, 9)


def test_without_steps_to_go_anywhere_it_returns_prior_samples(white_box, prepared):
    """Learning rate 0, no clip, one restart: the search must return exactly what it started from."""
    found = run(white_box, prepared, learning_rate=0.0, steps=1, clip=100.0, restarts=1)
    start = FAST.prior_samples(prepared, n=N, labels=found.labels, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(found.images, start)


def test_the_first_loss_is_the_published_one(white_box, prepared):
    found = run(white_box, prepared, steps=1, restarts=1)
    z = gan.latents(N, 16, torch.Generator().manual_seed(0))
    network = gan.unpack(prepared, "generator", lambda: gan.ImageGenerator((1, 16, 16), 16, 8), z)
    critic = gan.unpack(prepared, "critic", lambda: gan.Critic((1, 16, 16), 8, True), z)
    images = network(z)
    p = white_box.query(images).gather(1, found.labels[:, None])
    expected = (-100 * p.log()).mean() - critic(images).mean()
    assert float(found.loss_history[0]) == pytest.approx(float(expected), rel=1e-4)


def test_the_search_convinces_the_target(white_box, prepared):
    found = run(white_box, prepared)
    start = FAST.prior_samples(prepared, n=N, labels=found.labels, generator=torch.Generator().manual_seed(0))
    before = white_box.query(start).gather(1, found.labels[:, None]).mean()
    assert confidences(white_box, found).mean() > before + 0.2
    assert found.loss_history[-1] < found.loss_history[0]


def test_each_image_keeps_its_surest_restart(white_box, prepared):
    one, three = (run(white_box, prepared, restarts=count, steps=2) for count in (1, 3))
    # z_dim is 16, so that the first rows of the larger draw are the smaller one's.
    first, best = confidences(white_box, one), confidences(white_box, three)
    assert (best >= first - 1e-6).all()
    assert (best > first + 1e-3).sum() >= N // 3
    assert three.facts["confidence"] == pytest.approx(float(best.mean()), abs=1e-5)
    assert three.gradient_calls == 3 * one.gradient_calls == 3 * 2 * N


def test_latents_stay_in_the_box(white_box, prepared, monkeypatch):
    found = []
    search = latent_search.search
    monkeypatch.setattr(
        latent_search, "search", lambda *args, **more: found.append(search(*args, **more)) or found[-1]
    )
    run(white_box, prepared, clip=0.5)
    assert max(float(z.abs().max()) for z, _ in found) == pytest.approx(0.5)


def test_starting_from_the_best_candidates_starts_better(white_box, prepared):
    plain, chosen = (run(white_box, prepared, steps=1, candidates=count) for count in (0, 500))
    assert chosen.loss_history[0] < 0.7 * plain.loss_history[0]
    assert chosen.queries == plain.queries + 500


def test_fewer_candidates_than_starts_are_topped_up(white_box, prepared):
    assert len(run(white_box, prepared, steps=1, candidates=1)) == N


@pytest.mark.parametrize(
    "changes", [{"identity_loss": "max_margin"}, {"latent_optimizer": "adam"}, {"prior_weight": 5.0}]
)
def test_options_change_the_result(white_box, prepared, changes):
    assert not torch.equal(run(white_box, prepared).images, run(white_box, prepared, **changes).images)


def test_memory_and_cost_per_image_do_not_grow_with_n(white_box, prepared):
    """No batch that the networks see is larger than batch_size, and each row costs the same."""
    sizes = []
    hook = white_box.model.register_forward_hook(lambda _, inputs, __: sizes.append(len(inputs[0])))
    try:
        few, many = (run(white_box, prepared, n=n, steps=2, batch_size=8) for n in (10, 40))
    finally:
        hook.remove()
    assert max(sizes) <= 8
    assert many.gradient_calls == 4 * few.gradient_calls and many.queries == 4 * few.queries


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"gan": "wgan"}, "wgan_gp"),
        ({"identity_loss": "margin"}, "max_margin"),
        ({"latent_optimizer": "sgd"}, "nesterov"),
        ({"restarts": 0}, "restarts"),
        ({"candidates": -1}, "candidates"),
        ({"clip": -1.0}, "clip"),
        ({"learning_rate": float("nan")}, "learning_rate"),
    ],
)
def test_bad_hyperparameters_are_refused(values, message):
    with pytest.raises(UserError, match=message):
        Revealer(**values)


@pytest.mark.slow
def test_it_beats_its_own_prior_for_the_target_and_for_a_second_evaluator():
    splits = load_splits(DataSpec())
    target, shape = splits.target, (1, 16, 16)
    model = models.build("convnet", shape=shape, num_classes=5, generator_seed=0)
    train(model, target.images, target.labels, TrainSpec(), seed=0)
    evaluator = models.build("lenet", shape=shape, num_classes=5, generator_seed=1)
    train(evaluator, target.images, target.labels, TrainSpec(epochs=60), seed=1)
    assert accuracy(evaluator, splits.holdout.images, splits.holdout.labels) > 0.95
    attack = dataclasses.replace(
        FAST, prior_steps=500, critic_steps=2, z_dim=32, width=16, prior_batch_size=64, prior_betas=(0.0, 0.9)
    )
    attack = dataclasses.replace(attack, steps=100, learning_rate=1e-3)
    white_box = WhiteBox(model, TargetSpec.of(model, "convnet", shape, 5))
    prepared = attack.prepare(
        NoAccess(white_box.spec),
        Auxiliary(splits.auxiliary.images),
        generator=torch.Generator().manual_seed(0),
        progress=testing.silent,
    )
    labels, generator = balanced_labels(100, 5), torch.Generator().manual_seed(1)
    start = attack.prior_samples(prepared, n=100, labels=labels, generator=generator)
    found = attack.reconstruct(
        white_box, prepared, n=100, labels=labels, generator=generator, progress=testing.silent
    )
    sure = [predict(model, images).gather(1, labels[:, None]).mean() for images in (start, found.images)]
    right = [accuracy(evaluator, images, labels) for images in (start, found.images)]
    assert sure[0] < 0.4 and sure[1] > 0.95
    assert right[0] < 0.4 and right[1] > 0.85
