"""A worker: claims runs of the definitions it has, executes them, and says a line about each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from loom_kernel.authoring.workflow import WorkflowDefinition
from loom_kernel.engine.claiming import Refused
from loom_kernel.errors import StaleLeaseError, StorageUnavailableError
from loom_kernel.runtime.run import Run
from loom_kernel.views import words

if TYPE_CHECKING:
    from loom_kernel.runtime.core import Runtime

AT_ONCE = 10
"""Runs that a worker executes at once; those that wait for an answer or a moment count too."""

GRACE_S = 30.0
"""How long a worker that is to end waits for the steps that are at work."""

TRY_AGAIN_S = 1.0


class Worker:
    """Executes runs that were left to workers or lost theirs, until it is told to end.

    Args:
        runtime: where they are executed.
        definitions: what can be executed; a run is only claimed with the very version that it was started with.
        at_once: how many at once.
        grace_s: how long a drain waits for steps that are at work.
        say: gets a line for people.
    """

    def __init__(
        self,
        runtime: Runtime,
        definitions: Sequence[WorkflowDefinition[..., Any]],
        *,
        at_once: int = AT_ONCE,
        grace_s: float = GRACE_S,
        say: Callable[[str], None] = print,
    ) -> None:
        self._runtime, self._definitions = runtime, list(definitions)
        self._at_once, self._grace_s, self._say = at_once, grace_s, say
        self._refused: set[str] = set()
        self._runs: dict[str, Run[Any]] = {}  # held: a handle that nobody has would be collected
        self._room = asyncio.Event()
        self._ending = asyncio.Event()
        self._now = asyncio.Event()
        self._troubled = False

    @property
    def running(self) -> int:
        """Runs that it executes now."""
        return len(self._runs)

    # ------------------------------------------------------------ from other threads

    def drain(self) -> None:
        """Claim nothing more, and end when no step is at work or the grace time is over."""
        self._runtime.loop.loop.call_soon_threadsafe(self._ending.set)

    def stop(self) -> None:
        """End now: what is at work runs again elsewhere."""
        self._runtime.loop.loop.call_soon_threadsafe(self._now.set)
        self.drain()

    # ------------------------------------------------------------ on the loop thread

    async def serve(self) -> None:
        """Work until :meth:`drain` or :meth:`stop`. On the loop thread, with the journal open."""
        while not self._ending.is_set():
            if len(self._runs) >= self._at_once:
                self._room.clear()
                await self._first(self._room.wait())
            else:
                await self._first(self._claim())
        await self._let_go()

    async def _first(self, work: Any) -> None:
        """Do it, unless the end comes first."""
        task = asyncio.ensure_future(work)
        ending = asyncio.ensure_future(self._ending.wait())
        try:
            await asyncio.wait({task, ending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
            if not task.done():
                task.cancel()
            await asyncio.wait({task})
        if not task.cancelled():
            task.result()

    async def _claim(self) -> None:
        try:
            got = await self._runtime.engine.claim(self._definitions, but=self._refused)
        except StorageUnavailableError as error:
            if not self._troubled:
                self._tell(f"the journal cannot be reached; trying again: {error}")
            self._troubled = True
            await asyncio.sleep(TRY_AGAIN_S)
            return
        if self._troubled:
            self._tell("the journal is there again")
            self._troubled = False
        if isinstance(got, Refused):
            self._refused.add(got.run_id)
            self._tell(f"{got.workflow}  {got.run_id}  {'paused' if got.paused else 'left alone'}: {got.why}")
        elif got is not None:
            run = self._runtime.executes(got)
            self._runs[run.id] = run
            got.result.add_done_callback(lambda result: self._rests(run, result))

    def _rests(self, run: Run[Any], result: asyncio.Future[Any]) -> None:
        self._runs.pop(run.id, None)
        self._room.set()
        view = run.view
        error = None if result.cancelled() else result.exception()
        if isinstance(error, StaleLeaseError):
            what = f"taken by {error.holder or 'another worker'}"
        elif error is not None:
            what = f"lost: {error}"
        elif result.cancelled() or result.result().status == "interrupted":
            what = "given back"
        else:
            what = f"{words.status_words(view)} in {words.duration(view.active_s)}"
            if view.error is not None:
                what += f": {words.class_name(view.error)}: {words.short(view.error.message, 120)}"
            elif view.message:
                what += f": {words.short(view.message, 120)}"
        self._tell(f"{view.workflow}  {run.id}  {what}")

    async def _let_go(self) -> None:
        drain = asyncio.ensure_future(self._runtime.engine.drain(self._grace_s))
        now = asyncio.ensure_future(self._now.wait())
        await asyncio.wait({drain, now}, return_when=asyncio.FIRST_COMPLETED)
        now.cancel()
        if not drain.done():
            drain.cancel()
            await asyncio.wait({drain})
        await self._runtime.engine.close()

    def _tell(self, text: str) -> None:
        self._say(f"{time.strftime('%H:%M:%S')}  {text}")
