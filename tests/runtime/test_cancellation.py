"""Cancel scopes, registries of them, and runs that are killed by them."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import step
from loom_kernel.authoring.workflow import WorkflowDefinition, workflow
from loom_kernel.errors import DefinitionError, RunStopped
from loom_kernel.runtime import Runtime, api
from loom_kernel.runtime.cancellation import (
    CancellationRegistry,
    CancelScope,
    cancellation_registry,
    create_cancellation_registry,
)
from tests.runtime.test_run import until

begun: list[str] = []


@step
def note(text: str) -> str:
    begun.append(text)
    return text


@pytest.fixture(autouse=True)
def nothing_begun() -> None:
    begun.clear()


@pytest.fixture
def asking(runtime: Runtime) -> WorkflowDefinition[Any, Any]:
    """One step, a question, one more step."""

    @workflow
    async def asking(ctx: Context) -> bool:
        await note("before")
        answer = await ctx.ui.confirm("Go on?", name="go")
        await note("after")
        return answer

    return asking


# ---------------------------------------------------------------- scopes and registries


def test_a_scope_is_aborted_once_and_tells_everybody(caplog: pytest.LogCaptureFixture) -> None:
    """The first reason stays; who comes later hears of it at once; one that raises keeps nobody else from hearing."""
    scope, heard = CancelScope(), []

    def bad(_: Any) -> None:
        raise RuntimeError("mine")

    scope.on_abort(bad)
    scope.on_abort(lambda reason: heard.append(("first", reason)))
    leave = scope.on_abort(lambda reason: heard.append(("gone", reason)))
    leave()
    assert not scope.aborted
    with caplog.at_level(logging.ERROR, logger="loom_kernel"):
        scope.abort("enough")
        scope.abort("again")
    scope.on_abort(lambda reason: heard.append(("late", reason)))
    assert heard == [("first", "enough"), ("late", "enough")] and (scope.aborted, scope.reason) == (True, "enough")
    assert "a listener of a cancel scope failed" in caplog.text


class Order:
    """Writes down in which order controllers are aborted."""

    def __init__(self, name: str, told: list[tuple[str, Any]]) -> None:
        self.name, self.told = name, told

    def abort(self, reason: Any = None) -> None:
        self.told.append((self.name, reason))


def test_a_registry_aborts_children_first_and_says_what_it_found() -> None:
    """Registered again, a run keeps its children; nothing is found where nothing is registered."""
    registry, told = create_cancellation_registry(), []
    assert not registry.abort("a") and not registry.is_aborted("a") and registry.abort_all() == 0
    with pytest.raises(LookupError, match="no run 'a' is registered here"):
        registry.register_child("a", Order("child", told))
    registry.register("a", Order("old", told))
    child = Order("child", told)
    registry.register_child("a", child)
    registry.register_child("a", Order("other", told))
    registry.register("a", Order("new", told))
    registry.register("b", CancelScope())
    assert registry.abort("a", "why") and told == [("other", "why"), ("child", "why"), ("new", "why")]
    assert registry.is_aborted("a") and not registry.is_aborted("b")
    registry.unregister_child("a", child)
    told.clear()
    assert registry.abort_all("all") == 2 and told == [("other", "all"), ("new", "all")]
    assert registry.is_aborted("b")


def test_a_late_end_takes_no_successor_away() -> None:
    """``unregister`` with a controller is for that one only; without it, for whoever is there."""
    registry, first, second = CancellationRegistry(), CancelScope(), CancelScope()
    registry.register("a", first)
    registry.register("a", second)
    assert not registry.unregister("a", first) and "a" in registry
    assert registry.unregister("a", second) and "a" not in registry
    registry.register("a", first)
    assert registry.unregister("a") and not registry.unregister("a")


# ---------------------------------------------------------------- runs


def test_aborting_a_run_kills_it_and_its_children(runtime: Runtime, asking: WorkflowDefinition[Any, Any]) -> None:
    """From any thread; the end is durable and final, and neither is registered any more."""

    @workflow
    async def parent(ctx: Context) -> bool:
        return bool((await ctx.workflow(asking)).result)

    run = parent.start()
    until(lambda: run.prompts())
    child = run["asking"]._node.child_run_id  # type: ignore[union-attr]
    assert child is not None and run.id in cancellation_registry and child in cancellation_registry
    assert cancellation_registry.abort(run.id, "the machine is needed")
    result = run.settle(timeout=20)
    assert (result.status, result.reason) == ("killed", "the machine is needed")
    until(lambda: run.id not in cancellation_registry and child not in cancellation_registry)
    assert runtime.get_run(child).status in ("killed", "cancelled") and begun == ["before"]
    assert not cancellation_registry.abort(run.id)
    with pytest.raises(RunStopped, match="was killed: the machine is needed"):
        run.wait(timeout=20)


def test_a_run_is_registered_where_its_start_says(runtime: Runtime, asking: WorkflowDefinition[Any, Any]) -> None:
    """With its children, and nowhere else; a child may be aborted alone."""

    @workflow
    async def parent(ctx: Context) -> str:
        try:
            await ctx.workflow(asking)
        except Exception as error:
            return type(error).__name__
        return "fine"

    mine = create_cancellation_registry()
    run = api.run(parent, cancellation=mine)
    until(lambda: run.prompts())
    child = run["asking"]._node.child_run_id  # type: ignore[union-attr]
    assert child is not None and child in mine and run.id in mine and run.id not in cancellation_registry
    assert mine.abort(child)
    assert run.wait(timeout=20).result == "ChildWorkflowError"


def test_signals_kill_what_they_were_given_to(runtime: Runtime, asking: WorkflowDefinition[Any, Any]) -> None:
    """A scope, an event of threading, an event of asyncio: each while the run is executed."""
    scope, event, other = CancelScope(), threading.Event(), asyncio.Event()
    for signal, fire in ((scope, lambda: scope.abort("by scope")), (event, event.set), (other, other.set)):
        run = api.run(asking, signal=signal, fresh=True)
        until(lambda run=run: run.prompts())
        fire()
        assert run.settle(timeout=20).status == "killed"
    assert begun == ["before"] * 3


def test_the_token_of_another_run_is_a_signal(runtime: Runtime, asking: WorkflowDefinition[Any, Any]) -> None:
    """What a body starts beside it ends with it, where it says so."""
    inner: list[Any] = []

    @workflow
    async def outer(ctx: Context) -> None:
        made = await asyncio.to_thread(api.run, asking, signal=ctx.cancelled)
        inner.append(made)
        await ctx.ui.confirm("Wait?", name="wait")

    run = outer.start()
    until(lambda: inner and inner[0].prompts() and run.prompts())
    run.cancel()
    run.settle(timeout=20)
    assert inner[0].settle(timeout=20).status == "killed"


@pytest.mark.parametrize("defer", [False, True])
def test_a_signal_that_has_fired_lets_no_code_begin(
    runtime: Runtime, asking: WorkflowDefinition[Any, Any], defer: bool
) -> None:
    """The run is there, and killed, without a node."""
    scope, event = CancelScope(), threading.Event()
    scope.abort("too late")
    event.set()
    for signal in (scope, event):
        run = api.run(asking, signal=signal, defer_workflow_start=defer, fresh=True)
        assert run.settle(timeout=20).status == "killed"
        assert run.nodes() == [] and begun == []


def test_what_is_no_signal_is_refused(runtime: Runtime, asking: WorkflowDefinition[Any, Any]) -> None:
    """Before there is a run."""
    with pytest.raises(DefinitionError, match=r"run\(signal=...\): a CancelScope, ctx.cancelled, or an event"):
        api.run(asking, signal="stop")
    with pytest.raises(DefinitionError, match=r"run\(cancellation=...\): a CancellationRegistry is needed, not a dict"):
        api.run(asking, cancellation={})  # type: ignore[arg-type]
    assert list(runtime.runs()) == []
