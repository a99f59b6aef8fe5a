"""``await run(defn, inputs, answers={...})``: a workflow in a three-line test."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from loom_kernel.authoring.context import Context
from loom_kernel.authoring.registry import registry
from loom_kernel.authoring.step import step
from loom_kernel.authoring.workflow import WorkflowDefinition, workflow
from loom_kernel.errors import AnswerError, InputError, NeedsAnswer
from loom_kernel.policies import Retry
from loom_kernel.testing import run

tries: list[int] = []


@step(retry=Retry(max_attempts=3, interval_s=60, jitter=False))
def shaky() -> int:
    tries.append(1)
    if len(tries) < 3:
        raise OSError("not yet")
    return len(tries)


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test defines and counts is forgotten."""
    monkeypatch.setattr(registry, "_definitions", {})
    tries.clear()


@pytest.fixture
def trip() -> WorkflowDefinition[Any, Any]:
    """Retries, sleeps an hour, asks."""

    @workflow
    async def trip(ctx: Context, name: str) -> str:
        await shaky()
        await ctx.sleep("a while", 3600)
        if not await ctx.ui.confirm("Go on?", name="go"):
            ctx.exit("skipped", reason="declined")
        return f"hello {name}"

    return trip


def test_answers_sleeps_and_retries_take_no_time(trip: WorkflowDefinition[Any, str]) -> None:
    """The clock jumps to the next timer; steps run for real."""
    start = time.monotonic()
    result = asyncio.run(run(trip, {"name": "you"}, answers={"go": "yes"}))
    assert (result.status, result.result) == ("completed", "hello you")
    assert len(tries) == 3
    assert time.monotonic() - start < 5


def test_outcomes_are_returned_not_raised(trip: WorkflowDefinition[Any, str]) -> None:
    """Also from within a loop that runs already, and twice."""

    async def main() -> list[str]:
        declined = await run(trip, {"name": "you"}, answers={"g*": False})
        return [declined.status, str(declined.exit_reason)]

    assert asyncio.run(main()) == ["skipped", "declined"]

    @workflow
    async def failing(ctx: Context) -> None:
        raise ValueError("no")

    result = asyncio.run(run(failing))
    assert (result.status, str(result.error)) == ("failed", "no")


def test_a_question_without_an_answer_says_so(trip: WorkflowDefinition[Any, str]) -> None:
    """Instead of waiting for ever."""
    with pytest.raises(NeedsAnswer, match="asks 'go'"):
        asyncio.run(run(trip, {"name": "you"}))


def test_an_answer_that_nobody_asked_for_says_so(trip: WorkflowDefinition[Any, str]) -> None:
    """A test that believes in a question which is gone is wrong."""
    with pytest.raises(AnswerError, match=r"nothing asked for .*never"):
        asyncio.run(run(trip, {"name": "you"}, answers={"go": True, "never": 1}))


def test_wrong_inputs_raise(trip: WorkflowDefinition[Any, str]) -> None:
    """Before anything runs."""
    with pytest.raises(InputError, match="missing"):
        asyncio.run(run(trip))
    assert tries == []
