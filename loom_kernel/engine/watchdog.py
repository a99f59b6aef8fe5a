"""Notices when the loop of all runs is blocked, and by which line of whose code."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from loom_kernel.authoring.source import where

BLOCKED_S = 0.5
"""A loop that does not answer for this long is blocked."""

LOOK_S = 0.2


class Watchdog:
    """A thread that pings the loop while runs are live.

    Args:
        on_blocked: called on the loop, once it answers again, with the task that blocked it and the line.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_blocked: Callable[[asyncio.Task[Any] | None, str], None]
    ) -> None:
        self._loop, self._on_blocked = loop, on_blocked
        self._loop_thread = threading.get_ident()
        self._stop = threading.Event()
        self._pong = threading.Event()
        threading.Thread(target=self._watch, name="loom-watchdog", daemon=True).start()

    def stop(self) -> None:
        """End the thread soon."""
        self._stop.set()

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_S):
            self._pong.clear()
            began = time.monotonic()
            try:
                self._loop.call_soon_threadsafe(self._pong.set)
            except RuntimeError:
                return  # the loop is closed
            if self._pong.wait(BLOCKED_S):
                continue
            task = asyncio.current_task(self._loop)
            line = own_line(sys._current_frames().get(self._loop_thread))
            while not self._pong.wait(LOOK_S):
                if self._stop.is_set():
                    return
            took = time.monotonic() - began
            if line is None:
                continue
            text = (
                f"{line} blocked all runs of this process for {took:.1f} s. Put it in a @step, which runs in a thread."
            )
            try:
                self._loop.call_soon_threadsafe(self._on_blocked, task, text)
            except RuntimeError:
                return


def own_line(frame: FrameType | None) -> str | None:
    """The innermost line that is neither ours nor the standard library's; None when there is none."""
    while frame is not None:
        module = frame.f_globals.get("__name__") or ""
        root = module.split(".")[0]
        if (
            root != "loom_kernel"
            and root not in sys.stdlib_module_names
            and "site-packages" not in frame.f_code.co_filename
        ):
            return where(frame)
        if root == "__main__" or root == "__mp_main__":
            return where(frame)
        frame = frame.f_back
    return None
