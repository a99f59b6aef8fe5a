"""The composition root: journal, engine, people and host, opened together and closed together."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import math
import shutil
import sys
import tempfile
import threading
import uuid
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Raw

from loom_kernel import codec, events, once
from loom_kernel.authoring.code import family_version
from loom_kernel.authoring.launcher import Options
from loom_kernel.authoring.registry import registry
from loom_kernel.authoring.result import RunResult
from loom_kernel.authoring.workflow import WorkflowDefinition
from loom_kernel.clock import Clock, SystemClock, VirtualClock
from loom_kernel.engine import budgets
from loom_kernel.engine.orphans import end_children
from loom_kernel.engine.plan import StartPlan
from loom_kernel.engine.replay import History
from loom_kernel.errors import (
    DefinitionError,
    InputError,
    NeedsAnswer,
    ResumeError,
    RunError,
    RunOverError,
    SettingsError,
    StorageUnavailableError,
    UnknownRunError,
    UnknownWorkflowError,
)
from loom_kernel.ids import Ids, RunId
from loom_kernel.journal.abc import Append, AppendOutcome, Holder, LeaseAcquired, RunJournal, RunSummary
from loom_kernel.journal.liveness import this_process
from loom_kernel.policies import Budget
from loom_kernel.runtime import look, outcome
from loom_kernel.runtime.attendant import Attendant
from loom_kernel.runtime.cancellation import Cancelling
from loom_kernel.runtime.feeding import Feeding
from loom_kernel.runtime.host import Host, Place, ScriptHost
from loom_kernel.runtime.loop import LoopThread
from loom_kernel.runtime.options import NOTHING, ParentRun, RunOptions
from loom_kernel.runtime.run import Run
from loom_kernel.runtime.runs import RunList
from loom_kernel.runtime.sessions import Sessions
from loom_kernel.runtime.surroundings import surroundings
from loom_kernel.runtime.tuning import Tuning
from loom_kernel.settings import Settings
from loom_kernel.views import notices
from loom_kernel.views.store import Store

if TYPE_CHECKING:
    from loom_kernel.agents.home import Agents
    from loom_kernel.engine.rate_limits import RateLimits

T = TypeVar("T")

TEST_SEED = 1

_BUDGET = {
    "max_cost": "budget_cost",
    "max_tokens": "budget_tokens",
    "max_duration_s": "budget_seconds",
    "warn_at_percent": "budget_warn",
}
"""Fields of a budget and the settings that they may come from."""


class Runtime:
    """Everything of this process that runs workflows. Opened when first used; :meth:`close` ends it.

    Args:
        settings: where the journal is and the like; read from the process when left out.
        host: the place where the person works.
        journal: opens a journal to use instead of the configured one; called on the loop thread.
        clock: time, for engine and journal.
        ids: where new ids come from.
        loop: the thread of another runtime of this process, which has one for all runs; not ended by this one.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        host: Host | None = None,
        *,
        journal: Callable[[], Awaitable[RunJournal]] | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        loop: LoopThread | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.host: Host = host or ScriptHost()
        self.loop = loop or LoopThread()
        self._own_loop = loop is None
        self.clock: Clock = clock or SystemClock()
        self.ids = ids or Ids()
        self.attendant = Attendant(self)
        self.feeding = Feeding(self)
        self.cancelling = Cancelling(self)
        self._make_journal = journal
        self._journal: RunJournal | None = None
        self._engine: Any = None
        self._opening: asyncio.Lock | None = None
        self._temporary: Path | None = None
        self._setting: str | Path | None = None  # which journal, where it is not the configured one
        self._borrowed = False  # somebody else closes it
        self._beside: dict[Any, Runtime] = {}  # for runs that were started on journals of their own
        self._runs: weakref.WeakValueDictionary[str, Run[Any]] = weakref.WeakValueDictionary()
        self._live: set[Run[Any]] = set()
        self._tuning = Tuning()
        self._sessions = Sessions("")
        self._starts: dict[tuple[str | None, str], itertools.count[int]] = {}
        self._place_lock = threading.Lock()
        self._closed = False
        runtimes: weakref.WeakSet[Runtime] = once.once("runtimes", weakref.WeakSet)
        runtimes.add(self)

    # ------------------------------------------------------------ opening and closing

    @property
    def journal(self) -> RunJournal:
        """The journal, open.

        Raises:
            StorageUnavailableError: it is not open.
        """
        if self._journal is None:
            raise StorageUnavailableError("the journal is not open")
        return self._journal

    @property
    def engine(self) -> Any:
        """The engine, once something was opened."""
        return self._engine

    @property
    def is_open(self) -> bool:
        """Whether the journal was opened; nothing is opened before it is needed."""
        return self._journal is not None

    async def opened(self) -> RunJournal:
        """The journal, opened if need be. On the loop thread.

        Raises:
            StorageUnavailableError: it cannot be opened, or this runtime is closed.
        """
        if self._closed:
            raise StorageUnavailableError("this process has closed its journal")
        if self._journal is not None:
            return self._journal
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._journal is None:
                await self._open()
        return self.journal

    async def _open(self) -> None:
        from loom_kernel.engine.engine import Engine

        self.feeding.notify_on = self._notify_on()
        place = self.host.place()
        testing = bool(self.settings.get("test")) and self._make_journal is None
        fresh = testing and self.settings.find("home").value is None and self._setting is None
        if testing:
            self.clock = VirtualClock()
        if fresh:
            # Only where nothing was there before: seeded ids would meet themselves in a journal that is kept.
            self.ids = Ids(TEST_SEED)
        holder = this_process(Ids().holder_id(), label=place.label, kind=place.kind)
        if self._make_journal is not None:
            journal = await self._make_journal()
        elif fresh:
            journal = await self._open_temporary()
        else:
            journal = await self._open_configured(holder)
        self.attendant.load(self.settings.get("answers"))
        self._engine = Engine(
            journal,
            holder=holder,
            clock=self.clock,
            ids=self.ids,
            capabilities=self._capabilities(),
            budget=self._project_budget(),
            max_depth=self._max_depth(),
        )
        self._engine.begin_listeners += [self.cancelling.begun, self.feeding.begun]
        self._engine.session_listeners.append(self._said)
        self._journal = journal
        self._sessions = Sessions(holder.id)
        self.attendant.begin()

    def _said(self, run_id: str, node_id: str, event: Mapping[str, Any]) -> None:
        """A model stage says something: whoever shows the run hears it."""
        run = self._runs.get(run_id)
        if run is not None:
            run._heard_said(node_id, event)
        if "agents" in self.__dict__ and self.agents.hooks:
            from loom_kernel.runtime import models

            models.tell(self, run_id, node_id, event)

    async def _open_temporary(self) -> RunJournal:
        from loom_kernel.journal.duckdb_store import DuckDBRunJournal

        self._temporary = Path(tempfile.mkdtemp(prefix="loom-test-"))
        return await DuckDBRunJournal.open(self._temporary, clock=self.clock)

    async def _open_configured(self, holder: Holder) -> RunJournal:
        from loom_kernel.journal.selection import resolve_run_journal

        return await resolve_run_journal(self._setting, holder=holder, clock=self.clock, settings=self.settings)

    def _project_budget(self) -> Budget | None:
        """What the settings say.

        Raises:
            SettingsError: it is no number, or below zero.
        """
        found = {field: self.settings.find(name) for field, name in _BUDGET.items()}
        try:
            return budgets.from_record({f: s.value for f, s in found.items() if s.value is not None})
        except ValueError as error:
            raise SettingsError(f"the project's budget: {error}") from None

    def _max_depth(self) -> int:
        """How deep workflows may nest.

        Raises:
            SettingsError: it is no whole number, or below 1.
        """
        found = self.settings.find("max_depth")
        if not 1 <= found.value < math.inf or found.value != int(found.value):
            raise SettingsError(f"max_depth={found.value:g} ({found.source}): a whole number of at least 1 is needed")
        return int(found.value)

    def _notify_on(self) -> frozenset[str]:
        """The kinds of notices that the settings want.

        Raises:
            SettingsError: there is no such kind.
        """
        found = self.settings.find("notifications")
        return notices.wanted(found.value, f"notifications ({found.source})")

    def _capabilities(self) -> dict[str, Any]:
        from loom_kernel.engine.artifacts import of_put
        from loom_kernel.human.people import Interview
        from loom_kernel.human.show import shown
        from loom_kernel.kept.storage import RunStorage

        return {
            "ui": Interview,
            "shown": shown,
            "widgets": lambda: self.host.widgets(),
            "storage": lambda port: RunStorage(port, of_put),
            "rates": lambda: self.rates,
            "models": lambda port: self.agents.for_run(port),
            "namespace": self.namespace,
        }

    @functools.cached_property
    def rates(self) -> RateLimits:
        """How often and how much may be asked of others.

        Raises:
            SettingsError: the settings' table is not what it should be.
        """
        from loom_kernel.engine.rate_limits import RateLimits

        home = Path(self.settings.home().value)
        shared = self._temporary is None and self._make_journal is None and home.is_dir()
        return RateLimits(self.settings.get("limits") or {}, home if shared else None, self.clock)

    @functools.cached_property
    def agents(self) -> Agents:
        """What model stages share; made when the first asks for it."""
        from loom_kernel.runtime import models

        return models.agents(self)

    def feed(self, store: Store) -> None:
        """Let a store show what is executed here, if anything was opened. From any thread."""
        if self._closed or not self.is_open:
            return
        if self.loop.inside:
            self.feeding.seed(store)
            return

        async def seed() -> None:
            self.feeding.seed(store)

        self.loop.call(seed, "store", "store")

    def beside(self, journal: Any) -> Runtime:
        """The runtime of another journal: for runs that were started with ``run(..., journal=)``. It ends with this one.

        Args:
            journal: one that is open (it is not closed by us), what opens one, or a setting as ``journal`` takes it.

        Raises:
            StorageConfigError: it is none of these.
        """
        from loom_kernel.runtime.journals import choose

        choice = choose(journal)
        with self._place_lock:
            if choice.key not in self._beside:
                other = Runtime(self.settings, self.host, journal=choice.make, loop=self.loop)
                other._setting, other._borrowed = choice.setting, choice.borrowed
                self._beside[choice.key] = other
            return self._beside[choice.key]

    def close(self) -> None:
        """Stop owning runs, close the journal, end the thread. What ran is interrupted and can be resumed."""
        if self._closed:
            return
        for other in self._beside.values():
            other.close()
        opened = self._journal is not None
        if opened and not self.loop.inside:
            with contextlib.suppress(Exception):
                self.loop.call(self._close, "close()", "close_async()", timeout=5)
        self._closed = True
        if self._own_loop:
            self.loop.stop()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
        self._tuning.end()

    def notify(self, line: str) -> None:
        """One line about something that takes long, such as a model's bytes on their way. Any thread."""
        print(line, file=sys.stderr)

    async def _close(self) -> None:
        self.attendant.end()
        if "agents" in self.__dict__:
            await self.agents.doors.close()
        if self._engine is not None:
            await self._engine.close()
        await self.feeding.finish()
        if self._journal is not None and not self._borrowed:
            await self._journal.close()

    async def on_loop(self, make: Callable[[], Awaitable[T]]) -> T:
        """Do it on the loop thread, with the journal open, from whatever loop the caller is on."""

        async def do() -> T:
            await self.opened()
            return await make()

        return await self.loop.hand_over(do)

    # ------------------------------------------------------------ starting

    def start(
        self,
        definition: WorkflowDefinition[..., Any],
        inputs: dict[str, Any],
        options: Options,
        more: RunOptions = NOTHING,
    ) -> Run[Any]:
        """Start a run, or find the unfinished one of the same identity; durable when it returns."""
        if more.continuation is None:  # which has the source's
            definition.validate_inputs(inputs)
        place = self.host.place()
        run, how = self.loop.call(
            lambda: self._start(definition, inputs, options, place, more),
            f"{definition.fn.__name__}.start()",
            f"{definition.fn.__name__}.start_async()",
        )
        run.show, run.how = options.show, how
        self.host.started(run, how)
        return run

    async def start_async(
        self, definition: WorkflowDefinition[..., Any], inputs: dict[str, Any], options: Options
    ) -> Run[Any]:
        """Twin of :meth:`start`."""
        definition.validate_inputs(inputs)
        place = self.host.place()
        run, how = await self.loop.hand_over(lambda: self._start(definition, inputs, options, place))
        run.show, run.how = options.show, how
        if not self.loop.inside:
            self.host.started(run, how)
        return run

    def plan(self, definition: WorkflowDefinition[..., Any], inputs: dict[str, Any]) -> StartPlan:
        """What a new run would do now; nothing is done."""
        name = definition.fn.__name__
        return self.loop.call(lambda: self._plan(definition, inputs), f"{name}.plan()", f"{name}.plan_async()")

    async def plan_async(self, definition: WorkflowDefinition[..., Any], inputs: dict[str, Any]) -> StartPlan:
        """Twin of :meth:`plan`."""
        return await self.loop.hand_over(lambda: self._plan(definition, inputs))

    async def _plan(self, definition: WorkflowDefinition[..., Any], inputs: dict[str, Any]) -> StartPlan:
        await self.opened()
        return await self.engine.plan_start(definition, definition.validate_inputs(inputs))

    async def run(
        self, definition: WorkflowDefinition[..., Any], inputs: dict[str, Any], options: Options
    ) -> RunResult[Any]:
        """Start a run and return what it came to.

        Raises:
            NeedsAnswer: headless, and a question is open that nobody answers.
        """
        run = await self.start_async(definition, inputs, options)
        result = await run.settled()
        if result.status == "awaiting_input":
            raise NeedsAnswer(outcome.needs_answer(run), result)
        return result

    async def _start(
        self,
        definition: WorkflowDefinition[..., Any],
        given: dict[str, Any],
        options: Options,
        place: Place,
        more: RunOptions = NOTHING,
    ) -> tuple[Run[Any], str]:
        journal = await self.opened()
        if options.worker:
            _check_for_worker(definition, options)
        async with self._engine.admission.answering():
            await self._check_options(journal, more)
        if more.continuation is not None:
            from loom_kernel.runtime import continuing

            run = await continuing.go_on(self, definition, given, options, place, more)
            return run, run.how
        inputs = definition.validate_inputs(given)
        encoded, blobs = encode_inputs(inputs)
        looks = self._looks(options, place)
        found = None
        async with self._engine.admission.answering():
            if looks:
                await self._sessions.look_back(journal, place.notebook)
            created = self._created(definition, encoded, options, place, more)
            if not options.fresh and not more.new:
                found = await look.find(self, journal, created, looks=looks)
                if found is None and looks and not options.worker:
                    done = await self._sessions.take(journal, created, look.same_start)
                    found = look.Found(done, "finished") if done is not None else None
        if found is not None:
            return await self._continue(found, definition, inputs, options, more)
        if blobs:
            await journal.put_blobs(blobs)
        run_id = RunId(more.run_id) if more.run_id is not None else await self._new_id(journal)
        if options.worker:
            asked = journal.create_run(run_id, created)
            await self._engine.admission.admitted(asked, lambda _: journal.delete_run(run_id))
            run = self.run_object(run_id)
            await run._load()
            self._prepare(run_id, more)
            self._apply(run, more)
            self.feeding.show(run)
            return run, ""
        if options.answers:
            self.attendant.script(run_id, options.answers)
        return await self.begin(definition, inputs, created, run_id, more), ""

    async def begin(
        self,
        definition: WorkflowDefinition[..., Any],
        inputs: dict[str, Any],
        created: events.RunCreated,
        run_id: RunId,
        more: RunOptions = NOTHING,
        **how: Any,
    ) -> Run[Any]:
        """Make the run and begin to execute it; ``how`` as :meth:`Engine.start` takes it. On the loop thread."""
        self._prepare(run_id, more)
        execution = await self._engine.start(
            definition,
            inputs,
            created,
            run_id=run_id,
            config=more.config,
            depth=more.depth,
            defer=more.defer_workflow_start,
            **how,
        )
        run: Run[Any] = self.run_object(run_id)
        self._executes(run, execution)
        self._apply(run, more)
        return run

    async def _check_options(self, journal: RunJournal, more: RunOptions) -> None:
        """Raises: DefinitionError, ResumeError when a start cannot be as it is asked for."""
        most = getattr(more.config, "max_depth", None) or self._max_depth()
        if more.depth + 1 > most:
            raise DefinitionError(
                f"run(depth={more.depth}): workflows nest at most {most} deep (maxDepth exceeded); the setting max_depth allows more"
            )
        if more.run_id is not None and await journal.get_run(RunId(more.run_id)) is not None:
            raise ResumeError(f"run {more.run_id} is there already; resume it, or leave run_id out")

    def _prepare(self, run_id: str, more: RunOptions) -> None:
        """What must be known before a run's execution begins."""
        if more.store is not None:
            self.feeding.choose(run_id, more.store)
        if more.cancellation is not None:
            self.cancelling.choose(run_id, more.cancellation)
        if more.ui is not None:
            self.attendant.person(run_id, more.ui)
        if more is not NOTHING:
            from loom_kernel.runtime import models

            models.prepare(self, run_id, more)
        path = getattr(more.config, "status_file", False)
        if path:
            from loom_kernel.runtime.status_file import keep

            self.feeding.add(run_id, keep(path, run_id, Path(self.settings.home().value)))

    def _apply(self, run: Run[Any], more: RunOptions) -> None:
        """What holds for a run that was started or found."""
        if more.policy is not None:
            run.policy = more.policy
        if more.signal is not None and run.live:
            self.cancelling.obey(run._execution, more.signal)

    def _created(
        self,
        definition: WorkflowDefinition[..., Any],
        encoded: bytes,
        options: Options,
        place: Place,
        more: RunOptions = NOTHING,
    ) -> events.RunCreated:
        folder = Path(more.cwd) if more.cwd is not None else Path.cwd()
        parent = more.parent_run if isinstance(more.parent_run, ParentRun) else None
        return events.RunCreated(
            workflow=definition.name,
            definition_version=definition.version,
            description=definition.description,
            inputs=Raw(encoded),
            key=options.key,
            tags=list(options.tags),
            notebook=place.notebook,
            cell=place.cell,
            nth=self._nth(definition, encoded, place),
            source=definition.source,
            environment=surroundings(folder),
            cwd=str(folder),
            parent_run_id=parent.run_id if parent is not None else None,
            parent_node_id=parent.stage_id if parent is not None else None,
            root_run_id=(parent.root_run_id or parent.run_id) if parent is not None else None,
            session=self._sessions.id if self._looks(options, place) else "",
            continues=self._sessions.continues(place.notebook),
            family_version=family_version(definition.fn),
            secret_inputs=sorted(definition.secret_inputs),
            for_worker=options.worker,
            budget=budgets.to_record(options.budget),
        )

    def _nth(self, definition: WorkflowDefinition[..., Any], encoded: bytes, place: Place) -> int:
        """Which such start it is in this execution of the cell, from 0."""
        if place.cell is None and place.kind == "kernel":
            return 0  # which execution of which cell it is cannot be told
        such = (place.cell, f"{place.execution}\0{definition.normalized_name}\0{encoded.decode()}")
        with self._place_lock:
            if len(self._starts) > 10_000:
                self._starts.clear()
            return next(self._starts.setdefault(such, itertools.count()))

    def _looks(self, options: Options, place: Place) -> bool:
        """Whether a start looks for its unfinished run without being given a key."""
        return (place.kind == "kernel" and not place.headless) or bool(self.settings.get("resume"))

    async def _new_id(self, journal: RunJournal) -> RunId:
        while True:
            run_id = self.ids.run_id()
            if run_id not in self._runs and (self._temporary is None or await journal.get_run(run_id) is None):
                return run_id

    async def _continue(
        self,
        found: look.Found,
        definition: WorkflowDefinition[..., Any],
        inputs: dict[str, Any],
        options: Options,
        more: RunOptions = NOTHING,
    ) -> tuple[Run[Any], str]:
        run: Run[Any] = self.run_object(found.summary.run_id)
        if options.answers:
            self.attendant.script(found.summary.run_id, options.answers)
        self._prepare(found.summary.run_id, more)
        if found.how == "resume" and not options.worker:
            secrets = {name: inputs[name] for name in definition.secret_inputs if name in inputs}
            await self._resume(found.summary, definition, secrets=secrets, config=more.config)
        await run._load()
        self._apply(run, more)
        self.feeding.show(run)
        return run, look.sentence(found, run.view)

    def executes(self, execution: Any) -> Run[Any]:
        """The handle of a run that the engine has begun to execute. On the loop thread."""
        run: Run[Any] = self.run_object(execution.run_id)
        self._executes(run, execution)
        return run

    def _executes(self, run: Run[Any], execution: Any) -> None:
        """On the loop thread: this process executes the run now."""
        run._attach(execution)
        self._live.add(run)
        self._tuning.begin()
        execution.result.add_done_callback(lambda _: self._rests(run))

    def _rests(self, run: Run[Any]) -> None:
        self._live.discard(run)
        if not self._live:
            self._tuning.end()

    def live(self) -> bool:
        """Whether any run is executed in this process now."""
        return bool(self._live)

    # ------------------------------------------------------------ resuming

    def resume(self, run_id: str, **how: Any) -> Run[Any]:
        """Go on with a run here; ``how`` as :meth:`Run.resume` takes it. ``run_id`` may be the beginning of one."""
        run = self.loop.call(lambda: self.resume_async(run_id, **how), "resume()", "resume_async()")
        self.host.started(run, run.how)
        return run

    async def resume_async(
        self,
        run_id: str,
        *,
        accept: bool = False,
        take: bool = False,
        secrets: Mapping[str, Any] | None = None,
        edited: bool = False,
        recorded: bool = False,
        budget: Budget | None = None,
    ) -> Run[Any]:
        """Twin of :meth:`resume`."""

        async def do() -> Run[Any]:
            summary = await self._find(run_id)
            run: Run[Any] = self.run_object(summary.run_id)
            if edited or recorded or (accept and summary.reason == "needs_decision"):
                from loom_kernel.runtime import edits

                if budget is not None and edited:
                    raise ResumeError("a budget is given to the resume that follows the question about the edits")
                if edited and recorded:
                    raise ResumeError(
                        "edited=True goes on with the code as it is now, recorded=True with the recorded body"
                    )
                await run._load()
                if edited or (not recorded and run.view.detail.get("what") == "edited"):
                    return await edits.go_on(self, run, accept=accept, take=take, secrets=secrets)
            if recorded:
                definition = await edits.recorded_definition(self, run)
            else:
                definition = self.definition_of(summary.workflow, run._definition)
            if summary.run_id not in self._engine.executions:
                await self._resume(summary, definition, accept=accept, take=take, secrets=secrets, budget=budget)
            await run._load()
            run.how = look.resumed(run.view)
            return run

        return await self.on_loop(do)

    async def _resume(self, summary: RunSummary, definition: WorkflowDefinition[..., Any], **how: Any) -> None:
        execution = await self._engine.resume(RunId(summary.run_id), definition, by=self.host.place().label, **how)
        self._executes(self.run_object(summary.run_id), execution)

    def definition_of(
        self, workflow: str, known: WorkflowDefinition[..., Any] | None = None
    ) -> WorkflowDefinition[..., Any]:
        """The definition by its name; the newest in the registry, else the one the run was started with.

        Raises:
            UnknownWorkflowError: lists the known.
        """
        try:
            return registry.get(workflow)
        except UnknownWorkflowError:
            if known is not None:
                return known
            raise

    # ------------------------------------------------------------ finding

    def runs(self, **filters: Any) -> RunList:
        """See :func:`loom_kernel.runs`."""
        return self.loop.call(lambda: self.runs_async(**filters), "runs()", "runs_async()")

    async def runs_async(
        self,
        status: str | Iterable[str] | None = None,
        workflow: str | None = None,
        key: str | None = None,
        tag: str | None = None,
        notebook: str | None = None,
        limit: int | None = 20,
    ) -> RunList:
        """Twin of :meth:`runs`."""
        wanted = (status,) if isinstance(status, str) else status
        name = self._name_of(workflow)

        async def do() -> RunList:
            found = await self.journal.list_runs(
                workflow=name, status=wanted, key=key, tag=tag, notebook=notebook, limit=limit
            )
            return RunList([(self.run_object(s.run_id), s) for s in found])

        return await self.on_loop(do)

    def _name_of(self, workflow: str | None) -> str | None:
        """The name as it is stored, for one that is spelled otherwise."""
        return registry.get(workflow).name if workflow is not None and registry.has(workflow) else workflow

    def get_run(self, run_id: str) -> Run[Any]:
        """See :func:`loom_kernel.get_run`."""
        return self.loop.call(lambda: self.get_run_async(run_id), "get_run()", "get_run_async()")

    async def get_run_async(self, run_id: str) -> Run[Any]:
        """Twin of :meth:`get_run`."""

        async def do() -> Run[Any]:
            summary = await self._find(run_id)
            run: Run[Any] = self.run_object(summary.run_id)
            await run._load()
            return run

        return await self.on_loop(do)

    async def _find(self, run_id: str) -> RunSummary:
        text = str(run_id).strip()
        summary = await self.journal.get_run(RunId(text)) if text else None
        if summary is not None and summary.workflow:
            return summary
        candidates = [  # a stream without a workflow is no run: the project's storage
            s
            for s in await self.journal.list_runs(roots_only=False)
            if text and s.workflow and s.run_id.startswith(text)
        ]
        if len(candidates) == 1:
            return candidates[0]
        raise UnknownRunError(text, [s.run_id for s in candidates])

    def run_object(self, run_id: str) -> Run[Any]:
        """The one handle of this process for a run."""
        run = self._runs.get(run_id)
        if run is None:
            run = self._runs[run_id] = Run(self, run_id)
        return run

    def live_run(self, run_id: str) -> Run[Any] | None:
        """The handle of a run that is executed here; children of runs included."""
        execution = self._engine.executions.get(run_id) if self._engine is not None else None
        run = self._runs.get(run_id)
        if execution is None or execution.result.done():
            return run if run is not None and run.live else None
        run = self.run_object(run_id)
        if self.loop.inside and not run.live:
            run._attach(execution)
        return run

    # ------------------------------------------------------------ steering

    async def post(self, run_id: RunId, append: Append) -> AppendOutcome:
        """A post, on the loop thread."""
        return await self.journal.post(run_id, append)

    async def steer(self, run: Run[Any], what: str, by: str, reason: str = "") -> None:
        """Stop, cancel or kill a run, whoever executes it."""
        with contextlib.suppress(RunOverError):  # it has ended in this very moment, and what was asked for holds
            await self._steer(run, what, by, reason)

    async def _steer(self, run: Run[Any], what: str, by: str, reason: str) -> None:
        summary = await self._find(run.id)
        resting = summary.status in events.TERMINAL or summary.status == "paused"
        waits = summary.status == "pending" and await self.journal.lease_state(RunId(run.id)) is None
        if summary.status in events.TERMINAL or (what == "stop" and resting):
            return  # it is at rest already: what was asked for holds
        if resting or summary.interrupted or waits:
            await self._end_unowned(run, what, by, reason)
            return
        await self._ask_holder(run, what, by, reason)

    async def _ask_holder(self, run: Run[Any], what: str, by: str, reason: str) -> None:
        event: events.Event = events.StopRequested(by=by)
        if what != "stop":
            event = events.CancelRequested(by=by, reason=reason, kill=what == "kill")
        await self.post(RunId(run.id), Append(event, None, f"{what}:{uuid.uuid4().hex}"))

    async def _end_unowned(self, run: Run[Any], what: str, by: str, reason: str) -> None:
        """Nobody executes it, so nobody would hear a post: take the lease and write the end here."""
        acquired = await self.journal.acquire(RunId(run.id), self._engine.holder)
        if not isinstance(acquired, LeaseAcquired):
            await self._ask_holder(run, what, by, reason)  # somebody took it in this very moment
            return
        lease, history = acquired.lease, History.of(acquired.entries)
        if history.over or (what == "stop" and history.status == "paused"):
            await self.journal.release(lease)  # it went on and came to rest meanwhile
            await run._load()
            return
        event: events.Event
        if what == "stop":
            event = events.RunPaused(reason="stopped")
        else:
            await end_children(self.journal, self._engine.holder, history, "the run that started it ended")
            status = "killed" if what == "kill" else "cancelled"
            event = events.RunEnded(status=status, reason=reason or (f"by {by}" if by else None))
        await self.journal.append(lease, [Append(event, None, f"ended:{lease.epoch}")])
        await run._load()

    async def delete(self, run: Run[Any]) -> None:
        """Remove a run that nobody executes."""
        summary = await self._find(run.id)
        if summary.status not in (*events.TERMINAL, "paused") and not summary.interrupted:
            raise RunError(f"{outcome.title(run)} is {summary.status}; cancel it before deleting it")
        await self.journal.delete_run(RunId(run.id))
        self._runs.pop(run.id, None)
        self.feeding.gone(run.id)

    # ------------------------------------------------------------ values

    def namespace(self) -> Mapping[str, Any]:
        """Where classes defined in the notebook are found."""
        return vars(sys.modules["__main__"])

    async def decode(self, raw: bytes) -> Any:
        """The value of an encoded one. On the loop thread."""
        return await codec.decode(raw, self.journal.get_blob, namespace=self.namespace())

    # ------------------------------------------------------------ SQL

    def sql(
        self,
        query: str,
        frames: Mapping[str, Any] | None = None,
        *,
        parameters: Mapping[str, Any] | None = None,
        timeout_s: float = 30.0,
    ) -> Any:
        """See :func:`loom_kernel.sql`. ``frames`` are variables that the query may mean."""
        return self.loop.call(
            lambda: self.sql_async(query, frames, parameters=parameters, timeout_s=timeout_s), "sql()", "sql_async()"
        )

    async def sql_async(
        self,
        query: str,
        frames: Mapping[str, Any] | None = None,
        *,
        parameters: Mapping[str, Any] | None = None,
        timeout_s: float = 30.0,
        files: bool = True,
    ) -> Any:
        """Twin of :meth:`sql`. Without ``files`` the query reads none, whatever its text says."""
        from loom_kernel.journal import results

        tables = {name: value for name, value in (frames or {}).items() if _is_table(name, value)}
        return await self.on_loop(
            lambda: results.answer(
                query,
                tables,
                lambda text, **more: self.journal.query(text, timeout_s=timeout_s, **more),
                parameters=parameters,
                get_blob=self.journal.get_blob,
                namespace=self.namespace(),
                files=files,
            )
        )

    # ------------------------------------------------------------ settings

    def configure(self, **values: Any) -> None:
        """See :func:`loom_kernel.configure`."""
        moved = [name for name in ("home", "journal", "test") if name in values]
        if moved and self.is_open:
            raise SettingsError(
                f"configure({moved[0]}=...) comes too late: the journal is open. Call it before the first run, "
                "or restart the kernel."
            )
        if "notifications" in values:
            notices.wanted(values["notifications"], "configure(): notifications")
        self.settings.configure(**values)
        self.feeding.notify_on = self._notify_on()
        if set(values) - {"model"}:
            self.__dict__.pop("agents", None)  # made anew with the new settings
        if "answers" in values and self.is_open:
            self.attendant.load(self.settings.get("answers"))

    def __repr__(self) -> str:
        return f"<loom runtime, {'open' if self.is_open else 'not opened yet'}>"


def _check_for_worker(definition: WorkflowDefinition[..., Any], options: Options) -> None:
    """What a worker cannot be given.

    Raises:
        InputError: lists it.
    """
    found = [
        f"{name}: a secret input is not stored, so no worker can have it; start the run without worker=True"
        for name in sorted(definition.secret_inputs)
    ]
    if options.answers:
        found.append("answers=: a worker has its own, `loom worker --answers FILE`")
    if found:
        raise InputError(definition.name, found)


def _is_table(name: str, value: Any) -> bool:
    """Whether a variable is something that SQL can read; told by its type's module, so that nothing is imported."""
    root = type(value).__module__.partition(".")[0]
    return not name.startswith("__") and root in ("pandas", "polars", "pyarrow", "duckdb", "numpy")


def encode_inputs(inputs: Mapping[str, Any]) -> tuple[bytes, list[tuple[str, bytes]]]:
    """Inputs as ``run.created`` keeps them, and the blobs that they name.

    Raises:
        ValueNotStorableError: with the path of the culprit.
    """
    blobs: list[tuple[str, bytes]] = []
    members: list[bytes] = []
    for name, value in inputs.items():
        encoded = codec.encode(value, path=name)
        blobs += [(blob.sha256, blob.data) for blob in encoded.blobs]
        members.append(msgspec.json.encode(name) + b":" + encoded.json)
    return b"{" + b",".join(members) + b"}", blobs
