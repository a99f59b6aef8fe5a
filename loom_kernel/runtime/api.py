"""The public functions over the runtime of this process; ``loom_kernel`` re-exports them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from loom_kernel.authoring.launcher import get_launcher
from loom_kernel.errors import DefinitionError
from loom_kernel.runtime import Run, RunList, Runtime, get_runtime

if TYPE_CHECKING:
    from loom_kernel.authoring.registry import Registry
    from loom_kernel.authoring.workflow import WorkflowDefinition
    from loom_kernel.policies import Budget, ExecutionMode, RuntimeConfig
    from loom_kernel.runtime.callbacks import OnRunEnd, OnRunStart, OnStage
    from loom_kernel.runtime.cancellation import CancellationRegistry
    from loom_kernel.runtime.options import Continuation, ParentRun
    from loom_kernel.views.store import Store


def configure(
    *,
    home: str | os.PathLike[str] | None = None,
    journal: str | None = None,
    answers: str | os.PathLike[str] | None = None,
    resume: bool | None = None,
    test: bool | None = None,
    model: str | None = None,
    fallback_models: Sequence[str] | None = None,
    roles: Mapping[str, str] | None = None,
    **settings: Any,
) -> None:
    """Set things from code; this wins over the environment and ``loom.toml``.

    Args:
        home: the ``.loom`` folder.
        journal: ``"duckdb"``, ``"memory"``, a file or a URL.
        answers: a YAML file with the answers to questions.
        resume: let scripts and headless notebooks continue unfinished runs.
        test: a fresh journal, seeded ids, a virtual clock.
        model: the model that stages use: a litellm name, ``local/...``, ``scripted/...``, each with ``:level``.
        fallback_models: the models behind it, in order.
        roles: names that stand for models, ``{"reasoning": ..., "coding": ..., "review": ...}``.
        settings: any other setting by its name in ``loom.toml``.

    Raises:
        SettingsError: a value of the wrong kind, or the journal is open already.
    """
    values = {
        "home": home, "journal": journal, "answers": answers, "resume": resume, "test": test, "model": model,
        "fallback_models": fallback_models, "roles": roles, **settings,
    }  # fmt: skip
    get_runtime().configure(**{name: value for name, value in values.items() if value is not None})


def runs(
    status: str | Iterable[str] | None = None,
    workflow: str | None = None,
    key: str | None = None,
    tag: str | None = None,
    notebook: str | None = None,
    limit: int | None = 20,
) -> RunList:
    """The newest runs of this project, whichever process they belong to.

    Args:
        status: only those; ``"interrupted"`` is one too.
        workflow: only runs of that workflow.
        key: only runs started with that key.
        tag: only runs with that label.
        notebook: only runs started in that notebook.
        limit: at most so many; None for all.

    Raises:
        StorageUnavailableError: the journal cannot be read.
    """
    return get_runtime().runs(status=status, workflow=workflow, key=key, tag=tag, notebook=notebook, limit=limit)


def get_run(id: str) -> Run[Any]:
    """A run by its id, or by the beginning of it.

    Raises:
        UnknownRunError: none, or several.
    """
    return get_runtime().get_run(id)


def resume(
    id: str,
    *,
    accept: bool = False,
    take: bool = False,
    secrets: Mapping[str, Any] | None = None,
    edited: bool = False,
    recorded: bool = False,
    budget: Budget | None = None,
) -> Run[Any]:
    """Go on with a run here, from what is recorded.

    Args:
        id: its id, or the beginning of it.
        accept: run what does not match the recorded history as new work.
        take: take it from the worker that has it, although that worker lives.
        secrets: values of its secret inputs, which are not stored.
        edited: steps whose code was edited run again, and what depends on them; see :meth:`Run.resume`.
        recorded: with the body as it was recorded, instead of the one that is defined now.
        budget: limits from here on; fields that it leaves out stay.

    Raises:
        UnknownRunError, UnknownWorkflowError, InputError, ResumeError: the sentence says what is missing.
    """
    return get_runtime().resume(
        id, accept=accept, take=take, secrets=secrets, edited=edited, recorded=recorded, budget=budget
    )


def run(
    definition: WorkflowDefinition[..., Any] | str,
    inputs: Mapping[str, Any] | None = None,
    *,
    on_run_start: OnRunStart | None = None,
    on_stage_start: OnStage | None = None,
    on_stage_end: OnStage | None = None,
    on_run_end: OnRunEnd | None = None,
    cwd: str | os.PathLike[str] | None = None,
    ui: Any = None,
    execution_mode: ExecutionMode | None = None,
    signal: Any = None,
    cancellation: CancellationRegistry | None = None,
    defer_workflow_start: bool = False,
    config: RuntimeConfig | Mapping[str, Any] | None = None,
    journal: Any = None,
    registry: Registry | None = None,
    depth: int = 0,
    run_id: str | None = None,
    continuation: Continuation | Mapping[str, Any] | None = None,
    parent_run: ParentRun | Mapping[str, Any] | None = None,
    store: Store | None = None,
    adapters: Any = None,
    models: Any = None,
    confirm_stage_readiness: Callable[..., Any] | None = None,
    on_stage_session_event: Callable[..., Any] | None = None,
    use_prompt_nodes_for_ui: bool = True,
    overlay: Any = None,
    persistence: Any = None,
    stage_control_registry: Any = None,
    mcp: Any = None,
    **options: Any,
) -> Run[Any]:
    """Start a workflow, given itself or by its name; durable when it returns.

    The callbacks hear what the journal holds, in order, each once: for a run that was there already its history first.
    They are functions, called in a thread, or coroutine functions, awaited on the thread of the runs. What they raise is
    logged and has no effect. The last ones may be called a moment after ``await`` of the run has returned; a run
    that is paused and resumed in this process is told on. A child workflow is one node of its parent.

    Args:
        definition: what ``@workflow`` made, or a name.
        inputs: its inputs.
        on_run_start: called with the run's read model when it is first executed.
        on_stage_start: called with the run's id and the node's read model when a step, tool, question, sleep or child
            begins; not again for its retries.
        on_stage_end: called likewise when it completed, failed or was cancelled.
        on_run_end: called with the run's id, its status, what it returned, its error as text and the reason that it gave
            to ``ctx.exit``; None where there is none.
        cwd: the folder that the run works in (``ctx.cwd``); the process's own when left out.
        ui: answers the questions of this run and its children: an object with methods ``confirm(message)``,
            ``input(message)``, ``select(message, options)``, ``editor(initial)``, ``form(message, schema)``, plain or
            async. A kind that it has no method for waits for others, and so does what it answers wrongly.
        execution_mode: ``"interactive"``: an open question waits for its answer. ``"non_interactive"``: whoever waits for
            the run gets :class:`NeedsAnswer`. Left out, the place of the call says it.
        signal: kills the run when it says so: a :class:`CancelScope`, ``ctx.cancelled`` of another run, or an event of
            asyncio or threading. Heard as long as this start's execution lasts.
        cancellation: where the run is registered while it is executed; :data:`cancellation_registry` when left out.
        defer_workflow_start: begin the body a turn of the loop later; an end that is asked for meanwhile comes first.
        config: see :class:`RuntimeConfig`; a mapping of its fields will do.
        journal: keep this run, and its children, in another journal than the configured one: ``"memory"``, a folder, an
            address, a journal that is open (not closed by us), or a coroutine function that opens one. ``get_run`` and
            the like look in the configured one: hold on to the handle.
        registry: where a name is looked up; workflows that ``@workflow`` defined when left out.
        depth: how deep the run is nested in what starts it; it counts against ``max_depth``.
        run_id: the run's id, where somebody needs to know it beforehand.
        continuation: go on where another run failed; see :class:`Continuation`. Inputs that are left out are the source's.
        parent_run: what the run is nested in; see :class:`ParentRun`.
        store: shows this run and its children instead of the process's own store.
        adapters, models, confirm_stage_readiness, on_stage_session_event: for model stages.
        use_prompt_nodes_for_ui, overlay, persistence, stage_control_registry, mcp: without effect, so that calls that are
            written after the reference work: questions always are nodes, the view is below the cell, the journal has
            everything, nodes are controlled by the run's handle, and MCP servers are a setting.
        options: ``key, budget, tags, fresh, show, answers, worker``, as ``definition.options`` takes them.

    Raises:
        UnknownWorkflowError, InputError, DefinitionError: before anything runs.
        ResumeError: ``run_id`` is taken, or the source cannot be continued (:class:`InsufficientStateError`).
        StorageUnavailableError: the journal cannot be reached; there is no run.
    """
    from loom_kernel.authoring.registry import registry as defined
    from loom_kernel.authoring.workflow import WorkflowDefinition
    from loom_kernel.runtime.callbacks import Callbacks, tell
    from loom_kernel.runtime.options import RunOptions

    more = RunOptions(
        cwd=cwd,
        ui=ui,
        execution_mode=execution_mode,
        signal=signal,
        cancellation=cancellation,
        defer_workflow_start=defer_workflow_start,
        config=config,
        journal=journal,
        registry=registry,
        depth=depth,
        run_id=run_id,
        continuation=continuation,
        parent_run=parent_run,
        store=store,
        adapters=adapters,
        models=models,
        confirm_stage_readiness=confirm_stage_readiness,
        on_stage_session_event=on_stage_session_event,
    )
    if isinstance(definition, str):
        definition = (registry if registry is not None else defined).get(definition)
    if not isinstance(definition, WorkflowDefinition):
        raise DefinitionError(f"run() takes a workflow or its name, not a {type(definition).__name__}")
    callbacks = Callbacks(
        on_run_start=on_run_start, on_stage_start=on_stage_start, on_stage_end=on_stage_end, on_run_end=on_run_end
    )
    start_options = definition.options(**options).start_options
    given = definition.bind(**(inputs or {})) if continuation is None else dict(inputs or {})
    runtime = cast("Runtime", get_launcher())
    if journal is not None:
        runtime = runtime.beside(journal)
    started = runtime.start(definition, given, start_options, more)
    if callbacks.any:
        tell(started, callbacks)
    return started


def sql(
    query: str,
    *,
    frames: Mapping[str, Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
    timeout_s: float = 30.0,
) -> Any:
    """Ask the journal in SQL; the result is a relation on DuckDB's default connection.

    Tables that are neither views of the journal nor files are looked up among the caller's variables.

    Args:
        query: one read-only statement.
        frames: tables by name, instead of the caller's variables.
        parameters: values of ``$name`` in the query; they are bound, so a text stays a text whatever is in it.
        timeout_s: seconds until the query is given up.

    Raises:
        SqlError: not one read-only statement, an unknown name (the sentence lists the known), or the time limit.
    """
    if frames is None:
        caller = sys._getframe(1)
        frames = {**caller.f_globals, **caller.f_locals}
    return get_runtime().sql(query, frames, parameters=parameters, timeout_s=timeout_s)
