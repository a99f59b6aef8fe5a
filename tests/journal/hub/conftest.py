"""Each test has a folder of its own, a folder for sockets of its own, and leaves no hub behind."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short folder, since a test's own may be too deep for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="loom-t"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def folder(tmp_path: Path, sockets: Path) -> Iterator[Path]:
    """A journal folder that does not exist yet; hubs of it are killed at the end."""
    path = tmp_path / ".loom"
    yield path
    for pid in hub_pids(path):
        os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + 5
    while hub_pids(path) and time.monotonic() < end:
        time.sleep(0.01)


def hub_pids(folder: Path) -> list[int]:
    """Processes that serve ``folder`` or are about to."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if b"loom_kernel.journal.hub" in words and os.fsencode(folder) in words and state != "Z":
            found.append(int(entry.name))
    return found
