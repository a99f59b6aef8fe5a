"""Large values are files beside the journal, and results of SQL come as a path."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

import pytest

from loom_kernel.errors import SqlError, StorageUnavailableError
from loom_kernel.journal.hub.client import HubJournal
from tests.journal.hub.parts import done, kill_hub, me, started


def test_a_large_value_never_crosses_the_socket(folder: Path) -> None:
    """Twenty megabytes are written by the worker, read by another client, and the hub's own memory does not grow."""

    async def body() -> None:
        data = os.urandom(20 << 20)
        sha256 = hashlib.sha256(data).hexdigest()
        async with await HubJournal.open(folder, me()) as one, await HubJournal.open(folder) as two:
            await one.put_blobs([(sha256, data), (sha256, data)])
            kill_hub(folder)

            assert await two.get_blob(sha256) == data
            with pytest.raises(KeyError):
                await two.get_blob("0" * 64)

    asyncio.run(body())


def test_a_value_that_the_hub_took_in_is_found(folder: Path) -> None:
    """Small ones come back as bytes, larger ones as a file that is gone afterwards; gc leaves both while they are named."""

    async def body() -> None:
        from msgspec import Raw

        from loom_kernel import events
        from loom_kernel.journal.abc import Append

        async with await HubJournal.open(folder, holder := me()) as journal:
            lease = (await started(journal, holder)).lease
            for data in (os.urandom(100_000), os.urandom(3 << 20)):
                sha256 = hashlib.sha256(data).hexdigest()
                await journal.put_blobs([(sha256, data)])
                reference = Raw(b'{"$loom":"bytes","blob":"%s"}' % sha256.encode())
                await journal.append(lease, [Append(events.NodeCompleted(result=reference), "n")])
                (await journal.query("select 1")).unlink()  # applied now
                assert not list((folder / "blobs").glob("??/*"))
                kill_hub(folder)
                assert await journal.get_blob(sha256) == data
                assert [path.name for path in (folder / "tmp").iterdir()] == []
            report = await journal.gc(0)
            assert (report.runs, report.blobs) == (0, 0)
            with pytest.raises(KeyError):
                await journal.get_blob("0" * 64)

    asyncio.run(body())


def test_a_value_that_cannot_be_written_is_storage_trouble(folder: Path) -> None:
    """The disk's refusal is a sentence."""

    async def body() -> None:
        async with await HubJournal.open(folder) as journal:
            (folder / "blobs").rmdir()
            (folder / "blobs").write_text("in the way")
            with pytest.raises(StorageUnavailableError, match="a value could not be written"):
                await journal.put_blobs([("0" * 64, b"x")])

    asyncio.run(body())


def test_sql_sees_what_was_acknowledged_before(folder: Path) -> None:
    """A query right after an append counts it; errors keep their class and sentence."""

    async def body() -> None:
        import duckdb

        async with await HubJournal.open(folder, holder := me()) as journal:
            lease = (await started(journal, holder)).lease
            for n in range(5):
                await journal.append(lease, [done(n)])
                path = await journal.query("select count(*) as n from events")
                assert duckdb.sql(f"select n from '{path}'").fetchall() == [(n + 3,)]
                path.unlink()
            for bad in ("drop view events", "select 1; select 2", "select * from evnts"):
                with pytest.raises(SqlError):
                    await journal.query(bad)
            with pytest.raises(SqlError, match=r"0\.2 s"):
                await journal.query("select count(*) from range(1000000) a, range(1000000) b", timeout_s=0.2)

    asyncio.run(body())


def test_summaries_cross_the_socket_whole(folder: Path) -> None:
    """Raw JSON in a header is the same at both ends."""

    async def body() -> None:
        from msgspec import Raw

        from loom_kernel.ids import RunId
        from tests.journal.hub.parts import created

        async with await HubJournal.open(folder) as journal:
            await journal.create_run(RunId("run1"), created(inputs=Raw(b'{"file":"a.csv"}'), tags=["x"], key="k"))
            await journal.create_run(RunId("run2"), created("other"))
            [run] = await journal.list_runs(workflow="digest", tag="x", key="k")

            assert bytes(run.header.inputs) == b'{"file":"a.csv"}'
            assert run == await journal.get_run(RunId("run1"))
            assert await journal.get_run(RunId("nope")) is None
            assert [r.run_id for r in await journal.list_runs(limit=1)] == ["run2"]

    asyncio.run(body())
