"""What a start may set for its execution."""

from __future__ import annotations

import asyncio

from loom_kernel import events as ev
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.workflow import define
from loom_kernel.engine.endings import cancelled
from loom_kernel.events import RunCreated
from loom_kernel.policies import RuntimeConfig
from tests.engine.harness import World, rest


async def _turns(defer: bool) -> int:
    """Turns of the loop until the author's code begins."""
    world = World()

    async def body(ctx: Context) -> None:
        world.did("begun")

    execution = await world.engine.start(define(body), {}, RunCreated(workflow="body"), defer=defer)
    turns = 0
    while not world.effects["begun"]:
        await asyncio.sleep(0)
        turns += 1
    await rest(execution)
    await world.close()
    return turns


def test_a_deferred_body_begins_a_turn_later_and_an_end_in_between_comes_first() -> None:
    """It is killed, durably, and the author's code has not run."""

    async def scenario() -> None:
        now = await _turns(defer=False)
        assert await _turns(defer=True) == now + 1
        world = World()

        async def body(ctx: Context) -> None:
            world.did("begun")

        execution = await world.engine.start(define(body), {}, RunCreated(workflow="body"), defer=True)
        for _ in range(now):
            await asyncio.sleep(0)
        execution.end(cancelled(ev.CancelRequested(reason="in the gap", kill=True)))
        result = await rest(execution)
        assert (result.status, result.reason, world.effects["begun"]) == ("killed", "in the gap", 0)
        assert [entry.type for entry in execution.entries][-2:] == ["run.started", "run.ended"]
        await world.close()

    asyncio.run(scenario())


def test_listeners_hear_of_every_execution_children_included() -> None:
    """In the order they begin; what a start has set holds in them."""

    async def scenario() -> None:
        world = World()
        heard: list[tuple[str, int, bool, int]] = []
        world.engine.begin_listeners.append(lambda x: heard.append((x.definition.name, x.depth, x.nested, x.max_depth)))

        async def inner(ctx: Context) -> int:
            return 1

        child = define(inner)

        async def outer(ctx: Context) -> int:
            return (await ctx.workflow(child)).result or 0

        config = RuntimeConfig(max_depth=9)
        execution = await world.engine.start(define(outer), {}, RunCreated(workflow="outer"), config=config, depth=2)
        assert (await rest(execution)).result == 1
        assert heard == [("outer", 3, False, 9), ("inner", 4, True, 9)]
        await world.close()

    asyncio.run(scenario())
