"""What an exception of litellm means. Pure: it looks at status, class name and text, and imports nothing of litellm.

The class for one and the same status differs by provider (403 is PermissionDeniedError, APIError or BadRequestError), so
the status comes first; the text only where the status leaves it open, or is litellm's own invention: it says 500 for a
refused connection, a missing key and a missing package alike.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime

from loom_kernel.agents.model import FailureCode, ModelFailure, Usage
from loom_kernel.engine.redact import BLOT, redact_shapes

_QUOTA = re.compile(
    r"insufficient_quota|exceeded your current quota|usage[ _]limit|billing|credit balance|payment required", re.I
)
_NO_CREDIT = re.compile(r"insufficient_quota|usage_limit_reached|credit balance is too low", re.I)
_NO_KEY = re.compile(
    r"missing credentials|missing .{0,20}api[ _]?key|api_key client option must be set|no api key|unable to locate credentials"
    r"|default credentials were not found",
    re.I,
)
_LOGIN = re.compile(r"log ?in (is )?required|not logged in|login_required|please log ?in", re.I)
_POLICY = re.compile(r"content[ _]?(policy|filter|management)|safety system|responsible ?ai", re.I)
_TOO_LONG = re.compile(
    r"context[ _]?(length|window|size)|maximum context|too many (input )?tokens|maximum number of (input )?tokens"
    r"|\b(prompt|input|request|messages?|conversation|payload)( is| are| was)? too (large|long)",
    re.I,
)
_NO_PACKAGE = re.compile(r"No module named '([\w.]+)'|(\w[\w-]*) python library must be installed", re.I)
_NO_PROVIDER = re.compile(r"LLM Provider NOT provided|Unmapped LLM provider", re.I)
_KEYLIKE = re.compile(r"\b(?:sk|pk|key|gsk|xai)[-_][A-Za-z0-9_*-]{6,}|[A-Za-z0-9_-]{32,}")
_HEAD = re.compile(r"^(?:(?:litellm\.)?\w*(?:Error|Timeout|Exception)(?:: | - ))+")

_BY_STATUS: dict[int, FailureCode] = {
    401: "invalid_api_key",
    402: "quota_limited",
    403: "forbidden_config",
    404: "unknown_model",
    408: "timeout",
    413: "context_overflow",
    504: "timeout",
}

_SAY: dict[FailureCode, str] = {
    "login_required": "it asks for a login",
    "missing_api_key": "there is no key for it",
    "invalid_api_key": "its key was refused",
    "rate_limited": "it has too many requests",
    "quota_limited": "the account's quota is used up",
    "provider_unavailable": "its provider cannot be reached, or has trouble",
    "timeout": "it took too long",
    "forbidden_config": "this account may not use it",
    "unknown_model": "there is no such model",
    "context_overflow": "the conversation is too long for it",
    "incompatible_request": "it does not take this request",
    "bad_answer": "its answer cannot be read",
    "refused": "it refused for its content",
    "missing_package": "its provider needs a package that is not installed",
}

_WAITS: frozenset[FailureCode] = frozenset({"rate_limited", "quota_limited", "provider_unavailable", "timeout"})


def classify(error: BaseException) -> FailureCode:
    """The kind of a failure."""
    text, kind = str(error), type(error).__name__
    status = _status(error)
    if kind == "ContextWindowExceededError":
        return "context_overflow"
    if kind == "ContentPolicyViolationError":
        return "refused"
    if kind == "JSONSchemaValidationError":
        return "bad_answer"
    if status in (None, 401, 403, 500):
        if _NO_KEY.search(text):
            return "missing_api_key"
        if _LOGIN.search(text):
            return "login_required"
    if isinstance(error, TimeoutError) or kind == "Timeout":
        return "timeout"
    if status in (400, 422):
        return _refusal_of_request(text, kind)
    if status == 429:
        return "quota_limited" if _QUOTA.search(text) else "rate_limited"
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status is not None and status >= 500:
        return "missing_package" if _NO_PACKAGE.search(text) else "provider_unavailable"
    if isinstance(error, OSError) or kind in ("APIConnectionError", "MidStreamFallbackError"):
        return "provider_unavailable"
    if isinstance(error, (IndexError, KeyError, AttributeError, ValueError)):
        return "bad_answer"
    return "unknown"


def _refusal_of_request(text: str, kind: str) -> FailureCode:
    if kind == "UnsupportedParamsError":
        return "incompatible_request"
    if _NO_PROVIDER.search(text):
        return "unknown_model"
    if _NO_PACKAGE.search(text):
        return "missing_package"
    if _NO_CREDIT.search(text):  # some say so with a 400
        return "quota_limited"
    if _POLICY.search(text):
        return "refused"
    return "context_overflow" if _TOO_LONG.search(text) else "incompatible_request"


def failure(
    error: BaseException, model: str, usage: Usage | None = None, *, secrets: Sequence[str] = ()
) -> ModelFailure:
    """What the exception says, as one sentence without keys.

    Args:
        secrets: texts that must not stand in it, whatever their shape.
    """
    code = classify(error)
    return ModelFailure(
        code,
        f"{_SAY.get(code, 'it failed')} ({_words(error, secrets)})",
        model=model,
        retry_after_s=retry_after(error, time.time()) if code in _WAITS else None,
        status=_status(error),
        usage=usage,
    )


def _words(error: BaseException, secrets: Sequence[str]) -> str:
    """The provider's own words, the first line of them."""
    text = str(error).strip()
    for secret in secrets:
        text = text.replace(secret, BLOT)
    first = text.splitlines()[0] if text else ""
    said = _HEAD.sub("", first).strip() or type(error).__name__
    return _KEYLIKE.sub(BLOT, redact_shapes(said))[:500]


def _status(error: BaseException) -> int | None:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def retry_after(error: BaseException, now: float) -> float | None:
    """Seconds that the provider asks to wait, where it says so: a number, or a date."""
    for holder in (error, getattr(error, "response", None)):
        headers = getattr(holder, "headers", None) or getattr(holder, "litellm_response_headers", None)
        said = headers.get("retry-after") if headers is not None and hasattr(headers, "get") else None
        if said is None:
            continue
        try:
            return max(0.0, float(said))
        except (TypeError, ValueError):
            pass
        try:
            return max(0.0, parsedate_to_datetime(str(said)).timestamp() - now)
        except (TypeError, ValueError):
            continue
    return None
