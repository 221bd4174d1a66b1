"""Updates-Leak: what its parts compute, that it asks what it may, and whether it uses the leak."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from drlib import best_of_many, models, shadow, training
from drlib.attacks.updates_leak import UpdatesLeak, representatives
from drlib.best_of_many import squared_distances
from drlib.data import DataSpec, load_splits
from drlib.errors import UserError
from drlib.shadow import ShadowUpdates, shadow_updates
from drlib.testing import example_auxiliary, example_updated, example_white_box, silent
from drlib.types import PREPARE_SEED, Auxiliary, NoAccess, TargetSpec, Update, balanced_labels

TINY = {"bases": 2, "updates": 12, "update_size": 8, "probes": 6, "hidden": 8, "epochs": 2, "samples": 4}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def prepared_for(attack: UpdatesLeak, seed: int = 0) -> dict[str, Tensor]:
    access = NoAccess(example_white_box().spec)
    return attack.prepare(access, example_auxiliary(True), generator=seeded(seed), progress=silent)


def reconstructed(attack: UpdatesLeak, prepared, access: Update, n: int = 8):
    labels = balanced_labels(n, access.spec.num_classes)
    return attack.reconstruct(access, prepared, n=n, labels=labels, generator=seeded(1), progress=silent)


def example_update() -> Update:
    before, after = example_white_box(), example_updated()
    return Update(after.query, before.query, before.spec)


def test_matchings_by_hand():
    # Two images (rows) and three samples: image 0 is met exactly by sample 0, image 1 at best at distance 4.
    distances = torch.tensor([[[0.0, 9.0, 9.0], [5.0, 4.0, 7.0]]])
    assert best_of_many.one_sided(distances).tolist() == [2.0]
    assert best_of_many.two_sided(distances).tolist() == pytest.approx([2.0 + (0 + 4 + 7) / 3])


def test_squared_distances_are_means_over_pixels_of_every_pair_of_an_update():
    images, samples = torch.rand(2, 3, 16, generator=seeded()), torch.rand(2, 4, 16, generator=seeded(1))
    expected = (images[:, :, None] - samples[:, None]).square().mean(dim=3)
    assert torch.allclose(squared_distances(images, samples), expected, atol=1e-6)


def test_representatives_are_samples_one_of_each_cluster():
    centers = torch.eye(5)
    samples = centers.repeat(8, 1) + 0.05 * torch.randn(40, 5, generator=seeded())
    chosen = representatives(samples, 5, seed=0)
    assert all(bool((samples == row).all(dim=1).any()) for row in chosen)
    assert sorted(chosen.argmax(dim=1).tolist()) == [0, 1, 2, 3, 4]


def test_each_cluster_gives_a_sample_of_its_own(monkeypatch):
    """The sample nearest to the center of a ring lies inside of it, and belongs to another cluster."""
    samples = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.9]])
    found = SimpleNamespace(
        cluster_centers_=np.float32([[0.0, 0.0], [0.0, 0.9]]), labels_=np.array([0, 0, 1])
    )
    monkeypatch.setattr("sklearn.cluster.KMeans", lambda *_, **__: SimpleNamespace(fit=lambda _: found))
    assert representatives(samples, 2, seed=0).tolist() == [[1.0, 0.0], samples[2].tolist()]


def test_as_many_clusters_as_samples_gives_each_sample_once():
    samples = torch.rand(6, 4, generator=seeded())
    chosen = representatives(samples, 6, seed=0)
    assert sorted(chosen[:, 0].tolist()) == sorted(samples[:, 0].tolist())


def told_updates(told: bool) -> ShadowUpdates:
    """Updates of two kinds, all dark or all bright images; the models' answers tell the kind, or nothing."""
    count = 64
    kind = torch.arange(count) % 2
    images = torch.cat([torch.full((4, 1, 4, 4), 0.1), torch.full((4, 1, 4, 4), 0.9)])
    rows = 4 * kind[:, None] + torch.arange(4)
    before = torch.full((count, 3, 2), 0.5)
    answers = torch.tensor([[0.6, 0.4], [0.4, 0.6]])[kind if told else torch.zeros_like(kind)]
    after = answers[:, None].expand(count, 3, 2)
    held_out = torch.arange(count) >= 48
    return ShadowUpdates(images[:3], before, after, images, rows, held_out, 10)


@pytest.mark.parametrize(("told", "conditional"), [(True, True), (True, False), (False, True)])
def test_the_generator_uses_the_condition_and_only_that(told, conditional, monkeypatch):
    """Known answer: an update is all dark or all bright. With one sample for all of its images, the best
    guess that ignores the update costs 0.16; who reads the answers can reach 0."""
    attack = UpdatesLeak(hidden=16, conditional=conditional)
    monkeypatch.setattr(best_of_many, "NOISE", 1)
    monkeypatch.setattr(best_of_many.gan, "latents", lambda n, size, *_: torch.zeros(n, size))
    known = told_updates(told)
    differences = attack._difference(known.before, known.after)
    history = best_of_many.train(
        attack._sampler(differences.shape[1], known.images[0].numel()), known, differences,
        matching="one_sided", adversarial_weight=0.0, epochs=30, learning_rate=5e-3, updates_per_batch=8,
        generator=seeded(), report=lambda epoch: None,
    )  # fmt: skip
    best = float(history[:, 1].min())
    assert best < 0.02 if told and conditional else best > 0.1


def test_a_difference_keeps_the_pattern_not_the_size_of_a_change():
    before = torch.full((1, 4, 2), 0.5)
    change = torch.tensor([[[0.1, -0.1], [0.02, -0.02], [0.0, 0.0], [-0.05, 0.05]]])
    attack = UpdatesLeak()
    small, large = (attack._difference(before, before - scale * change) for scale in (0.1, 1.0))
    assert torch.allclose(small, large, atol=1e-5)
    assert small.square().mean() == pytest.approx(1.0)
    assert torch.equal(small.sign(), change.flatten(1).sign())  # before minus after


def test_logarithms_see_what_an_overfitted_model_hides():
    """A probability that grows a hundredfold, from 1e-6, beside one that changes by a hundredth."""
    before = torch.tensor([[[1 - 1e-6, 1e-6], [0.5, 0.5]]])
    after = torch.tensor([[[1 - 1e-4, 1e-4], [0.51, 0.49]]])
    in_probabilities = UpdatesLeak()._difference(before, after)[0].abs()
    in_logarithms = UpdatesLeak(difference="log_probability")._difference(before, after)[0].abs()
    assert in_probabilities[1] < 0.05 * in_probabilities[3]
    assert in_logarithms[1] > 10 * in_logarithms[3]


def test_the_output_reaches_the_brightest_pixel_and_the_discriminator_any_logit():
    """The original's tanh capped both: pixels at 0.44, a probability of being real at 0.73."""
    network = best_of_many.Generator(4, 8).eval()
    network.layers[-2].bias.data.fill_(20.0)
    assert network(torch.zeros(1, best_of_many.CODE), torch.zeros(1, 1, best_of_many.NOISE)).min() > 0.999
    critic = best_of_many.Discriminator(4, 16)
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)
    real, fake = torch.rand(32, 4, generator=seeded()), torch.rand(32, 4, generator=seeded(1)) + 3
    for _ in range(100):
        loss = best_of_many.adversarial_loss(critic, optimizer, real, fake)
    assert critic(real).sigmoid().min() > 0.9
    assert loss > 2  # a tanh would have stopped it at -log 0.27


def test_the_adversarial_loss_moves_the_generator_not_the_discriminator():
    critic = best_of_many.Discriminator(4, 16)
    optimizer = torch.optim.SGD(critic.parameters(), lr=0.0)
    fake = torch.rand(8, 4, generator=seeded(), requires_grad=True)
    loss = best_of_many.adversarial_loss(critic, optimizer, torch.rand(8, 4, generator=seeded(1)), fake)
    assert fake.grad is None  # the discriminator's own step does not reach the generator
    before = [parameter.grad.clone() for parameter in critic.parameters()]
    loss.backward()
    assert fake.grad.abs().sum() > 0
    assert all(torch.equal(a, b.grad) for a, b in zip(before, critic.parameters(), strict=True))
    assert all(parameter.requires_grad for parameter in critic.parameters())


@pytest.mark.parametrize("settings", [{}, {"adversarial_weight": 0.0}, {"matching": "two_sided", "bases": 1}])
def test_asks_the_probes_once_before_and_once_after(settings):
    attack = UpdatesLeak(**{**TINY, **settings})
    prepared = prepared_for(attack)
    asked: list[tuple[str, Tensor]] = []
    before, after = example_white_box(), example_updated()

    def recording(name, view):
        return lambda images: asked.append((name, images)) or view.query(images)

    access = Update(recording("after", after), recording("before", before), before.spec)
    result = reconstructed(attack, prepared, access)
    assert sorted(name for name, _ in asked) == ["after", "before"]
    assert all(torch.equal(images, prepared["probes"]) for _, images in asked)
    assert result.queries == 2 * TINY["probes"] == access.queries
    assert result.labels is None and len(result) == 8
    assert result.loss_history.shape == (2,)


def test_the_unconditional_control_ignores_the_update():
    for conditional in (True, False):
        attack = UpdatesLeak(**TINY, conditional=conditional)
        prepared = prepared_for(attack)
        here = example_update()
        there = Update(here._query_before, here._query, here.spec)  # the change in the other direction
        images = [reconstructed(attack, prepared, access).images for access in (here, there)]
        assert torch.equal(*images) != conditional


def test_prior_samples_do_not_depend_on_the_target():
    attack = UpdatesLeak(**TINY)
    prepared = prepared_for(attack)
    drawn = attack.prior_samples(prepared, n=5, labels=torch.zeros(5), generator=seeded())
    assert drawn.shape == (5, 1, 16, 16)
    assert len(prepared["others"]) == 6  # one of two shadow models is held out


def shadows(monkeypatch, auxiliary: Auxiliary, spec: TargetSpec, **settings):
    """Shadow updates, and the rows that ``train_many`` and ``update_many`` were given."""
    seen = {}

    def recording(name, original):
        def call(*arguments, **named):
            seen[name] = arguments
            return original(*arguments, **named)

        return call

    for name in ("train_many", "update_many"):
        monkeypatch.setattr(shadow, name, recording(name, getattr(shadow, name)))
    settings = {"bases": 3, "updates": 9, "update_size": 20, "probes": 10, **settings}
    made = shadow_updates(
        spec, auxiliary, **settings, generator=seeded(), device=torch.device("cpu"), report=silent
    )
    return made, seen


def test_probes_training_sets_and_updates_share_no_image(monkeypatch):
    auxiliary = example_auxiliary(True)
    distinct = torch.arange(200).view(-1, 1, 1, 1) / 200 + torch.zeros(200, 1, 16, 16)
    made, seen = shadows(monkeypatch, Auxiliary(distinct, auxiliary.labels), example_white_box().spec)
    base_rows, origins, rows = seen["train_many"][3], seen["update_many"][1], seen["update_many"][4]
    probes = (made.probes[:, 0, 0, 0] * 200).round().int().tolist()
    for base in range(3):
        own = set(base_rows[base].tolist())
        assert len(own) == made.base_size == 100 and not own & set(probes)
        for row in rows[origins == base].tolist():
            assert len(set(row)) == 20 and not own & set(row) and not set(probes) & set(row)
    assert len({tuple(row) for row in rows.tolist()}) == 9
    assert len({tuple(sorted(row)) for row in base_rows.tolist()}) == 3
    assert made.held_out.tolist() == (origins == 2).tolist()
    assert made.before.shape == made.after.shape == (9, 10, 5)
    answers = torch.stack([training.predict(model, made.probes) for model in seen["train_many"][0]])
    assert torch.equal(made.before, answers[origins])
    assert not torch.equal(made.before, made.after)


def test_shadow_answers_are_those_of_a_model_trained_and_updated_alone(monkeypatch):
    auxiliary, spec = example_auxiliary(True), example_white_box().spec
    made, seen = shadows(monkeypatch, auxiliary, spec, bases=1, updates=2)
    model = copy.deepcopy(seen["train_many"][0][0])
    recipe = training.TrainSpec(**spec.recipe["update"])
    rows = made.rows[1]
    seeds = seeded()
    torch.randperm(200, generator=seeds), torch.randperm(190, generator=seeds)
    torch.randint(2**31, (2, 1), generator=seeds)
    [torch.randperm(90, generator=seeds) for _ in range(2)]
    seed = torch.randint(2**31, (2,), generator=seeds).tolist()[1]
    assert torch.allclose(training.predict(model, made.probes), made.before[1], atol=1e-6)
    training.train(model, auxiliary.images[rows], auxiliary.labels[rows], recipe, seed=seed)
    assert torch.allclose(training.predict(model, made.probes), made.after[1], atol=1e-5)


def test_few_auxiliary_images_or_other_classes(monkeypatch):
    auxiliary, spec = example_auxiliary(True), example_white_box().spec
    two = TargetSpec.of(
        models.build("convnet", shape=(1, 16, 16), num_classes=2),
        "convnet",
        (1, 16, 16),
        2,
        recipe=spec.recipe,
    )
    made, seen = shadows(monkeypatch, auxiliary, two)
    assert set(seen["train_many"][2].tolist()) == {0, 1}  # five classes are limited to two
    kept = int((auxiliary.labels < 2).sum())
    assert len(made.images) == kept
    assert made.base_size == kept - 10 - 20  # what there is, instead of 100
    assert made.before.shape[2] == 2
    with pytest.raises(UserError, match="shadow models need 32 auxiliary images at least, got 31"):
        shadows(monkeypatch, Auxiliary(auxiliary.images[:31], auxiliary.labels[:31]), spec)
    with pytest.raises(UserError, match="their labels"):
        shadows(monkeypatch, Auxiliary(auxiliary.images), spec)


def test_the_reduced_training_set_is_recorded():
    attack = UpdatesLeak(**{**TINY, "update_size": 150})
    result = reconstructed(attack, prepared_for(attack), example_update())
    assert result.facts["shadow_base_size"] == 200 - 6 - 150
    assert result.facts["mean_change"] > 0


def test_refuses_an_unknown_recipe_and_bad_settings():
    known = example_white_box().spec
    attack = UpdatesLeak(**TINY)
    assert attack.supports(known) is None
    unknown = TargetSpec.of(example_white_box().model, "convnet", known.shape, 5)
    assert "recipe (size, training, update) is not known" in attack.supports(unknown)
    custom = TargetSpec.of(example_white_box().model, "custom", known.shape, 5, recipe=known.recipe)
    assert "cannot be built" in attack.supports(custom)
    with pytest.raises(UserError, match="cannot attack convnet"):
        attack.prepare(NoAccess(unknown), example_auxiliary(True), generator=seeded(), progress=silent)
    for settings in ({"bases": 0}, {"matching": "both"}, {"difference": "logit"}, {"updates": 5, "bases": 6}):
        with pytest.raises(UserError):
            UpdatesLeak(**settings)


LAPTOP = {
    "bases": 20, "difference": "log_probability", "adversarial_weight": 0.0, "hidden": 128,
    "learning_rate": 1e-3, "samples": 20,
}  # fmt: skip
UPDATE = training.TrainSpec(
    epochs=1,
    min_steps=0,
    batch_size=64,
    optimizer="sgd",
    learning_rate=1e-2,
    schedule="constant",
    weight_decay=0,
)


def matched(images: Tensor, samples: Tensor) -> float:
    """Mean squared error of the best one-to-one matching."""
    distances = squared_distances(images.flatten(1)[None], samples.flatten(1)[None])[0]
    return float(distances[linear_sum_assignment(distances.numpy())].mean())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "settings", "sets"),
    [
        (5, {"updates": 1200, "epochs": 30, "updates_per_batch": 16}, 60),
        (100, {"updates": 600, "epochs": 10, "updates_per_batch": 8}, 12),
    ],
)
def test_leakage_against_the_same_generator_without_the_leak(size, settings, sets):
    """New update sets of auxiliary images on a model that no shadow model is: with 5 images an update the
    condition helps; with 100 it makes no difference, and the attack shows what digits look like, no more."""
    images, labels = (load_splits(DataSpec()).auxiliary.images, load_splits(DataSpec()).auxiliary.labels)
    recipe = {"width": 1.0, "size": 400, "training": training.TrainSpec().model_dump()}
    order = torch.randperm(len(images), generator=seeded(5))
    target = models.build("convnet", shape=(1, 16, 16), num_classes=5, generator_seed=99)
    training.train(target, images[order[:400]], labels[order[:400]], training.TrainSpec(), seed=99)
    spec = TargetSpec.of(target, "convnet", (1, 16, 16), 5, recipe={**recipe, "update": UPDATE.model_dump()})
    attacks = [
        UpdatesLeak(**LAPTOP, update_size=size, **settings, conditional=told) for told in (True, False)
    ]
    prepared = [
        attack.prepare(
            NoAccess(spec), Auxiliary(images, labels), generator=seeded(PREPARE_SEED), progress=silent
        )
        for attack in attacks
    ]
    errors = []
    generator = seeded(6)
    for seed in range(sets):
        rows = order[400:][torch.randperm(len(order) - 400, generator=generator)[:size]]
        updated = copy.deepcopy(target)
        training.train(updated, images[rows], labels[rows], UPDATE, seed=seed)
        access = Update(
            lambda x, updated=updated: training.predict(updated, x),
            lambda x: training.predict(target, x),
            spec,
        )
        samples = [
            *(
                reconstructed(attack, made, access, n=size).images
                for attack, made in zip(attacks, prepared, strict=True)
            ),
            attacks[0].prior_samples(prepared[0], n=size, labels=None, generator=seeded(seed)),
        ]
        errors.append([matched(images[rows], sample) for sample in samples])
    errors = torch.tensor(errors)
    conditional, unconditional, shuffled = errors.mean(dim=0).tolist()
    gain = errors[:, 1:] - errors[:, :1]
    standard_error = gain.std(dim=0) / sets**0.5
    print(
        f"\n{size}: conditional {conditional:.5f} unconditional {unconditional:.5f} shuffled {shuffled:.5f}"
    )
    print(f"gain {gain.mean(dim=0).tolist()} +- {standard_error.tolist()}")
    if size == 5:
        assert (gain.mean(dim=0) > 2 * standard_error).all()
        assert conditional < 0.95 * min(unconditional, shuffled)
    else:
        assert abs(conditional / unconditional - 1) < 0.05
        assert abs(conditional / shuffled - 1) < 0.05
