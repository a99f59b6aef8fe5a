"""What a question shows: bounded, for people, and never raw HTML."""

from __future__ import annotations

import base64
import datetime as dt
import sqlite3
from typing import Any

import duckdb
import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from loom_kernel.events import Shown
from loom_kernel.human.show import shown

FRAME = pd.DataFrame(
    {"day": pd.date_range("2020", periods=30), "t": [1.0, 2.5, None] * 10, "text": ["a\n b", None, "x" * 200] * 10}
)


def one(value: Any) -> Shown:
    parts, _ = shown(value)
    assert len(parts) == 1
    return parts[0]


@pytest.mark.parametrize("make", [lambda f: f, pl.from_pandas, pa.Table.from_pandas, lambda f: duckdb.from_df(f)], ids=["pandas", "polars", "arrow", "duckdb"])  # fmt: skip
def test_table(make: Any) -> None:
    """A table shows its first twenty rows as short texts and says how many there are."""
    table = one(make(FRAME))

    assert (table.kind, table.columns, len(table.rows), table.total) == ("table", ["day", "t", "text"], 20, 30)
    assert table.rows[:3] == [
        ["2020-01-01", "1", "a b"],
        ["2020-01-02", "2.5", "–"],
        ["2020-01-03", "–", "x" * 79 + "…"],
    ]


def test_wide_table() -> None:
    """A table shows twelve columns and says how many more there are."""
    table = one(pd.DataFrame(np.zeros((2, 40))))

    assert (len(table.columns), table.text) == (12, "28 more columns")
    assert one(pd.DataFrame(np.zeros((2, 13)))).text == "1 more column"


def test_index_is_shown() -> None:
    """An index that says something stands in front; one that only counts does not."""
    grouped = FRAME.assign(k=["a", "b"] * 15).groupby(["k", "t"])["day"].count()
    table = one(grouped)

    assert (table.columns, table.rows[0], table.total) == (["k", "t", "day"], ["a", "1", "5"], 4)
    assert one(pd.Series([1])).columns == ["value"]
    assert one(pd.DataFrame({(0, "a"): [1]}, index=pd.Index([5], name="x"))).columns == ["x", "0 / a"]


def test_records_and_arrays() -> None:
    """A list of dicts and an array are tables too."""
    table = one([{"a": 1}, {"b": True, "c": [1, 2]}])

    assert (table.columns, table.rows, table.total) == (["a", "b", "c"], [["1", "–", "–"], ["–", "true", "[1,2]"]], 2)
    assert (one(np.arange(1000)).columns, one(np.arange(1000)).total) == (["value"], 1000)
    assert one(np.zeros((2, 3))).columns == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"), (float("nan"), "–"), (pd.NaT, "–"), (3.0, "3"), (1234567.0, "1,234,567"), (0.1 + 0.2, "0.3"), (1e300, "1e+300"), (7, "7"),
        (False, "false"), (b"abc", "3 bytes"), (dt.date(2026, 1, 2), "2026-01-02"), (dt.datetime(2026, 1, 2), "2026-01-02"), ("<b>", "<b>"), ("\ud800", "?"),
    ],
)  # fmt: skip
def test_cells(value: Any, text: str) -> None:
    """A cell is one short line of text."""
    assert [[text]] == one([{"a": value}]).rows


def test_text_and_data() -> None:
    """Text is text, however long; other data is bounded JSON."""
    assert Shown(kind="text", text="<script>") == one("<script>")
    assert len(one("x" * 100_000).text) == 6_000
    assert Shown(kind="json", text='{"a":[1,2]}') == one({"a": [1, 2]})
    assert len(one({"a": list(range(100_000))}).text) <= 6_000
    assert one(sqlite3.connect(":memory:")).kind == "json"


def test_nothing() -> None:
    """None shows nothing and binds nothing."""
    assert shown(None) == ([], "")


def test_several() -> None:
    """A list of things to look at shows them one below the other."""
    parts, _ = shown([FRAME, "compare with", [{"a": 1}]])

    assert [p.kind for p in parts] == ["table", "text", "table"]
    assert one([1, "a"]).kind == "json"


class Rich:
    def __init__(self, **made: Any) -> None:
        for name, value in made.items():
            setattr(self, f"_repr_{name}_", lambda value=value: value)


PNG = base64.b64encode(b"\x89PNG...").decode()


def test_images() -> None:
    """Figures become image data URIs; SVG as an image runs nothing."""
    assert f"data:image/png;base64,{PNG}" == one(Rich(png=b"\x89PNG...")).text
    assert one(Rich(svg="<svg/>")).text.startswith("data:image/svg+xml;base64,")
    assert "too large to show" in one(Rich(png=b"x" * 400_000)).text


def test_no_html() -> None:
    """HTML that an object makes of itself is never taken; Markdown is."""
    assert "<b>" not in one(Rich(html="<b>x</b>")).text
    assert Shown(kind="markdown", text="# x") == one(Rich(markdown="# x", html="<b>"))


def test_figures_that_fail() -> None:
    """What cannot be shown is said in a sentence; the question is asked all the same."""

    class Broken:
        def _repr_markdown_(self) -> str:
            raise RuntimeError("no display")

    assert one(Broken()).text == "Broken cannot be shown: no display"


def test_hash_is_of_the_whole() -> None:
    """The hash covers rows that are not shown, and is the same for the same content."""
    longer = FRAME.copy()
    longer.loc[29, "t"] = 99.0

    assert shown(FRAME)[1] == shown(FRAME.copy())[1] != shown(longer)[1]
    assert shown(FRAME)[0] == shown(longer)[0]
    assert shown(Rich(png=b"1"))[1] == shown(Rich(png=b"1"))[1] != shown(Rich(png=b"2"))[1]


def test_it_fits_an_event() -> None:
    """The widest table stays small."""
    table = pd.DataFrame({f"{i}" * 50: ["y" * 500] * 50 for i in range(50)})

    assert len(msgspec.json.encode(shown(table)[0])) < 32_000


def test_matplotlib() -> None:
    """A matplotlib figure, or axes, is shown as PNG."""
    figure = pytest.importorskip("matplotlib.figure").Figure()
    axes = figure.subplots()
    axes.plot([1, 2])

    assert one(figure).text.startswith("data:image/png;base64,")
    assert one(axes).kind == "image"
    assert shown(figure)[1] == shown(figure)[1]


def test_pillow() -> None:
    """A PIL image is scaled down to what a view needs."""
    image = pytest.importorskip("PIL.Image").new("RGB", (4000, 10))

    assert one(image).kind == "image"
