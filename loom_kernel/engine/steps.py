"""Driving a step: answered from the journal, or run, tried again, recorded."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Raw

from loom_kernel import codec
from loom_kernel import events as ev
from loom_kernel.authoring.unknown import Finished, OnUnknown
from loom_kernel.engine import artifacts, caching, retries, unknown
from loom_kernel.engine.calls import Call
from loom_kernel.engine.executor import Done, Work
from loom_kernel.engine.failures import as_raised, tool_error
from loom_kernel.engine.mismatch import unknown_attempt
from loom_kernel.engine.output import LiveHandle
from loom_kernel.engine.replay import Hit, Live, Record
from loom_kernel.engine.waiting import pause
from loom_kernel.errors import NodeAborted, StepInterrupted, UnhashableValue, WorkflowExit
from loom_kernel.journal.abc import Append
from loom_kernel.policies import Retry

if TYPE_CHECKING:
    from loom_kernel.engine.execution import Execution

LOG_S = 0.25
"""How long printed lines wait for company."""

LOG_BYTES = 60_000
"""Of lines in one event."""


@dataclass(slots=True)
class Plan:
    """How a step is run, beside what it does.

    Attributes:
        code: hash of its code, for steps whose change is recorded.
        limit: name and number of how many calls run at once.
        rate: name of a rate limit.
        returns_failure: ``ctx.tool(failure_mode="return")``.
        restore: applied to a recorded result.
        cache: what an earlier run's result would be found under.
        waits: a model stage's turn: its start is durable before it begins, and it says itself when it works.
    """

    work: Work
    retry: Retry
    on_unknown: OnUnknown = "retry"
    code: str = ""
    limit: tuple[str, int] | None = None
    tool: bool = False
    returns_failure: bool = False
    restore: Any = None
    cache: caching.Wanted | None = None
    waits: bool = False
    rate: str | None = None


async def drive(x: Execution, call: Call, plan: Plan) -> Any:
    """The coroutine behind a call."""
    x.gate()
    if x.dry is not None:
        if plan.cache is not None and type(call.found) is not Hit and (hit := await _cached(x, call, plan, ())):
            x.dry.cached(call, hit)
            return hit.value
        kept = plan.work.store != "digest"
        return await answer(x, call, plan, await x.dry.step(x, call, plan.code, kept=kept))
    found = call.found
    record: Record | None = None
    gives_up: tuple[str, ...] = ()
    if type(found) is Hit:
        if plan.work.store != "digest" or found.record.status == "failed":
            return await answer(x, call, plan, found.record)
        # Only the hash was kept, so the value is made again.
    elif type(found) is Live:
        record, gives_up = found.record, found.gives_up
    else:
        await x.hold(call)
    if plan.cache is not None and (hit := await _cached(x, call, plan, gives_up)):
        return hit.value
    if len(x.live) >= x.max_open:
        await x.room()
    if plan.rate is not None:
        call.queued_s = await x.engine.capability("rates", "rate limits")().acquire(plan.rate)
    if plan.limit is None:
        return await _live(x, call, plan, record, gives_up)
    asked = x.engine.clock.monotonic()
    async with x.engine.limit(*plan.limit):
        call.queued_s = x.engine.clock.monotonic() - asked
        return await _live(x, call, plan, record, gives_up)


async def answer(x: Execution, call: Call, plan: Plan, record: Record) -> Any:
    """What the journal has."""
    await x.turns.take(record)
    if record.status == "failed":
        assert record.error is not None
        x.settled(call, "failed")
        if plan.returns_failure:
            error = await x.decode(record.outcome)
            return {"ok": False, "error": error, "attempts": record.attempts, "cached": True}
        raise as_raised(codec.decode_error(record.error, step=call.name, namespace=x.engine.namespace()), call.name)
    value = await _value(x, plan, record)
    x.settled(call, "completed")
    if plan.returns_failure:
        return {"ok": True, "value": value, "attempts": record.attempts, "cached": True}
    return value


async def _cached(x: Execution, call: Call, plan: Plan, gives_up: tuple[str, ...]) -> caching.Answer | None:
    """The result of an earlier run, recorded as this one's."""
    assert plan.cache is not None
    hit = await caching.look(x, call, plan.cache, plan.code, gives_up, lambda record: _value(x, plan, record))
    if hit is not None:
        _note_code(x, call.name, plan.code)
    return hit


async def _value(x: Execution, plan: Plan, record: Record) -> Any:
    """What the body gets of a recorded result."""
    value = await x.decode(record.result)
    if plan.work.store == "pickle":
        value = pickle.loads(value)
    if record.result_hash and b'"$loom"' in bytes(record.result):
        # A kind of table that does not come back bit by bit still counts as what it was.
        try:
            now = codec.content_hash(value)
            if now != record.result_hash:
                x.aliases[now] = record.result_hash
        except UnhashableValue:
            pass
    if plan.restore is not None:
        value = plan.restore(value)
    return value


async def _live(x: Execution, call: Call, plan: Plan, record: Record | None, gives_up: tuple[str, ...]) -> Any:
    interrupted = record is not None and record.status == "open"
    attempt = record.failures + 1 if record is not None and interrupted else 1
    if x.gone:
        await x.decide_gone(call)
    on_unknown = plan.on_unknown
    if interrupted and on_unknown != "retry" and not x.accept:
        if callable(on_unknown):
            found = await unknown.asked(x, call, plan, on_unknown, attempt)
            if isinstance(found, Finished):
                with x.at_work(call):
                    return await _found(x, call, plan, found.value, attempt)
            on_unknown = found
        if on_unknown == "ask":
            x.end(unknown_attempt(x, call, attempt))
            await asyncio.get_running_loop().create_future()  # until the end cancels it
    if x.ledger.limited:
        await x.ledger.look(call.name)
    with x.at_work(call):
        if gives_up:
            x.recorder.ride(ev.MismatchAccepted(recorded=list(gives_up), called=call.node_id))
        if plan.code:
            _note_code(x, call.name, plan.code)
        if interrupted and on_unknown == "fail":
            return await _failed(x, call, plan, StepInterrupted(call.name), attempt, 0.0, None)
        while True:
            outcome = await _attempt(x, call, plan, attempt)
            if not isinstance(outcome, retries.Wait):
                if x.ledger.limited:
                    await x.ledger.look(call.name)
                return outcome.value
            call.status = "retrying"
            try:
                await pause(x, outcome.delay_s)
            except asyncio.CancelledError as cancel:
                error = x.interruption(call, cancel)
                _note_cancelled(x, call, attempt, 0.0, error, None)
                raise error from None
            attempt += 1


class _Result(NamedTuple):
    """What the body gets."""

    value: Any


async def _attempt(x: Execution, call: Call, plan: Plan, attempt: int) -> _Result | retries.Wait:
    """One try: the result, or how long to wait for the next."""
    clock, work = x.engine.clock, plan.work
    started = ev.NodeStarted(
        name=call.name,
        kind=call.kind,
        attempt=attempt,
        parents=call.parents.recorded(call.node_id),  # type: ignore[arg-type]
        args=Raw(call.preview()),
        where=call.where,
        code=plan.code,
        queued_s=call.queued_s,
    )
    key = f"{call.node_id}:start:{x.lease.epoch}:{attempt}"
    if plan.on_unknown == "retry" and not plan.waits:
        x.recorder.ride(started, call.node_id, key)
    else:
        await x.recorder.commit([Append(started, call.node_id, key)])
    call.status = "running"
    handle = LiveHandle(
        attempt=attempt, run_id=x.run_id, node_id=call.node_id, loop=x.loop, on_output=x.on_output, now=clock.monotonic
    )
    task = asyncio.current_task()
    asked = task.cancelling() if task is not None else 0
    try:
        with clock.busy() if not plan.waits else contextlib.nullcontext():
            done = await x.engine.executor.run(work, handle)
        if task is not None and task.cancelling() > asked and x.interrupting(call):
            raise asyncio.CancelledError  # a step that caught its end and gave what it had: that is no result
        call.status = "ending"  # from here on the write of its result wins over an abort
    except (asyncio.CancelledError, GeneratorExit, WorkflowExit) as raised:
        error = _interrupted(x, call, attempt, handle, raised)
        if error is raised:
            raise
        raise error from None
    except BaseException as error:  # a step may raise SystemExit: its failure, not the end of all runs
        if task is not None and task.cancelling() > asked and x.interrupting(call):
            raise _interrupted(x, call, attempt, handle, asyncio.CancelledError()) from error
        took = handle.took
        call.status = "ending"
        verdict = retries.decide(plan.retry, attempt, error, f"{x.run_id}:{call.node_id}")
        if isinstance(verdict, retries.Wait):
            _ride_log(x, call, handle)
            retrying = ev.NodeRetrying(
                attempt=attempt, error=codec.encode_error(error), delay_s=verdict.delay_s, duration_s=took
            )
            # Awaited, so that a crash repeats the try that it interrupts and none before it.
            await x.recorder.commit([Append(retrying, call.node_id, f"{call.node_id}:retry:{x.lease.epoch}:{attempt}")])
            return verdict
        return _Result(await _failed(x, call, plan, error, attempt, took, handle))
    return _Result(await _completed(x, call, plan, done, attempt, handle.took, handle))


def _interrupted(x: Execution, call: Call, attempt: int, handle: LiveHandle, raised: BaseException) -> BaseException:
    """Note that the attempt was cancelled; what the body gets."""
    handle.cancelled.set(x.cancelled.reason or "cancelled")
    error = x.interruption(call, raised)
    _note_cancelled(x, call, attempt, handle.took, error, handle)
    return error


async def _found(x: Execution, call: Call, plan: Plan, value: Any, attempt: int) -> Any:
    """The interrupted attempt had come to its end, and this is its result."""
    work = dataclasses.replace(plan.work, fn=lambda *_, **__: value, is_async=False, executor="thread", identity=None)
    handle = LiveHandle(
        attempt=attempt,
        run_id=x.run_id,
        node_id=call.node_id,
        loop=x.loop,
        on_output=x.on_output,
        now=x.engine.clock.monotonic,
    )
    return await _completed(x, call, plan, await x.engine.executor.run(work, handle), attempt, 0.0, handle)


async def _completed(
    x: Execution, call: Call, plan: Plan, done: Done, attempt: int, took: float, handle: LiveHandle
) -> Any:
    await x.put_blobs(done.encoded)
    if not handle.silent:
        _ride_log(x, call, handle)
    completed = ev.NodeCompleted(
        result=Raw(done.encoded.json), result_hash=done.result_hash, attempts=attempt, duration_s=took
    )
    kept: list[Append] = []
    if handle.has_shown:
        kept += await artifacts.shown(x, call.node_id, call.name, handle)
    if done.artifacts:
        kept += artifacts.appends(
            x, call.node_id, call.name, "result", done.artifacts, f"{call.node_id}:artifact{x.again}"
        )
    await x.recorder.commit([*kept, Append(completed, call.node_id, f"{call.node_id}:done{x.again}")])
    if plan.cache is not None:
        await caching.keep(x, call, plan.cache)
    x.settled(call, "completed")
    if plan.returns_failure:
        return {"ok": True, "value": done.value, "attempts": attempt, "cached": False}
    return done.value


async def _failed(
    x: Execution, call: Call, plan: Plan, error: BaseException, attempt: int, took: float, handle: LiveHandle | None
) -> Any:
    outcome: dict[str, Any] | None = None
    if plan.returns_failure:
        outcome = tool_error(error)
    if handle is not None and not handle.silent:
        _ride_log(x, call, handle)
    failed = ev.NodeFailed(
        error=codec.encode_error(error),
        attempts=attempt,
        duration_s=took,
        retained=outcome is not None,
        outcome=Raw(codec.encode(outcome).json) if outcome is not None else ev.NULL,
    )
    kept: list[Append] = []
    if handle is not None and handle.has_shown:
        kept = await artifacts.shown(x, call.node_id, call.name, handle)
    await x.recorder.commit([*kept, Append(failed, call.node_id, f"{call.node_id}:failed:{x.lease.epoch}")])
    x.settled(call, "failed")
    if outcome is not None:
        return {"ok": False, "error": outcome, "attempts": attempt, "cached": False}
    raised = as_raised(error, call.name, x.engine.namespace())
    x.raised(raised, call.node_id, passes=not plan.tool)
    if raised is error:
        raise error
    raise raised from error


def _note_cancelled(
    x: Execution, call: Call, attempt: int, took: float, error: BaseException, handle: LiveHandle | None
) -> None:
    x.settled(call, "cancelled")
    if not x.recording:
        return
    if handle is not None:
        _ride_log(x, call, handle)
    reason = "workflow-exit" if isinstance(error, WorkflowExit) else (x.cancelled.reason or "")
    if isinstance(error, NodeAborted):
        reason = f"aborted by {error.by}" if error.by else "aborted"
    x.recorder.ride(
        ev.NodeCancelled(reason=reason, attempts=attempt, duration_s=took),
        call.node_id,
        f"{call.node_id}:cancelled:{x.lease.epoch}",
    )


def _note_code(x: Execution, name: str, code: str) -> None:
    """Record when a step's code is another than when it last ran in this run."""
    codes = x.history.codes
    before = codes.get(name)
    codes[name] = code
    if before and before != code:
        x.recorder.ride(ev.StepChanged(name=name, old=before, new=code))


def _ride_log(x: Execution, call: Call, handle: LiveHandle) -> None:
    lines, _ = handle.take(final=True)
    for usage in handle.take_usage():
        x.spent(usage, call.node_id)
    ride_lines(x, call.node_id, handle.attempt, lines)


def ride_lines(x: Execution, node_id: str, attempt: int, lines: list[str]) -> None:
    """Write lines of a log, in events that are not too large."""
    chunk: list[str] = []
    size = 0
    for line in lines:
        if chunk and size + len(line) > LOG_BYTES:
            x.recorder.ride(ev.NodeLogged(attempt=attempt, lines=chunk), node_id)
            chunk, size = [], 0
        chunk.append(line)
        size += len(line)
    if chunk:
        x.recorder.ride(ev.NodeLogged(attempt=attempt, lines=chunk), node_id)
