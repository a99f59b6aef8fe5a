"""Opens a journal's folder and its DuckDB file, and runs a person's SELECT in it. The store's door to duckdb."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import itertools
import os
import re
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from loom_kernel.errors import SqlError, StorageUnavailableError
from loom_kernel.journal import migrations
from loom_kernel.journal.abc import JournalEntry
from loom_kernel.journal.commit_log import CommitLog
from loom_kernel.journal.core import DELETED, RunHead
from loom_kernel.journal.intake import Intake
from loom_kernel.journal.parameters import plain
from loom_kernel.journal.room import RESERVE_BYTES, Reserve, free_bytes, is_full
from loom_kernel.journal.statement import explained, the_select
from loom_kernel.journal.tables import Tables

FILE = "loom.duckdb"
LOCK = "journal.lock"
RESERVE = "reserve.zeros"

CHECKPOINT_BYTES = 64 << 20
"""Of DuckDB's own log, after which it is written back to the file."""

LOOKS = 20
LOOK_AGAIN_S = 0.01
"""A question's transaction is begun anew, so often and after so long, where it does not see what was committed before."""

_SEEN = (
    "select greatest((select coalesce(max(global_seq), 0) from store.live_heads), "
    "(select coalesce(max(global_seq), 0) from store.rested_heads))"
)

QUIET_CHECKPOINT_BYTES = 1 << 20
"""The same in a quiet moment."""


@dataclass
class Opened:
    """An open journal folder, before anything runs."""

    folder: Path
    connection: Any
    tables: Tables
    log: CommitLog
    lock: int
    position: int
    heads: list[RunHead]  # of the runs that do not rest
    runs: int  # how many there are in the file
    tail: list[list[JournalEntry]]  # what the log has beyond the file, a change an item
    reserve: Reserve

    def close(self, *, everything_applied: bool) -> None:
        """Let go of the folder. Without anything to replay, all that was made ahead goes."""
        with contextlib.suppress(duckdb.Error):
            self.tables.move_resting()
        with contextlib.suppress(duckdb.Error):
            self.tables.close()
            checkpoint(self.connection, self.folder, 1)
        with contextlib.suppress(duckdb.Error):
            self.connection.close()
        self.log.close(everything_applied=everything_applied)
        if everything_applied:
            self.reserve.give_up()
        os.close(self.lock)


def open_folder(folder: Path) -> Opened:
    """Lock, connect, migrate, find out where things stand. Time does not grow with the history.

    Raises:
        StorageUnavailableError: with a sentence that says why and what to do.
    """
    folder = folder.absolute()
    try:
        return _open(folder)
    except (StorageUnavailableError, OSError, duckdb.Error) as error:
        reserve = Reserve(folder / RESERVE)
        if is_full(error) and reserve.there:
            reserve.give_up()  # what is there can be read and applied with its room
            return open_folder(folder)
        if isinstance(error, StorageUnavailableError):
            raise
        why = (error.strerror if isinstance(error, OSError) else None) or str(error).splitlines()[0]
        cure = "Free some space there" if is_full(error) else "Make the folder writable"
        raise StorageUnavailableError(
            f"cannot open the journal in {folder}: {why}. {cure}, or choose another one with LOOM_HOME.", str(folder)
        ) from error


def _open(folder: Path) -> Opened:
    with contextlib.ExitStack() as undo:
        _make(folder)
        lock = _lock(folder)
        undo.callback(os.close, lock)
        connection = _connect(folder)
        undo.callback(lambda: connection.close())
        if 0 < (number := migrations.found(connection)) < migrations.SCHEMA:
            connection = _backed_up(connection, folder, number)
        migrations.migrate(connection, str(folder / FILE))
        _lock_down(connection, folder)

        def settle(quiet: bool) -> None:
            checkpoint(connection, folder, QUIET_CHECKPOINT_BYTES if quiet else CHECKPOINT_BYTES)

        tables = Tables(connection, Intake(folder), settle)
        heads = tables.unfinished()
        log = CommitLog(folder / "log")
        tail = [
            change if change[0].global_seq > tables.position else [e for e in change if e.global_seq > tables.position]
            for change in log.changes(tables.position)
        ]
        woken = {entry.run_id for change in tail for entry in change} - {head.run_id for head in heads}
        if woken:
            heads += tables.heads(sorted(woken))
        opened = Opened(
            folder, connection, tables, log, lock, tables.position, heads, tables.count_runs(), tail,
            Reserve(folder / RESERVE),
        )  # fmt: skip
        undo.pop_all()
        return opened


def checkpoint(connection: Any, folder: Path, least: int) -> bool:
    """Write DuckDB's log back to its file if it is longer than ``least`` bytes; whether that was done.

    Open readers do not stop it. Not without room to spare: a checkpoint that finds the disk full ruins the connection.
    """
    try:
        size = (folder / (FILE + ".wal")).stat().st_size
    except OSError:
        return False
    if size < least or free_bytes(folder) < 2 * size + RESERVE_BYTES:
        return False
    cursor = connection.cursor()
    try:
        cursor.execute("checkpoint")
    finally:
        cursor.close()
    return True


def is_fatal(error: BaseException | None) -> bool:
    """Whether DuckDB says that nothing works any more until the file is opened anew."""
    return isinstance(error, duckdb.FatalException)


def _backed_up(connection: Any, folder: Path, number: int) -> Any:
    """Keep a copy of the file as it is, before its schema changes; the new connection."""
    path = folder / FILE
    copy, part = folder / f"{FILE}.schema{number}", folder / f"{FILE}.part"
    connection.execute("checkpoint")
    connection.close()
    try:
        shutil.copyfile(path, part)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, copy)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise StorageUnavailableError(
            f"{path} is of an older version and is copied before it is brought up to date, which failed "
            f"({error.strerror}). It needs {path.stat().st_size >> 20} MB of free space; nothing was changed.",
            str(path),
        ) from error
    return _connect(folder)


def _make(folder: Path) -> None:
    if not folder.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError), open(folder / ".gitignore", "x") as file:
            file.write("*\n")
    scratch = folder / "tmp"
    scratch.mkdir(mode=0o700, exist_ok=True)
    for path in scratch.glob("[qr]*-*"):
        if _left_behind(path):
            path.unlink(missing_ok=True)
    (folder / "blobs").mkdir(mode=0o700, exist_ok=True)


def _left_behind(path: Path) -> bool:
    """A result whose process is dead: ours until somebody takes it (``q<pid>-``), theirs afterwards (``r<pid>-``)."""
    match = re.match(r"([qr])(\d+)-", path.name)
    if match is None or (match[1] == "q" and time.time() - path.stat().st_mtime < 60):
        return False
    try:
        os.kill(int(match[2]), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return match[1] == "q"


def _lock(folder: Path) -> int:
    # DuckDB's own lock does not keep two connections of one process apart, and tells no pid.
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(lock)
        raise StorageUnavailableError(
            f"the journal in {folder} is already open (process {owner}). Talk to it through its hub, or end that process.",
            str(folder),
        ) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, b"%d\n" % os.getpid(), 0)
    return lock


def _connect(folder: Path) -> Any:
    path = folder / FILE
    threads = max(1, (os.cpu_count() or 2) - 1)
    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": threads,  # a core stays free for appends
        "memory_limit": "1GB",
        "temp_directory": str(folder / "tmp" / "spill"),
        "max_temp_directory_size": "4GB",
        "checkpoint_threshold": "1TB",  # they are asked for: see checkpoint()
        "autoinstall_known_extensions": "false",
        "python_enable_replacements": "false",  # our own variables are nobody's tables
    }
    try:
        connection = duckdb.connect(str(path), config=config)
        connection.execute("pragma disable_checkpoint_on_shutdown")
        return connection
    except duckdb.Error as error:
        text = str(error).splitlines()[0]
        if isinstance(error, duckdb.IOException) and "lock" in text.lower():
            sentence = f"{path} is open in another process ({text}). End that process, or use another folder."
        elif isinstance(error, duckdb.IOException) and any(
            word in text for word in ("Permission denied", "Read-only", "No space")
        ):
            sentence = f"cannot open {path}: {text}. Make it writable, or choose another folder with LOOM_HOME."
        else:
            sentence = (
                f"{path} is damaged and cannot be read ({text}). Restore it from a copy, or move it and its .wal file away "
                f"(mv {path} {path}.broken) to start an empty journal; nothing was changed."
            )
        raise StorageUnavailableError(sentence, str(path)) from error


def _lock_down(connection: Any, folder: Path) -> None:
    """From here on, nobody's SQL reaches a file but for the journal's own scratch and blobs."""
    allowed = ", ".join("'" + str(folder / name).replace("'", "''") + "'" for name in ("tmp", "blobs"))
    connection.execute(f"set allowed_directories = [{allowed}]")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")


def select_to_parquet(
    cursor: Any, sql: str, path: Path, parameters: Mapping[str, Any] | None = None, reached: int = 0
) -> None:
    """Run one SELECT in a read-only transaction; the result goes to ``path``. Closes ``cursor``.

    The transaction sees everything up to ``reached`` (a ``global_seq``), which is in the tables already.

    Raises:
        SqlError: it is not one SELECT, a name is wrong, it failed or was interrupted.
    """
    try:
        select = the_select(duckdb, cursor, sql)
        bound = {name: plain(name, value) for name, value in parameters.items()} if parameters else None
        for _ in range(LOOKS):
            cursor.execute("begin transaction read only")
            if not reached or cursor.execute(_SEEN).fetchall()[0][0] >= reached:
                break
            cursor.execute("rollback")  # a snapshot of a moment before
            time.sleep(LOOK_AGAIN_S)
        else:
            cursor.execute("begin transaction read only")
        relation = cursor.sql(select, params=bound)
        whole = storable(relation)
        try:
            whole.write_parquet(str(path))
        except duckdb.ConversionException:
            if whole is relation:
                raise
            cursor.execute("rollback")  # a sum beyond 64 bits: better a rounded one than none
            cursor.execute("begin transaction read only")
            cursor.sql(select, params=bound).write_parquet(str(path))
    except duckdb.Error as error:
        path.unlink(missing_ok=True)
        raise SqlError(explained(error)) from None
    finally:
        with contextlib.suppress(duckdb.Error):
            cursor.close()


def storable(relation: Any) -> Any:
    """Parquet has no 128-bit integers and would make a float of every ``sum(...)``."""
    columns = relation.columns
    if len(set(columns)) < len(columns):
        return relation
    wide = [name for name, kind in zip(columns, relation.types, strict=True) if str(kind) in ("HUGEINT", "UHUGEINT")]
    if not wide:
        return relation
    quoted = ('"' + name.replace('"', '""') + '"' for name in wide)
    return relation.select("* replace (" + ", ".join(f"{name}::bigint as {name}" for name in quoted) + ")")


_numbers = itertools.count(1)


@functools.cache
def _scratch(pid: int) -> Path:
    """Where results over entries in memory go in this process; removed when it ends."""

    def remove() -> None:
        if os.getpid() == pid:  # not a forked child
            shutil.rmtree(folder, ignore_errors=True)

    folder = Path(tempfile.mkdtemp(prefix="loom-sql-"))
    (folder / "tmp").mkdir()
    atexit.register(remove)
    return folder


def query_entries(
    entries: list[JournalEntry], sql: str, timeout_s: float, parameters: Mapping[str, Any] | None = None
) -> Path:
    """The same SELECT over entries in memory; the file is the caller's. Blocks.

    Raises:
        SqlError: as :func:`select_to_parquet`.
    """
    import threading

    scratch = _scratch(os.getpid())
    connection = duckdb.connect(":memory:", config={"python_enable_replacements": "false"})
    try:
        migrations.migrate(connection, "memory")
        _lock_down(connection, scratch)
        tables = Tables(connection)
        tables.apply([entry for entry in entries if entry.type != DELETED])
        tables.close()
        cursor = connection.cursor()
        timer = threading.Timer(timeout_s, cursor.interrupt)
        timer.start()
        try:
            path = scratch / "tmp" / f"{next(_numbers)}.parquet"
            select_to_parquet(cursor, sql, path, parameters)
            return path
        finally:
            timer.cancel()
    finally:
        connection.close()
