"""Budgets: what is counted, when a run is warned and stopped, and how it goes on. On a virtual clock; nothing sleeps."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_kernel import events as ev
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import current_step, step
from loom_kernel.authoring.workflow import define
from loom_kernel.clock import VirtualClock
from loom_kernel.engine import budgets
from loom_kernel.engine.budgets import Reading, Spent, judge, resolve
from loom_kernel.errors import WorkflowBudgetExceededError
from loom_kernel.events import RunCreated
from loom_kernel.policies import Budget, Retry
from tests.engine.harness import World, asked, events_of, rest


@step
async def ask(n: int, tokens: int = 100, cost: float = 0.1) -> int:
    current_step().usage("m", input_tokens=tokens, cost_usd=cost)
    return n


# ---------------------------------------------------------------- deciding


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_cost": -1},
        {"max_cost": float("nan")},
        {"max_cost": float("inf")},
        {"max_cost": True},
        {"max_tokens": 1.5},
        {"max_tokens": -1},
        {"max_duration_s": "60"},
        {"warn_at_percent": -0.1},
    ],
)
def test_numbers_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    """Negatives, NaN, infinity, booleans, texts, half tokens; before anything runs."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Budget(**wrong)


def test_each_field_is_resolved_by_itself() -> None:
    """The start's, then the definition's, then the project's; zero switches a dimension off, None falls through."""
    found = resolve(
        Budget(max_cost=0), Budget(max_cost=5, max_tokens=10), None, Budget(max_duration_s=60, max_tokens=99)
    )
    assert found == Budget(max_cost=0, max_tokens=10, max_duration_s=60)
    assert judge(found, Spent(cost=1e9), set()).exhausted is None


def test_a_duration_may_be_told_in_milliseconds() -> None:
    """Atomic's spelling; it is the same field, so twice is refused, and copies keep it."""
    budget = Budget(max_duration_ms=1_500, max_cost=1)
    assert budget == Budget(max_duration_s=1.5, max_cost=1) and replace(budget, max_cost=1) == budget
    for wrong in ({"max_duration_ms": 1, "max_duration_s": 1}, {"max_duration_ms": "1"}, {"max_duration_ms": -1}):
        with pytest.raises(ValueError, match="max_duration"):
            Budget(**wrong)  # type: ignore[arg-type]


def test_a_limit_is_reached_at_the_ceiling_and_warned_of_before() -> None:
    """At least the ceiling, at least the percentage, and each dimension is warned of once; 0 percent never warns."""
    budget = Budget(max_cost=1.0, max_tokens=100)
    assert judge(budget, Spent(tokens=79, cost=0.5), set()) == (None, ())
    assert judge(budget, Spent(tokens=80), set()).warnings == (Reading("tokens", 80, 100),)
    assert judge(budget, Spent(tokens=80), {"tokens"}).warnings == ()
    assert judge(budget, Spent(tokens=100), set()) == (Reading("tokens", 100, 100), ())
    assert judge(Budget(max_tokens=100, warn_at_percent=0), Spent(tokens=99), set()).warnings == ()


@given(st.lists(st.floats(0, 10), max_size=20), st.floats(0.1, 50))
def test_warnings_and_the_end_come_in_order(costs: list[float], ceiling: float) -> None:
    """Whatever is spent: at most one warning, never after the end, and the end exactly when the ceiling is reached."""
    spent, warned = 0.0, set[str]()
    for cost in costs:
        spent += cost
        verdict = judge(Budget(max_cost=ceiling), Spent(cost=spent), warned)
        assert (verdict.exhausted is not None) == (spent >= ceiling)
        assert not (verdict.exhausted and verdict.warnings)
        assert len(verdict.warnings) <= (0 if warned else 1)
        warned |= {w.dimension for w in verdict.warnings}


# ---------------------------------------------------------------- in a run


def test_a_spent_budget_blocks_the_run_softly() -> None:
    """After the step that reached it, which is kept; the body hears of it, and cannot go on by catching it."""

    async def main() -> None:
        world = World()
        heard: list[str] = []

        async def body(ctx: Context) -> str:
            for n in range(5):
                try:
                    await ask(n)
                except WorkflowBudgetExceededError as error:
                    heard.append(str(error))
            return "done"

        execution = await world.start(define(body, budget=Budget(max_tokens=300)))
        result = await rest(execution)
        assert (result.status, result.reason) == ("blocked", "budget")
        assert result.result == {
            "status": "budget_exceeded", "dimension": "tokens", "reading": 300, "ceiling": 300, "percent": 100.0,
            "frontier_stage": "ask",
        }  # fmt: skip
        assert isinstance(result.error, WorkflowBudgetExceededError)
        assert len(heard) >= 1 and set(heard) == {
            "the budget is spent at 'ask': 300 of 300 tokens. Resume the run with a larger one to go on from here."
        }
        assert len(events_of(execution, ev.NodeCompleted)) == 3
        ended = events_of(execution, ev.RunEnded)[0]
        assert (ended.status, ended.reason, ended.resumable) == ("blocked", "budget", True)
        await world.close()

    asyncio.run(main())


def test_it_is_resumed_with_a_larger_budget_and_what_was_spent_stays_spent() -> None:
    """With the same one it is blocked again at once; a larger one carries it on; recorded steps cost nothing again."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> int:
            return sum([await ask(n) for n in range(5)])

        definition = define(body, budget=Budget(max_cost=0.25))
        execution = await world.start(definition)
        assert (await rest(execution)).status == "blocked"
        run_id = execution.run_id
        await world.restart()
        again = await rest(await world.resume(run_id, definition))
        assert (again.status, again.reason) == ("blocked", "budget")
        execution = await world.resume(run_id, definition, budget=Budget(max_cost=0.45))
        assert (await rest(execution)).result["reading"] == pytest.approx(0.5)
        await world.restart()
        execution = await world.resume(run_id, definition, budget=Budget(max_cost=0))
        result = await rest(execution)
        assert (result.status, result.result) == ("completed", 10)
        assert execution.ledger.cost == pytest.approx(0.5)
        assert len(events_of(execution, ev.ModelCalled)) == 5
        await world.close()

    asyncio.run(main())


def test_a_raised_budget_is_remembered() -> None:
    """A later resume that says nothing keeps the limits of the one before it."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> int:
            for n in range(4):
                await ask(n)
            await ctx.ui.confirm("Go on?", name="go")
            return 1

        definition = define(body, budget=Budget(max_tokens=200))
        execution = await world.start(definition)
        await rest(execution)
        execution = await world.resume(execution.run_id, definition, budget=Budget(max_tokens=1000))
        await asked(execution)
        await world.restart()
        execution = await world.resume(execution.run_id, definition)
        await world.answer(execution, True)
        assert (await rest(execution)).status == "completed"
        await world.close()

    asyncio.run(main())


def test_a_start_may_bring_its_own_budget() -> None:
    """It counts before the definition's, and after a restart too."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> int:
            for n in range(3):
                await ask(n)
            await ctx.ui.confirm("Go on?", name="go")
            return await ask(9)

        definition = define(body, budget=Budget(max_tokens=100))
        created = RunCreated(workflow=definition.name, budget=budgets.to_record(Budget(max_tokens=400)))
        execution = await world.engine.start(definition, {}, created)
        await asked(execution)
        await world.restart()
        execution = await world.resume(execution.run_id, definition)
        await world.answer(execution, True)
        result = await rest(execution)
        assert (result.status, result.result["ceiling"]) == ("blocked", 400)
        await world.close()

    asyncio.run(main())


def test_each_dimension_is_warned_of_once() -> None:
    """Also over a restart."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> int:
            for n in range(9):
                await ask(n)
                if n == 8:
                    await ctx.ui.confirm("Go on?", name="go")
            return 1

        definition = define(body, budget=Budget(max_tokens=1000, max_cost=1.2, warn_at_percent=50))
        execution = await world.start(definition)
        await asked(execution)
        await world.restart()
        execution = await world.resume(execution.run_id, definition)
        await world.answer(execution, True)
        await rest(execution)
        warned = [(w.dimension, w.reading) for w in events_of(execution, ev.BudgetWarned)]
        assert warned == [("tokens", 500), ("cost", pytest.approx(0.6))]
        await world.close()

    asyncio.run(main())


def test_failed_tries_are_paid_for() -> None:
    """A model that answered badly has cost what it cost."""

    async def main() -> None:
        world = World(VirtualClock())

        @step(retry=Retry(max_attempts=3, interval_s=1, jitter=False))
        async def shaky() -> int:
            me = current_step()
            me.usage("m", input_tokens=50, output_tokens=10, cached_tokens=20)
            if me.attempt < 3:
                raise OSError("nonsense")
            return me.attempt

        async def body(ctx: Context) -> int:
            return await shaky()

        execution = await world.start(define(body))
        assert (await rest(execution)).result == 3
        assert [e.attempt for e in events_of(execution, ev.ModelCalled)] == [1, 2, 3]
        assert execution.ledger.tokens == 3 * 40
        await world.close()

    asyncio.run(main())


def test_duration_leaves_rests_out_and_carries_over_restarts() -> None:
    """Two stretches of a minute with a day between them are two minutes."""

    async def main() -> None:
        clock = VirtualClock()
        world = World(clock)

        async def body(ctx: Context) -> str:
            await ctx.sleep("first", 60)
            await ask(0)
            await ctx.ui.confirm("Go on?", name="go")
            await ctx.sleep("second", 50)
            await ask(1)
            await ctx.sleep("third", 20)
            await ask(2)
            return "done"

        definition = define(body, budget=Budget(max_duration_s=115))
        execution = await world.start(definition)
        await asked(execution)
        await world.post(execution.run_id, ev.StopRequested(by="ann"))
        assert (await rest(execution)).status == "paused"
        await clock.sleep(86_400)
        await world.restart()
        execution = await world.resume(execution.run_id, definition)
        await world.answer(execution, True)
        result = await rest(execution)
        assert (result.status, result.result["dimension"]) == ("blocked", "duration")
        assert 129 < result.result["reading"] < 132
        await world.close()

    asyncio.run(main())


# ---------------------------------------------------------------- children


def test_a_childs_spending_counts_above_and_its_own_limit_stops_only_it() -> None:
    """It comes back as an exit, the parent goes on; the parent's account has it once, also after a restart."""

    async def main() -> None:
        world = World()

        async def greedy(ctx: Context) -> int:
            for n in range(10):
                await ask(n)
            return 1

        child = define(greedy, budget=Budget(max_tokens=300))

        async def body(ctx: Context) -> Any:
            got = await ctx.workflow(child)
            await ctx.ui.confirm("Go on?", name="go")
            await ask(99)
            return (got.status, got.exited, got.exit_reason)

        definition = define(body, budget=Budget(max_tokens=1000))
        execution = await world.start(definition)
        await asked(execution)
        assert execution.ledger.tokens == 300
        await world.restart()
        execution = await world.resume(execution.run_id, definition)
        assert execution.ledger.tokens == 300
        await world.answer(execution, True)
        result = await rest(execution)
        assert (result.status, result.result) == ("completed", ("blocked", True, "budget"))
        assert execution.ledger.tokens == 400
        await world.close()

    asyncio.run(main())


def test_the_outermost_budget_stops_the_family_and_the_child_goes_on_later() -> None:
    """The child is not cancelled: after the raise it finishes what it had begun, and nothing of it is paid twice."""

    async def main() -> None:
        world = World()

        async def inner(ctx: Context) -> int:
            return sum([await ask(n) for n in range(5)])

        child = define(inner)

        async def body(ctx: Context) -> int:
            return (await ctx.workflow(child)).result  # type: ignore[no-any-return]

        definition = define(body, budget=Budget(max_tokens=300))
        execution = await world.start(definition)
        result = await rest(execution)
        assert (result.status, result.result["frontier_stage"]) == ("blocked", "ask")
        await world.restart()
        execution = await world.resume(execution.run_id, definition, budget=Budget(max_tokens=900))
        result = await rest(execution)
        assert (result.status, result.result) == ("completed", 10)
        assert execution.ledger.tokens == 500
        await world.close()

    asyncio.run(main())


def test_a_call_may_give_its_child_a_budget() -> None:
    """Before the child's own."""

    async def main() -> None:
        world = World()

        async def inner(ctx: Context) -> int:
            return sum([await ask(n) for n in range(5)])

        child = define(inner, budget=Budget(max_tokens=10_000))

        async def body(ctx: Context) -> Any:
            got = await ctx.workflow(child, budget=Budget(max_tokens=200))
            return (got.status, got.result["reading"])

        assert (await world.run(body)).result == ("blocked", 200)
        await world.close()

    asyncio.run(main())


def test_branches_share_one_soft_landing() -> None:
    """A stage that is at work is told to wrap up, once, however many calls find the budget spent at the same moment."""

    async def main() -> None:
        world = World()
        told: list[str] = []
        done = asyncio.Event()

        async def wrap_up(text: str) -> dict[str, Any]:
            told.append(text)
            await asyncio.sleep(0)
            return {"summary": "half of it", "usage": {"tokens": 7}}

        async def body(ctx: Context) -> list[int]:
            return list(await asyncio.gather(*(ask(n) for n in range(10))))

        execution = await world.start(define(body, budget=Budget(max_tokens=300)))
        execution.wrap_ups["stage"] = wrap_up
        result = await rest(execution)
        done.set()
        assert result.status == "blocked"
        assert told == [budgets.WRAP_UP]
        assert (result.result["wrap_up_summary"], result.result["wrap_up_usage"]) == ("half of it", {"tokens": 7})
        assert [e.type for e in execution.entries].count("run.ended") == 1
        await world.close()

    asyncio.run(main())


def test_an_author_cannot_forge_the_stop() -> None:
    """A body that returns what a spent budget looks like has completed."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> dict[str, str]:
            return {"status": "budget_exceeded"}

        result = await world.run(body)
        assert (result.status, result.reason) == ("completed", None)
        await world.close()

    asyncio.run(main())
