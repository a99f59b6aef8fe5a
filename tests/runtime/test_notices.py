"""Notices of what happens in runs: which there are, once each, and which are wanted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loom_kernel import once
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import current_step, step
from loom_kernel.authoring.workflow import workflow
from loom_kernel.errors import SettingsError, StageFailed
from loom_kernel.policies import Budget
from loom_kernel.runtime import Run, Runtime
from loom_kernel.runtime.feeding import STORE
from loom_kernel.settings import Settings
from loom_kernel.views.store import Store, create_store
from tests.runtime.test_run import until

limited: list[bool] = []


@step
def ask_provider() -> str:
    if limited:
        raise StageFailed("draft", "rate_limited", "the provider asks to wait", "active_blocked")
    return "text"


@step
def broken() -> None:
    raise ValueError("no good")


@step
def spends(tokens: int) -> int:
    current_step().usage("scripted/x", input_tokens=tokens, output_tokens=0)
    return tokens


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    """The process's own store, as if nobody had asked for it before."""
    monkeypatch.setitem(once._things, STORE, made := create_store())
    limited.clear()
    return made


def told(store: Store, run: Run[Any]) -> list[tuple[str, str]]:
    """Kinds and levels of a run's notices."""
    return [(n["kind"], n["level"]) for n in store.notices() if n["run_id"] == run.id]


def test_a_run_is_noticed_when_it_starts_asks_is_stopped_goes_on_and_completes(runtime: Runtime, store: Store) -> None:
    """Once each, however often the question is looked at; the notice of a stop says that it was on purpose."""

    @workflow
    async def asks(ctx: Context) -> bool:
        return await ctx.ui.confirm("Go on?", name="go")

    run = asks.start()
    until(lambda: run.prompts())
    run.stop(by="Ada")
    run.settle(timeout=20)
    run.resume()
    until(lambda: run.prompts())
    run.answer(True)
    run.wait(timeout=20)
    assert told(store, run) == [
        ("started", "info"), ("awaiting_input", "info"), ("quit", "info"), ("resumed", "info"), ("completed", "info"),
    ]  # fmt: skip
    texts = [n["message"] for n in store.notices()]
    assert texts[1] == "asks asks: Go on?" and "stopped on purpose (stopped by Ada)" in texts[2]
    assert [n["id"] for n in store.notices()][-1] == f"{run.id}:completed"
    asked = store.notices()[1]
    assert asked["requires_ack"] and asked["stage_id"] == store.runs()[0]["stages"][0]["id"]


def test_failures_and_blocked_runs_are_noticed_once_a_run_and_status(runtime: Runtime, store: Store) -> None:
    """A second failure of the same run is the same notice; a body's own block is finished."""

    @workflow
    async def fails(ctx: Context) -> None:
        await broken()

    @workflow
    async def leaves(ctx: Context) -> None:
        ctx.exit("blocked", reason="no key for the archive")

    run = fails.start()
    run.settle(timeout=20)
    run.resume()
    run.settle(timeout=20)
    assert told(store, run) == [("started", "info"), ("failed", "error"), ("resumed", "info")]
    assert store.notices()[1]["message"] == "fails failed: no good"
    other = leaves.start()
    other.settle(timeout=20)
    assert told(store, other) == [("started", "info"), ("blocked", "warning")]
    assert store.notices()[-1]["id"] == f"{other.id}:blocked" and not store.notices()[-1]["active"]


def test_a_block_by_a_provider_is_noticed_each_time_it_happens(runtime: Runtime, store: Store) -> None:
    """# spec 5.51: one notice for each ``blocked_at``; it says that the run is not finished, and it is not."""

    @workflow
    async def writes(ctx: Context) -> str:
        return await ask_provider()

    limited.append(True)
    run = writes.start()
    blocked_at = []
    for _ in range(2):
        assert run.settle(timeout=20).status == "blocked"
        blocked_at.append(store.runs()[0]["blocked_at"])
        run.resume()
    run.settle(timeout=20)
    limited.clear()
    run.resume()
    assert run.wait(timeout=20).result == "text"
    blocks = [n for n in store.notices() if n["kind"] == "blocked"]
    assert len(blocks) == 3 and len({n["id"] for n in blocks}) == 3 and len(set(blocked_at)) == 2
    assert all(n["active"] and n["level"] == "warning" for n in blocks)
    assert [n["created_at"] for n in blocks[:2]] == blocked_at
    assert "is blocked, not finished" in blocks[0]["message"] and "asks to wait" in blocks[0]["message"]
    assert store.runs()[0]["blocked_at"] is None


def test_a_budget_is_warned_of_once_a_run_and_dimension(runtime: Runtime, store: Store) -> None:
    """However far above the line it goes, and after a resume."""

    @workflow(budget=Budget(max_tokens=100, warn_at_percent=50))
    async def spending(ctx: Context) -> int:
        await spends(60)
        await spends(20)
        await ctx.ui.confirm("Go on?", name="go")
        return await spends(10)

    run = spending.start()
    until(lambda: run.prompts())
    run.stop()
    run.settle(timeout=20)
    run.resume()
    until(lambda: run.prompts())
    run.answer(True)
    run.wait(timeout=20)
    [warning] = [n for n in store.notices() if n["kind"] == "budget_warning"]
    assert warning["id"] == f"{run.id}:budget_warning:tokens"
    assert warning["message"] == "spending has used 60 of 100 (tokens)"


def test_nested_runs_are_silent(runtime: Runtime, store: Store) -> None:
    """Neither a child's failure nor its question is a notice of its own; they are in the store as runs."""

    @workflow
    async def child(ctx: Context) -> None:
        await ctx.ui.confirm("Go on?", name="go")
        await broken()

    @workflow
    async def parent(ctx: Context) -> None:
        await ctx.workflow(child)

    run = parent.start()
    until(lambda: run.prompts())
    run.answer(True)
    assert run.settle(timeout=20).status == "failed"
    assert len(store.runs()) == 2
    assert [(n["kind"], n["run_id"]) for n in store.notices()] == [("started", run.id), ("failed", run.id)]


def test_other_pauses_are_noticed_as_such(make_runtime: Callable[..., Runtime], store: Store) -> None:
    """A run that needs a decision is paused by nobody; it is no quit."""
    runtime = make_runtime()

    @workflow(name="changing")
    async def first(ctx: Context) -> bool:
        await ask_provider()
        return await ctx.ui.confirm("Go on?", name="go")

    run = first.start()
    until(lambda: run.prompts())
    run.stop()
    run.settle(timeout=20)

    @workflow(name="changing")
    async def second(ctx: Context) -> bool:
        await spends(1)
        return await ctx.ui.confirm("Go on?", name="go")

    resumed = runtime.resume(run.id)
    assert resumed.settle(timeout=20).status == "paused"
    assert [kind for kind, _ in told(store, run)][-2:] == ["resumed", "paused"]
    assert "changing is paused (needs_decision)" in store.notices()[-1]["message"]


def test_what_was_known_before_is_delivered_already(
    make_runtime: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of an earlier process that is resumed here: only what happens from now on is noticed."""
    runtime = make_runtime()

    @workflow
    async def asks(ctx: Context) -> bool:
        return await ctx.ui.confirm("Go on?", name="go")

    monkeypatch.delitem(once._things, STORE, raising=False)
    run = asks.start()
    until(lambda: run.prompts())
    run.stop()
    run.settle(timeout=20)
    monkeypatch.setitem(once._things, STORE, store := create_store())
    again = make_runtime().resume(run.id)
    until(lambda: again.prompts())
    again.answer(True)
    again.wait(timeout=20)
    assert [kind for kind, _ in told(store, run)] == ["resumed", "completed"]
    assert runtime is not None


def test_settings_choose_the_kinds(make_runtime: Callable[..., Runtime], store: Store, tmp_path: Path) -> None:
    """``[notifications]`` in loom.toml: a list names exactly the kinds that are wanted; ``enabled = false`` wants none."""

    @workflow
    async def quick(ctx: Context) -> int:
        return 1

    (tmp_path / "loom.toml").write_text('[notifications]\nnotify_on = ["completed", "failed"]\n')
    runtime = make_runtime(settings=Settings({}, tmp_path))
    run = quick.start()
    run.wait(timeout=20)
    assert told(store, run) == [("completed", "info")]
    runtime.configure(notifications={"enabled": False})
    quiet = quick.start()
    quiet.wait(timeout=20)
    assert told(store, quiet) == [] and len(store.runs()) == 2
    with pytest.raises(SettingsError, match="notify_on has no kind 'finished'; there are started"):
        runtime.configure(notifications={"notify_on": ["finished"]})
    with pytest.raises(SettingsError, match="'notify' is not known; there are enabled and notify_on"):
        runtime.configure(notifications={"notify": []})
    (tmp_path / "loom.toml").write_text("[notifications]\nenabled = 3\n")
    make_runtime(settings=Settings({}, tmp_path))
    with pytest.raises(SettingsError, match=r"notifications \(loom.toml\): enabled is true or false, not 3"):
        quick.start()
