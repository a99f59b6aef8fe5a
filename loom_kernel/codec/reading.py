"""Stored values back to what they were. Nothing but classes of plain data is ever looked up by name."""

from __future__ import annotations

import base64
import collections
import dataclasses
import datetime as dt
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from loom_kernel import codec_tables
from loom_kernel.codec import classes, images
from loom_kernel.codec.forms import BY_TEXT, FACTORIES, TAG, SecretDigest, Unkept
from loom_kernel.codec_tables.zones import read_zone
from loom_kernel.errors import LoomError, UnknownClassError


class Reader:
    """Turns a tree back into the value; ``blobs`` holds what it needs."""

    def __init__(
        self, get_blob: Callable[[str], bytes], namespace: Mapping[str, Any] | None = None, step: str = ""
    ) -> None:
        self.get_blob, self.namespace = get_blob, namespace
        self.step = step  # whose failure is read, for the exceptions inside it that are not here

    def value(self, node: Any) -> Any:
        cls = type(node)
        if cls is dict:
            tag = node.get(TAG)
            if tag is None:
                return {key: self.value(item) for key, item in node.items()}
            read = READ.get(tag)
            if read is not None:
                return read(self, node)
            if codec_tables.can_load(tag):
                return codec_tables.load(tag, node, self)
            raise LoomError(
                f"a stored value has the form {tag!r}, which this version of loom-kernel does not know; upgrade it"
            )
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
            value = self.value(item)
            try:
                object.__setattr__(instance, name, value)
            except AttributeError:
                continue  # a field that the class, with slots, has no more
        if kind == "dataclass":
            for field in dataclasses.fields(cls):  # a field that the class has got since
                if field.name not in node["v"] and field.default_factory is not dataclasses.MISSING:
                    object.__setattr__(instance, field.name, field.default_factory())
        return instance


def _read_datetime(node: Any) -> dt.datetime:
    value = dt.datetime.fromisoformat(node["v"])
    tz = read_zone(node.get("tz"))
    if tz is not None and hasattr(tz, "localize"):  # pytz
        return (
            (dt.datetime.fromisoformat(node["v"]) - dt.timedelta(seconds=node["offset"]))
            .replace(tzinfo=dt.UTC)
            .astimezone(tz)
        )
    return value.replace(tzinfo=tz, fold=node.get("fold", 0))


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
    names = cls.__struct_fields__
    return cls(**{name: r.value(item) for name, item in node["v"].items() if name in names})


def _read_namedtuple(r: Reader, node: Any) -> Any:
    cls = r.find(node, "namedtuple")
    values = {name: r.value(item) for name, item in node["v"].items()}
    return tuple.__new__(cls, values.values()) if tuple(values) == cls._fields else cls(**values)


def _read_image(r: Reader, node: Any) -> images.Image:
    png = r.data(node["picture"]) if "picture" in node else None
    return images.Image(r.data(node), media_type=node["media"], of=node["of"], png=png)


def _read_text(cls: Callable[[str], Any]) -> Callable[[Reader, Any], Any]:
    return lambda r, node: cls(node["v"])


READ: dict[str, Callable[[Reader, Any], Any]] = {
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
    "defaultdict": lambda r, n: collections.defaultdict(n["factory"] and FACTORIES[n["factory"]], r.value(n["v"])),
    "deque": lambda r, n: collections.deque([r.value(item) for item in n["v"]], n["maxlen"]),
    "enum": _read_enum,
    "dataclass": lambda r, n: r.bare(n, "dataclass"),
    "attrs": lambda r, n: r.bare(n, "attrs"),
    "struct": _read_struct,
    "model": _read_model,
    "namedtuple": _read_namedtuple,
    "url": lambda r, n: r.find(n, "url")(n["v"]),
    "image": _read_image,
    "secret": lambda r, n: SecretDigest(n["sha256"]),
    "unkept": lambda r, n: Unkept(n["kind"], n["text"]),
    "json": lambda r, n: r.value(msgspec.json.decode(r.data(n))),
    **{tag: _read_text(cls) for cls, tag in BY_TEXT.items()},
}


def missing(sha256: str) -> bytes:
    raise LoomError(f"the blob {sha256[:12]}… of a stored value was not loaded")


def _references(node: Any, found: set[str]) -> set[str]:
    if type(node) is dict:
        if node.get(TAG) == "dict" and type(node.get("v")) is dict:
            node = node["v"]  # a person's own keys, which name no blob whatever they are called
        elif TAG in node and type(sha := node.get("blob")) is str:
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
    return Reader(lambda sha: blobs[sha] if sha in blobs else missing(sha), namespace).value(node)


def decode_now(
    raw: bytes, get_blob: Callable[[str], bytes] = missing, *, namespace: Mapping[str, Any] | None = None
) -> Any:
    """:func:`decode` where blobs can be read at once."""
    raw = bytes(raw)
    if b'"$loom"' not in raw:
        return msgspec.json.decode(raw)
    return Reader(get_blob, namespace).value(msgspec.json.decode(raw))


def main_namespace() -> Mapping[str, Any]:
    """What is defined at the top of the script or notebook."""
    return vars(sys.modules["__main__"]) if "__main__" in sys.modules else {}
