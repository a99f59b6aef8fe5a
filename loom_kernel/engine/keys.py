"""What a durable call is called: ``kind:name:identity#occurrence``, computed when it is called.

The key is the node id. It depends on what identifies the call and on how many equal calls came before it, never on
where in the body it stands, so that a step inserted above shifts nobody's key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from loom_kernel import codec
from loom_kernel.authoring.step import StepDefinition
from loom_kernel.errors import UnhashableArgumentError, UnhashableValue
from loom_kernel.ids import NodeId

IDENTITY = 16
"""Hex characters of an identity."""

_RUN_ID_ALPHABET = "abcdefghjkmnpqrstvwxyz23456789"
_FIXED = frozenset({str, int, float, bool, bytes, type(None), complex})
"""Types whose values never change, so that they need no second look after a step."""


class Occurrences:
    """Counts equal calls of one execution of a body."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def key(self, kind: str, name: str, identity: str = "") -> NodeId:
        """The key of the next such call."""
        same = f"{kind}:{name}:{identity}"
        n = self._seen[same] = self._seen.get(same, 0) + 1
        return NodeId(f"{same}#{n}")

    def count(self, key: str) -> int:
        """How many calls there were that are equal to that key's."""
        return self._seen.get(key.rpartition("#")[0], 0)


def occurrence(node_id: str) -> int:
    """Which of the equal calls it is, from 1."""
    return int(node_id.rpartition("#")[2])


@dataclass(slots=True)
class Identity:
    """What identifies a call. ``mutable`` holds the hash of each argument that a step could change in place."""

    text: str
    mutable: list[tuple[str, Any, str]] = field(default_factory=list)

    def changed(self) -> str | None:
        """The first argument whose content is another one now, or None."""
        for name, value, before in self.mutable:
            try:
                if codec.content_hash(value) != before:
                    return name
            except UnhashableValue:
                return name
        return None


def identify(
    name: str, arguments: Mapping[str, Any], *, ignore: Collection[str] = (), aliases: Mapping[str, str] | None = None
) -> Identity:
    """The identity of a call from its arguments.

    Args:
        name: the step, for the error.
        arguments: parameter names to values, defaults included.
        ignore: parameters that do not count.
        aliases: content hashes of values that came from a step, to the hash that was recorded for it. They differ
            where a kind of table does not come back from the journal bit by bit.

    Raises:
        UnhashableArgumentError: names the parameter.
    """
    digest = hashlib.blake2b(digest_size=IDENTITY // 2)
    mutable: list[tuple[str, Any, str]] = []
    for parameter, value in arguments.items():
        if parameter in ignore:
            continue
        try:
            content = codec.content_hash(value, path=parameter)
        except UnhashableValue as refused:
            raise UnhashableArgumentError(name, parameter, refused.kind) from None
        if type(value) not in _FIXED:
            mutable.append((parameter, value, content))
        if aliases:
            content = aliases.get(content, content)
        digest.update(f"{parameter}={content};".encode())
    return Identity(digest.hexdigest(), mutable)


def identify_step(
    definition: StepDefinition[..., Any],
    arguments: Mapping[str, Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    aliases: Mapping[str, str] | None = None,
) -> Identity:
    """The identity of a ``@step`` call: its arguments, or what its ``key=`` function makes of them.

    Raises:
        UnhashableArgumentError: an argument, or what ``key`` returned, has no content.
    """
    if definition.key is None:
        identity = identify(definition.name, arguments, ignore=definition.ignore, aliases=aliases)
        if definition.mutates:
            identity.mutable.clear()
        return identity
    return Identity(identify(definition.name, {"key": definition.key(*args, **kwargs)}, aliases=aliases).text)


def identify_content(*parts: str) -> str:
    """An identity from texts."""
    digest = hashlib.blake2b(digest_size=IDENTITY // 2)
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()


def child_run_id(parent_run_id: str, node_id: str, nth: int = 0) -> str:
    """The id of the run behind a child workflow's node: the same whenever the parent comes to that node.

    ``nth`` counts the runs that were given up there: a cancelled run cannot be resumed, so the next one is another.
    """
    number = int.from_bytes(
        hashlib.blake2b(f"{parent_run_id}\n{node_id}\n{nth}".encode(), digest_size=16).digest(), "big"
    )
    letters = []
    for _ in range(12):
        number, letter = divmod(number, len(_RUN_ID_ALPHABET))
        letters.append(_RUN_ID_ALPHABET[letter])
    return "".join(letters)
