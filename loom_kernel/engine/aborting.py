"""A targeted abort: one call at work ends, its siblings go on. It is not data: on resume it runs again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_kernel.errors import NodeAborted

if TYPE_CHECKING:
    from loom_kernel.engine.execution import Execution

KINDS = ("step", "tool", "inline", "stage")
"""Of calls that can be aborted: those that are work of their own."""


def abort(x: Execution, node_id: str, by: str) -> bool:
    """End the call, unless its result or failure is being written already: then the write wins. Returns whether it ends."""
    task = x.live.get(node_id)
    call = next((call for call in reversed(x.calls) if call.node_id == node_id), None)
    if task is None or call is None or call.kind not in KINDS or call.status not in ("running", "retrying"):
        return False
    if x.ending is not None or node_id in x.aborted:
        return False
    x.aborted[node_id] = NodeAborted(call.name, by)
    task.cancel("aborted")
    return True
