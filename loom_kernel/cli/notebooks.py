"""Where the notebooks are: the project's folder while it is a clone, the package's own copy otherwise."""

from __future__ import annotations

from pathlib import Path

from loom_kernel.errors import LoomError

TOUR = "tour.ipynb"

_PACKAGE = Path(__file__).resolve().parent.parent


def notebooks_folder() -> Path:
    """The folder with the tour.

    Raises:
        LoomError: it is nowhere.
    """
    here = Path.cwd()
    for folder in (here, here / "notebooks", _PACKAGE.parent / "notebooks", _PACKAGE / "notebooks"):
        if (folder / TOUR).is_file():
            return folder
    raise LoomError(f"the tour is not here: no {TOUR} in {here} or {here / 'notebooks'}. Go to a clone of loom-kernel.")
