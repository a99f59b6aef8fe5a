"""Stop, cancel, kill, takeover and resume against work that completes: a thousand orders, each chosen by a seed."""

from __future__ import annotations

import asyncio
import gc
import random
from collections import Counter
from contextvars import ContextVar
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from loom_kernel import events as ev
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import step
from loom_kernel.authoring.workflow import define
from loom_kernel.engine.engine import Engine
from loom_kernel.engine.execution import Execution
from loom_kernel.errors import AnswerError, ResumeError, RunOverError, StaleLeaseError
from loom_kernel.events import RunCreated
from loom_kernel.ids import RunId
from loom_kernel.journal.abc import Append, JournalEntry
from loom_kernel.journal.memory_store import MemoryRunJournal
from tests.engine.harness import engine_on, entries_of
from tests.engine.seeded_loop import SeededLoop

SEEDS = 1_000

ROUNDS = 9
"""Executions of one run, at most; the last ones are left in peace."""

CALM_AFTER = 5


RACE: ContextVar[Race] = ContextVar("race")


async def work(what: str) -> str:
    """An effect that takes some turns of the loop, or some time."""
    here = RACE.get()
    here.effects[what] += 1
    for _ in range(here.chance.randrange(4)):
        await asyncio.sleep(0)
    if here.chance.random() < 0.5:
        await asyncio.sleep(here.chance.random() * 0.02)
    return what


@step
async def piece(n: int) -> str:
    return await work(f"piece {n}")


@step
async def last(parts: list[str]) -> str:
    return await work("last")


async def tool(args: int) -> str:
    return await work("tool")


async def _inner(ctx: Context) -> str:
    return await piece(10) + await piece(11)


INNER = define(_inner)


async def _body(ctx: Context) -> str:
    first = await piece(0)
    both = await asyncio.gather(piece(1), ctx.tool("tool", 1, tool), piece(2))
    sure = await ctx.ui.confirm("Go on?", name="go")
    inside = await ctx.workflow(INNER)
    return f"{await last([first, *both])} {sure} {inside.result}"


DISTURBED = define(_body)


class Race:
    """One run, and what happens to it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"race {seed}")
        RACE.set(self)  # before an engine remembers its context
        self.journal = MemoryRunJournal()
        self.engines: list[Engine] = [engine_on(self.journal)]
        self.effects: Counter[str] = Counter()
        self.met: Counter[str] = Counter()
        self.cancelled = False
        self.definition = DISTURBED

    async def run(self) -> None:
        """Until it has ended; every execution is disturbed but the last ones."""
        engine = self.engines[0]
        execution: Execution | None = await engine.start(self.definition, {}, RunCreated(workflow=self.definition.name))
        assert execution is not None
        run_id = execution.run_id
        answering = asyncio.create_task(self._answer(run_id))
        for n in range(ROUNDS):
            status = await self._rest(execution, calm=n >= CALM_AFTER) if execution is not None else ""
            if status in ev.TERMINAL:
                break
            execution = await self._resume(run_id)
        else:
            raise AssertionError(f"run did not end in {ROUNDS} executions: {self._types(run_id)}")
        await self._cancel_task(answering)
        for engine in self.engines:
            await engine.close()
        self._check(run_id, status)

    async def _cancel_task(self, task: asyncio.Task[Any]) -> None:
        task.cancel()
        await asyncio.wait({task})

    async def _turns(self) -> None:
        """A while."""
        for _ in range(self.chance.randrange(30)):
            await asyncio.sleep(0)
        if self.chance.random() < 0.6:
            await asyncio.sleep(self.chance.random() * 0.06)

    async def _rest(self, execution: Execution, *, calm: bool) -> str:
        disturbing = asyncio.create_task(self._disturb(execution)) if not calm else None
        twice = asyncio.create_task(self._disturb(execution)) if not calm and self.chance.random() < 0.3 else None
        try:
            result = await asyncio.wait_for(asyncio.shield(execution.result), 60)
            return result.status
        except StaleLeaseError:
            return "taken"
        finally:
            for task in (disturbing, twice):
                if task is not None:
                    await task

    async def _disturb(self, execution: Execution) -> None:
        await self._turns()
        run_id = execution.run_id
        what = self.chance.choices(["stop", "kill", "take", "cancel", "nothing"], [5, 3, 3, 1, 2])[0]
        self.met[what] += 1
        try:
            match what:
                case "stop":
                    await self.journal.post(run_id, Append(ev.StopRequested(by="ann"), None, None))
                case "cancel":
                    kill = self.chance.random() < 0.5
                    await self.journal.post(run_id, Append(ev.CancelRequested(by="ann", kill=kill), None, None))
                    self.cancelled = True
                case "kill":
                    await execution.close()
                case "take":
                    engine = engine_on(self.journal)
                    self.engines.append(engine)
                    taken = await engine.resume(run_id, self.definition, take=True)
                    await taken.close()
        except (RunOverError, ResumeError):
            self.met[f"{what} too late"] += 1

    async def _resume(self, run_id: RunId) -> Execution | None:
        """One worker resumes it, or two at once, of whom one may."""
        rivals = [engine_on(self.journal) for _ in range(self.chance.choice([1, 1, 2]))]
        self.engines += rivals
        got = await asyncio.gather(
            *(engine.resume(run_id, self.definition) for engine in rivals), return_exceptions=True
        )
        won = [one for one in got if isinstance(one, Execution)]
        for one in got:
            assert isinstance(one, Execution | ResumeError), repr(one)
        self.met["rivals"] += len(rivals) - 1
        assert len(won) <= 1, "two workers execute one run"
        return won[0] if won else None

    async def _answer(self, run_id: RunId) -> None:
        """A person, who answers whenever a question is open."""
        while True:
            await asyncio.sleep(0.005)
            opened = [e for e in entries_of(self.journal, run_id) if e.type == "prompt.opened"]
            if opened and self.chance.random() < 0.5:
                event = opened[-1].event
                assert isinstance(event, ev.PromptOpened)
                answer = ev.PromptAnswered(generation=event.generation, value=Raw(msgspec.json.encode(True)), by="ann")
                key = f"answer:{opened[-1].node_id}:{event.generation}"
                try:
                    await self.journal.post(run_id, Append(answer, opened[-1].node_id, key))
                except (AnswerError, RunOverError):
                    continue

    def _types(self, run_id: str) -> list[str]:
        return [entry.type for entry in entries_of(self.journal, run_id)]

    def _check(self, run_id: RunId, status: str) -> None:
        entries = entries_of(self.journal, run_id)
        assert status == "completed" or (status in ("cancelled", "killed") and self.cancelled), (
            status,
            self._types(run_id),
        )
        for run in {run_id, *(e.event.child_run_id for e in entries if getattr(e.event, "child_run_id", None))}:  # type: ignore[attr-defined]
            own = entries_of(self.journal, run)
            if own or status == "completed":  # a cancel may come between a child's node and its run
                self._check_run(run, own)
        if status == "completed":
            ended = next(e.event for e in entries if isinstance(e.event, ev.RunEnded))
            assert msgspec.json.decode(bytes(ended.result)) == "last True piece 10piece 11"
            assert set(self.effects) == {"piece 0", "piece 1", "piece 2", "tool", "piece 10", "piece 11", "last"}

    def _check_run(self, run_id: str, entries: list[JournalEntry]) -> None:
        types = [entry.type for entry in entries]
        ends = [i for i, type_ in enumerate(types) if type_ == "run.ended"]
        assert len(ends) == 1, (run_id, types)
        # A worker that came too late took the lease, saw that the run had ended, and gave it back.
        assert set(types[ends[0] + 1 :]) <= {"lease.taken"}, types[ends[0] :]
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        resting, completed = False, set[str]()
        for entry in entries:
            if entry.type == "lease.taken":
                resting = False
            elif entry.type in ("run.paused", "run.ended"):
                assert not resting, ("two rests in one execution", types)
                resting = True
            elif entry.type not in ev.POSTS:
                assert not resting, (entry.type, types)
            if entry.type == "node.completed":
                assert entry.node_id not in completed, ("completed twice", entry.node_id)
                completed.add(entry.node_id or "")
            if entry.type == "node.started":
                assert entry.node_id not in completed, ("begun again after it had completed", entry.node_id)


def race(seed: int) -> Race:
    """Run one seed on a loop of its own."""
    loop = SeededLoop(seed)
    try:
        asyncio.set_event_loop(loop)
        one = Race(seed)
        loop.run_until_complete(one.run())
        left = [task for task in asyncio.all_tasks(loop) if not task.done()]
        assert not left, left
        if seed % 25 == 0:
            gc.collect()
        assert not loop.complaints, loop.complaints
        return one
    finally:
        asyncio.set_event_loop(None)
        loop.close()


@pytest.mark.timeout(300)
def test_a_thousand_orders_of_stop_cancel_kill_takeover_and_resume_lose_no_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every run ends once, with its value or as cancelled; finished work is not begun again; nobody complains."""
    met: Counter[str] = Counter()
    unraisable: list[str] = []
    monkeypatch.setattr("sys.unraisablehook", lambda said: unraisable.append(repr(said.exc_value)))
    for seed in range(SEEDS):
        try:
            met += race(seed).met
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    gc.collect()
    assert not unraisable, unraisable
    print(dict(met))
    assert min(met[what] for what in ("stop", "kill", "take", "cancel", "rivals")) >= 50, met
