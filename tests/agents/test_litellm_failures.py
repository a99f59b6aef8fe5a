"""What exceptions of litellm mean, where no server of ours can make them: by status first, the text last."""

from __future__ import annotations

from typing import Any

import pytest

from loom_kernel.agents.litellm_failures import classify, failure, retry_after

NOW = 1_800_000_000.0


def error(kind: str, status: int | None, text: str, headers: dict[str, str] | None = None) -> Exception:
    """An exception as litellm raises it: a class of that name with a status, and perhaps a response."""
    response = type("Response", (), {"headers": headers or {}})()
    return type(kind, (Exception,), {"status_code": status, "response": response})(text)


@pytest.mark.parametrize(
    ("kind", "status", "text", "code"),
    [
        ("PermissionDeniedError", 403, "AnthropicException - not allowed", "forbidden_config"),
        ("BadRequestError", 403, "GeminiException - not allowed", "forbidden_config"),
        ("APIError", 402, "pay first", "quota_limited"),
        ("BadRequestError", 400, "Your credit balance is too low to access the Anthropic API", "quota_limited"),
        ("RateLimitError", 429, "The usage limit has been reached", "quota_limited"),
        ("RateLimitError", 429, "usage_limit_reached", "quota_limited"),
        ("RateLimitError", 429, "slow down", "rate_limited"),
        ("BadRequestError", 400, "max_tokens is too large: 50000", "incompatible_request"),
        ("BadRequestError", 400, "Invalid 'tools[0].description': string too long", "incompatible_request"),
        ("BadRequestError", 400, "prompt is too long: 210000 tokens > 200000 maximum", "context_overflow"),
        ("BadRequestError", 400, "input exceeds the maximum number of tokens", "context_overflow"),
        ("BadRequestError", 400, "please log in to your account, said the user", "incompatible_request"),
        ("UnsupportedParamsError", 400, "content filter is not supported", "incompatible_request"),
        ("BadRequestError", 400, "LLM Provider NOT provided. You passed model=bad/gpt", "unknown_model"),
        ("ContentPolicyViolationError", 400, "no", "refused"),
        ("JSONSchemaValidationError", 500, "no", "bad_answer"),
        ("InternalServerError", 500, "Missing credentials. Please pass an `api_key`", "missing_api_key"),
        ("AuthenticationError", 401, "BedrockException - Unable to locate credentials", "missing_api_key"),
        ("AuthenticationError", 401, "Your session ended: please log in", "login_required"),
        ("AuthenticationError", 401, "Incorrect API key provided", "invalid_api_key"),
        ("APIConnectionError", 500, "No module named 'google'\nTraceback", "missing_package"),
        ("BadRequestError", 400, "the databricks-sdk Python library must be installed", "missing_package"),
        ("APIConnectionError", None, "fetch failed", "provider_unavailable"),
        ("SomethingNew", None, "?", "unknown"),
    ],
)
def test_kinds(kind: str, status: int | None, text: str, code: str) -> None:
    """Source: the reference's ``fallbackModels`` and its classification of failures."""
    assert classify(error(kind, status, text)) == code


def test_errors_of_python_itself() -> None:
    """A refused connection is an outage, what cannot be read a bad answer."""
    assert classify(ConnectionRefusedError("no")) == "provider_unavailable"
    assert classify(TimeoutError()) == "timeout"
    assert classify(IndexError("list index out of range")) == "bad_answer"


def test_the_sentence_is_the_providers_first_line_without_litellms_names_and_without_keys() -> None:
    """Whatever shape a key has: those that are in use are known."""
    text = "litellm.AuthenticationError: AuthenticationError: OpenAIException - Key open-sesame is wrong, or sk-0123456789abcdefgh\nTraceback"
    said = failure(error("AuthenticationError", 401, text), "openai/x", secrets=["open-sesame"])
    assert str(said) == "its key was refused (Key [redacted] is wrong, or [redacted])"
    assert (said.code, said.status, said.model) == ("invalid_api_key", 401, "openai/x")
    long = failure(error("APIError", 500, "x" * 10 + " " + "ab " * 900), "m")
    assert len(str(long)) < 600


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("Fri, 15 Jan 2027 08:00:30 GMT", 30.0),
        ("Fri, 15 Jan 2027 07:00:00 GMT", 0.0),
        ("soon", None),
    ],
)
def test_how_long_to_wait_is_a_number_or_a_date(said: str, seconds: float | None) -> None:
    """RFC 9110, 10.2.3."""
    assert retry_after(error("RateLimitError", 429, "x", {"retry-after": said}), NOW) == seconds


def test_only_what_passes_has_a_time_to_wait() -> None:
    """A quota, too, since the run that it blocks is told when to come back."""
    headers = {"retry-after": "9"}
    found: list[Any] = [
        failure(error("APIError", status, "usage limit" if status == 429 else "x", headers), "m").retry_after_s
        for status in (429, 503, 401)
    ]
    assert found == [9.0, 9.0, None]
