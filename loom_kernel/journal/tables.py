"""The tables behind the views: what is inserted, and how it is read back. Speaks SQL, knows no duckdb import.

Only inserts happen beside readers: one UPDATE in a transaction while a reader is open would silently stop all
checkpoints. ``live_heads`` therefore gets a new row for every batch that touched a run; the newest counts. In a quiet
moment heads of runs that rest move to ``rested_heads``, one row a run, so that opening looks at the others only. The view
``run_heads`` shows the newest of both. Their newest ``global_seq`` is also how far the commit log has been applied,
written in the same transaction. Nothing here leaves a result half read, since that is an open reader too.

Checkpoints are asked for here, not left to DuckDB: one that meets a full disk makes the whole database unusable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from loom_kernel import events
from loom_kernel.ids import RunId
from loom_kernel.journal import sql_times
from loom_kernel.journal.abc import Holder, JournalEntry, Notice
from loom_kernel.journal.core import DELETED, OpenPrompt, RunFilter, RunHead
from loom_kernel.journal.intake import MARKS, Intake, named_by
from loom_kernel.journal.sql_views import FOLD

SLICE = 5_000
"""Rows handed to the appender at once: it holds the interpreter's lock while it copies them."""

FOLD_EVENTS = 20_000
"""Of so many events the runs are folded at a time."""

FOLD_AFTER_US = 600_000_000
"""A run that does not rest is folded too when nothing was heard of it for so long."""

MIRROR = 2_000
"""Heads of resting runs kept by the applier, at most."""

MANY_HEADS = 1_000
"""Rows of ``live_heads`` that make moving them worth the while in a quiet moment."""

TOO_MANY_HEADS = 20_000
"""The same without one."""

_EVENT = "global_seq, run_id, seq, key, type, node_id, payload, created_at"
_HEAD = "run_id, global_seq, created_seq, last_seq, epoch, status, reason, resumable, prompts, holder, created_at, updated_at"
_NEWEST_LIVE = (
    f"select {_HEAD} from store.live_heads qualify row_number() over (partition by run_id order by global_seq desc) = 1"
)
_FINISHED = "(" + ", ".join(f"'{status}'" for status in sorted(events.TERMINAL)) + ")"
_RESTS = f"(status in {_FINISHED} and holder is null or last_seq = 0)"
_OF_A_RUN = ("store.events", "store.run_headers", "store.live_heads", "store.rested_heads", "store.folded_runs")
_FOLDABLE = f"""
select * from (
    select run_id, created_seq, last_seq, status, sum(last_seq) over (order by created_seq) as upto from store.run_heads
    where ({_RESTS} or updated_at < epoch_us(now()) - {FOLD_AFTER_US}) and run_id in (select run_id from store.unfolded)
) where upto - last_seq < {FOLD_EVENTS}
"""
_prompts = msgspec.json.Decoder(list[OpenPrompt])
_holder = msgspec.json.Decoder(Holder)


class Tables:
    """One database.

    Args:
        connection: an open DuckDB connection whose schema is current.
        intake: takes blobs in; None leaves them where they are.
        checkpoint: called between batches and, with True, when nothing has come for a while.
    """

    def __init__(
        self,
        connection: Any,
        intake: Intake | None = None,
        checkpoint: Callable[[bool], None] = lambda quiet: None,
    ) -> None:
        self._connection = connection
        self._intake, self._checkpoint = intake, checkpoint
        self._mirror: dict[str, RunHead] = {}  # heads as of the last applied entry; the applier's own
        self._tombstones: set[str] | None = None
        self._new_heads = MANY_HEADS  # rows of live_heads since they were last moved; unknown at first
        self._unfolded = 0  # events since runs were last folded
        self._untidy = True
        self.recover()

    # ------------------------------------------------------------ writing (the applier's thread)

    def apply(self, entries: list[JournalEntry]) -> None:
        """Insert the entries that are not there yet; deletions are transactions of their own."""
        batch: list[JournalEntry] = []
        deletions: list[JournalEntry] = []
        for entry in entries:
            if entry.global_seq <= self.position:
                continue
            if entry.type == DELETED and not entry.seq:
                self._insert(batch)
                batch = []
                deletions.append(entry)
            else:
                self._delete(deletions)
                deletions = []
                batch.append(entry)
        self._insert(batch)
        self._delete(deletions)
        self._untidy = True

    def recover(self) -> None:
        """Start over from what is committed."""
        self._mirror.clear()
        self._writer = self._connection.cursor()
        self._events = self._writer.appender("store.events")
        self._heads = self._writer.appender("store.live_heads")
        self._headers = self._writer.appender("store.run_headers")
        self._blobs = self._writer.appender("store.blobs")
        self.position: int = max(
            self._column(f"select coalesce(max(global_seq), 0) from store.{table}")[0]
            for table in ("live_heads", "rested_heads")
        )

    def settle(self) -> None:
        """Between two batches."""
        if self._new_heads >= TOO_MANY_HEADS:
            self.move_resting()
        if self._unfolded >= FOLD_EVENTS:
            self.fold_resting()
        self._checkpoint(False)

    def tidy(self) -> bool:
        """Nothing has come for a while: move heads that rest, have the database's log written back. Whether there is more."""
        more = False
        if self._untidy:
            self._untidy = False
            self.move_resting()
            more = self._untidy = self.fold_resting()
            self._checkpoint(True)
        return more

    def fold_resting(self) -> bool:
        """Keep what SQL shows of runs that rest, some at a time, so that a question about all runs is no fold over all events.

        Whether there is more to fold.
        """
        self._unfolded = 0
        with self._transaction():
            run = self._writer.execute
            run(f"create or replace temp table folding as {_FOLDABLE}")
            [(count, most)] = run("select count(*), coalesce(max(upto), 0) from folding").fetchall()
            if not count:
                return False
            if run("select count(*) from folding where run_id in (select run_id from store.folded_runs)").fetchall()[0][
                0
            ]:
                for table in ("store.folded_runs", *FOLD, *sql_times.FOLD):  # it went on after it rested
                    run(f"delete from {table} where run_id in (select run_id from folding)")
            run(f"create or replace temp table ending as from folding where status in {_FINISHED}")
            for statement in (*FOLD.values(), *sql_times.FOLD.values()):
                run(statement)
            run("insert into store.folded_runs select run_id, last_seq from folding")
            run("drop table ending")
            run("drop table folding")
        return most >= FOLD_EVENTS

    def move_resting(self) -> None:
        """Keep one row of each run, and those of runs that rest apart."""
        if self._new_heads < MANY_HEADS:
            return
        if self._column("select count(*) from store.live_heads")[0] < MANY_HEADS:
            self._new_heads = 0
            return
        with self._transaction():
            run = self._writer.execute
            run(f"create or replace temp table newest as {_NEWEST_LIVE}")
            run("delete from store.rested_heads where run_id in (select run_id from newest)")
            run("delete from store.live_heads")
            run(f"insert into store.rested_heads from newest where {_RESTS}")
            run(f"insert into store.live_heads from newest where not {_RESTS}")
            run("drop table newest")
        self._new_heads = 0

    def _insert(self, entries: list[JournalEntry]) -> None:
        if not entries:
            return
        self._take_blobs(named_by(entries))
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
        with self._transaction():
            for at in range(0, len(rows), SLICE):
                self._events.append_rows(rows[at : at + SLICE])
            self._events.flush()
            headers = [_header_row(e) for e in entries if e.type == events.RunCreated.type]
            if headers:
                self._headers.append_rows(headers)
                self._headers.flush()
            self._heads.append_rows([_head_row(head) for head in touched.values()])
            self._heads.flush()
        self.position = entries[-1].global_seq
        self._new_heads += len(touched)
        self._unfolded += len(rows)
        self._forget_resting(touched)

    def _delete(self, deletions: list[JournalEntry]) -> None:
        if not deletions:
            return
        touched = self._touched(deletions)
        for entry in deletions:
            touched[entry.run_id].take(entry)
        ids = [list(touched)]
        with self._transaction():
            for table in (*_OF_A_RUN, *FOLD, *sql_times.FOLD):
                self._writer.execute(f"delete from {table} where run_id in (select unnest(?))", ids)
            self._heads.append_rows([_head_row(head) for head in touched.values()])
            self._heads.flush()
        if self._tombstones is not None:
            self._tombstones |= touched.keys()
        self.position = deletions[-1].global_seq
        self._new_heads += len(touched)
        self._forget_resting(touched)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._writer.execute("begin")
        try:
            yield
            self._writer.execute("commit")
        except BaseException:
            for appender in (self._events, self._heads, self._headers, self._blobs):
                appender.clear()
            self._writer.execute("rollback")
            raise

    def _take_blobs(self, wanted: set[str]) -> None:
        """Before the events that name them; a blob too many does no harm."""
        if self._intake is None or not wanted:
            return
        for rows in self._intake.rows(wanted, self._known_blobs):
            with self._transaction():
                self._blobs.append_rows(rows)
                self._blobs.flush()
            self._checkpoint(False)
            wanted = wanted | {row[0] for row in rows}
        # Also of those that were taken earlier and written again since.
        self._intake.remove(
            self._column(
                "select sha256 from store.blobs where data is not null and list_contains(?, sha256)", [list(wanted)]
            )
        )

    def _known_blobs(self, wanted: set[str]) -> set[str]:
        return set(self._column("select sha256 from store.blobs where list_contains(?, sha256)", [list(wanted)]))

    def sweep(self, older_than: float, dry_run: bool = False) -> tuple[int, int]:
        """Remove blobs that nothing refers to, but for those that came after ``older_than`` (seconds since the epoch).

        Args:
            dry_run: remove nothing, only count.

        Returns:
            How many, and their bytes.
        """
        assert self._intake is not None
        named = self._column(
            "select distinct unnest(regexp_extract_all(payload, '\"([0-9a-f]{64})\"', 1)) from store.events "
            "where " + " or ".join(f"contains(payload, '{mark.decode()}')" for mark in MARKS)
        )
        self._take_blobs(set(named))  # those that an older version left as files, which may name more
        blobs = {
            row[0]: row[1:] for row in self._rows("select sha256, size, refs, taken_at, data is null from store.blobs")
        }
        wanted, look = set(named), list(named)
        while look:
            found = blobs.get(look.pop())
            if found is not None:
                look += set(found[1]) - wanted
                wanted |= set(found[1])
        gone = [sha for sha, row in blobs.items() if sha not in wanted and row[2] / 1e6 <= older_than]
        count, size = len(gone), sum(blobs[sha][0] for sha in gone)
        gone_files = {sha for sha in gone if blobs[sha][3]}
        if gone and not dry_run:
            with self._transaction():
                self._writer.execute("delete from store.blobs where sha256 in (select unnest(?))", [gone])
            self._untidy = True
        for sha, path, changed, bytes_ in list(self._intake.files()):
            if sha not in wanted and changed <= older_than:
                with contextlib.suppress(OSError):
                    if not dry_run:
                        path.unlink()
                    if sha not in gone_files:
                        count, size = count + 1, size + bytes_
        return count, size

    def _touched(self, entries: list[JournalEntry]) -> dict[str, RunHead]:
        run_ids = {entry.run_id for entry in entries}
        new = {entry.run_id for entry in entries if entry.seq == 1}
        if new:
            new -= self._deleted()
        missing = [run_id for run_id in run_ids if run_id not in self._mirror and run_id not in new]
        if missing:
            for head in self.heads(missing):
                self._mirror[head.run_id] = head
        for run_id in run_ids - self._mirror.keys():
            head = self._mirror[run_id] = RunHead(run_id)
            head.keys = None
        return {run_id: self._mirror[run_id] for run_id in run_ids}

    def _deleted(self) -> set[str]:
        if self._tombstones is None:
            self._tombstones = set(self._column("select run_id from store.run_heads where last_seq = 0"))
        return self._tombstones

    def _forget_resting(self, touched: dict[str, RunHead]) -> None:
        if len(self._mirror) > MIRROR:
            for run_id, head in touched.items():
                if head.holder is None:
                    self._mirror.pop(run_id, None)

    def close(self) -> None:
        """Let go of the connection."""
        del self._events, self._heads, self._headers, self._blobs
        self._writer.close()

    # ------------------------------------------------------------ reading (any thread)

    def unfinished(self) -> list[RunHead]:
        """Heads of runs that do not rest: not over, or held."""
        ids = self._column(f"select run_id from ({_NEWEST_LIVE}) where not {_RESTS}")
        return self.heads(ids) if ids else []

    def count_runs(self) -> int:
        """How many runs there are."""
        return int(self._column("select count(*) from store.run_headers")[0])

    def run_ids(self) -> set[str]:
        """Ids of all runs there are, and of those that were deleted (of which the epoch counts)."""
        return set(self._column("select run_id from store.run_heads"))

    def family(self) -> list[tuple[Any, ...]]:
        """All runs: id, parent, root, where it was forked from, when it was last written to, whether it rests for good."""
        return self._rows(
            f"""
            select r.run_id, r.parent_run_id, r.payload->>'root_run_id', r.payload->>'forked_from', h.updated_at,
                h.status in {_FINISHED} and h.holder is null and not h.resumable
            from store.run_headers r join store.run_heads h using (run_id) order by r.created_at
            """
        )

    def heads(self, run_ids: Sequence[str]) -> list[RunHead]:
        """The newest heads of these runs, as far as there are any."""
        # A short list is cheaper looked through than joined, and the headers cheaper found apart.
        among = "list_contains(?, run_id)" if len(run_ids) < 100 else "run_id in (select unnest(?))"
        ids = [list(run_ids)]
        headers = dict(self._rows(f"select run_id, payload from store.run_headers where {among}", ids))
        rows = self._rows(f"select {_HEAD} from store.run_heads where {among}", ids)
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
            f"select h.*, r.payload from (select {_HEAD} from store.run_heads) h join store.run_headers r using (run_id) "
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

    def blob(self, sha256: str) -> bytes | None:
        """The bytes of a blob that was taken in."""
        rows = self._rows("select data from store.blobs where sha256 = ? and data is not null limit 1", [sha256])
        return bytes(rows[0][0]) if rows else None

    def _rows(self, query: str, parameters: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = self._connection.cursor()
        try:
            rows: list[tuple[Any, ...]] = cursor.execute(query, list(parameters)).fetchall()
            return rows
        finally:
            cursor.close()

    def _column(self, query: str, parameters: Iterable[Any] = ()) -> list[Any]:
        return [row[0] for row in self._rows(query, parameters)]


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
