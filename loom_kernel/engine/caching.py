"""A step that is answered by an earlier run: looked up before it would run, kept when it has run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Raw

from loom_kernel import codec
from loom_kernel import events as ev
from loom_kernel.authoring.step import StepCall
from loom_kernel.engine import artifacts
from loom_kernel.engine.calls import Call
from loom_kernel.engine.keys import Identity, identify, identify_content
from loom_kernel.engine.replay import Record
from loom_kernel.engine.result_cache import Found
from loom_kernel.journal.abc import Append

if TYPE_CHECKING:
    from loom_kernel.engine.execution import Execution


class Wanted(NamedTuple):
    """What a call may be answered with: the key of its result, and how old that may be in seconds."""

    key: str
    max_age_s: float | None


class Answer(NamedTuple):
    """What the body gets, and whose result it is."""

    value: Any
    run_id: str
    at: float


def wanted(x: Execution, call: StepCall[Any], identity: Identity, code: str) -> Wanted:
    """The same step, the same code and the same arguments by content, or what ``cache=`` makes of them.

    Raises:
        UnhashableArgumentError: what the function gave has no content.
    """
    definition = call.definition
    assert definition.caching is not None
    text = identity.text
    if definition.caching.key is not None:
        value = definition.caching.key(*call.args, **call.kwargs)
        text = "key:" + identify(definition.name, {"cache": value}, aliases=x.aliases).text
    key = identify_content(definition.name, code, definition.store, text)
    return Wanted(key, definition.caching.max_age_s)


async def look(
    x: Execution,
    call: Call,
    asked: Wanted,
    code: str,
    gives_up: tuple[str, ...],
    value_of: Callable[[Record], Awaitable[Any]],
) -> Answer | None:
    """Answer the call with an earlier run's result and record that; None where there is none. Nothing runs.

    Args:
        code: hash of the step's code.
        gives_up: records that a person let go for this call.
        value_of: what the body gets of a record.
    """
    now = x.engine.clock.time()
    with x.at_work(call), x.engine.clock.busy():
        try:
            since = None if asked.max_age_s is None else now - asked.max_age_s
            found = await x.guarded(x.engine.results.find(asked.key, since))
            if found is None:
                return None
            record = Record(call.node_id, call.kind, call.name)
            record.result, record.result_hash = found.event.result, found.event.result_hash
            try:
                value = await value_of(record)
            except Exception:  # a part of it is gone, or its class is: it is made again
                return None
            await x.recorder.commit(_appends(x, call, code, gives_up, found, value))
        except asyncio.CancelledError as cancel:
            error = x.interruption(call, cancel)
            if error is cancel:
                raise
            raise error from None
    x.settled(call, "completed")
    return Answer(value, found.run_id, found.at)


def _appends(x: Execution, call: Call, code: str, gives_up: tuple[str, ...], found: Found, value: Any) -> list[Append]:
    node_id, result = call.node_id, found.event.result
    started = ev.NodeStarted(
        name=call.name,
        kind=call.kind,
        parents=call.parents.recorded(node_id),  # type: ignore[arg-type]
        args=Raw(call.preview()),
        where=call.where,
        code=code,
    )
    completed = ev.NodeCompleted(
        result=result, result_hash=found.event.result_hash, cached_from=found.run_id, cached_at=found.at
    )
    appends = [Append(started, node_id, f"{node_id}:start:{x.lease.epoch}:1")]
    if gives_up:
        appends.insert(0, Append(ev.MismatchAccepted(recorded=list(gives_up), called=node_id), None, None))
    if b'"$loom"' in bytes(result):
        made = _made(value)
        appends += artifacts.appends(x, node_id, call.name, "result", made, f"{node_id}:artifact{x.again}")
    return [*appends, Append(completed, node_id, f"{node_id}:done{x.again}")]


def _made(value: Any) -> tuple[artifacts.Found, ...]:
    try:
        return artifacts.in_result(value, codec.encode(value))
    except Exception:  # a pickled value has no form of its own
        return ()


async def keep(x: Execution, call: Call, asked: Wanted) -> None:
    """The call has run and its result is recorded: let later runs find it."""
    kept = ev.KeptResult(
        key=asked.key, run_id=x.run_id, recorded=f"{call.node_id}:done{x.again}", at=x.engine.clock.time()
    )
    await x.guarded(x.engine.results.keep(kept))
