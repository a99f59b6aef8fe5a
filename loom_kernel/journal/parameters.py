"""Values that a query is asked with: bound as what they are, never pasted into its text.

Between processes they travel as JSON pairs of kind and text, so that nothing but plain values can arrive.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from loom_kernel.errors import SqlError

_WRITE: dict[type, tuple[str, Callable[[Any], Any]]] = {
    type(None): ("plain", lambda v: None),
    bool: ("plain", bool),
    int: ("plain", int),
    str: ("plain", str),
    float: ("float", repr),
    dt.datetime: ("datetime", dt.datetime.isoformat),
    dt.date: ("date", dt.date.isoformat),
    dt.time: ("time", dt.time.isoformat),
    dt.timedelta: ("timedelta", lambda v: [v.days, v.seconds, v.microseconds]),
    decimal.Decimal: ("decimal", str),
    uuid.UUID: ("uuid", str),
    bytes: ("bytes", bytes.hex),
}
_READ: dict[str, Callable[[Any], Any]] = {
    "plain": lambda v: v,
    "float": float,
    "datetime": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
    "time": dt.time.fromisoformat,
    "timedelta": lambda v: dt.timedelta(*v),
    "decimal": decimal.Decimal,
    "uuid": uuid.UUID,
    "bytes": bytes.fromhex,
    "list": lambda v: [_READ[kind](item) for kind, item in v],
}


def plain(name: str, value: Any) -> Any:
    """The value as DuckDB binds it: numpy's and pandas' scalars as Python's, tuples and sets as lists.

    Raises:
        SqlError: it is no value of that kind.
    """
    if isinstance(value, (list, tuple, set, frozenset, range)):
        items = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
        return [plain(name, item) for item in items]
    if type(value).__name__ in ("NaTType", "NAType"):
        return None
    if isinstance(value, dt.datetime):
        moment = getattr(value, "to_pydatetime", None)
        return dt.datetime.fromisoformat((moment(warn=False) if moment is not None else value).isoformat())
    if type(value) in _WRITE:
        return value
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "shape", None) == ():
        return plain(name, item())
    for base in (bool, int, float, str):
        if isinstance(value, base):
            return base(value)
    kind = type(value).__name__
    if hasattr(value, "columns") or hasattr(value, "column_names"):
        raise SqlError(
            f"{{{name}}} is a {kind}, which is a table: write {name} without the braces, behind from or join"
        )
    if callable(getattr(value, "tolist", None)):
        return plain(name, value.tolist())
    raise SqlError(f"{{{name}}} is a {kind}; a parameter is a number, a text, a time, or a list of them")


def pack(parameters: Mapping[str, Any]) -> bytes:
    """Parameters for another process.

    Raises:
        SqlError: a value of another kind.
    """
    return json.dumps({name: _pair(plain(name, value)) for name, value in parameters.items()}).encode()


def _pair(value: Any) -> list[Any]:
    if isinstance(value, list):
        return ["list", [_pair(item) for item in value]]
    kind, write = _WRITE[type(value)]
    return [kind, write(value)]


def unpack(data: bytes) -> dict[str, Any]:
    """What :func:`pack` packed."""
    return {name: _READ[kind](value) for name, (kind, value) in json.loads(data).items()}
