"""The journal's contract. Implementations: ``memory_store``, ``duckdb_store`` (in process), ``hub.client`` (another process).

Promises, whoever implements it:

* Events of a run have ``seq`` 1, 2, 3 ... without a gap; ``global_seq`` orders all runs, in commit order.
* When ``append``, ``post``, ``create_run`` or ``acquire`` returns, what it wrote survives SIGKILL and power loss
  (memory: the process's life).
* ``append`` checks the lease fence first, then the idempotency key, then ``expect_seq``; what fails writes nothing.
* An event is serialized at the call, before anything is awaited: a caller may change its objects afterwards.
* Ages and timestamps are the journal's own clock.
* Storage trouble raises ``StorageUnavailableError``; nothing ever turns to memory by itself.
* Everything runs on one event loop; an instance belongs to the loop that opened it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from loom_kernel import events
from loom_kernel.events import Event, RunCreated
from loom_kernel.ids import HolderId, RunId


class JournalEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One stored event. ``payload`` is its JSON; ``created_at`` is microseconds since the epoch, UTC."""

    global_seq: int
    run_id: str
    seq: int
    key: str | None
    type: str
    node_id: str | None
    payload: bytes
    created_at: int

    @property
    def event(self) -> Event:
        return events.decode(self.type, self.payload)


class Append(msgspec.Struct, frozen=True, gc=False):
    """What to append: an event, the node it is about, and the key that makes repeating it harmless."""

    event: Event
    node_id: str | None = None
    key: str | None = None


class AppendOutcome(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """``exists`` means the key was there before: ``entry`` is the original then, otherwise the new one."""

    status: Literal["appended", "exists"]
    entry: JournalEntry


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who may hold leases: one worker process. ``label`` is for people (a notebook's name).

    ``ticket`` names the claim that gave a lease, so that a claim whose answer was lost finds it again.
    """

    id: HolderId
    pid: int
    pid_started: float = 0.0
    boot_id: str = ""
    host: str = ""
    label: str = ""
    kind: str = "script"  # kernel, script, worker, cli, server, test
    ticket: str = ""


class Lease(msgspec.Struct, frozen=True, gc=False):
    """The right to append to a run, until someone else has a higher epoch."""

    run_id: str
    holder_id: str
    epoch: int


class LeaseAcquired(msgspec.Struct, frozen=True, gc=False):
    """The lease, and the run's whole history, which the hub has at hand anyway (saves a round trip)."""

    lease: Lease
    entries: list[JournalEntry]


class LeaseHeld(msgspec.Struct, frozen=True):
    """Somebody else holds the run. ``age_s`` is the time since its last renewal."""

    holder: Holder
    epoch: int
    age_s: float


class LeaseState(msgspec.Struct, frozen=True):
    """A lease as it is now. ``expired`` says that it may be taken over."""

    holder: Holder
    epoch: int
    renewed_at: float
    age_ms: int
    expired: bool


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A run in one row. ``interrupted`` is derived: not at rest, and nobody holds a live lease."""

    run_id: str
    workflow: str
    status: str
    reason: str | None
    interrupted: bool
    last_seq: int
    open_prompts: int
    resumable: bool
    created_at: int
    updated_at: int
    header: RunCreated


class Notice(msgspec.Struct, frozen=True, array_like=True):
    """A pushed hint that something was appended: ids and types, never payloads."""

    global_seq: int
    run_id: str
    seq: int
    type: str
    node_id: str | None


class RunJournal(ABC):
    """See the module's text for what every implementation promises."""

    # -- runs

    @abstractmethod
    async def create_run(self, run_id: RunId, created: RunCreated) -> Literal["created", "exists"]:
        """Write ``run.created`` as the run's first event. A second call with the same id changes nothing."""

    @abstractmethod
    async def start_run(self, run_id: RunId, created: RunCreated, holder: Holder) -> LeaseAcquired | LeaseHeld:
        """``create_run`` and ``acquire`` in one commit."""

    @abstractmethod
    async def get_run(self, run_id: RunId) -> RunSummary | None: ...

    @abstractmethod
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
        """Newest first. ``status`` takes stored statuses and ``"interrupted"``."""

    # -- leases

    @abstractmethod
    async def acquire(self, run_id: RunId, holder: Holder) -> LeaseAcquired | LeaseHeld:
        """Take the lease if nobody, the same holder or only an expired holder has it.

        Waits out the moment in which a closed connection is not yet known to be dead (2 s at most).

        Raises:
            UnknownRunError: there is no such run.
        """

    @abstractmethod
    async def takeover(self, run_id: RunId, holder: Holder, expected_holder: HolderId) -> LeaseAcquired | LeaseHeld:
        """Take the lease from ``expected_holder`` although it lives; a person asked for it."""

    @abstractmethod
    async def takeover_expired(self, run_id: RunId, holder: Holder, stale_after_s: float) -> LeaseAcquired | LeaseHeld:
        """Take the lease if its last renewal is strictly older than ``stale_after_s``."""

    @abstractmethod
    async def claim(
        self,
        definitions: Mapping[str, str],
        holder: Holder,
        *,
        but: Collection[str] = (),
        timeout_s: float | None = None,
    ) -> LeaseAcquired | None:
        """Wait for a run that nobody executes and that the holder has the definition of, and take its lease.

        That is a run left pending for a worker, or one whose lease was given back or has expired. Runs at rest, children
        and runs with secret inputs are never handed out. The oldest comes first; of several who wait, one gets it.

        Args:
            definitions: the version of each workflow that the holder can execute, by the workflow's name.
            but: ids of runs that are not wanted.
            timeout_s: seconds to wait; 0 only looks, None waits for ever.

        Returns:
            The lease and the run's history; None when the time is over.
        """

    @abstractmethod
    async def lease_state(self, run_id: RunId) -> LeaseState | None:
        """None when nobody holds it."""

    @abstractmethod
    async def renew(self, lease: Lease) -> None:
        """Raises: StaleLeaseError."""

    @abstractmethod
    async def release(self, lease: Lease) -> None:
        """Give the lease back; what the run's end gave back already is fine. Raises: StaleLeaseError."""

    # -- writing

    @abstractmethod
    def append(
        self, lease: Lease, appends: Sequence[Append], *, expect_seq: int | None = None
    ) -> Awaitable[list[AppendOutcome]]:
        """Append all or nothing, in order, in one commit; one outcome each.

        The fence and the keys are checked and the events serialized before this returns; awaiting the result waits
        for the commit. Dropping the awaitable does not undo it. ``run.paused`` and ``run.ended`` give the lease back in
        the same commit: nothing follows them under it.

        Raises:
            StaleLeaseError: the lease is not the newest.
            JournalCasConflictError: ``expect_seq`` is not the latest and some key is new.
            StorageUnavailableError: it could not be made durable.
        """

    def append_then(
        self, lease: Lease, appends: Sequence[Append], done: Callable[[list[AppendOutcome] | BaseException], None]
    ) -> None:
        """``append`` for somebody who does not await it: ``done`` is called on the loop, later, with what came of it.

        A store whose answers come by a callback overrides this: a future more is a turn of the loop more.
        """
        try:
            future = asyncio.ensure_future(self.append(lease, appends))
        except Exception as error:
            asyncio.get_running_loop().call_soon(done, error)
            return

        def told(future: asyncio.Future[list[AppendOutcome]]) -> None:
            error = asyncio.CancelledError() if future.cancelled() else future.exception()
            done(future.result() if error is None else error)

        future.add_done_callback(told)

    @abstractmethod
    async def post(self, run_id: RunId, append: Append) -> AppendOutcome:
        """Append one of ``events.POSTS`` without the lease. First wins: a second post under the same key gets ``exists``.

        Raises:
            UnknownRunError: there is no such run.
            AnswerError: an answer to a question that is not open, or of the wrong form.
        """

    # -- reading

    @abstractmethod
    def read(self, run_id: RunId, from_seq: int = 1) -> AsyncIterator[JournalEntry]:
        """The run's events in order, loaded in pages as they are asked for."""

    @abstractmethod
    async def read_key(self, run_id: RunId, key: str) -> JournalEntry | None: ...

    @abstractmethod
    def subscribe(
        self, from_global_seq: int | None = None, *, run_id: RunId | None = None, types: frozenset[str] | None = None
    ) -> Subscription:
        """Notices after ``from_global_seq`` (None: from now on), then live; survives a hub restart without gap or repeat."""

    @abstractmethod
    async def query(self, sql: str, *, timeout_s: float = 30.0, parameters: Mapping[str, Any] | None = None) -> Path:
        """Run one SELECT over the documented views; the result is a Parquet file that the caller owns.

        ``parameters`` are values of ``$name`` in it.

        Raises:
            SqlError: not one read-only statement, an unknown name, or the time limit.
        """

    # -- values that are too large for an event

    @abstractmethod
    async def put_blobs(self, blobs: Sequence[tuple[str, bytes]]) -> None:
        """Keep ``(sha256, bytes)``, durably, before the append that names them."""

    @abstractmethod
    async def get_blob(self, sha256: str) -> bytes:
        """Raises: KeyError when it is not kept."""

    # -- the end

    @abstractmethod
    async def delete_owned_run(self, lease: Lease, expect_seq: int | None = None) -> None: ...

    @abstractmethod
    async def delete_run(self, run_id: RunId) -> None: ...

    @abstractmethod
    async def close(self) -> None:
        """Idempotent. Later calls raise StorageUnavailableError."""

    async def __aenter__(self) -> RunJournal:
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self.close()


class Subscription(ABC):
    """``async for notices in subscription``: batches, in ``global_seq`` order. ``close()`` ends it."""

    @abstractmethod
    def __aiter__(self) -> AsyncIterator[list[Notice]]: ...

    @abstractmethod
    def close(self) -> None: ...
