"""A program that uses the public names, checked by the type checker and never run.

``assert_type`` holds what an editor should know: a step keeps its function's parameters and result, a workflow too.
"""

from __future__ import annotations

import asyncio
import datetime
from typing import assert_type

from pydantic import BaseModel

import loom_kernel
from loom_kernel import Budget, Context, Retry, Run, RunResult, StepCall, current_step, step, workflow


class Settings(BaseModel):
    limit: int = 10


class Digest(BaseModel):
    lines: list[str]


@step
async def fetch(url: str, *, pages: int = 1) -> list[str]:
    return [url] * pages


@step(retry=Retry(max_attempts=3, interval_s=1), timeout_s=60)
def count(lines: list[str]) -> int:
    current_step().progress(1, 1)
    return len(lines)


@workflow
async def child(ctx: Context, url: str) -> int:
    return await count(await fetch(url))


@workflow(description="Everything once", budget=Budget(max_duration_s=60))
async def everything(ctx: Context, url: str, limit: int = 10) -> Digest:
    assert_type(fetch(url, pages=2), StepCall[list[str]])
    lines = await fetch(url)
    assert_type(lines, list[str])
    assert_type(fetch.fn.__name__, str)

    numbers = await asyncio.gather(count(lines), count([]))
    assert_type(numbers, tuple[int, int])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(count(lines))
    assert_type(task.result(), int)

    assert_type(await ctx.ui.confirm("Go on?", name="go", show=lines), bool)
    assert_type(await ctx.ui.input("Your name"), str)
    assert_type(await ctx.ui.select("Which?", ["a", "b"]), str)
    assert_type(await ctx.ui.form(Settings, initial={"limit": 3}), Settings)
    assert_type(ctx.now(), datetime.datetime)
    assert_type(ctx.random(), float)
    await ctx.sleep("a moment", 1.5)
    if ctx.cancelled:
        ctx.exit("skipped", reason="nothing to do")
    return Digest(lines=lines)


def script() -> None:
    run = everything.start(url="a", limit=3)
    assert_type(run, Run[Digest])
    assert_type(run.wait(timeout=5), RunResult[Digest])
    assert_type(run.settle(), RunResult[Digest])
    run.answer(True, prompt="go")
    tagged = everything.options(key="today", tags=["nightly"])
    assert_type(tagged.start("a"), Run[Digest])
    for each in loom_kernel.runs(status="failed", limit=5):
        print(each.id, each.status)
    print(loom_kernel.sql("select count(*) from runs"), loom_kernel.get_run(run.id).tags)


async def notebook() -> None:
    assert_type(await everything.run(url="a"), RunResult[Digest])
    run = everything.start(url="a")
    assert_type(await run, RunResult[Digest])
    assert_type((await run.settled()).result, Digest | None)


def mistakes() -> None:
    everything.start(url=3)  # type: ignore[arg-type]
    everything.start()  # type: ignore[call-arg]
    everything.start(url="a", limits=3)  # type: ignore[call-arg]
    fetch("a", page=3)  # type: ignore[call-arg]
    count("a")  # type: ignore[arg-type]
    Retry(attempts=3)  # type: ignore[call-arg]
