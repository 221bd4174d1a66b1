"""The smoke book of this checkout, built once for all tests that look at it (and for all their processes)."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def smoke_book() -> Path:
    """Build what is not up to date and return the folder ``_build/smoke``.

    The checkout's own store is used, not the tests': `make book PROFILE=smoke` has often filled it.
    """
    build = ROOT / "_build"
    build.mkdir(exist_ok=True)
    env = {name: value for name, value in os.environ.items() if name not in ("DRLIB_STORE", "MPLBACKEND")}
    with (build / ".smoke-tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, "-m", "drlib", "book", "--profile", "smoke"]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return build / "smoke"
