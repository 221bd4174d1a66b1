"""How `make` installs: once, again when the lock changes, and from nothing after an interruption."""

import os
import subprocess
import sys

import pytest

from drlib import setup


class Commands:
    """Stands for the commands that setup runs: records them, makes a fake environment, can be interrupted."""

    def __init__(self, root):
        self.root = root
        self.calls = []
        self.fail_at = None
        self.interrupt_at = None

    def __call__(self, arguments, **environment):
        kind = next(word for word in ("venv", "--requirement", "--editable") if word in arguments)
        self.calls.append(kind)
        if kind == "venv":
            python = setup.FULL.python
            python.parent.mkdir(parents=True)
            python.touch()
        if kind == self.interrupt_at:
            (setup.FULL.path / "half-unpacked").touch()
            raise KeyboardInterrupt
        return int(kind == self.fail_at)

    def take(self):
        calls, self.calls = self.calls, []
        return calls


@pytest.fixture
def commands(tmp_path, monkeypatch):
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements/full.lock").write_text("torch==1\n", encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text("[project]\n", encoding="utf-8")
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    recorder = Commands(tmp_path)
    monkeypatch.setattr(setup, "call", recorder)
    return recorder


EVERYTHING = ["venv", "--requirement", "--editable"]


def test_environment_is_made_once(commands):
    setup.ensure(setup.FULL)
    assert commands.take() == EVERYTHING
    setup.ensure(setup.FULL)
    assert commands.take() == []


def test_file_times_play_no_part(commands):
    setup.ensure(setup.FULL)
    commands.take()
    os.utime(commands.root / "requirements/full.lock", (2e9, 2e9))
    setup.ensure(setup.FULL)
    assert commands.take() == []


@pytest.mark.parametrize(
    ("changed", "steps"), [("requirements/full.lock", EVERYTHING[1:]), ("pyproject.toml", EVERYTHING[2:])]
)
def test_a_changed_lock_or_project_is_installed_into_the_same_environment(commands, changed, steps):
    setup.ensure(setup.FULL)
    commands.take()
    (commands.root / changed).write_text("# new\n", encoding="utf-8")
    setup.ensure(setup.FULL)
    assert commands.take() == steps
    assert setup.FULL.finished()


@pytest.mark.parametrize("step", EVERYTHING)
def test_an_interrupted_environment_is_made_again_from_nothing(commands, step):
    commands.interrupt_at = step
    with pytest.raises(KeyboardInterrupt):
        setup.ensure(setup.FULL)
    assert not setup.FULL.finished()
    assert (setup.FULL.path / "half-unpacked").exists()
    commands.take()
    commands.interrupt_at = None
    setup.ensure(setup.FULL)
    assert commands.take() == EVERYTHING
    assert setup.FULL.finished()
    assert not (setup.FULL.path / "half-unpacked").exists()


def test_an_update_that_was_interrupted_starts_from_nothing_too(commands):
    setup.ensure(setup.FULL)
    (commands.root / "requirements/full.lock").write_text("torch==2\n", encoding="utf-8")
    commands.interrupt_at = "--requirement"
    with pytest.raises(KeyboardInterrupt):
        setup.ensure(setup.FULL)
    (commands.root / "requirements/full.lock").write_text("torch==1\n", encoding="utf-8")
    commands.interrupt_at = None
    commands.take()
    setup.ensure(setup.FULL)
    assert commands.take() == EVERYTHING


def test_a_failed_installation_is_told_and_not_taken_for_finished(commands, capsys):
    commands.fail_at = "--requirement"
    assert setup.main(["env"]) == 1
    assert capsys.readouterr().err.startswith("error: installing into .venv failed")
    assert not setup.FULL.finished()


def test_an_environment_that_was_moved_is_made_again(commands, monkeypatch):
    setup.ensure(setup.FULL)
    commands.take()
    moved = commands.root.with_name(commands.root.name + "-moved")
    commands.root.rename(moved)
    monkeypatch.setattr(setup, "ROOT", moved)
    setup.ensure(setup.FULL)
    assert commands.take() == EVERYTHING


def test_clean_keeps_the_store_and_clean_store_deletes_it(commands, monkeypatch):
    monkeypatch.delenv("DRLIB_STORE", raising=False)
    for name in ("store", "laptop", "smoke"):
        (commands.root / "_build" / name).mkdir(parents=True)
    setup.main(["clean"])
    assert [path.name for path in (commands.root / "_build").iterdir()] == ["store"]
    setup.main(["clean-store"])
    assert not list((commands.root / "_build").iterdir())


def test_clean_store_touches_no_store_elsewhere(commands, monkeypatch, tmp_path, capsys):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("DRLIB_STORE", str(elsewhere))
    assert setup.main(["clean-store"]) == 2
    assert elsewhere.is_dir()
    assert "DRLIB_STORE" in capsys.readouterr().err


def test_an_old_python_is_refused_in_one_line(root):
    code = (
        "import sys, runpy; sys.version_info = (3, 10, 4, 'final', 0); sys.argv[1:] = ['test']; "
        "runpy.run_module('drlib.setup', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.count("\n") == 1
    assert "3.11 or newer is needed, this is 3.10" in done.stderr
