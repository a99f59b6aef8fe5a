"""Waiting for something outside, with a deadline on the engine's clock."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from loom_kernel import events as ev
from loom_kernel.clock import VirtualClock
from loom_kernel.engine.calls import Call
from loom_kernel.errors import WorkflowExit

if TYPE_CHECKING:
    from loom_kernel.engine.execution import Execution

T = TypeVar("T")

LOOK_S = 60.0
"""A long wait looks at the clock this often: the machine may have been suspended."""


async def done(future: asyncio.Future[Any]) -> None:
    """Return when the future is done. Cancelling the caller leaves it alone, and what it failed with is not raised."""
    if future.done():
        return
    waiter: asyncio.Future[None] = future.get_loop().create_future()

    def wake(_: asyncio.Future[Any]) -> None:
        if not waiter.done():
            waiter.set_result(None)

    future.add_done_callback(wake)
    try:
        await waiter
    finally:
        future.remove_done_callback(wake)


async def until(x: Execution, future: asyncio.Future[T], deadline: float | None) -> T | None:
    """The future's result, or None when the deadline (seconds since the epoch) comes first."""
    if deadline is None:
        return await future
    # In the engine's context: a task made here would belong to the body, and be cancelled as one of its open tasks.
    sleeper = x.loop.create_task(_sleep_until(x, deadline), context=x.engine.context)
    try:
        both: set[asyncio.Future[Any]] = {future, sleeper}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        sleeper.cancel()
    return future.result() if future.done() else None


async def pause(x: Execution, seconds: float) -> None:
    """Wait on the engine's clock; cancelling ends it early."""
    sleeper = x.loop.create_task(x.engine.clock.sleep(seconds), context=x.engine.context)
    try:
        await done(sleeper)
    finally:
        sleeper.cancel()


async def _sleep_until(x: Execution, deadline: float) -> None:
    clock = x.engine.clock
    while (left := deadline - clock.time()) > 0:
        # A virtual clock is never suspended, and each wait of it takes a moment of real time.
        await clock.sleep(left if isinstance(clock, VirtualClock) else min(left, LOOK_S))


def note_cancelled(x: Execution, call: Call, error: BaseException) -> None:
    """A wait was given up. One that a stop interrupts stays as it is: the question stays open, the sleep goes on."""
    x.settled(call, "cancelled")
    ending = x.ending
    if not x.recording or (ending is not None and ending.kind == "paused"):
        return
    reason = "workflow-exit" if isinstance(error, WorkflowExit) else (x.cancelled.reason or "")
    x.recorder.ride(ev.NodeCancelled(reason=reason), call.node_id, f"{call.node_id}:cancelled:{x.lease.epoch}")
