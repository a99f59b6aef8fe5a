"""What is left in the file when a notebook was executed by a program: a picture, small, whole, readable offline."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from .lab import CHROMIUM_FLAGS, write_notebook

CELLS = [
    "%load_ext loom_kernel\nimport asyncio\nfrom loom_kernel import Context, step, workflow",
    """@step
def square(n: int) -> int:
    return n * n

@workflow
async def squares(ctx: Context, n: int) -> int:
    first = [await square(i) for i in range(5)]
    return sum(first) + sum(await asyncio.gather(*(square(i) for i in range(5, n))))
""",
    "await squares.start(n=300)",
]

FAILS = [
    CELLS[0],
    """@step
def breaks() -> int:
    raise ValueError("no such day")

@workflow
async def broken(ctx: Context) -> int:
    return await breaks()
""",
    "await broken.start()",
]


def execute(notebook: Path) -> subprocess.CompletedProcess[str]:
    """Execute it in place, as nbclient does for everybody."""
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--inplace", str(notebook)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.timeout(180)
def test_three_hundred_steps_stay_a_small_picture(project: Path, chromium: str) -> None:
    """No widget state, less than 200 kB, the same picture in an exported page without a network."""
    notebook = write_notebook(project / "steps.ipynb", CELLS)
    done = execute(notebook)

    assert done.returncode == 0, done.stderr[-2000:]

    saved = notebook.read_text()

    assert "widgets" not in json.loads(saved)["metadata"]
    assert len(saved) < 200_000
    assert "300 of 300 steps" in saved

    command = [sys.executable, "-m", "nbconvert", "--to", "html", str(notebook)]
    subprocess.run(command, capture_output=True, timeout=120, check=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        context = browser.new_context()
        context.set_offline(True)
        page = context.new_page()
        page.goto((project / "steps.html").as_uri(), wait_until="domcontentloaded")
        widths = page.locator("img[src^='data:image/svg+xml']").evaluate_all("all => all.map(i => i.naturalWidth)")
        browser.close()

    assert len(widths) == 1 and widths[0] > 100


@pytest.mark.timeout(180)
@pytest.mark.parametrize("plugin", [["--nbmake"], ["--nbval-lax"]])
def test_a_failed_workflow_is_red(project: Path, plugin: list[str]) -> None:
    """Tools that test notebooks see the failure."""
    write_notebook(project / "fails.ipynb", FAILS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, "fails.ipynb"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 1
    assert "no such day" in done.stdout
