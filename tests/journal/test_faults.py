"""What goes wrong, and what happens then: each fault ends in a stated behaviour, none in a hang or a traceback.

===========================================  ===========================================================================
Fault                                        Where it is shown
===========================================  ===========================================================================
the hub is killed (SIGKILL)                  here; at each point of an append, twenty times in a row: hub/test_kill.py;
                                             at random among all operations: test_state_machine.py
a worker is killed                           hub/test_leases.py::test_a_dead_holders_run_is_free_at_once
a worker is stopped for longer than a lease  here
the hub is stopped for longer than a lease   here
the disk is full                             here, on a small file system and under a limit on the size of files
the folder is read-only                      here, and hub/test_launch.py::test_a_read_only_folder_gets_a_sentence
DuckDB's log (WAL) is truncated              here
the commit log is torn at every byte of its  test_commit_log.py::test_the_last_record_may_be_torn_anywhere, and the same
last record                                  in a segment that was filled ahead
writes without sync are lost or reordered    here
the socket is deleted                        here; from under a hub: hub/test_launch.py::
                                             test_a_hub_whose_socket_was_tidied_away_listens_again
many start a hub at once                     here
the clock is set back                        here
a value of 200 MB                            here
a frame over the limit                       hub/test_protocol.py::test_a_frame_over_the_limit_is_refused_by_the_hub_too,
                                             test_an_event_over_the_limit_is_refused_before_it_is_sent_naming_it
garbage on the socket                        hub/test_protocol.py::test_garbage_closes_its_own_connection_and_no_other
a thread of the store dies                   here
===========================================  ===========================================================================
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest
from msgspec import Raw

from loom_kernel import events
from loom_kernel.clock import SystemClock
from loom_kernel.errors import StaleLeaseError, StorageUnavailableError
from loom_kernel.ids import HolderId, RunId
from loom_kernel.journal import commit_log, core
from loom_kernel.journal.abc import Append, JournalEntry, Lease, LeaseAcquired, LeaseHeld
from loom_kernel.journal.commit_log import CommitLog, record
from loom_kernel.journal.duckdb_store import DuckDBRunJournal
from loom_kernel.journal.hub import paths
from loom_kernel.journal.hub.client import HubJournal
from loom_kernel.journal.hub.server import Hub
from loom_kernel.journal.liveness import this_process
from loom_kernel.journal.tables import Tables
from tests.journal.hub.conftest import folder, hub_pids, sockets  # noqa: F401
from tests.journal.hub.parts import created, done, history, hub_pid, kill_hub, me, started
from tests.journal.lossy_disk import LossyDisk

pytestmark = pytest.mark.timeout(90)

ROOT = Path(__file__).parents[2]
ANN = this_process(HolderId("ann"))
STARTS = int(os.environ.get("LOOM_FAULT_STARTS", "5"))
"""How often two hubs are started at once; 50 by hand."""


def python(source: str, *args: object, **more: Any) -> subprocess.Popen[str]:
    """Another process."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", source, *map(str, args)], stdout=subprocess.PIPE, text=True, env=env, **more
    )


def big(n: int, size: int) -> Append:
    return Append(events.NodeCompleted(result=Raw(b'"%s"' % os.urandom(size // 2).hex().encode())), "n", f"big:{n}")


async def until(true: Callable[[], bool | Coroutine[Any, Any, bool]], seconds: float = 20) -> None:
    """Wait for it."""
    end = time.monotonic() + seconds
    while True:
        found = true()
        if found if isinstance(found, bool) else await found:
            return
        assert time.monotonic() < end, "it never came true"
        await asyncio.sleep(0.02)


async def rows(journal: Any, sql: str) -> list[tuple[Any, ...]]:
    path = await journal.query(sql)
    try:
        return duckdb.read_parquet(str(path)).fetchall()
    finally:
        path.unlink()


def in_process(folder: Path, body: Callable[[DuckDBRunJournal], Coroutine[Any, Any, None]]) -> None:  # noqa: F811
    async def main() -> None:
        async with await DuckDBRunJournal.open(folder) as journal:
            assert isinstance(journal, DuckDBRunJournal)
            await body(journal)

    asyncio.run(main())


async def begin(journal: Any, run_id: str = "run1") -> Lease:
    got = await journal.start_run(RunId(run_id), created(), ANN)
    assert isinstance(got, LeaseAcquired)
    return got.lease


# ---------------------------------------------------------------- processes


def test_the_hub_is_killed(folder: Path) -> None:  # noqa: F811
    """Appends on their way are answered a moment later, by the next hub, once; an outage is well under a second or two."""

    async def body() -> None:
        async with await HubJournal.open(folder, holder := me()) as journal:
            lease = (await started(journal, holder)).lease
            waiting = [asyncio.ensure_future(journal.append(lease, [done(n), done(-n - 1)])) for n in range(50)]
            kill_hub(folder)
            begin_ = time.monotonic()
            outcomes = await asyncio.gather(*waiting)
            assert time.monotonic() - begin_ < 10
            assert [outcome.entry.seq for batch in outcomes for outcome in batch] == list(range(3, 103))
            assert len(await history(journal)) == 102

    asyncio.run(body())


WORK = """
import asyncio, sys
from loom_kernel.errors import StaleLeaseError
from loom_kernel.journal.hub.client import HubJournal
from tests.journal.hub.parts import done, me, started
async def main():
    async with await HubJournal.open(sys.argv[1], holder := me("sleeper.ipynb")) as journal:
        lease = (await started(journal, holder)).lease
        print("held", flush=True)
        n = 0
        try:
            while True:
                await journal.append(lease, [done(n := n + 1)])
                await asyncio.sleep(0.02)
        except StaleLeaseError as error:
            print(type(error).__name__, error, flush=True)
asyncio.run(main())
"""


@pytest.mark.usefixtures("sockets")
def test_a_worker_is_stopped_for_longer_than_a_lease(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """SIGSTOP, and its lease runs out; somebody else takes the run. SIGCONT, and its next write fails, naming the new
    holder; nothing of it is in the run."""
    monkeypatch.setattr(core, "LEASE_TTL_S", 0.7)

    async def body() -> None:
        root = paths.journal_path(folder)
        paths.make_folder(root)
        store = await DuckDBRunJournal.open(root)
        assert isinstance(store, DuckDBRunJournal)
        hub = Hub(store, root, idle_s=600)
        ready = asyncio.Event()
        serving = asyncio.create_task(hub.serve(ready.set))
        await ready.wait()
        worker = python(WORK, folder)
        try:
            assert worker.stdout is not None
            assert (await asyncio.to_thread(worker.stdout.readline)).strip() == "held"
            await asyncio.sleep(1.0)
            assert isinstance(await store.acquire(RunId("run1"), ANN), LeaseHeld), "busy is not dead"
            worker.send_signal(signal.SIGSTOP)

            async def taken() -> bool:
                return isinstance(await store.acquire(RunId("run1"), ANN), LeaseAcquired)

            await until(taken)
            before = [entry async for entry in store.read(RunId("run1"))]
            assert before[-1].type == "lease.taken"
            worker.send_signal(signal.SIGCONT)
            said = await asyncio.to_thread(worker.stdout.readline)
            assert said.startswith("StaleLeaseError"), said
            assert f"pid {os.getpid()}" in said
            after = [entry async for entry in store.read(RunId("run1"))]
            assert after == before
        finally:
            worker.kill()
            await asyncio.to_thread(worker.communicate)
            hub.stop()
            await serving

    asyncio.run(body())


def test_the_hub_is_stopped_and_goes_on(folder: Path) -> None:  # noqa: F811
    """Whoever waits for it waits; the time in which it stood still makes no lease old."""

    async def body() -> None:
        async with await HubJournal.open(folder, holder := me()) as journal:
            lease = (await started(journal, holder)).lease
            os.kill(pid := hub_pid(folder), signal.SIGSTOP)
            waiting = asyncio.ensure_future(journal.append(lease, [done(1)]))
            await asyncio.sleep(1.0)
            assert not waiting.done()
            os.kill(pid, signal.SIGCONT)
            [outcome] = await asyncio.wait_for(waiting, 10)
            assert outcome.entry.seq == 3
            async with await HubJournal.open(folder, other := me("other")) as two:
                assert isinstance(await two.acquire(RunId("run1"), other), LeaseHeld)

    asyncio.run(body())


def test_two_hubs_are_started_at_once(folder: Path) -> None:  # noqa: F811
    """Again and again: one serves, the other process says that the place is taken, and ends. ``LOOM_FAULT_STARTS=50``."""
    root = paths.journal_path(folder)
    paths.make_folder(root)
    for turn in range(STARTS):
        read, write = os.pipe()
        command = [sys.executable, "-m", "loom_kernel.journal.hub", str(root), "--ready", str(write)]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        both = [subprocess.Popen(command, pass_fds=[write], env=env, start_new_session=True) for _ in range(2)]
        os.close(write)
        said = b""
        while part := os.read(read, 4096):
            said += part
        os.close(read)
        for process in both:
            process.wait()
        assert said.count(b"taken") == 2, (turn, said)
        assert said.count(b"\xa5taken\xc3") == 1, (turn, said)
        asyncio.run(until(lambda: hub_pids(folder) == [hub_pid(folder)]))
        kill_hub(folder)
        asyncio.run(until(lambda: not hub_pids(folder)))


def test_the_socket_is_deleted(folder: Path) -> None:  # noqa: F811
    """Those who are connected notice nothing. A newcomer cannot reach the hub, and does not start a second one: it gets a
    sentence, or the hub, which listens anew at its next look around."""

    async def body() -> None:
        async with await HubJournal.open(folder, holder := me()) as journal:
            lease = (await started(journal, holder)).lease
            paths.socket_path(paths.journal_path(folder)).unlink()
            await journal.append(lease, [done(1)])
            pid = hub_pid(folder)
            try:
                newcomer = await asyncio.wait_for(HubJournal.open(folder), 60)
            except StorageUnavailableError:
                pass
            else:
                assert len([entry async for entry in newcomer.read(RunId("run1"))]) == 3
                await newcomer.close()
            assert hub_pids(folder) == [pid]
            await journal.append(lease, [done(2)])

    asyncio.run(body())


@pytest.mark.parametrize("thread", ["loom-commit", "loom-apply"])
def test_a_thread_of_the_store_dies(folder: Path, monkeypatch: pytest.MonkeyPatch, thread: str) -> None:  # noqa: F811
    """Whatever it dies of, the owner is told in a sentence (a hub ends then), nothing more is taken, and nobody waits."""
    fatal: list[Exception] = []

    class Unforeseen(BaseException):
        pass

    def die(*_: Any) -> None:
        raise Unforeseen("of something")

    async def body(journal: DuckDBRunJournal) -> None:
        journal.on_fatal = fatal.append
        lease = await begin(journal)
        await rows(journal, "select 1")
        with monkeypatch.context() as patched:
            if thread == "loom-commit":
                journal._writer._took_s = 1.0  # on a slow disk it is the thread that commits
                patched.setattr(CommitLog, "write", die)
            else:
                patched.setattr(Tables, "apply", die)
            last = asyncio.ensure_future(journal.append(lease, [done(1)]))
            await until(lambda: bool(fatal))
        assert re.match(rf"the thread {thread} has died: Unforeseen: of something", str(fatal[0]))
        with pytest.raises(StorageUnavailableError, match="has died"):
            await journal.append(lease, [done(2)])
        assert len([entry async for entry in journal.read(RunId("run1"))]) >= 2
        if thread == "loom-apply":
            await last
            with pytest.raises(StorageUnavailableError, match="SQL is not up to date"):
                await journal.query("from events")
        assert not journal.stats()["threads_alive"]
        last.cancel()

    in_process(folder, body)


def test_a_hub_without_a_thread_ends_with_a_sentence(folder: Path) -> None:  # noqa: F811
    """In its log; its clients start another one and go on."""
    code = (
        "import sys; from loom_kernel.journal import tables\n"
        "class Unforeseen(BaseException): pass\n"
        "def die(*_): raise Unforeseen('of something')\n"
        "tables.Tables.apply = die\n"
        "from loom_kernel.journal.hub.__main__ import main\n"
        "sys.exit(main([sys.argv[1]]))"
    )
    root = paths.journal_path(folder)
    paths.make_folder(root)
    hub = python(code, root, stderr=subprocess.PIPE)

    async def body() -> None:
        await until(lambda: paths.read_info(root) is not None)
        async with await HubJournal.open(folder, holder := me()) as journal:
            lease = (await started(journal, holder)).lease
            for n in range(3):
                await journal.append(lease, [done(n)])
                await asyncio.sleep(0.3)
            assert len(await history(journal)) == 5
            assert hub_pid(folder) != hub.pid

    asyncio.run(body())
    _, said = hub.communicate(timeout=20)
    assert hub.returncode == 1
    assert "ending at once, clients will start another hub: the thread loom-apply has died: Unforeseen" in said
    assert "Traceback" not in said


# ---------------------------------------------------------------- disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 96 MB."""
    where = tmp_path / "disk"
    where.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", str(where)], capture_output=True).returncode:
        pytest.skip("mounting needs root; the limit on the size of files shows the same")
    yield where
    for pid in hub_pids(where / ".loom"):
        os.kill(pid, signal.SIGKILL)
    subprocess.run(["umount", "-l", str(where)], check=True)


@pytest.mark.usefixtures("sockets")
def test_the_disk_is_full(small_disk: Path) -> None:
    """Appends are refused with a sentence, nothing that was acknowledged is lost, reading goes on, SQL answers or says why
    not, at once; a new hub opens on the full disk; with room again writing goes on by itself."""
    folder = small_disk / ".loom"  # noqa: F811

    async def fill(journal: HubJournal, lease: Lease, acked: list[JournalEntry]) -> str:
        for n in range(len(acked), 1000):
            try:
                acked += [outcome.entry for outcome in await journal.append(lease, [big(n, 400_000)])]
            except StorageUnavailableError as error:
                return str(error)
        raise AssertionError("the disk was never full")

    async def body() -> None:
        async with await HubJournal.open(folder, holder := me()) as journal:
            lease = (await started(journal, holder)).lease
            acked: list[JournalEntry] = []
            ballast = small_disk / "ballast"
            await fill_up(ballast, leave=40 << 20)
            sentence = await fill(journal, lease, acked)
            assert "Free some space" in sentence
            assert len(acked) > 10

            async def refused() -> bool:
                try:
                    await journal.append(lease, [done(1)])
                except StorageUnavailableError as error:
                    return "is full: nothing is written until" in str(error)
                return False

            await until(refused, 5)
            assert (await history(journal))[2:] == acked
            began = time.monotonic()
            try:
                assert await rows(journal, "select count(*) from events where key like 'big:%'") == [(len(acked),)]
            except StorageUnavailableError as error:
                if "SQL is not up to date" not in str(error):
                    raise
            assert time.monotonic() - began < 5

            await fill_up(small_disk / "more", leave=0)
            kill_hub(folder)
            assert (await history(journal))[2:] == acked, "opened again, on a disk without a byte of room"
            await until(refused, 5)

            before = len(await history(journal))
            ballast.unlink()
            (small_disk / "more").unlink()

            async def healed() -> bool:
                try:
                    await journal.append(lease, [done(2)])
                except StorageUnavailableError:
                    return False
                return True

            await until(healed, 15)
            assert len(await history(journal)) == before + 1
            [(count,)] = await rows(journal, "select count(*) from events")
            assert count == before + 1
            status = await journal.hub()
            assert (status["full"], status["trouble"]) == (False, None)
            await until(lambda: (folder / "reserve.zeros").exists())

    async def fill_up(path: Path, leave: int) -> None:
        def write() -> None:
            free = os.statvfs(small_disk)
            size = free.f_bavail * free.f_frsize - leave
            with path.open("wb") as file:
                try:
                    for _ in range(size // 4096):
                        file.write(bytes(4096))
                    file.flush()
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

        await asyncio.to_thread(write)

    asyncio.run(body())


LIMITED = """
import asyncio, resource, sys
from pathlib import Path
from msgspec import Raw
from loom_kernel import events
from loom_kernel.errors import StorageUnavailableError
from loom_kernel.journal.abc import Append
from loom_kernel.journal.duckdb_store import DuckDBRunJournal
from loom_kernel.journal.liveness import this_process

async def main():
    async with await DuckDBRunJournal.open(Path(sys.argv[1])) as journal:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
        lease = (await journal.start_run("run1", events.RunCreated(workflow="w"), this_process("w"))).lease
        kept = 0
        try:
            while True:
                await journal.append(lease, [Append(events.NodeCompleted(result=Raw(b'"%s"' % (b"x" * 10_000))))])
                kept += 1
        except StorageUnavailableError as error:
            print(kept, error, flush=True)
        entries = [entry async for entry in journal.read("run1")]
        assert len(entries) == kept + 2, (len(entries), kept)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        for _ in range(200):
            try:
                await journal.append(lease, [Append(events.RunStarted(worker="w"))])
                break
            except StorageUnavailableError:
                await asyncio.sleep(0.05)
        else:
            raise AssertionError("it did not heal")
        await journal.query("from events")
        print(len([entry async for entry in journal.read("run1")]), flush=True)
asyncio.run(main())
"""


def test_files_may_not_grow(folder: Path) -> None:  # noqa: F811
    """A limit on the size of files is a full disk too: refused, kept, healed."""
    process = python(LIMITED, folder, stderr=subprocess.PIPE)
    said, complaint = process.communicate(timeout=60)
    assert process.returncode == 0, complaint
    first, second = said.splitlines()
    kept, _, sentence = first.partition(" ")
    assert "Free some space" in sentence
    assert int(second) == int(kept) + 3


@pytest.mark.usefixtures("sockets")
def test_the_folder_becomes_read_only(small_disk: Path) -> None:
    """Appends are refused in a sentence while it is, reading goes on; writable again, so is the journal, with all that it
    acknowledged."""
    folder = small_disk / ".loom"  # noqa: F811

    def remount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(small_disk)], check=True, capture_output=True)

    async def body() -> None:
        async with await HubJournal.open(folder, holder := me()) as journal:
            lease = (await started(journal, holder)).lease
            await journal.append(lease, [done(1)])
            os.kill(hub_pid(folder), signal.SIGKILL)
        for pid in hub_pids(folder):
            os.kill(pid, signal.SIGKILL)
        await until(lambda: not hub_pids(folder))
        await asyncio.to_thread(remount, "ro")
        with pytest.raises(StorageUnavailableError, match="Read-only file system"):
            await HubJournal.open(folder)
        await asyncio.to_thread(remount, "rw")
        async with await HubJournal.open(folder, me()) as journal:
            assert len(await history(journal)) == 3

    asyncio.run(body())


def test_the_wal_is_truncated(folder: Path, tmp_path: Path) -> None:  # noqa: F811
    """What the commit log still has is applied again; where it cannot be, opening says which events are missing. Cut
    anywhere, no event is shown that is not whole, and none is passed over in silence."""
    script = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from loom_kernel.journal import commit_log, room\n"
        "from loom_kernel.journal.duckdb_store import DuckDBRunJournal\n"
        "from tests.journal.test_faults import begin, big\n"
        "commit_log.SEGMENT_BYTES = int(sys.argv[2])\n"
        "room.RESERVE_AFTER_S = 60\n"
        "async def main():\n"
        "    journal = await DuckDBRunJournal.open(Path(sys.argv[1]))\n"
        "    lease = await begin(journal)\n"
        "    for n in range(40):\n"
        "        await journal.append(lease, [big(n, 2000), big(100 + n, 2000)])\n"
        "        if n % 10 == 9: await journal._reached(journal._acked)\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    outcomes = {"whole": 0, "missing": 0}
    for segment in (16 << 20, 20_000):
        left = tmp_path / f"left{segment}"
        writer = python(script, left, segment)
        writer.communicate(timeout=30)
        assert writer.returncode == -signal.SIGKILL
        wal = left / "loom.duckdb.wal"
        size = wal.stat().st_size
        assert size > 100_000
        for cut in (0, 1, size // 7, size // 3, size // 2, size - 5000, size - 1):
            copy = tmp_path / "copy"
            shutil.copytree(left, copy)
            with (copy / "loom.duckdb.wal").open("rb+") as file:
                file.truncate(cut)

            async def look(copy: Path = copy, segment: int = segment) -> None:
                try:
                    journal = await DuckDBRunJournal.open(copy)
                except StorageUnavailableError as error:
                    if segment > 20_000 or not re.search(
                        r"events \d+ to \d+, which were acknowledged, are m", str(error)
                    ):
                        raise
                    outcomes["missing"] += 1
                    return
                async with journal:
                    assert len([e.seq async for e in journal.read(RunId("run1"))]) == 82
                    assert await rows(journal, "select count(*), max(seq) from events") == [(82, 82)]
                outcomes["whole"] += 1

            asyncio.run(look())
            shutil.rmtree(copy)
    assert outcomes["whole"] >= 7, outcomes
    assert outcomes["missing"] >= 1, outcomes


SEEDS = int(os.environ.get("LOOM_FAULT_SEEDS", "200"))
"""How often the power goes six times."""


def test_writes_without_a_sync_are_lost_or_reordered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The power goes in the middle of a write, again and again: what was acknowledged is there, in order, whole changes
    only; a change that was on its way is there as a whole or not at all. ``LOOM_FAULT_SEEDS=20000`` for longer."""
    monkeypatch.setattr(commit_log, "SEGMENT_BYTES", 4096)
    for seed in range(SEEDS):
        (folder_ := tmp_path / str(seed)).mkdir()
        dice = random.Random(seed)
        acknowledged: list[list[JournalEntry]] = []
        lost: list[list[JournalEntry]] = []
        for turn in range(6):
            acknowledged, lost = until_the_power_goes(folder_, dice, acknowledged, lost, f"seed {seed}, turn {turn}")
        shutil.rmtree(folder_)


class PowerLost(Exception):
    pass


class Countdown(LossyDisk):
    """Loses its power at the n-th thing that is asked of it."""

    left = 1 << 30

    def _count(self) -> None:
        self.left -= 1
        if self.left <= 0:
            raise PowerLost

    def open(self, path: Path, *, create: bool = False) -> int:
        self._count()
        return super().open(path, create=create)

    def write(self, fd: int, data: bytes | memoryview, at: int) -> int:
        self._count()
        return super().write(fd, data, at)

    def sync(self, fd: int) -> None:
        self._count()
        super().sync(fd)

    def sync_folder(self, where: Path) -> None:
        self._count()
        super().sync_folder(where)

    def rename(self, old: Path, new: Path) -> None:
        self._count()
        super().rename(old, new)


def until_the_power_goes(
    where: Path,
    dice: random.Random,
    acknowledged: list[list[JournalEntry]],
    lost: list[list[JournalEntry]],
    said: str,
) -> tuple[list[list[JournalEntry]], list[list[JournalEntry]]]:
    """Open, check, write until the power goes; what must be there the next time, and what was on its way in vain."""
    disk = Countdown(where)
    log = CommitLog(where, disk)
    found = list(log.changes(0))
    assert found[: len(acknowledged)] == acknowledged, said
    number = found[-1][-1].global_seq if found else 0
    if dice.random() < 0.7:
        log._ahead = True
        log._fill()
    log._ahead = False  # one at a time: the dice decide, not the scheduler
    disk.left = dice.randint(1, 60)
    kept, batch = list(found), []
    with contextlib.suppress(PowerLost):
        if lost and dice.random() < 0.7:  # its writer, or somebody else in its place, writes something as long again
            batch = [[msgspec.structs.replace(entry, created_at=2) for entry in lost[0]]]
            number = batch[0][-1].global_seq
            log.write([record(batch[0])], batch[0][0].global_seq)
            kept += batch
            if dice.random() < 0.5:
                raise PowerLost
        while True:
            batch = []
            for _ in range(dice.randint(1, 3)):
                change = []
                for _ in range(dice.randint(1, 3)):
                    number += 1
                    payload = dice.randbytes(dice.choice([3, 90, 700, 2500]))
                    change.append(JournalEntry(number, "run", number, f"k{number}", "t", None, payload, 1))
                batch.append(change)
            log.write([record(change) for change in batch], batch[0][0].global_seq)
            kept += batch
            if dice.random() < 0.3:
                log._ahead = True
                log._fill()
                log._ahead = False
    disk.crash(dice)
    again = CommitLog(where, LossyDisk(where))
    after = list(again.changes(0))
    assert after[: len(kept)] == kept, said
    extra = after[len(kept) :]
    if extra:
        assert extra == batch[: len(extra)], said
    return after, batch[len(extra) :] if kept[-1:] != batch[-1:] else []


# ---------------------------------------------------------------- time and size


def test_the_clock_is_set_back(tmp_path: Path) -> None:
    """Leases do not notice; the events of a run still stand in the order of their times; ages are never negative."""

    class Wandering(SystemClock):
        offset = 0.0

        def time(self) -> float:
            return super().time() + self.offset

    clock = Wandering()

    async def body() -> None:
        async with await DuckDBRunJournal.open(tmp_path / ".loom", clock) as journal:
            assert isinstance(journal, DuckDBRunJournal)
            lease = await begin(journal)
            for offset in (0.0, -3600.0, -86_400.0, 7200.0, 0.0):
                clock.offset = offset
                await journal.append(lease, [done(int(offset))])
                state = await journal.lease_state(RunId("run1"))
                assert state is not None
                assert not state.expired
                assert 0 <= state.age_ms < 5000
            times = [entry.created_at async for entry in journal.read(RunId("run1"))]
            assert times == sorted(times)
            assert isinstance(await journal.acquire(RunId("run1"), me()), LeaseHeld)
            assert await rows(journal, "select count(*) from runs where duration_s < 0") == [(0,)]

    asyncio.run(body())


def test_a_value_of_200_megabytes(folder: Path) -> None:  # noqa: F811
    """It is written by its worker as a file and stays one; the hub's memory does not grow with it and nobody else waits."""

    async def body() -> None:
        data = os.urandom(1 << 20) * 200
        sha256 = hashlib.sha256(data).hexdigest()
        async with (
            await HubJournal.open(folder, one := me()) as journal,
            await HubJournal.open(folder, two := me()) as other,
        ):
            lease = (await started(journal, one)).lease
            others = (await started(other, two, "run2")).lease
            await other.append(others, [done(0)])
            before = memory(hub_pid(folder))
            slowest, n, ended = 0.0, 0, False

            async def beat() -> None:
                nonlocal slowest, n
                while not ended:
                    began = time.monotonic()
                    await other.append(others, [done(n := n + 1)])
                    slowest = max(slowest, time.monotonic() - began)
                    await asyncio.sleep(0.005)

            beating = asyncio.create_task(beat())
            await journal.put_blobs([(sha256, data)])
            reference = Raw(b'{"$loom":"bytes","blob":"%s","size":%d}' % (sha256.encode(), len(data)))
            await journal.append(lease, [Append(events.NodeCompleted(result=reference), "n", "n")])
            await rows(journal, "select count(*) from events")
            ended = True
            await beating
            assert await other.get_blob(sha256) == data
            assert memory(hub_pid(folder)) - before < 60_000, "kilobytes"
            assert slowest < 2.0
            print(f"\nslowest append of somebody else: {slowest * 1e3:.0f} ms")

    asyncio.run(body())


def memory(pid: int) -> int:
    """The most that a process ever had, in kilobytes."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1])


def test_stale_writers_know_who_has_their_run(folder: Path) -> None:  # noqa: F811
    """A write under an old lease names the new holder."""

    async def body() -> None:
        async with await HubJournal.open(folder, one := me("one")) as journal:
            old = (await started(journal, one)).lease
            async with await HubJournal.open(folder, two := me("two.ipynb")) as other:
                assert isinstance(await other.takeover(RunId("run1"), two, one.id), LeaseAcquired)
                with pytest.raises(StaleLeaseError, match=r"two\.ipynb"):
                    await journal.append(old, [done(1)])

    asyncio.run(body())
