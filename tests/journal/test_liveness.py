"""Who is alive: a process is its pid, its start time and the machine's boot."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import msgspec
import pytest

from loom_kernel.ids import HolderId
from loom_kernel.journal.abc import Holder
from loom_kernel.journal.liveness import ALIVE, DEAD, STOPPED, UNKNOWN, boot_id, liveness, pid_started, this_process

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def child() -> Iterator[tuple[subprocess.Popen[bytes], Holder]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    holder = Holder(
        id=HolderId("h"),
        pid=process.pid,
        pid_started=pid_started(process.pid),
        boot_id=boot_id(),
        host=os.uname().nodename,
    )
    yield process, holder
    process.kill()
    process.wait()


def test_this_process_is_alive() -> None:
    """And says who it is."""
    holder = this_process(HolderId("me"), label="n.ipynb", kind="kernel")
    assert (holder.pid, holder.label, holder.kind) == (os.getpid(), "n.ipynb", "kernel")
    assert liveness(holder) == ALIVE


def test_a_process_stops_goes_on_and_dies(child: tuple[subprocess.Popen[bytes], Holder]) -> None:
    """Stopped is not dead, a zombie is."""
    process, holder = child
    assert liveness(holder) == ALIVE
    process.send_signal(signal.SIGSTOP)
    for _ in range(100):
        if liveness(holder) == STOPPED:
            break
        time.sleep(0.01)
    assert liveness(holder) == STOPPED
    process.send_signal(signal.SIGCONT)
    process.kill()
    for _ in range(100):
        if liveness(holder) == DEAD:
            break
        time.sleep(0.01)
    assert liveness(holder) == DEAD
    process.wait()
    assert liveness(holder) == DEAD


def test_a_pid_that_was_used_again_is_another_process() -> None:
    """Its start time tells."""
    me = this_process(HolderId("me"))
    assert liveness(msgspec.structs.replace(me, pid_started=me.pid_started - 1)) == DEAD


def test_another_boot_is_dead_and_another_host_unknown() -> None:
    """What cannot be seen from here is not called dead."""
    me = this_process(HolderId("me"))
    assert liveness(msgspec.structs.replace(me, boot_id="another")) == DEAD
    assert liveness(msgspec.structs.replace(me, host="another", boot_id="another")) == UNKNOWN
    assert liveness(msgspec.structs.replace(me, pid=0)) == UNKNOWN
