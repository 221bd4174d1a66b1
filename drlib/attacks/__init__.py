"""The attacks by name. Listing the names imports nothing heavy; ``get`` imports one attack's file."""

from __future__ import annotations

import importlib
import json
import typing
from typing import TYPE_CHECKING, Any

from drlib.errors import UserError, unknown

if TYPE_CHECKING:
    from drlib.types import Attack

_CLASSES = {
    "mi_face": "MIFace",
    "deep_dream": "DeepDream",
    "deep_inversion": "DeepInversion",
    "revealer": "Revealer",
    "kedmi": "KEDMI",
    "plgmi": "PLGMI",
    "deep_leakage": "DeepLeakage",
    "inv_alignment": "InvAlignment",
    "updates_leak": "UpdatesLeak",
    "bias_rec": "BiasRec",
}


def names() -> tuple[str, ...]:
    """Names of the attacks in this package, in the order of the paper's section 2.2."""
    return tuple(_CLASSES)


def get(name: str) -> type[Attack]:
    """The attack class called ``name``, or the one at ``"module:Class"`` outside the package.

    Raises ``UserError`` for an unknown name (with the nearest match), for a module that cannot be
    imported, and for a class that is not an ``Attack`` with a name and a declared knowledge.
    """
    if ":" in name:
        return _outside(name)
    if name not in _CLASSES:
        raise unknown("attack", name, names())
    return getattr(importlib.import_module(f"drlib.attacks.{name}"), _CLASSES[name])


def _outside(address: str) -> type[Attack]:
    from drlib.types import Attack, Knowledge

    module_name, _, class_name = address.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever a foreign module raises, the user gets one line
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"attack '{address}': cannot import '{module_name}' ({reason})") from error
    found = getattr(module, class_name, None)
    if found is None:
        classes = [key for key, value in vars(module).items() if isinstance(value, type)]
        raise unknown(f"class in {module_name}", class_name, classes)
    if not (isinstance(found, type) and issubclass(found, Attack)):
        raise UserError(f"attack '{address}' must be a subclass of drlib.types.Attack")
    declared = {"name": str, "title": str, "knowledge": Knowledge}
    missing = [key for key, kind in declared.items() if not isinstance(getattr(found, key, None), kind)]
    missing += sorted(found.__abstractmethods__)
    if missing:
        raise UserError(f"attack '{address}' must define {', '.join(missing)} (see drlib.types.Attack)")
    return found


def create(name: str, hyperparameters: dict[str, Any] | None = None) -> Attack:
    """An attack with the given hyperparameters, the original paper's for the rest.

    Values are JSON values and strictly typed: "400" is no integer, 1 is a fine float. Raises
    ``UserError`` for a misspelt hyperparameter (with the nearest match), a wrong type or range.
    """
    cls = get(name)
    fields = getattr(cls, "__dataclass_fields__", {})
    hints = typing.get_type_hints(cls)
    allowed = [key for key in fields if typing.get_origin(hints[key]) is not typing.ClassVar]
    values = {}
    for key, value in (hyperparameters or {}).items():
        if key not in allowed:
            raise unknown(f"hyperparameter of {cls.name}", key, allowed)
        values[key] = _typed(f"{cls.name}: {key}", hints[key], value)
    return cls(**values)


def _typed(what: str, hint: Any, value: Any) -> Any:
    """The value as its declared type, or a one-line ``UserError``."""
    from pydantic import TypeAdapter, ValidationError

    try:
        # Through JSON, strict validation takes a list for a tuple but no string for a number.
        return TypeAdapter(hint).validate_json(json.dumps(value), strict=True)
    except (ValidationError, TypeError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise UserError(f"{what}: {reason}, got {value!r}") from error
