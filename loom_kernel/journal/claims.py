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

TICKETS = 10_000
"""Claims that are remembered, about."""

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
        self._asked = False  # nobody pays for this before somebody claims
        self._new: dict[str, None] = {}  # runs that are or may become free and are not sorted in yet
        self._groups: dict[tuple[str, str], dict[str, None]] = {}  # by what they need, the oldest first
        self._tickets: dict[str, str] = {}  # the run that each claim got, should its answer have been lost
        self._waiting: set[asyncio.Event] = set()
        self._returning: set[asyncio.Task[None]] = set()
        self._closed = False

    # ------------------------------------------------------------ what happens

    def committed(self, entries: Iterable[JournalEntry]) -> None:
        """Entries became durable."""
        if not self._asked:
            return
        news = False
        for entry in entries:
            if entry.type in _CANDIDATES:
                self._new[entry.run_id] = None
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
        self._sort_in()
        tried: set[str] = set()
        while (run_id := self._got_before(holder, tried) or self._oldest(definitions, {*but, *tried})) is not None:
            tried.add(run_id)

            def fits(head: RunHead) -> bool:
                return _is_of(head, holder) or self._core.claimable(head, definitions, but)

            taking = asyncio.ensure_future(self._take(run_id, holder, fits))
            try:
                got = await asyncio.shield(taking)
            except asyncio.CancelledError:
                self._give_back(taking)
                raise
            except UnknownRunError:
                continue  # it was deleted meanwhile
            if got is not None:
                self._remember(holder.ticket, run_id)
                return got
        return None

    def _sort_in(self) -> None:
        heads = self._core.heads
        if not self._asked:
            self._asked = True
            known = sorted((head for head in heads.values() if head.exists), key=lambda head: head.created_seq)
            self._new = {head.run_id: None for head in known}
            self._tickets = {head.holder.ticket: head.run_id for head in known if head.holder and head.holder.ticket}
        for run_id in self._new:
            head = heads.get(run_id)
            if head is not None and head.status not in AT_REST and (asks := head.asks_for) is not None:
                self._groups.setdefault(asks, {}).setdefault(run_id)
        self._new.clear()

    def _oldest(self, definitions: Mapping[str, str], but: Collection[str]) -> str | None:
        """Of the runs that are free, the one that was made first."""
        oldest: RunHead | None = None
        for asks in definitions.items():
            group, gone = self._groups.get(asks, {}), []
            for run_id in group:
                head = self._core.heads.get(run_id)
                if head is None or not head.exists or head.status in AT_REST:
                    gone.append(run_id)
                elif self._core.claimable(head, definitions, but):
                    if oldest is None or head.created_seq < oldest.created_seq:
                        oldest = head
                    break
            for run_id in gone:
                del group[run_id]
        return None if oldest is None else oldest.run_id

    def _got_before(self, holder: Holder, tried: Collection[str]) -> str | None:
        run_id = self._tickets.get(holder.ticket) if holder.ticket else None
        head = self._core.heads.get(run_id) if run_id is not None and run_id not in tried else None
        return run_id if head is not None and _is_of(head, holder) else None

    def _remember(self, ticket: str, run_id: str) -> None:
        if not ticket:
            return
        self._tickets[ticket] = run_id
        if len(self._tickets) > TICKETS:
            heads = self._core.heads
            self._tickets = {
                ticket: run_id
                for ticket, run_id in self._tickets.items()
                if (head := heads.get(run_id)) is not None and head.holder is not None and head.holder.ticket == ticket
            }

    def _look_again_in(self, definitions: Mapping[str, str], but: Collection[str]) -> float | None:
        """Seconds until a lease that keeps a fitting run from being claimed may have expired."""
        soonest: float | None = None
        for asks in definitions.items():
            for run_id in self._groups.get(asks, ()):
                head = self._core.heads.get(run_id)
                if head is not None and head.holder is not None and run_id not in but:
                    expires = self._core.expires_in(run_id)
                    soonest = expires if soonest is None else min(soonest, expires)
        if soonest is None:
            return None
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


def _is_of(head: RunHead, holder: Holder) -> bool:
    """Whether this very claim got the run's lease, and its answer was lost."""
    return bool(holder.ticket) and head.holder is not None and head.holder.ticket == holder.ticket
