"""``ctx.tool``, ``ctx.step``: the same inline, with their references' failure rules."""

from __future__ import annotations

import asyncio
import subprocess
from typing import Any

import pytest

from loom_kernel import events as ev
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import current_step
from loom_kernel.authoring.workflow import define
from loom_kernel.clock import VirtualClock
from loom_kernel.errors import DefinitionError, StepTimeout, ValueNotStorableError
from tests.engine.harness import World, asked, events_of, rest, types_of, until

pytestmark = pytest.mark.timeout(30)


async def crash_and_resume(world: World, body: Any) -> Any:
    """Run to the question at its end, lose the worker, resume, answer."""
    execution = await world.start(body)
    await asked(execution)
    await world.restart()
    execution = await world.resume(execution.run_id, body)
    await world.answer(execution, True)
    return execution, await rest(execution)


def test_a_tool_runs_once_and_is_answered_after_that() -> None:
    """Identity is name and arguments; the callback takes them, or nothing; "" and None are values."""

    async def main() -> None:
        world = World()

        def upper(args: dict[str, str]) -> str:
            world.did("upper")
            return args["text"].upper()

        async def nothing() -> None:
            world.did("nothing")

        async def empty(args: Any) -> str:
            world.did("empty")
            return ""

        async def body(ctx: Context) -> list[Any]:
            got = [
                await ctx.tool("upper", {"text": "a"}, upper),
                await ctx.tool("nothing", None, nothing),
                await ctx.tool("empty", [1, 2], empty),
            ]
            await ctx.ui.confirm("Go on?", name="go")
            return got

        _, result = await crash_and_resume(world, body)
        assert result.result == ["A", None, ""]
        assert world.effects == {"upper": 1, "nothing": 1, "empty": 1}
        await world.close()

    asyncio.run(main())


def test_a_thrown_tool_failure_is_never_replayed() -> None:
    """After a restart the tool runs again, although the body went on after its failure."""

    async def main() -> None:
        world = World()

        def flaky(args: Any) -> str:
            world.did("flaky")
            if world.effects["flaky"] == 1:
                raise OSError("down")
            return "up"

        async def body(ctx: Context) -> str:
            try:
                got = await ctx.tool("flaky", 1, flaky)
            except OSError:
                got = "failed"
            await ctx.ui.confirm("Go on?", name="go")
            return got

        _, result = await crash_and_resume(world, body)
        assert result.result == "up" and world.effects["flaky"] == 2
        await world.close()

    asyncio.run(main())


def test_a_returned_failure_is_a_value_that_replays() -> None:
    """failure_mode="return" gives the outcome as data; the node stays failed, the run completes, a replay says cached."""

    async def main() -> None:
        world = World()
        seen: list[Any] = []

        def fails(args: Any) -> None:
            world.did("fails")
            raise subprocess.CalledProcessError(3, "cmd", output=b"x" * 20_000 + b"END", stderr="bad")

        def works(args: Any) -> int:
            world.did("works")
            return 5

        async def body(ctx: Context) -> None:
            seen.append(
                (
                    await ctx.tool("fails", 1, fails, failure_mode="return"),
                    await ctx.tool("works", 1, works, failure_mode="return"),
                )
            )
            await ctx.ui.confirm("Go on?", name="go")

        execution, result = await crash_and_resume(world, body)
        assert result.status == "completed" and world.effects == {"fails": 1, "works": 1}
        failure, success = seen[0]
        assert failure["ok"] is False and failure["attempts"] == 1 and failure["cached"] is False
        assert failure["error"]["name"] == "CalledProcessError" and failure["error"]["exit_code"] == 3
        assert failure["error"]["stdout"].endswith("END") and len(failure["error"]["stdout"]) <= 16 * 1024
        assert success == {"ok": True, "value": 5, "attempts": 1, "cached": False}
        assert [{**o, "cached": False} for o in seen[1]] == list(seen[0]) and all(o["cached"] for o in seen[1])
        assert events_of(execution, ev.NodeFailed)[0].retained
        await world.close()

    asyncio.run(main())


def test_the_failure_mode_is_part_of_the_key() -> None:
    """Switching between throw and return asks a record that is another."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> None:
            await ctx.tool("t", 1, lambda a: a)
            await ctx.tool("t", 1, lambda a: a, failure_mode="return")
            await ctx.tool("t", 1, lambda a: a)

        execution = await world.start(body)
        await rest(execution)
        ids = [e.node_id for e in execution.entries if e.type == "node.started"]
        assert (
            len(set(ids)) == 3 and ids[0].rpartition("#")[0] == ids[2].rpartition("#")[0] != ids[1].rpartition("#")[0]
        )
        await world.close()

    asyncio.run(main())


def test_tools_are_tried_again_only_where_that_is_allowed() -> None:
    """retries_allowed= turns max_attempts and the waits on."""

    async def main() -> None:
        clock = VirtualClock()
        world = World(clock)

        def down(args: Any) -> None:
            world.did(args)
            raise OSError("down")

        async def body(ctx: Context) -> float:
            start = clock.time()
            with pytest.raises(OSError):
                await ctx.tool("once", "once", down)
            with pytest.raises(OSError):
                await ctx.tool("thrice", "thrice", down, retries_allowed=True, interval_s=2, backoff_rate=3)
            return clock.time() - start

        result = await world.run(body)
        assert world.effects == {"once": 1, "thrice": 3} and round(result.result) == 2 + 6
        await world.close()

    asyncio.run(main())


def test_bad_options_are_refused_before_the_callback() -> None:
    """Numbers out of range, values that are not JSON, names that are none."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> None:
            for options in (
                {"timeout_s": 0},
                {"timeout_s": float("nan")},
                {"retries_allowed": True, "max_attempts": 0},
                {"failure_mode": "maybe"},
            ):
                with pytest.raises(DefinitionError):
                    ctx.tool("t", 1, lambda a: world.did("ran"), **options)
            with pytest.raises(ValueNotStorableError):
                ctx.tool("t", float("nan"), lambda a: world.did("ran"))
            with pytest.raises(DefinitionError):
                ctx.tool("", 1, lambda a: world.did("ran"))
            with pytest.raises(ValueNotStorableError, match="result"):
                await ctx.tool("nan", 1, lambda a: float("inf"))

        result = await world.run(body)
        assert result.status == "completed", result
        assert not world.effects
        await world.close()

    asyncio.run(main())


def test_a_tool_that_hangs_is_released_by_its_timeout() -> None:
    """The failure is named timeout; retries alone would not bound it."""

    async def main() -> None:
        world = World()

        async def hang(args: Any) -> None:
            await asyncio.sleep(60)

        async def body(ctx: Context) -> str:
            with pytest.raises(StepTimeout):
                await ctx.tool("hang", 1, hang, timeout_s=0.02)
            kept = await ctx.tool("hang", 2, hang, timeout_s=0.02, failure_mode="return")
            return kept["error"]["name"]

        assert (await world.run(body)).result == "StepTimeout"
        await world.close()

    asyncio.run(main())


def test_waits_and_deadlines_may_be_told_in_milliseconds() -> None:
    """Atomic's spelling: timeout_ms and interval_ms; twice the same, or no number, is refused before the callback."""

    async def main() -> None:
        world = World()

        async def hang(args: Any) -> None:
            world.did("hang")
            await asyncio.sleep(60)

        async def body(ctx: Context) -> str:
            for wrong in (
                {"timeout_ms": 5, "timeout_s": 1},
                {"timeout_ms": "5"},
                {"timeout_ms": 0},
                {"interval_ms": True},
            ):
                with pytest.raises(DefinitionError):
                    ctx.tool("wrong", 1, hang, **wrong)  # type: ignore[arg-type]
            try:
                await ctx.tool("hang", 1, hang, timeout_ms=20, retries_allowed=True, max_attempts=2, interval_ms=1)
            except StepTimeout as timeout:
                return str(timeout)
            return ""

        execution = await world.start(body)
        assert "0.02" in (await rest(execution)).result
        assert [e.delay_s for e in events_of(execution, ev.NodeRetrying)] == [0.001] and world.effects == {"hang": 2}
        await world.close()

    asyncio.run(main())


def test_a_cancelled_tool_is_not_data() -> None:
    """Cancelling the run while a return-mode tool works does not record a failure to be replayed."""

    async def main() -> None:
        world = World()

        async def hang(args: Any) -> None:
            await asyncio.sleep(60)

        async def body(ctx: Context) -> Any:
            return await ctx.tool("hang", 1, hang, failure_mode="return")

        execution = await world.start(body)
        await until(lambda: "node.started" in types_of(execution))
        await world.post(execution.run_id, ev.StopRequested())
        assert (await rest(execution)).status == "paused"
        assert "node.failed" not in types_of(execution) and "node.cancelled" in types_of(execution)
        await world.close()

    asyncio.run(main())


def test_a_callback_may_ask_about_itself() -> None:
    """current_step() and a second parameter-free callback work in tools and steps alike."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> list[Any]:
            def inside(args: Any) -> str:
                return current_step().idempotency_key

            async def inside_async() -> str:
                return current_step().idempotency_key

            return [await ctx.tool("t", 1, inside), await ctx.step("s", inside_async)]

        execution = await world.start(body)
        keys = (await rest(execution)).result
        assert len(set(keys)) == 2 and all(key.startswith(f"{execution.run_id}:") for key in keys)
        await world.close()

    asyncio.run(main())


def test_an_inline_step_is_known_by_its_name_and_place_among_its_likes() -> None:
    """ctx.step: occurrences are told apart, a schema reads the result live and replayed, a lambda may return a coroutine."""

    async def main() -> None:
        world = World()

        async def fetch(n: int) -> dict[str, str]:
            world.did(f"fetch {n}")
            return {"n": str(n)}

        async def body(ctx: Context) -> list[Any]:
            got = [await ctx.step("fetch", lambda n=n: fetch(n), schema=dict[str, int]) for n in range(3)]
            await ctx.ui.confirm("Go on?", name="go")
            return got

        execution, result = await crash_and_resume(world, body)
        assert result.result == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert set(world.effects.values()) == {1}
        ids = [e.node_id for e in execution.entries if e.type == "node.started"]
        assert ids == ["inline:fetch:#1", "inline:fetch:#2", "inline:fetch:#3"]
        await world.close()

    asyncio.run(main())


def test_processes_are_refused_for_functions_of_a_cell_and_stopped_otherwise() -> None:
    """executor="process" needs an importable function; a timeout really ends it, prints and results come back."""

    async def main() -> None:
        from tests.engine import process_steps

        world = World()

        from loom_kernel.authoring.step import step

        @step(executor="process")
        def local(n: int) -> int:
            return n

        async def body(ctx: Context) -> list[Any]:
            with pytest.raises(DefinitionError, match='executor="thread"'):
                local(1)
            got: list[Any] = [await process_steps.pid_and_sum([1, 2])]
            with pytest.raises(StepTimeout):
                await process_steps.hang()
            with pytest.raises(ZeroDivisionError):
                await process_steps.divide(1, 0)
            return got

        execution = await world.start(define(body))
        result = await rest(execution, 25)
        assert result.status == "completed", result
        import os

        [(pid, total)] = result.result
        assert total == 3 and pid != os.getpid()
        assert [line for e in events_of(execution, ev.NodeLogged) for line in e.lines] == ["adding in a process"]
        await world.close()

    asyncio.run(main())
