"""Errors that a user can mend: one line, what was wrong, what is allowed, the nearest match."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A refused input. The message is one line; the command line prints it and exits with code 2."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(str(message).split()))


def nearest(name: str, options: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the option closest to ``name``, or an empty string."""
    written = {str(option).lower(): str(option) for option in options}
    match = difflib.get_close_matches(str(name).lower(), written, n=1, cutoff=0.5)
    return f"; did you mean '{written[match[0]]}'?" if match else ""


def unknown(what: str, name: object, options: Iterable[str]) -> UserError:
    """Build the error for a name that is not among ``options``."""
    options = [str(option) for option in options]
    return UserError(f"unknown {what} '{name}'{nearest(str(name), options)} (allowed: {', '.join(options)})")
