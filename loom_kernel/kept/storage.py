"""``ctx.storage``: the project's storage as a run uses it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from loom_kernel import codec
from loom_kernel.authoring.storage import (
    CommitResult,
    StorageAccess,
    StoragePage,
    StorageReadAccess,
    StoredArtifact,
    StoredRecord,
)
from loom_kernel.journal.abc import RunJournal
from loom_kernel.kept.operations import Category, name, operations, query
from loom_kernel.kept.project import Describe, ProjectStorage, storage_of
from loom_kernel.kept.state import Row, State


class Port(Protocol):
    """What a run offers: see ``loom_kernel.engine.port``."""

    @property
    def run_id(self) -> str: ...
    @property
    def journal(self) -> RunJournal: ...
    def ask(
        self, name: str, identity: str, make: Callable[[str, str], Coroutine[Any, Any, Any]]
    ) -> Coroutine[Any, Any, Any]: ...


class ReadStorage(StorageReadAccess):
    """Reading only: what agents get. There is no ``commit`` on it."""

    def __init__(self, port: Port) -> None:
        self._port = port

    @property
    def _project(self) -> ProjectStorage:
        return storage_of(self._port.journal)

    def get_artifact(self, flow_name: str, stage_name: str) -> Coroutine[Any, Any, StoredArtifact | None]:
        place = (name(flow_name, "flow_name"), name(stage_name, "stage_name"))
        return self._one("get_artifact", "artifact", place, lambda state: state.at(*place))

    def get_artifact_by_id(self, id: str) -> Coroutine[Any, Any, StoredArtifact | None]:
        name(id, "id")
        return self._one("get_artifact_by_id", "artifact", id, lambda state: state.artifacts.get(id))

    def get_latest_record(self, flow_name: str, stage_name: str) -> Coroutine[Any, Any, StoredRecord | None]:
        place = (name(flow_name, "flow_name"), name(stage_name, "stage_name"))
        return self._one("get_latest_record", "record", place, lambda state: state.newest(*place))

    def get_record_by_id(self, id: str) -> Coroutine[Any, Any, StoredRecord | None]:
        name(id, "id")
        return self._one("get_record_by_id", "record", id, lambda state: state.records.get(id))

    def list_artifacts(
        self, query: Mapping[str, Any] | None = None, **more: Any
    ) -> Coroutine[Any, Any, StoragePage[StoredArtifact]]:
        return self._page("list_artifacts", "artifact", query, more)

    def list_records(
        self, query: Mapping[str, Any] | None = None, **more: Any
    ) -> Coroutine[Any, Any, StoragePage[StoredRecord]]:
        return self._page("list_records", "record", query, more)

    def _one(
        self, what: str, category: Category, arguments: Any, find: Callable[[State], Row | None]
    ) -> Coroutine[Any, Any, Any]:
        async def make(token: str, node_id: str) -> Any:
            row = find(await self._project.current())
            return None if row is None else await self._stored(category, row)

        return self._port.ask(f"storage.{what}", codec.content_hash(arguments)[:16], make)

    def _page(
        self, what: str, category: Category, given: Mapping[str, Any] | None, more: Mapping[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        asked = query(category, given, more)

        async def make(token: str, node_id: str) -> Any:
            rows, cursor = (await self._project.current()).page(asked)
            return StoragePage([await self._stored(category, row) for row in rows], cursor)

        return self._port.ask(f"storage.{what}", codec.content_hash(list(asked))[:16], make)

    async def _stored(self, category: Category, row: Row) -> StoredArtifact | StoredRecord:
        return await (self._project.artifact(row) if category == "artifact" else self._project.record(row))


class RunStorage(ReadStorage, StorageAccess):
    """Reading and writing.

    Args:
        port: of the run.
        describe: says what kind of artifact a value is.
    """

    def __init__(self, port: Port, describe: Describe) -> None:
        super().__init__(port)
        self._describe = describe

    def commit(self, operations: Sequence[Mapping[str, Any]]) -> Coroutine[Any, Any, CommitResult]:
        batch = _checked(operations)

        async def make(token: str, node_id: str) -> CommitResult:
            return await self._project.commit(
                batch, token=token, run_id=self._port.run_id, node_id=node_id, describe=self._describe
            )

        return self._port.ask("storage.commit", "", make)


_checked = operations
