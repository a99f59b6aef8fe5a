"""Kill -9 at random points, over and over: a finished step is never run again.

By hand::

    python -m tests.e2e.kill_points --kills 200 --seed 1

A worker executes a run of many short steps, in series and side by side. Again and again, after a random time, it is
killed, or its hub, or both. What was recorded as finished at that moment is then read, and a new worker goes on. A step
whose end was recorded must not have run after that; one that was at work may. ``tests/e2e/test_kill_points.py`` does a
few in every test run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

WORKER = textwrap.dedent(
    """
    import asyncio, os, sys, time
    from loom_kernel import Context, get_run, resume, step, workflow

    EFFECTS = os.open("effects.txt", os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def note(i):
        os.write(EFFECTS, f"{i}\\n".encode())

    @step
    async def quick(i: int) -> int:
        note(i)
        return i

    @step
    def in_a_thread(i: int) -> int:
        note(i)
        time.sleep(0.001)
        return i

    @step
    async def slow(i: int) -> int:
        note(i)
        await asyncio.sleep(0.01)
        return i

    STEPS = [quick, in_a_thread, slow]

    @workflow
    async def many(ctx: Context, steps: int) -> int:
        total = 0
        for first in range(0, steps, 10):
            calls = [STEPS[i % 3](i) for i in range(first, first + 10)]
            if first % 20:
                total += sum(await asyncio.gather(*calls))
            else:
                for call in calls:
                    total += await call
        return total

    if sys.argv[1] == "start":
        run = many.start(steps=int(sys.argv[2]))
        print(run.id, flush=True)
    else:
        run = resume(sys.argv[1])
        print(run.id, flush=True)
    print(run.wait(timeout=120).result, flush=True)
    """
)

READER = textwrap.dedent(
    """
    import json, sys
    from loom_kernel import get_run
    run = get_run(sys.argv[1])
    done = [e.event.result for e in run.events() if e.type == "node.completed"]
    seqs = [e.seq for e in run.events()]
    assert seqs == list(range(1, len(seqs) + 1)), "a gap in the events"
    print(json.dumps({"status": run.status, "done": [int(bytes(raw)) for raw in done]}))
    """
)


@dataclass
class Found:
    """What came of it."""

    kills: int = 0
    workers: int = 0
    hubs: int = 0
    finished: int = 0
    runs: int = 0
    executions: int = 0
    repeated_finished: list[str] = field(default_factory=list)
    at_work: int = 0
    problems: list[str] = field(default_factory=list)


def campaign(folder: Path, *, kills: int, seed: int, steps: int = 300) -> Found:
    """Kill ``kills`` times in all, in as many runs as that takes; every run is brought to its end."""
    chance, found = random.Random(seed), Found()
    (folder / "worker.py").write_text(WORKER)
    (folder / "reader.py").write_text(READER)
    env = {**os.environ, "LOOM_HOME": str(folder / ".loom"), "PYTHONPATH": os.pathsep.join(sys.path)}
    while found.kills < kills:
        _one_run(folder, env, chance, found, kills, steps)
    with suppress(OSError, ValueError, KeyError):
        os.kill(_hub(folder), signal.SIGTERM)
    return found


def _one_run(folder: Path, env: dict[str, str], chance: random.Random, found: Found, kills: int, steps: int) -> None:
    effects = folder / "effects.txt"
    effects.write_text("")
    found.runs += 1
    ahead, run_id = ["start", str(steps)], ""
    finished_at: dict[int, int] = {}  # step -> how many lines there were when its end was known to be recorded
    while True:
        worker = subprocess.Popen(
            [sys.executable, "worker.py", *ahead],
            cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert worker.stdout is not None
        run_id = worker.stdout.readline().strip() or run_id
        if not run_id:
            found.problems.append("the worker did not start: " + worker.communicate()[1][-2000:])
            found.kills = kills
            return
        ahead = [run_id]
        if found.kills < kills:
            time.sleep(chance.uniform(0.0, 0.25))
            what = chance.choice(["worker", "worker", "hub", "both"])
            if what in ("hub", "both"):
                with suppress(OSError, ValueError, KeyError):
                    os.kill(_hub(folder), signal.SIGKILL)
                    found.hubs += 1
            if what in ("worker", "both"):
                worker.kill()
                found.workers += 1
            found.kills += 1
        _, err = worker.communicate(timeout=150)
        known = _read(folder, env, run_id, found)
        lines = effects.read_text().split()
        ran = Counter(int(line) for line in lines)
        found.finished += len(set(known["done"]) - finished_at.keys())
        for step, line_count in finished_at.items():
            if str(step) in lines[line_count:]:
                found.repeated_finished.append(f"step {step} of run {run_id}")
        for step in known["done"]:
            finished_at.setdefault(step, len(lines))
            if not ran[step]:
                found.problems.append(f"step {step} of run {run_id} is recorded and never ran")
        if len(known["done"]) != len(set(known["done"])):
            found.problems.append(f"run {run_id} has an end recorded twice")
        if known["status"] == "completed":
            found.executions += len(lines)
            found.at_work += len(lines) - steps
            if sorted(finished_at) != list(range(steps)):
                found.problems.append(f"run {run_id} is completed and lacks steps")
            return
        if worker.returncode >= 0 and worker.returncode != 0:
            found.problems.append(f"run {run_id}: {err[-2000:]}")
            return


def _read(folder: Path, env: dict[str, str], run_id: str, found: Found) -> dict[str, list[int] | str]:
    done = subprocess.run(
        [sys.executable, "reader.py", run_id], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        found.problems.append(f"run {run_id} could not be read: {done.stderr[-2000:]}")
        return {"status": "unknown", "done": []}
    read: dict[str, list[int] | str] = json.loads(done.stdout)
    return read


def _hub(folder: Path) -> int:
    return int(json.loads((folder / ".loom" / "hub.json").read_text())["pid"])


def main() -> int:
    """Run it and print what was found; 1 when something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="loom-kills-") as folder:
        found = campaign(Path(folder), kills=arguments.kills, seed=arguments.seed)
    print(
        f"{found.kills} kills ({found.workers} of the worker, {found.hubs} of the hub), {found.runs} runs, "
        f"{found.finished} steps recorded as finished, {len(found.repeated_finished)} of them run again, "
        f"{found.at_work} that were at work run again, {len(found.problems)} problems"
    )
    for problem in (*found.repeated_finished, *found.problems):
        print(" ", problem)
    return 1 if found.repeated_finished or found.problems else 0


if __name__ == "__main__":
    sys.exit(main())
