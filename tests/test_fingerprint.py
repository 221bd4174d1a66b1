"""Code fingerprints: comments change nothing, a changed helper three imports away does."""

from __future__ import annotations

import ast
import hashlib
import importlib
import subprocess
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


def forget() -> None:
    """Empty every cache of the module: the sources have changed."""
    for value in vars(fp).values():
        if hasattr(value, "cache_clear"):
            value.cache_clear()


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
        forget()
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


HIDDEN = {
    "inside try": (
        "try:\n    import zzz\nexcept ImportError:\n    def step(x):\n        return x\n",
        "return x",
        "return -x",
    ),
    "inside if": ("if True:\n    def step(x):\n        return x\n", "return x", "return -x"),
    "extended table": (
        "T = {}\ndef f(x):\n    return x\nT['a'] = f\ndef step(x):\n    return T['a'](x)\n",
        "    return x\nT",
        "    return -x\nT",
    ),
    "augmented": ("N = 1\nN += 5\ndef step(x):\n    return N * x\n", "N += 5", "N += 6"),
    "relative import": ("from .far import unused\ndef step(x):\n    return unused() * x\n", "* x", "+ x"),
    "import in a function": (
        "def step(x):\n    from pkg.far import unused as u\n    return u() + x\n",
        "+ x",
        "- x",
    ),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_code_in_unusual_places_matters(package, name):
    source, old, new = HIDDEN[name]
    before = package(helper=source)
    assert old in source
    assert fp.code_hash(package(helper=source.replace(old, new))) != fp.code_hash(before)


@pytest.mark.parametrize(
    "how", ["from .far import unused", "from pkg.far import unused", "from . import far\nunused = far.unused"]
)
def test_what_is_imported_matters(package, how):
    helper = f"{how}\ndef step(x):\n    return unused() * x\n"
    before = package(helper=helper)
    assert package(helper=helper, far=SOURCES["far"].replace("return 1", "return 2")) != before


def test_a_helper_file_beside_an_outside_attack_matters(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "outside_attack.py").write_text(
        "from outside_helper import paint\n\ndef run():\n    return paint()\n"
    )
    digests = []
    for number in (1, 2):
        (tmp_path / "outside_helper.py").write_text(f"def paint():\n    return {number}\n")
        forget()
        importlib.invalidate_caches()
        digests.append(fp.fingerprint(importlib.import_module("outside_attack").run))
    assert "outside_helper.paint" in digests[0] and digests[0] != digests[1]


def test_the_digest_is_the_same_on_every_python():
    """Positions, contexts and empty fields differ between Python versions and are left out."""
    node = ast.parse("def f(x: int = 1) -> str:\n    return f'{x!r}'").body[0]
    text = repr(fp._canonical(node))
    assert "type_params" not in text and "lineno" not in text and "ctx" not in text
    assert hashlib.sha256(text.encode()).hexdigest()[:8] == "6f996c57"


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


def test_planning_imports_no_library_that_it_does_not_run():
    """torchvision takes seconds to import; a notebook that only reads results must not wait for it."""
    code = (
        "import sys; from drlib import sections, study;"
        "[study.plan(cell) for cell in sections.parameters('attacks', 'smoke').cells()];"
        "print('torchvision' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
