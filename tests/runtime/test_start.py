"""Start looks before it makes: attach, resume, follow, or a new run."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from loom_kernel.authoring.context import Context
from loom_kernel.authoring.registry import registry
from loom_kernel.authoring.step import step
from loom_kernel.authoring.workflow import WorkflowDefinition, workflow
from loom_kernel.errors import InputError, ResumeError, UnknownRunError, UnknownWorkflowError
from loom_kernel.events import RunCreated
from loom_kernel.policies import Budget
from loom_kernel.runtime import Runtime, ScriptHost
from loom_kernel.settings import Settings
from tests.runtime.conftest import DeskHost
from tests.runtime.test_run import until


@step
def one() -> int:
    return 1


@pytest.fixture
def asking(runtime: Runtime) -> WorkflowDefinition[Any, Any]:
    """One step, then a question."""

    @workflow
    async def asking(ctx: Context, n: int = 1) -> int:
        await one()
        await ctx.ui.confirm("Go on?", name="go")
        return n

    return asking


def at_the_question(run: Any) -> None:
    """Wait until its question is open."""
    until(lambda: run.prompts())


def test_a_new_run_is_shown_once(asking: WorkflowDefinition[Any, int], host: DeskHost) -> None:
    """Nothing is said about a run that is simply new."""
    asking.start()
    assert host.shown == [("asking", "")]


def test_a_start_in_the_same_cell_attaches(asking: WorkflowDefinition[Any, int], host: DeskHost) -> None:
    """Running a cell again while its run is live gives that run, and a line that says so."""
    first = asking.start()
    at_the_question(first)
    host.execution = "2"
    second = asking.start()
    assert second is first
    sentence = host.shown[-1][1]
    assert re.fullmatch(
        r"attached to the run of \d\d:\d\d, 1 of 1 step from the journal; fresh=True starts anew", sentence
    )


@pytest.mark.parametrize("change", ["inputs", "cell", "notebook", "fresh"])
def test_other_identities_are_other_runs(asking: WorkflowDefinition[Any, int], host: DeskHost, change: str) -> None:
    """Other inputs, another cell, another notebook, or being told so."""
    first = asking.start()
    at_the_question(first)
    host.execution = "2"
    if change in ("cell", "notebook"):
        setattr(host, change, "other")
    definition = asking.options(fresh=True) if change == "fresh" else asking
    second = definition.start(n=2) if change == "inputs" else definition.start()
    assert second is not first


def test_a_loop_of_equal_starts_is_as_many_runs(asking: WorkflowDefinition[Any, int], host: DeskHost) -> None:
    """And running the cell again attaches to each of them in turn."""
    first = [asking.start() for _ in range(3)]
    assert len({run.id for run in first}) == 3
    for run in first:
        at_the_question(run)
    host.execution = "2"
    again = [asking.start() for _ in range(3)]
    assert [a.id for a in again] == [f.id for f in first]


def test_finished_runs_are_left_alone(asking: WorkflowDefinition[Any, int], host: DeskHost) -> None:
    """Only unfinished runs are looked for."""
    first = asking.start()
    at_the_question(first)
    first.answer(True)
    first.wait(timeout=10)
    host.execution = "2"
    assert asking.start() is not first


def test_headless_and_scripts_start_anew(
    asking: WorkflowDefinition[Any, int], host: DeskHost, make_runtime: Callable[..., Runtime]
) -> None:
    """Unless they are told to continue, by a key or a setting."""
    host.headless = True
    first = asking.start()
    host.execution = "2"
    assert asking.start() is not first
    keyed = asking.options(key="daily").start()
    host.cell = "elsewhere"
    assert asking.options(key="daily").start() is keyed


def test_loom_resume_lets_headless_notebooks_continue(
    asking: WorkflowDefinition[Any, int], host: DeskHost, make_runtime: Callable[..., Runtime]
) -> None:
    """``LOOM_RESUME=1``."""
    host.headless = True
    make_runtime(settings=Settings(environ={"LOOM_RESUME": "1"}))
    first = asking.start()
    host.execution = "2"
    assert asking.start() is first


def test_equal_starts_of_a_script_are_counted_too(
    make_runtime: Callable[..., Runtime], asking: WorkflowDefinition[Any, int]
) -> None:
    """With ``LOOM_RESUME=1`` the second process finds the runs of the first, each once."""
    settings = Settings(environ={"LOOM_RESUME": "1"})
    make_runtime(settings=settings).host = ScriptHost()
    first = [asking.start().id for _ in range(2)]
    assert len(set(first)) == 2
    make_runtime(settings=settings).host = ScriptHost()
    assert [asking.start().id for _ in range(2)] == first


def test_a_start_may_have_a_budget_of_its_own(asking: WorkflowDefinition[Any, int]) -> None:
    """It counts before the definition's for that run, and is recorded with it."""
    run = asking.options(budget=Budget(max_duration_s=60)).start()
    assert run._execution.ledger.budget == Budget(max_duration_s=60)
    created = run.events()[0].event
    assert isinstance(created, RunCreated) and created.budget == {"max_duration_s": 60}
    assert asking.budget is None


def test_a_key_with_other_inputs_is_refused(asking: WorkflowDefinition[Any, int]) -> None:
    """Silently continuing other work would be worse."""
    asking.options(key="k").start(n=1)
    with pytest.raises(ResumeError, match="key 'k' has other inputs"):
        asking.options(key="k").start(n=2)


def test_a_paused_run_is_resumed_by_its_cell(asking: WorkflowDefinition[Any, int], host: DeskHost) -> None:
    """The line says that, and how much is done."""
    run = asking.start()
    at_the_question(run)
    run.stop()
    run.settle(timeout=10)
    host.execution = "2"
    assert asking.start() is run
    assert host.shown[-1][1].startswith("resumed the run of ")
    at_the_question(run)
    run.answer(True)
    assert run.wait(timeout=10).result == 1


def test_a_paused_run_of_the_last_kernel_is_resumed_by_the_next(
    asking: WorkflowDefinition[Any, int], host: DeskHost, runtime: Runtime, make_runtime: Callable[..., Runtime]
) -> None:
    """Start looks in the journal, not in this process."""
    run = asking.start()
    at_the_question(run)
    run.stop()
    run.settle(timeout=10)
    other = make_runtime()
    host.execution = "9"
    again = asking.start()
    assert (again.id, again is run) == (run.id, False)
    at_the_question(again)
    assert other.live()
    again.answer(True)
    assert again.wait(timeout=10).result == 1


def test_wrong_inputs_start_nothing(asking: WorkflowDefinition[Any, int], runtime: Runtime) -> None:
    """Everything that is wrong is said before anything exists."""
    with pytest.raises(InputError, match="2 problems"):
        asking.start(n="x", m=1)
    assert not runtime.is_open


# ---------------------------------------------------------------- finding and resuming


def test_runs_are_listed_and_found(asking: WorkflowDefinition[Any, int], runtime: Runtime) -> None:
    """Newest first, by status, workflow, key and tag; one by the beginning of its id."""
    first = asking.options(tags=("a", "b")).start(n=1)
    second = asking.options(key="k").start(n=2)
    for run in (first, second):
        at_the_question(run)
    assert [r.id for r in runtime.runs()] == [second.id, first.id]
    assert list(runtime.runs(tag="a")) == [first]
    assert list(runtime.runs(key="k")) == [second]
    assert list(runtime.runs(workflow="ASKING", limit=1)) == [second]
    assert list(runtime.runs(status="completed")) == []
    assert len(runtime.runs(status=["awaiting_input", "running"])) == 2
    assert runtime.get_run(first.id[:8]) is first
    with pytest.raises(UnknownRunError, match="no run 'zzz'"):
        runtime.get_run("zzz")
    with pytest.raises(UnknownRunError):
        runtime.get_run("")


def test_a_list_of_runs_prints_as_a_table(asking: WorkflowDefinition[Any, int], runtime: Runtime) -> None:
    """Without ids and times, so that it is the same twice."""
    assert repr(runtime.runs()) == "no runs"
    run = asking.start(n=1)
    at_the_question(run)
    run.answer(True)
    run.wait(timeout=10)
    assert repr(runtime.runs()).splitlines() == ["   workflow  status     inputs", "0  asking    completed  n=1"]
    assert "<table>" in runtime.runs()._repr_html_()


def test_resume_finds_the_definition_by_name(
    asking: WorkflowDefinition[Any, int], runtime: Runtime, make_runtime: Callable[..., Runtime]
) -> None:
    """An unknown one lists the known."""
    run = asking.start()
    at_the_question(run)
    run.stop()
    run.settle(timeout=10)
    other = make_runtime()
    registry.remove("asking")
    with pytest.raises(UnknownWorkflowError, match="no workflow named 'asking' here"):
        other.resume(run.id)
    registry.register(asking)
    again = other.resume(run.id[:8])
    at_the_question(again)
    assert again.live
    again.answer(True)
    assert again.wait(timeout=10).result == 1


def test_secrets_are_asked_for_again(runtime: Runtime, make_runtime: Callable[..., Runtime], host: DeskHost) -> None:
    """The journal keeps a digest; a resume brings the value, as does the cell that starts it again."""

    @workflow
    async def login(ctx: Context, user: str, password: SecretStr) -> int:
        await ctx.ui.confirm("Go on?", name="go")
        return len(password.get_secret_value())

    run = login.start(user="a", password="hunter2")
    at_the_question(run)
    assert b"hunter2" not in b"".join(e.payload for e in run.events())
    run.stop()
    run.settle(timeout=10)
    other = make_runtime()
    with pytest.raises(ResumeError, match="the secret input password, which is not stored"):
        other.resume(run.id)
    host.execution = "2"
    again = login.start(user="a", password="hunter2")
    assert again.id == run.id
    at_the_question(again)
    again.answer(True)
    assert again.wait(timeout=10).result == 7


# ---------------------------------------------------------------- scripts of answers


def test_a_file_of_answers_answers(
    asking: WorkflowDefinition[Any, int], host: DeskHost, make_runtime: Callable[..., Runtime], tmp_path: Path
) -> None:
    """Once, as its line says; the second question finds no line left."""
    host.headless = True
    answers = tmp_path / "answers.yaml"
    answers.write_text("- {prompt: go, answer: yes}\n- {prompt: never, answer: 1}\n")
    runtime = make_runtime(settings=Settings(environ={"LOOM_ANSWERS": str(answers)}))
    run = asking.start(n=1)
    assert run.wait(timeout=10).result == 1
    assert run["go"].view.answered_by
    second = asking.start(n=2)
    assert second.settle(timeout=10).status == "awaiting_input"
    assert len(runtime.attendant.leftovers()) == 1
    assert "never" in runtime.attendant.leftovers()[0]


def test_a_question_of_a_child_is_answered_too(
    asking: WorkflowDefinition[Any, int], host: DeskHost, make_runtime: Callable[..., Runtime]
) -> None:
    """Scripts hear of every run that is executed here."""

    @workflow
    async def parent(ctx: Context) -> int:
        return (await ctx.workflow(asking, inputs={"n": 5})).result  # type: ignore[no-any-return]

    host.headless = True
    assert parent.options(answers={"go": True}).start().wait(timeout=10).result == 5
    start = time.monotonic()
    assert parent.start().settle(timeout=10).status == "awaiting_input"
    assert time.monotonic() - start < 3
