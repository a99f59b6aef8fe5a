"""The thread that moves committed entries into DuckDB, in batches, behind everybody's back.

It lingers so that batches are worth their transaction, unless a query waits or a lot has come. When the database
refuses (a full disk), it keeps what it has, says so, and tries again: reads go on from memory, queries get the error.
When nothing has come for a while it has the database tidied.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from loom_kernel.journal.abc import JournalEntry
from loom_kernel.journal.watched import WatchedThread

LINGER_S = 0.25
MANY = 5_000
SLICE_BYTES = 8 << 20
RETRY_S = 0.5
QUIET_S = 2.0
"""Nothing has come for so long: a moment for what may take one."""


T = TypeVar("T")


class Target(Protocol):
    """Where entries go: :class:`loom_kernel.journal.tables.Tables`."""

    def apply(self, entries: list[JournalEntry]) -> None:
        """All or nothing."""
        ...

    def recover(self) -> None:
        """Get usable again after ``apply`` raised."""
        ...

    def settle(self) -> None:
        """After a batch: a moment to write the database's own log back."""
        ...

    def tidy(self) -> bool:
        """Nothing has come for a while. Whether there is more to do."""
        ...


class Applier:
    """Args:
    target: takes the entries.
    applied: called on this thread with the last ``global_seq`` of a batch that is committed there.
    troubled: called on this thread when a batch was refused, with the reason, and with None when it went through.
    died: called on this thread when it ends by an error, which it should not.
    """

    def __init__(
        self,
        target: Target,
        *,
        applied: Callable[[list[JournalEntry]], None],
        troubled: Callable[[Exception | None], None],
        died: Callable[[Exception], None],
        linger_s: float = LINGER_S,
    ) -> None:
        self._target, self._applied, self._troubled, self._linger_s = target, applied, troubled, linger_s
        self._queue: deque[list[JournalEntry]] = deque()
        self._waiting = 0
        self._asked: list[tuple[Callable[[], Any], Future[Any]]] = []
        self._lock = threading.Lock()
        self._some = threading.Event()
        self._hurry = threading.Event()
        self._stopping = False
        self._give_up = False
        self._thread = WatchedThread("loom-apply", self._run, died)
        self._thread.start()

    def put(self, entries: list[JournalEntry]) -> None:
        """Entries that come to the tables together, so that SQL never sees half of a change. Any thread."""
        with self._lock:
            self._queue.append(entries)
            self._waiting += len(entries)
            many = self._waiting >= MANY
        self._some.set()
        if many:
            self._hurry.set()

    def hurry(self) -> None:
        """Somebody waits: do not linger."""
        self._hurry.set()

    def ask(self, work: Callable[[], Any]) -> Future[Any]:
        """Have ``work`` done on the applier's thread, between two batches. Any thread."""
        future: Future[Any] = Future()
        with self._lock:
            self._asked.append((work, future))
        self._hurry.set()
        self._some.set()
        return future

    def stop(self, *, give_up: bool = False) -> None:
        """Apply what is there, then end the thread; ``give_up`` leaves out what the database refuses. Blocks."""
        self._give_up = give_up
        self._stopping = True
        self._hurry.set()
        self._some.set()
        self._thread.join()
        for _, future in self._asked:
            future.cancel()

    @property
    def waiting(self) -> int:
        """Entries that are not in DuckDB yet."""
        return self._waiting

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        tidied = False
        while True:
            if not self._some.wait(None if tidied else QUIET_S):
                tidied = not self._guarded(self._target.tidy)
                continue
            if not self._stopping:
                self._hurry.wait(self._linger_s)
            self._hurry.clear()
            self._some.clear()
            more = True
            while more:  # what comes meanwhile lingers again: a transaction for each step would keep a core busy
                batch, more = self._slice()
                if not batch:
                    break
                tidied = False
                if not self._apply(batch):
                    return
                self._guarded(self._target.settle)
            self._answer()
            if self._stopping:
                with self._lock:
                    if not self._queue:
                        return

    def _slice(self) -> tuple[list[JournalEntry], bool]:
        """What is waiting, but only so much that a nearly full disk may have room for it; whether that left some."""
        slice: list[JournalEntry] = []
        size = 0
        with self._lock:
            for entries in self._queue:
                if len(slice) >= MANY or size >= SLICE_BYTES:
                    return slice, True
                slice += entries
                size += sum(len(entry.payload) for entry in entries)
        return slice, False

    def _apply(self, batch: list[JournalEntry]) -> bool:
        troubled = False
        while True:
            try:
                self._target.apply(batch)
                break
            except Exception as error:
                troubled = True
                self._troubled(error)
                with contextlib.suppress(Exception):
                    self._target.recover()
                if self._stopping and self._give_up:
                    return False
                self._hurry.wait(RETRY_S)
                self._hurry.clear()
        with self._lock:
            self._waiting -= len(batch)
            left = len(batch)
            while left:
                left -= len(self._queue.popleft())
        if troubled:
            self._troubled(None)
        self._applied(batch)
        return True

    def _answer(self) -> None:
        with self._lock:
            asked, self._asked = self._asked, []
        for work, future in asked:
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work())
            except Exception as error:
                with contextlib.suppress(Exception):
                    self._target.recover()
                future.set_exception(error)

    def _guarded(self, work: Callable[[], T]) -> T | None:
        """Tidying may fail and be tried again another time."""
        try:
            return work()
        except Exception:
            with contextlib.suppress(Exception):
                self._target.recover()
            return None
