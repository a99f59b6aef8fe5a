"""Opening JupyterLab: which command, in which folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from loom_kernel.cli.lab import lab_command
from loom_kernel.errors import LoomError


def test_lab_opens_the_tour_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the project's root and from within the notebooks."""
    notebooks = tmp_path / "notebooks"
    notebooks.mkdir()
    (notebooks / "tour.ipynb").touch()
    for folder in (tmp_path, notebooks):
        monkeypatch.chdir(folder)
        command, where = lab_command(None, ["--no-browser"])
        assert command == [sys.executable, "-m", "jupyterlab", "tour.ipynb", "--no-browser"]
        assert where == notebooks


def test_lab_opens_what_it_is_given(tmp_path: Path) -> None:
    """A notebook, or a folder; options alone go to JupyterLab."""
    (tmp_path / "a.ipynb").touch()
    assert lab_command(str(tmp_path / "a.ipynb"), []) == ([sys.executable, "-m", "jupyterlab", "a.ipynb"], tmp_path)
    assert lab_command(str(tmp_path), []) == ([sys.executable, "-m", "jupyterlab"], tmp_path)
    with pytest.raises(LoomError, match="there is no"):
        lab_command(str(tmp_path / "nothing"), [])
