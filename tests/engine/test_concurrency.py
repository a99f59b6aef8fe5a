"""Calls side by side: asyncio's own tools, ``ctx.parallel`` and ``ctx.map``, and the graph that comes of it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from loom_kernel import events as ev
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import step
from loom_kernel.authoring.workflow import define
from loom_kernel.errors import DefinitionError, ParallelFailure
from loom_kernel.views.run import RunView
from tests.engine.harness import World, asked, events_of, nodes, parents, rest, types_of, until

pytestmark = pytest.mark.timeout(30)


def plain(execution: Any) -> dict[str, list[str]]:
    """The graph, with readable names: ``work(1)`` for the call of ``work`` with argument 1."""
    names: dict[str, str] = {}
    for entry in execution.entries:
        if entry.type == "node.started":
            import msgspec

            args = msgspec.json.decode(bytes(entry.event.args)) or {}
            names[entry.node_id] = f"{entry.event.name}({','.join(str(v) for v in args.values())})"
    found = {names[n]: sorted(names.get(p, p) for p in ps) for n, ps in parents(execution).items()}
    return dict(sorted(found.items()))


@step
async def work(n: Any) -> Any:
    await asyncio.sleep(0)
    return n


def test_asyncios_own_tools_take_calls() -> None:
    """gather, TaskGroup, wait_for, as_completed, shield, create_task and wait all work with calls."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> list[Any]:
            got: list[Any] = list(await asyncio.gather(work(1), work(2)))
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(work(n)) for n in (3, 4)]
            got += [t.result() for t in tasks]
            got.append(await asyncio.wait_for(work(5), 5))
            got += sorted([await f for f in asyncio.as_completed([work(6), work(7)])])
            got.append(await asyncio.shield(work(8)))
            task = asyncio.create_task(work(9))
            done, _ = await asyncio.wait({task})
            got.append(done.pop().result())
            return got

        assert (await world.run(body)).result == [1, 2, 3, 4, 5, 6, 7, 8, 9]
        await world.close()

    asyncio.run(main())


def test_a_task_group_cancels_siblings_of_a_failure() -> None:
    """The failure comes out as asyncio says; the sibling's node is cancelled and runs again on resume."""

    async def main() -> None:
        world = World()
        again = False

        @step
        async def bad() -> int:
            world.did("bad")
            if not again:
                await asyncio.sleep(0.01)
                raise OSError("down")
            return 1

        @step
        async def slow() -> int:
            world.did("slow")
            if not again:
                await asyncio.sleep(60)
            return 2

        async def body(ctx: Context) -> int:
            async with asyncio.TaskGroup() as group:
                a, b = group.create_task(bad()), group.create_task(slow())
            return a.result() + b.result()

        execution = await world.start(body)
        result = await rest(execution)
        assert result.status == "failed" and isinstance(result.error, ExceptionGroup)
        assert events_of(execution, ev.RunEnded)[0].failed_node_id.startswith("step:bad:")
        assert nodes(execution, ev.NodeCancelled) == ["slow"]
        again = True
        assert (await rest(await world.resume(execution.run_id, body))).result == 3
        assert world.effects == {"bad": 2, "slow": 2}
        await world.close()

    asyncio.run(main())


def test_wait_for_cancels_a_step_and_the_body_goes_on() -> None:
    """The cancelled call is recorded as such, and its next call is another."""

    async def main() -> None:
        world = World()

        @step
        async def slow() -> str:
            world.did("slow")
            if world.effects["slow"] == 1:
                await asyncio.sleep(60)
            return "done"

        async def body(ctx: Context) -> str:
            try:
                return await asyncio.wait_for(slow(), 0.02)
            except TimeoutError:
                return await slow()

        execution = await world.start(body)
        assert (await rest(execution)).result == "done"
        assert types_of(execution).count("node.cancelled") == 1
        await world.close()

    asyncio.run(main())


def test_the_graph_of_a_fan_out_and_a_join() -> None:
    """Calls in a gather hang below what came before; what follows hangs below all of them."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> None:
            await work("read")
            await asyncio.gather(*(work(n) for n in range(3)))
            await work("join")

        execution = await world.start(body)
        await rest(execution)
        assert plain(execution) == {
            "work(0)": ["work(read)"],
            "work(1)": ["work(read)"],
            "work(2)": ["work(read)"],
            "work(join)": ["work(0)", "work(1)", "work(2)"],
            "work(read)": [],
        }
        await world.close()

    asyncio.run(main())


def test_pipelines_side_by_side_are_lines() -> None:
    """Each coroutine of a gather is a branch; its calls hang on its own, whatever the timing."""

    async def main() -> None:
        world = World()

        async def line(name: str) -> None:
            await work(f"{name}1")
            await work(f"{name}2")

        async def body(ctx: Context) -> None:
            await work("root")
            await asyncio.gather(line("a"), line("b"))
            await work("end")

        execution = await world.start(body)
        await rest(execution)
        graph = plain(execution)
        assert graph["work(a1)"] == graph["work(b1)"] == ["work(root)"]
        assert graph["work(a2)"] == ["work(a1)"] and graph["work(b2)"] == ["work(b1)"]
        assert graph["work(end)"] == ["work(a2)", "work(b2)"]
        await world.close()

    asyncio.run(main())


def test_the_graph_is_the_same_after_a_restart_in_the_middle_of_a_fan_out() -> None:
    """The join hangs on all branches, also on those that the journal answered."""

    async def main() -> None:
        world = World()
        block = asyncio.Event()

        @step
        async def part(n: int) -> int:
            if n == 1:
                await block.wait()
            return n

        async def body(ctx: Context) -> None:
            await work("root")
            await asyncio.gather(*(part(n) for n in range(3)))
            await work("join")

        execution = await world.start(body)
        await until(lambda: types_of(execution).count("node.completed") == 3)
        await world.restart()
        block.set()
        execution = await world.resume(execution.run_id, body)
        await rest(execution)
        graph = plain(execution)
        assert graph["work(join)"] == ["part(0)", "part(1)", "part(2)"]
        assert graph["part(1)"] == ["work(root)"]
        await world.close()

    asyncio.run(main())


def test_whoever_ended_first_ends_first_after_a_restart() -> None:
    """A body that acts on the first of two acts on the same one when the journal answers both."""

    async def main() -> None:
        world = World()
        winners: list[str] = []
        order = ["b", "a"]
        turn = asyncio.Condition()

        @step
        async def racer(name: str) -> str:
            world.did(name)
            async with turn:
                await turn.wait_for(lambda: order[0] == name)
                order.pop(0)
                turn.notify_all()
            return name

        async def body(ctx: Context) -> str:
            tasks = [asyncio.create_task(racer(n)) for n in "ab"]
            done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            winners.append(",".join(sorted(t.result() for t in done)))
            if pending:
                await asyncio.wait(pending)
            await work(winners[-1])
            await ctx.ui.confirm("Go on?", name="go")
            return winners[-1]

        execution = await world.start(body)
        await asked(execution)
        for n in (2, 3):
            await world.restart()
            execution = await world.resume(execution.run_id, body)
            await until(lambda n=n: len(winners) == n)
        await world.answer(execution, True)
        assert (await rest(execution)).result == "b"
        assert winners == ["b", "b", "b"] and world.effects == {"a": 1, "b": 1}
        await world.close()

    asyncio.run(main())


# ---------------------------------------------------------------- parallel and map


def test_parallel_bounds_and_orders() -> None:
    """At most so many at once, results in the order of the items, one frontier for all."""

    async def main() -> None:
        world = World()
        now = most = 0

        @step
        async def part(n: int) -> int:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.002 * (5 - n))
            now -= 1
            return n

        async def line(n: int) -> int:
            return await part(n) + await work(n)

        async def body(ctx: Context) -> list[int]:
            await work("root")
            got = await ctx.parallel([part(n) for n in range(4)], concurrency=2)
            got += await ctx.parallel([line(4), line(5)], concurrency=1)
            await work("end")
            return got

        execution = await world.start(body)
        assert (await rest(execution)).result == [0, 1, 2, 3, 8, 10]
        assert most == 2
        graph = plain(execution)
        assert graph["part(0)"] == graph["part(3)"] == ["work(root)"]
        assert graph["part(4)"] == graph["part(5)"] == ["part(0)", "part(1)", "part(2)", "part(3)"]
        assert graph["work(end)"] == ["work(4)", "work(5)"]
        await world.close()

    asyncio.run(main())


def test_fail_fast_ends_the_siblings_and_begins_no_more() -> None:
    """The first failure comes out; who is at work is cancelled, who waits never starts."""

    async def main() -> None:
        world = World()

        @step
        async def part(n: int) -> int:
            world.did(f"part {n}")
            if n == 0:
                await asyncio.sleep(0.01)
                raise OSError("down")
            await asyncio.sleep(60)
            return n

        async def body(ctx: Context) -> str:
            try:
                await ctx.parallel([part(n) for n in range(6)], concurrency=3)
            except OSError as error:
                await work("after")
                return str(error)
            return ""

        execution = await world.start(body)
        assert (await rest(execution)).result == "down"
        assert sorted(world.effects) == ["part 0", "part 1", "part 2"]
        assert types_of(execution).count("node.cancelled") == 2
        await world.close()

    asyncio.run(main())


def test_without_fail_fast_all_settle_and_what_there_is_is_given() -> None:
    """ParallelFailure carries the errors and the results in their places."""

    async def main() -> None:
        world = World()

        @step
        async def part(n: int) -> int:
            if n % 2:
                raise ValueError(str(n))
            return n

        async def body(ctx: Context) -> list[Any]:
            try:
                await ctx.parallel([part(n) for n in range(4)], fail_fast=False)
            except ParallelFailure as failure:
                return [[str(e) for e in failure.errors], failure.partial_results]
            return []

        assert (await world.run(body)).result == [["1", "3"], [0, None, 2, None]]
        await world.close()

    asyncio.run(main())


def test_an_exit_in_a_branch_begins_no_queued_work() -> None:
    """Also with fail_fast=False, an exit ends the set."""

    async def main() -> None:
        world = World()

        async def leave(ctx: Context) -> None:
            ctx.exit("skipped", reason="enough")

        async def other() -> Any:
            world.did("queued")
            return await work(1)

        async def body(ctx: Context) -> None:
            queued = [other() for _ in range(3)]
            await ctx.parallel([leave(ctx), *queued], concurrency=1, fail_fast=False)

        execution = await world.start(body)
        assert (await rest(execution)).exit_reason == "enough"
        assert not world.effects and nodes(execution) == []
        await world.close()

    asyncio.run(main())


def test_map_calls_a_step_for_every_item() -> None:
    """Results in the items' order; another executor and a bound may be named; what is no step is refused."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> list[Any]:
            with pytest.raises(DefinitionError, match="a @step"):
                ctx.map(len, [[1]])  # type: ignore[arg-type]
            with pytest.raises(DefinitionError, match="dask"):
                ctx.map(work, [1], executor="dask")
            with pytest.raises(DefinitionError, match="concurrency=0"):
                ctx.map(work, [1], concurrency=0)
            with pytest.raises(DefinitionError, match="item 0 is a int"):
                ctx.parallel([1])  # type: ignore[list-item]
            return [*await ctx.map(work, range(5), concurrency=2), *await ctx.map(work, [])]

        with pytest.warns(RuntimeWarning):  # the call that was refused with concurrency=0
            assert (await world.run(body)).result == [0, 1, 2, 3, 4]
        await world.close()

    asyncio.run(main())


def test_two_runs_share_the_loop_and_do_not_mix() -> None:
    """Runs of one engine side by side keep their own keys, branches and logs."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context, n: int) -> list[Any]:
            return [await work(n), *await asyncio.gather(*(work(n * 100 + i) for i in range(5)))]

        executions = [await world.start(define(body), n=n) for n in range(5)]
        results = [await rest(execution) for execution in executions]
        assert [r.result[0] for r in results] == list(range(5))
        for n, execution in enumerate(executions):
            assert plain(execution)[f"work({n * 100 + 1})"] == [f"work({n})"]
        await world.close()

    asyncio.run(main())


# ---------------------------------------------------------------- cost


def test_a_thousand_steps_are_quick_and_cost_grows_in_line() -> None:
    """A wide fan-out after another stays linear in events and in time (generous, for a busy machine)."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context, n: int) -> int:
            await asyncio.gather(*(work(("a", i)) for i in range(n)))
            await asyncio.gather(*(work(("b", i)) for i in range(n)))
            await asyncio.gather(*(pipeline(i) for i in range(n)))
            return n

        async def pipeline(i: int) -> None:
            await work(("c", i))
            await work(("d", i))

        execution = await world.start(body, n=1000)
        began = time.process_time()
        assert (await rest(execution, 25)).result == 1000
        assert time.process_time() - began < 5
        seen = RunView.of(execution.entries)
        below = [node.parents for node in seen.nodes.values() if node.parents]
        assert sum(len(p) == 1000 for p in below) >= 2000 and len({id(p) for p in below if len(p) == 1000}) == 2
        size = sum(len(entry.payload) for entry in execution.entries)
        assert size < 3_500_000, "the parents of a thousand nodes are not listed a thousand times"
        await world.close()

    asyncio.run(main())


def test_names_that_may_come_are_announced_and_change_nothing_else() -> None:
    """``possible_stage_names``: told when the branches begin and when they have settled, in each execution; no key,
    result or parent knows of it, also not that of a run that was started without them."""

    async def main() -> None:
        world = World()
        names: list[str] | None = None
        goes_on = asyncio.Event()

        @step
        async def part(n: int) -> int:
            world.did(f"part {n}")
            if n == 2:
                await goes_on.wait()
            return n

        async def body(ctx: Context) -> list[int]:
            await work("root")
            for wrong in ("part", ["part", ""], [1], {"part"}):
                with pytest.raises(DefinitionError, match="possible_stage_names"):
                    ctx.parallel([part(9)], possible_stage_names=wrong)  # type: ignore[arg-type]
            got = await ctx.parallel([part(n) for n in (1, 2)], possible_stage_names=names)
            return [*got, await work(3)]

        plainly = await world.start(define(body))
        await until(lambda: world.effects["part 2"])
        assert not events_of(plainly, ev.BranchesAnnounced)
        before = parents(plainly)
        await world.restart()
        names = ["part", "never-*"]
        execution = await world.resume(plainly.run_id, define(body))
        announced = await until(lambda: events_of(execution, ev.BranchesAnnounced))
        assert [(e.names, len(e.parents)) for e in announced] == [(names, 1)]
        assert [n.name for n in RunView.of(execution.entries).expected] == ["never-*"]
        assert not events_of(execution, ev.BranchesSettled)
        goes_on.set()
        assert (await rest(execution)).result == [1, 2, 3]
        assert [e.index for e in events_of(execution, ev.BranchesSettled)] == [1]
        assert RunView.of(execution.entries).expected == [] and world.effects == {"part 1": 1, "part 2": 2}
        assert before.items() <= parents(execution).items()
        await world.close()

    asyncio.run(main())


def test_branches_that_were_announced_are_over_when_one_of_them_fails() -> None:
    """A body that goes on after the failure has nothing to expect of them."""

    async def main() -> None:
        world = World()

        @step
        async def fails() -> None:
            raise OSError("down")

        async def body(ctx: Context) -> bool:
            with pytest.raises(OSError, match="down"):
                await ctx.parallel([fails()], possible_stage_names=["later"])
            return await ctx.ui.confirm("Go on?", name="go")

        execution = await world.start(body)
        await asked(execution)
        assert [e.index for e in events_of(execution, ev.BranchesSettled)] == [1]
        assert not RunView.of(execution.entries).expected
        await world.answer(execution, True)
        assert (await rest(execution)).result is True
        await world.close()

    asyncio.run(main())
