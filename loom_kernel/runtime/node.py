"""``r["fetch"]``: one node of a run, found by name and read from the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom_kernel import codec
from loom_kernel.errors import LoomError, WouldBlock
from loom_kernel.views.node import NodeView, split_node_id
from loom_kernel.views.run import RunView

if TYPE_CHECKING:
    from loom_kernel.runtime.core import Runtime
    from loom_kernel.runtime.nodes import NodeTable
    from loom_kernel.runtime.run import Run


class NodeRef:
    """One node of a run. Its facts are those of the moment it is read.

    Attributes:
        path: how it was asked for: its name, or ``child/name``.
    """

    def __init__(self, runtime: Runtime, run: Run[Any], node: NodeView, path: str = "") -> None:
        self._runtime, self._run, self._node = runtime, run, node
        self.path = path or node.node_id

    @property
    def view(self) -> NodeView:
        """The node's read model."""
        return self._run.view.nodes.get(self._node.node_id, self._node)

    @property
    def id(self) -> str:
        """Its id within the run, which is its replay key."""
        return self._node.node_id

    @property
    def name(self) -> str:
        """Its name as the author wrote it."""
        return self._node.name

    @property
    def kind(self) -> str:
        """step, tool, inline, workflow, sleep or prompt."""
        return self._node.kind

    @property
    def status(self) -> str:
        """pending, running, waiting, retrying, completed, failed or cancelled."""
        return self.view.status

    @property
    def attempts(self) -> int:
        """Tries so far."""
        return self.view.attempts

    @property
    def duration_s(self) -> float | None:
        """Seconds of its last attempt."""
        return self.view.duration_s

    @property
    def log(self) -> list[str]:
        """The lines that it printed."""
        return list(self.view.log)

    @property
    def value(self) -> Any:
        """Its result.

        Raises:
            LoomError: it has none; the sentence says why.
            WouldBlock: on the thread that runs workflows.
        """
        if self._runtime.loop.inside:
            raise WouldBlock(f"r[{self.name!r}].value", f"r[{self.name!r}].value_async()")
        return self._runtime.loop.call(self.value_async, "value", "value_async()")

    async def value_async(self) -> Any:
        """Twin of :attr:`value`."""
        node = self.view
        if node.status != "completed":
            raise LoomError(f"{node.kind} {node.name!r} is {node.status} and has no value")
        return await self._runtime.on_loop(lambda: self._runtime.decode(node.result))

    @property
    def table(self) -> NodeTable:
        """Its row: what it was called with, how it went, what it gave. ``r[name].table`` has one for each of a name."""
        from loom_kernel.runtime.nodes import table

        return table([self])

    @property
    def error(self) -> BaseException | None:
        """The exception it failed with."""
        record = self.view.error
        if record is None:
            return None
        return codec.decode_error(record, step=self.name, namespace=self._runtime.namespace())

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}: {self.status}>"


def find_node(view: RunView, name: str, *, kind: str | None = None) -> NodeView | None:
    """The node that people call ``name``: its id, its name, or name and number (``fetch#2``) in the order they began.

    Raises:
        KeyError: several have that name and no number was given.
    """
    exact = view.nodes.get(name)
    if exact is not None:
        return exact
    base, _, number = name.partition("#")
    nodes = [view.nodes[i] for i in list(view.order)]
    named = [n for n in nodes if n.name == base and kind in (None, n.kind)]
    if number.isdigit():
        if named and all(n.kind == "prompt" for n in named):
            return next((n for n in named if split_node_id(n.node_id).occurrence == int(number)), None)
        return named[int(number) - 1] if 0 < int(number) <= len(named) else None
    if number or not named:
        return None
    if len(named) > 1 and kind is None:
        raise KeyError(f"{len(named)} nodes are named {name!r}; take one of {name}#1 ... {name}#{len(named)}")
    return named[0]
