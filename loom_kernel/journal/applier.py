"""The thread that moves committed entries into DuckDB, in batches, behind everybody's back.

It lingers so that batches are worth their transaction, unless a query waits or a lot has come. When the database
refuses (a full disk), it keeps what it has, says so, and tries again: reads go on from memory, queries get the error.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Protocol

from loom_kernel.journal.abc import JournalEntry

LINGER_S = 0.25
MANY = 5_000
RETRY_S = 0.5


class Target(Protocol):
    """Where entries go: :class:`loom_kernel.journal.tables.Tables`."""

    def apply(self, entries: list[JournalEntry]) -> None:
        """All or nothing."""
        ...

    def recover(self) -> None:
        """Get usable again after ``apply`` raised."""
        ...


class Applier:
    """Args:
    target: takes the entries.
    applied: called on this thread with the last ``global_seq`` of a batch that is committed there.
    troubled: called on this thread when a batch was refused, with the reason, and with None when it went through.
    """

    def __init__(
        self,
        target: Target,
        *,
        applied: Callable[[list[JournalEntry]], None],
        troubled: Callable[[Exception | None], None],
        linger_s: float = LINGER_S,
    ) -> None:
        self._target, self._applied, self._troubled, self._linger_s = target, applied, troubled, linger_s
        self._batch: list[JournalEntry] = []
        self._lock = threading.Lock()
        self._some = threading.Event()
        self._hurry = threading.Event()
        self._stopping = False
        self._give_up = False
        self._thread = threading.Thread(target=self._run, name="loom-apply", daemon=True)
        self._thread.start()

    def put(self, entries: list[JournalEntry]) -> None:
        """Any thread."""
        with self._lock:
            self._batch += entries
            many = len(self._batch) >= MANY
        self._some.set()
        if many:
            self._hurry.set()

    def hurry(self) -> None:
        """Somebody waits: do not linger."""
        self._hurry.set()

    def stop(self, *, give_up: bool = False) -> None:
        """Apply what is there, then end the thread; ``give_up`` leaves out what the database refuses. Blocks."""
        self._give_up = give_up
        self._stopping = True
        self._hurry.set()
        self._some.set()
        self._thread.join()

    @property
    def waiting(self) -> int:
        """Entries that are not in DuckDB yet."""
        return len(self._batch)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        while True:
            self._some.wait()
            if not self._stopping:
                self._hurry.wait(self._linger_s)
            self._hurry.clear()
            self._some.clear()
            with self._lock:
                batch = list(self._batch)
            if batch and not self._apply(batch):
                return
            if self._stopping:
                with self._lock:
                    if not self._batch:
                        return

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
            del self._batch[: len(batch)]
        if troubled:
            self._troubled(None)
        self._applied(batch)
        return True
