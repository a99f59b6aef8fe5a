"""Frames, errors, and what the hub does with things that are not frames."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct
from pathlib import Path

import pytest

from loom_kernel import errors
from loom_kernel.journal.abc import Append, Lease
from loom_kernel.journal.hub import launch, paths, protocol
from loom_kernel.journal.hub.client import HubJournal
from tests.journal.hub.parts import created, done, history, hub_pid, me, started


def talk(folder: Path) -> socket.socket:
    """A bare connection to the hub."""
    sock = launch._connect(paths.journal_path(folder), 5.0)
    assert sock is not None
    return sock


def read_until_closed(sock: socket.socket) -> bytes:
    said = b""
    try:
        while data := sock.recv(1 << 16):
            said += data
    except ConnectionResetError:
        pass
    return said


def test_frames_come_out_as_they_went_in_however_they_are_cut() -> None:
    """A stream of frames gives the same bodies for every way of cutting it."""
    bodies = [os.urandom(size) for size in (0, 1, 5, 300, 70_000)]
    stream = b"".join(protocol.frame(body) for body in bodies)
    rng = random.Random(7)
    for _ in range(50):
        frames, got, at = protocol.Frames(), [], 0
        while at < len(stream):
            size = rng.choice((1, 3, 4, 5, 100, 65_536))
            got += list(frames.feed(stream[at : at + size]))
            at += size

        assert bodies == got


def test_a_length_over_the_limit_is_refused_at_its_first_four_bytes() -> None:
    """Nobody waits for four gigabytes to find out that they are no frame."""
    with pytest.raises(protocol.FrameTooLong):
        list(protocol.Frames().feed(struct.pack("<I", protocol.MAX_FRAME + 1)))


@pytest.mark.parametrize(
    "error",
    [
        errors.StaleLeaseError("run1", "other.ipynb"),
        errors.JournalCasConflictError("run1", 3, 5),
        errors.UnknownRunError("run1", ["run12"]),
        errors.AnswerError("no such question"),
        errors.StorageUnavailableError("the disk is full", "/somewhere"),
        errors.SqlError("one SELECT only"),
        errors.RunOverError("run1", "completed"),
        KeyError("abc"),
        ValueError("bad"),
    ],
)
def test_errors_arrive_as_what_they_were(error: Exception) -> None:
    """Class, arguments and sentence cross the socket."""
    body = protocol.encode(protocol.error_to_wire(error))
    back = protocol.error_from_wire(protocol.error_decoder.decode(body))

    assert (type(error), error.args, str(error)) == (type(back), back.args, str(back))


def test_an_error_of_nobodys_becomes_storage_trouble_with_its_text() -> None:
    """A bug in the hub is told as what it is, not lost."""
    back = protocol.error_from_wire(protocol.error_to_wire(ZeroDivisionError("division by zero")))

    assert isinstance(back, errors.StorageUnavailableError)
    assert "ZeroDivisionError: division by zero" in str(back)


@pytest.mark.parametrize(
    "noise",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        os.urandom(4096),
        b"\xff" * 64,
        protocol.frame(b"not msgpack at all"),
        protocol.frame(protocol.encode([1, "append"])),
        protocol.frame(protocol.request(1, "read", ("run1", 1))),  # no hello before
        protocol.frame(protocol.request(1, "hello", ("nobody",))),
    ],
    ids=["http", "random", "ones", "text", "short", "no-hello", "bad-hello"],
)
def test_garbage_closes_its_own_connection_and_no_other(folder: Path, noise: bytes) -> None:
    """Somebody who speaks nonsense is told so and shown the door; a client beside them notices nothing."""

    async def body() -> None:
        async with await HubJournal.open(folder, me()) as journal:
            lease = (await started(journal, me())).lease
            pid = hub_pid(folder)
            with talk(folder) as sock:
                sock.settimeout(5)
                sock.sendall(noise)
                said = await asyncio.to_thread(read_until_closed, sock)
            bodies = list(protocol.Frames().feed(said))
            await journal.append(lease, [done(1)])

            assert pid == hub_pid(folder)
            assert [protocol.answer_decoder.decode(b).status for b in bodies] == [protocol.Push.REFUSAL]

    asyncio.run(body())


def test_a_frame_over_the_limit_is_refused_by_the_hub_too(folder: Path) -> None:
    """A client that did not check is told the limit and is not read any further."""

    async def body() -> None:
        async with await HubJournal.open(folder) as journal:
            with talk(folder) as sock:
                sock.settimeout(5)
                sock.sendall(struct.pack("<I", protocol.MAX_FRAME + 1) + b"x" * 1000)
                said = await asyncio.to_thread(read_until_closed, sock)
            [refusal] = [protocol.answer_decoder.decode(b) for b in protocol.Frames().feed(said)]

            assert "over the limit of 4.0 MiB" in str(
                protocol.error_from_wire(protocol.error_decoder.decode(refusal.value))
            )
            assert await journal.list_runs() == []

    asyncio.run(body())


def test_a_request_that_dribbles_in_byte_by_byte_is_answered(folder: Path) -> None:
    """The hub waits for the rest of a frame."""

    async def body() -> None:
        async with await HubJournal.open(folder):
            hello = protocol.Hello(protocol=1, oldest=1, schema=launch.SCHEMA, version="0")
            data = protocol.frame(protocol.request(1, "hello", (hello,))) + protocol.frame(
                protocol.request(2, "status", ())
            )
            with talk(folder) as sock:
                for byte in data:
                    sock.sendall(bytes([byte]))
                    await asyncio.sleep(0)
                frames, answers = protocol.Frames(), []
                while len(answers) < 2:
                    answers += list(frames.feed(await asyncio.to_thread(sock.recv, 65536)))

            assert [protocol.answer_decoder.decode(b).id for b in answers] == [1, 2]

    asyncio.run(body())


def test_a_connection_that_ends_within_a_frame_writes_nothing(folder: Path) -> None:
    """Half an append is no append."""

    async def body() -> None:
        async with await HubJournal.open(folder, holder := me()) as journal:
            lease = (await started(journal, holder)).lease
            hello = protocol.Hello(protocol=1, oldest=1, schema=launch.SCHEMA, version="0")
            append = protocol.request(
                2,
                "append",
                (lease.run_id, lease.holder_id, lease.epoch, None, [("k", "run.started", None, b"{}")], None),
            )
            with talk(folder) as sock:
                sock.sendall(protocol.frame(protocol.request(1, "hello", (hello,))) + protocol.frame(append)[:-1])
            await asyncio.sleep(0.1)

            assert [entry.type for entry in await history(journal)] == ["run.created", "lease.taken"]

    asyncio.run(body())


def test_an_event_over_the_limit_is_refused_before_it_is_sent_naming_it(folder: Path) -> None:
    """The client says which event of which run is too large; the connection and other appends live on."""

    async def body() -> None:
        async with await HubJournal.open(folder, holder := me()) as journal:
            lease = (await started(journal, holder)).lease
            large = done(1, b'"' + b"x" * (5 << 20) + b'"')
            with pytest.raises(
                errors.ValueNotStorableError, match=r"run run1: node.completed of step:work:.*5.0 MiB.*4 MiB"
            ):
                await journal.append(lease, [large])
            with pytest.raises(errors.ValueNotStorableError, match="6 events"):
                await journal.append(lease, [done(n, b'"' + b"x" * (1 << 20) + b'"') for n in range(6)])
            with pytest.raises(errors.ValueNotStorableError, match="inputs and source"):
                await journal.create_run(ids_of("run2"), created(source="x" * (5 << 20)))
            await journal.append(lease, [done(2)])

            assert len(await history(journal)) == 3

    asyncio.run(body())


def ids_of(text: str):
    return text


def test_long_answers_come_in_parts(folder: Path) -> None:
    """A history of ten megabytes arrives whole with the lease, and page by page with read."""

    async def body() -> None:
        holder = me()
        async with await HubJournal.open(folder, holder) as journal:
            lease = (await started(journal, holder)).lease
            for n in range(10):
                await journal.append(lease, [done(n * 4 + k, b'"' + b"x" * (250 << 10) + b'"') for k in range(4)])
            again = await journal.acquire(ids_of("run1"), holder)
            assert not isinstance(again, Exception)
            pages: list[int] = []
            journal.observe_read = pages.append

            assert len(again.entries) == 43  # type: ignore[union-attr]
            assert again.entries == await history(journal)  # type: ignore[union-attr]
            assert max(pages) <= 8

    asyncio.run(body())


def test_a_request_of_a_version_that_this_hub_does_not_know_fails_alone(folder: Path) -> None:
    """An unknown request gets an error; the connection stays."""

    async def body() -> None:
        async with await HubJournal.open(folder) as journal:
            protocol.METHODS["dream"] = protocol.METHODS["status"]
            try:
                with pytest.raises(ValueError, match="knows no request 'dream'"):
                    await journal._link.call("dream", ())
            finally:
                del protocol.METHODS["dream"]

            assert await journal.list_runs() == []

    asyncio.run(body())


def test_an_append_under_a_lease_that_never_was_is_stale(folder: Path) -> None:
    """The fence holds across the socket."""

    async def body() -> None:
        async with await HubJournal.open(folder, holder := me()) as journal:
            await started(journal, holder)
            with pytest.raises(errors.StaleLeaseError):
                await journal.append(Lease("run1", "somebody", 99), [Append(created())])

    asyncio.run(body())
