"""How far a table or figure is regenerated, computed from artifacts and never typed (honesty rule 8)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from drlib import attacks, data, declared, sections
from drlib.errors import UserError
from drlib.manifest.items import JUDGED_BY_API, Item, code_name, plain, plain_attack, read, target_sizes
from drlib.published import spelled
from drlib.store import Store

AS_THE_PROFILE = ("width", "n", "training", "hyperparameters")
"""Parameters that are unset, or empty, unless a reader changed what the profile says."""

Run = Mapping[str, Any]
"""What a section's run says: its ``parameters`` and the ``states`` that its notebook recorded."""


class State(NamedTuple):
    """One of ``report.STATES`` (``shape only`` names the data set), and why."""

    word: str
    reason: str


def state(item: Item, run: Run | None) -> State:
    """The state of an item. ``run``: the last run of its section, if there was one."""
    if item.section is None:
        return State("not yet", f"planned: section {item.chapter}, {item.planned}; will need {item.lacks}")
    if item.planned == "taxonomy":
        return _taxonomy()
    if is_stored(item):
        return State("regenerated", _readings(item))
    return (_ran(item, run) if run else None) or missing(item)


def _ran(item: Item, run: Run) -> State | None:
    """The state by a run of its section; None if the run did not touch the item."""
    for name in (f"{item.name} ({item.panel})", item.name):
        if name in run.get("states", {}):
            said = run["states"][name]
            return State(said["state"], said["reason"])
    used = run.get("parameters", {})
    if _wanted_attacks(item) and not _wanted_attacks(item) & _run_attacks(used):
        return None
    found = differences(item, used)
    if found:
        refused = refusal(item)
        found += [_short(refused)] if refused else []
        return State(f"shape only ({_data_word(used)})", "; ".join(found)) if "dataset" in used else None
    return State("regenerated", _readings(item))


def _data_word(parameters: Mapping[str, Any]) -> str:
    return str(parameters["dataset"]).partition(":")[0]  # without the path of a folder


def _short(refused: str) -> str:
    return refused.partition(" (allowed")[0].partition("; did you mean")[0]


def _readings(item: Item) -> str:
    """What the paper does not state of an item."""
    return f"not stated in the paper, our reading: {', '.join(item.unstated)}" if item.unstated else ""


def _taxonomy() -> State:
    printed = {(row["attack"], row["training"], row["model"], row["dataset"]) for row in read("taxonomy")}
    ours = {line for name in attacks.names() for line in declared.taxonomy(name)}
    if ours == printed:
        return State("regenerated", "")
    odd = sorted({line[0] for line in ours ^ printed})
    return State("not yet", f"declared otherwise than printed: {', '.join(odd)}")


# --- computed at the paper's scale ---------------------------------------------------------------------


def _unloadable(item: Item) -> list[str]:
    """Data sets of an item, as the paper calls them, that this package cannot load."""
    return [name for name in item.rows.get("dataset", ()) if code_name(name) not in data.NAMES]


def refusal(item: Item) -> str:
    """Why the item's section does not take its parameters; empty if it does."""
    if unloadable := _unloadable(item):
        return f"no loader for {', '.join(map(spelled, unloadable))} yet"
    try:
        for parameters in item.runs:
            sections.parameters(item.planned, "paper", parameters)
    except UserError as error:
        return str(error)
    return ""


def is_stored(item: Item) -> bool:
    """True if all that the item's section computes for it is in the store, at the paper's scale.

    PyTorch is imported only where the data are there and something has been scored.
    """
    store = Store()
    if "dataset" not in item.rows or not (store.root / "score").is_dir():
        return False
    try:
        chosen = [sections.parameters(item.planned, "paper", parameters) for parameters in item.runs]
        for each in chosen:
            each.check_files()
        return all(_is_made(item, each, store) for each in chosen)
    except (UserError, ImportError):  # no data, no weights, no PyTorch, fewer images than the paper's
        return False


def _is_made(item: Item, chosen: sections.Parameters, store: Store) -> bool:
    """True if a run's scores, and what its experiments make, are in the store."""
    from drlib import study

    wanted = chosen.cells()
    if item.memorization:
        ensembles = chosen.ensembles()
        if set(ensembles) != set(chosen.sizes):  # the data have too few images for some
            return False
        wanted += ensembles.values()
    plans = (study.plan(cell).tasks for cell in wanted)
    made = (task for tasks in plans for task in ([tasks["score"]] if "score" in tasks else tasks.values()))
    return bool(wanted) and all(store.folder(task.kind, task.key).is_dir() for task in made)


# --- a run of other data or scale ----------------------------------------------------------------------


def differences(item: Item, used: Mapping[str, Any]) -> list[str]:
    """How a run with these parameters differs from what the paper ran for an item; empty if it covers it."""
    if "dataset" not in item.rows:
        return ["the paper does not say which data and model"]
    found = [
        f"{what} {used.get(parameter, 'none')} for {', '.join(map(spelled, item.rows[dimension]))}"
        for what, dimension, parameter in (
            ("data", "dataset", "dataset"),
            ("model", "model", "architecture"),
        )
        if dimension in item.rows
        and (dimension == "dataset" or dimension not in item.unstated)  # other data never regenerate
        and [plain(str(used.get(parameter, "none")))] != [plain(name) for name in item.rows[dimension]]
    ]
    sizes = {size for dataset in item.rows["dataset"] for size in target_sizes(item.rows, dataset)}
    if "target_size" not in item.unstated and not sizes <= set(_run_sizes(used)):
        found.append(f"{_span(_run_sizes(used))} for {_span(sorted(sizes))}")
    wanted, ran = _wanted_attacks(item), _run_attacks(used)
    if not wanted <= ran:
        found.append(f"{len(wanted & ran)} of {len(wanted)} attacks")
    return found or _changes(used)


def _changes(used: Mapping[str, Any]) -> list[str]:
    """What keeps the right data, model, sizes and attacks from being the paper's scale."""
    profile, extractor = used.get("profile", "paper"), used.get("extractor", "inception")
    found = [] if profile == "paper" else [f"settings of the profile {profile}"]
    found += [] if extractor == "inception" else [f"features of {extractor}, so no FID"]
    return found + [f"{name} changed" for name in AS_THE_PROFILE if used.get(name)]


def _run_sizes(used: Mapping[str, Any]) -> list[int]:
    return used.get("target_sizes") or ([used["target_size"]] if "target_size" in used else [])


def _run_attacks(used: Mapping[str, Any]) -> set[str]:
    return set(used.get("attacks", attacks.names()))


def _wanted_attacks(item: Item) -> set[str]:
    return {code_name(plain_attack(attack)) for attack in item.rows.get("attack", [])}


def _span(sizes: Sequence[int]) -> str:
    if not sizes:
        return "no size"
    if len(sizes) == 1:
        return f"one size ({sizes[0]:,})"
    return f"{len(sizes)} sizes ({min(sizes):,} to {max(sizes):,})"


# --- nothing ran ---------------------------------------------------------------------------------------


def missing(item: Item) -> State:
    """The first thing that an item's section needs and that is not on this machine."""
    refused = refusal(item)
    if refused:
        return State("needs data" if _unloadable(item) else "not yet", _short(refused))
    try:
        for parameters in item.runs:
            sections.parameters(item.planned, "paper", parameters).check_files()
    except UserError as error:
        return State("needs data", str(error))
    return _missing_tools(item) or State("not yet", "everything is here; it has not been run")


def _missing_tools(item: Item) -> State | None:
    try:
        import torch

        from drlib.metrics.features import available
    except ImportError:
        return State("needs GPU", "PyTorch is not installed")
    if reason := "FID" in item.rows.get("metric", ()) and available("inception"):
        return State("needs weights", reason)
    if not torch.cuda.is_available():
        return State("needs GPU", "PyTorch sees no GPU here")
    keys = [JUDGED_BY_API[judge] for judge in item.rows.get("judge", ()) if judge in JUDGED_BY_API]
    unset = [key for key in keys if not os.environ.get(key)]
    return State("needs key", f"{', '.join(unset)} is not set") if unset else None
