"""A workflow for tests that kill its process: a stage with a tool that takes its time."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from loom_kernel import Context, get_run, workflow

EFFECTS = Path(os.environ.get("EFFECTS", "effects.txt"))


def buy(what: str) -> str:
    """Buy something."""
    with EFFECTS.open("a") as file:
        file.write(f"{what}\n")
    time.sleep(float(os.environ.get("SLOW", "0")))
    return f"bought {what}"


@workflow
async def shop(ctx: Context) -> list[str]:
    """Two prompts of one session."""
    stage = ctx.stage("shop", custom_tools=[buy])
    return [await stage.prompt("get apples"), await stage.prompt("get pears")]


if __name__ == "__main__":
    run = get_run(sys.argv[1]).resume() if len(sys.argv) > 1 else shop.start()
    print(run.id, flush=True)
    print(run.wait(timeout=60).result, flush=True)
