"""Threads for sync steps."""

from __future__ import annotations

import asyncio
import threading

import pytest

from loom_kernel.engine.pool import ThreadPool

pytestmark = pytest.mark.timeout(20)


def test_an_idle_thread_takes_one_job_and_the_others_get_threads_of_their_own() -> None:
    """Three jobs that come at once run at once, although one thread was idle already."""

    async def body() -> None:
        pool = ThreadPool(4)
        await pool.submit(lambda: None).future
        await asyncio.sleep(0.05)  # the thread is idle now
        together = threading.Barrier(3, timeout=5)
        jobs = [pool.submit(together.wait) for _ in range(3)]
        results = await asyncio.gather(*(job.future for job in jobs))
        pool.close()

        assert [error for _, error in results] == [None, None, None]

    asyncio.run(body())


def test_no_more_threads_than_the_pool_is_large() -> None:
    """A hundred jobs share two threads."""

    async def body() -> None:
        pool = ThreadPool(2)
        names: set[str] = set()
        jobs = [pool.submit(lambda: names.add(threading.current_thread().name)) for _ in range(100)]
        await asyncio.gather(*(job.future for job in jobs))
        pool.close()

        assert len(names) <= 2

    asyncio.run(body())
