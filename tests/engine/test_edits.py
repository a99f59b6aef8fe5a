"""Edit and continue: what edited code would do is known before anything is done, and then only that is done.

The body is load → clean → train → report, with stats beside clean; each step says what it did.
"""

from __future__ import annotations

import asyncio
import linecache
from collections import Counter
from itertools import count
from typing import Any

import pytest

from loom_kernel import events as ev
from loom_kernel.authoring.step import StepDefinition
from loom_kernel.authoring.workflow import WorkflowDefinition, define
from loom_kernel.engine.plan import EditPlan
from tests.engine.harness import World, events_of, nodes, rest, until

pytestmark = pytest.mark.timeout(30)

_numbers = count()

LOAD = "@step\nasync def load(n):\n    did('load')\n    return list(range(n))\n"
CLEAN = "@step\nasync def clean(rows):\n    did('clean')\n    return [r for r in rows if r > 1]\n"
STATS = "@step\nasync def stats(rows):\n    did('stats')\n    return len(rows)\n"
TRAIN = "@step\nasync def train(rows):\n    did('train')\n    return sum(rows)\n"
REPORT = "@step\nasync def report(total, n):\n    did('report')\n    return f'{total} of {n}'\n"
BODY = (
    "async def flow(ctx):\n    rows = await load(5)\n    cleaned, n = await gather(clean(rows), stats(rows))\n"
    "    total = await train(cleaned)\n    return await report(total, n)\n"
)


class Notebook:
    """Cells, and the runs that they start."""

    def __init__(self) -> None:
        self.world = World()
        self.space: dict[str, Any] = {
            "__name__": "__main__",
            "step": StepDefinition,
            "gather": asyncio.gather,
            "did": self.world.did,
            "Event": asyncio.Event,
        }
        self.run(LOAD, CLEAN, STATS, TRAIN, REPORT, BODY)

    def run(self, *cells: str) -> None:
        for source in cells:
            name = f"<edit cell {next(_numbers)}>"
            linecache.cache[name] = (len(source), None, source.splitlines(True), name)
            exec(compile(source, name, "exec"), self.space)

    @property
    def flow(self) -> WorkflowDefinition[Any, Any]:
        return define(self.space["flow"])

    async def stopped(self) -> str:
        """A run whose report failed, so that it can be resumed."""
        self.run("@step\nasync def report(total, n):\n    did('report')\n    raise ValueError('no paper')\n")
        execution = await self.world.start(self.flow)
        await rest(execution)
        self.run(REPORT)
        self.world.effects.clear()
        return execution.run_id

    async def plan(self, run_id: str) -> EditPlan:
        plan = await self.world.engine.plan_edited(run_id, self.flow)
        assert not self.world.effects, "a plan does nothing"
        return plan

    async def go_on(self, run_id: str) -> Any:
        plan = await self.plan(run_id)
        edits = ev.RunEdited(again=list(plan.again), aside=list(plan.aside))
        execution = await self.world.resume(run_id, self.flow, edits=edits)
        return execution, await rest(execution)


def fates(plan: EditPlan) -> dict[str, str]:
    return {node.name: node.fate for node in plan.nodes}


def tell(main: Any) -> None:
    asyncio.run(main())


def test_nothing_edited_reuses_all() -> None:
    """Cells that were run again unchanged, or with other comments and names, leave every finished step as it is."""

    async def main() -> None:
        book = Notebook()
        run_id = await book.stopped()
        book.run(LOAD, CLEAN.replace("r for r", "x for x").replace("if r", "if x"), "# again\n" + STATS, BODY)
        plan = await book.plan(run_id)
        assert fates(plan) == {
            "load": "reused",
            "clean": "reused",
            "stats": "reused",
            "train": "reused",
            "report": "runs",
        }
        assert not plan.asks and not plan.again and plan.sentence == "4 reused, 1 runs for the first time"
        _, result = await book.go_on(run_id)
        assert result.result == "9 of 5" and book.world.effects == {"report": 1}
        await book.world.close()

    tell(main)


def test_an_edited_step_and_what_depends_on_it_run_again() -> None:
    """The plan says so before anything is done: what comes first and what stands beside is reused."""

    async def main() -> None:
        book = Notebook()
        run_id = await book.stopped()
        book.run(CLEAN.replace("r > 1", "r > 2"))
        plan = await book.plan(run_id)
        assert fates(plan) == {
            "load": "reused", "stats": "reused", "clean": "rerun", "train": "depends", "report": "runs"
        }  # fmt: skip
        assert plan.asks and [node.split(":")[1] for node in plan.again] == ["clean"]
        assert {node.name: node.why for node in plan.nodes}["clean"] == "its code was edited"
        assert plan.sentence == "2 reused, 1 runs again, 1 depends on that, 1 runs for the first time"
        execution, result = await book.go_on(run_id)
        assert result.result == "7 of 5" and book.world.effects == {"clean": 1, "train": 1, "report": 1}
        assert len(events_of(execution, ev.RunEdited)) == 1
        await book.world.close()

    tell(main)


def test_what_depends_is_reused_where_the_result_is_the_same() -> None:
    """A step that was edited and gives what it gave before costs nothing behind it."""

    async def main() -> None:
        book = Notebook()
        run_id = await book.stopped()
        book.run(CLEAN.replace("r > 1", "r >= 2"))
        assert fates(await book.plan(run_id))["train"] == "depends"
        _, result = await book.go_on(run_id)
        assert result.result == "9 of 5" and book.world.effects == {"clean": 1, "report": 1}
        await book.world.close()

    tell(main)


def test_an_edited_helper_counts_as_an_edit_of_the_step() -> None:
    """A function in another cell that a step calls is part of what the step does."""

    async def main() -> None:
        book = Notebook()
        book.run("def keep(r):\n    return r > 1\n", CLEAN.replace("r > 1", "keep(r)"))
        run_id = await book.stopped()
        book.run("def keep(r):\n    return r > 3\n")
        assert fates(await book.plan(run_id))["clean"] == "rerun"
        _, result = await book.go_on(run_id)
        assert result.result == "4 of 5"
        await book.world.close()

    tell(main)


def test_the_body_was_edited() -> None:
    """Other arguments, a new step and a step that is gone are each said for what they are."""

    async def main() -> None:
        book = Notebook()
        run_id = await book.stopped()
        book.run(
            "@step\nasync def scale(rows):\n    did('scale')\n    return [r * 10 for r in rows]\n",
            "async def flow(ctx):\n    rows = await load(6)\n    return await train(await scale(rows))\n",
        )
        plan = await book.plan(run_id)
        assert fates(plan) == {
            "load": "rerun", "scale": "runs", "train": "depends", "clean": "gone", "stats": "gone"
        }  # fmt: skip
        load = next(node for node in plan.nodes if node.name == "load")
        assert (load.called, load.recorded, load.why) == ({"n": 6}, {"n": 5}, "its arguments are others now")
        assert "-    rows = await load(5)" in plan.diff and "+    rows = await load(6)" in plan.diff
        execution, result = await book.go_on(run_id)
        assert result.result == 150 and book.world.effects == {"load": 1, "scale": 1, "train": 1}
        assert sorted(n.split(":")[1] for n in events_of(execution, ev.RunEnded)[-1].drift) == [
            "clean", "load", "stats", "train"
        ]  # fmt: skip
        await book.world.close()

    tell(main)


def test_a_crash_after_the_decision_does_not_forget_it() -> None:
    """What was to run again still does when the worker dies before it came to it: the decision is recorded."""

    async def main() -> None:
        book = Notebook()
        run_id = await book.stopped()
        book.run(
            CLEAN.replace("r > 1", "r > 2"),
            TRAIN.replace("sum(rows)", "max(rows)"),
            "block = Event()\n@step\nasync def clean(rows):\n    did('clean')\n    await block.wait()\n    return rows[3:]\n",
        )
        plan = await book.plan(run_id)
        assert sorted(n.split(":")[1] for n in plan.again) == ["clean", "train"]
        execution = await book.world.resume(run_id, book.flow, edits=ev.RunEdited(again=list(plan.again)))
        await until(lambda: book.world.effects["clean"])
        await until(lambda: "clean" in nodes(execution)[5:])
        await book.world.restart()
        book.space["block"].set()
        execution = await book.world.resume(run_id, book.flow)
        assert (await rest(execution)).result == "4 of 5"
        assert book.world.effects == {"clean": 2, "train": 1, "report": 1}
        await book.world.close()

    tell(main)


def test_a_body_that_fails_says_so_in_the_plan() -> None:
    """A mistake in the edit is seen before anything runs."""

    async def main() -> None:
        book = Notebook()
        run_id = await book.stopped()
        book.run(BODY.replace("await train(cleaned)", "await trian(cleaned)"))
        plan = await book.plan(run_id)
        assert plan.problem == "the body fails with NameError: name 'trian' is not defined"
        await book.world.close()

    tell(main)


def test_a_plan_of_a_run_that_waits_for_an_answer() -> None:
    """Behind an open question nothing is known; before it all is. What the body prints is not printed."""

    async def main() -> None:
        book = Notebook()
        book.run(BODY.replace("    total", "    print('in the body')\n    await ctx.ui.confirm('Go on?')\n    total"))
        execution = await book.world.start(book.flow)
        await until(lambda: events_of(execution, ev.PromptOpened))
        await book.world.restart()
        book.world.effects.clear()
        book.run(CLEAN.replace("r > 1", "r > 2"))
        plan = await book.plan(execution.run_id)
        assert fates(plan) == {"load": "reused", "stats": "reused", "clean": "rerun", "go-on": "runs"}
        assert "go-on" in plan.problem
        await book.world.close()

    tell(main)


def test_an_edited_step_of_a_child_runs_again_in_a_child_of_its_own() -> None:
    """A finished child whose steps were edited is started anew; one that was not is reused."""

    async def main() -> None:
        book = Notebook()
        book.space["define"] = define
        book.run(
            "async def inner(ctx):\n    return await train(await clean(await load(4)))\nchild = define(inner)\n",
            "async def flow(ctx):\n    got = await ctx.workflow(child)\n    return await report(got.result, 1)\n",
        )
        run_id = await book.stopped()
        assert fates(await book.plan(run_id)) == {"inner": "reused", "report": "runs"}
        book.run(TRAIN.replace("sum(rows)", "max(rows)"))
        assert fates(await book.plan(run_id)) == {"inner": "rerun", "report": "runs"}
        _, result = await book.go_on(run_id)
        assert result.result == "3 of 1"
        await book.world.close()

    tell(main)


def test_what_is_done_again_is_said_again() -> None:
    """The lines that the body reports after what ran again are reported anew; those before it are not."""

    async def main() -> None:
        book = Notebook()
        book.run(
            "async def flow(ctx):\n    rows = await load(5)\n    ctx.report(f'{len(rows)} loaded')\n"
            "    rows = await clean(rows)\n    ctx.report(f'{len(rows)} left')\n    return await report(1, 2)\n"
        )
        run_id = await book.stopped()
        book.run(CLEAN.replace("r > 1", "r > 2"))
        execution, _ = await book.go_on(run_id)
        said = [bytes(e.value).decode().strip('"') for e in events_of(execution, ev.OutputReported)]
        assert said == ["5 loaded", "3 left", "2 left"]
        await book.world.close()

    tell(main)


def test_a_wide_run_is_planned_in_few_rows() -> None:
    """Two thousand reused calls are one row of the table, and what runs again stands beside it."""

    async def main() -> None:
        book = Notebook()
        book.run(
            "async def flow(ctx):\n    await gather(*(stats([i]) for i in range(2000)))\n    return await clean([3])\n"
        )
        execution = await book.world.start(book.flow)
        await rest(execution)
        book.world.effects = Counter()
        book.run(CLEAN.replace("r > 1", "r > 2"))
        plan = await book.world.engine.plan_edited(execution.run_id, book.flow)
        assert plan.counts["reused"] == 2000
        assert plan.rows()[1] == [
            ["stats … stats (2000)", "reused", ""],
            ["clean(rows=[3])", "runs again", "its code was edited"],
        ]
        await book.world.close()

    tell(main)
