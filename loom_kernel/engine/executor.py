"""One attempt of a step: where it runs, how long it may take, and what its result looks like to the journal."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from loom_kernel import codec
from loom_kernel.authoring.context import in_step
from loom_kernel.codec import Encoded
from loom_kernel.engine import artifacts
from loom_kernel.engine.keys import Identity
from loom_kernel.engine.output import LiveHandle
from loom_kernel.engine.pool import Job, ThreadPool
from loom_kernel.engine.process import ProcessCall
from loom_kernel.errors import (
    DefinitionError,
    MutatedArgumentError,
    StepTimeout,
    UnhashableValue,
    ValueNotStorableError,
)

_HEAVY = frozenset({"pandas", "polars", "pyarrow", "numpy", "matplotlib", "PIL", "plotly", "altair", "seaborn"})
"""Packages whose values take long to encode, so that a thread does it."""


@dataclass(slots=True)
class Work:
    """What an attempt does.

    Attributes:
        finish: applied to the function's result before it is kept, such as a schema.
        allow_nan: whether the result may hold NaN.
        store: ``"full"``, only the result's ``"digest"``, or a ``"pickle"`` of what nothing else can keep.
    """

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    is_async: bool
    identity: Identity | None = None
    timeout_s: float | None = None
    executor: str = "thread"
    finish: Callable[[Any], Any] | None = None
    allow_nan: bool = True
    store: str = "full"


class Done(NamedTuple):
    """What an attempt came to."""

    value: Any
    encoded: Encoded
    result_hash: str
    artifacts: tuple[artifacts.Found, ...] = ()


def check_executor(name: str, executor: str, fn: Callable[..., Any]) -> None:
    """Refuse a place to run that is not to be had, before anything runs.

    Raises:
        DefinitionError: with what to do.
    """
    if executor == "process":
        from loom_kernel.engine.process import target_of

        target_of(name, fn)
    elif executor == "dask":
        raise DefinitionError(f'step {name!r}: executor="dask" is not available here; use "thread" or "process"')


class Executor:
    """Runs attempts; one for all runs of an engine."""

    def __init__(self) -> None:
        self._pool = ThreadPool()
        self._overdue: dict[tuple[str, str], asyncio.Future[None]] = {}

    def close(self) -> None:
        """Start nothing more. Threads at work are left alone: they cannot be stopped."""
        self._pool.close()

    def overdue(self, run_id: str, node_id: str) -> asyncio.Future[None] | None:
        """Set while an attempt of that call, which nobody waits for any more, still runs in a thread."""
        return self._overdue.get((run_id, node_id))

    async def run(self, work: Work, handle: LiveHandle) -> Done:
        """Run one attempt.

        Raises:
            StepTimeout: it took longer than its ``timeout_s``.
            MutatedArgumentError: it changed an argument.
            ValueNotStorableError: its result cannot be kept.
            BaseException: what the function raised.
        """
        before = self._overdue.get((handle.run_id or "", handle.node_id or ""))
        if before is not None:
            await asyncio.shield(before)
        if work.timeout_s is None:
            return await self._attempt(work, handle, handle.begin)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as limit:

                def count() -> None:
                    with contextlib.suppress(RuntimeError):  # it is over already
                        limit.reschedule(loop.time() + (work.timeout_s or 0.0))

                def begun() -> None:
                    # The wait for a free thread does not count. Comes from that thread, or from the loop.
                    handle.begin()
                    with contextlib.suppress(RuntimeError):  # the loop is closed
                        loop.call_soon_threadsafe(count)

                done = await self._attempt(work, handle, begun)
            if limit.expired():
                raise TimeoutError  # it caught its end, and gave what it had
            return done
        except TimeoutError:
            if not limit.expired():
                raise  # the function's own
            handle.cancelled.set("timeout")
            raise StepTimeout(work.name, work.timeout_s) from None

    async def _attempt(self, work: Work, handle: LiveHandle, begun: Callable[[], None]) -> Done:
        if work.executor == "process":
            call = ProcessCall(work.name, work.fn, work.args, work.kwargs)

            def in_process() -> Done:
                begun()
                return _finished(work, call.run(handle))

            done: Done = await self._in_thread(in_process, handle, stop=call.kill)
            return done
        if not work.is_async:

            def in_thread() -> Any:
                begun()
                return _called(work)

            value = await self._in_thread(in_thread, handle)
            if isinstance(value, Done):
                return value
            # A plain function that handed back something to await: `ctx.step("x", lambda: fetch(url))`.
        else:
            begun()
            value = work.fn(*work.args, **work.kwargs)
        token = in_step.set(handle)
        try:
            value = await value
        finally:
            in_step.reset(token)
        if type(value).__module__.partition(".")[0] in _HEAVY:
            kept: Done = await self._in_thread(lambda: _finished(work, value), handle)
            return kept
        return _finished(work, value)

    async def _in_thread(
        self, fn: Callable[[], Any], handle: LiveHandle, stop: Callable[[], None] | None = None
    ) -> Any:
        context = contextvars.copy_context()
        context.run(in_step.set, handle)
        job = self._pool.submit(lambda: context.run(fn))
        try:
            value, error = await job.future
        except BaseException:
            handle.cancelled.set("cancelled")
            if stop is not None:
                stop()
            self._leave(job, handle)
            raise
        if error is not None:
            try:
                raise error
            finally:
                del error  # a traceback that holds its own exception is freed late
        return value

    def _leave(self, job: Job, handle: LiveHandle) -> None:
        ended = self._pool.abandon(job)
        if ended is None:
            return
        place = (handle.run_id or "", handle.node_id or "")
        self._overdue[place] = ended

        def forget(done: asyncio.Future[None]) -> None:
            if self._overdue.get(place) is done:
                del self._overdue[place]

        ended.add_done_callback(forget)


def _called(work: Work) -> Any:
    value = work.fn(*work.args, **work.kwargs)
    return value if inspect.isawaitable(value) else _finished(work, value)


def _finished(work: Work, value: Any) -> Done:
    """Check what the function did and returned, and encode it."""
    if work.identity is not None and work.identity.mutable:
        changed = work.identity.changed()
        if changed is not None:
            raise MutatedArgumentError(work.name, changed)
    if work.finish is not None:
        value = work.finish(value)
    if work.store == "digest":
        hash_ = _hash(value, None)
        return Done(value, codec.encode(codec.digest(hash_)), hash_)
    if work.store == "pickle":
        try:
            data = pickle.dumps(value)
        except Exception as error:
            hint = f"It cannot be pickled either: {error}"
            raise ValueNotStorableError("result", type(value).__name__, hint) from error
        return Done(value, codec.encode(data), codec.content_hash(data))
    encoded = codec.encode(value, allow_nan=work.allow_nan)
    if encoded.stands_in:
        # The body gets what a replay would give it: a picture in place of the figure.
        value = codec.decode_now(encoded.json, dict(encoded.blobs).__getitem__)
    return Done(value, encoded, _hash(value, encoded), artifacts.in_result(value, encoded))


def _hash(value: Any, encoded: Encoded | None) -> str:
    try:
        return codec.content_hash(value, path="result")
    except UnhashableValue:
        return codec.content_hash(encoded.json.decode() if encoded is not None else repr(value))
