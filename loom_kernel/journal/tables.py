"""The tables behind the views: what is inserted, and how it is read back. Speaks SQL, knows no duckdb import.

Only inserts happen beside readers: one UPDATE in a transaction while a reader is open would silently stop all
checkpoints. ``run_heads`` therefore gets a new row for every batch that touched a run; the newest counts. The newest
``global_seq`` in it is also how far the commit log has been applied, written in the same transaction.
Nothing here leaves a result half read, since that is an open reader too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from loom_kernel import events
from loom_kernel.ids import RunId
from loom_kernel.journal.abc import Holder, JournalEntry, Notice
from loom_kernel.journal.core import DELETED, OpenPrompt, RunFilter, RunHead

SLICE = 5_000
"""Rows handed to the appender at once: it holds the interpreter's lock while it copies them."""

MIRROR = 2_000
"""Heads of resting runs kept by the applier, at most."""

_EVENT = "global_seq, run_id, seq, key, type, node_id, payload, created_at"
_HEAD = "run_id, global_seq, created_seq, last_seq, epoch, status, reason, resumable, prompts, holder, created_at, updated_at"
_NEWEST = (
    f"select {_HEAD} from store.run_heads{{where}} "
    "qualify row_number() over (partition by run_id order by global_seq desc) = 1"
)
_FINISHED = "(" + ", ".join(f"'{status}'" for status in sorted(events.TERMINAL)) + ")"
_prompts = msgspec.json.Decoder(list[OpenPrompt])
_holder = msgspec.json.Decoder(Holder)


class Tables:
    """One database.

    Args:
        connection: an open DuckDB connection whose schema is current.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._mirror: dict[str, RunHead] = {}  # heads as of the last applied entry; the applier's own
        self.recover()
        self._tombstones = set(self._column("select run_id from store.run_heads where last_seq = 0"))

    # ------------------------------------------------------------ writing (the applier's thread)

    def apply(self, entries: list[JournalEntry]) -> None:
        """Insert the entries that are not there yet; a deletion is a transaction of its own."""
        batch: list[JournalEntry] = []
        for entry in entries:
            if entry.global_seq <= self.position:
                continue
            if entry.type == DELETED and not entry.seq:
                self._insert(batch)
                batch = []
                self._delete(entry)
            else:
                batch.append(entry)
        self._insert(batch)

    def recover(self) -> None:
        """Start over from what is committed."""
        self._mirror.clear()
        self._writer = self._connection.cursor()
        self._events = self._writer.appender("store.events")
        self._heads = self._writer.appender("store.run_heads")
        self._headers = self._writer.appender("store.run_headers")
        self.position: int = self._column("select coalesce(max(global_seq), 0) from store.run_heads")[0]

    def _insert(self, entries: list[JournalEntry]) -> None:
        if not entries:
            return
        touched = self._touched(entries)
        for entry in entries:
            touched[entry.run_id].take(entry)
        rows = [
            (
                e.global_seq,
                e.run_id,
                e.seq,
                e.key,
                e.type,
                e.node_id,
                e.payload.decode("utf-8", "replace"),
                e.created_at,
            )
            for e in entries
            if e.seq
        ]
        self._writer.execute("begin")
        try:
            for at in range(0, len(rows), SLICE):
                self._events.append_rows(rows[at : at + SLICE])
            self._events.flush()
            headers = [_header_row(e) for e in entries if e.type == events.RunCreated.type]
            if headers:
                self._headers.append_rows(headers)
                self._headers.flush()
            self._heads.append_rows([_head_row(head) for head in touched.values()])
            self._heads.flush()
            self._writer.execute("commit")
        except BaseException:
            self._rollback()
            raise
        self.position = entries[-1].global_seq
        self._forget_resting(touched)

    def _delete(self, entry: JournalEntry) -> None:
        head = self._touched([entry])[entry.run_id]
        head.take(entry)
        self._writer.execute("begin")
        try:
            for table in ("events", "run_headers", "run_heads"):
                self._writer.execute(f"delete from store.{table} where run_id = ?", [entry.run_id])
            self._heads.append_rows([_head_row(head)])
            self._heads.flush()
            self._writer.execute("commit")
        except BaseException:
            self._rollback()
            raise
        self._tombstones.add(entry.run_id)
        self.position = entry.global_seq

    def _rollback(self) -> None:
        for appender in (self._events, self._heads, self._headers):
            appender.clear()
        self._writer.execute("rollback")

    def _touched(self, entries: list[JournalEntry]) -> dict[str, RunHead]:
        run_ids = {entry.run_id for entry in entries}
        new = {entry.run_id for entry in entries if entry.seq == 1} - self._tombstones
        missing = [run_id for run_id in run_ids if run_id not in self._mirror and run_id not in new]
        if missing:
            for head in self.heads(missing):
                self._mirror[head.run_id] = head
        for run_id in run_ids - self._mirror.keys():
            head = self._mirror[run_id] = RunHead(run_id)
            head.keys = None
        return {run_id: self._mirror[run_id] for run_id in run_ids}

    def _forget_resting(self, touched: dict[str, RunHead]) -> None:
        if len(self._mirror) > MIRROR:
            for run_id, head in touched.items():
                if head.holder is None:
                    self._mirror.pop(run_id, None)

    def close(self) -> None:
        """Let go of the connection."""
        del self._events, self._heads, self._headers
        self._writer.close()

    # ------------------------------------------------------------ reading (any thread)

    def unfinished(self) -> list[RunHead]:
        """Heads of runs that are not over, are held, or were deleted (of which the epoch counts)."""
        wanted = f"status not in {_FINISHED} or holder is not null or last_seq = 0"
        ids = self._column(f"select run_id from store.run_heads group by run_id having arg_max({wanted}, global_seq)")
        return self.heads(ids) if ids else []

    def run_ids(self) -> set[str]:
        """Ids of all runs there are."""
        return set(self._column("select run_id from store.run_headers"))

    def heads(self, run_ids: Sequence[str]) -> list[RunHead]:
        """The newest heads of these runs, as far as there are any."""
        # A short list is cheaper looked through than joined, and the headers cheaper found apart.
        among = "list_contains(?, run_id)" if len(run_ids) < 100 else "run_id in (select unnest(?))"
        ids = [list(run_ids)]
        headers = dict(self._rows(f"select run_id, payload from store.run_headers where {among}", ids))
        rows = self._rows(_NEWEST.format(where=f" where {among}"), ids)
        return [_head(row, headers.get(row[0])) for row in rows]

    def find_runs(self, wanted: RunFilter, leave_out: Sequence[str], limit: int | None) -> list[RunHead]:
        """The newest runs that fit, newest first, without ``leave_out`` (which the caller knows better)."""
        clauses, parameters = ["last_seq > 0", "not list_contains(?, run_id)"], [list(leave_out)]
        for column in ("workflow", "key", "notebook"):
            value = getattr(wanted, column)
            if value is not None:
                clauses.append(f"{column} = ?")
                parameters.append(value)
        if wanted.tag is not None:
            clauses.append("list_contains(tags, ?)")
            parameters.append(wanted.tag)  # type: ignore[arg-type]
        if wanted.status is not None:
            clauses.append("list_contains(?, status)")
            parameters.append(sorted(wanted.status))
        if wanted.roots_only:
            clauses.append("parent_run_id is null")
        query = (
            f"select h.*, r.payload from ({_NEWEST.format(where='')}) h join store.run_headers r using (run_id) "
            f"where {' and '.join(clauses)} order by created_seq desc"
        )
        if limit is not None:
            query += f" limit {int(limit)}"
        return [_head(row[:-1], row[-1]) for row in self._rows(query, parameters)]

    def entries(self, run_id: str, from_seq: int, after: int, limit: int | None) -> list[JournalEntry]:
        """The run's events from ``from_seq`` whose ``global_seq`` is above ``after``, in order."""
        query = f"select {_EVENT} from store.events where run_id = ? and seq >= ? and global_seq > ? order by seq"
        if limit is not None:
            query += f" limit {int(limit)}"
        return [_entry(row) for row in self._rows(query, [run_id, from_seq, after])]

    def entry(self, run_id: str, key: str, after: int) -> JournalEntry | None:
        """The run's event with that key."""
        query = f"select {_EVENT} from store.events where run_id = ? and key = ? and global_seq > ?"
        rows = self._rows(query, [run_id, key, after])
        return _entry(rows[0]) if rows else None

    def notices(self, after: int, limit: int) -> list[Notice]:
        """What was appended after ``after``, in order."""
        query = (
            "select global_seq, run_id, seq, type, node_id from store.events where global_seq > ? "
            f"order by global_seq limit {int(limit)}"
        )
        return [Notice(*row) for row in self._rows(query, [after])]

    def _rows(self, query: str, parameters: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = self._connection.cursor()
        try:
            rows: list[tuple[Any, ...]] = cursor.execute(query, list(parameters)).fetchall()
            return rows
        finally:
            cursor.close()

    def _column(self, query: str) -> list[Any]:
        return [row[0] for row in self._rows(query)]


def _entry(row: tuple[Any, ...]) -> JournalEntry:
    global_seq, run_id, seq, key, type_, node_id, payload, created_at = row
    return JournalEntry(global_seq, run_id, seq, key, type_, node_id, payload.encode(), created_at)


def _head_row(head: RunHead) -> tuple[Any, ...]:
    return (
        head.run_id,
        head.last_global_seq,
        head.created_seq,
        head.last_seq,
        head.epoch,
        head.status,
        head.reason,
        head.resumable,
        msgspec.json.encode(list(head.prompts.values())).decode(),
        None if head.holder is None else msgspec.json.encode(head.holder).decode(),
        head.created_at,
        head.updated_at,
    )


def _header_row(entry: JournalEntry) -> tuple[Any, ...]:
    header = msgspec.json.decode(entry.payload, type=events.RunCreated)
    return (
        entry.run_id,
        entry.global_seq,
        header.workflow,
        header.key,
        header.notebook,
        header.tags,
        header.parent_run_id,
        entry.created_at,
        entry.payload.decode("utf-8", "replace"),
    )


def _head(row: tuple[Any, ...], header: str | None) -> RunHead:
    head = RunHead(RunId(row[0]))
    (
        head.last_global_seq, head.created_seq, head.last_seq, head.epoch, head.status, head.reason, head.resumable,
    ) = row[1:8]  # fmt: skip
    head.prompts = {prompt.node_id: prompt for prompt in _prompts.decode(row[8])}
    head.holder = None if row[9] is None else _holder.decode(row[9])
    head.created_at, head.updated_at = row[10], row[11]
    head.created = (header or "").encode()
    head.keys = None
    return head
