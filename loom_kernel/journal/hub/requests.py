"""What the hub does for each request but ``append``: a line or two that ask the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from loom_kernel import events
from loom_kernel.errors import AnswerError
from loom_kernel.journal.abc import Append, Holder, JournalEntry, Lease, LeaseAcquired, LeaseHeld, LeaseState
from loom_kernel.journal.hub.protocol import Acked, Drained, Leased, Page, RunFilter
from loom_kernel.journal.parameters import unpack

if TYPE_CHECKING:
    from loom_kernel.journal.hub.server import Peer

PAGE_BYTES = 1 << 20
PAGE_EVENTS = 1_000
READING = 4
"""Places in histories that are kept for one connection."""

Handler = Callable[..., Coroutine[Any, Any, Any]]
HANDLERS: dict[str, Handler] = {}
"""``handler(peer, *arguments)`` by the request's name."""


NAMES_ITS_HOLDER = frozenset({"start_run", "acquire", "takeover", "takeover_expired", "claim", "renew", "release"})
"""Requests of one holder; the others are of everybody whom the connection is of."""


def _handler(fn: Handler) -> Handler:
    HANDLERS[fn.__name__] = fn
    return fn


# ---------------------------------------------------------------- the hub itself


@_handler
async def status(peer: Peer) -> dict[str, Any]:
    return peer.hub.status()


@_handler
async def stop(peer: Peer) -> None:
    peer.hub.stop()


@_handler
async def drain(peer: Peer) -> Drained:
    """A newer client asks us to make room; not while runs are live."""
    if peer.hub.store.idle():
        peer.hub.stop()
        return Drained(True, [])
    others = {id: holder for other in peer.hub.peers if other is not peer for id, holder in other.holders.items()}
    return Drained(False, list(others.values()))


@_handler
async def cancel(peer: Peer, id: int) -> None:
    peer.cancel(id)


# ---------------------------------------------------------------- runs


@_handler
async def create_run(peer: Peer, run_id: Any, created: bytes) -> str:
    return await peer.hub.store.create_run(run_id, _created(created))


@_handler
async def start_run(peer: Peer, run_id: Any, created: bytes, holder: Holder) -> Leased:
    peer.hold_as(holder)
    return _leased(await peer.hub.store.start_run(run_id, _created(created), holder))


@_handler
async def get_run(peer: Peer, run_id: Any) -> bytes | None:
    run = await peer.hub.store.get_run(run_id)
    return None if run is None else msgspec.json.encode(run)


@_handler
async def list_runs(peer: Peer, wanted: RunFilter) -> bytes:
    return msgspec.json.encode(await peer.hub.store.list_runs(**msgspec.structs.asdict(wanted)))


@_handler
async def delete_owned_run(peer: Peer, run_id: Any, holder_id: Any, epoch: int, expect_seq: int | None) -> None:
    await peer.hub.store.delete_owned_run(Lease(run_id, holder_id, epoch), expect_seq)


@_handler
async def delete_run(peer: Peer, run_id: Any) -> None:
    await peer.hub.store.delete_run(run_id)


# ---------------------------------------------------------------- leases


@_handler
async def acquire(peer: Peer, run_id: Any, holder: Holder) -> Leased:
    peer.hold_as(holder)
    return _leased(await peer.hub.store.acquire(run_id, holder))


@_handler
async def takeover(peer: Peer, run_id: Any, holder: Holder, expected_holder: Any) -> Leased:
    peer.hold_as(holder)
    return _leased(await peer.hub.store.takeover(run_id, holder, expected_holder))


@_handler
async def takeover_expired(peer: Peer, run_id: Any, holder: Holder, stale_after_s: float) -> Leased:
    peer.hold_as(holder)
    return _leased(await peer.hub.store.takeover_expired(run_id, holder, stale_after_s))


@_handler
async def claim(
    peer: Peer, definitions: dict[str, str], holder: Holder, but: list[str], timeout_s: float | None, ticket: str
) -> Leased:
    peer.hold_as(holder)
    try:
        got = await peer.hub.store.claim(definitions, holder, but=but, timeout_s=timeout_s, ticket=ticket)
    except asyncio.CancelledError:
        got = None  # the asker thought better of it; what was being taken for it is given back
    return Leased(got, None)


@_handler
async def lease_state(peer: Peer, run_id: Any) -> LeaseState | None:
    return await peer.hub.store.lease_state(run_id)


@_handler
async def renew(peer: Peer, run_id: Any, holder_id: Any, epoch: int) -> None:
    await peer.hub.store.renew(Lease(run_id, holder_id, epoch))


@_handler
async def release(peer: Peer, run_id: Any, holder_id: Any, epoch: int) -> None:
    await peer.hub.store.release(Lease(run_id, holder_id, epoch))


# ---------------------------------------------------------------- events


@_handler
async def post(peer: Peer, run_id: Any, key: str | None, type: str, node_id: Any, payload: bytes) -> Acked:
    if type not in events.POSTS:
        raise ValueError(f"{type} cannot be posted; only the holder of the run's lease may append it")
    try:
        event = events.decode(type, payload)
    except msgspec.DecodeError as error:
        raise AnswerError(f"the answer to {node_id or 'the question'} is not JSON: {error}") from None
    outcome = await peer.hub.store.post(run_id, Append(event, node_id, key))
    entry = outcome.entry
    if outcome.status == "exists":
        return Acked(entry.global_seq, entry.seq, entry.created_at, entry)
    return Acked(entry.global_seq, entry.seq, entry.created_at, None, entry.key if entry.key != key else None)


@_handler
async def read(peer: Peer, run_id: Any, from_seq: int) -> Page:
    # A reader that comes back for more finds its place kept, so that the store loads no event twice.
    source = peer.reading.pop((run_id, from_seq), None) or peer.hub.store.read(run_id, from_seq)
    entries: list[JournalEntry] = []
    size = 0
    async for entry in source:
        entries.append(entry)
        size += len(entry.payload) + 100
        if size > PAGE_BYTES or len(entries) >= PAGE_EVENTS:
            peer.reading[run_id, entry.seq + 1] = source
            while len(peer.reading) > READING:
                await _close(peer.reading.pop(next(iter(peer.reading))))
            return Page(entries, True)
    return Page(entries, False)


@_handler
async def read_key(peer: Peer, run_id: Any, key: str) -> JournalEntry | None:
    return await peer.hub.store.read_key(run_id, key)


@_handler
async def subscribe(peer: Peer, number: int, after: int | None, run_id: str | None, types: list[str] | None) -> None:
    peer.follow(number, after, run_id, types)


@_handler
async def unsubscribe(peer: Peer, number: int) -> None:
    peer.unfollow(number)


# ---------------------------------------------------------------- queries


@_handler
async def query(peer: Peer, sql: str, timeout_s: float) -> str:
    return str(await peer.hub.store.query(sql, timeout_s=timeout_s))


@_handler
async def query_with(peer: Peer, sql: str, timeout_s: float, parameters: bytes) -> str:
    return str(await peer.hub.store.query(sql, timeout_s=timeout_s, parameters=unpack(parameters)))


@_handler
async def get_blob(peer: Peer, sha256: str) -> tuple[bytes | None, str | None]:
    found = await peer.hub.store.spill_blob(sha256, PAGE_BYTES)
    return (found, None) if isinstance(found, bytes) else (None, str(found))


@_handler
async def gc(peer: Peer, older_than_s: float, dry_run: bool) -> dict[str, int]:
    return msgspec.structs.asdict(await peer.hub.store.gc(older_than_s, dry_run=dry_run))


async def _close(source: Any) -> None:
    await source.aclose()


def _created(payload: bytes) -> events.RunCreated:
    created = events.decode(events.RunCreated.type, payload)
    assert isinstance(created, events.RunCreated)
    return created


def _leased(got: LeaseAcquired | LeaseHeld) -> Leased:
    return Leased(got, None) if isinstance(got, LeaseAcquired) else Leased(None, got)
