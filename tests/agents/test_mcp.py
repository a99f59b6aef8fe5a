"""MCP servers of a stage: a real one, over its standard input and output."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from loom_kernel import events as ev
from loom_kernel.agents import mcp
from loom_kernel.agents.approval import ONCE
from loom_kernel.agents.scripted import script
from loom_kernel.authoring.agents import McpScope
from loom_kernel.authoring.context import Context
from loom_kernel.errors import SettingsError, StageFailed
from tests.agents.harness import ModelWorld
from tests.engine.harness import asked, events_of, rest

SERVER = {"command": sys.executable, "args": [str(Path(__file__).with_name("mcp_server.py"))]}
ALL = ["shop__buy", "shop__close", "shop__picture", "shop__price"]
SHOP = {"shop": {**SERVER, "env": {"CURRENCY": "$MONEY"}}}


def body_with(**options: Any) -> Any:
    async def body(ctx: Context) -> str:
        return (await ctx.task("work", prompt="go", **options)).text

    return body


def test_a_servers_tools_are_the_stages_while_it_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the server's name; reading is free, the rest is asked for; its errors are told to the model."""
    monkeypatch.setenv("MONEY", "francs")
    replies = [
        {"tool": {"name": "shop__price", "arguments": {"what": "figs"}}},
        {"tool": {"name": "shop__buy", "arguments": {"what": "moon"}}},
        "done",
    ]

    async def main() -> None:
        world = ModelWorld(mcp=SHOP)
        with script("demo", replies) as it:
            execution = await world.start(body_with())
            opened, _ = await asked(execution)
            assert opened.message == "work: may it call shop__buy?"
            await world.answer(execution, ONCE)
            assert (await rest(execution, 30)).result == "done"
        assert sorted(t["function"]["name"] for t in it.requests[0].tools) == ALL
        said = [e.text for e in events_of(execution, ev.MessageRecorded) if e.role == "tool"]
        assert "figs costs 4 in francs" in said[0]
        assert "Error executing tool buy" in said[1]
        await world.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"mcp": McpScope(deny=["shop"])}, []),
        ({"mcp": {"allow": ["other"]}}, []),
        ({"mcp": {"allow": ["shop"]}, "excluded_tools": ["shop__buy"]}, ALL[1:]),
        ({"mcp": {"deny": ["shop"]}, "excluded_tools": ["shop__buy"], "approval": {"shop__price": "ask"}}, []),
        ({"tools": ["shop__buy"]}, ["shop__buy"]),
        ({"no_tools": "all"}, []),
    ],
)
def test_scope_and_lists_say_what_there_is(options: dict[str, Any], names: list[str]) -> None:
    """``deny`` wins; with ``tools=`` only what is named."""

    async def main() -> None:
        world = ModelWorld(mcp={"shop": SERVER})
        with script("demo", ["done"]) as it:
            assert (await world.run(body_with(**options))).status == "completed"
        assert sorted(t["function"]["name"] for t in it.requests[0].tools) == names
        await world.close()

    asyncio.run(main())


def test_a_server_that_cannot_start_fails_the_stage_at_once_and_one_that_is_late_is_tried_again() -> None:
    """The sentence names the server; a refused connection leaves a run that can be resumed."""

    async def main() -> None:
        broken = {"shop": {"command": sys.executable, "args": [*SERVER["args"], "--broken"]}}
        for servers, status in (
            ({"shop": {"command": "no-such-program"}}, "failed"),
            (broken, "failed"),
            ({"shop": {"url": "http://127.0.0.1:9/mcp"}}, "blocked"),
        ):
            world = ModelWorld(mcp=servers)
            with script("demo", []) as it:
                result = await world.run(body_with())
            assert isinstance(result.error, StageFailed)
            assert "the MCP server 'shop' does not start" in str(result.error)
            assert (result.status, it.requests) == (status, []), result
            await world.close()

    asyncio.run(main())


@pytest.mark.parametrize("options", [{"tools": ["read"]}, {"tools": []}, {"no_tools": "all"}])
def test_a_server_is_started_only_for_a_stage_that_may_use_it(options: dict[str, Any]) -> None:
    """One that is broken does no harm to the others."""

    async def main() -> None:
        world = ModelWorld(mcp={"shop": {"command": "no-such-program"}})
        with script("demo", ["done"]):
            assert (await world.run(body_with(**options))).result == "done"
        await world.close()

    asyncio.run(main())


def test_a_server_that_dies_and_a_result_that_is_no_text_are_told_to_the_model() -> None:
    """Nobody waits for a dead one."""
    replies = [{"tool": {"name": name, "arguments": {}}} for name in ("shop__picture", "shop__close", "shop__picture")]

    async def main() -> None:
        world = ModelWorld(mcp={"shop": SERVER})
        with script("demo", [*replies, "done"]):
            execution = await world.start(body_with())
            assert (await rest(execution, 30)).result == "done"
        said = [e.text.splitlines()[1] for e in events_of(execution, ev.MessageRecorded) if e.role == "tool"]
        assert said[0] == "[image/png, not shown]", said
        assert all(s.startswith("error: ") for s in said[1:]), said
        await world.close()

    asyncio.run(main())


def test_settings_that_cannot_be() -> None:
    """One sentence each."""
    for given, sentence in [
        ({"a": {}}, "either command= or url="),
        ({"a": {"command": "x", "url": "y"}}, "either command= or url="),
        ({"a": {"comand": "x"}}, "no field named 'comand'"),
        ({"a b": {"command": "x"}}, "plain name"),
    ]:
        with pytest.raises(SettingsError, match=sentence):
            mcp.check(given)
