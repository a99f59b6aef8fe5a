"""Rate limits by name: over runs, over processes, on a clock that jumps."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import step
from loom_kernel.clock import VirtualClock
from loom_kernel.engine.rate_limits import WINDOW_S, Rate, RateLimits, wait_s
from loom_kernel.errors import DefinitionError, SettingsError
from tests.engine.harness import World, engine_on

LIMITS = {"openai": {"requests_per_minute": 3}, "tokens": {"tokens_per_minute": 100}}


@given(
    st.lists(st.tuples(st.floats(0, 59.9), st.integers(0, 60)), max_size=12),
    st.integers(1, 5),
    st.integers(10, 100),
    st.integers(0, 120),
)
def test_after_the_wait_it_fits_and_a_moment_before_it_does_not(
    uses: list[tuple[float, int]], requests: int, tokens: int, wanted: int
) -> None:
    """Whatever was used in the minute before."""
    rate = Rate(requests, tokens)
    used = [[at, float(n)] for at, n in sorted(uses)]
    now = 60.0

    def fits(at: float) -> bool:
        left = [(t, n) for t, n in used if t > at - WINDOW_S]
        return len(left) < requests and sum(n for _, n in left) + min(wanted, tokens) <= tokens

    wait = wait_s(rate, used, now, wanted)
    assert fits(now + wait + 1e-6)
    assert wait == 0 or not fits(now + wait - 1e-3)


def test_calls_of_several_runs_wait_for_their_minute() -> None:
    """Three at once, the next when the first is a minute ago; the wait is shown as queueing."""

    async def main() -> None:
        clock = VirtualClock()
        world = World(clock)
        limits = RateLimits(LIMITS, None, clock)
        await world.engine.close()
        world.engine = engine_on(world.journal, clock, rates=lambda: limits)
        at: list[float] = []

        @step(limit="openai")
        async def ask(n: int) -> int:
            at.append(clock.monotonic())
            return n

        async def body(ctx: Context, first: int) -> list[int]:
            return list(await asyncio.gather(*(ask(first + i) for i in range(4))))

        runs = await asyncio.gather(world.run(body, first=0), world.run(body, first=10))
        assert [r.result for r in runs] == [[0, 1, 2, 3], [10, 11, 12, 13]]
        assert [round(t) for t in at] == [0, 0, 0, 60, 60, 60, 120, 120]
        await world.close()

    asyncio.run(main())


def test_tokens_count_as_they_were_used_in_the_end() -> None:
    """One that is larger than the limit goes alone."""

    async def main() -> None:
        clock = VirtualClock()
        limits = RateLimits(LIMITS, None, clock)
        assert await limits.acquire("tokens", 60) == 0
        limits.used("tokens", 10, 60)
        assert await limits.acquire("tokens", 90) == 0
        assert await limits.acquire("tokens", 500) == pytest.approx(60, abs=0.1)

    asyncio.run(main())


def test_processes_of_a_project_count_together(tmp_path: Path) -> None:
    """Through a file that only they may read; one that a crash left broken begins anew."""
    code = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom loom_kernel.clock import SystemClock\n"
        "from loom_kernel.engine.rate_limits import RateLimits\n"
        "async def main():\n"
        f"    limits = RateLimits({LIMITS!r}, Path({str(tmp_path)!r}), SystemClock())\n"
        "    for _ in range(int(sys.argv[1])):\n"
        "        await asyncio.wait_for(limits.acquire('openai'), 5)\n"
        "asyncio.run(main())\n"
    )
    root = Path(__file__).parents[2]

    def ask(times: int) -> int:
        return subprocess.run(
            [sys.executable, "-c", code, str(times)], cwd=root, capture_output=True, check=False
        ).returncode

    assert [ask(1), ask(2)] == [0, 0]
    file = tmp_path / "limits" / "openai.json"
    assert len(json.loads(file.read_text())) == 3
    assert file.stat().st_mode & 0o777 == 0o600
    assert ask(1) != 0  # it would have waited for a minute
    file.write_text("[[1.0, 2")
    assert ask(1) == 0


def test_what_is_not_there_is_one_sentence() -> None:
    """A name, a field, a number; at the step, before it runs."""
    for given_, sentence in [
        ({"a": {"requests": 1}}, "no field named 'requests'"),
        ({"a": {"requests_per_minute": 0}}, "above zero"),
        ({"a/b": {}}, "plain name"),
        ({"a": 3}, "a table"),
    ]:
        with pytest.raises(SettingsError, match=sentence):
            RateLimits(given_, None, VirtualClock())
    with pytest.raises(DefinitionError, match="rate limit, is needed"):
        step(limit=0)(lambda: 1)

    async def main() -> None:
        world = World()
        limits = RateLimits({}, None, world.clock)
        await world.engine.close()
        world.engine = engine_on(world.journal, world.clock, rates=lambda: limits)

        @step(limit="openai")
        async def ask() -> int:
            return 1

        async def body(ctx: Context) -> Any:
            return await ask()

        assert "there is no [limits.openai] in loom.toml; there are: none" in str((await world.run(body)).error)
        await world.close()

    asyncio.run(main())
