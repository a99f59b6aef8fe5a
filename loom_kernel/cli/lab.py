"""``loom lab``: JupyterLab where the notebooks are."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path

from loom_kernel.cli.notebooks import TOUR, notebooks_folder
from loom_kernel.errors import LoomError


def lab(arguments: argparse.Namespace) -> int:
    """Become JupyterLab; does not return where that works."""
    if importlib.util.find_spec("jupyterlab") is None:
        raise LoomError("JupyterLab is not installed here; `pip install 'loom-kernel[lab]'` brings it")
    command, folder = lab_command(arguments.path, arguments.jupyter)
    os.chdir(folder)
    sys.stdout.flush()
    os.execv(command[0], command)


def lab_command(path: str | None, more: list[str]) -> tuple[list[str], Path]:
    """The command line, and the folder to start in.

    Raises:
        LoomError: the path is not there.
    """
    if path is not None and path.startswith("-"):
        more = [path, *more]
        path = None
    if path is None:
        folder = notebooks_folder()
        opened = [TOUR]
    else:
        target = Path(path)
        if not target.exists():
            raise LoomError(f"there is no {path}")
        folder, opened = (target, []) if target.is_dir() else (target.parent, [target.name])
    return [sys.executable, "-m", "jupyterlab", *opened, *more], folder.resolve()
