"""Real litellm against a server that goes wrong in every way there is."""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loom_kernel.agents.doors import candidate
from loom_kernel.agents.failures import RULES, Next
from loom_kernel.agents.litellm_model import LiteLLMModel
from loom_kernel.agents.model import ModelFailure, Reply, Request
from loom_kernel.testing.fake_openai import FakeOpenAI
from tests.agents.harness import LITELLM_WARNS, on_one_loop

pytestmark = LITELLM_WARNS


@pytest.fixture(scope="module")
def door() -> LiteLLMModel:
    """One for all tests: importing litellm takes seconds."""
    return LiteLLMModel()


@pytest.fixture
def fake() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as server:
        yield server


def ask(door: LiteLLMModel, fake: FakeOpenAI | None, texts: list[str] | None = None, **given: Any) -> Reply:
    """One call."""
    request = Request(
        **{
            "model": "openai/test-model",
            "messages": [{"role": "user", "content": "hello"}],
            "api_key": "sk-test-0123456789abcdef",
            "api_base": fake.base_url if fake is not None else None,
            "timeout_s": 10.0,
            **given,
        }
    )
    return on_one_loop(door.complete(request, None if texts is None else texts.append))


def test_an_answer_streams_and_comes_whole_with_what_it_used(door: LiteLLMModel, fake: FakeOpenAI) -> None:
    """Text, finish and tokens; the request says what was asked for."""
    fake.reply("one two three", usage=(11, 3))
    texts: list[str] = []
    reply = ask(door, fake, texts, max_tokens=9, temperature=0.5)
    assert (reply.text, "".join(texts), reply.finish) == ("one two three", "one two three", "stop")
    assert len(texts) >= 3
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cost_usd) == (11, 3, None)
    assert (fake.requests[0]["max_tokens"], fake.requests[0]["temperature"]) == (9, 0.5)
    assert fake.headers[0]["Authorization"] == "Bearer sk-test-0123456789abcdef"


def test_a_known_model_has_its_price(door: LiteLLMModel, fake: FakeOpenAI) -> None:
    """From the list that comes with litellm, without asking anybody."""
    fake.reply("x", usage=(1000, 1000))
    cost = ask(door, fake, model="openai/gpt-4o-mini").usage.cost_usd
    assert cost is not None
    assert 0 < cost < 1


def test_tool_calls_are_put_together(door: LiteLLMModel, fake: FakeOpenAI) -> None:
    """Name and arguments come in pieces."""
    fake.call_tool("look", {"at": "the moon"}, id="c1")
    tool = {"type": "function", "function": {"name": "look", "description": "", "parameters": {"type": "object"}}}
    reply = ask(door, fake, tools=[tool])
    (call,) = reply.tool_calls
    assert (call.id, call.name, call.arguments, reply.finish) == ("c1", "look", '{"at": "the moon"}', "tool_calls")
    assert fake.requests[0]["tools"] == [tool]


def test_a_level_is_asked_for_only_where_a_model_reasons(door: LiteLLMModel, fake: FakeOpenAI) -> None:
    """Others would refuse the request."""
    fake.reply(times=5)
    ask(door, fake, model="openai/gpt-5-mini", level="low")
    ask(door, fake, model="openai/gpt-4o-mini", level="low")
    ask(door, fake, model="openai/gpt-5-mini", level="off")
    ask(door, fake, model="openai/gpt-5-mini", level="max")  # the highest that it has
    ask(door, fake, model="openai/gpt-5.1", level="off")  # one that can be told not to
    assert [r.get("reasoning_effort") for r in fake.requests] == ["low", None, None, "high", "none"]


Says = Callable[[FakeOpenAI], Any]

FAILURES: list[tuple[str, Says, str, Next, str]] = [
    ("429", lambda f: f.error(429), "rate_limited", Next.RETRY, "active_blocked"),
    ("429-retry-after", lambda f: f.error(429, retry_after=7), "rate_limited", Next.RETRY, "active_blocked"),
    ("429-quota", lambda f: f.error(429, "You exceeded your current quota", code="insufficient_quota"), "quota_limited", Next.ADVANCE, "active_blocked"),
    ("402", lambda f: f.error(402), "quota_limited", Next.ADVANCE, "active_blocked"),
    ("401", lambda f: f.error(401, "Incorrect API key provided: sk-test-0123456789abcdef"), "invalid_api_key", Next.ADVANCE, "terminal_killed"),
    ("403", lambda f: f.error(403), "forbidden_config", Next.ADVANCE, "terminal_killed"),
    ("404", lambda f: f.error(404), "unknown_model", Next.ADVANCE, "terminal_killed"),
    ("400", lambda f: f.error(400, "no such parameter"), "incompatible_request", Next.ADVANCE, "terminal_failed"),
    ("422", lambda f: f.error(422), "incompatible_request", Next.ADVANCE, "terminal_failed"),
    ("413", lambda f: f.error(413), "context_overflow", Next.ADVANCE, "terminal_failed"),
    ("overflow", lambda f: f.context_overflow(), "context_overflow", Next.ADVANCE, "terminal_failed"),
    ("filter", lambda f: f.content_filter(), "refused", Next.STOP, "terminal_failed"),
    ("408", lambda f: f.error(408), "timeout", Next.RETRY, "active_blocked"),
    ("500", lambda f: f.error(500), "provider_unavailable", Next.RETRY, "active_blocked"),
    ("502", lambda f: f.error(502), "provider_unavailable", Next.RETRY, "active_blocked"),
    ("503", lambda f: f.error(503), "provider_unavailable", Next.RETRY, "active_blocked"),
    ("529", lambda f: f.error(529), "provider_unavailable", Next.RETRY, "active_blocked"),
    ("hang", lambda f: f.hang(), "timeout", Next.RETRY, "active_blocked"),
    ("drop", lambda f: f.drop(), "provider_unavailable", Next.RETRY, "active_blocked"),
    ("cut-dropped", lambda f: f.reply("a b c d", fault="drop"), "provider_unavailable", Next.RETRY, "active_blocked"),
    ("cut-truncated", lambda f: f.reply("a b c d", fault="truncate"), "provider_unavailable", Next.RETRY, "active_blocked"),
    ("cut-error", lambda f: f.reply("a b c d", fault="error"), "provider_unavailable", Next.RETRY, "active_blocked"),
    ("stall", lambda f: f.reply("a b c d", fault="stall"), "timeout", Next.RETRY, "active_blocked"),
    ("malformed", lambda f: f.reply("a b c d", fault="malformed"), "provider_unavailable", Next.RETRY, "active_blocked"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("says", "code", "next", "disposition"), [f[1:] for f in FAILURES], ids=[f[0] for f in FAILURES]
)
def test_every_failure_has_its_kind_and_what_follows(
    door: LiteLLMModel, fake: FakeOpenAI, says: Says, code: str, next: Next, disposition: str
) -> None:
    """The table of the reference, through litellm; no key in any sentence."""
    says(fake)
    with pytest.raises(ModelFailure) as raised:
        ask(door, fake, timeout_s=0.7)
    failure = raised.value
    assert failure.code == code, failure
    assert (RULES[failure.code].next, RULES[failure.code].disposition) == (next, disposition)
    assert "sk-test" not in str(failure)
    assert "0123456789abcdef" not in repr(failure)
    if "retry-after" in str(says.__code__.co_consts) or failure.retry_after_s is not None:
        assert failure.retry_after_s == 7


def test_a_filter_in_the_answer_and_an_answer_of_nothing(door: LiteLLMModel, fake: FakeOpenAI) -> None:
    """They come back as replies; the stage decides what they mean."""
    fake.reply("x", finish="content_filter").reply("")
    assert ask(door, fake).finish == "content_filter"
    assert ask(door, fake).empty


def test_a_page_in_the_place_of_an_answer_says_nothing(door: LiteLLMModel, fake: FakeOpenAI) -> None:
    """A proxy's HTML with status 200 holds no event of a stream: an empty answer, which is tried again."""
    fake.raw("<html>busy</html>", 200)
    assert ask(door, fake).empty


def test_an_answer_without_choices_is_a_failure(door: LiteLLMModel, fake: FakeOpenAI) -> None:
    """Not a traceback of somebody's index."""
    fake.reply("x", choices=False)
    with pytest.raises(ModelFailure, match=r"broke off|cannot be"):
        ask(door, fake)


def test_a_server_that_is_not_there(door: LiteLLMModel) -> None:
    """Refused connections can be tried again."""
    with FakeOpenAI() as gone:
        base = gone.base_url
    with pytest.raises(ModelFailure) as raised:
        ask(door, None, api_base=base)
    assert raised.value.code == "provider_unavailable"


@pytest.mark.parametrize(
    "model",
    [
        "openai/gpt-4o-mini",
        "anthropic/claude-sonnet-4-5",
        "gemini/gemini-2.5-pro",
        "mistral/mistral-large-latest",
        "groq/llama-3.1-8b-instant",
    ],
)
def test_without_a_key_nothing_is_sent(door: LiteLLMModel, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence that names the variable."""
    for name in (
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
        "MISTRAL_API_KEY",
        "GROQ_API_KEY",
    ):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ModelFailure, match=r"set [A-Z]+_API_KEY, the key of") as raised:
        ask(door, None, model=model, api_key=None)
    assert raised.value.code == "missing_api_key"


def test_a_numbered_account_has_its_own_key(fake: FakeOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    """``openai-1/x`` is ``openai/x`` with the key of that account."""
    fake.reply().reply()
    door = LiteLLMModel({"openai-1": {"api_base": fake.base_url}, "openai-2": {"api_key_env": "SECOND"}})
    monkeypatch.setenv("OPENAI_1_API_KEY", "one")
    monkeypatch.setenv("SECOND", "two")
    ask(door, None, model="openai-1/test-model", api_key=None)
    ask(door, fake, model="openai-2/test-model", api_key=None)
    assert [h["Authorization"] for h in fake.headers] == ["Bearer one", "Bearer two"]
    assert [r["model"] for r in fake.requests] == ["test-model", "test-model"]
    monkeypatch.delenv("OPENAI_1_API_KEY")
    with pytest.raises(ModelFailure, match="OPENAI_1_API_KEY"):
        ask(door, None, model="openai-1/test-model", api_key=None)


def test_a_server_of_ones_own_needs_no_key(fake: FakeOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    """``[accounts.openai] api_base`` points the usual account there; its key is used where there is one."""
    fake.reply().reply()
    door = LiteLLMModel({"openai": {"api_base": fake.base_url}})
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    ask(door, None, model="openai/mine", api_key=None)
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-that-is-there")
    ask(door, None, model="openai/mine", api_key=None)
    assert [h["Authorization"] for h in fake.headers] == ["Bearer none", "Bearer a-key-that-is-there"]


def test_a_numbered_account_never_takes_another_ones_key(
    door: LiteLLMModel, fake: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the usual one is there."""
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-that-is-there")
    monkeypatch.delenv("OPENAI_7_API_KEY", raising=False)
    with pytest.raises(ModelFailure, match="set OPENAI_7_API_KEY"):
        ask(door, fake, model="openai-7/test-model", api_key=None)
    assert fake.requests == []


@pytest.mark.parametrize("model", ["nonsense/gpt", "nonsense-1/gpt", "gpt-nonsense"])
def test_a_provider_that_does_not_exist_is_no_model(door: LiteLLMModel, model: str) -> None:
    """The next one is asked; the sentence says how a name is written."""
    with pytest.raises(ModelFailure, match="is written provider/model") as raised:
        ask(door, None, model=model)
    assert raised.value.code == "unknown_model"


def test_a_provider_that_needs_no_key_is_asked_without_one(door: LiteLLMModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server on this machine, that is not running now."""
    monkeypatch.delenv("OLLAMA_API_BASE", raising=False)
    with FakeOpenAI() as gone:
        base = gone.base_url
    with pytest.raises(ModelFailure) as raised:
        ask(door, None, model="ollama/llama3:8b", api_key=None, api_base=base)
    assert raised.value.code == "provider_unavailable"


def test_a_key_of_no_known_shape_is_in_no_sentence(door: LiteLLMModel, fake: FakeOpenAI) -> None:
    """Providers quote the key that they refuse."""
    fake.error(401, "The key 'open sesame 12' is not known")
    with pytest.raises(ModelFailure, match=r"The key '\[redacted\]' is not known"):
        ask(door, fake, api_key="open sesame 12")


SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "properties": {}}}}


def test_a_value_comes_in_one_piece(door: LiteLLMModel, fake: FakeOpenAI) -> None:
    """Nobody reads JSON while it is written; what it used and which tools it asks for come, too."""
    fake.json({"a": 1}, usage=(3, 4)).call_tool("look", {})
    texts: list[str] = []
    reply = ask(door, fake, texts, response_format=SCHEMA)
    assert (reply.text, texts, reply.usage.output_tokens, reply.finish) == ('{"a": 1}', ['{"a": 1}'], 4, "stop")
    (call,) = ask(door, fake, response_format=SCHEMA).tool_calls
    assert (call.id, call.name, call.arguments) == ("call_1", "look", "{}")
    assert [r.get("stream") for r in fake.requests] == [None, None]


def test_a_refusal_in_a_field_of_its_own_is_one(door: LiteLLMModel, fake: FakeOpenAI) -> None:
    """With a schema, OpenAI refuses so; it is not an answer of nothing, which would be asked for again."""
    fake.refuse("I cannot do that.")
    with pytest.raises(ModelFailure, match=r"it refused: I cannot do that\.") as raised:
        ask(door, fake, response_format=SCHEMA)
    assert raised.value.code == "refused"


@pytest.mark.parametrize(
    ("says", "code"),
    [
        (lambda f: f.reply("x", choices=False), "provider_unavailable"),
        (lambda f: f.raw("<html>busy</html>"), "provider_unavailable"),
        (lambda f: f.raw('{"choices": [{"mess'), "provider_unavailable"),
        (lambda f: f.hang(), "timeout"),
        (lambda f: f.drop(), "provider_unavailable"),
    ],
)
def test_a_value_that_is_none_is_asked_for_again(door: LiteLLMModel, fake: FakeOpenAI, says: Says, code: str) -> None:
    """No choices, a proxy's page, half a body, nothing at all."""
    says(fake)
    with pytest.raises(ModelFailure) as raised:
        ask(door, fake, response_format=SCHEMA, timeout_s=0.7)
    assert (raised.value.code, RULES[raised.value.code].next) == (code, Next.RETRY)


def events(*data: dict[str, Any]) -> str:
    """A stream of events as it stands on the wire."""
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in data)


def test_thoughts_go_back_with_the_result_of_the_call_that_they_led_to(door: LiteLLMModel) -> None:
    """Anthropic refuses to think without them; where they are gone, the model goes on without thinking."""
    used = {"input_tokens": 5, "output_tokens": 9}
    message = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "c", "usage": used}
    tool = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    body = events(
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "I should look."}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "signed"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": tool},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    )
    look = {"type": "function", "function": {"name": "look", "description": "", "parameters": {"type": "object"}}}
    with FakeOpenAI() as fake:
        for _ in range(3):
            fake.raw(body, **{"Content-Type": "text/event-stream"})
        given: dict[str, Any] = {"model": "anthropic/claude-sonnet-4-5", "level": "low", "tools": [look]}
        given["api_base"] = fake.base_url.removesuffix("/v1")
        (call,) = ask(door, None, **given).tool_calls
        assert (call.id, call.name) == ("toolu_1", "look")
        said = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        talk = [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "", "tool_calls": [said]},
            {"role": "tool", "tool_call_id": call.id, "content": "a moon"},
        ]
        ask(door, None, **given, messages=talk)
        ask(LiteLLMModel(), None, **given, messages=talk)  # as after a restart
    with_thoughts, without = fake.requests[1], fake.requests[2]
    assert with_thoughts["thinking"]["type"] == "enabled"
    (thought,) = [part for part in with_thoughts["messages"][1]["content"] if part["type"] == "thinking"]
    assert (thought["thinking"], thought["signature"]) == ("I should look.", "signed")
    assert "thinking" not in without
    assert [part["type"] for part in without["messages"][1]["content"]] == ["tool_use"]


def test_cancelling_ends_the_request(door: LiteLLMModel) -> None:
    """The server sees that the client went."""

    async def main(fake: FakeOpenAI) -> None:
        request = Request(
            model="openai/m", messages=[{"role": "user", "content": "x"}], api_key="k", api_base=fake.base_url
        )
        first = asyncio.Event()
        task = asyncio.ensure_future(door.complete(request, lambda _: first.set()))
        await asyncio.wait_for(first.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(500):
            if fake.closed_early:
                return
            await asyncio.sleep(0.01)
        raise AssertionError("the server was not told")

    with FakeOpenAI() as fake:
        fake.reply("a b c d e f g h", chunk_s=0.3)
        on_one_loop(main(fake))


def test_names_and_levels() -> None:
    """Only known levels are suffixes."""
    for text, name, level in [
        ("openai/gpt-5:high", "openai/gpt-5", "high"),
        ("ollama/llama3:8b", "ollama/llama3:8b", None),
        ("ollama/llama3:8b:off", "ollama/llama3:8b", "off"),
        ("gpt-5", "gpt-5", None),
    ]:
        found = candidate(text)
        assert (found.name, found.level, str(found)) == (name, level, text)


def test_litellm_brings_nothing_that_runs_at_every_start() -> None:
    """The malicious releases of 2026 had a ``.pth`` file; ours is pinned away from them and has none."""
    files = importlib.metadata.files("litellm") or []
    assert not [f for f in files if f.suffix == ".pth"]
    assert importlib.metadata.version("litellm") not in ("1.82.7", "1.82.8")


def test_nobody_pays_for_litellm_who_asks_no_model() -> None:
    """Importing us, and running a workflow with a scripted model, leaves it alone."""
    code = (
        "import asyncio, sys\n"
        "from loom_kernel import workflow, Context\n"
        "from loom_kernel.testing import run, script\n"
        "@workflow\n"
        "async def w(ctx: Context):\n"
        "    return (await ctx.task('t', prompt='x')).text\n"
        "with script('demo', ['y']):\n"
        "    assert asyncio.run(run(w, model='scripted/demo')).result == 'y'\n"
        "print([m for m in ('litellm', 'openai', 'httpx', 'mcp', 'tornado') if m in sys.modules])\n"
    )
    root = Path(__file__).parents[2]
    out = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert out.stdout.strip() == "[]", out.stderr
    assert importlib.util.find_spec("litellm") is not None
