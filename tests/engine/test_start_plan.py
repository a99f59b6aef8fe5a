"""What a new run would do, found without doing it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loom_kernel.authoring.step import step
from loom_kernel.authoring.workflow import define
from tests.engine.harness import World

pytestmark = pytest.mark.timeout(30)


def test_the_cache_and_what_runs_are_told_apart() -> None:
    """Cached calls are counted; a call that runs is named, and where the rest cannot be known it is said."""

    async def main() -> None:
        world = World()

        @step(cache=True)
        async def load(n: int) -> int:
            world.did("load")
            return n

        @step
        async def report(total: int) -> str:
            world.did("report")
            return str(total)

        @step
        async def send(text: str) -> str:
            world.did("send")
            return text

        async def flow(ctx: Any, most: int) -> str:
            total = sum(await asyncio.gather(*(load(n) for n in range(most))))
            return await send(await report(total))

        definition = define(flow)
        await world.run(definition, most=3)
        world.effects.clear()
        runs = len(await world.journal.list_runs(roots_only=False))
        plan = await world.engine.plan_start(definition, {"most": 3})
        assert plan.sentence == "3 from the cache, 1 runs"
        assert [node.name for node in plan.of("runs")] == ["report"]
        assert "what comes after report is not known" in plan.problem
        plan = await world.engine.plan_start(definition, {"most": 5})
        assert plan.sentence == "3 from the cache, 2 run"
        assert "load(n=0)" in str(plan) and "from cache" in str(plan)
        assert not world.effects
        assert len(await world.journal.list_runs(roots_only=False)) == runs
        await world.close()

    asyncio.run(main())


def test_a_run_that_the_cache_answers_is_known_to_its_end() -> None:
    """Nothing is left open, and later calls get the cached values."""

    async def main() -> None:
        world = World()

        @step(cache="1d")
        async def add(n: int) -> int:
            world.did("add")
            return n + 1

        async def flow(ctx: Any) -> int:
            return await add(await add(1))

        definition = define(flow)
        await world.run(definition)
        plan = await world.engine.plan_start(definition, {})
        assert (plan.sentence, plan.problem, world.effects["add"]) == ("2 from the cache", "", 2)
        await world.close()

    asyncio.run(main())
