"""The schema of the journal's file, by number. A newer file is refused; an older one is brought up to date at opening.

Add a step as ``_to_2`` and so on, and a fixture of a file of every released version to the tests; never change a step
that was released. ``store.meta`` only ever grows: its newest row counts.
"""

from __future__ import annotations

from typing import Any

from loom_kernel.errors import StorageUnavailableError
from loom_kernel.journal import sql_views

SCHEMA = 2

_TO_1 = """
create schema store;
create table store.meta (schema integer not null, views varchar not null);
create table store.events (
    global_seq bigint not null, run_id varchar not null, seq integer not null, key varchar, type varchar not null,
    node_id varchar, payload varchar not null, created_at bigint not null
);
create table store.run_headers (
    run_id varchar not null, global_seq bigint not null, workflow varchar not null, key varchar, notebook varchar,
    tags varchar[] not null, parent_run_id varchar, created_at bigint not null, payload varchar not null
);
create table store.run_heads (
    run_id varchar not null, global_seq bigint not null, created_seq bigint not null, last_seq integer not null,
    epoch integer not null, status varchar not null, reason varchar, resumable boolean not null,
    prompts varchar not null, holder varchar, created_at bigint not null, updated_at bigint not null
);
"""

# Heads of runs that rest move to a table of their own, one row each, so that opening reads only the others.
# A blob's bytes are kept uncompressed: reading one out of compressed ones takes a hundred times as long.
_TO_2 = """
alter table store.run_heads rename to live_heads;
create table store.rested_heads as from store.live_heads limit 0;
create view store.run_heads as
    select * from store.live_heads qualify row_number() over (partition by run_id order by global_seq desc) = 1
    union all
    select * from store.rested_heads where run_id not in (select run_id from store.live_heads);
create table store.blobs (
    sha256 varchar not null, size bigint not null, refs varchar[] not null,
    data blob using compression uncompressed, taken_at bigint not null
);
"""

_STEPS = (_TO_1, _TO_2)


def found(connection: Any) -> int:
    """The schema's number of a journal's file; 0 for an empty file, or one that is no journal."""
    tables = connection.execute("select schema_name || '.' || table_name from duckdb_tables()").fetchall()
    if ("store.meta",) not in tables:
        return 0
    return int(connection.execute("select schema from store.meta order by rowid desc limit 1").fetchall()[0][0])


def migrate(connection: Any, location: str) -> None:
    """Bring the schema up to date, in one transaction.

    Raises:
        StorageUnavailableError: the file is newer than this program, or is no journal.
    """
    tables = connection.execute("select schema_name || '.' || table_name from duckdb_tables()").fetchall()
    names = {name for (name,) in tables}
    if "store.meta" in names:
        schema, views = connection.execute(
            "select schema, views from store.meta order by rowid desc limit 1"
        ).fetchall()[0]
    elif names:
        raise StorageUnavailableError(
            f"{location} is a DuckDB file, but no journal of loom-kernel. Choose another folder with LOOM_HOME.",
            location,
        )
    else:
        schema, views = 0, ""
    if schema > SCHEMA:
        raise StorageUnavailableError(
            f"the journal {location} was written by a newer loom-kernel (schema {schema}, this one knows {SCHEMA}). "
            "Upgrade: pip install -U loom-kernel",
            location,
        )
    if schema == SCHEMA and views == sql_views.DIGEST:
        return
    connection.execute("begin")
    try:
        for step in _STEPS[schema:]:
            connection.execute(step)
        for statement in sql_views.STATEMENTS:
            connection.execute(statement)
        connection.execute("insert into store.meta values (?, ?)", [SCHEMA, sql_views.DIGEST])
        connection.execute("commit")
    except BaseException:
        connection.execute("rollback")
        raise
