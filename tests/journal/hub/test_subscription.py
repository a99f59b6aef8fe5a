"""Pushes: ids and types only, filtered at the hub, without gap or repeat across its death."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

from loom_kernel import events
from loom_kernel.ids import RunId
from loom_kernel.journal.abc import Append, Notice, Subscription
from loom_kernel.journal.hub import launch, paths, protocol
from loom_kernel.journal.hub.client import HubJournal
from tests.journal.hub.parts import created, done, history, kill_hub, me, started


async def take(subscription: Subscription, count: int, timeout_s: float = 20.0) -> list[Notice]:
    """The next ``count`` notices."""
    got: list[Notice] = []

    async def collect() -> None:
        async for notices in _closing(subscription):
            got.extend(notices)
            if len(got) >= count:
                return

    await asyncio.wait_for(collect(), timeout_s)
    return got


async def _closing(subscription: Subscription) -> AsyncIterator[list[Notice]]:
    iterator = subscription.__aiter__()
    try:
        async for batch in iterator:
            yield batch
    finally:
        await iterator.aclose()  # type: ignore[attr-defined]


def test_backlog_then_live_in_order(folder: Path) -> None:
    """From a position on, everything comes once, the old and the new."""

    async def body() -> None:
        async with await HubJournal.open(folder, holder := me()) as writer, await HubJournal.open(folder) as reader:
            lease = (await started(writer, holder)).lease
            for n in range(50):
                await writer.append(lease, [done(n)])
            subscription = reader.subscribe(2)
            reading = asyncio.create_task(take(subscription, 100))
            for n in range(50, 100):
                await writer.append(lease, [done(n)])
            got = await reading

            assert list(range(3, 103)) == [notice.global_seq for notice in got]
            assert {("run1", "node.completed")} == {(notice.run_id, notice.type) for notice in got}

    asyncio.run(body())


def test_from_now_on_begins_with_the_call(folder: Path) -> None:
    """None means: nothing that was before, everything after."""

    async def body() -> None:
        async with await HubJournal.open(folder, holder := me()) as writer, await HubJournal.open(folder) as reader:
            lease = (await started(writer, holder)).lease
            await writer.append(lease, [done(1)])
            subscription = reader.subscribe()
            await reader.list_runs()  # the hub has heard of the subscription
            await writer.append(lease, [done(2)])

            assert [notice.global_seq for notice in await take(subscription, 1)] == [4]

    asyncio.run(body())


def test_filters_are_the_hubs(folder: Path) -> None:
    """Only the wanted run and types cross the socket."""

    async def body() -> None:
        async with await HubJournal.open(folder, holder := me()) as journal:
            leases = [(await started(journal, holder, f"run{k}")).lease for k in range(2)]
            one = journal.subscribe(0, run_id=RunId("run1"))
            posts = journal.subscribe(0, types=events.POSTS)
            seen: list[int] = []
            before = journal._notices
            journal._link._on_notices = lambda number, position, notices: (
                seen.append(len(notices)),
                before(number, position, notices),
            )  # type: ignore[func-returns-value,assignment,return-value]
            await asyncio.gather(*(journal.append(lease, [done(n)]) for lease in leases for n in range(20)))
            await journal.post(RunId("run0"), Append(events.StopRequested(by="me")))

            assert {"run1"} == {notice.run_id for notice in await take(one, 22)}
            assert [notice.type for notice in await take(posts, 1)] == ["run.stop_requested"]
            assert sum(seen) <= 22 + 1

    asyncio.run(body())


def test_a_subscriber_resumes_after_kills_without_gap_or_repeat(folder: Path) -> None:
    """Ten kills while two clients write and a third follows: the follower has exactly what the journal has."""

    async def body() -> None:
        rng = random.Random(3)
        async with await HubJournal.open(folder, holder := me()) as writer, await HubJournal.open(folder) as reader:
            lease = (await started(writer, holder)).lease
            got: list[Notice] = []

            async def follow() -> None:
                async for notices in reader.subscribe(0):
                    got.extend(notices)

            following = asyncio.create_task(follow())

            async def write() -> None:
                for n in range(10**6):
                    await writer.append(lease, [done(n)])

            writing = asyncio.create_task(write())
            for _ in range(10):
                await asyncio.sleep(rng.uniform(0.01, 0.08))
                kill_hub(folder)
                at = len(got)
                while len(got) <= at:  # noqa: ASYNC110
                    await asyncio.sleep(0.002)
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            await asyncio.sleep(0.3)
            entries = await history(writer)
            for _ in range(200):
                if len(got) >= len(entries):
                    break
                await asyncio.sleep(0.02)

            assert [(e.global_seq, e.seq, e.type, e.node_id) for e in entries] == [
                (n.global_seq, n.seq, n.type, n.node_id) for n in got
            ]
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    asyncio.run(body())


def test_from_now_on_survives_a_kill_before_the_first_notice(folder: Path) -> None:
    """The hub died before it had anything to tell; what comes after is told by the next one."""

    async def body() -> None:
        async with await HubJournal.open(folder, holder := me()) as writer, await HubJournal.open(folder) as reader:
            lease = (await started(writer, holder)).lease
            subscription = reader.subscribe()
            kill_hub(folder)
            await writer.append(lease, [done(1)])

            got: list[str] = []
            async for notices in subscription:
                got += [notice.type for notice in notices]
                if "node.completed" in got:
                    break

            assert got.count("node.completed") == 1

    asyncio.run(body())


def test_a_subscriber_that_does_not_read_costs_the_hub_no_memory(folder: Path) -> None:
    """Over a megabyte unsent it is left alone, and catches up from the journal once it reads."""

    async def body() -> None:
        async with await HubJournal.open(folder, holder := me()) as writer:
            lease = (await started(writer, holder)).lease
            sock = launch._connect(paths.journal_path(folder), 5.0)
            assert sock is not None
            with sock:
                hello = protocol.Hello(protocol=1, oldest=1, schema=launch.SCHEMA, version="0")
                sock.sendall(
                    protocol.frame(protocol.request(1, "hello", (hello,)))
                    + protocol.frame(protocol.request(2, "subscribe", (1, 0, None, None)))
                )
                count = 40_000  # about 3 MB of notices
                for n in range(0, count, 1000):
                    await writer.append(
                        lease,
                        [
                            Append(
                                events.NodeProgressed(done=float(k)), f"step:a-name-of-some-length:{k:016x}#1", f"{k}"
                            )
                            for k in range(n, n + 1000)
                        ],
                    )
                sock.settimeout(10)
                frames, got = protocol.Frames(), []
                while len(got) < count + 2:
                    for raw in frames.feed(await asyncio.to_thread(sock.recv, 1 << 16)):
                        answer = protocol.answer_decoder.decode(raw)
                        if answer.id == 0:
                            got += [notice.global_seq for notice in protocol.notices_decoder.decode(answer.value)[2]]

            assert list(range(1, count + 3)) == got

    asyncio.run(body())


def test_closing_a_subscription_ends_its_loop(folder: Path) -> None:
    """And the hub forgets it."""

    async def body() -> None:
        async with await HubJournal.open(folder, me()) as journal:
            subscription = journal.subscribe()
            reading = asyncio.create_task(take(subscription, 10**9))
            await asyncio.sleep(0.05)
            assert (await journal.hub())["subscriptions"] == 1
            subscription.close()
            await asyncio.wait_for(reading, 5)
            await journal.create_run(RunId("run1"), created())

            assert (await journal.hub())["subscriptions"] == 0

    asyncio.run(body())
