"""The commit log: an append-only file in front of DuckDB, so that a commit costs one write and one sync.

A segment is ``<first global_seq, 20 digits>.log``. It holds records, one a change (so a change is there or not):

    length u32 · crc32 u32 · last global_seq u64 · payload

little-endian; the checksum covers everything after itself; ``payload`` is msgpack. The first record of a segment is its
header ``["loom-log", format, first global_seq]``. Length 0 ends a segment, so that one may be filled with zeros ahead
of its use. Whatever follows the last good record of the newest segment is a write that was never acknowledged: cut.
A segment goes when every entry in it is committed in DuckDB.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from loom_kernel.errors import StorageUnavailableError
from loom_kernel.journal.abc import JournalEntry

FORMAT = 1
SEGMENT_BYTES = 16 << 20
MAX_RECORD_BYTES = 64 << 20

_FRAME = struct.Struct("<IIQ")
_CHECKED_FROM = 8  # the checksum covers the frame from here
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[JournalEntry]).decode
_decode_header = msgspec.msgpack.Decoder(tuple[str, int, int]).decode
_sync = getattr(os, "fdatasync", os.fsync)

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a full disk: a state that passes, not a broken log."""


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
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd: int | None = None
        self._end = 0
        self._segments = sorted(int(path.stem) for path in folder.glob("*.log") if path.stem.isdigit())
        self.cut = 0  # bytes that the last scan cut off

    def _path(self, first: int) -> Path:
        return self._folder / f"{first:020d}.log"

    def changes(self, after: int) -> Iterator[list[JournalEntry]]:
        """The changes that end after ``after``, in order; cuts a torn tail and gets ready to write.

        Raises:
            StorageUnavailableError: a segment is damaged in its middle, or of a newer format.
        """
        for i, first in enumerate(self._segments):
            newest = i == len(self._segments) - 1
            if not newest and self._segments[i + 1] - 1 <= after:
                continue  # all of it is applied
            yield from self._scan(first, after, newest)

    def _scan(self, first: int, after: int, newest: bool) -> Iterator[list[JournalEntry]]:
        path = self._path(first)
        data = path.read_bytes()
        view, at, good = memoryview(data), 0, 0
        while at + _FRAME.size <= len(data):
            length, crc, last = _FRAME.unpack_from(data, at)
            end = at + _FRAME.size + length
            if length == 0 or end > len(data) or zlib.crc32(view[at + _CHECKED_FROM : end]) != crc:
                break
            payload = view[at + _FRAME.size : end]
            if at == 0:
                self._check_header(path, first, payload)
            elif last > after:
                yield _decode(payload)
            at = good = end
        rest = len(data) - good
        if not newest:
            if rest and any(view[good:]):
                raise StorageUnavailableError(
                    f"the journal's log {path} is damaged at byte {good}, in the middle of what was acknowledged. "
                    "Restore the folder from a copy, or move this file away to go on without what it held.",
                    str(path),
                )
            return
        if good == 0:  # not even its header: the process died while making it
            path.unlink()
            self._segments.remove(first)
            self.cut = rest
            return
        if rest:
            self.cut = len(data) - good
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.ftruncate(fd, good)
                os.fsync(fd)
            finally:
                os.close(fd)
        self._fd, self._end = os.open(path, os.O_RDWR | os.O_CLOEXEC), good

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

    def write(self, buffers: Sequence[bytes], first: int) -> None:
        """Append the records and make them durable with one sync; ``first`` is their first ``global_seq``.

        Raises:
            OSError: nothing was kept; the log can be written again (a full disk).
            LogBrokenError: the sync failed.
        """
        if self._fd is None or self._end >= SEGMENT_BYTES:
            self._new_segment(first)
        assert self._fd is not None
        data = memoryview(b"".join(buffers) if len(buffers) > 1 else buffers[0])
        at = self._end
        try:
            while data:
                written = os.pwrite(self._fd, data, at)
                at += written
                data = data[written:]
        except OSError:
            self._undo()
            raise
        try:
            _sync(self._fd)
        except OSError as error:
            if error.errno in FULL:
                self._undo()
                raise
            # After a failed sync the kernel may call the lost pages clean: trying again would lie.
            raise LogBrokenError(f"{self._folder}: {error.strerror or error}") from error
        self._end = at

    def _undo(self) -> None:
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, self._end)  # type: ignore[arg-type]

    def _new_segment(self, first: int) -> None:
        path = self._path(first)
        header = _framed(first, _encode(("loom-log", FORMAT, first)))
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(fd, header, 0)
            os.fsync(fd)
            _sync_folder(self._folder)
        except OSError:
            os.close(fd)
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        if self._fd is not None:
            os.close(self._fd)
        self._fd, self._end = fd, len(header)
        if first not in self._segments:
            self._segments.append(first)

    def drop_applied(self, applied: int) -> None:
        """Delete the segments, but for the newest, whose entries are all committed elsewhere."""
        while len(self._segments) > 1 and self._segments[1] - 1 <= applied:
            with contextlib.suppress(OSError):
                self._path(self._segments[0]).unlink(missing_ok=True)
            self._segments.pop(0)

    def close(self, *, everything_applied: bool = False) -> None:
        """Idempotent. With nothing left to replay, the segments go too, so that the next start has nothing to read."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        if everything_applied:
            for first in self._segments:
                with contextlib.suppress(OSError):
                    self._path(first).unlink(missing_ok=True)
            self._segments = []


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
