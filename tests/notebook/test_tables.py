"""Tables say the same for the same values, bounded in every direction."""

from __future__ import annotations

import datetime as dt

from loom_kernel.notebook.tables import Table, show


def test_numbers_are_flush_right_and_rows_are_counted() -> None:
    """Columns are aligned, and what is left out is said."""
    table = Table(["name", "n"], [["a", 1], ["bbb", 20], ["c", None]], total=10)
    assert table.text() == "name   n\n----  --\na      1\nbbb   20\nc\nand 7 more rows"
    assert "<td" in table.html() and "and 7 more rows" in table.html()
    assert Table(["n"], [[1]], total=None).text().endswith("and more rows than the 1 shown")


def test_html_is_escaped_and_long_cells_are_cut() -> None:
    """Nothing that a person or model wrote becomes markup, and no cell grows without bound."""
    table = Table(["<b>"], [["<script>" + "x" * 1000]], total=1)
    assert "<script>" not in table.html() and "&lt;b&gt;" in table.html()
    assert max(map(len, table.text().splitlines())) == 60 and table.html().count("x") < 700


def test_many_columns_are_counted() -> None:
    """Columns beyond a line's width are named, not wrapped."""
    table = Table([f"column_{i}" for i in range(40)], [list(range(40))], total=1)
    assert "more columns: column_" in table.text() and len(table.text().splitlines()[0]) <= 200


def test_values_are_shown_alike_everywhere() -> None:
    """Dates, durations, floats and bytes have one form."""
    shown = [dt.datetime(2026, 1, 2, 3, 4, 5), dt.timedelta(seconds=1.5), 1 / 3, b"abc", {"a": [1]}, True, "a\nb", None]
    assert [show(v) for v in shown] == [
        "2026-01-02 03:04:05",
        "1.5 s",
        "0.333333",
        "3 bytes",
        '{"a": [1]}',
        "true",
        "a b",
        "",
    ]


def test_an_empty_table_says_so() -> None:
    """Without rows there is a sentence where one was given, else the head alone."""
    assert Table(["a"], [], empty="no runs yet").text() == "no runs yet"
    assert Table(["a"], []).text() == "a\n-"
