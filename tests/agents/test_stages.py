"""Model stages as calls of a body: what they give, what is kept of them, what a restart repeats."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from loom_kernel import events as ev
from loom_kernel.agents.scripted import script
from loom_kernel.authoring.agents import Step, TaskResult
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.workflow import define
from loom_kernel.clock import VirtualClock
from loom_kernel.errors import DefinitionError, LoomError, StageFailed
from loom_kernel.policies import Budget
from tests.agents.harness import ModelWorld
from tests.engine.harness import DyingJournal, events_of, nodes, rest


class City(BaseModel):
    name: str
    people: int


def said(execution: Any) -> list[tuple[str, str]]:
    """The messages of a run, in order."""
    return [(e.role, e.text) for e in events_of(execution, ev.MessageRecorded)]


def test_a_task_gives_its_answer_and_everything_known_of_it() -> None:
    """Text, session, model; the messages and the model's use are in the journal."""

    async def main() -> None:
        world = ModelWorld()

        async def body(ctx: Context) -> TaskResult:
            return await ctx.task("review", prompt="Look at it.", system="Be short.", model="scripted/demo:low")

        with script(
            "demo", [{"text": "Fine.", "usage": {"input_tokens": 7, "output_tokens": 2, "cost_usd": 0.5}}]
        ) as it:
            execution = await world.start(body)
            result = (await rest(execution)).result
        assert (result.text, result.name, result.stage_name, str(result)) == ("Fine.", "review", "review", "Fine.")
        assert (result.model, result.thinking_level) == ("scripted/demo", "low")
        assert result.session_id == f"{execution.run_id}/review#1"
        assert result.attempted_models == ("scripted/demo",)
        (attempt,) = result.model_attempts
        assert (attempt.success, attempt.reasoning_level) == (True, "low")
        assert attempt.usage is not None
        assert (attempt.usage.input, attempt.usage.output, attempt.usage.cost, attempt.usage.turns) == (7, 2, 0.5, 1)
        assert said(execution) == [("system", "Be short."), ("user", "Look at it."), ("assistant", "Fine.")]
        (called,) = events_of(execution, ev.ModelCalled)
        assert (called.model, called.level, called.ok, called.cost_usd) == ("scripted/demo", "low", True, 0.5)
        assert [m["content"] for m in it.requests[0].messages] == ["Be short.", "Look at it."]
        assert execution.ledger.tokens == 9
        await world.close()

    asyncio.run(main())


def test_a_stage_that_names_no_model_records_no_attempts_and_says_how_to_configure_one() -> None:
    """The reference keeps attempts of declared chains only."""

    async def main() -> None:
        world = ModelWorld()

        async def body(ctx: Context) -> TaskResult:
            return await ctx.task("a", prompt="x")

        with script("demo", ["y"]):
            assert (await world.run(body)).result.model_attempts == ()
        await world.close()
        world = ModelWorld(model=lambda: None)
        result = await world.run(body)
        assert (result.status, result.reason) == ("blocked", "auth")
        assert "no model is configured" in str(result.error)
        await world.close()

    asyncio.run(main())


@pytest.mark.parametrize("kind", [City, City.model_json_schema()])
def test_a_schema_gives_a_value_and_corrects_what_does_not_fit(kind: Any) -> None:
    """Without tools the answer is the value; three corrections a candidate, each quoting what is wrong."""

    async def main() -> None:
        world = ModelWorld()

        async def body(ctx: Context) -> Any:
            return (await ctx.task("city", prompt="Which?", schema=kind)).structured

        replies = ["Bern", {"json": {"name": "Bern"}}, {"text": '```json\n{"name": "Bern", "people": 134000}\n```'}]
        with script("demo", replies) as it:
            result = await world.run(body)
        expected = {"name": "Bern", "people": 134000}
        assert result.result == (City(**expected) if kind is City else expected)
        assert it.requests[0].response_format is not None
        assert "not JSON" in it.requests[1].messages[-1]["content"]
        assert "people" in it.requests[2].messages[-1]["content"]
        await world.close()

    asyncio.run(main())


def test_spec_5_30_a_schema_that_is_never_met_goes_to_the_next_model_with_the_prompt_as_it_was() -> None:
    """Four answers of the first candidate, then the second gets the first prompt and nothing of what went wrong."""

    async def main() -> None:
        world = ModelWorld()

        async def body(ctx: Context) -> Any:
            result = await ctx.task(
                "city", prompt="Which?", schema=City, model="scripted/one", fallback_models=["scripted/two"]
            )
            return [result.structured, result.model, [(a.model, a.success) for a in result.model_attempts]]

        with script("one", [{"text": "no", "times": "always"}]) as one:
            with script("two", [{"json": {"name": "Bern", "people": 1}}]) as two:
                result = await world.run(body)
        assert result.result == [
            City(name="Bern", people=1),
            "scripted/two",
            [("scripted/one", False), ("scripted/two", True)],
        ]
        assert len(one.requests) == 4
        assert [m["content"] for m in two.requests[0].messages] == ["Which?"]
        with script("one", [{"text": "no", "times": "always"}]), script("two", [{"text": "no", "times": "always"}]):
            failed = await world.run(body)
        assert failed.status == "failed"
        assert "do not fit the schema" in str(failed.error)
        await world.close()

    asyncio.run(main())


def test_with_tools_the_value_is_inferred_from_what_the_model_hands_over() -> None:
    """``structured_output`` takes instructions and a state; a turn that ends without it is corrected."""

    async def main() -> None:
        world = ModelWorld()

        def add(a: int, b: int) -> int:
            """Add."""
            return a + b

        async def body(ctx: Context) -> Any:
            result = await ctx.task("city", prompt="Which?", schema=City, custom_tools=[add])
            return [result.structured, result.text]

        replies = [
            {"tool": {"name": "add", "arguments": {"a": 1, "b": 2}}},
            "I am done.",
            {"tool": {"name": "structured_output", "arguments": {"instructions": "name it"}}},
            {
                "text": "Here it is.",
                "tool": {"name": "structured_output", "arguments": {"instructions": "name it", "state": {"c": "Bern"}}},
            },
            {"json": {"name": "Bern"}},
            {"json": {"name": "Bern", "people": 3}},
        ]
        with script("demo", replies) as it:
            result = await world.run(body)
        assert result.result == [City(name="Bern", people=3), "Here it is."]
        assert "was not called" in it.requests[2].messages[-1]["content"]
        assert "error" in it.requests[3].messages[-1]["content"]
        assert "Bern" in it.requests[4].messages[-1]["content"]
        assert it.left == 0
        await world.close()

    asyncio.run(main())


def test_a_schema_has_a_deadline_for_all_of_it() -> None:
    """Retries and corrections count in it; the sentence says how long it was."""

    async def main() -> None:
        world = ModelWorld()

        async def body(ctx: Context) -> Any:
            return await ctx.task("city", prompt="Which?", schema=City, schema_timeout_ms=5_000)

        with script("demo", [{"text": "x", "delay_s": 3.0, "times": "always"}]):
            result = await world.run(body)
        assert isinstance(result.error, StageFailed)
        assert "Structured output decision exceeded its" in str(result.error)
        with pytest.raises(DefinitionError, match="schema_timeout_ms=0"):
            raise (await world.run(define(_with(schema=City, schema_timeout_ms=0)))).error  # type: ignore[misc]
        await world.close()

    asyncio.run(main())


def _with(**options: Any) -> Any:
    async def body(ctx: Context) -> Any:
        return await ctx.task("t", prompt="x", **options)

    return body


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"promt": 1}, "did you mean prompt="),
        ({"output_mode": "file-only"}, "needs output="),
        ({"context": "fork"}, "goes together with fork_from_session_id"),
        ({"worktree": True, "git_worktree_dir": "x"}, "exclude each other"),
        ({"git_worktree_dir": ""}, "a path is needed"),
        ({"max_output": {"bytes": 0}}, "at least 1"),
        ({"approval": "sometimes"}, "never, ask, always"),
        ({"session_manager": 1}, "embeds loom-kernel"),
        ({"no_tools": "some"}, '"all" or "builtin"'),
        ({"previous": 3}, "previous= takes texts"),
        ({"schema": {"type": 3}}, "no JSON Schema"),
    ],
)
def test_options_that_cannot_be_are_refused_where_they_stand(options: dict[str, Any], sentence: str) -> None:
    """Before anything is asked or recorded."""

    async def main() -> None:
        world = ModelWorld()
        with script("demo", []) as it:
            result = await world.run(_with(**options))
        assert isinstance(result.error, DefinitionError)
        assert sentence in str(result.error)
        assert it.requests == []
        await world.close()

    asyncio.run(main())


def test_a_handle_has_one_session_over_its_prompts_and_each_is_a_node() -> None:
    """Messages, streaming, events, and a value that comes once."""

    async def main() -> None:
        world = ModelWorld()
        heard: list[str] = []
        pieces: list[str] = []

        async def body(ctx: Context) -> Any:
            stage = ctx.stage("talk")
            end = stage.subscribe(lambda event: (heard.append(event["type"]), pieces.append(event.get("delta", ""))))
            first = await stage.prompt("one")
            end()
            await stage.send("two")
            value = ctx.stage("value", schema=City)
            await value.prompt("x")
            with pytest.raises(DefinitionError, match="takes one prompt"):
                await value.prompt("y")
            return [first, [m["text"] for m in stage.messages], stage.model, stage.is_streaming, stage.name]

        with script("demo", ["a b c", "second", {"json": {"name": "x", "people": 1}}]):
            execution = await world.start(body)
            result = (await rest(execution)).result
        assert result == ["a b c", ["one", "a b c", "two", "second"], "scripted/demo", False, "talk"]
        assert nodes(execution) == ["talk", "talk", "value"]
        assert "".join(pieces) == "a b c"
        assert list(dict.fromkeys(heard)) == [
            "agent_start",
            "message_start",
            "message_update",
            "message_end",
            "agent_end",
        ]
        await world.close()

    asyncio.run(main())


def test_steering_is_heard_after_a_batch_of_tools_and_a_follow_up_at_the_end() -> None:
    """In order, the first before the second, and neither starts a turn of its own."""

    async def main() -> None:
        world = ModelWorld()

        async def body(ctx: Context) -> Any:
            stage = ctx.stage("talk", custom_tools=[look])

            async def interfere() -> None:
                async for event in stage.events():
                    if event["type"] == "tool_execution_start":
                        await stage.follow_up("afterwards")
                        await stage.send("and then")
                        await stage.steer("left")
                        await stage.send("right", deliver_as="steer")

            heard = asyncio.ensure_future(interfere())
            await asyncio.sleep(0)
            answer = await stage.prompt("go")
            await heard
            return [answer, [m["text"] for m in stage.messages if m["role"] == "user"]]

        async def look() -> str:
            """Look."""
            await asyncio.sleep(0.01)
            return "seen"

        with script("demo", [{"tool": {"name": "look"}}, "turned", "ended"]) as it:
            result = await world.run(body)
        assert result.result == ["ended", ["go", "left", "right", "afterwards", "and then"]]
        assert [m["content"] for m in it.requests[1].messages][-2:] == ["left", "right"]
        await world.close()

    asyncio.run(main())


def test_a_chain_hands_on_what_came_before() -> None:
    """The first step without a prompt gets the task, later ones the previous answer; placeholders stand for both."""

    async def main() -> None:
        world = ModelWorld()

        async def body(ctx: Context) -> Any:
            steps = [Step("a"), Step("b", "improve {previous} for {task}"), Step("c")]
            return [r.text for r in await ctx.chain(steps, task="the task")]

        with script("demo", [{"echo": True, "times": "always"}]):
            result = await world.run(body)
        assert result.result == ["the task", "improve the task for the task", "improve the task for the task"]
        await world.close()

    asyncio.run(main())


def test_parallel_steps_share_options_and_at_most_three_are_at_work() -> None:
    """Results in their order, parents the same for all."""

    async def main() -> None:
        world = ModelWorld()
        most = 0

        async def body(ctx: Context) -> Any:
            nonlocal most

            async def watch() -> None:
                nonlocal most
                now: set[str] = set()
                while True:
                    now = {n for _, n, e in world.events if e["type"] == "agent_start"} - {
                        n for _, n, e in world.events if e["type"] == "agent_end"
                    }
                    most = max(most, len(now))
                    await asyncio.sleep(0.001)

            watching = asyncio.ensure_future(watch())
            found = await ctx.parallel([Step(f"s{i}", f"say {i}") for i in range(7)], system="Shared.")
            watching.cancel()
            return [r.text for r in found]

        with script("demo", [{"echo": True, "delay_s": 1.0, "times": "always"}]) as it:
            result = await world.run(body)
        assert result.result == [f"say {i}" for i in range(7)]
        assert most == 3
        assert {r.messages[0]["content"] for r in it.requests} == {"Shared."}
        await world.close()

    asyncio.run(main())


def test_a_fork_begins_with_what_another_session_said() -> None:
    """The source is left as it was; an unknown session is a sentence."""

    async def main() -> None:
        world = ModelWorld()

        async def body(ctx: Context, source: str = "") -> Any:
            first = await ctx.task("first", prompt="one")
            forked = await ctx.task(
                "second", prompt="two", context="fork", fork_from_session_id=source or first.session_id
            )
            return [first.session_id, forked.text]

        with script("demo", ["a", {"echo": True, "times": "always"}]) as it:
            result = await world.run(body)
            assert [m["content"] for m in it.requests[1].messages] == ["one", "a", "two"]
            again = await world.run(body, source=result.result[0])  # of another run
            assert [m["content"] for m in it.requests[-1].messages] == ["one", "a", "two"]
            assert again.status == "completed"
            missing = await world.run(body, source="nobody/x#1")
        assert isinstance(missing.error, LoomError)
        assert "no session" in str(missing.error)
        await world.close()

    asyncio.run(main())


def test_compaction_puts_a_summary_in_the_place_of_what_was_said() -> None:
    """Passages that are marked are kept word for word."""

    async def main() -> None:
        from loom_kernel.agents.compaction import keep_context

        world = ModelWorld()
        marked = keep_context("the criteria")
        assert keep_context(marked) == marked

        async def body(ctx: Context) -> Any:
            stage = ctx.stage("talk", system="Be kind.")
            await stage.prompt(f"one\n{marked}")
            found = await stage.compact()
            await stage.prompt("two")
            return [found["messages_before"], found["messages_after"]]

        with script("demo", ["a", "in short", "b"]) as it:
            result = await world.run(body)
        assert result.result == [3, 2]
        told = [m["content"] for m in it.requests[2].messages]
        assert (told[0], told[2]) == ("Be kind.", "two")
        assert "in short" in told[1]
        assert "the criteria" in told[1]
        await world.close()

    asyncio.run(main())


def test_a_session_goes_back_and_on_from_there() -> None:
    """What was said on the other way is kept, and not told any more."""

    async def main() -> None:
        world = ModelWorld()

        async def body(ctx: Context) -> Any:
            stage = ctx.stage("talk")
            await stage.prompt("one")
            await stage.prompt("two")
            back = await stage.navigate_tree("3")
            await stage.prompt("other")
            return [back, [m["text"] for m in stage.messages]]

        with script("demo", [{"echo": True, "times": "always"}]) as it:
            result = await world.run(body)
        assert result.result == [{"cancelled": False, "editor_text": "two"}, ["one", "one", "other", "other"]]
        assert [m["content"] for m in it.requests[-1].messages] == ["one", "one", "other"]
        await world.close()

    asyncio.run(main())


def test_models_are_changed_and_cycled() -> None:
    """The next call uses them, with their level."""

    async def main() -> None:
        world = ModelWorld()

        async def body(ctx: Context) -> Any:
            stage = ctx.stage("talk", scoped_models=["scripted/demo", "scripted/other"])
            await stage.prompt("x")
            seen = [await stage.cycle_model(), stage.cycle_thinking_level()]
            await stage.prompt("y")
            await stage.set_model("scripted/demo:high")
            seen += [stage.model, stage.thinking_level]
            await stage.prompt("z")
            return seen

        with script("demo", ["1", "3"]) as one, script("other", ["2"]) as other:
            result = await world.run(body)
        assert result.result == ["scripted/other", "off", "scripted/demo", "high"]
        assert [r.level for r in [*one.requests, *other.requests]] == [None, "high", "off"]
        await world.close()

    asyncio.run(main())


# ---------------------------------------------------------------- failures


def test_a_failure_is_tried_again_and_then_the_next_model_is_asked() -> None:
    """With waits on the clock; what was billed counts, and the view is told."""

    async def main() -> None:
        world = ModelWorld()

        async def body(ctx: Context) -> Any:
            r = await ctx.task("t", prompt="x", model="scripted/one", fallback_models=["scripted/two:low"])
            return [r.text, r.attempted_models, [(a.model, a.success, a.error is None) for a in r.model_attempts]]

        with script("one", [{"error": "provider_unavailable", "times": "always"}]) as one, script("two", ["yes"]):
            execution = await world.start(body)
            result = await rest(execution)
        assert result.result == [
            "yes", ("scripted/one", "scripted/two"), [("scripted/one", False, False), ("scripted/two", True, True)],
        ]  # fmt: skip
        assert len(one.requests) == 3
        assert [e.error for e in events_of(execution, ev.ModelCalled)] == ["provider_unavailable"] * 3 + [""]
        assert {"retry", "fallback"} <= {e["type"] for _, _, e in world.events}
        await world.close()

    asyncio.run(main())


def test_spec_5_32_a_run_that_waits_for_its_provider_is_blocked_and_can_be_resumed() -> None:
    """A rate limit and a fallback that nobody logged in to; later the same stage goes on with the same conversation."""

    async def main() -> None:
        world = ModelWorld()

        async def body(ctx: Context) -> Any:
            return (await ctx.task("t", prompt="x", model="scripted/one", fallback_models=["scripted/two"])).text

        with script("one", [{"error": "rate_limited", "times": "always"}]):
            with script("two", [{"error": "missing_api_key", "times": "always"}]):
                execution = await world.start(body)
                result = await rest(execution)
        assert (result.status, result.reason) == ("blocked", "rate_limit")
        assert isinstance(result.error, StageFailed)
        with script("one", ["there"]) as one:
            again = await world.resume(execution.run_id, body)
            assert (await rest(again)).result == "there"
        assert [m["content"] for m in one.requests[0].messages] == ["x"]
        assert [t for r, t in said(again) if r == "user"] == ["x"]
        await world.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("code", "status", "asked"),
    [
        ("invalid_api_key", "killed", 1),
        ("forbidden_config", "killed", 1),
        ("unknown_model", "killed", 1),
        ("refused", "failed", 1),
        ("context_overflow", "failed", 1),
        ("incompatible_request", "failed", 1),
        ("quota_limited", "blocked", 1),
        ("timeout", "blocked", 3),
        ("empty_answer", "blocked", 3),
    ],
)
def test_what_becomes_of_a_run_by_the_kind_of_failure(code: str, status: str, asked: int) -> None:
    """The reference's table: auth and provider trouble waits, what cannot get better ends."""

    async def main() -> None:
        world = ModelWorld()
        with script("demo", [{"error": code, "times": "always"}]) as it:
            result = await world.run(_with())
        assert result.status == status
        assert len(it.requests) == asked
        await world.close()

    asyncio.run(main())


def test_spec_5_31_an_empty_answer_is_the_providers_fault_and_no_correction_is_spent_on_it() -> None:
    """Tried again at once; the schema's corrections are for answers."""

    async def main() -> None:
        world = ModelWorld()
        with script("demo", [{"text": " "}, {"json": {"name": "Bern", "people": 1}}]) as it:
            result = await world.run(_with(schema=City))
        assert result.status == "completed"
        assert [len(r.messages) for r in it.requests] == [1, 1]
        await world.close()

    asyncio.run(main())


def test_a_failure_that_the_body_passed_is_replayed() -> None:
    """Like a step's: nobody is asked again."""

    async def main() -> None:
        world = ModelWorld()

        async def body(ctx: Context) -> Any:
            try:
                await ctx.task("t", prompt="x")
            except StageFailed as failed:
                code = failed.code
            await ctx.sleep("wait", 1)
            await ctx.ui.confirm("go?", name="go")
            return code

        with script("demo", [{"error": "refused"}]):
            execution = await world.start(body)
            await world.answer(execution, True)
            assert (await rest(execution)).result == "refused"
        await world.close()

    asyncio.run(main())


def test_a_budget_stops_before_the_next_question_and_the_stage_says_its_last_words() -> None:
    """Soft landing, once."""

    async def main() -> None:
        world = ModelWorld()

        def add(a: int) -> int:
            """Add."""
            return a

        async def body(ctx: Context) -> Any:
            return await ctx.task("t", prompt="x", custom_tools=[add])

        replies = [
            {"tool": {"name": "add", "arguments": {"a": 1}}, "usage": {"input_tokens": 90, "output_tokens": 20}},
            {"text": "half done", "usage": {"input_tokens": 5, "output_tokens": 5}},
        ]
        with script("demo", replies) as it:
            execution = await world.start(define(body, budget=Budget(max_tokens=100)))
            result = await rest(execution)
        assert (result.status, result.reason) == ("blocked", "budget")
        assert result.result["wrap_up_summary"] == "half done"
        assert "budget" in it.requests[1].messages[-1]["content"]
        await world.close()

    asyncio.run(main())


# ---------------------------------------------------------------- crashes


def test_killed_at_every_write_nothing_is_asked_twice_beyond_the_open_turn_and_no_tool_runs_twice() -> None:
    """A stage with tools, a schema and two prompts: the same result, the same transcript."""

    async def main() -> None:
        effects: list[str] = []

        def buy(what: str) -> str:
            """Buy."""
            effects.append(what)
            return f"bought {what}"

        async def body(ctx: Context) -> Any:
            stage = ctx.stage("shop", system="Shop.", custom_tools=[buy])
            first = await stage.prompt("get apples")
            second = await stage.prompt("get pears")
            value = await ctx.task("city", prompt="Which?", schema=City)
            return [first, second, value.structured, [m["role"] for m in stage.messages]]

        def replies() -> list[Any]:
            return [
                {"when": "get apples", "tool": {"name": "buy", "arguments": {"what": "apples"}}, "times": "always"},
                {"when": "bought apples", "text": "apples are here", "times": "always"},
                {"when": "get pears", "tool": {"name": "buy", "arguments": {"what": "pears"}}, "times": "always"},
                {"when": "bought pears", "text": "pears are here", "times": "always"},
                {"when": "nobody knows", "text": "I looked: it is here", "times": "always"},
                {"when": "Which", "text": "Bern", "times": 1},
                {"when": "Which", "json": {"name": "Bern", "people": 5}, "times": "always"},
                {"when": "not a valid", "json": {"name": "Bern", "people": 5}, "times": "always"},
            ]

        clock = VirtualClock()
        world = ModelWorld(clock, DyingJournal(clock))
        with script("demo", replies()):
            plain = await world.run(body)
        assert plain.status == "completed", plain
        appends = world.journal.appends
        await world.close()
        assert effects == ["apples", "pears"]

        for at in range(appends):
            effects.clear()
            clock = VirtualClock()
            journal = DyingJournal(clock)
            world = ModelWorld(clock, journal)
            with script("demo", replies()) as it:
                journal.left = at
                execution = None
                try:
                    execution = await world.start(body)
                    await rest(execution)
                except Exception:
                    assert at < appends
                journal.revive()
                if execution is None:
                    await world.close()
                    continue
                run_id = execution.run_id
                await world.restart()
                execution = await world.resume(run_id, body)
                result = await rest(execution)
            assert result.status == "completed", (at, result)
            assert result.result[2:] == plain.result[2:], at
            prompts = [t for r, t in said(execution) if r == "user"]
            assert prompts.count("get apples") == prompts.count("get pears") == 1, at
            # Of a tool that was cut off nobody knows whether it ran; the model is told, and it is not run again.
            assert effects.count("apples") <= 1, at
            assert effects.count("pears") <= 1, at
            assert len(it.requests) <= 7 + 1, at  # one more than without the crash
            await world.close()

    asyncio.run(main())
