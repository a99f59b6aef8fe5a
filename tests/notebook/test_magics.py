"""The magics in a real kernel: they define, run and refuse, and what they refuse is a real error with one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebook.kernel import Kernel

pytestmark = pytest.mark.timeout(120)

DIGEST = """%%workflow digest --input url:str --input limit:int=2 --output rows:int --output url:str
# NBVAL_IGNORE_OUTPUT
rows = [await read(url, n) for n in range(limit)]
return {"rows": len(rows), "url": url}
"""
READ = """from loom_kernel import step

@step
def read(url: str, n: int) -> str:
    return f"{url}:{n}"
"""


def test_a_cell_becomes_a_workflow_that_runs(headless: Kernel) -> None:
    """``%%workflow`` defines, ``%loom run`` runs it and shows the picture once, its value is the run."""
    headless.ok(READ)
    assert headless.ok(DIGEST).outputs == []
    cell = headless.ok("r = %loom run digest url=feed.csv")
    assert cell.text.splitlines()[0] == "digest: completed, 2 of 2 steps"
    assert "data:image/svg+xml;base64," in cell.html and "data-run" not in cell.html
    assert headless.ok("r.value").text == "{'rows': 2, 'url': 'feed.csv'}"
    assert headless.ok("digest").text == "<workflow digest>"


def test_running_as_the_cells_value_shows_it_once(headless: Kernel) -> None:
    """A bare ``%loom run`` shows one picture, not one more as the cell's value; a bare run in a later cell does."""
    headless.ok(READ)
    headless.ok(DIGEST)
    assert len(headless.ok("%loom run digest url=a").outputs) == 1
    headless.ok("r = digest.start(url='b')")
    assert headless.ok("digest.start(url='c')").outputs == []
    assert len(headless.ok("await r\nr").outputs) == 1
    assert headless.ok("r").text.startswith("digest: completed, 2 of 2 steps")


def test_inputs_in_a_cell_are_yaml(headless: Kernel) -> None:
    """``%%loom run NAME`` takes its inputs from the cell; ``$name`` is a variable."""
    headless.ok(READ)
    headless.ok(DIGEST)
    headless.ok("many = 3")
    headless.ok("%%loom run digest\nurl: 'a: b'\nlimit: $many")
    assert headless.ok("import loom_kernel; loom_kernel.runs()[0].value").text == "{'rows': 3, 'url': 'a: b'}"


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("%loom rnu x", "CommandError: %loom: there is no verb 'rnu'. Did you mean run?"),
        ("%loom run digest --wai", "CommandError: %loom run: unknown option --wai. Did you mean --wait?"),
        ("%%loom runs\nx", "CommandError: %%loom runs: it takes no cell. Write it on one line: %loom runs ..."),
        ("%loom run nope", "UnknownWorkflowError: no workflow named 'nope' here. Known: digest"),
        ("%loom show nope", "UnknownRunError: no run 'nope' in this project's journal; `%loom runs` lists them"),
        ("%loom answer yes", "AnswerError: no question is open. `%loom runs` lists what goes on."),
        ("%loom stop", "CommandError: %loom stop: no run goes on. `%loom runs` lists them all."),
        ("%loom show", "CommandError: %loom show: there are no runs yet. `%loom workflows` lists what can be run."),
        ("%%workflow x --inptu a:int\npass", "CommandError: %%workflow: unknown option --inptu. Did you mean --input?"),
    ],
)
def test_what_is_wrong_is_a_real_error(headless: Kernel, code: str, sentence: str) -> None:
    """Every refusal is an ``error`` output of exactly one sentence, which CI tools see."""
    headless.ok(READ)
    headless.ok(DIGEST)
    cell = headless.run(code)
    assert cell.error == sentence and cell.traceback == sentence
    assert cell.reply is not None and cell.reply["content"]["status"] == "error"


def test_all_wrong_inputs_are_listed(headless: Kernel) -> None:
    """Unknown, missing and wrong-typed inputs come in one error, before anything runs."""
    headless.ok(READ)
    headless.ok(DIGEST)
    cell = headless.run("%loom run digest limit=many colour=red")
    assert cell.error is not None and cell.error.startswith("InputError: workflow 'digest': 3 problems with the inputs")
    assert all(word in cell.error for word in ("colour: unknown", "url: missing", "limit:"))
    assert headless.ok("import loom_kernel; len(loom_kernel.runs())").text == "0"


def test_a_syntax_error_points_into_the_cell(headless: Kernel) -> None:
    """The line is the cell's own, with a caret under the place."""
    cell = headless.run("%%workflow broken --input a:int\nx = 1\n\ny = = a\nreturn y")
    assert cell.error is not None and cell.error.startswith("CellSyntaxError: invalid syntax (Cell In[")
    assert cell.traceback.splitlines()[0].endswith(", line 4")
    assert cell.traceback.splitlines()[1:] == ["    y = = a", "        ^", "SyntaxError: invalid syntax"]


def test_a_failing_run_makes_the_cell_red_and_shows_its_line(headless: Kernel) -> None:
    """The error names the step, the exception and the line of the person's own cell, and nothing of ours."""
    headless.ok("from loom_kernel import step\n\n@step\ndef divide(n: int) -> float:\n    return 1 / n")
    headless.ok("%%workflow ratio --input n:int\nreturn await divide(n)")
    cell = headless.run("%loom run ratio n=0")
    assert cell.error is not None and cell.error.startswith("RunFailed: ") and "ZeroDivisionError" in cell.error
    assert "return 1 / n" in cell.traceback and "loom_kernel/" not in cell.traceback
    assert cell.text.startswith("ratio: failed at divide")


def test_lists_are_tables(headless: Kernel) -> None:
    """``%loom workflows`` and ``%loom runs`` are tables as text and HTML."""
    headless.ok(READ)
    headless.ok(DIGEST)
    headless.ok("%loom run digest url=a --quiet")
    assert "digest    url: str, limit: int = 2" in headless.ok("%loom workflows").text
    runs = headless.ok("%loom runs")
    assert "completed" in runs.text and "<table>" in runs.html
    assert "url" in headless.ok("%loom workflows digest").text
    assert "loom-kernel" in headless.ok("%loom doctor").text


def test_unloading_leaves_no_trap(project: Path) -> None:
    """After ``%unload_ext`` the magics are gone, threads have ended, and the extension can be loaded again."""
    with Kernel(project, interactive=False) as kernel:
        kernel.ok("%load_ext loom_kernel")
        kernel.ok("%%workflow nothing\nreturn 1")
        kernel.ok("%loom run nothing --quiet")
        kernel.ok("%unload_ext loom_kernel")
        gone = kernel.run("%loom runs")
        assert gone.reply is not None and gone.reply["content"]["ename"] == "UsageError"
        assert (
            kernel.ok("import threading; [t.name for t in threading.enumerate() if t.name.startswith('loom')]").text
            == "[]"
        )
        kernel.ok("%load_ext loom_kernel")
        assert "nothing" in kernel.ok("%loom runs").text


def test_comments_above_a_magic_do_not_break_it(headless: Kernel) -> None:
    """A marker above ``%%workflow`` is taken off, and lines are still counted as the person sees them."""
    headless.ok("\n# NBVAL_IGNORE_OUTPUT\n%%workflow one\nreturn 1")
    assert headless.ok("one").text == "<workflow one>"
    cell = headless.run("\n# NBVAL_IGNORE_OUTPUT\n%%workflow two\nx = 1\nx = = 2")
    assert cell.traceback.splitlines()[0].endswith(", line 5") and "x = = 2" in cell.traceback
    assert headless.ok("# a comment\n%%loomsql\nselect 1 as one").text.startswith("one")
    assert (headless.run("x = 1\n%%loomsql\nselect 1").error or "") != ""


VERBS = """import asyncio
from loom_kernel import workflow, step

@step
def talk(n: int) -> int:
    print("number", n)
    return n

@workflow
async def long(ctx):
    await talk(1)
    await ctx.sleep("nap", 60)
    return await talk(2)
"""


def test_the_other_verbs(kernel: Kernel) -> None:
    """Stop, resume, wake, logs, tail, show, cancel and rm do to a run what they say."""
    kernel.ok(VERBS)
    kernel.ok("r = long.start()")
    kernel.until(lambda: "sleeping" in str(kernel.widget()["state"]["snapshot"]["words"]), 10)
    assert kernel.ok("%loom logs r").text == "talk | number 1"
    assert "long stops" in kernel.ok("%loom stop").text
    assert (kernel.run("await r").error or "").startswith("RunStopped: the run of 'long'")
    assert "paused" in kernel.ok("%loom runs").text
    assert "resumed the run of" in kernel.ok("%loom resume long").text
    kernel.ok("%loom wake")
    assert kernel.ok("(await r).result").text.splitlines()[-1] == "2"
    told = [line.partition("  ")[2] for line in kernel.ok("%loom tail r").text.splitlines()]
    assert told[:3] == ["long: started", "talk: started", "talk | number 1"] and told[-1] == "completed"
    kernel.ok("s = long.options(fresh=True).start()")
    assert "long is cancelled" in kernel.ok("%loom cancel s --reason enough").text
    assert kernel.ok("s.settle().status").text.splitlines()[-1] == "'cancelled'"
    assert "removed run" in kernel.ok("%loom rm s").text
    assert (kernel.run("%loom show nope").error or "").startswith("UnknownRunError")


def test_inputs_and_what_was_kept_are_listed(headless: Kernel) -> None:
    """``%loom inputs`` of a workflow and of a run, ``%loom artifacts`` of all runs and of one."""
    headless.ok("%%workflow keep --input n:int=3\nawait ctx.put('numbers', list(range(n)))\nreturn n")
    assert headless.ok("%loom artifacts").text == "nothing is kept yet"
    headless.ok("r = %loom run keep n=2\ns = %loom run keep n=4 --fresh")
    assert headless.ok("%loom inputs keep").text.splitlines()[2].split() == ["n", "int", "3"]
    assert headless.ok("%loom inputs r").text.splitlines()[2].split() == ["n", "2"]
    assert (headless.run("%loom inputs nope").error or "").startswith("UnknownWorkflowError")
    lines = [line.split() for line in headless.ok("%loom artifacts").text.splitlines()]
    assert lines[0] == ["name", "revision", "kind", "size_bytes", "run", "created"]
    assert [line[:3] for line in lines[2:]] == [["numbers", "1", "json"]] * 2
    assert len(headless.ok("%loom artifacts s").text.splitlines()) == 3
    assert headless.ok("%loom artifacts --limit 1").text.splitlines()[-1] == "and more rows than the 1 shown"


def test_show_lets_one_look_inside_a_finished_run(kernel: Kernel) -> None:
    """``%loom show`` opens a live view of a finished run; a kernel that ends in peace leaves its picture."""
    kernel.ok("%%workflow one\nreturn await ctx.step('count', lambda: 1)")
    kernel.ok("r = one.start()\nr.wait()")
    kernel.until(lambda: not kernel.widgets(), 5)
    assert "data:image/svg+xml" in kernel.ok("%loom show --picture").html and not kernel.widgets()
    cell = kernel.ok("%loom show")
    assert len(kernel.widgets()) == 1 and 'data-run="' in cell.html
    kernel.manager.shutdown_kernel()
    kernel.until(lambda: 'data-run="' not in cell.html and not kernel.widgets(), 5, lambda: cell.html)
