"""The door to every model that litellm knows. The only file that imports it, when a model is first asked.

Importing takes seconds, so a thread does it. What is known of litellm 1.110 and kept to here: it fetches a price list and
tokenizers unless it is told to stay offline; its own retries are switched off, since for several providers they are none;
``timeout=`` is per read, so that the total has a clock of its own; the class of an error differs by provider for one and
the same status, so the status is looked at first.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import warnings
from collections.abc import Mapping
from typing import Any, cast

from loom_kernel.agents.catalogue import KEYS
from loom_kernel.agents.model import FailureCode, FinishReason, ModelFailure, OnText, Reply, Request, ToolCall, Usage

_QUOTA = re.compile(
    r"insufficient_quota|exceeded your current quota|usage[ _]limit|billing|credit balance|payment required", re.I
)
_NO_KEY = re.compile(
    r"missing credentials|missing .{0,20}api[ _]?key|api_key client option must be set|no api key", re.I
)
_LOGIN = re.compile(r"log ?in (is )?required|not logged in|login_required|please log ?in", re.I)
_POLICY = re.compile(r"content[ _]?(policy|filter|management)|safety system|responsible ?ai", re.I)
_TOO_LONG = re.compile(r"context[ _]?(length|window|size)|maximum context|too (large|long)|prompt is too long", re.I)
_SECRET = re.compile(r"\b(?:sk|pk|key|gsk|xai)[-_][A-Za-z0-9_*-]{6,}|\bBearer\s+\S+|[A-Za-z0-9_-]{32,}")

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
        accounts: further credentials: by account (``openai-1``) ``api_key_env``, ``api_base``.
    """

    def __init__(self, accounts: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._accounts = dict(accounts or {})
        self._litellm: Any = None
        self._importing: asyncio.Future[Any] | None = None

    async def complete(self, request: Request, on_text: OnText | None = None) -> Reply:
        """See :class:`~loom_kernel.agents.model.Model`."""
        litellm = await self._loaded()
        name, key, base = self._account(request)
        given = {
            "model": name,
            "messages": [dict(message) for message in request.messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            "timeout": request.timeout_s,
            "max_retries": 0,
            "num_retries": 0,
        }
        if request.tools:
            given["tools"] = [dict(tool) for tool in request.tools]
            if request.tool_choice is not None:
                given["tool_choice"] = request.tool_choice
        if request.response_format is not None:
            given["response_format"] = dict(request.response_format)
        if request.max_tokens is not None:
            given["max_tokens"] = request.max_tokens
        if request.temperature is not None:
            given["temperature"] = request.temperature
        if request.level not in (None, "off") and _reasons(litellm, name):
            given["reasoning_effort"] = request.level
        if key is not None:
            given["api_key"] = key
        if base is not None:
            given["api_base"] = base
        self._need_key(litellm, name, key, base)
        answer = _Answer()
        try:
            async with asyncio.timeout(request.timeout_s):
                stream = await litellm.acompletion(**given)
                try:
                    async for chunk in stream:
                        text = answer.take(chunk)
                        if text and on_text is not None:
                            on_text(text)
                finally:
                    close = getattr(stream, "aclose", None)
                    if close is not None:
                        await close()
        except (asyncio.CancelledError, ModelFailure):
            raise
        except Exception as error:
            raise failure(error, request.model, answer.usage(litellm, name) if answer.began else None) from None
        if answer.finish is None:
            raise ModelFailure(
                "provider_unavailable", "its answer broke off", model=request.model, usage=answer.usage(litellm, name)
            )
        return Reply(
            text=answer.text,
            tool_calls=answer.calls(),
            finish=answer.finish,
            usage=answer.usage(litellm, name),
            model=request.model,
        )

    async def _loaded(self) -> Any:
        if self._litellm is None:
            if self._importing is None:
                self._importing = asyncio.ensure_future(asyncio.to_thread(_import))
            try:
                self._litellm = await asyncio.shield(self._importing)
            except ImportError:
                self._importing = None
                raise ModelFailure("missing_package", MISSING) from None
        return self._litellm

    def _account(self, request: Request) -> tuple[str, str | None, str | None]:
        """The name, key and address that litellm is given. ``openai-1/x`` is ``openai/x`` with another key."""
        provider, slash, rest = request.model.partition("/")
        source, dash, number = provider.rpartition("-")
        if not (slash and dash and number.isdigit()):
            return request.model, request.api_key, request.api_base
        account = self._accounts.get(provider, {})
        variable = account.get("api_key_env") or f"{source.upper().replace('-', '_')}_{number}_API_KEY"
        key = request.api_key or os.environ.get(variable)
        if not key:
            raise ModelFailure(
                "missing_api_key",
                f"account {provider!r} has no key: set {variable}, or [accounts.{provider}] api_key_env in loom.toml",
                model=request.model,
            )
        return f"{source}/{rest}", key, request.api_base or account.get("api_base")

    def _need_key(self, litellm: Any, name: str, key: str | None, base: str | None) -> None:
        """Refuse before a request is made without a key; some providers would be sent one."""
        if key is not None:
            return
        variables = KEYS.get(name.partition("/")[0])
        if variables is None:
            found = litellm.validate_environment(name)
            missing = [] if found.get("keys_in_environment") else list(found.get("missing_keys") or ())
            variables = tuple(missing)
            if not missing:
                return
        elif any(os.environ.get(variable) for variable in variables):
            return
        raise ModelFailure("missing_api_key", f"set {variables[0]}, the key of {name.partition('/')[0]}", model=name)


def _import() -> Any:
    os.environ.setdefault("LITELLM_OFFLINE_MODE", "true")
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    # Of its own types, at the first answer; nothing that a person could do anything about.
    warnings.filterwarnings("ignore", message=".*`ReadOnly` qualifier.*", category=UserWarning)
    litellm: Any = importlib.import_module("litellm")
    litellm.suppress_debug_info = True
    litellm.drop_params = False
    return litellm


def _reasons(litellm: Any, name: str) -> bool:
    try:
        return bool(litellm.supports_reasoning(model=name))
    except Exception:
        return False


class _Answer:
    """An answer on its way, put together from its pieces."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._calls: dict[int, list[str]] = {}  # id, name, arguments
        self._usage: Any = None
        self.finish: FinishReason | None = None
        self.began = False

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def take(self, chunk: Any) -> str:
        """The next piece; returns what is new of the text."""
        self.began = True
        usage = getattr(chunk, "usage", None)
        if usage is not None:
            self._usage = usage
        said = ""
        for choice in getattr(chunk, "choices", None) or ():
            delta = getattr(choice, "delta", None)
            text = getattr(delta, "content", None)
            if text:
                said += text
                self._texts.append(text)
            for call in getattr(delta, "tool_calls", None) or ():
                known = self._calls.setdefault(call.index or 0, ["", "", ""])
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


def failure(error: BaseException, model: str, usage: Usage | None = None) -> ModelFailure:
    """What an exception of litellm says; its text without keys.

    Source: the reference's classification; structured codes and the status come before the text.
    """
    code = classify(error)
    words = str(error).removeprefix("litellm.").strip() or type(error).__name__
    message = _SECRET.sub("[redacted]", words.splitlines()[0])[:500]
    status = getattr(error, "status_code", None)
    return ModelFailure(
        code,
        f"{_SAY.get(code, 'it failed')} ({message})",
        model=model,
        retry_after_s=_retry_after(error) if code in ("rate_limited", "provider_unavailable") else None,
        status=status if isinstance(status, int) else None,
        usage=usage,
    )


_SAY: dict[FailureCode, str] = {
    "login_required": "it asks for a login",
    "missing_api_key": "there is no key for it",
    "invalid_api_key": "its key was refused",
    "rate_limited": "it has too many requests",
    "quota_limited": "the account's quota is used up",
    "provider_unavailable": "it cannot be reached",
    "timeout": "it took too long",
    "forbidden_config": "this account may not use it",
    "unknown_model": "there is no such model",
    "context_overflow": "the conversation is too long for it",
    "incompatible_request": "it does not take this request",
    "bad_answer": "its answer cannot be read",
    "refused": "it refused for its content",
}


def classify(error: BaseException) -> FailureCode:
    """The kind of a failure, by status, then class, then text."""
    text, status = str(error), getattr(error, "status_code", None)
    kind = type(error).__name__
    if kind == "ContextWindowExceededError":
        return "context_overflow"
    if kind == "ContentPolicyViolationError":
        return "refused"
    if _NO_KEY.search(text):
        return "missing_api_key"
    if _LOGIN.search(text):
        return "login_required"
    if kind == "UnsupportedParamsError":
        return "incompatible_request"
    if kind == "JSONSchemaValidationError":
        return "bad_answer"
    if isinstance(error, TimeoutError) or kind == "Timeout" or status in (408, 504):
        return "timeout"
    by_status: dict[int, FailureCode] = {
        401: "invalid_api_key",
        402: "quota_limited",
        403: "forbidden_config",
        404: "unknown_model",
        413: "context_overflow",
    }
    if status in by_status:
        return by_status[cast(int, status)]
    if status == 429:
        return "quota_limited" if _QUOTA.search(text) else "rate_limited"
    if status in (400, 422):
        if _POLICY.search(text):
            return "refused"
        return "context_overflow" if _TOO_LONG.search(text) else "incompatible_request"
    if isinstance(status, int) and status >= 500:
        return "provider_unavailable"
    if isinstance(error, (ConnectionError, OSError)) or kind in ("APIConnectionError", "MidStreamFallbackError"):
        return "provider_unavailable"
    if isinstance(error, (IndexError, KeyError, AttributeError, ValueError)):
        return "bad_answer"
    return "unknown"


def _retry_after(error: BaseException) -> float | None:
    """Seconds that the provider asks to wait, where it says so."""
    for holder in (error, getattr(error, "response", None)):
        headers = getattr(holder, "headers", None) or getattr(holder, "litellm_response_headers", None) or {}
        try:
            return max(0.0, float(str(headers.get("retry-after"))))
        except (TypeError, ValueError, AttributeError):
            continue
    return None
