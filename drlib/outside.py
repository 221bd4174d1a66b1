"""What a study must know of an attack before it runs: asked of outside code in a process of its own.

A study plans and prints in a process that holds D_tar, so an attack at ``module:Class`` must not be imported
there. ``declaration`` gives a stand-in with the same declarations and hyperparameters; it is made from what a
fresh, sealed process says that never loaded a data set. Attacks of this package are used as they are.

``python -m drlib.outside STORE PARENT`` reads lines of JSON, {"address", "hyperparameters", "spec",
"closed"}, and answers each with one.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import subprocess
import sys
from typing import Any

from drlib import apart, attacks, guard, pool
from drlib.errors import UserError
from drlib.store import default_root
from drlib.stored_model import description_of, target_spec
from drlib.types import Attack, DatasetAccess, Knowledge, ModelAccess, TargetSpec, TrainingType

_FLAGS = ("coupled", "labeled", "auxiliary_labels", "prepares", "prior_sees_target", "prior_sees_recipe")
_TEXTS = ("name", "title", "paper", "effort", "prior_effort")


def declaration(
    name: str, hyperparameters: dict[str, Any] | None = None, *, closed: tuple[str, ...] = ()
) -> Attack:
    """An attack to ask for its declarations, hyperparameters and ``supports``; not to run if it is outside.

    ``closed``: the data set's files, which its code may not open while it answers either.
    Raises ``UserError`` as ``attacks.create`` does.
    """
    if ":" not in name:
        return attacks.create(name, hyperparameters)
    told = _ask(name, json.dumps(hyperparameters or {}), "null", closed)
    return _stand_in(name, json.dumps(told["class"]), closed)(**_as_fields(told["values"]))


def _as_fields(values: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


@functools.cache
def _stand_in(address: str, described: str, closed: tuple[str, ...]) -> type[Attack]:
    """A subclass of ``Attack`` at the same address, with the same fields and declarations."""
    told = json.loads(described)
    module, _, title = address.partition(":")
    fields = [(name, Any, dataclasses.field(metadata=kept)) for name, kept in told["fields"].items()]
    training, model, dataset = told["knowledge"]

    def ask(self: Attack, spec: Any) -> dict[str, Any]:
        return _ask(address, json.dumps(dataclasses.asdict(self)), json.dumps(spec), closed)

    def supports(self: Attack, spec: TargetSpec) -> str | None:
        return ask(self, description_of(spec))["reason"]

    def control_variant(self: Attack) -> str | None:
        return ask(self, None)["variant"]

    def reconstruct(self: Attack, *_: Any, **__: Any) -> Any:
        raise UserError(f"{address} runs in an attack's process only")

    namespace = {
        **{name: told[name] for name in (*_FLAGS, *_TEXTS)},
        "knowledge": Knowledge(TrainingType(training), ModelAccess(model), DatasetAccess(dataset)),
        "also_datasets": tuple(DatasetAccess(value) for value in told["also_datasets"]),
        "supports": supports,
        "control_variant": property(control_variant),
        "reconstruct": reconstruct,
        **({"prior_samples": reconstruct} if told["has_prior"] else {}),
    }
    made = dataclasses.make_dataclass(
        title, fields, bases=(Attack,), namespace=namespace, frozen=True, kw_only=True
    )
    made.__module__, made.__qualname__ = module, title  # where its code is, for fingerprints
    return made


@functools.cache
def _ask(address: str, hyperparameters: str, spec: str, closed: tuple[str, ...]) -> dict[str, Any]:
    """The answer of the fresh process; asked once for each question."""
    question = {
        "address": address,
        "hyperparameters": json.loads(hyperparameters),
        "spec": json.loads(spec),
        "closed": closed,
    }
    process = _describer(os.environ.get("PYTHONPATH", ""), *sys.path[:1])
    process.stdin.write(json.dumps(question) + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise UserError(f"attack '{address}': its process ended with code {process.wait()}")
    answer = json.loads(line)
    if "error" in answer:
        raise UserError(answer["error"])
    return answer


@functools.cache
def _describer(*where: str) -> subprocess.Popen[str]:
    """The process that answers; another one when modules are looked for in other folders."""
    return subprocess.Popen(
        [sys.executable, "-m", "drlib.outside", str(default_root()), str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=pool.worker_environment(),
    )


# --- in the fresh process ------------------------------------------------------------------------------


def describe(address: str, hyperparameters: dict[str, Any], spec: dict[str, Any] | None) -> dict[str, Any]:
    """Everything that ``declaration`` needs, as JSON values."""
    attack = attacks.create(address, hyperparameters)
    cls, knowledge = type(attack), attack.knowledge
    fields = {field.name: dict(field.metadata) for field in dataclasses.fields(attack)}
    return {
        "class": {
            **{name: bool(getattr(cls, name)) for name in _FLAGS},
            **{name: getattr(cls, name, None) for name in _TEXTS},
            "knowledge": [int(knowledge.training), int(knowledge.model), int(knowledge.dataset)],
            "also_datasets": [int(value) for value in cls.also_datasets],
            "has_prior": cls.prior_samples is not Attack.prior_samples,
            "fields": fields,
        },
        "values": {name: getattr(attack, name) for name in fields},
        "variant": attack.control_variant,
        "reason": None if spec is None else attack.supports(target_spec(spec)),
    }


def main() -> None:
    """Answer questions, each in a sealed copy of this process: outside code is never imported here."""
    pool.become_worker()
    answers = pool.answer_stream("w")
    guard.install(sys.argv[1])
    for line in sys.stdin:
        question = json.loads(line)
        closed = [sys.argv[1], *question.pop("closed")]
        try:
            made = apart.run(
                lambda: (None, {}),
                lambda nothing, progress, question=question: ({}, describe(**question)),
                closed=closed,
                progress=lambda done, total: None,
            )
            answer = made.data
        except Exception as error:
            answer = {"error": str(error).partition("\n")[0]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
