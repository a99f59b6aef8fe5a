"""The tour as a person takes it: JupyterLab, Run All, one click."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from .lab import Lab

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("width", "theme"), [(1400, "light"), (900, "dark")])
def test_the_tour_by_hand(project: Path, chromium: str, artifacts: Path, width: int, theme: str) -> None:
    """Run All stops at the question; the table of odd days is shown; the click lets all other cells run."""
    shutil.copytree(NOTEBOOKS, project / "tour", ignore=shutil.ignore_patterns("out", ".loom", "conftest.py"))
    with Lab(project / "tour", env={"LOOM_HOME": str(project / ".loom")}) as lab:
        with lab.open("tour.ipynb", chromium, width=width, theme=theme) as page:
            cells = page.tab.evaluate(
                "() => jupyterapp.shell.currentWidget.content.widgets.map(w => [w.model.type, w.model.sharedModel.source])"
            )
            start = next(i for i, (_, source) in enumerate(cells) if "clean_weather.start(" in source)
            last = max(i for i, (kind, _) in enumerate(cells) if kind == "code")
            page.run_all()
            page.output(start).locator(".wf-ask").wait_for(timeout=60_000)
            page.tab.evaluate(
                "i => { const n = jupyterapp.shell.currentWidget.content; n.activeCellIndex = i; n.scrollToItem(i, 'center'); }",
                start,
            )
            page.tab.wait_for_timeout(400)
            page.screenshot(artifacts / f"tour-question-{theme}.png")
            page.screenshot(artifacts / f"tour-view-{theme}.png", cell=start)
            page.output(start).locator('.wf-ask [data-answer="yes"]').click()
            page.until(
                "i => jupyterapp.shell.currentWidget.content.widgets[i].model.executionCount !== null"
                " && jupyterapp.shell.currentWidget.context.sessionContext.session.kernel.status === 'idle'",
                last,
                patience_s=60,
            )
            errors = [page.error(i) for i, (kind, _) in enumerate(cells) if kind == "code"]
            page.screenshot(artifacts / f"tour-done-{theme}.png")
            page.save()
            pageerrors = [line for line in page.console if line.startswith("pageerror")]
    saved = (project / "tour" / "tour.ipynb").read_text()

    assert [error for error in errors if error] == []
    assert pageerrors == []
    assert (project / "tour" / "out" / "seattle-weather.csv").is_file()
    assert "widgets" not in json.loads(saved)["metadata"]
    assert len(saved) < 200_000 and str(project) not in saved
