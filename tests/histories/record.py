"""Makes the recorded histories: ``python -m tests.histories.record [NAME...]``. Those that are there are left alone.

A history stands for the version that wrote it, so it is made once and never again; a new case is a new workflow.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec

from loom_kernel import events
from loom_kernel.clock import VirtualClock
from loom_kernel.ids import Ids
from loom_kernel.journal import histories
from loom_kernel.journal.abc import JournalEntry, RunJournal
from loom_kernel.journal.memory_store import MemoryRunJournal
from loom_kernel.runtime.core import Runtime
from loom_kernel.runtime.host import Place, ScriptHost
from loom_kernel.settings import Settings
from tests.histories import flows

HERE = Path(__file__).resolve().parent

ANSWERS: dict[str, dict[str, Any]] = {"asking": {"go": True, "way": "right"}}

NAMES = (
    "sequence", "together", "parent", "asking", "retried", "passed", "failed", "leaving", "sleeping", "values", "stopped",
)  # fmt: skip


class Host(ScriptHost):
    """Nobody is there to answer."""

    def place(self) -> Place:
        return Place(label="test", kind="test", headless=True)


async def record(name: str, journal: MemoryRunJournal, clock: VirtualClock) -> None:
    """Run it to its rest."""

    async def opened() -> RunJournal:
        return journal

    definition = getattr(flows, name)
    runtime = Runtime(Settings(environ={}), Host("test"), journal=opened, clock=clock, ids=Ids(1))
    try:
        options = definition.options(answers=ANSWERS.get(name, {}), fresh=True).start_options
        await (await runtime.start_async(definition, {}, options)).settled()
    finally:
        runtime.close()


def plain(entry: JournalEntry) -> JournalEntry:
    """Without what is only about the machine."""
    event = entry.event
    if isinstance(event, events.LeaseTaken):
        event = msgspec.structs.replace(event, pid=1, host="host", pid_started=0.0, boot_id="")
    if isinstance(event, events.RunCreated):
        event = msgspec.structs.replace(event, environment={})
    return msgspec.structs.replace(entry, payload=events.encode(event))


def main(names: list[str]) -> None:
    """Record those that are missing."""
    for name in names or NAMES:
        path = HERE / f"{name}.jsonl"
        if path.exists():
            continue
        clock = VirtualClock()
        journal = MemoryRunJournal(clock)
        asyncio.run(record(name, journal, clock))
        text = histories.dump(map(plain, journal._all), journal._blobs)
        path.write_text(text.replace(f"{HERE.parent.parent}/", ""))
        print(path.name, len(journal._all))


if __name__ == "__main__":
    main(sys.argv[1:])
