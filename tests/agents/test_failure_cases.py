"""Cases that people met elsewhere: items 30 to 43 of the list, each by its number (30 to 32 are in ``test_stages.py``)."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from loom_kernel import events as ev
from loom_kernel.agents.asking import RetrySettings
from loom_kernel.agents.doors import Doors
from loom_kernel.agents.litellm_model import LiteLLMModel
from loom_kernel.agents.model import Request
from loom_kernel.agents.scripted import script
from loom_kernel.authoring.context import Context
from loom_kernel.clock import SystemClock, VirtualClock
from loom_kernel.errors import StageFailed
from loom_kernel.testing.fake_openai import FakeOpenAI
from tests.agents.harness import LITELLM_WARNS, ModelWorld, on_one_loop
from tests.engine.harness import DyingJournal, events_of, nodes, rest, until

pytestmark = LITELLM_WARNS


class City(BaseModel):
    name: str
    people: int


LITELLM = LiteLLMModel()
"""One for all: importing it takes seconds."""


def real_world(fake: FakeOpenAI, monkeypatch: pytest.MonkeyPatch, **home: Any) -> ModelWorld:
    """A world whose models are asked through the real litellm."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdef")
    world = ModelWorld(SystemClock(), model=lambda: "openai/one", retry=RetrySettings(base_s=0.01), **home)

    class Here:
        """litellm keeps clients by the address that a call names, so each names its own."""

        async def complete(self, request: Request, on_text: Any = None) -> Any:
            return await LITELLM.complete(dataclasses.replace(request, api_base=fake.base_url), on_text)

    class Real(Doors):
        def _make(self, kind: str) -> Any:
            return Here()

    world.agents.doors = Real()
    return world


def task(**options: Any) -> Any:
    async def body(ctx: Context) -> Any:
        result = await ctx.task("t", prompt="go", **options)
        return [result.text, result.model, result.structured]

    return body


def said(execution: Any, role: str) -> list[str]:
    return [e.text for e in events_of(execution, ev.MessageRecorded) if e.role == role]


# ---------------------------------------------------------------- through litellm, against a server


def test_items_30_and_31_corrections_and_empty_answers_through_a_real_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spec 5.30, 5.31: an answer that does not fit is corrected, an empty one is asked for again without a correction."""

    async def main(fake: FakeOpenAI) -> None:
        world = real_world(fake, monkeypatch)
        result = await rest(await world.start(task(schema=City)), 60)
        assert result.result[2] == City(name="Bern", people=1)
        assert [len(r["messages"]) for r in fake.requests] == [1, 1, 3]
        assert fake.requests[0]["response_format"]["type"] == "json_schema"
        await world.close()

    with FakeOpenAI() as fake:
        fake.reply("").json({"name": "Bern"}).json({"name": "Bern", "people": 1})
        on_one_loop(main(fake))


def test_item_32_a_limited_primary_and_a_fallback_without_leave_is_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spec 5.32: not silent, not failed: the run waits and says for whom."""

    async def main(fake: FakeOpenAI) -> None:
        world = real_world(fake, monkeypatch)
        result = await rest(await world.start(task(model="openai/one", fallback_models=["openai/two"])), 60)
        assert (result.status, result.reason) == ("blocked", "rate_limit")
        assert [r["model"] for r in fake.requests] == ["one", "one", "one", "two"]
        await world.close()

    with FakeOpenAI() as fake:
        fake.when(lambda r: r["model"] == "one").error(429, times=3)
        fake.when(lambda r: r["model"] == "two").error(401)
        on_one_loop(main(fake))


def test_item_33_a_slow_stream_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spec 5.33: silence is no failure; only the call's own time ends it, and then it is one."""

    async def main(fake: FakeOpenAI) -> None:
        world = real_world(fake, monkeypatch)
        result = await rest(await world.start(task(model="openai/one", fallback_models=["openai/two"])), 60)
        assert result.result[:2] == ["slow but here", "openai/one"]
        timed = await rest(
            await world.start(task(model="openai/one", fallback_models=["openai/two"], timeout_s=0.5)), 60
        )
        assert timed.result[:2] == ["quick", "openai/two"]
        await world.close()

    with FakeOpenAI() as fake:
        fake.when(lambda r: r["model"] == "one").reply("slow but here", chunk_s=0.4)
        fake.when(lambda r: r["model"] == "one").hang(times=3)
        fake.when(lambda r: r["model"] == "two").reply("quick")
        on_one_loop(main(fake))


def test_item_34_an_overflow_is_compacted_once_and_then_the_next_model_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spec 5.34: the same request is never sent again to a model for which it is too long."""

    async def body(ctx: Context) -> Any:
        stage = ctx.stage("talk", model="openai/one", fallback_models=["openai/two"])
        await stage.prompt("first")
        await stage.prompt("second")
        return [await stage.prompt("third"), stage.model]

    def last(request: Any) -> Any:
        return request["messages"][-1]["content"]

    async def main(fake: FakeOpenAI) -> None:
        world = real_world(fake, monkeypatch)
        execution = await world.start(body)
        assert (await rest(execution, 60)).result == ["three", "openai/two"]
        third = [r for r in fake.requests if last(r) == "third"]
        assert [r["model"] for r in third] == ["one", "one", "two"]
        assert len(third[0]["messages"]) == 5
        assert [m["content"] for m in third[1]["messages"]] == ["Summary of what came before:\n\nin short", "third"]
        assert third[2]["messages"] == third[1]["messages"]
        await world.close()

    with FakeOpenAI() as fake:
        fake.when(lambda r: last(r) == "first").reply("one")
        fake.when(lambda r: last(r) == "second").reply("two")
        fake.when(lambda r: last(r) == "third" and r["model"] == "one").context_overflow(times=2)
        fake.when(lambda r: r["messages"][0]["role"] == "system").reply("in short")
        fake.when(lambda r: last(r) == "third" and r["model"] == "two").reply("three")
        on_one_loop(main(fake))


# ---------------------------------------------------------------- sessions and rests


def test_item_35_prompts_that_race_on_one_session_are_said_one_after_the_other() -> None:
    """Spec 5.35: one session, one walk of candidates at a time; nothing is mixed up."""

    async def main() -> None:
        world = ModelWorld()

        async def body(ctx: Context) -> Any:
            stage = ctx.stage("talk")
            found = await asyncio.gather(stage.prompt("a"), stage.prompt("b"), stage.prompt("c"))
            return [found, [m["text"] for m in stage.messages]]

        with script("demo", [{"echo": True, "delay_s": 1.0, "times": "always"}]):
            result = await world.run(body)
        assert result.result == [["a", "b", "c"], ["a", "a", "b", "b", "c", "c"]]
        await world.close()

    asyncio.run(main())


def test_item_36_a_stop_during_a_retry_burns_no_fallback() -> None:
    """Spec 5.36: the resumed stage asks the first model, with the prompt said once."""

    async def main() -> None:
        clock = SystemClock()
        world = ModelWorld(clock, retry=RetrySettings(base_s=60.0))
        body = task(model="scripted/one", fallback_models=["scripted/two"])
        with script("one", [{"error": "rate_limited"}, "here"]) as one, script("two", ["no"]) as two:
            execution = await world.start(body)
            await until(lambda: any(e["type"] == "retry" for _, _, e in world.events))
            await world.post(execution.run_id, ev.StopRequested(by="ann"))
            assert (await rest(execution)).status == "paused"
            execution = await world.resume(execution.run_id, body)
            assert (await rest(execution)).result[:2] == ["here", "scripted/one"]
        assert (len(one.requests), len(two.requests)) == (2, 0)
        assert said(execution, "user") == ["go"]
        await world.close()

    asyncio.run(main())


def test_item_37_a_stop_in_the_middle_of_an_answer_is_a_pause_and_goes_on() -> None:
    """Spec 5.37: not a failure; what was said so far is not taken for the answer."""

    async def main() -> None:
        world = ModelWorld(SystemClock())
        body = task()
        with script("demo", [{"text": "one two three four", "chunk_s": 30.0}, "whole"]):
            execution = await world.start(body)
            await until(lambda: any(e["type"] == "message_start" for _, _, e in world.events))
            await world.post(execution.run_id, ev.StopRequested(by="ann"))
            result = await rest(execution)
            assert (result.status, result.error) == ("paused", None)
            execution = await world.resume(execution.run_id, body)
            assert (await rest(execution)).result[0] == "whole"
        assert said(execution, "assistant") == ["whole"]
        await world.close()

    asyncio.run(main())


def test_item_38_what_waits_in_a_queue_is_said_in_its_place_and_never_lost() -> None:
    """Spec 5.38: a follow-up to an idle stage waits for its next turn; steering is not demoted; a crash repeats nothing."""

    async def main() -> None:
        world = ModelWorld()

        async def body(ctx: Context) -> Any:
            stage = ctx.stage("talk")
            await stage.prompt("one")
            await stage.follow_up("later")
            await stage.steer("sooner")
            await stage.prompt("two")
            await ctx.ui.confirm("go?", name="go")
            return [m["text"] for m in stage.messages if m["role"] == "user"]

        with script("demo", [{"text": "x", "times": "always"}]):
            execution = await world.start(body)
            await until(lambda: any(e.type == "prompt.opened" for e in execution.entries))
            await world.restart()
            execution = await world.resume(execution.run_id, body)
            await world.answer(execution, True)
            assert (await rest(execution)).result == ["one", "two", "sooner", "later"]
        await world.close()

    asyncio.run(main())


def test_item_39_a_message_after_its_end_does_not_reopen_a_finished_turn() -> None:
    """Spec 5.39: it begins a turn of its own, as another node."""

    async def main() -> None:
        world = ModelWorld()

        async def body(ctx: Context) -> Any:
            stage = ctx.stage("talk")
            first = await stage.prompt("one")
            await stage.send("more")
            return first

        with script("demo", ["a", "b"]):
            execution = await world.start(body)
            assert (await rest(execution)).result == "a"
        assert nodes(execution) == ["talk", "talk"]
        results = [e.result for e in events_of(execution, ev.NodeCompleted)]
        assert b'"a"' in bytes(results[0])
        await world.close()

    asyncio.run(main())


def test_item_40_a_message_that_cannot_be_written_ends_the_execution() -> None:
    """Spec 5.40: nothing is complete of which the journal has a part only."""

    async def main() -> None:
        clock = VirtualClock()
        journal = DyingJournal(clock)
        world = ModelWorld(clock, journal)
        with script("demo", [{"text": "x", "times": "always"}]):
            assert (await world.run(task())).status == "completed"
            whole = journal.appends
            journal.appends, journal.left = 0, whole - 2  # before the answer's own write
            execution = await world.start(task())
            with pytest.raises(Exception, match="killed"):
                await rest(execution)
        assert "node.completed" not in [e.type for e in execution.entries]
        assert "run.ended" not in [e.type for e in execution.entries]
        await world.close()

    asyncio.run(main())


# ---------------------------------------------------------------- what is left behind


def test_items_41_and_42_output_is_written_by_the_stage_alone(tmp_path: Path) -> None:
    """Spec 5.41, 5.42: ``output=False`` is no file; the model's tools do not write the stage's own file."""

    async def main() -> None:
        world = ModelWorld(folder=lambda: tmp_path / "runs")

        async def body(ctx: Context) -> Any:
            await ctx.task("none", prompt="go", output=False, cwd=tmp_path)
            return await ctx.task(
                "report", prompt="go", output="out/report.md", tools=["edits"], approval="never", cwd=tmp_path
            )

        replies = [
            "x",
            {"tool": {"name": "write", "arguments": {"path": "out/report.md", "text": "mine"}}},
            "the report",
        ]
        with script("demo", replies):
            execution = await world.start(body)
            result = (await rest(execution)).result
        assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "runs"]
        assert (tmp_path / "out" / "report.md").read_text() == "the report"
        assert "is written with your answer" in said(execution, "tool")[0]
        output, session = result.artifacts
        assert (output.kind, output.path, session.kind) == ("output", str(tmp_path / "out" / "report.md"), "session")
        transcript = Path(session.path)
        assert transcript.is_relative_to(tmp_path / "runs" / execution.run_id / "transcripts")
        assert "the report" in transcript.read_text()
        assert "-> write(" in transcript.read_text()
        await world.close()

    asyncio.run(main())


def test_item_43_a_file_that_is_only_a_file_does_not_flood_who_asked(tmp_path: Path) -> None:
    """Spec 5.43: the result is a reference; inline text is cut to size, lines first; an empty artifact says so."""

    async def main() -> None:
        world = ModelWorld(folder=lambda: tmp_path / "runs")

        async def body(ctx: Context) -> Any:
            long = await ctx.task("long", prompt="go", output="long.md", output_mode="file-only", cwd=tmp_path)
            cut = await ctx.task("cut", prompt="go", max_output={"lines": 2, "bytes": 7})
            stage = ctx.stage(
                "empty", output="empty.md", output_mode="file-only", cwd=tmp_path, schema=City, custom_tools=[look]
            )
            await stage.prompt("go")
            return [long.text, cut.text]

        def look() -> str:
            """Look."""
            return "seen"

        value = {"tool": {"name": "structured_output", "arguments": {"instructions": "x", "state": {"a": 1}}}}
        with script("demo", ["word " * 100_000, "ä1\nä2\nä3", value, {"json": {"name": "Bern", "people": 1}}]):
            text, cut = (await rest(await world.start(body))).result
        assert text.startswith(f"Output: {tmp_path}/long.md (500000 bytes, 1 lines)\nTranscript: ")
        assert len(text) < 400
        assert (tmp_path / "long.md").stat().st_size == 500_000
        assert cut == "ä1\nä2\n\n[cut: 7 of 11 bytes, 2 of 3 lines]" or cut.startswith("ä1\nä\n\n[cut:")
        assert (tmp_path / "empty.md").read_text() == ""
        await world.close()

    asyncio.run(main())


def test_follow_ups_become_numbered_supplements_of_the_output(tmp_path: Path) -> None:
    """In order, each as it was said."""

    async def main() -> None:
        world = ModelWorld()

        async def body(ctx: Context) -> Any:
            stage = ctx.stage("report", output="r.md", cwd=tmp_path)
            await stage.follow_up("and more?")
            await stage.prompt("go")

        with script("demo", ["first", "second"]):
            await world.run(body)
        assert (tmp_path / "r.md").read_text() == "first\n\n## Supplement 1\n\nsecond"
        await world.close()

    asyncio.run(main())


def test_what_is_to_be_read_must_be_there_before_the_model_is_asked(tmp_path: Path) -> None:
    """``reads`` hands over paths, not contents; a missing one fails the stage."""
    (tmp_path / "a.txt").write_text("secret contents")

    async def main() -> None:
        world = ModelWorld()
        with script("demo", ["x"]) as it:
            await world.run(task(reads=["a.txt"], cwd=tmp_path))
            missing = await world.run(task(reads=["b.txt"], cwd=tmp_path))
        assert it.requests[0].messages[0]["content"] == f"[Read from: {tmp_path}/a.txt]\n\ngo"
        assert "reads='b.txt'" in str(missing.error)
        assert len(it.requests) == 1
        await world.close()

    asyncio.run(main())


def test_the_refusal_of_a_provider_stops_the_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other model is asked what one refused for its content."""

    async def main(fake: FakeOpenAI) -> None:
        world = real_world(fake, monkeypatch)
        result = await rest(await world.start(task(model="openai/one", fallback_models=["openai/two"])), 60)
        assert isinstance(result.error, StageFailed)
        assert (result.status, result.error.code) == ("failed", "refused")
        assert "sk-test" not in str(result.error)
        await world.close()

    with FakeOpenAI() as fake:
        fake.reply("x", finish="content_filter")
        on_one_loop(main(fake))
