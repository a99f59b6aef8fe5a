"""What a call made that a person may look for by name: tables and figures in its result, and what it showed.

Recorded beside the result, in the same append. The value itself is kept once, where it was returned; the event says
where, how large it is, and shows a small picture or the first rows.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Raw

from loom_kernel import codec, codec_tables
from loom_kernel import events as ev
from loom_kernel.codec import Encoded, Image
from loom_kernel.journal.abc import Append

if TYPE_CHECKING:
    from loom_kernel.engine.execution import Execution
    from loom_kernel.engine.output import LiveHandle

TABLES = frozenset({"pd.DataFrame", "pl.DataFrame", "pl.LazyFrame", "pa.Table", "pa.RecordBatch"})
MOST = 20
"""Artifacts of one result; a step that returns a thousand figures keeps the values, and names the first."""

DEPTH = 2
SCAN_BYTES = 4_000_000
ROWS, COLUMNS, CELL = 5, 8, 40
_TAG = "$loom"


class Found(NamedTuple):
    """An artifact in a value, before it has a revision."""

    path: tuple[str | int, ...]
    kind: str
    media_type: str
    size_bytes: int
    sha256: str
    preview: tuple[ev.Shown, ...] = ()


def in_result(value: Any, encoded: Encoded) -> tuple[Found, ...]:
    """Tables and figures in a step's result, not deeper than two levels. ``()`` at once for plain JSON."""
    if b'"$loom"' not in encoded.json:
        return ()
    node = _tree(encoded)
    found: list[Found] = []
    _walk(node, value, (), dict(encoded.blobs), found)
    return tuple(found)


def of_put(value: Any, encoded: Encoded) -> Found:
    """The one artifact that ``ctx.put`` makes of a value, whatever it is."""
    blobs = dict(encoded.blobs)
    node = msgspec.json.decode(encoded.json) if b'"$loom"' in encoded.json else None
    tag = node.get(_TAG) if isinstance(node, dict) else None
    if tag in TABLES or tag == "image":
        return _artifact(node, value, (), blobs)
    kind, media = "json", "application/json"
    if isinstance(tag, str) and tag.startswith("np."):
        kind, media = "array", "application/x-npy"
    elif tag in ("bytes", "bytearray"):
        kind, media = "bytes", "application/octet-stream"
    elif isinstance(value, str):
        kind, media = "text", "text/plain"
    size, sha256 = _contents(node, encoded.json, blobs)
    return Found((), kind, media, size, sha256, _text(value))


def name_of(name: str, path: tuple[str | int, ...]) -> str:
    """``plot``, ``plot.left``, ``plot[0]``."""
    return name + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)


def appends(x: Execution, node_id: str, name: str, source: str, found: tuple[Found, ...], key: str) -> list[Append]:
    """The events for what was found, with their revisions."""
    out = []
    for n, item in enumerate(found):
        full = name_of(name, item.path)
        revision = x.revisions[full] = x.revisions.get(full, 0) + 1
        event = ev.ArtifactKept(
            name=full,
            revision=revision,
            kind=item.kind,
            source=source,
            path=list(item.path),
            media_type=item.media_type,
            size_bytes=item.size_bytes,
            sha256=item.sha256,
            preview=list(item.preview),
        )
        out.append(Append(event, node_id, f"{key}:{n}"))
    return out


async def shown(x: Execution, node_id: str, name: str, handle: LiveHandle) -> list[Append]:
    """The events for figures that a step showed with ``plt.show()``; their pictures are kept before."""
    out = []
    for n, image in enumerate(handle.take_shown()):
        encoded = codec.encode(image)
        await x.put_blobs(encoded)
        [append] = appends(
            x,
            node_id,
            name,
            "shown",
            (of_put(image, encoded),),
            f"{node_id}:shown:{x.lease.epoch}:{handle.attempt}:{n}",
        )
        out.append(msgspec.structs.replace(append, event=_with_value(append.event, encoded)))
    return out


def _with_value(event: Any, encoded: Encoded) -> ev.ArtifactKept:
    kept: ev.ArtifactKept = msgspec.structs.replace(event, value=Raw(encoded.json))
    return kept


def _tree(encoded: Encoded) -> Any:
    node = msgspec.json.decode(encoded.json)
    if isinstance(node, dict) and node.get(_TAG) == "json":
        raw = dict(encoded.blobs).get(node.get("blob", ""), b"")
        if len(raw) > SCAN_BYTES or b'"$loom"' not in raw:
            return None
        return msgspec.json.decode(raw)
    return node


def _walk(node: Any, value: Any, path: tuple[str | int, ...], blobs: dict[str, bytes], found: list[Found]) -> None:
    if len(found) >= MOST:
        return
    tag = node.get(_TAG) if isinstance(node, dict) else None
    if tag in TABLES or tag == "image":
        found.append(_artifact(node, value, path, blobs))
        return
    if len(path) >= DEPTH:
        return
    inner = (
        node.get("v")
        if tag in ("tuple", "dict", "dataclass", "namedtuple", "model", "attrs")
        else node
        if tag is None
        else None
    )
    if isinstance(inner, dict):
        for key, item in inner.items():
            if isinstance(item, dict | list):
                _walk(item, part_of(value, key), (*path, key), blobs, found)
    elif isinstance(inner, list):
        for n, item in enumerate(inner):
            if isinstance(item, dict | list):
                _walk(item, part_of(value, n), (*path, n), blobs, found)


def part_of(value: Any, step: str | int) -> Any:
    """The part of a value at one step of a path."""
    if isinstance(step, int) or isinstance(value, dict):
        return value[step]
    return getattr(value, step)


def _artifact(node: Any, value: Any, path: tuple[str | int, ...], blobs: dict[str, bytes]) -> Found:
    size, sha256 = _contents(node, b"", blobs)
    if node[_TAG] == "image":
        return Found(path, "figure", node["media"], size, sha256, _picture(value))
    return Found(path, "table", "application/vnd.apache.parquet", size, sha256, _rows(value))


def _contents(node: Any, raw: bytes, blobs: dict[str, bytes]) -> tuple[int, str]:
    """Size and hash of what is stored: the body of a tagged value, else the JSON."""
    if isinstance(node, dict) and isinstance(node.get("blob"), str):
        return len(blobs.get(node["blob"], b"")) or int(node.get("size", 0)), node["blob"]
    if isinstance(node, dict) and isinstance(node.get("v"), str) and not raw.startswith(b'"'):
        try:
            data = base64.b64decode(node["v"], validate=True)
        except ValueError:
            data = raw or node["v"].encode()
        return len(data), hashlib.sha256(data).hexdigest()
    return len(raw), hashlib.sha256(raw).hexdigest()


# ---------------------------------------------------------------- previews


def _picture(image: Any) -> tuple[ev.Shown, ...]:
    small = image.small() if isinstance(image, Image) else None
    if small is None:
        return (ev.Shown(kind="text", text=repr(image)),)
    return (ev.Shown(kind="image", text=f"data:image/png;base64,{base64.b64encode(small).decode()}"),)


def _rows(value: Any) -> tuple[ev.Shown, ...]:
    try:
        rows = codec_tables.rows_of(value, ROWS, COLUMNS)
    except Exception:
        rows = None  # a preview must not cost the step its result
    if rows is None:
        return ()
    return (
        ev.Shown(
            kind="table",
            columns=[_cell(name) for name in rows.columns],
            rows=[[_cell(item) for item in row] for row in rows.rows],
            total=rows.shape[0],
        ),
    )


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "–" if value != value else f"{value:.6g}"
    text = "–" if value is None or type(value).__name__ in ("NaTType", "NAType") else " ".join(str(value).split())
    text = text if text.isascii() else text.encode("utf-8", "replace").decode()
    return text if len(text) <= CELL else text[: CELL - 1] + "…"


def _text(value: Any) -> tuple[ev.Shown, ...]:
    return (ev.Shown(kind="json", text=codec.preview(value, limit=600).decode()),)
