"""The journal in a DuckDB file: a commit log in front, an applier behind, the rules of :mod:`core` in between.

An append is checked in memory, queued, synced to the log by one thread together with whatever else is queued, and
answered; another thread moves it into DuckDB a moment later. What is durable and not yet there (the *tail*) stays in
memory, so reads never wait for the applier, only SQL does. DuckDB lets one process open a file: this class belongs to
the hub, or to a process that has a folder to itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, TypeVar

from loom_kernel import events
from loom_kernel.clock import Clock, SystemClock
from loom_kernel.errors import LoomError, StorageUnavailableError, UnknownRunError
from loom_kernel.events import RunCreated
from loom_kernel.ids import HolderId, RunId
from loom_kernel.journal import database
from loom_kernel.journal.abc import (
    Append,
    AppendOutcome,
    Holder,
    JournalEntry,
    Lease,
    LeaseAcquired,
    LeaseHeld,
    LeaseState,
    Notice,
    RunJournal,
    RunSummary,
    Subscription,
)
from loom_kernel.journal.applier import Applier
from loom_kernel.journal.blobs import read_blob, write_blobs
from loom_kernel.journal.claims import Claims
from loom_kernel.journal.commit_log import LogBrokenError
from loom_kernel.journal.core import (
    AT_REST,
    DELETED,
    GRACE_S,
    Change,
    JournalCore,
    Prepared,
    RunFilter,
    RunHead,
    prepare,
    prepare_post,
)
from loom_kernel.journal.feed import Feed, notice_of
from loom_kernel.journal.keeping import GcReport, chunks, spent
from loom_kernel.journal.liveness import Probe
from loom_kernel.journal.queries import QueryRunner
from loom_kernel.journal.room import RESERVE_BYTES, Room, is_full
from loom_kernel.journal.tail import Tail
from loom_kernel.journal.writer import CommitWriter, Write

T = TypeVar("T")

PAGE = 500
"""Entries that ``read`` loads at a time."""

READS = 20
READ_AGAIN_S = 0.01
"""A reader that finds a gap looks again, so often and after so long: a run's events have none."""

BLOB_GRACE_S = 3_600.0
"""A blob that nothing refers to stays for this long: somebody may be about to name it."""

Done = Callable[["list[AppendOutcome] | Exception"], None]


class DuckDBRunJournal(RunJournal):
    """One journal folder, owned by this process. Made by :meth:`open`."""

    def __init__(self, opened: database.Opened, clock: Clock) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._opened = opened
        self.folder = opened.folder
        self._tables = opened.tables
        self._core = JournalCore(clock, Probe())
        self._tail = Tail()
        self._resting: set[str] | None = None  # ids in the file whose heads are not in the core; None: not read yet
        self._runs = opened.runs
        self._feed = Feed(self._load_notices)
        self._claims = Claims(self._core, self._take, lambda got: self.release(got.lease))
        self._readers = ThreadPoolExecutor(3, thread_name_prefix="loom-read")
        self._queries = QueryRunner(
            database.select_to_parquet, opened.connection.cursor, opened.folder / "tmp", self._clock
        )
        self._deferred: dict[str, list[tuple[Lease, Sequence[Prepared], int | None, Done, Exception | None]]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._in_flight = 0
        self._busy: contextlib.AbstractContextManager[None] | None = None
        self._trouble: Exception | None = None
        self._broken: Exception | None = None
        self._room = Room(
            opened.reserve, opened.log.fill_ahead, opened.log.drop_ahead, ready=lambda: self._trouble is None
        )
        self._closed = False
        self.observe_read: Callable[[int], None] | None = None
        """Called with the size of each page that ``read`` loads; for the conformance suite."""
        self.on_fatal: Callable[[Exception], None] | None = None
        """Called, on a thread of the store, when the disk cannot be trusted any more, or that thread died: the process
        should end at once."""
        self._replay(opened)
        self._applier = Applier(
            self._tables, applied=self._applied_there, troubled=self._troubled_there, died=self._broken_there
        )
        self._writer = CommitWriter(
            opened.log,
            self._loop,
            durable=self._durable_there,
            committed=self._committed,
            failed=self._failed,
            full=self._refused_there,
            broken=self._broken_there,
        )
        for change in opened.tail:
            self._applier.put(change)
        opened.tail = []
        self._ids_read: asyncio.Task[None] = self._loop.create_task(self._read_ids())

    @classmethod
    async def open(cls, folder: Path | str, clock: Clock | None = None) -> DuckDBRunJournal:
        """Open the journal in ``folder`` (the ``.loom`` folder itself), making it when there is none.

        Raises:
            StorageUnavailableError: it cannot be opened; the sentence says why and what to do.
        """
        opened = await asyncio.get_running_loop().run_in_executor(None, database.open_folder, Path(folder))
        return cls(opened, clock or SystemClock())

    def _replay(self, opened: database.Opened) -> None:
        """Heads from the file, then what the log has beyond it. The applier gets it; opening does not wait for that."""
        self._core.global_seq = opened.position
        now = self._clock.monotonic()
        for head in opened.heads:
            head.renewed = now
            self._core.heads[head.run_id] = head
        for change in opened.tail:
            for entry in change:
                self._core.replay(entry)
                self._tail.add(entry)
        for head in self._core.heads.values():
            if head.holder is not None and head.holder.pid == os.getpid():
                self._core.holder_gone(head.holder.id)  # an earlier journal of this very process
        self._acked = self._durable = self._feed.last = self._core.global_seq
        self._applied = opened.position

    async def _read_ids(self) -> None:
        """So that a new run is known to be new without asking the file. Opening does not wait for it."""
        try:
            ids = await self._in_reader(self._tables.run_ids)
        except Exception:
            ids = None
        if ids is not None:
            ids -= self._core.heads.keys()
            self._resting = ids

    async def _meet(self, run_id: str) -> None:
        """Have the run's head in the core, if there is or was such a run."""
        if run_id in self._core.heads:
            return
        if self._resting is None:
            await self._ids_read
        if self._resting is None or run_id in self._resting:
            found = await self._in_reader(self._tables.heads, [run_id])
            if found and run_id not in self._core.heads:
                self._core.heads[run_id] = found[0]
                if self._resting is not None:
                    self._resting.discard(run_id)

    def _evict(self, run_id: str) -> None:
        """Forget what is known of a run that rests in the file; of one that only pauses, its keys."""
        head = self._core.heads.get(run_id)
        if head is None or head.holder is not None or self._tail.has(run_id) or self._tail.floor(run_id):
            return
        if self._resting is not None and (head.status in events.TERMINAL or not head.exists):
            del self._core.heads[run_id]
            self._resting.add(run_id)
        elif head.status in AT_REST:
            head.keys = None

    # ------------------------------------------------------------ runs

    async def create_run(self, run_id: RunId, created: RunCreated) -> Literal["created", "exists"]:
        await self._meet(run_id)
        self._check()
        change = self._core.create(run_id, events.encode(created))
        if change is None:
            await self._commit([])  # it may have been made a moment ago: answer in order
            return "exists"
        await self._commit([change])
        return "created"

    async def start_run(self, run_id: RunId, created: RunCreated, holder: Holder) -> LeaseAcquired | LeaseHeld:
        await self._meet(run_id)
        self._check()
        change = self._core.create(run_id, events.encode(created))
        if change is None:
            return await self.acquire(run_id, holder)
        taken = self._core.acquire(run_id, holder)
        assert isinstance(taken, Change) and taken.lease is not None, "nobody can hold a run that was just made"
        self._here(holder)
        await self._commit([change, taken])
        return LeaseAcquired(taken.lease, [*change.entries, *taken.entries])

    async def get_run(self, run_id: RunId) -> RunSummary | None:
        self._check(reading=True)
        head = self._core.heads.get(run_id)
        if head is None:  # looked at, it need not stay here
            found = await self._in_reader(self._tables.heads, [run_id])
            head = self._core.heads.get(run_id) or (found[0] if found else None)
        return None if head is None or not head.exists else self._core.summary(head)

    async def list_runs(
        self,
        *,
        workflow: str | None = None,
        status: Iterable[str] | None = None,
        key: str | None = None,
        notebook: str | None = None,
        tag: str | None = None,
        roots_only: bool = True,
        limit: int | None = None,
    ) -> list[RunSummary]:
        self._check(reading=True)
        statuses = None if status is None else frozenset(status)
        wanted = RunFilter(
            workflow=workflow, status=statuses, key=key, notebook=notebook, tag=tag, roots_only=roots_only
        )
        known = dict(self._core.heads)
        at_rest: list[RunHead] = []
        if statuses is None or statuses & events.TERMINAL:
            at_rest = await self._in_reader(self._tables.find_runs, wanted, list(known), limit)
        # What was evicted meanwhile is in neither: hence what was known before.
        heads = sorted(
            ({head.run_id: head for head in at_rest} | known | self._core.heads).values(),
            key=lambda head: -head.created_seq,
        )
        heads = [head for head in heads if head.exists]
        runs = (self._core.summary(head) for head in heads)
        return list(itertools.islice((run for run in runs if wanted.wants(run)), limit))

    async def _with_keys(self, run_id: str) -> tuple[RunHead, list[JournalEntry] | None]:
        """The head with its keys, and the run's entries where they had to be read for that. Raises: UnknownRunError."""
        while True:
            await self._meet(run_id)
            head = self._core.head(run_id)
            if head.keys is not None:
                return head, None
            entries = await self._entries(run_id)
            if self._core.heads.get(run_id) is head and head.keys is None:
                # Nothing with a key was appended meanwhile: whoever wants to waits for this.
                head.keys = {entry.key: entry.seq for entry in entries if entry.key is not None}
                return head, entries

    # ------------------------------------------------------------ leases

    async def acquire(self, run_id: RunId, holder: Holder) -> LeaseAcquired | LeaseHeld:
        return await self._acquire(run_id, holder)

    async def takeover(self, run_id: RunId, holder: Holder, expected_holder: HolderId) -> LeaseAcquired | LeaseHeld:
        return await self._acquire(run_id, holder, expected_holder=expected_holder)

    async def takeover_expired(self, run_id: RunId, holder: Holder, stale_after_s: float) -> LeaseAcquired | LeaseHeld:
        return await self._acquire(run_id, holder, stale_after_s=stale_after_s)

    async def _acquire(self, run_id: RunId, holder: Holder, **how: Any) -> LeaseAcquired | LeaseHeld:
        self._check()
        _, read = await self._with_keys(run_id)
        change = self._core.acquire(run_id, holder, **how)
        if isinstance(change, LeaseHeld) and not how and 0 < (wait := self._core.expires_in(run_id)) <= GRACE_S:
            await self._clock.sleep(wait)
            self._check()
            _, read = await self._with_keys(run_id)
            change = self._core.acquire(run_id, holder)
        return change if isinstance(change, LeaseHeld) else await self._taken(change, holder, read)

    async def _taken(self, change: Change, holder: Holder, read: list[JournalEntry] | None) -> LeaseAcquired:
        """Commit a lease; ``read`` is the run's history where it was read a moment ago."""
        run_id = change.head.run_id
        self._here(holder)
        committed = self._commit([change])
        if read is None:
            read = await self._entries(run_id)
        else:
            read = self._tail.extend(read, run_id)
        await committed
        assert change.lease is not None
        return LeaseAcquired(change.lease, [entry for entry in read if entry.seq <= change.entries[-1].seq])

    async def claim(
        self,
        definitions: Mapping[str, str],
        holder: Holder,
        *,
        but: Collection[str] = (),
        timeout_s: float | None = None,
        ticket: str = "",
    ) -> LeaseAcquired | None:
        """See :meth:`RunJournal.claim`. Repeated under the same ``ticket`` it gives what it gave before."""
        self._check()
        return await self._claims.claim(definitions, holder, but, timeout_s, ticket)

    async def _take(self, run_id: str, holder: Holder, fits: Callable[[RunHead], bool]) -> LeaseAcquired | None:
        self._check()
        head, read = await self._with_keys(run_id)
        change = self._core.acquire(run_id, holder) if fits(head) else None
        return await self._taken(change, holder, read) if isinstance(change, Change) else None

    def _here(self, holder: Holder) -> None:
        """A holder in this very process has no connection that could close: it is connected."""
        if holder.pid == os.getpid() and not self._core.is_connected(holder.id):
            self._core.holder_connected(holder)

    async def lease_state(self, run_id: RunId) -> LeaseState | None:
        self._check(reading=True)
        return self._core.lease_state(run_id)

    async def renew(self, lease: Lease) -> None:
        self._check(reading=True)
        self._core.renew(lease)

    async def release(self, lease: Lease) -> None:
        self._check()
        await self._commit([self._core.release(lease)])

    def holder_connected(self, holder: Holder) -> None:
        """A client that may hold leases is there."""
        self._core.holder_connected(holder)

    def holder_disconnected(self, holder_id: str) -> None:
        """Its last connection closed; unless it comes back, its leases expire in a moment."""
        self._core.holder_disconnected(holder_id)
        self._claims.changed()

    def holder_seen(self, holder_id: str) -> None:
        """A frame came from it: that renews all its leases."""
        self._core.holder_seen(holder_id)

    # ------------------------------------------------------------ writing

    def append(
        self, lease: Lease, appends: Sequence[Append], *, expect_seq: int | None = None
    ) -> Awaitable[list[AppendOutcome]]:
        future: asyncio.Future[list[AppendOutcome]] = self._loop.create_future()
        prepared, unencodable = prepare(appends)

        def done(outcome: list[AppendOutcome] | Exception) -> None:
            if future.done():
                return
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
                future.exception()  # looked at: nobody is obliged to await an append
            else:
                future.set_result(outcome)

        self.append_now(lease, prepared, expect_seq, done, unencodable)
        self._writer.flush_soon()
        return future

    def append_now(
        self,
        lease: Lease,
        prepared: Sequence[Prepared],
        expect_seq: int | None,
        done: Done,
        unencodable: Exception | None = None,
    ) -> None:
        """``append`` without a future: checked before this returns, and committed by the next :meth:`flush`.

        Args:
            prepared: ``(key, type, node_id, payload)`` of each event.
            done: called on the loop with the outcomes once they are durable, or with the error (at once when a check
                fails).
        """
        head = self._core.heads.get(lease.run_id)
        if head is None or (head.keys is None and (head.holder is not None or self._core.rests(lease))):
            self._defer(lease, prepared, expect_seq, done, unencodable)
            return
        self._append_known(lease, prepared, expect_seq, done, unencodable)

    def _append_known(
        self,
        lease: Lease,
        prepared: Sequence[Prepared],
        expect_seq: int | None,
        done: Done,
        unencodable: Exception | None,
    ) -> None:
        try:
            self._check()
            change = self._core.append(lease, prepared, expect_seq, unencodable)
        except LoomError as error:
            done(error)
            return

        def committed(error: Exception | None) -> None:
            if error is not None:
                done(error)
            elif change.entries and len(change.entries) == len(change.outcomes):
                done([AppendOutcome("appended", entry) for entry in change.entries])
            else:
                self._spawn(self._answer(change, done))

        self._submit([change], committed)

    def flush(self) -> None:
        """Commit what :meth:`append_now` took, together."""
        self._writer.flush()

    def _defer(self, lease: Lease, *rest: Any) -> None:
        """A run that was forgotten, or its keys since a restart, is read at its first append; its appends wait in order."""
        waiting = self._deferred.get(lease.run_id)
        if waiting is not None:
            waiting.append((lease, *rest))
            return
        self._deferred[lease.run_id] = [(lease, *rest)]
        self._spawn(self._undefer(lease.run_id))

    async def _undefer(self, run_id: str) -> None:
        failure: Exception | None = None
        try:
            await self._with_keys(run_id)
        except Exception as error:
            failure = error
        for lease, prepared, expect_seq, done, unencodable in self._deferred.pop(run_id):
            if failure is not None and not isinstance(failure, UnknownRunError):
                done(failure)
            else:
                self._append_known(lease, prepared, expect_seq, done, unencodable)
        self.flush()

    async def _answer(self, change: Change, done: Done) -> None:
        """Outcomes of appends of which some were there before: fetch the originals."""
        try:
            done(await self._outcomes(change))
        except Exception as error:
            done(error)

    async def _outcomes(self, change: Change) -> list[AppendOutcome]:
        outcomes: list[AppendOutcome] = []
        for outcome in change.outcomes:
            if isinstance(outcome, int):
                found = await self._entries(change.head.run_id, outcome, 1)
                outcomes.append(AppendOutcome("exists", found[0]))
            else:
                outcomes.append(AppendOutcome("appended", outcome))
        return outcomes

    async def post(self, run_id: RunId, append: Append) -> AppendOutcome:
        self._check()
        return await self.post_prepared(run_id, prepare_post(append))

    async def post_prepared(self, run_id: str, prepared: Prepared) -> AppendOutcome:
        """``post`` of an event that is already serialized: ``(key, type, node_id, payload)``."""
        self._check()
        await self._with_keys(run_id)
        change = self._core.post(run_id, prepared)
        await self._commit([change])
        return (await self._outcomes(change))[0]

    # ------------------------------------------------------------ the commit path

    def _submit(self, changes: Sequence[Change], done: Callable[[Exception | None], None]) -> None:
        write = Write(changes, done)
        for entry in write.entries:
            self._tail.add(entry)
        self._in_flight += 1
        if self._busy is None:
            self._busy = self._clock.busy()  # virtual time stands still while a commit is on its way
            self._busy.__enter__()
        self._writer.submit(write)

    def _commit(self, changes: Sequence[Change]) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()

        def done(error: Exception | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
                future.exception()

        self._submit(changes, done)
        self._writer.flush_soon()
        return future

    def _committed(self, writes: list[Write]) -> None:
        entries = [entry for write in writes for entry in write.entries]
        if entries:
            self._acked = entries[-1].global_seq
            self._feed.publish(entries)
            self._room.committed()
            self._claims.committed(entries)
        for write in writes:
            write.done(None)
        self._landed(len(writes))

    def _failed(self, writes: list[Write], error: Exception) -> None:
        for write in reversed(writes):
            for entry in reversed(write.entries):
                self._tail.take_back(entry)
            for change in reversed(write.changes):
                self._core.undo(change)
        reason = getattr(error, "strerror", None) or str(error)
        if isinstance(error, LogBrokenError):
            self._broken = error
        elif is_full(error):
            self._room.set_full()
        for write in writes:
            write.done(
                StorageUnavailableError(
                    f"the journal in {self.folder} could not be written: {reason}. Nothing of this was kept; "
                    "what was acknowledged is safe. Free some space and resume the run.",
                    str(self.folder),
                )
            )
        self._landed(len(writes))

    def _landed(self, count: int) -> None:
        self._in_flight -= count
        if self._in_flight == 0 and self._busy is not None:
            self._busy.__exit__(None, None, None)
            self._busy = None

    # Called on the threads of the writer and the applier.

    def _durable_there(self, entries: list[JournalEntry]) -> None:
        self._durable = entries[-1].global_seq
        self._applier.put(entries)

    def _refused_there(self, error: Exception) -> None:
        if is_full(error):
            self._room.give_up()

    def _broken_there(self, error: Exception) -> None:
        self._on_loop(self._on_broken, error)
        if self.on_fatal is not None:
            self.on_fatal(error)

    def _applied_there(self, entries: list[JournalEntry]) -> None:
        self._opened.log.drop_applied(entries[-1].global_seq)
        self._on_loop(self._on_applied, entries)

    def _troubled_there(self, error: Exception | None) -> None:
        if is_full(error):
            self._room.give_up()
        self._on_loop(self._on_trouble, error)
        if database.is_fatal(error):
            assert error is not None
            self._broken_there(error)

    def _on_loop(self, how: Callable[[Any], None], what: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone, and its journal with it
            self._loop.call_soon_threadsafe(how, what)

    def _on_applied(self, entries: list[JournalEntry]) -> None:
        self._applied = entries[-1].global_seq
        self._runs += sum((entry.seq == 1) - (not entry.seq and entry.type == DELETED) for entry in entries)
        for run_id in self._tail.drop_applied(entries):
            self._evict(run_id)
        waiting, self._waiting = self._waiting, []
        for global_seq, future in waiting:
            if global_seq <= self._applied and not future.done():
                future.set_result(None)
            elif not future.done():
                self._waiting.append((global_seq, future))

    def _on_broken(self, error: Exception) -> None:
        self._broken = error
        self._on_trouble(error)

    def _on_trouble(self, error: Exception | None) -> None:
        self._trouble = error
        if error is None:
            return
        if is_full(error):
            self._room.set_full()
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(self._troubled_error())

    def _troubled_error(self) -> StorageUnavailableError:
        return StorageUnavailableError(
            f"SQL is not up to date: {self.folder / database.FILE} could not be written ({self._trouble}). Free some space; "
            "what was acknowledged is safe, and reading runs goes on.",
            str(self.folder),
        )

    async def _reached(self, global_seq: int) -> None:
        """Wait until DuckDB has everything up to there. Raises: StorageUnavailableError when it refuses."""
        if self._applied >= global_seq:
            return
        if self._trouble is not None:
            raise self._troubled_error()
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((global_seq, future))
        self._applier.hurry()
        with self._clock.busy():
            await future

    # ------------------------------------------------------------ reading

    async def _entries(self, run_id: str, from_seq: int = 1, limit: int | None = None) -> list[JournalEntry]:
        """The run's entries from there, from the file and the tail; those not yet acknowledged included."""
        for _ in range(READS):
            tail = self._tail.of(run_id)  # before the file is read: what leaves the tail meanwhile is in the file then
            head = self._core.heads.get(run_id)
            newest = head.last_seq if head is not None else 0
            if tail and tail[0].seq <= from_seq:
                found = [entry for entry in tail if entry.seq >= from_seq]
                return found if limit is None else found[:limit]
            rows = await self._in_reader(self._tables.entries, run_id, from_seq, self._tail.floor(run_id), limit)
            if limit is None or len(rows) < limit:
                last = rows[-1].seq if rows else from_seq - 1
                rows += [entry for entry in tail if entry.seq > last]
            last = from_seq + len(rows) - 1
            whole = not rows or (rows[0].seq, rows[-1].seq) == (from_seq, last)
            if whole and (last >= newest or (limit is not None and len(rows) >= limit)):
                return rows if limit is None else rows[:limit]
            # Seen once in thousands of reads beside a hub's first writes: what was committed was not there yet.
            await asyncio.sleep(READ_AGAIN_S)
        return rows if limit is None else rows[:limit]  # a gap that a person accepted

    async def read(self, run_id: RunId, from_seq: int = 1) -> AsyncIterator[JournalEntry]:
        at = max(1, from_seq)
        while True:
            self._check(reading=True)
            head = self._core.heads.get(run_id)
            if head is not None and not head.exists:
                return
            loaded = await self._entries(run_id, at, PAGE)
            page = [entry for entry in loaded if entry.global_seq <= self._acked]
            if self.observe_read is not None and page:
                self.observe_read(len(page))
            for entry in page:
                yield entry
            if len(page) < PAGE:
                return
            at = page[-1].seq + 1

    async def read_key(self, run_id: RunId, key: str) -> JournalEntry | None:
        self._check(reading=True)
        tail = self._tail.of(run_id)
        for entry in tail:
            if entry.key == key:
                return entry if entry.global_seq <= self._acked else None
        return await self._in_reader(self._tables.entry, run_id, key, self._tail.floor(run_id))

    def subscribe(
        self, from_global_seq: int | None = None, *, run_id: RunId | None = None, types: frozenset[str] | None = None
    ) -> Subscription:
        self._check(reading=True)
        return self._feed.subscribe(from_global_seq, run_id, types)

    async def _load_notices(self, after: int, limit: int) -> list[Notice]:
        acked = self._acked
        tail = self._tail.after(after)
        notices = [] if after >= self._applied else await self._in_reader(self._tables.notices, after, limit)
        last = notices[-1].global_seq if notices else after
        notices += [notice_of(entry) for entry in tail if last < entry.global_seq <= acked]
        return notices[:limit]

    async def query(self, sql: str, *, timeout_s: float = 30.0, parameters: Mapping[str, Any] | None = None) -> Path:
        self._check(reading=True)
        await self._reached(self._acked)
        return await self._queries.query(sql, timeout_s, parameters, self._acked)

    async def _in_reader(self, how: Callable[..., T], *args: Any) -> T:
        with self._clock.busy():
            return await self._loop.run_in_executor(self._readers, how, *args)

    # ------------------------------------------------------------ blobs

    async def put_blobs(self, blobs: Sequence[tuple[str, bytes]]) -> None:
        self._check()
        try:
            await self._in_reader(write_blobs, self.folder, blobs)
        except OSError as error:
            raise StorageUnavailableError(
                f"a value could not be written to {self.folder / 'blobs'}: {error.strerror}", str(self.folder)
            ) from error

    async def get_blob(self, sha256: str) -> bytes:
        self._check(reading=True)
        return await self._in_reader(self._read_blob, sha256)

    def _read_blob(self, sha256: str) -> bytes:
        try:
            return read_blob(self.folder, sha256)
        except KeyError:
            taken_in = self._tables.blob(sha256)
            if taken_in is None:
                raise
            return taken_in

    async def spill_blob(self, sha256: str, most: int) -> bytes | Path:
        """The bytes, or the path of a file with them, which is the caller's, where they are more than ``most``."""
        data = await self.get_blob(sha256)
        if len(data) <= most:
            return data
        path = self._queries.new_path(".blob")
        await self._in_reader(path.write_bytes, data)
        return path

    # ------------------------------------------------------------ the end

    async def delete_owned_run(self, lease: Lease, expect_seq: int | None = None) -> None:
        self._check()
        await self._delete(self._core.delete_owned(lease, expect_seq))

    async def delete_run(self, run_id: RunId) -> None:
        self._check()
        await self._meet(run_id)
        self._check()
        change = self._core.delete(run_id)
        if change is not None:
            await self._delete(change)

    async def _delete(self, change: Change) -> None:
        await self._commit([change])

    async def gc(self, older_than_s: float, *, dry_run: bool = False) -> GcReport:
        """Delete runs that ended for good longer ago than that, and values that nothing refers to any more.

        Runs that can still resume stay, and all runs of their families: ancestors, children, what they were forked from.
        Waits until it is done; appends and reads go on meanwhile.

        Args:
            dry_run: delete nothing, and report what would go (of the values, what nothing refers to now).

        Raises:
            StorageUnavailableError: the disk is full, or SQL is not up to date.
        """
        self._check()
        await self._reached(self._acked)
        until = self._clock.time() - older_than_s
        gone, kept = spent(await self._in_reader(self._tables.family), until)
        count = len(gone) if dry_run else 0
        for ids in chunks([] if dry_run else gone, 1_000):
            found = await self._in_reader(self._tables.heads, ids)
            self._check()
            changes = [change for head in found if (change := self._delete_spent(head, until)) is not None]
            count += len(changes)
            await self._commit(changes)
            await self._reached(self._acked)
        grace = self._clock.time() - BLOB_GRACE_S
        blobs, size = await asyncio.wrap_future(self._applier.ask(lambda: self._tables.sweep(grace, dry_run)))
        return GcReport(runs=count, blobs=blobs, bytes=size, kept=kept)

    def _delete_spent(self, found: RunHead, until: float) -> Change | None:
        """The run's deletion, unless somebody took it up again since it was looked at."""
        head = self._core.heads.setdefault(found.run_id, found)
        if self._resting is not None:
            self._resting.discard(head.run_id)
        if head.status not in events.TERMINAL or head.holder is not None or head.resumable:
            return None
        return self._core.delete(head.run_id) if head.updated_at / 1e6 < until else None

    def idle(self) -> bool:
        """Nothing on its way, nothing unapplied, no live lease, no query: the process may end."""
        return not (self._in_flight or self._applier.waiting or len(self._queries)) and self._core.idle()

    def stats(self) -> dict[str, Any]:
        """Figures for ``loom doctor`` and the tests."""
        return {
            "acknowledged": self._acked,
            "applied": self._applied,
            "unapplied": self._applier.waiting,
            "in_flight": self._in_flight,
            "commits": self._writer.commits,
            "runs": self._runs,  # in the file
            "heads": len(self._core.heads),
            "live_leases": sum(
                not state.expired for state in map(self._core.lease_state, list(self._core.heads)) if state
            ),
            "subscribers": len(self._feed),
            "queries": len(self._queries),
            "full": self._room.full,
            "trouble": None if self._trouble is None else str(self._trouble),
            "threads_alive": self._writer.alive and self._applier.alive,
        }

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.flush()
        self._claims.close()
        self._feed.close()
        self._room.close()
        self._queries.interrupt()
        await self._loop.run_in_executor(None, self._shut)

    def _shut(self) -> None:
        self._writer.stop()
        self._applier.stop(give_up=True)
        self._readers.shutdown()
        self._opened.close(everything_applied=self._tables.position >= self._durable)

    def _check(self, *, reading: bool = False) -> None:
        if self._closed:
            raise StorageUnavailableError(f"the journal in {self.folder} was closed", str(self.folder))
        if reading:
            return
        if self._broken is not None:
            failed = "the disk under" if isinstance(self._broken, LogBrokenError) else "the journal in"
            raise StorageUnavailableError(
                f"{failed} {self.folder} failed ({self._broken}); restart the kernel once it is well again",
                str(self.folder),
            )
        if self._room.full:
            raise StorageUnavailableError(
                f"the disk with the journal in {self.folder} is full: nothing is written until there are "
                f"{(RESERVE_BYTES >> 20) + 1} MB free. What was acknowledged is safe, and reading goes on. "
                "Free some space and resume the run.",
                str(self.folder),
            )
        if self._writer.healing:
            raise StorageUnavailableError(
                f"the journal in {self.folder} could not be written a moment ago; try again", str(self.folder)
            )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


query_entries = database.query_entries
"""One SELECT over entries in memory; for the journal in memory."""
