"""The public functions over the runtime of this process; ``loom_kernel`` re-exports them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from loom_kernel.errors import DefinitionError
from loom_kernel.runtime import Run, RunList, get_runtime

if TYPE_CHECKING:
    from loom_kernel.authoring.workflow import WorkflowDefinition
    from loom_kernel.policies import Budget
    from loom_kernel.runtime.callbacks import OnRunEnd, OnRunStart, OnStage


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
        options: ``key, budget, tags, fresh, show, answers, worker``, as ``definition.options`` takes them.

    Raises:
        UnknownWorkflowError, InputError, DefinitionError: before anything runs.
    """
    from loom_kernel.authoring.registry import registry
    from loom_kernel.authoring.workflow import WorkflowDefinition
    from loom_kernel.runtime.callbacks import Callbacks, tell

    if isinstance(definition, str):
        definition = registry.get(definition)
    if not isinstance(definition, WorkflowDefinition):
        raise DefinitionError(f"run() takes a workflow or its name, not a {type(definition).__name__}")
    callbacks = Callbacks(
        on_run_start=on_run_start, on_stage_start=on_stage_start, on_stage_end=on_stage_end, on_run_end=on_run_end
    )
    started: Run[Any] = definition.options(**options).start(**(inputs or {}))
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
