"""The journal's rules as a state machine without I/O: heads, keys, sequence numbers, fences, leases, posts.

Every implementation asks a :class:`JournalCore` what a call would write, makes the resulting entries durable in that
order, and only then answers its caller. A write that the disk refuses is undone with :meth:`JournalCore.undo`, newest
first. So the rules exist once, and a store is left with nothing but bytes.

Control entries (``seq`` 0) carry what belongs to no run's story: a released lease, a deletion. They have a
``global_seq``, go through the same log, and never reach ``events``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from loom_kernel import events
from loom_kernel.clock import Clock
from loom_kernel.errors import (
    AnswerError,
    JournalCasConflictError,
    RunOverError,
    StaleLeaseError,
    StorageUnavailableError,
    UnknownRunError,
)
from loom_kernel.events import RunCreated
from loom_kernel.journal.abc import Append, Holder, JournalEntry, Lease, LeaseHeld, LeaseState, RunSummary
from loom_kernel.journal.answers import check_answer
from loom_kernel.journal.liveness import ALIVE, DEAD, UNKNOWN, Liveness

LEASE_TTL_S = 30.0
"""A lease of a holder of whom nothing is known expires when it was not renewed for this long."""

GRACE_S = 2.0
"""A closed connection may be a reconnecting client: its leases expire after this long."""

RELEASED = "lease.released"
DELETED = "run.deleted"
E = TypeVar("E", bound=events.Event)

AT_REST = events.TERMINAL | {"paused"}

Prepared = tuple[str | None, str, str | None, bytes]
"""An event ready to be written: key, type, node id, payload as JSON."""


class OpenPrompt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question that waits for its answer, as far as checking an answer needs it."""

    node_id: str
    prompt: str
    kind: str
    generation: int
    schema: dict[str, object] = {}
    options: list[str] = []
    shown_hash: str = ""


_check_json = msgspec.json.Decoder(msgspec.Raw).decode
_HEADER = msgspec.json.Decoder(RunCreated)


class _State(NamedTuple):
    """What :meth:`JournalCore.undo` puts back. ``prompts`` is never changed in place; what was added to ``keys`` is undone
    by the change itself.
    """

    last_seq: int
    last_global_seq: int
    status: str
    reason: str | None
    resumable: bool
    created: bytes
    created_seq: int
    created_at: int
    updated_at: int
    epoch: int
    holder: Holder | None
    renewed: float
    prompts: dict[str, OpenPrompt]
    keys: dict[str, int] | None


class RunHead:
    """What is known of a run without reading its history.

    ``keys`` maps idempotency keys to ``seq``; None while they were not loaded. ``created_seq`` is the ``global_seq`` of
    the first event. ``last_seq`` 0 marks a deleted run, of which only the ``epoch`` is kept, so that an old lease cannot
    touch a run of the same id made later.
    """

    __slots__ = (*_State._fields, "_asked", "run_id")

    last_seq: int
    last_global_seq: int
    status: str
    reason: str | None
    resumable: bool
    created: bytes
    created_seq: int
    created_at: int
    updated_at: int
    epoch: int
    holder: Holder | None
    renewed: float
    prompts: dict[str, OpenPrompt]
    keys: dict[str, int] | None

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.last_seq = self.last_global_seq = self.created_seq = self.created_at = self.updated_at = self.epoch = 0
        self.status, self.reason, self.resumable, self.created = "pending", None, False, b""
        self.holder, self.renewed = None, 0.0
        self.prompts, self.keys = {}, {}
        self._asked: tuple[bytes, tuple[str, str] | None] | None = None

    @property
    def exists(self) -> bool:
        return self.last_seq > 0

    @property
    def header(self) -> RunCreated:
        """The run's first event; decoded each time, so that nobody shares its lists."""
        return _HEADER.decode(self.created)

    @property
    def asks_for(self) -> tuple[str, str] | None:
        """The workflow and the version of it that a worker needs; None where the run is not for workers to take."""
        if self._asked is None or self._asked[0] is not self.created:
            header = self.header if self.created else None
            taken = header is None or header.parent_run_id is not None or bool(header.secret_inputs)
            self._asked = (self.created, None if taken else (header.workflow, header.definition_version))  # type: ignore[union-attr]
        return self._asked[1]

    def save(self) -> _State:
        return _State(
            self.last_seq, self.last_global_seq, self.status, self.reason, self.resumable, self.created,
            self.created_seq, self.created_at, self.updated_at, self.epoch, self.holder, self.renewed, self.prompts, self.keys,
        )  # fmt: skip

    def restore(self, state: _State) -> None:
        for name, value in zip(_State._fields, state, strict=True):
            setattr(self, name, value)

    def take(self, entry: JournalEntry) -> None:
        """Take one durable entry into account, of whatever kind."""
        if entry.seq:
            self.fold(entry)
            return
        if entry.type == RELEASED:
            self.holder = None
        elif entry.type == DELETED:
            self.forget()
        self.last_global_seq = entry.global_seq

    def fold(self, entry: JournalEntry) -> None:
        """Take one event of the run into account."""
        self.last_seq, self.last_global_seq, self.updated_at = entry.seq, entry.global_seq, entry.created_at
        if entry.key is not None and self.keys is not None:
            self.keys[entry.key] = entry.seq
        fold = _FOLDS.get(entry.type)
        if fold is not None:
            fold(self, entry)

    def forget(self) -> None:
        """Leave nothing but the epoch: the run was deleted."""
        blank = RunHead(self.run_id).save()
        self.restore(blank._replace(epoch=self.epoch, keys=None if self.keys is None else {}))


def _created(head: RunHead, entry: JournalEntry) -> None:
    head.created, head.created_at, head.created_seq = entry.payload, entry.created_at, entry.global_seq
    head.status, head.reason, head.resumable = "pending", None, False


def _started(head: RunHead, entry: JournalEntry) -> None:
    head.status, head.reason, head.resumable = "awaiting_input" if head.prompts else "running", None, False


def _paused(head: RunHead, entry: JournalEntry) -> None:
    head.status, head.resumable, head.holder = "paused", True, None
    head.reason = msgspec.json.decode(entry.payload, type=events.RunPaused).reason


def _ended(head: RunHead, entry: JournalEntry) -> None:
    ended = msgspec.json.decode(entry.payload, type=events.RunEnded)
    head.status, head.reason, head.resumable = ended.status, ended.reason, ended.resumable
    head.holder, head.prompts = None, {}


def _lease_taken(head: RunHead, entry: JournalEntry) -> None:
    taken = msgspec.json.decode(entry.payload, type=events.LeaseTaken)
    head.epoch, head.holder = taken.epoch, _holder_of(taken)


def _prompt_opened(head: RunHead, entry: JournalEntry) -> None:
    if entry.node_id is None:
        return
    opened = msgspec.json.decode(entry.payload, type=events.PromptOpened)
    prompt = OpenPrompt(
        entry.node_id, opened.prompt, opened.kind, opened.generation, opened.schema, opened.options, opened.shown_hash
    )
    head.prompts = {**head.prompts, entry.node_id: prompt}
    if head.status == "running":
        head.status = "awaiting_input"


def _prompt_closed(head: RunHead, entry: JournalEntry) -> None:
    if entry.node_id in head.prompts:
        head.prompts = {node: prompt for node, prompt in head.prompts.items() if node != entry.node_id}
        if not head.prompts and head.status == "awaiting_input":
            head.status = "running"


_FOLDS: dict[str, Callable[[RunHead, JournalEntry], None]] = {
    events.RunCreated.type: _created,
    events.RunStarted.type: _started,
    events.RunPaused.type: _paused,
    events.RunEnded.type: _ended,
    events.LeaseTaken.type: _lease_taken,
    events.PromptOpened.type: _prompt_opened,
    events.PromptAnswered.type: _prompt_closed,
    events.NodeCompleted.type: _prompt_closed,
    events.NodeFailed.type: _prompt_closed,
    events.NodeCancelled.type: _prompt_closed,
}


class Change:
    """What a call writes: ``entries`` in order; empty when everything was there before.

    ``outcomes`` has one item an append: the new entry, or the ``seq`` of the one that was there. ``lease`` is what an
    acquire gives.
    """

    __slots__ = ("_keys", "_new", "_saved", "entries", "head", "lease", "outcomes")

    def __init__(self, head: RunHead, saved: _State | None = None, *, new: bool = False) -> None:
        self.head = head
        self.entries: list[JournalEntry] = []
        self.outcomes: list[JournalEntry | int] = []
        self.lease: Lease | None = None
        self._saved = saved
        self._keys: list[str] = []
        self._new = new


class JournalCore:
    """The rules. Synchronous and without I/O; one thread uses it.

    Args:
        clock: gives timestamps (``time``) and ages (``monotonic``).
        liveness: what is known of a holder's process; the default knows nothing, so that only time decides.
    """

    def __init__(self, clock: Clock, liveness: Callable[[Holder], Liveness] = lambda holder: UNKNOWN) -> None:
        self._clock = clock
        self._liveness = liveness
        self.heads: dict[str, RunHead] = {}
        self.global_seq = 0
        self._seen: dict[str, float] = {}  # holder id -> monotonic time of its last frame
        self._connected: dict[str, int] = {}  # holder id -> open connections
        self._left: dict[str, float] = {}  # holder id -> when its last connection closed

    # ------------------------------------------------------------ heads

    def head(self, run_id: str) -> RunHead:
        """The run's head.

        Raises:
            UnknownRunError: there is no such run.
        """
        head = self.heads.get(run_id)
        if head is None or not head.exists:
            raise UnknownRunError(run_id)
        return head

    def replay(self, entry: JournalEntry) -> None:
        """Fold an entry that is already durable: a store reads its tail back."""
        self.global_seq = max(self.global_seq, entry.global_seq)
        head = self.heads.get(entry.run_id)
        if head is None:
            head = self.heads[entry.run_id] = RunHead(entry.run_id)
        head.take(entry)
        head.renewed = self._clock.monotonic()  # after a restart every lease counts as just renewed

    def undo(self, change: Change) -> None:
        """Take back a change that was not kept. Undo the newest first."""
        head = change.head
        for key in change._keys:
            if head.keys is not None:
                head.keys.pop(key, None)
        if change._saved is not None:
            head.restore(change._saved)
        if change._new:
            self.heads.pop(head.run_id, None)
        if change.entries:
            self.global_seq = min(self.global_seq, change.entries[0].global_seq - 1)

    # ------------------------------------------------------------ writing

    def create(self, run_id: str, payload: bytes) -> Change | None:
        """Write ``run.created``; None when the run exists."""
        head = self.heads.get(run_id)
        if head is not None and head.exists:
            return None
        new = head is None
        if head is None:
            head = self.heads[run_id] = RunHead(run_id)
        change = Change(head, head.save(), new=new)
        head.keys = {}
        self._write(change, [("created", events.RunCreated.type, None, payload)])
        return change

    def append(
        self,
        lease: Lease,
        prepared: Sequence[Prepared],
        expect_seq: int | None = None,
        unencodable: Exception | None = None,
    ) -> Change:
        """Fence, then keys, then ``expect_seq``; what fails changes nothing.

        The event that brings a run to rest gives its lease back, in the same commit. Repeated after that, since its
        answer was lost, it is answered as what is there already.

        Args:
            unencodable: why some event could not be serialized; reported only after the checks.

        Raises:
            StaleLeaseError, JournalCasConflictError, StorageUnavailableError, UnknownRunError: see ``RunJournal.append``.
        """
        head = self._brought_to_rest(lease, prepared) or self.fence(lease)
        keys = head.keys
        assert keys is not None, "a run whose lease is held has its keys loaded"
        if expect_seq is not None or unencodable is not None:
            fresh = any(item[0] is None or item[0] not in keys for item in prepared)
            if fresh and expect_seq is not None and expect_seq != head.last_seq:
                raise JournalCasConflictError(lease.run_id, expect_seq, head.last_seq)
            if fresh and unencodable is not None:
                raise StorageUnavailableError(f"an event could not be written as JSON: {unencodable}") from unencodable
        change = Change(head, head.save())
        self._write(change, prepared)
        self._seen[lease.holder_id] = self._clock.monotonic()
        return change

    def post(self, run_id: str, prepared: Prepared) -> Change:
        """An event from someone who does not hold the lease; the first under its key wins.

        Raises:
            UnknownRunError, AnswerError, RunOverError: see ``RunJournal.post``.
            ValueError: the type is not one of ``events.POSTS``.
        """
        head = self.head(run_id)
        key, type_, node_id, payload = prepared
        if type_ not in events.POSTS:
            raise ValueError(f"{type_} cannot be posted; only the holder of the run's lease may append it")
        assert head.keys is not None, "keys are loaded before a post"
        answer: events.PromptAnswered | None = None
        early: events.AnswerKept | None = None
        if type_ == events.PromptAnswered.type:
            answer = _decoded(payload, events.PromptAnswered)
            key = f"answer:{node_id}:{answer.generation}"  # whatever the caller chose: one answer a generation
        elif type_ == events.AnswerKept.type:
            early = _decoded(payload, events.AnswerKept)
            key = f"early:{early.prompt}"
        change = Change(head, head.save())
        if key is not None and key in head.keys:
            change.outcomes.append(head.keys[key])
            return change
        if head.status in events.TERMINAL and type_ not in events.ANNOTATIONS:
            raise RunOverError(run_id, head.status)
        if answer is not None:
            self._check_answer(head, node_id, answer)
        elif early is not None and any(prompt.prompt == early.prompt for prompt in head.prompts.values()):
            raise AnswerError(f"question {early.prompt!r} is open now; answer it instead of leaving an early answer")
        self._write(change, [(key, type_, node_id, payload)])
        return change

    def _check_answer(self, head: RunHead, node_id: str | None, answer: events.PromptAnswered) -> None:
        prompt = head.prompts.get(node_id or "")
        if prompt is None:
            raise AnswerError(f"question {node_id!r} of run {head.run_id} is not open" + _open_questions(head))
        if answer.generation != prompt.generation:
            raise AnswerError(f"question {prompt.prompt!r} was asked again since; look at it once more and answer that")
        if answer.shown_hash and prompt.shown_hash and answer.shown_hash != prompt.shown_hash:
            raise AnswerError(
                f"question {prompt.prompt!r} shows something else now; look at it once more and answer that"
            )
        check_answer(prompt.prompt, prompt.kind, prompt.schema, prompt.options, bytes(answer.value))

    def _write(self, change: Change, prepared: Iterable[Prepared]) -> None:
        head = change.head
        keys = head.keys
        assert keys is not None
        created_at = max(int(self._clock.time() * 1e6), head.updated_at)  # a clock set back does not reorder a run
        entries, outcomes = change.entries, change.outcomes
        seq, global_seq, run_id = head.last_seq, self.global_seq, head.run_id
        for key, type_, node_id, payload in prepared:
            if key is not None:
                known = keys.get(key)
                if known is not None:
                    outcomes.append(known)
                    continue
                change._keys.append(key)
            seq += 1
            global_seq += 1
            entry = JournalEntry(global_seq, run_id, seq, key, type_, node_id, payload, created_at)
            head.fold(entry)
            entries.append(entry)
            outcomes.append(entry)
        self.global_seq = global_seq

    def _control(self, change: Change, type_: str, payload: bytes) -> None:
        self.global_seq += 1
        now = int(self._clock.time() * 1e6)
        change.head.last_global_seq = self.global_seq
        change.entries.append(JournalEntry(self.global_seq, change.head.run_id, 0, None, type_, None, payload, now))

    def delete(self, run_id: str) -> Change | None:
        """Forget the run but for its epoch; None when there is none."""
        head = self.heads.get(run_id)
        if head is None or not head.exists:
            return None
        change = Change(head, head.save())
        head.keys = {}  # not the old dict: undoing brings that back
        head.forget()
        self._control(change, DELETED, b"%d" % head.epoch)
        return change

    def delete_owned(self, lease: Lease, expect_seq: int | None) -> Change:
        """Raises: StaleLeaseError, JournalCasConflictError."""
        head = self.fence(lease)
        if expect_seq is not None and expect_seq != head.last_seq:
            raise JournalCasConflictError(lease.run_id, expect_seq, head.last_seq)
        change = self.delete(lease.run_id)
        assert change is not None
        return change

    # ------------------------------------------------------------ leases

    def rests(self, lease: Lease) -> RunHead | None:
        """The head of the run, where ``lease`` is the one that brought it to rest and nobody took it since."""
        head = self.heads.get(lease.run_id)
        at_rest = head is not None and head.epoch == lease.epoch and head.holder is None and head.status in AT_REST
        return head if at_rest else None

    def _brought_to_rest(self, lease: Lease, prepared: Sequence[Prepared]) -> RunHead | None:
        head = self.rests(lease)
        if head is None or not prepared or head.keys is None:
            return None
        return head if all(key in head.keys for key, *_ in prepared) else None

    def fence(self, lease: Lease) -> RunHead:
        """The head of the run that ``lease`` allows to write to.

        An expired lease that nobody took still counts: its holder was only slow.

        Raises:
            StaleLeaseError: it is not the newest lease, or was given back.
        """
        head = self.heads.get(lease.run_id)
        if head is None or head.epoch != lease.epoch or head.holder is None or head.holder.id != lease.holder_id:
            raise StaleLeaseError(lease.run_id, _who(head.holder) if head is not None and head.holder else None)
        return head

    def acquire(
        self,
        run_id: str,
        holder: Holder,
        *,
        expected_holder: str | None = None,
        stale_after_s: float | None = None,
    ) -> Change | LeaseHeld:
        """Take the lease: a free, own or expired one; ``expected_holder``'s; or one older than ``stale_after_s``.

        Raises:
            UnknownRunError: there is no such run.
        """
        head = self.head(run_id)
        current = head.holder
        if current is None or current.id == holder.id:
            free = True
        elif expected_holder is not None:
            free = current.id == expected_holder
        elif stale_after_s is not None:
            free = self._age(head) > stale_after_s
        else:
            free = self._expires_in(head) <= 0
        if not free:
            assert current is not None
            return LeaseHeld(current, head.epoch, self._age(head))
        after = ""
        if current is not None and current.id != holder.id:
            after = "expired" if self._expires_in(head) <= 0 else "taken"
        change = Change(head, head.save())
        head.renewed = self._seen[holder.id] = self._clock.monotonic()
        taken = events.LeaseTaken(
            epoch=head.epoch + 1,
            holder=holder.id,
            pid=holder.pid,
            host=holder.host,
            label=holder.label,
            pid_started=holder.pid_started,
            boot_id=holder.boot_id,
            kind=holder.kind,
            ticket=holder.ticket,
            after=after,
        )
        self._write(change, [(f"lease:{taken.epoch}", taken.type, None, events.encode(taken))])
        change.lease = Lease(run_id, holder.id, head.epoch)
        return change

    def claimable(self, head: RunHead, definitions: Mapping[str, str], but: Collection[str] = ()) -> bool:
        """Whether a worker with these definitions may have the run now: it is not at rest, and nobody executes it."""
        if not head.exists or head.status in AT_REST or head.run_id in but:
            return False
        asks = head.asks_for
        if asks is None or definitions.get(asks[0]) != asks[1]:
            return False
        return head.holder is None or self._expires_in(head) <= 0

    def renew(self, lease: Lease) -> None:
        """Raises: StaleLeaseError."""
        head = self.fence(lease)
        head.renewed = self._seen[lease.holder_id] = self._clock.monotonic()

    def release(self, lease: Lease) -> Change:
        """Give the lease back; the run's end may have done so already. Raises: StaleLeaseError."""
        rests = self.rests(lease)
        if rests is not None:
            return Change(rests)
        head = self.fence(lease)
        change = Change(head, head.save())
        head.holder = None
        self._control(change, RELEASED, b"%d" % lease.epoch)
        return change

    def lease_state(self, run_id: str) -> LeaseState | None:
        """None when nobody holds it."""
        head = self.heads.get(run_id)
        if head is None or head.holder is None:
            return None
        age = self._age(head)
        return LeaseState(
            head.holder, head.epoch, self._clock.time() - age, int(age * 1000), expired=self._expires_in(head) <= 0
        )

    def expires_in(self, run_id: str) -> float:
        """Seconds until the lease may be taken; 0 when it may be now; infinite while its holder is connected."""
        head = self.heads.get(run_id)
        return 0.0 if head is None or head.holder is None else max(0.0, self._expires_in(head))

    def holder_seen(self, holder_id: str) -> None:
        """Any frame of a holder renews all its leases."""
        self._seen[holder_id] = self._clock.monotonic()

    def holder_connected(self, holder: Holder) -> None:
        """While a connection of a living holder is open, its leases do not expire."""
        self._connected[holder.id] = self._connected.get(holder.id, 0) + 1
        self._left.pop(holder.id, None)
        self.holder_seen(holder.id)

    def is_connected(self, holder_id: str) -> bool:
        return holder_id in self._connected

    def holder_disconnected(self, holder_id: str) -> None:
        """Its leases expire after :data:`GRACE_S`, unless it comes back."""
        left = self._connected.get(holder_id, 0) - 1
        if left > 0:
            self._connected[holder_id] = left
            return
        self._connected.pop(holder_id, None)
        self._left[holder_id] = self._clock.monotonic()

    def holder_gone(self, holder_id: str) -> None:
        """It will not come back: its leases are expired."""
        self._left[holder_id] = float("-inf")

    def _age(self, head: RunHead) -> float:
        assert head.holder is not None
        renewed = max(head.renewed, self._seen.get(head.holder.id, 0.0))
        return max(0.0, self._clock.monotonic() - renewed)

    def _expires_in(self, head: RunHead) -> float:
        holder = head.holder
        assert holder is not None
        liveness = self._liveness(holder)
        if liveness == DEAD:
            return 0.0
        left = self._left.get(holder.id)
        if left is not None:
            return left + GRACE_S - self._clock.monotonic()
        if liveness == ALIVE and holder.id in self._connected:
            return float("inf")
        return LEASE_TTL_S - self._age(head)

    # ------------------------------------------------------------ reading

    def summary(self, head: RunHead) -> RunSummary:
        """The run in one row."""
        at_rest = head.status in AT_REST or (head.status == "pending" and head.epoch == 0)
        interrupted = not at_rest and (head.holder is None or self._expires_in(head) <= 0)
        header = head.header
        return RunSummary(
            run_id=head.run_id,
            workflow=header.workflow,
            status=head.status,
            reason=head.reason,
            interrupted=interrupted,
            last_seq=head.last_seq,
            open_prompts=len(head.prompts),
            resumable=head.resumable if head.status in AT_REST else interrupted,
            created_at=head.created_at,
            updated_at=head.updated_at,
            header=header,
        )

    def idle(self) -> bool:
        """Whether no lease is held that has not expired."""
        return all(head.holder is None or self._expires_in(head) <= 0 for head in self.heads.values())


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """What ``list_runs`` asks for."""

    workflow: str | None = None
    status: frozenset[str] | None = None
    key: str | None = None
    notebook: str | None = None
    tag: str | None = None
    roots_only: bool = True

    def wants(self, run: RunSummary) -> bool:
        header = run.header
        return (
            (self.workflow is None or run.workflow == self.workflow)
            and (self.key is None or header.key == self.key)
            and (self.notebook is None or header.notebook == self.notebook)
            and (self.tag is None or self.tag in header.tags)
            and (not self.roots_only or header.parent_run_id is None)
            and (self.status is None or run.status in self.status or (run.interrupted and "interrupted" in self.status))
        )


def prepare(appends: Sequence[Append]) -> tuple[list[Prepared], Exception | None]:
    """Serialize now, whatever happens to the caller's objects later; the first failure is handed back, not raised."""
    failure: Exception | None = None
    prepared: list[Prepared] = []
    for append in appends:
        try:
            payload = events.encode(append.event)
            _check_json(payload)  # a Raw field is taken on trust by the encoder, and SQL would stumble over it for ever
        except Exception as error:
            failure, payload = failure or error, b"null"
        prepared.append((append.key, append.event.type, append.node_id, payload))
    return prepared, failure


def prepare_post(append: Append) -> Prepared:
    """Serialize a post.

    Raises:
        AnswerError: the answer is no JSON.
        StorageUnavailableError: another post is none.
    """
    [prepared], failure = prepare([append])
    if failure is None:
        return prepared
    if isinstance(append.event, (events.PromptAnswered, events.AnswerKept)):
        raise AnswerError(f"the answer is not JSON: {failure}") from failure
    raise StorageUnavailableError(f"an event could not be written as JSON: {failure}") from failure


def _decoded(payload: bytes, kind: type[E]) -> E:
    try:
        return msgspec.json.decode(payload, type=kind)
    except msgspec.DecodeError as error:
        raise AnswerError(f"the answer is not what {kind.type} needs: {error}") from None


def _holder_of(taken: events.LeaseTaken) -> Holder:
    return Holder(
        id=taken.holder,  # type: ignore[arg-type]
        pid=taken.pid,
        pid_started=taken.pid_started,
        boot_id=taken.boot_id,
        host=taken.host,
        label=taken.label,
        kind=taken.kind,
        ticket=taken.ticket,
    )


def _who(holder: Holder) -> str:
    return f"{holder.label or holder.kind} (pid {holder.pid})"


def _open_questions(head: RunHead) -> str:
    names = ", ".join(prompt.prompt for prompt in head.prompts.values())
    return f"; open now: {names}" if names else "; no question of it is open now"
