"""A recorded history against the code as it is now: whether the body still asks for what is recorded, and nothing else.

A dry replay (:mod:`loom_kernel.engine.dry`) that is strict: every answer comes from the record, and the first call that
has none there, or the first record that nobody asks for, is where the two diverge. What a step does inside does not count,
since it does not run.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from loom_kernel import codec
from loom_kernel import events as ev
from loom_kernel.authoring.registry import workflow_names_equal
from loom_kernel.authoring.workflow import WorkflowDefinition
from loom_kernel.engine.calls import Call
from loom_kernel.engine.dry import DryExecution, DryRun
from loom_kernel.engine.endings import Ending
from loom_kernel.engine.execution import Execution
from loom_kernel.engine.plan import PlannedNode, brief, decoded
from loom_kernel.engine.replay import History, Hit, Live, Record, had_effect
from loom_kernel.errors import InputError, LoomError, ResumeError, UnknownClassError, UnknownRunError
from loom_kernel.ids import RunId
from loom_kernel.journal.abc import JournalEntry

if TYPE_CHECKING:
    from loom_kernel.engine.engine import Engine

What = Literal["call", "unasked", "end", "inputs"]
"""``call``: a call is made that the record does not answer. ``unasked``: the record has a call that is not made.
``end``: the body ends otherwise. ``inputs``: the recorded inputs do not fit."""

MOST_CHILDREN = 1_000


@dataclass(frozen=True)
class Side:
    """One side of a divergence: a call, or an end.

    Attributes:
        arguments: the call's, in short; of an end its result or error.
        where: the line it was made at.
    """

    kind: str
    name: str
    arguments: Any = None
    where: str = ""
    node_id: str = ""

    def __str__(self) -> str:
        if self.kind == "end":
            return f"the run {self.name}" + (f": {_short(self.arguments)}" if self.arguments is not None else "")
        node = PlannedNode(self.node_id, self.kind, self.name, "runs", called=self.arguments)
        text = f"{self.kind} {brief(node)}".rstrip()
        if self.kind == "prompt" and self.arguments:
            text += f" {_short(self.arguments)}"
        return f"{text} at {self.where}" if self.where else text

    def to_json(self) -> dict[str, Any]:
        """As the command line prints it."""
        return {
            "kind": self.kind,
            "name": self.name,
            "arguments": self.arguments,
            "where": self.where,
            "nodeId": self.node_id,
        }


@dataclass(frozen=True)
class Divergence:
    """Where record and code part.

    Attributes:
        after: how many calls were answered from the record before.
        why: in words.
        recorded, now: both sides; None where there is nothing on that side.
    """

    what: What
    why: str
    after: int = 0
    recorded: Side | None = None
    now: Side | None = None

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.why}, after {self.after} answered calls",
                f"  recorded: {self.recorded or 'nothing'}",
                f"  now:      {self.now or 'nothing'}",
            ]
        )


@dataclass(frozen=True)
class Replay:
    """What came of a replay.

    Attributes:
        calls: how many were answered from the record.
        divergence: the first; None where the history replays whole.
        goes_on: the first new call of a run that had not come to its end: the record was used up there.
        children: the replays of its child runs, where their histories are there.
    """

    run_id: str
    workflow: str
    calls: int
    divergence: Divergence | None = None
    goes_on: Side | None = None
    children: tuple[Replay, ...] = ()

    @property
    def ok(self) -> bool:
        """It replays whole, and so do its children."""
        return self.divergence is None and all(child.ok for child in self.children)

    def diverged(self) -> list[Replay]:
        """Those of it and its children that diverge."""
        own = [self] if self.divergence is not None else []
        return own + [found for child in self.children for found in child.diverged()]

    def to_json(self) -> dict[str, Any]:
        """As the command line prints it."""
        found = self.divergence
        return {
            "runId": self.run_id,
            "workflow": self.workflow,
            "ok": self.ok,
            "calls": self.calls,
            "goesOn": self.goes_on.to_json() if self.goes_on else None,
            "divergence": None
            if found is None
            else {
                "what": found.what,
                "why": found.why,
                "after": found.after,
                "recorded": found.recorded.to_json() if found.recorded else None,
                "now": found.now.to_json() if found.now else None,
            },
            "children": [child.to_json() for child in self.children],
        }

    def __str__(self) -> str:
        bad = self.diverged()
        if not bad:
            more = f"; from there it goes on with {self.goes_on}" if self.goes_on else ""
            kids = f" and {len(self.children)} child runs" if self.children else ""
            return f"{self.workflow} {self.run_id} replays whole: {self.calls} calls{kids}{more}"
        return "\n".join(f"{found.workflow} {found.run_id} diverges: {found.divergence}" for found in bad)


async def replay(
    engine: Engine,
    run_id: str,
    definition: WorkflowDefinition[..., Any],
    *,
    secrets: Mapping[str, Any] | None = None,
) -> Replay:
    """Replay a run against the definition. Nothing is written and no effect is done.

    Raises:
        UnknownRunError: nothing is recorded of it.
        ResumeError: it is a run of another workflow, or a secret input is missing.
    """
    entries = [entry async for entry in engine.journal.read(RunId(run_id))]
    if not entries:
        raise UnknownRunError(run_id)
    history = History.of(entries)
    workflow = history.created.workflow if history.created is not None else ""
    if not workflow_names_equal(workflow, definition.name):
        raise ResumeError(f"run {run_id} is a run of {workflow!r}; it cannot be replayed as {definition.name!r}")
    try:
        values = await engine.restore(run_id, definition, history, secrets)
    except ResumeError as error:
        if not isinstance(error.__cause__, (InputError, UnknownClassError)):
            raise
        return Replay(run_id, workflow, 0, Divergence("inputs", f"its recorded inputs do not fit: {error.__cause__}"))
    strict = _Strict(history, entries)
    x = DryExecution(engine, run_id, definition, values, entries, history, strict)
    strict.x = x
    x.begin()
    await strict.follow(x)
    answered = sum(call.status in ("completed", "failed") for call in x.calls)
    divergence = strict.divergence or (None if strict.goes_on else await strict.at_end(x))
    if divergence is not None:
        divergence = replace(divergence, after=answered)
    children = []
    for child_id, child in strict.children[:MOST_CHILDREN]:
        with contextlib.suppress(UnknownRunError):  # a history without it
            children.append(await replay(engine, child_id, child, secrets=secrets))
    return Replay(run_id, workflow, answered, divergence, strict.goes_on, tuple(children))


class _Strict(DryRun):
    """A dry replay that answers from the record alone.

    Attributes:
        over: whether the body itself brought the recorded run to its end; otherwise the record may stop anywhere.
    """

    x: DryExecution

    def __init__(self, history: History, entries: list[JournalEntry]) -> None:
        super().__init__()
        self.history = history
        self.ended = history.ended
        self.over = _body_ended(history.ended)
        self.divergence: Divergence | None = None
        self.goes_on: Side | None = None
        self.children: list[tuple[str, WorkflowDefinition[..., Any]]] = []
        self._one_body = len({e.event.definition_version for e in entries if isinstance(e.event, ev.RunStarted)}) == 1

    # ------------------------------------------------------------ asked by the drivers

    async def step(self, x: Execution, call: Call, code: str, *, kept: bool = True, other: str = "") -> Record:
        self._moves += 1
        found = call.found
        record = found.record if isinstance(found, (Hit, Live)) else None
        if record is None:
            await self._missing(call)
        elif other:
            self._diverge("call", other, recorded(record), _called(call))
        elif record.status == "completed" and not kept:
            self._diverge("call", "its result was not kept, so it cannot be replayed", recorded(record), _called(call))
        elif record.status in ("completed", "failed"):
            return record
        else:
            await self._hang(x, call)
        return await _never()

    async def child(self, x: Execution, call: Call, definition: WorkflowDefinition[..., Any]) -> Record:
        record = call.found.record if isinstance(call.found, (Hit, Live)) else None
        if record is not None and record.child_run_id:
            self.children.append((record.child_run_id, definition))
        return await self.step(x, call, "")

    async def sleep(self, x: Execution, call: Call, found: Record | None) -> None:
        self._moves += 1
        if found is None:
            await self._missing(call)
        await self._hang(x, call)

    async def ask(self, name: str) -> None:
        self._moves += 1
        self._unanswered(Side("value", name))
        await _never()

    def value(self, kind: str, name: str, where: str) -> None:
        self._unanswered(Side(kind, name, where=where))
        raise asyncio.CancelledError("the replay ends here")

    def rests(self, x: Execution) -> bool:
        # A body that had come to its end did so without these answers: a timeout of its own may still be running.
        return not self.over and super().rests(x)

    async def _missing(self, call: Call) -> None:
        """A call without a record: told when the rest of the body had its turn, so that what is left is known."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.append((call, future))
        await future
        self._unanswered(_called(call))
        await _never()

    async def _hang(self, x: Execution, call: Call) -> None:
        """It was called in the record too, and never answered there."""
        call.status = "waiting"
        with x.at_work(call, waits=True):
            try:
                await _never()
            except asyncio.CancelledError as cancel:
                call.status = "cancelled"
                raise x.interruption(call, cancel) from None

    # ------------------------------------------------------------ what came of it

    def _unanswered(self, now: Side) -> None:
        left = self._left()
        if not left and not self.over:
            self.goes_on = self.goes_on or now
            self._end()
            return
        same = [record for record in left if (record.kind, record.name) == (now.kind, now.name)]
        stands = recorded((same or left)[0]) if left else self._recorded_end()
        why = "a call has other arguments than recorded" if same else "a call is not in the record"
        self._diverge("call", why, stands, now)

    def _diverge(self, what: What, why: str, recorded: Side | None, now: Side | None) -> None:
        if self.divergence is None and self.goes_on is None:
            self.divergence = Divergence(what, why, recorded=recorded, now=now)
        self._end()

    def _end(self) -> None:
        self.x.end(Ending(kind="closed", reason="replay"))

    def _left(self) -> list[Record]:
        """Records that were not asked for and should have been, in the order of their calls."""
        excused = {*self.history.accepted, *(self.ended.drift if self.ended is not None else ())}
        ids = set(self.x.lookup.drift()) - excused
        last = self.ended.failed_node_id if self.ended is not None else None
        called = {call.node_id for call in self.x.calls}
        return [
            record
            for record in self.history.records.values()
            if record.node_id in ids
            or (record.node_id == last and record.node_id not in called and not had_effect(record))
        ]

    async def at_end(self, x: DryExecution) -> Divergence | None:
        """The divergence that shows when the body has come as far as it comes."""
        ending = x.ending
        ended = ending is not None and ending.reason != "dry"
        now = _end_of(ending) if ended and ending is not None else None
        if left := self._left():
            return Divergence("unasked", "a recorded call is not made", recorded=recorded(left[0]), now=now)
        if not self.over:
            return None
        if now is None:
            waits = next((call for call in x.calls if call.status in ("pending", "waiting")), None)
            why = "the body does not come to its end with what is recorded"
            return Divergence("end", why, recorded=self._recorded_end(), now=_called(waits) if waits else None)
        if self._one_body:
            for key, value in self.history.values.items():
                if x.keys.count(key) < int(key.rpartition("#")[2]):
                    side = Side(value.kind, value.name, decoded_value(value), node_id=key)
                    return Divergence("unasked", "a recorded value is not asked for", recorded=side, now=now)
        assert ending is not None and self.ended is not None
        return await self._other_end(x, ending, self.ended, now)

    async def _other_end(self, x: DryExecution, ending: Ending, ended: ev.RunEnded, now: Side) -> Divergence | None:
        was = self._recorded_end()
        if (ending.status or ending.kind) != ended.status or (ending.kind == "exit") != ended.exited:
            return Divergence("end", "the body ends otherwise", recorded=was, now=now)
        if ended.error is not None and ending.record is not None:
            same = ended.error.type == ending.record.type or ended.error.message == ending.record.message
            return None if same else Divergence("end", "the body fails otherwise", recorded=was, now=now)
        if bytes(ending.result) == bytes(ended.result):
            return None
        with contextlib.suppress(LoomError, LookupError):  # files of tables differ where their contents are the same
            if b'"$loom"' in bytes(ended.result):
                kept = codec.content_hash(await x.decode(ended.result))
                if kept == codec.content_hash(ending.value):
                    return None
        return Divergence("end", "the body's result is another", recorded=was, now=now)

    def _recorded_end(self) -> Side | None:
        ended = self.ended
        if ended is None:
            return None
        said = f"{ended.error.type.rpartition(':')[2]}: {ended.error.message}" if ended.error is not None else None
        return Side("end", ended.status, said if said is not None else _plain(bytes(ended.result)))


async def _never() -> Any:
    """Until the end cancels it."""
    await asyncio.get_running_loop().create_future()


def _body_ended(ended: ev.RunEnded | None) -> bool:
    if ended is None:
        return False
    returned = ended.status == "blocked" and bytes(ended.result) != b"null"
    return ended.exited or returned or ended.status in ("completed", "skipped", "failed")


def recorded(record: Record) -> Side:
    """The recorded side."""
    arguments = record.opened.message if record.opened is not None else decoded(record)
    return Side(record.kind, record.name, arguments, record.where, record.node_id)


def _called(call: Call) -> Side:
    return Side(call.kind, call.name, _plain(call.preview()), call.where, call.node_id)


def _end_of(ending: Ending) -> Side:
    if ending.error is not None:
        return Side("end", "failed", f"{type(ending.error).__name__}: {ending.error}")
    return Side("end", ending.status or ending.kind, _plain(bytes(ending.result)))


def decoded_value(value: ev.ValueRecorded) -> Any:
    """A recorded value in short."""
    return {"value": _plain(bytes(value.value))}


def _plain(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return None


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= 120 else f"{text[:119]}…"
