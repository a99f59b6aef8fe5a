"""The commit log: an append-only file in front of DuckDB, so that a commit costs one write and one sync.

A segment is ``<first global_seq, 20 digits>.log``. It holds records, one a change (so a change is there or not):

    length u32 · crc32 u32 · last global_seq u64 · payload

little-endian; the checksum covers everything after itself; ``payload`` is msgpack. The first record of a segment is its
header ``["loom-log", format, first global_seq]``. Length 0 ends a segment. Whatever follows the last good record of the
newest segment is a write that was never acknowledged: cut. A segment goes when every entry in it is committed in DuckDB.

Segments are filled with zeros ahead of their use: syncing a write that changes no file's size costs the disk less.
A thread of its own makes the next one (``next.zeros``); until it is there, and where there is no room for it, a segment
grows as it is written. Entries are numbered without a gap, so a segment must reach the first number of the next.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from loom_kernel.errors import StorageUnavailableError
from loom_kernel.journal.abc import JournalEntry
from loom_kernel.journal.files import DISK, Disk
from loom_kernel.journal.room import FULL

FORMAT = 1
SEGMENT_BYTES = 16 << 20
NEXT = "next.zeros"
ACCEPT = "LOOM_ACCEPT_LOSS"
"""``first-last``: events that a person gives up, so that a damaged journal opens without them."""

_FRAME = struct.Struct("<IIQ")
_CHECKED_FROM = 8  # the checksum covers the frame from here
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[JournalEntry]).decode
_decode_header = msgspec.msgpack.Decoder(tuple[str, int, int]).decode


class LogBrokenError(Exception):
    """The disk failed in a way after which nothing it says can be believed; the process must not go on writing."""


def record(entries: Sequence[JournalEntry]) -> bytes:
    """The bytes of one change."""
    return _framed(entries[-1].global_seq, _encode(entries))


def _framed(global_seq: int, payload: bytes) -> bytes:
    body = struct.pack("<Q", global_seq) + payload
    return struct.pack("<II", len(payload), zlib.crc32(body)) + body


class CommitLog:
    """The segments of one folder. One thread writes; opening and scanning come before.

    Args:
        folder: where the segments lie; made when missing.
        disk: what they lie on.
    """

    def __init__(self, folder: Path, disk: Disk = DISK) -> None:
        self._folder, self._disk = folder, disk
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd: int | None = None
        self._end = 0
        self._filled = False  # the segment was filled with zeros ahead
        self._segments = sorted(int(path.stem) for path in folder.glob("*.log") if path.stem.isdigit())
        self._next_ready = False
        self._filler: threading.Thread | None = None
        self._filling = threading.Lock()
        self._ahead = False  # whether segments are to be made ahead
        self.cut = 0  # bytes that the last scan cut off

    def _path(self, first: int) -> Path:
        return self._folder / f"{first:020d}.log"

    # ------------------------------------------------------------ reading back

    def changes(self, after: int) -> Iterator[list[JournalEntry]]:
        """The changes that end after ``after``, in order; cuts a torn tail and gets ready to write.

        Raises:
            StorageUnavailableError: a segment is damaged in its middle, or of a newer format.
        """
        if self._segments and self._segments[0] - 1 > after:
            self._lost(
                after + 1,
                self._segments[0] - 1,
                f"the journal's log in {self._folder} begins behind what its database holds (is the database's .wal file "
                "damaged, or was the database exchanged?)",
            )
        for i, first in enumerate(list(self._segments)):
            until = self._segments[i + 1] if i + 1 < len(self._segments) else None
            if until is None or until - 1 > after:  # else all of it is applied
                yield from self._scan(first, after, until)

    def _scan(self, first: int, after: int, until: int | None) -> Iterator[list[JournalEntry]]:
        path = self._path(first)
        data = path.read_bytes()
        view, at, reached = memoryview(data), 0, first - 1
        while at + _FRAME.size <= len(data):
            length, crc, last = _FRAME.unpack_from(data, at)
            end = at + _FRAME.size + length
            if length == 0 or end > len(data) or zlib.crc32(view[at + _CHECKED_FROM : end]) != crc:
                break
            payload = view[at + _FRAME.size : end]
            if at == 0:
                self._check_header(path, first, payload)
            elif until is not None and last >= until:
                break  # refused by the disk after all, and written again to the next segment
            else:
                reached = last
                if last > after:
                    yield _decode(payload)
            at = end
        if until is not None:
            if reached != until - 1:
                self._lost(reached + 1, until - 1, f"the journal's log {path} is damaged at byte {at}")
        elif at == 0:  # not even its header: the process died while making it
            self._disk.unlink(path)
            self._segments.remove(first)
            self.cut = len(data) - data.count(0)
        else:
            self._go_on(path, data, at)

    def _lost(self, first: int, last: int, why: str) -> None:
        if os.environ.get(ACCEPT) != f"{first}-{last}":
            raise StorageUnavailableError(
                f"{why}: events {first} to {last}, which were acknowledged, are missing. Restore the folder from a copy, or "
                f"set {ACCEPT}={first}-{last} once to go on without them.",
                str(self._folder),
            )

    def _go_on(self, path: Path, data: bytes, end: int) -> None:
        """Write behind ``end`` from now on. What was torn there must go: it could pass for a record later."""
        rest = len(data) - end
        self._filled = rest > 0 and data.count(0, end) == rest
        self._fd, self._end = self._disk.open(path), end
        if rest and not self._filled:
            self.cut = rest
            self._disk.truncate(self._fd, end)
            self._disk.sync(self._fd)

    def _check_header(self, path: Path, first: int, payload: memoryview) -> None:
        magic, format, named = _decode_header(payload)
        if magic != "loom-log" or named != first:
            raise StorageUnavailableError(f"{path} is not a log of this journal; move it away", str(path))
        if format > FORMAT:
            raise StorageUnavailableError(
                f"the journal's log {path} was written by a newer loom-kernel (log format {format}, this one knows "
                f"{FORMAT}). Upgrade: pip install -U loom-kernel",
                str(path),
            )

    # ------------------------------------------------------------ writing

    def write(self, buffers: Sequence[bytes], first: int) -> None:
        """Append the records and make them durable with one sync; ``first`` is their first ``global_seq``.

        Raises:
            OSError: nothing was kept; the log can be written again (a full disk).
            LogBrokenError: the disk cannot be trusted any more.
        """
        header = b""
        if self._fd is None or self._end >= SEGMENT_BYTES or (self._next_ready and not self._filled):
            self._new_segment(first)
            header = _framed(first, _encode(("loom-log", FORMAT, first)))
        assert self._fd is not None
        data = memoryview(header + b"".join(buffers) if header or len(buffers) > 1 else buffers[0])
        at = self._end
        try:
            while data:
                written = self._disk.write(self._fd, data, at)
                at += written
                data = data[written:]
        except OSError:
            self._undo()
            raise
        try:
            self._disk.sync(self._fd)
        except OSError as error:
            if error.errno in FULL:
                self._undo()
                raise
            # After a failed sync the kernel may call the lost pages clean: trying again would lie.
            raise LogBrokenError(f"{self._folder}: {error.strerror or error}") from error
        self._end = at

    def _undo(self) -> None:
        """Take back what was written behind the end; a segment without a header goes as a whole."""
        assert self._fd is not None
        self._filled = False
        try:
            self._disk.truncate(self._fd, self._end)
        except OSError as error:
            raise LogBrokenError(f"{self._folder}: {error.strerror or error}") from error
        if self._end == 0:
            self._disk.close(self._fd)
            self._fd = None
            with contextlib.suppress(OSError):
                self._disk.unlink(self._path(self._segments.pop()))

    def _new_segment(self, first: int) -> None:
        path, filled = self._path(first), self._next_ready
        if filled:
            self._next_ready = False
            self._disk.rename(self._folder / NEXT, path)
            fd = self._disk.open(path)
        else:
            fd = self._disk.open(path, create=True)
        try:
            self._disk.sync_folder(self._folder)  # its header comes with the first records
        except OSError:
            self._disk.close(fd)
            with contextlib.suppress(OSError):
                self._disk.unlink(path)
            raise
        if self._fd is not None:
            self._disk.close(self._fd)
        self._fd, self._end, self._filled = fd, 0, filled
        if first not in self._segments:
            self._segments.append(first)
        if self._ahead:
            self.fill_ahead()

    # ------------------------------------------------------------ segments come and go

    def fill_ahead(self) -> None:
        """Have the next segment ready, from now on; made by a thread of its own."""
        self._ahead = True
        with self._filling:
            if not self._next_ready and (self._filler is None or not self._filler.is_alive()):
                self._filler = threading.Thread(target=self._fill, name="loom-zeros", daemon=True)
                self._filler.start()

    def _fill(self) -> None:
        path = self._folder / NEXT
        with contextlib.suppress(OSError):  # no room: segments grow then, and the writer tells of a full disk
            if self._disk.size(path) != SEGMENT_BYTES:
                part = path.with_suffix(".part")
                self._disk.fill(part, SEGMENT_BYTES)
                self._disk.rename(part, path)
            self._next_ready = self._ahead

    def drop_ahead(self) -> None:
        """Make none ahead until asked again, and give back the room of the one that was; the disk is full."""
        self._ahead = self._next_ready = False
        with contextlib.suppress(OSError):
            self._disk.unlink(self._folder / NEXT)

    def drop_applied(self, applied: int) -> None:
        """Delete the segments, but for the newest, whose entries are all committed elsewhere."""
        while len(self._segments) > 1 and self._segments[1] - 1 <= applied:
            with contextlib.suppress(OSError):
                self._disk.unlink(self._path(self._segments[0]))
            self._segments.pop(0)

    def close(self, *, everything_applied: bool = False) -> None:
        """Idempotent. With nothing left to replay, the segments go too, so that the next start has nothing to read."""
        self._ahead = False
        with self._filling:
            filler = self._filler
        if filler is not None:
            filler.join()
        if self._fd is not None:
            self._disk.close(self._fd)
            self._fd = None
        if everything_applied:
            for first in self._segments:
                with contextlib.suppress(OSError):
                    self._disk.unlink(self._path(first))
            self._segments = []
            self.drop_ahead()
