"""The walk along a chain of models: waits on a clock, what each candidate cost, and when it is left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loom_kernel import events as ev
from loom_kernel.agents.asking import RetrySettings
from loom_kernel.agents.model import ModelFailure
from loom_kernel.agents.scripted import script
from loom_kernel.authoring.context import Context
from loom_kernel.errors import StageFailed
from tests.agents.harness import ModelWorld
from tests.engine.harness import events_of, rest


def failed(code: Any, **given: Any) -> ModelFailure:
    return ModelFailure(code, "no", **given)


def test_waits_double_up_to_a_ceiling_and_a_providers_own_wish_goes_before() -> None:
    """None says: not with this candidate."""
    retry = RetrySettings(max_attempts=5, base_s=2.0, max_s=9.0, patience_s=60.0)
    assert [retry.wait(n, failed("timeout"), 1.0) for n in range(1, 6)] == [2.0, 4.0, 8.0, 9.0, None]
    assert retry.wait(1, failed("timeout"), 0.8) == 1.6
    assert retry.wait(1, failed("rate_limited", retry_after_s=30.0), 1.0) == 30.0
    assert retry.wait(1, failed("rate_limited", retry_after_s=61.0), 1.0) is None
    assert RetrySettings(enabled=False).wait(1, failed("timeout"), 1.0) is None
    for code in ("invalid_api_key", "quota_limited", "unknown_model", "context_overflow", "refused", "schema"):
        assert retry.wait(1, failed(code), 1.0) is None


def two(ctx: Context) -> Any:
    """A stage with a fallback."""
    return ctx.task("t", prompt="x", model="scripted/one", fallback_models=["scripted/two"])


async def _body(ctx: Context) -> Any:
    found = await two(ctx)
    return [found.text, found.model_attempts]


@pytest.mark.parametrize(
    ("replies", "asked", "waited"),
    [
        ([{"error": "rate_limited", "retry_after_s": 20.0}, "late"], 2, 20.0),
        ([{"error": "rate_limited", "retry_after_s": 100.0}], 1, 0.0),
        ([{"error": "quota_limited", "retry_after_s": 1.0}], 1, 0.0),
        ([{"error": "context_overflow"}], 1, 0.0),
        ([{"error": "invalid_api_key"}], 1, 0.0),
    ],
)
def test_a_candidate_is_waited_for_only_as_long_as_there_is_patience(
    replies: list[Any], asked: int, waited: float
) -> None:
    """Otherwise the next one is asked at once."""

    async def main() -> None:
        world = ModelWorld()
        with script("one", replies) as one, script("two", ["next"]):
            began = world.clock.monotonic()
            result = (await rest(await world.start(_body))).result
            took = world.clock.monotonic() - began
        assert result[0] == ("late" if asked == 2 else "next")
        assert len(one.requests) == asked
        assert took == pytest.approx(waited, abs=0.5)
        await world.close()

    asyncio.run(main())


def test_retries_that_are_switched_off_go_to_the_next_at_once() -> None:
    """``[retry] enabled = false``."""

    async def main() -> None:
        world = ModelWorld(retry=RetrySettings(enabled=False))
        with script("one", [{"error": "timeout"}]) as one, script("two", ["next"]):
            assert (await world.run(_body)).result[0] == "next"
        assert len(one.requests) == 1
        await world.close()

    asyncio.run(main())


def test_what_a_failed_answer_was_billed_is_its_candidates() -> None:
    """Also of one that was tried again, and counted in the budget."""

    async def main() -> None:
        world = ModelWorld()
        used = {"input_tokens": 10, "output_tokens": 1, "cost_usd": 0.25}
        broken = {"text": "half of", "error": "provider_unavailable", "usage": used}
        with script("one", [broken, {"error": "timeout"}, broken]), script("two", [{"text": "yes", "usage": used}]):
            execution = await world.start(_body)
            _, (first, second) = (await rest(execution)).result
        assert (first.success, first.usage.turns, first.usage.input, first.usage.cost) == (False, 2, 20, 0.5)
        assert (second.success, second.usage.turns, second.usage.input) == (True, 1, 10)
        assert sum(e.cost_usd for e in events_of(execution, ev.ModelCalled)) == 0.75
        assert execution.ledger.tokens == 33
        await world.close()

    asyncio.run(main())


def test_spec_5_32_the_wait_that_is_told_is_that_of_the_failure_that_decides() -> None:
    """A rate limit and a fallback whose key expired: the run is blocked, and knows when to come back."""

    async def main() -> None:
        world = ModelWorld()
        limit = {"error": "rate_limited", "retry_after_s": 300.0}
        with script("one", [limit]), script("two", [{"error": "invalid_api_key"}]):
            result = await rest(await world.start(_body))
        assert (result.status, result.reason) == ("blocked", "rate_limit")
        assert isinstance(result.error, StageFailed)
        assert (result.error.code, result.error.retry_after_s) == ("rate_limited", 300.0)
        await world.close()

    asyncio.run(main())


def test_a_refusal_ends_the_chain() -> None:
    """Nobody goes and asks another model for what one has refused."""

    async def main() -> None:
        world = ModelWorld()
        with script("one", [{"text": "x", "finish": "content_filter"}]), script("two", []) as other:
            result = await world.run(_body)
        assert (result.status, other.requests) == ("failed", [])
        assert isinstance(result.error, StageFailed)
        assert result.error.code == "refused"
        await world.close()

    asyncio.run(main())


def test_a_cancel_while_a_candidate_is_waited_for_asks_nobody_more() -> None:
    """Neither it nor the next."""

    async def main() -> None:
        world = ModelWorld(retry=RetrySettings(base_s=30.0, max_s=30.0))
        with script("one", [{"error": "timeout", "times": "always"}]) as one, script("two", []) as other:

            async def body(ctx: Context) -> Any:
                call = asyncio.ensure_future(two(ctx))
                while not any(event["type"] == "retry" for _, _, event in world.events):  # noqa: ASYNC110
                    await asyncio.sleep(0)
                await ctx.exit(status="cancelled")
                await call

            result = await world.run(body)
        assert result.status == "cancelled"
        assert (len(one.requests), other.requests) == (1, [])
        await world.close()

    asyncio.run(main())


def test_an_attempt_says_the_level_that_the_model_has() -> None:
    """Not the one that was wished of a model that does not reason; its failures are told of the same candidate."""

    async def main() -> None:
        world = ModelWorld()

        async def body(ctx: Context) -> Any:
            found = await ctx.task("t", prompt="x", model="local/nobody:high", fallback_models=["scripted/two:max"])
            return [(a.model, a.success, a.reasoning_level) for a in found.model_attempts]

        with script("two", ["yes"]):
            result = (await world.run(body)).result
        assert result == [("local/nobody", False, None), ("scripted/two", True, "max")]
        await world.close()

    asyncio.run(main())
