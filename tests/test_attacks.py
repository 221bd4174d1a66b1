"""Every attack against the attack contract, and every check of the contract against a broken attack.

A new attack joins by one line in ``FAST``.
"""

import dataclasses
import functools
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F

from drlib import attacks, testing
from drlib.attacks.deep_inversion import BatchNormStatistics
from drlib.errors import UserError
from drlib.types import (
    BLACK_BOX,
    EXECUTION,
    NO_DATA,
    STATIC,
    WHITE_BOX,
    Attack,
    Knowledge,
    Reconstruction,
)

NETWORKS = {"width": 8, "z_dim": 16, "prior_batch_size": 32, "prior_learning_rate": 1e-3, "critic_steps": 1}
FAST: dict[str, dict[str, Any]] = {
    "mi_face": {"steps": 30, "learning_rate": 0.5},
    "deep_dream": {"steps": 12, "jitter": 1},
    "deep_inversion": {"steps": 12, "jitter": 1, "bn": 1.0, "group_size": 8},
    "revealer": {
        **NETWORKS,
        "gan": "hinge",
        "prior_steps": 30,
        "prior_learning_rate": 2e-3,
        "steps": 15,
        "learning_rate": 5e-3,
        "restarts": 2,
    },
    "kedmi": {
        **NETWORKS,
        "prior_steps": 40,
        "prior_learning_rate": 3e-3,
        "steps": 30,
        "samples": 4,
        "learning_rate": 0.15,
        "init_log_var": -1.0,
    },
    "plgmi": {
        "prior_steps": 3,
        "steps": 40,
        "learning_rate": 0.2,
        "restarts": 1,
        **NETWORKS,
        "width": 4,
        "z_dim": 8,
        "prior_batch_size": 8,
    },
    "deep_leakage": {"steps": 3, "inner_steps": 4},
    "inv_alignment": {
        "epochs": 12,
        "width": 16,
        "learning_rate": 0.01,
        "train_batch": 32,
        "standardize": True,
    },
    "updates_leak": {
        "bases": 2,
        "updates": 12,
        "update_size": 8,
        "probes": 6,
        "hidden": 8,
        "epochs": 2,
        "samples": 4,
    },
    "bias_rec": {
        "steps": 10,
        "optimizer": "adam",
        "learning_rate": 0.05,
        "multiplier_rate": 0.1,
        "smallest_multiplier": 0.0,
    },
}
"""Hyperparameters with which an attack runs in about a second or less."""


@functools.cache
def trial(name: str) -> testing.Trial:
    return testing.Trial(attacks.create(name, FAST[name]))


def test_every_attack_is_in_the_table():
    assert set(FAST) == set(attacks.names())


@pytest.mark.parametrize("check", testing.CHECKS)
@pytest.mark.parametrize("name", FAST)
def test_contract(name, check):
    result = testing.run_check(check, trial(name))
    assert result.passed, str(result)


@pytest.mark.parametrize("name", FAST)
def test_declarations(name):
    cls = attacks.get(name)
    assert issubclass(cls, Attack)
    assert cls.name == name
    assert cls.title
    assert cls.paper
    assert dataclasses.fields(cls)
    assert cls.__doc__.count("\n") > 3, "the docstring says paper, equation, access, known failure"
    assert "Known failure" in cls.__doc__


ORIGINALS = {
    "mi_face": {
        "steps": 5000,
        "learning_rate": 0.1,
        "confidence": 0.99,
        "patience": 100,
        "cost": "one_minus_p",
    },
    "deep_dream": {"steps": 2000, "learning_rate": 0.05, "jitter": 2, "betas": (0.9, 0.999)},
    "deep_inversion": {"steps": 2000, "learning_rate": 0.05, "jitter": 2, "bn": 10.0, "group_size": 256},
    "revealer": {
        "gan": "wgan_gp",
        "prior_steps": 26_250,
        "z_dim": 100,
        "width": 64,
        "critic_steps": 5,
        "prior_batch_size": 64,
        "prior_learning_rate": 2e-4,
        "prior_betas": (0.5, 0.999),
        "steps": 1500,
        "learning_rate": 2e-4,
        "latent_optimizer": "nesterov",
        "clip": 1.0,
        "identity_weight": 100.0,
        "identity_loss": "cross_entropy",
        "restarts": 5,
        "candidates": 0,
    },
    "kedmi": {
        "prior_steps": 11_250,
        "entropy_weight": 6.4e-3,
        "z_dim": 100,
        "critic_steps": 5,
        "prior_batch_size": 64,
        "steps": 2400,
        "learning_rate": 2e-2,
        "samples": 1,
        "init_log_var": 1.0,
        "kl_weight": 0.0,
        "identity_weight": 100.0,
    },
    "plgmi": {
        "prior_steps": 30_000,
        "top_n": 30,
        "margin_weight": 0.2,
        "z_dim": 128,
        "width": 64,
        "critic_steps": 5,
        "prior_betas": (0.0, 0.9),
        "steps": 600,
        "learning_rate": 0.1,
        "augmentations": 2,
        "margin": 0.0,
        "restarts": 5,
    },
    "deep_leakage": {
        "matching": "l2_lbfgs",
        "labels": "joint",
        "steps": 300,
        "inner_steps": 20,
        "learning_rate": 1.0,
        "history": 100,
        "adam_learning_rate": 0.1,
        "restarts": 1,
    },
    "inv_alignment": {
        "epochs": 100,
        "learning_rate": 2e-4,
        "betas": (0.5, 0.999),
        "train_batch": 128,
        "width": 1024,
        "kept": 0,
    },
    "updates_leak": {
        "bases": 1,
        "updates": 10_000,
        "update_size": 100,
        "probes": 100,
        "hidden": 2048,
        "learning_rate": 2e-4,
        "samples": 200,
        "conditional": True,
    },
    "bias_rec": {
        "steps": 50_000,
        "candidates": 2,
        "margin": "hard",
        "learning_rate": 0.0305,
        "multiplier_rate": 1e-4,
        "smallest_multiplier": 0.447,
        "alpha": 150.0,
        "init_scale": 0.035,
    },
}


@pytest.mark.parametrize("name", ORIGINALS)
def test_defaults_are_the_original_papers(name):
    found = attacks.create(name).hyperparameters()
    assert {key: found[key] for key in ORIGINALS[name]} == ORIGINALS[name]
    assert "batch_size" not in found, "an execution setting is no hyperparameter"


# Names, lookup, hyperparameters


def test_names_import_nothing_heavy():
    program = (
        "import sys, drlib.attacks as a; print(a.names()); assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "deep_inversion" in done.stdout


def test_unknown_attack_names_the_nearest():
    with pytest.raises(UserError, match="did you mean 'mi_face'"):
        attacks.get("mi_fase")


@pytest.mark.parametrize(
    ("name", "hyperparameters", "message"),
    [
        ("mi_face", {"step": 3}, "did you mean 'steps'"),
        ("mi_face", {"steps": "400"}, "steps"),
        ("mi_face", {"steps": True}, "steps"),
        ("mi_face", {"steps": 2.5}, "steps"),
        ("mi_face", {"steps": 0}, "steps must be an integer >= 1, got 0"),
        ("mi_face", {"confidence": 1.5}, r"confidence must be a number in \[0, 1\]"),
        ("mi_face", {"cost": "one_minus"}, "one_minus_p"),
        ("mi_face", {"optimizer": None}, "optimizer"),
        ("mi_face", {"learning_rate": torch.zeros(1)}, "learning_rate"),
        ("mi_face", {"name": "other"}, "unknown hyperparameter"),
        ("deep_dream", {"betas": [0.9]}, "betas"),
        ("deep_dream", {"betas": [0.9, 1.0]}, "betas"),
        ("deep_dream", {"jitter": -1}, "jitter"),
        ("deep_dream", {"schedule": "cosin"}, "cosine"),
        ("deep_dream", {"bn": 1.0}, "unknown hyperparameter of deep_dream 'bn'"),
        ("deep_inversion", {"group_size": 0}, "group_size"),
        ("deep_inversion", {"tv": float("nan")}, "tv"),
        ("deep_inversion", {"bn": -1}, "bn"),
    ],
)
def test_bad_hyperparameters_are_refused_in_one_line(name, hyperparameters, message):
    with pytest.raises(UserError, match=message) as caught:
        attacks.create(name, hyperparameters)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("cls", "values", "message"),
    [
        ("mi_face", {"steps": "x"}, "steps"),
        ("mi_face", {"cost": 3}, "cost"),
        ("deep_dream", {"betas": 1}, "betas"),
    ],
)
def test_constructors_refuse_too(cls, values, message):
    with pytest.raises(UserError, match=message):
        attacks.get(cls)(**values)


def test_values_take_their_declared_type():
    attack = attacks.create("deep_dream", {"betas": [0.5, 0.9], "learning_rate": 1})
    assert attack.betas == (0.5, 0.9)
    assert isinstance(attack.learning_rate, float)


def test_attacks_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        attacks.create("mi_face").steps = 3


# Attacks from outside the package; these are also the broken ones below.


@dataclass(frozen=True, kw_only=True)
class Plain(Attack):
    """Sound, and as short as possible: signed gradient steps on the cross entropy."""

    name: ClassVar[str] = "plain"
    title: ClassVar[str] = "Plain"
    paper: ClassVar[str] = "none"
    knowledge: ClassVar[Knowledge] = Knowledge(STATIC, WHITE_BOX, NO_DATA)
    steps: int = 4
    batch_size: int = field(default=8, metadata=EXECUTION)

    def start(self, n, shape, labels, generator):
        return torch.rand((n, *shape), generator=generator)

    def reduce(self, losses):
        return losses.sum()

    def improve(self, access, images, labels):
        images = images.to(next(access.model.parameters()).dtype)
        for _ in range(self.steps):
            images = images.detach().requires_grad_(True)
            loss = self.reduce(F.cross_entropy(access.logits(images), labels, reduction="none"))
            (gradient,) = torch.autograd.grad(loss, images)
            images = (images - 0.5 * gradient).clamp(0, 1)
        return images.detach()

    def finish(self, images, labels, **spent):
        return Reconstruction(images, labels, torch.zeros(self.steps), **spent)

    def reconstruct(self, access, prepared, *, n, labels, generator, progress):
        before = access.queries, access.gradient_calls
        images = self.start(n, access.spec.shape, labels, generator)
        done = []
        for rows in torch.arange(n).split(self.batch_size):
            done.append(self.improve(access, images[rows], labels[rows]))
            progress(int(rows[-1]) + 1, n)
        spent = {"queries": access.queries - before[0], "gradient_calls": access.gradient_calls - before[1]}
        return self.finish(torch.cat(done), labels, seconds=0.1, **spent)


class Unlabeled(Plain):
    def finish(self, images, labels, **spent):
        return super().finish(images, None, **spent)


class OutOfRange(Plain):
    def finish(self, images, labels, **spent):
        return super().finish(images * 2 - 1, labels, **spent)


class OneOfEachClass(Plain):
    def finish(self, images, labels, **spent):
        return super().finish(images[:5], labels[:5], **spent)


class Repredicted(Plain):
    def finish(self, images, labels, **spent):
        return super().finish(images, labels.clamp(max=2), **spent)


class GlobalRandomness(Plain):
    def start(self, n, shape, labels, generator):
        return torch.rand((n, *shape))


class Reseeds(Plain):
    def start(self, n, shape, labels, generator):
        torch.manual_seed(0)
        return super().start(n, shape, labels, generator)


class IgnoresSeed(Plain):
    def start(self, n, shape, labels, generator):
        return super().start(n, shape, labels, torch.Generator().manual_seed(0))


class OneStartPerClass(Plain):
    def start(self, n, shape, labels, generator):
        return super().start(5, shape, labels, generator)[labels]


class MeanLoss(Plain):
    def reduce(self, losses):
        return losses.mean()


class BatchStatistics(Plain):
    def improve(self, access, images, labels):
        return super().improve(access, images, labels) * 0.5 + images.mean() * 0.5


class DrawsPerBatch(Plain):
    def improve(self, access, images, labels):
        noise = torch.rand(images.shape, generator=torch.Generator().manual_seed(0))
        return super().improve(access, (images + noise) / 2, labels)


class SaysCoupled(Plain):
    coupled = True


class GroupWithoutCoupling(Plain):
    def finish(self, images, labels, **spent):
        return super().finish(images, labels, group_size=4, **spent)


class TrainMode(Plain):
    def improve(self, access, images, labels):
        access.model.train()
        return super().improve(access, images, labels)


class MovesBatchNorm(Plain):
    def improve(self, access, images, labels):
        access.model.train()
        images = super().improve(access, images, labels)
        access.model.eval()
        return images


class ParameterGradients(Plain):
    def improve(self, access, images, labels):
        access.model.requires_grad_(True)
        F.cross_entropy(access.model(images), labels).backward()
        access.model.requires_grad_(False)
        return super().improve(access, images, labels)


class LeaksHook(Plain):
    def improve(self, access, images, labels):
        access.model.register_forward_hook(lambda *arguments: None)
        return super().improve(access, images, labels)


class HookUntilTheEnd(Plain):
    def improve(self, access, images, labels):
        handle = access.model.register_forward_hook(lambda *arguments: None)
        images = super().improve(access, images, labels)
        handle.remove()
        return images


class SwallowsExceptions(Plain):
    def improve(self, access, images, labels):
        try:
            return super().improve(access, images, labels)
        except Exception:
            return images


class SilentProgress(Plain):
    def reconstruct(self, access, prepared, *, progress, **arguments):
        return super().reconstruct(access, prepared, progress=testing.silent, **arguments)


class UnfinishedProgress(Plain):
    def reconstruct(self, access, prepared, *, progress, **arguments):
        def short(done, total):
            progress(done, total + 1)

        return super().reconstruct(access, prepared, progress=short, **arguments)


class FreeOfCharge(Plain):
    def finish(self, images, labels, **spent):
        return super().finish(images, labels, seconds=0.1)


class NoSeconds(Plain):
    def finish(self, images, labels, **spent):
        return super().finish(images, labels, **{**spent, "seconds": 0.0})


class BrokenHistory(Plain):
    def finish(self, images, labels, **spent):
        return Reconstruction(images, labels, torch.tensor([1.0, float("nan")]), **spent)


class RefusesInWordsOnly(Plain):
    def supports(self, spec):
        return None if spec.has_batchnorm else "no BatchNorm"


class RefusesUnannounced(Plain):
    def improve(self, access, images, labels):
        if not access.spec.has_batchnorm:
            raise UserError("no BatchNorm")
        return super().improve(access, images, labels)


class RefusesWithTrue(Plain):
    def supports(self, spec):
        return True


class OnlyNoise(Plain):
    def improve(self, access, images, labels):
        return images


class PreparesUnannounced(Plain):
    def prepare(self, access, auxiliary, *, generator, progress):
        progress(1, 1)
        return {"prior": torch.rand(2, generator=generator)}


class ReadsWhatIsNotItsOwn(PreparesUnannounced):
    prepares = True

    def prepare(self, access, auxiliary, *, generator, progress):
        progress(1, 1)
        return {"prior": torch.zeros(self.steps)}


class PreparesByGlobalRandomness(PreparesUnannounced):
    prepares = True

    def prepare(self, access, auxiliary, *, generator, progress):
        progress(1, 1)
        return {"prior": torch.rand(2)}


class SilentPrepare(PreparesUnannounced):
    prepares = True

    def prepare(self, access, auxiliary, *, generator, progress):
        return {"prior": torch.zeros(2)}


class PreparesNoTensors(PreparesUnannounced):
    prepares = True

    def prepare(self, access, auxiliary, *, generator, progress):
        progress(1, 1)
        return {"prior": [0.0]}


class QueriesBlindly(PreparesUnannounced):
    prepares = True
    prior_sees_target = False

    def prepare(self, access, auxiliary, *, generator, progress):
        progress(1, 1)
        return {"prior": access.query(torch.zeros(1, *access.spec.shape))}


class PriorOutOfRange(Plain):
    def prior_samples(self, prepared, *, n, labels, generator):
        return torch.randn(n, 1, 16, 16, generator=generator)


BROKEN = [
    (Unlabeled, "images_and_labels"),
    (OutOfRange, "images_and_labels"),
    (OneOfEachClass, "exact_n"),
    (Repredicted, "exact_balance"),
    (GlobalRandomness, "same_seed_same_bits"),
    (GlobalRandomness, "global_randomness_untouched"),
    (Reseeds, "global_randomness_untouched"),
    (IgnoresSeed, "another_seed_differs"),
    (OneStartPerClass, "samples_of_a_class_differ"),
    (MeanLoss, "independent_of_batch_size"),
    (BatchStatistics, "independent_of_batch_size"),
    (DrawsPerBatch, "independent_of_batch_size"),
    (SaysCoupled, "group_size_recorded"),
    (GroupWithoutCoupling, "group_size_recorded"),
    (TrainMode, "model_left_as_found"),
    (MovesBatchNorm, "model_left_as_found"),
    (ParameterGradients, "model_left_as_found"),
    (LeaksHook, "model_left_as_found"),
    (HookUntilTheEnd, "model_left_after_exception"),
    (SwallowsExceptions, "model_left_after_exception"),
    (SilentProgress, "progress_reaches_the_end"),
    (UnfinishedProgress, "progress_reaches_the_end"),
    (FreeOfCharge, "spending_counted"),
    (NoSeconds, "spending_counted"),
    (BrokenHistory, "spending_counted"),
    (RefusesInWordsOnly, "unsupported_models_refused"),
    (RefusesUnannounced, "unsupported_models_refused"),
    (RefusesWithTrue, "unsupported_models_refused"),
    (PreparesUnannounced, "prepares_what_it_declares"),
    (ReadsWhatIsNotItsOwn, "prepares_what_it_declares"),
    (PreparesByGlobalRandomness, "prepares_what_it_declares"),
    (SilentPrepare, "prepares_what_it_declares"),
    (PreparesNoTensors, "prepares_what_it_declares"),
    (QueriesBlindly, "prepares_what_it_declares"),
    (PriorOutOfRange, "prior_samples_are_images"),
    (OnlyNoise, "beats_noise"),
]


def test_a_sound_attack_from_outside_passes_every_check():
    attack = attacks.create(f"{__name__}:Plain", {"steps": 5})
    assert attack.hyperparameters() == {"steps": 5}
    failed = [str(result) for result in testing.check_attack(attack) if not result.passed]
    assert not failed


@pytest.mark.parametrize(("broken", "check"), BROKEN, ids=lambda value: getattr(value, "__name__", value))
def test_each_check_turns_red(broken, check):
    result = testing.run_check(check, testing.Trial(broken(), testing.example_white_box()))
    assert not result.passed
    assert result.detail


def test_every_check_has_a_broken_attack():
    assert {check for _, check in BROKEN} == set(testing.CHECKS)


def test_check_attack_wants_two_samples_per_class():
    with pytest.raises(UserError, match="at least two per class"):
        testing.check_attack(Plain(), n=5)


class NotAnAttack:
    pass


class Nameless(Attack):
    def reconstruct(self, access, prepared, **arguments):
        raise NotImplementedError


class BlackBoxPlain(Plain):
    knowledge = Knowledge(STATIC, BLACK_BOX, NO_DATA)


def test_black_box_attacks_are_checked_without_the_model():
    result = testing.run_check("images_and_labels", testing.Trial(BlackBoxPlain(), None, None, None, 0))
    assert "AccessError: BlackBox access does not grant" in result.detail


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("no_such_module:Attack", "cannot import 'no_such_module'"),
        (f"{__name__}:Plane", "did you mean 'Plain'"),
        (f"{__name__}:NotAnAttack", "must be a subclass"),
        (f"{__name__}:Nameless", "must define name, title, knowledge"),
        ("drlib.types:Attack", "must define"),
    ],
)
def test_unusable_outside_attacks_are_refused(address, message):
    with pytest.raises(UserError, match=message):
        attacks.get(address)


def test_deep_inversion_matches_batchnorm_statistics_better_than_deep_dream():
    white_box = testing.example_white_box()
    distance = {}
    shared = {"steps": 60, "jitter": 1, "tv": 0.3, "l2": 0.1}
    for name, more in (("deep_dream", {}), ("deep_inversion", {"bn": 1.0})):
        images = testing.Trial(attacks.create(name, shared | more), white_box, None, 20, 0).result.images
        with BatchNormStatistics(white_box.model) as statistics:
            white_box.logits(images.requires_grad_(True))
            distance[name] = statistics.distance().item()
    assert distance["deep_inversion"] < 0.6 * distance["deep_dream"], distance


@pytest.mark.parametrize("name", ["deep_dream", "deep_inversion"])
def test_the_loss_falls(name):
    history = testing.Trial(attacks.create(name, FAST[name]), None, None, 10, 0).result.loss_history
    assert len(history) == FAST[name]["steps"]
    assert history[-1] < history[0]
