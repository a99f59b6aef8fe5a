"""The only door to pandas, pyarrow, polars and numpy: their values as bytes and back, and the hash of their contents.

Nothing is imported here before such a value is there (or is read back): a value's library has been imported by whoever
made the value, so looking at its class is enough to know.
"""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from loom_kernel.errors import LoomError


class PartWriter(Protocol):
    """What this door needs of the codec's writer."""

    def data(self, tag: str, data: bytes | memoryview, **more: Any) -> dict[str, Any]: ...
    def tree(self, value: Any) -> Any: ...
    def part(self, value: Any) -> Any: ...


class PartReader(Protocol):
    """What this door needs of the codec's reader."""

    def data(self, node: Any) -> bytes: ...
    def value(self, node: Any) -> Any: ...


class Digest(Protocol):
    """A ``hashlib`` object."""

    def update(self, data: Any, /) -> None: ...


class Kind(NamedTuple):
    """How values of one library's type are kept.

    ``feed`` puts the contents into a digest; None where the written form is canonical already.
    """

    write: Callable[[Any, PartWriter], Any]
    feed: Callable[[Any, Digest, PartWriter], None] | None = None


_LIBRARIES = {
    "numpy": "loom_kernel.codec_tables.numpy_values",
    "pandas": "loom_kernel.codec_tables.pandas_values",
    "polars": "loom_kernel.codec_tables.polars_values",
    "pyarrow": "loom_kernel.codec_tables.arrow_values",
}
_PREFIXES = {"np": "numpy", "pd": "pandas", "pl": "polars", "pa": "pyarrow"}
_kinds: weakref.WeakKeyDictionary[type, Kind | None] = weakref.WeakKeyDictionary()


def _library(cls: type) -> Any:
    for base in cls.__mro__:
        name = base.__module__.partition(".")[0]
        if name in _LIBRARIES:
            return importlib.import_module(_LIBRARIES[name])
    return None


def kind_of(value: Any) -> Kind | None:
    """How ``value`` is kept, or None where it is not of these libraries.

    Raises:
        Refused: it is of these libraries, and cannot be kept.
    """
    cls = type(value)
    if cls in _kinds:
        return _kinds[cls]
    library = _library(cls)
    kind: Kind | None = library.kind_of(cls) if library is not None else None
    _kinds[cls] = kind
    return kind


def can_load(tag: str) -> bool:
    return tag.partition(".")[0] in _PREFIXES


def load(tag: str, node: Any, reader: PartReader) -> Any:
    """A stored value of these libraries.

    Raises:
        LoomError: the library is not installed here.
    """
    name = _PREFIXES[tag.partition(".")[0]]
    try:
        return importlib.import_module(_LIBRARIES[name]).READ[tag](node, reader)
    except ImportError as error:
        extra = (
            "`pip install 'loom-kernel[tables]'`"
            if error.name in ("pandas", "pyarrow")
            else f"`pip install {error.name}`"
        )
        raise LoomError(f"reading a stored {tag} needs {error.name}, which is not installed here: {extra}") from None


def in_short(value: Any) -> str | None:
    """``"DataFrame (1,000 × 5)"`` for a value of these libraries, None for others."""
    cls = type(value)
    if _library(cls) is None:
        return None
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple) or not shape:
        return None if isinstance(value, list | dict) else str(value) if not hasattr(value, "__len__") else cls.__name__
    dtype = getattr(value, "dtype", None)
    return f"{cls.__name__} ({' × '.join(f'{n:,}' for n in shape)}{f', {dtype}' if dtype is not None else ''})"


def for_sql(value: Any) -> Any:
    """A frame as DuckDB reads it: a named index of pandas as columns, names as text."""
    find = getattr(_library(type(value)), "for_sql", None)
    return value if find is None else find(value)


class Rows(NamedTuple):
    """The beginning of a table as text, for people: ``rows`` of ``shape``'s many."""

    columns: list[str]
    rows: list[list[Any]]
    shape: tuple[int, int]


def rows_of(value: Any, rows: int, columns: int) -> Rows | None:
    """The first rows and columns of a frame, series, Arrow table or array of one or two dimensions; None for others."""
    library = _library(type(value))
    begin = getattr(library, "begin", None)
    found: Rows | None = begin(value, rows, columns) if begin is not None else None
    return found
