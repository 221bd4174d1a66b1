"""Table 1 of the paper against what our attacks declare, and the partial order of Definition 3.1."""

from importlib import resources
from itertools import product

import pandas as pd
import pytest

from drlib import attacks, published
from drlib.types import (
    BLACK_BOX,
    DYNAMIC,
    NO_DATA,
    SAME,
    SIMILAR,
    STATIC,
    WHITE_BOX,
    DatasetAccess,
    Knowledge,
    ModelAccess,
    TrainingType,
)

TABLE_1 = {  # transcribed from the paper: the cells in which each attack is printed
    "Inv-Alignment": (STATIC, BLACK_BOX, {SIMILAR, SAME}),
    "MI-Face": (STATIC, WHITE_BOX, {NO_DATA}),
    "DeepDream": (STATIC, WHITE_BOX, {NO_DATA}),
    "DeepInversion": (STATIC, WHITE_BOX, {NO_DATA}),
    "Bias-Rec": (STATIC, WHITE_BOX, {NO_DATA}),
    "Revealer": (STATIC, WHITE_BOX, {SIMILAR, SAME}),
    "KEDMI": (STATIC, WHITE_BOX, {SIMILAR, SAME}),
    "PLGMI": (STATIC, WHITE_BOX, {SIMILAR, SAME}),
    "Updates-Leak": (DYNAMIC, BLACK_BOX, {SAME}),
    "Deep-Leakage": (DYNAMIC, WHITE_BOX, {NO_DATA}),
}
EVERY = [Knowledge(*parts) for parts in product(TrainingType, ModelAccess, DatasetAccess)]


@pytest.fixture(scope="module")
def printed() -> pd.DataFrame:
    with (resources.files("drlib.published") / "taxonomy.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)


def test_the_file_is_the_papers_table_1(printed):
    assert list(printed.columns) == ["attack", "training", "model", "dataset"]
    expected = {
        (name, training.name.lower(), model.name.lower(), dataset.name.lower())
        for name, (training, model, datasets) in TABLE_1.items()
        for dataset in datasets
    }
    rows = list(printed.itertuples(index=False, name=None))
    assert set(rows) == expected and len(rows) == len(expected)


def test_it_names_the_attacks_of_the_result_tables(printed):
    assert set(printed["attack"]) == set(published.load("image_attacks")["attack"])


@pytest.mark.parametrize("name", attacks.names())
def test_an_attack_declares_what_table_1_prints(name):
    cls = attacks.get(name)
    assert cls.title in TABLE_1, f"{cls.title} is not one of the paper's ten attacks"
    training, model, datasets = TABLE_1[cls.title]
    assert cls.knowledge == Knowledge(training, model, min(datasets))
    assert {cls.knowledge.dataset, *cls.also_datasets} == datasets


def test_knowledge_is_a_partial_order():
    for a, b, c in product(EVERY, repeat=3):
        assert a <= a
        assert not (a <= b and b <= a) or a == b
        assert not (a <= b and b <= c) or a <= c


def test_what_the_order_means():
    least, most = Knowledge(STATIC, BLACK_BOX, NO_DATA), Knowledge(STATIC, WHITE_BOX, SAME)
    assert least <= most and not most <= least
    weights, data = Knowledge(STATIC, WHITE_BOX, NO_DATA), Knowledge(STATIC, BLACK_BOX, SIMILAR)
    assert not weights <= data and not data <= weights
    for model, dataset in product(ModelAccess, DatasetAccess):  # other targets: never comparable
        static, dynamic = Knowledge(STATIC, model, dataset), Knowledge(DYNAMIC, model, dataset)
        assert not static <= dynamic and not dynamic <= static
