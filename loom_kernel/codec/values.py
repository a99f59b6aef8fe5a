"""Values to JSON and back, each as the type it was.

Plain JSON stays plain. Anything else is an object ``{"$loom": tag, ...}``, at any depth; a dict that has the key
``"$loom"`` itself is wrapped. What is large becomes a blob, named by its sha256.
"""

from __future__ import annotations

import base64
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import hashlib
import ipaddress
import math
import pathlib
import re
import sys
import uuid
import zoneinfo
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from loom_kernel import codec_tables
from loom_kernel.codec import classes
from loom_kernel.codec.refusal import Refused, type_name
from loom_kernel.errors import LoomError, UnknownClassError, ValueNotStorableError

BLOB_BYTES = 64 * 1024
"""What is larger than this leaves the JSON and becomes a blob."""

MAX_BYTES = 2 * 1024**3
"""The largest value that is kept."""

TAG = "$loom"


class Blob(NamedTuple):
    """A part of a value that is kept beside the event, by content."""

    sha256: str
    data: bytes


class Encoded(NamedTuple):
    """A value ready to be written: JSON of at most 64 KiB (about), and the blobs that it names."""

    json: bytes
    blobs: tuple[Blob, ...] = ()


class SecretDigest(NamedTuple):
    """What is left of a secret value when it is read back: the sha256 of its text."""

    sha256: str


class Unkept(NamedTuple):
    """Stands for a part of an exception that could not be kept; using it as the thing it was says so."""

    kind: str
    text: str

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"this {self.kind} belonged to the exception when it was raised; the journal could not keep it")


# ---------------------------------------------------------------- the fast path: plain JSON

_json = msgspec.json.Encoder()
_ATOMS = frozenset({str, int, bool, type(None)})


def is_plain(value: Any) -> bool:
    """Whether ``value`` is JSON already, of exact types: nothing to tag, nothing to refuse."""
    cls = type(value)
    if cls in _ATOMS:
        return True
    if cls is float:
        return math.isfinite(value)
    if cls is dict:
        for key, item in value.items():
            if type(key) is not str or key == TAG:
                return False
            if type(item) not in _ATOMS and not is_plain(item):
                return False
        return True
    if cls is list:
        for item in value:
            if type(item) not in _ATOMS and not is_plain(item):
                return False
        return True
    return False


# ---------------------------------------------------------------- writing


class Writer:
    """Turns a value into a tree of plain JSON. ``inline`` keeps every part in the tree, whatever its size."""

    def __init__(self, *, allow_nan: bool = True, inline: bool = False) -> None:
        self.allow_nan, self.inline = allow_nan, inline
        self.blobs: dict[str, bytes] = {}
        self.total = 0
        self._open: set[int] = set()

    def tree(self, value: Any) -> Any:
        """Raises: Refused."""
        cls = type(value)
        if cls in _ATOMS:
            return value if cls is not str and cls is not int else self._atom(value)
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
        return self.data(kind.tag, kind.dump(value, self))

    def container(self, value: Any, write: Callable[[], Any]) -> Any:
        """Write a container's items, refusing a value that contains itself."""
        here = id(value)
        if here in self._open:
            raise Refused(f"{type_name(value)} that contains itself", "Break the circle before returning it.")
        self._open.add(here)
        try:
            return write()
        except RecursionError:
            raise Refused("value nested too deeply", "Flatten it.") from None
        finally:
            self._open.discard(here)

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
                    f"{type_name(value)} with the {type_name(key)} key {_short(key)}", "Keys are strings; use str(key), or a list of pairs."
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
        why = _findable.get(cls)
        if why is None:
            why = classes.why_not_findable(cls, kind) or ""
            if not why:
                _findable[cls] = ""
        if why:
            raise Refused(type_name(value), why)
        return classes.class_name(cls)

    def other(self, value: Any) -> Any:
        """What has no exact type in the table: libraries' values, data classes, and refusals."""
        kind = codec_tables.kind_of(value)
        if kind is not None:
            return self.table(value, kind)
        cls = type(value)
        for test, write in _WRITE_BY_TEST:
            if test(cls):
                return write(self, value)
        raise self.refusal(value)

    def refusal(self, value: Any) -> Refused:
        """The sentence for what cannot be kept."""
        hint = _MODULE_HINTS.get(type(value).__module__.split(".")[0])
        if hint is None:
            hint = next((hint for base, hint in _HINTS if isinstance(value, base)), _DEFAULT_HINT)
        return Refused(type_name(value), hint)

    def _atom(self, value: str | int) -> Any:
        if type(value) is str:
            if not value.isascii():
                try:
                    value.encode()
                except UnicodeEncodeError:
                    return {TAG: "str", "v": base64.b64encode(value.encode("utf-16-le", "surrogatepass")).decode()}
            return value
        if value.bit_length() > 4096:
            return {TAG: "int", "v": hex(value)}
        return value

    def _key(self, key: str) -> str:
        if not key.isascii():
            try:
                key.encode()
            except UnicodeEncodeError:
                raise Refused(f"dict with the key {key!r}, which is not valid text", "Use another key.") from None
        return key


_findable: dict[type, str] = {}


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


_canonical = msgspec.json.Encoder(order="deterministic")


def zone(value: dt.tzinfo | None) -> Any:
    """A time zone as JSON: None, ``"utc"``, ``{"zone": key}`` or ``{"offset": seconds, "name": ...}``."""
    if value is None:
        return None
    if value is dt.timezone.utc:
        return "utc"
    if type(value) is zoneinfo.ZoneInfo and value.key:
        return {"zone": value.key}
    if type(value) is dt.timezone:
        offset, *name = value.__getinitargs__()  # type: ignore[attr-defined]
        return {"offset": offset.total_seconds(), "name": name[0] if name else None}
    module = type(value).__module__
    if module.startswith("dateutil") and type(value).__name__ == "tzutc":
        return "dateutil.utc"
    if module.startswith("pytz") and isinstance(key := getattr(value, "zone", None), str):
        return {"pytz": key}
    raise Refused(f"time zone ({type_name(value)})", "Use zoneinfo.ZoneInfo or datetime.timezone.")


def read_zone(value: Any) -> dt.tzinfo | None:
    if value is None:
        return None
    if value == "utc":
        return dt.timezone.utc
    if value == "dateutil.utc":
        try:
            from dateutil.tz import tzutc
        except ImportError:
            return dt.timezone.utc
        return tzutc()
    if "zone" in value:
        return zoneinfo.ZoneInfo(value["zone"])
    if "pytz" in value:
        import pytz

        return pytz.timezone(value["pytz"])
    offset = dt.timedelta(seconds=value["offset"])
    return dt.timezone(offset) if value["name"] is None else dt.timezone(offset, value["name"])


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


def _read_datetime(node: Any) -> dt.datetime:
    value = dt.datetime.fromisoformat(node["v"])
    tz = read_zone(node.get("tz"))
    if tz is not None and hasattr(tz, "localize"):  # pytz
        return (dt.datetime.fromisoformat(node["v"]) - dt.timedelta(seconds=node["offset"])).replace(tzinfo=dt.timezone.utc).astimezone(tz)
    return value.replace(tzinfo=tz, fold=node.get("fold", 0))


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
    if type(value) is SecretDigest:
        return {TAG: "secret", "sha256": value.sha256}
    if type(value) is Unkept:
        return {TAG: "unkept", "kind": value.kind, "text": value.text}
    name = w.named(value, "namedtuple")
    return {TAG: "namedtuple", "class": name, "v": w.container(value, lambda: w.fields(value, value._fields))}


def _attrs(w: Writer, value: Any) -> Any:
    name = w.named(value, "attrs")
    names = [a.name for a in type(value).__attrs_attrs__]
    return {TAG: "attrs", "class": name, "v": w.container(value, lambda: w.fields(value, names))}


def _struct(w: Writer, value: Any) -> Any:
    name = w.named(value, "struct")
    return {TAG: "struct", "class": name, "v": w.container(value, lambda: w.fields(value, value.__struct_fields__))}


def _defaultdict(w: Writer, value: Any) -> Any:
    factory = value.default_factory
    if factory is not None and factory not in _FACTORIES.values():
        raise Refused(type_name(value), "Return dict(value), or use a built-in type as its default.")
    out: dict[str, Any] = {TAG: "defaultdict", "factory": factory and factory.__name__}
    return {**out, "v": w.container(value, lambda: w.mapping(value))}


_FACTORIES = {cls.__name__: cls for cls in (list, dict, set, tuple, str, int, float, bool)}


def digest(value: Any) -> SecretDigest:
    """What is kept of a secret: ``SecretStr``, ``SecretBytes``, text or bytes, by the sha256 of its text."""
    get = getattr(value, "get_secret_value", None)
    plain = get() if callable(get) else value
    data = plain if isinstance(plain, bytes) else str(plain).encode("utf-8", "surrogatepass")
    return SecretDigest(hashlib.sha256(b"loom-secret\0" + data).hexdigest())


def _is_secret(cls: type) -> bool:
    return hasattr(cls, "get_secret_value")


def _is_error(cls: type) -> bool:
    return issubclass(cls, BaseException)


def _error(w: Writer, value: BaseException) -> Any:
    from loom_kernel.codec.failures import encode_error  # the two halves of one thing: errors hold values, values hold errors

    if w.named(value, "error"):
        return {TAG: "error", "v": msgspec.json.decode(msgspec.json.encode(encode_error(value)))}


def _text(tag: str, text: Callable[[Any], str] = str) -> Callable[[Writer, Any], Any]:
    return lambda w, value: {TAG: tag, "v": text(value)}


_BY_TEXT: dict[type, str] = {
    decimal.Decimal: "decimal",
    fractions.Fraction: "fraction",
    uuid.UUID: "uuid",
    pathlib.PurePosixPath: "pureposixpath",
    pathlib.PureWindowsPath: "purewindowspath",
    type(pathlib.Path()): "path",
    ipaddress.IPv4Address: "ipv4address",
    ipaddress.IPv6Address: "ipv6address",
    ipaddress.IPv4Network: "ipv4network",
    ipaddress.IPv6Network: "ipv6network",
}

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
    collections.OrderedDict: lambda w, v: {TAG: "ordereddict", "v": w.container(v, lambda: w.items(v.items()))},
    collections.Counter: lambda w, v: {TAG: "counter", "v": w.container(v, lambda: w.mapping(v))},
    collections.defaultdict: _defaultdict,
    collections.deque: lambda w, v: {TAG: "deque", "v": w.container(v, lambda: w.items(v)), "maxlen": v.maxlen},
    **{cls: _text(tag) for cls, tag in _BY_TEXT.items()},
}

_WRITE_BY_TEST: list[tuple[Callable[[type], bool], Callable[[Writer, Any], Any]]] = [
    (_is_secret, lambda w, v: {TAG: "secret", "sha256": digest(v).sha256}),
    (classes.KINDS["enum"], _enum),
    (_is_error, _error),
    (classes.is_model, _model),
    (classes.KINDS["dataclass"], _dataclass),
    (classes.is_namedtuple, _namedtuple),
    (classes.is_url, lambda w, v: {TAG: "url", "class": w.named(v, "url"), "v": str(v)}),
    (classes.KINDS["attrs"], _attrs),
    (classes.is_struct, _struct),
]

_DEFAULT_HINT = "Return plain data instead: JSON values, dates, data classes, pydantic models, tables or arrays."
_HINTS: list[tuple[Any, str]] = [
    ((str, int, float, bytes, list, tuple, dict, set), "It is a subclass of a built-in type; convert it to that type first."),
    (type, "Return its name instead."),
    (collections.abc.Awaitable, "Await it first."),
    (collections.abc.Iterator, "Return list(...) of it."),
    (collections.abc.Callable, "Functions are not data; return what they compute."),
    (collections.abc.Mapping, "Return dict(...) of it."),
    (collections.abc.Iterable, "Return list(...) of it, or plain data."),
]
_FIGURE = "Figures are not kept yet; save it to a file and return the path, or pass it to a question with show=."
_MODULE_HINTS = {
    "matplotlib": _FIGURE,
    "plotly": _FIGURE,
    "altair": _FIGURE,
    "bokeh": _FIGURE,
    "seaborn": _FIGURE,
    "PIL": "Images are not kept yet; save it to a file and return the path.",
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
        return _sized(_json.encode(writer.tree(value)), writer.blobs)
    except Refused as refused:
        raise ValueNotStorableError(refused.path(path), refused.kind, refused.hint) from None
    except RecursionError:
        raise ValueNotStorableError(path, "value nested too deeply", "Flatten it.") from None


def _sized(raw: bytes, blobs: dict[str, bytes]) -> Encoded:
    if len(raw) <= BLOB_BYTES:
        return Encoded(raw, tuple(Blob(sha, data) for sha, data in blobs.items()))
    if len(raw) > MAX_BYTES:
        raise Refused("value of more than 2 GiB", "Write it to a file and return the file's path.")
    sha256 = hashlib.sha256(raw).hexdigest()
    reference = _json.encode({TAG: "json", "blob": sha256, "size": len(raw)})
    return Encoded(reference, (Blob(sha256, raw), *(Blob(sha, data) for sha, data in blobs.items())))


# ---------------------------------------------------------------- reading


class Reader:
    """Turns a tree back into the value; ``blobs`` holds what it needs."""

    def __init__(self, get_blob: Callable[[str], bytes], namespace: Mapping[str, Any] | None = None) -> None:
        self.get_blob, self.namespace = get_blob, namespace

    def value(self, node: Any) -> Any:
        cls = type(node)
        if cls is dict:
            tag = node.get(TAG)
            if tag is None:
                return {key: self.value(item) for key, item in node.items()}
            read = _READ.get(tag)
            if read is not None:
                return read(self, node)
            if codec_tables.can_load(tag):
                return codec_tables.load(tag, self.data(node), self)
            raise LoomError(f"a stored value has the form {tag!r}, which this version of loom-kernel does not know; upgrade it")
        if cls is list:
            return [self.value(item) for item in node]
        return node

    def data(self, node: Any) -> bytes:
        sha256 = node.get("blob")
        return self.get_blob(sha256) if sha256 is not None else base64.b64decode(node["v"])

    def find(self, node: Any, kind: str) -> Any:
        return classes.find_class(node["class"], kind, self.namespace)

    def bare(self, node: Any, kind: str) -> Any:
        """An instance rebuilt without calling ``__init__``: it was valid when it was stored."""
        cls = self.find(node, kind)
        instance = cls.__new__(cls)
        for name, item in node["v"].items():
            object.__setattr__(instance, name, self.value(item))
        return instance


def _read_model(r: Reader, node: Any) -> Any:
    cls = r.find(node, "model")
    instance = cls.__new__(cls)
    part = {name: {k: r.value(v) for k, v in node[name].items()} for name in ("v", "extra", "private") if name in node}
    extra = part.get("extra", {}) if cls.model_config.get("extra") == "allow" else None
    private = part.get("private")
    if private is None and cls.__private_attributes__:
        private = {}
    instance.__setstate__(
        {
            "__dict__": part["v"],
            "__pydantic_fields_set__": set(node["set"]),
            "__pydantic_extra__": extra,
            "__pydantic_private__": private,
        }
    )
    return instance


def _read_enum(r: Reader, node: Any) -> Any:
    cls = r.find(node, "enum")
    if "v" in node:
        return cls(node["v"])
    try:
        return cls[node["name"]]
    except KeyError:
        raise UnknownClassError(node["class"], f"which has no member {node['name']!r} any more") from None


def _read_struct(r: Reader, node: Any) -> Any:
    cls = r.find(node, "struct")
    instance = cls.__new__(cls)
    for name, item in node["v"].items():
        msgspec.structs.force_setattr(instance, name, r.value(item))
    return instance


def _read_error(r: Reader, node: Any) -> Any:
    from loom_kernel.codec.failures import decode_error
    from loom_kernel.events import ErrorRecord

    return decode_error(msgspec.json.decode(msgspec.json.encode(node["v"]), type=ErrorRecord), step="", namespace=r.namespace)


def _read_text(cls: Callable[[str], Any]) -> Callable[[Reader, Any], Any]:
    return lambda r, node: cls(node["v"])


_READ: dict[str, Callable[[Reader, Any], Any]] = {
    "dict": lambda r, n: {key: r.value(item) for key, item in n["v"].items()},
    "float": _read_text(float),
    "int": lambda r, n: int(n["v"], 16),
    "str": lambda r, n: base64.b64decode(n["v"]).decode("utf-16-le", "surrogatepass"),
    "tuple": lambda r, n: tuple([r.value(item) for item in n["v"]]),
    "set": lambda r, n: {r.value(item) for item in n["v"]},
    "frozenset": lambda r, n: frozenset([r.value(item) for item in n["v"]]),
    "bytes": lambda r, n: r.data(n),
    "bytearray": lambda r, n: bytearray(r.data(n)),
    "complex": lambda r, n: complex(float(n["v"][0]), float(n["v"][1])),
    "range": lambda r, n: range(*n["v"]),
    "slice": lambda r, n: slice(*[r.value(item) for item in n["v"]]),
    "ellipsis": lambda r, n: ...,
    "datetime": lambda r, n: _read_datetime(n),
    "date": _read_text(dt.date.fromisoformat),
    "time": lambda r, n: dt.time.fromisoformat(n["v"]).replace(tzinfo=read_zone(n.get("tz")), fold=n.get("fold", 0)),
    "timedelta": lambda r, n: dt.timedelta(*n["v"]),
    "tz": lambda r, n: read_zone(n["v"]),
    "pattern": lambda r, n: re.compile(r.value(n["v"]), n["flags"]),
    "ordereddict": lambda r, n: collections.OrderedDict([r.value(item) for item in n["v"]]),
    "counter": lambda r, n: collections.Counter(r.value(n["v"])),
    "defaultdict": lambda r, n: collections.defaultdict(n["factory"] and _FACTORIES[n["factory"]], r.value(n["v"])),
    "deque": lambda r, n: collections.deque([r.value(item) for item in n["v"]], n["maxlen"]),
    "enum": _read_enum,
    "dataclass": lambda r, n: r.bare(n, "dataclass"),
    "attrs": lambda r, n: r.bare(n, "attrs"),
    "struct": _read_struct,
    "model": _read_model,
    "namedtuple": lambda r, n: r.find(n, "namedtuple")(**{k: r.value(v) for k, v in n["v"].items()}),
    "url": lambda r, n: r.find(n, "url")(n["v"]),
    "secret": lambda r, n: SecretDigest(n["sha256"]),
    "unkept": lambda r, n: Unkept(n["kind"], n["text"]),
    "error": _read_error,
    "json": lambda r, n: r.value(msgspec.json.decode(r.data(n))),
    **{tag: _read_text(cls) for cls, tag in _BY_TEXT.items()},
}


def _missing(sha256: str) -> bytes:
    raise LoomError(f"the blob {sha256[:12]}… of a stored value was not loaded")


def _references(node: Any, found: set[str]) -> set[str]:
    if type(node) is dict:
        if TAG in node and type(sha := node.get("blob")) is str:
            found.add(sha)
        for item in node.values():
            _references(item, found)
    elif type(node) is list:
        for item in node:
            _references(item, found)
    return found


def references(raw: bytes) -> set[str]:
    """The blobs that an encoded value names directly (a ``json`` blob may name more, inside)."""
    return _references(msgspec.json.decode(raw), set()) if b'"blob"' in raw else set()


async def decode(
    raw: bytes, get_blob: Callable[[str], Awaitable[bytes]], *, namespace: Mapping[str, Any] | None = None
) -> Any:
    """The value of an encoded one.

    Args:
        raw: JSON as :func:`encode` gave it.
        get_blob: reads a blob by its sha256.
        namespace: where classes of the notebook are found; ``__main__`` otherwise.

    Raises:
        UnknownClassError: its class is not here any more.
        KeyError: a blob is gone.
    """
    raw = bytes(raw)
    if b'"$loom"' not in raw:
        return msgspec.json.decode(raw)
    node = msgspec.json.decode(raw)
    blobs: dict[str, bytes] = {}
    while type(node) is dict and node.get(TAG) == "json":
        node = msgspec.json.decode(await get_blob(node["blob"]))
    for sha256 in sorted(_references(node, set())):
        blobs[sha256] = await get_blob(sha256)
    return Reader(lambda sha: blobs[sha] if sha in blobs else _missing(sha), namespace).value(node)


def decode_now(
    raw: bytes, get_blob: Callable[[str], bytes] = _missing, *, namespace: Mapping[str, Any] | None = None
) -> Any:
    """:func:`decode` where blobs can be read at once."""
    raw = bytes(raw)
    if b'"$loom"' not in raw:
        return msgspec.json.decode(raw)
    return Reader(get_blob, namespace).value(msgspec.json.decode(raw))


def main_namespace() -> Mapping[str, Any]:
    """What is defined at the top of the script or notebook."""
    return vars(sys.modules["__main__"]) if "__main__" in sys.modules else {}
