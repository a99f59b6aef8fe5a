"""Forking, comparing and asking why, in JupyterLab: what a person sees, in both themes, wide and narrow."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.lab import Lab, write_notebook

pytestmark = pytest.mark.timeout(300)

CELLS = [
    """%load_ext loom_kernel
from loom_kernel import *
import pandas as pd

@step
def fetch(station: str) -> pd.DataFrame:
    return pd.DataFrame({"day": range(4), "wind": [3, 5, 8, 13]})

@step
def clean(table: pd.DataFrame, limit: int) -> pd.DataFrame:
    return table[table.wind < limit]

@step
def describe(table: pd.DataFrame) -> str:
    return "\\n".join(["# Wind", f"{len(table)} days", f"strongest: {table.wind.max()}", "measured at the coast"])

@step
def check(table: pd.DataFrame) -> int:
    return len(table)

@step
def publish(text: str, days: int) -> str:
    if days < 3:
        raise ValueError("too few days to publish")
    return f"published {days} days"

@workflow
async def weather(ctx: Context, station: str = "coast", limit: int = 100) -> str:
    table = await fetch(station)
    table = await clean(table, limit)
    text, days = await ctx.parallel([describe(table), check(table)])
    if limit < 50:
        await ctx.map(check, [table.head(n) for n in range(1, 4)])
    await ctx.ui.confirm("Publish it?", name="go", default=True, timeout_s=0.1)
    return await publish(text, days)

r = weather.options(show=False).start()
await r.settled();""",
    "f = r.fork(inputs={'limit': 6})\nawait f.settled();",
    "f.diff()",
    "%loom why f publish",
    "r['describe'].table, f['check'].table\nf['check']",
    "r.at(r.view.created_at + 0.15)",
]


def test_fork_diff_why(project: Path, chromium: str, artifacts: Path) -> None:
    """A fork under its cell, the comparison with its source, why a step failed, a table of nodes, a moment.

    The saved notebook shows the same without its kernel's help, in both themes, wide and narrow.
    """
    write_notebook(project / "compare.ipynb", CELLS)
    with Lab(project) as lab:
        for number, (width, theme) in enumerate([(600, "light"), (1400, "light"), (600, "dark"), (1400, "dark")]):
            with lab.open("compare.ipynb", chromium, width=width, height=1100, theme=theme) as page:
                if number == 0:
                    for index in range(len(CELLS)):
                        page.run(index, patience_s=120)
                        assert page.error(index) is None, page.error(index)
                    page.until_text(1, "forked from the run of")
                    page.save()
                page.output(2).scroll_into_view_if_needed()
                for summary in page.output(2).locator("summary").all():
                    summary.click()
                for index in range(1, len(CELLS)):
                    page.output(index).scroll_into_view_if_needed()
                    page.screenshot(artifacts / f"compare-{width}-{theme}-{index}.png", cell=index)
                assert "A and B differ in 7 calls and the inputs" in page.text(2)
                assert "strongest: 5" in page.text(2)
                assert "ValueError: too few days" in page.text(3)
                assert not [line for line in page.console if line.startswith("pageerror")], page.console
