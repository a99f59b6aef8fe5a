"""Blobs that events name, on their way from files into DuckDB. The applier's own.

A reference is a quoted sha256 in a payload, or in a JSON blob, that has ``"$loom"`` or ``"sha256"`` in it; whatever
looks like one counts, since keeping too much costs little.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from loom_kernel.journal.abc import JournalEntry
from loom_kernel.journal.blobs import blob_path

IN_DATABASE = 16 << 20
"""Bytes of a blob that DuckDB takes in, at most; a larger one stays a file."""

TOGETHER = 16 << 20
"""Bytes of blobs inserted in one transaction, about."""

MARKS = (b'"$loom"', b'"sha256"')
_REFERENCE = re.compile(rb'"([0-9a-f]{64})"')

Row = tuple[str, int, list[str], "bytes | None", int]
"""Of ``store.blobs``: sha256, size, what it refers to, its bytes unless they stay in a file, when."""


def references(payload: bytes | memoryview) -> set[str]:
    """The blobs that a text of JSON may refer to."""
    return {found.decode() for found in _REFERENCE.findall(payload)}


def named_by(entries: Iterable[JournalEntry]) -> set[str]:
    """The blobs that these events refer to."""
    found: set[str] = set()
    for entry in entries:
        if MARKS[0] in entry.payload or MARKS[1] in entry.payload:
            found |= references(entry.payload)
    return found


class Intake:
    """Args:
    folder: the journal's, below which ``blobs/`` lies.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def rows(self, wanted: set[str], known: Any) -> Iterator[list[Row]]:
        """Rows to insert for blobs that the database does not know, a transaction's worth at a time.

        Args:
            known: ``known(hashes)`` gives those that the database knows.
        """
        batch: list[Row] = []
        size, seen = 0, set(wanted)
        while wanted:
            new = wanted - known(wanted)
            wanted = set()
            for sha256 in sorted(new):
                row = self._row(sha256)
                if row is None:
                    continue
                batch.append(row)
                size += len(row[3] or b"")
                wanted |= set(row[2]) - seen
                seen |= set(row[2])
                if size >= TOGETHER:
                    yield batch
                    batch, size = [], 0
        if batch:
            yield batch

    def _row(self, sha256: str) -> Row | None:
        path = blob_path(self._folder, sha256)
        now = int(time.time() * 1e6)
        try:
            size = path.stat().st_size
            if size > IN_DATABASE:
                return sha256, size, sorted(_references_of(path)), None, now
            data = path.read_bytes()
        except OSError:
            return None  # a digest that only looks like one, or a blob that is lost already
        if hashlib.sha256(data).hexdigest() != sha256:
            return None  # damaged: left as it is for whoever looks into it
        return sha256, size, sorted(references(data)) if _is_json(data) else [], data, now

    def remove(self, taken: Iterable[str]) -> None:
        """Their files are not needed any more."""
        for sha256 in taken:
            with contextlib.suppress(OSError):
                blob_path(self._folder, sha256).unlink(missing_ok=True)

    def files(self) -> Iterator[tuple[str, Path, float, int]]:
        """Blobs that are files: hash, path, when they were last handed over (seconds), size. Stray parts have no hash."""
        for folder in (self._folder / "blobs").glob("??"):
            for path in folder.iterdir():
                with contextlib.suppress(OSError):
                    stat = path.stat()
                    yield "" if path.name.startswith(".") else path.name, path, stat.st_mtime, stat.st_size


def _is_json(data: Any) -> bool:
    """Whether a blob may be JSON that names others; an image or a table may not."""
    return data[:1] in (b"{", b"[") and any(data.find(mark) >= 0 for mark in MARKS)


def _references_of(path: Path) -> set[str]:
    import mmap

    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return references(data) if _is_json(data) else set()  # type: ignore[arg-type]
