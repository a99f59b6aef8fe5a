"""Edit and continue as people use it: the plan, the question, and the run that goes on; the recorded body again."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from loom_kernel import events as ev
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import step
from loom_kernel.authoring.workflow import WorkflowDefinition, workflow
from loom_kernel.errors import ResumeError, RunError
from loom_kernel.runtime import Run, Runtime
from loom_kernel.views.snapshot import snapshot

pytestmark = pytest.mark.timeout(60)

Effects = Callable[..., list[str]]

_numbers = count()

STEPS = (
    "@step\ndef load():\n    effects('load')\n    return [3, 1, 2]\n",
    "@step\ndef clean(rows):\n    effects('clean')\n    return sorted(rows)\n",
    "@step\ndef show(rows):\n    effects('show')\n    return str(rows)\n",
)
BODY = "@workflow\nasync def flow(ctx: Context):\n    rows = await load()\n    return await show(await clean(rows))\n"
EDITED = STEPS[1].replace("sorted(rows)", "sorted(rows, reverse=True)")


class Book:
    """Cells that are run again."""

    def __init__(self, runtime: Runtime, effects: Effects) -> None:
        self.runtime = runtime
        self.space: dict[str, Any] = {
            "__name__": "__main__", "step": step, "workflow": workflow, "Context": Context, "effects": effects,
        }  # fmt: skip
        self.run(*STEPS, BODY)

    def run(self, *cells: str) -> None:
        for source in cells:
            name = f"<book cell {next(_numbers)}>"
            linecache.cache[name] = (len(source), None, source.splitlines(True), name)
            exec(compile(source, name, "exec"), self.space)

    @property
    def flow(self) -> WorkflowDefinition[Any, Any]:
        return self.space["flow"]


@pytest.fixture
def book(runtime: Runtime, effects: Effects) -> Book:
    """load → clean → show."""
    return Book(runtime, effects)


def failed(book: Book) -> Run[Any]:
    """A run whose last step failed."""
    book.run(STEPS[2].replace("return str(rows)", "raise OSError('no paper')"))
    run = book.flow.start()
    assert run.settle(10).status == "failed"
    book.run(STEPS[2])
    return run


def test_the_plan_is_asked_before_anything_runs(book: Book, effects: Effects) -> None:
    """resume(edited=True) rests with the plan as its question; accepting does what it said, and nothing else."""
    run = failed(book)
    book.run(EDITED)
    resumed = run.resume(edited=True)
    assert resumed is run and (run.status, run.reason) == ("paused", "needs_decision")
    assert effects() == ["load", "clean", "show"]
    [question] = snapshot(run.view, 0)["questions"]
    assert question["options"] == ["Go on with the edited code", "Go on with what is recorded"]
    assert question["shown"][0]["rows"] == [
        ["load", "reused", ""],
        ["clean(rows=[3, 1, 2])", "runs again", "its code was edited"],
        ["show(rows=[1, 2, 3])", "runs", "it failed"],
    ]
    assert "nothing has run yet" in run.how
    assert "1 reused, 1 runs again, 1 runs for the first time" in run.view.message
    assert f"%loom resume {run.id} --edited --accept" in question["hint"]
    run.resume(accept=True)
    assert run.wait(10).result == "[3, 2, 1]"
    assert effects() == ["load", "clean", "show", "clean", "show"]


def test_the_question_may_be_answered_with_what_is_recorded(book: Book, effects: Effects) -> None:
    """A plain resume keeps every finished result, although its step was edited."""
    run = failed(book)
    book.run(EDITED)
    run.resume(edited=True)
    run.resume()
    assert run.wait(10).result == "[1, 2, 3]" and effects() == ["load", "clean", "show", "show"]


def test_accepting_beforehand_is_not_asked(book: Book, effects: Effects) -> None:
    """resume(edited=True, accept=True) goes on at once; so does an edit that concerns nothing finished."""
    run = failed(book)
    book.run(EDITED)
    assert run.resume(edited=True, accept=True).wait(10).result == "[3, 2, 1]"
    run = failed(book)
    book.run(STEPS[2].replace("str(rows)", "'shown'"))
    assert run.resume(edited=True).wait(10).result == "shown"


def test_a_finished_run_goes_on_in_a_fork(book: Book, effects: Effects) -> None:
    """It stays as it is; the fork rests with the question, and asking twice makes one fork."""
    run = book.flow.start()
    assert run.wait(10).result == "[1, 2, 3]"
    with pytest.raises(RunError, match="was edited: 3 reused"):
        run.resume(edited=True)
    book.run(EDITED)
    fork = run.resume(edited=True)
    assert fork.id != run.id and fork.reason == "needs_decision" and run.resume(edited=True) is fork
    assert effects() == ["load", "clean", "show"]
    assert run.resume(edited=True, accept=True) is fork
    assert fork.wait(10).result == "[3, 2, 1]" and run.value == "[1, 2, 3]"
    assert effects() == ["load", "clean", "show", "clean", "show"]
    created = fork.events()[0].event
    assert isinstance(created, ev.RunCreated) and created.forked_from == run.id


def test_the_plan_of_a_run(book: Book, effects: Effects) -> None:
    """plan_edited() does nothing, prints as a table, and counts."""
    run = book.flow.start()
    run.wait(10)
    book.run(EDITED)
    plan = run.plan_edited()
    assert str(plan).splitlines() == [
        "1 reused, 1 runs again, 1 depends on that",
        "load                   reused",
        "clean(rows=[3, 1, 2])  runs again            its code was edited",
        "show(rows=[1, 2, 3])   depends on the above  after clean, if its arguments change",
    ]
    assert plan.counts == {"reused": 1, "cached": 0, "rerun": 1, "depends": 1, "runs": 0, "gone": 0}
    assert len(run.events()) == run.view.revision and effects() == ["load", "clean", "show"]


def test_a_mismatch_offers_the_recorded_body(book: Book, effects: Effects) -> None:
    """Other arguments for a finished step: the question shows both calls and the lines, and the old body can go on."""
    run = failed(book)
    book.run(BODY.replace("clean(rows)", "clean(rows + [9])"))
    run.resume()
    assert run.settle(10).reason == "needs_decision"
    [question] = snapshot(run.view, 0)["questions"]
    assert question["options"] == ["Run it as it is called now", "Fork here", "Run the recorded body"]
    assert question["shown"][0]["rows"] == [
        ["clean(rows=[3,1,2])", "recorded"],
        ["clean(rows=[3,1,2,9])", "now"],
    ]
    assert "+    return await show(await clean(rows + [9]))" in question["shown"][1]["text"]
    run.resume(recorded=True)
    assert run.wait(10).result == "[1, 2, 3]" and effects() == ["load", "clean", "show", "show"]


def test_the_recorded_body_without_its_definition(make_runtime: Callable[..., Runtime], effects: Effects) -> None:
    """In another process the text is compiled again, and sees the notebook's steps as they are now."""
    run_id = failed(Book(make_runtime(), effects)).id
    second = Book(make_runtime(), effects)
    second.run(BODY.replace("await clean(rows)", "rows[:1]"))
    runtime = second.runtime
    run = runtime.resume(run_id, recorded=True)
    assert run.wait(10).result == "[1, 2, 3]"
    with pytest.raises(ResumeError, match="recorded=True with the recorded body"):
        runtime.resume(run_id, recorded=True, edited=True)


def test_approvals_hold_for_what_was_shown(book: Book, effects: Effects) -> None:
    """A recorded yes answers the same question about the same contents; other contents are asked about again."""
    book.run(
        "@workflow\nasync def flow(ctx: Context):\n    rows = await clean(await load())\n"
        "    await ctx.ui.confirm('Send these?', name='go', show=rows)\n    return await show(rows)\n"
    )
    run = failed_after_yes(book)
    book.run(EDITED)
    plan = run.plan_edited()
    assert [(n.name, n.fate) for n in plan.nodes] == [
        ("load", "reused"), ("clean", "rerun"), ("go", "depends"), ("show", "runs")
    ]  # fmt: skip
    run.resume(edited=True, accept=True)
    deadline(lambda: run.prompts())
    assert run.prompts()[0].generation == 2 and effects()[-1] == "clean"
    run.answer(True)
    assert run.wait(10).result == "[3, 2, 1]"


def failed_after_yes(book: Book) -> Run[Any]:
    book.run(STEPS[2].replace("return str(rows)", "raise OSError('no paper')"))
    run = book.flow.start()
    run.answer(True, prompt="go")
    assert run.settle(10).status == "failed"
    book.run(STEPS[2])
    return run


def deadline(condition: Callable[[], Any]) -> None:
    import time

    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
