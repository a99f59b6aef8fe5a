"""Several processes, one run: who holds it, and when it is free."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec import Raw

from loom_kernel import events
from loom_kernel.errors import AnswerError, StaleLeaseError
from loom_kernel.ids import RunId
from loom_kernel.journal.abc import Append, LeaseAcquired, LeaseHeld
from loom_kernel.journal.hub.client import HubJournal
from tests.journal.hub.parts import created, done, history, me, started

ROOT = Path(__file__).parents[3]

HOLD = """
import asyncio, sys
from loom_kernel.journal.hub.client import HubJournal
from tests.journal.hub.parts import me, started
async def main():
    journal = await HubJournal.open(sys.argv[1], holder := me("other.ipynb"))
    await started(journal, holder)
    print("held", flush=True)
    if sys.argv[2] == "close":
        await journal.close()
        print("closed", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


def other_process(folder: Path, how: str = "hold") -> subprocess.Popen[str]:
    """Another process that holds ``run1``."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), how],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "held"
    if how == "close":
        assert process.stdout.readline().strip() == "closed"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


async def timed_acquire(folder: Path) -> tuple[LeaseAcquired | LeaseHeld, float]:
    async with await HubJournal.open(folder, holder := me()) as journal:
        begin = time.monotonic()
        return await journal.acquire(RunId("run1"), holder), time.monotonic() - begin


def test_a_live_holder_keeps_its_run(folder: Path) -> None:
    """Its connection is open and its process alive: busy is not dead."""
    process = other_process(folder)
    try:
        got, took = asyncio.run(timed_acquire(folder))

        assert isinstance(got, LeaseHeld)
        assert got.holder.label == "other.ipynb"
        assert process.pid == got.holder.pid
        assert took < 1
    finally:
        end(process)


def test_a_dead_holders_run_is_free_at_once(folder: Path) -> None:
    """A process that is gone cannot come back: nobody waits two seconds for it."""
    process = other_process(folder)
    end(process)
    got, took = asyncio.run(timed_acquire(folder))

    assert isinstance(got, LeaseAcquired)
    assert got.lease.epoch == 2
    assert took < 0.5


def test_a_closed_connection_of_a_living_process_frees_after_two_seconds(folder: Path) -> None:
    """It may be coming back; an acquire waits that moment out instead of following it."""
    process = other_process(folder, "close")
    try:
        got, took = asyncio.run(timed_acquire(folder))

        assert isinstance(got, LeaseAcquired)
        assert 1.0 < took < 3.0
    finally:
        end(process)


def test_a_stopped_holder_may_be_taken_over_when_it_is_stale(folder: Path) -> None:
    """A process that does not run does not keep its lease by an open socket."""
    process = other_process(folder)
    try:
        os.kill(process.pid, signal.SIGSTOP)

        async def body() -> None:
            async with await HubJournal.open(folder, holder := me()) as journal:
                assert isinstance(await journal.acquire(RunId("run1"), holder), LeaseHeld)
                await asyncio.sleep(0.3)
                got = await journal.takeover_expired(RunId("run1"), holder, 0.2)

                assert isinstance(got, LeaseAcquired)

        asyncio.run(body())
    finally:
        os.kill(process.pid, signal.SIGCONT)
        end(process)


def test_of_two_clients_one_gets_the_lease(folder: Path) -> None:
    """Both ask at once; one holds, the other is told who."""

    async def body() -> None:
        async with (
            await HubJournal.open(folder, a := me("a")) as one,
            await HubJournal.open(folder, b := me("b")) as two,
        ):
            await one.create_run(RunId("run1"), created())
            got = await asyncio.gather(one.acquire(RunId("run1"), a), two.acquire(RunId("run1"), b))
            [won] = [g for g in got if isinstance(g, LeaseAcquired)]
            [lost] = [g for g in got if isinstance(g, LeaseHeld)]

            assert won.lease.holder_id == lost.holder.id

    asyncio.run(body())


def test_a_taken_over_worker_cannot_write(folder: Path) -> None:
    """The fence: the journal has only what the new holder wrote."""

    async def body() -> None:
        async with (
            await HubJournal.open(folder, a := me("a")) as one,
            await HubJournal.open(folder, b := me("b")) as two,
        ):
            old = (await started(one, a)).lease
            await one.append(old, [done(1)])
            got = await two.takeover(RunId("run1"), b, a.id)
            assert isinstance(got, LeaseAcquired)
            with pytest.raises(StaleLeaseError):
                await one.append(old, [done(2)])
            with pytest.raises(StaleLeaseError):
                await one.renew(old)
            await two.append(got.lease, [done(2)])

            assert [entry.type for entry in await history(two)] == [
                "run.created",
                "lease.taken",
                "node.completed",
                "lease.taken",
                "node.completed",
            ]

    asyncio.run(body())


def test_either_client_may_answer_and_the_first_wins(folder: Path) -> None:
    """A question of one kernel's run, answered from both: one answer is kept, the other is told whose."""

    async def body() -> None:
        async with await HubJournal.open(folder, a := me("a")) as one, await HubJournal.open(folder, me("b")) as two:
            lease = (await started(one, a)).lease
            opened = events.PromptOpened(prompt="go", kind="confirm", message="Go?")
            await one.append(
                lease, [Append(events.RunStarted(worker="a")), Append(opened, "prompt:go:#1", "prompt:go:#1:open:1")]
            )

            def answer(value: bytes, by: str) -> Append:
                return Append(
                    events.PromptAnswered(generation=1, value=Raw(value), by=by),
                    "prompt:go:#1",
                    "answer:prompt:go:#1:1",
                )

            outcomes = await asyncio.gather(
                one.post(RunId("run1"), answer(b"true", "a")), two.post(RunId("run1"), answer(b"false", "b"))
            )

            assert {"appended", "exists"} == {outcome.status for outcome in outcomes}
            assert len({outcome.entry for outcome in outcomes}) == 1
            with pytest.raises(AnswerError):
                await two.post(
                    RunId("run1"),
                    Append(
                        events.PromptAnswered(generation=1, value=Raw(b"1")), "prompt:no:#1", "answer:prompt:no:#1:1"
                    ),
                )

    asyncio.run(body())


def test_a_run_of_a_process_that_left_is_interrupted(folder: Path) -> None:
    """Derived, not stored: running, and nobody has a live lease."""
    process = other_process(folder)
    end(process)

    async def body() -> None:
        async with await HubJournal.open(folder, a := me()) as journal:
            lease = (await started(journal, a, "run2")).lease
            await journal.append(lease, [Append(events.RunStarted(worker="a"))])
            runs = {run.run_id: run.interrupted for run in await journal.list_runs()}

            assert runs["run2"] is False

    asyncio.run(body())


def test_a_renewed_connection_of_the_same_holder_keeps_the_lease(folder: Path) -> None:
    """The connection breaks and comes back within two seconds: nobody notices."""

    async def body() -> None:
        async with (
            await HubJournal.open(folder, a := me("a")) as one,
            await HubJournal.open(folder, b := me("b")) as two,
        ):
            lease = (await started(one, a)).lease
            assert one._link._wire is not None
            one._link._wire.abort()
            await one.append(lease, [done(1)])
            got = await two.acquire(RunId("run1"), b)

            assert isinstance(got, LeaseHeld)
            await one.append(lease, [done(2)])

    asyncio.run(body())
