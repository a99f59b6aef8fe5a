"""Going on with edited code: the plan, the question whether to, and the run that goes on; or the recorded body again."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from loom_kernel import events
from loom_kernel.authoring.launcher import Options
from loom_kernel.authoring.workflow import WorkflowDefinition, define
from loom_kernel.engine import forking
from loom_kernel.engine.engine import held, why_not
from loom_kernel.engine.plan import EditPlan
from loom_kernel.engine.replay import History
from loom_kernel.errors import ResumeError, RunError
from loom_kernel.ids import RunId
from loom_kernel.journal.abc import Append, LeaseAcquired, LeaseHeld, RunSummary
from loom_kernel.runtime import look
from loom_kernel.runtime.core import encode_inputs

if TYPE_CHECKING:
    from loom_kernel.runtime.core import Runtime
    from loom_kernel.runtime.run import Run

WAITS = "nothing has run yet: answer the question, or go on with --accept"

FINISHED = ("completed", "skipped")


async def plan(runtime: Runtime, run: Run[Any], secrets: Mapping[str, Any] | None = None) -> EditPlan:
    """What going on with the code as it is now would do; see :meth:`Run.plan_edited`. On the loop thread."""
    await run._load()
    definition = runtime.definition_of(run.view.workflow, run._definition)
    found: EditPlan = await runtime.engine.plan_edited(run.id, definition, secrets=secrets)
    return found


async def go_on(
    runtime: Runtime, run: Run[Any], *, accept: bool, take: bool, secrets: Mapping[str, Any] | None
) -> Run[Any]:
    """Go on with edited code; a finished run goes on in a fork. Where finished work is concerned and ``accept`` is not
    given, the run rests with the question instead, and nothing has run. On the loop thread.

    Raises:
        ResumeError: it is being executed, or is over for good.
    """
    summary = await runtime._find(run.id)
    await run._load()
    if summary.run_id in runtime.engine.executions:
        raise ResumeError(f"run {summary.run_id} is running here; stop it first: `%loom stop {summary.run_id}`")
    finished = summary.status in FINISHED
    if finished and (asking := await _asking_fork(runtime, run)) is not None:
        return await go_on(runtime, asking, accept=accept, take=take, secrets=secrets)
    reason = "" if finished else why_not(summary.run_id, summary.status, summary.resumable)
    if reason:
        raise ResumeError(reason)
    found = await plan(runtime, run, secrets)
    definition = runtime.definition_of(summary.workflow, run._definition)
    by = runtime.host.place().label
    edits = events.RunEdited(again=list(found.again), aside=list(found.aside), by=by, version=found.version)
    asks = found.asks and not accept
    if finished:
        return await _in_a_fork(runtime, run, definition, found, edits, asks, secrets)
    if asks:
        await _ask(runtime, summary, found, take)
        await run._load()
        run.how = WAITS
        return run
    await runtime._resume(summary, definition, take=take, secrets=secrets, edits=edits)
    await run._load()
    run.how = f"goes on with edited code: {found.sentence}"
    return run


async def _asking_fork(runtime: Runtime, run: Run[Any]) -> Run[Any] | None:
    """The fork of a finished run that waits for the decision already."""
    for summary in await runtime.journal.list_runs(workflow=run.view.workflow, status=("paused",)):
        if summary.header.forked_from == run.id and summary.reason == "needs_decision":
            fork: Run[Any] = runtime.run_object(summary.run_id)
            await fork._load()
            if fork.view.detail.get("what") == "edited":
                return fork
    return None


def _hint(run_id: str) -> str:
    return f"%loom resume {run_id} --edited --accept"


def question(run_id: str, found: EditPlan) -> events.RunPaused:
    """The pause that asks whether to go on so."""
    hint = _hint(run_id)
    detail = {"what": "edited", "hint": hint, **found.detail()}
    said = f"With the code as it is now: {found.sentence}. Nothing has run yet."
    return events.RunPaused(reason="needs_decision", message=said, detail=detail)


async def _ask(runtime: Runtime, summary: RunSummary, found: EditPlan, take: bool) -> None:
    journal, run_id = runtime.journal, RunId(summary.run_id)
    acquired = await journal.acquire(run_id, runtime.engine.holder)
    if isinstance(acquired, LeaseHeld) and take:
        acquired = await journal.takeover(run_id, runtime.engine.holder, acquired.holder.id)
    if isinstance(acquired, LeaseHeld):
        raise ResumeError(held(run_id, acquired))
    await _pause(runtime, acquired, found)


async def _pause(runtime: Runtime, acquired: LeaseAcquired, found: EditPlan) -> None:
    lease = acquired.lease
    await runtime.journal.append(lease, [Append(question(lease.run_id, found), None, f"paused:{lease.epoch}")])


async def _in_a_fork(
    runtime: Runtime,
    source: Run[Any],
    definition: WorkflowDefinition[..., Any],
    found: EditPlan,
    edits: events.RunEdited,
    asks: bool,
    secrets: Mapping[str, Any] | None,
) -> Run[Any]:
    """A finished run stays as it is: a fork begins with all of its records, and those that are given up run again."""
    if not (found.again or found.aside or found.of("runs")):
        raise RunError(f"nothing that run {source.id} did was edited: {found.sentence}")
    history = History.of([entry async for entry in runtime.journal.read(source._id)])
    values = await runtime.engine.restore(source.id, definition, history, secrets)
    encoded, blobs = encode_inputs(values)
    place = runtime.host.place()
    created = msgspec.structs.replace(
        runtime._created(definition, encoded, Options(tags=tuple(source.view.tags)), place),
        forked_from=source.id,
        source=history.source,  # what it begins with was made by the recorded body
        definition_version=history.version,
    )
    if blobs:
        await runtime.journal.put_blobs(blobs)
    new_id = await runtime._new_id(runtime.journal)
    family = await forking.plan(runtime.journal, source.id, new_id, forking.Cut())
    run: Run[Any]
    if asks:
        acquired = await runtime.journal.start_run(new_id, created, runtime.engine.holder)
        assert isinstance(acquired, LeaseAcquired), "its id is new"
        acquired = await forking.begin(runtime.engine, acquired, family)
        await _pause(runtime, acquired, found)
        run = runtime.run_object(new_id)
        await run._load()
        run.how = f"{WAITS}; the finished run stays as it is, this is its fork"
        return run
    execution = await runtime.engine.start(definition, values, created, run_id=new_id, family=family, edits=edits)
    run = runtime.executes(execution)
    run.how = f"forked from the run of {look.clock(source.view.created_at)} with edited code: {found.sentence}"
    return run


# ---------------------------------------------------------------- the recorded body


async def recorded_definition(runtime: Runtime, run: Run[Any]) -> WorkflowDefinition[..., Any]:
    """The body as it was when its calls last ran, with the steps as they are defined now.

    Raises:
        ResumeError: its text was not recorded, or means nothing here.
    """
    await run._load()
    history = History.of([entry async for entry in runtime.journal.read(run._id)])
    known = runtime.definition_of(run.view.workflow, run._definition)
    for definition in (run._definition, known):
        if definition is not None and definition.version == history.version:
            return definition
    if not history.source:
        raise ResumeError(f"the text of the body of run {run.id} was not recorded; define it again as it was")
    return compiled(history.source, known, runtime.namespace(), run.id)


def compiled(
    source: str, known: WorkflowDefinition[..., Any], namespace: Mapping[str, Any], run_id: str
) -> WorkflowDefinition[..., Any]:
    """A definition from a recorded text, in a namespace of its own that sees the notebook's names.

    Raises:
        ResumeError: the text is no function.
    """
    import __future__

    name = f"<recorded body of {known.name}>"
    try:
        tree = ast.parse(source, name)
        function = tree.body[0]
        if not isinstance(function, ast.AsyncFunctionDef):
            raise SyntaxError("it is no async function")
        function.decorator_list = []
        flags = __future__.annotations.compiler_flag
        code = compile(ast.Module([function], []), name, "exec", flags=flags, dont_inherit=True)
    except (SyntaxError, IndexError) as error:
        raise ResumeError(f"the recorded body of run {run_id} cannot be read: {error}") from None
    space = {**namespace, **known.fn.__globals__, **inspect.getclosurevars(known.fn).nonlocals}
    try:
        exec(code, space)  # the person's own text, which ran before
        fn = space[function.name]
    except Exception as error:
        raise ResumeError(
            f"the recorded body of run {run_id} cannot be defined here: {type(error).__name__}: {error}"
        ) from error
    fn.__loom_source__ = source
    return define(
        fn,
        name=known.name,
        description=known.description,
        inputs=known.inputs,
        outputs=known.outputs,
        budget=known.budget,
        auto_attach=known.auto_attach,
        heartbeat_interval_minutes=known.heartbeat_interval_minutes,
    )
