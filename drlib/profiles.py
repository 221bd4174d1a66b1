"""The three profiles: validated data with inheritance, never code.

``profiles.yaml`` holds three overlays, smoke < laptop < paper; each says only what it changes. They are
combined as a JSON merge patch (RFC 7396): mappings merge key by key, everything else replaces what was
inherited, and ``null`` forgets the inherited value, so that the default of the code holds again. For an
attack's hyperparameters that default is the original paper's.

YAML is read by YAML 1.2 rules and strictly (``parse_yaml``): ``true`` and ``false`` are the only
booleans, ``010`` is text and not a number, a key written twice is an error.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from drlib.errors import UserError, unknown

NAMES = ("smoke", "laptop", "paper")
"""Each profile inherits from the one before it."""

DEFAULT = "laptop"


class _StrictLoader(yaml.SafeLoader):
    """Plain scalars by the YAML 1.2 core schema; mapping keys are unique text."""

    yaml_implicit_resolvers: dict[
        str, list[tuple[str, Any]]
    ] = {}  # none of YAML 1.1's (yes, 010, 1_000, 12:30)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if not isinstance(name, str):
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {name!r} is not text", key.start_mark
                )
            if name in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"'{name}' is given twice", key.start_mark
                )
            seen.add(name)
        return super().construct_mapping(node, deep)


def _add_core_schema() -> None:
    number = r"(?:0|[1-9][0-9]*)"
    for tag, pattern, first in (
        ("null", r"(?:~|null|Null|NULL|none|None|NONE|)", ["~", "n", "N", ""]),
        ("bool", r"(?:true|True|TRUE|false|False|FALSE)", list("tTfF")),
        ("int", rf"[-+]?{number}", list("-+0123456789")),
        (
            "float",
            rf"[-+]?(?:{number}\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?{number}[eE][-+]?[0-9]+"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
            list("-+.0123456789"),
        ),
    ):
        _StrictLoader.add_implicit_resolver(
            f"tag:yaml.org,2002:{tag}", re.compile(rf"(?:{pattern})\Z"), first
        )


_add_core_schema()


def parse_yaml(text: str, what: str) -> Any:
    """Parse one YAML document strictly; ``what`` names it in the message.

    Raises ``UserError`` (one line, with the line and column) when the text is not such a document.
    """
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise UserError(f"{what} is not valid YAML: {error.problem or error.context}{where}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{what} is not valid YAML: {error}") from None


Value = str | bool | int | float | list[Any]


class Profile(BaseModel):
    """A resolved profile.

    ``data``, ``model``, ``training``, ``update`` and ``attacks`` are what every section starts from;
    ``targets`` holds, by attack, what differs in the target that it attacks; ``gradient_matching`` is how
    gradients are matched where that is known to work; ``surrogates`` how each kind is made; ``sections``
    holds each section's own parameters. The names inside are checked where they are
    used: section parameters by ``drlib.sections``, hyperparameters by the attack.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str
    summary: str
    data: dict[str, Value]
    model: dict[str, Value]
    training: dict[str, Value] = {}
    update: dict[str, Any] = {}
    targets: dict[str, dict[str, Any]] = {}
    attacks: dict[str, dict[str, Value]] = {}
    gradient_matching: dict[str, Any] = {}
    surrogates: dict[str, dict[str, Value]] = {}
    sections: dict[str, dict[str, Any]]


def merge(base: Any, overlay: Any) -> Any:
    """Apply ``overlay`` to ``base`` as a JSON merge patch (RFC 7396); neither is changed."""
    if not isinstance(overlay, Mapping):
        return overlay
    result = dict(base) if isinstance(base, Mapping) else {}
    for key, value in overlay.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


@cache
def _overlays() -> dict[str, dict[str, Any]]:
    text = (resources.files("drlib") / "profiles.yaml").read_text(encoding="utf-8")
    overlays = parse_yaml(text, "profiles.yaml")
    if not isinstance(overlays, dict) or tuple(overlays) != NAMES:
        raise UserError(f"profiles.yaml must hold exactly {', '.join(NAMES)}, in this order")
    return overlays


def _check_name(name: str) -> None:
    if name not in NAMES:
        raise unknown("profile", name, NAMES)


def overlay(name: str) -> dict[str, Any]:
    """What the profile itself says, without what it inherits. Raises ``UserError`` for an unknown name."""
    _check_name(name)
    return copy.deepcopy(_overlays()[name])


def resolve(name: str, overlays: Mapping[str, Mapping[str, Any]]) -> Profile:
    """Combine the overlays up to ``name`` and validate the result."""
    values: Any = {}
    for each in NAMES[: NAMES.index(name) + 1]:
        values = merge(values, overlays[each])
    try:
        return Profile.model_validate({"name": name, **values})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise unknown(
                f"key in profile {name}", where, [f for f in Profile.model_fields if f != "name"]
            ) from None
        raise UserError(f"profile {name}: {where}: {first['msg']}") from None


@cache
def load(name: str) -> Profile:
    """The resolved profile. Raises ``UserError`` for an unknown name (with the nearest match)."""
    _check_name(name)
    return resolve(name, _overlays())
