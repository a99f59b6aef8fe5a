"""Every event of a run, past participle, frozen: the language the whole package speaks.

An event is stored as one row: its ``type``, the node it is about (``node_id``, beside the payload) and its fields as a
JSON object. Fields are only ever added, with a default; a field that is gone stays gone. ``Raw`` fields hold values as
:mod:`loom_kernel.codec` encoded them, so that reading history never imports a user's class.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from msgspec import Raw

NULL = Raw(b"null")


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base of all events. Never part of a circle, so the garbage collector need not look at the thousands of a run."""

    type: ClassVar[str]


class Frame(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a traceback, the person's own code only."""

    file: str
    line: int
    name: str
    text: str = ""


class ErrorRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An exception as the journal keeps it.

    ``type`` is ``module:QualName``; ``args`` holds the encoded constructor arguments, ``state`` the encoded instance
    ``__dict__``; null where there are none or they could not be kept.
    """

    type: str
    message: str
    args: Raw = NULL
    state: Raw = NULL
    frames: list[Frame] = []
    notes: list[str] = []
    cause: ErrorRecord | None = None


# ---------------------------------------------------------------- the run


class RunCreated(Event):
    """The run exists. Always ``seq`` 1. ``inputs`` maps names to encoded values; secret ones are digests."""

    type: ClassVar[str] = "run.created"
    workflow: str
    definition_version: str = ""
    description: str = ""
    inputs: Raw = Raw(b"{}")
    mode: str = "replay"
    key: str | None = None
    tags: list[str] = []
    notebook: str | None = None  # a label, not an authority
    cell: str | None = None  # the cell's id, else the hash of its source
    nth: int = 0  # which such start in that execution of the cell
    parent_run_id: str | None = None
    parent_node_id: str | None = None
    root_run_id: str | None = None
    forked_from: str | None = None
    source: str = ""  # the body's text, so that a resume can show what changed
    environment: dict[str, str] = {}  # Python, packages, the project's commit
    cwd: str = ""  # the folder it was started in; children have that of their parent
    session: str = ""  # the kernel's life in which it was started
    continues: str = ""  # the session that broke, where that one is continued
    family_version: str = ""  # of the body and everything durable that it can call
    secret_inputs: list[str] = []
    for_worker: bool = False  # whoever started it leaves it to a worker
    budget: dict[str, float] = {}  # what its start was given, beside the definition's own
    forked_at: str = ""  # with forked_from: the path of the node that it goes on from ("fetch", "child/fetch")
    fork_answers: dict[str, str] = {}  # with forked_from: hashes of the answers that were given otherwise, by path


class RunStarted(Event):
    """A worker began to execute the body, for the first time or again."""

    type: ClassVar[str] = "run.started"
    worker: str
    resumed: bool = False
    definition_version: str = ""
    by: str = ""
    source: str = ""  # the body's text, where it is another one than the last execution's
    budget: dict[str, float] = {}  # what its resume was given: it counts from here on
    family_version: str = ""  # of the body and what it calls, where it is another one than the last execution's


class RunPaused(Event):
    """The run rests and can be resumed. ``reason``: stopped, needs_decision, budget, provider."""

    type: ClassVar[str] = "run.paused"
    reason: str
    message: str = ""
    detail: dict[str, Any] = {}


class RunEnded(Event):
    """Terminal, exactly once. ``status``: completed, skipped, cancelled, blocked, failed, killed."""

    type: ClassVar[str] = "run.ended"
    status: str
    result: Raw = NULL
    error: ErrorRecord | None = None
    failed_node_id: str | None = None
    exited: bool = False
    reason: str | None = None
    resumable: bool = False
    drift: list[str] = []  # node ids of records that this execution never asked for


class LeaseTaken(Event):
    """A worker took the lease; ``epoch`` fences everything it writes."""

    type: ClassVar[str] = "lease.taken"
    epoch: int
    holder: str
    pid: int = 0
    host: str = ""
    label: str = ""
    pid_started: float = 0.0
    boot_id: str = ""
    kind: str = "script"
    ticket: str = ""  # names the claim that gave it
    after: str = ""  # "expired": its last holder died or fell silent; "taken": a person took it from a live one


class StepChanged(Event):
    """A step's code is another one than when it last ran in this run; its next call uses the new code."""

    type: ClassVar[str] = "step.changed"
    name: str
    old: str
    new: str


class MismatchAccepted(Event):
    """A person let the run go on although a recorded effect was not asked for again."""

    type: ClassVar[str] = "mismatch.accepted"
    recorded: list[str]
    called: str


class RunForked(Event):
    """What stands before it was copied from ``source``; values too large for an event are shared by their hash.

    A copied record answers its call, and where the body calls otherwise, that is no mismatch. ``kept`` counts the
    copied calls, ``again`` those that had an outcome and run again. A run that has a ``forked_from`` and not this
    event was broken off while it was made, and is never executed.
    """

    type: ClassVar[str] = "run.forked"
    source: str
    at: str = ""
    kept: int = 0
    again: int = 0


class RunEdited(Event):
    """A person saw what edited code would do with the record, and lets the run go on so.

    ``again`` are node ids of finished calls that run again, since their code was edited; ``aside`` those of records that
    may not be asked for any more, which is then no mismatch.
    """

    type: ClassVar[str] = "run.edited"
    again: list[str] = []
    aside: list[str] = []
    by: str = ""
    version: str = ""


# ---------------------------------------------------------------- nodes


class NodeStarted(Event):
    """An attempt of a durable call began. ``kind``: step, tool, inline, workflow, stage, sleep.

    ``parents`` are the node ids of its frontier; the single item ``"=" + node id`` says "the same parents as that
    node", so that a wide fan-out after another does not list them a thousand times.
    ``args`` is an encoded, bounded preview of the arguments for people.
    ``where`` names the calling line (``"cell 4, line 12"``). ``code`` is the hash of the step's code.
    ``queued_s`` is how long it waited before, for its turn under a limit.
    """

    type: ClassVar[str] = "node.started"
    name: str
    kind: str
    attempt: int = 1
    parents: list[str] = []
    args: Raw = NULL
    where: str = ""
    code: str = ""
    child_run_id: str | None = None
    wake_at: float | None = None
    correlation_id: str | None = None
    queued_s: float = 0.0


class NodeRetrying(Event):
    """An attempt failed and another follows after ``delay_s``."""

    type: ClassVar[str] = "node.retrying"
    attempt: int
    error: ErrorRecord
    delay_s: float
    duration_s: float = 0.0


class NodeCompleted(Event):
    """The call has its result. ``duration_s`` is the worker's own measure of the last attempt's body, seconds."""

    type: ClassVar[str] = "node.completed"
    result: Raw = NULL
    result_hash: str = ""
    attempts: int = 1
    duration_s: float = 0.0
    answered_by: str = ""  # prompts only
    tokens: int = 0  # of children only: what their runs used in all
    cost_usd: float = 0.0
    cached_from: str = ""  # the earlier run whose result it is; nothing ran here
    cached_at: float = 0.0  # when that run recorded it, seconds since the epoch


class NodeFailed(Event):
    """The call failed for good (until a resume tries it again)."""

    type: ClassVar[str] = "node.failed"
    error: ErrorRecord
    attempts: int = 1
    duration_s: float = 0.0
    retained: bool = False  # ctx.tool(failure_mode="return"): the failure is the replayable outcome
    outcome: Raw = NULL  # with retained: the error as the body received it, encoded
    tokens: int = 0  # of children only
    cost_usd: float = 0.0


class NodeFailurePassed(Event):
    """The body went on after this node's failure, so that it replays as the same failure."""

    type: ClassVar[str] = "node.failure_passed"


class NodeCancelled(Event):
    """The call was cancelled; it runs again on resume."""

    type: ClassVar[str] = "node.cancelled"
    reason: str = ""
    attempts: int = 1
    duration_s: float = 0.0
    tokens: int = 0  # of children only
    cost_usd: float = 0.0


class NodeRecalled(Event):
    """The body of a fork asked for a copied call, so that it is a part of this run; once a call.

    ``parents`` are as in ``node.started``: what it came after here.
    """

    type: ClassVar[str] = "node.recalled"
    parents: list[str] = []


class NodeLogged(Event):
    """Lines that a step printed or logged."""

    type: ClassVar[str] = "node.logged"
    attempt: int
    lines: list[str]


class NodeProgressed(Event):
    """How far a step says it is."""

    type: ClassVar[str] = "node.progressed"
    done: float
    total: float | None = None


class ModelCalled(Event):
    """A model was asked within this node. Tokens of the input include the cached ones; ``started_at`` is seconds since
    the epoch."""

    type: ClassVar[str] = "model.called"
    model: str = ""
    attempt: int = 1
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0
    started_at: float | None = None
    duration_s: float = 0.0
    ok: bool = True
    error: str = ""
    cache_write_tokens: int = 0
    level: str = ""  # how much it was asked to think

    @property
    def counted_tokens(self) -> int:
        """The tokens that a budget counts: what was sent and is new to the provider, and what came back."""
        return max(0, self.input_tokens - self.cached_tokens) + max(0, self.output_tokens)


class MessageRecorded(Event):
    """One message of a model stage's session, said in the turn of this node.

    ``session`` is the session's name within its run (``review#1``); ``id`` counts up in it from 1, and ``parent`` is what
    it follows, so that going back makes a branch. ``role``: system, user, assistant, tool. ``content`` holds encoded parts
    where there is more than text; ``tool_calls`` a list of ``{"id", "name", "arguments"}``. With ``withheld`` the texts
    were kept out. ``kind`` says what sort of message it is: prompt, steer, follow_up, correction, wrap_up, summary, copy,
    or of a tool's result the tool. ``source`` is the key of the call by which the body said it in between.
    """

    type: ClassVar[str] = "message.recorded"
    session: str
    id: int
    role: str
    parent: int = 0
    text: str = ""
    content: Raw = NULL
    tool_calls: Raw = NULL
    tool_call_id: str = ""
    model: str = ""
    kind: str = ""
    withheld: bool = False
    source: str = ""


class SessionMoved(Event):
    """A session goes on from the message ``to``; later ones on the way it came are kept, and not said any more."""

    type: ClassVar[str] = "session.moved"
    session: str
    to: int
    label: str = ""


class ToolCalled(Event):
    """A stage's tool begins; written before it does, since a repeat could matter. Its result is a message."""

    type: ClassVar[str] = "tool.called"
    session: str
    call_id: str
    name: str


class ModelRouted(Event):
    """What ``model="auto"`` chose for this node, from which candidates."""

    type: ClassVar[str] = "model.routed"
    model: str
    effort: str = ""
    fallbacks: list[str] = []
    candidates: list[str] = []


class BudgetWarned(Event):
    """A dimension of the budget reached its percentage; once a run and dimension."""

    type: ClassVar[str] = "budget.warned"
    dimension: str  # duration, tokens, cost
    reading: float
    ceiling: float


class BranchesAnnounced(Event):
    """``ctx.parallel(possible_stage_names=...)`` began: names, or globs of names, that its nodes may have.

    For the picture only. ``index`` counts such calls of one execution; ``parents`` are as in ``node.started``.
    """

    type: ClassVar[str] = "branches.announced"
    index: int
    names: list[str]
    parents: list[str] = []


class BranchesSettled(Event):
    """The announced branches are done, or the first failure ended them."""

    type: ClassVar[str] = "branches.settled"
    index: int


class ValueRecorded(Event):
    """``now``, ``random``, ``uuid4`` and ``ctx.put``: a value kept under the event's key, no node drawn."""

    type: ClassVar[str] = "value.recorded"
    kind: str
    name: str = ""
    value: Raw = NULL


class OutputReported(Event):
    """``ctx.report`` and ``ctx.emit``: output of the body itself."""

    type: ClassVar[str] = "output.reported"
    namespace: str = ""
    index: int = 0
    value: Raw = NULL


# ---------------------------------------------------------------- people


class Shown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a question shows beside its text. ``kind``: text, markdown, table, image, json.

    Tables carry ``columns`` and ``rows`` (texts, at most 20 shown) and the full ``total`` of rows; images a data URI.
    """

    kind: str
    text: str = ""
    columns: list[str] = []
    rows: list[list[str]] = []
    total: int = 0


class ArtifactKept(Event):
    """Something that a person may look for by name: what ``ctx.put`` kept, and tables and figures that steps made.

    ``kind``: table, figure, array, bytes, text, json. ``revision`` counts up from 1 with each of that name in the run.
    The value itself is the result (``source`` "result"), or the recorded value ("put"), of the event's ``node_id``, at
    ``path``; or ``value``, where nothing else has it ("shown": ``plt.show()`` in a step). ``sha256`` and ``size_bytes``
    are of its contents as they are stored.
    """

    type: ClassVar[str] = "artifact.kept"
    name: str
    revision: int
    kind: str
    source: str
    path: list[str | int] = []
    media_type: str = ""
    size_bytes: int = 0
    sha256: str = ""
    value: Raw = NULL
    preview: list[Shown] = []


class PromptOpened(Event):
    """A question is open. Its id is the event's ``node_id``; ``prompt`` is the name people type (``go``, ``go#2``).

    ``generation`` counts up when a rejected answer opens it again. ``schema`` is the JSON Schema of the stored answer.
    ``deadline`` is seconds since the epoch, ``default`` the encoded answer taken then.
    """

    type: ClassVar[str] = "prompt.opened"
    prompt: str
    kind: str  # confirm, input, select, editor, form, custom
    message: str
    generation: int = 1
    parents: list[str] = []
    options: list[str] = []
    initial: Raw = NULL
    schema: dict[str, Any] = {}
    shown: list[Shown] = []
    shown_hash: str = ""
    deadline: float | None = None
    has_default: bool = False
    default: Raw = NULL
    where: str = ""
    error: str = ""  # why the last answer was not taken
    within: str = ""  # the node of the model stage that asks; answered again only while that is at work


# ---------------------------------------------------------------- posts: from those who do not hold the lease


class PromptAnswered(Event):
    """The first valid answer; its key ``answer:<node_id>:<generation>`` makes it the only one."""

    type: ClassVar[str] = "prompt.answered"
    generation: int
    value: Raw
    by: str = ""
    shown_hash: str = ""


class AnswerKept(Event):
    """An answer given before its question was open, kept under the prompt's name."""

    type: ClassVar[str] = "answer.kept"
    prompt: str
    value: Raw
    by: str = ""


class CancelRequested(Event):
    """Someone asked to end the run for good; ``kill`` gives it the status killed."""

    type: ClassVar[str] = "run.cancel_requested"
    by: str = ""
    reason: str = ""
    kill: bool = False


class StopRequested(Event):
    """Someone asked to pause the run so that it can be resumed."""

    type: ClassVar[str] = "run.stop_requested"
    by: str = ""


class AbortRequested(Event):
    """Someone asked to end one call at work, its node; the rest of the run goes on."""

    type: ClassVar[str] = "node.abort_requested"
    by: str = ""


class WakeRequested(Event):
    """Someone ended sleeps early; an empty list means all of them."""

    type: ClassVar[str] = "run.wake_requested"
    correlation_ids: list[str] = []
    by: str = ""


class MessagePosted(Event):
    """A message for the run."""

    type: ClassVar[str] = "message.posted"
    name: str
    value: Raw = NULL
    by: str = ""


class RunNoted(Event):
    """Somebody wrote something down about the run; also when it has ended."""

    type: ClassVar[str] = "run.noted"
    text: str
    by: str = ""


# ---------------------------------------------------------------- what a project keeps, in a stream of its own


class StorageWrite(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One operation of a commit. ``revision`` is the artifact's new one; ``data`` is encoded; removals have neither.

    ``since`` is when a replaced artifact was created (UTC, ISO with three decimals).
    """

    op: str  # create_artifact, replace_artifact, append_record, remove_artifact, remove_record
    id: str
    flow: str = ""
    stage: str = ""
    revision: int = 0
    since: str = ""
    data: Raw = NULL
    kind: str = ""
    media_type: str = ""
    size_bytes: int = 0
    sha256: str = ""


class StorageCommitted(Event):
    """A batch of ``ctx.storage.commit``, all of it or nothing. Posted under the key ``commit:<number>``.

    The key lets exactly one commit follow another, whichever process it comes from; ``token`` tells a repeated commit
    of the same call. The stream belongs to the project, so what a run kept outlives the run.
    """

    type: ClassVar[str] = "storage.committed"
    number: int
    token: str
    run_id: str = ""
    node_id: str = ""
    writes: list[StorageWrite] = []


class KeptResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who has a step's result: the run, and the key of the event in which it ``recorded`` it, at that time.

    ``key`` stands for the step's name, its code and its arguments.
    """

    key: str
    run_id: str
    recorded: str
    at: float


class ResultsKept(Event):
    """Steps with ``cache=`` have run: later runs may use their results. In a stream of the project's own."""

    type: ClassVar[str] = "results.kept"
    results: list[KeptResult] = []


EVENTS: dict[str, type[Event]] = {
    cls.type: cls
    for cls in (
        RunCreated, RunStarted, RunPaused, RunEnded, LeaseTaken, StepChanged, MismatchAccepted, RunForked, RunEdited,
        NodeStarted, NodeRetrying, NodeCompleted, NodeFailed, NodeFailurePassed, NodeCancelled, NodeRecalled, NodeLogged,
        NodeProgressed, ModelCalled, MessageRecorded, SessionMoved, ToolCalled, ModelRouted, BudgetWarned, BranchesAnnounced,
        BranchesSettled, ValueRecorded, OutputReported, ArtifactKept, PromptOpened,
        PromptAnswered, AnswerKept, CancelRequested, StopRequested, AbortRequested, WakeRequested, MessagePosted,
        RunNoted, StorageCommitted, ResultsKept,
    )
}  # fmt: skip
"""Event classes by their stored type."""

POSTS = frozenset(
    cls.type
    for cls in (
        PromptAnswered, AnswerKept, CancelRequested, StopRequested, AbortRequested, WakeRequested, MessagePosted,
        RunNoted, StorageCommitted, ResultsKept,
    )
)  # fmt: skip
"""Types that may be appended without the lease, by ``RunJournal.post``."""

ANNOTATIONS = frozenset({RunNoted.type})
"""Posts that a run takes when it has ended, too."""

TERMINAL = frozenset({"completed", "skipped", "cancelled", "blocked", "failed", "killed"})
"""Run statuses after which nothing more is appended, unless the run is resumed."""


def encode(event: Event) -> bytes:
    """The event's payload as JSON bytes."""
    return _ENCODER.encode(event)


def decode(type: str, payload: bytes) -> Event:
    """The event of a stored row.

    Raises:
        KeyError: the type is unknown (a newer version wrote it).
    """
    return _DECODERS[type].decode(payload)


_ENCODER = msgspec.json.Encoder()
_DECODERS = {name: msgspec.json.Decoder(cls) for name, cls in EVENTS.items()}
