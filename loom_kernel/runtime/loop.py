"""The one thread that runs the event loop of all runs, and how other threads wait for it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from loom_kernel.errors import WouldBlock

T = TypeVar("T")

POLL_S = 0.1
"""How often a waiting thread looks up, so that an interrupt is felt."""


class LoopThread:
    """A daemon thread named ``loom`` with an asyncio loop; started when first used."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, running."""
        with self._lock:
            if self._loop is None:
                ready = threading.Event()
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, args=(self._loop, ready), name="loom", daemon=True)
                self._thread.start()
                ready.wait()
            return self._loop

    def _run(self, loop: asyncio.AbstractEventLoop, ready: threading.Event) -> None:
        asyncio.set_event_loop(loop)
        loop.call_soon(ready.set)
        try:
            loop.run_forever()
        finally:
            with contextlib.suppress(RuntimeError):
                loop.close()

    @property
    def inside(self) -> bool:
        """Whether the caller is on the loop's thread."""
        return threading.current_thread() is self._thread

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run it on the loop; the future may be waited for from any other thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def call(self, make: Callable[[], Coroutine[Any, Any, T]], name: str, twin: str, timeout: float | None = None) -> T:
        """Run it on the loop and wait. An interrupt is felt at once and cancels it.

        Raises:
            WouldBlock: on the loop's own thread; ``twin`` is what to await there.
            TimeoutError: after ``timeout`` seconds; it is cancelled.
        """
        if self.inside:
            raise WouldBlock(name, twin)
        future = self.submit(make())
        try:
            return wait_for(future, timeout)
        except BaseException:
            future.cancel()
            raise

    async def hand_over(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run it on the loop and await it from whatever loop the caller is on."""
        if self.inside:
            return await make()
        future = self.submit(make())
        try:
            return await tick(future)
        except asyncio.CancelledError:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the thread; what still runs on it is dropped."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            if thread is not threading.current_thread():
                thread.join(timeout=2)


def wait_for(future: concurrent.futures.Future[T], timeout: float | None = None) -> T:
    """The future's result. Looks up often, so that KeyboardInterrupt arrives; never cancels the future.

    Raises:
        TimeoutError: after ``timeout`` seconds.
    """
    left = timeout
    while True:
        step = POLL_S if left is None else min(POLL_S, max(0.0, left))
        done, _ = concurrent.futures.wait([future], timeout=step)
        if done:
            return future.result()
        if left is not None:
            left -= step
            if left <= 0:
                raise TimeoutError


async def tick(future: concurrent.futures.Future[T]) -> T:
    """Await the future from another loop, waking that loop often and never cancelling the future.

    A kernel's loop feels an interrupt only when something wakes it; a bare await would not.
    """
    wrapped = asyncio.wrap_future(future)
    wrapped.add_done_callback(lambda f: f.cancelled() or f.exception())  # it may end after nobody waits any more
    while not wrapped.done():
        # `wait` leaves the future alone when this task is cancelled; awaiting it would cancel the run.
        await asyncio.wait({wrapped}, timeout=POLL_S)
    return wrapped.result()
