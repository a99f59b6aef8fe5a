"""Random bodies, killed at every write and resumed: the same result, and nothing that was finished runs again."""

from __future__ import annotations

import ast
import asyncio
import functools
import os
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
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

_quiet = [
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
]
_leaf = st.one_of(
    *_quiet,
    st.tuples(st.just("fails"), st.integers(0, 1)),
    st.tuples(st.just("exit"), st.sampled_from(["completed", "skipped", "failed"])),
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


def _bodies(leaf: st.SearchStrategy[Tree], most: int) -> st.SearchStrategy[Tree]:
    return _grow(st.recursive(leaf, _grow, max_leaves=most))


_small = _bodies(st.one_of(*_quiet), 3)
_rich = st.builds(
    lambda parts, order: (order.pop(), [parts[i] for i in order]),
    st.tuples(
        st.tuples(st.just("child"), _small),
        st.tuples(st.just("prompt"), st.integers(0, 2)),
        st.tuples(st.sampled_from(["raises", "flaky"]), st.integers(0, 2)),
        _small,
    ),
    st.tuples(st.permutations(range(4)), st.sampled_from(["seq", "gather", "parallel"])).map(lambda p: [*p[0], p[1]]),
)
"""A child, a question and a step that fails, beside something else."""

_any = _bodies(_leaf, 6)
# Not `one_of` with one of them several times: it counts equal ones once.
trees = st.integers(0, 9).flatmap(lambda n: _any if n < 4 else _rich)


class Play:
    """How often each call of one telling had its effect.

    Attributes:
        dies_in: the effect after which the worker is killed, from 1: in the middle of its step.
    """

    def __init__(self, dies_in: int | None = None) -> None:
        self.effects: Counter[str] = Counter()
        self.dies_in = dies_in
        self.die: Callable[[], None] = lambda: None

    def count(self) -> None:
        me = current_step()
        self.effects[f"{me.run_id} {me.node_id}"] += 1
        if self.effects.total() == self.dies_in:
            self.die()


PLAY: ContextVar[Play] = ContextVar("play")
"""Of the telling that a step belongs to; set before its engine is made."""


@step
async def work(n: int) -> int:
    PLAY.get().count()
    return n


@step
def sync(n: int) -> int:
    PLAY.get().count()
    return n * 10


@step(retry=Retry(max_attempts=2, interval_s=0))
async def flaky(n: int) -> int:
    PLAY.get().count()
    if current_step().attempt == 1:
        raise OSError("down")
    return n + 100


@step
async def raises(n: int) -> int:
    PLAY.get().count()
    raise ValueError(str(n))


def tool(n: int) -> int:
    PLAY.get().count()
    return n + 1000


async def inline() -> str:
    PLAY.get().count()
    return "in"


@functools.cache
def _defined(text: str, depth: int, fails: bool) -> WorkflowDefinition[..., Any]:
    tree: Tree = ast.literal_eval(text)

    async def body(ctx: Context) -> Any:
        got = await play(ctx, tree, depth)
        if fails:
            raise ValueError(f"failing {got}")
        return got

    # Equal calls may change places after a crash, so what is different has another name.
    return define(body, name=f"level {depth} {zlib.crc32(f'{text} {fails}'.encode())}")


def defined(tree: Tree, depth: int = 1, fails: bool = False) -> WorkflowDefinition[..., Any]:
    """The body that a tree describes."""
    return _defined(repr(tree), depth, fails)


async def play(ctx: Context, tree: Tree, depth: int) -> Any:
    """Do what the tree says."""
    match tree:
        case ("step", n):
            return await work(n)
        case ("sync", n):
            return await sync(n)
        case ("tool", n):
            return await ctx.tool("tool", n, tool)
        case ("inline", n):
            return await ctx.step(f"inline {n}", inline)
        case ("flaky", n):
            return await flaky(n)
        case ("raises", n):
            try:
                return await raises(n)
            except ValueError as error:
                return f"caught {error}"
        case ("fails", n):
            return await raises(n)
        case ("exit", status):
            ctx.exit(status, reason="enough")
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
            return [await play(ctx, part, depth) for part in parts]
        case ("gather", parts):
            return list(await asyncio.gather(*(play(ctx, part, depth) for part in parts)))
        case ("parallel", parts):
            return await ctx.parallel([play(ctx, part, depth) for part in parts], concurrency=2)
        case ("loop", n, part):
            return [await play(ctx, part, depth) for _ in range(n)]
        case ("child", part):
            if depth == 4:
                return "deep"
            return (await ctx.workflow(defined(part, depth + 1))).result
        case ("failing child", part):
            if depth == 4:
                return "deep"
            try:
                await ctx.workflow(defined(part, depth + 1, fails=True))
            except ChildWorkflowError as error:
                return str(error)
            return "a child that fails ended by an exit"
    raise AssertionError(tree)


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


def same(got: dict[str, Any], expected: dict[str, Any], tree: Tree) -> bool:
    """Whether two projections say the same.

    Where a failure or an exit ends a body beside branches that are at work, how far those came is nobody's promise; and
    where several of them are at work at once, neither is which of them comes first.
    """
    kinds = kinds_in(tree)
    if kinds & {"fails", "exit"} and kinds & {"gather", "parallel"}:
        both = got.keys() & expected.keys()
        race = repr(tree).count("'fails'") + repr(tree).count("'exit'") > 1
        return "end" in both and all(got[node] == expected[node] for node in both if not (race and node == "end"))
    return got == expected


async def whole(play: Play, tree: Tree) -> tuple[dict[str, Any], int]:
    """Without a crash: projection, number of writes."""
    PLAY.set(play)
    journal = DyingJournal()
    world = World(journal=journal)
    async with answering(world):
        execution = await world.start(defined(tree))
        await rest(execution)
    await world.close()
    return projection(journal, execution.run_id), journal.appends


def over(journal: DyingJournal, run_id: str) -> bool:
    return any(entry.type == "run.ended" for entry in entries_of(journal, run_id))


async def crashed(play: Play, tree: Tree, at: int | None, again: int | None = None) -> dict[str, Any]:
    """Killed at write ``at``, or where ``play`` says; resumed, perhaps killed at another write, resumed."""
    PLAY.set(play)
    journal = DyingJournal()
    world = World(journal=journal)
    definition = defined(tree)
    play.die = lambda: setattr(journal, "left", 0)
    async with answering(world):
        journal.left = at
        execution = await world.start(definition)
        for next_crash in [None] if again is None else [again, None]:
            with suppress(StorageUnavailableError):
                await rest(execution)
            if over(journal, execution.run_id):
                break
            before, done = play.effects.copy(), finished(journal)
            await world.restart()
            journal.left = next_crash
            execution = await world.resume(execution.run_id, definition)
            with suppress(StorageUnavailableError):
                await rest(execution)
            for node in done:
                assert play.effects[node] == before[node], f"{node} was finished and ran again"
    await world.close()
    entries = entries_of(journal, execution.run_id)
    assert entries[-1].type == "run.ended", [entry.type for entry in entries]
    assert [entry.type for entry in entries].count("run.ended") == 1
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    return projection(journal, execution.run_id)


EXAMPLES = int(os.environ.get("LOOM_CRASH_EXAMPLES", "300"))
seen: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def figures(request: pytest.FixtureRequest) -> Iterator[None]:
    """Say what was tried, and hold that enough of it was rich."""
    yield
    if seen["examples"] < EXAMPLES:
        return  # not all of it was asked for
    manager = request.config.pluginmanager.getplugin("capturemanager")
    with manager.global_and_fixture_disabled():
        print("\n  " + ", ".join(f"{count} {what}" for what, count in seen.items()))
    assert seen["with a child, a question and a failing step"] >= 0.3 * seen["examples"]


@pytest.mark.timeout(400)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(trees)
def test_killed_anywhere_a_run_comes_to_the_same(tree: Tree) -> None:
    """Every write is a place to die, and the middle of every step.

    The journal's projection is the same, finished calls stay finished, tries stay within what is allowed.
    """
    kinds = kinds_in(tree)

    async def main() -> None:
        play = Play()
        expected, writes = await whole(play, tree)
        allowed = Counter[str]()
        for node, n in play.effects.items():
            allowed[node.split(" ", 1)[1]] += n
        effects = play.effects.total()

        async def killed(at: int | None, inside: int | None) -> None:
            again = Play(inside)
            got = await crashed(again, tree, at)
            assert same(got, expected, tree), (at, inside, got, expected)
            for node, n in again.effects.items():
                # An exit or a failure may have ended the whole before a call had all its tries.
                most = max(allowed[node.split(" ", 1)[1]], 2 if "flaky" in node else 1)
                assert n <= most + 1, f"{node} ran {n} times"

        # Side by side: most of their time they wait.
        await asyncio.gather(*(killed(at, None) for at in range(writes + 1)))
        await asyncio.gather(*(killed(None, inside) for inside in range(1, effects + 1)))
        seen["examples"] += 1
        seen["with a child, a question and a failing step"] += bool(
            kinds & {"child", "failing child"} and "prompt" in kinds and kinds & {"raises", "fails", "flaky"}
        )
        seen["that exit or fail"] += bool(kinds & {"exit", "fails"})
        seen["kills at a write"] += writes + 1
        seen["kills inside a step"] += effects

    asyncio.run(main())


@pytest.mark.timeout(120)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(trees, st.integers(0, 12), st.integers(0, 12))
def test_killed_twice_a_run_comes_to_the_same(tree: Tree, first: int, second: int) -> None:
    """A crash of the resumed run is no different from the first."""

    async def main() -> None:
        expected, _ = await whole(Play(), tree)
        got = await crashed(Play(), tree, first, second)
        assert same(got, expected, tree), (got, expected)

    asyncio.run(main())
