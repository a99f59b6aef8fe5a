"""The store: what is recorded in one, and how it follows the runs of a process."""

from __future__ import annotations

import importlib
import logging
import subprocess
import sys
import threading
from typing import Any

import pytest

from loom_kernel import once
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import step
from loom_kernel.authoring.workflow import workflow
from loom_kernel.runtime import Runtime
from loom_kernel.runtime.feeding import STORE
from loom_kernel.views.run_snapshot import NODES
from loom_kernel.views.store import Store, StoreSnapshot, create_store
from tests.runtime.test_run import until


@step
def doubled(x: int) -> int:
    return x * 2


@step
def broken() -> None:
    raise ValueError("no good")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    """The process's own store, as if nobody had asked for it before."""
    monkeypatch.setitem(once._things, STORE, made := create_store())
    return made


@pytest.fixture
def isolated() -> Store:
    """A store at noon that nobody feeds."""
    return Store(now=lambda: 12.0)


def recorded(store: Store, run_id: str = "a", **more: Any) -> None:
    assert store.record_run_start({"id": run_id, "name": "job", "status": "running", "tool_nodes": [], **more})


# ---------------------------------------------------------------- what is recorded by hand


def test_a_run_is_recorded_from_its_start_to_its_one_end(isolated: Store) -> None:
    """Each write says whether it counted: not for what is unknown, and not after the end, which is final."""
    assert not isolated.record_stage_start("a", {"id": "s", "name": "draft"})
    assert not isolated.record_run_end("a", "completed")
    recorded(isolated)
    assert not isolated.record_run_start({"id": "a", "name": "job", "status": "running", "tool_nodes": []})
    assert isolated.record_stage_start("a", {"id": "s", "name": "draft"})
    assert isolated.record_tool_start("a", "s", {"id": "t1", "name": "read"})
    assert not isolated.record_tool_start("a", "other", {"name": "read"})
    assert isolated.record_tool_end("a", "s", {"id": "t1", "name": "read", "output": "text"})
    assert not isolated.record_tool_end("a", "s", {"id": "t1", "name": "read"})
    assert isolated.record_stage_end("a", {"id": "s", "name": "draft", "result": {"words": 3}})
    assert not isolated.record_stage_end("a", {"id": "s", "name": "draft"})
    assert isolated.record_stage_start("a", {"id": "q", "name": "go", "status": "awaiting_input"})
    assert isolated.record_run_end("a", "completed", {"n": 1})
    assert not isolated.record_run_end("a", "failed")
    assert not isolated.record_stage_start("a", {"id": "late", "name": "late"})
    [run] = isolated.runs()
    assert (run["status"], run["result"], run["ended_at"]) == ("completed", {"n": 1}, 12.0)
    assert [(s["id"], s["status"]) for s in run["stages"]] == [("s", "completed"), ("q", "cancelled")]
    assert run["stages"][0]["tool_events"] == [
        {"id": "t1", "name": "read", "started_at": 12.0, "ended_at": 12.0, "output": "text"}
    ]


def test_what_cannot_be_recorded_is_said(isolated: Store) -> None:
    """A run brings its tool nodes, an empty list where it has none; values are JSON; an end is one."""
    with pytest.raises(ValueError, match="record_run_start: tool_nodes is missing"):
        isolated.record_run_start({"id": "a", "name": "job", "status": "running"})  # type: ignore[typeddict-item]
    with pytest.raises(TypeError, match="only JSON can be recorded"):
        recorded(isolated, inputs={"x": object()})
    recorded(isolated)
    with pytest.raises(ValueError, match="status='done'"):
        isolated.record_run_end("a", "done")
    with pytest.raises(TypeError, match="takes a function"):
        isolated.subscribe(3)  # type: ignore[arg-type]


def test_snapshots_are_copies_and_the_version_counts_changes(isolated: Store) -> None:
    """What is given out belongs to whoever got it; what was given in is not looked at again."""
    inputs = {"rows": [1]}
    recorded(isolated, inputs=inputs)
    inputs["rows"].append(2)
    first = isolated.snapshot()
    first["runs"][0]["inputs"]["rows"].append(3)
    assert isolated.snapshot()["runs"][0]["inputs"] == {"rows": [1]}
    versions = [first["version"]]
    for change in (
        lambda: isolated.record_stage_start("a", {"id": "s", "name": "draft"}),
        lambda: isolated.record_notice({"id": "n", "message": "look"}),
        lambda: isolated.ack_notice("n"),
        lambda: isolated.remove_run("a"),
    ):
        assert change()
        versions.append(isolated.snapshot()["version"])
    assert versions == sorted(set(versions))
    assert not isolated.remove_run("a") and isolated.snapshot()["version"] == versions[-1]


def test_the_graph_snapshot_is_the_same_object_until_something_changes(isolated: Store) -> None:
    """Bounded: no values, short texts, a limited number of nodes, and how many are left out."""
    recorded(isolated, inputs={"large": "x" * 10_000}, error="e" * 5_000)
    for i in range(NODES + 5):
        assert isolated.record_stage_start("a", {"id": str(i), "name": "n" * 500, "execution_order": i, "result": "r"})
    graph = isolated.graph_snapshot()
    assert isolated.graph_snapshot() is graph
    [run] = graph["runs"]
    assert "inputs" not in run and len(run["error"] or "") < 500
    assert (len(run["stages"]), run["left_out"], run["stages"][0]["id"]) == (NODES, 5, "5")
    assert "result" not in run["stages"][0] and len(run["stages"][0]["name"]) < 200
    isolated.ack_notice("none")
    assert isolated.graph_snapshot() is graph
    isolated.record_notice({"id": "n", "message": "look"})
    assert isolated.graph_snapshot() is not graph


def test_the_active_run_is_the_newest_top_level_one_that_goes_on(isolated: Store) -> None:
    """Nested ones only where there is no other."""
    assert isolated.active_run_id() is None
    recorded(isolated, "child", parent_run_id="gone")
    assert isolated.active_run_id() == "child"
    recorded(isolated, "a")
    recorded(isolated, "b")
    recorded(isolated, "nested", parent_run_id="b")
    assert isolated.active_run_id() == "b"
    isolated.record_run_end("b", "failed")
    assert isolated.active_run_id() == "a"


def test_subscribers_get_a_fresh_snapshot_after_each_change_until_they_leave(
    isolated: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """# spec 5.55: one that raises is logged; the others hear of it, and the write counts."""
    heard: list[StoreSnapshot] = []

    def bad(snapshot: StoreSnapshot) -> None:
        snapshot["runs"].clear()
        raise RuntimeError("mine")

    isolated.subscribe(bad)
    leave = isolated.subscribe(heard.append)
    with caplog.at_level(logging.ERROR, logger="loom_kernel"):
        recorded(isolated)
        isolated.record_run_end("a", "completed")
    assert [[run["status"] for run in snapshot["runs"]] for snapshot in heard] == [["running"], ["completed"]]
    assert heard[0]["version"] < heard[1]["version"]
    assert "a subscriber of the store failed" in caplog.text
    leave()
    leave()
    isolated.remove_run("a")
    assert len(heard) == 2


def test_a_notice_is_delivered_once_and_goes_with_its_run(isolated: Store) -> None:
    """By its id; it can be acknowledged once."""
    recorded(isolated)
    assert isolated.record_notice({"id": "a:1", "message": "look", "run_id": "a"})
    assert not isolated.record_notice({"id": "a:1", "message": "look again", "run_id": "a"})
    assert isolated.record_notice({"id": "free", "message": "else"})
    assert isolated.ack_notice("a:1") and not isolated.ack_notice("a:1") and not isolated.ack_notice("none")
    assert [(n["message"], n["acked_at"]) for n in isolated.notices()] == [("look", 12.0), ("else", None)]
    isolated.remove_run("a")
    assert [n["id"] for n in isolated.notices()] == ["free"]
    assert not isolated.record_notice({"id": "a:1", "message": "look", "run_id": "a"})


# ---------------------------------------------------------------- the runs of a process


def test_the_store_shows_the_runs_of_this_process(runtime: Runtime, store: Store) -> None:
    """Folded from their events: inputs, nodes, results and errors; children are there, and name their parent."""

    @workflow
    async def child(ctx: Context, x: int) -> int:
        return await doubled(x)

    @workflow
    async def parent(ctx: Context, x: int) -> int:
        return (await ctx.workflow(child, inputs={"x": x})).result or 0

    @workflow
    async def fails(ctx: Context) -> None:
        await broken()

    run = parent.start(x=4)
    run.wait(timeout=20)
    failed = fails.start()
    failed.settle(timeout=20)
    top, nested, bad = store.runs()
    assert (top["id"], top["name"], top["status"], top["inputs"], top["result"]) == (
        run.id,
        "parent",
        "completed",
        {"x": 4},
        8,
    )
    assert [(s["name"], s["kind"], s["status"]) for s in top["stages"]] == [("child", "workflow", "completed")]
    assert top["tool_nodes"] == [] and top["stages"][0]["child_run_id"] == nested["id"]
    assert (nested["parent_run_id"], nested["root_run_id"]) == (run.id, run.id)
    assert [(n["name"], n["kind"], n["result"]) for n in nested["tool_nodes"]] == [("doubled", "step", 8)]
    assert (bad["status"], bad["error"], bad["resumable"]) == ("failed", "no good", True)
    assert bad["failed_tool_node_id"] == bad["tool_nodes"][0]["id"] and bad["failed_stage_id"] is None
    assert store.active_run_id() is None


def test_what_the_journal_says_cannot_be_written_by_hand(runtime: Runtime, store: Store) -> None:
    """A run of the journal may be taken out of the store; it is still in the journal."""

    @workflow
    async def asks(ctx: Context) -> bool:
        return await ctx.ui.confirm("Go on?", name="go")

    run = asks.start()
    until(lambda: run.prompts())
    assert store.active_run_id() == run.id
    assert [(s["name"], s["status"]) for s in store.runs()[0]["stages"]] == [("go", "awaiting_input")]
    assert not store.record_run_end(run.id, "completed")
    assert not store.record_stage_start(run.id, {"id": "s", "name": "draft"})
    run.answer(True)
    assert run.wait(timeout=20).result is True
    assert store.remove_run(run.id) and store.runs() == []
    assert runtime.get_run(run.id).status == "completed"


def test_subscribers_hear_of_runs_in_a_thread_of_their_own(runtime: Runtime, store: Store) -> None:
    """One that blocks holds up no run; the last thing that it hears is how the run ended."""
    hold, threads, heard = threading.Event(), set(), []

    def slow(snapshot: StoreSnapshot) -> None:
        threads.add(threading.current_thread().name)
        hold.wait(20)
        heard.append(snapshot)

    store.subscribe(slow)

    @workflow
    async def counted(ctx: Context) -> int:
        return await doubled(1) + await doubled(2)

    assert counted.start().wait(timeout=20).result == 6
    assert not heard
    hold.set()
    until(lambda: heard and heard[-1]["runs"][0]["status"] == "completed")
    assert len(heard[-1]["runs"][0]["tool_nodes"]) == 2 and "loom" not in threads


def test_a_run_that_is_resumed_goes_on_in_the_store_and_one_that_is_deleted_is_gone(
    runtime: Runtime, store: Store
) -> None:
    """Paused, resumed, ended from outside while it rested: the store follows."""

    @workflow
    async def asks(ctx: Context) -> int:
        first = await doubled(1)
        await ctx.ui.confirm("Go on?", name="go")
        return first

    run = asks.start()
    until(lambda: run.prompts())
    run.stop()
    run.settle(timeout=20)
    [shown] = store.runs()
    assert (shown["status"], shown["resumable"], shown["reason"]) == ("paused", True, "stopped")
    assert shown["paused_at"] is not None and store.active_run_id() == run.id
    run.resume()
    until(lambda: run.prompts())
    assert [(n["name"], n["from_journal"]) for n in store.runs()[0]["tool_nodes"]] == [("doubled", True)]
    run.stop()
    run.settle(timeout=20)
    run.cancel()
    until(lambda: store.runs()[0]["status"] == "cancelled")
    run.delete()
    assert store.runs() == []


def test_a_store_that_comes_later_shows_what_is_there(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Live runs and their children, and those of before that somebody holds; nothing of that is a notice any more."""
    monkeypatch.delitem(once._things, STORE, raising=False)

    @workflow
    async def child(ctx: Context) -> bool:
        return await ctx.ui.confirm("Go on?", name="go")

    @workflow
    async def parent(ctx: Context) -> None:
        await ctx.workflow(child)

    @workflow
    async def quick(ctx: Context) -> int:
        return 1

    done = quick.start()
    done.wait(timeout=20)
    run = parent.start()
    until(lambda: run.prompts())
    found = importlib.reload(importlib.import_module("loom_kernel.runtime.store")).store
    assert sorted((shown["name"], shown["status"]) for shown in found.runs()) == [
        ("child", "awaiting_input"), ("parent", "running"), ("quick", "completed"),
    ]  # fmt: skip
    assert found.notices() == [] and found.active_run_id() == run.id
    run.answer(True)
    run.wait(timeout=20)
    assert [n["id"] for n in found.notices()] == [f"{run.id}:completed"]


def test_a_store_lists_a_bounded_number_of_runs(
    runtime: Runtime, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest that ended go, with their notices; what goes on stays, however old it is."""
    monkeypatch.setattr("loom_kernel.views.store.KEPT", 10)

    @workflow
    async def asks(ctx: Context) -> bool:
        return await ctx.ui.confirm("Go on?", name="go")

    @workflow
    async def quick(ctx: Context) -> int:
        return 1

    waits = asks.start()
    until(lambda: waits.prompts())
    ids = []
    for _ in range(12):
        run = quick.options(fresh=True).start()
        run.wait(timeout=20)
        ids.append(run.id)
    listed = [shown["id"] for shown in store.runs()]
    assert listed == [waits.id, *ids[-len(listed) + 1 :]] and 10 <= len(listed) <= 11
    assert {notice["run_id"] for notice in store.notices()} == set(listed)
    assert len(list(runtime.runs())) == 13
    waits.answer(True)
    waits.wait(timeout=20)


def test_a_second_import_keeps_the_one_registry_and_store() -> None:
    """# spec 5.54: modules that are reloaded, or imported again from nothing, hold the same registry, store and handles."""
    program = """
import importlib, sys
import loom_kernel
from loom_kernel import configure, workflow, runs
import loom_kernel.runtime, loom_kernel.authoring.registry, loom_kernel.authoring.launcher
configure(journal="memory")
store, registry = loom_kernel.store, loom_kernel.registry

@workflow
async def asks(ctx) -> bool:
    return await ctx.ui.confirm("Go on?", name="go")

run = asks.start()
while not run.prompts():
    pass
runtime = loom_kernel.runtime.get_runtime()
for name in ("loom_kernel.authoring.registry", "loom_kernel.authoring.launcher", "loom_kernel.runtime.store",
             "loom_kernel.runtime", "loom_kernel"):
    importlib.reload(sys.modules[name])
assert loom_kernel.store is store and loom_kernel.registry is registry
assert loom_kernel.runtime.get_runtime() is runtime and loom_kernel.get_run(run.id) is run
assert loom_kernel.registry.get("asks") is asks and store.active_run_id() == run.id
kept = dict(sys.modules)
for name in [name for name in sys.modules if name.split(".")[0] == "loom_kernel"]:
    del sys.modules[name]
import loom_kernel as again
assert again is not kept["loom_kernel"] and again.Store is not kept["loom_kernel.views.store"].Store
assert again.store is store and again.registry is registry
assert again.store.snapshot()["runs"][0]["id"] == run.id and again.registry.get("asks") is asks
run.answer(True)
assert run.wait(timeout=20).result is True and again.store.runs()[0]["status"] == "completed"
print("the same")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "the same", done.stderr


@pytest.mark.parametrize("method", ["changed", "follow"])
def test_a_store_that_fails_harms_no_run(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    """# spec 5.55: what is left of a host that is gone raises wherever it is told; the run completes, and it is logged."""

    def gone(*_: Any) -> None:
        raise RuntimeError("this host is gone")

    stale = type("StaleStore", (Store,), {method: gone})()
    monkeypatch.setitem(once._things, STORE, stale)

    @workflow
    async def counted(ctx: Context) -> int:
        return await doubled(2)

    with caplog.at_level(logging.ERROR, logger="loom_kernel"):
        assert counted.start().wait(timeout=20).result == 4
    assert "this host is gone" in caplog.text and "the run goes on" in caplog.text
