"""Which nodes a new node comes after: those that had settled, in the branch it was called in, and nothing came after.

A branch is an asyncio task that makes durable calls of its own. It begins with what its parent's frontier was, and what
it settles reaches the parent's frontier when the parent makes its next call. So two pipelines side by side are drawn as
two lines and not as a mesh, and the same code gives the same graph however the timing falls.

Nothing here is quadratic: equal frontiers are one object, and a branch that begins below a thousand nodes holds a
reference to them, not a copy.
"""

from __future__ import annotations

from collections.abc import Sequence

from loom_kernel.engine.graph import Graph
from loom_kernel.ids import NodeId

WIDE = 16
"""Frontiers with more nodes than this are written once and referred to after that."""


class Frontier:
    """Parents that several nodes may share. Never changed."""

    __slots__ = ("_consumer", "_first", "nodes")

    def __init__(self, nodes: tuple[NodeId, ...] = ()) -> None:
        self.nodes = nodes
        self._first: NodeId | None = None
        self._consumer: Branch | None = None

    def recorded(self, node: NodeId) -> list[str]:
        """The ``parents`` field of that node's event: the ids, or ``["=" + id]`` of the node that has listed them."""
        if len(self.nodes) <= WIDE:
            return list(self.nodes)
        if self._first is None or self._first == node:
            self._first = node
            return list(self.nodes)
        return [f"={self._first}"]

    def seen(self) -> list[str]:
        """The same for what is no node, which others cannot refer to."""
        return list(self.nodes) if self._first is None else [f"={self._first}"]


_EMPTY = Frontier()


class Branch:
    """The frontier of one branch: ``base``, whole, and ``own`` nodes that settled since."""

    __slots__ = ("_base", "_dirty", "_fresh", "_gone", "_is_dirty", "_own", "_snapshot", "failures", "parent")

    def __init__(self, parent: Branch | None = None) -> None:
        self.parent = parent
        self._base: Frontier = parent.frontier() if parent is not None else _EMPTY
        self._own: dict[NodeId, None] = {}
        self._fresh: dict[NodeId, None] = {}  # own nodes that the parent has not heard of
        self._gone: list[Frontier | NodeId] = []  # consumed here, to be taken from the parent too
        self._dirty: list[Branch] = []
        self._is_dirty = False
        self._snapshot: Frontier | None = self._base
        self.failures: list[NodeId] = []
        """Failed nodes that were raised here, and that no later call has passed yet."""

    def frontier(self) -> Frontier:
        """What a node that is called here now comes after."""
        if self._dirty:
            self._absorb()
        if self._snapshot is None:
            own = tuple(self._own)
            self._snapshot = Frontier(self._base.nodes + own) if self._base.nodes else Frontier(own)
        return self._snapshot

    def settle(self, node: NodeId, parents: Frontier) -> None:
        """The node is done (or failed): it takes the place of its parents."""
        self._consume(parents)
        if node not in self._own:
            self._own[node] = None
            if self.parent is not None:
                self._fresh[node] = None
        self._snapshot = None
        self._tell()

    def failed(self, node: NodeId) -> None:
        """The node's failure was raised in this branch."""
        self.failures.append(node)
        self._tell()

    def passed(self) -> list[NodeId]:
        """The failures that a call made here now has passed; each is told once."""
        if self._dirty:
            self._absorb()
        passed, self.failures = self.failures, []
        return passed

    def _consume(self, parents: Frontier) -> None:
        if not parents.nodes:
            return
        if parents is self._base:
            self._base = _EMPTY
            if self.parent is not None:
                self._gone.append(parents)
            return
        if parents._consumer is self:
            return
        parents._consumer = self
        self._spread()
        for node in parents.nodes:
            self._drop(node)

    def _spread(self) -> None:
        """Take the base apart, since only some of it is consumed."""
        if self._base.nodes:
            self._own = {**dict.fromkeys(self._base.nodes), **self._own}
            self._base = _EMPTY

    def _drop(self, node: NodeId) -> None:
        self._own.pop(node, None)
        if self.parent is not None and self._fresh.pop(node, self) is self:
            self._gone.append(node)

    def _tell(self) -> None:
        branch = self
        while branch.parent is not None and not branch._is_dirty:
            branch._is_dirty = True
            branch.parent._dirty.append(branch)
            branch = branch.parent

    def _absorb(self) -> None:
        dirty, self._dirty = self._dirty, []
        for child in dirty:
            child._is_dirty = False
            if child._dirty:
                child._absorb()
            for gone in child._gone:
                if isinstance(gone, Frontier):
                    self._consume(gone)
                else:
                    self._spread()
                    self._drop(gone)
            for node in child._fresh:
                self._own[node] = None
                if self.parent is not None:
                    self._fresh[node] = None
            self.failures += child.failures
            child._gone, child._fresh, child.failures = [], {}, []
            self._snapshot = None


class GraphFrontierTracker:
    """The graph of a run as its body makes it. After Atomic's tracker of the same name, with branches."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.graph = Graph()
        self.root = Branch()
        self._spawned: dict[NodeId, tuple[Frontier, Branch]] = {}

    def on_spawn(self, node: NodeId, branch: Branch | None = None) -> Frontier:
        """A node was called; its parents are the branch's frontier, which stays as it is."""
        branch = branch or self.root
        frontier = branch.frontier()
        self.graph.add_trusted(node, frontier.nodes)
        self._spawned[node] = (frontier, branch)
        return frontier

    def on_settle(self, node: NodeId, seen_in: Branch | None = None) -> None:
        """A node is done; ``seen_in`` is the branch that awaited it, where that is another than it was called in."""
        spawned = self._spawned.pop(node, None)
        if spawned is None:
            return
        frontier, branch = spawned
        branch.settle(node, frontier)
        if seen_in is not None and seen_in is not branch:
            seen_in.settle(node, frontier)

    def replace_parents(self, node: NodeId, parents: Sequence[NodeId]) -> None:
        """Give a node that has not settled the parents that a record says.

        Raises:
            CycleError: they come after it.
            KeyError: it is not waiting, or a parent is unknown.
        """
        _, branch = self._spawned[node]
        frontier = Frontier(tuple(parents))
        self.graph.add_trusted(node, ())
        for parent in frontier.nodes:
            self.graph.parents(parent)
            self.graph.add_edge(parent, node)
        self._spawned[node] = (frontier, branch)

    def current_parents(self, branch: Branch | None = None) -> tuple[NodeId, ...]:
        """What the next node of the branch would come after."""
        return (branch or self.root).frontier().nodes

    def get_nodes(self) -> list[NodeId]:
        """All nodes in calling order."""
        return self.graph.nodes()

    def get_parents(self, node: NodeId) -> Sequence[NodeId]:
        """A node's parents."""
        return self.graph.parents(node)
