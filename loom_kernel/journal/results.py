"""Results of SQL on the person's side: relations on DuckDB's default connection, and queries that join local things.

A query that names only the journal's views runs where the journal is; its result comes as a Parquet file. One that also
names a local frame, table or file runs here, over Parquet of the views it names: a person's data never leaves their
process. Relations are lazy, so the files they read live until the process ends.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import itertools
import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb

from loom_kernel.errors import SqlError
from loom_kernel.journal.artifact_tables import FUNCTION, ArtifactCall, call_of, read, rewritten
from loom_kernel.journal.parameters import plain
from loom_kernel.journal.places import pointed
from loom_kernel.journal.sql_views import COLUMNS
from loom_kernel.journal.statement import explained, the_select

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation

VIEWS = frozenset(COLUMNS)
"""Names that mean the journal's views."""

_numbers = itertools.count(1)
_kept: set[Path] = set()


def relation(path: Path) -> DuckDBPyRelation:
    """The result in ``path`` as a relation on DuckDB's default connection, which it can be joined on.

    The file becomes this process's: it is renamed, and removed when the process ends.
    """
    return duckdb.read_parquet(str(_keep(path)))


def _keep(path: Path) -> Path:
    # Named after this process, so that a journal that starts again leaves it alone while we live.
    mine = path.with_name(f"r{os.getpid()}-{next(_numbers)}-{path.stem}.parquet")
    path.rename(mine)
    if not _kept:
        atexit.register(_remove, os.getpid())
    _kept.add(mine)
    return mine


def _remove(pid: int) -> None:
    if os.getpid() != pid:  # a forked child
        return
    for path in _kept:
        with contextlib.suppress(OSError):
            path.unlink()
    _kept.clear()


_FILE_FUNCTIONS = re.compile(r"^(read_\w+|\w+_scan|glob|sniff_csv|parquet_\w+)$")


class Parsed(NamedTuple):
    """A SELECT: what it reads, and its calls of ``artifact()``."""

    names: set[str]
    artifacts: list[ArtifactCall]


def table_names(sql: str) -> set[str]:
    """What a SELECT reads: tables, and functions over files as ``read_csv()``. What it defines itself is left out.

    Raises:
        SqlError: it is not one SELECT.
    """
    return parse(sql).names


def parse(sql: str) -> Parsed:
    """What a SELECT reads.

    Raises:
        SqlError: it is not one SELECT, or calls ``artifact()`` in a wrong way.
    """
    with duckdb.connect(":memory:", config={"python_enable_replacements": "false"}) as connection:
        select = the_select(duckdb, connection, sql)
        tree = json.loads(connection.execute("select json_serialize_sql(?)", [select]).fetchall()[0][0])
    if tree.get("error"):  # a PIVOT inside, which has no tree: every word may be a name
        if re.search(rf"\b{FUNCTION}\s*\(", select, re.IGNORECASE):
            raise SqlError("artifact() cannot stand beside a PIVOT; keep the table with NAME << first, and pivot that")
        return Parsed(set(re.findall(r"\w+", select)) & VIEWS, [])
    named: set[str] = set()
    defined: set[str] = set()
    artifacts: list[ArtifactCall] = []
    nodes: list[Any] = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            if node.get("type") == "BASE_TABLE":
                schema = node.get("schema_name")
                named.add(node["table_name"] if schema in ("", "main") else f"{schema}.{node['table_name']}")
            elif node.get("type") == "TABLE_FUNCTION":
                function = (node.get("function") or {}).get("function_name", "")
                call = call_of(node)
                if call is not None:
                    artifacts.append(call)
                if _FILE_FUNCTIONS.match(function):
                    named.add(f"{function}()")
            elif "cte_map" in node:
                defined |= {entry["key"] for entry in node["cte_map"].get("map", ())}
            nodes += node.values()
        elif isinstance(node, list):
            nodes += node
    return Parsed(named - (defined - VIEWS), artifacts)  # ``with runs as (from runs) ...`` does read runs


async def answer(
    sql: str,
    frames: Mapping[str, Any],
    query: Callable[..., Awaitable[Path]],
    *,
    parameters: Mapping[str, Any] | None = None,
    get_blob: Callable[[str], Awaitable[bytes]] | None = None,
    namespace: Mapping[str, Any] | None = None,
    files: bool = True,
) -> DuckDBPyRelation:
    """Answer ``sql`` where it has to be: by the journal's ``query``, or here when it names something local.

    Args:
        frames: local variables that may be meant, by name.
        query: ``RunJournal.query``.
        parameters: values of ``$name`` in the query, bound and never pasted into it.
        get_blob: ``RunJournal.get_blob``, for ``artifact('name')``.
        namespace: where the notebook's classes are found, for the same.
        files: whether files and the network may be read. Without them the query sees the views, what was kept, and the
            frames, whatever its text says; the person's own connection is not used.

    Raises:
        SqlError: it is not one SELECT, or a name is wrong; with a caret under the place.
    """
    try:
        return await _answer(sql, frames, query, parameters, get_blob, namespace, files)
    except SqlError as error:
        raise SqlError(pointed(str(error), sql)) from None


async def _answer(
    sql: str,
    frames: Mapping[str, Any],
    query: Callable[..., Awaitable[Path]],
    parameters: Mapping[str, Any] | None,
    get_blob: Callable[[str], Awaitable[bytes]] | None,
    namespace: Mapping[str, Any] | None,
    files: bool,
) -> DuckDBPyRelation:
    names, artifacts = await asyncio.to_thread(parse, sql)
    if names <= VIEWS and not artifacts:
        return relation(await (query(sql, parameters=parameters) if parameters else query(sql)))

    async def ask(text: str) -> list[tuple[Any, ...]]:
        return await asyncio.to_thread(_rows, await query(text))

    async def views(wanted: list[str]) -> dict[str, Path]:
        paths = await asyncio.gather(*(query(f"from {name}") for name in wanted))
        return dict(zip(wanted, paths, strict=True))

    if artifacts and get_blob is not None:
        sql, calls = rewritten(sql, artifacts)
        frames = {**frames, **{name: await read(call, ask, get_blob, namespace) for name, call in calls.items()}}
    return await local_query(sql, frames, views, parameters, files)


def _rows(path: Path) -> list[tuple[Any, ...]]:
    """A result's rows; the file goes."""
    try:
        with duckdb.connect(":memory:") as connection:
            rows: list[tuple[Any, ...]] = connection.read_parquet(str(path)).fetchall()
            return rows
    finally:
        path.unlink(missing_ok=True)


async def local_query(
    sql: str,
    frames: Mapping[str, Any],
    views: Callable[[list[str]], Awaitable[dict[str, Path]]],
    parameters: Mapping[str, Any] | None = None,
    files: bool = True,
) -> DuckDBPyRelation:
    """Answer ``sql`` in the person's own DuckDB, or in one that reads no files.

    Args:
        frames: pandas, polars or arrow tables and relations, by the name the query uses.
        views: gives Parquet files of the journal's views.
        parameters: values of ``$name``.
        files: see :func:`answer`.

    Raises:
        SqlError: it is not one SELECT, or a name is wrong.
    """
    names = await asyncio.to_thread(table_names, sql)
    wanted = sorted(names & VIEWS)
    paths = {name: _keep(path) for name, path in (await views(wanted)).items()} if wanted else {}
    return await asyncio.to_thread(_local, sql, frames, names, paths, parameters, files)


def _local(
    sql: str,
    frames: Mapping[str, Any],
    names: set[str],
    paths: Mapping[str, Path],
    parameters: Mapping[str, Any] | None,
    files: bool,
) -> DuckDBPyRelation:
    here = {name: value for name, value in frames.items() if name in names}
    connection = duckdb.default_connection() if files else _closed(here, paths)
    select = the_select(duckdb, connection, sql)
    if paths:
        # Names of the journal win over others, and nothing is left behind on the person's connection.
        defined = ", ".join(f"{name} as (from read_parquet({_text(str(path))}))" for name, path in paths.items())
        select = f"with {defined}\nselect * from (\n{select}\n)"
    try:
        # DuckDB looks for the frames among the variables of the code that calls it: give it a scope with just those.
        found: DuckDBPyRelation = eval(
            "__run(__select, params=__parameters)",
            {
                "__builtins__": {},
                "__run": connection.sql,
                "__select": select,
                "__parameters": {name: plain(name, value) for name, value in parameters.items()}
                if parameters
                else None,
                **here,
            },
        )
        return found
    except duckdb.PermissionException:
        raise SqlError(
            "this SQL reads no files; it sees the journal, what runs kept, and frames by their names"
        ) from None
    except duckdb.Error as error:
        raise SqlError(_explained_here(error, frames)) from None


def _closed(frames: Mapping[str, Any], paths: Mapping[str, Path]) -> duckdb.DuckDBPyConnection:
    """A connection of its own that has these frames, may read these files, and nothing else."""
    connection = duckdb.connect(":memory:")
    for name, value in frames.items():
        if isinstance(value, duckdb.DuckDBPyRelation):  # of another connection
            value = value.to_arrow_table()
        connection.register(name, value)
    connection.execute(f"set allowed_paths = [{', '.join(_text(str(path)) for path in paths.values())}]")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")
    return connection


def _explained_here(error: Exception, frames: Mapping[str, Any]) -> str:
    text = explained(error)
    if "Tables: " in text and frames:
        return f"{text}; frames here: {_some(sorted(frames))}"
    return text


def _some(names: Sequence[str], most: int = 10) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
