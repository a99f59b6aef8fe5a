"""The first run in a real JupyterLab: see it, answer it, kill it, run all again."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from .lab import Lab, Page, write_notebook

DEFINE = """
import os, time
from loom_kernel import step

@step
def slow(i: int) -> int:
    time.sleep(0.5)
    with open("effects.txt", "a") as effects:
        effects.write(f"slow {i}\\n")
    return i

@step
def keep(total: int) -> str:
    with open("effects.txt", "a") as effects:
        effects.write(f"keep {total}\\n")
    return f"kept {total}"
"""

BODY = """%%workflow careful --input count:int=3 --output said:str --description "Add, ask, keep"
total = 0
for i in range(count):
    total += await slow(i)
if not await ctx.ui.confirm(f"Keep {total}?", name="keep", show=[{"what": "total", "is": total}]):
    ctx.exit("skipped", reason="declined")
return {"said": await keep(total)}
"""

CELLS = [
    "%load_ext loom_kernel",  # 0
    DEFINE,  # 1
    BODY,  # 2
    "r = careful.start()",  # 3
    "await r",  # 4
    "r.value",  # 5
    # 6: a cell that computes in pure Python until the run has ended
    "end = time.time() + 25\nn = 0\nwhile time.time() < end and r.status not in ('completed', 'failed'):\n    n += 1\nr.status",
]

VIEW = ".wf-run"


@pytest.fixture
def lab(project: Path) -> Iterator[Lab]:
    """A JupyterLab over an empty project."""
    with Lab(project, env={"LOOM_HOME": str(project / ".loom")}) as server:
        yield server


def effects(project: Path) -> Counter[str]:
    """How often each step ran."""
    try:
        return Counter((project / "effects.txt").read_text().splitlines())
    except FileNotFoundError:
        return Counter()


def statuses(page: Page, cell: int) -> dict[str, str]:
    """Label and status of each node that the live view of a cell draws."""
    pairs = (
        page.output(cell)
        .locator(".wf-node")
        .evaluate_all(
            "nodes => nodes.map(n => [n.getAttribute('aria-label').split(':')[0], n.getAttribute('data-status')])"
        )
    )
    return {f"{label} {n}": status for n, (label, status) in enumerate(pairs)}


def wait_for(page: Page, cell: int, selector: str, patience_s: float = 20) -> None:
    """Until the live view of a cell shows something."""
    page.output(cell).locator(selector).first.wait_for(timeout=patience_s * 1000)


def prepare(page: Page, upto: int = 3) -> None:
    """Run the first cells."""
    for index in range(upto):
        page.run(index)
        assert page.error(index) is None, page.text(index)


@pytest.mark.timeout(180)
def test_nodes_turn_from_running_to_done_and_a_click_answers_while_a_cell_awaits(
    lab: Lab, project: Path, chromium: str, artifacts: Path
) -> None:
    """Define, run, watch; the form appears; Yes is clicked while another cell awaits the run."""
    write_notebook(project / "first.ipynb", CELLS)
    with lab.open("first.ipynb", chromium, width=1400) as page:
        prepare(page)
        page.run(3)
        wait_for(page, 3, '.wf-node[data-status="running"]')  # seen running; by the next look it may be done
        page.screenshot(artifacts / "first-run-running.png")
        page.start(4)
        wait_for(page, 3, ".wf-ask")
        page.screenshot(artifacts / "first-run-waiting.png")

        assert not page.done(4)
        assert dict(Counter(statuses(page, 3).values())) == {"completed": 3, "waiting": 1}

        page.output(3).locator('.wf-ask [data-answer="yes"]').click()
        page.wait(4)
        page.run(5)
        page.screenshot(artifacts / "first-run-completed.png")

        assert "kept 3" in page.text(5)
        assert effects(project) == {"slow 0": 1, "slow 1": 1, "slow 2": 1, "keep 3": 1}
        assert [line for line in page.console if line.startswith("pageerror")] == []

        page.save()
    saved = json.loads((project / "first.ipynb").read_text())

    assert "widgets" not in saved["metadata"]
    assert "application/vnd.jupyter.widget-view+json" not in json.dumps(saved["cells"][3]["outputs"])
    assert "data:image/svg+xml" in json.dumps(saved["cells"][3]["outputs"])


@pytest.mark.timeout(180)
def test_a_click_answers_while_a_cell_computes_in_pure_python(
    lab: Lab, project: Path, chromium: str, artifacts: Path
) -> None:
    """The main thread is busy, and yet Yes arrives."""
    write_notebook(project / "busy.ipynb", CELLS)
    with lab.open("busy.ipynb", chromium) as page:
        prepare(page)
        page.run(3)
        page.start(6)
        try:
            wait_for(page, 3, ".wf-ask")
        finally:
            page.screenshot(artifacts / "first-run-busy-waiting.png")

        assert not page.done(6)

        page.output(3).locator('.wf-ask [data-answer="yes"]').click()
        page.wait(6, patience_s=20)
        page.screenshot(artifacts / "first-run-busy.png")

        assert "'completed'" in page.text(6)
        assert effects(project)["keep 3"] == 1


@pytest.mark.timeout(240)
def test_a_killed_kernel_and_run_all_repeat_nothing(lab: Lab, project: Path, chromium: str, artifacts: Path) -> None:
    """SIGKILL in the middle of a run, Restart and Run All: finished steps are there at once and the graph is the same."""
    cells = [*CELLS[:3], "r = careful.start(count=6)", "await r", "r.value", "import os\nos.getpid()"]
    write_notebook(project / "killed.ipynb", cells)
    with lab.open("killed.ipynb", chromium) as page:
        page.run(6)
        pid = int(page.text(6).strip())
        prepare(page)
        page.run(3)
        end = time.monotonic() + 20
        while sum(effects(project).values()) < 3 and time.monotonic() < end:
            time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)
        before = effects(project)
        page.until("() => document.body.innerText.includes('restart')", patience_s=20)
        page.screenshot(artifacts / "killed-kernel.png")

        # The server starts the kernel anew by itself and the page says so in a box.
        page.tab.keyboard.press("Escape")
        page.tab.locator(".jp-Dialog").wait_for(state="detached", timeout=10_000)
        page.wait_idle()
        page.run_all()
        wait_for(page, 3, ".wf-ask", patience_s=60)
        page.screenshot(artifacts / "killed-run-all.png")
        graph = Counter(label.rsplit(" ", 1)[0] for label in statuses(page, 3))
        page.output(3).locator('.wf-ask [data-answer="yes"]').click()
        page.until(
            "() => jupyterapp.shell.currentWidget.content.widgets[5].model.outputs.length > 0 &&"
            " jupyterapp.shell.currentWidget.content.widgets[5].node.innerText.includes('kept 15')"
        )
        page.screenshot(artifacts / "killed-completed.png")

        assert 3 <= sum(before.values()) < 6
        after = effects(project)
        # At most the step in flight when the kernel died ran twice, and it had not finished.
        assert all(after[name] == 1 for name in before)
        assert {f"slow {i}" for i in range(6)} | {"keep 15"} == set(after)
        assert graph == {"slow": 6, "keep": 1} or sum(graph.values()) == 7
        assert "from the journal" in page.text(3)
