"""Restart and Run All is a resume: a session that broke is continued, one that ended well is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import step
from loom_kernel.authoring.workflow import WorkflowDefinition, define, workflow
from loom_kernel.events import RunCreated
from loom_kernel.journal.abc import RunSummary
from loom_kernel.runtime import Run, Runtime
from loom_kernel.runtime.sessions import broken
from loom_kernel.runtime.surroundings import git_commit, surroundings
from loom_kernel.settings import Settings
from tests.runtime.conftest import DeskHost
from tests.runtime.test_run import until


@step
async def double(n: int) -> int:
    return n * 2


@pytest.fixture
def quick(runtime: Runtime) -> WorkflowDefinition[Any, int]:
    """Ends by itself."""

    @workflow
    async def quick(ctx: Context, n: int = 1) -> int:
        return await double(n)

    return quick


@pytest.fixture
def asking(runtime: Runtime) -> WorkflowDefinition[Any, int]:
    """Waits for an answer."""

    @workflow
    async def asking(ctx: Context, n: int = 1) -> int:
        await ctx.ui.confirm("Go on?", name="go")
        return n

    return asking


def cell(host: DeskHost, name: str, execution: str = "1") -> None:
    """The next starts are in this cell."""
    host.cell, host.execution = name, execution


def finished(run: Run[Any]) -> str:
    run.wait(timeout=10)
    return run.id


Restart = Callable[[], Runtime]


@pytest.fixture
def restart(make_runtime: Callable[..., Runtime], runtime: Runtime) -> Restart:
    """The kernel dies, and the next one begins."""
    now = [runtime]

    def again(**options: Any) -> Runtime:
        now[0].loop.submit(now[0].engine.close()).result(timeout=10)  # its runs are nobody's; the journal is shared
        now[0] = make_runtime(**options)
        return now[0]

    return again


def test_what_a_broken_session_had_finished_is_given_once(
    quick: WorkflowDefinition[Any, int], asking: WorkflowDefinition[Any, int], host: DeskHost, restart: Restart
) -> None:
    """Run All after a crash: the finished run is there, the unfinished one goes on; running a cell again is a new run."""
    cell(host, "a")
    first = finished(quick.start())
    cell(host, "b")
    left = asking.start()
    until(lambda: left.prompts())
    restart()
    cell(host, "a")
    again = quick.start()
    assert (again.id, again.value) == (first, 2)
    assert host.shown[-1][1].startswith("this is the run of ")
    assert host.shown[-1][1].endswith("finished by the session that this one continues; fresh=True starts anew")
    cell(host, "b")
    resumed = asking.start()
    assert resumed.id == left.id
    until(lambda: resumed.prompts())
    resumed.answer(True)
    finished(resumed)
    cell(host, "a", "2")
    assert quick.start().id != first


def test_a_session_that_ended_well_is_not_continued(
    quick: WorkflowDefinition[Any, int], host: DeskHost, restart: Restart
) -> None:
    """Its notebook is run anew."""
    first = finished(quick.start())
    restart()
    assert quick.start().id != first


def test_a_loop_of_equal_starts_gets_its_runs_in_order(
    quick: WorkflowDefinition[Any, int], asking: WorkflowDefinition[Any, int], host: DeskHost, restart: Restart
) -> None:
    """Each once, and the one that was not made is made."""
    cell(host, "loop")
    first = [finished(quick.start()) for _ in range(3)]
    cell(host, "b")
    until(asking.start().prompts)
    restart()
    cell(host, "loop")
    again = [quick.start().id for _ in range(4)]
    assert again[:3] == first and again[3] not in first


@pytest.mark.parametrize("change", ["inputs", "cell", "code", "fresh", "key"])
def test_other_starts_make_other_runs(
    quick: WorkflowDefinition[Any, int],
    asking: WorkflowDefinition[Any, int],
    host: DeskHost,
    restart: Restart,
    change: str,
) -> None:
    """Other inputs, another cell, edited code (a step's, too), or being told so."""
    cell(host, "a")
    first = finished(quick.start())
    cell(host, "b")
    until(asking.start().prompts)
    restart()
    cell(host, "c" if change == "cell" else "a")
    definition = quick
    if change == "code":

        @step(name="double")
        async def double(n: int) -> int:
            return n * 3

        async def body(ctx: Context, n: int = 1) -> int:
            return await double(n)

        definition = define(body, name="quick")
    elif change == "fresh":
        definition = quick.options(fresh=True)
    elif change == "key":
        definition = quick.options(key="k")
    run = definition.start(n=2) if change == "inputs" else definition.start()
    assert run.id != first


def test_a_session_that_breaks_again_has_all_of_it(
    quick: WorkflowDefinition[Any, int], asking: WorkflowDefinition[Any, int], host: DeskHost, restart: Restart
) -> None:
    """The third kernel finds what the first and the second had finished."""
    cell(host, "a")
    first = finished(quick.start(n=1))
    cell(host, "b")
    until(asking.start().prompts)
    restart()
    cell(host, "a")
    assert quick.start(n=1).id == first
    second = finished(quick.start(n=2))
    cell(host, "b")
    until(asking.start().prompts)
    restart()
    cell(host, "a")
    assert [quick.start(n=1).id, quick.start(n=2).id] == [first, second]


def test_a_run_that_was_cancelled_does_not_make_it_broken(
    quick: WorkflowDefinition[Any, int], asking: WorkflowDefinition[Any, int], host: DeskHost, restart: Restart
) -> None:
    """Nothing is left to continue."""
    cell(host, "a")
    first = finished(quick.start())
    cell(host, "b")
    left = asking.start()
    until(left.prompts)
    left.cancel()
    restart()
    cell(host, "a")
    assert quick.start().id != first


def test_nobody_in_front_of_it_starts_anew(
    quick: WorkflowDefinition[Any, int], asking: WorkflowDefinition[Any, int], host: DeskHost, restart: Any
) -> None:
    """Headless notebooks never continue, unless ``LOOM_RESUME`` says so."""
    cell(host, "a")
    first = finished(quick.start())
    cell(host, "b")
    until(asking.start().prompts)
    host.headless = True
    restart()
    cell(host, "a")
    assert finished(quick.start()) != first
    restart(settings=Settings(environ={"LOOM_RESUME": "1"}))
    assert quick.start().id == first, "the headless execution in between is not the session that broke"


def test_a_headless_execution_in_between_is_no_session(
    quick: WorkflowDefinition[Any, int], asking: WorkflowDefinition[Any, int], host: DeskHost, restart: Restart
) -> None:
    """The person's session is still the last one, and what nobody sat in front of is not given."""
    cell(host, "a")
    first = finished(quick.start())
    cell(host, "b")
    left = asking.start()
    until(left.prompts)
    host.headless = True
    restart()
    cell(host, "a")
    unseen = finished(quick.start())
    host.headless = False
    restart()
    assert quick.start().id == first
    assert quick.start().id not in (first, unseen)
    cell(host, "b")
    assert asking.start().id == left.id


def test_executions_of_one_cell_are_given_in_order(
    quick: WorkflowDefinition[Any, int], asking: WorkflowDefinition[Any, int], host: DeskHost, restart: Restart
) -> None:
    """A cell that was run twice gives its first run first; a third execution is a new run."""
    made = []
    for execution in ("1", "2"):
        cell(host, "a", execution)
        made.append(finished(quick.start()))
    cell(host, "b")
    until(asking.start().prompts)
    restart()
    given = []
    for execution in ("1", "2", "3"):
        cell(host, "a", execution)
        given.append(finished(quick.start()))
    assert given[:2] == made and given[2] not in made


def test_a_run_deleted_since_is_not_given(
    quick: WorkflowDefinition[Any, int], asking: WorkflowDefinition[Any, int], host: DeskHost, restart: Restart
) -> None:
    """Between the notebook's first start and the one that means it, a person may remove a run."""
    cell(host, "a")
    first = quick.start(n=1)
    second = finished(quick.start(n=2))
    finished(first)
    cell(host, "b")
    until(asking.start().prompts)
    now = restart()
    cell(host, "a")
    assert quick.start(n=1).id == first.id
    now.get_run(second).delete()
    again = quick.start(n=2)
    assert again.id != second and again.wait(timeout=10).result == 4


def test_a_second_kernel_continues_nothing_of_a_living_one(
    quick: WorkflowDefinition[Any, int],
    asking: WorkflowDefinition[Any, int],
    host: DeskHost,
    make_runtime: Callable[..., Runtime],
) -> None:
    """Its session has not ended: what it had finished is its own, and its unfinished run is followed."""
    cell(host, "a")
    first = finished(quick.start())
    cell(host, "b")
    left = asking.start()
    until(left.prompts)
    make_runtime()  # beside the first, which goes on
    cell(host, "a")
    assert finished(quick.start()) != first
    cell(host, "b")
    followed = asking.start()
    assert followed.id == left.id and not followed.live
    assert host.shown[-1][1].startswith("following the run of ")


def summary(
    id: str, session: str, status: str = "completed", continues: str = "", interrupted: bool = False
) -> RunSummary:
    header = RunCreated(workflow="w", session=session, continues=continues)
    return RunSummary(
        run_id=id, workflow="w", status=status, reason=None, interrupted=interrupted, last_seq=1, open_prompts=0,
        resumable=interrupted, created_at=0, updated_at=0, header=header,
    )  # type: ignore[arg-type]  # fmt: skip


def test_the_last_session_decides() -> None:
    """One before it that broke and was not continued is over; runs of before there were sessions are nobody's."""
    left = summary("l", "s1", "running", interrupted=True)
    assert broken("s3", [summary("a", "s2"), left]).finished == []
    assert [r.run_id for r in broken("s2", [left, summary("b", "s1"), summary("a", "s1")]).finished] == ["a", "b"]
    assert broken("s2", [summary("a", ""), summary("b", "")]).finished == []
    assert broken("s1", [left]).finished == []
    again = [summary("c", "s2", continues="s1"), left, summary("a", "s1")]
    assert [r.run_id for r in broken("s3", again).finished] == ["a", "c"]


def test_a_run_says_what_it_was_started_with(
    quick: WorkflowDefinition[Any, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python, loaded packages and the commit; a branch, a detached head, packed refs and no repository at all."""
    created = quick.start().events()[0].event
    assert isinstance(created, RunCreated)
    assert created.environment["python"] and created.environment["package:pydantic"]
    assert "git" not in surroundings(tmp_path)
    git = tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "packed-refs").write_text("# pack-refs\n" + "b" * 40 + " refs/heads/main\n")
    assert git_commit(tmp_path) == "b" * 40
    (git / "refs" / "heads" / "main").write_text("a" * 40 + "\n")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    assert git_commit(tmp_path / "deep" / "er") == "a" * 40
    (git / "HEAD").write_text("c" * 40 + "\n")
    assert git_commit(tmp_path) == "c" * 40
