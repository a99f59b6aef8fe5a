"""Forking a run: which of its records another run begins with, and writing them.

Deciding is pure. A fork goes on from a node: that call and all that came after it in the graph run again, the rest is
answered from copies. Values that are too large for an event are shared by their hash. Nothing of the run that is
forked is changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Raw, structs

from loom_kernel import events as ev
from loom_kernel.engine.keys import child_run_id
from loom_kernel.engine.replay import History, replayable
from loom_kernel.errors import ForkError, JournalError, ResumeError
from loom_kernel.ids import RunId
from loom_kernel.journal.abc import Append, JournalEntry, LeaseAcquired, RunJournal

if TYPE_CHECKING:
    from loom_kernel.engine.engine import Engine

BATCH = 256
BATCH_BYTES = 1 << 20
"""The most that goes in one append: a frame of the hub takes 4 MiB, and one event stays below 200 KiB."""

_LAST_COUNTS = (ev.NodeStarted, ev.PromptOpened, ev.PromptAnswered, ev.NodeCompleted, ev.NodeFailed)


@dataclass(frozen=True)
class Given:
    """An answer that a person gives instead of the recorded one. ``value`` is as the journal keeps it."""

    value: Raw
    by: str = ""


@dataclass
class Cut:
    """Where a run is cut, by node ids; the children that are cut themselves are in ``children``.

    Attributes:
        points: calls that run again, with all that came after them.
        answers: other answers: the question counts as answered so, and all that came after it runs again.
        early: answers to questions that are yet to be asked, by the name that people type.
        unseen_again: run calls again that are known by their name alone: nobody can tell what they depend on.
        at: the path of the point, for people.
    """

    points: set[str] = field(default_factory=set)
    answers: dict[str, Given] = field(default_factory=dict)
    early: dict[str, Given] = field(default_factory=dict)
    children: dict[str, Cut] = field(default_factory=dict)
    unseen_again: bool = False
    at: str = ""


@dataclass(frozen=True)
class Copies:
    """What a fork begins with.

    Attributes:
        appends: the copies, in the order of the originals; the event that says that they are all there is the last.
        kept: node ids of the calls that are answered.
        again: node ids of the calls that had an outcome and run again.
        unfinished: the runs of children that are gone on with in a fork of their own, by the node's id.
    """

    appends: tuple[Append, ...]
    kept: frozenset[str]
    again: tuple[str, ...]
    unfinished: dict[str, str]


class _Read(NamedTuple):
    """An entry whose event is decoded once."""

    seq: int
    type: str
    node_id: str | None
    key: str | None
    event: ev.Event
    created_at: int = 0


def copies(source: str, entries: Iterable[JournalEntry], cut: Cut) -> Copies:
    """Decide what a fork keeps.

    Args:
        source: the id of the run that is forked.
        entries: its whole history.
        cut: where.

    Raises:
        ForkError: an answer for a child that will be started anew.
    """
    # A type of a newer version is passed over.
    read = [_Read(e.seq, e.type, e.node_id, e.key, e.event) for e in entries if e.type in ev.EVENTS]
    history = History.of(read)
    records = history.records
    parents = _parents(read)
    points = set(cut.points)
    if cut.unseen_again:
        points |= {r.node_id for r in records.values() if r.kind == "inline"}
    gone = points | _after(parents, points | set(cut.answers) | set(cut.children))
    for node_id, child in cut.children.items():
        if node_id in gone and (child.answers or child.early):
            raise ForkError(
                f"{records[node_id].name!r} comes after the node that the fork goes on from, so it is started anew; "
                "answer its questions when they are asked"
            )
    answers = {node_id: given for node_id, given in cut.answers.items() if node_id not in gone}
    early = {
        records[node_id].opened.prompt: given  # type: ignore[union-attr]
        for node_id, given in cut.answers.items()
        if node_id in gone
    }
    early.update(cut.early)
    runs_again = gone | set(cut.children) | set(history.stale)
    kept = frozenset(
        r.node_id for r in records.values() if r.node_id not in runs_again and (replayable(r) or r.node_id in answers)
    )
    until = _until(read, kept, runs_again)
    made = _only_last([append for one in read for append in _copy(one, history, kept, answers, until, parents)])
    asked = {r.opened.prompt for r in records.values() if r.opened is not None}
    for one in read:
        if isinstance(one.event, ev.AnswerKept) and one.event.prompt not in asked and one.event.prompt not in early:
            made.append(Append(one.event, None, one.key))
    for name, given in early.items():
        made.append(Append(ev.AnswerKept(prompt=name, value=given.value, by=given.by), None, f"early:{name}"))
    again = tuple(r.node_id for r in records.values() if r.node_id not in kept and r.status in ("completed", "failed"))
    made.append(Append(ev.RunForked(source=source, at=cut.at, kept=len(kept), again=len(again)), None, "forked"))
    unfinished = {
        r.node_id: r.child_run_id
        for r in records.values()
        if r.child_run_id and r.node_id not in kept and r.node_id not in gone
    }
    return Copies(tuple(made), kept, again, unfinished)


def after(entries: Iterable[JournalEntry], points: Collection[str]) -> set[str]:
    """The calls that came after one of these in the graph, over any number of edges."""
    read = [_Read(e.seq, e.type, e.node_id, e.key, e.event) for e in entries if e.type in ev.EVENTS]
    return _after(_parents(read), set(points))


def _parents(read: Iterable[_Read]) -> dict[str, Sequence[str]]:
    """The parents of each call; siblings of a wide fan-out share one sequence."""
    found: dict[str, Sequence[str]] = {}
    for one in read:
        if isinstance(one.event, (ev.NodeStarted, ev.PromptOpened, ev.NodeRecalled)) and one.node_id is not None:
            parents: Sequence[str] = one.event.parents
            if len(parents) == 1 and parents[0].startswith("="):
                parents = found.get(parents[0][1:], ())
            found[one.node_id] = parents
    return found


def _after(parents: Mapping[str, Sequence[str]], points: set[str]) -> set[str]:
    families: dict[int, list[str]] = {}  # siblings by the sequence that they share, which is looked through once
    below: dict[str, list[int]] = {}
    for node, above in parents.items():
        family = families.setdefault(id(above), [])
        if not family:
            for parent in above:
                below.setdefault(parent, []).append(id(above))
        family.append(node)
    found: set[str] = set()
    seen: set[int] = set()
    todo = list(points)
    while todo:
        for family_id in below.get(todo.pop(), ()):
            if family_id not in seen:
                seen.add(family_id)
                fresh = [node for node in families[family_id] if node not in found]
                found.update(fresh)
                todo += fresh
    return found


def _until(read: Sequence[_Read], kept: Collection[str], again: Collection[str]) -> int:
    """Up to where values that belong to no call are kept: where the last kept call began, or the first other one."""
    last_kept = first_again = 0
    for one in read:
        if isinstance(one.event, (ev.NodeStarted, ev.PromptOpened)):
            if one.node_id in kept:
                last_kept = one.seq
            elif one.node_id in again and not first_again:
                first_again = one.seq
    if not first_again:
        return read[-1].seq + 1 if read else 0
    return max(last_kept, first_again)


def _copy(
    one: _Read,
    history: History,
    kept: Collection[str],
    answers: Mapping[str, Given],
    until: int,
    parents: Mapping[str, Sequence[str]],
) -> list[Append]:
    event, node_id = one.event, one.node_id
    if node_id is None or node_id not in kept:
        return _of_body(one, until)
    record = history.records[node_id]
    match event:
        case ev.PromptOpened() if node_id in answers:
            return _answered(event, node_id, one.key, answers[node_id])
        case _ if node_id in answers:
            return []
        case ev.NodeStarted():
            event = structs.replace(event, parents=list(parents[node_id]))
        case ev.NodeFailed() | ev.NodeFailurePassed():
            if record.status != "failed":
                return []
        case (
            ev.PromptOpened() | ev.PromptAnswered() | ev.NodeCompleted() | ev.NodeLogged() | ev.ArtifactKept()
            | ev.MessageRecorded() | ev.SessionMoved() | ev.ModelRouted()
        ):  # fmt: skip
            pass
        case _:
            return []
    return [Append(event, node_id, one.key)]


def _of_body(one: _Read, until: int) -> list[Append]:
    """What the body recorded itself. Its own reports are not copied, since it says them again."""
    if one.seq >= until:
        return []
    match one.event:
        case ev.ValueRecorded() | ev.ArtifactKept(source="put"):
            return [Append(one.event, one.node_id, one.key)]
        case ev.OutputReported(index=index) if index < 0:
            return [Append(one.event, one.node_id, one.key)]
        case _:
            return []


def _answered(event: ev.PromptOpened, node_id: str, key: str | None, given: Given) -> list[Append]:
    n = event.generation
    answered = ev.PromptAnswered(generation=n, value=given.value, by=given.by, shown_hash=event.shown_hash)
    done = ev.NodeCompleted(result=given.value, attempts=n, answered_by=given.by)
    return [
        Append(event, node_id, key),
        Append(answered, node_id, f"answer:{node_id}:{n}"),
        Append(done, node_id, f"{node_id}:done:{n}"),
    ]


def _only_last(appends: list[Append]) -> list[Append]:
    """Of the tries of a call the one that counted."""
    last: dict[tuple[str | None, type[ev.Event]], Append] = {}
    for append in appends:
        last[append.node_id, type(append.event)] = append
    return [a for a in appends if not isinstance(a.event, _LAST_COUNTS) or last[a.node_id, type(a.event)] is a]


# ---------------------------------------------------------------- doing


@dataclass(frozen=True)
class Family:
    """The copies of a run and of those of its children that go on: ``children`` are written before the run begins."""

    root: Copies
    children: tuple[tuple[RunId, ev.RunCreated, Copies], ...]


async def plan(journal: RunJournal, source: str, new_id: str, cut: Cut) -> Family:
    """Read a run and its unfinished children, and decide what their forks keep. Writes nothing.

    Raises:
        ForkError: it cannot be forked so.
        UnknownRunError: a child is gone.
    """
    found: list[tuple[RunId, ev.RunCreated, Copies]] = []

    async def look(source: str, new_id: str, cut: Cut) -> tuple[Copies, ev.RunCreated]:
        entries = [entry async for entry in journal.read(RunId(source))]
        mine = copies(source, entries, cut)
        for node_id, child in mine.unfinished.items():
            if await journal.get_run(RunId(child)) is None:
                continue  # its node began, and it does not exist yet, or not any more: it is started anew
            child_id = child_run_id(new_id, node_id)
            theirs, head = await look(child, child_id, cut.children.get(node_id) or Cut())
            made = structs.replace(
                head,
                parent_run_id=new_id,
                root_run_id=root_id,
                forked_from=child,
                forked_at=cut.children[node_id].at if node_id in cut.children else "",
            )
            found.append((RunId(child_id), made, theirs))
        created = entries[0].event
        assert isinstance(created, ev.RunCreated), "a run begins with run.created"
        return mine, created

    root_id = new_id
    root, _ = await look(source, new_id, cut)
    return Family(root, tuple(found))


async def begin(engine: Engine, acquired: LeaseAcquired, family: Family) -> LeaseAcquired:
    """Write the copies of a run that was made a moment ago, its children's first; its lease with the history then.

    Raises:
        StorageUnavailableError: they could not be written. What is not whole is removed, or never executed.
    """
    journal = engine.journal
    for run_id, created, theirs in family.children:
        child = await journal.start_run(run_id, created, engine.holder)
        if not isinstance(child, LeaseAcquired):
            raise ResumeError(f"run {run_id} is there already")
        await _write(journal, child, theirs.appends)
        await journal.release(child.lease)
    return await _write(journal, acquired, family.root.appends)


async def _write(journal: RunJournal, acquired: LeaseAcquired, appends: Sequence[Append]) -> LeaseAcquired:
    """Write the copies under a new run's lease; the lease with the history as it is then.

    Raises:
        StorageUnavailableError: they could not be written; the run is removed.
    """
    entries = list(acquired.entries)
    try:
        for batch in _batches(appends):
            entries += [outcome.entry for outcome in await journal.append(acquired.lease, batch)]
    except BaseException:
        with contextlib.suppress(JournalError):
            await journal.delete_owned_run(acquired.lease)
        raise
    return LeaseAcquired(acquired.lease, entries)


def _batches(appends: Sequence[Append]) -> Iterable[list[Append]]:
    batch: list[Append] = []
    size = 0
    for append in appends:
        weight = len(ev.encode(append.event)) + 200
        if batch and (len(batch) >= BATCH or size + weight > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(append)
        size += weight
    yield batch


def broken_off(history: History) -> str:
    """Why a fork cannot be executed that was never made whole; empty for every other run."""
    created: Any = history.created
    if created is None or not created.forked_from or history.forked is not None:
        return ""
    return "its making was broken off, so that records are missing; remove it and fork again"
