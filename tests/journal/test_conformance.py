"""The journals that open in this process keep the contract."""

from __future__ import annotations

from loom_kernel.journal.abc import RunJournal
from loom_kernel.journal.duckdb_store import DuckDBRunJournal
from loom_kernel.journal.memory_store import MemoryRunJournal
from loom_kernel.testing.journal_conformance import RunJournalConformance


class TestMemoryRunJournal(RunJournalConformance):
    """The reference."""

    async def open_journal(self) -> RunJournal:
        return MemoryRunJournal()


class TestDuckDBRunJournal(RunJournalConformance):
    """A file, in this process."""

    persistent = True

    async def open_journal(self) -> RunJournal:
        return await DuckDBRunJournal.open(self.folder)
