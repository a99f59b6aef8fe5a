"""What stands before a query is read strictly; the query itself is never touched."""

from __future__ import annotations

import pytest

from loom_kernel.errors import CommandError, SqlError
from loom_kernel.notebook.arguments import HelpShown
from loom_kernel.notebook.sql_magic import ROWS, SqlRequest, parameters, read


@pytest.mark.parametrize(
    ("line", "cell", "expected"),
    [
        ("select 1", None, SqlRequest("select 1")),
        ("", "select 1\n", SqlRequest("select 1")),
        ("slow <<", "select 1", SqlRequest("select 1", "slow")),
        ("slow << --limit 5", "select 1", SqlRequest("select 1", "slow", 5)),
        ("--limit=5 select 1", None, SqlRequest("select 1", None, 5)),
        ("--limit 5", "select 1", SqlRequest("select 1", None, 5)),
        ("select 1 << 2", None, SqlRequest("select 1 << 2")),
        ("", "select 1 << 2", SqlRequest("select 1 << 2")),
        ("--plot --limit 9", "select 1", SqlRequest("select 1", None, 9, True)),
        ("kept << --plot select 1", None, SqlRequest("select 1", "kept", plot=True)),
        ("-- a comment", "select 1", SqlRequest("-- a comment\nselect 1")),
        ("", "# NBVAL_IGNORE_OUTPUT\nselect '{a}', '$b', :c", SqlRequest("select '{a}', '$b', :c")),
        ("select *", "from runs", SqlRequest("select *\nfrom runs")),
    ],
)
def test_only_what_stands_before_the_query_is_taken(line: str, cell: str | None, expected: SqlRequest) -> None:
    """A shift is no assignment, a comment no option, and braces and dollars stay."""
    assert read("%%loomsql", line, cell) == expected


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--limt 5 select 1", "unknown option --limt. Did you mean --limit"),
        ("--plott select 1", "unknown option --plott. Did you mean --plot"),
        ("--plot=bar select 1", "unknown option --plot"),
        ("--limit x select 1", "--limit 'x' is not a number of rows"),
        ("--limit 0 select 1", "--limit '0' is not a number of rows"),
        ("slow <<", "there is no query"),
    ],
)
def test_what_is_wrong_is_a_sentence(line: str, sentence: str) -> None:
    """Unknown options and missing queries are refused."""
    with pytest.raises(CommandError, match=sentence):
        read("%%loomsql", line, None)


def test_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """``--help`` says what the magic takes."""
    with pytest.raises(HelpShown):
        read("%%loomsql", "--help", None)
    assert f"{ROWS} when left out" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("query", "bound", "names"),
    [
        ("select {x}", "select $x ", ["x"]),
        ("where a = { x } and b={x}::date", "where a = $x    and b=$x ::date", ["x"]),
        ("select '{x}', \"{x}\" -- {x}\n/* {x} */", "select '{x}', \"{x}\" -- {x}\n/* {x} */", []),
        ("select {'a': 1}, {a: 1}, {'a': {x}}", "select {'a': 1}, {a: 1}, {'a': $x }", ["x"]),
        ("""select '{"a": {"b": 1}}'::json""", """select '{"a": {"b": 1}}'::json""", []),
        ("select $$ {x} $$, $t${x}$t$, {y}", "select $$ {x} $$, $t${x}$t$, $y ", ["y"]),
        ("select 'it''s {x}' || {x}", "select 'it''s {x}' || $x ", ["x"]),
    ],
)
def test_variables_in_braces_are_parameters(query: str, bound: str, names: list[str]) -> None:
    """Braces in texts, names, comments, structs and JSON stay; the query keeps its length."""
    found, values = parameters(query, {"x": 1, "y": 2})
    assert (found, sorted(values)) == (bound, names) and len(found) == len(query)


def test_an_unknown_variable_is_a_sentence() -> None:
    """With the nearest name, and a caret under the place."""
    with pytest.raises(SqlError) as caught:
        parameters("select 1\nwhere n > {limt}", {"limit": 3})
    assert str(caught.value).startswith("there is no variable 'limt' for {limt}. Did you mean limit")
    assert str(caught.value).endswith("LINE 2: where n > {limt}\n                   ^^^^")
