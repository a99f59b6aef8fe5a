"""What is said on the hub's socket.

A frame is a little-endian 32-bit length and that many bytes of msgpack, at most :data:`MAX_FRAME`.

* A client asks ``[id, method, arguments]``; ids count up from 1, arguments are those of :data:`METHODS`.
* The hub answers ``[id, status, value]`` (:class:`Status`); a long answer comes in parts, so that no frame is long.
* Id 0 is the hub speaking by itself: ``[0, kind, value]`` (:class:`Push`).

The first request is ``hello``; until it is answered the hub knows nobody. Events cross as the JSON that is stored.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from loom_kernel import errors
from loom_kernel.journal.abc import Holder, JournalEntry, LeaseAcquired, LeaseHeld, LeaseState, Notice

PROTOCOL = 1
"""The version of what this module describes."""

OLDEST_PROTOCOL = 1
"""The oldest version that this package still speaks, to hubs and to clients."""

MAX_FRAME = 4 << 20
"""Bytes of a frame's body at most."""

PART = 1 << 20
"""An answer longer than this comes in parts of this size."""

TOGETHER = 100
"""Frames that are written at once, at most, so that the other end can begin with them."""

_LENGTH = struct.Struct("<I")
_encoder = msgspec.msgpack.Encoder()


class Status(enum.IntEnum):
    """How a request went."""

    OK = 0
    ERROR = 1  # the value is a WireError
    PART = 2  # the value is bytes of the answer's encoding; more follow
    LAST_PART = 3


class Push(enum.IntEnum):
    """What the hub says by itself."""

    NOTICES = 0  # [subscription, position, notices]: with these, everything up to position was told
    REFUSAL = 1  # a WireError: the connection is about to be closed, its open requests will not be answered
    LEAVING = 2  # the hub ends in good order, everything it was asked is answered


class Request(Struct, array_like=True, frozen=True, gc=False):
    """A question to the hub."""

    id: int
    method: str
    args: Raw


class Answer(Struct, array_like=True, frozen=True, gc=False):
    """An answer, a part of one, or a push (``id`` 0)."""

    id: int
    status: int
    value: Raw


class WireError(Struct, array_like=True, frozen=True):
    """An exception as its class's name and its arguments."""

    kind: str
    args: list[Any]


class Hello(Struct, frozen=True, kw_only=True):
    """The client introduces itself; ``holders`` are those it may hold leases as (none: it only looks)."""

    protocol: int
    oldest: int
    schema: int
    version: str
    holders: list[Holder] = []


class Welcome(Struct, frozen=True, kw_only=True):
    """The hub introduces itself. ``position`` is the newest ``global_seq``; ``accepted`` false: the versions do not fit."""

    protocol: int
    oldest: int
    schema: int
    version: str
    pid: int
    position: int
    accepted: bool = True


class Drained(Struct, frozen=True):
    """Answer to ``drain``: whether the hub goes, else the holders that keep it."""

    leaving: bool
    kept_by: list[Holder]


class Acked(Struct, array_like=True, frozen=True, gc=False):
    """The outcome of one append. A new event's text is not sent back: ``entry`` is only there for ``exists``.

    ``key`` is only there where the journal kept the event under another key than it was given.
    """

    global_seq: int
    seq: int
    created_at: int
    entry: JournalEntry | None = None
    key: str | None = None


class Leased(Struct, array_like=True, frozen=True, gc=False):
    """``LeaseAcquired`` or ``LeaseHeld``, whichever is there."""

    acquired: LeaseAcquired | None
    held: LeaseHeld | None


class Page(Struct, array_like=True, frozen=True):
    """Some of a run's events, and whether there are more."""

    entries: list[JournalEntry]
    more: bool


class RunFilter(Struct, frozen=True, kw_only=True):
    """The arguments of ``list_runs``."""

    workflow: str | None = None
    status: list[str] | None = None
    key: str | None = None
    notebook: str | None = None
    tag: str | None = None
    roots_only: bool = True
    limit: int | None = None


Prepared = tuple[str | None, str, str | None, bytes]
"""An event ready to be appended: key, type, node_id, payload."""


class Method(NamedTuple):
    """How a request's arguments and its answer are written."""

    args: msgspec.msgpack.Decoder[Any]
    result: msgspec.msgpack.Decoder[Any]


def _method(args: Any, result: Any) -> Method:
    return Method(msgspec.msgpack.Decoder(args), msgspec.msgpack.Decoder(result))


_NO_ARGS = tuple[()]
_LEASE = tuple[str, str, int]  # run_id, holder_id, epoch

METHODS: dict[str, Method] = {
    "hello": _method(tuple[Hello], Welcome),
    "status": _method(_NO_ARGS, dict[str, Any]),
    "drain": _method(_NO_ARGS, Drained),
    "stop": _method(_NO_ARGS, None),
    "cancel": _method(tuple[int], None),  # the id of a request that nobody waits for any more
    # runs; created and summaries as JSON, since they carry raw JSON
    "create_run": _method(tuple[str, bytes], str),
    "start_run": _method(tuple[str, bytes, Holder], Leased),
    "get_run": _method(tuple[str], bytes | None),
    "list_runs": _method(tuple[RunFilter], bytes),
    "delete_owned_run": _method(tuple[str, str, int, int | None], None),
    "delete_run": _method(tuple[str], None),
    # leases
    "acquire": _method(tuple[str, Holder], Leased),
    "takeover": _method(tuple[str, Holder, str], Leased),
    "takeover_expired": _method(tuple[str, Holder, float], Leased),
    # workflow names to versions, holder, runs not to give, seconds to wait, the claim's name when it is repeated
    "claim": _method(tuple[dict[str, str], Holder, list[str], float | None, str], Leased),
    "lease_state": _method(tuple[str], LeaseState | None),
    "renew": _method(_LEASE, None),
    "release": _method(_LEASE, None),
    # events
    # run_id, holder_id, epoch, expect_seq, events, why some event could not be serialized
    "append": _method(tuple[str, str, int, int | None, list[Prepared], str | None], list[Acked]),
    "post": _method(tuple[str, str | None, str, str | None, bytes], Acked),
    "read": _method(tuple[str, int], Page),
    "read_key": _method(tuple[str, str], JournalEntry | None),
    # subscription number, from_global_seq, run_id, types; answered by a push that says where it begins
    "subscribe": _method(tuple[int, int | None, str | None, list[str] | None], None),
    "unsubscribe": _method(tuple[int], None),
    # values
    "query": _method(tuple[str, float], str),
    "query_with": _method(tuple[str, float, bytes], str),
    "get_blob": _method(tuple[str], tuple[bytes | None, str | None]),  # the bytes, or where they lie for the asker
    "gc": _method(tuple[float, bool], dict[str, int]),
}
"""Every request by name."""

request_decoder = msgspec.msgpack.Decoder(Request)
answer_decoder = msgspec.msgpack.Decoder(Answer)
notices_decoder = msgspec.msgpack.Decoder(tuple[int, int, list[Notice]])
error_decoder = msgspec.msgpack.Decoder(WireError)
part_decoder = msgspec.msgpack.Decoder(bytes)


class FrameTooLong(Exception):
    """A frame says that it is longer than allowed; ``size`` is what it says."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


def encode(message: Any) -> bytes:
    """msgpack of anything that this module describes."""
    return _encoder.encode(message)


def frame(body: bytes) -> bytes:
    """The bytes that go over the socket for one message."""
    return _LENGTH.pack(len(body)) + body


def request(id: int, method: str, args: tuple[Any, ...]) -> bytes:
    """The body of a request; the caller checks its length."""
    return _encoder.encode((id, method, args))


def answer(id: int, status: int, value: Any) -> bytes:
    """The frames of an answer or a push, in parts where it is long."""
    body = _encoder.encode((id, int(status), value))
    if len(body) <= PART:
        return frame(body)
    value_bytes = memoryview(_encoder.encode(value))
    out = bytearray()
    for at in range(0, len(value_bytes), PART):
        kind = Status.PART if at + PART < len(value_bytes) else Status.LAST_PART
        out += frame(_encoder.encode((id, int(kind), value_bytes[at : at + PART])))
    return bytes(out)


class Frames:
    """Cuts a stream of bytes into frames. Feed it; it gives back the bodies that are complete."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield each complete body.

        Raises:
            FrameTooLong: what comes is no frame of ours; the stream cannot be read any further.
        """
        if self._rest:
            self._rest += data
            data = bytes(self._rest)
            self._rest.clear()
        at, end = 0, len(data)
        try:
            while end - at >= 4:
                (size,) = _LENGTH.unpack_from(data, at)
                if size > MAX_FRAME:
                    at = end
                    raise FrameTooLong(size)
                if end - at - 4 < size:
                    break
                at += 4 + size
                yield data[at - size : at]
        finally:
            if at < end:
                self._rest += data[at:]


# ---------------------------------------------------------------- errors

_PLAIN: dict[str, type[Exception]] = {cls.__name__: cls for cls in (KeyError, ValueError, TypeError, TimeoutError)}


def error_to_wire(error: BaseException) -> WireError:
    """An exception of ours, or one whose text is all that can be told."""
    name = type(error).__name__
    if (isinstance(error, errors.LoomError) and getattr(errors, name, None) is type(error)) or _PLAIN.get(name) is type(
        error
    ):
        try:
            msgspec.msgpack.encode(list(error.args))
            return WireError(name, list(error.args))
        except (TypeError, ValueError, OverflowError):
            return WireError(name, [str(error)])
    return WireError("StorageUnavailableError", [f"the journal's hub failed: {name}: {error}"])


def error_from_wire(wire: WireError) -> Exception:
    """The exception to raise at the asker's side; an unknown class becomes a ``JournalError``."""
    cls = _PLAIN.get(wire.kind) or getattr(errors, wire.kind, None)
    if isinstance(cls, type) and issubclass(cls, Exception):
        try:
            return cls(*wire.args)
        except TypeError:
            pass
    return errors.JournalError(f"{wire.kind}: " + ", ".join(str(a) for a in wire.args))


def too_long(method: str, args: tuple[Any, ...], size: int) -> errors.ValueNotStorableError:
    """The error for a request that no frame can hold, naming the event whose fault it is."""
    limit = f"At most {MAX_FRAME >> 20} MiB can be written at once"
    cure = (
        "hand over large values as results of a step (they become files), or write them to a file and return its path."
    )
    if method == "append":
        run_id, prepared = args[0], args[4]
        key, type_, node_id, payload = max(prepared, key=lambda p: len(p[3]))
        if len(payload) < MAX_FRAME // 2 and len(prepared) > 1:
            return errors.ValueNotStorableError(
                f"run {run_id}: an append of {len(prepared)} events",
                f"message of {megabytes(size)}",
                f"{limit}; append fewer at a time.",
            )
        return errors.ValueNotStorableError(
            f"run {run_id}: {type_} of {node_id or key or 'the run'}",
            f"message of {megabytes(len(payload))}",
            f"{limit}; {cure}",
        )
    if method == "post":
        run_id, _, type_, node_id, payload = args
        return errors.ValueNotStorableError(
            f"run {run_id}: {type_} of {node_id or 'the run'}",
            f"message of {megabytes(len(payload))}",
            f"{limit}; {cure}",
        )
    if method in ("create_run", "start_run"):
        return errors.ValueNotStorableError(
            f"run {args[0]}: what it is created with (inputs and source)",
            f"message of {megabytes(size)}",
            f"{limit}; {cure}",
        )
    return errors.ValueNotStorableError(f"the request {method!r}", f"message of {megabytes(size)}", f"{limit}.")


def megabytes(size: int) -> str:
    """``"5.2 MiB"``."""
    return f"{size / (1 << 20):.1f} MiB"
