"""The writer: what is committed together, and by whom."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from loom_kernel.journal.abc import JournalEntry
from loom_kernel.journal.commit_log import CommitLog
from loom_kernel.journal.core import Change, RunHead
from loom_kernel.journal.writer import FEW, CommitWriter, Write


class Disk(CommitLog):
    """A log that only remembers who wrote how much; ``slow`` seconds a sync, refusing while ``full``."""

    def __init__(self) -> None:
        self.commits: list[tuple[int, int]] = []
        self.slow = 0.0
        self.full = False

    def write(self, buffers: Sequence[bytes], first: int) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        time.sleep(self.slow)
        self.commits.append((len(buffers), threading.get_ident()))


def on_a_disk(work: Callable[[CommitWriter, Disk, list[Any]], Awaitable[None]]) -> None:
    """Run ``work`` with a writer, its disk, and a list of what it told."""

    async def main() -> None:
        disk, told = Disk(), list[Any]()
        writer = CommitWriter(
            disk,
            asyncio.get_running_loop(),
            durable=lambda entries: None,
            committed=told.extend,
            failed=lambda writes, error: told.append(error),
            full=lambda error: None,
            broken=lambda error: None,
        )
        try:
            await work(writer, disk, told)
        finally:
            writer.flush()
            await asyncio.to_thread(writer.stop)

    asyncio.run(asyncio.wait_for(main(), 10))


def write(n: int) -> Write:
    """One change of one entry."""
    change = Change(RunHead("r"))
    change.entries.append(JournalEntry(n, "r", n, None, "node.completed", None, b"{}", 0))
    return Write([change], lambda error: None)


def test_a_few_writes_are_one_commit_on_the_loop() -> None:
    """What one turn of the loop brings is synced once, and acknowledged before anything else happens."""

    async def work(writer: CommitWriter, disk: Disk, told: list[Any]) -> None:
        writes = [write(n) for n in range(1, FEW + 1)]
        for one in writes:
            writer.submit(one)
        writer.flush()
        assert disk.commits == [(FEW, threading.get_ident())]
        assert told == writes

    on_a_disk(work)


def test_many_writes_and_a_slow_disk_are_the_threads() -> None:
    """The loop waits for no disk twice, and order is kept: while the thread has something, all goes there."""

    async def work(writer: CommitWriter, disk: Disk, told: list[Any]) -> None:
        here = threading.get_ident()
        writes = [write(n) for n in range(1, FEW + 5)]
        disk.slow = 0.02
        writer.submit(writes[0])
        writer.flush()
        writer.submit(writes[1])
        writer.flush()
        disk.slow = 0.0
        for one in writes[2:]:
            writer.submit(one)
        writer.flush_soon()
        async with asyncio.timeout(5):
            while len(told) < len(writes):  # noqa: ASYNC110 - the writer is given a list to tell, not an event
                await asyncio.sleep(0.005)
        assert told == writes
        assert [thread == here for _, thread in disk.commits] == [True] + [False] * (len(disk.commits) - 1)
        writer.submit(write(100))
        writer.flush()
        assert disk.commits[-1] == (1, here), "a disk that is fast again is written to directly"

    on_a_disk(work)


def test_a_refusal_on_the_loop_is_told_at_once() -> None:
    """Nothing waits behind it, so the next write may be tried directly."""

    async def work(writer: CommitWriter, disk: Disk, told: list[Any]) -> None:
        disk.full = True
        writer.submit(write(1))
        writer.flush()
        assert isinstance(told[0], OSError)
        assert not writer.healing
        disk.full = False
        writer.submit(again := write(1))
        writer.flush()
        assert told[1:] == [again]

    on_a_disk(work)
