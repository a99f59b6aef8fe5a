"""Questions: answered once, asked again where they must be, bound to what they showed."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from pydantic import BaseModel, Field

from loom_kernel import events as ev
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.workflow import define
from loom_kernel.clock import VirtualClock
from loom_kernel.errors import AnswerError, RunOverError
from loom_kernel.journal.abc import Append
from tests.engine.harness import World, asked, events_of, rest, types_of, until

pytestmark = pytest.mark.timeout(30)


class Settings(BaseModel):
    """How to clean."""

    threshold: float = Field(gt=0)
    name: str = "x"


def test_answers_come_back_as_what_was_asked_for() -> None:
    """Each kind of question gives its kind of answer, live and replayed."""

    async def main() -> None:
        world = World()
        seen: list[Any] = []

        async def body(ctx: Context) -> None:
            got = (
                await ctx.ui.confirm("Sure?", name="sure"),
                await ctx.ui.input("Who?", name="who"),
                await ctx.ui.select("Which?", ["red", "blue"], name="which"),
                await ctx.ui.editor("draft"),
                await ctx.ui.form(Settings, name="settings"),
            )
            seen.append(got)
            await ctx.ui.confirm("Done?", name="done")

        execution = await world.start(body)
        for value in (True, "ann", "blue", "text", {"threshold": 2.5}):
            await world.answer(execution, value)
        await asked(execution, "done")
        await world.restart()
        execution = await world.resume(execution.run_id, body)
        await world.answer(execution, True, "done")
        await rest(execution)
        assert seen[0] == seen[1] == (True, "ann", "blue", "text", Settings(threshold=2.5))
        assert {e.answered_by for e in events_of(execution, ev.NodeCompleted)} == {"ann"}
        await world.close()

    asyncio.run(main())


def test_questions_of_one_name_are_told_apart() -> None:
    """The second is go#2, both may be open at once."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> list[bool]:
            return await asyncio.gather(ctx.ui.confirm("One?", name="go"), ctx.ui.confirm("Two?", name="go"))

        execution = await world.start(body)
        await world.answer(execution, False, "go#2")
        await world.answer(execution, True, "go")
        assert (await rest(execution)).result == [True, False]
        assert [e.prompt for e in events_of(execution, ev.PromptOpened)] == ["go", "go#2"]
        await world.close()

    asyncio.run(main())


def test_an_answer_that_breaks_the_questions_rules_opens_it_again() -> None:
    """The next generation says why; an answer to the old one is refused."""

    async def main() -> None:
        world = World()

        class Even(BaseModel):
            n: int

            def model_post_init(self, context: Any) -> None:
                if self.n % 2:
                    raise ValueError("an even number is needed")

        async def body(ctx: Context) -> int:
            return (await ctx.ui.form(Even, name="even")).n

        execution = await world.start(body)
        _, node_id = await asked(execution)
        await world.answer(execution, {"n": 3})
        await until(lambda: types_of(execution).count("prompt.opened") == 2)
        second = events_of(execution, ev.PromptOpened)[1]
        assert second.generation == 2 and "even number" in second.error
        stale = Append(ev.PromptAnswered(generation=3, value=Raw(b'{"n": 4}')), node_id)
        with pytest.raises(AnswerError):
            await world.journal.post(execution.run_id, stale)
        await world.answer(execution, {"n": 4})
        assert (await rest(execution)).result == 4
        assert node_id == "prompt:even:#1"
        await world.close()

    asyncio.run(main())


def test_an_early_answer_is_used() -> None:
    """An answer kept under the question's name is taken as soon as the question opens."""

    async def main() -> None:
        world = World()
        go = asyncio.Event()

        async def wait() -> None:
            await go.wait()

        async def body(ctx: Context) -> bool:
            await ctx.step("wait", wait)
            return await ctx.ui.confirm("Go on?", name="go")

        execution = await world.start(body)
        await until(lambda: "node.started" in types_of(execution))
        await world.post(execution.run_id, ev.AnswerKept(prompt="go", value=Raw(b"true"), by="bob"))
        go.set()
        assert (await rest(execution)).result is True
        assert events_of(execution, ev.NodeCompleted)[-1].answered_by == "bob"

        go.clear()
        execution = await world.start(body)
        await until(lambda: "node.started" in types_of(execution))
        await world.post(execution.run_id, ev.AnswerKept(prompt="go", value=Raw(b'"perhaps"'), by="bob"))
        go.set()
        await until(lambda: types_of(execution).count("prompt.opened") == 2)
        assert "yes or no" in events_of(execution, ev.PromptOpened)[-1].error
        await world.answer(execution, False)
        assert (await rest(execution)).result is False
        await world.close()

    asyncio.run(main())


def test_a_default_is_taken_at_the_deadline_also_after_a_restart() -> None:
    """The deadline is recorded when the question opens; a restart does not begin it anew."""

    async def main() -> None:
        clock = VirtualClock()
        world = World(clock)

        async def body(ctx: Context) -> str:
            return await ctx.ui.input("Who?", name="who", timeout_s=3600, default="nobody")

        result = await world.run(body)
        assert result.result == "nobody"

        held = clock.busy()
        held.__enter__()  # time stands still
        execution = await world.start(body)
        opened, _ = await asked(execution)
        await world.restart()
        held.__exit__(None, None, None)
        clock._now = opened.deadline + 10
        execution = await world.resume(execution.run_id, body)
        assert (await rest(execution)).result == "nobody"
        assert clock.time() < opened.deadline + 20
        completed = events_of(execution, ev.NodeCompleted)[-1]
        assert completed.answered_by == "timeout" and "prompt.answered" in types_of(execution)
        await world.close()

    asyncio.run(main())


def test_other_contents_ask_again() -> None:
    """An answer holds for what was shown: another table, or another text, is another question under the same name."""

    async def main() -> None:
        world = World()

        def make(message: str, rows: list[dict[str, int]]) -> Any:
            async def body(ctx: Context) -> list[bool]:
                first = await ctx.ui.confirm(message, name="drop", show=rows)
                return [first, await ctx.ui.confirm("Go on?", name="go")]

            return define(body, name="ask")

        execution = await world.start(make("Drop?", [{"n": 1}]))
        await world.answer(execution, True)
        await asked(execution, "go")

        await world.restart()
        execution = await world.resume(execution.run_id, make("Drop?", [{"n": 1}]))
        await asked(execution, "go")
        assert types_of(execution).count("prompt.opened") == 2, "the same contents are not asked again"

        for message, rows in (("Drop?", [{"n": 2}]), ("Really drop?", [{"n": 2}])):
            await world.restart()
            execution = await world.resume(execution.run_id, make(message, rows))
            await world.answer(execution, False, "drop")
            await asked(execution, "go")
        opened = [e for e in events_of(execution, ev.PromptOpened) if e.prompt == "drop"]
        assert [e.generation for e in opened] == [1, 2, 3]
        assert len({e.shown_hash for e in opened}) == 2 and opened[0].shown[0].kind == "table"
        await world.answer(execution, True, "go")
        assert (await rest(execution)).result == [False, True]
        await world.close()

    asyncio.run(main())


def test_the_first_answer_wins() -> None:
    """Two people answer: one is taken, the other is told who was first."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> bool:
            return await ctx.ui.confirm("Go on?", name="go")

        execution = await world.start(body)
        opened, node_id = await asked(execution)
        outcomes = []
        for by, value in (("ann", b"true"), ("bob", b"false")):
            event = ev.PromptAnswered(generation=opened.generation, value=Raw(value), by=by)
            outcomes.append(await world.journal.post(execution.run_id, Append(event, node_id, None)))
        assert [o.status for o in outcomes] == ["appended", "exists"]
        assert outcomes[1].entry.event.by == "ann"
        assert (await rest(execution)).result is True
        await world.close()

    asyncio.run(main())


def test_a_question_of_a_failed_run_is_asked_again() -> None:
    """The end of a run closes its questions; when a failed run is resumed, they open anew."""

    async def main() -> None:
        world = World()
        fail = True

        async def failing() -> None:
            if fail:
                raise OSError("down")

        async def body(ctx: Context) -> bool:
            question = asyncio.ensure_future(ctx.ui.confirm("Go on?", name="go"))
            await ctx.sleep("until it is open", 0.02)
            await ctx.step("s", failing, max_attempts=1)
            return await question

        execution = await world.start(body)
        assert (await rest(execution)).status == "failed"
        fail = False
        execution = await world.resume(execution.run_id, body)
        await until(lambda: types_of(execution).count("prompt.opened") == 2)
        await world.answer(execution, True)
        assert (await rest(execution)).result is True
        await world.close()

    asyncio.run(main())


def test_an_answer_and_the_deadline_race_fairly() -> None:
    """The answer that the journal took first is the one, whoever gave it."""

    async def main() -> None:
        world = World(VirtualClock())

        async def body(ctx: Context) -> str:
            return await ctx.ui.input("Who?", name="who", timeout_s=1, default="nobody")

        for i in range(20):
            with world.clock.busy():  # until the question was seen
                execution = await world.start(body)
                _, node_id = await asked(execution)
            await asyncio.sleep(i * 0.0006)
            event = ev.PromptAnswered(generation=1, value=Raw(msgspec.json.encode("ann")), by="ann")
            try:
                outcome = await world.journal.post(execution.run_id, Append(event, node_id, None))
                taken = outcome.entry.event.value
            except (AnswerError, RunOverError):
                taken = b'"nobody"'
            assert (await rest(execution)).result == msgspec.json.decode(bytes(taken))
        await world.close()

    asyncio.run(main())


def test_without_people_the_sentence_says_so() -> None:
    """A worker without a way to ask says that, instead of an AttributeError."""

    async def main() -> None:
        world = World()
        world.engine.capabilities.pop("ui")

        async def body(ctx: Context) -> bool:
            return await ctx.ui.confirm("Go on?")

        result = await world.run(body)
        assert "questions to a person (ctx.ui) is not available" in str(result.error)
        await world.close()

    asyncio.run(main())
