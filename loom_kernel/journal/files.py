"""What the commit log asks of a disk. The tests put a disk in its place that loses what was not synced."""

from __future__ import annotations

import os
from pathlib import Path

ZEROS = bytes(1 << 20)

_sync = getattr(os, "fdatasync", os.fsync)


class Disk:
    """The real one. Every method may raise ``OSError``."""

    def open(self, path: Path, *, create: bool = False) -> int:
        """A descriptor to read and write; ``create`` makes the file anew, empty."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_TRUNC if create else 0)
        return os.open(path, flags, 0o600)

    def close(self, fd: int) -> None:
        os.close(fd)

    def write(self, fd: int, data: bytes | memoryview, at: int) -> int:
        """Write some of ``data`` there; how much."""
        return os.pwrite(fd, data, at)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        """What was written to the file survives a loss of power."""
        _sync(fd)

    def sync_folder(self, where: Path) -> None:
        """The names in the folder do."""
        fd = os.open(where, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def size(self, path: Path) -> int | None:
        """Bytes of the file; None where there is none."""
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return None

    def fill(self, path: Path, size: int) -> None:
        """Make a file of that many zeros, on disk when it returns; nothing is left of it when it fails."""
        fd = self.open(path, create=True)
        try:
            at = 0
            while at < size:
                at += self.write(fd, ZEROS[: min(len(ZEROS), size - at)], at)
            os.fsync(fd)
            self.sync_folder(path.parent)
        except OSError:
            self.unlink(path)
            raise
        finally:
            self.close(fd)


DISK = Disk()
