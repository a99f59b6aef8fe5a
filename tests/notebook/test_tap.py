"""Clicks are taken off the shell channel while a cell runs, whatever the cell does."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from loom_kernel.notebook.tap import advice
from tests.notebook.kernel import Kernel

pytestmark = [pytest.mark.kernels, pytest.mark.timeout(120)]

SETUP = """
import asyncio, threading, time
from comm import create_comm
from loom_kernel.notebook.tap import Tap
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
heard, usual = [], []
comm = create_comm(target_name="loom.test", data={})
comm.on_msg(lambda msg: usual.append(msg["content"]["data"]))
tap = Tap(get_ipython().kernel, loop)
tap.add(comm.comm_id, lambda content, buffers: heard.append((content["n"], threading.current_thread().name, time.time())))
print(tap.reach, comm.comm_id)
"""


@pytest.fixture
def kernel(project: Path):  # type: ignore[no-untyped-def]
    with Kernel(project) as running:
        yield running


def test_clicks_arrive_while_a_cell_runs(kernel: Kernel) -> None:
    """A click is heard at once while a cell awaits, and (where the kernel allows it) blocks or computes."""
    reach, comm_id = kernel.ok(SETUP).text.split()
    assert reach in ("always", "awaiting")
    cells = {"awaiting": "await asyncio.sleep(1.5)"}
    if reach == "always":
        cells["blocking"] = "time.sleep(1.5)"
        cells["computing"] = "end = time.time() + 1.5\nwhile time.time() < end: sum(range(100))"
    for n, code in enumerate(cells.values()):
        cell = kernel.send(f"heard.clear()\n{code}\nprint([(c, t, at < time.time() - 0.5) for c, t, at in heard])")
        time.sleep(0.4)
        kernel.click({"n": n}, comm_id)
        text = cell.wait().text
        assert text.startswith(f"[({n}, ") and "MainThread" not in text and text.endswith("True)]"), (code, text)


def test_other_messages_go_their_usual_way(kernel: Kernel) -> None:
    """Messages of other methods and, after ``discard``, all messages reach the comm itself, in order with the cells."""
    _, comm_id = kernel.ok(SETUP).text.split()
    session = kernel.client.session
    kernel.client.shell_channel.send(
        session.msg("comm_msg", {"comm_id": comm_id, "data": {"method": "update", "state": {}}})
    )
    assert kernel.ok("print(len(usual), len(heard))").text == "1 0"
    kernel.ok("tap.discard(comm.comm_id)")
    kernel.click({"n": 1}, comm_id)
    assert kernel.ok("print(len(usual), len(heard))").text == "2 0"
    kernel.ok("tap.add(comm.comm_id, lambda c, b: heard.append(c)); tap.remove()")
    kernel.click({"n": 2}, comm_id)
    assert kernel.ok("print(len(usual), len(heard), tap.reach)").text == "3 0 idle"


def test_a_burst_is_heard_in_order(kernel: Kernel) -> None:
    """Two hundred clicks during a blocking cell come in order and none is lost."""
    reach, comm_id = kernel.ok(SETUP).text.split()
    wait = "time.sleep(1.5)" if reach == "always" else "await asyncio.sleep(1.5)"
    cell = kernel.send(f"{wait}\nprint([n for n, *_ in heard] == list(range(200)))")
    time.sleep(0.2)
    for n in range(200):
        kernel.click({"n": n}, comm_id)
    assert cell.wait().text == "True"


def test_without_a_kernel_there_is_advice() -> None:
    """Where clicks are heard only at times, one sentence says how to answer."""
    assert advice("always") == ""
    assert "between cells" in advice("idle") and "`loom answer`" in advice("awaiting")
