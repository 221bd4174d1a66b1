"""The book: execute the notebooks, refuse bad ones, stage, build. Nothing heavy is imported here."""

from __future__ import annotations

from drlib.book.notebooks import sync
from drlib.book.pipeline import make, read, run_section
from drlib.book.reference import reference_tables

__all__ = ["make", "read", "reference_tables", "run_section", "sync"]
