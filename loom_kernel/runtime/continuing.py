"""``run(..., continuation=...)``: another run that goes on where one failed or was blocked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from loom_kernel.authoring.registry import workflow_names_equal
from loom_kernel.errors import InsufficientStateError, ResumeError
from loom_kernel.runtime import outcome
from loom_kernel.runtime.core import encode_inputs
from loom_kernel.runtime.forking import Fork, fork
from loom_kernel.runtime.options import Continuation, RunOptions

if TYPE_CHECKING:
    from loom_kernel.authoring.launcher import Options
    from loom_kernel.authoring.workflow import WorkflowDefinition
    from loom_kernel.runtime.core import Runtime
    from loom_kernel.runtime.host import Place
    from loom_kernel.runtime.run import Run


async def go_on(
    runtime: Runtime,
    definition: WorkflowDefinition[..., Any],
    inputs: dict[str, Any],
    options: Options,
    place: Place,
    more: RunOptions,
) -> Run[Any]:
    """Make the new run and begin it. The source stays as it is. On the loop thread.

    Raises:
        ResumeError: the source is of another workflow, or neither failed nor blocked.
        InsufficientStateError: nothing says from where to go on.
    """
    wanted = more.continuation
    assert isinstance(wanted, Continuation)
    source: Run[Any] = runtime.run_object((await runtime._find(wanted.source_id)).run_id)
    await source._load()
    view = source.view
    if not workflow_names_equal(view.workflow, definition.name):
        raise ResumeError(f"{outcome.title(source)} cannot be continued as {definition.name!r}")
    if view.status not in ("failed", "blocked"):
        raise ResumeError(
            f"{outcome.title(source)} is {view.shown_status}; only one that failed or is blocked is continued as another run"
        )
    at = wanted.resume_from or await _failed_at(runtime, source)
    if at is None and view.nodes:
        raise InsufficientStateError(
            f"{outcome.title(source)} does not say at what it {view.status}; say from where to go on: "
            f"Continuation(source=..., resume_from=...), one of {', '.join(dict.fromkeys(n.name for n in view.nodes.values()))}"
        )
    secret = definition.secret_inputs
    stored = msgspec.json.decode(view.inputs)
    given = {name: value for name, value in inputs.items() if name not in secret}
    recorded = msgspec.json.decode(encode_inputs(given)[0])
    changed = {name: value for name, value in given.items() if name not in stored or stored[name] != recorded[name]}
    secrets = {name: value for name, value in inputs.items() if name in secret}
    tags = options.tags or None
    forked = Fork(at, changed or None, None, secrets or None, tags, fresh=True)
    return await fork(runtime, source, place, forked, definition=definition, options=options, more=more)


async def _failed_at(runtime: Runtime, run: Run[Any]) -> str | None:
    """The path of what it failed at, into its children: what a child had done is not done again."""
    node = run.view.nodes.get(run.view.failed_node_id or "")
    if node is None:
        return None
    if node.kind == "workflow" and node.child_run_id is not None and "/" not in node.node_id:
        child = runtime.run_object(node.child_run_id)
        await child._load()
        inner = await _failed_at(runtime, child) if run.view.owns(node, child.view) else None
        if inner is not None:
            return f"{node.node_id}/{inner}"
    return node.node_id
