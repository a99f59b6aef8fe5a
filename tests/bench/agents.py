"""What a stage costs beside the bare call of its model, and how many go at once.

    python -m tests.bench.agents

The scripted model costs next to nothing, so that what is left is ours. Compared in one run: the processor time of a call
in a stage, at the beginning of a session and at its 500th message; and two hundred stages at once on one loop.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from loom_kernel.agents.model import Request
from loom_kernel.agents.scripted import ScriptedModel, script
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.workflow import define
from loom_kernel.runtime.core import Runtime
from loom_kernel.runtime.host import ScriptHost
from loom_kernel.settings import Settings

PROMPTS = 250
"""Each leaves two messages."""

AT_ONCE = 200
AIM_MS = 5.0
AIM_LAG_MS = 50.0
ECHO = [
    {"text": "A short answer of a few words.", "times": "always", "usage": {"input_tokens": 9, "output_tokens": 7}},
]


async def bare(n: int) -> float:
    """Processor time of one call of the model alone, ms."""
    door = ScriptedModel()
    messages = [{"role": "user", "content": "say something"}]
    began = time.process_time()
    for _ in range(n):
        await door.complete(Request(model="scripted/demo", messages=messages))
    return (time.process_time() - began) / n * 1_000


async def talk(ctx: Context, prompts: int) -> list[float]:
    """Processor time of each prompt of one session, ms. It is this process's: the hub has its own."""
    stage = ctx.stage("talk")
    took = []
    for n in range(prompts):
        began = time.process_time()
        await stage.prompt(f"message {n}")
        took.append((time.process_time() - began) * 1_000)
    return took


async def crowd(ctx: Context, n: int) -> list[float]:
    """Many stages at once; what is returned is how late a timer of 5 ms was meanwhile, ms."""
    lags: list[float] = []

    async def watch() -> None:
        loop = asyncio.get_running_loop()
        while True:
            at = loop.time()
            await asyncio.sleep(0.005)
            lags.append(max(0.0, (loop.time() - at - 0.005) * 1_000))

    watching = asyncio.ensure_future(watch())
    await asyncio.gather(*(ctx.task(f"stage-{i}", prompt="say something", system="Be short.") for i in range(n)))
    watching.cancel()
    return lags


def memory_mb() -> float:
    """What this process holds at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024


def verdict(value: float, aim: float) -> str:
    """Against an aim."""
    return f"aim {aim:g}  {'ok' if value <= aim else 'MISSED'}"


def main() -> int:
    """Print the figures; 1 where an aim is missed."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings({"LOOM_HOME": str(Path(folder) / ".loom"), "LOOM_MODEL": "scripted/demo"}, Path(folder))
        settings.configure(stages_at_once=AT_ONCE)
        runtime = Runtime(settings, ScriptHost("bench"))
        try:
            with script("demo", ECHO):
                return measure(runtime)
        finally:
            runtime.close()


def measure(runtime: Runtime) -> int:
    """See :func:`main`."""

    def run(body: Any, **inputs: Any) -> Any:
        definition = define(body)
        return runtime.start(definition, inputs, definition.options(fresh=True).start_options).wait(timeout=300).result

    run(talk, prompts=10)  # what is imported once
    alone = min(asyncio.run(bare(500)) for _ in range(3))
    took = run(talk, prompts=PROMPTS)
    first, last = statistics.median(took[:50]), statistics.median(took[-50:])
    over = max(first, last) - alone
    print(
        f"a call in a stage: {first:.2f} ms of processor time at first, {last:.2f} at {2 * PROMPTS} messages; bare {alone:.2f}"
    )
    print(f"  over the bare call: {over:.2f} ms; {verdict(over, AIM_MS)}")
    print(f"  {last / first:.2f} times as much at {2 * PROMPTS} messages as at first")
    before = memory_mb()
    began = time.perf_counter()
    lags = sorted(run(crowd, n=AT_ONCE))
    lag = lags[int(len(lags) * 0.95)] if lags else 0.0
    print(
        f"{AT_ONCE} stages at once: {time.perf_counter() - began:.2f} s, {(memory_mb() - before) * 1024 / AT_ONCE:.0f} kB each"
    )
    print(f"  the loop's lag, p95: {lag:.1f} ms; {verdict(lag, AIM_LAG_MS)}")
    return int(over > AIM_MS or lag > AIM_LAG_MS)


if __name__ == "__main__":
    sys.exit(main())
