"""What ``run()`` may be told beside inputs and callbacks."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from loom_kernel.authoring.context import Context
from loom_kernel.authoring.registry import create_registry
from loom_kernel.authoring.step import current_step, step
from loom_kernel.authoring.workflow import WorkflowDefinition, define, workflow
from loom_kernel.errors import (
    DefinitionError,
    InsufficientStateError,
    NeedsAnswer,
    ResumeError,
    StorageConfigError,
    UnknownRunError,
    UnknownWorkflowError,
)
from loom_kernel.journal.memory_store import MemoryRunJournal
from loom_kernel.policies import Budget, RuntimeConfig
from loom_kernel.runtime import Run, Runtime, api
from loom_kernel.runtime.options import Continuation, ParentRun, RunOptions
from loom_kernel.views.store import create_store
from tests.conftest import close_runtime, stop_hub
from tests.runtime.conftest import DeskHost
from tests.runtime.test_run import until

done: list[str] = []
fail: list[str] = []


@step
def work(name: str) -> str:
    done.append(name)
    if name in fail:
        raise ValueError(f"{name} failed")
    return name


@step
def spends(tokens: int) -> int:
    current_step().usage("scripted/x", input_tokens=tokens)
    return tokens


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()
    fail.clear()


@pytest.fixture
def asking(runtime: Runtime) -> WorkflowDefinition[Any, Any]:
    """One question."""

    @workflow
    async def asking(ctx: Context, n: int = 1) -> str:
        answer = await ctx.ui.confirm("Go on?", name="go")
        return f"{n}: {answer} in {ctx.cwd.name}"

    return asking


def test_every_option_is_an_argument_of_run() -> None:
    """The object that is handed on and the function say the same names."""
    names = set(inspect.signature(api.run).parameters)
    assert {field.name for field in fields(RunOptions)} <= names


def test_wrong_options_start_nothing(runtime: Runtime, asking: WorkflowDefinition[Any, Any], tmp_path: Path) -> None:
    """Each is one sentence, before there is a run."""
    for options, said in (
        ({"cwd": tmp_path / "none"}, "there is no such folder"),
        ({"cwd": 3}, "a folder is needed, not a int"),
        ({"execution_mode": "batch"}, "it is interactive or non_interactive"),
        ({"depth": -1}, "not negative"),
        ({"depth": 4}, r"at most 4 deep \(maxDepth exceeded\)"),
        ({"run_id": "a/b"}, "letters, digits, hyphens"),
        ({"run_id": ""}, "letters, digits, hyphens"),
        ({"config": {"max_dept": 1}}, "'max_dept' is not known; there are default_concurrency"),
        ({"config": {"max_depth": 0}}, "max_depth=0"),
        ({"config": 3}, "a RuntimeConfig or a mapping is needed, not a int"),
        ({"continuation": {"source": 3}}, "its id or its snapshot is needed, not a int"),
        ({"store": {}}, "a Store is needed, not a dict"),
    ):
        with pytest.raises(DefinitionError, match=said):
            api.run(asking, **options)
    with pytest.raises(StorageConfigError, match=r"run\(journal=3\): a journal, its folder"):
        api.run(asking, journal=3)
    with pytest.raises(TypeError, match="no option 'sped'"):
        api.run(asking, sped=1)
    assert list(runtime.runs()) == []


def test_options_without_effect_are_taken(runtime: Runtime) -> None:
    """Calls that are written after the reference work."""

    @workflow
    async def quick(ctx: Context) -> int:
        return 1

    run = api.run(
        quick, use_prompt_nodes_for_ui=False, overlay=object(), persistence=object(), stage_control_registry={}, mcp=object(),
    )  # fmt: skip
    assert run.wait(timeout=20).result == 1


def test_a_run_works_in_the_folder_it_is_given(
    runtime: Runtime, asking: WorkflowDefinition[Any, Any], tmp_path: Path
) -> None:
    """``ctx.cwd``, and recorded."""
    (tmp_path / "there").mkdir()
    run = api.run(asking, cwd=tmp_path / "there")
    until(lambda: run.prompts())
    run.answer(True)
    assert run.wait(timeout=20).result == "1: True in there"
    assert run.events()[0].event.cwd == str(tmp_path / "there")  # type: ignore[attr-defined]


def test_nobody_is_waited_for_without_interaction(
    runtime: Runtime, asking: WorkflowDefinition[Any, Any], host: DeskHost
) -> None:
    """Whoever waits for the run gets NeedsAnswer, a child's question included; the run goes on when it is answered.

    Where the place of the call says that nobody is there, ``interactive`` says that somebody is.
    """

    @workflow
    async def parent(ctx: Context) -> Any:
        return (await ctx.workflow(asking)).result

    run = api.run(parent, execution_mode="non_interactive")
    with pytest.raises(NeedsAnswer, match="asks 'go': Go on"):
        run.wait(timeout=20)
    assert run.settle(timeout=20).status == "awaiting_input"
    run.answer(False)
    assert str(run.wait(timeout=20).result).startswith("1: False")
    host.headless = True
    waits = api.run(asking, execution_mode="interactive", fresh=True)
    with pytest.raises(TimeoutError):
        waits.wait(timeout=0.5)
    waits.answer(True)
    assert waits.wait(timeout=20).ok


class Desk:
    """A ui that answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def confirm(self, message: str) -> bool:
        self.asked.append(("confirm", message))
        return True

    async def select(self, message: str, options: list[str]) -> str:
        self.asked.append(("select", message, options))
        return options[-1]

    def input(self, prompt: str) -> str:
        raise RuntimeError("no keyboard")


def test_a_ui_answers_the_questions_of_its_run(runtime: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    """Plain and async methods; what it raises, and what it has no method for, waits for others."""

    @workflow
    async def asks(ctx: Context) -> list[Any]:
        return [
            await ctx.ui.confirm("Go on?"),
            await ctx.ui.select("Which?", ["a", "b"]),
            await ctx.ui.input("Name?", name="name"),
            await ctx.ui.editor("draft"),
        ]

    desk = Desk()
    with caplog.at_level(logging.ERROR, logger="loom_kernel"):
        run = api.run(asks, ui=desk)
        until(lambda: [p.prompt for p in run.prompts()] == ["name"])
        until(lambda: "the ui of a start did not answer 'name'" in caplog.text)
        run.answer("Ada", prompt="name")
        until(lambda: [p.prompt for p in run.prompts()] == ["editor"])
        run.answer("text", prompt="editor")
        assert run.wait(timeout=20).result == [True, "b", "Ada", "text"]
    assert desk.asked == [("confirm", "Go on?"), ("select", "Which?", ["a", "b"])]


def test_a_config_holds_for_one_start(runtime: Runtime) -> None:
    """Branches at once, nesting, and limits; in its children too, and in no other run."""
    at_once: list[int] = []
    most: list[int] = []

    @workflow
    async def child(ctx: Context) -> int:
        async def branch(i: int) -> int:
            at_once.append(i)
            most.append(len(at_once))
            await ctx.sleep(f"short-{i}", 0.01)
            at_once.remove(i)
            return i

        return len(await ctx.parallel([branch(i) for i in range(4)]))

    @workflow
    async def parent(ctx: Context) -> Any:
        return (await ctx.workflow(child)).result

    @workflow
    async def spending(ctx: Context) -> int:
        return await spends(60) + await spends(60)

    assert api.run(parent, config=RuntimeConfig(default_concurrency=2)).wait(timeout=20).result == 4
    assert max(most) == 2
    assert api.run(parent, fresh=True).wait(timeout=20).result == 4
    assert max(most) == 4
    refused = api.run(parent, config={"max_depth": 1}, fresh=True).settle(timeout=20)
    assert refused.status == "failed" and "at most 1 deep" in str(refused.error)
    assert api.run(parent, depth=3, fresh=True).settle(timeout=20).status == "failed"
    assert api.run(parent, depth=2, fresh=True).wait(timeout=20).result == 4
    limited = api.run(spending, config={"budget": {"max_tokens": 50}}).settle(timeout=20)
    assert (limited.status, limited.reason) == ("blocked", "budget")
    own = api.run(spending, config={"budget": {"max_tokens": 50}}, budget=Budget(max_tokens=500), fresh=True)
    assert own.wait(timeout=20).result == 120


def test_a_run_has_the_id_it_is_given(runtime: Runtime, asking: WorkflowDefinition[Any, Any]) -> None:
    """Once: a second run of that id is refused, and the first is as it was; nothing else is attached to."""
    first = api.run(asking)
    run = api.run(asking, run_id="order-17")
    assert run.id == "order-17" and first.id != run.id
    until(lambda: run.prompts())
    with pytest.raises(ResumeError, match="run order-17 is there already"):
        api.run(asking, run_id="order-17")
    runtime.get_run("order-17").answer(True)
    assert run.wait(timeout=20).ok


def test_a_name_is_looked_up_in_the_registry_of_the_start(runtime: Runtime) -> None:
    """What ``@workflow`` did not register is found there, and only there."""

    async def hidden(ctx: Context) -> int:
        return 7

    mine = create_registry([define(hidden)])
    assert api.run("Hidden", registry=mine).wait(timeout=20).result == 7
    with pytest.raises(UnknownWorkflowError):
        api.run("hidden")


def test_a_start_may_say_what_it_is_nested_in(
    runtime: Runtime, asking: WorkflowDefinition[Any, Any], make_runtime: Callable[..., Runtime]
) -> None:
    """Listed with its parent only, silent in the store; stopped and resumed by itself all the same."""
    store = create_store()
    outer = api.run(asking)
    run = api.run(asking, parent_run=ParentRun(run_id=outer.id, stage_id="stage"), store=store)
    until(lambda: run.prompts())
    assert [r.id for r in runtime.runs()] == [outer.id]
    [shown] = store.runs()
    assert (shown["parent_run_id"], shown["parent_stage_id"], shown["root_run_id"]) == (outer.id, "stage", outer.id)
    assert store.notices() == []
    run.stop()
    run.settle(timeout=20)
    again = make_runtime().resume(run.id)
    until(lambda: again.prompts())
    again.answer(True)
    assert again.wait(timeout=20).ok


def test_a_store_of_its_own_shows_a_run_and_its_children(
    runtime: Runtime, asking: WorkflowDefinition[Any, Any]
) -> None:
    """And no other run; one that is found again is shown from its beginning."""

    @workflow
    async def parent(ctx: Context) -> Any:
        return (await ctx.workflow(asking)).result

    store, late = create_store(), create_store()
    other = api.run(asking, {"n": 2})
    run = api.run(parent, store=store)
    until(lambda: run.prompts())
    assert [shown["name"] for shown in store.runs()] == ["parent", "asking"]
    assert [notice["kind"] for notice in store.notices()] == ["started"]
    found = api.run(asking, {"n": 3}, key="k")
    until(lambda: found.prompts())
    assert api.run(asking, {"n": 3}, key="k", store=late) is found
    assert [shown["id"] for shown in late.runs()] == [found.id]
    for one in (other, run, found):
        until(lambda one=one: one.prompts())
        one.answer(True)
        one.wait(timeout=20)
    assert [shown["status"] for shown in store.runs()] == ["completed", "completed"]
    until(lambda: [notice["kind"] for notice in late.notices()] == ["completed"])


def test_a_run_that_is_left_to_a_worker_is_shown_where_its_start_says(
    runtime: Runtime, asking: WorkflowDefinition[Any, Any]
) -> None:
    """While it waits, and when somebody executes it."""
    store = create_store()
    run = api.run(asking, worker=True, store=store)
    assert [(shown["id"], shown["status"]) for shown in store.runs()] == [(run.id, "pending")]
    taken = runtime.resume(run.id)
    until(lambda: taken.prompts())
    taken.answer(True)
    taken.wait(timeout=20)
    assert [shown["status"] for shown in store.runs()] == ["completed"]
    assert [notice["kind"] for notice in store.notices()] == ["started", "awaiting_input", "completed"]


def test_a_status_file_says_how_a_run_is(
    runtime: Runtime, asking: WorkflowDefinition[Any, Any], tmp_path: Path
) -> None:
    """Always whole JSON; the last thing that it says is the end."""
    file = tmp_path / "status.json"
    run = api.run(asking, config={"status_file": file})

    def said() -> Any:
        return json.loads(file.read_text())["runs"][0]["status"] if file.exists() else None

    until(lambda: said() == "awaiting_input")
    run.answer(True)
    run.wait(timeout=20)
    until(lambda: said() == "completed")
    assert list(tmp_path.glob(".status*")) == []


def test_the_end_is_in_the_status_file_when_its_process_ends(
    runtime: Runtime, three: WorkflowDefinition[Any, Any], tmp_path: Path
) -> None:
    """A script that ends right after its run leaves no file that says "running"."""
    file = tmp_path / "status.json"
    assert api.run(three, config={"status_file": file}).wait(timeout=20).ok
    runtime.close()
    [shown] = json.loads(file.read_text())["runs"]
    assert shown["status"] == "completed" and len(shown["tool_nodes"]) == 3 and "result" not in shown


def test_a_status_file_that_cannot_be_written_harms_no_run(
    runtime: Runtime, asking: WorkflowDefinition[Any, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """# spec 5.55: what is written for others is advisory; the journal is not, and it is told apart."""
    with caplog.at_level(logging.ERROR, logger="loom_kernel"):
        run = api.run(asking, config={"status_file": tmp_path / "gone" / "status.json"})
        until(lambda: run.prompts())
        run.answer(True)
        assert run.wait(timeout=20).ok
        until(lambda: "a subscriber of the store failed" in caplog.text)


# ---------------------------------------------------------------- another journal


def test_a_run_may_be_kept_in_another_journal(
    runtime: Runtime, asking: WorkflowDefinition[Any, Any], tmp_path: Path
) -> None:
    """One that is open stays open; a folder is opened; memory is by name. The configured one knows nothing of it."""
    mine = MemoryRunJournal()

    async def lends() -> MemoryRunJournal:
        return MemoryRunJournal()

    for journal in (mine, "memory", {"memory": True}, lends):
        run = api.run(asking, journal=journal, answers={"go": True})
        assert str(run.wait(timeout=20).result).startswith("1: True")
        with pytest.raises(UnknownRunError):
            runtime.get_run(run.id)
    assert runtime.beside("memory") is runtime.beside({"memory": True})
    runtime.close()

    async def listed() -> int:
        return len(await mine.list_runs())

    other = Runtime(runtime.settings, runtime.host)
    assert other.loop.submit(listed()).result(timeout=10) == 1  # it was not closed with the runtime
    other.close()


# ---------------------------------------------------------------- continuing


@pytest.fixture
def three(runtime: Runtime) -> WorkflowDefinition[Any, Any]:
    """Three steps in a line."""

    @workflow
    async def three(ctx: Context, label: str = "x") -> str:
        return "".join([await work("a"), await work("b"), await work(f"c-{label}")])

    return three


def failed(definition: WorkflowDefinition[Any, Any], at: str) -> Run[Any]:
    fail.append(at)
    run = api.run(definition)
    assert run.settle(timeout=20).status == "failed"
    fail.clear()
    done.clear()
    return run


def test_a_failed_run_is_continued_as_another_run(runtime: Runtime, three: WorkflowDefinition[Any, Any]) -> None:
    """A new id, finished steps are not repeated, the source stays failed; by handle, id and snapshot."""
    source = failed(three, "b")
    store = create_store()
    for given in (source, source.id, source.events()[0] and {"id": source.id}):
        done.clear()
        run = api.run(three, continuation=Continuation(source=given), store=store)
        assert run.wait(timeout=20).result == "abc-x" and done == ["b", "c-x"]
        assert run.id != source.id and runtime.get_run(source.id).status == "failed"
        assert store.runs()[-1]["resumed_from_run_id"] == source.id


def test_a_continuation_may_say_where_and_with_what(runtime: Runtime, three: WorkflowDefinition[Any, Any]) -> None:
    """From an earlier node; with other inputs, of which only those that differ are changed."""
    source = failed(three, "c-x")
    run = api.run(three, continuation={"source": source, "resume_from": "work#2"}, run_id="second")
    assert run.wait(timeout=20).result == "abc-x" and done == ["b", "c-x"] and run.id == "second"
    done.clear()
    other = api.run(three, {"label": "y"}, continuation=Continuation(source=source))
    assert other.wait(timeout=20).result == "abc-y" and done == ["c-y"]
    with pytest.raises(ResumeError, match="run second is there already"):
        api.run(three, continuation=Continuation(source=source), run_id="second")


def test_a_failure_in_a_child_is_continued_there(runtime: Runtime, three: WorkflowDefinition[Any, Any]) -> None:
    """What the child had done is not done again."""

    @workflow
    async def parent(ctx: Context) -> Any:
        return (await ctx.workflow(three)).result

    source = failed(parent, "b")
    run = api.run(parent, continuation=Continuation(source=source))
    assert run.wait(timeout=20).result == "abc-x" and done == ["b", "c-x"]


def test_a_continuation_needs_to_know_from_where(runtime: Runtime, three: WorkflowDefinition[Any, Any]) -> None:
    """``insufficient_state``: nodes, but none that it failed at. Without any node it begins at the beginning."""

    @workflow
    async def stumbles(ctx: Context, early: bool = False) -> str:
        if not early:
            await work("a")
        if fail:
            raise ValueError("between")
        return "through"

    source = failed(stumbles, "body")
    with pytest.raises(InsufficientStateError, match=r"say from where to go on: .*one of work") as refused:
        api.run(stumbles, continuation=Continuation(source=source))
    assert refused.value.code == "insufficient_state"
    assert (
        api.run(stumbles, continuation={"source": source, "resume_from": "work"}).wait(timeout=20).result == "through"
    )
    fail.append("body")
    empty = api.run(stumbles, {"early": True})
    empty.settle(timeout=20)
    fail.clear()
    assert api.run(stumbles, continuation=Continuation(source=empty)).wait(timeout=20).result == "through"
    with pytest.raises(ResumeError, match="cannot be continued as 'three'"):
        api.run(three, continuation=Continuation(source=source))
    fine = api.run(three)
    fine.wait(timeout=20)
    with pytest.raises(ResumeError, match="is completed; only one that failed"):
        api.run(three, continuation=Continuation(source=fine))


def test_a_run_in_another_folder_is_durable_there(project: Path) -> None:
    """Through that folder's hub; a later process finds it there, and only there."""

    @workflow
    async def quick(ctx: Context) -> str:
        return await work("once")

    other = project / "other"
    run = api.run(quick, journal=other)
    try:
        assert run.wait(timeout=30).result == "once"
        assert api.runs() == [] and (other / "hub.json").exists()
        close_runtime()
        api.configure(home=other)
        assert [(found.id, found.value) for found in api.runs()] == [(run.id, "once")]
    finally:
        close_runtime()
        stop_hub(other)
