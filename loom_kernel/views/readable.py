"""Encoded values as people read them: JSON, with what is not JSON said in words."""

from __future__ import annotations

from typing import Any

import msgspec

from loom_kernel.views import words

_TAG = "$loom"


def readable(raw: bytes, *, limit: int = 4_000, pretty: bool = True) -> str:
    """The value as text of about ``limit`` characters at most; a table becomes ``‹table, 1,461 × 6›``.

    Args:
        raw: JSON bytes as the journal keeps them; what is not JSON is shown as text.
        pretty: indented over several lines; otherwise one line.
    """
    try:
        plain = _plain(msgspec.json.decode(raw))
    except msgspec.DecodeError:
        return words.short(bytes(raw).decode(errors="replace"), limit)
    if isinstance(plain, str):
        text = plain
    else:
        encoded = msgspec.json.encode(plain)
        text = msgspec.json.format(encoded, indent=2 if pretty else 0).decode()
    return text if len(text) <= limit else text[:limit].rstrip() + " …"


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if not isinstance(value, dict):
        return value
    if _TAG not in value:
        return {k: _plain(v) for k, v in value.items()}
    tag = str(value[_TAG])
    if tag == "secret":
        return "••••••"
    if tag == "image":
        return f"‹{value.get('of') or 'a'} figure, {value.get('width', 0):,} × {value.get('height', 0):,}›"
    # A table or array has a dotted tag: its contents are bytes, wherever they lie.
    if "blob" not in value and "v" in value and tag not in ("bytes", "bytearray", "str") and "." not in tag:
        return _plain(value["v"])
    return f"‹{tag}{_size(value)}›"


def _size(value: dict[str, Any]) -> str:
    shape = value.get("shape")
    if not isinstance(shape, list):
        shape = [value[k] for k in ("rows", "columns") if isinstance(value.get(k), int)]
    if shape:
        return ", " + " × ".join(f"{n:,}" for n in shape if isinstance(n, int))
    return f", {value['size']:,} bytes" if isinstance(value.get("size"), int) else ""
