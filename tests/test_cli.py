"""The command: what it refuses and how fast it gets there, what it calls, what it prints."""

import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drlib import book, cli, doctor, profiles, sections
from drlib.store import Artifact, Store, artifact_key

HEAVY = {"torch", "numpy", "pandas", "papermill", "sklearn", "matplotlib", "rich"}


def drlib(line: str, code: int = 0):
    """Run a command in this process and check its exit code."""
    done = CliRunner().invoke(cli.app, shlex.split(line))
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done


REFUSED = [
    ("rnu", "No such command 'rnu'. Did you mean 'run'?"),
    ("run", "Missing argument 'section'"),
    ("run benchmrk", "unknown section 'benchmrk'; did you mean 'benchmark'"),
    ("run benchmark --profle smoke", "No such option: --profle (Possible options: --profile)"),
    ("run benchmark --profile labtop", "unknown profile 'labtop'; did you mean 'laptop'"),
    ("run benchmark -p sed=1", "unknown parameter of benchmark 'sed'; did you mean 'seed'"),
    ("run benchmark -p seed=abc", "seed=abc is not allowed (allowed: a whole number from 0 to 2147483547)"),
    ("run benchmark -p seed", "write name=value"),
    ("run benchmark -p seed=1 -p seed=1", "-p seed is given twice"),
    ("run benchmark -y absent.yaml", "cannot read absent.yaml"),
    ("run benchmark -p dataset=folder:absent", "no folder"),
    ("run benchmrk --help-parameters", "did you mean 'benchmark'"),
    ("book --profile labtop", "did you mean 'laptop'"),
    ("book --only benchmrk", "did you mean 'benchmark'"),
    ("book --reference --only benchmark", "leave out --only"),
    ("results benchmrk", "did you mean 'benchmark'"),
    ("results --format cvs", "unknown format 'cvs'; did you mean 'csv'"),
    ("results --format parquet", "name a file with --output"),
    ("results --output absent/table.csv", "there is no folder"),
    ("results -p seed=1", "belong to one section"),
    ("results taxonomy", "made of no experiments"),
    ("data digit", "unknown data set 'digit'; did you mean 'digits'"),
    ("data digits --side 7", "side"),
    ("data digits --mode identity", "only for lfw_subset"),
    ("data npz:absent.npz", "no file"),
    ("profile show labtop", "did you mean 'laptop'"),
    ("store", "Missing command"),
    ("store lst", "No such command 'lst'. Did you mean 'ls'? (allowed: ls, verify, gc, adopt)"),
    ("explain 0123", "no artifact"),
]


@pytest.mark.parametrize(("line", "message"), REFUSED)
def test_bad_input_is_one_line_and_exit_code_2(line, message, tmp_path, monkeypatch):
    monkeypatch.setenv("DRLIB_STORE", str(tmp_path / "store"))
    done = drlib(line, 2)
    assert done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert message in done.stderr


def modules_after(line: str) -> tuple[int, set[str]]:
    """Exit code, and the top-level modules that the command has imported, in a process of its own."""
    code = (
        "import json, sys; from drlib.cli import main\n"
        "try: main()\n"
        "except SystemExit as error:\n"
        "    print(json.dumps([error.code, sorted({m.partition('.')[0] for m in sys.modules})]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *shlex.split(line)], capture_output=True, text=True, check=True
    )
    exit_code, modules = json.loads(done.stdout.splitlines()[-1])
    return exit_code, set(modules)


@pytest.mark.parametrize(
    "line",
    [
        "run benchmark -p target_sizes=[50,x] -p 'hyperparameters={mi_face: {steps: 3}}'",
        "run benchmark -p dataset=npz:absent.npz",
        "results --format cvs",
        "data digit",
        "book --only benchmrk",
    ],
)
def test_a_refusal_imports_nothing_heavy(line):
    code, modules = modules_after(line)
    assert code == 2
    assert not modules & HEAVY


def test_the_module_and_the_command_are_one():
    done = subprocess.run(
        [sys.executable, "-m", "drlib", "run", "nothing"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown section 'nothing'")
    assert drlib("--version").stdout.split()[0] == "drlib"


def test_help_is_given_when_nothing_is_asked():
    assert "Usage: drlib" in CliRunner().invoke(cli.app, [], prog_name="drlib").stdout
    text = drlib("--help").stdout
    for command in ["sections", "run", "book", "results", "data", "attacks", "explain", "doctor"]:
        assert f"  {command}" in text
    for group in ["profile", "store", "notebooks"]:
        assert f"  {group}" in text


def test_sections_are_listed():
    text = drlib("sections").stdout
    for item in sections.SECTIONS.values():
        line = next(line for line in text.splitlines() if f"  {item.slug}  " in line)
        assert line.startswith(f"{item.number:02d}") and item.title in line
        assert all(made in line for made in item.regenerates)


def test_help_parameters():
    text = drlib("run benchmark --help-parameters").stdout
    assert "target_sizes: sizes of the target data set" in text
    assert "[50, 100] (smoke); [50, 100, 400] (laptop)" in text


@pytest.fixture
def called(monkeypatch, tmp_path):
    """Stands in for the book: records what the command asks of it."""
    calls = []
    (tmp_path / "made" / "figures").mkdir(parents=True)
    (tmp_path / "made" / "figures" / "one.png").write_bytes(b"png")
    (tmp_path / "made.ipynb").write_text("{}")

    def run_section(*arguments):
        calls.append(("run_section", *arguments))
        return tmp_path / "made.ipynb", tmp_path / "made"

    monkeypatch.setattr(book, "run_section", run_section)
    monkeypatch.setattr(book, "make", lambda *a: calls.append(("make", *a)) or Path("index.html"))
    monkeypatch.setattr(book, "read", lambda *a: calls.append(("read", *a)) or Path("index.html"))
    return calls


def test_run_hands_over_what_differs_from_the_profile(called, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("repeats: 1\nseed: 9\n")
    done = drlib(f"run benchmark --profile smoke -y {file} -p seed=2 -p 'target_sizes=[20, 10]' -p width=0.5")
    assert called == [("run_section", "benchmark", "smoke", {"seed": 2, "target_sizes": [10, 20]})]
    assert done.stdout.splitlines() == [str(tmp_path / "made.ipynb"), str(tmp_path / "made")]
    drlib("run metrics")
    assert called[1] == ("run_section", "metrics", "laptop", {})


def test_run_out_copies_the_results(called, tmp_path):
    out = tmp_path / "new" / "folder"
    done = drlib(f"run benchmark --out {out}")
    assert (out / "made.ipynb").exists() and (out / "outputs" / "figures" / "one.png").read_bytes() == b"png"
    assert str(out / "outputs") in done.stdout
    (tmp_path / "file").write_text("")
    assert "is not a folder" in drlib(f"run benchmark --out {tmp_path / 'file'}", 2).stderr


def test_book(called):
    drlib("book --profile smoke --only benchmark --only metrics")
    drlib("book --reference")
    drlib("book")
    assert called == [("make", "smoke", ("benchmark", "metrics")), ("read",), ("make", "laptop", ())]


def test_book_refuses_missing_data_before_anything_starts(called, tmp_path, monkeypatch):
    monkeypatch.setenv("DRLIB_DATA", str(tmp_path))
    assert "cifar10" in drlib("book --profile paper", 2).stderr
    assert called == []


def test_an_attack_of_ones_own_is_found_in_the_working_folder(called, tmp_path, monkeypatch):
    (tmp_path / "attack_of_mine.py").write_text("class Mine:\n    pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    drlib("run benchmark -p attacks=[mi_face,attack_of_mine:Mine]")
    assert called[0][3] == {"attacks": ["mi_face", "attack_of_mine:Mine"]}
    assert os.environ["PYTHONPATH"].split(os.pathsep) == ["/elsewhere", str(tmp_path)]
    assert sys.path[-1] == str(tmp_path)


def test_stopping_says_one_line(monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(book, "run_section", stopped)
    done = drlib("run metrics", 130)
    assert done.stderr == "stopped; nothing finished is lost\n"


def test_a_defect_is_not_dressed_up_as_bad_input(monkeypatch):
    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(book, "run_section", broken)
    with pytest.raises(ZeroDivisionError):
        drlib("run metrics")


TINY = (
    "--profile smoke -p target_sizes=[10] -p attacks=[mi_face] -p controls=[noise,holdout] -p width=0.25 "
    "-p 'training={epochs: 1, min_steps: 1}' -p 'hyperparameters={mi_face: {steps: 2}}'"
)


@pytest.fixture(scope="module")
def computed():
    """One tiny experiment in the session's store; gives its cells."""
    from drlib import study
    from drlib.progress import Reporter

    words = shlex.split(TINY)[2:]
    cells = sections.parse("benchmark", "smoke", words[1::2]).cells()
    study.run(cells, reporter=Reporter(quiet=True))
    return cells


REFERENCE = "paper_table,dataset,model,defense,attack,target_size,metric,value,coverage_percent"


def test_results_have_the_columns_of_the_published_tables(computed):
    done = drlib(f"results benchmark {TINY}")
    header = done.stdout.splitlines()[0]
    assert header.startswith(REFERENCE + ",")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert {row["attack"] for row in rows} == {"MI-Face", "Noise", "Holdout"}
    assert {"SSIM", "PSNR", "MSE", "FD-efficientnet_lite0"} <= {row["metric"] for row in rows}
    assert {row["profile"] for row in rows} == {"smoke"} and {row["target_size"] for row in rows} == {"10"}
    assert all(row["score_key"] and row["device"] and row["versions"] for row in rows)


def test_results_in_every_format(computed, tmp_path):
    import pandas as pd

    table = tmp_path / "table.parquet"
    drlib(f"results benchmark {TINY} --format parquet --output {table}")
    wide = pd.read_parquet(table)
    assert ",".join(wide.columns[:9]) == REFERENCE
    assert wide["value"].dtype == "float64"
    text = drlib(f"results benchmark {TINY} --format md").stdout.splitlines()
    assert len(text) == 2 + len(wide) and text[0].startswith("| dataset | model | attack |")
    assert "\\begin{tabular}" in drlib(f"results benchmark {TINY} --format latex").stdout
    target = tmp_path / "table.csv"
    done = drlib(f"results benchmark {TINY} --output {target}")
    assert done.stdout == "" and f"{len(wide)} rows written to {target}" in done.stderr
    joined = drlib(f"results benchmark {TINY} --join-seeds").stdout
    assert joined.splitlines()[0].startswith(REFERENCE)


def test_results_say_what_is_not_computed(computed):
    done = drlib(f"results benchmark {TINY} -p repeats=2")
    assert "note: 3 of 6 cells are not computed yet: drlib run benchmark --profile smoke" in done.stderr
    assert {row["seed"] for row in csv.DictReader(io.StringIO(done.stdout))} == {"0"}
    done = drlib(f"results benchmark {TINY} -p seed=7", 2)
    assert "nothing is computed yet" in done.stderr


@pytest.mark.parametrize("section", ["", *sections.SECTIONS])
def test_results_of_every_section_are_a_table_or_one_line(tmp_path, monkeypatch, section):
    monkeypatch.setenv("DRLIB_STORE", str(tmp_path))
    done = drlib(f"results {section} --profile smoke", 2)
    assert "Traceback" not in done.stderr
    assert "nothing is computed yet" in done.stderr or "has no computed results" in done.stderr


def test_data_shows_the_splits():
    text = drlib("data digits").stdout
    lines = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.strip()}
    assert text.startswith("digits: 16x16, 1 channel, native side 8")
    assert lines["target"] == ["400", "5", "80"] and lines["holdout"] == ["250", "5", "50"]
    assert re.search(r"near-duplicates \(SSIM > 0.95\): [1-9]\d* of 250 holdout images \(against 400", text)
    assert "in more than one split: 0" in text and "license: CC BY 4.0" in text and "source: UCI" in text
    faces = drlib("data lfw_subset --mode identity --side 16").stdout
    assert faces.startswith("lfw_subset: 16x16")


def test_attacks_are_listed():
    text = drlib("attacks").stdout
    assert "mi_face" in text and "DeepInversion" in text and "static x white box x no data" in text


def test_profile_show():
    own = profiles.parse_yaml(drlib("profile show laptop").stdout, "shown")
    assert own == profiles.overlay("laptop")
    resolved = profiles.parse_yaml(drlib("profile show laptop --resolved").stdout, "shown")
    assert resolved["attacks"] == profiles.load("laptop").attacks
    assert resolved["sections"]["benchmark"] == sections.parameters("benchmark", "laptop").values()


def small(store: Store, seed: int, kind: str = "target", code: str = "1") -> Artifact:
    import torch

    spec = {"architecture": "convnet", "seed": seed, "data": {"name": "digits"}}
    key = artifact_key(kind, spec, {}, {"f": code})
    made = Artifact(key, kind, spec, {}, {"f": code}, {"x": torch.ones(3)}, {}, {"seconds": 1.25})
    store.save(made)
    return made


def test_store_ls_verify_and_explain(tmp_path, monkeypatch):
    monkeypatch.setenv("DRLIB_STORE", str(tmp_path))
    store = Store(tmp_path)
    a, b = small(store, 0), small(store, 1)
    text = drlib("store ls").stdout
    assert a.key[:8] in text and "convnet digits seed 1" in text and "2 artifacts" in text
    assert "unknown kind of artifact 'targt'; did you mean 'target'" in drlib("store ls targt", 2).stderr
    assert drlib(f"explain {a.key} {b.key[:12]}").stdout == "spec.seed: 0 -> 1\n"
    assert "nothing differs" in drlib(f"explain {a.key} {a.key}").stdout
    assert '"architecture": "convnet"' in drlib(f"explain {a.key}").stdout
    assert drlib("store verify").stdout == "2 sound, 0 damaged\n"
    with (store.folder("target", a.key) / "tensors.safetensors").open("r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        stream.write(b"\xff")
    done = drlib("store verify", 1)
    assert done.stdout == "1 sound, 1 damaged\n" and a.key in done.stderr


def test_store_gc_deletes_only_when_told(tmp_path, monkeypatch):
    monkeypatch.setenv("DRLIB_STORE", str(tmp_path))
    store = Store(tmp_path)
    old = small(store, 0)  # made by functions that never existed
    assert "1 outdated artifacts" in drlib("store gc").stdout
    assert store.healthy("target", old.key)
    assert drlib("store gc --yes").stdout.startswith("1 artifacts deleted")
    assert not store.healthy("target", old.key)


def test_notebooks_sync(monkeypatch):
    from drlib.book import notebooks

    monkeypatch.setattr(notebooks, "sync", lambda *, check: ["01_taxonomy.ipynb"])
    assert drlib("notebooks sync").stdout == "01_taxonomy.ipynb\n1 changed\n"
    assert drlib("notebooks sync --check", 1).stdout == "01_taxonomy.ipynb\n1 to change\n"
    monkeypatch.setattr(notebooks, "sync", lambda *, check: [])
    assert drlib("notebooks sync --check").stdout == "0 to change\n"


def test_doctor_exits_with_the_worst_finding(monkeypatch):
    def ok():
        return doctor.Finding("ok", "Python", "3.11")

    def warn():
        return doctor.Finding("warn", "Chromium", "not found", "install it")

    def broken():
        raise OSError("disk on fire")

    monkeypatch.setattr(doctor, "CHECKS", (ok, warn))
    assert drlib("doctor").stdout == "ok    Python: 3.11\nwarn  Chromium: not found -> install it\n"
    monkeypatch.setattr(doctor, "CHECKS", (broken, ok))
    assert "fail  broken: OSError: disk on fire" in drlib("doctor", 1).stdout


def test_doctor_checks_this_machine():
    findings = {finding.what: finding for finding in doctor.findings()}
    for what in ("Python", "torch", "device", "features", "kernel", "jupyter-book"):
        assert findings[what].level == "ok", findings[what]
    assert str(os.environ["DRLIB_STORE"]) in findings["store"].says
    assert all(finding.advice for finding in findings.values() if finding.level != "ok")


def test_doctor_finds_a_torchvision_of_another_torch(monkeypatch):
    import torchvision

    def missing(*_):
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(torchvision.ops, "nms", missing)
    finding = doctor.torch_pair()
    assert finding.level == "fail" and "nms does not exist" in finding.says


def test_tables_on_a_terminal_keep_every_word():
    from rich.console import Console

    console = Console(file=io.StringIO(), width=60, force_terminal=True, no_color=True)
    console.print(cli._rich_table(("name", "what"), [("a[b]", "[1, 2]"), ("x", "long " * 20)]))
    text = console.file.getvalue()
    assert "a[b]" in text and "[1, 2]" in text and text.count("long") == 20


def test_an_unusable_store_is_one_line(tmp_path, monkeypatch):
    occupied = tmp_path / "file"
    occupied.write_text("not a folder")
    monkeypatch.setenv("DRLIB_STORE", str(occupied))
    done = drlib("run ten_minutes --profile smoke -p seed=404", 2)  # a seed that no earlier run has built
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert str(occupied) in done.stderr


def test_a_relative_store_is_one_folder_for_everything_that_is_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRLIB_STORE", "mine")
    drlib("sections")
    assert os.environ["DRLIB_STORE"] == str(tmp_path / "mine")


def test_a_seed_out_of_range_is_refused_at_once():
    done = drlib("run benchmark -p seed=99999999999999999999", 2)
    assert "0 to 2147483547" in done.stderr and done.stderr.count("\n") == 1
