"""The hub: sole owner of one journal, on one socket. It commits, orders, fences and tells; it decides nothing.

Appends are handled in ``data_received``, since every turn of the loop that a step waits for is a tenth of its cost.
Everything else is a task.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from loom_kernel._version import __version__
from loom_kernel.errors import LoomError
from loom_kernel.journal.abc import AppendOutcome, Holder, JournalEntry, Lease
from loom_kernel.journal.duckdb_store import DuckDBRunJournal
from loom_kernel.journal.hub import paths, protocol
from loom_kernel.journal.hub.logfile import say, turn_over
from loom_kernel.journal.hub.paths import HubInfo
from loom_kernel.journal.hub.protocol import Acked, Frames, FrameTooLong, Hello, Push, Request, Status, Welcome
from loom_kernel.journal.hub.requests import HANDLERS, NAMES_ITS_HOLDER
from loom_kernel.journal.liveness import boot_id, pid_started
from loom_kernel.journal.migrations import SCHEMA

IDLE_S = 60.0
"""A hub without clients ends after this long; ``LOOM_HUB_IDLE_S`` sets another."""

MAX_UNSENT = 1 << 20
"""Bytes that a subscriber may leave unread before its pushes pause; it catches up from the journal then."""

_TICK_S = 1.0
_BACKLOG = 512  # a full backlog refuses a non-blocking connect in a way that looks like success

Probe = Callable[[str], None]
"""Called at named points of an append, for tests that end the process there."""


class Hub:
    """Serves an open journal until it is told to stop or nobody wants it any more.

    Args:
        store: the journal, opened on this loop.
        folder: its folder, a :func:`~.paths.journal_path`.
        still_ours: whether the lock in the folder is still the one this process holds.
        probe: see :data:`Probe`.
    """

    def __init__(
        self,
        store: DuckDBRunJournal,
        folder: Path,
        *,
        idle_s: float = IDLE_S,
        still_ours: Callable[[], bool] = lambda: True,
        probe: Probe | None = None,
    ) -> None:
        self.store, self.folder, self.idle_s = store, folder, idle_s
        self.peers: set[Peer] = set()
        self.leaving = False
        self.probe = probe
        self._still_ours = still_ours
        self._stop = asyncio.Event()
        self._server: asyncio.Server
        self._path: Path
        self._bound: tuple[int, int] | None = None
        self._started_at = time.time()
        self._started = self._last_client = time.monotonic()

    async def serve(self, ready: Callable[[], None]) -> None:
        """Listen, call ``ready``, and return when the journal is closed and the socket gone.

        Raises:
            OSError: the socket cannot be made.
        """
        await self._listen()
        if self.probe is not None:
            self.probe("starting")
        ready()
        try:
            await self._until_stopped()
        finally:
            self.leaving = True
            self._deafen()
            await self._leave()
            if self._still_ours():
                with contextlib.suppress(OSError):
                    (self.folder / paths.HUB_JSON).unlink()

    async def _listen(self) -> None:
        path = paths.socket_path(self.folder)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()  # of a hub that was killed: we hold the lock
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: Peer(self), os.fspath(path), backlog=_BACKLOG)
        path.chmod(0o600)
        self._path, self._bound = path, _identity(path)
        paths.write_info(self.folder, self._info(path))

    def _deafen(self) -> None:
        if _identity(self._path) == self._bound:  # another hub may listen there by now, where the folder was removed
            with contextlib.suppress(OSError):
                self._path.unlink()
        self._server.close()

    def serves(self) -> bool:
        """Whether newcomers are served: not on the way out, nor after the folder was removed under our feet."""
        if not self.leaving and not self._still_ours():
            say("the journal's folder is gone: leaving")
            self.leaving = True
            self.stop()
        return not self.leaving

    def stop(self) -> None:
        """End in good order."""
        self._stop.set()

    async def _until_stopped(self) -> None:
        beat = time.monotonic()
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), min(_TICK_S, max(0.01, self.idle_s / 4)))
            now = time.monotonic()
            if self.peers:
                self._last_client = now
            elif now - self._last_client >= self.idle_s and not self.store.stats()["unapplied"]:
                say("nobody came for a while: leaving")
                return
            if now - beat > min(paths.HEARTBEAT_S, self.idle_s):
                beat = now
                if not await self._look_after_itself():
                    return

    async def _look_after_itself(self) -> bool:
        """Every few seconds: is everything as it should be? False when there is nothing left to serve."""
        if not self._still_ours():
            say("the journal's folder is gone: leaving")
            return False
        if not self.store.stats()["threads_alive"]:
            say("a thread of the store has died: ending at once, clients will start another hub")
            os._exit(1)
        try:
            os.utime(self._path)  # those who tidy temporary folders look at the time
            os.utime(self.folder / paths.HUB_JSON)
        except OSError:
            # A session that ended took its runtime folder along. Connections live on; newcomers need a new place.
            say("the socket or hub.json is gone: making them again")
            self._server.close()
            try:
                await self._listen()
            except (OSError, LoomError) as error:
                say(f"that failed, will try again: {error}")
        turn_over(self.folder / paths.HUB_LOG)
        return True

    async def _leave(self) -> None:
        # Requests that are not answered yet stay unanswered: their askers repeat them to the next hub.
        for peer in list(self.peers):
            peer.end_tasks()
        try:
            await self.store.close()  # answers the appends it has, applies everything
        finally:
            gone = [peer.closed for peer in list(self.peers)]
            for peer in list(self.peers):
                peer.push(Push.LEAVING, None)
                peer.close()
            if gone:
                await asyncio.wait(gone, timeout=2)

    def _info(self, path: Path) -> HubInfo:
        return HubInfo(
            pid=os.getpid(),
            pid_started=pid_started(os.getpid()),
            boot_id=boot_id(),
            host=socket.gethostname(),
            address=os.fspath(path),
            protocol=protocol.PROTOCOL,
            schema=SCHEMA,
            version=__version__,
            started_at=self._started_at,
        )

    def welcome(self, hello: Hello) -> Welcome:
        """Our side of the handshake."""
        return Welcome(
            protocol=protocol.PROTOCOL,
            oldest=protocol.OLDEST_PROTOCOL,
            schema=SCHEMA,
            version=__version__,
            pid=os.getpid(),
            position=self.position,
            accepted=hello.protocol >= protocol.OLDEST_PROTOCOL,
        )

    @property
    def position(self) -> int:
        """The newest ``global_seq`` that is durable."""
        return int(self.store.stats()["acknowledged"])

    def status(self) -> dict[str, Any]:
        """What ``loom hub status`` shows."""
        clients: dict[str, dict[str, Any]] = {}
        for peer in self.peers:
            for holder in peer.holders.values():
                found = clients.setdefault(
                    holder.id,
                    {"id": holder.id, "pid": holder.pid, "label": holder.label, "kind": holder.kind, "connections": 0},
                )
                found["connections"] += 1
        return {
            "pid": os.getpid(),
            "folder": os.fspath(self.folder),
            "host": socket.gethostname(),
            "protocol": protocol.PROTOCOL,
            "schema": SCHEMA,
            "version": __version__,
            "started_at": self._started_at,
            "uptime_s": time.monotonic() - self._started,
            "idle_exit_s": self.idle_s,
            "connections": sum(peer.introduced for peer in self.peers),
            "subscriptions": sum(len(peer.following) for peer in self.peers),
            "clients": list(clients.values()),
            **self.store.stats(),
        }


class Peer(asyncio.Protocol):
    """One connection."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.frames = Frames()
        self.holders: dict[str, Holder] = {}
        self.introduced = False
        self.following: dict[int, asyncio.Task[None]] = {}
        self.reading: dict[tuple[str, int], AsyncIterator[JournalEntry]] = {}
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._transport: asyncio.Transport | None = None
        self._later: list[bytes] = []
        self._spoke = False
        self._writable = asyncio.Event()
        self._writable.set()

    # ------------------------------------------------------------ the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=MAX_UNSENT)
        self.hub.peers.add(self)
        uid = peer_uid(transport.get_extra_info("socket"))
        if uid != os.getuid():
            say(f"refused a connection of user {uid}")
            transport.abort()
        elif not self.hub.serves():
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.hub.peers.discard(self)
        self._writable.set()
        self.end_tasks()
        for holder_id in self.holders:
            self.hub.store.holder_disconnected(holder_id)
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def end_tasks(self) -> None:
        """Stop working on what this peer asked; a running query is interrupted."""
        for task in [*self._tasks.values(), *self.following.values()]:
            task.cancel()

    def close(self) -> None:
        self._flush()
        if self._transport is not None:
            self._transport.close()

    # ------------------------------------------------------------ asked

    def data_received(self, data: bytes) -> None:
        self._spoke = False
        try:
            for body in self.frames.feed(data):
                self._asked(protocol.request_decoder.decode(body))
        except FrameTooLong as error:
            self._refuse(
                ValueError(
                    f"a message of {protocol.megabytes(error.size)} is over the limit of {protocol.megabytes(protocol.MAX_FRAME)}"
                )
            )
        except ValueError as error:  # msgspec's decoding errors are ValueErrors
            self._refuse(ValueError(f"that is no message for a hub: {error}"))
        self.hub.store.flush()  # the appends of this moment are one commit

    def _asked(self, request: Request) -> None:
        if self.hub.leaving:
            return
        id, method = request.id, request.method
        if not self.introduced:
            if method != "hello":
                raise ValueError("the first message must be hello")
            self._greet(id, protocol.METHODS["hello"].args.decode(request.args)[0])
            return
        if method == "append":  # this and the requests that name a holder are a sign of life of that one only
            self._append(id, protocol.METHODS["append"].args.decode(request.args))
            return
        if method not in NAMES_ITS_HOLDER:
            for holder_id in self.holders:
                self.hub.store.holder_seen(holder_id)
        handler = HANDLERS.get(method)
        if handler is None:
            self.send(id, Status.ERROR, protocol.error_to_wire(ValueError(f"this hub knows no request {method!r}")))
            return
        args = protocol.METHODS[method].args.decode(request.args)
        task = asyncio.get_running_loop().create_task(self._work(id, handler(self, *args)))
        self._tasks[id] = task
        task.add_done_callback(lambda _: self._tasks.pop(id, None))

    def _greet(self, id: int, hello: Hello) -> None:
        self.introduced = True
        for holder in hello.holders:
            self.hold_as(holder)
        self.send(id, Status.OK, self.hub.welcome(hello))

    def hold_as(self, holder: Holder) -> None:
        """This connection is the holder's: while it is open and the process alive, its leases do not expire."""
        if holder.id not in self.holders:
            self.holders[holder.id] = holder
            self.hub.store.holder_connected(holder)

    def cancel(self, id: int) -> None:
        """Nobody waits for that request any more."""
        task = self._tasks.get(id)
        if task is not None:
            task.cancel()

    def _append(self, id: int, args: tuple[Any, ...]) -> None:
        run_id, holder_id, epoch, expect_seq, prepared, unencodable = args
        if self.hub.probe is not None:
            self.hub.probe("before_commit")

        def done(result: list[AppendOutcome] | Exception) -> None:
            if self.hub.probe is not None:
                self.hub.probe("after_commit")
            if isinstance(result, Exception):
                self.send(id, Status.ERROR, protocol.error_to_wire(result))
            else:
                self.send(id, Status.OK, [acked(outcome) for outcome in result])
            if self.hub.probe is not None:
                self.hub.probe("after_ack")

        lease = Lease(run_id, holder_id, epoch)
        problem = None if unencodable is None else ValueError(unencodable)
        try:
            self.hub.store.append_now(lease, prepared, expect_seq, done, problem)
        except Exception as error:
            done(error)

    async def _work(self, id: int, work: Any) -> None:
        try:
            result = await work
        except Exception as error:
            wire = protocol.error_to_wire(error)
            if wire.kind != type(error).__name__:
                say(f"a request failed: {type(error).__name__} at {_where(error)}")
            self.send(id, Status.ERROR, wire)
        else:
            self.send(id, Status.OK, result)

    def _refuse(self, error: Exception) -> None:
        say(f"closed a connection: {error}")
        self.push(Push.REFUSAL, protocol.error_to_wire(error))
        self.close()

    # ------------------------------------------------------------ answers and pushes

    def send(self, id: int, status: int, value: Any) -> None:
        """Answer a request."""
        self._write(protocol.answer(id, status, value))

    def push(self, kind: Push, value: Any) -> None:
        """Say something that was not asked for."""
        self._write(protocol.answer(0, kind, value))

    def _write(self, data: bytes) -> None:
        # The first answer to what was heard goes at once, those after it together, a turn of the loop later.
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if not self._spoke:
            self._spoke = True
            transport.write(data)
            return
        self._later.append(data)
        if len(self._later) == 1:
            asyncio.get_running_loop().call_soon(self._flush)
        elif len(self._later) >= protocol.TOGETHER:
            self._flush()

    def _flush(self) -> None:
        later, self._later = self._later, []
        if later and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(later))

    # ------------------------------------------------------------ subscriptions

    def follow(self, number: int, after: int | None, run_id: str | None, types: list[str] | None) -> None:
        """Begin to push notices after ``after``."""
        self.unfollow(number)
        wanted = None if types is None else frozenset(types)
        begin = self.hub.position if after is None else after
        self.push(Push.NOTICES, (number, begin, []))
        task = asyncio.get_running_loop().create_task(self._follow(number, begin, run_id, wanted))
        self.following[number] = task

    def unfollow(self, number: int) -> None:
        """Stop pushing."""
        task = self.following.pop(number, None)
        if task is not None:
            task.cancel()

    async def _follow(self, number: int, position: int, run_id: Any, types: frozenset[str] | None) -> None:
        transport = self._transport
        assert transport is not None
        while not transport.is_closing():
            subscription = self.hub.store.subscribe(position, run_id=run_id, types=types)
            try:
                async with _closing(subscription.__aiter__()) as batches:
                    async for notices in batches:
                        position = notices[-1].global_seq
                        self.push(Push.NOTICES, (number, position, notices))
                        if transport.get_write_buffer_size() > MAX_UNSENT:
                            break
            finally:
                subscription.close()
            # It does not read: keep nothing for it, and go on from the journal when it does.
            await self._writable.wait()


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file it is; None where there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _where(error: BaseException) -> str:
    """The place of an error; its text may hold somebody's data and goes to the asker only."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "an unknown place" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def acked(outcome: AppendOutcome) -> Acked:
    """An outcome as it crosses the socket: a new event's text is known at the other end."""
    entry = outcome.entry
    if outcome.status == "exists":
        return Acked(entry.global_seq, entry.seq, entry.created_at, entry)
    return Acked(entry.global_seq, entry.seq, entry.created_at)


@contextlib.asynccontextmanager
async def _closing(iterator: AsyncIterator[Any]) -> AsyncIterator[AsyncIterator[Any]]:
    try:
        yield iterator
    finally:
        close = getattr(iterator, "aclose", None)
        if close is not None:
            await close()


def peer_uid(sock: Any) -> int:
    """The user at the other end of a unix socket."""
    if hasattr(socket, "SO_PEERCRED"):
        _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
        return int(uid)
    local_peercred = 1  # macOS, in the protocol family's own options: struct xucred begins with version and uid
    return int(struct.unpack_from("=II", sock.getsockopt(0, local_peercred, 76))[1])
