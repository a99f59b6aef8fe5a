"""A run's events in order, as they come: ours from commits, those of others from reading; and who listens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextvars import Context

from loom_kernel import events as ev
from loom_kernel.errors import JournalError
from loom_kernel.ids import RunId
from loom_kernel.journal.abc import JournalEntry, RunJournal

log = logging.getLogger("loom_kernel.engine")

Listener = Callable[[JournalEntry], None]


class Entries:
    """What is known of a run's events.

    Args:
        journal, run_id: where to read what is missing.
        context: the engine's own.
        on_post: called for what others posted, once :meth:`begin` was called; what came before that is history.
    """

    def __init__(
        self, journal: RunJournal, run_id: RunId, *, context: Context, on_post: Callable[[JournalEntry], None]
    ) -> None:
        self._journal, self._run_id, self._context, self._on_post = journal, run_id, context, on_post
        self._loop = asyncio.get_running_loop()
        self.all: list[JournalEntry] = []
        self._seq = 0
        self._ahead: dict[int, JournalEntry] = {}
        self._listeners: tuple[Listener, ...] = ()
        self._begun = self._over = self._fetching = self._fetch_again = False

    def begin(self) -> None:
        """From now on, posts are told."""
        self._begun = True

    def end(self) -> None:
        """Nobody waits for what comes now."""
        self._over = True

    def listen(self, fn: Listener) -> Callable[[], None]:
        """Call ``fn`` for every event, history first, in order, on the loop thread. Returns what ends it."""
        for entry in self.all:
            fn(entry)
        self._listeners += (fn,)

        def unlisten() -> None:
            if fn in self._listeners:
                at = self._listeners.index(fn)
                self._listeners = self._listeners[:at] + self._listeners[at + 1 :]

        return unlisten

    def take(self, entries: Iterable[JournalEntry]) -> None:
        """Put entries in their places; where one is missing, somebody else wrote it, and it is read."""
        for entry in entries:
            if entry.seq == self._seq + 1:
                self._push(entry)
            elif entry.seq > self._seq:
                self._ahead[entry.seq] = entry
        if not self._ahead:
            return
        while (following := self._ahead.pop(self._seq + 1, None)) is not None:
            self._push(following)
        self._ahead = {seq: entry for seq, entry in self._ahead.items() if seq > self._seq}
        if self._ahead:
            self.fetch()

    def _push(self, entry: JournalEntry) -> None:
        self._seq = entry.seq
        self.all.append(entry)
        for listener in self._listeners:
            try:
                listener(entry)
            except Exception:
                log.exception("a listener of run %s failed", self._run_id)
        if self._begun and entry.type in ev.POSTS:
            self._on_post(entry)

    def fetch(self) -> None:
        """Read what others appended."""
        if self._fetching:
            self._fetch_again = True
            return
        self._fetching = True
        self._loop.create_task(self._fetch(), context=self._context)

    async def _fetch(self) -> None:
        try:
            while True:
                self._fetch_again = False
                async for entry in self._journal.read(self._run_id, self._seq + 1):
                    self.take([entry])
                if not self._fetch_again or self._over:
                    return
        except JournalError as error:
            log.debug("run %s could not be read: %s", self._run_id, error)
        finally:
            self._fetching = False
