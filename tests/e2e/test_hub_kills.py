"""A run of 500 steps outlives twenty kills of its hub: every step once, every event there, no gap."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

KILLS = 20
STEPS = 500

WORKER = textwrap.dedent(
    """
    import asyncio, json, os, random, sys, threading, time
    from pathlib import Path

    from loom_kernel import Context, step, workflow

    EFFECTS = os.open("effects.txt", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    KILLS, STEPS, SEED = (int(word) for word in sys.argv[1:4])

    @step
    async def effect(i: int) -> int:
        os.write(EFFECTS, f"{i}\\n".encode())
        return i

    @workflow
    async def long(ctx: Context, steps: int) -> int:
        total = 0
        for first in range(0, steps, 10):  # ten in flight, then ten one after the other
            if first % 20:
                total += sum(await asyncio.gather(*(effect(i) for i in range(first, first + 10))))
            else:
                for i in range(first, first + 10):
                    total += await effect(i)
            await asyncio.sleep(0.005)
        return total

    def plan(seed):
        \"\"\"Each hub that is started dies at the next of these points; most of them with an append in flight.\"\"\"
        chance = random.Random(seed)
        points = ["before_commit", "after_commit", "after_ack"]
        return [f"{points[n % 3]}:{chance.randint(2, 12)}" for n in range(KILLS)]

    points, died = plan(SEED), []

    def arm():
        \"\"\"A hub takes its crash point from the environment of who starts it: lay the next one out after each start.\"\"\"
        seen = None
        while True:
            try:
                pid = json.loads(Path(os.environ["LOOM_HOME"], "hub.json").read_text())["pid"]
            except (OSError, ValueError, KeyError):
                pid = seen
            if pid != seen:
                seen = pid
                died.append(os.environ.pop("LOOM_HUB_CRASH", None))
                if points:
                    os.environ["LOOM_HUB_CRASH"] = points.pop(0)
            time.sleep(0.001)

    os.environ["LOOM_HUB_CRASH"] = points.pop(0)
    threading.Thread(target=arm, daemon=True).start()
    run = long.start(steps=STEPS)
    result = run.wait(timeout=120)
    time.sleep(0.05)
    print(json.dumps({"run": run.id, "status": result.status, "result": result.result, "armed": [p for p in died if p]}))
    """
)


@pytest.mark.timeout(180)
def test_twenty_kills_of_the_hub_lose_and_repeat_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever frame the hub dies at, effects and events agree line by line and no sequence number is missing."""
    seed = int(os.environ.get("LOOM_SEED") or random.randrange(1_000_000))
    (project / "worker.py").write_text(WORKER)
    done = subprocess.run(
        [sys.executable, "worker.py", str(KILLS), str(STEPS), str(seed)],
        cwd=project, capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr[-3000:]

    said = json.loads(done.stdout.splitlines()[-1])
    # The last hub may still be alive with its point ahead of it: only hubs that were followed by another have died.
    died = said["armed"][:KILLS]
    in_flight = [point for point in died if not point.startswith("after_ack")]
    with capsys.disabled():
        print(f"\n  seed {seed}: {len(died)} kills of the hub, {len(in_flight)} with an append in flight")

    assert said["status"] == "completed"
    assert sum(range(STEPS)) == said["result"]
    assert len(died) == KILLS
    assert len(in_flight) >= 10

    from loom_kernel.cli.main import main

    rows = _sql(
        f"select payload->>'$.name' as name, seq, key from events where run_id = '{said['run']}' order by seq",
        main, capsys,
    )  # fmt: skip
    effects = [int(line) for line in (project / "effects.txt").read_text().split()]

    assert list(range(1, len(rows) + 1)) == [row["seq"] for row in rows]
    assert len({row["key"] for row in rows if row["key"]}) == sum(1 for row in rows if row["key"])
    assert sorted(effects) == list(range(STEPS))
    assert sum(1 for row in rows if row["key"] and row["key"].endswith(":done")) == STEPS


def _sql(query: str, main: object, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    capsys.readouterr()
    assert main(["sql", "--json", "--limit", "100000", query]) == 0  # type: ignore[operator]
    rows: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return rows
