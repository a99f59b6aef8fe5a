"""A dry replay: the body runs with recorded answers and no effect, to learn what it would do now.

What must run again is first waited for with everything else; when nothing moves any more, it is answered with what it
gave the last time, and what is called from then on depends on it. So the whole plan is known before anything runs.
Plain code of the body runs, as at every resume.
"""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, Any

import msgspec

from loom_kernel.authoring.code import family_version, uses
from loom_kernel.authoring.workflow import WorkflowDefinition
from loom_kernel.engine.caching import Answer
from loom_kernel.engine.calls import Call
from loom_kernel.engine.endings import Ending
from loom_kernel.engine.execution import Execution
from loom_kernel.engine.mismatch import diff
from loom_kernel.engine.plan import EditPlan, Fate, Heard, StartPlan, assemble, judge
from loom_kernel.engine.replay import History, Hit, Live, Record, replayable
from loom_kernel.ids import HolderId, RunId
from loom_kernel.journal.abc import JournalEntry, Lease, LeaseAcquired

if TYPE_CHECKING:
    from loom_kernel.engine.engine import Engine

QUIET_S = 0.03
"""A body that made no durable call for this long waits for what it cannot have yet."""

PATIENCE_S = 20.0
"""How long the body is followed in all."""

_READS = ("get", "list", "find", "read")


async def plan(
    engine: Engine,
    run_id: str,
    definition: WorkflowDefinition[..., Any],
    inputs: dict[str, Any],
    entries: list[JournalEntry],
) -> EditPlan:
    """What the definition would do with what is recorded. Nothing is written and no effect is done.

    Args:
        inputs: restored.
        entries: the run's whole history.
    """
    history = History.of(entries)
    dry = DryRun()
    x = DryExecution(engine, run_id, definition, inputs, entries, history, dry)
    x.begin()
    problem = await dry.follow(x)
    return assemble(
        dry.heard,
        history,
        can_call=uses(definition.fn).can_call,
        problem=problem,
        version=definition.version,
        diff=diff(history.source, definition.source),
    )


async def start(engine: Engine, definition: WorkflowDefinition[..., Any], inputs: dict[str, Any]) -> StartPlan:
    """What a new run would do. Nothing is written and no effect is done.

    Args:
        inputs: checked.
    """
    dry, history = DryRun(), History()
    x = DryExecution(engine, "plan", definition, inputs, [], history, dry)
    x.begin()
    problem = await dry.follow(x)
    made = assemble(dry.heard, history, can_call=lambda kind, name: True, problem=problem, version=definition.version)
    return StartPlan(made.nodes, problem=problem, version=definition.version)


class _Silent:
    """A recorder that writes nothing."""

    fault = None

    def ride(self, *_: Any, **__: Any) -> None:
        pass

    async def commit(self, appends: Any) -> list[Any]:
        return [None] * len(appends)

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Reader:
    """A journal that can be read and forgets what is written."""

    def __init__(self, journal: Any) -> None:
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        if name in ("append", "append_then", "post", "acquire", "takeover", "start_run", "create_run"):
            raise AssertionError(f"a dry replay does not {name}")
        return getattr(self._journal, name)

    async def put_blobs(self, blobs: Any) -> None:
        pass

    async def release(self, lease: Lease) -> None:
        pass


class DryExecution(Execution):
    """An execution whose durable calls are asked about instead of made."""

    def __init__(
        self,
        engine: Engine,
        run_id: str,
        definition: WorkflowDefinition[..., Any],
        inputs: dict[str, Any],
        entries: list[JournalEntry],
        history: History,
        dry: DryRun,
    ) -> None:
        mine = copy.copy(engine)
        mine.journal = _Reader(engine.journal)  # type: ignore[assignment]
        mine.executions, mine._watchdog = {}, None
        lease = Lease(run_id=RunId(run_id), holder_id=HolderId("dry"), epoch=0)
        super().__init__(mine, definition, inputs, LeaseAcquired(lease=lease, entries=entries), history)
        self.recorder = _Silent()  # type: ignore[assignment]
        self.history.cancel = None
        self.dry = dry

    @property
    def replaying(self) -> bool:
        return True  # whatever the body prints was printed, or will be


class DryRun:
    """What a dry replay heard so far, and the calls that wait in it."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.after = self.stuck = ""
        self._waiting: list[tuple[asyncio.Future[Record | None], Heard]] = []
        self._held: list[tuple[Call, asyncio.Future[None]]] = []
        self._moves = 0

    # ------------------------------------------------------------ asked by the drivers

    async def step(self, x: Execution, call: Call, code: str, *, kept: bool = True, other: str = "") -> Record:
        """The record that answers the call, at once or after everything else had its turn.

        Args:
            code: hash of what the call does now.
            kept: whether results of it are kept.
            other: why the record does not answer it although it has its key.

        Raises:
            asyncio.CancelledError: there is none; the dry replay ends here.
        """
        self._moves += 1
        found = call.found
        record: Record | None = None
        fate: Fate
        if isinstance(found, Hit):
            record = found.record
            fate, why = judge(record, code, kept=kept or record.status == "failed", after=self.after)
            if other:
                fate, why = "rerun", other
            if fate in ("reused", "depends"):
                self._hear(call, fate, why, record)
                return record
        elif isinstance(found, Live):
            record = found.record
            fate, why = "runs", _unfinished(record)
            if record is not None and call.node_id in x.history.stale:
                fate, why = "rerun", "its code was edited"
        else:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._held.append((call, future))
            await future
            candidates = x.lookup.candidates(call.kind, call.name)
            if candidates:
                record = candidates[0]
                x.lookup.give_up(record)
                fate, why = "rerun", "its arguments are others now"
            else:
                fate, why = "runs", "new"
        heard = self._hear(call, fate, why, record)
        answer: asyncio.Future[Record | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((answer, heard))
        old = await answer
        if old is None:
            await asyncio.get_running_loop().create_future()  # until the end cancels it
        assert old is not None
        return old

    def cached(self, call: Call, hit: Answer) -> None:
        """The call is answered with an earlier run's result."""
        self._moves += 1
        self._hear(call, "cached", f"run {hit.run_id}", None)

    async def child(self, x: Execution, call: Call, definition: WorkflowDefinition[..., Any]) -> Record:
        """The same for a child workflow: its code is all that it can call."""
        return await self.step(x, call, family_version(definition.fn))

    async def ask(self, name: str) -> None:
        """Return if a capability may be asked although nobody recorded the answer: it only reads."""
        self._moves += 1
        if not name.rpartition(".")[2].startswith(_READS):
            await asyncio.get_running_loop().create_future()

    async def sleep(self, x: Execution, call: Call, found: Record | None) -> None:
        """A sleep that is not over in the record takes no time."""
        x.settled(call, "completed")

    def value(self, kind: str, name: str, where: str) -> None:
        """A value that nobody recorded (``ctx.now``, ``put``, ...) is about to be made; in a plan it may be."""

    def rests(self, x: Execution) -> bool:
        """Whether a quiet body waits for what it will not have."""
        return any(call.status in ("pending", "waiting") for call in x.calls)

    def _hear(self, call: Call, fate: Fate, why: str, record: Record | None) -> Heard:
        heard = Heard(
            call.node_id, call.kind, call.name, fate, why, _shown(call.preview()), call.where, record, self.after
        )
        self.heard.append(heard)
        return heard

    # ------------------------------------------------------------ following it

    async def follow(self, x: DryExecution) -> str:
        """Let the body go as far as it goes; what kept it from its end, in words."""
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE_S
        before = -1
        problem = ""
        while not x.result.done():
            if loop.time() > end:
                problem = f"the body was followed for {PATIENCE_S:g} s and did not come to its end"
                break
            moves = self._moves + len(x.calls)
            if moves != before or len(x.turns) or x.busy:
                before = moves
                await asyncio.wait({x.result}, timeout=QUIET_S)
                continue
            if self._waiting:
                self._answer_waiting()
            elif self._held:
                self._release_held()
            elif self.rests(x):
                break  # it waits for what nobody has
            else:
                await asyncio.wait({x.result}, timeout=QUIET_S)
                continue
            before = -1
            await asyncio.sleep(0)
        ending = x.ending
        if ending is None:
            waits = self.stuck or next((h.name for h in self.heard if h.fate == "runs"), "")
            problem = problem or (f"what comes after {waits} is not known before it has run" if waits else "")
        elif ending.kind == "failed" and ending.error is not None:
            problem = f"the body fails with {type(ending.error).__name__}: {ending.error}"
        x.end(Ending(kind="closed", reason="dry"))
        await asyncio.wait({x.result}, timeout=PATIENCE_S)
        return problem

    def _release_held(self) -> None:
        held, self._held = self._held, []
        for _, future in held:
            if not future.done():
                future.set_result(None)

    def _answer_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for answer, heard in waiting:
            self.after = self.after or heard.name
            record = heard.record
            if not answer.done():
                usable = record is not None and replayable(record)
                self.stuck = self.stuck or ("" if usable else heard.name)
                answer.set_result(record if usable else None)


def _unfinished(record: Record | None) -> str:
    if record is None:
        return "new"
    if record.status == "open":
        return "it was under way"
    return {"failed": "it failed", "cancelled": "it was cancelled"}.get(record.status, "new")


def _shown(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return None
