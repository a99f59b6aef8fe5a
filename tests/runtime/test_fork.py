"""Forks: another run that begins with a run's records, up to a node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import SecretStr

from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import step
from loom_kernel.authoring.workflow import WorkflowDefinition, workflow
from loom_kernel.errors import AnswerError, ForkError, InputError, ResumeError
from loom_kernel.events import RunCreated, RunForked
from loom_kernel.ids import RunId
from loom_kernel.journal.memory_store import MemoryRunJournal
from loom_kernel.runtime import Run, Runtime
from tests.runtime.test_run import until

Effects = Callable[..., list[str]]


@pytest.fixture
def report(runtime: Runtime, effects: Effects) -> WorkflowDefinition[Any, Any]:
    """fetch → (clean, count) → ask → write."""

    @step
    def fetch(limit: int) -> list[int]:
        effects(f"fetch {limit}")
        return list(range(limit))

    @step
    def clean(rows: list[int]) -> list[int]:
        effects("clean")
        return [r for r in rows if r]

    @step
    def count(rows: list[int]) -> int:
        effects("count")
        return len(rows)

    @step
    def write(rows: list[int], n: int, ok: bool) -> str:
        effects("write")
        return f"{rows} of {n}" if ok else "nothing"

    @workflow
    async def report(ctx: Context, limit: int = 3) -> str:
        ctx.report("begins")
        rows = await fetch(limit)
        cleaned, n = await asyncio.gather(clean(rows), count(rows))
        ok = await ctx.ui.confirm("Write it?", name="go", default=True, timeout_s=0.05)
        return await write(cleaned, n, ok)

    return report


def done(run: Run[Any]) -> Run[Any]:
    run.wait(timeout=20)
    return run


def test_a_fork_from_a_node_runs_it_and_what_came_after(report: WorkflowDefinition[Any, Any], effects: Effects) -> None:
    """The rest is answered from the records; the source stays as it is."""
    first = done(report.start())
    before = len(first.events())
    forked = done(first.fork(from_node="clean", fresh=True))
    assert forked.value == first.value
    assert effects() == ["fetch 3", "clean", "count", "write", "clean", "write"] or effects() == [
        "fetch 3", "count", "clean", "write", "clean", "write",
    ]  # fmt: skip
    assert forked.view.nodes[first["fetch"].id].copied and forked.view.nodes[first["fetch"].id].from_journal
    assert not forked.view.nodes[first["clean"].id].copied
    assert (forked.view.forked_from, forked.view.forked_at) == (first.id, "clean")
    assert forked.how.endswith("at clean: 2 records kept, 3 run again")
    assert len(first.events()) == before, "nothing is written to the source"
    assert forked.output() == ["begins"], "the body says it again, once"


def test_a_fork_without_a_node_repeats_nothing(report: WorkflowDefinition[Any, Any], effects: Effects) -> None:
    """Every call with the same arguments is answered."""
    first = done(report.start())
    n = len(effects())
    assert done(first.fork()).value == first.value
    assert len(effects()) == n


def test_other_inputs_run_what_depends_on_them(report: WorkflowDefinition[Any, Any], effects: Effects) -> None:
    """Calls with other arguments run without a question, and the copies nobody asked for are no part of the fork."""
    first = done(report.start())
    forked = done(first.fork(inputs={"limit": 2}))
    assert forked.inputs == {"limit": 2}
    assert forked.value == "[1] of 2"
    assert effects()[4:].count("fetch 2") == 1
    assert len(forked.nodes()) == len(first.nodes())
    (question,) = [n for n in forked.nodes() if n.kind == "prompt"]
    assert {forked.view.nodes[p].name for p in question.view.parents} == {"clean", "count"}, "those of this run"
    assert forked.view.drift == [], "what it never asked for is no part of it"
    with pytest.raises(InputError, match="lmit"):
        first.fork(inputs={"lmit": 2})


def test_another_answer_runs_what_came_after_the_question(
    report: WorkflowDefinition[Any, Any], effects: Effects
) -> None:
    """The question counts as answered so, by whoever forks; an answer that does not fit makes no run."""
    first = done(report.start())
    n = len(effects())
    forked = done(first.fork(answers={"go": "no"}))
    assert forked.value == "nothing"
    assert effects()[n:] == ["write"]
    assert forked["go"].value is False
    assert forked.view.nodes[forked["go"].id].answered_by == "demo.ipynb"
    with pytest.raises(AnswerError):
        first.fork(answers={"go": "perhaps"}, fresh=True)


def test_an_answer_to_a_question_that_is_asked_again_is_given_beforehand(runtime: Runtime) -> None:
    """Also to one that the source never asked."""

    @step
    def look(n: int) -> int:
        return n

    @workflow
    async def asking(ctx: Context) -> list[Any]:
        await look(1)
        first = await ctx.ui.input("Name?", name="name")
        return [first, await ctx.ui.confirm("Sure?", name="sure")]

    run = asking.start()
    run.answer("Ada", prompt="name")
    until(lambda: [p.prompt for p in run.prompts()] == ["sure"])
    forked = run.fork(from_node="look", answers={"name": "Bob", "sure": True}, fresh=True)
    assert done(forked).value == ["Bob", True]
    run.cancel()


def test_a_failed_run_is_forked_before_its_failure(runtime: Runtime, effects: Effects) -> None:
    """What failed runs again in the fork; the failure that the body passed is answered."""
    broken = [True]

    @step
    def passed() -> None:
        effects("passed")
        raise ValueError("expected")

    @step
    def last() -> str:
        effects("last")
        if broken[0]:
            raise RuntimeError("no")
        return "yes"

    @workflow
    async def failing(ctx: Context) -> str:
        try:
            await passed()
        except ValueError:
            pass
        return await last()

    run = failing.start()
    run.settle(timeout=20)
    broken[0] = False
    forked = done(run.fork())
    assert forked.value == "yes"
    assert effects() == ["passed", "last", "last"]
    assert [(n.name, n.status, n.view.copied) for n in forked.nodes()] == [
        ("passed", "failed", True), ("last", "completed", False),
    ]  # fmt: skip


@pytest.fixture
def nested(runtime: Runtime, effects: Effects) -> WorkflowDefinition[Any, Any]:
    """before → child(one → two) → last."""

    @step
    def one() -> int:
        effects("one")
        return 1

    @step
    def two(n: int) -> int:
        effects("two")
        return n + 1

    @step
    def before() -> int:
        effects("before")
        return 0

    @step
    def last(n: int) -> int:
        effects("last")
        return n

    @workflow
    async def child(ctx: Context) -> int:
        return await two(await one())

    @workflow
    async def parent(ctx: Context) -> int:
        await before()
        found = await ctx.workflow(child, inputs={}, stage_name="sub")
        return await last(found.result)

    return parent


def test_a_fork_from_a_childs_node_keeps_what_the_child_did_before(
    nested: WorkflowDefinition[Any, Any], effects: Effects
) -> None:
    """The child is forked with its parent, and only its own tail runs again."""
    first = done(nested.start())
    forked = done(first.fork(from_node="sub/two", fresh=True))
    assert forked.value == 2
    assert effects() == ["before", "one", "two", "last", "two", "last"]
    assert forked["sub/one"]._run.id != first["sub/one"]._run.id
    assert forked["sub/one"]._run.view.forked_from == first["sub/one"]._run.id
    assert first["sub/two"].path == "sub/two"
    again = done(first.fork(from_node=first["sub/two"], fresh=True))
    assert again.value == 2


def test_a_fork_from_a_child_starts_it_anew(nested: WorkflowDefinition[Any, Any], effects: Effects) -> None:
    """The child as a whole is the point; a child that is kept is shared, not copied."""
    first = done(nested.start())
    done(first.fork(from_node="sub", fresh=True))
    assert effects()[4:] == ["one", "two", "last"]
    shared = done(first.fork(from_node="last", fresh=True))
    assert effects()[7:] == ["last"]
    assert shared["sub/one"]._run.id == first["sub/one"]._run.id


def test_an_answer_in_a_child(runtime: Runtime, effects: Effects) -> None:
    """By its path; what came after it in the child, and after the child, runs again."""

    @step
    def note(text: str) -> str:
        effects(text)
        return text

    @workflow
    async def child(ctx: Context) -> str:
        await note("first")
        return "yes" if await ctx.ui.confirm("Go?", name="go") else "no"

    @workflow
    async def parent(ctx: Context) -> str:
        found = await ctx.workflow(child, inputs={}, stage_name="sub")
        return await note(f"said {found.result}")

    run = parent.start()
    until(run.prompts)
    run.answer(True)
    done(run)
    forked = done(run.fork(answers={"sub/go": False}))
    assert forked.value == "said no"
    assert effects() == ["first", "said yes", "said no"]
    with pytest.raises(ForkError, match="started anew"):
        run.fork(from_node="sub", answers={"sub/go": False}, fresh=True)


def test_secret_inputs_are_asked_for_again(runtime: Runtime) -> None:
    """They are not stored, so a fork cannot have them."""

    @step
    def use(n: int) -> int:
        return n

    @workflow
    async def secretive(ctx: Context, token: SecretStr, n: int = 1) -> str:
        await use(n)
        return token.get_secret_value()[:1]

    run = done(secretive.start(token=SecretStr("abc")))
    with pytest.raises(InputError, match="token: a secret, which is not stored; give it again"):
        run.fork(from_node="use")
    assert done(run.fork(from_node="use", secrets={"token": SecretStr("abc")})).value == "a"
    forked = done(run.fork(inputs={"token": SecretStr("xyz"), "n": 2}))
    assert forked.value == "x"
    assert b"xyz" not in b"".join(entry.payload for entry in forked.events())


def test_values_that_a_body_recorded_before_the_point_are_kept(runtime: Runtime) -> None:
    """Those after it are made anew; what ``ctx.put`` kept is there."""

    @step
    def mark(n: int) -> int:
        return n

    @workflow
    async def valued(ctx: Context) -> list[Any]:
        early = ctx.random()
        await ctx.put("table", [1])
        await mark(1)
        late = ctx.random()
        await mark(2)
        return [early, late, ctx.get("table")]

    first = done(valued.start())
    forked = done(first.fork(from_node="mark#1"))
    assert forked.value[0] == first.value[0]
    assert forked.value[1] != first.value[1]
    assert forked.value[2] == [1]


def test_calls_known_by_their_name_alone_run_again_with_other_inputs(runtime: Runtime, effects: Effects) -> None:
    """Nobody can tell what an inline step depends on."""

    @workflow
    async def inline(ctx: Context, n: int = 1) -> int:
        def load() -> int:
            effects("load")
            return n * 10

        return await ctx.step("load", load)

    first = done(inline.start())
    assert done(first.fork(inputs={"n": 2})).value == 20
    assert done(first.fork(fresh=True)).value == 10
    assert effects() == ["load", "load"]


def test_a_wrong_node_is_one_sentence(report: WorkflowDefinition[Any, Any]) -> None:
    """Unknown and ambiguous ones."""
    run = done(report.start())
    with pytest.raises(ForkError, match="no node named 'fetsh'; there are fetch, "):
        run.fork(from_node="fetsh")
    with pytest.raises(ForkError, match="no node named 'fetch/x'"):
        run.fork(from_node="fetch/x")


def test_a_fork_that_was_interrupted_goes_on_without_a_question(
    make_runtime: Callable[..., Runtime], effects: Effects
) -> None:
    """What the body calls otherwise than the copies say is no mismatch, also after a restart."""
    make_runtime()
    hold = [True]

    @step
    def part(n: int, limit: int) -> int:
        effects(f"{n} {limit}")
        return n

    @workflow
    async def parts(ctx: Context, limit: int = 1) -> int:
        await part(1, limit)
        if hold[0] and limit == 2:
            await ctx.sleep("long", 3600)
        await part(2, limit)
        return limit

    first = done(parts.start())
    forked = first.fork(inputs={"limit": 2})
    until(lambda: any(n.kind == "sleep" for n in forked.nodes()))
    forked.stop()
    forked.settle(timeout=20)
    hold[0] = False
    assert done(forked.resume()).value == 2
    assert effects() == ["1 1", "2 1", "1 2", "2 2"]


def test_a_fork_whose_making_was_broken_off_is_never_executed(
    runtime: Runtime, report: WorkflowDefinition[Any, Any], journal: MemoryRunJournal
) -> None:
    """Records are missing, so that it would do finished work again."""
    run = done(report.start())

    async def half() -> None:
        await journal.create_run(RunId("half"), RunCreated(workflow="report", forked_from=run.id))

    runtime.loop.call(half, "x", "x")
    with pytest.raises(ResumeError, match="was broken off"):
        runtime.resume("half")
    assert any(isinstance(e.event, RunForked) for e in done(run.fork()).events())


def test_executing_the_cell_again_attaches_to_the_unfinished_fork(runtime: Runtime, host: Any) -> None:
    """A fork is found like a start; a start never finds a fork."""

    @step
    def look(n: int) -> int:
        return n

    @workflow
    async def asking(ctx: Context) -> bool:
        await look(1)
        return await ctx.ui.confirm("Go?", name="go")

    run = asking.start()
    until(run.prompts)
    run.answer(True)
    done(run)
    host.cell = "cell-2"
    forked = run.fork(from_node="go")
    host.execution = "2"
    assert run.fork(from_node="go") is forked
    assert "attached to" in host.shown[-1][1]
    assert run.fork(from_node="look") is not forked
    host.execution = "3"
    assert asking.start() is not forked


def test_a_fork_of_a_fork(report: WorkflowDefinition[Any, Any], effects: Effects) -> None:
    """It has the copies of copies, and goes on from a node of its source."""
    first = done(report.start())
    second = done(first.fork(inputs={"limit": 2}))
    n = len(effects())
    third = done(second.fork(from_node="write"))
    assert third.value == "[1] of 2"
    assert effects()[n:] == ["write"]
    assert [p.name for p in third.nodes()] == [p.name for p in second.nodes()]
