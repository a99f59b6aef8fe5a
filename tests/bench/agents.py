"""What a stage costs beside the bare call of its model, and how many go at once.

    python -m tests.bench.agents

A real server on loopback, scripted, and the real litellm on both sides, in one run: the processor time of a bare call with
as many messages, and of a prompt of a stage, at the beginning of a session and at its 500th message. Then two hundred
stages at once on one loop, with a scripted model, since the server shares our two processors.
"""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from loom_kernel.agents.litellm_model import LiteLLMModel
from loom_kernel.agents.model import Request
from loom_kernel.agents.scripted import script
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.workflow import define
from loom_kernel.runtime.core import Runtime
from loom_kernel.runtime.host import ScriptHost
from loom_kernel.settings import Settings

PROMPTS = 250
"""Each leaves two messages."""

SAMPLE = 40
AT_ONCE = 200
AIM_MS = 5.0
AIM_LAG_MS = 50.0
TEXT = "A short answer of a few words."

SERVER = """
import sys, time
from loom_kernel.testing.fake_openai import FakeOpenAI
with FakeOpenAI(leftovers=False) as fake:
    fake.reply("A short answer of a few words.", times=float("inf"))
    print(fake.base_url, flush=True)
    sys.stdin.read()
"""


async def talk(ctx: Context, prompts: int) -> list[float]:
    """Processor time of each prompt of one session, ms. It is this process's: hub and server have their own."""
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


async def bare(base_url: str, messages: int) -> float:
    """Median processor time of a bare call with so many messages, ms."""
    door = LiteLLMModel()
    said = [{"role": ("user", "assistant")[n % 2], "content": TEXT} for n in range(messages - 1)]
    request = Request(
        model="openai/test", messages=[*said, {"role": "user", "content": "message"}], api_key="k", api_base=base_url
    )
    took = []
    for _ in range(SAMPLE + 5):
        began = time.process_time()
        await door.complete(request, lambda _: None)
        took.append((time.process_time() - began) * 1_000)
    return statistics.median(took[5:])


def memory_mb() -> float:
    """What this process held at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024


def verdict(value: float, aim: float) -> str:
    """Against an aim."""
    return f"aim {aim:g}  {'ok' if value <= aim else 'MISSED'}"


def main() -> int:
    """Print the figures; 1 where an aim is missed."""
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    base_url = server.stdout.readline().strip()
    os.environ["LOOM_BENCH_KEY"] = "k"
    try:
        with tempfile.TemporaryDirectory() as folder:
            settings = Settings({"LOOM_HOME": str(Path(folder) / ".loom")}, Path(folder))
            settings.configure(
                stages_at_once=AT_ONCE,
                model="openai-1/test",
                accounts={"openai-1": {"api_key_env": "LOOM_BENCH_KEY", "api_base": base_url}},
            )
            runtime = Runtime(settings, ScriptHost("bench"))
            try:
                return measure(runtime, base_url)
            finally:
                runtime.close()
    finally:
        server.communicate()


def measure(runtime: Runtime, base_url: str) -> int:
    """See :func:`main`."""

    def run(body: Any, **inputs: Any) -> Any:
        definition = define(body)
        return runtime.start(definition, inputs, definition.options(fresh=True).start_options).wait(timeout=300).result

    async def bare_calls() -> tuple[float, float]:
        return await bare(base_url, 1), await bare(base_url, 2 * PROMPTS - 1)

    run(talk, prompts=10)  # what is imported once
    first_bare, last_bare = asyncio.run(bare_calls())
    took = run(talk, prompts=PROMPTS)
    first, last = statistics.median(took[:SAMPLE]), statistics.median(took[-SAMPLE:])
    over = max(first - first_bare, last - last_bare)
    print("processor time of a call, ms         bare litellm    in a stage    over")
    print(f"  at the first message               {first_bare:12.2f}  {first:12.2f}  {first - first_bare:6.2f}")
    print(f"  at {2 * PROMPTS} messages                    {last_bare:12.2f}  {last:12.2f}  {last - last_bare:6.2f}")
    print(
        f"  {verdict(over, AIM_MS)}; what is over grows {(last - last_bare) / max(0.01, first - first_bare):.2f} times"
    )
    runtime.configure(model="scripted/demo")
    before, began = memory_mb(), time.perf_counter()
    with script("demo", [{"text": TEXT, "times": "always"}]):
        lags = sorted(run(crowd, n=AT_ONCE))
    lag = lags[int(len(lags) * 0.95)] if lags else 0.0
    took_s, each_kb = time.perf_counter() - began, (memory_mb() - before) * 1024 / AT_ONCE
    print(
        f"{AT_ONCE} stages at once: {took_s:.2f} s, {each_kb:.0f} kB each; the loop's lag, p95: {lag:.1f} ms; {verdict(lag, AIM_LAG_MS)}"
    )
    return int(over > AIM_MS or lag > AIM_LAG_MS)


if __name__ == "__main__":
    sys.exit(main())
