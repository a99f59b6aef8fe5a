"""A real hub, killed at random moments, beside a model of what a journal promises.

Two clients create, hold, lose, append, post, answer nothing else than what the model says, while the hub, and now and then
a client, dies with writes on their way. Nothing acknowledged may be missing, and a change that was on its way is there as a
whole or not at all. The hub's edges are pulled in (``edges/sitecustomize.py``): its log turns over, checkpoints and forgets
within a few appends.

CI runs 200 examples. More, printing the seed of what fails::

    LOOM_MACHINE_EXAMPLES=5000 python -m pytest tests/journal/test_state_machine.py -q -s --timeout 0 --hypothesis-seed=1
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec import Raw

from loom_kernel import events
from loom_kernel.errors import JournalCasConflictError, RunOverError, StaleLeaseError, UnknownRunError
from loom_kernel.ids import HolderId, RunId
from loom_kernel.journal.abc import Append, AppendOutcome, Holder, JournalEntry, Lease, LeaseAcquired, LeaseHeld
from loom_kernel.journal.hub import paths
from loom_kernel.journal.hub.client import HubJournal
from loom_kernel.journal.liveness import this_process
from tests.journal.hub.conftest import hub_pids

EXAMPLES = int(os.environ.get("LOOM_MACHINE_EXAMPLES", "200"))
STEPS = int(os.environ.get("LOOM_MACHINE_STEPS", "12"))
T = TypeVar("T")

Event = tuple[str | None, str, str | None, bytes]
"""Key, type, node, payload: what an entry must be."""


class World:
    """One folder, one hub and two clients for all examples; only runs are new each time."""

    def __init__(self) -> None:
        self.sockets = tempfile.mkdtemp(prefix="loom-m")
        os.environ["XDG_RUNTIME_DIR"] = self.sockets
        self.before = os.environ.get("PYTHONPATH")
        edges = str(Path(__file__).parent / "edges")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [edges, self.before]))
        self.folder = Path(self.sockets) / "project" / ".loom"
        self.runner = asyncio.Runner()
        self.clients: list[tuple[HubJournal, Holder]] = []
        self.numbers = iter(range(10**9))
        self.kills = self.examples = self.steps = self.in_flight_at_kills = self.events = 0
        for _ in range(2):
            self.clients.append(self.client())

    def client(self) -> tuple[HubJournal, Holder]:
        holder = this_process(HolderId(f"h{next(self.numbers)}"), kind="test")
        return self.run(HubJournal.open(self.folder, holder)), holder

    def run(self, work: Awaitable[T], seconds: float = 30) -> T:
        async def timed() -> T:
            return await asyncio.wait_for(work, seconds)

        return self.runner.run(timed())

    def kill(self) -> None:
        info = paths.read_info(paths.journal_path(self.folder))
        if info is not None:
            try:
                os.kill(info.pid, signal.SIGKILL)
                self.kills += 1
            except ProcessLookupError:
                pass

    def close(self) -> None:
        for journal, _ in self.clients:
            self.run(journal.close())
        self.runner.close()
        for pid in hub_pids(self.folder):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.sockets, ignore_errors=True)
        if self.before is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = self.before


class Run:
    """What the model knows of a run."""

    def __init__(self, id: str) -> None:
        self.id = RunId(id)
        self.events: list[Event] = []  # acknowledged, in order
        self.keys: dict[str, int] = {}
        self.epoch = 0
        self.lease: Lease | None = None
        self.old: Lease | None = None  # one that was valid once
        self.exists = False

    def add(self, event: Event) -> int:
        """Its seq; that of the earlier one where the key is known."""
        key = event[0]
        if key is not None and key in self.keys:
            return self.keys[key]
        self.events.append(event)
        if key is not None:
            self.keys[key] = len(self.events)
        return len(self.events)

    @property
    def over(self) -> bool:
        types = [type_ for _, type_, _, _ in self.events if type_ in ("run.ended", "run.started")]
        return types[-1:] == ["run.ended"]


class Flight:
    """An append that nobody has waited for yet."""

    def __init__(self, run: Run, appends: list[Append], client: int, future: Awaitable[list[AppendOutcome]]) -> None:
        self.run, self.appends, self.client, self.future = run, appends, client, future


def told(entry: JournalEntry) -> Event:
    """An entry as the model has it; of a lease, whose and which."""
    payload = entry.payload
    if isinstance(taken := entry.event, events.LeaseTaken):
        payload = b"%d %s" % (taken.epoch, taken.holder.encode())
    return entry.key, entry.type, entry.node_id, payload


world: World | None = None

runs = st.integers(0, 2)
clients = st.integers(0, 1)
sizes = st.sampled_from([1, 5, 300, 3000])
batches = st.lists(st.tuples(st.integers(0, 25), sizes), min_size=1, max_size=4)
moments = st.sampled_from([0.0, 0.0003, 0.001, 0.003])


class JournalMachine(RuleBasedStateMachine):
    """Runs of one example; everything that is asked is asked of a client that may have lost its hub."""

    @initialize()
    def begin(self) -> None:
        assert world is not None
        world.examples += 1
        if EXAMPLES > 200 and world.examples % 250 == 0:
            os.write(2, f"{world.examples} examples, {world.kills} kills, {world.events} events\n".encode())
        number = next(world.numbers)
        self.w = world
        self.runs = [Run(f"m{number}r{i}") for i in range(3)]
        self.flying: list[Flight] = []
        self.blobs: dict[str, bytes] = {}
        self.killed = False
        self.journals = [journal for journal, _ in world.clients]
        for n in range(3):
            self.start(n=n, client=n % 2)

    # ------------------------------------------------------------ what the model says

    def append_of(self, key: int, size: int) -> Append:
        text = (f"{key}." * size)[:size].encode()
        return Append(events.NodeCompleted(result=Raw(b'"%s"' % text)), f"step:{key}", f"k{key}")

    @staticmethod
    def event_of(append: Append) -> Event:
        return append.key, append.event.type, append.node_id, events.encode(append.event)

    def lease_event(self, run: Run, holder: Holder) -> None:
        run.epoch += 1
        run.add((f"lease:{run.epoch}", events.LeaseTaken.type, None, b"%d %s" % (run.epoch, holder.id.encode())))
        run.old, run.lease = run.lease or run.old, Lease(run.id, holder.id, run.epoch)

    def check(self, run: Run, outcomes: list[AppendOutcome], appends: list[Append]) -> None:
        """Outcomes are in order, each the entry that the model has."""
        for append, outcome in zip(appends, outcomes, strict=True):
            known = append.key in run.keys
            seq = run.add(self.event_of(append))
            entry = outcome.entry
            assert (entry.seq, told(entry)) == (seq, run.events[seq - 1])
            # Repeated to another hub, what is there already and is just what was sent counts as written by it.
            as_if_new = known and self.killed and self.event_of(append) == run.events[seq - 1]
            assert as_if_new or outcome.status == ("exists" if known else "appended"), (append.key, outcome)

    def settle(self) -> None:
        """Wait for what is on its way."""
        flying, self.flying = self.flying, []
        for flight in flying:
            outcomes = self.w.run(flight.future)
            self.check(flight.run, outcomes, flight.appends)

    def holder(self, client: int) -> Holder:
        return self.w.clients[client][1]

    def mine(self, run: Run) -> int | None:
        """The client that holds the run."""
        if run.lease is None:
            return None
        return next((i for i in range(2) if self.holder(i).id == run.lease.holder_id), None)

    # ------------------------------------------------------------ runs and leases

    @rule(n=runs, client=clients)
    def start(self, n: int, client: int) -> None:
        self.settle()
        run, holder = self.runs[n], self.holder(client)
        created = events.RunCreated(workflow="machine", tags=[run.id])
        if self.mine(run) is None and run.lease is not None:
            return  # of a client that died: see take
        got = self.w.run(self.journals[client].start_run(run.id, created, holder))
        if not run.exists:
            run.exists, run.events, run.keys = True, [], {}
            run.add(("created", created.type, None, events.encode(created)))
        self.acquired(run, holder, got)

    def acquired(self, run: Run, holder: Holder, got: LeaseAcquired | LeaseHeld) -> None:
        if run.lease is not None and run.lease.holder_id != holder.id:
            assert isinstance(got, LeaseHeld)
            assert (got.holder.id, got.epoch) == (run.lease.holder_id, run.epoch)
            return
        assert isinstance(got, LeaseAcquired), got
        # A repeated request may have been carried out twice: once by the hub that died before it could say so.
        while run.epoch + 1 < got.lease.epoch:
            self.lease_event(run, holder)
        self.lease_event(run, holder)
        assert got.lease == run.lease
        assert [told(entry) for entry in got.entries] == run.events

    @rule(n=runs, client=clients)
    def acquire(self, n: int, client: int) -> None:
        self.settle()
        run, holder = self.runs[n], self.holder(client)
        if self.mine(run) is None and run.lease is not None:
            return
        try:
            got = self.w.run(self.journals[client].acquire(run.id, holder))
        except UnknownRunError:
            assert not run.exists
            return
        assert run.exists
        self.acquired(run, holder, got)

    @rule(n=runs, client=clients)
    def take(self, n: int, client: int) -> None:
        """A person takes the run over, from whoever has it."""
        self.settle()
        run, holder = self.runs[n], self.holder(client)
        if run.lease is None or not run.exists or run.lease.holder_id == holder.id:
            return
        got = self.w.run(self.journals[client].takeover(run.id, holder, HolderId(run.lease.holder_id)))
        run.old, run.lease = run.lease, None
        self.acquired(run, holder, got)

    @rule(n=runs)
    def release(self, n: int) -> None:
        self.settle()
        run = self.runs[n]
        if (client := self.mine(run)) is not None:
            assert run.lease is not None
            self.w.run(self.journals[client].release(run.lease))
            run.old, run.lease = run.lease, None

    @rule(n=runs, status=st.sampled_from(["completed", "failed"]))
    def end(self, n: int, status: str) -> None:
        """The run ends, which gives its lease back: the hub may forget it."""
        run = self.runs[n]
        if (client := self.mine(run)) is not None:
            self.append_now(run, client, [Append(events.RunEnded(status=status), None, f"ended:{run.epoch}")])
            self.settle()
            run.old, run.lease = run.lease, None

    @rule(n=runs, owned=st.booleans())
    def delete(self, n: int, owned: bool) -> None:
        self.settle()
        run = self.runs[n]
        client = self.mine(run)
        if owned and client is not None:
            assert run.lease is not None
            self.w.run(self.journals[client].delete_owned_run(run.lease, len(run.events)))
        else:
            self.w.run(self.journals[0].delete_run(run.id))
        run.exists, run.events, run.keys, run.lease = False, [], {}, None

    # ------------------------------------------------------------ appends

    def append_now(self, run: Run, client: int, appends: list[Append], expect_seq: int | None = None) -> None:
        self.settle()
        assert run.lease is not None
        self.check(run, self.w.run(self.journals[client].append(run.lease, appends, expect_seq=expect_seq)), appends)

    @rule(n=runs, batch=batches, expect=st.booleans())
    def append(self, n: int, batch: list[tuple[int, int]], expect: bool) -> None:
        run = self.runs[n]
        if (client := self.mine(run)) is not None:
            self.settle()
            self.append_now(run, client, [self.append_of(*item) for item in batch], len(run.events) if expect else None)

    @rule(n=runs, batches=st.lists(batches, min_size=1, max_size=6))
    def fly(self, n: int, batches: list[list[tuple[int, int]]]) -> None:
        """Appends that nobody waits for yet."""
        run = self.runs[n]
        if (client := self.mine(run)) is None:
            return
        assert run.lease is not None
        lease = run.lease
        for batch in batches:
            appends = [self.append_of(*item) for item in batch]

            async def send(appends: list[Append] = appends) -> Awaitable[list[AppendOutcome]]:
                return asyncio.ensure_future(self.journals[client].append(lease, appends))

            self.flying.append(Flight(run, appends, client, self.w.run(send())))

    @rule(n=runs, batch=batches)
    def append_out_of_place(self, n: int, batch: list[tuple[int, int]]) -> None:
        """Where the writer thinks the run is elsewhere, and something is new: refused, and nothing of it written."""
        self.settle()
        run = self.runs[n]
        client = self.mine(run)
        appends = [self.append_of(*item) for item in batch]
        if client is None or all(append.key in run.keys for append in appends):
            return
        with pytest.raises(JournalCasConflictError):
            self.append_now(run, client, appends, len(run.events) + 1)

    @rule(n=runs, batch=batches, client=clients)
    def append_stale(self, n: int, batch: list[tuple[int, int]], client: int) -> None:
        """Under a lease that was valid once; the one that ended the run still hears that its appends are there."""
        self.settle()
        run = self.runs[n]
        if run.old is None or run.old == run.lease:
            return
        appends = [self.append_of(*item) for item in batch]
        ended_it = run.exists and run.over and run.lease is None and run.old.epoch == run.epoch
        if ended_it and all(append.key in run.keys for append in appends):
            self.check(run, self.w.run(self.journals[client].append(run.old, appends)), appends)
            return
        with pytest.raises(StaleLeaseError):
            self.w.run(self.journals[client].append(run.old, appends))

    @rule(n=runs, client=clients, name=st.integers(0, 5))
    def post(self, n: int, client: int, name: int) -> None:
        self.settle()
        run = self.runs[n]
        message = Append(events.MessagePosted(name=str(name), value=Raw(b"%d" % client)), None, f"message:{name}")
        known = message.key in run.keys
        try:
            outcome = self.w.run(self.journals[client].post(run.id, message))
        except UnknownRunError:
            assert not run.exists
        except RunOverError:
            assert run.over
            assert not known
        else:
            assert run.exists
            self.check(run, [outcome], [message])

    @rule(n=runs, text=st.binary(min_size=1, max_size=3))
    def value(self, n: int, text: bytes) -> None:
        """A large value, and the event that names it."""
        run = self.runs[n]
        if (client := self.mine(run)) is None:
            return
        data = text * 30_000
        sha256 = hashlib.sha256(data).hexdigest()
        self.w.run(self.journals[client].put_blobs([(sha256, data)]))
        reference = Raw(b'{"$loom":"bytes","blob":"%s","size":%d}' % (sha256.encode(), len(data)))
        self.append_now(run, client, [Append(events.NodeCompleted(result=reference), "blob", f"b{sha256}")])
        self.blobs[sha256] = data

    # ------------------------------------------------------------ faults

    @rule(n=runs, batches=st.lists(batches, min_size=1, max_size=6), after=moments)
    def fly_into_a_kill(self, n: int, batches: list[list[tuple[int, int]]], after: float) -> None:
        """The hub dies with them."""
        self.fly(n=n, batches=batches)
        if self.flying:
            self.kill_hub(after=after)

    @precondition(lambda self: self.flying)
    @rule(after=moments)
    def kill_hub(self, after: float) -> None:
        """With whatever is on its way."""
        time.sleep(after)
        self.w.in_flight_at_kills += len(self.flying)
        self.w.kill()
        self.killed = True

    @precondition(lambda self: self.flying)
    @rule(after=moments, hub_too=st.booleans())
    def kill_client(self, after: float, hub_too: bool) -> None:
        """A client dies; of what it had on its way, the hub has got some. Another takes its place, under another name."""
        client = self.flying[0].client
        self.w.run(asyncio.sleep(after))
        if hub_too:
            self.w.kill()
            self.killed = True
        lost = [flight for flight in self.flying if flight.client == client]
        self.flying = [flight for flight in self.flying if flight.client != client]
        unknown: list[tuple[Run, list[Flight]]] = []
        for run in {flight.run.id: flight.run for flight in lost}.values():
            sent = [flight for flight in lost if flight.run is run]
            answered = [flight.future.done() and not flight.future.exception() for flight in sent]  # type: ignore[attr-defined]
            # Answers may overtake each other (one of something that is there already is looked up), commits do not.
            kept = max((i + 1 for i, done in enumerate(answered) if done), default=0)
            for flight, done in zip(sent[:kept], answered, strict=False):
                if done:
                    self.check(run, self.w.run(flight.future), flight.appends)
                else:
                    self.add_all(run, flight)
            unknown.append((run, sent[kept:]))
        self.w.run(self.journals[client].close())
        self.w.clients[client] = self.w.client()
        self.journals[client] = self.w.clients[client][0]
        for run, flights in unknown:
            self.learn(run, flights)

    def add_all(self, run: Run, flight: Flight) -> None:
        for append in flight.appends:
            run.add(self.event_of(append))

    def learn(self, run: Run, unknown: list[Flight]) -> None:
        """Each of these is there as a whole or not at all, and in the order in which they were sent."""

        async def steady() -> list[Any]:
            """What a dead client left in the socket may still arrive: until the run is the same twice, and it is fenced."""
            entries: list[Any] = []
            while True:
                again = [entry async for entry in self.journals[0].read(run.id)]
                if again == entries:
                    return again
                entries = again
                await asyncio.sleep(0.01)

        found = [told(entry) for entry in self.w.run(steady())]
        for flight in unknown:
            if found == run.events:
                break
            self.add_all(run, flight)
        assert found == run.events, "half of a change is there, or something that nobody wrote"

    # ------------------------------------------------------------ looking

    def compare(self, run: Run, journal: HubJournal) -> None:
        async def entries() -> list[Any]:
            return [entry async for entry in journal.read(run.id)]

        found = self.w.run(entries())
        assert [told(entry) for entry in found] == run.events
        assert [e.seq for e in found] == list(range(1, len(found) + 1))
        order = [e.global_seq for e in found]
        assert order == sorted(set(order))

    @rule(n=runs, client=clients)
    def look(self, n: int, client: int) -> None:
        self.settle()
        run = self.runs[n]
        self.compare(run, self.journals[client])
        summary = self.w.run(self.journals[client].get_run(run.id))
        assert (summary is not None) == run.exists
        if summary is not None:
            assert summary.last_seq == len(run.events)
            assert (summary.status in events.TERMINAL) == run.over
        for sha256, data in self.blobs.items():
            if any(sha256.encode() in payload for run in self.runs for *_, payload in run.events):
                assert self.w.run(self.journals[client].get_blob(sha256)) == data

    @rule(n=runs, key=st.integers(0, 25))
    def look_up(self, n: int, key: int) -> None:
        self.settle()
        run = self.runs[n]
        entry = self.w.run(self.journals[1].read_key(run.id, f"k{key}"))
        seq = run.keys.get(f"k{key}")
        assert (None if entry is None else entry.seq) == seq

    @invariant()
    def count(self) -> None:
        if world is not None:
            world.steps += 1

    def teardown(self) -> None:
        error = sys.exc_info()[1]
        if error is not None and type(error).__name__ != "StopTest":  # with that, hypothesis gives a story up
            # The same story may end well when it is told again, and then nothing else would tell of this.
            os.write(2, "".join(traceback.format_exception(error)).encode())
            return
        if not hasattr(self, "w"):
            return
        self.settle()
        for run in self.runs:
            self.compare(run, self.journals[0])
            self.w.events += len(run.events)
        path = self.w.run(self.journals[1].query(_whole(run.id for run in self.runs)))
        try:
            rows = duckdb.read_parquet(str(path)).fetchall()
        finally:
            path.unlink()
        assert dict(rows) == {run.id: len(run.events) for run in self.runs if run.exists}


def _whole(ids: Iterator[str]) -> str:
    return f"select run_id, count(*) from events where run_id in ({', '.join(map(repr, ids))}) group by all"


@pytest.mark.timeout(max(300, EXAMPLES))
def test_a_hub_that_is_killed_keeps_its_promises(capsys: pytest.CaptureFixture[str]) -> None:
    """Two hundred stories of a dozen steps each; the figures are printed."""
    global world
    kept = {name: os.environ.get(name) for name in ("XDG_RUNTIME_DIR", "PYTHONPATH")}
    world = World()
    began = time.monotonic()
    try:
        run_state_machine_as_test(
            JournalMachine,
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=STEPS,
                deadline=None,
                print_blob=True,
                database=None,
                report_multiple_bugs=False,
                # Smaller stories of the same failure take as long to find as they are long; by hand, if wanted.
                phases=[Phase.generate, *([Phase.shrink] if os.environ.get("LOOM_MACHINE_SHRINK") else [])],
                suppress_health_check=list(HealthCheck),
            ),
        )
        with capsys.disabled():
            print(
                f"\n{world.examples} examples, {world.steps} steps, {world.kills} kills of the hub with "
                f"{world.in_flight_at_kills} appends on their way, {world.events} events, {time.monotonic() - began:.0f} s"
            )
    finally:
        world.close()
        for name, was in kept.items():
            if was is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = was
        world = None
