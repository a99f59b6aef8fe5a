"""The hub is killed at any moment: nothing acknowledged is lost, nothing is written twice, nothing has a gap."""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

import pytest

from loom_kernel import events
from loom_kernel.errors import StorageUnavailableError
from loom_kernel.ids import RunId
from loom_kernel.journal.abc import Append, AppendOutcome, Lease, LeaseAcquired
from loom_kernel.journal.hub import paths
from loom_kernel.journal.hub.client import HubJournal
from loom_kernel.journal.hub.launch import start_hub
from tests.journal.hub.conftest import hub_pids
from tests.journal.hub.parts import created, done, history, hub_pid, kill_hub, me, started


async def write_steps(journal: HubJournal, lease: Lease, first: int, count: int, acked: list[AppendOutcome]) -> None:
    """Sequential steps, as a workflow makes them: each waits for its own commit."""
    for n in range(first, first + count):
        acked += await journal.append(lease, [done(n)])


def test_twenty_kills_with_appends_in_flight(folder: Path) -> None:
    """Three writers and twenty SIGKILLs at random moments: every acknowledged event is there once, and no gap."""

    async def body() -> None:
        rng = random.Random(20)
        async with await HubJournal.open(folder, holder := me()) as journal:
            leases = [(await started(journal, holder, f"run{k}")).lease for k in range(3)]
            acked: list[AppendOutcome] = []
            writing = [asyncio.create_task(write_steps(journal, lease, 0, 10**6, acked)) for lease in leases]
            in_flight = 0
            for _ in range(20):
                await asyncio.sleep(rng.uniform(0.002, 0.05))
                in_flight += any(call.method == "append" for call in journal._link._pending.values())
                before = len(acked)
                kill_hub(folder)
                end = time.monotonic() + 20
                while len(acked) <= before + 3:
                    assert time.monotonic() < end, "no append came through after a kill"
                    await asyncio.sleep(0.001)
            for task in writing:
                task.cancel()
            await asyncio.gather(*writing, return_exceptions=True)
            print(f"\n20 kills, {in_flight} with appends in flight, {len(acked)} events acknowledged")
            assert in_flight >= 10
            assert {"appended"} == {outcome.status for outcome in acked}
            for lease in leases:
                entries = await history(journal, lease.run_id)
                keys = [entry.key for entry in entries]
                assert len(keys) == len(set(keys))
                kept = {entry.seq: entry for entry in entries}
                for outcome in acked:
                    if outcome.entry.run_id == lease.run_id:
                        assert kept[outcome.entry.seq] == outcome.entry

    asyncio.run(body())


@pytest.mark.parametrize("point", ["before_commit", "after_commit", "after_ack"])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_a_kill_at_each_point_of_an_append(folder: Path, point: str, n: int) -> None:
    """Before the commit, after it but before the answer, after the answer: the writer sees ten events, each once."""
    root = paths.journal_path(folder)
    paths.make_folder(root)
    start_hub(root, env={"LOOM_HUB_CRASH": f"{point}:{n}"})
    first = hub_pid(folder)

    async def body() -> None:
        async with await HubJournal.open(folder, holder := me()) as journal:
            lease = (await started(journal, holder)).lease
            acked: list[AppendOutcome] = []
            await write_steps(journal, lease, 0, 10, acked)

            assert first != hub_pid(folder)
            assert [outcome.status for outcome in acked] == ["appended"] * 10
            assert list(range(3, 13)) == [outcome.entry.seq for outcome in acked]
            assert len(await history(journal)) == 12

    asyncio.run(body())


@pytest.mark.parametrize("point", ["before_commit", "after_commit", "after_ack"])
def test_a_kill_at_the_end_of_a_run(folder: Path, point: str) -> None:
    """The last event gives the lease back; the writer that repeats it hears that the run ended, not that it lost it."""
    root = paths.journal_path(folder)
    paths.make_folder(root)
    start_hub(root, env={"LOOM_HUB_CRASH": f"{point}:2"})

    async def body() -> None:
        async with await HubJournal.open(folder, holder := me()) as journal:
            lease = (await started(journal, holder)).lease
            await journal.append(lease, [done(0)])
            last = [done(1), Append(events.RunEnded(status="completed"), None, "ended:1")]
            outcomes = await journal.append(lease, last)
            assert [outcome.entry.seq for outcome in outcomes] == [4, 5]
            await journal.release(lease)
            run = await journal.get_run(lease.run_id)
            assert run is not None and (run.status, run.last_seq) == ("completed", 5)

    asyncio.run(body())


def test_appends_without_a_key_are_not_doubled(folder: Path) -> None:
    """A log line has no key of its own; repeated after a kill it is still one line, and shows no made-up key."""
    root = paths.journal_path(folder)
    paths.make_folder(root)
    start_hub(root, env={"LOOM_HUB_CRASH": "after_commit:3"})

    async def body() -> None:
        async with await HubJournal.open(folder, holder := me()) as journal:
            lease = (await started(journal, holder)).lease
            for n in range(6):
                [outcome] = await journal.append(
                    lease, [Append(events.NodeLogged(attempt=1, lines=[str(n)]), "step:a:#1")]
                )
                assert outcome.status == "appended"
            entries = await history(journal)

            assert [[str(n)] for n in range(6)] == [e.event.lines for e in entries if e.type == "node.logged"]  # type: ignore[attr-defined]
            assert {None} == {e.key for e in entries if e.type == "node.logged"}

    asyncio.run(body())


def test_a_thousand_in_flight_survive_a_kill(folder: Path) -> None:
    """A fan-out in mid flight comes through whole."""

    async def body() -> None:
        async with await HubJournal.open(folder, holder := me()) as journal:
            lease = (await started(journal, holder)).lease
            waiting = [asyncio.ensure_future(journal.append(lease, [done(n)])) for n in range(1000)]
            await asyncio.sleep(0.001)
            kill_hub(folder)
            outcomes = [outcome for [outcome] in await asyncio.gather(*waiting)]

            assert {"appended"} == {outcome.status for outcome in outcomes}
            assert list(range(3, 1003)) == [outcome.entry.seq for outcome in outcomes]
            assert len(await history(journal)) == 1002

    asyncio.run(body())


def test_a_lease_survives_the_hub(folder: Path) -> None:
    """The epoch is durable, and to the next hub the lease counts as just renewed."""

    async def body() -> None:
        async with (
            await HubJournal.open(folder, mine := me("mine")) as journal,
            await HubJournal.open(folder, other := me("other")) as second,
        ):
            lease = (await started(journal, mine)).lease
            kill_hub(folder)
            held = await second.acquire(RunId("run1"), other)
            await journal.append(lease, [done(1)])
            state = await second.lease_state(RunId("run1"))

            assert not isinstance(held, LeaseAcquired)
            assert held.holder == mine
            assert state is not None
            assert not state.expired

    asyncio.run(body())


def test_an_acquire_and_a_post_come_through_a_kill(folder: Path) -> None:
    """What was asked while no hub was there is answered by the next one."""

    async def body() -> None:
        async with await HubJournal.open(folder, holder := me()) as journal:
            await journal.create_run(RunId("run1"), created())
            kill_hub(folder)
            got, posted = await asyncio.gather(
                journal.acquire(RunId("run1"), holder),
                journal.post(RunId("run1"), Append(events.StopRequested(by="me"))),
            )
            kill_hub(folder)
            made = await journal.create_run(RunId("run2"), created())

            assert isinstance(got, LeaseAcquired)
            assert posted.status == "appended"
            assert made == "created"

    asyncio.run(body())


def test_a_query_is_not_repeated(folder: Path) -> None:
    """It may be what the hub died of; it fails with a sentence, and asked again it works."""

    async def body() -> None:
        async with await HubJournal.open(folder, holder := me()) as journal:
            await started(journal, holder)
            slow = asyncio.ensure_future(
                journal.query("select count(*) from range(1000000) a, range(1000000) b", timeout_s=60)
            )
            await asyncio.sleep(0.3)
            kill_hub(folder)
            with pytest.raises(StorageUnavailableError, match="the hub restarted"):
                await slow
            path = await journal.query("select count(*) as n from events")

            assert path.exists()
            path.unlink()

    asyncio.run(body())


def test_a_query_whose_asker_goes_is_interrupted(folder: Path) -> None:
    """Cancelling the await stops the hub's work on it."""

    async def body() -> None:
        async with await HubJournal.open(folder) as journal:
            slow = asyncio.ensure_future(
                journal.query("select count(*) from range(1000000) a, range(1000000) b", timeout_s=60)
            )
            await asyncio.sleep(0.3)
            slow.cancel()
            await asyncio.gather(slow, return_exceptions=True)
            await asyncio.sleep(0.3)
            begin, cpu = time.monotonic(), _cpu(hub_pid(folder))
            await asyncio.sleep(0.5)

            assert _cpu(hub_pid(folder)) - cpu < 0.5 * (time.monotonic() - begin)

    asyncio.run(body())


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_hubs_that_die_again_and_again_are_given_up_with_a_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that kills every hub fails in the end; others go on afterwards."""
    monkeypatch.setenv("LOOM_HUB_CRASH", "before_commit:1")

    async def body() -> None:
        async with await HubJournal.open(folder, holder := me()) as journal:
            lease = (await started(journal, holder)).lease
            with pytest.raises(StorageUnavailableError, match="times in a row before it answered"):
                await journal.append(lease, [done(1)])
            monkeypatch.delenv("LOOM_HUB_CRASH")
            for _ in range(20):  # the hub that runs now may still be one that dies
                try:
                    await journal.append(lease, [done(2)])
                    break
                except StorageUnavailableError:
                    pass

            assert "step:work:0000000000000002#1:done" in {entry.key for entry in await history(journal)}

    asyncio.run(body())


def test_after_the_journal_is_closed_calls_say_so(folder: Path) -> None:
    """Close is idempotent; later calls raise."""

    async def body() -> None:
        journal = await HubJournal.open(folder, holder := me())
        lease = (await started(journal, holder)).lease
        last = journal.append(lease, [done(1)])
        await journal.close()
        await journal.close()

        assert (await last)[0].status == "appended"
        with pytest.raises(StorageUnavailableError, match="closed"):
            await journal.append(lease, [done(2)])
        with pytest.raises(StorageUnavailableError, match="closed"):
            await journal.get_run(RunId("run1"))
        assert len(hub_pids(folder)) == 1

    asyncio.run(body())
