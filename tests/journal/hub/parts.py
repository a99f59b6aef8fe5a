"""What the tests of the hub have in common: runs to write, holders to write as, and a look at what is there."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from msgspec import Raw

from loom_kernel import events
from loom_kernel.ids import HolderId, Ids, RunId
from loom_kernel.journal.abc import Append, Holder, JournalEntry, LeaseAcquired, RunJournal
from loom_kernel.journal.hub import paths
from loom_kernel.journal.liveness import this_process

ids = Ids()


def me(label: str = "test") -> Holder:
    """A holder that this process is."""
    return this_process(ids.holder_id(), label=label, kind="test")


def created(workflow: str = "digest", **more: object) -> events.RunCreated:
    """The first event of a run."""
    return events.RunCreated(workflow=workflow, **more)  # type: ignore[arg-type]


def done(n: int, result: bytes = b"1") -> Append:
    """The completion of the n-th step."""
    node = f"step:work:{n:016x}#1"
    return Append(events.NodeCompleted(result=Raw(result)), node, f"{node}:done")


async def started(journal: RunJournal, holder: Holder, run_id: str = "run1") -> LeaseAcquired:
    """A run that ``holder`` holds."""
    got = await journal.start_run(RunId(run_id), created(), holder)
    assert isinstance(got, LeaseAcquired), got
    return got


async def history(journal: RunJournal, run_id: str = "run1") -> list[JournalEntry]:
    """All events of a run, checked for gaps."""
    entries = [entry async for entry in journal.read(RunId(run_id))]
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert sorted({entry.global_seq for entry in entries}) == [entry.global_seq for entry in entries]
    return entries


def hub_pid(folder: Path) -> int:
    """The pid of the hub that serves ``folder``."""
    info = paths.read_info(paths.journal_path(folder))
    assert info is not None, "no hub serves the folder"
    return info.pid


def kill_hub(folder: Path) -> int:
    """SIGKILL the hub; its pid."""
    pid = hub_pid(folder)
    os.kill(pid, signal.SIGKILL)
    return pid


def holder_id(text: str) -> HolderId:
    return HolderId(text)
