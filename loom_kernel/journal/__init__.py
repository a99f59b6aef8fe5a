"""The journal: what happened, durably, and who may write it. The truth that everything else is a view of.

The contract is :mod:`loom_kernel.journal.abc`; the rules are :mod:`~loom_kernel.journal.core`. This room remembers and
never decides what a run does. It knows events, and nobody above it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loom_kernel.errors import (
        JournalCasConflictError,
        StaleLeaseError,
        StorageConfigError,
        StorageUnavailableError,
    )
    from loom_kernel.journal.abc import RunJournal
    from loom_kernel.journal.duckdb_store import DuckDBRunJournal
    from loom_kernel.journal.memory_store import MemoryRunJournal
    from loom_kernel.journal.selection import open_duckdb_journal, resolve_run_journal

__all__ = [
    "DuckDBRunJournal",
    "JournalCasConflictError",
    "MemoryRunJournal",
    "RunJournal",
    "StaleLeaseError",
    "StorageConfigError",
    "StorageUnavailableError",
    "open_duckdb_journal",
    "resolve_run_journal",
]

_HOMES = {
    "DuckDBRunJournal": "loom_kernel.journal.duckdb_store",
    "JournalCasConflictError": "loom_kernel.errors",
    "MemoryRunJournal": "loom_kernel.journal.memory_store",
    "RunJournal": "loom_kernel.journal.abc",
    "StaleLeaseError": "loom_kernel.errors",
    "StorageConfigError": "loom_kernel.errors",
    "StorageUnavailableError": "loom_kernel.errors",
    "open_duckdb_journal": "loom_kernel.journal.selection",
    "resolve_run_journal": "loom_kernel.journal.selection",
}


def __getattr__(name: str) -> Any:
    # Imported when used: a hub's client needs no store, and nobody pays for DuckDB before opening a file.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
