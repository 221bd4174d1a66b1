"""Code fingerprints: comments change nothing, a changed helper three imports away does."""

from __future__ import annotations

import importlib
import sys

import pytest

from drlib import fingerprint as fp

SOURCES = {
    "__init__": "from pkg.far import SCALE\n",
    "far": '"""Docstring."""\nSCALE = 2\n\ndef unused():\n    return 1\n',
    "helper": "from pkg import SCALE\n\ndef step(x):\n    return SCALE * x\n\ndef other(x):\n    return x\n",
    "main": (
        "import pkg.helper\nfrom pkg import helper as h\n\n\n"
        'class Base:\n    pass\n\n\nclass Attack(Base):\n    """Doc."""\n\n'
        "    def run(self, x):\n        # a comment\n        return h.step(x)\n"
    ),
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A function that writes the package, one module changed, and fingerprints ``pkg.main.Attack``."""
    folder = tmp_path / "pkg"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))

    def measure(**changes: str) -> dict[str, str]:
        for name, source in (SOURCES | changes).items():
            (folder / f"{name}.py").write_text(source)
        for name in [name for name in sys.modules if name.split(".")[0] == "pkg"]:
            del sys.modules[name]
        importlib.invalidate_caches()
        fp._module.cache_clear()
        fp._digest.cache_clear()
        return fp.fingerprint(importlib.import_module("pkg.main").Attack)

    return measure


def test_closure_holds_exactly_what_is_used(package):
    assert set(package()) == {"pkg.main.Attack", "pkg.main.Base", "pkg.helper.step", "pkg.far.SCALE"}


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("main", "# a comment", "# another, longer\n        # comment"),
        ("main", '"""Doc."""', '"""Other words."""'),
        ("far", "return 1", "return 2"),
        ("helper", "return x\n", "return x + 1\n"),
    ],
)
def test_words_and_unused_code_do_not_matter(package, module, old, new):
    before = package()
    assert old in SOURCES[module]
    assert package(**{module: SOURCES[module].replace(old, new)}) == before


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("main", "h.step(x)", "h.step(x + 1)"),
        ("main", "class Base:\n    pass", "class Base:\n    y = 1"),
        ("helper", "SCALE * x", "SCALE + x"),
        ("far", "SCALE = 2", "SCALE = 3"),
    ],
)
def test_code_in_the_closure_matters(package, module, old, new):
    before = package()
    assert old in SOURCES[module]
    assert fp.code_hash(package(**{module: SOURCES[module].replace(old, new)})) != fp.code_hash(before)


def test_a_reconstructions_code_holds_no_data_metric_or_report_code():
    from drlib import attacker, attacks

    for name in attacks.names():
        symbols = fp.fingerprint(attacker.reconstruct, attacks.get(name))
        assert f"drlib.attacks.{name}.{attacks.get(name).__name__}" in symbols
        modules = {symbol.rsplit(".", 1)[0] for symbol in symbols}
        forbidden = ("drlib.data", "drlib.metrics", "drlib.report", "drlib.results", "drlib.tasks")
        assert not [module for module in modules if module.startswith(forbidden)]


def test_a_reconstructions_code_does_not_depend_on_other_attacks():
    from drlib import attacker, attacks

    symbols = fp.fingerprint(attacker.reconstruct, attacks.get("mi_face"))
    assert not [symbol for symbol in symbols if "deep_dream" in symbol or "deep_inversion" in symbol]
