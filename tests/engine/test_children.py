"""Child workflows: runs of their own behind one node, which go, rest and come back with their parent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loom_kernel import events as ev
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.result import RunResult
from loom_kernel.authoring.step import step
from loom_kernel.authoring.workflow import define
from loom_kernel.errors import ChildWorkflowError, DefinitionError, InputError, ResumeError
from loom_kernel.journal.memory_store import MemoryRunJournal
from tests.engine.harness import World, asked, entries_of, events_of, rest, types_of, until

pytestmark = pytest.mark.timeout(30)


def test_a_child_is_a_run_of_its_own() -> None:
    """Its result comes back, its run names its parent, and the parent's node names the run."""

    async def main() -> None:
        world = World()

        @step
        async def double(n: int) -> int:
            return 2 * n

        async def inner(ctx: Context, n: int) -> int:
            return await double(n)

        child = define(inner)

        async def body(ctx: Context) -> list[Any]:
            one = await ctx.workflow(child, inputs={"n": 1})
            assert isinstance(one, RunResult) and one.status == "completed" and not one.exited
            both = await asyncio.gather(*(ctx.workflow(child, inputs={"n": n}, stage_name="part") for n in (2, 3)))
            return [one.result, *(r.result for r in both)]

        execution = await world.start(body)
        assert (await rest(execution)).result == [2, 4, 6]
        started = events_of(execution, ev.NodeStarted)
        assert [(s.kind, s.name) for s in started] == [
            ("workflow", "inner"),
            ("workflow", "part"),
            ("workflow", "part"),
        ]
        for s in started:
            created = entries_of(world.journal, s.child_run_id)[0].event
            assert created.parent_run_id == created.root_run_id == execution.run_id
            assert created.parent_node_id.startswith("workflow:")
        assert not world.engine.executions
        await world.close()

    asyncio.run(main())


def test_wrong_inputs_and_wrong_things_are_refused_before_anything_runs() -> None:
    """A child is a definition, its inputs are checked at the call."""

    async def main() -> None:
        world = World()

        async def inner(ctx: Context, n: int) -> int:
            return n

        async def body(ctx: Context) -> int:
            with pytest.raises(InputError):
                ctx.workflow(define(inner), inputs={"n": "1"})
            with pytest.raises(DefinitionError, match="takes a @workflow definition"):
                ctx.workflow("inner")  # type: ignore[arg-type]
            return 1

        execution = await world.start(body)
        assert (await rest(execution)).result == 1
        assert len(world.journal._runs) == 1
        await world.close()

    asyncio.run(main())


def test_a_finished_child_does_not_run_again_and_an_interrupted_one_goes_on() -> None:
    """After a restart the boundary answers, or the child's own record does."""

    async def main() -> None:
        world = World()

        @step
        async def work(n: int) -> int:
            world.did(f"work {n}")
            return n

        async def inner(ctx: Context, n: int, ask: bool) -> int:
            await work(n)
            if ask:
                await ctx.ui.confirm("Go on?", name="go")
            return await work(n + 1)

        child = define(inner)

        async def body(ctx: Context) -> int:
            a = await ctx.workflow(child, inputs={"n": 10, "ask": False})
            b = await ctx.workflow(child, inputs={"n": 20, "ask": True})
            return a.result + b.result

        execution = await world.start(body)
        second = await until(lambda: [s.child_run_id for s in events_of(execution, ev.NodeStarted)][1:])
        await asked(await until(lambda: world.engine.executions.get(second[0])))
        await world.restart()
        execution = await world.resume(execution.run_id, body)
        inner_execution = await until(lambda: world.engine.executions.get(second[0]))
        await world.answer(inner_execution, True)
        assert (await rest(execution)).result == 11 + 21
        assert world.effects == {"work 10": 1, "work 11": 1, "work 20": 1, "work 21": 1}
        await world.close()

    asyncio.run(main())


def test_a_childs_exit_is_a_result_and_its_failure_raises() -> None:
    """exit gives an exited result with its reason; a failure raises ChildWorkflowError, the same replayed."""

    async def main() -> None:
        world = World()

        async def leaving(ctx: Context) -> None:
            ctx.exit("blocked", reason="stuck", outputs={"n": 1})

        async def failing(ctx: Context) -> None:
            raise ValueError("broken")

        seen: list[Any] = []

        async def body(ctx: Context) -> None:
            left = await ctx.workflow(define(leaving))
            try:
                await ctx.workflow(define(failing))
            except ChildWorkflowError as error:
                seen.append((left.exited, left.status, left.exit_reason, left.result, str(error)))
            await ctx.ui.confirm("Go on?", name="go")

        execution = await world.start(body)
        await asked(execution)
        await world.restart()
        execution = await world.resume(execution.run_id, body)
        await world.answer(execution, True)
        assert (await rest(execution)).status == "completed"
        assert seen[0] == seen[1]
        assert seen[0][:4] == (True, "blocked", "stuck", {"n": 1})
        assert seen[0][4] == "child workflow 'failing' failed: broken"
        await world.close()

    asyncio.run(main())


def test_resuming_a_parent_tries_the_failed_child_again() -> None:
    """The child's finished steps stay; only what failed runs again, in the same child run."""

    async def main() -> None:
        world = World()

        @step
        async def good() -> int:
            world.did("good")
            return 1

        @step
        async def bad() -> int:
            world.did("bad")
            if world.effects["bad"] == 1:
                raise OSError("down")
            return 2

        async def inner(ctx: Context) -> int:
            return await good() + await bad()

        child = define(inner)

        async def body(ctx: Context) -> int:
            return (await ctx.workflow(child)).result

        execution = await world.start(body)
        result = await rest(execution)
        assert result.status == "failed" and isinstance(result.error, ChildWorkflowError)
        child_id = events_of(execution, ev.NodeStarted)[0].child_run_id
        with pytest.raises(ResumeError, match=f"child of run {execution.run_id}"):
            await world.resume(child_id, child)
        execution = await world.resume(execution.run_id, body)
        assert (await rest(execution)).result == 3
        assert world.effects == {"good": 1, "bad": 2}
        assert {s.child_run_id for s in events_of(execution, ev.NodeStarted)} == {child_id}
        await world.close()

    asyncio.run(main())


@pytest.mark.parametrize("how", ["cancel", "stop"])
def test_cancel_and_stop_reach_the_children(how: str) -> None:
    """A parent's end takes its children along: cancelled for good, or paused and resumed together."""

    async def main() -> None:
        world = World()

        async def inner(ctx: Context) -> bool:
            return await ctx.ui.confirm("Go on?", name="go")

        child = define(inner)

        async def body(ctx: Context) -> bool:
            return bool((await ctx.workflow(child)).result)

        execution = await world.start(body)
        child_id = (await until(lambda: events_of(execution, ev.NodeStarted)))[0].child_run_id
        inner_execution = await until(lambda: world.engine.executions.get(child_id))
        await asked(inner_execution)
        request = ev.CancelRequested(by="ann") if how == "cancel" else ev.StopRequested(by="ann")
        await world.post(execution.run_id, request)
        result = await rest(execution)
        inner_result = await rest(inner_execution)
        if how == "cancel":
            assert result.status == inner_result.status == "cancelled"
        else:
            assert result.status == inner_result.status == "paused"
            await world.answer(inner_execution, True)
            resumed = await world.resume(execution.run_id, body)
            assert (await rest(resumed)).result is True
        assert not world.engine.executions
        await world.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("request_", "status", "types"),
    [
        (ev.CancelRequested(by="ann"), "cancelled", ["run.created", "lease.taken", "run.started", "run.ended"]),
        (ev.StopRequested(by="ann"), "paused", ["run.created", "lease.taken", "run.started", "run.paused"]),
        (None, "interrupted", ["run.created", "lease.taken"]),
    ],
    ids=["cancel", "stop", "close"],
)
def test_an_end_that_comes_while_a_child_is_opened(
    request_: ev.CancelRequested | ev.StopRequested | None, status: str, types: list[str]
) -> None:
    """The parent waits until the child is open, and it rests in the same way; its body has done nothing."""

    class Slow(MemoryRunJournal):
        """Answers late to who makes a child."""

        gate: asyncio.Event | None = None

        async def start_run(self, run_id: Any, created: ev.RunCreated, holder: Any) -> Any:
            acquired = await super().start_run(run_id, created, holder)
            if created.parent_run_id is not None and self.gate is not None:
                await self.gate.wait()
            return acquired

    async def main() -> None:
        world = World(journal=Slow())
        assert isinstance(world.journal, Slow)
        gate = world.journal.gate = asyncio.Event()

        async def inner(ctx: Context) -> None:
            world.did("inner")

        child = define(inner)

        async def body(ctx: Context) -> None:
            await ctx.workflow(child)

        execution = await world.start(body)
        child_id = (await until(lambda: events_of(execution, ev.NodeStarted)))[0].child_run_id
        await until(lambda: child_id in world.journal._runs)
        closing = asyncio.create_task(world.close()) if request_ is None else None
        if request_ is not None:
            await world.post(execution.run_id, request_)
        await until(lambda: execution.ending)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not execution.result.done()
        gate.set()
        assert (await rest(execution)).status == status
        assert [entry.type for entry in entries_of(world.journal, child_id)] == types
        assert not world.engine.executions and not world.effects
        await (closing or world.close())

    asyncio.run(main())


def test_an_exit_of_the_parent_cancels_the_child() -> None:
    """The child ends cancelled, before the parent ends."""

    async def main() -> None:
        world = World()

        async def inner(ctx: Context) -> bool:
            return await ctx.ui.confirm("Go on?", name="go")

        async def leave(ctx: Context) -> None:
            await until(lambda: len(world.engine.executions) == 2)
            ctx.exit("skipped", reason="enough")

        async def body(ctx: Context) -> None:
            await asyncio.gather(ctx.workflow(define(inner)), leave(ctx))

        execution = await world.start(body)
        assert (await rest(execution)).exit_reason == "enough"
        child_id = events_of(execution, ev.NodeStarted)[0].child_run_id
        last = entries_of(world.journal, child_id)[-1].event
        assert (last.status, last.reason) == ("cancelled", "workflow-exit")
        await world.close()

    asyncio.run(main())


def test_a_mismatch_in_a_child_pauses_the_family() -> None:
    """The question is about the child's call; accepting it on the parent goes on in the child."""

    async def main() -> None:
        world = World()
        n = 1
        hang = True

        @step
        async def work(n: int) -> int:
            world.did(f"work {n}")
            return n

        @step
        async def after() -> None:
            if hang:
                await asyncio.sleep(60)

        async def inner(ctx: Context) -> int:
            got = await work(n)
            await after()
            return got

        async def body(ctx: Context) -> int:
            return (await ctx.workflow(define(inner))).result

        execution = await world.start(body)
        child_id = (await until(lambda: events_of(execution, ev.NodeStarted)))[0].child_run_id
        await until(lambda: "node.completed" in [e.type for e in entries_of(world.journal, child_id)])
        await world.restart()
        n, hang = 2, False
        execution = await world.resume(execution.run_id, body)
        result = await rest(execution)
        assert (result.status, result.reason) == ("paused", "needs_decision")
        detail = events_of(execution, ev.RunPaused)[0].detail
        assert detail["child"] == child_id and detail["hint"] == f"%loom resume {execution.run_id} --accept"
        assert world.effects == {"work 1": 1}
        execution = await world.resume(execution.run_id, body, accept=True)
        assert (await rest(execution)).result == 2
        await world.close()

    asyncio.run(main())


def test_workflows_nest_four_deep() -> None:
    """The fifth level is refused."""

    async def main() -> None:
        world = World()

        async def level(ctx: Context, n: int) -> int:
            return 1 if n == 0 else 1 + (await ctx.workflow(definition, inputs={"n": n - 1})).result

        definition = define(level)
        assert (await world.run(definition, n=3)).result == 4
        result = await world.run(definition, n=4)
        assert result.status == "failed" and "at most 4 deep" in str(result.error)
        await world.close()

    asyncio.run(main())


def test_a_child_that_was_given_up_is_started_anew_on_resume() -> None:
    """wait_for cancels a child for good; when its parent comes there again, another run takes its place."""

    async def main() -> None:
        world = World()
        patience = 0.05

        async def inner(ctx: Context) -> str:
            if patience < 1:
                await ctx.ui.confirm("Go on?", name="go")
            return "done"

        async def body(ctx: Context) -> str:
            return (await asyncio.wait_for(ctx.workflow(define(inner)), patience)).result

        execution = await world.start(body)
        result = await rest(execution)
        assert result.status == "failed" and isinstance(result.error, TimeoutError)
        patience = 5
        execution = await world.resume(execution.run_id, body)
        assert (await rest(execution)).result == "done"
        assert len({s.child_run_id for s in events_of(execution, ev.NodeStarted)}) == 2
        assert "run.ended" in types_of(execution)
        await world.close()

    asyncio.run(main())
