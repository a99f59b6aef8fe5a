"""The callbacks of ``run()``."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import step
from loom_kernel.authoring.workflow import WorkflowDefinition, workflow
from loom_kernel.errors import DefinitionError
from loom_kernel.policies import Retry
from loom_kernel.runtime import Runtime, api
from loom_kernel.views.node import NodeView
from loom_kernel.views.run import RunView

tries: list[int] = []


@step(retry=Retry(max_attempts=2, interval_s=0.01))
def shaky(x: int) -> int:
    tries.append(x)
    if len(tries) == 1:
        raise ValueError("once")
    return x


@step
def broken() -> None:
    raise ValueError("no good")


class Told:
    """Writes down what the callbacks hear."""

    def __init__(self) -> None:
        self.lines: list[tuple[Any, ...]] = []
        self.threads: set[str] = set()

    def on_run_start(self, run: RunView) -> None:
        self.lines.append(("start", run.workflow, run.status))
        self.threads.add(threading.current_thread().name)

    async def on_stage_start(self, run_id: str, node: NodeView) -> None:
        self.lines.append(("begins", node.name, node.kind))

    def on_stage_end(self, run_id: str, node: NodeView) -> None:
        self.lines.append(("ends", node.name, node.status))

    def on_run_end(self, run_id: str, status: str, result: Any, error: str | None, reason: str | None) -> None:
        self.lines.append(("end", status, result, error, reason))

    def all(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("on_run_start", "on_stage_start", "on_stage_end", "on_run_end")}

    def at_end(self) -> list[tuple[Any, ...]]:
        until(lambda: any(line[0] == "end" for line in self.lines))
        return self.lines


def until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def fresh_tries() -> None:
    tries.clear()


def test_callbacks_hear_the_run_and_its_nodes_in_order(runtime: Runtime, fresh_tries: None) -> None:
    """Each node begins and ends once, however often it was tried; sync ones are called off the loop's thread."""

    @workflow
    async def counted(ctx: Context, x: int) -> int:
        return await shaky(x) + await ctx.tool("more", {}, lambda: 1)

    told = Told()
    assert api.run(counted, {"x": 4}, **told.all()).wait(timeout=20).result == 5
    assert told.at_end() == [
        ("start", "counted", "running"),
        ("begins", "shaky", "step"),
        ("ends", "shaky", "completed"),
        ("begins", "more", "tool"),
        ("ends", "more", "completed"),
        ("end", "completed", 5, None, None),
    ]
    assert len(tries) == 2
    assert "loom" not in told.threads


def test_callbacks_hear_failures_and_the_reason_of_an_exit(runtime: Runtime) -> None:
    """A failed run's error comes as text, an exit's reason as it was given."""

    @workflow
    async def fails(ctx: Context) -> None:
        await broken()

    @workflow
    async def leaves(ctx: Context) -> None:
        ctx.exit("skipped", reason="nothing to do")

    told, other = Told(), Told()
    api.run(fails, **told.all()).settle(timeout=20)
    api.run(leaves, **other.all()).settle(timeout=20)
    assert told.at_end()[-2:] == [("ends", "broken", "failed"), ("end", "failed", None, "no good", None)]
    assert other.at_end() == [("start", "leaves", "running"), ("end", "skipped", None, None, "nothing to do")]


def test_callbacks_are_told_on_after_a_pause(runtime: Runtime) -> None:
    """A stopped run that is resumed here goes on telling; what was told is not told again."""

    @workflow
    async def asks(ctx: Context) -> bool:
        return await ctx.ui.confirm("Go on?", name="go")

    told = Told()
    run = api.run(asks, **told.all())
    until(lambda: run.prompts())
    run.stop()
    run.settle(timeout=20)
    run.resume()
    until(lambda: run.prompts())
    run.answer(True)
    run.wait(timeout=20)
    assert told.at_end() == [
        ("start", "asks", "running"),
        ("begins", "go", "prompt"),
        ("ends", "go", "completed"),
        ("end", "completed", True, None, None),
    ]


def test_a_node_that_a_cancelled_run_leaves_has_ended(runtime: Runtime) -> None:
    """Before the run's end is told, each node that began is told to be over."""

    @workflow
    async def sleeps(ctx: Context) -> None:
        await ctx.sleep("long", 3_600)

    told = Told()
    run: Any = api.run(sleeps, **told.all())
    until(lambda: len(told.lines) == 2)
    run.cancel()
    run.settle(timeout=20)
    assert [line[:3] for line in told.at_end()][-2:] == [("ends", "long", "cancelled"), ("end", "cancelled", None)]


def test_a_callback_that_raises_harms_nothing(
    runtime: Runtime, fresh_tries: None, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, the others are called, and the run completes."""

    @workflow
    async def fine(ctx: Context) -> int:
        return await ctx.tool("one", {}, lambda: 1)

    def bad(*_: Any) -> None:
        raise RuntimeError("mine")

    told = Told()
    with caplog.at_level(logging.ERROR, logger="loom_kernel"):
        run = api.run(fine, **{**told.all(), "on_stage_start": bad})
        assert run.wait(timeout=20).result == 1
        assert told.at_end()[-1] == ("end", "completed", 1, None, None)
    assert "a callback of run() failed" in caplog.text


def test_wrong_callbacks_and_options_start_nothing(runtime: Runtime) -> None:
    """Each is one sentence, before there is a run."""

    @workflow
    async def never(ctx: Context) -> None: ...

    definition: WorkflowDefinition[Any, Any] = never
    with pytest.raises(DefinitionError, match="on_run_end is a int"):
        api.run(definition, on_run_end=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no option 'sped'"):
        api.run(definition, sped=1)
    assert list(runtime.runs()) == []
