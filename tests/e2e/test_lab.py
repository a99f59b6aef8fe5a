"""The harness itself: JupyterLab starts, a cell runs, and the page shows what came out."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("playwright")

from tests.e2e.lab import Lab, write_notebook

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]


def test_a_cell_runs_in_jupyterlab(project: Path, chromium: str, artifacts: Path) -> None:
    """A cell's value appears under it, an error is told apart, and the page saves."""
    write_notebook(project / "smoke.ipynb", ["md:# Smoke", "6 * 7", "1 / 0"])
    with Lab(project) as lab, lab.open("smoke.ipynb", chromium) as page:
        page.run(1)
        assert page.text(1).strip() == "42"
        page.screenshot(artifacts / "lab-cell.png", cell=1)
        page.run(2)
        assert page.error(2) == "ZeroDivisionError: division by zero"
        page.save()
        page.screenshot(artifacts / "lab.png")
        assert page.output(1).inner_text().endswith("42")
        assert "42" in (project / "smoke.ipynb").read_text()


def test_a_killed_kernel_comes_back(project: Path, chromium: str) -> None:
    """After a SIGKILL the server starts another kernel, the dialog goes, and cells run again, in order."""
    write_notebook(project / "killed.ipynb", ["import os; pid = os.getpid()", "pid == os.getpid()"])
    with Lab(project) as lab, lab.open("killed.ipynb", chromium) as page:
        page.run(0)
        lab.kill_kernel()
        page.tab.wait_for_selector(".jp-Dialog")
        page.dismiss()
        page.wait_idle()
        page.run(1)
        assert page.error(1) == "NameError: name 'pid' is not defined"
        page.run_all()
        page.until_text(1, "True")
