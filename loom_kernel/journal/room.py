"""Room on the disk: a reserve that is given up when the disk is full, so that what was acknowledged can still be applied.

While there is no reserve, nothing new is written; it is made anew once there is room, and that is the sign to go on.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from pathlib import Path

from loom_kernel.journal.files import DISK, Disk

RESERVE_BYTES = 16 << 20
SPARE_BYTES = 1 << 20

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a full disk: a state that passes, not a broken log."""

_FULL_TEXTS = ("No space left", "Disk quota exceeded", "File too large", "out of disk space")


def is_full(error: BaseException | None) -> bool:
    """Whether an error, of the system or of DuckDB, says that the disk is full."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in FULL:
            return True
        if any(text in str(error) for text in _FULL_TEXTS):
            return True
        error = error.__cause__
    return False


def free_bytes(folder: Path) -> int:
    """What may still be written below ``folder``; a lot where the system does not say."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 1 << 62
    return found.f_bavail * found.f_frsize


class Reserve:
    """A file of zeros in the journal's folder. Any thread.

    Args:
        path: where it lies. One that an earlier process left is taken over.
    """

    def __init__(self, path: Path, disk: Disk = DISK) -> None:
        self._path, self._disk = path, disk
        self._lock = threading.Lock()

    @property
    def there(self) -> bool:
        try:
            return self._path.stat().st_size == RESERVE_BYTES
        except OSError:
            return False

    def make(self) -> bool:
        """Have it, if there is room for it and a bit more; whether it is there. Blocks.

        Raises:
            OSError: it cannot be made, and not for want of room.
        """
        with self._lock:
            if self.there:
                return True
            if free_bytes(self._path.parent) < RESERVE_BYTES + SPARE_BYTES:
                return False
            try:
                self._disk.fill(self._path, RESERVE_BYTES)
            except OSError as error:
                if is_full(error):
                    return False
                raise
            return True

    def give_up(self) -> None:
        """Let others have its room."""
        with self._lock, contextlib.suppress(OSError):
            self._disk.unlink(self._path)
