"""Edit and continue in JupyterLab: a cell in the middle is edited, the plan is seen, a click goes on with it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from .lab import Lab

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "iterate.ipynb"

BOXES = "nodes => nodes.map(n => [...n.querySelectorAll('text, tspan')].filter(t => !t.querySelector('tspan')).map(t => t.textContent).join(' '))"

EFFECTS = "from pathlib import Path\n\ndef effect(name):\n    with Path('effects.txt').open('a') as file: file.write(name + '\\n')\n"


def noting(source: str) -> str:
    """The cell's steps note each run of theirs in a file."""
    lines = []
    for line in source.splitlines():
        if line.lstrip().startswith("return ") and "def " in source:
            name = "\n".join(lines).rpartition("def ")[2].partition("(")[0]
            lines.append(f"    effect({name!r})")
        lines.append(line)
    return "\n".join(lines)


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("width", "theme"), [(1400, "light"), (600, "dark")])
def test_iterate(project: Path, chromium: str, artifacts: Path, width: int, theme: str) -> None:
    """The middle cell is edited and run; the view shows reused, runs again and depends; only those steps run."""
    notebook = json.loads(NOTEBOOK.read_text())
    cells = notebook["cells"]
    for cell in cells:
        source = "".join(cell["source"])
        cell["source"] = noting(source) if "@step" in source else source
        cell.get("outputs", []).clear()
    by = {name: next(i for i, c in enumerate(cells) if name in c["source"] and c["cell_type"] == "code")
          for name in ("%load_ext", "def load", "def clean", "def train", "async def study", "run = study", "--edited")}  # fmt: skip
    cells[by["%load_ext"]]["source"] += "\n" + EFFECTS
    cells[by["--edited"] + 2]["source"] = "run.value"
    (project / "iterate.ipynb").write_text(json.dumps(notebook))
    with Lab(project, env={"LOOM_HOME": str(project / ".loom")}) as lab:
        with lab.open("iterate.ipynb", chromium, width=width, theme=theme) as page:
            for name in ("%load_ext", "def load", "def clean", "def train", "async def study", "run = study"):
                page.run(by[name])
                assert page.error(by[name]) is None, page.error(by[name])
            assert sorted(effects(project)) == ["clean", "load", "report", "summary", "train"]
            page.tab.evaluate(
                "i => { const s = jupyterapp.shell.currentWidget.content.widgets[i].model.sharedModel;"
                " s.setSource(s.source.replace('< 20', '< 22')); }",
                by["def clean"],
            )
            page.run(by["def clean"])
            page.run(by["--edited"])
            view = page.output(by["--edited"])
            view.locator(".wf-ask").wait_for(timeout=30_000)
            page.tab.evaluate(
                "i => { const n = jupyterapp.shell.currentWidget.content; n.activeCellIndex = i; n.scrollToItem(i, 'center'); }",
                by["--edited"],
            )
            page.tab.wait_for_timeout(400)
            page.screenshot(artifacts / f"iterate-plan-{theme}.png", cell=by["--edited"])
            boxes = [" ".join(text.split()) for text in view.locator(".wf-node").evaluate_all(BOXES)]
            asked = view.locator(".wf-ask").inner_text()
            assert len(effects(project)) == 5, "nothing ran before the decision"
            shutil.copy(project / "effects.txt", project / "before.txt")

            view.locator(".wf-ask button", has_text="Go on with the edited code").click()
            view.locator(".wf-ask").wait_for(state="detached", timeout=30_000)
            page.until_text(by["--edited"], "completed", patience_s=30)
            page.screenshot(artifacts / f"iterate-done-{theme}.png", cell=by["--edited"])
            done = view.inner_text()
            page.run(by["--edited"] + 2)
            before = page.text(by["--edited"] + 2)
            pageerrors = [line for line in page.console if line.startswith("pageerror")]

    for words in ("runs again", "its code was edited", "depends on the above", "reused"):
        assert words in asked
    assert boxes == ["load reused", "clean runs again", "summary reused", "train depends", "report depends"]
    assert sorted(effects(project)[5:]) == ["clean", "report", "train"]
    assert "14 days, 22 at most, usually 15.08" in done
    assert "14 days, 22 at most, usually 14.09" in before and pageerrors == []


def effects(project: Path) -> list[str]:
    """Which steps ran, in order."""
    return (project / "effects.txt").read_text().split()
