"""Which journal is meant; a wrong setting is an error, never another journal."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loom_kernel import journal as room
from loom_kernel.errors import StorageConfigError, StorageUnavailableError
from loom_kernel.ids import HolderId
from loom_kernel.journal import DuckDBRunJournal, MemoryRunJournal, RunJournal, open_duckdb_journal, resolve_run_journal
from loom_kernel.journal.liveness import this_process
from loom_kernel.settings import Settings

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


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("memry", "neither duckdb, memory, an installed adapter (none is), nor a folder that is there; write ./memry"),
        ("postgresql://host/db", "no adapter for 'postgresql' is installed (none is)"),
        ("history.duckdb", "is named loom.duckdb, not history.duckdb"),
    ],
)
def test_the_error_says_where_it_was_set(
    written: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable, the file, or the call."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StorageConfigError) as caught:
        kind(environ={"LOOM_JOURNAL": written})
    assert str(caught.value).startswith(f"LOOM_JOURNAL={written!r}: ")
    assert says in str(caught.value)
    (tmp_path / "loom.toml").write_text(f"journal = {written!r}\n")
    with pytest.raises(StorageConfigError) as caught:
        kind(environ={})
    assert str(caught.value).startswith(f"{tmp_path / 'loom.toml'}: journal = {written!r}: ")
    settings = Settings({}, tmp_path)
    settings.configure(journal=written)
    with pytest.raises(StorageConfigError, match=r"^configure\(\): journal = "):
        kind(settings=settings)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loom.toml"]


def test_the_file_comes_after_the_environment_and_before_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its paths are meant from its own folder; a value that is no text is told by the file's name."""
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    toml = tmp_path / "loom.toml"
    toml.write_text('journal = "kept/history"\n')
    assert kind(environ={}) == (DuckDBRunJournal, tmp_path / "kept" / "history")
    assert kind(environ={"LOOM_JOURNAL": "memory"}) == (MemoryRunJournal, None)
    assert kind("memory", environ={"LOOM_JOURNAL": str(tmp_path / "x")}) == (MemoryRunJournal, None)
    toml.write_text("journal = 3\n")
    with pytest.raises(StorageConfigError, match=r"loom\.toml: journal is a text, not 3"):
        kind(environ={})


ADAPTER = """
import asyncio
from loom_kernel.journal import MemoryRunJournal, StorageUnavailableError

class Shelf(MemoryRunJournal):
    pass

def open_shelf(address, *, folder, holder, clock):
    made = Shelf(clock)
    made.opened = (address, folder, holder)
    return made

async def open_later(address, *, folder, holder, clock):
    await asyncio.sleep(0)
    return open_shelf(address, folder=folder, holder=holder, clock=clock)

def nothing(address, **_):
    return {"not": "a journal"}

def away(address, **_):
    raise StorageUnavailableError("the shelf is being painted", address)

def broken(address, **_):
    raise KeyError("shelf")
"""


@pytest.fixture
def adapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution with adapters, installed by putting it on the path."""
    site = tmp_path / "site"
    info = site / "shelves-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "shelves.py").write_text(ADAPTER)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shelves\nVersion: 1.0\n")
    names = {"shelf": "open_shelf", "later": "open_later", "nothing": "nothing", "away": "away", "broken": "broken"}
    lines = [f"{name} = shelves:{fn}" for name, fn in names.items()] + ["gone = no_such_module:open"]
    (info / "entry_points.txt").write_text("[loom_kernel.journals]\n" + "\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(site))


@pytest.mark.usefixtures("adapters")
@pytest.mark.parametrize("address", ["shelf", "shelf://attic/3", "later:x"])
def test_an_installed_adapter_opens_its_journal(address: str, tmp_path: Path) -> None:
    """It is given all that was written, the project's folder, and who asks."""

    async def main() -> None:
        holder = this_process(HolderId("me"))
        journal: Any = await resolve_run_journal(
            environ={"LOOM_JOURNAL": address}, folder=tmp_path / "home", holder=holder
        )
        assert type(journal).__name__ == "Shelf"
        assert journal.opened == (address, tmp_path / "home", holder)

    asyncio.run(main())


@pytest.mark.usefixtures("adapters")
@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("nothing", StorageConfigError, "made a dict, which is no RunJournal"),
        ("gone", StorageConfigError, "cannot be loaded: ModuleNotFoundError"),
        ("broken", StorageConfigError, "could not open it: KeyError: 'shelf'"),
        ("away", StorageUnavailableError, "the shelf is being painted"),
        ("shelv", StorageConfigError, "(installed: away, broken, gone, later, nothing, shelf)"),
    ],
)
def test_an_adapter_that_does_not_work_is_a_sentence(name: str, error: type[Exception], says: str) -> None:
    """Never another journal."""
    with pytest.raises(error) as caught:
        kind(environ={"LOOM_JOURNAL": name})
    assert says in str(caught.value)


@pytest.mark.usefixtures("adapters")
def test_runs_are_kept_where_the_adapter_keeps_them(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole runtime works over it, and makes no folder."""
    from loom_kernel.runtime import get_runtime
    from loom_kernel.runtime.api import runs

    monkeypatch.setenv("LOOM_JOURNAL", "shelf://attic")
    assert list(runs()) == []
    assert type(get_runtime().journal).__name__ == "Shelf"
    assert not (project / ".loom").exists()


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
