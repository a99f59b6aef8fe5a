"""Turns of model stages: durable calls whose work is done by whoever plugs in as the capability ``models``.

A turn is a step that says more on its way: messages of a session, tools that begin, what a model was asked. All of it is
durable before the next effect, so that a turn that was cut off goes on where it was. What a stage asks and does is not
known here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from loom_kernel import codec
from loom_kernel import events as ev
from loom_kernel.authoring.agents import SessionRef
from loom_kernel.authoring.context import CancelToken, in_step
from loom_kernel.authoring.people import Question
from loom_kernel.engine import budgets, prompts, steps
from loom_kernel.engine.aborting import abort
from loom_kernel.engine.calls import Call, Durable
from loom_kernel.engine.executor import Work
from loom_kernel.engine.keys import identify_content
from loom_kernel.engine.port import RunPort
from loom_kernel.engine.steps import Plan
from loom_kernel.errors import LoomError
from loom_kernel.ids import RunId
from loom_kernel.journal.abc import Append
from loom_kernel.policies import Retry

if TYPE_CHECKING:
    from loom_kernel.engine.execution import Execution

log = logging.getLogger("loom_kernel.engine")

STAGES_AT_ONCE = 3
"""Turns at work in one family of runs, where nobody says otherwise."""

Said = ev.MessageRecorded | ev.SessionMoved


class Turn:
    """One turn of a stage while it is at work."""

    def __init__(self, x: Execution, call: Call, cwd: Path) -> None:
        self._x, self._call, self._handle = x, call, in_step.get()
        self.cwd = cwd
        self.call_id = ""
        """Of the tool's call that is at work."""
        self.reserved: Path | None = None
        """A file that is written at the end, and by no tool."""

    @property
    def run_id(self) -> str:
        """The run."""
        return self._x.run_id

    @property
    def started_in(self) -> Path:
        """The folder the run was started in."""
        return self._x.context.cwd

    @property
    def bound(self) -> Mapping[str, Any]:
        """What the run's inputs say of its stages' worktree: ``git_worktree_dir``, ``base_branch``."""
        bindings = self._x.definition.input_bindings.get("worktree", {})
        return {option: self._x.inputs.get(name) for option, name in bindings.items()}

    @property
    def root_run_id(self) -> str:
        """The outermost run that it belongs to."""
        return self._x.root_run_id or self._x.run_id

    @property
    def node_id(self) -> str:
        """The turn's node."""
        return self._call.node_id

    @property
    def stage_name(self) -> str:
        """The stage."""
        return self._call.name

    @property
    def cancelled(self) -> CancelToken:
        """Whether somebody asked for the run's end."""
        return self._x.cancelled

    def said(self, session: str) -> Sequence[Said]:
        """What the journal has of a session of this run, in order. It grows with :meth:`record`."""
        return self._x.history.sessions.setdefault(session, [])

    @property
    def spoken(self) -> bool:
        """Whether this turn's prompt was said already, now or before a crash."""
        return self.node_id in self._x.history.spoken

    @property
    def asked(self) -> Sequence[ev.ModelCalled]:
        """What models were asked in this turn, also before a crash."""
        return self._x.history.asked.get(self.node_id, ())

    @property
    def posted(self) -> Sequence[ev.MessagePosted]:
        """Messages of this run that the journal had when it was opened."""
        return self._x.history.posted

    def begun(self, session: str, call_id: str) -> bool:
        """Whether that tool call began, now or before a crash."""
        return (session, call_id) in self._x.history.begun

    @property
    def routed(self) -> ev.ModelRouted | None:
        """What was chosen for this turn."""
        return self._x.history.routed.get(self.node_id)

    async def record(self, *events: ev.Event) -> None:
        """Write what must not be lost; it is durable when this returns."""
        x, history = self._x, self._x.history
        appends = []
        for event in events:
            key = None
            match event:
                case ev.MessageRecorded(session=session, id=id):
                    key = f"message:{session}:{id}"
                case ev.ToolCalled(session=session, call_id=call_id):
                    key = f"tool:{session}:{call_id}:{x.lease.epoch}"
                case ev.ModelRouted():
                    key = f"{self.node_id}:routed{x.again}"
                case ev.ModelCalled():
                    x.ledger.charge(event)
            appends.append(Append(event, self.node_id, key))
        with x.engine.clock.busy():
            await x.recorder.commit(appends)
        for event in events:
            match event:
                case ev.MessageRecorded() | ev.SessionMoved():
                    history.sessions.setdefault(event.session, []).append(event)
                    if isinstance(event, ev.MessageRecorded) and event.kind == "prompt":
                        history.spoken[self.node_id] = None
                case ev.ModelCalled():
                    history.asked.setdefault(self.node_id, []).append(event)
                case ev.ToolCalled():
                    history.begun[(event.session, event.call_id)] = None
                case ev.ModelRouted():
                    history.routed[self.node_id] = event

    async def encode(self, value: Any, path: str) -> Raw:
        """A value as events keep it, its large parts kept before."""
        encoded = codec.encode(value, path=path)
        await self._x.put_blobs(encoded)
        return Raw(encoded.json)

    async def decode(self, raw: Raw) -> Any:
        """The other way round."""
        return await self._x.decode(raw)

    def spent(self, call: ev.ModelCalled) -> None:
        """A model was asked in vain: written with the next append, and counted."""
        self._x.history.asked.setdefault(self.node_id, []).append(call)
        self._x.spent(call, self.node_id)

    async def look(self) -> None:
        """Before each call of a model: whether the budget allows it.

        Raises:
            WorkflowBudgetExceededError: it is spent; the stage was told to wrap up before.
        """
        if self._x.ledger.limited:
            await self._x.ledger.look(self.stage_name)

    @contextlib.contextmanager
    def wrapping_up(self, wrap_up: budgets.WrapUp) -> Iterator[None]:
        """While this holds, a spent budget asks the stage for its last words with ``wrap_up``."""
        wrap_ups = self._x.wrap_ups
        outer = wrap_ups.get(self.node_id)
        wrap_ups[self.node_id] = wrap_up
        try:
            yield
        finally:
            wrap_ups.pop(self.node_id, None)
            if outer is not None:
                wrap_ups[self.node_id] = outer

    def busy(self) -> contextlib.AbstractContextManager[None]:
        """Around real work, during which a test's clock stands still."""
        return self._x.engine.clock.busy()

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._x.engine.clock.time()

    def monotonic(self) -> float:
        """Seconds that only grow."""
        return self._x.engine.clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait on the engine's clock."""
        await self._x.engine.clock.sleep(seconds)

    def say(self, line: str) -> None:
        """A line for the node's log."""
        if self._handle is not None:
            self._handle.log(line)

    def tell(self, event: Mapping[str, Any]) -> None:
        """Something that happens in the session, for those who watch; nothing is kept of it."""
        for listener in tuple(self._x.engine.session_listeners):
            try:
                listener(self.run_id, self.node_id, event)
            except Exception as error:
                log.debug("a listener of session events raised %r", error)

    async def answers(self, name: str) -> list[Any]:
        """What was answered in this turn to questions of that name before a crash, in order."""
        records = self._x.history.records.values()
        found = [r for r in records if r.within == self.node_id and r.name == name and r.status == "completed"]
        return [await self._x.decode(record.result) for record in found]

    async def ask(self, question: Question) -> Any:
        """Ask the person. ``question.identity`` tells this question from others of the stage with the same name.

        The answer is durable, and found again when the turn goes on after a crash.
        """
        x = self._x
        shown, shown_hash = prompts.show(x, question.show)
        identity = identify_content(self.node_id, question.identity)
        question = dataclasses.replace(question, within=self.node_id, identity="")
        token = in_step.set(None)
        try:
            made = x.called("prompt", question.name, identity, question.where)
            return await prompts.drive(x, made, question, shown, shown_hash)
        finally:
            in_step.reset(token)


class StagePort(RunPort):
    """What the capability ``models`` may do in a run."""

    @property
    def cwd(self) -> Path:
        """The folder the run was started in."""
        return self._x.context.cwd

    @property
    def definition_name(self) -> str:
        """The workflow."""
        return self._x.definition.name

    @property
    def root_run_id(self) -> str:
        """The outermost run that it belongs to."""
        return self._x.root_run_id or self._x.run_id

    def when_over(self, fn: Callable[[], None]) -> None:
        """Call ``fn`` when the outermost run has ended for good, if this is it."""
        x = self._x

        def over(_: Any) -> None:
            if x.ending is not None and x.ending.final:
                fn()

        if x.root_run_id in (None, x.run_id):
            x.result.add_done_callback(over)

    def session(self, name: str) -> SessionRef:
        """A new session for a stage of that name: the same one whenever the body comes here."""
        key = self._x.keys.key("session", name)
        return SessionRef(self._x.run_id, f"{name}#{key.rpartition('#')[2]}")

    def said(self, session: str) -> Sequence[Said]:
        """What the journal has of a session of this run."""
        return self._x.history.sessions.get(session, ())

    async def said_elsewhere(self, ref: SessionRef) -> list[Said]:
        """What the journal has of a session of any run.

        Raises:
            LoomError: there is no such session.
        """
        if ref.run_id == self._x.run_id:
            found = list(self.said(ref.name))
        else:
            found = []
            async for entry in self._x.engine.journal.read(RunId(ref.run_id)):
                if isinstance(entry.event, (ev.MessageRecorded, ev.SessionMoved)) and entry.event.session == ref.name:
                    found.append(entry.event)
        if not found:
            raise LoomError(
                f"no session {str(ref)!r} in this journal; fork_from_session_id takes the session_id of an earlier result"
            )
        return found

    def gate(self) -> None:
        """See ``Execution.gate``."""
        self._x.gate()

    def fresh(self, name: str) -> str:
        """A text that is the same whenever the body comes here, and nowhere else in the run."""
        return str(self._x.keys.key("said", name))

    async def note(self, name: str, event: Said) -> None:
        """Write an event of a session that the body asked for; once, whenever the body comes here."""
        x = self._x
        key = x.keys.key("said", name)
        if key in x.history.values:
            return
        done = ev.ValueRecorded(kind="said", name=name, value=Raw(b"true"))
        await x.recorder.commit([Append(event, None, f"{key}:event"), Append(done, key, key)])
        x.history.values[key] = done
        x.history.sessions.setdefault(event.session, []).append(event)

    def abort(self, node_id: str) -> bool:
        """End one turn that is at work; whether it ends."""
        return abort(self._x, node_id, "the body")

    def turn(
        self,
        name: str,
        work: Callable[[Turn], Awaitable[Any]],
        *,
        at: str,
        what: str,
        preview: Callable[[], bytes],
        at_once: int | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """A durable call of kind ``stage``: it gets its key now, and ``work`` runs when it is awaited and not recorded.

        Args:
            name: the stage, which with its occurrence identifies the call.
            at: the body's line.
            what: for the warning of a call that is never awaited.
            preview: makes the arguments' preview for people.
            at_once: how many turns of this family of runs are at work at once.
        """
        x = self._x
        x.gate()
        if in_step.get() is not None:
            raise LoomError(f"{what} belongs in the workflow's body, not in a step")
        made = x.called("stage", name, "", at)
        made.preview = preview

        async def fn() -> Any:
            return await work(Turn(x, made, self.cwd))

        plan = Plan(
            Work(name=name, fn=fn, args=(), kwargs={}, is_async=True),
            Retry(),
            waits=True,
            limit=(f"stages of {self.root_run_id}", at_once or x.concurrency or STAGES_AT_ONCE),
        )
        return Durable(steps.drive(x, made, plan), what, at)
