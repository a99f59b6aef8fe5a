"""``from artifact('cleaned')``: finds the kept table that a query names, before the query runs.

The name is looked up in the ``artifacts`` view; the value is read from the event that has it, and becomes a frame that
the query reads like any other. Nothing that a person writes becomes a path.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

from loom_kernel import codec, codec_tables
from loom_kernel.errors import LoomError, SqlError

FUNCTION = "artifact"

_PIECES = re.compile(rb"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/|[()]", re.DOTALL)

Rows = Callable[[str], Awaitable[list[tuple[Any, ...]]]]
"""Asks the journal."""


class ArtifactCall(NamedTuple):
    """One ``artifact(...)`` of a query: what it asks for, and the byte of the query where it begins."""

    name: str
    run: str | None
    revision: int | None
    start: int
    aliased: bool


def call_of(node: Mapping[str, Any]) -> ArtifactCall | None:
    """The call, if a table function of the parsed query is one.

    Raises:
        SqlError: its arguments are not constants of the right kind.
    """
    function = node.get("function") or {}
    if str(function.get("function_name", "")).lower() != FUNCTION:
        return None
    given: dict[str, Any] = {}
    for n, argument in enumerate(function.get("arguments") or ()):
        key = str(argument.get("name") or ("name" if n == 0 else "")).lower()
        literal = (argument.get("expression") or {}).get("literal")
        if literal is None or key not in ("name", "run", "revision"):
            raise SqlError(f"artifact takes a name in quotes, and run => 'id', revision => 1; not {key or 'more'}")
        given[key] = literal
    name, run, revision = given.get("name"), given.get("run"), given.get("revision")
    for literal, kind in ((name, "STRING"), (run, "STRING"), (revision, "INTEGER")):
        if literal is not None and literal.get("kind") != kind:
            raise SqlError("artifact takes a name in quotes, and run => 'id', revision => 1")
    if name is None:
        raise SqlError("artifact('name') needs the name of what was kept")
    return ArtifactCall(
        str(name["text"]),
        None if run is None else str(run["text"]),
        None if revision is None else int(revision["text"]),
        int(node["query_location"]),
        bool(node.get("alias")),
    )


def rewritten(sql: str, calls: Iterable[ArtifactCall]) -> tuple[str, dict[str, ArtifactCall]]:
    """The query with a table's name in place of each call, and which is which."""
    data = sql.encode()
    names: dict[str, ArtifactCall] = {}
    for n, call in enumerate(sorted(calls, key=lambda call: -call.start), start=1):
        end = _end(data, call.start)
        table = f"__artifact_{n}"
        names[table] = call
        data = data[: call.start] + (table if call.aliased else f"{table} as {FUNCTION}").encode() + data[end:]
    return data.decode(), names


def _end(data: bytes, start: int) -> int:
    """Where the call that begins there ends: behind its closing parenthesis."""
    depth = 0
    for found in _PIECES.finditer(data, start):
        piece = found[0]
        depth += (piece == b"(") - (piece == b")")
        if piece == b")" and not depth:
            return found.end()
    return len(data)


async def read(
    call: ArtifactCall,
    ask: Rows,
    get_blob: Callable[[str], Awaitable[bytes]],
    namespace: Mapping[str, Any] | None = None,
) -> Any:
    """The table, as a frame that DuckDB reads.

    Raises:
        SqlError: there is none of that name, or it is no table.
    """
    name, run_id, node_id, kind, source, path, global_seq, revision = await _find(call, ask)
    if kind != "table":
        raise SqlError(f"the artifact {name!r} is {_a(kind)}, not a table; read it with its run's result in Python")
    raw = await _stored(ask, source, run_id, node_id, global_seq, revision)
    try:
        value = await codec.decode(raw, get_blob, namespace=namespace)
    except (LoomError, KeyError) as error:
        raise SqlError(f"the artifact {name!r} cannot be read here: {error}") from error
    for step in json.loads(path):
        value = value[step] if isinstance(step, int) or isinstance(value, dict) else getattr(value, step)
    return codec_tables.for_sql(value)


async def _find(call: ArtifactCall, ask: Rows) -> tuple[Any, ...]:
    clauses = [f"a.name = {text(call.name)}", "a.removed_at is null"]
    if call.run is not None:
        clauses.append(f"a.run_id = {text(call.run)}")
    if call.revision is not None:
        clauses.append(f"a.revision = {call.revision}")
    rows = await ask(
        "select a.name, a.run_id, a.node_id, a.kind, a.source, a.path::varchar, a.global_seq, a.revision "
        "from artifacts a left join (select run_id, global_seq as began from events where type = 'run.created') b "
        f"using (run_id) where {' and '.join(clauses)} "
        "order by case when a.source = 'storage' then a.global_seq else b.began end desc, a.revision desc limit 1"
    )
    if rows:
        return rows[0]
    known = [row[0] for row in await ask("select distinct name from artifacts where kind = 'table' order by name")]
    close = difflib.get_close_matches(call.name, known, n=1, cutoff=0.6)
    where = f" in run {call.run}" if call.run is not None else ""
    version = f" of revision {call.revision}" if call.revision is not None else ""
    hint = f" Did you mean {close[0]!r}?" if close else ""
    kept = f" Tables kept: {', '.join(known[:10])}" if known else " No table was kept yet"
    raise SqlError(f"there is no artifact {call.name!r}{version}{where}.{hint}{kept}")


async def _stored(ask: Rows, source: str, run_id: str, node_id: str | None, global_seq: int, revision: int) -> bytes:
    """The encoded value that the artifact is in."""
    if source == "storage":
        [(writes,)] = await ask(f"select payload->'writes' from events where global_seq = {int(global_seq)}")
        [data] = [write["data"] for write in json.loads(writes) if write.get("revision") == revision]
        return json.dumps(data).encode()
    field, type_ = ("result", "node.completed") if source == "result" else ("value", "value.recorded")
    rows = await ask(
        f"select payload->'{field}' from events where run_id = {text(run_id)} and node_id = {text(node_id or '')} "
        f"and type = '{type_}' order by seq desc limit 1"
    )
    if not rows or rows[0][0] is None:
        raise SqlError("what the artifact is in is not in the journal any more")
    return str(rows[0][0]).encode()


def text(value: str) -> str:
    """A text as SQL has it."""
    return "'" + value.replace("'", "''") + "'"


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
