"""Failures that people met elsewhere, as somebody meets them who starts, finds and resumes runs; see the engine's file of
the same name."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loom_kernel import events as ev
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import step
from loom_kernel.authoring.workflow import WorkflowDefinition, workflow
from loom_kernel.errors import (
    AnswerError,
    InputError,
    LoomError,
    ResumeError,
    SettingsError,
    StorageUnavailableError,
    UnknownRunError,
    ValueNotStorableError,
)
from loom_kernel.ids import RunId
from loom_kernel.journal.abc import Append, LeaseAcquired
from loom_kernel.journal.memory_store import MemoryRunJournal
from loom_kernel.runtime import Run, Runtime
from loom_kernel.settings import Settings
from loom_kernel.views.snapshot import snapshot
from tests.runtime.conftest import DeskHost
from tests.runtime.test_run import until


@step
def one() -> int:
    return 1


@pytest.fixture
def asking(runtime: Runtime) -> WorkflowDefinition[Any, Any]:
    """One step, then a question."""

    @workflow
    async def asking(ctx: Context, n: int = 1) -> str:
        await one()
        await ctx.ui.confirm("Go on?", name="go")
        return f"{n} in {ctx.cwd.name}"

    return asking


Restart = Callable[[], Runtime]


@pytest.fixture
def restart(make_runtime: Callable[..., Runtime], runtime: Runtime) -> Restart:
    """The kernel dies, and the next one begins."""
    now = [runtime]

    def again() -> Runtime:
        now[0].loop.submit(now[0].engine.close()).result(timeout=10)  # its runs are nobody's; the journal is shared
        now[0] = make_runtime()
        return now[0]

    return again


def finished(run: Run[Any]) -> Any:
    """Answer its question and give its result."""
    until(lambda: run.prompts())
    run.answer(True)
    return run.wait(timeout=10).result


def test_a_run_whose_kernel_is_gone_is_found_by_its_id_and_says_what_to_do(
    asking: WorkflowDefinition[Any, Any], restart: Restart
) -> None:
    """Spec 5.5: never "not found" for what is in the journal: it is interrupted, and the view says how it goes on."""
    run = asking.start()
    until(lambda: run.prompts())
    other = restart()
    found = other.get_run(run.id)
    assert found.status == "interrupted" and found["one"].value == 1
    assert other.get_run(run.id[:10]).id == run.id
    shot = snapshot(found.view, 0.0)
    assert "goes on from there" in shot["notice"] and [b["label"] for b in shot["buttons"]] == ["Resume", "Cancel"]
    assert [r.id for r in other.runs(status="interrupted")] == [run.id]
    with pytest.raises(UnknownRunError):
        other.get_run("never-was")
    assert finished(other.resume(run.id)).startswith("1 in")


def test_a_paused_run_outlives_the_kernel_and_a_definition_that_is_made_again(
    asking: WorkflowDefinition[Any, Any], restart: Restart
) -> None:
    """Spec 5.6: it is listed and resumable after its kernel has ended, and after the module was loaded anew."""
    run = asking.start()
    until(lambda: run.prompts())
    run.stop()
    run.settle(timeout=10)
    for _ in range(2):  # the kernel ends; its successor, too, without having touched the run
        runtime = restart()
        assert [(r.id, r.status) for r in runtime.runs()] == [(run.id, "paused")]
    workflow(asking.fn)
    assert finished(runtime.resume(run.id)).startswith("1 in")


def test_a_run_stays_in_the_folder_it_was_started_in(
    asking: WorkflowDefinition[Any, Any],
    restart: Restart,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spec 5.16: resumed by a kernel that works elsewhere, ctx.cwd is the recorded folder, in its children too."""

    @workflow
    async def parent(ctx: Context) -> list[str]:
        return [str(ctx.cwd), (await ctx.workflow(asking)).result]

    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(), there.mkdir()
    monkeypatch.chdir(here)
    run = parent.start()
    until(lambda: run.prompts())
    monkeypatch.chdir(there)
    other = restart()
    assert finished(other.resume(run.id)) == [str(here), "1 in here"]
    run = asking.start()
    until(lambda: run.prompts())
    monkeypatch.chdir(here)
    assert finished(run) == "1 in there"
    monkeypatch.chdir(there)
    fork = other.get_run(run.id).fork("go")
    assert finished(fork) == "1 in there"


def test_nothing_is_left_of_a_start_that_was_refused(
    asking: WorkflowDefinition[Any, Any],
    runtime: Runtime,
    journal: MemoryRunJournal,
    host: DeskHost,
) -> None:
    """Spec 5.52: whatever is wrong is raised by start() itself; no run is left that nobody drives, nothing is shown."""

    @workflow
    async def anything(ctx: Context, value: Any) -> None: ...

    refused: list[tuple[Callable[[], Any], type[Exception]]] = [
        (lambda: asking.start(n="1"), InputError),
        (lambda: asking.start(m=1), InputError),
        (lambda: anything.start(value=object()), ValueNotStorableError),
        (lambda: asking.options(colour="red"), TypeError),
        (lambda: asking.options(budget=3).start(), LoomError),
        (lambda: asking.options(key=3).start(), LoomError),
        (lambda: asking.options(tags=[3]).start(), LoomError),
        (lambda: asking.options(by=3).start(), LoomError),
        (lambda: asking.options(answers=["go"]).start(), LoomError),
        (lambda: asking.options(worker=True, answers={"go": True}).start(), InputError),
    ]
    for start, says in refused:
        with pytest.raises(says):
            start()
    assert not journal._runs and not host.shown and not runtime.live()
    assert not runtime.engine or not runtime.engine.executions


def test_a_start_while_the_journal_is_down_is_an_error_of_the_start(
    asking: WorkflowDefinition[Any, Any], make_runtime: Callable[..., Runtime], host: DeskHost
) -> None:
    """Spec 5.52: a journal that cannot be opened, or a setting that is wrong, is told by start(), and again the next time."""

    async def broken() -> Any:
        raise StorageUnavailableError("the disk is gone")

    down = make_runtime(journal=broken)
    for _ in range(2):
        with pytest.raises(StorageUnavailableError, match="the disk is gone"):
            asking.start()
    assert not host.shown and not down.live()
    for wrong in ("0", "nan", "inf", "2.5", "-1"):
        make_runtime(settings=Settings(environ={"LOOM_MAX_DEPTH": wrong}))
        with pytest.raises(SettingsError, match=f"max_depth={wrong} "):
            asking.start()


def test_how_deep_workflows_nest_is_a_setting(make_runtime: Callable[..., Runtime]) -> None:
    """``max_depth``: 4 levels in all unless it says otherwise; the level too many fails with a sentence that names it."""

    @workflow
    async def level(ctx: Context, n: int) -> int:
        return 1 if n == 1 else 1 + (await ctx.workflow(level, inputs={"n": n - 1})).result  # type: ignore[no-any-return]

    make_runtime(settings=Settings(environ={"LOOM_MAX_DEPTH": "6"}))
    assert level.start(n=6).wait(timeout=10).result == 6
    failed = level.start(n=7).settle(timeout=10)
    assert failed.status == "failed" and "at most 6 deep" in str(failed.error)
    make_runtime(settings=Settings(environ={}))
    assert level.start(n=4).wait(timeout=10).result == 4
    assert level.start(n=5).settle(timeout=10).status == "failed"


def test_a_run_that_only_one_side_calls_a_child_is_not_looked_into(
    asking: WorkflowDefinition[Any, Any], runtime: Runtime, journal: MemoryRunJournal
) -> None:
    """Spec 5.60: a link to a foreign run, or a ring of them, stays a box: its nodes and questions are not the parent's.

    Here a child is always one box; what may be looked into is its run, by path and by its questions.
    """
    foreign = asking.start()
    until(lambda: foreign.prompts())

    async def written() -> str:
        new = runtime.ids.run_id()
        acquired = await journal.start_run(new, ev.RunCreated(workflow="parent"), runtime.engine.holder)
        assert isinstance(acquired, LeaseAcquired)
        events = [
            Append(ev.RunStarted(worker="w"), None),
            *(
                Append(ev.NodeStarted(name=name, kind="workflow", child_run_id=child), f"workflow:{name}:#1")
                for name, child in (("foreign", foreign.id), ("ring", new))
            ),
        ]
        await journal.append(acquired.lease, events)
        return new

    run = runtime.get_run(runtime.loop.call(lambda: runtime.on_loop(written), "written()", "written()"))
    assert run["foreign"].status == "running" and [p.prompt for p in foreign.prompts()] == ["go"]
    for path in ("foreign/one", "ring/foreign", "ring/ring/ring"):
        with pytest.raises(KeyError, match="is not its child"):
            run[path]
    assert run.prompts() == []
    with pytest.raises(AnswerError):
        run.answer(True)
    shot = snapshot(run.view, 0.0)
    assert [box["label"] for box in shot["graph"]["boxes"]] == ["foreign", "ring"] and not shot["questions"]
    assert re.search("foreign", run.to_svg())
    assert finished(foreign).startswith("1 in")
    with pytest.raises(ResumeError):
        runtime.resume(RunId(foreign.id))
