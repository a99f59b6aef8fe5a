"""Room on the disk: a reserve that is given up when the disk is full, so that what was acknowledged can still be applied.

While there is no reserve, nothing new is written; it is made anew once there is room, and that is the sign to go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

from loom_kernel.journal.files import DISK, Disk

RESERVE_BYTES = 16 << 20
SPARE_BYTES = 1 << 20

RESERVE_AFTER_S = 0.5
"""After the first commit, room is put by."""

HEAL_S = 0.5
"""How often a full disk is asked for room again."""

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


class Room:
    """Whether there is room to write. On the loop, but for :meth:`give_up`.

    Args:
        reserve: the file that is given up.
        ahead: has the log make its segments ahead from now on.
        drop_ahead: has it stop that, and give back what was made. Any thread.
        ready: whether everything that is durable can be applied.
    """

    def __init__(
        self,
        reserve: Reserve,
        ahead: Callable[[], None],
        drop_ahead: Callable[[], None],
        ready: Callable[[], bool],
    ) -> None:
        self._reserve, self._ahead, self._drop_ahead, self._ready = reserve, ahead, drop_ahead, ready
        self._work: asyncio.Task[None] | None = None
        self._closed = False
        self.full = False  # nothing is written until there is room again

    def committed(self) -> None:
        """Put room by, some time after the first commit: a short visit costs nothing then."""
        if self._work is None:
            self._work = asyncio.get_running_loop().create_task(self._put_by())

    def set_full(self) -> None:
        """The disk refused."""
        if not self.full:
            self.full = True
            self._work = asyncio.get_running_loop().create_task(self._heal())

    def give_up(self) -> None:
        """Let what is durable already have all the room there is. Any thread."""
        self._drop_ahead()
        self._reserve.give_up()

    def close(self) -> None:
        """Try no more."""
        self._closed = True

    async def _put_by(self) -> None:
        await asyncio.sleep(RESERVE_AFTER_S)
        if self._closed or self.full:
            return
        if await self._made():
            self._ahead()
        else:
            self.set_full()

    async def _heal(self) -> None:
        while not self._closed:
            await asyncio.sleep(HEAL_S)
            if not self._closed and self._ready() and await self._made():
                self.full = False
                self._ahead()
                return

    async def _made(self) -> bool:
        try:
            return await asyncio.get_running_loop().run_in_executor(None, self._reserve.make)
        except OSError:
            return True  # it cannot be made at all, but the disk is not full
