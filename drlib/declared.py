"""What the package declares, read without importing torch, so that a misspelt name is refused at once.

Architectures and the sizes of bundled data are written out here (a test compares them with the modules
that own them); the hyperparameters of an attack are read from its source.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError

from drlib import attacks
from drlib.errors import UserError, unknown

ARCHITECTURES = ("convnet", "lenet", "mlp", "homogeneous_mlp", "vgg16", "resnet18", "mobilenet_v2")

PRIOR_CONTROLS = ("prior_sample", "prior_best")
"""Controls that draw from an attack's prior: ``prior_sample:ATTACK``, ``prior_best:ATTACK``."""

LARGEST_TARGET = {("digits", "class"): 400, ("lfw_subset", "class"): 80, ("lfw_subset", "identity"): 100}
"""Images in the target split of the bundled data sets, by name and mode."""


def check_attack(name: str) -> None:
    """Raise ``UserError`` unless ``name`` is a registered attack or ``module:Class`` that can be found."""
    if ":" not in name:
        if name not in attacks.names():
            raise unknown("attack", name, [*attacks.names(), "module:Class"])
        return
    module, _, cls = name.partition(":")
    source = _source(module)
    if source is None:
        raise UserError(f"attack {name}: there is no module '{module}' on Python's path")
    defined = [node.name for node in source.body if isinstance(node, ast.ClassDef)]
    imported = [
        alias.asname or alias.name
        for node in source.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    if cls not in defined and cls not in imported:
        raise unknown(f"class in {module}", cls, defined)


def check_hyperparameters(attack: str, values: Mapping[str, Any]) -> None:
    """Raise ``UserError`` for a misspelt hyperparameter or a wrong type. Ranges are the attack's to check.

    ``None`` stands for the original paper's value. Fields that cannot be read from the source (an
    attack that inherits them) pass here and are checked when the attack is made.
    """
    fields = _fields(attack)
    if fields is None:
        return
    for name, value in values.items():
        if name not in fields:
            raise unknown(f"hyperparameter of {attack}", name, fields)
        kind = _type(fields[name])
        if value is not None and kind is not None:
            check_type(f"{attack}: {name}", kind, value)


def is_dynamic(attack: str) -> bool:
    """True if the attack's declared knowledge is of a dynamic target."""
    declared = _declarations(attack).get("knowledge")
    return declared is not None and "DYNAMIC" in ast.unparse(declared)


def is_for_surrogates(attack: str) -> bool:
    """True if the attack declares a static white box and no data (or does not declare its knowledge here)."""
    declared = _declarations(attack).get("knowledge")
    wanted = ("STATIC", "WHITE_BOX", "NO_DATA")
    return declared is None or all(name in ast.unparse(declared) for name in wanted)


def taxonomy(attack: str) -> list[tuple[str, str, str, str]]:
    """An attack's rows of the paper's Table 1, by its declarations: title, training, model, data set."""
    made = _declarations(attack)
    training, model, *datasets = _constants(made["knowledge"])
    datasets += _constants(made["also_datasets"]) if "also_datasets" in made else []
    return [(ast.literal_eval(made["title"]), training, model, dataset) for dataset in datasets]


def _constants(expression: ast.expr) -> list[str]:
    """The constants that an expression names, such as ``STATIC``, in order and in lower case."""
    names = [node.id for node in ast.walk(expression) if isinstance(node, ast.Name)]
    return [name.lower() for name in names if name.isupper()]


def has_prior(attack: str) -> bool:
    """True if samples can be drawn from the attack's prior (``prior_samples`` is defined)."""
    return "prior_samples" in _methods(attack)


def is_labeled(attack: str) -> bool:
    """False if the attack's class declares that its output has no labels."""
    declared = _declarations(attack).get("labeled")
    return declared is None or ast.unparse(declared) != "False"


def has_unconditional(attack: str) -> bool:
    """True if the attack has a setting that ignores what it is conditioned on."""
    return "conditional" in (_fields(attack) or {})


def check_type(what: str, kind: Any, value: Any) -> None:
    """Raise ``UserError`` unless ``value`` is strictly of the type ``kind``: "3" and true are no numbers."""
    try:
        TypeAdapter(kind, config=ConfigDict(strict=True, allow_inf_nan=False)).validate_python(value)
    except ValidationError:
        names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        allowed = names.get(kind) or f"one of {', '.join(str(option) for option in get_args(kind))}"
        raise UserError(f"{what}={value!r} is not allowed (allowed: {allowed})") from None


def _type(annotation: ast.expr) -> Any:
    """The type that a plain annotation means, or None for others, which only the constructor can check."""
    if isinstance(annotation, ast.Name):
        return {"int": int, "float": float, "bool": bool, "str": str}.get(annotation.id)
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Literal":
        options = ast.literal_eval(annotation.slice)
        return Literal[options]
    return None


@cache
def _source(module: str) -> ast.Module | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return None
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


def _class(attack: str) -> ast.ClassDef | None:
    """The source of an attack's class."""
    module, colon, cls = attack.partition(":")
    source = _source(module if colon else f"drlib.attacks.{attack}")
    for node in source.body if source else ():
        if isinstance(node, ast.ClassDef) and (node.name == cls if colon else _is_named(node.body, attack)):
            return node
    return None


def _fields(attack: str) -> dict[str, ast.expr] | None:
    """Annotations of an attack's hyperparameters by name; None if its class inherits from another attack."""
    node = _class(attack)
    if node is None or [ast.unparse(base).split(".")[-1] for base in node.bases] != ["Attack"]:
        return None
    return {
        item.target.id: item.annotation
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and isinstance(item.target, ast.Name)
        and "ClassVar" not in ast.unparse(item.annotation)
    }


def _declarations(attack: str) -> dict[str, ast.expr]:
    """What an attack's class itself assigns, by name."""
    node = _class(attack)
    found: dict[str, ast.expr] = {}
    for item in node.body if node else ():
        if isinstance(item, ast.AnnAssign) and item.value is not None:
            found[ast.unparse(item.target)] = item.value
        elif isinstance(item, ast.Assign):
            found |= {ast.unparse(target): item.value for target in item.targets}
    return found


def _methods(attack: str) -> set[str]:
    node = _class(attack)
    return {item.name for item in node.body if isinstance(item, ast.FunctionDef)} if node else set()


def _is_named(body: Iterable[ast.stmt], name: str) -> bool:
    return any(
        isinstance(item, ast.AnnAssign)
        and ast.unparse(item.target) == "name"
        and isinstance(item.value, ast.Constant)
        and item.value.value == name
        for item in body
    )
