"""Values too large for an event: files named by the hash of their bytes, synced before the event that names them."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

_SHA256 = re.compile(r"[0-9a-f]{64}")


def blob_path(folder: Path, sha256: str) -> Path:
    """Where a blob of this hash lies below the journal's ``folder``.

    Raises:
        KeyError: ``sha256`` is not a hash.
    """
    if not _SHA256.fullmatch(sha256):
        raise KeyError(sha256)
    return folder / "blobs" / sha256[:2] / sha256


def write_blobs(folder: Path, blobs: Sequence[tuple[str, bytes]]) -> None:
    """Keep ``(sha256, bytes)``; durable when it returns. What is there already is left alone.

    Raises:
        OSError: the disk refused.
    """
    for sha256, data in blobs:
        path = blob_path(folder, sha256)
        with contextlib.suppress(FileNotFoundError):
            os.utime(path)  # it is wanted again: too young to be swept up
            continue
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd, name = tempfile.mkstemp(dir=path.parent, prefix=".")
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(fd)
            os.replace(name, path)  # readers see all of it or nothing
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        _sync_folder(path.parent)


def read_blob(folder: Path, sha256: str) -> bytes:
    """The bytes. Raises: KeyError when they are not kept."""
    try:
        return blob_path(folder, sha256).read_bytes()
    except FileNotFoundError:
        raise KeyError(sha256) from None


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
