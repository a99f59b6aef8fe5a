"""Steering one node of a run."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from loom_kernel import events
from loom_kernel.errors import LoomError, RunOverError
from loom_kernel.ids import RunId
from loom_kernel.journal.abc import Append
from loom_kernel.runtime.node import NodeRef

if TYPE_CHECKING:
    from loom_kernel.runtime.core import Runtime
    from loom_kernel.runtime.run import Run


async def abort(runtime: Runtime, run: Run[Any], node: str | NodeRef, by: str) -> None:
    """Ask whoever executes the run to end that one call.

    Raises:
        KeyError: no such node, or several.
        LoomError: it cannot be aborted; the sentence says why.
    """
    found = node if isinstance(node, NodeRef) else await run._node(node)
    if not isinstance(found, NodeRef):
        raise KeyError(f"several nodes are named {node!r}; take one of them, as in {node}#1")
    if found.kind not in ("step", "tool", "inline", "stage"):
        raise LoomError(f"{found.kind} {found.name!r} cannot be aborted; only a step or a tool can")
    if found.status not in ("running", "retrying"):
        raise LoomError(f"{found.kind} {found.name!r} is {found.status}; only what is at work can be aborted")
    append = Append(events.AbortRequested(by=by), found.id, f"abort:{found.id}:{uuid.uuid4().hex}")
    try:
        await runtime.post(RunId(found._run.id), append)
    except RunOverError as over:
        raise LoomError(f"{found.kind} {found.name!r} is not at work any more: its run is {over.status}") from None
