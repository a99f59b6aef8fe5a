"""Entries that are on their way to DuckDB: durable or about to be, and not in its tables yet. One thread uses it."""

from __future__ import annotations

import heapq
from operator import attrgetter

from loom_kernel.journal.abc import JournalEntry
from loom_kernel.journal.core import DELETED


class Tail:
    """Ordered by run. A deletion on its way hides what came before it, here and (by :meth:`floor`) in the tables."""

    def __init__(self) -> None:
        self._runs: dict[str, list[JournalEntry]] = {}
        self._deletions: dict[str, list[int]] = {}

    def add(self, entry: JournalEntry) -> None:
        if entry.seq:
            entries = self._runs.get(entry.run_id)
            if entries is None:
                self._runs[entry.run_id] = [entry]
            else:
                entries.append(entry)
        elif entry.type == DELETED:
            self._deletions.setdefault(entry.run_id, []).append(entry.global_seq)

    def take_back(self, entry: JournalEntry) -> None:
        """The newest entry of its run was not kept."""
        if entry.seq:
            entries = self._runs[entry.run_id]
            entries.pop()
            if not entries:
                del self._runs[entry.run_id]
        elif entry.type == DELETED:
            self._deletions[entry.run_id].pop()

    def drop_applied(self, entries: list[JournalEntry]) -> set[str]:
        """These are in the tables now; the runs they are of."""
        last = entries[-1].global_seq
        touched = {entry.run_id for entry in entries}
        for run_id in touched:
            here = self._runs.get(run_id)
            if here is not None:
                kept = [entry for entry in here if entry.global_seq > last] if here[-1].global_seq > last else []
                if kept:
                    self._runs[run_id] = kept
                else:
                    del self._runs[run_id]
            if run_id in self._deletions:
                later = [global_seq for global_seq in self._deletions[run_id] if global_seq > last]
                if later:
                    self._deletions[run_id] = later
                else:
                    del self._deletions[run_id]
        return touched

    def floor(self, run_id: str) -> int:
        """Entries of the run up to here were deleted, though the tables may not know it yet."""
        deletions = self._deletions.get(run_id)
        return deletions[-1] if deletions else 0

    def has(self, run_id: str) -> bool:
        return run_id in self._runs

    def of(self, run_id: str) -> list[JournalEntry]:
        """The run's entries here, in order; a copy."""
        entries = self._runs.get(run_id, [])
        floor = self.floor(run_id)
        return [entry for entry in entries if entry.global_seq > floor] if floor else list(entries)

    def extend(self, entries: list[JournalEntry], run_id: str) -> list[JournalEntry]:
        """``entries`` of the run, continued with what is here."""
        last = entries[-1].seq if entries else 0
        return entries + [entry for entry in self.of(run_id) if entry.seq > last]

    def after(self, global_seq: int) -> list[JournalEntry]:
        """All runs' entries after there, in order."""
        by_order = attrgetter("global_seq")
        later = ([entry for entry in entries if entry.global_seq > global_seq] for entries in self._runs.values())
        return list(heapq.merge(*later, key=by_order))
