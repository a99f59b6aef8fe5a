"""Commits: whatever is queued goes to the log in one write and one sync, then is acknowledged.

A few writes at a time are committed on the loop itself while the disk is fast: handing them to a thread and back costs
more than such a sync takes. A thread commits the rest, so that a slow disk holds up nobody who reads.
A write that the disk refuses is answered in order too: until everything queued behind it has come back and was undone,
nothing new is taken (:attr:`CommitWriter.healing`).
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import time
from collections.abc import Callable, Sequence

from loom_kernel.journal.abc import JournalEntry
from loom_kernel.journal.commit_log import CommitLog, LogBrokenError, record
from loom_kernel.journal.core import Change
from loom_kernel.journal.watched import WatchedThread

FAST_S = 0.002
"""A commit that took no longer may be followed by one on the loop."""

FEW = 8
"""Writes that are committed on the loop at once, at most."""


class Write:
    """Changes that become durable together, and who is told. ``entries`` may be empty: an order kept, nothing written."""

    __slots__ = ("changes", "done", "entries")

    def __init__(self, changes: Sequence[Change], done: Callable[[Exception | None], None]) -> None:
        self.changes = changes
        self.entries = [entry for change in changes for entry in change.entries]
        self.done = done


class CommitWriter:
    """Owns the log from now on.

    Args:
        loop: where ``committed`` and ``failed`` are called.
        durable: called with the entries that were just synced (the applier's queue), on the writer's thread or the loop.
        committed: called on the loop with the writes that are durable, in order.
        failed: called on the loop with all writes that were not kept, in order, and why.
        full: called when the disk refused, on the writer's thread or the loop.
        broken: called when the disk cannot be trusted any more, or the thread died, on the writer's thread or the loop.
    """

    def __init__(
        self,
        log: CommitLog,
        loop: asyncio.AbstractEventLoop,
        *,
        durable: Callable[[list[JournalEntry]], None],
        committed: Callable[[list[Write]], None],
        failed: Callable[[list[Write], Exception], None],
        full: Callable[[Exception], None],
        broken: Callable[[Exception], None],
    ) -> None:
        self._log, self._loop = log, loop
        self._durable, self._committed, self._failed, self._broken = durable, committed, failed, broken
        self._full = full
        self._queue: queue.SimpleQueue[Write | str] = queue.SimpleQueue()
        self._submitted: list[Write] = []  # on the loop, not handed to anybody yet
        self._flushes = False
        self._handed_over = 0  # with the thread
        self._took_s = 0.0  # the last commit
        self._lost: list[Write] = []
        self.healing = False
        self.commits = 0  # syncs so far
        self._thread = WatchedThread("loom-commit", self._run, broken)
        self._thread.start()

    def submit(self, write: Write) -> None:
        """Take it, for the next :meth:`flush`. On the loop; never while healing."""
        self._submitted.append(write)

    def flush_soon(self) -> None:
        """Flush in the next turn of the loop, together with what else comes in this one."""
        if not self._flushes:
            self._flushes = True
            self._loop.call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._flushes = False
        self.flush()

    def flush(self) -> None:
        """Commit what was submitted, or hand it to the thread."""
        if not self._submitted:
            return
        writes, self._submitted = self._submitted, []
        if self._handed_over or len(writes) > FEW or self._took_s > FAST_S:
            self._handed_over += len(writes)
            for write in writes:
                self._queue.put(write)
            return
        error = self._commit(writes)
        if error is None:
            self._committed(writes)
        else:
            self.healing = isinstance(error, LogBrokenError)  # for good; else nothing waits behind these
            self._failed(writes, error)

    def stop(self) -> None:
        """Write what is queued, then end the thread. Blocks; after a last ``flush``."""
        self._queue.put("stop")
        self._thread.join()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        refused: Exception | None = None
        while True:
            items = [self._queue.get()]
            with contextlib.suppress(queue.Empty):
                while True:
                    items.append(self._queue.get_nowait())
            writes = [item for item in items if isinstance(item, Write)]
            if writes and refused is None:
                refused = self._commit(writes)
                self._tell(self._on_committed if refused is None else self._on_refused, writes, refused)
            elif writes:
                self._tell(self._on_refused, writes, refused)
            if "heal" in items and not isinstance(refused, LogBrokenError):
                # The loop queued it after the last write it had let through, so every loss is known now.
                self._tell(self._on_healed, [], refused)
                refused = None
            if "stop" in items:
                return

    def _commit(self, writes: list[Write]) -> Exception | None:
        entries = [entry for write in writes for entry in write.entries]
        if not entries:
            return None
        began = time.perf_counter()
        try:
            self._log.write([record(write.entries) for write in writes if write.entries], entries[0].global_seq)
        except LogBrokenError as error:
            self._broken(error)
            return error
        except Exception as error:  # OSError; anything else is no reason to end
            self._full(error)
            return error
        self._took_s = time.perf_counter() - began
        self.commits += 1
        self._durable(entries)
        return None

    def _tell(
        self, how: Callable[[list[Write], Exception | None], None], writes: list[Write], error: Exception | None
    ) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody is left to be told
            self._loop.call_soon_threadsafe(how, writes, error)

    # ------------------------------------------------------------ on the loop

    def _on_committed(self, writes: list[Write], error: Exception | None) -> None:
        self._handed_over -= len(writes)
        self._committed(writes)

    def _on_refused(self, writes: list[Write], error: Exception | None) -> None:
        self._handed_over -= len(writes)
        self._lost += writes
        if isinstance(error, LogBrokenError):
            self._on_healed([], error)
            self.healing = True  # for good
        elif not self.healing:
            self.healing = True
            self._queue.put("heal")

    def _on_healed(self, writes: list[Write], error: Exception | None) -> None:
        lost, self._lost = self._lost, []
        self.healing = False
        if lost and error is not None:
            self._failed(lost, error)
