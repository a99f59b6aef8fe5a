"""Failures of run control that people met elsewhere: stop, abort, retry and resume around tools."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from loom_kernel import events as ev
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import current_step
from loom_kernel.authoring.workflow import define
from loom_kernel.engine.engine import why_not
from loom_kernel.engine.failures import TEXT_BYTES, tool_error
from loom_kernel.engine.redact import redact
from loom_kernel.errors import NodeAborted, ResumeError, StepTimeout, StorageUnavailableError
from loom_kernel.events import TERMINAL
from loom_kernel.journal.abc import Append
from tests.engine.harness import DyingJournal, World, asked, engine_on, events_of, rest, types_of, until

pytestmark = pytest.mark.timeout(30)


async def abort(world: World, execution: Any, name: str) -> None:
    """What ``r.abort(name)`` posts, once the call is at work."""
    await until(lambda: any(call.name == name and call.status == "running" for call in execution.calls))
    node_id = next(call.node_id for call in execution.calls if call.name == name)
    await world.journal.post(execution.run_id, Append(ev.AbortRequested(by="ann"), node_id, None))


def test_an_abort_ends_one_tool_and_its_siblings_go_on() -> None:
    """The body gets NodeAborted from that call alone, and its signal is set; going on after it is the body's choice."""

    async def main() -> None:
        world, signals = World(), list[Any]()

        async def hang(args: Any) -> None:
            signals.append(current_step().cancelled)
            await asyncio.sleep(60)

        async def slow(args: int) -> int:
            await asyncio.sleep(0.05)
            return args

        async def body(ctx: Context) -> list[str]:
            got = await asyncio.gather(ctx.tool("hang", 1, hang), ctx.tool("slow", 2, slow), return_exceptions=True)
            return [type(got[0]).__name__, str(got[1])]

        execution = await world.start(body)
        await abort(world, execution, "hang")
        result = await rest(execution)
        assert (result.status, result.result) == ("completed", ["NodeAborted", "2"])
        assert signals[0] and [e.reason for e in events_of(execution, ev.NodeCancelled)] == ["aborted by ann"]
        assert "node.failed" not in types_of(execution)
        await world.close()

    asyncio.run(main())


def test_an_uncaught_abort_fails_the_run_and_a_resume_runs_that_call_again() -> None:
    """The node is named as the run's failure, in either failure mode; what was finished is not done again."""

    async def main(mode: Any) -> None:
        world = World()

        async def first(args: Any) -> int:
            world.did("first")
            return 1

        async def frontier(args: Any) -> Any:
            world.did("frontier")
            if world.effects["frontier"] == 1:
                await asyncio.sleep(60)
            return 2

        async def body(ctx: Context) -> Any:
            one = await ctx.tool("first", 1, first)
            return [one, await ctx.tool("frontier", 1, frontier, failure_mode=mode)]

        definition = define(body)
        execution = await world.start(definition)
        await abort(world, execution, "frontier")
        result = await rest(execution)
        assert result.status == "failed" and isinstance(result.error, NodeAborted)
        [ended] = events_of(execution, ev.RunEnded)
        assert ended.resumable and ended.failed_node_id.startswith("tool:frontier:")
        again = await rest(await world.resume(execution.run_id, definition))
        assert again.status == "completed" and world.effects == {"first": 1, "frontier": 2}
        await world.close()

    asyncio.run(main("throw"))
    asyncio.run(main("return"))


def test_an_abort_between_two_tries_ends_the_waiting() -> None:
    """A call that waits for its next try is at work, too."""

    async def main() -> None:
        world = World()

        def down(args: Any) -> None:
            world.did("down")
            raise OSError("down")

        async def body(ctx: Context) -> str:
            try:
                await ctx.tool("down", 1, down, retries_allowed=True, interval_s=60)
            except NodeAborted as aborted:
                return aborted.by
            return ""

        execution = await world.start(body)
        await until(lambda: "node.retrying" in types_of(execution))
        await until(lambda: execution.calls[0].status == "retrying")
        await world.journal.post(
            execution.run_id, Append(ev.AbortRequested(by="ann"), execution.calls[0].node_id, None)
        )
        assert (await rest(execution)).result == "ann" and world.effects["down"] == 1
        await world.close()

    asyncio.run(main())


def test_an_abort_of_what_is_not_at_work_changes_nothing() -> None:
    """A question, a finished call and one that never was are left alone."""

    async def main() -> None:
        world = World()

        async def one(args: Any) -> int:
            return 1

        async def body(ctx: Context) -> bool:
            await ctx.tool("one", 1, one)
            return bool(await ctx.ui.confirm("Go on?", name="go"))

        execution = await world.start(body)
        _, prompt = await asked(execution)
        for node_id in (prompt, execution.calls[0].node_id, "tool:never:#1"):
            await world.journal.post(execution.run_id, Append(ev.AbortRequested(), node_id, None))
        await world.answer(execution, True)
        assert (await rest(execution)).result is True and "node.cancelled" not in types_of(execution)
        await world.close()

    asyncio.run(main())


def test_a_run_whose_only_work_is_a_tool_can_be_stopped_and_is_a_run() -> None:
    """No other node is needed: neither for a stop, which the tool's signal hears of, nor for the run to complete."""

    async def main() -> None:
        world, heard = World(), list[bool]()

        async def tool(args: Any) -> int:
            world.did("tool")
            if world.effects["tool"] == 1:
                try:
                    await asyncio.sleep(60)
                finally:
                    heard.append(True)
            return 1

        async def body(ctx: Context) -> int:
            return int(await ctx.tool("tool", 1, tool))

        definition = define(body)
        execution = await world.start(definition)
        await until(lambda: world.effects["tool"])
        await world.post(execution.run_id, ev.StopRequested())
        assert (await rest(execution)).status == "paused" and heard
        result = await rest(await world.resume(execution.run_id, definition))
        assert (result.status, result.result) == ("completed", 1)
        await world.close()

    asyncio.run(main())


def test_no_tool_begins_once_a_stop_was_asked_for() -> None:
    """Neither one that the body calls while it is being cancelled, nor one that it made before and awaits now."""

    async def main() -> None:
        world = World()

        async def hang(args: Any) -> None:
            await asyncio.sleep(60)

        async def later(args: Any) -> None:
            world.did("later")

        async def body(ctx: Context) -> None:
            made = ctx.tool("made", 1, later)
            try:
                await ctx.tool("hang", 1, hang)
            except asyncio.CancelledError:
                for call in (lambda: made, lambda: ctx.tool("new", 1, later)):
                    try:
                        await call()
                    except asyncio.CancelledError:
                        world.did("refused")

        execution = await world.start(body)
        await until(lambda: "node.started" in types_of(execution))
        await world.post(execution.run_id, ev.StopRequested())
        assert (await rest(execution)).status == "paused"
        assert world.effects == {"refused": 2}
        await world.close()

    asyncio.run(main())


def test_a_body_cannot_complete_over_a_stop() -> None:
    """Catching the cancellation and returning leaves the run paused, and it goes on when it is resumed."""

    async def main() -> None:
        world = World()

        async def hang(args: Any) -> str:
            world.did("hang")
            if world.effects["hang"] == 1:
                await asyncio.sleep(60)
            return "done"

        async def body(ctx: Context) -> str:
            try:
                return str(await ctx.tool("hang", 1, hang))
            except BaseException:
                return "got away"

        definition = define(body)
        execution = await world.start(definition)
        await until(lambda: world.effects["hang"])
        await world.post(execution.run_id, ev.StopRequested())
        assert (await rest(execution)).status == "paused"
        assert (await rest(await world.resume(execution.run_id, definition))).result == "done"
        await world.close()

    asyncio.run(main())


def test_what_an_abandoned_thread_returns_later_is_no_result() -> None:
    """The stop is not held up by it, its late value is not recorded, and the resumed call waits until it has ended."""

    async def main() -> None:
        world, free = World(), threading.Event()

        def stubborn(args: Any) -> str:
            world.did("stubborn")
            if world.effects["stubborn"] == 1:
                free.wait(20)
                return "late"
            return "in time"

        async def body(ctx: Context) -> str:
            return str(await ctx.tool("stubborn", 1, stubborn))

        definition = define(body)
        execution = await world.start(definition)
        await until(lambda: world.effects["stubborn"])
        await world.post(execution.run_id, ev.StopRequested())
        assert (await rest(execution)).status == "paused"
        resumed = await world.resume(execution.run_id, definition)
        await asyncio.sleep(0.05)
        assert world.effects["stubborn"] == 1  # two of them at once would be worse than waiting
        free.set()
        result = await rest(resumed)
        assert (result.status, result.result) == ("completed", "in time")
        assert len(events_of(resumed, ev.NodeCompleted)) == 1
        assert execution.run_id not in world.engine.executions
        await world.close()

    asyncio.run(main())


def test_a_stop_that_cannot_be_written_leaves_no_run_that_nobody_drives() -> None:
    """The waiter hears of the storage; the run is resumable at once when the storage is back, and stops then."""

    async def main() -> None:
        journal = DyingJournal()
        world = World(journal=journal)

        async def hang(args: Any) -> str:
            world.did("hang")
            if world.effects["hang"] < 3:
                await asyncio.sleep(60)
            return "done"

        async def body(ctx: Context) -> str:
            return str(await ctx.tool("hang", 1, hang))

        definition = define(body)
        execution = await world.start(definition)
        await until(lambda: "node.started" in types_of(execution))
        journal.left = 0
        await world.post(execution.run_id, ev.StopRequested())
        with pytest.raises(StorageUnavailableError):
            await rest(execution)
        journal.revive()
        assert execution.run_id not in world.engine.executions
        again = await world.resume(execution.run_id, definition)
        await until(lambda: world.effects["hang"] == 2)
        await world.post(execution.run_id, ev.StopRequested())
        assert (await rest(again)).status == "paused"
        assert (await rest(await world.resume(execution.run_id, definition))).result == "done"
        await world.close()

    asyncio.run(main())


def test_of_two_workers_that_resume_one_run_exactly_one_executes_it() -> None:
    """The other is told who has it, and its refusal changes nothing."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> bool:
            return bool(await ctx.ui.confirm("Go on?", name="go"))

        definition = define(body)
        execution = await world.start(definition)
        await asked(execution)
        await world.restart()
        other = engine_on(world.journal)
        got = await asyncio.gather(
            world.resume(execution.run_id, definition),
            other.resume(execution.run_id, definition),
            return_exceptions=True,
        )
        [refused] = [one for one in got if isinstance(one, ResumeError)]
        [won] = [one for one in got if not isinstance(one, BaseException)]
        assert "is being executed by" in str(refused)
        await world.answer(won, True)
        assert (await rest(won)).result is True
        await other.close()
        await world.close()

    asyncio.run(main())


def test_a_failure_that_speaks_of_aborting_is_a_failure() -> None:
    """Words do not decide: it is recorded as failed, tried again where that is allowed, and fails the run."""

    async def main() -> None:
        world = World()

        def fails(args: Any) -> None:
            world.did("fails")
            raise RuntimeError("operation aborted, cancelled by peer")

        async def body(ctx: Context) -> None:
            await ctx.tool("fails", 1, fails, retries_allowed=True, max_attempts=2, interval_s=0)

        execution = await world.start(body)
        result = await rest(execution)
        assert result.status == "failed" and world.effects["fails"] == 2
        assert "node.failed" in types_of(execution) and "node.cancelled" not in types_of(execution)
        await world.close()

    asyncio.run(main())


def test_an_error_that_is_a_cancellation_is_not_tried_again() -> None:
    """One named AbortError is not, unless it carries a process's exit."""

    async def main() -> None:
        world = World()

        class AbortError(Exception):
            pass

        def gives_up(args: str) -> None:
            world.did(args)
            error = AbortError("stopped")
            if args == "process":
                error.returncode = 1  # type: ignore[attr-defined]
            raise error

        async def body(ctx: Context) -> None:
            for what in ("plain", "process"):
                with pytest.raises(Exception, match="stopped"):
                    await ctx.tool("gives up", what, gives_up, retries_allowed=True, max_attempts=2, interval_s=0)

        await world.run(body)
        assert world.effects == {"plain": 1, "process": 2}
        await world.close()

    asyncio.run(main())


def test_each_try_has_a_deadline_and_a_signal_of_its_own() -> None:
    """A hang is tried again; the signal of the try before stays set, that of the next is fresh. 25 days and more are fine."""

    async def main() -> None:
        world, signals = World(), list[Any]()

        async def hangs_once(args: Any) -> str:
            signals.append(current_step().cancelled)
            if len(signals) == 1:
                await asyncio.sleep(60)
            return "done"

        async def body(ctx: Context) -> list[str]:
            first = await ctx.tool("hangs once", 1, hangs_once, retries_allowed=True, interval_s=0, timeout_s=0.05)
            return [first, await ctx.tool("far", 1, hangs_once, timeout_s=2.0**31)]

        execution = await world.start(body)
        result = await rest(execution)
        assert result.result == ["done", "done"]
        assert [bool(signal) for signal in signals] == [True, False, False]
        [retrying] = events_of(execution, ev.NodeRetrying)
        assert StepTimeout.__name__ in retrying.error.type
        await world.close()

    asyncio.run(main())


def test_a_tool_called_after_the_end_is_refused_and_nobody_complains() -> None:
    """A task that outlives its run cannot do anything in its name, and its refusal is nobody's unhandled error."""

    async def main() -> None:
        world, complaints, kept = World(), list[Any](), list[Context]()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

        async def late(args: Any) -> None:
            world.did("late")

        async def body(ctx: Context) -> int:
            kept.append(ctx)
            return 1

        await world.run(body)
        with pytest.raises(asyncio.CancelledError):
            await kept[0].tool("late", 1, late)
        await asyncio.sleep(0)
        assert not world.effects and not complaints
        await world.close()

    asyncio.run(main())


def test_a_killed_run_says_so_and_is_final() -> None:
    """Its status is killed, once; it cannot be resumed."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> bool:
            return bool(await ctx.ui.confirm("Go on?", name="go"))

        definition = define(body)
        execution = await world.start(definition)
        await asked(execution)
        await world.post(execution.run_id, ev.CancelRequested(by="ann", kill=True))
        result = await rest(execution)
        assert (result.status, result.reason) == ("killed", "by ann")
        with pytest.raises(ResumeError, match="final"):
            await world.resume(execution.run_id, definition)
        await world.close()

    asyncio.run(main())


def test_a_child_at_rest_ends_with_its_parent() -> None:
    """Cancelled before its body comes to the child again, a run leaves none behind that waits for ever."""

    async def main() -> None:
        world = World()

        async def inner(ctx: Context) -> bool:
            return bool(await ctx.ui.confirm("Go on?", name="go"))

        async def outer(ctx: Context) -> Any:
            return (await ctx.workflow(define(inner))).result

        definition = define(outer)
        execution = await world.start(definition)
        child = await until(
            lambda: next((e.event.child_run_id for e in execution.entries if e.type == "node.started"), None)  # type: ignore[attr-defined]
        )
        await until(lambda: child in world.engine.executions)
        await world.restart()
        await world.post(execution.run_id, ev.CancelRequested())
        assert (await rest(await world.resume(execution.run_id, definition))).status == "cancelled"
        summary = await world.journal.get_run(child)
        assert summary is not None and summary.status == "cancelled"
        await world.close()

    asyncio.run(main())


def test_one_predicate_says_what_can_be_resumed() -> None:
    """Paused and interrupted runs can; ended ones only where they failed or are blocked and may go on."""
    for status in ("pending", "running", "paused"):
        assert why_not("r", status, False) == ""
    for status in TERMINAL:
        can = status in ("failed", "blocked")
        assert bool(why_not("r", status, True)) is not can
        assert why_not("r", status, False)


def test_the_texts_of_a_tools_error_are_bounded_and_without_secrets() -> None:
    """16 KiB of each are kept, the end; keys, tokens and passwords are blotted out, other words stay."""
    error = RuntimeError("x" * 50_000 + " api_key=abc123def the end")
    error.stderr = b"GET https://ann:hunter2@example.org/ Authorization: Bearer abcdefghijkl\nall fine"  # type: ignore[attr-defined]
    kept = tool_error(error)
    assert kept["message"].endswith("api_key=[redacted] the end") and len(kept["message"].encode()) <= TEXT_BYTES
    assert "hunter2" not in kept["stderr"] and "abcdefghijkl" not in kept["stderr"] and "all fine" in kept["stderr"]
    assert redact("sk-abcdefghijklmnopqrstuv and {'password': 'p'}") == "[redacted] and {'password': [redacted]}"
    assert redact("the tokens: 5, secrets of the key board") == "the tokens: 5, secrets of the key board"
