"""An agent in JupyterLab: its words come as it says them, it asks before it runs code, and goes on with what came out."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from .lab import Lab, write_notebook

SCRIPT = """
from loom_kernel.testing import set_script
words = "I will look at the numbers first, one after the other, and then say what they have in common."
set_script("demo", [
    {"text": words, "chunk_s": 0.25, "tool": {"name": "notebook", "arguments": {"code": "total = sum(numbers)\\ntotal"}}},
    {"tool": {"name": "python", "arguments": {"code": "print(6 * 7)"}}},
    {"text": "The sum is 6, and six times seven is 42.", "chunk_s": 0.05},
])
"""

BODY = """
from loom_kernel import workflow, Context

numbers = [1, 2, 3]

@workflow
async def study(ctx: Context):
    answer = await ctx.task("look", prompt="Add the numbers up.", tools=["python", "notebook"])
    return answer.text
"""

CODE = "el => el.innerText"


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("width", "theme"), [(1400, "light"), (600, "dark")])
def test_an_agent_streams_asks_and_goes_on(
    project: Path, chromium: str, artifacts: Path, width: int, theme: str
) -> None:
    """Tokens stream into the node's panel; two tools wait for the person, and the notebook's variables are the person's."""
    cells = ["%load_ext loom_kernel", SCRIPT, BODY, "r = study.start()", "result = await r\nresult.result", "total"]
    write_notebook(project / "agent.ipynb", cells)
    env = {"LOOM_HOME": str(project / ".loom"), "LOOM_MODEL": "scripted/demo"}
    with Lab(project, env=env) as lab, lab.open("agent.ipynb", chromium, width=width, theme=theme) as page:
        for index in range(4):
            page.run(index)
            assert page.error(index) is None, page.error(index)
        view = page.output(3)
        view.locator(".wf-node").first.click()
        said = view.locator(".wf-detail .wf-said")
        said.wait_for(timeout=30_000)
        seen: list[str] = []
        for _ in range(200):
            now = said.evaluate(CODE) if said.count() else ""
            if not seen or now != seen[-1]:
                seen.append(now)
            if view.locator(".wf-ask").count():
                break
            page.tab.wait_for_timeout(50)
        pieces = [text for text in seen if "assistant:" in text and "…" in text]
        assert len(pieces) >= 3, seen
        assert all(len(a) <= len(b) for a, b in itertools.pairwise(pieces))

        ask = view.locator(".wf-ask")
        page.screenshot(artifacts / f"agent-asks-{theme}.png", cell=3)
        asked = ask.inner_text()
        assert "look: may it call notebook?" in asked
        assert "total = sum(numbers)" in asked
        page.start(4)  # a cell that awaits leaves the main thread to the agent's cell
        ask.get_by_text("Allow", exact=True).first.click()
        view.locator(".wf-ask .wf-message", has_text="may it call python?").wait_for(timeout=30_000)
        view.locator(".wf-ask").get_by_text("Allow", exact=True).first.click()
        page.until_text(3, "completed", patience_s=60)
        page.wait(4)
        page.screenshot(artifacts / f"agent-done-{theme}.png", cell=3)
        assert page.text(4) == "'The sum is 6, and six times seven is 42.'"
        page.run(5)
        assert page.text(5) == "6"
        view = page.output(3)
        assert "Traceback" not in view.inner_text()
        assert [line for line in page.console if line.startswith("pageerror")] == []
