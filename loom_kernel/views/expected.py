"""Boxes for what may come: names that the branches of a ``ctx.parallel`` may have, drawn until the real ones are there."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from loom_kernel.views.node import NodeView

KIND = "expected"
"""The kind of such a box; no durable call has it."""


class Expected:
    """The names that one set of branches was announced with.

    Args:
        index: which set of the run it is.
        names: names, or globs of names.
        parents: node ids that its branches come after.
    """

    def __init__(self, index: int, names: Iterable[str], parents: tuple[str, ...]) -> None:
        self.index, self.parents = index, parents
        self._left = list(dict.fromkeys(names))
        self._below: set[str] = set()

    def came(self, node: NodeView) -> None:
        """A node is there: where it belongs to these branches, no more is expected under its name.

        It belongs to them where it comes after their parents: in a loop, equal names are those of an earlier turn.
        """
        above = node.parents
        if above == self.parents or any(p in self._below or p in self.parents for p in above):
            self._below.add(node.node_id)
            self._left = [name for name in self._left if not fnmatchcase(node.name, name)]

    @property
    def nodes(self) -> list[NodeView]:
        """What is still expected, as nodes that are to do."""
        return [NodeView(f"{KIND}:{self.index}:{name}", name, KIND, parents=self.parents) for name in self._left]
