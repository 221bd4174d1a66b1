"""Which tables and figures are made of the same reconstructions.

An experiment is what one reconstruction depends on: data set, target model and how it is made, attack, size
of the target data set. Two items share where their sets of experiments meet. Bias-Rec attacks a network of
its own, trained once, whichever convolutional network the table is about.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import product
from typing import NamedTuple

from drlib.manifest.items import CONVOLUTIONAL, VARIANTS, Item, items, joined, plain_attack, target_sizes
from drlib.published import spelled

OWN_NETWORK = "own network"
DEFENSES = {"DP", "MID", "pruning"}


class Experiment(NamedTuple):
    dataset: str
    model: str
    variant: str
    attack: str
    size: int


def experiments(item: Item) -> frozenset[Experiment]:
    """The experiments behind an item; none for one that shows no reconstructions of an attack."""
    rows = item.rows
    if not {"dataset", "attack", "target_size"} <= rows.keys():
        return frozenset()
    words = [rows.get(name, ["none"]) for name in ("defense", "variant", "auxiliary", "access")]
    if "reconstructions" in rows:  # one reconstruction, as long as the longest
        words.append([f"{max(rows['reconstructions']):,} reconstructions"])
    found = set()
    for dataset, model, attack, *chosen in product(
        rows["dataset"], rows.get("model", [""]), rows["attack"], *words
    ):
        name, variant = plain_attack(attack), _variant(attack, chosen)
        network = OWN_NETWORK if name == "Bias-Rec" and model in CONVOLUTIONAL else model
        for size in target_sizes(rows, dataset):
            found.add(Experiment(dataset, network, variant, name, size))
    return frozenset(found)


def _variant(attack: str, words: Iterable[str]) -> str:
    """How the target model or the attack differs from the usual; an attack's name may say it too."""
    said = [VARIANTS.get(word, word) for word in (attack if " (" in attack else "none", *words)]
    return joined([*dict.fromkeys(word for word in said if word != "none")] or ["none"])


@cache
def _by_name() -> dict[str, frozenset[Experiment]]:
    """The experiments of each table and figure, all panels together."""
    found: dict[str, frozenset[Experiment]] = {}
    for item in items():
        found[item.name] = found.get(item.name, frozenset()) | experiments(item)
    return found


def shares(item: Item) -> list[dict[str, str]]:
    """The other tables and figures that show the same reconstructions, and which these are."""
    mine = experiments(item)
    return [
        {"item": name, "what": _words(mine & theirs, mine | theirs)}
        for name, theirs in _by_name().items()
        if name != item.name and mine & theirs
    ]


def _words(common: Iterable[Experiment], both: Iterable[Experiment]) -> str:
    """Such as ``10 attacks at 1,000 and 20,000 images, no defense``."""
    attacks = _sorted(each.attack for each in common)
    sizes = [f"{size:,}" for size in sorted({each.size for each in common})]
    datasets, everywhere = _sorted(each.dataset for each in common), {each.dataset for each in both}
    words = joined(attacks) if len(attacks) < 3 else f"{len(attacks)} attacks"
    words += f" at {len(sizes)} sizes" if len(sizes) > 2 else f" at {joined(sizes)} images"
    words += f", {joined(map(spelled, datasets))}" if len(everywhere) > 1 else ""
    return words + _variant_words({each.variant for each in common}, {each.variant for each in both})


def _sorted(names: Iterable[str]) -> list[str]:
    return sorted(set(names), key=str.casefold)


def _variant_words(common: set[str], both: set[str]) -> str:
    if both == {"none"}:
        return ""
    plain = "no defense" if both & DEFENSES else "target model unchanged"
    return f", {joined(sorted(plain if variant == 'none' else variant for variant in common))}"
