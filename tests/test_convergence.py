"""Converged or said not to be, on made-up curves and on real cells."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from drlib import convergence, sections, study
from drlib.cells import Cell, Target
from drlib.errors import UserError
from drlib.progress import Reporter
from drlib.store import Store
from drlib.training import TrainSpec


def curve(values: dict[float, float], half: float, scaled: str = "steps") -> pd.DataFrame:
    rows = [
        {
            "attack": "A",
            "name": "a",
            "scaled": scaled,
            "multiple": multiple,
            "setting": 100 * multiple,
            "seeds": 3,
            "value": value,
            "low": value - half,
            "high": value + half,
            "reason": "",
        }
        for multiple, value in values.items()
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("values", "half", "moves"),
    [
        ({0.5: 0.1, 1: 0.5, 4: 0.52}, 0.03, False),
        ({0.5: 0.1, 1: 0.5, 4: 0.54}, 0.03, True),
        ({0.5: 0.1, 1: 0.5, 4: 0.46}, 0.03, True),  # more steps may also make it worse
        ({0.5: 0.9, 1: 0.5, 4: 0.5}, 0.03, False),  # only what comes after the setting counts
        ({0.5: 0.1, 1: 0.5}, 0.03, None),  # nothing above the setting was run
        ({1: 0.5, 4: math.nan}, 0.03, None),
        ({1: 0.5, 4: 0.6}, math.nan, None),
    ],
)
def test_a_value_moves_if_it_changes_by_more_than_half_its_interval(values, half, moves):
    (row,) = convergence.verdicts(curve(values, half)).itertuples()
    assert row.moves is moves
    assert row.setting == 100 and row.most == max(values)


def test_each_scaled_hyperparameter_has_its_own_verdict():
    both = pd.concat([curve({1: 0.5, 4: 0.9}, 0.1), curve({1: 0.5, 4: 0.5}, 0.1, "prior_steps")])
    assert convergence.verdicts(both).set_index("scaled").moves.to_dict() == {
        "steps": True,
        "prior_steps": False,
    }


@pytest.fixture
def grid() -> dict[tuple[str, str, float], list[Cell]]:
    target = Target(size=20, width=0.25, training=TrainSpec(epochs=2, min_steps=40))
    return {
        ("mi_face", "steps", multiple): [
            Cell(target=target, attack="mi_face", hyperparameters={"steps": steps, "confidence": 1.0})
        ]
        for multiple, steps in ((1, 2), (4, 8))
    }


def test_cells_become_a_curve_and_a_verdict(grid, tmp_path):
    store = Store(tmp_path)
    assert convergence.moving(grid, store=store) == {"MI-Face": None}, "not computed yet: not known"
    with pytest.raises(UserError, match="compute it first"):
        convergence.curves(grid, store=store)
    study.run([cell for cells in grid.values() for cell in cells], store=store, reporter=Reporter(quiet=True))
    found = convergence.curves(grid, store=store)
    assert found.setting.tolist() == [2, 8] and found.value.notna().all()
    assert convergence.moving(grid, store=store)["MI-Face"] in (True, False)


def test_the_section_scales_what_each_attack_declares():
    pages = sections.parameters(
        "attacks", "smoke", {"attacks": ["mi_face", "deep_dream"], "multiples": [0.5, 1, 2], "repeats": 2}
    )
    grid = pages.convergence()
    assert {(attack, name) for attack, name, _ in grid} == {("mi_face", "steps"), ("deep_dream", "steps")}
    steps = {
        multiple: cells[0].hyperparameters["steps"]
        for (attack, _, multiple), cells in grid.items()
        if attack == "mi_face"
    }
    assert steps == {0.5: 20, 1: 40, 2: 80}
    assert all(len(cells) == 2 for cells in grid.values())
    assert {cell.target.size for cells in grid.values() for cell in cells} == {pages.convergence_size}


def test_the_benchmark_reads_the_very_cells_of_the_attacks_section():
    """Otherwise its marks would always be unknown."""
    benchmark, pages = (sections.parameters(slug, "laptop") for slug in ("benchmark", "attacks"))
    assert benchmark.convergence() == pages.convergence()


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("multiples=[0.5, 2]", "multiples must contain 1"),
        ("multiples=[0, 1]", "multiples=[0, 1] is not allowed"),
        ("surrogates=[distilation]", "did you mean 'distillation'"),
        ("gradient_batches=[3]", "gradient_images=2 is no multiple of the gradient batch 3"),
    ],
)
def test_bad_parameters_are_refused_in_one_line(assignment, message):
    with pytest.raises(UserError) as error:
        sections.parse("attacks", "smoke", [assignment])
    assert message in str(error.value) and "\n" not in str(error.value)
