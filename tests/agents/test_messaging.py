"""Messages between stages: who reaches whom, what waits, what a question changes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loom_kernel import events as ev
from loom_kernel.agents.messaging import group_of, matches, may_write, pattern
from loom_kernel.agents.scripted import script
from loom_kernel.authoring.agents import Step
from loom_kernel.authoring.context import Context
from loom_kernel.errors import LoomError
from tests.agents.harness import ModelWorld
from tests.engine.harness import events_of, rest, until


def intercom(**arguments: Any) -> dict[str, Any]:
    return {"tool": {"name": "intercom", "arguments": arguments}}


def told(execution: Any) -> list[str]:
    texts = [e.text for e in events_of(execution, ev.MessageRecorded) if e.role == "tool"]
    return [t.split("\n", 1)[1].rsplit("\n", 1)[0] if t.startswith("<tool_result") else t for t in texts]


def test_groups_and_addresses() -> None:
    """Down from the family, within a group, and nowhere else."""
    fresh = iter(["own", "other"]).__next__
    assert group_of("r", None, fresh) == "workflow:r"
    assert group_of("r", " reviewers ", fresh) == "workflow:r/reviewers"
    assert [group_of("r", one, fresh) for one in (True, "AUTO")] == ["workflow:r/own", "workflow:r/other"]
    assert group_of("r", "default", fresh) == "default"
    for sender, receiver, may in [
        ("workflow:r", "workflow:r", True),
        ("workflow:r", "workflow:r/a", True),
        ("workflow:r/a", "workflow:r/a", True),
        ("workflow:r/a", "workflow:r", False),
        ("workflow:r/a", "workflow:r/b", False),
        ("workflow:r", "workflow:s", False),
        ("workflow:r", "workflow:rr/a", False),
        ("default", "workflow:r", False),
    ]:
        assert may_write(sender, receiver) is may, (sender, receiver)
    assert pattern("workflow:r", "a/b") == "workflow:r/a/b"
    for wrong in ("", "/", "a//b"):
        with pytest.raises(LoomError, match="no address"):
            pattern("workflow:r", wrong)
    for address, wanted, fits in [
        ("workflow:r/a", "workflow:r/*", True),
        ("workflow:r/a/b", "workflow:r/*", False),
        ("workflow:r/a/b", "workflow:r/**", True),
        ("workflow:r/a/b", "workflow:r/*/b", True),
        ("workflow:r/ab", "workflow:r/a*", True),
        ("workflow:r/a.b", "workflow:r/a?b", False),
    ]:
        assert matches(address, wanted) is fits, (address, wanted)


def test_a_stage_hears_what_another_sends_and_what_was_sent_before_it_came() -> None:
    """After its batch of tools, once, with who sent it; nobody there is said."""

    async def main() -> None:
        world = ModelWorld()

        async def body(ctx: Context) -> Any:
            await ctx.task("first", prompt="first", tools=["intercom"])
            second = await ctx.task("second", prompt="second")
            return second.text

        replies = [
            {"when": "first", **intercom(action="list")},
            {"when": "nobody else", **intercom(action="send", to="second", text="mind the gap")},
            {"when": "not_in_known_set", "text": "sent"},
            {"when": "mind the gap", "text": "minded"},
        ]
        with script("demo", replies) as it:
            execution = await world.start(body)
            assert (await rest(execution)).result == "minded"
        assert told(execution)[0] == "nobody else is here"
        assert told(execution)[1].startswith("not_in_known_set")
        second = [m["content"] for m in it.requests[-1].messages]
        assert second == ["second", f"[message from workflow:{execution.run_id}/first]\nmind the gap"]
        await world.close()

    asyncio.run(main())


def test_what_waits_is_not_lost_in_a_crash_and_not_heard_twice() -> None:
    """The journal has it; whoever comes after the restart gets it."""

    async def main() -> None:
        world = ModelWorld()

        async def body(ctx: Context) -> Any:
            await ctx.task("first", prompt="first", tools=["intercom"])
            await ctx.ui.confirm("go?", name="go")
            await ctx.task("second", prompt="second")
            return (await ctx.task("third", prompt="third")).text

        replies = [
            {"when": "first", **intercom(action="send", to="*", text="hello all")},
            {"when": "not_in_known_set", "text": "sent"},
            {"when": "hello all", "text": "heard", "times": "always"},
        ]
        with script("demo", replies) as it:
            execution = await world.start(body)
            await until(lambda: any(e.type == "prompt.opened" for e in execution.entries))
            await world.restart()
            execution = await world.resume(execution.run_id, body)
            await world.answer(execution, True)
            assert (await rest(execution)).result == "heard"
        assert [len(r.messages) for r in it.requests[2:]] == [2, 2]
        await world.close()

    asyncio.run(main())


def test_a_question_is_answered_beside_the_work_and_changes_nothing() -> None:
    """Also by a stage that is done; the answer is the asker's tool result, the use is the asked one's."""

    async def main() -> None:
        world = ModelWorld()

        async def body(ctx: Context) -> Any:
            expert = ctx.stage("expert", system="You know the code word: figs.")
            await expert.prompt("be ready")
            asked = await ctx.task("asker", prompt="find out", tools=["intercom"])
            return [asked.text, len(expert.messages)]

        replies = [
            {"when": "be ready", "text": "ready"},
            {"when": "find out", **intercom(action="ask", to="expert", text="What is the word?")},
            {"when": "What is the word?", "text": "figs"},
            {"when": "figs", **intercom(action="ask", to="nobody", text="x")},
            {"when": "0 stages are", "text": "it is figs"},
        ]
        with script("demo", replies) as it:
            execution = await world.start(body)
            assert (await rest(execution)).result == ["it is figs", 3]
        question = it.requests[2].messages
        assert [m["content"] for m in question[:3]] == ["You know the code word: figs.", "be ready", "ready"]
        assert "[question from asker" in question[3]["content"]
        assert "There are: expert" in told(execution)[1]
        await world.close()

    asyncio.run(main())


def test_a_group_of_its_own_is_out_of_reach() -> None:
    """Sideways and upwards nothing goes; a set of parallel steps with ``group=True`` shares one."""

    async def main() -> None:
        world = ModelWorld()

        async def body(ctx: Context) -> Any:
            steps = [
                Step("a", "prompt a", tools=["intercom"]),
                Step("b", "prompt b", group="apart", tools=["intercom"]),
            ]
            found = await ctx.parallel(steps, group=True)
            return [r.text for r in found]

        replies = [
            {"when": "prompt a", **intercom(action="send", to="workflow:x/b", text="over there")},
            {"when": "prompt b", **intercom(action="list")},
            {"when": "not in reach", "text": "a is alone"},
            {"when": "nobody else", "text": "b is alone"},
        ]
        with script("demo", replies):
            result = await world.run(body)
        assert result.result == ["a is alone", "b is alone"]
        await world.close()

    asyncio.run(main())


def test_what_nobody_got_is_said_when_the_run_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    """Once, and nothing of it stays."""

    async def main() -> None:
        world = ModelWorld()

        async def body(ctx: Context) -> Any:
            await ctx.task("first", prompt="first", tools=["intercom"])

        replies = [intercom(action="send", to="ghost", text="boo"), "sent"]
        with script("demo", replies):
            await world.run(body)
        assert "nobody got the message of" in caplog.text
        assert world.agents.bus._letters == {}
        assert world.agents.bus._members == {}
        await world.close()

    asyncio.run(main())
