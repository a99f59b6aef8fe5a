"""Executing the project's notebooks: shared by the demo and by the program that saves them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"


def execute(path: Path, **environment: str) -> Any:
    """The notebook with fresh outputs, executed headless in its own folder by a kernel of this interpreter.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    os.environ.update(environment)
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")  # debugpy would print about frozen modules
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        store_widget_state=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    return client.execute()
