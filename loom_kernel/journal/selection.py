"""Which journal: an instance, memory, a folder, or an adapter that somebody installed. Nothing is guessed.

The nearest setting wins: the argument, ``configure(...)``, ``LOOM_JOURNAL``, ``loom.toml``, DuckDB in the project's
folder. A setting that means nothing here is an error that says where it was made; it is never answered with another
journal.

An adapter is an entry point of the group ``loom_kernel.journals``. Its name is what people write, alone or before a colon
(``postgresql://host/db``); it is called as ``adapter(address, folder=, holder=, clock=)`` with all that was written, and
returns a :class:`RunJournal` or an awaitable of one.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loom_kernel.clock import Clock
from loom_kernel.errors import JournalError, StorageConfigError
from loom_kernel.journal.abc import Holder, RunJournal
from loom_kernel.settings import Setting, Settings, ensure_home

FILE = "loom.duckdb"

GROUP = "loom_kernel.journals"
"""The entry-point group of adapters."""


@dataclass(frozen=True)
class Choice:
    """The journal that a setting means: an adapter by its address, a folder, or (neither) memory."""

    folder: Path | None = None
    adapter: str | None = None
    address: str = ""


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
    settings: Settings | None = None,
) -> RunJournal:
    """The journal that is meant: ``journal``, else the setting ``journal``, else DuckDB in ``folder``.

    Args:
        journal: an instance (used as it is), ``"memory"``, ``"duckdb"``, a path to a folder or its ``loom.duckdb``, or the
            address of an installed adapter.
        folder: where ``"duckdb"`` lies; the project's ``.loom`` folder when left out.
        holder: who we are; needed to talk to a hub.
        in_process: open the file here instead of through a hub.
        environ: the environment; the process's own when left out.
        settings: the settings, where they were read already.

    Raises:
        StorageConfigError: the setting names nothing that exists here. Never answered with another journal.
        StorageUnavailableError: the journal cannot be opened.
    """
    if isinstance(journal, RunJournal):
        return journal
    settings = settings if settings is not None else Settings(environ)
    setting = settings.find("journal", journal)
    choice = choose(setting, Path(folder) if folder is not None else settings.home().value)
    if choice.adapter is not None:
        home = Path(folder) if folder is not None else settings.home().value
        return await _adapted(choice, setting, home, holder, clock)
    if choice.folder is None:
        from loom_kernel.journal.memory_store import MemoryRunJournal

        return MemoryRunJournal(clock)
    if in_process:
        return await open_duckdb_journal(choice.folder, clock=clock)
    if holder is None:
        raise StorageConfigError(
            "a journal shared by processes needs to know who is asking; pass holder=, or in_process=True to have it alone"
        )
    from loom_kernel.journal.hub.client import HubJournal

    return await HubJournal.open(ensure_home(choice.folder), holder)


def choose(setting: Setting, home: Path) -> Choice:
    """What a setting of ``journal`` means.

    Args:
        home: where ``"duckdb"`` lies.

    Raises:
        StorageConfigError: nothing; the sentence says where it was set and what can be written.
    """
    value = setting.value
    if not isinstance(value, (str, Path)) or not str(value).strip():
        raise StorageConfigError(f"{_where(setting)}: it is neither a journal, a name, nor a path")
    text = str(value)
    if text == "memory":
        return Choice()
    if text == "duckdb":
        return Choice(folder=home.expanduser().absolute())
    name, colon, _ = text.partition(":")
    if isinstance(value, str) and (colon or _is_word(text)):
        installed = sorted({entry.name for entry in adapters()})
        if name in installed:
            return Choice(adapter=name, address=text)
        known = f"installed: {', '.join(installed)}" if installed else "none is"
        if "://" in text:
            raise StorageConfigError(
                f"{_where(setting)}: no adapter for {name!r} is installed ({known}); install the package that brings it, "
                "or write duckdb, memory, or the path of a .loom folder"
            )
        if not colon and not _path(setting, text).is_dir():
            raise StorageConfigError(
                f"{_where(setting)}: it is neither duckdb, memory, an installed adapter ({known}), nor a folder that is "
                f"there; write ./{text} to make one of that name"
            )
    try:
        return Choice(folder=journal_folder(_path(setting, text)))
    except StorageConfigError as error:
        raise StorageConfigError(f"{_where(setting)}: {error}") from None


def journal_home(settings: Settings) -> Path | None:
    """The folder of the configured journal, for those who look at it from outside; None where it is in no folder.

    Raises:
        StorageConfigError: the setting means nothing here.
    """
    return choose(settings.find("journal"), settings.home().value).folder


def adapters() -> list[importlib.metadata.EntryPoint]:
    """The adapters that are installed here."""
    return list(importlib.metadata.entry_points(group=GROUP))


async def _adapted(
    choice: Choice, setting: Setting, home: Path, holder: Holder | None, clock: Clock | None
) -> RunJournal:
    found = {entry.value: entry for entry in adapters() if entry.name == choice.adapter}
    if len(found) > 1:
        raise StorageConfigError(
            f"{_where(setting)}: {len(found)} adapters are named {choice.adapter!r} ({', '.join(sorted(found))}); uninstall one"
        )
    entry = next(iter(found.values()))
    try:
        adapter: Any = entry.load()
    except Exception as error:
        raise StorageConfigError(
            f"{_where(setting)}: the adapter {choice.adapter!r} ({entry.value}) cannot be loaded: "
            f"{type(error).__name__}: {error}"
        ) from error
    try:
        made = adapter(choice.address, folder=home, holder=holder, clock=clock)
        if inspect.isawaitable(made):
            made = await made
    except JournalError:
        raise
    except Exception as error:
        raise StorageConfigError(
            f"{_where(setting)}: the adapter {choice.adapter!r} could not open it: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(made, RunJournal):
        raise StorageConfigError(
            f"{_where(setting)}: the adapter {choice.adapter!r} ({entry.value}) made a {type(made).__name__}, which is no RunJournal"
        )
    return made


def journal_folder(setting: object) -> Path:
    """The folder that a path setting means.

    Raises:
        StorageConfigError: it is another file, or no path at all.
    """
    if not isinstance(setting, (str, Path)) or not str(setting).strip():
        raise StorageConfigError(f"journal {setting!r} is neither a journal, a name, nor a path")
    path = Path(setting).expanduser().absolute()
    if path.name == FILE:
        return path.parent
    if path.is_file():
        raise StorageConfigError(f"{setting} is a file; name the folder, or the {FILE} in it")
    if path.suffix in (".duckdb", ".db", ".sqlite"):
        raise StorageConfigError(f"the file in a journal's folder is named {FILE}, not {path.name}; name the folder")
    return path


def _where(setting: Setting) -> str:
    """The setting as people find it again: ``LOOM_JOURNAL='x'``."""
    if setting.source == "environment":
        return f"{setting.where}={setting.value!r}"
    where = {
        "loom.toml": f"{setting.where}: journal = ",
        "argument": "journal ",
        "configure()": "configure(): journal = ",
    }
    return f"{where.get(setting.source, 'journal ')}{setting.value!r}"


def _path(setting: Setting, text: str) -> Path:
    """A path in ``loom.toml`` is meant from the file's folder."""
    base = Path(setting.where).parent if setting.source == "loom.toml" and setting.where else Path()
    return base / Path(text).expanduser()


def _is_word(text: str) -> bool:
    """A name and no path: a mistyped name would otherwise become a folder without a word."""
    return os.sep not in text and "." not in text and not text.startswith("~")
