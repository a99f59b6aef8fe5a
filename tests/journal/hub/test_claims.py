"""Claims through the hub: workers that die, fall silent or go away, and a hub that is killed under them."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from loom_kernel import events
from loom_kernel.clock import VirtualClock
from loom_kernel.ids import RunId
from loom_kernel.journal.abc import Append, LeaseAcquired
from loom_kernel.journal.core import LEASE_TTL_S
from loom_kernel.journal.duckdb_store import DuckDBRunJournal
from loom_kernel.journal.hub.client import HubJournal
from tests.journal.hub.parts import created, kill_hub, me, started
from tests.journal.hub.test_leases import end, other_process

HAS = {"digest": ""}

pytestmark = pytest.mark.timeout(60)


def claimed(got: LeaseAcquired | None) -> tuple[str, str]:
    """Which run, and how its last lease came to an end."""
    assert got is not None
    taken = got.entries[-1].event
    assert isinstance(taken, events.LeaseTaken)
    return got.lease.run_id, taken.after


def test_a_dead_workers_run_is_claimed_at_once(folder: Path) -> None:
    """Whoever waits hears of it when the socket closes; nobody waits for thirty seconds."""
    process = other_process(folder)
    try:

        async def body() -> None:
            async with await HubJournal.open(folder, holder := me()) as journal:
                claim = asyncio.ensure_future(journal.claim(HAS, holder))
                await asyncio.sleep(0.2)
                assert not claim.done()
                os.kill(process.pid, signal.SIGKILL)
                begin = time.monotonic()
                got = await asyncio.wait_for(claim, 10)

                assert claimed(got) == ("run1", "expired")
                assert time.monotonic() - begin < 1

        asyncio.run(body())
    finally:
        end(process)


def test_a_worker_that_left_frees_its_run_after_two_seconds(folder: Path) -> None:
    """Its process lives and may be reconnecting."""

    async def body() -> None:
        async with await HubJournal.open(folder, b := me("b")) as two:
            one = await HubJournal.open(folder, a := me("a"))
            await started(one, a)
            claim = asyncio.ensure_future(two.claim(HAS, b))
            await one.close()
            begin = time.monotonic()
            got = await asyncio.wait_for(claim, 10)

            assert claimed(got) == ("run1", "expired")
            assert 1.0 < time.monotonic() - begin < 4.0

    asyncio.run(body())


def test_a_stopped_workers_run_is_claimed_when_its_lease_is_over_and_not_before(tmp_path: Path) -> None:
    """SIGSTOP is not death: the lease's thirty seconds count, by the journal's clock."""
    child = os.fork()
    if child == 0:
        while True:
            time.sleep(1)
    try:

        async def body() -> None:
            import msgspec

            from loom_kernel.journal.liveness import pid_started

            clock = VirtualClock()
            async with await DuckDBRunJournal.open(tmp_path / "home", clock) as journal:
                assert isinstance(journal, DuckDBRunJournal)
                other = msgspec.structs.replace(me("other"), pid=child, pid_started=pid_started(child))
                journal.holder_connected(other)
                await journal.start_run(RunId("run1"), created(), other)
                await clock.advance(LEASE_TTL_S + 1) if hasattr(clock, "advance") else await clock.sleep(
                    LEASE_TTL_S + 1
                )
                assert await journal.claim(HAS, me(), timeout_s=0) is None, "busy is not dead"
                journal.holder_seen(other.id)
                os.kill(child, signal.SIGSTOP)
                await asyncio.sleep(0.3)  # longer than the look at the process is remembered
                await clock.sleep(LEASE_TTL_S - 1)
                assert await journal.claim(HAS, me(), timeout_s=0) is None
                await clock.sleep(2)

                assert claimed(await journal.claim(HAS, me(), timeout_s=0)) == ("run1", "expired")

        asyncio.run(body())
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_claim_survives_the_hub(folder: Path) -> None:
    """It waits through a kill of the hub, and leases count as fresh after it."""

    async def body() -> None:
        async with (
            await HubJournal.open(folder, a := me("a")) as one,
            await HubJournal.open(folder, b := me("b")) as two,
        ):
            lease = (await started(one, a)).lease
            claim = asyncio.ensure_future(two.claim(HAS, b))
            await asyncio.sleep(0.1)
            kill_hub(folder)
            await one.append(lease, [Append(events.RunStarted(worker="a"))])
            state = await one.lease_state(RunId("run1"))
            assert state is not None
            assert not state.expired
            assert state.age_ms < 5_000
            await asyncio.sleep(0.3)
            assert not claim.done()
            await one.create_run(RunId("run2"), created())

            assert claimed(await asyncio.wait_for(claim, 10)) == ("run2", "")

    asyncio.run(body())


@pytest.mark.parametrize("point", ["claimed", "answered"])
def test_a_claim_whose_answer_is_lost_gets_the_same_run(folder: Path, point: str) -> None:
    """The hub dies between taking the lease and saying so: asked again it gives that run, not a second one."""

    async def body() -> None:
        async with await HubJournal.open(folder, a := me("a")) as one:
            for n in range(3):
                await one.create_run(RunId(f"run{n}"), created())
            link = one._link
            received = link._received

            def lose(wire: object, answer: object) -> None:
                if getattr(answer, "id", 0) == asked:
                    link._received = received  # type: ignore[method-assign]
                    if point == "answered":
                        kill_hub(folder)
                    wire.abort()  # type: ignore[attr-defined]
                    return
                received(wire, answer)  # type: ignore[arg-type]

            claim = asyncio.ensure_future(one.claim(HAS, a))
            link._received = lose  # type: ignore[method-assign]
            await asyncio.sleep(0)
            asked = max(link._pending)
            first = await asyncio.wait_for(claim, 10)
            assert claimed(first)[0] == "run0"
            second = await one.claim(HAS, a, timeout_s=0)

            assert claimed(second)[0] == "run1"

    asyncio.run(body())


def test_twenty_runs_and_four_claimers_each_run_once(folder: Path) -> None:
    """Nothing is given twice, nothing is left."""

    async def claimer(got: list[str]) -> None:
        async with await HubJournal.open(folder, holder := me()) as journal:
            while (found := await journal.claim(HAS, holder, timeout_s=0.5)) is not None:
                got.append(found.lease.run_id)
                await journal.append(found.lease, [Append(events.RunEnded(status="completed"))])
                await journal.release(found.lease)

    async def body() -> None:
        got: list[str] = []
        async with await HubJournal.open(folder, me()) as journal:
            for n in range(20):
                await journal.create_run(RunId(f"run{n:02}"), created())
            await asyncio.gather(*(claimer(got) for _ in range(4)))

        assert sorted(got) == [f"run{n:02}" for n in range(20)]

    asyncio.run(body())
