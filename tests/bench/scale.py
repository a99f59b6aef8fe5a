"""What a node costs in a run of 10,000 beside one in runs of 100, for a person to read::

    python -m tests.bench.scale [ROUNDS]

Each case runs in a process of its own, on a hub of its own, beside the project (a temporary folder may be memory). Figures
are processor seconds and bytes of this process, a node; what an empty run costs is taken off, so that a hundred short
runs are compared with a long one by their nodes alone. The smallest of ROUNDS (3) counts.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from loom_kernel import Context, step, workflow
from loom_kernel.journal.hub.launch import stop_hub

LARGE, SMALL = 10_000, 100
AIM = 1.3


@step
async def add(i: int) -> int:
    return i + 1


@workflow
async def chain(ctx: Context, n: int, salt: int) -> int:
    x = 0
    for _ in range(n):
        x = await add(x)
    return x


@workflow
async def fan(ctx: Context, n: int, salt: int) -> int:
    """In groups of a hundred, each after the one before it: many edges."""
    total = 0
    for first in range(0, n, 100):
        total += sum(await asyncio.gather(*(add(i) for i in range(first, min(n, first + 100)))))
    return total


@workflow
async def wide(ctx: Context, n: int, salt: int) -> int:
    return sum(await asyncio.gather(*(add(i) for i in range(n))))


SHAPES = {"chain": chain, "fan": fan, "wide": wide}


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def side(shape: str, n: int, runs: int) -> None:
    """Runs of ``n`` nodes, ``runs`` of them; prints processor seconds and, for the last of them, bytes while it is held."""
    body = SHAPES[shape]
    for salt in (-2, -1):
        body.options(show=False).start(n=SMALL, salt=salt).wait()
    empty = time.process_time()
    for salt in range(runs):
        body.options(show=False).start(n=0, salt=salt).wait()
    empty = time.process_time() - empty
    gc.collect()
    before, start = resident(), time.process_time()
    kept = []
    for salt in range(1_000, 1_000 + runs):
        run = body.options(show=False).start(n=n, salt=salt)
        run.wait()
        kept.append(run)
    seconds = time.process_time() - start - empty
    gc.collect()
    size = resident() - before
    start = time.perf_counter()
    assert sum(len(run.view.nodes) for run in kept) == n * runs
    print(json.dumps({"seconds": seconds, "bytes": size, "view": time.perf_counter() - start}))


def case(shape: str, n: int, runs: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as where:
        env = {k: v for k, v in os.environ.items() if not k.startswith("LOOM_")}
        env |= {"LOOM_HOME": str(Path(where) / ".loom"), "PYTHONPATH": str(Path(__file__).parents[2])}
        command = [sys.executable, "-m", "tests.bench.scale", "side", shape, str(n), str(runs)]
        done = subprocess.run(command, env=env, cwd=where, capture_output=True, text=True, timeout=300, check=False)
        stop_hub(Path(where) / ".loom")
        if done.returncode:
            raise RuntimeError(done.stderr)
        figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return figures


def main() -> None:
    if sys.argv[1:2] == ["side"]:
        side(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        return
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(f"{'':<28}{'runs of ' + str(SMALL):>14}{LARGE // 2:>10,}{LARGE:>10,}   of {LARGE:,} beside {SMALL}")
    for shape in SHAPES:
        sizes = [(SMALL, LARGE // SMALL), (LARGE // 2, 1), (LARGE, 1)]
        best = [
            {name: min(figures[name] for figures in column) for name in column[0]}
            for column in zip(*([case(shape, n, runs) for n, runs in sizes] for _ in range(rounds)), strict=True)
        ]
        cpu = [figures["seconds"] / (n * runs) * 1e6 for figures, (n, runs) in zip(best, sizes, strict=True)]
        ratio = cpu[2] / cpu[0]
        print(
            f"{shape + ', processor us a node':<28}{cpu[0]:>14.0f}{cpu[1]:>10.0f}{cpu[2]:>10.0f}   "
            f"{ratio:.2f} times, aim {AIM}  {'ok' if ratio <= AIM else 'MISSED'}"
        )
        memory = [figures["bytes"] / (n * runs) for figures, (n, runs) in zip(best, sizes, strict=True)]
        print(f"{shape + ', bytes a node':<28}{memory[0]:>14.0f}{memory[1]:>10.0f}{memory[2]:>10.0f}")
        print(
            f"{shape + ', its view, seconds':<28}"
            + "".join(f"{figures['view']:>{w}.3f}" for figures, w in zip(best, (14, 10, 10), strict=True))
        )


if __name__ == "__main__":
    main()
