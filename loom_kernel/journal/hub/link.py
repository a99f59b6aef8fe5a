"""Calls to the hub that survive it.

Whatever was asked and not yet answered is kept. When the connection is lost the link finds the next hub, starts one if
something waits for it, introduces itself, and sends everything kept again, in the order it was asked. The idempotency
keys in the requests make that harmless. Only SQL is not repeated: it may be what the hub died of.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loom_kernel._version import __version__
from loom_kernel.errors import JournalError, StorageUnavailableError
from loom_kernel.journal.abc import Holder, Notice
from loom_kernel.journal.hub import launch, paths, protocol
from loom_kernel.journal.hub.protocol import Answer, Drained, Frames, FrameTooLong, Hello, Push, Status, Welcome
from loom_kernel.journal.migrations import SCHEMA

NOT_REPEATED = frozenset({"query", "query_with"})

_HANDSHAKE_S = 15.0
_GIVE_UP_S = 90.0
_SENT_AT_MOST = 8  # a request that so many hubs did not live to answer may be the reason
_LOOK_EVERY_S = 0.5
_CLOSE_S = 5.0


Finish = Callable[[Any, bool], Any]
Then = Callable[[Any], None]


class Call:
    """One request on its way.

    Attributes:
        finish: makes the caller's result of the answer.
        then: is given that result, or the exception.
        future: what ``then`` settles, where somebody awaits the result.
        again: the request was sent more than once.
    """

    __slots__ = ("finish", "frame", "future", "id", "method", "parts", "sent", "then")

    def __init__(
        self,
        id: int,
        method: str,
        frame: bytes,
        finish: Finish | None,
        then: Then,
        future: asyncio.Future[Any] | None = None,
    ) -> None:
        self.id, self.method, self.frame, self.finish, self.then, self.future = id, method, frame, finish, then, future
        self.sent = 0
        self.parts: bytearray | None = None

    @property
    def again(self) -> bool:
        return self.sent > 1

    @property
    def dropped(self) -> bool:
        """Nobody waits any more."""
        return self.future is not None and self.future.done()

    def fail(self, error: Exception) -> None:
        if not self.dropped:
            self.then(error)

    def answered(self, answer: Answer) -> None:
        """Give the caller what it asked for."""
        if self.dropped:
            return
        try:
            if answer.status == Status.ERROR:
                result: Any = protocol.error_from_wire(protocol.error_decoder.decode(answer.value))
            elif answer.status == Status.OK:
                result = protocol.METHODS[self.method].result.decode(answer.value)
            else:
                result = protocol.METHODS[self.method].result.decode(self.parts or b"")
            if self.finish is not None:
                result = self.finish(result, self.again)
        except Exception as error:
            result = error
        self.then(result)


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)


class Wire(asyncio.Protocol):
    """One connection, until it breaks."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.frames = Frames()
        self.leaving = False
        self.broken: Exception | None = None
        self.closed: asyncio.Future[None] = link.loop.create_future()
        self.transport: asyncio.Transport | None = None
        self.directly: dict[int, Call] = {}  # of the handshake: never repeated on another connection
        self._later: list[bytes] = []
        self._spoke = False
        self._sock: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.link._wires.add(self)
        self._sock = transport.get_extra_info("socket")

    def data_received(self, data: bytes) -> None:
        self._spoke = False
        try:
            for body in self.frames.feed(data):
                self.link._received(self, protocol.answer_decoder.decode(body))
        except (FrameTooLong, ValueError) as error:  # msgspec's decoding errors are ValueErrors
            self.broken = StorageUnavailableError(
                f"what answers for the journal in {self.link.folder} is no hub: {error}"
            )
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)
        self.link._lost(self)

    def write(self, data: bytes) -> None:
        """The first frame since something was heard goes at once, those after it together, a turn of the loop later."""
        assert self.transport is not None
        if not self._spoke:
            self._spoke = True
            self.transport.write(data)
            return
        self._later.append(data)
        if len(self._later) == 1:
            self.link.loop.call_soon(self._flush)
        elif len(self._later) >= protocol.TOGETHER:
            self._flush()

    def _flush(self) -> None:
        later, self._later = self._later, []
        if later and self.transport is not None and not self.transport.is_closing():
            self.transport.write(b"".join(later))

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def close(self) -> None:
        self._flush()
        if self.transport is not None:
            self.transport.close()

    def drop_in_child(self) -> None:
        """In a forked child: let go of the parent's connection without touching the parent's event loop.

        The number stays taken (by /dev/null), so that whoever closes it later closes nothing of somebody else's.
        """
        if self._sock is not None and self._sock.fileno() >= 0:
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            os.dup2(null, self._sock.fileno(), inheritable=False)
            os.close(null)


class Link:
    """The way to the hub of one journal, on the event loop that opened it.

    Args:
        folder: the journal's folder, a :func:`~.paths.journal_path`.
        on_notices: called with a subscription's number, the position it has come to, and notices.
        on_connected: called after each handshake, before anything kept is sent again, with the hub's newest
            ``global_seq``.
    """

    def __init__(
        self,
        folder: Path,
        *,
        on_notices: Callable[[int, int, list[Notice]], None],
        on_connected: Callable[[int], None],
    ) -> None:
        self.folder = folder
        self.loop = asyncio.get_running_loop()
        self.holders: dict[str, Holder] = {}
        self.eager = False  # whether a hub that crashed is started again although nothing waits for it
        self._on_notices, self._on_connected = on_notices, on_connected
        self._ids = itertools.count(1)
        self._pending: dict[int, Call] = {}
        self._wire: Wire | None = None
        self._wires: set[Wire] = set()
        self._keeper: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        self._answered = asyncio.Event()
        self._closed = False
        self._pid = os.getpid()
        _links.add(self)

    # ------------------------------------------------------------ asking

    def call(self, method: str, args: tuple[Any, ...], finish: Finish | None = None) -> asyncio.Future[Any]:
        """Ask; the future gives the answer. The arguments are serialized before this returns.

        Args:
            finish: ``finish(result, again)`` makes the future's result, or gives an exception to raise; ``again`` says
                that the request was sent more than once. It gets the error where the hub answered with one.
        """
        future: asyncio.Future[Any] = self.loop.create_future()
        self.ask(method, args, finish, functools.partial(_settle, future), future)
        return future

    def ask(
        self,
        method: str,
        args: tuple[Any, ...],
        finish: Finish | None,
        then: Then,
        future: asyncio.Future[Any] | None = None,
    ) -> None:
        """Like :meth:`call`; ``then`` is called on the loop, later, with the result or the exception."""
        id = next(self._ids)
        try:
            if self._closed or self._pid != os.getpid():
                raise self._unusable()
            body = protocol.request(id, method, args)
            if len(body) > protocol.MAX_FRAME:
                raise protocol.too_long(method, args, len(body))
        except Exception as error:
            if future is not None:
                then(error)  # the loop of a forked child does not run
            else:
                self.loop.call_soon(then, error)
            return
        call = Call(id, method, protocol.frame(body), finish, then, future)
        self._pending[id] = call
        if self._wire is not None:
            call.sent = 1
            self._wire.write(call.frame)
        else:
            self._wanted.set()
            self._keep_connected(start=True)

    def tell(self, method: str, args: tuple[Any, ...]) -> None:
        """Say something that needs no answer and dies with the connection."""
        if self._wire is not None and not self._closed and self._pid == os.getpid():
            self._wire.write(protocol.frame(protocol.request(next(self._ids), method, args)))

    def id_of(self, future: asyncio.Future[Any]) -> int | None:
        """The request's id while it is unanswered."""
        return next((call.id for call in self._pending.values() if call.future is future), None)

    def forget(self, future: asyncio.Future[Any]) -> None:
        """Nobody waits for that answer; it is not asked for again."""
        asked = self.id_of(future)
        if asked is not None:
            del self._pending[asked]

    @property
    def connected(self) -> bool:
        return self._wire is not None

    # ------------------------------------------------------------ opening and closing

    async def open(self) -> None:
        """Connect, starting a hub if none runs.

        Raises:
            StorageUnavailableError
        """
        await self._connect(start=True)

    async def close(self) -> None:
        """Wait a moment for what was written, then leave."""
        if self._closed:
            return
        if self._pid != os.getpid():
            self._closed = True  # everything here is of the parent's loop; its connection was dropped at the fork
            return
        if self._wire is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    while any(c.method not in NOT_REPEATED and not c.dropped for c in self._pending.values()):
                        self._answered.clear()
                        await self._answered.wait()
        self._closed = True
        _links.discard(self)
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
        self._wire = None
        if self._wires:
            for wire in self._wires:
                wire.close()
            await asyncio.wait([wire.closed for wire in self._wires], timeout=_CLOSE_S)
        self._fail_all(self._unusable(), quietly=True)

    def _unusable(self) -> StorageUnavailableError:
        if self._pid != os.getpid():
            why = "this process was forked from the one that opened the journal; open it again here"
        else:
            why = "the journal was closed"
        return StorageUnavailableError(why, os.fspath(self.folder))

    # ------------------------------------------------------------ staying connected

    def _keep_connected(self, *, start: bool) -> None:
        if self._keeper is None or self._keeper.done():
            self._keeper = self.loop.create_task(self._keep(start))

    async def _keep(self, start: bool) -> None:
        while not self._closed and self._wire is None:
            try:
                await self._connect(start=start)
            except JournalError as error:
                self._fail_all(error)
            except Exception as error:
                self._fail_all(
                    StorageUnavailableError(
                        f"cannot reach the journal's hub: {type(error).__name__}: {error}", os.fspath(self.folder)
                    )
                )
            else:
                return
            start = False
            await self._wait_until_wanted()

    async def _wait_until_wanted(self) -> None:
        self._wanted.clear()
        try:
            await asyncio.wait_for(self._wanted.wait(), _LOOK_EVERY_S)
        except TimeoutError:
            pass

    async def _connect(self, *, start: bool) -> None:
        """Connect once. Without ``start`` a hub is only started when something waits for an answer."""
        end = self.loop.time() + _GIVE_UP_S
        pause = 0.0
        while not await self._attempt():
            if start or self._pending:
                await asyncio.to_thread(launch.ensure_hub, self.folder)
                if self.loop.time() > end:
                    raise StorageUnavailableError(
                        f"hubs of the journal in {self.folder} start and end again; the reason may be in {self.folder / paths.HUB_LOG}",
                        os.fspath(self.folder),
                    )
                await asyncio.sleep(pause)
                pause = min(0.2, pause * 2 or 0.005)
            else:
                # No hub, no events: there is nothing to miss until somebody else starts one.
                await self._wait_until_wanted()
                end = self.loop.time() + _GIVE_UP_S

    async def _attempt(self) -> bool:
        """Try the places where a hub may listen."""
        for address in launch.addresses(self.folder):
            try:
                paths.check_socket(Path(address))
                _, wire = await self.loop.create_unix_connection(lambda: Wire(self), address)
            except OSError:
                continue
            try:
                welcome = await self._introduce(wire)
            except OSError:
                wire.abort()
                continue
            except BaseException:
                wire.abort()
                raise
            if welcome is not None and self._ready(wire, welcome):
                return True
        return False

    async def _introduce(self, wire: Wire) -> Welcome | None:
        """The handshake; None when that hub is on its way out.

        Raises:
            StorageUnavailableError: the versions do not fit, with what to do about it.
            OSError: the connection broke.
        """
        hello = Hello(
            protocol=protocol.PROTOCOL,
            oldest=protocol.OLDEST_PROTOCOL,
            schema=SCHEMA,
            version=__version__,
            holders=list(self.holders.values()),
        )
        welcome: Welcome = await self._ask_directly(wire, "hello", (hello,))
        theirs, ours = (welcome.protocol, welcome.schema), (protocol.PROTOCOL, SCHEMA)
        if theirs < ours:
            drained: Drained = await self._ask_directly(wire, "drain", ())
            if drained.leaving:
                await asyncio.wait([wire.closed], timeout=_HANDSHAKE_S)
                return None
            if welcome.protocol < protocol.OLDEST_PROTOCOL:
                raise StorageUnavailableError(
                    f"the hub of the journal in {self.folder} is of loom-kernel {welcome.version}, this process is of "
                    f"{__version__}, and runs are live in {_names(drained.kept_by)}. Restart "
                    f"{'that kernel' if len(drained.kept_by) == 1 else 'those kernels'} (the runs can be resumed), then try again.",
                    os.fspath(self.folder),
                )
        elif not welcome.accepted:
            raise StorageUnavailableError(
                f"the hub of the journal in {self.folder} is of loom-kernel {welcome.version}, newer than this process's "
                f"{__version__}. Restart this kernel; if that does not help, upgrade loom-kernel here.",
                os.fspath(self.folder),
            )
        return welcome

    async def _ask_directly(self, wire: Wire, method: str, args: tuple[Any, ...]) -> Any:
        """Ask over a connection that is not in use yet."""
        future: asyncio.Future[Any] = self.loop.create_future()
        call = Call(next(self._ids), method, b"", None, functools.partial(_settle, future), future)
        wire.directly[call.id] = call
        wire.write(protocol.frame(protocol.request(call.id, method, args)))
        await asyncio.wait([future, wire.closed], timeout=_HANDSHAKE_S, return_when=asyncio.FIRST_COMPLETED)
        wire.directly.pop(call.id, None)
        if future.done():
            return future.result()
        if wire.broken is not None:
            raise wire.broken
        if wire.closed.done():
            raise ConnectionResetError("the hub closed the connection")
        raise launch.silent_error(self.folder, _HANDSHAKE_S)

    def _ready(self, wire: Wire, welcome: Welcome) -> bool:
        """Use the connection from now on; False when it broke already."""
        if wire.closed.done():
            return False
        self._wire = wire
        self._on_connected(welcome.position)
        for call in list(self._pending.values()):
            call.sent += 1
            wire.write(call.frame)
        return True

    # ------------------------------------------------------------ what comes from the hub

    def _received(self, wire: Wire, answer: Answer) -> None:
        if answer.id == 0:
            self._told(wire, answer)
            return
        calls = wire.directly if answer.id in wire.directly else self._pending
        call = calls.get(answer.id)
        if call is None:
            return
        if answer.status in (Status.PART, Status.LAST_PART):
            if call.parts is None:
                call.parts = bytearray()
            call.parts += protocol.part_decoder.decode(answer.value)
            if answer.status == Status.PART:
                return
        del calls[answer.id]
        call.answered(answer)
        self._answered.set()

    def _told(self, wire: Wire, push: Answer) -> None:
        if push.status == Push.NOTICES:
            self._on_notices(*protocol.notices_decoder.decode(push.value))
        elif push.status == Push.LEAVING:
            wire.leaving = True
        elif push.status == Push.REFUSAL:
            # Sending the same again would be refused again, without end.
            wire.broken = protocol.error_from_wire(protocol.error_decoder.decode(push.value))

    def _lost(self, wire: Wire) -> None:
        self._wires.discard(wire)
        if wire is not self._wire:
            return
        self._wire = None
        if self._closed:
            return
        if wire.broken is not None:
            self._fail_all(wire.broken)
        for call in list(self._pending.values()):
            call.parts = None
            if call.method in NOT_REPEATED:
                why = "the hub restarted while it worked on this query; run it again"
            elif call.sent >= _SENT_AT_MOST:
                why = (
                    f"the hub of the journal in {self.folder} ended {call.sent} times in a row before it answered; "
                    f"the reason may be in {self.folder / paths.HUB_LOG}"
                )
            else:
                continue
            del self._pending[call.id]
            call.fail(StorageUnavailableError(why, os.fspath(self.folder)))
        self._keep_connected(start=bool(self._pending) or (self.eager and not wire.leaving))

    def _fail_all(self, error: Exception, *, quietly: bool = False) -> None:
        pending, self._pending = self._pending, {}
        for call in pending.values():
            call.fail(error)
            future = call.future
            if quietly and future is not None and future.done() and not future.cancelled():
                future.exception()  # whoever dropped it was told by closing


def _names(holders: list[Holder]) -> str:
    return ", ".join(f"{holder.label or holder.kind} (pid {holder.pid})" for holder in holders) or "other processes"


_links: weakref.WeakSet[Link] = weakref.WeakSet()


def _after_fork() -> None:
    for link in list(_links):
        for wire in list(link._wires):
            wire.drop_in_child()


os.register_at_fork(after_in_child=_after_fork)
