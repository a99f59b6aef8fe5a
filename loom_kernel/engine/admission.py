"""A run is let in by the journal within some seconds, or there is none.

A journal that does not answer (a hub that was suspended, a disk that hangs) may still do later what it was asked for. By
then whoever started the run was told that there is none, or has gone, so what came of it is undone.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from loom_kernel.errors import JournalError, StorageUnavailableError

T = TypeVar("T")

ADMISSION_S = 10.0
"""How long a start waits for the journal's answer. Opening a journal is another matter, and takes what it takes."""

log = logging.getLogger("loom_kernel.engine")


class Admission:
    """How starts wait for a journal.

    Args:
        context: what is asked for and undone runs in it: it belongs to no run.

    Attributes:
        seconds: the bound.
    """

    def __init__(self, context: contextvars.Context) -> None:
        self.seconds = ADMISSION_S
        self._context = context
        self._undoing: set[asyncio.Task[None]] = set()

    async def admitted(
        self, asked: Coroutine[Any, Any, T], undo: Callable[[T], Awaitable[object]], *, bounded: bool = True
    ) -> T:
        """What the journal answers. What comes too late, or after the caller was cancelled, is undone.

        Raises:
            StorageUnavailableError: it has not answered in time.
        """
        loop = asyncio.get_running_loop()
        task = loop.create_task(asked, context=self._context)

        def late(task: asyncio.Task[T]) -> None:
            if not task.cancelled() and task.exception() is None:
                undoing = loop.create_task(_undo(undo, task.result()), context=self._context)
                self._undoing.add(undoing)
                undoing.add_done_callback(self._undoing.discard)

        try:
            await asyncio.wait({task}, timeout=self.seconds if bounded else None)
        except asyncio.CancelledError:
            task.add_done_callback(late)
            raise
        if not task.done():
            task.add_done_callback(late)
            raise self._silent()
        return task.result()

    @contextlib.asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        """Around questions to the journal that change nothing.

        Raises:
            StorageUnavailableError: they take longer than the bound.
        """
        limit = asyncio.timeout(self.seconds)
        try:
            async with limit:
                yield
        except TimeoutError:
            if limit.expired():
                raise self._silent() from None
            raise

    def _silent(self) -> StorageUnavailableError:
        return StorageUnavailableError(
            f"the journal has not answered for {self.seconds:g} s, so no run was started. Its hub or its disk hangs: look at "
            "`loom doctor`, then start again"
        )


async def _undo(undo: Callable[[T], Awaitable[object]], result: T) -> None:
    try:
        await undo(result)
    except JournalError as error:
        log.debug("a run that nobody waits for any more was not taken back: %s", error)
