"""What the edges of the commit log cost, for a person to read::

    python -m tests.bench.journal_edges sync             # one write and sync, into a growing and a prepared segment
    python -m tests.bench.journal_edges open 10000       # opening with so many finished runs; again and again
    python -m tests.bench.journal_edges start 20         # starting with and without a segment left by a killed process

Prints milliseconds: median and 99th percentile.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from msgspec import Raw

from loom_kernel import events
from loom_kernel.ids import HolderId, RunId
from loom_kernel.journal.abc import Append, JournalEntry, LeaseAcquired
from loom_kernel.journal.commit_log import CommitLog, record
from loom_kernel.journal.duckdb_store import DuckDBRunJournal
from loom_kernel.journal.liveness import this_process


def told(what: str, seconds: list[float]) -> None:
    """One line."""
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    print(f"{what:<44} p50 {statistics.median(ordered) * 1e3:8.3f}   p99 {p99 * 1e3:8.3f} ms", flush=True)


def sync(rounds: int = 3, writes: int = 1500) -> None:
    """A record of two small events, written and synced; the kinds take turns, so that both see the same disk."""
    entry = JournalEntry(1, "run", 1, "step:f:0123456789abcdef#1:done", "node.completed", "n", b"x" * 200, 1)
    taken: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        number = 0
        for turn in range(rounds * 2):
            log = CommitLog(Path(folder) / str(turn))
            list(log.changes(0))
            if turn % 2:
                log.fill_ahead()
                while not log._next_ready:
                    time.sleep(0.01)
            for _ in range(writes):
                number += 1
                data = [record([entry, entry])]
                begin = time.perf_counter()
                log.write(data, number)
                taken[bool(turn % 2)].append(time.perf_counter() - begin)
            log.close(everything_applied=True)
    told("a growing segment", taken[False])
    told("a segment filled with zeros ahead", taken[True])


async def fill(folder: Path, runs: int) -> None:
    """Finished runs of six events."""
    holder = this_process(HolderId("bench"))
    async with await DuckDBRunJournal.open(folder) as journal:

        async def one(i: int) -> None:
            started = await journal.start_run(RunId(f"run{i:09}"), events.RunCreated(workflow="w"), holder)
            assert isinstance(started, LeaseAcquired)
            step = Append(events.NodeCompleted(result=Raw(b'"%s"' % (b"x" * 100))), "step:f:#1", "step:f:#1:done")
            await journal.append(started.lease, [Append(events.RunStarted(worker="w")), step])
            await journal.append(started.lease, [Append(events.RunEnded(status="completed"))])
            await journal.release(started.lease)

        for at in range(0, runs, 500):
            await asyncio.gather(*(one(i) for i in range(at, min(runs, at + 500))))
        begin = time.perf_counter()
        await journal._reached(journal._acked)
        print(f"{runs} runs; heads in memory: {journal.stats()['heads']}; waited {time.perf_counter() - begin:.2f} s")


async def look(folder: Path, times: int = 15) -> None:
    """Open, get_run, list, first new run, in one process: without the imports."""
    opening, getting, listing, creating = [], [], [], []
    for i in range(times):
        begin = time.perf_counter()
        journal = await DuckDBRunJournal.open(folder)
        opening.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        await journal.create_run(RunId(f"new{os.getpid()}{i}"), events.RunCreated(workflow="w"))
        creating.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        assert await journal.get_run(RunId("run000000042")) is not None
        getting.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        assert len(await journal.list_runs(limit=50)) == 50
        listing.append(time.perf_counter() - begin)
        await journal.close()
    told("open", opening)
    told("first create_run after opening", creating)
    told("get_run of a finished run", getting)
    told("list_runs(limit=50)", listing)


def open_many(runs: int) -> None:
    """Fill a journal, leave it in good order, open it."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        begin = time.perf_counter()
        asyncio.run(fill(Path(folder), runs))
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        print(f"filled in {time.perf_counter() - begin:.1f} s, {size / 1e6:.1f} MB")
        asyncio.run(look(Path(folder)))


_START = """
import asyncio, sys, time, os
begin = time.perf_counter()
from pathlib import Path
from loom_kernel.journal.duckdb_store import DuckDBRunJournal
from loom_kernel import events
async def main():
    journal = await DuckDBRunJournal.open(Path(sys.argv[1]))
    print(time.perf_counter() - begin, flush=True)
    await journal.create_run(f"run{time.time_ns()}", events.RunCreated(workflow="w"))
    if sys.argv[2] == "kill":
        await asyncio.sleep(0.5)
        os.kill(os.getpid(), 9)
    await journal.close()
asyncio.run(main())
"""


def start(times: int) -> None:
    """From the first import to open, in a new process."""
    for how in ("leave", "kill"):
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            taken = [
                float(
                    subprocess.run([sys.executable, "-c", _START, folder, how], capture_output=True, text=True).stdout
                )
                for _ in range(times + 1)
            ]
        told(f"a process opens after one that was told to {how}", taken[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["sync", "open", "start"])
    parser.add_argument("number", type=int, nargs="?")
    chosen = parser.parse_args()
    if chosen.what == "sync":
        sync()
    elif chosen.what == "open":
        open_many(chosen.number or 10_000)
    else:
        start(chosen.number or 10)


if __name__ == "__main__":
    main()
