"""A value in short, for people: bounded JSON that never raises and never runs a value's own code."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from typing import Any

import msgspec

from loom_kernel import codec_tables
from loom_kernel.codec import classes, images
from loom_kernel.codec.forms import BY_TEXT, SecretDigest, Unkept, is_plain
from loom_kernel.codec_tables.refusal import type_name

_SIZES = ((50, 600, 6), (20, 200, 4), (8, 80, 3), (3, 40, 2))  # items, characters, depth: tried until it fits
_SHORT = 400  # bytes of plain JSON that need no cutting
_DOTS = "…"


def preview(value: Any, *, limit: int = 2_000) -> bytes:
    """A value in short, as JSON bytes of at most ``limit``; what JSON does not have is named by its type."""
    try:
        if is_plain(value) and len(raw := msgspec.json.encode(value)) <= min(limit, _SHORT):
            return raw
    except (RecursionError, ValueError, OverflowError):
        pass
    for items, characters, depth in _SIZES:
        try:
            raw = msgspec.json.encode(_short(value, items, characters, depth, set()))
        except Exception:
            break
        if len(raw) <= limit:
            return raw
    return msgspec.json.encode(type_name(value)[: max(limit - 2, 0)])


def _cut(text: str, characters: int) -> str:
    text = text if text.isascii() else text.encode("utf-8", "replace").decode()
    return text if len(text) <= characters else text[: characters - 1] + _DOTS


def _short(value: Any, items: int, characters: int, depth: int, inside: set[int]) -> Any:
    cls = type(value)
    if value is None or cls is bool:
        return value
    if cls is int:
        return value if value.bit_length() <= 64 else _cut(hex(value), characters)
    if cls is float:
        return value if value - value == 0 else repr(value)
    if cls is str:
        return _cut(value, characters)
    if cls in BY_TEXT:
        return _cut(str(value), characters)
    if cls in (dt.datetime, dt.date, dt.time):
        return value.isoformat()
    if cls is dt.timedelta:
        return str(value)
    if cls in (bytes, bytearray):
        return f"{cls.__name__} ({len(value):,} bytes)"
    if hasattr(cls, "get_secret_value") or cls is SecretDigest:
        return "••••••"
    if cls is Unkept or cls is images.Image:
        return repr(value)
    if isinstance(value, enum.Enum):
        return f"{cls.__name__}.{value.name}"
    if isinstance(value, BaseException):
        return _cut(f"{cls.__name__}: {value}", characters)
    if (text := codec_tables.in_short(value)) is not None:
        return _cut(text, characters)
    pairs = _pairs(value, cls)
    if pairs is None and not isinstance(value, list | tuple | set | frozenset):
        return getattr(value, "__qualname__", None) or type_name(value)
    if depth == 0 or id(value) in inside:
        return _DOTS
    inside.add(id(value))
    try:
        if pairs is not None:
            out = {}
            for i, (key, item) in enumerate(pairs):
                if i >= items:
                    out[_DOTS] = f"{len(pairs) - items} more"
                    break
                out[_cut(key if type(key) is str else repr(key), 60)] = _short(
                    item, items, characters, depth - 1, inside
                )
            return out
        seen = []
        for i, item in enumerate(value):
            if i >= items:
                seen.append(f"{_DOTS} {len(value) - items} more")
                break
            seen.append(_short(item, items, characters, depth - 1, inside))
        return seen
    finally:
        inside.discard(id(value))


def _pairs(value: Any, cls: type) -> list[tuple[Any, Any]] | None:
    if isinstance(value, dict):
        return list(value.items())
    if classes.is_model(cls):
        return list(vars(value).items())
    names: Any = None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value) if f.repr]
    elif classes.is_namedtuple(cls):
        names = value._fields
    elif classes.is_struct(cls) and not isinstance(value, type):
        names = value.__struct_fields__
    return None if names is None else [(name, getattr(value, name, None)) for name in names]
