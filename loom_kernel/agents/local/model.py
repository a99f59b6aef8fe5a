"""The door to local models: bytes, process, and the OpenAI protocol between.

Tools become a constraint: a small model that is asked for a call in words seldom makes one, and one whose answer can only
be a call always does.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from loom_kernel.agents.local import catalogue, store
from loom_kernel.agents.local.catalogue import LocalInfo
from loom_kernel.agents.local.sidecar import Sidecar, SidecarError
from loom_kernel.agents.model import FailureCode, FinishReason, ModelFailure, OnText, Reply, Request, ToolCall, Usage

MAX_TOKENS = 512
GIVEN_CONTEXT = 4_096
FINAL = "final_answer"
_ENDED = "its process ended in the middle of an answer"


class LocalModel:
    """Asks models of this machine.

    Args:
        notify: told a line when bytes are on their way.
        file: the GGUF file that every local model is then.
        offline: fetch nothing.
        grammar: hold the model to the schema of an answer while it writes it.
    """

    def __init__(
        self,
        notify: Callable[[str], None] | None = None,
        *,
        file: str | None = None,
        offline: bool = False,
        grammar: bool = True,
    ) -> None:
        self._notify, self._given, self._offline, self._grammar = notify, file, offline, grammar
        self._sidecars: dict[tuple[Path, int], Sidecar] = {}
        self._fetching: dict[str, asyncio.Future[Path]] = {}

    async def complete(self, request: Request, on_text: OnText | None = None) -> Reply:
        """See :class:`~loom_kernel.agents.model.Model`."""
        try:
            file, context = await self._file(request.model)
            sidecar = self._sidecars.setdefault((file, context), Sidecar(file, context))
            address = await sidecar.address()
        except store.ModelBytesError as error:
            code: FailureCode = "forbidden_config" if "LOOM_OFFLINE" in str(error) else "provider_unavailable"
            raise ModelFailure(code, str(error), model=request.model) from None
        except SidecarError as error:
            code = "missing_package" if "pip install" in str(error) else "provider_unavailable"
            raise ModelFailure(code, str(error), model=request.model) from None
        body, tooled = _body(request)
        if not self._grammar:
            body.pop("response_format", None)
        headers = {"Authorization": f"Bearer {address.key}"}
        try:
            async with asyncio.timeout(request.timeout_s):
                answer = await _stream(f"{address.url}/v1/chat/completions", body, headers, None if tooled else on_text)
        except TimeoutError:
            raise ModelFailure("timeout", f"it took longer than {request.timeout_s:g} s", model=request.model) from None
        except _Broken as broken:
            if broken.gone:
                await sidecar.gone()
            raise ModelFailure(broken.code, broken.message, model=request.model) from None
        text, finish, usage = answer
        if not tooled:
            return Reply(text=text, finish=finish, usage=usage, model=request.model)
        reply = _called(request, text, finish, usage, on_text)
        if any(_same(call, request) for call in reply.tool_calls):
            # Small models make the call that they see once more, for ever. What it gave is there: an answer is wanted.
            said = await self.complete(dataclasses.replace(request, tools=(), tool_choice="none"), on_text)
            return dataclasses.replace(said, usage=_sum(usage, said.usage))
        return reply

    async def _file(self, name: str) -> tuple[Path, int]:
        """The model's file, fetched if need be, and the length of its conversations."""
        if self._given is not None:
            return store.given_file(self._given), GIVEN_CONTEXT
        info = catalogue.find(name)
        if info is None:
            there = ", ".join(f"local/{one.name}" for one in catalogue.known())
            raise ModelFailure(
                "unknown_model",
                f"there is no local model {name!r}; there are {there}, or any GGUF by LOOM_LOCAL_MODEL",
                model=name,
            )
        if store.present(info):
            return store.place(info), info.context
        fetching = self._fetching.get(info.name)
        if fetching is None or fetching.done():
            work = asyncio.to_thread(store.ensure, info, self._progress(info), offline=self._offline)
            fetching = asyncio.ensure_future(work)
            self._fetching[info.name] = fetching
        return await asyncio.shield(fetching), info.context

    def _progress(self, info: LocalInfo) -> store.Progress:
        told = -10

        def say(done: int, total: int, sentence: str) -> None:
            nonlocal told
            percent = done * 100 // total
            if self._notify is not None and (percent >= told + 10 or done == total):
                told = percent
                self._notify(f"{sentence}: {percent} %")

        return say

    async def close(self) -> None:
        """End the processes."""
        for sidecar in self._sidecars.values():
            await sidecar.close()


class _Broken(Exception):
    def __init__(self, code: FailureCode, message: str, *, gone: bool = False) -> None:
        super().__init__(message)
        self.code, self.message, self.gone = code, message, gone


def _body(request: Request) -> tuple[dict[str, Any], bool]:
    """The request as the process takes it, and whether its answer is a call in disguise."""
    messages = [_plain(message) for message in request.messages]
    body: dict[str, Any] = {
        "messages": messages,
        "max_tokens": request.max_tokens or MAX_TOKENS,
        "temperature": 0.0 if request.temperature is None else request.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,  # so that a client that goes is noticed while the prompt is read
    }
    if request.response_format is not None:
        body["response_format"] = dict(request.response_format)
        return body, False
    plan = _constraint(request)
    if plan is None:
        return body, False
    schema, sentence = plan
    body["response_format"] = {"type": "json_schema", "json_schema": {"name": "call", "schema": schema}}
    if messages and messages[0]["role"] == "system":
        messages[0]["content"] = f"{messages[0]['content']}\n\n{sentence}"
    else:
        messages.insert(0, {"role": "system", "content": sentence})
    return body, True


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message without what small models' templates do not know: calls and results become text, pictures go."""
    content = message.get("content")
    if not isinstance(content, str):
        content = "\n".join(part.get("text", "") for part in content or () if part.get("type") == "text")
    if message["role"] == "tool":
        return {"role": "user", "content": f"Result: {content}"}
    calls = [
        json.dumps({"name": c["function"]["name"], "arguments": json.loads(c["function"]["arguments"] or "{}")})
        for c in message.get("tool_calls") or ()
    ]
    return {"role": message["role"], "content": "\n".join([*([content] if content else []), *calls])}


def _constraint(request: Request) -> tuple[dict[str, Any], str] | None:
    """The schema of all calls that may be made, and the sentence that tells the model; None without tools."""
    tools = [tool["function"] for tool in request.tools]
    if not tools or request.tool_choice == "none":
        return None
    if isinstance(request.tool_choice, Mapping):
        tools = [one for one in tools if one["name"] == request.tool_choice["function"]["name"]]
    if request.tool_choice in (None, "auto"):
        parameters = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        tools = [
            *tools,
            {"name": FINAL, "description": "Say this when no other call is needed.", "parameters": parameters},
        ]
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": one["name"]}, "arguments": one.get("parameters") or {"type": "object"}},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for one in tools
    ]
    listed = "\n".join(json.dumps(one) for one in tools)
    sentence = f'Answer with one JSON object {{"name": ..., "arguments": {{...}}}} that calls one of these:\n{listed}'
    return (calls[0] if len(calls) == 1 else {"anyOf": calls}), sentence


def _called(request: Request, text: str, finish: FinishReason, usage: Usage, on_text: OnText | None) -> Reply:
    """The answer of a constrained model as the call that it is."""
    try:
        call = json.loads(text)
        name, arguments = call["name"], call["arguments"]
    except (ValueError, KeyError, TypeError):
        raise ModelFailure("bad_answer", "its call broke off", model=request.model, usage=usage) from None
    if name == FINAL:
        said = str(arguments.get("text", ""))
        if on_text is not None and said:
            on_text(said)
        return Reply(text=said, finish="stop" if finish == "tool_calls" else finish, usage=usage, model=request.model)
    made = ToolCall(id=f"call-{secrets.token_hex(6)}", name=name, arguments=json.dumps(arguments))
    return Reply(tool_calls=(made,), finish="tool_calls", usage=usage, model=request.model)


def _same(call: ToolCall, request: Request) -> bool:
    """Whether the conversation has that very call already."""
    made = json.loads(call.arguments)
    for message in request.messages:
        for one in message.get("tool_calls") or ():
            function = one["function"]
            if function["name"] == call.name and json.loads(function["arguments"] or "{}") == made:
                return True
    return False


def _sum(a: Usage, b: Usage) -> Usage:
    return Usage(
        input_tokens=a.input_tokens + b.input_tokens,
        output_tokens=a.output_tokens + b.output_tokens,
        cached_tokens=a.cached_tokens + b.cached_tokens,
        cost_usd=0.0,
    )


async def _stream(
    url: str, body: Mapping[str, Any], headers: Mapping[str, str], on_text: OnText | None
) -> tuple[str, FinishReason, Usage]:
    """One streamed answer.

    Raises:
        _Broken: with what went wrong.
    """
    import httpx

    texts: list[str] = []
    finish: str | None = None
    usage = Usage(cost_usd=0.0)
    try:
        # Not through a proxy: it is this machine.
        async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
            async with client.stream("POST", url, json=body, headers=headers) as answer:
                if answer.status_code != 200:
                    raise _refused(answer.status_code, await answer.aread())
                async for line in answer.aiter_lines():
                    if line.startswith("error: "):
                        raise _refused(500, line[7:].encode())
                    if not line.startswith("data: "):
                        continue
                    data = line[6:]
                    if data == "[DONE]":
                        return "".join(texts), _finish(finish), usage
                    chunk = json.loads(data)
                    if "error" in chunk:
                        raise _refused(500, data.encode())
                    if chunk.get("usage"):
                        used = chunk["usage"]
                        cached = (used.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
                        usage = Usage(
                            input_tokens=used["prompt_tokens"],
                            output_tokens=used["completion_tokens"],
                            cached_tokens=cached,
                            cost_usd=0.0,
                        )
                    for choice in chunk.get("choices") or ():
                        text = (choice.get("delta") or {}).get("content")
                        if text:
                            texts.append(text)
                            if on_text is not None:
                                on_text(text)
                        finish = choice.get("finish_reason") or finish
    except httpx.HTTPError as error:
        raise _Broken("provider_unavailable", f"{_ENDED} ({type(error).__name__})", gone=True) from None
    raise _Broken("provider_unavailable", _ENDED, gone=True)


def _finish(reason: str | None) -> FinishReason:
    return "length" if reason == "length" else "stop"


def _refused(status: int, body: bytes) -> _Broken:
    try:
        error = json.loads(body)
        error = error.get("error", error)
        message, kind = str(error.get("message", error)), str(error.get("type", ""))
        status = int(error.get("code", status))
    except (ValueError, TypeError, AttributeError):
        message, kind = body.decode(errors="replace")[:300], ""
    if kind == "exceed_context_size_error" or "context size" in message:
        return _Broken("context_overflow", message)
    if status in (400, 422):
        return _Broken("incompatible_request", message)
    return _Broken("provider_unavailable", message)
