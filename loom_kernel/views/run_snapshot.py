"""A run as the store gives it: plain JSON values under the reference's names, in Python's spelling.

Times are seconds since the epoch, durations seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Required, TypedDict, cast

from msgspec import Raw

from loom_kernel.views import words
from loom_kernel.views.node import NodeView
from loom_kernel.views.run import RunView

TOOL_KINDS = frozenset({"step", "tool", "inline"})
"""Kinds of nodes that are code which runs; the others are stages: models, children, questions, sleeps."""

NODES = 2_000
"""Nodes of one run in a bounded snapshot; those that began last stay."""

NAME, TEXT = 120, 400
"""Characters of names and of sentences in a bounded snapshot."""


class ToolEvent(TypedDict, total=False):
    """A tool that a model stage used. ``id`` is the call's; ``ended_at`` is None while it works."""

    id: str
    name: Required[str]
    started_at: float | None
    ended_at: float | None
    output: str


class StageSnapshot(TypedDict, total=False):
    """One node of a run. ``kind``: stage, workflow, prompt, sleep; of ``tool_nodes`` step, tool or inline."""

    id: Required[str]
    name: Required[str]
    kind: str
    status: str
    parent_ids: list[str]
    execution_order: int
    started_at: float | None
    ended_at: float | None
    duration_s: float | None
    attempts: int
    from_journal: bool
    child_run_id: str | None
    result: Any
    error: str | None
    tool_events: list[ToolEvent]


class RunSnapshot(TypedDict, total=False):
    """One run.

    ``stages`` are its models, children, questions and sleeps, ``tool_nodes`` its steps and tools. ``failed_stage_id`` or
    ``failed_tool_node_id`` is what it failed at. ``blocked_at`` is there while it waits for a provider and can go on.
    """

    id: Required[str]
    name: Required[str]
    status: Required[str]
    tool_nodes: Required[list[StageSnapshot]]
    stages: list[StageSnapshot]
    inputs: Any
    result: Any
    error: str | None
    reason: str | None
    exited: bool
    exit_reason: str | None
    resumable: bool
    created_at: float | None
    started_at: float | None
    ended_at: float | None
    duration_s: float | None
    paused_at: float | None
    blocked_at: float | None
    tokens: int
    cost_usd: float
    failed_stage_id: str | None
    failed_tool_node_id: str | None
    parent_run_id: str | None
    parent_stage_id: str | None
    root_run_id: str | None
    resumed_from_run_id: str | None
    left_out: int


def run_snapshot(view: RunView, tool_events: Mapping[str, list[ToolEvent]] | None = None) -> RunSnapshot:
    """The run now. Any thread may ask.

    Args:
        tool_events: what models' tools did, by node.
    """
    nodes = [view.nodes[node_id] for node_id in list(view.order)]
    events = tool_events or {}
    shots = [stage_snapshot(node, order, events.get(node.node_id, ())) for order, node in enumerate(nodes, 1)]
    failed = view.nodes.get(view.failed_node_id or "")
    failed_tool = failed is not None and failed.kind in TOOL_KINDS
    resting = view.last_at if view.at_rest else None
    return {
        "id": view.run_id,
        "name": view.workflow,
        "status": view.shown_status,
        "inputs": words.loads(view.inputs),
        "result": words.loads(view.result),
        "error": view.error.message if view.error is not None else None,
        "reason": None if view.exited else view.reason,
        "exited": view.exited,
        "exit_reason": view.reason if view.exited else None,
        "resumable": view.resumable or (view.at_rest and not view.ended),
        "created_at": view.created_at,
        "started_at": view.started_at,
        "ended_at": view.ended_at,
        "duration_s": view.active_s,
        "paused_at": resting if view.status == "paused" else None,
        "blocked_at": view.ended_at if waits_for_provider(view.status, view.reason, view.resumable) else None,
        "tokens": view.tokens,
        "cost_usd": view.cost_usd,
        "failed_stage_id": failed.node_id if failed is not None and not failed_tool else None,
        "failed_tool_node_id": failed.node_id if failed is not None and failed_tool else None,
        "parent_run_id": view.parent_run_id,
        "parent_stage_id": view.parent_node_id,
        "root_run_id": view.root_run_id,
        "resumed_from_run_id": view.forked_from,
        "stages": [shot for shot in shots if shot["kind"] not in TOOL_KINDS],
        "tool_nodes": [shot for shot in shots if shot["kind"] in TOOL_KINDS],
    }


def stage_snapshot(node: NodeView, order: int, events: Sequence[ToolEvent] = ()) -> StageSnapshot:
    """One node now; ``order`` says as which it began, from 1."""
    asks = node.kind == "prompt" and node.status == "waiting"
    return {
        "id": node.node_id,
        "name": node.name,
        "kind": node.kind,
        "status": "awaiting_input" if asks else node.status,
        "parent_ids": list(node.parents),
        "execution_order": order,
        "started_at": node.first_at,
        "ended_at": node.ended_at,
        "duration_s": node.duration_s,
        "attempts": node.attempts,
        "from_journal": node.from_journal,
        "child_run_id": node.child_run_id,
        "result": words.loads(node.result or Raw(b"null")),
        "error": node.error.message if node.error is not None else None,
        "tool_events": list(events),
    }


def waits_for_provider(status: str, reason: str | None, resumable: bool) -> bool:
    """Whether a run is blocked by a model's provider and can go on: blocked, and not finished."""
    return status == "blocked" and resumable and reason in ("auth", "rate_limit", "provider")


_LARGE = ("inputs", "result", "tool_events")


def bounded(run: RunSnapshot) -> RunSnapshot:
    """The run for drawing: its nodes without values, at most :data:`NODES`, with short texts. ``left_out`` counts the rest."""
    kept: dict[str, Any] = {name: value for name, value in run.items() if name not in _LARGE}
    total = 0
    for group in ("stages", "tool_nodes"):
        nodes = cast("list[StageSnapshot]", run.get(group, []))
        total += len(nodes)
        kept[group] = [_short(node) for node in nodes[-NODES:]]
    over = sorted((*kept["stages"], *kept["tool_nodes"]), key=lambda node: node.get("execution_order", 0))[:-NODES]
    if over:
        gone = {node["id"] for node in over}
        for group in ("stages", "tool_nodes"):
            kept[group] = [node for node in kept[group] if node["id"] not in gone]
    kept["left_out"] = total - len(kept["stages"]) - len(kept["tool_nodes"])
    return cast(RunSnapshot, _short(kept))


def _short(shot: Any) -> dict[str, Any]:
    made = {name: value for name, value in shot.items() if name not in _LARGE}
    for name, most in (("name", NAME), ("error", TEXT), ("reason", TEXT), ("exit_reason", TEXT)):
        text = made.get(name)
        if isinstance(text, str):
            made[name] = words.short(text, most)
    return made
