"""The graph of a run: nodes in calling order, edges from earlier to later, never a circle."""

from __future__ import annotations

from collections.abc import Sequence

from loom_kernel.errors import CycleError
from loom_kernel.ids import NodeId


class Graph:
    """Who comes after whom. A node's parents may be one sequence shared by many nodes; it is never copied."""

    def __init__(self) -> None:
        self._parents: dict[NodeId, Sequence[NodeId]] = {}

    def __contains__(self, node: NodeId) -> bool:
        return node in self._parents

    def __len__(self) -> int:
        return len(self._parents)

    def nodes(self) -> list[NodeId]:
        """All nodes, in the order they were added."""
        return list(self._parents)

    def parents(self, node: NodeId) -> Sequence[NodeId]:
        """Raises: KeyError when there is no such node."""
        return self._parents[node]

    def add(self, node: NodeId, parents: Sequence[NodeId] = ()) -> None:
        """Add a node below nodes that are there already, which cannot make a circle.

        Raises:
            ValueError: the node is there already.
            KeyError: a parent is not there.
            CycleError: it names itself.
        """
        if node in self._parents:
            raise ValueError(f"node {node!r} is in the graph already")
        for parent in parents:
            if parent not in self._parents:
                if parent == node:
                    raise CycleError(parent, node)
                raise KeyError(parent)
        self._parents[node] = parents

    def add_trusted(self, node: NodeId, parents: Sequence[NodeId]) -> None:
        """:meth:`add` for parents that are known to be in the graph, so that a wide fan-out costs no look at each."""
        self._parents[node] = parents

    def add_edge(self, parent: NodeId, child: NodeId) -> None:
        """Add an edge between nodes that are there.

        Raises:
            CycleError: it would close a circle.
        """
        if parent == child or self.reaches(child, parent):
            raise CycleError(parent, child)
        if parent not in self._parents[child]:
            self._parents[child] = (*self._parents[child], parent)

    def reaches(self, start: NodeId, end: NodeId) -> bool:
        """Whether ``end`` comes after ``start``, over any number of edges."""
        todo, seen = [end], {end}
        while todo:
            for parent in self._parents[todo.pop()]:
                if parent == start:
                    return True
                if parent not in seen:
                    seen.add(parent)
                    todo.append(parent)
        return False

    def order(self) -> list[NodeId]:
        """Parents before children.

        Raises:
            CycleError: somebody put a circle in behind our back.
        """
        waiting = {node: len(set(parents)) for node, parents in self._parents.items()}
        children: dict[NodeId, list[NodeId]] = {node: [] for node in self._parents}
        for node, parents in self._parents.items():
            for parent in set(parents):
                children[parent].append(node)
        ready = [node for node, count in waiting.items() if not count]
        out: list[NodeId] = []
        while ready:
            node = ready.pop()
            out.append(node)
            for child in children[node]:
                waiting[child] -= 1
                if not waiting[child]:
                    ready.append(child)
        if len(out) != len(self._parents):
            stuck = next(node for node, count in waiting.items() if count)
            raise CycleError(self._parents[stuck][0], stuck)
        return out
