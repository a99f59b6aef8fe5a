"""Looking for steps in a run: by name, argument, status or error. Done here, since a browser has no members of stacks."""

from __future__ import annotations

from typing import Any

import msgspec

from loom_kernel.views.detail import FIRST, MemberShot, member_label, member_note
from loom_kernel.views.expected import KIND as EXPECTED
from loom_kernel.views.graph import graph
from loom_kernel.views.node import NodeView
from loom_kernel.views.run import RunView
from loom_kernel.views.snapshot import Wire

LIMIT = 200


class FoundShot(Wire):
    """What a search gave: the boxes that hold something found, and the nodes, those that need attention first."""

    text: str
    boxes: list[str]
    nodes: list[MemberShot]
    left_out: int = 0


def find(view: RunView, text: str) -> dict[str, Any]:
    """The nodes in which every word of ``text`` stands, as plain JSON values. Without a word nothing is found.

    A word is looked for, whatever its case, in a node's name, status, arguments and error.
    """
    words = text.casefold().split()
    nodes: list[NodeView] = []
    boxes: list[str] = []
    if words:
        for box in graph(view).boxes:
            if box.kind == EXPECTED:
                continue
            label = box.label.casefold()
            held = [n for n in box.nodes if _holds(n, words, label if not box.stack else "")]
            if held:
                boxes.append(box.id)
                nodes += held
    nodes.sort(key=lambda n: FIRST.index(n.status))
    shown = [
        MemberShot(id=n.node_id, label=member_label(n), status=n.status, note=member_note(n)) for n in nodes[:LIMIT]
    ]
    made: dict[str, Any] = msgspec.to_builtins(
        FoundShot(text=text, boxes=boxes, nodes=shown, left_out=max(0, len(nodes) - LIMIT))
    )
    return made


def _holds(node: NodeView, words: list[str], label: str) -> bool:
    said = f"{label} {node.label} {node.kind} {node.status}".casefold()
    missing = [word for word in words if word not in said]
    if not missing:
        return True
    more = bytes(node.args).decode(errors="replace").casefold()
    if node.error is not None:
        more += f" {node.error.type} {node.error.message}".casefold()
    return all(word in more for word in missing)
