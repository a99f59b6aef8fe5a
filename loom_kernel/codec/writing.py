"""Values to JSON, each tagged with the type it was.

Plain JSON stays plain. Anything else is an object ``{"$loom": tag, ...}``, at any depth; a dict that has the key
``"$loom"`` itself is wrapped. What is large becomes a blob, named by its sha256.
"""

from __future__ import annotations

import base64
import collections
import collections.abc
import dataclasses
import datetime as dt
import enum
import hashlib
import math
import re
import weakref
import zoneinfo
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from loom_kernel import codec_tables
from loom_kernel.codec import classes, images
from loom_kernel.codec.forms import (
    ATOMS,
    BLOB_BYTES,
    BY_TEXT,
    FACTORIES,
    MAX_BYTES,
    TAG,
    Blob,
    Encoded,
    SecretDigest,
    Unkept,
    is_plain,
)
from loom_kernel.codec_tables.refusal import Refused, type_name
from loom_kernel.codec_tables.zones import zone
from loom_kernel.errors import ValueNotStorableError

_json = msgspec.json.Encoder()
_canonical = msgspec.json.Encoder(order="deterministic")


class Writer:
    """Turns a value into a tree of plain JSON. ``inline`` keeps every part in the tree, whatever its size."""

    def __init__(self, *, allow_nan: bool = True, inline: bool = False, inside: set[int] | None = None) -> None:
        self.allow_nan, self.inline = allow_nan, inline
        self.blobs: dict[str, bytes] = {}
        self.total = 0
        self.stands_in = False  # a part came in as a figure and comes back as the picture of it
        self.inside: set[int] = set() if inside is None else inside  # ids of the containers being written

    def tree(self, value: Any) -> Any:
        """Raises: Refused."""
        cls = type(value)
        if cls in ATOMS:
            return self._text(value) if cls is str else self._whole(value) if cls is int else value
        write = _WRITE.get(cls)
        if write is not None:
            return write(self, value)
        return self.other(value)

    def data(self, tag: str, data: bytes | memoryview, **more: Any) -> dict[str, Any]:
        """A tagged value whose body is bytes, in place or as a blob."""
        if len(data) <= BLOB_BYTES * 3 // 4 or self.inline:
            return {TAG: tag, **more, "v": base64.b64encode(data).decode()}
        return {TAG: tag, **more, "blob": self.blob(bytes(data)), "size": len(data)}

    def blob(self, data: bytes) -> str:
        self.total += len(data)
        if self.total > MAX_BYTES:
            raise Refused("value of more than 2 GiB", "Write it to a file and return the file's path.")
        sha256 = hashlib.sha256(data).hexdigest()
        self.blobs[sha256] = data
        return sha256

    def table(self, value: Any, kind: codec_tables.Kind) -> dict[str, Any]:
        return kind.write(value, self)

    def part(self, value: Any) -> Any:
        """A value that stands inside a table (a cell, a label): always in place."""
        return Writer(allow_nan=self.allow_nan, inline=True).tree(value)

    def container(self, value: Any, write: Callable[[], Any]) -> Any:
        """Write a container's items, refusing a value that contains itself."""
        here = id(value)
        if here in self.inside:
            raise Refused(f"{type_name(value)} that contains itself", "Break the circle before returning it.")
        self.inside.add(here)
        try:
            return write()
        except RecursionError:
            raise Refused("value nested too deeply", "Flatten it.") from None
        finally:
            self.inside.discard(here)

    def items(self, values: Iterable[Any]) -> list[Any]:
        out = []
        for i, item in enumerate(values):
            try:
                out.append(self.tree(item))
            except Refused as refused:
                raise refused.at(f"[{i}]") from None
        return out

    def mapping(self, value: Mapping[Any, Any]) -> dict[str, Any]:
        out = {}
        for key, item in value.items():
            if type(key) is not str:
                raise Refused(
                    f"{type_name(value)} with the {type_name(key)} key {_short(key)}",
                    "Keys are strings; use str(key), or a list of pairs.",
                )
            try:
                out[self._key(key)] = self.tree(item)
            except Refused as refused:
                raise refused.at(f"[{key!r}]") from None
        return {TAG: "dict", "v": out} if TAG in out else out

    def fields(self, value: Any, names: Iterable[str]) -> dict[str, Any]:
        out = {}
        for name in names:
            try:
                out[name] = self.tree(getattr(value, name))
            except Refused as refused:
                raise refused.at(f".{name}") from None
            except AttributeError:
                continue  # a slot or field never set
        return out

    def named(self, value: Any, kind: str) -> str:
        """The class of ``value`` for the journal, checked now so that a value never fails only when it is read."""
        cls = type(value)
        if cls not in _findable:
            why = classes.why_not_findable(cls, kind)
            if why is not None:
                raise Refused(type_name(value), why)
            _findable.add(cls)
        return classes.class_name(cls)

    def other(self, value: Any) -> Any:
        """What has no exact type in the table: libraries' values, data classes, and refusals."""
        kind = codec_tables.kind_of(value)
        if kind is not None:
            return self.table(value, kind)
        cls = type(value)
        for test, write in WRITE_BY_TEST:
            if test(cls):
                return write(self, value)
        raise self.refusal(value)

    def refusal(self, value: Any) -> Refused:
        """The sentence for what cannot be kept."""
        hint = _MODULE_HINTS.get(type(value).__module__.split(".")[0])
        if hint is None:
            hint = next((hint for base, hint in _HINTS if isinstance(value, base)), _DEFAULT_HINT)
        return Refused(type_name(value), hint)

    def _text(self, value: str) -> Any:
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                return {TAG: "str", "v": base64.b64encode(value.encode("utf-16-le", "surrogatepass")).decode()}
        return value

    def _whole(self, value: int) -> Any:
        return {TAG: "int", "v": hex(value)} if value.bit_length() > 4096 else value

    def _key(self, key: str) -> str:
        if not key.isascii():
            try:
                key.encode()
            except UnicodeEncodeError:
                raise Refused(f"dict with the key {key!r}, which is not valid text", "Use another key.") from None
        return key


_findable: weakref.WeakSet[type] = weakref.WeakSet()


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        return "?"
    return text if len(text) <= 40 else text[:39] + "…"


def _float(w: Writer, value: float) -> Any:
    if math.isfinite(value):
        return value
    if not w.allow_nan:
        raise Refused(f"float that JSON does not have ({value!r})", "Replace it, e.g. by None.")
    return {TAG: "float", "v": repr(value)}


def _set(w: Writer, value: set[Any] | frozenset[Any]) -> Any:
    def write() -> list[Any]:
        try:
            items = [w.tree(item) for item in value]
        except Refused as refused:
            raise refused.at("{…}") from None
        return sorted(items, key=_canonical.encode)  # sets have no order of their own

    return {TAG: type(value).__name__, "v": w.container(value, write)}


def _datetime(w: Writer, value: dt.datetime) -> Any:
    out: dict[str, Any] = {TAG: "datetime", "v": value.replace(tzinfo=None, fold=0).isoformat()}
    if value.tzinfo is not None:
        out["tz"] = zone(value.tzinfo)
        offset = value.utcoffset()
        if offset is not None:
            out["offset"] = offset.total_seconds()  # for people and SQL; the zone decides
    if value.fold:
        out["fold"] = 1
    return out


def _time(w: Writer, value: dt.time) -> Any:
    out: dict[str, Any] = {TAG: "time", "v": value.replace(tzinfo=None, fold=0).isoformat()}
    if value.tzinfo is not None:
        out["tz"] = zone(value.tzinfo)
    if value.fold:
        out["fold"] = 1
    return out


def _dataclass(w: Writer, value: Any) -> Any:
    name = w.named(value, "dataclass")
    names = [f.name for f in dataclasses.fields(value)]
    return {TAG: "dataclass", "class": name, "v": w.container(value, lambda: w.fields(value, names))}


def _model(w: Writer, value: Any) -> Any:
    name = w.named(value, "model")
    out: dict[str, Any] = {TAG: "model", "class": name}

    def write() -> None:
        state = value.__getstate__()
        for part, key, step in (
            ("v", "__dict__", ".{}"),
            ("extra", "__pydantic_extra__", ".{}"),
            ("private", "__pydantic_private__", ".{}"),
        ):
            if not (content := state.get(key)):
                continue
            items = out[part] = {}
            for k, item in content.items():
                try:
                    items[k] = w.tree(item)
                except Refused as refused:
                    raise refused.at(step.format(k)) from None
        out.setdefault("v", {})
        out["set"] = sorted(state["__pydantic_fields_set__"])

    w.container(value, write)
    return out


def _enum(w: Writer, value: enum.Enum) -> Any:
    out = {TAG: "enum", "class": w.named(value, "enum")}
    if isinstance(value, enum.Flag):
        return {**out, "v": int(value.value)}
    return {**out, "name": value.name}


def _namedtuple(w: Writer, value: Any) -> Any:
    name = w.named(value, "namedtuple")
    return {TAG: "namedtuple", "class": name, "v": w.container(value, lambda: w.fields(value, value._fields))}


def _attrs(w: Writer, value: Any) -> Any:
    name = w.named(value, "attrs")
    names = [a.name for a in type(value).__attrs_attrs__]
    return {TAG: "attrs", "class": name, "v": w.container(value, lambda: w.fields(value, names))}


def _struct(w: Writer, value: Any) -> Any:
    name = w.named(value, "struct")
    return {TAG: "struct", "class": name, "v": w.container(value, lambda: w.fields(value, value.__struct_fields__))}


def _image(w: Writer, value: images.Image) -> Any:
    out = w.data("image", value.data, of=value.of, media=value.media_type, width=value.width, height=value.height)
    if value.png is not None and value.png is not value.data:
        out["picture"] = w.data("bytes", value.png)
    return out


def _figure(w: Writer, value: Any) -> Any:
    w.stands_in = True
    return _image(w, images.image_of(value))


def _defaultdict(w: Writer, value: Any) -> Any:
    factory = value.default_factory
    if factory is not None and factory not in FACTORIES.values():
        raise Refused(type_name(value), "Return dict(value), or use a built-in type as its default.")
    out: dict[str, Any] = {TAG: "defaultdict", "factory": factory and factory.__name__}
    return {**out, "v": w.container(value, lambda: w.mapping(value))}


def digest(value: Any) -> SecretDigest:
    """What is kept of a secret: ``SecretStr``, ``SecretBytes``, text or bytes, by the sha256 of its text."""
    if type(value) is SecretDigest:
        return value
    get = getattr(value, "get_secret_value", None)
    plain = get() if callable(get) else value
    data = plain if isinstance(plain, bytes) else str(plain).encode("utf-8", "surrogatepass")
    return SecretDigest(hashlib.sha256(b"loom-secret\0" + data).hexdigest())


def _is_secret(cls: type) -> bool:
    return hasattr(cls, "get_secret_value")


def _text(tag: str, text: Callable[[Any], str] = str) -> Callable[[Writer, Any], Any]:
    return lambda w, value: {TAG: tag, "v": text(value)}


_WRITE: dict[type, Callable[[Writer, Any], Any]] = {
    float: _float,
    list: lambda w, v: w.container(v, lambda: w.items(v)),
    dict: lambda w, v: w.container(v, lambda: w.mapping(v)),
    tuple: lambda w, v: {TAG: "tuple", "v": w.container(v, lambda: w.items(v))},
    set: _set,
    frozenset: _set,
    bytes: lambda w, v: w.data("bytes", v),
    bytearray: lambda w, v: w.data("bytearray", bytes(v)),
    complex: lambda w, v: {TAG: "complex", "v": [repr(v.real), repr(v.imag)]},
    range: lambda w, v: {TAG: "range", "v": [v.start, v.stop, v.step]},
    slice: lambda w, v: {TAG: "slice", "v": w.items([v.start, v.stop, v.step])},
    type(...): lambda w, v: {TAG: "ellipsis"},
    dt.datetime: _datetime,
    dt.date: _text("date", dt.date.isoformat),
    dt.time: _time,
    dt.timedelta: lambda w, v: {TAG: "timedelta", "v": [v.days, v.seconds, v.microseconds]},
    dt.timezone: lambda w, v: {TAG: "tz", "v": zone(v)},
    zoneinfo.ZoneInfo: lambda w, v: {TAG: "tz", "v": zone(v)},
    re.Pattern: lambda w, v: {TAG: "pattern", "v": w.tree(v.pattern), "flags": v.flags},
    SecretDigest: lambda w, v: {TAG: "secret", "sha256": v.sha256},
    images.Image: _image,
    Unkept: lambda w, v: {TAG: "unkept", "kind": v._kind, "text": v._text},
    collections.OrderedDict: lambda w, v: {TAG: "ordereddict", "v": w.container(v, lambda: w.items(v.items()))},
    collections.Counter: lambda w, v: {TAG: "counter", "v": w.container(v, lambda: w.mapping(v))},
    collections.defaultdict: _defaultdict,
    collections.deque: lambda w, v: {TAG: "deque", "v": w.container(v, lambda: w.items(v)), "maxlen": v.maxlen},
    **{cls: _text(tag) for cls, tag in BY_TEXT.items()},
}

WRITE_BY_TEST: list[tuple[Callable[[type], bool], Callable[[Writer, Any], Any]]] = [
    (_is_secret, lambda w, v: {TAG: "secret", "sha256": digest(v).sha256}),
    (images.is_figure, _figure),
    (classes.KINDS["enum"], _enum),
    (classes.is_model, _model),
    (classes.KINDS["dataclass"], _dataclass),
    (classes.is_namedtuple, _namedtuple),
    (classes.is_url, lambda w, v: {TAG: "url", "class": w.named(v, "url"), "v": str(v)}),
    (classes.KINDS["attrs"], _attrs),
    (classes.is_struct, _struct),
]

_DEFAULT_HINT = "Return plain data instead: JSON values, dates, data classes, pydantic models, tables or arrays."
_HINTS: list[tuple[Any, str]] = [
    (
        (str, int, float, bytes, list, tuple, dict, set),
        "It is a subclass of a built-in type; convert it to that type first.",
    ),
    (type, "Return its name instead."),
    (collections.abc.Awaitable, "Await it first."),
    (collections.abc.Iterator, "Return list(...) of it."),
    (collections.abc.Callable, "Functions are not data; return what they compute."),
    (collections.abc.Mapping, "Return dict(...) of it."),
    (collections.abc.Iterable, "Return list(...) of it, or plain data."),
]
_FIGURE = "Of this library figures are kept, not their parts; return the figure."
_MODULE_HINTS = {
    "matplotlib": _FIGURE,
    "plotly": _FIGURE,
    "altair": _FIGURE,
    "bokeh": "Figures of bokeh are not kept; save it to a file and return the path.",
    "seaborn": _FIGURE,
    "PIL": "Return the picture itself (PIL.Image).",
    "sqlite3": "A connection does not survive a restart; open it inside the step that uses it and return the data.",
    "duckdb": "A connection or relation does not survive a restart; return relation.df() or the rows.",
    "_io": "An open file does not survive a restart; return its path or its contents.",
    "_thread": "Locks belong to one process; make it inside the step.",
    "torch": "Return tensor.numpy(), or save it to a file and return the path.",
}


def encode(value: Any, *, path: str = "result", allow_nan: bool = True) -> Encoded:
    """A value as the journal keeps it.

    Args:
        value: what a step returned, an input, an answer.
        path: what the value is called in an error.
        allow_nan: keep NaN and infinities (tagged, since JSON has none); else they are refused.

    Raises:
        ValueNotStorableError: it, or a part of it, cannot be kept; the error names the part.
    """
    try:
        if is_plain(value):
            return _sized(_json.encode(value), {})
    except (RecursionError, ValueError, OverflowError):
        pass  # a circle, a text that is not valid UTF-8, a very long number: the careful way knows what to say
    writer = Writer(allow_nan=allow_nan)
    try:
        return _sized(_json.encode(writer.tree(value)), writer.blobs, writer.stands_in)
    except Refused as refused:
        raise ValueNotStorableError(refused.path(path), refused.kind, refused.hint) from None
    except RecursionError:
        raise ValueNotStorableError(path, "value nested too deeply", "Flatten it.") from None


def _sized(raw: bytes, blobs: dict[str, bytes], stands_in: bool = False) -> Encoded:
    if len(raw) <= BLOB_BYTES:
        return Encoded(raw, tuple(Blob(sha, data) for sha, data in blobs.items()), stands_in)
    if len(raw) > MAX_BYTES:
        raise Refused("value of more than 2 GiB", "Write it to a file and return the file's path.")
    sha256 = hashlib.sha256(raw).hexdigest()
    reference = _json.encode({TAG: "json", "blob": sha256, "size": len(raw)})
    return Encoded(reference, (Blob(sha256, raw), *(Blob(sha, data) for sha, data in blobs.items())), stands_in)
