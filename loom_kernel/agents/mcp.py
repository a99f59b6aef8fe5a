"""Tools of MCP servers, through the official client: started for a stage, gone with it.

Servers stand in ``loom.toml``: ``[mcp.NAME]`` with ``command``, ``args`` and ``env``, or with ``url``. Values of ``env`` that
begin with ``$`` are taken from the environment, so that no secret stands in the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from loom_kernel.agents.asking import RetrySettings
from loom_kernel.agents.model import ModelFailure
from loom_kernel.agents.tools import Tool, ToolTurn
from loom_kernel.authoring.agents import McpScope
from loom_kernel.errors import LoomError, SettingsError, StageFailed

START_S = 30.0
CALL_S = 300.0

MISSING = "MCP servers need the mcp client: pip install 'loom-kernel[mcp]'"


def check(servers: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The table ``[mcp]`` of the settings.

    Raises:
        SettingsError: a server has neither a command nor a URL, or a field that does not exist.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, given in servers.items():
        if not isinstance(given, Mapping) or not re.fullmatch(r"[A-Za-z0-9_-]{1,30}", name):
            raise SettingsError(
                f"[mcp.{name}] in loom.toml: a table with command= or url= is needed, under a plain name"
            )
        unknown = sorted(set(given) - {"command", "args", "env", "url", "cwd"})
        if unknown:
            raise SettingsError(
                f"[mcp.{name}] in loom.toml: no field named {unknown[0]!r}; there are command, args, env, cwd, url"
            )
        if ("command" in given) is ("url" in given):
            raise SettingsError(f"[mcp.{name}] in loom.toml: either command= or url= is needed")
        found[name] = dict(given)
    return found


def admitted(names: Mapping[str, Any], scope: McpScope | None) -> list[str]:
    """The servers that a stage's scope lets in; ``deny`` wins."""
    if scope is None:
        return sorted(names)
    return sorted(n for n in names if (scope.allow is None or n in scope.allow) and n not in scope.deny)


@contextlib.asynccontextmanager
async def served(
    stage: str,
    servers: Mapping[str, Mapping[str, Any]],
    scope: McpScope | None,
    *,
    retry: RetrySettings,
    sleep: Callable[[float], Awaitable[None]],
) -> AsyncIterator[list[Tool]]:
    """The tools of the servers that the scope lets in, while it holds.

    Raises:
        StageFailed: a server does not start; the sentence names it and its own error. What a busy machine may be the
            reason of is tried again, and leaves a run that can be resumed.
    """
    names = admitted(servers, scope)
    if not names:
        yield []
        return
    if importlib.util.find_spec("mcp") is None:
        raise StageFailed(stage, "missing_package", MISSING)
    async with contextlib.AsyncExitStack() as stack:
        tools: list[Tool] = []
        for name in names:
            tools += await _started(stage, name, servers[name], stack, retry, sleep)
        yield tools


async def _started(
    stage: str,
    name: str,
    config: Mapping[str, Any],
    stack: contextlib.AsyncExitStack,
    retry: RetrySettings,
    sleep: Callable[[float], Awaitable[None]],
) -> list[Tool]:
    n = 0
    while True:
        n += 1
        try:
            async with contextlib.AsyncExitStack() as own:  # one that does not come so far is not kept beside the next
                client = await own.enter_async_context(_client(config))
                async with asyncio.timeout(START_S):
                    tools = await _tools(name, client)
                await stack.enter_async_context(own.pop_all())
                return tools
        except Exception as error:
            cause = _innermost(error)
            passing = isinstance(cause, (TimeoutError, ConnectionError)) or "connect" in type(cause).__name__.lower()
            sentence = f"the MCP server {name!r} does not start: {type(cause).__name__}: {cause}"
            if not passing:
                raise StageFailed(stage, "unknown", sentence) from None
            wait = retry.wait(n, ModelFailure("provider_unavailable", sentence), 1.0)
            if wait is None:
                raise StageFailed(stage, "provider_unavailable", sentence, "active_blocked") from None
            await sleep(wait)


@contextlib.asynccontextmanager
async def _client(config: Mapping[str, Any]) -> AsyncIterator[Any]:
    import mcp
    from mcp.client.stdio import stdio_client

    if "url" in config:
        async with asyncio.timeout(START_S) as limit, mcp.Client(config["url"]) as client:
            limit.reschedule(None)
            yield client
        return
    environment = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "TMPDIR", "USER", "SHELL")}
    for key, value in dict(config.get("env") or {}).items():
        environment[key] = (
            os.environ.get(value[1:], "") if isinstance(value, str) and value.startswith("$") else str(value)
        )
    parameters = mcp.StdioServerParameters(
        command=config["command"],
        args=[str(a) for a in config.get("args") or ()],
        env=environment,
        cwd=config.get("cwd"),
    )
    with tempfile.TemporaryFile("w+") as log:  # what a server says beside the protocol is nobody's output
        async with asyncio.timeout(START_S) as limit, mcp.Client(stdio_client(parameters, errlog=log)) as client:
            limit.reschedule(None)
            yield client


def _innermost(error: BaseException) -> BaseException:
    """Of a group of one the one, however deep."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error


async def _tools(server: str, client: Any) -> list[Tool]:
    found: list[Tool] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        found += [_tool(server, client, one) for one in page.tools]
        cursor = page.next_cursor
        if not cursor:
            return found


def _text(part: Any) -> str:
    """A part of a result as text; of what is none, what it is."""
    match part.type:
        case "text":
            return str(part.text)
        case "resource" if hasattr(part.resource, "text"):
            return str(part.resource.text)
        case "resource" | "resource_link":
            return f"[{part.resource.uri if part.type == 'resource' else part.uri}]"
        case _:
            return f"[{getattr(part, 'mime_type', part.type)}, not shown]"


def _tool(server: str, client: Any, given: Any) -> Tool:
    hints = given.annotations
    reads = bool(hints is not None and hints.read_only_hint)
    again = reads or bool(hints is not None and hints.idempotent_hint)

    async def run(arguments: dict[str, Any], turn: ToolTurn) -> Any:
        result = await client.call_tool(given.name, arguments, read_timeout_seconds=CALL_S)
        text = "\n".join(map(_text, result.content))
        if result.is_error:
            raise LoomError(text or "the server gave no reason")
        return text or result.structured_content or "done"

    name = re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}__{given.name}")[:64]
    return Tool(
        name=name,
        description=given.description or given.title or given.name,
        parameters=given.input_schema,
        run=run,
        repeatable=again,
        approval="never" if reads else "ask",
        source="mcp",
    )
