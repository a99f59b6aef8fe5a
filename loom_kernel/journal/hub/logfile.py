"""The hub's own log: where stderr goes. Writing to it can fail without anybody noticing, and never stops anything."""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import time
from pathlib import Path

MAX_BYTES = 1 << 20
"""The log is turned over at this size; one old piece is kept."""


def say(text: str) -> None:
    """Write one line with the time. Never raises: the disk may be full, and a thread must not die of its log."""
    try:
        os.write(2, f"{time.strftime('%Y-%m-%d %H:%M:%S')} [{os.getpid()}] {text}\n".encode(errors="replace"))
    except OSError:
        pass


class _Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            say(f"{record.levelname.lower()}: {self.format(record)}")
        except Exception:
            pass


def take_over(path: Path) -> None:
    """Send stdout, stderr and Python's logging to ``path``."""
    turn_over(path, force=True)
    logging.raiseExceptions = False
    logging.basicConfig(handlers=[_Handler()], level=logging.WARNING, force=True)
    sys.stderr = sys.stdout = _Guarded()
    faulthandler.enable(file=2)  # a crash in C leaves at least where it was


def turn_over(path: Path, *, force: bool = False) -> None:
    """Begin a new file once the log is long."""
    try:
        size = os.stat(path).st_size if path.exists() else 0
        if size > MAX_BYTES:
            os.replace(path, path.with_name(path.name + ".1"))
        elif not force:
            return
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        os.close(fd)
    except OSError:
        pass


class _Guarded:
    """A text stream onto stderr whose ``write`` cannot fail; tracebacks of dying threads go through it."""

    encoding = "utf-8"
    errors = "replace"

    def write(self, text: str) -> int:
        try:
            os.write(2, text.encode(errors="replace"))
        except OSError:
            pass
        return len(text)

    def flush(self) -> None:
        return None

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return 2
