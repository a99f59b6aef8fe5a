"""What every journal must do, as tests. Subclass, say how yours is opened, and let pytest collect it::

    class TestMyJournal(RunJournalConformance):
        async def open_journal(self) -> RunJournal:
            return await MyJournal.open(self.folder)

The suite needs pytest and no plugin. ``persistent = True`` adds the tests that close a journal and open it again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from msgspec import Raw

from loom_kernel import events
from loom_kernel.errors import (
    AnswerError,
    JournalCasConflictError,
    RunOverError,
    SqlError,
    StaleLeaseError,
    StorageUnavailableError,
    UnknownRunError,
)
from loom_kernel.events import RunCreated
from loom_kernel.ids import HolderId, RunId
from loom_kernel.journal.abc import (
    Append,
    AppendOutcome,
    Holder,
    JournalEntry,
    Lease,
    LeaseAcquired,
    LeaseHeld,
    Notice,
    RunJournal,
    Subscription,
)
from loom_kernel.journal.liveness import this_process

S = TypeVar("S", bound="RunJournalConformance")

A, B = RunId("aaaaaaaaaaaa"), RunId("bbbbbbbbbbbb")
ANN, BOB = this_process(HolderId("ann"), label="ann's notebook"), this_process(HolderId("bob"), label="bob's script")
GO = "prompt:go:#1"
HAS, WORK = {"work": "1"}, RunCreated(workflow="work", definition_version="1", for_worker=True)


def _test(body: Callable[[S, Any], Coroutine[Any, Any, None]]) -> Callable[[S], None]:
    """Run the body on a loop of its own with a new journal, which is closed afterwards."""

    def test(self: S) -> None:
        async def with_journal() -> None:
            journal = await self.open_journal()
            try:
                await body(self, journal)
            finally:
                await journal.close()

        asyncio.run(with_journal())

    test.__name__, test.__qualname__, test.__doc__ = body.__name__, body.__qualname__, body.__doc__
    return test


class RunJournalConformance:
    """The contract of :class:`loom_kernel.journal.RunJournal`, a promise a test."""

    persistent: ClassVar[bool] = False
    """Whether what was written is there after ``close`` and ``open_journal`` in the same folder."""

    folder: Path
    """A folder of the test's own."""

    @pytest.fixture(autouse=True)
    def _own_folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path / ".loom"

    async def open_journal(self) -> RunJournal:
        """Open the journal under test in ``self.folder``; empty the first time."""
        raise NotImplementedError("say how your journal is opened")

    def observe_read(self, journal: RunJournal, page: Callable[[int], None]) -> None:
        """Have ``page`` called with the size of every page that ``read`` loads."""
        if not hasattr(journal, "observe_read"):
            pytest.skip("this journal does not tell what it reads")
        journal.observe_read = page

    # ------------------------------------------------------------ runs

    @_test
    async def test_a_run_is_created_once(self, journal: RunJournal) -> None:
        """A second ``create_run`` says so and changes nothing."""
        assert await journal.create_run(A, RunCreated(workflow="first")) == "created"
        assert await journal.create_run(A, RunCreated(workflow="second")) == "exists"
        run = await journal.get_run(A)
        assert run is not None
        assert (run.workflow, run.last_seq, run.status, run.interrupted) == ("first", 1, "pending", False)

    @_test
    async def test_an_unknown_run_is_none(self, journal: RunJournal) -> None:
        """Asking for what is not there is no error."""
        assert await journal.get_run(A) is None
        assert await journal.lease_state(A) is None
        assert await journal.read_key(A, "created") is None
        assert [entry async for entry in journal.read(A)] == []

    @_test
    async def test_the_first_event_is_run_created(self, journal: RunJournal) -> None:
        """It carries the header as it was given."""
        header = RunCreated(workflow="w", inputs=Raw(b'{"n":1}'), tags=["x"], key="k", notebook="a.ipynb")
        await journal.create_run(A, header)
        [entry] = [entry async for entry in journal.read(A)]
        assert (entry.run_id, entry.seq, entry.type, entry.key, entry.node_id) == (A, 1, "run.created", "created", None)
        assert events.encode(entry.event) == events.encode(header)

    @_test
    async def test_start_creates_and_takes_the_lease(self, journal: RunJournal) -> None:
        """One call gives the run, its lease and its history."""
        started = await _start(journal, A)
        assert (started.lease.run_id, started.lease.holder_id, started.lease.epoch) == (A, "ann", 1)
        assert [entry.type for entry in started.entries] == ["run.created", "lease.taken"]

    @_test
    async def test_start_of_an_existing_run_takes_it_if_it_is_free(self, journal: RunJournal) -> None:
        """It neither creates it again nor takes it from its holder."""
        first = await _start(journal, A)
        held = await journal.start_run(A, RunCreated(workflow="w"), BOB)
        assert isinstance(held, LeaseHeld)
        await journal.release(first.lease)
        second = await _start(journal, A, BOB)
        assert [entry.type for entry in second.entries] == ["run.created", "lease.taken", "lease.taken"]

    @_test
    async def test_runs_are_listed_newest_first(self, journal: RunJournal) -> None:
        """With filters, a limit, and without children unless asked."""
        for i in range(5):
            created = RunCreated(
                workflow=f"w{i % 2}", key=f"k{i}", tags=["even"] if i % 2 == 0 else [], notebook="n.ipynb"
            )
            await journal.create_run(RunId(f"run{i}"), created)
        await journal.create_run(RunId("child"), RunCreated(workflow="w0", parent_run_id="run0"))

        async def ids(**wanted: Any) -> list[str]:
            return [run.run_id for run in await journal.list_runs(**wanted)]

        assert await ids() == ["run4", "run3", "run2", "run1", "run0"]
        assert await ids(limit=2) == ["run4", "run3"]
        assert await ids(workflow="w1") == ["run3", "run1"]
        assert await ids(key="k2") == ["run2"]
        assert await ids(tag="even", limit=2) == ["run4", "run2"]
        assert await ids(notebook="other.ipynb") == []
        assert await ids(roots_only=False, workflow="w0") == ["child", "run4", "run2", "run0"]

    @_test
    async def test_runs_are_listed_by_status(self, journal: RunJournal) -> None:
        """Stored statuses and the derived ``interrupted``."""
        done, left = await _start(journal, A), await _start(journal, B)
        await journal.append(done.lease, [Append(events.RunEnded(status="completed"))])
        await journal.release(done.lease)
        await journal.append(left.lease, [Append(events.RunStarted(worker="ann"))])
        assert [run.run_id for run in await journal.list_runs(status=["completed"])] == [A]
        assert [run.run_id for run in await journal.list_runs(status=["running"])] == [B]
        assert await journal.list_runs(status=["interrupted"]) == []
        await journal.release(left.lease)
        [run] = await journal.list_runs(status=["interrupted"])
        assert (run.run_id, run.interrupted, run.resumable) == (B, True, True)

    @_test
    async def test_the_status_follows_the_events(self, journal: RunJournal) -> None:
        """From pending through a question and a pause to the end."""
        lease = (await _start(journal, A)).lease

        async def after(*written: Append) -> tuple[str, str | None, int]:
            await journal.append(lease, written)
            run = await journal.get_run(A)
            assert run is not None
            return run.status, run.reason, run.open_prompts

        assert await after() == ("pending", None, 0)
        assert await after(Append(events.RunStarted(worker="ann"))) == ("running", None, 0)
        assert await after(_question()) == ("awaiting_input", None, 1)
        await journal.post(A, _yes())
        assert await after(Append(events.NodeCompleted(), GO)) == ("running", None, 0)
        assert await after(Append(events.RunPaused(reason="stopped"))) == ("paused", "stopped", 0)
        lease = (await _start(journal, A)).lease
        assert await after(Append(events.RunStarted(worker="ann", resumed=True))) == ("running", None, 0)
        assert await after(Append(events.RunEnded(status="failed", reason="x"))) == ("failed", "x", 0)

    # ------------------------------------------------------------ leases

    @_test
    async def test_acquire_needs_a_run(self, journal: RunJournal) -> None:
        """An unknown run has no lease."""
        with pytest.raises(UnknownRunError):
            await journal.acquire(A, ANN)

    @_test
    async def test_acquire_returns_the_whole_history(self, journal: RunJournal) -> None:
        """In order, the lease's own event last."""
        first = await _start(journal, A)
        await journal.append(first.lease, [_done(i) for i in range(1200)])
        await journal.release(first.lease)
        second = await journal.acquire(A, BOB)
        assert isinstance(second, LeaseAcquired)
        assert [entry.seq for entry in second.entries] == list(range(1, 1204))
        assert second.entries[-1].type == "lease.taken"

    @_test
    async def test_a_held_run_is_not_acquired(self, journal: RunJournal) -> None:
        """The answer says who holds it."""
        first = await _start(journal, A)
        held = await journal.acquire(A, BOB)
        assert isinstance(held, LeaseHeld)
        assert (held.holder.id, held.holder.label, held.epoch) == ("ann", "ann's notebook", 1)
        assert held.age_s >= 0
        await journal.append(first.lease, [_done(1)])  # and the first may go on

    @_test
    async def test_the_same_holder_acquires_again(self, journal: RunJournal) -> None:
        """With a higher epoch, which fences its earlier lease."""
        first = await _start(journal, A)
        second = await journal.acquire(A, ANN)
        assert isinstance(second, LeaseAcquired)
        assert second.lease.epoch == 2
        with pytest.raises(StaleLeaseError):
            await journal.append(first.lease, [_done(1)])
        await journal.append(second.lease, [_done(1)])

    @_test
    async def test_a_person_takes_over(self, journal: RunJournal) -> None:
        """Only from whom they think holds it; the old holder cannot write any more."""
        first = await _start(journal, A)
        assert isinstance(await journal.takeover(A, BOB, HolderId("somebody")), LeaseHeld)
        taken = await journal.takeover(A, BOB, HolderId("ann"))
        assert isinstance(taken, LeaseAcquired)
        assert taken.lease == Lease(A, "bob", 2)
        with pytest.raises(StaleLeaseError):
            await journal.append(first.lease, [_done(1)])

    @_test
    async def test_only_a_lease_that_is_older_is_taken_over(self, journal: RunJournal) -> None:
        """``takeover_expired`` refuses a fresh one."""
        await _start(journal, A)
        assert isinstance(await journal.takeover_expired(A, BOB, 60.0), LeaseHeld)
        await asyncio.sleep(0.02)
        assert isinstance(await journal.takeover_expired(A, BOB, 0.001), LeaseAcquired)

    @_test
    async def test_lease_state_is_the_journals_own(self, journal: RunJournal) -> None:
        """Its age is never negative and grows from the last renewal; nobody holds a released one."""
        lease = (await _start(journal, A)).lease
        await asyncio.sleep(0.03)
        before = await journal.lease_state(A)
        assert before is not None
        assert (before.holder.id, before.epoch, before.expired) == ("ann", 1, False)
        assert abs(before.renewed_at - time.time()) < 60
        await journal.renew(lease)
        after = await journal.lease_state(A)
        assert after is not None
        assert 0 <= after.age_ms <= 1000
        assert after.renewed_at >= before.renewed_at
        await journal.release(lease)
        assert await journal.lease_state(A) is None

    @_test
    async def test_a_stale_lease_does_nothing(self, journal: RunJournal) -> None:
        """Neither renews, releases, appends nor deletes."""
        stale = (await _start(journal, A)).lease
        await journal.takeover(A, BOB, HolderId("ann"))
        for use in (journal.renew(stale), journal.release(stale), journal.delete_owned_run(stale)):
            with pytest.raises(StaleLeaseError):
                await use
        with pytest.raises(StaleLeaseError):
            await journal.append(stale, [_done(1)])
        state = await journal.lease_state(A)
        assert state is not None
        assert state.holder.id == "bob"

    @_test
    async def test_a_released_lease_is_free_and_used_up(self, journal: RunJournal) -> None:
        """Anybody may take the run; epochs go on counting."""
        lease = (await _start(journal, A)).lease
        await journal.release(lease)
        with pytest.raises(StaleLeaseError):
            await journal.append(lease, [_done(1)])
        taken = await journal.acquire(A, BOB)
        assert isinstance(taken, LeaseAcquired)
        assert taken.lease.epoch == 2

    @_test
    async def test_the_end_of_a_run_gives_its_lease_back(self, journal: RunJournal) -> None:
        """In the same commit; repeated it is answered as it was, and nothing new follows under that lease."""
        for run_id, last in ((A, events.RunEnded(status="completed")), (B, events.RunPaused(reason="stopped"))):
            lease = (await _start(journal, run_id)).lease
            batch = [_done(1), Append(last, None, "last:1")]
            first = await journal.append(lease, batch)
            assert await journal.lease_state(run_id) is None
            again = await journal.append(lease, batch[1:])
            assert (again[0].status, again[0].entry.seq) == ("exists", first[1].entry.seq)
            with pytest.raises(StaleLeaseError):
                await journal.append(lease, [*batch, _done(2)])
            await journal.release(lease)
            taken = await journal.acquire(run_id, BOB)
            assert isinstance(taken, LeaseAcquired)
            with pytest.raises(StaleLeaseError):
                await journal.append(lease, batch)
            with pytest.raises(StaleLeaseError):
                await journal.release(lease)

    # ------------------------------------------------------------ claiming

    @_test
    async def test_a_worker_claims_a_pending_run(self, journal: RunJournal) -> None:
        """With its lease and its history; the oldest first, and nothing when there is nothing."""
        assert await journal.claim(HAS, ANN, timeout_s=0) is None
        await journal.create_run(A, WORK)
        await journal.create_run(B, WORK)
        got = await journal.claim(HAS, ANN, timeout_s=0)
        assert got is not None
        assert got.lease == Lease(A, "ann", 1)
        assert [entry.type for entry in got.entries] == ["run.created", "lease.taken"]
        await journal.append(got.lease, [_done(1)])
        second = await journal.claim(HAS, BOB, timeout_s=0)
        assert second is not None
        assert second.lease == Lease(B, "bob", 1)
        assert await journal.claim(HAS, BOB, timeout_s=0) is None

    @_test
    async def test_a_claim_waits_until_there_is_a_run(self, journal: RunJournal) -> None:
        """It is told; of two who wait one gets it, and the other goes on waiting."""
        claims = [asyncio.ensure_future(journal.claim(HAS, holder)) for holder in (ANN, BOB)]
        await asyncio.sleep(0.05)
        assert not any(claim.done() for claim in claims)
        await journal.create_run(A, WORK)
        done, waiting = await asyncio.wait(claims, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        assert (len(done), len(waiting)) == (1, 1)
        first = done.pop().result()
        assert first is not None
        assert first.lease.run_id == A
        await journal.create_run(B, WORK)
        second = await asyncio.wait_for(waiting.pop(), 10)
        assert second is not None
        assert second.lease.run_id == B

    @_test
    async def test_a_claim_needs_the_same_definition(self, journal: RunJournal) -> None:
        """Another version, another workflow, a child, a run with secrets and one that is not wanted stay where they are."""
        await journal.create_run(RunId("old"), RunCreated(workflow="work", definition_version="0"))
        await journal.create_run(RunId("other"), RunCreated(workflow="play", definition_version="1"))
        await journal.create_run(
            RunId("child"), RunCreated(workflow="work", definition_version="1", parent_run_id="old")
        )
        secret = RunCreated(workflow="work", definition_version="1", secret_inputs=["token"])
        await journal.create_run(RunId("secret"), secret)
        await journal.create_run(A, WORK)
        assert await journal.claim(HAS, ANN, but=[A], timeout_s=0) is None
        got = await journal.claim({"work": "0"}, ANN, timeout_s=0)
        assert got is not None
        assert got.lease.run_id == "old"

    @_test
    async def test_a_lease_given_back_can_be_claimed(self, journal: RunJournal) -> None:
        """By whoever waits for it; while it is held it is nobody else's."""
        lease = (await _start(journal, A, created=WORK)).lease
        await journal.append(lease, [Append(events.RunStarted(worker="ann"))])
        assert await journal.claim(HAS, BOB, timeout_s=0.05) is None
        claim = asyncio.ensure_future(journal.claim(HAS, BOB))
        await asyncio.sleep(0.05)
        await journal.release(lease)
        got = await asyncio.wait_for(claim, 10)
        assert got is not None
        assert got.lease == Lease(A, "bob", 2)
        with pytest.raises(StaleLeaseError):
            await journal.append(lease, [_done(1)])

    @_test
    async def test_a_run_at_rest_is_not_claimed(self, journal: RunJournal) -> None:
        """Paused or ended, it waits for a person."""
        for run_id, last in (
            (A, events.RunPaused(reason="stopped")),
            (B, events.RunEnded(status="failed", resumable=True)),
        ):
            lease = (await _start(journal, run_id, created=WORK)).lease
            await journal.append(lease, [Append(events.RunStarted(worker="ann")), Append(last)])
            await journal.release(lease)
        assert await journal.claim(HAS, BOB, timeout_s=0.05) is None

    @_test
    async def test_a_claim_that_is_cancelled_holds_nothing(self, journal: RunJournal) -> None:
        """Whatever moment it is cancelled in."""
        for turn in range(5):
            run_id = RunId(f"run{turn}")
            claim = asyncio.ensure_future(journal.claim(HAS, ANN))
            await asyncio.sleep(0.02)
            creating = asyncio.ensure_future(journal.create_run(run_id, WORK))
            await asyncio.sleep(0.0005 * turn)
            claim.cancel()
            await asyncio.gather(claim, return_exceptions=True)
            await creating
            if claim.cancelled():
                got = await journal.claim(HAS, BOB, timeout_s=5)
                assert got is not None
                assert got.lease.run_id == run_id

    # ------------------------------------------------------------ appending

    @_test
    async def test_sequence_numbers_have_no_gap(self, journal: RunJournal) -> None:
        """However many appends are on their way at once."""
        lease = (await _start(journal, A)).lease
        outcomes = await asyncio.gather(*(journal.append(lease, [_done(i), _done(-i - 1)]) for i in range(200)))
        seqs = [outcome.entry.seq for batch in outcomes for outcome in batch]
        assert seqs == list(range(3, 403))
        assert [entry.seq async for entry in journal.read(A)] == list(range(1, 403))

    @_test
    async def test_global_seq_orders_all_runs(self, journal: RunJournal) -> None:
        """In the order of the commits."""
        a, b = (await _start(journal, A)).lease, (await _start(journal, B)).lease
        order = []
        for i in range(20):
            [outcome] = await journal.append(a if i % 3 else b, [_done(i)])
            order.append(outcome.entry.global_seq)
        assert order == sorted(set(order))

    @_test
    async def test_an_entry_is_as_it_was_appended(self, journal: RunJournal) -> None:
        """Key, type, node, payload, and a time of the journal's clock."""
        lease = (await _start(journal, A)).lease
        event = events.NodeCompleted(result=Raw('{"ä":[1,2.5,null,"☃"]}'.encode()), attempts=2)
        [outcome] = await journal.append(lease, [Append(event, "step:ä:#1", "k")])
        [entry] = [entry async for entry in journal.read(A, from_seq=3)]
        assert outcome == AppendOutcome("appended", entry)
        assert (entry.key, entry.type, entry.node_id) == ("k", "node.completed", "step:ä:#1")
        assert entry.payload == events.encode(event)
        assert abs(entry.created_at / 1e6 - time.time()) < 60

    @_test
    async def test_an_append_tells_what_came_of_it(self, journal: RunJournal) -> None:
        """``append_then`` calls back later, never at once, with the outcomes or with why there are none."""
        stale = (await _start(journal, A)).lease
        loop = asyncio.get_running_loop()

        async def told(lease: Lease) -> list[AppendOutcome] | BaseException:
            answer: asyncio.Future[list[AppendOutcome] | BaseException] = loop.create_future()
            journal.append_then(lease, [_done(1)], answer.set_result)
            assert not answer.done()
            return await asyncio.wait_for(answer, 10)

        [outcome] = await told(stale)  # type: ignore[misc]
        assert (outcome.status, outcome.entry.seq) == ("appended", 3)
        await journal.takeover(A, BOB, HolderId("ann"))
        assert isinstance(await told(stale), StaleLeaseError)

    @_test
    async def test_a_known_key_is_not_written_again(self, journal: RunJournal) -> None:
        """The original comes back, whatever is in the repeat."""
        lease = (await _start(journal, A)).lease
        [first] = await journal.append(lease, [Append(events.NodeCompleted(result=Raw(b"1")), "n", "k")])
        [again] = await journal.append(lease, [Append(events.NodeCompleted(result=Raw(b"2")), "m", "k")])
        assert (first.status, again.status) == ("appended", "exists")
        assert again.entry == first.entry
        assert len([entry async for entry in journal.read(A)]) == 3

    @_test
    async def test_a_key_may_repeat_within_a_batch(self, journal: RunJournal) -> None:
        """Outcomes stand in the order of the appends."""
        lease = (await _start(journal, A)).lease
        await journal.append(lease, [_done(0)])
        outcomes = await journal.append(lease, [_done(1), _done(0), _done(1), _done(2)])
        assert [outcome.status for outcome in outcomes] == ["appended", "exists", "exists", "appended"]
        assert [outcome.entry.key for outcome in outcomes] == ["done:1", "done:0", "done:1", "done:2"]
        assert outcomes[2].entry == outcomes[0].entry

    @_test
    async def test_keys_belong_to_their_run(self, journal: RunJournal) -> None:
        """Two runs may use the same."""
        a, b = (await _start(journal, A)).lease, (await _start(journal, B)).lease
        assert (await journal.append(a, [_done(1)]))[0].status == "appended"
        assert (await journal.append(b, [_done(1)]))[0].status == "appended"

    @_test
    async def test_the_fence_comes_before_the_key(self, journal: RunJournal) -> None:
        """A stale lease gets no answer, although the key is known."""
        stale = (await _start(journal, A)).lease
        await journal.append(stale, [_done(1)])
        await journal.takeover(A, BOB, HolderId("ann"))
        with pytest.raises(StaleLeaseError):
            await journal.append(stale, [_done(1)])

    @_test
    async def test_the_key_comes_before_expect_seq(self, journal: RunJournal) -> None:
        """A repeat is answered although others have written since."""
        lease = (await _start(journal, A)).lease
        [first] = await journal.append(lease, [_done(1)], expect_seq=2)
        await journal.append(lease, [_done(2)])
        [again] = await journal.append(lease, [_done(1)], expect_seq=2)
        assert again == AppendOutcome("exists", first.entry)

    @_test
    async def test_a_new_key_needs_the_expected_seq(self, journal: RunJournal) -> None:
        """Otherwise nothing of the batch is written."""
        lease = (await _start(journal, A)).lease
        await journal.append(lease, [_done(1)])
        with pytest.raises(JournalCasConflictError) as caught:
            await journal.append(lease, [_done(1), _done(2)], expect_seq=2)
        assert (caught.value.expected, caught.value.actual) == (2, 3)
        assert len([entry async for entry in journal.read(A)]) == 3
        await journal.append(lease, [_done(2), _done(3)], expect_seq=3)

    @_test
    async def test_an_event_is_serialized_at_the_call(self, journal: RunJournal) -> None:
        """Changing its objects afterwards changes nothing."""
        lease = (await _start(journal, A)).lease
        lines = ["before"]
        pending = journal.append(lease, [Append(events.NodeLogged(attempt=1, lines=lines), "n")])
        lines.append("after")
        [outcome] = await pending
        assert outcome.entry.event == events.NodeLogged(attempt=1, lines=["before"])

    @_test
    async def test_what_cannot_be_serialized_is_told_last(self, journal: RunJournal) -> None:
        """After fence, key and ``expect_seq``, and nothing of its batch is written."""
        first = (await _start(journal, A)).lease
        bad = Append(events.RunPaused(reason="x", detail={"what": object()}), key="bad")
        with pytest.raises(JournalCasConflictError):
            await journal.append(first, [bad], expect_seq=99)
        with pytest.raises(StorageUnavailableError):
            await journal.append(first, [_done(1), bad])
        assert len([entry async for entry in journal.read(A)]) == 2
        await journal.takeover(A, BOB, HolderId("ann"))
        with pytest.raises(StaleLeaseError):
            await journal.append(first, [bad])

    @_test
    async def test_an_append_that_nobody_awaits_is_written(self, journal: RunJournal) -> None:
        """In order with those that are awaited."""
        lease = (await _start(journal, A)).lease
        journal.append(lease, [_done(1)])
        [outcome] = await journal.append(lease, [_done(2)])
        assert outcome.entry.seq == 4
        assert [entry.key async for entry in journal.read(A, from_seq=3)] == ["done:1", "done:2"]

    # ------------------------------------------------------------ posting

    @_test
    async def test_a_post_needs_no_lease(self, journal: RunJournal) -> None:
        """It is an event of the run like any other."""
        await _start(journal, A)
        outcome = await journal.post(A, Append(events.StopRequested(by="bob")))
        assert (outcome.status, outcome.entry.seq, outcome.entry.type) == ("appended", 3, "run.stop_requested")

    @_test
    async def test_only_posts_are_posted(self, journal: RunJournal) -> None:
        """Everything else is for the holder of the lease."""
        await _start(journal, A)
        with pytest.raises(ValueError, match="posted"):
            await journal.post(A, _done(1))
        with pytest.raises(UnknownRunError):
            await journal.post(B, Append(events.StopRequested()))

    @_test
    async def test_the_first_answer_wins(self, journal: RunJournal) -> None:
        """However many come at once, the others get the one that won."""
        lease = (await _start(journal, A)).lease
        await journal.append(lease, [_question()])
        outcomes = await asyncio.gather(*(journal.post(A, _yes(by=f"p{i}")) for i in range(20)))
        assert [outcome.status for outcome in outcomes].count("appended") == 1
        assert len({outcome.entry.seq for outcome in outcomes}) == 1
        late = await journal.post(A, _yes(by="late"))
        assert late.status == "exists"
        assert isinstance(late.entry.event, events.PromptAnswered)
        assert late.entry.event.by != "late"

    @_test
    async def test_an_answer_needs_its_question(self, journal: RunJournal) -> None:
        """Open, and of the same generation."""
        lease = (await _start(journal, A)).lease
        with pytest.raises(AnswerError, match="not open"):
            await journal.post(A, _yes())
        await journal.append(lease, [_question(generation=2)])
        with pytest.raises(AnswerError, match="again"):
            await journal.post(A, _yes(generation=1))
        assert (await journal.post(A, _yes(generation=2))).status == "appended"
        with pytest.raises(AnswerError):
            await journal.post(A, _yes(generation=3))

    @_test
    async def test_an_answer_must_fit(self, journal: RunJournal) -> None:
        """Its kind and the stored JSON Schema; a wrong one leaves the question open."""
        lease = (await _start(journal, A)).lease
        schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
        await journal.append(lease, [_question(kind="form", schema=schema)])
        for wrong in (b'"yes"', b"{}", b'{"n": 0}', b'{"n": "1"}', b"{"):
            with pytest.raises(AnswerError, match="answer"):
                await journal.post(A, _yes(value=wrong))
        assert (await journal.post(A, _yes(value=b'{"n":3}'))).status == "appended"

    @_test
    async def test_an_answer_is_to_what_was_shown(self, journal: RunJournal) -> None:
        """An answer to an older picture is refused."""
        lease = (await _start(journal, A)).lease
        await journal.append(lease, [_question(shown_hash="new")])
        with pytest.raises(AnswerError, match="something else"):
            await journal.post(A, _yes(shown_hash="old"))
        assert (await journal.post(A, _yes(shown_hash="new"))).status == "appended"

    @_test
    async def test_a_question_asked_again_takes_another_answer(self, journal: RunJournal) -> None:
        """The next generation is a question of its own."""
        lease = (await _start(journal, A)).lease
        await journal.append(lease, [_question()])
        await journal.post(A, _yes(value=b"false"))
        await journal.append(lease, [_question(generation=2, error="are you sure?")])
        assert (await journal.post(A, _yes(generation=2))).status == "appended"
        assert (await journal.post(A, _yes(generation=1))).status == "exists"

    @_test
    async def test_an_early_answer_is_kept_once(self, journal: RunJournal) -> None:
        """For a question that is not open yet."""
        await _start(journal, A)
        early = Append(events.AnswerKept(prompt="go", value=Raw(b"true"), by="ann"))
        assert (await journal.post(A, early)).status == "appended"
        again = await journal.post(A, Append(events.AnswerKept(prompt="go", value=Raw(b"false"), by="bob")))
        assert (again.status, again.entry.key) == ("exists", "early:go")

    @_test
    async def test_nothing_is_posted_to_a_run_that_is_over(self, journal: RunJournal) -> None:
        """The sender is told how it ended; a note is taken all the same."""
        lease = (await _start(journal, A)).lease
        await journal.append(lease, [Append(events.RunEnded(status="completed"))])
        with pytest.raises(RunOverError, match="completed"):
            await journal.post(A, Append(events.CancelRequested()))
        noted = await journal.post(A, Append(events.RunNoted(text="look at this one again"), None, "note:1"))
        assert noted.status == "appended"
        run = await journal.get_run(A)
        assert run is not None and run.status == "completed"

    # ------------------------------------------------------------ reading

    @_test
    async def test_reading_starts_where_it_is_told(self, journal: RunJournal) -> None:
        """``from_seq`` is included; beyond the end there is nothing."""
        lease = (await _start(journal, A)).lease
        await journal.append(lease, [_done(i) for i in range(5)])
        assert [entry.seq async for entry in journal.read(A, from_seq=4)] == [4, 5, 6, 7]
        assert [entry.seq async for entry in journal.read(A, from_seq=8)] == []

    @_test
    async def test_reading_is_lazy(self, journal: RunJournal) -> None:
        """Pages are bounded, and who stops early loads no further one."""
        lease = (await _start(journal, A)).lease
        for i in range(4):
            await journal.append(lease, [_done(i * 1000 + k) for k in range(1000)])
        pages: list[int] = []
        self.observe_read(journal, pages.append)
        reading = journal.read(A)
        for _ in range(3):
            await anext(reading)
        await reading.aclose()  # type: ignore[attr-defined]
        assert len(pages) == 1
        assert pages[0] <= 1000
        assert [entry.seq async for entry in journal.read(A)] == list(range(1, 4003))
        assert max(pages) <= 1000

    @_test
    async def test_an_entry_is_found_by_its_key(self, journal: RunJournal) -> None:
        """Of this run only."""
        a = (await _start(journal, A)).lease
        await _start(journal, B)
        [outcome] = await journal.append(a, [_done(1)])
        assert await journal.read_key(A, "done:1") == outcome.entry
        assert await journal.read_key(A, "done:2") is None
        assert await journal.read_key(B, "done:1") is None

    @_test
    async def test_records_are_detached(self, journal: RunJournal) -> None:
        """Changing what went in or came out changes nothing inside."""
        tags = ["one"]
        await journal.create_run(A, RunCreated(workflow="w", tags=tags))
        tags.append("two")
        run = await journal.get_run(A)
        assert run is not None
        assert run.header.tags == ["one"]
        run.header.tags.append("three")
        again = await journal.get_run(A)
        assert again is not None
        assert again.header.tags == ["one"]

    # ------------------------------------------------------------ following

    @_test
    async def test_a_follower_gets_the_backlog_and_then_what_comes(self, journal: RunJournal) -> None:
        """Each notice once, in order, though appends go on meanwhile."""
        lease = (await _start(journal, A)).lease
        await journal.append(lease, [_done(i) for i in range(1500)])
        subscription = journal.subscribe(0)

        async def write() -> None:
            for i in range(1500, 1600):
                await journal.append(lease, [_done(i)])

        writing = asyncio.create_task(write())
        notices = await _take(subscription, 1602)
        await writing
        assert [notice.seq for notice in notices] == list(range(1, 1603))
        assert [notice.global_seq for notice in notices] == sorted({notice.global_seq for notice in notices})
        assert notices[-1].node_id == "step:1599"

    @_test
    async def test_a_follower_resumes_after_what_it_saw(self, journal: RunJournal) -> None:
        """Without a gap and without a repeat."""
        lease = (await _start(journal, A)).lease
        outcomes = await journal.append(lease, [_done(i) for i in range(10)])
        notices = await _take(journal.subscribe(outcomes[3].entry.global_seq), 6)
        assert [notice.seq for notice in notices] == [7, 8, 9, 10, 11, 12]

    @_test
    async def test_a_follower_may_begin_now_and_choose(self, journal: RunJournal) -> None:
        """One run, or some types."""
        a, b = (await _start(journal, A)).lease, (await _start(journal, B)).lease
        one = journal.subscribe(run_id=B)
        posts = journal.subscribe(types=events.POSTS)
        for i in range(3):
            await journal.append(a, [_done(i)])
            await journal.append(b, [_done(i)])
        await journal.post(A, Append(events.StopRequested()))
        assert {notice.run_id for notice in await _take(one, 3)} == {B}
        [notice] = await _take(posts, 1)
        assert (notice.run_id, notice.type) == (A, "run.stop_requested")

    @_test
    async def test_a_slow_follower_misses_nothing(self, journal: RunJournal) -> None:
        """What does not fit its queue is read again from the journal."""
        lease = (await _start(journal, A)).lease
        subscription = journal.subscribe(0)
        following = aiter(subscription)
        seen = [notice.seq for notice in await anext(following)]
        for k in range(12):
            await journal.append(lease, [_done(k * 1000 + i) for i in range(1000)])
        while len(seen) < 12_002:
            seen += [notice.seq for notice in await asyncio.wait_for(anext(following), 30)]
        subscription.close()
        assert seen == list(range(1, 12_003))

    @_test
    async def test_a_closed_subscription_ends(self, journal: RunJournal) -> None:
        """Whoever waits on it goes on."""
        subscription = journal.subscribe()

        async def follow() -> int:
            return len([notices async for notices in subscription])

        following = asyncio.create_task(follow())
        await asyncio.sleep(0.02)
        subscription.close()
        assert await asyncio.wait_for(following, 5) == 0

    # ------------------------------------------------------------ SQL and blobs

    @_test
    async def test_sql_sees_what_was_acknowledged(self, journal: RunJournal) -> None:
        """The answer is a Parquet file."""
        duckdb = pytest.importorskip("duckdb")
        lease = (await _start(journal, A)).lease
        await journal.append(lease, [_done(i) for i in range(10)])
        path = await journal.query("select run_id, count(*) as n from events group by all; -- all of them")
        assert duckdb.read_parquet(str(path)).fetchall() == [(A, 12)]
        path.unlink()

    @_test
    async def test_sql_only_reads(self, journal: RunJournal) -> None:
        """One SELECT; an unknown table is answered with those there are."""
        await _start(journal, A)
        for sql in ("delete from events", "select 1; select 2", "", "selct 1", "from read_csv('/etc/passwd')"):
            with pytest.raises(SqlError):
                await journal.query(sql)
        with pytest.raises(SqlError, match="runs, nodes, attempts, events, prompts"):
            await journal.query("from node_table")

    @_test
    async def test_blobs_come_back(self, journal: RunJournal) -> None:
        """By their hash; keeping one twice is no error."""
        import hashlib

        data = bytes(range(256)) * 1000
        sha256 = hashlib.sha256(data).hexdigest()
        await journal.put_blobs([(sha256, data)])
        await journal.put_blobs([(sha256, data)])
        assert await journal.get_blob(sha256) == data
        for unknown in ("0" * 64, "../../etc/passwd"):
            with pytest.raises(KeyError):
                await journal.get_blob(unknown)

    # ------------------------------------------------------------ the end

    @_test
    async def test_the_holder_deletes_its_run(self, journal: RunJournal) -> None:
        """If nothing came since ``expect_seq``."""
        lease = (await _start(journal, A)).lease
        await journal.append(lease, [_done(1)])
        with pytest.raises(JournalCasConflictError):
            await journal.delete_owned_run(lease, expect_seq=2)
        assert await journal.get_run(A) is not None
        await journal.delete_owned_run(lease, expect_seq=3)
        assert await journal.get_run(A) is None
        assert await journal.list_runs() == []
        assert [entry async for entry in journal.read(A)] == []

    @_test
    async def test_anybody_may_delete_a_run(self, journal: RunJournal) -> None:
        """And deleting what is not there is no error."""
        await _start(journal, A)
        await journal.delete_run(A)
        await journal.delete_run(A)
        assert await journal.get_run(A) is None
        with pytest.raises(UnknownRunError):
            await journal.acquire(A, ANN)

    @_test
    async def test_epochs_outlive_deletion(self, journal: RunJournal) -> None:
        """An old lease cannot touch a run of the same id that was made later."""
        old = (await _start(journal, A)).lease
        await journal.append(old, [_done(1)])
        await journal.delete_run(A)
        new = await _start(journal, A, ANN)
        assert new.lease.epoch == old.epoch + 1
        assert [entry.seq for entry in new.entries] == [1, 2]
        with pytest.raises(StaleLeaseError):
            await journal.append(old, [_done(1)])
        assert (await journal.append(new.lease, [_done(1)]))[0].status == "appended"
        assert [entry.seq async for entry in journal.read(A)] == [1, 2, 3]

    @_test
    async def test_a_closed_journal_refuses(self, journal: RunJournal) -> None:
        """Closing twice is no error; using it afterwards is one."""
        lease = (await _start(journal, A)).lease
        await journal.close()
        await journal.close()
        with pytest.raises(StorageUnavailableError):
            await journal.get_run(A)
        with pytest.raises(StorageUnavailableError):
            await journal.append(lease, [_done(1)])

    def test_what_was_acknowledged_is_there_again(self) -> None:
        """After closing and opening: events, keys, questions, epochs, blobs and deletions."""
        if not self.persistent:
            pytest.skip("this journal ends with its process")

        async def before() -> list[JournalEntry]:
            async with await self.open_journal() as journal:
                lease = (await _start(journal, A)).lease
                await journal.append(lease, [Append(events.RunStarted(worker="ann")), _done(1), _question()])
                await _start(journal, B)
                await journal.delete_run(B)
                return [entry async for entry in journal.read(A)]

        async def after(entries: list[JournalEntry]) -> None:
            async with await self.open_journal() as journal:
                assert [entry async for entry in journal.read(A)] == entries
                run = await journal.get_run(A)
                assert run is not None
                assert (run.status, run.open_prompts, run.last_seq) == ("awaiting_input", 1, 5)
                assert (await journal.post(A, _yes())).status == "appended"
                taken = await journal.takeover(A, BOB, HolderId("ann"))
                assert isinstance(taken, LeaseAcquired)
                assert taken.lease.epoch == 2
                assert (await journal.append(taken.lease, [_done(1)]))[0] == AppendOutcome("exists", entries[3])
                assert await journal.get_run(B) is None
                assert (await _start(journal, B)).lease.epoch == 2

        asyncio.run(after(asyncio.run(before())))


async def _start(
    journal: RunJournal, run_id: RunId, holder: Holder = ANN, created: RunCreated | None = None
) -> LeaseAcquired:
    started = await journal.start_run(run_id, created or RunCreated(workflow="w"), holder)
    assert isinstance(started, LeaseAcquired)
    return started


def _done(i: int) -> Append:
    return Append(events.NodeCompleted(result=Raw(b"%d" % i)), f"step:{i}", f"done:{i}")


def _question(kind: str = "confirm", **fields: Any) -> Append:
    return Append(events.PromptOpened(prompt="go", kind=kind, message="Go?", **fields), GO)


def _yes(value: bytes = b"true", generation: int = 1, **fields: Any) -> Append:
    return Append(events.PromptAnswered(generation=generation, value=Raw(value), **fields), GO)


async def _take(subscription: Subscription, count: int) -> list[Notice]:
    """The next notices, ``count`` of them at least; then close."""
    notices: list[Notice] = []

    async def collect() -> None:
        async for batch in subscription:
            notices.extend(batch)
            if len(notices) >= count:
                return

    await asyncio.wait_for(collect(), 30)
    subscription.close()
    return notices
