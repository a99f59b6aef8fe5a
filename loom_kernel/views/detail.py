"""Everything about one node, asked for when a person opens it. Too much for every snapshot."""

from __future__ import annotations

from typing import Any

import msgspec

from loom_kernel.events import Shown
from loom_kernel.views import words
from loom_kernel.views.graph import graph
from loom_kernel.views.node import NodeView
from loom_kernel.views.readable import readable
from loom_kernel.views.run import RunView
from loom_kernel.views.snapshot import FailureShot, Wire, failure_of

LOG_LIMIT = 400
MEMBER_LIMIT = 200
SAID_LIMIT = 20_000
"""Characters of a conversation; the newest count."""

FIRST = ("failed", "waiting", "running", "retrying", "cancelled", "pending", "completed")
"""Statuses in the order in which members of a stack are listed."""


class MemberShot(Wire):
    """One node of a stack."""

    id: str
    label: str
    status: str
    note: str


class DetailShot(Wire):
    """A node, or a stack (``members``), or with an empty ``node`` the run itself (``log``: everything printed)."""

    node: str
    label: str = ""
    kind: str = ""
    status: str = ""
    where: str = ""
    facts: list[str] = []
    inputs: str = ""
    output: str = ""
    said: str = ""
    shown: list[Shown] = []
    failure: FailureShot | None = None
    log: list[str] = []
    log_left_out: int = 0
    members: list[MemberShot] = []
    members_left_out: int = 0


def detail(view: RunView, node_id: str) -> dict[str, Any]:
    """The node's details as plain JSON values; an unknown id gives an empty one."""
    shot: dict[str, Any] = msgspec.to_builtins(_detail(view, node_id))
    return shot


def _detail(view: RunView, node_id: str) -> DetailShot:
    if not node_id:
        return _run_log(view)
    if node_id.startswith("stack:"):
        return _stack(view, node_id)
    node = view.nodes.get(node_id)
    if node is None:
        expected = next((one for one in view.expected if one.node_id == node_id), None)
        if expected is not None:
            return DetailShot(
                node=node_id, label=expected.label, kind=expected.kind, status=expected.status, facts=["may come"]
            )
        return DetailShot(node=node_id)
    log = list(node.log)
    return DetailShot(
        node=node_id,
        label=node.label,
        kind=node.kind,
        status=node.status,
        where=node.where,
        facts=_facts(node),
        inputs="" if bytes(node.args) == b"null" else readable(node.args),
        output="" if node.status != "completed" else readable(node.result),
        said=_said(node),
        shown=list(node.shown),
        failure=failure_of(node.error) if node.error is not None else None,
        log=log[-LOG_LIMIT:],
        log_left_out=max(0, len(log) - LOG_LIMIT),
    )


def _said(node: NodeView) -> str:
    """A model stage's conversation as text, the newest last, with what its model is just saying."""
    parts = []
    for message in node.said:
        who = message.kind if message.role == "tool" else message.role
        calls = [
            f"→ {call['name']} {call['arguments']}" for call in msgspec.json.decode(bytes(message.tool_calls)) or ()
        ]
        text = "(not kept)" if message.withheld else message.text
        parts.append(f"{who}: " + "\n".join([*([text] if text else []), *calls]))
    if node.saying:
        parts.append(f"assistant: {node.saying}…")
    said = "\n\n".join(parts)
    return said if len(said) <= SAID_LIMIT else f"…{said[-SAID_LIMIT:]}"


def _facts(node: NodeView) -> list[str]:
    facts = []
    if node.duration_s is not None and not node.cached_from:
        facts.append(words.duration(node.duration_s))
    if node.attempts > 1:
        facts.append(f"{node.attempts} tries" if node.kind != "prompt" else f"asked {node.attempts} times")
    if node.cached_from:
        facts.append(words.cached(node))
    if node.from_journal:
        facts.append("from the journal")
    if node.answered_by:
        facts.append(f"answered by {node.answered_by}")
    if node.drift:
        facts.append("recorded, no longer asked for")
    return facts


def _stack(view: RunView, stack_id: str) -> DetailShot:
    box = next((b for b in graph(view).boxes if b.id == stack_id), None)
    if box is None:
        return DetailShot(node=stack_id)
    nodes = sorted(box.nodes, key=lambda n: FIRST.index(n.status))
    members = [
        MemberShot(id=n.node_id, label=member_label(n), status=n.status, note=member_note(n))
        for n in nodes[:MEMBER_LIMIT]
    ]
    return DetailShot(
        node=stack_id,
        label=box.label,
        kind=box.kind,
        status=box.status,
        facts=[box.count_words()],
        members=members,
        members_left_out=max(0, len(nodes) - MEMBER_LIMIT),
    )


def member_label(node: NodeView) -> str:
    args = words.loads(node.args)
    values = [words.scalar(v, 60) for v in args.values()] if isinstance(args, dict) else []
    tail = ", ".join(v for v in values if v)
    return words.short(f"{node.label} · {tail}" if tail else f"{node.label} {node.occurrence}", 80)


def member_note(node: NodeView) -> str:
    if node.error is not None:
        return words.short(f"{words.class_name(node.error)}: {node.error.message}", 80)
    return words.duration(node.duration_s) if node.duration_s is not None else node.status


def _run_log(view: RunView) -> DetailShot:
    lines: list[str] = []
    for node_id in list(view.order):
        node = view.nodes[node_id]
        lines.extend(f"{node.label}: {line}" for line in list(node.log))
    for namespace, value in list(view.reports):
        text = words.loads(value)
        line = text if isinstance(text, str) else readable(value, limit=300, pretty=False)
        lines.append(f"{namespace}: {line}" if namespace else line)
    return DetailShot(node="", label=view.workflow, log=lines[-LOG_LIMIT:], log_left_out=max(0, len(lines) - LOG_LIMIT))
