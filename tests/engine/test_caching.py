"""``@step(cache=...)``: what an earlier run has done is not done again, as long as it is the same and still there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import duckdb
import pytest

from loom_kernel import events as ev
from loom_kernel.authoring.step import StepDefinition, step
from loom_kernel.clock import VirtualClock
from loom_kernel.errors import DefinitionError
from loom_kernel.ids import RunId
from loom_kernel.journal.duckdb_store import DuckDBRunJournal
from loom_kernel.journal.memory_store import MemoryRunJournal
from loom_kernel.views.detail import detail
from loom_kernel.views.run import RunView
from tests.engine.harness import World, events_of, rest

pytestmark = pytest.mark.timeout(60)


Play = Callable[[Callable[[World], Coroutine[Any, Any, None]]], None]


@pytest.fixture(params=["memory", "duckdb"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    """Plays a story in a world on a virtual clock, with either journal."""

    async def story(main: Callable[[World], Coroutine[Any, Any, None]]) -> None:
        clock = VirtualClock()
        journal: Any = MemoryRunJournal(clock)
        if request.param == "duckdb":
            journal = await DuckDBRunJournal.open(tmp_path / ".loom", clock=clock)
        world = World(clock, journal)
        try:
            await main(world)
        finally:
            await world.close()
            await journal.close()

    return lambda main: asyncio.run(story(main))


def doubling(world: World, cache: Any = True, plus: int = 0) -> StepDefinition[..., Any]:
    """A step that says when it really runs."""

    @step(name="double", cache=cache)
    async def double(n: int, note: str = "") -> int:
        world.did("double")
        return n * 2 + plus

    return double


def asking(double: StepDefinition[..., Any], *calls: Any) -> Callable[..., Any]:
    """A body that calls it."""

    async def flow(ctx: Any) -> list[int]:
        return list(await asyncio.gather(*(double(*(c if isinstance(c, tuple) else (c,))) for c in calls)))

    return flow


def completed(execution: Any) -> list[ev.NodeCompleted]:
    return events_of(execution, ev.NodeCompleted)


def test_an_earlier_runs_result_is_given(play: Play) -> None:
    """The second run does nothing, says whose result it has, and another argument runs."""

    async def main(world: World) -> None:
        double = doubling(world)
        first = await world.start(asking(double, 1, 2))
        assert (await rest(first)).result == [2, 4]
        second = await world.start(asking(double, 1, 2, 3))
        assert (await rest(second)).result == [2, 4, 6]
        assert world.effects["double"] == 3
        assert sorted(e.cached_from for e in completed(second)) == ["", first.run_id, first.run_id]
        [at] = {e.cached_at for e in completed(second) if e.cached_from}
        assert at == pytest.approx(world.clock.time(), abs=5)
        view = RunView(second.run_id)
        for entry in second.entries:
            view.apply(entry)
        told = [fact for node_id in view.order for fact in detail(view, node_id)["facts"]]
        assert sum(fact.startswith("from cache, run of ") for fact in told) == 2
        if isinstance(world.journal, DuckDBRunJournal):
            path = await world.journal.query("select count(cached_from) as n, min(cached_from) as run from nodes")
            assert duckdb.sql(f"from '{path}'").fetchall() == [(2, first.run_id)]

    play(main)


def test_a_step_without_cache_runs_in_each_run(play: Play) -> None:
    """Nothing is kept for it, and the project has no stream of results."""

    async def main(world: World) -> None:
        double = doubling(world, cache=False)
        for _ in range(2):
            await world.run(asking(double, 1))
        assert world.effects["double"] == 2
        assert [e async for e in world.journal.read(RunId("results"))] == []

    play(main)


def test_it_holds_for_the_next_worker_and_resume(play: Play) -> None:
    """A worker that comes later finds it; the run that was answered has the result for itself when the first is gone."""

    async def main(world: World) -> None:
        double = doubling(world)
        first = await world.start(asking(double, 1))
        await rest(first)
        await world.restart()

        async def flow(ctx: Any) -> int:
            n = await double(1)
            if world.effects["boom"] == 0:
                world.did("boom")
                raise ValueError("boom")
            return n

        second = await world.start(flow)
        assert (await rest(second)).status == "failed"
        await world.journal.delete_run(first.run_id)
        assert (await rest(await world.resume(second.run_id, flow))).result == 2
        assert world.effects["double"] == 1

    play(main)


def test_a_result_expires_and_is_replaced(play: Play) -> None:
    """One that is too old is made again, and then it is the new one that counts."""

    async def main(world: World) -> None:
        double = doubling(world, cache="90s")
        for wait, runs in ((0.0, 1), (60.0, 1), (60.0, 2), (60.0, 2), (3_600.0, 3)):
            await world.clock.sleep(wait)
            assert (await world.run(asking(double, 1))).result == [2]
            assert world.effects["double"] == runs

    play(main)


def test_other_code_is_another_step(play: Play) -> None:
    """A helper value that the code reads counts as code; a later return to the old code finds the old result."""

    async def main(world: World) -> None:
        for plus, runs in ((0, 1), (5, 2), (0, 2)):
            assert (await world.run(asking(doubling(world, plus=plus), 1))).result == [2 + plus]
            assert world.effects["double"] == runs

    play(main)


def test_a_function_says_what_counts(play: Play) -> None:
    """With cache=function its value stands for the arguments."""

    async def main(world: World) -> None:
        double = doubling(world, cache=lambda n, note: n % 10)
        assert (await world.run(asking(double, (1, "a"), (2, "b")))).result == [2, 4]
        assert (await world.run(asking(double, (11, "c"), (12, "d")))).result == [2, 4]
        assert world.effects["double"] == 2

    play(main)


def test_a_result_that_is_gone_is_made_again(play: Play) -> None:
    """With its run deleted there is nothing to give, and that is no error."""

    async def main(world: World) -> None:
        double = doubling(world)
        first = await world.start(asking(double, *range(8)))
        await rest(first)
        await world.journal.delete_run(first.run_id)
        assert (await world.run(asking(double, *range(8)))).result == [n * 2 for n in range(8)]
        assert world.effects["double"] == 16

    play(main)


def test_a_large_value_comes_back_or_is_made_again(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """A blob is shared by its hash; without it the step runs."""

    async def main(world: World) -> None:

        @step(cache=True)
        async def large() -> bytes:
            world.did("large")
            return bytes(range(256)) * 2_000

        async def flow(ctx: Any) -> int:
            return len(await large())

        for _ in range(2):
            assert (await world.run(flow)).result == 512_000
        assert world.effects["large"] == 1

        async def gone(sha256: str) -> bytes:
            raise KeyError(sha256)

        monkeypatch.setattr(world.journal, "get_blob", gone)
        assert (await world.run(flow)).result == 512_000
        assert world.effects["large"] == 2

    play(main)


def test_failures_are_not_kept(play: Play) -> None:
    """A step that failed is tried again by the next run."""

    async def main(world: World) -> None:

        @step(cache=True)
        async def fails() -> None:
            world.did("fails")
            raise ValueError("no")

        async def flow(ctx: Any) -> None:
            await fails()

        for _ in range(2):
            assert (await world.run(flow)).status == "failed"
        assert world.effects["fails"] == 2

    play(main)


def test_a_thousand_answers_are_a_few_reads(play: Play) -> None:
    """Those who ask together are answered together: the stream and the run are read, not a thousand keys."""

    async def main(world: World) -> None:
        double = doubling(world)
        await world.run(asking(double, *range(1_000)))
        reads = 0
        for name in ("read", "read_key", "post"):
            before = getattr(world.journal, name)

            def counted(*args: Any, before: Any = before) -> Any:
                nonlocal reads
                reads += 1
                return before(*args)

            setattr(world.journal, name, counted)
        began = time.perf_counter()
        assert len((await world.run(asking(double, *range(1_000)))).result) == 1_000
        assert time.perf_counter() - began < 5
        assert world.effects["double"] == 1_000
        assert reads < 20

    play(main)


@pytest.mark.parametrize("wrong", ["5 weeks", "", "0s", 3, "-1d"])
def test_a_wrong_duration_is_refused(wrong: Any) -> None:
    """The sentence shows what would be right."""
    with pytest.raises(DefinitionError, match="12h"):
        step(cache=wrong)(lambda: None)


def test_what_keeps_no_result_has_no_cache() -> None:
    """A digest is nothing to answer with, and a step that changes its arguments has to run."""
    with pytest.raises(DefinitionError, match="digest"):
        step(cache=True, store="digest")(lambda: None)
    with pytest.raises(DefinitionError, match="mutates"):
        step(cache=True, mutates=True)(lambda: None)
