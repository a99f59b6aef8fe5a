"""What a notebook may count on, rule by rule, in real kernels: cells are run again after a crash, edited or not.

That two kernels share a journal is in ``tests/e2e/test_two_kernels.py``, that an interrupt detaches and the next one cancels
in ``test_interrupts.py``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.notebook.kernel import Kernel

pytestmark = pytest.mark.timeout(150)

LOAD = "%load_ext loom_kernel\nfrom loom_kernel import Context, step, workflow"
STEPS = """
def note(line):
    with open("effects.txt", "a") as file:
        file.write(line + "\\n")

@step
def before(n: int) -> int:
    note(f"before {n}")
    return n * 10

@step
def after(n: int) -> int:
    note(f"after {n}")
    return n + 1
"""
BODY = """
@workflow
async def plan(ctx: Context) -> int:
    found = await before(1)
    await ctx.ui.confirm("Go on?", name="go")
    return await after(found)
"""
START = "r = plan.start()"
UPGRADED = "print([bool(e.event.family_version) for e in r.events() if e.type == 'run.started'])"


def run_all(kernel: Kernel, steps: str = STEPS, body: str = BODY) -> str:
    """Run the notebook's cells; what the start said."""
    said = ""
    for cell_id, code in (("load", LOAD), ("steps", steps), ("body", body), ("start", START)):
        said = kernel.ok(code, cell_id=cell_id).text
    return said


def killed(project: Path) -> Callable[[], list[str]]:
    """A kernel that dies at the question; gives what was done so far."""
    with Kernel(project) as kernel:
        run_all(kernel)
        kernel.question()
        kernel.kill()
    return lambda: (project / "effects.txt").read_text().splitlines()


def test_the_same_cells_finish_the_run(project: Path) -> None:
    """Killed, restarted, run again: it goes on, and each side effect happened once."""
    effects = killed(project)
    with Kernel(project) as kernel:
        assert "resumed the run of" in run_all(kernel)
        kernel.question()
        kernel.answer("yes")
        assert kernel.ok("(await r).result").text.splitlines()[-1] == "11"
    assert effects() == ["before 1", "after 10"]


def test_a_comment_or_the_name_of_a_local_is_no_change(project: Path) -> None:
    """Formatting and names of locals do not count."""
    effects = killed(project)
    body = BODY.replace("    found =", "    # ten times as much\n    value  =").replace("after(found)", "after(value)")
    with Kernel(project) as kernel:
        assert "resumed the run of" in run_all(kernel, body=body)
        assert kernel.ok(UPGRADED).text == "[False, False]"
        kernel.question()
        kernel.answer("yes")
        assert kernel.ok("(await r).result").text.splitlines()[-1] == "11"
    assert effects() == ["before 1", "after 10"]


def test_an_edited_step_that_did_not_run_yet_is_used_as_it_is_now(project: Path) -> None:
    """The run goes on with the new code of what is still to come."""
    effects = killed(project)
    with Kernel(project) as kernel:
        assert "resumed the run of" in run_all(kernel, steps=STEPS.replace("return n + 1", "return n + 100"))
        kernel.question()
        kernel.answer("yes")
        assert kernel.ok("(await r).result").text.splitlines()[-1] == "110"
        assert kernel.ok(UPGRADED).text == "[False, True]", "the record says from where on other code counts"
    assert effects() == ["before 1", "after 10"]


def test_edited_arguments_of_a_step_that_ran_are_a_question(project: Path) -> None:
    """The run stops before the other effect, shows both sides, and does it once somebody says so."""
    effects = killed(project)
    with Kernel(project) as kernel:
        run_all(kernel, body=BODY.replace("before(1)", "before(2)"))
        kernel.until(lambda: "needs a decision" in kernel.ok("print(r.status, r.reason)\nr").text, 20)
        told = kernel.ok("print(r.view.message)").text
        assert "'before'" in told and "n=2" in told and "n=1" in told
        assert effects() == ["before 1"]
        kernel.ok("%loom resume plan --accept")
        kernel.until(lambda: "'go'" in kernel.ok("print([p.prompt for p in r.prompts()])").text, 20)
        kernel.ok("r.answer('yes', prompt='go')")
        assert kernel.ok("(await r).result").text.splitlines()[-1] == "21"
    assert effects() == ["before 1", "before 2", "after 20"]


def test_run_all_twice_is_one_run(project: Path) -> None:
    """While it is unfinished, its cell attaches to it."""
    with Kernel(project) as kernel:
        run_all(kernel)
        kernel.question()
        first = kernel.ok("print(r.id)").text
        assert "attached to the run of" in run_all(kernel)
        assert kernel.ok("print(r.id)").text == first
        kernel.answer("yes")
        assert kernel.ok("(await r).result").text.splitlines()[-1] == "11"
    assert (project / "effects.txt").read_text().splitlines() == ["before 1", "after 10"]


WAYS = """
import threading
found = [plan.start().wait().result, (await plan.start()).result, (await plan.run()).result]
thread = threading.Thread(target=lambda: found.append(plan.start().wait().result))
thread.start()
while thread.is_alive():
    thread.join(0.05)
found
"""


def test_a_second_kernel_of_the_notebook_follows(project: Path) -> None:
    """The same cells elsewhere follow the run that lives; both are asked, and the first answer wins."""
    with Kernel(project) as one, Kernel(project) as two:
        run_all(one)
        one.question()
        assert "following the run of" in run_all(two)
        assert two.ok("print(r.id)").text == one.ok("print(r.id)").text
        two.question()
        cells = [kernel.send(f"r.answer({answer})") for kernel, answer in ((one, True), (two, False))]
        errors = [cell.wait(30).error for cell in cells]
        assert sum(error is not None for error in errors) == 1, errors
        for kernel in (one, two):
            assert kernel.ok("(await r).result").text.splitlines()[-1] == "11"
    assert (project / "effects.txt").read_text().splitlines() == ["before 1", "after 10"]


def test_a_run_is_waited_for_from_everywhere(project: Path) -> None:
    """A cell that blocks, one that awaits, a thread, a script, a test of pytest-asyncio's kind."""
    simple = BODY.replace('    await ctx.ui.confirm("Go on?", name="go")\n', "")
    with Kernel(project) as kernel:
        for code in (LOAD, STEPS, simple):
            kernel.ok(code)
        assert kernel.ok(WAYS).text.splitlines()[-1] == "[11, 11, 11, 11]"
    script = (
        "import asyncio\nfrom loom_kernel import Context, step, workflow\n"
        + STEPS
        + simple
        + "print(plan.start().wait().result)\n"
        + "async def main():\n    print((await plan.start()).result, (await plan.run()).result)\n"
        + "asyncio.run(main())\n"
    )
    (project / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=project, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout.split(), done.returncode) == (["11", "11", "11"], 0), done.stderr
