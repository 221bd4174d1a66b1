"""The paper's 24 tables and 14 figures: which section regenerates each, with what, and how far it is.

``items`` lists them with their row grids, ``entries`` adds the state (design, honesty rule 8) and with which
others each one shares its reconstructions, ``by_number`` joins a figure's panels. Nothing heavy is imported
unless the data for a table at the paper's scale are on this machine.
"""

from __future__ import annotations

from drlib.manifest.entries import Entry, by_number, entries, in_words, name_of, same_run, shared_with
from drlib.manifest.items import Item, items

__all__ = [
    "Entry",
    "Item",
    "by_number",
    "entries",
    "in_words",
    "items",
    "name_of",
    "same_run",
    "shared_with",
]
