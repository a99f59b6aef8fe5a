"""What stands before a query is read strictly; the query itself is never touched."""

from __future__ import annotations

import pytest

from loom_kernel.errors import CommandError
from loom_kernel.notebook.arguments import HelpShown
from loom_kernel.notebook.sql_magic import ROWS, SqlRequest, read


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
