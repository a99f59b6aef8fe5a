"""How long after an answer the body's next line runs, in one kernel, for a person to read::

    python -m tests.bench.answer [QUESTIONS]

A run asks one question after the other; the main thread answers each with ``r.answer()``, as a cell does. Beside it, in
the same run, a durable step after a step: an answer is two commits (the post, and that it was taken) and a push.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.journal import percentile

QUESTIONS = 200
AIM_S = 0.05


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else QUESTIONS
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as where:
        os.environ["LOOM_HOME"] = str(Path(where) / ".loom")
        from loom_kernel import Context, step, workflow
        from loom_kernel.journal.hub.launch import stop_hub
        from loom_kernel.runtime import get_runtime

        lines: list[float] = []
        steps: list[float] = []

        @step
        async def one(i: int) -> int:
            return i

        @workflow
        async def asking(ctx: Context, n: int) -> int:
            for i in range(n):
                await ctx.ui.confirm(f"Question {i}?", name=f"q{i}")
                lines.append(time.perf_counter())
            for i in range(n):
                before = time.perf_counter()
                await one(i)
                steps.append(time.perf_counter() - before)
            return n

        run = asking.options(show=False).start(n=n)
        answered: list[float] = []
        for i in range(n):
            while not any(prompt.prompt == f"q{i}" for prompt in run.prompts()):
                time.sleep(0.001)
            answered.append(time.perf_counter())
            run.answer(True, prompt=f"q{i}")
        run.wait()
        took = [line - before for before, line in zip(answered, lines, strict=True)]
        get_runtime().close()
        stop_hub(Path(where) / ".loom")
    p50, p95, floor = percentile(took, 50), percentile(took, 95), percentile(steps, 50)
    print(
        f"from the answer to the next line of the body, {n} times: p50 {p50 * 1e3:.1f} ms, p95 {p95 * 1e3:.1f} ms "
        f"({p95 / floor:.0f} times a durable step of {floor * 1e3:.2f} ms), aim {AIM_S * 1e3:.0f} ms at p95  "
        f"{'ok' if p95 <= AIM_S else 'MISSED'}"
    )


if __name__ == "__main__":
    main()
