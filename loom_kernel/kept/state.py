"""What the storage holds, folded from its commits, and what a batch would make of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Raw

from loom_kernel import events as ev
from loom_kernel.errors import StorageConflictError, StorageNotFoundError, StorageRejectedError
from loom_kernel.kept.operations import MAX_REVISION, Category, Operation, Query, stamp


class Row(NamedTuple):
    """An artifact or a record; ``revision`` is 0 for records. ``data`` is encoded."""

    id: str
    flow: str
    stage: str
    revision: int
    data: Raw
    created_at: str
    updated_at: str

    @property
    def order(self) -> tuple[bytes, bytes]:
        """How rows are sorted: by time, then by id, as bytes."""
        return self.created_at.encode(), self.id.encode()


class State:
    """The storage after the last commit that was folded.

    Attributes:
        number: of that commit, from 1.
        revision: the newest artifact revision of the project.
        tokens: numbers of commits by the call that made them, so that a call that is repeated finds its own.
    """

    def __init__(self) -> None:
        self.number = self.revision = 0
        self.artifacts: dict[str, Row] = {}
        self.records: dict[str, Row] = {}
        self.tokens: dict[str, int] = {}
        self._places: dict[tuple[str, str], str] = {}

    def apply(self, event: ev.StorageCommitted, created_at: int) -> None:
        """Fold a commit."""
        now = stamp(created_at)
        self.number = event.number
        self.tokens[event.token] = event.number
        for write in event.writes:
            if write.op == "append_record":
                self.records[write.id] = Row(write.id, write.flow, write.stage, 0, write.data, now, now)
            elif write.op == "remove_record":
                self.records.pop(write.id, None)
            elif write.op == "remove_artifact":
                gone = self.artifacts.pop(write.id, None)
                if gone is not None:
                    self._places.pop((gone.flow, gone.stage), None)
            else:
                self.revision = max(self.revision, write.revision)
                self.artifacts[write.id] = Row(
                    write.id, write.flow, write.stage, write.revision, write.data, write.since or now, now
                )
                self._places[write.flow, write.stage] = write.id

    def check(self, batch: Sequence[Operation]) -> list[int]:
        """The revisions that the batch's operations get, 0 where none; nothing is changed.

        Raises:
            StorageNotFoundError, StorageConflictError: the first operation that cannot be done.
        """
        rows: dict[str, Row | None] = {}  # what this batch has changed so far
        places: dict[tuple[str, str], str | None] = {}
        revision, revisions = self.revision, []
        for n, operation in enumerate(batch):
            at, id_ = f"operation {n}", operation.id
            given = 0
            if operation.op == "append_record":
                if id_ in self.records:
                    raise StorageConflictError(f"{at}: there is a record {id_!r} already")
            elif operation.op == "remove_record":
                if id_ not in self.records:
                    raise StorageNotFoundError(f"{at}: there is no record {id_!r}")
            else:
                known = rows[id_] if id_ in rows else self.artifacts.get(id_)
                place = (operation.flow, operation.stage)
                if operation.op == "create_artifact":
                    if known is not None:
                        raise StorageConflictError(f"{at}: there is an artifact {id_!r} already")
                    taken = places[place] if place in places else self._places.get(place)
                    if taken is not None:
                        raise StorageConflictError(
                            f"{at}: the artifact {taken!r} is at {place[0]!r}, {place[1]!r} already; replace it"
                        )
                else:
                    self._same(at, operation, known)
                    assert known is not None
                if operation.op == "remove_artifact":
                    assert known is not None
                    rows[id_], places[known.flow, known.stage] = None, None
                else:
                    revision += 1
                    given = revision
                    places[place] = id_
            revisions.append(given)
        if revision > MAX_REVISION:
            raise StorageRejectedError("there are no revisions left")
        return revisions

    @staticmethod
    def _same(at: str, operation: Operation, known: Row | None) -> None:
        if known is None:
            raise StorageNotFoundError(f"{at}: there is no artifact {operation.id!r}")
        if known.revision != operation.expected_revision:
            raise StorageConflictError(
                f"{at}: the artifact {operation.id!r} has revision {known.revision} now, not "
                f"{operation.expected_revision}; read it again"
            )
        if operation.op == "replace_artifact" and (known.flow, known.stage) != (operation.flow, operation.stage):
            raise StorageConflictError(
                f"{at}: the artifact {operation.id!r} is at {known.flow!r}, {known.stage!r}; its place cannot be changed"
            )

    def since(self, operation: Operation) -> str:
        """When the artifact that an operation replaces was created; empty for others."""
        return self.artifacts[operation.id].created_at if operation.op == "replace_artifact" else ""

    # ------------------------------------------------------------ reading

    def at(self, flow: str, stage: str) -> Row | None:
        """The artifact at a place."""
        id_ = self._places.get((flow, stage))
        return None if id_ is None else self.artifacts[id_]

    def newest(self, flow: str, stage: str) -> Row | None:
        """The newest record at a place."""
        here = [row for row in self.records.values() if (row.flow, row.stage) == (flow, stage)]
        return max(here, key=lambda row: row.order, default=None)

    def page(self, asked: Query) -> tuple[list[Row], str | None]:
        """The rows of a list's page, and the cursor of the next."""
        rows = sorted(
            (row for row in self._rows(asked.category) if _fits(row, asked)),
            key=lambda row: row.order,
            reverse=not asked.ascending,
        )
        if asked.start is not None:
            start = (asked.start[0].encode(), asked.start[1].encode())
            rows = [row for row in rows if (row.order > start if asked.ascending else row.order < start)]
        page = rows[: asked.limit]
        more = asked.cursor(page[-1].created_at, page[-1].id) if len(rows) > len(page) else None
        return page, more

    def _rows(self, category: Category) -> Iterable[Row]:
        return (self.artifacts if category == "artifact" else self.records).values()


def _fits(row: Row, asked: Query) -> bool:
    return (
        (asked.flow is None or row.flow == asked.flow)
        and (asked.stage is None or row.stage == asked.stage)
        and (asked.ids is None or row.id in asked.ids)
        and (asked.after is None or row.created_at > asked.after)
        and (asked.before is None or row.created_at < asked.before)
    )
