"""A person's SQL text: is it one SELECT, and what is to be said when it is not or a name is wrong."""

from __future__ import annotations

import difflib
import re
from typing import Any

from loom_kernel.errors import SqlError
from loom_kernel.journal.sql_views import COLUMNS

_UNKNOWN_TABLE = re.compile(r"Table with name (\S+) does not exist")


def the_select(duckdb: Any, connection: Any, sql: str) -> str:
    """The text of the one SELECT in ``sql``, without the semicolon and comments behind it.

    Args:
        duckdb: the module, handed in by the rooms' doors to it.

    Raises:
        SqlError: it does not parse, or is none, several, or another statement.
    """
    text = _without_end(duckdb, sql)
    try:
        statements = connection.extract_statements(text)
    except Exception as error:
        raise SqlError(explained(error)) from None
    if not statements:
        raise SqlError(f"there is no statement here. Ask for example: select * from runs. Tables: {tables()}")
    if len(statements) > 1:
        raise SqlError(f"one SELECT at a time, these are {len(statements)} statements")
    kind = statements[0].type.name
    if kind != "SELECT":
        raise SqlError(
            f"only SELECT is allowed here, this is {_article(kind)} statement; the journal is read, never written, with SQL"
        )
    return text


def explained(error: Exception) -> str:
    """DuckDB's message for a person: with the tables there are, where a name is wrong."""
    text = re.sub(r"^[A-Z]\w+( \w+)? Error: ", "", str(error).strip())
    unknown = _UNKNOWN_TABLE.search(text)
    if unknown is not None:
        name = unknown.group(1).strip("\"'")
        close = difflib.get_close_matches(name, COLUMNS, n=1, cutoff=0.7)
        hint = f" Did you mean {close[0]}?" if close else ""
        return f"there is no table {name!r}.{hint} Tables: {tables()}"
    if "file system operations are disabled" in text or "Permission Error" in str(error):
        return (
            "SQL over the journal reads no files. A query that names a local file or frame runs in the kernel instead"
        )
    if "INTERRUPT" in str(error):
        return "the query was stopped"
    return text


def tables() -> str:
    """The documented views, for sentences."""
    return ", ".join(COLUMNS)


def _article(kind: str) -> str:
    word = kind.replace("_", " ")
    return f"an {word}" if word[0] in "AEIOU" else f"a {word}"


def _without_end(duckdb: Any, sql: str) -> str:
    """Cut a trailing semicolon with the comments around it: it would end the statement that ours is wrapped in."""
    encoded = sql.encode()
    end = None
    for offset, kind in reversed(duckdb.tokenize(sql)):  # offsets count bytes
        if encoded[offset : offset + 1] == b";":
            end = offset
        elif kind != duckdb.token_type.comment:
            break
    return sql if end is None else encoded[:end].decode()
