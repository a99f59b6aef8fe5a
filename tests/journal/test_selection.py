"""Which journal is meant; a wrong setting is an error, never another journal."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loom_kernel import journal as room
from loom_kernel.errors import StorageConfigError
from loom_kernel.journal import DuckDBRunJournal, MemoryRunJournal, RunJournal, open_duckdb_journal, resolve_run_journal

pytestmark = pytest.mark.timeout(60)


def kind(*args: Any, **kwargs: Any) -> tuple[type[RunJournal], Path | None]:
    async def main() -> tuple[type[RunJournal], Path | None]:
        journal = await resolve_run_journal(*args, in_process=True, **kwargs)
        await journal.close()
        return type(journal), getattr(journal, "folder", None)

    return asyncio.run(main())


def test_the_nearest_setting_wins(tmp_path: Path) -> None:
    """Argument, then environment, then DuckDB in the folder."""
    duckdb = (DuckDBRunJournal, tmp_path / "home")
    assert kind("memory", environ={"LOOM_JOURNAL": str(tmp_path / "x")}) == (MemoryRunJournal, None)
    assert kind(environ={"LOOM_JOURNAL": "memory"}) == (MemoryRunJournal, None)
    assert kind(environ={"LOOM_HOME": str(tmp_path / "home")}) == duckdb
    assert kind("duckdb", folder=tmp_path / "home", environ={"LOOM_HOME": "elsewhere"}) == duckdb
    assert kind(tmp_path / "home" / "loom.duckdb", environ={}) == duckdb
    assert kind(environ={"LOOM_JOURNAL": str(tmp_path / "home")}) == duckdb


def test_an_instance_is_used_as_it_is() -> None:
    """Whoever made it keeps it."""

    async def main() -> None:
        journal = MemoryRunJournal()
        assert await resolve_run_journal(journal) is journal

    asyncio.run(main())


@pytest.mark.parametrize("setting", ["postgresql://host/db", "history.db", "history.duckdb", 3, "  "])
def test_a_wrong_setting_is_an_error(setting: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the setting."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StorageConfigError) as caught:
        kind(setting, environ={})
    assert repr(setting) in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_shared_journal_needs_a_holder(tmp_path: Path) -> None:
    """A hub wants to know who asks."""
    with pytest.raises(StorageConfigError, match="holder"):
        asyncio.run(resolve_run_journal(tmp_path / "home", environ={}))


def test_a_journal_is_opened_by_its_folder_or_file(tmp_path: Path) -> None:
    """And closed by ``async with``."""

    async def main() -> None:
        for path in (tmp_path / "home", tmp_path / "home" / "loom.duckdb"):
            async with await open_duckdb_journal(path) as journal:
                assert await journal.list_runs() == []

    asyncio.run(main())


def test_public_names_are_there() -> None:
    """Each is loaded when it is used, and an unknown one is an AttributeError."""
    for name in room.__all__:
        assert getattr(room, name) is not None
    assert set(room.__all__) <= set(dir(room))
    with pytest.raises(AttributeError, match="nothing"):
        room.nothing
