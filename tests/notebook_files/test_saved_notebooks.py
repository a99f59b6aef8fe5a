"""The notebooks in the repository are saved as a person should find them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.name)
def path(request: pytest.FixtureRequest) -> Path:
    """One notebook after the other."""
    return request.param


@pytest.fixture
def notebook(path: Path) -> Any:
    """Its content."""
    return json.loads(path.read_text())


def code_cells(notebook: Any) -> list[Any]:
    """The cells that are executed."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_there_is_a_tour() -> None:
    """The tour is among them."""
    assert "tour.ipynb" in [path.name for path in NOTEBOOKS]


def test_no_widget_state(notebook: Any) -> None:
    """Neither the state nor a reference to a widget that is gone."""
    assert "widgets" not in notebook["metadata"]
    for cell in code_cells(notebook):
        for output in cell["outputs"]:
            assert WIDGET not in output.get("data", {})


def test_no_absolute_path(path: Path) -> None:
    """Nothing says on which machine, in which folder or by whom it was executed."""
    found = re.findall(r"(?:/(?:home|Users|root|tmp|work|var|private)/|[A-Z]:\\\\)[^\s\"'<]*", path.read_text())
    assert not found


def test_small(path: Path) -> None:
    """Under 200 kB, so that it opens at once and diffs stay readable."""
    assert path.stat().st_size < 200_000


def test_every_cell_was_executed_in_order(notebook: Any) -> None:
    """Each code cell has its count, from 1: nbval does not compare cells without one, and says nothing."""
    counts = [cell["execution_count"] for cell in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1))


def test_no_error_and_no_warning(notebook: Any) -> None:
    """No cell failed or wrote to stderr."""
    for cell in code_cells(notebook):
        for output in cell["outputs"]:
            assert output["output_type"] != "error", cell["source"]
            assert output.get("name") != "stderr", output.get("text")


def test_few_outputs_are_ignored(notebook: Any) -> None:
    """Outputs are compared: only a cell that shows durations may ask not to be."""
    for cell in code_cells(notebook):
        if "nbval-ignore-output" in cell["metadata"].get("tags", []):
            assert "duration" in "".join(cell["source"])
