"""The workflows of the recorded histories. They are replayed against these for ever: change none, add new ones."""

from __future__ import annotations

import asyncio
from typing import Any

from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import step
from loom_kernel.authoring.workflow import workflow
from loom_kernel.policies import Retry

ran: list[str] = []
"""Which steps ran: none of them in a replay."""


@step
def double(n: int) -> int:
    ran.append("double")
    return 2 * n


@step
def add(a: int, b: int) -> int:
    ran.append("add")
    return a + b


@step
def refuse(why: str) -> None:
    ran.append("refuse")
    raise ValueError(why)


@step(retry=Retry(max_attempts=3, interval_s=60, jitter=False))
def shaky(name: str) -> str:
    ran.append(name)
    if ran.count(name) < 3:
        raise OSError("not yet")
    return name


@step
async def slow(n: int) -> int:
    ran.append("slow")
    await asyncio.sleep(30)
    return n


@workflow
async def sequence(ctx: Context, n: int = 1) -> int:
    return await add(await double(n), await double(await double(n)))


@workflow
async def together(ctx: Context) -> list[Any]:
    gathered = await asyncio.gather(*(double(n) for n in range(3)))
    branched = await ctx.parallel([add(n, n) for n in gathered])
    return [gathered, branched]


@workflow
async def parent(ctx: Context) -> int:
    inner = await ctx.workflow(sequence, inputs={"n": 4})
    return await double(inner.result)


@workflow
async def asking(ctx: Context) -> str:
    if await ctx.ui.confirm("Go on?", name="go", show=[1, 2]):
        return await ctx.ui.select("Which way?", ["left", "right"], name="way")
    return "stayed"


@workflow
async def retried(ctx: Context) -> str:
    return await shaky("third time")


@workflow
async def passed(ctx: Context) -> str:
    try:
        await refuse("no paper")
    except ValueError as error:
        return f"{error}, {await double(1)}"
    return "printed"


@workflow
async def failed(ctx: Context) -> None:
    await double(3)
    await refuse("no ink")


@workflow
async def leaving(ctx: Context) -> int:
    async def leave() -> None:
        if await double(2) == 4:
            ctx.exit("skipped", reason="nothing to do")

    await asyncio.gather(slow(1), leave())
    return 1


@workflow
async def sleeping(ctx: Context) -> int:
    await ctx.sleep("a day", 86_400)
    return await double(1)


@workflow
async def values(ctx: Context) -> list[str]:
    await ctx.put("list", [await double(5), {"a": 1}])
    return [ctx.now().isoformat(), str(ctx.random()), str(ctx.uuid4()), str(ctx.get("list"))]


@workflow
async def stopped(ctx: Context) -> str:
    n = await double(7)
    return await ctx.ui.input(f"What is {n}?", name="what")
