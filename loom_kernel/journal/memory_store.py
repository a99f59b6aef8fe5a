"""The journal in memory: the reference implementation, for unit tests and scratch work where it was asked for by name."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from loom_kernel import events
from loom_kernel.clock import Clock, SystemClock
from loom_kernel.errors import StorageUnavailableError
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
    LeaseState,
    Notice,
    RunJournal,
    RunSummary,
    Subscription,
)
from loom_kernel.journal.claims import Claims
from loom_kernel.journal.core import GRACE_S, Change, JournalCore, RunFilter, RunHead, prepare, prepare_post
from loom_kernel.journal.feed import Feed, notice_of
from loom_kernel.journal.liveness import Probe

PAGE = 500
"""Entries that ``read`` copies at a time."""


class MemoryRunJournal(RunJournal):
    """Keeps everything in lists. Gone when the process ends.

    Args:
        clock: timestamps and lease ages.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._core = JournalCore(self._clock, Probe())
        self._all: list[JournalEntry] = []
        self._runs: dict[str, list[JournalEntry]] = {}
        self._blobs: dict[str, bytes] = {}
        self._feed = Feed(self._load_notices)
        self._claims = Claims(self._core, self._take, lambda got: self.release(got.lease))
        self._closed = False
        self.observe_read: Callable[[int], None] | None = None
        """Called with the size of each page that ``read`` loads; for the conformance suite."""

    # ------------------------------------------------------------ runs

    async def create_run(self, run_id: RunId, created: RunCreated) -> Literal["created", "exists"]:
        self._check_open()
        change = self._core.create(run_id, events.encode(created))
        if change is None:
            return "exists"
        self._commit(change)
        return "created"

    async def start_run(self, run_id: RunId, created: RunCreated, holder: Holder) -> LeaseAcquired | LeaseHeld:
        await self.create_run(run_id, created)
        return await self.acquire(run_id, holder)

    async def get_run(self, run_id: RunId) -> RunSummary | None:
        self._check_open()
        head = self._core.heads.get(run_id)
        return self._core.summary(head) if head is not None and head.exists else None

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
        self._check_open()
        wanted = RunFilter(
            workflow=workflow,
            status=None if status is None else frozenset(status),
            key=key,
            notebook=notebook,
            tag=tag,
            roots_only=roots_only,
        )
        heads = sorted((head for head in self._core.heads.values() if head.exists), key=lambda head: -head.created_seq)
        runs = (self._core.summary(head) for head in heads)
        return list(itertools.islice((run for run in runs if wanted.wants(run)), limit))

    # ------------------------------------------------------------ leases

    async def acquire(self, run_id: RunId, holder: Holder) -> LeaseAcquired | LeaseHeld:
        return await self._acquire(run_id, holder)

    async def takeover(self, run_id: RunId, holder: Holder, expected_holder: HolderId) -> LeaseAcquired | LeaseHeld:
        return await self._acquire(run_id, holder, expected_holder=expected_holder)

    async def takeover_expired(self, run_id: RunId, holder: Holder, stale_after_s: float) -> LeaseAcquired | LeaseHeld:
        return await self._acquire(run_id, holder, stale_after_s=stale_after_s)

    async def _acquire(self, run_id: RunId, holder: Holder, **how: Any) -> LeaseAcquired | LeaseHeld:
        self._check_open()
        change = self._core.acquire(run_id, holder, **how)
        if isinstance(change, LeaseHeld) and not how and 0 < (wait := self._core.expires_in(run_id)) <= GRACE_S:
            await self._clock.sleep(wait)
            self._check_open()
            change = self._core.acquire(run_id, holder)
        return change if isinstance(change, LeaseHeld) else self._taken(change, holder)

    def _taken(self, change: Change, holder: Holder) -> LeaseAcquired:
        if holder.pid == os.getpid() and not self._core.is_connected(holder.id):
            self._core.holder_connected(holder)  # in this very process there is no connection that could close
        self._commit(change)
        assert change.lease is not None
        return LeaseAcquired(change.lease, list(self._runs[change.head.run_id]))

    async def claim(
        self,
        definitions: Mapping[str, str],
        holder: Holder,
        *,
        but: Collection[str] = (),
        timeout_s: float | None = None,
    ) -> LeaseAcquired | None:
        self._check_open()
        return await self._claims.claim(definitions, holder, but, timeout_s)

    async def _take(self, run_id: str, holder: Holder, fits: Callable[[RunHead], bool]) -> LeaseAcquired | None:
        self._check_open()
        change = self._core.acquire(run_id, holder) if fits(self._core.head(run_id)) else None
        return self._taken(change, holder) if isinstance(change, Change) else None

    async def lease_state(self, run_id: RunId) -> LeaseState | None:
        self._check_open()
        return self._core.lease_state(run_id)

    async def renew(self, lease: Lease) -> None:
        self._check_open()
        self._core.renew(lease)

    async def release(self, lease: Lease) -> None:
        self._check_open()
        self._commit(self._core.release(lease))

    # ------------------------------------------------------------ writing

    def append(
        self, lease: Lease, appends: Sequence[Append], *, expect_seq: int | None = None
    ) -> Awaitable[list[AppendOutcome]]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[AppendOutcome]] = loop.create_future()
        prepared, unencodable = prepare(appends)
        try:
            self._check_open()
            change = self._core.append(lease, prepared, expect_seq, unencodable)
        except Exception as error:
            future.set_exception(error)
            future.exception()  # looked at: nobody is obliged to await an append
            return future
        self._commit(change)
        # Answered in the loop's next turn, as with a store that has to wait for its disk.
        loop.call_soon(_answer, future, self._outcomes(change))
        return future

    async def post(self, run_id: RunId, append: Append) -> AppendOutcome:
        self._check_open()
        change = self._core.post(run_id, prepare_post(append))
        self._commit(change)
        return self._outcomes(change)[0]

    def _commit(self, change: Change) -> None:
        for entry in change.entries:
            if entry.seq:
                self._runs.setdefault(entry.run_id, []).append(entry)
                self._all.append(entry)
        self._feed.publish(change.entries)
        self._claims.committed(change.entries)

    def _outcomes(self, change: Change) -> list[AppendOutcome]:
        return [
            AppendOutcome("exists", self._runs[change.head.run_id][outcome - 1])
            if isinstance(outcome, int)
            else AppendOutcome("appended", outcome)
            for outcome in change.outcomes
        ]

    # ------------------------------------------------------------ reading

    async def read(self, run_id: RunId, from_seq: int = 1) -> AsyncIterator[JournalEntry]:
        at = max(1, from_seq)
        while True:
            self._check_open()
            page = self._runs.get(run_id, [])[at - 1 : at - 1 + PAGE]
            if self.observe_read is not None and page:
                self.observe_read(len(page))
            for entry in page:
                yield entry
            if len(page) < PAGE:
                return
            at += len(page)

    async def read_key(self, run_id: RunId, key: str) -> JournalEntry | None:
        self._check_open()
        head = self._core.heads.get(run_id)
        seq = head.keys.get(key) if head is not None and head.keys else None
        return self._runs[run_id][seq - 1] if seq else None

    def subscribe(
        self, from_global_seq: int | None = None, *, run_id: RunId | None = None, types: frozenset[str] | None = None
    ) -> Subscription:
        self._check_open()
        return self._feed.subscribe(from_global_seq, run_id, types)

    async def _load_notices(self, after: int, limit: int) -> list[Notice]:
        later = itertools.dropwhile(lambda entry: entry.global_seq <= after, self._all)
        return [notice_of(entry) for entry in itertools.islice(later, limit)]

    async def query(self, sql: str, *, timeout_s: float = 30.0, parameters: Mapping[str, Any] | None = None) -> Path:
        self._check_open()
        from loom_kernel.journal.duckdb_store import query_entries

        return await asyncio.to_thread(query_entries, list(self._all), sql, timeout_s, parameters)

    def hold(self, entries: Iterable[JournalEntry], blobs: Mapping[str, bytes]) -> None:
        """Have what was recorded elsewhere, to be read; nobody can go on with such a run."""
        for entry in entries:
            self._runs.setdefault(entry.run_id, []).append(entry)
        self._blobs.update(blobs)

    # ------------------------------------------------------------ blobs

    async def put_blobs(self, blobs: Sequence[tuple[str, bytes]]) -> None:
        self._check_open()
        self._blobs.update((sha256, bytes(data)) for sha256, data in blobs)

    async def get_blob(self, sha256: str) -> bytes:
        self._check_open()
        return self._blobs[sha256]

    # ------------------------------------------------------------ the end

    async def delete_owned_run(self, lease: Lease, expect_seq: int | None = None) -> None:
        self._check_open()
        self._forget(self._core.delete_owned(lease, expect_seq))

    async def delete_run(self, run_id: RunId) -> None:
        self._check_open()
        change = self._core.delete(run_id)
        if change is not None:
            self._forget(change)

    def _forget(self, change: Change) -> None:
        gone = self._runs.pop(change.head.run_id, [])
        if gone:
            self._all = [entry for entry in self._all if entry.run_id != change.head.run_id]
        self._commit(change)

    async def close(self) -> None:
        self._closed = True
        self._claims.close()
        self._feed.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StorageUnavailableError("the journal was closed", "memory")


def _answer(future: asyncio.Future[list[AppendOutcome]], outcomes: list[AppendOutcome]) -> None:
    if not future.done():
        future.set_result(outcomes)
