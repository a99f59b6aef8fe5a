"""A run in short, as the reference's ``WorkflowDetails``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom_kernel.authoring.agents import TaskResult, WorkflowControlEvent, WorkflowDetails, WorkflowIntercomSummary

if TYPE_CHECKING:
    from loom_kernel.runtime.run import Run


async def details(run: Run[Any]) -> WorkflowDetails:
    """What is known of the run now."""
    view = run.view
    results: list[TaskResult] = []
    for node in [view.nodes[node_id] for node_id in list(view.order)]:
        if node.kind == "stage" and node.status == "completed":
            value = await run._runtime.decode(node.result)
            if isinstance(value, TaskResult):
                results.append(value)
    counts = view.counts
    events = [WorkflowControlEvent(type="needs_attention", message=p.message) for p in view.family_prompts]
    if view.shown_status == "interrupted":
        events.append(WorkflowControlEvent(type="interrupted", message="nobody executes it; resume it"))
    elif view.executions > 1 and not view.at_rest:
        events.append(WorkflowControlEvent(type="resumed"))
    events += [
        WorkflowControlEvent(type="notify", message=f"{w.dimension}: {w.reading:g} of {w.ceiling:g} are spent")
        for w in view.budget_warnings
    ]
    warnings = [w for result in results for w in result.warnings]
    output = await run._runtime.decode(view.result) if view.ended else None
    return WorkflowDetails(
        mode="named",
        action="status",
        run_id=run.id,
        status="accepted" if view.status == "pending" else view.shown_status,
        results=tuple(results),
        output=output,
        progress={"completed": counts.done, "total": counts.total},
        artifacts=tuple(a for result in results for a in result.artifacts),
        control_events=tuple(events),
        intercom=WorkflowIntercomSummary() if results else None,
        warnings=tuple(dict.fromkeys(warnings)),
        message=view.message or None,
        error=view.error.message if view.error is not None else None,
        exited=view.exited,
        exit_reason=view.reason if view.exited else None,
    )
