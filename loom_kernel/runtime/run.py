"""``Run``: the handle that people hold. It reads the view, waits, and posts what they ask for."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from msgspec import Raw

from loom_kernel import codec, events
from loom_kernel.authoring.result import RunResult
from loom_kernel.errors import (
    AnswerError,
    JournalError,
    RunError,
    RunOverError,
    StaleLeaseError,
    UnknownRunError,
    WouldBlock,
)
from loom_kernel.ids import RunId
from loom_kernel.journal.abc import Append, AppendOutcome, JournalEntry
from loom_kernel.policies import Budget, ExecutionPolicy
from loom_kernel.runtime import outcome
from loom_kernel.runtime.loop import tick, wait_for
from loom_kernel.runtime.node import NodeRef, find_node
from loom_kernel.views.node import SETTLED, PromptView
from loom_kernel.views.run import RunView

if TYPE_CHECKING:
    from loom_kernel.authoring.agents import WorkflowDetails
    from loom_kernel.authoring.workflow import WorkflowDefinition
    from loom_kernel.engine.plan import EditPlan
    from loom_kernel.runtime.core import Runtime
    from loom_kernel.runtime.forking import Fork
    from loom_kernel.runtime.looking import RunAt, RunDiff
    from loom_kernel.runtime.nodes import NodeGroup
    from loom_kernel.views.why import Why

R = TypeVar("R")

Listener = Callable[[JournalEntry], None]

ANSWER_GRACE_S = 0.15
"""How long a question may be open before a headless wait gives up on it: early answers and scripts need a moment."""


class Run(Generic[R]):
    """One run, live here, in another process, or long finished.

    ``await r`` or ``r.wait()`` gives its :class:`RunResult`. Blocking members have awaitable twins named ``..._async``
    and raise :class:`WouldBlock` on the thread that runs workflows.

    Attributes:
        show: whether its live view is wanted.
        how: the sentence that says how a start found it; empty for a new run.
        policy: whether an open question waits for its answer; None where the place of whoever waits says it.
    """

    def __init__(self, runtime: Runtime, run_id: str, definition: WorkflowDefinition[..., R] | None = None) -> None:
        self._runtime = runtime
        self._id = RunId(run_id)
        self._definition = definition
        self._execution: Any = None
        self._unlisten: Callable[[], None] | None = None
        self._follower: asyncio.Task[None] | None = None
        self._listeners: list[Listener] = []
        self._said_listeners: list[Callable[[], None]] = []
        self._changed: list[asyncio.Event] = []
        self._last: RunResult[R] | None = None  # of the last execution here, until somebody executes it again
        self._resuming = 0  # resumes on their way: who waits from then on waits for what they come to
        self._settling: set[str] = set()  # node ids of questions for which an answer is on its way
        self._kept: set[str] = set()  # names of questions that were answered before they were open
        self._view = RunView(run_id)
        self._unfolded: deque[JournalEntry] = deque()  # taken, and not in the view yet: nobody looked
        self._folding = threading.Lock()
        self._seq = 0  # of the newest entry that was taken
        self.show = True
        self.how = ""
        self.policy: ExecutionPolicy | None = None

    # ------------------------------------------------------------ facts

    @property
    def view(self) -> RunView:
        """The read model; current for a run that is live here or listened to. Any thread may look."""
        with self._folding:
            while self._unfolded:
                self._view.apply(self._unfolded.popleft())
        return self._view

    @property
    def id(self) -> str:
        """The run's id."""
        return self._id

    @property
    def workflow(self) -> str:
        """The workflow's name."""
        self._refresh("r.workflow")
        return self.view.workflow

    @property
    def status(self) -> str:
        """pending, running, awaiting_input, paused, blocked, completed, skipped, cancelled, failed, killed; or
        ``interrupted``: it should be running and nobody runs it."""
        self._refresh("r.status")
        return self.view.shown_status

    @property
    def reason(self) -> str | None:
        """Why it rests, where there is a reason: stopped, needs_decision, budget, provider, or what ``ctx.exit`` said."""
        self._refresh("r.reason")
        return self.view.reason

    @property
    def held_by(self) -> str:
        """Who executes it, where that is another process; empty when it is this one or nobody."""
        self._refresh("r.held_by")
        return "" if self.view.at_rest or self.view.interrupted else self.view.held_by

    @property
    def key(self) -> str | None:
        """The key it was started with."""
        self._refresh("r.key")
        return self.view.key

    @property
    def tags(self) -> tuple[str, ...]:
        """Its labels."""
        self._refresh("r.tags")
        return tuple(self.view.tags)

    @property
    def inputs(self) -> dict[str, Any]:
        """Its inputs; secret ones as their digests."""
        return self._block("inputs", self.inputs_async)

    async def inputs_async(self) -> dict[str, Any]:
        """Twin of :attr:`inputs`."""
        return await self._over(self._inputs)

    @property
    def value(self) -> R:
        """What the body returned.

        Raises:
            RunFailed, RunStopped: it did not end well.
            RunError: it has not ended.
        """
        return self._block("value", self.value_async)

    async def value_async(self) -> R:
        """Twin of :attr:`value`."""
        return await self._over(self._value)

    @property
    def live(self) -> bool:
        """Whether this process executes it now."""
        return self._execution is not None and not self._execution.result.done()

    # ------------------------------------------------------------ waiting

    def __await__(self) -> Generator[Any, Any, RunResult[R]]:
        return self._await().__await__()

    async def _await(self) -> RunResult[R]:
        return outcome.or_raise(self, await self._wait_elsewhere())

    def wait(self, timeout: float | None = None) -> RunResult[R]:
        """Wait until the run rests. An interrupt ends the waiting, not the run.

        Args:
            timeout: seconds to wait; None waits for ever.

        Raises:
            RunFailed: it failed or is blocked.
            RunStopped: it was paused, or cancelled or killed from outside.
            NeedsAnswer: a question is open and nobody is there to answer it.
            TimeoutError: it does not rest yet.
            WouldBlock: on the thread that runs workflows.
        """
        return outcome.or_raise(self, self._wait_here(timeout, "r.wait()", "r"))

    async def wait_async(self, timeout: float | None = None) -> RunResult[R]:
        """Twin of :meth:`wait`; the same as ``await r`` but for the timeout."""
        return await asyncio.wait_for(self._await(), timeout)

    def settle(self, timeout: float | None = None) -> RunResult[R]:
        """Like :meth:`wait`, but returns the result of every outcome. Only a timeout raises."""
        return self._wait_here(timeout, "r.settle()", "r.settled()")

    async def settled(self) -> RunResult[R]:
        """Like ``await r``, but never raises for the outcome. Headless with an open question: status awaiting_input."""
        return await self._wait_elsewhere()

    settle_async = settled

    def _wait_here(self, timeout: float | None, name: str, twin: str) -> RunResult[R]:
        loop, host = self._runtime.loop, self._runtime.host
        if loop.inside:
            raise WouldBlock(name, twin)
        future = loop.submit(self._rests(self._headless()))
        try:
            with host.waiting(self):
                return wait_for(future, timeout)
        except KeyboardInterrupt as interrupt:
            raise (host.interrupted(self) or interrupt) from None
        except TimeoutError:
            if future.done():
                raise
            raise TimeoutError(f"{outcome.title(self)} does not rest after {timeout:g} s; it goes on") from None
        finally:
            future.cancel()  # ends the waiting only

    async def _wait_elsewhere(self) -> RunResult[R]:
        loop, host = self._runtime.loop, self._runtime.host
        if loop.inside:
            return await self._rests(self.policy is not None and self._headless())
        future = loop.submit(self._rests(self._headless()))
        try:
            with host.waiting(self):
                return await tick(future)
        except (asyncio.CancelledError, KeyboardInterrupt) as interrupt:
            raised = host.interrupted(self)
            if raised is None:
                raise
            raise raised from interrupt
        finally:
            future.cancel()

    def _headless(self) -> bool:
        """Whether nobody is there who would answer."""
        return self._runtime.host.place().headless if self.policy is None else not self.policy.allow_human_input

    async def _rests(self, headless: bool) -> RunResult[R]:
        """On the loop thread: wait until the run rests, or until a headless wait meets a question nobody answers."""
        watching = asyncio.ensure_future(self._unanswered()) if headless else None
        resting = asyncio.ensure_future(self._at_rest())
        waits = {t for t in (resting, watching) if t is not None}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if resting.done() or watching is None:
                return await resting
            return await watching
        finally:
            for task in waits:
                task.cancel()

    async def _at_rest(self) -> RunResult[R]:
        while True:
            execution = self._execution
            if execution is not None:
                try:
                    result: RunResult[R] = await asyncio.shield(execution.result)
                except StaleLeaseError:
                    self._detach(execution)  # another worker has it now; it is followed from here on
                    continue
                return outcome.with_stages(result, self)
            async with self._following():
                changed = self._change()
                try:
                    while self._execution is None and (self._resuming or not self.view.at_rest):
                        changed.clear()
                        await changed.wait()
                finally:
                    self._changed.remove(changed)
            if self._execution is None:
                return self._last or await self._result()

    async def _unanswered(self) -> RunResult[R]:
        """Return when a question has been open for a moment and no answer is on its way."""
        while True:
            prompts = [p for run in self._family() for p in run.view.open_prompts if not run._answer_coming(p)]
            if prompts:
                await asyncio.sleep(ANSWER_GRACE_S)
                open_now = {(p.node_id, p.generation) for run in self._family() for p in run.view.open_prompts}
                if any((p.node_id, p.generation) in open_now for p in prompts):
                    return RunResult(run_id=self._id, status="awaiting_input", reason="needs_answer")
            await asyncio.sleep(0.02)

    def _answer_coming(self, prompt: PromptView) -> bool:
        return prompt.node_id in self._settling or (prompt.generation == 1 and prompt.prompt in self._kept)

    def _family(self) -> list[Run[Any]]:
        """This run and the children that are live here."""
        family: list[Run[Any]] = [self]
        for node in list(self.view.nodes.values()):
            if node.child_run_id and node.status not in SETTLED:
                child = self._runtime.live_run(node.child_run_id)
                if child is not None and self.view.owns(node, child.view):
                    family += child._family()
        return family

    async def _result(self) -> RunResult[R]:
        return await outcome.result_of(self.view, self._runtime, self._definition)

    # ------------------------------------------------------------ questions

    def prompts(self) -> list[PromptView]:
        """The open questions, oldest first; those of its children included."""
        return self._block("prompts()", self.prompts_async)

    async def prompts_async(self) -> list[PromptView]:
        """Twin of :meth:`prompts`."""
        return [prompt for _, prompt in await self._over(self._open_prompts)]

    def answer(self, value: Any, *, prompt: str | None = None, by: str = "") -> None:
        """Answer an open question; durable when it returns. The first valid answer wins.

        Args:
            value: as the question wants it; ``"yes"``, a label, a number of an option and the like are understood.
            prompt: its name (``go``, ``go#2``) or id; may be left out while one question is open. A name whose
                question is not open yet keeps the answer for it.
            by: who answers, for the record.

        Raises:
            AnswerError: no such question, several and none named, an answer that does not fit, or somebody was first.
        """
        by = self._by(by)
        self._block("answer()", lambda: self.answer_async(value, prompt=prompt, by=by))

    async def answer_async(self, value: Any, *, prompt: str | None = None, by: str = "") -> None:
        """Twin of :meth:`answer`."""
        by = self._by(by)
        await self._over(lambda: self._answer(value, prompt, by))

    async def _open_prompts(self) -> list[tuple[Run[Any], PromptView]]:
        await self._load()
        found = [(run, prompt) for run in self._family() for prompt in run.view.open_prompts]
        for node in list(self.view.nodes.values()):
            # A child that lives in another process is read from the journal.
            if node.child_run_id and node.status not in SETTLED and self._runtime.live_run(node.child_run_id) is None:
                child = self._runtime.run_object(node.child_run_id)
                with contextlib.suppress(UnknownRunError):  # its node begins a moment before it exists
                    await child._load()
                    if self.view.owns(node, child.view):
                        found += await child._open_prompts()
        return found

    async def _answer(self, value: Any, name: str | None, by: str) -> None:
        from loom_kernel.human.answer import encode_answer

        prompts = await self._open_prompts()
        if name is None:
            if not prompts:
                raise AnswerError(self._nothing_asked())
            if len(prompts) > 1:
                names = ", ".join(p.prompt for _, p in prompts)
                raise AnswerError(
                    f"{outcome.title(self)} asks {len(prompts)} questions; say which with prompt=: {names}"
                )
            run, prompt = prompts[0]
        else:
            found = [(r, p) for r, p in prompts if name in (p.prompt, p.node_id)]
            if not found:
                try:
                    await self._answer_early(name, value, by, [p.prompt for _, p in prompts])
                    return
                except AnswerError:
                    # It may have opened this very moment: the journal knows, and the view hears of it next.
                    found = await self._opening(name)
                    if not found:
                        raise
            run, prompt = found[0]
        await run._post_answer(prompt, encode_answer(prompt.opened, value), by)

    def _nothing_asked(self) -> str:
        asks = f"{outcome.title(self)} asks nothing now"
        last = next((node for node in reversed(self.view.nodes.values()) if node.kind == "prompt"), None)
        if last is not None and last.status in ("running", "completed"):
            who = f" by {last.answered_by}" if last.answered_by else ""
            return f"{asks}: {last.name!r} was answered{who} already, and the first answer counts"
        if self.view.at_rest:
            return f"{outcome.title(self)} is {self.view.shown_status} and asks nothing"
        return f"{asks}; name the question to answer it beforehand"

    async def _opening(self, name: str) -> list[tuple[Run[Any], PromptView]]:
        for _ in range(20):
            await asyncio.sleep(0.01)
            found = [(r, p) for r, p in await self._open_prompts() if name in (p.prompt, p.node_id)]
            if found or self.view.at_rest:
                return found
        return []

    async def _post_answer(self, prompt: PromptView, raw: Raw, by: str) -> None:
        opened = prompt.opened
        event = events.PromptAnswered(generation=opened.generation, value=Raw(raw), by=by, shown_hash=opened.shown_hash)
        key = f"answer:{prompt.node_id}:{opened.generation}"
        outcome_ = await self._post(Append(event, prompt.node_id, key))
        first = cast(events.PromptAnswered, outcome_.entry.event)
        if outcome_.status == "exists" and bytes(first.value) != bytes(raw):
            who = first.by or "somebody else"
            raise AnswerError(f"the question {prompt.prompt!r} was answered by {who} already; the first answer counts")

    async def _answer_early(self, name: str, value: Any, by: str, open_now: list[str]) -> None:
        if self.view.at_rest:
            raise AnswerError(f"{outcome.title(self)} is {self.view.shown_status} and asks nothing")
        node = find_node(self.view, name, kind="prompt")
        if node is not None and node.status in ("completed", "running"):
            who = f" by {node.answered_by}" if node.answered_by else ""
            raise AnswerError(f"the question {name!r} was answered{who} already; the first answer counts")
        if ":" in name:
            there = f"; open are {', '.join(open_now)}" if open_now else ""
            raise AnswerError(f"no question {name!r} is open{there}")
        encoded = codec.encode(value, path="answer")
        event = events.AnswerKept(prompt=name, value=Raw(encoded.json), by=by)
        await self._post(Append(event, None, f"early:{name}"))

    async def _post(self, append: Append) -> AppendOutcome:
        try:
            return await self._runtime.post(self._id, append)
        except RunOverError as over:
            raise AnswerError(f"{outcome.title(self)} has ended ({over.status}) and asks nothing") from None

    # ------------------------------------------------------------ steering

    def stop(self, *, by: str = "") -> None:
        """Pause the run so that it can be resumed; finished steps are kept. Durable when it returns."""
        by = self._by(by)
        self._block("stop()", lambda: self.stop_async(by=by))

    async def stop_async(self, *, by: str = "") -> None:
        """Twin of :meth:`stop`."""
        by = self._by(by)
        await self._over(lambda: self._runtime.steer(self, "stop", by))

    def cancel(self, *, reason: str = "", by: str = "") -> None:
        """End the run for good. Durable when it returns."""
        by = self._by(by)
        self._block("cancel()", lambda: self.cancel_async(reason=reason, by=by))

    async def cancel_async(self, *, reason: str = "", by: str = "") -> None:
        """Twin of :meth:`cancel`."""
        by = self._by(by)
        await self._over(lambda: self._runtime.steer(self, "cancel", by, reason))

    def pause(self, *, by: str = "") -> None:
        """The same as :meth:`stop`, by the reference's name. A body is not held in memory: resuming replays it."""
        self.stop(by=by)

    async def pause_async(self, *, by: str = "") -> None:
        """Twin of :meth:`pause`."""
        await self.stop_async(by=by)

    def quit(self, *, by: str = "") -> None:
        """The same as :meth:`stop`, by the reference's name: no call begins any more, those at work are cancelled and
        waited for, then the rest is durable."""
        self.stop(by=by)

    async def quit_async(self, *, by: str = "") -> None:
        """Twin of :meth:`quit`."""
        await self.stop_async(by=by)

    def kill(self, *, reason: str = "", by: str = "") -> None:
        """End the run for good, with the status killed; otherwise like :meth:`cancel`. Durable when it returns."""
        by = self._by(by)
        self._block("kill()", lambda: self.kill_async(reason=reason, by=by))

    async def kill_async(self, *, reason: str = "", by: str = "") -> None:
        """Twin of :meth:`kill`."""
        by = self._by(by)
        await self._over(lambda: self._runtime.steer(self, "kill", by, reason))

    def abort(self, node: str | NodeRef, *, by: str = "") -> None:
        """End one step or tool that is at work; its siblings go on. The body gets ``NodeAborted`` from that call; a run
        that it ends can be resumed, and then the call runs again. Durable when it returns.

        Args:
            node: as in ``r[node]``: its name, name and number, id, or ``child/name``.
            by: who asks, for the record.

        Raises:
            KeyError: there is no such node, or several.
            LoomError: it is not at work, or no step and no tool.
        """
        by = self._by(by)
        self._block("abort()", lambda: self.abort_async(node, by=by))

    async def abort_async(self, node: str | NodeRef, *, by: str = "") -> None:
        """Twin of :meth:`abort`."""
        from loom_kernel.runtime import control

        by = self._by(by)
        await self._over(lambda: control.abort(self._runtime, self, node, by))

    def wake(self, correlation_ids: list[str] | None = None) -> None:
        """End sleeps early: those with the given correlation ids, or all."""
        self._block("wake()", lambda: self.wake_async(correlation_ids))

    async def wake_async(self, correlation_ids: list[str] | None = None) -> None:
        """Twin of :meth:`wake`."""
        event = events.WakeRequested(correlation_ids=correlation_ids or [], by=self._runtime.host.place().label)
        await self._over(lambda: self._runtime.post(self._id, Append(event, None, f"wake:{uuid.uuid4().hex}")))

    @property
    def notes(self) -> tuple[str, ...]:
        """What people wrote down about it, the oldest first."""
        self._refresh("r.notes")
        return tuple(note.text for note in self.view.notes)

    def note(self, text: str, *, by: str = "") -> None:
        """Write something down about the run; also when it has ended. Durable when it returns.

        Raises:
            TypeError: it is no text.
        """
        by = self._by(by)
        self._block("note()", lambda: self.note_async(text, by=by))

    async def note_async(self, text: str, *, by: str = "") -> None:
        """Twin of :meth:`note`."""
        if not isinstance(text, str) or not text.strip():
            raise TypeError(f"a note is a text, not {text!r}")
        event = events.RunNoted(text=text, by=self._by(by))

        async def post() -> None:
            await self._runtime.post(self._id, Append(event, None, f"note:{uuid.uuid4().hex}"))
            await self._load()

        await self._over(post)

    def resume(
        self,
        *,
        accept: bool = False,
        take: bool = False,
        secrets: dict[str, Any] | None = None,
        edited: bool = False,
        recorded: bool = False,
        budget: Budget | None = None,
    ) -> Run[R]:
        """Go on with a run that rests or was interrupted, here.

        Args:
            accept: run what does not match the recorded history as new work; with ``edited``, without asking first.
            take: take it from the worker that has it, although that worker lives.
            secrets: values of its secret inputs, which are not stored.
            edited: steps whose code was edited run again, and what depends on them; the rest is reused. Where
                finished work is concerned the run rests with the plan as its question, and nothing runs before
                somebody accepts. A run that is finished goes on in a fork, which is returned.
            recorded: with the body as it was recorded, instead of the one that is defined now.
            budget: limits from here on; fields that it leaves out stay. What was spent stays spent.

        Raises:
            UnknownWorkflowError: its workflow is not defined here.
            InputError: a secret input is missing.
            ResumeError: it is finished, or another worker has it.
        """
        how = {
            "accept": accept, "take": take, "secrets": secrets, "edited": edited, "recorded": recorded, "budget": budget,
        }  # fmt: skip
        run = self._block("resume()", lambda: self._over(lambda: self._resume(how)))
        self._runtime.host.started(run, run.how)
        return run

    async def resume_async(
        self,
        *,
        accept: bool = False,
        take: bool = False,
        secrets: dict[str, Any] | None = None,
        edited: bool = False,
        recorded: bool = False,
        budget: Budget | None = None,
    ) -> Run[R]:
        """Twin of :meth:`resume`."""
        how = {
            "accept": accept, "take": take, "secrets": secrets, "edited": edited, "recorded": recorded, "budget": budget,
        }  # fmt: skip
        return await self._over(lambda: self._resume(how))

    async def _resume(self, how: dict[str, Any]) -> Run[R]:
        self._resuming += 1
        try:
            return await self._runtime.resume_async(self._id, **how)
        finally:
            self._resuming -= 1
            self._notify()

    def plan_edited(self, *, secrets: dict[str, Any] | None = None) -> EditPlan:
        """What ``resume(edited=True)`` would do: for each call, reused, runs again, depends on the above, runs, or gone.

        The body is replayed with recorded answers; no effect is done and nothing is written. ``print(plan)`` shows it.

        Args:
            secrets: values of its secret inputs, which are not stored.

        Raises:
            UnknownWorkflowError: its workflow is not defined here.
            ResumeError: its recorded inputs do not fit any more.
        """
        plan: EditPlan = self._block("plan_edited()", lambda: self.plan_edited_async(secrets=secrets))
        return plan

    async def plan_edited_async(self, *, secrets: dict[str, Any] | None = None) -> EditPlan:
        """Twin of :meth:`plan_edited`."""
        from loom_kernel.runtime import edits

        return cast("EditPlan", await self._over(lambda: edits.plan(self._runtime, self, secrets)))

    def rerun(self, **changed: Any) -> Run[R]:
        """Start a new run of the same workflow with the same inputs, but for those given.

        Raises:
            UnknownWorkflowError: its workflow is not defined here.
            InputError: what does not fit; secret inputs must be given again.
        """
        inputs = self._block("rerun()", lambda: self.rerun_inputs_async(**changed))
        definition = self._runtime.definition_of(self.view.workflow, self._definition)
        run: Run[R] = definition.options(fresh=True, tags=tuple(self.view.tags)).start(**inputs)
        return run

    async def rerun_async(self, **changed: Any) -> Run[R]:
        """Twin of :meth:`rerun`."""
        inputs = await self.rerun_inputs_async(**changed)
        definition = self._runtime.definition_of(self.view.workflow, self._definition)
        return cast("Run[R]", await definition.options(fresh=True, tags=tuple(self.view.tags)).start_async(**inputs))

    async def rerun_inputs_async(self, **changed: Any) -> dict[str, Any]:
        """The inputs that :meth:`rerun` would start with."""
        stored = await self.inputs_async()
        definition = self._runtime.definition_of(self.view.workflow, self._definition)
        secret = definition.secret_inputs
        return {**{name: value for name, value in stored.items() if name not in secret}, **changed}

    def fork(
        self,
        from_node: str | NodeRef | None = None,
        *,
        inputs: Mapping[str, Any] | None = None,
        answers: Mapping[str, Any] | None = None,
        secrets: Mapping[str, Any] | None = None,
        tags: tuple[str, ...] | None = None,
        fresh: bool = False,
        show: bool = True,
    ) -> Run[R]:
        """Start another run of the same workflow that begins with this one's records. This one stays as it is.

        Args:
            from_node: this call and all that came after it in the graph run again; ``"child/fetch"`` is one of a
                child's. Left out: every call that is made with the same arguments as before is answered.
            inputs: inputs to change.
            answers: other answers, by the question's name or path. What came after the question runs again; a
                question that was not asked yet is answered beforehand.
            secrets: values of its secret inputs, which are not stored.
            tags: its labels; this run's when left out.
            fresh: make a new run, also where an unfinished one was forked like this in the same cell.
            show: whether its live view is wanted.

        Raises:
            ForkError: no such node, or several of that name.
            UnknownWorkflowError: its workflow is not defined here.
            InputError: what does not fit; secret inputs must be given again.
            AnswerError: an answer that does not fit its question.
        """
        from loom_kernel.runtime.forking import Fork

        given = Fork(from_node, inputs, answers, secrets, tags, fresh)
        run: Run[R] = self._block("fork()", lambda: self._forked(given))
        run.show = show
        self._runtime.host.started(run, run.how)
        return run

    async def fork_async(
        self,
        from_node: str | NodeRef | None = None,
        *,
        inputs: Mapping[str, Any] | None = None,
        answers: Mapping[str, Any] | None = None,
        secrets: Mapping[str, Any] | None = None,
        tags: tuple[str, ...] | None = None,
        fresh: bool = False,
        show: bool = True,
    ) -> Run[R]:
        """Twin of :meth:`fork`."""
        from loom_kernel.runtime.forking import Fork

        run = await self._forked(Fork(from_node, inputs, answers, secrets, tags, fresh))
        run.show = show
        if not self._runtime.loop.inside:
            self._runtime.host.started(run, run.how)
        return run

    async def _forked(self, given: Fork) -> Run[R]:
        from loom_kernel.runtime.forking import fork

        place = self._runtime.host.place()
        return cast("Run[R]", await self._over(lambda: fork(self._runtime, self, place, given)))

    def delete(self) -> None:
        """Remove the run and everything recorded of it.

        Raises:
            RunError: it is being executed.
        """
        self._block("delete()", self.delete_async)

    async def delete_async(self) -> None:
        """Twin of :meth:`delete`."""
        await self._over(lambda: self._runtime.delete(self))

    # ------------------------------------------------------------ reading

    def at(self, time: datetime | float | str | timedelta) -> RunAt:
        """The run as it was at a moment; it can be looked at like a run, and never changes.

        Args:
            time: a datetime, seconds since the epoch, a timedelta after the run's start, or a text: ``"14:03"`` or
                ``"14:03:20"`` on the day of the run, or ISO 8601.

        Raises:
            LoomError: no moment, or one before the run.
        """
        return self._block("at()", lambda: self.at_async(time))

    async def at_async(self, time: datetime | float | str | timedelta) -> RunAt:
        """Twin of :meth:`at`."""
        from loom_kernel.runtime.looking import at

        return await self._over(lambda: at(self._runtime, self, time))

    def why(self, node: str | NodeRef | None = None) -> Why:
        """Why a node, or the run, is as it is: what it was called with, which try failed and how, what came before
        and after it, and in a fork why it ran again.

        Args:
            node: as in ``r[...]``; the run itself when left out.

        Raises:
            KeyError: there is no such node.
        """
        return self._block("why()", lambda: self.why_async(node))

    async def why_async(self, node: str | NodeRef | None = None) -> Why:
        """Twin of :meth:`why`."""
        from loom_kernel.runtime.looking import explain

        return await self._over(lambda: explain(self._runtime, self, node))

    def diff(self, other: Run[Any] | str | None = None) -> RunDiff:
        """This run (A) beside another (B): graph, inputs, results, texts, times, cost.

        Args:
            other: a run or its id; the run that this one was forked from, as A, when left out.

        Raises:
            UnknownRunError: there is no such run.
            RunError: left out, and this is no fork.
        """
        return self._block("diff()", lambda: self.diff_async(other))

    async def diff_async(self, other: Run[Any] | str | None = None) -> RunDiff:
        """Twin of :meth:`diff`."""
        from loom_kernel.runtime.looking import diff

        async def do() -> RunDiff:
            if other is None:
                await self._load()
                if self.view.forked_from is None:
                    raise RunError(f"{outcome.title(self)} is no fork; say with which run to compare it")
                return await diff(self._runtime, self._runtime.run_object(self.view.forked_from), self)
            found = await self._runtime.get_run_async(other) if isinstance(other, str) else other
            return await diff(self._runtime, self, found)

        return cast("RunDiff", await self._over(do))

    def __getitem__(self, path: str) -> NodeRef | NodeGroup:
        """A node by name (``fetch``), name and number (``fetch#2``) or id; ``child/fetch`` is one of a child's.

        Where several have the name, as after ``ctx.map``, it is a :class:`NodeGroup`: ``r["fetch"].table``.

        Raises:
            KeyError: there is none.
        """
        return self._block(f"node({path!r})", lambda: self.node_async(path), f"node_async({path!r})")

    async def node_async(self, path: str) -> NodeRef | NodeGroup:
        """Twin of ``r[path]``."""
        return await self._over(lambda: self._node(path))

    async def _node(self, path: str) -> NodeRef | NodeGroup:
        from loom_kernel.runtime.nodes import NodeGroup

        await self._load()
        try:
            node = find_node(self.view, path)
        except KeyError:
            named = [n for n in (self.view.nodes[i] for i in list(self.view.order)) if n.name == path]
            nodes = [NodeRef(self._runtime, self, n, f"{path}#{i}") for i, n in enumerate(named, 1)]
            return NodeGroup(path, nodes)
        if node is None and "/" in path:
            head, _, rest = path.partition("/")
            parent = find_node(self.view, head)
            if parent is None or parent.child_run_id is None:
                raise KeyError(f"no child workflow named {head!r} in {outcome.title(self)}")
            child = self._runtime.run_object(parent.child_run_id)
            await child._load()
            if not self.view.owns(parent, child.view):
                raise KeyError(f"the run that {head!r} names is not its child; it is looked at by itself: get_run(id)")
            inner = await child._node(rest)
            if isinstance(inner, NodeGroup):
                return NodeGroup(path, [NodeRef(n._runtime, n._run, n._node, f"{head}/{n.path}") for n in inner])
            return NodeRef(self._runtime, inner._run, inner._node, path)
        if node is None:
            names = list(dict.fromkeys(n.name for n in self.view.nodes.values()))
            raise KeyError(f"no node named {path!r}; there are {', '.join(names) or 'none yet'}")
        return NodeRef(self._runtime, self, node, path)

    def nodes(self) -> list[NodeRef]:
        """All nodes, in the order they began."""
        self._refresh("r.nodes()")
        return [NodeRef(self._runtime, self, self.view.nodes[node_id]) for node_id in list(self.view.order)]

    def events(self) -> list[JournalEntry]:
        """Everything recorded of the run, in order; ``entry.event`` is the typed event."""
        return self._block("events()", self.events_async)

    async def events_async(self) -> list[JournalEntry]:
        """Twin of :meth:`events`."""

        async def read() -> list[JournalEntry]:
            return [entry async for entry in self._runtime.journal.read(self._id)]

        return await self._over(read)

    def follow(self) -> Follow:
        """Iterate over the recorded events, then over new ones until the run rests (``for`` and ``async for``)."""
        return Follow(self)

    def output(self, namespace: str | None = None) -> list[Any]:
        """What the body reported and emitted, in order; of one namespace (``""``: lines of ``ctx.report``) or of all."""
        return self._block("output()", lambda: self.output_async(namespace))

    async def output_async(self, namespace: str | None = None) -> list[Any]:
        """Twin of :meth:`output`."""

        async def read() -> list[Any]:
            await self._load()
            reports = [raw for space, raw in list(self.view.reports) if namespace in (None, space)]
            return [await self._runtime.decode(raw) for raw in reports]

        return await self._over(read)

    def graph(self) -> Any:
        """The graph as a ``networkx.DiGraph``."""
        from loom_kernel.views.export import to_networkx

        self._refresh("r.graph()")
        return to_networkx(self.view)

    def details(self) -> WorkflowDetails:
        """The run in short: what its model stages gave, what it needs, what it returned. Follows Atomic's WorkflowDetails."""
        self._refresh("r.details()")
        return self._block("details()", self.details_async)

    async def details_async(self) -> WorkflowDetails:
        """Twin of :meth:`details`."""
        from loom_kernel.runtime.details import details

        return await self._over(lambda: details(self))

    def to_svg(self) -> str:
        """The graph as SVG text."""
        from loom_kernel.views.svg import svg

        self._refresh("r.to_svg()")
        return svg(self.view)

    def to_mermaid(self) -> str:
        """The graph as Mermaid text."""
        from loom_kernel.views.export import to_mermaid

        self._refresh("r.to_mermaid()")
        return to_mermaid(self.view)

    def to_dot(self) -> str:
        """The graph as Graphviz text."""
        from loom_kernel.views.export import to_dot

        self._refresh("r.to_dot()")
        return to_dot(self.view)

    def snapshot(self) -> dict[str, Any]:
        """The run as plain JSON values, as the live view gets them."""
        from loom_kernel.views.snapshot import snapshot

        self._refresh("r.snapshot()")
        return snapshot(self.view, self._runtime.clock.time())

    # ------------------------------------------------------------ listening

    def listen(self, fn: Listener) -> Callable[[], None]:
        """Call ``fn`` with every new entry, on the loop thread, after ``view`` took it in. Returns what ends that."""
        self._runtime.loop.loop.call_soon_threadsafe(self._add_listener, fn)

        def unlisten() -> None:
            self._runtime.loop.loop.call_soon_threadsafe(self._remove_listener, fn)

        return unlisten

    def listen_said(self, fn: Callable[[], None]) -> Callable[[], None]:
        """Call ``fn`` whenever ``view`` has heard another piece of what a model stage says. Returns what ends that."""
        self._said_listeners.append(fn)

        def unlisten() -> None:
            if fn in self._said_listeners:
                self._said_listeners.remove(fn)

        return unlisten

    def _heard_said(self, node_id: str, event: Mapping[str, Any]) -> None:
        self.view.say(node_id, event)
        for fn in list(self._said_listeners):
            fn()

    def _add_listener(self, fn: Listener) -> None:
        self._listeners.append(fn)
        if self._execution is None:
            self._start_following()

    def _remove_listener(self, fn: Listener) -> None:
        if fn in self._listeners:
            self._listeners.remove(fn)
        self._stop_following_if_idle()

    # ------------------------------------------------------------ being kept current (loop thread)

    def _attach(self, execution: Any) -> None:
        """This process executes the run from now on."""
        if self._execution is execution:
            return
        if self._unlisten is not None:
            self._unlisten()
        self._execution = execution
        self._definition = execution.definition
        self._stop_following()
        self._unlisten = execution.listen(self._take)
        execution.result.add_done_callback(lambda result: self._rested(execution, result))
        self._notify()

    def _rested(self, execution: Any, result: asyncio.Future[RunResult[R]]) -> None:
        # From here on the journal tells: somebody else may resume it.
        self._detach(execution)
        if not result.cancelled() and isinstance(result.exception(), StaleLeaseError):
            # It goes on elsewhere, and whoever looks at it here sees where.
            asyncio.get_running_loop().create_task(self._went_away())
        elif not result.cancelled() and result.exception() is None:
            self._last = outcome.with_stages(result.result(), self)
        self._notify()

    async def _went_away(self) -> None:
        with contextlib.suppress(JournalError, UnknownRunError):
            await self._load()
            if self._execution is None and (self._listeners or self._changed):
                self._start_following()

    def _detach(self, execution: Any) -> None:
        if self._execution is execution:
            if self._unlisten is not None:
                self._unlisten()
            self._execution = self._unlisten = None

    def _take(self, entry: JournalEntry) -> None:
        if entry.seq <= self._seq:
            return
        self._seq = entry.seq
        self._unfolded.append(entry)
        if entry.type in (events.RunStarted.type, events.RunPaused.type, events.RunEnded.type):
            self._last = None  # set again when the execution here reports its result
        elif entry.type == events.LeaseTaken.type:
            taken = cast(events.LeaseTaken, entry.event)
            engine = self._runtime.engine
            elsewhere = engine is None or taken.holder != engine.holder.id
            self.view.held_by = (taken.label or taken.kind) if elsewhere else ""
        elif entry.type == events.AnswerKept.type:
            self._kept.add(cast(events.AnswerKept, entry.event).prompt)
        elif entry.type == events.PromptOpened.type and cast(events.PromptOpened, entry.event).generation > 1:
            self._settling.discard(entry.node_id or "")
        for fn in list(self._listeners):
            fn(entry)
        self._notify()

    def _change(self) -> asyncio.Event:
        event = asyncio.Event()
        self._changed.append(event)
        return event

    def _notify(self) -> None:
        for event in self._changed:
            event.set()

    async def _load(self) -> None:
        """Bring the view up to date from the journal, for a run that is not executed here."""
        if self._execution is not None and not self._execution.result.done():
            return
        summary = await self._runtime.journal.get_run(self._id)
        if summary is None:
            raise UnknownRunError(self._id)
        if summary.last_seq > self._seq:
            async for entry in self._runtime.journal.read(self._id, self._seq + 1):
                self._take(entry)
        self.view.interrupted = summary.interrupted

    def _following(self) -> _Following:
        return _Following(self)

    def _start_following(self) -> None:
        if self._follower is None or self._follower.done():
            self._follower = asyncio.get_running_loop().create_task(self._follow_journal())

    def _stop_following(self) -> None:
        if self._follower is not None:
            self._follower.cancel()
            self._follower = None

    def _stop_following_if_idle(self) -> None:
        if not self._listeners and not self._changed:
            self._stop_following()

    async def _follow_journal(self) -> None:
        subscription = self._runtime.journal.subscribe(run_id=self._id)
        try:
            await self._load()
            self._notify()
            async for _ in subscription:
                await self._load()
        finally:
            subscription.close()

    # ------------------------------------------------------------ helpers

    def _refresh(self, name: str) -> None:
        if self.live or self._follower is not None or self._runtime.loop.inside:
            return  # current already, or as current as it can be without blocking
        self._runtime.loop.call(lambda: self._over(self._load), name, "r.settled()")

    def _block(self, name: str, make: Callable[[], Any], twin: str | None = None) -> Any:
        return self._runtime.loop.call(make, f"r.{name}", f"r.{twin or name.removesuffix('()') + '_async()'}")

    def _by(self, by: str) -> str:
        return by or self._runtime.host.place().label

    async def _over(self, make: Callable[[], Any]) -> Any:
        return await self._runtime.on_loop(make)

    async def _inputs(self) -> dict[str, Any]:
        await self._load()
        return cast("dict[str, Any]", await self._runtime.decode(self.view.inputs))

    async def _value(self) -> R:
        await self._load()
        if not self.view.ended:
            raise RunError(
                f"{outcome.title(self)} is {self.view.shown_status}; its value comes with its end (`await r`)"
            )
        result: RunResult[R] = outcome.or_raise(self, await self._result())
        return cast(R, result.result)

    def __repr__(self) -> str:
        view = self.view
        if not view.workflow:
            return "<run>"
        counts = view.counts
        return f"<run of {view.workflow}: {view.shown_status}, {counts.done} of {counts.total} steps>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        from loom_kernel.views.text import bundle

        self._refresh("r")
        return bundle(self.view)


class _Following:
    """Keeps a run's view current while entered."""

    def __init__(self, run: Run[Any]) -> None:
        self._run = run

    async def __aenter__(self) -> None:
        await self._run._runtime.opened()
        await self._run._load()
        if self._run._execution is None and not self._run.view.at_rest:
            self._run._start_following()

    async def __aexit__(self, *exc: object) -> None:
        self._run._stop_following_if_idle()


class Follow:
    """A run's events as they come; ends when the run rests. Iterate with ``for`` or ``async for``."""

    def __init__(self, run: Run[Any]) -> None:
        self._run = run
        self._seq = 0

    def __iter__(self) -> Iterator[JournalEntry]:
        loop = self._run._runtime.loop
        while entries := loop.call(self._more, "for ... in r.follow()", "async for ... in r.follow()"):
            yield from entries

    async def __aiter__(self) -> AsyncIterator[JournalEntry]:
        while entries := await self._run._runtime.on_loop(self._more):
            for entry in entries:
                yield entry

    async def _more(self) -> list[JournalEntry]:
        """The next entries, as soon as there are some; none when the run rests and all were given."""
        run = self._run
        await run._runtime.opened()
        changed = run._change()
        try:
            async with run._following():
                while True:
                    changed.clear()
                    resting = run.view.at_rest and not run.live
                    entries = [entry async for entry in run._runtime.journal.read(run._id, self._seq + 1)]
                    if entries:
                        self._seq = entries[-1].seq
                        return entries
                    if resting:
                        return []
                    await changed.wait()
        finally:
            run._changed.remove(changed)
