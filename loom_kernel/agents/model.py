"""A model as everything above it sees one: a request, what streams back, a reply, a failure with a name.

Messages, tools and answer formats are those of the OpenAI chat protocol, as plain dicts, since every provider's door
speaks it. Three doors implement :class:`Model`: ``litellm_model.py``, ``local/model.py`` and ``scripted.py``; which one
a name belongs to is said in ``doors.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

ThinkingLevel = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
LEVELS: tuple[ThinkingLevel, ...] = ("off", "minimal", "low", "medium", "high", "xhigh", "max")

FinishReason = Literal["stop", "tool_calls", "length", "content_filter"]

FailureCode = Literal[
    "login_required",
    "missing_api_key",
    "invalid_api_key",
    "rate_limited",
    "quota_limited",
    "provider_unavailable",
    "timeout",
    "forbidden_config",
    "unknown_model",
    "context_overflow",
    "incompatible_request",
    "bad_answer",
    "empty_answer",
    "schema",
    "refused",
    "missing_package",
    "unknown",
]
"""What went wrong with a call. ``failures.py`` says what follows from each."""

OnText = Callable[[str], None]
"""Called on the loop with each piece of the answer's text as it arrives."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a call used. ``input_tokens`` include the cached ones; ``cost_usd`` is None where no price is known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = None


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A tool the model asks for. ``arguments`` is JSON text as the model wrote it; it may be broken."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True)
class Request:
    """One call of a model.

    Args:
        model: the name without its level, e.g. ``"openai/gpt-5-mini"``.
        messages: chat messages, oldest first.
        tools: function tools, ``{"type": "function", "function": {"name", "description", "parameters"}}``.
        tool_choice: ``"auto"``, ``"required"``, ``"none"`` or ``{"type": "function", "function": {"name": ...}}``.
        response_format: ``{"type": "json_schema", "json_schema": {"name", "schema", "strict"}}``, or None.
        level: how much the model should think; None leaves it to the model.
        timeout_s: seconds in all, not for each read.
        api_key, api_base: of a numbered account or a setting; None is the provider's own environment variable.
    """

    model: str
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: Any = None
    response_format: Mapping[str, Any] | None = None
    level: ThinkingLevel | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    timeout_s: float = 600.0
    api_key: str | None = field(default=None, repr=False)
    api_base: str | None = None


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A model's whole answer. ``model`` is who really answered, with its provider."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish: FinishReason = "stop"
    usage: Usage = field(default_factory=Usage)
    model: str = ""

    @property
    def empty(self) -> bool:
        """Nothing was said and nothing asked for: a provider's fault, not an answer."""
        return not self.text.strip() and not self.tool_calls


class ModelFailure(Exception):
    """A call of a model failed.

    Args:
        code: what went wrong.
        message: one sentence without keys, ending without a full stop where the provider's words stand in it.
        model: who was asked.
        retry_after_s: how long the provider asks to wait.
        status: the HTTP status, where there was one.
        usage: what a failed call was billed nevertheless.
    """

    def __init__(
        self,
        code: FailureCode,
        message: str,
        *,
        model: str = "",
        retry_after_s: float | None = None,
        status: int | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(code, message)
        self.code, self.message, self.model = code, message, model
        self.retry_after_s, self.status, self.usage = retry_after_s, status, usage

    def __str__(self) -> str:
        return self.message


class Model(Protocol):
    """A door to models. One object serves all calls, at once and on one loop."""

    async def complete(self, request: Request, on_text: OnText | None = None) -> Reply:
        """Ask. With ``on_text`` the answer's text is streamed, and still returned whole.

        Cancelling the call ends the request.

        Raises:
            ModelFailure: nothing else, whatever the provider or its library raised.
        """
        ...
