"""The handle of a run: waiting, reading, answering, steering."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from loom_kernel.authoring.context import Context
from loom_kernel.authoring.result import RunResult
from loom_kernel.authoring.step import current_step, step
from loom_kernel.authoring.workflow import WorkflowDefinition, workflow
from loom_kernel.errors import (
    AnswerError,
    InputError,
    LoomError,
    NeedsAnswer,
    RunError,
    RunFailed,
    RunStopped,
    WouldBlock,
)
from loom_kernel.runtime import Runtime
from tests.runtime.conftest import DeskHost


@step
def add(a: int, b: int) -> int:
    print(f"adding {a} and {b}")
    return a + b


@step
def burst(message: str) -> None:
    raise ValueError(message)


@pytest.fixture
def total(runtime: Runtime) -> WorkflowDefinition[Any, int]:
    """1 + 2 + x, in two steps."""

    @workflow
    async def total(ctx: Context, x: int = 3) -> int:
        return await add(await add(1, 2), x)

    return total


@pytest.fixture
def asking(runtime: Runtime) -> WorkflowDefinition[Any, Any]:
    """Asks whether to go on."""

    @workflow
    async def asking(ctx: Context, who: str = "you") -> str:
        return "went" if await ctx.ui.confirm("Go on?", name="go") else "stayed"

    return asking


def until(condition: Callable[[], Any], seconds: float = 5) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never held"
        time.sleep(0.01)


# ---------------------------------------------------------------- waiting


def test_waiting_returns_the_result(total: WorkflowDefinition[Any, int]) -> None:
    """Blocking, and again later from what is recorded."""
    run = total.start(x=4)
    result = run.wait(timeout=10)
    assert isinstance(result, RunResult)
    assert (result.status, result.result, result.run_id) == ("completed", 7, run.id)
    assert run.wait() == result
    assert run.settle() == result
    assert (run.status, run.value, run.inputs, run.tags, run.workflow) == ("completed", 7, {"x": 4}, (), "total")
    assert [s["name"] for s in result.stages] == ["add", "add"]


def test_a_result_says_what_its_nodes_were(runtime: Runtime) -> None:
    """Atomic's stage snapshots: id, parents, order, times and the error of each; of a child its workflow and outputs."""

    @step
    async def fine() -> int:
        return 1

    @step
    async def bad() -> int:
        raise OSError("down")

    @workflow
    async def inner(ctx: Context) -> int:
        return await fine()

    @workflow
    async def staged(ctx: Context) -> list[Any]:
        child = await ctx.workflow(inner)
        with contextlib.suppress(OSError):
            await bad()
        return [child.workflow, child.outputs, child.exited, len(child.stages)]

    run = staged.start()
    result = run.wait(timeout=10)
    assert result.outputs == ["inner", 1, False, 1] and result.workflow == "staged"
    first, second = result.stages
    assert (first["id"], first["kind"], first["parent_ids"]) == (run["inner"].id, "workflow", [])
    assert (second["id"], second["parent_ids"], second["error"]) == (run["bad"].id, [first["id"]], "down")
    assert [s["execution_order"] for s in result.stages] == [1, 2]
    assert [s["status"] for s in result.stages] == ["completed", "failed"] and first["error"] is None
    assert first["result"]["result"] == 1 and second["result"] is None
    assert all(s["started_at"] <= s["ended_at"] and s["duration_s"] >= 0 for s in result.stages)


def test_awaiting_works_from_any_loop(total: WorkflowDefinition[Any, int]) -> None:
    """From a script's own loop, several at once."""

    async def main() -> list[int | None]:
        runs = [total.options(fresh=True).start(x=i) for i in range(3)]
        results = await asyncio.gather(*runs)
        return [r.result for r in results]

    assert asyncio.run(main()) == [3, 4, 5]


def test_run_starts_and_waits_without_raising(runtime: Runtime) -> None:
    """``await definition.run(...)`` gives the failed result instead of an exception."""

    @workflow
    async def failing(ctx: Context) -> None:
        await burst("no")

    async def main() -> RunResult[None]:
        return await failing.run()

    result = asyncio.run(main())
    assert result.status == "failed"
    assert isinstance(result.error, ValueError)


def test_waiting_for_a_failed_run_raises_with_the_persons_line(runtime: Runtime) -> None:
    """The step, the original class and the line of code are in the sentence; the result rides along."""

    @workflow
    async def failing(ctx: Context) -> None:
        await burst("no good")

    run = failing.start()
    with pytest.raises(RunFailed, match=r"the run of 'failing' failed in step 'burst': ValueError: no good") as caught:
        run.wait(timeout=10)
    assert "raise ValueError(message)" in str(caught.value)
    assert caught.value.result.status == "failed"
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(RunFailed):
        _ = run.value
    assert run.settle().status == "failed"


def test_an_exit_of_the_body_is_a_result(runtime: Runtime) -> None:
    """Every status that the body chose itself is returned, not raised."""

    @workflow
    async def leaving(ctx: Context, status: str) -> None:
        ctx.exit(status, reason="enough")  # type: ignore[arg-type]

    for status in ("completed", "skipped", "cancelled", "blocked", "failed"):
        result = leaving.start(status=status).wait(timeout=10)
        assert (result.status, result.exited, result.exit_reason) == (status, True, "enough")


def test_a_timeout_ends_the_waiting_only(asking: WorkflowDefinition[Any, str]) -> None:
    """The run goes on, and a later wait gets its result."""
    run = asking.start()
    with pytest.raises(TimeoutError, match="goes on"):
        run.wait(timeout=0.2)
    with pytest.raises(TimeoutError):
        asyncio.run(run.wait_async(timeout=0.2))
    assert run.live
    run.answer("yes")
    assert run.wait(timeout=10).result == "went"


def test_a_cancelled_await_leaves_the_run_alone(asking: WorkflowDefinition[Any, str]) -> None:
    """Awaiting is watching: cancelling the watcher does not end what it watches."""
    run = asking.start()

    async def main() -> None:
        waiting = asyncio.ensure_future(run)
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())
    assert run.status == "awaiting_input"


def test_an_interrupted_wait_raises_what_the_host_says(asking: WorkflowDefinition[Any, str], host: DeskHost) -> None:
    """The notebook turns the first interrupt into a detach."""
    host.raises = KeyboardInterrupt("stopped waiting")
    run = asking.start()

    async def main() -> None:
        waiting = asyncio.ensure_future(run)
        await asyncio.sleep(0.05)
        waiting.cancel()
        await waiting

    with pytest.raises(KeyboardInterrupt, match="stopped waiting"):
        asyncio.run(main())
    assert run.live


def test_blocking_on_the_loop_thread_names_the_twin(total: WorkflowDefinition[Any, int], runtime: Runtime) -> None:
    """It would deadlock every run; the error says what to await."""
    caught: dict[str, str] = {}

    @workflow
    async def inner(ctx: Context) -> int:
        for name, call in (
            ("start", lambda: total.start()),
            ("wait", lambda: run.wait()),
            ("value", lambda: run.value),
            ("answer", lambda: run.answer(1)),
            ("events", lambda: run.events()),
            ("runs", lambda: runtime.runs()),
            ("item", lambda: run["add#1"]),
        ):
            try:
                call()
            except WouldBlock as error:
                caught[name] = error.twin
        child = await total.start_async(x=10)
        return (await child).result or 0

    run = total.start()
    run.wait(timeout=10)
    assert inner.start().wait(timeout=10).result == 13
    assert caught == {
        "start": "total.start_async()",
        "wait": "r",
        "value": "r.value_async()",
        "answer": "r.answer_async()",
        "events": "r.events_async()",
        "runs": "runs_async()",
        "item": "r.node_async('add#1')",
    }


# ---------------------------------------------------------------- reading


def test_nodes_are_found_by_name_number_and_id(total: WorkflowDefinition[Any, int]) -> None:
    """A name that several have asks for a number."""
    run = total.start(x=5)
    run.wait(timeout=10)
    with pytest.raises(LoomError, match=r"add#1 \.\.\. add#2"):
        _ = run["add"].value
    first = run["add#1"]
    assert (first.value, run["add#2"].value) == (3, 8)
    assert run[first.id].value == 3
    assert (first.name, first.kind, first.status, first.attempts) == ("add", "step", "completed", 1)
    assert first.log == ["adding 1 and 2"]
    assert repr(first) == "<step add: completed>"
    assert [n.name for n in run.nodes()] == ["add", "add"]
    with pytest.raises(KeyError, match="no node named 'sub'; there are add"):
        run["sub"]


def test_a_childs_node_is_found_by_its_path(runtime: Runtime, total: WorkflowDefinition[Any, int]) -> None:
    """``r["child/step"]`` looks into the child's own run."""

    @workflow
    async def parent(ctx: Context) -> int:
        child = await ctx.workflow(total, inputs={"x": 1}, stage_name="sum")
        return child.result  # type: ignore[no-any-return]

    run = parent.start()
    run.wait(timeout=10)
    name = run.nodes()[0].name
    assert run[f"{name}/add#2"].value == 4
    assert len(runtime.runs()) == 1, "children are not listed among the runs"


def test_a_failed_node_has_an_error_and_no_value(runtime: Runtime) -> None:
    """The sentence says what it is instead."""

    @workflow
    async def failing(ctx: Context) -> None:
        await burst("no")

    run = failing.start()
    run.settle(timeout=10)
    node = run["burst"]
    assert isinstance(node.error, ValueError)
    with pytest.raises(LoomError, match="step 'burst' is failed and has no value"):
        _ = node.value


def test_events_and_follow_give_the_history_in_order(total: WorkflowDefinition[Any, int]) -> None:
    """Following a finished run gives what is recorded and ends."""
    run = total.start()
    followed = [entry.type for entry in run.follow()]
    entries = run.events()
    assert [e.seq for e in entries] == list(range(1, len(entries) + 1))
    assert followed == [e.type for e in entries]
    assert (followed[0], followed[-1]) == ("run.created", "run.ended")

    async def main() -> list[str]:
        return [entry.type async for entry in run.follow()]

    assert asyncio.run(main()) == followed


def test_listeners_get_new_entries_on_the_loop_thread(asking: WorkflowDefinition[Any, str], runtime: Runtime) -> None:
    """After the view took them in; until they stop listening."""
    run = asking.start()
    until(lambda: run.prompts())
    seen: list[tuple[str, str]] = []
    unlisten = run.listen(lambda entry: seen.append((entry.type, threading.current_thread().name)))
    run.answer(True)
    run.wait(timeout=10)
    until(lambda: any(kind == "run.ended" for kind, _ in seen))
    assert {name for _, name in seen} == {"loom"}
    unlisten()


def test_reports_are_the_runs_output(runtime: Runtime) -> None:
    """``ctx.report`` shows a line."""

    @workflow
    async def talking(ctx: Context) -> None:
        ctx.report("one")
        ctx.report("two")

    run = talking.start()
    run.wait(timeout=10)
    assert run.output() == ["one", "two"]


def test_pictures_and_texts(total: WorkflowDefinition[Any, int]) -> None:
    """The graph in every form there is."""
    run = total.start()
    run.wait(timeout=10)
    assert run.to_svg().lstrip().startswith("<svg")
    assert "add" in run.to_mermaid()
    assert "add" in run.to_dot()
    assert run.snapshot()["status"] == "completed"
    bundle = run._repr_mimebundle_()
    assert "completed" in bundle["text/plain"]
    assert "<img" in bundle["text/html"]
    networkx = pytest.importorskip("networkx")
    graph = run.graph()
    assert networkx.is_directed_acyclic_graph(graph)
    assert graph.number_of_nodes() == 2


def test_a_handle_prints_without_ids_times_and_paths(total: WorkflowDefinition[Any, int]) -> None:
    """Two executions of a notebook print the same."""
    run = total.start()
    run.wait(timeout=10)
    assert repr(run) == "<run of total: completed, 2 of 2 steps>"
    assert run.id not in repr(run)
    assert not re.search(r"0x|/", repr(run))


def test_a_value_comes_with_the_end(asking: WorkflowDefinition[Any, str]) -> None:
    """Before that there is a sentence."""
    run = asking.start()
    until(lambda: run.prompts())
    with pytest.raises(RunError, match="is awaiting_input; its value comes with its end"):
        _ = run.value


# ---------------------------------------------------------------- answering


def test_the_one_open_question_needs_no_name(asking: WorkflowDefinition[Any, str]) -> None:
    """``r.answer("yes")``."""
    run = asking.start()
    until(lambda: run.prompts())
    assert (run.status, run.prompts()[0].prompt, run.prompts()[0].message) == ("awaiting_input", "go", "Go on?")
    run.answer("no")
    assert run.wait(timeout=10).result == "stayed"
    assert run["go"].value is False


def test_an_answer_that_does_not_fit_leaves_the_question_open(asking: WorkflowDefinition[Any, str]) -> None:
    """The sentence says what does."""
    run = asking.start()
    until(lambda: run.prompts())
    with pytest.raises(AnswerError, match="yes or no"):
        run.answer("perhaps")
    assert run.prompts()
    run.answer(True)
    run.wait(timeout=10)
    with pytest.raises(AnswerError, match=r"completed and asks nothing|was answered"):
        run.answer(True, prompt="go")
    with pytest.raises(AnswerError, match="asks nothing"):
        run.answer(True)


def test_a_paused_run_that_was_not_answered_says_that_it_is_paused(asking: WorkflowDefinition[Any, str]) -> None:
    """It does not claim that somebody answered."""
    run = asking.start()
    until(lambda: run.prompts())
    run.stop()
    run.settle(timeout=10)
    with pytest.raises(AnswerError, match="is paused and asks nothing"):
        run.answer(True)


def test_several_open_questions_are_listed(runtime: Runtime) -> None:
    """An answer without a name says which there are."""

    @workflow
    async def two(ctx: Context) -> list[Any]:
        return list(
            await asyncio.gather(ctx.ui.confirm("A?", name="a"), ctx.ui.select("B?", ["red", "blue"], name="b"))
        )

    run = two.start()
    until(lambda: len(run.prompts()) == 2)
    with pytest.raises(AnswerError, match="asks 2 questions; say which with prompt=: a, b"):
        run.answer(True)
    run.answer("2", prompt="b")
    run.answer("yes", prompt="a")
    assert run.wait(timeout=10).result == [True, "blue"]


def test_an_early_answer_is_kept_for_its_question(runtime: Runtime) -> None:
    """A notebook may answer before the question is open."""
    opened = threading.Event()

    @step
    def hold() -> None:
        opened.wait(5)

    @workflow
    async def later(ctx: Context) -> bool:
        await hold()
        return await ctx.ui.confirm("Go on?", name="go")

    run = later.start()
    run.answer("yes", prompt="go")
    opened.set()
    assert run.wait(timeout=10).result is True


def test_a_childs_question_is_answered_through_the_parent(
    runtime: Runtime, asking: WorkflowDefinition[Any, str]
) -> None:
    """The person sees one run."""

    @workflow
    async def parent(ctx: Context) -> str:
        return (await ctx.workflow(asking, inputs={})).result  # type: ignore[no-any-return]

    run = parent.start()
    until(lambda: run.prompts())
    run.answer("yes", prompt="go")
    assert run.wait(timeout=10).result == "went"


def test_headless_an_open_question_is_an_error_that_says_what_to_add(
    asking: WorkflowDefinition[Any, str], host: DeskHost
) -> None:
    """It names the question and the line; the run goes on waiting and a later cell may answer."""
    host.headless = True
    run = asking.start()
    with pytest.raises(NeedsAnswer) as caught:
        run.wait(timeout=10)
    text = str(caught.value)
    assert "asks 'go': Go on?" in text
    assert "- {workflow: asking, prompt: go, answer: yes}" in text
    with pytest.raises(NeedsAnswer):
        asyncio.run(run.wait_async())
    assert run.settle().status == "awaiting_input"
    run.answer("yes")
    assert run.wait(timeout=10).result == "went"


def test_headless_an_early_answer_is_enough(asking: WorkflowDefinition[Any, str], host: DeskHost) -> None:
    """Nobody is called for a question that is answered already."""
    host.headless = True
    run = asking.start()
    run.answer(False, prompt="go")
    assert run.wait(timeout=10).result == "stayed"


def test_a_start_may_bring_its_answers(asking: WorkflowDefinition[Any, str], host: DeskHost) -> None:
    """By name or glob, for this run alone."""
    host.headless = True
    assert asking.options(answers={"g*": "yes"}).start(who="a").wait(timeout=10).result == "went"
    with pytest.raises(NeedsAnswer):
        asking.start(who="b").wait(timeout=10)


# ---------------------------------------------------------------- steering


def test_stop_pauses_and_resume_goes_on(runtime: Runtime, effects: Callable[..., list[str]]) -> None:
    """Finished steps do not run again."""

    @step
    def first() -> int:
        effects("first")
        return 1

    @workflow
    async def work(ctx: Context) -> int:
        one = await first()
        await ctx.ui.confirm("Go on?", name="go")
        return one

    run = work.start()
    until(lambda: run.prompts())
    run.stop()
    with pytest.raises(RunStopped, match="stopped"):
        run.wait(timeout=10)
    assert (run.status, run.reason) == ("paused", "stopped")
    assert run.settle().status == "paused"
    again = run.resume()
    assert again is run
    until(lambda: run.prompts())
    run.answer(True)
    assert run.wait(timeout=10).result == 1
    assert effects() == ["first"]


def test_who_waits_after_a_resume_was_asked_for_waits_for_it(
    runtime: Runtime, asking: WorkflowDefinition[Any, str]
) -> None:
    """A click on Resume and ``await r`` right behind it: what the run came to before is not told once more."""
    run = asking.start()
    until(lambda: run.prompts())
    run.stop()
    assert run.settle(timeout=10).status == "paused"
    loop = runtime.loop.loop
    loop.call_soon_threadsafe(lambda: loop.create_task(run.resume_async()))
    waiting = runtime.loop.submit(run.settled())
    until(lambda: run.prompts())
    run.answer("yes")
    assert waiting.result(timeout=10).status == "completed"


def test_cancel_is_final(asking: WorkflowDefinition[Any, str], host: DeskHost) -> None:
    """Who asked is on record, and waiting says so."""
    run = asking.start()
    until(lambda: run.prompts())
    run.cancel(reason="no need")
    with pytest.raises(RunStopped, match="was cancelled: no need"):
        run.wait(timeout=10)
    assert run.status == "cancelled"
    run.cancel()
    with pytest.raises(LoomError):
        run.resume()


def test_a_paused_run_can_be_cancelled_though_nobody_executes_it(asking: WorkflowDefinition[Any, str]) -> None:
    """Nobody would hear a request, so the end is written by who asked."""
    run = asking.start()
    until(lambda: run.prompts())
    run.stop()
    run.settle(timeout=10)
    run.cancel(reason="never mind")
    assert run.status == "cancelled"
    assert run.settle().reason == "never mind"


def test_cancelling_reaches_steps(runtime: Runtime) -> None:
    """A sync step sees its token."""
    seen: list[str | None] = []
    started = threading.Event()

    @step
    def long() -> None:
        started.set()
        for _ in range(500):
            if current_step().cancelled:
                seen.append(current_step().cancelled.reason)
                return
            time.sleep(0.01)

    @workflow
    async def work(ctx: Context) -> None:
        await long()

    run = work.start()
    assert started.wait(5)
    run.cancel()
    assert run.settle(timeout=10).status == "cancelled"
    until(lambda: seen)


def test_wake_ends_sleeps(runtime: Runtime) -> None:
    """All of them, or those with an id."""

    @workflow
    async def sleepy(ctx: Context) -> str:
        await ctx.sleep("long", 3600, correlation_id="x")
        return "awake"

    run = sleepy.start()
    until(lambda: run.nodes())
    run.wake(["x"])
    assert run.wait(timeout=10).result == "awake"


def test_rerun_starts_anew_with_changes(total: WorkflowDefinition[Any, int]) -> None:
    """Same workflow, same inputs but for those given."""
    run = total.start(x=1)
    run.wait(timeout=10)
    again = run.rerun()
    assert again.id != run.id
    assert again.wait(timeout=10).result == 4
    assert run.rerun(x=7).wait(timeout=10).result == 10
    with pytest.raises(InputError):
        run.rerun(y=1)


def test_a_finished_run_can_be_deleted(
    total: WorkflowDefinition[Any, int], asking: WorkflowDefinition[Any, str], runtime: Runtime
) -> None:
    """One that is executed cannot."""
    run = total.start()
    run.wait(timeout=10)
    run.delete()
    assert len(runtime.runs()) == 0
    live = asking.start()
    until(lambda: live.prompts())
    with pytest.raises(RunError, match="cancel it before deleting it"):
        live.delete()


def test_threads_switch_sooner_while_runs_are_live(asking: WorkflowDefinition[Any, str]) -> None:
    """A busy kernel does not starve its runs; afterwards everything is as before."""
    before = sys.getswitchinterval()
    run = asking.start()
    assert sys.getswitchinterval() == pytest.approx(0.001)
    until(lambda: run.prompts())
    run.answer(True)
    run.wait(timeout=10)
    until(lambda: sys.getswitchinterval() == pytest.approx(before))


def test_notes_are_kept_with_the_run(total: WorkflowDefinition[Any, int], runtime: Runtime) -> None:
    """While it lives and when it has ended; SQL finds them among the events."""
    run = total.start()
    run.wait(timeout=10)
    assert run.notes == ()
    run.note("the good one", by="ann")
    run.note("really")
    assert run.notes == ("the good one", "really")
    assert run.status == "completed"
    with pytest.raises(TypeError, match="a note is a text"):
        run.note("")
