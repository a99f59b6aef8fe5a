"""Durable sleep: the moment to wake is recorded first, so that a restart waits for the rest, or not at all."""

from __future__ import annotations

import asyncio
import math
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from loom_kernel import events as ev
from loom_kernel.engine.calls import Call
from loom_kernel.engine.replay import Hit, Live
from loom_kernel.engine.waiting import note_cancelled, until
from loom_kernel.errors import DefinitionError
from loom_kernel.journal.abc import Append

if TYPE_CHECKING:
    from loom_kernel.engine.execution import Execution


def seconds_of(label: str, duration: float | timedelta | datetime, now: float) -> float:
    """When to wake, in seconds since the epoch. A naive datetime is local time.

    Raises:
        DefinitionError: neither a number of seconds nor a moment.
    """
    if isinstance(duration, datetime):
        return duration.timestamp()
    if isinstance(duration, timedelta):
        return now + duration.total_seconds()
    if isinstance(duration, bool) or not isinstance(duration, (int, float)) or not math.isfinite(duration):
        raise DefinitionError(f"ctx.sleep({label!r}): {duration!r} is neither seconds, a timedelta nor a datetime")
    return now + duration


async def drive(x: Execution, call: Call, duration: float | timedelta | datetime, correlation_id: str | None) -> None:
    """The coroutine behind ``ctx.sleep``."""
    x.gate()
    found = call.found
    if isinstance(found, Hit):
        await x.turns.take(found.record)
        x.settled(call, "completed")
        return
    if x.dry is not None:
        await x.dry.sleep(x, call, found.record if isinstance(found, Live) else None)
        return
    record = found.record if isinstance(found, Live) else None
    with x.at_work(call, waits=True):
        call.status = "waiting"
        clock = x.engine.clock
        if record is not None and record.wake_at is not None:
            wake_at, woken = record.wake_at, record.woken  # it goes on; if it is late by now, it fires once
        else:
            wake_at, woken = seconds_of(call.name, duration, clock.time()), False
        x.recorder.ride(
            ev.NodeStarted(
                name=call.name,
                kind="sleep",
                parents=call.parents.recorded(call.node_id),  # type: ignore[arg-type]
                where=call.where,
                wake_at=wake_at,
                correlation_id=correlation_id,
            ),
            call.node_id,
            f"{call.node_id}:start:{x.lease.epoch}:1",
        )
        if not woken:
            waker: asyncio.Future[None] = x.loop.create_future()
            x.sleeps[call.node_id] = (correlation_id, waker)
            try:
                await until(x, waker, wake_at)
            except asyncio.CancelledError as cancel:
                error = x.interruption(call, cancel)
                note_cancelled(x, call, error)
                raise error from None
            finally:
                del x.sleeps[call.node_id]
        await x.recorder.commit([Append(ev.NodeCompleted(), call.node_id, f"{call.node_id}:done")])
        x.settled(call, "completed")
