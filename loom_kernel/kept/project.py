"""The project's storage: a stream of commits in the journal, followed by every process that uses it.

The stream is a run's in form only: nothing executes it, and it is never at rest, so it takes posts for ever. A commit is
one post under the key of its number. Of two processes that commit at once one gets the number; the other reads what was
committed, looks again whether its own still fits, and takes the next.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from loom_kernel import codec
from loom_kernel import events as ev
from loom_kernel.authoring.storage import CommitResult, StoredArtifact, StoredRecord
from loom_kernel.codec import Encoded
from loom_kernel.errors import StorageConflictError
from loom_kernel.ids import RunId
from loom_kernel.journal.abc import Append, RunJournal
from loom_kernel.kept.operations import Operation
from loom_kernel.kept.state import Row, State

STREAM = RunId("storage")
"""The stream's id; run ids never hold an ``o``."""

TRIES = 200


class Described(Protocol):
    """What an artifact of a value is: kind, media type, size and hash. The engine knows."""

    @property
    def kind(self) -> str: ...
    @property
    def media_type(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def sha256(self) -> str: ...


class Describe(Protocol):
    """Describes a value."""

    def __call__(self, value: Any, encoded: Encoded) -> Described: ...


class ProjectStorage:
    """One journal's storage, as this process knows it. Use :func:`storage_of`."""

    def __init__(self, journal: RunJournal) -> None:
        self._journal = journal
        self._seq = 0
        self._lock = asyncio.Lock()
        self.state = State()

    async def current(self) -> State:
        """The state after everything that was committed before this call."""
        async with self._lock:
            await self._catch_up()
        return self.state

    async def _catch_up(self) -> None:
        async for entry in self._journal.read(STREAM, self._seq + 1):
            self._seq = entry.seq
            if entry.type == ev.StorageCommitted.type:
                self.state.apply(entry.event, entry.created_at)  # type: ignore[arg-type]

    async def commit(
        self, batch: Sequence[Operation], *, token: str, run_id: str = "", node_id: str = "", describe: Describe
    ) -> CommitResult:
        """Do the batch, once for each ``token`` and content.

        Raises:
            StorageNotFoundError, StorageConflictError: it does not fit what is there.
        """
        token = f"{token}/{_content(batch)}"
        blobs = [blob for operation in batch if operation.encoded for blob in operation.encoded.blobs]
        if blobs:
            await self._journal.put_blobs(blobs)
        described = [
            describe(operation.value, operation.encoded) if operation.encoded is not None else None
            for operation in batch
        ]
        async with self._lock:
            for _ in range(TRIES):
                await self._catch_up()
                if token in self.state.tokens:
                    return await self._result(self.state.tokens[token])
                revisions = self.state.check(batch)
                if not batch:
                    return CommitResult([], [], [], [])
                event = ev.StorageCommitted(
                    number=self.state.number + 1,
                    token=token,
                    run_id=run_id,
                    node_id=node_id,
                    writes=[
                        _write(operation, revision, what, self.state.since(operation))
                        for operation, revision, what in zip(batch, revisions, described, strict=True)
                    ],
                )
                if self._seq == 0:
                    await self._journal.create_run(
                        STREAM, ev.RunCreated(workflow="", mode="storage", parent_run_id=STREAM)
                    )
                outcome = await self._journal.post(STREAM, Append(event, None, f"commit:{event.number}"))
                won: Any = outcome.entry.event
                if won.token == token:
                    await self._catch_up()
                    return await self._result(event.number)
        raise StorageConflictError("others commit all the time; try again")

    async def _result(self, number: int) -> CommitResult:
        """What the commit of that number did, in new objects."""
        entry = await self._journal.read_key(STREAM, f"commit:{number}")
        assert entry is not None
        event: Any = entry.event
        after = State()
        after.apply(event, entry.created_at)
        result = CommitResult([], [], [], [])
        for write in event.writes:
            if write.op in ("create_artifact", "replace_artifact"):
                result.written_artifacts.append(await self.artifact(after.artifacts[write.id]))
            elif write.op == "append_record":
                result.appended_records.append(await self.record(after.records[write.id]))
            elif write.op == "remove_artifact":
                result.removed_artifact_ids.append(write.id)
            else:
                result.removed_record_ids.append(write.id)
        return result

    async def artifact(self, row: Row) -> StoredArtifact:
        """A row as people get it, in new objects."""
        data = await codec.decode(bytes(row.data), self._journal.get_blob)
        return StoredArtifact(row.id, row.flow, row.stage, row.revision, data, row.created_at, row.updated_at)

    async def record(self, row: Row) -> StoredRecord:
        """The same of a record."""
        data = await codec.decode(bytes(row.data), self._journal.get_blob)
        return StoredRecord(row.id, row.flow, row.stage, data, row.created_at)


def _content(batch: Sequence[Operation]) -> str:
    """What the batch asks for, in short."""
    parts = [
        [o.op, o.id, o.flow, o.stage, o.expected_revision, "" if o.encoded is None else o.encoded.json.decode()]
        for o in batch
    ]
    return codec.content_hash(msgspec.json.encode(parts))[:16]


def _write(operation: Operation, revision: int, described: Described | None, since: str) -> ev.StorageWrite:
    if operation.encoded is None or described is None:
        return ev.StorageWrite(op=operation.op, id=operation.id)
    return ev.StorageWrite(
        op=operation.op,
        id=operation.id,
        flow=operation.flow,
        stage=operation.stage,
        revision=revision,
        since=since,
        data=Raw(operation.encoded.json),
        kind=described.kind,
        media_type=described.media_type,
        size_bytes=described.size_bytes,
        sha256=described.sha256,
    )


_known: weakref.WeakKeyDictionary[RunJournal, ProjectStorage] = weakref.WeakKeyDictionary()


def storage_of(journal: RunJournal) -> ProjectStorage:
    """The storage of a journal; one for all that use the journal in this process."""
    found = _known.get(journal)
    if found is None:
        found = _known[journal] = ProjectStorage(journal)
    return found
