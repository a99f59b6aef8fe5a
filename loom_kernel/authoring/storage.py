"""What a project keeps beyond its runs: the shapes of ``ctx.storage``, after intloom's StorageAccess.

Artifacts are revised: one for each place (``flow_name``, ``stage_name``) of the project. Records are added and removed,
never changed. ``data`` is any value that a step may return, without NaN and infinities.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class StoredArtifact:
    """An artifact as it is now. Times are UTC, ISO with three decimals.

    ``revision`` counts all artifact writes of the project, so it grows with each write, skips numbers, and never comes
    again after a removal.
    """

    id: str
    flow_name: str
    stage_name: str
    revision: int
    data: Any
    created_at: str
    updated_at: str


@dataclass(frozen=True)
class StoredRecord:
    """A record. It never changes."""

    id: str
    flow_name: str
    stage_name: str
    data: Any
    created_at: str


@dataclass(frozen=True)
class StoragePage(Generic[T]):
    """A page of a list. ``next_cursor`` is None on the last one."""

    data: list[T]
    next_cursor: str | None = None


@dataclass(frozen=True)
class CommitResult:
    """What a commit did."""

    written_artifacts: list[StoredArtifact]
    appended_records: list[StoredRecord]
    removed_artifact_ids: list[str]
    removed_record_ids: list[str]


class StorageReadAccess(ABC):
    """Reading. In a body every read is recorded, so that a replay gets the same; in a step it sees what is there now."""

    @abstractmethod
    def get_artifact(self, flow_name: str, stage_name: str) -> Coroutine[Any, Any, StoredArtifact | None]:
        """The artifact at a place, or None.

        Raises:
            StorageRejectedError: a name that is blank, too long, or holds control characters.
        """

    @abstractmethod
    def get_artifact_by_id(self, id: str) -> Coroutine[Any, Any, StoredArtifact | None]:
        """The artifact with that id, or None."""

    @abstractmethod
    def get_latest_record(self, flow_name: str, stage_name: str) -> Coroutine[Any, Any, StoredRecord | None]:
        """The newest record at a place, or None."""

    @abstractmethod
    def get_record_by_id(self, id: str) -> Coroutine[Any, Any, StoredRecord | None]:
        """The record with that id, or None."""

    @abstractmethod
    def list_artifacts(
        self, query: Mapping[str, Any] | None = None, **more: Any
    ) -> Coroutine[Any, Any, StoragePage[StoredArtifact]]:
        """Artifacts that fit, a page at a time.

        Args:
            query: ``flow_name, stage_name, ids, created_after, created_before`` (both exclusive), ``order``
                (``"created_desc"`` or ``"created_asc"``), ``limit`` (1 to 200, 50 when left out), ``cursor``. The
                reference's spelling (``flowName``) is taken too. The same as keywords.

        Raises:
            StorageRejectedError: an unknown key, a value out of bounds, or the cursor of another query.
        """

    @abstractmethod
    def list_records(
        self, query: Mapping[str, Any] | None = None, **more: Any
    ) -> Coroutine[Any, Any, StoragePage[StoredRecord]]:
        """Records that fit; see :meth:`list_artifacts`."""


class StorageAccess(StorageReadAccess):
    """Reading and writing."""

    @abstractmethod
    def commit(self, operations: Sequence[Mapping[str, Any]]) -> Coroutine[Any, Any, CommitResult]:
        """Do all of the operations, in order, or none of them.

        Args:
            operations: mappings with ``type`` and what it needs:
                ``create_artifact`` (``id``, ``payload``), ``replace_artifact`` (``id``, ``expected_revision``,
                ``payload``), ``append_record`` (``id``, ``payload``), ``remove_artifact`` (``id``,
                ``expected_revision``), ``remove_record`` (``id``). ``payload`` is
                ``{"flow_name": ..., "stage_name": ..., "data": ...}``.

        Raises:
            StorageRejectedError: an operation of the wrong form, or one target twice.
            StorageNotFoundError: what is to be replaced or removed is not there.
            StorageConflictError: an id or place is taken, or the revision is another.
            ValueNotStorableError: ``data`` cannot be kept; the error names the part.
        """
