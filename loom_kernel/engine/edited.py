"""Code that is another one than the record was made with: which records it puts in question before a body runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loom_kernel import events as ev
from loom_kernel.authoring.code import family_version, uses
from loom_kernel.authoring.workflow import WorkflowDefinition
from loom_kernel.engine.replay import History, Record, had_effect, replayable

_KINDS = ("step", "tool", "inline", "workflow")


def gone(definition: WorkflowDefinition[..., Any], history: History) -> tuple[Record, ...]:
    """Recorded effects that the code can not come to any more: a step that was removed, renamed or swapped for another.

    Only where the body is another one than the one that was last executed; empty where it cannot be told.
    """
    if not history.executions or not history.version or history.version == definition.version:
        return ()
    records = [
        record
        for record in history.records.values()
        if record.kind in _KINDS and had_effect(record) and record.node_id not in history.accepted
    ]
    if not records:
        return ()
    found = uses(definition.fn)
    return tuple(record for record in records if not found.can_call(record.kind, record.name))


def upgraded(history: History, fn: Callable[..., Any]) -> str:
    """The version of the body and what it calls, where it is another one than the last execution's; else empty.

    Only a resume asks; histories that do not say their version are left alone.
    """
    if not history.executions or not history.family_version:
        return ""
    now = family_version(fn)
    return now if now != history.family_version else ""


def edited_child(definition: WorkflowDefinition[..., Any], history: History) -> ev.RunEdited | None:
    """The same decision for a child that had begun, since its parent goes on with edited code: its edited steps run
    again, and what they are not asked for is no mismatch."""
    steps = uses(definition.fn).steps
    again = [
        record.node_id
        for record in history.records.values()
        if record.kind == "step"
        and replayable(record)
        and record.name in steps
        and record.code
        and record.code != steps[record.name].code
    ]
    if not again:
        return None
    return ev.RunEdited(again=again, aside=list(history.records), version=definition.version)
