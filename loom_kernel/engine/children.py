"""Child workflows: a run of its own behind one node of its parent."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from loom_kernel import codec
from loom_kernel import events as ev
from loom_kernel.authoring.code import family_version
from loom_kernel.authoring.result import RunResult
from loom_kernel.authoring.workflow import WorkflowDefinition
from loom_kernel.engine.calls import Call
from loom_kernel.engine.endings import Ending
from loom_kernel.engine.keys import child_run_id
from loom_kernel.engine.replay import Hit, Live, Record
from loom_kernel.engine.waiting import done
from loom_kernel.errors import (
    ChildWorkflowError,
    JournalError,
    ResumeError,
    StaleLeaseError,
    WorkflowBudgetExceededError,
    WorkflowExit,
)
from loom_kernel.ids import RunId
from loom_kernel.journal.abc import Append
from loom_kernel.policies import Budget

if TYPE_CHECKING:
    from loom_kernel.engine.execution import Execution

MANY = 1_000
"""Runs behind one node."""


async def drive(
    x: Execution,
    call: Call,
    definition: WorkflowDefinition[..., Any],
    inputs: dict[str, Any],
    budget: Budget | None = None,
) -> RunResult[Any]:
    """The coroutine behind ``ctx.workflow``."""
    x.gate()
    if x.dry is not None:
        return await _recorded(x, call, definition, await x.dry.child(x, call, definition))
    found = call.found
    if isinstance(found, Hit):
        return await _recorded(x, call, definition, found.record)
    gives_up: tuple[str, ...] = ()
    if isinstance(found, Live):
        gives_up = found.gives_up
    else:
        await x.hold(call)
    if x.gone:
        await x.decide_gone(call)
    if x.ledger.limited:
        await x.ledger.look(call.name)
    with x.at_work(call):
        if gives_up:
            x.recorder.ride(ev.MismatchAccepted(recorded=list(gives_up), called=call.node_id))
        if x.depth >= x.max_depth:
            error = ChildWorkflowError(
                definition.name,
                "was not started",
                f"workflows nest at most {x.max_depth} deep (maxDepth exceeded); the setting max_depth allows more",
            )
            return await _failed(x, call, error, None, 0.0)
        result = await _run(x, call, definition, inputs, budget)
    if x.ledger.limited:
        await x.ledger.look(call.name)
    return result


async def _run(
    x: Execution,
    call: Call,
    definition: WorkflowDefinition[..., Any],
    inputs: dict[str, Any],
    budget: Budget | None,
) -> RunResult[Any]:
    run_id = await _run_id(x, call)
    started = ev.NodeStarted(
        name=call.name,
        kind="workflow",
        parents=call.parents.recorded(call.node_id),  # type: ignore[arg-type]
        args=Raw(call.preview()),
        where=call.where,
        code=family_version(definition.fn),
        child_run_id=run_id,
    )
    # Before any of the child's code: whoever reads the journal can always go from the one to the other.
    await x.recorder.commit([Append(started, call.node_id, f"{call.node_id}:start:{x.lease.epoch}:1")])
    call.status = "running"
    began = x.engine.clock.monotonic()
    child = _Child()
    running = x.loop.create_task(
        x.engine.child(x, call.node_id, run_id, definition, inputs, budget, child.begun), context=x.engine.context
    )
    try:
        await done(running)
        result = running.result()
    except asyncio.CancelledError as cancel:
        error = x.interruption(call, cancel)
        child.end(x, error)
        await _uncancelled(running)
        x.settled(call, "cancelled")
        ending = x.ending
        if x.recording and not (ending is not None and ending.kind in ("paused", "blocked")):
            reason = "workflow-exit" if isinstance(error, WorkflowExit) else (x.cancelled.reason or "")
            took = x.engine.clock.monotonic() - began
            tokens, cost = x.ledger.child(call.node_id)
            x.recorder.ride(
                ev.NodeCancelled(reason=reason, duration_s=took, tokens=tokens, cost_usd=cost),
                call.node_id,
                f"{call.node_id}:cancelled:{x.lease.epoch}",
            )
        raise error from None
    except (StaleLeaseError, ResumeError) as taken:
        error = ChildWorkflowError(definition.name, "is executed elsewhere", str(taken))
        return await _failed(x, call, error, taken, x.engine.clock.monotonic() - began)
    except JournalError as trouble:
        x.lost(trouble)
        raise asyncio.CancelledError("the run has ended") from trouble
    took = x.engine.clock.monotonic() - began
    if result.status in ("paused", "interrupted"):
        rest = child.execution.ending if child.execution is not None else None
        detail = dict(rest.detail) if rest is not None else {}
        message = rest.message if rest is not None else ""
        # The whole family rests; resuming this run resumes the child.
        x.end(
            Ending(
                kind="paused" if result.status == "paused" else "closed",
                reason=result.reason,
                message=f"child workflow {definition.name!r}: {message}" if message else "",
                detail={**detail, "child": run_id, "hint": f"%loom resume {x.run_id} --accept"} if detail else {},
            )
        )
        await x.loop.create_future()  # until the end cancels it
    if result.status == "blocked" and isinstance(result.error, WorkflowBudgetExceededError):
        # Its own budget is spent, not ours: that is an outcome like an exit, and we go on.
        result = replace(result, exited=True, exit_reason="budget", reason=None, error=None)
    if not result.exited and result.status in ("failed", "killed", "cancelled", "blocked"):
        message = str(result.error) if result.error is not None else (result.reason or "")
        error = ChildWorkflowError(definition.name, result.status, message)
        return await _failed(x, call, error, result.error, took)
    kept = {
        "run_id": run_id,
        "status": result.status,
        "result": result.result,
        "exited": result.exited,
        "exit_reason": result.exit_reason,
    }
    encoded = codec.encode(kept)
    await x.put_blobs(encoded)
    tokens, cost = x.ledger.child(call.node_id)
    completed = ev.NodeCompleted(result=Raw(encoded.json), duration_s=took, tokens=tokens, cost_usd=cost)
    await x.recorder.commit([Append(completed, call.node_id, f"{call.node_id}:done{x.again}")])
    x.settled(call, "completed")
    return result


async def _recorded(
    x: Execution, call: Call, definition: WorkflowDefinition[..., Any], record: Record
) -> RunResult[Any]:
    await x.turns.take(record)
    if record.status == "failed":
        assert record.error is not None
        x.settled(call, "failed")
        raise codec.decode_error(record.error, step=call.name, namespace=x.engine.namespace())
    kept = await x.decode(record.result)
    x.settled(call, "completed")
    value = kept["result"] if kept["exited"] else definition.restore_output(kept["result"])
    return RunResult(
        run_id=kept["run_id"],
        status=kept["status"],
        result=value,
        exited=kept["exited"],
        exit_reason=kept["exit_reason"],
        workflow=definition.name,
    )


async def _run_id(x: Execution, call: Call) -> RunId:
    """The child's id. One that was cancelled cannot go on, so that the next one takes its place; nor does one that has
    ended where its node runs again."""
    nth = 0
    over = ("cancelled", "killed", *(ev.TERMINAL if call.node_id in x.history.stale else ()))
    record = call.found.record if isinstance(call.found, Live) else None
    if record is not None and record.child_run_id:
        while child_run_id(x.run_id, call.node_id, nth) != record.child_run_id and nth < MANY:
            nth += 1
    while True:
        run_id = RunId(child_run_id(x.run_id, call.node_id, nth))
        if x.history.executions == 0:
            return run_id
        summary = await x.guarded(x.engine.journal.get_run(run_id))
        if summary is None or summary.status not in over:
            return run_id
        nth += 1


class _Child:
    """A child's run, as its parent sees it: perhaps it still is being opened."""

    __slots__ = ("_ended_by", "execution")

    def __init__(self) -> None:
        self.execution: Execution | None = None
        self._ended_by: tuple[Execution, BaseException] | None = None

    def begun(self, execution: Execution) -> None:
        """It is executed now."""
        self.execution = execution
        if self._ended_by is not None:
            execution.end(_ending(*self._ended_by))

    def end(self, x: Execution, error: BaseException) -> None:
        """The parent goes: bring it to rest in the same way, as soon as it is open."""
        self._ended_by = x, error
        if self.execution is not None:
            self.execution.end(_ending(x, error))


def _ending(x: Execution, error: BaseException) -> Ending:
    """How a child ends whose parent goes."""
    ending = x.ending
    if ending is not None and ending.silent:
        return Ending(kind="closed", reason=ending.reason or "closed")
    if ending is not None and ending.kind in ("paused", "blocked"):
        return Ending(kind="paused", reason="stopped", message="stopped with the run that started it")
    reason = (
        "workflow-exit" if isinstance(error, WorkflowExit) else (x.cancelled.reason or "its parent went on without it")
    )
    return Ending(kind="cancelled", reason=reason)


async def _uncancelled(running: asyncio.Task[Any]) -> None:
    """Wait although this task is being cancelled. What comes of it is of no interest any more."""
    while not running.done():
        try:
            await done(running)
        except asyncio.CancelledError:
            continue
    if not running.cancelled():
        running.exception()  # looked at, so that nobody complains that it was never retrieved


async def _failed(
    x: Execution, call: Call, error: ChildWorkflowError, cause: BaseException | None, took: float
) -> RunResult[Any]:
    error.__cause__ = cause
    tokens, cost_usd = x.ledger.child(call.node_id)
    failed = ev.NodeFailed(error=codec.encode_error(error), duration_s=took, tokens=tokens, cost_usd=cost_usd)
    await x.recorder.commit([Append(failed, call.node_id, f"{call.node_id}:failed:{x.lease.epoch}")])
    x.settled(call, "failed")
    x.raised(error, call.node_id)
    raise error
