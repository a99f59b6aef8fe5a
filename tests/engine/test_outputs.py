"""Outputs that say something of the run: the reserved ``status``, what ``ctx.exit`` may give, ``max_concurrency``."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from loom_kernel import events as ev
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import step
from loom_kernel.authoring.workflow import define
from loom_kernel.errors import OutputError
from tests.engine.harness import World, events_of, rest


class Report(BaseModel):
    status: str
    summary: str = ""
    rows: int = 0


@pytest.mark.parametrize(
    ("said", "status", "resumable"),
    [
        ("complete", "completed", False),
        ("completed", "completed", False),
        ("budget_exceeded", "completed", False),
        ("anything", "completed", False),
        ("Failed", "failed", False),
        ("blocked", "blocked", False),
        ("Needs human", "blocked", True),
        ("incomplete", "blocked", True),
        ("active", "blocked", True),
        ("auth-blocked", "blocked", True),
    ],
)
def test_the_reserved_output_status_says_how_the_run_ended(said: str, status: str, resumable: bool) -> None:
    """Where it is declared; its outputs are kept, and the reason is the first that says something."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> Report:
            return Report(status=said, summary="half of it", rows=3)

        execution = await world.start(define(body))
        result = await rest(execution)
        [ended] = events_of(execution, ev.RunEnded)
        assert (result.status, ended.status, ended.resumable) == (status, status, resumable)
        assert result.result == Report(status=said, summary="half of it", rows=3)
        assert result.reason == (None if status == "completed" else "half of it")
        await world.close()

    asyncio.run(main())


def test_a_status_that_is_not_declared_is_a_value() -> None:
    """A dict may hold whatever it likes."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> dict[str, Any]:
            return {"status": "failed"}

        assert (await world.run(body)).status == "completed"
        await world.close()

    asyncio.run(main())


def test_an_exit_gives_some_of_the_declared_outputs() -> None:
    """As they were at the call; one that is not declared is the author's failure, which is not resumable."""

    async def main() -> None:
        world = World()

        async def fine(ctx: Context) -> Report:
            outputs: dict[str, Any] = {"rows": 1}
            try:
                ctx.exit("skipped", outputs=outputs)
            finally:
                outputs["rows"] = 2

        async def wrong(ctx: Context) -> Report:
            ctx.exit("skipped", outputs={"rwos": 1})

        result = await world.run(fine)
        assert (result.status, result.result) == ("skipped", {"rows": 1})
        execution = await world.start(define(wrong))
        result = await rest(execution)
        assert result.status == "failed" and isinstance(result.error, OutputError)
        assert "rwos: not declared; there are rows, status, summary" in str(result.error)
        assert not events_of(execution, ev.RunEnded)[0].resumable
        await world.close()

    asyncio.run(main())


def test_the_input_max_concurrency_bounds_parallel_branches() -> None:
    """Where ``ctx.parallel`` says nothing itself; a fraction is rounded down."""

    async def main() -> None:
        world = World()
        at_work = most = 0

        @step
        async def work(n: int) -> int:
            nonlocal at_work, most
            at_work += 1
            most = max(most, at_work)
            await asyncio.sleep(0.005)
            at_work -= 1
            return n

        async def body(ctx: Context, max_concurrency: float = 2.9) -> list[int]:
            return await ctx.parallel([work(n) for n in range(6)])

        assert (await world.run(body)).result == list(range(6))
        assert most == 2
        await world.close()

    asyncio.run(main())
