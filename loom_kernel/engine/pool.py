"""Threads for sync steps. They are daemons: a step that hangs must not keep a kernel from ending."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

THREADS = 16
"""Sync steps that run at once in a process."""


class Job:
    """Something a thread does; ``future`` gets the outcome on the loop."""

    __slots__ = ("ended", "fn", "future", "loop", "state")

    def __init__(self, fn: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.fn, self.loop = fn, loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.state = "queued"  # queued, running, ended, dropped
        self.ended: asyncio.Future[None] | None = None  # set for overdue jobs


class ThreadPool:
    """At most ``size`` threads, made when they are needed. A thread whose job is overdue does not count."""

    def __init__(self, size: int = THREADS, name: str = "loom-step") -> None:
        self._size, self._name = size, name
        self._queue: deque[Job] = deque()
        self._changed = threading.Condition(threading.Lock())
        self._threads = self._idle = self._overdue = self._made = 0
        self._closed = False

    def submit(self, fn: Callable[[], Any]) -> Job:
        """Run ``fn`` in a thread. Call it on the event loop."""
        job = Job(fn, asyncio.get_running_loop())
        with self._changed:
            if self._closed:
                raise RuntimeError("the pool is closed")
            self._queue.append(job)
            # An idle thread that was notified counts as idle until it wakes: each waiting job needs one of its own.
            if self._idle >= len(self._queue):
                self._changed.notify()
            elif self._threads - self._overdue < self._size:
                self._start()
        return job

    def abandon(self, job: Job) -> asyncio.Future[None] | None:
        """Nobody waits for the job any more. It is dropped if it has not begun; else the future says when it ends."""
        with self._changed:
            if job.state == "queued":
                job.state = "dropped"
                try:
                    self._queue.remove(job)
                except ValueError:
                    pass
                return None
            if job.state != "running":
                return None
            if job.ended is None:
                job.ended = job.loop.create_future()
                self._overdue += 1
                if len(self._queue) > self._idle:
                    self._start()  # another takes its place
            return job.ended

    def close(self) -> None:
        """Let idle threads end; busy ones end with their job."""
        with self._changed:
            self._closed = True
            self._queue.clear()
            self._changed.notify_all()

    def _start(self) -> None:
        self._threads += 1
        self._made += 1
        threading.Thread(target=self._work, name=f"{self._name}-{self._made}", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._queue:
                    if self._closed or self._threads - self._overdue > self._size:
                        self._threads -= 1
                        return
                    self._idle += 1
                    self._changed.wait()
                    self._idle -= 1
                job = self._queue.popleft()
                job.state = "running"
            result: Any = None
            error: BaseException | None = None
            try:
                result = job.fn()
            except BaseException as raised:  # a step may raise SystemExit; it is the step's failure, not the thread's
                error = raised
            with self._changed:
                job.state = "ended"
                if job.ended is not None:
                    self._overdue -= 1
            try:
                job.loop.call_soon_threadsafe(_deliver, job, result, error)
            except RuntimeError:
                pass  # the loop is closed: nobody is left to hear it
            del job, result, error


def _deliver(job: Job, result: Any, error: BaseException | None) -> None:
    if job.ended is not None and not job.ended.done():
        job.ended.set_result(None)
    if job.future.done():
        return
    if error is None:
        job.future.set_result((result, None))
    else:
        job.future.set_result((None, error))  # as a value: a future refuses StopIteration, and warns of the unheard
