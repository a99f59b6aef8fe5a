"""Failures that people met elsewhere, items 1 to 29 and 44 to 60 of our list of them: those without a room of their own.

Where an item speaks of a model's stage, the property is shown with steps, tools and children, which are what may be
interrupted, fail or be repeated here. `docs/coverage.md` says which test shows which of the others.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest

from loom_kernel import events as ev
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import step
from loom_kernel.authoring.workflow import define
from loom_kernel.errors import (
    ChildWorkflowError,
    DefinitionError,
    InputError,
    ParallelFailure,
    PromptTimeout,
    StepTimeout,
    StorageUnavailableError,
    ValueNotStorableError,
)
from loom_kernel.journal.abc import Append, Lease
from loom_kernel.journal.memory_store import MemoryRunJournal
from loom_kernel.views.run import RunView
from loom_kernel.views.snapshot import snapshot
from loom_kernel.views.svg import svg
from loom_kernel.views.text import bundle
from tests.engine.harness import (
    DyingJournal,
    World,
    asked,
    entries_of,
    events_of,
    nodes,
    parents,
    rest,
    types_of,
    until,
)

pytestmark = pytest.mark.timeout(30)


def known(node_ids: list[str]) -> list[str]:
    """Names of nodes."""
    return sorted(node_id.split(":")[1] for node_id in node_ids)


def types_of_run(journal: MemoryRunJournal, run_id: str) -> list[str]:
    return [entry.type for entry in entries_of(journal, run_id)]


# ---------------------------------------------------------------- replay and resume


def test_after_a_finished_parallel_the_next_call_comes_after_all_its_branches() -> None:
    """Spec 5.1: a run that stopped behind a whole fan-out goes on there; the frontier is all branches, not a mismatch."""

    async def main() -> None:
        world = World()
        goes_on = asyncio.Event()

        def branch(name: str) -> Any:
            @step(name=name)
            async def part() -> str:
                world.did(name)
                return name

            return part()

        @step
        async def join() -> str:
            await goes_on.wait()
            return "joined"

        async def body(ctx: Context) -> list[str]:
            got = await ctx.parallel([branch(name) for name in ("left", "middle", "right")])
            return [*got, await join()]

        definition = define(body)
        execution = await world.start(definition)
        await until(lambda: "join" in nodes(execution))
        before = parents(execution)
        await world.restart()
        goes_on.set()
        again = await world.resume(execution.run_id, definition)
        assert (await rest(again)).result == ["left", "middle", "right", "joined"]
        assert parents(again) == before
        [join_id] = [node_id for node_id in before if ":join:" in node_id]
        assert known(before[join_id]) == ["left", "middle", "right"]
        assert world.effects == {"left": 1, "middle": 1, "right": 1} and "run.paused" not in types_of(again)
        await world.close()

    asyncio.run(main())


def test_a_result_that_could_not_be_written_is_not_there_in_the_same_process_either() -> None:
    """Spec 5.3: what the journal refused answers nobody: resumed by the same engine, the step runs again."""

    async def main() -> None:
        journal = DyingJournal()
        world = World(journal=journal)

        @step
        async def work() -> int:
            world.did("work")
            journal.left = 0 if world.effects["work"] == 1 else None  # its start was written, its result is not
            return world.effects["work"]

        async def body(ctx: Context) -> int:
            return await work()

        definition = define(body)
        execution = await world.start(definition)
        with pytest.raises(StorageUnavailableError):
            await rest(execution)
        assert "node.completed" not in types_of(execution)
        journal.revive()
        again = await world.resume(execution.run_id, definition)
        assert (await rest(again)).result == 2 and types_of(again).count("node.completed") == 1
        await world.close()

    asyncio.run(main())


def test_every_primitive_of_a_body_replays() -> None:
    """Spec 5.4: steps, tools, inline steps, maps, parallels, children, questions, sleeps, kept and recorded values, output."""

    async def main() -> None:
        world, seen = World(), list[list[Any]]()
        goes_on = asyncio.Event()

        @step
        async def work(n: int) -> int:
            world.did(f"step {n}")
            return n

        @step
        def plain(n: int) -> int:
            world.did(f"sync {n}")
            return n

        @step
        async def last() -> None:
            await goes_on.wait()

        def tool(args: int) -> int:
            world.did("tool")
            return args

        async def inline() -> str:
            world.did("inline")
            return "in"

        async def inner(ctx: Context, n: int) -> int:
            return await work(n) + await ctx.tool("inner tool", n, tool)

        child = define(inner)

        async def body(ctx: Context) -> list[Any]:
            got: list[Any] = [await work(1), await plain(2), await ctx.tool("tool", 3, tool)]
            got += [await ctx.step("inline", inline), await ctx.map(work, [4, 5])]
            got += [await ctx.parallel([work(6), plain(7)]), (await ctx.workflow(child, inputs={"n": 8})).result]
            got.append(await ctx.ui.confirm("Go on?", name="go"))
            await ctx.sleep("nap", timedelta(milliseconds=1))
            await ctx.put("kept", {"n": 9})
            got += [ctx.get("kept"), ctx.now(), ctx.random(), ctx.uuid4()]
            ctx.report("said")
            ctx.emit("lines", 10)
            seen.append(got)
            await last()
            return [str(one) for one in got]

        definition = define(body)
        execution = await world.start(definition)
        await world.answer(execution, True)
        await until(lambda: "last" in nodes(execution))
        done = world.effects.copy()
        await world.restart()
        goes_on.set()
        again = await world.resume(execution.run_id, definition)
        assert (await rest(again)).status == "completed"
        assert seen[0] == seen[1] and world.effects == done
        assert all(count == 1 for what, count in done.items() if what != "tool") and done["tool"] == 2
        for once in (ev.ValueRecorded, ev.OutputReported, ev.PromptOpened, ev.PromptAnswered):
            kept = [(e.node_id, e.key) for e in again.entries if e.type == once.type]
            assert kept and len(kept) == len(set(kept)), once
        assert nodes(again, ev.NodeCompleted).count("nap") == 1
        await world.close()

    asyncio.run(main())


@pytest.mark.parametrize("then", ["gives what it has", "raises another error"])
@pytest.mark.parametrize("how", ["stop", "abort", "exit", "timeout"])
def test_what_an_interrupted_step_had_so_far_is_no_result(how: str, then: str) -> None:
    """Spec 5.12: a step that catches its end and gives what it has so far is not recorded; the next one gets the whole.

    The item is of a model's turn whose partial text became the next stage's ``{previous}``. What it raises instead of
    the cancellation is no failure of its own, also with ``failure_mode="return"``, which would be replayed.
    """

    async def main() -> None:
        world, got = World(), list[str]()

        async def write(args: Any) -> str:
            text = ""
            for word in ("one", "two"):
                text += word
                try:
                    if not got:
                        got.append("begun")
                        await asyncio.sleep(60)
                except asyncio.CancelledError:  # what a careless author does
                    if then == "gives what it has":
                        return text
                    raise ValueError(text) from None
            return text

        @step
        async def follow(previous: str) -> str:
            got.append(previous)
            return previous

        async def leave(ctx: Context) -> None:
            await until(lambda: got)
            world.did("leave")
            if how == "exit" and world.effects["leave"] == 1:
                ctx.exit("failed", reason="enough", resumable=True)

        async def body(ctx: Context) -> str:
            patience = 0.05 if how == "timeout" and not got else None
            mode: Any = "return" if how != "timeout" else "throw"
            writing = ctx.tool("write", {}, write, failure_mode=mode, timeout_s=patience)
            text, _ = await asyncio.gather(writing, leave(ctx))
            return await follow(text["value"] if how != "timeout" else text)

        definition = define(body)
        execution = await world.start(definition)
        await until(lambda: got and "node.started" in types_of(execution))
        if how == "stop":
            await world.post(execution.run_id, ev.StopRequested())
        elif how == "abort":
            node_id = execution.calls[0].node_id
            await world.journal.post(execution.run_id, Append(ev.AbortRequested(by="ann"), node_id, None))
        result = await rest(execution)
        assert result.status == ("paused" if how == "stop" else "failed") and got == ["begun"]
        assert "node.completed" not in types_of(execution)
        assert types_of(execution).count("node.failed") == (how == "timeout")
        if how == "timeout" and then == "gives what it has":
            assert isinstance(result.error, StepTimeout)
        again = await rest(await world.resume(execution.run_id, definition))
        assert again.result == "onetwo" and got == ["begun", "onetwo"]
        await world.close()

    asyncio.run(main())


def test_an_interrupted_step_is_not_completed_and_the_next_one_does_not_begin() -> None:
    """Spec 5.14: a kernel that ends in a step leaves it open, in the journal and in the view; a resume does it first."""

    async def main() -> None:
        world = World()
        goes_on = asyncio.Event()

        @step
        async def first() -> int:
            world.did("first")
            await goes_on.wait()
            return 1

        @step
        async def second(n: int) -> int:
            world.did("second")
            assert world.effects["first"] == 2
            return n + 1

        async def body(ctx: Context) -> int:
            return await second(await first())

        definition = define(body)
        execution = await world.start(definition)
        await until(lambda: world.effects["first"] and "node.started" in types_of(execution))
        await world.restart()
        left = RunView.of(entries_of(world.journal, execution.run_id))
        assert [(node.name, node.status) for node in left.nodes.values()] == [("first", "running")]
        assert left.counts.done == 0 and world.effects == {"first": 1}
        goes_on.set()
        again = await world.resume(execution.run_id, definition)
        assert (await rest(again)).result == 2 and world.effects == {"first": 2, "second": 1}
        await world.close()

    asyncio.run(main())


def test_the_end_is_durable_before_anybody_hears_of_it() -> None:
    """Spec 5.15: whoever gets the result finds it in the journal; where it could not be written, nobody gets one."""

    async def main() -> None:
        journal = DyingJournal()
        world = World(journal=journal)

        @step
        async def work() -> int:
            world.did("work")
            return 1

        async def body(ctx: Context) -> int:
            got = await work()
            ctx.report("almost there")
            return got

        definition = define(body)
        whole = await world.start(definition)
        stored: list[str] = []
        whole.result.add_done_callback(lambda _: stored.append(entries_of(journal, whole.run_id)[-1].type))
        await rest(whole)
        await asyncio.sleep(0)
        assert stored == ["run.ended"]

        appends, journal.appends = journal.appends, 0
        journal.left = appends - 1  # all but the last
        execution = await world.start(definition)
        with pytest.raises(StorageUnavailableError):
            await rest(execution)
        summary = await journal.get_run(execution.run_id)
        assert summary is not None and summary.status == "running"
        assert RunView.of(entries_of(journal, execution.run_id)).status == "running"
        journal.revive()
        again = await world.resume(execution.run_id, definition)
        assert (await rest(again)).result == 1
        summary = await journal.get_run(execution.run_id)
        assert summary is not None and summary.status == "completed"
        assert world.effects == {"work": 2}  # once a run
        assert [types_of(again).count(t) for t in ("run.ended", "output.reported")] == [1, 1]
        await world.close()

    asyncio.run(main())


def test_a_child_with_other_inputs_is_not_the_recorded_one() -> None:
    """Spec 5.17: a recorded child is never attached to a call with other inputs; a person decides, and it is another run."""

    async def main() -> None:
        world = World()
        n = 1
        goes_on = asyncio.Event()

        @step
        async def work(n: int) -> int:
            world.did(f"work {n}")
            return n

        @step
        async def after() -> None:
            await goes_on.wait()

        async def inner(ctx: Context, n: int) -> int:
            return await work(n)

        child = define(inner)

        async def body(ctx: Context) -> Any:
            got = (await ctx.workflow(child, inputs={"n": n})).result
            await after()
            return got

        definition = define(body)
        execution = await world.start(definition)
        await until(lambda: "after" in nodes(execution))
        [recorded] = [s.child_run_id for s in events_of(execution, ev.NodeStarted) if s.kind == "workflow"]
        await world.restart()
        n = 2
        goes_on.set()
        result = await rest(await world.resume(execution.run_id, definition))
        assert (result.status, result.reason) == ("paused", "needs_decision") and world.effects == {"work 1": 1}
        again = await world.resume(execution.run_id, definition, accept=True)
        assert (await rest(again)).result == 2 and world.effects == {"work 1": 1, "work 2": 1}
        runs = {s.child_run_id for s in events_of(again, ev.NodeStarted) if s.kind == "workflow"}
        assert recorded in runs and len(runs) == 2
        await world.close()

    asyncio.run(main())


def test_equal_children_side_by_side_keep_their_places_when_they_end_the_other_way_round() -> None:
    """Spec 5.17: of two children with the same inputs, each call gets its own run's result back."""

    async def main() -> None:
        world = World()
        numbers: list[int] = []
        free = [asyncio.Event(), asyncio.Event()]
        goes_on = asyncio.Event()

        @step
        async def number() -> int:
            mine = len(numbers)
            numbers.append(mine)
            await free[mine].wait()
            return mine

        @step
        async def after() -> None:
            await goes_on.wait()

        async def inner(ctx: Context) -> int:
            return await number()

        child = define(inner)

        async def body(ctx: Context) -> list[int]:
            got = await ctx.parallel([ctx.workflow(child), ctx.workflow(child)])
            await after()
            return [one.result for one in got]

        definition = define(body)
        execution = await world.start(definition)
        await until(lambda: len(numbers) == 2)
        free[1].set()
        await until(lambda: nodes(execution, ev.NodeCompleted) == ["inner"])
        free[0].set()
        await until(lambda: "after" in nodes(execution))
        ended = [e.node_id for e in execution.entries if e.type == "node.completed"]
        assert [node_id[-2:] for node_id in ended] == ["#2", "#1"]
        await world.restart()
        goes_on.set()
        assert (await rest(await world.resume(execution.run_id, definition))).result == [0, 1]
        assert numbers == [0, 1]
        await world.close()

    asyncio.run(main())


def test_an_answer_that_may_belong_to_another_question_is_not_used() -> None:
    """Spec 5.18: two questions of one name that changed places are asked again, each, rather than answered crosswise."""

    async def main() -> None:
        world = World()
        texts = ["Delete the old files?", "Publish the new ones?"]

        async def body(ctx: Context) -> list[bool]:
            got = [await ctx.ui.confirm(text, name="sure") for text in texts]
            return [*got, await ctx.ui.confirm("Done?", name="done")]

        definition = define(body)
        execution = await world.start(definition)
        await world.answer(execution, True, "sure")
        await world.answer(execution, False, "sure#2")
        await asked(execution, "done")
        await world.restart()
        texts.reverse()
        again = await world.resume(execution.run_id, definition)
        opened, _ = await asked(again, "sure")
        assert (opened.message, opened.generation) == ("Publish the new ones?", 2)
        await world.answer(again, False, "sure")
        opened, _ = await asked(again, "sure#2")
        assert (opened.message, opened.generation) == ("Delete the old files?", 2)
        await world.answer(again, True, "sure#2")
        await world.answer(again, True, "done")
        assert (await rest(again)).result == [False, True, True]
        await world.close()

    asyncio.run(main())


# ---------------------------------------------------------------- tools


def test_huge_and_hostile_values_leave_a_small_view_that_can_be_drawn() -> None:
    """Spec 5.29: the view keeps short copies, never a slice of the value, and runs none of a value's own code."""

    class Hostile:
        def __repr__(self) -> str:
            raise RuntimeError("no")

        __str__ = __repr__

        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("no")

    round_and_round: dict[str, Any] = {"name": "ring"}
    round_and_round["self"] = round_and_round

    async def main() -> None:
        world = World()

        @step(ignore=("connection", "ring"))
        async def big(text: str, connection: Any, ring: Any) -> list[str]:
            print(f"{len(text)} characters")
            return [text, "</svg><script>\ud800\x00"[:14]]

        async def failing(args: Any) -> None:
            raise ValueError("x" * 3_000_000)

        async def body(ctx: Context) -> int:
            got = await big("a" * 5_000_000, Hostile(), round_and_round)
            deep: Any = 0
            for _ in range(200):
                deep = [deep]
            await ctx.tool("deep", deep, lambda args: None)
            await ctx.tool("failing", {"rows": ["b" * 100] * 10_000}, failing, failure_mode="return")
            return len(got[0])

        execution = await world.start(body)
        assert (await rest(execution)).result == 5_000_000
        view = RunView.of(execution.entries, execution.run_id)
        for node in view.nodes.values():
            assert len(bytes(node.args)) <= 2_000 and len(bytes(node.result)) < 70_000, node.name
        assert sum(len(entry.payload) for entry in execution.entries) < 200_000
        picture = svg(view)
        assert len(picture) < 20_000 and "<script>" not in picture
        assert len(repr(snapshot(view, time.time()))) < 20_000 and bundle(view)
        await world.close()

    asyncio.run(main())


# ---------------------------------------------------------------- parallel, exit, starts, people


def test_branches_that_begin_after_a_failed_sibling_have_the_same_parents() -> None:
    """Spec 5.44: with fail_fast=False queued branches begin later and hang where all do; what follows hangs on all."""

    async def main() -> None:
        world = World()

        def part(n: int) -> Any:
            @step(name=f"part{n}")
            async def one() -> int:
                if n == 0:
                    raise ValueError("no")
                return n

            return one()

        @step
        async def plain() -> None:
            pass

        async def line(n: int) -> int:
            return int(await part(n))

        async def body(ctx: Context) -> Any:
            await plain()
            try:
                await ctx.parallel([line(n) for n in range(3)], concurrency=1, fail_fast=False)
            except ParallelFailure as failure:
                await plain()
                return failure.partial_results
            return None

        execution = await world.start(body)
        assert (await rest(execution)).result == [None, 1, 2]
        [root, *branches, join] = parents(execution).items()
        assert [above for _, above in branches] == [[root[0]]] * 3
        assert sorted(join[1]) == sorted(node_id for node_id, _ in branches)
        await world.close()

    asyncio.run(main())


def test_outputs_that_change_after_an_exit_do_not_change_its_result() -> None:
    """Spec 5.45: an exit in a branch begins no queued work, fail_fast or not; its outputs are those of the call."""

    async def main(fail_fast: bool) -> None:
        world = World()
        outputs: dict[str, Any] = {"found": [1]}

        @step
        async def part(n: int) -> int:
            world.did(f"part {n}")
            return n

        async def leave(ctx: Context) -> None:
            try:
                ctx.exit("completed", reason="enough", outputs=outputs)
            finally:
                outputs["found"].append(2)
                outputs["more"] = True

        async def body(ctx: Context) -> dict[str, Any]:
            try:
                await ctx.parallel([leave(ctx), *(part(n) for n in range(3))], concurrency=1, fail_fast=fail_fast)
            finally:
                outputs.clear()
            return {"found": []}

        execution = await world.start(body)
        result = await rest(execution)
        assert (result.status, result.exit_reason, result.result) == ("completed", "enough", {"found": [1]})
        assert not world.effects and nodes(execution) == []
        [ended] = events_of(execution, ev.RunEnded)
        assert bytes(ended.result) == b'{"found":[1]}'
        await world.close()

    asyncio.run(main(True))
    asyncio.run(main(False))


def test_what_is_wrong_with_a_start_is_raised_by_it_and_leaves_no_run() -> None:
    """Spec 5.52: inputs, values and storage fail the call that starts; there is no run that nobody drives afterwards.

    The item is of a worktree's folder, which is looked at before the run exists when worktrees come.
    """

    async def main() -> None:
        journal = DyingJournal()
        world = World(journal=journal)

        async def body(ctx: Context, n: Any) -> int:
            world.did("body")
            return 1

        definition = define(body)
        for wrong, says in (({}, InputError), ({"n": object()}, ValueNotStorableError), ({"n": 1, "m": 2}, InputError)):
            with pytest.raises(says):
                await world.start(definition, **wrong)
        assert not journal._runs and not world.engine.executions

        await journal.close()
        with pytest.raises(StorageUnavailableError):
            await world.start(definition, n=1)
        assert not world.engine.executions and not world.effects

    asyncio.run(main())


def test_a_start_that_is_broken_off_leaves_no_run_that_nobody_drives() -> None:
    """Spec 5.52: interrupted while the run is being made, it is removed; a resume gives the run back as it was."""

    given_back: list[str] = []

    class Slow(MemoryRunJournal):
        """Takes its time to give a lease, and tells when one is given back."""

        gate: asyncio.Event | None = None

        async def start_run(self, *args: Any) -> Any:
            acquired = await super().start_run(*args)  # it is durable from here on
            if self.gate is not None:
                await self.gate.wait()
            return acquired

        async def acquire(self, *args: Any) -> Any:
            acquired = await super().acquire(*args)
            if self.gate is not None:
                await self.gate.wait()
            return acquired

        async def release(self, lease: Lease) -> None:
            await super().release(lease)
            given_back.append(lease.run_id)

    async def main() -> None:
        journal = Slow()
        world = World(journal=journal)

        async def body(ctx: Context) -> bool:
            return bool(await ctx.ui.confirm("Go on?", name="go"))

        definition = define(body)
        journal.gate = asyncio.Event()
        starting = asyncio.create_task(world.start(definition))
        [run_id] = await until(lambda: list(journal._runs))
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        journal.gate.set()
        await until(lambda: not journal._runs)
        assert await journal.get_run(run_id) is None and not world.engine.executions

        execution = await world.start(definition)
        await asked(execution)
        await world.restart()
        before = types_of_run(journal, execution.run_id)
        given_back.clear()
        journal.gate = asyncio.Event()
        resuming = asyncio.create_task(world.resume(execution.run_id, definition))
        await until(lambda: types_of_run(journal, execution.run_id)[len(before) :] == ["lease.taken"])
        resuming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await resuming
        journal.gate.set()
        await until(lambda: given_back == [execution.run_id])
        assert await journal.lease_state(execution.run_id) is None and not world.engine.executions
        assert types_of_run(journal, execution.run_id)[len(before) :] == ["lease.taken"]
        again = await world.resume(execution.run_id, definition)
        await world.answer(again, True)
        assert (await rest(again)).result is True
        await world.close()

    asyncio.run(main())


def test_a_failure_that_was_passed_is_never_an_approval() -> None:
    """Spec 5.57: neither a reviewer that hangs or fails, nor a question that nobody answers, comes back as a yes.

    The item is of a reviewer whose failure was caught and counted as approval. What the body catches here is a failure,
    now and in every replay; the node has no value.
    """

    async def main() -> None:
        world, heard = World(), list[list[str]]()
        goes_on = asyncio.Event()

        @step(timeout_s=0.02)
        async def hangs() -> bool:
            world.did("hangs")
            await asyncio.sleep(60)
            return True

        @step
        async def fails() -> bool:
            world.did("fails")
            raise RuntimeError("no model")

        @step
        async def after() -> None:
            await goes_on.wait()

        async def inner(ctx: Context) -> bool:
            return await fails()

        child = define(inner)

        async def body(ctx: Context) -> list[str]:
            verdicts: list[str] = []
            for ask in (hangs, fails, lambda: ctx.workflow(child)):
                try:
                    verdicts.append(f"approved {await ask()}")
                except Exception as error:
                    verdicts.append(type(error).__name__)
            try:
                verdicts.append(f"approved {await ctx.ui.confirm('Publish?', name='publish', timeout_s=0.02)}")
            except PromptTimeout:
                verdicts.append("PromptTimeout")
            got = await ctx.tool("review", {}, lambda args: 1 / 0, failure_mode="return")
            assert got["ok"] is False and "value" not in got
            heard.append(verdicts)
            await after()
            return verdicts

        definition = define(body)
        execution = await world.start(definition)
        await until(lambda: "after" in nodes(execution))
        await world.restart()
        goes_on.set()
        again = await world.resume(execution.run_id, definition)
        result = await rest(again)
        assert result.result == ["StepTimeout", "RuntimeError", ChildWorkflowError.__name__, "PromptTimeout"]
        assert heard == [result.result] * 2 and world.effects == {"hangs": 1, "fails": 2}
        view = RunView.of(again.entries)
        for node in view.nodes.values():
            if node.name != "after":
                assert node.status == "failed" and bytes(node.result) == b"null", node.name
        assert not [e for e in events_of(again, ev.NodeCompleted) if bytes(e.result) == b"true"]
        await world.close()

    asyncio.run(main())


def test_a_batch_that_failed_leaves_no_trace_of_progress() -> None:
    """Spec 5.58: what is kept after a fan-out is kept when all of it has succeeded, once, whatever was tried before.

    The item is of an entry of convergence for a batch of reviewers that had failed.
    """

    async def main() -> None:
        world = World()
        broken = True

        @step
        async def review(n: int) -> str:
            world.did(f"review {n}")
            if broken and n == 1:
                raise OSError("down")
            return f"fine {n}"

        async def body(ctx: Context) -> int:
            for turn in range(2):
                verdicts = await ctx.parallel([review(n + 10 * turn) for n in range(3)], fail_fast=False)
                await ctx.put("converged", [turn, *verdicts])
                ctx.emit("ledger", turn)
            return len(ctx.get("converged"))

        definition = define(body)
        execution = await world.start(definition)
        result = await rest(execution)
        assert result.status == "failed" and isinstance(result.error, ParallelFailure)
        assert result.error.partial_results == ["fine 0", None, "fine 2"]
        assert not events_of(execution, ev.ValueRecorded) and not events_of(execution, ev.OutputReported)
        broken = False
        again = await world.resume(execution.run_id, definition)
        assert (await rest(again)).result == 4
        assert [bytes(e.value) for e in events_of(again, ev.ValueRecorded)] == [
            b'[0,"fine 0","fine 1","fine 2"]',
            b'[1,"fine 10","fine 11","fine 12"]',
        ]
        assert [bytes(e.value) for e in events_of(again, ev.OutputReported)] == [b"0", b"1"]
        assert [world.effects[f"review {n}"] for n in range(3)] == [1, 2, 1]
        await world.close()

    asyncio.run(main())


def test_calls_of_one_name_in_one_parallel_replay_each_in_its_place() -> None:
    """Spec 5.59: equal names, equal arguments: whoever was first in the list gets the same result after a restart."""

    async def main() -> None:
        world = World()
        begun: list[int] = []
        goes_on = asyncio.Event()

        async def count(args: Any) -> int:
            mine = len(begun)
            begun.append(mine)
            await asyncio.sleep(0.03 * (3 - mine))  # the last one ends first
            return mine

        @step
        async def after() -> None:
            await goes_on.wait()

        async def body(ctx: Context) -> list[int]:
            got = await ctx.parallel([ctx.tool("twin", {}, count) for _ in range(3)])
            await after()
            return got

        definition = define(body)
        execution = await world.start(definition)
        await until(lambda: "after" in nodes(execution))
        ended = [e.node_id for e in execution.entries if e.type == "node.completed"]
        assert [node_id[-2:] for node_id in ended] == ["#3", "#2", "#1"]
        before = parents(execution)
        await world.restart()
        goes_on.set()
        again = await world.resume(execution.run_id, definition)
        assert (await rest(again)).result == [0, 1, 2] and begun == [0, 1, 2]
        assert parents(again) == before
        await world.close()

    asyncio.run(main())


def test_a_child_is_no_name() -> None:
    """A child workflow is handed over as a definition; a name, a path or a plain mapping is refused at the call."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> int:
            for wrong in ("inner", {"name": "inner"}, body):
                with pytest.raises(DefinitionError, match="takes a @workflow definition"):
                    ctx.workflow(wrong)  # type: ignore[arg-type]
            return 1

        assert (await world.run(body)).result == 1
        await world.close()

    asyncio.run(main())
