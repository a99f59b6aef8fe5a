"""An interrupt stops the waiting, not the run; the next one ends the run."""

from __future__ import annotations

import time

import pytest

from tests.notebook.kernel import Kernel

pytestmark = [pytest.mark.kernels, pytest.mark.timeout(120)]

SLOW = """import asyncio
from loom_kernel import workflow

@workflow
async def slow(ctx, n: int = 1):
    await ctx.step("wait", lambda: asyncio.sleep(60))
    return n
"""


def interrupted(kernel: Kernel, code: str) -> tuple[str, float]:
    """The error of a waiting cell that is interrupted, and how long that took."""
    cell = kernel.send(code)
    time.sleep(0.7)
    assert not cell.done
    began = time.monotonic()
    kernel.interrupt()
    kernel.until(lambda: cell.error is not None, 10, lambda: cell.text)
    took = time.monotonic() - began
    cell.wait()
    return cell.error or "", took


@pytest.mark.parametrize("code", ["await r", "r.wait()"])
def test_the_first_interrupt_detaches_and_the_second_cancels(kernel: Kernel, code: str) -> None:
    """The cell ends in under 0.3 s with one line; the run goes on until a second interrupt cancels it within 2 s."""
    kernel.ok(SLOW)
    kernel.ok("r = slow.start()")
    error, took = interrupted(kernel, code)
    assert error.startswith("KeyboardInterrupt: stopped waiting; slow goes on.") and took < 0.3
    assert kernel.ok("r.status").text == "'running'"
    error, took = interrupted(kernel, code)
    assert error == "KeyboardInterrupt: slow is being cancelled" and took < 0.3
    began = time.monotonic()
    assert kernel.ok("r.settle().status").text.splitlines()[-1] == "'cancelled'"
    assert time.monotonic() - began < 2


def test_the_traceback_is_one_line(kernel: Kernel) -> None:
    """Nothing of the machinery is shown."""
    kernel.ok(SLOW)
    kernel.ok("r = slow.start()")
    cell = kernel.send("await r")
    time.sleep(0.5)
    kernel.interrupt()
    assert len(cell.wait(5).traceback.splitlines()) == 1


def test_tasks_in_a_cell_leave_the_kernel_alive(kernel: Kernel) -> None:
    """Two runs awaited together are both left; the kernel and the runs go on."""
    kernel.ok(SLOW)
    kernel.ok("r, s = slow.start(n=1), slow.start(n=2)")
    error, took = interrupted(kernel, "await asyncio.gather(r, s)")
    assert error == "CancelledError: the cell was interrupted" and took < 0.3
    assert kernel.ok("r.status, s.status").text == "('running', 'running')"
    cell = kernel.send(
        "async with asyncio.TaskGroup() as group:\n    for run in (r, s):\n        group.create_task(run.settled())"
    )
    time.sleep(0.5)
    kernel.interrupt()
    assert "slow is being cancelled" in cell.wait(10).text
    assert kernel.ok("r.settle().status, s.settle().status").text.splitlines()[-1] == "('cancelled', 'cancelled')"


def test_a_timeout_of_the_persons_own_is_no_interrupt(kernel: Kernel) -> None:
    """``asyncio.wait_for`` and ``r.wait(timeout)`` raise TimeoutError and leave the run alone."""
    kernel.ok(SLOW)
    kernel.ok("r = slow.start()")
    assert (kernel.run("await asyncio.wait_for(r, 0.2)").error or "").startswith("TimeoutError")
    assert (kernel.run("r.wait(0.2)").error or "").startswith("TimeoutError")
    assert kernel.ok("r.status").text == "'running'"


def test_an_interrupt_while_idle_leaves_the_run_alone(kernel: Kernel) -> None:
    """Nothing waits, so nothing is interrupted, and it does not count as the first."""
    kernel.ok(SLOW)
    kernel.ok("r = slow.start()")
    kernel.interrupt()
    time.sleep(0.3)
    error, _ = interrupted(kernel, "await r")
    assert "stopped waiting" in error and kernel.ok("r.status").text == "'running'"


def test_after_ten_seconds_it_is_a_first_interrupt_again(kernel: Kernel) -> None:
    """Only a person who insists cancels."""
    kernel.ok(SLOW)
    kernel.ok("r = slow.start()")
    interrupted(kernel, "await r")
    kernel.ok(
        "from loom_kernel.runtime import get_runtime\nleft = get_runtime().host._interrupts._left_at\nleft[r.id] -= 11"
    )
    error, _ = interrupted(kernel, "await r")
    assert "stopped waiting" in error
