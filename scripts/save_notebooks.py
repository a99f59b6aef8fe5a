"""Executes the notebooks and saves them with their outputs, clean: ``save_notebooks.py [NOTEBOOK...]``, all by default.

Clean means what ``tests/notebook_files`` checks: nothing that changes from one execution to the next or from one machine
to another, no widget state, an execution count on every cell (without one nbval would not compare it).
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"


def execute(path: Path) -> Any:
    """The notebook with fresh outputs: headless, in its own folder, on a journal of its own.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as home:
        client = NotebookClient(
            notebook,
            timeout=300,
            kernel_name="python3",
            store_widget_state=False,
            extra_arguments=["--log-level=ERROR"],  # no warning about local sockets
            resources={"metadata": {"path": str(path.parent)}},
        )
        env = {**os.environ, "LOOM_HOME": f"{home}/.loom", "LOOM_ANSWERS": str(NOTEBOOKS / "answers.yaml")}
        return client.execute(env=env)


def clean(notebook: Any) -> None:
    """Take out what belongs to one execution only."""
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    notebook.metadata = nbformat.from_dict({"kernelspec": kernel, "language_info": {"name": "python"}})
    for number, cell in enumerate((c for c in notebook.cells if c.cell_type == "code"), start=1):
        cell.metadata = nbformat.from_dict({k: v for k, v in cell.metadata.items() if k == "tags"})
        cell.execution_count = number
        for output in cell.outputs:
            if "execution_count" in output:
                output["execution_count"] = number


def main(paths: list[Path]) -> None:
    for path in paths or sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = execute(path)
        clean(notebook)
        nbformat.write(notebook, path)
        print(f"{path.name}: {len(notebook.cells)} cells, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main([Path(name).resolve() for name in sys.argv[1:]])
