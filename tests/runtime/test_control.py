"""``r.pause``, ``quit``, ``kill`` and ``abort``, and what they must not do when they come at the wrong moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import step
from loom_kernel.authoring.workflow import workflow
from loom_kernel.errors import LoomError, RunStopped
from loom_kernel.runtime import Run, Runtime

hangs: list[int] = []


@step
async def hang(n: int) -> int:
    hangs.append(n)
    if len(hangs) == 1:
        await asyncio.sleep(60)
    return n


@step
def quick() -> int:
    return 1


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.01)


def started() -> Run[int]:
    hangs.clear()

    @workflow
    async def controlled(ctx: Context) -> int:
        return await quick() + await hang(1)

    run: Run[int] = controlled.start()
    until(lambda: hangs)
    until(lambda: "hang" in [node.name for node in run.view.nodes.values() if node.status == "running"])
    return run


def types(run: Run[Any]) -> list[str]:
    return [entry.type for entry in run.events()]


def test_an_aborted_step_ends_the_run_resumably_and_is_done_again(runtime: Runtime) -> None:
    """r.abort("hang") ends that call; what is not at work is refused with a sentence; resume does it again."""
    run = started()
    with pytest.raises(LoomError, match="is completed; only what is at work"):
        run.abort("quick")
    with pytest.raises(KeyError):
        run.abort("nothing")
    run.abort("hang", by="ann")
    assert run.settle(10).status == "failed" and "was aborted by ann" in str(run.settle(10).error)
    assert run["hang"].status == "cancelled"
    assert run.resume().wait(10).result == 2 and hangs == [1, 1]


@pytest.mark.parametrize("verb", ["pause", "quit", "stop"])
def test_pause_and_quit_stop_a_run_that_can_be_resumed(runtime: Runtime, verb: str) -> None:
    """Both are the durable stop: finished work is kept, what was at work runs again."""
    run = started()
    getattr(run, verb)()
    assert run.settle(10).status == "paused"
    assert run.resume().wait(10).result == 2
    assert types(run).count("run.paused") == types(run).count("run.ended") == 1


def test_a_killed_run_is_killed_whether_it_works_or_rests(runtime: Runtime) -> None:
    """The status is killed in both cases, and waiting for it raises RunStopped."""
    for rests in (False, True):
        run = started()
        if rests:
            run.stop()
            run.settle(10)
        run.kill(reason="enough")
        until(lambda run=run: run.status == "killed")  # type: ignore[misc]
        assert run.reason == "enough"
        with pytest.raises(RunStopped):
            run.wait(10)


@pytest.mark.parametrize("what", ["stop", "cancel", "kill"])
def test_who_comes_too_late_ends_nothing_twice(runtime: Runtime, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """A run that seemed to be interrupted, and has completed meanwhile, stays completed."""

    @workflow
    async def short(ctx: Context) -> int:
        return await quick()

    run = short.start()
    stale: list[Any] = []
    find = runtime._find

    async def before(run_id: str) -> Any:
        summary = await find(run_id)
        stale.append(summary)
        return msgspec.structs.replace(summary, status="running", interrupted=True)

    assert run.wait(10).result == 1
    monkeypatch.setattr(runtime, "_find", before)
    getattr(run, what)()
    assert stale and run.status == "completed"
    assert types(run).count("run.ended") == 1 and "run.paused" not in types(run)


def test_a_stop_never_becomes_a_cancel(make_runtime: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker takes an interrupted run in the moment in which it is stopped: that worker is asked to stop, no more."""
    make_runtime()
    run = started()

    async def interrupted(run_id: str) -> Any:
        return msgspec.structs.replace(await find(run_id), interrupted=True)

    other = make_runtime()
    there = other.get_run(run.id)
    find = other._find
    monkeypatch.setattr(other, "_find", interrupted)
    there.stop()
    assert run.settle(10).status == "paused"
    assert "run.cancel_requested" not in types(run)
