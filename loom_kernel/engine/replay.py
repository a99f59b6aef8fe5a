"""What a run's history says to its body: a fold over events, and the two-stage lookup of a call.

Pure: from entries to records, from a call to what shall be done about it, from facts to a decision. Nothing here waits,
writes, or looks at a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from msgspec import Raw

from loom_kernel import events as ev
from loom_kernel.events import NULL


class Entry(Protocol):
    """What the fold needs of a journal's entry."""

    @property
    def seq(self) -> int: ...
    @property
    def type(self) -> str: ...
    @property
    def node_id(self) -> str | None: ...
    @property
    def event(self) -> ev.Event: ...
    @property
    def created_at(self) -> int: ...


RecordStatus = Literal["open", "completed", "failed", "cancelled"]


class Record:
    """What the journal knows of one durable call.

    Attributes:
        status: ``open`` has begun and not ended, as far as is known.
        seq: of the event that settled it (or of its newest), which orders answers on replay.
        passed: the body went on after its failure.
        failures: tries that failed and were followed by another.
    """

    __slots__ = (
        "answer",
        "answered_by",
        "args",
        "attempts",
        "child_run_id",
        "code",
        "correlation_id",
        "cost_usd",
        "error",
        "failures",
        "kind",
        "name",
        "node_id",
        "opened",
        "outcome",
        "passed",
        "result",
        "result_hash",
        "retained",
        "seq",
        "status",
        "tokens",
        "wake_at",
        "where",
        "woken",
    )  # fmt: skip

    def __init__(self, node_id: str, kind: str, name: str) -> None:
        self.node_id, self.kind, self.name = node_id, kind, name
        self.status: RecordStatus = "open"
        self.seq = 0
        self.passed = self.retained = self.woken = False
        self.result: Raw = NULL
        self.result_hash = ""
        self.error: ev.ErrorRecord | None = None
        self.outcome: Raw = NULL
        self.attempts = 1
        self.failures = 0
        self.args: Raw = NULL
        self.where = self.code = self.answered_by = ""
        self.child_run_id: str | None = None
        self.wake_at: float | None = None
        self.correlation_id: str | None = None
        self.tokens, self.cost_usd = 0, 0.0  # of a child's run
        self.opened: ev.PromptOpened | None = None
        self.answer: ev.PromptAnswered | None = None

    @property
    def within(self) -> str:
        """The node of the model stage that asked, of a question."""
        return self.opened.within if self.opened is not None else ""


def _kind_and_name(node_id: str) -> tuple[str, str]:
    kind, _, rest = node_id.partition(":")
    return kind, rest.rpartition("#")[0].rpartition(":")[0]


class History:
    """A run's events, folded for its engine. ``apply`` takes them in order.

    Its sets are dicts with nothing behind the keys: most stay empty, and an empty dict costs the garbage collector nothing.

    Attributes:
        status: pending, running, paused, or a terminal status.
        records: by node id, in the order of their first event.
        values: ``now``, ``random``, ``uuid4`` and ``put`` by key.
        revisions: the newest revision of each artifact, by name.
        reports: how many lines were reported, by namespace.
        early: answers that were given before their question was open, by the prompt's name.
        codes: the code that each step last ran with.
        cancel: asked for and not yet done.
        accepted: records that a person gave up when accepting a mismatch, or let go when forking.
        forked: says that the records before it are copies of another run's.
        copied: those of them that the body has not asked for yet.
        stale: records whose calls a person let run again, since their code was edited, and which have not run since.
        edits: how often the run was gone on with edited code.
        source, version: of the body whose calls were run last. One that was only resumed, and stopped before its
            first effect, is not yet what the run is.
        family_version: of the last execution's body and all that it calls; empty in histories that do not say it.
        active_s: seconds in which it was executed, in stretches that are over; see :attr:`executed_s`.
        tokens, cost_usd: what models used in this run itself.
        warned: dimensions of the budget that were warned of.
        budget: the limits that resumes gave, the newest of each.
        sessions: what was said in model stages, by the session's name, in order; moves within it among them.
        posted: messages that stages sent each other.
        spoken: stages' turns whose prompt was said.
        asked: what models were asked in each stage's turn.
        begun: tool calls of stages that began, by session and the call's id.
        routed: what ``model="auto"`` chose, by node id.
    """

    __slots__ = (
        "_body",
        "_last_at",
        "_since",
        "accepted",
        "active_s",
        "asked",
        "begun",
        "budget",
        "cancel",
        "codes",
        "copied",
        "cost_usd",
        "created",
        "early",
        "edits",
        "ended",
        "executions",
        "family_version",
        "forked",
        "last_seq",
        "paused",
        "posted",
        "reason",
        "records",
        "reports",
        "resumable",
        "revisions",
        "routed",
        "sessions",
        "source",
        "spoken",
        "stale",
        "status",
        "tokens",
        "values",
        "version",
        "warned",
    )  # fmt: skip

    def __init__(self) -> None:
        self.created: ev.RunCreated | None = None
        self.status = "pending"
        self.reason: str | None = None
        self.resumable = False
        self.executions = 0
        self.last_seq = 0
        self.records: dict[str, Record] = {}
        self.values: dict[str, ev.ValueRecorded] = {}
        self.reports: dict[str, int] = {}
        self.revisions: dict[str, int] = {}
        self.early: dict[str, ev.AnswerKept] = {}
        self.codes: dict[str, str] = {}
        self.cancel: ev.CancelRequested | None = None
        self.accepted: dict[str, None] = {}
        self.stale: dict[str, None] = {}
        self.edits = 0
        self.source = self.version = self.family_version = ""
        self._body = ("", "")  # of the execution that has not run a call so far
        self.ended: ev.RunEnded | None = None
        self.paused: ev.RunPaused | None = None
        self.forked: ev.RunForked | None = None
        self.active_s, self.tokens, self.cost_usd = 0.0, 0, 0.0
        self.warned: dict[str, None] = {}
        self.budget: dict[str, float] = {}
        self.sessions: dict[str, list[ev.MessageRecorded | ev.SessionMoved]] = {}
        self.posted: list[ev.MessagePosted] = []
        self.spoken: dict[str, None] = {}
        self.asked: dict[str, list[ev.ModelCalled]] = {}
        self.begun: dict[tuple[str, str], None] = {}
        self.routed: dict[str, ev.ModelRouted] = {}
        self._since: float | None = None  # when the stretch that goes on now began
        self._last_at = 0.0
        self.copied: dict[str, None] = {}

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> History:
        history = cls()
        for entry in entries:
            history.apply(entry)
        return history

    @property
    def over(self) -> bool:
        """The run has ended, for now or for good."""
        return self.status in ev.TERMINAL

    def apply(self, entry: Entry) -> None:
        """Take the next entry; types of a newer version are passed over."""
        self.last_seq = entry.seq
        at = entry.created_at / 1e6
        if entry.type in _STRETCHES:
            begins = entry.type == ev.RunStarted.type
            if self._since is not None:  # a worker that died said nothing: its stretch ends with its last event
                self.active_s += max(0.0, (self._last_at if begins else at) - self._since)
            self._since = at if begins else None
        if entry.type not in _OF_OTHERS:
            self._last_at = at
        fold = _FOLDS.get(entry.type)
        if fold is not None:
            fold(self, entry.event, entry.node_id or "", entry.seq)

    @property
    def executed_s(self) -> float:
        """Seconds in which it was executed before now: of a worker that died, up to the last that it wrote."""
        return self.active_s + (max(0.0, self._last_at - self._since) if self._since is not None else 0.0)

    def _record(self, node_id: str, seq: int, kind: str | None = None, name: str | None = None) -> Record:
        record = self.records.get(node_id)
        if record is None:
            known_kind, known_name = (kind, name) if kind and name is not None else _kind_and_name(node_id)
            record = self.records[node_id] = Record(node_id, known_kind, known_name)
        record.seq = seq
        return record

    def _run_created(self, e: ev.RunCreated, _: str, seq: int) -> None:
        self.created = e
        self.source, self.version = self._body = e.source, e.definition_version
        self.family_version = e.family_version

    def _run_started(self, e: ev.RunStarted, _: str, seq: int) -> None:
        self.status, self.reason, self.ended, self.paused = "running", None, None, None
        self.executions += 1
        self.cancel = None
        self._body = (e.source or self.source, e.definition_version or self.version)
        self.family_version = e.family_version or self.family_version
        self.budget = {**self.budget, **e.budget}

    def _run_paused(self, e: ev.RunPaused, _: str, seq: int) -> None:
        self.status, self.reason, self.paused = "paused", e.reason, e

    def _run_ended(self, e: ev.RunEnded, _: str, seq: int) -> None:
        self.status, self.reason, self.ended, self.resumable = e.status, e.reason, e, e.resumable
        self.cancel = None
        for record in self.records.values():
            if record.status == "open" and record.kind == "prompt":
                record.status = "cancelled"  # the journal takes no answer any more: it is to be asked again
        failed = self.records.get(e.failed_node_id or "")
        if failed is not None and failed.status == "failed":
            failed.passed = False  # the failure that ended the run is tried again, whatever came after it

    def _mismatch_accepted(self, e: ev.MismatchAccepted, _: str, seq: int) -> None:
        self.accepted.update(dict.fromkeys(e.recorded))

    def _run_forked(self, e: ev.RunForked, _: str, seq: int) -> None:
        self.forked = e
        self.tokens, self.cost_usd, self.warned = 0, 0.0, {}  # copies cost nothing
        for record in self.records.values():
            record.tokens, record.cost_usd = 0, 0.0
        self.copied = {node_id: None for node_id, record in self.records.items() if replayable(record)}
        self.accepted.update(
            dict.fromkeys(self.records)
        )  # who forks wants other calls: a copy that is not asked for holds up nothing

    def _run_edited(self, e: ev.RunEdited, _: str, seq: int) -> None:
        self.edited(e)

    def edited(self, e: ev.RunEdited) -> None:
        """A person lets the run go on with edited code."""
        self.edits += 1
        self.stale.update(dict.fromkeys(e.again))
        self.accepted.update(dict.fromkeys(e.aside))

    def _node_recalled(self, e: ev.NodeRecalled, node_id: str, seq: int) -> None:
        self.copied.pop(node_id, None)

    def _cancel_requested(self, e: ev.CancelRequested, _: str, seq: int) -> None:
        if not self.over:
            self.cancel = e

    def _node_started(self, e: ev.NodeStarted, node_id: str, seq: int) -> None:
        record = self._record(node_id, seq, e.kind, e.name)
        self.stale.pop(node_id, None)
        self.source, self.version = self._body
        if record.status == "failed":
            record.failures = 0
        record.status, record.passed, record.retained = "open", False, False
        record.args, record.where, record.code = e.args, e.where, e.code
        record.child_run_id = e.child_run_id or record.child_run_id
        if record.wake_at is None:
            record.wake_at = e.wake_at
        record.correlation_id = e.correlation_id
        if e.kind in ("step", "tool") and e.code:
            self.codes[e.name] = e.code

    def _node_retrying(self, e: ev.NodeRetrying, node_id: str, seq: int) -> None:
        record = self._record(node_id, seq)
        record.failures = max(record.failures, e.attempt)
        record.status = "open"

    def _node_completed(self, e: ev.NodeCompleted, node_id: str, seq: int) -> None:
        record = self._record(node_id, seq)
        record.status, record.result, record.result_hash, record.attempts = (
            "completed",
            e.result,
            e.result_hash,
            e.attempts,
        )
        record.answered_by = e.answered_by
        record.tokens, record.cost_usd = max(record.tokens, e.tokens), max(record.cost_usd, e.cost_usd)

    def _node_failed(self, e: ev.NodeFailed, node_id: str, seq: int) -> None:
        record = self._record(node_id, seq)
        record.status, record.error, record.attempts = "failed", e.error, e.attempts
        record.retained, record.outcome, record.passed = e.retained, e.outcome, False
        record.tokens, record.cost_usd = max(record.tokens, e.tokens), max(record.cost_usd, e.cost_usd)

    def _model_called(self, e: ev.ModelCalled, node_id: str, seq: int) -> None:
        if node_id.startswith("stage:"):
            self.asked.setdefault(node_id, []).append(e)
        self.tokens += e.counted_tokens
        self.cost_usd += max(0.0, e.cost_usd)

    def _said(self, e: ev.MessageRecorded | ev.SessionMoved, node_id: str, seq: int) -> None:
        self.sessions.setdefault(e.session, []).append(e)
        if isinstance(e, ev.MessageRecorded) and e.kind == "prompt":
            self.spoken[node_id] = None

    def _message_posted(self, e: ev.MessagePosted, _: str, seq: int) -> None:
        self.posted.append(e)

    def _tool_called(self, e: ev.ToolCalled, _: str, seq: int) -> None:
        self.begun[(e.session, e.call_id)] = None

    def _model_routed(self, e: ev.ModelRouted, node_id: str, seq: int) -> None:
        self.routed[node_id] = e

    def _budget_warned(self, e: ev.BudgetWarned, _: str, seq: int) -> None:
        self.warned[e.dimension] = None

    def _node_failure_passed(self, e: ev.NodeFailurePassed, node_id: str, seq: int) -> None:
        self._record(node_id, seq).passed = True

    def _node_cancelled(self, e: ev.NodeCancelled, node_id: str, seq: int) -> None:
        record = self._record(node_id, seq)
        record.tokens, record.cost_usd = max(record.tokens, e.tokens), max(record.cost_usd, e.cost_usd)
        if record.status == "open":
            record.status = "cancelled"

    def _value_recorded(self, e: ev.ValueRecorded, node_id: str, seq: int) -> None:
        self.values[node_id] = e

    def _output_reported(self, e: ev.OutputReported, _: str, seq: int) -> None:
        self.reports[e.namespace] = max(self.reports.get(e.namespace, 0), e.index + 1)

    def _artifact_kept(self, e: ev.ArtifactKept, _: str, seq: int) -> None:
        self.revisions[e.name] = max(self.revisions.get(e.name, 0), e.revision)

    def _prompt_opened(self, e: ev.PromptOpened, node_id: str, seq: int) -> None:
        record = self._record(node_id, seq)
        record.status, record.opened, record.answer, record.where = "open", e, None, e.where

    def _prompt_answered(self, e: ev.PromptAnswered, node_id: str, seq: int) -> None:
        record = self.records.get(node_id)
        if record is not None and record.opened is not None and record.opened.generation == e.generation:
            record.answer = e

    def _answer_kept(self, e: ev.AnswerKept, _: str, seq: int) -> None:
        self.early.setdefault(e.prompt, e)

    def _wake_requested(self, e: ev.WakeRequested, _: str, seq: int) -> None:
        for record in self.records.values():
            if record.kind == "sleep" and record.status == "open" and wakes(e.correlation_ids, record.correlation_id):
                record.woken = True


_FOLDS: dict[str, Callable[[History, Any, str, int], None]] = {
    ev.RunCreated.type: History._run_created,
    ev.RunStarted.type: History._run_started,
    ev.RunPaused.type: History._run_paused,
    ev.RunEnded.type: History._run_ended,
    ev.MismatchAccepted.type: History._mismatch_accepted,
    ev.RunForked.type: History._run_forked,
    ev.RunEdited.type: History._run_edited,
    ev.NodeRecalled.type: History._node_recalled,
    ev.CancelRequested.type: History._cancel_requested,
    ev.NodeStarted.type: History._node_started,
    ev.NodeRetrying.type: History._node_retrying,
    ev.NodeCompleted.type: History._node_completed,
    ev.NodeFailed.type: History._node_failed,
    ev.NodeFailurePassed.type: History._node_failure_passed,
    ev.NodeCancelled.type: History._node_cancelled,
    ev.ModelCalled.type: History._model_called,
    ev.MessagePosted.type: History._message_posted,
    ev.MessageRecorded.type: History._said,
    ev.SessionMoved.type: History._said,
    ev.ToolCalled.type: History._tool_called,
    ev.ModelRouted.type: History._model_routed,
    ev.BudgetWarned.type: History._budget_warned,
    ev.ValueRecorded.type: History._value_recorded,
    ev.OutputReported.type: History._output_reported,
    ev.ArtifactKept.type: History._artifact_kept,
    ev.PromptOpened.type: History._prompt_opened,
    ev.PromptAnswered.type: History._prompt_answered,
    ev.AnswerKept.type: History._answer_kept,
    ev.WakeRequested.type: History._wake_requested,
}


_STRETCHES = frozenset({ev.RunStarted.type, ev.RunPaused.type, ev.RunEnded.type})

_OF_OTHERS = ev.POSTS | {ev.LeaseTaken.type}
"""What is written although nobody executes the run; it does not make the stretch of a worker that died longer."""


def wakes(correlation_ids: Sequence[str], correlation_id: str | None) -> bool:
    """Whether a wake request means that sleep; an empty list means all."""
    return not correlation_ids or correlation_id in correlation_ids


# ---------------------------------------------------------------- the lookup of a call


class Hit(NamedTuple):
    """Answered from the record; no code runs."""

    record: Record


class Live(NamedTuple):
    """The call runs. ``record`` is what an earlier execution began; ``gives_up`` the records it runs in spite of."""

    record: Record | None = None
    gives_up: tuple[str, ...] = ()


class Held(NamedTuple):
    """A mismatch so far: records of the same kind and name were not asked for. Decided when the body is quiescent."""


_NEW = Live()

Found = Hit | Live | Held


def replayable(record: Record) -> bool:
    """Whether the record answers its call without running it."""
    if record.status == "completed":
        return True
    if record.status != "failed":
        return False
    return record.retained or (record.passed and record.kind != "tool")  # a thrown tool failure is never replayed


def had_effect(record: Record) -> bool:
    """Whether something may have happened that a call with other arguments would do anew."""
    if record.within:
        return False  # it belongs to the stage that asked, and is looked for by that alone
    return replayable(record) or (record.status == "open" and record.kind != "prompt")


class Lookup:
    """The state of replay of one execution: which records were asked for."""

    def __init__(self, history: History, *, accept: bool = False) -> None:
        self._records = history.records
        self._stale = stale = history.stale
        self._copied = history.copied
        self._accept = accept
        self._asked: dict[str, None] = {}
        self._waiting: dict[tuple[str, str], dict[str, None]] = {}
        self._effects = 0  # records with an effect that were not asked for yet
        for record in history.records.values():
            if had_effect(record) and record.node_id not in stale:
                self._effects += 1
                if record.node_id not in history.accepted:
                    self._waiting.setdefault((record.kind, record.name), {})[record.node_id] = None
        # Records in the order in which the body learned of them.
        self._order = sorted(
            r.seq for r in history.records.values() if replayable(r) and r.node_id not in stale and not r.within
        )
        self._at = 0
        self._delivered: dict[int, None] = {}

    @property
    def exhausted(self) -> bool:
        """Every recorded effect was asked for: what comes now is new."""
        return self._effects == 0

    def ask(self, node_id: str, kind: str, name: str) -> Found:
        """A call was made."""
        record = self._records.get(node_id)
        if record is not None and node_id not in self._asked:
            self._asked[node_id] = None
            if node_id in self._stale:
                return _NEW
            if had_effect(record):
                self._effects -= 1
                group = self._waiting.get((kind, name))
                if group is not None:
                    group.pop(node_id, None)
            return Hit(record) if replayable(record) else Live(record)
        group = self._waiting.get((kind, name))
        if not group:
            return _NEW
        return Live(None, tuple(group)) if self._accept else Held()

    def candidates(self, kind: str, name: str) -> list[Record]:
        """Records of that kind and name that were not asked for and may have had an effect."""
        return [self._records[node_id] for node_id in self._waiting.get((kind, name), ())]

    def give_up(self, record: Record) -> None:
        """Another call stands in its place."""
        group = self._waiting.get((record.kind, record.name))
        if group is not None:
            group.pop(record.node_id, None)

    def may_answer_now(self, record: Record) -> bool:
        """Whether no other record was answered before this one and is still to be delivered."""
        while self._at < len(self._order) and self._order[self._at] in self._delivered:
            del self._delivered[self._order[self._at]]
            self._at += 1
        return self._at < len(self._order) and self._order[self._at] == record.seq

    def delivered(self, record: Record) -> None:
        """The body has the record's answer."""
        self._delivered[record.seq] = None

    def drift(self) -> list[str]:
        """Records with an effect that this execution never asked for."""
        unasked = (r for r in self._records.values() if r.node_id not in self._asked and had_effect(r))
        return [r.node_id for r in unasked if r.node_id not in self._copied]


# ---------------------------------------------------------------- quiescence


@dataclass(frozen=True, slots=True)
class HeldCall:
    """A call that waits for the decision."""

    node_id: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What the body is doing.

    Attributes:
        held: calls that wait for the decision.
        replaying: answers from the journal that were not delivered yet.
        running: attempts at work. Questions and sleeps do not count: what they lead to comes after them in the record,
            too, so a record that was not asked for by now does not wait for them.
        moved: something durable happened since the last look.
    """

    held: tuple[HeldCall, ...]
    replaying: int
    running: int
    moved: bool


class Release(NamedTuple):
    """These calls run: every record of their kind and name was asked for."""

    node_ids: tuple[str, ...]


class Pause(NamedTuple):
    """The run pauses before the effect of ``call``, since ``recorded`` says that another call was made."""

    call: HeldCall
    recorded: tuple[Record, ...]


class Wait(NamedTuple):
    """The body may still come to it."""


def decide(facts: Facts, lookup: Lookup) -> Release | Pause | Wait:
    """What to do about held calls."""
    free = tuple(call.node_id for call in facts.held if not lookup.candidates(call.kind, call.name))
    if free:
        return Release(free)
    if not facts.held or facts.replaying or facts.running or facts.moved:
        return Wait()
    call = facts.held[0]
    return Pause(call, tuple(lookup.candidates(call.kind, call.name)))
