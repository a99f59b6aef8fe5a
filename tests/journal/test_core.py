"""The journal's rules, against a simple model of them, and lease expiry by an injected clock."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import Raw

from loom_kernel import events
from loom_kernel.errors import AnswerError, JournalCasConflictError, StaleLeaseError
from loom_kernel.ids import HolderId
from loom_kernel.journal.abc import Append, Holder, JournalEntry, Lease, LeaseHeld
from loom_kernel.journal.core import GRACE_S, LEASE_TTL_S, Change, JournalCore, prepare, prepare_post
from loom_kernel.journal.liveness import ALIVE, DEAD, STOPPED, UNKNOWN, Liveness

pytestmark = pytest.mark.timeout(60)

ANN, BOB = Holder(id=HolderId("ann"), pid=1, label="ann"), Holder(id=HolderId("bob"), pid=2, label="bob")
CREATED = events.encode(events.RunCreated(workflow="w"))


class StillClock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def time(self) -> float:
        return 1_700_000_000.0 + self.now

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    def busy(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


# ---------------------------------------------------------------- against a model


@dataclass
class Run:
    """The model of a run: a list, and who holds it."""

    rows: list[tuple[str | None, str]] = field(default_factory=list)
    epoch: int = 0
    holder: str | None = None
    open: int | None = None  # the generation of its one question


RUNS = st.sampled_from(["r1", "r2"])
HOLDERS = st.sampled_from([ANN, BOB])
KEYS = st.sampled_from([None, "k1", "k2", "k3", "k4"])


class Journals(RuleBasedStateMachine):
    """Creates, leases, appends, posts, deletes; now and then the disk refuses the newest changes, which are undone."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = StillClock()
        self.core = JournalCore(self.clock)
        self.log: list[JournalEntry] = []
        self.runs: dict[str, Run] = {}
        self.leases: list[Lease] = []

    def keep(self, change: Change) -> None:
        self.log += change.entries

    def run(self, run_id: str) -> Run | None:
        run = self.runs.get(run_id)
        return run if run is not None and run.rows else None

    @rule(run_id=RUNS)
    def create(self, run_id: str) -> None:
        change = self.core.create(run_id, CREATED)
        assert (change is None) == (self.run(run_id) is not None)
        if change is not None:
            self.keep(change)
            old = self.runs.get(run_id)
            self.runs[run_id] = Run([("created", "run.created")], old.epoch if old else 0)

    @rule(run_id=RUNS, holder=HOLDERS, force=st.booleans())
    def acquire(self, run_id: str, holder: Holder, force: bool) -> None:
        run = self.run(run_id)
        if run is None:
            return
        how = {"expected_holder": run.holder} if force and run.holder else {}
        change = self.core.acquire(run_id, holder, **how)
        if run.holder not in (None, holder.id) and not how:
            assert isinstance(change, LeaseHeld)
            assert change.holder.id == run.holder
            return
        assert isinstance(change, Change)
        assert change.lease is not None
        run.epoch, run.holder = run.epoch + 1, holder.id
        run.rows.append((f"lease:{run.epoch}", "lease.taken"))
        assert change.lease == Lease(run_id, holder.id, run.epoch)
        self.leases.append(change.lease)
        self.keep(change)

    def valid(self, lease: Lease) -> Run | None:
        run = self.run(lease.run_id)
        return run if run is not None and (run.epoch, run.holder) == (lease.epoch, lease.holder_id) else None

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), keys=st.lists(KEYS, min_size=1, max_size=4), expect=st.sampled_from([None, 0, 1]))
    def append(self, data: st.DataObject, keys: list[str | None], expect: int | None) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        run = self.valid(lease)
        last = len(run.rows) if run else 0
        expect_seq = None if expect is None else last + expect
        prepared, _ = prepare([Append(events.NodeCompleted(result=Raw(b"1")), "n", key) for key in keys])
        known = {key: seq for seq, (key, _) in enumerate(run.rows, 1) if key} if run else {}
        fresh = any(key is None or key not in known for key in keys)
        try:
            change = self.core.append(lease, prepared, expect_seq)
        except StaleLeaseError:
            assert run is None
            return
        except JournalCasConflictError:
            assert run is not None
            assert fresh
            assert expect == 1
            return
        assert run is not None
        assert not (fresh and expect == 1)
        for key, outcome in zip(keys, change.outcomes, strict=True):
            if key is not None and key in known:
                assert outcome == known[key]
                continue
            assert isinstance(outcome, JournalEntry)
            run.rows.append((key, "node.completed"))
            assert (outcome.seq, outcome.key) == (len(run.rows), key)
            if key is not None:
                known[key] = len(run.rows)
        self.keep(change)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        run = self.valid(lease)
        if run is None:
            return
        generation = len(run.rows)
        asked = events.PromptOpened(prompt="go", kind="confirm", message="?", generation=generation)
        self.keep(self.core.append(lease, prepare([Append(asked, "prompt:go:#1")])[0]))
        run.rows.append((None, asked.type))
        run.open = generation

    @rule(run_id=RUNS, wrong=st.booleans())
    def answer(self, run_id: str, wrong: bool) -> None:
        run = self.run(run_id)
        if run is None:
            return
        generation = run.open or 1
        given = events.PromptAnswered(generation=generation, value=Raw(b"3" if wrong else b"true"))
        key = f"answer:prompt:go:#1:{generation}"
        known = [seq for seq, row in enumerate(run.rows, 1) if row[0] == key]
        try:
            change = self.core.post(run_id, prepare_post(Append(given, "prompt:go:#1")))
        except AnswerError:
            assert not known
            assert wrong or run.open is None
            return
        if known:
            assert change.outcomes == known
            return
        assert not wrong
        run.rows.append((key, given.type))
        run.open = None
        self.keep(change)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        run = self.valid(lease)
        if run is None:
            with pytest.raises(StaleLeaseError):
                self.core.release(lease)
            return
        self.keep(self.core.release(lease))
        run.holder = None

    @rule(run_id=RUNS)
    def delete(self, run_id: str) -> None:
        run = self.run(run_id)
        change = self.core.delete(run_id)
        assert (change is None) == (run is None)
        if run is not None and change is not None:
            self.keep(change)
            self.runs[run_id] = Run(epoch=run.epoch)

    @rule(data=st.data(), count=st.integers(1, 4))
    def refused_by_the_disk(self, data: st.DataObject, count: int) -> None:
        """Some changes are made, none is kept."""
        before = self.state()
        changes: list[Change | LeaseHeld | None] = []
        for _ in range(count):
            run_id = data.draw(RUNS)
            head = self.core.heads.get(run_id)
            if head is None or not head.exists:
                changes.append(self.core.create(run_id, CREATED))
            elif data.draw(st.booleans()):
                changes.append(self.core.delete(run_id))
            else:
                changes.append(self.core.acquire(run_id, data.draw(HOLDERS)))
        for change in reversed(changes):
            if isinstance(change, Change):
                self.core.undo(change)
        assert self.state() == before

    def state(self) -> object:
        heads = {
            run_id: (head.save()._replace(keys=dict(head.keys or {}), renewed=0.0))
            for run_id, head in self.core.heads.items()
        }
        return self.core.global_seq, heads

    @invariant()
    def the_log_has_no_gap(self) -> None:
        assert [entry.global_seq for entry in self.log] == list(range(1, len(self.log) + 1))

    @invariant()
    def heads_are_as_the_model(self) -> None:
        for run_id, run in self.runs.items():
            head = self.core.heads[run_id]
            assert (head.last_seq, head.epoch) == (len(run.rows), run.epoch)
            assert (head.holder.id if head.holder else None) == run.holder
            assert [prompt.generation for prompt in head.prompts.values()] == ([run.open] if run.open else [])
            assert head.keys == {key: seq for seq, (key, _) in enumerate(run.rows, 1) if key is not None}

    @invariant()
    def the_log_says_all(self) -> None:
        """Replaying it gives the same heads."""
        again = JournalCore(self.clock)
        for entry in self.log:
            again.replay(entry)
        for run_id in self.runs:
            mine, theirs = self.core.heads[run_id].save(), again.heads[run_id].save()
            assert mine._replace(renewed=0.0, keys=None) == theirs._replace(renewed=0.0, keys=None)


TestJournals = Journals.TestCase
TestJournals.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


# ---------------------------------------------------------------- leases and time


class World:
    """A core whose holders' processes are what the test says."""

    def __init__(self) -> None:
        self.clock = StillClock()
        self.processes: dict[str, Liveness] = {}
        self.core = JournalCore(self.clock, lambda holder: self.processes.get(holder.id, UNKNOWN))
        assert self.core.create("r", CREATED)

    def take(self, holder: Holder) -> Lease | None:
        change = self.core.acquire("r", holder)
        return None if isinstance(change, LeaseHeld) else change.lease


@pytest.fixture
def world() -> World:
    return World()


def test_a_lease_lasts_its_time(world: World) -> None:
    """Of a holder of whom nothing is known, from its last renewal."""
    lease = world.take(ANN)
    assert lease is not None
    world.clock.now += LEASE_TTL_S - 1
    assert world.take(BOB) is None
    world.core.renew(lease)
    world.clock.now += LEASE_TTL_S - 1
    assert world.take(BOB) is None
    world.clock.now += 1
    assert world.take(BOB) is not None


def test_any_frame_of_a_holder_renews(world: World) -> None:
    """All its leases at once, and an append is one."""
    lease = world.take(ANN)
    assert lease is not None
    world.clock.now += 20
    world.core.holder_seen("ann")
    world.clock.now += 20
    assert world.take(BOB) is None
    world.core.append(lease, [(None, "node.completed", "n", b"{}")])
    world.clock.now += 20
    assert world.take(BOB) is None


def test_a_late_holder_whose_lease_nobody_took_goes_on(world: World) -> None:
    """Busy is not dead."""
    lease = world.take(ANN)
    assert lease is not None
    world.clock.now += 1_000
    state = world.core.lease_state("r")
    assert state is not None
    assert state.expired
    world.core.append(lease, [(None, "node.completed", "n", b"{}")])
    world.core.renew(lease)


def test_a_connected_living_holder_keeps_its_lease(world: World) -> None:
    """For as long as it likes."""
    world.processes["ann"] = ALIVE
    world.core.holder_connected(ANN)
    world.take(ANN)
    world.clock.now += 100_000
    assert world.take(BOB) is None


def test_a_stopped_process_loses_it_in_time(world: World) -> None:
    """An open connection of a process that does not run says nothing."""
    world.processes["ann"] = STOPPED
    world.core.holder_connected(ANN)
    world.take(ANN)
    world.clock.now += LEASE_TTL_S + 0.1
    assert world.take(BOB) is not None


def test_a_closed_connection_gets_a_moment(world: World) -> None:
    """In which the holder may come back; with several connections the last one counts."""
    world.processes["ann"] = ALIVE
    world.core.holder_connected(ANN)
    world.core.holder_connected(ANN)
    world.take(ANN)
    world.core.holder_disconnected("ann")
    world.clock.now += 10
    assert world.take(BOB) is None
    world.core.holder_disconnected("ann")
    world.clock.now += GRACE_S - 0.5
    assert world.core.expires_in("r") == pytest.approx(0.5)
    assert world.take(BOB) is None
    world.core.holder_connected(ANN)
    world.clock.now += 10
    assert world.take(BOB) is None
    world.core.holder_disconnected("ann")
    world.clock.now += GRACE_S
    assert world.take(BOB) is not None


def test_a_dead_process_loses_it_at_once(world: World) -> None:
    """No time needs to pass."""
    world.core.holder_connected(ANN)
    world.take(ANN)
    world.processes["ann"] = DEAD
    assert world.take(BOB) is not None


def test_a_restart_counts_as_a_renewal(world: World) -> None:
    """A lease read back from the log is as fresh as one just renewed."""
    change = world.core.acquire("r", ANN)
    assert isinstance(change, Change)
    again = JournalCore(world.clock)
    world.clock.now += 1_000
    again.replay(JournalEntry(1, "r", 1, "created", "run.created", None, CREATED, 1))
    again.replay(change.entries[0])
    assert again.expires_in("r") == LEASE_TTL_S
    again.renew(Lease("r", "ann", 1))


def test_interrupted_is_derived(world: World) -> None:
    """Running, and nobody holds a live lease; a run that nobody ever took is only pending."""
    assert not world.core.summary(world.core.head("r")).interrupted
    lease = world.take(ANN)
    assert lease is not None
    assert not world.core.summary(world.core.head("r")).interrupted
    world.processes["ann"] = DEAD
    run = world.core.summary(world.core.head("r"))
    assert (run.status, run.interrupted, run.resumable) == ("pending", True, True)
    world.core.append(lease, [(None, "run.ended", None, events.encode(events.RunEnded(status="completed")))])
    assert not world.core.summary(world.core.head("r")).interrupted


def test_a_clock_set_back_does_not_reorder_a_run(world: World) -> None:
    """Timestamps of one run never decrease."""
    lease = world.take(ANN)
    assert lease is not None
    before = world.core.head("r").updated_at
    world.clock.now -= 500
    change = world.core.append(lease, [(None, "node.completed", "n", b"{}")])
    assert change.entries[0].created_at == before
