"""loom-kernel, through its public names, on a journal with a hub."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import statistics
import threading
import time
from pathlib import Path

from workload import N, die, main

import loom_kernel.journal.hub.client
import loom_kernel.testing
from loom_kernel import Context, resume, step, workflow

# Seconds that a body measured between its first and its last step; a run that is replayed doesn't read it.
measured: dict[str, float] = {}
stamps: list[float] = []  # the end of each step of the last chain


@step
async def add(x: int) -> int:
    return x + 1


@step
def add_sync(x: int) -> int:
    return x + 1


@workflow(lint=False)  # it takes its own time
async def chain(ctx: Context, n: int) -> int:
    x, start = 0, time.perf_counter()
    stamps[:] = [start]
    for _ in range(n):
        x = await add(x)
        stamps.append(time.perf_counter())
    measured["chain"] = stamps[-1] - start
    return x


@workflow(lint=False)  # it takes its own time
async def chain_sync(ctx: Context, n: int) -> int:
    x, start = 0, time.perf_counter()
    for _ in range(n):
        x = await add_sync(x)
    measured["chain_sync"] = time.perf_counter() - start
    return x


@workflow(lint=False)  # it takes its own time
async def fan(ctx: Context, n: int) -> int:
    start = time.perf_counter()
    total = sum(await asyncio.gather(*(add(i) for i in range(n))))
    measured["fan"] = time.perf_counter() - start
    return total


@workflow
async def child(ctx: Context, i: int) -> int:
    return await add(i)


@workflow(lint=False)  # it takes its own time
async def children(ctx: Context, n: int) -> int:
    start = time.perf_counter()
    results = await asyncio.gather(*(ctx.workflow(child, inputs={"i": i}) for i in range(n)))
    measured["children"] = time.perf_counter() - start
    return sum(result.result for result in results)


@workflow(lint=False)  # it dies once, and leaves a file that says so
async def crashing(ctx: Context, n: int, marker: str) -> int:
    x = 0
    for _ in range(n):
        x = await add(x)
    if not Path(marker).exists():
        Path(marker).write_text(ctx.run_id)
        die()
    return x


def hub_cpu() -> float:
    """Seconds of processor time that the hub has used; all of its threads."""
    pid = json.loads((Path(os.environ["LOOM_HOME"]) / "hub.json").read_text())["pid"]
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def steps(folder: Path) -> dict[str, float]:
    """Steps one after the other, async and sync, and all at once; children; processor time of the first, whole run."""
    chain.options(show=False).start(n=1).wait()  # the hub is up
    client, hub = time.process_time(), hub_cpu()
    assert chain.start(n=N).wait().result == N
    client, hub = time.process_time() - client, hub_cpu() - hub
    median = statistics.median(after - before for before, after in itertools.pairwise(stamps))
    sequential = measured["chain"]
    assert chain_sync.start(n=N).wait().result == N
    assert fan.start(n=N).wait().result == N * (N + 1) // 2
    assert children.start(n=N).wait().result == N * (N + 1) // 2
    return {
        "sequential": sequential,
        "sequential_median": median * N,
        "client_cpu": client,
        "hub_cpu": hub,
        "sequential_sync": measured["chain_sync"],
        "fan": measured["fan"],
        "children": measured["children"],
    }


def busy(folder: Path) -> dict[str, float]:
    """The same while the main thread computes in pure Python, as a cell may do."""
    chain.start(n=1).wait()
    done = threading.Event()
    run = chain.start(n=N)
    threading.Thread(target=lambda: (run.settle(), done.set()), daemon=True).start()
    number = 7
    while not done.is_set():
        for _ in range(20_000):
            number = (number * 31 + 11) % 1_000_003
    return {"sequential_busy": measured["chain"]}


def record(folder: Path) -> dict[str, float]:
    """N recorded steps, and a worker that dies before it can say that the run has ended."""
    crashing.start(n=N, marker=str(folder / "crashed")).wait()
    raise SystemExit("did not crash")


def recover(folder: Path) -> dict[str, float]:
    """Resume that run in a new process: connect, read, replay, end. Imports are done before, as the peers' are."""
    run_id = (folder / "crashed").read_text()
    asyncio.run(loom_kernel.testing.run(chain, {"n": 1}))
    start = time.perf_counter()
    assert resume(run_id).wait().result == N
    return {"recovery": time.perf_counter() - start}


if __name__ == "__main__":
    main({"steps": steps, "busy": busy, "record": record, "recover": recover})
