"""One execution of a run: from taking the lease to coming to rest.

The body runs in a task of its own; a supervisor waits for the first thing that ends the execution, cancels what is still
open, and writes the one last event. Nothing is appended after that.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from msgspec import Raw

from loom_kernel import codec
from loom_kernel import events as ev
from loom_kernel.authoring.context import CancelToken, current, in_step
from loom_kernel.authoring.result import RunResult
from loom_kernel.authoring.workflow import WorkflowDefinition
from loom_kernel.codec import Blob, Encoded
from loom_kernel.engine import budgets
from loom_kernel.engine.aborting import abort
from loom_kernel.engine.calls import Call
from loom_kernel.engine.context import RunContext
from loom_kernel.engine.edited import gone, upgraded
from loom_kernel.engine.endings import Ending, cancelled, exit_ending, failed, returned
from loom_kernel.engine.entries import Entries, Listener
from loom_kernel.engine.frontier import Branch, Frontier, GraphFrontierTracker
from loom_kernel.engine.held import HeldCalls
from loom_kernel.engine.keys import Occurrences
from loom_kernel.engine.mismatch import ending_for, gone_ending
from loom_kernel.engine.orphans import end_children, waiting
from loom_kernel.engine.output import LiveHandle
from loom_kernel.engine.recorder import Recorder
from loom_kernel.engine.replay import History, Lookup, Record, wakes
from loom_kernel.engine.steps import LOG_S, ride_lines
from loom_kernel.engine.turns import Turns
from loom_kernel.errors import JournalError, LoomError, StaleLeaseError, WorkflowExit
from loom_kernel.ids import RunId
from loom_kernel.journal.abc import Append, JournalEntry, LeaseAcquired
from loom_kernel.policies import Budget, RuntimeConfig

if TYPE_CHECKING:
    from loom_kernel.engine.dry import DryRun
    from loom_kernel.engine.engine import Engine

log = logging.getLogger("loom_kernel.engine")

CANCEL_PATIENCE_S = 5.0
"""How long a body may take to clean up after it was cancelled, before it is cancelled once more, and then left alone."""

CLOSE_PATIENCE_S = 1.0
"""The same where nothing more is written: a kernel that ends does not wait long."""

EXIT_PATIENCE_S = 5.0
"""How long a body may go on after ``ctx.exit`` without making a durable call."""

MAX_OPEN = 10_000
"""Calls at work at once; more wait."""

_PLACE: ContextVar[tuple[Branch, int]] = ContextVar("loom_branch")
"""The branch of the current task, and the task that it belongs to: a task made since then begins one of its own."""

T = TypeVar("T")


class Execution:
    """A run that this process executes. Made by :meth:`Engine.start` and :meth:`Engine.resume`.

    Attributes:
        run_id: the run.
        definition: what is executed, to its end, whatever is defined under its name meanwhile.
        result: set when the run rests, ended or paused. It never raises for the run's outcome, only
            ``StaleLeaseError`` and ``StorageUnavailableError`` when the run could not go on here.
    """

    __slots__ = (
        "_adopted",
        "_announced",
        "_budget",
        "_by",
        "_copies",
        "_defer",
        "_ended",
        "_ending",
        "_entries",
        "_exit",
        "_exit_blobs",
        "_held",
        "_interrupted",
        "_loop",
        "_main",
        "_raised",
        "_reports",
        "_room",
        "_stopping",
        "_supervisor",
        "_thread",
        "_turns",
        "_waits",
        "_went_live",
        "aborted",
        "accept",
        "again",
        "aliases",
        "before",
        "calls",
        "cancelled",
        "codes",
        "config",
        "context",
        "definition",
        "depth",
        "early",
        "edits",
        "engine",
        "gone",
        "history",
        "inputs",
        "kept",
        "keys",
        "lease",
        "ledger",
        "live",
        "lookup",
        "max_open",
        "nested",
        "prompts",
        "recorder",
        "result",
        "revisions",
        "run_id",
        "sleeps",
        "tracker",
        "wrap_ups",
    )  # fmt: skip

    def __init__(
        self,
        engine: Engine,
        definition: WorkflowDefinition[..., Any],
        inputs: dict[str, Any],
        acquired: LeaseAcquired,
        history: History,
        *,
        accept: bool = False,
        parent: tuple[Execution, str] | None = None,
        budget: Budget | None = None,
        by: str = "",
        listener: Listener | None = None,
        edits: ev.RunEdited | None = None,
        config: RuntimeConfig | None = None,
        depth: int = 0,
        defer: bool = False,
    ) -> None:
        self.engine, self.definition, self.inputs, self.accept = engine, definition, inputs, accept
        self.nested = parent is not None
        self.depth: int = depth + 1 if parent is None else parent[0].depth + 1
        self.config: RuntimeConfig = config or (RuntimeConfig() if parent is None else parent[0].config)
        self._defer = defer
        self.run_id = RunId(acquired.lease.run_id)
        self.lease = acquired.lease
        self.history: History = history
        self.edits = edits
        self.before = history.source  # what the body was when it was last executed
        if edits is not None:
            history.edited(edits)
        self.gone = gone(definition, history)  # effects that the code cannot come to any more
        self._by, self._budget = by, budget
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.result: asyncio.Future[RunResult[Any]] = self._loop.create_future()

        self._entries = Entries(engine.journal, self.run_id, context=engine.context, on_post=self._posted)
        if listener is not None:
            self._entries.listen(listener)
        self.lookup = Lookup(history, accept=accept)
        self._copies = dict.fromkeys(history.copied)  # of a fork: what it has not asked for yet
        self.keys = Occurrences()
        self.tracker = GraphFrontierTracker()
        self.calls: list[Call] = []
        self.again = f":{acquired.lease.epoch}" if history.edits else ""  # of keys of what may happen twice
        self.codes: dict[Any, str] = {}  # of steps, as they are when this execution first calls them
        self.aliases: dict[str, str] = {}
        self.kept: dict[str, Any] = {}
        self.revisions = dict(history.revisions)  # of artifacts, by name
        self.early = dict(history.early)
        self.cancelled = CancelToken()
        self.recorder = Recorder(
            engine.journal,
            self.lease,
            held_back=engine.held_back,
            clock=engine.clock,
            context=engine.context,
            on_entries=self._entries.take,
            on_fault=self._fault,
        )

        self.live: dict[str, asyncio.Task[Any] | None] = {}  # calls at work, by whom
        self._waits: dict[str, None] = {}  # those of them that only wait: questions, sleeps
        self._interrupted: dict[str, None] = {}  # those that ctx.exit ends
        self.aborted: dict[str, BaseException] = {}  # those that a person ends
        self.max_open = MAX_OPEN
        self._room: dict[asyncio.Future[None], None] = {}  # those who wait for it, in order
        self.prompts: dict[str, tuple[str, int, asyncio.Future[ev.PromptAnswered]]] = {}
        self.sleeps: dict[str, tuple[str | None, asyncio.Future[None]]] = {}
        self._turns: Turns | None = None
        self._held: HeldCalls | None = None  # made by the first that is held
        created = history.created
        self.wrap_ups: dict[str, budgets.WrapUp] = {}
        """Of the model stages at work in this run itself, by node."""
        self.ledger: budgets.Ledger = budgets.Ledger(
            self,
            budgets.resolve(
                budget,
                budgets.from_record(history.budget),
                budgets.from_record(created.budget) if created is not None else None,
                definition.budget,
                self.config.budget,
                engine.budget,
            ),
            None if parent is None else parent[0].ledger,
            "" if parent is None else parent[1],
        )
        self._went_live = False
        self._reports: dict[str, int] = {}
        self._announced = 0
        self._raised: dict[int, tuple[BaseException, str]] = {}

        self._ending: Ending | None = None
        self._ended = self._loop.create_future()
        self._exit: Ending | None = None
        self._stopping: Ending | None = None
        self._exit_blobs: tuple[Blob, ...] = ()
        self.context = RunContext(self)
        self._supervisor: asyncio.Task[Any] | None = None
        self._adopted: weakref.WeakSet[asyncio.Task[Any]] | None = None  # made by the body; few bodies make any
        self._main: asyncio.Task[None] | None = None  # the body's own
        self._entries.take(acquired.entries)

    # ------------------------------------------------------------ reading along

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that all of it runs on."""
        return self._loop

    @property
    def on_thread(self) -> bool:
        """Whether the caller is on the thread of all runs."""
        return threading.get_ident() == self._thread

    dry: DryRun | None = None  # asked instead of doing anything, in a dry replay

    @property
    def concurrency(self) -> int | None:
        """How many branches ``ctx.parallel`` has at work: as the input ``max_concurrency`` says, where there is one, else
        what the start set for all."""
        asked = self.inputs.get("max_concurrency")
        if isinstance(asked, bool) or not isinstance(asked, (int, float)) or not 1 <= asked < math.inf:
            return self.config.default_concurrency
        return int(asked)

    @property
    def max_depth(self) -> int:
        """How deep workflows nest here, the outermost counted."""
        return self.config.max_depth or self.engine.max_depth

    def on_output(self, handle: LiveHandle) -> None:
        """A step printed or said how far it is: write it, after a moment in which more may come."""
        self._loop.call_later(LOG_S, self._write_output, handle)

    def _write_output(self, handle: LiveHandle) -> None:
        node_id = handle.node_id or ""
        if node_id not in self.live or not self.recording:
            return  # the step wrote the rest itself when it ended
        lines, progress = handle.take()
        for call in handle.take_usage():
            self.spent(call, node_id)
        ride_lines(self, node_id, handle.attempt, lines)
        if progress is not None:
            self.recorder.ride(ev.NodeProgressed(done=progress[0], total=progress[1]), node_id)

    async def decode(self, raw: Raw) -> Any:
        """A value of the journal."""
        data = bytes(raw)
        if b'"$loom"' not in data:
            return codec.decode_now(data)
        return await self.guarded(codec.decode(data, self.engine.journal.get_blob, namespace=self.engine.namespace()))

    async def guarded(self, asked: Coroutine[Any, Any, T]) -> T:
        """What the journal answers. Its trouble stops the execution; it is not the body's to catch."""
        # In the engine's context: what a journal starts in the background must not end with this body.
        task = self._loop.create_task(asked, context=self.engine.context)
        try:
            return await asyncio.shield(task)
        except JournalError as trouble:
            self._fault(trouble)
            raise asyncio.CancelledError("the run has ended") from trouble

    async def put_blobs(self, encoded: Encoded) -> None:
        """Keep the large parts of a value, before the event that names them."""
        if encoded.blobs:
            await self.guarded(self.engine.journal.put_blobs(encoded.blobs))

    @property
    def entries(self) -> list[JournalEntry]:
        """The run's events so far, in order."""
        return self._entries.all

    def listen(self, fn: Listener) -> Callable[[], None]:
        """Call ``fn`` for every event, history first, in order, on the loop thread. Returns what ends it."""
        return self._entries.listen(fn)

    def fetch(self) -> None:
        """Read what others appended."""
        self._entries.fetch()

    def _posted(self, entry: JournalEntry) -> None:
        event, node_id = entry.event, entry.node_id or ""
        self.history.apply(entry)  # the body may not have come to the question or the sleep yet
        match event:
            case ev.PromptAnswered(generation=generation):
                waiting = self.prompts.get(node_id)
                if waiting is not None and waiting[1] == generation and not waiting[2].done():
                    waiting[2].set_result(event)
            case ev.AnswerKept(prompt=prompt):
                self.early.setdefault(prompt, event)
                # It was given before the question opened, and only heard of now.
                for name, generation, future in self.prompts.values():
                    if name == prompt and generation == 1 and not future.done():
                        future.set_result(ev.PromptAnswered(generation=1, value=event.value, by=event.by))
            case ev.WakeRequested(correlation_ids=ids):
                for correlation_id, waker in self.sleeps.values():
                    if wakes(ids, correlation_id) and not waker.done():
                        waker.set_result(None)
            case ev.CancelRequested():
                self.end(cancelled(event))
            case ev.AbortRequested(by=by):
                abort(self, node_id, by)
            case ev.StopRequested(by=by):
                self.end(Ending(kind="paused", reason="stopped", message=f"stopped by {by}" if by else ""))

    # ------------------------------------------------------------ the life of it

    def begin(self) -> None:
        """Start the body; the history was listened to."""
        self.begin_within(
            self._loop.create_task(self.supervise(), name=f"loom run {self.run_id}", context=self.engine.context)
        )

    def begin_within(self, supervisor: asyncio.Task[Any]) -> None:
        """The same where that task calls :meth:`supervise`."""
        self._entries.begin()
        self._supervisor = supervisor

    async def supervise(self) -> None:
        """Run the body until the run rests; ``result`` says what came of it."""
        try:
            self.recorder.ride(
                ev.RunStarted(
                    worker=self.lease.holder_id,
                    resumed=self.history.executions > 0,
                    definition_version=self.definition.version,
                    by=self._by,
                    source=self.definition.source if self.history.source != self.definition.source else "",
                    budget=budgets.to_record(self._budget),
                    family_version=upgraded(self.history, self.definition.fn),
                ),
                key=f"started:{self.lease.epoch}",
            )
            if self.gone and self.accept:
                self.recorder.ride(ev.MismatchAccepted(recorded=[record.node_id for record in self.gone], called=""))
                self.gone = ()
            if self.edits is not None:
                self.recorder.ride(self.edits, key=f"edited:{self.lease.epoch}")
            if self.history.cancel is not None:
                self.end(cancelled(self.history.cancel))
            elif await self._deferred():
                self._main = self._loop.create_task(
                    self._body(), name=f"loom body {self.run_id}", context=self.engine.context.copy()
                )
            await self._ended
            assert self._ending is not None
            await self._quiet(self._ending)
            await self._rest(self._ending)
        except BaseException as error:
            self._lost(error)
            if not isinstance(error, Exception):
                raise
            log.exception("run %s could not be brought to rest", self.run_id)

    async def _deferred(self) -> bool:
        """Whether the body is still to begin, a turn of the loop later where the start asked for one."""
        if self._defer:
            await asyncio.sleep(0)
        return self._ending is None

    async def _body(self) -> None:
        error: BaseException | None = None
        value: Any = None
        if self._ended.done():
            return  # asked for before the author's first line
        current.set(self.context)
        self.start_branch(self.tracker.root)
        try:
            value = await self.definition.call(self.context, self.inputs)
        except BaseException as raised:  # a body may raise SystemExit; it must not end the loop of all runs
            error = raised
        if self._ending is not None:
            return
        chosen = self._stopping or self._exit
        if chosen is not None:
            self.end(chosen)
            return
        if error is None:
            try:
                value = self.definition.check_output(value)
                encoded = codec.encode(value, path="output", allow_nan=False)
                if encoded.stands_in:
                    value = codec.decode_now(encoded.json, dict(encoded.blobs).__getitem__)
                await self.put_blobs(encoded)
            except Exception as raised:
                error = raised
            else:
                self.end(returned(value, Raw(encoded.json), self.definition.output_names))
                return
        self.end(failed(error, self._node_of(error)))

    def end(self, ending: Ending) -> bool:
        """Bring the execution to rest in this way, unless another came first. Returns whether this one counts."""
        if self._ending is not None:
            return False
        self._ending = ending
        if self._held is not None:
            self._held.end()
        if not self._ended.done():
            self._ended.set_result(None)
        if ending.kind not in ("completed", "failed"):
            self.cancelled.set(ending.reason or ending.kind)
        return True

    def end_soon(self, ending: Ending) -> None:
        """The same in the next turn of the loop, so that the body hears of it first; what it does then is no end of its own."""
        if self._stopping is None and self._exit is None and self._ending is None:
            self._stopping = ending
            self._loop.call_soon(self.end, ending)

    @property
    def ending(self) -> Ending | None:
        """How it is coming to rest, once that is decided."""
        return self._ending

    @property
    def over(self) -> bool:
        """It rests."""
        return self.result.done()

    @property
    def recording(self) -> bool:
        """Whether what happens to calls is still written."""
        return self._ending is None or not self._ending.silent

    @property
    def replaying(self) -> bool:
        """Whether what the body does now, it did in an earlier execution already."""
        return not self._went_live and not self.lookup.exhausted

    async def _quiet(self, ending: Ending) -> None:
        """Cancel the body's open tasks and wait for them."""
        patience = CLOSE_PATIENCE_S if ending.silent else CANCEL_PATIENCE_S
        end_at = self._loop.time() + 2 * patience
        while tasks := [task for task in self._tasks() if not task.done()]:
            for task in tasks:
                task.cancel(ending.reason or ending.kind)
            left = end_at - self._loop.time()
            if left <= 0:
                log.warning("run %s: %d tasks of its body do not end; they are left alone", self.run_id, len(tasks))
                break
            await asyncio.wait(tasks, timeout=min(left, patience))
        for task in self._tasks():
            if task.done() and not task.cancelled():
                task.exception()  # looked at, so that nobody complains that it was never retrieved

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """A task was made in the body's context; it ends with the body."""
        if self._adopted is None:
            self._adopted = weakref.WeakSet()
        self._adopted.add(task)

    def _tasks(self) -> Iterator[asyncio.Task[Any]]:
        if self._main is not None:
            yield self._main
        if self._adopted is not None:
            yield from self._adopted

    def owns(self, task: asyncio.Task[Any]) -> bool:
        """Whether it is the body's, or was made by it."""
        return any(task is one for one in self._tasks())

    async def _rest(self, ending: Ending) -> None:
        if ending.kind == "lost":
            await self._let_go(ending.error)
            return
        if ending.kind == "closed":
            self.recorder.close()
            await self._release()
            self._set_result(
                RunResult(run_id=self.run_id, status="interrupted", reason=ending.reason, stages=self._stages())
            )
            return
        reached_its_end = ending.kind in ("completed", "exit", "returned")
        if reached_its_end:
            self._note_passed(self.tracker.root)
        event = ending.event(self.lookup.drift() if reached_its_end else [])
        last = Append(event, None, f"{'ended' if ending.final else 'paused'}:{self.lease.epoch}")
        try:
            if ending.final and not ending.resumable and waiting(self.history):
                await end_children(
                    self.engine.journal, self.engine.holder, self.history, "the run that started it ended"
                )
            if ending.kind == "exit" and self._exit_blobs:
                await self.engine.journal.put_blobs(self._exit_blobs)
            await self.recorder.commit([last])
        except JournalError as trouble:
            await self._let_go(trouble)
            return
        except asyncio.CancelledError:
            if self.recorder.fault is None:
                raise
            await self._let_go(self.recorder.fault)
            return
        self.recorder.close()  # the last event gave the lease back
        status = ending.status or ending.kind
        self._set_result(
            RunResult(
                run_id=self.run_id,
                status=status,
                result=ending.value,
                error=ending.error,
                exited=ending.kind == "exit",
                exit_reason=ending.reason if ending.kind == "exit" else None,
                reason=None if ending.kind == "exit" else ending.reason,
                stages=self._stages(),
                workflow=self.definition.name,
            )
        )

    async def _release(self) -> None:
        try:
            await self.engine.journal.release(self.lease)
        except JournalError as error:
            log.debug("the lease of run %s was not given back: %s", self.run_id, error)

    async def _let_go(self, error: BaseException | None) -> None:
        self.recorder.close()
        if not isinstance(error, StaleLeaseError):
            await self._release()  # if the journal answers again, anybody may go on at once
        self._lost(error)

    def _lost(self, error: BaseException | None) -> None:
        """The run is not ours any more, or cannot be written: stop without a word in the journal."""
        self.recorder.close()
        self._entries.end()
        self.engine.forget(self)
        if not self.result.done():
            self.result.set_exception(error or RuntimeError("the run was lost"))
            self.result.exception()

    def _set_result(self, result: RunResult[Any]) -> None:
        self._entries.end()
        self.engine.forget(self)
        if not self.result.done():
            self.result.set_result(result)

    def _stages(self) -> tuple[dict[str, Any], ...]:
        return tuple(
            {
                "id": call.node_id,
                "name": call.name,
                "kind": call.kind,
                "status": call.status,
                "parent_ids": call.parents.nodes,
                "execution_order": order,
            }
            for order, call in enumerate(self.calls, 1)
        )

    def _fault(self, error: BaseException) -> None:
        """Writing failed: nothing that happens from here on could be kept, so nothing more is done."""
        self.end(Ending(kind="lost", error=error, reason=str(error)))

    def lost(self, error: BaseException) -> None:
        """Somebody else has the run now."""
        self._fault(error)

    def hold_back(self) -> None:
        """From here on no step begins; those at work go on."""
        self.max_open = 0

    @property
    def busy(self) -> bool:
        """Whether a step is at work. A question, a sleep and a child that is not busy itself only wait."""
        return any(node_id not in self._waits and not node_id.startswith("workflow:") for node_id in self.live)

    @property
    def root_run_id(self) -> str | None:
        """The outermost run that it belongs to; None where it is that run."""
        return self.history.created.root_run_id if self.history.created is not None else None

    async def close(self, reason: str = "closed") -> None:
        """Stop owning the run; it can be resumed by anybody. Appends nothing."""
        self.end(Ending(kind="closed", reason=reason))
        if self._supervisor is not None:
            await asyncio.wait({self._supervisor})

    # ------------------------------------------------------------ calls

    def gate(self) -> None:
        """No durable call begins once the run is ending.

        Raises:
            WorkflowExit: the body chose its end; every call says it again.
            asyncio.CancelledError: the run has ended otherwise.
        """
        if self._ending is not None:
            raise asyncio.CancelledError("the run has ended")
        if self._exit is not None:
            raise WorkflowExit

    def called(self, kind: str, name: str, identity: str, where: str) -> Call:
        """A durable call was made: give it its key and its parents, and look it up."""
        self.gate()
        if threading.get_ident() != self._thread:
            raise LoomError(
                f"{kind} {name!r} was called in another thread; only a @step may be, the rest belongs in the body"
            )
        branch = self.branch()
        node_id = self.keys.key(kind, name, identity)
        found = self.lookup.ask(node_id, kind, name)
        parents = self.tracker.on_spawn(node_id, branch)
        if branch.failures:
            self._note_passed(branch)
        call = Call(node_id, kind, name, where, found, parents, branch)
        if self._copies and node_id in self._copies:
            del self._copies[node_id]
            self.recorder.ride(ev.NodeRecalled(parents=parents.recorded(node_id)), node_id, f"{node_id}:recalled")
        self.calls.append(call)
        self.moved()
        return call

    def _note_passed(self, branch: Branch) -> None:
        for node_id in branch.passed():
            self.recorder.ride(ev.NodeFailurePassed(), node_id, f"{node_id}:passed:{self.lease.epoch}")

    def branch(self) -> Branch:
        """The branch that the current call belongs to: the task, once it makes durable calls of its own."""
        branch, owner = _PLACE.get((self.tracker.root, 0))
        try:
            here = id(asyncio.current_task())
        except RuntimeError:  # a thread that carries the run's context
            return branch
        if owner != here:
            branch = Branch(branch)
            _PLACE.set((branch, here))
        return branch

    def start_branch(self, branch: Branch) -> None:
        """Let the current task be that branch."""
        _PLACE.set((branch, id(asyncio.current_task())))

    def settled(self, call: Call, status: str) -> None:
        """The call is done; what is called from now on comes after it."""
        call.status = status
        self.tracker.on_settle(call.node_id, _PLACE.get((call.branch, 0))[0])  # type: ignore[arg-type]
        self.moved()

    def at_work(self, call: Call, *, waits: bool = False) -> _AtWork:
        """While a call works, or waits for something outside."""
        return _AtWork(self, call.node_id, waits)

    def _enter(self, node_id: str, waits: bool) -> None:
        self.live[node_id] = asyncio.current_task()
        if waits:
            self._waits[node_id] = None
        self._went_live = True
        self.moved()

    def _leave(self, node_id: str) -> None:
        del self.live[node_id]
        self._waits.pop(node_id, None)
        self._interrupted.pop(node_id, None)
        self.aborted.pop(node_id, None)
        while self._room and len(self.live) < self.max_open:
            future = next(iter(self._room))
            del self._room[future]
            if not future.done():
                future.set_result(None)
                break
        self.moved()

    async def room(self) -> None:
        """Wait while too many calls are at work."""
        while len(self.live) >= self.max_open:
            future = self._loop.create_future()
            self._room[future] = None
            await future

    def interrupting(self, call: Call) -> bool:
        """Whether the run's end, ``ctx.exit`` or a person ends that call, whatever comes of its code now."""
        return self._ending is not None or call.node_id in self.aborted or call.node_id in self._interrupted

    def interruption(self, call: Call, error: BaseException) -> BaseException:
        """What a call that was interrupted raises: the exit, where ``ctx.exit`` did it; the abort, where a person did."""
        if call.node_id in self.aborted and isinstance(error, asyncio.CancelledError):
            aborted, task = self.aborted.pop(call.node_id), asyncio.current_task()
            if task is not None:
                task.uncancel()
            self.raised(aborted, call.node_id, passes=False)
            return aborted
        if call.node_id in self._interrupted and isinstance(error, asyncio.CancelledError):
            self._interrupted.pop(call.node_id, None)
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            return WorkflowExit()
        return error

    def raised(self, error: BaseException, node_id: str, *, passes: bool = True) -> None:
        """A call's failure goes into the body. Once the body passed it, it replays (``passes``)."""
        self._raised[id(error)] = (error, node_id)
        if len(self._raised) > 256:
            del self._raised[next(iter(self._raised))]
        if passes:
            _PLACE.get((self.tracker.root, 0))[0].failed(node_id)  # type: ignore[arg-type]

    def _node_of(self, error: BaseException | None) -> str | None:
        """The node whose failure this is, through causes and groups."""
        todo, seen = [error], set[int]()
        while todo:
            at = todo.pop(0)
            if at is None or id(at) in seen:
                continue
            seen.add(id(at))
            known = self._raised.get(id(at))
            if known is not None and known[0] is at:
                return known[1]
            if isinstance(at, BaseExceptionGroup):
                todo += at.exceptions
            todo += [at.__cause__, at.__context__]
        return None

    @property
    def turns(self) -> Turns:
        """Whose answer from the journal is next. Only executions that replay something have to know."""
        if self._turns is None:
            self._turns = Turns(self.lookup)
        return self._turns

    async def hold(self, call: Call) -> None:
        """Return when the call is new. If it is a mismatch, the run pauses, and this is cancelled."""
        if self._held is None:
            self._held = HeldCalls(
                self.lookup,
                busy=lambda: (len(self.turns), len(self.live) - len(self._waits)),
                on_mismatch=self._mismatched,
            )
        await self._held.hold(call)

    def moved(self) -> None:
        """The body did something durable."""
        if self._held is not None:
            self._held.moved()

    def _mismatched(self, call: Call, recorded: tuple[Record, ...]) -> None:
        self.end(ending_for(self, call, recorded))

    async def decide_gone(self, call: Call) -> None:
        """An effect is about to be done while others are recorded that the code does not do any more: a person decides."""
        self.end(gone_ending(self, call, self.gone))
        await self._loop.create_future()  # until the end cancels it

    # ------------------------------------------------------------ output and exit

    def announce(self, names: Sequence[str], frontier: Frontier) -> int:
        """Say which names the nodes of some branches may have. Returns what :meth:`announced_over` takes."""
        self._announced += 1
        event = ev.BranchesAnnounced(index=self._announced, names=list(names), parents=frontier.seen())
        self.recorder.ride(event, None, f"announced:{self.lease.epoch}:{self._announced}")
        return self._announced

    def announced_over(self, index: int) -> None:
        """Those branches have settled."""
        if self._ending is None:
            event = ev.BranchesSettled(index=index)
            self.recorder.ride(event, None, f"announced:{self.lease.epoch}:{index}:settled")

    def report(self, value: Any, namespace: str = "") -> None:
        """Output of the body; what an earlier execution has said already is not said again."""
        if in_step.get() is not None:
            self._report_of_step(Raw(codec.encode(value, path="the reported value").json), namespace)
            return
        index = self._reports.get(namespace, 0)
        self._reports[namespace] = index + 1
        anew = bool(self.history.edits) and self._went_live  # done again, and so said again
        if index < self.history.reports.get(namespace, 0) and not anew:
            return
        encoded = codec.encode(value, path="the reported value")
        self.recorder.ride(
            ev.OutputReported(namespace=namespace, index=index, value=Raw(encoded.json)),
            None,
            f"report:{namespace}:{index}{self.again if anew else ''}",
        )

    def _report_of_step(self, value: Raw, namespace: str) -> None:
        """A step that is answered from the journal reports nothing, so its reports are not counted."""
        event = ev.OutputReported(namespace=namespace, index=-1, value=value)
        if self.on_thread:
            self.recorder.ride(event)
        else:
            self._loop.call_soon_threadsafe(self.recorder.ride, event)

    def spent(self, call: ev.ModelCalled, node_id: str) -> None:
        """A model was asked; it is written with the next append and counts from now on."""
        self.recorder.ride(call, node_id)
        self.ledger.charge(call)

    def warn(self, text: str) -> None:
        """Something that a person should know about this run's code, once per text."""
        if self._ending is None:
            index = self.history.reports.get("warning", 0) + self._reports.get("warning", 0)
            self._reports["warning"] = self._reports.get("warning", 0) + 1
            value = Raw(codec.encode(text).json)
            self.recorder.ride(ev.OutputReported(namespace="warning", index=index, value=value))

    def exit(self, status: str, reason: str | None, outputs: dict[str, Any] | None, resumable: bool) -> NoReturn:
        """``ctx.exit``: the first one counts. Raises WorkflowExit, always."""
        if self._exit is None and self._ending is None:
            chosen, blobs = exit_ending(status, reason, outputs, resumable, self.definition.check_partial)
            if self.on_thread:
                self._choose_exit(chosen, blobs, asyncio.current_task())
            else:
                self._loop.call_soon_threadsafe(self._choose_exit, chosen, blobs, None)
        raise WorkflowExit

    def _choose_exit(self, chosen: Ending, blobs: tuple[Blob, ...], here: asyncio.Task[Any] | None) -> None:
        if self._exit is not None or self._ending is not None:
            return
        self._exit, self._exit_blobs = chosen, blobs
        for node_id, task in self.live.items():
            if task is not None and task is not here:
                self._interrupted[node_id] = None
                task.cancel("workflow-exit")
        self._loop.call_later(EXIT_PATIENCE_S, lambda: self.end(chosen))


class _AtWork:
    """A context manager without a generator behind it: it stands around every step."""

    __slots__ = ("_node_id", "_waits", "_x")

    def __init__(self, x: Execution, node_id: str, waits: bool) -> None:
        self._x, self._node_id, self._waits = x, node_id, waits

    def __enter__(self) -> None:
        self._x._enter(self._node_id, self._waits)

    def __exit__(self, *exc: object) -> None:
        self._x._leave(self._node_id)
