"""What happens on resume when the code was edited: the table of edits, and what we do for each.

The body calls a(1), b(1) and then c(1); the worker is gone while c runs. The peers keep old results without a word
when arguments changed, and some repeat finished steps; here nothing finished repeats, and no effect is done differently
from the record without a person's yes.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loom_kernel import events as ev
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import step
from loom_kernel.authoring.workflow import define
from tests.engine.harness import World, events_of, rest, types_of, until

pytestmark = pytest.mark.timeout(30)


class Story:
    """The run before the edit."""

    def __init__(self) -> None:
        self.world = World()
        self.crash = True

        @step
        async def a(n: int) -> str:
            self.world.did(f"a{n}")
            return f"A{n}"

        @step
        async def b(n: int) -> str:
            self.world.did(f"b{n}")
            return f"B{n}"

        @step
        async def c(n: int) -> str:
            self.world.did(f"c{n}")
            if self.crash:
                await asyncio.sleep(60)
            return f"C{n}"

        self.a, self.b, self.c = a, b, c

    async def crashed(self) -> str:
        async def body(ctx: Context) -> list[str]:
            return [await self.a(1), await self.b(1), await self.c(1)]

        execution = await self.world.start(define(body, name="story"))
        await until(lambda: types_of(execution).count("node.started") == 3)
        await self.world.restart()
        self.crash = False
        assert self.world.effects == {"a1": 1, "b1": 1, "c1": 1}
        self.world.effects.clear()
        return execution.run_id

    async def resume(self, run_id: str, body: Any, **options: Any) -> Any:
        execution = await self.world.resume(run_id, define(body, name="story"), **options)
        return execution, await rest(execution)


def tell(main: Any) -> None:
    asyncio.run(main())


def test_same() -> None:
    """Nothing changed: only what was interrupted runs."""

    async def main() -> None:
        story = Story()
        run_id = await story.crashed()

        async def body(ctx: Context) -> list[str]:
            return [await story.a(1), await story.b(1), await story.c(1)]

        _, result = await story.resume(run_id, body)
        assert result.result == ["A1", "B1", "C1"] and story.world.effects == {"c1": 1}
        await story.world.close()

    tell(main)


def test_swap() -> None:
    """a and b change places: both are answered from the record, since their keys do not say where they stand."""

    async def main() -> None:
        story = Story()
        run_id = await story.crashed()

        async def body(ctx: Context) -> list[str]:
            return [await story.b(1), await story.a(1), await story.c(1)]

        _, result = await story.resume(run_id, body)
        assert result.result == ["B1", "A1", "C1"] and story.world.effects == {"c1": 1}
        await story.world.close()

    tell(main)


def test_rename() -> None:
    """The code cannot come to a recorded effect any more, and would do another: a person decides before it is done."""

    async def main() -> None:
        story = Story()
        run_id = await story.crashed()

        @step
        async def renamed(n: int) -> str:
            story.world.did(f"renamed{n}")
            return f"R{n}"

        async def body(ctx: Context) -> list[str]:
            return [await renamed(1), await story.b(1), await story.c(1)]

        execution, result = await story.resume(run_id, body)
        assert (result.status, result.reason) == ("paused", "needs_decision") and not story.world.effects
        [paused] = events_of(execution, ev.RunPaused)
        assert (paused.detail["what"], paused.detail["name"]) == ("gone", "renamed")
        assert [(r["name"], r["args"]) for r in paused.detail["recorded"]] == [("a", {"n": 1})]
        assert "step 'a' is recorded, and the code does not call it any more" in paused.message

        execution, result = await story.resume(run_id, body, accept=True)
        assert result.result == ["R1", "B1", "C1"] and story.world.effects == {"renamed1": 1, "c1": 1}
        assert events_of(execution, ev.MismatchAccepted)[0].recorded == [paused.detail["recorded"][0]["node"]]
        assert [node.split(":")[1] for node in events_of(execution, ev.RunEnded)[0].drift] == ["a"]
        await story.world.close()

    tell(main)


def test_insert() -> None:
    """A step inserted above shifts nobody's key: it runs, the others are answered from the record."""

    async def main() -> None:
        story = Story()
        run_id = await story.crashed()

        @step
        async def new(n: int) -> str:
            story.world.did(f"new{n}")
            return f"N{n}"

        async def body(ctx: Context) -> list[str]:
            return [await new(1), await story.a(1), await story.b(1), await story.c(1)]

        execution, result = await story.resume(run_id, body)
        assert result.result == ["N1", "A1", "B1", "C1"] and story.world.effects == {"new1": 1, "c1": 1}
        assert events_of(execution, ev.RunEnded)[0].drift == []
        await story.world.close()

    tell(main)


def test_args() -> None:
    """Other arguments for a step that is recorded: the run pauses before the effect, and runs it once accepted."""

    async def main() -> None:
        story = Story()
        run_id = await story.crashed()

        async def body(ctx: Context) -> list[str]:
            return [await story.a(2), await story.b(2), await story.c(2)]

        execution, result = await story.resume(run_id, body)
        assert (result.status, result.reason) == ("paused", "needs_decision")
        assert not story.world.effects
        [paused] = events_of(execution, ev.RunPaused)
        assert paused.detail["name"] == "a" and paused.detail["called"] == {"n": 2}
        assert [r["args"] for r in paused.detail["recorded"]] == [{"n": 1}]
        assert paused.detail["node"].startswith("step:a:") and "test_mismatch.py, line" in paused.detail["where"]
        assert paused.detail["hint"] == f"%loom resume {run_id} --accept" and paused.detail["hint"] in paused.message
        assert "'a' was called with n=2" in paused.message and "n=1" in paused.message

        execution, result = await story.resume(run_id, body, accept=True)
        assert result.result == ["A2", "B2", "C2"]
        assert story.world.effects == {"a2": 1, "b2": 1, "c2": 1}
        accepted = events_of(execution, ev.MismatchAccepted)
        assert [a.called.split(":")[1] for a in accepted] == ["a", "b", "c"]
        assert all(len(a.recorded) == 1 for a in accepted)
        await story.world.close()

    tell(main)


def test_body() -> None:
    """A recorded step's own code was edited: its result stays, and nothing is asked."""

    async def main() -> None:
        story = Story()
        run_id = await story.crashed()

        @step(name="a")
        async def edited(n: int) -> str:
            story.world.did(f"edited{n}")
            return f"E{n}"

        async def body(ctx: Context) -> list[str]:
            return [await edited(1), await story.b(1), await story.c(1)]

        _, result = await story.resume(run_id, body)
        assert result.result == ["A1", "B1", "C1"] and story.world.effects == {"c1": 1}
        await story.world.close()

    tell(main)


def test_remove() -> None:
    """A step is gone: said before the next effect is done, and only once; its record is drift, and not deleted."""

    async def main() -> None:
        story = Story()
        run_id = await story.crashed()

        async def body(ctx: Context) -> list[str]:
            return [await story.a(1), await story.c(1)]

        execution, result = await story.resume(run_id, body)
        assert result.reason == "needs_decision" and not story.world.effects
        [paused] = events_of(execution, ev.RunPaused)
        assert [r["name"] for r in paused.detail["recorded"]] == ["b"]
        lines = paused.detail["diff"].splitlines()
        assert any(line.startswith("-") and "self.b(1)" in line for line in lines)

        execution, result = await story.resume(run_id, body, accept=True)
        assert result.result == ["A1", "C1"] and story.world.effects == {"c1": 1}
        assert [node.split(":")[1] for node in events_of(execution, ev.RunEnded)[0].drift] == ["b"]
        await story.world.close()

    tell(main)


def test_pure() -> None:
    """Plain code between the steps was edited: the new code counts, the steps stay."""

    async def main() -> None:
        story = Story()
        run_id = await story.crashed()

        async def body(ctx: Context) -> list[str]:
            return [x.lower() for x in (await story.a(1), await story.b(1), await story.c(1))]

        _, result = await story.resume(run_id, body)
        assert result.result == ["a1", "b1", "c1"] and story.world.effects == {"c1": 1}
        await story.world.close()

    tell(main)


def test_a_record_that_is_asked_for_later_is_no_mismatch() -> None:
    """A new call of the same name waits until the others were asked for, and then runs without a question."""

    async def main() -> None:
        story = Story()
        run_id = await story.crashed()

        async def body(ctx: Context) -> list[str]:
            new, old = story.a(7), story.a(1)
            first = asyncio.ensure_future(new)
            await asyncio.sleep(0.03)
            return [await old, await first, await story.b(1), await story.c(1)]

        async def late(ctx: Context) -> list[str]:
            first = asyncio.ensure_future(story.a(7))
            await asyncio.sleep(0)
            await story.b(1)
            return [await story.a(1), await first, await story.c(1)]

        _, result = await story.resume(run_id, late)
        assert result.result == ["A1", "A7", "C1"] and story.world.effects == {"a7": 1, "c1": 1}
        await story.world.close()

    tell(main)


def test_a_fan_out_that_grew_runs_only_what_is_new() -> None:
    """Seven recorded of ten calls in a gather: three run, whatever their places."""

    async def main() -> None:
        world = World()
        block = asyncio.Event()

        @step
        async def work(n: int) -> int:
            world.did(f"work {n}")
            if n in (2, 5, 8):
                await block.wait()
            return n

        async def body(ctx: Context) -> int:
            return sum(await asyncio.gather(*(work(n) for n in range(10))))

        execution = await world.start(body)
        await until(lambda: types_of(execution).count("node.completed") == 7)
        await world.restart()
        block.set()
        execution = await world.resume(execution.run_id, body)
        assert (await rest(execution)).result == 45
        assert {k: v for k, v in world.effects.items() if v > 1} == {"work 2": 2, "work 5": 2, "work 8": 2}
        await world.close()

    tell(main)


def test_the_failed_call_that_ended_a_run_may_be_corrected() -> None:
    """A run that failed with bad arguments goes on with good ones: nothing finished is in question."""

    async def main() -> None:
        world = World()

        @step
        async def fetch(url: str) -> str:
            if url == "bad":
                raise ValueError(url)
            return url

        def make(url: str) -> Any:
            async def body(ctx: Context) -> str:
                return await fetch(url)

            return body

        execution = await world.start(define(make("bad"), name="f"))
        await rest(execution)
        execution = await world.resume(execution.run_id, define(make("good"), name="f"))
        assert (await rest(execution)).result == "good"
        await world.close()

    tell(main)
