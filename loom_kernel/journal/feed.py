"""Fans committed entries out to subscribers: backlog first, then live, each notice once and in order."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from loom_kernel.journal.abc import JournalEntry, Notice, Subscription

PAGE = 1_000
"""Notices in one batch, at most."""

MAX_WAITING = 10_000
"""Notices kept for a subscriber that does not ask; beyond, it is sent back to reading the backlog."""

Load = Callable[[int, int], Awaitable[list[Notice]]]
"""``load(after_global_seq, limit)`` reads committed notices in order, any run and type."""


class Feed:
    """The live end. ``publish`` is called once an entry is durable, in ``global_seq`` order."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._subscribers: weakref.WeakSet[LocalSubscription] = weakref.WeakSet()  # forgotten is unsubscribed
        self._types: frozenset[str] | None = frozenset()  # that somebody may want; None: all
        self.last = 0  # the newest global_seq that was published

    def __len__(self) -> int:
        return len(self._subscribers)

    def publish(self, entries: Iterable[JournalEntry]) -> None:
        """Hand committed entries to everybody."""
        types = self._types
        notices = [notice_of(entry) for entry in entries if entry.seq and (types is None or entry.type in types)]
        for entry in entries:
            self.last = entry.global_seq
        if not notices:
            return
        for subscriber in tuple(self._subscribers):
            subscriber._offer(notices)

    def subscribe(self, after: int | None, run_id: str | None, types: frozenset[str] | None) -> LocalSubscription:
        """See ``RunJournal.subscribe``."""
        return LocalSubscription(self, self.last if after is None else after, run_id, types)

    def changed(self) -> None:
        """Somebody came or went."""
        types = [subscriber._types for subscriber in self._subscribers]
        self._types = None if None in types else frozenset[str]().union(*types)  # type: ignore[arg-type]

    def close(self) -> None:
        for subscriber in tuple(self._subscribers):
            subscriber.close()


class LocalSubscription(Subscription):
    """A subscriber in this process, on the journal's event loop."""

    def __init__(self, feed: Feed, after: int, run_id: str | None, types: frozenset[str] | None) -> None:
        self._feed = feed
        self._after = after  # everything up to here was delivered, or is not wanted
        self._run_id, self._types = run_id, types
        self._waiting: list[Notice] = []
        self._behind = after < feed.last  # read the backlog before what is waiting
        self._wake = asyncio.Event()
        self._closed = False
        feed._subscribers.add(self)
        feed.changed()

    def _offer(self, notices: list[Notice]) -> None:
        if self._behind:
            self._wake.set()
            return
        wanted = [notice for notice in notices if self._wants(notice)]
        if not wanted:
            return
        if len(self._waiting) + len(wanted) > MAX_WAITING:
            self._behind = True
            self._waiting = []
        else:
            self._waiting += wanted
        self._wake.set()

    def _wants(self, notice: Notice) -> bool:
        return (
            notice.global_seq > self._after
            and (self._run_id is None or notice.run_id == self._run_id)
            and (self._types is None or notice.type in self._types)
        )

    async def __aiter__(self) -> AsyncIterator[list[Notice]]:
        while not self._closed:
            if self._behind:
                batch = await self._catch_up()
                if batch:
                    yield batch
            elif self._waiting:
                batch, self._waiting = self._waiting[:PAGE], self._waiting[PAGE:]
                self._after = batch[-1].global_seq
                yield batch
            else:
                self._wake.clear()
                await self._wake.wait()

    async def _catch_up(self) -> list[Notice]:
        published = self._feed.last
        page = await self._feed._load(self._after, PAGE)
        batch = [notice for notice in page if self._wants(notice)]
        if page:
            self._after = page[-1].global_seq
        if len(page) < PAGE:
            self._after = max(self._after, published)  # the page held all that was published when it was read
        if self._after >= self._feed.last:
            self._behind = False  # nothing was awaited since the check: whatever comes now is offered
        return batch

    def close(self) -> None:
        self._closed = True
        self._feed._subscribers.discard(self)
        self._feed.changed()
        self._wake.set()


def notice_of(entry: JournalEntry) -> Notice:
    """What subscribers are told of an entry."""
    return Notice(entry.global_seq, entry.run_id, entry.seq, entry.type, entry.node_id)
