"""Callbacks of ``run()``: who starts a run may be told of its beginning, its nodes and its end.

They hear what the journal holds, in its order. Nothing waits between events: what came is told, and then nobody sits here.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from loom_kernel import events as ev
from loom_kernel.errors import DefinitionError
from loom_kernel.views.node import ACTIVE, NodeView
from loom_kernel.views.run import RunView

if TYPE_CHECKING:
    from loom_kernel.journal.abc import JournalEntry
    from loom_kernel.runtime.run import Run

OnRunStart = Callable[[RunView], Awaitable[None] | None]
OnStage = Callable[[str, NodeView], Awaitable[None] | None]
OnRunEnd = Callable[[str, str, Any, str | None, str | None], Awaitable[None] | None]

_log = logging.getLogger("loom_kernel")
_STARTS = (ev.NodeStarted.type, ev.PromptOpened.type)
_ENDS = (ev.NodeCompleted.type, ev.NodeFailed.type, ev.NodeCancelled.type)


@dataclass(frozen=True, kw_only=True)
class Callbacks:
    """See ``loom_kernel.run``. Each may be a function or a coroutine function; what it raises is logged and has no effect."""

    on_run_start: OnRunStart | None = None
    on_stage_start: OnStage | None = None
    on_stage_end: OnStage | None = None
    on_run_end: OnRunEnd | None = None

    def __post_init__(self) -> None:
        for name, fn in vars(self).items():
            if fn is not None and not callable(fn):
                raise DefinitionError(f"run(): {name} is a {type(fn).__name__}; a function is needed")

    @property
    def any(self) -> bool:
        """Whether there is one at all."""
        return any(fn is not None for fn in vars(self).values())


def tell(run: Run[Any], callbacks: Callbacks) -> None:
    """From any thread: tell the callbacks what the run's journal holds, and what comes until the run has ended."""
    run._runtime.loop.loop.call_soon_threadsafe(_Telling(run, callbacks).begin)


class _Telling:
    """One run's callbacks, on the loop thread; a task only while there is something to tell."""

    def __init__(self, run: Run[Any], callbacks: Callbacks) -> None:
        self._run, self._callbacks = run, callbacks
        self._view = RunView(run.id)
        self._came: deque[JournalEntry] = deque()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._run._add_listener(self._hear)
        self._task = asyncio.get_running_loop().create_task(self._catch_up())

    def _hear(self, entry: JournalEntry) -> None:
        self._came.append(entry)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._drain())

    async def _catch_up(self) -> None:
        try:
            entries = [e async for e in self._run._runtime.journal.read(self._run._id, 1)]
        except BaseException:
            self._task = None
            self._run._remove_listener(self._hear)
            raise
        self._came.extendleft(reversed(entries))  # what was heard meanwhile and read too is told once
        await self._drain()

    async def _drain(self) -> None:
        try:
            while self._came:
                await self._take(self._came.popleft())
        finally:
            self._task = None

    async def _take(self, entry: JournalEntry) -> None:
        view, calls = self._view, self._callbacks
        if entry.seq <= view.revision:
            return
        ends = isinstance(entry.event, ev.RunEnded)
        before = {n.node_id for n in view.nodes.values() if n.status in ACTIVE} if ends else set()
        node = view.nodes.get(entry.node_id or "")
        was_active = node is not None and node.status in ACTIVE
        first = view.executions == 0
        view.apply(entry)
        if entry.type == ev.RunStarted.type and first:
            await self._call(calls.on_run_start, copy.copy(view))
        elif entry.type in _STARTS and not was_active:
            await self._call(calls.on_stage_start, view.run_id, copy.copy(view.nodes[entry.node_id or ""]))
        elif entry.type in _ENDS:
            await self._call(calls.on_stage_end, view.run_id, copy.copy(view.nodes[entry.node_id or ""]))
        elif ends:
            for node_id in [n for n in view.order if n in before]:
                await self._call(calls.on_stage_end, view.run_id, copy.copy(view.nodes[node_id]))
            ended = cast(ev.RunEnded, entry.event)
            if calls.on_run_end is not None:
                result = await self._run._runtime.decode(ended.result)
                error = ended.error.message if ended.error is not None else None
                reason = ended.reason if ended.exited else None
                await self._call(calls.on_run_end, view.run_id, ended.status, result, error, reason)
            self._run._remove_listener(self._hear)

    async def _call(self, fn: Callable[..., Any] | None, *args: Any) -> None:
        if fn is None:
            return
        try:
            if inspect.iscoroutinefunction(fn):
                await fn(*args)
            else:  # in a thread: what blocks there holds up no run
                made = await asyncio.to_thread(fn, *args)
                if inspect.isawaitable(made):
                    await made
        except Exception:
            _log.exception("a callback of run() failed; the run goes on")
