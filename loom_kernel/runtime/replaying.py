"""Replaying recorded runs against today's code: of the journal, of a file, and making such a file."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loom_kernel.authoring.workflow import WorkflowDefinition
from loom_kernel.clock import VirtualClock
from loom_kernel.engine.replaying import Replay
from loom_kernel.errors import LoomError, UnknownRunError
from loom_kernel.ids import Ids, RunId
from loom_kernel.journal import histories
from loom_kernel.journal.abc import JournalEntry, RunJournal
from loom_kernel.runtime.host import Place, ScriptHost
from loom_kernel.settings import Settings

if TYPE_CHECKING:
    from loom_kernel.runtime.core import Runtime

_BLOB = re.compile(rb'"([0-9a-f]{64})"')

Definitions = Callable[[str], WorkflowDefinition[..., Any]]
"""From a workflow's name to its definition."""


class _NobodyHost(ScriptHost):
    def place(self) -> Place:
        return Place(label="replay", kind="test", headless=True)


def replay_run(
    runtime: Runtime,
    run_id: str,
    definition: WorkflowDefinition[..., Any],
    *,
    secrets: Mapping[str, Any] | None = None,
) -> Replay:
    """Replay a run of the runtime's journal, which is only read.

    Raises:
        UnknownRunError: there is no such run.
        ResumeError: it is a run of another workflow, or a secret input is missing.
    """

    async def do() -> Replay:
        await runtime.opened()
        report: Replay = await runtime.engine.replay(run_id, definition, secrets=secrets)
        return report

    return runtime.loop.call(do, "replay()", "replay() outside of the loop of all runs")


def replay_history(
    entries: Iterable[JournalEntry],
    blobs: Mapping[str, bytes],
    definition: WorkflowDefinition[..., Any] | Definitions,
    *,
    secrets: Mapping[str, Any] | None = None,
) -> Replay:
    """Replay recorded events; the first event's run is replayed. No journal of the project is opened."""
    from loom_kernel.runtime.core import Runtime

    entries = list(entries)
    if not entries:
        raise LoomError("a history without events cannot be replayed")
    if not isinstance(definition, WorkflowDefinition):
        created = entries[0].event
        definition = definition(getattr(created, "workflow", ""))

    async def journal() -> RunJournal:
        return histories.journal_of(entries, blobs)

    made = Runtime(Settings(environ={}), _NobodyHost("test"), journal=journal, clock=VirtualClock(), ids=Ids(1))
    try:
        return replay_run(made, entries[0].run_id, definition, secrets=secrets)
    finally:
        made.close()


async def export(journal: RunJournal, run_id: str) -> str:
    """The run and its children as the lines of a history file. On the loop thread.

    Raises:
        UnknownRunError: there is no such run.
    """
    entries: list[JournalEntry] = []
    todo, seen = [run_id], set[str]()
    while todo:
        found = todo.pop(0)
        if found in seen:
            continue
        seen.add(found)
        own = [entry async for entry in journal.read(RunId(found))]
        entries += own
        todo += [child for entry in own if (child := getattr(entry.event, "child_run_id", None))]
    if not entries:
        raise UnknownRunError(run_id)
    blobs: dict[str, bytes] = {}
    for entry in entries:
        for name in _BLOB.findall(entry.payload):
            with contextlib.suppress(LoomError, LookupError, OSError):  # a hash of something else
                blobs[name.decode()] = await journal.get_blob(name.decode())
    return histories.dump(entries, blobs)


def save(runtime: Runtime, run_id: str, path: str | Path) -> Path:
    """Write a run of the runtime's journal, and its children's, to a file that can be replayed for ever.

    Raises:
        UnknownRunError: there is no such run.
    """

    async def do() -> str:
        return await export(await runtime.opened(), run_id)

    text = runtime.loop.call(do, "save()", "save() outside of the loop of all runs")
    target = Path(path)
    target.write_text(text, encoding="utf-8")
    return target
