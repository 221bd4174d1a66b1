"""Specifications: frozen, validated data whose errors are one line with the nearest name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from drlib.errors import UserError, nearest


class Spec(BaseModel):
    """A frozen pydantic model whose errors are one line (``UserError``), with the nearest name for a misspelt
    field."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise UserError(one_line(error, type(self).model_fields)) from None


def one_line(error: ValidationError, names: Iterable[str]) -> str:
    """The first problem of a pydantic error as one line; ``names`` are the fields to suggest for a misspelt
    one."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown parameter '{where}'{nearest(where, names)} (allowed: {', '.join(names)})"
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    return f"{where}: {first['msg'][0].lower()}{first['msg'][1:]}, got {first['input']!r}"
