"""A disk that keeps only what was synced, and of the rest whatever a throw of the dice says: pieces of writes, in any
order, files that have grown without their content, names that were never written down.
"""

from __future__ import annotations

import random
from pathlib import Path

from loom_kernel.journal.files import Disk

SECTOR = 512


class Inode:
    """A file: what programs see, and what is on the platter."""

    def __init__(self) -> None:
        self.seen = bytearray()
        self.kept = b""
        self.pending: list[tuple[int, bytes]] = []  # since the last sync: where, what
        self.sizes: list[int] = []


class LossyDisk(Disk):
    """The files of one folder. Reading back goes through the real folder: see :meth:`crash`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, Inode] = {}
        self.kept_names: dict[str, Inode] = {}
        self.pending_names: list[tuple[str, Inode | None]] = []
        self._open: dict[int, Inode] = {}
        for path in folder.iterdir():  # of before the last crash: all of it is on the platter
            inode = self.names[path.name] = self.kept_names[path.name] = Inode()
            inode.kept = path.read_bytes()
            inode.seen = bytearray(inode.kept)

    def open(self, path: Path, *, create: bool = False) -> int:
        if create:
            self._name(path.name, Inode())
        fd = len(self._open) + 1
        self._open[fd] = self.names[path.name]
        return fd

    def close(self, fd: int) -> None:
        pass

    def write(self, fd: int, data: bytes | memoryview, at: int) -> int:
        inode, data = self._open[fd], bytes(data)
        self._show(inode.seen, at, data)
        inode.pending.append((at, data))
        inode.sizes.append(len(inode.seen))
        return len(data)

    def truncate(self, fd: int, size: int) -> None:
        inode = self._open[fd]
        del inode.seen[size:]
        inode.sizes.append(size)

    def sync(self, fd: int) -> None:
        inode = self._open[fd]
        inode.kept, inode.pending, inode.sizes = bytes(inode.seen), [], []

    def sync_folder(self, where: Path) -> None:
        self.kept_names, self.pending_names = dict(self.names), []

    def rename(self, old: Path, new: Path) -> None:
        self._name(new.name, self.names[old.name])
        self._name(old.name, None)

    def unlink(self, path: Path) -> None:
        self._name(path.name, None)

    def size(self, path: Path) -> int | None:
        return len(self.names[path.name].seen) if path.name in self.names else None

    def fill(self, path: Path, size: int) -> None:
        inode = Inode()
        inode.seen, inode.kept = bytearray(size), bytes(size)
        self._name(path.name, inode)

    def _name(self, name: str, inode: Inode | None) -> None:
        if inode is None:
            self.names.pop(name, None)
        else:
            self.names[name] = inode
        self.pending_names.append((name, inode))

    @staticmethod
    def _show(content: bytearray, at: int, data: bytes) -> None:
        if len(content) < at:
            content.extend(bytes(at - len(content)))
        content[at : at + len(data)] = data

    def crash(self, dice: random.Random) -> None:
        """The power goes. What is left lies in the real folder then."""
        names = dict(self.kept_names)
        for name, inode in self.pending_names[: dice.randint(0, len(self.pending_names))]:  # a folder keeps its order
            if inode is None:
                names.pop(name, None)
            else:
                names[name] = inode
        for path in self.folder.iterdir():
            path.unlink()
        for name, inode in names.items():
            (self.folder / name).write_bytes(self._left(inode, dice))

    def _left(self, inode: Inode, dice: random.Random) -> bytes:
        content = bytearray(inode.kept)
        pieces = []
        for at, data in inode.pending:
            begin = 0
            while begin < len(data):
                end = min(len(data), begin + SECTOR - (at + begin) % SECTOR)
                pieces.append((at + begin, data[begin:end]))
                begin = end
        dice.shuffle(pieces)
        for at, data in pieces[: dice.randint(0, len(pieces))]:
            self._show(content, at, data)
        if inode.sizes and dice.random() < 0.7:  # the size is written down by itself
            size = dice.choice(inode.sizes)
            content = content[:size] + bytes(max(0, size - len(content)))
        return bytes(content)
