"""Answers from the journal reach a body in the order in which it learned of them the first time.

Otherwise a body that acts on whichever of two steps ends first would act on the other one after a restart.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools

from loom_kernel.engine.replay import Lookup, Record

_SPACING = 4
"""Turns of the loop between two answers: enough for a body that waits for the first of several to go on."""


class Turns:
    """Who may have its answer now."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._pumping = False
        self._last_task: int | None = None

    def __len__(self) -> int:
        """Answers that wait for their turn."""
        return len(self._waiting)

    async def take(self, record: Record) -> None:
        """Return when it is this record's turn."""
        task = id(asyncio.current_task())
        # One task after another answer of its own needs no turn: nothing else can have happened in between.
        alone = not self._waiting and (self._last_task is None or self._last_task == task)
        if not (alone and self._lookup.may_answer_now(record)):
            future: asyncio.Future[None] = self._loop.create_future()
            heapq.heappush(self._waiting, (record.seq, next(self._order), future))
            if not self._pumping:
                self._pumping = True
                self._loop.call_soon(self._pump, _SPACING)
            await future
        self._last_task = task
        self._lookup.delivered(record)

    def _pump(self, turns: int) -> None:
        if turns:
            self._loop.call_soon(self._pump, turns - 1)
            return
        while self._waiting:
            _, _, future = heapq.heappop(self._waiting)
            if not future.done():
                future.set_result(None)
                self._loop.call_soon(self._pump, _SPACING)
                return
        self._pumping = False
