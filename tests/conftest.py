"""What all tests share: one thread, a store of the session's own, the browser, shards of the slow tests."""

import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before anything imports PyTorch or NumPy: pytest-xdist shares the cores, and thread counts change bits.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"
os.environ["MPLBACKEND"] = "Agg"
os.environ.pop("DRLIB_OUTPUT", None)

SESSION_STORE = pytest.StashKey[str]()
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def pytest_configure(config: pytest.Config) -> None:
    """One new store for the session; the workers of pytest-xdist inherit it and share what is computed."""
    from hypothesis import settings

    # Cores are shared, so no deadline; derandomized, so that everybody runs the same examples.
    settings.register_profile("drlib", deadline=None, derandomize=True, print_blob=True)
    settings.load_profile("drlib")
    if not hasattr(config, "workerinput"):
        folder = tempfile.mkdtemp(prefix="drlib-tests-")
        config.stash[SESSION_STORE] = folder
        os.environ["DRLIB_STORE"] = str(Path(folder) / "store")


def pytest_unconfigure(config: pytest.Config) -> None:
    folder = config.stash.get(SESSION_STORE, None)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def in_shard(nodeid: str, shard: str) -> bool:
    """Whether a test belongs to `shard`, "1/4" being the first of four; decided by its name alone."""
    part, parts = map(int, shard.split("/"))
    if not 1 <= part <= parts:
        raise pytest.UsageError(f"DRLIB_SHARD={shard}: write it like 1/4")
    return zlib.crc32(nodeid.encode()) % parts == part - 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    shard = os.environ.get("DRLIB_SHARD")
    if shard:
        config.hook.pytest_deselected(items=[item for item in items if not in_shard(item.nodeid, shard)])
        items[:] = [item for item in items if in_shard(item.nodeid, shard)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Where the browser is required (continuous integration), a skipped browser test is a failed one."""
    report = yield
    required = os.environ.get("DRLIB_REQUIRE_BROWSER") == "1"
    if required and report.skipped and item.get_closest_marker("browser"):
        report.outcome = "failed"
        report.longrepr = f"DRLIB_REQUIRE_BROWSER=1, but {item.nodeid} was skipped: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of Chromium or Chrome; the test is skipped, with the reason printed, where there is none."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(
            f"no browser: none of {', '.join(BROWSERS)} is on the PATH (Debian: apt install chromium)"
        )
    return path


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return Path(__file__).resolve().parent.parent
