"""Is the process that holds a lease still there? Pid, start time and boot id together name a process for good."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Literal

from loom_kernel.ids import HolderId
from loom_kernel.journal.abc import Holder

Liveness = Literal["alive", "stopped", "dead", "unknown"]

ALIVE: Liveness = "alive"
STOPPED: Liveness = "stopped"
DEAD: Liveness = "dead"
UNKNOWN: Liveness = "unknown"


def this_process(id: HolderId, *, label: str = "", kind: str = "script") -> Holder:
    """The holder that this process is."""
    pid = os.getpid()
    return Holder(
        id=id,
        pid=pid,
        pid_started=pid_started(pid),
        boot_id=boot_id(),
        host=socket.gethostname(),
        label=label,
        kind=kind,
    )


def boot_id() -> str:
    """Names this start of the machine; empty where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def pid_started(pid: int) -> float:
    """Clock ticks from boot to the process's start; 0 where the system does not say."""
    fields = _stat(pid)
    return float(fields[19]) if fields else 0.0


def liveness(holder: Holder) -> Liveness:
    """What can be said of the holder's process from here."""
    if holder.pid <= 0 or (holder.host and holder.host != socket.gethostname()):
        return UNKNOWN
    if holder.boot_id and holder.boot_id != boot_id():
        return DEAD
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return DEAD
    except OSError:
        pass  # someone else's process: it exists
    fields = _stat(holder.pid)
    if not fields:
        return ALIVE if not Path("/proc/self/stat").exists() else DEAD
    if fields[0] in "ZX" or (holder.pid_started and float(fields[19]) != holder.pid_started):
        return DEAD
    return STOPPED if fields[0] in "Tt" else ALIVE


class Probe:
    """:func:`liveness` with a short memory, so that a list of a thousand runs asks once a holder."""

    def __init__(self, keep_s: float = 0.25) -> None:
        self._keep_s = keep_s
        self._known: dict[tuple[int, float, str, str], tuple[float, Liveness]] = {}

    def __call__(self, holder: Holder) -> Liveness:
        now = time.monotonic()
        process = (holder.pid, holder.pid_started, holder.boot_id, holder.host)  # whatever it holds, by whatever claim
        known = self._known.get(process)
        if known is not None and now - known[0] < self._keep_s:
            return known[1]
        answer = liveness(holder)
        if len(self._known) > 1000:
            self._known.clear()
        self._known[process] = (now, answer)
        return answer


def _stat(pid: int) -> list[str]:
    """The fields of ``/proc/PID/stat`` after the name, the state first."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()
