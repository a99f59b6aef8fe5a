"""Replaying recorded runs against today's code: what diverges is told with both sides, and nothing runs or is written."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loom_kernel.authoring.context import Context
from loom_kernel.authoring.registry import registry
from loom_kernel.authoring.step import step
from loom_kernel.authoring.workflow import WorkflowDefinition, workflow
from loom_kernel.errors import LoomError, ResumeError
from loom_kernel.runtime import Runtime
from loom_kernel.testing import Replay, ReplayDiverged, loom_replay, replay, save_history

__all__ = ["loom_replay"]

ran: list[str] = []


@step
def double(n: int) -> int:
    ran.append("double")
    return 2 * n


@step
def large(n: int) -> str:
    ran.append("large")
    return "x" * n


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test defines and counts is forgotten."""
    monkeypatch.setattr(registry, "_definitions", {})
    ran.clear()


def flow(body: Callable[..., Any]) -> WorkflowDefinition[..., Any]:
    """The definition of that name, as it is now."""
    body.__name__ = "flow"
    return workflow(body)


async def first(ctx: Context) -> Any:
    n = await double(1)
    await ctx.sleep("a moment", 0.01)
    return await double(n)


@pytest.fixture
def run(runtime: Runtime) -> Any:
    """A finished run of ``first``."""
    done = flow(first).start()
    assert done.wait(10).result == 4
    ran.clear()
    return done


def part(run: Any, body: Callable[..., Any]) -> str:
    """How the report of its divergence reads."""
    before = len(run.events())
    with pytest.raises(ReplayDiverged) as raised:
        replay(run, flow(body))
    assert ran == [] and len(run.events()) == before
    assert raised.value.report.divergence is not None
    return str(raised.value)


def test_a_run_replays_whole(run: Any) -> None:
    """Every answer comes from the record; it says how many."""
    report = replay(run, flow(first))
    assert report.ok and report.calls == 3 and ran == []
    assert str(report) == f"flow {run.id} replays whole: 3 calls"


def test_other_arguments(run: Any) -> None:
    """Both calls are shown with their lines."""

    async def body(ctx: Context) -> Any:
        n = await double(1)
        await ctx.sleep("a moment", 0.01)
        return await double(n + 5)

    said = part(run, body)
    assert "other arguments than recorded, after 2 answered calls" in said
    assert "recorded: step double(n=2) at test_replay.py, line" in said
    assert "now:      step double(n=7) at test_replay.py, line" in said


def test_a_call_that_is_new(run: Any) -> None:
    """Whether a step, a sleep or a recorded value."""

    async def more(ctx: Context) -> Any:
        result = await first(ctx)
        await large(3)
        return result

    assert "now:      step large(n=3)" in part(run, more)

    async def sleeps(ctx: Context) -> Any:
        result = await first(ctx)
        await ctx.sleep("again", 1)
        return result

    assert "recorded: the run completed: 4" in part(run, sleeps)

    async def looks(ctx: Context) -> Any:
        ctx.now()
        return await first(ctx)

    said = part(run, looks)
    assert "a call is not in the record, after 0 answered calls" in said and "now:      now" in said


def test_a_record_that_is_not_asked_for(run: Any) -> None:
    """A step, or a sleep, that the body does not come to any more."""

    async def fewer(ctx: Context) -> Any:
        return 2 * await double(1)

    said = part(run, fewer)
    assert "a recorded call is not made" in said and "recorded: sleep a moment" in said


def test_another_end(run: Any) -> None:
    """Another result, a failure, an exit."""

    async def other(ctx: Context) -> Any:
        return await first(ctx) + 1

    assert "the body's result is another" in part(run, other) and "now:      the run completed: 5" in part(run, other)

    async def fails(ctx: Context) -> Any:
        raise ValueError(await first(ctx))

    assert "now:      the run failed: ValueError: 4" in part(run, fails)


def test_an_edited_step_is_no_divergence(run: Any) -> None:
    """It does not run, so what it does now is not asked."""
    edited = step(name="double")(lambda n: 1 / 0)

    async def body(ctx: Context) -> Any:
        n = await edited(1)
        await ctx.sleep("a moment", 0.01)
        return await edited(n)

    assert replay(run, flow(body)).ok


def test_a_history_file(run: Any, runtime: Runtime, tmp_path: Path, loom_replay: Callable[..., Replay]) -> None:
    """Large values and child runs are in it; a divergence of a child counts."""

    more = 0

    async def child(ctx: Context, n: int) -> int:
        return len(await large(n + more))

    async def body(ctx: Context) -> Any:
        inner = workflow(name="inner")(child)
        return (await ctx.workflow(inner, inputs={"n": 300_000})).result

    done = flow(body).start()
    done.wait(10)
    ran.clear()
    path = save_history(done, tmp_path / "history.jsonl")
    report = loom_replay(path, flow(body))
    assert [c.workflow for c in report.children] == ["inner"] and report.children[0].calls == 1 and ran == []

    more = 1
    report = replay(path, flow(body), check=False)
    assert report.divergence is None and not report.ok and "inner" in str(report)


def test_a_run_that_had_not_ended(runtime: Runtime) -> None:
    """It replays as far as it came; what comes then is told and no divergence."""

    async def asks(ctx: Context) -> Any:
        n = await double(1)
        return await ctx.ui.input(f"{n}?", name="what")

    waits = flow(asks).start()
    assert [entry.type for entry in itertools.takewhile(lambda e: e.type != "prompt.opened", waits.follow())]
    ran.clear()
    assert replay(waits, flow(asks)).ok

    async def skips(ctx: Context) -> Any:
        return await double(await double(1))

    report = replay(waits, flow(skips))
    assert report.ok and "from there it goes on with step double(n=2)" in str(report) and ran == []


def test_in_an_async_test_it_is_the_same(run: Any) -> None:
    """The replay has a loop of its own."""

    async def test() -> None:
        assert replay(run, flow(first)).ok

    asyncio.run(test())


def test_what_cannot_be_replayed(run: Any, tmp_path: Path) -> None:
    """One sentence each: another workflow, inputs that do not fit, a file that is none."""
    with pytest.raises(ResumeError, match="cannot be replayed as 'other'"):
        replay(run, workflow(name="other")(first))

    async def needs(ctx: Context, name: str) -> Any:
        return await first(ctx)

    assert "its recorded inputs do not fit" in part(run, needs)
    (tmp_path / "h.jsonl").write_text("{}\n")
    with pytest.raises(LoomError, match="line 1 of the history"):
        replay(tmp_path / "h.jsonl", flow(first))
