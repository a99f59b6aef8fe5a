"""Which journal: an instance, memory, or a folder. Whoever asks says where the setting came from; nothing is guessed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from loom_kernel.clock import Clock
from loom_kernel.errors import StorageConfigError
from loom_kernel.journal.abc import Holder, RunJournal

FILE = "loom.duckdb"


async def open_duckdb_journal(path: Path | str | None = None, *, clock: Clock | None = None) -> RunJournal:
    """Open a DuckDB journal in this process, which then has it to itself.

    Args:
        path: the journal's folder (``.loom``), or the ``loom.duckdb`` in it; ``.loom`` in the working folder by default.

    Raises:
        StorageUnavailableError: it cannot be opened, or another process has it open.
        StorageConfigError: the path names something else.
    """
    from loom_kernel.journal.duckdb_store import DuckDBRunJournal

    return await DuckDBRunJournal.open(journal_folder(path if path is not None else ".loom"), clock)


async def resolve_run_journal(
    journal: RunJournal | Path | str | None = None,
    *,
    folder: Path | str | None = None,
    holder: Holder | None = None,
    clock: Clock | None = None,
    in_process: bool = False,
    environ: Mapping[str, str] | None = None,
) -> RunJournal:
    """The journal that is meant: ``journal``, else ``LOOM_JOURNAL``, else DuckDB in ``folder``.

    Args:
        journal: an instance (used as it is), ``"memory"``, ``"duckdb"``, or a path to a folder or its ``loom.duckdb``.
        folder: where ``"duckdb"`` lies; ``LOOM_HOME``, else ``.loom`` in the working folder.
        holder: who we are; needed to talk to a hub.
        in_process: open the file here instead of through a hub.

    Raises:
        StorageConfigError: the setting names nothing that exists here. Never answered with another journal.
        StorageUnavailableError: the journal cannot be opened.
    """
    if isinstance(journal, RunJournal):
        return journal
    settings = os.environ if environ is None else environ
    setting = journal if journal is not None else settings.get("LOOM_JOURNAL") or "duckdb"
    if setting == "memory":
        from loom_kernel.journal.memory_store import MemoryRunJournal

        return MemoryRunJournal(clock)
    if setting == "duckdb":
        home = journal_folder(folder if folder is not None else settings.get("LOOM_HOME") or ".loom")
    else:
        home = journal_folder(setting)
    if in_process:
        return await open_duckdb_journal(home, clock=clock)
    if holder is None:
        raise StorageConfigError(
            "a journal shared by processes needs to know who is asking; pass holder=, or in_process=True to have it alone"
        )
    from loom_kernel.journal.hub.client import HubJournal

    return await HubJournal.open(home, holder)


def journal_folder(setting: object) -> Path:
    """The folder that a path setting means.

    Raises:
        StorageConfigError: it is a URL, another file, or no path at all.
    """
    if not isinstance(setting, (str, Path)) or not str(setting).strip():
        raise StorageConfigError(f"journal {setting!r} is neither a journal, a name, nor a path")
    text = str(setting)
    if "://" in text:
        raise StorageConfigError(f"journal {text!r}: no adapter for {text.split('://')[0]!r} is installed")
    path = Path(text).expanduser().absolute()
    if path.name == FILE:
        return path.parent
    if path.is_file():
        raise StorageConfigError(f"journal {text!r} is a file; name the folder, or the {FILE} in it")
    if path.suffix in (".duckdb", ".db", ".sqlite"):
        raise StorageConfigError(f"journal {text!r}: the file in a journal's folder is named {FILE}; name the folder")
    return path
