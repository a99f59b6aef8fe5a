"""The graph for other tools: Mermaid and DOT as text, networkx as an object. No service is ever called."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from loom_kernel.views.graph import graph
from loom_kernel.views.run import RunView

if TYPE_CHECKING:
    import networkx

_MERMAID_CLASS = {
    "completed": "fill:#e8f5e9,stroke:#2e7d32,color:#1c1c1c",
    "failed": "fill:#ffebee,stroke:#c62828,color:#1c1c1c",
    "waiting": "fill:#f5f0ff,stroke:#6a3fb5,color:#1c1c1c",
    "running": "fill:#e3f2fd,stroke:#1976d2,color:#1c1c1c",
    "retrying": "fill:#e3f2fd,stroke:#1976d2,color:#1c1c1c",
}
_DOT_COLOUR = {
    "completed": "#2e7d32",
    "failed": "#c62828",
    "waiting": "#6a3fb5",
    "running": "#1976d2",
    "retrying": "#1976d2",
}


def to_mermaid(view: RunView) -> str:
    """The graph as a Mermaid flowchart, many alike folded as in the picture."""
    g = graph(view)
    lines = ["flowchart LR"]
    lines += [f'  n{i}["{_mermaid(box.label)}"]' for i, box in enumerate(g.boxes)]
    lines += [f"  n{a} --> n{b}" for a, b in g.edges]
    for status, style in _MERMAID_CLASS.items():
        if members := [f"n{i}" for i, box in enumerate(g.boxes) if box.status == status]:
            lines += [f"  classDef {status} {style}", f"  class {','.join(members)} {status}"]
    return "\n".join(lines) + "\n"


def _mermaid(label: str) -> str:
    """Mermaid knows character references by number and nothing else."""
    return "".join(c if c.isalnum() or c in " ._-×·?…" else f"#{ord(c)};" for c in label)


def to_dot(view: RunView) -> str:
    """The graph for Graphviz, many alike folded as in the picture."""
    g = graph(view)
    lines = [f"digraph {_dot(view.workflow or 'run')} {{", "  rankdir=LR;", "  node [shape=box, style=rounded];"]
    for i, box in enumerate(g.boxes):
        colour = _DOT_COLOUR.get(box.status, "#8b9097")
        lines.append(f"  n{i} [label={_dot(box.label)}, color={_dot(colour)}];")
    lines += [f"  n{a} -> n{b};" for a, b in g.edges]
    return "\n".join([*lines, "}"]) + "\n"


def _dot(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'


def to_networkx(view: RunView) -> networkx.DiGraph[Any]:
    """Every node, unfolded, as a ``networkx.DiGraph``: ids are node ids, attributes name, kind, status, duration_s, ...

    Raises:
        ImportError: networkx is not installed.
    """
    import networkx

    g: networkx.DiGraph[Any] = networkx.DiGraph(workflow=view.workflow, status=view.status)
    nodes = dict(view.nodes)
    for node_id in list(view.order):
        node = nodes[node_id]
        g.add_node(
            node_id,
            name=node.name,
            kind=node.kind,
            status=node.status,
            attempts=node.attempts,
            duration_s=node.duration_s,
            from_journal=node.from_journal,
            cached_from=node.cached_from,
            args=json.loads(bytes(node.args)),
        )
    g.add_edges_from((p, n) for n in nodes for p in nodes[n].parents if p in nodes)
    return g
