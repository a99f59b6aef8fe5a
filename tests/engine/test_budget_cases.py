"""Budgets where it is easy to be wrong: crashes, children, what a body does about the error. Nothing sleeps."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from loom_kernel import events as ev
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import StepHandle, current_step, step
from loom_kernel.authoring.workflow import define
from loom_kernel.clock import VirtualClock
from loom_kernel.errors import OutputError, ParallelFailure, WorkflowBudgetExceededError
from loom_kernel.policies import Budget
from loom_kernel.views.run import RunView
from loom_kernel.views.snapshot import shoot
from loom_kernel.views.text import plain, static_html
from tests.engine.harness import World, asked, events_of, nodes, rest


class Said(BaseModel):
    status: str
    summary: str = ""


class Report(BaseModel):
    rows: int
    title: str = ""


@step
async def ask(n: int, tokens: int = 100) -> int:
    current_step().usage("m", input_tokens=tokens)
    return n


# ---------------------------------------------------------------- duration


def test_item_9_time_before_a_crash_counts_and_the_time_after_it_does_not() -> None:
    """A worker that died has run up to the last that it wrote; neither the days until somebody comes back, nor what
    others post meanwhile, nor the taking of the lease make its stretch longer, however often that happens."""

    async def main() -> None:
        clock = VirtualClock()
        world = World(clock)

        async def body(ctx: Context) -> str:
            await ctx.sleep("first", 60)
            await ask(0)
            await ctx.ui.confirm("Go on?", name="go")
            await ctx.sleep("second", 30)
            await ask(1)
            return "done"

        definition = define(body, budget=Budget(max_duration_s=100_000))
        execution = await world.start(definition)
        await asked(execution)
        for _ in range(3):
            await world.restart()  # as a crash: nothing is written
            await clock.sleep(86_400)
            await world.post(execution.run_id, ev.MessagePosted(name="hello"))
            await clock.sleep(60)
            execution = await world.resume(execution.run_id, definition)
            assert 59 < execution.ledger.spent.duration < 62
        await world.answer(execution, True)
        assert (await rest(execution)).status == "completed"
        assert 89 < execution.ledger.spent.duration < 93
        await world.close()

    asyncio.run(main())


def test_item_9_a_rest_between_two_stretches_is_not_counted_twice() -> None:
    """Stopped twice, with a day in between each: what was executed, once."""

    async def main() -> None:
        clock = VirtualClock()
        world = World(clock)

        async def body(ctx: Context) -> int:
            for n in range(3):
                await ctx.sleep(f"nap{n}", 10)
                await ask(n)
                await ctx.ui.confirm("Go on?", name=f"go{n}")
            return 1

        definition = define(body, budget=Budget(max_duration_s=1000))
        execution = await world.start(definition)
        for n in range(3):
            await asked(execution, f"go{n}")
            await world.post(execution.run_id, ev.StopRequested(by="ann"))
            await rest(execution)
            await clock.sleep(86_400)
            await world.restart()
            execution = await world.resume(execution.run_id, definition)
            assert 10 * (n + 1) - 1 < execution.ledger.spent.duration < 10 * (n + 1) + 2
            await world.answer(execution, True, f"go{n}")
        assert (await rest(execution)).status == "completed"
        await world.close()

    asyncio.run(main())


# ---------------------------------------------------------------- the stop and the body


def test_item_46_a_stop_between_branches_leaves_a_run_that_rests_and_an_exact_frontier() -> None:
    """Every branch kept its result before the stop: nothing is left running, and a resume does only what was not begun."""

    async def main() -> None:
        world = World()
        heard: list[type[BaseException]] = []

        async def body(ctx: Context) -> list[int]:
            try:
                first = await ctx.parallel([ask(n) for n in range(3)], fail_fast=False)
            except Exception as error:
                heard.append(type(error))
                raise
            return [*first, await ask(9)]

        definition = define(body, budget=Budget(max_tokens=100))
        execution = await world.start(definition)
        result = await rest(execution)
        assert result.result is not None
        assert (result.status, result.reason, result.result["frontier_stage"]) == ("blocked", "budget", "ask")
        assert execution.live == {}
        kept = len(nodes(execution, ev.NodeCompleted))
        await world.restart()
        execution = await world.resume(execution.run_id, definition, budget=Budget(max_tokens=0))
        result = await rest(execution)
        assert (result.status, result.result) == ("completed", [0, 1, 2, 9])
        assert kept >= 1 and len(events_of(execution, ev.ModelCalled)) == 4
        assert ParallelFailure not in heard
        await world.close()

    asyncio.run(main())


def test_item_47_a_child_that_says_budget_is_not_a_spent_budget() -> None:
    """Its declared output ``status`` is blocked and its reason reads "budget": its parent hears of a blocked child."""

    async def main() -> None:
        world = World()

        async def inner(ctx: Context) -> Said:
            return Said(status="blocked", summary="budget")

        child = define(inner)

        async def body(ctx: Context) -> str:
            try:
                await ctx.workflow(child)
            except Exception as error:
                return type(error).__name__
            return "an exit"

        assert (await world.run(body)).result == "ChildWorkflowError"
        await world.close()

    asyncio.run(main())


def test_item_48_a_childs_body_cannot_catch_the_stop_of_the_whole() -> None:
    """It returns as if nothing was; it rests with its parent all the same, and goes on with it after the raise."""

    async def main() -> None:
        world = World()

        async def inner(ctx: Context) -> int:
            total = 0
            for n in range(5):
                try:
                    total += await ask(n)
                except WorkflowBudgetExceededError:
                    return -1
            return total

        child = define(inner)

        async def middle(ctx: Context) -> int:
            try:
                return int((await ctx.workflow(child)).result)
            except Exception:
                return -2

        between = define(middle)

        async def body(ctx: Context) -> int:
            return int((await ctx.workflow(between)).result)

        definition = define(body, budget=Budget(max_tokens=300))
        execution = await world.start(definition)
        assert (await rest(execution)).status == "blocked"
        statuses = {s.workflow: s.status for s in await world.journal.list_runs(roots_only=False)}
        assert statuses == {"body": "blocked", "middle": "paused", "inner": "paused"}
        await world.restart()
        execution = await world.resume(execution.run_id, definition, budget=Budget(max_tokens=900))
        result = await rest(execution)
        assert (result.status, result.result) == ("completed", 10)
        assert execution.ledger.tokens == 500
        await world.close()

    asyncio.run(main())


def test_item_48_each_dimension_is_warned_of_once_also_for_a_parent_of_many_children() -> None:
    """Whoever of the family finds it; the children have no limit of their own, and none of them is warned."""

    async def main() -> None:
        world = World()

        async def inner(ctx: Context, n: int) -> int:
            return await ask(n)

        child = define(inner)

        async def body(ctx: Context) -> None:
            await asyncio.gather(*(ctx.workflow(child, inputs={"n": n}) for n in range(9)))

        execution = await world.start(define(body, budget=Budget(max_tokens=1000, warn_at_percent=50)))
        assert (await rest(execution)).status == "completed"
        assert [w.dimension for w in events_of(execution, ev.BudgetWarned)] == ["tokens"]
        assert execution.ledger.tokens == 900
        await world.close()

    asyncio.run(main())


def test_a_stop_that_nobody_waits_for_any_more_is_one() -> None:
    """The body gives the call that found it only a moment, and returns: the run is blocked."""

    async def main() -> None:
        world = World()
        told = asyncio.Event()

        async def wrap_up(text: str) -> dict[str, Any]:
            told.set()
            await asyncio.sleep(0.01)
            return {"summary": "s"}

        async def body(ctx: Context) -> str:
            try:
                task = asyncio.ensure_future(ask(0))
                await told.wait()
                task.cancel()
                await task
            except asyncio.CancelledError:
                pass
            await asyncio.sleep(0.1)
            return "done"

        execution = await world.start(define(body, budget=Budget(max_tokens=100)))
        execution.wrap_ups["stage"] = wrap_up
        assert (await rest(execution)).status == "blocked"
        await world.close()

    asyncio.run(main())


def test_a_stage_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    """Nor one that fails, nor one that says what cannot be kept: then the run is stopped without a summary."""

    async def main() -> None:
        async def silent(text: str) -> dict[str, Any]:
            await asyncio.Event().wait()
            return {}

        async def broken(text: str) -> dict[str, Any]:
            raise OSError("gone")

        async def strange(text: str) -> dict[str, Any]:
            return {"summary": object()}

        async def body(ctx: Context) -> int:
            return await ask(0)

        for wrap_up in (silent, broken, strange):
            world = World(VirtualClock())
            execution = await world.start(define(body, budget=Budget(max_tokens=100)))
            execution.wrap_ups["stage"] = wrap_up
            result = await rest(execution)
            assert result.status == "blocked" and "wrap_up_summary" not in (result.result or {})
            await world.close()

    asyncio.run(main())


def test_a_childs_own_stop_leaves_the_stages_of_others_alone() -> None:
    """It is told to wrap up what is at work in itself and below; a stage of its parent goes on."""

    async def main() -> None:
        world = World()
        told: list[str] = []

        async def inner(ctx: Context) -> int:
            return await ask(0)

        child = define(inner, budget=Budget(max_tokens=100))

        async def body(ctx: Context) -> str:
            return (await ctx.workflow(child)).status

        async def wrap_up(text: str) -> dict[str, Any]:
            told.append(text)
            return {}

        execution = await world.start(define(body))
        execution.wrap_ups["stage"] = wrap_up
        assert (await rest(execution)).result == "blocked"
        assert told == []
        await world.close()

    asyncio.run(main())


def test_the_first_exit_counts_also_before_a_spent_budget() -> None:
    """A call that finishes after ``ctx.exit`` finds the budget spent: the exit was first."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> None:
            other = asyncio.ensure_future(ask(0))
            try:
                ctx.exit("skipped", reason="enough")
            finally:
                await asyncio.gather(other, return_exceptions=True)

        result = await world.run(define(body, budget=Budget(max_tokens=100)))
        assert (result.status, result.exit_reason) == ("skipped", "enough")
        await world.close()

    asyncio.run(main())


# ---------------------------------------------------------------- what is counted


def test_a_cancelled_childs_spending_is_kept() -> None:
    """Its parent gave up on it; what it cost is cost, also after a restart."""

    async def main() -> None:
        world = World()
        asked_once = asyncio.Event()

        async def inner(ctx: Context) -> None:
            await ask(0)
            asked_once.set()
            await ctx.ui.confirm("Never?", name="never")

        child = define(inner)

        async def body(ctx: Context) -> int:
            task = asyncio.ensure_future(ctx.workflow(child))
            if not ctx.replaying:  # type: ignore[attr-defined]
                await asked_once.wait()
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await ctx.ui.confirm("Go on?", name="go")
            return 1

        definition = define(body, budget=Budget(max_tokens=1000))
        execution = await world.start(definition)
        await asked(execution, "go")
        [cancelled] = events_of(execution, ev.NodeCancelled)
        assert (cancelled.tokens, execution.ledger.tokens) == (100, 100)
        await world.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "wrong",
    [
        {"input_tokens": -1},
        {"output_tokens": 1.5},
        {"cached_tokens": True},
        {"cost_usd": float("nan")},
        {"cost_usd": -0.1},
        {"cost_usd": "1"},
        {"model": None},
    ],
)
def test_a_usage_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    """One NaN would make the account worthless."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        StepHandle().usage(**{"model": "m", **wrong})


def test_outputs_of_an_exit_fit_their_declaration() -> None:
    """Each value as strictly as a whole output; what is no mapping is refused in a sentence."""

    async def main() -> None:
        world = World()

        def leaves(outputs: Any) -> Any:
            async def body(ctx: Context) -> Report:
                ctx.exit("blocked", outputs=outputs)

            return body

        for outputs, sentence in (({"rows": "3"}, "rows"), ([1], "takes names and values, not a list")):
            result = await world.run(leaves(outputs))
            assert result.status == "failed" and isinstance(result.error, OutputError)
            assert sentence in str(result.error)
        result = await world.run(leaves({"rows": 3}))
        assert (result.status, result.result) == ("blocked", {"rows": 3})
        await world.close()

    asyncio.run(main())


def test_the_views_top_line_says_what_models_cost() -> None:
    """Its children's with it; the text that nbval compares says nothing of it."""

    async def main() -> None:
        world = World()

        @step
        async def dear() -> None:
            current_step().usage("m", input_tokens=100, cost_usd=0.25)

        async def inner(ctx: Context) -> None:
            await dear()

        child = define(inner)

        async def body(ctx: Context) -> None:
            await ctx.workflow(child)
            await dear()

        execution = await world.start(define(body))
        await rest(execution)
        view = RunView(execution.run_id)
        for entry in execution.entries:
            view.apply(entry)
        assert (view.tokens, view.cost_usd) == (200, 0.5)
        assert shoot(view, world.clock.time()).spent == "$0.50"
        assert "$0.50" in static_html(view) and "$0.50" not in plain(view)
        await world.close()

    asyncio.run(main())
