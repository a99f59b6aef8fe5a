"""What is kept, where, and what goes: values, runs that are over, files of older versions."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tarfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import duckdb
import pytest
from msgspec import Raw

from loom_kernel import events
from loom_kernel.errors import StorageUnavailableError
from loom_kernel.events import RunCreated
from loom_kernel.ids import HolderId, RunId
from loom_kernel.journal import database, duckdb_store, intake, migrations, tables
from loom_kernel.journal.abc import Append, Holder, Lease, LeaseAcquired
from loom_kernel.journal.blobs import blob_path, write_blobs
from loom_kernel.journal.duckdb_store import DuckDBRunJournal
from loom_kernel.journal.keeping import GcReport, spent
from loom_kernel.journal.liveness import this_process

pytestmark = pytest.mark.timeout(60)

ANN = this_process(HolderId("ann"))
FILES = Path(__file__).parent / "files"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / ".loom"


def on_a_journal(folder: Path, *bodies: Callable[[DuckDBRunJournal], Coroutine[Any, Any, None]]) -> None:
    """Each body with the journal opened anew."""
    for body in bodies:

        async def main(body: Callable[[DuckDBRunJournal], Coroutine[Any, Any, None]] = body) -> None:
            async with await DuckDBRunJournal.open(folder) as journal:
                assert isinstance(journal, DuckDBRunJournal)
                await body(journal)

        asyncio.run(main())


async def start(journal: DuckDBRunJournal, run_id: str, **header: Any) -> Lease:
    started = await journal.start_run(RunId(run_id), RunCreated(workflow="w", **header), ANN)
    assert isinstance(started, LeaseAcquired)
    return started.lease


async def end(journal: DuckDBRunJournal, lease: Lease, status: str = "completed", resumable: bool = False) -> None:
    await journal.append(lease, [Append(events.RunEnded(status=status, resumable=resumable))])
    await journal.release(lease)


def blob(size: int, text: bytes = b"x") -> tuple[str, bytes]:
    data = (text * (size // len(text) + 1))[:size]
    return hashlib.sha256(data).hexdigest(), data


def names(sha256: str, tag: str = "blob") -> Append:
    return Append(
        events.NodeCompleted(result=Raw(b'{"$loom":"%s","blob":"%s"}' % (tag.encode(), sha256.encode()))), "n"
    )


def files(folder: Path) -> set[str]:
    return {path.name for path in (folder / "blobs").glob("??/*")}


# ---------------------------------------------------------------- values


def test_a_value_goes_into_the_database(folder: Path) -> None:
    """Its file is there until the event that names it is applied, and gone then; it is found before and after."""
    small, large = blob(100_000), blob(intake.IN_DATABASE + 1)

    async def keep(journal: DuckDBRunJournal) -> None:
        await journal.put_blobs([small, large])
        lease = await start(journal, "a")
        assert files(folder) == {small[0], large[0]}
        await journal.append(lease, [names(small[0]), names(large[0])])
        await journal._reached(journal._acked)
        assert files(folder) == {large[0]}, "above the limit it stays a file"
        assert await journal.get_blob(small[0]) == small[1]
        await journal.put_blobs([small])  # the same value again
        await journal.append(lease, [names(small[0])])
        await journal._reached(journal._acked)
        assert files(folder) == {large[0]}

    async def look(journal: DuckDBRunJournal) -> None:
        assert await journal.get_blob(small[0]) == small[1]
        assert await journal.get_blob(large[0]) == large[1]
        with pytest.raises(KeyError):
            await journal.get_blob("0" * 64)
        path = await journal.spill_blob(small[0], 10)
        assert isinstance(path, Path) and path.read_bytes() == small[1]
        assert await journal.spill_blob(small[0], 1 << 20) == small[1]

    on_a_journal(folder, keep, look)


def test_equal_values_are_kept_once(folder: Path) -> None:
    """A thousand steps that return the same hundred kilobytes cost one of them."""
    value = blob(100_000, os.urandom(1000))

    async def keep(journal: DuckDBRunJournal) -> None:
        lease = await start(journal, "a")
        for _ in range(1000):
            await journal.put_blobs([value])
            await journal.append(lease, [names(value[0])])
        path = await journal.query("select count(*) from events")
        assert duckdb.read_parquet(str(path)).fetchall() == [(1002,)]

    on_a_journal(folder, keep)
    with duckdb.connect(str(folder / "loom.duckdb")) as connection:
        assert connection.execute("select count(*), sum(size) from store.blobs").fetchall() == [(1, 100_000)]
    assert files(folder) == set()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert size < 2_000_000, "nothing that was made ahead is left either"


def test_what_only_looks_like_a_value_is_left_alone(folder: Path) -> None:
    """A digest names no file; a damaged file is not taken for the value it claims to be."""
    good = blob(70_000)

    async def keep(journal: DuckDBRunJournal) -> None:
        await journal.put_blobs([good])
        blob_path(folder, good[0]).write_bytes(b"damaged")
        lease = await start(journal, "a")
        await journal.append(lease, [names("1" * 64, "secret"), names(good[0])])
        await journal._reached(journal._acked)
        assert files(folder) == {good[0]}
        assert journal.stats()["trouble"] is None

    on_a_journal(folder, keep)


def test_a_value_is_taken_in_after_a_crash(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ended between the log and the tables."""
    value = blob(70_000)

    async def keep(journal: DuckDBRunJournal) -> None:
        await journal.put_blobs([value])
        await journal.append(await start(journal, "a"), [names(value[0])])

    async def look(journal: DuckDBRunJournal) -> None:
        await journal._reached(journal._acked)
        assert files(folder) == set()
        assert await journal.get_blob(value[0]) == value[1]

    def refuse(self: tables.Tables, entries: object) -> None:
        raise RuntimeError("not now")

    with monkeypatch.context() as patched:
        patched.setattr(tables.Tables, "apply", refuse)
        on_a_journal(folder, keep)
    on_a_journal(folder, look)


# ---------------------------------------------------------------- what goes


def row(run_id: str, parent: str | None = None, forked: str | None = None, age: float = 10, over: bool = True) -> tuple:
    return (run_id, parent, parent, forked, int((1000 - age) * 1e6), over)


@pytest.mark.parametrize(
    ("family", "gone", "kept"),
    [
        ([row("a"), row("b", age=1)], ["a"], 0),
        ([row("a"), row("b", over=False)], ["a"], 1),
        ([row("a"), row("b", "a", over=False)], [], 2),
        ([row("a"), row("b", "a"), row("c", "b", age=1)], [], 2),
        ([row("a"), row("b", "a"), row("c", "a")], ["a", "b", "c"], 0),
        ([row("a"), row("b", forked="a", over=False), row("c")], ["c"], 2),
        ([row("b", "gone"), row("c", "gone", over=False)], [], 2),
    ],
)
def test_families_go_together(family: list[Any], gone: list[str], kept: int) -> None:
    """A run that can still resume keeps its ancestors, children and what it was forked from."""
    assert spent(family, older_than=995) == (gone, kept)


def test_gc_takes_what_nobody_needs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old finished runs and their values go; what can resume stays, with all its values, also those inside others."""
    monkeypatch.setattr(duckdb_store, "BLOB_GRACE_S", 0.0)
    inner = blob(70_000, b"inner")
    outer_text = b'[{"$loom":"bytes","blob":"%s"}' % inner[0].encode() + b" " * 70_000 + b"]"
    outer = (hashlib.sha256(outer_text).hexdigest(), outer_text)
    shared, lonely, orphan = blob(80_000, b"shared"), blob(90_000, b"lonely"), blob(1000, b"orphan")

    async def work(journal: DuckDBRunJournal) -> None:
        await journal.put_blobs([inner, outer, shared, lonely, orphan])
        done = await start(journal, "done")
        await journal.append(done, [names(lonely[0]), names(shared[0])])
        await end(journal, done)
        failed = await start(journal, "failed")
        await journal.append(failed, [names(outer[0], "json"), names(shared[0])])
        child = await start(journal, "child", parent_run_id="failed", root_run_id="failed")
        await end(journal, child)
        await end(journal, failed, "failed", resumable=True)
        running = await start(journal, "running")

        assert await journal.gc(3600) == GcReport(runs=0, blobs=1, bytes=1000, kept=0), "young, but for the orphan"
        await asyncio.sleep(0.01)
        report = await journal.gc(0)
        assert (report.runs, report.blobs, report.bytes, report.kept) == (1, 1, 90_000, 3)
        assert {run.run_id for run in await journal.list_runs(roots_only=False)} == {"failed", "child", "running"}
        assert await journal.get_run(RunId("done")) is None
        for sha256, data in (inner, outer, shared):
            assert await journal.get_blob(sha256) == data
        for sha256 in (lonely[0], orphan[0]):
            with pytest.raises(KeyError):
                await journal.get_blob(sha256)
        await journal.append(running, [Append(events.RunStarted(worker="w"))])
        assert await journal.create_run(RunId("done"), RunCreated(workflow="again")) == "created"
        taken = await journal.acquire(RunId("done"), ANN)
        assert isinstance(taken, LeaseAcquired) and taken.lease.epoch == 2, "an epoch outlives its run"

    on_a_journal(folder, work)


def test_an_unnamed_value_stays_for_a_while(folder: Path) -> None:
    """A worker writes it before the event that names it; handing it over again makes it young again."""
    value = blob(1000)

    async def work(journal: DuckDBRunJournal) -> None:
        await journal.put_blobs([value])
        assert (await journal.gc(0)).blobs == 0
        old = time.time() - duckdb_store.BLOB_GRACE_S - 60
        os.utime(blob_path(folder, value[0]), (old, old))
        await journal.put_blobs([value])
        assert (await journal.gc(0)).blobs == 0
        os.utime(blob_path(folder, value[0]), (old, old))
        assert (await journal.gc(0)).blobs == 1

    on_a_journal(folder, work)


# ---------------------------------------------------------------- memory and opening


def test_runs_that_rest_are_forgotten(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither their heads nor their keys stay in memory, and yet all that can be asked of them is answered."""
    monkeypatch.setattr(tables, "MANY_HEADS", 10)

    async def work(journal: DuckDBRunJournal) -> None:
        for i in range(50):
            await end(journal, await start(journal, f"run{i:02}"), "failed" if i == 7 else "completed", i == 7)
        await journal.delete_run(RunId("run03"))
        await start(journal, "live")
        await journal._reached(journal._acked)
        assert set(journal._core.heads) == {"live"}
        assert journal.stats()["runs"] == 50
        await asyncio.wrap_future(journal._applier.ask(journal._tables.move_resting))
        for _ in range(2):
            assert len(await journal.list_runs()) == 50
            assert [run.run_id for run in await journal.list_runs(limit=2)] == ["live", "run49"]
            assert [run.run_id for run in await journal.list_runs(status=["failed"])] == ["run07"]
            run = await journal.get_run(RunId("run07"))
            assert run is not None and run.resumable and run.last_seq == 3
            assert await journal.get_run(RunId("run03")) is None
        assert set(journal._core.heads) == {"live"}
        assert await journal.create_run(RunId("run05"), RunCreated(workflow="w")) == "exists"
        assert (await start(journal, "run03")).epoch == 2
        assert (await start(journal, "run07")).epoch == 2
        path = await journal.query("select count(*) from runs where status = 'pending'")
        assert duckdb.read_parquet(str(path)).fetchall() == [(2,)]

    async def again(journal: DuckDBRunJournal) -> None:
        assert {"live", "run03", "run07"} >= set(journal._core.heads)
        assert journal.stats()["runs"] == 51
        assert (await start(journal, "run07")).epoch == 3

    on_a_journal(folder, work, again)
    with duckdb.connect(str(folder / "loom.duckdb")) as connection:
        assert connection.execute("select count(*) from store.live_heads").fetchall()[0][0] < 10
        assert connection.execute("select count(*), count(distinct run_id) from store.run_heads").fetchall() == [
            (51, 51)
        ]


def test_a_long_reader_stops_no_checkpoint(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB's log is written back beside a query that never ends; so it is when nothing comes for a while."""
    monkeypatch.setattr(database, "CHECKPOINT_BYTES", 1 << 20)

    async def work(journal: DuckDBRunJournal) -> None:
        lease = await start(journal, "a")
        endless = asyncio.create_task(journal.query("select count(*) from range(1000000000) a, range(1000000) b"))
        await asyncio.sleep(0.1)
        wal = folder / "loom.duckdb.wal"
        for i in range(8):
            text = Raw(b'"%s"' % os.urandom(250_000).hex().encode())
            await journal.append(lease, [Append(events.NodeCompleted(result=text), "n", str(i))])
            if i == 4:
                await journal.delete_run((await start(journal, "b")).run_id)  # type: ignore[arg-type]
            await journal._reached(journal._acked)
            assert not endless.done()
        await asyncio.wrap_future(journal._applier.ask(lambda: None))
        assert not wal.exists() or wal.stat().st_size < 2 << 20
        await asyncio.wrap_future(
            journal._applier.ask(lambda: database.checkpoint(journal._opened.connection, folder, 0))
        )
        assert not wal.exists() or wal.stat().st_size < 1000
        endless.cancel()

    on_a_journal(folder, work)
    assert not (folder / "loom.duckdb.wal").exists(), "leaving in good order writes it back too"


# ---------------------------------------------------------------- older files


def test_a_file_of_schema_1_is_brought_up_to_date(tmp_path: Path) -> None:
    """Left by a killed process, with a tail in its log: nothing of it is lost, and a copy of the old file is kept."""
    with tarfile.open(FILES / "schema1.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / "schema1"

    async def look(journal: DuckDBRunJournal) -> None:
        runs = {run.run_id: run for run in await journal.list_runs()}
        assert {run_id: run.status for run_id, run in runs.items()} == {
            "run0": "failed", "run1": "completed", "run2": "completed", "run3": "completed", "run4": "running",
            "tail": "running",
        }  # fmt: skip
        [completed] = [e async for e in journal.read(RunId("run2")) if e.type == "node.completed"]
        sha256 = completed.payload.split(b'"blob":"')[1][:64].decode()
        assert len(await journal.get_blob(sha256)) == 70_002
        assert await journal.create_run(RunId("gone"), RunCreated(workflow="w")) == "created"
        taken = await journal.acquire(RunId("gone"), ANN)
        assert isinstance(taken, LeaseAcquired) and taken.lease.epoch == 2
        assert (await journal.gc(0)).runs == 3
        assert len(await journal.get_blob(sha256)) == 70_002, "run0 and run4 still name it"
        path = await journal.query("select count(*) from runs")
        assert duckdb.read_parquet(str(path)).fetchall() == [(4,)]

    on_a_journal(folder, look)
    with duckdb.connect(str(folder / "loom.duckdb.schema1"), read_only=True) as connection:
        assert migrations.found(connection) == 1
        assert connection.execute("select count(*) from store.run_headers").fetchall() == [(5,)]
    with duckdb.connect(str(folder / "loom.duckdb"), read_only=True) as connection:
        assert migrations.found(connection) == migrations.SCHEMA


def test_without_room_for_the_copy_nothing_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence says how much room it takes."""
    with tarfile.open(FILES / "schema1.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / "schema1"

    def full(source: Any, target: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(database.shutil, "copyfile", full)
        with pytest.raises(StorageUnavailableError, match=r"older version .* of free space; nothing was changed"):
            asyncio.run(DuckDBRunJournal.open(folder))
    with duckdb.connect(str(folder / "loom.duckdb")) as connection:
        assert migrations.found(connection) == 1


def test_writing_a_value_twice_is_harmless(folder: Path) -> None:
    """The second time nothing is written."""
    value = blob(1000)
    write_blobs(folder, [value])
    inode = blob_path(folder, value[0]).stat().st_ino
    write_blobs(folder, [value])
    assert blob_path(folder, value[0]).stat().st_ino == inode


def test_another_holder_is_no_reason_to_delete(folder: Path) -> None:
    """A finished run that somebody holds is not swept away."""

    async def work(journal: DuckDBRunJournal) -> None:
        lease = await start(journal, "a")
        await journal.append(lease, [Append(events.RunEnded(status="failed", resumable=True))])
        assert isinstance(await journal.acquire(RunId("a"), Holder(id=HolderId("b"), pid=0)), LeaseAcquired)
        await asyncio.sleep(0.01)
        assert (await journal.gc(0)).runs == 0

    on_a_journal(folder, work)
