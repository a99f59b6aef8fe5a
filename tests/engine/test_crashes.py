"""Random bodies, killed at every write and resumed: the same result, and nothing that was finished runs again."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from loom_kernel import events as ev
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import current_step, step
from loom_kernel.authoring.workflow import WorkflowDefinition, define
from loom_kernel.errors import ChildWorkflowError, StorageUnavailableError
from loom_kernel.journal.abc import Append
from loom_kernel.policies import Retry
from tests.engine.harness import DyingJournal, World, entries_of, rest

Tree = tuple[Any, ...]

_leaf = st.one_of(
    st.tuples(st.just("step"), st.integers(0, 3)),
    st.tuples(st.just("step"), st.integers(0, 3)),
    st.tuples(st.just("sync"), st.integers(0, 3)),
    st.tuples(st.just("tool"), st.integers(0, 2)),
    st.tuples(st.just("inline"), st.integers(0, 2)),
    st.tuples(st.just("flaky"), st.integers(0, 2)),
    st.tuples(st.just("raises"), st.integers(0, 2)),
    st.tuples(st.just("prompt"), st.integers(0, 2)),
    st.tuples(st.just("value")),
    st.tuples(st.just("put"), st.integers(0, 2)),
    st.tuples(st.just("sleep")),
)


def _grow(tree: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    few = st.lists(tree, min_size=1, max_size=3)
    return st.one_of(
        st.tuples(st.just("seq"), few),
        st.tuples(st.just("gather"), few),
        st.tuples(st.just("parallel"), few),
        st.tuples(st.just("loop"), st.integers(1, 2), tree),
        st.tuples(st.just("child"), tree),
        st.tuples(st.just("failing child"), tree),
    )


trees = _grow(st.recursive(_leaf, _grow, max_leaves=6))


class Play:
    """The steps of the bodies, and how often each call of theirs had its effect."""

    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()
        count = self._count

        @step
        async def work(n: int) -> int:
            count()
            return n

        @step
        def sync(n: int) -> int:
            count()
            return n * 10

        @step(retry=Retry(max_attempts=2, interval_s=0))
        async def flaky(n: int) -> int:
            count()
            if current_step().attempt == 1:
                raise OSError("down")
            return n + 100

        @step
        async def raises(n: int) -> int:
            count()
            raise ValueError(str(n))

        self.work, self.sync, self.flaky, self.raises = work, sync, flaky, raises

    def _count(self) -> None:
        me = current_step()
        self.effects[f"{me.run_id} {me.node_id}"] += 1

    def workflow(self, tree: Tree, depth: int = 1, fails: bool = False) -> WorkflowDefinition[..., Any]:
        async def body(ctx: Context) -> Any:
            got = await self.play(ctx, tree, depth)
            if fails:
                raise ValueError(f"failing {got}")
            return got

        # Equal calls may change places after a crash, so what is different has another name.
        return define(body, name=f"level {depth} {zlib.crc32(repr((tree, fails)).encode())}")

    async def play(self, ctx: Context, tree: Tree, depth: int) -> Any:
        match tree:
            case ("step", n):
                return await self.work(n)
            case ("sync", n):
                return await self.sync(n)
            case ("tool", n):
                return await ctx.tool("tool", n, self._tool)
            case ("inline", n):
                return await ctx.step(f"inline {n}", self._inline)
            case ("flaky", n):
                return await self.flaky(n)
            case ("raises", n):
                try:
                    return await self.raises(n)
                except ValueError as error:
                    return f"caught {error}"
            case ("prompt", n):
                return await ctx.ui.confirm(f"Question {n}?", name=f"q{n}")
            case ("value",):
                values = (ctx.random(), ctx.now(), ctx.uuid4())
                assert len(set(map(str, values))) == 3
                return "values"
            case ("put", n):
                await ctx.put(f"p{n}", n)
                return ctx.get(f"p{n}")
            case ("sleep",):
                await ctx.sleep("nap", 0)
                return "slept"
            case ("seq", parts):
                return [await self.play(ctx, part, depth) for part in parts]
            case ("gather", parts):
                return list(await asyncio.gather(*(self.play(ctx, part, depth) for part in parts)))
            case ("parallel", parts):
                return await ctx.parallel([self.play(ctx, part, depth) for part in parts], concurrency=2)
            case ("loop", n, part):
                return [await self.play(ctx, part, depth) for _ in range(n)]
            case ("child", part):
                if depth == 4:
                    return "deep"
                return (await ctx.workflow(self.workflow(part, depth + 1))).result
            case ("failing child", part):
                if depth == 4:
                    return "deep"
                try:
                    await ctx.workflow(self.workflow(part, depth + 1, fails=True))
                except ChildWorkflowError as error:
                    return str(error)
        raise AssertionError(tree)

    def _tool(self, n: int) -> int:
        self._count()
        return n + 1000

    async def _inline(self) -> str:
        self._count()
        return "in"


def kinds_in(tree: Tree) -> set[str]:
    """Which kinds of parts a body has."""
    found = {tree[0]}
    for part in tree[1:]:
        for inner in part if isinstance(part, list) else [part] if isinstance(part, tuple) else []:
            found |= kinds_in(inner)
    return found


@asynccontextmanager
async def answering(world: World) -> AsyncIterator[None]:
    """Somebody says yes to whatever is asked, whoever executes it now."""

    async def answer() -> None:
        done: set[tuple[str, str, int]] = set()
        while True:
            for execution in list(world.engine.executions.values()):
                for node_id, (_, generation, _) in list(execution.prompts.items()):
                    opened = any(
                        e.type == "prompt.opened" and e.node_id == node_id and e.event.generation == generation
                        for e in reversed(execution.entries)
                    )
                    if opened and (execution.run_id, node_id, generation) not in done:
                        done.add((execution.run_id, node_id, generation))
                        await world.journal.post(
                            execution.run_id,
                            Append(ev.PromptAnswered(generation=generation, value=Raw(b"true"), by="ann"), node_id),
                        )
            await asyncio.sleep(0.0005)

    task = asyncio.create_task(answer())
    try:
        yield
    finally:
        task.cancel()


def finished(journal: DyingJournal) -> set[str]:
    """Nodes whose result is in the journal, over all runs."""
    return {
        f"{entry.run_id} {entry.node_id}"
        for entry in journal._all
        if entry.type in ("node.completed", "node.failure_passed")
    }


def projection(journal: DyingJournal, run_id: str) -> dict[str, Any]:
    """What a run came to, without times and tries: its nodes' results, its end."""
    out: dict[str, Any] = {}
    for entry in entries_of(journal, run_id):
        match entry.event:
            case ev.NodeCompleted(result=result):
                out[entry.node_id or ""] = bytes(result)
            case ev.NodeFailed(error=error):
                out[entry.node_id or ""] = error.type
            case ev.RunEnded(status=status, result=result):
                out["end"] = (status, bytes(result))
    return {node: value for node, value in out.items() if not node.startswith("workflow:")}


async def whole(play: Play, tree: Tree) -> tuple[Any, dict[str, Any], int]:
    """Without a crash: result, projection, number of writes."""
    world = World(journal=DyingJournal())
    async with answering(world):
        execution = await world.start(play.workflow(tree))
        result = await rest(execution)
    assert result.status == "completed", result
    await world.close()
    return result.result, projection(world.journal, execution.run_id), world.journal.appends  # type: ignore[attr-defined, arg-type]


async def crashed(play: Play, tree: Tree, at: int, again: int | None = None) -> tuple[Any, dict[str, Any]]:
    """Killed at write ``at``, resumed, perhaps killed again, resumed."""
    journal = DyingJournal()
    world = World(journal=journal)
    definition = play.workflow(tree)
    async with answering(world):
        journal.left = at
        execution = await world.start(definition)
        for next_crash in [again, None] if again is not None else [None]:
            try:
                await rest(execution)
            except StorageUnavailableError:
                pass
            before, done = play.effects.copy(), finished(journal)
            await world.restart()
            journal.revive()
            if not any(e.type == "run.ended" for e in entries_of(journal, execution.run_id)):
                journal.left = next_crash
                execution = await world.resume(execution.run_id, definition)
                try:
                    await rest(execution)
                except StorageUnavailableError:
                    assert next_crash is not None
            for node in done:
                assert play.effects[node] == before[node], f"{node} was finished and ran again"
        journal.revive()
        if not any(e.type == "run.ended" for e in entries_of(journal, execution.run_id)):
            await world.restart()
            execution = await world.resume(execution.run_id, definition)
            await rest(execution)
    await world.close()
    ended = entries_of(journal, execution.run_id)[-1].event
    assert isinstance(ended, ev.RunEnded) and ended.status == "completed", ended
    seqs = [entry.seq for entry in entries_of(journal, execution.run_id)]
    assert seqs == list(range(1, len(seqs) + 1))
    return projection(journal, execution.run_id)["end"], projection(journal, execution.run_id)


@pytest.mark.timeout(120)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(trees)
def test_killed_at_every_write_a_run_comes_to_the_same(tree: Tree) -> None:
    """Every write is a place to die. The result is the same, finished calls stay finished, tries stay within bounds."""
    kinds = kinds_in(tree)
    for kind in ("child", "prompt", "raises"):
        event(f"with a {kind}: {kind in kinds}")

    async def main() -> None:
        play = Play()
        _, expected, writes = await whole(play, tree)
        allowed = Counter({node.split(" ", 1)[1]: n for node, n in play.effects.items()})
        for at in range(min(writes, 24) + 1):
            again = Play()
            _, got = await crashed(again, tree, at)
            assert got == expected
            for node, n in again.effects.items():
                assert n <= allowed[node.split(" ", 1)[1]] + 1, f"{node} ran {n} times"

    asyncio.run(main())


@pytest.mark.timeout(120)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(trees, st.integers(0, 12), st.integers(0, 12))
def test_killed_twice_a_run_comes_to_the_same(tree: Tree, first: int, second: int) -> None:
    """A crash of the resumed run is no different from the first."""

    async def main() -> None:
        _, expected, _ = await whole(Play(), tree)
        _, got = await crashed(Play(), tree, first, second)
        assert got == expected

    asyncio.run(main())
