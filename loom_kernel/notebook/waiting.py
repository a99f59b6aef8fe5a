"""What an interrupt means while a cell waits for a run: the first one stops waiting, the second cancels the run.

A kernel's own handling is not enough for that. An awaiting cell is only told of an interrupt when something else wakes
its loop, and then by a ``CancelledError`` that looks like any other cancellation; so while a cell waits, SIGINT passes
through :class:`Interrupts`, which notes it, lets the kernel do what it does, and wakes the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeVar

E = TypeVar("E", bound=BaseException)

AGAIN_S = 10.0
"""Seconds within which the next interrupt of a cell that waits for the same run cancels it."""


class Interrupts:
    """Notes SIGINT while cells wait, and remembers which runs a person has stopped waiting for."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waits = 0
        self._noted_at: float | None = None
        self._behind: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._left_at: dict[str, float] = {}
        self._cell_task: asyncio.Task[Any] | None = None

    # -- noticing

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Note interrupts until this ends. Several waits of one cell share it; other threads than the main one pass."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._enter()
        try:
            yield
        finally:
            self._leave()

    @property
    def noted(self) -> bool:
        """Whether an interrupt came since the waits that go on now began."""
        return self._noted_at is not None

    def cell_started(self, *_: Any) -> None:
        """A hook for IPython's ``pre_run_cell``: the task that runs it is the cell's own."""
        self._noted_at = None
        self._cell_task = _current_task()

    @property
    def in_cell(self) -> bool:
        """Whether the caller is the cell itself and not a task that it made.

        KeyboardInterrupt raised in any other task would end the kernel's loop.
        """
        task = _current_task()
        return task is None or task is self._cell_task

    def _enter(self) -> None:
        if self._waits == 0:
            self._noted_at = None
        self._waits += 1
        with contextlib.suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        current = signal.getsignal(signal.SIGINT)
        # Each cell brings its kernel's own handler; a wait that outlived its cell leaves none of ours behind.
        if current != self._on_sigint and callable(current):
            self._behind = current
            signal.signal(signal.SIGINT, self._on_sigint)

    def _leave(self) -> None:
        self._waits -= 1
        if self._waits == 0 and signal.getsignal(signal.SIGINT) == self._on_sigint:
            signal.signal(signal.SIGINT, self._behind)

    def _on_sigint(self, number: int, frame: FrameType | None) -> None:
        self._noted_at = self._clock()
        try:
            self._behind(number, frame)
        finally:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(lambda: None)

    # -- deciding

    def again(self, run_id: str) -> bool:
        """Whether this interrupt is the second for the run; otherwise it is remembered as the first."""
        now = self._clock()
        left = self._left_at.pop(run_id, None)
        if left is not None and now - left <= AGAIN_S:
            return True
        self._left_at[run_id] = now
        return False


def left(line: str) -> KeyboardInterrupt:
    """The KeyboardInterrupt that ends a waiting cell; IPython shows ``line`` instead of a traceback."""
    return _plain(KeyboardInterrupt(line))


def left_in_task() -> asyncio.CancelledError:
    """What ends a task of the cell; ``gather`` hands it on to the cell as it is."""
    return _plain(asyncio.CancelledError("the cell was interrupted"))


def _plain(error: E) -> E:
    error._render_traceback_ = lambda: [f"{type(error).__name__}: {error}"]  # type: ignore[attr-defined]
    return error


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
