"""Two kernels in one project folder: both run, each sees the other's runs, one answer wins, no lock error is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebook.kernel import Kernel

pytestmark = pytest.mark.timeout(150)

DEFINE = """
import time
from loom_kernel import Context, step, workflow

@step
def slow(n: int) -> int:
    time.sleep(0.05)
    return n

@workflow
async def {name}(ctx: Context, n: int = 20) -> int:
    total = 0
    for i in range(n):
        total += await slow(i)
    return total if await ctx.ui.confirm("Keep it?", name="keep") else -1

r = {name}.start()
"""
OPEN = "select workflow, prompt from prompts join runs using (run_id) where answered_at is null order by workflow"


def test_two_kernels_one_journal(project: Path) -> None:
    """Both make progress at once, see each other in SQL, and answer each other's question."""
    with Kernel(project) as one, Kernel(project) as two:
        started = []
        for kernel in (one, two):
            kernel.ok("%load_ext loom_kernel")
        for kernel, name in ((one, "left"), (two, "right")):
            started.append(kernel.send(DEFINE.format(name=name)))
        for cell in started:
            assert cell.wait(60).error is None, cell.error
        one.question(30)
        two.question(30)

        for kernel in (one, two):
            seen = kernel.ok(f"import loom_kernel\nloom_kernel.sql({OPEN!r}).fetchall()").text
            assert "('left', 'keep'), ('right', 'keep')" in seen
            assert kernel.ok("len(loom_kernel.runs())").text.strip() == "2"

        # Each answers the other's question, by name, from its own notebook.
        one.ok("other = [x for x in loom_kernel.runs(workflow='right')][0]\nother.answer('yes')")
        two.ok("other = [x for x in loom_kernel.runs(workflow='left')][0]\nother.answer('no')")

        assert "-1" in one.ok("(await r).result").text
        assert "190" in two.ok("(await r).result").text

        said = "".join(cell.text + (cell.error or "") for cell in started)
        assert "lock" not in said.lower()


def test_of_two_answers_one_wins(project: Path) -> None:
    """Both kernels answer one question: the first is taken, the other is told who was first."""
    with Kernel(project) as one, Kernel(project) as two:
        for kernel in (one, two):
            kernel.ok("%load_ext loom_kernel")
        one.ok(DEFINE.format(name="contested"))
        one.question(30)
        two.ok("import loom_kernel\nother = loom_kernel.runs(workflow='contested')[0]")
        cells = [one.send("r.answer(True)"), two.send("other.answer(False)")]
        errors = [cell.wait(30).error for cell in cells]

        assert sum(error is not None for error in errors) == 1, errors
        late = next(error for error in errors if error)
        assert "AnswerError" in late and "answered" in late
        assert "190" in one.ok("(await r).result").text or "-1" in one.ok("(await r).result").text


def test_a_person_takes_a_run_from_a_living_kernel(project: Path) -> None:
    """``%loom resume --take``: the other kernel's picture says who has it now, and nothing runs twice."""
    with Kernel(project) as one, Kernel(project) as two:
        for kernel in (one, two):
            kernel.ok("%load_ext loom_kernel")
        one.ok(DEFINE.format(name="wanted"))
        one.question(30)
        two.ok(DEFINE.format(name="wanted").rpartition("r =")[0])
        refused = two.run("%loom resume wanted")
        assert refused.error is not None
        assert "--take" in refused.error
        two.ok("%loom resume wanted --take")
        two.question(30)
        held = one.ok(
            "import time\nwhile not r.held_by: time.sleep(0.05)\nprint(r)\nprint(r._repr_mimebundle_()['text/plain'])"
        )
        assert "Held by" in held.text
        two.ok("import loom_kernel\nx = loom_kernel.runs(workflow='wanted')[0]\nx.answer('yes')")
        assert "190" in two.ok("(await x).result").text
        assert "190" in one.ok("(await r).result").text
        steps = "select count(*) from events where type = 'node.completed' and node_id like 'step:%'"
        assert "(20,)" in two.ok(f"loom_kernel.sql({steps!r}).fetchall()").text
