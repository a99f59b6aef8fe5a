"""The vocabulary of stored values: what a value becomes, and what needs no change at all."""

from __future__ import annotations

import decimal
import fractions
import ipaddress
import math
import pathlib
import uuid
from typing import Any, NamedTuple

from loom_kernel.errors import LoomError

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
    """A value ready to be written: JSON of at most 64 KiB (about), and the blobs that it names.

    ``stands_in`` says that what comes back is not what went in: a picture stands for a figure.
    """

    json: bytes
    blobs: tuple[Blob, ...] = ()
    stands_in: bool = False


class SecretDigest(NamedTuple):
    """What is left of a secret value when it is read back: the sha256 of its text."""

    sha256: str

    def get_secret_value(self) -> str:
        """Raises: LoomError, always, with what to do."""
        raise LoomError(
            "the journal keeps only a digest of this secret; take secrets as a workflow's inputs, which are asked for again on resume"
        )


class Unkept:
    """Stands for a part of an exception that could not be kept; using it as the thing it was says so."""

    __slots__ = ("_kind", "_text")

    def __init__(self, kind: str, text: str) -> None:
        self._kind, self._text = kind, text

    def __repr__(self) -> str:
        return f"<{self._kind} that was not kept>"

    def __str__(self) -> str:
        return self._text or repr(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unkept) and (self._kind, self._text) == (other._kind, other._text)

    def __hash__(self) -> int:
        return hash((self._kind, self._text))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"this {self._kind} belonged to the exception when it was raised; the journal could not keep it"
        )


# ---------------------------------------------------------------- the fast path: plain JSON

ATOMS = frozenset({str, int, bool, type(None)})


def is_plain(value: Any) -> bool:
    """Whether ``value`` is JSON already, of exact types: nothing to tag, nothing to refuse."""
    cls = type(value)
    if cls in ATOMS:
        return True
    if cls is float:
        return math.isfinite(value)
    if cls is dict:
        for key, item in value.items():
            if type(key) is not str or key == TAG:
                return False
            if type(item) not in ATOMS and not is_plain(item):
                return False
        return True
    if cls is list:
        kinds = set(map(type, value))
        if kinds <= ATOMS:
            return True
        if kinds == {float}:
            return all(map(math.isfinite, value))
        for item in value:  # noqa: SIM110 - a generator would double the cost
            if type(item) not in ATOMS and not is_plain(item):
                return False
        return True
    return False


# ---------------------------------------------------------------- kept as their text

BY_TEXT: dict[type, str] = {
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
"""Types that are kept as their text, with their tags."""

FACTORIES = {cls.__name__: cls for cls in (list, dict, set, tuple, str, int, float, bool)}
"""Defaults that a ``defaultdict`` may have."""
