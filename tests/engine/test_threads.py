"""Threads of a body's own: what may be called there, and what is said about the rest."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest

from loom_kernel import events as ev
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import step
from loom_kernel.errors import LoomError
from tests.engine.harness import World, asked, events_of, nodes, rest

pytestmark = pytest.mark.timeout(30)


def test_a_step_call_in_a_thread_that_carries_the_run_is_recorded() -> None:
    """asyncio.to_thread and copy_context carry the run; the call works on the loop and is answered after a restart."""

    async def main() -> None:
        world = World()

        @step
        async def work(n: int) -> int:
            world.did(f"work {n}")
            return n

        def in_thread(n: int) -> int:
            async def call() -> int:
                return await work(n)

            return asyncio.run(call())

        async def body(ctx: Context) -> list[int]:
            got = [await asyncio.to_thread(in_thread, 1)]
            carried = contextvars.copy_context()
            thread = threading.Thread(target=lambda: got.append(carried.run(in_thread, 2)))
            thread.start()
            await asyncio.to_thread(thread.join)
            await ctx.ui.confirm("Go on?", name="go")
            return got

        execution = await world.start(body)
        await asked(execution)
        await world.restart()
        execution = await world.resume(execution.run_id, body)
        await world.answer(execution, True)
        assert (await rest(execution)).result == [1, 2]
        assert world.effects == {"work 1": 1, "work 2": 1} and nodes(execution) == ["work", "work"]
        await world.close()

    asyncio.run(main())


def test_other_durable_calls_belong_in_the_body() -> None:
    """ctx.tool in a thread is refused with a sentence instead of breaking the loop's data."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> str:
            def in_thread() -> Any:
                return ctx.tool("t", 1, lambda a: a)

            with pytest.raises(LoomError, match="another thread"):
                await asyncio.to_thread(in_thread)
            return "fine"

        assert (await world.run(body)).result == "fine"
        await world.close()

    asyncio.run(main())


def test_reports_and_exits_from_a_step_in_a_thread() -> None:
    """A step may report, and may end the run; the body's own reports are still told apart after a restart."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> None:
            def talks() -> None:
                ctx.report("from the step")

            def leaves() -> None:
                ctx.exit("skipped", reason="enough")

            ctx.report("one")
            await ctx.step("talks", talks)
            ctx.report("two")
            await ctx.ui.confirm("Go on?", name="go")
            ctx.report("three")
            await ctx.step("leaves", leaves)

        execution = await world.start(body)
        await asked(execution)
        await world.restart()
        execution = await world.resume(execution.run_id, body)
        await world.answer(execution, True)
        result = await rest(execution)
        assert (result.status, result.exit_reason) == ("skipped", "enough")
        reports = [bytes(e.value).decode().strip('"') for e in events_of(execution, ev.OutputReported)]
        assert reports == ["one", "from the step", "two", "three"]
        assert nodes(execution, ev.NodeCancelled) == ["leaves"]
        await world.close()

    asyncio.run(main())
