"""The attack contract as tests, also for attacks outside this package.

    from drlib.testing import check_attack
    for result in check_attack(MyAttack(steps=50)):
        print(result)

Each check is a plain function that returns what is wrong, or None. Give the attack settings that
run in a second or two: it is run about twenty times on a few small images. ``white_box`` is the
model to attack; by default the first of three small networks trained on 100 handwritten digits that
the attack supports. An attack on a dynamic target gets the view that its knowledge grants: queries before
and after an update with 15 images, or gradients of three batches of five.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from drlib.errors import UserError
from drlib.types import (
    DYNAMIC,
    NO_DATA,
    PREPARE_SEED,
    WHITE_BOX,
    Attack,
    Auxiliary,
    BlackBox,
    Gradients,
    Prepared,
    Progress,
    Reconstruction,
    TargetSpec,
    Update,
    WhiteBox,
    balanced_labels,
)

GRADIENT_TOLERANCE = 1e-5
IMAGE_TOLERANCE = 1e-6
NOISE_REPEATS = 20
"""Noise images per reconstruction, for the floor of the confidence."""


@dataclass(frozen=True)
class CheckResult:
    """One check: its name, whether it passed, and what was wrong (or why it does not apply)."""

    name: str
    passed: bool
    detail: str = ""
    applicable: bool = True

    def __str__(self) -> str:
        state = ("ok" if self.passed else "FAILED") if self.applicable else "n/a"
        return f"{state:6} {self.name}" + (f": {self.detail}" if self.detail else "")


class NotApplicable(Exception):
    """Raised by a check that has nothing to say about this attack."""


class Interruption(Exception):
    """Raised inside an attack to see what it leaves behind."""


EXAMPLES = ("convnet", "lenet", "homogeneous_mlp")
"""Architectures of the examples: BatchNorm and ReLU; smooth; homogeneous."""

EXAMPLE_UPDATE = 15
EXAMPLE_BATCH = 5


@functools.cache
def _example_splits() -> Any:
    from drlib.data import DataSpec, load_splits

    return load_splits(DataSpec())


@functools.cache
def example_white_box(architecture: str = "convnet") -> WhiteBox:
    """A small target for checks: trained on 100 digits (classes 0-4, 1x16x16) in a second or two."""
    from drlib import models, training
    from drlib.data import target_subset

    splits = _example_splits()
    subset = target_subset(splits, 100)
    shape = tuple(subset.images.shape[1:])
    width = 0.05 if architecture == "homogeneous_mlp" else 0.5
    model = models.build(architecture, shape=shape, num_classes=5, width=width, generator_seed=0)
    recipe = training.TrainSpec(epochs=20, min_steps=0, batch_size=25)
    training.train(model, subset.images, subset.labels, recipe, seed=0)
    update = training.TrainSpec(epochs=1, min_steps=0, batch_size=64, optimizer="sgd", learning_rate=1e-2)
    known = {
        "width": width,
        "size": 100,
        "training": recipe.model_dump(),
        "update": update.model_dump(),
    }
    spec = TargetSpec.of(
        model, architecture, shape, 5, classes=tuple(str(name) for name in splits.classes), recipe=known
    )
    return WhiteBox(model, spec)


@functools.cache
def example_updated(architecture: str = "convnet") -> WhiteBox:
    """``example_white_box`` after an update with 15 new digits."""
    from drlib import training

    before, new = example_white_box(architecture), _example_splits().update
    model = copy.deepcopy(before.model).requires_grad_(True)
    recipe = training.TrainSpec(**before.spec.recipe["update"])
    training.train(model, new.images[:EXAMPLE_UPDATE], new.labels[:EXAMPLE_UPDATE], recipe, seed=1)
    return WhiteBox(model, before.spec)


def example_gradients(white_box: WhiteBox) -> dict[str, Tensor]:
    """Gradients of three batches of five new digits at the parameters of ``white_box``, (3, *shape) each."""
    new = _example_splits().update
    images = new.images[:EXAMPLE_UPDATE].unflatten(0, (-1, EXAMPLE_BATCH))
    labels = new.labels[:EXAMPLE_UPDATE].unflatten(0, (-1, EXAMPLE_BATCH))
    dtype = next(white_box.model.parameters()).dtype
    return _observed(white_box, images.to(white_box.device, dtype), labels.to(white_box.device)).gradients


def _observed(white_box: WhiteBox, images: Tensor, labels: Tensor) -> Gradients:
    """What a server sees of batches of images (P, B, c, h, w) with labels (P, B)."""
    server = Gradients(white_box.model, white_box.spec, {}, images.shape[1], white_box.device)
    found = {name: value.detach() for name, value in server.parameter_gradients(images, labels).items()}
    return Gradients(white_box.model, white_box.spec, found, images.shape[1], white_box.device)


@functools.cache
def example_auxiliary(labels: bool) -> Auxiliary:
    """200 digits of classes 5-9 (their own labels 0-4), with or without labels."""
    split = _example_splits().auxiliary
    return Auxiliary(split.images[:200], split.labels[:200] if labels else None)


def private_copy(white_box: WhiteBox, dtype: torch.dtype | None = None) -> WhiteBox:
    """The same target in a model of its own, optionally in another precision."""
    return WhiteBox(copy.deepcopy(white_box.model).to(dtype), white_box.spec, white_box.device)


def granted(
    attack: Attack,
    white_box: WhiteBox,
    *,
    before: WhiteBox | None = None,
    batches: tuple[Tensor, Tensor] | None = None,
) -> BlackBox:
    """The access that the attack's knowledge grants to a target.

    A dynamic black-box attack needs ``before``, the model before its update; a dynamic white-box attack the
    update's ``batches`` of images (P, B, c, h, w) and labels (P, B), of which it sees the gradients.
    """
    spec = white_box.spec
    if attack.knowledge.training != DYNAMIC:
        return white_box if attack.knowledge.model == WHITE_BOX else BlackBox(white_box.query, spec)
    if attack.knowledge.model != WHITE_BOX:
        return Update(white_box.query, before.query, spec)
    return _observed(white_box, *batches)


def silent(done: int, total: int) -> None:
    """A progress callback that does nothing."""


class Recorder(Gradients):
    """Any view of a target that remembers images with their gradients and can fail at the k-th call."""

    def __init__(
        self,
        white_box: WhiteBox,
        *,
        before: WhiteBox | None = None,
        gradients: Mapping[str, Tensor] | None = None,
        fail_at: int | None = None,
    ) -> None:
        super().__init__(white_box.model, white_box.spec, gradients or {}, EXAMPLE_BATCH, white_box.device)
        self.before = before
        self.calls = 0
        self.fail_at = fail_at
        self.seen: list[tuple[Tensor, Tensor]] = []

    def query(self, images: Tensor) -> Tensor:
        self._count()
        return super().query(images)

    def query_before(self, images: Tensor) -> Tensor:
        self._count()
        self.queries += len(images)
        return self.before.query(images)

    def logits(self, images: Tensor) -> Tensor:
        self._count()
        if images.requires_grad:
            kept = images.detach().clone()
            images.register_hook(lambda gradient: self.seen.append((kept, gradient.detach().clone())))
        return super().logits(images)

    def parameter_gradients(self, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        self._count()
        return super().parameter_gradients(images, labels)

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self.fail_at:
            raise Interruption

    def view(self, attack: Attack) -> BlackBox:
        """What the attack's knowledge grants of this recorder."""
        if attack.knowledge.model == WHITE_BOX:
            return self
        if attack.knowledge.training == DYNAMIC:
            return Update(self.query, self.query_before, self.spec, self.device)
        return BlackBox(self.query, self.spec, self.device)


def supported_example(attack: Attack) -> WhiteBox:
    """The first example that the attack supports."""
    for architecture in EXAMPLES:
        white_box = example_white_box(architecture)
        if attack.supports(white_box.spec) is None:
            return white_box
    raise UserError(f"{attack.title} supports none of the examples {', '.join(EXAMPLES)}: give white_box")


class Trial:
    """An attack and the model it is checked on; runs it with fresh counters and generators."""

    def __init__(
        self,
        attack: Attack,
        white_box: WhiteBox | None = None,
        auxiliary: Auxiliary | None = None,
        n: int | None = None,
        seed: int = 0,
    ) -> None:
        self.attack = attack
        self.white_box = supported_example(attack) if white_box is None else white_box
        wanted = attack.knowledge.dataset != NO_DATA
        self.auxiliary = (
            example_auxiliary(attack.auxiliary_labels) if wanted and auxiliary is None else auxiliary
        )
        self.classes = self.white_box.spec.num_classes
        self.n = 3 * self.classes if n is None else n
        self.seed = seed
        self._prepared: dict[tuple[torch.dtype, str, int], Prepared] = {}

    def recorder(self, white_box: WhiteBox | None = None, fail_at: int | None = None) -> Recorder:
        """A recorder of the trial's target (or another) with what a dynamic attack sees besides."""
        white_box = self.white_box if white_box is None else white_box
        if self.attack.knowledge.training != DYNAMIC:
            return Recorder(white_box, fail_at=fail_at)
        if self.attack.knowledge.model == WHITE_BOX:
            return Recorder(white_box, gradients=example_gradients(white_box), fail_at=fail_at)
        updated = example_updated(white_box.spec.architecture)
        dtype = next(white_box.model.parameters()).dtype
        return Recorder(private_copy(updated, dtype), before=white_box, fail_at=fail_at)

    def run(
        self,
        *,
        attack: Attack | None = None,
        recorder: Recorder | None = None,
        n: int | None = None,
        seed: int | None = None,
        progress: Progress = silent,
        prepare_again: bool = False,
    ) -> Reconstruction:
        """Run the attack once; what is not given is the trial's own."""
        attack = self.attack if attack is None else attack
        recorder = self.recorder() if recorder is None else recorder
        seed = self.seed if seed is None else seed
        view = recorder.view(attack)
        # What a prior has seen of the target is equal in all copies of it, so it is made once a precision.
        key = (next(recorder.model.parameters()).dtype, recorder.spec.architecture, seed)
        if prepare_again or key not in self._prepared:
            self._prepared[key] = self.prepare(view, seed)
        n = self.n if n is None else n
        return attack.reconstruct(
            view,
            self._prepared[key],
            n=n,
            labels=balanced_labels(n, self.classes),
            generator=torch.Generator().manual_seed(seed),
            progress=progress,
        )

    def prepare(self, view: BlackBox, seed: int, progress: Progress = silent) -> Prepared:
        """Run the first stage once, with the access that it is granted."""
        generator = torch.Generator().manual_seed(seed + PREPARE_SEED)
        access = self.attack.prior_access(view)
        return self.attack.prepare(access, self.auxiliary, generator=generator, progress=progress)

    @functools.cached_property
    def result(self) -> Reconstruction:
        """The reconstruction that several checks look at."""
        with global_randomness(0):
            return self.run()


@contextmanager
def global_randomness(seed: int) -> Iterator[None]:
    """Seed the global generators of Python, NumPy and PyTorch inside the block only."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        yield
    random.setstate(python)
    np.random.set_state(numpy)


def images_and_labels(trial: Trial) -> str | None:
    """Images are (n, c, h, w) float32 in [0, 1]; labels are class indices, or None if unlabeled."""
    result, expected = trial.result, (trial.n, *trial.white_box.spec.shape)
    if tuple(result.images.shape) != expected or result.images.dtype != torch.float32:
        return f"images are {tuple(result.images.shape)} {result.images.dtype}, expected {expected} float32"
    if not bool(((result.images >= 0) & (result.images <= 1)).all()):
        return "pixels outside [0, 1]"
    if (result.labels is None) == trial.attack.labeled:
        return f"labeled is {trial.attack.labeled}, labels are {result.labels}"
    if result.labels is not None and not bool(((result.labels >= 0) & (result.labels < trial.classes)).all()):
        return f"labels outside 0..{trial.classes - 1}"
    return None


def exact_n(trial: Trial) -> str | None:
    """Exactly n samples come back, also when n is no multiple of the number of classes."""
    for n in (1, trial.classes + 1):
        found = len(trial.run(n=n))
        if found != n:
            return f"asked for {n} samples, got {found}"
    return None


def exact_balance(trial: Trial) -> str | None:
    """The classes that were asked for come back, each as often."""
    if not trial.attack.labeled:
        raise NotApplicable("the attack does not label its output")
    counts = torch.bincount(trial.result.labels, minlength=trial.classes)
    expected = torch.bincount(balanced_labels(trial.n, trial.classes), minlength=trial.classes)
    return (
        None
        if torch.equal(counts, expected)
        else f"class counts {counts.tolist()}, {expected.tolist()} wanted"
    )


def same_seed_same_bits(trial: Trial) -> str | None:
    """A second run gives the same bits, whatever state the global generators are in."""
    with global_randomness(1):
        again = trial.run(prepare_again=True)
    return None if torch.equal(again.images, trial.result.images) else "two runs with one seed differ"


def another_seed_differs(trial: Trial) -> str | None:
    """Another seed gives other images."""
    other = trial.run(seed=trial.seed + 1)
    return "two seeds gave the same images" if torch.equal(other.images, trial.result.images) else None


def global_randomness_untouched(trial: Trial) -> str | None:
    """The global generators are neither used nor reseeded."""
    with global_randomness(2):
        before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
        trial.run(prepare_again=True)
        after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    touched = [
        name
        for name, a, b in zip(("torch", "random", "numpy"), before, after, strict=True)
        if not (torch.equal(a, b) if isinstance(a, Tensor) else a == b)
    ]
    return f"the global generator of {', '.join(touched)} was used or reseeded" if touched else None


def samples_of_a_class_differ(trial: Trial) -> str | None:
    """No two samples of a class are (nearly) the same image."""
    if trial.result.labels is None:
        raise NotApplicable("the attack does not label its output")
    for label in range(trial.classes):
        rows = trial.result.images[trial.result.labels == label].flatten(1)
        if len(rows) > 1 and float(torch.pdist(rows, p=math.inf).min()) < 1e-3:
            return f"class {label} holds the same image twice"
    return None


def independent_of_batch_size(trial: Trial) -> str | None:
    """Uncoupled attacks: neither a first-step gradient nor a float64 result depends on batch_size."""
    if trial.attack.coupled:
        raise NotApplicable("the images of a group are coupled")
    if not any(field.name == "batch_size" for field in dataclasses.fields(trial.attack)):
        raise NotApplicable("the attack has no batch_size")
    whole = dataclasses.replace(trial.attack, batch_size=trial.n)
    parts = dataclasses.replace(trial.attack, batch_size=max(1, trial.n // 4))
    _ = trial.result  # what prepare() sees of the target is no part of the comparison
    in_whole, in_parts = trial.recorder(), trial.recorder()
    trial.run(attack=whole, recorder=in_whole)
    trial.run(attack=parts, recorder=in_parts)
    if in_whole.seen and (wrong := _first_step_differs(in_whole, in_parts)):
        return wrong
    double = private_copy(trial.white_box, torch.float64)
    images = [trial.run(attack=attack, recorder=trial.recorder(double)).images for attack in (whole, parts)]
    error = float((images[0] - images[1]).abs().max())
    return f"float64 runs differ by {error:.2g} between batch sizes" if error > IMAGE_TOLERANCE else None


def _first_step_differs(whole: Recorder, parts: Recorder) -> str | None:
    """Compare the first images and gradients of a run in one batch with those of a run in several.

    Images that a network made differ in their last bits between batch sizes, so they match by distance.
    """
    images, gradients = (torch.cat(some).flatten(1) for some in zip(*parts.seen, strict=True))
    for image, gradient in zip(*whole.seen[0], strict=True):
        alike = (images - image.flatten()).abs().amax(dim=1) <= GRADIENT_TOLERANCE
        if not alike.any():
            return "the first images depend on batch_size"
        first = gradients[int(alike.float().argmax())]
        error = float((first - gradient.flatten()).abs().max())
        if error > GRADIENT_TOLERANCE * max(1.0, float(gradient.abs().max())):
            return f"a first-step gradient differs by {error:.2g} between batch sizes"
    return None


def group_size_recorded(trial: Trial) -> str | None:
    """Coupled attacks say how many images shared a loss term; the others say None."""
    size = trial.result.group_size
    if not trial.attack.coupled:
        return None if size is None else f"not coupled, but group_size is {size}"
    return None if size is not None and 1 <= size <= trial.n else f"coupled, but group_size is {size}"


def footprint(model: nn.Module) -> dict[str, Any]:
    """All that an attack must leave as it was: values, modes, gradients, hooks."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return {
        "state": {name: value.detach().clone() for name, value in model.state_dict().items()},
        "modes": [module.training for module in model.modules()],
        "requires_grad": [parameter.requires_grad for parameter in model.parameters()],
        "gradients": [parameter.grad is not None for parameter in model.parameters()],
        "hooks": [len(getattr(module, hook)) for module in model.modules() for hook in hooks],
    }


def _changes(before: dict[str, Any], model: nn.Module) -> str | None:
    after = footprint(model)
    changed = [key for key in before if key != "state" and before[key] != after[key]]
    changed += [
        name for name, value in before["state"].items() if not torch.equal(value, after["state"][name])
    ]
    return f"changed: {', '.join(changed)}" if changed else None


def model_left_as_found(trial: Trial) -> str | None:
    """After the attack the model has the same values, modes, gradients and hooks."""
    white_box = private_copy(trial.white_box)
    before = footprint(white_box.model)
    trial.run(recorder=trial.recorder(white_box))
    return _changes(before, white_box.model)


def model_left_after_exception(trial: Trial) -> str | None:
    """The same holds when an exception ends the attack half-way; the exception reaches the caller."""

    def break_off(done: int, total: int) -> None:
        raise Interruption

    for where, fail_at in (("progress", None), ("the model", 2)):
        white_box = private_copy(trial.white_box)
        before = footprint(white_box.model)
        recorder = trial.recorder(white_box, fail_at)
        try:
            trial.run(recorder=recorder, progress=break_off if fail_at is None else silent)
        except Interruption:
            pass
        else:
            if fail_at is None or recorder.calls >= fail_at:
                return f"an exception raised by {where} was swallowed"
        if changes := _changes(before, white_box.model):
            return f"after an exception raised by {where}: {changes}"
    return None


def progress_reaches_the_end(trial: Trial) -> str | None:
    """Progress rises to (total, total), with one total."""
    calls: list[tuple[int, int]] = []
    trial.run(progress=lambda done, total: calls.append((done, total)))
    if not calls:
        return "progress was never called"
    done, totals = [done for done, _ in calls], {total for _, total in calls}
    if len(totals) != 1 or done != sorted(done) or done[-1] != calls[-1][1]:
        return f"progress ended at {calls[-1]}, totals {sorted(totals)}, rising: {done == sorted(done)}"
    return None


def spending_counted(trial: Trial) -> str | None:
    """Queries and gradient calls are those the view has counted; the loss history is finite."""
    recorder = trial.recorder()
    _ = trial.result  # what prepare() spends is counted before
    result = trial.run(recorder=recorder)
    counted = recorder.queries, recorder.gradient_calls
    if (result.queries, result.gradient_calls) != counted:
        return f"reports {result.queries} queries, {result.gradient_calls} gradient calls; counted {counted}"
    if result.seconds <= 0:
        return f"seconds is {result.seconds}"
    if result.loss_history.dim() != 1 or not bool(result.loss_history.isfinite().all()):
        return f"loss history of shape {tuple(result.loss_history.shape)} is not finite"
    return None


def unsupported_models_refused(trial: Trial) -> str | None:
    """On each example: either ``supports`` gives None and the attack runs, or it is refused."""
    for architecture in EXAMPLES:
        white_box = example_white_box(architecture)
        reason = trial.attack.supports(white_box.spec)
        if reason is not None and not (isinstance(reason, str) and reason and "\n" not in reason):
            return f"supports() must return None or one line, got {reason!r}"
        try:
            Trial(trial.attack, white_box, trial.auxiliary, 2, trial.seed).run()
        except UserError as error:
            if reason is None:
                return f"supports() gave no reason for {architecture}, but it was refused: {error}"
        else:
            if reason:
                return f"supports() says {reason!r} of {architecture}, but reconstruct() ran"
    return None


def prepares_what_it_declares(trial: Trial) -> str | None:
    """``prepare`` returns tensors by name if ``prepares`` is declared, else None; again the same bits.

    It reads no hyperparameter but its own, and spends nothing if ``prior_sees_target`` is False.
    """
    read: set[str] = set()
    own = {"prior_effort"} | set(trial.attack.hyperparameters(stage="prepare"))
    names = set(trial.attack.hyperparameters())

    class Watched(type(trial.attack)):
        def __getattribute__(self, name: str) -> Any:
            read.add(name)
            return super().__getattribute__(name)

    fields = dataclasses.fields(trial.attack)
    watched = Watched(**{item.name: getattr(trial.attack, item.name) for item in fields})
    read.clear()
    calls: list[tuple[int, int]] = []
    other = Trial(watched, trial.white_box, trial.auxiliary, trial.n, trial.seed)
    with global_randomness(3):
        made = other.prepare(
            other.recorder().view(watched), trial.seed, lambda done, total: calls.append((done, total))
        )
    if not trial.attack.prepares:
        return None if made is None else "prepare() returned something, but prepares is False"
    if foreign := sorted((read & names) - own):
        return f"prepare() reads {', '.join(foreign)}, not marked PREPARE"
    if not (isinstance(made, dict) and made and all(isinstance(value, Tensor) for value in made.values())):
        return "prepare() must return a dictionary of tensors"
    if not calls or calls[-1][0] != calls[-1][1]:
        return f"progress of prepare() ended at {calls[-1] if calls else 'nothing'}"
    again = trial.prepare(trial.recorder().view(trial.attack), trial.seed)
    different = [name for name in made if not torch.equal(made[name], again[name])]
    return f"two runs of prepare() with one seed differ in {', '.join(different)}" if different else None


def prior_samples_are_images(trial: Trial) -> str | None:
    """What the prior gives without optimization: n images in [0, 1]."""
    prepared = (
        trial.prepare(trial.recorder().view(trial.attack), trial.seed) if trial.attack.prepares else None
    )
    generator = torch.Generator().manual_seed(trial.seed)
    labels = balanced_labels(trial.n, trial.classes)
    images = trial.attack.prior_samples(prepared, n=trial.n, labels=labels, generator=generator)
    if images is None:
        raise NotApplicable("the attack has no prior to sample from")
    expected = (trial.n, *trial.white_box.spec.shape)
    if tuple(images.shape) != expected or images.requires_grad:
        return f"prior samples are {tuple(images.shape)}, expected {expected} without a gradient"
    return None if bool(((images >= 0) & (images <= 1)).all()) else "pixels outside [0, 1]"


def beats_noise(trial: Trial) -> str | None:
    """The model is surer of the wanted classes than on uniform noise, by three standard errors."""
    result = trial.result
    if result.labels is None:
        raise NotApplicable("the attack does not label its output")
    generator = torch.Generator().manual_seed(trial.seed + 1)
    noise = torch.rand((NOISE_REPEATS * trial.n, *result.images.shape[1:]), generator=generator)
    floor = _confidence(trial, noise, result.labels.repeat(NOISE_REPEATS))
    ours = float(_confidence(trial, result.images, result.labels).mean())
    needed = float(floor.mean() + 3 * floor.std() / math.sqrt(trial.n))
    return None if ours > needed else f"mean confidence {ours:.3f}; noise has {float(floor.mean()):.3f}"


def _confidence(trial: Trial, images: Tensor, labels: Tensor) -> Tensor:
    probabilities = trial.white_box.query(images.to(trial.white_box.device)).cpu()
    return probabilities.gather(1, labels[:, None])[:, 0]


CHECKS: dict[str, Callable[[Trial], str | None]] = {
    check.__name__: check
    for check in (
        images_and_labels,
        exact_n,
        exact_balance,
        same_seed_same_bits,
        another_seed_differs,
        global_randomness_untouched,
        samples_of_a_class_differ,
        independent_of_batch_size,
        group_size_recorded,
        model_left_as_found,
        model_left_after_exception,
        progress_reaches_the_end,
        spending_counted,
        unsupported_models_refused,
        prepares_what_it_declares,
        prior_samples_are_images,
        beats_noise,
    )
}
"""All checks by name."""


def run_check(name: str, trial: Trial) -> CheckResult:
    """Run one check; an exception that the attack raises is a failure of the check."""
    try:
        wrong = CHECKS[name](trial)
    except NotApplicable as reason:
        return CheckResult(name, True, str(reason), applicable=False)
    except Exception as error:
        return CheckResult(name, False, f"{type(error).__name__}: {error}")
    return CheckResult(name, wrong is None, wrong or "")


def check_attack(
    attack: Attack,
    *,
    white_box: WhiteBox | None = None,
    auxiliary: Auxiliary | None = None,
    n: int | None = None,
    seed: int = 0,
) -> list[CheckResult]:
    """Run all contract checks on an attack.

    ``white_box``: the model to attack (an attack that declares black-box access sees only its
    queries). ``auxiliary``: data for ``prepare``, if the attack's knowledge grants any. ``n``: samples per
    run, at least two of each class (default: three). Returns one result a check, in the order of ``CHECKS``.
    """
    trial = Trial(attack, white_box, auxiliary, n, seed)
    if trial.n < 2 * trial.classes:
        raise UserError(f"n must be at least two per class, {2 * trial.classes}, got {trial.n}")
    return [run_check(name, trial) for name in CHECKS]
