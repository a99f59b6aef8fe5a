"""The engine: starts and resumes runs, hears what others post to them, keeps their leases, and lets them go."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from loom_kernel import codec, events
from loom_kernel.authoring.context import current, in_step
from loom_kernel.authoring.registry import workflow_names_equal
from loom_kernel.authoring.result import RunResult
from loom_kernel.authoring.workflow import WorkflowDefinition
from loom_kernel.clock import Clock
from loom_kernel.codec import Blob
from loom_kernel.engine import budgets, forking, output
from loom_kernel.engine.admission import Admission
from loom_kernel.engine.children import MANY
from loom_kernel.engine.claiming import MAX_CRASHES, Refused, crashes, version_of
from loom_kernel.engine.edited import edited_child
from loom_kernel.engine.entries import Listener
from loom_kernel.engine.execution import Execution
from loom_kernel.engine.executor import Executor
from loom_kernel.engine.forking import Family
from loom_kernel.engine.keys import child_run_id
from loom_kernel.engine.plan import EditPlan, StartPlan
from loom_kernel.engine.recorder import HeldBack
from loom_kernel.engine.replay import History
from loom_kernel.engine.result_cache import ResultCache
from loom_kernel.engine.watchdog import Watchdog
from loom_kernel.errors import (
    InputError,
    JournalError,
    LoomError,
    ResumeError,
    StaleLeaseError,
    StorageUnavailableError,
    UnknownClassError,
    UnknownRunError,
)
from loom_kernel.events import RunCreated
from loom_kernel.ids import Ids, RunId
from loom_kernel.journal.abc import Append, Holder, LeaseAcquired, LeaseHeld, RunJournal, RunSummary, Subscription
from loom_kernel.policies import Budget, RuntimeConfig

if TYPE_CHECKING:
    from loom_kernel.engine.replaying import Replay

log = logging.getLogger("loom_kernel.engine")

RENEW_S = 5.0
"""How often leases are renewed."""

DRAIN_LOOK_S = 0.02

MAX_DEPTH = 4
"""How deep workflows nest, the outermost counted, where nobody says otherwise."""

_NOTHING: Mapping[str, Any] = {}


class Engine:
    """Executes runs on the loop that it is first used on.

    Args:
        journal: where they are recorded.
        holder: who this process is.
        clock: for waits and durations.
        ids: makes run ids.
        capabilities: what bodies may ask for beyond the engine, by name: ``ui`` (a function from ``ask`` to ``People``),
            ``widgets`` (a function that gives where widgets are shown, or None),
            ``shown`` (a function from what a question shows to its parts and hash), ``namespace`` (a function to the
            notebook's names, where exception classes are found).
        budget: what a run may spend, where neither its start nor its definition says otherwise.
        max_depth: how deep workflows nest, the outermost counted.
    """

    def __init__(
        self,
        journal: RunJournal,
        *,
        holder: Holder,
        clock: Clock,
        ids: Ids,
        capabilities: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        max_depth: int = MAX_DEPTH,
    ) -> None:
        self.journal, self.holder, self.clock, self.ids = journal, holder, clock, ids
        self.capabilities = dict(capabilities or {})
        self.budget, self.max_depth = budget, max_depth
        self.executions: dict[str, Execution] = {}
        self.session_listeners: list[Callable[[str, str, Mapping[str, Any]], None]] = []
        """Told of what happens in model stages as it does: run, node, event. On the loop thread."""
        self.begin_listeners: list[Callable[[Execution], None]] = []
        """Told of every execution that begins here, of children too. On the loop thread."""
        self.executor = Executor()
        self.results = ResultCache(journal)
        self.context = contextvars.copy_context()
        self.admission = Admission(self.context)
        # Whatever is made in here belongs to no run.
        self.context.run(current.set, None)
        self.context.run(in_step.set, None)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.held_back: HeldBack  # once it is open
        self._subscription: Subscription | None = None
        self._listener: asyncio.Task[None] | None = None
        self._renewer: asyncio.Task[None] | None = None
        self._watchdog: Watchdog | None = None
        self._limits: dict[str, tuple[int, asyncio.Semaphore]] = {}
        self._opening = 0
        self._heard: set[str] = set()  # runs that something was posted to while they were being opened
        self._draining = False
        self._closed = False

    # ------------------------------------------------------------ starting

    async def start(
        self,
        definition: WorkflowDefinition[..., Any],
        inputs: Mapping[str, Any],
        created: RunCreated,
        *,
        run_id: str | None = None,
        listener: Listener | None = None,
        family: Family | None = None,
        edits: events.RunEdited | None = None,
        config: RuntimeConfig | None = None,
        depth: int = 0,
        defer: bool = False,
    ) -> Execution:
        """Start a run; it is durable when this returns.

        Args:
            definition: its body.
            inputs: the values; checked here.
            created: its first event. Where ``inputs`` is left at its default, the values are encoded here.
            run_id: its id; a new one otherwise.
            listener: hears every event, from the first.
            family: the records that a fork begins with.
            edits: which of those run again.
            config: what this start sets otherwise than the settings, for its children too.
            depth: how deep it is nested in what started it.
            defer: begin the body a turn of the loop later, so that an end that is asked for at once comes first.

        Raises:
            InputError: everything that is wrong with the inputs.
            ResumeError: a run of that id is held by somebody else, or is there already.
            StorageUnavailableError: it could not be written, or the journal has not answered in time.
        """
        self._open()
        values = definition.validate_inputs(inputs)
        created = await self._complete(definition, values, created)
        new_id = RunId(run_id) if run_id is not None else self.ids.run_id()
        with self._watching():
            acquired = await self._leased(self.journal.start_run(new_id, created, self.holder), new=True)
            if isinstance(acquired, LeaseHeld):
                raise ResumeError(held(new_id, acquired))
            history = History.of(acquired.entries)
            if history.executions or history.over:
                await self.journal.release(acquired.lease)
                raise ResumeError(f"run {new_id} is there already; resume it")
            if family is not None:
                acquired = await forking.begin(self, acquired, family)
                history = History.of(acquired.entries)
            execution = Execution(
                self,
                definition,
                values,
                acquired,
                history,
                listener=listener,
                edits=edits,
                config=config,
                depth=depth,
                defer=defer,
            )
            return self._begin(execution)

    async def resume(
        self,
        run_id: str,
        definition: WorkflowDefinition[..., Any],
        *,
        accept: bool = False,
        take: bool = False,
        by: str = "",
        secrets: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        listener: Listener | None = None,
        edits: events.RunEdited | None = None,
        config: RuntimeConfig | None = None,
    ) -> Execution:
        """Go on with a run: its body runs again from the top, and what is recorded is not done again.

        Args:
            accept: run calls that the record does not have as they are called now, instead of pausing before them.
            take: take it from a worker that is alive.
            by: who asked for it.
            secrets: the secret inputs, which are not stored.
            edits: what runs again although it is recorded; see :meth:`plan_edited`.
            budget: limits from here on, beside those that counted before; what was spent stays spent.
            config: as for :meth:`start`.

        Raises:
            UnknownRunError: there is no such run.
            ResumeError: it cannot go on; the sentence says why and what can be done.
        """
        self._open()
        run = RunId(run_id)
        summary = await self.journal.get_run(run)
        if summary is None:
            raise UnknownRunError(run_id)
        if run_id in self.executions:
            raise ResumeError(f"run {run_id} is running here already")
        self._check(summary, definition)
        with self._watching():
            acquired = await self._leased(self.journal.acquire(run, self.holder))
            if isinstance(acquired, LeaseHeld) and take:
                acquired = await self._leased(self.journal.takeover(run, self.holder, acquired.holder.id))
            if isinstance(acquired, LeaseHeld):
                raise ResumeError(held(run_id, acquired))
            history, values = await self._opened(acquired, definition, secrets)
            execution = Execution(
                self,
                definition,
                values,
                acquired,
                history,
                accept=accept,
                by=by,
                budget=budget,
                listener=listener,
                edits=edits,
                config=config,
            )
            return self._begin(execution)

    async def _leased(
        self, asked: Coroutine[Any, Any, LeaseAcquired | LeaseHeld], *, new: bool = False
    ) -> LeaseAcquired | LeaseHeld:
        """Wait for a lease; for that of a ``new`` run not for ever. Where nobody waits for it any more when it comes, it is
        given back, and a new run removed: one that a living worker holds and does not execute could be resumed by nobody.
        """

        async def undo(acquired: LeaseAcquired | LeaseHeld) -> None:
            if isinstance(acquired, LeaseHeld):
                return
            if new and not History.of(acquired.entries).executions:
                await self.journal.delete_owned_run(acquired.lease)
            else:
                await self.journal.release(acquired.lease)

        return await self.admission.admitted(asked, undo, bounded=new)

    async def plan_edited(
        self, run_id: str, definition: WorkflowDefinition[..., Any], *, secrets: Mapping[str, Any] | None = None
    ) -> EditPlan:
        """What going on with the definition as it is now would do. Nothing is written, no effect is done.

        Raises:
            UnknownRunError: there is no such run.
            ResumeError: its recorded inputs do not fit, or a secret one is missing.
        """
        from loom_kernel.engine import dry

        self._open()
        if await self.journal.get_run(RunId(run_id)) is None:
            raise UnknownRunError(run_id)
        entries = [entry async for entry in self.journal.read(RunId(run_id))]
        values = await self.restore(run_id, definition, History.of(entries), secrets)
        return await dry.plan(self, run_id, definition, values, entries)

    async def plan_start(self, definition: WorkflowDefinition[..., Any], inputs: dict[str, Any]) -> StartPlan:
        """What a new run would do now. Nothing is written, no effect is done."""
        from loom_kernel.engine import dry

        self._open()
        return await dry.start(self, definition, inputs)

    async def replay(
        self, run_id: str, definition: WorkflowDefinition[..., Any], *, secrets: Mapping[str, Any] | None = None
    ) -> Replay:
        """Whether the definition as it is now asks for what is recorded, and for nothing else. Nothing is written.

        Raises:
            UnknownRunError: there is no such run.
            ResumeError: it is a run of another workflow, or a secret input is missing.
        """
        from loom_kernel.engine import replaying

        self._open()
        return await replaying.replay(self, run_id, definition, secrets=secrets)

    async def _opened(
        self, acquired: LeaseAcquired, definition: WorkflowDefinition[..., Any], secrets: Mapping[str, Any] | None
    ) -> tuple[History, dict[str, Any]]:
        """The history and the inputs of a run to go on with; its lease is given back where that cannot be.

        Raises:
            ResumeError: the sentence says why.
        """
        run_id = acquired.lease.run_id
        try:
            history = History.of(acquired.entries)
            reason = why_not(run_id, history.status, history.resumable)
            if broken := forking.broken_off(history):
                reason = f"run {run_id} is a fork that cannot go on: {broken} (`%loom rm {run_id}`)"
            if reason:
                raise ResumeError(reason)
            return history, await self.restore(run_id, definition, history, secrets)
        except BaseException:
            with contextlib.suppress(JournalError):
                await self.journal.release(acquired.lease)
            raise

    async def claim(
        self,
        definitions: Sequence[WorkflowDefinition[..., Any]],
        *,
        but: Collection[str] = (),
        timeout_s: float | None = None,
    ) -> Execution | Refused | None:
        """Wait for a run that nobody executes and that one of the definitions fits, and execute it.

        Args:
            but: ids of runs that are not wanted.
            timeout_s: seconds to wait; None waits for ever.

        Returns:
            None when the time is over; ``Refused`` for a run that was claimed and cannot go on here.

        Raises:
            StorageUnavailableError: the journal cannot be reached.
        """
        self._open()
        known = {definition.name: definition for definition in definitions}
        versions = {name: definition.version for name, definition in known.items()}
        acquired = await self.journal.claim(versions, self.holder, but=but, timeout_s=timeout_s)
        if acquired is None:
            return None
        run_id, created = RunId(acquired.lease.run_id), acquired.entries[0].event
        assert isinstance(created, RunCreated), "a run begins with run.created"
        definition = known[created.workflow]
        died, at = crashes(acquired.entries)
        if died >= MAX_CRASHES:
            return await self._set_aside(acquired, created.workflow, died, at)
        if version_of(acquired.entries) != definition.version:
            await self.journal.release(acquired.lease)
            return Refused(run_id, created.workflow, "it went on with another version of the definition meanwhile")
        try:
            history, values = await self._opened(acquired, definition, None)
        except (ResumeError, LoomError) as error:
            if isinstance(error, JournalError):
                raise
            return Refused(run_id, created.workflow, str(error))
        execution = self._begin(Execution(self, definition, values, acquired, history, by=self.holder.label))
        execution.fetch()  # what was posted since the lease was taken
        return execution

    async def _set_aside(self, acquired: LeaseAcquired, workflow: str, died: int, at: str) -> Refused:
        """Rather paused than the death of every worker, one after the other."""
        where = f" at {at!r}" if at else ""
        why = f"{died} workers in a row died over it{where}; find out why, then resume it"
        event = events.RunPaused(reason="crashes", message=why)
        lease = acquired.lease
        await self.journal.append(lease, [Append(event, None, f"paused:{lease.epoch}")])
        return Refused(RunId(lease.run_id), workflow, why, paused=True)

    async def child(
        self,
        parent: Execution,
        node_id: str,
        run_id: RunId,
        definition: WorkflowDefinition[..., Any],
        values: dict[str, Any],
        budget: Budget | None,
        begun: Callable[[Execution], None],
    ) -> RunResult[Any]:
        """Start or go on with the run behind a parent's node, until it rests.

        Args:
            begun: called with the execution, unless the run has ended already.

        Raises:
            ResumeError: somebody else holds it.
            StaleLeaseError, StorageUnavailableError: it could not go on here.
        """
        head = parent.history.created
        created = RunCreated(
            workflow=definition.name,
            parent_run_id=parent.run_id,
            parent_node_id=node_id,
            root_run_id=(head.root_run_id if head is not None else None) or parent.run_id,
            tags=list(head.tags) if head is not None else [],
            budget=budgets.to_record(budget),
            notebook=head.notebook if head is not None else None,
            cwd=head.cwd if head is not None else "",
        )
        created = await self._complete(definition, values, created)
        with self._watching():
            acquired = await self.journal.start_run(run_id, created, self.holder)
            if isinstance(acquired, LeaseHeld):
                # Of a worker that the parent was taken from: whoever has the parent (its fence was passed a moment
                # ago) has its children.
                acquired = await self.journal.takeover(run_id, self.holder, acquired.holder.id)
            if isinstance(acquired, LeaseHeld):
                raise ResumeError(held(run_id, acquired))
            history = History.of(acquired.entries)
            ended = history.ended
            if ended is not None and (ended.exited or not ended.resumable):
                await self.journal.release(acquired.lease)
                parent.ledger.adopt(node_id, *budgets.total(history))
                return await self._result(run_id, definition, ended)
            child = Execution(
                self,
                definition,
                values,
                acquired,
                history,
                accept=parent.accept,
                parent=(parent, node_id),
                edits=edited_child(definition, history) if parent.edits is not None else None,
            )
            supervisor = asyncio.current_task()
            assert supervisor is not None
            self._begin(child, supervisor)
        begun(child)
        await child.supervise()
        return child.result.result()

    async def _result(
        self, run_id: RunId, definition: WorkflowDefinition[..., Any], ended: events.RunEnded
    ) -> RunResult[Any]:
        value = await codec.decode(bytes(ended.result), self.journal.get_blob, namespace=self.namespace())
        error = None
        if ended.error is not None:
            error = codec.decode_error(ended.error, step=definition.name, namespace=self.namespace())
        return RunResult(
            run_id=run_id,
            status=ended.status,
            result=value if ended.exited else definition.restore_output(value),
            error=error,
            exited=ended.exited,
            exit_reason=ended.reason if ended.exited else None,
            reason=None if ended.exited else ended.reason,
            workflow=definition.name,
        )

    def _begin(self, execution: Execution, supervisor: asyncio.Task[Any] | None = None) -> Execution:
        self.executions[execution.run_id] = execution
        if self._watchdog is None:
            self._watchdog = Watchdog(asyncio.get_running_loop(), self._blocked)
        output.refresh()
        if self._draining:
            execution.hold_back()
        if supervisor is None:
            execution.begin()
        else:
            execution.begin_within(supervisor)
        if execution.run_id in self._heard:
            execution.fetch()
        for told in self.begin_listeners:
            told(execution)
        return execution

    def forget(self, execution: Execution) -> None:
        """The execution rests."""
        if self.executions.get(execution.run_id) is execution:
            del self.executions[execution.run_id]
        if not self.executions and self._watchdog is not None:
            self._watchdog.stop()
            self._watchdog = None

    async def _complete(
        self, definition: WorkflowDefinition[..., Any], values: dict[str, Any], created: RunCreated
    ) -> RunCreated:
        inputs = created.inputs
        if bytes(inputs) == b"{}" and values:
            inputs, blobs = encode_inputs(definition, values)
            if blobs:
                await self.journal.put_blobs(blobs)
        return msgspec.structs.replace(
            created,
            inputs=inputs,
            definition_version=created.definition_version or definition.version,
            description=created.description or definition.description,
            source=created.source or definition.source,
            cwd=created.cwd or working_folder(),
            secret_inputs=created.secret_inputs or sorted(definition.secret_inputs),
        )

    async def restore(
        self,
        run_id: str,
        definition: WorkflowDefinition[..., Any],
        history: History,
        secrets: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        created = history.created
        assert created is not None, "a run begins with run.created"
        given = dict(secrets or {})
        missing = [name for name in created.secret_inputs if name in definition.secret_inputs and name not in given]
        if missing:
            names = ", ".join(missing)
            raise ResumeError(
                f"run {run_id} was started with the secret input {names}, which is not stored. "
                f"Give it again: resume({run_id!r}, secrets={{{missing[0]!r}: ...}})"
            )
        try:
            stored = await codec.decode(bytes(created.inputs), self.journal.get_blob, namespace=self.namespace())
            return definition.restore_inputs(stored, given)
        except (InputError, UnknownClassError) as error:
            raise ResumeError(f"run {run_id} cannot go on with its recorded inputs: {error}") from error

    def _check(self, summary: RunSummary, definition: WorkflowDefinition[..., Any]) -> None:
        header = summary.header
        if header.parent_run_id is not None and opened_by_parent(summary.run_id, header):
            raise ResumeError(
                f"run {summary.run_id} is a child of run {header.root_run_id or header.parent_run_id}; "
                f"resume that one: `%loom resume {header.root_run_id or header.parent_run_id}`"
            )
        if not workflow_names_equal(header.workflow, definition.name):
            raise ResumeError(
                f"run {summary.run_id} is a run of {header.workflow!r}; it cannot go on as {definition.name!r}"
            )
        reason = why_not(summary.run_id, summary.status, summary.resumable)
        if reason:
            raise ResumeError(reason)

    # ------------------------------------------------------------ for executions

    def capability(self, name: str, what: str) -> Any:
        """Something that was plugged in.

        Raises:
            LoomError: it was not.
        """
        found = self.capabilities.get(name)
        if found is None:
            raise LoomError(f"{what} is not available where this run is executed")
        return found

    def namespace(self) -> Mapping[str, Any] | None:
        """Where classes of a notebook are found."""
        make = self.capabilities.get("namespace")
        return make() if make is not None else None

    def limit(self, name: str, limit: int) -> asyncio.Semaphore:
        """How many calls of a step run at once, over all runs."""
        known = self._limits.get(name)
        if known is None or known[0] != limit:
            known = self._limits[name] = (limit, asyncio.Semaphore(limit))
        return known[1]

    # ------------------------------------------------------------ what others post

    def _open(self) -> None:
        if self._closed:
            raise StorageUnavailableError("the engine of this process is closed")
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        self._loop = loop
        self.held_back = HeldBack()
        _adopt_tasks(loop)
        output.install()
        self._subscription = self.journal.subscribe(types=events.POSTS)
        self._listener = loop.create_task(self._listen(self._subscription), context=self.context)
        self._renewer = loop.create_task(self._renew(), context=self.context)

    async def _listen(self, subscription: Subscription) -> None:
        try:
            async for notices in subscription:
                for run_id in {notice.run_id for notice in notices}:
                    execution = self.executions.get(run_id)
                    if execution is not None:
                        execution.fetch()
                    elif self._opening:
                        self._heard.add(run_id)
        except JournalError as error:
            log.warning("what others post to runs is not heard any more: %s", error)

    def _watching(self) -> _Watching:
        """While a run is being opened, what is posted to it is remembered."""
        return _Watching(self)

    async def _renew(self) -> None:
        while True:
            # Real time: a virtual clock would jump from one renewal to the next for ever.
            await asyncio.sleep(RENEW_S)
            for execution in list(self.executions.values()):
                try:
                    await self.journal.renew(execution.lease)
                except StaleLeaseError as error:
                    execution.lost(error)
                except JournalError as error:
                    log.debug("the lease of run %s was not renewed: %s", execution.run_id, error)

    def _blocked(self, task: asyncio.Task[Any] | None, text: str) -> None:
        if task is None:
            return
        for execution in self.executions.values():
            if execution.owns(task):
                execution.warn(text)
                return

    # ------------------------------------------------------------ the end

    async def drain(self, grace_s: float) -> None:
        """Begin no further step, and give each run back as soon as none of its steps is at work.

        Questions and sleeps are given back as they are. Whatever is still at work after ``grace_s`` seconds is
        cancelled and runs again elsewhere.
        """
        self._draining = True
        for execution in self.executions.values():
            execution.hold_back()
        loop = asyncio.get_running_loop()
        end = loop.time() + grace_s
        closing: dict[str, asyncio.Task[None]] = {}
        while roots := [x for x in self.executions.values() if not x.nested]:
            late = loop.time() >= end
            for root in roots:
                family = [x for x in self.executions.values() if x is root or x.root_run_id == root.run_id]
                if root.run_id not in closing and (late or not any(member.busy for member in family)):
                    closing[root.run_id] = loop.create_task(root.close("drained"), context=self.context)
            await asyncio.sleep(DRAIN_LOOK_S)
        if closing:
            await asyncio.wait(closing.values())

    async def close(self) -> None:
        """Stop owning runs: their tasks are cancelled, their leases given back, nothing is appended. Idempotent."""
        if self._closed:
            return
        self._closed = True
        roots = [execution for execution in self.executions.values() if not execution.nested]
        if roots:
            await asyncio.wait([asyncio.ensure_future(execution.close("closed")) for execution in roots])
        if self._loop is not None:
            output.uninstall()
        for task in (self._listener, self._renewer):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        if self._subscription is not None:
            self._subscription.close()
        if self._watchdog is not None:
            self._watchdog.stop()
        self.executor.close()


class _Watching:
    """A context manager without a generator behind it: it stands around every child's opening."""

    __slots__ = ("_engine",)

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __enter__(self) -> None:
        self._engine._opening += 1

    def __exit__(self, *exc: object) -> None:
        self._engine._opening -= 1
        if not self._engine._opening:
            self._engine._heard.clear()


def encode_inputs(definition: WorkflowDefinition[..., Any], values: Mapping[str, Any]) -> tuple[Raw, tuple[Blob, ...]]:
    """Inputs as ``run.created`` keeps them; secret ones as digests.

    Raises:
        ValueNotStorableError: names the input.
    """
    secret = definition.secret_inputs
    kept = {
        name: codec.digest(value) if name in secret and value is not None else value for name, value in values.items()
    }
    encoded = codec.encode(kept, path="inputs", allow_nan=False)
    return Raw(encoded.json), encoded.blobs


def working_folder() -> str:
    """This process's; empty where it was removed meanwhile."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def opened_by_parent(run_id: str, created: RunCreated) -> bool:
    """Whether ``ctx.workflow`` of its parent opened a run, and so goes on with it; others only name a parent."""
    parent, node_id = created.parent_run_id or "", created.parent_node_id or ""
    return any(child_run_id(parent, node_id, nth) == run_id for nth in range(MANY))


def why_not(run_id: str, status: str, resumable: bool) -> str:
    """Why a run of that stored status cannot be resumed; empty when it can. The one rule for all who ask."""
    if status in ("completed", "skipped"):
        return f"run {run_id} is {status}; there is nothing left to do. Start a new one, or rerun it."
    if status in ("cancelled", "killed"):
        return f"run {run_id} was {status}, which is final. Start a new one, or rerun it."
    if status in ("failed", "blocked") and not resumable:
        return f"run {run_id} {'failed' if status == 'failed' else 'is blocked'} for good: its body chose so with ctx.exit. Start a new one."
    return ""


def held(run_id: str, lease: LeaseHeld) -> str:
    """Who has the run."""
    holder = lease.holder
    who = holder.label or holder.kind
    host = f" on {holder.host}" if holder.host else ""
    return (
        f"run {run_id} is being executed by {who} (pid {holder.pid}{host}). Stop it there, or take it: "
        f"`%loom resume {run_id} --take`"
    )


def _adopt_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Let every task that is made in a body's context be known to its run, so that it ends with it."""
    before = loop.get_task_factory()
    if getattr(before, "adopts", False):
        return

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        task = before(loop, coro, **options) if before is not None else asyncio.Task(coro, loop=loop, **options)
        context = options.get("context")
        owner = current.get() if context is None else context.get(current)
        if owner is not None:
            adopt = getattr(owner, "adopt", None)
            if adopt is not None:
                adopt(task)
        return task

    factory.adopts = True  # type: ignore[attr-defined]
    loop.set_task_factory(factory)
