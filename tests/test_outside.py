"""Attacks at ``module:Class``: described by a process that never loaded a data set, run by another one."""

from __future__ import annotations

import os
import sys

import pytest

from drlib import attacks, results, study
from drlib.cells import Cell, Target
from drlib.errors import UserError
from drlib.fingerprint import fingerprint
from drlib.outside import declaration
from drlib.progress import Reporter
from drlib.store import Store
from drlib.training import TrainSpec
from drlib.types import NO_DATA, STATIC, WHITE_BOX, Knowledge

TARGET = Target(size=20, width=0.25, training=TrainSpec(epochs=2, min_steps=40))

SPY = """
import os, sys
from dataclasses import dataclass, field
from typing import ClassVar
import torch
from drlib.types import NO_DATA, PREPARE, STATIC, WHITE_BOX, Attack, Knowledge, Reconstruction

@dataclass(frozen=True, kw_only=True)
class Spy(Attack):
    name: ClassVar[str] = "spy"
    title: ClassVar[str] = "Spy"
    paper: ClassVar[str] = "none"
    knowledge: ClassVar[Knowledge] = Knowledge(STATIC, WHITE_BOX, NO_DATA)
    steps: int = 7
    rate: float = 0.5
    betas: tuple[float, float] = (0.5, 0.9)
    depth: int = field(default=3, metadata=PREPARE)

    def supports(self, spec):
        os.environ["SPIED"] = "yes"
        if "drlib.data" in sys.modules:
            os.environ["SPIED"] = "D_tar is here"
        return "too deep" if self.depth > 5 else None

    def reconstruct(self, access, prepared, *, n, labels, generator, progress):
        assert "SPIED" not in os.environ
        progress(n, n)
        images = torch.rand((n, *access.spec.shape), generator=generator)
        return Reconstruction(images, labels, torch.zeros(1))
"""


@pytest.fixture
def spy(tmp_path, monkeypatch) -> str:
    (tmp_path / "spying_attack.py").write_text(SPY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    return "spying_attack:Spy"


def test_planning_and_printing_never_import_it(spy, tmp_path):
    store = Store(tmp_path / "store")
    cells = [Cell(target=TARGET, attack=spy), Cell(target=TARGET, attack=spy, hyperparameters={"depth": 6})]
    study.run(cells, store=store, workers=1, reporter=Reporter(quiet=True))
    table = results.summary(cells[:1], store=store)
    assert set(table.attack) == {"Spy"} and "steps 7" in table.hyperparameters.iloc[0]
    assert study.explain_unsupported(cells[1]) == "too deep"
    assert "spying_attack" not in sys.modules and "SPIED" not in os.environ


def test_a_stand_in_declares_what_the_attack_does(spy):
    attack = declaration(spy, {"steps": 9})
    assert attack.knowledge == Knowledge(STATIC, WHITE_BOX, NO_DATA) and attack.title == "Spy"
    assert attack.hyperparameters() == {"steps": 9, "rate": 0.5, "betas": (0.5, 0.9), "depth": 3}
    assert attack.hyperparameters(stage="prepare") == {"depth": 3}
    with pytest.raises(UserError, match="in an attack's process only"):
        attack.reconstruct()
    assert "spying_attack.Spy" in fingerprint(type(attack))  # its code is part of the key all the same


def test_errors_are_one_line_with_the_nearest_name(spy):
    with pytest.raises(UserError, match="unknown hyperparameter of spy 'stepz'; did you mean 'steps'"):
        declaration(spy, {"stepz": 9})
    with pytest.raises(UserError, match="unknown class in spying_attack 'Spi'"):
        declaration("spying_attack:Spi")
    with pytest.raises(UserError, match="cannot import 'no_such_module'"):
        declaration("no_such_module:Attack")


def test_attacks_of_the_package_are_used_as_they_are():
    assert type(declaration("mi_face", {"steps": 3})) is attacks.get("mi_face")


PRYING = SPY.replace(
    "    steps: int = 7",
    """    @property
    def control_variant(self):
        with open(os.environ["PRYING"], "rb") as stream:
            return stream.read().hex()

    steps: int = 7""",
)


def test_the_data_sets_files_are_closed_to_it_while_it_is_described(tmp_path, monkeypatch):
    secret = tmp_path / "data" / "images.npz"
    secret.parent.mkdir()
    secret.write_bytes(b"D_tar")
    (tmp_path / "prying_attack.py").write_text(PRYING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PRYING", str(secret))
    monkeypatch.syspath_prepend(str(tmp_path))
    target = TARGET.model_copy(update={"data": TARGET.data.model_copy(update={"name": f"npz:{secret}"})})
    with pytest.raises(UserError, match=r"(?i)permission|may not open"):
        study.attack_of(Cell(target=target, attack="prying_attack:Spy"))
    assert declaration("prying_attack:Spy").control_variant == b"D_tar".hex()  # an honest twin's other file
