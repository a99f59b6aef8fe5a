"""Time as the package sees it: an interface, the system's clock, and a virtual one for tests."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import itertools
import time
from collections.abc import Iterator
from typing import Protocol


class Clock(Protocol):
    """Where now comes from and how to wait. Seconds everywhere."""

    def time(self) -> float:
        """Seconds since the epoch, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards; for durations."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``; cancelling ends it early."""
        ...

    def busy(self) -> contextlib.AbstractContextManager[None]:
        """Held while real work goes on, during which virtual time stands still."""
        ...


class SystemClock:
    """The machine's clock."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        # One long timer would overflow some event loops after about 24 days.
        while seconds > 86_400:
            await asyncio.sleep(86_400)
            seconds -= 86_400
        await asyncio.sleep(max(0.0, seconds))

    def busy(self) -> contextlib.AbstractContextManager[None]:
        return _IDLE


_IDLE = contextlib.nullcontext()


class VirtualClock:
    """Jumps to the next timer as soon as nothing real is going on, so that no test sleeps.

    ``busy()`` says that something real is going on (a step body in a thread, a commit on its way). Time moves only
    when nobody is busy and the event loop has had a few turns without anybody becoming so.
    """

    _SETTLE_TURNS = 5

    def __init__(self, start: float = 1_767_225_600.0) -> None:  # 2026-01-01T00:00:00Z
        self._now = start
        self._origin = start
        self._timers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._busy = 0
        self._jumper: asyncio.Task[None] | None = None

    def time(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now - self._origin

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1

    async def sleep(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._timers, (self._now + max(0.0, seconds), next(self._order), future))
        if self._jumper is None or self._jumper.done():
            # In a context of its own: one that was made in a run's body would be cancelled with it, and nobody would jump.
            self._jumper = loop.create_task(self._jump(), context=contextvars.Context())
        await future

    async def _jump(self) -> None:
        while self._timers:
            quiet = 0
            while quiet < self._SETTLE_TURNS:
                # A real millisecond: threads that finish hand their result over with call_soon_threadsafe.
                await asyncio.sleep(0.001)
                quiet = 0 if self._busy else quiet + 1
            while self._timers and self._timers[0][2].done():
                heapq.heappop(self._timers)
            if not self._timers:
                return
            at, _, future = heapq.heappop(self._timers)
            self._now = max(self._now, at)
            if not future.done():
                future.set_result(None)
