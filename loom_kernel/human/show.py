"""What a question shows beside its text: bounded, and never as raw HTML."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from loom_kernel import codec, codec_tables
from loom_kernel.errors import LoomError
from loom_kernel.events import Shown

ROWS = 20
COLUMNS = 12
CELL_CHARACTERS = 80
TEXT_CHARACTERS = 6_000
JSON_BYTES = 6_000
IMAGE_BYTES = 300_000
PARTS = 6


def shown(value: Any) -> tuple[list[Shown], str]:
    """What a person sees of a value, and the hash that binds an answer to it.

    Args:
        value: a table (pandas, polars, Arrow, a list of dicts, a DuckDB relation), a figure or image, text, Markdown
            (an object with ``_repr_markdown_``), other data; a list or tuple of these shows them one below the other;
            None shows nothing.

    Returns:
        The parts, and 32 hex characters: of the whole content where it has a hash, else of what is shown; "" for None.
    """
    if value is None:
        return [], ""
    parts = [_one(part) for part in _parts(value)]
    return parts, _hash(value, parts)


def _parts(value: Any) -> list[Any]:
    if isinstance(value, list | tuple) and value and not _is_records(value) and any(_is_rich(item) for item in value):
        return list(value)[:PARTS]
    return [value]


def _hash(value: Any, parts: list[Shown]) -> str:
    try:
        return codec.content_hash(value)
    except LoomError:
        return hashlib.blake2b(msgspec.json.encode(parts), digest_size=16).hexdigest()


def _is_rich(value: Any) -> bool:
    """Whether a value is more than plain data, so that a list of such is several things to show."""
    return (
        _table(value) is not None
        or _is_records(value)
        or _image_maker(value) is not None
        or _markdown(value) is not None
    )


def _one(value: Any) -> Shown:
    try:
        return _shown(value)
    except Exception as error:  # what cannot be shown must not stop the run from asking
        return Shown(kind="text", text=f"{type(value).__name__} cannot be shown: {error}"[:500])


def _shown(value: Any) -> Shown:
    if isinstance(value, str):
        return Shown(kind="text", text=_cut(value, TEXT_CHARACTERS))
    table = _table(value)
    if table is not None:
        return table
    make = _image_maker(value)
    if make is not None:
        return make()
    markdown = _markdown(value)
    if markdown is not None:
        return Shown(kind="markdown", text=_cut(markdown, TEXT_CHARACTERS))
    return Shown(kind="json", text=codec.preview(value, limit=JSON_BYTES).decode())


# ---------------------------------------------------------------- tables


def _is_records(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(row, Mapping) and row for row in value[:ROWS])
    )


def _table(value: Any) -> Shown | None:
    if type(value).__name__ == "DuckDBPyRelation":
        names = list(value.columns)
        rows = [list(row[:COLUMNS]) for row in value.limit(ROWS).fetchall()]
        return _tabular(codec_tables.Rows(names[:COLUMNS], rows, (len(value), len(names))))
    found = codec_tables.rows_of(value, ROWS, COLUMNS)
    if found is None and _is_records(value):
        names = list(dict.fromkeys(str(key) for row in value[:ROWS] for key in row))
        rows = [[row.get(name) for name in names[:COLUMNS]] for row in value[:ROWS]]
        found = codec_tables.Rows(names[:COLUMNS], rows, (len(value), len(names)))
    return None if found is None else _tabular(found)


def _tabular(table: codec_tables.Rows) -> Shown:
    columns = [_cut(name, CELL_CHARACTERS) for name in table.columns]
    hidden = table.shape[1] - len(columns)
    return Shown(
        kind="table",
        text=f"{hidden} more column{'s' if hidden > 1 else ''}" if hidden > 0 else "",
        columns=columns,
        rows=[[_cell(item) for item in row] for row in table.rows],
        total=table.shape[0],
    )


def _cell(value: Any) -> str:
    """One cell as text: short numbers, no line breaks, a dash for what is missing."""
    if value is None or type(value).__name__ in ("NaTType", "NAType"):
        return "–"
    if isinstance(value, str):
        return _cut(" ".join(value.split()), CELL_CHARACTERS)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if value != value:
            return "–"
        return f"{value:,.0f}" if value.is_integer() and abs(value) < 1e12 else f"{value:.6g}"
    if isinstance(value, dt.datetime):
        text = str(value)
        return text.removesuffix(" 00:00:00")
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, Mapping | list | tuple | set):
        return _cut(codec.preview(value, limit=400).decode(), CELL_CHARACTERS)
    return _cut(" ".join(str(value).split()), CELL_CHARACTERS)


def _cut(text: str, characters: int) -> str:
    text = text if text.isascii() else text.encode("utf-8", "replace").decode()
    return text if len(text) <= characters else text[: characters - 1] + "…"


# ---------------------------------------------------------------- images and Markdown


def _image_maker(value: Any) -> Callable[[], Shown] | None:
    """What makes an image of a value, if it is one."""
    figure = getattr(value, "figure", value) if type(value).__module__.startswith("matplotlib") else value
    if hasattr(figure, "savefig") and "matplotlib" in sys.modules:
        return lambda: _figure(figure)
    if type(value).__module__.startswith("PIL.") and hasattr(value, "thumbnail"):
        return lambda: _picture(value)
    for method, mime in (("_repr_png_", "image/png"), ("_repr_jpeg_", "image/jpeg"), ("_repr_svg_", "image/svg+xml")):
        make = getattr(value, method, None)
        if callable(make) and not isinstance(value, type):
            data = make()
            if data:
                return lambda data=data, mime=mime: _image(data, mime, type(value).__name__)  # type: ignore[misc]
    return None


def _figure(figure: Any) -> Shown:
    for dpi in (100, 72, 48):
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=dpi, bbox_inches="tight", metadata={"Software": None})
        if out.tell() <= IMAGE_BYTES:
            break
    return _image(out.getvalue(), "image/png", "figure")


def _picture(picture: Any) -> Shown:
    for size in (1200, 600, 300):
        small = picture.copy()
        small.thumbnail((size, size))
        out = io.BytesIO()
        small.save(out, format="PNG")
        if out.tell() <= IMAGE_BYTES:
            break
    return _image(out.getvalue(), "image/png", "image")


def _image(data: Any, mime: str, what: str) -> Shown:
    data = data[0] if isinstance(data, tuple) else data
    raw = (
        data.encode()
        if isinstance(data, str) and mime.endswith("svg+xml")
        else base64.b64decode(data)
        if isinstance(data, str)
        else data
    )
    if len(raw) > IMAGE_BYTES:
        return Shown(kind="text", text=f"{what} of {len(raw):,} bytes, which is too large to show; show a smaller one")
    return Shown(kind="image", text=f"data:{mime};base64,{base64.b64encode(raw).decode()}")


def _markdown(value: Any) -> str | None:
    make = getattr(value, "_repr_markdown_", None)
    if not callable(make) or isinstance(value, type | Sequence):
        return None
    text = make()
    if isinstance(text, tuple):
        text = text[0]
    return text if isinstance(text, str) else None
