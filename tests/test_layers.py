"""The layers of the package, and what the command line may import."""

import json
import subprocess
import sys

import pytest

HEAVY = (
    "torch",
    "torchvision",
    "numpy",
    "pandas",
    "scipy",
    "sklearn",
    "skimage",
    "matplotlib",
    "papermill",
    "pyarrow",
)


def test_a_file_imports_only_files_of_the_layers_below_it(root):
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command as c; c()",
        "--no-cache",
    ]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


@pytest.mark.parametrize(
    "statement",
    [
        "import drlib",
        "import drlib.setup",
        "import drlib.errors",
        "import drlib.profiles",
        "import drlib.sections",
        "import drlib.book",
        "import drlib.cli",
        "from drlib import attacks; attacks.names()",
    ],
)
def test_what_the_command_line_passes_through_imports_nothing_heavy(root, statement):
    code = f"{statement}; import sys, json; print(json.dumps([m.partition('.')[0] for m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not set(json.loads(done.stdout)) & set(HEAVY)


def test_setup_runs_on_the_standard_library_alone(root):
    code = "import drlib.setup, sys, json; print(json.dumps([m.partition('.')[0] for m in sys.modules]))"
    # -S: no site-packages, as in a system Python where nothing is installed
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) - set(sys.stdlib_module_names) <= {"drlib", "__main__"}
