"""Runs people's SELECTs: two at a time, with a time limit, interrupted when nobody waits any more."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from loom_kernel.clock import Clock
from loom_kernel.errors import SqlError

QUERIES = 2
"""SQL queries that run at once; more wait."""


class QueryRunner:
    """Args:
    run: ``run(cursor, sql, path, parameters, reached)`` writes a result, on a thread.
    cursor: makes a cursor that can be interrupted.
    scratch: where results go.
    """

    def __init__(
        self,
        run: Callable[[Any, str, Path, Mapping[str, Any] | None, int], None],
        cursor: Callable[[], Any],
        scratch: Path,
        clock: Clock,
    ) -> None:
        self._run, self._cursor, self._scratch, self._clock = run, cursor, scratch, clock
        self._slots = asyncio.Semaphore(QUERIES)
        self._running: set[Any] = set()
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._running)

    def new_path(self, suffix: str = ".parquet") -> Path:
        """A new name in the scratch folder, for whoever takes the file."""
        return self._scratch / f"q{os.getpid()}-{time.time_ns():x}-{next(self._numbers)}{suffix}"

    async def query(
        self, sql: str, timeout_s: float, parameters: Mapping[str, Any] | None = None, reached: int = 0
    ) -> Path:
        """The answer shows everything up to ``reached`` (a ``global_seq``). Raises: SqlError."""
        async with self._slots:
            loop = asyncio.get_running_loop()
            cursor = self._cursor()
            path = self.new_path()
            self._running.add(cursor)
            late: list[bool] = []

            def stop() -> None:
                late.append(True)
                cursor.interrupt()

            timer = loop.call_later(timeout_s, stop)
            work = loop.run_in_executor(None, self._run, cursor, sql, path, parameters, reached)
            try:
                with self._clock.busy():
                    await asyncio.shield(work)
                return path
            except asyncio.CancelledError:
                cursor.interrupt()  # the asker is gone
                work.add_done_callback(lambda done: _discard(done, path))
                raise
            except SqlError:
                if late:
                    raise SqlError(
                        f"the query took longer than {timeout_s:g} s and was stopped; narrow it down"
                    ) from None
                raise
            finally:
                timer.cancel()
                self._running.discard(cursor)

    def interrupt(self) -> None:
        """Stop them all."""
        for cursor in tuple(self._running):
            cursor.interrupt()


def _discard(done: asyncio.Future[None], path: Path) -> None:
    """Nobody waits for this result any more."""
    done.exception()
    path.unlink(missing_ok=True)
