"""Writes a run's events: one awaited commit a step, and its start riding with the next append.

At most one append is under way. What comes meanwhile waits and goes together in the next one, so that a thousand steps
that end at once are a few commits, and entries come back in the order they were written.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any

from loom_kernel import events as ev
from loom_kernel.clock import Clock
from loom_kernel.journal.abc import Append, AppendOutcome, JournalEntry, Lease, RunJournal

HOLD_S = 0.005
"""How long an event that nobody waits for may be held back, so that it can ride with another."""

BATCH = 512
BATCH_BYTES = 1 << 20
"""The most that goes in one append: a frame of the hub takes 4 MiB, and one event stays below 200 KiB."""

_Waiter = tuple[int, int, "asyncio.Future[list[AppendOutcome]]"]


class HeldBack:
    """One timer for the pens that hold something back, of all runs of an engine."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pens: deque[tuple[float, Recorder]] = deque()  # and when their time is over

    def add(self, pen: Recorder) -> None:
        """It writes in 5 ms."""
        self._pens.append((self._loop.time() + HOLD_S, pen))
        if len(self._pens) == 1:
            self._loop.call_later(HOLD_S, self._due)

    def _due(self) -> None:
        # Behind whatever is ready by now: a body that is about to make its first call takes its start along.
        self._loop.call_soon(self._write, self._loop.time())

    def _write(self, now: float) -> None:
        due = []
        while self._pens and self._pens[0][0] <= now:
            due.append(self._pens.popleft()[1])
        if self._pens:
            self._loop.call_at(self._pens[0][0], self._due)
        for pen in due:
            pen.due()


class Recorder:
    """The pen of one execution.

    Args:
        journal, lease: where and as whom.
        held_back: tells when to write what nobody waits for.
        clock: stands still while an append is under way.
        context: the engine's own, so that what a journal starts in the background does not belong to a body.
        on_entries: called with the entries of each commit, in order.
        on_fault: called once, with the error after which nothing is written any more.
    """

    def __init__(
        self,
        journal: RunJournal,
        lease: Lease,
        *,
        held_back: HeldBack,
        clock: Clock,
        context: Context,
        on_entries: Callable[[list[JournalEntry]], None],
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self._journal, self._lease, self._clock, self._context = journal, lease, clock, context
        self._held_back = held_back
        self._on_entries, self._on_fault = on_entries, on_fault
        self._loop = asyncio.get_running_loop()
        self._queue: list[Append] = []
        self._waiters: list[_Waiter] = []  # places in the queue
        self._in_flight = False
        self._holding = False
        self._fault: BaseException | None = None
        self._closed = False

    @property
    def fault(self) -> BaseException | None:
        """Why nothing is written any more."""
        return self._fault

    def ride(self, event: ev.Event, node_id: str | None = None, key: str | None = None) -> None:
        """Write an event with the next append, in 5 ms at the latest. What fails surfaces at the next commit."""
        if self._closed or self._fault is not None:
            return
        self._queue.append(Append(event, node_id, key))
        if not self._holding and not self._in_flight:
            # Not taken back by a commit that takes the event along: to find nothing costs less.
            self._holding = True
            self._held_back.add(self)

    async def commit(self, appends: Sequence[Append]) -> list[AppendOutcome]:
        """Write events, and what rides with them, and return when they are durable.

        Cancelling the caller does not undo it.

        Raises:
            asyncio.CancelledError: nothing was written, and nothing will be: the run has ended, or there was a
                ``fault``. Not the fault itself, which a body could take for a failure of its step and go on after it.
        """
        if self._fault is not None or self._closed:
            raise asyncio.CancelledError("the run has ended")
        start = len(self._queue)
        self._queue += appends
        waiter: asyncio.Future[list[AppendOutcome]] = self._loop.create_future()
        self._waiters.append((start, len(self._queue), waiter))
        if not self._in_flight:
            self._send()
        return await waiter

    async def drain(self) -> None:
        """Return when everything that was handed over is written."""
        while (self._queue or self._in_flight) and self._fault is None:
            await self.commit(())

    def close(self) -> None:
        """Write nothing more; what waits is dropped."""
        self._closed = True
        self._queue = []
        self._drop(self._waiters)

    def due(self) -> None:
        """Write what was held back."""
        self._holding = False
        if self._queue and not self._in_flight and not self._closed:
            self._send()

    def _send(self) -> None:
        batch, self._queue = self._queue, []
        waiters, self._waiters = self._waiters, []
        if len(batch) > 16 and (cut := self._cut(batch, waiters)) < len(batch):
            batch, self._queue = batch[:cut], batch[cut:]
            self._waiters = [(start - cut, end - cut, waiter) for start, end, waiter in waiters if end > cut]
            waiters = [one for one in waiters if one[1] <= cut]
        if not batch:
            for _, _, waiter in waiters:
                if not waiter.done():
                    waiter.set_result([])
            return
        self._in_flight = True
        busy = self._clock.busy()
        busy.__enter__()
        context = self._context.copy()
        # A partial and no closure: it is one object for the garbage collector, not six. mypy misses the last argument.
        done = functools.partial(context.run, self._done, waiters, busy)  # type: ignore[call-arg]
        context.run(self._journal.append_then, self._lease, batch, done)

    def _cut(self, queue: list[Append], waiters: list[_Waiter]) -> int:
        """How much of the queue goes in one append; never through the middle of what one commit asked for."""
        size = cut = 0
        ends = {end for _, end, _ in waiters}
        inside = {i for start, end, _ in waiters for i in range(start + 1, end)}
        for i, append in enumerate(queue, start=1):
            size += _size(append.event)
            if i not in inside:
                cut = i
            if (i >= BATCH or size >= BATCH_BYTES) and cut:
                return cut
        assert cut or not ends
        return cut

    def _done(self, waiters: list[_Waiter], busy: Any, outcomes: list[AppendOutcome] | BaseException) -> None:
        busy.__exit__(None, None, None)
        self._in_flight = False
        if self._closed:
            self._drop(waiters)
            return
        if isinstance(outcomes, BaseException):
            self._fault = outcomes
            self._queue = []
            self._on_fault(outcomes)
            self._drop(waiters)
            self._drop(self._waiters)
            return
        self._on_entries([outcome.entry for outcome in outcomes if outcome.status == "appended"])
        for start, end, waiter in waiters:
            if not waiter.done():
                waiter.set_result(outcomes[start:end])
        if self._queue or self._waiters:
            self._send()

    def _drop(self, waiters: list[_Waiter]) -> None:
        self._waiters = [] if waiters is self._waiters else self._waiters
        for _, _, waiter in waiters:
            waiter.cancel()


def _size(event: ev.Event) -> int:
    """About how many bytes the event is, without encoding it twice."""
    match event:
        case ev.NodeCompleted():
            return 200 + len(bytes(event.result))
        case ev.NodeStarted():
            return 300 + len(bytes(event.args)) + sum(map(len, event.parents))
        case ev.NodeLogged():
            return 100 + sum(map(len, event.lines))
        case ev.PromptOpened() | ev.RunEnded() | ev.ArtifactKept() | ev.ValueRecorded() | ev.OutputReported():
            return len(ev.encode(event))
        case _:
            return 20_000 if hasattr(event, "error") else 300
