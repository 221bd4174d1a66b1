"""Run one notebook: ``python -m drlib.book.worker FOLDER``. A process of its own, started by `execute`.

FOLDER holds ``job.json`` and ``in.ipynb``; the result is ``out.ipynb``, ``outputs/`` and ``result.json``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from drlib.book.layout import write_json
from drlib.book.notebooks import cell_id, is_injected


def environment(folder: Path) -> dict[str, str]:
    """The kernel's environment: this interpreter's kernel, no personal IPython files, one thread."""
    env = dict(os.environ)
    env["JUPYTER_PATH"] = str(Path(sys.prefix) / "share" / "jupyter")  # a user's own path would win otherwise
    env["IPYTHONDIR"] = str(folder / "ipython")
    env["DRLIB_OUTPUT"] = str(folder / "outputs")
    env["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    env["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    env.setdefault("OMP_NUM_THREADS", "1")
    return env


def _end_with_parent() -> None:
    """End this process (and so its kernel) when the process that started it is gone."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def first_error(notebook: dict[str, Any]) -> dict[str, Any] | None:
    """The first failed cell of an executed notebook: its number among the code cells, source and error."""
    number = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        number += not is_injected(cell)
        for output in cell.get("outputs", []):
            if output["output_type"] == "error":
                return {
                    "cell": number,
                    "source": cell["source"],
                    "error": f"{output['ename']}: {output['evalue']}",
                }
    return None


def run(folder: Path) -> int:
    import nbformat
    import papermill
    from papermill.exceptions import PapermillExecutionError

    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    (folder / "outputs").mkdir()
    started = time.perf_counter()
    try:
        papermill.execute_notebook(
            str(folder / "in.ipynb"),
            str(folder / "out.ipynb"),
            parameters=job["parameters"],
            kernel_name="python3",
            cwd=job["cwd"],
            progress_bar=False,
            start_timeout=120,
        )
    except PapermillExecutionError as error:
        notebook = nbformat.read(folder / "out.ipynb", as_version=4)
        found = first_error(notebook) or {
            "cell": 0,
            "source": "",
            "error": str(error).strip().splitlines()[-1],
        }
        write_json(folder / "result.json", {"ok": False, **found})
        return 1
    notebook = nbformat.read(folder / "out.ipynb", as_version=4)
    for cell in notebook.cells:
        if is_injected(cell):
            cell["id"] = cell_id(job["stem"], "injected")
            cell.metadata["tags"] = ["injected-parameters", "hide-input"]
    nbformat.write(notebook, folder / "out.ipynb")
    write_json(folder / "result.json", {"ok": True, "seconds": round(time.perf_counter() - started, 2)})
    return 0


if __name__ == "__main__":
    _end_with_parent()
    sys.exit(run(Path(sys.argv[1])))
