"""``ctx.storage``: what a project keeps, committed all or nothing, by whichever run and process."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from typing import Any

import pytest

from loom_kernel import codec
from loom_kernel import events as ev
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.storage import StorageAccess, StoredArtifact
from loom_kernel.clock import VirtualClock
from loom_kernel.engine.artifacts import of_put
from loom_kernel.errors import (
    LoomError,
    StorageConflictError,
    StorageNotFoundError,
    StorageRejectedError,
    ValueNotStorableError,
)
from loom_kernel.journal.memory_store import MemoryRunJournal
from loom_kernel.kept import project
from loom_kernel.kept.operations import operations
from loom_kernel.kept.storage import ReadStorage, RunStorage
from tests.engine.harness import World, engine_on, events_of, rest, types_of, until

pytestmark = pytest.mark.timeout(30)


def payload(data: Any, stage: str = "draft", flow: str = "report") -> dict[str, Any]:
    return {"flow_name": flow, "stage_name": stage, "data": data}


def create(id: str, data: Any = 1, stage: str = "draft") -> dict[str, Any]:
    return {"type": "create_artifact", "id": id, "payload": payload(data, stage)}


def replace(id: str, revision: int, data: Any = 2, stage: str = "draft") -> dict[str, Any]:
    return {"type": "replace_artifact", "id": id, "expected_revision": revision, "payload": payload(data, stage)}


def record(id: str, data: Any = 1, stage: str = "log") -> dict[str, Any]:
    return {"type": "append_record", "id": id, "payload": payload(data, stage)}


def remove(id: str, revision: int) -> dict[str, Any]:
    return {"type": "remove_artifact", "id": id, "expected_revision": revision}


def unrecord(id: str) -> dict[str, Any]:
    return {"type": "remove_record", "id": id}


class FakePort:
    """A run that records nothing: the storage alone is looked at."""

    run_id = "run"

    def __init__(self, journal: MemoryRunJournal) -> None:
        self.journal = journal
        self._numbers = itertools.count()

    def ask(self, name: str, identity: str, make: Any) -> Coroutine[Any, Any, Any]:
        return make(f"call-{next(self._numbers)}", "")


def storage(clock: Any = None) -> StorageAccess:
    return RunStorage(FakePort(MemoryRunJournal(clock)), of_put)


def test_a_batch_is_done_in_order_with_one_time() -> None:
    """Removing an artifact frees its place for the next operation; every result of a batch has the same time."""

    async def main() -> None:
        s = storage()
        first = await s.commit([create("a", {"n": 1}), record("r1"), record("r2", stage="other")])
        [artifact] = first.written_artifacts
        assert artifact.revision == 1 and artifact.created_at == artifact.updated_at
        assert {r.created_at for r in first.appended_records} == {artifact.created_at}
        second = await s.commit([remove("a", 1), create("b", {"n": 2}), unrecord("r1")])
        assert second.removed_artifact_ids == ["a"] and second.removed_record_ids == ["r1"]
        assert [a.revision for a in second.written_artifacts] == [2]
        found = await s.get_artifact("report", "draft")
        assert found == second.written_artifacts[0] and found is not second.written_artifacts[0]
        assert await s.get_artifact_by_id("a") is None and await s.get_record_by_id("r1") is None
        empty = await s.commit([])
        assert (empty.written_artifacts, empty.removed_record_ids) == ([], [])

    asyncio.run(main())


def test_revisions_count_the_whole_project_and_never_come_again() -> None:
    """A replaced or recreated artifact gets the project's next number; the time of its creation stays."""

    async def main() -> None:
        clock = VirtualClock()
        s = storage(clock)
        await s.commit([create("a"), create("b", stage="two")])
        await clock.sleep(5)
        result = await s.commit([replace("a", 1, {"n": 9})])
        [again] = result.written_artifacts
        assert again.revision == 3 and again.created_at < again.updated_at and again.data == {"n": 9}
        await s.commit([remove("a", 3)])
        assert (await s.commit([create("a")])).written_artifacts[0].revision == 4

    asyncio.run(main())


REFUSED: list[tuple[str, list[Any], type[Exception], str]] = [
    ("id taken", [create("a", stage="free")], StorageConflictError, "artifact 'a' already"),
    ("place taken", [create("z")], StorageConflictError, "is at 'report', 'draft' already"),
    ("old revision", [replace("a", 7)], StorageConflictError, "revision 1 now, not 7"),
    ("other place", [replace("a", 1, stage="else")], StorageConflictError, "cannot be changed"),
    ("record taken", [record("r")], StorageConflictError, "record 'r' already"),
    ("nothing to replace", [replace("q", 1)], StorageNotFoundError, "no artifact 'q'"),
    ("nothing to remove", [remove("q", 1)], StorageNotFoundError, "no artifact 'q'"),
    ("no record", [unrecord("q")], StorageNotFoundError, "no record 'q'"),
    ("twice", [replace("a", 1), remove("a", 1)], StorageRejectedError, "target twice"),
    ("a second fails", [record("new"), replace("a", 9)], StorageConflictError, "operation 1"),
    ("no type", [{"id": "a"}], StorageRejectedError, "type None"),
    ("missing", [{"type": "remove_artifact", "id": "a"}], StorageRejectedError, "needs expected_revision"),
    ("extra", [{**unrecord("r"), "why": 1}], StorageRejectedError, "has no 'why'"),
    ("blank", [create(" ")], StorageRejectedError, "text of 1 to"),
    ("control", [create("a\nb")], StorageRejectedError, "control character"),
    ("surrogate", [create("\ud800")], StorageRejectedError, "valid text"),
    ("long", [create("x" * 1025)], StorageRejectedError, "1,024"),
    ("revision", [replace("a", 0)], StorageRejectedError, "no revision"),
    ("true", [remove("a", True)], StorageRejectedError, "no revision"),
    ("nan", [create("n", {"deep": [float("nan")]}, "n")], ValueNotStorableError, "operation 0: data"),
    ("not a list", {"type": "x"}, StorageRejectedError, "a list of operations"),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("batch", "error", "sentence"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_what_is_refused_changes_nothing(batch: Any, error: type[Exception], sentence: str) -> None:
    """Each wrong batch has its error and sentence, and none of it is done."""

    async def main() -> None:
        s = storage()
        await s.commit([create("a"), record("r")])
        with pytest.raises(error, match=sentence.replace(".", r"\.")):
            await s.commit(batch)
        assert [a.id for a in (await s.list_artifacts()).data] == ["a"]
        assert [r.id for r in (await s.list_records()).data] == ["r"]

    asyncio.run(main())


def test_the_same_id_may_name_an_artifact_and_a_record() -> None:
    """Ids belong to their category; both spellings of keys are taken."""

    async def main() -> None:
        s = storage()
        await s.commit(
            [
                {"type": "create_artifact", "id": "x", "payload": {"flowName": "f", "stageName": "s", "data": 1}},
                {"type": "append_record", "id": "x", "payload": payload(2, "s", "f")},
            ]
        )
        assert (await s.get_artifact("f", "s")).data == 1 and (await s.get_latest_record("f", "s")).data == 2

    asyncio.run(main())


def test_lists_come_in_pages_that_fit_together() -> None:
    """Newest first or oldest first, filtered, with a cursor that only its own query takes."""

    async def main() -> None:
        clock = VirtualClock()
        s = storage(clock)
        for n in range(7):
            await s.commit([record(f"r{n}", n, "even" if n % 2 == 0 else "odd")])
            await clock.sleep(1)
        everything = await s.list_records(order="created_asc")
        assert [r.data for r in everything.data] == list(range(7)) and everything.next_cursor is None
        pages, cursor = [], None
        while True:
            page = await s.list_records({"limit": 3, "cursor": cursor})
            pages.append([r.data for r in page.data])
            cursor = page.next_cursor
            if cursor is None:
                break
            await s.commit([unrecord(page.data[-1].id)])  # the row that the cursor names may go
        assert pages == [[6, 5, 4], [3, 2, 1], [0]]
        evens = await s.list_records(flow_name="report", stage_name="even", limit=1)
        assert evens.next_cursor is not None and evens.data[0].data == 6
        assert (await s.list_records(ids=[])).data == [], "no ids fit nothing"
        assert [r.id for r in (await s.list_records(ids=["r0", "r0", "r3"])).data] == ["r3", "r0"]
        times = everything.data
        between = await s.list_records(created_after=times[1].created_at, created_before=times[5].created_at)
        assert {r.id for r in between.data} <= {"r2", "r3", "r4"}, "both ends are left out"
        for wrong in (
            {"cursor": evens.next_cursor},
            {"stage_name": "odd", "cursor": evens.next_cursor},
            {"cursor": "AAAA"},
            {"cursor": evens.next_cursor + "="},
            {"limit": 0},
            {"limit": 201},
            {"order": "newest"},
            {"colour": "red"},
            {"created_after": "2026-01-01"},
            {"created_after": times[3].created_at, "created_before": times[3].created_at},
            {"ids": "r1"},
        ):
            with pytest.raises(StorageRejectedError):
                await s.list_records(wrong)
        more = await s.list_records(flow_name="report", stage_name="even", limit=9, cursor=evens.next_cursor)
        assert 6 not in [r.data for r in more.data], "the page size may change"

    asyncio.run(main())


def test_of_two_that_commit_at_once_both_are_right() -> None:
    """Twenty runs in two processes' worth of state append and replace at once: nothing is lost, conflicts are told."""

    async def main() -> None:
        class Slow(MemoryRunJournal):
            async def post(self, *args: Any) -> Any:
                await asyncio.sleep(0.001)
                return await super().post(*args)

        journal = Slow()

        shared = FakePort(journal)
        one, other = RunStorage(shared, of_put), RunStorage(shared, of_put)
        await one.commit([create("a", 0)])
        mine = project._known.pop(journal)  # the other process knows nothing of what this one has read
        await other.get_artifact_by_id("a")
        theirs = project._known[journal]

        async def bump(side: project.ProjectStorage, n: int) -> int:
            tries = 0
            while True:
                tries += 1
                state = await side.current()
                row = state.artifacts["a"]
                value = await codec.decode(bytes(row.data), journal.get_blob)
                batch = operations([replace("a", row.revision, value + 1), record(f"r{n}")])
                try:
                    await side.commit(batch, token=f"bump-{n}", describe=of_put)
                    return tries
                except StorageConflictError:
                    await asyncio.sleep(0)

        tries = await asyncio.gather(*(bump(mine if n % 2 else theirs, n) for n in range(20)))
        assert max(tries) > 1, "they did meet"
        for side in (mine, theirs):
            state = await side.current()
            assert len(state.records) == 20 and state.revision == 21 and state.number == 21
            assert await codec.decode(bytes(state.artifacts["a"].data), journal.get_blob) == 20

    asyncio.run(main())


# ---------------------------------------------------------------- in runs


def world() -> World:
    made = World()
    made.engine = engine_on(made.journal, made.clock, storage=lambda port: RunStorage(port, of_put))
    return made


async def again(world: World) -> None:
    await world.engine.close()
    world.engine = engine_on(world.journal, world.clock, storage=lambda port: RunStorage(port, of_put))


def test_a_body_commits_once_however_often_it_is_replayed() -> None:
    """Commits, reads and refusals are recorded: a resumed run sees what it saw, and nothing is done twice."""

    async def main() -> None:
        w = world()
        seen: list[Any] = []

        async def body(ctx: Context) -> Any:
            result = await ctx.storage.commit([create("a", {"n": 1}), record("r")])
            found = await ctx.storage.get_artifact("report", "draft")
            try:
                await ctx.storage.commit([create("other")])
                refused = ""
            except StorageConflictError as error:
                refused = str(error)
            seen.append((result, found, refused))
            await ctx.ui.confirm("Go on?", name="go")
            page = await ctx.storage.list_records(flow_name="report")
            return [r.id for r in page.data]

        execution = await w.start(body)
        await until(lambda: "prompt.opened" in types_of(execution))
        await again(w)

        async def outside(ctx: Context) -> None:
            now = await ctx.storage.get_artifact_by_id("a")
            assert isinstance(now, StoredArtifact)
            await ctx.storage.commit([remove("a", now.revision), record("r2")])

        assert (await rest(await w.start(outside))).status == "completed"
        execution = await w.resume(execution.run_id, body)
        await w.answer(execution, True, "go")
        result = await rest(execution)
        assert result.result == ["r2", "r"], result.error
        assert len(seen) == 2 and seen[0] == seen[1], "also what would not be refused any more"
        stream = [e async for e in w.journal.read("storage")]
        assert [e.type for e in stream] == ["run.created", "storage.committed", "storage.committed"]
        assert [s.run_id for s in await w.journal.list_runs()].count("storage") == 0, "the stream is no run"
        await w.engine.close()

    asyncio.run(main())


def test_a_commit_that_was_done_and_not_recorded_is_found() -> None:
    """A worker dies between the commit and its record: the resumed run gets that commit's result and does no other."""

    async def main() -> None:
        w = world()

        async def body(ctx: Context) -> Any:
            result = await ctx.storage.commit([create("a", 5)])
            return result.written_artifacts[0].revision

        execution = await w.start(body)

        async def lost(*_: Any) -> Any:
            await asyncio.get_running_loop().create_future()

        execution.recorder.commit = lost  # type: ignore[method-assign]
        await until(lambda: len(w.journal._runs.get("storage", [])) == 2)
        await again(w)
        execution = await w.resume(execution.run_id, body)
        assert (await rest(execution)).result == 1
        assert len(w.journal._runs["storage"]) == 2, "one commit only"
        await w.engine.close()

    asyncio.run(main())


def test_async_steps_commit_and_sync_steps_are_told() -> None:
    """An async step uses the storage, once even when it is tried again; a sync step cannot await and is told so."""

    async def main() -> None:
        w = world()
        tries = itertools.count(1)

        async def body(ctx: Context) -> Any:
            async def keep() -> int:
                result = await ctx.storage.commit([record("once", [1, 2])])
                if next(tries) == 1:
                    raise ValueError("after the commit")
                return len(result.appended_records)

            kept = await ctx.step("keep", keep, max_attempts=2)

            def sync() -> str:
                try:
                    ctx.storage.commit([])
                except LoomError as error:
                    return str(error)
                return ""

            return kept, await ctx.step("sync", sync)

        execution = await w.start(body)
        result = await rest(execution, 15)
        assert result.status == "completed", result.error
        assert result.result[0] == 1 and "cannot be awaited in a sync step" in result.result[1]
        committed = [e for e in w.journal._runs["storage"] if e.type == "storage.committed"]
        assert len(committed) == 1 and committed[0].event.node_id.startswith("inline:keep")  # type: ignore[attr-defined]
        assert [e.kind for e in events_of(execution, ev.ValueRecorded)] == []
        await w.engine.close()

    asyncio.run(main())


def test_agents_get_a_storage_without_commit() -> None:
    """Reading is another object, not a narrower type."""
    assert not hasattr(ReadStorage(FakePort(MemoryRunJournal())), "commit")


def test_without_the_capability_a_sentence_says_so() -> None:
    """Where nobody plugged a storage in, the first use says what is missing."""

    async def main() -> None:
        w = World()

        async def body(ctx: Context) -> str:
            try:
                await ctx.storage.get_record_by_id("x")
            except LoomError as error:
                return str(error)
            return ""

        assert "ctx.storage" in (await rest(await w.start(body))).result
        await w.engine.close()

    asyncio.run(main())


def test_figures_and_tables_are_kept_as_data() -> None:
    """Any value may be data; a figure comes back as its picture, and the event says what it is."""
    figures = pytest.importorskip("matplotlib.figure")

    async def main() -> None:
        s = storage()
        figure = figures.Figure()
        figure.subplots().plot([1, 2])
        result = await s.commit([create("fig", figure)])
        assert isinstance(result.written_artifacts[0].data, codec.Image)
        journal = s._port.journal  # type: ignore[attr-defined]
        [entry] = [e for e in journal._runs["storage"] if e.type == "storage.committed"]
        assert (entry.event.writes[0].kind, entry.event.writes[0].media_type) == ("figure", "image/png")

    asyncio.run(main())
