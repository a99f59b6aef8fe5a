"""A run that fails, looked into and resumed by mouse."""

from __future__ import annotations

from pathlib import Path

import pytest

from .lab import Lab, write_notebook

CELLS = [
    "%load_ext loom_kernel",
    """from pathlib import Path
from loom_kernel import Context, step, workflow

@step
def read(n: int) -> int:
    print(f"reading {n} rows")
    with open("effects.txt", "a") as effects:
        effects.write("read\\n")
    return n

@step
def write(n: int) -> int:
    if not Path("allowed").exists():
        raise PermissionError("'out/clean.parquet' is not writable")
    return n

@workflow(name="clean <b>weather</b>")
async def clean(ctx: Context, n: int = 3) -> int:
    return await write(await read(n))
""",
    "r = clean.start()",
    "await r",
    "Path('allowed').write_text('yes')",
    "r.value",
]


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("width", "theme"), [(1400, "light"), (700, "dark")])
def test_fail_look_resume(project: Path, chromium: str, artifacts: Path, width: int, theme: str) -> None:
    """The failure shows the person's own line; a node opens on click; Resume runs only what failed; the cell was red."""
    write_notebook(project / "failed.ipynb", CELLS)
    with Lab(project, env={"LOOM_HOME": str(project / ".loom")}) as lab:
        with lab.open("failed.ipynb", chromium, width=width, theme=theme) as page:
            for index in range(3):
                page.run(index)
                assert page.error(index) is None
            view = page.output(2)
            view.locator(".wf-failure").wait_for(timeout=20_000)
            page.run(3)

            assert (page.error(3) or "").startswith("RunFailed")
            assert "raise PermissionError" in view.inner_text()
            assert "clean <b>weather</b>" in view.inner_text()  # text from people stays text

            view.locator(".wf-node").first.click()
            view.locator(".wf-detail").wait_for(timeout=10_000)
            page.until("() => document.body.innerText.includes('reading 3 rows')")
            page.screenshot(artifacts / f"failed-{theme}.png")
            page.run(4)
            view.locator('[data-action="resume"]').first.click()
            view.locator(".wf-failure").wait_for(state="detached", timeout=20_000)
            page.run(3)
            assert page.error(3) is None, page.error(3)
            page.run(5)
            page.screenshot(artifacts / f"failed-resumed-{theme}.png")

            assert page.text(5).strip() == "3"
            assert (project / "effects.txt").read_text().split() == ["read"]
            assert [line for line in page.console if line.startswith("pageerror")] == []
