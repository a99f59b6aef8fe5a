"""DBOS Transact over SQLite."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from dbos import DBOS, DBOSConfig, SetWorkflowID
from workload import N, die, main

RECORDED = "recorded"


def launch(folder: Path) -> None:
    """Start DBOS on the folder's database; it picks up unfinished workflows by itself."""
    url = f"sqlite:///{folder / 'dbos.sqlite'}"
    DBOS(config=DBOSConfig(name="bench", system_database_url=url, log_level="ERROR", application_version="v1"))
    DBOS.launch()


@DBOS.step()
def add(x: int) -> int:
    return x + 1


@DBOS.step()
async def add_async(x: int) -> int:
    return x + 1


@DBOS.workflow()
def chain_sync(n: int) -> int:
    x = 0
    for _ in range(n):
        x = add(x)
    return x


@DBOS.workflow()
async def chain(n: int) -> int:
    x = 0
    for _ in range(n):
        x = await add_async(x)
    return x


@DBOS.workflow()
async def fan(n: int) -> int:
    return sum(await asyncio.gather(*[add_async(i) for i in range(n)]))


@DBOS.workflow()
def crashing(n: int, crash: bool) -> int:
    x = 0
    for _ in range(n):
        x = add(x)
    marker = Path(DBOS.workflow_id or "").with_suffix(".crashed")
    if crash and not marker.exists():
        marker.touch()
        die()
    return x


def steps(folder: Path) -> dict[str, float]:
    launch(folder)
    start = time.perf_counter()
    assert chain_sync(N) == N
    sync = time.perf_counter() - start

    async def rest() -> tuple[float, float]:
        start = time.perf_counter()
        assert await chain(N) == N
        middle = time.perf_counter()
        assert await fan(N) == N * (N + 1) // 2
        return middle - start, time.perf_counter() - middle

    sequential, fanned = asyncio.run(rest())
    return {"sequential": sequential, "sequential_sync": sync, "fan": fanned}


def record(folder: Path) -> dict[str, float]:
    launch(folder)
    with SetWorkflowID(str(folder / RECORDED)):
        crashing(N, True)
    raise SystemExit("did not crash")


def recover(folder: Path) -> dict[str, float]:
    start = time.perf_counter()
    launch(folder)
    handle = DBOS.retrieve_workflow(str(folder / RECORDED))
    assert handle.get_result(polling_interval_sec=0.005) == N
    return {"recovery": time.perf_counter() - start}


if __name__ == "__main__":
    main({"steps": steps, "record": record, "recover": recover})
