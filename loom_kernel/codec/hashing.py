"""What a value is, as 32 hex characters: equal content, equal hash, in every process and after every round trip.

The hash is taken over canonical JSON of the same tree that :mod:`~loom_kernel.codec.values` writes, with keys sorted.
Tables and arrays count by schema and contents, not by the bytes of a file. ``1``, ``True`` and ``1.0`` differ, and so
do a list and a tuple.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import textwrap
import types
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from loom_kernel import codec_tables
from loom_kernel.codec import classes, images
from loom_kernel.codec.forms import TAG, is_plain
from loom_kernel.codec.writing import Writer
from loom_kernel.codec_tables.refusal import Refused, type_name
from loom_kernel.errors import UnhashableValue

_canonical = msgspec.json.Encoder(order="deterministic")


class _Hasher(Writer):
    """Writes the tree that is hashed: bytes and tables become digests; functions and classes may stand in it."""

    def __init__(self) -> None:
        super().__init__(inline=True)

    def data(self, tag: str, data: bytes | memoryview, **more: Any) -> dict[str, Any]:
        return {TAG: tag, **more, "hash": _digest(data)}

    def table(self, value: Any, kind: codec_tables.Kind) -> dict[str, Any]:
        if kind.feed is None:
            return kind.write(value, self)
        digest = hashlib.blake2b(digest_size=16)
        kind.feed(value, digest, self)
        return {TAG: type(value).__name__, "hash": digest.hexdigest()}

    def part(self, value: Any) -> Any:
        return self.tree(value)

    def named(self, value: Any, kind: str) -> str:
        return classes.class_name(type(value))  # a hash need not be read back, so a local class will do

    def mapping(self, value: Mapping[Any, Any]) -> dict[str, Any]:
        if all(type(key) is str for key in value):
            return super().mapping(value)
        pairs = [self.items(pair) for pair in value.items()]  # only what is stored needs keys that JSON has
        return {TAG: "mapping", "v": sorted(pairs, key=_canonical.encode)}

    def refusal(self, value: Any) -> Refused:
        return Refused(type_name(value), "")

    def other(self, value: Any) -> Any:
        write = _CODE.get(type(value))
        if write is not None:
            return write(self, value)
        if isinstance(value, type):
            return {TAG: "class", "name": classes.class_name(value), "code": _source_hash(value)}
        if images.is_figure(type(value)):
            raise Refused(
                type_name(value),
                "Hand over what it is drawn from, or let a step draw and return it: a picture is compared.",
            )
        definition = getattr(value, "fn", None)  # a step definition is the function that it wraps
        if isinstance(definition, types.FunctionType) and hasattr(value, "name"):
            return _function(self, definition)
        return super().other(value)


def _digest(data: bytes | memoryview) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _function(w: _Hasher, value: types.FunctionType) -> Any:
    if value.__name__ == "<lambda>" or "<locals>" in value.__qualname__:
        raise Refused("lambda or inner function", "Define it with `def` at the top level of a cell or module.")
    code = _source_hash(value)
    if not code:
        raise Refused("function without source text", "Define it in a cell or a file.")
    return {TAG: "function", "name": f"{classes.module_of(value)}:{value.__qualname__}", "code": code}


def _partial(w: _Hasher, value: functools.partial[Any]) -> Any:
    return {TAG: "partial", "v": w.items([value.func, list(value.args), dict(value.keywords)])}


_CODE: dict[type, Callable[[_Hasher, Any], Any]] = {
    types.FunctionType: _function,
    types.BuiltinFunctionType: lambda w, v: (
        {TAG: "builtin", "name": f"{classes.module_of(v)}:{v.__qualname__}"}
        if isinstance(v.__self__, types.ModuleType | type(None))
        else w.items([v.__self__, v.__name__])
    ),
    functools.partial: _partial,
}


def _source_hash(value: Any) -> str:
    """A hash of the code that comments, formatting and docstrings do not change; "" where there is no source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(value)))
    except (OSError, TypeError, SyntaxError):
        return ""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and isinstance(body, list)
            and isinstance(first := body[0], ast.Expr)
            and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)
        ):
            body[:] = body[1:] or [ast.Pass()]
    return _digest(ast.dump(tree, annotate_fields=False).encode())


def content_hash(value: Any, *, path: str = "argument") -> str:
    """What identifies a value, as 32 hex characters.

    Args:
        value: a step's argument, a result, what a question shows.
        path: what the value is called in an error.

    Raises:
        UnhashableValue: it, or a part of it, has no content (a connection, an open file, a generator, a lambda).
    """
    try:
        if is_plain(value):
            return _digest(_canonical.encode(value))
    except (RecursionError, ValueError, OverflowError):
        pass
    try:
        return _digest(_canonical.encode(_Hasher().tree(value)))
    except Refused as refused:
        raise UnhashableValue(refused.path(path), refused.kind, refused.hint) from None
    except RecursionError:
        raise UnhashableValue(path, f"{type_name(value)} nested too deeply") from None
