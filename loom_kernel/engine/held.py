"""Calls that wait until it is clear whether they are new or a mismatch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from loom_kernel.engine.calls import Call
from loom_kernel.engine.replay import Facts, HeldCall, Lookup, Pause, Record, Release, decide

QUIET_S = 0.02
"""A body that made no durable call for this long is looked at: does it wait for a decision?"""


class HeldCalls:
    """The calls that wait, and the look at the body that decides about them.

    Args:
        lookup: what was asked for.
        busy: how many answers of the journal are under way, and how many attempts.
        on_mismatch: called with the call and the records that it contradicts.
    """

    def __init__(
        self,
        lookup: Lookup,
        *,
        busy: Callable[[], tuple[int, int]],
        on_mismatch: Callable[[Call, tuple[Record, ...]], None],
    ) -> None:
        self._lookup, self._busy, self._on_mismatch = lookup, busy, on_mismatch
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, tuple[Call, asyncio.Future[None]]] = {}
        self._moves = 0
        self._looked_at = -1
        self._look: asyncio.TimerHandle | None = None
        self._over = False

    def moved(self) -> None:
        """The body did something durable."""
        self._moves += 1
        if self._waiting and self._look is None and not self._over:
            self._look = self._loop.call_later(QUIET_S, self._decide)

    async def hold(self, call: Call) -> None:
        """Return when the call is new. If it is a mismatch, the run pauses, and this is cancelled."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting[call.node_id] = (call, future)
        self.moved()
        try:
            await future
        finally:
            self._waiting.pop(call.node_id, None)

    def end(self) -> None:
        """Decide nothing more."""
        self._over = True
        if self._look is not None:
            self._look.cancel()

    def _decide(self) -> None:
        self._look = None
        if self._over or not self._waiting:
            return
        replaying, running = self._busy()
        facts = Facts(
            held=tuple(HeldCall(call.node_id, call.kind, call.name) for call, _ in self._waiting.values()),
            replaying=replaying,
            running=running,
            moved=self._moves != self._looked_at,
        )
        self._looked_at = self._moves
        match decide(facts, self._lookup):
            case Release(node_ids):
                for node_id in node_ids:
                    if not self._waiting[node_id][1].done():
                        self._waiting[node_id][1].set_result(None)
            case Pause(held, recorded):
                self._over = True
                self._on_mismatch(self._waiting[held.node_id][0], recorded)
                return
        if facts.moved or facts.replaying:
            self._look = self._loop.call_later(QUIET_S, self._decide)
