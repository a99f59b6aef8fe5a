"""The journal at the far end of the hub's socket: what kernels, workers, the server and the command line use."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import secrets
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from loom_kernel import events
from loom_kernel.errors import JournalError, StaleLeaseError, StorageUnavailableError, UnknownRunError
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
from loom_kernel.journal.blobs import read_blob, write_blobs
from loom_kernel.journal.core import Prepared, prepare, prepare_post
from loom_kernel.journal.hub import paths, protocol
from loom_kernel.journal.hub.link import Link
from loom_kernel.journal.keeping import GcReport
from loom_kernel.journal.parameters import pack

_UNNAMED = "unnamed:"
"""Begins the key that an append without one gets, so that it too may be repeated after the hub was killed."""

_UNCLAIM_S = 1.0
"""How long a claim that is taken back waits to hear whether it got something in that moment."""

_warned: set[str] = set()


class HubJournal(RunJournal):
    """A :class:`RunJournal` served by the hub of a folder. Made by :meth:`open`; lives on the loop that opened it.

    The hub may be killed and come back at any time: calls take longer then (a quarter of a second), and nothing is lost
    or written twice. A ``query`` fails with "the hub restarted" and may be asked again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._link = Link(folder, on_notices=self._notices, on_connected=self._connected)
        self._subscriptions: dict[int, HubSubscription] = {}
        self._subscription_ids = itertools.count(1)
        self._unnamed = f"{_UNNAMED}{secrets.token_hex(4)}:"
        self._unnamed_ids = itertools.count(1)
        self._position = 0  # the newest global_seq that was heard of
        self._closed = False
        self.observe_read: Callable[[int], None] | None = None
        """Called with the size of each page that ``read`` loads; for the conformance suite."""

    @classmethod
    async def open(cls, folder: str | os.PathLike[str], holder: Holder | None = None) -> HubJournal:
        """Connect to the hub of ``folder`` (the ``.loom`` folder itself), starting one if none runs.

        Args:
            holder: whom this process holds leases as; while the connection is open and the process alive they do not
                expire. None for those who only look.

        Raises:
            StorageUnavailableError: the journal cannot be opened; the sentence says why and what to do.
        """
        root = paths.journal_path(folder)
        _warn_of_network(root)
        journal = cls(root)
        if holder is not None:
            journal._link.holders[holder.id] = holder
        try:
            await journal._link.open()
        except BaseException:
            journal._closed = True
            await journal._link.close()
            raise
        return journal

    # ------------------------------------------------------------ runs

    async def create_run(self, run_id: RunId, created: RunCreated) -> Literal["created", "exists"]:
        payload = events.encode(created)
        status, again = await self._link.call("create_run", (run_id, payload), _with_again)
        if status == "exists" and again:
            # Perhaps it exists because the first sending was committed and its answer lost.
            first = await self.read_key(run_id, "created")
            if first is not None and first.payload == payload:
                return "created"
        return status

    async def start_run(self, run_id: RunId, created: RunCreated, holder: Holder) -> LeaseAcquired | LeaseHeld:
        self._holding(holder)
        return await self._link.call("start_run", (run_id, events.encode(created), holder), _lease)

    async def get_run(self, run_id: RunId) -> RunSummary | None:
        raw = await self._link.call("get_run", (run_id,))
        return None if raw is None else msgspec.json.decode(raw, type=RunSummary)

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
        wanted = protocol.RunFilter(
            workflow=workflow,
            status=None if status is None else list(status),
            key=key,
            notebook=notebook,
            tag=tag,
            roots_only=roots_only,
            limit=limit,
        )
        return msgspec.json.decode(await self._link.call("list_runs", (wanted,)), type=list[RunSummary])

    # ------------------------------------------------------------ leases

    async def acquire(self, run_id: RunId, holder: Holder) -> LeaseAcquired | LeaseHeld:
        self._holding(holder)
        return await self._link.call("acquire", (run_id, holder), _lease)

    async def takeover(self, run_id: RunId, holder: Holder, expected_holder: HolderId) -> LeaseAcquired | LeaseHeld:
        self._holding(holder)
        return await self._took(
            run_id, holder, await self._link.call("takeover", (run_id, holder, expected_holder), _lease)
        )

    async def takeover_expired(self, run_id: RunId, holder: Holder, stale_after_s: float) -> LeaseAcquired | LeaseHeld:
        self._holding(holder)
        return await self._took(
            run_id, holder, await self._link.call("takeover_expired", (run_id, holder, stale_after_s), _lease)
        )

    async def _took(self, run_id: RunId, holder: Holder, got: LeaseAcquired | LeaseHeld) -> LeaseAcquired | LeaseHeld:
        """Taken by the first sending, whose answer was lost: then it is ours to acquire."""
        if isinstance(got, LeaseHeld) and got.holder.id == holder.id:
            return await self.acquire(run_id, holder)
        return got

    async def claim(
        self,
        definitions: Mapping[str, str],
        holder: Holder,
        *,
        but: Collection[str] = (),
        timeout_s: float | None = None,
    ) -> LeaseAcquired | None:
        self._holding(holder)
        ticket = secrets.token_hex(8)
        while True:
            future = self._link.call("claim", (dict(definitions), holder, list(but), timeout_s, ticket), _lease)
            try:
                got = await asyncio.shield(future)
            except asyncio.CancelledError:
                await self._unclaim(future)
                raise
            if got is not None or timeout_s is not None:
                return got
            # A hub that was leaving took the question back; the next one is asked.

    async def _unclaim(self, future: asyncio.Future[LeaseAcquired | None]) -> None:
        """Nobody waits for this claim any more: take it back, or give back what it got."""
        asked = self._link.id_of(future)
        if asked is not None:
            self._link.tell("cancel", (asked,))
            await asyncio.wait({future}, timeout=_UNCLAIM_S)
            self._link.forget(future)
        if future.done() and not future.cancelled() and future.exception() is None:
            got = future.result()
            if got is not None:
                with contextlib.suppress(JournalError):
                    await self.release(got.lease)

    def _holding(self, holder: Holder) -> None:
        self._link.holders[holder.id] = holder
        self._link.eager = True

    async def lease_state(self, run_id: RunId) -> LeaseState | None:
        return await self._link.call("lease_state", (run_id,))

    async def renew(self, lease: Lease) -> None:
        await self._link.call("renew", _fields(lease))

    async def release(self, lease: Lease) -> None:
        await self._link.call("release", _fields(lease), _gone_already)

    # ------------------------------------------------------------ writing

    def append(
        self, lease: Lease, appends: Sequence[Append], *, expect_seq: int | None = None
    ) -> Awaitable[list[AppendOutcome]]:
        future = self._link.call("append", *self._appending(lease, appends, expect_seq))
        future.add_done_callback(_looked_at)  # nobody is obliged to await an append
        return future

    def append_then(
        self, lease: Lease, appends: Sequence[Append], done: Callable[[list[AppendOutcome] | BaseException], None]
    ) -> None:
        self._link.ask("append", *self._appending(lease, appends, None), done)

    def _appending(
        self, lease: Lease, appends: Sequence[Append], expect_seq: int | None
    ) -> tuple[tuple[Any, ...], Callable[[Any, bool], Any]]:
        """The arguments of the request, and what makes outcomes of its answer."""
        prepared, unencodable = prepare(appends)
        named = [item if item[0] is not None else (self._new_key(), *item[1:]) for item in prepared]
        why = None if unencodable is None else str(unencodable)
        outcomes = functools.partial(self._outcomes, lease.run_id, named)
        return (*_fields(lease), expect_seq, named, why), outcomes

    def _outcomes(self, run_id: str, named: list[Prepared], acked: Any, again: bool) -> Any:
        if isinstance(acked, Exception):
            return acked
        return [self._outcome(run_id, item, one, again) for item, one in zip(named, acked, strict=True)]

    async def post(self, run_id: RunId, append: Append) -> AppendOutcome:
        item = prepare_post(append)
        if item[0] is None:
            item = (self._new_key(), *item[1:])

        def outcome(acked: Any, again: bool) -> Any:
            return acked if isinstance(acked, Exception) else self._outcome(run_id, item, acked, again)

        return await self._link.call("post", (run_id, *item), outcome)

    def _new_key(self) -> str:
        return f"{self._unnamed}{next(self._unnamed_ids)}"

    def _outcome(self, run_id: str, item: Prepared, acked: protocol.Acked, again: bool) -> AppendOutcome:
        key, type_, node_id, payload = item
        self._position = max(self._position, acked.global_seq)
        entry = acked.entry
        if entry is None:
            shown = acked.key if acked.key is not None else key
            return AppendOutcome(
                "appended",
                JournalEntry(
                    acked.global_seq, run_id, acked.seq, _named(shown), type_, node_id, payload, acked.created_at
                ),
            )
        # Sent twice, and what is there is what we sent: it is there because of us.
        ours = again and (entry.type, entry.node_id, entry.payload) == (type_, node_id, payload)
        return AppendOutcome("appended" if ours else "exists", _public(entry))

    # ------------------------------------------------------------ reading

    async def read(self, run_id: RunId, from_seq: int = 1) -> AsyncIterator[JournalEntry]:
        at, more = from_seq, True
        while more:
            page: protocol.Page = await self._link.call("read", (run_id, at))
            if self.observe_read is not None and page.entries:
                self.observe_read(len(page.entries))
            for entry in page.entries:
                yield _public(entry)
            more = page.more and bool(page.entries)
            at = page.entries[-1].seq + 1 if page.entries else at

    async def read_key(self, run_id: RunId, key: str) -> JournalEntry | None:
        return await self._link.call("read_key", (run_id, key))

    def subscribe(
        self, from_global_seq: int | None = None, *, run_id: RunId | None = None, types: frozenset[str] | None = None
    ) -> Subscription:
        if self._closed:
            raise StorageUnavailableError("the journal was closed", os.fspath(self.folder))
        number = next(self._subscription_ids)
        subscription = HubSubscription(self, number, from_global_seq, run_id, types, self._position)
        self._subscriptions[number] = subscription
        self._link.eager = True
        subscription._begin()
        return subscription

    def _notices(self, number: int, position: int, notices: list[Notice]) -> None:
        self._position = max(self._position, position)
        subscription = self._subscriptions.get(number)
        if subscription is not None:
            subscription._offer(position, notices)

    def _connected(self, position: int) -> None:
        self._position = max(self._position, position)
        for subscription in list(self._subscriptions.values()):
            subscription._begin()

    async def query(self, sql: str, *, timeout_s: float = 30.0, parameters: Mapping[str, Any] | None = None) -> Path:
        if parameters:
            future = self._link.call("query_with", (sql, timeout_s, pack(parameters)))
        else:
            future = self._link.call("query", (sql, timeout_s))
        try:
            return Path(await asyncio.shield(future))
        except asyncio.CancelledError:
            asked = self._link.id_of(future)
            if asked is not None:
                self._link.tell("cancel", (asked,))  # the hub interrupts it
            future.add_done_callback(_unlink_result)
            raise

    # ------------------------------------------------------------ values

    async def put_blobs(self, blobs: Sequence[tuple[str, bytes]]) -> None:
        self._check_open()
        try:
            await asyncio.to_thread(write_blobs, self.folder, blobs)
        except OSError as error:
            raise StorageUnavailableError(
                f"a value could not be written to {self.folder}: {error.strerror or error}", os.fspath(self.folder)
            ) from None

    async def get_blob(self, sha256: str) -> bytes:
        self._check_open()
        try:
            return await asyncio.to_thread(read_blob, self.folder, sha256)
        except KeyError:
            return await self._taken_in(sha256)
        except OSError as error:
            raise StorageUnavailableError(
                f"a value could not be read from {self.folder}: {error.strerror or error}", os.fspath(self.folder)
            ) from None

    async def _taken_in(self, sha256: str) -> bytes:
        """A value whose file the hub took into its own."""
        data, path = await self._link.call("get_blob", (sha256,))
        return data if path is None else await asyncio.to_thread(_read_and_unlink, Path(path))

    # ------------------------------------------------------------ the end

    async def gc(self, older_than_s: float, *, dry_run: bool = False) -> GcReport:
        """Delete runs that ended for good longer ago than that, and values that nothing refers to any more.

        Runs that can still resume stay, and so do their families: ancestors, children, what they were forked from.
        """
        return GcReport(**await self._link.call("gc", (older_than_s, dry_run)))

    async def delete_owned_run(self, lease: Lease, expect_seq: int | None = None) -> None:
        await self._link.call("delete_owned_run", (*_fields(lease), expect_seq), _gone_already)

    async def delete_run(self, run_id: RunId) -> None:
        await self._link.call("delete_run", (run_id,), _gone_already)

    async def hub(self) -> dict[str, Any]:
        """What the hub says of itself; see :func:`~loom_kernel.journal.hub.launch.hub_status`."""
        return await self._link.call("status", ())

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for subscription in list(self._subscriptions.values()):
            subscription.close()
        await self._link.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StorageUnavailableError("the journal was closed", os.fspath(self.folder))


class HubSubscription(Subscription):
    """Notices pushed by the hub. After a lost connection it goes on behind the last notice that it got."""

    def __init__(
        self,
        journal: HubJournal,
        number: int,
        after: int | None,
        run_id: str | None,
        types: frozenset[str] | None,
        known: int,
    ) -> None:
        self._journal, self._number = journal, number
        self._after = after  # None: from the moment at which the hub hears of it
        self._known = known  # the newest position when we were made
        self._run_id, self._types = run_id, None if types is None else sorted(types)
        self._waiting: list[Notice] = []
        self._wake = asyncio.Event()
        self._asked = False
        self._closed = False

    def _begin(self) -> None:
        """Ask the hub for what comes after what was seen."""
        link = self._journal._link
        if not link.connected:
            return
        if self._asked and self._after is None:
            self._after = self._known  # the hub died before it said where "now" is: rather too early than a gap
        self._asked = True
        link.tell("subscribe", (self._number, self._after, self._run_id, self._types))

    def _offer(self, position: int, notices: list[Notice]) -> None:
        after = self._after or 0
        for notice in notices:
            if notice.global_seq > after:
                self._waiting.append(notice)
                after = notice.global_seq
        self._after = max(after, position)
        self._wake.set()

    async def __aiter__(self) -> AsyncIterator[list[Notice]]:
        try:
            while not self._closed:
                if self._waiting:
                    batch, self._waiting = self._waiting, []
                    yield batch
                    continue
                self._wake.clear()
                await self._wake.wait()
        finally:
            self.close()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._journal._subscriptions.pop(self._number, None)
        self._journal._link.tell("unsubscribe", (self._number,))
        self._wake.set()


# ---------------------------------------------------------------- answers


def _fields(lease: Lease) -> tuple[str, str, int]:
    return lease.run_id, lease.holder_id, lease.epoch


def _with_again(result: Any, again: bool) -> Any:
    return result if isinstance(result, Exception) else (result, again)


def _lease(result: Any, again: bool) -> Any:
    if isinstance(result, Exception):
        return result
    leased: protocol.Leased = result
    if leased.acquired is None:
        return leased.held
    if any((entry.key or "").startswith(_UNNAMED) for entry in leased.acquired.entries):
        return LeaseAcquired(leased.acquired.lease, [_public(entry) for entry in leased.acquired.entries])
    return leased.acquired


def _gone_already(result: Any, again: bool) -> Any:
    """A repeated release or deletion finds that the first one did it."""
    return None if again and isinstance(result, (StaleLeaseError, UnknownRunError)) else result


def _named(key: str | None) -> str | None:
    return None if key is None or key.startswith(_UNNAMED) else key


def _public(entry: JournalEntry) -> JournalEntry:
    """The entry as its writer meant it: without the key that the client made up."""
    return (
        msgspec.structs.replace(entry, key=None) if entry.key is not None and entry.key.startswith(_UNNAMED) else entry
    )


def _looked_at(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


def _unlink_result(future: asyncio.Future[Any]) -> None:
    if not future.cancelled() and future.exception() is None:
        Path(future.result()).unlink(missing_ok=True)


def _read_and_unlink(path: Path) -> bytes:
    try:
        return path.read_bytes()
    finally:
        path.unlink(missing_ok=True)


def _warn_of_network(folder: Path) -> None:
    kind = paths.network_file_system(folder)
    if kind is not None and os.fspath(folder) not in _warned:
        _warned.add(os.fspath(folder))
        warnings.warn(
            f"the journal in {folder} lies on a network file system ({kind}): locks and syncs there are often not what they "
            "promise. Name a local folder with LOOM_HOME.",
            RuntimeWarning,
            stacklevel=3,
        )
