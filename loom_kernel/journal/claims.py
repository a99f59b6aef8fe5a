"""Workers that wait for a run: who gets which, and when. Nobody polls; whatever may free a run wakes those who wait.

A run can be claimed when nobody executes it and it is not at rest: it was left pending for a worker, or its holder gave
it back, died, or fell silent. Children go on with their parents, and a run with secret inputs needs a person who gives
them again, so neither is handed out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

import msgspec

from loom_kernel import events
from loom_kernel.errors import StorageUnavailableError, UnknownRunError
from loom_kernel.journal.abc import Holder, JournalEntry, LeaseAcquired
from loom_kernel.journal.core import AT_REST, GRACE_S, RELEASED, JournalCore, RunHead

LOOK_S = 5.0
"""How often the holders of runs that somebody waits for are looked at: a stopped process says nothing by itself."""

LOOK_SOON_S = 0.3
"""The same for holders whose connection has closed."""

_NEWS = frozenset({events.RunCreated.type, RELEASED})
_CANDIDATES = _NEWS | {events.LeaseTaken.type}

Take = Callable[[str, Holder, Callable[[RunHead], bool]], Awaitable["LeaseAcquired | None"]]
"""``take(run_id, holder, fits)`` takes the lease if the head still fits when nothing can come between."""


class Claims:
    """The claims of one journal.

    Args:
        core: the journal's rules and heads.
        take: see :data:`Take`.
        release: gives a lease back that nobody waits for any more.
    """

    def __init__(self, core: JournalCore, take: Take, release: Callable[[LeaseAcquired], Awaitable[None]]) -> None:
        self._core, self._take, self._release = core, take, release
        self._candidates: dict[str, None] | None = None  # runs that are or may become free, the oldest first
        self._tickets: dict[str, str] = {}  # the run that each claim got, should its answer have been lost
        self._waiting: set[asyncio.Event] = set()
        self._returning: set[asyncio.Task[None]] = set()
        self._closed = False

    # ------------------------------------------------------------ what happens

    def committed(self, entries: Iterable[JournalEntry]) -> None:
        """Entries became durable."""
        if self._candidates is None:
            return
        news = False
        for entry in entries:
            if entry.type in _CANDIDATES:
                self._candidates.setdefault(entry.run_id)
                news = news or entry.type in _NEWS
        if news:
            self.changed()

    def changed(self) -> None:
        """A run may be free now: look again."""
        for event in self._waiting:
            event.set()

    def close(self) -> None:
        """Whoever waits is told that the journal is closed."""
        self._closed = True
        self.changed()

    # ------------------------------------------------------------ claiming

    async def claim(
        self,
        definitions: Mapping[str, str],
        holder: Holder,
        but: Collection[str] = (),
        timeout_s: float | None = None,
        ticket: str = "",
    ) -> LeaseAcquired | None:
        """See ``RunJournal.claim``. A claim that is repeated under its ``ticket`` gets what it got before."""
        loop = asyncio.get_running_loop()
        end = None if timeout_s is None else loop.time() + timeout_s
        claimer = msgspec.structs.replace(holder, ticket=ticket)
        wake = asyncio.Event()
        self._waiting.add(wake)
        try:
            while True:
                if self._closed:
                    raise StorageUnavailableError("the journal was closed")
                wake.clear()
                got = await self._try(definitions, claimer, but)
                if got is not None:
                    return got
                left = None if end is None else end - loop.time()
                if left is not None and left <= 0:
                    return None
                look = self._look_again_in(definitions, but)
                wait = min((seconds for seconds in (left, look) if seconds is not None), default=None)
                try:
                    await asyncio.wait_for(wake.wait(), wait)
                except TimeoutError:
                    pass
        finally:
            self._waiting.discard(wake)

    async def _try(self, definitions: Mapping[str, str], holder: Holder, but: Collection[str]) -> LeaseAcquired | None:
        for run_id in self._runs_for(holder.ticket):
            head = self._core.heads.get(run_id)
            if head is None or not head.exists or head.status in AT_REST:
                self._forget(run_id)
                continue

            def fits(head: RunHead) -> bool:
                return self._got_before(head, holder) or self._core.claimable(head, definitions, but)

            if not fits(head):
                continue
            taking = asyncio.ensure_future(self._take(run_id, holder, fits))
            try:
                got = await asyncio.shield(taking)
            except asyncio.CancelledError:
                self._give_back(taking)
                raise
            except UnknownRunError:
                continue  # it was deleted meanwhile
            if got is not None:
                if holder.ticket:
                    self._tickets[holder.ticket] = run_id
                return got
        return None

    def _runs_for(self, ticket: str) -> list[str]:
        if self._candidates is None:
            heads = sorted((head for head in self._core.heads.values() if head.exists), key=lambda h: h.created_seq)
            self._candidates = {head.run_id: None for head in heads if head.status not in AT_REST}
            self._tickets = {head.holder.ticket: head.run_id for head in heads if head.holder and head.holder.ticket}
        runs = list(self._candidates)
        known = self._tickets.get(ticket) if ticket else None
        return runs if known is None else [known, *runs]

    def _got_before(self, head: RunHead, holder: Holder) -> bool:
        return bool(holder.ticket) and head.holder is not None and head.holder.ticket == holder.ticket

    def _forget(self, run_id: str) -> None:
        assert self._candidates is not None
        self._candidates.pop(run_id, None)
        head = self._core.heads.get(run_id)
        if head is not None and head.holder is not None:
            self._tickets.pop(head.holder.ticket, None)
        if len(self._tickets) > 2 * len(self._candidates) + 100:
            alive = self._candidates
            self._tickets = {ticket: run for ticket, run in self._tickets.items() if run in alive}

    def _look_again_in(self, definitions: Mapping[str, str], but: Collection[str]) -> float | None:
        """Seconds until a lease that keeps a fitting run from being claimed may have expired."""
        heads = (self._core.heads.get(run_id) for run_id in self._candidates or ())
        held = [head.run_id for head in heads if head is not None and head.holder and wanted(head, definitions, but)]
        if not held:
            return None
        soonest = min(self._core.expires_in(run_id) for run_id in held)
        # A connection that has just closed is often that of a process about to be gone.
        return min(LOOK_S if soonest > GRACE_S else LOOK_SOON_S, soonest + 0.01)

    def _give_back(self, taking: asyncio.Future[LeaseAcquired | None]) -> None:
        """Whoever claimed has left while the lease was being taken."""

        async def give_back() -> None:
            try:
                got = await taking
                if got is not None:
                    await self._release(got)
            except Exception:
                pass  # it expires with its holder

        task = asyncio.get_running_loop().create_task(give_back())
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)


def wanted(head: RunHead, definitions: Mapping[str, str], but: Collection[str]) -> bool:
    """Whether the run is one that the definitions can execute, whoever has it now."""
    asks = head.asks_for
    return asks is not None and head.run_id not in but and definitions.get(asks[0]) == asks[1]
