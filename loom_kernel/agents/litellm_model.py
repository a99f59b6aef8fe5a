"""The door to every model that litellm knows. The only file that imports it, when a model is first asked.

Importing takes seconds, so a thread does it. What is known of litellm 1.110 and kept to here: it fetches a price list and
tokenizers unless it is told to stay offline; its own retries are switched off, since for several providers they are none;
``timeout=`` is per read, so that the total has a clock of its own. What its exceptions mean is in ``litellm_failures.py``.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import warnings
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from loom_kernel.agents import accounts
from loom_kernel.agents.catalogue import KEYS, effective, efforts_of, priced
from loom_kernel.agents.litellm_failures import failure
from loom_kernel.agents.model import (
    FinishReason,
    ModelFailure,
    OnText,
    Reply,
    Request,
    ToolCall,
    Usage,
)

MISSING = (
    "litellm is not installed, which asks every model that is not local or scripted: pip install 'loom-kernel[models]'"
)

_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
}


class LiteLLMModel:
    """Asks models by their litellm name.

    Args:
        accounts: further credentials: by account (``openai-1``) ``api_key_env``, ``api_base``; see ``accounts.py``.
    """

    def __init__(self, accounts: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._accounts = dict(accounts or {})
        self._thinking = _Thinking()
        self._litellm: Any = None
        self._importing: asyncio.Future[Any] | None = None

    async def complete(self, request: Request, on_text: OnText | None = None) -> Reply:
        """See :class:`~loom_kernel.agents.model.Model`."""
        litellm = await self._loaded()
        name, key, base = self._access(litellm, request)
        given = self._given(request, name)
        if key is not None:
            given["api_key"] = key
        if base is not None:
            given["api_base"] = base
        answer = _Answer()
        try:
            async with asyncio.timeout(request.timeout_s):
                found = await litellm.acompletion(**given)
                if not given.get("stream"):
                    answer.take(found)
                    if answer.text and on_text is not None:
                        on_text(answer.text)
                else:
                    try:
                        async for chunk in found:
                            text = answer.take(chunk)
                            if text and on_text is not None:
                                on_text(text)
                    finally:
                        close = getattr(found, "aclose", None)
                        if close is not None:
                            await close()
        except (asyncio.CancelledError, ModelFailure):
            raise
        except TimeoutError:
            raise ModelFailure(
                "timeout",
                f"it took longer than {request.timeout_s:g} s",
                model=request.model,
                usage=answer.usage(litellm, name) if answer.began else None,
            ) from None
        except Exception as error:
            used = answer.usage(litellm, name) if answer.began else None
            raise failure(error, request.model, used, secrets=_secrets(key)) from None
        usage = answer.usage(litellm, name)
        if answer.finish is None:
            raise ModelFailure("provider_unavailable", "its answer broke off", model=request.model, usage=usage)
        if answer.refusal and not answer.text:
            raise ModelFailure("refused", f"it refused: {answer.refusal}", model=request.model, usage=usage)
        calls = answer.calls()
        self._thinking.keep(litellm, answer.thoughts, calls)
        return Reply(text=answer.text, tool_calls=calls, finish=answer.finish, usage=usage, model=request.model)

    def _given(self, request: Request, name: str) -> dict[str, Any]:
        """The request as litellm takes it."""
        given: dict[str, Any] = {
            "model": name,
            "messages": [dict(message) for message in request.messages],
            "timeout": request.timeout_s,
            "max_retries": 0,
            "num_retries": 0,
        }
        if request.tools:
            given["tools"] = [dict(tool) for tool in request.tools]
            if request.tool_choice is not None:
                given["tool_choice"] = request.tool_choice
        if request.response_format is not None:
            # Not streamed: of a refusal, which comes in a field of its own then, litellm's streams say nothing.
            given["response_format"] = dict(request.response_format)
        else:
            given["stream"], given["stream_options"] = True, {"include_usage": True}
        if request.max_tokens is not None:
            given["max_tokens"] = request.max_tokens
        if request.temperature is not None:
            given["temperature"] = request.temperature
        level = effective(name, request.level)
        if level == "off":
            if "off" in efforts_of(name):
                given["reasoning_effort"] = "none"
        elif level is not None and ("claude" not in name or self._thinking.attach(given["messages"])):
            given["reasoning_effort"] = level
        return given

    async def _loaded(self) -> Any:
        if self._litellm is None:
            if self._importing is None:
                self._importing = asyncio.ensure_future(asyncio.to_thread(_import))
            try:
                self._litellm = await asyncio.shield(self._importing)
            except Exception as error:
                self._importing = None
                missing = isinstance(error, ModuleNotFoundError) and error.name == "litellm"
                sentence = MISSING if missing else f"litellm cannot be imported: {type(error).__name__}: {error}"
                raise ModelFailure("missing_package", sentence) from None
        return self._litellm

    def _access(self, litellm: Any, request: Request) -> tuple[str, str | None, str | None]:
        """The name, key and address that litellm is given.

        Nothing is sent without a key to a provider that needs one; some would be sent it all the same, and others fail in
        ways that look like an outage.

        Raises:
            ModelFailure: there is no such provider, or no key.
        """
        name, account = accounts.asked(request.model)
        provider = self._provider(litellm, name, request.model)
        own = self._accounts.get(account or provider, {})
        key, base = request.api_key, request.api_base or own.get("api_base")
        if key is None and (account is not None or own.get("api_key_env")):
            variable = accounts.variable(account or provider, self._accounts)
            key = os.environ.get(variable)
            if not key:  # never another account's
                raise ModelFailure(
                    "missing_api_key",
                    f"account {account or provider!r} has no key: set {variable}, or [accounts.{account or provider}] "
                    "api_key_env in loom.toml",
                    model=request.model,
                )
        if key is None and base is not None and not _key_there(provider):
            key = "none"  # a server of one's own often needs none, and the client refuses to have none
        if key is None:
            variables = _key_missing(litellm, provider, name)
            if variables:
                raise ModelFailure("missing_api_key", f"set {variables[0]}, the key of {provider}", model=request.model)
        return name, key or None, base

    @staticmethod
    def _provider(litellm: Any, name: str, asked: str) -> str:
        try:
            return str(litellm.get_llm_provider(name)[1])
        except Exception:
            there = "there is no such provider" if "/" in name else "it names no provider"
            raise ModelFailure(
                "unknown_model", f"{there}; a model of litellm is written provider/model", model=asked
            ) from None


def _key_there(provider: str) -> bool:
    return any(os.environ.get(variable) for variable in KEYS.get(provider, ()))


def _key_missing(litellm: Any, provider: str, name: str) -> tuple[str, ...]:
    """Variables of which one must be set, and none is.

    Of clouds (bedrock, vertex, azure) only the provider can tell: credentials are found in many places.
    """
    if provider in KEYS:
        return () if _key_there(provider) else KEYS[provider]
    if provider.startswith("azure"):
        return ()
    missing = litellm.validate_environment(name).get("missing_keys") or ()
    return tuple(variable for variable in missing if variable.endswith("_API_KEY"))


def _secrets(key: str | None) -> list[str]:
    """Keys that an error may quote; what is shorter than a key could be any word."""
    there = [key, *(os.environ.get(variable) for names in KEYS.values() for variable in names)]
    return [one for one in there if one and len(one) > 7]


def _import() -> Any:
    os.environ.setdefault("LITELLM_OFFLINE_MODE", "true")
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    # Of its own types, at the first answer; nothing that a person could do anything about.
    warnings.filterwarnings("ignore", message=".*`ReadOnly` qualifier.*", category=UserWarning)
    litellm: Any = importlib.import_module("litellm")
    litellm.suppress_debug_info = True
    priced()  # read here, since that takes a moment, too
    return litellm


class _Answer:
    """An answer on its way, put together from its pieces."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._calls: dict[int, list[str]] = {}  # id, name, arguments
        self._usage: Any = None
        self.finish: FinishReason | None = None
        self.began = False
        self.refusal = ""
        self.thoughts: list[Any] = []  # pieces that hold thoughts which must be sent back

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def take(self, piece: Any) -> str:
        """The next piece, or all of it; returns what is new of the text."""
        self.began = True
        usage = getattr(piece, "usage", None)
        if usage is not None:
            self._usage = usage
        said = ""
        for choice in getattr(piece, "choices", None) or ():
            delta = getattr(choice, "delta", None) or getattr(choice, "message", None)
            text = getattr(delta, "content", None)
            self.refusal += getattr(delta, "refusal", None) or ""
            if getattr(delta, "thinking_blocks", None):
                self.thoughts.append(piece)
            if text:
                said += text
                self._texts.append(text)
            for n, call in enumerate(getattr(delta, "tool_calls", None) or ()):
                index = getattr(call, "index", None)
                known = self._calls.setdefault(n if index is None else index, ["", "", ""])
                known[0] = known[0] or (call.id or "")
                function = call.function
                if function is not None:
                    known[1] = known[1] or (function.name or "")
                    known[2] += function.arguments or ""
            if getattr(choice, "finish_reason", None):
                self.finish = _FINISH.get(choice.finish_reason, "stop")
        return said

    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(
            ToolCall(id=id or f"call-{index}", name=name, arguments=arguments or "{}")
            for index, (id, name, arguments) in sorted(self._calls.items())
        )

    def usage(self, litellm: Any, name: str) -> Usage:
        """Tokens as the provider counts them, and their price where the list has one."""
        used = self._usage
        if used is None:
            return Usage()
        read = int(getattr(getattr(used, "prompt_tokens_details", None), "cached_tokens", None) or 0)
        wrote = int(getattr(used, "cache_creation_input_tokens", None) or 0)
        sent, received = int(used.prompt_tokens or 0), int(used.completion_tokens or 0)
        cost: float | None = None
        try:
            priced = litellm.cost_per_token(model=name, usage_object=used)
            cost = float(priced[0]) + float(priced[1])
        except Exception:  # no price for it
            cost = None
        return Usage(
            input_tokens=sent, output_tokens=received, cached_tokens=read, cache_write_tokens=wrote, cost_usd=cost
        )


class _Thinking:
    """Thoughts that came with calls of tools, signed by their provider.

    Anthropic wants them back with the call's result, word for word, and refuses to think without them. They are of no use
    to anybody else and are kept by this process only: after a restart the model goes on without thinking until its calls
    are answered.
    """

    KEPT = 1_000

    def __init__(self) -> None:
        self._by_call: OrderedDict[str, list[Any]] = OrderedDict()

    def attach(self, messages: list[dict[str, Any]]) -> bool:
        """Put thoughts where they were. False, with nothing changed, where calls that are being answered lack theirs."""
        found: list[tuple[dict[str, Any], list[Any]]] = []
        open_turn = True
        for message in reversed(messages):
            open_turn = open_turn and message.get("role") != "user"
            if calls := message.get("tool_calls"):
                blocks = self._by_call.get(calls[0]["id"])
                if blocks is not None:
                    found.append((message, blocks))
                elif open_turn:
                    return False
        for message, blocks in found:
            message["thinking_blocks"] = blocks
        return True

    def keep(self, litellm: Any, thoughts: Sequence[Any], calls: Sequence[ToolCall]) -> None:
        """What was thought before these calls."""
        if not thoughts or not calls:
            return
        streamed = hasattr(thoughts[0].choices[0], "delta")
        whole = litellm.stream_chunk_builder(list(thoughts)) if streamed else thoughts[0]
        blocks = getattr(whole.choices[0].message, "thinking_blocks", None)
        if blocks:
            self._by_call[calls[0].id] = [dict(block) for block in blocks]
            while len(self._by_call) > self.KEPT:
                self._by_call.popitem(last=False)
