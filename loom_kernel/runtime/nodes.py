"""Several nodes of one name: ``r["fetch"]`` after a ``ctx.map``, and its table."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from loom_kernel.errors import LoomError
from loom_kernel.views import words
from loom_kernel.views.readable import readable

if TYPE_CHECKING:
    from loom_kernel.runtime.node import NodeRef

SHOWN = 50
"""Rows that a table shows of itself; all are in it."""

CELL = 60


class NodeGroup(Sequence["NodeRef"]):
    """Nodes of one name, in the order they began. ``group[0]`` is one of them, ``.table`` has a row for each."""

    def __init__(self, name: str, nodes: Sequence[NodeRef]) -> None:
        self.name, self._nodes = name, list(nodes)

    @overload
    def __getitem__(self, index: int) -> NodeRef: ...
    @overload
    def __getitem__(self, index: slice) -> list[NodeRef]: ...
    def __getitem__(self, index: int | slice) -> NodeRef | list[NodeRef]:
        return self._nodes[index]

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[NodeRef]:
        return iter(self._nodes)

    @property
    def status(self) -> str:
        """One word for all: what needs attention wins."""
        found = {node.status for node in self._nodes}
        order = ("failed", "waiting", "running", "retrying", "pending", "cancelled", "completed")
        return next(status for status in order if status in found)

    @property
    def values(self) -> list[Any]:
        """Their results, in order.

        Raises:
            LoomError: one of them has none.
        """
        return [node.value for node in self._nodes]

    @property
    def table(self) -> NodeTable:
        """One row a node: what it was called with, how it went, what it gave."""
        return table(self._nodes)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in ("value", "id", "error", "log", "attempts", "duration_s", "kind", "path"):
            raise LoomError(
                f"{len(self)} nodes are named {self.name!r}; take one of {self.name}#1 ... {self.name}#{len(self)}, "
                f"or r[{self.name!r}].table for all of them"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        done = sum(node.status == "completed" for node in self._nodes)
        return f"<{len(self)} nodes named {self.name}: {done} completed>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        made = self.table
        return {"text/plain": repr(made), "text/html": made._repr_html_()}


class NodeTable:
    """Rows with names. Shows itself as a table; ``.df()`` makes a pandas frame of it.

    Attributes:
        columns: names; arguments come first after the node.
        rows: one tuple a node: texts, numbers and None.
    """

    def __init__(self, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        self.columns, self.rows = list(columns), list(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter([dict(zip(self.columns, row, strict=True)) for row in self.rows])

    def df(self) -> Any:
        """As a ``pandas.DataFrame``."""
        import pandas as pd

        return pd.DataFrame(self.rows, columns=self.columns)

    def __repr__(self) -> str:
        cells = [[_cell(value) for value in row] for row in self.rows[:SHOWN]]
        widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(self.columns)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (self.columns, *cells)
        ]
        return "\n".join([*lines, *self._more()])

    def _repr_html_(self) -> str:
        style = "text-align:left;font-variant-numeric:tabular-nums"
        head = "".join(f'<th style="{style}">{html.escape(name)}</th>' for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f'<td style="{style}">{html.escape(_cell(value))}</td>' for value in row) + "</tr>"
            for row in self.rows[:SHOWN]
        )
        more = "".join(f'<div style="color:#777777">{html.escape(line)}</div>' for line in self._more())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"

    def _more(self) -> list[str]:
        left = len(self.rows) - SHOWN
        return [f"and {left:,} more row{'s' if left > 1 else ''}"] if left > 0 else []


def table(nodes: Sequence[NodeRef]) -> NodeTable:
    """The table of these nodes."""
    views = [node.view for node in nodes]
    arguments = [words.loads(view.args) for view in views]
    names = list(dict.fromkeys(name for given in arguments if isinstance(given, dict) for name in given))
    taken = {"node", "status", "tries", "time_s", "result", "error"}
    columns = ["node", *(f"{name}_" if name in taken else name for name in names)]
    columns += ["status", "tries", "time_s", "result", "error"]
    rows = []
    for number, (view, given) in enumerate(zip(views, arguments, strict=True), 1):
        known = given if isinstance(given, dict) else {}
        result = readable(view.result, limit=200, pretty=False) if view.status == "completed" else None
        error = f"{words.class_name(view.error)}: {view.error.message}" if view.error is not None else None
        rows.append(
            (
                f"{view.name}#{number}" if len(views) > 1 else view.name,
                *(_argument(known.get(name)) for name in names),
                view.status,
                view.attempts,
                view.duration_s,
                result,
                error,
            )
        )
    return NodeTable(columns, rows)


def _argument(value: Any) -> Any:
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    import msgspec

    return readable(msgspec.json.encode(value), limit=200, pretty=False)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3g}"
    return words.short(str(value), CELL)
