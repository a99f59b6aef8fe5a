"""Secrets that a failing program printed are not kept: what looks like one is blotted out."""

from __future__ import annotations

import re

BLOT = "[redacted]"

_NAMED = re.compile(
    r"(?i)\b((?:[a-z0-9]+[_-])*(?:api[_-]?key|access[_-]?key|secret|token|passwd|password|credentials?)(?:[_-](?:id|key))?)"
    r"(\s*[=:]\s*|[\"']\s*:\s*)(\"[^\"\n]*\"|'[^'\n]*'|[^\s,;&\"']+)"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[a-z0-9._~+/=-]{8,}")
_IN_URL = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://[^\s/:@]*):[^\s/@]+@")
_SHAPED = re.compile(
    r"\b(?:sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16}|xox[abprs]-[A-Za-z0-9-]{10,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)"
)


def redact_shapes(text: str) -> str:
    """The text without what has the shape of a key, a token or a URL's password; what is only named so stays."""
    text = _BEARER.sub(lambda m: f"{m[1]} {BLOT}", text)
    text = _IN_URL.sub(lambda m: f"{m[1]}:{BLOT}@", text)
    return _SHAPED.sub(BLOT, text)


def redact(text: str) -> str:
    """The text without what looks like a password, a key or a token; the rest as it was."""
    text = redact_shapes(text)
    return _NAMED.sub(lambda m: m[0] if BLOT in m[3] else f"{m[1]}{m[2]}{BLOT}", text)
