"""``%%loomsql`` and ``%loomsql``: SQL over the journal and the notebook's frames, shown as a bounded table.

The result is DuckDB's own relation, so that ``.df()``, ``.pl()``, ``.arrow()`` and further SQL are at hand; only how the
magic's result is shown is ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from loom_kernel.errors import CommandError, SqlError
from loom_kernel.journal.places import pointed
from loom_kernel.notebook.arguments import Arguments, HelpShown, did_you_mean, without_markers
from loom_kernel.notebook.chart import POINTS, chart
from loom_kernel.notebook.tables import Table

ROWS = 50
"""Rows shown unless ``--limit`` says otherwise."""

_ASSIGN = re.compile(r"\s*([^\W\d]\w*)\s*<<(?!<)\s*")
_OPTION = re.compile(r"\s*(--?[A-Za-z][\w-]*)(?:=(\S*))?(?:\s+|\Z)")


@dataclass(frozen=True)
class SqlRequest:
    """What was asked for: the query, where to put its result, how many rows to show, and whether as a picture."""

    query: str
    name: str | None = None
    limit: int = ROWS
    plot: bool = False


def arguments(command: str) -> Arguments:
    """What the SQL magics take; SQL is not split into words, so this is for ``--help`` and completion."""
    parser = Arguments(
        command,
        "Ask the journal: one SELECT over runs, nodes, attempts, events, prompts, artifacts and more, over tables that\n"
        "were kept (artifact('name')), and over the notebook's frames, which are named like variables. {variable} is the\n"
        "variable's value. Without NAME << the result is shown; it is a DuckDB relation either way.",
        epilog="Example: %%loomsql slow << select name, duration_s from nodes order by duration_s desc",
    )
    parser.add_argument("name", nargs="?", metavar="NAME <<", help="put the relation into this variable, show nothing")
    parser.add_argument("--limit", type=int, metavar="N", help=f"rows to show, {ROWS} when left out")
    parser.add_argument("--plot", action="store_true", help="show a picture: lines along a time or number, else bars")
    parser.add_argument("query", nargs="*", metavar="QUERY", help="on this line, in the cell, or both")
    return parser


def read(command: str, line: str, cell: str | None) -> SqlRequest:
    """Take a magic's text apart. Only what stands before the query is ours; the query itself is passed as it is.

    Raises:
        CommandError: an unknown option, a limit that is no number, or no query.
        HelpShown: help was asked for and has been printed.
    """
    name: str | None = None
    limit, plot = ROWS, False
    rest = line
    while True:
        if name is None and (found := _ASSIGN.match(rest)):
            name, rest = found[1], rest[found.end() :]
            continue
        option = _OPTION.match(rest)
        if option is None:
            break
        rest = rest[option.end() :]
        if option[1] in ("--help", "-h"):
            print(arguments(command).help_text())
            raise HelpShown
        if option[1] == "--plot" and option[2] is None:
            plot = True
            continue
        if option[1] != "--limit":
            hint = did_you_mean(option[1], ["--limit", "--plot", "--help"]) or "A comment has a space after its dashes."
            raise CommandError(command, f"unknown option {option[1]}", hint)
        text = option[2]
        if text is None:
            text, _, rest = rest.strip().partition(" ")
        if not text.isdigit() or int(text) < 1:
            raise CommandError(command, f"--limit {text!r} is not a number of rows")
        limit = int(text)
    query = "\n".join(part for part in (rest.strip(), without_markers(cell or "").strip("\n")) if part.strip())
    if not query.strip():
        raise CommandError(command, "there is no query", f"For instance: {command} select * from runs")
    return SqlRequest(query, name, limit, plot)


_NOT_CODE = re.compile(
    r"""[eE]?'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|\$(\w*)\$.*?\$\1\$""",
    re.DOTALL,
)
_BRACES = re.compile(r"\{(\s*)([^\W\d]\w*)(\s*)\}")


def parameters(query: str, namespace: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The query with ``$name`` in place of each ``{name}``, and the values to bind.

    Braces in texts, comments and struct or JSON values are left alone. The query keeps its length, so that what is said
    of a place in it stays right.

    Raises:
        SqlError: there is no such variable.
    """
    code = _NOT_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), query)
    values: dict[str, Any] = {}
    for found in _BRACES.finditer(code):
        name = found[2]
        if name not in namespace:
            known = [n for n in namespace if not n.startswith("_")]
            hint = (
                did_you_mean(name, known) or "Set it in a cell before; a brace that is no parameter stands in quotes."
            )
            raise SqlError(pointed(f"there is no variable {name!r} for {{{name}}}. {hint}", query))
        values[name] = namespace[name]
        query = query[: found.start()] + f"${name}".ljust(len(found[0])) + query[found.end() :]
    return query, values


def table(relation: Any, limit: int) -> Table:
    """The first rows of a relation; DuckDB computes one more, to know whether there are."""
    rows = relation.limit(limit + 1).fetchall()
    shown = rows[:limit]
    return Table(list(relation.columns), shown, total=None if len(rows) > limit else len(rows), empty="")


class SqlMagic:
    """Runs the SQL magics.

    Args:
        sql: ``loom_kernel.sql`` with the frames by name: ``sql(query, frames, parameters) -> relation``.
        namespace: the notebook's variables.
        display_formatter: IPython's, which is told how to show our results.
    """

    def __init__(
        self,
        sql: Callable[[str, Mapping[str, Any], Mapping[str, Any]], Any],
        namespace: dict[str, Any],
        display_formatter: Any,
    ) -> None:
        self._sql, self._namespace, self._formatters = sql, namespace, display_formatter
        self._shown: tuple[Any, dict[str, str]] | None = None
        self._registered = False

    def run(self, command: str, line: str, cell: str | None = None) -> Any:
        """The relation, or None when it went into a variable.

        Raises:
            SqlError: the query was refused or failed.
            CommandError: see :func:`read`.
        """
        asked = read(command, line, cell)
        query, values = parameters(asked.query, self._namespace)
        try:
            relation = self._sql(query, self._namespace, values)
        except SqlError as error:
            text = str(error)
            for name in values:
                text = text.replace(f"${name} ", f"{{{name}}}")  # in the line that is shown: as it was written
            raise SqlError(text) from None
        if asked.name is not None:
            self._namespace[asked.name] = relation
            return None
        try:
            # Shown from these rows, so that an error of the query is the magic's and not the display's.
            self._shown = (relation, self._picture(command, relation, asked))
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in ("duckdb", "_duckdb"):
                raise
            raise SqlError(str(error)) from None
        self._register(type(relation))
        return relation

    def _picture(self, command: str, relation: Any, asked: SqlRequest) -> dict[str, str]:
        """What is shown of the result."""
        shown = table(relation, asked.limit)
        if not asked.plot:
            return shown.bundle()
        rows = relation.limit(POINTS).fetchall()
        drawn = chart(list(relation.columns), rows)
        if drawn is None:
            why = "there are no rows" if not rows else "no column holds numbers"
            raise CommandError(command, f"--plot has nothing to draw: {why}", "Leave --plot away to see the table.")
        return drawn.bundle(shown)

    def close(self) -> None:
        """Show relations as DuckDB does again."""
        self._shown = None
        if self._registered:
            self._formatters.mimebundle_formatter.pop(self._kind, None)
            self._registered = False

    def _register(self, kind: type) -> None:
        if not self._registered:
            self._kind = kind
            self._formatters.mimebundle_formatter.for_type(kind, self._bundle)
            self._registered = True

    def _bundle(self, relation: Any) -> dict[str, str] | None:
        """Our table for the relation that the magic returned last; any other is shown as DuckDB shows it."""
        if self._shown is None or self._shown[0] is not relation:
            return None
        return self._shown[1]
