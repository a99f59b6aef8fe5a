"""A world for engine tests: a journal in memory, workers that come and go, people who answer, effects that are counted."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from loom_kernel import events as ev
from loom_kernel.authoring.result import RunResult
from loom_kernel.authoring.workflow import WorkflowDefinition, define
from loom_kernel.clock import Clock, SystemClock
from loom_kernel.engine.engine import Engine
from loom_kernel.engine.execution import Execution
from loom_kernel.errors import StorageUnavailableError
from loom_kernel.events import RunCreated
from loom_kernel.human.people import Interview
from loom_kernel.human.show import shown
from loom_kernel.ids import HolderId, Ids, RunId
from loom_kernel.journal.abc import Append, AppendOutcome, Holder, JournalEntry, Lease
from loom_kernel.journal.memory_store import MemoryRunJournal

_numbers = itertools.count(1)


def holder(pid: int = 1) -> Holder:
    """A worker that was not there before."""
    n = next(_numbers)
    return Holder(id=HolderId(f"worker-{n}"), pid=pid, label=f"worker {n}", kind="test")


def engine_on(journal: MemoryRunJournal, clock: Clock | None = None, **capabilities: Any) -> Engine:
    """An engine of a new worker, with people to ask."""
    return Engine(
        journal,
        holder=holder(),
        clock=clock or SystemClock(),
        ids=Ids(),
        capabilities={"ui": Interview, "shown": shown, **capabilities},
    )


class World:
    """One journal, one worker at a time."""

    def __init__(self, clock: Clock | None = None, journal: MemoryRunJournal | None = None) -> None:
        self.clock = clock or SystemClock()
        self.journal = journal or MemoryRunJournal(self.clock)
        self.engine = engine_on(self.journal, self.clock)
        self.effects: Counter[str] = Counter()

    def did(self, what: str) -> None:
        """An effect outside of the journal."""
        self.effects[what] += 1

    async def start(self, definition: Any, **inputs: Any) -> Execution:
        if not isinstance(definition, WorkflowDefinition):
            definition = define(definition)
        return await self.engine.start(definition, inputs, RunCreated(workflow=definition.name))

    async def run(self, definition: Any, **inputs: Any) -> RunResult[Any]:
        execution = await self.start(definition, **inputs)
        return await rest(execution)

    async def resume(self, run_id: str, definition: Any, **options: Any) -> Execution:
        if not isinstance(definition, WorkflowDefinition):
            definition = define(definition)
        return await self.engine.resume(run_id, definition, **options)

    async def restart(self) -> None:
        """The worker is closed, another one comes."""
        await self.engine.close()
        self.engine = engine_on(self.journal, self.clock)

    async def answer(self, execution: Execution, value: Any, prompt: str | None = None) -> AppendOutcome:
        """Answer an open question as a person does."""
        opened, node_id = await asked(execution, prompt)
        event = ev.PromptAnswered(generation=opened.generation, value=Raw(msgspec.json.encode(value)), by="ann")
        outcome = await self.journal.post(execution.run_id, Append(event, node_id, None))
        await until(lambda: execution.result.done() or execution.entries[-1].seq >= outcome.entry.seq)
        return outcome

    async def post(self, run_id: str, event: ev.Event, key: str | None = None) -> AppendOutcome:
        return await self.journal.post(RunId(run_id), Append(event, None, key))

    async def close(self) -> None:
        await self.engine.close()


async def rest(execution: Execution, timeout: float = 10.0) -> RunResult[Any]:
    """The result, in reasonable time."""
    return await asyncio.wait_for(asyncio.shield(execution.result), timeout)


async def until(condition: Callable[[], Any], timeout: float = 5.0) -> Any:
    """Wait until something holds."""
    end = asyncio.get_running_loop().time() + timeout
    while not (found := condition()):
        if asyncio.get_running_loop().time() > end:
            raise AssertionError("it did not come to that")
        await asyncio.sleep(0.002)
    return found


async def asked(execution: Execution, prompt: str | None = None) -> tuple[ev.PromptOpened, str]:
    """The open question, once it is open."""

    def find() -> tuple[ev.PromptOpened, str] | None:
        open_: dict[str, ev.PromptOpened] = {}
        for entry in execution.entries:
            if entry.type == "prompt.opened":
                open_[entry.node_id or ""] = entry.event  # type: ignore[assignment]
            elif entry.type in ("node.completed", "prompt.answered"):
                open_.pop(entry.node_id or "", None)
        return next(((o, n) for n, o in open_.items() if prompt in (None, o.prompt)), None)

    return await until(find)


def events_of(execution: Execution, kind: type[ev.Event] | None = None) -> list[Any]:
    """The run's events, of one kind."""
    return [entry.event for entry in execution.entries if kind is None or entry.type == kind.type]


def types_of(execution: Execution) -> list[str]:
    return [entry.type for entry in execution.entries]


def nodes(execution: Execution, kind: type[ev.Event] = ev.NodeStarted) -> list[str]:
    """Names of nodes that had such an event, in order."""
    return [(entry.node_id or "").split(":")[1] for entry in execution.entries if entry.type == kind.type]


def parents(execution: Execution) -> dict[str, list[str]]:
    """Parents of nodes, with names instead of ids where they are plain."""
    return {
        (entry.node_id or ""): list(entry.event.parents)  # type: ignore[attr-defined]
        for entry in execution.entries
        if entry.type in ("node.started", "prompt.opened")
    }


class Killed(StorageUnavailableError):
    """The worker was killed at this write."""

    def __init__(self) -> None:
        super().__init__("killed")


class DyingJournal(MemoryRunJournal):
    """Takes a number of appends and then none: what a worker sees that is killed there, and its journal afterwards.

    ``revive`` makes it an ordinary journal again.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self.left: int | None = None
        self.appends = 0

    def revive(self) -> None:
        self.left = None

    def append(
        self, lease: Lease, appends: Sequence[Append], *, expect_seq: int | None = None
    ) -> Awaitable[list[AppendOutcome]]:
        self.appends += 1
        if self.left is not None:
            if self.left == 0:
                future: asyncio.Future[list[AppendOutcome]] = asyncio.get_running_loop().create_future()
                future.set_exception(Killed())
                future.exception()
                return future
            self.left -= 1
        return super().append(lease, appends, expect_seq=expect_seq)


def entries_of(journal: MemoryRunJournal, run_id: str) -> list[JournalEntry]:
    """All that is written of a run."""
    return list(journal._runs.get(run_id, []))
