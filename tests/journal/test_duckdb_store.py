"""The journal in a DuckDB file: what survives, what is refused, and in which words."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import duckdb
import pytest
from msgspec import Raw

from loom_kernel import events
from loom_kernel.clock import VirtualClock
from loom_kernel.errors import SqlError, StaleLeaseError, StorageUnavailableError
from loom_kernel.events import RunCreated
from loom_kernel.ids import HolderId, RunId
from loom_kernel.journal import applier, database, files, migrations, room
from loom_kernel.journal.abc import Append, AppendOutcome, Holder, Lease, LeaseAcquired
from loom_kernel.journal.duckdb_store import DuckDBRunJournal
from loom_kernel.journal.liveness import this_process
from loom_kernel.journal.tables import Tables

pytestmark = pytest.mark.timeout(60)

A = RunId("aaaaaaaaaaaa")
ANN = this_process(HolderId("ann"))
BOB = Holder(id=HolderId("bob"), pid=0)


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


async def start(journal: DuckDBRunJournal, run_id: str = A, holder: Holder = ANN) -> LeaseAcquired:
    started = await journal.start_run(RunId(run_id), RunCreated(workflow="w"), holder)
    assert isinstance(started, LeaseAcquired)
    return started


def done(i: int, size: int = 1) -> Append:
    return Append(events.NodeCompleted(result=Raw(b'"' + b"x" * size + b'"')), f"step:{i}", f"done:{i}")


async def until(true: Callable[[], bool]) -> None:
    """Wait for it, ten seconds at most."""
    for _ in range(1000):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came true")


# ---------------------------------------------------------------- what survives


def test_a_new_folder_is_private_and_ignored(folder: Path) -> None:
    """Nobody else reads it, and git does not see it."""

    async def nothing(journal: DuckDBRunJournal) -> None:
        pass

    on_a_journal(folder, nothing)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / ".gitignore").read_text() == "*\n"
    assert list((folder / "log").glob("*.log")) == [], "everything is applied, nothing is left to replay"


def test_opening_replays_what_was_not_applied(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tail is there at once, for reading, for SQL and for going on."""

    def refuse(self: Tables, entries: object) -> None:
        raise RuntimeError("not now")

    async def write(journal: DuckDBRunJournal) -> None:
        lease = (await start(journal)).lease
        await journal.append(lease, [done(i) for i in range(10)])
        await journal.release(lease)

    async def read(journal: DuckDBRunJournal) -> None:
        entries = [entry async for entry in journal.read(A)]
        assert [entry.seq for entry in entries] == list(range(1, 13))
        assert await journal.lease_state(A) is None
        path = await journal.query("select count(*) from events")
        assert duckdb.read_parquet(str(path)).fetchall() == [(12,)]
        again = await start(journal)
        assert again.lease.epoch == 2
        assert (await journal.append(again.lease, [done(3)]))[0] == AppendOutcome("exists", entries[5])

    with monkeypatch.context() as patched:
        patched.setattr(Tables, "apply", refuse)
        on_a_journal(folder, write)
    assert list((folder / "log").glob("*.log")) != []
    on_a_journal(folder, read, read_again)


async def read_again(journal: DuckDBRunJournal) -> None:
    assert [entry.seq async for entry in journal.read(A)] == list(range(1, 14))
    assert journal.stats()["unapplied"] == 0


WRITER = """
import asyncio, sys
from pathlib import Path
from msgspec import Raw
from loom_kernel import events
from loom_kernel.journal.abc import Append
from loom_kernel.journal.duckdb_store import DuckDBRunJournal
from loom_kernel.journal.liveness import this_process

async def main(folder):
    journal = await DuckDBRunJournal.open(Path(folder))
    started = await journal.start_run(sys.argv[2], events.RunCreated(workflow="w"), this_process("w"))
    async def one(i):
        batch = [Append(events.NodeStarted(name="f", kind="step"), f"s{i}", f"start:{i}"),
                 Append(events.NodeCompleted(result=Raw(b"%d" % i)), f"s{i}", f"done:{i}")]
        outcomes = await journal.append(started.lease, batch)
        print(outcomes[1].entry.seq, i, flush=True)
    i = 0
    while True:
        await asyncio.gather(*(one(i + k) for k in range(5)))
        i += 5

asyncio.run(main(sys.argv[1]))
"""


def test_sigkill_loses_nothing_that_was_acknowledged(folder: Path) -> None:
    """Killed in the middle of writing, again and again: no gap, no half batch, every acknowledged event."""
    acknowledged: dict[str, dict[int, int]] = {}
    for round_ in range(4):
        run_id = f"run{round_}"
        writer = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITER), str(folder), run_id], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(150 + 77 * round_)]
        writer.send_signal(signal.SIGKILL)
        lines += writer.stdout.readlines()
        writer.stdout.close()
        writer.wait()
        acknowledged[run_id] = {int(seq): int(i) for seq, i in (line.split() for line in lines if line.endswith("\n"))}
    assert all(len(seqs) >= 150 for seqs in acknowledged.values())

    async def check(journal: DuckDBRunJournal) -> None:
        for run_id, seqs in acknowledged.items():
            entries = [entry async for entry in journal.read(RunId(run_id))]
            assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
            assert all(entries[seq - 1].key == f"done:{i}" for seq, i in seqs.items())
            types = [entry.type for entry in entries[2:]]
            assert types == ["node.started", "node.completed"] * (len(types) // 2)
            run = await journal.get_run(RunId(run_id))
            assert run is not None
            assert run.interrupted, "its holder is dead, which is known at once"
        path = await journal.query("select count(*), count(distinct global_seq) from events")
        [(rows, distinct)] = duckdb.read_parquet(str(path)).fetchall()
        assert rows == distinct

    on_a_journal(folder, check)


def test_finished_runs_stay_in_the_file(folder: Path) -> None:
    """Opening loads none of them, and yet they are listed, found, read, answered for and resumed."""

    async def write(journal: DuckDBRunJournal) -> None:
        for i in range(20):
            lease = (await start(journal, f"run{i:02}")).lease
            await journal.append(lease, [done(i), Append(events.RunEnded(status="completed" if i % 2 else "failed"))])

    async def read(journal: DuckDBRunJournal) -> None:
        assert journal.stats()["runs"] == 20
        assert not journal._core.heads
        assert [run.run_id for run in await journal.list_runs(limit=3)] == ["run19", "run18", "run17"]
        assert {run.status for run in await journal.list_runs(status=["failed"])} == {"failed"}
        run = await journal.get_run(RunId("run03"))
        assert run is not None
        assert (run.status, run.last_seq, run.header.workflow) == ("completed", 4, "w")
        assert await journal.create_run(RunId("run04"), RunCreated(workflow="w")) == "exists"
        resumed = await journal.acquire(RunId("run05"), ANN)
        assert isinstance(resumed, LeaseAcquired)
        assert (resumed.lease.epoch, len(resumed.entries)) == (2, 5)
        assert (await journal.append(resumed.lease, [done(5)]))[0].status == "exists"
        assert len(await journal.list_runs()) == 20

    on_a_journal(folder, write, read)


def test_the_end_of_a_forgotten_run_is_repeated_under_its_lease(folder: Path) -> None:
    """Its answer was lost with the hub: it is read again for whoever ended it, and nobody else."""
    last = Append(events.RunEnded(status="completed"), None, "ended:1")

    async def write(journal: DuckDBRunJournal) -> None:
        lease = (await start(journal)).lease
        await journal.append(lease, [done(1), last])

    async def repeat(journal: DuckDBRunJournal) -> None:
        assert not journal._core.heads
        again = await journal.append(Lease(A, "ann", 1), [done(1), last])
        assert [(outcome.status, outcome.entry.seq) for outcome in again] == [("exists", 3), ("exists", 4)]
        for lease, appends in ((Lease(A, "ann", 1), [done(2)]), (Lease(RunId("nobody"), "ann", 1), [last])):
            with pytest.raises(StaleLeaseError):
                await journal.append(lease, appends)

    on_a_journal(folder, write, repeat)


def test_a_lease_survives_a_restart(folder: Path) -> None:
    """Its holder goes on appending; repeats are recognised although the keys were forgotten; order is kept."""

    async def write(journal: DuckDBRunJournal) -> None:
        lease = (await start(journal, holder=BOB)).lease
        await journal.append(lease, [Append(events.RunStarted(worker="bob")), done(1)])

    async def go_on(journal: DuckDBRunJournal) -> None:
        state = await journal.lease_state(A)
        assert state is not None
        assert (state.holder.id, state.expired) == ("bob", False)
        lease = Lease(A, "bob", 1)
        waiting = [journal.append(lease, [done(i)]) for i in (1, 2, 3, 1)]
        outcomes = [outcome for pending in waiting for outcome in await pending]
        assert [(outcome.status, outcome.entry.seq) for outcome in outcomes] == [
            ("exists", 4), ("appended", 5), ("appended", 6), ("exists", 4),
        ]  # fmt: skip

    on_a_journal(folder, write, go_on)


# ---------------------------------------------------------------- what is refused, and in which words


def refusal(folder: Path) -> str:
    with pytest.raises(StorageUnavailableError) as caught:
        asyncio.run(DuckDBRunJournal.open(folder))
    return str(caught.value)


def test_a_damaged_file_is_named_with_the_cure(folder: Path) -> None:
    """And left as it is."""
    folder.mkdir()
    (folder / "loom.duckdb").write_bytes(b"this is no database" * 1000)
    sentence = refusal(folder)
    assert str(folder / "loom.duckdb") in sentence
    assert "damaged" in sentence
    assert "mv " in sentence
    assert (folder / "loom.duckdb").read_bytes().startswith(b"this is no database")


def test_a_newer_schema_is_refused(folder: Path) -> None:
    """With the way out."""

    async def nothing(journal: DuckDBRunJournal) -> None:
        pass

    on_a_journal(folder, nothing)
    with duckdb.connect(str(folder / "loom.duckdb")) as connection:
        connection.execute("insert into store.meta values (?, 'x')", [migrations.SCHEMA + 1])
    assert "newer loom-kernel" in refusal(folder)
    assert "pip install -U loom-kernel" in refusal(folder)


def test_somebody_elses_database_is_left_alone(folder: Path) -> None:
    """A DuckDB file that is no journal is not made one."""
    folder.mkdir()
    with duckdb.connect(str(folder / "loom.duckdb")) as connection:
        connection.execute("create table mine as select 1")
    assert "no journal of loom-kernel" in refusal(folder)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """With LOOM_HOME as the way out."""
    (tmp_path / "file").write_text("")
    sentence = refusal(tmp_path / "file" / ".loom")
    assert sentence.startswith(f"cannot open the journal in {tmp_path / 'file' / '.loom'}: Not a directory")
    assert "LOOM_HOME" in sentence


def test_one_process_has_the_folder(folder: Path) -> None:
    """A second one is told who has it, even in the same process."""

    async def again(journal: DuckDBRunJournal) -> None:
        with pytest.raises(StorageUnavailableError, match=f"already open \\(process {os.getpid()}\\)"):
            await DuckDBRunJournal.open(folder)

    on_a_journal(folder, again, again)


def test_changed_views_are_made_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer program brings its views to an older file of the same schema."""

    async def nothing(journal: DuckDBRunJournal) -> None:
        pass

    async def look(journal: DuckDBRunJournal) -> None:
        path = await journal.query("from extra")
        assert duckdb.read_parquet(str(path)).fetchall() == [(1,)]

    on_a_journal(folder, nothing)
    views = migrations.sql_views
    monkeypatch.setattr(views, "STATEMENTS", (*views.STATEMENTS, "create or replace view extra as select 1"))
    monkeypatch.setattr(views, "DIGEST", "another")
    on_a_journal(folder, look)


# ---------------------------------------------------------------- SQL


@pytest.mark.parametrize(
    ("sql", "sentence"),
    [
        ("delete from events", "only SELECT is allowed here, this is a DELETE statement"),
        ("insert into runs values (1)", "INSERT"),
        ("copy (select 1) to '/tmp/x.csv'", "COPY"),
        ("attach '/tmp/x.duckdb'", "an ATTACH statement"),
        ("set threads = 1", "SET"),
        ("select 1; drop table store.events", "one SELECT at a time"),
        ("from '/etc/passwd'", "there is no table '/etc/passwd'"),
        ("from read_csv('/etc/passwd')", "reads no files"),
        ("select * from read_text('/proc/self/environ')", "reads no files"),
        ("from run", "Did you mean runs? Tables: runs, nodes, attempts, events, prompts, signals"),
        ("select wrkflow from runs", "workflow"),
        ("   -- nothing", "there is no statement here"),
        ("select * frm runs", "syntax error"),
    ],
)
def test_sql_is_refused_with_a_sentence(folder: Path, sql: str, sentence: str) -> None:
    """One SELECT over the views; whatever else is asked for is named."""

    async def ask(journal: DuckDBRunJournal) -> None:
        await start(journal)
        with pytest.raises(SqlError) as caught:
            await journal.query(sql)
        assert sentence in str(caught.value)
        assert "Error:" not in str(caught.value)
        assert list((folder / "tmp").glob("*.parquet")) == []

    on_a_journal(folder, ask)


def test_sums_stay_whole_numbers(folder: Path) -> None:
    """Parquet would make floats of DuckDB's 128-bit sums."""

    async def ask(journal: DuckDBRunJournal) -> None:
        await start(journal)
        path = await journal.query('select sum(seq) as "the sum", sum(9223372036854775807) as big from events')
        [(total, _)] = duckdb.read_parquet(str(path)).fetchall()
        assert total == 3
        path = await journal.query("select sum(seq) as total from events")
        assert [str(kind) for kind in duckdb.read_parquet(str(path)).types] == ["BIGINT"]

    on_a_journal(folder, ask)


def test_a_long_query_is_stopped(folder: Path) -> None:
    """At its time limit, or when the asker goes away; appends go on meanwhile, and so do other queries."""
    endless = "select count(*) from range(1000000000) a, range(1000000) b"

    async def ask(journal: DuckDBRunJournal) -> None:
        lease = (await start(journal)).lease
        with pytest.raises(SqlError, match=r"longer than 0\.3 s"):
            await journal.query(endless, timeout_s=0.3)
        asking = asyncio.create_task(journal.query(endless))
        await asyncio.sleep(0.2)
        await asyncio.wait_for(asyncio.shield(journal.append(lease, [done(1)])), 5)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.wait_for(journal.query("from runs"), 10)

    on_a_journal(folder, ask)


# ---------------------------------------------------------------- a disk that refuses


def test_a_full_disk_is_a_state(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is refused and leaves no trace; reading goes on; with space again, so does writing."""
    full = threading.Event()
    write = os.pwrite

    def pwrite(fd: int, data: bytes, at: int) -> int:
        if full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data, at)

    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr(room, "HEAL_S", 0.05)

    async def fill(journal: DuckDBRunJournal) -> None:
        lease = (await start(journal)).lease
        await journal.append(lease, [done(0)])
        follower = journal.subscribe(0)
        full.set()
        refused = await asyncio.gather(
            *(journal.append(lease, [done(i)]) for i in range(1, 20)),
            journal.create_run(RunId("other"), RunCreated(workflow="w")),
            journal.post(A, Append(events.StopRequested())),
            return_exceptions=True,
        )
        assert {type(outcome) for outcome in refused} == {StorageUnavailableError}
        assert any("No space left on device" in str(outcome) for outcome in refused)
        assert [entry.seq async for entry in journal.read(A)] == [1, 2, 3]
        assert await journal.get_run(RunId("other")) is None
        path = await journal.query("select count(*) from events")
        assert duckdb.read_parquet(str(path)).fetchall() == [(3,)]
        with pytest.raises(StorageUnavailableError, match=r"the disk .* is full: nothing is written until"):
            await journal.append(lease, [done(5)])
        full.clear()
        await until(lambda: not journal.stats()["full"])
        outcomes = await journal.append(lease, [done(5), done(6)])
        assert [(outcome.status, outcome.entry.seq) for outcome in outcomes] == [("appended", 4), ("appended", 5)]
        assert await journal.create_run(RunId("other"), RunCreated(workflow="w")) == "created"
        notices = []
        async for batch in follower:
            notices += batch
            if len(notices) == 6:
                break
        assert [notice.global_seq for notice in notices] == [1, 2, 3, 4, 5, 6]

    async def after(journal: DuckDBRunJournal) -> None:
        assert [entry.key async for entry in journal.read(A, from_seq=3)] == ["done:0", "done:5", "done:6"]

    on_a_journal(folder, fill, after)


def test_a_failed_sync_is_final(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner is told at once, and nothing is written any more."""
    fatal: list[Exception] = []

    def sync(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async def fail(journal: DuckDBRunJournal) -> None:
        journal.on_fatal = fatal.append
        lease = (await start(journal)).lease
        with monkeypatch.context() as patched:
            patched.setattr(files, "_sync", sync)
            with pytest.raises(StorageUnavailableError, match="Input/output error"):
                await journal.append(lease, [done(1)])
        with pytest.raises(StorageUnavailableError, match="the disk"):
            await journal.append(lease, [done(2)])
        assert [entry.seq async for entry in journal.read(A)] == [1, 2]

    on_a_journal(folder, fail)
    assert len(fatal) == 1


def test_a_file_that_cannot_be_written_stops_only_sql(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends and reads go on, a query says why it cannot, and everything is applied once it can be."""
    monkeypatch.setattr(applier, "RETRY_S", 0.02)
    apply = Tables.apply
    refusing = True

    def refuse(self: Tables, entries: Any) -> None:
        if refusing:
            raise RuntimeError("the disk is full")
        apply(self, entries)

    monkeypatch.setattr(Tables, "apply", refuse)

    async def work(journal: DuckDBRunJournal) -> None:
        nonlocal refusing
        lease = (await start(journal)).lease
        await journal.append(lease, [done(i) for i in range(10)])
        with pytest.raises(StorageUnavailableError, match="the disk is full"):
            await journal.query("from events")
        assert len([entry async for entry in journal.read(A)]) == 12
        assert not journal.idle()
        refusing = False
        await until(lambda: journal.stats()["trouble"] is None)
        path = await journal.query("select count(*) from events")
        assert duckdb.read_parquet(str(path)).fetchall() == [(12,)]
        assert journal.stats()["trouble"] is None

    on_a_journal(folder, work)


def test_a_batch_that_failed_half_is_not_applied_twice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The position is in the same transaction, and a retry begins after it."""
    monkeypatch.setattr(applier, "RETRY_S", 0.02)
    forget = Tables._forget_resting
    failures = iter([True, True])

    def after_the_commit(self: Tables, touched: Any) -> None:
        if next(failures, False):
            raise RuntimeError("died after the commit")
        forget(self, touched)

    monkeypatch.setattr(Tables, "_forget_resting", after_the_commit)

    async def work(journal: DuckDBRunJournal) -> None:
        lease = (await start(journal)).lease
        await journal.append(lease, [done(i) for i in range(100)])
        await asyncio.sleep(0.5)
        path = await journal.query("select count(*), count(distinct seq) from events")
        assert duckdb.read_parquet(str(path)).fetchall() == [(102, 102)]

    on_a_journal(folder, work)


# ---------------------------------------------------------------- the rest


def test_the_applier_only_inserts(folder: Path) -> None:
    """An UPDATE beside an open reader would stop all checkpoints; a deletion is a transaction of its own."""
    said: list[str] = []

    class Spy:
        def __init__(self, cursor: Any) -> None:
            self._cursor = cursor

        def execute(self, sql: str, *args: Any) -> Any:
            said.append(sql)
            return self._cursor.execute(sql, *args)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._cursor, name)

    async def work(journal: DuckDBRunJournal) -> None:
        journal._tables._writer = Spy(journal._tables._writer)
        lease = (await start(journal)).lease
        await journal.append(lease, [done(1), Append(events.RunEnded(status="completed"))])
        await journal.query("from runs")

    on_a_journal(folder, work)
    assert set(said) == {"begin", "commit"}


def test_a_large_batch_is_applied_without_lingering(folder: Path) -> None:
    """More than five thousand rows do not wait for the clock."""

    async def work(journal: DuckDBRunJournal) -> None:
        lease = (await start(journal)).lease
        await asyncio.gather(*(journal.append(lease, [done(i * 100 + k) for k in range(100)]) for i in range(60)))
        for _ in range(200):
            if journal.stats()["applied"] >= 5_000:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(journal.stats())

    on_a_journal(folder, work)


def test_many_in_flight_share_their_syncs(folder: Path) -> None:
    """A thousand appends at once take a handful of them."""

    async def work(journal: DuckDBRunJournal) -> None:
        lease = (await start(journal)).lease
        before = journal.stats()["commits"]
        await asyncio.gather(*(journal.append(lease, [done(i)]) for i in range(1000)))
        assert journal.stats()["commits"] - before <= 20

    on_a_journal(folder, work)


def test_append_now_calls_back(folder: Path) -> None:
    """After a flush, with the outcomes once they are durable, or with the error at once."""

    async def work(journal: DuckDBRunJournal) -> None:
        lease = (await start(journal)).lease
        told: list[Any] = []
        event = asyncio.Event()

        def told_of(outcome: Any) -> None:
            told.append(outcome)
            event.set()

        journal.append_now(lease, [("k", "node.completed", "n", b"{}")], None, told_of)
        assert told == []
        journal.flush()
        await asyncio.wait_for(event.wait(), 5)
        assert told[0][0].entry.seq == 3
        journal.append_now(lease, [("l", "node.completed", "n", b"{}")], 1, told_of)
        assert "expected" in str(told[1])

    on_a_journal(folder, work)


def test_idle_means_nothing_is_left_to_do(folder: Path) -> None:
    """A live lease or an entry on its way keeps the process."""

    async def work(journal: DuckDBRunJournal) -> None:
        assert journal.idle()
        lease = (await start(journal)).lease
        assert not journal.idle()
        await journal.release(lease)
        await journal.query("from runs")
        assert journal.idle()

    on_a_journal(folder, work)


def test_virtual_time_stands_still_during_a_commit(folder: Path) -> None:
    """A timer does not overtake an append that is on its way to the disk."""

    async def main() -> None:
        clock = VirtualClock()
        async with await DuckDBRunJournal.open(folder, clock) as journal:
            assert isinstance(journal, DuckDBRunJournal)
            lease = (await start(journal)).lease
            order: list[str] = []

            async def sleeper() -> None:
                await clock.sleep(3_600)
                order.append("slept")

            sleeping = asyncio.create_task(sleeper())
            await asyncio.sleep(0)
            for i in range(20):
                await journal.append(lease, [done(i)])
            order.append("appended")
            await sleeping
            assert order == ["appended", "slept"]

    asyncio.run(main())


def test_scratch_results_of_the_dead_are_removed(folder: Path) -> None:
    """Of processes that live, they stay."""

    async def nothing(journal: DuckDBRunJournal) -> None:
        pass

    on_a_journal(folder, nothing)
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    theirs, ours = folder / "tmp" / f"r{child.pid}-1.parquet", folder / "tmp" / f"r{os.getpid()}-1.parquet"
    for path in (theirs, ours):
        path.write_bytes(b"")
    on_a_journal(folder, nothing)
    assert (theirs.exists(), ours.exists()) == (False, True)


def test_database_file_is_named_once() -> None:
    """The store and the settings mean the same file."""
    from loom_kernel.journal import selection

    assert database.FILE == selection.FILE


def test_a_reader_that_came_at_a_bad_moment_reads_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events of a run have no gap: where the tables do not show yet what was applied, it waits a moment."""

    async def work(journal: DuckDBRunJournal) -> None:
        lease = (await start(journal)).lease
        await journal.append(lease, [done(i) for i in range(5)])
        (await journal.query("from runs")).unlink()  # all of it is applied
        read, looks = journal._tables.entries, []

        def late(*args: Any) -> list[Any]:
            looks.append(args)
            return read(*args) if len(looks) > 3 else read(*args)[2:]

        monkeypatch.setattr(journal._tables, "entries", late)
        assert [entry.seq async for entry in journal.read(A)] == list(range(1, 8))
        assert len(looks) == 4

    on_a_journal(folder, work)


def test_a_question_sees_what_was_acknowledged_before(folder: Path) -> None:
    """A snapshot of a moment before is let go and taken anew."""
    begun = []

    class Late:
        """A cursor whose first two looks show nothing."""

        def __init__(self, cursor: Any) -> None:
            self._cursor = cursor

        def execute(self, sql: str, *args: Any) -> Any:
            if sql.startswith("begin"):
                begun.append(sql)
            if sql == database._SEEN and len(begun) < 3:
                return self._cursor.execute("select 0")
            return self._cursor.execute(sql, *args)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._cursor, name)

    async def work(journal: DuckDBRunJournal) -> None:
        await start(journal)
        cursor = journal._opened.connection.cursor
        journal._queries._cursor = lambda: Late(cursor())
        path = await journal.query("select count(*) from events")
        assert duckdb.read_parquet(str(path)).fetchall() == [(2,)]
        assert len(begun) == 3

    on_a_journal(folder, work)
