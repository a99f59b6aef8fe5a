"""From a run's view to its result, and from a result to what waiting for it returns or raises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from loom_kernel import codec
from loom_kernel.authoring.result import RunResult
from loom_kernel.errors import NeedsAnswer, RunFailed, RunStopped
from loom_kernel.events import ErrorRecord
from loom_kernel.views.run import RunView
from loom_kernel.views.run_snapshot import stage_snapshot

if TYPE_CHECKING:
    from loom_kernel.authoring.workflow import WorkflowDefinition
    from loom_kernel.runtime.core import Runtime
    from loom_kernel.runtime.run import Run


R = TypeVar("R")


def title(run: Run[Any]) -> str:
    """The run in a sentence, without anything volatile."""
    return f"the run of {run.view.workflow!r}" if run.view.workflow else "the run"


async def result_of(view: RunView, runtime: Runtime, definition: WorkflowDefinition[..., Any] | None) -> RunResult[Any]:
    """The result of a run that rests, from what is recorded."""
    value = await runtime.decode(view.result)
    if definition is not None and value is not None and not view.exited:
        value = definition.restore_output(value)
    failed = view.nodes.get(view.failed_node_id or "")
    error = (
        codec.decode_error(view.error, step=failed.name if failed else view.workflow, namespace=runtime.namespace())
        if view.error is not None
        else None
    )
    return RunResult(
        run_id=view.run_id,
        status=view.shown_status,
        result=value,
        error=error,
        exited=view.exited,
        exit_reason=view.reason if view.exited else None,
        reason=None if view.exited else view.reason,
        stages=stages(view),
        workflow=view.workflow,
    )


def with_stages(result: RunResult[R], run: Run[Any]) -> RunResult[R]:
    """The result with what its nodes were, told once somebody looks: a run of thousands is folded for nobody else."""
    return replace(result, stages=Stages(run))


class Stages(Sequence[dict[str, Any]]):
    """The nodes of a run at rest, as :func:`stages` lists them."""

    def __init__(self, run: Run[Any]) -> None:
        self._run = run
        self._known: tuple[dict[str, Any], ...] | None = None

    def _all(self) -> tuple[dict[str, Any], ...]:
        if self._known is None:
            self._known = stages(self._run.view)
        return self._known

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[dict[str, Any], ...]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | tuple[dict[str, Any], ...]:
        return self._all()[index]

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return repr(self._all())


def stages(view: RunView) -> tuple[dict[str, Any], ...]:
    """The nodes as a result lists them."""
    nodes = [view.nodes[node_id] for node_id in list(view.order)]
    return tuple(cast("dict[str, Any]", stage_snapshot(n, order)) for order, n in enumerate(nodes, 1))


def or_raise(run: Run[Any], result: RunResult[Any]) -> RunResult[Any]:
    """What waiting returns, or raises.

    Raises:
        RunFailed: failed or blocked, unless the body chose so with ``ctx.exit``.
        RunStopped: paused, or cancelled or killed from outside.
        NeedsAnswer: nobody is there to answer the open question.
    """
    if result.exited or result.status in ("completed", "skipped"):
        return result
    if result.status == "awaiting_input":
        raise NeedsAnswer(needs_answer(run), result)
    if result.status in ("failed", "blocked"):
        raise RunFailed(failure(run, result), result) from result.error
    raise RunStopped(stopped(run, result), result)


def failure(run: Run[Any], result: RunResult[Any]) -> str:
    """One sentence and the person's own lines."""
    view = run.view
    node = view.nodes.get(view.failed_node_id or "")
    where = f" in {node.kind} {node.name!r}" if node is not None else ""
    head = f"{title(run)} {'is blocked' if result.status == 'blocked' else 'failed'}{where}"
    if result.error is not None:
        text = str(result.error)
        head += f": {type(result.error).__name__}{f': {text}' if text else ''}"
    elif result.reason:
        head += f": {result.reason}"
    return "\n".join([head, *lines(view.error)])


def lines(record: ErrorRecord | None) -> list[str]:
    """The person's own lines of a recorded traceback, innermost last."""
    found = []
    for frame in record.frames if record is not None else []:
        name = f", in {frame.name}" if frame.name and frame.name != "<module>" else ""
        found.append(f"  {frame.file}, line {frame.line}{name}")
        if frame.text.strip():
            found.append(f"    {frame.text.strip()}")
    return found


def stopped(run: Run[Any], result: RunResult[Any]) -> str:
    """Why the run rests and how it goes on."""
    view = run.view
    if result.status == "paused":
        if view.message:
            return f"{title(run)} is paused: {view.message}"
        what = "was stopped" if result.reason in ("stopped", None) else f"is paused ({result.reason})"
        return f"{title(run)} {what}; `r.resume()` goes on, finished steps do not run again"
    if result.status == "interrupted":
        return f"{title(run)} was interrupted: its worker is gone; `r.resume()` goes on here"
    by = f": {result.reason}" if result.reason else ""
    return f"{title(run)} was {result.status}{by}"


def needs_answer(run: Run[Any]) -> str:
    """Which questions are open, and the line of an answers file for each."""
    from loom_kernel.human.script import line_for

    texts = []
    for member in run._family():
        for prompt in member.view.open_prompts:
            texts.append(f"{title(member)} asks {prompt.prompt!r}: {prompt.message}")
            if prompt.kind == "custom":
                texts.append("It is answered by its own widget, below the run in its notebook")
                continue
            texts.append(
                f"Nobody is here to answer. Add to the file that LOOM_ANSWERS names:\n  {line_for(prompt.opened, member.view.workflow)}"
            )
            texts.append(f"or answer in a later cell: r.answer(..., prompt={prompt.prompt!r})")
    return "\n".join(texts) or f"{title(run)} waits for an answer"
